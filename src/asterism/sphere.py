"""Features onto the unit sphere, the same way everywhere.

(B, d) features of any length -> (B, d) unit rows. At least float32 whatever autocast says: in bfloat16 a cosine has three
digits, and the losses live on 1 - cosine. A feature of zeros has no direction: it stays zero and gets no gradient, where
`F.normalize` would send it one of 1e12.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor


def full_precision(x: Tensor) -> contextlib.AbstractContextManager:
    """Autocast off, entered only where it is on, so that exported graphs stay free of it."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else contextlib.nullcontext()


def unit(features: Tensor) -> Tensor:
    """
    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    with full_precision(features):
        x = features if features.dtype == torch.float64 else features.float()
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        zero = length == 0  # not "length > 0": NaN must stay NaN
        return torch.where(zero, 0, x / torch.where(zero, 1, length))


def cosine(features: Tensor, targets: Tensor) -> Tensor:
    """(B, d) features of any length and (B, d) unit targets -> (B,) cosines, without the (B, d) unit features in between.

    >>> cosine(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor([0.6000, 0.0000])
    """
    with full_precision(features):
        x = features if features.dtype == torch.float64 else features.float()
        length = torch.linalg.vector_norm(x, dim=-1)
        zero = length == 0
        return torch.where(zero, 0, (x * targets).sum(dim=-1) / torch.where(zero, 1, length))
