"""A parent and its children, each decided on its own, with what they want of each other delivered between."""

from __future__ import annotations

from collections import deque
from typing import Any, Final
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.decision import Message
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.pendings import eligibility
from hai_flow.engine.runs import children
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS
from hai_flow.engine.state.ids import derive_child_run_id
from hai_flow.engine.state.jobs import Perform, is_busy, open_jobs
from hai_flow.errors import Rejected
from hai_flow.store.commit.projection import rows_of
from tests.support.runs import HOUR, MINUTE, RUN, Play, plan_of
from tests.support.values import require

PARENT = """
    input: {type: object, properties: {amount: {type: number}}}
    steps:
      - id: sub
        title: Check it
        run: checks
        with: {amount: "${{ input.amount }}"}
    output: ${{ steps.sub.output }}
"""
CHILD = """
    input: {type: object, required: [amount], properties: {amount: {type: number}}}
    steps:
      - {id: look, call: t.look, with: {amount: "${{ input.amount }}"}}
    output: ${{ steps.look.output }}
"""
ASKING = """
    input: {type: object, properties: {amount: {type: number}}}
    steps:
      - {id: sure, ask: {title: Sure?, form: {properties: {ok: {type: boolean}}}}}
    output: ${{ steps.sure.output }}
"""


class Family:
    """A run, the runs that it starts, and the messages on their way between them (in order, as the outbox keeps it)."""

    def __init__(self, parent: str, child: str, input: Any = None, pins: dict[str, e.Pin] | None = None) -> None:
        self.child_plan: Plan = plan_of(child)
        self.plays: dict[str, Play] = {}
        self.mail: deque[Message] = deque()
        self.kinds: list[str] = []
        self.parent = self._new(parent, str(RUN))
        self.mail.extend(self.parent.start({"amount": 5} if input is None else input, pins=pins or {}).outbox)

    @property
    def child(self) -> Play:
        """The run that was started last."""
        return list(self.plays.values())[-1]

    def _new(self, plan: str | Plan, run_id: str) -> Play:
        play = self.plays[run_id] = Play(plan, run_id=UUID(run_id), start=False)
        return play

    def do(self, play: Play, command: c.Command) -> None:
        self.mail.extend(play.do(command).outbox)

    def deliver(self) -> list[str]:
        """Deliver what is on its way, until nothing is; the kinds, in order."""
        kinds = []
        while self.mail:
            kinds.append(self.deliver_one())
        return kinds

    def deliver_one(self) -> str:
        """Deliver the first of what is on its way; its kind, with the status if it was refused."""
        message = self.mail.popleft()
        command = children.build_command(message.kind, message.target, message.body)
        if command is None:  # it is for no run
            return message.kind
        if message.target not in self.plays:
            self._new(self.child_plan, message.target)
        try:
            self.do(self.plays[message.target], command)
        except Rejected as rejected:
            return f"{message.kind}!{rejected.status}"
        return message.kind

    def succeed(self, path: str, output: Any = None) -> None:
        child = self.child
        self.do(child, c.StepSucceeded(path=path, attempt=child.attempt(path), output=output))

    def fail(self, path: str, code: str = "tool.failed") -> None:
        child = self.child
        failed = c.StepFailed(path=path, attempt=child.attempt(path), code=code, message="It broke.", retriable=False)
        self.do(child, failed)

    def answer(self, path: str) -> None:
        child = self.child
        answer = c.PendingAnswer(id=child.pending(path), values={"ok": True})
        self.do(child, c.Answer(answers=(answer,), by=c.Principal("user:ann")))

    def advance(self, play: Play, ms: int) -> None:
        for each in self.plays.values():
            each.now += ms
        self.do(play, c.TimerFired())


TAKING = """
    steps:
      - {id: got, wait_for: {event: t.go}}
      - {id: look, call: t.look, with: {}}
"""
SIGNING = "{id: ok, approve: {title: 'Pay?', from: [role:lead]}}"
"""An approval behind a child, or beside one: its requester is excluded, as usual."""


def _take(family: Family, by: str) -> None:
    """The child takes an event that the person has sent."""
    family.deliver()
    family.do(family.child, c.Signal(id=f"s-{by}", name="t.go", sent_at=family.child.now, by=by))


def _map_obstacles_to_sign(play: Play) -> dict[str, str | None]:
    """Who may decide the run's open approval: by person, the obstacle's code."""
    (id,) = [id for path, id in play.state.open_pendings.items() if path.endswith("ok")]
    pending, world = play.state.pendings[id], eligibility.world_of(play.plan, play.state)
    obstacles = {
        by: eligibility.obstacle(pending, c.Principal(by, ("lead",)), world) for by in ("user:bob", "user:zoe")
    }
    return {by: None if obstacle is None else obstacle.code for by, obstacle in obstacles.items()}


_BESIDE: Final = "id: both, parallel: {a: [{id: sub, run: checks}], b: [" + SIGNING + "]}"
_CAUGHT: Final = "id: t, try: [{id: sub, run: checks}], catch: [{steps: [" + SIGNING + "]}]"
_LOOP: Final = "id: each, for_each: {items: '${{ [1] }}', as: n, steps: [{id: sub, run: checks}]}"


@pytest.mark.parametrize(
    ("steps", "end"),
    [
        ("{id: sub, run: checks}, " + SIGNING, "finished"),
        ("{" + _LOOP + "}, " + SIGNING, "finished"),
        ("{" + _BESIDE + "}", "finished"),
        ("{" + _CAUGHT + "}", "failed"),
        ("{" + _CAUGHT + "}", "stopped"),
    ],
    ids=["behind it", "behind a loop of them", "in a branch beside it", "behind its failure", "behind its stop"],
)
def test_the_sender_of_an_event_for_a_child_does_not_decide_in_the_parent(steps: str, end: str) -> None:
    family = Family(f"steps: [{steps}]", TAKING, {})
    _take(family, "user:bob")
    if end == "finished":
        family.succeed("look")
    else:
        if end == "stopped":
            family.do(family.child, c.Stop(by="user:op"))
        family.fail("look")
    family.deliver()
    assert family.parent.state.senders == ("user:bob",)
    assert _map_obstacles_to_sign(family.parent) == {"user:bob": "excluded.instigator", "user:zoe": None}


def test_the_sender_of_an_event_for_a_working_child_does_not_decide_beside() -> None:
    family = Family("steps: [{" + _BESIDE + "}]", TAKING, {})
    assert _map_obstacles_to_sign(family.parent)["user:bob"] is None
    _take(family, "user:bob")
    family.deliver()
    assert family.child.state.status == "running"
    assert _map_obstacles_to_sign(family.parent) == {"user:bob": "excluded.instigator", "user:zoe": None}
    (moved,) = [each for each in family.parent.events if isinstance(each, e.ChildMoved) and each.senders]
    family.do(family.parent, c.ChildMoved(path="both/a/sub", attempt=1, working=True, senders=moved.senders))
    assert not family.parent.last


def test_the_sender_of_an_event_that_ended_a_child_does_not_decide_above() -> None:
    family = Family(
        "steps: [{id: sub, run: checks}, " + SIGNING + "]", "steps: [{id: got, wait_for: {event: t.go}}]", {}
    )
    _take(family, "user:bob")
    family.deliver()
    (end,) = [each for each in family.parent.events if isinstance(each, e.CollaborationEnded)]
    assert end.senders == ("user:bob",)
    assert _map_obstacles_to_sign(family.parent) == {"user:bob": "excluded.instigator", "user:zoe": None}


def test_senders_of_a_child_that_took_up_its_work_again_are_told_once() -> None:
    family = Family("steps: [{id: sub, run: checks}, " + SIGNING + "]", TAKING, {})
    _take(family, "user:bob")
    family.fail("look")
    family.deliver()
    family.do(family.parent, c.Retry(by="user:op"))
    family.deliver()
    family.succeed("look")
    family.deliver()
    ends = [each for each in family.parent.events if isinstance(each, e.CollaborationEnded)]
    moves = [each for each in family.parent.events if isinstance(each, e.ChildMoved)]
    assert [each.senders for each in (*moves, *ends) if each.senders] == [("user:bob",)]
    assert _map_obstacles_to_sign(family.parent) == {"user:bob": "excluded.instigator", "user:zoe": None}


def test_who_retries_a_run_is_not_behind_it_and_who_caused_it_stays_so() -> None:
    play = Play(f"steps: [{{id: look, call: t.look, with: {{}}}}, {SIGNING}]", start=False)
    play.start(instigators=("user:bob",))
    play.do(c.StepFailed(path="look", attempt=1, code="tool.failed", message="It broke.", retriable=False))
    play.do(c.Retry(by="user:zoe"))
    play.do(c.StepSucceeded(path="look", attempt=play.attempt("look"), output=1))
    assert _map_obstacles_to_sign(play) == {"user:bob": "excluded.instigator", "user:zoe": None}


def test_a_child_of_a_run_begun_after_an_event_knows_the_sender() -> None:
    steps = "{id: got, wait_for: {event: t.go}}, {id: sub, run: checks}"
    family = Family(f"steps: [{steps}]", f"steps: [{SIGNING}]", {})
    family.do(family.parent, c.Signal(id="s", name="t.go", sent_at=family.parent.now, by="user:bob"))
    family.deliver()
    assert _map_obstacles_to_sign(family.child) == {"user:bob": "excluded.instigator", "user:zoe": None}


def test_a_child_gets_its_input_and_its_output_is_the_steps() -> None:
    family = Family(PARENT, CHILD)
    assert family.deliver() == ["start_child", "child_told"]
    child = family.child
    assert str(child.run_id) == derive_child_run_id(str(RUN), "sub", 1)
    assert (child.state.input, child.state.requester, child.state.thread_id) == ({"amount": 5}, "user:ann", "t-1")
    assert child.state.parent == e.Parent(str(RUN), "sub", 1, 1)
    family.succeed("look", {"found": 1})
    assert family.deliver() == ["child_ended"]
    assert (family.parent.status, family.parent.output) == ("finished", {"found": 1})


def test_a_child_run_is_shown_as_a_collaboration() -> None:
    family = Family(PARENT, CHILD)
    family.deliver()
    family.succeed("look")
    family.deliver()
    (started,), (ended,) = family.parent.of(e.CollaborationStarted), family.parent.of(e.CollaborationEnded)
    for event in (started, ended):
        assert (event.from_, event.to, event.task) == ("sample", "checks", {"id": "sub", "name": "Check it"})
        assert (event.path, event.run_id) == ("sub", str(family.child.run_id))


def test_no_process_performs_a_child_run_or_holds_its_parent() -> None:
    family = Family(PARENT, CHILD)
    state = family.parent.state
    assert dict(state.attempts) == {"sub": 1}
    assert not [job for job in open_jobs(state) if isinstance(job, Perform)]
    assert not is_busy(state)


def test_what_the_pins_say_goes_with_the_start() -> None:
    pins = {"checks": e.Pin(3, "ab" * 32)}
    family = Family(PARENT, CHILD, pins=pins)
    (message,) = family.mail
    assert (message.body["workflow"], message.body["sha256"]) == ("checks", "ab" * 32)
    family.deliver()
    assert family.child.state.pins == pins


def test_a_start_that_is_delivered_twice_finds_the_child_that_is_there() -> None:
    family = Family(PARENT, CHILD)
    (message,) = family.mail
    family.deliver()
    family.mail.append(message)
    family.deliver()
    assert len(family.plays) == 2
    assert family.child.types() == []


def test_a_parent_waits_while_its_child_does_and_works_while_it_works() -> None:
    family = Family(PARENT, ASKING)
    assert family.parent.status == "running"
    assert family.deliver() == ["start_child", "child_told"]
    assert (family.child.status, family.parent.status) == ("waiting", "waiting")
    assert not family.parent.state.turn_open
    family.answer("sure")
    assert family.deliver() == ["child_told", "child_ended"]
    assert (family.parent.status, family.parent.output) == ("finished", {"ok": True})


def test_a_parent_works_again_when_its_child_goes_on() -> None:
    family = Family(PARENT, ASKING.rstrip().replace("    output: ", "      - {id: look, call: t.look}\n    output: "))
    family.deliver()
    family.answer("sure")
    assert family.deliver() == ["child_told"]
    assert (family.parent.status, family.parent.state.turn_open) == ("running", True)
    family.succeed("look")
    family.deliver()
    assert family.parent.status == "finished"


def test_the_childs_error_is_the_cause_of_the_steps() -> None:
    family = Family(PARENT, CHILD)
    family.deliver()
    family.fail("look", "shop.closed")
    family.deliver()
    error = family.parent.error
    assert (family.parent.status, error.code, error.path) == ("failed", "run.failed", "sub")
    assert error.cause is not None
    assert (error.cause.code, error.cause.path) == ("shop.closed", "look")


def test_a_child_that_was_stopped_fails_its_step() -> None:
    family = Family(PARENT, ASKING)
    family.deliver()
    family.do(family.child, c.Stop(by="user:op", reason="not needed"))
    family.deliver()
    assert (family.parent.status, family.parent.error.code) == ("failed", "run.stopped")
    assert "not needed" in family.parent.error.message


def test_a_retry_of_the_step_starts_another_child() -> None:
    family = Family(
        PARENT.replace("        run:", "        retry: {max: 1, errors: [run.failed], jitter: false}\n        run:"),
        CHILD,
    )
    family.deliver()
    first = family.child
    family.fail("look")
    family.deliver()
    assert (family.parent.status, family.parent.timers) == ("running", [("sub", "retry", 1000)])
    family.advance(family.parent, 1000)
    assert family.deliver() == ["start_child", "child_told"]
    assert family.child.run_id != first.run_id
    with pytest.raises(Rejected, match=f"Retry {RUN}") as refused:  # it would go on, but nobody waits for it
        family.do(first, c.Retry(by="user:op"))
    assert (refused.value.code, refused.value.winner) == ("run_not_awaited", {"run_id": str(RUN)})
    family.succeed("look", "in time")
    family.deliver()
    assert family.parent.output == "in time"


def test_pause_and_resume_pass_down() -> None:
    family = Family(PARENT, CHILD)
    family.deliver()
    family.do(family.parent, c.Pause(by="user:op", reason="hold on"))
    family.deliver()
    assert (family.child.status, family.parent.status) == ("paused", "paused")
    assert family.parent.state.turn_open, "an effect is in flight, as if it were one of its own"
    family.succeed("look", 1)  # what was in flight is recorded, and nothing follows
    family.deliver()
    assert family.child.status == "paused"
    assert not family.parent.state.turn_open
    family.do(family.parent, c.Resume(by="user:op"))
    family.deliver()
    assert (family.child.status, family.parent.status) == ("finished", "finished")


def test_a_child_not_begun_when_its_parent_pauses_is_paused_when_it_is() -> None:
    family = Family(PARENT, ASKING)
    family.do(family.parent, c.Pause(by="user:op"))
    family.deliver()
    assert family.child.status == "paused"


def test_a_stop_waits_for_the_child_to_stop() -> None:
    family = Family(PARENT, CHILD)
    family.deliver()
    family.do(family.parent, c.Stop(by="user:op", reason="enough"))
    assert family.parent.status == "stopping"
    family.deliver()
    assert (family.child.status, family.parent.status) == ("stopping", "stopping")
    family.fail("look", "step.cancelled")
    family.deliver()
    assert (family.child.status, family.parent.status) == ("stopped", "stopped")
    assert (family.child.state.stop_by, family.child.state.stop_reason) == ("user:op", "enough")
    assert family.parent.step("sub") == "stopped"


def test_a_child_that_finishes_while_the_stop_is_on_its_way_has_finished() -> None:
    family = Family(PARENT, CHILD)
    family.deliver()
    family.succeed("look", "done")
    ended = family.mail.popleft()
    family.do(family.parent, c.Stop(by="user:op"))
    assert family.deliver() == ["stop!409"]
    family.mail.append(ended)
    family.deliver()
    assert (family.parent.status, family.parent.step("sub")) == ("stopped", "finished")


def test_a_stop_does_not_wait_for_longer_than_its_grace() -> None:
    family = Family(PARENT, CHILD)
    family.deliver()
    family.do(family.parent, c.Stop(by="user:op"))
    family.deliver()
    family.advance(family.parent, MINUTE)
    assert family.parent.status == "stopped"
    family.do(family.child, c.TimerFired())  # its own grace is over as well
    assert family.deliver()[-1] == "child_ended!409"


def test_terminate_passes_down() -> None:
    family = Family(PARENT, CHILD)
    family.deliver()
    family.do(family.parent, c.Terminate(by="user:op"))
    family.deliver()
    assert (family.child.status, family.parent.status) == ("stopped", "stopped")
    assert family.child.of(e.RunStopped)[0].terminated


def test_a_child_whose_branch_has_lost_is_stopped() -> None:
    family = Family(
        """
        steps:
          - parallel:
              child: [{id: sub, run: checks}]
              clock: [{id: soon, wait: {for: 1h}}]
            join: any
        """,
        ASKING,
        input={},
    )
    family.deliver()
    family.advance(family.parent, HOUR)
    assert family.parent.status == "finished"
    assert family.deliver() == ["stop", "child_told!409", "child_ended!409"]
    assert family.child.status == "stopped"


def test_the_timeout_bounds_the_childs_working_time_and_stops_it() -> None:
    family = Family(PARENT.replace("        run:", "        timeout: 1m\n        run:"), CHILD)
    family.deliver()
    assert not family.parent.state.timeouts
    family.advance(family.child, MINUTE)
    assert family.child.status == "stopping"
    family.fail("look", "step.cancelled")
    family.deliver()
    assert (family.child.status, family.parent.error.code) == ("stopped", "step.timeout")
    assert family.parent.error.retriable


def test_the_timeout_does_not_count_what_the_child_waits_for() -> None:
    family = Family(PARENT.replace("        run:", "        timeout: 1m\n        run:"), ASKING)
    family.deliver()
    for play in family.plays.values():
        play.now += HOUR
    with pytest.raises(Rejected, match="no timer"):
        family.child.do(c.TimerFired())
    family.answer("sure")
    family.deliver()
    assert family.parent.status == "finished"


def test_a_child_in_the_ninth_generation_is_refused() -> None:
    play = Play(PARENT, start=False)
    decision = play.start({"amount": 1}, parent=e.Parent(str(RUN), "sub", 1, children.DEPTH_MAX))
    assert (play.status, play.error.code) == ("failed", "run.failed")
    assert [message.kind for message in decision.outbox] == ["child_ended"]


def test_a_gate_comes_before_the_child() -> None:
    family = Family(PARENT.replace("        run:", "        approval: {from: anyone}\n        run:"), CHILD)
    assert (family.parent.asking, list(family.mail)) == ({"sub"}, [])
    decided = family.parent.answer("sub", decision="approve")
    assert [message.kind for message in decided.outbox] == ["start_child"]
    assert family.parent.open == {"sub": 1}


def test_an_undo_may_be_a_child_run_which_a_stop_spares() -> None:
    family = Family(
        """
        steps:
          - {id: pay, call: t.pay, undo: {run: checks, with: {amount: 1}}}
          - {id: sure, ask: {title: Sure?, form: {properties: {ok: {type: boolean}}}}}
        """,
        CHILD,
        input={},
    )
    family.do(family.parent, c.StepSucceeded(path="pay", attempt=1, output=None))
    family.do(family.parent, c.Stop(by="user:op"))
    assert family.deliver() == ["start_child", "child_told"]
    assert (family.parent.status, family.parent.open) == ("stopping", {"pay/~undo": 1})
    family.succeed("look")
    family.deliver()
    assert (family.parent.status, family.parent.step("pay")) == ("stopped", "undone")


def test_a_step_that_waits_for_a_child_hears_of_no_other() -> None:
    family = Family(PARENT, CHILD)
    for command in (
        c.ChildEnded(path="sub", attempt=2, status="finished"),
        c.ChildEnded(path="other", attempt=1, status="finished"),
        c.ChildMoved(path="sub", attempt=2, working=False),
    ):
        with pytest.raises(Rejected) as refused:
            family.parent.do(command)
        assert (refused.value.status, refused.value.code) == (409, "attempt_closed")


def test_an_exposed_child_tells_what_it_was_given_and_what_it_gave() -> None:
    family = Family(PARENT.replace("run: checks", "run: checks\n        expose: true"), CHILD)
    family.deliver()
    family.succeed("look", {"found": 1})
    family.deliver()
    (told,) = family.parent.of(e.CustomEmitted)
    assert (told.name, told.path) == ("hai.output", "sub")
    assert told.value == {"path": "sub", "arguments": {"amount": 5}, "output": {"found": 1}}
    untold = Family(PARENT, CHILD)
    untold.deliver()
    untold.succeed("look", {"found": 1})
    untold.deliver()
    assert untold.parent.of(e.CustomEmitted) == []


def test_a_stop_spares_the_child_that_cleans_up() -> None:
    play = Play("""
        steps:
          - id: b
            try: [{id: work, run: checks}, {id: more, call: t.f}]
            finally: [{id: clean, run: checks}]
        """)
    stopped = play.stop()
    assert [message.kind for message in stopped.outbox] == ["stop"]
    play = Play("""
        steps:
          - id: b
            try: [{id: work, call: t.f}]
            finally: [{id: clean, run: checks}]
        """)
    play.fail("b/work", retriable=False)
    assert set(play.state.children) == {"b/~finally/clean"}
    assert [message.kind for message in play.stop().outbox] == []


def test_a_child_has_its_steps_time_without_its_parents_earlier_use() -> None:
    play = Play("steps: [{id: first, call: t.f}, {id: sub, run: checks, timeout: 10m}]")
    play.now += 4 * MINUTE
    (born,) = play.succeed("first").outbox
    assert born.body["timeout"] == 10 * MINUTE


def test_a_childs_questions_and_messages_reach_its_parent_until_answered() -> None:
    family = Family(PARENT, ASKING.replace("steps:\n", "steps:\n      - say: hello\n"))
    family.deliver()
    (said,), (asked,) = family.parent.of(e.ChildSaid), family.parent.of(e.ChildAsked)
    assert (said.content, asked.path, asked.opened.path, asked.known) == ("hello", "sub", "sub/sure", False)
    assert [each.opened.id for each in family.parent.state.open_questions] == [asked.opened.id]
    assert not family.parent.state.open_pendings
    assert asked.turn == family.parent.of(e.TurnEnded)[-1].turn, "the turn in which it was asked has it"
    given = (c.PendingAnswer(id=asked.opened.id, values={"ok": True}),)
    family.do(family.child, c.Answer(answers=given, by=c.Principal("user:ann"), turn=c.Turn(wire_run_id="mine")))
    assert family.child.of(e.TurnStarted)[-1].wire_run_id is None
    family.deliver()
    assert family.parent.of(e.ChildAsked)[-1].status == "answered"
    assert family.parent.state.open_questions == []
    assert [each.wire_run_id for each in family.parent.of(e.TurnStarted)] == [None, "mine"]
    assert family.parent.status == "finished"


def test_nobody_is_asked_any_more_what_a_child_asks_that_nobody_awaits() -> None:
    family = Family(PARENT, ASKING)
    family.deliver()
    family.parent.do(c.Terminate(by="user:local"))
    (question,) = family.parent.state.questions.values()
    assert (question.status, family.parent.state.open_questions) == ("voided", [])


# --- runs that are left alone -------------------------------------------------------------------------------------

DETACHING = """
    input: {type: object, properties: {amount: {type: number}}}
    steps:
      - id: sub
        run: checks
        detach: true
        with: {amount: "${{ input.amount }}"}
      - {id: more, call: t.more, with: {run: "${{ steps.sub.output.run_id }}"}}
"""


def started(family: Family) -> None:
    """What delivery tells the starter when the run is there."""
    family.deliver()
    output = {"run_id": derive_child_run_id(str(RUN), "sub", 1)}
    family.do(family.parent, c.ChildEnded(path="sub", attempt=1, status="finished", output=output))


def test_a_detached_run_is_nobodys_child_and_its_step_has_its_id() -> None:
    family = Family(DETACHING, ASKING)
    assert family.parent.status == "running"  # until it is known whether the run can be started
    assert family.deliver() == ["start_detached"]
    child = family.child
    started(family)
    assert (child.state.parent, child.state.thread_id, child.state.requester) == (None, str(child.run_id), "user:ann")
    assert (child.state.trigger, child.state.origin) == ("run", e.Origin(str(RUN), "sub"))
    assert family.parent.state.steps["sub"].output == {"run_id": str(child.run_id)}
    assert family.parent.attempt("more") == 1
    assert family.deliver() == []  # its question is of its own thread


@pytest.mark.parametrize("before", [True, False], ids=["while it is being started", "when it is there"])
@pytest.mark.parametrize(
    "command", [c.Pause(by="user:op"), c.Stop(by="user:op"), c.Terminate(by="user:op")], ids=["pause", "stop", "end"]
)
def test_what_is_done_to_its_starter_does_not_reach_a_detached_run(command: c.Command, before: bool) -> None:
    family = Family(DETACHING, ASKING)
    if not before:
        started(family)
    family.do(family.parent, command)
    assert [each for each in family.deliver() if each != "start_detached"] == []
    assert family.child.status == "waiting"


def test_a_detached_run_that_cannot_start_fails_its_step_with_the_reason() -> None:
    family = Family(DETACHING, ASKING)
    error = e.Error("input.invalid", "It does not fit.")
    family.do(family.parent, c.ChildEnded(path="sub", attempt=1, status="failed", error=error))
    failure = require(family.parent.state.error)
    assert (failure.code, failure.cause) == ("run.failed", error)
    assert failure.message == "The run of checks could not be started: It does not fit."


def test_a_detached_run_is_of_the_chain_that_its_starter_is_of() -> None:
    origin = e.Origin("01900000-0000-7000-8000-0000000000aa", depth=3)
    family = Family(DETACHING, PARENT)
    (message,) = family.mail
    assert message.body["origin"] == {"run_id": str(RUN), "path": "sub"}
    play = Play(DETACHING, start=False)
    (sent,) = play.start({"amount": 5}, origin=origin).outbox
    assert sent.body["origin"]["depth"] == 3
    play = Play(PARENT, start=False)
    (sent,) = play.start({"amount": 5}, origin=origin).outbox
    command = children.build_command(sent.kind, sent.target, sent.body)
    assert isinstance(command, c.Start)
    assert command.origin == origin


def steps_of(play: Play) -> list[tuple[str, str]]:
    return [(event.path, event.status) for event in play.of(e.ChildStepped)]


TALKING = """
    input: {type: object, properties: {amount: {type: number}}}
    steps:
      - {say: hello}
      - {id: look, call: t.look, stream: text}
      - {id: again, call: t.look}
    output: ${{ steps.again.output }}
"""


def test_steps_of_a_watchable_child_are_sent_as_they_begin_and_end() -> None:
    family = Family(PARENT, TALKING)
    family.deliver()
    assert (steps_of(family.parent), set(family.parent.state.below)) == ([("sub/look", "running")], {"sub/look"})
    family.succeed("look")
    family.deliver()
    family.succeed("again")
    assert family.deliver() == ["child_ended"], "what ends with the child is told with its end"
    told = [(path, status) for path in ("sub/look", "sub/again") for status in ("running", "finished")]
    assert steps_of(family.parent) == told
    assert not family.parent.state.below


def test_a_step_left_open_by_a_child_closes_when_nobody_awaits_the_child() -> None:
    for end in (c.Terminate(by="user:op"), c.Stop(by="user:op")):
        family = Family(PARENT, CHILD)
        family.deliver()
        family.do(family.parent, end)
        family.advance(family.parent, MINUTE) if isinstance(end, c.Stop) else None
        assert (family.parent.status, dict(family.parent.state.below)) == ("stopped", {})


def test_what_was_under_way_when_a_run_was_paused_opens_no_turn_of_it() -> None:
    family = Family(PARENT, CHILD)
    family.deliver()
    family.do(family.parent, c.Pause(by="user:op"))
    family.deliver()
    turns = len(family.parent.of(e.TurnStarted))
    family.succeed("look", 1)
    family.deliver()
    assert (len(family.parent.of(e.TurnStarted)), dict(family.parent.state.below)) == (turns, {})


def test_a_half_full_log_takes_no_steps_of_child_runs() -> None:
    family = Family(PARENT, CHILD)
    family.deliver()
    step = e.ChildStepped(at=1, path="more", status="running")
    told = c.ChildTold(path="sub", attempt=1, told=(step,))
    most = DEFAULT_BOUNDS.run_bytes // 2
    for log_bytes, expected in ((most, []), (most - 1, ["sub/more"])):
        decision = decide(family.parent.plan, family.parent.state, told, family.parent.now, log_bytes=log_bytes)
        assert [event.path for event in decision.events if isinstance(event, e.ChildStepped)] == expected


def stream(play: Play, *texts: str, id: str = "m", path: str = "look") -> Message | None:
    """The holder of the run writes what the step streams; what its parent is told of it."""
    events: list[e.Event] = []
    known = play.state.messages.get(id)
    if known is None:
        events.append(e.MessageStarted(at=play.now, turn=1, message_id=id, path=path))
    for n, text in enumerate(texts, 0 if known is None else known.chunks):
        events.append(e.MessageChunk(at=play.now, turn=1, message_id=id, n=n, content=text))
    play.state = fold(play.state, events)
    return children.grown(play.state, events)


def read_from(play: Play, message: Message) -> c.ChildTold:
    """The command, with the texts that who delivers it reads from the log of the run that sent it."""
    told = children.build_command(message.kind, message.target, message.body)
    assert isinstance(told, c.ChildTold)
    with_text = {
        name: tuple(
            msgspec.structs.replace(each, content=play.state.messages[each.message_id].content)
            for each in getattr(told, name)
        )
        for name in ("streamed", "growing")
    }
    known = play.state.tool_calls
    calls = tuple(
        msgspec.structs.replace(each, args=call.args, open=call.open, result=call.result or "", error=call.error)
        for each in told.calls
        if (call := known[each.id])
    )
    return msgspec.structs.replace(told, calls=calls, **with_text)


def heard(play: Play) -> list[tuple[str, str]]:
    """What a run's log says of the message of a run below, in order."""
    found = []
    for event in play.events:
        if isinstance(event, e.MessageStarted) and event.message_id == "m":
            found.append(("started", event.path))
        elif isinstance(event, e.MessageChunk) and event.message_id == "m":
            found.append(("chunk", event.content))
        elif isinstance(event, e.ChildSaid) and event.message_id == "m":
            found.append(("said", event.content))
    return found


def test_a_streamed_message_is_stored_without_text_that_no_decision_reads() -> None:
    family = Family(PARENT, TALKING)
    family.deliver()
    stream(family.child, "secret")
    family.succeed("look")
    (told,) = family.mail
    assert [each["message_id"] for each in told.body["streamed"]] == ["m"]
    assert "secret" not in str(told.body)


def test_a_message_of_a_child_grows_in_its_parent_and_is_whole_at_its_end() -> None:
    family = Family(PARENT, TALKING)
    family.deliver()
    first = require(stream(family.child, "one ", "two "))
    assert "two" not in str(first.body), "who delivers it reads the text"
    family.do(family.parent, read_from(family.child, first))
    second = require(stream(family.child, "three"))
    family.do(family.parent, read_from(family.child, second))
    assert family.parent.state.messages["m"].open
    family.succeed("look")
    family.do(family.parent, read_from(family.child, family.mail.popleft()))
    expected = [("started", "sub/look"), ("chunk", "one two "), ("chunk", "three"), ("said", "one two three")]
    assert heard(family.parent) == expected
    message = family.parent.state.messages["m"]
    assert (message.content, message.open, dict(family.parent.state.open_messages)) == ("one two three", False, {})


@given(st.lists(st.integers(0, 5), max_size=12))
def test_late_and_repeated_pieces_of_a_child_change_nothing(order: list[int]) -> None:
    """Whatever comes again, too late or not at all, and in whatever order: the text is there once, and only grows."""
    family = Family(PARENT, TALKING)
    family.deliver()
    told = []
    for text in ("a", "b", "c", "d", "e"):
        message = require(stream(family.child, text))
        told.append(read_from(family.child, message))
    family.succeed("look")
    told.append(read_from(family.child, family.mail.popleft()))
    for number in [*order, 5]:
        family.do(family.parent, told[number])
    pieces = [text for kind, text in heard(family.parent) if kind == "chunk"]
    assert "abcde".startswith("".join(pieces))
    assert heard(family.parent)[-1] == ("said", "abcde")
    assert [kind for kind, _ in heard(family.parent)].count("said") == 1
    assert not family.parent.state.open_messages


def test_pieces_of_an_unawaited_child_are_refused_and_its_message_is_cut() -> None:
    for end in (c.Terminate(by="user:op"), c.Stop(by="user:op")):
        family = Family(PARENT, TALKING)
        family.deliver()
        first = require(stream(family.child, "half of"))
        told = read_from(family.child, first)
        family.do(family.parent, told)
        family.do(family.parent, end)
        family.advance(family.parent, MINUTE) if isinstance(end, c.Stop) else None
        message = family.parent.state.messages["m"]
        assert (message.content, message.open, message.aborted) == ("half of", False, True)
        with pytest.raises(Rejected, match="does not wait"):
            family.do(family.parent, told)


def test_a_piece_opens_no_turn_and_takes_no_room_in_a_half_full_log() -> None:
    family = Family(PARENT, TALKING)
    family.deliver()
    piece = require(stream(family.child, "hm"))
    told, parent = read_from(family.child, piece), family.parent
    most = DEFAULT_BOUNDS.run_bytes // 2
    for log_bytes, expected in ((most, 0), (most - 1, 2)):
        assert len(decide(parent.plan, parent.state, told, parent.now, log_bytes=log_bytes).events) == expected
    held = Family(PARENT, ASKING)
    held.deliver()
    assert not held.parent.state.turn_open
    assert decide(held.parent.plan, held.parent.state, told, held.parent.now).already


def test_a_message_grows_through_every_run_above() -> None:
    family = Family(
        PARENT, CHILD.replace("look, call: t.look", "inner, run: checks").replace("steps.look", "steps.inner")
    )
    family.deliver_one()  # and not what its child begins with: another child
    below = family.child
    family.mail.clear()
    said = e.ChildSaid(at=below.now, path="look", message_id="m", content="so far")
    family.do(below, c.ChildTold(path="inner", attempt=1, growing=(said,)))
    (passed,) = family.mail
    assert "so far" not in str(passed.body)
    family.do(family.parent, read_from(below, passed))
    assert heard(family.parent) == [("started", "sub/inner/look"), ("chunk", "so far")]


SHARING = """
    input: {type: object, properties: {amount: {type: number}}}
    state:
      flights: {type: array, default: [], show: thread}
      note: {type: string, default: none, client: true}
      hidden: {type: integer, default: 0}
      ours: {type: string, default: of the child, show: thread}
    steps:
      - set: {flights: [KL1], hidden: 1}
      - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
      - set: {flights: [KL1, KL2], hidden: 2}
    output: ${{ state.note }}
"""
OWNING = """
    input: {type: object, properties: {amount: {type: number}}}
    state:
      ours: {type: string, default: of the parent}
      mine: {type: string, default: a, client: true}
""" + PARENT.partition("amount: {type: number}}}\n")[2]


def sharing(*, by: str = "user:ann", state: dict[str, Any] | None = None) -> Family:
    """A parent whose child shares its state, and was answered with this posted `state`."""
    family = Family(OWNING, SHARING)
    family.deliver()
    answer = c.PendingAnswer(id=family.child.pending("sure"), values={"ok": True})
    family.do(family.child, c.Answer(answers=(answer,), by=c.Principal(by), state=state or {}))
    family.deliver()
    return family


def test_a_childs_state_shows_with_its_parents_which_hides_its_own_names() -> None:
    family = Family(OWNING, SHARING)
    family.deliver()
    parent = family.parent.state
    assert parent.state == {"ours": "of the parent", "mine": "a"}, "a child writes nothing of it"
    assert parent.shown == {**parent.state, "flights": ["KL1"], "note": "none"}
    ended = sharing()
    told = [(each.path, each.values) for each in ended.parent.of(e.ChildShared)]
    assert told == [("sub", {"flights": ["KL1"], "note": "none"}), ("sub", {"flights": ["KL1", "KL2"]})]
    assert ended.parent.state.shown["flights"] == ["KL1", "KL2"], "also when the child is over"


def test_a_post_with_an_answer_is_written_by_the_child_and_every_parent() -> None:
    family = sharing(state={"note": "x", "hidden": 7, "mine": "b", "ours": "theirs"})
    assert (family.child.state.state["note"], family.child.state.state["hidden"]) == ("x", 2)
    assert family.parent.state.state == {"ours": "of the parent", "mine": "b"}
    assert family.parent.state.shown["note"] == "x"


def test_a_post_that_does_not_fit_a_parent_run_is_dropped_with_a_warning() -> None:
    family = sharing(state={"note": "x", "mine": 5})
    assert family.parent.state.state["mine"] == "a"
    assert [each.code for each in family.parent.of(e.WarningRaised)] == ["state.invalid"]
    assert family.parent.status == "finished"


def test_who_only_answers_writes_no_state_of_a_child_or_of_a_run_above() -> None:
    family = sharing(by="user:eve", state={"note": "x", "mine": "b"})
    assert (family.child.state.state["note"], family.parent.state.state["mine"]) == ("none", "a")
    assert family.parent.output == "none"


def test_state_of_a_child_takes_no_room_from_a_log_that_is_half_full() -> None:
    family = Family(PARENT, CHILD)
    family.deliver()
    told = c.ChildTold(path="sub", attempt=1, told=(e.ChildShared(at=1, path="", values={"a": 1}),))
    most = DEFAULT_BOUNDS.run_bytes // 2
    for log_bytes, expected in ((most, 0), (most - 1, 1)):
        decision = decide(family.parent.plan, family.parent.state, told, family.parent.now, log_bytes=log_bytes)
        assert len(decision.events) == expected


PAGE = """
    input: {type: object, properties: {amount: {type: number}}}
    state: {doc: {type: string, default: "", show: thread}}
    tools:
      t: {python: registered}
      page:
        frontend:
          description: P
          parameters: {type: object, properties: {doc: {type: string}}}
          answer: none
          predict: {doc: doc}
    steps:
"""
WRITING = PAGE + "      - {id: look, call: t.f, stream: {to: page, argument: doc}}\n"
SHOWING = PAGE + "      - {id: look, call: page, with: {doc: so}}\n      - {id: again, call: t.f}\n"


def called(play: Play) -> list[str]:
    """What a run's log says of the calls of a run below, in order."""
    kinds: dict[type[e.Event], str] = {
        e.CustomEmitted: "foretold",
        e.ToolCallStarted: "started",
        e.ToolCallEnded: "ended",
    }
    found = []
    for event in play.events:
        if isinstance(event, e.ToolCallArgsChunk):
            found.append(event.content)
        elif isinstance(event, e.ToolCallResolved):
            found.append(f"{event.content} {event.error}")
        elif known := kinds.get(type(event)):
            found.append(known)
    return found


def deliver_all(family: Family) -> None:
    """As `deliver`, with the texts that are read from the log of the child."""
    while family.mail:
        message = family.mail.popleft()
        command = require(children.build_command(message.kind, message.target, message.body))
        family.do(family.parent, read_from(family.child, message) if isinstance(command, c.ChildTold) else command)


def test_a_call_that_a_child_only_shows_is_shown_by_its_parent() -> None:
    family = Family(PARENT, SHOWING)
    family.deliver_one()
    deliver_all(family)
    assert called(family.parent) == ["foretold", "started", '{"doc":"so"}', "ended", "shown None"]
    (call,) = family.parent.state.tool_calls.values()
    assert (call.path, call.executor, call.open, call.result) == ("sub/look", "frontend", False, "shown")
    assert rows_of(family.parent.events, family.parent.state)["messages"] == [], "the child has the row"


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_that_grows_in_a_child_grows_in_its_parent(fails: bool) -> None:
    family = Family(PARENT, WRITING)
    family.deliver_one()
    deliver_all(family)
    child = family.child
    (id,) = child.state.tool_calls
    for piece in ("so ", "it grows"):
        event = e.ToolCallArgsChunk(at=child.now, turn=1, tool_call_id=id, content=piece)
        child.state = fold(child.state, [event])
        told = require(children.grown(child.state, [event]))
        assert piece not in str(told.body)
        for _ in range(2):  # the second time it brings nothing
            family.do(family.parent, read_from(child, told))
    assert called(family.parent) == ["foretold", "started", '{"doc":"', "so ", "it grows"]
    family.fail("look") if fails else family.succeed("look")
    deliver_all(family)
    end = "aborted aborted" if fails else "shown None"
    assert called(family.parent)[5:] == ['"}', "ended", end]
    assert family.parent.state.tool_calls[id].args == '{"doc":"so it grows"}'


def test_a_question_that_is_a_frontend_call_is_sent_once_as_a_question() -> None:
    family = Family(PARENT, SHOWING.replace("answer: none\n          predict: {doc: doc}", "answer: required"))
    family.deliver_one()
    assert not any(message.body.get("calls") for message in family.mail)
