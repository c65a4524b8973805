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

RECIPE = 1  # raise when an optimiser changes what it returns for a seed: old files are then left alone


def cache_folder() -> Path:
    home = os.environ.get("ASTERISM_CACHE")
    if home:
        return Path(home)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "asterism"


def cached(name: str, make: Callable[[], Tensor]) -> Tensor:
    """The points stored under `name`, made and stored first if need be; of several processes one makes them."""
    path = cache_folder() / f"{name}-r{RECIPE}.safetensors"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path.with_suffix(".lock"), "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        warnings.warn(
            f"prototypes are not cached: {error}; set ASTERISM_CACHE to a folder that can be written", stacklevel=3
        )
        return make()
    with lock, _held(lock.fileno()):
        if path.exists():
            try:
                return files.read_tensors(path)[0]["points"]
            except (ValueError, KeyError) as error:
                warnings.warn(f"a cached set of prototypes is made anew: {error}", stacklevel=3)
        points = make()
        try:
            files.write_tensors(path, {"points": points}, {"name": name})
        except OSError as error:
            warnings.warn(f"prototypes are not cached: {error}; free some space or set ASTERISM_CACHE", stacklevel=3)
        return points


@contextlib.contextmanager
def _held(descriptor: int) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows: two processes may do the work twice; the renaming still keeps files whole
        yield
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # falls with the process, so that nothing stale stays behind
    yield
