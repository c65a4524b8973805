"""Ready-made features, to train a head on embeddings: (N, D) float32, labels (N,), c names.

npz: `features` (N, D) and `labels` (N,), perhaps `test_features` and `test_labels`, perhaps `names`.
Parquet: a column `features` of lists and a column `label`; a folder of them with train* and test* files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from asterism.checks import check_matrix
from asterism.data import Split
from asterism.files import read_npz


def read_features(path: Path, label_column: str | None) -> tuple[Split, Split | None, list[str]]:
    if path.suffix == ".npz":
        arrays = read_npz(path)
        if "features" not in arrays or "labels" not in arrays:
            raise ValueError(
                f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}, must hold features (N, D) and labels (N,)"
            )
        tables = {"train": (arrays["features"], arrays["labels"])}
        if ("test_features" in arrays) != ("test_labels" in arrays):
            raise ValueError(
                f"{path} holds {', '.join(sorted(arrays))}: test_features and test_labels must come together"
            )
        if "test_features" in arrays:
            tables["test"] = (arrays["test_features"], arrays["test_labels"])
    else:
        files = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
        tables = {}
        for part in ("train", "test"):
            chosen = [f for f in files if f.name.startswith("test") == (part == "test")]
            if chosen:
                tables[part] = _read_parquet(chosen, label_column or "label")
        arrays = {}
        if "train" not in tables:
            raise ValueError(f"features:{path}: no training file came, must be .npz or .parquet")
    labels = tables["train"][1]
    if labels.dtype.kind in "iu" and len(labels):
        names = (
            [str(n) for n in arrays["names"]] if "names" in arrays else [str(i) for i in range(int(labels.max()) + 1)]
        )
    elif labels.dtype.kind in "US":
        names = sorted(set(labels.astype(str).tolist()))
    else:
        raise ValueError(f"features:{path}: labels came as {labels.dtype}, must be integers or strings")
    splits = {part: _split(f"{part} features of {path}", x, y, names) for part, (x, y) in tables.items()}
    widths = [split.inputs.shape[1] for split in splits.values()]
    if len(set(widths)) > 1:
        raise ValueError(
            f"features:{path}: training features have {widths[0]} numbers, test features {widths[1]}: must be as many"
        )
    return splits["train"], splits.get("test"), names


def _read_parquet(files: list[Path], label_column: str) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.concat_tables([pq.read_table(f) for f in files])
    if "features" not in table.column_names or label_column not in table.column_names:
        raise ValueError(
            f"{files[0]} has columns {', '.join(table.column_names)}, must have features and {label_column}"
        )
    rows = table["features"].to_pylist()
    widths = {len(row) if isinstance(row, list) else None for row in rows}
    if len(widths) != 1 or None in widths:
        raise ValueError(
            f"{files[0]}: features must be lists of one length, without gaps; came of lengths {sorted(map(str, widths))}"
        )
    return np.array(rows), np.array(table[label_column].to_pylist())


def _split(what: str, features: Any, labels: np.ndarray, names: list[str]) -> Split:
    if len(features) != len(labels):
        raise ValueError(f"{what}: {len(features)} rows and {len(labels)} labels came, must be as many")
    if np.asarray(features).dtype.kind not in "fiu":
        raise ValueError(f"{what}: features came as {np.asarray(features).dtype}, must be numbers (N, D)")
    rows = check_matrix(what, "features", torch.from_numpy(np.asarray(features, dtype=np.float32)))
    if labels.dtype.kind in "US":
        place = {name: i for i, name in enumerate(names)}
        labels = np.array([place.get(name, -1) for name in labels.astype(str)])
    if len(labels) and (labels.min() < 0 or labels.max() >= len(names)):
        raise ValueError(f"{what}: labels run from {labels.min()} to {labels.max()}, must lie in 0..{len(names) - 1}")
    return Split(rows, torch.from_numpy(labels.astype(np.int64)))
