"""What a row of the tables must offer. B batch, c classes, d dimension."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from asterism.assignment import ClassMeans
from asterism.checks import check_labels


class Method(nn.Module, ABC):
    """Turns features (B, d) into a loss and into logits (B, c). Its state is in its state dict, save the class means, which a
    checkpoint keeps apart. Mixed samples are lam * loss(y_a) + (1 - lam) * loss(y_b), `weight` being lam; the means take both."""

    on_sphere = True  # whether features are normalised, so that a BatchNorm before suits
    means: ClassMeans | None = None

    @abstractmethod
    def loss(self, features: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        """A scalar: the mean over B of each sample's loss times its weight."""

    @abstractmethod
    def logits(self, features: Tensor) -> Tensor:
        """(B, d) -> (B, c)"""

    def after_step(self, features: Tensor, labels: Tensor, weight: Tensor | None = None) -> None:
        """Called with the detached features of each batch, before the next."""

    def after_epoch(self) -> dict[str, Any]:
        """Called at each re-assignment; what it tells goes into the run's record. Collective."""
        return {}


def cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
    """Of logits (B, c): the mean over B of each sample's loss times its weight."""
    check_labels("loss", labels, logits.shape[1], len(logits))
    loss = F.cross_entropy(logits, labels.long(), reduction="none")
    return (loss if weight is None else loss * weight).mean()
