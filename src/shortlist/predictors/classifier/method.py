"""The set predictor inside a classifier: its parameters, and the operating points that it takes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from inspect import signature

from sklearn.base import clone

from shortlist.predictors.base import SetPredictor
from shortlist.predictors.classifier.cross_fitting import takes_argument
from shortlist.predictors.shortlister import Shortlister


def unfitted_method(method: SetPredictor | None, seed: int) -> SetPredictor:
    """Return a set predictor to fit, which holds out no calibration rows of its own.

    Parameters
    ----------
    method : SetPredictor or None
        The parameter `method` of a classifier; None stands for a `Shortlister`.
    seed : int
        Seed of the Shortlister.

    Returns
    -------
    SetPredictor

    Raises
    ------
    ValueError
        If `method` cannot be fitted, or predicts no sets.
    """
    if method is None:
        return Shortlister(calibration=None, random_state=seed)
    if not (hasattr(method, "fit") and hasattr(method, "predict_set")):
        raise ValueError(
            f"method must be a set predictor, such as Shortlister(accuracy=0.98); got {method!r}"
        )
    fresh: SetPredictor = clone(method)
    if "calibration" in fresh.get_params():
        # The rows are held out from the classifier and the method together.
        fresh.set_params(calibration=None)
    return fresh


def with_parameters(method: SetPredictor, given: Mapping[str, object]) -> SetPredictor:
    """Return a method with other values of some parameters; the method itself is not changed.

    Parameters
    ----------
    method : SetPredictor
        The method, fitted or not. A copy shares everything that it has learned.
    given : mapping of str to object
        Values by the name of the parameter, which may be one of a part of the method, such as its
        calibrator. None leaves a parameter as it is.

    Returns
    -------
    SetPredictor

    Raises
    ------
    ValueError
        If neither the method nor a part of it has such a parameter.

    Examples
    --------
    >>> import shortlist as sl
    >>> with_parameters(sl.SplitConformal("lac"), {"by": "class", "on_unreachable": None})
    SplitConformal(by='class')
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if not chosen:
        return method
    changed = copy.copy(method)
    parameters = changed.get_params()
    for name, value in chosen.items():
        paths = [path for path in parameters if path.split("__")[-1] == name]
        if not paths:
            raise ValueError(
                f"{name} = {value!r}, but the method {method!r} has no such parameter; leave it out"
            )
        for path in paths:
            part, nested, _ = path.partition("__")
            if nested:  # Other copies of the method share this part.
                setattr(changed, part, clone(getattr(changed, part)))
            changed.set_params(**{path: value})
    return changed


def check_operating_point(predict: Callable[..., object], given: Mapping[str, object]) -> None:
    """Raise a ValueError if a method cannot predict at an operating point.

    Parameters
    ----------
    predict : callable
        Function of a method that predicts sets.
    given : mapping of str to object
        Its options.

    Examples
    --------
    >>> import shortlist as sl
    >>> check_operating_point(sl.FixedSelector().predict_set, {"accuracy": 0.9})
    Traceback (most recent call last):
    ValueError: accuracy = 0.9 was given, but this method takes no operating point
    """
    unknown = [name for name in given if not takes_argument(predict, name)]
    if not unknown:
        return
    words = " and ".join(f"{name} = {given[name]!r}" for name in unknown)
    inputs = ("scores", "features", "groups", "accuracies")
    known = [name for name in signature(predict).parameters if name not in inputs]
    taken = f"{', '.join(known[:-1])} or {known[-1]}" if len(known) > 1 else "".join(known)
    raise ValueError(
        f"{words} {'was' if len(unknown) == 1 else 'were'} given, but this method takes "
        f"{taken or 'no operating point'}"
    )


def check_groups(method: SetPredictor) -> None:
    """Raise a ValueError if a method makes no guarantee by group."""
    if not takes_argument(getattr(method, "calibrate", len), "groups"):
        raise ValueError(f"{method!r} makes no guarantee by group; leave groups out")
