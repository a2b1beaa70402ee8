"""The endpoints of the UI protocols. Which run a POST means is decided here, in one place (DESIGN section 11).

No run, or the last one ended, and an unseen user message: a new run. An active run and new answers: they are given.
Nothing new: attach. Anything else is refused before the stream opens. A client's history is not evidence: only an
answer to an open pending of that very thread counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response

from hai_flow.api.deps import CurrentPrincipal, CurrentRuntime, CurrentSettings, Principal, read_body
from hai_flow.api.stream import EventStream
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.ids import run_of_pending
from hai_flow.engine.state import TERMINAL_STATUSES, RunState
from hai_flow.errors import Rejected
from hai_flow.runtime import Runtime
from hai_flow.runtime.committer import Birth, Outcome, derived_run_id
from hai_flow.runtime.fanout import Piece, rendered, unnumbered
from hai_flow.settings import Settings
from hai_flow.store import threads
from hai_flow.store.projection import thread_entry
from hai_flow.store.runs import RunSummary
from hai_flow.wire import DIALECTS
from hai_flow.wire.dialect import Dialect, Entry, Limits, Posted, Profile, ToolMessage, readdressed

router = APIRouter(tags=["dialects"])


@router.post("/awp", response_model=None)
async def post_awp(
    request: Request, runtime: CurrentRuntime, principal: CurrentPrincipal, settings: CurrentSettings
) -> Response:
    """HAI: start a run, answer what it waits for, or attach to it. The response streams one turn."""
    return await _post(request, runtime, principal, settings, DIALECTS["hai"], None)


@router.post("/workflows/{name}/awp", response_model=None)
async def post_workflow_awp(
    name: str, request: Request, runtime: CurrentRuntime, principal: CurrentPrincipal, settings: CurrentSettings
) -> Response:
    """HAI, for one workflow."""
    return await _post(request, runtime, principal, settings, DIALECTS["hai"], name)


async def _post(
    request: Request,
    runtime: Runtime,
    principal: Principal,
    settings: Settings,
    dialect: Dialect,
    workflow: str | None,
) -> Response:
    assert dialect.decode is not None
    body = await read_body(request, settings.request_bytes_max)
    limits = Limits(body_bytes_max=settings.request_bytes_max, messages_max=settings.messages_max)
    posted = dialect.decode(body, limits)
    conversation = _Conversation(runtime, principal, settings, dialect, posted, workflow)
    return EventStream(
        await conversation.pieces(),
        keepalive_seconds=settings.keepalive_seconds,
        stall_seconds=settings.follower_stall_seconds,
    )


@dataclass(frozen=True, slots=True)
class _Conversation:
    """One POST on its way to its stream."""

    runtime: Runtime
    principal: Principal
    settings: Settings
    dialect: Dialect
    posted: Posted
    path_workflow: str | None

    async def pieces(self) -> AsyncIterator[Sequence[Piece]]:
        """What the response streams. Everything that can be refused has been when this returns."""
        database, posted = self.runtime.database, self.posted
        turn = await threads.turn_of_wire_run(
            database.api, self.principal.tenant, posted.thread_id, posted.wire_run_id
        )
        if turn is not None:
            return await self._replay(turn)
        last = await threads.last_run(database.api, self.principal.tenant, posted.thread_id)
        active = last is not None and last.status not in TERMINAL_STATUSES
        if active and self.path_workflow not in (None, last.workflow_name):
            raise Rejected(
                409,
                "workflow_mismatch",
                f"thread {posted.thread_id} runs {last.workflow_name}, not {self.path_workflow}.",
                winner={"run_id": str(last.id), "workflow": last.workflow_name},
            )
        messages = await self._unseen_messages()
        answers = await self._answers(last) if last is not None else ()
        if answers:
            assert last is not None
            return await self._answer(last, answers, messages)
        if not messages:
            return await self._attach(last)
        if active:
            raise await self._busy(last)
        return await self._start(last, messages)

    # --- what is new ----------------------------------------------------------------------------------------------

    async def _unseen_messages(self) -> tuple[Any, ...]:
        users = self.posted.user_messages
        if not users:
            return ()
        unseen = await threads.unseen(
            self.runtime.database.api, self.principal.tenant, self.posted.thread_id, [user.id for user in users]
        )
        return tuple(user for user in users if user.id in unseen)

    async def _answers(self, last: RunSummary) -> tuple[c.PendingAnswer, ...]:
        """The ToolMessages that answer something: every open pending's, else the posted answer to a decided one.

        A history names answers that were given long ago; only where nothing is new does the newest of them count, so
        that who repeats an answer is told the same again, and who changes it is refused with the first.
        """
        given = {message.tool_call_id: message for message in self.posted.tool_messages}
        ours = [message for message in given.values() if run_of_pending(message.tool_call_id) is not None]
        if not ours:
            return ()
        state = await self._state(last.id)
        open_ones = [m for m in ours if (p := state.pendings.get(m.tool_call_id)) and p.status == "open"]
        if open_ones:
            return tuple(_answer(message) for message in open_ones)
        trailing = self.posted.history[-1][1] == "tool" if self.posted.history else False
        newest = self.posted.tool_messages[-1]
        if trailing and newest.tool_call_id in state.pendings:
            return (_answer(newest),)
        if trailing and run_of_pending(newest.tool_call_id) is not None and newest.tool_call_id not in state.tool_calls:
            await self._refuse_foreign(newest)
        return ()

    async def _refuse_foreign(self, message: ToolMessage) -> None:
        """404 for an answer to a pending of another thread; one of this thread's earlier runs is only history."""
        run_id = run_of_pending(message.tool_call_id)
        runs = await threads.runs_of_thread(
            self.runtime.database.api, self.principal.tenant, self.posted.thread_id
        )
        if run_id not in {run.id for run in runs}:
            raise Rejected(404, "pending_unknown", f"there is no pending {message.tool_call_id} in this thread.")

    async def _busy(self, last: RunSummary) -> Rejected:
        """A new user message while a run is active and nothing is answered."""
        state = await self._state(last.id)
        pendings = [
            {"id": pending.opened.id, "kind": pending.opened.kind, "title": pending.opened.title}
            for id in state.open_pendings.values()
            if (pending := state.pendings[id])
        ]
        waiting = bool(pendings)
        return Rejected(
            409,
            "thread_waiting" if waiting else "thread_busy",
            f"run {last.id} of thread {self.posted.thread_id} "
            + ("waits for an answer; answer it first." if waiting else "is still active; wait for it or stop it."),
            winner={"run_id": str(last.id), "status": state.status, "pendings": pendings},
        )

    async def _state(self, run_id: UUID) -> RunState:
        state = await self.runtime.fanout.state_at(self.principal.tenant, run_id, 2**53)
        assert state is not None
        return state

    # --- what it leads to -----------------------------------------------------------------------------------------

    async def _start(self, last: RunSummary | None, messages: tuple[Any, ...]) -> AsyncIterator[Sequence[Piece]]:
        posted, tenant = self.posted, self.principal.tenant
        dev, plan = await self._workflow(last)
        run_id = derived_run_id(str(tenant), posted.thread_id, posted.wire_run_id)
        start = c.Start(
            run_id=run_id,
            thread_id=posted.thread_id,
            requester=self.principal.id,
            input=posted.input,
            message=_text(messages[-1].content),
            messages=messages,
            dev=dev,
            turn=posted.turn(),
        )
        await self.runtime.committer.submit(
            run_id,
            tenant,
            start,
            command_id=f"wire:{posted.wire_run_id}",
            body_sha=bytes.fromhex(posted.body_sha),
            birth=Birth(plan, slot=f"thread:{posted.thread_id}"),
        )
        return self._follow(run_id, RunState(str(run_id)))

    async def _workflow(self, last: RunSummary | None) -> tuple[bool, Plan]:
        name = self.path_workflow or self.posted.workflow or (last.workflow_name if last is not None else None)
        name = name or self.settings.default_workflow
        if name is None:
            raise Rejected(
                422,
                "workflow_missing",
                "expected a workflow: POST to /workflows/{name}/awp, or name it in forwardedProps.workflow.",
            )
        stored, plan = await self.runtime.catalog.resolve(self.principal.tenant, name)
        return stored.dev, plan

    async def _answer(
        self, last: RunSummary, answers: tuple[c.PendingAnswer, ...], messages: tuple[Any, ...]
    ) -> AsyncIterator[Sequence[Piece]]:
        posted = self.posted
        outcome = await self.runtime.committer.submit(
            last.id,
            self.principal.tenant,
            c.Answer(
                answers=answers, by=self.principal.id, via=self.dialect.name, messages=messages, turn=posted.turn()
            ),
            command_id=f"wire:{posted.wire_run_id}",
            body_sha=bytes.fromhex(posted.body_sha),
        )
        if outcome.already:
            return await self._attach(last)
        return await self._follow_turn(last, outcome)

    async def _follow_turn(self, last: RunSummary, outcome: Outcome) -> AsyncIterator[Sequence[Piece]]:
        """The turn that the answer opened, from its start; or, had one been open already, attached to it."""
        turn = await threads.turn_of_wire_run(
            self.runtime.database.api, self.principal.tenant, self.posted.thread_id, self.posted.wire_run_id
        )
        if turn is None:
            return await self._attach(last)
        start = await self.runtime.fanout.state_at(self.principal.tenant, last.id, turn.first_seq - 1)
        assert start is not None
        return self._follow(last.id, start)

    async def _replay(self, turn: threads.Turn) -> AsyncIterator[Sequence[Piece]]:
        """The same POST again gets the same turn again; another body under the same runId is refused."""
        if turn.body_sha is None or turn.body_sha.hex() != self.posted.body_sha:
            raise Rejected(
                409,
                "run_id_reused",
                f"runId {self.posted.wire_run_id} was used in this thread before, with another body; use a new one.",
            )
        start = await self.runtime.fanout.state_at(self.principal.tenant, turn.run_id, turn.first_seq - 1)
        assert start is not None
        return self._follow(turn.run_id, start)

    async def _attach(self, last: RunSummary | None) -> AsyncIterator[Sequence[Piece]]:
        """Nothing new: what the thread is now, then live if a turn is open."""
        if last is None:
            state = RunState(self.posted.thread_id, thread_id=self.posted.thread_id)
            return _one(self._preface(state, ()))
        state = await self._state(last.id)
        stored = await threads.transcript(self.runtime.database.api, self.principal.tenant, self.posted.thread_id)
        earlier = [thread_entry(each.role, each.body) for each in stored if each.run_id != last.id]
        preface = self._preface(state, earlier)
        if preface.terminal:
            return _one(preface)
        return self._attached(preface, last.id, state)

    def _preface(self, state: RunState, earlier: Sequence[Entry]) -> Piece:
        encoder = self.dialect.encoder(self._profile(), state)
        return unnumbered(encoder.preface(self.posted.wire_run_id, earlier))

    async def _attached(self, preface: Piece, run_id: UUID, state: RunState) -> AsyncIterator[Sequence[Piece]]:
        yield [preface]
        async for pieces in self._follow(run_id, state):
            if pieces[-1].terminal:
                pieces = [*pieces[:-1], self._readdressed(pieces[-1], run_id)]
            yield pieces

    def _readdressed(self, piece: Piece, run_id: UUID) -> Piece:
        """A turn's end under the runId of the one who attached to it."""
        frames = [*piece.frames[:-1], readdressed(piece.frames[-1], self.posted.wire_run_id)]
        return Piece(piece.seq, frames, rendered(frames, piece.seq, run_id, self.dialect.encoding))

    def _follow(self, run_id: UUID, start: RunState) -> AsyncIterator[Sequence[Piece]]:
        return self.runtime.fanout.follow(run_id, self.dialect, self._profile(), start)

    def _profile(self) -> Profile:
        """The follower's profile, with the server's wish where the client has none."""
        profile = self.posted.profile
        if self.settings.hai_snapshot == "MESSAGE_SNAPSHOT" or profile.option("hai.snapshot") is not None:
            return profile
        options = tuple(sorted({**dict(profile.options), "hai.snapshot": self.settings.hai_snapshot}.items()))
        return Profile(
            dialect=profile.dialect,
            version=profile.version,
            redaction=profile.redaction,
            client_tools=profile.client_tools,
            may_answer=profile.may_answer,
            options=options,
        )


async def _one(piece: Piece) -> AsyncIterator[Sequence[Piece]]:
    yield [piece]


def _answer(message: ToolMessage) -> c.PendingAnswer:
    return c.PendingAnswer(id=message.tool_call_id, content=message.content, error=message.error)


def _text(content: Any) -> str:
    """The words of a user message: its text, or its text parts one after the other."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part.get("type") == "text" and isinstance(part.get("text"), str))
