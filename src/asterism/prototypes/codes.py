"""Exact constructions, optimal by theorem. Each returns K float64 unit rows in d dimensions, (K, d)."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def circle(num: int) -> Tensor:
    """K points at equal angles; the largest cosine is cos(2 pi / K)."""
    angle = torch.arange(num, dtype=torch.float64) * (2 * math.pi / num)
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def simplex(num: int, dim: int) -> Tensor:
    """K <= d + 1 points with all cosines -1 / (K - 1), in the first K - 1 coordinates.

    Row by row: axis i carries point i up and all later points down by the same amount, so that each axis sums to zero.
    """
    points = torch.zeros(num, dim, dtype=torch.float64)
    for i in range(num - 1):
        left = num - 1 - i  # points after i; what is left of the unit length of each falls by this axis
        points[i, i] = math.sqrt(num * left / ((num - 1) * (left + 1)))
        points[i + 1 :, i] = -points[i, i] / left
    return points


def orthoplex(num: int, dim: int) -> Tensor:
    """K <= 2d of the points +-e_i, all + before any -, so that a class has an opposite only when K > d makes it so."""
    eye = torch.eye(dim, dtype=torch.float64)
    return torch.cat([eye, -eye])[:num]
