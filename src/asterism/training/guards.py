"""What must hold while a run goes on, and be put back when it ends: signals, generators, somebody else's logger."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Iterator
from typing import Any

import torch


class Stop:
    signal: int | None = None


@contextlib.contextmanager
def signals() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM ask the loop to save and stop; a second Ctrl-C stops at once."""
    stop = Stop()

    def ask(number: int, frame: Any) -> None:
        if stop.signal is not None:
            raise KeyboardInterrupt
        stop.signal = number

    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
    except ValueError:  # not in the main thread, where signals cannot be had
        pass
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


def own_generator(device: torch.device) -> contextlib.AbstractContextManager:
    """The global generators are put back as they were when the run ends."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device.index or 0], device_type=device.type)
