"""One question to a model: the answer in time, or another model's where this one does not begin to answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeAlias, cast

from hai_flow.errors import StepError
from hai_flow.models import faults
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
    nothing of it was shown. Raises StepError.
    """
    for others, endpoint in zip(range(len(endpoints) - 1, -1, -1), endpoints, strict=True):
        turn, has_begun, is_shown = Turn(), False, False
        try:
            provider = await provider_of(endpoint)
            try:
                async for piece in limit_time(provider.stream(request_to(endpoint)), endpoint):
                    if isinstance(piece, Alive):
                        continue
                    has_begun = has_begun or not isinstance(piece, Usage)
                    is_shown = is_shown or not isinstance(piece, Usage | Finish)
                    await listen(turn.add(piece))
            finally:
                if has_begun or turn.usage is not None:
                    spent(endpoint, turn)
            fault = turn.fault()
            if fault is None and not may_be_empty and turn.is_empty:
                fault = faults.empty()
            if fault is not None:
                raise fault
            return turn, endpoint
        except StepError as error:
            has_begun = is_shown if error.code == "llm.empty" else has_begun
            if has_begun or not others or error.code not in OTHERS_MAY:
                raise
    raise AssertionError("there is always one to ask")


async def limit_time(stream: AsyncIterator[Piece], endpoint: Endpoint) -> AsyncIterator[Piece]:
    """The pieces, as long as each comes within `endpoint.idle` and all of them within `endpoint.total` seconds. Raises
    StepError `llm.timeout`."""
    clock = asyncio.get_running_loop().time
    end = clock() + endpoint.total
    async with contextlib.aclosing(cast(AsyncGenerator[Piece, None], stream)):
        while True:
            remaining = end - clock()
            try:
                async with asyncio.timeout(min(endpoint.idle, remaining)):
                    piece = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise (
                    faults.late(endpoint.total) if remaining <= endpoint.idle else faults.silent(endpoint.idle)
                ) from None
            except (AttributeError, LookupError, TypeError, ValueError) as error:  # a reader met another shape
                raise faults.unreadable() from error
            yield piece
