import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

from asterism import ClassMeans


@given(st.integers(1, 5), st.integers(1, 4), st.floats(0.5, 30), st.booleans(), st.integers(0, 10**6))
def test_means_are_those_of_the_twin(num_classes, dim, window, weighted, seed):
    """Duplicates in a batch count, rare classes do not fade, zeros are left out, over several intervals of several batches."""
    rng = np.random.default_rng(seed)
    fast, slow = ClassMeans(num_classes, dim, window=window), reference.WindowedMeans(num_classes, dim, window)
    for _interval in range(4):
        for size in rng.integers(0, 7, size=3):
            features = rng.standard_normal((size, dim)).astype(np.float32)
            features[rng.random(size) < 0.1] = 0
            labels = rng.integers(0, num_classes, size)
            weight = rng.random(size).astype(np.float32) if weighted else None
            fast.update(
                torch.from_numpy(features),
                torch.from_numpy(labels),
                None if weight is None else torch.from_numpy(weight),
            )
            slow.update(features.astype(np.float64), labels, weight)
        computed, expected = fast.compute(), slow.compute()
        lengths = np.linalg.norm(slow.old, axis=1)
        certain = (lengths == 0) | (lengths > 1e-3)  # a mean that cancels to nothing has no certain direction
        assert computed.dtype == torch.float64
        assert computed.numpy()[certain] == pytest.approx(expected[certain], abs=2e-4)


def test_a_window_of_100_answers_to_the_papers_99_percent():
    """One sample a class and interval: sums / known approach the paper's average with a = 0.99."""
    rng = np.random.default_rng(0)
    fast, paper = ClassMeans(1, 3, window=99), np.zeros((1, 3))
    for _ in range(1500):
        feature = rng.standard_normal((1, 3)) + np.array([[1.0, 0.0, 0.0]])
        fast.update(torch.from_numpy(feature), torch.tensor([0]))
        computed = fast.compute().numpy()
        paper = reference.paper_means(paper, feature, np.array([0]), 0.99)
    assert computed[0] == pytest.approx(paper[0] / np.linalg.norm(paper), abs=1e-4)


def test_computing_twice_changes_no_direction_and_absent_classes_keep_theirs():
    means = ClassMeans(3, 2, window=1)
    means.update(torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    first = means.compute()
    assert torch.equal(first, means.compute())
    for _ in range(200):
        means.update(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
        last = means.compute()
    assert torch.equal(last[1], first[1])
    assert torch.equal(last[2], torch.zeros(2))
    assert last[0, 0] > 0.99


def test_zero_features_are_counted():
    means = ClassMeans(2, 2)
    means.update(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 0, 1]))
    assert torch.equal(means.compute(), torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64))
    assert means.zero_features == 2
    means.compute()
    assert means.zero_features == 0


def test_state_in_the_middle_of_an_interval_continues_to_the_same_bits():
    batches = [(torch.randn(6, 4), torch.randint(0, 3, (6,))) for _ in range(6)]
    whole, halved = ClassMeans(3, 4), ClassMeans(3, 4)
    for i, (features, labels) in enumerate(batches):
        whole.update(features, labels)
        halved.update(features, labels)
        if i == 1:
            assert torch.equal(whole.compute(), halved.compute())
        if i == 3:
            resumed = ClassMeans(3, 4)
            resumed.load_state_dict(halved.state_dict())
            halved = resumed
    assert torch.equal(whole.compute(), halved.compute())


def test_no_gradient_is_kept():
    features = torch.randn(3, 4, requires_grad=True)
    means = ClassMeans(2, 4)
    means.update(features * 2, torch.tensor([0, 1, 1]))
    assert not means.sums.requires_grad


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m: m.update(torch.ones(2, 3), torch.tensor([0, 1])), r"must be \(B, 2\)"),
        (lambda m: m.update(torch.ones(2, 2), torch.tensor([0, 3])), r"labels run from 0 to 3, must lie in 0\.\.2"),
        (lambda m: m.update(torch.ones(2, 2), torch.tensor([-1, 0])), "labels run from -1"),
        (lambda m: m.update(torch.ones(2, 2), torch.tensor([0.0, 1.0])), "must be integers"),
        (lambda m: m.update(torch.ones(2, 2), torch.tensor([0])), "1 labels came with 2 features"),
        (lambda m: m.update(torch.ones(2, 2), torch.tensor([0, 1]), torch.ones(3)), "weight came with shape"),
        (lambda m: m.load_state_dict(ClassMeans(4, 2).state_dict()), r"means of shape \(4, 2\)"),
        (lambda m: m.load_state_dict({"sums": torch.zeros(3, 2)}), "counts, known, old_sums, zeros are missing"),
        (lambda m: m.update([[1.0, 2.0]], torch.tensor([0])), r"features came as list, must be \(B, 2\)"),
        (lambda m: ClassMeans(2, 2, window="5"), "window came as '5'"),
        (lambda m: ClassMeans(0, 2), "num_classes came as 0"),
        (lambda m: ClassMeans(2, 2, window=0), "window came as 0"),
    ],
)
def test_bad_input_changes_nothing(call, message):
    means = ClassMeans(3, 2)
    means.update(torch.ones(1, 2), torch.tensor([1]))
    before = means.state_dict()
    with pytest.raises(ValueError, match=message):
        call(means)
    assert all(torch.equal(before[k], v) for k, v in means.state_dict().items())


def test_features_that_are_not_finite_are_found_when_the_means_are_read():
    means = ClassMeans(3, 2)
    means.update(torch.ones(1, 2), torch.tensor([1]))
    means.compute()
    means.update(torch.tensor([[torch.nan, 0.0]]), torch.tensor([2]))
    with pytest.raises(ValueError, match="row 2 of the class means holds NaN"):
        means.compute()
    assert means.old_sums.isfinite().all()
