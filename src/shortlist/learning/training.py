"""The training loop of all networks: classifiers, selectors and stacks of selectors.

The optimizer is Adam with L2 regularization, as in the paper, or AdamW. Training stops early on
validation rows and keeps the best weights. It can average the weights, and resume from a
checkpoint. Each member of a stack has its own loss, clipped gradient and best weights, so that it
ends with the same weights as if it were trained alone. All members are trained on the same rows,
or each member on the rows outside its own fold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor, nn

from shortlist._utils.out_of_core import Matrix
from shortlist._utils.progress import Show, track
from shortlist._utils.threads import single_threaded
from shortlist.learning.batches import BatchSampler, Examples, random_generator
from shortlist.learning.checkpoint import Checkpoint, fingerprint
from shortlist.learning.cuda_graphs import GraphedStep, allow_tf32
from shortlist.learning.early_stopping import EarlyStopping
from shortlist.learning.gradients import average_over_processes, clip_gradients, member_norms
from shortlist.learning.process_group import current_group
from shortlist.learning.settings import TrainingSettings, cuda_devices
from shortlist.learning.validation import Validation, count_folds, split_rows
from shortlist.learning.weight_average import WeightAverage

MIN_PARALLEL_PRODUCTS = 1 << 25
"""Number of products (rows times parameters) of a step from which PyTorch divides operations among
its threads. Below, a barrier can take longer than the operation, above all if other processes keep
the cores busy."""

Objective: TypeAlias = Callable[..., Tensor]
"""Function `objective(outputs, *targets)` that returns the mean loss of a batch, of shape () or,
for a stack, (members,). With folds, it returns the loss of each member and row."""


@dataclass
class History:
    """Losses of a training run.

    Attributes
    ----------
    loss : list of list of float
        Mean training loss of each epoch and member. A network that is not a stack has one member.
    validation_loss : list of list of float
        Validation loss of each epoch and member. The list is empty if there are no validation
        rows. Members that have stopped are evaluated until all members have stopped.
    best_epoch : list of int
        Epoch whose weights were kept, for each member, counted from 0.
    seconds : float
        Duration of the training in seconds.
    """

    loss: list[list[float]] = field(default_factory=list)
    validation_loss: list[list[float]] = field(default_factory=list)
    best_epoch: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.loss)

    def __repr__(self) -> str:
        best = ", ".join(map(str, self.best_epoch))
        return f"History({len(self)} epochs, weights of epoch {best} kept, {self.seconds:.1f} s)"


def train(
    network: nn.Module,
    inputs: Matrix | Sequence[Matrix],
    targets: Sequence[Matrix],
    objective: Objective,
    settings: TrainingSettings,
    *,
    members: Sequence[str] | None = None,
    folds: Tensor | None = None,
    use_cuda_graph: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    identity: str = "",
    progress: Show = "auto",
    name: str = "network",
) -> History:
    """Train a network in place. Afterwards the network has its best weights.

    Parameters
    ----------
    network : nn.Module
        Network that returns outputs for a batch of inputs. A stack returns outputs of every
        member, and the first axis of all its parameters is the member.
    inputs, targets : sequence of Tensor or LazyMatrix
        Tables with one row for each example, on the device of the network. Several inputs are
        passed to the network as separate arguments. On a CPU, large tables are read through
        shuffled windows.
    objective : callable
        Function `objective(outputs, *targets)` that returns the mean loss of a batch, of shape ()
        or, for a stack, (members,).
    settings : TrainingSettings
        Optimizer, epochs and seed.
    members : sequence of str, optional
        Names of the members of a stack, for error messages. None if the network is not a stack.
    folds : Tensor of shape (n_rows,), optional
        Fold of each row, for cross-fitting. Member j of a stack is trained on the rows outside
        fold j, and stops early on the rows of fold j. All members are trained on rows whose fold
        is the number of members. `objective` must then return losses of
        shape (members, rows). The network and `objective` must accept batches whose first axis is
        the member.
    use_cuda_graph : bool, default=False
        Whether to replay a recorded step on a GPU. The Python code of the network and of
        `objective` then runs only once.
    checkpoint : path-like, optional
        File in which the state is stored after each epoch. If it exists, training is resumed from
        it, with the same result as without an interruption. The file is removed at the end.
    identity : str, default=""
        Description of the objective, such as its loss and its cost weight. A checkpoint with
        another description is rejected.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar. "auto" shows it on a terminal.
    name : str, default="network"
        Description of the network, for the progress bar and error messages.

    Returns
    -------
    History
        Losses of all epochs.

    Raises
    ------
    ValueError
        If there are no rows or no parameters, a fold is empty, or the checkpoint belongs to
        another training run.
    FloatingPointError
        If a loss or a weight is not finite.
    """
    all_inputs = (inputs,) if isinstance(inputs, Matrix) else tuple(inputs)
    examples = Examples(all_inputs, tuple(targets), folds)
    if len(examples) == 0:
        raise ValueError("there are no rows to train on; pass at least one")
    run = TrainingRun(network, examples, objective, settings, members, use_cuda_graph, name)
    store = current_group().store(name)
    if checkpoint is not None:
        store = Checkpoint(checkpoint, run.fingerprint(identity))
    saved = None if store is None else store.load(examples.device)
    if saved is not None:
        run.restore(*saved)
    # Each epoch seeds the global random generators, from which dropout draws. `fork_rng` restores
    # their state.
    with (
        torch.random.fork_rng(devices=cuda_devices()),
        allow_tf32(examples.device),
        track(name, settings.max_epochs, progress) as step,
        single_threaded() if run.has_small_steps else nullcontext(),
    ):
        for _ in range(len(run.history)):  # Count the epochs of the checkpoint.
            step("")
        while run.should_continue():
            run.epoch()
            if store is not None:
                store.save(*run.state())
            step(run.note())
    run.finish()
    if store is not None:
        store.remove()
    return run.history


class TrainingRun:
    """The state of a training run, and its steps.

    Parameters
    ----------
    network, objective, settings, members, use_cuda_graph, name
        See `train`.
    examples : Examples
        Inputs, targets and folds.
    split : tuple of two Tensor of int, optional
        Training rows and validation rows; drawn at random by default.
    generator : torch.Generator, optional
        Generator of the network's dropout, which every epoch seeds. By default, every epoch seeds
        the global generators, which no other thread may use then.
    """

    def __init__(
        self,
        network: nn.Module,
        examples: Examples,
        objective: Objective,
        settings: TrainingSettings,
        members: Sequence[str] | None,
        use_cuda_graph: bool,
        name: str,
        *,
        split: tuple[Tensor, Tensor] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self._generator = generator
        self.network, self.examples, self.objective = network, examples, objective
        self.settings, self.members, self.group = settings, members, current_group()
        self.names = [name] if members is None else members
        self.history = History(best_epoch=[0] * len(self.names))
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError(f"nothing to train: no parameter of {network} requires a gradient")
        device = examples.device
        self.optimizer = _make_optimizer(self.parameters, settings, device)
        self.rows, validation_rows = split or split_rows(examples, settings)
        self.total_rows = self.group.sum(len(self.rows))
        folds = examples.folds
        self.fold_sizes = None if folds is None else count_folds(folds, len(self.names))
        self.validation = Validation(examples, validation_rows, self.fold_sizes, self._losses)
        self.has_validation = self.validation.count > 0
        self.average = WeightAverage(self.parameters, settings.ema_decay, device)
        patience = settings.patience if self.has_validation else None
        count = None if members is None else len(members)
        self.early_stopping = EarlyStopping(network, count, patience, device)
        # Each process takes an equal part of a batch.
        batch_size = max(1, settings.batch_size // self.group.world_size)
        passes = settings.passes(self.total_rows)
        self.sampler = BatchSampler(examples, self.rows, batch_size, passes, settings.seed)
        graphed = use_cuda_graph and self.group.world_size == 1
        graph_rows = min(batch_size, len(self.rows)) if graphed else 0
        self._step = GraphedStep(self._take_step, graph_rows, device)

    @property
    def has_small_steps(self) -> bool:
        """Whether the operations of a step on a CPU are too small to be worth a barrier each."""
        n_parameters = sum(parameter.numel() for parameter in self.parameters)
        products = min(self.settings.batch_size, len(self.rows)) * n_parameters
        return self.examples.device.type == "cpu" and products < MIN_PARALLEL_PRODUCTS

    def should_continue(self) -> bool:
        """Return whether another epoch is needed."""
        is_active = bool(self.early_stopping.active().any())
        return len(self.history) < self.settings.max_epochs and is_active

    def epoch(self) -> None:
        """Train for one epoch and evaluate the validation rows."""
        started = time.monotonic()
        epoch = len(self.history)
        # Every epoch has its own seed, so that a resumed run draws the same random numbers.
        seed = random_generator(self.settings.seed, 1 + epoch).initial_seed()
        if self._generator is None:
            torch.manual_seed(seed)
        else:
            self._generator.manual_seed(seed)
        total, count = torch.zeros_like(self.early_stopping.best_loss), 0
        self.network.train()
        for rows in self.sampler.batches(epoch):
            total += self._step(rows) * len(rows)
            count += len(rows)
        if self.rows.is_cuda:  # The CPU draws the next order while the GPU computes.
            self.sampler.prefetch(epoch + 1)
        losses = total / count
        self._check_finite(losses, "loss")
        if self.has_validation:
            with self.average.applied():
                self._validate()
        self.history.loss.append(losses.tolist())
        self.history.seconds += time.monotonic() - started

    def _take_step(self, rows: Tensor) -> Tensor:
        """Take a step on a batch and return the loss before the step, without waiting for a GPU."""
        loss = self._training_loss(rows)
        self.optimizer.zero_grad(set_to_none=True)
        loss.sum().backward()  # type: ignore[no-untyped-call]
        loss = loss.detach()
        loss = average_over_processes(self.parameters, loss, len(rows))
        if self.settings.clip_norm is not None:
            clip_gradients(self.parameters, self.settings.clip_norm, len(self.names))
        self.optimizer.step()
        self.average.update()
        return loss

    def _losses(self, batch: Examples) -> Tensor:
        """Evaluate the objective on a batch."""
        return self.objective(self.network(*batch.inputs), *batch.targets)

    def _training_loss(self, rows: Tensor) -> Tensor:
        """Return the mean loss of a batch, with folds over the training rows of each member."""
        batch = self.sampler.loaded[rows]
        loss = self._losses(batch)
        if self.fold_sizes is None:
            return loss
        assert batch.folds is not None
        member = torch.arange(len(self.names), device=rows.device)[:, None]
        is_training_row = (batch.folds != member).to(loss.dtype)
        # The divisor is the fraction of training rows in all rows rather than in the batch, so
        # that every row has the same weight in an epoch.
        fraction = 1 - self.fold_sizes.to(loss.dtype)[:, None] / self.total_rows
        return (loss * is_training_row / fraction).mean(dim=1)

    @torch.no_grad()
    def _validate(self) -> None:
        """Compute the validation loss, and record the members that improved."""
        self.network.eval()
        loss = self.validation.loss(len(self.names))
        self._check_finite(loss, "validation loss")
        for member in self.early_stopping.update(loss).nonzero()[:, 0].tolist():
            self.history.best_epoch[member] = len(self.history)
        self.history.validation_loss.append(loss.tolist())

    def _check_finite(self, values: Tensor, quantity: str) -> None:
        """Raise an error if a value of an active member is NaN or infinite."""
        wrong = (self.early_stopping.active() & ~torch.isfinite(values)).nonzero()[:, 0].tolist()
        if wrong:
            raise FloatingPointError(
                f"the {quantity} of the {self.names[wrong[0]]} became {float(values[wrong[0]])} in "
                f"epoch {len(self.history)}; try a learning rate below "
                f"{self.settings.learning_rate:g}, clip_norm=1.0, or a loss with bounded "
                "gradients such as 'log'"
            )

    def finish(self) -> None:
        """Set the final weights: the best or, without validation rows, the last or the average."""
        self.network.eval()
        if self.has_validation:
            self.early_stopping.restore_best()
            return
        self.history.best_epoch = [len(self.history) - 1] * len(self.names)
        self.average.apply()
        norms = member_norms((p.detach() for p in self.parameters), len(self.names))
        self._check_finite(norms, "norm of weights")

    def note(self) -> str:
        """Return the text of the progress bar, with the last loss."""
        losses = (self.history.validation_loss or self.history.loss)[-1]
        return f"loss {sum(losses) / len(losses):.4f}"

    def fingerprint(self, identity: str) -> str:
        """Return a digest of the data, the settings and the initial weights."""
        data = {f"input {i}": t for i, t in enumerate(self.examples.inputs)}
        data |= {f"target {i}": t for i, t in enumerate(self.examples.targets)}
        weights = {f"weight {n}": v for n, v in self.network.state_dict().items()}
        folds = {} if self.examples.folds is None else {"folds": self.examples.folds}
        description = f"{identity} {self.settings} {self.members} {self.network}"
        return fingerprint(description, data | weights | folds)

    def state(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Return the state for a checkpoint, as tensors and JSON values."""
        best = self.early_stopping
        tensors = {f"network.{n}": v for n, v in self.network.state_dict().items()}
        tensors |= {f"best.{n}": v for n, v in best.best.items()}
        for i, p in enumerate(self.parameters):
            tensors |= {f"adam.{i}.{n}": v for n, v in self.optimizer.state[p].items()}
        tensors |= {f"average.{i}": v for i, v in enumerate(self.average.values)}
        tensors |= {"best_loss": best.best_loss, "waited": best.epochs_without_improvement}
        history = self.history
        return tensors, {
            "loss": history.loss,
            "validation_loss": history.validation_loss,
            "best_epoch": history.best_epoch,
            "seconds": history.seconds,
            "steps": int(self.average.steps),
        }

    def restore(self, tensors: dict[str, Tensor], notes: dict[str, object]) -> None:
        """Restore the state from a checkpoint."""
        best, average = self.early_stopping, self.average
        self.network.load_state_dict(_with_prefix(tensors, "network."))
        best.best = _with_prefix(tensors, "best.")
        for i, p in enumerate(self.parameters):
            # The fused optimizer needs moments with the memory layout of the parameter.
            moments = _with_prefix(tensors, f"adam.{i}.")
            self.optimizer.state[p] = {
                n: torch.empty_like(p, dtype=v.dtype).copy_(v) if v.shape == p.shape else v
                for n, v in moments.items()
            }
        average.values = [tensors[f"average.{i}"] for i in range(len(average.values))]
        best.best_loss, best.epochs_without_improvement = tensors["best_loss"], tensors["waited"]
        average.steps.fill_(int(notes.pop("steps", 0)))  # type: ignore[call-overload]
        self.history = History(**notes)  # type: ignore[arg-type]


def _make_optimizer(
    parameters: list[nn.Parameter], settings: TrainingSettings, device: torch.device
) -> torch.optim.Optimizer:
    """Return Adam, or AdamW for decoupled weight decay."""
    optimizer = torch.optim.AdamW if settings.decoupled_weight_decay else torch.optim.Adam
    return optimizer(
        parameters,
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=all(p.is_floating_point() for p in parameters),
        capturable=device.type == "cuda",
    )


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix, which is removed."""
    return {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}
