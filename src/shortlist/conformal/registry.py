"""Registries of scores and calibrators, which make them available by name."""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeVar


class Named(Protocol):
    """An object whose class has a name."""

    name: ClassVar[str]


AnyNamed = TypeVar("AnyNamed", bound=Named)


def register(cls: type[AnyNamed], registry: dict[str, type[AnyNamed]]) -> None:
    """Add a class to a registry under its `name`.

    A class can replace an earlier one of the same module and the same qualified name, so that a
    notebook cell can be run again.

    Parameters
    ----------
    cls : type
        Class with an attribute `name`.
    registry : dict of str to type
        Registry to add the class to.

    Raises
    ------
    ValueError
        If the class has no name, or another class has this name.
    """
    if not cls.name:
        raise ValueError(f"{cls.__name__} has no name; give the class an attribute `name`")
    registered = registry.get(cls.name, cls)
    if _path(registered) != _path(cls):
        raise ValueError(
            f"the name {cls.name!r} is taken by {_path(registered)}; give {_path(cls)} another"
        )
    registry[cls.name] = cls


def _path(cls: type) -> str:
    """Return the module and the qualified name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"
