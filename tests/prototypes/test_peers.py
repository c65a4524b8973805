import math
from functools import partial

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.prototypes import measures, peers
from asterism.prototypes.bounds import best_bound
from asterism.prototypes.energy import max_cosine, random_points

SEEDS = st.integers(0, 10**6)


def words(num, width, seed=0):
    return torch.randn(num, width, generator=torch.Generator().manual_seed(seed))


def off_diagonal(points):
    return (points @ points.T)[~torch.eye(len(points), dtype=torch.bool)]


KINDS = {
    "hpn": partial(peers.hpn, 9, 8),
    "hpn with words": lambda seed: peers.hpn(9, 8, seed, words(9, 20)),
    "etf": partial(peers.etf, 9, 8),
    "orthonormal": partial(peers.orthonormal, 8, 9),
    "hadamard": partial(peers.hadamard, 9, 10),
    "equiangular basis": partial(peers.equiangular_basis, 9, 4),
    "random": partial(peers.random, 9, 8),
}
FIXED = {
    "word2vec": lambda: peers.word2vec(words(9, 20), 8),
    "maxsep": lambda: peers.maxsep(9, 8),
    "learned": lambda: peers.learned(words(9, 8)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_alone_decides(kind):
    state = torch.get_rng_state()
    a, b, c = (KINDS[kind](seed=seed) for seed in (3, 3, 4))
    assert torch.equal(a, b) and not torch.allclose(a, c)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", [*KINDS, *FIXED])
def test_rows_are_unit_and_double(kind):
    points = KINDS[kind](seed=0) if kind in KINDS else FIXED[kind]()
    assert points.dtype == torch.float64 and points.device.type == "cpu" and not points.requires_grad
    assert (points.norm(dim=1) - 1).abs().max() < 1e-14
    assert max_cosine(points) >= best_bound(*points.shape)[0] - 1e-12


@given(st.integers(3, 6), st.integers(2, 4), SEEDS, st.booleans())
@settings(max_examples=10)
def test_one_step_of_hpn_goes_down_the_slope_of_the_twin(num, dim, seed, semantic):
    w = random_points(num, dim, torch.Generator().manual_seed(seed)).numpy()
    vectors = words(num, 5, seed) if semantic else None
    twin = partial(reference.hpn, words=None if vectors is None else vectors.double().numpy())
    gradient = np.zeros_like(w)
    for place in np.ndindex(*w.shape):
        step = np.zeros_like(w)
        step[place] = 1e-6
        gradient[place] = (twin(w + step) - twin(w - step)) / 2e-6
    expected = w - peers.HPN_RATE * gradient
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "HPN_STEPS", 1)
        stepped = peers.hpn(num, dim, seed, vectors)
    assert np.abs(stepped.numpy() - expected / np.linalg.norm(expected, axis=1, keepdims=True)).max() < 1e-9


def test_hpn_has_momentum(monkeypatch):
    start = random_points(6, 3, torch.Generator().manual_seed(0))
    velocity = peers._hpn_gradient(start, None)
    first = torch.nn.functional.normalize(start - 0.01 * velocity, dim=1)
    velocity = 0.9 * velocity + peers._hpn_gradient(first, None)
    monkeypatch.setattr(peers, "HPN_STEPS", 2)
    assert (peers.hpn(6, 3) - torch.nn.functional.normalize(first - 0.01 * velocity, dim=1)).abs().max() < 1e-15


def test_hpn_at_100_x_100_ends_where_it_is_published():
    """Table 7 of the paper: largest cosine .05, smallest -.39."""
    spread = measures.cosine_range(peers.hpn(100, 100))
    assert spread.largest == pytest.approx(0.05, abs=0.005) and spread.smallest == pytest.approx(-0.39, abs=0.02)


def test_no_hpn_at_100_x_50_is_below_zero():
    """Table 7 prints -.05, which Rankin's bound forbids."""
    assert measures.cosine_range(peers.hpn(100, 50)).largest > 0.05
    assert best_bound(100, 50) == (0, "Rankin (orthoplex)")


def test_ties_in_words_count_half():
    similar = torch.tensor([[1, 0.5, 0.5, 0.9], [0.5, 1, 0.1, 0.2], [0.5, 0.1, 1, 0.3], [0.9, 0.2, 0.3, 1]])
    assert peers._ranks(similar.double()).tolist() == [[0, 0.5, 0.5, 2], [2, 0, 0, 1], [2, 0, 0, 1], [2, 0, 1, 0]]


def test_words_order_the_prototypes_of_hpn():
    vectors = words(12, 6)
    without, kept = (reference.order_kept(peers.hpn(12, 11, 0, v).numpy(), vectors.numpy()) for v in (None, vectors))
    assert abs(without - 0.5) < 0.1 and kept > 0.7


@given(st.integers(2, 12), st.integers(1, 9), SEEDS)
def test_word2vec_is_the_pca_of_the_twin(num, dim, seed):
    vectors = words(num, 9, seed)
    twin = reference.principal_components(vectors.double().numpy(), min(dim, num - 1))
    twin /= np.linalg.norm(twin, axis=1, keepdims=True)
    if dim == 1 and num > 2:  # room for +1 and -1 alone
        with pytest.raises(ValueError, match="become equal when reduced to d = 1"):
            peers.word2vec(vectors, dim)
        return
    points = peers.word2vec(vectors, dim)
    assert points.shape == (num, dim) and not points[:, num - 1 :].any()
    assert np.abs(points.numpy() @ points.numpy().T - twin @ twin.T).max() < 1e-9
    signs = np.sign((points[:, : num - 1].numpy() * twin).sum(axis=0))
    assert np.abs(points[:, : num - 1].numpy() - twin * signs).max() < 1e-9
    turn = torch.linalg.qr(words(9, 9, seed + 1).double())[0]
    assert (peers.word2vec(vectors.double() @ turn, dim) - points).abs().max() < 1e-5  # the signs of the axes are fixed


@given(st.integers(2, 12), st.integers(0, 4), SEEDS)
def test_etf_is_a_simplex_in_a_random_direction(num, more, seed):
    points = peers.etf(num, num - 1 + more, seed)
    assert (off_diagonal(points) + 1 / (num - 1)).abs().max() < 1e-13
    assert points.sum(dim=0).abs().max() < 1e-13


@pytest.mark.parametrize("num", [2, 3, 4, 10, 50])
def test_maxsep_is_the_recursion_of_its_paper(num):
    assert np.abs(peers.maxsep(num, num - 1).numpy() - reference.maximum_separation(num - 1).T).max() < 1e-13
    assert torch.equal(peers.maxsep(num, num + 2)[:, num - 1 :], torch.zeros(num, 3, dtype=torch.float64))


@given(st.integers(1, 9), st.integers(0, 5), SEEDS)
def test_orthonormal_rows_are_orthonormal(num, more, seed):
    points = peers.orthonormal(num, num + more, seed)
    assert (points @ points.T - torch.eye(num)).abs().max() < 1e-13


def test_a_random_rotation_has_no_preferred_sign():
    corners = torch.stack([peers.orthonormal(3, 3, seed).diagonal() for seed in range(400)])
    assert corners.mean(dim=0).abs().max() < 0.1  # without the signs of R fixed it would be far from 0


BUILDABLE = [n for n in range(1, 201) if peers._buildable(n)]


def test_most_hadamard_orders_are_built():
    missing = [n for n in range(4, 201, 4) if n not in BUILDABLE]
    assert missing == [52, 92, 100, 116, 156, 172, 184, 188]
    assert not [n for n in BUILDABLE if n > 2 and n % 4]


@pytest.mark.parametrize("order", BUILDABLE)
def test_a_hadamard_matrix_has_orthogonal_rows_of_signs(order):
    matrix = peers._signs(order, torch.arange(order)[:, None], torch.arange(order)[None])
    assert torch.equal(matrix.abs(), torch.ones(order, order).double())
    assert torch.equal(matrix @ matrix.T, order * torch.eye(order).double())


@given(st.integers(2, 40), st.integers(1, 40), SEEDS)
def test_hadamard_rows_are_signs_all_different_and_as_orthogonal_as_stated(num, dim, seed):
    if 2**dim < num:
        return
    points = peers.hadamard(num, dim, seed)
    assert (points.abs() - 1 / math.sqrt(dim)).abs().max() < 1e-15
    order = next(n for n in BUILDABLE if n >= max(num, dim))
    assert off_diagonal(points).abs().max() <= (order - dim) / dim + 1e-12 or order > 2 * dim
    assert off_diagonal(points).max() <= 1 - 2 / dim + 1e-12


@pytest.mark.parametrize("num, dim", [(2, 1), (4, 2), (25, 5), (100, 7), (101, 8), (128, 7)])
def test_few_columns_still_tell_all_rows_apart(num, dim):
    assert off_diagonal(peers.hadamard(num, dim)).max() < 1 - 1 / dim


# Sets of lines that meet Welch's bound, sqrt((K - d) / (d (K - 1))), and so are optimal.
@pytest.mark.parametrize("num, dim", [(6, 3), (10, 5), (16, 6), (28, 7)])
def test_equiangular_lines_are_found(num, dim):
    cosines = off_diagonal(peers.equiangular_basis(num, dim)).abs()
    assert cosines.max() == pytest.approx(math.sqrt((num - dim) / (dim * (num - 1))), abs=1e-3)
    assert cosines.min() > cosines.max() - 5e-3


@pytest.mark.parametrize("num, dim, alpha", [(5, 8, 0), (5, 4, 1 / 4), (7, 2, math.cos(math.pi / 7))])
def test_exact_equiangular_bases(num, dim, alpha):
    assert off_diagonal(peers.equiangular_basis(num, dim)).abs().max() == pytest.approx(alpha, abs=1e-13)


@pytest.mark.parametrize("num, dim", [(9, 3), (20, 8), (40, 12)])
def test_an_equiangular_basis_is_far_below_random_and_never_below_welch(num, dim):
    alpha = off_diagonal(peers.equiangular_basis(num, dim)).abs().max().item()
    assert math.sqrt((num - dim) / (dim * (num - 1))) <= alpha
    assert alpha < off_diagonal(peers.random(num, dim)).abs().max().item() - 0.2


def test_an_equiangular_basis_is_the_best_of_its_starts(monkeypatch):
    monkeypatch.setattr(peers, "minimise", lambda sets, *_: sets)
    generator = torch.Generator().manual_seed(0)
    starts = [random_points(20, 8, generator) for _ in range(8)]
    alphas = [off_diagonal(points).abs().max() for points in starts]
    assert torch.equal(peers.equiangular_basis(20, 8), starts[int(np.argmin(alphas))])


@pytest.mark.parametrize("t", [2.0, 64.0])
def test_the_written_out_gradient_of_the_lines_is_the_true_one(t):
    x = 2 * random_points(18, 4, torch.Generator().manual_seed(0)).reshape(2, 9, 4)

    def literal(x):
        w = x / x.norm(dim=1, keepdim=True)
        c = (w @ w.T)[tuple(torch.triu_indices(9, 9, 1))]
        # the diagonal adds the constant 9 * 2 * exp(0) to the sum over ordered pairs
        return torch.logsumexp(torch.cat([t * c, t * c, -t * c, -t * c, torch.zeros(18).double()]), 0) / t

    values, gradients = peers._line_energy(x, t)
    for one, value, gradient in zip(x, values, gradients, strict=True):
        assert abs(value - literal(one)) < 1e-12
        assert (gradient - torch.autograd.functional.jacobian(literal, one)).abs().max() < 1e-12


def test_random_rows_favour_no_direction():
    points = peers.random(20_000, 3)
    assert points.mean(dim=0).abs().max() < 0.02
    assert (points.T @ points / 20_000 - torch.eye(3) / 3).abs().max() < 0.02


def test_learned_keeps_directions():
    weight = torch.nn.Linear(5, 4).weight
    assert torch.allclose(peers.learned(weight), torch.nn.functional.normalize(weight.detach().double()))


ZEROS = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
EQUAL = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: peers.word2vec(ZEROS, 2), "word2vec: rows 1, 3 of the word vectors hold only zeros"),
        (lambda: peers.hpn(4, 3, vectors=ZEROS), "hpn: rows 1, 3 of the word vectors hold only zeros"),
        (lambda: peers.word2vec(EQUAL, 2), "word2vec: rows 0, 2 of the word vectors are equal"),
        (lambda: peers.hpn(3, 3, vectors=EQUAL), "hpn: rows 0, 2 of the word vectors are equal"),
        (lambda: peers.hpn(4, 3, vectors=words(5, 6)), "hpn: 5 word vectors came for 4 prototypes"),
        (lambda: peers.word2vec(words(4, 3), 4), "word2vec: 4 dimensions were asked of word vectors with 3"),
        (lambda: peers.word2vec(words(4, 3), 0), r"must be 1\.\.3"),
        (lambda: peers.word2vec(words(9, 5), 1), "of the word vectors become equal when reduced to d = 1"),
        (
            lambda: peers.word2vec(torch.tensor([[2.0, 0.5], [-2.0, 0.5], [0.0, -1.0]]), 1),
            "word2vec: row 2 of the word vectors come to nothing when reduced to d = 1",
        ),
        (lambda: peers.word2vec(torch.full((2, 2), torch.inf), 1), "word2vec: row 0 of vectors holds NaN or infinity"),
        (lambda: peers.word2vec(torch.eye(3).long(), 2), "floating-point matrix"),
        (lambda: peers.etf(5, 3), "a simplex of 5 classes needs 4 dimensions, came 3"),
        (lambda: peers.maxsep(5, 3), "a simplex of 5 classes needs 4 dimensions, came 3"),
        (lambda: peers.orthonormal(5, 4), "5 orthonormal prototypes need 5 dimensions, came 4"),
        (lambda: peers.hadamard(9, 3), "9 different rows of signs need 4 dimensions, came 3"),
        (lambda: peers.learned(torch.zeros(30, 2)), "learned: rows 0, 1, .* and 20 more of the weight hold only zeros"),
        (lambda: peers.learned(torch.full((2, 2), torch.nan)), "learned: row 0 of weight holds NaN"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_progress_is_reported():
    seen = []
    peers.hpn(5, 3, progress=seen.append)
    peers.equiangular_basis(5, 3, progress=seen.append)
    assert "iteration 1000 of 1000" in seen and seen[-1].endswith("stage 14 of 14")
