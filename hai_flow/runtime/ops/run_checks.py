"""One run held against itself: its log against its row, its tables, the audit, the runs around it, and the rules of its
events. Pure; `verifying` reads the rows.

The log is the truth here as everywhere: it is folded, every row that was made from it is made once more, and each
difference is a violation. Rules that look at the events alone are those of `engine/invariants`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from hai_flow import values
from hai_flow.definition.plan import Plan
from hai_flow.engine import events as e
from hai_flow.engine import invariants
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.pendings.selectors import World
from hai_flow.engine.runs.replay import STREAMED, decide_again
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.state.jobs import is_busy, wake_at
from hai_flow.engine.state.snapshot import ABI, decode_state
from hai_flow.engine.state.state import TERMINAL_STATUSES, MessageState, RunState, ToolCallState
from hai_flow.errors import Unreadable
from hai_flow.primitives import file_ids, instants
from hai_flow.store.commit.entries import MessageRow, PendingRow, TurnRow, VoteRow
from hai_flow.store.commit.projection import list_selectors_asked, read_thread_entry, rows_of
from hai_flow.store.messaging.concurrency_slots import derive_thread_slot
from hai_flow.store.runs.run_bundle import Evidence, Row


class Violation(NamedTuple):
    """A rule that does not hold of a run: `rule` is its name, `seq` the event up to which it holds, where that is
    known."""

    run_id: UUID
    seq: int | None
    rule: str
    message: str


class Commit(NamedTuple):
    """A row of the log with its events, decoded."""

    row: Row
    events: Sequence[e.Event]


_ABI_WITH_ANSWERS: Final = 9
"""Since this ABI of events, answers that decide alone have a row beside the votes (schema 0020)."""


class RunCheck:
    """Give it the commits of one run in order, then ask for the `end`.

    `late`: runs that are due, and runs of dead workers, may wait for a worker so long; None: for ever, as where no
    worker runs. `limits`: those of the engine, by which decisions are made again; None: they are not. `since`: when
    the database got the vocabulary of this release; decisions from before are another release's, and may differ, as do
    those up to `older_seq` of the run.
    A fault in the log's own order ends the fold, for nothing behind it can be trusted."""

    def __init__(
        self,
        evidence: Evidence,
        late: timedelta | None = None,
        limits: Bounds | None = None,
        since: datetime | None = None,
    ) -> None:
        self.evidence = evidence
        self._limits = limits
        self._since = since
        self.late = late
        self.run = evidence.run
        self.state = RunState(str(self.run["id"]))
        self.reached: Counter[str] = Counter()
        self.violations: list[Violation] = []
        self.files: set[bytes] = set()
        self.broken = False
        self.undecided = 0  # decisions that can't be made again from the log alone
        self.older = 0  # rows that a release before this one did not write, and decisions that it made otherwise
        self.plan: Plan | None = None
        self._watch = invariants.Watch(self.run["copied"])
        self._version = self._bytes = self._decided_at = 0
        self._head = b""
        self._heads = dict(evidence.heads)
        self._snapshots = {row["seq"]: row for row in evidence.rows["snapshots"]}
        self._named = {row["last_seq"] for table in ("commands", "outbox", "votes") for row in evidence.rows[table]}
        self._made = _Made()

    # --- the log ------------------------------------------------------------------------------------------------------

    def decode(self, row: Row) -> Commit | None:
        """The events of the next row; None if they can't be folded: the walk ends there."""
        for name, rule in _OF_ROWS:
            self.reached[name] += 1
            for message in rule(self, row):
                self._report(name, message, at=row["last_seq"])
                self.broken = self.broken or name in _BREAKING
        if self.broken:
            return None
        try:
            events = e.decode_events(row["events"])
        except Unreadable as error:
            self._break("log_readable", str(error))
            return None
        self.reached["log_readable"] += 1
        if len(events) != row["last_seq"] - row["first_seq"] + 1:
            self._break("log_gap_free", f"{len(events)} events stand where {row['first_seq']} to {row['last_seq']} do")
            return None
        return Commit(row, events)

    def feed(self, commit: Commit) -> None:
        """Fold the next commit. `plan` is that of the run then, None where this release can't have it."""
        row = commit.row
        for message in _check_chunks(self, commit):
            self._report("chunks_are_chunks", message, at=row["last_seq"])
        if self._limits is not None and self.plan is not None and row["version"] != self._version:
            self._decide_again(self.plan, commit, self._limits)
        self._head = sha256(self._head + row["events"]).digest()
        self._bytes += len(row["events"])
        decides, self._version = row["version"] != self._version, row["version"]
        self.files |= file_ids.files_in(row["events"])
        for event in commit.events:
            for fault in self._watch.event(self.state, event):
                self._report(fault.rule, fault.message, at=self.state.seq + 1)
            try:
                self.state = evolve(self.state, event)
            except Exception as error:  # a transition that no table has, a record that is not there
                self._break("log_folds", f"{event.type}: {error or type(error).__name__}")
                return
            self._check_snapshot()
        if decides:
            self._decided_at = self.state.at
        self.reached["log_folds"] += len(commit.events)
        self._check_head()
        self._named.discard(self.state.seq)
        self._made.take(rows_of(commit.events, self.state), self.state.seq - len(commit.events), self.state)

    def _decide_again(self, plan: Plan, commit: Commit, limits: Bounds) -> None:
        """The same inputs give the same decision. A decision whose inputs are not all in the log proves nothing."""
        again = decide_again(plan, self.state, commit.events, self._bytes, limits, self._decided_at)
        if again.left is None:
            self.reached["decisions_follow"] += 1
        elif again.surely and self._is_of_another_release(commit.row):
            self.older += 1
        elif again.surely:
            commands = ", ".join(again.commands) or "nothing"
            message = f"{again.left.type} does not follow from what was asked of the run (decided again: {commands})"
            self._report("decisions_follow", message, at=commit.row["last_seq"])
        else:
            self.undecided += 1

    def _is_of_another_release(self, row: Row) -> bool:
        """Whether a release before this one wrote the row, which comes next. Once a release has written to a run, none
        before it does."""
        if self.run["abi"] < e.ABI or self.state.seq < (self.run["older_seq"] or 0):
            return True
        return self._since is not None and row["at"] < self._since

    def _check_snapshot(self) -> None:
        row = self._snapshots.pop(self.state.seq, None)
        if row is None or row["abi"] != ABI:  # of another release: no process reads it
            return
        self.reached["snapshots_are_folds"] += 1
        try:
            same = decode_state(row["state"]) == self.state
        except Unreadable:
            same = False
        if not same:
            self._report("snapshots_are_folds", "the snapshot is not the fold of the events up to it")

    def _check_head(self) -> None:
        head = self._heads.pop(self.state.seq, None)
        if head is not None:
            self.reached["log_audited"] += 1
            if head != self._head:
                self._report("log_audited", "the events up to here are not those that the audit vouches for")

    # --- the end of the log -------------------------------------------------------------------------------------------

    def end(self) -> list[Violation]:
        """All violations that were found."""
        for name, rule in _OF_RUN if self.broken else (*_OF_RUN, *_OF_FOLD):
            self.reached[name] += 1
            for message in rule(self):
                self._report(name, message)
        if not self.broken:
            for fault in self._watch.rest(self.state):
                self._report(fault.rule, fault.message)
        self.reached += self._watch.reached
        return self.violations

    def report_missing_files(self, digests: set[bytes]) -> None:
        self.reached["files_are_there"] += 1
        for each in sorted(digests):
            self._report("files_are_there", f"the file file_{each.hex()} is gone")

    def is_older(self, pending_id: str) -> bool:
        """Whether the row of the question is as a release left it that had no inbox and kept no answers beside votes:
        such a row has no words to search for, or its run was never gone on with since."""
        row = next((row for row in self.evidence.rows["pendings"] if row["id"] == pending_id), None)
        return row is not None and (row["words"] is None or self.run["abi"] < _ABI_WITH_ANSWERS)

    def unreadable(self, reason: str) -> None:
        """Report that the next row of the log can't be taken apart into commits."""
        self._break("log_readable", f"the row behind event {self.state.seq}: {reason}")

    def report_missing_workflow(self, digest: bytes, reason: str) -> None:
        self.reached["workflow_is_there"] += 1
        self._report("workflow_is_there", f"the workflow {digest.hex()}: {reason}", at=self.state.seq)

    def _break(self, rule: str, message: str) -> None:
        self.broken = True
        self._report(rule, message, at=self.state.seq)

    def _report(self, rule: str, message: str, at: int | None = None) -> None:
        self.violations.append(Violation(self.run["id"], self.state.seq if at is None else at, rule, message))


# --- rows that are made from the log ----------------------------------------------------------------------------------


class _Made:
    """The rows of the child tables as the commits so far write them."""

    def __init__(self) -> None:
        self.pendings: dict[str, tuple[PendingRow, int]] = {}
        self.votes: dict[tuple[str, str], VoteRow] = {}
        self.turns: dict[int, tuple[int | None, int | None, str | None]] = {}
        self.messages: dict[int, MessageRow] = {}

    def take(self, rows: Mapping[str, Any], before: int, state: RunState) -> None:
        pending: PendingRow
        for pending in rows.get("pendings", ()):
            _, opened = self.pendings.get(pending.id, (pending, state.seq))
            self.pendings[pending.id] = pending, opened
        for vote in rows.get("votes", ()):
            self.votes[vote.pending_id, vote.principal] = vote
        turn: TurnRow
        for turn in rows.get("turns", ()):
            first, last, wire = self.turns.get(turn.n, (None, None, None))
            if turn.first is not None:
                first, wire = before + turn.first, turn.wire_run_id
            self.turns[turn.n] = first, last if turn.last is None else before + turn.last, wire
        for message in rows.get("messages", ()):
            self.messages[message.n] = message


def _differ(what: str, made: Mapping[Any, Any], there: Mapping[Any, Any]) -> Iterator[str]:
    for key in made.keys() - there.keys():
        yield f"the {what} {key} is in the log, and its row is gone"
    for key in there.keys() - made.keys():
        yield f"the {what} {key} has a row, and the log does not know it"


def _check_pendings(check: RunCheck) -> Iterator[str]:
    rows = {row["id"]: row for row in check.evidence.rows["pendings"]}
    yield from _differ("question", check._made.pendings, rows)
    for id, (pending, opened) in check._made.pendings.items():
        row = rows.get(id)
        if row is None:
            continue
        for name in ("status", "path", "digest", "deadline"):
            if row[name] != getattr(pending, name):
                expected = _text(getattr(pending, name))
                yield f"the {name} of the question {id} is {_text(row[name])} instead of {expected}"
        if row["opened_seq"] != opened:
            yield f"the question {id} was opened by the commit of event {opened}, not {row['opened_seq']}"
        if not _is_same_question(e.decode_pending(row["body"]), e.decode_pending(pending.body)):
            yield f"the question {id} asks something else than the log does"


def _is_same_question(row: e.PendingOpened, made: e.PendingOpened) -> bool:
    """The times may differ: a process that opens a question has not always seen the newest chunk, and takes the time of
    an earlier event."""
    return msgspec.structs.replace(row, at=made.at) == made


def _check_inbox(check: RunCheck) -> Iterator[str]:
    """An open question is in the inboxes of all that it asks, and a closed one is in no inbox."""
    rows_by_pending: dict[str, set[str]] = {}
    for row in check.evidence.rows["inbox"]:
        rows_by_pending.setdefault(row["pending_id"], set()).add(row["selector"])
    for id in rows_by_pending.keys() - set(check.state.open_pendings.values()):
        yield f"{id} is in an inbox, and it is not open"
    if check.plan is None:
        return
    world = World(check.state.requester, check.plan.roles)
    for id in check.state.open_pendings.values():
        selectors = set(list_selectors_asked(check.state.pendings[id], world))
        if id not in rows_by_pending and check.is_older(id):
            check.older += 1  # the sweep of a worker is about to write them
        elif selectors != rows_by_pending.get(id, set()):
            yield f"{id} asks {sorted(selectors)}, and is in the inbox of {sorted(rows_by_pending.get(id, ()))}"


def _check_votes(check: RunCheck) -> Iterator[str]:
    rows = {(row["pending_id"], row["principal"]): row for row in check.evidence.rows["votes"]}
    older = {
        key
        for key, expected in check._made.votes.items()
        if key not in rows and _is_deciding_alone(expected) and check.is_older(expected.pending_id)
    }
    check.older += len(older)
    yield from _differ("vote", {key: expected for key, expected in check._made.votes.items() if key not in older}, rows)
    for key, expected in check._made.votes.items():
        if key in rows and msgspec.json.decode(rows[key]["body"]) != msgspec.json.decode(expected.body):
            yield f"the vote of {key[1]} on {key[0]} is another one than in the log"


def _is_deciding_alone(vote: VoteRow) -> bool:
    """Whether it is an answer that decides by itself: releases before 0020 wrote no row of it."""
    return msgspec.json.decode(vote.body)["type"] == e.TYPES[e.PendingDecided]


def _check_turns(check: RunCheck) -> Iterator[str]:
    rows = {row["n"]: (row["first_seq"], row["last_seq"], row["wire_run_id"]) for row in check.evidence.rows["turns"]}
    yield from _differ("turn", check._made.turns, rows)
    for n, expected in check._made.turns.items():
        if n in rows and rows[n] != expected:
            yield f"turn {n} has events {expected[0]} to {expected[1]}, and its row says {rows[n][0]} to {rows[n][1]}"


def _check_messages(check: RunCheck) -> Iterator[str]:
    rows = {row["n"]: row for row in check.evidence.rows["messages"]}
    yield from _differ("message", check._made.messages, rows)
    for n, expected in check._made.messages.items():
        row = rows.get(n)
        if row is None:
            continue
        if (row["id"], row["role"]) != (expected.id, expected.role):
            yield f"message {n} is {expected.id} of {expected.role}, and its row is {row['id']} of {row['role']}"
        elif not _is_same_message(
            read_thread_entry(row["role"], row["body"]), read_thread_entry(expected.role, expected.body)
        ):
            yield f"message {n}, {expected.id}, says something else than the log does"


def _is_same_message(row: MessageState | ToolCallState, made: MessageState | ToolCallState) -> bool:
    """Times may differ, and a message that was cut off may be shorter in its row: a process that decides, or cuts a
    message off, has not always seen the newest chunk."""
    if isinstance(row, ToolCallState) and isinstance(made, ToolCallState):
        return (row.name, row.args, row.result, row.error) == (made.name, made.args, made.result, made.error)
    if not (isinstance(row, MessageState) and isinstance(made, MessageState)):
        return False
    if made.aborted and isinstance(made.content, str) and isinstance(row.content, str):
        return made.content.startswith(row.content)
    return row.content == made.content


# --- rules of single rows of the log ----------------------------------------------------------------------------------


def _check_gaps(check: RunCheck, row: Row) -> Iterator[str]:
    if row["first_seq"] != check.state.seq + 1:
        yield f"event {check.state.seq + 1} should come next, and the row begins with {row['first_seq']}"


def _check_versions(check: RunCheck, row: Row) -> Iterator[str]:
    """Each decision is one more; chunks are none."""
    if row["version"] not in (check._version, check._version + 1):
        yield f"decision {row['version']} follows decision {check._version}"


def _log_is_the_tenants(check: RunCheck, row: Row) -> Iterator[str]:
    if row["tenant"] != check.run["tenant"]:
        yield f"the events {row['first_seq']} to {row['last_seq']} are of another tenant"


def _check_chunks(check: RunCheck, commit: Commit) -> Iterator[str]:
    """A commit that is no decision holds streamed events only, for it was written without a comparison of the run's
    version."""
    if commit.row["version"] != check._version:
        return
    check.reached["chunks_are_chunks"] += 1
    for event in commit.events:
        if not isinstance(event, STREAMED):
            yield f"{event.type} stands in a commit that is no decision"


_OF_ROWS: Final[tuple[tuple[str, Callable[[RunCheck, Row], Iterator[str]]], ...]] = (
    ("log_gap_free", _check_gaps),
    ("versions_rise", _check_versions),
    ("tenants_are_apart", _log_is_the_tenants),
)
_BREAKING: Final = ("log_gap_free",)


# --- rules of the run, whatever its log says --------------------------------------------------------------------------


def _check_row_end(check: RunCheck) -> Iterator[str]:
    if check.broken:
        return
    if check.run["seq"] != check.state.seq:
        yield f"the log has {check.state.seq} events, and the row says {check.run['seq']}"
    if check.run["version"] != check._version:
        yield f"the log has {check._version} decisions, and the row says {check.run['version']}"
    if check.run["log_bytes"] != check._bytes:
        yield f"the log has {check._bytes} bytes, and the row says {check.run['log_bytes']}"


def _log_is_chained(check: RunCheck) -> Iterator[str]:
    if not check.broken and check.run["head"] != check._head:
        yield "its events, or its head, were changed: the chain of its commits ends otherwise"


def _check_audit_rows(check: RunCheck) -> Iterator[str]:
    for seq in sorted(check._heads):
        if not check.broken:
            yield f"the audit knows a commit that ends with event {seq}, and the log has none"


def _check_tenants(check: RunCheck) -> Iterator[str]:
    tenant = check.run["tenant"]
    for table, rows in check.evidence.rows.items():
        if any(row["tenant"] != tenant for row in rows):
            yield f"it has {table} of another tenant"
    kin = [*check.evidence.below.values(), *([] if check.evidence.above is None else [check.evidence.above])]
    if any(each.tenant != tenant for each in kin):
        yield "it has a run above or below it that is another tenant's"


def _check_lateness(check: RunCheck) -> Iterator[str]:
    """A worker comes in time to runs that are due, and to runs that a dead worker held."""
    if check.late is None:
        return
    run, now = check.run, check.evidence.now
    if run["worker"] is None and run["wake_at"] is not None and run["wake_at"] < now - check.late:
        yield f"it is due since {instants.rfc3339(instants.milliseconds(run['wake_at']))}, and no worker takes it"
    holder = check.evidence.holder
    if run["worker"] is not None and holder is not None and holder < now - check.late:
        yield f"worker {run['worker']} holds it, and gives no sign of life"


def _check_holder(check: RunCheck) -> Iterator[str]:
    """A claim names a worker that has a row: without the row its death would never be noticed."""
    if check.run["worker"] is not None and check.evidence.holder is None:
        yield f"worker {check.run['worker']} holds it, and there is no such worker"


_OF_RUN: Final[tuple[tuple[str, Callable[[RunCheck], Iterator[str]]], ...]] = (
    ("row_ends_with_its_log", _check_row_end),
    ("log_chained", _log_is_chained),
    ("log_audited", _check_audit_rows),
    ("tenants_are_apart", _check_tenants),
    ("nobody_is_late", _check_lateness),
    ("holder_is_known", _check_holder),
)


# --- rules of the run and the fold of its log -------------------------------------------------------------------------


def _check_row(check: RunCheck) -> Iterator[str]:
    run, state = check.run, check.state
    ended = state.status in TERMINAL_STATUSES
    parent = None if state.parent is None else UUID(state.parent.run_id)
    expected = {
        "status": state.status,
        "thread_id": state.thread_id,
        "started_by": state.requester,
        "workflow_name": state.workflow,
        "workflow_version": state.version,
        "parent_id": parent,
        "parent_path": None if state.parent is None else state.parent.path,
    }
    for name, value in expected.items():
        if run[name] != value:
            yield f"its {name} is {_text(run[name])}, and the log says {_text(value)}"
    behind = " ".join(state.all_instigators)
    if (run["instigators"] or "") != behind and not (
        state.forked and run["instigators"] is None
    ):  # of an older release
        yield f"its instigators are {_text(run['instigators'])}, and the log says {_text(behind)}"
    held = " ".join(sorted(set(state.held.values())))
    if (run["held"] or "") != held:
        yield f"the freezes that hold its steps are {_text(run['held'])}, and the log says {_text(held)}"
    if (run["ended_at"] is not None) != ended:
        yield f"it is {state.status}, and its row says that it {'has not' if ended else 'has'} ended"
    if run["input"] is not None and values.loads(run["input"]) != state.input:
        yield "its input is another one than in the log"
    stored_result = None if run["result"] is None else msgspec.json.decode(run["result"])
    if stored_result != (msgspec.to_builtins(_result(state)) if ended else None):
        yield "its result is another one than in the log"


def _result(state: RunState) -> dict[str, Any]:
    return {"output": state.output} if state.error is None else {"error": msgspec.to_builtins(state.error)}


def _check_version(check: RunCheck) -> Iterator[str]:
    """A run stays with the document that it began with, unless it was moved to another one."""
    if check.run["workflow"].hex() != check.state.sha256:
        yield f"its row names the workflow {check.run['workflow'].hex()}, and the log {check.state.sha256}"


def _check_wake(check: RunCheck) -> Iterator[str]:
    """A run that can go on by itself is held by a worker, or has a time at which it is due."""
    run, state = check.run, check.state
    if state.ended:
        if run["worker"] is not None or run["wake_at"] is not None:
            yield "it has ended, and a worker holds it, or is to look at it"
        return
    if run["worker"] is not None:
        return
    due = wake_at(state)
    if is_busy(state):
        if run["wake_at"] is None:
            yield "it has something to perform, no worker holds it, and it is never due"
    elif due is not None and (run["wake_at"] is None or instants.milliseconds(run["wake_at"]) > due):
        yield f"something of it is due at {instants.rfc3339(due)}, and no worker looks at it by then"


def _check_slot(check: RunCheck) -> Iterator[str]:
    """One run of a thread is active, and a run that has ended holds no slot."""
    run, rows = check.run, check.evidence.rows["slots"]
    held = {row["slot"] for row in rows if row.get("left_by") != run["id"]}  # else it is about to take its work back
    if check.state.ended:
        if held:
            yield f"it is {check.state.status}, and holds the slot {min(held)}"
    elif run["slot"] == derive_thread_slot(run["thread_id"]) and check.evidence.slot_holder != run["id"]:
        yield f"it is active, and the slot {run['slot']} is held by {check.evidence.slot_holder or 'nobody'}"


def _check_rows(check: RunCheck) -> Iterator[str]:
    """A command was carried out, and a message sent, by a commit that is in the log."""
    for seq in sorted(check._named):
        yield f"a command or a message names the commit that ends with event {seq}, and the log has none"


def _check_snapshots(check: RunCheck) -> Iterator[str]:
    for seq in check._snapshots:
        if seq > check.state.seq:
            yield f"it has a snapshot of event {seq}, and the log ends with {check.state.seq}"


def _check_kin(check: RunCheck) -> Iterator[str]:
    """A child that a run waits for exists, or its start is in the outbox; and if it has ended, the news of its end
    is."""
    state, above = check.state, check.evidence.above
    if state.parent is not None and above is None:
        yield f"it is the child of {state.parent.run_id}, which is not there"
    mine = {row["target"] for row in check.evidence.rows["outbox"]}
    for path, child in state.children.items():
        below = check.evidence.below.get(UUID(child))
        if state.ended:
            continue
        if below is None:
            if child not in mine:
                yield f"the step {path} waits for the run {child}, which is not there"
        elif below.status in TERMINAL_STATUSES and str(check.run["id"]) not in below.messages:
            yield f"the step {path} waits for the run {child}, which is {below.status}, and was told nothing of it"


_OF_FOLD: Final[tuple[tuple[str, Callable[[RunCheck], Iterator[str]]], ...]] = (
    ("row_is_made", _check_row),
    ("version_is_pinned", _check_version),
    ("wakes_in_time", _check_wake),
    ("holds_its_slot", _check_slot),
    ("rows_came_with_commits", _check_rows),
    ("snapshots_are_folds", _check_snapshots),
    ("kin_is_heard", _check_kin),
    ("pendings_are_made", _check_pendings),
    ("inbox_is_made", _check_inbox),
    ("votes_are_made", _check_votes),
    ("turns_are_made", _check_turns),
    ("messages_are_made", _check_messages),
)

RULES: Final = invariants.RULES | {
    "log_readable",
    "log_folds",
    "chunks_are_chunks",
    "decisions_follow",
    "files_are_there",
    "workflow_is_there",
    *(name for name, _ in (*_OF_ROWS, *_OF_RUN, *_OF_FOLD)),
}
"""The names of all rules."""


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
