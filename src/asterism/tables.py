"""Matrices in files that other programs write: npz, safetensors, Parquet. One vector a row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from asterism.files import read_npz, replacing

FORMATS = (".npz", ".safetensors", ".parquet")


def read_matrix(path: Path) -> Tensor:
    """The one matrix of a file; where it holds several, the one called means, prototypes or points."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if path.suffix == ".npz":
        arrays = {k: torch.from_numpy(v) for k, v in read_npz(path).items() if v.dtype.kind in "fiu"}
    elif path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            arrays = load_file(path)
        except SafetensorError as error:
            raise ValueError(
                f"{path} is truncated or no safetensors file ({error}): restore it or make it anew"
            ) from error
    elif path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        lists = [c for c in table.column_names if not np.issubdtype(table[c].type.to_pandas_dtype(), np.number)]
        if lists:
            arrays = {c: torch.tensor(table[c].to_pylist(), dtype=torch.float64) for c in lists}
        else:  # a number a column
            arrays = {"matrix": torch.from_numpy(np.stack([table[c].to_numpy() for c in table.column_names], axis=1))}
    else:
        raise ValueError(f"{path}: must end in {', '.join(FORMATS)}")
    matrices = {k: v for k, v in arrays.items() if v.ndim == 2}
    named = [k for k in ("means", "prototypes", "points") if k in matrices]
    if len(matrices) != 1 and not named:
        raise ValueError(
            f"{path} holds {', '.join(f'{k} {tuple(v.shape)}' for k, v in arrays.items()) or 'nothing'}, "
            "must hold one matrix, or one called means, prototypes or points"
        )
    return matrices[named[0] if named else next(iter(matrices))]


def write_vector(path: Path, name: str, values: Tensor) -> None:
    if path.suffix not in FORMATS:
        raise ValueError(f"{path}: must end in {', '.join(FORMATS)}")
    with replacing(path) as temporary:
        if path.suffix == ".npz":
            with open(temporary, "wb") as file:
                np.savez(file, allow_pickle=False, **{name: values.numpy()})
        elif path.suffix == ".safetensors":
            from safetensors.torch import save_file

            save_file({name: values}, temporary)
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({name: values.numpy()}), temporary)
