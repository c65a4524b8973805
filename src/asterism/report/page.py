"""The page that shows runs: `read_run` gathers what a run folder holds, `write_page` makes one HTML file of several.

The file stands alone: pictures are inline SVG, styles and script are inside, nothing is fetched. It follows the reader's light or
dark setting: what matplotlib drew in black takes the colour of the text.
"""

from __future__ import annotations

import csv
import io
import json
import re
import warnings
import zlib
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from asterism import files
from asterism.report import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(eq=False)
class RunRecord:
    """What a run folder says. What a young or interrupted run has not written yet is empty or None."""

    folder: Path
    config: dict[str, Any]
    about: dict[str, Any]  # run.json
    names: list[str]  # of the labels
    metrics: list[dict[str, Any]]  # rows of metrics.csv, one an epoch
    maps: list[dict[str, Any]]  # of map.jsonl: the first places all labels, the others say who moved
    result: dict[str, Any] | None
    first: list[int]  # the star of each label at the start; empty for a method without a map
    last: list[int]  # and now

    @cached_property
    def stars(self) -> Tensor | None:
        """(K, d) of the last checkpoint, if there is one and the method has fixed stars."""
        path = self.folder / "last.safetensors"
        return files.read_tensors(path)[0].get("model.method.head.stars") if path.exists() else None

    @property
    def moved(self) -> list[int]:
        """How many labels moved at each re-assignment."""
        return [len(entry["labels"]) for entry in self.maps[1:]]


def read_run(folder: str | Path) -> RunRecord:
    """Whatever a run has written so far; a ValueError where no run is."""
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        what = "does not exist" if not folder.exists() else "is a file" if folder.is_file() else "holds no config.json"
        raise ValueError(
            f"read_run: {folder} {what}, must be the folder of a run: give what `asterism train` wrote, as runs/NAME"
        )
    config, about = _json(folder / "config.json"), _json(folder / "run.json") or {}
    if not config or "method" not in config:
        raise ValueError(
            f"read_run: {folder / 'config.json'} names no method, must be what a run wrote: give a run's folder"
        )
    maps = _lines(folder / "map.jsonl")
    last: dict[int, int] = {}
    for entry in maps:
        last.update(zip(entry["labels"], entry["stars"], strict=True))
    order = [last[label] for label in sorted(last)]
    names = about.get("data", {}).get("names") or [str(label) for label in sorted(last)]
    return RunRecord(
        folder,
        config,
        about,
        names,
        _table(folder / "metrics.csv"),
        maps,
        _json(folder / "result.json"),
        maps[0]["stars"] if maps else [],
        order,
    )


def write_page(
    runs: list[Path], output: Path, *, title: str, rows: list[dict[str, str]] | None = None, sphere: Path | None = None
) -> None:
    """One page that compares `runs`.

    rows    {"method", "note"}: what has no run, and why; stands in the table
    sphere  a run with d = 3
    """
    if not runs:
        raise ValueError("write_page: no runs came, must be at least one: give folders that `asterism train` wrote")
    records = [read_run(run) for run in runs]
    sections = [
        f"<h1>{escape(title)}</h1>\n<p>{escape(_setting(records))}</p>",
        _comparison(records, rows or []),
        _curves(records),
        _sphere(read_run(sphere)) if sphere is not None else "",
        *(_timeline(record, name) for record, name in zip(records, plots.run_names(records), strict=True)),
        _origins(records),
    ]
    body = "\n".join(f"<section>\n{section}\n</section>" for section in sections if section)
    output.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(output, PAGE.format(title=escape(title), style=STYLE, body=body))


# What the folder holds


def _json(path: Path) -> Any:
    """None where there is no file: each is written whole or not at all."""
    return files.read_json(path) if path.exists() else None


def _lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines alone: one is added at a time, and a run may have died over it."""
    if not path.exists():
        return []
    lines = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise ValueError(f"{path} holds a line that is no JSON ({error}): restore it, or leave the run out") from error


def _table(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    try:
        return [{name: _value(text) for name, text in row.items()} for row in rows]
    except (AttributeError, ValueError) as error:  # rows of another length, or words
        raise ValueError(f"{path} is no table of numbers ({error}): restore it, or leave the run out") from error


def _value(text: str) -> float | bool | None:
    """
    >>> [_value(text) for text in ("3", "0.25", "True", "")]
    [3, 0.25, True, None]
    """
    if text in ("", "True", "False"):
        return None if text == "" else text == "True"
    return int(text) if text.isdecimal() else float(text)


# Sections


def _setting(records: list[RunRecord]) -> str:
    """What all runs have in common."""
    texts = {
        "data": "{}",
        "classes": "{} classes",
        "backbone": "{}",
        "width": "width {}",
        "dim": "{} dimensions",
        "epochs": "{} epochs",
        "batch_size": "batches of {}",
        "seed": "seed {}",
    }
    values = [{**record.config, "classes": len(record.names) or None} for record in records]
    common = {key: values[0].get(key) for key in texts if all(v.get(key) == values[0].get(key) for v in values)}
    return ", ".join(texts[key].format(value) for key, value in common.items() if value is not None)


def _comparison(records: list[RunRecord], notes: list[dict[str, str]]) -> str:
    lines = [_row(record, name) for record, name in zip(records, plots.run_names(records), strict=True)]
    for note in notes:
        if set(note) != {"method", "note"}:
            raise ValueError(f"write_page: a row came with {sorted(note)}, must have 'method' and 'note'")
        lines.append(
            f'<tr><th scope="row">{escape(note["method"])}</th><td colspan="4">{escape(note["note"])}</td></tr>'
        )
    return (
        """<h2>Comparison</h2>
<p>Accuracy is that on the test split, scored once at the end. The head is what turns a feature into a class: its trainable
parameters, the time it adds to a training step, and how many labels changed their star at each re-assignment.</p>
<table>
<thead><tr><th>Method</th><th>Test accuracy</th><th>Head parameters</th><th>Head time a step</th><th>Labels moved</th></tr></thead>
<tbody>
"""
        + "\n".join(lines)
        + "\n</tbody></table>"
    )


def _row(record: RunRecord, name: str) -> str:
    result = record.result or {}
    seconds = result.get("head_seconds")
    cells = {
        "Test accuracy": _shown(result.get("accuracy"), ".2%"),
        "Head parameters": _shown(result.get("head_parameters"), ","),
        "Head time a step": "–"
        if seconds is None
        else f"{seconds * 1e3:.2f} ms"
        if seconds >= 1e-3
        else f"{seconds * 1e6:.0f} µs",
        "Labels moved": _moves(record),
    }
    missing = _missing(record)
    head = escape(name) + (f"<small>{escape(missing)}</small>" if missing else "")
    body = "".join(f'<td data-name="{column}">{cell}</td>' for column, cell in cells.items())
    return f'<tr><th scope="row">{head}</th>{body}</tr>'


def _shown(value: float | None, form: str) -> str:
    """A dash for what is missing or, as the accuracy on an empty split, no number."""
    return "–" if value is None or value != value else format(value, form)


def _missing(record: RunRecord) -> str:
    """What an unfinished run lacks; nothing for a finished one."""
    if record.result is not None:
        return ""
    done, asked = len(record.metrics), record.config.get("epochs")
    if not done:
        return f"no epoch of {asked} is done: no figures yet"
    validation = _shown(record.metrics[-1]["val_accuracy"], ".2%")
    return f"stopped or still running after {done} of {asked} epochs, validation {validation}: no test figures"


def _moves(record: RunRecord) -> str:
    moved = record.moved
    if not moved:
        return "none: they stay" if record.maps else "–"
    shown = [f"{n:,}" for n in moved]
    if len(shown) > 10:
        shown = [*shown[:5], "…", *shown[-3:]]
    return f"{', '.join(shown)} {_spark(moved)}"


def _spark(values: list[int]) -> str:
    """Bars as high as the values; the numbers stand beside them, so it is decoration to a screen reader."""
    top = max(1, *values)
    bars = "".join(f"M{k} 10V{10 - 10 * v / top:.1f}h.8V10z" for k, v in enumerate(values))
    box = f'viewBox="0 0 {len(values)} 10" preserveAspectRatio="none"'
    return f'<svg class="spark" {box} aria-hidden="true"><path d="{bars}"/></svg>'


def _curves(records: list[RunRecord]) -> str:
    begun = [record for record in records if record.metrics]
    if not begun:
        return "<h2>Training</h2>\n<p>No run has finished an epoch: there are no curves yet.</p>"
    return f"""<h2>Training</h2>
<p>Above, accuracy on the images held out of training. Below, the training loss: methods minimise different losses, so compare
shapes there, not heights.</p>
{_picture(plots.curves_figure(begun), "Validation accuracy and training loss over epochs")}"""


def _timeline(record: RunRecord, name: str) -> str:
    moved = record.moved
    if not any(moved):
        return ""
    one = len(moved) == 1
    counts = f"{moved[0]:,} of {len(record.last):,} labels moved at the " + (
        "only re-assignment" if one else f"first re-assignment, {moved[-1]:,} at the latest, number {len(moved):,}"
    )
    return f"""<h2>Who moved when: {escape(name)}</h2>
<p>{counts}. The mean cosine between class means and their stars jumps where labels move, and follows the training in between.
Below, a mark stands for a label that changed its star.</p>
{_picture(plots.timeline_figure(record), f"Moves of the labels of {name} at each re-assignment")}"""


def _sphere(record: RunRecord) -> str:
    if record.stars is None:
        return f"<h2>The sphere</h2>\n<p>{escape(str(record.folder))} has no checkpoint with stars: nothing to draw yet.</p>"
    figure = plots.sphere_figure(record)
    data = {
        "stars": [[round(x, 4) for x in star] for star in record.stars.tolist()],
        "names": [plots.short_name(name) for name in record.names],
        "maps": [
            {key: entry.get(key) for key in ("labels", "stars", "cosine_before", "cosine")} for entry in record.maps
        ],
    }
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")  # a name cannot end the script
    return f"""<h2>The sphere</h2>
<p>A run in three dimensions, with {len(record.last)} labels on {len(record.stars)} stars. The stars stay; move the slider to see
the labels fly between them. Drag the sphere to turn it.</p>
<div id="sphere" hidden>
<canvas tabindex="0" role="img" aria-label="Sphere with stars and the labels on them; the arrow keys turn it"></canvas>
<div class="controls"><button type="button">Play</button>
<input type="range" min="0" max="{len(record.maps) - 1}" step="any" value="0" aria-label="Re-assignment"></div>
<p><output></output></p>
</div>
<script type="application/json" id="sphere-data">{text}</script>
<script>{SCRIPT}</script>
<noscript>{_picture(figure, "Sphere with its stars, an arrow from the first to the last star of each label")}
<p>Solid: the half that faces you. Hollow and dotted: the far half. Each arrow leads from the star that a label had first to
the one it has at the end.</p></noscript>"""


def _origins(records: list[RunRecord]) -> str:
    parts = []
    for record, name in zip(records, plots.run_names(records), strict=True):
        about = record.about
        facts = {
            "folder": str(record.folder),
            "command": " ".join(about.get("command", [])),
            "commit": about.get("commit"),
            "machine": about.get("machine"),
            "Python": about.get("python"),
            "versions": ", ".join(f"{k} {v}" for k, v in about.get("versions", {}).items()),
        }
        text = "; ".join(f"{key}: {value}" for key, value in facts.items() if value)
        parts.append(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>")
    return "<details><summary>Where these figures come from</summary>\n<dl>" + "\n".join(parts) + "</dl></details>"


def _picture(figure: Figure, description: str) -> str:
    """Inline SVG whose text is text and whose black is the page's ink."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "asterism"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font")  # the reader's fonts draw the text
        figure.savefig(
            buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    own = f"p{zlib.crc32(svg.encode()):08x}-"  # several pictures on a page must not share identifiers

    def adapt(tag: re.Match[str]) -> str:
        text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", tag[0])  # HTML knows them
        return re.sub(r'( id="|href="#|url\(#)', rf"\1{own}", text).replace("#000000", "currentColor")

    svg = re.sub(r"<[^>]+>", adapt, svg).strip()
    return f'<figure role="img" aria-label="{escape(description)}">{svg}</figure>'


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

STYLE = """
:root { color-scheme: light dark;
  --ground: #fff; --ink: #1b1b1b; --faint: #5f5f5f; --line: #d5d5d5; --star: #0072b2; --move: #d55e00 }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14161a; --ink: #e6e6e6; --faint: #a0a0a0; --line: #3a3d42; --star: #56b4e9; --move: #ff8c3a }
}
body { margin: 0; background: var(--ground); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif }
main { max-width: 44rem; margin: 0 auto; padding: 1rem }
section { margin-bottom: 2.5rem }
h1, h2 { line-height: 1.2; margin: 0 0 .5rem; overflow-wrap: anywhere }
h2 { font-size: 1.25rem }
p { margin: 0 0 .75rem; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100%; font-size: .9rem }
th, td { text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line) }
tbody th { min-width: 6.5rem }
thead th { color: var(--faint); font-weight: normal; vertical-align: bottom }
td { font-variant-numeric: tabular-nums }
small { display: block; font-weight: normal; color: var(--faint); max-width: 14rem }
@media (max-width: 36rem) {  /* a row becomes a card, its cells name their column */
  thead { display: none }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line) }
  th, td { display: flex; flex-wrap: wrap; column-gap: .75rem; border: 0; padding: 0 }
  td[data-name]::before { content: attr(data-name); color: var(--faint); min-width: 9rem }
  small { max-width: none; flex-basis: 100% }
}
.spark { width: 5rem; height: 1em; fill: var(--star); vertical-align: -.1em }
figure { margin: 0 }
figure svg, canvas { display: block; width: 100%; height: auto; max-width: 34rem }
figure svg text { fill: currentColor; font-family: system-ui, sans-serif !important }
canvas { aspect-ratio: 1; max-width: 30rem; touch-action: pan-y; cursor: grab }
.controls { display: flex; gap: .75rem; max-width: 30rem; margin: .5rem 0 }
.controls input { flex: 1; accent-color: var(--star) }
button { font: inherit; min-width: 4.5rem }
summary, dl { color: var(--faint); font-size: .85rem }
dd { margin: 0 0 .5rem; overflow-wrap: anywhere }
"""

# Time t runs over the re-assignments: between k and k + 1 the labels fly from their stars of map k to those of map k + 1.
SCRIPT = """{
const data = JSON.parse(document.getElementById("sphere-data").textContent);
const box = document.getElementById("sphere"), canvas = box.querySelector("canvas"), pen = canvas.getContext("2d");
const slider = box.querySelector("input"), button = box.querySelector("button"), output = box.querySelector("output");
const orders = [];
for (const map of data.maps) {
  const order = orders.length ? orders.at(-1).slice() : [];
  map.labels.forEach((label, k) => order[label] = map.stars[k]);
  orders.push(order);
}
let yaw = 0.4, pitch = 0.35, held = null, before = null;

const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const mix = (a, s, b, t) => a.map((x, k) => s * x + t * b[k]);
function flight(a, b) {  // the great circle from a to b, as a function of 0..1
  const cosine = Math.max(-1, Math.min(1, dot(a, b)));
  let side = mix(b, 1, a, -cosine);
  if (Math.hypot(...side) < 1e-3) side = Math.abs(a[0]) < 0.7 ? [0, a[2], -a[1]] : [a[1], -a[0], 0];  // same or opposite
  side = side.map((x, _, all) => x / Math.hypot(...all));
  return t => mix(a, Math.cos(t * Math.acos(cosine)), side, Math.sin(t * Math.acos(cosine)));
}
function turn([x, y, z]) {  // right, up, towards the eye
  const [c, s, e, f] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
  const depth = z * c - x * s;
  return [x * c + z * s, y * e - depth * f, y * f + depth * e];
}
const fade = z => 0.45 + 0.55 * Math.max(0, Math.min(1, (z + 0.2) / 0.4));

function draw() {
  const size = canvas.clientWidth, ratio = devicePixelRatio, style = getComputedStyle(canvas);
  const star = style.getPropertyValue("--star"), move = style.getPropertyValue("--move");
  canvas.width = canvas.height = size * ratio;
  const radius = size * 0.44, place = p => [size / 2 + radius * p[0], size / 2 - radius * p[1]];
  pen.scale(ratio, ratio);
  const circle = (x, y, r) => { pen.beginPath(); pen.arc(x, y, r, 0, 7); };
  pen.strokeStyle = style.color;
  pen.globalAlpha = 0.3;
  circle(size / 2, size / 2, radius);
  pen.stroke();

  const t = +slider.value, end = orders.length - 1;
  const from = Math.min(Math.floor(t), Math.max(0, end - 1)), to = Math.min(from + 1, end);
  const ease = (t - from) ** 2 * (3 - 2 * (t - from));
  const shown = data.stars.map(p => ({ p: turn(p) }));
  pen.strokeStyle = move;
  pen.lineWidth = 1.5;
  orders[from].forEach((first, label) => {
    const last = orders[to][label], path = flight(data.stars[first], data.stars[last]), flying = first !== last && ease > 0;
    for (let k = 0; flying && k < 24; k++) {
      const a = turn(path(ease * k / 24)), b = turn(path(ease * (k + 1) / 24));
      pen.globalAlpha = fade(a[2]) * 0.8;
      pen.beginPath(); pen.moveTo(...place(a)); pen.lineTo(...place(b)); pen.stroke();
    }
    shown.push({ p: turn(path(ease)), name: data.names[label], flying });
  });
  shown.sort((a, b) => a.p[2] - b.p[2]);
  pen.strokeStyle = star;
  for (const { p, name, flying } of shown) {
    const [x, y] = place(p);
    pen.globalAlpha = fade(p[2]);
    if (name === undefined) {
      pen.fillStyle = star;
      circle(x, y, p[2] > 0 ? 5 : 3.5);
      if (p[2] > 0) pen.fill(); else pen.stroke();
    } else {
      pen.fillStyle = flying ? move : style.color;
      pen.font = `${p[2] > 0 ? 18 : 15}px system-ui, sans-serif`;
      pen.fillText(name, x + 6, y - 6);
    }
  }
  tell(t === 0 ? 0 : Math.ceil(t));
}
function tell(k) {
  const map = data.maps[k], digits = x => x === null ? "?" : x.toFixed(3);
  output.textContent = data.maps.length === 1 ? "The labels have not moved" :
    k === 0 ? `The first map, before ${data.maps.length - 1} re-assignments` :
    `Re-assignment ${k} of ${data.maps.length - 1}: ${map.labels.length} of ${orders[0].length} labels move, ` +
    `mean cosine ${digits(map.cosine_before)} to ${digits(map.cosine)}`;
}
function play(now) {
  if (before === null) return;
  slider.value = +slider.value + (now - before) / 1000 * Math.max(0.7, slider.max / 15);
  before = now;
  if (+slider.value >= +slider.max) pause();
  draw();
  requestAnimationFrame(play);
}
function pause() { before = null; button.textContent = "Play"; }
button.onclick = () => {
  if (before !== null) return pause();
  if (+slider.value >= +slider.max) slider.value = 0;
  before = performance.now();
  button.textContent = "Pause";
  requestAnimationFrame(play);
};
function spin(right, down) {
  yaw += right;
  pitch = Math.max(-1.5, Math.min(1.5, pitch + down));
  draw();
}
slider.oninput = () => { pause(); draw(); };
canvas.onpointerdown = event => { held = event; canvas.setPointerCapture(event.pointerId); };
canvas.onpointermove = event => {
  if (held) spin((event.clientX - held.clientX) / 150, (event.clientY - held.clientY) / 150);
  if (held) held = event;
};
canvas.onpointerup = canvas.onpointercancel = () => { held = null; };
canvas.onkeydown = event => {
  const way = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
  if (way) { event.preventDefault(); spin(...way); }
};
box.hidden = false;
new ResizeObserver(draw).observe(canvas);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}"""
