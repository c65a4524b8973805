"""Batch augmentation on the device, drawn from (seed, epoch, sample index): what happens to a sample depends neither on its
batch, nor on the number of processes, nor on where a run was resumed.

Images (N, H, W, C) uint8 stay on the device; a batch comes out as (B, C, H, W) float, channels-last in memory. B batch.

    crop     a window of the image padded by that many pixels (zeros)
    flip     the mirror image, one time in two
    erasing  a random rectangle set to the mean, with that probability (Zhong et al. 2020)
    mixup    a blend with another image of the set, weight from Beta(a, a) (Zhang et al. 2018)
    cutmix   a rectangle from another image of the set, area from Beta(a, a) (Yun et al. 2019); with mixup: one or the other
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from asterism.data import Split

DRAWS = 12  # random numbers a sample and epoch


def draws(seed: int, epoch: int, index: np.ndarray, count: int = DRAWS) -> np.ndarray:
    """(len(index), count) numbers in [0, 1), each a hash (splitmix64) of its (seed, epoch, sample index, column).

    >>> draws(0, 1, np.array([5]), 3).shape
    (1, 3)
    """
    with np.errstate(over="ignore"):
        key = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(epoch)
        z = _mix(key) + index.astype(np.uint64)[:, None] * np.uint64(count) + np.arange(count, dtype=np.uint64)
        return (_mix(z) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(z: Any) -> Any:
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@dataclass(frozen=True)
class Augment:
    crop: int = 0
    flip: bool = False
    erasing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0


@dataclass(frozen=True, eq=False)
class Batch:
    inputs: Tensor  # (B, C, H, W) or (B, D) float32, normalised
    labels: Tensor  # (B,)
    other: Tensor | None = None  # (B,) labels of what was mixed in
    share: Tensor | None = None  # (B,) what is left of `labels`; None: all of it


class Normalise:
    """Images (B, H, W, C) of 0..255 -> (B, C, H, W), channels-last in memory; features (B, D) -> (B, D). `mean` and `deviation` as
    `Dataset.statistics` gives them: a channel of 0..1 images, or a feature each."""

    def __init__(self, mean: list[float], deviation: list[float], image: bool, device: torch.device) -> None:
        unit = 255 if image else 1
        self.image = image
        self.shift = torch.tensor(mean, device=device) * unit
        self.factor = 1 / (torch.tensor(deviation, device=device) * unit)

    def __call__(self, x: Tensor) -> Tensor:
        x = (x.float() - self.shift) * self.factor
        return x.permute(0, 3, 1, 2) if self.image else x


class Batches:
    """The batches of one split on one device, normalised by the training set's `mean` and `deviation`."""

    def __init__(
        self, split: Split, mean: list[float], deviation: list[float], device: torch.device, augment: Augment, seed: int
    ):
        self.augment, self.seed, self.device, self.size = augment, seed, device, len(split)
        self.image = split.inputs.ndim == 4
        inputs = split.inputs
        if self.image and augment.crop:
            inputs = F.pad(inputs, (0, 0, augment.crop, augment.crop, augment.crop, augment.crop))
        self.inputs, self.labels = inputs.to(device), split.labels.to(device)
        self._normalise = Normalise(mean, deviation, self.image, device)

    def start(self, epoch: int) -> None:
        """Draws the order and the augmentation of an epoch."""
        self.order = np.random.default_rng((self.seed, epoch)).permutation(self.size)
        self.random = draws(self.seed, epoch, np.arange(self.size))

    def plain(self, index: slice) -> Batch:
        """Samples in their order, not augmented: for evaluation."""
        x = self.inputs[index]
        if self.image and self.augment.crop:
            p = self.augment.crop
            x = x[:, p:-p, p:-p]
        return Batch(self._normalise(x), self.labels[index])

    def __call__(self, step: int, batch_size: int, rank: int = 0, world: int = 1) -> Batch:
        """Batch number `step` of the epoch that `start` drew; of it, this rank's share."""
        chosen = self.order[step * batch_size : (step + 1) * batch_size][rank::world]
        u = self.random[chosen]  # (B, DRAWS)
        labels = self.labels[torch.from_numpy(chosen).to(self.device)]
        x = self._normalise(self._window(chosen, u))
        a = self.augment
        if self.image and a.erasing:
            x = self._erase(x, u)
        if not (a.mixup or a.cutmix):
            return Batch(x, labels)
        partner = (u[:, 4] * self.size).astype(np.int64)
        x_other = self._normalise(self._window(partner, u))
        other = self.labels[torch.from_numpy(partner).to(self.device)]
        cut = (u[:, 5] < 0.5) if a.mixup and a.cutmix else np.full(len(u), bool(a.cutmix))
        share = _beta(np.where(cut, a.cutmix or 1, a.mixup or 1), u[:, 6])
        if self.image:
            inside, area = self._rectangles(np.sqrt(np.where(cut, 1 - share, 0)), u[:, 7], u[:, 8])
            share = np.where(cut, 1 - area, share)
        blend = torch.from_numpy(share).float().to(self.device)
        mixed = torch.lerp(x_other, x, blend.view(-1, *[1] * (x.ndim - 1)))
        if self.image:
            cut_rows = torch.from_numpy(cut).to(self.device).view(-1, 1, 1, 1)
            mixed = torch.where(cut_rows, torch.where(inside, x_other, x), mixed)
        return Batch(mixed, labels, other, blend)

    def _window(self, chosen: np.ndarray, u: np.ndarray) -> Tensor:
        index = torch.from_numpy(chosen).to(self.device)
        a = self.augment
        if not self.image or not (a.crop or a.flip):
            return self.inputs[index]
        height, width = self.inputs.shape[1] - 2 * a.crop, self.inputs.shape[2] - 2 * a.crop
        corner = torch.from_numpy((u[:, :2] * (2 * a.crop + 1)).astype(np.int64)).to(self.device)  # (B, 2)
        rows = corner[:, :1] + torch.arange(height, device=self.device)  # (B, H)
        columns = torch.arange(width, device=self.device).expand(len(u), -1)
        if a.flip:
            mirrored = torch.from_numpy(u[:, 2] < 0.5).to(self.device)[:, None]
            columns = torch.where(mirrored, width - 1 - columns, columns)
        columns = corner[:, 1:] + columns  # (B, W)
        return self.inputs[index[:, None, None], rows[:, :, None], columns[:, None, :]]

    def _erase(self, x: Tensor, u: np.ndarray) -> Tensor:
        side = np.sqrt(np.where(u[:, 3] < self.augment.erasing, 0.02 + 0.31 * u[:, 9], 0))  # 2 to 33 % of the area
        inside, _ = self._rectangles(side, u[:, 10], u[:, 11])
        return x.masked_fill(inside, 0)

    def _rectangles(self, side: np.ndarray, v: np.ndarray, w: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """(B, 1, H, W) masks of rectangles with `side` of height and width, anywhere inside the image, and their areas."""
        height, width = (n - 2 * self.augment.crop for n in self.inputs.shape[1:3])
        h, x = np.round(side * height), np.round(side * width)
        top, left = np.floor(v * (height - h + 1)), np.floor(w * (width - x + 1))
        r, c = np.arange(height), np.arange(width)
        rows = (r >= top[:, None]) & (r < (top + h)[:, None])
        columns = (c >= left[:, None]) & (c < (left + x)[:, None])
        mask = torch.from_numpy(rows[:, :, None] & columns[:, None, :]).to(self.device)
        return mask[:, None], h * x / (height * width)


def _beta(a: np.ndarray, u: np.ndarray) -> np.ndarray:
    from scipy.special import betaincinv

    return np.where(a == 1, u, betaincinv(a, a, u))
