"""The registry of surrogate losses: every dispatch on the name of a loss goes through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shortlist._utils.validation import check_choice
from shortlist.losses.record import FAMILIES, FAMILY_PARAMETERS, Family, Parameter, SurrogateLoss


@dataclass(frozen=True)
class LossEntry:
    """A registered loss, which builds its record from the value of its parameter."""

    name: str
    family: Family
    parameter: Parameter | None
    build: Callable[[float], SurrogateLoss]
    records: dict[float, SurrogateLoss] = field(default_factory=dict, compare=False)
    """Cache of records by the value of the parameter."""

    def record(self, value: float) -> SurrogateLoss:
        """Return the record for a value of the parameter, and raise if it is out of range."""
        (self.parameter or FAMILY_PARAMETERS[self.family]).check(value)
        key = 0.0 if self.parameter is None else float(value)
        if key not in self.records:
            if len(self.records) >= 256:
                self.records.clear()
            self.records[key] = self.build(key)
        return self.records[key]


_ENTRIES: dict[str, LossEntry] = {}


def register_loss(
    loss: SurrogateLoss | Callable[[float], SurrogateLoss],
    *,
    parameter: Parameter | None = None,
    replace: bool = False,
) -> None:
    """Register a loss, so that functions, modules and estimators accept its name.

    The loss must be registered in every process that uses it, and before a saved model that uses
    it is loaded.

    Parameters
    ----------
    loss : SurrogateLoss or callable
        The record of the loss. For a loss with a parameter, a function from the value of the
        parameter to the record.
    parameter : Parameter, optional
        Parameter of the loss, named "q" (comp-sum) or "rho" (constrained). Estimators pass their
        argument of the same name.
    replace : bool, default=False
        Whether to replace a registered loss of the same name, for example in a notebook.

    Raises
    ------
    TypeError
        If `loss` is neither a record without `parameter` nor a function with `parameter`.
    ValueError
        If the name is registered, or the parameter has the name of the other family.

    Examples
    --------
    >>> import shortlist as sl
    >>> sl.losses.register_loss(
    ...     sl.losses.SurrogateLoss(
    ...         name="cubic_hinge",
    ...         family="constrained",
    ...         phi=lambda r: (1 + r).clamp(min=0) ** 3,
    ...         bounded_gradient=False,
    ...     )
    ... )
    >>> sl.losses.ConstrainedLoss("cubic_hinge")
    ConstrainedLoss('cubic_hinge', reduction='mean')
    >>> sl.losses.unregister_loss("cubic_hinge")
    """
    if isinstance(loss, SurrogateLoss):
        if parameter is not None:
            raise TypeError(
                "parameter= needs a function that returns a SurrogateLoss; got a SurrogateLoss"
            )
        entry = LossEntry(loss.name, loss.family, None, lambda _: loss)
    else:
        if parameter is None or not callable(loss):
            raise TypeError(
                f"loss must be a SurrogateLoss, or a function that returns one together with "
                f"parameter=; got {loss!r}"
            )
        record = loss(parameter.default)
        entry = LossEntry(record.name, record.family, parameter, loss)
        expected = FAMILY_PARAMETERS[record.family].name
        if parameter.name != expected:
            raise ValueError(
                f"the parameter of a {record.family!r} loss is {expected!r}; got {parameter.name!r}"
            )
    if entry.name in _ENTRIES and not replace:
        raise ValueError(f"loss {entry.name!r} is registered; use another name, or replace=True")
    _ENTRIES[entry.name] = entry


def unregister_loss(name: str) -> None:
    """Remove a loss from the registry.

    Parameters
    ----------
    name : str
        Name of a registered loss.

    Raises
    ------
    ValueError
        If no loss has this name.
    """
    del _ENTRIES[check_choice(name, "loss", loss_names())]


def loss_names(family: str | None = None) -> tuple[str, ...]:
    """Return the names of all registered losses, comp-sum losses first.

    Parameters
    ----------
    family : {"comp_sum", "constrained"}, optional
        Family of the losses. By default, all losses are included.

    Returns
    -------
    tuple of str
        The names, in the order of registration within each family.

    Examples
    --------
    >>> loss_names("constrained")
    ('constrained_exp', 'squared_hinge', 'hinge', 'margin')
    """
    families = FAMILIES if family is None else (check_choice(family, "family", FAMILIES),)
    return tuple(e.name for f in families for e in _ENTRIES.values() if e.family == f)


def loss_entry(name: str, family: str | None = None) -> LossEntry:
    """Return the entry of a loss. The error for an unknown name lists the known ones."""
    return _ENTRIES[check_choice(name, "loss", loss_names(family))]


def get_loss(name: str, *, q: float = 0.7, rho: float = 1.0) -> SurrogateLoss:
    """Return the record of a loss.

    Parameters
    ----------
    name : str
        Name of a registered loss.
    q : float, default=0.7
        Parameter of comp-sum losses.
    rho : float, default=1.0
        Parameter of constrained losses.

    Returns
    -------
    SurrogateLoss
        The record for this value of the parameter.

    Raises
    ------
    ValueError
        If no loss has this name, or its parameter is out of range.

    Examples
    --------
    >>> record = get_loss("gce", q=0.5)
    >>> record.family, record.label, record.bounded_gradient
    ('comp_sum', 'gce, q = 0.5', True)
    >>> record.cost_sensitive_bound.text
    '2 sqrt((1-q) |K|^q R)'
    """
    entry = loss_entry(name)
    return entry.record(q if entry.family == "comp_sum" else rho)
