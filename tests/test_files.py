import errno
import os

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
    assert (tmp_path / "file").read_text() == ""
