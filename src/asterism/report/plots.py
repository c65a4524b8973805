"""Pictures of prototypes and of runs, as matplotlib figures; and the histogram of the cosines as text for a terminal.

A figure belongs to its caller: `figure.savefig("stars.png")`. Black ink and no ground, so that a page can turn it light or dark.
K prototypes, c labels, d dimension.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from asterism.prototypes import Prototypes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from asterism.report.page import RunRecord

# Okabe and Ito's palette, told apart by every kind of colour vision, less yellow and black, which vanish on white or on black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BLUE, RED = COLOURS[:2]
MARKERS = "osD^vP"
NAMED = 30  # labels up to which an axis names each


def prototypes_figure(prototypes: Prototypes) -> Figure:
    """Left all cosines, right the angle from each star to its nearest: the flatter the right, the better the spread."""
    figure = _figure(8, 3.4)
    left, right = figure.subplots(1, 2)
    width, low, counts, nearest = _spread(prototypes, 80)
    left.bar((low + np.arange(len(counts))) * width, counts, width, color=BLUE)
    left.axvline(prototypes.max_cosine, color=RED, label=f"largest, {prototypes.max_cosine:.4f}")
    left.axvline(prototypes.bound, color="black", linestyle="--", label=f"bound, {prototypes.bound:.4f}")
    left.set(xlabel="cosine of two stars", ylabel="pairs of stars")

    angles = np.sort(np.rad2deg(np.arccos(np.clip(nearest, -1, 1))))
    most = math.degrees(math.acos(prototypes.bound))
    right.plot(np.arange(1, len(angles) + 1), angles, color=BLUE, linewidth=2)
    right.axhline(most, color="black", linestyle="--", label=f"bound on the smallest, {most:.2f}°")
    pad = max(1.0, 0.1 * (max(angles[-1], most) - angles[0]))
    right.set(
        xlabel="star, by angle",
        ylabel="angle to the nearest star (°)",
        ylim=(angles[0] - pad, max(angles[-1], most) + pad),
    )
    for axes in (left, right):
        axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    figure.suptitle(_plain(str(prototypes)), fontsize=9)
    return figure


def histogram_text(prototypes: Prototypes, width: int = 60) -> str:
    """The cosines of all pairs of stars as bars of text, `width` characters wide, each row around the cosine that it names.

    >>> from asterism import make_prototypes
    >>> print(histogram_text(make_prototypes(5, 4), width=50))
    cosine                      pairs
     -0.25 ████████████████████    10 ◂ bound, largest
    """
    step, low, counts, _ = _spread(prototypes, 16)
    rows = {
        name: round(round(value, 9) / step) - low
        for name, value in (("bound", prototypes.bound), ("largest", prototypes.max_cosine))
    }
    marks = [
        " ◂ " + ", ".join(name for name in rows if rows[name] == k) if k in rows.values() else ""
        for k in range(len(counts))
    ]
    digits = max(5, len(f"{counts.max():,}"))
    room = max(1, width - 8 - digits - max(map(len, marks)))
    lines = [f"cosine {'':{room}} {'pairs':>{digits}}"]
    for k, (count, mark) in enumerate(zip(counts.tolist(), marks, strict=True)):
        lines.append(f"{(low + k) * step:6.2f} {_bar(count / counts.max() * room):{room}} {count:>{digits},}{mark}")
    return "\n".join(lines)


def curves_figure(runs: list[RunRecord]) -> Figure:
    """Validation accuracy and training loss after each epoch."""
    figure = _figure(4.8, 5)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for k, (run, name) in enumerate(zip(runs, run_names(runs), strict=True)):
        epochs = [row["epoch"] for row in run.metrics]
        look: dict[str, Any] = {
            "color": COLOURS[k % len(COLOURS)],
            "marker": MARKERS[k % len(MARKERS)],
            "markersize": 4,
            "markevery": max(1, len(epochs) // 10),
            "linestyle": ("-", "--", ":")[k // len(COLOURS) % 3],
        }
        upper.plot(epochs, [100 * row["val_accuracy"] for row in run.metrics], label=_plain(name), **look)
        lower.plot(epochs, [row["loss"] for row in run.metrics], **look)
    upper.set(ylabel="validation accuracy (%)", ylim=(0, None))
    lower.set(ylabel="training loss", xlabel="epoch", ylim=(0, None))
    lower.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside upper center", ncols=max(1, 36 // max(map(len, run_names(runs)))), frameon=False)
    return figure


def timeline_figure(run: RunRecord) -> Figure:
    """Who moved when. Labels are sorted by their last move, so that the edge of the marks shows them come to rest."""
    moves = run.maps[1:]
    if not moves:
        raise ValueError(
            f"timeline_figure: no label of {run.folder} was ever re-assigned, must be at least once: "
            "give a run of asterism or dl2pa that has come to its first re-assignment"
        )
    labels = len(run.last)
    moved = np.zeros((labels, len(moves)))
    for column, entry in enumerate(moves):
        moved[entry["labels"], column] = 1
    last = np.where(moved.any(axis=1), len(moves) - moved[:, ::-1].argmax(axis=1), 0)
    by_rest = np.argsort(last, kind="stable")

    height = min(4.0, max(1.2, 0.14 * labels))
    figure = _figure(4.8, 3.2 + height)
    share, cosine, grid = figure.subplots(3, 1, sharex=True, height_ratios=(1.3, 1.3, height))
    share.stairs(100 * moved.mean(axis=0), np.arange(len(moves) + 1) + 0.5, fill=True, color=BLUE)
    share.set(ylabel="moved (%)", ylim=(0, 100))
    saw = [entry.get(key, math.nan) for entry in moves for key in ("cosine_before", "cosine")]
    cosine.plot(np.repeat(np.arange(1, len(moves) + 1), 2), saw, color=RED)
    cosine.set(ylabel="mean cosine")
    image = np.where(moved[by_rest], 1.0, np.nan)  # NaN stays transparent, whatever the ground
    grid.imshow(
        image,
        aspect="auto",
        interpolation="none",
        origin="lower",
        extent=(0.5, len(moves) + 0.5, -0.5, labels - 0.5),
        cmap=_one_colour(BLUE),
    )
    grid.set(xlabel="re-assignment", ylabel="labels,\nby last move")
    grid.xaxis.get_major_locator().set_params(integer=True)
    if labels <= NAMED:
        grid.set_yticks(range(labels), [_plain(short_name(run.names[k])) for k in by_rest], fontsize=7)
        grid.hlines(np.arange(labels - 1) + 0.5, 0.5, len(moves) + 0.5, color="#b0b0b0", linewidth=0.3)
    return figure


def sphere_figure(run: RunRecord) -> Figure:
    """The sphere of a run with d = 3, named as the labels ended: an arrow leads each from the star it had first."""
    stars = _check_sphere(run)
    figure = _figure(4.8, 4.8)
    axes = figure.subplots()
    axes.set_aspect("equal")
    axes.set_axis_off()
    points = stars.double().numpy() @ _view(yaw=25, pitch=20)  # (K, 3): right, up, towards the eye
    turn = np.linspace(0, 2 * math.pi, 200)
    axes.fill(np.cos(turn), np.sin(turn), facecolor="#80808018", edgecolor="#808080", linewidth=0.8)
    for first, last in zip(run.first, run.last, strict=True):
        if first != last:
            _arrow(axes, _great_circle(points[first], points[last]))
    for star, (x, y, z) in enumerate(points):
        axes.plot(
            x,
            y,
            "o",
            color=BLUE,
            markersize=8 if z > 0 else 5,
            fillstyle="full" if z > 0 else "none",
            alpha=1 if z > 0 else 0.5,
            zorder=3,
        )
        for label in (k for k, s in enumerate(run.last) if s == star):
            axes.annotate(
                _plain(short_name(run.names[label])),
                (x, y),
                (5, 5),
                textcoords="offset points",
                fontsize=14 if z > 0 else 10,
                alpha=1 if z > 0 else 0.55,
                zorder=4,
            )
    return figure


def _check_sphere(run: RunRecord) -> Tensor:
    """The stars (K, 3) of a run that a sphere can be drawn of, or a ValueError."""
    if run.stars is None or run.stars.shape[1] != 3 or not run.last:
        came = "no fixed stars in a checkpoint" if run.stars is None else f"stars in {run.stars.shape[1]} dimensions"
        raise ValueError(
            f"sphere: {run.folder} holds {came}, must hold some in 3: give a run trained with --dim 3, "
            "a method with fixed stars, and at least one epoch done"
        )
    return run.stars


def run_names(runs: list[RunRecord]) -> list[str]:
    """The method of each run, and its folder where several have the same."""
    methods = [run.config["method"] for run in runs]
    return [m if methods.count(m) == 1 else f"{m} ({run.folder.name})" for m, run in zip(methods, runs, strict=True)]


def short_name(name: str) -> str:
    """What fits beside a star: of a glyph its character, of long names both ends.

    >>> short_name("U+0041 A (DejaVu Sans)"), short_name("( (DejaVu Sans)"), short_name("Cavalier King Charles spaniel")
    ('A', '(', 'Cavalier … spaniel')
    """
    name = re.sub(r"^U\+[0-9A-F]+ (?=.)|(?<=.) \([^)]*\)$", "", " ".join(name.split()))
    return name if len(name) <= 18 else f"{name[:9]}…{name[-8:]}"


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('pictures are drawn by matplotlib: pip install "asterism[train]"') from error
    return Figure(figsize=(width, height), layout="constrained")


def _one_colour(colour: str) -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap([colour])


def _plain(text: str) -> str:
    """Dollars would start a formula."""
    return text.replace("$", r"\$")


def _spread(prototypes: Prototypes, most: int) -> tuple[float, int, np.ndarray, np.ndarray]:
    """The histogram of the cosines of all pairs, in at most `most` bars of a round width around its multiples (so that 0 and
    1/2, which exact sets meet up to rounding, lie inside a bar): width, multiple of the first bar, counts; and the largest
    cosine of each row (K,). The bars reach from the smallest cosine or the bound to the largest cosine."""
    lowest, largest = prototypes.bound, prototypes.max_cosine
    nearest = torch.empty(len(prototypes), dtype=torch.float64)
    for start, cosines in _cosine_blocks(prototypes.points):
        lowest = min(lowest, cosines.nan_to_num(1).min().item())
        nearest[start : start + len(cosines)] = cosines.nan_to_num(-1).max(dim=1).values
    widths = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
    width = next(w for w in widths if largest - lowest <= w * (most - 2))
    low, high = (round(round(value, 9) / width) for value in (lowest, largest))
    counts = np.zeros(high - low + 1, dtype=np.int64)
    for _, cosines in _cosine_blocks(prototypes.points):
        multiples = (cosines[~cosines.isnan()].round(decimals=9) / width).round().long() - low
        counts += np.bincount(multiples.numpy(), minlength=len(counts))
    return width, low, counts // 2, nearest.numpy()  # each pair was seen from both sides


def _cosine_blocks(points: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Rows of the K x K cosines, as many as memory likes; NaN where a row meets itself."""
    block = max(1, 2**23 // len(points))
    for start in range(0, len(points), block):
        cosines = points[start : start + block] @ points.T
        rows = torch.arange(len(cosines))
        cosines[rows, rows + start] = torch.nan
        yield start, cosines


def _bar(length: float) -> str:
    """Blocks of a character and, at the end, of an eighth; what is not nothing shows."""
    eighths = max(round(8 * length), int(length > 0))
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _view(yaw: float, pitch: float) -> np.ndarray:
    """(3, 3) that turns rows to how an eye sees them: right, up, towards it. In degrees."""
    a, b = math.radians(yaw), math.radians(pitch)
    about_up = np.array([[math.cos(a), 0, -math.sin(a)], [0, 1, 0], [math.sin(a), 0, math.cos(a)]])
    about_right = np.array([[1, 0, 0], [0, math.cos(b), math.sin(b)], [0, -math.sin(b), math.cos(b)]])
    return about_up @ about_right


def _great_circle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(40, 3) points from a to b; any of the great circles when they are opposite."""
    side = b - (a @ b) * a
    if np.linalg.norm(side) < 1e-6:
        side = np.cross(a, np.eye(3)[np.abs(a).argmin()])
    side /= np.linalg.norm(side)
    t = np.linspace(0, math.acos(np.clip(a @ b, -1, 1)), 40)[:, None]
    return np.cos(t) * a + np.sin(t) * side


def _arrow(axes: Axes, path: np.ndarray) -> None:
    """Solid in front, dotted behind, with its head shortly before the star."""
    front = path[:, 2] > 0
    for shown, look in ((front, {"alpha": 0.9}), (~front, {"alpha": 0.5, "linestyle": ":"})):
        axes.plot(*np.where(shown[:, None], path, np.nan)[:, :2].T, color=RED, linewidth=1.2, **look)
    head = {"arrowstyle": "-|>", "color": RED, "alpha": 0.9 if front[-1] else 0.5, "shrinkA": 0, "shrinkB": 4}
    axes.annotate("", tuple(path[-1, :2]), tuple(path[-4, :2]), arrowprops=head)
