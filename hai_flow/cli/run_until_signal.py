"""The life of a process: it works until it is done or a signal ends it, and its exit code says which."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import FrameType
from typing import Final

from hai_flow.cli.errors import OK, TERMINATED
from hai_flow.cli.terminal import note, say

WORKS_SHOWN: Final = 10


def live(work: Callable[[], Awaitable[int | None]], *, interrupted: int = OK) -> int:
    """Run `work` until it ends or a signal cancels it. Returns the exit code for that.

    Ctrl-C gives `interrupted`, SIGTERM 143. `work` may take both signals over for a while, as the web server does.
    A second signal does not wait for anything."""
    received: list[int] = []

    async def main() -> int:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def end(number: int, frame: FrameType | None) -> None:
            received.append(number)
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_DFL)
            loop.call_soon_threadsafe(task.cancel)

        with handling(end):
            return await work() or OK

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(main())
    except asyncio.CancelledError:
        pass
    except Exception as error:
        if not received:
            raise
        note(f"While stopping: {error}")  # for example, the database ended first: other workers take over the runs
    return exit_code_for(received[0] if received else None, interrupted)


def tell_stopping(seconds: float, works: Sequence[str]) -> None:
    """Say what the process waits for, and how long at most. From now on a signal ends it at once, and quietly."""
    names = [*works[:WORKS_SHOWN], *([f"{len(works) - WORKS_SHOWN} more"] if len(works) > WORKS_SHOWN else [])]
    waits = "\n  ".join([f"Waiting up to {seconds:.0f} s for:", *names]) + "\n" if names else ""
    with contextlib.suppress(OSError, SystemExit):  # `serve | tee`: the same Ctrl-C has ended the reader of this line
        say(f"Stopping. {waits}Ctrl-C again stops at once.")
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)


@contextlib.contextmanager
def handling(end: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let `end` handle Ctrl-C and SIGTERM inside the block."""
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def exit_code_for(ended_by: int | None, interrupted: int = OK) -> int:
    """The exit code of a process that the signal `ended_by` has ended; None: no signal did."""
    return {None: OK, int(signal.SIGINT): interrupted}.get(ended_by, TERMINATED)
