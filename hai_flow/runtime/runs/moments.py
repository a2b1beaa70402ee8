"""The moments of a run: where it can be forked, its state then, and the moment that a time or a step means.

All of it is read from the log, which is folded once from its beginning. A log of which a fork would copy more than
`BYTES_MAX` has no moments beyond them that are looked at."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.runs.fork import begins, find_first_effects, obstacle
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected, reject_unknown_run
from hai_flow.primitives.beside_loop import LARGE_BYTES, run_by_size
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import logs

BYTES_MAX: Final = 4 * 1024 * 1024  # of a log that a fork copies: it is decided and written in one go
_PAGE: Final = 500


_ENDS: Final = (e.StepFinished, e.StepSkipped, e.StepFailed, e.StepStopped, e.StepUndone)


class Moment(msgspec.Struct, frozen=True):
    """A run as it was behind an event of its log. `following` is the next event of the same commit."""

    state: RunState
    events: tuple[e.Event, ...]
    following: e.Event | None


class Mark(msgspec.Struct, frozen=True):
    """A moment at which somebody may think of forking: in front of the step `step`, or (None) where the run waited.
    `obstacle`: why that can't be; `edited_obstacle`: why it can't be with anything edited."""

    seq: int
    at: int
    turn: int
    step: str | None
    obstacle: Rejected | None
    edited_obstacle: Rejected | None


class _TooLong(Exception):
    """The log is longer than a fork may copy."""


def _reject_too_long(seq: int) -> Rejected:
    return Rejected(413, "fork_too_long", f"expected a log of at most {BYTES_MAX} bytes up to event {seq}, found more.")


class Moments:
    """Reads them, of any run of a tenant."""

    def __init__(self, database: Database, catalog: Catalog) -> None:
        self._database = database
        self._catalog = catalog

    async def commits(
        self, run_id: UUID, *, reads: Pool | None = None, after: int = 0, bounded: bool = True
    ) -> AsyncIterator[tuple[int, list[e.AnyEvent]]]:
        """The run's events after `after`, commit by commit, each with the seq of its first one; `bounded`: up to
        `BYTES_MAX`, behind which it raises _TooLong. Merged commits come apart, for a run is at rest where one ended.
        (They may be merged meanwhile: none of their events comes twice.) Raises Rejected 404 where the run was removed
        since it was found."""
        seq, size, on_loop = after, 0, 0
        while True:
            page = await logs.read_log(reads or self._database.api, run_id, seq, _PAGE)
            if not page and not seq:
                raise reject_unknown_run(run_id)
            for row in page:
                size += len(row.events)
                if bounded and size > BYTES_MAX:
                    raise _TooLong
                on_loop += len(row.events)
                events, start = await run_by_size(on_loop, e.decode_events, row.events), row.first_seq
                on_loop = 0 if on_loop > LARGE_BYTES else on_loop  # the loop had its turn
                for last in row.ends:
                    new = max(start, seq + 1)
                    if new <= last:
                        yield new, events[new - row.first_seq : last + 1 - row.first_seq]
                        seq = last
                    start = last + 1
            if len(page) < _PAGE:
                return

    async def moment(self, run_id: UUID, seq: int) -> Moment:
        """The run behind its event `seq`, which it has. Raises Rejected 413 where its log is too long."""
        state, events = RunState(str(run_id)), []
        with contextlib.suppress(_TooLong):
            async for _, decoded in self.commits(run_id):
                for n, event in enumerate(decoded):
                    events.append(event)
                    state = evolve(state, event)
                    if state.seq == seq:
                        following = decoded[n + 1] if n + 1 < len(decoded) else None
                        return Moment(state, tuple(events), following)
        raise _reject_too_long(seq)

    async def find_seq_at(self, run_id: UUID, head: int, ms: int) -> int:
        """The last of the run's `head` events that had happened at this time (ms since 1970). Looked for by halves:
        time never goes back within a run."""
        low, high = 0, head
        while low < high:
            middle = (low + high + 1) // 2
            rows = await logs.read_log(self._database.api, run_id, middle - 1, 1)
            if not rows:
                raise reject_unknown_run(run_id)
            (row,) = rows
            event = e.decode_events(row.events)[middle - row.first_seq]
            low, high = (middle, high) if event.at <= ms else (low, middle - 1)
        return low

    async def end_of_step(self, run_id: UUID, step: str) -> int:
        """The event with which the step (its path, or its id) came to its last outcome; where it has none, with which
        it began. Raises Rejected 422 where it has not begun, with those that have."""
        began, ended = dict[str, int](), dict[str, int]()
        async for first, decoded in self.commits(run_id, bounded=False):
            for seq, event in enumerate(decoded, first):
                if isinstance(event, e.StepStarted):
                    began[event.path] = seq
                elif isinstance(event, _ENDS) and event.path:
                    ended[event.path] = seq
        seqs = {**began, **ended}
        end_seq = seqs.get(step) or max((seqs[path] for path in seqs if path.rpartition("/")[2] == step), default=0)
        if not end_seq:
            listed = ", ".join(sorted(seqs)[:50]) or "none"
            message = f"step: the run has not begun {step[:100]!r}. Those that began: {listed}."
            raise Rejected(422, "step.not_begun", message)
        return end_seq

    async def find_effects(self, tenant: UUID, run_id: UUID, sha256: str, after: int = 0) -> dict[str, int]:
        """The steps of the run, which is of the version `sha256` now, that changed the world behind its event `after`,
        each with the last seq at which they began to."""
        plan = await self._catalog.plan(tenant, bytes.fromhex(sha256))
        events = [
            (seq, event)
            async for first, decoded in self.commits(run_id, after=after, bounded=False)
            for seq, event in enumerate(decoded, first)
            if isinstance(event, (e.StepStarted, e.AttemptStarted, e.RunStopping, e.WorkTakenBack))
        ]
        return find_first_effects(plan, events)

    async def marks(
        self, tenant: UUID, run_id: UUID, undone: tuple[str, ...], acted: Mapping[str, int] | None = None
    ) -> list[Mark]:
        """Where the run waited and where its steps began, in order. `undone`: what it has undone since; `acted`: what
        has changed the world, and up to which of its events a fork would do that again. Of a log that is too long for a
        fork the last mark says so, behind the last event that was looked at."""
        state, waits_and_steps = RunState(str(run_id)), list[Mark]()
        commits = self.commits(run_id)
        while True:
            try:
                _, decoded = await anext(commits)
            except StopAsyncIteration:
                return waits_and_steps
            except _TooLong:
                too_long = _reject_too_long(state.seq + 1)
                turn = waits_and_steps[-1].turn if waits_and_steps else 1
                return [*waits_and_steps, Mark(state.seq + 1, state.at, turn, None, too_long, too_long)]
            for n, event in enumerate(decoded):
                state = evolve(state, event)
                following = decoded[n + 1] if n + 1 < len(decoded) else None
                step = None if following is None else begins(state, following)
                waited = isinstance(event, e.TurnEnded) and state.status in ("waiting", "paused")
                if step is None and not waited:
                    continue
                plan = await self._catalog.plan(tenant, bytes.fromhex(state.sha256))
                again = list_effects_behind(acted or {}, state.seq)
                waits_and_steps.append(
                    Mark(
                        state.seq,
                        state.at,
                        event.turn,
                        step,
                        obstacle(plan, state, following, undone, acted=again),
                        obstacle(plan, state, following, undone, edited=True, acted=again),
                    )
                )


def list_effects_behind(acted: Mapping[str, int], seq: int) -> tuple[str, ...]:
    """Those of the steps that have changed the world behind event `seq`."""
    return tuple(sorted(path for path, last in acted.items() if last > seq))


def nearest(marks: list[Mark], seq: int, *, edited: bool) -> list[int]:
    """The moments at which the run can be forked that come next before and next behind event `seq`."""
    free = [mark.seq for mark in marks if (mark.edited_obstacle if edited else mark.obstacle) is None]
    before = [each for each in free if each < seq][-1:]
    return [*before, *[each for each in free if each > seq][:1]]
