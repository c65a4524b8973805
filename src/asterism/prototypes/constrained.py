"""The well-separated set closest to given directions: a bridge from learned geometry (class means, word vectors) to fixed stars.

    maximise  sum_i w_i . t_i    subject to  |w_i| = 1,   w_i . w_j <= s = cos(min_angle)  for i != j.

With multipliers L (K, K), symmetric, >= 0, diagonal 0, and m (K,) for the unit lengths, a solution satisfies

    M W = T,   M = L + diag(m),   m_i = w_i . t_i - sum_j L_ij w_i . w_j,   L_ij = 0 where w_i . w_j < s.

1. An augmented Lagrangian, each stage by L-BFGS, starts at the targets and finds which pairs touch.
2. Newton steps on these equations (MINRES, no matrix is formed), the pairs that touch kept at s, bring them to rounding.
3. Where that does not separate, as it may close to the largest angle that is possible, the best known set of K points in d
   dimensions is turned and numbered to fit the targets, and is the start for 2.

Any L >= 0 and m with M positive definite prove a bound, since for all allowed W

    sum_i w_i . t_i  <=  tr(W^T T) - tr(W^T M W) / 2 + sum_i m_i / 2 + s sum_{i<j} L_ij
                     <=  tr(T^T M^{-1} T) / 2        + sum_i m_i / 2 + s sum_{i<j} L_ij,

and where M of the solution is positive definite, the two sides meet: the set is the best of all, not only of its neighbours.

K points, d dimension: targets T and points W (K, d).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from asterism.checks import check_matrix
from asterism.console import Console
from asterism.prototypes import bounds
from asterism.prototypes.energy import Progress, max_cosine, random_points, threads_for
from asterism.sphere import unit

LIMIT = 5000  # points; some eight K x K float64 matrices are held at once: 1.5 GiB
INSIDE = 1e-12  # how far below the largest cosine allowed the solver aims, so that rounding does not lift it above
ROUNDING = 1e-14  # what a cosine may be off by rounding alone, where an angle is asked for that only one set reaches
STATIONARY = 1e-6


@dataclass(frozen=True, eq=False)
class NearSet:
    """Points under a guaranteed separation, close to their targets, and the receipt. Angles are in radians.

    >>> print(near(torch.tensor([[1.0, 0.1], [1.0, -0.1]]), min_angle=math.pi / 2))
    2 x 2, at least 90.00 degrees apart: mean cosine to the targets 0.773957, bound 0.773957 (optimal), largest turn 39.3 degrees
    """

    points: Tensor  # (K, d) float64 unit rows, row i for target i
    asked: float  # the separation that was asked for
    min_angle: float  # the one that was reached, never smaller but for rounding
    mean_cosine: float  # of points and targets; targets of zeros do not count
    bound: float  # proven: no set under this separation has a larger mean cosine
    max_displacement: float  # largest angle between a point and its target
    kkt_residual: float  # of the first-order conditions: slope along the sphere, multiplier times slack, largest entry
    seconds: float

    @property
    def gap(self) -> float:
        """How far mean_cosine lies below the bound."""
        return self.bound - self.mean_cosine

    @property
    def optimal(self) -> bool:
        """Whether it is proven that no set under this separation is closer to the targets."""
        return self.gap <= bounds.EXACT

    @property
    def stationary(self) -> bool:
        """Whether the first-order conditions of a local optimum hold, to 1e-6."""
        return self.kkt_residual <= STATIONARY

    def __str__(self) -> str:
        local = f"stationary to {self.kkt_residual:.0e}" if self.stationary else "not shown to be stationary"
        return (
            f"{self.points.shape[0]} x {self.points.shape[1]}, at least {math.degrees(self.min_angle):.2f} degrees apart: "
            f"mean cosine to the targets {self.mean_cosine:.6f}, bound {self.bound:.6f} "
            f"({'optimal' if self.optimal else local}), largest turn {math.degrees(self.max_displacement):.1f} degrees"
        )

    __repr__ = __str__


def near(targets: Tensor, *, min_angle: float, seed: int = 0, progress: bool = False) -> NearSet:
    """The set of unit rows closest to `targets` (K, d) in which any two rows are at least `min_angle` (radians) apart.

    Targets may have any length and may coincide (the seed then decides who goes where); a row of zeros has no wish and takes
    what room is left. What comes back holds the separation, or a ValueError says that it cannot be had or was not found.

    >>> stars = near(torch.ones(4, 8), min_angle=math.radians(80))
    >>> round(math.degrees(stars.min_angle), 6), stars.stationary
    (80.0, True)
    """
    began = time.monotonic()
    goal = _check(targets, min_angle, seed)
    num, dim = goal.shape
    limit = math.cos(min_angle)
    aim = limit - INSIDE
    console = Console(quiet=not progress)
    with threads_for(float(num) ** 2 * dim):
        points, multipliers = _augmented_lagrangian(goal, _scattered(goal, seed), aim, console.update)
        points, multipliers = _polish(goal, points, multipliers, aim, console.update)
        closest, bound = max_cosine(points), _bound(goal, points, multipliers, limit)
        if closest > limit + ROUNDING:
            known = _fitted(goal, seed)
            closest = min(closest, max_cosine(known))
            points, multipliers = _polish(goal, known, torch.zeros_like(multipliers), aim, console.update)
            bound = min(bound, _bound(goal, points, multipliers, limit))
    console.clear()
    if max_cosine(points) > limit + ROUNDING:
        raise ValueError(
            f"near: no {num} points in {dim} dimensions were found {min_angle:.6f} radians ({math.degrees(min_angle):.3f} "
            f"degrees) apart, the largest angle found is {math.acos(closest):.6f}: ask for no more than that"
        )
    cosines = (points * goal).sum(dim=1)[goal.any(dim=1)].clamp(-1, 1)
    return NearSet(
        points=points,
        asked=min_angle,
        min_angle=math.acos(max_cosine(points)),
        mean_cosine=cosines.mean().item(),
        bound=min(1.0, bound / len(cosines)),
        max_displacement=cosines.min().acos().item(),
        kkt_residual=_residual(goal, points, multipliers, limit),
        seconds=time.monotonic() - began,
    )


def _check(targets: Tensor, min_angle: float, seed: int) -> Tensor:
    goal = unit(check_matrix("near", "targets", targets).detach().cpu().double())
    num, dim = goal.shape
    if num < 2 or dim < 2:
        raise ValueError(f"near: targets came as {num} x {dim}, must be at least two rows in at least two dimensions")
    if not goal.any():
        raise ValueError("near: all targets are zeros, at least one must have a direction")
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"near: seed came as {seed!r}, must be an integer of at least 0")
    if not 1e-4 <= min_angle <= math.pi:
        raise ValueError(
            f"near: min_angle came as {min_angle!r}, must be 1e-4 to pi, in radians: 80 degrees are math.radians(80)"
        )
    if num > LIMIT:
        raise ValueError(
            f"near: {num} targets need {num**2 * 64 / 2**30:.0f} GiB for the multipliers of all pairs, "
            f"at most {LIMIT} can be separated at once"
        )
    bound, source = bounds.best_bound(num, dim)
    if bound > math.cos(min_angle) + INSIDE:
        raise ValueError(
            f"near: min_angle came as {min_angle:.6f} radians ({math.degrees(min_angle):.3f} degrees), but no {num} points in "
            f"{dim} dimensions are more than {math.acos(bound):.6f} apart ({source}): ask for less, or use more dimensions"
        )
    return goal


class _Patience(NamedTuple):
    descent: int  # L-BFGS steps a stage
    minres: int  # its steps for one of Newton's
    tries: int  # series of Newton steps


def _patience(points: Tensor) -> _Patience:
    """Small problems may take more steps: near the largest angle that is possible they need them."""
    return _Patience(200, 1000, 8) if points.numel() * len(points) < 1e7 else _Patience(60, 300, 3)


def _scattered(goal: Tensor, seed: int) -> Tensor:
    """The targets, moved by a thousandth, so that those that coincide have somewhere to go; zeros go anywhere."""
    num, dim = goal.shape
    noise = random_points(num, dim, torch.Generator().manual_seed(seed))
    return unit(goal + torch.where(goal.any(dim=1, keepdim=True), 1e-3, 1.0) * noise)


def _augmented_lagrangian(goal: Tensor, start: Tensor, aim: float, progress: Progress) -> tuple[Tensor, Tensor]:
    """Points (K, d) and multipliers (K, K), to some five digits, in at most twenty stages of

    minimise  -sum_i w_i . t_i + 1 / (2 r) sum_{i<j} max(0, L_ij + r (w_i . w_j - s))^2,   then   L = that max.
    """
    points, weight, before = start, 10.0, math.inf
    multipliers = torch.zeros(len(goal), len(goal), dtype=torch.float64)
    for stage in range(20):
        points = _minimise(goal, points, multipliers, weight, aim)
        multipliers = _forces(points, multipliers, weight, aim)
        excess = max_cosine(points) - aim
        progress(f"stage {stage + 1}, largest cosine {excess:.1e} above the limit")
        if excess < 1e-5 and _slope(goal, points, multipliers).abs().max() < 1e-4:
            break
        if excess > before / 4:
            weight = min(3 * weight, 1000.0)
        before = excess
    return points, multipliers


def _forces(points: Tensor, multipliers: Tensor, weight: float, aim: float) -> Tensor:
    return (points @ points.T).sub_(aim).mul_(weight).add_(multipliers).fill_diagonal_(0).clamp_(min=0)


def _minimise(goal: Tensor, points: Tensor, multipliers: Tensor, weight: float, aim: float) -> Tensor:
    """L-BFGS over unnormalised rows x, w = x / |x|, with the gradient written out."""
    x = points.clone().requires_grad_()
    x.grad = torch.zeros_like(x)

    @torch.no_grad()
    def energy() -> Tensor:
        length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        w = x / length
        forces = _forces(w, multipliers, weight, aim)
        x.grad.copy_(_along_sphere(forces @ w - goal, w) / length)  # type: ignore[union-attr]
        return forces.square().sum() / (4 * weight) - (w * goal).sum()

    torch.optim.LBFGS(
        [x],
        max_iter=_patience(points).descent,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-10,
        tolerance_change=1e-16,
    ).step(energy)
    return unit(x.detach())


def _along_sphere(vectors: Tensor, points: Tensor) -> Tensor:
    return vectors - (vectors * points).sum(dim=1, keepdim=True) * points


def _slope(goal: Tensor, points: Tensor, multipliers: Tensor) -> Tensor:
    """Gradient of the Lagrangian along the sphere, (K, d): 0 at a solution."""
    return _along_sphere(multipliers @ points - goal, points)


def _residual(goal: Tensor, points: Tensor, multipliers: Tensor, limit: float) -> float:
    """Largest violation of a first-order condition: slope, separation, multipliers of pairs that do not touch."""
    excess = (points @ points.T).sub_(limit).fill_diagonal_(0)
    slack = (multipliers * excess.clamp(max=0)).abs().max()
    return max(_slope(goal, points, multipliers).abs().max().item(), excess.max().item(), slack.item())


def _polish(goal: Tensor, points: Tensor, multipliers: Tensor, aim: float, progress: Progress) -> tuple[Tensor, Tensor]:
    """Points that hold the separation to rounding, and their multipliers.

    Where Newton's steps do not settle, the points are held back: with a goal of  e T + (1 - e) W  instead of T the problem is the
    better posed the smaller e is (in the end it asks for the nearest separated set), and its solution is the start for a larger.
    """
    ease = 1.0
    for _ in range(_patience(points).tries):
        settled = _newton(ease * goal + (1 - ease) * points, points, ease * multipliers, aim, progress)
        if settled:
            points, multipliers = settled[0], settled[1] / ease
            if ease == 1.0:
                break
        ease = min(1.0, 3 * ease) if settled else ease / 3
    return points, multipliers


def _newton(
    goal: Tensor, points: Tensor, multipliers: Tensor, aim: float, progress: Progress
) -> tuple[Tensor, Tensor] | None:
    """Newton steps with the touching pairs held at `aim`; pairs that pull leave them, pairs that overlap join them.

    None where the steps do not settle.
    """
    touching = multipliers.triu(1) > 0
    best, since = math.inf, 0
    while since < 5:
        moves, changes = _newton_step(goal, points, multipliers, touching, aim)
        points = unit(points + moves)
        multipliers = (multipliers + changes).clamp_(min=0)
        overlapping = (points @ points.T > aim + INSIDE / 2).triu(1)
        kept = (multipliers.triu(1) > 0) | (overlapping & ~touching)
        residual = _residual(goal, points, multipliers, aim)
        progress(f"{int(kept.sum())} pairs touch, residual {residual:.1e}")
        if not overlapping.any() and residual < 1e-9:
            return points, multipliers
        best, since = (residual, 0) if residual < best / 2 else (best, since + 1)
        touching = kept
    return None


def _newton_step(
    goal: Tensor, points: Tensor, multipliers: Tensor, touching: Tensor, aim: float
) -> tuple[Tensor, Tensor]:
    """Moves along the sphere (K, d) and changes of the multipliers (K, K) that solve the conditions to first order:

    M U + D W = W's slope, negated, along the sphere;   u_i . w_j + w_i . u_j = s - w_i . w_j  for the pairs that touch.
    """
    from scipy.sparse.linalg import LinearOperator, minres  # here: importing it costs time

    cosines = points @ points.T
    i, j = touching.nonzero(as_tuple=True)
    lengths = (points * goal).sum(dim=1) - (multipliers * cosines).sum(dim=1)  # m, (K,)
    changes = torch.zeros_like(multipliers)
    split = points.numel()
    patience = _patience(points).minres

    def unpack(v: Tensor) -> Tensor:
        changes[i, j] = v[split:]
        changes[j, i] = v[split:]
        return _along_sphere(v[:split].view_as(points), points)

    def apply(v):  # type: ignore[no-untyped-def]
        moves = unpack(torch.from_numpy(v.reshape(-1)))
        pull = _along_sphere(lengths[:, None] * moves + multipliers @ moves + changes @ points, points)
        closer = moves @ points.T
        return torch.cat([pull.reshape(-1), closer[i, j] + closer[j, i]]).numpy()

    right = torch.cat([-_slope(goal, points, multipliers).reshape(-1), aim - cosines[i, j]]).numpy()
    solution, _ = minres(
        LinearOperator((len(right), len(right)), matvec=apply, dtype=float), right, rtol=1e-7, maxiter=patience
    )
    return unpack(torch.from_numpy(solution)), changes


def _fitted(goal: Tensor, seed: int) -> Tensor:
    """The best known set of this size, turned and numbered to fit the targets: turn and numbering are solved for in turn."""
    from scipy.optimize import linear_sum_assignment

    from asterism.prototypes import make_prototypes  # here: that room's door opens to this file

    num, dim = goal.shape
    stars = make_prototypes(num, dim, seed=seed).points
    best, best_score = stars, -math.inf
    for start in range(4):
        turn = torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(seed + start)).double())[0]
        score = -math.inf
        for _ in range(100):
            order = torch.from_numpy(linear_sum_assignment((goal @ (stars @ turn).T).numpy(), maximize=True)[1])
            left, _, right = torch.linalg.svd(stars[order].T @ goal)
            turn = left @ right
            before, score = score, (stars[order] @ turn * goal).sum().item()
            if score <= before + 1e-12:
                break
        if score > best_score:
            best, best_score = stars[order] @ turn, score
    return unit(best)


def _bound(goal: Tensor, points: Tensor, multipliers: Tensor, limit: float) -> float:
    """What no allowed set exceeds in sum_i w_i . t_i, from the multipliers; see the top of this file.

    M may not be positive definite, so one number x is added to all of m, the best there is: with eigenvalues e_k and vectors
    v_k of M and a_k = |v_k^T T|^2, the bound  sum_k a_k / (e_k + x) / 2 + x K / 2 + ...  is least where
    sum_k a_k / (e_k + x)^2 = K; at a solution with M positive definite, that is x = 0.
    """
    lengths = (points * goal).sum(dim=1) - (multipliers * (points @ points.T)).sum(dim=1)
    values, vectors = torch.linalg.eigh(multipliers + lengths.diag())
    weights = (vectors.T @ goal).square().sum(dim=1)
    low, high = 1e-9 - values[0].item(), 1 - values[0].item()
    for _ in range(100):  # the sum falls with x, and is K at most at `high`, since sum_k a_k is
        x = (low + high) / 2
        low, high = (x, high) if (weights / (values + x).square()).sum() > len(goal) else (low, x)
    dual = (weights / (values + high)).sum() + lengths.sum() + high * len(goal)
    return (dual / 2 + limit * multipliers.sum() / 2).item()
