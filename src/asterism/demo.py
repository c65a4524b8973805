"""The demo: five heads on 200 classes of glyphs in 16 dimensions, the same backbone, budget and seed for all.

Ends with a table in the terminal and one self-contained page, RUN_DIR/index.html. One more, small run in 3 dimensions shows its
labels moving between stars on a sphere that can be drawn.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from asterism.checks import check_simplex_fits
from asterism.console import Console
from asterism.data import load_data
from asterism.runs import TrainConfig
from asterism.training.loop import Result, train

CLASSES, DIM = 200, 16
BUDGET: dict[str, Any] = {"backbone": "resnet8", "width": 16, "epochs": 7, "batch_size": 64, "reassign_every": "20ba"}
NAMES = {
    "psc-linear": "linear softmax",
    "psc-scaled": "scaled cosine softmax",
    "etf": "ETF",
    "dl2pa": "the paper's method",
    "asterism": "asterism (ours)",
}


def run_demo(folder: Path, quiet: bool = False) -> bool:
    """False if it was interrupted."""
    from asterism.report.page import write_page

    _clear(folder)
    began = time.monotonic()
    console = Console(quiet)
    data = load_data("glyphs", num_classes=CLASSES, progress=console.update)
    console.line(
        f"{CLASSES} classes of glyphs, {len(data.train)} training images, {DIM} dimensions, {BUDGET['epochs']} epochs each"
    )
    results: dict[str, Result] = {}
    note = ""
    for method, name in NAMES.items():
        console.line(f"\n{name}")
        if method == "etf":
            try:
                check_simplex_fits(CLASSES, DIM)
            except ValueError as error:
                note = f"cannot exist: {error}"
                console.line(note)
                continue
        config = TrainConfig(
            data="glyphs", num_classes=CLASSES, dim=DIM, method=method, run_dir=str(folder / method), **BUDGET
        )
        results[method] = train(config, data=data, quiet=quiet)
        if results[method].interrupted:
            return False
    console.line("\na small run on the sphere")
    sphere = TrainConfig(
        data="glyphs",
        num_classes=20,
        dim=3,
        width=8,
        epochs=20,
        batch_size=32,
        reassign_every="20ba",
        run_dir=str(folder / "sphere"),
    )
    if train(sphere, quiet=quiet).interrupted:
        return False
    title = f"asterism: {CLASSES} classes in {DIM} dimensions"
    notes = [{"method": "etf", "note": note}] if note else []
    write_page([folder / m for m in results], folder / "index.html", title=title, rows=notes, sphere=folder / "sphere")
    console.clear()
    _print_table(folder, results, note)
    print(f"\n{time.monotonic() - began:.0f} s. The page: {folder / 'index.html'}")
    return True


def _clear(folder: Path) -> None:
    """Takes the place of an earlier demo, and of nothing else."""
    if folder.exists():
        strange = [child.name for child in folder.iterdir() if child.name not in {*NAMES, "sphere", "index.html"}]
        if strange:
            raise ValueError(f"{folder} holds {strange[0]}, which no demo wrote: give another --run-dir")
        shutil.rmtree(folder)


def _print_table(folder: Path, results: dict[str, Result], note: str) -> None:
    from rich.console import Console as Terminal
    from rich.table import Table

    from asterism.report.page import read_run

    table = Table(title=f"{CLASSES} classes of glyphs in {DIM} dimensions: same backbone, budget and seed")
    for name in (
        "head",
        "accuracy",
        "trainable\nparameters",
        "µs a step\nof the head",
        "labels moved at each re-assignment",
    ):
        table.add_column(name, justify="left" if name == "head" or name.startswith("labels") else "right")
    for method, name in NAMES.items():
        if method not in results:
            table.add_row(name, "-", "-", "-", note)
            continue
        result, moved = results[method], read_run(folder / method).moved
        shown = " ".join(str(m) for m in (moved if len(moved) < 8 else [*moved[:4], "...", *moved[-2:]]))
        table.add_row(
            name,
            f"{result.accuracy:.1%}",
            f"{result.head_parameters:,}",
            f"{1e6 * result.head_seconds:.0f}",
            f"{shown} ({sum(moved):,} in all)" if moved else "-",
        )
    Terminal().print(table)
