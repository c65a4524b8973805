"""Where the stars are: (K, d) -> Prototypes, with a receipt that says how good they are and how good any set could be.

K prototypes, d dimension. bounds.py proves what no set can beat. known.py has the exact sets and their subsets (codes.py,
algebraic.py), energy.py optimises, polish.py brings to the last digits, blocks.py does what no K x K matrix holds. peers.py has the
prototypes of other methods, constrained.py (`near`) those closest to given directions. measures.py measures, store.py keeps what
took time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asterism import files
from asterism.checks import check_unit_rows, unknown
from asterism.console import Console
from asterism.prototypes import blocks, bounds, codes, energy, known, measures, peers, store
from asterism.prototypes.constrained import near

__all__ = ["KINDS", "Prototypes", "make_prototypes", "near"]

# How a peer's prototypes are made: from K, d, a seed, vectors and a line that tells the progress.
PEERS: dict[str, Callable[[int, int, int, Tensor | None, energy.Progress], Tensor]] = {
    "hpn": lambda num, dim, seed, vectors, tell: peers.hpn(num, dim, seed, vectors, tell),
    "word2vec": lambda num, dim, seed, vectors, tell: peers.word2vec(_given(num, vectors, "word2vec"), dim),
    "etf": lambda num, dim, seed, vectors, tell: peers.etf(num, dim, seed),
    "maxsep": lambda num, dim, seed, vectors, tell: peers.maxsep(num, dim),
    "orthonormal": lambda num, dim, seed, vectors, tell: peers.orthonormal(num, dim, seed),
    "hadamard": lambda num, dim, seed, vectors, tell: peers.hadamard(num, dim, seed),
    "equiangular-basis": lambda num, dim, seed, vectors, tell: peers.equiangular_basis(num, dim, seed, tell),
    "random": lambda num, dim, seed, vectors, tell: peers.random(num, dim, seed),
    "learned": lambda num, dim, seed, vectors, tell: peers.learned(_given(num, vectors, "learned", dim)),
}
KINDS = ("auto", "optimised", "gaussian-potential", *PEERS)
WITH_VECTORS = ("hpn", "word2vec", "learned")
SMALL = 200_000  # K d up to which a set that is not known to be optimal is always optimised, too
DENSE = 3_000  # K up to which K x K matrices are quicker than neighbours in blocks
MEASURED = 20_000  # K up to which the rows of a code are measured although theory tells their cosine


@dataclass(frozen=True, eq=False)
class Prototypes:
    """K unit vectors in d dimensions and their receipt. The quality figures are computed from the points, never believed.

    >>> stars = make_prototypes(5, 4)
    >>> print(stars)
    5 x 4, simplex: max cosine -0.250000, bound -0.250000 (Rankin (simplex)), optimal
    >>> stars.optimal
    True
    """

    points: Tensor  # (K, d) float64 unit rows
    construction: str  # "simplex" | "E8 roots" | "optimised" | "hpn" | what a user says
    seed: int = 0
    seconds: float = 0.0  # that making them took
    symmetry: str = ""  # where it is known
    code: known.Known | None = field(default=None, repr=False)  # the code whose first K rows these are
    max_cosine: float = field(init=False)  # largest cosine of two different rows
    evidence: str = field(init=False)  # how that is known
    bound: float = field(init=False)  # proven: no K points in d dimensions have a smaller one
    bound_source: str = field(init=False)

    def __post_init__(self) -> None:
        points = check_unit_rows("Prototypes", "points", self.points).detach().cpu().double()
        if len(points) < 2:
            raise ValueError(f"Prototypes: {len(points)} rows came, must be at least 2")
        if self.code is not None and len(points) > MEASURED:
            largest, evidence = self.code.cosine, f"proven: at most that of {self.code.name}"
        else:
            largest, evidence = energy.max_cosine(points), "measured in float64"
        bound, source = bounds.best_bound(*points.shape)
        for name, value in (
            ("points", points),
            ("max_cosine", largest),
            ("evidence", evidence),
            ("bound", bound),
            ("bound_source", source),
        ):
            object.__setattr__(self, name, value)

    @property
    def gap(self) -> float:
        """How far max_cosine lies above the bound."""
        return self.max_cosine - self.bound

    @property
    def optimal(self) -> bool:
        """Whether the bound is met to 1e-9."""
        return self.gap <= bounds.EXACT

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the points: what a run's record names its stars by."""
        return files.checksum({"points": self.points})

    def receipt(self) -> dict[str, Any]:
        """Everything there is to say about them, but the points. What needs all pairs is left out above 20,000 rows."""
        num, dim = self.points.shape
        found: dict[str, Any] = {
            "num_prototypes": num,
            "dim": dim,
            "construction": self.construction,
            "symmetry": self.symmetry,
            "seed": self.seed,
            "seconds": self.seconds,
            "max_cosine": self.max_cosine,
            "evidence": self.evidence,
            "bound": self.bound,
            "bound_source": self.bound_source,
            "gap": self.gap,
            "optimal": self.optimal,
            "mean_cosine": measures.mean_cosine(self.points),
            "frame_condition": measures.frame_condition(self.points),
            "checksum": self.checksum,
        }
        if num <= MEASURED:
            cosines = measures.cosine_range(self.points)
            found |= {
                "min_cosine": cosines.smallest,
                "mean_nearest_cosine": cosines.nearest,
                "uniformity": measures.uniformity(self.points),
                "average_angle": measures.average_angle(self.points),
            }
        return found

    def __len__(self) -> int:
        return len(self.points)

    def __str__(self) -> str:
        quality = "optimal" if self.optimal else f"gap {self.gap:.6f}"
        return (
            f"{self.points.shape[0]} x {self.points.shape[1]}, {self.construction}: "
            f"max cosine {self.max_cosine:.6f}, bound {self.bound:.6f} ({self.bound_source}), {quality}"
        )

    __repr__ = __str__

    def save(self, path: str | Path) -> None:
        """As safetensors, checksummed."""
        metadata = {name: getattr(self, name) for name in ("construction", "seed", "seconds", "symmetry")}
        files.write_tensors(path, {"points": self.points}, metadata)

    @classmethod
    def load(cls, path: str | Path) -> Prototypes:
        """What `save` wrote; the figures of the receipt are measured again, or proven again where the points are a code's."""
        tensors, metadata = files.read_tensors(path)
        if "points" not in tensors:
            raise ValueError(f"{path} holds {', '.join(sorted(tensors))}, must hold 'points': is it a checkpoint?")
        points = tensors["points"]
        code = known.best_known(*points.shape) if len(points) > MEASURED else None
        if code is not None and (code.part(len(points)) != metadata.get("construction") or not code.holds(points)):
            code = None
        construction, symmetry = metadata.get("construction", "unknown"), metadata.get("symmetry", "")
        return cls(points, construction, metadata.get("seed", 0), metadata.get("seconds", 0.0), symmetry, code)


def make_prototypes(
    num_prototypes: int,
    dim: int,
    *,
    kind: str = "auto",
    seed: int = 0,
    seconds: float | None = None,
    vectors: Tensor | None = None,
    subset: int | None = None,
    improved: bool = False,
    cache: bool = True,
    progress: bool = False,
) -> Prototypes:
    """K well-spread unit vectors in d dimensions.

    kind      "auto": the best of what mathematics knows (codes, their subsets and unions) and of what optimisation finds.
              "optimised": by optimisation alone. "gaussian-potential": the recipe of the paper, to compare with. Those of other
              methods: "hpn", "word2vec", "etf", "maxsep", "orthonormal", "hadamard", "equiangular-basis", "random", "learned".
    seconds   search for so long, starting from the best that is known, and keep what is better in the cache, for `improved`.
    vectors   of the class names, for "word2vec" and "hpn"; the rows of a trained head, for "learned".
    subset    for "gaussian-potential": draw so many rows anew in each iteration (equation 5 of the paper) instead of all.
    improved  take the best that calls with `seconds` have left in the cache. Without it the same seed gives the same bits.

    >>> print(make_prototypes(8, 4))
    8 x 4, orthoplex: max cosine 0.000000, bound 0.000000 (Rankin (orthoplex)), optimal
    >>> print(make_prototypes(240, 8))
    240 x 8, E8 roots: max cosine 0.500000, bound 0.500000 (Levenshtein), optimal
    """
    _check(num_prototypes, dim, kind, seed, seconds, subset, vectors)
    began = time.monotonic()
    console = Console(quiet=not progress)
    if kind == "auto":
        points, construction, code = _auto(num_prototypes, dim, seed, seconds, improved, cache, console.update)
    else:
        points, construction, code = (
            _made(kind, num_prototypes, dim, seed, seconds, vectors, subset, cache, console.update),
            kind,
            None,
        )
    console.clear()
    symmetry = code.symmetry if code is not None and code.num == num_prototypes else ""
    return Prototypes(points, construction, seed, time.monotonic() - began, symmetry, code)


def _auto(
    num: int, dim: int, seed: int, seconds: float | None, improved: bool, cache: bool, tell: energy.Progress
) -> tuple[Tensor, str, known.Known | None]:
    """Points, what they are, and the code they belong to."""
    if num <= dim + 1:
        return codes.simplex(num, dim), "simplex", None
    if dim == 2:
        return codes.circle(num), "circle", None
    if num <= 2 * dim:
        return codes.orthoplex(num, dim), "orthoplex", None
    code = known.best_known(num, dim)
    bound = bounds.best_bound(num, dim)[0]
    if code is not None:
        optimal = code.cosine <= bound + bounds.EXACT
        large = num * dim > SMALL and 2 * code.dim > dim and seconds is None
        if optimal or large:
            return code.points(num, dim), code.part(num), code
    starts = [code.points(num, dim)] if code is not None else []
    name = f"improved-{num}x{dim}"
    better = store.load(name) if cache and (improved or seconds is not None) else None
    if seconds is not None:
        points = _optimised(num, dim, seed, seconds, tell, ([better] if better is not None else []) + starts)
        if cache:
            store.keep_best(name, points, energy.max_cosine)
    else:
        points = store.cached(
            f"optimised-{num}x{dim}-seed{seed}", lambda: _optimised(num, dim, seed, None, tell, starts), cache
        )
    found: list[tuple[float, Tensor, str, known.Known | None]] = [
        (energy.max_cosine(points), points, "optimised", None)
    ]
    found += [(energy.max_cosine(better), better, "improved", None)] if better is not None else []
    found += [(energy.max_cosine(starts[0]), starts[0], code.part(num), code)] if code is not None else []
    return min(found, key=lambda f: f[0])[1:]


def _optimised(
    num: int, dim: int, seed: int, seconds: float | None, tell: energy.Progress, starts: list[Tensor]
) -> Tensor:
    if num <= DENSE:
        return energy.search(num, dim, seed, seconds, tell, starts)
    generator = torch.Generator().manual_seed(seed)
    start = energy.random_points(num, dim, generator)
    if starts:
        start = starts[0] + 1e-3 * start
    return blocks.flee(start, seed, seconds or (40.0 if num * dim <= SMALL else 240.0), tell)


def _made(
    kind: str,
    num: int,
    dim: int,
    seed: int,
    seconds: float | None,
    vectors: Tensor | None,
    subset: int | None,
    cache: bool,
    tell: energy.Progress,
) -> Tensor:
    def make() -> Tensor:
        if kind == "optimised":
            return _optimised(num, dim, seed, seconds, tell, [])
        if kind == "gaussian-potential":
            return energy.gaussian_potential(num, dim, seed, subset, tell)
        return PEERS[kind](num, dim, seed, vectors, tell)

    name = f"{kind}-{num}x{dim}-seed{seed}" + (f"-subset{subset}" if subset else "")
    return store.cached(name, make, cache and seconds is None and vectors is None)


def _given(num: int, vectors: Tensor | None, kind: str, dim: int | None = None) -> Tensor:
    if vectors is None or vectors.ndim != 2 or len(vectors) != num or (dim is not None and vectors.shape[1] != dim):
        came = "none" if vectors is None else f"a tensor of shape {tuple(vectors.shape)}"
        raise ValueError(
            f"make_prototypes: kind {kind!r} wants vectors=, came {came}, must be ({num}, {dim or 'any width'}), "
            f"one {'class name' if kind == 'word2vec' else 'prototype'} a row"
        )
    return vectors


def _check(
    num: int, dim: int, kind: str, seed: int, seconds: float | None, subset: int | None, vectors: Tensor | None
) -> None:
    for name, value, low in (("num_prototypes", num, 2), ("dim", dim, 1), ("seed", seed, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise ValueError(f"make_prototypes: {name} came as {value!r}, must be an integer of at least {low}")
    if dim == 1 and num > 2:
        raise ValueError(
            f"make_prototypes: {num} prototypes in 1 dimension, which has room for 2 (+1 and -1): use dim >= 2"
        )
    if kind not in KINDS:
        raise unknown("kind of prototypes", kind, KINDS)
    if seconds is not None and not (seconds > 0 and kind in ("auto", "optimised")):
        raise ValueError(
            f"make_prototypes: seconds came as {seconds!r} with kind {kind!r}, must be positive, and goes with 'auto' and "
            "'optimised' alone; None for a fixed amount of work"
        )
    if subset is not None and (kind != "gaussian-potential" or not 1 <= subset <= num):
        raise ValueError(
            f"make_prototypes: subset={subset} with kind {kind!r}, must be 1..{num} "
            "and goes with kind='gaussian-potential' alone"
        )
    if vectors is not None and kind not in WITH_VECTORS:
        raise ValueError(
            f"make_prototypes: vectors came with kind {kind!r}, which takes none: leave them out, or choose one of "
            f"{', '.join(WITH_VECTORS)}"
        )
    need, have = 2.2 * 8 * num * dim, _memory()
    if need > have:
        raise ValueError(
            f"make_prototypes: {num} x {dim} needs {need / 2**30:.1f} GiB of memory, this machine has {have / 2**30:.1f}: "
            "use fewer prototypes or dimensions; AlgebraicCode.rows gives single rows of the large codes"
        )


def _memory() -> float:
    """Bytes of the machine, as far as it tells."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return float("inf")
