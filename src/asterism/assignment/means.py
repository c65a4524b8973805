"""Running class means of unit features: what the matching reads. Training state, kept beside the optimizer.

The paper averages per sample of a class, m <- a m + (1 - a) z. That depends on the order of samples and cannot be sharded.
Here `update` adds the interval's sums and counts, O(B d) and local; `compute` reduces them over the processes and folds them in,

    m = sums + min(1, window / known) * old sums,      known: the samples that the old sums still stand for,

so that at most `window` earlier samples of a class weigh against the new ones (100 answers to a = 0.99). A class without new
samples keeps its mean. B batch, c classes, d dimension.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from asterism.checks import check_features, check_labels, check_matrix
from asterism.sphere import measured


class ClassMeans:
    """
    >>> means = ClassMeans(num_classes=3, dim=2)
    >>> means.update(torch.tensor([[2.0, 0.0], [0.0, 5.0], [0.0, 1.0]]), torch.tensor([0, 1, 1]))
    >>> means.compute()  # class 2 was never seen
    tensor([[1., 0.],
            [0., 1.],
            [0., 0.]], dtype=torch.float64)
    """

    def __init__(self, num_classes: int, dim: int, *, window: float = 100) -> None:
        for name, value in (("num_classes", num_classes), ("dim", dim)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"ClassMeans: {name} came as {value!r}, must be a positive integer")
        if not isinstance(window, (int, float)) or not window > 0:
            raise ValueError(f"ClassMeans: window came as {window!r}, must be a positive number of samples")
        self.num_classes, self.dim, self.window = num_classes, dim, window
        self.old_sums = torch.zeros(num_classes, dim)  # (c, d), folded, equal on all ranks
        self.known = torch.zeros(num_classes, dtype=torch.float64)  # (c,), the samples they stand for
        self.sums = torch.zeros(num_classes, dim)  # (c, d), this interval, this rank
        self.counts = torch.zeros(num_classes, dtype=torch.float64)  # (c,)
        self.zeros = torch.zeros((), dtype=torch.int64)  # features without a direction, this interval, this rank
        self.zero_features = 0  # the same over all ranks, in the interval that `compute` folded last

    @torch.no_grad()
    def update(self, features: Tensor, labels: Tensor, weight: Tensor | None = None) -> None:
        """Adds a batch. features (B, d) of any length, labels (B,), weight (B,) or None."""
        check_features("ClassMeans.update", features, self.dim)
        check_labels("ClassMeans.update", labels, self.num_classes, len(features))
        if weight is not None and weight.shape != labels.shape:
            raise ValueError(
                f"ClassMeans.update: weight came with shape {tuple(weight.shape)}, must be {tuple(labels.shape)}"
            )
        self._to(features.device)
        labels = labels.long()
        rows, length = measured(features.float())
        zero = length == math.inf  # what `measured` divides a feature without a direction by
        count = (~zero).float() if weight is None else weight.float().masked_fill(zero, 0)
        self.zeros += zero.sum()
        self.sums.index_add_(0, labels, rows * (count / length)[:, None])
        self.counts.index_add_(0, labels, count.double())

    @torch.no_grad()
    def compute(self) -> Tensor:
        """Folds the interval in, over all ranks, and returns the (c, d) float64 unit means, equal on all of them; a class never
        seen has a row of zeros. Collective. Calling it twice changes no direction."""
        sums, counts, zeros = self.sums.clone(), self.counts.clone(), self.zeros.clone()
        for tensor in (sums, counts, zeros):
            _add_over_ranks(tensor)
        new = counts > 0
        keep = torch.where(new, (self.window / self.known.clamp(min=1e-30)).clamp(max=1), 1)
        folded = sums + keep[:, None].float() * self.old_sums
        check_matrix("ClassMeans.compute", "the class means", folded)  # before anything is changed
        self.old_sums, self.known = folded, counts + keep * self.known
        self.sums.zero_(), self.counts.zero_(), self.zeros.zero_()
        self.zero_features = int(zeros)
        means = folded.double()
        length = torch.linalg.vector_norm(means, dim=1, keepdim=True)
        return means / torch.where(length > 0, length, 1)

    def state_dict(self) -> dict[str, Tensor]:
        """Collective in the middle of an interval: holds the sums over all ranks."""
        state = {
            name: getattr(self, name).detach().clone() for name in ("old_sums", "known", "sums", "counts", "zeros")
        }
        for name in ("sums", "counts", "zeros"):
            _add_over_ranks(state[name])
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The number of processes may differ from that of the saved run: rank 0 takes the open interval, the others start empty."""
        missing = {"old_sums", "known", "sums", "counts", "zeros"} - state.keys()
        if missing:
            raise ValueError(
                f"ClassMeans.load_state_dict: {', '.join(sorted(missing))} are missing, must be what state_dict() gave"
            )
        given = tuple(state["old_sums"].shape)
        if given != (self.num_classes, self.dim):
            raise ValueError(
                f"ClassMeans.load_state_dict: means of shape {given} came, must be {(self.num_classes, self.dim)}: "
                "build ClassMeans with the sizes of the saved run"
            )
        first = not _distributed() or dist.get_rank() == 0
        for name in ("old_sums", "known", "sums", "counts", "zeros"):
            value = state[name].detach().to(self.sums.device, copy=True)
            setattr(self, name, value if first or name in ("old_sums", "known") else torch.zeros_like(value))

    def _to(self, device: torch.device) -> None:
        if self.sums.device != device:
            for name in ("old_sums", "known", "sums", "counts", "zeros"):
                setattr(self, name, getattr(self, name).to(device))


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


def _add_over_ranks(tensor: Tensor) -> None:
    if _distributed():
        dist.all_reduce(tensor)
