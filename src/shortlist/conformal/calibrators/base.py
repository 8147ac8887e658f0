"""The protocol of calibrators, and the registry of their names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.validation import check_choice
from shortlist.conformal.calibrators.thresholds import Thresholds, Unit
from shortlist.conformal.quantiles import threshold
from shortlist.conformal.registry import register
from shortlist.guarantee import Guarantee

EVERY_LABEL = "every label, since no smaller set can be guaranteed"


class Calibrator(BaseEstimator, ABC):
    """A rule that turns the levels of calibration rows into thresholds.

    To write a calibrator, subclass and implement `threshold`, which reads what `fit` stored. Most
    calibrators need only `quantile`, the exact threshold for some of the rows, and `guarantee`.

    Parameters
    ----------
    on_unreachable : {"raise", "all"}, default="raise"
        What to do about an accuracy that cannot be guaranteed: raise an error, or return minus
        infinity, which stands for the set of all classes.

    Attributes
    ----------
    name : str
        Short name, for the parameter `by` after :func:`register_calibrator`.
    conditional_on : str or None
        What the guarantee is conditional on: "class", "group" or None (all rows together).
    per : {"set", "class", "group"}
        What has a threshold of its own, as in :class:`Thresholds`.
    levels_ : array of shape (n_rows,)
        Levels of the true labels; minus infinity for labels that no set can contain.
    y_ : array of shape (n_rows,)
        Label indices; -1 for labels of unknown classes.
    groups_ : array of shape (n_rows,) or None
        Group of each row, as an index into `group_names_`.
    group_names_ : list
        Names of the groups.
    weights_ : array-like or None
        Weights, as given to `fit`.
    features_ : array-like or None
        Features, as given to `fit`.
    classes_ : list
        Names of the classes.
    exhaustive_ : bool
        Whether a set can contain every label.
    """

    name: ClassVar[str] = ""
    conditional_on: ClassVar[str | None] = None
    per: ClassVar[Unit] = "set"

    def __init__(self, *, on_unreachable: str = "raise") -> None:
        self.on_unreachable = on_unreachable

    def fit(
        self,
        levels: NDArray[np.float64],
        y: NDArray[np.int64],
        *,
        groups: NDArray[np.int64] | None = None,
        group_names: Sequence[object] = (),
        weights: ArrayLike | None = None,
        features: ArrayLike | None = None,
        classes: Sequence[object] = (),
        exhaustive: bool = True,
    ) -> Self:
        """Store the calibration rows.

        Parameters
        ----------
        levels : array of shape (n_rows,)
            Level of each row's true label.
        y : array of shape (n_rows,)
            Label indices; -1 for labels of unknown classes.
        groups : array of shape (n_rows,), optional
            Group of each row, as an index into `group_names`.
        group_names : sequence, default=()
            Names of the groups.
        weights : array-like of shape (n_rows,), optional
            Weights of the rows, for calibrators that use them.
        features : array-like of shape (n_rows, n_features), optional
            Features of the rows, for calibrators that use them.
        classes : sequence, default=()
            Names of the classes.
        exhaustive : bool, default=True
            Whether a set can contain every label. False if the rows are candidates.

        Returns
        -------
        self
            The fitted calibrator.
        """
        self.levels_, self.y_ = np.asarray(levels, dtype=np.float64), np.asarray(y)
        self.groups_, self.group_names_ = groups, list(group_names)
        self.weights_, self.features_ = weights, features
        self.classes_ = list(classes)
        # If one calibration row has a label that no set can contain, so can a row of any class or
        # group, even one without such a calibration row.
        self.exhaustive_ = exhaustive and not bool(np.isneginf(self.levels_).any())
        return self

    @abstractmethod
    def threshold(self, accuracy: float, delta: float | None = None) -> Thresholds:
        """Return thresholds that guarantee an accuracy.

        Parameters
        ----------
        accuracy : float
            Accuracy to guarantee.
        delta : float, optional
            Probability, over the draw of the calibration rows, that the guarantee may fail. By
            default the guarantee is on average over that draw.

        Returns
        -------
        Thresholds
            Thresholds, with their guarantee.

        Raises
        ------
        UnreachableError
            If the accuracy cannot be guaranteed with these rows.
        """

    def quantile(
        self, accuracy: float, delta: float | None = None, rows: NDArray[np.bool_] | None = None
    ) -> float:
        """Return the threshold that guarantees an accuracy for some of the calibration rows.

        Parameters
        ----------
        accuracy : float
            Accuracy to guarantee.
        delta : float, optional
            Probability, over the draw of the calibration rows, that the guarantee may fail.
        rows : array of bool of shape (n_rows,), optional
            Rows to use. All by default.

        Returns
        -------
        float
            Threshold; minus infinity stands for the set of all classes.

        Raises
        ------
        UnreachableError
            If the accuracy cannot be guaranteed and `on_unreachable` is "raise".
        """
        used = slice(None) if rows is None else rows
        return threshold(
            np.sort(self.levels_[used]),
            accuracy,
            delta=delta,
            on_unreachable=self.on_unreachable,
            exhaustive=self.exhaustive_,
            n_unknown=int((self.y_[used] < 0).sum()),
        )

    def guarantee(self, accuracy: float, delta: float | None = None) -> Guarantee:
        """Return the guarantee of an accuracy by all calibration rows.

        Parameters
        ----------
        accuracy : float
            Accuracy that is guaranteed.
        delta : float, optional
            Probability, over the draw of the calibration rows, that the guarantee may fail.

        Returns
        -------
        Guarantee
            Guarantee, conditional on what the calibrator conditions on.
        """
        return Guarantee(
            "marginal" if delta is None else "confidence",
            accuracy=accuracy,
            delta=delta,
            n_calibration=len(self.levels_),
            conditional_on=self.conditional_on,
        )


AnyCalibrator = TypeVar("AnyCalibrator", bound=type[Calibrator])

CALIBRATORS: dict[str, type[Calibrator]] = {}
"""Registered calibrators by name."""


def register_calibrator(calibrator: AnyCalibrator) -> AnyCalibrator:
    """Register a calibrator under its `name`. Use it as a decorator of the class.

    A registered calibrator can be used by name, as in ``predict_set(..., by="my-calibrator")``,
    and models that use it can be saved. To load such a model, import the module that registers the
    calibrator first.

    Parameters
    ----------
    calibrator : type
        Subclass of `Calibrator` with a `name` of its own and the parameter `on_unreachable`.

    Returns
    -------
    type
        The same class.

    Raises
    ------
    ValueError
        If the class has no name, or another class has this name.

    Examples
    --------
    >>> from shortlist.conformal import Marginal, register_calibrator
    >>> register_calibrator(Marginal) is Marginal
    True
    """
    register(calibrator, CALIBRATORS)
    return calibrator


def make_calibrator(by: object, on_unreachable: object) -> Calibrator:
    """Return a registered calibrator by its name; raise if there is none.

    Parameters
    ----------
    by : str or None
        Name of a registered calibrator. None stands for "marginal".
    on_unreachable : {"raise", "all"}
        Parameter of the calibrator.

    Returns
    -------
    Calibrator
        Calibrator that is not fitted.

    Raises
    ------
    ValueError
        If a parameter has an invalid value.
    """
    name = "marginal" if by is None else check_choice(by, "by", list(CALIBRATORS))
    choice = check_choice(on_unreachable, "on_unreachable", ("raise", "all"))
    return CALIBRATORS[name](on_unreachable=choice)
