"""Losses on the sphere. Functions without state.

ipm_loss is the paper's equation 6, 1/2 (z . w - 1)^2, for features z (B, d) of any length and unit targets w (B, d). Its gradient
at the feature, as equation 7 should read, is -(1 - cos) w, projected on the tangent plane at z, over the length of z. Its size
(1 - cos t) sin t vanishes like t^3 / 2 at the target: as a mean over the batch it is about ten times smaller than a cross-entropy.

Relatives, for which no second function is needed: the dot-regression loss of the ETF classifier (Yang et al. 2022) with unit
features is `ipm_loss` with a weight per sample; HPN's squared cosine distance (1 - cos)^2 (Mettes et al. 2019) is twice it.
"""

from __future__ import annotations

from torch import Tensor

from asterism.sphere import cosine


def ipm_loss(features: Tensor, targets: Tensor, *, weight: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """1/2 (cos - 1)^2 of each feature and its target. A feature of zeros has cosine 0 and gets no gradient.

    weight (B,) multiplies each sample's loss as it stands: "mean" divides by B, not by the sum of the weights.

    >>> ipm_loss(torch.tensor([[0.0, 3.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.5000)
    """
    if features.shape != targets.shape or features.ndim != 2:
        raise ValueError(
            f"ipm_loss: features of shape {tuple(features.shape)} and targets of shape {tuple(targets.shape)} came, "
            "must both be (B, d): targets = head.targets(labels)"
        )
    loss = 0.5 * (cosine(features, targets) - 1).square()  # (B,)
    if weight is not None:
        if weight.shape != loss.shape:
            raise ValueError(
                f"ipm_loss: weight came with shape {tuple(weight.shape)}, must be {tuple(loss.shape)}: one a sample"
            )
        loss = loss * weight
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    raise ValueError(f"ipm_loss: reduction came as {reduction!r}, must be 'mean', 'sum' or 'none'")
