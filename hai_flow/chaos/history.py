"""What happened in a campaign, seen from outside: what clients were told, what the world saw, what was broken.

Everything has the second of the campaign's own clock at which it was known. Nothing here is taken from the database.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hai_flow.values import Json


class Started(NamedTuple):
    """A client was told that a run has started. `number` is its place in the campaign, `flow` its workflow."""

    at: float
    number: int
    flow: str
    run_id: str
    input: Mapping[str, Json]


class Answered(NamedTuple):
    """A client was told what became of its answer to a question. `already`: the same had been said before."""

    at: float
    pending_id: str
    by: str
    said: Mapping[str, Json]
    status: int
    already: bool
    code: str


class Controlled(NamedTuple):
    """A client was told that a run is stopped, paused, resumed or retried, or that a signal to it is kept."""

    at: float
    run_id: str
    what: str
    detail: str = ""


class Effect(NamedTuple):
    """The world was acted on: under this idempotency key, by an attempt of a step. `attempt` 0: it did not say which.
    `refused`: the world said no, and nothing happened."""

    at: float
    key: str
    what: str
    attempt: int
    refused: bool
    detail: str = ""


class Broken(NamedTuple):
    """A promise that was not kept: its name, whom it concerns, what was seen."""

    rule: str
    whom: str
    message: str
    at: float | None = None


class Mark(NamedTuple):
    """Something for the timeline: a fault that was done, a process that came up or went."""

    at: float
    until: float
    what: str
    whom: str
    note: str = ""


@dataclass(slots=True)
class Stream:
    """What one follower was shown of a run: in the log's own words (`dialect` empty) the bytes of each event by its
    seq, else the bytes of each frame by its cursor. `opened`: how many connections it had; `lost`: how many of them
    broke, or were refused for now; `left`: how many it ended itself. `ended`: it saw the end."""

    run_id: str
    dialect: str = ""
    frames: dict[str, bytes] = field(default_factory=dict)
    opened: int = 0
    lost: int = 0
    left: int = 0
    ended: bool = False


@dataclass(slots=True)
class History:
    """All of it. `tallies` count what is worth a number in the report."""

    began: float = field(default_factory=time.monotonic)
    started: list[Started] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    controlled: list[Controlled] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    tallies: Counter[str] = field(default_factory=Counter)
    stopping: set[str] = field(default_factory=set)
    """Runs of which a client has asked that they are stopped, whether it was told so or not."""
    calm: set[str] = field(default_factory=set)
    """Runs that were over before anything was broken."""
    _awaited: dict[str, asyncio.Event] = field(default_factory=dict)

    def now(self) -> float:
        """Seconds since the campaign began."""
        return time.monotonic() - self.began

    def breaks(self, rule: str, whom: str, message: str) -> None:
        """A promise was seen broken, while it happened."""
        self.broken.append(Broken(rule, whom, message, self.now()))

    def copy(self) -> History:
        """It as it is at this moment."""
        streams = [replace(stream, frames=dict(stream.frames)) for stream in self.streams]
        return History(
            self.began,
            [*self.started],
            [*self.answered],
            [*self.controlled],
            [*self.effects],
            streams,
            stopping=set(self.stopping),
            calm=set(self.calm),
        )

    def acted(self, effect: Effect) -> None:
        """The world was acted on."""
        self.effects.append(effect)
        run_id = effect.key.partition("/")[0]
        if run_id in self._awaited:
            self._awaited.pop(run_id).set()

    async def seen(self, run_id: str) -> None:
        """Return when the run has acted on the world."""
        if not any(effect.key.startswith(run_id) for effect in self.effects):
            await self._awaited.setdefault(run_id, asyncio.Event()).wait()

    def effects_by_key(self) -> dict[str, list[Effect]]:
        """What the world saw under each idempotency key, in its order."""
        found: dict[str, list[Effect]] = defaultdict(list)
        for effect in self.effects:
            found[effect.key].append(effect)
        return found

    def numbers(self) -> dict[str, Any]:
        """The counts for the report."""
        kinds = Counter(mark.what for mark in self.marks)
        return {
            "runs_acknowledged": len(self.started),
            "answers_told": len(self.answered),
            "effects_seen": len(self.effects),
            "frames_seen": sum(len(stream.frames) for stream in self.streams),
            "streams": len(self.streams),
            "connections_of_streams": sum(stream.opened for stream in self.streams),
            "connections_of_streams_lost": sum(stream.lost for stream in self.streams),
            "connections_of_streams_left": sum(stream.left for stream in self.streams),
            **dict(sorted(self.tallies.items())),
            "faults": dict(sorted(kinds.items())),
        }
