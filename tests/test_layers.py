"""A module imports only from its own layer and the layers above, without cycles.

Every import counts, also inside functions and under TYPE_CHECKING. The only exception is the
module of the mixins whose methods call the integrations.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import shortlist

PACKAGE = Path(shortlist.__file__).parent

LAYERS: list[tuple[str, set[str]]] = [
    ("utilities", {"_utils", "_version"}),
    ("vocabulary", {"ranking", "guarantee", "sets", "families", "costs", "metrics", "frontier"}),
    ("losses", {"losses"}),
    ("learning", {"learning"}),
    ("conformal", {"conformal"}),
    ("predictors", {"predictors"}),
    ("research", {"datasets", "theory", "paper"}),
    ("comparison", {"comparison"}),
    ("files", {"io"}),
    ("integrations", {"onnx", "html_report", "ray", "cli", "__main__"}),
]
LAYER_OF = {module: i for i, (_, modules) in enumerate(LAYERS) for module in modules}
EXCEPTION = "_utils.integrations"
"""The module that may import from any layer, inside functions and under TYPE_CHECKING."""


def modules_of(package: Path) -> dict[str, Path]:
    """Return the path of each module of a package, by its dotted name."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imports_of(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    """Return the modules of the package that the module `name` imports."""
    root = name.split(".")[0]
    parent = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    imported: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # The package itself loads its names lazily: only type checkers see its imports.
    nodes = tree.body if name == root else ast.walk(tree)
    if name == f"{root}.{EXCEPTION}":
        nodes = [node for node in tree.body if not isinstance(node, ast.If)]
    for node in nodes:
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = parent[: len(parent) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from package import x` loads the module x if it exists, else only the package.
            inner = {f"{origin}.{alias.name}" for alias in node.names}
            imported |= inner & modules.keys()
            if not inner <= modules.keys() or origin != root:
                imported.add(origin)
    # The package of an imported module is loaded too.
    packages = {
        ".".join(module.split(".")[:i])
        for module in imported
        for i in range(2, module.count(".") + 1)
    }
    own = {".".join(name.split(".")[:i]) for i in range(1, name.count(".") + 1)}
    return ((imported | (packages - own)) & modules.keys()) - {name}


def problems(package: Path) -> list[str]:
    """Return the imports that violate the layers, as sentences."""
    root, modules = package.name, modules_of(package)
    graph = {name: imports_of(name, path, modules) for name, path in modules.items()}
    sentences = []

    def layer(name: str) -> int | None:
        # The package itself gives access to every name, including those of the last layer.
        return len(LAYERS) - 1 if name == root else LAYER_OF.get(name.split(".")[1])

    for name, targets in graph.items():
        own_layer = layer(name)
        if own_layer is None:
            sentences.append(
                f"{name} is in no layer: add {name.split('.')[1]!r} to one of LAYERS in "
                "tests/test_layers.py, and to the table of layers in CONTRIBUTING.md"
            )
            continue
        for target in sorted(targets):
            target_layer = layer(target)
            if target_layer is not None and target_layer > own_layer:
                sentences.append(
                    f"{name} ({LAYERS[own_layer][0]}) imports {target} "
                    f"({LAYERS[target_layer][0]}), which is a lower layer"
                )
    return sentences + [f"import cycle: {' -> '.join(cycle)}" for cycle in cycles(graph)]


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return one cycle of a graph for each edge that closes one in a depth-first search."""
    closed: list[list[str]] = []
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> None:
        if name in path:
            cycle = path[path.index(name) :]
            start = cycle.index(min(cycle))
            closed.append([*cycle[start:], *cycle[:start], cycle[start]])
        elif name not in done:
            for target in sorted(graph[name]):
                walk(target, [*path, name])
            done.add(name)

    for name in sorted(graph):
        walk(name, [])
    return closed


def test_imports_respect_the_layers():
    assert problems(PACKAGE) == []


def test_imports_are_read_from_the_code():
    modules = modules_of(PACKAGE)
    assert len(modules) > 15
    name = "shortlist.sets.prediction_sets"
    assert imports_of(name, modules[name], modules) >= {
        "shortlist._utils.arrays",
        "shortlist._utils.labels",
        "shortlist.ranking",
    }


def test_every_module_is_in_one_layer():
    names = [module for _, modules in LAYERS for module in modules]
    assert len(names) == len(set(names))


# The functions above are tested on small packages.


def write(tmp_path: Path, files: dict[str, str]) -> Path:
    package = tmp_path / "shortlist"
    for name, text in {"__init__.py": "", **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package


GOOD = {
    "__init__.py": (
        "from shortlist._version import __version__\n"
        "if TYPE_CHECKING:\n    from shortlist.cli import main\n"
    ),
    "_version.py": "__version__ = '0'\n",
    "_utils/__init__.py": "",
    "_utils/integrations.py": (
        "if TYPE_CHECKING:\n    from shortlist.cli import main\n"
        "class A:\n    def f(self):\n        import shortlist.cli\n"
    ),
    "ranking.py": "import torch\n",
    "sets.py": "from shortlist.ranking import Ranking\n",
    "predictors/__init__.py": "from shortlist.predictors.fixed import Fixed\n",
    "predictors/fixed.py": "from shortlist import sets\nfrom shortlist.predictors.base import B\n",
    "predictors/base.py": "from shortlist.sets import A\nimport shortlist._utils.integrations\n",
    "html_report/__init__.py": "",
    "cli.py": "import shortlist as sl\nfrom shortlist.predictors import Fixed\n",
}


def test_a_valid_package_has_no_problems(tmp_path):
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
        "class A:\n    def f(self):\n        from shortlist.cli import main",
        "def f():\n    import shortlist.cli",
        "if TYPE_CHECKING:\n    import shortlist.cli",
    ],
)
def test_an_import_from_a_lower_layer_is_a_problem(tmp_path, line):
    sentences = problems(write(tmp_path, GOOD | {"ranking.py": line + "\n"}))
    expected = "ranking (vocabulary) imports shortlist.cli (integrations)"
    assert len([sentence for sentence in sentences if expected in sentence]) == 1


def test_the_exception_covers_only_functions(tmp_path):
    line = "from shortlist.cli import main\n"
    sentences = problems(write(tmp_path, GOOD | {"_utils/integrations.py": line}))
    assert "integrations (utilities) imports shortlist.cli (integrations)" in sentences[0]


def test_the_package_itself_is_in_the_last_layer(tmp_path):
    for line in ("import shortlist as sl\n", "from shortlist import TopK\n"):
        sentences = problems(write(tmp_path, GOOD | {"ranking.py": line}))
        assert "ranking (vocabulary) imports shortlist (integrations)" in sentences[0]


@pytest.mark.parametrize(
    ("files", "cycle"),
    [
        (
            {"ranking.py": "def f():\n    from shortlist.sets import A\n"},
            "shortlist.ranking -> shortlist.sets -> shortlist.ranking",
        ),
        (
            {"predictors/base.py": "from .fixed import Fixed\n"},
            "shortlist.predictors.base -> shortlist.predictors.fixed -> shortlist.predictors.base",
        ),
        (
            {
                "theory.py": "from shortlist.datasets import read\n",
                "datasets/__init__.py": "from shortlist.datasets.files import read\n",
                "datasets/files.py": "from shortlist.theory import x\n",
            },
            "shortlist.datasets -> shortlist.datasets.files -> shortlist.theory -> "
            "shortlist.datasets",
        ),
    ],
    ids=["two modules", "inside a package", "through a package"],
)
def test_a_cycle_inside_a_layer_is_a_problem(tmp_path, files, cycle):
    assert problems(write(tmp_path, GOOD | files)) == [f"import cycle: {cycle}"]


def test_a_module_without_a_layer_is_a_problem(tmp_path):
    (sentence,) = problems(write(tmp_path, GOOD | {"magic.py": ""}))
    assert "shortlist.magic is in no layer" in sentence
    assert "'magic'" in sentence
    assert "tests/test_layers.py" in sentence
