"""What steps without an effect do: state, messages, waits; and how much one decision takes on."""

from __future__ import annotations

from typing import Any

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS, Bounds
from hai_flow.engine.state.jobs import Continue, open_jobs
from hai_flow.engine.state.state import RunState
from hai_flow.engine.verbs.say import SAY_CHUNK_CHARS
from hai_flow.errors import Rejected
from tests.support.runs import DAY, MINUTE, NOON, RUN, Play, plan_of

STATE = """
state:
  n: {type: integer, default: 1}
  log: {type: array, default: [], reduce: append}
  seen: {type: object, default: {}, reduce: merge}
  top: {type: number, default: 1, reduce: max}
  items: {type: array, default: [{status: open}], items: {type: object}}
  free: {}
"""
ECHO = "input: {type: object, properties: {m: {type: string}}}\nsteps: [{say: '${{ input.m }}'}]"


def state_after(*sets: str) -> dict[str, Any]:
    play = Play(STATE + "steps:\n" + "".join(f"  - set: {text}\n" for text in sets))
    assert play.status == "finished", play.state.error
    return play.state.state


def test_set_replaces_a_variable_and_a_pointer_reaches_inside() -> None:
    state = state_after("{n: 2, /items/0/status: done, /items/0/by: bob}", "{/items/-: {status: new}}")
    assert state["n"] == 2
    assert state["items"] == [{"status": "done", "by": "bob"}, {"status": "new"}]


def test_reduce_combines_instead_of_replacing() -> None:
    state = state_after("{log: a, seen: {x: 1}, top: 3}", "{log: b, seen: {y: 2}, top: 2}")
    assert (state["log"], state["seen"], state["top"]) == (["a", "b"], {"x": 1, "y": 2}, 3)


def test_a_list_of_operations_is_applied_as_one_change() -> None:
    text = "[{op: replace, path: /n, value: 5}, {op: copy, from: /n, path: /free}, {op: test, path: /free, value: 5}]"
    play = Play(STATE + f"steps: [{{set: {text}}}]")
    assert (play.state.state["n"], play.state.state["free"]) == (5, 5)
    assert len(play.of(e.StateChanged)) == 1


@pytest.mark.parametrize(
    "change",
    [
        '{n: "${{ input.x }}"}', '{n: 2, top: "${{ input.x }}"}', "{/items/3/status: x}", "{/items/0/a/b: x}",
        '{seen: "${{ input.x }}"}', "[{op: replace, path: /n, value: 5}, {op: test, path: /n, value: 6}]",
    ],
)  # fmt: skip
def test_a_change_that_does_not_fit_is_state_invalid_and_changes_nothing(change: str) -> None:
    text = "input: {type: object, properties: {x: {}}}" + STATE + f"steps: [{{id: s, set: {change}}}]"
    play = Play(text, input={"x": "text"})
    assert (play.error.code, play.error.path) == ("state.invalid", "s")
    assert play.state.state == Play(STATE + "steps: [{say: hi}]").state.state
    assert play.of(e.StateChanged) == []


def test_a_missing_or_wrong_input_is_refused_before_a_run_exists() -> None:
    text = "input: {type: object, required: [n], properties: {n: {type: integer}}}\nsteps: [{say: hi}]"
    for wrong in ({}, {"n": "1"}, {"n": 1, "m": 2}, []):
        play = Play(text, start=False)
        with pytest.raises(Rejected) as refusal:
            play.start(wrong)
        assert (refusal.value.status, refusal.value.code, play.status) == (422, "input.invalid", "new")
        assert refusal.value.findings


def test_defaults_are_filled_into_the_input() -> None:
    play = Play("input: {type: object, properties: {n: {type: integer, default: 3}}}\nsteps: [{say: hi}]")
    assert play.state.input == {"n": 3}


def test_a_second_start_is_already_so() -> None:
    play = Play("steps: [{id: a, call: t.f}]")
    assert play.start().already


def test_a_long_text_is_said_in_pieces() -> None:
    text = "x" * (SAY_CHUNK_CHARS * 2 + 1)
    play = Play(ECHO, input={"m": text})
    assert play.said == [text]
    assert [len(chunk.content) for chunk in play.of(e.MessageChunk)] == [SAY_CHUNK_CHARS, SAY_CHUNK_CHARS, 1]


def test_an_empty_text_is_a_message_without_pieces() -> None:
    play = Play("steps: [{say: ''}]")
    assert (play.said, play.of(e.MessageChunk)) == ([""], [])


def test_a_text_that_no_event_can_hold_fails_its_step() -> None:
    text = "ä" * 140_000
    play = Play(ECHO, input={"m": text})
    assert play.error.code == "expression.too_large"


def test_an_exposed_call_is_shown_and_resolved_once_whatever_its_attempts() -> None:
    play = Play("steps: [{say: hi}, {id: a, call: t.f, with: {n: 1}, expose: true, retry: {max: 1}}]")
    play.lose("a")
    play.fail("a")
    play.advance(MINUTE)
    play.succeed("a", {"ok": True})
    calls = play.of(e.ToolCallStarted)
    assert [call.name for call in calls] == ["t.f"]
    assert calls[0].parent_message_id == play.of(e.MessageStarted)[0].message_id
    assert [resolved.content for resolved in play.of(e.ToolCallResolved)] == ['{"ok":true}']


def test_a_workflow_sees_the_newest_message_as_it_was_posted_and_its_text() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image", "url": "x"}]
    posted = (e.UserMessage("m1", "user", "before"), e.UserMessage("m2", "user", parts))
    play = Play("steps: [{say: '${{ thread.message }}'}]\noutput: ${{ thread.content }}", start=False)
    play.do(
        c.Start(run_id=play.run_id, thread_id="t-1", requester="user:ann", input={}, message="look", messages=posted)
    )
    assert (play.said, play.state.output) == (["look"], parts)


def test_a_run_without_a_posted_message_sees_an_empty_one() -> None:
    assert Play("steps: [{say: hi}]\noutput: '${{ thread.content }}'").state.output == ""


def test_a_wait_until_a_time_that_is_past_ends_at_once() -> None:
    play = Play("steps: [{wait: {until: '2020-01-01T00:00:00Z'}}, {say: hi}]")
    assert (play.status, play.of(e.TimerSet)) == ("finished", [])


def test_a_wait_until_a_time_to_come_ends_then() -> None:
    play = Play("steps: [{id: w, wait: {until: '2026-03-03T12:00:00Z'}}]")
    assert play.timers == [("w", "wait", DAY)]
    assert play.advance(DAY - 1) is None
    play.advance(1)
    assert play.status == "finished"


# --- bounds -------------------------------------------------------------------------------------------------------


def long_plan(step: str, count: int) -> str:
    return STATE + "steps:\n" + f"  - {step}\n" * count


@pytest.mark.parametrize("step", ["say: hi", "set: {n: 2}", "wait: {until: '2020-01-01T00:00:00Z'}"])
def test_no_decision_is_larger_than_its_bounds_and_continue_goes_on(step: str) -> None:
    """Near the limit of a document: without loops no plan can ask for more at once."""
    plan = plan_of(long_plan(step, 1_500))
    start = c.Start(run_id=RUN, thread_id="t", requester="user:ann", input={})
    decision = decide(plan, RunState(str(RUN)), start, NOON)
    decisions = 1
    while not decision.state.ended:
        assert len(decision.events) <= DEFAULT_BOUNDS.events
        assert sum(event.type == "step_started" for event in decision.events) <= DEFAULT_BOUNDS.pure_steps
        assert open_jobs(decision.state) == [Continue()]
        decision = decide(plan, decision.state, c.Continue(), NOON + decisions)
        decisions += 1
    assert decision.state.status == "finished"
    assert decisions >= 15
    assert sum(step.status == "finished" for step in decision.state.steps.values()) == 1_500


def test_a_pause_between_two_decisions_of_a_long_stretch_holds() -> None:
    play = Play(long_plan("say: hi", 60))
    said = len(play.said)
    assert 0 < said < 60
    play.pause()
    assert play.go_on().already
    assert len(play.said) == said
    play.resume()
    play.settle()
    assert (play.status, len(play.said)) == ("finished", 60)


def test_smaller_bounds_change_nothing_but_the_number_of_decisions() -> None:
    text = "steps: [{say: a}, {switch: [{when: true, steps: [{say: b}]}]}, {parallel: {x: [{say: c}], y: [{say: d}]}}]"
    whole, pieces = Play(text), Play(text, limits=Bounds(pure_steps=1))
    assert whole.settle() == 0
    assert pieces.settle() > 3
    assert whole.said == pieces.said == ["a", "b", "c", "d"]


def test_what_is_decided_twice_is_decided_alike() -> None:
    text = "steps: [{say: hi}, {id: q, call: pick}, {id: a, call: t.f, retry: {max: 1}}]"
    one, two = Play(text), Play(text)
    for play in (one, two):
        play.answer("q", content="x")
        play.fail("a")
    assert one.events == two.events


def test_an_exposed_call_that_failed_for_good_is_not_resolved_after_retry() -> None:
    play = Play("steps: [{id: a, call: t.f, with: {n: 1}, expose: true}]")
    play.fail("a", retriable=False)
    assert play.status == "failed"
    play.retry()
    play.succeed("a", {"ok": True})
    resolved = [event.tool_call_id for event in play.of(e.ToolCallResolved)]
    assert len(resolved) == len(set(resolved)) == len(play.of(e.ToolCallStarted))


EMITTED = {
    "custom: {name: '${{ input.v }}'}": "name",
    "raw: {event: 1, source: '${{ input.v }}'}": "source",
    "collaboration: {from: '${{ input.v }}', to: b, task: {id: t, name: n}}": "from_",
    "collaboration: {from: a, to: '${{ input.v }}', task: {id: t, name: n}}": "to",
    "collaboration: {from: a, to: b, task: {id: '${{ input.v }}', name: n}}": "task",
}


@pytest.mark.parametrize("emitted", EMITTED)
@pytest.mark.parametrize(("value", "text"), [(5, "5"), (900.0, "900"), (True, "true"), (["x"], '["x"]'), (None, "")])
def test_texts_of_an_emitted_event_are_texts_whatever_a_hole_gives(emitted: str, value: Any, text: str) -> None:
    """An event with anything else could be written, and its log never read again (`Play` reads each of them)."""
    play = Play(
        f"input: {{type: object, properties: {{v: {{}}}}}}\nsteps: [{{emit: {{{emitted}}}}}]", input={"v": value}
    )
    assert play.status == "finished"
    events = [
        event for event in play.events if isinstance(event, e.CustomEmitted | e.RawEmitted | e.CollaborationEnded)
    ]
    expected: Any = {"id": text, "name": "n"} if EMITTED[emitted] == "task" else text
    assert getattr(events[0], EMITTED[emitted]) == (
        None if value is None and EMITTED[emitted] == "source" else expected
    )


@pytest.mark.parametrize(
    ("step", "value", "words"),
    [
        ("approve: {title: T, from: '${{ input.v }}'}", None, "found nothing (null)"),
        ("approve: {title: T, from: '${{ input.v }}'}", True, "found true (a boolean)"),
        ("approve: {title: T, from: user:a, exclude: '${{ input.v }}'}", {"a": 1}, "`exclude`: expected a selector"),
        ("approve: {title: T, from: user:a, exclude: '${{ input.v }}'}", {"a": 1}, "found a mapping"),
        ("approve: {title: T, from: user:a, veto: '${{ input.v }}'}", None, "`veto`: expected a selector"),
        ("set: {n: '${{ input.v }}'}", None, "found nothing (null)"),
        ("set: {n: '${{ input.v }}'}", True, "found true (a boolean)"),
        ("set: {n: '${{ input.v }}'}", "5", "found the text '5'"),
        ("{if: input.v, say: Hi}", None, "expected true or false, found nothing (null)"),
        ("{if: input.v > 3, say: Hi}", None, "`>` can't be applied to (null, int)"),
        ("say: '${{ input.v + 1 }}'", None, "`+` can't be applied to (null, double)"),
        ("say: '${{ input.v[2] }}'", [1], "[2]"),
        ("say: '${{ input.v.map(e, e)[2] }}'", [1], "there is no item [2]: the list has 1"),
        ("say: '${{ math.greatest(input.v.map(e, e)) }}'", [], "math.greatest argument must not be empty"),
    ],
)
def test_errors_name_values_in_words_of_the_language(step: str, value: Any, words: str) -> None:
    state = "state: {n: {type: number, default: 1, reduce: add}}\n"
    text = f"input: {{type: object, properties: {{v: {{}}}}}}\n{state}steps:\n  - {step}\n"
    play = Play(text, input={"v": value})
    assert play.status == "failed"
    assert words in play.error.message
    assert "None" not in play.error.message


def test_a_hole_alone_under_a_block_sign_gives_what_it_gives_on_its_line() -> None:
    """YAML puts a line break behind the text; it was part of the duration, of the instant and of the person."""
    fields = {"at": "2026-03-02T12:00:05Z", "who": "user:bob", "long": "1h", "x": [1, 2]}
    play = Play(
        """
        input: {type: object, properties: {at: {}, who: {}, long: {}, x: {}}}
        steps:
          - for_each:
              items: >
                ${{ input.x }}
              steps: [{say: "${{ item }}"}]
          - wait:
              until: >
                ${{ input.at }}
          - approve:
              title: Go?
              from: >
                ${{ input.who }}
              quorum: |
                ${{ size(input.x) - 1 }}
              deadline: |
                ${{ input.long }}
        """,
        input=fields,
    )
    assert play.timers[0][1:] == ("wait", 5_000)
    play.advance(5_000)
    assert (play.said, play.asking) == (["1", "2"], {"approve#1"})
    assert play.timers[0][2] == 3_600_000
    play.answer("approve#1", by="user:bob", decision="approve")
    assert play.status == "finished"
