"""Where the stars are: (K, d) -> Prototypes, with a receipt that says how good they are and how good any set could be.

K prototypes, d dimension. bounds.py proves what no set can beat, codes.py builds exact sets, energy.py optimises where none
is known, store.py keeps what took time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from torch import Tensor

from asterism import files
from asterism.checks import check_unit_rows, unknown
from asterism.console import Console
from asterism.prototypes import bounds, codes, energy
from asterism.prototypes.store import cached

KINDS = ("auto", "optimised", "gaussian-potential")


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
    construction: str  # "circle" | "simplex" | "orthoplex" | "optimised" | "gaussian-potential" | what a user says
    seed: int = 0
    max_cosine: float = field(init=False)  # largest cosine of two different rows
    evidence: str = field(init=False, default="measured in float64")
    bound: float = field(init=False)  # proven: no K points in d dimensions have a smaller one
    bound_source: str = field(init=False)

    def __post_init__(self) -> None:
        points = check_unit_rows("Prototypes", "points", self.points).detach().cpu().double()
        if len(points) < 2:
            raise ValueError(f"Prototypes: {len(points)} rows came, must be at least 2")
        bound, source = bounds.best_bound(*points.shape)
        for name, value in (
            ("points", points),
            ("max_cosine", energy.max_cosine(points)),
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
        files.write_tensors(path, {"points": self.points}, {"construction": self.construction, "seed": self.seed})

    @classmethod
    def load(cls, path: str | Path) -> Prototypes:
        """What `save` wrote; the figures of the receipt are measured again."""
        tensors, metadata = files.read_tensors(path)
        if "points" not in tensors:
            raise ValueError(f"{path} holds {', '.join(sorted(tensors))}, must hold 'points': is it a checkpoint?")
        return cls(tensors["points"], metadata.get("construction", "unknown"), metadata.get("seed", 0))


def make_prototypes(
    num_prototypes: int,
    dim: int,
    *,
    kind: str = "auto",
    seed: int = 0,
    seconds: float | None = None,
    subset: int | None = None,
    cache: bool = True,
    progress: bool = False,
) -> Prototypes:
    """K well-spread unit vectors in d dimensions.

    kind      "auto": exact where mathematics knows the optimum (circle, simplex for d >= K - 1, orthoplex for K <= 2d),
              else optimised. "optimised": always by annealing. "gaussian-potential": the recipe of the paper, to compare with.
    seconds   go on with further starts for so long and keep the best; not cached, since it depends on the machine.
    subset    for "gaussian-potential": draw so many rows anew in each iteration (equation 5 of the paper) instead of all.

    >>> print(make_prototypes(8, 4))
    8 x 4, orthoplex: max cosine 0.000000, bound 0.000000 (Rankin (orthoplex)), optimal
    """
    _check(num_prototypes, dim, kind, seed, seconds, subset)
    exact = _exact(num_prototypes, dim) if kind == "auto" else None
    if exact:
        return Prototypes(exact[1](), exact[0], seed)
    console = Console(quiet=not progress)
    report = console.update
    if kind == "gaussian-potential":
        construction = kind

        def make() -> Tensor:
            return energy.gaussian_potential(num_prototypes, dim, seed, subset, report)
    else:
        construction = "optimised"

        def make() -> Tensor:
            return energy.anneal(num_prototypes, dim, seed, seconds, report)

    name = f"{construction}-{num_prototypes}x{dim}-seed{seed}" + (f"-subset{subset}" if subset else "")
    points = cached(name, make) if cache and seconds is None else make()
    console.clear()
    return Prototypes(points, construction, seed)


def _exact(num: int, dim: int) -> tuple[str, Callable[[], Tensor]] | None:
    if num <= dim + 1:
        return "simplex", lambda: codes.simplex(num, dim)
    if dim == 2:
        return "circle", lambda: codes.circle(num)
    if num <= 2 * dim:
        return "orthoplex", lambda: codes.orthoplex(num, dim)
    return None


def _check(num: int, dim: int, kind: str, seed: int, seconds: float | None, subset: int | None) -> None:
    for name, value, low in (("num_prototypes", num, 2), ("dim", dim, 1), ("seed", seed, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise ValueError(f"make_prototypes: {name} came as {value!r}, must be an integer of at least {low}")
    if dim == 1 and num > 2:
        raise ValueError(
            f"make_prototypes: {num} prototypes in 1 dimension, which has room for 2 (+1 and -1): use dim >= 2"
        )
    if kind not in KINDS:
        raise unknown("kind of prototypes", kind, KINDS)
    if seconds is not None and not seconds > 0:
        raise ValueError(
            f"make_prototypes: seconds came as {seconds!r}, must be positive, or None for a fixed number of starts"
        )
    if subset is not None and (kind != "gaussian-potential" or not 1 <= subset <= num):
        raise ValueError(
            f"make_prototypes: subset={subset} with kind {kind!r}, must be 1..{num} "
            "and goes with kind='gaussian-potential' alone"
        )
