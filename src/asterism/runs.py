"""What a run folder holds. training writes it, serving and report read it.

    config.json          the resolved TrainConfig, and under "filled_in" which of its values nobody asked for; `asterism train
                         --config` takes it back
    run.json             the data's shape and names, versions, commit, command, checksum of the prototypes
    metrics.csv          a line an epoch; tensorboard/ holds the same
    map.jsonl            who moved, at each re-assignment: {"epoch", "step", "labels", "stars", ...}; the first line places all
    last.safetensors     the state after the last epoch, or where the run was interrupted; best.safetensors: of the best epoch
    result.json          written once, at the end: the test split's figures

One checkpoint is one file: model, class means, optimizer as tensors, the rest as JSON in its header. No world size inside.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from asterism import files
from asterism.backbones import make_embedder
from asterism.checks import check_types, unknown
from asterism.data import Dataset, load_data
from asterism.methods import METHODS, make_method, options_of


@dataclass(frozen=True)
class TrainConfig:
    """Everything a run is made of. None means: what suits the data, method or machine; `resolved` fills it in.

    >>> TrainConfig(data="digits", epochs=3).epochs
    3
    """

    data: str = "glyphs"  # digits, glyphs, cifar10, cifar100, folder:PATH, parquet:PATH, features:PATH
    data_root: str | None = None  # where a named set lies as Parquet files; else it comes from the hub
    num_classes: int | None = None  # of generated data (glyphs); elsewhere the data says it
    image_size: int | None = None  # side of the square to which images of a folder or Parquet are brought
    label_column: str | None = None  # of Parquet files
    validation: float = 0.1  # share of each class held out of the training images
    skip_broken: bool = False  # leave broken images out instead of stopping
    method: str = "asterism"  # a row of METHODS: asterism, dl2pa, psc-scaled, psc-linear, ...
    method_options: dict[str, Any] = field(default_factory=dict)  # as --method.NAME VALUE
    backbone: str = "resnet8"  # mlp, resnet8 14 20 32 56 (-conv, -gn), or module.path:function
    width: int = 16  # channels of the first stage
    dim: int | None = None  # of the sphere; min(c, 128), for psc-linear the backbone's own width
    batch_norm: bool | None = None  # before the sphere; on, but for psc-linear and backbones with GroupNorm
    epochs: int = 10  # passes over the training images
    batch_size: int = 128  # samples a step
    optimizer: str = "sgd"  # sgd (Nesterov) or adamw
    lr: float | None = None  # .2 for sgd, .002 for adamw
    momentum: float = 0.9  # of sgd
    weight_decay: float = 5e-4  # on all parameters
    schedule: str = "one-cycle"  # one-cycle, cosine, steps or constant; all per step
    warmup: float = 0.0  # epochs of linear warm-up, for all but one-cycle
    milestones: tuple[float, ...] = (0.4, 0.8)  # for steps: shares of the run at which lr falls to a tenth
    clip: float | None = None  # gradients are clipped to this norm
    crop: int | None = None  # pixels of padding to crop from; None: as suits the data
    flip: bool | None = None  # mirror one image in two; None: as suits the data
    erasing: float = 0.0  # probability of a blanked rectangle
    mixup: float = 0.0  # a of the Beta(a, a) that blends two images; 0: off
    cutmix: float = 0.0  # a of the Beta(a, a) of the area taken from another image; 0: off
    reassign_every: str = "1ep"  # epochs or batches, as 1ep or 500ba
    precision: str = "auto"  # 32, bf16, or auto: bf16 where the machine computes in it
    channels_last: bool = True  # memory layout of the convolutions
    device: str = "auto"  # auto, cpu, or an accelerator's name as Lightning Fabric knows it
    seed: int = 0  # of data, weights, order, augmentation, stars and first map
    run_dir: str | None = None  # runs/DATA-METHOD-seedS
    resume: bool = False  # go on from the folder's last checkpoint, or from the beginning if there is none

    def __post_init__(self) -> None:
        for name in ("data_root", "run_dir"):
            if isinstance(getattr(self, name), Path):
                object.__setattr__(self, name, str(getattr(self, name)))
        _check(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainConfig:
        known = [f.name for f in fields(cls)]
        values = {key: value for key, value in values.items() if key != "filled_in"}
        for key in values:
            if key not in known:
                raise unknown("key of TrainConfig", key, known)
        if isinstance(values.get("milestones"), list):  # JSON knows no tuples
            values = {**values, "milestones": tuple(values["milestones"])}
        return cls(**values)

    @classmethod
    def load(cls, path: str | Path, *, asked: bool = False) -> TrainConfig:
        """A run's config.json. With `asked` as it was asked for: what the run filled in by itself is open again."""
        values = files.read_json(path)
        if not isinstance(values, dict):
            raise ValueError(
                f"{path} holds a {type(values).__name__}, must hold an object: pass the config.json of a run"
            )
        config = cls.from_dict(values)
        if not asked:
            return config
        filled = values.get("filled_in", {})
        again: dict[str, Any] = {  # unless edited by hand since
            f.name: f.default for f in fields(cls) if f.name in filled and filled[f.name] == values[f.name]
        }
        usual = options_of(config.method, {})
        again["method_options"] = {k: v for k, v in config.method_options.items() if v != usual[k]}
        return replace(config, **again)

    def save(self, path: str | Path, asked: TrainConfig) -> None:
        """Writes the resolved config, and beside it what was filled in where `asked` left it open."""
        values = asdict(self)
        filled = {k: v for k, v in values.items() if getattr(asked, k) in (None, "auto") and v not in (None, "auto")}
        files.write_text(path, json.dumps({**values, "filled_in": filled}, indent=1))

    def folder(self) -> Path:
        if self.run_dir is not None:
            return Path(self.run_dir)
        kind, _, path = self.data.partition(":")
        return Path("runs") / f"{Path(path).stem if path else kind}-{self.method}-seed{self.seed}"

    def load_data(self, progress: Callable[[str], None] | None = None) -> Dataset:
        return load_data(
            self.data,
            root=self.data_root,
            num_classes=self.num_classes,
            image_size=self.image_size,
            label_column=self.label_column,
            validation=self.validation,
            seed=self.seed,
            skip_broken=self.skip_broken,
            progress=progress,
        )

    def cadence(self, steps_per_epoch: int) -> int:
        """Steps between two re-assignments."""
        number, unit = self.reassign_every[:-2], self.reassign_every[-2:]
        return int(number) * (steps_per_epoch if unit == "ep" else 1)


def _check(config: TrainConfig) -> None:
    def need(fine: bool, name: str, allowed: str) -> None:
        if not fine:
            raise ValueError(f"TrainConfig: {name} came as {getattr(config, name)!r}, must be {allowed}")

    check_types("TrainConfig", config)
    options_of(config.method, config.method_options)  # unknown methods and options are errors here
    for name, low in (("epochs", 1), ("batch_size", 2), ("width", 1), ("seed", 0)):
        need(getattr(config, name) >= low, name, f"at least {low}")
    for name, low in (("num_classes", 2), ("image_size", 1), ("dim", 1), ("crop", 0)):
        value = getattr(config, name)
        need(value is None or value >= low, name, f"at least {low}, or None")
    need(config.lr is None or config.lr > 0, "lr", "positive")
    need(config.clip is None or config.clip > 0, "clip", "positive")
    need(0 <= config.validation < 1, "validation", "in [0, 1)")
    need(0 <= config.erasing <= 1, "erasing", "a probability")
    need(all(0 <= m <= 1 for m in config.milestones), "milestones", "shares of the run, each in 0..1")
    for name in ("mixup", "cutmix", "weight_decay", "momentum", "warmup"):
        need(getattr(config, name) >= 0, name, "at least 0")
    for name, options in (
        ("optimizer", ("sgd", "adamw")),
        ("schedule", ("one-cycle", "cosine", "steps", "constant")),
        ("precision", ("auto", "32", "bf16")),
    ):
        if getattr(config, name) not in options:
            raise unknown(name, getattr(config, name), options)
    number, unit = config.reassign_every[:-2], config.reassign_every[-2:]
    need(
        number.isdecimal() and int(number) >= 1 and unit in ("ep", "ba"),
        "reassign_every",
        "epochs or batches, as 1ep or 500ba",
    )


def resolved(config: TrainConfig, info: DataInfo, crop: int, flip: bool, bf16: bool) -> TrainConfig:
    """The config with every None filled in that can be."""
    linear = not METHODS[config.method].cls.on_sphere
    return replace(
        config,
        num_classes=info.num_classes if config.data == "glyphs" else None,
        method_options=options_of(config.method, config.method_options),
        dim=config.dim or (None if linear else min(info.num_classes, 128)),
        batch_norm=not linear and "-gn" not in config.backbone if config.batch_norm is None else config.batch_norm,
        lr=config.lr or (0.2 if config.optimizer == "sgd" else 0.002),
        crop=crop if config.crop is None else config.crop,
        flip=flip if config.flip is None else config.flip,
        precision=("bf16" if bf16 else "32") if config.precision == "auto" else config.precision,
        run_dir=str(config.folder()),
        resume=False,
    )


@dataclass(frozen=True)
class DataInfo:
    """What a model must know of its data to be built again and to take an input."""

    shape: tuple[int, ...]  # (H, W, C) or (D,)
    names: list[str]
    mean: list[float]
    deviation: list[float]

    @property
    def num_classes(self) -> int:
        return len(self.names)


class Model(nn.Module):
    """Input -> feature -> logits: the embedder and the method in one module, so that a checkpoint has one state."""

    def __init__(self, config: TrainConfig, info: DataInfo, prototypes: Tensor | None = None) -> None:
        super().__init__()
        self.num_classes = info.num_classes
        with torch.random.fork_rng(devices=[]):  # weights start from the run's seed, and nobody else's generator moves
            torch.manual_seed(config.seed)
            self.embedder = make_embedder(
                config.backbone, info.shape, config.dim, width=config.width, batch_norm=bool(config.batch_norm)
            )
            self.method = make_method(
                config.method,
                info.num_classes,
                self.embedder.dim,
                config.method_options,
                seed=config.seed,
                prototypes=prototypes,
            )

    def forward(self, inputs: Tensor) -> Tensor:
        return self.embedder(inputs)


@dataclass
class Progress:
    """Where a run stands: what a checkpoint holds beside tensors."""

    epoch: int = 0  # epochs done
    step: int = 0  # steps done in the epoch that is open
    loss_sum: float = 0.0  # over these
    val_accuracy: float = math.nan  # after the last epoch
    best_accuracy: float = -1.0
    temperature: float = 1.0  # of the probabilities, fitted on validation
    seconds: float = 0.0  # of training, over all sessions


def save_checkpoint(
    path: Path, model: Model, optimizer: torch.optim.Optimizer, progress: Progress, config: TrainConfig, info: DataInfo
) -> None:
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
    if model.method.means is not None:
        tensors |= {f"means.{k}": v for k, v in model.method.means.state_dict().items()}
    state = optimizer.state_dict()["state"]
    numbers: dict[str, dict[str, Any]] = {}
    for index, values in state.items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
            else:
                numbers.setdefault(str(index), {})[name] = value
    header = {"progress": asdict(progress), "config": asdict(config), "data": asdict(info), "optimizer": numbers}
    files.write_tensors(path, tensors, header)


@dataclass(frozen=True)
class Checkpoint:
    tensors: dict[str, Tensor]
    progress: Progress
    config: TrainConfig
    info: DataInfo
    optimizer_numbers: dict[str, dict[str, Any]]

    @classmethod
    def load(cls, path: str | Path) -> Checkpoint:
        tensors, header = files.read_tensors(path)
        if "progress" not in header:
            raise ValueError(f"{path} holds no checkpoint of a run: is it a set of prototypes?")
        try:
            info = header["data"]
            info = DataInfo(tuple(info["shape"]), info["names"], info["mean"], info["deviation"])
            config = TrainConfig.from_dict(header["config"])
            return cls(tensors, Progress(**header["progress"]), config, info, header["optimizer"])
        except (KeyError, TypeError, ValueError) as error:  # it is whole, so somebody else wrote it
            raise ValueError(
                f"{path} is a checkpoint of another version of asterism ({error}): read it with that one"
            ) from error

    def part(self, name: str) -> dict[str, Tensor]:
        return {k[len(name) + 1 :]: v for k, v in self.tensors.items() if k.startswith(name + ".")}

    def model(self) -> Model:
        """The model as it was saved; fixed stars come from the file and are not made again."""
        model = Model(self.config, self.info, self.tensors.get("model.method.head.stars"))
        self.restore(model)
        return model

    def restore(self, model: Model, optimizer: torch.optim.Optimizer | None = None) -> None:
        state, current = self.part("model"), model.state_dict()
        for name in {**current, **state}:
            came, has = (tuple(s[name].shape) if name in s else "nothing" for s in (state, current))
            if came != has:
                raise ValueError(
                    f"checkpoint: for {name} it holds {came}, the model {has}: it was saved by another configuration; "
                    "take the config.json beside it"
                )
        model.load_state_dict(state)
        if model.method.means is not None:
            model.method.means.load_state_dict(self.part("means"))
        if optimizer is not None:
            whole = optimizer.state_dict()
            whole["state"] = {int(i): dict(values) for i, values in self.optimizer_numbers.items()}
            for name, value in self.part("optimizer").items():
                index, _, key = name.partition(".")
                whole["state"].setdefault(int(index), {})[key] = value
            optimizer.load_state_dict(whole)


def checkpoint_path(run: str | Path, best: bool = False) -> Path:
    """The checkpoint of a run folder, or the file itself."""
    run = Path(run)
    if run.is_file():
        return run
    path = run / ("best.safetensors" if best else "last.safetensors")
    if not path.exists():
        raise FileNotFoundError(
            f"{run} has no {path.name}: "
            + (
                "it stopped before its first epoch ended; go on with --resume"
                if (run / "config.json").exists()
                else "it is no run folder"
            )
        )
    return path


def describe(info: DataInfo, counts: dict[str, int], stars: dict[str, Any] | None) -> dict[str, Any]:
    """What run.json says."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for name in ("asterism", "torch", "numpy", "scipy", "safetensors", "lightning-fabric", "datasets"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "data": asdict(info),
        "counts": counts,
        "prototypes": stars,
        "command": sys.argv,
        "commit": _commit(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "versions": versions,
    }


def _commit() -> str | None:
    """Of the repository that the command runs in, with + where it has uncommitted changes."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
