"""What a run writes down as it goes: metrics.csv, TensorBoard and map.jsonl."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asterism import files
from asterism.runs import Model, Progress


class Record:
    """metrics.csv, TensorBoard and map.jsonl. What lies behind the checkpoint that a run goes on from is cut off first."""

    FIELDS = (
        "epoch",
        "step",
        "loss",
        "accuracy",
        "val_accuracy",
        "val_loss",
        "temperature",
        "lr",
        "images_per_second",
        "moved",
        "cosine_before",
        "cosine",
        "assign_seconds",
        "zero_features",
        "certified",
    )

    def __init__(self, folder: Path, progress: Progress, steps: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder = folder
        done = progress.epoch * steps + progress.step
        try:
            self.rows = [r for r in _read_csv(folder / "metrics.csv") if int(r["epoch"]) <= progress.epoch]
            self.maps = [line for line in _read_lines(folder / "map.jsonl") if json.loads(line)["step"] <= done]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{folder}: metrics.csv or map.jsonl is not what a run wrote ({error!r}): restore it, or start another run"
            ) from error
        files.write_text(folder / "map.jsonl", "".join(line + "\n" for line in self.maps))
        self.order: Tensor | None = None
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=done or None)

    def metrics(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        with files.replacing(self.folder / "metrics.csv") as path, open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, self.FIELDS)
            writer.writeheader()
            writer.writerows(self.rows)
        for name, value in row.items():
            if isinstance(value, (int, float)) and name not in ("epoch", "step"):
                self.writer.add_scalar(name, value, row["step"])
        self.writer.flush()

    def map(self, model: Model, epoch: int, step: int, moves: dict[str, Any]) -> None:
        """One line: the labels that moved and where they went. Nothing for a method without a map that moves."""
        head = getattr(model.method, "head", None)
        if head is None or (step and not moves):
            return
        order = head.assignment.cpu()
        if self.order is None and step:  # resumed: what is written so far says where the labels were
            self.order = order.clone()
            for line in self.maps:
                entry = json.loads(line)
                self.order[entry["labels"]] = torch.tensor(entry["stars"], dtype=torch.int64)
        moved = torch.arange(len(order)) if self.order is None else (order != self.order).nonzero()[:, 0]
        entry = {"epoch": epoch, "step": step, "labels": moved.tolist(), "stars": order[moved].tolist(), **moves}
        self.order = order.clone()
        with open(self.folder / "map.jsonl", "a") as file:
            file.write(json.dumps(entry) + "\n")

    def close(self) -> None:
        self.writer.close()


def _read_lines(path: Path) -> list[str]:
    """Whole lines alone: one is added at a time, and a run may have died over it."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [line.rstrip("\n") for line in lines if line.endswith("\n")]


def _read_csv(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))
