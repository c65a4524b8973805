"""What no set of points can beat: proven lower bounds on the largest cosine among K unit vectors in d dimensions.

    K <= d + 1        -1 / (K - 1)                      Rankin 1955; met by the simplex
    d + 2 <= K <= 2d  0                                 Rankin 1955; met by subsets of the orthoplex
    d = 2             cos(2 pi / K)                     the circle
    d >= 3, K > 2d    the largest of
        levenshtein         Delsarte's method with Levenshtein's polynomials; met by the sharp codes (240 x 8, ...)
        linear_programming  Delsarte's method with polynomials of degree 30: more in few dimensions
        boroczky            the simplex bound of Coxeter and Boroczky: more for many points; met by 120 x 4
        fejes_toth          the same for d = 3, in closed form; met by 12 x 3
        THEOREMS            literature, where none of these is enough

Delsarte's method. P_k is the Gegenbauer polynomial of dimension d scaled to P_k(1) = 1. Let f = sum_k f_k P_k with f_0 > 0,
all f_k >= 0, and f <= 0 on [-1, s]. Then N points whose cosines are all <= s number at most f(1) / f_0, since

    f_0 N^2  <=  sum_{i,j} f(x_i . x_j)  <=  N f(1)

(left: every P_k is positive definite; right: f <= 0 off the diagonal). If f(1) / f_0 < K, then K points have a cosine above s.
Such an f is a `Certificate`, and rational arithmetic checks it without rounding.

What holds for K points holds for more of them, and what holds in d dimensions holds in fewer. Whatever floating point
computes is rounded down. docs/bounds.md tells the sources. Lengths: a polynomial of degree n has n + 1 coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

EXACT = 1e-9  # a set whose largest cosine meets a bound to this is called optimal
ROUNDING = 1e-13  # taken off what floating point computed: a hundred times its error and more
DEGREE = 30  # of the polynomials that linear programming searches
EXTRA = 8  # degree of the factor that is left beside the double roots
GRID = 4096  # linear programming bounds are multiples of 1 / GRID

MITTELMANN = "Mittelmann, Vallentin 2010 (kissing number)"
COHN = "Cohn, de Laat, Leijenhorst 2024"
# (K, d, c, who): K points in d dimensions have a cosine of at least c. Irrational values are rounded down. A kissing number
# of at most N means that N + 1 points have a cosine above 1/2. docs/bounds.md tells each row's configuration and reference.
THEOREMS = (
    (7, 3, 0.210138312730603, "Schuette, van der Waerden 1951"),  # 3 c^3 - 9 c^2 - 3 c + 1 = 0
    (8, 3, 0.261203874963741, "Schuette, van der Waerden 1951"),  # (2 sqrt 2 - 1) / 7
    (9, 3, 1 / 3, "Schuette, van der Waerden 1951"),
    (10, 3, 0.404394325216250, "Danzer 1963"),  # 7 c^3 - 4 c^2 - 2 c + 1 = 0
    (11, 3, 0.447213595499957, "Danzer 1963"),  # 1 / sqrt 5
    (13, 3, 0.542636486829638, "Musin, Tarasov 2012"),
    (14, 3, 0.563950300360505, "Musin, Tarasov 2015"),  # 4 c^4 - 2 c^3 + 3 c^2 - 1 = 0
    (24, 3, 0.723078468333508, "Robinson 1961"),  # 7 c^3 + c^2 - 3 c - 1 = 0
    (10, 4, 1 / 6, "Bachoc, Vallentin 2009"),
    (24, 4, 1 / 2, "de Laat, Leijenhorst, de Muinck Keizer 2024"),
    (120, 4, 0.809016994374947, "Boroczky 1978"),  # (1 + sqrt 5) / 4
    (45, 5, 1 / 2, MITTELMANN),
    (79, 6, 1 / 2, MITTELMANN),
    (135, 7, 1 / 2, MITTELMANN),
    (365, 9, 1 / 2, MITTELMANN),
    (555, 10, 1 / 2, MITTELMANN),
    (871, 11, 1 / 2, MITTELMANN),
    (1358, 12, 1 / 2, MITTELMANN),
    (2070, 13, 1 / 2, MITTELMANN),
    (3184, 14, 1 / 2, MITTELMANN),
    (4867, 15, 1 / 2, MITTELMANN),
    (7356, 16, 1 / 2, MITTELMANN),
    (288, 16, 1 / 4, COHN),
    (56, 20, 1 / 15, COHN),
    (50, 21, 1 / 21, COHN),
    (77, 21, 1 / 12, COHN),
    (4224, 64, 1 / 8, COHN),
    (66048, 256, 1 / 16, COHN),
    (1050624, 1024, 1 / 32, COHN),
)


@lru_cache(maxsize=1024)
def best_bound(num: int, dim: int) -> tuple[float, str]:
    """The largest of the bounds that apply, and who proved it.

    >>> best_bound(5, 4)
    (-0.25, 'Rankin (simplex)')
    >>> best_bound(240, 8)[1], round(best_bound(240, 8)[0], 12)
    ('Levenshtein', 0.5)
    >>> best_bound(10, 4)[1]
    'Bachoc, Vallentin 2009'
    """
    if num <= dim + 1:
        return -1 / (num - 1), "Rankin (simplex)"
    if dim == 1:
        return 1.0, "pigeonhole"
    if num <= 2 * dim:
        return 0.0, "Rankin (orthoplex)"
    if dim == 2:
        return math.cos(2 * math.pi / num), "circle"
    bounds = [(levenshtein(num, dim), "Levenshtein")]
    bounds += [(cosine, who) for number, room, cosine, who in THEOREMS if num >= number and dim <= room]
    better = linear_programming(num, dim)
    bounds += [(better.cosine, "linear programming")] if better else []
    bounds.append((fejes_toth(num), "Fejes Toth") if dim == 3 else (boroczky(num, dim), "Boroczky"))
    top = max(bounds)[0]
    return next(bound for bound in bounds if bound[0] >= top - 2 * ROUNDING)  # of equals the one with a certificate


def fejes_toth(num: int) -> float:
    """(cot^2 w - 1) / 2 with w = K pi / (6 (K - 2)): Fejes Toth 1943."""
    w = num * math.pi / (6 * (num - 2))
    return (1 / math.tan(w) ** 2 - 1) / 2 - ROUNDING


# --- Delsarte's method ---


@dataclass(frozen=True)
class Certificate:
    """A polynomial that proves a bound, in a form that is <= 0 on [-1, s] at sight: with w_j >= 0,

        f(t) = (t - s)  prod_r (t - r)^2  sum_j w_j (1 + t)^j (s - t)^(m - j)

    What is left to prove, that its Gegenbauer coefficients are >= 0, `most_points` does.

    >>> proof = certificate(100, 5)
    >>> proof.cosine > levenshtein(100, 5), proof.most_points() < 100
    (True, True)
    """

    dim: int
    cosine: float  # s
    roots: tuple[float, ...]  # r
    weights: tuple[float, ...]  # w_0 .. w_m

    def coefficients(self) -> list[Fraction]:
        """f_0 .. f_n of f = sum_k f_k P_k, without rounding. (n + 1)"""
        exact = [[Fraction(x) for x in numbers] for numbers in (self.roots, self.weights)]
        return _expand(self.dim, Fraction(self.cosine), *exact)

    def most_points(self) -> Fraction | float:
        """f(1) / f_0: no more points have all their cosines <= s. Infinity where this f proves nothing."""
        f = self.coefficients()
        proven = -1 <= self.cosine < 1 and min(self.weights) >= 0 and f[0] > 0 and min(f) >= 0
        return sum(f) / f[0] if proven else math.inf


def certificate(num: int, dim: int) -> Certificate:
    """The polynomial behind the best bound that Delsarte's method gives here, for num > 2 dim >= 6.

    >>> certificate(56, 7).most_points() < 56
    True
    """
    return linear_programming(num, dim) or levenshtein_certificate(num, dim)


def _expand(dim: int, s: Any, roots: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
    """Gegenbauer coefficients of a certificate's polynomial; exact when its numbers are fractions. (n + 1)"""
    power, total = [0 * s + 1], [weights[0]]  # (1 + t)^j, sum_{i <= j} w_i (1 + t)^i (s - t)^(j - i)
    for weight in weights[1:]:
        power = _times(power, -1, dim)
        total = [weight * a - b for a, b in zip(power, _times(total, s, dim), strict=True)]
    for root in roots:
        total = _times(_times(total, root, dim), root, dim)
    return _times(total, s, dim)


def _times(f: Sequence[Any], root: Any, dim: int) -> list[Any]:
    """(t - root) f(t), by (2k + d - 2) t P_k = (k + d - 2) P_{k+1} + k P_{k-1}."""
    out = [-root * x for x in f] + [0]
    for k, x in enumerate(f):
        share = x / (2 * k + dim - 2)
        out[k + 1] += (k + dim - 2) * share
        if k:
            out[k - 1] += k * share
    return out


# --- Levenshtein ---
#
# K points with all cosines <= s number at most L(d, s) (Levenshtein 1979, 1992), and L(d, s) = K is solved for s here without
# a root search. The polynomial of degree n = 2k - 1 + e, e in {0, 1}, is
#
#     f(t) = (t - s) (t + 1)^e (t - a_1)^2 .. (t - a_{k-1})^2
#
# where 1, s, the a_i (and -1 if e) are the nodes of a quadrature rule exact to degree n for the measure of x . y on the sphere,
# with weight 1 / K at the node 1: applied to f it says f_0 = f(1) / K. As Golub 1973 does it for rules with fixed nodes, its
# nodes are the eigenvalues of the Jacobi matrix of (1 - t^2)^((d-3)/2) (1 + t)^e with another last row, which is given by the
# node 1 and its weight. The sums of squares that appear are the sizes of tight designs (Delsarte, Goethals, Seidel 1977),
#
#     D(d, 2k) = C(d+k-1, d-1) + C(d+k-2, d-1),     D(d, 2k+1) = 2 C(d+k-1, d-1),
#
# and n is the number with D(d, n) <= K < D(d, n + 1).


def levenshtein(num: int, dim: int) -> float:
    """The s with L(dim, s) = num, for num > 2 dim >= 6.

    >>> round(levenshtein(27, 6), 12)
    0.25
    """
    from scipy.linalg import eigvalsh_tridiagonal  # here: importing it takes a while

    _, diagonal, beside = _levenshtein_matrix(num, dim)
    second = len(diagonal) - 2  # the largest is 1
    s = eigvalsh_tridiagonal(diagonal, beside, select="i", select_range=(second, second))[0]
    return max(0.0, float(s) - ROUNDING)


def levenshtein_certificate(num: int, dim: int) -> Certificate:
    """Levenshtein's polynomial for levenshtein(num, dim). All roots are computed: n^2 operations for degree n."""
    from scipy.linalg import eigvalsh_tridiagonal

    end, diagonal, beside = _levenshtein_matrix(num, dim)
    roots = eigvalsh_tridiagonal(diagonal, beside)[:-2].tolist()
    return Certificate(dim, levenshtein(num, dim), tuple(roots), (0.0, 1.0) if end else (1.0,))


def _levenshtein_matrix(num: int, dim: int) -> tuple[int, np.ndarray, np.ndarray]:
    """e, and the diagonal (k + 1) and the one beside it (k) of the matrix."""
    if not num > 2 * dim >= 6:
        raise ValueError(f"Levenshtein's bound: {num} x {dim} came, must be K > 2 d with d >= 3: use best_bound")
    n = _degree(num, dim)
    k, e = (n + 1) // 2, 1 - n % 2
    i, j = np.arange(k), np.arange(1, k + 1)
    diagonal = e * (dim - 2) / ((2 * i + dim - 2) * (2 * i + dim))
    squares = j * (j + dim - 3 + e) / ((2 * j + dim - 2) * (2 * j + dim - 4 + 2 * e))
    before, last, whole = (_design(dim, 2 * (k - step) + e) for step in (2, 1, 0))
    share = (num - last) / (whole - last)  # of the last square that the weight at 1 leaves
    corner = 1 - math.sqrt(squares[-1] * ((last - before) / (whole - last))) / share
    squares[-1] /= share
    return e, np.append(diagonal, corner), np.sqrt(squares)


def _design(dim: int, strength: int) -> int:
    """D(d, n): as many points has a spherical design of strength n at least."""
    k, odd = divmod(strength, 2)
    full = math.comb(dim + k - 1, dim - 1)
    return 2 * full if odd else full + math.comb(dim + k - 2, dim - 1)


def _degree(num: int, dim: int) -> int:
    """The n with D(d, n) <= num < D(d, n + 1), that of Levenshtein's polynomial; num >= 2 dim."""
    low, high = 3, 6
    while _design(dim, high) <= num:
        low, high = high, 2 * high
    return low + _last(lambda step: _design(dim, low + step) <= num, high - low)


def _last(holds: Callable[[int], bool], end: int) -> int:
    """The largest i < end with holds(i), which holds at 0 and, once it does not, never again."""
    low = 0
    while end - low > 1:
        middle = (low + end) // 2
        low, end = (middle, end) if holds(middle) else (low, middle)
    return low


# --- Linear programming ---
#
# Levenshtein's polynomial is the best of its degree; higher degrees improve on it in few dimensions (Boyvalenkov, Danev, Bumova
# 1996). Measured over d = 3 .. 64: by 1e-3 to 1e-2 in most pairs with d <= 2 n, n the degree of Levenshtein's polynomial
# (33 x 4, 100 x 5, 1000 x 10: 4e-3 to 6e-3); elsewhere by 1.4e-3 at most and mostly by less than 1e-5 (100 x 10, 200 x 16,
# 1000 x 32), which is not worth the time of some dozen linear programs. Above n = 24 it takes degrees beyond 30, and above 10^6
# points the program's numbers are too far apart for floating point: there the bound for fewer points is taken.


def linear_programming(num: int, dim: int) -> Certificate | None:
    """The polynomial that proves the largest multiple of 1 / GRID, None where Levenshtein's proves as much."""
    fewer = min(num, 10**6, _design(dim, 25) - 1)
    if dim > 2 * _degree(fewer, dim):
        return None
    low = math.floor(levenshtein(fewer, dim) * GRID)
    steps = _last(lambda step: step == 0 or _cheapest(dim, low + step)[1] < fewer, min(64, GRID - low))
    proof = _cheapest(dim, low + steps)[0] if steps else None
    return proof if proof and proof.cosine > levenshtein(num, dim) else None


@lru_cache(maxsize=1024)
def _cheapest(dim: int, step: int) -> tuple[Certificate | None, Fraction | float]:
    """A polynomial for s = step / GRID that allows as few points as can be, and how many it allows, proven.

    A first program, f(t) <= 0 on a grid of t, finds where the best f touches zero from below. A second one takes these places
    as double roots and looks for the weights of what is left, so that the sign holds between the grid's points too.
    """
    from scipy.optimize import linprog

    s = step / GRID
    angles = np.linspace(math.acos(s), math.pi, 400)
    values = np.ones((DEGREE + 1, len(angles)))  # P_k(t)
    values[1] = t = np.cos(angles)
    for k in range(1, DEGREE):
        values[k + 1] = ((2 * k + dim - 2) * t * values[k] - k * values[k - 1]) / (k + dim - 2)
    found = linprog(np.ones(DEGREE), A_ub=values[1:].T, b_ub=-np.ones(len(t)), method="highs")
    if found.status != 0:
        return None, math.inf
    pull = -found.ineqlin.marginals
    touching = np.flatnonzero(pull > 1e-12)
    places = np.split(touching, np.flatnonzero(np.diff(touching) > 1) + 1)  # neighbours on the grid touch in one place
    inner = [place for place in places if place[0] > 0 and place[-1] < len(t) - 1]
    roots = [math.cos(np.average(angles[place], weights=pull[place])) for place in inner]
    roots = [round(root * 2**20) / 2**20 for root in roots]  # short fractions, for the exact check

    columns = np.array([_expand(dim, s, roots, unit) for unit in np.eye(EXTRA + 1).tolist()]).T  # (n + 1, m + 1)
    scale = np.abs(columns).max(axis=0)
    columns /= scale
    slack = np.full(len(columns) - 1, 1e-6)  # more than the solver's tolerance
    found = linprog(columns.sum(axis=0), -columns[1:], -slack, columns[:1], [1.0], method="highs")
    if found.status != 0:
        return None, math.inf
    proof = Certificate(dim, s, tuple(roots), tuple(np.maximum(found.x / scale, 0).tolist()))
    return proof, proof.most_points()


# --- The simplex bound ---
#
# Caps of angular radius r < pi / 4 that do not overlap cover of each Dirichlet-Voronoi cell at most the share that d caps about
# the corners of a regular simplex of edge phi = 2 r cover of it (conjectured by Coxeter 1963, proven by Boroczky 1978). With
# V_n(phi) the share of the sphere in n dimensions that the regular simplex of edge phi takes, and psi the edge of the simplex
# that has its dihedral angle in one dimension less,
#
#     K  <=  d V_{d-1}(psi) / V_d(phi),      sec psi = sec phi + 1.
#
# Schlaefli: V_n grows with the dihedral angle, whose secant is sec phi + n - 2, at the rate n (n - 1) / (4 pi) V_{n-2}(phi). With
# w = sec phi - 1 and V_n = w^((n-1)/2) g_n(w), where g_n is smooth, V_1 = 1/2, V_2 = arcsec(1 + w) / (2 pi), and for n > 2
#
#     g_n(w) = n (n-1) / (4 pi)  int_0^1 x^((n-3)/2) g_{n-2}(x w) / (z sqrt(z^2 - 1)) dx,      z = x w + n - 1.


def boroczky(num: int, dim: int) -> float:
    """The simplex bound, or -1 where Levenshtein's is larger. Measured: it is below n = 8 and above d = 2 n, n as there.

    >>> round(boroczky(120, 4), 10) == round((1 + 5**0.5) / 4, 10)
    True
    """
    if _degree(num, dim) < max(8, dim / 2):
        return -1.0
    from scipy.optimize import brentq  # here: importing it takes a while

    low = levenshtein(num, dim)
    top = 1 / low - 1
    corner, whole = _simplices(dim, top + 1)

    def excess(w: float) -> float:
        allowed = math.log(dim * corner(w + 1) / whole(w))
        return allowed + (dim - 2) / 2 * math.log(w + 1) - (dim - 1) / 2 * math.log(w) - math.log(num)

    if excess(top) >= 0:
        return -1.0
    return 1 / (1 + brentq(excess, 1e-12, top, xtol=1e-18, rtol=1e-14)) - 100 * ROUNDING


def _simplices(dim: int, top: float) -> list[Callable[[float], float]]:
    """g_{d-1} and g_d on [0, top], as Chebyshev series through 64 points."""
    from numpy.polynomial import Chebyshev
    from scipy.special import roots_jacobi

    nodes = top * (1 - np.cos(np.pi * (np.arange(64) + 0.5) / 64)) / 2
    g = {1: np.full(64, 0.5), 2: np.arccos(1 / (1 + nodes)) / (2 * np.pi * np.sqrt(nodes))}

    def series(n: int) -> Any:
        return Chebyshev.fit(nodes, g[n], 63, domain=[0, top])

    for n in range(3, dim + 1):
        x, weight = roots_jacobi(40, 0, (n - 3) / 2)
        inner = np.outer(nodes, (1 + x) / 2)  # x w
        z = inner + n - 1
        integral = (series(n - 2)(inner) * weight / (z * np.sqrt(z**2 - 1))).sum(axis=1) / 2 ** ((n - 1) / 2)
        g[n] = n * (n - 1) / (4 * math.pi) * integral
    return [series(dim - 1), series(dim)]
