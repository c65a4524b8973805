"""Progress for whoever looks on: one live line in a terminal, plain lines now and then in a log, nothing when quiet."""

from __future__ import annotations

import shutil
import sys
import time


class Console:
    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.terminal = sys.stderr.isatty()
        self.last = time.monotonic()

    def update(self, text: str) -> None:
        """What is going on. In a terminal it replaces the line before; in a log it is kept to one in ten seconds."""
        now = time.monotonic()
        if self.quiet or now - self.last < (0.1 if self.terminal else 10):
            return
        self.last = now
        if self.terminal:
            width = shutil.get_terminal_size().columns
            print(f"\r\033[K{text[: width - 1]}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def line(self, text: str) -> None:
        """What stays."""
        if not self.quiet:
            print(f"\r\033[K{text}" if self.terminal else text, file=sys.stderr, flush=True)
            self.last = time.monotonic()

    def clear(self) -> None:
        if self.terminal and not self.quiet:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
