"""PrototypeHead, what replaces the last linear layer of a network, and `reassign`, the verb that moves its labels.

Shapes: B batch, c classes, K >= c stars, d dimension. The head has no trainable parameter. Its buffers:

    stars       (K, d) float32   the catalogue: unit rows, fixed
    assignment  (c,)   int64     the star of each label; re-assigning writes these c integers in place and nothing else, so
                                 that compiled graphs stay valid
    scale       ()     float32   what `head(features)` multiplies the cosines by
    frame       (d, d) float32   turns the whole constellation: label y points to frame @ stars[assignment[y]]
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from asterism.assignment import Assignment, ClassMeans, solve_assignment
from asterism.assignment.dense import check_map
from asterism.checks import check_features, check_labels, check_unit_rows, is_positive
from asterism.prototypes import Prototypes, make_prototypes
from asterism.sphere import full_precision, unit


def default_scale(num_classes: int, dim: int) -> float:
    """1.6 sqrt(min(d, c - 1)), raised for many classes by log c / log 100.

    A feature on its own star sees the others at cosines of about 1 / sqrt(d), which a scale of s spreads over s / sqrt(d) logits:
    1.6 of them suited c = 100 in 10, 50 and 100 dimensions (scales of 5, 11, 16). More classes ask for more contrast.

    >>> [round(default_scale(100, d), 1) for d in (10, 50, 100)]
    [5.1, 11.3, 15.9]
    """
    return 1.6 * math.sqrt(min(dim, num_classes - 1)) * max(1.0, math.log(num_classes) / math.log(100))


def _check_num_classes(num_classes: int) -> None:
    if not isinstance(num_classes, int) or isinstance(num_classes, bool) or num_classes < 2:
        raise ValueError(
            f"PrototypeHead: num_classes came as {num_classes!r}, must be an integer of at least 2: "
            "with one class there is nothing to tell apart"
        )


class PrototypeHead(nn.Module):
    """Fixed stars, moving labels.

    prototypes   Prototypes or (K, d) unit rows; else made (and certified) for num_classes and dim
    num_classes  defaults to K; the other stars stay free for later classes
    scale        defaults to `default_scale(num_classes, dim)`
    seed         of the random first map

    >>> head = PrototypeHead(num_classes=5, dim=4)
    >>> features, labels = torch.randn(2, 4), torch.tensor([0, 3])
    >>> head(features).shape, head.targets(labels).shape, sum(p.numel() for p in head.parameters())
    (torch.Size([2, 5]), torch.Size([2, 4]), 0)
    """

    stars: Tensor
    assignment: Tensor
    scale: Tensor
    frame: Tensor

    def __init__(
        self,
        prototypes: Prototypes | Tensor | None = None,
        *,
        num_classes: int | None = None,
        dim: int | None = None,
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if prototypes is None:
            if num_classes is None or dim is None:
                raise ValueError(
                    f"PrototypeHead: num_classes={num_classes} and dim={dim} came without prototypes, "
                    "must be both given, or prototypes"
                )
            _check_num_classes(num_classes)
            prototypes = make_prototypes(num_classes, dim, seed=seed)
        stars = prototypes.points if isinstance(prototypes, Prototypes) else prototypes
        stars = check_unit_rows("PrototypeHead", "prototypes", stars, dim).detach()
        K, d = stars.shape
        c = K if num_classes is None else num_classes
        _check_num_classes(c)
        if c > K:
            raise ValueError(
                f"PrototypeHead: {c} classes and {K} prototypes, {c - K} are missing: make_prototypes({c}, {d})"
            )
        if scale is not None and not is_positive(scale):
            raise ValueError(f"PrototypeHead: scale came as {scale!r}, must be positive and finite, or None")
        order = torch.randperm(K, generator=torch.Generator().manual_seed(seed))[:c]
        self.register_buffer("stars", unit(stars).float())
        self.register_buffer("assignment", order.to(stars.device))
        self.register_buffer(
            "scale", torch.tensor(default_scale(c, d) if scale is None else float(scale), device=stars.device)
        )
        self.register_buffer("frame", torch.eye(d, device=stars.device))
        self._turned = False  # whether frame is anything but the identity: asking the buffer would make a GPU wait

    @property
    def num_classes(self) -> int:
        """c, the labels."""
        return len(self.assignment)

    @property
    def dim(self) -> int:
        """d, of the sphere."""
        return self.stars.shape[1]

    @property
    def num_free(self) -> int:
        """K - c, stars that no label has."""
        return len(self.stars) - len(self.assignment)

    @property
    def weight(self) -> Tensor:
        """(c, d) unit rows in label order, as `nn.Linear.weight` would be; computed."""
        rows = self.stars[self.assignment]
        return rows @ self.frame.T if self._turned else rows

    def forward(self, features: Tensor) -> Tensor:
        """(B, d) features of any length -> (B, c) scale x cosine: F.cross_entropy(head(features), labels) is right as it stands."""
        return self.scale * self.cosines(features)

    def cosines(self, features: Tensor) -> Tensor:
        """(B, d) -> (B, c)"""
        check_features("PrototypeHead", features, self.dim)
        with full_precision(features):
            directions = unit(features)
            return directions @ self.weight.to(directions.dtype).T

    def targets(self, labels: Tensor) -> Tensor:
        """(B,) labels -> (B, d) their stars. Touches B rows, whatever c is."""
        check_labels("PrototypeHead.targets", labels, self.num_classes)
        rows = self.stars.index_select(0, self.assignment.index_select(0, labels.long()))
        if not self._turned:
            return rows
        with full_precision(rows):
            return rows @ self.frame.T

    def add_classes(self, n: int) -> None:
        """n new labels, c to c + n - 1, on free stars. What the old labels have does not change.

        >>> head = PrototypeHead(make_prototypes(8, 4), num_classes=5)
        >>> head.add_classes(2)
        >>> head.num_classes, head.num_free
        (7, 1)
        """
        if not isinstance(n, int) or not 1 <= n <= self.num_free:
            raise ValueError(
                f"PrototypeHead.add_classes: n={n}, must be 1..{self.num_free} ({self.num_free} of {len(self.stars)} "
                "stars are free): build the head with more prototypes than classes"
            )
        taken = torch.zeros(len(self.stars), dtype=torch.bool, device=self.stars.device)
        taken[self.assignment] = True
        self.assignment = torch.cat([self.assignment, (~taken).nonzero()[:n, 0]])

    def extra_repr(self) -> str:
        return (
            f"num_classes={self.num_classes}, dim={self.dim}, num_free={self.num_free}, scale={self.scale.item():.3g}"
        )

    @staticmethod
    def exclude_from_ddp(model: nn.Module) -> None:
        """Tells DistributedDataParallel, before it wraps `model`, to leave the buffers of all heads in it alone: they are equal on
        all ranks at all times, and (K, d) stars at every step would be a heavy load on the wire."""
        names = [
            f"{path}.{name}" if path else name
            for path, module in model.named_modules()
            if isinstance(module, PrototypeHead)
            for name, _ in module.named_buffers()
        ]
        before = getattr(model, "_ddp_params_and_buffers_to_ignore", [])
        nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, [*before, *names])

    @staticmethod
    def copy_maps(model: nn.Module, average: nn.Module) -> None:
        """Gives every head in `average`, a weight average of `model`, what the same head in `model` has. A map is copied, never
        averaged: between two stars lies no third. Averages that leave buffers alone or copy them do so by themselves; after those
        that average buffers (AveragedModel with use_buffers=True) call this, at the latest before the average is used or saved.

        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), PrototypeHead(num_classes=5, dim=4))
        >>> average = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda a, b, n: 0.9 * a + 0.1 * b, use_buffers=True)
        >>> average.update_parameters(model)
        >>> PrototypeHead.copy_maps(model, average)
        """
        ours, theirs = ([m for m in net.modules() if isinstance(m, PrototypeHead)] for net in (model, average))
        if not ours or len(ours) != len(theirs):
            raise ValueError(
                f"PrototypeHead.copy_maps: a model with {len(ours)} heads and an average with {len(theirs)} came, must have the "
                "same: give the model that is trained and the average that was made of it"
            )
        for head, averaged in zip(ours, theirs, strict=True):
            averaged.load_state_dict(head.state_dict())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        """Takes the saved sizes, and refuses a map that is none, before anything changes."""
        saved = {name: state_dict.get(prefix + name) for name in ("stars", "assignment", "frame")}
        if saved["stars"] is not None and saved["assignment"] is not None:
            check_unit_rows("PrototypeHead.load_state_dict", "stars", saved["stars"], self.dim)
            check_map(
                "PrototypeHead.load_state_dict", saved["assignment"], len(saved["assignment"]), len(saved["stars"])
            )
            for name, value in saved.items():
                if value is not None and value.shape != getattr(self, name).shape:
                    setattr(self, name, torch.zeros_like(value, device=self.stars.device))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self._turned = not torch.equal(self.frame, torch.eye(self.dim, device=self.frame.device))


def reassign(
    head: PrototypeHead, means: ClassMeans, *, warm: Assignment | None = None, keep: Tensor | None = None
) -> Assignment:
    """Moves the labels of `head` to where the class means want them. Collective: the means are reduced over all ranks, rank 0
    solves, all ranks get the same map. The only place that changes a head.

    >>> head, means = PrototypeHead(num_classes=3, dim=2), ClassMeans(3, 2)
    >>> means.update(head.stars, torch.tensor([0, 1, 2]))  # class k lies where star k is
    >>> print(reassign(head, means))
    moved 3 of 3, mean cosine -0.500 -> 1.000, exact
    >>> head.assignment
    tensor([0, 1, 2])
    """
    if (means.num_classes, means.dim) != (head.num_classes, head.dim):
        raise ValueError(
            f"reassign: means of {means.num_classes} classes in {means.dim} dimensions and a head of {head.num_classes} "
            f"in {head.dim} came, must agree"
        )
    directions = means.compute()
    if head._turned:
        directions = directions @ head.frame.double().to(directions.device)  # into the catalogue's own axes
    current, error, answer = head.assignment, None, None
    distributed = dist.is_available() and dist.is_initialized()
    if not distributed or dist.get_rank() == 0:
        try:
            answer = solve_assignment(directions, head.stars, warm=warm, current=current, keep=keep)
        except Exception as caught:  # the other ranks wait for an answer: they get this one
            error = caught
    if distributed:
        answer = _from_rank_0(answer, current, len(head.stars))
    if answer is None:
        raise error or RuntimeError("reassign: rank 0 found no map, see its error; the head is unchanged")
    answer = replace(answer, zero_features=means.zero_features)
    head.assignment.copy_(answer.order)
    return answer


def _from_rank_0(answer: Assignment | None, current: Tensor, num_stars: int) -> Assignment | None:
    """c integers and four numbers over the wire; the prices stay on rank 0."""
    order = torch.zeros_like(current) if answer is None else answer.order.to(current.device)
    numbers = torch.full((4,), torch.nan, dtype=torch.float64, device=current.device)
    if answer is not None:
        numbers.copy_(torch.tensor([answer.score, answer.bound, answer.before, answer.seconds], dtype=torch.float64))
    dist.broadcast(order, 0)
    dist.broadcast(numbers, 0)
    if answer is not None or numbers.isnan().any():
        return answer
    score, bound, before, seconds = numbers.tolist()
    moved = (order != current).nonzero()[:, 0].cpu()
    return Assignment(order.cpu(), score, bound, num_stars, seconds, before, moved)
