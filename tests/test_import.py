"""`import shortlist` is light, and every name it offers is there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import shortlist

HEAVY = ["torch", "sklearn", "numpy", "pandas", "matplotlib", "scipy", "rich", "typer", "plotly"]


def run(code: str) -> object:
    """What a fresh interpreter prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\n{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_import_alone_loads_nothing_heavy():
    code = f"import shortlist\nprint(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    assert run(code) == []


def test_looking_round_loads_nothing_heavy():
    code = (
        "import shortlist\ndir(shortlist), shortlist.__version__, hasattr(shortlist, 'nothing')\n"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    assert run(code) == []


def test_sets_need_no_scikit_learn_and_nothing_optional():
    code = (
        "import shortlist as sl\n"
        "sl.TopK([1]).hits([[0.1, 0.9]], [1])\n"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    assert run(code) == ["torch", "numpy"]


def test_every_name_resolves_in_any_order():
    code = (
        "import shortlist\nhomes = {}\n"
        "for name in reversed(shortlist.__all__):\n"
        "    homes[name] = getattr(getattr(shortlist, name), '__module__', None)\n"
        "from shortlist import *\n"
        "print(json.dumps([homes, all(name in globals() for name in shortlist.__all__)]))"
    )
    homes, starred = run(code)
    assert sorted(homes) == sorted(shortlist.__all__)
    assert starred
    assert {home.split(".")[0] for home in homes.values() if home} == {"shortlist"}


def test_dir_lists_the_public_names_once():
    assert dir(shortlist) == sorted(set(shortlist.__all__))
    assert {"Ranking", "PredictionSets", "TopK", "Threshold", "metrics"} <= set(dir(shortlist))


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'shortlist' has no attribute 'Topk'"):
        shortlist.Topk  # noqa: B018


def test_names_are_the_same_objects_as_in_their_modules():
    from shortlist.families import TopK

    assert shortlist.TopK is TopK
    assert shortlist.metrics is sys.modules["shortlist.metrics"]
