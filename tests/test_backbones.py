import pytest
import torch

from asterism.backbones import NAMES, make_embedder


@pytest.mark.parametrize("name", NAMES)
def test_every_backbone_gives_features_of_the_asked_width(name):
    x = torch.randn(2, 3, 16, 16)
    for dim in (5, None):
        embedder = make_embedder(name, (16, 16, 3), dim, width=4)
        assert embedder(x).shape == (2, embedder.dim)
    assert embedder.dim == (64 if name == "mlp" else 16)


@pytest.mark.parametrize("name, parameters", [("resnet20", 269_722), ("resnet32", 464_154), ("resnet56", 853_018)])
def test_parameter_counts_are_those_of_he_et_al(name, parameters):
    """0.27 M, 0.46 M and 0.85 M with the 10-class linear layer (table 6 of the paper)."""
    embedder = make_embedder(name, (32, 32, 3), None, batch_norm=False)
    assert sum(p.numel() for p in embedder.parameters()) + 64 * 10 + 10 == parameters


def test_identity_shortcuts_have_no_parameters_and_convolutions_do():
    count = {
        n: sum(p.numel() for p in make_embedder(n, (8, 8, 3), None, batch_norm=False).parameters())
        for n in ("resnet8", "resnet8-conv")
    }
    assert count["resnet8-conv"] - count["resnet8"] == 16 * 32 * 9 + 32 * 64 * 9 + 2 * (32 + 64)


def test_group_norm_features_do_not_depend_on_the_batch():
    embedder = make_embedder("resnet8-gn", (8, 8, 1), 5, batch_norm=False)
    x = torch.randn(4, 1, 8, 8)
    assert torch.allclose(embedder(x)[:2], embedder(x[:2]), atol=1e-5)


def test_projection_and_batch_norm_are_there_where_needed():
    assert isinstance(make_embedder("resnet8", (8, 8, 1), 64).project, torch.nn.Identity)
    assert isinstance(make_embedder("resnet8", (8, 8, 1), 10).project, torch.nn.Linear)
    assert isinstance(make_embedder("resnet8", (8, 8, 1), 10, batch_norm=False).norm, torch.nn.Identity)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: make_embedder("resnet9", (8, 8, 3), 5), "unknown backbone 'resnet9': did you mean"),
        (lambda: make_embedder("resnet8", (5,), 5), "wants images"),
        (lambda: make_embedder("torch:nothing", (5,), 5), "importable from here"),
        (lambda: make_embedder("torch.nn:Flatten2", (5,), 5), "importable from here"),
        (lambda: make_embedder("builtins:list", (5,), 5), "must return an nn.Module"),
        (lambda: make_embedder("torch.nn:ReLU", (8, 8, 3), 5), r"must give features \(B, width\)"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
