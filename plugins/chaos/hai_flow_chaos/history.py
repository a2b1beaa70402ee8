"""The history of a campaign, seen from outside: the answers that clients got, the effects on the world, the faults.

Each entry has the second, by the campaign's own clock, at which it became known. Nothing here is taken from the
database.
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
    """A server acknowledged the start of a run. `number` is its place in the campaign, `flow` its workflow."""

    at: float
    number: int
    flow: str
    run_id: str
    input: Mapping[str, Json]


class Answered(NamedTuple):
    """A server took or refused a client's answer to a question. `already`: it had got the same answer before."""

    at: float
    pending_id: str
    by: str
    said: Mapping[str, Json]
    status: int
    already: bool
    code: str


class Controlled(NamedTuple):
    """A server acknowledged that a run is stopped, paused, resumed or retried, or that a signal to it is stored."""

    at: float
    run_id: str
    what: str
    detail: str = ""


class Effect(NamedTuple):
    """The world got a request for an effect: under this idempotency key, by an attempt of a step. `attempt` 0: the
    request did not name the attempt. `refused`: the world refused it, and nothing happened."""

    at: float
    key: str
    what: str
    attempt: int
    refused: bool
    detail: str = ""


class Broken(NamedTuple):
    """A promise that was not kept: its name, the run, key or person that it concerns, the observation."""

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


class FreezeDrill(NamedTuple):
    """Everything was frozen from `since`, two seconds after a server had acknowledged it, to `until`, when the first
    thaw was sent. `places`: the number of events of each run at `since`."""

    since: float
    until: float
    places: Mapping[str, int]


@dataclass(slots=True)
class Stream:
    """The stream of a run as one follower got it: of the log (`dialect` empty) the bytes of each event by its seq, of a
    dialect the bytes of each frame by its cursor. `opened`: its number of connections; `lost`: how many of them broke,
    or were refused for now; `left`: how many the follower ended itself. `ended`: it got the end of the run."""

    run_id: str
    dialect: str = ""
    frames: dict[str, bytes] = field(default_factory=dict)
    opened: int = 0
    lost: int = 0
    left: int = 0
    ended: bool = False


@dataclass(slots=True)
class History:
    """The whole history. `tallies` are counts for the report, like that of the connections that were cut."""

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
    """Runs that a client has sent a stop, acknowledged or not."""
    drills: list[FreezeDrill] = field(default_factory=list)
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
        """A copy of the history as it is now."""
        streams = [replace(stream, frames=dict(stream.frames)) for stream in self.streams]
        return History(
            self.began,
            [*self.started],
            [*self.answered],
            [*self.controlled],
            [*self.effects],
            streams,
            stopping=set(self.stopping),
            drills=[*self.drills],
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
        """The effects on the world by idempotency key, in the order in which they came."""
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
