"""The matching of classes and stars, exact, with its proof, where the (c, K) matrix of cosines fits in memory.

The paper's equation 9: among all injective maps A from classes to stars, maximise  sum_i m_i . w_A(i). c classes, K >= c stars.

scipy solves; the proof is ours and does not trust it. For any prices v >= 0 of the stars (any sign when K = c, where every star
is taken), no map scores more than

    bound(v) = sum_i max_j (s_ij - v_j) + sum_j v_j,        s = means @ stars.T,

and at the optimum the right prices make bound = score. They are shortest distances in the graph "class i would rather have star
j", found by Bellman-Ford from the solver's answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asterism.checks import check_unit_rows

TIE = 1e-12  # a bonus for staying put: far below any difference of means, far above the rounding of a cosine
TOLERANCE = 1e-9  # a class: a gap of this times c counts as rounding


@dataclass(frozen=True, eq=False)
class Assignment:
    """The answer and how good it is.

    >>> found = solve_assignment(torch.eye(3)[:2], torch.eye(3))
    >>> print(found)
    2 labels on 3 stars, mean cosine 1.000, exact
    """

    order: Tensor  # (c,) int64, catalogue index of each class's star
    score: float  # sum of cosines, float64
    bound: float  # proven: no map scores more
    num_stars: int
    seconds: float
    before: float | None = None  # score of the map it is compared with
    moved: Tensor | None = None  # (n,) int64, classes whose star changed against that map
    prices: Tensor | None = None  # (K,) float64, the dual variables of the stars; on rank 0 only
    zero_features: int = 0  # features without a direction that the means had to leave out

    @property
    def gap(self) -> float:
        """bound - score: 0 up to rounding when the map is exact."""
        return self.bound - self.score

    @property
    def certified(self) -> bool:
        """Whether the bound proves that no map scores more."""
        return self.gap <= TOLERANCE * max(1, len(self.order))

    def __str__(self) -> str:
        c = len(self.order)
        quality = "exact" if self.certified else f"gap {self.gap:.3g}"
        zero = f", {self.zero_features} features were zero" if self.zero_features else ""
        if self.moved is None or self.before is None:
            return f"{c} labels on {self.num_stars} stars, mean cosine {self.score / c:.3f}, {quality}{zero}"
        return f"moved {len(self.moved)} of {c}, mean cosine {self.before / c:.3f} -> {self.score / c:.3f}, {quality}{zero}"


def solve_assignment(
    means: Tensor,
    prototypes: Any,
    *,
    warm: Assignment | None = None,
    current: Tensor | None = None,
    keep: Tensor | None = None,
) -> Assignment:
    """The map of classes to stars with the largest sum of cosines; among equals, the one that moves fewest from `current`.

    means       (c, d) unit rows; a row of zeros is a class never seen, for which any star is as good
    prototypes  Prototypes or (K, d) unit rows, K >= c
    current     (c,) the map in force, else the order of `warm`: what `before` and `moved` speak of
    warm        an earlier answer: where its prices prove the map in force to be still the best, nothing is solved
    keep        (n,) labels that must stay on the star that the map in force gives them

    >>> print(solve_assignment(torch.eye(3), torch.eye(3), current=torch.tensor([1, 0, 2])))
    moved 2 of 3, mean cosine 0.333 -> 1.000, exact
    """
    began = time.perf_counter()
    who = "solve_assignment"
    stars = check_unit_rows(who, "prototypes", getattr(prototypes, "points", prototypes))
    means = check_unit_rows(who, "means", means, stars.shape[1], zeros=True)
    c, K = len(means), len(stars)
    if c > K or c < 1:
        raise ValueError(
            f"{who}: {c} classes and {K} stars, {c - K} stars are missing: make_prototypes({c}, {stars.shape[1]})"
            if c
            else f"{who}: no class came, must be at least one row of means"
        )
    if current is None and warm is not None and len(warm.order) == c and int(warm.order.max()) < K:
        current = warm.order
    now = None if current is None else check_map(who, current, c, K).cpu().numpy()
    kept = _kept(keep, now, c)
    device = means.device  # the product runs where the means are
    scores = (means.double() @ stars.to(device).double().T).cpu().numpy()  # (c, K)

    if warm is not None and now is not None and warm.prices is not None and len(warm.prices) == K:
        prices = warm.prices.numpy()
        if c == K or prices.min() >= 0:
            bound = _bound(scores, prices)
            if bound - _score(scores, now) <= TIE * c:
                return _answer(scores, now, now, bound, prices, began)

    order = now.copy() if now is not None and len(kept) else np.empty(c, dtype=np.int64)
    rows, columns = np.setdiff1d(np.arange(c), kept), np.setdiff1d(np.arange(K), order[kept])
    free = scores[np.ix_(rows, columns)] if len(kept) else scores
    biased = free.copy()
    if now is not None:
        place = np.full(K, -1)
        place[columns] = np.arange(len(columns))
        stays = place[now[rows]] >= 0
        biased[np.flatnonzero(stays), place[now[rows][stays]]] += TIE
    from scipy.optimize import linear_sum_assignment  # here: importing it costs a third of importing torch

    chosen = linear_sum_assignment(biased, maximize=True)[1]
    order[rows] = columns[chosen]
    prices = _prices(free, chosen)
    bound = _bound(free, prices) + _score(
        scores, order, kept
    )  # with `keep`: no map that keeps these labels scores more
    return _answer(scores, order, now, bound, None if len(kept) else prices, began)


def check_map(who: str, order: Tensor, num_classes: int, num_stars: int) -> Tensor:
    """A (c,) integer tensor of different stars, or a ValueError."""
    order = torch.as_tensor(order)
    if order.shape != (num_classes,) or order.is_floating_point() or order.dtype == torch.bool:
        raise ValueError(
            f"{who}: a map of shape {tuple(order.shape)} and type {order.dtype} came, must be ({num_classes},) integers"
        )
    low, high = int(order.min()), int(order.max())
    if low < 0 or high >= num_stars or len(order.unique()) < num_classes:
        raise ValueError(
            f"{who}: the map sends {num_classes} labels to {len(order.unique())} stars between {low} and {high}, "
            f"must be different stars in 0..{num_stars - 1}: make a new one, or, if weights were averaged, copy it with "
            "PrototypeHead.copy_maps"
        )
    return order.long()


def _kept(keep: Tensor | None, now: np.ndarray | None, c: int) -> np.ndarray:
    if keep is None:
        return np.empty(0, dtype=np.int64)
    labels = torch.as_tensor(keep)
    if labels.ndim != 1 or (len(labels) and (labels.dtype == torch.bool or labels.is_floating_point())):
        raise ValueError(
            f"solve_assignment: keep came as {labels.dtype} of shape {tuple(labels.shape)}, must be integers of shape (n,), the "
            "labels that stay: for a mask give keep.nonzero()[:, 0]"
        )
    kept = labels.long().unique().cpu().numpy()
    if now is None:
        raise ValueError("solve_assignment: keep names labels that must stay, but no map in force came: give current=")
    if len(kept) and (kept.min() < 0 or kept.max() >= c):
        raise ValueError(
            f"solve_assignment: keep names labels from {kept.min()} to {kept.max()}, must lie in 0..{c - 1}"
        )
    return kept


def _score(scores: np.ndarray, order: np.ndarray, rows: np.ndarray | slice = slice(None)) -> float:
    return float(scores[np.arange(len(scores)), order][rows].sum())


def _bound(scores: np.ndarray, prices: np.ndarray) -> float:
    return float((scores - prices).max(axis=1).sum() + prices.sum()) if len(scores) else 0.0


def _prices(scores: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Prices at which every class is content with its star and no free star costs anything. scores (c, K), order (c,)."""
    c, K = scores.shape
    prices = np.zeros(K)
    if c == 0:
        return prices
    rather = scores[np.arange(c), order][:, None] - scores  # (c, K): what class i would lose by taking star j
    free = np.setdiff1d(np.arange(K), order)
    for _ in range(
        c
    ):  # Bellman-Ford; without a better map in the graph it settles within c rounds, in practice within few
        lowest = (rather + prices).min(axis=1)
        moved = lowest < prices[order] - 1e-15
        prices[order[moved]] = lowest[moved]
        if len(free):
            prices[free] = prices.min()
        if not moved.any():
            break
    return np.maximum(prices - prices[free[0]], 0) if len(free) else prices


def _answer(
    scores: np.ndarray, order: np.ndarray, now: np.ndarray | None, bound: float, prices: np.ndarray | None, began: float
) -> Assignment:
    score = _score(scores, order)
    return Assignment(
        order=torch.from_numpy(order.copy()),
        score=score,
        bound=max(bound, score),
        num_stars=scores.shape[1],
        seconds=time.perf_counter() - began,
        before=None if now is None else _score(scores, now),
        moved=None if now is None else torch.from_numpy(np.flatnonzero(order != now)),
        prices=None if prices is None else torch.from_numpy(prices),
    )
