"""asterism: class prototypes that are spread over the sphere once and stay fixed, and labels that find their place among them.

    head  = asterism.PrototypeHead(num_classes=100, dim=50)
    means = asterism.ClassMeans(100, 50)
    loss  = asterism.ipm_loss(features, head.targets(labels)); means.update(features, labels)   # every step
    asterism.reassign(head, means)                                                               # every epoch

The public names, nothing else. `train`, `TrainConfig` and `Predictor` need `pip install "asterism[train]"` and load on first use.
"""

import importlib
from typing import Any

from asterism.assignment import Assignment, ClassMeans, solve_assignment
from asterism.head import PrototypeHead, reassign
from asterism.losses import ipm_loss
from asterism.prototypes import Prototypes, make_prototypes

__version__ = "0.1.0"

_LATER = {"train": "asterism.training.loop", "TrainConfig": "asterism.runs", "Predictor": "asterism.serving.predictor"}

__all__ = [
    "Assignment",
    "ClassMeans",
    "Predictor",
    "PrototypeHead",
    "Prototypes",
    "TrainConfig",
    "ipm_loss",
    "make_prototypes",
    "reassign",
    "solve_assignment",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'asterism' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
