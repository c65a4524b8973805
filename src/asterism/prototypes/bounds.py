"""What no set of points can beat: proven lower bounds on the largest cosine among K unit vectors in d dimensions.

    K <= d + 1        -1 / (K - 1)                      Rankin 1955; met by the simplex
    d + 2 <= K <= 2d  0                                 Rankin 1955; met by subsets of the orthoplex
    d = 2             cos(2 pi / K)                     the circle
    d = 3             (cot^2 w - 1) / 2,  w = K pi / (6 (K - 2))    Fejes Toth 1943; met at K = 3, 4, 6, 12
    K > 2d            the s with L(d, s) = K            Levenshtein 1979, linear programming (Delsarte; Kabatiansky,
                                                        Levenshtein 1978); met by the sharp codes (240 x 8, ...)

Levenshtein: K points with all cosines <= s number at most L(d, s), where, for the k whose interval holds s, with P_k the
Gegenbauer polynomials of dimension d scaled to P_k(1) = 1 and t_k^{ij} the largest zero of the Jacobi polynomial
P_k^{(a + i, a + j)}, a = (d - 3) / 2,

    L_{2k-1}(d, s) = C(k+d-3, k-1) [ (2k+d-3)/(d-1) - (P_{k-1} - P_k)(s) / ((1-s) P_k(s)) ],
        for t_{k-1}^{11} <= s <= t_k^{10}
    L_{2k}  (d, s) = C(k+d-2, k)   [ (2k+d-1)/(d-1) - (1+s)(P_k - P_{k+1})(s) / ((1-s)(P_k + P_{k+1})(s)) ],
        for t_k^{10} <= s <= t_k^{11}

L grows with s, so K points have a cosine of at least the s with L(d, s) = K.
"""

from __future__ import annotations

import itertools
import math
from functools import partial

EXACT = 1e-9  # a set whose largest cosine meets a bound to this is called optimal


def best_bound(num: int, dim: int) -> tuple[float, str]:
    """The largest of the bounds that apply, and who proved it.

    >>> best_bound(5, 4)
    (-0.25, 'Rankin (simplex)')
    >>> best_bound(240, 8)[1], round(best_bound(240, 8)[0], 12)
    ('Levenshtein', 0.5)
    """
    if num <= dim + 1:
        return -1 / (num - 1), "Rankin (simplex)"
    if num <= 2 * dim:
        return 0.0, "Rankin (orthoplex)"
    if dim == 2:
        return math.cos(2 * math.pi / num), "circle"
    bounds = [(levenshtein(num, dim), "Levenshtein")]
    if dim == 3:
        bounds.append((fejes_toth(num), "Fejes Toth"))
    return max(bounds)


def fejes_toth(num: int) -> float:
    w = num * math.pi / (6 * (num - 2))
    return (1 / math.tan(w) ** 2 - 1) / 2


def levenshtein(num: int, dim: int) -> float:
    """The s with L(dim, s) = num, for num > 2 dim >= 6."""
    from scipy.optimize import brentq  # here: importing it costs a third of importing torch
    from scipy.special import binom, eval_jacobi, roots_jacobi

    a = (dim - 3) / 2

    def P(k: int, s: float) -> float:
        return eval_jacobi(k, a, a, s) / eval_jacobi(k, a, a, 1.0)

    def odd(k: int, s: float) -> float:
        ratio = (P(k - 1, s) - P(k, s)) / ((1 - s) * P(k, s))
        return binom(k + dim - 3, k - 1) * ((2 * k + dim - 3) / (dim - 1) - ratio)

    def even(k: int, s: float) -> float:
        ratio = (1 + s) * (P(k, s) - P(k + 1, s)) / ((1 - s) * (P(k, s) + P(k + 1, s)))
        return binom(k + dim - 2, k) * ((2 * k + dim - 1) / (dim - 1) - ratio)

    def largest_zero(k: int, i: int, j: int) -> float:
        return float(roots_jacobi(k, a + i, a + j)[0][-1])

    low = 0.0  # t_1^{11}, where L = 2 dim
    for k in itertools.count(2):
        for L, high in ((partial(odd, k), largest_zero(k, 1, 0)), (partial(even, k), largest_zero(k, 1, 1))):
            if L(high) >= num:
                return brentq(lambda s, L=L: L(s) - num, low, high, xtol=1e-15, rtol=1e-14) if L(low) < num else low
            low = high
    return low  # never reached: L grows without end
