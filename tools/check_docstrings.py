"""Validate the docstrings of the public API with numpydoc.

The public API is every function and class in ``__all__`` of the package and of its public
subpackages, with the public methods that each class defines. A method that overrides one of the
package's own classes is documented there. `make lint` runs this script.
"""

from __future__ import annotations

import importlib
import inspect
import sys

from numpydoc.validate import validate

import shortlist

IGNORED = {
    "ES01",  # An extended summary is optional.
    "EX01",  # Examples are optional for methods: the class has them.
    "GL01",  # The summary may start on the line of the opening quotes.
    "GL02",  # A docstring of one line closes on that line.
    "GL03",
    "RT02",  # A returned value may be named.
    "RT03",  # The type alone may say everything.
    "RT04",
    "SA01",  # See Also is optional.
    "SS05",  # ruff checks that the summary is in the imperative.
    "YD01",
}


def public_names() -> list[str]:
    """Return the qualified names of all public functions, classes and methods."""
    names = {}
    modules = [shortlist]
    for name in shortlist.__all__:
        member = getattr(shortlist, name)
        if inspect.ismodule(member):
            modules.append(importlib.import_module(member.__name__))
    for module in modules:
        for name in getattr(module, "__all__", ()):
            member = getattr(module, name)
            if not (inspect.isfunction(member) or inspect.isclass(member)):
                continue
            if not member.__module__.startswith("shortlist"):
                continue
            qualified = f"{member.__module__}.{member.__qualname__}"
            names[qualified] = None
            if inspect.isclass(member):
                names |= dict.fromkeys(f"{qualified}.{key}" for key in own_methods(member))
    return sorted(names)


def own_methods(cls: type) -> list[str]:
    """Return the public methods that a class defines and that no class of the package has."""
    bases = [base for base in cls.__mro__[1:] if base.__module__.startswith("shortlist")]
    return [
        name
        for name, value in vars(cls).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod))
        and not any(name in vars(base) for base in bases)
    ]


def main() -> int:
    """Print each defect; return 1 if there is one."""
    names = public_names()
    defects = [
        f"{name}: {code} {message}"
        for name in names
        for code, message in validate(name)["errors"]
        if code not in IGNORED
    ]
    print("\n".join([*defects, f"{len(names)} public names checked, {len(defects)} defects"]))
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
