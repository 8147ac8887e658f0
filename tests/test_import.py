"""`import shortlist` imports no heavy package, and every public name can be loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import shortlist

HEAVY = ["torch", "sklearn", "numpy", "pandas", "matplotlib", "scipy", "rich", "typer", "plotly"]


def run(code: str) -> object:
    """Run code in a new interpreter, and return what it prints as JSON."""
    result = subprocess.run(
        [sys.executable, "-c", f"import json, sys\n{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_import_loads_no_heavy_package():
    code = f"import shortlist\nprint(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    assert run(code) == []


def test_listing_the_names_loads_no_heavy_package():
    code = (
        "import shortlist\ndir(shortlist), shortlist.__version__, hasattr(shortlist, 'nothing')\n"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    assert run(code) == []


def test_families_need_only_numpy_and_torch():
    code = (
        "import shortlist as sl\n"
        "sl.TopK([1]).hits([[0.1, 0.9]], [1])\n"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    assert run(code) == ["torch", "numpy"]


def test_every_name_can_be_loaded():
    code = (
        "import shortlist\nmodules = {}\n"
        "for name in reversed(shortlist.__all__):\n"
        "    modules[name] = getattr(getattr(shortlist, name), '__module__', None)\n"
        "from shortlist import *\n"
        "print(json.dumps([modules, all(name in globals() for name in shortlist.__all__)]))"
    )
    modules, star_import = run(code)
    assert sorted(modules) == sorted(shortlist.__all__)
    assert star_import
    assert {module.split(".")[0] for module in modules.values() if module} == {"shortlist"}


def test_dir_lists_the_public_names_once():
    assert dir(shortlist) == sorted(set(shortlist.__all__))
    assert {"Ranking", "PredictionSets", "TopK", "Threshold", "metrics"} <= set(dir(shortlist))


def test_an_unknown_name_raises():
    with pytest.raises(AttributeError, match="module 'shortlist' has no attribute 'Topk'"):
        shortlist.Topk  # noqa: B018


def test_names_are_the_same_objects_as_in_their_modules():
    from shortlist.families import TopK

    assert shortlist.TopK is TopK
    assert shortlist.metrics is sys.modules["shortlist.metrics"]
