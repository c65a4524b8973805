"""The training loop, from top to bottom: an epoch is train, re-assign, evaluate, save. What is scored is what is saved."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asterism import files
from asterism.console import Console
from asterism.data import Dataset
from asterism.data.augment import Augment, Batch, Batches
from asterism.runs import Checkpoint, DataInfo, Model, Progress, TrainConfig, describe, resolved, save_checkpoint
from asterism.training import guards
from asterism.training.metrics import evaluate, fit_temperature, head_seconds
from asterism.training.record import Record

LOOK = 20  # steps between two looks at the loss: each look makes an accelerator wait


@dataclass(frozen=True)
class Result:
    run_dir: Path
    epochs: int  # done
    interrupted: bool
    val_accuracy: float | None  # of the last epoch, a share; None without validation images
    accuracy: float | None  # on the test split, touched once; None while the run is not done
    test_loss: float | None
    temperature: float
    head_parameters: int  # trainable ones of the classifier
    head_seconds: float  # what the method adds to a step of one batch
    seconds: float

    def save(self) -> None:
        files.write_text(
            self.run_dir / "result.json", json.dumps({**asdict(self), "run_dir": str(self.run_dir)}, indent=1)
        )

    @classmethod
    def load(cls, folder: Path) -> Result:
        return cls(**{**files.read_json(folder / "result.json"), "run_dir": folder})

    def __str__(self) -> str:
        validation = "no validation" if self.val_accuracy is None else f"validation {self.val_accuracy:.2%}"
        if self.accuracy is None:
            return f"stopped after {self.epochs} epochs, {validation}"
        return f"{self.epochs} epochs, test accuracy {self.accuracy:.2%} ({validation})"


def train(config: TrainConfig, *, data: Dataset | None = None, quiet: bool = False) -> Result:
    """Trains what the config says into its run folder. `data` spares loading a set that is at hand."""
    console = Console(quiet)
    folder = config.folder()
    config, fresh = _claim(config, folder)
    if (folder / "result.json").exists():
        console.line(f"{folder} is done already")
        return Result.load(folder)
    if data is None:
        data = config.load_data(console.update)
    run = _build(config, data, console)
    progress = Progress()
    if fresh:
        _write_run(folder, run, data, asked=config)
    else:
        checkpoint = Checkpoint.load(folder / "last.safetensors")
        _check_same_data(checkpoint.info, run.info, data.name)
        checkpoint.restore(run.model, run.optimizer)
        progress = checkpoint.progress
        console.line(f"going on in {folder} after {progress.epoch} epochs and {progress.step} steps")
    record = Record(folder, progress, run.steps)
    with guards.signals() as stop, guards.own_generator(run.device):
        if fresh:
            record.map(run.model, 0, 0, {})
        while progress.epoch < run.config.epochs and not stop.signal:
            row = _train_epoch(run, progress, record, stop)
            if progress.step == run.steps:
                _end_epoch(run, progress, record, row)
            else:
                _save(run, progress, "last.safetensors")
    record.close()
    return _finish(run, progress, data)


@dataclass(frozen=True, eq=False)
class Run:
    """What stays the same from the first step to the last."""

    config: TrainConfig
    info: DataInfo
    folder: Path
    console: Console
    fabric: Any
    model: Model
    network: Any  # the model as Fabric wraps it: under autocast
    optimizer: Any
    batches: Batches
    val: Batches
    steps: int  # an epoch
    device: torch.device


def _build(config: TrainConfig, data: Dataset, console: Console) -> Run:
    from lightning_fabric import Fabric

    if config.batch_size > len(data.train):
        raise ValueError(
            f"batch_size {config.batch_size} is more than the {len(data.train)} training samples of {data.name}: lower it"
        )
    info = DataInfo(data.shape, data.names, *data.statistics())
    device = Fabric(accelerator=config.device, devices=1).device
    config = resolved(config, info, data.crop, data.flip, _computes_in_bf16(device))
    console.update(f"building {config.backbone} and {config.method} for {info.num_classes} classes")
    model = Model(config, info).to(device)
    if config.channels_last and len(info.shape) == 3:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with guards.quiet("lightning_fabric"):  # it would announce the precision, which the config says
        precision: Any = "bf16-mixed" if config.precision == "bf16" else "32-true"
        fabric = Fabric(accelerator=config.device, devices=1, precision=precision)
    network, optimizer = fabric.setup(model, make_optimizer(config, model))
    augment = Augment(config.crop or 0, bool(config.flip), config.erasing, config.mixup, config.cutmix)
    batches = Batches(data.train, info.mean, info.deviation, device, augment, config.seed)
    val = Batches(data.val, info.mean, info.deviation, device, Augment(), config.seed)
    steps = len(data.train) // config.batch_size
    return Run(config, info, config.folder(), console, fabric, model, network, optimizer, batches, val, steps, device)


def _train_epoch(run: Run, progress: Progress, record: Record, stop: guards.Stop) -> dict[str, Any]:
    """The steps that are left of the epoch, until it is over or the run is asked to stop. Returns its row of metrics so far."""
    config, model, optimizer, epoch, first = run.config, run.model, run.optimizer, progress.epoch, progress.step
    cadence, began = config.cadence(run.steps), time.monotonic()
    losses = torch.zeros(run.steps, device=run.device)
    row: dict[str, Any] = {"epoch": epoch + 1, "step": (epoch + 1) * run.steps}
    hits = seen = 0
    run.batches.start(epoch)
    for step in range(first, run.steps):
        k = epoch * run.steps + step
        torch.manual_seed(config.seed * 1_000_003 + k)  # dropout: the same wherever the run was interrupted
        for group in optimizer.param_groups:
            group["lr"] = row["lr"] = learning_rate(config, k, run.steps * config.epochs, run.steps)
        batch = run.batches(step, config.batch_size)
        features = run.network(batch.inputs)
        loss = batch_loss(model, features, batch)
        optimizer.zero_grad()
        run.fabric.backward(loss)
        if config.clip is not None:
            run.fabric.clip_gradients(run.network, optimizer, max_norm=config.clip)
        optimizer.step()
        after_step(model, features.detach(), batch)
        losses[step] = loss.detach()
        progress.step = step + 1

        reassigning = (k + 1) % cadence == 0
        if reassigning or stop.signal or step % LOOK == LOOK - 1 or step == run.steps - 1:
            _check_finite(losses[: step + 1], epoch, run.steps, run.folder)
            with torch.no_grad():  # one batch in LOOK: a head that touches B stars must not pay for all of them
                hits += int((model.method.logits(features).argmax(dim=1) == batch.labels).sum())
            seen += len(batch.labels)
            rate = (step + 1 - first) * config.batch_size / (time.monotonic() - began)
            row |= {"accuracy": hits / seen, "images_per_second": rate}
            left = ((config.epochs - epoch) * run.steps - step - 1) * config.batch_size / rate
            run.console.update(
                f"epoch {epoch + 1}/{config.epochs} step {step + 1}/{run.steps}  loss {losses[step].item():.4f}  "
                f"accuracy {hits / seen:.1%}  {rate:,.0f} images/s  {_clock(left)} left"
            )
        if reassigning:
            moves = model.method.after_epoch()
            record.map(model, epoch + 1, k + 1, moves)
            row |= moves
        if stop.signal:
            break
    progress.loss_sum += float(losses.double().sum())
    progress.seconds += time.monotonic() - began
    row["loss"] = progress.loss_sum / run.steps
    return row


def _end_epoch(run: Run, progress: Progress, record: Record, row: dict[str, Any]) -> None:
    """After the re-assignment: evaluate, save."""
    scores = evaluate(run.model, run.val, run.console)
    progress.temperature = fit_temperature(scores)
    row |= {"val_accuracy": scores.accuracy, "val_loss": scores.loss, "temperature": progress.temperature}
    progress.epoch, progress.step, progress.loss_sum = progress.epoch + 1, 0, 0.0
    progress.val_accuracy = scores.accuracy
    best = scores.accuracy > progress.best_accuracy or scores.count == 0
    if best:
        progress.best_accuracy = scores.accuracy
    record.metrics(row)
    _save(run, progress, "last.safetensors")
    if best:
        _save(run, progress, "best.safetensors")
    run.console.line(_summary(row, run.config, run.info.num_classes))


def _save(run: Run, progress: Progress, name: str) -> None:
    save_checkpoint(run.folder / name, run.model, run.optimizer, progress, run.config, run.info)


def _finish(run: Run, progress: Progress, data: Dataset) -> Result:
    """The test split is touched here, once, when all epochs are done."""
    done = progress.epoch == run.config.epochs
    accuracy = loss = None
    if done:
        test = Batches(data.test, run.info.mean, run.info.deviation, run.device, Augment(), run.config.seed)
        scores = evaluate(run.model, test, run.console)
        accuracy, loss = scores.accuracy, scores.loss
    else:
        run.console.line(
            f"interrupted; everything is saved. Go on with: asterism train --run-dir {shlex.quote(str(run.folder))} --resume"
        )
    result = Result(
        run_dir=run.folder,
        epochs=progress.epoch,
        interrupted=not done,
        val_accuracy=None if math.isnan(progress.val_accuracy) else progress.val_accuracy,
        accuracy=accuracy,
        test_loss=loss,
        temperature=progress.temperature,
        head_parameters=sum(p.numel() for p in run.model.method.parameters()),
        head_seconds=head_seconds(run.model, run.config.batch_size, run.device),
        seconds=progress.seconds,
    )
    if done:
        result.save()
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


def _claim(config: TrainConfig, folder: Path) -> tuple[TrainConfig, bool]:
    """The config to run, and whether the folder starts empty. A folder that holds a run is taken only by --resume."""
    saved_config = folder / "config.json"
    if not saved_config.exists():
        _probe(folder)
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
        return replace(saved, run_dir=str(folder)), False
    for leftover in ("metrics.csv", "map.jsonl", "result.json"):
        (folder / leftover).unlink(missing_ok=True)
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    return replace(saved, run_dir=str(folder)), True


def _probe(folder: Path) -> None:
    """A folder without permission or space is found out before the data are loaded. Nothing of this stays."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, must be a folder, or nothing yet: give another --run-dir")
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files.write_text(folder / ".probe", "a run can be written here")
        (folder / ".probe").unlink()
    finally:
        for path in made:
            if path.exists():
                path.rmdir()


def _check_same_data(was: DataInfo, now: DataInfo, name: str) -> None:
    for what in ("shape", "names", "mean", "deviation"):
        if getattr(was, what) != getattr(now, what):
            raise ValueError(
                f"--resume: {name} is not what the run was started on: its {what} differ; restore the data, or start another run"
            )


def _write_run(folder: Path, run: Run, data: Dataset, asked: TrainConfig) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    head = getattr(run.model.method, "head", None)
    stars = None
    if head is not None:
        stars = {"checksum": files.checksum({"points": head.stars}), "count": len(head.stars), "dim": head.dim}
    counts = {"train": len(data.train), "val": len(data.val), "test": len(data.test)}
    files.write_text(folder / "run.json", json.dumps(describe(run.info, counts, stars), indent=1, ensure_ascii=False))
    if not (folder / "config.json").exists():  # else the run starts again from the beginning
        run.config.save(folder / "config.json", asked)


def _computes_in_bf16(device: torch.device) -> bool:
    """Whether the machine has units for bfloat16, rather than merely accepting it."""
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return getattr(torch, device.type).is_bf16_supported()


def _check_finite(losses: Tensor, epoch: int, steps: int, folder: Path) -> None:
    bad = (~losses.isfinite()).nonzero()
    if len(bad):
        step = int(bad[0])
        kept = (
            f"the last good state stays in {folder}"
            if (folder / "last.safetensors").exists()
            else "nothing was saved yet"
        )
        raise FloatingPointError(
            f"the loss is {losses[step].item()} at step {step + 1} of epoch {epoch + 1} "
            f"(step {epoch * steps + step + 1} of the run): {kept}; start another run with a lower --lr, or with --clip 1"
        )


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"


def _summary(row: dict[str, Any], config: TrainConfig, num_classes: int) -> str:
    text = (
        f"epoch {row['epoch']}/{config.epochs}  loss {row['loss']:.4f}  accuracy {row['accuracy']:.1%}  "
        + ("no validation" if math.isnan(row["val_accuracy"]) else f"validation {row['val_accuracy']:.2%}")
        + f"  {row['images_per_second']:,.0f} images/s"
    )
    if "moved" in row:
        text += (
            f"  moved {row['moved']} of {num_classes}, mean cosine {row['cosine_before']:.3f} -> {row['cosine']:.3f}"
        )
    return text
