"""Time comes before commands: how late a timer fires, or whether it does, changes nothing but when it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.pendings.eligibility import may_decide
from hai_flow.engine.runs.replay import decide_again
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.state.jobs import wake_at
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from tests.support.examples import examples
from tests.support.runs import DAY, HOUR, MINUTE, NOON, SECOND, Play

STAGES = """
steps:
  - id: gate
    approve:
      title: Go?
      from: user:ann
      deadline: 1s
      on_deadline: [{escalate: {from: user:carl, deadline: 1s}}, {reject: {}}]
  - {say: gone}
"""


def refusal(play: Play, command: c.Command) -> Rejected:
    before = play.state
    with pytest.raises(Rejected) as refused:
        play.do(command)
    assert play.state is before, "who is refused changes nothing"
    return refused.value


def approval(play: Play, path: str, by: str) -> c.Answer:
    answer = c.PendingAnswer(id=play.pending(path), decision="approve")
    return c.Answer(answers=(answer,), by=c.Principal(by))


# --- people -----------------------------------------------------------------------------------------------------------


def started(text: str, **more: Any) -> Play:
    """A run that was started by somebody who is asked nothing."""
    play = Play(text, start=False, **more)
    play.do(c.Start(run_id=play.run_id, thread_id="t-1", requester="user:req", input={}))
    return play


def test_nobody_decides_in_a_stage_that_is_over_though_no_timer_has_fired() -> None:
    play = started(STAGES)
    play.now += 1_500
    late = refusal(play, approval(play, "gate", "user:ann"))
    assert (late.status, late.code) == (403, "pending_forbidden")
    assert "user:carl" in late.detail, "it says who may decide now"
    play.do(approval(play, "gate", "user:carl"))
    assert (play.status, play.said) == ("finished", ["gone"])


@pytest.mark.parametrize("later", [2 * SECOND, 4 * SECOND, 30 * DAY])
def test_nobody_decides_behind_the_last_deadline_though_no_timer_has_fired(later: int) -> None:
    play = started(STAGES)
    play.now += later
    for who in ("user:ann", "user:carl"):
        late = refusal(play, approval(play, "gate", who))
        assert (late.status, late.code, late.winner["outcome"]) == (410, "pending_expired", "expired")
    play.do(c.TimerFired())
    assert (play.status, play.error.code) == ("failed", "approval.rejected")


def test_a_stage_begins_at_the_end_of_the_one_before_not_at_a_look() -> None:
    play = started(STAGES)
    play.now += 1_500
    play.do(c.TimerFired())
    pending = play.state.pendings[play.pending("gate")]
    assert (pending.opened.deadline, pending.since) == (NOON + 2 * SECOND, NOON + SECOND)
    play.do(approval(play, "gate", "user:carl"))
    (stage,) = play.state.steps["gate"].approval["escalations"]
    assert stage["at"] == "2026-03-02T12:00:01.000Z"


def test_work_due_before_an_answer_is_committed_with_it_in_its_own_turn() -> None:
    play = started(STAGES)
    play.now += 1_500
    play.do(approval(play, "gate", "user:carl"))
    assert play.types()[:6] == [
        "turn_started", "timer_fired", "pending_escalated", "timer_set", "turn_ended", "turn_started",
    ]  # fmt: skip
    assert {event.at for event in play.last} == {play.now}


def test_an_answer_that_was_taken_is_the_same_again_behind_the_deadline() -> None:
    two = STAGES.replace("from: user:ann", "from: [user:ann, user:bob]\n      quorum: 2")
    play = started(two)
    first = approval(play, "gate", "user:ann")
    play.do(first)
    play.now += DAY
    again = play.do(first)
    assert again.already
    assert again.outcome["answers"][0]["status"] == "already"
    assert refusal(play, approval(play, "gate", "user:bob")).code == "pending_expired"


def test_while_paused_a_stage_is_over_in_time_and_a_halted_one_is_not() -> None:
    for clock, may in (("run", "user:carl"), ("stop", "user:ann")):
        play = started(STAGES.replace("title: Go?", f"title: Go?\n      pause_clock: {clock}"))
        play.pause()
        play.now += 1_500
        other = "user:ann" if may == "user:carl" else "user:carl"
        assert refusal(play, approval(play, "gate", other)).code == "pending_forbidden"
        play.do(approval(play, "gate", may))


def test_a_stop_comes_too_late_for_a_run_that_its_last_deadline_has_ended() -> None:
    for command in (c.Stop(by="user:op"), c.Terminate(by="user:op"), c.Pause(by="user:op")):
        play = started(STAGES)
        play.now += DAY
        assert refusal(play, command).code == "run_ended"


def test_a_run_that_needs_attention_can_be_ended_whatever_is_due() -> None:
    """What could not be stored may be what is due: an operator gets rid of the run all the same."""
    for command in (c.Stop(by="user:op"), c.Terminate(by="user:op")):
        play = started(STAGES)
        play.do(c.NeedAttention(reason="refused"))
        play.now += DAY
        play.do(command)
        assert play.status == "stopped"
        assert not play.of(e.PendingEscalated)


# --- waits, limits, attempts ------------------------------------------------------------------------------------------


def test_an_event_after_the_deadline_is_not_taken_before_the_timer_fires() -> None:
    play = started("steps: [{id: w, wait_for: {event: ping, deadline: 1h}}]")
    play.now += 30 * DAY
    late = refusal(play, c.Signal(id="s-1", name="ping", sent_at=play.now))
    assert late.code == "run_ended"
    play.do(c.TimerFired())
    assert play.error.code == "wait_for.expired"


def test_an_event_stored_in_time_counts_however_late_it_is_offered() -> None:
    play = started("steps: [{id: w, wait_for: {event: ping, deadline: 1h}}]")
    stored = c.Signal(id="s-1", name="ping", sent_at=play.now + MINUTE)
    play.now += 30 * DAY
    assert play.do(stored).outcome["taken"]
    assert play.status == "finished"


def test_a_result_after_its_attempts_timeout_is_refused_before_any_timer() -> None:
    play = started("steps: [{id: a, call: t.f, timeout: 1m}]")
    play.now += 2 * MINUTE
    assert refusal(play, c.StepSucceeded(path="a", attempt=1, output=1)).code == "attempt_closed"
    play.do(c.TimerFired())
    assert play.error.code == "step.timeout"


def test_a_result_stored_late_counts_from_the_end_of_its_attempt() -> None:
    play = started("steps: [{id: a, call: t.f, timeout: 1m}]")
    play.now += 2 * MINUTE
    play.do(c.StepSucceeded(path="a", attempt=1, output=1, ended_at=NOON + MINUTE - 1))
    assert play.status == "finished"


def test_an_attempt_whose_process_is_gone_is_lost_and_not_late() -> None:
    """Nobody was there to fire its time-out: the step runs again, as it does after any death of a process."""
    play = started("steps: [{parallel: {x: [{id: a, call: t.f, timeout: 1m}], y: [{id: q, call: pick}]}}]")
    path = next(iter(play.open))
    asked = next(iter(play.asking))
    play.now += 2 * MINUTE
    play.answer(asked, by="user:req", content="x")  # somebody else's command does not time it out either
    play.lose(path)
    assert play.open == {path: 2}


def test_a_grace_begins_when_those_who_work_are_told() -> None:
    play = started("limits: {duration: 1h}\nsteps: [{id: a, call: t.f}]")
    play.stop()
    assert play.timers == [("", "grace", 30 * SECOND)]


def test_the_limit_of_a_run_is_told_as_it_is_written_and_older_logs_stand() -> None:
    play = started("limits: {duration: 90s}\nsteps: [{id: both, parallel: {a: [{id: a, call: t.f}], b: [call: t.f]}}]")
    play.now += 2 * MINUTE
    play.do(c.TimerFired())
    text = "The run has taken longer than its limit of 1m30s."
    assert (play.state.status, play.state.error and play.state.error.message) == ("failed", text)
    state, reworded = RunState(str(play.run_id)), 0
    for batch in play.log:
        encoded = msgspec.json.encode([msgspec.to_builtins(each) for each in batch])
        older = encoded.replace(b"limit of 1m30s.", b"limit of 90000 ms.")
        other = encoded.replace(b"limit of 1m30s.", b"limit of something else.")
        reworded += older != encoded
        assert decide_again(play.plan, state, decode_batch(older, batch)).left is None
        assert (decide_again(play.plan, state, decode_batch(other, batch)).left is None) == (other == encoded)
        state = fold(state, batch)
    assert reworded == 1


def decode_batch(encoded: bytes, batch: Sequence[e.Event]) -> list[e.Event]:
    return [msgspec.convert(raw, type(each)) for raw, each in zip(msgspec.json.decode(encoded), batch, strict=True)]


def test_what_begins_because_of_a_late_timer_begins_now() -> None:
    """Nobody could answer before it was shown: a question has its whole time."""
    play = started("steps: [{id: w, wait: {for: 10m}}, {id: q, call: pick}]")
    play.now += DAY
    play.do(c.TimerFired())
    assert play.timers == [("q", "deadline", 7 * DAY)]


# --- bounds -----------------------------------------------------------------------------------------------------------

MANY = """
input: {type: object, properties: {names: {type: array, items: {type: string}}}}
steps:
  - id: all
    for_each:
      items: ${{ input.names }}
      max_parallel: 50
      on_failure: isolate
      steps:
        - id: gate
          approve: {title: Go?, from: anyone, deadline: 1h, on_deadline: [{escalate: {deadline: 1h}}, {fail: {}}]}
"""


def test_a_decision_with_much_due_before_it_keeps_its_bounds_and_resumes() -> None:
    limits = Bounds(events=120)
    play = Play(MANY, input={"names": [f"n{n}" for n in range(50)]}, limits=limits)
    play.settle()
    one = approval(play, "all[n7]/gate", "user:bob")
    play.now += 90 * MINUTE
    before = len(play.log)
    play.do(one)
    assert len(play.log) - before > 1, "all of it was one decision"
    assert play.state.pendings[one.answers[0].id].by == "user:bob"
    assert len(play.of(e.PendingEscalated)) == 50
    assert (play.state.timers[0].due, len(play.state.open_pendings)) == (NOON + 2 * HOUR, 49)


def test_a_timer_with_much_due_before_it_stays_due_until_all_is_done() -> None:
    play = Play(MANY, input={"names": [f"n{n}" for n in range(50)]}, limits=Bounds(events=120))
    play.settle()
    play.now += DAY
    fired = 0
    while (due := wake_at(play.state)) is not None and due <= play.now:
        play.do(c.TimerFired())
        play.settle()
        fired += 1
    assert fired > 1
    assert (play.status, play.asking) == ("finished", set())


# --- any script -------------------------------------------------------------------------------------------------------

PEOPLE = ("user:ann", "user:bob", "user:carl")
TIMES = st.sampled_from([1, 2, 3, 5, 8, 13])
SOME = st.lists(st.sampled_from(PEOPLE), min_size=1, max_size=3, unique=True)


@st.composite
def asking(draw: st.DrawFn) -> dict[str, Any]:
    stages: list[Any] = [
        {"escalate": {"from": draw(SOME), "deadline": f"{draw(TIMES)}h"}} for _ in range(draw(st.integers(0, 2)))
    ]
    stages.append(draw(st.sampled_from([{"reject": {"reason": "late"}}, {"fail": {}}, {"approve": {}}])))
    asked: dict[str, Any] = {
        "title": "Go?",
        "from": draw(SOME),
        "deadline": f"{draw(TIMES)}h",
        "on_deadline": stages,
        "reject_when": draw(st.sampled_from(["any", "unreachable"])),
        "pause_clock": draw(st.sampled_from(["run", "stop"])),
        "remind": ["30m", "90m"],
    }
    asked["quorum"] = draw(st.integers(1, len(asked["from"])))
    step: dict[str, Any] = {"approve": asked}
    if draw(st.booleans()):
        step["on_reject"] = [{"set": {"log": "no"}}]
    return step


@st.composite
def branches(draw: st.DrawFn) -> list[dict[str, Any]]:
    """One thing that has a clock from the beginning, and what begins behind it has none."""
    kind = draw(st.sampled_from(["approve", "approve", "approve", "ask", "wait_for", "wait"]))
    first: dict[str, Any]
    if kind == "approve":
        first = draw(asking())
    elif kind == "ask":
        form = {"type": "object", "properties": {"n": {"type": "integer"}}}
        late: Any = draw(st.sampled_from([{"default": {"n": 7}}, {"fail": {}}]))
        times = {"deadline": f"{draw(TIMES)}h", "on_deadline": late}
        first = {"ask": {"title": "?", "form": form, "from": draw(SOME), **times}}
    elif kind == "wait_for":
        first = {"wait_for": {"event": "ping", "deadline": f"{draw(TIMES)}h", "on_deadline": {"default": "${{ now }}"}}}
    else:
        first = {"wait": {"for": f"{draw(TIMES)}h"}}
    if draw(st.booleans()) and kind != "wait":
        first["catch"] = [{"errors": ["*"], "steps": [{"set": {"log": "caught"}}]}]
    return [first, draw(st.sampled_from([{"set": {"log": "on"}}, {"say": "on"}, {"fail": "No."}]))]


@st.composite
def documents(draw: st.DrawFn) -> str:
    lists = draw(st.lists(branches(), min_size=2, max_size=4))
    join = draw(st.sampled_from(["all", "any"]))
    parallel = {"parallel": {f"b{n}": each for n, each in enumerate(lists)}, "join": join}
    document: dict[str, Any] = {
        "state": {"log": {"type": "array", "default": [], "reduce": "append"}},
        "steps": [{"id": "p", **parallel}, {"set": {"log": "end"}}],
        "output": "${{ state.log }}",
    }
    if draw(st.booleans()):
        document["limits"] = {"duration": f"{draw(TIMES)}h"}
    return yaml.safe_dump(document, allow_unicode=True)


MOVES = st.tuples(
    st.integers(0, 4 * HOUR),
    st.sampled_from(["approve", "approve", "approve", "reject", "ask", "signal", "pause", "resume"]),
    st.integers(0, 3),
    st.sampled_from(PEOPLE),
)


class World:
    """A run to which the same happens as to another one, and in which timers fire in time, or never."""

    def __init__(self, document: str, *, in_time: bool) -> None:
        self.play = started(document)
        self.in_time = in_time
        self.pendings = sorted(self.play.state.pendings)

    def wait(self, until: int) -> None:
        while self.in_time and (due := wake_at(self.play.state)) is not None and due <= until:
            self.play.now = max(self.play.now, due)
            self.play.do(c.TimerFired())
            self.play.settle()
        self.play.now = until

    def move(self, kind: str, which: int, who: str) -> Any:
        """What somebody is told who does this."""
        try:
            decided = self.play.do(self.command(kind, which, who))
        except Rejected as rejected:
            winner = rejected.winner or {}
            return rejected.status, rejected.code, rejected.detail, winner.get("outcome"), winner.get("value")
        return decided.outcome.get("answers"), decided.outcome.get("taken"), decided.already

    def command(self, kind: str, which: int, who: str) -> c.Command:
        if kind == "pause":
            return c.Pause(by=who)
        if kind == "resume":
            return c.Resume(by=who)
        if kind == "signal" or not self.pendings:
            return c.Signal(id=f"s-{which}", name="ping", data=which, sent_at=self.play.now)
        id = self.pendings[which % len(self.pendings)]
        fields: dict[str, Any] = {"values": {"n": which}} if kind == "ask" else {"decision": kind}
        return c.Answer(answers=(c.PendingAnswer(id=id, **fields),), by=c.Principal(who))

    @property
    def decided(self) -> Any:
        """Everything that was decided, by whom, and what came of it; not when it was shown."""
        state = self.play.state
        pendings = {
            id: (each.status, each.by, each.value, each.reason, each.opened.deadline, each.opened.policy)
            for id, each in state.pendings.items()
        }
        steps = {
            path: (step.status, step.output, told(step.error), step.approval, step.handler)
            for path, step in state.steps.items()
        }
        who = {(id, name): self.may(id, name) for id in state.pendings for name in PEOPLE}
        return state.status, pendings, steps, who, state.state, state.output, told(state.error), state.timers

    def may(self, id: str, name: str) -> bool:
        return may_decide(self.play.plan, self.play.state, self.play.state.pendings[id], c.Principal(name))


def told(error: e.Error | None) -> Any:
    """What an author reads of an error but for its time: a step may begin late, and so fail late."""
    return None if error is None else (error.code, error.message, error.path)


@settings(max_examples=examples(100), deadline=None)
@given(documents(), st.lists(MOVES, max_size=8))
@pytest.mark.slow
def test_whether_timers_fire_in_time_or_never_nobody_decides_anything_else(document: str, moves: list[Any]) -> None:
    prompt, lazy = World(document, in_time=True), World(document, in_time=False)
    assert prompt.pendings == lazy.pendings
    at = NOON
    for ms, kind, which, who in moves:
        at += ms
        prompt.wait(at)
        lazy.wait(at)
        assert prompt.move(kind, which, who) == lazy.move(kind, which, who)
    for world in (prompt, lazy):
        world.wait(at + DAY)
        if (due := wake_at(world.play.state)) is not None and due <= world.play.now:
            world.play.do(c.TimerFired())
    assert prompt.decided == lazy.decided
