import contextlib
import errno
import os
import signal

import numpy as np
import pytest
import torch

from asterism import TrainConfig, files, train
from asterism.data import load_data
from asterism.runs import Checkpoint


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "state.safetensors"
    files.write_tensors(path, {"a": torch.ones(3)}, {"n": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="No space left"):
            files.write_tensors(path, {"a": torch.zeros(3)}, {"n": 2})
    tensors, metadata = files.read_tensors(path)
    assert torch.equal(tensors["a"], torch.ones(3))
    assert metadata == {"n": 1}
    assert list(tmp_path.iterdir()) == [path]


@contextlib.contextmanager
def small_disk():
    """Files may not grow beyond 1000 bytes: what a full disk does to a writer in the middle of its work. No fixture: pytest's
    own output may be a file, too."""
    resource = pytest.importorskip("resource")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_fills_while_a_file_is_written(tmp_path):
    files.write_tensors(tmp_path / "a.safetensors", {"a": torch.ones(3)}, {})
    files.write_text(tmp_path / "b.json", "old")
    with small_disk(), pytest.raises(OSError, match=r"File too large; what was there is unchanged.*a.safetensors"):
        files.write_tensors(tmp_path / "a.safetensors", {"a": torch.ones(3000)}, {})
    with small_disk(), pytest.raises(OSError, match=r"File too large; what was there is unchanged: make room.*b.json"):
        files.write_text(tmp_path / "b.json", "new" * 1000)
    assert len(files.read_tensors(tmp_path / "a.safetensors")[0]["a"]) == 3
    assert (tmp_path / "b.json").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2


def test_without_permission_the_error_names_the_file_and_not_a_temporary_one(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / "temporary"))

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(PermissionError, match=r"write elsewhere: '.*state.json'"):
        files.write_text(tmp_path / "state.json", "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    files.write_tensors(tmp_path / "a.safetensors", {"a": torch.ones(3)}, {})
    (tmp_path / "a.safetensors").chmod(0)
    with pytest.raises(PermissionError):
        files.read_tensors(tmp_path / "a.safetensors")


def test_an_altered_header_is_found(tmp_path):
    path = tmp_path / "a.safetensors"
    files.write_tensors(
        path, {"a": torch.ones(3)}, {"temperature": 1.25, "names": ["cat", "dög"], "nothing": float("nan")}
    )
    assert files.read_tensors(path)[1]["names"] == ["cat", "dög"]
    path.write_bytes(path.read_bytes().replace(b"1.25", b"9.25"))
    with pytest.raises(ValueError, match="was altered"):
        files.read_tensors(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut off", b"\x93NUMPY"])
def test_what_is_no_npz(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz is no npz file of numbers and texts"):
        files.read_npz(tmp_path / "a.npz")
    with pytest.raises(FileNotFoundError):
        files.read_npz(tmp_path / "none.npz")


def test_objects_in_an_npz_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.array([{"x": 1}]))
    with pytest.raises(ValueError, match="of numbers and texts"):
        files.read_npz(tmp_path / "a.npz")


def test_what_is_no_json(tmp_path):
    for content in (b"{", b"\xff\xfe"):
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.json is no JSON"):
            files.read_json(tmp_path / "a.json")


def test_the_checksum_sees_names_shapes_types_and_values():
    base = {"a": torch.arange(6.0), "b": torch.zeros(0)}
    others = [
        {"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(0)},
        {"c": torch.arange(6.0), "b": torch.zeros(0)},
        {"a": torch.arange(6.0).double(), "b": torch.zeros(0)},
        {"a": torch.arange(6.0) + torch.eye(6)[0] * 1e-6, "b": torch.zeros(0)},
        {"a": torch.arange(6.0)},
    ]
    assert files.checksum(base) == files.checksum({k: v.clone() for k, v in reversed(base.items())})
    assert len({files.checksum(t) for t in [base, *others]}) == 6


def test_a_safetensors_file_of_somebody_else_is_told_apart(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="none that asterism wrote"):
        files.read_tensors(tmp_path / "other.safetensors")


def run_config(folder):
    return TrainConfig(data="digits", backbone="mlp", width=2, epochs=2, batch_size=64, run_dir=str(folder))


def test_a_full_disk_ends_a_run_and_keeps_its_last_checkpoint(tmp_path, monkeypatch):
    digits, calls, real = load_data("digits"), [0], os.fsync

    def fills(descriptor):
        calls[0] += 1
        return real(descriptor) if calls[0] < 9 else full_disk()

    monkeypatch.setattr(os, "fsync", fills)
    with pytest.raises(OSError, match="No space left"):
        train(run_config(tmp_path / "run"), data=digits, quiet=True)
    monkeypatch.undo()
    monkeypatch.setenv("ASTERISM_CACHE", str(tmp_path / "cache"))
    assert Checkpoint.load(tmp_path / "run" / "last.safetensors").progress.epoch == 1
    resumed = train(TrainConfig(run_dir=str(tmp_path / "run"), resume=True), data=digits, quiet=True)
    whole = train(run_config(tmp_path / "whole"), data=digits, quiet=True)
    assert resumed.accuracy == whole.accuracy


def test_a_run_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        train(run_config(tmp_path / "file" / "run"), quiet=True)
    with pytest.raises(ValueError, match="file is a file, must be a folder"):
        train(run_config(tmp_path / "file"), quiet=True)
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize("there", [True, False])
def test_a_run_that_cannot_start_leaves_nothing(tmp_path, monkeypatch, there):
    folder = tmp_path / "a" / "b"
    if there:
        folder.mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        train(TrainConfig(data=f"folder:{tmp_path / 'none'}", run_dir=str(folder)), quiet=True)
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        train(run_config(folder), quiet=True)
    assert sorted(p.name for p in tmp_path.rglob("*")) == (["a", "b"] if there else [])
