"""Fixed stars, with a map that moves or stays: the paper's method, its relatives and ours.

    ipm    1/2 (cos - 1)^2 to the label's star, times loss_scale: touches B stars
    ce     cross-entropy over scale x cosines of all c stars, times loss_scale

The ipm loss is small (its gradient vanishes near the star): at the learning rate that suits cross-entropy it wants loss_scale 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from asterism.assignment import ClassMeans
from asterism.checks import check_simplex_fits, is_positive, unknown
from asterism.head import PrototypeHead, reassign
from asterism.losses import ipm_loss
from asterism.methods.base import Method, cross_entropy
from asterism.prototypes import Prototypes, make_prototypes


@dataclass(frozen=True)
class FixedOptions:
    loss: str = "ce"  # "ce" or "ipm"
    dynamic: bool = True  # whether labels move
    scale: float | None = None  # of the cosines in the cross-entropy and the logits; None: by (c, d)
    loss_scale: float = 1.0
    stars: str = "auto"  # kind of the prototypes; "etf": a simplex or an error
    window: float = 100.0  # samples of the past that weigh in a class mean


class FixedStars(Method):
    options: FixedOptions
    head: PrototypeHead
    means: ClassMeans

    def __init__(
        self, num_classes: int, dim: int, options: FixedOptions, seed: int, prototypes: Prototypes | Tensor | None
    ) -> None:
        super().__init__()
        if options.loss not in ("ce", "ipm"):
            raise unknown("loss", options.loss, ["ce", "ipm"])
        if not is_positive(options.loss_scale):
            raise ValueError(f"loss_scale came as {options.loss_scale}, must be positive: 1 for ce, 10 for ipm")
        if options.stars == "etf":
            check_simplex_fits(num_classes, dim)
        if prototypes is None:
            kind = "auto" if options.stars == "etf" else options.stars
            prototypes = make_prototypes(num_classes, dim, kind=kind, seed=seed)
        self.options = options
        self.head = PrototypeHead(prototypes, num_classes=num_classes, dim=dim, scale=options.scale, seed=seed)
        self.means = ClassMeans(num_classes, dim, window=options.window)

    def loss(self, features: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        if self.options.loss == "ipm":
            return self.options.loss_scale * ipm_loss(features, self.head.targets(labels), weight=weight)
        return self.options.loss_scale * cross_entropy(self.head(features), labels, weight)

    def logits(self, features: Tensor) -> Tensor:
        return self.head(features)

    def after_step(self, features: Tensor, labels: Tensor, weight: Tensor | None = None) -> None:
        if self.options.dynamic:
            self.means.update(features, labels, weight)

    def after_epoch(self) -> dict[str, Any]:
        if not self.options.dynamic:
            return {}
        answer = reassign(self.head, self.means)
        c = len(answer.order)
        return {
            "moved": len(answer.moved),  # type: ignore[arg-type]  # reassign compares with the map in force
            "cosine_before": answer.before / c,  # type: ignore[operator]
            "cosine": answer.score / c,
            "assign_seconds": answer.seconds,
            "zero_features": answer.zero_features,
            "certified": answer.certified,
        }
