"""An agent's turn with a free call, one that a person edits and one that is denied: its time, and kills at its points.

A subject is killed with SIGKILL while the bench keeps it at the point: by a request that the world does not answer, a
table that the subject can't write, or a person that does not decide. The world counts the requests that it gets. Some
repetitions are unavoidable: a model is asked again whose answer was not recorded, and a call is made again whose result
was not. Each point names its own (`unavoidable`); any other repetition means that the subject recorded too late or not
at all.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import asyncpg

from bench.peers.subjects import Json, Kind, Subject
from bench.peers.world import DENIED, EDIT, EDITED, FIRST_ANSWER, FREE, LAST, LAST_ANSWER, World
from bench.reference import Reference
from bench.resume import commit_seconds

TURN_SECONDS_MAX: Final = 60.0
SETTLED_SECONDS: Final = 0.25
MODEL: Final = "model"
_STUCK: Final = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@dataclass(frozen=True, slots=True)
class Point:
    """Where a subject is killed: at a place of the world (`recording`: behind it, before its record), or when so many
    calls wait for a person. `unavoidable`: the request that any subject must repeat."""

    title: str
    place: str | None = None
    recording: bool = False
    waiting: int = 0
    unavoidable: str | None = None


POINTS: Final = (
    Point("the model is asked", FIRST_ANSWER, unavoidable=MODEL),
    Point("its answer is not recorded", FIRST_ANSWER, recording=True, unavoidable=MODEL),
    Point("the free call begins", f"{FREE} asked"),
    Point("the free call has happened", f"{FREE} made", unavoidable=FREE),
    Point("the result of the free call is not recorded", f"{FREE} made", recording=True, unavoidable=FREE),
    Point("two calls wait for a person", waiting=2),
    Point("one is denied, one waits", waiting=1),
    Point("the edited call begins", f"{EDITED} asked"),
    Point("the edited call has happened", f"{EDITED} made", unavoidable=EDITED),
    Point("the result of the edited call is not recorded", f"{EDITED} made", recording=True, unavoidable=EDITED),
    Point("the model is asked again", LAST_ANSWER, unavoidable=MODEL),
    Point("its last answer is not recorded", LAST_ANSWER, recording=True, unavoidable=MODEL),
)


@dataclass
class Turn:
    """One turn of a subject's agent, with a person that answers one call after the other, and at once."""

    subject: Subject
    run: str = field(default_factory=lambda: str(uuid4()))
    answered: Counter[str] = field(default_factory=Counter)
    pause_at: int = 0  # do not answer when so many calls wait
    paused: asyncio.Event = field(default_factory=asyncio.Event)

    async def play(self) -> Json:
        """Answer until the turn has ended; how it ended."""
        while True:
            seen = await self.subject.ask("look", run=self.run)
            if seen["ended"]:
                return seen["ended"]
            if len(seen["open"]) == self.pause_at != 0:
                self.paused.set()
                await asyncio.Event().wait()
            await self._answer(seen["open"])
            await self.subject.news()

    async def _answer(self, waiting: Mapping[str, str]) -> None:
        for call, name in sorted(waiting.items(), key=lambda item: item[1])[:1]:
            self.answered[name] += 1
            decision: dict[str, Any] = {"decision": "reject"} if name == DENIED else {"decision": "approve", "n": EDIT}
            await self.subject.ask("answer", run=self.run, call=call, **decision)


class Stage:
    """A kind over its database, and a world; the subject on it is replaced when it is killed."""

    def __init__(self, kind: Kind, python: Path, dsn: str, world: World, eye: Any) -> None:
        self._kind = kind
        self._python = python
        self._dsn = dsn
        self._eye = eye
        self.world = world
        self.subject: Subject

    async def start(self) -> None:
        self.subject = await Subject.started(self._kind, self._python, self._dsn, self.world.port)

    async def seconds(self) -> float:
        """How long a turn takes whose model, tools and person answer at once."""
        self.world.forget()
        turn = Turn(self.subject)
        began = time.perf_counter()
        await self.subject.ask("start", run=turn.run)
        await asyncio.wait_for(turn.play(), TURN_SECONDS_MAX)
        return time.perf_counter() - began

    async def killed_at(self, point: Point) -> dict[str, Any]:
        """Play a turn, kill the subject at the point, play on with a new one. Returns the requests that came more than
        once."""
        self.world.forget(point.place)
        turn = Turn(self.subject, pause_at=point.waiting)
        await self.subject.ask("start", run=turn.run)
        playing = asyncio.create_task(turn.play())
        arrived = asyncio.create_task((turn.paused if point.place is None else self.world.reached).wait())
        try:
            await asyncio.wait((playing, arrived), timeout=TURN_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
            assert arrived.done(), f"the subject was never there: {point.title}"
            await self._settled()
            await self._kill(point)
        finally:
            arrived.cancel()
            playing.cancel()
            await asyncio.gather(playing, arrived, return_exceptions=True)
        await self.start()
        turn.subject, turn.pause_at = self.subject, 0
        await self.subject.ask("resume", run=turn.run)
        try:
            ended = await asyncio.wait_for(turn.play(), TURN_SECONDS_MAX)
        except TimeoutError:
            ended = ["stuck", None]
        return self._counted(turn, ended, point)

    async def _kill(self, point: Point) -> None:
        if point.recording:
            async with self._records_locked():
                self.world.release(answered=True)
                await self._stuck()
                await self.subject.kill()
                # PostgreSQL would still perform the dead subject's statements, as soon as the table is free.
                await self._eye.fetch(f"SELECT pg_terminate_backend(pid) {_STUCK}")
            return
        await self.subject.kill()
        if point.place is not None:
            self.world.release(answered=False)

    async def _settled(self) -> None:
        """Return when the subject seems to have recorded all that it can. Otherwise the kill could be quicker than the
        record of work beside or before the held call, which would not be the subject's fault."""
        rows, before = await self._rows(), -1
        while rows != before:
            await asyncio.sleep(SETTLED_SECONDS)
            rows, before = await self._rows(), rows

    async def _rows(self) -> int:
        counts = " + ".join(f"(SELECT count(*) FROM {table})" for table in self._kind.records)
        found: int = await self._eye.fetchval(f"SELECT {counts}")
        return found

    async def _stuck(self) -> None:
        """Return when a statement of the subject waits for the lock."""
        async with asyncio.timeout(TURN_SECONDS_MAX):
            while not await self._eye.fetchval(f"SELECT count(*) {_STUCK}"):  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.005)

    @asynccontextmanager
    async def _records_locked(self) -> AsyncIterator[None]:
        """Inside, the subject reads all that it wants, and records nothing."""
        other = await asyncpg.connect(self._dsn)
        try:
            async with other.transaction():
                await other.execute(f"LOCK TABLE {', '.join(self._kind.records)} IN SHARE ROW EXCLUSIVE MODE")
                yield
        finally:
            await other.close()

    def _counted(self, turn: Turn, ended: Json, point: Point) -> dict[str, Any]:
        made = Counter(name for name, _, _ in self.world.made)
        seen_once = {(name, key) for name, _, key in self.world.made}
        known = Counter(name for name, _ in seen_once)
        model = sum(self.world.model.values()) - 2
        repeated = {MODEL: model, FREE: made[FREE] - 1, EDITED: made[EDITED] - 1}
        lost = sum(repeated.values()) - (point.unavoidable is not None)
        numbers = {n for name, n, _ in self.world.made if name == EDITED}
        return {
            "repeated": {name: count for name, count in repeated.items() if count},
            "beyond_the_unavoidable": lost,
            "effects_repeated_in_spite_of_a_key": known[FREE] + known[EDITED] - 2,
            "denied_calls_made": made[DENIED],
            "asked_a_person_again": sum(turn.answered.values()) - 2,
            "finished_rightly": ended[1] == LAST and numbers == {EDIT} and self.world.results == 3,
        }


async def measure(
    databases: Mapping[Kind, str], python: Path, reference: Reference, turns: int, points: Sequence[Point] = POINTS
) -> dict[str, Any]:
    """Interleaved turns of each kind's agent and raw commits of `reference`; then the kills, kind by kind."""
    stages: dict[Kind, Stage] = {}
    seconds: dict[str, list[float]] = {kind.name: [] for kind in databases}
    commits: list[float] = []
    async with AsyncExitStack() as stack:
        for kind, dsn in databases.items():
            world = await stack.enter_async_context(World())
            eye = await asyncpg.connect(dsn)
            stack.push_async_callback(eye.close)
            stages[kind] = stage = Stage(kind, python, dsn, world, eye)
            await stage.start()
            stack.push_async_callback(_end, stage)
        for number in range(-1, turns):  # one before it counts
            commit = await commit_seconds(reference)
            each = {kind.name: await stage.seconds() for kind, stage in stages.items()}
            if number >= 0:
                commits.append(commit)
                for name, took in each.items():
                    seconds[name].append(took)
        kills = {
            kind.name: {point.title: await stage.killed_at(point) for point in points} for kind, stage in stages.items()
        }
        versions = {name: text for stage in stages.values() for name, text in stage.subject.versions.items()}
    commit = statistics.median(commits)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return {
        "turn_in_commits": {name: each / commit for name, each in medians.items()},
        "turn_milliseconds": {name: each * 1e3 for name, each in medians.items()},
        "commit_milliseconds": commit * 1e3,
        "kills": kills,
        "versions": versions,
    }


async def _end(stage: Stage) -> None:
    await stage.subject.kill()
