import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import (
    AveragedModel,
    get_ema_avg_fn,
    get_ema_multi_avg_fn,
    get_swa_avg_fn,
    get_swa_multi_avg_fn,
)

from asterism import ClassMeans, PrototypeHead, make_prototypes, reassign
from asterism.head import default_scale
from asterism.sphere import unit


class Classifier(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.backbone = nn.Linear(6, head.dim)
        self.head = head

    def forward(self, x):
        return self.head(self.backbone(x))


def shuffle(head, seed=1):
    """Moves the labels in place, as `reassign` does."""
    order = torch.randperm(len(head.stars), generator=torch.Generator().manual_seed(seed))
    head.assignment.copy_(order[: head.num_classes])


def literal(head, features):
    """scale x cosine, label by label."""
    rows = [head.frame @ head.stars[head.assignment[y]] for y in range(head.num_classes)]
    return torch.stack([head.scale * F.cosine_similarity(features, row[None]) for row in rows], dim=1)


def test_shapes_names_and_values():
    head = PrototypeHead(make_prototypes(9, 5), num_classes=7, scale=3)
    features, labels = torch.randn(4, 5), torch.tensor([6, 0, 3, 3])
    assert (head.num_classes, head.dim, head.num_free) == (7, 5, 2)
    assert torch.allclose(head(features), literal(head, features), atol=1e-6)
    assert torch.allclose(head(features), 3 * head.cosines(features))
    assert torch.equal(head.targets(labels), head.weight[labels])
    assert torch.allclose(head.weight.norm(dim=1), torch.ones(7))
    assert list(head.parameters()) == []
    assert set(head.state_dict()) == {"stars", "assignment", "scale", "frame"}
    assert head.assignment.dtype == torch.int64


def test_the_first_map_is_random_seeded_and_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    a, b, c = (PrototypeHead(num_classes=50, dim=49, seed=s).assignment for s in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_turned_frame_turns_targets_cosines_weight_and_reassignment():
    head = PrototypeHead(num_classes=4, dim=3)
    turn = torch.linalg.qr(torch.randn(3, 3))[0]
    turned = PrototypeHead(num_classes=4, dim=3)
    turned.load_state_dict({**head.state_dict(), "frame": turn})
    features, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0])
    assert torch.allclose(turned(features), literal(turned, features), atol=1e-5)
    assert torch.allclose(turned(features @ turn.T), head(features), atol=1e-5)
    assert torch.allclose(turned.targets(labels), head.targets(labels) @ turn.T, atol=1e-6)
    means = ClassMeans(4, 3)
    means.update(turned.weight.flip(0), torch.arange(4))
    old = turned.assignment.clone()
    assert reassign(turned, means).score == pytest.approx(4, abs=1e-5)
    assert torch.equal(turned.assignment, old.flip(0))


def test_gradcheck_through_cosines():
    head = PrototypeHead(num_classes=5, dim=4).double()
    assert torch.autograd.gradcheck(head, torch.randn(3, 4, dtype=torch.float64, requires_grad=True))


def test_full_precision_under_autocast():
    head = PrototypeHead(num_classes=20, dim=8)
    features = torch.randn(4, 8).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = head(features)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, head(features.float()))


def test_a_feature_of_zeros_has_cosine_zero_and_no_gradient():
    head = PrototypeHead(num_classes=5, dim=4)
    features = torch.zeros(1, 4, requires_grad=True)
    F.cross_entropy(head(features), torch.tensor([2])).backward()
    assert torch.equal(features.grad, torch.zeros(1, 4))
    assert torch.equal(head(features), torch.zeros(1, 5))


@pytest.mark.parametrize("sizes", [(3, 3), (6, 8), (12, 24)])
def test_state_dict_goes_into_a_head_of_another_size(sizes):
    c, K = sizes
    saved = PrototypeHead(make_prototypes(K, 12), num_classes=c, scale=4)
    shuffle(saved)
    model = Classifier(PrototypeHead(num_classes=5, dim=12))
    model.load_state_dict(
        {
            **{f"head.{k}": v for k, v in saved.state_dict().items()},
            "backbone.weight": torch.zeros(12, 6),
            "backbone.bias": torch.zeros(12),
        }
    )
    features = torch.randn(3, 12)
    assert torch.equal(model.head(features), saved(features))
    assert model.head.num_classes == c


def test_a_map_that_is_none_is_refused_and_the_head_unchanged():
    head = PrototypeHead(num_classes=4, dim=3)
    before = copy.deepcopy(head.state_dict())
    for broken in (
        {"assignment": torch.tensor([0, 1, 2, 2])},
        {"assignment": torch.tensor([0, 1, 2, 4])},
        {"stars": torch.ones(4, 3)},
        {"stars": torch.eye(4), "frame": torch.eye(4)},  # another dimension
    ):
        with pytest.raises(ValueError, match="load_state_dict"):
            head.load_state_dict({**before, **broken})
        assert all(torch.equal(before[k], v) for k, v in head.state_dict().items())


def test_new_classes_take_free_stars_and_old_logits_stay():
    head = PrototypeHead(make_prototypes(12, 6), num_classes=7)
    features = torch.randn(5, 6)
    before = head(features)
    head.add_classes(3)
    assert torch.equal(head(features)[:, :7], before)
    assert len(head.assignment.unique()) == 10
    assert head.num_free == 2
    with pytest.raises(ValueError, match=r"n=3, must be 1\.\.2"):
        head.add_classes(3)
    assert head.num_classes == 10


def test_compiled_model_stays_right_after_a_reassignment_without_recompiling():
    model = Classifier(PrototypeHead(num_classes=7, dim=6))
    x, labels = torch.randn(4, 6), torch.tensor([0, 5, 6, 1])

    def step(x, labels):
        features = model.backbone(x)
        return model.head(features), model.head.targets(labels)

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    first = compiled(x, labels)
    assert torch.allclose(first[0], step(x, labels)[0], atol=1e-6)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for seed in range(3):
            shuffle(model.head, seed)
            logits, targets = compiled(x, labels)
            assert torch.allclose(logits, literal(model.head, model.backbone(x)), atol=1e-5)
            assert torch.equal(targets, model.head.targets(labels))
    assert not torch.allclose(first[0], logits)


def test_exported_model_takes_a_new_map():
    model = Classifier(PrototypeHead(num_classes=7, dim=6)).eval()
    x = torch.randn(4, 6)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    exported = program.module()
    assert torch.allclose(exported(torch.cat([x, x])), model(torch.cat([x, x])), atol=1e-6)
    shuffle(model.head)
    exported.load_state_dict(model.state_dict())
    assert torch.allclose(exported(x), literal(model.head, model.backbone(x)), atol=1e-5)


AVERAGES = {
    "swa": {},
    "swa by tensor": {"avg_fn": get_swa_avg_fn()},
    "swa by list": {"multi_avg_fn": get_swa_multi_avg_fn()},
    "ema by tensor": {"avg_fn": get_ema_avg_fn(0.9)},
    "ema by list": {"multi_avg_fn": get_ema_multi_avg_fn(0.9)},
    "ema by hand": {"avg_fn": lambda average, new, n: 0.9 * average + 0.1 * new},
}


def averaged(options, moving=True, copy=False):
    """A model whose labels move, and its average after four updates."""
    model = Classifier(PrototypeHead(make_prototypes(9, 6), num_classes=7))
    average = AveragedModel(model, **options)
    for seed in range(4):
        with torch.no_grad():
            model.backbone.weight.add_(1)
        if moving:
            shuffle(model.head, seed)
        average.update_parameters(model)
        if copy:
            PrototypeHead.copy_maps(model, average)
    return model, average


def check_average(model, average):
    x = torch.randn(5, 6)
    assert all(torch.equal(v, model.head.state_dict()[k]) for k, v in average.module.head.state_dict().items())
    assert not torch.equal(average.module.backbone.weight, model.backbone.weight)
    assert torch.allclose(average(x), literal(model.head, average.module.backbone(x)), atol=1e-5)


@pytest.mark.parametrize("options", AVERAGES.values(), ids=AVERAGES)
def test_weight_averages_copy_the_map(options):
    check_average(*averaged(options))


# torch's own function for lists cannot average any integer, be it a map or a BatchNorm's counter
@pytest.mark.parametrize("name", [name for name in AVERAGES if name != "swa by list"])
@pytest.mark.parametrize("every_step", [True, False])
def test_the_map_is_copied_into_averages_of_buffers(name, every_step):
    model, average = averaged({**AVERAGES[name], "use_buffers": True}, copy=every_step)
    before = copy.deepcopy(model.state_dict())
    PrototypeHead.copy_maps(model, average)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    check_average(model, average)


def test_copied_maps_are_as_big_as_the_models_and_need_a_twin():
    model, average = averaged({"use_buffers": True})
    model.head.add_classes(2)
    PrototypeHead.copy_maps(model, average)
    assert average.module.head.num_classes == 9
    for other in (nn.Linear(2, 2), nn.Sequential(model, copy.deepcopy(model))):
        with pytest.raises(ValueError, match=r"a model with 1 heads and an average with [02] came"):
            PrototypeHead.copy_maps(model, other)


def test_a_map_that_was_averaged_is_refused_with_advice():
    model = Classifier(PrototypeHead(num_classes=40, dim=6))
    average = AveragedModel(model, avg_fn=get_ema_avg_fn(0.9), use_buffers=True)
    for seed in range(3):
        shuffle(model.head, seed)
        average.update_parameters(model)
    with pytest.raises(ValueError, match=r"if weights were averaged, copy it with PrototypeHead.copy_maps"):
        model.load_state_dict(average.module.state_dict())
    with pytest.raises(ValueError, match=r"copy it with PrototypeHead.copy_maps"):
        reassign(average.module.head, ClassMeans(40, 6))


def test_reassign_reports_and_writes_the_map_in_place():
    head, means = PrototypeHead(num_classes=6, dim=5), ClassMeans(6, 5)
    storage = head.assignment.data_ptr()
    wish = head.assignment.roll(1).clone()
    means.update(torch.cat([head.stars[wish] * 7, torch.zeros(2, 5)]), torch.tensor([0, 1, 2, 3, 4, 5, 0, 1]))
    answer = reassign(head, means)
    assert torch.equal(head.assignment, wish)
    assert head.assignment.data_ptr() == storage
    assert answer.certified
    assert len(answer.moved) == 6
    assert str(answer) == "moved 6 of 6, mean cosine -0.200 -> 1.000, exact, 2 features were zero"
    assert len(reassign(head, means, warm=answer).moved) == 0


def test_a_class_that_was_never_seen_stays_where_it_is():
    head, means = PrototypeHead(make_prototypes(9, 4), num_classes=8), ClassMeans(8, 4)
    old = head.assignment.clone()
    means.update(unit(head.weight[:3]), torch.tensor([0, 1, 2]))
    answer = reassign(head, means)
    assert torch.equal(head.assignment, old)
    assert len(answer.moved) == 0


def test_a_failed_reassignment_leaves_the_head_unchanged():
    head, means = PrototypeHead(num_classes=3, dim=2), ClassMeans(3, 2)
    before = head.assignment.clone()
    means.update(torch.full((1, 2), torch.inf), torch.tensor([0]))
    with pytest.raises(ValueError, match="NaN or infinity"):
        reassign(head, means)
    with pytest.raises(ValueError, match="must agree"):
        reassign(head, ClassMeans(4, 2))
    with pytest.raises(ValueError, match=r"keep.nonzero\(\)"):
        reassign(head, ClassMeans(3, 2), keep=torch.tensor([True, False, True]))
    assert torch.equal(head.assignment, before)


def test_default_scale():
    assert [round(default_scale(100, d)) for d in (10, 50, 100, 500)] == [5, 11, 16, 16]
    assert default_scale(1000, 10) > default_scale(100, 10)
    assert PrototypeHead(num_classes=10, dim=9).scale.item() == pytest.approx(default_scale(10, 9))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: PrototypeHead(num_classes=1, dim=3), "num_classes came as 1, must be an integer of at least 2"),
        (lambda: PrototypeHead(torch.eye(3), num_classes=1), "num_classes came as 1"),
        (lambda: PrototypeHead(torch.eye(3), num_classes=4), "4 classes and 3 prototypes, 1 are missing"),
        (lambda: PrototypeHead(num_classes=4), "dim=None came without prototypes"),
        (lambda: PrototypeHead(torch.eye(3), dim=4), "prototypes has 3 dimensions, must have 4"),
        (
            lambda: PrototypeHead(torch.eye(3) * 0.93),
            "row 0 of prototypes has norm 0.93, rows must be unit length: normalise with",
        ),
        (lambda: PrototypeHead(torch.eye(3) * torch.nan), "row 0 of prototypes holds NaN"),
        (lambda: PrototypeHead(torch.eye(3), scale=0), "scale came as 0"),
        (lambda: PrototypeHead(torch.eye(3), scale="4"), "scale came as '4'"),
        (lambda: PrototypeHead("stars.safetensors"), "prototypes came as str, must be a floating-point matrix"),
        (lambda: PrototypeHead(torch.eye(4), num_classes=3).add_classes(1.0), "n=1.0, must be 1"),
        (lambda: PrototypeHead(torch.eye(3))([[1.0, 2.0, 3.0]]), r"features came as list, must be \(B, 3\)"),
        (lambda: PrototypeHead(torch.eye(3)).targets([0, 1]), "labels came as list, must be a tensor"),
        (lambda: PrototypeHead(torch.eye(3))(torch.ones(2, 4)), r"must be \(B, 3\)"),
        (lambda: PrototypeHead(torch.eye(3)).targets(torch.tensor([3])), r"labels run from 3 to 3, must lie in 0\.\.2"),
        (lambda: PrototypeHead(torch.eye(3)).targets(torch.tensor([-1])), "labels run from -1"),
        (lambda: PrototypeHead(torch.eye(3)).targets(torch.tensor([1.0])), "must be integers"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
