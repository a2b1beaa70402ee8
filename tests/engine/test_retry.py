"""A Retry of a run whose block failed, or was cut off, behind all that is in it: nothing in it is done twice."""

from __future__ import annotations

import pytest

from hai_flow.engine.steps import agents
from tests.engine.test_agents import answer, call, flow
from tests.support.runs import MINUTE, Play
from tests.support.values import require

OBJECT = "output: {type: object, required: [n], properties: {n: {type: integer}}}"
SENT = "chat[{}]/call[mail.send-1]/mail.send"


def sending(play: Play, number: int) -> None:
    play.succeed(f"chat[{number}]/model", answer(call("mail.send", {"to": "x"})))
    play.succeed(SENT.format(number), number)


def told(play: Play, number: int, chat: str = "chat") -> list[int]:
    """The numbers of the answers that the model is shown when it is asked for this one."""
    return [each.number for each in agents.talk(play.plan, play.state, f"{chat}[{number}]/model").exchanges]


# --- agents -----------------------------------------------------------------------------------------------------------


def test_an_agent_without_an_end_continues_with_as_many_answers_again() -> None:
    play = Play(flow("max_turns: 2\napprovals: {mail.*: none}"))
    for first in (0, 2, 4):
        sending(play, first)
        sending(play, first + 1)
        assert play.error.code == "agent.max_turns"
        play.retry()
        assert set(play.open) == {f"chat[{first + 2}]/model"}
        assert told(play, first + 2) == [*range(first + 2)]
    play.succeed("chat[6]/model", answer(text="Done."))
    assert (play.status, play.output) == ("finished", "Done.")


def test_stop_when_sees_all_answers_of_an_agent_after_a_retry() -> None:
    play = Play(flow("max_turns: 2\napprovals: {mail.*: none}\nstop_when: answer.number == 3"))
    sending(play, 0)
    sending(play, 1)
    play.retry()
    sending(play, 2)
    assert play.status == "finished"


@pytest.mark.parametrize("calls", [(), (call("mail.send"),)])
def test_an_agent_whose_last_answer_is_no_object_is_asked_once_more(calls: tuple) -> None:
    play = Play(flow(f"max_turns: 1\nstop_when: answer.number == 1\napprovals: {{mail.*: none}}\n{OBJECT}"))
    sending(play, 0)
    for number in (1, 2):
        play.succeed(f"chat[{number}]/model", answer(*calls, text="no object"))
        assert play.error.code == "llm.invalid_output"
        play.retry()
        assert (set(play.open), told(play, number + 1)) == ({f"chat[{number + 1}]/model"}, [0])
        assert agents.talk(play.plan, play.state, f"chat[{number + 1}]/model").closing
    play.succeed("chat[3]/model", answer(text='{"n": 1}', output={"n": 1}))
    assert (play.status, play.output) == ("finished", {"n": 1})


def test_summaries_count_for_no_bound_of_an_agent() -> None:
    play = Play(flow("max_turns: 2\napprovals: {mail.*: none}"))
    sending(play, 0)
    play.succeed("chat[1]/model", {"summary": "One mail is sent.", "through": 1})
    sending(play, 2)
    assert play.error.code == "agent.max_turns"
    play.retry()
    play.succeed("chat[3]/model", {"summary": "Two mails are sent.", "through": 3})
    sending(play, 4)
    assert play.status == "running"
    sending(play, 5)
    assert play.error.code == "agent.max_turns"


AGENT = "id: chat, agent: {model: smart, prompt: Do it., tools: [mail.send], approvals: {mail.*: none}}"
TOOLS = "tools: {mail: {python: acme.mail, effect: write}}\nmodels: {smart: {use: smart}}\n"


def test_an_agent_cut_off_between_two_answers_goes_on_with_the_next() -> None:
    play = Play(
        f"{TOOLS}steps: [{{id: both, parallel: {{one: [{{{AGENT}}}], two: [{{id: other, call: mail.send}}]}}}}]"
    )
    chat, other = "both/one/chat", "both/two/other"
    play.succeed(f"{chat}[0]/model", answer(call("mail.send")))
    play.pause()
    play.succeed(f"both/one/{SENT.format(0)}")
    play.fail(other, retriable=False)
    play.resume()
    assert play.status == "failed"
    play.retry()
    assert set(play.open) == {f"{chat}[1]/model", other}
    assert told(play, 1, chat) == [0]
    assert require(play.state.steps[chat].loop).since == 0, "it had not come to the end of its answers"


def test_an_agent_in_a_rerun_handler_begins_a_new_conversation() -> None:
    play = Play(f"{TOOLS}steps: [{{id: t, try: [{{id: a, call: mail.send}}], finally: [{{{AGENT}}}]}}]")
    play.fail("t/a", retriable=False)
    chat = "t/~finally/chat"
    play.succeed(f"{chat}[0]/model", answer(call("mail.send")))
    play.succeed(f"t/~finally/{SENT.format(0)}")
    play.succeed(f"{chat}[1]/model", answer(text="Done."))
    play.retry()
    play.succeed("t/a")
    assert set(play.open) == {f"{chat}[2]/model"}, "no path stands for two answers"
    assert told(play, 2, chat) == []


def test_a_call_whose_inner_undo_failed_fails_the_run_untold_to_the_model() -> None:
    play = Play(flow("approvals: {mail.*: none}"))
    play.succeed("chat[0]/model", answer(call("mail.send")))
    play.fail(SENT.format(0), "undo.failed", retriable=False)
    assert (play.status, play.error.code) == ("failed", "undo.failed")


# --- blocks -----------------------------------------------------------------------------------------------------------

BLOCKS = {
    "try": "try: [STEP]",
    "switch": "switch: [{when: 'true', steps: [STEP]}]",
    "parallel": "parallel: {one: [STEP], two: [{say: x}]}",
    "for_each": "for_each: {items: [1], steps: [STEP]}",
    "repeat": "repeat: {max: 1, steps: [STEP]}",
}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_cut_off_in_its_last_cleanup_repeats_nothing(block: str) -> None:
    step = "{id: a, call: t.f, finally: [{id: clean, call: t.f}]}"
    play = Play(f"steps: [{{id: block, timeout: 1m, {BLOCKS[block].replace('STEP', step)}}}, {{id: next, call: t.f}}]")
    (a,) = play.open
    play.succeed(a)
    (clean,) = play.open
    play.advance(MINUTE)
    play.succeed(clean)
    assert play.error.code == "step.timeout"
    play.retry()
    assert set(play.open) == {"next"}
    play.succeed("next")
    assert play.status == "finished"


def test_an_item_cut_off_before_it_began_knows_its_index_when_it_begins() -> None:
    loop = "id: each, for_each: {items: [a, b], steps: [{id: w, call: t.f, with: {n: '${{ index }}'}}]}"
    play = Play(f"steps: [{{id: both, parallel: {{one: [{{{loop}}}], two: [{{id: other, call: t.f}}]}}}}]")
    first = next(path for path in play.open if "each" in path)
    play.pause()
    play.succeed(first)
    play.fail("both/two/other", retriable=False)
    play.resume()
    play.retry()
    (second,) = set(play.open) - {"both/two/other"}
    assert play.state.steps[second].args == '{"n":1}'


# --- races ------------------------------------------------------------------------------------------------------------

RACE = """\
tools: {mail: {python: acme.mail, effect: write}}
steps:
  - id: race
    timeout: 1m
    join: JOIN
    parallel:
      a: [{id: t, try: [{id: a, call: mail.send}], finally: [{id: clean, call: mail.clean}]}]
      b: [{id: b, call: mail.send}]
      c: [{id: c, call: mail.send}]
output: ${{ steps.race.output }}
"""


def cut_off_while_it_cleans_up(join: str) -> Play:
    """A race whose time is over while the branch `a` has nothing left to do but its cleanup."""
    play = Play(RACE.replace("JOIN", join)).succeed_all("race/a/t/a")
    play.advance(2 * MINUTE)
    assert play.open.keys() == {"race/a/t/~finally/clean"}
    play.succeed("race/a/t/~finally/clean")
    assert play.error.code == "step.timeout"
    return play


def test_a_race_timed_out_in_its_winners_cleanup_is_won_by_it_at_a_retry() -> None:
    play = cut_off_while_it_cleans_up("any")
    play.retry()
    assert (play.status, play.output) == ("finished", {"winner": "a"})
    assert play.open == {}


def test_a_race_for_two_counts_the_branch_that_ended_while_it_was_cut_off() -> None:
    play = cut_off_while_it_cleans_up("2")
    play.retry()
    assert play.open.keys() == {"race/b/b", "race/c/c"}
    play.succeed("race/c/c")
    assert (play.status, set(play.output["winners"])) == ("finished", {"a", "c"})
