"""Every method on the same rows: a table and curves."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from shortlist._arrays import ArrayLike, as_features, check_count, check_probability, row_index
from shortlist._comparison_text import in_words
from shortlist._labels import label_array
from shortlist._progress import Show, track
from shortlist._settings import seed_of
from shortlist._warnings import warn
from shortlist.conformal import SplitConformal
from shortlist.frontier import Frontier
from shortlist.guarantee import UnreachableError
from shortlist.metrics import class_accuracy, single_share, size_stratified_violation
from shortlist.ranking import Ranking
from shortlist.selectors import (
    CardinalityPath,
    FixedSelector,
    PlugInSelector,
    SetPredictor,
    Shortlister,
)
from shortlist.selectors._promise import hold_out
from shortlist.selectors._seen import Seen

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

ACCURACIES = (0.9, 0.95, 0.98, 0.99)
Rows = tuple[Ranking, "NDArray[np.generic]", "Tensor | None"]


@dataclass(frozen=True)
class Measured:
    """One method at one accuracy, on the test rows. NaN where it cannot be had."""

    method: str
    accuracy: float
    """What was asked for."""
    size: float
    """Mean size where the test curve reaches that accuracy."""
    promised_accuracy: float
    """Accuracy of the sets for which it was promised, …"""
    promised_size: float
    """… and their mean size."""
    size_stratified_violation: float
    worst_class: float
    single_share: float
    fit_seconds: float
    predict_seconds: float


@dataclass(frozen=True)
class Fitted:
    """A method's models, and the test rows as they are given to it (re-scored, perhaps)."""

    models: dict[float, SetPredictor]
    """The one for each accuracy; the same for all, unless the method is tuned for one."""
    curves: dict[float, Frontier]
    """Their curves on the test rows."""
    judged: Rows

    def nearest(self, accuracy: float) -> float:
        """The accuracy, of those measured, whose model is used for another one."""
        return min(self.models, key=lambda a: (abs(a - accuracy), a))

    def model(self, accuracy: float) -> SetPredictor:
        return self.models[self.nearest(accuracy)]


@dataclass
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    measured : list of Measured
        A row for each method and accuracy; `to_frame()` gives them as a pandas frame.
    curves : dict of Frontier
        Each method's curve on the test rows.
    models : dict of fitted set predictors
        Of RAPS and SAPS, the one for the last accuracy. Those on re-scored probabilities take what
        `Shortlister.rescored` gives; their times are without it.
    """

    accuracies: tuple[float, ...]
    words: str
    rows: int
    """How many rows it was judged by."""
    measured: list[Measured] = field(default_factory=list)
    curves: dict[str, Frontier] = field(default_factory=dict)
    models: dict[str, SetPredictor] = field(default_factory=dict)
    row_numbers: NDArray[np.intp] | None = field(default=None, compare=False)
    """Which of the rows given these are, where `compare` chose them."""
    _fitted: dict[str, Fitted] = field(default_factory=dict, repr=False, compare=False)

    def add(self, part: Part) -> None:
        """Take in what was found of a method."""
        self.measured += part.measured
        self.models[part.name], self._fitted[part.name] = part.model, part.fitted
        self.curves[part.name] = part.curve

    def at(self, method: str, accuracy: float) -> Measured:
        """What was measured of a method at an accuracy."""
        for one in self.measured:
            if (one.method, one.accuracy) == (method, accuracy):
                return one
        raise ValueError(
            f"nothing was measured of {method!r} at {accuracy!r}; there are methods "
            f"{list(self.curves)} and accuracies {list(self.accuracies)}"
        )

    def to_frame(self) -> pd.DataFrame:
        """A row for each method and accuracy."""
        import pandas as pd

        return pd.DataFrame([vars(one) for one in self.measured])

    def plot(self, ax: Axes | None = None, *, band: bool = False) -> Axes:
        """All curves in the paper's axes."""
        for i, (name, curve) in enumerate(self.curves.items()):
            main, rescored = name == "Shortlister", name.endswith("re-scored")
            ax = curve.envelope().plot(
                ax,
                label=name,
                marker="",
                color="black" if main else f"C{i % 10}",
                lw=2.5 if main else 1.2,
                ls="--" if rescored else "-",
                zorder=4 if rescored else 3 if main else 2,  # dashes are seen on what they cover
                band=band and main,
            )
        assert ax is not None
        lowest = max(min(self.accuracies) - 0.05, 0.0)
        shown = np.array([c.size_at([lowest, *self.accuracies]) for c in self.curves.values()])
        if not np.isnan(shown).all():  # else no curve comes so far, and all of each is shown
            ax.set_xlim(np.nanmin(shown) * 0.95, np.nanmax(shown) * 1.05)
            ax.set_ylim(lowest, 1.002)
        ax.legend(loc="lower right", frameon=False)
        return ax

    def report(
        self,
        path: str | os.PathLike[str] = "report.html",
        *,
        title: str = "Prediction sets, compared",
        examples: Sequence[str] | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write all of it as one page for a browser, which needs no network.

        The curves with their bands, a slider for the accuracy, the table, the hardest classes and
        those that are taken for each other, examples, and what is promised, in plain words.

        Parameters
        ----------
        path : where to write it
        title : str
        examples : sequence of str, optional
            What to show of a row: a text, a file's name. One for each test row, or, where
            `compare` chose these, for each row that it was given. Default: the row's number.
        overwrite : bool
            Whether a file that is there already may be replaced.

        Returns
        -------
        Path
            Where it was written.

        Examples
        --------
        >>> import shortlist as sl
        >>> from tempfile import TemporaryDirectory
        >>> data = sl.datasets.gaussian(2000)
        >>> found = sl.compare(data.posterior, data.y, methods={"LAC": sl.SplitConformal("lac")})
        >>> with TemporaryDirectory() as folder:
        ...     found.report(f"{folder}/report.html", title="Gaussians").name
        'report.html'
        """
        from shortlist.report import write_report

        return write_report(self, path, title=title, examples=examples, overwrite=overwrite)

    def __repr__(self) -> str:
        return in_words(self)


def compare(
    scores: ArrayLike | Ranking,
    y: ArrayLike,
    features: ArrayLike | None = None,
    *,
    test: float | tuple[ArrayLike | Ranking, ArrayLike, ArrayLike | None] = 0.3,
    accuracies: Sequence[float] = ACCURACIES,
    methods: Mapping[str, SetPredictor] | None = None,
    calibration: float | None = 0.25,
    stages: bool = False,
    max_epochs: int | None = None,
    classes: ArrayLike | None = None,
    progress: Show = "auto",
    random_state: object = 0,
) -> Comparison:
    """Every method on the same data, with the same calibration rows and the same temperature.

    Parameters
    ----------
    scores, y, features : arrays, or a Ranking in place of scores
        Scores of rows that the classifier did not train on, labels, and features if there are any.
    test : (scores, y, features) or float
        The rows to judge by (without features if the others have none), or the share of the rows
        given that is kept for it.
    accuracies : sequence of float
        At which sizes are compared, and which are promised.
    methods : mapping of names to set predictors, optional
        Default: the Shortlister, fixed top-k, LAC, APS, RAPS, SAPS, the plug-in rule with
        logarithmic cost, the paper's path of selectors, and LAC on re-scored probabilities.
    calibration : float or None
        Share of the rows kept to make promises, the same for every method. None: all rows are
        learned from, and only sizes at equal accuracy are measured.
    stages : bool
        Whether to add what each stage of the Shortlister brings: it without stage 1, and RAPS and
        SAPS on re-scored probabilities.
    max_epochs : int, optional
        Train no method longer.
    classes : array-like, optional
        Names of the columns, in their order.
    progress : bool or "auto"
    random_state : int, RandomState or None

    Notes
    -----
    RAPS and SAPS are tuned for each accuracy anew, on rows that are not used for calibration.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(4000)
    >>> methods = {"top-k": sl.SplitConformal("topk"), "LAC": sl.SplitConformal("lac")}
    >>> found = sl.compare(data.posterior, data.y, methods=methods, accuracies=[0.9])
    >>> [one.method for one in found.measured]
    ['top-k', 'LAC']
    >>> found.measured[1].size < found.measured[0].size
    True
    """
    plan = planned(
        scores,
        y,
        features,
        test=test,
        accuracies=accuracies,
        methods=methods,
        calibration=calibration,
        stages=stages,
        max_epochs=max_epochs,
        classes=classes,
        random_state=random_state,
    )
    with track("methods", len(plan.methods), progress) as step:
        for name in plan.methods:
            plan.found.add(plan.measure(name))
            step(name)
    return plan.finished()


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
        _add_rescored(self.found, self.learned, self.kept, self.judged, self.rescored)
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
    seen = Seen(known[0]).among(judged[0])
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
    ranking, _, kind = reader._open(scores, y, classes)
    reader._close(ranking, kind)
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
            test_x = as_features(test_features, rows=len(judged), columns=x.shape[1])
    except ValueError as error:
        raise ValueError(f"test: {error}") from error
    return all_rows, (judged, label_array(test_y), test_x), None


def _take(rows: Rows, which: NDArray[np.intp]) -> Rows:
    ranking, y, x = rows
    x = None if x is None else x[row_index(which, len(x), x.device)]
    return ranking[which], y[which], x


@dataclass(frozen=True)
class Part:
    """What was found of one method."""

    name: str
    measured: list[Measured]
    model: SetPredictor
    curve: Frontier
    fitted: Fitted


def measure(
    name: str,
    method: SetPredictor,
    accuracies: Sequence[float],
    learned: Rows,
    kept: Rows | None,
    judged: Rows,
) -> Part:
    """Fit a method, and measure it at every accuracy."""
    curves: list[Frontier] = []
    found: list[Measured] = []
    fitted = Fitted({}, {}, judged)
    for accuracy in accuracies:
        if not curves or _is_tuned(method):
            begun = time.monotonic()
            model = _fitted(method, accuracy, learned, kept)
            seconds = time.monotonic() - begun
            curve = model.frontier(*judged)
            curves.append(curve)
        fitted.models[accuracy], fitted.curves[accuracy] = model, curve
        promised = kept is not None and _can_promise(model)
        found.append(measured_at(name, model, accuracy, curve, judged, promised, seconds))
    whole = curves[0] if len(curves) == 1 else _union(curves, name)
    return Part(name, found, model, whole, fitted)


def _is_tuned(method: SetPredictor) -> bool:
    """Whether a method is fitted for one accuracy."""
    return isinstance(method, SplitConformal) and method.score in ("raps", "saps")


def _fitted(
    method: SetPredictor, accuracy: float, learned: Rows, kept: Rows | None
) -> SetPredictor:
    model: SetPredictor = clone(method)
    if "calibration" in model.get_params():
        model.set_params(calibration=None)
    if _is_tuned(method):
        model.set_params(accuracy=accuracy)
    model.fit(*learned)
    if kept is not None and _can_promise(model):
        model.calibrate(*kept)
    return model


def _can_promise(model: SetPredictor) -> bool:
    """Whether a fitted method can be calibrated; the plug-in rule can if its sets are nested."""
    if isinstance(model, PlugInSelector):
        return model.family_.nested
    return hasattr(model, "calibrate")


def measured_at(
    name: str,
    model: SetPredictor,
    accuracy: float,
    curve: Frontier,
    judged: Rows,
    promised: bool,
    seconds: float,
) -> Measured:
    """A fitted model at one accuracy, with what it promises if it is calibrated."""
    size = float(curve.size_at(accuracy))
    begun = time.monotonic()
    try:
        if not promised:
            raise UnreachableError("nothing is promised")
        sets = model.predict_set(judged[0], judged[2], accuracy=accuracy)  # type: ignore[call-arg]
    except UnreachableError:
        nan = math.nan
        return Measured(name, accuracy, size, nan, nan, nan, nan, nan, seconds, nan)
    spent = time.monotonic() - begun
    y = judged[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        worst = float(np.nanmin(class_accuracy(sets, y)))
    return Measured(
        name,
        accuracy,
        size,
        sets.accuracy(y),
        sets.mean_size,
        size_stratified_violation(sets, y, accuracy),
        worst,
        single_share(sets),
        seconds,
        spent,
    )


def _union(curves: Sequence[Frontier], name: str) -> Frontier:
    """The points of several curves as one."""
    return Frontier(
        np.concatenate([c.accuracy for c in curves]),
        np.concatenate([c.mean_size for c in curves]),
        np.concatenate([c.parameter for c in curves]),
        curves[0].parameter_name,
        name,
    )


def _add_rescored(
    found: Comparison, learned: Rows, kept: Rows | None, judged: Rows, scores: Sequence[str]
) -> None:
    """LAC and others on re-scored probabilities, if there are any."""
    model = found.models.get("Shortlister")
    if not isinstance(model, Shortlister) or not model.rescored_:
        return

    def rescored(rows: Rows) -> Rows:
        return model.rescored(rows[0], rows[2]), rows[1], None

    # The rows that the Shortlister learned from have no part in their own scores.
    own: Rows = (model.out_of_fold(learned[0], learned[2]), learned[1], None)
    others = None if kept is None else rescored(kept), rescored(judged)
    for score in scores:
        method = SplitConformal(
            score,
            temperature=None,
            randomized=score != "lac",
            random_state=model.random_state,
        )
        name = f"{score.upper()}, re-scored"
        found.add(measure(name, method, found.accuracies, own, *others))
