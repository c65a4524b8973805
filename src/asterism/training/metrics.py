"""Scores of a model on a split, in float32 and without augmentation: what is scored here is what a Predictor will say."""

from __future__ import annotations

import copy
import math
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from asterism.console import Console
from asterism.data.augment import Batches
from asterism.runs import Model

CALIBRATION = 2000  # samples from which the temperature is fitted: more change it in the third digit


@dataclass(frozen=True, eq=False)
class Scores:
    count: int
    accuracy: float  # a share; NaN where the split is empty
    loss: float  # mean cross-entropy of the logits, before any temperature
    logits: Tensor  # (n, c) of the first samples, on the CPU
    labels: Tensor  # (n,)


@torch.no_grad()
def evaluate(model: Model, batches: Batches, console: Console | None = None, batch_size: int = 500) -> Scores:
    training = model.training
    model.eval()
    hits, loss, kept = [], [], []
    for start in range(0, batches.size, batch_size):
        batch = batches.plain(slice(start, start + batch_size))
        logits = model.method.logits(model(batch.inputs)).float()
        hits.append((logits.argmax(dim=1) == batch.labels).sum())
        loss.append(F.cross_entropy(logits, batch.labels, reduction="sum"))
        if start < CALIBRATION:
            kept.append(logits.cpu())
        if console:
            console.update(f"scoring {start} of {batches.size}")
    model.train(training)
    if not hits:
        return Scores(0, math.nan, math.nan, torch.empty(0, 0), torch.empty(0, dtype=torch.int64))
    logits = torch.cat(kept)
    n = batches.size
    return Scores(
        n,
        torch.stack(hits).sum().item() / n,
        torch.stack(loss).sum().item() / n,
        logits,
        batches.labels[: len(logits)].cpu(),
    )


def fit_temperature(scores: Scores) -> float:
    """The T in .1 .. 10 at which softmax(logits / T) is likeliest on these samples; 1 without samples."""
    if scores.count == 0:
        return 1.0
    from scipy.optimize import minimize_scalar

    logits = scores.logits.double()
    found = minimize_scalar(
        lambda log_t: F.cross_entropy(logits / math.exp(log_t), scores.labels).item(),
        bounds=(-2.3, 2.3),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return math.exp(found.x)


def head_seconds(model: Model, batch_size: int, device: torch.device) -> float:
    """Median time of what the method adds to a step: loss, gradients at the features and of the head, class means."""
    method, times = copy.deepcopy(model.method), []
    generator = torch.Generator(device).manual_seed(0)
    features = torch.randn(batch_size, model.embedder.dim, device=device, generator=generator).requires_grad_()
    labels = torch.arange(batch_size, device=device) % model.num_classes
    for _ in range(25):
        began = time.perf_counter()
        method.loss(features, labels).backward()
        method.after_step(features.detach(), labels)
        features.grad.sum().item()  # type: ignore[union-attr]  # waits for an accelerator
        times.append(time.perf_counter() - began)
    return statistics.median(times[5:])
