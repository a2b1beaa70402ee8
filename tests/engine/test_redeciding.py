"""What a log says was decided is decided again from the log alone, for most commands; a consequence that was changed by
hand is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.runs import replay
from hai_flow.engine.runs.replay import decide_again
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.state.jobs import is_busy
from hai_flow.engine.state.state import RunState
from tests.corpus import kept
from tests.support.runs import Play

PEOPLES = {"Answer", "Pause", "Resume", "Retry", "Skip", "Stop", "Terminate", "Jump"}
ALWAYS = PEOPLES | {"Start", "Admit", "Continue", "StepAsks", "StepLost", "StepSucceeded", "TimerFired"}


def commits() -> Iterator[tuple[str, Plan, RunState, list[e.AnyEvent], Bounds]]:
    """Each commit of this release's corpus, with the command that led to it."""
    known = {each.name: each for each in kept.read(kept.TODAY, kept.Decided)}
    for run in kept.read(kept.files()[-1], kept.Kept):
        plan, state = compile_workflow(run.document.encode(), run.name, stored=True), RunState(run.run_id)
        for (batch, _), (name, fields, _, limits) in zip(run.batches, known[run.name].commands, strict=True):
            events = e.decode_events(msgspec.json.encode(batch))
            yield name, plan, state, events, msgspec.convert(limits, Bounds)
            state = fold(state, events)
            if name == "Migrate":
                plan = compile_workflow(fields["to"].encode(), run.name, stored=True)


@pytest.mark.costly
def test_almost_every_decision_is_made_again_and_none_is_a_false_fault() -> None:
    same, other = Counter[str](), Counter[str]()
    for name, plan, state, events, limits in commits():
        again = decide_again(plan, state, events, limits=limits)
        (same if again.left is None else other)[name] += 1
        assert not again.surely, f"{name} gave {again.left} at event {state.seq}"
    assert not other.keys() & ALWAYS, {name: other[name] for name in other.keys() & ALWAYS}
    assert same.keys() >= ALWAYS
    assert same.total() > 9 * other.total()


@pytest.mark.costly
def test_a_consequence_that_was_changed_is_not_decided_again() -> None:
    found = Counter[str]()
    for _, plan, state, events, limits in commits():
        for number, event in enumerate(events):
            if not isinstance(event, e.TurnEnded | e.RunFinished | e.TimerSet):
                continue
            for wrong in (
                [*events[:number], *events[number + 1 :]],
                [*events[: number + 1], event, *events[number + 1 :]],
            ):
                if wrong:
                    found[str(decide_again(plan, state, wrong, limits=limits).left is None)] += 1
    assert found["False"] > 500
    assert found["True"] == 0


STARTED: dict[str, dict[str, Any]] = {
    "scheduled_at": {"trigger": "schedule", "scheduled_at": 1_000},
    "trace": {"trace": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
}


@pytest.mark.parametrize("said", STARTED)
def test_a_start_is_decided_again_with_what_it_said(said: str) -> None:
    plan = compile_workflow(b"hai: flow/v1\nname: w\nversion: 1\nsteps: [{id: w, wait: {for: 1h}}]\n")
    state = RunState(str(uuid4()))
    start = c.Start(run_id=UUID(state.run_id), thread_id="t", requester="user:ann", input={}, **STARTED[said])
    again = decide_again(plan, state, list(decide(plan, state, start, 5_000).events))
    assert (again.left, again.commands) == (None, ("Start",))


def test_every_word_of_a_start_that_is_recorded_is_read_back() -> None:
    names = {each.name for each in msgspec.structs.fields(c.Start)}
    recorded = {each.name: object() for each in msgspec.structs.fields(e.RunStarted)}
    event = e.RunStarted(**{**recorded, "at": 0, "turn": 1})  # type: ignore[arg-type]
    command = next(iter(replay._start_commands(RunState(str(uuid4())), [event])))
    for name in names & (recorded.keys() - {"turn"}):
        assert getattr(command, name) is recorded[name], name


def test_answers_of_several_people_in_one_commit_are_separate_commands() -> None:
    play = Play("""\
        steps:
          - id: gate
            approve: {title: Sure?, from: ["user:dan", "user:bob", "user:eve"], quorum: 2, reject_when: 2}
    """)
    before, said = play.state, len(play.log)
    for who, decision in (("dan", "reject"), ("bob", "approve"), ("eve", "approve")):
        play.answer("gate", by=f"user:{who}", decision=decision)
    again = decide_again(play.plan, before, [event for each in play.log[said:] for event in each])
    assert again.left is None, again
    assert again.commands == ("Answer",) * 3


def test_two_answers_of_one_person_in_one_commit_may_be_two_commands() -> None:
    play = Play("""\
        steps:
          - parallel:
              one: [{id: first, ask: {title: One?, from: anyone, form: {properties: {n: {type: integer}}}}}]
              two: [{id: second, ask: {title: Two?, from: anyone, form: {properties: {n: {type: integer}}}}}]
    """)
    before, said = play.state, len(play.log)
    for path in ("parallel#1/one/first", "parallel#1/two/second"):
        play.answer(path, by="user:bob", values={"n": 1})
    again = decide_again(play.plan, before, [event for each in play.log[said:] for event in each])
    assert again.left is None, again
    assert again.commands == ("Answer",) * 2


FORM = "form: {properties: {n: {type: integer}}}"


@pytest.mark.parametrize(
    ("asked", "by"),
    [
        ("role:clerk", c.Principal("user:cal", roles=("clerk",))),
        ("role:clerk", c.Principal("user:cal", roles=("viewer", "clerk"), through=("role:owner",))),
        ("[role:boss, group:finance]", c.Principal("user:cal", groups=("finance",))),
        ("user:cal", c.Principal("user:cal")),
        ("role:clerk", c.Principal("user:eve", on_behalf_of="user:cal", lent_roles=("clerk",), lent_groups=())),
    ],
)
def test_the_form_that_a_role_or_group_has_filled_in_is_decided_again(asked: str, by: c.Principal) -> None:
    play = Play(f"steps: [{{id: form, ask: {{title: How many?, from: {asked}, {FORM}}}}}]")
    before, said = play.state, len(play.log)
    play.answer("form", by=by, values={"n": 1})
    again = decide_again(play.plan, before, [event for each in play.log[said:] for event in each])
    assert (again.left, again.commands) == (None, ("Answer",))


def test_a_form_escalated_and_filled_in_within_one_commit_is_decided_again() -> None:
    escalated = "deadline: 1h, on_deadline: [escalate: {from: 'role:boss', deadline: 1h}, fail]"
    play = Play(f"steps: [{{id: form, ask: {{title: How many?, from: 'role:clerk', {escalated}, {FORM}}}}}]")
    before, said = play.state, len(play.log)
    play.now += 3_600_000
    play.answer("form", by=c.Principal("user:cal", roles=("boss",)), values={"n": 1})
    again = decide_again(play.plan, before, [event for each in play.log[said:] for event in each])
    assert again.left is None, again


def test_a_form_and_a_vote_of_one_person_in_one_command_are_decided_again() -> None:
    play = Play(f"""\
        steps:
          - parallel:
              one: [{{id: form, ask: {{title: How many?, from: "role:clerk", {FORM}}}}}]
              two: [{{id: gate, approve: {{title: Sure?, from: ["role:boss", "role:clerk"]}}}}]
    """)
    before, said = play.state, len(play.log)
    answers = {"parallel#1/one/form": {"values": {"n": 1}}, "parallel#1/two/gate": {"decision": "approve"}}
    play.answer_all(answers, by=c.Principal("user:cal", roles=("boss", "clerk")))
    again = decide_again(play.plan, before, [event for each in play.log[said:] for event in each])
    assert (again.left, again.commands) == (None, ("Answer",))


@pytest.mark.parametrize(
    "settled",
    [
        lambda play: play.answer("once", decision="happened", result={"paid": 1}),
        lambda play: play.answer("once", decision="happened", result=None, reason="the bank says so"),
        lambda play: play.answer("once", decision="again"),
        lambda play: play.answer("once", decision="fail", reason="nobody knows"),
        lambda play: play.succeed("once", {"paid": 1}, attempt=1),
        lambda play: play.fail("once", attempt=1),
    ],
)
def test_what_became_of_a_call_in_doubt_is_decided_again(settled: Callable[[Play], Any]) -> None:
    play = Play("""\
        tools: {bank: {python: bank, effect: write}}
        steps: [{id: once, call: bank.pay, delivery: at_most_once}]
    """)
    play.lose("once")
    before, said = play.state, len(play.log)
    settled(play)
    again = decide_again(play.plan, before, [event for each in play.log[said:] for event in each])
    assert again.left is None, again


@pytest.mark.parametrize("retries", [0, 1])
def test_a_failure_with_the_place_in_its_code_is_decided_again(retries: int) -> None:
    play = Play(f"steps: [{{id: a, call: t.f, retry: {{max: {retries}}}}}]")
    before, done = play.state, len(play.log)
    play.do(c.StepFailed(path="a", attempt=1, code="tool.failed", message="It broke.", trace="File till.py, line 7"))
    again = decide_again(play.plan, before, [event for each in play.log[done:] for event in each])
    assert (again.left, again.commands) == (None, ("StepFailed",))


ELSEWHERE = """
tools: {t: {python: registered}, m: {mcp: "https://m.example", effect: write}}
steps:
  - parallel:
      busy: [{id: busy, call: t.f}]
      once: [{id: once, call: t.f, approval: {from: anyone}, delivery: at_most_once}]
      often: [{id: often, call: t.f, approval: {from: anyone}}]
"""


@pytest.mark.parametrize("once_only", ["call: t.f", "call: m.send"], ids=["at most once", "asked"])
def test_a_process_without_the_lease_leaves_once_only_work_to_its_holder(once_only: str) -> None:
    elsewhere = {"held_elsewhere": False}
    source = ELSEWHERE
    if once_only != "call: t.f":  # a server's function that writes is asked about when its outcome was lost
        source = source.replace("once, call: t.f", f"once, {once_only}").replace(", delivery: at_most_once", "")
    play = Play(source, decide=lambda *args: decide(*args, **elsewhere))
    once, often, busy = (
        next(path for path in play.state.steps if path.endswith(id)) for id in ("once", "often", "busy")
    )
    elsewhere["held_elsewhere"] = True
    play.answer(often, decision="approve")
    play.answer(once, decision="approve")
    assert (play.open, play.state.ready) == ({busy: 1, often: 1}, (once,))
    assert is_busy(play.state)
    elsewhere["held_elsewhere"] = False
    for path in (busy, often):
        play.do(c.StepLost(path=path, attempt=1))
    play.go_on()
    assert not play.state.open_pendings, "nobody is asked whether a call happened that was not begun"
    assert play.open == {busy: 2, often: 2, once: 1}
    state = RunState(str(play.run_id))
    for batch in play.log:
        again = decide_again(play.plan, state, batch)
        assert again.left is None, again
        state = fold(state, batch)


def test_a_process_without_the_lease_ends_no_stop_whose_finally_is_left() -> None:
    elsewhere = {"held_elsewhere": False}
    source = """
    tools: {t: {python: registered}}
    steps:
      - {id: nap, wait: {for: 1d}}
    finally:
      - {id: free, call: t.f, delivery: at_most_once}
    """
    play = Play(source, decide=lambda *args: decide(*args, **elsewhere))
    elsewhere["held_elsewhere"] = True
    play.stop()
    (free,) = play.state.ready
    assert (play.state.status, play.open) == ("stopping", {})
    play.go_on()
    assert (play.state.status, play.state.ready) == ("stopping", (free,))
    elsewhere["held_elsewhere"] = False
    play.go_on()
    assert play.open == {free: 1}
    play.succeed(free, {})
    assert play.state.status == "stopped"


def test_an_effect_that_was_cancelled_is_decided_again() -> None:
    play = Play("steps: [{id: a, call: t.f}]")
    play.stop()
    before, done = play.state, len(play.log)
    play.do(c.StepFailed(path="a", attempt=1, code="step.cancelled", message="The run is being stopped."))
    again = decide_again(play.plan, before, [event for each in play.log[done:] for event in each])
    assert (again.left, again.commands) == (None, ("StepFailed",))


@pytest.mark.costly
def test_a_streamed_piece_out_of_order_is_left_to_who_folds_the_log() -> None:
    found = 0
    for _, plan, state, events, limits in commits():
        if isinstance(events[0], e.MessageChunk):
            wrong = [msgspec.structs.replace(events[0], n=events[0].n + 7), *events[1:]]
            again = decide_again(plan, state, wrong, limits=limits)
            assert (again.left, again.surely) == (wrong[0], False)
            found += 1
    assert found


def test_who_decides_need_not_have_seen_what_was_streamed_meanwhile() -> None:
    """An operator resumes at a server while another process streams: what follows has the times of that server."""
    play = Play("""\
        steps:
          - wait: {for: 1s}
          - wait: {for: 1m}
    """)
    play.pause()
    play.advance(2000)
    before, said = play.state, len(play.log)
    play.resume()
    events = [event for each in play.log[said:] for event in each]
    assert any(isinstance(each, e.TimerSet) for each in events)
    later = msgspec.structs.replace(before, at=max(each.at for each in events) + 7)
    assert decide_again(play.plan, later, events).left is not None
    assert decide_again(play.plan, later, events, known_at=before.at).left is None


def test_an_attempt_may_end_before_work_due_at_its_result() -> None:
    """Its last piece of text was stored later than that: so the time of the run is no sign of when it ended."""
    play = Play("""\
        steps:
          - id: both
            parallel:
              timed: [{wait: {for: 1s}}]
              told: [{id: told, http: {get: "https://example.com/"}}]
    """)
    ended = play.now + 500
    play.now += 1500
    before = msgspec.structs.replace(play.state, at=play.now)  # a piece of text
    said = len(play.log)
    play.do(c.StepSucceeded(path="both/told/told", attempt=1, output={"status": 200}, ended_at=ended))
    events = [event for each in play.log[said:] for event in each]
    assert isinstance(events[0], e.StepFinished)
    assert decide_again(play.plan, before, events).left is None
