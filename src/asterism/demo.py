"""The demo: five heads on 200 classes of glyphs in 16 dimensions, the same backbone, budget and seed for all.

Ends with a table in the terminal and one self-contained page, RUN_DIR/index.html. One more, small run in 3 dimensions shows its
labels moving between stars on a sphere that can be drawn.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from asterism.console import Console
from asterism.data import load_data
from asterism.runs import TrainConfig
from asterism.training.loop import Result, train

CLASSES, DIM, EPOCHS = 200, 16, 4
NAMES = {"psc-linear": "linear softmax", "psc-scaled": "scaled cosine softmax", "etf": "ETF", "dl2pa": "the paper's method",
         "asterism": "asterism (ours)"}  # fmt: skip


def run_demo(folder: Path, quiet: bool = False) -> None:
    from asterism.report.page import write_page

    if folder.exists():
        if not all(child.name in {*NAMES, "sphere", "index.html"} for child in folder.iterdir()):
            raise ValueError(f"{folder} holds something else than an earlier demo: give another --run-dir")
        shutil.rmtree(folder)
    began = time.monotonic()
    console = Console(quiet)
    data = load_data("glyphs", num_classes=CLASSES, progress=console.update)
    console.line(f"{CLASSES} classes of glyphs, {len(data.train)} training images, {DIM} dimensions, {EPOCHS} epochs each")
    done: dict[str, Result | str] = {}
    for method in NAMES:
        console.line(f"\n{NAMES[method]}")
        config = TrainConfig(data="glyphs", num_classes=CLASSES, method=method, dim=DIM, epochs=EPOCHS, width=WIDTH,
                             run_dir=str(folder / method))  # fmt: skip
        try:
            done[method] = train(config, data=data, quiet=quiet)
        except ValueError as error:
            if method != "etf":
                raise
            done[method] = str(error).split(":")[1].strip()
            console.line(f"cannot exist: {done[method]}")
            shutil.rmtree(folder / method)
        if isinstance(done[method], Result) and done[method].interrupted:
            return
    console.line("\na small run on the sphere")
    small = TrainConfig(data="glyphs", num_classes=20, dim=3, epochs=6, width=8, reassign_every="5ba", run_dir=str(folder / "sphere"))
    train(small, quiet=quiet)
    runs = [folder / method for method, result in done.items() if isinstance(result, Result)]
    notes = [{"method": "etf", "note": f"cannot exist: {done['etf']}"}] if isinstance(done["etf"], str) else []
    title = f"asterism: {CLASSES} classes in {DIM} dimensions"
    write_page(runs, folder / "index.html", title=title, rows=notes, sphere=folder / "sphere")
    console.clear()
    _print_table(folder, done)
    print(f"\n{time.monotonic() - began:.0f} s. The page: {folder / 'index.html'}")


def _print_table(folder: Path, done: dict[str, Result | str]) -> None:
    from rich.console import Console as Terminal
    from rich.table import Table

    from asterism.report.page import read_run

    table = Table(title=f"{CLASSES} classes of glyphs in {DIM} dimensions: same backbone, budget and seed")
    for name in ("head", "accuracy", "trainable\nparameters", "seconds\na step", "labels moved at\neach re-assignment"):
        table.add_column(name, justify="left" if name in ("head", "labels moved at\neach re-assignment") else "right")
    for method, result in done.items():
        if isinstance(result, str):
            table.add_row(NAMES[method], "-", "-", "-", f"cannot exist: {result}")
            continue
        moved: list[Any] = [row["moved"] for row in read_run(folder / method).metrics if row.get("moved") is not None]
        table.add_row(NAMES[method], f"{result.accuracy:.1%}", f"{result.head_parameters:,}", f"{result.head_seconds:.5f}",
                      " ".join(f"{m:.0f}" for m in moved) or "none: its map is learned")  # fmt: skip
    Terminal().print(table)
