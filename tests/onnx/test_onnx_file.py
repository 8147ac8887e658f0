"""Test the inputs, outputs and metadata of ONNX files, and the errors of the export."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import onnx
import pytest
import torch
from onnx_runs import CLASSES, FEATURES, FIT, candidates, data, run
from sklearn.exceptions import NotFittedError

import shortlist as sl
from shortlist.onnx import file as _file
from shortlist.onnx import graph as _graph
from shortlist.onnx import threshold_for


@pytest.fixture(scope="module")
def lac():
    scores, y, _ = data("logits").fit
    return sl.SplitConformal("lac").fit(scores, y)


@pytest.fixture(scope="module")
def shortlister():
    return sl.Shortlister(max_epochs=1, folds=2, width=8, rescore=True, learn_sizes=True).fit(
        *data("logits").fit
    )


@pytest.fixture(scope="module")
def path_of_selectors():
    return sl.CardinalityPath(
        sl.TopK([1, 2]), cost_weights=[0.5, 0.1], inputs="scores", max_epochs=1
    ).fit(*data("logits").fit)


def interface(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)

    def described(values):
        return {
            v.name: (
                v.type.tensor_type.elem_type,
                [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim],
            )
            for v in values
        }

    metadata = {prop.key: prop.value for prop in model.metadata_props}
    return described(model.graph.input), described(model.graph.output), metadata, model


F32, F64, INT = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64


def test_inputs_outputs_and_metadata_of_a_shortlister(shortlister, tmp_path):
    path = shortlister.export_onnx(tmp_path / "new" / "model.onnx", accuracy=0.9, delta=0.1)
    assert path == tmp_path / "new" / "model.onnx"
    assert [p.name for p in path.parent.iterdir()] == ["model.onnx"]
    inputs, outputs, metadata, model = interface(path)
    assert inputs == {"scores": (F32, ["rows", CLASSES]), "features": (F32, ["rows", FEATURES])}
    assert outputs == {
        "labels": (INT, ["rows", CLASSES]),
        "sizes": (INT, ["rows"]),
        "index": (INT, ["rows"]),
    }
    scores, x = data("logits").new
    sets = shortlister.predict_set(scores, x, accuracy=0.9, delta=0.1)
    assert metadata["guarantee"] == str(sets.guarantee)
    assert json.loads(metadata["guarantee_fields"]) == {**asdict(sets.guarantee), "notes": []}
    assert json.loads(metadata["classes"]) == list(range(CLASSES))
    assert json.loads(metadata["operating_point"]) == {
        "accuracy": 0.9,
        "delta": 0.1,
        "threshold": threshold_for(shortlister, accuracy=0.9, delta=0.1),
    }
    assert metadata["model"] == "Shortlister"
    assert metadata["score_type"] == "logits"
    assert metadata["format"] == "shortlist-onnx-1"
    assert metadata["shortlist_version"] == sl.__version__ == model.producer_version
    assert (model.opset_import[0].version, model.ir_version) == (18, 10)
    assert {o.domain for o in model.opset_import} == {""}


def test_types_and_optional_inputs(lac, path_of_selectors, tmp_path):
    inputs, *_ = interface(lac.export_onnx(tmp_path / "1.onnx", dtype="float64"))
    assert inputs == {"scores": (F64, ["rows", CLASSES]), "threshold": (F64, [])}
    inputs, *_ = interface(path_of_selectors.export_onnx(tmp_path / "2.onnx"))
    assert inputs == {"scores": (F32, ["rows", CLASSES]), "member": (INT, [])}
    fit, _, _ = candidates("proba")
    with_candidates = sl.SplitConformal("aps", randomized=True).fit(fit, data("proba").y[:FIT])
    inputs, outputs, *_ = interface(with_candidates.export_onnx(tmp_path / "3.onnx", accuracy=0.5))
    assert inputs == {
        "candidates": (INT, ["rows", 5]),
        "scores": (F32, ["rows", 5]),
        "noise": (F64, ["rows"]),
    }
    assert outputs["labels"] == (INT, ["rows", 5])


def test_a_network_of_the_user_adds_no_functions_or_domains(tmp_path):
    model = sl.CardinalitySelector(
        sl.TopK([1, 2]),
        network=lambda i, o: torch.nn.Sequential(torch.nn.GELU(), torch.nn.Linear(i, o)),
        max_epochs=1,
    ).fit(*data("logits").fit)
    inputs, _, _, proto = interface(model.export_onnx(tmp_path / "m.onnx"))
    assert {o.domain for o in proto.opset_import} == {""}
    assert not proto.functions
    assert inputs["features"] == (F32, ["rows", FEATURES])


def test_labels_have_the_width_of_the_largest_set(tmp_path):
    scores, y, _ = data("logits").fit
    model = sl.FixedSelector(sl.TopK([1, 3]), 0).fit(scores, y)
    _, outputs, metadata, _ = interface(model.export_onnx(tmp_path / "m.onnx"))
    assert outputs["labels"] == (INT, ["rows", 3])
    assert json.loads(metadata["operating_point"]) == {"member": 0}
    assert metadata["guarantee"] == str(model.predict_set(scores).guarantee)


def test_features_that_no_stage_uses_are_not_an_input(tmp_path):
    model = sl.Shortlister(rescore=False, learn_sizes=False).fit(*data("logits").fit)
    inputs, *_ = interface(model.export_onnx(tmp_path / "m.onnx", accuracy=0.9))
    assert inputs.keys() == {"scores"}


def test_the_table_of_thresholds_is_what_predict_set_uses(lac, tmp_path):
    _, _, metadata, _ = interface(lac.export_onnx(tmp_path / "m.onnx"))
    assert json.loads(metadata["operating_point"]) == {"input": "threshold"}
    table = dict(json.loads(metadata["thresholds"]))
    assert {0.5, 0.9, 0.95, 0.99} <= table.keys()
    assert table[0.95] == threshold_for(lac, accuracy=0.95) == threshold_for(lac)
    assert all(np.diff(list(table.values())) <= 0)
    # 0.999 needs 999 calibration rows, and there are 1,800.
    assert 0.999 in table
    few = sl.SplitConformal("lac", temperature=None).fit(*(v[:50] for v in data("logits").fit[:2]))
    _, _, metadata, _ = interface(few.export_onnx(tmp_path / "few.onnx"))
    assert max(dict(json.loads(metadata["thresholds"]))) == 0.98


def test_a_threshold_as_an_input_without_a_guarantee(tmp_path):
    apart = sl.Shortlister(calibration=None, rescore=False, learn_sizes=False)
    apart.fit(*data("logits").fit)
    _, _, metadata, _ = interface(apart.export_onnx(tmp_path / "1.onnx"))
    assert json.loads(metadata["thresholds"]) == []
    assert metadata["guarantee"] == "the threshold is an input; no accuracy is guaranteed"
    changed = sl.SplitConformal("lac").fit(*data("logits").fit[:2]).set_params(allow_empty=True)
    with pytest.raises(ValueError, match="allow_empty = True, but it was False at calibration"):
        changed.export_onnx(tmp_path / "2.onnx")


def test_a_path_with_one_set_has_no_input_member(tmp_path):
    alike = sl.CardinalityPath(sl.TopK([2]), cost_weights=[0.5, 0.1], inputs="scores")
    alike.fit(*data("logits").fit)
    path = alike.export_onnx(tmp_path / "m.onnx")
    inputs, _, metadata, _ = interface(path)
    assert inputs.keys() == {"scores"}
    assert json.loads(metadata["operating_point"]) == {}
    assert (run(path, {"scores": data("logits").new[0]})["sizes"] == 2).all()


def test_classes_of_any_type(tmp_path):
    scores, y, _ = data("logits").fit
    for i, (classes, expected) in enumerate(
        [
            ([f"é{k}" for k in range(CLASSES)], [f"é{k}" for k in range(CLASSES)]),
            ([*range(5, 5 + CLASSES)], [*range(5, 5 + CLASSES)]),
            ([("a", k) for k in range(CLASSES)], [["a", k] for k in range(CLASSES)]),
            (
                [frozenset({k}) for k in range(CLASSES)],
                [f"frozenset({{{k}}})" for k in range(CLASSES)],
            ),
        ]
    ):
        names = np.empty(CLASSES, dtype=object)
        names[:] = classes
        model = sl.SplitConformal("lac").fit(scores, names[y].tolist(), classes=classes)
        _, _, metadata, _ = interface(model.export_onnx(tmp_path / f"{i}.onnx", accuracy=0.9))
        assert json.loads(metadata["classes"]) == expected


def test_groups_and_weights_are_in_the_metadata(path_of_selectors, tmp_path):
    scores, y, _ = data("logits").fit
    model = sl.SplitConformal("lac", by="group").fit(scores, y, groups=np.array(["u", "v"])[y % 2])
    inputs, _, metadata, _ = interface(model.export_onnx(tmp_path / "g.onnx", accuracy=0.9))
    assert sorted(json.loads(metadata["groups"])) == ["u", "v"]
    assert json.loads(metadata["operating_point"]) == {"accuracy": 0.9, "by": "group"}
    assert inputs["groups"] == (INT, ["rows"])
    _, _, metadata, _ = interface(path_of_selectors.export_onnx(tmp_path / "p.onnx"))
    assert json.loads(metadata["cost_weights"]) == [0.5, 0.1]


def test_the_export_does_not_change_the_model(shortlister, tmp_path):
    scores, x = data("logits").new
    before = shortlister.predict_set(scores[:200], x[:200])
    first = shortlister.export_onnx(tmp_path / "1.onnx", accuracy=0.9).read_bytes()
    assert shortlister.export_onnx(tmp_path / "2.onnx", accuracy=0.9).read_bytes() == first
    assert shortlister.predict_set(scores[:200], x[:200]) == before


# Errors


def test_an_existing_file_is_kept_without_overwrite(lac, tmp_path):
    target = tmp_path / "model.onnx"
    target.write_text("mine")
    with pytest.raises(FileExistsError, match=r"model\.onnx' exists already; .*overwrite=True"):
        lac.export_onnx(target, accuracy=0.9)
    with pytest.raises(ValueError, match="accuracy must lie strictly between 0 and 1; got 2"):
        lac.export_onnx(target, accuracy=2, overwrite=True)
    assert target.read_text() == "mine"
    lac.export_onnx(target, accuracy=0.9, overwrite=True)
    assert run(target, {"scores": data("logits").new[0][:3]})["sizes"].shape == (3,)
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    with pytest.raises(ValueError, match=r"is a folder; name a file in it, such as model\.onnx"):
        lac.export_onnx(tmp_path, accuracy=0.9)


def test_missing_packages(lac, tmp_path, monkeypatch):
    monkeypatch.setattr(_graph, "find_spec", lambda name: None)
    with pytest.raises(
        ImportError, match=r"needs the package onnx.*pip install 'shortlist\[onnx\]'"
    ):
        lac.export_onnx(tmp_path / "m.onnx", accuracy=0.9)
    own = sl.CardinalitySelector(
        sl.TopK([1, 2]),
        network=torch.nn.Sequential(torch.nn.Linear(FEATURES, 2), torch.nn.Tanh()),
        max_epochs=1,
    ).fit(*data("logits").fit)
    monkeypatch.setattr(_graph, "find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(ImportError, match="needs the package onnxscript"):
        own.export_onnx(tmp_path / "m.onnx")
    lac.export_onnx(tmp_path / "m.onnx", accuracy=0.9)  # It does not need the package.


def test_packages_of_the_extra_are_imported_lazily():
    code = (
        "import sys, shortlist.onnx; "
        "print([m for m in ('onnx', 'onnxscript', 'onnxruntime') if m in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "[]"


def test_a_graph_that_is_larger_than_a_file_can_be(lac, tmp_path, monkeypatch):
    monkeypatch.setattr(_file, "MAX_BYTES", 10)
    with pytest.raises(ValueError, match=r"GB of weights, but an ONNX file has at most 2 GB"):
        lac.export_onnx(tmp_path / "m.onnx", accuracy=0.9)
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_not_fitted(tmp_path):
    with pytest.raises(NotFittedError, match="Shortlister is not fitted yet"):
        sl.Shortlister().export_onnx(tmp_path / "m.onnx")


def test_a_network_that_torch_cannot_export(tmp_path):
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(FEATURES, 2)

        def forward(self, x):
            return self.linear(x) * float(np.random.default_rng(0).random() + float(x.sum()) * 0)

    model = sl.CardinalitySelector(sl.TopK([1, 2]), network=Odd(), max_epochs=1)
    model.fit(*data("logits").fit)
    with pytest.raises(ValueError, match=r"torch.onnx cannot export the network Odd: "):
        model.export_onnx(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_invalid_operating_points(lac, shortlister, path_of_selectors, tmp_path):
    target = tmp_path / "m.onnx"
    scores, y, x = data("logits").fit
    with pytest.raises(ValueError, match=r"cost_weight = 0\.1, but the levels of this method"):
        lac.export_onnx(target, cost_weight=0.1)
    with pytest.raises(ValueError, match=r"accuracy = 0.9 and cost_weight = 0.1 were given"):
        shortlister.export_onnx(target, accuracy=0.9, cost_weight=0.1)
    with pytest.raises(ValueError, match=r"delta = 0.1 needs an accuracy; give accuracy"):
        shortlister.export_onnx(target, delta=0.1)
    with pytest.raises(ValueError, match="mean_size = 2: a CardinalityPath takes accuracy, delta"):
        path_of_selectors.export_onnx(target, mean_size=2)
    with pytest.raises(ValueError, match="can be guaranteed after calibrate"):
        path_of_selectors.export_onnx(target, accuracy=0.9)
    with pytest.raises(ValueError, match=r"trained for cost_weight = 0.3; use one of: 0.5, 0.1"):
        path_of_selectors.export_onnx(target, cost_weight=0.3)
    fixed = sl.FixedSelector().fit(scores, y)
    with pytest.raises(ValueError, match=r"accuracy = 0.9: a FixedSelector takes no operating poi"):
        fixed.export_onnx(target, accuracy=0.9)
    by_class = sl.SplitConformal("lac", by="class").fit(scores, y)
    with pytest.raises(ValueError, match="by = 'class' needs a threshold for each class, which"):
        by_class.export_onnx(target)
    with pytest.raises(ValueError, match="by = 'class' has a threshold for each class, not one"):
        threshold_for(by_class, accuracy=0.8)
    apart = sl.Shortlister(calibration=None, max_epochs=1, folds=2, width=8).fit(scores, y, x)
    with pytest.raises(ValueError, match="this model is not calibrated"):
        apart.export_onnx(target, accuracy=0.9)
    with pytest.raises(ValueError, match=r"accuracy = 0.99999 cannot be guaranteed"):
        lac.export_onnx(target, accuracy=0.99999)
    with pytest.raises(
        ValueError, match="dtype must be one of 'float32', 'float64'; got 'float16'"
    ):
        lac.export_onnx(target, dtype="float16")
    assert not list(tmp_path.iterdir())
    apart.export_onnx(target, cost_weight=0.1)  # A cost weight needs no calibration.


def test_the_number_of_candidates(lac, tmp_path):
    target = tmp_path / "m.onnx"
    with pytest.raises(ValueError, match="candidates = 5, but this SplitConformal learned from"):
        lac.export_onnx(target, accuracy=0.9, candidates=5)
    fit, _, _ = candidates("logits")
    _, y, x = data("logits").fit
    with_candidates = sl.SplitConformal("lac").fit(fit, y)
    with pytest.raises(ValueError, match="candidates = 3, but fit saw up to 5 in a row; give at"):
        with_candidates.export_onnx(target, accuracy=0.5, candidates=3)
    with pytest.raises(ValueError, match="candidates = 99 is more than the 12 classes"):
        with_candidates.export_onnx(target, accuracy=0.5, candidates=99)
    with pytest.raises(ValueError, match="candidates must be an integer of at least 1; got 0"):
        with_candidates.export_onnx(target, accuracy=0.5, candidates=0)
    learned = sl.Shortlister(max_epochs=1, folds=2, width=8, rescore=True).fit(fit, y, x)
    with pytest.raises(ValueError, match="candidates = 4, but fit saw up to 5 in a row"):
        learned.export_onnx(target, accuracy=0.5, candidates=4)
    inputs, *_ = interface(learned.export_onnx(target, accuracy=0.5, candidates=8))
    assert inputs["candidates"] == (INT, ["rows", 8])


def test_more_candidates_than_fit_saw(tmp_path):
    fit, new, feeds = candidates("logits")
    _, y, x = data("logits").fit
    new_x = data("logits").new[1]
    model = sl.Shortlister(max_epochs=1, folds=2, width=8, rescore=True, learn_sizes=True)
    model.fit(fit, y, x)
    path = model.export_onnx(tmp_path / "m.onnx", accuracy=0.5, candidates=8)
    longer = {
        "candidates": np.pad(feeds["candidates"], ((0, 0), (0, 3)), constant_values=-1),
        "scores": np.pad(feeds["scores"], ((0, 0), (0, 3)), constant_values=7.0),
        "features": new_x,
    }
    outputs, sets = run(path, longer), model.predict_set(new, new_x, accuracy=0.5)
    assert (outputs["sizes"] == sets.sizes).mean() > 0.999
