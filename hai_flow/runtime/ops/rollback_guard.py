"""Watches whether the database still holds the beats that this process, and the witness outside, have seen in it.

It looks before anything else of the process starts, and every few seconds; a worker asks again before it registers. A
database that went back is marked so in its era (`store/ops/database_history`): all processes refuse work, until a
person has begun the next era."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import structlog

from hai_flow.errors import StoreError
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.ops.external_heartbeat import Witness
from hai_flow.store.ops import database_history
from hai_flow.store.ops.database_history import Beat, Era
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.postgres.database import Database

log = structlog.get_logger(__name__)

BEAT_SECONDS: Final = 5.0
SURVIVOR_SECONDS: Final = 60.0
"""How long a process that has just begun waits for another one that remembers how far the database had come: longer
than one of these needs to see that a line to the server before has gone silent, and to look again."""
_LOOK_SECONDS: Final = 1.0


class WentBack(StoreError):
    """The database is not the one that was seen before: effects that were performed since may be performed once
    more."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"This database may have gone back in time, so nothing is performed over it: {why}. "
            "See `hai-flow recover`, which says what would be repeated, and goes on with --confirm."
        )


class Continuity(Service):
    """Looks every few seconds, and writes beats. `told` are functions: each is called once when the process must end,
    with the reason."""

    def __init__(
        self, database: Database, witness: Witness | None, told: Sequence[Callable[[WentBack], None]] = ()
    ) -> None:
        super().__init__()
        self._database = database
        self._witness = witness
        self._seen: Beat | None = None
        self._told = told
        self.fault: WentBack | None = None

    async def _start(self) -> None:
        await self._await_survivor()
        await self.demand(from_outside=True)
        self._keep(self._run, "beats")

    async def _await_survivor(self) -> None:
        """Give a process that has outlived a failover the time to look first: what it remembers lets all of them go
        on, and a process that remembers nothing would hold the era for everybody."""
        end, has_warned = time.monotonic() + SURVIVOR_SECONDS, False
        while await self._is_unremembered() and time.monotonic() < end:
            if not has_warned:
                log.warning("timeline_unknown", meaning=UNKNOWN, seconds=SURVIVOR_SECONDS)
            has_warned = True
            await asyncio.sleep(_LOOK_SECONDS)

    async def _is_unremembered(self) -> bool:
        era = await database_history.current(self._database.api)
        may_follow = era.timeline_moved and era.held is None and era.moved is None
        return may_follow and all(beat.database != era.database for beat in await self._remember(era, outside=True))

    async def demand(self, *, from_outside: bool = False) -> None:
        """Raises WentBack unless every beat that was seen is in the database; StoreError where the witness can't be
        read."""
        async with self._database.api.acquire() as connection:
            era = await database_history.current(connection)
            beats = await self._remember(era, outside=from_outside)
            why = era.held or await self._against(connection, era, beats)
            if why is not None:
                if era.held is None:
                    await database_history.hold(connection, era, why)
                raise WentBack(why)
            if era.timeline_moved:
                log.warning("timeline_moved", meaning=TIMELINE, seen=max(beat.at for beat in beats).isoformat())
                await database_history.follow_timeline(connection, era)
            beat = await database_history.beat(connection, era, timedelta(seconds=BEAT_SECONDS))
            self._seen = beat or await database_history.find_last_beat(connection)
        if self._witness is not None and (beat is not None or not self._witness.shared):
            await self._note(self._witness, self._seen)

    async def _remember(self, era: Era, *, outside: bool) -> list[Beat]:
        witness = await self._witness.read(era.database) if self._witness is not None and outside else None
        return [beat for beat in (self._seen, witness) if beat is not None]

    async def _against(self, connection: Connection, era: Era, known: list[Beat]) -> str | None:
        if era.moved is not None:
            return era.moved
        for beat in known:
            if await database_history.lacks(connection, era, beat):
                last = await database_history.find_last_beat(connection)
                stands = "none of its beats is there" if last is None else f"its last beat is of {_moment(last)}"
                return f"a beat of {_moment(beat)} was seen, and is not in it any more; {stands}"
        ours = [beat for beat in known if beat.database == era.database]
        if era.timeline_moved and not ours:
            return (
                "its server has begun another timeline, by recovery or by the promotion of a standby, and nobody here "
                "remembers how far it had come before"
            )
        return None

    async def _note(self, witness: Witness, beat: Beat | None) -> None:
        """Write the last beat to the witness. To one that all machines share, only the process that wrote the beat
        does."""
        if beat is None:
            return
        try:
            await witness.write(beat)
        except Exception as error:
            log.warning("witness_not_written", error=str(error) or repr(error))

    async def _run(self) -> None:
        answers = True
        while self.fault is None:
            await asyncio.sleep(BEAT_SECONDS * random.uniform(0.9, 1.0))
            try:
                await self.demand()
            except WentBack as error:
                self._give_up(error)
            except Exception as error:
                if answers:
                    log.error("database_unavailable", error=str(error) or repr(error), meaning=AWAY)
                answers = False
            else:
                if not answers:
                    log.warning("database_answers", meaning="everything continues.")
                answers = True
        await asyncio.Event().wait()

    def _give_up(self, error: WentBack) -> None:
        self.fault = error
        log.error("database_went_back", error=str(error))
        for tell in self._told:
            tell(error)


AWAY: Final = "nothing is stored or performed until the database answers; then everything continues by itself."
UNKNOWN: Final = (
    "the database's server was recovered, or a standby was promoted, and this process remembers nothing. It waits for "
    "one that does; if there is none, nothing is performed until a person has run `hai-flow recover`."
)
TIMELINE: Final = (
    "the database's server was recovered, or a standby was promoted. The last beat that was seen is there, so at most "
    "what came in the seconds after it was lost; where the standby is not synchronous, steps of them may be repeated."
)


def _moment(beat: Beat) -> str:
    return beat.at.isoformat(sep=" ", timespec="seconds")
