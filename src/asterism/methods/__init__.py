"""METHODS: the rows of the paper's tables and ours, one literal table. Adding a method is one row and, if needed, one file."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any, NamedTuple

from torch import Tensor

from asterism.checks import check_types, unknown
from asterism.methods.base import Method
from asterism.methods.fixed import FixedOptions, FixedStars
from asterism.methods.softmax import CosineOptions, CosineSoftmax, LinearOptions, LinearSoftmax
from asterism.prototypes import Prototypes

PAPER = "Ebrahimi Saadabadi et al., Hyperspherical Classification with Dynamic Label-to-Prototype Assignment, CVPR 2024"


class Row(NamedTuple):
    cls: type[Method]
    options: Any  # a frozen dataclass
    citation: str


METHODS: dict[str, Row] = {
    "psc-linear": Row(LinearSoftmax, LinearOptions(), "the usual linear layer with bias and softmax"),
    "psc-scaled": Row(CosineSoftmax, CosineOptions(), "scaled cosine softmax: Wang et al., NormFace, ACM MM 2017"),
    "psc": Row(
        CosineSoftmax,
        CosineOptions(scale=1.0),
        "PSC as the text of the paper has it: cosines without a scale; " + PAPER,
    ),
    "etf": Row(
        FixedStars,
        FixedOptions(loss="ipm", dynamic=False, loss_scale=10.0, stars="etf"),
        "Yang et al., Inducing Neural Collapse in Imbalanced Learning, NeurIPS 2022; dot-regression is the ipm loss",
    ),
    "fixed-ce": Row(FixedStars, FixedOptions(loss="ce", dynamic=False, scale=1.0), "fixed W + CE, table 9; " + PAPER),
    "dl2pa": Row(FixedStars, FixedOptions(loss="ipm", loss_scale=10.0), PAPER),
    "dl2pa-static": Row(
        FixedStars, FixedOptions(loss="ipm", loss_scale=10.0, dynamic=False), "dl2pa with its first, random map"
    ),
    "asterism": Row(FixedStars, FixedOptions(loss="ce"), "ours: dynamic map, cross-entropy on scaled cosines"),
}


def resolve(name: str, changes: dict[str, Any]) -> Any:
    """The options of a row with some changed; an unknown name is an error.

    >>> resolve("asterism", {"scale": 12.0}).scale
    12.0
    """
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    options = METHODS[name].options
    known = [f.name for f in fields(options)]
    for key in changes:
        if key not in known:
            raise (
                unknown(f"option of method {name}", key, known)
                if known
                else ValueError(f"unknown option {key!r}: method {name} has no options")
            )
    resolved = replace(options, **changes)
    check_types(f"method {name}", resolved)
    return resolved


def make_method(
    name: str,
    num_classes: int,
    dim: int,
    changes: dict[str, Any] | None = None,
    *,
    seed: int = 0,
    prototypes: Prototypes | Tensor | None = None,
) -> Method:
    """A row, ready to train. `prototypes` spares a row with fixed stars making its own.

    >>> sum(p.numel() for p in make_method("asterism", 10, 9).parameters())
    0
    >>> sum(p.numel() for p in make_method("psc-linear", 10, 9).parameters())
    100
    """
    options = resolve(name, changes or {})
    return METHODS[name].cls(num_classes, dim, options, seed, prototypes)  # type: ignore[call-arg]


def options_of(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    return asdict(resolve(name, changes))
