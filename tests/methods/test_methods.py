import numpy as np
import pytest
import reference
import torch
from torch.nn import functional as F

from asterism.head import default_scale
from asterism.methods import METHODS, make_method, resolve

NAMES = list(METHODS)


def batch(size=12, dim=9, classes=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(size, dim, generator=generator),
        torch.randint(0, classes, (size,), generator=generator),
        torch.rand(size, generator=generator),
    )


def literal_loss(name, method, features, labels):
    """Each row as its paper writes it, a sample at a time."""
    z = features.double().numpy()
    if name == "psc-linear":
        logits = z @ method.linear.weight.detach().double().numpy().T + method.linear.bias.detach().double().numpy()
    else:
        rows = (method.head.weight if hasattr(method, "head") else method.weight).detach().double().numpy()
        cosines = np.array([[reference.cosine(a, b) for b in rows] for a in z])
        if name in ("dl2pa", "dl2pa-static", "etf"):
            return 10 * np.mean([0.5 * (cosines[i, y] - 1) ** 2 for i, y in enumerate(labels)])
        scale = {"psc": 1, "fixed-ce": 1, "psc-scaled": 8, "asterism": default_scale(10, 9)}[name]
        logits = scale * cosines
    return np.mean([-np.log(np.exp(row[y]) / np.exp(row).sum()) for row, y in zip(logits, labels.numpy(), strict=True)])


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_those_of_the_papers(name):
    method = make_method(name, 10, 9)
    features, labels, _ = batch()
    assert method.loss(features, labels).item() == pytest.approx(literal_loss(name, method, features, labels), rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_weights_mix_and_gradients_flow(name):
    method = make_method(name, 10, 9)
    features, labels, weight = batch()
    features.requires_grad_()
    other = labels.flip(0)
    mixed = method.loss(features, labels, weight) + method.loss(features, other, 1 - weight)
    by_hand = torch.stack(
        [
            w * method.loss(f[None], a[None]) + (1 - w) * method.loss(f[None], b[None])
            for f, a, b, w in zip(features, labels, other, weight, strict=True)
        ]
    ).mean()
    assert mixed.item() == pytest.approx(by_hand.item(), rel=1e-5)
    mixed.backward()
    assert features.grad.isfinite().all()
    assert features.grad.abs().sum() > 0
    assert all(p.grad is not None for p in method.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_logits_and_head_parameters(name):
    method = make_method(name, 10, 9)
    features, _, _ = batch()
    assert method.logits(features).shape == (12, 10)
    expected = {"psc-linear": 100, "psc-scaled": 90, "psc": 90}.get(name, 0)
    assert sum(p.numel() for p in method.parameters()) == expected


def test_which_maps_move():
    for name in NAMES:
        method = make_method(name, 10, 9)
        if not hasattr(method, "head"):
            continue
        wish = method.head.assignment.roll(1).clone()
        method.after_step(method.head.stars[wish], torch.arange(10))
        record = method.after_epoch()
        assert torch.equal(method.head.assignment, wish) == (name in ("dl2pa", "asterism"))
        assert record.get("moved", 0) == (10 if name in ("dl2pa", "asterism") else 0)


def test_a_learned_scale_learns():
    method = make_method("psc-scaled", 10, 9, {"learn_scale": True, "scale": 4.0})
    features, labels, _ = batch()
    assert method.logits(features).abs().max() <= 4.0001
    method.loss(features, labels).backward()
    assert method.log_scale.grad.abs() > 0


def test_the_default_scale_of_the_opponent_is_the_best_known():
    assert make_method("psc-scaled", 100, 25).log_scale.exp().item() == pytest.approx(8)
    assert make_method("psc-scaled", 100, 50).log_scale.exp().item() == pytest.approx(16)


def test_unscaled_cosines_cannot_fall_below_3_61():
    """The trap of the paper's own baseline: the best that c = 100 can reach, at a simplex."""
    method = make_method("fixed-ce", 100, 99)
    perfect = method.loss(method.head.weight, torch.arange(100)).item()
    assert perfect == pytest.approx(3.61, abs=5e-3)
    assert F.cross_entropy(method.head.weight @ method.head.weight.T * 1.0, torch.arange(100)).item() == pytest.approx(
        perfect, abs=1e-5
    )


def test_options():
    assert resolve("dl2pa", {}).loss_scale == 10
    assert resolve("dl2pa", {"window": 5.0}).window == 5
    for name, changes, message in (
        ("dl2pb", {}, "did you mean 'dl2pa'"),
        ("dl2pa", {"windo": 5}, "did you mean 'window'"),
        ("psc-linear", {"scale": 5}, "has no options"),
    ):
        with pytest.raises(ValueError, match=message):
            resolve(name, changes)
    with pytest.raises(ValueError, match="unknown loss"):
        make_method("asterism", 10, 9, {"loss": "l2"})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "features, labels, message",
    [
        (torch.ones(3, 9), torch.tensor([0, 1, 10]), r"labels run from 0 to 10, must lie in 0\.\.9"),
        (torch.ones(3, 9), torch.tensor([0, -1, 2]), r"labels run from -1 to 2, must lie in 0\.\.9"),
        (torch.ones(3, 9), torch.tensor([0.0, 1.0, 2.0]), "labels came as torch.float32 .* must be integers"),
        (torch.ones(3, 9), torch.tensor([0, 1]), "2 labels came with 3 features|must both be"),
        (torch.ones(3, 9), [0, 1, 2], "labels came as list, must be a tensor"),
        (torch.ones(3, 8), torch.tensor([0, 1, 2]), r"must (both )?be \(B, (9|d)\)"),
    ],
)
def test_bad_input_of_a_loss(name, features, labels, message):
    with pytest.raises(ValueError, match=message):
        make_method(name, 10, 9).loss(features, labels)


def test_bad_options():
    for name, changes, message in (
        ("foo", {}, "unknown method 'foo'"),
        ("asterism", {"scale": -1.0}, "scale came as -1.0, must be positive"),
        ("asterism", {"loss_scale": 0.0}, "loss_scale came as 0.0, must be positive"),
        ("asterism", {"window": -1.0}, "window came as -1.0, must be a positive"),
        ("asterism", {"stars": "foo"}, "unknown kind of prototypes 'foo'"),
        ("psc-scaled", {"scale": 0.0}, "scale came as 0.0, must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            make_method(name, 10, 9, changes)


def test_etf_exists_only_from_c_minus_1_dimensions_on():
    assert make_method("etf", 10, 9).head.num_classes == 10
    with pytest.raises(ValueError, match="a simplex of 10 classes needs 9 dimensions, came 8"):
        make_method("etf", 10, 8)
