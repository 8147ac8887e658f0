"""Parameters of models, scores and calibrators: what may be saved, and what a file may contain."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from shortlist._utils.warnings import warn
from shortlist.conformal.calibrators import CALIBRATORS, Calibrator
from shortlist.conformal.scores import ConformityScore
from shortlist.costs import cost_table
from shortlist.io.fields import (
    COUNT,
    FLAG,
    FRACTION,
    NONE,
    PLAIN,
    SCALE,
    TEXT,
    WEIGHT,
    Field,
    array,
    choice,
    instance_of,
    integer,
    number,
    sequence_of,
    tensor,
)
from shortlist.io.format import check_fields
from shortlist.io.formats.families import FAMILY, SCORE_TYPE
from shortlist.io.formats.networks import LOSSES, NETWORK
from shortlist.learning.linear import LinearClassifier
from shortlist.predictors import SetPredictor
from shortlist.predictors.cardinality.inputs import INPUTS
from shortlist.predictors.conformal import TEMPERATURES


def _is_cost_table(cost: object) -> bool:
    if isinstance(cost, Mapping):
        return all(map(integer().accepts, cost)) and all(map(WEIGHT.accepts, cost.values()))
    if isinstance(cost, np.ndarray | Tensor):
        return array("fiu", 1).accepts(cost) or tensor("fi", 1).accepts(cost)
    return isinstance(cost, list | tuple) and all(map(WEIGHT.accepts, cost))


SWITCH = FLAG | choice("auto")
CALIBRATOR_NAME = Field(
    "the name of a registered calibrator",
    lambda value: isinstance(value, str) and value in CALIBRATORS,
)
PARAMETERS: Mapping[str, Field] = {
    "cost": choice("log", "linear") | Field("a table of numbers", _is_cost_table),
    "accuracy": FRACTION,
    "cost_weight": WEIGHT | NONE,
    "cost_weights": sequence_of(WEIGHT, 1) | sequence_of(WEIGHT, 1, tuple) | array("fi", 1) | NONE,
    "calibration": FRACTION | NONE,
    "by": CALIBRATOR_NAME | NONE,
    "allow_empty": FLAG,
    "on_unreachable": choice("raise", "all") | NONE,
    "rescore": SWITCH,
    "learn_sizes": SWITCH,
    "score": TEXT | instance_of(ConformityScore),
    "calibrator": instance_of(Calibrator) | NONE,
    "score_type": SCORE_TYPE | choice("auto"),
    "randomized": FLAG,
    "temperature": SCALE | choice(*TEMPERATURES) | NONE,
    "penalty": WEIGHT | choice("auto"),
    "k_reg": integer() | choice("auto"),
    "family": FAMILY | NONE,
    "index": integer(),
    "loss": TEXT | instance_of(*LOSSES),
    "inputs": choice(*INPUTS),
    "network": NETWORK | NONE,
    "width": COUNT,
    "rank_width": COUNT,
    "score_depth": COUNT,
    "q": number(),
    "rho": number(),
    "estimator": instance_of(LinearClassifier) | NONE,
    "method": instance_of(SetPredictor) | NONE,
    "features": choice("auto") | NONE,
    "cv": COUNT,
}
"""Parameters that a prediction may use. All others are used by another fit, and must be plain."""


def check_parameters(
    owner: str, cls: type[BaseEstimator], parameters: Mapping[str, object]
) -> None:
    """Raise a `ModelFileError` if a file has unknown or invalid parameters of an estimator.

    Parameters
    ----------
    owner : str
        Name of the estimator, for the message.
    cls : type
        Its class.
    parameters : mapping of str to object
        Parameters in the file. Those that are missing have their default.
    """
    fields = {name: PARAMETERS.get(name, PLAIN) for name in cls._get_param_names()}
    check_fields(owner, parameters, fields, optional=frozenset(fields))


def save_cost(model: BaseEstimator, cost: object) -> object:
    """Return a cost as it can be saved: a function as the table of its values.

    Parameters
    ----------
    model : BaseEstimator
        The model, for the number of its classes.
    cost : {"log", "linear"}, sequence or callable
        Cost of a size.

    Returns
    -------
    {"log", "linear"} or sequence

    Raises
    ------
    ValueError
        If the cost is a function and the model is not fitted.
    """
    if not callable(cost):
        return cost
    classes = getattr(model, "_classes", None)
    if classes is None:
        raise ValueError(
            "cost is a function, which is saved as the table of its values for all sizes, and the "
            "sizes are unknown before fit; fit the model first"
        )
    values: list[float] = cost_table(cost, range(1, classes.n + 1))[1:].tolist()
    return values


def _save_loss(model: BaseEstimator, loss: object) -> object:
    is_own_module = isinstance(loss, nn.Module) and type(loss) not in LOSSES
    return leave_out(model, "loss", loss, "log") if is_own_module else loss


def _save_network(model: BaseEstimator, network: object) -> object:
    is_function = callable(network) and not isinstance(network, nn.Module)
    return leave_out(model, "network", network, None) if is_function else network


def _save_learners(model: BaseEstimator, learners: object) -> object:
    if not learners or isinstance(model, ConformityScore):
        return None  # For the score, a warning was issued for the model.
    return leave_out(model, "learners", learners, None)


Conversion = Callable[[BaseEstimator, object], object]
CONVERSIONS: Mapping[str, Conversion] = {
    "cost": save_cost,
    "loss": _save_loss,
    "network": _save_network,
    "learners": _save_learners,
}
"""Functions that return a parameter as it can be saved, by the name of the parameter."""


def saved_parameters(
    estimator: BaseEstimator, conversions: Mapping[str, Conversion] = CONVERSIONS
) -> dict[str, object]:
    """Return the parameters of an estimator as they can be saved.

    Parameters
    ----------
    estimator : BaseEstimator
        Model, score or calibrator.
    conversions : mapping of str to callable
        Functions that return a parameter as it can be saved. They are called with the estimator
        and the value.

    Returns
    -------
    dict of str to object
        Parameters. The state of a random generator is not among them.
    """
    parameters: dict[str, object] = {}
    for name, value in estimator.get_params(deep=False).items():
        if isinstance(value, np.random.RandomState):
            parameters[name] = None
        else:
            convert = conversions.get(name)
            parameters[name] = value if convert is None else convert(estimator, value)
    return parameters


def leave_out(model: BaseEstimator, name: str, value: object, default: object) -> object:
    """Return the default of a parameter that is the user's code, and warn.

    Parameters
    ----------
    model : BaseEstimator
        The model.
    name : str
        Name of the parameter, which only another fit would use.
    value : object
        Its value.
    default : object
        Value to save.

    Returns
    -------
    object
        The default.
    """
    warn(
        f"{name} = {value!r} of {type(model).__name__} is code, which a model file cannot contain; "
        f"predictions do not need it, and the loaded model will have {name}={default!r}"
    )
    return default
