"""Files that are whole or absent: written to a temporary name, synced, renamed. Tensors as safetensors, never pickled.

A tensor file carries a JSON text in its header, and in it a checksum of the tensors, so that a truncated or altered file
is told apart from a good one before anything is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it takes the place of `path`, on failure it vanishes."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        t = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {t.dtype} {tuple(t.shape)};".encode())
        digest.update(t.reshape(-1).view(torch.uint8).numpy().data if t.numel() else b"")
    return digest.hexdigest()


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    tensors = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    text = json.dumps({**metadata, "checksum": checksum(tensors)})
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={"asterism": text})


def read_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a file that `write_tensors` made, or a ValueError that says what is wrong with it."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get("asterism", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is truncated or no safetensors file ({error}): restore it or make it anew") from error
    if "checksum" not in metadata:
        raise ValueError(f"{path} is a safetensors file, but none that asterism wrote: its header has no checksum")
    if metadata.pop("checksum") != checksum(tensors):
        raise ValueError(f"{path} was altered: its tensors do not match their checksum; restore it or make it anew")
    return tensors, metadata
