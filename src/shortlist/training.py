"""The one training loop: for a classifier, a selector, or a stack of selectors.

Adam with L2 regularisation as in the paper, early stopping on held-out rows with the best weights
kept, checkpoints. A stack's members are independent: each has its own loss, its own clipped
gradient and its own best weights, and ends where it would have ended alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor, nn

from shortlist._checkpoint import Checkpoint, fingerprint
from shortlist._progress import Show, track
from shortlist._settings import Training, cuda_devices

Objective: TypeAlias = Callable[..., Tensor]
"""`objective(outputs, *targets)`: the mean loss of a batch, or one for each member of a stack."""

FEWEST_HELD_OUT = 10
EVALUATION_ROWS = 8192


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
    inputs: Tensor,
    targets: Sequence[Tensor],
    objective: Objective,
    settings: Training,
    *,
    members: Sequence[str] | None = None,
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
    inputs, targets : tensors
        With one row for each example, on the network's device.
    objective : callable
        `objective(outputs, *targets)`, the mean loss of a batch: () or, for a stack, (members,).
    members : sequence of str, optional
        What to call a stack's members in messages; None if the network is no stack.
    checkpoint : path, optional
        Where to keep the state after each epoch. If the file is there, training goes on from it,
        to the same result; it is removed at the end.
    identity : str
        What else makes this training this one (its loss, its lambda), so that no other training
        goes on from its checkpoint.
    what : str
        What is trained, for the progress bar and for messages.
    """
    if len(inputs) == 0:
        raise ValueError("nothing to train on: no rows")
    job = _Job(network, inputs, tuple(targets), objective, settings, members, what)
    store = None
    if checkpoint is not None:
        store = Checkpoint(checkpoint, job.fingerprint(identity))
        saved = store.load(inputs.device)
        if saved is not None:
            job.restore(*saved)
    # Dropout and the like draw from the global generators: seeded here, and given back after.
    with (
        torch.random.fork_rng(devices=cuda_devices()),
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
        inputs: Tensor,
        targets: tuple[Tensor, ...],
        objective: Objective,
        settings: Training,
        members: Sequence[str] | None,
        what: str,
    ) -> None:
        self.network, self.inputs, self.targets = network, inputs, targets
        self.objective, self.settings, self.members = objective, settings, members
        self.names = [what] if members is None else members
        self.history = History()
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError(f"nothing to train: no parameter of {network} requires a gradient")
        self.optimizer = torch.optim.Adam(
            self.parameters,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=all(p.is_floating_point() for p in self.parameters),
        )
        device, count = inputs.device, len(self.names)
        shuffled = torch.randperm(len(inputs), generator=self._generator(0)).to(device)
        held_out = min(round(settings.validation_fraction * len(inputs)), len(inputs) - 1)
        if held_out < FEWEST_HELD_OUT:  # too few to judge by: train on everything, to the end
            held_out = 0
        self.held_out, self.rows = shuffled[:held_out], shuffled[held_out:]
        self.best = {name: value.detach().clone() for name, value in self._kept().items()}
        self.best_loss = torch.full((count,), torch.inf, dtype=torch.float64, device=device)
        self.waited = torch.zeros(count, dtype=torch.int64, device=device)
        self.history.best_epoch = [0] * count

    def _generator(self, epoch: int) -> torch.Generator:
        """Random numbers that depend on seed and epoch alone, so that a resumed job repeats."""
        return torch.Generator().manual_seed((self.settings.seed << 20) + epoch)

    def _kept(self) -> dict[str, Tensor]:
        """What early stopping keeps the best of. A stack shares its buffers, which are fixed."""
        if self.members is None:
            return dict(self.network.state_dict())
        return dict(self.network.named_parameters())

    def _going(self) -> Tensor:
        """Which members have not stopped. Others train on, but nothing comes of it."""
        if not len(self.held_out):
            return torch.ones_like(self.waited, dtype=torch.bool)
        return self.waited < self.settings.patience

    def goes_on(self) -> bool:
        return len(self.history) < self.settings.max_epochs and bool(self._going().any())

    def epoch(self) -> None:
        begun = time.monotonic()
        generator = self._generator(1 + len(self.history))
        torch.manual_seed(generator.initial_seed())
        total = torch.zeros_like(self.best_loss)
        self.network.train()
        for rows in self._batches(generator):
            loss = self._loss(rows)
            self.optimizer.zero_grad(set_to_none=True)
            loss.sum().backward()  # type: ignore[no-untyped-call]
            if self.settings.clip_norm is not None:
                self._clip(self.settings.clip_norm)
            self.optimizer.step()
            total += loss.detach() * len(rows)
        losses = total / (len(self.rows) * self.settings.passes(len(self.rows)))
        self._check_finite(losses, "loss")
        if len(self.held_out):
            self._judge()
        self.history.loss.append(losses.tolist())
        self.history.seconds += time.monotonic() - begun

    def _batches(self, generator: torch.Generator) -> Iterator[Tensor]:
        """The rows of each step of an epoch, every pass in an order of its own."""
        for _ in range(self.settings.passes(len(self.rows))):
            order = torch.randperm(len(self.rows), generator=generator).to(self.rows.device)
            yield from _batches(self.rows[order], self.settings.batch_size)

    def _loss(self, rows: Tensor) -> Tensor:
        return self.objective(self.network(self.inputs[rows]), *(t[rows] for t in self.targets))

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
        total = torch.zeros_like(self.best_loss)
        for rows in self.held_out.split(EVALUATION_ROWS):  # type: ignore[no-untyped-call]
            total += self._loss(rows) * len(rows)
        loss = total / len(self.held_out)
        self._check_finite(loss, "held-out loss")
        going = self._going()
        better = going & (loss < self.best_loss)
        self.best_loss = torch.where(better, loss, self.best_loss)
        self.waited = torch.where(better, 0, self.waited + going)
        for name, value in self._kept().items():
            if self.members is not None:
                self.best[name][better] = value.detach()[better]
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
        if not len(self.held_out):
            self.history.best_epoch = [len(self.history) - 1] * len(self.names)
            self._check_finite(self._norms(p.detach() for p in self.parameters), "norm of weights")
            return
        with torch.no_grad():
            for name, value in self._kept().items():
                value.copy_(self.best[name])

    def note(self) -> str:
        losses = (self.history.validation_loss or self.history.loss)[-1]
        return f"loss {sum(losses) / len(losses):.4f}"

    def fingerprint(self, identity: str) -> str:
        data = {"inputs": self.inputs} | {f"target {i}": t for i, t in enumerate(self.targets)}
        weights = {f"weight {n}": v for n, v in self.network.state_dict().items()}
        notes = f"{identity} {self.settings} {self.members} {self.network}"
        return fingerprint(notes, data | weights)

    def state(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        tensors = {f"network.{n}": v for n, v in self.network.state_dict().items()}
        tensors |= {f"best.{n}": v for n, v in self.best.items()}
        for i, p in enumerate(self.parameters):
            tensors |= {f"adam.{i}.{n}": v for n, v in self.optimizer.state[p].items()}
        tensors |= {"best_loss": self.best_loss, "waited": self.waited}
        history = self.history
        return tensors, {
            "loss": history.loss,
            "validation_loss": history.validation_loss,
            "best_epoch": history.best_epoch,
            "seconds": history.seconds,
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
        self.best_loss, self.waited = tensors["best_loss"], tensors["waited"]
        self.history = History(**notes)  # type: ignore[arg-type]


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}


def _batches(order: Tensor, size: int) -> list[Tensor]:
    """Slices of `order`; a last batch of one row joins the one before (batch norm needs two)."""
    batches: list[Tensor] = list(order.split(size))  # type: ignore[no-untyped-call]
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches
