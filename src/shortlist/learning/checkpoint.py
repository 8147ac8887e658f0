"""Checkpoints: the state of a training after an epoch, in one file that is whole or absent."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from shortlist._utils.arrays import row_blocks
from shortlist._utils.atomic_write import atomic_write
from shortlist._utils.lazy import Matrix


class Checkpoint:
    """One file at `path`, for one training only: the one with this `fingerprint`."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        self.path = Path(path)
        self.fingerprint = fingerprint

    def save(self, tensors: Mapping[str, Tensor], notes: Mapping[str, object]) -> None:
        """Keep the state; a reader never sees half a file."""
        metadata = {"fingerprint": self.fingerprint, "notes": json.dumps(notes)}
        # Copies, since safetensors refuses tensors that share memory (tied weights do).
        copies = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}
        with atomic_write(self.path) as aside:
            save_file(copies, aside, metadata)

    def load(self, device: torch.device) -> tuple[dict[str, Tensor], dict[str, object]] | None:
        """What was saved, or None if nothing was; another training's file is an error."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt", device=str(device)) as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"{self.path} is not a checkpoint ({error}); remove it, or name another file"
            ) from error
        if metadata.get("fingerprint") != self.fingerprint:
            raise ValueError(
                f"{self.path} is the checkpoint of another training (other data, parameters or "
                "seed); remove it to start afresh, or name another file"
            )
        return tensors, json.loads(metadata["notes"])

    def remove(self) -> None:
        """The training is done."""
        self.path.unlink(missing_ok=True)


def fingerprint(notes: str, tensors: Mapping[str, Matrix]) -> str:
    """A digest of settings and data, of every value: one changed label is another training."""
    digest = hashlib.blake2b(notes.encode(), digest_size=16)
    for name, tensor in tensors.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor
        if isinstance(tensor, Tensor):
            flat = tensor.detach().reshape(len(tensor) if tensor.ndim else 1, -1)
        for rows in row_blocks(len(flat), flat.shape[1], flat.device):
            digest.update(flat[rows].cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
