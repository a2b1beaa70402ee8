"""The rows that a commit writes beside the log, for lists and look-ups, each derived from the commit's events.

Pure. The log stays the truth; a projection can be made again from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from hai_flow.engine import events as e
from hai_flow.engine.pendings.selectors import World, expand_selectors
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.ids import call_prefix
from hai_flow.engine.state.state import MessageState, PendingState, RunState, ToolCallState
from hai_flow.primitives import instants
from hai_flow.store.commit.entries import MessageRow, OutboxRow, PendingRow, TurnRow, VoteRow

ThreadEntry: TypeAlias = MessageState | ToolCallState
_OfPending: TypeAlias = e.PendingEdited | e.PendingVoided
CALL_ROLE = "tool"
NOTIFY: Final = "notify"  # the kind of the outbox's rows that are notices
PICKED: Final = "picked:"
"""Before the id of a person who was picked, among the selectors of a question; alone: people are yet to be picked."""
WORDS_MAX: Final = 2000
_NO_ROLES: Final[Mapping[str, tuple[str, ...]]] = {}

_encode = msgspec.json.Encoder().encode


class Notice(msgspec.Struct, frozen=True):
    """A notification of a question is due, over these channels: it was opened or escalated, or people are reminded of
    it. `person`: for this one alone."""

    pending_id: str
    what: Literal["opened", "escalated", "reminded"]
    notify: tuple[str, ...]
    person: str | None = None


class _Rows:
    """The children of one entry in the making. A pending, a turn, a message appears once
    (docs/design/store.md#one-entry-per-run): the last row."""

    def __init__(self, state: RunState, roles: Mapping[str, tuple[str, ...]]) -> None:
        self.state = state
        self.roles = roles
        self.pendings: dict[str, PendingRow] = {}
        self.votes: list[VoteRow] = []
        self.turns: dict[int, TurnRow] = {}
        self.messages: dict[int, MessageRow] = {}
        self.notices: dict[str, Notice] = {}
        self.is_fork = False

    def add_question(self, event: e.PendingOpened, position: int) -> None:
        self._write(event.id)
        self._notify(event.id, "opened")

    def add_escalation(self, event: e.PendingEscalated, position: int) -> None:
        self._write(event.id)
        self._notify(event.id, "escalated")

    def add_reminder(self, event: e.PendingReminded, position: int) -> None:
        if event.id not in self.notices:  # no reminder if this very commit opens or escalates it
            self._notify(event.id, "reminded")

    def add_restamp(self, event: e.PendingRestamped, position: int) -> None:
        """In a fork it is a question of another run, of which people have not been notified."""
        self._write(event.id)
        if self.is_fork:
            self._notify(event.id, "opened")

    def add_pick(self, event: e.PeoplePicked, position: int) -> None:
        """The first pick of a stage is told as its beginning; a later one only to those who are new in it."""
        self._write(event.id)
        pending = self.state.pendings[event.id]
        if event.before is None or not event.people:
            self._notify(event.id, "escalated" if pending.escalations else "opened")
            return
        for person in event.people:
            if person not in event.before and (notify := derive_rules(pending).notify):
                self.notices[f"{event.id} {person}"] = Notice(event.id, "opened", notify, person)

    def _notify(self, id: str, what: Literal["opened", "escalated", "reminded"]) -> None:
        pending = self.state.pendings[id]
        rules = derive_rules(pending)
        if pending.status == "open" and rules.notify and (rules.pick is None or rules.picked is not None):
            self.notices[id] = Notice(id, what, rules.notify)

    def pending(self, event: _OfPending, position: int) -> None:
        self._write(event.id)

    def update_open(self, event: e.RunResumed | e.TimeJumped | e.Migrated, position: int) -> None:
        """A pause has put off the deadlines that it halts, a jump in time has brought all nearer; another version may
        declare other roles."""
        for id in self.state.open_pendings.values():
            self._write(id)

    def _write(self, id: str) -> None:
        pending = self.state.pendings[id]
        asks = list_selectors_asked(pending, World(self.state.requester, self.roles))
        self.pendings[id] = _build_pending_row(pending, " ".join(asks))

    def vote(self, event: e.VoteCast, position: int) -> None:
        self.votes.append(VoteRow(event.id, event.by, _encode(event), event.decision, event.on_behalf_of))

    def add_decision(self, event: e.PendingDecided, position: int) -> None:
        """Where one answer decides, it is stored beside the votes: so the lists of people's decisions show it."""
        self._write(event.id)
        if event.by is not None and self.state.pendings[event.id].opened.kind not in ("approve", "gate"):
            self.votes.append(VoteRow(event.id, event.by, _encode(event), event.outcome, event.on_behalf_of))

    def begin_fork(self, event: e.Forked, position: int) -> None:
        """Pendings and votes from before are the other run's, and so are the POSTs that opened its turns."""
        self.pendings.clear()
        self.votes.clear()
        self.notices.clear()
        self.is_fork = True
        for n, turn in self.turns.items():
            self.turns[n] = msgspec.structs.replace(turn, wire_run_id=None, body_sha=None)

    def turn_started(self, event: e.TurnStarted, position: int) -> None:
        sha = None if event.body_sha is None else bytes.fromhex(event.body_sha)
        self.turns[event.turn] = TurnRow(event.turn, position, None, event.wire_run_id, sha)

    def turn_ended(self, event: e.TurnEnded, position: int) -> None:
        opened = self.turns.get(event.turn, TurnRow(event.turn))
        self.turns[event.turn] = msgspec.structs.replace(opened, last=position)

    def message_ended(self, event: e.MessageEnded, position: int) -> None:
        self._message(self.state.messages[event.message_id], position)

    def messages_changed(self, event: e.MessagesChanged, position: int) -> None:
        for posted in event.messages:
            self._message(self.state.messages[posted.id], position)

    def _message(self, entry: MessageState, position: int) -> None:
        self.messages[entry.n] = MessageRow(entry.n, entry.id, entry.role, _encode(entry), position)

    def call(self, event: e.ToolCallEnded | e.ToolCallResolved, position: int) -> None:
        if not event.tool_call_id.startswith(call_prefix(self.state.run_id)):
            return  # a run below shows it, and has the row
        call = self.state.tool_calls[event.tool_call_id]
        self.messages[call.n] = MessageRow(call.n, call.id, CALL_ROLE, _encode(call), position)


# By type, not by `match`: an isinstance check of these records takes the slow way through their metaclass.
_PROJECTED: Final[dict[type[e.Event], Callable[[_Rows, Any, int], None]]] = {
    e.PendingOpened: _Rows.add_question,
    e.PendingEdited: _Rows.pending,
    e.PendingEscalated: _Rows.add_escalation,
    e.PendingReminded: _Rows.add_reminder,
    e.PendingRestamped: _Rows.add_restamp,
    e.PeoplePicked: _Rows.add_pick,
    e.PendingDecided: _Rows.add_decision,
    e.PendingVoided: _Rows.pending,
    e.RunResumed: _Rows.update_open,
    e.TimeJumped: _Rows.update_open,
    e.Migrated: _Rows.update_open,
    e.Forked: _Rows.begin_fork,
    e.VoteCast: _Rows.vote,
    e.TurnStarted: _Rows.turn_started,
    e.TurnEnded: _Rows.turn_ended,
    e.MessageEnded: _Rows.message_ended,
    e.MessagesChanged: _Rows.messages_changed,
    e.ToolCallEnded: _Rows.call,
    e.ToolCallResolved: _Rows.call,
}


def rows_of(
    events: Sequence[e.Event], state: RunState, roles: Mapping[str, tuple[str, ...]] = _NO_ROLES
) -> dict[str, Any]:
    """The children of an entry (`pendings votes turns messages`) for `events`, which made `state`, and the rows that go
    into the outbox with those of other runs. `roles` are those that the workflow declares."""
    if _PROJECTED.keys().isdisjoint(map(type, events)):
        return {}
    rows = _Rows(state, roles)
    for position, event in enumerate(events, 1):
        project = _PROJECTED.get(type(event))
        if project is not None:
            project(rows, event, position)
    return {
        "pendings": list(rows.pendings.values()),
        "votes": rows.votes,
        "turns": list(rows.turns.values()),
        "messages": list(rows.messages.values()),
        "outbox": [OutboxRow(NOTIFY, each.pending_id, _encode(each)) for each in rows.notices.values()],
    }


def list_selectors_asked(pending: PendingState, world: World) -> tuple[str, ...]:
    """The selectors by which people find the pending in their inbox, and whom it has picked; none if it is open no
    more."""
    if pending.status != "open":
        return ()
    rules = derive_rules(pending)
    picks = () if rules.pick is None else (PICKED,) if rules.picked is None else [PICKED + id for id in rules.picked]
    return (*expand_selectors(rules.from_, world), *picks)


def words_of(opened: e.PendingOpened) -> str:
    """The text by which a search finds a question: its title, its message and the name of its tool, without regard to
    case."""
    text = "\n".join(filter(None, (opened.title, opened.tool, opened.message)))
    return text[:WORDS_MAX].casefold().replace("\0", "").encode(errors="replace").decode()


def _build_pending_row(pending: PendingState, asks: str) -> PendingRow:
    opened = pending.opened
    deadline = None if opened.deadline is None else instants.instant(opened.deadline)
    digest, body = bytes.fromhex(opened.digest), _encode(opened)
    return PendingRow(
        opened.id, pending.status, opened.path, digest, deadline, body, asks, opened.kind, words_of(opened)
    )


def read_thread_entry(role: str, body: bytes) -> ThreadEntry:
    """The transcript entry that a row of `messages` holds."""
    return msgspec.json.decode(body, type=ToolCallState if role == CALL_ROLE else MessageState)
