"""The commands for a run, decided one by one, as one entry of a batch.

Each command is decided on top of the state that the ones before it lead to. A win proves that the state was fresh; a
refusal needs a state that is surely fresh, so it may have to wait until the run is loaded
(docs/design/store.md#freshness).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.definition.paths import list_of
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.advance import ONCE_ONLY
from hai_flow.engine.decide import decide
from hai_flow.engine.decision import Decision, Message
from hai_flow.engine.draft import DecisionContext
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.runs import children, on_end_triggers
from hai_flow.engine.runs.summaries import new_summary
from hai_flow.engine.state import run_size
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.jobs import is_busy, wake_at
from hai_flow.engine.state.state import TERMINAL_STATUSES, RunState
from hai_flow.errors import Rejected, reject_unknown_run
from hai_flow.primitives import instants
from hai_flow.primitives.beside_loop import WORK_FOR, TooLongForLoop, is_large, run_beside_loop, run_with_allowance
from hai_flow.runtime.base import audit_records
from hai_flow.runtime.catalog.retirement import refuse_retirement
from hai_flow.runtime.commit.batch_recovery import BatchRecovery
from hai_flow.runtime.commit.batches import CommitEntry
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.context import CommitContext
from hai_flow.runtime.commit.submission import (
    ENDED_SINCE,
    SEAT_LOST,
    SUPERSEDED,
    Begin,
    Chunk,
    Foresight,
    Outcome,
    Progress,
    Streamed,
    Submission,
    Written,
)
from hai_flow.store.commit.entries import Born, CommandRow, Entry, HeirEntry, Moved, OutboxRow
from hai_flow.store.commit.projection import rows_of
from hai_flow.store.messaging.concurrency_slots import derive_thread_slot

log = structlog.get_logger(__name__)

FORESEEN_MAX: Final = 3
"""How often a command is decided beside the loop before it is decided on it all the same: the run moves too often."""
LARGE_RUN_BYTES: Final = 256 * 1024
"""The log of a run whose commands are decided beside the loop, however small: expressions look at all its values."""


_SMALL: Final = frozenset({c.TimerFired, c.Continue, c.Admit, c.StepLost, c.ChildMoved, c.Pause, c.Resume, c.TakeBack})
"""Commands that hold no values of anybody's."""
_LARGE: Final = frozenset({c.Fork, c.Migrate})
"""Commands that hold logs and plans."""


class Decider:
    def __init__(self, context: CommitContext, failures: BatchRecovery) -> None:
        self.limits = context.bounds
        self._queues = context.queues
        self.tools = context.tools
        self._failures = failures
        self._now_ms = context.now_ms
        self._wants_ends = context.wants_ends
        self._serves = context.claims.serves
        self._freezes = context.freezes

    def entry_of(self, run: CachedRun, *, locked: bool = False) -> CommitEntry | None:
        """The run's entry, ready to be sent; `locked`: its row is. A fault in one run's decision must not stop the lane
        for all others. Raises `TooLongForLoop` where its first command has to be foreseen."""
        entry: CommitEntry | None = None
        try:
            entry = self._decide(run, locked=locked)
            if entry is not None:
                entry.row = row = self._row(entry)
                entry.bytes = len(row.events)
        except TooLongForLoop:
            raise
        except Exception as error:
            if entry is None:
                self._failures.give_up(run, error)
            else:
                self._failures.condemn(entry, error)
            return None
        return entry

    async def foresee(self, run: CachedRun) -> None:
        """Decide the first command of a run beside the loop: to hold a value of 1 MB against its schema, or an
        expression to evaluate over one, may take tenths of a second. The decision counts if the run is as it was when
        the command's turn comes; else it has to be foreseen once more."""
        if not run.submissions or run.chunks:
            return
        submission = run.submissions[0]
        submission.foreseen += 1
        born = submission.birth is not None and not run.exists
        plan = submission.birth.plan if born and submission.birth is not None else run.plan
        if plan is None or (not born and submission.tenant not in (None, run.tenant)):
            return
        tenant = submission.tenant if born and submission.tenant is not None else run.tenant
        WORK_FOR.set(tenant)
        context = self._context_of(tenant)
        foresight = Foresight(plan, run.state, run.run_bytes, run.held_elsewhere, context)
        try:
            foresight.decision = await run_beside_loop(
                decide,
                plan,
                foresight.state,
                submission.command,
                self._now_ms(),
                self.limits,
                foresight.run_bytes,
                foresight.held_elsewhere,
                foresight.context,
            )
        except Exception as error:  # it is raised where the command's turn comes
            foresight.error = error
        submission.foresight = foresight

    def is_bound_due(self, run: CachedRun) -> bool:
        """Whether the run has reached a bound of its length, which the next decision acts on."""
        return run_size.is_due(run.state, run.run_bytes, self.limits)

    def _decide(self, run: CachedRun, *, locked: bool) -> CommitEntry | None:
        """Decide the run's commands. None if there is nothing to commit (everyone is answered, or it must load)."""
        entry = CommitEntry(run, run.state, locked=locked)
        if run.chunks:
            self._append_chunks(entry)
        waiting = run.submissions
        while waiting and len(entry.events) < self.limits.events and not (run.singly and entry.submissions):
            submission = waiting[0]
            if submission.carrier is not None and entry.submissions:
                break  # it is committed by a transaction of its own
            try:
                answer = self._answer(entry, submission)
            except TooLongForLoop:
                if entry.events or entry.submissions:
                    break  # those before it come first
                raise
            except Exception as error:
                run.pop_submission()
                self._failures.undecidable(run, submission, error)
                continue
            if answer is None:
                if entry.undecided is not None:
                    entry.submissions.append(run.pop_submission())
                    break
                if entry.events:
                    break  # the commands before it commit first; it comes back with a fresher state
                return self._load_first(entry)
            run.pop_submission()
            entry.submissions.append(submission)
            entry.answers.append((submission, answer))
            if submission.carrier is not None:
                break
        if entry.chunks and not (run.owned or entry.decides):
            _take_back_chunks(entry)
            if run.chunks:
                return self._load_first(entry)
        if not entry.events:
            entry.settle()
            self._queues.release(run)
            return None
        return entry

    def _answer(self, entry: CommitEntry, submission: Submission) -> Outcome | Rejected | None:
        """The command's outcome on top of the entry, or None: a refusal that the known state can't justify
        (docs/design/store.md#freshness). A state that may be stale can't, nor can an id that was not looked up; a win
        proves both by itself. None, too, of a command before which so much is due that this has to be committed
        first."""
        run = entry.run
        if run.exists and submission.tenant is None:  # of this process itself: there is nothing to hold it against
            return self._answer_by_decision(entry, submission)
        unborn = not run.exists and not entry.decides
        if unborn and submission.birth is not None:
            assert submission.tenant is not None, "a Start names its tenant"
            run.begin_birth(submission.birth.plan, submission.tenant)
        elif unborn or submission.tenant not in (None, run.tenant):  # another tenant's: as if it were not there
            return reject_unknown_run(run.id) if entry.locked or run.loaded_at >= submission.arrived else None
        use = _find_first_use(entry, submission)
        if use is not None:
            return _find_repeat_outcome(submission, use)
        if submission.slot_taken and not entry.decides and _is_slot_needed(run, submission):
            return _reject_taken_slot(submission, run)
        if submission.seat_lost and (unborn or entry.state.ended or entry.state.status == "queued"):
            return Rejected(409, SEAT_LOST, f"slot {submission.seat} is not promised to run {run.id} any more.")
        if submission.active and entry.state.ended:
            return Rejected(409, ENDED_SINCE, f"run {run.id} has ended since.")
        if submission.left_lost and unborn:
            return _refuse_taken_back(run)
        if submission.superseded and unborn:
            return Rejected(409, SUPERSEDED, f"the workflow of run {run.id} means another version by now.")
        if submission.retired and unborn and submission.birth is not None:
            return refuse_retirement(submission.birth.plan)
        return self._answer_by_decision(entry, submission)

    def _answer_by_decision(self, entry: CommitEntry, submission: Submission) -> Outcome | Rejected | None:
        """As `_answer`, of a command that the engine may decide."""
        run = entry.run
        try:
            plan = entry.plan or run.plan
            assert plan is not None
            decision = self._foreseen(plan, entry, submission) if submission.foresight is not None else None
            if decision is None:
                decision = self._decide_on_loop(plan, entry, submission)
        except Rejected as rejected:
            return rejected if _is_fresh(entry, submission) else None
        if decision.already:
            return _outcome(run, decision, entry.state, True) if _is_fresh(entry, submission) else None
        if decision.undecided:
            self._take(entry, decision)
            entry.undecided = submission
            return None
        outcome = _outcome(run, decision, decision.state, False)
        if submission.command_id is not None:
            row = CommandRow(submission.command_id, submission.body_sha, msgspec.json.encode(outcome))
            entry.commands = {**entry.commands, row.command_id: row}
        if submission.asked is not None:
            rows = audit_records.rows_of(submission.asked, submission.command, entry.state, decision)
            entry.audit = (*entry.audit, *rows)
        self._take(entry, decision)
        entry.birth = entry.birth or submission.birth
        entry.seat = entry.seat or submission.seat
        if isinstance(submission.command, c.Migrate):  # the rest of this entry is decided with the new plan
            entry.plan = submission.command.to
        return outcome

    def _decide_on_loop(self, plan: Plan, entry: CommitEntry, submission: Submission) -> Decision:
        """The decision, if it is short work. Raises `TooLongForLoop` where it is not, unless the run moves so often
        that no decision beside the loop has counted."""
        run, command = entry.run, submission.command
        tried = submission.foreseen >= FORESEEN_MAX
        if submission.is_large is None:
            submission.is_large = _is_large(command)
        if not tried and (submission.is_large or run.run_bytes > LARGE_RUN_BYTES):
            raise TooLongForLoop
        context = self._context_of(run.tenant)
        about = plan, entry.state, command, self._now_ms(), self.limits, run.run_bytes, run.held_elsewhere, context
        return decide(*about) if tried else run_with_allowance(decide, *about)

    def _context_of(self, tenant: UUID) -> DecisionContext:
        freezes = self._freezes
        if not freezes.are_any:
            return self.tools
        return msgspec.structs.replace(self.tools, freezes=freezes.of(tenant), ruled=freezes.ruled(tenant))

    def _foreseen(self, plan: Plan, entry: CommitEntry, submission: Submission) -> Decision | None:
        """The decision that was made beside the loop; None: there is none, or it was about something else. Raises what
        that has raised."""
        foresight, submission.foresight = submission.foresight, None
        if (
            foresight is None
            or foresight.plan is not plan
            or foresight.state is not entry.state
            or foresight.run_bytes != entry.run.run_bytes
            or foresight.held_elsewhere != entry.run.held_elsewhere
            or foresight.context != self._context_of(entry.run.tenant)
        ):
            return None
        if foresight.error is not None:
            raise foresight.error
        return foresight.decision

    def _take(self, entry: CommitEntry, decision: Decision) -> None:
        messages = decision.outbox
        state = decision.state
        ends = state.status in TERMINAL_STATUSES and on_end_triggers.has_ended(decision)
        if ends and self._wants_ends(entry.run.tenant, state.workflow):
            messages = (*messages, on_end_triggers.end_message(state))
        entry.state = state
        entry.events.extend(decision.events)
        if messages:
            entry.outbox = (*entry.outbox, *map(_build_outbox_row, messages))
        entry.cut = entry.cut or decision.cut
        entry.decides = True

    def _append_chunks(self, entry: CommitEntry) -> None:
        """Turn the holder's chunks into events, as far as its attempt is still open and still its own. A worker that
        has lost its claim may still report an attempt that it had begun (docs/design/promises.md#fencing), and then the
        text goes with the report."""
        run = entry.run
        while run.chunks:
            chunk = run.pop_chunk()
            if entry.state.attempts.get(chunk.path) != chunk.attempt or not (run.owned or _is_reported(run, chunk)):
                continue
            events = _list_events(chunk, entry.state, max(self._now_ms(), entry.state.at))
            if not events:
                continue
            entry.chunks.append(chunk)
            for event in events:
                entry.state = evolve(entry.state, event)
                entry.events.append(event)

    def _load_first(self, entry: CommitEntry) -> None:
        entry.run.take_back(entry.submissions, ())
        self._queues.load_again(entry.run)

    def _row(self, entry: CommitEntry) -> Entry:
        run, state, events = entry.run, entry.state, entry.events
        plan = entry.plan or run.plan
        assert plan is not None, "a run that decides has a plan"
        encoded, rows = e.encode_events(events), rows_of(events, state, plan.roles)
        if rows:
            entry.outbox = (*entry.outbox, *rows["outbox"])
        if entry.chunks and (grown := children.grown(state, events)) is not None:
            entry.outbox = (*entry.outbox, _build_outbox_row(grown))
        if not entry.decides:
            return Entry(
                run_id=run.id,
                tenant=run.tenant,
                n=len(events),
                events=encoded,
                fence=run.fence,
                outbox=entry.outbox,
                pendings=rows.get("pendings", ()),
                votes=rows.get("votes", ()),
                turns=rows.get("turns", ()),
                messages=rows.get("messages", ()),
            )
        busy = is_busy(state)
        row = Entry(
            run_id=run.id,
            tenant=run.tenant,
            n=len(events),
            events=encoded,
            version=run.version if run.exists else None,
            created_at=run.created_at if run.exists else None,
            fence=run.fence if run.owned else None,
            status=state.status,
            busy=busy,
            elsewhere=busy and not self._serves(plan.queue),
            free=run.exists and not (run.owned or run.held_elsewhere) and _begins_once_only_work(plan, events),
            cut=entry.cut,
            outbox=entry.outbox,
        )
        if changes := _list_changes(plan, run.state, state):
            row = msgspec.structs.replace(row, **changes)
        is_plain = busy and run.exists and not (rows or entry.commands or entry.audit or entry.seat or entry.plan)
        return row if is_plain and run.state.status not in TERMINAL_STATUSES else complete_entry(row, entry, rows)


def _begins_once_only_work(plan: Plan, events: Iterable[e.Event]) -> bool:
    """Whether the events begin an attempt that may happen once."""
    return any(
        isinstance(event, e.AttemptStarted | e.StepStarted)
        and event.attempt > 0
        and resolve_step(plan, event.path).delivery in ONCE_ONLY
        for event in events
    )


def _list_changes(plan: Plan, before: RunState, state: RunState) -> Mapping[str, str | None]:
    """The columns of the run's row that most commits leave as they are: the people behind it, its summary, and the
    freezes that hold steps of it."""
    people_and_holds = state.senders, state.instigators, state.held
    if plan.summary is None and (before.senders, before.instigators, before.held) == people_and_holds:
        return _NO_CHANGES
    return {
        "instigators": _encode_instigators(before, state),
        "summary": new_summary(plan, before, state),
        "held": _held(before, state),
    }


_NO_CHANGES: Final[Mapping[str, str | None]] = {}


def _held(before: RunState, state: RunState) -> str | None:
    """The freezes that hold steps of the run as its row has them, where they are others than before."""
    if before.held is state.held or before.held == state.held:
        return None
    return " ".join(sorted(set(state.held.values())))


def _encode_instigators(before: RunState, state: RunState) -> str | None:
    """The people behind the run as its row has them, where they are others than before."""
    if before.senders is state.senders and before.instigators is state.instigators:
        return None
    if before.requester == state.requester and before.all_instigators == state.all_instigators:
        return None
    return " ".join(state.all_instigators)


def complete_entry(row: Entry, entry: CommitEntry, rows: Mapping[str, Any]) -> Entry:
    """The row with what most entries have not, which are of a step behind a step. It is filled in apart, because a call
    with as many keywords as both have together makes a dictionary of them."""
    run, state = entry.run, entry.state
    busy, ended = row.busy, state.status in TERMINAL_STATUSES
    due = None if busy or ended else wake_at(state)
    return msgspec.structs.replace(
        row,
        born=None if run.exists else _born(entry),
        wake_at=None if due is None else instants.instant(due),
        take_slot=_slot_of(run) if _is_slot_needed_again(entry) else None,
        seat=entry.seat,
        result=_result(state) if ended and _ends(entry) else None,
        heir=_find_heir(state) if ended and not run.state.ended else None,
        moved=_to_moved(entry) if run.exists and entry.plan is not None else None,
        commands=tuple(entry.commands.values()) if entry.commands else (),
        pendings=rows.get("pendings", ()),
        votes=rows.get("votes", ()),
        turns=rows.get("turns", ()),
        messages=rows.get("messages", ()),
        audit=entry.audit,
    )


def _ends(entry: CommitEntry) -> bool:
    """Whether the run, which has ended, ends by this entry: not where it had, and none of the entry opens it again."""
    return not entry.run.state.ended or any(map(on_end_triggers.is_end, entry.events))


def _is_reported(run: CachedRun, chunk: Streamed) -> bool:
    """Whether the result of the attempt that has streamed it waits to be committed."""
    reports = (each.command for each in run.submissions if isinstance(each.command, c.StepSucceeded | c.StepFailed))
    return any((report.path, report.attempt) == (chunk.path, chunk.attempt) for report in reports)


def _take_back_chunks(entry: CommitEntry) -> None:
    """Put the streamed chunks back. Without a decision they can't be committed, for this process does not hold the run.
    A chunk waits for the result of its attempt; where that was refused, the chunk is dropped."""
    run = entry.run
    run.take_back((), [chunk for chunk in entry.chunks if _is_reported(run, chunk)])
    entry.chunks, entry.events, entry.state = [], [], run.state


def _is_slot_needed_again(entry: CommitEntry) -> bool:
    """Whether the run had ended and needs its thread's slot again; a child has none."""
    run, ended = entry.run, entry.state.status in TERMINAL_STATUSES
    return run.exists and run.state.ended and run.state.parent is None and (not ended or _should_take_back(entry))


def _should_take_back(entry: CommitEntry) -> bool:
    """Whether the run, which had ended, takes back what it had left to an heir: it needs its slot also where it ends
    at once, because the heir can begin as long as the slot is promised to it."""
    return any(isinstance(event, e.WorkTakenBack) for event in entry.events)


def _find_heir(state: RunState) -> HeirEntry | None:
    """The run that gets the slots of this one, which ends."""
    heir = state.heir
    if heir is None:
        return None
    return HeirEntry(UUID(heir.run_id), derive_thread_slot(state.thread_id), key=heir.key, leaves=state.left_at > 0)


def _refuse_taken_back(run: CachedRun) -> Rejected:
    detail = f"run {run.id} can't begin any more: the run that was stopped for it has taken its work back."
    return Rejected(409, "fork_overtaken", detail)


def _to_moved(entry: CommitEntry) -> Moved:
    plan = entry.plan
    assert plan is not None, "the run moves to a version"
    return Moved(plan.sha256, plan.version, entry.state.dev, plan.queue)


def _outcome(run: CachedRun, decision: Decision, state: RunState, already: bool) -> Outcome:
    return Outcome(decision.outcome, run.id, state.seq, state.status, already)


def _find_repeat_outcome(submission: Submission, known: CommandRow) -> Outcome | Rejected:
    first = msgspec.json.decode(known.outcome, type=Outcome)
    if known.body_sha != submission.body_sha:
        detail = f"the command id {submission.command_id} was used before with another body."
        return Rejected(409, "command_id_reused", detail, winner=first.value)
    return msgspec.structs.replace(first, already=True)


def _list_events(chunk: Streamed, state: RunState, at: int) -> list[e.Event]:
    """The events of a piece; none if it is in the log already, or its message is closed."""
    turn = state.turn.n if state.turn else 0
    if isinstance(chunk, Progress):
        return [e.CustomEmitted(at=at, turn=turn, path=chunk.path, name=e.PROGRESS, value=chunk.value)]
    if chunk.is_call:
        call = state.tool_calls.get(chunk.message_id)
        if call is None and chunk.written is not None and not chunk.n:
            return _begin_model_call(chunk, chunk.written, state, at)
        if call is None or not chunk.text or not call.open or len(call.args) > chunk.n:
            return []
        return [e.ToolCallArgsChunk(at=at, turn=turn, tool_call_id=call.id, content=chunk.text)]
    id, message = chunk.message_id, state.messages.get(chunk.message_id)
    piece = e.MessageChunk(at=at, turn=turn, message_id=id, n=chunk.n, content=chunk.text)
    if message is None:
        over = [open for open, path in state.open_messages.items() if path == chunk.path]
        return [
            *(e.MessageEnded(at=at, turn=turn, message_id=each) for each in over),
            e.MessageStarted(
                at=at,
                turn=turn,
                message_id=id,
                path=chunk.path,
                kind=chunk.kind,
                instead_of=_find_broken_message(chunk, state) if chunk.attempt > 1 else None,
            ),
            piece,
        ]
    return [] if not message.open or message.chunks > chunk.n else [piece]


def _begin_model_call(chunk: Chunk, call: Written, state: RunState, at: int) -> list[e.Event]:
    """A model begins to write a call: it hangs on the message that the model has written before. That message stays
    open: if the attempt breaks off, the message and the call both do."""
    turn = state.turn.n if state.turn else 0
    open = (id for id, path in state.open_messages.items() if path == chunk.path)
    parent = next(open, None) or state.last_message.get(list_of(chunk.path))
    events: list[e.Event] = []
    if call.predicted is not None:
        events.append(e.CustomEmitted(at=at, turn=turn, path=call.path, name=e.PREDICTED, value=call.predicted))
    events.append(
        e.ToolCallStarted(
            at=at,
            turn=turn,
            tool_call_id=chunk.message_id,
            name=call.name,
            path=call.path,
            executor=call.executor,
            message_id=parent or chunk.message_id,
            parent_message_id=parent,
            writer=chunk.path,
        )
    )
    if chunk.text:
        events.append(e.ToolCallArgsChunk(at=at, turn=turn, tool_call_id=chunk.message_id, content=chunk.text))
    return events


def _find_broken_message(chunk: Chunk, state: RunState) -> str | None:
    """The message of an earlier attempt that this one writes anew: the last one of the step, if it broke off."""
    messages = [each for each in state.messages.values() if each.path == chunk.path and each.kind == chunk.kind]
    last = max(messages, key=lambda each: each.n, default=None)
    return last.id if last is not None and last.aborted else None


def _build_outbox_row(message: Message) -> OutboxRow:
    return OutboxRow(message.kind, message.target, values.dumps(message.body))


def _is_fresh(entry: CommitEntry, submission: Submission) -> bool:
    """Whether the known state justifies a refusal. Chunks prove nothing here: they compare the fence, not the version.
    Nor does a fresh state say anything of a command's id: it may have been used before, and then the first outcome is
    the answer, whatever the state says."""
    run = entry.run
    fresh = entry.decides or entry.locked or run.loaded_at >= submission.arrived or not run.exists
    return fresh and (submission.command_id is None or submission.looked_up)


def _find_first_use(entry: CommitEntry, submission: Submission) -> CommandRow | None:
    """The command that had the submission's id first, as far as it is known: in this entry, or before it."""
    if submission.command_id is None:
        return None
    return entry.commands.get(submission.command_id) or submission.first_use


def _is_large(command: c.Command) -> bool:
    kind = type(command)
    return kind in _LARGE or (kind not in _SMALL and is_large(command))


def _slot_of(run: CachedRun) -> str:
    return derive_thread_slot(run.state.thread_id)


def _is_slot_needed(run: CachedRun, submission: Submission) -> bool:
    command = submission.command
    again = c.Retry | c.Skip | c.TakeBack
    return isinstance(command, again) and run.state.ended if run.exists else isinstance(command, Begin)


def _reject_taken_slot(submission: Submission, run: CachedRun) -> Rejected:
    slot = _slot_of(run) if submission.birth is None else submission.birth.slot or ""
    return Rejected(409, "thread_busy", f"another run is active in {slot.replace(':', ' ', 1)}.")


def _result(state: RunState) -> bytes:
    if state.error is not None:
        return msgspec.json.encode({"error": state.error})
    return msgspec.json.encode({"output": state.output})


def _born(entry: CommitEntry) -> Born:
    run, state, birth = entry.run, entry.state, entry.birth
    assert run.plan is not None
    assert birth is not None, "a run is born by a Start or a Fork"
    return Born(
        workflow=run.plan.sha256,
        workflow_name=run.plan.name,
        workflow_version=run.plan.version,
        dev=state.dev,
        parent_id=None if state.parent is None else UUID(state.parent.run_id),
        parent_path=None if state.parent is None else state.parent.path,
        thread_id=state.thread_id,
        queue=run.plan.queue,
        slot=birth.slot,
        started_by=state.requester,
        input=values.dumps(state.input),
        branch=birth.branch,
        left=birth.left,
        in_use=birth.in_use,
        latest=birth.latest,
    )
