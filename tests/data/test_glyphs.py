"""What the generated data set `glyphs` promises: distinct outlines in a fixed order, and reproducible distortions."""

import importlib
import importlib.util
import sys
import unicodedata

import numpy as np
import pytest
import torch

# By name: the package may offer the function glyphs under the module's own name.
module = importlib.import_module("asterism.data.glyphs")
glyphs = module.glyphs


@pytest.fixture(scope="module")
def catalogue():
    return module.outlines(4000)


@pytest.fixture(scope="module")
def small():
    return glyphs(12, seed=3, train=40, test=10)


def codes(names):
    return {int(name[2:].split()[0], 16) for name in names if name.startswith("U+")}


# --- outlines -------------------------------------------------------------------------------------------------------


def test_at_least_4000_classes_each_with_a_name_of_its_own(catalogue):
    names, templates = catalogue
    assert len(names) == len(set(names)) == len(templates) == 4000
    assert names[:11] == [f"U+00{code:02X} {chr(code)} (DejaVu Sans)" for code in (*range(0x30, 0x3A), 0x41)]


def test_no_two_classes_look_the_same(catalogue):
    _, templates = catalogue
    assert len(templates.flatten(1).unique(dim=0)) == len(templates)
    marks = module.footprints(templates)
    for start in range(0, len(templates), 1000):
        pairs = module.same(marks[:, start : start + 1000], marks).nonzero()
        assert torch.equal(pairs[:, 0] + start, pairs[:, 1])


def test_fewer_classes_are_the_first_of_more(catalogue):
    names, templates = module.outlines(700)
    assert names == catalogue[0][:700]
    assert torch.equal(templates, catalogue[1][:700])


def test_every_outline_fills_its_box_and_sits_in_the_middle(catalogue):
    for template in catalogue[1][::7]:
        low, high = (template > 0).nonzero().aminmax(dim=0)
        assert module.BOX - 4 <= (high - low + 1).max() <= module.BOX + 2
        assert ((low + high + 1 - module.TEMPLATE).abs() <= 4).all()


@pytest.mark.parametrize(
    "group", ["A\u0391\u0410", "oO\u03bf\u043e\u039f", ".\u00b7\u2219", "cC\u0441", "-_\u2014\u2013|"]
)
def test_the_same_shape_elsewhere_larger_or_smaller_is_one_class(catalogue, group):
    sans = codes(name for name in catalogue[0] if name.endswith("(DejaVu Sans)"))
    present = [character for character in group if ord(character) in sans]
    assert len(present) <= (2 if "|" in group else 1)


def test_shapes_that_differ_stay_apart(catalogue):
    sans = codes(name for name in catalogue[0] if name.endswith("(DejaVu Sans)"))
    assert sans >= {ord(character) for character in "0123456789AEFGHIKMQRabdefghikmnpqrt\u00e8\u00e9\u00ea\u0416\u03a9"}


def test_no_blanks_and_no_control_or_format_characters(catalogue, monkeypatch):
    assert (catalogue[1] > 127).flatten(1).any(1).all()
    monkeypatch.setattr(module, "FACES", ("DejaVuSans",))  # it draws the soft hyphen, among others
    drawn = codes(name for name, _ in module.outline_paths())
    assert not {unicodedata.category(chr(code)) for code in drawn} & {"Cc", "Cf"}


def test_signed_distance_is_the_depth_inside_and_minus_the_distance_outside():
    template = torch.zeros(module.TEMPLATE, module.TEMPLATE, dtype=torch.uint8)
    template[20:31, 20:31] = 255
    depth = module.signed_distance(template)
    assert depth[25, 25] == 5.5
    assert depth[25, 20] == 0.5
    assert depth[25, 31] == -0.5
    assert depth[25, 40] == -9.5


# --- images ---------------------------------------------------------------------------------------------------------


def test_shapes_types_and_labels(small):
    assert small.train_images.shape == (480, 28, 28, 1)
    assert small.test_images.shape == (120, 28, 28, 1)
    assert small.train_images.dtype == small.test_images.dtype == torch.uint8
    assert torch.equal(small.train_labels, torch.arange(12).repeat_interleave(40))
    assert torch.equal(small.test_labels, torch.arange(12).repeat_interleave(10))
    assert len(small.names) == 12
    assert glyphs(2, train=0, test=1, size=20).test_images.shape == (2, 20, 20, 1)


def test_same_arguments_same_bits_other_seed_other_images(small):
    again, other = (glyphs(12, seed=seed, train=40, test=10) for seed in (3, 4))
    assert torch.equal(again.train_images, small.train_images)
    assert torch.equal(again.test_images, small.test_images)
    assert not (other.train_images == small.train_images).flatten(1).all(1).any()


def test_a_class_does_not_depend_on_how_many_there_are_nor_training_on_test(small):
    fewer = glyphs(5, seed=3, train=40, test=2)
    assert torch.equal(fewer.train_images, small.train_images[: 5 * 40])


def test_no_image_is_drawn_twice():
    data = glyphs(3, train=20, test=20)
    every = torch.cat([data.train_images, data.test_images]).flatten(1)
    assert len(every.unique(dim=0)) == len(every)


def test_classes_are_distorted_independently(small):
    brightness = small.train_images.view(12, 40, -1).float().mean(2)
    assert brightness.corrcoef().fill_diagonal_(0).abs().max() < 0.7


def test_blocks_of_a_class_differ(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 4)
    images = glyphs(1, train=12, test=0).train_images.flatten(1)
    assert len(images.unique(dim=0)) == 12


def test_global_generators_are_left_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    glyphs(2, train=2, test=2)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])


def test_half_of_the_images_are_inverted_and_none_is_flat(small):
    grey = small.train_images.flatten(1).float()
    assert 0.35 < (grey.mean(1) > 127).float().mean() < 0.65
    assert grey.std(1).min() > 5


def test_the_nearest_training_image_is_mostly_but_not_always_of_the_right_class():
    data = glyphs(10, train=150, test=40)

    def contrast(images):  # distance from the background's grey, so that inversion does not matter
        grey = images[..., 0].float()
        blurred = torch.nn.functional.avg_pool2d((grey - grey.flatten(1).median(1).values[:, None, None]).abs(), 3, 1)
        return torch.nn.functional.normalize(blurred.flatten(1) - blurred.flatten(1).mean(1, keepdim=True))

    nearest = (contrast(data.test_images) @ contrast(data.train_images).T).argmax(1)
    accuracy = (data.train_labels[nearest] == data.test_labels).float().mean()
    assert 0.6 < accuracy < 0.95


# --- what is refused ------------------------------------------------------------------------------------------------


def test_more_classes_than_outlines(monkeypatch):
    monkeypatch.setattr(module, "FACES", ("cmr10",))
    with pytest.raises(
        ValueError, match=r"num_classes=5000, but .* hold (\d+) distinct .*pass num_classes=\d+"
    ) as raised:
        glyphs(5000)
    held = int(str(raised.value).split("hold ")[1].split()[0])
    assert len(glyphs(held, train=1, test=0).names) == held
    with pytest.raises(ValueError, match=f"num_classes={held + 1}"):
        glyphs(held + 1)


@pytest.mark.parametrize("wrong", [{"num_classes": 0}, {"seed": -1}, {"train": -1}, {"test": -1}, {"size": 4}])
def test_numbers_that_are_too_small(wrong):
    (name, value), *_ = wrong.items()
    with pytest.raises(ValueError, match=f"{name}={value}, but it must be at least"):
        glyphs(**wrong)


def test_without_matplotlib_the_module_imports_and_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    spec = importlib.util.spec_from_file_location("glyphs_alone", module.__file__)
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    with pytest.raises(ImportError, match=r'draws matplotlib\'s fonts: pip install "asterism\[train\]"'):
        alone.glyphs(2)
