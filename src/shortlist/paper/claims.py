"""The claims of the paper, with a verdict for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shortlist.paper.curve_claims import cost_negligible, grows_with_k, outperforms_top_k
from shortlist.paper.findings import Finding
from shortlist.paper.ratio_claims import (
    beats_conformal,
    beats_conformal_weak,
    half_at_98,
    two_thirds_at_95,
)
from shortlist.paper.results import Results

CLAIMS: tuple[Callable[[Results], Iterator[Finding]], ...] = (
    half_at_98,
    two_thirds_at_95,
    cost_negligible,
    outperforms_top_k,
    grows_with_k,
    beats_conformal,
    beats_conformal_weak,
)


def check_claims(results: Results) -> list[Finding]:
    """Return a finding for each claim that the figures show; none if the study is too small."""
    if not results.scale.verdicts:
        return []
    return [finding for claim in CLAIMS for finding in claim(results)]
