"""A command on its way to its run, and the caller's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.decision import Decision
from hai_flow.engine.draft import DecisionContext
from hai_flow.engine.state.state import RunState
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.base.trace_parent import TraceParent
from hai_flow.store.commit.entries import BatchResult, Branch, CommandRow
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import raise_outcome_unknown
from hai_flow.values import Json

Begin: TypeAlias = c.Start | c.Fork
"""The commands with which a run is born."""

SEAT_LOST: Final = "seat_lost"  # refusals that no client sees: the command is decided again
ENDED_SINCE: Final = "ended_since"
SUPERSEDED: Final = "superseded"


class CommitCarrier(Protocol):
    """A transaction that a command is committed with: of a tool, for the result of its attempt, or with rows that
    belong to it (`CommitWithRows`)."""

    async def commit(self, send: Callable[[Connection], Awaitable[BatchResult]]) -> BatchResult:
        """Commit it with the entry that `send` sends; nothing is committed unless that wins."""
        ...

    def abandon(self) -> None:
        """It will not be committed."""
        ...


class _NotWon(Exception):
    def __init__(self, done: BatchResult) -> None:
        super().__init__()
        self.done = done


@dataclass(slots=True)
class CommitWithRows:
    """The transaction of a command and of rows that belong to it: `write` adds these, or raises. All of it is
    committed, or nothing. `CommitCarrier`."""

    database: Database
    write: Callable[[Connection], Awaitable[None]]

    async def commit(self, send: Callable[[Connection], Awaitable[BatchResult]]) -> BatchResult:
        """Raises the errors of `write`, and those of the database."""
        try:
            with raise_outcome_unknown():
                async with self.database.engine.acquire() as connection, connection.transaction():
                    await self.write(connection)
                    done = await send(connection)
                    if not done.won:
                        raise _NotWon(done)
        except _NotWon as lost:
            return lost.done
        return done

    def abandon(self) -> None:
        """It holds nothing outside of `commit`."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The result of a command: its answer, and the run's `seq` and status after the commit that holds it."""

    value: Json
    run_id: UUID
    seq: int
    status: str
    already: bool = False


class Written(msgspec.Struct, frozen=True):
    """A call of an agent as its model begins to write it: the step that may make it, its name for frontends, who
    answers it, and the state that frontends may take from its arguments."""

    path: str
    name: str
    executor: Literal["frontend", "server"]
    predicted: Json = None


class Chunk(msgspec.Struct, frozen=True):
    """A piece of a streamed message: the n-th (from 0) of `message_id`, by an attempt that the process performs. The
    message before it of the same attempt is over then.

    `is_call`: a piece of the arguments of the call `message_id`, behind their first `n` characters; `written`: that
    call, which begins with its first piece.
    """

    message_id: str
    path: str
    attempt: int
    n: int
    text: str
    is_call: bool = False
    written: Written | None = None
    kind: Literal["text", "thinking"] = "text"


class Progress(msgspec.Struct, frozen=True):
    """How far an attempt that the process performs is, for the run's followers."""

    path: str
    attempt: int
    value: Json


Streamed: TypeAlias = Chunk | Progress
"""The news of an attempt while it goes on."""


@dataclass(slots=True)
class Foresight:
    """The decision on a command as it would be for the run in `state` (with a log of `run_bytes`) under `plan`, as of
    who holds it and in this `context`; None: it would be refused or fail, with `error`."""

    plan: Plan
    state: RunState
    run_bytes: int
    held_elsewhere: bool
    context: DecisionContext
    decision: Decision | None = None
    error: Exception | None = None


@dataclass(slots=True)
class RunCreation:
    """The rest that a Start or a Fork needs: a run is born with it. `left`: its slot was left to it by a run that was
    stopped for it, or promised, and has to be so still. `in_use`: the version of its plan must not have been retired
    when the run is born; else whoever starts it has looked. `latest`: nor may its name mean another version by then:
    `SUPERSEDED`."""

    plan: Plan
    slot: str | None = None
    branch: Branch | None = None
    left: bool = False
    in_use: bool = False
    latest: bool = False


class Submission(msgspec.Struct, eq=False):
    """One command on its way. `arrived` is monotonic: a state loaded before it proves nothing to it
    (docs/design/store.md#freshness)."""

    command: c.Command
    arrived: float
    command_id: str | None = None
    body_sha: bytes = b""
    answer: asyncio.Future[Outcome] | None = None
    birth: RunCreation | None = None
    seat: str | None = None  # the slot of its concurrency key, or of its thread, that it was promised and begins with
    seat_lost: bool = False
    active: bool = False  # the command is for a run that has not ended
    left_lost: bool = False  # the run that has left it its thread's slot has taken that back
    retired: bool = False  # the version that a run would be born with was retired
    superseded: bool = False  # or is not the one any more that the name of its workflow means
    tenant: UUID | None = None  # None: asked by this process itself
    asked: AuditActor | None = None  # the person that asks; None: no person does
    asker: TraceParent | None = None  # by which request, for its trace
    carrier: CommitCarrier | None = None  # a transaction with which the command is committed, or not at all
    foresight: Foresight | None = None  # was decided beside the loop
    foreseen: int = 0  # so many times
    is_large: bool | None = None  # so that its decision is long work; None: its values are not measured yet
    looked_up: bool = False  # a load has looked its id up: without a `first_use` it was never used
    first_use: CommandRow | None = None  # the command that had its id first
    slot_taken: bool = False  # another run has the slot that it needs

    @property
    def failed(self) -> bool:
        """Whether the caller has been told that it failed. One that has gone away has not."""
        answer = self.answer
        return answer is not None and answer.done() and not answer.cancelled() and answer.exception() is not None

    def fail(self, failure: Exception) -> None:
        """Raise `failure` to the caller, if one still waits."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(failure)
        self.leave()

    def leave(self) -> None:
        """The command is dealt with: a transaction that was to carry it, and has not, is rolled back."""
        if self.carrier is not None:
            carrier, self.carrier = self.carrier, None
            carrier.abandon()
