"""Input checks that several rooms share. Each message says what came, what is allowed and what to do."""

from __future__ import annotations

import difflib
import math
import numbers
import types
import typing
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

UNIT_TOLERANCE = 1e-4


def unknown(what: str, given: object, options: Iterable[str]) -> ValueError:
    """The error for a name that is not in a list; the nearest names are offered first.

    >>> str(unknown("method", "asterisk", ["asterism", "dl2pa"]))
    "unknown method 'asterisk': did you mean 'asterism'? Known: asterism, dl2pa"
    """
    options = sorted(options)
    near = difflib.get_close_matches(str(given), options, n=3, cutoff=0.5)
    hint = "did you mean " + " or ".join(repr(n) for n in near) + "? " if near else ""
    return ValueError(f"unknown {what} {given!r}: {hint}Known: {', '.join(options)}")


WORDS = {int: "an integer", float: "a finite number", str: "text", bool: "True or False", types.NoneType: "None"}


def check_types(who: str, options: Any) -> None:
    """The fields of a dataclass hold what their annotations say, or a ValueError. True is no integer, an integer is a number."""
    for name, kind in typing.get_type_hints(type(options)).items():
        if not _fits(getattr(options, name), kind):
            raise ValueError(f"{who}: {name} came as {getattr(options, name)!r}, must be {_in_words(kind)}")


def _fits(value: object, kind: Any) -> bool:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return any(_fits(value, part) for part in parts)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(v, parts[0]) for v in value)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, origin or kind)


def _in_words(kind: Any) -> str:
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is types.UnionType:
        return " or ".join(_in_words(part) for part in parts)
    if typing.get_origin(kind) is tuple:
        return f"a tuple, each part {_in_words(parts[0])}"
    return WORDS.get(kind, f"a {(typing.get_origin(kind) or kind).__name__}")


def check_matrix(who: str, name: str, rows: Tensor, width: int | None = None) -> Tensor:
    """A finite floating (n, width) tensor, or a ValueError that names the first offending row."""
    try:
        rows = torch.as_tensor(rows)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{who}: {name} came as {type(rows).__name__}, must be a floating-point matrix ({error})"
        ) from error
    if rows.ndim != 2 or not rows.is_floating_point():
        raise ValueError(
            f"{who}: {name} came as {rows.dtype} of shape {tuple(rows.shape)}, "
            "must be a floating-point matrix, one vector a row"
        )
    if width is not None and rows.shape[1] != width:
        raise ValueError(
            f"{who}: {name} has {rows.shape[1]} dimensions, must have {width}: both sides live in one space"
        )
    bad = (~rows.isfinite().all(dim=1)).nonzero()
    if len(bad):
        raise ValueError(
            f"{who}: row {int(bad[0])} of {name} holds NaN or infinity ({len(bad)} such rows): "
            "look for a diverged network or a broken file"
        )
    return rows


def check_unit_rows(who: str, name: str, rows: Tensor, width: int | None = None, *, zeros: bool = False) -> Tensor:
    """A matrix of unit rows (with `zeros`, rows of zeros too), or a ValueError that names the first offending row."""
    rows = check_matrix(who, name, rows, width)
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    fine = (norms - 1).abs() <= UNIT_TOLERANCE
    if zeros:
        fine |= norms == 0
    bad = (~fine).nonzero()
    if len(bad):
        i = int(bad[0])
        raise ValueError(
            f"{who}: row {i} of {name} has norm {norms[i].item():.6g}, rows must be unit length"
            f"{' or all zeros' if zeros else ''}: normalise with F.normalize({name}, dim=1)"
        )
    return rows


def may_look(tensor: Tensor) -> bool:
    """Whether a decision may hang on its values: on a CPU, where nothing has to wait for them, and while nobody (compile, export,
    trace, vmap, fake tensors) follows what is done in order to do it again with other values."""
    return (
        tensor.device.type == "cpu"
        and type(tensor) in (Tensor, torch.nn.Parameter)
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def check_labels(who: str, labels: Tensor, num_classes: int, batch: int | None = None) -> None:
    """Integer labels (B,) in 0..num_classes-1. Values are looked at on a CPU only: on a GPU that would make it wait,
    and torch's own index assertion speaks there."""
    if not isinstance(labels, Tensor):
        raise ValueError(f"{who}: labels came as {type(labels).__name__}, must be a tensor: torch.as_tensor(labels)")
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(
            f"{who}: labels came as {labels.dtype} of shape {tuple(labels.shape)}, "
            "must be integers of shape (B,): one label a feature, as labels.long()"
        )
    if batch is not None and len(labels) != batch:
        raise ValueError(f"{who}: {len(labels)} labels came with {batch} features, must be one label a feature")
    if may_look(labels) and len(labels):
        low, high = labels.min().item(), labels.max().item()
        if low < 0 or high >= num_classes:
            raise ValueError(
                f"{who}: labels run from {low} to {high}, must lie in 0..{num_classes - 1}: "
                "check num_classes, or map your labels to 0..c-1"
            )


def check_features(who: str, features: Tensor, dim: int) -> None:
    """(B, dim); values are looked at where an epoch ends."""
    if not isinstance(features, Tensor) or features.ndim != 2 or features.shape[1] != dim:
        came = (
            f"with shape {tuple(features.shape)}" if isinstance(features, Tensor) else f"as {type(features).__name__}"
        )
        raise ValueError(f"{who}: features came {came}, must be (B, {dim}): one row a sample")


def is_positive(value: object) -> bool:
    """Whether it is a finite number above zero."""
    return isinstance(value, (numbers.Real, Tensor)) and math.isfinite(value) and float(value) > 0


def check_simplex_fits(num_classes: int, dim: int) -> None:
    """An equiangular tight frame of c class directions is a simplex, which exists from c - 1 dimensions on."""
    if dim < num_classes - 1:
        raise ValueError(f"a simplex of {num_classes} classes needs {num_classes - 1} dimensions, came {dim}")
