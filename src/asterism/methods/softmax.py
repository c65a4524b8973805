"""Learned classifiers, the opponents: a linear layer, and a cosine head with a scale that is fixed or learned.

The paper calls them PSC. Its own text has cosines without a scale (`psc`): at c = 100 such a cross-entropy cannot fall below 3.61,
where chance is 4.61. `psc-scaled` and `psc-linear` are the ones to beat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from asterism.checks import check_features, is_positive
from asterism.methods.base import Method, cross_entropy
from asterism.sphere import full_precision, unit


@dataclass(frozen=True)
class LinearOptions:
    pass


@dataclass(frozen=True)
class CosineOptions:
    scale: float | None = None  # None: the best known at c = 100: 8 up to d = 25, 16 above
    learn_scale: bool = False


class LinearSoftmax(Method):
    on_sphere = False

    def __init__(self, num_classes: int, dim: int, options: LinearOptions, seed: int, prototypes: None = None) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, num_classes)

    def logits(self, features: Tensor) -> Tensor:
        check_features("psc-linear", features, self.linear.in_features)
        with full_precision(features):
            return self.linear(features.float())

    def loss(self, features: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        return cross_entropy(self.logits(features), labels, weight)


class CosineSoftmax(Method):
    def __init__(self, num_classes: int, dim: int, options: CosineOptions, seed: int, prototypes: None = None) -> None:
        super().__init__()
        if options.scale is not None and not is_positive(options.scale):
            raise ValueError(f"psc: scale came as {options.scale}, must be positive, or None")
        self.weight = nn.Parameter(torch.randn(num_classes, dim) * 0.1)
        log_scale = torch.tensor(math.log(options.scale or (8.0 if dim <= 25 else 16.0)))
        if options.learn_scale:
            self.log_scale = nn.Parameter(log_scale)
        else:
            self.register_buffer("log_scale", log_scale)

    def logits(self, features: Tensor) -> Tensor:
        check_features("psc", features, self.weight.shape[1])
        with full_precision(features):
            return self.log_scale.exp() * unit(features) @ unit(self.weight).T

    def loss(self, features: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        return cross_entropy(self.logits(features), labels, weight)
