"""Slow, literal twins of the fast code: one loop a symbol, no cleverness. Tests compare the two on random inputs."""

from __future__ import annotations

import itertools
import math

import numpy as np


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    na, nb = math.sqrt(sum(x * x for x in a)), math.sqrt(sum(x * x for x in b))
    return 0.0 if na == 0 or nb == 0 else sum(x * y for x, y in zip(a, b, strict=True)) / (na * nb)


def ipm(features: np.ndarray, targets: np.ndarray, weight: np.ndarray | None = None) -> list[float]:
    """Equation 6 of the paper, a sample at a time."""
    weight = np.ones(len(features)) if weight is None else weight
    return [float(w * 0.5 * (cosine(z, t) - 1) ** 2) for z, t, w in zip(features, targets, weight, strict=True)]


def ipm_gradient(z: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Equation 7 as it should read: -(1 - cos) w, projected on the tangent plane at z, over the length of z."""
    length = np.linalg.norm(z)
    u = z / length
    cos = float(u @ w)
    pull = -(1 - cos) * w
    return (pull - (pull @ u) * u) / length


class WindowedMeans:
    """ClassMeans, a sample at a time."""

    def __init__(self, num_classes: int, dim: int, window: float) -> None:
        self.window = window
        self.old = np.zeros((num_classes, dim))
        self.known = [0.0] * num_classes
        self.new = np.zeros((num_classes, dim))
        self.count = [0.0] * num_classes

    def update(self, features: np.ndarray, labels: np.ndarray, weight: np.ndarray | None = None) -> None:
        for i, (z, y) in enumerate(zip(features, labels, strict=True)):
            w = 1.0 if weight is None else float(weight[i])
            if np.linalg.norm(z) > 0:
                self.new[y] += w * z / np.linalg.norm(z)
                self.count[y] += w

    def compute(self) -> np.ndarray:
        for y in range(len(self.old)):
            if self.count[y] > 0:
                keep = min(1.0, self.window / self.known[y]) if self.known[y] > 0 else 1.0
                self.old[y] = self.new[y] + keep * self.old[y]
                self.known[y] = self.count[y] + keep * self.known[y]
        self.new[:] = 0
        self.count = [0.0] * len(self.old)
        return np.stack([m / np.linalg.norm(m) if np.linalg.norm(m) > 0 else m for m in self.old])


def paper_means(old: np.ndarray, features: np.ndarray, labels: np.ndarray, factor: float) -> np.ndarray:
    """The paper's average: m <- a m + (1 - a) z for every sample in turn, on unit features."""
    means = old.copy()
    for z, y in zip(features, labels, strict=True):
        means[y] = factor * means[y] + (1 - factor) * z / np.linalg.norm(z)
    return means


def best_maps(scores: np.ndarray, tolerance: float = 1e-10) -> tuple[float, list[tuple[int, ...]]]:
    """Every injective map of c classes to K stars is tried: the best score, and all maps that reach it."""
    c, K = scores.shape
    totals = {p: sum(scores[i, j] for i, j in enumerate(p)) for p in itertools.permutations(range(K), c)}
    best = max(totals.values())
    return best, [p for p, total in totals.items() if total >= best - tolerance]


def max_cosine(points: np.ndarray) -> float:
    return max(cosine(a, b) for a, b in itertools.combinations(points, 2))


def gegenbauer(k: int, dim: int, s: float) -> float:
    """P_k of dimension `dim` with P_k(1) = 1, by the three-term recurrence."""
    previous, current = 1.0, s
    if k == 0:
        return previous
    for n in range(1, k):
        previous, current = current, ((2 * n + dim - 2) * s * current - n * previous) / (n + dim - 2)
    return current


def uniformity(points: np.ndarray, t: float = 2) -> float:
    """Equation 5 of the paper with the whole set as its subset; the sum keeps i = j."""
    total = sum(math.exp(-t * float(((a - b) ** 2).sum())) for a in points for b in points)
    return math.log(total / len(points))
