"""The database's clock, as a process knows it between two readings."""

from __future__ import annotations


class Clock:
    """The database's clock as known here: a reading plus the time since, so a lower bound of the real one.

    It goes forward with every reading that shows more. It goes back only when a reading proves that it is ahead: when
    it showed more before the database was asked than the database then answered, so the database's clock was wrong or
    has been set back. An answer that is merely late proves nothing. So whatever the database's clock was once, this one
    is right again with the first reading after it is. Within a run time never goes back: `engine.evolve` sees to it.

    All times are milliseconds since 1970, all monotonic ones seconds.
    """

    def __init__(self) -> None:
        self._read_at = 0.0
        self._read_ms = 0
        self.heard_at = float("-inf")
        """The monotonic time of the last reading, whatever came of it."""

    def read(self, database_ms: int, sent: float, arrived: float) -> None:
        """Take in a reading of the database's clock at some time between `sent` and `arrived` (monotonic)."""
        self.heard_at = max(self.heard_at, arrived)
        # Both are cut to whole milliseconds, so one that seems to be ahead by one need not be.
        if database_ms >= self.at(arrived) or database_ms + 1 < self.at(sent):
            self._read_ms, self._read_at = database_ms, arrived

    def at(self, monotonic: float) -> int:
        """The time at `monotonic` seconds. 0 before the first reading."""
        if not self._read_ms:
            return 0
        return self._read_ms + int((monotonic - self._read_at) * 1000)
