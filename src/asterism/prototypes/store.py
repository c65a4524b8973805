"""The cache of optimised prototypes on disk: one safetensors file a set, checksummed, shared by processes through a lock.

Lies in $ASTERISM_CACHE, else $XDG_CACHE_HOME/asterism, else ~/.cache/asterism. Safe to delete at any time. A file that was
altered or cut short is rebuilt with a warning; a cache that cannot be written costs time, never a run.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from torch import Tensor

from asterism import files

RECIPE = 2  # raise when an optimiser changes what it returns for a seed: old files are then left alone


def cache_folder() -> Path:
    home = os.environ.get("ASTERISM_CACHE")
    if home:
        return Path(home)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "asterism"


def cached(name: str, make: Callable[[], Tensor], use: bool = True) -> Tensor:
    """The points stored under `name`, made and stored first if need be; of several processes one makes them."""
    if not use:
        return make()
    with _locked(name) as path:
        points = None if path is None else _read(path)
        if points is None:
            points = make()
            if path is not None:
                _write(path, points, name)
        return points


def load(name: str) -> Tensor | None:
    """The points stored under `name`, if any."""
    with _locked(name) as path:
        return None if path is None else _read(path)


def keep_best(name: str, points: Tensor, height: Callable[[Tensor], float]) -> None:
    """Stores the points under `name` unless something lower lies there."""
    with _locked(name) as path:
        before = None if path is None else _read(path)
        if path is not None and (before is None or height(points) < height(before)):
            _write(path, points, name)


def _read(path: Path) -> Tensor | None:
    if not path.exists():
        return None
    try:
        return files.read_tensors(path)[0]["points"]
    except (ValueError, KeyError) as error:
        warnings.warn(f"a cached set of prototypes is made anew: {error}", stacklevel=4)
        return None


def _write(path: Path, points: Tensor, name: str) -> None:
    try:
        files.write_tensors(path, {"points": points}, {"name": name})
    except OSError as error:
        warnings.warn(f"prototypes are not cached: {error}; free some space or set ASTERISM_CACHE", stacklevel=4)


@contextlib.contextmanager
def _locked(name: str) -> Iterator[Path | None]:
    """The path of a set, held; None where the cache cannot be used."""
    path = cache_folder() / f"{name}-r{RECIPE}.safetensors"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path.with_suffix(".lock"), "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        warnings.warn(
            f"prototypes are not cached: {error}; set ASTERISM_CACHE to a folder that can be written", stacklevel=4
        )
        yield None
        return
    with lock, _held(lock.fileno()):
        yield path


@contextlib.contextmanager
def _held(descriptor: int) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows: two processes may do the work twice; the renaming still keeps files whole
        yield
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # falls with the process, so that nothing stale stays behind
    yield
