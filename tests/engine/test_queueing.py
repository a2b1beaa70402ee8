"""Runs that wait for a slot of their concurrency key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.events import Parent
from hai_flow.engine.runs.start_run import compute_key_of_fork, key_of
from hai_flow.errors import Rejected
from tests.support.runs import FORK, NOON, RUN, Play, plan_of

KEYED = """
input: {type: object, properties: {customer: {type: string}}}
concurrency: {key: "${{ input.customer }}", limit: 2}
steps: [{id: a, call: t.f}]
"""


def queued(**more: Any) -> Play:
    play = Play(KEYED, start=False)
    play.start({"customer": "c1"}, key="demo:c1", queued=True, **more)
    return play


def sent(decision: Any) -> list[tuple[str, Any]]:
    return [(message.kind, message.body) for message in decision.outbox]


def test_a_run_that_is_queued_begins_nothing_and_says_what_it_waits_for() -> None:
    play = Play(KEYED, start=False)
    decision = play.start({"customer": "c1"}, key="demo:c1", queued=True, cancels=True)
    assert play.status == "queued"
    assert play.types(decision.events) == ["run_started", "turn_started", "turn_ended", "run_queued"]
    assert sent(decision) == [("await_slot", {"key": "demo:c1", "seats": 2, "cancels": True, "since": play.now})]
    assert not decision.jobs


def test_an_admitted_run_begins_and_a_second_admission_is_nothing_new() -> None:
    play = queued()
    play.do(c.Admit())
    assert play.open == {"a": 1}
    assert play.do(c.Admit()).already


def test_a_run_paused_in_the_queue_is_not_admitted_and_requeues_at_resume() -> None:
    play = queued()
    play.pause()
    with pytest.raises(Rejected, match="can't admit a run that is paused"):
        play.do(c.Admit())
    decision = play.resume()
    assert play.status == "queued"
    assert sent(decision)[0][0] == "await_slot"


def test_the_end_of_a_run_frees_its_slot_whether_it_held_or_awaited_it() -> None:
    play = queued()
    assert sent(play.stop()) == [("slot_freed", {"key": "demo:c1"})]
    play = queued()
    play.do(c.Admit())
    assert sent(play.succeed("a")) == [("slot_freed", {"key": "demo:c1"})]


PATIENT = "on_message: enqueue\nsteps: [{id: a, call: t.f}]"


def test_the_end_of_a_run_frees_its_thread_where_messages_wait_for_it() -> None:
    play = Play(PATIENT)
    thread = play.state.thread_id
    assert not play.pause().outbox
    play.resume()
    assert sent(play.fail("a")) == [("thread_freed", {"thread": thread})]
    play.retry()
    assert sent(play.succeed("a")) == [("thread_freed", {"thread": thread})]
    assert not Play(PATIENT.replace("enqueue", "interrupt")).succeed("a").outbox


def test_a_child_that_ends_frees_no_thread_of_its_parent() -> None:
    play = Play(PATIENT, start=False)
    play.start(parent=Parent("01900000-0000-7000-8000-000000000009", "call", 1, 1))
    assert "thread_freed" not in [kind for kind, _ in sent(play.succeed("a"))]


def test_a_failed_run_queues_again_before_it_is_retried() -> None:
    play = queued()
    play.do(c.Admit())
    play.fail("a")
    decision = play.retry()
    assert play.status == "queued"
    assert [kind for kind, _ in sent(decision)] == ["await_slot"]
    play.do(c.Admit())
    assert play.open == {"a": 2}


def test_the_key_is_made_of_the_input_before_the_run_exists() -> None:
    plan = plan_of(KEYED)
    start = c.Start(run_id=RUN, thread_id="t", requester="user:a", input={"customer": "c7"})
    assert key_of(plan, start, NOON) == f"{plan.name}:c7"
    with pytest.raises(Rejected, match="at most 500 characters") as refused:
        key_of(plan, structs.replace(start, input={"customer": "x" * 501}), NOON)
    assert refused.value.status == 422
    share = plan_of(KEYED.replace("input.customer }}", "string(1 / size(input.customer)) }}"))
    with pytest.raises(Rejected, match="can't be made"):
        key_of(share, structs.replace(start, input={"customer": ""}), NOON)


@pytest.mark.parametrize(("edits", "key"), [(None, "c2"), (c.Edits(), "c2"), (c.Edits(input={"customer": "c3"}), "c3")])
def test_a_fork_counts_by_the_input_with_which_it_begins(edits: c.Edits | None, key: str) -> None:
    play = queued()
    forked = e.Forked(at=NOON, of=str(RUN), copied=1, by="user:ann", input={"customer": "c2"})
    moved = e.Migrated(at=NOON, by="user:ann", version=2, sha256="0" * 64)  # the version adds nothing to it
    answer = c.Answer(answers=(), by=c.Principal("user:ann"), via="rest")
    events = (*play.of(e.RunStarted), *play.of(e.TurnStarted), forked, moved)
    fork = c.Fork(run_id=FORK, of=RUN, events=events, answer=answer, edits=edits)
    assert compute_key_of_fork(play.plan, fork, NOON) == f"{play.plan.name}:{key}"


def test_an_empty_key_is_none() -> None:
    start = c.Start(run_id=RUN, thread_id="t", requester="user:a", input={"customer": ""})
    assert key_of(plan_of(KEYED), start, NOON) is None


def test_a_run_without_concurrency_needs_no_slot() -> None:
    plain = "steps: [{id: a, call: t.f}]"
    start = c.Start(run_id=RUN, thread_id="t", requester="user:a", input={})
    assert key_of(plan_of(plain), start, NOON) is None
    play = Play(plain)
    assert not play.succeed("a").outbox


@pytest.mark.parametrize(("key", "fits"), [("x" * 500, True), ("x" * 501, False), ("a\x00b", False)])
def test_a_key_has_at_most_500_characters_and_no_nul(key: str, fits: bool) -> None:
    plan = plan_of(KEYED)
    begin = c.Start(run_id=RUN, thread_id="t", requester="user:ann", input={"customer": key})
    if fits:
        assert key_of(plan, begin, NOON) == f"{plan.name}:{key}"
        return
    with pytest.raises(Rejected) as refused:
        key_of(plan, begin, NOON)
    assert (refused.value.status, refused.value.code) == (422, "concurrency.key")
    assert f"found {len(key)}" in refused.value.detail


def test_a_key_that_can_not_be_made_is_a_fault_of_the_request() -> None:
    share = plan_of(KEYED.replace("input.customer }}", "string(1 / size(input.customer)) }}"))
    with pytest.raises(Rejected) as refused:
        key_of(share, c.Start(run_id=RUN, thread_id="t", requester="user:a", input={"customer": ""}), NOON)
    assert refused.value.status == 422


def test_a_run_that_has_ended_frees_its_slot_once() -> None:
    play = queued()
    assert len(sent(play.do(c.Terminate(by="user:ann")))) == 1
    again = play.do(c.Terminate(by="user:ann"))
    assert (again.already, sent(again)) == (True, [])


def test_a_queued_run_without_concurrency_any_more_waits_for_the_one_seat() -> None:
    play = queued()
    play.plan = replace(play.plan, concurrency=None)
    play.pause()
    ((kind, body),) = sent(play.resume())
    assert (kind, body["seats"]) == ("await_slot", 1)
