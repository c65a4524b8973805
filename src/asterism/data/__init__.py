"""Named data sets -> arrays that live on the device: a Dataset of three splits.

Images are (N, H, W, C) uint8, features (N, D) float32, labels (N,) int64; N samples, c classes. Validation is held out of the
training images, class by class; the test split is a set's own, or held out likewise where there is none.

    digits, glyphs            scikit-learn's 8 x 8 digits; generated characters (glyphs.py)
    cifar10, cifar100         through the `datasets` library: from the hub, or from Parquet files under --data-root
    folder:PATH               a subfolder a class, or PATH/train and PATH/test of those
    parquet:PATH              image bytes and labels, the hub's schema; a file, or a folder with train* and test* files
    features:PATH             ready-made features: npz or Parquet
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from asterism.checks import unknown

GENERATED = ("digits", "glyphs")
NAMED = {"cifar10": ("uoft-cs/cifar10", "label"), "cifar100": ("uoft-cs/cifar100", "fine_label")}
PATHS = ("folder", "parquet", "features")
Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Split:
    inputs: Tensor  # (N, H, W, C) uint8 or (N, D) float32
    labels: Tensor  # (N,) int64

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> Split:
        return Split(self.inputs[index], self.labels[index])


@dataclass(frozen=True, eq=False)
class Dataset:
    name: str
    train: Split
    val: Split
    test: Split
    names: list[str]  # c class names
    crop: int = 0  # what augmentation suits: pixels of padding to crop from,
    flip: bool = False  # and whether a mirror image is of the same class

    @property
    def num_classes(self) -> int:
        return len(self.names)

    @property
    def shape(self) -> tuple[int, ...]:
        """(H, W, C) of an image or (D,) of a feature vector."""
        return tuple(self.train.inputs.shape[1:])

    def statistics(self) -> tuple[list[float], list[float]]:
        """Mean and deviation of the training inputs, a channel of an image (as 0..1) or a feature each."""
        x = self.train.inputs
        if x.ndim == 4:  # from counts of the 256 values: exact, and no float copy of the set
            counts = torch.stack(
                [torch.bincount(x[..., k].reshape(-1), minlength=256) for k in range(x.shape[3])]
            ).double()
            value = torch.arange(256, dtype=torch.float64) / 255
            mean = counts @ value / counts.sum(dim=1)
            deviation = (counts @ value.square() / counts.sum(dim=1) - mean.square()).clamp(min=0).sqrt()
        else:
            deviation, mean = torch.std_mean(x.double(), dim=0, correction=0)
        return mean.tolist(), torch.where(deviation > 1e-6, deviation, 1).tolist()


def load_data(
    name: str,
    *,
    root: str | None = None,
    num_classes: int | None = None,
    image_size: int | None = None,
    label_column: str | None = None,
    validation: float = 0.1,
    seed: int = 0,
    skip_broken: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """
    >>> digits = load_data("digits")
    >>> digits.shape, digits.num_classes, len(digits.train), len(digits.val), len(digits.test)
    ((8, 8, 1), 10, 1295, 143, 359)
    """
    if not 0 <= validation < 1:
        raise ValueError(f"load_data: validation={validation}, must be a share of the training set in [0, 1)")
    kind, _, path = name.partition(":")
    for option, value, kinds in (
        ("num_classes", num_classes, ("glyphs",)),
        ("image_size", image_size, ("folder", "parquet")),
        ("label_column", label_column, ("parquet", "features")),
        ("data_root", root, tuple(NAMED)),
    ):
        if value is not None and kind not in kinds and kind in (*GENERATED, *NAMED, *PATHS):
            raise ValueError(
                f"load_data: {option}={value} came with {name!r}, is for {', '.join(kinds)} alone: leave it out"
            )
    if kind in PATHS:
        if not path or not Path(path).exists():
            raise FileNotFoundError(
                f"{name}: {'no path came' if not path else f'{path} does not exist'}; write {kind}:PATH"
            )
        if kind == "features":
            from asterism.data.features import read_features

            train, test, names = read_features(Path(path), label_column)
        else:
            from asterism.data.images import read_folder, read_parquet

            if kind == "folder":
                train, test, names = read_folder(Path(path), image_size or 32, skip_broken, progress)
            else:
                train, test, names = read_parquet(Path(path), image_size, label_column, skip_broken, progress)
        data = Dataset(
            name, train, train, test or train, names, crop=4 if kind != "features" else 0, flip=kind != "features"
        )
        own_test = test is not None
    elif name == "glyphs":
        from asterism.data.glyphs import glyphs

        if progress:
            progress(f"drawing {num_classes or 200} classes of glyphs")
        x, y, x_test, y_test, names = glyphs(num_classes or 200, seed=seed)
        data, own_test = Dataset(name, Split(x, y), Split(x, y), Split(x_test, y_test), names), True
    elif name == "digits":
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        inputs = torch.from_numpy(np.round(images * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1))
        whole = Split(inputs, torch.from_numpy(labels).long())
        data, own_test = Dataset(name, whole, whole, whole, [str(i) for i in range(10)]), False
    elif name in NAMED:
        from asterism.data.images import read_named

        train, test, names = read_named(*NAMED[name], root, skip_broken, progress)
        data, own_test = Dataset(name, train, train, test, names, crop=4, flip=True), True
    else:
        raise unknown("data set", name, [*GENERATED, *NAMED, *(f"{k}:PATH" for k in PATHS)])
    return _hold_out(data, own_test, validation, seed)


def _hold_out(data: Dataset, own_test: bool, validation: float, seed: int) -> Dataset:
    _check(data)
    train, test = data.train, data.test
    if not own_test:
        rest, out = held_out(train.labels, 0.2, seed)
        train, test = train.take(rest), train.take(out)
    rest, out = held_out(train.labels, validation, seed + 1)
    return replace(data, train=train.take(rest), val=train.take(out), test=test)


def held_out(labels: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices of what stays and of what is held out: `share` of each class, rounded, but never a class's last sample."""
    y = labels.numpy()
    key = np.random.default_rng(seed).random(len(y))
    order = np.lexsort((key, y))
    first = np.searchsorted(y[order], y[order])
    place = np.arange(len(y)) - first  # 0, 1, ... within each class
    size = np.bincount(y)[y[order]]
    out = place < np.minimum(np.round(share * size), size - 1)
    return torch.from_numpy(np.sort(order[~out])), torch.from_numpy(np.sort(order[out]))


def _check(data: Dataset) -> None:
    c = data.num_classes
    if c < 2:
        raise ValueError(f"{data.name}: {c} class came, must be at least 2: a classifier has nothing to tell apart")
    count = torch.bincount(data.train.labels, minlength=c)
    absent, single = (count == 0).nonzero()[:, 0].tolist(), (count == 1).nonzero()[:, 0].tolist()
    if absent:
        raise ValueError(
            f"{data.name}: {len(absent)} of {c} classes have no training image, the first is "
            f"{data.names[absent[0]]!r}: remove them from the labels or add images"
        )
    if single:
        warnings.warn(
            f"{data.name}: {len(single)} classes have a single training image, the first is {data.names[single[0]]!r}; "
            "nothing of them is held out for validation",
            stacklevel=4,
        )
