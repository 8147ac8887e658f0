"""Test that invalid values in a model file are refused by name, and that loaded models predict."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from tamper import replace_file, rewrite
from zoo import NEW, ZOO

import shortlist as sl
from shortlist.io.model_folder import WEIGHTS
from shortlist.io.models import inspect
from shortlist.io.persistence import ModelFileError

HERE = Path(__file__).parent
NAN = {"$": "float", "value": "nan"}

STAGES = "score_.fitted.of"
"""Path of the stages of a Shortlister in its file."""
RESCORER = f"{STAGES}.rescorer_"
"""Path of stage 1."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    names = ["raps", "shortlister", "path", "linear", "lac-by-group"]
    return {name: ZOO[name].fit_model().save(folder / name) for name in names}


def copied(folder: Path, copy: Path) -> Path:
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


@pytest.mark.parametrize(
    ("name", "place", "value", "words"),
    [
        ("raps", "_classes.n", 10**12, r"Classes\.n is 1000000000000, not an integer from 1"),
        ("raps", "_classes.n", 2**31, r"Classes\.n is 2147483648"),
        ("raps", "_classes.n", -1, r"Classes\.n is -1"),
        ("raps", "_classes.n", 6.0, r"Classes\.n is 6\.0"),
        ("raps", "_classes.n", True, r"Classes\.n is True"),
        ("raps", "_classes.n", 3, "a label that is no class"),
        ("raps", "temperature_", NAN, r"SplitConformal\.temperature_ is nan, not a finite number"),
        ("raps", "score_.fitted.of.k_reg_", 10**30, r"raps\.k_reg_ is 10"),
        ("raps", "score_.parameters.of.penalty", "x" * 1000, r"raps\.penalty is 'xxx"),
        ("raps", "score_.parameters.of.other", 1, r"raps has unknown fields: \['other'\]"),
        ("raps", "score_.fitted.of.levels", 1, r"raps has unknown fields: \['levels'\]"),
        ("raps", "score_.fitted.of", {}, r"the score 'raps' lacks \['k_reg_', 'penalty_'\]"),
        ("raps", "score_.name", "os.system", "'os.system', which is not registered"),
        ("raps", "score_.name", 3, r"SavedScore\.name is 3, not a string"),
        ("raps", "score_type_", "other", r"SplitConformal\.score_type_ is 'other', not 'logits'"),
        ("raps", "_calibration.schema.depth", 10**12, r"RowSchema\.depth is 1000000000000"),
        ("raps", "_calibration.schema", None, r"Calibration\.schema is None, not RowSchema"),
        ("raps", "_calibration.parameters", [], r"Calibration\.parameters is a list, not dict"),
        ("raps", "_calibration.n_choosing", 10**9, "1000000000 rows choose"),
        ("lac-by-group", "_calibration.group_names", [], "rows of unknown groups"),
        ("shortlister", f"{STAGES}.n_features_", 10**12, r"shortlister\.n_features_ is 1000000000"),
        ("shortlister", f"{STAGES}.n_features_", 7, "takes 5 features, but fit saw 7"),
        ("shortlister", "temperature_", 0, r"Shortlister\.temperature_ is 0, not a finite number"),
        ("shortlister", f"{STAGES}.buckets_.sizes", [1, 10**9], r"Buckets\.sizes is a list, not a"),
        ("shortlister", f"{STAGES}.buckets_.sizes", [2, 1], r"Buckets: sizes must grow"),
        ("shortlister", f"{STAGES}.rank_model_.depth", 10**12, r"RankModel\.depth is 10000000000"),
        ("shortlister", f"{RESCORER}.pool.exponents", [-1.0], r"Pool\.exponents is a list, not a"),
        ("shortlister", f"{RESCORER}.pool.exponents", [NAN], r"Pool\.exponents is a list, not a"),
        ("shortlister", f"{RESCORER}.pool.exponents", [1.0], "another number of exponents"),
        ("shortlister", f"{RESCORER}.opinions", [], r"Rescorer\.opinions is a list, not a"),
        ("shortlister", f"{RESCORER}.n_extra", -1, r"Rescorer\.n_extra is -1"),
        ("path", "_path_calibration.hits", [10**9, 1], "1000000000 hits in"),
        ("path", "_path_calibration.n_rows", 0, r"PathCalibration\.n_rows is 0"),
        ("path", "_weights", [0.5], "the network has 2 members"),
        ("path", "_inputs.score_depth", 10**9, r"SelectorInputs\.score_depth is 1000000000"),
        ("linear", "n_features_in_", 10**12, r"LinearClassifier\.n_features_in_ is 1000000000000"),
        ("linear", "n_features_in_", 4, "5 columns of coefficients"),
    ],
)
def test_an_invalid_value_is_refused_by_name(saved, tmp_path, name, place, value, words):
    folder = copied(saved[name], tmp_path / "model")
    *way, last = place.split(".")

    def change(document):
        here = document["state"]["fitted"]["of"]
        for key in way:
            here = here[key]
        here[last] = value

    rewrite(folder, change)
    with pytest.raises(ModelFileError, match=words) as error:
        sl.load(folder)
    assert len(str(error.value)) < 600
    inspect(folder)


@pytest.mark.parametrize(
    ("name", "tensor", "change", "words"),
    [
        ("raps", "_calibration.levels", lambda t: t[:-1], "labels of"),
        ("raps", "_calibration.levels", lambda t: t * torch.nan, r"Calibration\.levels is an arr"),
        ("raps", "_calibration.levels", lambda t: t[None], r"of shape \(1, "),
        ("raps", "_calibration.levels", lambda t: t.to(torch.bfloat16), "torch.bfloat16"),
        ("raps", "_calibration.y", lambda t: t + 10**12, "a label that is no class"),
        ("raps", "_calibration.y", lambda t: t.to(torch.float64), r"Calibration\.y is"),
        ("raps", "_calibration.thresholds", lambda t: t.flip(0), "thresholds must decrease"),
        ("raps", "_calibration.mean_sizes", lambda t: -1 - t, "a negative mean size"),
        ("lac-by-group", "_calibration.groups", lambda t: t + 5, "rows of unknown groups"),
        (
            "shortlister",
            "score_.fitted.rescorer_.opinions.*.index",
            lambda t: t.flip(0),
            "must be sorted",
        ),
        (
            "shortlister",
            "score_.fitted.rescorer_.index",
            lambda t: t - 9,
            "a label that is no class",
        ),
        (
            "shortlister",
            "score_.fitted.rescorer_.folds",
            lambda t: t + 9,
            "fewer networks than folds",
        ),
        (
            "shortlister",
            "_training_rows.keys",
            lambda t: t.to(torch.float32),
            r"TrainingRows\.keys is an array",
        ),
        ("linear", "coef_", lambda t: t[:, :-1], "4 columns of coefficients"),
        ("linear", "intercept_", lambda t: t / 0, r"LinearClassifier\.intercept_ is an array"),
    ],
)
def test_tensors_of_other_shapes_types_and_values_are_refused(
    saved, tmp_path, name, tensor, change, words
):
    folder = copied(saved[name], tmp_path / "model")
    tensors = load((folder / WEIGHTS).read_bytes())
    # An asterisk stands for the position of an opinion.
    (own, *_) = [key for key in tensors if fnmatch(key, f"*.fitted.{tensor}")]
    replace_file(folder, WEIGHTS, save({**tensors, own: change(tensors[own]).contiguous()}))
    with pytest.raises(ModelFileError, match=words):
        sl.load(folder)


def test_one_tensor_is_not_copied_many_times(saved, tmp_path):
    folder = copied(saved["raps"], tmp_path / "model")

    def change(document):
        calibration = document["state"]["fitted"]["of"]["_calibration"]
        calibration["thresholds"] = calibration["levels"]

    rewrite(folder, change)
    with pytest.raises(ModelFileError, match="is used for two values"):
        sl.load(folder)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("width", "x"), ("width", 10**12), ("cost", [[]]), ("inputs", 3), ("family", "x"),
     ("cost_weight", NAN), ("score_type", ""), ("learning_rate", [1])],
)  # fmt: skip
def test_an_invalid_parameter_is_refused_by_name(saved, tmp_path, parameter, value):
    folder = copied(saved["path"], tmp_path / "model")
    rewrite(folder, lambda d: d["state"]["parameters"]["of"].update({parameter: value}))
    with pytest.raises(ModelFileError, match=rf"CardinalityPath\.{parameter} is"):
        sl.load(folder)


def test_a_model_without_its_calibration_still_says_so(saved, tmp_path):
    folder = copied(saved["raps"], tmp_path / "model")
    rewrite(folder, lambda d: d["state"]["fitted"]["of"].update(_calibration=None))
    with pytest.raises(ValueError, match="is not calibrated"):
        sl.load(folder).predict_set(NEW)


def test_labels_of_any_type_load(tmp_path):
    names = [("a", 1), "b", None, 2.5, True, -3]
    model = sl.SplitConformal("lac").fit(NEW, [names[i] for i in np.arange(300) % 6], classes=names)
    assert sl.load(model.save(tmp_path / "model")).classes_.tolist() == names


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mutations", [140, pytest.param(10_000, marks=pytest.mark.study)])
def test_a_mutated_model_is_refused_or_predicts(tmp_path, mutations):
    """Values of all types of models are replaced by hostile ones with valid checksums. No load and
    no prediction raises another error than a ValueError, needs a gigabyte or takes seconds.
    """
    command = [sys.executable, str(HERE / "state_fuzz.py"), str(tmp_path), str(mutations)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=6000)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert outcomes["mutations"] >= mutations
    assert outcomes["wrong"] == []
    assert outcomes["refused"] > 0.5 * mutations
    assert outcomes["as before"] > 0.1 * mutations
