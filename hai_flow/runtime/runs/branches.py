"""Stop, then begin: a run that begins in the place of the thread's active one, as a branch from an earlier moment or
for a message that interrupts. All that could refuse it is asked before the active run is stopped. All of it can be done
again, since the ids of run and stop are made from the request; if nobody does, the run that was stopped takes its work
back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.pendings import bypass
from hai_flow.engine.runs.fork import demand_left, inheritance, list_steps_finished_by, list_undone
from hai_flow.engine.state.state import TERMINAL_STATUSES, PendingState, RunState
from hai_flow.engine.steps.held_steps import find_freeze_of_stop
from hai_flow.errors import Rejected, reject_unknown_run
from hai_flow.primitives import file_ids
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.states import HEAD, state_at
from hai_flow.runtime.commit.submission import ENDED_SINCE, SEAT_LOST, Begin, Outcome
from hai_flow.runtime.runs.concurrency_slots import Slots
from hai_flow.runtime.runs.moments import Moments, list_effects_behind
from hai_flow.runtime.runs.starts import Starts
from hai_flow.runtime.streams.thread_feed import Threads
from hai_flow.store.commit.entries import Branch
from hai_flow.store.messaging import concurrency_slots as slots
from hai_flow.store.people import pendings
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import FAILURES
from hai_flow.store.runs import files, run_lists
from hai_flow.store.runs import threads as threads_store
from hai_flow.store.runs.run_lists import RunSummary
from hai_flow.store.runs.threads import Position

_votes: Final = msgspec.json.Decoder(e.VoteCast)
STOP_SECONDS: Final = 30.0  # so long a request waits for the run that its branch leaves
STILL_STOPPING: Final = "still_stopping"  # a refusal that no client sees

Again: TypeAlias = c.Retry | c.Skip
Submit: TypeAlias = Callable[[Again, str | None, bool], Awaitable[Outcome]]
"""Submits a command, with the slot that the run goes on with; True: for a run that has not ended."""


class Branches:
    """Makes forks, and has runs stopped for them."""

    def __init__(
        self,
        database: Database,
        committer: Committer,
        catalog: Catalog,
        threads: Threads,
        moments: Moments,
        starts: Starts,
        slots: Slots,
    ) -> None:
        self._database = database
        self._starts = starts
        self._slots = slots
        self._committer = committer
        self._catalog = catalog
        self._threads = threads
        self._moments = moments

    async def fork(
        self,
        run_id: UUID,
        tenant: UUID,
        there: RunState,
        now: RunState,
        answer: c.Answer,
        *,
        edits: c.Edits | None = None,
        to: Plan | None = None,
    ) -> tuple[c.Fork, Plan]:
        """The command with which `run_id` begins as another run was when it was `there`, and the plan that it has then:
        `to`, or as it was. `now` is the present state of that other one. Raises Rejected 413 where its log is too
        long, 409 `workflow_retired` where the plan's version was retired and the fork has not begun before."""
        of = UUID(there.run_id)
        moment = await self._moments.moment(of, there.seq)
        was = await self._catalog.plan(tenant, bytes.fromhex(there.sha256))
        if to is not None and to.sha256 != was.sha256:
            edits = msgspec.structs.replace(edits or c.Edits(), was=was)
        retired = await self._catalog.retirement(tenant, to or was)
        if retired is not None and await run_lists.get_run(self._database.api, tenant, run_id) is None:
            raise retired
        fork = c.Fork(
            run_id=run_id,
            of=of,
            events=moment.events,
            answer=answer,
            following=moment.following,
            edits=edits,
            rejected=await self.find_rejections(tenant, now),
            below=await self._catalog.find_asking_by_input(tenant, was, there),
            acted=await self._list_effects_on_approval(tenant, there, now, run_id),
        )
        return msgspec.structs.replace(fork, undone=await self._undone(tenant, fork, now)), to or was

    async def _undone(self, tenant: UUID, fork: c.Fork, now: RunState) -> tuple[str, ...]:
        """The steps that are undone by now, of those that the fork takes over: by the run that it is forked from, which
        is `now`, or by another run of the thread that has taken over the same ones."""
        undone = set(list_undone(now))
        for relative in await threads_store.relatives(self._database.api, tenant, fork.of):
            state = await state_at(self._database, tenant, relative.run_id, HEAD)
            if state is not None:
                undone |= set(list_undone(state)) & list_steps_finished_by(fork.events, relative.shared)
        return tuple(sorted(undone))

    async def find_effects(self, tenant: UUID, now: RunState, *, but: UUID | None = None) -> dict[str, int]:
        """The steps that have begun to change the world in the run, which is `now`, and in its relatives on an approval
        that they have in common with it. With each: the event of the run up to which a fork would do it again. `but`:
        a relative that is not looked at."""
        first_seqs = await self._moments.find_effects(tenant, UUID(now.run_id), now.sha256)
        return first_seqs | dict.fromkeys(await self.list_acted_elsewhere(tenant, now, but=but), HEAD)

    async def list_acted_elsewhere(self, tenant: UUID, now: RunState, *, but: UUID | None = None) -> tuple[str, ...]:
        """The same steps of the relatives of the run alone."""
        of, paths = UUID(now.run_id), set[str]()
        for relative in await threads_store.relatives(self._database.api, tenant, of):
            common = await state_at(self._database, tenant, of, relative.shared)
            if relative.run_id == but or common is None or bypass.find_approval(common) is None:
                continue
            state = await self._state(tenant, relative.run_id)
            steps = await self._moments.find_effects(tenant, relative.run_id, state.sha256, after=relative.shared)
            paths.update(steps)
        return tuple(sorted(paths))

    async def demand_not_held(self, tenant: UUID, there: RunState) -> None:
        """Raises Rejected 409 `fork_approved` where a fork of the run as it was `there` would go on behind an approval,
        and an operator has paused the run or a relative without resuming it, also where it was stopped since: the call
        that they look into may have been performed already."""
        place, of = bypass.find_approval(there), UUID(there.run_id)
        relatives = [] if place is None else await threads_store.relatives(self._database.api, tenant, of)
        for run_id in () if place is None else (of, *(each.run_id for each in relatives)):
            state = await self._state(tenant, run_id)
            if state.paused_at is not None and state.status in ("paused", "stopping", "stopped", "failed"):
                detail = f"run {run_id} was paused behind the approval at {place}; an operator must resume or fork it."
                raise Rejected(409, "fork_approved", detail, winner={"run_id": str(run_id)})

    async def _list_effects_on_approval(
        self, tenant: UUID, there: RunState, now: RunState, run_id: UUID
    ) -> tuple[str, ...]:
        """What would be done again on one approval by the fork `run_id` of the run that was `there` and is `now`."""
        if bypass.find_approval(there) is None:
            return ()
        return list_effects_behind(await self.find_effects(tenant, now, but=run_id), there.seq)

    async def list_work_left(self, leaving: RunSummary, there: RunState) -> e.Inherited | None:
        """What the active run `leaving` leaves to a fork of a run that was `there`: all up to there, where it is that
        run; else what both of them have from the same run. None: nothing."""
        if str(leaving.id) == there.run_id:
            return inheritance(there)
        for relative in await threads_store.relatives(self._database.api, leaving.tenant, UUID(there.run_id)):
            if relative.run_id == leaving.id and relative.shared:
                shared = await state_at(self._database, leaving.tenant, leaving.id, min(relative.shared, there.seq))
                return None if shared is None else inheritance(shared)
        return None

    async def find_rejections(self, tenant: UUID, now: RunState) -> tuple[tuple[str, PendingState], ...]:
        """What people have answered with no in the run, in its forks and in what it was forked from, by its paths."""
        rows = await pendings.find_refused_in_forks(self._database.api, tenant, now.thread_id, UUID(now.run_id))
        return tuple(
            (row.path, PendingState(e.decode_pending(row.body), row.status, votes=tuple(map(_votes.decode, row.votes))))
            for row in rows
        )

    async def hand_files(self, tenant: UUID, fork: c.Fork) -> None:
        """The fork refers to the files of the run whose events it copies: they are kept as long as it is."""
        named = file_ids.files_in(e.encode_events(fork.events))
        await files.hand_files(self._database.api, tenant, named, fork.run_id, of=fork.of)

    async def succeed(
        self,
        leaving: RunSummary,
        stop: c.Stop,
        plan: Plan,
        begin: Begin,
        *,
        stop_id: str,
        command_id: str,
        body_sha: bytes,
        branch: Branch | None = None,
        asked: AuditActor | None = None,
    ) -> Outcome:
        """Stop the thread's active run, and begin another in its place.

        Everything that may refuse the other is asked first, so that a refusal stops nobody. The run that ends leaves it
        its slots in the commit that would free them, so nobody who waits gets in between. Where it is refused all the
        same, the run that was stopped takes its work back; so it does, by the sweep, where this process dies in
        between, or where the caller gives up. The same again goes on.

        Raises Rejected as `Starts.start` does, 409 `thread_busy` where the stop takes longer than `STOP_SECONDS`, and
        409 `fork_overtaken` where a fork finds that the run was stopped for somebody else.
        """
        tenant = leaving.tenant
        heir = await self._claim_heir(leaving, plan, begin)
        try:
            stop = msgspec.structs.replace(stop, heir=heir)
            await self._leave(leaving, stop, command_id=stop_id, body_sha=body_sha, asked=asked)
        except Rejected as rejected:
            if rejected.code != STILL_STOPPING:
                await self._starts.unclaim(tenant, plan, begin)
                raise
            raise Rejected(409, "thread_busy", rejected.detail, winner=rejected.winner) from None
        try:
            if isinstance(begin, c.Fork):
                if stop.inherited is not None:
                    leaving_state = await self._state(tenant, leaving.id)
                    demand_left(leaving_state, str(begin.run_id), stop.inherited)
                begin = await self._with_present(tenant, begin)
            return await self._starts.start(
                tenant, plan, begin, command_id=command_id, body_sha=body_sha, branch=branch, asked=asked, claimed=True
            )
        except Rejected:
            await self.withdraw(leaving, plan, begin)
            raise

    async def begin(self, tenant: UUID, fork: c.Fork, start: Callable[[c.Fork, bool], Awaitable[Outcome]]) -> Outcome:
        """Begin a fork in a thread without an active run: `start` is given it as it is to be stored, and whether the
        slot of the thread is promised to it. From the look at its relatives until the commit none of them goes on.
        Raises Rejected 409 `thread_busy` where one is active."""
        first = fork.events[0]
        assert isinstance(first, e.RunStarted), "a log begins with run_started"
        async with self._alone(tenant, first.thread_id, fork.run_id) as is_alone:
            if is_alone:
                return await start(await self._with_present(tenant, fork), True)
        if await run_lists.get_run(self._database.api, tenant, fork.run_id) is None:
            raise Rejected(409, "thread_busy", f"another run is active in thread {first.thread_id}.")
        return await start(fork, False)  # it is there: the same outcome again

    async def go_on(self, tenant: UUID, run_id: UUID, command: Again, submit: Submit) -> Outcome:
        """Submit a command by which a run may go on behind an approval: with what its relatives have done on that, and
        so that none of them does more until the commit. An active run has its thread for itself. Raises as `submit`."""
        while True:
            state = await self._state(tenant, run_id)
            alone = self._alone(tenant, state.thread_id, run_id) if state.ended and state.parent is None else _no_need()
            async with alone as is_alone:
                current = msgspec.structs.replace(command, acted=await self.list_acted_elsewhere(tenant, state))
                seat = slots.derive_thread_slot(state.thread_id) if is_alone else None
                try:
                    return await submit(current, seat, seat is None and state.parent is None)
                except Rejected as rejected:
                    if rejected.code not in (SEAT_LOST, ENDED_SINCE):
                        raise

    @contextlib.asynccontextmanager
    async def _alone(self, tenant: UUID, thread_id: str, run_id: UUID) -> AsyncGenerator[bool]:
        """Inside, no other run of the thread begins or goes on: its slot is promised to the run, which is about to.
        False: another one is active."""
        pool, slot = self._database.api, slots.derive_thread_slot(thread_id)
        await slots.slot_holder(pool, tenant, slot)  # frees one that a run has kept beyond its end
        if not await slots.promise_slot(pool, tenant, slot, run_id):
            yield False
            return
        try:
            yield True
        finally:
            with contextlib.suppress(*FAILURES):  # else the sweep does it: what was committed is no failure
                await slots.settle_slot(pool, tenant, slot, run_id)

    async def _with_present(self, tenant: UUID, fork: c.Fork) -> c.Fork:
        """The fork, with what the run that it is forked from, and their relatives, have done by now."""
        now = await self._state(tenant, fork.of)
        past = await state_at(self._database, tenant, fork.of, len(fork.events))
        if past is None:
            raise reject_unknown_run(fork.of)
        return msgspec.structs.replace(
            fork,
            undone=await self._undone(tenant, fork, now),
            rejected=await self.find_rejections(tenant, now),
            acted=await self._list_effects_on_approval(tenant, past, now, fork.run_id),
        )

    async def rehearse(self, leaving: RunSummary, plan: Plan, begin: Begin) -> None:
        """Raises Rejected where `succeed` would refuse it before the stop. A slot is claimed for a moment."""
        await self._claim_heir(leaving, plan, begin)
        await self._starts.unclaim(leaving.tenant, plan, begin)

    async def withdraw(self, leaving: RunSummary, plan: Plan, begin: Begin) -> None:
        """The run does not begin in the place of the one that was stopped for it."""
        state = await self._state(leaving.tenant, leaving.id)
        if state.heir is not None and state.heir.run_id == str(begin.run_id) and state.left_at:
            await self._slots.take_back(leaving.tenant, leaving.id)
        await self._starts.unclaim(leaving.tenant, plan, begin)
        slot = slots.derive_thread_slot(leaving.thread_id)
        await slots.settle_slot(self._database.api, leaving.tenant, slot, begin.run_id)

    async def _claim_heir(self, leaving: RunSummary, plan: Plan, begin: Begin) -> e.Heir:
        state = await self._state(leaving.tenant, leaving.id)
        if state.heir is not None and state.heir.run_id == str(begin.run_id):
            return state.heir  # the same once more: all was asked before the stop
        await self._demand_thawed(leaving, state, begin)
        return await self._starts.claim(leaving.tenant, plan, begin, state)

    async def _demand_thawed(self, leaving: RunSummary, state: RunState, begin: Begin) -> None:
        """Raises Rejected 409 `run_frozen` where a stop of the run would not end before a thaw."""
        freezes = self._committer.freezes
        if freezes.is_stale:
            await freezes.read()
        if state.ended or not (of_tenant := freezes.of(leaving.tenant)):
            return
        plan = await self._catalog.plan(leaving.tenant, bytes.fromhex(state.sha256))
        is_fork = isinstance(begin, c.Fork) and str(begin.of) == state.run_id
        inherited = list_steps_finished_by(begin.events, len(begin.events)) if is_fork else ()
        freeze = find_freeze_of_stop(plan, state, of_tenant, inherited)
        if freeze is not None:
            raise Rejected(
                409,
                "run_frozen",
                f"run {leaving.id} would have to be stopped first, and the freeze {freeze.id} holds what it undoes or "
                f"cleans up ({freeze.reason}); an operator can thaw it (`hai-flow thaw {freeze.id}`).",
                winner={"run_id": str(leaving.id), "freeze": freeze.id},
            )

    async def _state(self, tenant: UUID, run_id: UUID) -> RunState:
        state = await state_at(self._database, tenant, run_id, HEAD)
        if state is None:  # the caller has found it, and it was removed since
            raise reject_unknown_run(run_id)
        return state

    async def _leave(
        self, run: RunSummary, stop: c.Stop, *, command_id: str, body_sha: bytes, asked: AuditActor | None = None
    ) -> None:
        """Stop the thread's newest run and return when it has ended. Raises Rejected 409 `STILL_STOPPING` where that
        takes longer than `STOP_SECONDS`: it goes on stopping, and the same request finds it ended later."""
        try:
            await self._committer.submit(
                run.id, run.tenant, stop, command_id=command_id, body_sha=body_sha, asked=asked
            )
        except Rejected as rejected:
            if rejected.code != "run_ended":
                raise
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._wait_end(run)
        except TimeoutError:
            raise Rejected(
                409,
                STILL_STOPPING,
                f"run {run.id}, which the branch leaves, is still being stopped; send the same request again.",
                winner={"run_id": str(run.id), "status": "stopping"},
            ) from None

    async def _wait_end(self, run: RunSummary) -> None:
        while True:
            row = await run_lists.get_run(self._database.api, run.tenant, run.id)
            if row is None or row.status in TERMINAL_STATUSES:
                return
            await self._threads.news(run.tenant, run.thread_id, Position(run.id, row.seq))


@contextlib.asynccontextmanager
async def _no_need() -> AsyncGenerator[bool]:
    yield False
