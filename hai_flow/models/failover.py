"""One question to a model: the answer in time, or another model's where this one does not begin to answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeAlias, cast

from hai_flow.errors import StepError
from hai_flow.models import faults
from hai_flow.models.calls.written import find_written_call
from hai_flow.models.turn import Turn
from hai_flow.models.vocabulary import Alive, Endpoint, Finish, ModelProvider, Piece, Request, Usage

Listen: TypeAlias = Callable[[Piece], Awaitable[None]]
Spent: TypeAlias = Callable[[Endpoint, Turn], None]

OTHERS_MAY: Final = frozenset(
    {"llm.rate_limited", "llm.unavailable", "llm.timeout", "llm.truncated", "llm.empty", "llm.not_configured"}
)
"""The errors after which another model is tried."""


async def ask(
    provider_of: Callable[[Endpoint], Awaitable[ModelProvider]],
    endpoints: Sequence[Endpoint],
    request_to: Callable[[Endpoint], Request],
    listen: Listen,
    spent: Spent,
    *,
    may_be_empty: bool = True,
) -> tuple[Turn, Endpoint]:
    """The answer of the first of `endpoints` that begins to give one, complete and neither cut off nor refused.

    `listen` gets each piece of it. `spent` is called once for each answer that has begun, also for one that broke off.
    Without `may_be_empty` an answer without a word, a call or a file is a failure, and another model is asked where
    nothing of it was shown; so is a text that is a call. Raises StepError."""
    for others, endpoint in zip(range(len(endpoints) - 1, -1, -1), endpoints, strict=True):
        turn, has_begun, is_shown, request = Turn(), False, False, request_to(endpoint)
        try:
            provider = await provider_of(endpoint)
            try:
                async for piece in limit_time(provider.stream(request), endpoint):
                    if isinstance(piece, Alive):
                        continue
                    has_begun = has_begun or not isinstance(piece, Usage)
                    is_shown = is_shown or not isinstance(piece, Usage | Finish)
                    await listen(turn.add(piece))
            finally:
                if has_begun or turn.usage is not None:
                    spent(endpoint, turn)
            fault = turn.fault()
            if fault is None and not may_be_empty:
                fault = _find_emptiness(turn, request)
            if fault is not None:
                raise fault
            return turn, endpoint
        except StepError as error:
            has_begun = is_shown if error.code == "llm.empty" else has_begun
            if has_begun or not others or error.code not in OTHERS_MAY:
                raise
    raise AssertionError("there is always one to ask")


def _find_emptiness(turn: Turn, request: Request) -> StepError | None:
    """Why a complete answer says nothing to anybody: it is empty, or a call that is written as text."""
    if turn.calls:
        return None
    names = [tool.name for tool in request.tools]
    if turn.is_empty:
        return faults.empty(find_written_call(turn.thinking, names))
    name = find_written_call(turn.text, names)
    return faults.text_call(name) if name else None


async def limit_time(stream: AsyncIterator[Piece], endpoint: Endpoint) -> AsyncIterator[Piece]:
    """The pieces, as long as each comes within `endpoint.idle` and all of them within `endpoint.total` seconds. Raises
    StepError `llm.timeout`."""
    watch = _PieceTimer(endpoint)
    try:
        async with contextlib.aclosing(cast(AsyncGenerator[Piece, None], stream)):
            while True:
                try:
                    with watch:
                        piece = await anext(stream)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    raise (faults.late(endpoint.total) if watch.is_last else faults.silent(endpoint.idle)) from None
                except (AttributeError, LookupError, TypeError, ValueError) as error:  # a reader met another shape
                    raise faults.unreadable() from error
                yield piece
    finally:
        watch.close()


class _PieceTimer:
    """Cuts off a wait for a piece that takes longer than `idle` seconds, or lasts until all pieces should have come
    (`is_last`). As `asyncio.timeout` around each wait, but with one timer for all of them: an answer has hundreds of
    pieces, most of which are there already, and hardly one is late."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle = endpoint.idle
        self._end = self._loop.time() + endpoint.total
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0  # the wait has lasted
        self._waiting: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._cut = False
        self.is_last = False

    def __enter__(self) -> None:
        self._since = self._loop.time()
        self.is_last = self._end - self._since <= self._idle
        self._waiting = asyncio.current_task()
        assert self._waiting is not None, "answers are awaited in tasks"
        self._cancelling = self._waiting.cancelling()
        if self._timer is None or self._timer.when() > self._due:
            self._set_timer()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        task, self._waiting = self._waiting, None
        if self._cut:
            self._cut = False
            assert task is not None
            # Another cancellation, of the task itself, goes first.
            if task.uncancel() <= self._cancelling and kind is not None and issubclass(kind, asyncio.CancelledError):
                raise TimeoutError

    @property
    def _due(self) -> float:
        return min(self._since + self._idle, self._end)

    def _set_timer(self) -> None:
        self.close()
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        """The timer is of a wait that may be over long ago: then it is set for the one of now, or for the next."""
        self._timer = None
        if self._waiting is None:
            return
        if self._loop.time() < self._due:
            self._set_timer()
        else:
            self._cut = True
            self._waiting.cancel()

    def close(self) -> None:
        """No piece is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
