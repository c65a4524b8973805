import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from asterism import Prototypes, make_prototypes
from asterism.cli import COMMANDS, main
from asterism.sphere import unit


def run(capsys, *arguments, code=0):
    """The command in this process: its exit code is checked, its output returned."""
    try:
        got = main([str(a) for a in arguments])
    except SystemExit as stop:  # tyro's own, after --help or a usage error
        got = stop.code
    captured = capsys.readouterr()
    assert got == code, captured.err
    return captured.out if code == 0 else captured.err


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert (
        main(
            [
                "train",
                "--data",
                "digits",
                "--backbone",
                "mlp",
                "--width",
                "2",
                "--epochs",
                "2",
                "--batch-size",
                "64",
                "--method.scale",
                "6",
                "--run-dir",
                str(folder),
                "--quiet",
            ]
        )
        == 0
    )
    return folder


def test_help_of_everything_names_an_example(capsys):
    assert all(name in run(capsys, "--help") for name in COMMANDS)
    for name in COMMANDS:
        assert f"asterism {name}" in run(capsys, name, "--help").split("Examples:")[-1]
    assert run(capsys, "--version").strip() == "0.1.0"


def test_help_of_train_names_the_options_of_each_method(capsys):
    text = " ".join(run(capsys, "train", "--help").split())
    assert "asterism: loss, dynamic, scale, loss_scale, stars, window" in text
    assert "psc-linear: no options" in text


def test_a_split_without_samples_is_refused(capsys, tmp_path):
    np.savez(tmp_path / "f.npz", features=np.random.default_rng(0).standard_normal((40, 5)), labels=np.arange(40) % 4)
    data = ["--data", f"features:{tmp_path / 'f.npz'}", "--backbone", "mlp", "--width", "1", "--validation", "0"]
    run(capsys, "train", *data, "--epochs", 1, "--batch-size", 8, "--run-dir", tmp_path / "a run", "--quiet")
    assert "has no val samples" in run(capsys, "evaluate", tmp_path / "a run", "--split", "val", "--json", code=1)


def test_what_does_not_work_yet_is_not_shown(capsys):
    text = run(capsys, "--help")
    assert not any(word in text for word in ("reproduce", "export", "serve"))


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "asterism", "prototypes", "-c", "6", "-d", "3", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["optimal"] is True


def test_prototypes(capsys, tmp_path):
    text = run(capsys, "prototypes", "-c", 20, "-d", 4, "-o", tmp_path / "s.safetensors", "--plot", tmp_path / "s.png")
    stars = Prototypes.load(tmp_path / "s.safetensors")
    assert text.startswith(str(stars))
    assert len(text.splitlines()) > 8  # the histogram
    with Image.open(tmp_path / "s.png") as picture:
        assert picture.size[0] > 300
    receipt = json.loads(run(capsys, "prototypes", "-c", 20, "-d", 4, "--json"))
    assert receipt["max_cosine"] == stars.max_cosine
    assert receipt["checksum"] == stars.checksum
    paper = json.loads(
        run(capsys, "prototypes", "-c", 20, "-d", 4, "--kind", "gaussian-potential", "--subset", 5, "--json")
    )
    assert paper["construction"] == "gaussian-potential"


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "parquet"])
def test_assign(capsys, tmp_path, suffix):
    stars = make_prototypes(6, 4)
    wish = torch.tensor([4, 0, 5, 2])
    rows = stars.points[wish]
    means, table = tmp_path / f"means.{suffix}", tmp_path / f"stars.{suffix}"
    if suffix == "npz":
        np.savez(means, means=rows.numpy())
        np.savez(table, stars.points.numpy())
    elif suffix == "safetensors":
        from safetensors.torch import save_file

        save_file({"means": rows.contiguous()}, means)
        stars.save(table)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"mean": rows.tolist()}), means)
        pq.write_table(pa.table({f"x{k}": stars.points[:, k].numpy() for k in range(4)}), table)
    text = run(capsys, "assign", means, table, "-o", tmp_path / f"order.{suffix}")
    assert "4 labels on 6 stars, mean cosine 1.000, exact" in text
    assert json.loads(run(capsys, "assign", means, table, "--json"))["order"] == wish.tolist()
    if suffix == "npz":
        assert np.load(tmp_path / "order.npz")["order"].tolist() == wish.tolist()


def test_train_evaluate_predict_info_report(capsys, digits_run, tmp_path):
    result = json.loads((digits_run / "result.json").read_text())
    found = json.loads(run(capsys, "evaluate", digits_run, "--json"))
    assert found["accuracy"] == pytest.approx(result["accuracy"], abs=1e-12)
    assert found["count"] == 359
    assert json.loads(run(capsys, "evaluate", digits_run, "--split", "val", "--best", "--json"))["count"] == 143
    assert "test accuracy" in run(capsys, "evaluate", digits_run)
    assert json.loads((digits_run / "config.json").read_text())["method_options"]["scale"] == 6.0

    for i in range(2):
        Image.fromarray(np.full((16, 16), 99 * i, np.uint8)).save(tmp_path / f"{i}.png")
    images = [tmp_path / "0.png", tmp_path / "1.png"]
    said = json.loads(run(capsys, "predict", digits_run, *images, "--json"))
    assert [s["image"] for s in said] == [str(i) for i in images]
    assert said[0]["label"] in run(capsys, "predict", digits_run, images[0])

    assert "digits" in run(capsys, "info", digits_run)
    assert json.loads(run(capsys, "info", digits_run / "last.safetensors", "--json"))["epoch"] == 2
    run(capsys, "report", digits_run, "-o", tmp_path / "page.html")
    assert f"{result['accuracy']:.1%}"[:3] in (tmp_path / "page.html").read_text()


def test_config_goes_in_again(capsys, digits_run, tmp_path):
    run(
        capsys,
        "train",
        "--config",
        digits_run / "config.json",
        "--run-dir",
        tmp_path / "again",
        "--epochs",
        1,
        "--quiet",
    )
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert (config["epochs"], config["batch_size"], config["method_options"]["scale"]) == (1, 64, 6.0)


def test_another_runs_config_with_another_method(tmp_path, monkeypatch):
    """Typed values stay, what the first run filled in suits the new method, options of the old one are gone."""
    monkeypatch.chdir(tmp_path)

    def started(*arguments, name, own_process=False):
        arguments = ["train", *arguments, "--run-dir", name, "--quiet"]
        if own_process:
            subprocess.run([sys.executable, "-m", "asterism", *arguments], check=True)
        else:
            assert main(arguments) == 0
        return json.loads((tmp_path / name / "config.json").read_text())

    small = ["--data", "digits", "--backbone", "mlp", "--width", "1", "--epochs", "1", "--weight-decay", "0.001"]
    a = started(*small, "--method.scale", "6", name="a")
    assert (a["dim"], a["batch_norm"], a["lr"], a["method_options"]["scale"]) == (10, True, 0.2, 6.0)

    other = ["--config", "a/config.json", "--method", "psc-linear", "--optimizer", "adamw"]
    linear = started(*other, name="b", own_process=True)
    assert (linear["dim"], linear["batch_norm"], linear["lr"], linear["method_options"]) == (None, False, 0.002, {})
    assert (linear["data"], linear["width"], linear["weight_decay"]) == ("digits", 1, 0.001)

    paper = started("--config", "a/config.json", "--method=dl2pa", "--method.window", "50", "--dim", "10", name="c")
    options = paper["method_options"]
    assert (options["loss"], options["loss_scale"], options["scale"], options["window"]) == ("ipm", 10.0, None, 50.0)

    back = started("--config", "b/config.json", "--method", "asterism", "--optimizer", "sgd", name="d")
    assert {**a, "method_options": None, "run_dir": None} == {**back, "method_options": None, "run_dir": None}

    edited = {**a, "lr": 0.05, "dim": 9}
    (tmp_path / "mine.json").write_text(json.dumps(edited))
    mine = started("--config", "mine.json", name="e")
    assert (mine["lr"], mine["dim"], mine["batch_norm"], mine["method_options"]["scale"]) == (0.05, 9, True, 6.0)


def test_a_config_of_a_run_without_a_folder_name_finds_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["--data", "digits", "--backbone", "mlp", "--width", "1", "--epochs", "1", "--quiet"]
    assert main(["train", *small]) == 0
    assert main(["train", "--config", "runs/digits-asterism-seed0/config.json", "--seed", "1", "--quiet"]) == 0
    assert (tmp_path / "runs" / "digits-asterism-seed1" / "result.json").exists()


def test_a_backbone_in_the_current_folder(tmp_path):
    """From the console script, whose own folder stands first on Python's path; then from a Predictor in a script elsewhere."""
    elsewhere, project = tmp_path / "bin", tmp_path / "project"
    elsewhere.mkdir(), (project / "nets").mkdir(parents=True)
    (elsewhere / "asterism").write_text("import sys\nfrom asterism.cli import main\nsys.exit(main())\n")
    (elsewhere / "ask.py").write_text(
        "import sys, torch\nfrom asterism import Predictor\nprint(sys.path[0])\nbefore = list(sys.path)\n"
        "print(len(Predictor.load('run').predict(torch.zeros(2, 8, 8, 1)).labels), sys.path == before)\n"
    )
    (project / "nets" / "small.py").write_text(
        "def build():\n    from torch import nn\n    from nets import width\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, width.WIDTH), nn.ReLU())\n"
    )
    (project / "nets" / "width.py").write_text("WIDTH = 7\n")

    def python(*arguments):
        done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, cwd=project)
        assert done.returncode == 0, done.stderr
        return done.stdout

    flags = ["--data", "digits", "--backbone", "nets.small:build", "--epochs", "1", "--run-dir", "run", "--quiet"]
    python(elsewhere / "asterism", "train", *flags)
    assert json.loads(python("-m", "asterism", "evaluate", "run", "--json"))["count"] == 359
    assert python(elsewhere / "ask.py").split() == [str(elsewhere), "2", "True"]


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["trian"], 2, "did you mean 'train'"),
        (["train", "--epohcs", "3"], 2, "--epochs"),
        (["train", "--method", "asterisk"], 2, "did you mean"),
        (["train", "--data", "digits", "--method.scal", "3"], 2, "did you mean 'scale'"),
        (["train", "--data", "digits", "--method.scale", "x"], 2, "must be a number"),
        (["train", "--data", "digits", "--epochs", "0"], 2, "at least 1"),
        (["train", "--data", "digit"], 1, "did you mean 'digits'"),
        (["train", "--data", "digits", "--backbone", "nonet:build"], 1, "importable from here ("),
        (["train", "--data", "digits", "--backbone", ":build"], 1, "write module.path:function"),
        (["train", "--config", "none.json"], 1, "none.json"),
        (["prototypes", "-c", "5"], 2, "--dim"),
        (["prototypes", "-c", "1", "-d", "3"], 1, "at least 2"),
        (["predict", "none", "x.png"], 1, "it is no run folder"),
        (["evaluate", "none"], 1, "it is no run folder"),
        (["info", "none"], 1, "no such file"),
        (["assign", "a.npz", "b.npz"], 1, "a.npz: no such file"),
        (["report"], 2, "report: no run came"),
        (["train", "--config"], 2, "train: --config wants a value"),
        (["train", "--data", "digits", "--image-size", "0"], 2, "at least 1, or None"),
        (["train", "--data", "glyphs", "--num-classes", "1"], 2, "at least 2, or None"),
        (["prototypes", "-c", "5", "-d", "3", "-o", "stars.npz"], 2, "must end in .safetensors"),
    ],
)
def test_what_goes_wrong_is_said(capsys, tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    assert message in " ".join(run(capsys, *arguments, code=code).split())
    assert list(tmp_path.rglob("*")) == []


def test_warnings_are_sentences_and_a_run_without_validation_says_so(tmp_path):
    for name, count in (("a", 4), ("b", 1)):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(np.full((8, 8), 40 * i, np.uint8)).save(tmp_path / "data" / name / f"{i}.png")
    small = ["--backbone", "mlp", "--width", "1", "--epochs", "1", "--batch-size", "2", "--image-size", "8"]
    command = ["train", "--data", f"folder:{tmp_path / 'data'}", *small, "--run-dir", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-m", "asterism", *command], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("asterism train: folder:") and "1 classes have a single training image" in lines[0]
    assert "no validation" in lines[-1] and "nan" not in lines[-1]


def test_info_of_a_run_of_which_files_are_gone_or_broken(capsys, digits_run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(digits_run, copy)
    (copy / "run.json").unlink()
    assert "it has no run.json" in run(capsys, "info", copy)
    (copy / "result.json").write_text("{")
    assert "result.json is no JSON" in run(capsys, "info", copy, code=1)


def test_assign_says_what_is_missing(capsys, tmp_path):
    np.savez(tmp_path / "m.npz", means=unit(torch.randn(5, 3)).numpy())
    np.savez(tmp_path / "s.npz", stars=unit(torch.randn(4, 3)).numpy())
    assert "1 stars are missing" in run(capsys, "assign", tmp_path / "m.npz", tmp_path / "s.npz", code=1)
    np.savez(tmp_path / "two.npz", a=np.eye(3), b=np.eye(3))
    assert "must hold one matrix" in run(capsys, "assign", tmp_path / "two.npz", tmp_path / "s.npz", code=1)
    for name in ("broken.npz", "broken.safetensors", "broken.parquet"):
        (tmp_path / name).write_text("hello")
        assert name in run(capsys, "assign", tmp_path / name, tmp_path / "s.npz", code=1)
    np.savez(tmp_path / "nan.npz", means=np.full((2, 3), np.nan))
    assert "row 0 of means holds NaN" in run(capsys, "assign", tmp_path / "nan.npz", tmp_path / "s.npz", code=1)
    (tmp_path / "m.csv").write_text("1,0,0")
    assert "must end in .npz" in run(capsys, "assign", tmp_path / "m.csv", tmp_path / "s.npz", code=1)
