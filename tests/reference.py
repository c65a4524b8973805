"""Slow, literal twins of the fast code: one loop a symbol, no cleverness. Tests compare the two on random inputs."""

from __future__ import annotations

import cmath
import itertools
import math
from fractions import Fraction

import numpy as np
from scipy.special import dawsn, roots_jacobi


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


def gegenbauer_monomials(k: int, dim: int) -> list[Fraction]:
    """The same polynomial by its explicit sum, as coefficients of 1, t, .. t^k, scaled at the end."""
    coefficients = [Fraction(0)] * (k + 1)
    for j in range(k // 2 + 1):
        rising = math.prod(Fraction(dim - 2, 2) + i for i in range(k - j))
        coefficients[k - 2 * j] = (
            Fraction((-1) ** j * 2 ** (k - 2 * j)) * rising / (math.factorial(j) * math.factorial(k - 2 * j))
        )
    return [c / sum(coefficients) for c in coefficients]


def gegenbauer_expansion(f: list[Fraction], dim: int) -> list[Fraction]:
    """f_0 .. f_n with sum_k f_k P_k = f, from the coefficients of 1, t, .. t^n: the highest power first."""
    rest, expansion = list(f), [Fraction(0)] * len(f)
    for k in reversed(range(len(f))):
        P = gegenbauer_monomials(k, dim)
        expansion[k] = rest[k] / P[k]
        for m in range(k + 1):
            rest[m] -= expansion[k] * P[m]
    return expansion


def product(f: list[Fraction], g: list[Fraction]) -> list[Fraction]:
    """f g as coefficients of powers."""
    out = [Fraction(0)] * (len(f) + len(g) - 1)
    for i, a in enumerate(f):
        for j, b in enumerate(g):
            out[i + j] += a * b
    return out


def power_sum(f: list[Fraction], t: Fraction) -> Fraction:
    return sum(c * t**m for m, c in enumerate(f))


def levenshtein_number(dim: int, s: float) -> float:
    """L(d, s), the closed formula, with the k whose interval holds s; intervals end at zeros of Jacobi polynomials."""
    a = (dim - 3) / 2

    def P(k: int) -> float:
        return gegenbauer(k, dim, s)

    def zero(k: int, i: int, j: int) -> float:
        return float(roots_jacobi(k, a + i, a + j)[0][-1])

    k = 1
    while s > zero(k, 1, 1):
        k += 1
    if s <= zero(k, 1, 0):
        ratio = (P(k - 1) - P(k)) / ((1 - s) * P(k))
        return math.comb(k + dim - 3, k - 1) * ((2 * k + dim - 3) / (dim - 1) - ratio)
    ratio = (1 + s) * (P(k) - P(k + 1)) / ((1 - s) * (P(k) + P(k + 1)))
    return math.comb(k + dim - 2, k) * ((2 * k + dim - 1) / (dim - 1) - ratio)


def simplex_share(dim: int, dihedral: float) -> float:
    """The share of the sphere in a regular simplicial cone: the chance that d normal variables of correlation -cos(dihedral) are
    all positive, an integral over the variable that they share (which is imaginary, since the correlation is negative)."""
    rho = math.cos(dihedral)
    a = math.sqrt(rho / (1 + rho))
    z = np.linspace(-40, 40, 400_001)
    phi = np.exp(-(z**2) / (2 * dim))  # a dim-th of the normal density goes to each factor: none overflows
    erfi = 2 / math.sqrt(math.pi) * dawsn(a * z / math.sqrt(2)) * np.exp((a**2 - 1 / dim) * z**2 / 2)
    return float((((phi + 1j * erfi) / 2) ** dim).real.sum() * (z[1] - z[0]) / math.sqrt(2 * math.pi))


def uniformity(points: np.ndarray, t: float = 2) -> float:
    """Equation 5 of the paper with the whole set as its subset; the sum keeps i = j."""
    total = sum(math.exp(-t * float(((a - b) ** 2).sum())) for a in points for b in points)
    return math.log(total / len(points))


def field_times(x: int, y: int, modulus: int) -> int:
    """Polynomials over F_2, the bits of an integer: multiplied as at school, then divided by the modulus with remainder."""
    product = 0
    for i in range(y.bit_length()):
        if y >> i & 1:
            product ^= x << i
    while product.bit_length() >= modulus.bit_length():
        product ^= modulus << (product.bit_length() - modulus.bit_length())
    return product


def smallest_irreducible(degree: int) -> int:
    """The first polynomial of this degree, as an integer, that has a constant term and no divisor of a lower degree."""
    for candidate in range(2**degree + 1, 2 ** (degree + 1), 2):
        if all(field_times(1, candidate, divisor) for divisor in range(2, 2 ** (degree // 2 + 1))):
            return candidate
    raise AssertionError("there is one of every degree")


def algebraic_entry(log_dim: int, delta: int, row: int, x: int) -> float:
    """Entry x of a row of AlgebraicCode(log_dim, delta), from the definition of the word alone."""
    m, n, even = log_dim, 2**log_dim, log_dim % 2 == 0
    q = m - 1 if even else m
    r = m // 2 - delta if even else (m + 1) // 2 - delta
    modulus = smallest_irreducible(q)
    bases = 2 ** (q * r + (q if even else 0)) + 1

    def power(y: int, k: int) -> int:
        result = 1
        for _ in range(k):
            result = field_times(result, y, modulus)
        return result

    def trace(y: int) -> int:
        total = 0
        for i in range(q):
            total ^= power(y, 2**i)
        assert total in (0, 1)
        return total

    sign = -1 if row >= n * bases else 1
    basis, functional = divmod(row % (n * bases), n)
    if basis == bases - 1:
        return float(sign * (x == functional))
    digits = [basis // 2 ** (q * i) % 2**q for i in range(r + 1)]  # base 2^q, lowest first
    y, u = x % 2**q, x // 2**q
    exponent = bin(functional & x).count("1")
    if even:
        a = digits.pop(0)
        ay = field_times(a, y, modulus)
        exponent += sum(trace(power(ay, 2**j + 1)) for j in range(1, (q - 1) // 2 + 1)) + u * trace(ay)
    for j in range(1, r + 1):
        exponent += trace(field_times(digits[j - 1], power(y, 2**j + 1), modulus))
    return sign * (-1) ** exponent / math.sqrt(n)


def average_angle(points: np.ndarray) -> float:
    angles = [math.acos(max(-1.0, min(1.0, float(a @ b)))) for a, b in itertools.combinations(points, 2)]
    return sum(angles) / len(angles)


def hpn(points: np.ndarray, words: np.ndarray | None = None) -> float:
    """The objective of hyperspherical prototypes: mean of the row maxima; with words, plus the term on the order of triplets."""
    K = len(points)
    total = sum(max(float(points[i] @ points[j]) for j in range(K) if j != i) for i in range(K)) / K
    if words is not None:
        terms = []
        for i, j, k in itertools.permutations(range(K), 3):
            closer = cosine(words[i], words[j]) >= cosine(words[i], words[k])
            chance = 1 / (1 + math.exp(-float(points[i] @ points[j] - points[i] @ points[k])))
            terms.append(-math.log(chance) if closer else -math.log(1 - chance))
        total += sum(terms) / len(terms)
    return total


def order_kept(points: np.ndarray, words: np.ndarray) -> float:
    """The share of triplets (i, j, k) with j closer to i than k in words, that are so among the points."""
    kept = [
        float(points[i] @ points[j]) > float(points[i] @ points[k])
        for i, j, k in itertools.permutations(range(len(points)), 3)
        if cosine(words[i], words[j]) > cosine(words[i], words[k])
    ]
    return sum(kept) / len(kept)


def maximum_separation(k: int) -> np.ndarray:
    """P_k (k, k + 1) of Kasarla et al.: one class vector a column."""
    if k == 1:
        return np.array([[1.0, -1.0]])
    first = np.concatenate([[1.0], np.full(k, -1 / k)])
    rest = np.concatenate([np.zeros((k - 1, 1)), math.sqrt(1 - 1 / k**2) * maximum_separation(k - 1)], axis=1)
    return np.concatenate([first[None], rest])


def principal_components(rows: np.ndarray, dim: int) -> np.ndarray:
    """PCA by the covariance matrix: coordinates (K, d) along the axes of largest variance, each axis up to its sign."""
    centred = rows - rows.mean(axis=0)
    variances, axes = np.linalg.eigh(centred.T @ centred)
    return centred @ axes[:, np.argsort(-variances)[:dim]]


def cosine_counts(points: np.ndarray, i: int) -> dict[float, int]:
    """How often each cosine occurs between point i and the others, to ten digits."""
    counts: dict[float, int] = {}
    for j, other in enumerate(points):
        if j != i:
            c = round(sum(x * y for x, y in zip(points[i], other, strict=True)), 10) + 0.0
            counts[c] = counts.get(c, 0) + 1
    return counts


def section(points: np.ndarray, poles: np.ndarray, products: list[float]) -> np.ndarray:
    """The points with these products, less their part along the poles (Gram, Schmidt), of unit length."""
    axes: list[np.ndarray] = []
    for pole in poles:
        for axis in axes:
            pole = pole - (pole @ axis) * axis
        axes.append(pole / math.sqrt(pole @ pole))
    seen = []
    for point in points:
        if all(abs(point @ pole - at) < 1e-6 for pole, at in zip(poles, products, strict=True)):
            for axis in axes:
                point = point - (point @ axis) * axis
            seen.append(point / math.sqrt(point @ point))
    return np.array(seen)


def chirp_cosine(p: int, one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """Real part of the scalar product of i^k exp(2 pi i (a x^2 + b x) / p) / sqrt(p) for two (a, b, k), p a prime."""
    total = 0j
    for x in range(p):
        f, g = ((a * x * x + b * x) / p + k / 4 for a, b, k in (one, other))
        total += cmath.exp(2j * math.pi * (f - g)) / p
    return total.real
