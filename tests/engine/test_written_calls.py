"""A call of an agent is shown while its model writes it, and runs only as a whole: as one call, or as none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.state.ids import derive_model_call_id
from hai_flow.engine.state.state import RunState, ToolCallState
from tests.engine.test_agents import answer, call, flow
from tests.support.runs import FORK, RUN, Play

ANSWER = "chat[0]/model"
MAIL, PICK, SEARCH = (f"chat[0]/call[{name}-1]/{name}" for name in ("mail.send", "pick", "web.search"))


def id_of(name: str, attempt: int = 1, run: Any = RUN) -> str:
    return derive_model_call_id(str(run), f"chat[0]/call[{name}-1]", attempt)


def writes(play: Play, name: str, text: str, attempt: int = 1) -> None:
    """The model begins to write a call of the function, as the holder of the run tells it."""
    id, executor = id_of(name, attempt), "frontend" if name == "pick" else "server"
    path = f"chat[0]/call[{name}-1]/{name}"
    play.happened(
        e.ToolCallStarted, tool_call_id=id, name=name, path=path, executor=executor, message_id=id, writer=ANSWER
    )
    for start in range(0, len(text), 4):
        play.happened(e.ToolCallArgsChunk, tool_call_id=id, content=text[start : start + 4])


def shown(play: Play, name: str, attempt: int = 1) -> ToolCallState:
    return play.state.tool_calls[id_of(name, attempt)]


def result(play: Play, name: str, attempt: int = 1) -> tuple[bool, str | None, str | None]:
    known = shown(play, name, attempt)
    return known.open, known.result, known.error


def folded(play: Play) -> None:
    """The log alone gives the state."""
    log = e.decode_events(e.encode_events(play.events))
    assert fold(RunState(play.state.run_id), log) == play.state


def test_a_call_is_the_models_own_and_begins_with_its_whole_answer() -> None:
    play = Play(flow())
    writes(play, "web.search", '{"q": "te')
    assert set(play.open) == {ANSWER}, "half a call is no call"
    play.succeed(ANSWER, answer(call("web.search", {"q": "tea"})))
    assert set(play.open) == {SEARCH}
    known = shown(play, "web.search")
    assert (known.open, json.loads(known.args)) == (False, {"q": "tea"}), "what was not streamed comes with the end"
    play.succeed(SEARCH, "found")
    assert result(play, "web.search") == (False, "found", None)
    assert len(play.of(e.ToolCallStarted)) == 1
    folded(play)


def test_a_call_without_arguments_has_none_in_the_end() -> None:
    play = Play(flow())
    writes(play, "web.search", "")
    play.succeed(ANSWER, answer(call("web.search")))
    assert shown(play, "web.search").args == "{}"


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_gate_precedes_its_displayed_call_and_its_end_is_the_result(decision: str) -> None:
    play = Play(flow())
    writes(play, "mail.send", '{"to": "x"}')
    assert not play.state.pendings
    play.succeed(ANSWER, answer(call("mail.send", {"to": "x"})))
    assert result(play, "mail.send") == (False, None, None)
    play.answer(MAIL, decision=decision)
    if decision == "approve":
        play.succeed(MAIL, "sent")
        assert result(play, "mail.send") == (False, "sent", None)
    else:
        _, content, error = result(play, "mail.send")
        assert (error, bool(content)) == ("approval.rejected", True)
    assert len(play.of(e.ToolCallStarted)) == 1
    folded(play)


def test_a_frontend_answers_the_call_that_it_has_seen_grow() -> None:
    play = Play(flow())
    writes(play, "pick", '{"of": "tea"}')
    play.succeed(ANSWER, answer(call("pick", {"of": "tea"})))
    (pending,) = play.state.pendings.values()
    assert (pending.opened.id, pending.opened.kind) == (id_of("pick"), "tool")
    play.answer(PICK, content="green")
    assert result(play, "pick") == (False, "green", None)
    assert [event.tool_call_id for event in play.of(e.ToolCallStarted)] == [id_of("pick")]
    folded(play)


def test_a_call_only_for_display_has_its_result_at_once_and_opens_once() -> None:
    page = (
        "frontend: {description: P, answer: none, parameters: {type: object, properties: {doc: {}}}, predict: {d: doc}}"
    )
    text = flow(tools="[pick]").replace(
        "pick: {frontend: {description: Pick one., parameters: {type: object, required: [of], properties: {of: {}}}}}",
        f"pick: {{{page}}}",
    )
    play = Play(f"state: {{d: {{type: string, default: ''}}}}\n{text}")
    writes(play, "pick", '{"doc": "x"}')
    play.succeed(ANSWER, answer(call("pick", {"doc": "x"})))
    assert result(play, "pick") == (False, "shown", None)
    assert (play.of(e.CustomEmitted), len(play.of(e.ToolCallStarted))) == ([], 1)


@pytest.mark.parametrize("how", ["lose", "fail", "terminate", "stop", "timeout"])
def test_a_broken_answer_ends_its_calls_and_the_next_attempt_has_its_own(how: str) -> None:
    play = Play(flow(step="retry: {max: 1, every: 1s, jitter: false}\ntimeout: 1m"))
    writes(play, "web.search", '{"q": "te')
    writes(play, "pick", "")
    match how:
        case "lose":
            play.lose(ANSWER)
        case "fail":
            play.fail(ANSWER)
        case "terminate":
            play.terminate()
        case "stop":
            play.stop()
            play.do(c.StepFailed(path=ANSWER, attempt=1, code="step.cancelled", message="", retriable=False))
        case "timeout":
            play.advance(60_000)
    broken = (False, "aborted", "aborted")
    assert result(play, "web.search") == result(play, "pick") == broken
    assert not play.state.open_calls
    if how not in ("lose", "fail"):
        return
    play.advance(1_000)
    assert play.open[ANSWER] == 2
    writes(play, "web.search", '{"q": "tea"}', 2)
    play.succeed(ANSWER, answer(call("web.search", {"q": "tea"})))
    play.succeed(SEARCH, "found")
    assert (result(play, "web.search"), shown(play, "web.search").args) == (broken, '{"q": "te')
    assert (result(play, "web.search", 2), shown(play, "web.search", 2).args) == (
        (False, "found", None),
        '{"q": "tea"}',
    )
    folded(play)


def test_an_answer_with_a_wrong_call_says_of_every_call_why_it_is_not_made() -> None:
    play = Play(flow())
    writes(play, "web.search", '{"q": "tea"}')
    writes(play, "pick", '{"of')
    play.succeed(ANSWER, answer(call("web.search", {"q": "tea"}), call("pick", fault="no JSON") | {"args": '{"of'}))
    assert result(play, "pick") == (False, "no JSON", "aborted")
    assert shown(play, "web.search").error == "aborted"
    assert "Not performed" in str(shown(play, "web.search").result)
    assert set(play.open) == {"chat[1]/model"}


def test_a_paused_run_has_no_calls_until_it_resumes_and_shows_them_anew() -> None:
    play = Play(flow())
    writes(play, "pick", '{"of": "tea"}')
    writes(play, "web.search", "{}")
    play.pause()
    play.succeed(ANSWER, answer(call("pick", {"of": "tea"}), call("web.search")))
    assert result(play, "pick") == (False, "aborted", "aborted"), "no frontend may answer what nobody asks yet"
    play.resume()
    (pending,) = play.state.pendings.values()
    assert pending.opened.id != id_of("pick")
    play.answer(PICK, content="green")
    assert play.state.tool_calls[pending.opened.id].result == "green"
    play.succeed(SEARCH, "found")
    assert result(play, "web.search") == (False, "aborted", "aborted")
    assert [call.result for call in play.state.tool_calls.values() if call.name == "web.search"].count("found") == 1


def test_a_call_below_a_limit_that_can_not_begin_has_that_as_its_result() -> None:
    play = Play("limits: {tool_calls: 1}\n" + flow())
    for name in ("web.search", "mail.send"):
        writes(play, name, "{}")
    play.succeed(ANSWER, answer(call("web.search"), {**call("mail.send"), "effect": "read"}))
    play.answer(MAIL, decision="approve") if play.state.open_pendings else None
    assert play.status == "failed"
    assert "limit.tool_calls" in {each.error for each in play.state.tool_calls.values()}


def test_a_call_waiting_at_its_gate_is_marked_cut_off_when_the_run_stops() -> None:
    play = Play(flow())
    for name in ("mail.send", "pick", "web.search"):
        writes(play, name, "{}")
    given = {"of": "tea"}
    play.succeed(ANSWER, answer(call("mail.send"), call("pick", given), call("web.search")))
    play.succeed(SEARCH, "found")
    play.stop()
    assert play.status == "stopped"
    assert result(play, "mail.send") == (False, "Cut off: the run is being stopped.", "run.stopped")
    assert result(play, "web.search") == (False, "found", None)
    assert play.state.pendings[id_of("pick")].status == "voided"
    folded(play)


def test_a_fork_asks_by_an_id_of_its_own_and_is_answered_by_it() -> None:
    play = Play(flow())
    writes(play, "pick", '{"of": "tea"}')
    play.succeed(ANSWER, answer(call("pick", {"of": "tea"})))
    fork = play.fork(play.state.seq, {PICK: {"content": "green"}})
    assert fork.state.tool_calls[id_of("pick", run=FORK)].result == "green"
    folded(fork)
