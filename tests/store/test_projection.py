"""The row of a pending follows what is asked: edits, escalations, pauses and moves to another version."""

from __future__ import annotations

import msgspec

from hai_flow import values
from hai_flow.engine import events as e
from hai_flow.engine import people
from hai_flow.store.projection import rows_of
from hai_flow.store.runs import PendingRow
from tests.support.people import DAY, HOUR, Asked, approving, escalate, gated, policy, who
from tests.support.runs import Play

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
    assert row.deadline == values.instant(ask.now + DAY)
    assert values.loads(row.body)["policy"]["from"] == ["role:cfo"]


def test_a_move_to_another_version_is_in_the_row() -> None:
    ask = Asked(approving(policy()))
    ask.state = msgspec.structs.replace(ask.state, sha256="22" * 32)
    ask.do(lambda draft, step: people.restamp(draft, ask.pending))
    assert row_after(ask).digest.hex() == ask.pending.opened.digest


def test_a_pause_that_halts_the_clock_puts_the_deadline_of_the_row_off() -> None:
    run = Play(approving(policy(pause_clock="stop")))
    run.pause()
    run.advance(DAY)
    run.resume()
    (row,) = rows_of(run.last, run.state)["pendings"]
    assert row.deadline == values.instant(run.now + HOUR)


def test_every_vote_is_a_row_with_its_voter() -> None:
    ask = Asked(approving(policy(quorum=2)))
    ask.vote(ANN)
    (vote,) = rows_of(ask.log[-1:], ask.state)["votes"]
    assert (vote.pending_id, vote.principal) == (ask.id, "user:ann")
