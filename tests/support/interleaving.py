"""Two acts in every order: one is held before each of its statements, and the other one comes whole in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

import pytest

from hai_flow.store.postgres.database import Session

First = TypeVar("First")
Second = TypeVar("Second")

STATEMENTS: Final = ("execute", "executemany", "fetch", "fetchrow", "fetchval")
MEANWHILE_SECONDS: Final = 0.5
"""How long the held act waits for the other one, which may itself have to wait for a lock that the held one has."""


class Held(Generic[First, Second]):
    """The act `first`, held before the first of its statements that is not in `places`, while `second` comes whole. The
    statement is then in `places`, so that each of a series of these is held at another one. `reached`: there was one.

    A statement that the act sends several times is one place. `sessions`: the connections of the process of `first`.
    `counts`: whether a statement with these values belongs to it; what a process does beside it (sweeps, heartbeats)
    does not."""

    def __init__(
        self,
        sessions: Callable[[], Collection[object]],
        counts: Callable[[str, tuple[Any, ...]], bool],
        places: set[str],
    ) -> None:
        self._sessions, self._counts, self._places = sessions, counts, places
        self._task: asyncio.Future[Second] | None = None

    @property
    def reached(self) -> bool:
        return self._task is not None

    async def run(
        self,
        monkeypatch: pytest.MonkeyPatch,
        first: Callable[[], Awaitable[First]],
        second: Callable[[], Awaitable[Second]],
    ) -> tuple[First, Second]:
        """The answers of both. Where `first` has no further statement, `second` comes behind it."""
        with monkeypatch.context() as patch:
            for name in STATEMENTS:
                patch.setattr(Session, name, self._holding(getattr(Session, name), second))
            one = await first()
        return one, await (second() if self._task is None else self._task)

    def _holding(
        self, send: Callable[..., Awaitable[Any]], second: Callable[[], Awaitable[Second]]
    ) -> Callable[..., Awaitable[Any]]:
        async def hold(session: Session, query: str, *values: Any, **options: Any) -> Any:
            is_new = self._task is None and query not in self._places
            if is_new and self._counts(query, values) and session in self._sessions():
                self._places.add(query)
                self._task = asyncio.ensure_future(second())
                await asyncio.wait({self._task}, timeout=MEANWHILE_SECONDS)
            return await send(session, query, *values, **options)

        return hold


def names_any(ids: Collection[str], values: Any) -> bool:
    """Whether one of the ids is among the values of a statement, or in a list of them."""
    if isinstance(values, (str, UUID)):
        return str(values) in ids
    return isinstance(values, (list, tuple)) and any(names_any(ids, value) for value in values)


def sessions_of(*pools: Any) -> list[object]:
    """The connections that these pools have open."""
    return [holder._con for pool in pools if pool is not None for holder in pool._holders if holder._con is not None]
