"""The layers of the design: a module imports its own row and the rows above, never in a circle.

Imports inside functions and under TYPE_CHECKING are free: they do not run when a module is loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import shortlist

PACKAGE = Path(shortlist.__file__).parent

ROWS: list[tuple[str, set[str]]] = [
    (
        "edges",
        {
            "_arrays",
            "_array_checks",
            "_frames",
            "_labels",
            "_lazy",
            "_scratch",
            "_tables",
            "_together",
            "_progress",
            "_staging",
            "_version",
            "_warnings",
            "_writing",
        },
    ),
    (
        "sets",
        {"ranking", "_candidates", "_order", "_row_keys", "scores", "sets", "families", "costs"},
    ),
    ("losses", {"losses"}),
    (
        "learning",
        {
            "networks",
            "training",
            "_settings",
            "_graphs",
            "_checkpoint",
            "_windows",
            "linear",
            "temperature",
        },
    ),
    ("judging", {"metrics", "frontier"}),
    ("keeping", {"guarantee", "persistence", "_model_folder", "_fields"}),
    ("choosing", {"selectors", "conformal"}),
    ("science", {"theory", "datasets", "paper"}),
    (
        "using",
        {
            "comparison",
            "estimator",
            "export",
            "report",
            "ray",
            "demo",
            "cli",
            "__main__",
            "saving",
            "_agreement",
            "_archive",
            "_compiled",
            "_estimators",
            "_formats",
            "_state",
            "_trust",
            "rows",
            "_columns",
            "_sets_out",
        },
    ),
]
LAYER = {module: i for i, (_, modules) in enumerate(ROWS) for module in modules}


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is loaded."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from statements(statement.orelse)
            continue
        for inner in ("body", "orelse", "finalbody"):
            yield from statements(getattr(statement, inner, []))
        for part in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
            yield from statements(part.body)


def modules_of(package: Path) -> dict[str, Path]:
    """Every module of a package by its dotted name; a package's own is the folder's."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    """The package's own modules that are loaded with the module `name`."""
    root = name.split(".")[0]
    home = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    wanted: set[str] = set()
    for statement in statements(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(statement, ast.Import):
            wanted |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            base = home[: len(home) - statement.level + 1] if statement.level else []
            origin = ".".join([*base, *([statement.module] if statement.module else [])])
            # `from package import x` loads the module x if there is one, else only the package.
            inner = {f"{origin}.{alias.name}" for alias in statement.names}
            wanted |= inner & modules.keys()
            if not inner <= modules.keys() or origin != root:
                wanted.add(origin)
    # A module's package is loaded before it, wherever the module is imported from outside.
    parents = {".".join(w.split(".")[:i]) for w in wanted for i in range(2, w.count(".") + 1)}
    own = {".".join(name.split(".")[:i]) for i in range(1, name.count(".") + 1)}
    return {w for w in (wanted | (parents - own)) & modules.keys() if w != name}


def problems(package: Path) -> list[str]:
    """What breaks the layers, in words."""
    root, modules = package.name, modules_of(package)
    graph = {name: imports_of(name, path, modules) for name, path in modules.items()}
    found = []

    def layer(name: str) -> int | None:
        # The package itself offers every name, so importing it is importing the last row.
        return len(ROWS) - 1 if name == root else LAYER.get(name.split(".")[1])

    for name, targets in graph.items():
        mine = layer(name)
        if mine is None:
            found.append(
                f"{name} is in no layer: add {name.split('.')[1]!r} to its row of ROWS in "
                "tests/test_layers.py, and to the table of layers in the design"
            )
            continue
        for target in sorted(targets):
            theirs = layer(target)
            if theirs is not None and theirs > mine:
                found.append(
                    f"{name} ({ROWS[mine][0]}) imports {target} ({ROWS[theirs][0]}), "
                    "which is a layer below it; import it inside the function that needs it"
                )
    return found + [f"a circle of imports: {' -> '.join(circle)}" for circle in circles(graph)]


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Circles of a graph, one for each edge that closes one in a depth-first walk."""
    found: list[list[str]] = []
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> None:
        if name in path:
            circle = path[path.index(name) :]
            start = circle.index(min(circle))
            found.append([*circle[start:], *circle[:start], circle[start]])
        elif name not in done:
            for target in sorted(graph[name]):
                walk(target, [*path, name])
            done.add(name)

    for name in sorted(graph):
        walk(name, [])
    return found


def test_the_layers_hold():
    assert problems(PACKAGE) == []


def test_the_checker_reads_the_real_imports():
    modules = modules_of(PACKAGE)
    assert len(modules) > 15
    assert imports_of("shortlist.sets", modules["shortlist.sets"], modules) == {
        "shortlist._arrays",
        "shortlist._labels",
        "shortlist.ranking",
    }


def test_every_module_is_in_one_row():
    named = [module for _, modules in ROWS for module in modules]
    assert len(named) == len(set(named))


# The checker has teeth


def write(tmp_path: Path, files: dict[str, str]) -> Path:
    package = tmp_path / "shortlist"
    for name, text in {"__init__.py": "", **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package


GOOD = {
    "__init__.py": "from shortlist._version import __version__\n",
    "_version.py": "__version__ = '0'\n",
    "ranking.py": "import torch\n",
    "sets.py": (
        "from typing import TYPE_CHECKING\n"
        "from shortlist.ranking import Ranking\n"
        "if TYPE_CHECKING:\n    from shortlist.cli import main\n"
        "def plot():\n    from shortlist.report import page\n"
        "class A:\n    def f(self):\n        import shortlist.cli\n"
    ),
    "selectors/__init__.py": "from shortlist.selectors.fixed import Fixed\n",
    "selectors/fixed.py": "from shortlist import sets\nfrom shortlist.selectors._base import B\n",
    "selectors/_base.py": "from shortlist.sets import A\n",
    "report/__init__.py": "",
    "cli.py": "import shortlist as sl\nfrom shortlist.selectors import Fixed\n",
}


def test_a_package_in_order_passes(tmp_path):
    assert problems(write(tmp_path, GOOD)) == []


@pytest.mark.parametrize(
    "line",
    [
        "import shortlist.cli",
        "from shortlist.cli import main",
        "from shortlist import cli",
        "from . import cli",
        "from .cli import main",
        "try:\n    pass\nexcept ImportError:\n    from shortlist.cli import main",
        "class A:\n    from shortlist.cli import main",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import shortlist.cli",
    ],
)
def test_an_import_from_a_row_below_is_found(tmp_path, line):
    found = problems(write(tmp_path, GOOD | {"ranking.py": line + "\n"}))
    assert len([p for p in found if "ranking (sets) imports shortlist.cli (using)" in p]) == 1


def test_the_package_itself_offers_every_layer(tmp_path):
    for line in ("import shortlist as sl\n", "from shortlist import TopK\n"):
        found = problems(write(tmp_path, GOOD | {"ranking.py": line}))
        assert "ranking (sets) imports shortlist (using)" in found[0]


@pytest.mark.parametrize(
    ("files", "circle"),
    [
        (
            {"ranking.py": "from shortlist.sets import A\n"},
            "shortlist.ranking -> shortlist.sets -> shortlist.ranking",
        ),
        (
            {"selectors/_base.py": "from .fixed import Fixed\n"},
            "shortlist.selectors._base -> shortlist.selectors.fixed -> shortlist.selectors._base",
        ),
        (
            {
                "conformal.py": "from shortlist.selectors._base import Base\n",
                "selectors/fixed.py": "from shortlist.conformal import x\n",
            },
            "shortlist.conformal -> shortlist.selectors -> shortlist.selectors.fixed -> "
            "shortlist.conformal",
        ),
    ],
    ids=["two modules", "inside a package", "through a package"],
)
def test_a_circle_inside_a_row_is_found(tmp_path, files, circle):
    assert problems(write(tmp_path, GOOD | files)) == [f"a circle of imports: {circle}"]


def test_a_module_without_a_row_is_found_and_told_where_to_go(tmp_path):
    (found,) = problems(write(tmp_path, GOOD | {"magic.py": ""}))
    assert "shortlist.magic is in no layer" in found
    assert "'magic'" in found
    assert "tests/test_layers.py" in found
