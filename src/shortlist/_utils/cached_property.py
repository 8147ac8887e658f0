"""An attribute that is computed when it is first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class CachedProperty(Generic[Value]):
    """Compute an attribute when it is first read, without a lock.

    Threads that read it at the same time may compute it twice, and all get the same object. The
    lock of `functools.cached_property` in Python 3.11 is shared by all objects of the class, and
    stays locked in a process that is forked meanwhile.

    Parameters
    ----------
    compute : callable
        Method that returns the value.

    Examples
    --------
    >>> class Row:
    ...     @CachedProperty
    ...     def total(self):
    ...         print("computed")
    ...         return 3
    >>> row = Row()
    >>> row.total + row.total
    computed
    6
    """

    def __init__(self, compute: Callable[..., Value]) -> None:
        self._compute = compute

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Value:
        value: Value = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value
