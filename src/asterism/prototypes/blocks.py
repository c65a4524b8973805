"""Well-spread points where no K x K matrix fits: each point flees its nearest neighbours, a block of points at a time.

A sweep takes the points in random order, B at a time. One product (B, K) finds the M nearest neighbours of each; then each point
goes downhill on its own log-sum-exp over them, 1/t log sum_j exp(t x . n_j), the neighbours at rest. t rises from sweep to sweep
and the steps shorten with 1/t. Memory: O(K d + B K).

K points, d dimensions; float32 on the way, (K, d) float64 unit rows in the end.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

NEIGHBOURS = 64  # M
STEPS = 10  # of a point in a sweep
FIRST, LAST = 5.0, 1000.0  # t


@torch.no_grad()
def flee(start: Tensor, seed: int, seconds: float, progress: Callable[[str], None]) -> Tensor:
    """`start` (K, d), spread out. The number of sweeps is planned by what they should take on two common cores, so that the same
    call does the same work everywhere."""
    K, d = start.shape
    sweeps = max(3, min(40, int(seconds / (K**2 * (d / 5e10 + 3e-9)))))
    block = max(16, min(K // 8, 2**24 // K))
    generator = torch.Generator().manual_seed(seed)
    points, began = start.float(), time.monotonic()
    try:
        for sweep in range(sweeps):
            t = FIRST * (LAST / FIRST) ** (sweep / (sweeps - 1))
            nearest = []
            for rows in torch.randperm(K, generator=generator).split(block):
                cosines = points[rows] @ points.T  # (B, K)
                cosines[torch.arange(len(rows)), rows] = -2.0
                nearest.append(cosines.amax(dim=1))
                index = cosines.topk(min(NEIGHBOURS, K - 1), dim=1, sorted=False).indices
                points[rows] = _away(points[rows], points[index], t)
                found = torch.cat(nearest).mean()
                done = (sweep + len(nearest) * block / K) / sweeps
                progress(
                    f"{K} x {d}: sweep {sweep + 1} of {sweeps}, mean nearest cosine {found:.4f}, "
                    f"{(time.monotonic() - began) * (1 / min(done, 1) - 1):.0f} s left"
                )
    except KeyboardInterrupt:
        warnings.warn(
            f"stopped by hand in sweep {sweep + 1} of {sweeps}: the points are kept as they stand", stacklevel=4
        )
    points = points.double()
    return points / torch.linalg.vector_norm(points, dim=1, keepdim=True)


def _away(x: Tensor, neighbours: Tensor, t: float) -> Tensor:
    """x (B, d), neighbours (B, M, d)"""
    for _ in range(STEPS):
        cosines = torch.bmm(neighbours, x[:, :, None])[:, :, 0]  # (B, M)
        pull = torch.bmm((t * cosines).softmax(dim=1)[:, None, :], neighbours)[:, 0]  # (B, d)
        x = x - (3 / t) * (pull - (pull * x).sum(dim=1, keepdim=True) * x)
        x = x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x
