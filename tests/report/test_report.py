import csv
import itertools
import json
import math
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from operator import mul

import numpy as np
import pytest
import torch

import asterism
from asterism import Prototypes, files, make_prototypes
from asterism.report import plots
from asterism.report.page import read_run, write_page

NASTY = [
    "<b>&\"'",
    "$x^2$ $y$",
    "漢字",
    "a  b\nc",
    "عربي",
    "</script><i>",
    "_under",
    "#000000",
    ' id="x"',
    "U+0041 A (DejaVu Sans)",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run whose labels move on a sphere in 3 dimensions, and one without stars."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASTERISM_CACHE", str(folder / "cache"))
        for method in ("asterism", "psc-linear"):
            asterism.train(
                asterism.TrainConfig(
                    data="digits",
                    backbone="mlp",
                    width=4,
                    epochs=2,
                    batch_size=64,
                    dim=3,
                    method=method,
                    reassign_every="4ba",
                    run_dir=str(folder / method),
                ),
                quiet=True,
            )
    return folder


@pytest.fixture
def copy(runs, tmp_path):
    return shutil.copytree(runs / "asterism", tmp_path / "copy")


class Page(HTMLParser):
    """Checks that tags balance, and gathers what stands where."""

    VOID = ("meta", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.tags, self.texts, self.attributes, self.scripts = [], [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open:
            self.texts.append(data)
            if {"td", "th"} & set(self.open):
                self.rows[-1][-1] += data


def page(tmp_path, runs, **options):
    write_page(runs, tmp_path / "new" / "index.html", **{"title": "a title", **options})
    return (tmp_path / "new" / "index.html").read_text(encoding="utf-8")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_numbers_of_the_page_are_those_of_the_files(runs, tmp_path):
    seen = Page(page(tmp_path, [runs / "asterism", runs / "psc-linear"]))
    head, ours, linear = seen.rows
    assert head == ["Method", "Test accuracy", "Head parameters", "Head time a step", "Labels moved"]
    for name, row in (("asterism", ours), ("psc-linear", linear)):
        result = json.loads((runs / name / "result.json").read_text())
        assert row[:3] == [name, f"{100 * result['accuracy']:.2f}%", str(result["head_parameters"])]
        number, unit = row[3].split()
        assert float(number) * {"ms": 1e-3, "µs": 1e-6}[unit] == pytest.approx(
            result["head_seconds"], rel=0.01, abs=6e-7
        )
    moved = [entry["moved"] for entry in lines(runs / "asterism" / "map.jsonl")[1:]]
    assert len(moved) == 10 and ours[4].strip() == ", ".join(map(str, moved))
    assert linear[2] == "40" and linear[4] == "–"
    assert "digits, 10 classes, mlp, width 4, 3 dimensions, 2 epochs, batches of 64, seed 0" in seen.texts
    assert (
        f"{moved[0]} of 10 labels moved at the first re-assignment, {moved[-1]} at the latest, number 10."
        in " ".join(seen.texts)
    )


def test_page_stands_alone(runs, tmp_path):
    text = page(tmp_path, [runs / "asterism", runs / "psc-linear"], sphere=runs / "asterism")
    seen = Page(text)
    assert "http" not in text.lower() and "@import" not in text
    links = [
        value
        for name, value in seen.attributes
        if name in ("src", "href", "xlink:href", "data", "srcset", "action", "poster")
    ]
    assert links and all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert text.count("url(") == text.count("url(#")
    ids = [value for name, value in seen.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links if link[0] == "#"} <= set(ids)
    assert [tag for tag, _ in seen.tags].count("figure") == 3  # curves, sphere, one timeline
    assert "currentColor" in text and "#000000" not in text


def test_sphere_data_are_those_of_the_run(runs, tmp_path):
    assert Page(page(tmp_path, [runs / "asterism"])).scripts == []
    data = json.loads(Page(page(tmp_path, [runs / "asterism"], sphere=runs / "asterism")).scripts[0])
    tensors, _ = files.read_tensors(runs / "asterism" / "last.safetensors")
    assert np.allclose(data["stars"], tensors["model.method.head.stars"], atol=1e-4)
    assert data["names"] == list("0123456789")
    written = lines(runs / "asterism" / "map.jsonl")
    assert [(m["labels"], m["stars"], m["cosine"]) for m in data["maps"]] == [
        (m["labels"], m["stars"], m.get("cosine")) for m in written
    ]


def test_names_are_escaped(copy, tmp_path):
    about = json.loads((copy / "run.json").read_text())
    about["data"]["names"] = NASTY
    files.write_text(copy / "run.json", json.dumps(about, ensure_ascii=False))
    note = {"method": "<etf>", "note": "a < b & c"}
    seen = Page(page(tmp_path, [copy], title="<b>&</b>", rows=[note], sphere=copy))
    assert not {"b", "i", "etf"} & {tag for tag, _ in seen.tags}
    assert "<b>&</b>" in seen.texts and seen.rows[-1] == ["<etf>", "a < b & c"]
    assert len(seen.scripts) == 2 and json.loads(seen.scripts[0])["names"] == [plots.short_name(name) for name in NASTY]
    for name in NASTY:  # beside the timeline and on the sphere's fallback
        assert seen.texts.count(plots.short_name(name)) == 2, name


def test_note_spans_the_other_columns(runs, tmp_path):
    note = "cannot exist: a simplex of 200 points needs 199 dimensions, came 16"
    seen = Page(page(tmp_path, [runs / "asterism"], rows=[{"method": "etf", "note": note}]))
    assert seen.rows[-1] == ["etf", note]
    assert [attributes["colspan"] for tag, attributes in seen.tags if "colspan" in attributes] == ["4"]
    assert len(seen.rows[0]) == 5
    with pytest.raises(ValueError, match="must have 'method' and 'note'"):
        page(tmp_path, [runs / "asterism"], rows=[{"method": "etf", "remark": note}])


def test_interrupted_run_shows_what_there_is(copy, tmp_path):
    (copy / "result.json").unlink()
    table = (copy / "metrics.csv").read_text().splitlines(keepends=True)
    (copy / "metrics.csv").write_text("".join(table[:2]))
    entries = (copy / "map.jsonl").read_text().splitlines(keepends=True)
    (copy / "map.jsonl").write_text("".join(entries[:3]) + entries[3][:40])  # it died over the fourth
    run = read_run(copy)
    assert len(run.maps) == 3 and len(run.metrics) == 1 and run.result is None
    seen = Page(page(tmp_path, [copy]))
    validation = float(next(csv.DictReader(table))["val_accuracy"])
    assert (
        seen.rows[1][0]
        == f"asterismstopped or still running after 1 of 2 epochs, validation {validation:.2%}: no test figures"
    )
    assert seen.rows[1][1:4] == ["–"] * 3
    assert seen.rows[1][4].strip() == ", ".join(str(len(json.loads(entry)["labels"])) for entry in entries[1:3])


def test_run_that_has_only_begun(copy, tmp_path):
    for name in ("result.json", "metrics.csv", "map.jsonl", "last.safetensors", "run.json"):
        (copy / name).unlink()
    seen = Page(page(tmp_path, [copy], sphere=copy))
    assert seen.rows[1] == ["asterismno epoch of 2 is done: no figures yet", "–", "–", "–", "–"]
    assert "No run has finished an epoch: there are no curves yet." in " ".join(seen.texts)
    assert "has no checkpoint with stars" in " ".join(seen.texts)
    assert "figure" not in [tag for tag, _ in seen.tags]


def test_old_result_and_empty_splits(copy, tmp_path):
    result = json.loads((copy / "result.json").read_text())
    del result["head_seconds"]
    (copy / "result.json").write_text(json.dumps({**result, "accuracy": math.nan}))
    assert Page(page(tmp_path, [copy])).rows[1][1:4] == ["–", "0", "–"]


def test_what_is_no_run_is_refused(runs, copy, tmp_path):
    for path, came in (
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path, "holds no config.json"),
        (copy / "metrics.csv", "is a file"),
    ):
        with pytest.raises(ValueError, match=f"{came}, must be the folder of a run: give"):
            write_page([path], tmp_path / "index.html", title="")
    with pytest.raises(ValueError, match="no runs came"):
        write_page([], tmp_path / "index.html", title="")
    with pytest.raises(ValueError, match=r"no label .* was ever re-assigned"):
        plots.timeline_figure(read_run(runs / "psc-linear"))
    (copy / "map.jsonl").write_text("{\n")
    with pytest.raises(ValueError, match=r"map\.jsonl holds a line that is no JSON"):
        read_run(copy)
    (copy / "map.jsonl").unlink()
    (copy / "metrics.csv").write_text("epoch,loss\n1,2,3\n")
    with pytest.raises(ValueError, match=r"metrics\.csv is no table of numbers"):
        read_run(copy)
    (copy / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is no JSON"):
        read_run(copy)
    (copy / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="names no method"):
        read_run(copy)
    assert not (tmp_path / "index.html").exists()


def test_sphere_wants_three_dimensions(runs):
    run = read_run(runs / "asterism")
    run.stars = torch.eye(4)
    with pytest.raises(ValueError, match="holds stars in 4 dimensions, must hold some in 3"):
        plots.sphere_figure(run)
    with pytest.raises(ValueError, match="holds no fixed stars"):
        plots.sphere_figure(read_run(runs / "psc-linear"))


def test_record_replays_the_map(runs):
    run = read_run(runs / "asterism")
    tensors, _ = files.read_tensors(runs / "asterism" / "last.safetensors")
    assert run.last == tensors["model.method.head.assignment"].tolist()
    assert run.first == run.maps[0]["stars"] and run.first != run.last
    assert run.metrics[-1]["certified"] is True and isinstance(run.metrics[-1]["epoch"], int)


@pytest.mark.parametrize("num, dim", [(12, 3), (16, 8), (5, 4), (300, 40), (12, 2), (2, 2)])
def test_text_histogram(num, dim):
    points = torch.randn(num, dim, generator=torch.Generator().manual_seed(num), dtype=torch.float64)
    exact = num <= 2 * dim or dim <= 3
    stars = make_prototypes(num, dim) if exact else Prototypes(torch.nn.functional.normalize(points), "random")
    head, *rows = plots.histogram_text(stars, width=56).splitlines()
    assert head.split() == ["cosine", "pairs"] and len(rows) <= 16 and max(map(len, rows)) <= 56
    centres = [float(row.split()[0]) for row in rows]
    counts = [int(row.split(" ◂ ")[0].split()[-1].replace(",", "")) for row in rows]
    assert sum(counts) == num * (num - 1) // 2
    step = round(centres[1] - centres[0], 2) if len(rows) > 1 else 0.01
    pairs = itertools.combinations(
        stars.points.tolist(), 2
    )  # cosines at the edge of two rows must not be split by rounding
    twin = Counter(round(round(sum(map(mul, a, b)), 9) / step) for a, b in pairs)
    assert counts == [twin[round(centre / step)] for centre in centres]
    for row, centre, count in zip(rows, centres, counts, strict=True):
        assert ("bound" in row) == (abs(stars.bound - centre) <= step / 2)
        assert ("largest" in row) == (row is rows[-1])
        assert (count > 0) == any(block in row for block in "▏▎▍▌▋▊▉█")


def test_prototypes_figure_marks_what_is_proven():
    stars = Prototypes(torch.nn.functional.normalize(torch.randn(40, 5, dtype=torch.float64)), "cost $5 or $6")
    figure = plots.prototypes_figure(stars)
    left, right = figure.axes
    assert [line.get_xdata()[0] for line in left.lines] == [stars.max_cosine, stars.bound]
    assert sum(bar.get_height() for bar in left.patches) == 40 * 39 / 2
    cosines = (stars.points @ stars.points.T).fill_diagonal_(-1)
    assert np.allclose(right.lines[0].get_ydata(), np.sort(np.degrees(np.arccos(cosines.numpy().max(axis=1)))))
    assert right.lines[1].get_ydata()[0] == pytest.approx(math.degrees(math.acos(stars.bound)))
    figure.canvas.draw()  # dollars that are no formula would stop it


def test_curves_are_those_of_the_file(runs):
    both = [read_run(runs / "asterism"), read_run(runs / "psc-linear")]
    upper, lower = plots.curves_figure(both).axes
    for run, accuracy, loss in zip(both, upper.lines, lower.lines, strict=True):
        rows = list(csv.DictReader((run.folder / "metrics.csv").read_text().splitlines()))
        assert accuracy.get_label() == run.config["method"]
        assert accuracy.get_xdata().tolist() == [1, 2]
        assert np.allclose(accuracy.get_ydata(), [100 * float(row["val_accuracy"]) for row in rows])
        assert np.allclose(loss.get_ydata(), [float(row["loss"]) for row in rows])


def test_runs_of_one_method_are_named_by_their_folder(runs, copy):
    three = [read_run(runs / "asterism"), read_run(copy), read_run(runs / "psc-linear")]
    assert plots.run_names(three) == ["asterism (asterism)", "asterism (copy)", "psc-linear"]


def test_timeline_marks_who_moved(runs):
    run = read_run(runs / "asterism")
    share, cosine, grid = plots.timeline_figure(run).axes
    marks = ~np.isnan(grid.images[0].get_array().filled(np.nan))  # (label, re-assignment), the first at the bottom
    order = [run.names.index(text.get_text()) for text in grid.get_yticklabels()]
    assert sorted(order) == list(range(10)) and marks.any()
    for column, entry in enumerate(lines(runs / "asterism" / "map.jsonl")[1:]):
        assert sorted(np.array(order)[marks[:, column]]) == entry["labels"]
        assert share.patches[0].get_data().values[column] == pytest.approx(10 * entry["moved"])
        assert cosine.lines[0].get_ydata()[2 * column : 2 * column + 2].tolist() == [
            entry["cosine_before"],
            entry["cosine"],
        ]
    last = [max(np.flatnonzero(row), default=-1) for row in marks]
    assert last == sorted(last)
    assert grid.images[0].origin == "lower" and grid.get_ylim()[0] < grid.get_ylim()[1]


def test_sphere_figure_leads_labels_to_their_last_star(runs):
    run = read_run(runs / "asterism")
    run.last[0], run.last[run.last.index(run.first[0])] = run.first[0], run.last[0]  # one label ends where it began
    (axes,) = plots.sphere_figure(run).axes
    named = [text for text in axes.texts if text.get_text()]
    heads = [text for text in axes.texts if not text.get_text()]
    places = {text.get_text(): text.xy for text in named}
    assert sorted(places) == run.names
    moved = [k for k in range(10) if run.first[k] != run.last[k]]
    assert 0 < len(heads) == len(moved) < 10
    assert {tuple(np.round(head.xy, 6)) for head in heads} == {tuple(np.round(places[run.names[k]], 6)) for k in moved}
    stars = run.stars.double().numpy()
    shown = np.array([places[run.names[run.last.index(s)]] for s in range(10)])
    axis = np.linalg.lstsq(stars, shown, rcond=None)[0]  # seen from one side: two orthonormal axes explain all places
    assert np.allclose(axis.T @ axis, np.eye(2), atol=1e-6) and np.allclose(stars @ axis, shown, atol=1e-6)


def test_great_circles_reach_opposite_points_too():
    a, b = np.array([0.6, 0.8, 0.0]), np.array([0.0, 0.6, 0.8])
    for start, end in ((a, b), (a, -a), (np.array([0.0, 1.0, 0.0]), np.array([0.0, -1.0, 0.0]))):
        path = plots._great_circle(start, end)
        assert np.allclose(path[0], start) and np.allclose(path[-1], end)
        assert np.allclose(np.linalg.norm(path, axis=1), 1)
        steps = (path[1:] * path[:-1]).sum(axis=1)
        assert steps.min() > 0.99 and np.ptp(steps) < 1e-9


def test_matplotlib_is_loaded_when_a_picture_is_drawn(monkeypatch):
    code = "import sys, asterism.report.page; print([m for m in sys.modules if m in sys.argv[1:]])"
    out = subprocess.run(
        [sys.executable, "-c", code, "matplotlib", "asterism.training", "asterism.serving"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert out == "[]\n"
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "asterism\[train\]"'):
        plots.prototypes_figure(make_prototypes(5, 4))
