"""Rows follow the log: those of pendings what is asked, of turns and messages what is said."""

from __future__ import annotations

from typing import Any

import msgspec

from hai_flow import values
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.pendings import open
from hai_flow.engine.state.ids import pending_id
from hai_flow.primitives import instants
from hai_flow.store.commit.entries import PendingRow, TurnRow
from hai_flow.store.commit.projection import read_thread_entry, rows_of
from tests.support.people import DAY, HOUR, Asked, approving, escalate, gated, lit, policy, who
from tests.support.runs import FORK, Play

ANN = who("ann", "boss")


def row_after(ask: Asked) -> PendingRow:
    """The row that the last commit writes."""
    (row,) = rows_of(ask.log[-1:], ask.state)["pendings"]
    return row


def test_an_edit_is_in_the_row_so_that_lists_show_what_would_run() -> None:
    ask = Asked(gated(policy(edit=True, quorum=2)), args={"n": 1})
    before = ask.pending.opened.digest
    ask.vote(ANN, edits={"n": 2})
    (edited,) = ask.of(e.PendingEdited)
    (row,) = rows_of([edited], ask.state)["pendings"]
    assert row.digest.hex() == ask.pending.opened.digest != before
    assert values.loads(row.body)["args"] == '{"n":2}'


def test_an_escalation_is_in_the_row_with_its_deadline_and_whom_it_asks() -> None:
    ask = Asked(approving(policy(escalations=(escalate(DAY, from_=["role:cfo"]),))))
    ask.advance(HOUR)
    (escalated,) = ask.of(e.PendingEscalated)
    (row,) = rows_of([escalated], ask.state)["pendings"]
    assert row.deadline == instants.instant(ask.now + DAY)
    assert values.loads(row.body)["policy"]["from"] == ["role:cfo"]


def test_a_move_to_another_version_is_in_the_row() -> None:
    ask = Asked(approving(policy(notify=(lit("mail"),))))
    ask.state = msgspec.structs.replace(ask.state, sha256="22" * 32)
    ask.do(lambda draft, step: open.restamp(draft, ask.pending))
    assert row_after(ask).digest.hex() == ask.pending.opened.digest
    assert rows_of(ask.log[-1:], ask.state)["outbox"] == [], "people have been told of it"


def test_a_pause_that_halts_the_clock_puts_the_deadline_of_the_row_off() -> None:
    run = Play(approving(policy(pause_clock="stop")))
    run.pause()
    run.advance(DAY)
    run.resume()
    (row,) = rows_of(run.last, run.state)["pendings"]
    assert row.deadline == instants.instant(run.now + HOUR)


def test_every_vote_is_a_row_with_its_voter() -> None:
    ask = Asked(approving(policy(quorum=2)))
    ask.vote(ANN)
    (vote,) = rows_of(ask.log[-1:], ask.state)["votes"]
    assert (vote.pending_id, vote.principal) == (ask.id, "user:ann")


FORM = "form: {type: object}"


def test_an_answer_that_decides_alone_is_what_its_giver_has_decided() -> None:
    run = Play(f"steps: [{{id: ask, ask: {{title: How many?, {FORM}}}}}]")
    run.answer("ask", values={})
    rows = rows_after(run)
    assert [(row.principal, row.decision) for row in rows["votes"]] == [("user:ann", "answered")]
    assert [row.asks for row in rows["pendings"]] == [""], "nobody finds in their inbox what is closed"


def test_a_deadline_decides_in_nobodys_name() -> None:
    run = Play(f"steps: [{{id: ask, ask: {{title: How many?, {FORM}, deadline: 1h}}}}]")
    assert [row.asks for row in rows_after(run)["pendings"]] == ["user:ann"]
    run.advance(HOUR)
    assert run.of(e.PendingDecided)
    assert rows_of(run.of(e.PendingDecided), run.state)["votes"] == []


def test_a_copied_question_is_sent_once_and_a_decided_one_never() -> None:
    run = Play("steps: [{id: gate, approve: {title: Go?, from: anyone, notify: [mail]}}]")
    (told,) = rows_after(run)["outbox"]
    assert told.target == run.pending("gate")
    fork = run.fork(run.state.seq, {}, by="user:y")
    (told,) = rows_after(fork)["outbox"]
    assert told.target == fork.pending("gate"), "the question of the other run is told by that"
    decided = run.fork(run.state.seq, {"gate": {"decision": "approve"}}, by="user:y")
    assert rows_after(decided)["outbox"] == []


def test_a_question_that_waits_for_its_pick_is_sent_once_people_are_picked() -> None:
    late = "deadline: 1h, on_deadline: [{escalate: {from: role:cfo, deadline: 1d}}, reject]"
    run = Play(f"steps: [{{id: gate, approve: {{title: Go?, from: role:boss, pick: 1, notify: [mail], {late}}}}}]")
    rows = rows_after(run)
    assert (rows["outbox"], [row.asks for row in rows["pendings"]]) == ([], ["role:boss picked:"])
    id = run.pending("gate")
    for stages_left, before, people, told in (
        (1, None, ("user:bob",), (None, "opened")),
        (1, ("user:bob",), ("user:bob", "user:cy"), ("user:cy", "opened")),
        (1, ("user:bob", "user:cy"), (), (None, "opened")),
        (0, None, ("user:cfo",), (None, "escalated")),
    ):
        if not stages_left:
            run.advance(HOUR)
        run.do(c.PickPeople(id=id, stages_left=stages_left, before=before, people=people))
        rows = rows_of(run.of(e.PeoplePicked)[-1:], run.state)
        (message,) = rows["outbox"]
        notice = values.loads(message.body)
        assert (message.kind, message.target, notice.get("person"), notice["what"]) == ("notify", id, *told)
    assert [row.asks for row in rows["pendings"]] == ["role:cfo picked:user:cfo"]


# --- turns and the thread ---------------------------------------------------------------------------------------------

SAYING = """
input: {type: object}
tools:
  pick: {frontend: {description: Pick one., parameters: {type: object, additionalProperties: true}}}
steps:
  - say: hello
  - {id: chosen, call: pick, with: {a: 1}}
  - say: goodbye
"""


def rows_after(run: Play) -> dict[str, Any]:
    """What the run's last commit writes beside the log."""
    return rows_of(run.last, run.state)


def position(run: Play, kind: type[e.Event], number: int = 0) -> int:
    """Where the last commit has its `number`-th event of that kind, counted from 1."""
    return [place for place, event in enumerate(run.last, 1) if isinstance(event, kind)][number]


def test_a_turn_says_where_it_begins_and_ends_and_which_post_has_opened_it() -> None:
    run = Play(SAYING, start=False)
    run.start(turn=c.Turn(wire_run_id="w1", dialect="hai", body_sha="0a0b"))
    first, last = position(run, e.TurnStarted), position(run, e.TurnEnded)
    assert rows_after(run)["turns"] == [TurnRow(1, first, last, "w1", b"\x0a\x0b")]
    run.answer("chosen", result="x")
    assert rows_after(run)["turns"] == [
        TurnRow(2, position(run, e.TurnStarted), position(run, e.TurnEnded), None, None)
    ]


def test_a_turn_that_ends_in_a_later_commit_says_only_its_end() -> None:
    run = Play("steps: [{id: a, call: t.f}]")
    assert [(row.n, row.last) for row in rows_after(run)["turns"]] == [(1, None)]
    run.succeed("a")
    assert rows_after(run)["turns"] == [TurnRow(1, None, position(run, e.TurnEnded))]


def test_messages_and_calls_are_rows_that_read_back_unchanged() -> None:
    run = Play(SAYING, start=False)
    run.start(messages=(e.UserMessage("m1", "user", "hi"), e.UserMessage("m2", "user", "there")))
    rows = rows_after(run)["messages"]
    assert [(row.n, row.role) for row in rows] == [(0, "user"), (1, "user"), (2, "assistant"), (3, "tool")]
    posted, said = position(run, e.MessagesChanged), position(run, e.MessageEnded)
    assert [row.position for row in rows] == [posted, posted, said, position(run, e.ToolCallEnded)]
    assert [read_thread_entry(row.role, row.body) for row in rows] == [
        run.state.messages["m1"], run.state.messages["m2"], run.state.messages[rows[2].id],
        run.state.tool_calls[rows[3].id],
    ]  # fmt: skip
    call = rows[3].id
    run.answer("chosen", result="x")
    resolved, goodbye = rows_after(run)["messages"]
    assert (resolved.n, resolved.id, resolved.position) == (3, call, position(run, e.ToolCallResolved))
    assert read_thread_entry(resolved.role, resolved.body) == run.state.tool_calls[call]
    assert (goodbye.n, goodbye.role) == (4, "assistant")


def test_the_call_of_a_run_below_is_a_row_of_that_run() -> None:
    run = Play(SAYING)
    (ended,) = [event for event in run.last if isinstance(event, e.ToolCallEnded)]
    below = pending_id(str(FORK), "chosen", 1)
    calls = run.state.tool_calls.set(below, run.state.tool_calls[ended.tool_call_id])
    there = msgspec.structs.replace(run.state, tool_calls=calls)
    shown = msgspec.structs.replace(ended, tool_call_id=below)
    assert [row.id for row in rows_of([ended, shown], there)["messages"]] == [ended.tool_call_id]


def test_a_commit_that_nobody_looks_up_writes_no_rows() -> None:
    run = Play("steps: [{id: a, call: t.f, retry: {max: 1, every: 1h}}]")
    run.lose("a")
    assert rows_after(run) == {}
    run.succeed("a")
    assert {name for name, rows in rows_after(run).items() if rows} == {"turns"}


def test_a_pending_without_a_deadline_has_none_in_its_row() -> None:
    run = Play("steps: [{id: ask, call: pick, with: {}}]")
    (row,) = rows_after(run)["pendings"]
    (opened,) = run.of(e.PendingOpened)
    assert row.deadline == (None if opened.deadline is None else instants.instant(opened.deadline))
    blank = msgspec.structs.replace(run.state.pendings[row.id].opened, deadline=None)
    pendings = run.state.pendings.set(row.id, msgspec.structs.replace(run.state.pendings[row.id], opened=blank))
    (row,) = rows_of([opened], msgspec.structs.replace(run.state, pendings=pendings))["pendings"]
    assert row.deadline is None


def test_what_a_fork_has_copied_is_the_other_runs_to_be_asked_and_answered() -> None:
    first = "{id: first, approve: {title: Look?, from: anyone}}"
    run = Play(f"steps: [{first}, {{id: gate, approve: {{title: Go?, from: anyone, quorum: 3}}}}]", start=False)
    run.start(turn=c.Turn(wire_run_id="w1", body_sha="0a"))
    run.answer("first", by="user:x", decision="approve")
    run.answer("gate", by="user:x", decision="approve")
    fork = run.fork(run.state.seq, {"gate": {"decision": "approve"}}, by="user:y")
    rows = rows_after(fork)
    assert [(row.wire_run_id, row.body_sha) for row in rows["turns"]] == [(None, None)] * len(rows["turns"])
    assert [(row.pending_id, row.principal) for row in rows["votes"]] == [(fork.pending("gate"), "user:y")]
    assert [row.id for row in rows["pendings"]] == [fork.pending("gate")]


def test_a_call_that_a_run_below_shows_has_its_row_there() -> None:
    play = Play("steps: [{id: a, call: t.f, expose: true}]")
    play.succeed("a", 1)
    (own,) = play.state.tool_calls
    below = pending_id("01900000-0000-7000-8000-00000000ffff", "a", 0)
    calls = play.state.tool_calls.set(below, play.state.tool_calls[own])
    state = msgspec.structs.replace(play.state, tool_calls=calls)
    assert rows_of([e.ToolCallEnded(at=0, tool_call_id=below)], state)["messages"] == []
    assert len(rows_of([e.ToolCallEnded(at=0, tool_call_id=own)], state)["messages"]) == 1
