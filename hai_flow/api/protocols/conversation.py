"""Decides what a POST of a UI protocol means, for every dialect (docs/design/protocols.md#one-active-run): it starts a
run, answers the active one, or attaches to it; anything else is refused before the stream opens. A client's history is
not evidence: only an answer to an open pending of that thread counts."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import structlog
from fastapi.responses import Response
from msgspec.structs import replace

from hai_flow.api.http.bodies import limits_of
from hai_flow.api.http.stream import Frames
from hai_flow.api.permissions.credential_expiry import StreamEnd
from hai_flow.api.permissions.rights import Right
from hai_flow.api.permissions.visibility import Sight
from hai_flow.api.protocols.posted_answers import (
    asker,
    call_answers,
    find_newest_answer,
    open_answers,
    to_pending_answer,
)
from hai_flow.api.protocols.stream_pieces import (
    encode_last_frames,
    farewell,
    list_earlier_entries,
    make_single_piece,
    put_first,
)
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.profiles import read_by, with_wishes
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.events import UserMessage
from hai_flow.engine.state.ids import run_of_pending, turn_of
from hai_flow.engine.state.instigators import list_people_behind
from hai_flow.engine.state.shared_state import can_write, take_client_changes
from hai_flow.engine.state.state import TERMINAL_STATUSES, RunState
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.runtime.catalog.catalog import parse_reference
from hai_flow.runtime.commit.submission import Begin, Outcome
from hai_flow.runtime.streams.stream_items import StreamItem, item_of_event, item_without_number
from hai_flow.store.catalog.workflows import WorkflowSummary
from hai_flow.store.commit.entries import Branch
from hai_flow.store.runs import post_context, run_lists, threads
from hai_flow.store.runs.run_lists import RunSummary
from hai_flow.wire.dialects.dialect import Dialect, Entry, Posted, Profile, ToolMessage
from hai_flow.wire.dialects.transcript import derive_result_id

log = structlog.get_logger(__name__)

_NAME_ONE: Final = "POST to the path of one, /workflows/{name}/..., or name it in forwardedProps.workflow."
_BUSY: Final = ("thread_busy", "thread_waiting")


async def converse(body: bytes, access: Access, dialect: Dialect, workflow: str | None = None) -> Response:
    """The stream of the turn that the POST leads to. `workflow` is the path's. Raises Rejected."""
    assert dialect.decode is not None, "nobody posts to a mere projection"
    posted = await run_by_size(len(body), dialect.decode, body, limits_of(access.settings))
    return await respond(posted, access, dialect, workflow)


async def respond(
    posted: Posted, access: Access, dialect: Dialect, workflow: str | None = None, *, corrects: bool = False
) -> Response:
    """As `converse`, for a POST that is decoded already. `corrects`: an answer that comes too late is refused in the
    stream, behind a snapshot, for a client that shows its own answer until a snapshot takes it away."""
    access = await access.find_at_thread(posted.thread_id)
    conversation = Conversation(access, dialect, posted, workflow)
    pieces = conversation.correct if corrects else conversation.pieces
    return await access.stream(pieces, dialect, farewell(access, dialect), follows=False)


async def attach(posted: Posted, access: Access, dialect: Dialect, workflow: str | None = None) -> Response:
    """The thread as it is now, then live if a turn is open. The POST's messages and answers are ignored. Raises
    Rejected."""
    access = await access.find_at_thread(posted.thread_id)
    conversation = Conversation(access, dialect, posted, workflow)
    return await access.stream(conversation.watch, dialect, farewell(access, dialect))


@dataclass(frozen=True, slots=True)
class Conversation:
    """One POST on its way to its stream."""

    access: Access
    dialect: Dialect
    posted: Posted
    path_workflow: str | None

    def __post_init__(self) -> None:
        """The same body under the same runId is the same POST only if the same caller sends it."""
        if not self.access.principal.is_anybody:
            whose = sha256(f"{self.access.principal.id}\n{self.posted.body_sha}".encode()).hexdigest()
            object.__setattr__(self, "posted", replace(self.posted, body_sha=whose))

    async def pieces(self) -> Frames:
        """The pieces that the response streams. Every refusal is raised here, before the stream opens."""
        context = await self._as_seen(await self._load_context())
        speaks = self.access.can_speak_in(context.last)
        last, turn = context.last, context.turn
        messages = tuple(user for user in self.posted.user_messages if user.id not in context.seen)
        if turn is not None and not await self._is_continuation(turn, last, stale=not messages):
            self.access.place.only_follows()
            return await self._replay(turn)
        if last is not None and speaks and (parent := await self._find_earlier_turn(last)) is not None:
            return await self._branch(parent, last)
        active = None if last is None or last.status in TERMINAL_STATUSES else last
        if active is not None and self.path_workflow not in (None, active.workflow_name):
            raise self._reject_mismatch(active)
        if last is not None and (answers := await self._answers(last, stale=not messages)):
            return await self._answer(last, answers, messages)
        if not messages:
            if last is None and (answer := find_newest_answer(self.posted)) is not None:
                await self._refuse_foreign(answer)
            self.access.place.only_follows()
            return await self._attach(last)
        if active is not None:
            return await self._while_active(active, context, messages)
        if last is not None and await self._has_queue(last):
            return await self._enqueue(context, messages)
        return await self._start(context, messages)

    async def correct(self) -> Frames:
        """As `pieces`; but where a question was decided by another answer, the thread as it is now, and then the
        refusal with that decision as the error of the stream."""
        try:
            return await self.pieces()
        except Rejected as rejected:
            last = await self.access.last_run(self.posted.thread_id)
            if rejected.code != "pending_decided" or last is None:
                raise
            state = await self.access.state(last.id)
            preface = self._preface(state, await list_earlier_entries(self.access, self.posted.thread_id, last.id))
            winner = rejected.winner or {}
            reason = f"{rejected.detail} Decided: {winner.get('outcome')}, by {winner.get('by')}."
            ending = encode_last_frames(state.at, self.dialect, StreamEnd(rejected.code, reason), self.posted.thread_id)
            frames = preface.frames[:-1] if preface.terminal else preface.frames
            return make_single_piece(item_without_number(self.dialect, [*frames, *ending]))

    async def watch(self) -> Frames:
        """The pieces that the response streams to a client that only watches."""
        return await self._attach(await self.access.last_run(self.posted.thread_id))

    async def _as_seen(self, known: post_context.PostContext) -> post_context.PostContext:
        """The part of the thread's state that this client may know. If they see nothing of the thread, it is as if it
        did not exist. If the thread is not theirs, they can answer the questions that ask them, but not speak. Raises
        Rejected 403 and 404."""
        last = known.last
        if last is None or self.access.can_speak_in(last):
            if last is not None:
                await self.access.sight(last)
            return known
        hidden = await self.access.sight(last) is Sight.NOTHING
        if any(hidden or user.id not in known.seen for user in self.posted.user_messages):
            await self.access.demand_speaks(self.posted.thread_id, last)
        if hidden:
            return replace(known, last=None, turn=None, seen=frozenset())
        return replace(known, last=await self.access.disguise(last))

    # --- reading the POST -----------------------------------------------------------------------------------------

    async def _load_context(self) -> post_context.PostContext:
        """All that the store has on the thread and this POST, in one read."""
        posted, default = self.posted, self.access.settings.default_workflow
        named = self.path_workflow or posted.workflow
        return await post_context.load_context(
            self.access.reads,
            self.access.tenant,
            posted.thread_id,
            posted.wire_run_id,
            bytes.fromhex(posted.body_sha),
            [user.id for user in posted.user_messages],
            wanted=parse_reference(named) if named else None,
            default=parse_reference(default) if default else None,
        )

    async def _turn(self) -> threads.Turn | None:
        """The turn that a POST with this runId opened."""
        posted = self.posted
        return await threads.find_turn_of_wire_run(
            self.access.reads, self.access.tenant, posted.thread_id, posted.wire_run_id, bytes.fromhex(posted.body_sha)
        )

    async def _is_continuation(self, turn: threads.Turn, last: RunSummary | None, *, stale: bool) -> bool:
        """Whether the POST goes on with the turn whose runId it bears: CopilotKit answers an interrupt under the runId
        of the run that opened it (docs/design/protocols.md#run-ids); if `stale`, also one that was decided in the
        meantime."""
        if not self.posted.resume or last is None or turn.run_id != last.id or self._has_opened(turn):
            return False
        questions = (await self.access.state(last.id)).questions
        named = [questions[entry.interrupt_id] for entry in self.posted.resume if entry.interrupt_id in questions]
        return any(stale or question.status == "open" for question in named)

    def _has_opened(self, turn: threads.Turn) -> bool:
        """Whether it was this very POST that opened the turn."""
        return turn.body_sha is not None and turn.body_sha.hex() == self.posted.body_sha

    async def _find_last_run(self) -> RunSummary | None:
        return await threads.last_run(self.access.reads, self.access.tenant, self.posted.thread_id)

    async def _new_messages(self, behind: tuple[UUID, int]) -> tuple[UserMessage, ...]:
        """The user's messages that were new to the thread `behind` an event of it (run, seq)."""
        users = self.posted.user_messages
        if not users:
            return ()
        unseen = await threads.find_unseen(
            self.access.reads, self.access.tenant, self.posted.thread_id, [user.id for user in users], behind=behind
        )
        return tuple(user for user in users if user.id in unseen)

    async def _answers(self, last: RunSummary, *, stale: bool) -> tuple[c.PendingAnswer, ...]:
        """The posted answers to open pendings; if there are none and `stale`, those to decided ones.

        A history repeats answers that were given long ago, so an answer to a decided pending counts only if nothing is
        new, and only the newest one. The client that repeats it gets the first outcome again. A client that changes it
        is refused, and the refusal names the first answer."""
        posted = self.posted
        ours = call_answers(self.posted)
        if not ours and not posted.resume:
            return ()
        state = await self.access.seen(await self.access.state(last.id))
        answers = open_answers(self.posted, state, stale=stale)
        newest = find_newest_answer(self.posted)
        if answers or newest is None:
            return answers
        if (question := state.questions.get(newest.tool_call_id)) is not None:
            return (to_pending_answer(newest, question),)
        if newest.tool_call_id not in state.tool_calls:
            await self._refuse_foreign(newest)
        return ()

    async def _refuse_foreign(self, message: ToolMessage) -> None:
        """404 for an answer to a pending of another thread; one of this thread's earlier runs is only history."""
        run_id = run_of_pending(message.tool_call_id)
        row = None if run_id is None else await run_lists.get_run(self.access.reads, self.access.tenant, run_id)
        hidden = row is None or await self.access.sight(row) is Sight.NOTHING
        if row is None or hidden or row.thread_id != self.posted.thread_id:
            raise Rejected(404, "pending_unknown", f"there is no pending {message.tool_call_id!r} in this thread.")

    async def _is_different(self, last: RunSummary | None, new: tuple[UserMessage, ...]) -> bool:
        """Whether the client's history differs from the thread's, so that the client needs a snapshot
        (docs/design/protocols.md#history-is-not-evidence): it has a message that the thread lacks, or lacks a message
        of the user. It may begin later than the thread. It may also begin with the client's own messages, for example a
        greeting: they are no difference, because a snapshot would delete them. The comparison goes as far back as a
        snapshot does."""
        fresh = {each.id for each in new}
        claimed = [id for id, role in self.posted.history if role in ("user", "assistant") and id not in fresh]
        claimed = [id for id in claimed if run_of_pending(id) is None]  # not messages that show a question
        if not self.dialect.corrects or not claimed or last is None:
            return False
        thread_id = self.posted.thread_id
        roles_by_id = dict(await threads.message_ids(self.access.reads, self.access.tenant, thread_id, last.id))
        shared = list(itertools.dropwhile(lambda id: id not in roles_by_id, claimed))
        users = [id for id, role in roles_by_id.items() if role == "user"]
        users_claimed = [id for id in shared if roles_by_id.get(id) == "user"]
        made_up = [id for id in shared if id not in roles_by_id]
        differs = bool(made_up) or users_claimed != users[len(users) - len(users_claimed) :]
        if differs:
            log.warning("history_differs", thread_id=thread_id, made_up=made_up[:20], said=len(users_claimed))
        return differs

    async def _answers_a_servers_call(self, run_id: UUID) -> bool:
        """Whether the client has an answer of its own to a call that the server performs. CopilotKit makes one from its
        `resume` entry for a call that waits for approval, and shows it in place of the result that comes later."""
        answers = [each for each in call_answers(self.posted) if each.id != derive_result_id(each.tool_call_id)]
        if not answers or not self.posted.resume or not self.dialect.corrects:
            return False
        state = await self.access.state(run_id)
        return any(_is_servers(each.tool_call_id, state) for each in answers)

    # --- branches -------------------------------------------------------------------------------------------------

    async def _find_earlier_turn(self, last: RunSummary) -> threads.Turn | None:
        """The turn that `parentRunId` names. None if it is the newest one: the thread goes on there anyhow. None too if
        no turn has that name: clients may name turns of their own."""
        parent = self.posted.parent_run_id
        if parent is None:
            return None
        pool, tenant, thread_id = self.access.reads, self.access.tenant, self.posted.thread_id
        turn = await threads.find_turn_of_wire_run(pool, tenant, thread_id, parent)
        if turn is None and (named := turn_of(parent)) is not None:
            turn = await threads.find_turn_of_run(pool, tenant, thread_id, *named)
        if turn is None:
            return None
        newest = (await self.access.state(last.id)).turn
        return None if turn.run_id == last.id and newest is not None and turn.n == newest.n else turn

    async def _branch(self, parent: threads.Turn, last: RunSummary) -> Frames:
        """Go on behind an earlier turn, and leave the later ones (docs/decisions/0017). If the run waited there for the
        answers that are posted now, it is forked; if it was over there, a new run starts. Nothing new: the thread as it
        is now."""
        base = await self.access.run(parent.run_id)
        base_state = await self.access.state(base.id, parent.last_seq or base.seq)
        messages = await self._new_messages((base.id, base_state.seq))
        answers = open_answers(self.posted, base_state) if base_state.status == "waiting" else ()
        now = await self.access.state(base.id)
        over = now.ended and now.turn == base_state.turn
        if answers:
            begin, plan, branch = await self._fork(base, base_state, now, answers, messages)
        elif over and messages:
            begin, plan = await self._beginning(base, messages)
            thread_state = await self.access.runtime.keeping.state_after(self.access.tenant, plan, base)
            begin = replace(begin, kept=thread_state, instigators=list_people_behind(base.started_by, base.behind))
            branch = Branch(base.id, base.id)
        elif messages:
            raise await self._reject_busy(base.id, base_state)
        else:
            self.access.place.only_follows()
            return await self._attach(last)
        await self.access.runtime.starts.rehearse(plan, begin)
        if last.status not in TERMINAL_STATUSES:
            inherited = await self.access.runtime.branches.list_work_left(last, base_state) if answers else None
            reason = "the thread goes on from an earlier turn"
            stop = c.Stop(by=self.access.principal.id, reason=reason, inherited=inherited)
            await self._bear(plan, begin, branch, leaving=(last, stop, "branch"))
            return await self._attach(await self.access.run(begin.run_id))
        if isinstance(begin, c.Fork):
            await self.access.runtime.branches.hand_files(self.access.tenant, begin)
        await self._bear(plan, begin, branch)
        return await self._attach(await self.access.run(begin.run_id))

    async def _fork(
        self,
        base: RunSummary,
        there: RunState,
        now: RunState,
        answers: tuple[c.PendingAnswer, ...],
        messages: tuple[UserMessage, ...],
    ) -> tuple[c.Fork, Plan, Branch]:
        if self.path_workflow not in (None, base.workflow_name):
            raise self._reject_mismatch(base)
        tenant = self.access.tenant
        if not self.access.principal.may(Right.CONTROL_RUNS):
            await self.access.runtime.branches.demand_not_held(tenant, there)
        answer = self._answer_command(answers, messages, self.posted.state)
        fork, plan = await self.access.runtime.branches.fork(self._run_id, tenant, there, now, answer)
        line = await threads.line(self.access.reads, tenant, self.posted.thread_id, base.id, 2)
        follows = line[-2] if len(line) > 1 else None
        return fork, plan, Branch(base.id, follows, there.seq)

    # --- refusals -------------------------------------------------------------------------------------------------

    def _reject_mismatch(self, last: RunSummary) -> Rejected:
        return Rejected(
            409,
            "workflow_mismatch",
            f"thread {self.posted.thread_id} runs {last.workflow_name}, not {self.path_workflow}.",
            winner={"run_id": str(last.id), "workflow": last.workflow_name},
        )

    async def _busy(self, last: RunSummary) -> Rejected:
        """The refusal of a user message that comes while a run is active and answers none of its questions."""
        return await self._reject_busy(last.id, await self.access.state(last.id))

    async def _reject_busy(self, run_id: UUID, state: RunState) -> Rejected:
        waits = bool(state.open_questions)
        opened = [each.opened for each in (await self.access.seen(state)).open_questions]
        return Rejected(
            409,
            "thread_waiting" if waits else "thread_busy",
            f"run {run_id} of thread {self.posted.thread_id} "
            + ("waits for an answer; answer it first." if waits else "is still active; wait for it or stop it."),
            winner={
                "run_id": str(run_id),
                "status": state.status,
                "pendings": [{"id": each.id, "kind": each.kind, "title": each.heading} for each in opened],
            },
        )

    # --- the outcome ----------------------------------------------------------------------------------------------

    async def _while_active(
        self, active: RunSummary, known: post_context.PostContext, messages: tuple[UserMessage, ...]
    ) -> Frames:
        """A message comes while a run is active. The workflow of that run decides its effect (`on_message`). Raises
        Rejected 409 where it is refused."""
        policy = await self._on_message(active)
        if policy == "enqueue":
            return await self._enqueue(known, messages)
        if policy != "interrupt":
            raise await self._busy(active)
        return await self._interrupt(active, known, messages)

    async def _interrupt(
        self, active: RunSummary, known: post_context.PostContext, messages: tuple[UserMessage, ...]
    ) -> Frames:
        """Stop the active run, and begin the run of the message in its place."""
        start, plan = await self._beginning(known.last, messages, known.workflow)
        await self.access.runtime.starts.rehearse(plan, start)
        differs = await self._is_different(known.last, messages)
        stop = c.Stop(by=self.access.principal.id, reason="a further message came")
        outcome = await self._bear(plan, start, leaving=(active, stop, "interrupt"))
        return await self._stream_begin(outcome, start.run_id, differs=differs)

    async def _on_message(self, run: RunSummary) -> str:
        """The `on_message` of the run's workflow: the effect of messages that come while the run is active."""
        return (await self.access.runtime.catalog.plan(self.access.tenant, run.workflow)).on_message

    async def _can_wait(self) -> bool:
        """Whether a run that began a moment ago lets messages wait."""
        winner = await self._find_last_run()
        if winner is None or not self.access.can_speak_in(winner):
            return False
        return await self._on_message(winner) == "enqueue"

    async def _has_queue(self, last: RunSummary) -> bool:
        """Whether messages of the thread wait, so that a further one must not pass them."""
        if await self._on_message(last) != "enqueue":
            return False
        return await self.access.runtime.messages.has_any(self.access.tenant, last.thread_id)

    async def _enqueue(self, known: post_context.PostContext, messages: tuple[UserMessage, ...]) -> Frames:
        """The turn that the message opens when the runs before it have ended: until then the stream is silent. The
        message waits also when its client goes; the same POST again waits for it, too."""
        start, plan = await self._beginning(known.last, messages, known.workflow)
        await self.access.runtime.starts.rehearse(plan, start)
        command_id, body_sha = f"wire:{self.posted.wire_run_id}", bytes.fromhex(self.posted.body_sha)
        await self.access.enqueue(plan, start, command_id=command_id, body_sha=body_sha)
        return self._after_queue(start.run_id)

    async def _after_queue(self, run_id: UUID) -> Frames:
        refused = await self.access.runtime.messages.wait_outcome(self.access.tenant, run_id)
        if refused is not None:
            ending = StreamEnd(refused.code, refused.detail)
            now_ms = self.access.runtime.committer.now_ms()
            yield [
                item_without_number(
                    self.dialect, encode_last_frames(now_ms, self.dialect, ending, self.posted.thread_id)
                )
            ]
            return
        await self.access.run(run_id)
        async with contextlib.aclosing(self._follow(RunState(str(run_id)))) as rest:
            async for pieces in rest:
                yield pieces

    async def _start(self, known: post_context.PostContext, messages: tuple[UserMessage, ...]) -> Frames:
        start, plan = await self._beginning(known.last, messages, known.workflow)
        other = await self.access.beginning(plan, start)
        if other is not self.access:
            return await self._with_access(other)._start(known, messages)
        differs = await self._is_different(known.last, messages)
        try:
            outcome = await self._bear(plan, start, is_new=known.last is None)
        except Rejected as rejected:
            if rejected.code not in _BUSY or not await self._can_wait():
                raise
            return await self._enqueue(known, messages)
        return await self._stream_begin(outcome, start.run_id, differs=differs)

    async def _stream_begin(self, outcome: Outcome, run_id: UUID, *, differs: bool) -> Frames:
        """The turn with which the run begins; where the client's history differs, the thread as it is now."""
        if outcome.already:
            await self.access.run(run_id)  # another caller may have started it first
        if differs:
            return await self._attach(await self.access.run(run_id))
        return self._follow(RunState(str(run_id)))

    def _with_access(self, access: Access) -> Conversation:
        """The same POST where its thread begins."""
        moved = copy.copy(self)
        object.__setattr__(moved, "access", access)
        return moved

    async def _beginning(
        self, last: RunSummary | None, messages: tuple[UserMessage, ...], found: WorkflowSummary | None = None
    ) -> tuple[c.Start, Plan]:
        """The Start of a run behind `last`; `found`: its workflow, where it was read already."""
        posted = self.posted
        name, is_named = self._workflow(last), self._find_workflow_named(last) is not None
        try:
            if is_named:
                stored, plan = await self.access.startable(name, found)
            else:  # the deployment's default may name a version
                stored, plan = await self.access.catalog.resolve_startable(self.access.tenant, name, found)
        except Rejected as rejected:
            if rejected.code != "workflow_unknown" or is_named:
                raise
            found_none = f"this names no workflow, and the default, {name!r}, is not published; {_NAME_ONE}"
            raise Rejected(rejected.status, rejected.code, found_none) from None
        start = c.Start(
            run_id=self._run_id,
            thread_id=posted.thread_id,
            requester=self.access.principal.id,
            input=posted.input,
            state=posted.state,
            message=_text(messages[-1].content),
            messages=messages,
            dev=stored.dev,
            turn=posted.turn(),
        )
        return start, plan

    async def _bear(
        self,
        plan: Plan,
        begin: Begin,
        branch: Branch | None = None,
        *,
        is_new: bool = False,
        leaving: tuple[RunSummary, c.Stop, str] | None = None,
    ) -> Outcome:
        """Create the run, if no other is active in the thread, or in the place of the one that is `leaving`: that run,
        how it is stopped, and why, for the id of the stop. Raises Rejected 409 otherwise."""
        posted = self.posted
        command_id, body_sha = f"wire:{posted.wire_run_id}", bytes.fromhex(posted.body_sha)
        try:
            if leaving is None:
                return await self.access.start(
                    plan, begin, command_id=command_id, body_sha=body_sha, branch=branch, is_new=is_new
                )
            active, stop, why = leaving
            stop_id = f"{why}:{posted.wire_run_id}"
            return await self.access.stop_and_start(
                active, stop, plan, begin, stop_id=stop_id, command_id=command_id, body_sha=body_sha, branch=branch
            )
        except Rejected as rejected:
            winner = await self._find_last_run() if rejected.code == "thread_busy" else None
            if winner is None:
                raise
            raise await self._busy(winner) from None

    @property
    def _run_id(self) -> UUID:
        """The id of the run that this POST starts, however often it comes."""
        posted = self.posted
        return self.access.runtime.starts.id_of("wire", str(self.access.tenant), posted.thread_id, posted.wire_run_id)

    async def _submit(self, run_id: UUID, command: c.Command, *, command_id: str) -> Outcome:
        body_sha = bytes.fromhex(self.posted.body_sha)
        return await self.access.submit(run_id, command, command_id=command_id, body_sha=body_sha)

    def _workflow(self, last: RunSummary | None) -> str:
        name = self._find_workflow_named(last) or self.access.settings.default_workflow
        if name is None:
            raise Rejected(422, "workflow_missing", f"expected a workflow: {_NAME_ONE}")
        return name

    def _find_workflow_named(self, last: RunSummary | None) -> str | None:
        return self.path_workflow or self.posted.workflow or (last.workflow_name if last is not None else None)

    async def _answer(
        self, last: RunSummary, answers: tuple[c.PendingAnswer, ...], messages: tuple[UserMessage, ...]
    ) -> Frames:
        """The turn that the answers open, from its start; if they open none, the thread as it is now."""
        differs = await self._is_different(last, messages)
        command_id = f"wire:{self.posted.wire_run_id}"
        if self.posted.resume:  # the runId may be that of the turn which asked
            command_id += f":{self.posted.body_sha[:32]}"
        others = [each for each in answers if run_of_pending(each.id) != last.id]
        before = await self.access.state(last.id) if others else RunState(str(last.id))
        below = [each for each in others if each.id in before.relayed]  # else a fork inherited the question
        own = tuple(each for each in answers if each not in below)
        if below:
            await self._demand_state_fits(before)
        is_new = await self._answer_below(below, () if own else messages, command_id)
        if below and not own:
            if not is_new or before.turn_open or differs:
                return await self._attach(last)
            return self._follow(before)  # the turn that the answer opens there comes when the run below has decided
        answer = self._answer_command(own, messages, self.posted.state)
        outcome = await self._submit(last.id, answer, command_id=command_id)
        turn = None if outcome.already else await self._turn()
        if turn is None or differs or not self._has_opened(turn):
            return await self._attach(last)
        return await self._from_start(turn)

    async def _demand_state_fits(self, root: RunState) -> None:
        """Raises Rejected 422 if the thread's own run could not take the posted changes of its state. It gets them only
        after the run below has decided, when it is too late to refuse the request."""
        if self.posted.state and can_write(root, self.access.principal.who):
            plan = await self.access.catalog.plan(self.access.tenant, bytes.fromhex(root.sha256))
            take_client_changes(plan, root.state or {}, self.posted.state)

    async def _answer_below(
        self, answers: Sequence[c.PendingAnswer], messages: tuple[UserMessage, ...], command_id: str
    ) -> bool:
        """Answer the questions of runs below the thread's own: each is decided by the run that asks it. Returns whether
        any answer was new."""
        is_new = False
        for run_id, group in itertools.groupby(sorted(answers, key=lambda each: each.id), asker):
            answer = self._answer_command(tuple(group), () if is_new else messages, self.posted.state)
            outcome = await self._submit(run_id, answer, command_id=command_id)
            is_new = is_new or not outcome.already
        return is_new

    def _answer_command(
        self, answers: tuple[c.PendingAnswer, ...], messages: tuple[UserMessage, ...], state: Mapping[str, Any]
    ) -> c.Answer:
        by, via = self.access.principal.who, self.access.principal.via(self.dialect.name)
        turn = self.posted.turn()
        return c.Answer(answers=answers, by=by, via=via, messages=messages, turn=turn, state=dict(state))

    async def _replay(self, turn: threads.Turn) -> Frames:
        """The same POST again gets the same turn again; another body under the same runId is refused."""
        if not self._has_opened(turn):
            raise Rejected(
                409,
                "run_id_reused",
                f"runId {self.posted.wire_run_id} was used in this thread before, with another body; use a new one.",
                winner={"run_id": str(turn.run_id), "turn": turn.n},
            )
        return await self._from_start(turn)

    async def _from_start(self, turn: threads.Turn) -> Frames:
        before = await self.access.state(turn.run_id, turn.first_seq - 1)
        if before.forked and before.forked == turn.n - 1:  # the client knows the earlier messages by other ids
            return await self._stream_history(turn.run_id, await self._load_state_at_end(turn))
        if await self._answers_a_servers_call(turn.run_id):  # a snapshot lacks that answer, so the client drops it
            return await self._stream_history(turn.run_id, await self._load_state_at_begin(turn))
        started_by = before.requester or (await self.access.run(turn.run_id)).started_by
        return self._follow(before, started_by=started_by)

    async def _load_state_at_begin(self, turn: threads.Turn) -> RunState:
        """The run as it was when the turn opened, with the user's messages of the same POST."""
        opened = await self.access.state(turn.run_id, turn.first_seq)
        with_messages = await self.access.state(turn.run_id, turn.first_seq + 1)
        return (
            with_messages
            if len(with_messages.messages) > len(opened.messages) and not with_messages.open_messages
            else opened
        )

    async def _load_state_at_end(self, turn: threads.Turn) -> RunState:
        """The run at the end of the turn; if no other turn has begun since, as it is now."""
        state = await self.access.state(turn.run_id)
        if turn.last_seq is None or state.turn is None or state.turn.n == turn.n:
            return state
        return await self.access.state(turn.run_id, turn.last_seq)

    async def _attach(self, last: RunSummary | None) -> Frames:
        """The POST has nothing new: the thread as it is now, then live if a turn is open."""
        if last is None:
            if self.path_workflow is not None:
                await self.access.catalog.resolve(self.access.tenant, self._workflow(None))
            thread_id = self.posted.thread_id
            nothing = RunState(thread_id, thread_id=thread_id, at=self.access.runtime.committer.now_ms())
            profile = with_wishes(self.posted.profile, self.access.settings)  # its id is no run's: nothing is kept
            return make_single_piece(self._preface(nothing, (), profile))
        return await self._stream_history(last.id, await self.access.state(last.id))

    async def _stream_history(self, run_id: UUID, state: RunState) -> Frames:
        earlier = await list_earlier_entries(self.access, self.posted.thread_id, run_id)
        return put_first(self._preface(state, earlier), self._follow(state, last=self._make_readdressing(run_id)))

    def _preface(self, state: RunState, earlier: Sequence[Entry], profile: Profile | None = None) -> StreamItem:
        encoder = self.dialect.encoder(profile or self._profile(state), state)
        return item_without_number(self.dialect, encoder.preface(self.posted.wire_run_id, earlier))

    def _make_readdressing(self, run_id: UUID) -> Callable[[StreamItem], StreamItem]:
        """Gives a turn's end the runId of the client that attached to it."""

        def end(piece: StreamItem) -> StreamItem:
            frames = [*piece.frames[:-1], self.dialect.readdress(piece.frames[-1], self.posted.wire_run_id)]
            return item_of_event(self.dialect, frames, piece.seq, run_id)

        return end

    def _follow(
        self, start: RunState, *, last: Callable[[StreamItem], StreamItem] | None = None, started_by: str | None = None
    ) -> Frames:
        return self.access.follow(start, self.dialect, self._profile(start, started_by), last=last)

    def _profile(self, state: RunState, started_by: str | None = None) -> Profile:
        """The client's profile. `started_by`: the starter of a run that has no event yet; None: this client."""
        starter = state.requester or started_by or self.access.principal.id
        profile = read_by(self.posted.profile, self.access, state.run_id, starter)
        return with_wishes(profile, self.access.settings)


def _is_servers(call_id: str, state: RunState) -> bool:
    """Whether it is a call of the run that no client answers: performed, or yet to be approved."""
    call = state.tool_calls.get(call_id)
    if call_id in state.questions or (call is not None and call.executor == "frontend"):
        return False
    return str(run_of_pending(call_id)) == state.run_id


def _text(content: Any) -> str:
    """The words of a user message: its text, or its text parts one after the other."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part.get("type") == "text" and isinstance(part.get("text"), str))
