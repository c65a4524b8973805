"""How well K unit rows are spread over the sphere: the figures that the paper and its peers print.

    average angle    mean over i < j of arccos(w_i . w_j)                        APAD; any set that sums to zero does well
    uniformity       log( 1/K sum_i sum_j exp(-t |w_i - w_j|^2) )                L_uni, equation 5 with the whole set
    mean cosine      mean over i < j of w_i . w_j                                (|sum_i w_i|^2 - K) / (K (K - 1))
    frame condition  largest / smallest eigenvalue of d/K sum_i w_i w_i^T        1: a tight frame

K prototypes, d dimension: points (K, d), any floating type, measured in float64. What needs all pairs takes them by blocks of
rows, never as one K x K matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from asterism.checks import check_unit_rows


class CosineRange(NamedTuple):
    """Cosines of two different rows."""

    smallest: float
    largest: float
    nearest: float  # mean over the rows of the largest cosine of each
    deviation: float  # standard deviation over all pairs


def average_angle(points: Tensor) -> float:
    """Average pairwise angular distance (APAD), in radians.

    >>> round(average_angle(torch.eye(3)), 6) == round(math.pi / 2, 6)
    True
    """
    points = _rows("average_angle", points)
    total = sum(block.acos().triu(start + 1).sum().item() for start, block in _cosines(points))
    return total / math.comb(len(points), 2)


def uniformity(points: Tensor, t: float = 2.0) -> float:
    """L_uni of the paper (equation 5) over the whole set, with the kernel exp(-t |u - v|^2). Lower is more even.

    >>> uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), t=0.0) == math.log(2)
    True
    """
    points = _rows("uniformity", points)
    total = sum((2 * t * (block - 1)).exp().sum().item() for _, block in _cosines(points))
    return math.log(total / len(points))


def mean_cosine(points: Tensor) -> float:
    """Average cosine of two different rows, without forming any of them.

    >>> round(mean_cosine(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])), 12)
    -1.0
    """
    points = _rows("mean_cosine", points)
    return (points.sum(dim=0).square().sum() - points.square().sum()).item() / (len(points) * (len(points) - 1))


def cosine_range(points: Tensor) -> CosineRange:
    """Smallest and largest cosine of two different rows, the mean of the nearest, and how far all of them vary.

    >>> cosine_range(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]))[:2]
    (-1.0, 0.0)
    """
    points = _rows("cosine_range", points)
    num = len(points)
    smallest, nearest, squares = 1.0, [], 0.0
    mean = mean_cosine(points)
    for start, block in _cosines(points):
        rows = torch.arange(len(block))
        block[rows, rows + start] = mean
        squares += (block - mean).square().sum().item()
        block[rows, rows + start] = 2.0  # above every cosine
        smallest = min(smallest, block.min().item())
        block[rows, rows + start] = -2.0  # below every cosine
        nearest.append(block.amax(dim=1))
    best = torch.cat(nearest)
    return CosineRange(smallest, best.max().item(), best.mean().item(), math.sqrt(squares / (num * (num - 1))))


def frame_condition(points: Tensor) -> float:
    """Condition number of the second moment d/K sum w w^T: 1 for a tight frame, inf where the rows miss a direction.

    >>> round(frame_condition(torch.cat([torch.eye(3), -torch.eye(3)])), 12)
    1.0
    """
    points = _rows("frame_condition", points)
    eigenvalues = torch.linalg.eigvalsh(points.T @ points * (points.shape[1] / len(points)))  # (d,) rising
    low, high = eigenvalues[0].item(), eigenvalues[-1].item()
    return high / low if low > 1e-12 * high else math.inf


def mean_norm(points: Tensor) -> float:
    """Length of the mean row: 0 for a set that sums to zero.

    >>> mean_norm(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    0.0
    """
    return torch.linalg.vector_norm(_rows("mean_norm", points).mean(dim=0)).item()


def _rows(who: str, points: Tensor) -> Tensor:
    points = check_unit_rows(who, "points", points).detach().cpu().double()
    if len(points) < 2:
        raise ValueError(f"{who}: {len(points)} rows came, must be at least 2: the measures are of pairs")
    return points


def _cosines(points: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The rows of the Gram matrix by blocks: number of the first row, cosines (block, K)."""
    block = max(1, 2**23 // len(points))
    for start in range(0, len(points), block):
        yield start, (points[start : start + block] @ points.T).clamp_(-1, 1)
