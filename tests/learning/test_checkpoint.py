"""Checkpoints: a resumed training run has the same result as one that was not interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from shortlist.learning import checkpoint as checkpoint_module
from shortlist.learning.checkpoint import Checkpoint, fingerprint
from shortlist.learning.networks import Residual, Stack, Standardize, perceptron, zero_last_layer
from shortlist.learning.settings import TrainingSettings, build_with_seed
from shortlist.learning.training import History, train

SETTINGS = TrainingSettings(learning_rate=0.01, batch_size=16, max_epochs=7, patience=2, seed=3)


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(120, 4, generator=generator)
    return x, (x[:, 0] + torch.randn(120, generator=generator) > 0).long()


def simple() -> nn.Module:
    return perceptron(4, 2, 8)


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))


def stack() -> nn.Module:
    return Stack(perceptron(4, 2, 8), 3)


def tied() -> nn.Module:
    shared = nn.Linear(4, 4)  # Tied weights share memory.
    return nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(4, 2))


def transposed() -> nn.Module:
    network = perceptron(4, 2, 8)  # The weights have another memory layout.
    network[0].weight = nn.Parameter(network[0].weight.detach().T.contiguous().T)
    return network


def half_used() -> nn.Module:
    class HalfUsed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.used(x)
            return out

    return HalfUsed()


def loss(outputs: Tensor, y: Tensor) -> Tensor:
    if outputs.ndim == 2:
        return nn.functional.cross_entropy(outputs, y)
    weights = (1.0, 0.3, 2.0)
    return torch.stack([w * loss(o, y) for o, w in zip(outputs, weights, strict=True)])


class Interrupted:
    """A loss that raises an error after a number of calls."""

    objective = staticmethod(loss)

    def __init__(self, after: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.remaining, self.error = after, error

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        self.remaining -= 1
        if self.remaining < 0:
            raise self.error("stop")
        return self.objective(outputs, y)


def fit(
    make: Callable[[], nn.Module] = simple,
    objective: Callable[..., Tensor] = loss,
    settings: TrainingSettings = SETTINGS,
    checkpoint: Path | None = None,
    identity: str = "",
) -> tuple[nn.Module, History]:
    network = build_with_seed(make, 0)
    x, y = data()
    members = ["a", "b", "c"] if isinstance(network, Stack) else None
    history = train(
        network,
        x,
        [y],
        objective,
        settings,
        members=members,
        checkpoint=checkpoint,
        identity=identity,
    )
    return network, history


def interrupt(path: Path, make: Callable[[], nn.Module] = simple, after: int = 30) -> bytes:
    """Interrupt a run in its fourth epoch (of seven batches and a validation); return the file."""
    with pytest.raises(KeyboardInterrupt):
        fit(make, Interrupted(after), checkpoint=path)
    return path.read_bytes()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("held_out", [0.1, 0.0])
@pytest.mark.parametrize("make", [simple, with_dropout, stack, tied, transposed, half_used])
def test_a_resumed_run_has_bit_for_bit_the_same_result(
    make: Callable[[], nn.Module], held_out: float, error: type[BaseException], tmp_path: Path
) -> None:
    path = tmp_path / "new folder" / "fit.ckpt"
    settings = replace(SETTINGS, validation_fraction=held_out)
    whole, history = fit(make, settings=settings)
    with pytest.raises(error, match="stop"):
        fit(make, Interrupted(30, error), settings, path)
    assert [p.name for p in path.parent.iterdir()] == ["fit.ckpt"]
    steps = Interrupted(10**6)
    resumed, resumed_history = fit(make, steps, settings, path)
    assert not list(path.parent.iterdir())  # The file is removed at the end.
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert resumed_history.loss == history.loss
    assert resumed_history.validation_loss == history.validation_loss
    assert resumed_history.best_epoch == history.best_epoch
    batches = 7 + 1 if held_out else 8
    assert (
        10**6 - steps.remaining == (len(history) - 30 // batches) * batches
    )  # The run was resumed.


@pytest.mark.parametrize("make", [simple, stack])
def test_the_best_weights_are_kept_after_an_interruption(
    make: Callable[[], nn.Module], tmp_path: Path
) -> None:
    path = tmp_path / "fit.ckpt"
    settings = replace(
        SETTINGS, learning_rate=0.1, max_epochs=40, patience=4, validation_fraction=0.3
    )
    whole, history = fit(make, settings=settings)
    best = max(history.best_epoch)
    assert 0 < best < len(history) - 3  # Training stops early.
    batches = 6 + 1
    with pytest.raises(KeyboardInterrupt):
        fit(make, Interrupted((best + 3) * batches), settings, path)
    resumed, resumed_history = fit(make, settings=settings, checkpoint=path)
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
    assert resumed_history.best_epoch == history.best_epoch
    assert len(resumed_history) == len(history)


def test_a_run_can_be_interrupted_repeatedly(tmp_path: Path) -> None:
    path = tmp_path / "fit.ckpt"
    whole, history = fit()
    for _ in range(3):
        interrupt(path, after=12)
    resumed, resumed_history = fit(checkpoint=path)
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
    assert resumed_history.loss == history.loss


def test_a_checkpoint_does_not_change_the_result(tmp_path: Path) -> None:
    plain, history = fit()
    kept, kept_history = fit(checkpoint=tmp_path / "fit.ckpt")
    for a, b in zip(plain.parameters(), kept.parameters(), strict=True):
        assert torch.equal(a, b)
    assert kept_history.loss == history.loss
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        {"settings": replace(SETTINGS, seed=4)},
        {"settings": replace(SETTINGS, learning_rate=0.02)},
        {"identity": "another lambda"},
        {"make": lambda: perceptron(4, 2, 9)},
        {
            "make": lambda: nn.Sequential(
                *[nn.Tanh() if i % 2 else m for i, m in enumerate(simple())]
            )
        },
    ],
)
def test_the_checkpoint_of_another_run_is_rejected_and_kept(
    change: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "fit.ckpt"
    before = interrupt(path)
    with pytest.raises(ValueError, match=r"fit\.ckpt.*another training.*remove it"):
        fit(checkpoint=path, **change)  # type: ignore[arg-type]
    assert path.read_bytes() == before


@pytest.mark.parametrize("which", ["inputs", "targets"])
@pytest.mark.parametrize("row", [0, 61, 119])
def test_a_checkpoint_is_rejected_if_one_row_of_the_data_differs(
    which: str, row: int, tmp_path: Path
) -> None:
    path = tmp_path / "fit.ckpt"
    before = interrupt(path)
    x, y = data()
    if which == "inputs":
        x[row, 1] += 1e-3
    else:
        y[row] = 1 - y[row]
    with pytest.raises(ValueError, match="another training"):
        train(build_with_seed(simple, 0), x, [y], loss, SETTINGS, checkpoint=path)
    assert path.read_bytes() == before


FOLDS = torch.arange(120) % 3


def cross_fit(
    path: Path | None,
    objective: Callable[..., Tensor],
    folds: Tensor = FOLDS,
    dropout: float = 0.4,
) -> tuple[nn.Module, History]:
    """Train with averaged weights, several inputs, dropout and folds."""
    x, y = data()

    def build() -> Residual:
        each = [zero_last_layer(perceptron(4, 2, 8, 1, dropout=dropout)) for _ in range(3)]
        return Residual(Standardize.from_data(x), Stack(each))

    network = build_with_seed(build, 0)
    settings = replace(
        SETTINGS, ema_decay=0.95, decoupled_weight_decay=True, max_epochs=12, learning_rate=0.1
    )
    history = train(
        network,
        [x, 0.1 * x[:, :2]],
        [y],
        objective,
        settings,
        members=["a", "b", "c"],
        folds=folds,
        checkpoint=path,
    )
    return network, history


def by_row(outputs: Tensor, y: Tensor) -> Tensor:
    each = y.expand(outputs.shape[:2])  # Members share the rows or have their own.
    losses = [
        nn.functional.cross_entropy(o, t, reduction="none")
        for o, t in zip(outputs, each, strict=True)
    ]
    return torch.stack(losses)


class InterruptedByRow(Interrupted):
    objective = staticmethod(by_row)


@pytest.mark.parametrize("epochs", [1, 3, 5])
def test_a_resumed_cross_fit_has_bit_for_bit_the_same_result(epochs: int, tmp_path: Path) -> None:
    path = tmp_path / "fit.ckpt"
    whole, history = cross_fit(None, by_row)
    calls = 8 + 1  # Eight batches and a validation.
    assert len(history) > 5
    with pytest.raises(KeyboardInterrupt):
        cross_fit(path, InterruptedByRow(epochs * calls + 4))
    steps = InterruptedByRow(10**6)
    resumed, resumed_history = cross_fit(path, steps)
    assert 10**6 - steps.remaining == (len(history) - epochs) * calls
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert resumed_history.loss == history.loss
    assert resumed_history.validation_loss == history.validation_loss
    assert resumed_history.best_epoch == history.best_epoch


@pytest.mark.parametrize("change", [{"folds": (torch.arange(120) + 1) % 3}, {"dropout": 0.1}])
def test_a_checkpoint_with_other_folds_or_dropout_is_rejected(
    change: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "fit.ckpt"
    with pytest.raises(KeyboardInterrupt):
        cross_fit(path, InterruptedByRow(20))
    with pytest.raises(ValueError, match="another training"):
        cross_fit(path, by_row, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", ["truncated", "text", "empty", "header", "foreign"])
def test_a_damaged_or_foreign_file_is_rejected_and_kept(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "fit.ckpt"
    before = interrupt(path)
    match damage:
        case "truncated":
            path.write_bytes(before[: len(before) // 2])
        case "text":
            path.write_text("another file")
        case "empty":
            path.write_bytes(b"")
        case "header":
            path.write_bytes(b"\xff" * 8 + before[8:])
        case "foreign":  # A file of weights.
            save_file({"weight": torch.zeros(3)}, path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r"fit\.ckpt.*remove it") as caught:
        fit(checkpoint=path)
    assert ("is not a checkpoint" in str(caught.value)) == (damage != "foreign")
    assert path.read_bytes() == content


def test_a_folder_is_not_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a checkpoint"):
        fit(checkpoint=tmp_path)


def test_a_failed_write_keeps_the_last_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fit.ckpt"
    before = interrupt(path)

    def half(tensors: object, filename: Path, metadata: object) -> None:
        Path(filename).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint_module, "save_file", half)
    with pytest.raises(OSError, match="disk full"):
        fit(checkpoint=path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    resumed, _ = fit(checkpoint=path)
    for a, b in zip(fit()[0].parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_first_write_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(tensors: object, filename: Path, metadata: object) -> None:
        Path(filename).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint_module, "save_file", half)
    with pytest.raises(KeyboardInterrupt):
        fit(checkpoint=tmp_path / "fit.ckpt")
    assert not list(tmp_path.iterdir())


def test_the_file_contains_only_numbers_and_json(tmp_path: Path) -> None:
    content = interrupt(tmp_path / "fit.ckpt")
    length = int.from_bytes(content[:8], "little")  # A JSON header is followed by numbers.
    header = json.loads(content[8 : 8 + length])
    assert {entry["dtype"] for name, entry in header.items() if name != "__metadata__"} <= {
        "F32",
        "F64",
        "I64",
    }
    assert set(header["__metadata__"]) == {"fingerprint", "notes"}


def test_a_checkpoint_loads_what_was_saved(tmp_path: Path) -> None:
    store = Checkpoint(tmp_path / "a" / "b", "print")
    assert store.load(torch.device("cpu")) is None
    tensors = {
        "view": torch.arange(6).view(2, 3).T,
        "scalar": torch.tensor(2.5),
        "half": torch.ones(2, dtype=torch.float16),
    }
    store.save(tensors, {"epoch": 3, "loss": [[float("nan"), 1.5]]})
    result = store.load(torch.device("cpu"))
    assert result is not None
    assert all(torch.equal(result[0][name], value) for name, value in tensors.items())
    assert result[1]["epoch"] == 3
    assert str(result[1]["loss"]) == "[[nan, 1.5]]"
    store.remove()
    store.remove()
    assert store.load(torch.device("cpu")) is None


def test_a_fingerprint_depends_on_shapes_types_names_and_values() -> None:
    x = torch.arange(12.0)
    digests = [
        fingerprint("", {"x": x}),
        fingerprint("note", {"x": x}),
        fingerprint("", {"y": x}),
        fingerprint("", {"x": x.view(3, 4)}),
        fingerprint("", {"x": x.double()}),
        fingerprint("", {"x": x + 1e-6}),
        fingerprint("", {"x": torch.tensor(0.0)}),
        fingerprint("", {"x": x > 3}),
        fingerprint("", {"x": x.to(torch.bfloat16)}),
        fingerprint("", {}),
    ]
    assert len(set(digests)) == len(digests)
    assert fingerprint("", {"x": x}) == digests[0] == fingerprint("", {"x": x.flip(0).flip(0)})
