import math
import re
import subprocess
import sys

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism import Prototypes, make_prototypes
from asterism.prototypes import energy, store


@given(st.integers(2, 40), st.integers(1, 45))
def test_exact_kinds_are_exact(num, dim):
    if (dim == 1 and num > 2) or (dim > 2 and num > 2 * dim):
        return
    stars = make_prototypes(num, dim)
    expected = -1 / (num - 1) if num <= dim + 1 else math.cos(2 * math.pi / num) if dim == 2 else 0.0
    assert stars.max_cosine == pytest.approx(expected, abs=1e-14)
    assert stars.optimal and abs(stars.gap) < 1e-12
    assert stars.construction == ("simplex" if num <= dim + 1 else "circle" if dim == 2 else "orthoplex")
    assert stars.points.shape == (num, dim) and stars.points.dtype == torch.float64


def test_simplex_is_centred_and_equiangular():
    points = make_prototypes(9, 12).points
    off = (points @ points.T)[~torch.eye(9, dtype=torch.bool)]
    assert (off + 1 / 8).abs().max() < 1e-14
    assert points.sum(dim=0).abs().max() < 1e-14


@given(st.integers(2, 30), st.integers(2, 6), st.integers(0, 10**6))
def test_max_cosine_is_that_of_the_twin(num, dim, seed):
    points = energy.random_points(num, dim, torch.Generator().manual_seed(seed))
    assert Prototypes(points, "random").max_cosine == pytest.approx(reference.max_cosine(points.numpy()), abs=1e-12)


def test_max_cosine_sees_pairs_across_blocks():
    points = energy.random_points(4000, 3, torch.Generator().manual_seed(1))  # two blocks of rows
    assert energy.max_cosine(torch.cat([points, points[:1]])) == pytest.approx(1, abs=1e-15)
    assert energy.max_cosine(points) < 1 - 1e-9


def test_the_papers_recipe_lowers_its_own_loss_and_ends_worse():
    start = energy.random_points(40, 6, torch.Generator().manual_seed(0))
    paper, ours = make_prototypes(40, 6, kind="gaussian-potential"), make_prototypes(40, 6)
    assert reference.uniformity(paper.points.numpy()) < reference.uniformity(start.numpy()) - 0.1
    assert ours.max_cosine < paper.max_cosine - 0.05
    subset = make_prototypes(40, 6, kind="gaussian-potential", subset=10)
    assert not torch.equal(subset.points, paper.points)
    assert reference.uniformity(subset.points.numpy()) < reference.uniformity(start.numpy()) - 0.1


def test_one_step_of_the_papers_recipe_is_that_of_the_twin(monkeypatch):
    w = energy.random_points(7, 3, torch.Generator().manual_seed(5))
    monkeypatch.setattr(energy, "range", lambda n: [0], raising=False)
    stepped = energy.gaussian_potential(7, 3, seed=5)
    gradient = np.zeros((7, 3))
    for i in range(7):
        for a in range(3):
            up, down = w.numpy().copy(), w.numpy().copy()
            up[i, a] += 1e-6
            down[i, a] -= 1e-6
            gradient[i, a] = (reference.uniformity(up) - reference.uniformity(down)) / 2e-6
    expected = w.numpy() - 0.1 * gradient
    assert np.abs(stepped.numpy() - expected / np.linalg.norm(expected, axis=1, keepdims=True)).max() < 1e-8


def test_same_seed_same_bits_other_seed_other_points():
    a, b, c = (make_prototypes(15, 4, seed=s, cache=False).points for s in (3, 3, 4))
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_more_seconds_improve_what_is_kept_for_those_who_ask():
    plain = make_prototypes(31, 5)
    assert torch.equal(make_prototypes(31, 5, improved=True).points, plain.points)  # nothing better is there yet
    searched = make_prototypes(31, 5, seed=1, seconds=3.0)
    kept = make_prototypes(31, 5, improved=True)
    assert kept.max_cosine == min(searched.max_cosine, plain.max_cosine)
    worse = energy.random_points(31, 5, torch.Generator().manual_seed(0))
    store.keep_best("improved-31x5", worse, energy.max_cosine)
    assert torch.equal(make_prototypes(31, 5, improved=True).points, kept.points)
    assert torch.equal(make_prototypes(31, 5).points, plain.points)  # the same seed, the same bits
    assert make_prototypes(31, 5, seed=2, seconds=1e-9).max_cosine <= searched.max_cosine  # goes on from the best


def test_the_cache_is_used_and_rebuilt_when_altered(monkeypatch):
    made = make_prototypes(20, 4, seed=7)
    (path,) = store.cache_folder().glob("optimised-20x4-seed7-*.safetensors")
    with monkeypatch.context() as patch:
        patch.setattr(energy, "search", lambda *_: pytest.fail("made anew though cached"))
        assert torch.equal(make_prototypes(20, 4, seed=7).points, made.points)
    for spoil in (
        lambda b: b[:-8],
        lambda b: b[:-1] + bytes([b[-1] ^ 1]),
        lambda b: b"",
        lambda b: b"not a tensor file",
    ):
        whole = path.read_bytes()
        path.write_bytes(spoil(whole))
        with pytest.warns(UserWarning, match="made anew"):
            again = make_prototypes(20, 4, seed=7)
        assert torch.equal(again.points, made.points)
        assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_a_warning(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ASTERISM_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="not cached"):
        assert len(make_prototypes(13, 3)) == 13


def test_two_processes_share_one_set(tmp_path, monkeypatch):
    code = """
import os, sys, asterism, asterism.prototypes.energy as energy
real = energy.search
def search(*arguments):
    open(os.path.join(os.environ["ASTERISM_CACHE"], f"made-{os.getpid()}"), "w").close()
    return real(*arguments)
energy.search = search
print(asterism.make_prototypes(60, 5).checksum)
"""
    monkeypatch.setenv("ASTERISM_CACHE", str(tmp_path))
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    checksums = {process.communicate(timeout=120)[0] for process in running}
    assert len(checksums) == 1 and all(process.returncode == 0 for process in running)
    assert len(list(tmp_path.glob("made-*"))) == 1


def test_a_large_code_is_proven_and_proven_again_when_loaded(tmp_path):
    stars = make_prototypes(20_100, 64)
    assert stars.max_cosine == 14 / 62 and stars.evidence.startswith(
        "proven: at most that of Delsarte-Goethals 64/2 short"
    )
    assert energy.max_cosine(stars.points) == pytest.approx(14 / 62, abs=1e-12)
    stars.save(tmp_path / "stars.safetensors")
    assert Prototypes.load(tmp_path / "stars.safetensors").evidence == stars.evidence
    Prototypes(stars.points.roll(1, 0), stars.construction).save(tmp_path / "other.safetensors")
    assert Prototypes.load(tmp_path / "other.safetensors").evidence == "measured in float64"


@pytest.mark.parametrize(
    "kind, num, dim, vectors, cosine",
    [
        ("etf", 7, 9, None, -1 / 6),
        ("maxsep", 7, 9, None, -1 / 6),
        ("orthonormal", 7, 9, None, 0),
        ("hadamard", 8, 8, None, 0),
        ("equiangular-basis", 6, 3, None, 1 / math.sqrt(5)),
        ("learned", 3, 3, 5 * torch.eye(3), 0),
        ("word2vec", 4, 3, 4 * torch.eye(4), -1 / 3),
        ("optimised", 12, 3, None, 1 / math.sqrt(5)),
    ],
)
def test_every_kind_can_be_asked_for(kind, num, dim, vectors, cosine):
    stars = make_prototypes(num, dim, kind=kind, vectors=vectors)
    assert stars.construction == kind and stars.points.shape == (num, dim)
    assert stars.max_cosine == pytest.approx(cosine, abs=1e-6)
    for name in ("random", "hpn", "gaussian-potential"):
        assert make_prototypes(5, 3, kind=name).max_cosine > -1 / 4 - 1e-12


def test_the_receipt_tells_everything():
    stars = make_prototypes(27, 6)
    found = stars.receipt()
    assert (found["construction"], found["optimal"], found["evidence"]) == (
        stars.construction,
        True,
        "measured in float64",
    )
    assert found["mean_nearest_cosine"] == pytest.approx(1 / 4) and found["min_cosine"] == pytest.approx(-1 / 2)
    assert found["frame_condition"] == pytest.approx(1) and found["mean_cosine"] == pytest.approx(-1 / 26)
    assert found["uniformity"] == pytest.approx(reference.uniformity(stars.points.numpy()))
    assert found["seconds"] >= 0 and "order" in found["symmetry"]


def test_save_and_load(tmp_path):
    stars = make_prototypes(11, 4, seed=2)
    stars.save(tmp_path / "stars.safetensors")
    again = Prototypes.load(tmp_path / "stars.safetensors")
    assert torch.equal(again.points, stars.points) and str(again) == str(stars) and again.checksum == stars.checksum
    assert list(tmp_path.iterdir()) == [tmp_path / "stars.safetensors"]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: make_prototypes(1, 3), "num_prototypes came as 1, must be an integer of at least 2"),
        (lambda: make_prototypes(5, 0), "dim came as 0"),
        (lambda: make_prototypes(5.0, 3), "num_prototypes came as 5.0"),
        (lambda: make_prototypes(3, 1), "room for 2"),
        (lambda: make_prototypes(5, 3, kind="gaussian"), "did you mean 'gaussian-potential'"),
        (lambda: make_prototypes(5, 3, seconds=0), "seconds came as 0"),
        (lambda: make_prototypes(5, 3, subset=2), "goes with kind='gaussian-potential'"),
        (lambda: make_prototypes(10**9, 10**4), "of memory, this machine has"),
        (lambda: make_prototypes(9, 4, kind="hpn", seconds=1), "goes with 'auto' and 'optimised' alone"),
        (lambda: make_prototypes(9, 4, vectors=torch.eye(9)), "which takes none"),
        (lambda: make_prototypes(9, 4, kind="word2vec"), "wants vectors=, came none"),
        (lambda: make_prototypes(9, 4, kind="word2vec", vectors=torch.eye(8)), r"must be (9, any width)"),
        (lambda: make_prototypes(9, 4, kind="learned", vectors=torch.eye(9)), r"must be (9, 4)"),
        (lambda: Prototypes(torch.eye(3)[:1], "x"), "at least 2"),
        (lambda: Prototypes(2 * torch.eye(3), "x"), "row 0 of points has norm 2"),
        (lambda: Prototypes(torch.full((3, 3), torch.nan), "x"), "NaN"),
        (lambda: Prototypes(torch.eye(3).long(), "x"), "floating-point matrix"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_loading_what_is_no_prototypes_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        Prototypes.load(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(ValueError, match="truncated or no safetensors"):
        Prototypes.load(tmp_path / "text.safetensors")


@settings(max_examples=3)
@given(st.integers(13, 30))
def test_points_stay_unit(num):
    lengths = make_prototypes(num, 4, kind="optimised", cache=False).points.norm(dim=1)
    assert (lengths - 1).abs().max() < 1e-14
