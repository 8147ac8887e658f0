"""The one training loop: for a classifier, a selector, or a stack of selectors.

Adam with L2 regularisation as in the paper (or AdamW), early stopping on held-out rows with the
best weights kept, a running average of the weights, checkpoints. A stack's members are
independent: each has its own loss, its own clipped gradient and its own best weights, and ends
where it would have ended alone. They see all the same rows, or each all but its own fold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor, nn

from shortlist._utils.lazy import Matrix
from shortlist._utils.progress import Show, track
from shortlist.learning.checkpoint import Checkpoint, fingerprint
from shortlist.learning.cuda_graphs import Steps, fast_products
from shortlist.learning.process_group import current_group
from shortlist.learning.settings import Training, cuda_devices
from shortlist.learning.windows import Examples

Objective: TypeAlias = Callable[..., Tensor]
"""`objective(outputs, *targets)`: the mean loss of a batch, or one for each member of a stack; with
folds, the loss of each member and row."""

FEWEST_HELD_OUT = 10
EVALUATION_ROWS = {"cpu": 8192, "cuda": 131_072}
"""How many rows are judged at once, on which device."""


@dataclass
class History:
    """What happened: a value for each epoch and member (one member if it was no stack).

    `validation_loss` is empty where nothing was held out. `best_epoch` is the epoch, counted from
    0, whose weights were kept. A member that has stopped is measured on until all have.
    """

    loss: list[list[float]] = field(default_factory=list)
    validation_loss: list[list[float]] = field(default_factory=list)
    best_epoch: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.loss)

    def __repr__(self) -> str:
        kept = ", ".join(map(str, self.best_epoch))
        return f"History({len(self)} epochs, weights of epoch {kept} kept, {self.seconds:.1f} s)"


def train(
    network: nn.Module,
    inputs: Matrix | Sequence[Matrix],
    targets: Sequence[Matrix],
    objective: Objective,
    settings: Training,
    *,
    members: Sequence[str] | None = None,
    folds: Tensor | None = None,
    recorded: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    identity: str = "",
    progress: Show = "auto",
    what: str = "network",
) -> History:
    """Train `network` in place and leave its best weights in it.

    Parameters
    ----------
    network : nn.Module
        Gives outputs for a batch of inputs. A stack gives outputs for every member, and all its
        parameters have the member as first axis.
    inputs, targets : tensors, or matrices that are made when they are looked at
        With one row for each example, on the network's device. Several inputs are passed to the
        network side by side. On a CPU large ones are read through a shuffling window.
    objective : callable
        `objective(outputs, *targets)`, the mean loss of a batch: () or, for a stack, (members,).
    members : sequence of str, optional
        What to call a stack's members in messages; None if the network is no stack.
    folds : (rows,) integers, optional
        Cross-fitting: member j of a stack learns from the rows whose fold is not j, and stops by
        the rows whose fold is j. `objective` then gives losses of shape (members, rows), and both
        it and the network also take rows that differ between members, as a first axis.
    recorded : bool
        On a GPU, whether to record a step and replay it. Not for code of others: what Python does
        in a step is done once.
    checkpoint : path, optional
        Where to keep the state after each epoch. If the file is there, training goes on from it,
        to the same result; it is removed at the end.
    identity : str
        What else makes this training this one (its loss, its lambda), so that no other training
        goes on from its checkpoint.
    what : str
        What is trained, for the progress bar and for messages.
    """
    given = (inputs,) if isinstance(inputs, Matrix) else tuple(inputs)
    examples = Examples(given, tuple(targets), folds)
    if len(examples) == 0:
        raise ValueError("nothing to train on: no rows")
    job = _Job(network, examples, objective, settings, members, recorded, what)
    store = current_group().store(what)
    if checkpoint is not None:
        store = Checkpoint(checkpoint, job.fingerprint(identity))
    if store is not None:
        saved = store.load(examples.device)
        if saved is not None:
            job.restore(*saved)
    # Dropout and the like draw from the global generators: seeded here, and given back after.
    with (
        torch.random.fork_rng(devices=cuda_devices()),
        fast_products(examples.device),
        track(what, settings.max_epochs, progress) as step,
    ):
        for _ in range(len(job.history)):  # done before an interruption
            step("")
        while job.goes_on():
            job.epoch()
            if store is not None:
                store.save(*job.state())
            step(job.note())
    job.finish()
    if store is not None:
        store.remove()
    return job.history


class _Job:
    """A training under way: everything that changes from epoch to epoch."""

    def __init__(
        self,
        network: nn.Module,
        examples: Examples,
        objective: Objective,
        settings: Training,
        members: Sequence[str] | None,
        recorded: bool,
        what: str,
    ) -> None:
        self.network, self.examples, folds = network, examples, examples.folds
        self.group = current_group()
        self.objective, self.settings, self.members = objective, settings, members
        self._at_hand = examples  # those of the window, if there is one
        self.names = [what] if members is None else members
        self.history = History()
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError(f"nothing to train: no parameter of {network} requires a gradient")
        kind = torch.optim.AdamW if settings.decoupled else torch.optim.Adam
        device, count, m = examples.device, len(self.names), len(examples)
        self.optimizer = kind(
            self.parameters,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=all(p.is_floating_point() for p in self.parameters),
            capturable=device.type == "cuda",
        )
        shuffled = torch.randperm(m, generator=self._generator(0)).to(device)
        held_out = min(round(settings.validation_fraction * m), m - 1)
        if (
            self.group.sum(held_out) < FEWEST_HELD_OUT
        ):  # too few to judge by: train on everything, to the end
            held_out = 0
        self.held_out, self.rows = shuffled[:held_out], shuffled[held_out:]
        if folds is not None:  # each row is held out, from one member
            self.held_out = self.rows = shuffled
        self._judges = self.group.sum(len(self.held_out)) > 0
        self._evaluation_rows = EVALUATION_ROWS.get(device.type, EVALUATION_ROWS["cpu"])
        if examples.windowed:  # to be read as they lie
            self.held_out, self.rows = self.held_out.sort().values, self.rows.sort().values
            # A network makes several tables as large as what it is given.
            some = max(1, examples.window_rows(1) // 8)
            self._evaluation_rows = min(self._evaluation_rows, some)
        self.average = [p.detach().clone() for p in self.parameters] if settings.averaging else []
        self.steps = torch.zeros((), dtype=torch.float64, device=device)
        # Of several processes each takes its part of a batch.
        self._batch_size = max(1, settings.batch_size // self.group.world_size)
        self._all_rows = self.group.sum(len(self.rows))
        batch = min(self._batch_size, len(self.rows)) if recorded and not self._shared else 0
        self._step = Steps(self._take_step, batch, device)
        self._next_order: tuple[int, list[Tensor]] | None = None
        self._fold_sizes = torch.zeros(0) if folds is None else self._sizes_of(folds, count)
        self._by_fold = None if folds is None else torch.argsort(folds, stable=True)
        self.best = {name: value.detach().clone() for name, value in self._kept().items()}
        self.best_loss = torch.full((count,), torch.inf, dtype=torch.float64, device=device)
        self.waited = torch.zeros(count, dtype=torch.int64, device=device)
        self.history.best_epoch = [0] * count

    @property
    def _shared(self) -> bool:
        """Whether other processes have a part in it."""
        return self.group.world_size > 1

    def _sizes_of(self, folds: Tensor, members: int) -> Tensor:
        """Rows of each fold; a member needs rows to stop by, and others to learn from."""
        counts = self.group.sum(torch.bincount(folds, minlength=members))
        if len(counts) != members or not bool(((counts > 0) & (counts < self._all_rows)).all()):
            raise ValueError(
                f"{members} members need rows in each of the folds 0 to {members - 1}; there are "
                f"{counts.tolist()}"
            )
        return counts

    def _generator(self, epoch: int) -> torch.Generator:
        """Random numbers that depend on seed and epoch alone, so that a resumed job repeats; other
        ones in each process."""
        seed = (self.settings.seed << 20) + epoch
        return torch.Generator().manual_seed(seed + (self.group.rank << 54))

    def _kept(self) -> dict[str, Tensor]:
        """What early stopping keeps the best of. A stack shares its buffers, which are fixed."""
        if self.members is None:
            return dict(self.network.state_dict())
        return dict(self.network.named_parameters())

    def _going(self) -> Tensor:
        """Which members have not stopped. Others train on, but nothing comes of it."""
        if not self._judges:
            return torch.ones_like(self.waited, dtype=torch.bool)
        return self.waited < self.settings.patience

    def goes_on(self) -> bool:
        return len(self.history) < self.settings.max_epochs and bool(self._going().any())

    def epoch(self) -> None:
        begun = time.monotonic()
        orders = self._orders(len(self.history))
        torch.manual_seed(self._generator(1 + len(self.history)).initial_seed())
        total, seen = torch.zeros_like(self.best_loss), 0
        self.network.train()
        for rows in self._epoch_batches(orders):
            total += self._step(rows) * len(rows)
            seen += len(rows)
        self._at_hand = self.examples
        if self.rows.is_cuda:  # which is still at work: meanwhile
            self._next_order = len(self.history) + 1, self._orders(len(self.history) + 1)
        losses = total / seen
        self._check_finite(losses, "loss")
        if self._judges:
            with self._averaged():
                self._judge()
        self.history.loss.append(losses.tolist())
        self.history.seconds += time.monotonic() - begun

    def _epoch_batches(self, orders: list[Tensor]) -> Iterator[Tensor]:
        """The batches of an epoch, of rows at hand: in every process as many."""
        left = sum(_batch_count(len(order), self._batch_size) for order in orders)
        left = self.group.min(left)
        for order in orders:
            self._at_hand = self.examples  # nothing of the window before is held any longer
            self._at_hand, places = self.examples.at_hand(self.rows[order.to(self.rows.device)])
            batches = _batches(places, self._batch_size)[:left]
            yield from batches
            left -= len(batches)

    def _orders(self, epoch: int) -> list[Tensor]:
        """The order of the rows in each pass of an epoch, a window after the other. Drawn on the
        CPU, so that it is the same on every device."""
        if self._next_order is not None and self._next_order[0] == epoch:
            return self._next_order[1]
        generator, rows = self._generator(1 + epoch), len(self.rows)
        return [
            window
            for _ in range(self.settings.passes(self._all_rows))
            for window in self.examples.order(rows, self._batch_size, generator)
        ]

    def _take_step(self, rows: Tensor) -> Tensor:
        """One step on a batch of rows; the loss before it. Nothing here waits for the device."""
        loss = self._loss(rows)
        self.optimizer.zero_grad(set_to_none=True)
        loss.sum().backward()  # type: ignore[no-untyped-call]
        loss = loss.detach()
        if self._shared:
            loss = self._averaged_over_processes(loss, len(rows))
        if self.settings.clip_norm is not None:
            self._clip(self.settings.clip_norm)
        self.optimizer.step()
        self._average()
        return loss

    def _averaged_over_processes(self, loss: Tensor, rows: int) -> Tensor:
        """Replace each gradient by that of all processes' rows; the loss of all of them."""
        grads = [p.grad for p in self.parameters if p.grad is not None]
        weight = loss.new_tensor([rows])
        flat = torch.cat([*(g.flatten() for g in grads), loss.flatten().to(grads[0].dtype)])
        sums = self.group.sum(torch.cat([flat * rows, weight.to(flat.dtype)]))
        *means, mean_loss = (sums[:-1] / sums[-1]).split(
            [*(g.numel() for g in grads), loss.numel()]
        )  # type: ignore[no-untyped-call]
        for grad, mean in zip(grads, means, strict=True):
            grad.copy_(mean.view_as(grad))
        found: Tensor = mean_loss.view_as(loss)
        return found

    def _losses(self, batch: Examples) -> Tensor:
        """What the objective gives for some examples."""
        return self.objective(self.network(*batch.inputs), *batch.targets)

    def _loss(self, rows: Tensor) -> Tensor:
        """The mean loss of rows at hand; with folds, each member's over those it learns from."""
        batch = self._at_hand[rows]
        loss = self._losses(batch)
        if batch.folds is None:
            return loss
        member = torch.arange(len(self.names), device=rows.device)[:, None]
        learned = (batch.folds != member).to(loss.dtype)
        # Batches of equal size count the same in the sum over batches, whatever they hold of a
        # fold; what was left out is made up for by the number of rows that the member learns from.
        share = 1 - self._fold_sizes.to(loss.dtype)[:, None] / self._all_rows
        return (loss * learned / share).mean(dim=1)

    def _held_out_loss(self) -> Tensor:
        """The mean loss of the rows held out; with folds, each member's over its own fold."""
        total = torch.zeros_like(self.best_loss)
        if self.examples.folds is None:
            for rows in self.held_out.split(self._evaluation_rows):  # type: ignore[no-untyped-call]
                total += self._losses(self.examples[rows]) * len(rows)
            return self.group.sum(total) / self.group.sum(len(self.held_out))
        # One row of each member's fold after the other; a shorter fold's last is not counted again.
        assert self._by_fold is not None
        sizes = torch.bincount(self.examples.folds, minlength=len(self.names))[:, None]
        place = torch.arange(int(sizes.max()), device=sizes.device).expand(len(sizes), -1)
        ends = sizes.cumsum(dim=0)
        for places in place.split(-(-self._evaluation_rows // len(sizes)), dim=1):  # type: ignore[no-untyped-call]
            own = self._by_fold[torch.minimum(ends - sizes + places, ends - 1)]
            total += (self._losses(self.examples[own]) * (places < sizes)).sum(dim=1)
        return self.group.sum(total) / self._fold_sizes

    def _average(self) -> None:
        """Move the running average towards the weights; the first steps weigh more."""
        if not self.average:
            return
        self.steps += 1
        keep = ((1 + self.steps) / (10 + self.steps)).clamp(max=self.settings.averaging)
        weights = [p.detach() for p in self.parameters]
        if not keep.is_cuda:
            torch._foreach_lerp_(self.average, weights, 1 - float(keep))
            return
        away = torch._foreach_sub(weights, self.average)
        torch._foreach_mul_(away, (1 - keep).to(away[0].dtype))
        torch._foreach_add_(self.average, away)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The network with its averaged weights in place."""
        if not self.average:
            yield
            return
        current = [p.detach().clone() for p in self.parameters]
        with torch.no_grad():
            for p, value in zip(self.parameters, self.average, strict=True):
                p.copy_(value)
        try:
            yield
        finally:
            with torch.no_grad():
                for p, value in zip(self.parameters, current, strict=True):
                    p.copy_(value)

    def _clip(self, largest: float) -> None:
        """Scale each member's gradient down to the norm `largest`, without a host round trip."""
        grads = [p.grad for p in self.parameters if p.grad is not None]
        scale = (largest / (self._norms(grads) + 1e-12)).clamp(max=1)
        for grad in grads:
            grad.mul_(scale if self.members is None else scale.view(-1, *[1] * (grad.ndim - 1)))

    def _norms(self, tensors: Iterable[Tensor]) -> Tensor:
        """The norm of each member's share of the tensors."""
        shares = [torch.linalg.vector_norm(t.reshape(len(self.names), -1), dim=1) for t in tensors]
        norms: Tensor = torch.linalg.vector_norm(torch.stack(shares), dim=0)
        return norms

    @torch.no_grad()
    def _judge(self) -> None:
        self.network.eval()
        loss = self._held_out_loss()
        self._check_finite(loss, "held-out loss")
        going = self._going()
        better = going & (loss < self.best_loss)
        self.best_loss = torch.where(better, loss, self.best_loss)
        self.waited = torch.where(better, 0, self.waited + going)
        for name, value in self._kept().items():
            if self.members is not None:
                ours = better.view(-1, *[1] * (value.ndim - 1))
                self.best[name].copy_(torch.where(ours, value.detach(), self.best[name]))
            elif bool(better):
                self.best[name].copy_(value)
        for member in better.nonzero()[:, 0].tolist():
            self.history.best_epoch[member] = len(self.history)
        self.history.validation_loss.append(loss.tolist())

    def _check_finite(self, losses: Tensor, what: str) -> None:
        wrong = (self._going() & ~torch.isfinite(losses)).nonzero()[:, 0].tolist()
        if wrong:
            raise FloatingPointError(
                f"the {what} of the {self.names[wrong[0]]} became {float(losses[wrong[0]])} in "
                f"epoch {len(self.history)}; try a learning rate below "
                f"{self.settings.learning_rate:g}, clip_norm=1.0, or a loss with bounded "
                "gradients such as 'log'"
            )

    def finish(self) -> None:
        self.network.eval()
        if not self._judges:
            self.history.best_epoch = [len(self.history) - 1] * len(self.names)
            with torch.no_grad():
                for p, value in zip(self.parameters, self.average, strict=False):
                    p.copy_(value)
            self._check_finite(self._norms(p.detach() for p in self.parameters), "norm of weights")
            return
        with torch.no_grad():
            for name, value in self._kept().items():
                value.copy_(self.best[name])

    def note(self) -> str:
        losses = (self.history.validation_loss or self.history.loss)[-1]
        return f"loss {sum(losses) / len(losses):.4f}"

    def fingerprint(self, identity: str) -> str:
        data = {f"input {i}": t for i, t in enumerate(self.examples.inputs)}
        data |= {f"target {i}": t for i, t in enumerate(self.examples.targets)}
        weights = {f"weight {n}": v for n, v in self.network.state_dict().items()}
        folds = {} if self.examples.folds is None else {"folds": self.examples.folds}
        notes = f"{identity} {self.settings} {self.members} {self.network}"
        return fingerprint(notes, data | weights | folds)

    def state(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        tensors = {f"network.{n}": v for n, v in self.network.state_dict().items()}
        tensors |= {f"best.{n}": v for n, v in self.best.items()}
        for i, p in enumerate(self.parameters):
            tensors |= {f"adam.{i}.{n}": v for n, v in self.optimizer.state[p].items()}
        tensors |= {f"average.{i}": v for i, v in enumerate(self.average)}
        tensors |= {"best_loss": self.best_loss, "waited": self.waited}
        history = self.history
        return tensors, {
            "loss": history.loss,
            "validation_loss": history.validation_loss,
            "best_epoch": history.best_epoch,
            "seconds": history.seconds,
            "steps": int(self.steps),
        }

    def restore(self, tensors: dict[str, Tensor], notes: dict[str, object]) -> None:
        self.network.load_state_dict(_part(tensors, "network."))
        self.best = _part(tensors, "best.")
        for i, p in enumerate(self.parameters):
            # In the parameter's own memory layout, which the fused kernel takes for granted.
            moments = _part(tensors, f"adam.{i}.")
            self.optimizer.state[p] = {
                n: torch.empty_like(p, dtype=v.dtype).copy_(v) if v.shape == p.shape else v
                for n, v in moments.items()
            }
        self.average = [tensors[f"average.{i}"] for i in range(len(self.average))]
        self.best_loss, self.waited = tensors["best_loss"], tensors["waited"]
        self.steps.fill_(int(notes.pop("steps", 0)))  # type: ignore[call-overload]
        self.history = History(**notes)  # type: ignore[arg-type]


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}


def _batch_count(rows: int, size: int) -> int:
    """How many batches `_batches` makes."""
    whole = -(-rows // size)
    return whole - (whole > 1 and rows - (whole - 1) * size == 1)


def _batches(order: Tensor, size: int) -> list[Tensor]:
    """Slices of `order`; a last batch of one row joins the one before (batch norm needs two)."""
    batches: list[Tensor] = list(order.split(size))  # type: ignore[no-untyped-call]
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches
