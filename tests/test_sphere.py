import numpy as np
import pytest
import reference
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from asterism import ClassMeans, PrototypeHead, ipm_loss
from asterism.sphere import cosine, measured, unit

TINY, HUGE = torch.finfo(torch.float32).smallest_normal, torch.finfo(torch.float32).max
SUBNORMAL = 2.0**-149  # the smallest float32


def rows(dtype, *lengths, dim=6, seed=0):
    """Random directions whose largest entry is `lengths`, in `dtype`, and the same in float64."""
    x = torch.randn(len(lengths), dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    x = (x / x.abs().amax(dim=1, keepdim=True) * torch.tensor(lengths, dtype=torch.float64)[:, None]).to(dtype)
    return x, x.double()


def exact_unit(x):
    return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)


LENGTHS = {
    torch.float32: [1.0, 1e20, 1e-25, HUGE, TINY, 2e-40, 1e19, 3e-13, 1e12, 5.0],
    torch.bfloat16: [1.0, 1e20, 1e-25, 3.3e38, 1e-38, 5e-39, 7.0],
    torch.float16: [1.0, 65000.0, 6.2e-5, 3e-6, 7.0],
    torch.float64: [1.0, 1e200, 1e-200, 1e308, 1e-300, 7.0],
}


@pytest.mark.parametrize("dtype", LENGTHS)
def test_every_finite_length_has_its_direction(dtype):
    x, exact = rows(dtype, *LENGTHS[dtype])
    largest = exact.abs().amax(dim=1, keepdim=True)
    expected = exact_unit(exact / largest)
    atol = 1e-15 if dtype == torch.float64 else 3e-7
    assert torch.allclose(unit(x).double(), expected, rtol=0, atol=atol)
    targets = exact_unit(torch.randn(x.shape, dtype=torch.float64)).to(unit(x).dtype)
    assert torch.allclose(cosine(x, targets).double(), (expected * targets.double()).sum(dim=1), rtol=0, atol=atol)
    if dtype != torch.float64:
        means = ClassMeans(len(x), x.shape[1])
        means.update(x, torch.arange(len(x)))
        assert means.compute().sub(expected).abs().max() < 1e-6
        assert means.zero_features == 0


@pytest.mark.parametrize("value", [SUBNORMAL, TINY, 1e-20, 1.0, 1e20, HUGE])
def test_the_ends_of_the_range(value):
    x = torch.tensor([[value, 0.0], [-value, value], [value, value]])
    expected = torch.tensor([[1.0, 0.0], [-(0.5**0.5), 0.5**0.5], [0.5**0.5, 0.5**0.5]])
    assert torch.allclose(unit(x), expected)
    assert torch.allclose(cosine(x, expected), torch.ones(3))


@given(st.lists(st.integers(-44, 38), min_size=1, max_size=8), st.integers(1, 5), st.integers(0, 99))
def test_cosines_agree_with_the_literal_twin(exponents, dim, seed):
    x, exact = rows(torch.float32, *(10.0**k for k in exponents), dim=dim, seed=seed)
    targets = unit(torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)))
    expected = [reference.cosine(a, b) for a, b in zip(exact.numpy(), targets.numpy().astype(np.float64), strict=True)]
    assert torch.allclose(cosine(x, targets), torch.tensor(expected).float(), atol=1e-6)


def test_company_changes_no_bit():
    """An ordinary row has the same direction alone and beside an extreme one, which takes the other way through the code."""
    x = torch.randn(50, 16)
    x[:3] = torch.tensor([1e-3, 1.0, 1e3])[:, None] * x[:3]
    targets = unit(torch.randn(50, 16))
    mixed = torch.cat([x, torch.full((1, 16), 1e30), torch.zeros(1, 16)])
    assert torch.equal(unit(mixed)[:50], unit(x))
    assert torch.equal(cosine(mixed[:51], torch.cat([targets, targets[:1]]))[:50], cosine(x, targets))


@pytest.mark.parametrize("length", [1e-30, 1e-20, 1.0, 1e20, 1e30])
def test_gradients_at_every_length(length):
    """Of float32 against the paper's equation 7 as it should read, in float64; the length divides it."""
    x, exact = rows(torch.float32, *[length] * 4)
    targets = unit(torch.randn(4, 6))
    x.requires_grad_()
    ipm_loss(x, targets, reduction="sum").backward()
    expected = [reference.ipm_gradient(z, w) for z, w in zip(exact.numpy(), targets.double().numpy(), strict=True)]
    assert torch.allclose(x.grad.double() * length, torch.tensor(np.array(expected)) * length, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("factor", [1e-250, 1.0, 1e250])
def test_gradcheck_of_both_derivatives(factor):
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    targets = exact_unit(torch.randn(3, 4, dtype=torch.float64))
    for function in (lambda x: unit(x * factor), lambda x: cosine(x * factor, targets)):
        assert torch.autograd.gradcheck(function, x)
        assert torch.autograd.gradgradcheck(function, x)


def test_zeros_have_no_direction_and_no_gradient_whatever_stands_beside_them():
    for others in (1.0, 1e30, 1e-30):
        x = torch.cat([torch.zeros(1, 3), torch.full((1, 3), others)]).requires_grad_()
        assert torch.equal(unit(x)[0], torch.zeros(3))
        (unit(x).sum() + cosine(x, torch.eye(3)[:2]).sum()).backward()
        assert torch.equal(x.grad[0], torch.zeros(3))
        assert x.grad.isfinite().all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_visible(bad):
    x = torch.tensor([[1.0, bad], [3.0, 4.0]])
    assert unit(x)[0].isnan().any()
    assert cosine(x, torch.eye(2))[0].isnan()
    assert torch.equal(unit(x)[1], torch.tensor([0.6, 0.8]))


def test_empty_batches():
    assert unit(torch.empty(0, 3)).shape == (0, 3)
    assert cosine(torch.empty(0, 3), torch.empty(0, 3)).shape == (0,)


def test_compiled_and_exported_they_take_every_length():
    """What is compiled for ordinary rows cannot have looked at them."""
    head = PrototypeHead(num_classes=5, dim=4)
    ordinary, extreme = torch.randn(3, 4), torch.randn(3, 4) * torch.tensor([[1e25], [1e-25], [0.0]])
    compiled = torch.compile(head, backend="aot_eager", fullgraph=True)
    exported = torch.export.export(head, (ordinary,)).module()
    for other in (compiled, exported):
        assert torch.allclose(other(ordinary), head(ordinary), atol=1e-5)
        with torch._dynamo.config.patch(error_on_recompile=True):
            assert torch.allclose(other(extreme), head(extreme), atol=1e-5)


def test_vmap_and_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, targets = torch.randn(5, 4, 3) * 1e25, unit(torch.randn(5, 4, 3))
    together = torch.func.vmap(cosine)(x, targets)
    assert torch.allclose(together, torch.stack([cosine(a, b) for a, b in zip(x, targets, strict=True)]))
    one_by_one = torch.func.vmap(torch.func.grad(lambda a, b: ipm_loss(a[None], b[None])))(x[0], targets[0])
    assert one_by_one.shape == (4, 3)
    with FakeTensorMode():
        assert unit(torch.randn(3, 4)).shape == (3, 4)


def test_an_ordinary_batch_is_not_copied():
    x = torch.randn(4, 3)
    assert measured(x)[0] is x
    assert torch.equal(measured(x)[1], torch.linalg.vector_norm(x, dim=1))


def test_heads_work_on_half_precision_of_any_length():
    head = PrototypeHead(num_classes=5, dim=4)
    x = torch.randn(6, 4)
    for dtype, factor in ((torch.bfloat16, 2.0**100), (torch.bfloat16, 2.0**-100), (torch.float16, 2.0**-8)):
        half = x.to(dtype)
        assert torch.allclose(head(half * factor), F.linear(unit(half), head.weight) * head.scale, atol=2e-2)
