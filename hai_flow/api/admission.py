"""How much this process takes on at a time. What is beyond is refused before anything is stored (PROMISES P12)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from hai_flow.errors import Rejected

STREAMS_MAX: Final = 1000
COMMANDS_MAX: Final = 2000


class Admission:
    """Counts open streams and commands that wait for their commit."""

    def __init__(self, streams_max: int = STREAMS_MAX, commands_max: int = COMMANDS_MAX) -> None:
        self.streams = 0
        self.commands = 0
        self._streams_max = streams_max
        self._commands_max = commands_max

    def open_stream(self) -> None:
        """Take one of the places for streams. Raises Rejected 429 if there is none."""
        if self.streams >= self._streams_max:
            raise Rejected(429, "streams_busy", f"this server has {self.streams} streams open, the most it may have.")
        self.streams += 1

    def close_stream(self) -> None:
        """Give the place back."""
        self.streams -= 1

    @contextlib.contextmanager
    def command(self) -> Iterator[None]:
        """Around a command's way through the committer. Raises Rejected 429 if too many are on it."""
        if self.commands >= self._commands_max:
            raise Rejected(429, "commands_busy", f"{self.commands} commands wait for their commit, the most that may.")
        self.commands += 1
        try:
            yield
        finally:
            self.commands -= 1
