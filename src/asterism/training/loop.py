"""The training loop, from top to bottom: an epoch is train, re-assign, evaluate, save. What is scored is what is saved."""

from __future__ import annotations

import contextlib
import csv
import json
import logging
import math
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asterism import files
from asterism.console import Console
from asterism.data import Dataset, load_data
from asterism.data.augment import Augment, Batch, Batches
from asterism.runs import Checkpoint, DataInfo, Model, Progress, TrainConfig, describe, resolved, save_checkpoint
from asterism.training.metrics import Scores, evaluate, fit_temperature, head_seconds

LOOK = 20  # steps between two looks at the loss: each look makes an accelerator wait


@dataclass(frozen=True)
class Result:
    run_dir: Path
    epochs: int  # done
    interrupted: bool
    val_accuracy: float  # of the last epoch, a share
    accuracy: float | None  # on the test split, touched once; None while the run is not done
    test_loss: float | None
    temperature: float
    head_parameters: int  # trainable ones of the classifier
    head_seconds: float  # what the method adds to a step of one batch
    seconds: float

    def __str__(self) -> str:
        if self.accuracy is None:
            return f"stopped after {self.epochs} epochs, validation accuracy {self.val_accuracy:.2%}"
        return f"{self.epochs} epochs, test accuracy {self.accuracy:.2%} (validation {self.val_accuracy:.2%})"


def train(config: TrainConfig, *, data: Dataset | None = None, quiet: bool = False) -> Result:
    """Trains what the config says into its run folder. `data` spares loading a set that is at hand."""
    from lightning_fabric import Fabric

    console = Console(quiet)
    folder = config.folder()
    config, fresh = _claim(config, folder)
    if data is None:
        data = load_data(
            config.data,
            root=config.data_root,
            num_classes=config.num_classes,
            image_size=config.image_size,
            label_column=config.label_column,
            validation=config.validation,
            seed=config.seed,
            skip_broken=config.skip_broken,
            progress=console.update,
        )
    if config.batch_size > len(data.train):
        raise ValueError(
            f"batch_size {config.batch_size} is more than the {len(data.train)} training samples of {data.name}: lower it"
        )
    info = DataInfo(data.shape, data.names, *data.statistics())

    device = Fabric(accelerator=config.device, devices=1).device
    config = resolved(config, info, data.crop, data.flip, _computes_in_bf16(device))
    console.update(f"building {config.backbone} and {config.method} for {info.num_classes} classes")
    model = Model(config, info)
    if config.channels_last and len(info.shape) == 3:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with _quiet("lightning_fabric"):  # it would announce the precision, which the config says
        fabric = Fabric(
            accelerator=config.device, devices=1, precision="bf16-mixed" if config.precision == "bf16" else "32-true"
        )
    model.to(device)
    optimizer = make_optimizer(config, model)
    network, optimizer = fabric.setup(model, optimizer)

    augment = Augment(config.crop or 0, bool(config.flip), config.erasing, config.mixup, config.cutmix)
    batches = Batches(data.train, info.mean, info.deviation, device, augment, config.seed)
    val = Batches(data.val, info.mean, info.deviation, device, Augment(), config.seed)
    steps = len(data.train) // config.batch_size
    total, cadence = steps * config.epochs, config.cadence(steps)

    progress = Progress()
    if fresh:
        _write_run(folder, config, info, data, model)
    else:
        checkpoint = Checkpoint.load(folder / "last.safetensors")
        checkpoint.restore(model, optimizer)
        progress = checkpoint.progress
        console.line(f"going on in {folder} after {progress.epoch} epochs and {progress.step} steps")
    record = Record(folder, progress, steps)
    scores = Scores(0, math.nan, math.nan, torch.empty(0, 0), torch.empty(0, dtype=torch.int64))
    began = time.monotonic() - progress.seconds

    def save(name: str) -> None:
        progress.seconds = time.monotonic() - began
        save_checkpoint(folder / name, model, optimizer, progress, config, info)

    with _signals() as stop, _own_generator(device):
        if fresh:
            record.map(model, 0, 0, {})
        for epoch in range(progress.epoch, config.epochs):
            batches.start(epoch)
            losses = torch.zeros(steps, device=device)
            hits, seen, epoch_began, first_step = 0, 0, time.monotonic(), progress.step
            moves: dict[str, Any] = {}
            for step in range(first_step, steps):
                k = epoch * steps + step
                torch.manual_seed(config.seed * 1_000_003 + k)  # dropout: the same wherever the run was interrupted
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(config, k, total, steps)
                batch = batches(step, config.batch_size)
                features = network(batch.inputs)
                loss = batch_loss(model, features, batch)
                optimizer.zero_grad()
                fabric.backward(loss)
                if config.clip is not None:
                    fabric.clip_gradients(network, optimizer, max_norm=config.clip)
                optimizer.step()
                after_step(model, features.detach(), batch)
                losses[step] = loss.detach()
                progress.step = step + 1

                reassigning = (k + 1) % cadence == 0
                if reassigning or stop.signal or step % LOOK == LOOK - 1 or step == steps - 1:
                    _check_finite(losses[: step + 1], epoch, steps, folder)
                    with torch.no_grad():  # one batch in LOOK: a head that touches B stars must not pay for all of them
                        hits += int((model.method.logits(features).argmax(dim=1) == batch.labels).sum())
                    seen += len(batch.labels)
                    rate = (step + 1 - first_step) * config.batch_size / (time.monotonic() - epoch_began)
                    left = ((config.epochs - epoch) * steps - step - 1) * config.batch_size / rate
                    console.update(
                        f"epoch {epoch + 1}/{config.epochs} step {step + 1}/{steps}  loss {losses[step].item():.4f}  "
                        f"accuracy {hits / seen:.1%}  {rate:,.0f} images/s  {_clock(left)} left"
                    )
                if reassigning:
                    moves = model.method.after_epoch()
                    record.map(model, epoch + 1, k + 1, moves)
                if stop.signal:
                    break
            progress.loss_sum += float(losses.double().sum())
            if stop.signal and progress.step < steps:
                save("last.safetensors")
                break

            scores = evaluate(model, val, console)
            progress.temperature = fit_temperature(scores)
            row = {
                "epoch": epoch + 1,
                "step": (epoch + 1) * steps,
                "loss": progress.loss_sum / steps,
                "accuracy": hits / max(1, seen),
                "val_accuracy": scores.accuracy,
                "val_loss": scores.loss,
                "temperature": progress.temperature,
                "lr": optimizer.param_groups[0]["lr"],
                "images_per_second": rate,
                **moves,
            }
            better = scores.accuracy > progress.best_accuracy or scores.count == 0
            progress = Progress(
                epoch + 1, 0, 0.0, scores.accuracy if better else progress.best_accuracy, progress.temperature
            )
            record.metrics(row)
            save("last.safetensors")
            if better:
                save("best.safetensors")
            console.line(_summary(row, config, info.num_classes))
            if stop.signal:
                break
    record.close()

    done = progress.epoch == config.epochs
    if stop.signal and not done:
        console.line(f"interrupted; everything is saved. Go on with: asterism train --run-dir {folder} --resume")
    test = (
        evaluate(model, Batches(data.test, info.mean, info.deviation, device, Augment(), config.seed), console)
        if done
        else None
    )
    result = Result(
        folder,
        progress.epoch,
        not done,
        scores.accuracy,
        test.accuracy if test else None,
        test.loss if test else None,
        progress.temperature,
        sum(p.numel() for p in model.method.parameters()),
        head_seconds(model, config.batch_size, device),
        progress.seconds,
    )
    if done:
        files.write_text(folder / "result.json", json.dumps({**asdict(result), "run_dir": str(folder)}, indent=1))
    return result


def batch_loss(model: Model, features: Tensor, batch: Batch) -> Tensor:
    method = model.method
    if batch.other is None or batch.share is None:
        return method.loss(features, batch.labels)
    return method.loss(features, batch.labels, batch.share) + method.loss(features, batch.other, 1 - batch.share)


def after_step(model: Model, features: Tensor, batch: Batch) -> None:
    model.method.after_step(features, batch.labels, batch.share)
    if batch.other is not None and batch.share is not None:
        model.method.after_step(features, batch.other, 1 - batch.share)


def make_optimizer(config: TrainConfig, model: Model) -> torch.optim.Optimizer:
    lr = config.lr or 0.0
    if config.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        model.parameters(),
        lr=lr,
        momentum=config.momentum,
        nesterov=config.momentum > 0,
        weight_decay=config.weight_decay,
    )


def learning_rate(config: TrainConfig, step: int, total: int, steps_per_epoch: int) -> float:
    """A pure function of the step, so that nothing needs to be saved. One-cycle: up over the first fifth, down by a cosine.

    >>> config = TrainConfig(lr=1.0, schedule="cosine")
    >>> [round(learning_rate(config, k, 10, 5), 3) for k in (0, 5, 10)]
    [1.0, 0.5, 0.0]
    """
    peak = config.lr or 0.0
    if config.schedule == "one-cycle":
        up = 0.2 * total
        if step < up:
            return peak * (0.04 + 0.96 * step / up)
        return peak * 0.5 * (1 + math.cos(math.pi * (step - up) / max(1.0, total - up)))
    warm = config.warmup * steps_per_epoch
    if step < warm:
        return peak * (step + 1) / (warm + 1)
    done = (step - warm) / max(1.0, total - warm)
    if config.schedule == "cosine":
        return peak * 0.5 * (1 + math.cos(math.pi * done))
    if config.schedule == "steps":
        return peak * 0.1 ** sum(done >= m for m in config.milestones)
    return peak


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
        self.rows = [r for r in _read_csv(folder / "metrics.csv") if int(r["epoch"]) <= progress.epoch]
        lines = (folder / "map.jsonl").read_text().splitlines() if (folder / "map.jsonl").exists() else []
        self.maps = [line for line in lines if json.loads(line)["step"] <= done]
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


def _read_csv(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def _claim(config: TrainConfig, folder: Path) -> tuple[TrainConfig, bool]:
    """The config to run, and whether the folder starts empty. A folder that holds a run is taken only by --resume."""
    saved_config = folder / "config.json"
    if not saved_config.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with files.replacing(folder / "run.json") as probe:  # a folder without permission or space is found out now
            probe.write_text("{}")
        return config, True
    if not config.resume:
        raise ValueError(f"{folder} already holds a run: go on with --resume, or give another --run-dir")
    saved, default = TrainConfig.load(saved_config), TrainConfig()
    for f in fields(TrainConfig):
        asked, was = getattr(config, f.name), getattr(saved, f.name)
        if f.name == "method_options":
            asked = {k: v for k, v in asked.items() if was.get(k) != v}
        elif f.name in ("run_dir", "resume", "device") or asked == getattr(default, f.name) or asked == was:
            continue
        if asked:
            raise ValueError(
                f"--resume: {f.name} came as {asked!r}, the run in {folder} was started with {was!r}: leave it out, "
                "or start another run"
            )
    if (folder / "last.safetensors").exists():
        return saved, False
    for leftover in ("metrics.csv", "map.jsonl", "result.json"):
        (folder / leftover).unlink(missing_ok=True)
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    return saved, True


def _write_run(folder: Path, config: TrainConfig, info: DataInfo, data: Dataset, model: Model) -> None:
    head = getattr(model.method, "head", None)
    stars = None
    if head is not None:
        stars = {"checksum": files.checksum({"points": head.stars}), "count": len(head.stars), "dim": head.dim}
    counts = {"train": len(data.train), "val": len(data.val), "test": len(data.test)}
    files.write_text(folder / "run.json", json.dumps(describe(info, counts, stars), indent=1, ensure_ascii=False))
    files.write_text(folder / "config.json", json.dumps(asdict(config), indent=1))


def _computes_in_bf16(device: torch.device) -> bool:
    """Whether the machine has units for bfloat16, rather than merely accepting it."""
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return getattr(torch, device.type).is_bf16_supported()


def _check_finite(losses: Tensor, epoch: int, steps: int, folder: Path) -> None:
    bad = (~losses.isfinite()).nonzero()
    if len(bad):
        step = int(bad[0])
        raise FloatingPointError(
            f"the loss is {losses[step].item()} at step {step + 1} of epoch {epoch + 1} "
            f"(step {epoch * steps + step + 1} of the run): "
            f"the last good state stays in {folder}; lower --lr, or give --clip 1"
        )


class _Stop:
    signal: int | None = None


@contextlib.contextmanager
def _signals() -> Iterator[_Stop]:
    """Ctrl-C and SIGTERM ask the loop to save and stop; a second Ctrl-C stops at once."""
    stop = _Stop()

    def ask(number: int, frame: Any) -> None:
        if stop.signal is not None:
            raise KeyboardInterrupt
        stop.signal = number

    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
    except ValueError:  # not in the main thread, where signals cannot be had
        pass
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


def _own_generator(device: torch.device) -> contextlib.AbstractContextManager:
    """The global generators are put back as they were when the run ends."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device.index or 0], device_type=device.type)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"


def _summary(row: dict[str, Any], config: TrainConfig, num_classes: int) -> str:
    text = (
        f"epoch {row['epoch']}/{config.epochs}  loss {row['loss']:.4f}  accuracy {row['accuracy']:.1%}  "
        f"validation {row['val_accuracy']:.2%}  {row['images_per_second']:,.0f} images/s"
    )
    if "moved" in row:
        text += (
            f"  moved {row['moved']} of {num_classes}, mean cosine {row['cosine_before']:.3f} -> {row['cosine']:.3f}"
        )
    return text
