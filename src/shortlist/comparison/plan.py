"""The plan of a comparison: its methods, and the rows for each purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.frames import column_names
from shortlist._utils.labels import label_array
from shortlist._utils.validation import check_probability
from shortlist.comparison.measure import extra_options, measure
from shortlist.comparison.methods import choose_methods
from shortlist.comparison.result import Comparison, MethodResult
from shortlist.comparison.rows import (
    LabeledRows,
    TestRows,
    split_test_rows,
    warn_about_known_test_rows,
)
from shortlist.learning.settings import resolve_seed
from shortlist.predictors import SetPredictor
from shortlist.predictors.extra_rows import ExtraRows
from shortlist.predictors.split_conformal import SplitConformal
from shortlist.predictors.splitting import hold_out
from shortlist.ranking import Ranking


@dataclass(frozen=True)
class Plan:
    """A comparison before it is run.

    Parameters
    ----------
    comparison : Comparison
        The comparison that receives the results.
    methods : dict of str to SetPredictor
        Methods to measure.
    train : LabeledRows
        Rows to fit every method on.
    calibration : LabeledRows or None
        Rows to calibrate every method with.
    test : LabeledRows
        Rows to measure every method on.
    rescored_scores : tuple of str
        Names of the conformity scores to measure on re-scored probabilities too.
    seed : int
        Random state of the methods on re-scored probabilities.
    extra : ExtraRows, optional
        More rows to fit on, without scores, for methods that take them.
    """

    comparison: Comparison
    methods: dict[str, SetPredictor]
    train: LabeledRows
    calibration: LabeledRows | None
    test: LabeledRows
    rescored_scores: tuple[str, ...]
    seed: int
    extra: ExtraRows | None = None

    def measure(self, name: str) -> MethodResult:
        """Fit and measure one of the methods."""
        rows = self.train, self.calibration, self.test, self.extra
        return measure(name, self.methods[name], self.comparison.accuracies, *rows)

    def finish(self) -> Comparison:
        """Measure the methods on re-scored probabilities, and return the comparison."""
        models = self.comparison.models.values()
        rescorer = next((model for model in models if model.rescored_), None)
        if rescorer is None or not self.rescored_scores:
            return self.comparison

        def rescore(rows: LabeledRows) -> LabeledRows:
            return LabeledRows(rescorer.rescored(rows.ranking, rows.features), rows.y, None)

        # The model has learned from the training rows. Probabilities that were influenced by a
        # row's own label would make the row look easier than a new one.
        ranking, _, features = self.train
        options = extra_options(rescorer, self.extra)
        out_of_fold = rescorer.out_of_fold(ranking, features, **options)
        train = LabeledRows(out_of_fold, self.train.y, None)
        calibration = None if self.calibration is None else rescore(self.calibration)
        test = rescore(self.test)
        for score in self.rescored_scores:
            method = SplitConformal(
                score,
                temperature=None if score == "lac" else "size",
                randomized=score != "lac",
                random_state=self.seed,
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
    extra_features: ArrayLike | None,
    extra_y: ArrayLike | None,
    random_state: object,
) -> Plan:
    """Validate the arguments of :func:`shortlist.compare`, and split the rows."""
    if np.ndim(accuracies) != 1 or not len(accuracies):
        raise ValueError(f"accuracies must be a list of at least one; got {accuracies!r}")
    levels = tuple(check_probability(accuracy, "each of accuracies") for accuracy in accuracies)
    seed = resolve_seed(random_state)
    known, test_rows, test_index = split_test_rows(scores, y, features, classes, test, seed)
    fraction = None if calibration is None else check_probability(calibration, "calibration")
    chosen = choose_methods(
        methods, features is not None, known.ranking.is_dense, stages, max_epochs, seed
    )
    extra = _validate_extra(known, features, extra_features, extra_y, chosen)
    train_index, calibration_index = hold_out(len(known.ranking), fraction, seed)
    warn_about_known_test_rows(known, test_rows)
    comparison = Comparison(
        levels,
        _summary(len(train_index), extra, len(calibration_index), test_rows.ranking),
        len(test_rows.ranking),
        len(calibration_index),
        test_index=test_index,
    )
    return Plan(
        comparison,
        chosen,
        train=known.take(train_index),
        calibration=known.take(calibration_index) if len(calibration_index) else None,
        test=test_rows,
        rescored_scores=("lac", "raps", "saps") if stages else ("lac",) * (methods is None),
        seed=seed,
        extra=extra,
    )


def _validate_extra(
    known: LabeledRows,
    features: ArrayLike | None,
    extra_features: ArrayLike | None,
    extra_y: ArrayLike | None,
    methods: Mapping[str, SetPredictor],
) -> ExtraRows | None:
    """Return the extra rows; raise if they do not fit the others, or no method takes any."""
    extra = ExtraRows.validate(features, extra_features, extra_y)
    if extra is None:
        return None
    if not any(method.takes_extra_rows for method in methods.values()):
        raise ValueError(
            f"none of the methods {list(methods)} takes extra_features and extra_y; leave them "
            "out, or add Shortlister() to the methods"
        )
    assert known.features is not None
    x, _ = extra.encode(known.ranking, known.features.shape[1], column_names(features))
    # The other features have lost the names of their columns, too.
    return ExtraRows(x, label_array(extra.extra_y, "extra_y"))


def _summary(n_train: int, extra: ExtraRows | None, n_calibration: int, test: Ranking) -> str:
    """Return the numbers of rows and classes as text."""
    parts = [f"{n_train:,} rows to fit"]
    parts += [] if extra is None else [f"{len(label_array(extra.extra_y)):,} extra rows"]
    parts += [f"{n_calibration:,} calibration rows"] if n_calibration else []
    return ", ".join([*parts, f"{len(test):,} test rows", f"{test.n_classes} classes"])
