import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asterism.data import held_out, load_data


def picture(seed, size=(10, 12), kind="PNG", mode="RGB"):
    from PIL import Image

    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(values).convert(mode).save(buffer, kind)
    return buffer.getvalue(), values


def write_parquet(path, labels, *, column="label", image="image", names=None, seed=0):
    import datasets

    features = datasets.Features(
        {
            image: datasets.Image(),
            column: datasets.ClassLabel(names=names)
            if names
            else datasets.Value("string" if isinstance(labels[0], str) else "int64"),
        }
    )
    rows = {image: [{"bytes": picture(seed + i, (8, 8))[0], "path": None} for i in range(len(labels))], column: labels}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(str(path))


@pytest.fixture(autouse=True)
def own_datasets_cache(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.floats(0, 0.9), st.integers(0, 99))
def test_held_out_parts_are_disjoint_whole_and_leave_every_class_something(labels, share, seed):
    y = torch.tensor(labels)
    rest, out = held_out(y, share, seed)
    assert sorted([*rest.tolist(), *out.tolist()]) == list(range(len(y)))
    for k in set(labels):
        n = labels.count(k)
        assert int((y[out] == k).sum()) == min(round(share * n), n - 1)
    again = held_out(y, share, seed)
    assert torch.equal(again[1], out)


def test_digits():
    data = load_data("digits")
    assert data.shape == (8, 8, 1)
    assert data.train.inputs.dtype == torch.uint8
    assert sum(map(len, (data.train, data.val, data.test))) == 1797
    mean, deviation = data.statistics()
    x = data.train.inputs.double() / 255
    assert mean[0] == pytest.approx(x.mean().item())
    assert deviation[0] == pytest.approx(x.std(correction=0).item())


def test_folder(tmp_path):
    for split, count in (("train", 5), ("test", 2)):
        for k, name in enumerate(("cat", "a dog")):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(count):
                (tmp_path / split / name / f"{i}.png").write_bytes(picture(100 * k + i)[0])
    data = load_data(f"folder:{tmp_path}", image_size=8, validation=0.2)
    assert data.names == ["a dog", "cat"]
    assert data.shape == (8, 8, 3)
    assert (len(data.train), len(data.val), len(data.test)) == (8, 2, 4)
    flat = load_data(f"folder:{tmp_path / 'train'}", image_size=8)
    assert len(flat.test) == 2  # held out, since there is no test folder


def test_an_image_of_the_right_size_is_kept_to_the_bit(tmp_path):
    pixels = {}
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        for i in range(2):
            data, pixels[name, i] = picture(ord(name) + i, (9, 9))
            (tmp_path / name / f"{i}.png").write_bytes(data)
    data = load_data(f"folder:{tmp_path}", image_size=9, validation=0)
    kept = {x.numpy().tobytes() for x in torch.cat([data.train.inputs, data.test.inputs])}
    assert kept == {p.tobytes() for p in pixels.values()}


def test_an_image_of_no_known_kind_is_named(tmp_path):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_text("hello")
    with pytest.raises(
        ValueError, match=r"2 of 2 .* the first is .*x/1.png \(ValueError: of no format that Pillow knows\)"
    ):
        load_data(f"folder:{tmp_path}")


def test_the_hub_out_of_reach_is_said(monkeypatch):
    import datasets

    def unreachable(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(ValueError, match=r"uoft-cs/cifar10 on the hub cannot be read .*no network.* give --data-root"):
        load_data("cifar10")


def test_broken_images_are_named_counted_and_skipped_only_when_asked(tmp_path):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        for i in range(4):
            (tmp_path / name / f"{i}.png").write_bytes(picture(i)[0])
    (tmp_path / "y" / "2.png").write_bytes(picture(2)[0][:100])
    with pytest.raises(ValueError, match=r"1 of 8 images are broken, the first is .*y/2.png .*--skip-broken"):
        load_data(f"folder:{tmp_path}")
    with pytest.warns(UserWarning, match=r"skipped 1 broken images of 8: .*2.png"):
        data = load_data(f"folder:{tmp_path}", skip_broken=True)
    assert sum(map(len, (data.train, data.val, data.test))) == 7


@pytest.mark.parametrize("options", [{"names": ["p", "q"]}, {}, {"column": "fine_label", "image": "img"}])
def test_parquet(tmp_path, options):
    write_parquet(tmp_path / "train-0.parquet", [0, 1, 0, 1], **options)
    write_parquet(tmp_path / "train-1.parquet", [1, 0], seed=50, **options)
    write_parquet(tmp_path / "test-0.parquet", [1, 0, 1], seed=90, **options)
    data = load_data(f"parquet:{tmp_path}", validation=0)
    assert (len(data.train), len(data.val), len(data.test)) == (6, 0, 3)
    assert data.names == options.get("names", ["0", "1"])
    assert data.test.labels.tolist() == [1, 0, 1]
    assert np.array_equal(data.train.inputs[4].numpy(), picture(50, (8, 8))[1])
    one = load_data(f"parquet:{tmp_path / 'train-0.parquet'}", validation=0)
    assert len(one.train) + len(one.test) == 4


def test_parquet_with_labels_as_text(tmp_path):
    write_parquet(tmp_path / "train.parquet", ["b", "a", "b", "a"], column="kind")
    data = load_data(f"parquet:{tmp_path}", label_column="kind", validation=0)
    assert data.names == ["a", "b"]
    with pytest.raises(ValueError, match="name another label column with --label-column"):
        load_data(f"parquet:{tmp_path}")


def test_named_sets_come_from_parquet_files_under_a_root(tmp_path):
    names = [f"class {i}" for i in range(100)]
    (tmp_path / "cifar100").mkdir()
    write_parquet(
        tmp_path / "cifar100" / "train-00000-of-00001.parquet",
        list(range(100)) * 2,
        column="fine_label",
        image="img",
        names=names,
    )
    write_parquet(
        tmp_path / "cifar100" / "test-00000-of-00001.parquet",
        list(range(100)),
        column="fine_label",
        image="img",
        names=names,
    )
    data = load_data("cifar100", root=str(tmp_path), validation=0.5)
    assert data.names == names
    assert (len(data.train), len(data.val), len(data.test)) == (100, 100, 100)
    assert (data.crop, data.flip) == (4, True)
    with pytest.raises(FileNotFoundError, match=r"is not under --data-root .*no train\*.parquet"):
        load_data("cifar10", root=str(tmp_path / "cifar100" / "none"))


def test_features(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 5)), np.arange(30) % 3
    np.savez(tmp_path / "f.npz", features=x, labels=y, test_features=x[:6], test_labels=y[:6])
    data = load_data(f"features:{tmp_path / 'f.npz'}")
    assert data.shape == (5,)
    assert len(data.test) == 6
    assert torch.equal(data.test.inputs, torch.from_numpy(x[:6]).float())
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"features": x.tolist(), "label": [f"k{v}" for v in y]}), tmp_path / "f.parquet")
    data = load_data(f"features:{tmp_path / 'f.parquet'}", validation=0)
    assert data.names == ["k0", "k1", "k2"]
    assert len(data.train) + len(data.test) == 30


def npz(tmp_path, **arrays):
    np.savez(tmp_path / "f.npz", **arrays)
    return f"features:{tmp_path / 'f.npz'}"


def table(tmp_path, kind="features", **columns):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), tmp_path / "f.parquet")
    return f"{kind}:{tmp_path / 'f.parquet'}"


def text(tmp_path, name, kind):
    (tmp_path / name).write_text("hello")
    return f"{kind}:{tmp_path / name}"


FINE = {"features": np.ones((4, 2)), "labels": np.array([0, 1, 0, 1])}
PNG = {"bytes": picture(0)[0], "path": None}


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda t: "cifar", "did you mean 'cifar10' or 'cifar100'"),
        (lambda t: f"folder:{t / 'none'}", "does not exist"),
        (lambda t: "folder:", "no path came"),
        (lambda t: f"folder:{t}", "no subfolders came"),
        (lambda t: f"parquet:{t}", "no .parquet file came"),
        (lambda t: npz(t, x=np.ones((3, 2))), "holds x, must hold features"),
        (
            lambda t: npz(t, features=np.full((4, 2), np.nan), labels=np.array([0, 1, 0, 1])),
            "row 0 of features holds NaN",
        ),
        (lambda t: npz(t, features=np.ones((4, 2)), labels=np.array([0, 1, 0])), "4 rows and 3 labels"),
        (lambda t: npz(t, features=np.ones((4, 2)), labels=np.array([0, 1, 0, 1.5])), "must be integers or strings"),
        (lambda t: npz(t, features=np.ones((4, 2)), labels=np.array([0, -1, 0, 1])), "labels run from -1"),
        (lambda t: npz(t, features=np.ones(4), labels=np.array([0, 1, 0, 1])), "must be a floating-point matrix"),
        (
            lambda t: npz(t, features=np.full((2, 2), "a"), labels=np.array([0, 1])),
            "features came as <U1, must be numbers",
        ),
        (lambda t: npz(t, features=np.full((2, 2), None), labels=np.array([0, 1])), "no npz file of numbers"),
        (lambda t: npz(t, **FINE, test_features=np.ones((2, 2))), "test_features and test_labels must come together"),
        (
            lambda t: npz(t, **FINE, test_features=np.ones((1, 3)), test_labels=np.array([0])),
            "training features have 2 numbers, test features 3",
        ),
        (lambda t: table(t, features=[[1.0, 2.0], [1.0]], label=[0, 1]), "must be lists of one length"),
        (lambda t: table(t, features=[[1.0, 2.0], None], label=[0, 1]), "must be lists of one length, without gaps"),
        (lambda t: table(t, "parquet", image=[1, 2], label=[0, 1]), "column 'image' must hold image files"),
        (lambda t: table(t, "parquet", image=[PNG, PNG], label=[0, None]), "labels in column 'label' hold None"),
        (lambda t: table(t, "parquet", image=[PNG, PNG], label=[0, -1]), "labels in column 'label' run from -1"),
        (
            lambda t: table(t, "parquet", image=[PNG, {**PNG, "bytes": PNG["bytes"][:50]}], label=[0, 1]),
            r"1 of 2 images are broken, the first is train row 1 .* give --skip-broken",
        ),
        (
            lambda t: table(t, "parquet", image=[PNG, {**PNG, "bytes": picture(0, (9, 8))[0]}], label=[0, 1]),
            "row 1 is 9 x 8, the first image 10 x 12: must all be of one size, or give --image-size",
        ),
        (lambda t: text(t, "f.parquet", "parquet"), r"f.parquet cannot be read \(ArrowInvalid.*: restore the file"),
        (lambda t: text(t, "f.parquet", "features"), "f.parquet"),
        (lambda t: text(t, "f.npz", "features"), "f.npz is no npz file"),
        (lambda t: npz(t, features=np.ones((4, 2)), labels=np.array([0, 0, 0, 0])), "1 class came, must be at least 2"),
        (
            lambda t: npz(t, features=np.ones((4, 2)), labels=np.array([0, 0, 2, 2])),
            "1 of 3 classes have no training image, the first is '1'",
        ),
    ],
)
def test_bad_input(tmp_path, make, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_data(make(tmp_path))


def test_an_empty_class_folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match="no image came"):
        load_data(f"folder:{tmp_path}")
    (tmp_path / "a" / "1.png").write_bytes(picture(0)[0])
    with pytest.raises(ValueError, match="1 of 2 classes have no training image, the first is 'b'"):
        load_data(f"folder:{tmp_path}")


@pytest.mark.parametrize(
    "name, options",
    [
        ("digits", {"num_classes": 5}),
        ("digits", {"image_size": 16}),
        ("features:f.npz", {"image_size": 16}),
        ("folder:photos", {"label_column": "label"}),
        ("glyphs", {"root": "data"}),
    ],
)
def test_options_that_a_set_has_no_use_for_are_refused(name, options):
    with pytest.raises(ValueError, match=r"=\w+ came with .* alone: leave it out"):
        load_data(name, **options)
