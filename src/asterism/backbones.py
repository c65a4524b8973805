"""The networks that turn an input into a feature of `dim` numbers. Small ones of the paper; anything else by module.path:function.

    mlp                            two hidden layers, on flattened inputs
    resnet8 14 20 32 56            He et al. 2016 for CIFAR: three stages of n blocks, widths w, 2w, 4w, identity shortcuts padded
                                   with zeros (option A)
    -conv                          behind the name: 3x3-convolution shortcuts, as the paper's published network has
    -gn                            behind the name: GroupNorm instead of BatchNorm; no statistics over the batch

(B, C, H, W) images or (B, D) features -> (B, dim).
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asterism.checks import unknown

RESNETS = {f"resnet{6 * n + 2}": n for n in (1, 2, 3, 5, 9)}
NAMES = ["mlp", *RESNETS, *(f"{r}{v}" for r in RESNETS for v in ("-conv", "-gn", "-conv-gn"))]


class Embedder(nn.Module):
    """Backbone, projection to `dim` where the widths differ, and BatchNorm before the sphere if asked for."""

    def __init__(self, backbone: nn.Module, width: int, dim: int, batch_norm: bool) -> None:
        super().__init__()
        self.backbone = backbone
        self.dim = dim
        self.project = nn.Identity() if width == dim else nn.Linear(width, dim)
        self.norm = nn.BatchNorm1d(dim) if batch_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.project(self.backbone(x).float()))


def make_embedder(
    name: str, shape: tuple[int, ...], dim: int | None, *, width: int = 16, batch_norm: bool = True
) -> Embedder:
    """A backbone for inputs of `shape`, (H, W, C) or (D,), with features of `dim` numbers; None: as the backbone gives them.

    >>> make_embedder("resnet8", (32, 32, 3), 10)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    backbone = _user_backbone(name) if ":" in name else _backbone(name, shape, width)
    features = _feature_width(name, backbone, shape)
    return Embedder(backbone, features, features if dim is None else dim, batch_norm)


def _backbone(name: str, shape: tuple[int, ...], width: int) -> nn.Module:
    if name not in NAMES:
        raise unknown("backbone", name, [*NAMES, "module.path:function"])
    if name == "mlp":
        return MLP(math.prod(shape), 16 * width)
    if len(shape) != 3:
        raise ValueError(
            f"backbone {name} wants images, the data has features of {shape[0]} numbers: use --backbone mlp"
        )
    base, *variants = name.split("-")
    return ResNet(RESNETS[base], width, shape[2], conv_shortcut="conv" in variants, group_norm="gn" in variants)


def _user_backbone(path: str) -> nn.Module:
    module, _, function = path.partition(":")
    with _current_folder_on_the_path() as folder:
        try:
            build = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError, ValueError) as error:  # ValueError: nothing before the colon
            raise ValueError(
                f"backbone {path!r} cannot be had ({error}): write module.path:function, importable from here ({folder}) or from "
                "PYTHONPATH, where function() returns an nn.Module"
            ) from error
        network = build()
    if not isinstance(network, nn.Module):
        raise ValueError(f"backbone {path!r} returned {type(network).__name__}, must return an nn.Module")
    return network


@contextlib.contextmanager
def _current_folder_on_the_path() -> Iterator[str]:
    """As `python -m` has it. The command `asterism` and scripts elsewhere have their own folder there instead."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield folder
    finally:
        sys.path.remove(folder)


def _feature_width(name: str, backbone: nn.Module, shape: tuple[int, ...]) -> int:
    """Found by a trial, in eval mode so that no statistics move."""
    trial = torch.zeros(2, shape[2], *shape[:2]) if len(shape) == 3 else torch.zeros(2, *shape)
    training = backbone.training
    with torch.no_grad():
        features = backbone.eval()(trial)
    backbone.train(training)
    if not isinstance(features, Tensor) or features.ndim != 2:
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(
            f"backbone {name!r} turned inputs of shape {tuple(trial.shape)} into {got}, must give features (B, width)"
        )
    return features.shape[1]


class MLP(nn.Sequential):
    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(
            nn.Flatten(),
            nn.Linear(inputs, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
        )


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, conv_shortcut: bool, group_norm: bool) -> None:
        super().__init__()

        def norm() -> nn.Module:
            return nn.GroupNorm(min(8, outputs), outputs) if group_norm else nn.BatchNorm2d(outputs)

        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = norm()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = norm()
        self.stride, self.pad = stride, (outputs - inputs) // 2
        changes = stride != 1 or inputs != outputs
        self.shortcut: nn.Module | None = None
        if changes and conv_shortcut:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), norm())

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.shortcut is not None:
            x = self.shortcut(x)
        elif self.stride != 1 or self.pad:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(x + y)


class ResNet(nn.Module):
    def __init__(self, n: int, width: int, channels: int, *, conv_shortcut: bool, group_norm: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.norm = nn.GroupNorm(min(8, width), width) if group_norm else nn.BatchNorm2d(width)
        blocks, inputs = [], width
        for outputs, stride in ((width, 1), (2 * width, 2), (4 * width, 2)):
            for k in range(n):
                blocks.append(Block(inputs, outputs, stride if k == 0 else 1, conv_shortcut, group_norm))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(F.relu(self.norm(self.stem(x)))).mean(dim=(2, 3))
