import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from asterism import make_prototypes, solve_assignment
from asterism.sphere import unit


def problem(num_classes, num_stars, dim, kind, seed):
    """Random, clustered, tied and duplicated means, and classes never seen."""
    generator = torch.Generator().manual_seed(seed)
    stars = unit(torch.randn(num_stars, dim, generator=generator, dtype=torch.float64))
    means = torch.randn(num_classes, dim, generator=generator, dtype=torch.float64)
    if kind == "clustered":
        means = means[:1] + 0.05 * means
    if kind == "tied":
        stars, means = torch.sign(stars) / dim**0.5, torch.sign(means)
    if kind == "duplicated":
        means = means[torch.randint(0, max(1, num_classes // 2), (num_classes,), generator=generator)]
    means = unit(means)
    if kind == "unseen":
        means[torch.rand(num_classes, generator=generator) < 0.5] = 0
    return means, stars


KINDS = st.sampled_from(["random", "clustered", "tied", "duplicated", "unseen"])


@given(st.integers(1, 6), st.integers(0, 1), st.integers(1, 5), KINDS, st.integers(0, 10**6))
def test_small_problems_against_all_maps(c, extra, dim, kind, seed):
    means, stars = problem(c, c + extra, dim, kind, seed)
    best, maps = reference.best_maps((means @ stars.T).numpy())
    current = torch.randperm(c + extra, generator=torch.Generator().manual_seed(seed))[:c]
    found = solve_assignment(means, stars, current=current)
    assert found.score == pytest.approx(best, abs=1e-9)
    assert found.bound >= best - 1e-9
    assert found.certified
    fewest = min(sum(a != b for a, b in zip(m, current.tolist(), strict=True)) for m in maps)
    assert len(found.moved) == fewest == int((found.order != current).sum())
    assert len(found.order.unique()) == c
    before = sum(float(means[i] @ stars[j]) for i, j in enumerate(current))
    assert found.before == pytest.approx(before, abs=1e-12)


def test_seven_classes_against_all_5040_maps():
    for seed in range(5):
        means, stars = problem(7, 7, 4, "random", seed)
        best, _ = reference.best_maps((means @ stars.T).numpy())
        assert solve_assignment(means, stars).score == pytest.approx(best, abs=1e-12)


@given(st.integers(1, 60), st.integers(0, 20), st.integers(1, 12), KINDS, st.integers(0, 10**6))
def test_score_equals_scipys_and_the_bound_proves_it(c, extra, dim, kind, seed):
    means, stars = problem(c, c + extra, dim, kind, seed)
    scores = (means @ stars.T).numpy()
    rows, columns = linear_sum_assignment(scores, maximize=True)
    found = solve_assignment(means, stars)
    assert found.score == pytest.approx(scores[rows, columns].sum(), abs=1e-9)
    assert 0 <= found.gap <= 1e-9 * c
    assert found.before is None
    assert found.moved is None


@given(st.integers(2, 30), st.integers(0, 8), KINDS, st.integers(0, 10**6), st.floats(0, 0.3))
def test_warm_start_gives_the_same_score_and_never_moves_for_nothing(c, extra, kind, seed, drift):
    means, stars = problem(c, c + extra, 5, kind, seed)
    first = solve_assignment(means, stars)
    again = solve_assignment(means, stars, warm=first)
    assert len(again.moved) == 0
    assert again.score == pytest.approx(first.score, abs=1e-12)
    noise = torch.randn(means.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    drifted = unit(means + drift * noise)
    warm, cold = solve_assignment(drifted, stars, warm=first), solve_assignment(drifted, stars)
    assert warm.score == pytest.approx(cold.score, abs=1e-9)
    assert warm.certified
    assert torch.equal(warm.moved, (warm.order != first.order).nonzero()[:, 0])


def test_a_warm_start_of_another_problem_is_only_a_hint():
    means, stars = problem(9, 9, 4, "random", 0)
    for other in (problem(9, 9, 4, "random", 1), problem(5, 7, 4, "random", 2), problem(9, 30, 4, "random", 3)):
        found = solve_assignment(means, stars, warm=solve_assignment(*other))
        assert found.score == pytest.approx(solve_assignment(means, stars).score, abs=1e-12)
        assert found.certified


@given(st.integers(2, 5), st.integers(0, 2), st.integers(0, 10**6))
def test_kept_labels_stay_and_the_rest_is_optimal(c, extra, seed):
    means, stars = problem(c, c + extra, 3, "random", seed)
    generator = torch.Generator().manual_seed(seed)
    current = torch.randperm(c + extra, generator=generator)[:c]
    keep = torch.randperm(c, generator=generator)[: c // 2]
    found = solve_assignment(means, stars, current=current, keep=keep)
    assert torch.equal(found.order[keep], current[keep])
    scores = (means @ stars.T).numpy().copy()
    for i in keep.tolist():
        scores[i] -= 100
        scores[i, current[i]] += 100
    assert found.score == pytest.approx(reference.best_maps(scores)[0], abs=1e-9)
    assert found.certified


def test_prototypes_and_float32_are_taken():
    stars = make_prototypes(8, 4)
    found = solve_assignment(stars.points.float()[[3, 1, 7]], stars)
    assert found.order.tolist() == [3, 1, 7]
    assert str(found) == "3 labels on 8 stars, mean cosine 1.000, exact"


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: solve_assignment(torch.eye(4), torch.eye(4)[:3]),
            "4 classes and 3 stars, 1 stars are missing: make_prototypes",
        ),
        (lambda: solve_assignment(torch.eye(3), torch.eye(4)), "means has 3 dimensions, must have 4"),
        (
            lambda: solve_assignment(2 * torch.eye(3), torch.eye(3)),
            "row 0 of means has norm 2, rows must be unit length or all zeros",
        ),
        (lambda: solve_assignment(torch.eye(3), 2 * torch.eye(3)), "row 0 of prototypes has norm 2"),
        (lambda: solve_assignment(torch.eye(3) * torch.nan, torch.eye(3)), "row 0 of means holds NaN"),
        (lambda: solve_assignment(torch.eye(3), torch.eye(3) * torch.inf), "row 0 of prototypes holds NaN or infinity"),
        (lambda: solve_assignment(torch.eye(3), torch.eye(3), current=torch.tensor([0, 0, 1])), "different stars"),
        (
            lambda: solve_assignment(torch.eye(3), torch.eye(3), current=torch.tensor([0, 1, 3])),
            "different stars in 0..2",
        ),
        (
            lambda: solve_assignment(torch.eye(3), torch.eye(3), current=torch.tensor([0, 1])),
            r"must be \(3,\) integers",
        ),
        (lambda: solve_assignment(torch.eye(3), torch.eye(3), keep=torch.tensor([0])), "give current="),
        (
            lambda: solve_assignment(torch.eye(3), torch.eye(3), current=torch.arange(3), keep=torch.tensor([3])),
            "must lie in 0..2",
        ),
        (lambda: solve_assignment(torch.empty(0, 3), torch.eye(3)), "no class came"),
        (
            lambda: solve_assignment(
                torch.eye(3), torch.eye(3), current=torch.arange(3), keep=torch.tensor([True, False, True])
            ),
            r"keep came as torch.bool of shape \(3,\), must be integers .* give keep.nonzero\(\)\[:, 0\]",
        ),
        (
            lambda: solve_assignment(torch.eye(3), torch.eye(3), current=torch.arange(3), keep=torch.tensor([0.0, 1])),
            "keep came as torch.float32",
        ),
        (
            lambda: solve_assignment(
                torch.eye(3), torch.eye(3), current=torch.arange(3), keep=torch.tensor([[0], [1]])
            ),
            r"keep came as torch.int64 of shape \(2, 1\)",
        ),
        (
            lambda: solve_assignment(torch.eye(2), torch.eye(2), current=torch.tensor([True, False])),
            "type torch.bool came",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_bad_keep_is_refused_where_nothing_would_have_to_be_solved():
    first = solve_assignment(torch.eye(3), torch.eye(3))
    with pytest.raises(ValueError, match="keep came as"):
        solve_assignment(torch.eye(3), torch.eye(3), warm=first, keep=torch.tensor([True, False, True]))
    assert solve_assignment(torch.eye(3), torch.eye(3), warm=first, keep=[]).order.tolist() == [0, 1, 2]


def test_the_bound_is_no_tautology():
    """Prices that do not fit prove nothing: the bound then lies above the optimum."""
    from asterism.assignment import dense

    scores = np.random.default_rng(0).standard_normal((6, 6))
    best, _ = reference.best_maps(scores)
    assert dense._bound(scores, np.random.default_rng(1).standard_normal(6)) > best + 1e-3
