"""Processes that learn together, on Ray Train, and the state that it keeps for them."""

from __future__ import annotations

import json
import os
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import load, save
from torch import Tensor

from shortlist.learning.process_group import ProcessGroup, SingleProcess
from shortlist.predictors import SetPredictor

Work: TypeAlias = Callable[[SingleProcess], SetPredictor]
"""What each process does, as one of a group."""
MODEL, STAGES = "model.pickle", "stages"
EVERY = 5.0
"""Seconds between checkpoints, at least."""


class TrainGroup(ProcessGroup):
    """The workers of a Ray Train run, which keeps the state of their trainings."""

    def __init__(self, every: float) -> None:
        import ray.train

        super().__init__()
        self.every = every
        self.stages: dict[str, bytes] = {}
        self.saved = time.monotonic()
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                for file in Path(folder, STAGES).glob("*"):
                    self.stages[file.name] = file.read_bytes()

    def store(self, name: str) -> TrainStore:
        return TrainStore(self, name.replace(" ", "-").replace("/", "-"))

    def keep(self, name: str, state: bytes) -> None:
        """Keep the state of a training, if it is time to; all processes at once."""
        import ray.train

        self.stages[name] = state
        if not self.broadcast(time.monotonic() - self.saved > self.every):
            return
        self.saved = time.monotonic()
        with tempfile.TemporaryDirectory() if not self.rank else nullcontext("") as folder:
            checkpoint = None
            if not self.rank:
                Path(folder, STAGES).mkdir()
                for stage, held in self.stages.items():
                    Path(folder, STAGES, stage).write_bytes(held)
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"stages": len(self.stages)}, checkpoint=checkpoint)


class TrainStore:
    """The state of one training in the checkpoints of its run."""

    def __init__(self, group: TrainGroup, name: str) -> None:
        self.group, self.name = group, name

    def load(self, device: torch.device) -> tuple[dict[str, Tensor], dict[str, object]] | None:
        held = self.group.stages.get(self.name)
        if held is None:
            return None
        tensors = {name: value.to(device) for name, value in load(held).items()}
        notes = bytes(tensors.pop("notes").cpu().numpy()).decode()
        return tensors, json.loads(notes)

    def save(self, tensors: dict[str, Tensor], notes: dict[str, object]) -> None:
        copies = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}
        text = torch.frombuffer(bytearray(json.dumps(notes).encode()), dtype=torch.uint8)
        self.group.keep(self.name, save({**copies, "notes": text}))

    def remove(self) -> None:
        """It stays, so that what comes after can begin where this ended."""


def _run(config: dict[str, Any]) -> None:
    """What each worker of Ray Train does."""
    import ray.train

    work: Work = pickle.loads(config["work"])
    torch.set_num_threads(config["threads"])
    group = TrainGroup(config["every"])
    try:
        found: object = work(group)
    except (ValueError, FloatingPointError) as error:  # in all of them alike: nothing to try again
        found = f"{type(error).__name__}: {error}"
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if not group.rank:
            Path(folder, MODEL).write_bytes(pickle.dumps(found))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report({"done": True}, checkpoint=checkpoint)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C is `KeyboardInterrupt`, as everywhere: at it Ray ends the process, later too."""
    here = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None
    finally:
        if here and before is not None:  # it is one of Python's
            signal.signal(signal.SIGINT, before)


def trained(
    work: Work,
    *,
    workers: int,
    threads: int,
    use_gpu: bool,
    storage: str | os.PathLike[str] | None,
    max_failures: int,
) -> SetPredictor:
    """The model that the workers come to."""
    import ray
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    packed: bytes = ray.cloudpickle.dumps(work)  # type: ignore[no-untyped-call]
    needs = {"CPU": float(threads)} | ({"GPU": 1.0} if use_gpu else {})
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        trainer = TorchTrainer(
            _run,
            train_loop_config={"work": packed, "threads": threads, "every": EVERY},
            torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if use_gpu else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=workers, use_gpu=use_gpu, resources_per_worker=needs
            ),
            run_config=RunConfig(
                name=f"shortlist-{time.time_ns()}",
                storage_path=os.fspath(folder if storage is None else storage),
                failure_config=FailureConfig(max_failures=max_failures),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )
        with interruptible():
            result = trainer.fit()
        assert result.checkpoint is not None
        with result.checkpoint.as_directory() as held:
            found = pickle.loads(Path(held, MODEL).read_bytes())
    if isinstance(found, str):
        kind, _, words = found.partition(": ")
        raise (FloatingPointError if kind == "FloatingPointError" else ValueError)(words)
    assert isinstance(found, SetPredictor)
    return found
