"""Every test gets a cache folder of its own and a fixed global seed; reference.py can be imported as `reference`."""

import os

# The tests are small: two threads that wait for each other make them slower, on a busy machine a hundred times.
os.environ["OMP_NUM_THREADS"] = "1"

import pytest
import torch
from hypothesis import settings

settings.register_profile("asterism", max_examples=30, deadline=None, derandomize=True)
settings.load_profile("asterism")


@pytest.fixture(autouse=True)
def fresh(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTERISM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    torch.manual_seed(0)
