import math

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

from asterism.prototypes import codes, measures
from asterism.prototypes.energy import max_cosine, random_points

POINTS = st.builds(
    lambda num, dim, seed: random_points(num, dim, torch.Generator().manual_seed(seed)),
    st.integers(2, 12),
    st.integers(2, 6),
    st.integers(0, 10**6),
)


@given(POINTS, st.floats(0.1, 4))
def test_measures_are_those_of_the_twins(points, t):
    rows = points.numpy()
    cosines = np.array([[reference.cosine(a, b) for b in rows] for a in rows])
    off = cosines[~np.eye(len(rows), dtype=bool)]
    assert measures.average_angle(points) == pytest.approx(reference.average_angle(rows), abs=1e-12)
    assert measures.uniformity(points, t) == pytest.approx(reference.uniformity(rows, t), abs=1e-12)
    assert measures.mean_cosine(points) == pytest.approx(off.mean(), abs=1e-12)
    spread = measures.cosine_range(points)
    assert spread.smallest == pytest.approx(off.min(), abs=1e-12)
    assert spread.largest == pytest.approx(off.max(), abs=1e-12)
    assert spread.nearest == pytest.approx((cosines - 3 * np.eye(len(rows))).max(axis=1).mean(), abs=1e-12)
    assert spread.deviation == pytest.approx(off.std(), abs=1e-12)
    assert measures.mean_norm(points) == pytest.approx(np.linalg.norm(rows.mean(axis=0)), abs=1e-12)


def test_pairs_across_blocks_count():
    points = random_points(4000, 3, torch.Generator().manual_seed(1))  # two blocks of rows
    cosines = points @ points.T
    pairs = torch.triu_indices(4000, 4000, 1)
    off = cosines[pairs[0], pairs[1]]
    assert measures.average_angle(points) == pytest.approx(off.acos().mean().item(), abs=1e-12)
    assert measures.uniformity(points) == pytest.approx((4 * cosines - 4).exp().sum().div(4000).log().item(), abs=1e-10)
    assert measures.mean_cosine(points) == pytest.approx(off.mean().item(), abs=1e-12)
    spread = measures.cosine_range(points)
    assert (spread.smallest, spread.largest) == pytest.approx((off.min().item(), max_cosine(points)), abs=1e-15)
    assert spread.deviation == pytest.approx(off.std(correction=0).item(), abs=1e-10)
    assert spread.nearest == pytest.approx(cosines.fill_diagonal_(-2).amax(dim=1).mean().item(), abs=1e-14)


@pytest.mark.parametrize("num, dim", [(5, 4), (9, 12)])
def test_the_simplex_is_what_theory_says(num, dim):
    points = codes.simplex(num, dim)
    assert measures.cosine_range(points) == pytest.approx((-1 / (num - 1),) * 3 + (0.0,), abs=1e-9)
    assert measures.average_angle(points) == pytest.approx(math.acos(-1 / (num - 1)), abs=1e-12)
    assert measures.mean_norm(points) < 1e-15
    assert measures.frame_condition(points) == (pytest.approx(1, abs=1e-12) if dim == num - 1 else math.inf)


def test_zero_mean_is_not_evenness():
    """The paper's argument against the average angle: half of the set in each of two opposite places has it at its best."""
    poles = torch.eye(3)[:1].repeat(6, 1) * torch.tensor([1.0, -1.0]).repeat(3)[:, None]
    even = codes.orthoplex(6, 3)
    assert measures.mean_norm(poles) == measures.mean_norm(even) == 0
    assert measures.mean_cosine(poles) == pytest.approx(measures.mean_cosine(even), abs=1e-15)
    assert measures.average_angle(poles) == pytest.approx(measures.average_angle(even), abs=1e-12)
    assert measures.uniformity(poles) > measures.uniformity(even) + 0.5
    assert measures.cosine_range(poles).largest == 1 and measures.cosine_range(even).largest == 0


def test_the_frame_condition_is_the_ratio_of_squared_singular_values():
    points = random_points(30, 5, torch.Generator().manual_seed(0))
    values = np.linalg.svd(points.numpy())[1]
    assert measures.frame_condition(points) == pytest.approx((values[0] / values[-1]) ** 2, rel=1e-10)


@pytest.mark.parametrize(
    "name", ["average_angle", "uniformity", "mean_cosine", "cosine_range", "frame_condition", "mean_norm"]
)
def test_bad_input(name):
    measure = getattr(measures, name)
    with pytest.raises(ValueError, match=f"{name}: row 1 of points has norm 2"):
        measure(torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
    with pytest.raises(ValueError, match=f"{name}: 1 rows came"):
        measure(torch.eye(2)[:1])
    with pytest.raises(ValueError, match=f"{name}: row 0 of points holds NaN"):
        measure(torch.full((2, 2), torch.nan))
