"""The record of how the objects of one class are saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shortlist.io.fields import Field, ensure


@dataclass(frozen=True)
class Format:
    """How the objects of one class are written to a model file and made again from it.

    By default, an object is written as the attributes named in `fields`, and made by calling the
    class with them as keyword arguments.

    Parameters
    ----------
    cls : type
        The class. Its subclasses are not written with this format, unless `subclasses` is true.
    fields : mapping of str to Field
        What each field in the file may contain.
    name : str, optional
        Name of the class in the file. The default is its name in Python.
    optional : set of str
        Names of fields that may be missing.
    pack : callable, optional
        Returns the fields of an object.
    make : callable, optional
        Makes an object from its fields, which are keyword arguments.
    check : callable, optional
        Raises a `ModelFileError` if the parts of an object that was made do not agree.
    subclasses : bool, default=False
        Whether subclasses are written with this format too.

    Notes
    -----
    Models that were written once must load for ever. If an attribute or a class is renamed, its
    name in the file stays, by means of `name`, `pack` and `make`.
    """

    cls: type
    fields: Mapping[str, Field] = field(default_factory=dict)
    name: str = ""
    optional: frozenset[str] = frozenset()
    pack: Callable[..., Mapping[str, object]] | None = None
    make: Callable[..., object] | None = None
    check: Callable[..., None] | None = None
    subclasses: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.cls.__name__)

    def write(self, value: object) -> Mapping[str, object]:
        """Return the fields of an object.

        Parameters
        ----------
        value : object
            Instance of the class.

        Returns
        -------
        mapping of str to object
        """
        if self.pack is not None:
            return self.pack(value)
        return {name: getattr(value, name) for name in self.fields}

    def read(self, state: Mapping[str, object]) -> object:
        """Make an object from its fields in a file.

        Parameters
        ----------
        state : mapping of str to object
            The fields.

        Returns
        -------
        object

        Raises
        ------
        ModelFileError
            If a field is missing, unknown or invalid, or fields do not agree with each other.
        """
        check_fields(self.name, state, self.fields, self.optional)
        value = (self.make or self.cls)(**state)
        if self.check is not None:
            self.check(value)
        return value


def check_fields(
    owner: str,
    values: Mapping[str, object],
    fields: Mapping[str, Field],
    optional: frozenset[str] = frozenset(),
) -> None:
    """Raise a `ModelFileError` unless an object has exactly the fields that it should have.

    Parameters
    ----------
    owner : str
        Name of the object, for the message.
    values : mapping of str to object
        The fields in the file.
    fields : mapping of str to Field
        What each field may contain.
    optional : set of str
        Names of fields that may be missing.
    """
    unknown = sorted(str(name)[:60] for name in values.keys() - fields.keys())
    ensure(not unknown, f"{owner} has unknown fields: {unknown[:3]}")
    for name, known in fields.items():
        if name in values:
            known.check(f"{owner}.{name}", values[name])
        else:
            ensure(name in optional, f"{owner} lacks {name!r}")
