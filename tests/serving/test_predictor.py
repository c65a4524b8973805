import io

import numpy as np
import pytest
import torch

from asterism import Predictor, TrainConfig, train
from asterism.data import load_data


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


@pytest.fixture(scope="module")
def run(tmp_path_factory, digits):
    folder = tmp_path_factory.mktemp("runs") / "digits"
    train(
        TrainConfig(
            data="digits", backbone="mlp", width=2, epochs=3, batch_size=64, precision="32", run_dir=str(folder)
        ),
        data=digits,
        quiet=True,
    )
    return folder


@pytest.fixture(scope="module")
def predictor(run):
    return Predictor.load(run)


def test_it_needs_no_training_loop(run):
    import subprocess
    import sys

    code = f"import sys, asterism; asterism.Predictor.load({str(run)!r})\n"
    code += "print([m for m in sys.modules if 'asterism.training' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_says_what_it_knows(predictor, digits):
    said = predictor.predict(digits.test.inputs, others=2)
    assert (said.indices == digits.test.labels).float().mean() > 0.9
    assert torch.allclose(said.probabilities.sum(dim=1), torch.ones(len(digits.test)))
    assert said.labels == [digits.names[i] for i in said.indices]
    assert said.cosines.abs().max() <= 1 + 1e-5
    for row, index, near in zip(said.probabilities, said.indices, said.nearest, strict=True):
        order = row.argsort(descending=True)
        assert order[0] == index
        assert [digits.names[j] for j in order[1:3]] == [name for name, _ in near]
        assert [row[j].item() for j in order[1:3]] == pytest.approx([p for _, p in near])


def test_features_are_unit_and_their_cosines_are_those_of_the_stars(predictor, digits):
    features = predictor.embed(digits.test.inputs[:7])
    assert torch.allclose(features.norm(dim=1), torch.ones(7), atol=1e-5)
    said = predictor.predict(digits.test.inputs[:7])
    assert torch.allclose(features @ predictor.model.method.head.weight.T, said.cosines, atol=1e-5)


def test_probabilities_carry_the_fitted_temperature(predictor, digits):
    said = predictor.predict(digits.val.inputs)
    scale = predictor.model.method.head.scale
    assert torch.allclose(said.probabilities, (scale * said.cosines / predictor.temperature).softmax(dim=1), atol=1e-5)

    def loss(t):
        return torch.nn.functional.cross_entropy(scale * said.cosines / t, digits.val.labels)

    assert loss(predictor.temperature) <= min(loss(predictor.temperature * f) for f in (0.9, 1.1)) + 1e-6


def test_all_ways_to_give_an_image_agree(predictor, digits, tmp_path):
    from PIL import Image

    pixels = digits.test.inputs[0].numpy()
    Image.fromarray(pixels[..., 0]).save(tmp_path / "7.png")
    Image.fromarray(pixels[..., 0].repeat(4, 0).repeat(4, 1)).save(tmp_path / "big.png")
    ways = [
        pixels,
        digits.test.inputs[0],
        pixels.astype(np.float32) / 255,
        str(tmp_path / "7.png"),
        tmp_path / "7.png",
        Image.open(tmp_path / "7.png"),
        [pixels],
        pixels[None],
        [str(tmp_path / "7.png")],
        [pixels[..., 0]],
    ]
    answers = [predictor.predict(way) for way in ways]
    for answer in answers:
        assert answer.probabilities.shape == (1, 10)
        assert torch.allclose(answer.probabilities, answers[0].probabilities, atol=1e-6)
    assert predictor.predict(tmp_path / "big.png").labels == answers[0].labels


def test_best_and_last(run):
    assert Predictor.load(run, best=True).temperature > 0
    assert torch.equal(
        Predictor.load(run / "last.safetensors").model.method.head.assignment,
        Predictor.load(run).model.method.head.assignment,
    )


def test_nothing_is_made_anew_on_loading(run, monkeypatch):
    from asterism.methods import fixed

    monkeypatch.setattr(fixed, "make_prototypes", lambda *a, **k: pytest.fail("prototypes made on loading"))
    assert Predictor.load(run).model.num_classes == 10


@pytest.mark.parametrize(
    "images, message",
    [
        (np.zeros((3, 9, 9, 1), np.uint8), r"shape \(9, 9, 1\)"),
        (np.zeros((3, 8, 8, 1), np.int64), "type torch.int64"),
        (np.full((1, 8, 8, 1), np.nan, np.float32), "NaN or infinity"),
        ([], "no image came"),
    ],
)
def test_bad_input(predictor, images, message):
    with pytest.raises(ValueError, match=message):
        predictor.predict(images)


def test_files_that_are_no_images(predictor, tmp_path):
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(ValueError, match=r"text.png is no image that can be read"):
        predictor.predict(tmp_path / "text.png")
    with pytest.raises(FileNotFoundError):
        predictor.predict(tmp_path / "none.png")


def test_folders_that_are_no_runs(tmp_path):
    with pytest.raises(FileNotFoundError, match="it is no run folder"):
        Predictor.load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="go on with --resume"):
        Predictor.load(tmp_path)


def pictures(folder):
    """The same scene as a camera, a scanner, a web page and a microscope would store it."""
    from PIL import Image

    scene = np.random.default_rng(0).integers(0, 256, (31, 44, 3), dtype=np.uint8)
    colour, grey = Image.fromarray(scene), Image.fromarray(scene[..., 0])
    turned = Image.Exif()
    turned[274] = 6
    alpha = colour.copy()
    alpha.putalpha(grey)
    colour.save(folder / "wide.png")
    colour.transpose(Image.Transpose.ROTATE_90).save(folder / "high.png")
    colour.crop((0, 0, 16, 16)).save(folder / "as-it-is.png")
    grey.save(folder / "grey.png")
    Image.fromarray(scene[..., 0].astype(np.uint16) * 257).save(folder / "deep.png")
    colour.save(folder / "camera.jpg", exif=turned)
    alpha.save(folder / "web.png")
    colour.convert("CMYK").save(folder / "print.jpg")
    colour.quantize(50).save(folder / "palette.gif")
    return sorted(folder.iterdir())


def test_a_file_is_seen_as_training_saw_it_to_the_bit(tmp_path):
    from asterism.data.augment import Augment, Batches
    from asterism.runs import Checkpoint, DataInfo, Model, Progress

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        files = pictures(tmp_path / name)
    data = load_data(f"folder:{tmp_path}", image_size=16, validation=0.3)
    config = TrainConfig(data=f"folder:{tmp_path}", backbone="mlp", width=1, dim=1)
    info = DataInfo(data.shape, data.names, *data.statistics())
    model = Model(config, info)
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
    tensors |= {f"means.{k}": v for k, v in model.method.means.state_dict().items()}
    predictor = Predictor(Checkpoint(tensors, Progress(), config, info, {}))
    predictor.model = lambda inputs: inputs  # what the network gets to see

    seen = next(predictor._features(files))
    assert len(seen) == 9
    trained = [
        Batches(part, info.mean, info.deviation, torch.device("cpu"), Augment(), 0).plain(slice(None)).inputs
        for part in (data.train, data.val, data.test)
    ]
    trained = {x.numpy().tobytes() for x in torch.cat(trained)}
    assert {x.numpy().tobytes() for x in seen} == trained
    from PIL import Image

    opened = [Image.open(io.BytesIO(f.read_bytes())) for f in files]
    assert torch.equal(next(predictor._features(opened)), seen)
