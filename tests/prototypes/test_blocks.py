import pytest
import torch

from asterism.prototypes import bounds, energy
from asterism.prototypes.blocks import _away, flee


def quiet(_):
    pass


def start(num, dim, seed=0):
    return energy.random_points(num, dim, torch.Generator().manual_seed(seed))


def test_points_flee_each_other():
    before = start(500, 8)
    after = flee(before, 0, 0.1, quiet)
    assert after.dtype == torch.float64 and (after.norm(dim=1) - 1).abs().max() < 1e-14
    assert bounds.best_bound(500, 8)[0] < energy.max_cosine(after) < 0.72 < 0.9 < energy.max_cosine(before)


def test_the_same_seed_gives_the_same_bits():
    one, same, other = (flee(start(120, 5), seed, 0.01, quiet) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_a_point_moves_away_from_its_neighbours():
    x = torch.tensor([[1.0, 0, 0]])
    neighbours = torch.nn.functional.normalize(torch.tensor([[[1.0, 0.3, 0], [1.0, 0, 0.2]]]), dim=2)
    moved = _away(x, neighbours, 20.0)
    assert ((moved @ neighbours[0].T) < (x @ neighbours[0].T)).all() and moved.norm() == pytest.approx(1)


def test_it_tells_how_far_it_is_and_can_be_stopped():
    said = []

    def tell(text):
        said.append(text)
        if len(said) == 20:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="stopped by hand in sweep"):
        points = flee(start(300, 6), 0, 0.1, tell)
    assert points.shape == (300, 6) and "sweep 1 of" in said[0] and "s left" in said[0]
