import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism import PrototypeHead, make_prototypes
from asterism.prototypes import bounds, codes, constrained
from asterism.prototypes.constrained import near
from asterism.prototypes.energy import max_cosine, random_points

SEEDS = st.integers(0, 10**6)


def targets(num, dim, seed=0):
    return torch.randn(num, dim, generator=torch.Generator().manual_seed(seed))


def unit(rows):
    return torch.nn.functional.normalize(rows.double(), dim=1)


def check(found, wanted, angle):
    """What every answer must hold, computed from the points alone."""
    points = found.points
    assert points.shape == wanted.shape and points.dtype == torch.float64
    assert (points.norm(dim=1) - 1).abs().max() < 1e-14
    assert max_cosine(points) <= math.cos(angle) + constrained.ROUNDING
    assert found.min_angle == math.acos(max_cosine(points)) and found.asked == angle
    cosines = (points * unit(wanted)).sum(dim=1)[wanted.any(dim=1)]
    assert found.mean_cosine == pytest.approx(cosines.mean().item(), abs=1e-14)
    assert found.max_displacement == pytest.approx(math.acos(min(1, cosines.min().item())), abs=1e-7)
    assert found.gap >= -1e-12 and found.bound <= 1


@given(st.integers(2, 14), st.integers(2, 6), st.floats(0.2, 0.95), SEEDS)
@settings(max_examples=25)
def test_the_separation_holds_whenever_something_comes_back(num, dim, share, seed):
    """Random targets, from far apart to the largest angle that the bound allows."""
    wanted = targets(num, dim, seed)
    angle = share * math.acos(bounds.best_bound(num, dim)[0])
    try:
        found = near(wanted, min_angle=angle, seed=seed)
    except ValueError:
        found = None
    if found:
        check(found, wanted, angle)
    else:
        assert share > 0.7


@given(st.integers(3, 12), st.integers(3, 6), SEEDS)
@settings(max_examples=15)
def test_a_moderate_separation_is_met_by_a_stationary_set(num, dim, seed):
    wanted = targets(num, dim, seed)
    angle = 0.6 * math.acos(bounds.best_bound(num, dim)[0])
    found = near(wanted, min_angle=angle)
    check(found, wanted, angle)
    assert found.stationary and found.kkt_residual < 1e-9


@given(st.integers(3, 8), st.integers(2, 5), SEEDS)
@settings(max_examples=15)
def test_the_first_order_conditions_hold_literally(num, dim, seed):
    """Each gradient t_i is a combination of w_i and of the w_j that touch it, these with weights of at least 0."""
    from scipy.optimize import nnls

    wanted = targets(num, dim, seed)
    found = near(wanted, min_angle=0.6 * math.acos(bounds.best_bound(num, dim)[0]))
    assert found.stationary
    points, goal = found.points.numpy(), unit(wanted).numpy()
    pairs = [(i, j) for i in range(num) for j in range(i) if points[i] @ points[j] > math.cos(found.asked) - 1e-9]
    columns = []
    for i, j in pairs:
        push = np.zeros_like(points)
        push[i], push[j] = points[j], points[i]
        columns.append(push.ravel())
    for i in range(num):
        for sign in (1, -1):
            length = np.zeros_like(points)
            length[i] = sign * points[i]
            columns.append(length.ravel())
    assert nnls(np.stack(columns, axis=1), goal.ravel())[1] < 1e-7


@given(st.integers(3, 6), st.integers(2, 4), SEEDS)
@settings(max_examples=10)
def test_a_general_solver_finds_nothing_better_nearby(num, dim, seed):
    from scipy.optimize import minimize

    goal = unit(targets(num, dim, seed)).numpy()
    found = near(torch.from_numpy(goal), min_angle=0.7 * math.acos(bounds.best_bound(num, dim)[0]))
    limit = math.cos(found.asked)
    i, j = np.triu_indices(num, 1)
    separated = {"type": "ineq", "fun": lambda x: limit - (x.reshape(num, dim) @ x.reshape(num, dim).T)[i, j]}
    on_sphere = {"type": "eq", "fun": lambda x: (x.reshape(num, dim) ** 2).sum(axis=1) - 1}
    start = found.points.numpy() + 1e-3 * np.random.default_rng(seed).standard_normal((num, dim))
    other = minimize(
        lambda x: -(x * goal.ravel()).sum(),
        start.ravel(),
        jac=lambda x: -goal.ravel(),
        method="SLSQP",
        constraints=[separated, on_sphere],
        options={"ftol": 1e-12, "maxiter": 300},
    )
    assert -other.fun / num <= found.mean_cosine + 1e-6


@given(st.integers(3, 8), st.integers(3, 6), SEEDS)
@settings(max_examples=15)
def test_no_separated_set_beats_the_bound(num, dim, seed):
    """Sets that hold the separation for another reason: exact codes and answers to other targets, fitted by rotation."""
    wanted = unit(targets(num, dim, seed))
    angle = 0.7 * math.acos(bounds.best_bound(num, dim)[0])
    found = near(wanted, min_angle=angle)
    others = [constrained._fitted(wanted, seed)]
    others += [near(targets(num, dim, seed + k), min_angle=angle).points for k in (1, 2)]
    for points in others:
        if max_cosine(points) <= math.cos(angle):
            left, _, right = torch.linalg.svd(points.T @ wanted)
            assert (points @ left @ right * wanted).sum(dim=1).mean().item() <= found.bound + 1e-9


def test_moderate_problems_are_solved_to_proven_optimality():
    wanted = targets(60, 20)
    found = near(wanted, min_angle=math.radians(75))
    check(found, wanted, math.radians(75))
    assert found.optimal and abs(found.gap) < 1e-10 and found.stationary
    assert "optimal" in str(found) and "at least 75.00 degrees apart" in str(found)


def test_targets_that_are_apart_already_stay_where_they_are():
    wanted = 3 * codes.simplex(6, 8)
    found = near(wanted, min_angle=math.radians(80))
    assert (found.points - wanted / 3).abs().max() < 1e-8
    assert found.optimal and found.mean_cosine == pytest.approx(1, abs=1e-12)


@given(st.floats(0.01, 1.2), st.floats(0.02, 1.2), st.integers(2, 5))
def test_two_targets_part_evenly(angle, more, dim):
    wanted = torch.zeros(2, dim, dtype=torch.float64)
    wanted[:, 0], wanted[0, 1], wanted[1, 1] = math.cos(angle / 2), math.sin(angle / 2), -math.sin(angle / 2)
    found = near(wanted, min_angle=angle + more)
    assert found.mean_cosine == pytest.approx(math.cos(more / 2), abs=1e-10) and found.optimal


@pytest.mark.parametrize("num, dim, degrees", [(2, 2, 60), (3, 3, 60), (4, 8, 80), (5, 5, 95)])
def test_targets_that_coincide_part_into_a_cone_around_them(num, dim, degrees):
    """The best is the regular simplex with these cosines s, all at the same angle a to the target: cos^2 a = (1 + (K-1) s) / K."""
    s = math.cos(math.radians(degrees))
    wanted = torch.ones(num, dim)
    found = near(wanted, min_angle=math.radians(degrees))
    check(found, wanted, math.radians(degrees))
    assert found.mean_cosine == pytest.approx(math.sqrt((1 + (num - 1) * s) / num), abs=1e-7)
    again, other = (near(wanted, min_angle=math.radians(degrees), seed=seed) for seed in (0, 1))
    assert torch.equal(found.points, again.points)
    assert num == 2 or not torch.allclose(found.points, other.points, atol=1e-3)


@pytest.mark.parametrize("num, dim", [(4, 3), (6, 5), (6, 3), (5, 2)])
def test_the_largest_angle_of_all_is_reached_where_an_exact_code_has_it(num, dim):
    """Then only that code remains, to be turned and numbered; a simplex fits best by the orthogonal Procrustes rotation."""
    wanted = unit(targets(num, dim, 3))
    angle = math.acos(bounds.best_bound(num, dim)[0])
    found = near(wanted, min_angle=angle)
    check(found, wanted, angle)
    if num == dim + 1:
        best = torch.linalg.svdvals(codes.simplex(num, dim).T @ wanted).sum().item() / num
        assert found.mean_cosine == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("num, dim", [(4, 3), (7, 3), (20, 5)])
def test_the_known_set_is_turned_and_numbered_to_fit(num, dim):
    """A copy of it that was turned and mixed: found again in most cases, nearly so in the others."""
    stars = make_prototypes(num, dim).points
    scores = []
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        turn = torch.linalg.qr(torch.randn(dim, dim, generator=generator).double())[0]
        goal = (stars @ turn)[torch.randperm(num, generator=generator)]
        fitted = constrained._fitted(goal, 0)
        scores.append((fitted * goal).sum(dim=1).mean().item())
        assert (fitted @ fitted.T).flatten().sort()[0].sub((stars @ stars.T).flatten().sort()[0]).abs().max() < 1e-12
    assert max(scores) == pytest.approx(1, abs=1e-9) and min(scores) > 0.8


def test_a_set_that_could_not_be_improved_says_so(monkeypatch):
    monkeypatch.setattr(constrained, "_newton", lambda *_: None)
    found = near(targets(6, 3), min_angle=1.5)
    assert torch.equal(found.points, constrained._fitted(unit(targets(6, 3)), 0))
    assert not found.stationary and not found.optimal and "not shown to be stationary" in str(found)


@pytest.mark.parametrize("limit", [0.4, 0.99])
def test_the_residual_is_that_of_the_definition(limit):
    generator = torch.Generator().manual_seed(0)
    points, goal = (random_points(4, 3, generator) for _ in range(2))
    multipliers = torch.rand(4, 4, generator=generator).double().triu(1)
    multipliers += multipliers.T.clone()
    if limit == 0.99:  # no slope and no overlap: what is left are multipliers of pairs that do not touch
        goal = multipliers @ points
    excess, worst = points @ points.T - limit, 0.0
    for i in range(4):
        slope = sum(multipliers[i, j] * points[j] for j in range(4)) - goal[i]
        worst = max(worst, (slope - (slope @ points[i]) * points[i]).abs().max().item())
        for j in range(4):
            if i != j:
                worst = max(worst, excess[i, j].item(), -(multipliers[i, j] * excess[i, j]).item())
    assert constrained._residual(goal, points, multipliers, limit) == pytest.approx(worst, abs=1e-14)
    found = near(targets(10, 4), min_angle=1.0)
    assert 0 < found.kkt_residual < 1e-9


def test_close_to_the_largest_angle_known_the_known_set_helps(monkeypatch):
    wanted = targets(20, 4)
    angle = math.acos(make_prototypes(20, 4).max_cosine) - 1e-3
    known = constrained._fitted(unit(wanted), 0)
    asked = []
    monkeypatch.setattr(constrained, "_fitted", lambda *_: asked.append(True) or known)
    found = near(wanted, min_angle=angle)
    check(found, wanted, angle)
    assert asked  # from the targets alone no set is found here
    assert found.mean_cosine > (known * unit(wanted)).sum(dim=1).mean().item() + 1e-6


def test_a_target_of_zeros_takes_what_room_is_left():
    wanted = targets(12, 4, 5)
    wanted[[3, 7]] = 0
    found = near(wanted, min_angle=math.radians(60))
    check(found, wanted, math.radians(60))
    rest = near(wanted[wanted.any(dim=1)], min_angle=math.radians(60))
    assert found.mean_cosine <= rest.bound + 1e-12


def test_a_smaller_angle_is_closer_to_the_targets():
    wanted = targets(20, 6)
    reached = [near(wanted, min_angle=math.radians(a)).mean_cosine for a in (20, 40, 60, 70)]
    assert reached == sorted(reached, reverse=True) and reached[0] > reached[-1] + 0.01


def test_the_points_make_a_head():
    found = near(targets(10, 6), min_angle=math.radians(60))
    head = PrototypeHead(found.points)
    assert head.num_classes == 10 and head.dim == 6


def test_float32_and_numpy_targets_of_any_length_are_taken():
    wanted = targets(9, 4)
    a, b = near(wanted, min_angle=1.0), near((7 * wanted).numpy(), min_angle=1.0)
    assert (a.points - b.points).abs().max() < 1e-6


def test_the_caller_keeps_targets_and_random_numbers():
    wanted = targets(8, 3)
    kept, state, threads = wanted.clone(), torch.get_rng_state(), torch.get_num_threads()
    near(wanted, min_angle=1.0)
    assert torch.equal(wanted, kept) and torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_newton_restores_the_separation_from_outside():
    """Points with random overlaps, held at themselves: the nearest separated set, in one series of steps."""
    points = random_points(12, 4, torch.Generator().manual_seed(1))
    aim = math.cos(math.radians(50))
    assert max_cosine(points) > aim + 0.1
    settled = constrained._newton(points, points, torch.zeros(12, 12).double(), aim, lambda _: None)
    assert settled is not None and max_cosine(settled[0]) < aim + 1e-12


def test_what_no_bound_forbids_but_nobody_finds_is_an_error_with_the_largest_angle_found(monkeypatch):
    monkeypatch.setattr(bounds, "best_bound", lambda num, dim: (-1.0, "nobody"))  # in truth 5 points reach pi / 2
    monkeypatch.setattr(constrained, "_fitted", lambda goal, seed: codes.orthoplex(5, 3))
    with pytest.raises(
        ValueError, match=r"no 5 points in 3 dimensions were found 1.6.* largest angle found is 1.570796"
    ):
        near(targets(5, 3), min_angle=1.6)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: near(targets(9, 4), min_angle=80), r"in radians: 80 degrees are math.radians\(80\)"),
        (lambda: near(targets(9, 4), min_angle=0.0), "min_angle came as 0.0"),
        (lambda: near(targets(9, 4), min_angle=math.nan), "min_angle came as nan"),
        (lambda: near(targets(9, 4), min_angle=1.6), r"no 9 points in 4 dimensions are more than 1.4.* apart \(lin"),
        (lambda: near(targets(5, 4), min_angle=1.9), r"more than 1.823477 apart \(Rankin \(simplex\)\)"),
        (lambda: near(targets(1, 4), min_angle=1.0), "targets came as 1 x 4, must be at least two rows"),
        (lambda: near(targets(2, 1), min_angle=1.0), "targets came as 2 x 1"),
        (lambda: near(torch.zeros(3, 3), min_angle=1.0), "all targets are zeros"),
        (lambda: near(torch.tensor([[1.0, 0], [math.nan, 1]]), min_angle=1.0), "row 1 of targets holds NaN"),
        (lambda: near(torch.eye(3).long(), min_angle=1.0), "floating-point matrix"),
        (lambda: near(torch.ones(6000, 2), min_angle=1e-3), "6000 targets need 2 GiB"),
        (lambda: near(targets(9, 4), min_angle=1.0, seed=-1), "seed came as -1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
def test_a_thousand_targets_in_128_dimensions():
    generator = torch.Generator().manual_seed(0)
    groups = torch.randn(50, 128, generator=generator).repeat(20, 1)
    wanted = groups + 0.7 * torch.randn(1000, 128, generator=generator)
    found = near(wanted, min_angle=math.radians(80))
    check(found, wanted, math.radians(80))
    assert found.optimal
