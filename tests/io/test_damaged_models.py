"""Test that damaged, foreign and hostile models are refused with one line."""

from __future__ import annotations

import os
import pickle
import random
import resource
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tamper import rewrite
from typer.testing import CliRunner
from zoo import SCORES, ZOO, Y

import shortlist as sl
from shortlist.cli import app
from shortlist.io.model_folder import WEIGHTS
from shortlist.io.models import inspect
from shortlist.io.persistence import ModelFileError


@pytest.fixture(scope="module")
def lac() -> sl.SplitConformal:
    return sl.SplitConformal("lac").fit(SCORES, Y)


# Documents and weights


def test_a_changed_document_is_detected_by_its_checksum(lac, tmp_path):
    lac.save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    path.write_text(path.read_text().replace('"score_type_": "proba"', '"score_type_": "logits"'))
    with pytest.raises(ModelFileError, match="has been changed since it was saved"):
        sl.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(format_version=2, library_version="9.1"), "shortlist 9.1 in format 2"),
        (lambda d: d.update(format_version="1"), "no format version"),
        (lambda d: d.update(format_version=True), "no format version"),
        (lambda d: d.update(format="other"), "not that of a shortlist model"),
        (lambda d: d.pop("files") and d.update(files=[]), "lists no files"),
        (lambda d: d.update(state=None), "contains no model"),
        (lambda d: d.update(state={"$": "Shell", "command": "id"}), "'Shell', which is unknown"),
        (lambda d: d.update(state={"$": "Classes", "n": 3, "values": None}), "contains no model"),
        (lambda d: d["state"].pop("fitted"), "SplitConformal lacks 'fitted'"),
        (lambda d: d["state"].update(fitted=None), "not fitted"),
        (lambda d: d["state"]["parameters"]["of"].update(magic=1), "magic"),
        (lambda d: d["state"]["fitted"]["of"].pop("score_"), "lacks 'score_'"),
        (lambda d: d["state"]["fitted"]["of"].update(_classes="x"), "_classes is .x., not Classes"),
        (lambda d: d["state"]["fitted"]["of"]["_classes"].update(n={"$": "float", "value": "1"}),
         "a float is '1'"),
        (lambda d: d["files"][WEIGHTS].update(file="../../etc/passwd"), "not a file that save"),
        (lambda d: d["files"][WEIGHTS].update(file="model.json"), "not a file that save"),
        (lambda d: d["files"][WEIGHTS].update(file=7), "not a file that save"),
        (lambda d: [], "not that of a shortlist model"),
    ],
)  # fmt: skip
def test_the_error_says_what_is_wrong_with_a_document(lac, tmp_path, change, words):
    lac.save(tmp_path / "model")
    if words.startswith("not that of") and isinstance(change({}), list):
        (tmp_path / "model" / "model.json").write_text("[]")
    else:
        rewrite(tmp_path / "model", change)
    with pytest.raises(ModelFileError, match=words) as error:
        sl.load(tmp_path / "model")
    assert "\n" not in str(error.value)
    assert "model' cannot be loaded" in str(error.value)


def test_absent_foreign_and_deep_files(lac, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sl.load(tmp_path / "nowhere")
    (tmp_path / "file.pkl").write_bytes(pickle.dumps([1]))
    for path in (tmp_path, tmp_path / "file.pkl"):
        with pytest.raises(ModelFileError, match=r"a model is a folder with model\.json"):
            sl.load(path)
    lac.save(tmp_path / "model")
    for text in ("[" * 100_000, '{"a":' * 100_000, '{"format": NaN}', "\x00" * 50, "", "{"):
        (tmp_path / "model" / "model.json").write_text(text)
        with pytest.raises(ModelFileError):
            sl.load(tmp_path / "model")


def test_missing_and_linked_weights(lac, tmp_path):
    lac.save(tmp_path / "model")
    weights = tmp_path / "model" / "weights.safetensors"
    elsewhere = tmp_path / "elsewhere"
    shutil.move(weights, elsewhere)
    with pytest.raises(ModelFileError, match=r"weights\.safetensors is missing"):
        sl.load(tmp_path / "model")
    weights.symlink_to(elsewhere)
    with pytest.raises(ModelFileError, match=r"weights\.safetensors is missing"):
        sl.load(tmp_path / "model")


def test_weights_without_a_tensor_of_the_document(lac, tmp_path):
    lac.save(tmp_path / "model")
    weights = tmp_path / "model" / "weights.safetensors"
    tensors = load_file(weights)
    tensors.pop(next(iter(tensors)))
    save_file(tensors, weights)
    data = weights.read_bytes()
    own = {
        "file": weights.name,
        "bytes": len(data),
        "sha256": sha256(data).hexdigest(),
    }
    rewrite(tmp_path / "model", lambda d: d["files"].update({"weights.safetensors": own}))
    with pytest.raises(ModelFileError, match="the weights lack"):
        sl.load(tmp_path / "model")


def test_200_damaged_and_hostile_models_are_refused_in_one_line(tmp_path):
    """Bytes are flipped, cut off, inserted or replaced at random, or values of the document are
    replaced by hostile ones with a valid checksum. Damaged files are refused, and nothing crashes.
    """
    rng = random.Random(0)
    names = ["raps", "shortlister", "path", "classifier"]
    folders = {name: ZOO[name].fit_model().save(tmp_path / name) for name in names}
    hostile = [None, -1, 1e308, "", "x" * 10_000, [], [[]], {}, {"$": "tensor", "name": "no"},
               {"$": "Shortlister"}, {"$": "os.system", "command": "id"}, True, 2**70]  # fmt: skip
    refused = 0
    for i in range(200):
        copy = tmp_path / f"damaged{i}"
        name = names[i % len(names)]
        shutil.copytree(folders[name], copy)
        if i % 2:
            file = rng.choice(sorted(copy.iterdir()))
            data = bytearray(file.read_bytes())
            at = rng.randrange(len(data))
            way = rng.randrange(4)
            if way == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif way == 1:
                del data[at:]
            elif way == 2:
                data[at:at] = data[:at][:1000] or b"x"
            else:
                data[at : at + 50] = bytes(rng.randrange(256) for _ in range(50))
            file.write_bytes(data)
        else:
            rewrite(copy, lambda d: damage(d["state"], rng, rng.choice(hostile)))
        why = reason(copy)
        refused += why is not None
        if why is None:  # A value was replaced by one that is valid, such as another number.
            assert i % 2 == 0
        else:
            assert "\n" not in why
            assert len(why) < 600
        shutil.rmtree(copy)
    assert refused > 150


def reason(folder: Path) -> str | None:
    """Return why a model is refused; None if it is not. Any error but a ValueError is a crash."""
    try:
        sl.load(folder)
    except ValueError as error:
        return str(error)
    return None


def damage(state: dict, rng: random.Random, value: object) -> None:
    """Replace a random value somewhere inside."""
    here = state
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        keys = [key for key in keys if key != "$"]
        if not keys:
            return
        key = rng.choice(keys)
        if not isinstance(here[key], dict | list) or not here[key] or rng.random() < 0.1:
            here[key] = value
            return
        here = here[key]


def test_a_hostile_pickle_in_place_of_the_classifier_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'owned'}",)

    ZOO["classifier"].fit_model().save(tmp_path / "model")
    (tmp_path / "model" / "estimator.skops").write_bytes(pickle.dumps(Evil()))
    data = (tmp_path / "model" / "estimator.skops").read_bytes()
    own = {"file": "estimator.skops", "bytes": len(data),
           "sha256": sha256(data).hexdigest()}  # fmt: skip
    rewrite(tmp_path / "model", lambda d: d["files"].update({"estimator.skops": own}))
    with pytest.raises(ModelFileError, match="the classifier cannot be read"):
        sl.load(tmp_path / "model")
    assert not (tmp_path / "owned").exists()


# Files and fields of the document


def test_one_large_file_is_not_read_many_times(lac, tmp_path):
    folder = lac.save(tmp_path / "model")
    (folder / "pad").write_bytes(bytes(10**7))
    entry = {"file": "pad", "bytes": 10**7, "sha256": sha256(bytes(10**7)).hexdigest()}
    rewrite(folder, lambda d: d["files"].update({f"x{i}": entry for i in range(200)}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (sl.load, inspect):
        with pytest.raises(ModelFileError, match="not a file that save writes"):
            read(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("weights.safetensors", "estimator.skops"),
        ("estimator.skops", "weights.safetensors"),
        ("weights.safetensors", "weights-x.safetensors"),
        ("weights-0123456789ab.safetensors", "weights-0123456789ab.safetensors"),
        ("weights.safetensors", "weights.safetensors\n"),
        ("model.json", "model.json"),
        (".env", ".env"),
    ],
)
def test_a_model_has_two_files_besides_its_document(lac, tmp_path, name, file):
    folder = lac.save(tmp_path / "model")
    if file != "model.json":
        (folder / file).write_bytes(b"x")
    entry = {"file": file, "bytes": 1, "sha256": sha256(b"x").hexdigest()}
    rewrite(folder, lambda d: d["files"].update({name: entry}))
    with pytest.raises(ModelFileError, match="not a file that save writes"):
        sl.load(folder)


@pytest.mark.parametrize("device", ["cuda:99", "nowhere", "mps:7"])
def test_a_device_that_is_not_available_is_no_error_of_the_file(lac, tmp_path, device):
    folder = lac.save(tmp_path / "model")
    with pytest.raises(ValueError, match=f"device = '{device}' is not available") as error:
        sl.load(folder, device=device)
    assert not isinstance(error.value, ModelFileError)


HOSTILE = "\x1b]0;title\x07\x1b[31mred\ud800\u202e"


@pytest.mark.parametrize("place", ["type", "library_version", "guarantee", "estimator", "method"])
def test_inspect_prints_no_control_characters(lac, tmp_path, place):
    folder = lac.save(tmp_path / "model")
    rewrite(folder, lambda document: document.update({place: HOSTILE}))
    shown = CliRunner().invoke(app, ["inspect", str(folder)])
    assert shown.exit_code == 0, shown.exception
    assert "\x1b" not in shown.output
    assert r"\x1b]0;title\x07" in shown.output


@pytest.mark.parametrize("place", ["classes", "data", "parameters"])
def test_inspect_prints_no_control_characters_of_lists(lac, tmp_path, place):
    folder = lac.save(tmp_path / "model")
    value = [HOSTILE] if place == "classes" else {HOSTILE: HOSTILE}
    rewrite(folder, lambda document: document.update({place: value}))
    shown = CliRunner().invoke(app, ["inspect", str(folder)])
    assert shown.exit_code == 0, shown.exception
    assert not set("\x1b\x07\u202e") & set(shown.output)


@pytest.mark.parametrize("place", ["type", "parameters", "classes", "guarantee", "data"])
@pytest.mark.parametrize("value", [None, 3, [[1]], {"a": {"b": []}}, "missing"])
def test_inspect_checks_the_description_of_a_model(lac, tmp_path, place, value):
    folder = lac.save(tmp_path / "model")
    rewrite(
        folder,
        lambda d: d.pop(place) if value == "missing" else d.update({place: value}),
    )
    with pytest.raises(ModelFileError, match=f"{place} is"):
        inspect(folder)
    shown = CliRunner().invoke(app, ["inspect", str(folder)])
    assert shown.exit_code == 1
    assert len(shown.output.splitlines()) == 1


def test_errors_that_quote_a_file_print_no_control_characters(lac, tmp_path):
    folder = lac.save(tmp_path / "model")
    rewrite(folder, lambda d: d.update(format_version=2, library_version=HOSTILE))
    with pytest.raises(ModelFileError, match=r"\\x1b") as error:
        sl.load(folder)
    assert not set("\x1b\x07\u202e\ud800") & set(str(error.value))
    shown = CliRunner().invoke(app, ["inspect", str(folder)])
    assert shown.exit_code == 1
    assert "\x1b" not in shown.output
