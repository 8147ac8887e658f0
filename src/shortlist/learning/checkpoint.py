"""Checkpoint files, from which an interrupted training run is resumed."""

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

from shortlist._utils.atomic_write import atomic_write
from shortlist._utils.blocks import row_blocks
from shortlist._utils.out_of_core import Matrix


class Checkpoint:
    """A file with the state of one training run.

    Parameters
    ----------
    path : path-like
        Path of the file.
    fingerprint : str
        Digest of the data and settings of the run. Files of other runs are rejected.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        self.path = Path(path)
        self.fingerprint = fingerprint

    def save(self, tensors: Mapping[str, Tensor], notes: Mapping[str, object]) -> None:
        """Write the state to the file atomically."""
        metadata = {"fingerprint": self.fingerprint, "notes": json.dumps(notes)}
        # The tensors are copied, because safetensors rejects tensors that share memory, such as
        # tied weights.
        copies = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}
        with atomic_write(self.path) as temporary:
            save_file(copies, temporary, metadata)

    def load(self, device: torch.device) -> tuple[dict[str, Tensor], dict[str, object]] | None:
        """Return the saved state, or None if there is no file. Raise for a file of another run."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt", device=str(device)) as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"{self.path} is not a checkpoint ({error}); remove it, or use another file"
            ) from error
        if metadata.get("fingerprint") != self.fingerprint:
            raise ValueError(
                f"{self.path} is the checkpoint of another training run (other data, parameters or "
                "seed); remove it to start again, or use another file"
            )
        return tensors, json.loads(metadata["notes"])

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


def fingerprint(description: str, tensors: Mapping[str, Matrix]) -> str:
    """Return a digest of a description and of all values of the tensors."""
    digest = hashlib.blake2b(description.encode(), digest_size=16)
    for name, tensor in tensors.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor
        if isinstance(tensor, Tensor):
            flat = tensor.detach().reshape(len(tensor) if tensor.ndim else 1, -1)
        for rows in row_blocks(len(flat), flat.shape[1], flat.device):
            digest.update(flat[rows].cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
