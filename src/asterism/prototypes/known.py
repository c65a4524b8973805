"""What mathematics has ready for K points in d dimensions: whole codes, their first K rows, unions in orthogonal subspaces.

A subset of a code has no larger cosine than the code, and zeros for coordinates change none: a code of at least K points in at
most d dimensions is a candidate. Codes in subspaces that are orthogonal to each other have cosine 0 across.

K points, d dimensions: (K, d) float64 unit rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from asterism.prototypes import algebraic, codes

BLOCK = 2**15  # rows made at a time


@dataclass(frozen=True, eq=False)
class Known:
    name: str
    num: int  # of the whole code
    dim: int
    cosine: float  # no two different rows have a larger one: by theorem or exact arithmetic
    symmetry: str
    fill: Callable[[Tensor], None]  # writes the first rows into a matrix of zeros (K, d)
    code: Any = None  # the Code, AlgebraicCode or ShortenedCode behind it

    def points(self, num: int, dim: int) -> Tensor:
        """The first rows, (K, d), zeros behind the code's own coordinates."""
        out = torch.zeros(num, dim, dtype=torch.float64)
        self.fill(out)
        return out

    def holds(self, points: Tensor) -> bool:
        """Whether these are its first rows."""
        return torch.equal(points, self.points(*points.shape))

    def part(self, num: int) -> str:
        """What K rows of it are called."""
        return self.name if num == self.num else f"{num} of {self.name}"


def best_known(num: int, dim: int) -> Known | None:
    """The candidate with the smallest cosine, None where no code is large enough.

    >>> best_known(200, 8).name, best_known(200, 8).cosine
    ('E8 roots', 0.5)
    """
    fit: list[Any] = [*codes.candidates(num, dim)[:1], *algebraic.candidates(num, dim)[:1]]
    found = [_of(code) for code in fit]
    union = _best_union(num, dim)
    return min([*found, *([union] if union else [])], key=lambda k: (k.cosine, k.dim, k.num), default=None)


def _of(code: Any) -> Known:  # a Code, AlgebraicCode or ShortenedCode
    def fill(out: Tensor) -> None:
        if isinstance(code, codes.Code):
            out[:, : code.dim] = code.build()[: len(out)]
            return
        for start in range(0, len(out), BLOCK):
            index = torch.arange(start, min(start + BLOCK, len(out)))
            out[index[0] : index[-1] + 1, : code.dim] = code.rows(index)

    return Known(code.name, code.num, code.dim, code.cosine, code.symmetry, fill, code)


def _best_union(num: int, dim: int) -> Known | None:
    """Several codes side by side, d shared out among them so that there are enough points; the smallest cosine that allows it.

    Two points of each line left over (cosine 0) are the last resort of every union.
    """
    every: list[Any] = [*codes.CODES, *algebraic.candidates(1, dim)]
    useful = [_of(c) for c in every if c.cosine >= 0 and 2 * c.dim <= dim and c.num > 2 * c.dim]
    parts = sorted(useful, key=lambda k: k.cosine)
    levels = sorted({part.cosine for part in parts})
    low, high, best = 0, len(levels), None
    while low < high:
        middle = (low + high) // 2
        chosen = _shares([p for p in parts if p.cosine <= levels[middle]], dim)
        if sum(p.num for p in chosen) + 2 * (dim - sum(p.dim for p in chosen)) >= num:
            best, high = chosen, middle
        else:
            low = middle + 1
    if not best:
        return None

    def fill(out: Tensor) -> None:
        row = column = 0
        for part in best:
            rows = out[row : row + part.num, column : column + part.dim]
            part.fill(rows)
            row, column = row + len(rows), column + part.dim
        left = (
            codes.orthoplex(2 * (dim - column), dim - column)[: max(0, len(out) - row)] if column < dim else out[:0, :0]
        )
        out[row : row + len(left), column:] = left

    spare = dim - sum(p.dim for p in best)
    name = "union of " + " + ".join([*(p.name for p in best), *([f"{2 * spare} x {spare} orthoplex"] if spare else [])])
    return Known(name, sum(p.num for p in best) + 2 * spare, dim, max(p.cosine for p in best), "", fill)


def _shares(parts: list[Known], dim: int) -> list[Known]:
    """Codes, some repeatedly, whose dimensions add up to at most d, with the most points: a knapsack."""
    most, last = [0] * (dim + 1), [None] * (dim + 1)  # type: tuple[list[int], list[Known | None]]
    for room in range(1, dim + 1):
        most[room], last[room] = most[room - 1] + 2, None
        for part in parts:
            if part.dim <= room and most[room - part.dim] + part.num > most[room]:
                most[room], last[room] = most[room - part.dim] + part.num, part
    chosen, room = [], dim
    while room > 0:
        taken = last[room]
        if taken is None:
            room -= 1
        else:
            chosen.append(taken)
            room -= taken.dim
    return chosen
