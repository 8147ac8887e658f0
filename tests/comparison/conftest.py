"""Comparisons that several tests examine, each computed once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compared_methods import ComparedMethods
from recorded_calls import Call, RecordingConformal, select_calls
from small_methods import conformal, draw_rows, path, shortlister, take_rows, two_methods

import shortlist as sl


@pytest.fixture(scope="session")
def compared() -> ComparedMethods:
    """Compare most methods at two accuracies that are far apart, with all stages."""
    known, test = draw_rows(400, 1), draw_rows(150, 2)
    methods: dict[str, sl.SetPredictor] = {
        "Shortlister": shortlister(),
        "top-k": conformal("topk", calibration=0.5),
        "LAC": conformal(),
        "APS": conformal("aps", randomized=True),
        "RAPS": conformal("raps", randomized=True, accuracy=0.5),
        "SAPS": conformal("saps", randomized=True),
        "plug-in": sl.PlugInSelector(cost="log"),
        "path": path(),
        "fixed": sl.FixedSelector(),
        "recording": RecordingConformal(),
    }
    before = list(RecordingConformal.calls)
    RecordingConformal.calls.clear()
    comparison = sl.compare(
        *known, test=test, accuracies=[0.75, 0.95], methods=methods, stages=True
    )
    calls = RecordingConformal.calls
    (fit,), (calibrate,) = (select_calls(calls, method) for method in ("fit", "calibrate"))
    RecordingConformal.calls[:] = before
    train, calibration = (take_rows(known, call.row_numbers // 2) for call in (fit, calibrate))
    return ComparedMethods(comparison, methods, train, calibration, test)


@pytest.fixture(scope="session")
def reference() -> sl.Comparison:
    """Compare two methods on rows with features, given as arrays."""
    return sl.compare(*draw_rows(400, 1), test=draw_rows(100, 2), methods=two_methods())


@pytest.fixture
def calls() -> Iterator[list[Call]]:
    """Return the record of :class:`RecordingConformal`, which is empty when a test begins."""
    RecordingConformal.calls.clear()
    yield RecordingConformal.calls
    RecordingConformal.calls.clear()
