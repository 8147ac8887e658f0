"""What is saved comes back the same; what is on disk is whole; what is foreign is refused."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from tamper import rewrite
from torch import nn
from zoo import FIT, FIXTURES, NEW, NEW_X, SCORES, TEST, ZOO, X, Y

import shortlist as sl
from shortlist.io import persistence
from shortlist.io.formats import FITTED
from shortlist.io.models import inspect
from shortlist.io.persistence import ModelFileError

HERE = Path(__file__).parent
MODELS = HERE / "models"


@pytest.fixture(scope="module")
def zoo() -> dict[str, object]:
    return {name: entry.make() for name, entry in ZOO.items()}


@pytest.fixture(scope="module")
def lac() -> sl.SplitConformal:
    return sl.SplitConformal("lac").fit(SCORES, Y)


def equal(a: object, b: object) -> bool:
    if isinstance(a, tuple):
        return all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else a == b


# Round trips


def test_every_kind_of_model_is_in_the_zoo(zoo):
    assert {type(model) for model in zoo.values()} == set(FITTED)


@pytest.mark.parametrize("name", ZOO)
def test_what_comes_back_predicts_the_same(zoo, name, tmp_path):
    model = zoo[name]
    before = ZOO[name].ask(model)
    folder = model.save(tmp_path / "new" / "model")
    again = sl.load(folder)
    assert type(again) is type(model)
    assert equal(ZOO[name].ask(again), before)
    assert equal(ZOO[name].ask(model), before)  # saving changed nothing
    assert np.array_equal(again.classes_, model.classes_)
    assert again.classes_.dtype == model.classes_.dtype
    # And so does what that one saves.
    assert equal(ZOO[name].ask(sl.load(again.save(tmp_path / "third"))), before)


@pytest.mark.parametrize("name", [n for n in ZOO if not n.startswith("classifier")])
def test_parameters_come_back_so_that_it_can_be_cloned_and_fitted_again(zoo, name, tmp_path):
    model = zoo[name]
    again = sl.load(model.save(tmp_path / "model"))
    mine, theirs = model.get_params(), again.get_params()
    assert {k: repr(v) for k, v in mine.items()} == {k: repr(v) for k, v in theirs.items()}
    clone(again)


def test_a_loaded_model_goes_on_calibrates_and_draws(zoo, tmp_path):
    model = sl.load(zoo["shortlister"].save(tmp_path / "model"))
    curve = model.frontier(NEW, TEST.y, NEW_X)
    assert np.array_equal(
        curve.mean_size, zoo["shortlister"].frontier(NEW, TEST.y, NEW_X).mean_size
    )
    model.calibrate(NEW, TEST.y, NEW_X)
    assert "300 calibration rows" in model.predict_set(NEW, NEW_X, accuracy=0.9).guarantee
    with pytest.warns(UserWarning, match="among those that fit learned"):
        model.calibrate(SCORES, Y, X)  # it remembers them
    p = sl.load(zoo["raps"].save(tmp_path / "raps")).p_values(NEW)
    assert np.array_equal(p, zoo["raps"].p_values(NEW))


def test_out_of_fold_scores_come_back(tmp_path):
    model = sl.Shortlister(calibration=None, rescore=True, max_epochs=2, width=8, folds=2)
    model.fit(SCORES, Y, X)
    again = sl.load(model.save(tmp_path / "model"))
    one, two = (m.out_of_fold(SCORES, X).top(6)[1] for m in (model, again))
    assert torch.equal(one, two)


@pytest.mark.parametrize(
    "classes",
    [
        ["ä", "", "日本", 'q"\\', "</script>", "\ud800"],
        [3, 1, 4, 15, 9, 26],
        [("a", 1), ("a", 2), ("b", 1), "c", 5, None],
        ["no", "yes", "x", 2.5, -1, ""],
        np.array(["2020-01-01", "2021-01-01", "2022-01-01", "2023-01-01", "2024-01-01", "NaT"],
                 dtype="datetime64[D]"),
    ],
    ids=["text", "numbers", "mixed", "odd", "dates"],
)  # fmt: skip
def test_classes_of_any_kind(classes, tmp_path):
    values = list(classes)
    model = sl.SplitConformal("lac").fit(SCORES, [values[i] for i in Y], classes=values)
    again = sl.load(model.save(tmp_path / "model"))
    assert again.predict_set(NEW).labels() == model.predict_set(NEW).labels()
    assert again._classes == model._classes


def test_a_cost_that_is_a_function_becomes_its_table(tmp_path):
    model = sl.Shortlister(cost=lambda size: size**0.5).fit(SCORES, Y)
    again = sl.load(model.save(tmp_path / "model"))
    assert again.cost == pytest.approx(np.sqrt([1, 2, 3, 4, 5, 6]).tolist())
    for point in ({"accuracy": 0.9}, {"cost_weight": 0.1}):
        assert again.predict_set(NEW, **point).labels() == model.predict_set(NEW, **point).labels()


class Doubled(nn.Module):
    def forward(self, scores, costs):
        return 2 * (scores * costs).sum(-1)


@pytest.mark.parametrize(
    ("own", "default"),
    [
        ({"loss": Doubled()}, {"loss": "log"}),
        ({"network": lambda n, k: nn.Sequential(nn.Linear(n, k))}, {"network": None}),
    ],
    ids=["loss", "network"],
)
def test_code_that_only_a_fit_needs_is_left_out_with_a_warning(own, default, tmp_path):
    model = sl.CardinalitySelector(sl.TopK([1, 2, 4]), max_epochs=2, **own).fit(SCORES, Y, X)
    with pytest.warns(UserWarning, match=f"{next(iter(own))} = .* is code"):
        model.save(tmp_path / "model")
    again = sl.load(tmp_path / "model")
    assert {k: again.get_params()[k] for k in default} == default
    assert again.predict_set(NEW, NEW_X).labels() == model.predict_set(NEW, NEW_X).labels()


class Squared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 3)

    def forward(self, x):
        return self.inner(x) ** 2


def test_code_that_prediction_needs_is_refused(tmp_path):
    model = sl.CardinalitySelector(sl.TopK([1, 2, 4]), max_epochs=2, network=Squared())
    model.fit(SCORES, Y, X)
    with pytest.raises(ValueError, match=r"cannot be saved.*Squared"):
        model.save(tmp_path / "model")
    clf = sl.ShortlistClassifier(features=lambda x: x, method=sl.SplitConformal()).fit(FIT.x, FIT.y)
    with pytest.raises(ValueError, match="features is a function"):
        clf.save(tmp_path / "model")
    custom = sl.Custom(1, sizes=None, hits=None, members=None)
    fixed = sl.FixedSelector(sl.TopK([1])).fit(SCORES, Y)
    fixed.family_ = custom
    with pytest.raises(ValueError, match="Custom"):
        fixed.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_fitted_or_not_ours(tmp_path):
    with pytest.raises(NotFittedError, match="fit it, then save it"):
        sl.Shortlister().save(tmp_path / "model")
    with pytest.raises(ValueError, match="LogisticRegression cannot be saved"):
        sl.save(LogisticRegression(), tmp_path / "model")


def test_models_stay_picklable_too(zoo):
    for name, model in zoo.items():
        again = pickle.loads(pickle.dumps(model))
        assert equal(ZOO[name].ask(again), ZOO[name].ask(model)), name


# scikit-learn inside


class Mine(ClassifierMixin, BaseEstimator):
    """A classifier of the user's own."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.tile(np.linspace(1, 2, len(self.classes_)) / 9, (len(X), 1))


def test_types_of_the_user_are_made_only_if_named(tmp_path):
    clf = sl.ShortlistClassifier(Mine(), method=sl.SplitConformal("lac")).fit(FIT.x, FIT.y)
    clf.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"trusted=\['test_saving.Mine'\]"):
        sl.load(tmp_path / "model")
    again = sl.load(tmp_path / "model", trusted=["test_saving.Mine"])
    assert again.predict_set(NEW_X).labels() == clf.predict_set(NEW_X).labels()


def test_the_estimator_given_comes_back_beside_the_fitted_one(zoo, tmp_path):
    again = sl.load(zoo["classifier"].save(tmp_path / "model"))
    assert repr(again.estimator) == repr(zoo["classifier"].estimator)
    assert not hasattr(again.estimator.steps[-1][1], "coef_")
    again.fit(FIT.x, FIT.y)


# What the folder holds


def test_the_document_tells_what_is_inside(zoo, tmp_path):
    zoo["shortlister"].save(tmp_path / "model")
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    assert document["format"] == "shortlist model"
    assert document["format_version"] == 1
    assert document["library_version"] == sl.__version__
    assert document["type"] == "Shortlister"
    assert document["parameters"]["width"] == 8
    assert document["classes"] == ["0", "1", "2", "3", "4", "5"]
    assert "100 calibration rows" in document["guarantee"]
    assert document["data"]["distinct_rows"] == 300
    assert set(os.listdir(tmp_path / "model")) == {"model.json", "weights.safetensors"}
    about = inspect(tmp_path / "model")
    assert about["type"] == "Shortlister"
    assert "state" not in about
    total = sum(f.stat().st_size for f in (tmp_path / "model").glob("*.safetensors"))
    assert about["bytes"] == total


def test_the_fingerprint_is_that_of_the_rows(tmp_path):
    prints = []
    for i, scores in enumerate((SCORES, SCORES, SCORES[::-1])):
        y = Y if i < 2 else Y[::-1]
        model = sl.SplitConformal("lac", random_state=i, calibration=None).fit(scores, y)
        prints.append(inspect(model.save(tmp_path / str(i)))["data"]["fingerprint"])
    assert prints[0] == prints[1] == prints[2]  # the same rows, whatever their order
    other = sl.SplitConformal("lac", calibration=None).fit(SCORES[1:], Y[1:])
    assert inspect(other.save(tmp_path / "other"))["data"]["fingerprint"] != prints[0]


def test_nothing_is_overwritten_unasked(lac, tmp_path):
    lac.save(tmp_path / "model")
    before = (tmp_path / "model" / "model.json").read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        lac.save(tmp_path / "model")
    assert (tmp_path / "model" / "model.json").read_bytes() == before
    other = sl.SplitConformal("aps").fit(SCORES, Y)
    other.save(tmp_path / "model", overwrite=True)
    assert sl.load(tmp_path / "model").score == "aps"
    assert len(list((tmp_path / "model").iterdir())) == 2  # the old weights are gone
    stranger = tmp_path / "photos"
    stranger.mkdir()
    (stranger / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(FileExistsError, match="left alone"):
        lac.save(stranger, overwrite=True)
    assert (stranger / "cat.jpg").read_bytes() == b"cat"
    notes = tmp_path / "model" / "notes.txt"
    notes.write_text("mine")
    lac.save(tmp_path / "model", overwrite=True)
    assert notes.read_text() == "mine"


def test_no_trace_is_left_of_a_save_that_fails(lac, tmp_path, monkeypatch):
    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(persistence.os, "rename", fails)
    with pytest.raises(OSError, match="disk full"):
        lac.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# Models of this version load for ever


@pytest.mark.parametrize("name", FIXTURES)
def test_models_that_were_written_once_load_for_ever(name):
    """To add one: `python tests/saving/keep.py`. Never change one that is there."""
    for folder in sorted(MODELS.glob(f"v*/{name}")):
        model = sl.load(folder)
        told = json.loads((folder.parent / f"{name}.json").read_text())
        found = json.loads(json.dumps(ZOO[name].ask(model), default=lambda a: a.tolist()))
        assert found[:1] == told[:1], folder
    assert list(MODELS.glob(f"v*/{name}"))


# What is wrong with a file


def test_a_file_that_was_changed_is_told_by_its_checksum(lac, tmp_path):
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
        (lambda d: d.update(format="other"), "not that of a shortlist model"),
        (lambda d: d.pop("files") and d.update(files=[]), "lists no files"),
        (lambda d: d.update(state=None), "holds no model"),
        (lambda d: d.update(state={"$": "Shell", "command": "id"}), "'Shell', which this version"),
        (lambda d: d.update(state={"$": "Classes", "n": 3, "values": None}), "holds no model"),
        (lambda d: d["state"].pop("fitted"), "SplitConformal lacks 'fitted'"),
        (lambda d: d["state"].update(fitted=None), "not fitted"),
        (lambda d: d["state"]["parameters"]["of"].update(magic=1), "magic"),
        (lambda d: d["state"]["fitted"]["of"].pop("score_"), "lacks 'score_'"),
        (lambda d: d["state"]["fitted"]["of"].update(_classes="x"), "_classes is .x., not Classes"),
        (lambda d: d["state"]["fitted"]["of"]["_classes"].update(n={"$": "float", "value": "1"}),
         "a float is '1'"),
        (lambda d: d["files"]["weights.safetensors"].update(file="../../etc/passwd"), "outside"),
        (lambda d: d["files"]["weights.safetensors"].update(file="model.json"), "bytes long"),
        (lambda d: d["files"]["weights.safetensors"].update(file=7), "without a file"),
        (lambda d: [], "not that of a shortlist model"),
    ],
)  # fmt: skip
def test_documents_that_are_wrong_say_why(lac, tmp_path, change, words):
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


def test_weights_without_what_the_document_needs(lac, tmp_path):
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


def test_200_damaged_and_hostile_models_are_refused_in_one_line(zoo, tmp_path):
    """Bytes flipped, cut off, doubled, swapped between models; values of the document replaced by
    hostile ones with a right checksum. None is loaded as if nothing were, none crashes."""
    rng = random.Random(0)
    names = ["raps", "shortlister", "path", "classifier"]
    folders = {name: zoo[name].save(tmp_path / name) for name in names}
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
        if why is None:  # a value was replaced by one that is fine, such as another number
            assert i % 2 == 0
        else:
            assert "\n" not in why
            assert len(why) < 600
        shutil.rmtree(copy)
    assert refused > 150


def reason(folder: Path) -> str | None:
    """Why a model is refused; None if it is not. Anything but a ValueError is a crash."""
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


def test_a_hostile_pickle_in_place_of_the_classifier_is_not_run(zoo, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'owned'}",)

    zoo["classifier"].save(tmp_path / "model")
    (tmp_path / "model" / "estimator.skops").write_bytes(pickle.dumps(Evil()))
    data = (tmp_path / "model" / "estimator.skops").read_bytes()
    own = {"file": "estimator.skops", "bytes": len(data),
           "sha256": sha256(data).hexdigest()}  # fmt: skip
    rewrite(tmp_path / "model", lambda d: d["files"].update({"estimator.skops": own}))
    with pytest.raises(ModelFileError, match="the classifier cannot be read"):
        sl.load(tmp_path / "model")
    assert not (tmp_path / "owned").exists()


# Killed while saving

SAVER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from zoo import SCORES, Y
import shortlist as sl
models = [sl.SplitConformal(s).fit(SCORES, Y) for s in ("lac", "aps")]
print("ready", flush=True)
i = 0
while True:
    models[i % 2].save(sys.argv[2], overwrite=True)
    i += 1
"""


@pytest.mark.parametrize("times", [3, pytest.param(50, marks=pytest.mark.study)])
def test_a_save_that_is_killed_leaves_the_old_model_or_the_new_one(times, tmp_path):
    rng = random.Random(1)
    folder = tmp_path / "model"
    sl.SplitConformal("lac").fit(SCORES, Y).save(folder)
    for _ in range(times):
        command = [sys.executable, "-c", SAVER, str(HERE), str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.005, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert sl.load(folder).score in ("lac", "aps")
    sl.SplitConformal("lac").fit(SCORES, Y).save(folder, overwrite=True)
    assert len(list(folder.iterdir())) == 2  # what the killed ones left is swept up
