"""Predictor: a trained run answers, without a training loop. N inputs, c classes, d dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asterism.data.augment import Normalise
from asterism.data.images import pixels
from asterism.runs import Checkpoint, checkpoint_path
from asterism.sphere import unit


@dataclass(frozen=True, eq=False)
class Prediction:
    labels: list[str]  # names of the most likely classes
    indices: Tensor  # (N,) int64
    cosines: Tensor  # (N, c) to each class's direction; for psc-linear, which has none, the logits
    probabilities: Tensor  # (N, c), with the temperature fitted on validation
    nearest: list[list[tuple[str, float]]]  # of each input, the other classes that come next, with their probabilities

    def __str__(self) -> str:
        rows = []
        for i, label in enumerate(self.labels):
            others = ", ".join(f"{name} {p:.1%}" for name, p in self.nearest[i])
            rows.append(
                f"{label}  {self.probabilities[i, self.indices[i]]:.1%}  cosine {self.cosines[i, self.indices[i]]:.3f}  "
                f"then {others}"
            )
        return "\n".join(rows)


class Predictor:
    """`Predictor.load(run).predict(images)`; images are paths, PIL images, or arrays and tensors (H, W, C) of uint8 or 0..1."""

    def __init__(self, checkpoint: Checkpoint, device: str | torch.device = "cpu") -> None:
        self.info, self.temperature, self.device = (
            checkpoint.info,
            checkpoint.progress.temperature,
            torch.device(device),
        )
        self.model = checkpoint.model().to(self.device).eval()
        self.image = len(self.info.shape) == 3
        self.normalise = Normalise(self.info.mean, self.info.deviation, self.image, self.device)

    @classmethod
    def load(cls, path: str | Path, *, best: bool = False, device: str | torch.device = "cpu") -> Predictor:
        """From a run folder (its last checkpoint, or its best) or from a checkpoint file."""
        return cls(Checkpoint.load(checkpoint_path(path, best)), device)

    @torch.no_grad()
    def predict(self, images: Any, *, others: int = 3) -> Prediction:
        logits, cosines = [], []
        for features in self._features(images):
            out = self.model.method.logits(features).float()
            logits.append(out.cpu())
            cosines.append(self._cosines(features, out).cpu())
        if not logits:
            raise ValueError("Predictor.predict: no image came, must be at least one")
        probabilities = (torch.cat(logits) / self.temperature).softmax(dim=1)
        top = probabilities.topk(min(1 + others, probabilities.shape[1]), dim=1)
        names = self.info.names
        nearest = [
            [(names[j], p) for j, p in zip(row[1:], values[1:], strict=True)]
            for row, values in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ]
        first = top.indices[:, 0]
        return Prediction([names[j] for j in first.tolist()], first, torch.cat(cosines), probabilities, nearest)

    @torch.no_grad()
    def embed(self, images: Any) -> Tensor:
        """(N, d) unit features."""
        features = [unit(f).cpu() for f in self._features(images)]
        if not features:
            raise ValueError("Predictor.embed: no image came, must be at least one")
        return torch.cat(features)

    def _cosines(self, features: Tensor, logits: Tensor) -> Tensor:
        if not self.model.method.on_sphere:
            return logits
        directions: Any = getattr(self.model.method, "head", self.model.method)
        return unit(features) @ unit(directions.weight).T

    def _features(self, images: Any, batch_size: int = 256) -> Any:
        if isinstance(images, (str, Path)) or not isinstance(images, (Sequence, np.ndarray, Tensor)):
            images = [images]  # one image
        elif isinstance(images, (np.ndarray, Tensor)) and images.ndim == len(self.info.shape):
            images = images[None]
        for start in range(0, len(images), batch_size):
            inputs = torch.stack([self._input(image) for image in images[start : start + batch_size]])
            yield self.model(self.normalise(inputs.to(self.device)))

    def _input(self, image: Any) -> Tensor:
        """One input as the training set holds it: (H, W, C) of 0..255, or (D,); float32."""
        if self.image and not isinstance(image, (np.ndarray, Tensor)):
            image = self._open(image)
        x = torch.as_tensor(np.array(image) if isinstance(image, np.ndarray) else image)
        if x.ndim == 2 and self.image:
            x = x[..., None]
        if tuple(x.shape) != self.info.shape or not (x.is_floating_point() or (self.image and x.dtype == torch.uint8)):
            raise ValueError(
                f"Predictor: an input of shape {tuple(x.shape)} and type {x.dtype} came, must be {self.info.shape}, "
                + ("uint8, or floating point of 0..1" if self.image else "floating point")
            )
        if not x.isfinite().all():
            raise ValueError("Predictor: an input holds NaN or infinity: look for a broken file or a division by zero")
        return x.float() * 255 if self.image and x.is_floating_point() else x.float()

    def _open(self, image: Any) -> np.ndarray:
        """A path or a PIL image, made what the training images are."""
        height, width, channels = self.info.shape
        picture = Path(image).read_bytes() if isinstance(image, (str, Path)) else image
        try:
            return pixels(picture, (width, height), channels)
        except Exception as error:  # whatever a broken file makes a decoder raise
            raise ValueError(
                f"Predictor: {image} is no image that can be read ({error}): give a PNG, JPEG or WebP"
            ) from error
