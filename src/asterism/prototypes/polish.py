"""To the bottom of the valley: the local minimum of the largest cosine, to the last digits. (K, d) float64 unit rows.

    minimise s   subject to   w_i . w_j <= s  for all i != j,   |w_i| = 1

by a primal-dual interior-point method with exact second derivatives (Nocedal and Wright, Numerical Optimization, ch. 19). Each
pair has a slack u_ij = s - w_i . w_j > 0 and a multiplier l_ij >= 0; on the way l_ij u_ij = mu, and mu falls to nothing once
Newton's decrement is below it. With c_ij = w_i . w_j and the multipliers of ordered pairs adding up to 1, a step (dw, ds), dw
tangent to the spheres, solves

    (H + J' D J) dw - J' D 1 ds = -J' (mu / u),     1' D J dw - 1' D 1 ds = 1 - sum mu / u,      D = l / u,

J the derivative of c and H that of J' l on the spheres. Only pairs within WIDTH of the largest cosine are carried; another one
that comes near joins them. The matrix is (K d, K d): for small problems.
"""

from __future__ import annotations

import torch
from torch import Tensor

LIMIT = 1500  # K d; a step takes a Cholesky factorisation or two of this size, and there are some hundred
WIDTH = 0.05
PRECISION = 1e-11  # of the largest cosine


@torch.no_grad()
def polish(points: Tensor) -> Tensor:
    """The local minimum that `points` lie near, or `points` as they came where it is no better or K d > LIMIT.

    >>> octahedron = polish(torch.tensor([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0.1], [0, -1, 0.1], [0, 0, 1], [0, 0.1, -1]]).double())
    >>> round((octahedron @ octahedron.T).fill_diagonal_(-1).max().item(), 9)
    0.0
    """
    w = points / torch.linalg.vector_norm(points, dim=1, keepdim=True)
    K, d = w.shape
    if K * d > LIMIT:
        return points
    cosines = _cosines(w)
    start = cosines.max().item()
    near = cosines > start - WIDTH  # (K, K)
    pairs = int(near.sum())
    mu = 1e-3 / pairs
    s = _central(cosines[near], mu)
    multipliers = torch.where(near, mu / (s - cosines), 0.0)
    shift = 0.0  # added to the diagonal where the matrix is not positive definite
    for _ in range(300):
        slack = torch.where(near, s - cosines, 1.0)
        step, rise, slope, shift = _newton(w, cosines, near, slack, multipliers, mu, shift)
        change = step @ w.T
        change = rise - (change + change.T)  # of the slacks, to first order
        shorter = near & (change < 0)
        length = min(1.0, 0.5 / step.norm(dim=1).max().clamp(min=1e-300).item())
        if shorter.any():
            length = min(length, 0.995 * (-slack[shorter] / change[shorter]).min().item())
        height = s - mu * slack[near].log().sum().item()
        for _ in range(30):
            w_new = w + length * step
            w_new = w_new / torch.linalg.vector_norm(w_new, dim=1, keepdim=True)
            c_new, s_new = _cosines(w_new), s + length * rise
            u_new = s_new - c_new
            if (
                c_new.max() < s_new
                and s_new - mu * u_new[near].log().sum().item() <= height + 1e-4 * length * slope + 1e-15
            ):
                break
            length *= 0.5
        else:
            break  # rounding is all that is left
        moved = torch.where(near, mu / slack - multipliers - multipliers / slack * change, 0.0)
        falling = moved < 0
        dual = min(1.0, 0.995 * (-multipliers[falling] / moved[falling]).min().item()) if falling.any() else 1.0
        multipliers = multipliers + dual * moved
        w, cosines, s = w_new, c_new, s_new
        near_new = near | (cosines > cosines.max() - WIDTH)
        central = torch.where(near_new, mu / (s - cosines), 0.0)
        multipliers = torch.where(near, multipliers.maximum(central / 100).minimum(central * 100), central)
        near = near_new
        if -slope < mu:
            if mu * pairs < PRECISION:
                break
            mu = max(0.2 * mu, 0.9 * PRECISION / pairs)
    return w if cosines.max() < start else points


def _newton(
    w: Tensor, cosines: Tensor, near: Tensor, slack: Tensor, multipliers: Tensor, mu: float, shift: float
) -> tuple[Tensor, float, float, float]:
    """The step dw (K, d), ds, the slope of the barrier along it, and the shift that made the matrix positive definite."""
    K, d = w.shape
    rows = torch.arange(K)
    eye = torch.eye(d, dtype=w.dtype)
    stiff = torch.where(near, multipliers / slack, 0.0)  # D
    barrier = torch.where(near, mu / slack, 0.0)
    matrix = torch.einsum("ij,ja,ib->iajb", 2 * stiff, w, w)
    matrix += torch.einsum("ij,ab->iajb", 2 * multipliers, eye)
    matrix[rows, :, rows, :] += torch.einsum("ij,ja,jb->iab", 2 * stiff, w, w)
    matrix[rows, :, rows, :] -= (2 * multipliers * cosines).sum(dim=1)[
        :, None, None
    ] * eye  # the spheres' own curvature
    tangent = eye - w[:, :, None] * w[:, None, :]  # (K, d, d)
    matrix = torch.einsum("iab,ibjc->iajc", tangent, matrix)
    matrix = torch.einsum("iajb,jbc->iajc", matrix, tangent)
    matrix[rows, :, rows, :] += w[:, :, None] * w[:, None, :]  # off the tangent space: anything positive
    matrix = matrix.reshape(K * d, K * d)

    def project(v: Tensor) -> Tensor:
        return (v - (v * w).sum(dim=1, keepdim=True) * w).reshape(-1)

    whole = stiff.sum()
    edge = project(2 * stiff @ w)
    pull, rest = -project(2 * barrier @ w), 1 - barrier.sum()
    matrix -= torch.outer(edge, edge) / whole  # ds eliminated
    diagonal = matrix.diagonal().clone()
    shift = shift / 4 if shift > 1e-9 else 0.0
    while True:
        matrix.diagonal().copy_(diagonal + shift)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if not failed:
            break
        shift = max(4 * shift, 1e-6)
    step = torch.cholesky_solve((pull - edge * rest / whole)[:, None], factor)[:, 0]
    step = project(step.reshape(K, d))
    rise = (edge @ step - rest) / whole
    slope = rest * rise - pull @ step
    return step.reshape(K, d), rise.item(), min(slope.item(), 0.0), shift


def _cosines(w: Tensor) -> Tensor:
    return (w @ w.T).fill_diagonal_(-2)


def _central(cosines: Tensor, mu: float) -> float:
    """The s at which the multipliers mu / (s - c) add up to 1, by bisection."""
    low, high = cosines.max().item(), cosines.max().item() + mu * len(cosines)
    for _ in range(60):
        middle = (low + high) / 2
        if (mu / (middle - cosines)).sum() > 1:
            low = middle
        else:
            high = middle
    return high
