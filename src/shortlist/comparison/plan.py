"""A comparison before it is made: the methods, and the rows for each purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from shortlist._utils.arrays import (
    ArrayLike,
    as_features,
    check_count,
    check_probability,
    row_index,
)
from shortlist._utils.frames import column_names, match_columns
from shortlist._utils.labels import label_array
from shortlist._utils.warnings import warn
from shortlist.comparison.measure import add_rescored, measure
from shortlist.comparison.result import Comparison, Part, Rows
from shortlist.learning.settings import seed_of
from shortlist.predictors import (
    CardinalityPath,
    FixedSelector,
    PlugInSelector,
    SetPredictor,
    Shortlister,
)
from shortlist.predictors.conformal import SplitConformal
from shortlist.predictors.nested import hold_out
from shortlist.predictors.training_rows import TrainingRows
from shortlist.ranking import Ranking


@dataclass(frozen=True)
class Plan:
    """A comparison that is to be made: the methods, and the rows for each purpose."""

    found: Comparison
    methods: dict[str, SetPredictor]
    learned: Rows
    kept: Rows | None
    judged: Rows
    rescored: tuple[str, ...]
    """The scores that are tried on re-scored probabilities as well."""

    def measure(self, name: str) -> Part:
        rows = self.learned, self.kept, self.judged
        return measure(name, self.methods[name], self.found.accuracies, *rows)

    def finished(self) -> Comparison:
        """What was found of all methods, and of those on re-scored probabilities."""
        add_rescored(self.found, self.learned, self.kept, self.judged, self.rescored)
        return self.found


def planned(
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None,
    *,
    test: float | tuple[ArrayLike | Ranking, ArrayLike, ArrayLike | None],
    accuracies: Sequence[float],
    methods: Mapping[str, SetPredictor] | None,
    calibration: float | None,
    stages: bool,
    max_epochs: int | None,
    classes: ArrayLike | None,
    random_state: object,
) -> Plan:
    """Check everything that `compare` was given, and part the rows."""
    if np.ndim(accuracies) != 1 or not len(accuracies):
        raise ValueError(f"accuracies must be a list of at least one; got {accuracies!r}")
    levels = tuple(check_probability(a, "each of accuracies") for a in accuracies)
    seed = seed_of(random_state)
    known, judged, numbers = _read(scores, y, features, classes, test, seed)
    share = None if calibration is None else check_probability(calibration, "calibration")
    learning, held_out = hold_out(len(known[0]), share, seed)
    learned, kept = _take(known, learning), _take(known, held_out) if len(held_out) else None
    seen = TrainingRows(known[0]).among(judged[0])
    if seen:
        warn(
            f"{seen:,} of {len(judged[0]):,} test rows are among those to learn from: methods that "
            "learn much look better than they are"
        )
    if methods is not None:
        _check_methods(methods)
    chosen = dict(default_methods(features is not None, seed) if methods is None else methods)
    if not chosen:
        raise ValueError(f"methods must hold at least one set predictor; got {methods!r}")
    if max_epochs is not None:
        epochs = check_count(max_epochs, "max_epochs")
        chosen = {name: _train_no_longer(method, epochs) for name, method in chosen.items()}
    whole = chosen.get("Shortlister")
    if stages and features is not None and isinstance(whole, Shortlister):
        chosen["Shortlister, no re-scoring"] = clone(whole).set_params(rescore=False)
    words = f"{len(learned[0]):,} rows to learn from, "
    words += f"{len(kept[0]):,} to calibrate, " if kept else ""
    words += f"{len(judged[0]):,} to test, {known[0].n_classes} classes"
    found = Comparison(levels, words, len(judged[0]), row_numbers=numbers)
    rescored = ("lac", "raps", "saps") if stages else ("lac",) if methods is None else ()
    return Plan(found, chosen, learned, kept, judged, rescored)


def _check_methods(methods: object) -> None:
    """Raise if it is not a mapping of names to set predictors."""
    example = '{"LAC": SplitConformal("lac")}'
    if not isinstance(methods, Mapping):
        raise ValueError(f"methods must map names to set predictors, as {example}; got {methods!r}")
    for name, method in methods.items():
        if not isinstance(method, SetPredictor):
            raise ValueError(
                f"methods[{name!r}] must be a set predictor, as in {example}; got {method!r}"
            )


def _train_no_longer(method: SetPredictor, epochs: int) -> SetPredictor:
    known = method.get_params()
    if "max_epochs" not in known:
        return method
    copy: SetPredictor = clone(method)
    return copy.set_params(max_epochs=min(epochs, known["max_epochs"]))  # type: ignore[no-any-return]


def default_methods(has_features: bool, seed: int = 0) -> dict[str, SetPredictor]:
    """The methods that `compare` compares unless it is told which."""
    return {
        "Shortlister": Shortlister(random_state=seed),
        "top-k": SplitConformal("topk", random_state=seed),
        "LAC": SplitConformal("lac", random_state=seed),
        "APS": SplitConformal("aps", randomized=True, random_state=seed),
        "RAPS": SplitConformal("raps", randomized=True, random_state=seed),
        "SAPS": SplitConformal("saps", randomized=True, random_state=seed),
        "plug-in, log cost": PlugInSelector(cost="log", random_state=seed),
        "paper's selectors": CardinalityPath(
            inputs="both" if has_features else "scores",
            cost_weights=np.geomspace(1, 0.001, 20).tolist(),
            random_state=seed,
        ),
    }


def _read(
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None,
    classes: ArrayLike | None,
    test: float | tuple[ArrayLike | Ranking, ArrayLike, ArrayLike | None],
    seed: int,
) -> tuple[Rows, Rows, NDArray[np.intp] | None]:
    """The rows to learn from and the rows to judge by, checked before anything is fitted; and
    which rows the latter were, if they were chosen here."""
    reader = FixedSelector()  # names, labels and messages as everywhere
    ranking, _, kind = reader._validate_fit(scores, y, classes)
    reader._finalize_fit(ranking, kind)
    x = None if features is None else as_features(features, rows=len(ranking))
    all_rows: Rows = (ranking, label_array(y), x)
    if not isinstance(test, tuple | list):
        if not isinstance(test, Real):
            raise ValueError(
                "test must be a share of the rows, or (scores, y, features); got a "
                f"{type(test).__name__}"
            )
        share = check_probability(test, "test")
        learning, judging = hold_out(len(ranking), share, seed + 1)
        return _take(all_rows, learning), _take(all_rows, judging), judging
    if len(test) not in (2, 3):
        raise ValueError(
            f"test must be (scores, y) or (scores, y, features); got {len(test)} parts"
        )
    test_scores, test_y = test[:2]
    test_features = test[2] if len(test) == 3 else None
    if (features is None) != (test_features is None):
        with_them, without = ("fit", "test") if test_features is None else ("test", "fit")
        raise ValueError(f"the {with_them} rows have features, but the {without} rows have none")
    try:
        judged, _ = reader._labelled(test_scores, test_y)
        test_x = None
        if x is not None:
            matched = match_columns(test_features, column_names(features), "features")
            test_x = as_features(matched, rows=len(judged), columns=x.shape[1])
    except ValueError as error:
        raise ValueError(f"test: {error}") from error
    return all_rows, (judged, label_array(test_y), test_x), None


def _take(rows: Rows, which: NDArray[np.intp]) -> Rows:
    ranking, y, x = rows
    x = None if x is None else x[row_index(which, len(x), x.device)]
    return ranking[which], y[which], x
