"""A tool asks a person in the middle of its call: the attempt ends, the run waits, the next attempt has the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decision import Decision
from hai_flow.engine.pendings.tool_questions import find_inquiry_to_answer
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.steps.remote_tasks import CANCEL
from hai_flow.errors import Rejected
from tests.support.runs import DAY, HOUR, MINUTE, Play

FORM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
TOOLS = "tools: {erp: {mcp: 'https://erp.test/mcp'}, web: {mcp: 'https://web.test/mcp', effect: read}}\n"
FORM_OF_TEXT = "{properties: {text: {type: string}}}"
AGENT = "tools: {peer: {a2a: 'https://peer.test'}}\nsteps: [{id: pay, call: peer, with: {text: Pay}}]\n"


def calling(tool: str = "erp", more: str = "") -> Play:
    return Play(f"{TOOLS}steps: [{{id: pay, call: {tool}.pay, with: {{order: A-1}}{more}}}]\n")


def ask(play: Play, path: str = "pay", **more: Any) -> None:
    asks: dict[str, Any] = {"message": "How much?", "form": FORM, "state": "s1", "keys": ("k",), **more}
    play.do(c.StepAsks(path=path, attempt=play.attempt(path), **asks))


def brought(play: Play, path: str = "pay") -> Any:
    """What the open attempt brings to the tool."""
    found = find_inquiry_to_answer(play.state, resolve_step(play.plan, path), play.attempt(path))
    return None if found is None else (found.status, found.value, found.opened.inquiry)


def test_the_answer_of_a_later_day_begins_the_next_attempt_which_brings_it() -> None:
    play = calling(more=", timeout: 5m")
    play.advance(MINUTE)
    ask(play)
    assert (play.status, dict(play.state.attempts), play.asking) == ("waiting", {}, {"pay"})
    play.advance(DAY)
    play.answer("pay", values={"sum": 80})
    assert (play.attempt("pay"), play.status) == (2, "running")
    assert brought(play) == ("answered", {"sum": 80}, e.Inquiry(1, "s1", ("k",)))
    assert play.state.steps["pay"].args == '{"order":"A-1"}'
    play.advance(4 * MINUTE)
    play.succeed("pay", "paid")
    assert play.status == "finished"


@pytest.mark.parametrize(("given", "status"), [({"decision": "decline"}, "decline"), ({"error": "no"}, "decline")])
def test_a_refusal_is_brought_as_well(given: Any, status: str) -> None:
    play = calling()
    ask(play)
    with pytest.raises(Rejected):
        play.answer("pay", decision="approve")
    play.answer("pay", **given)
    assert brought(play) == (status, None, e.Inquiry(1, "s1", ("k",)))


def test_an_answer_counts_once_for_what_writes_and_always_for_what_reads() -> None:
    for tool, kept in (("erp", False), ("web", True)):
        play = calling(tool, ", retry: {max: 3, every: 1s, jitter: false}")
        ask(play)
        play.answer("pay", values={"sum": 80})
        play.fail("pay", "mcp.unavailable")
        play.advance(MINUTE)
        assert play.attempt("pay") == 3
        assert (brought(play) is not None) is kept, tool


def test_who_may_answer_is_the_requester_or_an_operator() -> None:
    play = calling()
    ask(play)
    with pytest.raises(Rejected) as refused:
        play.answer("pay", "user:eve", values={"sum": 1})
    assert refused.value.status == 403
    play.answer("pay", c.Principal("user:op", roles=("operator",)), values={"sum": 1})
    assert brought(play) is not None


def test_a_tool_asks_as_often_as_it_likes_and_a_late_question_is_refused() -> None:
    play = calling()
    for number in range(3):
        ask(play, state=f"s{number}")
        play.answer("pay", values={"sum": number})
        assert brought(play) == ("answered", {"sum": number}, e.Inquiry(number + 1, f"s{number}", ("k",)))
    with pytest.raises(Rejected) as refused:
        play.do(c.StepAsks(path="pay", attempt=2, message="", form=FORM))
    assert refused.value.code == "attempt_closed"


def test_a_question_that_nobody_answers_fails_the_step_after_a_week() -> None:
    play = calling()
    ask(play)
    play.advance(6 * DAY)
    assert play.status == "waiting"
    play.advance(DAY + HOUR)
    assert (play.status, play.error.code) == ("failed", "ask.expired")


def test_a_stop_ends_what_waits_for_an_answer() -> None:
    play = calling()
    ask(play)
    id = play.pending("pay")
    play.stop()
    assert (play.status, play.state.pendings[id].status) == ("stopped", "voided")


def test_a_stop_ends_what_was_about_to_ask() -> None:
    play = calling()
    play.stop()
    ask(play)
    assert (play.status, play.asking) == ("stopped", set())


def test_what_cleans_up_asks_nobody() -> None:
    play = Play(
        TOOLS
        + "steps:\n  - try: [{id: a, fail: {code: own.fault, message: x}}]\n"
        + "    finally: [{id: pay, call: erp.pay}]\n"
    )
    (path,) = play.state.attempts
    ask(play, path)
    assert (play.status, play.asking) == ("failed", set())


def test_a_person_who_is_asked_what_became_of_the_call_is_asked_once() -> None:
    play = calling()
    ask(play)
    play.answer("pay", values={"sum": 80})
    play.lose("pay")
    assert play.state.pendings[play.pending("pay")].opened.kind == "doubt"
    play.answer("pay", decision="again")
    assert (play.attempt("pay"), brought(play)) == (3, None)


def test_an_agents_lost_call_is_resumed_by_attempts_with_the_last_answer() -> None:
    play = Play(AGENT)
    play.lose("pay")
    assert (play.attempt("pay"), play.asking) == (2, set())
    ask(play)
    play.answer("pay", values={"sum": 80})
    for _ in range(2):
        assert brought(play) == ("answered", {"sum": 80}, e.Inquiry(2, "s1", ("k",)))
        play.lose("pay")
    assert play.asking == set()
    play.succeed("pay", {"text": "paid"})
    assert play.status == "finished"


def test_an_unknowable_start_of_an_agent_asks_people_and_again_is_no_loss() -> None:
    play = Play(AGENT)
    play.lose("pay")
    play.do(c.StepLost(path="pay", attempt=2, reason="Nobody knows whether the agent has begun."))
    assert play.asking == {"pay"}
    play.answer("pay", decision="again", reason="it has not")
    assert (play.attempt("pay"), play.state.steps["pay"].lost) == (3, 0)
    play.succeed("pay", {"text": "paid"})


class AgentPlay(Play):
    """A run that calls an agent of others. `sent`: its messages to have a task cancelled."""

    def __init__(self, text: str = AGENT) -> None:
        self.sent: list[Any] = []
        super().__init__(text)

    def do(self, command: c.Command) -> Decision:
        decision = super().do(command)
        self.sent += [each.body for each in decision.outbox if each.kind == CANCEL]
        return decision


def answer_and(*work: Callable[[Play], object]) -> Callable[[Play], None]:
    def act(play: Play) -> None:
        play.answer("pay", values={"sum": 1})
        for each in work:
            each(play)

    return act


@pytest.mark.parametrize(
    "leave",
    [
        Play.stop, Play.terminate, lambda play: play.skip("pay"), lambda play: play.advance(8 * DAY),
        answer_and(lambda play: play.fail("pay", "step.timeout", retriable=False)),
        answer_and(Play.terminate),
        answer_and(Play.stop, lambda play: play.lose("pay")),
        answer_and(Play.stop, lambda play: play.fail("pay", "step.cancelled", retriable=False)),
        answer_and(Play.stop, ask),
    ],
    ids=["stop", "terminate", "skip", "expiry", "timeout", "terminate it", "lost in a stop", "cancelled", "asks in it"],
)  # fmt: skip
def test_a_step_that_ends_without_its_task_has_it_cancelled_once(leave: Callable[[Play], object]) -> None:
    play = AgentPlay()
    ask(play, state="of the task")
    leave(play)
    (sent,) = play.sent
    assert (sent["path"], sent["key"], sent["inquiry"]) == ("pay", None, "of the task")


@pytest.mark.parametrize(
    "end", [lambda play: play.succeed("pay", {}), lambda play: play.fail("pay", retriable=False), Play.stop]
)
def test_a_task_over_or_of_an_open_attempt_is_not_cancelled(end: Callable[[Play], object]) -> None:
    play = AgentPlay()
    end(play)
    assert play.sent == []


def test_a_block_that_times_out_leaves_the_tasks_of_its_agents() -> None:
    text = AGENT.replace("[{id: pay", "[{id: all, timeout: 1h, try: [{id: pay").replace("Pay}}]", "Pay}}]}]")
    play = AgentPlay(text)
    play.advance(HOUR)
    assert [each["path"] for each in play.sent] == ["all/pay"]


@pytest.mark.parametrize(("before", "sent"), [(False, 0), (True, 1)])
def test_a_run_stopped_for_a_fork_leaves_it_the_tasks_it_goes_on_with(before: bool, sent: int) -> None:
    play = AgentPlay(AGENT.replace("steps: [", f"steps: [{{id: say, ask: {{title: Say, form: {FORM_OF_TEXT}}}}}, "))
    there = play.state
    play.answer("say", values={"text": "yes"})
    ask(play)
    play.leave(there if before else play.state)
    assert len(play.sent) == sent
    play.take_back()
    assert len(play.sent) == 1
