"""The command line: `asterism COMMAND ...`, also as `python -m asterism`. Exit codes: 0 done, 1 failed, 2 wrong usage.

A command is a function below: its parameters are its flags, its docstring is its help.
"""

from __future__ import annotations

import inspect
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from asterism.checks import unknown

try:
    import tyro
    from tyro.conf import Positional, arg
except ImportError:
    sys.exit('asterism: the command line needs more than the core: pip install "asterism[train]"')


class UsageError(ValueError):
    """What was typed makes no sense, whatever the files hold."""


def demo(run_dir: Path = Path("runs/demo"), quiet: bool = False) -> int:
    """Compare five heads on generated data, in a few minutes: a table here, and a page in runs/demo/index.html.

    asterism demo
    """
    from asterism.demo import run_demo

    return 0 if run_demo(run_dir, quiet) else 1


def evaluate(
    run: Positional[Path], split: Literal["test", "val", "train"] = "test", best: bool = False, json: bool = False
) -> None:
    """Score a run's last checkpoint (or, with --best, its best) on a split.

    asterism evaluate runs/demo/asterism --json
    """
    import torch

    from asterism.console import Console
    from asterism.data.augment import Augment, Batches
    from asterism.runs import Checkpoint, checkpoint_path
    from asterism.training.metrics import evaluate as score

    console = Console(quiet=json)
    checkpoint = Checkpoint.load(checkpoint_path(run, best))
    config = checkpoint.config
    data = config.load_data(console.update)
    if data.names != checkpoint.info.names:
        raise ValueError(
            f"{config.data} has other classes than the run {run} was trained on: evaluate it on the same data"
        )
    part = {"test": data.test, "val": data.val, "train": data.train}[split]
    if len(part) == 0:
        raise ValueError(f"{config.data} has no {split} samples as {run} was trained on it: choose another --split")
    batches = Batches(
        part, checkpoint.info.mean, checkpoint.info.deviation, torch.device("cpu"), Augment(), config.seed
    )
    scores = score(checkpoint.model(), batches, console)
    console.clear()
    found = {
        "accuracy": scores.accuracy,
        "loss": scores.loss,
        "count": scores.count,
        "split": split,
        "epoch": checkpoint.progress.epoch,
        "run": str(run),
    }
    print(
        dumps(found)
        if json
        else f"{split} accuracy {scores.accuracy:.2%} on {scores.count} inputs, after {found['epoch']} epochs"
    )


def predict(
    run: Positional[Path], images: Positional[tuple[Path, ...]], best: bool = False, json: bool = False
) -> None:
    """Name what is on images: label, probability, cosine, and the classes that come next.

    asterism predict runs/cats-asterism-seed0 photo1.jpg photo2.png
    """
    from asterism.serving.predictor import Predictor

    if not images:
        raise UsageError("no image came: asterism predict RUN IMAGE...")
    found = Predictor.load(run, best=best).predict([str(image) for image in images])
    if json:
        print(
            dumps(
                [
                    {
                        "image": str(image),
                        "label": label,
                        "index": int(i),
                        "cosine": float(found.cosines[k, i]),
                        "probability": float(found.probabilities[k, i]),
                        "next": dict(found.nearest[k]),
                    }
                    for k, (image, label, i) in enumerate(zip(images, found.labels, found.indices, strict=True))
                ]
            )
        )
        return
    for image, line in zip(images, str(found).splitlines(), strict=True):
        print(f"{image}  {line}")


def prototypes(
    num_classes: Annotated[int, arg(aliases=["-c"])],
    dim: Annotated[int, arg(aliases=["-d"])],
    kind: str = "auto",
    seed: int = 0,
    seconds: float | None = None,
    improved: bool = False,
    vectors: Path | None = None,
    subset: int | None = None,
    output: Annotated[Path | None, arg(aliases=["-o"])] = None,
    plot: tuple[Path, ...] | None = None,
    json: bool = False,
) -> None:
    """Make prototypes: print their receipt, draw the histogram of their cosines.

    --output keeps them as safetensors; --plot [FILE] draws them as PNG, PDF or SVG.
    --seconds searches for so long and keeps what is better in the cache; --improved takes the best that was kept there.
    --kind: auto, optimised, gaussian-potential (the paper's; --subset N is its equation 5), hpn, word2vec, etf, maxsep,
    orthonormal, hadamard, equiangular-basis, random, learned. --vectors FILE (npz, safetensors, Parquet) goes with hpn and word2vec
    (a class name a row) and learned (the weight of a trained head).

    asterism prototypes -c 100 -d 10 -o stars.safetensors
    """
    from asterism import make_prototypes
    from asterism.prototypes import KINDS
    from asterism.report.plots import histogram_text, prototypes_figure
    from asterism.tables import read_matrix

    if kind not in KINDS:
        raise UsageError(str(unknown("kind of prototypes", kind, KINDS)))
    if output is not None and output.suffix != ".safetensors":
        raise UsageError(f"--output came as {output}, must end in .safetensors")
    stars = make_prototypes(
        num_classes,
        dim,
        kind=kind,
        seed=seed,
        seconds=seconds,
        improved=improved,
        vectors=None if vectors is None else read_matrix(vectors),
        subset=subset,
        progress=not json,
    )
    if output is not None:
        stars.save(output)
    picture = None if plot is None else plot[0] if plot else Path(f"prototypes-{num_classes}x{dim}.png")
    if picture is not None:
        prototypes_figure(stars).savefig(picture)
    if json:
        print(dumps(stars.receipt()))
        return
    print(stars)
    for name, value in stars.receipt().items():
        print(f"  {name:20} {value:.10g}" if isinstance(value, float) else f"  {name:20} {value}")
    print(histogram_text(stars))
    for file in (output, picture):
        if file is not None:
            print(f"written: {file}")


def assign(
    means: Positional[Path],
    stars: Positional[Path],
    output: Annotated[Path | None, arg(aliases=["-o"])] = None,
    json: bool = False,
) -> None:
    """Match class means to prototypes, exactly. Both are matrices, a unit vector a row, in npz, safetensors or Parquet.

    --output keeps the order (the star of each class) in the format its suffix names.

    asterism assign means.npz stars.safetensors -o order.npz
    """
    from asterism import solve_assignment
    from asterism.tables import read_matrix, write_vector

    found = solve_assignment(read_matrix(means), read_matrix(stars))
    if output is not None:
        write_vector(output, "order", found.order)
    if json:
        print(
            dumps(
                {
                    "order": found.order.tolist(),
                    "score": found.score,
                    "bound": found.bound,
                    "gap": found.gap,
                    "certified": found.certified,
                    "seconds": found.seconds,
                }
            )
        )
        return
    print(found)
    print(f"written: {output}" if output is not None else " ".join(str(j) for j in found.order.tolist()))


def info(path: Positional[Path], json: bool = False) -> None:
    """Say what a run folder, a checkpoint or a file of prototypes holds.

    asterism info runs/demo/asterism
    """
    found = describe_path(path)
    if json:
        print(dumps(found))
        return
    for key, value in found.items():
        print(f"{key:16} {value}")


def report(runs: Positional[tuple[Path, ...]], output: Annotated[Path | None, arg(aliases=["-o"])] = None) -> None:
    """Draw one page of one or several runs: table, curves, the map's timeline, the sphere of a run in 3 dimensions.

    asterism report runs/demo/asterism runs/demo/dl2pa -o compare.html
    """
    from asterism.report.page import read_run, write_page

    if not runs:
        raise UsageError("no run came: asterism report RUN...")
    output = output or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    spheres = [run for run in runs if read_run(run).config.get("dim") == 3]
    write_page(
        list(runs),
        output,
        title="asterism: " + ", ".join(run.name for run in runs),
        sphere=spheres[0] if spheres else None,
    )
    print(f"written: {output}")


def train(arguments: list[str]) -> int:
    """Train a classifier into a run folder. Flags are those of TrainConfig; a method's own options are --method.NAME VALUE.

    --config FILE asks for what another run was asked for (its config.json), changed by the other flags; what that run filled in by
    itself (--dim, --lr, ...) is filled in anew, and options of another method are left out.
    --quiet shows nothing, --json prints the result as one object.

    asterism train --data cifar100 --backbone resnet32 --dim 50 --epochs 30

    asterism train --data folder:photos --method dl2pa --method.window 50
    """
    from asterism.runs import TrainConfig
    from asterism.training.loop import train as run

    default, rest, options = TrainConfig(), [], {}
    quiet, as_json = False, False
    queue = list(arguments)
    while queue:
        word = queue.pop(0)
        if word in ("--quiet", "--json"):
            quiet, as_json = quiet or word == "--quiet", as_json or word == "--json"
        elif word == "--config" or word.startswith("--method."):
            name, _, value = word.partition("=")
            if not value and not queue:
                raise UsageError(f"{name} wants a value")
            value = value or queue.pop(0)
            if name == "--config":
                default = TrainConfig.load(value, asked=True)
            else:
                options[name.removeprefix("--method.").replace("-", "_")] = value
        else:
            rest.append(word)
    config = tyro.cli(
        TrainConfig,
        prog="asterism train",
        description=inspect.cleandoc(train.__doc__ or "") + "\n\n" + _method_options(),
        args=rest,
        default=replace(default, method_options={}),
    )
    config = with_options(config, default.method_options if config.method == default.method else {}, options)
    result = run(config, quiet=quiet or as_json)
    if as_json:
        print(dumps({**asdict(result), "run_dir": str(result.run_dir)}))
    elif not quiet:
        print(f"{result}  ({result.run_dir})")
    return 1 if result.interrupted else 0


def _method_options() -> str:
    """What --method.NAME may name, for the help."""
    from asterism.methods import METHODS

    rows: dict[str, list[str]] = {}
    for method, row in METHODS.items():
        names = ", ".join(f.name for f in fields(row.options))
        rows.setdefault(names or "no options", []).append(method)
    return "\n\n".join(f"{', '.join(methods)}: {names}" for names, methods in rows.items())


def with_options(config: Any, kept: dict[str, Any], options: dict[str, str]) -> Any:
    """The config with `kept` options and --method.x flags, which are read by the types of the method's own options."""
    from asterism.methods import resolve

    try:
        current = resolve(config.method, kept)
        known = {f.name: f for f in fields(current)}
        changes: dict[str, Any] = dict(kept)
        for name, text in options.items():
            if name not in known:
                resolve(config.method, {name: text})  # raises, naming the nearest
            kind = str(known[name].type)
            changes[name] = _value(f"--method.{name}", text, kind)
        return replace(config, method_options=changes)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _value(flag: str, text: str, kind: str) -> Any:
    if "None" in kind and text.lower() == "none":
        return None
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise UsageError(f"{flag} came as {text!r}, must be true or false")
        return text.lower() == "true"
    for name, convert in (("int", int), ("float", float)):
        if kind.startswith(name):
            try:
                return convert(text)
            except ValueError:
                raise UsageError(f"{flag} came as {text!r}, must be a number") from None
    return text


def describe_path(path: Path) -> dict[str, Any]:
    from asterism import files
    from asterism.prototypes import Prototypes
    from asterism.runs import Checkpoint

    if path.is_dir():
        if not (path / "config.json").exists():
            raise ValueError(
                f"{path} is no run folder: it has no config.json; give a run, a checkpoint or a file of prototypes"
            )
        load = lambda name: files.read_json(path / name) if (path / name).exists() else {}  # noqa: E731
        config, run, result = load("config.json"), load("run.json"), load("result.json")
        return {
            "run": str(path),
            "data": config["data"],
            "method": config["method"],
            "backbone": config["backbone"],
            "dim": config["dim"],
            "classes": len(run.get("data", {}).get("names", [])) or "unknown: it has no run.json",
            "epochs": config["epochs"],
            "accuracy": result.get("accuracy", "not finished"),
            "checkpoints": sorted(f.name for f in path.glob("*.safetensors")),
            "commit": run.get("commit"),
            "versions": run.get("versions"),
        }
    tensors, _ = files.read_tensors(path)
    if "points" in tensors:
        return {"prototypes": str(path), **Prototypes.load(path).receipt()}
    checkpoint = Checkpoint.load(path)
    return {
        "checkpoint": str(path),
        "epoch": checkpoint.progress.epoch,
        "step": checkpoint.progress.step,
        "method": checkpoint.config.method,
        "backbone": checkpoint.config.backbone,
        "classes": checkpoint.info.num_classes,
        "temperature": checkpoint.progress.temperature,
        "tensors": len(tensors),
        "numbers": sum(t.numel() for t in tensors.values()),
    }


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "prototypes": prototypes,
    "assign": assign,
    "info": info,
    "report": report,
}


def usage() -> str:
    lines = [f"  {name:12} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    return (
        "asterism: fixed stars, moving labels\n\nusage: asterism COMMAND ...   (asterism COMMAND --help tells more)\n\n"
        + "\n".join(lines)
        + "\n\nexample: asterism train --data digits --backbone mlp --epochs 5\n"
    )


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from asterism import __version__

        print(__version__)
        return 0
    name, rest = arguments[0], arguments[1:]
    format_before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"asterism {name}: {message}\n"
    try:
        if name not in COMMANDS:
            raise UsageError(str(unknown("command", name, COMMANDS)))
        if name == "train":
            return train(rest)
        done = tyro.cli(
            COMMANDS[name],
            prog=f"asterism {name}",
            description=inspect.cleandoc(COMMANDS[name].__doc__ or ""),
            args=rest,
        )
        return done or 0
    except UsageError as error:
        print(f"asterism {name}: {error}", file=sys.stderr)
        return 2
    except (ValueError, OSError, FloatingPointError, ImportError, RuntimeError) as error:
        print(f"asterism {name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"asterism {name}: stopped", file=sys.stderr)
        return 1
    finally:
        warnings.formatwarning = format_before
