"""Image files and Parquet of image bytes -> uint8 tensors. (N, H, W, 3 or 1) images of one size, (N,) labels, c names.

`pixels` is the one way from a picture to numbers: training reads its files through it, and a Predictor what it is asked about.
A broken image is an error that names it, or, with `skip_broken`, is left out, counted and named in a warning.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asterism.data import Progress, Split

SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"}
Read = tuple[Split, Split | None, list[str]]


def read_folder(path: Path, size: int, skip_broken: bool, progress: Progress | None) -> Read:
    roots = [path / "train", path / "test"] if (path / "train").is_dir() else [path]
    names = sorted(p.name for p in roots[0].iterdir() if p.is_dir()) if roots[0].is_dir() else []
    if not names:
        raise ValueError(f"folder:{path}: no subfolders came, must be one a class, as {path}/cat/1.png")
    splits = []
    for root in roots:
        if not root.is_dir():
            continue
        unknown = sorted({p.name for p in root.iterdir() if p.is_dir()} - set(names))
        if unknown:
            raise ValueError(f"{root}: class {unknown[0]!r} is not among the training classes in {roots[0]}")
        found = [
            (p, k)
            for k, name in enumerate(names)
            for p in sorted((root / name).glob("*"))
            if p.suffix.lower() in SUFFIXES
        ]
        if not found:
            raise ValueError(
                f"{root}: no image came, must be files of {', '.join(sorted(SUFFIXES))} in a folder a class"
            )
        files, labels = zip(*found, strict=True)
        splits.append(_decode([(str(f), f.read_bytes) for f in files], labels, size, skip_broken, progress))
    return splits[0], splits[1] if len(splits) > 1 else None, names


def read_parquet(
    path: Path, size: int | None, label_column: str | None, skip_broken: bool, progress: Progress | None
) -> Read:
    files = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    if not files:
        raise ValueError(f"parquet:{path}: no .parquet file came")
    parts = {"test": [f for f in files if f.name.startswith(("test", "validation"))]}
    parts["train"] = [f for f in files if f not in parts["test"]]
    return _read_table(
        {k: [str(f) for f in v] for k, v in parts.items() if v}, "parquet", label_column, size, skip_broken, progress
    )


def read_named(hub: str, label_column: str, root: str | None, skip_broken: bool, progress: Progress | None) -> Any:
    """From the hub, or from Parquet files anywhere under `root` whose names start with train and test."""
    if root is None:
        return _read_table(None, hub, label_column, None, skip_broken, progress)
    folder = Path(root) / hub.split("/")[-1]
    folder = folder if folder.is_dir() else Path(root)
    found = {part: [str(f) for f in sorted(folder.rglob(f"{part}*.parquet"))] for part in ("train", "test")}
    if not found["train"] or not found["test"]:
        raise FileNotFoundError(
            f"{hub} is not under --data-root {root}: no train*.parquet and test*.parquet there; "
            "leave --data-root out to fetch it from the hub"
        )
    return _read_table(found, "parquet", label_column, None, skip_broken, progress)


def _read_table(
    files: dict[str, list[str]] | None,
    source: str,
    label_column: str | None,
    size: int | None,
    skip_broken: bool,
    progress: Progress | None,
) -> Read:
    import datasets

    before = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        parts = datasets.load_dataset(source, data_files=files)
    except Exception as error:  # of many kinds: no network, no such file, no Parquet
        paths = [path for part in (files or {}).values() for path in part]
        what = " ... ".join(paths[:: max(1, len(paths) - 1)]) or f"{source} on the hub"
        advice = "restore the file" if files else "or give --data-root, a folder with its train*.parquet, test*.parquet"
        raise ValueError(f"{what} cannot be read ({type(error).__name__}: {error}): {advice}") from error
    finally:
        if before:
            datasets.enable_progress_bars()
    splits, names = {}, None
    for part in ("train", "test"):
        if part not in parts:
            continue
        table = parts[part]
        image_column, label_column = _columns(table, label_column)
        labels, names = _labels(table, label_column, names)
        try:
            table = table.cast_column(image_column, datasets.Image(decode=False)).with_format("arrow")
            blobs = table[:][image_column].to_pylist()  # a lazy column answers row by row, ten times slower
        except Exception as error:  # whatever Arrow makes of another type
            raise ValueError(
                f"column {image_column!r} must hold image files, bytes and path as the hub has them: {error}"
            ) from error
        rows = [(f"{part} row {i}", partial(_bytes, blob)) for i, blob in enumerate(blobs)]
        splits[part] = _decode(rows, labels, size, skip_broken, progress)
    if "train" not in splits:
        raise ValueError(f"{source}: no training rows came, only {', '.join(parts)}")
    return splits["train"], splits.get("test"), names or []


def _bytes(value: Any) -> bytes:
    if value["bytes"] is not None:
        return value["bytes"]
    return Path(value["path"]).read_bytes()


def _columns(table: Any, label_column: str | None) -> tuple[str, str]:
    names = table.column_names
    image = next((n for n in ("image", "img") if n in names), None)
    label = label_column or next((n for n in ("label", "fine_label", "labels", "target", "y") if n in names), None)
    if image is None or label is None or label not in names:
        raise ValueError(
            f"Parquet columns {', '.join(names)} came, must hold image or img (bytes) and label: "
            "name another label column with --label-column"
        )
    return image, label


def _labels(table: Any, column: str, names: list[str] | None) -> tuple[list[int], list[str]]:
    values, feature = table[column][:], table.features[column]
    if hasattr(feature, "names"):  # the hub's ClassLabel
        return values, list(feature.names)
    if any(v is None or isinstance(v, float) for v in values):
        raise ValueError(
            f"labels in column {column!r} hold {next(v for v in values if v is None or isinstance(v, float))!r}, "
            "must be integers or strings"
        )
    if names is None:
        names = sorted(set(values)) if isinstance(values[0], str) else [str(i) for i in range(max(values) + 1)]
    if isinstance(values[0], str):
        place = {name: i for i, name in enumerate(names)}
        missing = sorted(set(values) - set(names))
        if missing:
            raise ValueError(f"test label {missing[0]!r} is not among the training labels")
        return [place[v] for v in values], names
    if min(values) < 0 or max(values) >= len(names):
        raise ValueError(
            f"labels in column {column!r} run from {min(values)} to {max(values)}, must lie in 0..{len(names) - 1}"
        )
    return values, names


def _decode(
    rows: Sequence[tuple[str, Callable[[], bytes]]],
    labels: Sequence[int],
    size: int | None,
    skip_broken: bool,
    progress: Progress | None,
) -> Split:
    """Images in RGB; squares of `size`, or, without a size, all of the first one's."""

    def read(row: tuple[str, Callable[[], bytes]]) -> np.ndarray | str:
        try:
            return pixels(row[1](), None if size is None else (size, size))
        except Exception as error:  # whatever a broken file makes a decoder raise
            return f"{row[0]} ({type(error).__name__}: {error})"

    images: list[np.ndarray] = []
    kept, broken = [], []
    with ThreadPoolExecutor() as pool:
        for i, image in enumerate(pool.map(read, rows)):
            if progress and i % 2000 == 0:
                progress(f"decoding image {i} of {len(rows)}")
            if isinstance(image, str):
                broken.append(image)
            elif images and image.shape != images[0].shape:
                raise ValueError(
                    f"{rows[i][0]} is {image.shape[1]} x {image.shape[0]}, the first image {images[0].shape[1]} x "
                    f"{images[0].shape[0]}: must all be of one size, or give --image-size"
                )
            else:
                images.append(image)
                kept.append(labels[i])
    if broken and not skip_broken:
        raise ValueError(
            f"{len(broken)} of {len(rows)} images are broken, the first is {broken[0]}: mend them or give --skip-broken"
        )
    if not images:
        raise ValueError(f"none of {len(rows)} images could be read, the first is {broken[0] if broken else 'absent'}")
    if broken:
        warnings.warn(f"skipped {len(broken)} broken images of {len(rows)}: {'; '.join(broken[:5])}", stacklevel=2)
    return Split(torch.from_numpy(np.stack(images)), torch.tensor(kept, dtype=torch.int64))


def pixels(picture: Any, size: tuple[int, int] | None, channels: int = 3) -> np.ndarray:
    """A PIL image or the bytes of a file -> (H, W, channels) uint8: upright, as its EXIF orientation says; what is transparent lies
    on white; more than 8 bits are scaled to 8. Brought to `size` (width, height), if given, by cropping the middle and resizing.

    >>> from PIL import Image
    >>> pixels(Image.new("I;16", (6, 4), 257 * 99), (2, 2))[0, 0].tolist()
    [99, 99, 99]
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    if isinstance(picture, bytes):
        try:
            picture = Image.open(io.BytesIO(picture))
        except UnidentifiedImageError:
            raise ValueError("of no format that Pillow knows") from None
    picture = _eight_bits(ImageOps.exif_transpose(picture))
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    picture = picture.convert("RGB")
    if channels == 1:
        picture = picture.convert("L")
    if size is not None and picture.size != size:
        width = min(picture.width, picture.height * size[0] / size[1])
        height = min(picture.height, picture.width * size[1] / size[0])
        left, top = (picture.width - width) / 2, (picture.height - height) / 2
        picture = picture.resize(size, Image.Resampling.BILINEAR, box=(left, top, left + width, top + height))
    return np.asarray(picture).reshape(picture.height, picture.width, channels)


def _eight_bits(picture: Any) -> Any:
    """Integers wider than a byte span 0..65535, as 16-bit PNG and TIFF do; floats 0..1, or 0..255, or 0..65535, the first that
    holds them. Pillow itself would cut all of them off at 255."""
    from PIL import Image

    if picture.mode != "F" and not picture.mode.startswith("I"):
        return picture
    values = np.asarray(picture).astype(np.float64)
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= 65535):  # NaN too
        raise ValueError(f"its values run from {low:g} to {high:g}, must lie in 0..65535: save it with 8 or 16 bits")
    top = 65535 if picture.mode != "F" else 1 if high <= 1 else 255 if high <= 255 else 65535
    return Image.fromarray(np.round(values * (255 / top)).astype(np.uint8))
