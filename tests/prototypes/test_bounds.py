import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import reference
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import eval_jacobi

from asterism.prototypes import Prototypes, bounds, make_prototypes
from asterism.prototypes.bounds import (
    THEOREMS,
    Certificate,
    best_bound,
    boroczky,
    certificate,
    fejes_toth,
    levenshtein,
    levenshtein_certificate,
    linear_programming,
)
from asterism.prototypes.energy import log_sum_exp, max_cosine, minimise, random_points

# Sharp codes: their largest cosine is known and meets the Levenshtein bound (Levenshtein 1992; Cohn, Kumar 2007, table 1).
SHARP = [
    (12, 3, 1 / math.sqrt(5)),
    (16, 5, 1 / 5),
    (27, 6, 1 / 4),
    (56, 7, 1 / 3),
    (240, 8, 1 / 2),
    (112, 21, 1 / 9),
    (162, 21, 1 / 7),
    (100, 22, 1 / 11),
    (275, 22, 1 / 6),
    (891, 22, 1 / 4),
    (552, 23, 1 / 5),
    (4600, 23, 1 / 3),
    (196560, 24, 1 / 2),
    (325, 52, 1 / 16),
    (756, 105, 1 / 25),
]
# Where linear programming is worth its time, and where the bound is that of nothing but floating point.
PAIRS = [(33, 4), (100, 3), (100, 5), (1000, 10), (10, 4), (100, 7), (100, 10), (200, 50), (9001, 4), (40, 9)]
LARGE = [(8193, 4096), (10**9, 4096), (10**9, 100), (10**6, 10), (66048, 256)]


def monomials(proof):
    """The certificate's polynomial, multiplied out factor by factor."""
    s, one = Fraction(proof.cosine), Fraction(1)
    m = len(proof.weights) - 1
    rest = [Fraction(0)] * (m + 1)
    for j, weight in enumerate(proof.weights):
        term = [Fraction(weight)]
        for factor in [[one, one]] * j + [[s, -one]] * (m - j):
            term = reference.product(term, factor)
        rest = [a + b for a, b in zip(rest, term, strict=True)]
    for root in proof.roots:
        rest = reference.product(reference.product(rest, [-Fraction(root), one]), [-Fraction(root), one])
    return reference.product(rest, [-s, one])


def check(proof, num):
    """That the polynomial proves its bound for num points: with another expansion, and nothing rounded."""
    f = monomials(proof)
    expansion = reference.gegenbauer_expansion(f, proof.dim)
    assert expansion == proof.coefficients()
    assert expansion[0] > 0 and min(expansion) >= 0
    assert reference.power_sum(f, Fraction(1)) / expansion[0] == proof.most_points() < num
    places = {Fraction(i, 150) * (1 + Fraction(proof.cosine)) - 1 for i in range(151)}
    assert max(reference.power_sum(f, t) for t in places) <= 0


@pytest.mark.parametrize("num, dim, cosine", SHARP)
def test_sharp_codes_meet_the_levenshtein_bound(num, dim, cosine):
    assert levenshtein(num, dim) == pytest.approx(cosine, abs=1e-12)
    assert levenshtein(num, dim) <= cosine
    assert best_bound(num, dim) == (levenshtein(num, dim), "Levenshtein")


@pytest.mark.parametrize("num, cosine", [(3, -1 / 2), (4, -1 / 3), (6, 0), (12, 1 / math.sqrt(5))])
def test_fejes_toth_is_met_by_the_platonic_triangulations(num, cosine):
    assert fejes_toth(num) == pytest.approx(cosine, abs=1e-12)


@given(st.integers(0, 8), st.integers(3, 30), st.floats(-1, 1))
def test_gegenbauer_polynomials_are_jacobi_polynomials(k, dim, s):
    a = (dim - 3) / 2
    value = pytest.approx(reference.gegenbauer(k, dim, s), abs=1e-9)
    assert eval_jacobi(k, a, a, s) / eval_jacobi(k, a, a, 1.0) == value
    assert float(reference.power_sum(reference.gegenbauer_monomials(k, dim), Fraction(s))) == value


# --- certificates ---


@pytest.mark.parametrize("num, dim", [(num, dim) for num, dim, _ in SHARP] + PAIRS[:-2] + LARGE[:3])
def test_levenshteins_polynomial_proves_his_bound(num, dim):
    proof = levenshtein_certificate(num, dim)
    assert proof.cosine == levenshtein(num, dim)
    check(proof, num)
    assert proof.most_points() > num * (1 - 1e-9)  # and no more than rounding is given away


@given(st.integers(3, 60), st.floats(0, 1))
def test_levenshteins_polynomial_proves_his_bound_for_any_pair(dim, size):
    num = int((2 * dim + 1) * 20**size)
    check(levenshtein_certificate(num, dim), num)


@given(st.integers(3, 300), st.floats(0, 1))
def test_levenshteins_bound_solves_his_formula(dim, size):
    num = int((2 * dim + 1) * 1000**size)
    s = levenshtein(num, dim)
    assert reference.levenshtein_number(dim, s) == pytest.approx(num, rel=1e-7)


@pytest.mark.parametrize("dim", [3, 4, 5, 17, 256, 4096])
def test_levenshteins_bound_is_finite_and_grows_to_a_billion_points(dim):
    sizes = np.geomspace(2 * dim + 1, 10**9, 40).round().astype(int).tolist()
    values = [levenshtein(num, dim) for num in sizes]
    assert all(0 < a < b < 1 for a, b in itertools.pairwise(values))


@pytest.mark.parametrize("num, dim", LARGE)
def test_large_bounds_have_a_proof(num, dim):
    assert levenshtein_certificate(num, dim).most_points() < num


@pytest.mark.parametrize(
    "num, dim, gain", [(33, 4, 3e-3), (100, 5, 5e-3), (1000, 10, 4e-3), (24, 3, 2e-3), (100, 7, 1e-3)]
)
def test_linear_programming_proves_more_in_few_dimensions(num, dim, gain):
    proof = linear_programming(num, dim)
    assert proof == certificate(num, dim)
    assert proof.cosine > levenshtein(num, dim) + gain
    check(proof, num)


@pytest.mark.parametrize("num, dim", [(100, 16), (200, 16), (1000, 32), (240, 8), (10**9, 4)])
def test_linear_programming_is_left_out_where_it_gives_nothing(num, dim):
    assert linear_programming(num, dim) is None
    assert certificate(num, dim).weights == levenshtein_certificate(num, dim).weights


def test_a_wrong_polynomial_proves_nothing():
    proof = linear_programming(33, 4)
    assert proof.most_points() < 33
    (most,) = {i for i, w in enumerate(proof.weights) if w == max(proof.weights)}
    turned = [-w if i == most else w for i, w in enumerate(proof.weights)]
    assert replace(proof, weights=tuple(turned)).most_points() == math.inf  # f > 0 somewhere
    assert replace(proof, roots=tuple(r + 0.1 for r in proof.roots)).most_points() == math.inf  # a coefficient < 0
    assert replace(proof, cosine=1.0).most_points() == math.inf
    assert replace(proof, cosine=proof.cosine + 0.01).most_points() > 33
    assert Certificate(3, 0.0, (), (1.0,)).most_points() == math.inf  # f = t: f_0 = 0
    assert Certificate(3, 0.0, (), (-1.0, 0.0)).most_points() == math.inf  # f = t^2: coefficients >= 0, but f > 0


# --- the simplex bound ---


@pytest.mark.parametrize("dim", [2, 3, 4, 5, 6, 9])
@pytest.mark.parametrize("cosine", [0.3, 0.5, 0.7])
def test_volumes_of_regular_simplices(dim, cosine):
    w = 1 / cosine - 1
    share = w ** ((dim - 1) / 2) * bounds._simplices(dim, 3.0)[1](w)
    dihedral = math.acos(1 / (w + dim - 1))
    assert share == pytest.approx(reference.simplex_share(dim, dihedral), rel=1e-9)


def test_the_simplex_bound_in_three_dimensions_is_that_of_fejes_toth():
    for num in (60, 1000, 10**6):
        assert boroczky(num, 3) == pytest.approx(fejes_toth(num), abs=1e-10)
        assert boroczky(num, 3) < fejes_toth(num)


@pytest.mark.parametrize("num, dim", [(100, 10), (10**6, 64), (30, 4)])
def test_the_simplex_bound_stands_back_where_levenshtein_proves_more(num, dim):
    assert boroczky(num, dim) == -1


def test_many_points_in_few_dimensions_obey_the_simplex_bound():
    for num, dim in ((2000, 4), (10**6, 5), (10**9, 8)):
        assert best_bound(num, dim) == (boroczky(num, dim), "Boroczky")
        assert boroczky(num, dim) > levenshtein(num, dim)


# --- theorems ---

ROOTS = {  # polynomials of the rows in three dimensions, highest power first
    7: [3, -9, -3, 1],
    8: [7, 2, -1],
    9: [3, -1],
    10: [7, -4, -2, 1],
    11: [5, 0, -1],
    14: [4, -2, 3, 0, -1],
    24: [7, 1, -3, -1],
}


def row(num, dim):
    ((cosine, who),) = [(cosine, who) for k, d, cosine, who in THEOREMS if (k, d) == (num, dim)]
    return cosine, who


@pytest.mark.parametrize("num, coefficients", ROOTS.items())
def test_rows_in_three_dimensions_are_roots_rounded_down(num, coefficients):
    nearest = min(np.roots(coefficients), key=lambda root: abs(root - row(num, 3)[0]))
    assert abs(nearest - row(num, 3)[0]) < 2e-15
    # a change of sign just above: the row is the root rounded down, never up
    at, above = (
        np.polyval([Fraction(c) for c in coefficients], Fraction(row(num, 3)[0]) + e) for e in (0, Fraction(1, 10**15))
    )
    assert at * above <= 0


@pytest.mark.parametrize("num", [7, 8, 9, 10, 11, 13, 14])
def test_rows_in_three_dimensions_are_reached(num):
    """By the search, which knows nothing of them."""
    stars = make_prototypes(num, 3, kind="optimised")
    assert stars.optimal and stars.gap > -1e-13
    assert (stars.bound, stars.bound_source) == row(num, 3)


def even_permutations(points):
    def even(p):
        return sum(a > b for a, b in itertools.combinations(p, 2)) % 2 == 0

    return [[x[i] for i in p] for x in points for p in itertools.permutations(range(len(points[0]))) if even(p)]


def signed(numbers):
    return list(
        {
            tuple(s * x for s, x in zip(signs, numbers, strict=True))
            for signs in itertools.product((1, -1), repeat=len(numbers))
        }
    )


def snub_cube():
    t = (1 + (19 + 3 * 33**0.5) ** (1 / 3) + (19 - 3 * 33**0.5) ** (1 / 3)) / 3  # t^3 = t^2 + t + 1
    left = [x for x in signed((1, t, 1 / t)) if math.prod(x) > 0]
    right = [x for x in signed((t, 1, 1 / t)) if math.prod(x) < 0]
    return even_permutations(left) + even_permutations(right)


def petersen():
    corners = np.eye(5) - 1 / 5
    return [corners[i] + corners[j] for i, j in itertools.combinations(range(5), 2)]


def cell_24():
    return list({p for x in signed((1, 1, 0, 0)) for p in itertools.permutations(x)})


def cell_600():
    g = (1 + 5**0.5) / 2
    ends = {p for x in signed((2, 0, 0, 0)) for p in itertools.permutations(x)}
    return [*ends, *signed((1, 1, 1, 1)), *even_permutations(signed((g, 1, 1 / g, 0)))]


@pytest.mark.parametrize(
    "points, num, dim", [(snub_cube, 24, 3), (petersen, 10, 4), (cell_24, 24, 4), (cell_600, 120, 4)]
)
def test_rows_are_reached_by_their_configurations(points, num, dim):
    points = np.array(points())
    kept = np.linalg.svd(points)[2][:dim]  # the Petersen code lies in a hyperplane of five dimensions
    points = torch.from_numpy(points @ kept.T)
    stars = Prototypes(points / points.norm(dim=1, keepdim=True), "known")
    assert len(stars) == num and stars.optimal and stars.gap > -1e-13
    assert (stars.bound, stars.bound_source) == row(num, dim)


# Strongly regular graphs without triangles: v, k, mu, and the multiplicity d of the smallest eigenvalue. In its eigenspace the
# v vertices have cosine r / k where joined and -(1 + r) / (v - 1 - k) where not.
GRAPHS = [(10, 3, 1, 4), (16, 5, 2, 5), (50, 7, 1, 21), (56, 10, 2, 20), (77, 16, 4, 21), (100, 22, 6, 22)]


@pytest.mark.parametrize("v, k, mu, dim", GRAPHS)
def test_the_graphs_without_triangles_meet_their_bound(v, k, mu, dim):
    r, other = np.roots([1, mu, mu - k]).real  # eigenvalues beside k
    assert r < 0 < other and other * (v - 1 - dim) + r * dim == pytest.approx(
        -k
    )  # the trace is 0: dim is r's multiplicity
    cosine = max(r / k, -(1 + r) / (v - 1 - k))
    assert best_bound(v, dim)[0] == pytest.approx(cosine, abs=1e-9)


@pytest.mark.parametrize("dim", [16, 64, 256, 1024])
def test_the_kerdock_rows_hold_as_many_unbiased_bases_as_there_can_be(dim):
    cosine, who = row(dim * (dim + 2), dim)
    assert cosine == 1 / math.sqrt(dim)
    assert best_bound(dim * (dim + 2), dim) == (cosine, who)


def test_kissing_numbers_prove_a_half_and_no_more_than_their_configurations_allow():
    known = {
        4: 24,
        5: 40,
        6: 72,
        7: 126,
        9: 306,
        10: 500,
        11: 582,
        12: 840,
        13: 1154,
        14: 1606,
        15: 2564,
        16: 4320,
    }  # reached
    rows = [(num, dim) for num, dim, cosine, who in THEOREMS if "kissing" in who]
    assert len(rows) == 11 and all(num > known[dim] for num, dim in rows)
    for num, dim in rows:
        assert row(num, dim)[0] == best_bound(num, dim)[0] == 1 / 2 > max(levenshtein(num, dim), boroczky(num, dim))


@pytest.mark.parametrize("num, dim, cosine, who", THEOREMS)
def test_a_row_holds_for_more_points_and_for_fewer_dimensions(num, dim, cosine, who):
    assert levenshtein(num, dim) < cosine  # else it need not be there
    assert best_bound(num, dim)[0] == pytest.approx(cosine, abs=1e-12)
    assert best_bound(num + 1, dim)[0] >= cosine - 1e-12 and best_bound(num, dim - 1)[0] >= cosine - 1e-12


# --- the best of all ---


@settings(max_examples=20)
@given(st.integers(2, 400), st.integers(2, 40))
def test_the_bound_grows_with_points_and_falls_with_dimensions(num, dim):
    bound = best_bound(num, dim)[0]
    assert -1 <= bound < 1
    assert best_bound(num + 1, dim)[0] >= bound - 1e-12
    assert best_bound(num, dim + 1)[0] <= bound + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("dim", range(3, 13))
def test_the_bound_is_monotone_without_a_gap(dim):
    sizes = [*range(2, 150), *(int(150 * 1.2**i) for i in range(50))]
    here, below = ([best_bound(num, d)[0] for num in sizes] for d in (dim, dim + 1))
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(here))
    assert all(a >= b - 1e-12 for a, b in zip(here, below, strict=True))


@settings(max_examples=20)
@given(st.integers(2, 60), st.integers(1, 12), st.integers(0, 10**6))
def test_no_random_set_beats_the_bound(num, dim, seed):
    assume(dim > 1 or num > 1)
    points = random_points(num, dim, torch.Generator().manual_seed(seed))
    assert max_cosine(points) >= best_bound(num, dim)[0] - 1e-12


@pytest.mark.parametrize(
    "num, dim",
    [
        (12, 3),
        (15, 3),
        (20, 3),
        (32, 3),
        (9, 4),
        (13, 4),
        (20, 4),
        (25, 4),
        (16, 5),
        (21, 5),
        (27, 6),
        (30, 8),
        (40, 9),
    ],
)
def test_no_optimised_set_beats_the_bound(num, dim):
    points = random_points(num, dim, torch.Generator().manual_seed(0))
    for t in (4, 32, 256, 2048, 16384):
        points = minimise(points[None], t, log_sum_exp, 40)[0]
    assert max_cosine(points) >= best_bound(num, dim)[0] - 1e-12


@pytest.mark.parametrize("num, dim", [(2, 1), (5, 4), (5, 9), (6, 3), (13, 7), (9, 2)])
def test_exact_codes_meet_the_bound(num, dim):
    stars = make_prototypes(num, dim)
    assert stars.optimal and stars.gap > -1e-12


def test_in_one_dimension_three_points_coincide():
    assert Prototypes(torch.tensor([[1.0], [-1.0], [1.0]]), "three").optimal


def test_levenshteins_bound_says_where_it_does_not_apply():
    with pytest.raises(ValueError, match="must be K > 2 d"):
        levenshtein(8, 4)
