"""Files that are whole or absent: written to a temporary name, synced, renamed. Tensors as safetensors, never pickled.

A tensor file carries a JSON text in its header, and in it a checksum of the tensors and a seal over the text itself, so that a
truncated or altered file is told apart from a good one before anything is used.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it takes the place of `path`, on failure it vanishes."""
    from safetensors import SafetensorError

    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        number = (
            error.errno
            if isinstance(error, OSError)
            else int((re.findall(r"os error (\d+)", str(error)) or [errno.EIO])[0])
        )
        what = os.strerror(number or errno.EIO)
        raise OSError(
            number, f"{what}; what was there is unchanged: make room, or write elsewhere", str(path)
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: str | Path) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # a JSONDecodeError, or bytes that are no text
        raise ValueError(f"{path} is no JSON ({error}): restore it, or take another") from error


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of numbers and texts in an npz file; others would have to be unpickled."""
    with open(path, "rb") as file:  # what cannot be opened says so by itself
        try:
            return dict(np.load(file, allow_pickle=False).items())
        except Exception as error:  # whatever a broken archive raises
            raise ValueError(f"{path} is no npz file of numbers and texts: write it with numpy.savez") from error


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
    signed = {**metadata, "checksum": checksum(tensors)}
    text = json.dumps({**signed, "seal": _seal(signed)})
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={"asterism": text})


def read_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a file that `write_tensors` made, or a ValueError that says what is wrong with it."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file")
    with open(path, "rb"):  # safetensors would call it absent where there is no permission
        pass
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get("asterism", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is truncated or no safetensors file ({error}): restore it or make it anew") from error
    if "checksum" not in metadata:
        raise ValueError(f"{path} is a safetensors file, but none that asterism wrote: its header has no checksum")
    seal = metadata.pop("seal", None)  # the first files had none
    if metadata["checksum"] != checksum(tensors) or seal not in (None, _seal(metadata)):
        raise ValueError(f"{path} was altered: its contents do not match their checksum; restore it or make it anew")
    del metadata["checksum"]
    return tensors, metadata


def _seal(metadata: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(metadata).encode()).hexdigest()
