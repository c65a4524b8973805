"""Features onto the unit sphere, the same way everywhere.

(B, d) features of any length -> (B, d) unit rows. At least float32 whatever autocast says: in bfloat16 a cosine has three
digits, and the losses live on 1 - cosine. A feature of zeros has no direction: it stays zero and gets no gradient, where
`F.normalize` would send it one of 1e12. Every other finite length is fine, 1e-40 or 3e38, whose squares float32 cannot hold.
"""

from __future__ import annotations

import contextlib
import math

import torch
from torch import Tensor

from asterism.checks import may_look


def full_precision(x: Tensor) -> contextlib.AbstractContextManager:
    """Autocast off, entered only where it is on, so that exported graphs stay free of it."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else contextlib.nullcontext()


def measured(features: Tensor) -> tuple[Tensor, Tensor]:
    """(B, d) -> the rows, in at least float32, and what to divide them by, (B,): their lengths, or infinity for a row of zeros, so
    that it stays zero and gets no gradient. A row whose squares might leave the range of its type comes back times a power of two,
    which changes no direction; in a batch without such a row nothing is multiplied.

    >>> rows, lengths = measured(torch.tensor([[3.0, 4.0], [3e30, 4e30], [0.0, 0.0]]))
    >>> rows / lengths[:, None]
    tensor([[0.6000, 0.8000],
            [0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    x = features if features.dtype == torch.float64 else features.float()
    length = torch.linalg.vector_norm(x, dim=-1)
    exponent = 1024 if x.dtype == torch.float64 else 128  # of the largest number
    far, factor = 2.0 ** (exponent * 5 // 16), 2.0 ** (exponent * 25 // 32)  # 2^40 and 2^100 in float32
    if may_look(x) and x.numel():
        low, high = length.detach().aminmax()
        if low.item() >= 1 / far and high.item() <= far:
            return x, length
    rough = length.detach()[..., None]
    x = x * torch.ones_like(rough).masked_fill(rough < 1 / far, factor).masked_fill(rough > far, 1 / factor)
    length = torch.linalg.vector_norm(x, dim=-1)
    return x, length.masked_fill(length == 0, math.inf)  # not "where length > 0": NaN must stay NaN


def unit(features: Tensor) -> Tensor:
    """
    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    with full_precision(features):
        x, length = measured(features)
        return x / length[..., None]


def cosine(features: Tensor, targets: Tensor) -> Tensor:
    """(B, d) features of any length and (B, d) unit targets -> (B,) cosines, without the (B, d) unit features in between.

    >>> cosine(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor([0.6000, 0.0000])
    """
    with full_precision(features):
        x, length = measured(features)
        return (x * targets).sum(dim=-1) / length
