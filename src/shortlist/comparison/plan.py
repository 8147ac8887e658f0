"""The plan of a comparison: its methods, and the rows for each purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from shortlist._utils.arrays import ArrayLike, as_features
from shortlist._utils.frames import column_names, match_columns
from shortlist._utils.labels import label_array
from shortlist._utils.validation import check_count, check_probability
from shortlist._utils.warnings import warn
from shortlist.comparison.measure import measure
from shortlist.comparison.result import Comparison, LabelledRows, MethodResult
from shortlist.learning.settings import resolve_seed
from shortlist.predictors import (
    CardinalityPath,
    FixedSelector,
    PlugInSelector,
    SetPredictor,
    Shortlister,
)
from shortlist.predictors.conformal import hold_out
from shortlist.predictors.split_conformal import SplitConformal
from shortlist.predictors.training_rows import TrainingRows
from shortlist.ranking import Ranking

TestRows: TypeAlias = "float | tuple[ArrayLike | Ranking, ArrayLike, ArrayLike | None]"
"""A fraction of the rows, or rows as (scores, y, features)."""


@dataclass(frozen=True)
class Plan:
    """A comparison before it is run.

    Attributes
    ----------
    comparison : Comparison
        Receives the results.
    methods : dict of str to SetPredictor
        Methods to measure.
    train, calibration, test : LabelledRows
        Rows for each purpose, the same for every method; `calibration` may be None.
    rescored_scores : tuple of str
        Names of the conformity scores to try on re-scored probabilities as well.
    seed : int
        Seed of those.
    """

    comparison: Comparison
    methods: dict[str, SetPredictor]
    train: LabelledRows
    calibration: LabelledRows | None
    test: LabelledRows
    rescored_scores: tuple[str, ...]
    seed: int

    def measure(self, name: str) -> MethodResult:
        """Fit and measure one of the methods."""
        rows = self.train, self.calibration, self.test
        return measure(name, self.methods[name], self.comparison.accuracies, *rows)

    def finish(self) -> Comparison:
        """Return the comparison, with methods on re-scored probabilities added."""
        model = next((one for one in self.comparison.models.values() if one.rescored_), None)
        if model is None or not self.rescored_scores:
            return self.comparison

        def rescored(rows: LabelledRows) -> LabelledRows:
            return LabelledRows(model.rescored(rows.ranking, rows.features), rows.y, None)

        # The model has learned from the training rows: their own labels must not help them.
        own = model.out_of_fold(self.train.ranking, self.train.features)
        train = LabelledRows(own, self.train.y, None)
        calibration = None if self.calibration is None else rescored(self.calibration)
        test = rescored(self.test)
        for score in self.rescored_scores:
            randomized = score != "lac"
            method = SplitConformal(
                score, temperature=None, randomized=randomized, random_state=self.seed
            )
            name, accuracies = f"{score.upper()}, re-scored", self.comparison.accuracies
            self.comparison.add(measure(name, method, accuracies, train, calibration, test))
        return self.comparison


def plan_comparison(
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None,
    *,
    test: TestRows,
    accuracies: Sequence[float],
    methods: Mapping[str, SetPredictor] | None,
    calibration: float | None,
    stages: bool,
    max_epochs: int | None,
    classes: ArrayLike | None,
    random_state: object,
) -> Plan:
    """Validate the arguments of `compare`, and split the rows."""
    if np.ndim(accuracies) != 1 or not len(accuracies):
        raise ValueError(f"accuracies must be a list of at least one; got {accuracies!r}")
    levels = tuple(check_probability(a, "each of accuracies") for a in accuracies)
    seed = resolve_seed(random_state)
    known, test_rows, test_index = _split_test(scores, y, features, classes, test, seed)
    fraction = None if calibration is None else check_probability(calibration, "calibration")
    chosen = _choose_methods(methods, features is not None, stages, max_epochs, seed)
    learning, held_out = hold_out(len(known.ranking), fraction, seed)
    _warn_if_known(known, test_rows)
    comparison = Comparison(
        levels,
        _summary(len(learning), len(held_out), test_rows),
        len(test_rows.ranking),
        len(held_out),
        test_index=test_index,
    )
    return Plan(
        comparison,
        chosen,
        train=known.take(learning),
        calibration=known.take(held_out) if len(held_out) else None,
        test=test_rows,
        rescored_scores=("lac", "raps", "saps") if stages else ("lac",) * (methods is None),
        seed=seed,
    )


def _summary(n_train: int, n_calibration: int, test: LabelledRows) -> str:
    """Return numbers of rows and classes in words."""
    parts = [f"{n_train:,} rows to fit"]
    parts += [f"{n_calibration:,} calibration rows"] if n_calibration else []
    ranking = test.ranking
    return ", ".join([*parts, f"{len(ranking):,} test rows", f"{ranking.n_classes} classes"])


def _warn_if_known(known: LabelledRows, test: LabelledRows) -> None:
    """Warn if test rows are among the other rows."""
    seen = TrainingRows(known.ranking).among(test.ranking)
    if seen:
        warn(
            f"{seen:,} of {len(test.ranking):,} test rows are also rows to fit or calibrate: the "
            "methods that learn most look better than they are"
        )


# Methods


def _choose_methods(
    methods: Mapping[str, SetPredictor] | None,
    has_features: bool,
    stages: bool,
    max_epochs: int | None,
    seed: int,
) -> dict[str, SetPredictor]:
    """Return the methods to measure, by name."""
    if methods is not None:
        _check_methods(methods)
    chosen = dict(default_methods(has_features, seed) if methods is None else methods)
    if not chosen:
        raise ValueError(f"methods must contain at least one set predictor; got {methods!r}")
    if max_epochs is not None:
        epochs = check_count(max_epochs, "max_epochs")
        chosen = {name: _limit_epochs(method, epochs) for name, method in chosen.items()}
    if stages and has_features:
        for name, method in list(chosen.items()):
            for lacking, variant in method.ablations().items():
                chosen[f"{name}, {lacking}"] = variant
    return chosen


def _check_methods(methods: object) -> None:
    """Raise unless methods are a mapping of names to set predictors."""
    example = '{"LAC": SplitConformal("lac")}'
    if not isinstance(methods, Mapping):
        raise ValueError(f"methods must map names to set predictors, as {example}; got {methods!r}")
    for name, method in methods.items():
        if not isinstance(method, SetPredictor):
            raise ValueError(
                f"methods[{name!r}] must be a set predictor, as in {example}; got {method!r}"
            )


def _limit_epochs(method: SetPredictor, epochs: int) -> SetPredictor:
    """Return a copy with at most this many epochs."""
    known = method.get_params()
    names = [name for name in known if name.split("__")[-1] == "max_epochs"]
    copy: SetPredictor = clone(method)
    return copy.set_params(**{name: min(epochs, known[name]) for name in names})  # type: ignore[no-any-return]


def default_methods(has_features: bool, seed: int = 0) -> dict[str, SetPredictor]:
    """Return the methods that `compare` measures by default.

    Parameters
    ----------
    has_features : bool
        Whether the rows have features.
    seed : int, default=0
        Random state of every method.

    Returns
    -------
    dict of str to SetPredictor
        Unfitted methods by name.
    """
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


# Rows


def _split_test(
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None,
    classes: ArrayLike | None,
    test: TestRows,
    seed: int,
) -> tuple[LabelledRows, LabelledRows, NDArray[np.intp] | None]:
    """Return rows to fit and calibrate, test rows, and the numbers of those if chosen here."""
    reader = FixedSelector()  # Validates scores, labels and names as every predictor does.
    ranking, _, score_type = reader._validate_fit(scores, y, classes)
    reader._finalize_fit(ranking, score_type)
    x = None if features is None else as_features(features, rows=len(ranking))
    rows = LabelledRows(ranking, label_array(y), x)
    if isinstance(test, tuple | list):
        return rows, _given_test_rows(reader, test, features, x), None
    if not isinstance(test, Real):
        raise ValueError(
            "test must be a fraction of the rows, or (scores, y, features); got a "
            f"{type(test).__name__}"
        )
    fraction = check_probability(test, "test")
    others, chosen = hold_out(len(ranking), fraction, seed + 1)
    return rows.take(others), rows.take(chosen), chosen


def _given_test_rows(
    reader: SetPredictor,
    test: Sequence[Any],
    features: ArrayLike | None,
    x: Tensor | None,
) -> LabelledRows:
    """Return test rows that the user gave, validated against the other rows."""
    if len(test) not in (2, 3):
        raise ValueError(
            f"test must be (scores, y) or (scores, y, features); got {len(test)} parts"
        )
    scores, y = test[:2]
    test_features = test[2] if len(test) == 3 else None
    if (features is None) != (test_features is None):
        with_them, without = ("fit", "test") if test_features is None else ("test", "fit")
        raise ValueError(f"the {with_them} rows have features, but the {without} rows have none")
    try:
        ranking, _ = reader._validate_labelled(scores, y)
        test_x = None
        if x is not None:
            matched = match_columns(test_features, column_names(features), "features")
            test_x = as_features(matched, rows=len(ranking), columns=x.shape[1])
    except ValueError as error:
        raise ValueError(f"test: {error}") from error
    return LabelledRows(ranking, label_array(y), test_x)
