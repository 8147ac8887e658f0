"""Check that a subclass is not exported with the graph of its parent class."""

from __future__ import annotations

from inspect import isfunction

UNRELATED = {
    "block_elements",
    "check",
    "check_parameters",
    "fit",
    "fitted",
    "is_exhaustive",
    "lower",
    "max_size",
    "needs_fit",
    "possible_sizes",
}
"""Methods of scores and families that the export calls, or that do not affect the graph."""
PREDICTION = {"predict_set", "_predict", "_level_function", "_choices"}
"""Methods of predictors that compute sets."""


def check_overrides(
    part: object, protocol: type, method: str, names: set[str] | None = None
) -> None:
    """Raise if a subclass overrides how sets are computed, but not its ONNX graph.

    The graph belongs to the most derived class that defines a method whose name begins with
    ``onnx_``. A subclass of it that overrides another of its methods may have other sets.

    Parameters
    ----------
    part : object
        Model, score or family to export.
    protocol : type
        Base class that declares the methods ``onnx_…``. If no other class defines one, the method
        of the base class raises the error that says what to implement.
    method : str
        Method to implement.
    names : set of str, optional
        Methods that affect the graph. The default is all but `UNRELATED`.

    Raises
    ------
    ValueError
        If a method is overridden that affects the graph, but not the graph.

    Examples
    --------
    >>> from shortlist.conformal import APS, ConformityScore
    >>> class Halved(APS):
    ...     def levels(self, ranking, features=None):
    ...         return super().levels(ranking, features) / 2
    >>> check_overrides(Halved(), ConformityScore, "onnx_levels")
    Traceback (most recent call last):
    ValueError: Halved overrides levels of APS, whose ONNX graph may not be that of Halved; \
implement onnx_levels in Halved too, or write `onnx_levels = APS.onnx_levels` there if it is
    """
    classes = type(part).__mro__
    owner = next(
        (c for c in classes if any(name.startswith("onnx_") for name in vars(c))), protocol
    )
    if owner is protocol:
        return
    above = classes[classes.index(owner) :]
    for cls in classes[: classes.index(owner)]:
        for name, function in vars(cls).items():
            relevant = name not in UNRELATED if names is None else name in names
            if name.startswith("__") or not relevant or not _is_code(function):
                continue
            if any(_is_concrete(vars(parent).get(name)) for parent in above):
                mine, theirs = cls.__name__, owner.__name__
                raise ValueError(
                    f"{mine} overrides {name} of {theirs}, whose ONNX graph may not be that of "
                    f"{mine}; implement {method} in {mine} too, or write `{method} = "
                    f"{theirs}.{method}` there if it is"
                )


def _is_code(attribute: object) -> bool:
    return isfunction(attribute) or isinstance(attribute, property | classmethod | staticmethod)


def _is_concrete(attribute: object) -> bool:
    return attribute is not None and not getattr(attribute, "__isabstractmethod__", False)
