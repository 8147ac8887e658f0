"""Train a network: the one training loop, for a classifier, a selector or a stack of selectors.

The optimizer is Adam with L2 regularisation as in the paper, or AdamW. Training stops early on
validation rows and keeps the best weights, averages weights if asked, and can be resumed from a
checkpoint. The members of a stack are independent: each has its own loss, clipped gradient and
best weights, and ends as if it were trained alone. All members learn from the same rows, or each
from the rows outside its own fold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor, nn

from shortlist._utils.out_of_core import Matrix
from shortlist._utils.progress import Show, track
from shortlist.learning.batches import BatchSampler, Examples, random_generator
from shortlist.learning.checkpoint import Checkpoint, fingerprint
from shortlist.learning.cuda_graphs import GraphedStep, allow_tf32
from shortlist.learning.early_stopping import EarlyStopping
from shortlist.learning.gradients import average_over_processes, clip_gradients, member_norms
from shortlist.learning.process_group import current_group
from shortlist.learning.settings import TrainingSettings, cuda_devices
from shortlist.learning.weight_average import WeightAverage

Objective: TypeAlias = Callable[..., Tensor]
"""`objective(outputs, *targets)`: mean loss of a batch, of shape () or, for a stack, (members,);
with folds, the loss of each member and row."""

MIN_VALIDATION_ROWS = 10
"""With fewer validation rows, training uses all rows and does not stop early."""
EVALUATION_ROWS = {"cpu": 8192, "cuda": 131_072}
"""Rows in a batch of the validation, by device."""


@dataclass
class History:
    """Losses of a training.

    Attributes
    ----------
    loss : list of list of float
        Mean training loss by epoch and member. A network that is not a stack has one member.
    validation_loss : list of list of float
        Validation loss by epoch and member; empty without validation rows. Members that have
        stopped are evaluated until all have.
    best_epoch : list of int
        Epoch whose weights were kept, by member, counted from 0.
    seconds : float
        Duration of the training.
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
    """Train a network in place and leave its best weights in it.

    Parameters
    ----------
    network : nn.Module
        Returns outputs for a batch of inputs. A stack returns outputs for every member, and all
        its parameters have the member as first axis.
    inputs, targets : sequence of Tensor or LazyMatrix
        One row for each example, on the device of the network. Several inputs are passed to the
        network as separate arguments. On a CPU, large ones are read through shuffled windows.
    objective : callable
        `objective(outputs, *targets)`, the mean loss of a batch: () or, for a stack, (members,).
    settings : TrainingSettings
        Optimizer, epochs and seed.
    members : sequence of str, optional
        Names of a stack's members, for messages. None if the network is not a stack.
    folds : Tensor of shape (n_rows,), optional
        Cross-fitting: member j of a stack learns from the rows whose fold is not j, and stops
        early on the rows whose fold is j. Rows whose fold is the number of members are learned by
        all and judge none. `objective` then returns losses of shape (members,
        rows), and both it and the network accept rows that differ between members, with the
        member as first axis.
    use_cuda_graph : bool, default=False
        On a GPU, record a step and replay it. Not for user code: Python runs only once.
    checkpoint : path-like, optional
        File in which the state is stored after each epoch. If it exists, training is resumed, to
        the same result. It is removed at the end.
    identity : str, default=""
        Description of the objective (its loss, its lambda). A checkpoint with another
        description is rejected.
    progress : bool or "auto", default="auto"
        Whether to show a progress bar.
    name : str, default="network"
        What is trained, for the progress bar and messages.

    Returns
    -------
    History
        Losses by epoch.

    Raises
    ------
    ValueError
        If there are no rows or no parameters, a fold is empty, or the checkpoint belongs to
        another training.
    FloatingPointError
        If a loss is not finite.
    """
    all_inputs = (inputs,) if isinstance(inputs, Matrix) else tuple(inputs)
    examples = Examples(all_inputs, tuple(targets), folds)
    if len(examples) == 0:
        raise ValueError("there are no rows to train on; give at least one")
    run = _TrainingRun(network, examples, objective, settings, members, use_cuda_graph, name)
    store = current_group().store(name)
    if checkpoint is not None:
        store = Checkpoint(checkpoint, run.fingerprint(identity))
    saved = None if store is None else store.load(examples.device)
    if saved is not None:
        run.restore(*saved)
    # Dropout draws from the global generators, which each epoch seeds. They are restored here.
    with (
        torch.random.fork_rng(devices=cuda_devices()),
        allow_tf32(examples.device),
        track(name, settings.max_epochs, progress) as step,
    ):
        for _ in range(len(run.history)):  # Epochs before the training was resumed.
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


class _TrainingRun:
    """A training in progress: everything that changes from epoch to epoch."""

    def __init__(
        self,
        network: nn.Module,
        examples: Examples,
        objective: Objective,
        settings: TrainingSettings,
        members: Sequence[str] | None,
        use_cuda_graph: bool,
        name: str,
    ) -> None:
        self.network, self.examples, self.objective = network, examples, objective
        self.settings, self.members, self.group = settings, members, current_group()
        self.names = [name] if members is None else members
        self.history = History(best_epoch=[0] * len(self.names))
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError(f"nothing to train: no parameter of {network} requires a gradient")
        device = examples.device
        self.optimizer = _make_optimizer(self.parameters, settings, device)
        self.rows, self.validation_rows = self._split_rows()
        self.total_rows = self.group.sum(len(self.rows))
        self.has_validation = self.group.sum(len(self.validation_rows)) > 0
        self.fold_sizes = self._count_folds()
        folds = torch.zeros(0) if examples.folds is None else examples.folds
        self.rows_by_fold = torch.argsort(folds, stable=True)
        self.average = WeightAverage(self.parameters, settings.ema_decay, device)
        patience = settings.patience if self.has_validation else None
        count = None if members is None else len(members)
        self.early_stopping = EarlyStopping(network, count, patience, device)
        # Each process takes its part of a batch.
        batch_size = max(1, settings.batch_size // self.group.world_size)
        passes = settings.passes(self.total_rows)
        self.sampler = BatchSampler(examples, self.rows, batch_size, passes, settings.seed)
        graphed = use_cuda_graph and self.group.world_size == 1
        graph_rows = min(batch_size, len(self.rows)) if graphed else 0
        self._step = GraphedStep(self._take_step, graph_rows, device)

    def _split_rows(self) -> tuple[Tensor, Tensor]:
        """Return the rows to learn from and the validation rows, drawn at random."""
        count = len(self.examples)
        generator = random_generator(self.settings.seed, 0)
        shuffled = torch.randperm(count, generator=generator).to(self.examples.device)
        n_validation = min(round(self.settings.validation_fraction * count), count - 1)
        if self.group.sum(n_validation) < MIN_VALIDATION_ROWS:
            n_validation = 0
        rows, validation_rows = shuffled[n_validation:], shuffled[:n_validation]
        if self.examples.folds is not None:  # Each row is a validation row of one member.
            rows = validation_rows = shuffled
        if self.examples.is_windowed:  # Ascending, so that a disk reads them quickly.
            rows, validation_rows = rows.sort().values, validation_rows.sort().values
        return rows, validation_rows

    def _count_folds(self) -> Tensor:
        """Return the number of rows of each fold; raise if a member has no rows to learn from."""
        folds, members = self.examples.folds, len(self.names)
        if folds is None:
            return torch.zeros(0)
        counts = self.group.sum(torch.bincount(folds, minlength=members + 1))
        counts, n_folds = counts[:members], len(counts) - 1
        if n_folds != members or not bool(((counts > 0) & (counts < self.total_rows)).all()):
            raise ValueError(
                f"{members} members need rows in each of the folds 0 to {members - 1}; got "
                f"{counts.tolist()} rows"
            )
        return counts

    def should_continue(self) -> bool:
        """Return whether another epoch is needed."""
        is_active = bool(self.early_stopping.active().any())
        return len(self.history) < self.settings.max_epochs and is_active

    def epoch(self) -> None:
        """Train for one epoch and evaluate the validation rows."""
        started = time.monotonic()
        epoch = len(self.history)
        # A seed for each epoch, so that a resumed training repeats the same numbers.
        seed = random_generator(self.settings.seed, 1 + epoch).initial_seed()
        torch.manual_seed(seed)
        total, seen = torch.zeros_like(self.early_stopping.best_loss), 0
        self.network.train()
        for rows in self.sampler.batches(epoch):
            total += self._step(rows) * len(rows)
            seen += len(rows)
        if self.rows.is_cuda:  # While the GPU is still at work.
            self.sampler.prefetch(epoch + 1)
        losses = total / seen
        self._check_finite(losses, "loss")
        if self.has_validation:
            with self.average.applied():
                self._validate()
        self.history.loss.append(losses.tolist())
        self.history.seconds += time.monotonic() - started

    def _take_step(self, rows: Tensor) -> Tensor:
        """Take one step on a batch and return the loss before it, without waiting for a GPU."""
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
        """Evaluate the objective."""
        return self.objective(self.network(*batch.inputs), *batch.targets)

    def _training_loss(self, rows: Tensor) -> Tensor:
        """Return the mean loss of a batch; with folds, each member's over the rows it learns."""
        batch = self.sampler.loaded[rows]
        loss = self._losses(batch)
        if batch.folds is None:
            return loss
        member = torch.arange(len(self.names), device=rows.device)[:, None]
        learned = (batch.folds != member).to(loss.dtype)
        # Dividing by the share of all rows, not of the batch, gives every row the same weight in
        # an epoch, however the folds are distributed over batches.
        share = 1 - self.fold_sizes.to(loss.dtype)[:, None] / self.total_rows
        return (loss * learned / share).mean(dim=1)

    @torch.no_grad()
    def _validate(self) -> None:
        """Compute the validation loss and record which members improved."""
        self.network.eval()
        folds = self.examples.folds
        loss = self._validation_loss() if folds is None else self._fold_validation_loss(folds)
        self._check_finite(loss, "validation loss")
        for member in self.early_stopping.update(loss).nonzero()[:, 0].tolist():
            self.history.best_epoch[member] = len(self.history)
        self.history.validation_loss.append(loss.tolist())

    def _validation_loss(self) -> Tensor:
        """Return the mean loss of the validation rows."""
        total = torch.zeros_like(self.early_stopping.best_loss)
        for rows in self.validation_rows.split(self._evaluation_rows()):  # type: ignore[no-untyped-call]
            total += self._losses(self.examples[rows]) * len(rows)
        return self.group.sum(total) / self.group.sum(len(self.validation_rows))

    def _fold_validation_loss(self, folds: Tensor) -> Tensor:
        """Return the mean loss of each member over its own fold.

        Each batch has as many rows of every fold. Shorter folds repeat their last row, which is
        not counted again.
        """
        total = torch.zeros_like(self.early_stopping.best_loss)
        members = len(self.names)
        sizes = torch.bincount(folds, minlength=members)[:members, None]
        ends = sizes.cumsum(dim=0)
        places = torch.arange(int(sizes.max()), device=sizes.device).expand(len(sizes), -1)
        for place in places.split(-(-self._evaluation_rows() // len(sizes)), dim=1):  # type: ignore[no-untyped-call]
            rows = self.rows_by_fold[torch.minimum(ends - sizes + place, ends - 1)]
            total += (self._losses(self.examples[rows]) * (place < sizes)).sum(dim=1)
        return self.group.sum(total) / self.fold_sizes

    def _evaluation_rows(self) -> int:
        """Return the number of rows in a batch of the validation."""
        rows = EVALUATION_ROWS.get(self.examples.device.type, EVALUATION_ROWS["cpu"])
        if not self.examples.is_windowed:
            return rows
        # A network allocates several tables as large as its input.
        return min(rows, max(1, self.examples.window_rows(1) // 8))

    def _check_finite(self, values: Tensor, quantity: str) -> None:
        """Raise if a value of a member that has not stopped is NaN or infinite."""
        wrong = (self.early_stopping.active() & ~torch.isfinite(values)).nonzero()[:, 0].tolist()
        if wrong:
            raise FloatingPointError(
                f"the {quantity} of the {self.names[wrong[0]]} became {float(values[wrong[0]])} in "
                f"epoch {len(self.history)}; try a learning rate below "
                f"{self.settings.learning_rate:g}, clip_norm=1.0, or a loss with bounded "
                "gradients such as 'log'"
            )

    def finish(self) -> None:
        """Leave the final weights in the network: the best, or without validation the last."""
        self.network.eval()
        if self.has_validation:
            self.early_stopping.restore_best()
            return
        self.history.best_epoch = [len(self.history) - 1] * len(self.names)
        self.average.apply()
        norms = member_norms((p.detach() for p in self.parameters), len(self.names))
        self._check_finite(norms, "norm of weights")

    def note(self) -> str:
        """Return the last loss, for the progress bar."""
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
        """Return the state for a checkpoint: tensors and JSON values."""
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
        """Continue from the state of a checkpoint."""
        best, average = self.early_stopping, self.average
        self.network.load_state_dict(_with_prefix(tensors, "network."))
        best.best = _with_prefix(tensors, "best.")
        for i, p in enumerate(self.parameters):
            # The fused kernel needs the moments in the memory layout of the parameter.
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
    """Return the tensors whose name has a prefix, without it."""
    return {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}
