import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.prototypes import bounds, codes, energy
from asterism.prototypes.known import _best_union, best_known


@settings(max_examples=40)
@given(st.integers(3, 700), st.integers(3, 40))
def test_what_is_known_keeps_its_word(num, dim):
    found = best_known(num, dim)
    if found is None:
        return
    points = found.points(num, dim)
    assert points.shape == (num, dim) and (points.norm(dim=1) - 1).abs().max() < 1e-12
    assert bounds.best_bound(num, dim)[0] - 1e-12 < energy.max_cosine(points) <= found.cosine + 1e-12
    assert found.holds(points) and not found.holds(points.flip(0))


@pytest.mark.parametrize(
    "num, dim, cosine", [(150, 24, 1 / 7), (256, 16, 1 / 4), (325, 52, 1 / 16), (100, 22, 1 / 11), (1000, 64, 6 / 62)]
)
def test_subsets_of_good_codes(num, dim, cosine):
    assert best_known(num, dim).cosine == pytest.approx(cosine, abs=1e-12)


@settings(max_examples=20)
@given(st.integers(6, 60), st.floats(1.0, 30.0))
def test_unions_have_enough_points_at_their_cosine(dim, factor):
    num = int(2 * dim * factor)
    found = _best_union(num, dim)
    if found is None:
        return
    assert found.num >= num and found.dim == dim
    assert energy.max_cosine(found.points(num, dim)) <= found.cosine + 1e-12
    for code in codes.CODES:  # a code on as many copies as fit, and pairs of antipodes: no better than the best union
        copies = dim // code.dim
        if copies >= 2 and code.cosine >= 0 and copies * code.num + 2 * (dim - copies * code.dim) >= num:
            assert found.cosine <= code.cosine + 1e-12


def test_a_part_says_so():
    found = best_known(200, 8)
    assert found.part(200) == "200 of E8 roots" and found.part(240) == "E8 roots"
    assert torch.equal(found.points(200, 8), found.points(240, 8)[:200])
