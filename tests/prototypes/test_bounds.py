import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import gegenbauer
from scipy.special import eval_jacobi

from asterism.prototypes import make_prototypes
from asterism.prototypes.bounds import best_bound, fejes_toth, levenshtein

# Sharp codes: their largest cosine is known and meets the Levenshtein bound (Levenshtein 1992; Cohn, Kumar 2007, table 1).
SHARP = [
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


@pytest.mark.parametrize("num, dim, cosine", SHARP)
def test_sharp_codes_meet_the_levenshtein_bound(num, dim, cosine):
    assert levenshtein(num, dim) == pytest.approx(cosine, abs=1e-12)
    assert best_bound(num, dim)[1] == "Levenshtein"


@pytest.mark.parametrize("num, cosine", [(3, -1 / 2), (4, -1 / 3), (6, 0), (12, 1 / math.sqrt(5))])
def test_fejes_toth_is_met_by_the_platonic_triangulations(num, cosine):
    assert fejes_toth(num) == pytest.approx(cosine, abs=1e-12)


@given(st.integers(2, 400), st.integers(2, 40))
def test_the_bound_grows_with_points_and_falls_with_dimensions(num, dim):
    bound = best_bound(num, dim)[0]
    assert -1 <= bound < 1
    assert best_bound(num + 1, dim)[0] >= bound - 1e-12
    assert best_bound(num, dim + 1)[0] <= bound + 1e-12


@given(st.integers(2, 60), st.integers(2, 12), st.integers(0, 10**6))
def test_no_random_set_beats_the_bound(num, dim, seed):
    import torch

    from asterism.prototypes.energy import max_cosine, random_points

    points = random_points(num, dim, torch.Generator().manual_seed(seed))
    assert max_cosine(points) >= best_bound(num, dim)[0] - 1e-12


@pytest.mark.parametrize("num, dim", [(7, 3), (12, 3), (20, 3), (24, 4), (16, 5), (27, 6), (30, 8)])
def test_no_optimised_set_beats_the_bound(num, dim):
    stars = make_prototypes(num, dim, kind="optimised")
    assert stars.gap >= -1e-12


@given(st.integers(0, 8), st.integers(3, 30), st.floats(-1, 1))
def test_gegenbauer_polynomials_are_jacobi_polynomials(k, dim, s):
    a = (dim - 3) / 2
    assert eval_jacobi(k, a, a, s) / eval_jacobi(k, a, a, 1.0) == pytest.approx(gegenbauer(k, dim, s), abs=1e-9)
