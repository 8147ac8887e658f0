"""Data-parallel training on Ray Train, with checkpoints from which it is resumed."""

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

WorkerTask: TypeAlias = Callable[[SingleProcess], SetPredictor]
"""What each worker runs, as a member of a process group."""
MODEL_FILE, STATES_FOLDER = "model.pickle", "states"
CHECKPOINT_SECONDS = 5.0
"""Minimum time between two checkpoints."""


class TrainGroup(ProcessGroup):
    """The workers of a Ray Train run, whose checkpoints keep the states of its trainings.

    Parameters
    ----------
    checkpoint_seconds : float
        Minimum time between two checkpoints.
    """

    def __init__(self, checkpoint_seconds: float) -> None:
        import ray.train

        super().__init__()
        self.checkpoint_seconds = checkpoint_seconds
        self.states: dict[str, bytes] = {}
        self.last_checkpoint = time.monotonic()
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                for file in Path(folder, STATES_FOLDER).glob("*"):
                    self.states[file.name] = file.read_bytes()

    def store(self, name: str) -> TrainStore:
        """Return where the training `name` stores its state."""
        return TrainStore(self, name.replace(" ", "-").replace("/", "-"))

    def save_state(self, name: str, state: bytes) -> None:
        """Save the state of a training in a checkpoint, unless the last one is too recent.

        All workers must call this at the same step.
        """
        import ray.train

        self.states[name] = state
        elapsed = time.monotonic() - self.last_checkpoint
        if not self.broadcast(elapsed > self.checkpoint_seconds):
            return
        self.last_checkpoint = time.monotonic()
        with tempfile.TemporaryDirectory() if not self.rank else nullcontext("") as folder:
            checkpoint = None
            if not self.rank:
                Path(folder, STATES_FOLDER).mkdir()
                for key, value in self.states.items():
                    Path(folder, STATES_FOLDER, key).write_bytes(value)
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"states": len(self.states)}, checkpoint=checkpoint)


class TrainStore:
    """The state of one training in the checkpoints of its run.

    Parameters
    ----------
    group : TrainGroup
        Workers of the run.
    name : str
        Name of the training.
    """

    def __init__(self, group: TrainGroup, name: str) -> None:
        self.group, self.name = group, name

    def load(self, device: torch.device) -> tuple[dict[str, Tensor], dict[str, object]] | None:
        """Return the stored state, or None if there is none."""
        state = self.group.states.get(self.name)
        if state is None:
            return None
        tensors = {name: value.to(device) for name, value in load(state).items()}
        notes = bytes(tensors.pop("notes").cpu().numpy()).decode()
        return tensors, json.loads(notes)

    def save(self, tensors: dict[str, Tensor], notes: dict[str, object]) -> None:
        """Store a state in place of the previous one."""
        copies = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}
        text = torch.frombuffer(bytearray(json.dumps(notes).encode()), dtype=torch.uint8)
        self.group.save_state(self.name, save({**copies, "notes": text}))

    def remove(self) -> None:
        """Keep the state: a resumed run skips the trainings that are finished."""


def _run_worker(config: dict[str, Any]) -> None:
    """Run the task in a worker of Ray Train, and save the model in the last checkpoint."""
    import ray.train

    task: WorkerTask = pickle.loads(config["task"])
    torch.set_num_threads(config["threads"])
    group = TrainGroup(config["checkpoint_seconds"])
    try:
        result: object = task(group)
    except (ValueError, FloatingPointError) as error:  # All workers raise it: no use to try again.
        result = f"{type(error).__name__}: {error}"
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if not group.rank:
            Path(folder, MODEL_FILE).write_bytes(pickle.dumps(result))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report({"done": True}, checkpoint=checkpoint)


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on Ctrl-C, and restore its handler, which Ray Train replaces."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit:  # The handler of Ray Train raises it.
        raise KeyboardInterrupt from None
    finally:
        if in_main_thread and handler is not None:  # None: it was not installed from Python.
            signal.signal(signal.SIGINT, handler)


def train_on_workers(
    task: WorkerTask,
    *,
    workers: int,
    threads: int,
    use_gpu: bool,
    storage: str | os.PathLike[str] | None,
    max_failures: int,
) -> SetPredictor:
    """Run a task in all workers at the same time, and return the model of the first one.

    Parameters
    ----------
    task : callable
        What each worker runs.
    workers, threads : int
        Number of processes, and of threads of each.
    use_gpu : bool
        Whether each worker uses a GPU.
    storage : path-like, optional
        Folder for checkpoints that all workers can access. By default a temporary folder.
    max_failures : int
        Maximum number of times that the run is resumed after a worker has died.

    Returns
    -------
    SetPredictor
        The fitted model.

    Raises
    ------
    ValueError, FloatingPointError
        If the task raises one of these.
    """
    import ray
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    pickled: bytes = ray.cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
    resources = {"CPU": float(threads)} | ({"GPU": 1.0} if use_gpu else {})
    config = {"task": pickled, "threads": threads, "checkpoint_seconds": CHECKPOINT_SECONDS}
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        trainer = TorchTrainer(
            _run_worker,
            train_loop_config=config,
            torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if use_gpu else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=workers, use_gpu=use_gpu, resources_per_worker=resources
            ),
            run_config=RunConfig(
                name=f"shortlist-{time.time_ns()}",
                storage_path=os.fspath(folder if storage is None else storage),
                failure_config=FailureConfig(max_failures=max_failures),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )
        with keyboard_interrupts():
            checkpoint = trainer.fit().checkpoint
        assert checkpoint is not None
        with checkpoint.as_directory() as directory:
            result = pickle.loads(Path(directory, MODEL_FILE).read_bytes())
    if isinstance(result, str):
        error_type, _, message = result.partition(": ")
        raise (FloatingPointError if error_type == "FloatingPointError" else ValueError)(message)
    assert isinstance(result, SetPredictor)
    return result
