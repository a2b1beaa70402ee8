"""How soon a stream that has ended is asked for again.

A server names the pause itself (`retry`, in ms), which may be none, and a stream that is opened anew may end at once,
again and again. So there is a least pause, and streams that bring nothing are asked for ever more seldom."""

from __future__ import annotations

import asyncio
import math
from typing import Final

PAUSE_SECONDS: Final = 1.0  # at least, from the end of a stream to the next request for it
PAUSE_SECONDS_MAX: Final = 30.0
BARREN_MAX: Final = 240  # streams in a row that brought nothing; with these pauses two hours


class ResumePace:
    """The pace of the requests for one stream: that of a call, or that of a server's own messages."""

    def __init__(self) -> None:
        self._barren = 0
        self._opened = math.inf  # the answer to a call itself was not asked for here
        self._next = 0.0

    async def wait(self) -> bool:
        """Wait until the stream may be asked for. False: it has ended without a message too often."""
        clock = asyncio.get_running_loop().time
        if self._barren >= BARREN_MAX:
            return False
        await asyncio.sleep(self._next - clock())
        self._opened = clock()
        return True

    def note_end(self, *, has_said: bool) -> None:
        """The stream has ended. `has_said`: it brought a message."""
        now = asyncio.get_running_loop().time()
        is_barren = not has_said and now - self._opened < PAUSE_SECONDS_MAX
        self._barren = self._barren + 1 if is_barren else 0
        self._next = now + min(PAUSE_SECONDS * 2.0 ** min(max(self._barren - 1, 0), 9), PAUSE_SECONDS_MAX)
