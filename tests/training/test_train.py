import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

import asterism
from asterism import Predictor, TrainConfig, files, train
from asterism.data import Dataset, Split, load_data
from asterism.methods import METHODS
from asterism.runs import Checkpoint, DataInfo, Model
from asterism.training import loop
from asterism.training.loop import learning_rate

SMALL = {"data": "digits", "backbone": "mlp", "width": 2, "epochs": 3, "batch_size": 64, "precision": "32"}


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


def config(folder, **changes):
    return TrainConfig(**{**SMALL, "run_dir": str(folder), **changes})


def tensors_of(folder, name="last"):
    return Checkpoint.load(folder / f"{name}.safetensors").tensors


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_a_run_learns_and_describes_itself(tmp_path, digits):
    result = train(config(tmp_path / "run"), data=digits, quiet=True)
    assert result.accuracy > 0.9
    assert not result.interrupted
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "config.json",
        "run.json",
        "metrics.csv",
        "map.jsonl",
        "result.json",
        "tensorboard",
        "last.safetensors",
        "best.safetensors",
    }
    rows = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert len(rows) == 4
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["counts"] == {"train": len(digits.train), "val": len(digits.val), "test": len(digits.test)}
    assert {"torch", "asterism", "numpy"} <= run["versions"].keys()
    assert len(run["prototypes"]["checksum"]) == 64
    assert json.loads((tmp_path / "run" / "result.json").read_text())["accuracy"] == result.accuracy
    resolved = TrainConfig.load(tmp_path / "run" / "config.json")
    assert (resolved.dim, resolved.lr, resolved.batch_norm) == (10, 0.2, True)


def test_the_map_file_leads_to_the_map_that_was_saved(tmp_path, digits):
    train(config(tmp_path / "run", dim=3, reassign_every="5ba"), data=digits, quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "run" / "map.jsonl").read_text().splitlines()]
    order = torch.empty(10, dtype=torch.int64)
    for line in lines:
        order[line["labels"]] = torch.tensor(line["stars"], dtype=torch.int64)
    assert torch.equal(order, tensors_of(tmp_path / "run")["model.method.head.assignment"])
    assert len(lines) == 1 + 60 // 5
    assert sum(line["moved"] for line in lines[1:]) > 0
    assert all(line["moved"] == len(line["labels"]) for line in lines[1:])


@pytest.mark.parametrize("method", [m for m in METHODS if m != "etf"] + ["etf"])
def test_every_method_trains_saves_resumes_and_predicts(tmp_path, digits, method):
    whole = train(config(tmp_path / "whole", method=method, dim=9, epochs=2), data=digits, quiet=True)
    stopped = StopAfter(1 + 20)  # one step into the second epoch
    part = config(tmp_path / "part", method=method, dim=9, epochs=2)
    with stopped:
        assert train(part, data=digits, quiet=True).interrupted
    resumed = train(TrainConfig(run_dir=str(tmp_path / "part"), resume=True), data=digits, quiet=True)
    assert resumed.accuracy == whole.accuracy
    assert same(tensors_of(tmp_path / "whole"), tensors_of(tmp_path / "part"))
    said = Predictor.load(tmp_path / "part").predict(digits.test.inputs)
    assert (said.indices == digits.test.labels).double().mean().item() == pytest.approx(whole.accuracy, abs=1e-9)


class StopAfter:
    """Asks a run to stop, as Ctrl-C does, once it has done so many steps."""

    def __init__(self, steps):
        self.steps = steps

    def __enter__(self):
        self.real, calls = loop.after_step, [0]

        def counting(*arguments):
            self.real(*arguments)
            calls[0] += 1
            if calls[0] == self.steps:
                os.kill(os.getpid(), signal.SIGINT)

        loop.after_step = counting

    def __exit__(self, *error):
        loop.after_step = self.real


@pytest.mark.parametrize("steps", [1, 7, 20, 33, 40])
def test_resuming_anywhere_gives_the_same_bits(tmp_path, digits, steps):
    """With AdamW, clipping, mixing, erasing, a map that moves within the epoch, and records that go on."""
    options = {
        "optimizer": "adamw",
        "clip": 1.0,
        "mixup": 0.5,
        "cutmix": 1.0,
        "erasing": 0.3,
        "reassign_every": "9ba",
        "crop": 1,
        "dim": 4,
        "backbone": "resnet8",
        "width": 4,
        "image_size": None,
    }
    train(config(tmp_path / "whole", **options), data=digits, quiet=True)
    with StopAfter(steps):
        assert train(config(tmp_path / "part", **options), data=digits, quiet=True).interrupted
    train(TrainConfig(run_dir=str(tmp_path / "part"), resume=True), data=digits, quiet=True)
    assert same(tensors_of(tmp_path / "whole"), tensors_of(tmp_path / "part"))
    assert same(tensors_of(tmp_path / "whole", "best"), tensors_of(tmp_path / "part", "best"))

    def maps(name):
        lines = [json.loads(line) for line in (tmp_path / name / "map.jsonl").read_text().splitlines()]
        return [{k: v for k, v in line.items() if k != "assign_seconds"} for line in lines]

    def metrics(name):
        rows = [line.split(",") for line in (tmp_path / name / "metrics.csv").read_text().splitlines()]
        timed = [rows[0].index(k) for k in ("images_per_second", "assign_seconds", "accuracy")]
        return [[float(v) if v[:1].isdigit() else v for i, v in enumerate(r) if i not in timed] for r in rows]

    assert maps("whole") == maps("part")
    assert metrics("whole") == metrics("part")


def test_the_same_seed_gives_the_same_bits_and_the_global_generator_is_left_alone(tmp_path, digits):
    before = torch.random.get_rng_state()
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(config(tmp_path / name, epochs=1, seed=seed), data=digits, quiet=True)
    assert torch.equal(before, torch.random.get_rng_state())
    assert same(tensors_of(tmp_path / "a"), tensors_of(tmp_path / "b"))
    assert not same(tensors_of(tmp_path / "a"), tensors_of(tmp_path / "c"))


def test_ctrl_c_and_sigterm_in_a_real_process(tmp_path):
    for number in (signal.SIGINT, signal.SIGTERM):
        folder = tmp_path / number.name
        command = [
            sys.executable,
            "-m",
            "asterism",
            "train",
            "--data",
            "digits",
            "--backbone",
            "mlp",
            "--epochs",
            "5000",
            "--batch-size",
            "64",
            "--run-dir",
            str(folder),
        ]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not (folder / "last.safetensors").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == 1
        assert f"asterism train --run-dir {folder} --resume" in errors
        assert Checkpoint.load(folder / "last.safetensors").progress.epoch >= 1


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_from_the_beginning(tmp_path, digits):
    whole = train(config(tmp_path / "whole"), data=digits, quiet=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "batch_loss", lambda *_: (_ for _ in ()).throw(MemoryError("killed")))
        with pytest.raises(MemoryError):
            train(config(tmp_path / "part"), data=digits, quiet=True)
    assert (tmp_path / "part" / "config.json").exists()
    assert train(config(tmp_path / "part", resume=True), data=digits, quiet=True).accuracy == whole.accuracy
    assert same(tensors_of(tmp_path / "whole"), tensors_of(tmp_path / "part"))


def test_resuming_an_empty_folder_starts_from_the_beginning(tmp_path, digits):
    assert train(config(tmp_path / "new", resume=True, epochs=1), data=digits, quiet=True).accuracy > 0.5


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path, digits):
    train(config(tmp_path / "run", epochs=1), data=digits, quiet=True)
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file()}
    with pytest.raises(ValueError, match=r"already holds a run: go on with --resume, or give another --run-dir"):
        train(config(tmp_path / "run"), data=digits, quiet=True)
    with pytest.raises(ValueError, match=r"lr came as 0.5, the run in .* was started with 0.2"):
        train(config(tmp_path / "run", epochs=1, resume=True, lr=0.5), data=digits, quiet=True)
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file()} == before


def test_a_copied_run_goes_on_in_its_own_folder(tmp_path, digits):
    with StopAfter(25):
        train(config(tmp_path / "a"), data=digits, quiet=True)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    before = {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir() if p.is_file()}
    train(TrainConfig(run_dir=str(tmp_path / "b"), resume=True), data=digits, quiet=True)
    assert {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir() if p.is_file()} == before
    assert (tmp_path / "b" / "result.json").exists()


def test_other_data_is_refused_on_resuming(tmp_path, digits):
    with StopAfter(25):
        train(config(tmp_path / "run"), data=digits, quiet=True)
    fewer = Dataset("fewer", digits.train.take(torch.arange(500)), digits.val, digits.test, digits.names)
    with pytest.raises(ValueError, match="not what the run was started on"):
        train(TrainConfig(run_dir=str(tmp_path / "run"), resume=True), data=fewer, quiet=True)


def test_resuming_a_finished_run_changes_nothing(tmp_path, digits):
    result = train(config(tmp_path / "run", epochs=1), data=digits, quiet=True)
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file()}
    assert train(config(tmp_path / "run", epochs=1, resume=True), quiet=True) == result
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file()} == before


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda b: b[:-100], "truncated"),
        (lambda b: b[:-1] + bytes([b[-1] ^ 1]), "altered"),
        (lambda b: b"x", "truncated"),
        (lambda b: b.replace(b"temperature", b"temperatura"), "altered"),
    ],
)
def test_a_spoilt_checkpoint_is_refused(tmp_path, digits, spoil, message):
    with StopAfter(25):
        train(config(tmp_path / "run"), data=digits, quiet=True)
    path = tmp_path / "run" / "last.safetensors"
    path.write_bytes(spoil(path.read_bytes()))
    spoilt = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        train(config(tmp_path / "run", resume=True), data=digits, quiet=True)
    with pytest.raises(ValueError, match=message):
        Predictor.load(tmp_path / "run")
    assert path.read_bytes() == spoilt


def test_a_checkpoint_of_another_shape_is_refused(tmp_path, digits):
    train(config(tmp_path / "run", epochs=1), data=digits, quiet=True)
    checkpoint = Checkpoint.load(tmp_path / "run" / "last.safetensors")
    wide = Model(TrainConfig.from_dict({**vars(checkpoint.config), "width": 3}), checkpoint.info)
    before = {k: v.clone() for k, v in wide.state_dict().items()}
    with pytest.raises(ValueError, match="saved by another configuration"):
        checkpoint.restore(wide)
    assert same(before, wide.state_dict())


def test_a_checkpoint_with_other_tensors_or_of_another_version_is_refused(tmp_path, digits):
    train(config(tmp_path / "run", epochs=1), data=digits, quiet=True)
    path = tmp_path / "run" / "last.safetensors"
    tensors, header = files.read_tensors(path)
    gone = {k: v for k, v in tensors.items() if k != "model.method.head.assignment"}
    for changed, header_changed, message in (
        (gone, header, "for method.head.assignment it holds nothing"),
        ({**tensors, "model.more": torch.ones(2)}, header, r"for more it holds \(2,\), the model nothing"),
        ({k: v for k, v in tensors.items() if k != "means.known"}, header, "known are missing"),
        (tensors, {**header, "progress": {"epochs": 3}}, "of another version"),
        (tensors, {k: v for k, v in header.items() if k != "data"}, "of another version"),
    ):
        files.write_tensors(path, changed, header_changed)
        with pytest.raises(ValueError, match=message):
            Predictor.load(path)


def test_a_run_that_died_over_a_line_of_its_map_goes_on(tmp_path, digits):
    whole = train(config(tmp_path / "whole", dim=3), data=digits, quiet=True)
    with StopAfter(25):
        train(config(tmp_path / "part", dim=3), data=digits, quiet=True)
    with open(tmp_path / "part" / "map.jsonl", "a") as file:
        file.write('{"epoch": 2, "ste')
    assert (
        train(TrainConfig(run_dir=str(tmp_path / "part"), resume=True), data=digits, quiet=True).accuracy
        == whole.accuracy
    )
    lines = [(tmp_path / name / "map.jsonl").read_text().splitlines() for name in ("whole", "part")]
    assert [json.loads(line)["labels"] for line in lines[0]] == [json.loads(line)["labels"] for line in lines[1]]


@pytest.mark.parametrize("name", ["metrics.csv", "map.jsonl"])
def test_a_spoilt_record_is_refused(tmp_path, digits, name):
    with StopAfter(25):
        train(config(tmp_path / "run"), data=digits, quiet=True)
    (tmp_path / "run" / name).write_text("garbage\n1,2\n")
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file()}
    with pytest.raises(ValueError, match=r"metrics.csv or map.jsonl is not what a run wrote .* restore it"):
        train(TrainConfig(run_dir=str(tmp_path / "run"), resume=True), data=digits, quiet=True)
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file()} == before


def test_a_loss_that_is_not_finite_at_once_promises_nothing(tmp_path, digits):
    with pytest.raises(
        FloatingPointError, match=r"the loss is nan at step \d+ of epoch 1 .*: nothing was saved yet; .*lower --lr"
    ):
        train(config(tmp_path / "run", lr=1e30), data=digits, quiet=True)


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_state(tmp_path, digits):
    real, calls = loop.batch_loss, [0]

    def diverging(*arguments):
        calls[0] += 1
        return real(*arguments) * (torch.nan if calls[0] >= 27 else 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "batch_loss", diverging)
        with pytest.raises(FloatingPointError, match=r"the loss is nan at step 7 of epoch 2 \(step 27 of the run\)"):
            train(config(tmp_path / "run", reassign_every="3ba"), data=digits, quiet=True)
    checkpoint = Checkpoint.load(tmp_path / "run" / "last.safetensors")
    assert checkpoint.progress.epoch == 1
    assert all(t.isfinite().all() for t in checkpoint.tensors.values())


def test_what_is_scored_is_what_is_saved(tmp_path, digits):
    """The validation accuracy of the record is that of the checkpoint, re-assignment included."""
    from asterism.data.augment import Augment, Batches
    from asterism.training.metrics import evaluate

    train(config(tmp_path / "run", epochs=1, dim=3, reassign_every="20ba"), data=digits, quiet=True)
    checkpoint = Checkpoint.load(tmp_path / "run" / "last.safetensors")
    val = Batches(digits.val, checkpoint.info.mean, checkpoint.info.deviation, torch.device("cpu"), Augment(), 0)
    row = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    recorded = dict(zip(row[0].split(","), row[1].split(","), strict=True))
    assert evaluate(checkpoint.model(), val).accuracy == pytest.approx(float(recorded["val_accuracy"]), abs=1e-12)


def test_a_class_with_one_image_trains_with_a_warning(tmp_path):
    x = torch.randint(0, 256, (41, 8, 8, 1), dtype=torch.uint8)
    labels = torch.cat([torch.arange(4).repeat_interleave(10), torch.tensor([4])])
    folder = tmp_path / "features.npz"
    import numpy as np

    np.savez(folder, features=x.flatten(1).float().numpy(), labels=labels.numpy())
    with pytest.warns(UserWarning, match="1 classes have a single training image, the first is '4'"):
        result = train(config(tmp_path / "run", data=f"features:{folder}", batch_size=8, epochs=1), quiet=True)
    assert result.epochs == 1


def test_without_validation_data(tmp_path, digits):
    train_split = Split(digits.train.inputs, digits.train.labels)
    empty = Split(digits.val.inputs[:0], digits.val.labels[:0])
    data = Dataset("own", train_split, empty, digits.test, digits.names)
    result = train(config(tmp_path / "run", epochs=1), data=data, quiet=True)
    assert result.accuracy > 0.5
    assert result.temperature == 1
    assert result.val_accuracy is None
    assert "NaN" not in (tmp_path / "run" / "result.json").read_text()


def test_users_own_backbone_and_bf16(tmp_path, digits, monkeypatch):
    (tmp_path / "mynet.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.Flatten(), "
        "torch.nn.Linear(64, 32), torch.nn.Dropout(0.1))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = train(config(tmp_path / "run", backbone="mynet:build", precision="bf16"), data=digits, quiet=True)
    assert result.accuracy > 0.8
    for wrong in ("mynet:nothing", "nomodule:build"):
        with pytest.raises(ValueError, match="importable from here"):
            train(config(tmp_path / "wrong", backbone=wrong), data=digits, quiet=True)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"method": "asterisk"}, "did you mean 'asterism'"),
        ({"method_options": {"scal": 3}}, "did you mean 'scale'"),
        ({"method": "psc-linear", "method_options": {"scale": 3}}, "has no options"),
        ({"optimizer": "adam"}, "did you mean 'adamw'"),
        ({"reassign_every": "2"}, "as 1ep or 500ba"),
        ({"reassign_every": "0ep"}, "as 1ep or 500ba"),
        ({"epochs": 0}, "epochs came as 0, must be at least 1"),
        ({"lr": -1.0}, "lr came as -1.0"),
        ({"validation": 1.0}, "validation came as 1.0"),
        ({"epochs": "3"}, "epochs came as '3', must be an integer"),
        ({"epochs": None}, "epochs came as None, must be an integer"),
        ({"batch_size": 2.5}, "batch_size came as 2.5, must be an integer"),
        ({"seed": True}, "seed came as True, must be an integer"),
        ({"lr": "x"}, "lr came as 'x', must be a finite number or None"),
        ({"lr": float("inf")}, "lr came as inf, must be a finite number or None"),
        ({"clip": float("nan")}, "clip came as nan"),
        ({"skip_broken": 1}, "skip_broken came as 1, must be True or False"),
        ({"data": None}, "data came as None, must be text"),
        ({"data_root": 3}, "data_root came as 3, must be text or None"),
        ({"milestones": [0.5]}, r"milestones came as \[0.5\], must be a tuple, each part a finite number"),
        ({"milestones": (0.5, "x")}, "milestones came as .* must be a tuple, each part a finite number"),
        ({"milestones": (30.0, 60.0)}, "must be shares of the run"),
        ({"method": 3}, "method came as 3, must be text"),
        ({"method_options": [("scale", 3)]}, "method_options came as .* must be a dict"),
        ({"method_options": {"scale": "6"}}, "method asterism: scale came as '6', must be a finite number or None"),
        ({"method_options": {"dynamic": 1}}, "dynamic came as 1, must be True or False"),
    ],
)
def test_a_config_that_makes_no_sense(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**{**SMALL, **changes})


def test_every_field_of_a_config_is_checked():
    """A thing that no field can hold is refused for each of them, by name."""
    from dataclasses import fields

    for f in fields(TrainConfig):
        with pytest.raises(ValueError, match=f"TrainConfig: {f.name} came as <object"):
            TrainConfig(**{**SMALL, f.name: object()})


def test_paths_and_whole_numbers_are_fine(tmp_path):
    settings = TrainConfig(run_dir=tmp_path, data_root=tmp_path, lr=1, method_options={"scale": 6})
    assert (settings.run_dir, settings.data_root) == (str(tmp_path), str(tmp_path))
    assert settings.lr == 1


@pytest.mark.parametrize("text, message", [("[1]", "holds a list"), ("3", "holds a int"), ("{", "is no JSON")])
def test_a_file_that_is_no_config(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        TrainConfig.load(tmp_path / "config.json")


def test_unknown_keys_and_names_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="unknown key of TrainConfig 'epoch': did you mean 'epochs'"):
        TrainConfig.from_dict({"epoch": 3})
    for changes, message in (({"data": "cifar"}, "did you mean 'cifar10'"), ({"backbone": "resnet9"}, "did you mean")):
        with pytest.raises(ValueError, match=message):
            train(TrainConfig(**{**SMALL, **changes, "run_dir": str(tmp_path / "run")}), quiet=True)
        assert not list(tmp_path.glob("run/*.safetensors"))
    with pytest.raises(ValueError, match="simplex of 10 classes needs 9 dimensions, came 5"):
        train(config(tmp_path / "etf", method="etf", dim=5), quiet=True)


def test_a_failed_start_leaves_no_run_behind(tmp_path, digits):
    with pytest.raises(ValueError, match="simplex"):
        train(config(tmp_path / "run", method="etf", dim=5), data=digits, quiet=True)
    assert train(config(tmp_path / "run", epochs=1), data=digits, quiet=True).epochs == 1


def test_config_round_trip(tmp_path, digits):
    train(config(tmp_path / "a", epochs=1, method_options={"scale": 7.0}, milestones=(0.3,)), data=digits, quiet=True)
    again = TrainConfig.load(tmp_path / "a" / "config.json")
    assert again.method_options["scale"] == 7.0
    assert again.milestones == (0.3,)
    from dataclasses import replace

    train(replace(again, run_dir=str(tmp_path / "b")), data=digits, quiet=True)
    assert same(tensors_of(tmp_path / "a"), tensors_of(tmp_path / "b"))


@pytest.mark.parametrize(
    "schedule, at",
    [
        ("one-cycle", {0: 0.04, 20: 1.0, 60: 0.5, 100: 0.0}),
        ("cosine", {10: 1.0, 55: 0.5, 100: 0.0}),
        ("steps", {10: 1.0, 46: 0.1, 82: 0.01}),
        ("constant", {0: 1 / 11, 10: 1.0, 99: 1.0}),
    ],
)
def test_schedules(schedule, at):
    settings = TrainConfig(lr=1.0, schedule=schedule, warmup=0 if schedule == "one-cycle" else 1)
    for step, expected in at.items():
        assert learning_rate(settings, step, 100, 10) == pytest.approx(expected, abs=1e-9)


def test_learned_and_fixed_heads_start_from_the_same_backbone():
    info = DataInfo((8, 8, 1), [str(i) for i in range(10)], [0.0], [1.0])
    a, b = (
        Model(TrainConfig(**{**SMALL, "method": m, "dim": 5, "batch_norm": True}), info)
        for m in ("asterism", "psc-scaled")
    )
    assert same(a.embedder.state_dict(), b.embedder.state_dict())


def test_public_names_that_load_late():
    assert asterism.train is train
    assert asterism.TrainConfig is TrainConfig
