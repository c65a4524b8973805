import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from asterism.data import load_data
from asterism.data.images import pixels


def save(picture, kind, **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return Image.open(io.BytesIO(buffer.getvalue()))


WIDE = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257  # all 256 greys, in 16 bits


@pytest.mark.parametrize(
    "picture",
    [
        save(Image.fromarray(WIDE), "PNG"),
        save(Image.fromarray(WIDE), "TIFF"),
        save(Image.fromarray(WIDE), "PPM"),
        Image.fromarray(WIDE.astype(np.int32)),
        Image.frombytes("I;16B", (16, 16), WIDE.astype(">u2").tobytes()),
        save(Image.fromarray(WIDE.astype(np.float32) / 65535), "TIFF"),
        save(Image.fromarray(WIDE.astype(np.float32) / 257), "TIFF"),
        save(Image.fromarray(WIDE.astype(np.float32)), "TIFF"),
        Image.fromarray((WIDE // 257).astype(np.uint8)),
    ],
    ids=["png16", "tiff16", "pgm16", "int32", "big-endian", "float 0..1", "float 0..255", "float 0..65535", "8 bits"],
)
def test_deep_images_keep_all_their_greys(picture):
    expected = np.arange(256).reshape(16, 16, 1)
    assert np.array_equal(pixels(picture, None, 1), expected)
    assert np.array_equal(pixels(picture, None), expected.repeat(3, axis=2))


@pytest.mark.parametrize("value", [70000, -1, np.nan, np.inf])
def test_values_that_no_image_has_are_an_error_not_white(value):
    values = np.zeros((4, 4), np.float32 if not np.isfinite(value) else np.int32)
    values[1, 2] = value
    with pytest.raises(ValueError, match=r"must lie in 0\.\.65535"):
        pixels(Image.fromarray(values), None)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P"])
def test_what_is_transparent_lies_on_white_and_what_is_opaque_keeps_its_bits(mode):
    values = np.random.default_rng(0).integers(0, 256, (8, 8, 4), dtype=np.uint8)
    values[..., 3] = 255
    values[2:5, 3:6, 3] = 0
    if mode == "LA":
        values[..., :3] = values[..., :1]
    picture = Image.fromarray(values)
    if mode in ("P", "PA"):
        picture = picture.convert("RGB").quantize(200)
        values[..., :3] = np.asarray(picture.convert("RGB"))
        if mode == "PA":
            picture = picture.convert("PA")
            picture.putalpha(Image.fromarray(values[..., 3]))
        else:
            index = int(np.asarray(picture)[0, 0])
            values[..., 3] = np.where(np.asarray(picture) == index, 0, 255)
            picture = save(picture, "PNG", transparency=index)
    else:
        picture = picture.convert(mode)
    expected = np.where(values[..., 3:] == 0, 255, values[..., :3])
    assert (values[..., 3] == 0).any()
    assert np.array_equal(pixels(picture, None), expected)


def test_half_transparent_is_half_white():
    assert pixels(Image.new("RGBA", (2, 2), (0, 100, 200, 128)), None)[0, 0].tolist() == [127, 177, 227]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["RGB", "I;16"])
def test_exif_orientation_is_honoured(orientation, mode):
    upright = np.arange(6, dtype=np.uint16).reshape(2, 3) * 20
    turn = {  # how the camera stored what stood upright (EXIF 2.3, tag 274)
        1: lambda a: a,
        2: np.fliplr,
        3: lambda a: np.rot90(a, 2),
        4: np.flipud,
        5: np.transpose,
        6: lambda a: np.rot90(a, 1),
        7: lambda a: np.rot90(np.transpose(a), 2),
        8: lambda a: np.rot90(a, -1),
    }[orientation]
    stored = np.ascontiguousarray(turn(upright))
    picture = (
        Image.fromarray(stored * 257) if mode == "I;16" else Image.fromarray(stored.astype(np.uint8)).convert(mode)
    )
    exif = Image.Exif()
    exif[274] = orientation
    assert np.array_equal(pixels(save(picture, "PNG", exif=exif), None, 1)[..., 0], upright)


def test_cmyk():
    picture = Image.new("CMYK", (4, 4), (0, 255, 255, 0))
    assert pixels(picture, None)[0, 0].tolist() == [255, 0, 0]
    assert pixels(picture, None, 1).shape == (4, 4, 1)


@given(*[st.integers(1, 40)] * 4)
def test_the_middle_is_taken_whatever_the_shape(width, height, target_width, target_height):
    """A picture that is the same left and right, up and down, stays so."""
    rows, columns = np.abs(np.arange(height) - (height - 1) / 2), np.abs(np.arange(width) - (width - 1) / 2)
    values = (4 * rows[:, None] + columns).astype(np.uint8)
    made = pixels(Image.fromarray(values), (target_width, target_height), 1)[..., 0].astype(int)
    assert made.shape == (target_height, target_width)
    assert np.abs(made - made[::-1]).max() <= 1
    assert np.abs(made - made[:, ::-1]).max() <= 1


def test_a_folder_of_16_bit_images_is_not_white(tmp_path):
    for k, name in enumerate(("dark", "bright")):
        (tmp_path / name).mkdir()
        for i in range(3):
            values = np.full((8, 8), 257 * (60 + 90 * k + i), np.uint16)
            Image.fromarray(values).save(tmp_path / name / f"{i}.png")
    data = load_data(f"folder:{tmp_path}", image_size=8, validation=0)
    greys = torch.cat([data.train.inputs, data.test.inputs])[:, 0, 0, 0].tolist()
    assert sorted(greys) == [60, 61, 62, 150, 151, 152]
