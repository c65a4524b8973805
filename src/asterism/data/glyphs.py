"""The generated data set `glyphs`: small pictures of characters, as many classes as a study asks for.

The characters come from the fonts that matplotlib ships, so nothing is downloaded. Every outline is drawn once, large
and without distortion (its *template*); every image is a random distortion of its class's template: rotated, scaled,
sheared, shifted and bent, its stroke thinned or thickened, crossed by a stray stroke and by fragments of other
characters, in random greys on a sloping background, with noise.

One class is one outline. An outline counts as new unless an earlier class already looks the same, judged so:

* both are moved to the origin and scaled to the same longest side, aspect ratio kept, so that neither size nor place
  tells them apart ('A' and Alpha, '.' and a raised dot, 'o' and 'O' are one class each);
* both are drawn on a grid of 32 x 32 pixels, and they look the same where of either's ink at most 5 % lies further
  than one pixel (eight neighbours) from the other's. One pixel is about what the random stroke thickness adds or takes
  away, so a bold bar and a thin bar are one class, too.

Slanted faces are left out: the random shear and rotation would turn them into their upright faces. So are blanks,
control and format characters, and code points that a font does not map.

Shapes below: c classes, N images, S the image's side, T the template's side, n images of one class.
"""

import unicodedata
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import distance_transform_edt

# Most readable first. The order is part of the data set: class k is the k-th new outline along it.
FACES = (
    *("DejaVuSans", "DejaVuSerif", "STIXGeneral", "DejaVuSansMono", "cmr10", "cmss10", "cmtt10"),
    *("STIXNonUni", "cmsy10", "cmex10", "STIXSizOneSymReg", "STIXSizFiveSymReg"),
    *("DejaVuSans-Bold", "DejaVuSerif-Bold", "STIXGeneralBol", "DejaVuSansMono-Bold", "cmb10", "STIXNonUniBol"),
)

TEMPLATE, BOX = 80, 64  # T, and the longest side of the outline inside it; the margin keeps distances outside exact
COARSE = 32  # side of the grid on which outlines are compared
STRAY = 0.05  # share of the ink that may lie off the other outline for the two to look the same
FRAGMENTS = 128  # the clutter is cut from the first classes, whatever num_classes is
BLOCK = 256  # outlines drawn, or images of a class distorted, at a time


class Glyphs(NamedTuple):
    """Images (N, S, S, 1) uint8 and labels (N,) int64, sorted by class, and one name per class."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor
    names: list[str]


def glyphs(num_classes: int = 200, *, seed: int = 0, train: int = 100, test: int = 20, size: int = 28) -> Glyphs:
    """Draw `train` and `test` images of each of the first `num_classes` outlines.

    The same arguments give the same bits (with the same releases of matplotlib and torch). Class k's training images
    depend on `seed`, k, `size` and `train` alone, its test images on `test` in place of `train`: so glyphs(200) is the
    first 200 classes of glyphs(4000). About 10,000 outlines are there to be had.
    """
    for name, value, least in (
        ("num_classes", num_classes, 1),
        ("seed", seed, 0),
        ("train", train, 0),
        ("test", test, 0),
        ("size", size, 8),
    ):
        if value < least:
            raise ValueError(f"glyphs: {name}={value}, but it must be at least {least}; pass {name}={least} or more")
    names, templates = outlines(max(num_classes, FRAGMENTS))
    if num_classes > len(names):
        raise ValueError(
            f"glyphs: num_classes={num_classes}, but matplotlib's fonts hold {len(names)} distinct outlines; "
            f"pass num_classes={len(names)} or fewer"
        )
    fragments = torch.stack([signed_distance(template) for template in templates[:FRAGMENTS]])

    def split(count: int, which: int) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.empty(num_classes, count, size, size, 1, dtype=torch.uint8)
        for label in range(num_classes):
            rng = np.random.default_rng((seed, which, label))
            depth = signed_distance(templates[label])
            for block in images[label].split(BLOCK) if count else ():
                block[..., 0] = distort(depth, fragments, len(block), size, rng)
        return images.flatten(0, 1), torch.arange(num_classes).repeat_interleave(count)

    return Glyphs(*split(train, 0), *split(test, 1), names[:num_classes])


# --- outlines -------------------------------------------------------------------------------------------------------


def outlines(limit: int) -> tuple[list[str], torch.Tensor]:
    """Names and templates (c, T, T) uint8, ink 255, of the first `limit` distinct outlines, or of all there are."""
    names: list[str] = []
    templates: list[torch.Tensor] = []
    known = torch.empty(2, 0, COARSE**2)
    for block_names, block in drawn_blocks():
        marks = footprints(block)
        new = new_outlines(marks, known)[: limit - len(names)]
        names += [block_names[i] for i in new]
        templates.append(block[new])
        known = torch.cat([known, marks[:, new]], 1)
        if len(names) == limit:
            break
    return names, torch.cat(templates)


def footprints(templates: torch.Tensor) -> torch.Tensor:
    """Zeros and ones (2, B, COARSE^2): where the ink of B templates lies, and where it is further than a pixel away."""
    margin = (TEMPLATE - BOX) // 2
    box = templates[:, None, margin : margin + BOX, margin : margin + BOX].float()
    ink = (F.avg_pool2d(box, BOX // COARSE) > 64).float()  # a quarter covered: a hairline counts as ink
    far = 1 - F.max_pool2d(ink, 3, stride=1, padding=1)
    return torch.stack([ink, far]).flatten(2)


def new_outlines(marks: torch.Tensor, known: torch.Tensor) -> list[int]:
    """Which footprints of `marks` look like none of `known` and like no earlier new one."""
    seen = same(marks, known).any(1)
    among = same(marks, marks)
    new: list[int] = []
    for i in (~seen).nonzero().flatten().tolist():
        if not among[i, new].any():
            new.append(i)
    return new


def same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Entry (i, j): of either's ink, footprint i of `a` or j of `b`, at most the share STRAY is far from the other."""
    (ink_a, far_a), (ink_b, far_b) = a, b
    return (ink_a @ far_b.T <= STRAY * ink_a.sum(1)[:, None]) & (far_a @ ink_b.T <= STRAY * ink_b.sum(1))


def drawn_blocks() -> Iterator[tuple[list[str], torch.Tensor]]:
    """Names and templates (B, T, T) of every mapped character with an outline, in the data set's order."""
    try:
        from matplotlib.backends.backend_agg import RendererAgg
        from matplotlib.transforms import Affine2D
    except ImportError as error:
        advice = """the glyphs data set draws matplotlib's fonts: pip install "asterism[train]\""""
        raise ImportError(advice) from error
    characters = outline_paths()
    while block := list(islice(characters, BLOCK)):
        canvas = RendererAgg(TEMPLATE, TEMPLATE * len(block), 72)  # one tall column of cells
        pen = canvas.new_gc()
        pen.set_linewidth(0)
        pen.set_snap(False)
        for cell, (_, outline) in enumerate(block):  # Agg counts from the bottom
            place = Affine2D().translate(TEMPLATE / 2, TEMPLATE * (len(block) - cell - 0.5))
            canvas.draw_path(pen, outline, place, (0.0, 0.0, 0.0))
        alpha = np.asarray(canvas.buffer_rgba())[..., 3].reshape(-1, TEMPLATE, TEMPLATE)
        yield [name for name, _ in block], torch.from_numpy(alpha.copy())


def outline_paths() -> Iterator[tuple[str, Any]]:  # Any: matplotlib may be missing where this file is read
    """Name and outline of every mapped character that has one, in the data set's order.

    An outline is a matplotlib path about the origin with longest side BOX.
    """
    import matplotlib
    from matplotlib.ft2font import FT2Font
    from matplotlib.path import Path as Outline

    for face in FACES:
        font = FT2Font(str(Path(matplotlib.get_data_path(), "fonts", "ttf", f"{face}.ttf")))
        font.set_size(1000, 72)  # 1000 pixels per em, so large that hinting no longer moves anything
        label = f"{font.family_name} {font.style_name}".removesuffix(" Book").removesuffix(" Regular")
        for code, index in sorted(font.get_charmap().items(), key=lambda pair: reading_order(pair[0])):
            font.load_char(code)
            vertices, codes = font.get_path()
            contour = (codes == Outline.MOVETO).cumsum()
            solid = np.bincount(contour)[contour] > 4  # shorter ones are invisible: marks where accents attach
            vertices, codes = vertices[solid], codes[solid]
            points = vertices[codes != Outline.CLOSEPOLY]  # a closing vertex is a placeholder
            if unicodedata.category(chr(code)) in ("Cc", "Cf") or not len(points):
                continue
            low, high = points.min(0), points.max(0)
            what = f"U+{code:04X} {chr(code)}" if chr(code).isprintable() else f"U+{code:04X}"
            if face.startswith("cm"):  # these fonts carry an encoding of their own: the glyph's name is what to trust
                what = font.get_glyph_name(index)
            yield f"{what} ({label})", Outline((vertices - (low + high) / 2) * BOX / (high - low).max(), codes)


def reading_order(code: int) -> tuple[int, int]:
    """Plain letters and digits, then signs, then what Unicode derives from others (accented, raised, ligatures)."""
    character = chr(code)
    derived = unicodedata.normalize("NFKD", character) != character
    return (2 if derived else 0 if character.isalnum() else 1), code


# --- distortion -----------------------------------------------------------------------------------------------------
# Places are in units of half the image: (-1, -1) is the top left corner, (1, 1) the bottom right one.


def signed_distance(template: torch.Tensor) -> torch.Tensor:
    """Distance (T, T) to the outline in template pixels, positive inside; a threshold sets the stroke's thickness."""
    inside = template.numpy() > 127
    distance = distance_transform_edt(inside) - distance_transform_edt(~inside)
    return torch.from_numpy((distance - 0.5 * np.sign(distance)).astype(np.float32))


def distort(
    depth: torch.Tensor, fragments: torch.Tensor, count: int, size: int, rng: np.random.Generator
) -> torch.Tensor:
    """`count` random images (n, S, S) uint8 of the outline with signed distances `depth` (T, T)."""
    fine = 2 * size  # drawn at twice the resolution, then averaged
    bend = F.interpolate(uniform(rng, -0.06, 0.06, count, 2, 4, 4), (fine, fine), mode="bicubic", align_corners=True)
    centre = uniform(rng, -0.14, 0.14, count, 2)
    ink = drawn(depth.expand(count, -1, -1), centre, uniform(rng, 0.7, 1.1, count), bend, rng)

    clutter = strokes(uniform(rng, -1, 1, count, 2), fine, rng)
    for _ in range(2):
        other = fragments[torch.from_numpy(rng.integers(len(fragments), size=count))]
        side = uniform(rng, 0, 2 * np.pi, count)
        centre = torch.stack([side.cos(), side.sin()], 1) * uniform(rng, 0.9, 1.4, count, 1)
        clutter = clutter.maximum(drawn(other, centre, uniform(rng, 0.5, 0.9, count), bend, rng))
    ink = ink.maximum(clutter * uniform(rng, 0.4, 1, count, 1, 1))

    x = torch.linspace(-1, 1, size)
    slope = uniform(rng, -0.12, 0.12, count, 2, 1, 1)
    paper, contrast = uniform(rng, 0.15, 0.5, count, 1, 1), uniform(rng, 0.2, 0.5, count, 1, 1)
    grey = paper + slope[:, 0] * x + slope[:, 1] * x[:, None] + contrast * F.avg_pool2d(ink, 2)
    grey = torch.where(uniform(rng, 0, 1, count, 1, 1) < 0.5, grey, 1 - grey)
    noise = torch.from_numpy(rng.standard_normal((count, size, size), np.float32))
    grey = grey + noise * uniform(rng, 0.02, 0.1, count, 1, 1)
    return (grey.clamp(0, 1) * 255).round().to(torch.uint8)


def drawn(
    depths: torch.Tensor, centre: torch.Tensor, scale: torch.Tensor, bend: torch.Tensor, rng: np.random.Generator
) -> torch.Tensor:
    """Ink (n, 2S, 2S) in [0, 1] of n outlines, each rotated, sheared and its stroke thinned or thickened at random."""
    count, fine = len(bend), bend.shape[-1]
    turn, shear = uniform(rng, -20, 20, count).deg2rad(), uniform(rng, -0.15, 0.15, count)
    cos, sin = turn.cos(), turn.sin()
    # From a place in the image to the place in the template, whose outline is BOX / T of its side.
    rotate = torch.stack([torch.stack([cos, sin], 1), torch.stack([shear * cos - sin, shear * sin + cos], 1)], 1)
    inverse = rotate * (BOX / TEMPLATE / 0.8 / scale)[:, None, None]
    affine = torch.cat([inverse, -inverse @ centre[:, :, None]], 2)
    grid = F.affine_grid(affine, [count, 1, fine, fine], align_corners=False) + bend.permute(0, 2, 3, 1)
    depth = F.grid_sample(depths[:, None], grid, padding_mode="border", align_corners=False)[:, 0]
    pixels = depth * (0.8 * scale * fine / BOX)[:, None, None]
    return (0.5 + pixels + fine / 28 * uniform(rng, -0.25, 0.5, count, 1, 1)).clamp(0, 1)


def strokes(middle: torch.Tensor, fine: int, rng: np.random.Generator) -> torch.Tensor:
    """Ink (n, 2S, 2S) of one straight stroke per image about `middle` (n, 2)."""
    count = len(middle)
    turn, reach = uniform(rng, 0, np.pi, count), uniform(rng, 0.2, 0.7, count, 1, 1)
    x = torch.linspace(-1, 1, fine)
    right, down = x - middle[:, :1, None], x[:, None] - middle[:, 1:, None]
    cos, sin = turn.cos()[:, None, None], turn.sin()[:, None, None]
    along, across = right * cos + down * sin, down * cos - right * sin
    distance = torch.hypot((along.abs() - reach).clamp(min=0), across)
    return (0.5 + fine / 2 * (uniform(rng, 0.02, 0.06, count, 1, 1) - distance)).clamp(0, 1)


def uniform(rng: np.random.Generator, low: float, high: float, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.uniform(low, high, shape).astype(np.float32))
