import math
import signal
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from asterism.prototypes import bounds, energy
from asterism.prototypes.polish import polish


def quiet(_):
    pass


def literal(x, t):
    w = x / x.norm(dim=1, keepdim=True)
    off = ~torch.eye(len(x), dtype=torch.bool)
    return torch.logsumexp(t * (w @ w.T)[off], 0) / t


@given(st.integers(3, 12), st.integers(2, 5), st.floats(1, 200), st.integers(0, 10**6))
def test_the_written_out_energy_and_gradient_are_the_true_ones(num, dim, t, seed):
    x = 2 * energy.random_points(2 * num, dim, torch.Generator().manual_seed(seed)).reshape(2, num, dim)
    values, gradients = energy.log_sum_exp(x, t)
    for one, value, gradient in zip(x, values, gradients, strict=True):
        assert abs(value - literal(one, t)) < 1e-12
        expected = torch.autograd.functional.jacobian(lambda y: literal(y, t), one)
        assert (gradient - expected).abs().max() < 1e-12


def test_minimising_lowers_every_set_to_a_stationary_point():
    x = torch.stack([energy.random_points(12, 4, torch.Generator().manual_seed(s)) for s in range(3)])
    before, _ = energy.log_sum_exp(x, 8.0)
    after, slope = energy.log_sum_exp(energy.minimise(x, 8.0, energy.log_sum_exp, 400), 8.0)
    assert (after < before - 0.05).all() and slope.abs().max() < 1e-2
    again, _ = energy.log_sum_exp(energy.minimise(x[:1], 8.0, energy.log_sum_exp, 3), 8.0)
    assert after[0] < again[0] < before[0]  # more evaluations go further


OPTIMA = {  # largest cosines, by theorem
    (7, 3): 0.210138312730604,
    (12, 3): 1 / math.sqrt(5),
    (13, 3): 0.542636486829638,
    (14, 3): 0.563950300360505,
    (24, 3): 0.723078468333508,
    (10, 4): 1 / 6,
    (16, 5): 1 / 5,
    (27, 6): 1 / 4,
}


@pytest.mark.parametrize("num, dim", OPTIMA)
def test_the_search_finds_known_optima_to_the_last_digits(num, dim):
    found = energy.max_cosine(energy.search(num, dim, 0, None, quiet))
    assert OPTIMA[num, dim] - 1e-12 < found < OPTIMA[num, dim] + 1e-9


RECORDS = {(100, 3): 0.9334, (100, 5): 0.6841, (100, 10): 0.3341, (100, 16): 0.2054, (100, 32): 0.0767, (33, 4): 0.6008}
RECORDS |= {(40, 9): 0.2274, (200, 50): 0.0760}


@pytest.mark.slow
@pytest.mark.parametrize("num, dim", [*RECORDS, (1000, 128)])
def test_the_best_of_a_hundred_annealed_starts_is_reached(num, dim):
    limit = {**RECORDS, (1000, 128): 0.0728}[num, dim]
    assert energy.max_cosine(energy.search(num, dim, 0, None, quiet)) < limit + 2e-3


def test_a_known_set_is_never_forgotten():
    """A search that starts from the icosahedron ends there, whatever its budget."""
    t = (1 + math.sqrt(5)) / 2
    ring = torch.tensor([[0, 1, t], [0, 1, -t], [0, -1, t], [0, -1, -t]], dtype=torch.float64) / math.sqrt(1 + t * t)
    icosahedron = torch.cat([ring.roll(k, 1) for k in range(3)])
    found = energy.search(12, 3, 0, 1e-9, quiet, [icosahedron])
    assert energy.max_cosine(found) == pytest.approx(1 / math.sqrt(5), abs=1e-9)


@settings(max_examples=10)
@given(st.integers(6, 14), st.integers(3, 4), st.integers(0, 10**6))
def test_polishing_ends_where_no_direction_leads_down(num, dim, seed):
    """First-order conditions, checked apart: some pushes along the closest pairs add up to nothing on every sphere."""
    start = energy.random_points(num, dim, torch.Generator().manual_seed(seed))
    start = energy.minimise(start[None], 64.0, energy.log_sum_exp, 400)[0]
    points = polish(start)
    best = energy.max_cosine(points)
    assert best <= energy.max_cosine(start) + 1e-12
    i, j = ((points @ points.T).triu(1) + torch.eye(num).tril() * -2 > best - 1e-7).triu(1).nonzero(as_tuple=True)
    pushes = torch.zeros(len(i), num, dim, dtype=torch.float64)
    for k, (a, b) in enumerate(zip(i.tolist(), j.tolist(), strict=True)):
        pushes[k, a], pushes[k, b] = points[b] - best * points[a], points[a] - best * points[b]
    system = torch.cat([pushes.reshape(len(i), -1).T, torch.ones(1, len(i))]).numpy()
    goal = torch.zeros(num * dim + 1)
    goal[-1] = 1
    assert nnls(system, goal.numpy())[1] < 1e-4


def test_polishing_leaves_a_better_set_and_large_problems_alone():
    stars = energy.random_points(600, 3, torch.Generator().manual_seed(0))
    assert polish(stars) is stars
    cube = torch.tensor(
        [[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)], dtype=torch.float64
    ) / math.sqrt(3)
    assert energy.max_cosine(polish(cube)) <= 1 / 3 + 1e-12


def test_the_same_call_gives_the_same_bits_and_respects_its_bound():
    a, b, c = (energy.search(22, 4, seed, None, quiet) for seed in (0, 0, 1))
    assert torch.equal(a, b) and not torch.equal(a, c)
    assert energy.max_cosine(a) >= bounds.best_bound(22, 4)[0]


def test_a_search_that_is_stopped_keeps_the_best_so_far():
    timer = threading.Timer(3.0, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    try:
        with pytest.warns(UserWarning, match="stopped by hand: the best of"):
            found = energy.search(40, 9, 0, 60.0, quiet)
    finally:
        timer.cancel()
    assert energy.max_cosine(found) < 0.26


def test_screening_in_float32_changes_nothing(monkeypatch):
    points = energy.random_points(700, 20, torch.Generator().manual_seed(2))
    points = torch.cat([points, points[3:4] + 1e-9])
    points = points / points.norm(dim=1, keepdim=True)
    exact = (points @ points.T).fill_diagonal_(-1).max().item()
    monkeypatch.setattr(energy, "WHOLE", 0)
    assert energy.max_cosine(points) == pytest.approx(exact, abs=1e-15)
    exact = (points[:-1] @ points[:-1].T).fill_diagonal_(-1).max().item()
    assert energy.max_cosine(points[:-1]) == pytest.approx(exact, abs=1e-15)
