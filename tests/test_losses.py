import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

from asterism import ipm_loss
from asterism.sphere import unit


def batch(size, dim, seed):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(size, dim, generator=generator, dtype=torch.float64) * 3
    targets = unit(torch.randn(size, dim, generator=generator, dtype=torch.float64))
    return features, targets, torch.rand(size, generator=generator, dtype=torch.float64)


@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 10**6))
def test_loss_is_that_of_the_twin(size, dim, seed):
    features, targets, weight = batch(size, dim, seed)
    features[0] = 0
    plain, weighted = (reference.ipm(features.numpy(), targets.numpy(), w) for w in (None, weight.numpy()))
    assert ipm_loss(features, targets, reduction="none").numpy() == pytest.approx(np.array(plain), abs=1e-12)
    assert ipm_loss(features, targets).item() == pytest.approx(np.mean(plain), abs=1e-12)
    assert ipm_loss(features, targets, reduction="sum").item() == pytest.approx(np.sum(plain), abs=1e-12)
    assert ipm_loss(features, targets, weight=weight).item() == pytest.approx(np.mean(weighted), abs=1e-12)


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_gradient_is_equation_7_as_it_should_read(dim, seed):
    features, targets, _ = batch(1, dim, seed)
    features.requires_grad_()
    ipm_loss(features, targets, reduction="sum").backward()
    expected = reference.ipm_gradient(features.detach().numpy()[0], targets.numpy()[0])
    assert features.grad.numpy()[0] == pytest.approx(expected, abs=1e-12)


def test_gradcheck():
    features, targets, weight = batch(4, 3, 0)
    assert torch.autograd.gradcheck(lambda f: ipm_loss(f, targets, weight=weight), features.requires_grad_())


@pytest.mark.parametrize("degrees, size", [(30, 0.067), (90, 1.0), (120, 1.3), (150, 0.93)])
def test_size_of_the_gradient(degrees, size):
    angle = np.deg2rad(degrees)
    feature = torch.tensor([[np.cos(angle), np.sin(angle)]], requires_grad=True)
    ipm_loss(feature, torch.tensor([[1.0, 0.0]], dtype=torch.float64)).backward()
    assert feature.grad.norm().item() == pytest.approx(size, abs=5e-3)


def test_a_feature_of_zeros_has_cosine_zero_and_no_gradient():
    features = torch.zeros(2, 3, requires_grad=True)
    loss = ipm_loss(features, torch.eye(3)[:2])
    loss.backward()
    assert loss.item() == 0.5
    assert torch.equal(features.grad, torch.zeros(2, 3))


@pytest.mark.parametrize("length", [1e-18, 1e-30, 1e18])
def test_extreme_lengths_stay_finite(length):
    features = torch.tensor([[length, 0.0]], requires_grad=True)
    loss = ipm_loss(features, torch.tensor([[0.0, 1.0]]))
    loss.backward()
    assert loss.isfinite()
    assert features.grad.isfinite().all()


def test_runs_in_float32_under_autocast():
    features = torch.randn(8, 16).bfloat16()
    targets = unit(torch.randn(8, 16))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = ipm_loss(features, targets)
    assert inside.dtype == torch.float32
    assert inside.item() == ipm_loss(features.float(), targets).item()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ipm_loss(torch.ones(2, 3), torch.ones(3, 3)), "must both be"),
        (lambda: ipm_loss(torch.ones(2, 3), torch.ones(2, 3), weight=torch.ones(3)), "one a sample"),
        (lambda: ipm_loss(torch.ones(2, 3), torch.ones(2, 3), reduction="avg"), "'mean', 'sum' or 'none'"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
