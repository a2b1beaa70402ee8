"""A recorded run is decided again under another text: unchanged it goes the same way, each difference has a name."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec
import pytest

from hai_flow.definition.compiler import compile_workflow
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.draft import DecisionContext
from hai_flow.engine.runs.backtest import Verdict, is_faithful, list_obstacles, pair_plans, rehearse
from hai_flow.engine.runs.rehearsal import Asking, Pairing, Recording, has_departure
from hai_flow.engine.runs.replay import STREAMED
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.steps.held_steps import Freeze
from hai_flow.errors import Rejected
from tests.corpus import kept
from tests.support.runs import DAY, HOUR, MINUTE, Play, plan_of

HEAD = """\
input: {type: object, properties: {amount: {type: integer}}}
tools:
  bank: {python: bank, effect: write}
  pick: {frontend: {description: Pick one., parameters: {type: object, additionalProperties: true}}}
  till: {effect: external, frontend: {description: Pay., parameters: {type: object, additionalProperties: true}}}
"""
PAYING = """\
steps:
  - id: pay
    call: bank.pay
    with: {amount: "${{ input.amount }}"}
    approval: {from: ["user:bob"], when: "args.amount > 100"}
output: ${{ steps.pay.output }}
"""
ASKING = """\
steps:
  - {id: sure, ask: {title: Sure?, from: ["user:bob"], form: {properties: {n: {type: integer}}}}}
  - {id: pay, call: bank.pay, with: {amount: "${{ input.amount }}"}}
"""


def recorded(play: Play) -> Recording:
    recording = Recording(str(play.run_id), play.plan, play.limits)
    commits = [(events, len(e.encode_events(events))) for events in play.log]
    first = 1 + max((n for n, (events, _) in enumerate(commits) if has_departure(events)), default=-1)
    assert not first or recording.begin(commits[:first])
    for events, size in commits[first:]:
        recording.add(events, size, decides=True)
    return recording


def backtest(play: Play, text: str) -> Verdict:
    """The verdict on the run under the text; that under its own text is "same"."""
    recording = recorded(play)
    assert recording.exact
    assert rehearse(recording, Pairing(play.plan, play.plan), play.limits) == Verdict("same")
    return rehearse(recording, pair_plans(play.plan, plan_of(HEAD + text)), play.limits)


def played(text: str, amount: int = 5) -> Play:
    return Play(HEAD + text, input={"amount": amount})


def paid(amount: int, tool: str = "bank.pay") -> Play:
    """A run of PAYING that has ended."""
    play = played(PAYING.replace("bank.pay", tool), amount)
    if amount > 100:
        play.answer("pay", by="user:bob", decision="approve")
    if tool == "till":
        play.answer("pay", content="paid")
    else:
        play.succeed("pay", {"paid": amount})
    assert play.state.status == "finished"
    return play


@pytest.mark.costly
def test_runs_of_the_corpus_go_the_same_way_under_their_own_text() -> None:
    known = {each.name: each for each in kept.read(kept.TODAY, kept.Decided)}
    verdicts: Counter[tuple[str, bool]] = Counter()
    for run in kept.read(kept.files()[-1], kept.Kept):
        commands = known[run.name].commands
        if {"Fork", "Migrate"} & {each[0] for each in commands}:
            continue  # the log of another run, another plan
        plan = compile_workflow(run.document.encode(), run.name, stored=True)
        limits = msgspec.convert(commands[0][3], Bounds)
        recording = Recording(run.run_id, plan, limits)
        for batch, _ in run.batches:
            events = e.decode_events(msgspec.json.encode(batch))
            decides = not all(isinstance(each, STREAMED) for each in events)
            recording.add(events, len(e.encode_events(events)), decides=decides)
        verdict = rehearse(recording, Pairing(plan, plan), limits)
        assert not recording.exact or verdict == Verdict("same"), (run.name, verdict)
        assert is_faithful(recording, plan, limits) == (verdict.kind == "same")
        verdicts[verdict.kind, recording.exact] += 1
    assert verdicts["same", True] > 100
    assert sum(count for (kind, _), count in verdicts.items() if kind != "same") < 10, verdicts


@pytest.mark.parametrize("tool", ["bank.pay", "till"])
def test_a_threshold_that_is_moved_down_changes_exactly_the_runs_between(tool: str) -> None:
    lower = PAYING.replace("bank.pay", tool).replace("> 100", "> 50")
    kinds = {amount: backtest(paid(amount, tool), lower).kind for amount in (1, 50, 51, 77, 100, 101, 500)}
    assert kinds == {1: "same", 50: "same", 51: "people", 77: "people", 100: "people", 101: "same", 500: "same"}
    verdict = backtest(paid(77, tool), lower)
    assert (verdict.step, verdict.more, verdict.fewer) == ("pay", (Asking("pay", ("user:bob",)),), ())
    assert verdict.now == "begins (call), with other content" or "asks" in verdict.now


FORKING: Final = """\
steps:
  - {id: first, call: bank.look}
  - id: pay
    call: bank.pay
    with: {amount: "${{ input.amount }}"}
    approval: {from: ["user:bob"], when: "args.amount > 100"}
"""


@pytest.mark.parametrize("amount", [50, 77, 100, 101])
def test_a_fork_and_the_rest_of_its_first_commit_are_decided_again(amount: int) -> None:
    play = played(FORKING, amount)
    play.succeed("first", 1)
    fork = play.fork(play.before("pay"), {}, by="user:op")
    fork.settle()
    if amount > 100:
        fork.answer("pay", by="user:bob", decision="approve")
        fork.settle()
    fork.succeed("pay", {"paid": amount})
    assert fork.state.status == "finished"
    verdict = backtest(fork, FORKING.replace("> 100", "> 60"))
    assert (verdict.kind, verdict.step) == (("people", "pay") if 60 < amount <= 100 else ("same", ""))


@pytest.mark.parametrize("amount", [50, 77])
def test_a_run_that_was_migrated_is_decided_again_from_its_last_migration(amount: int) -> None:
    text = FORKING.replace(
        "call: bank.look", "ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}"
    )
    play = played(text, amount)
    play.migrate(plan_of(HEAD + text.replace("> 100", "> 40 && args.amount > 100")))
    play.answer("first", by="user:bob", values={"ok": True})
    play.settle()
    play.succeed("pay", {"paid": amount})
    assert play.state.status == "finished"
    assert backtest(play, text.replace("> 100", "> 60")).kind == ("people" if amount > 60 else "same")
    with pytest.raises(Rejected, match="first"):
        backtest(play, text.replace("id: first", "id: other").replace("from: anyone", 'from: ["user:bob"]'))


def test_a_threshold_that_is_moved_up_asks_fewer_people() -> None:
    higher = PAYING.replace("> 100", "> 200")
    kinds = {amount: backtest(paid(amount), higher).kind for amount in (5, 100, 101, 200, 201)}
    assert kinds == {5: "same", 100: "same", 101: "people", 200: "people", 201: "same"}
    assert backtest(paid(150), higher).fewer == (Asking("pay", ("user:bob",)),)


def test_the_digest_of_a_question_in_an_output_is_no_difference() -> None:
    text = PAYING.replace("steps.pay.output }}", "steps.pay.approval }}")
    play = played(text, 500)
    play.answer("pay", by="user:bob", decision="approve")
    play.succeed("pay", {})
    assert "digest" in str(play.state.output)
    assert backtest(play, text.replace("> 100", "> 50")).kind == "same"


def test_a_question_that_is_gone_is_named_with_those_whom_it_asked() -> None:
    play = played(ASKING)
    play.answer("sure", by="user:bob", values={"n": 1})
    play.succeed("pay", {})
    verdict = backtest(play, "steps:\n" + ASKING.splitlines()[-1] + "\n")
    assert (verdict.kind, verdict.more, verdict.fewer) == ("people", (), (Asking("sure", ("user:bob",)),))


def test_other_people_at_a_question_are_more_and_fewer() -> None:
    play = played(ASKING)
    play.answer("sure", by="user:bob", values={"n": 1})
    verdict = backtest(play, ASKING.replace("user:bob", "user:eve"))
    assert (verdict.kind, verdict.step) == ("people", "sure")
    assert verdict.more == (Asking("sure", ("user:eve",)),)
    assert verdict.fewer == (Asking("sure", ("user:bob",)),)


def test_a_new_effect_before_the_end_can_not_be_told() -> None:
    verdict = backtest(paid(5), PAYING.replace("output:", "  - {id: tell, call: bank.tell}\noutput:"))
    assert (verdict.kind, verdict.step, verdict.reason) == ("unknown", "tell", "tell has no recorded result")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("input.amount", "input.amount + 1", "pay has other arguments than were recorded"),
        ("bank.pay", "bank.give", "pay calls something else than was recorded"),
    ],
)
def test_an_effect_with_other_arguments_or_another_tool_can_not_be_told(old: str, new: str, reason: str) -> None:
    verdict = backtest(paid(5), PAYING.replace(old, new))
    assert (verdict.kind, verdict.step, verdict.reason) == ("unknown", "pay" if "+" in new else verdict.step, reason)


def test_a_run_that_would_fail_says_with_which_error() -> None:
    verdict = backtest(paid(5), PAYING.replace("output: ", "output: ${{ 1 / (input.amount - 5) }}\n#"))
    assert verdict.kind == "fails"
    assert verdict.reason.startswith("expression.")
    assert backtest(paid(6), PAYING.replace("output: ", "output: ${{ 1 / (input.amount - 5) }}\n#")).kind == "path"


def test_an_input_that_the_text_refuses_fails_at_the_start() -> None:
    strict = plan_of(HEAD.replace("type: integer", "type: integer, maximum: 9") + PAYING)
    play = paid(10)
    verdict = rehearse(recorded(play), pair_plans(play.plan, strict))
    assert (verdict.kind, verdict.now) == ("fails", "does not begin")
    assert "the input does not fit" in verdict.reason
    assert rehearse(recorded(paid(9)), pair_plans(play.plan, strict)) == Verdict("same")


def test_an_answer_that_no_longer_fits_its_form_can_not_be_told() -> None:
    play = played(ASKING)
    play.answer("sure", by="user:bob", values={"n": 1})
    verdict = backtest(play, ASKING.replace("type: integer", "type: string"))
    assert verdict.kind == "unknown"
    assert "the recorded answer to sure would be refused" in verdict.reason


def test_a_branch_that_is_taken_otherwise_is_another_path() -> None:
    text = "steps:\n  - {id: big, if: 'input.amount > 3', say: Big.}\n  - {id: pay, call: bank.pay}\n"
    play = played(text)
    play.succeed("pay", {})
    verdict = backtest(play, text.replace("> 3", "> 7"))
    assert (verdict.kind, verdict.step, verdict.recorded, verdict.now) == ("path", "big", "begins (say)", "is skipped")


def test_a_step_that_has_another_name_keeps_its_recorded_result() -> None:
    assert backtest(paid(500), PAYING.replace("id: pay", "id: payment").replace("steps.pay.", "steps.payment.")) == (
        Verdict("same")
    )


def test_a_wait_in_front_of_a_question_keeps_its_answer_for_later() -> None:
    play = played(ASKING)
    play.answer("sure", by="user:bob", values={"n": 1})
    play.now += MINUTE
    play.succeed("pay", {})
    verdict = backtest(play, ASKING.replace("steps:\n", "steps:\n  - {id: nap, wait: {for: 5d}}\n"))
    assert (verdict.kind, verdict.step, verdict.more, verdict.fewer) == ("path", "nap", (), ())


def test_results_keep_their_durations_where_an_earlier_question_is_gone() -> None:
    """The call has five minutes, and the question behind it two days: people took three days in front of both."""
    text = ASKING + "  - {id: fine, ask: {title: Fine?, from: anyone, deadline: 2d, form: {properties: {}}}}\n"
    play = played(text)
    play.now += 3 * DAY
    play.answer("sure", by="user:bob", values={"n": 1})
    play.now += MINUTE
    play.succeed("pay", {})
    play.now += HOUR
    play.answer("fine", values={})
    assert play.state.status == "finished"
    gone = text.replace(ASKING.splitlines()[1] + "\n", "")
    verdict = backtest(play, gone)
    assert (verdict.kind, verdict.more, verdict.fewer) == ("people", (), (Asking("sure", ("user:bob",)),))
    quick = backtest(play, gone.replace("id: pay,", "id: pay, timeout: 30s, retry: {max: 0},"))
    assert (quick.kind, quick.reason[:12]) == ("fails", "step.timeout")


def test_answers_signals_timers_retries_and_stops_are_followed() -> None:
    play = played(
        """\
        steps:
          - {id: hear, wait_for: {event: ping, deadline: 2d}}
          - {id: nap, wait: {for: 1d}}
          - {id: pay, call: bank.pay, retry: {max: 2, every: 1h}}
          - {id: chosen, call: pick}
        """.replace("        ", "")
    )
    play.signal("s1", data={"n": 1})
    play.advance(DAY)
    play.fail("pay")
    play.advance(2 * HOUR)
    play.succeed("pay", {"paid": 1})
    play.pause()
    play.resume()
    play.answer("chosen", result={"n": 1})
    recording = recorded(play)
    assert is_faithful(recording, play.plan)
    fewer = plan_of(play.plan.source.decode().partition("version: 1\n")[2].replace("max: 2", "max: 0"))
    verdict = rehearse(recording, pair_plans(play.plan, fewer))
    assert (verdict.kind, verdict.step) == ("fails", "pay")
    assert "tool.failed" in verdict.reason


def test_a_waiting_run_says_why_it_could_not_migrate() -> None:
    play = played(ASKING)
    recording = recorded(play)

    def obstacles(text: str) -> Any:
        found = list_obstacles(recording, pair_plans(play.plan, plan_of(HEAD + text)), play.now)
        return None if found is None else [each.code for each in found]

    assert obstacles(ASKING) == []
    assert obstacles(ASKING.replace("Sure?", "Certain?")) == ["pending.content"]
    assert obstacles("steps:\n  - {id: pay, call: bank.pay}\n") == ["step.gone"]
    ended = paid(5)
    assert list_obstacles(recorded(ended), pair_plans(ended.plan, play.plan), play.now) is None


def test_a_recording_that_does_not_lead_where_its_log_does_is_not_faithful() -> None:
    play = played(PAYING, 500)
    play.answer("pay", by="user:bob", decision="approve")
    play.succeed("pay", {})
    recording = recorded(play)
    recording.exact = False
    assert is_faithful(recording, play.plan)
    recording.inputs = [each for each in recording.inputs if not isinstance(each.command, c.Answer)]
    assert not is_faithful(recording, play.plan)


def test_a_version_or_a_name_of_its_own_is_no_difference() -> None:
    text = PAYING.replace("steps.pay.output }}", "run.version }} of ${{ run.workflow }}")
    play = played(text)
    play.succeed("pay", {})
    other = play.plan.source.replace(b"name: sample\nversion: 1", b"name: draft\nversion: 7")
    assert rehearse(recorded(play), pair_plans(play.plan, compile_workflow(other))) == Verdict("same")


def test_a_question_behind_something_unknown_is_not_asked_no_more() -> None:
    play = played(ASKING)
    verdict = backtest(play, ASKING.replace("steps:\n", "steps:\n  - {id: tell, call: bank.tell}\n"))
    assert (verdict.kind, verdict.fewer) == ("unknown", ())


def test_a_frozen_run_goes_the_same_way_and_is_not_held_after_a_difference() -> None:
    freezes: list[Freeze] = []
    text = """\
steps:
  - parallel:
      left: [{id: l, call: bank.l}, {id: l2, call: bank.l2}]
      right: [{id: r, call: shop.r}, {id: r2, call: shop.r2}]
"""
    head = HEAD.replace("  bank:", "  shop: {python: shop, effect: write}\n  bank:")
    play = Play(head + text, input={}, decide=lambda *args: decide(*args, context=DecisionContext(freezes)))
    freezes.append(Freeze("f1", "frozen", "tool", "bank", "a drill"))
    play.succeed_all("parallel#1/left/l", "parallel#1/right/r", "parallel#1/right/r2")
    assert dict(play.state.held) == {"parallel#1/left/l2": "f1"}
    held = len(play.log)
    freezes.clear()
    play.go_on()
    play.succeed("parallel#1/left/l2")
    recording = recorded(play)
    assert recording.exact
    assert rehearse(recording, Pairing(play.plan, play.plan)) == Verdict("same")
    longer = plan_of(head + text.replace("  - parallel:", "  - say: Well.\n  - parallel:"))
    verdict = rehearse(recording, pair_plans(play.plan, longer))
    assert (verdict.kind, verdict.step) == ("path", "say#1")
    play.log = play.log[:held]
    assert rehearse(recorded(play), Pairing(play.plan, play.plan)) == Verdict("same")


def test_another_quorum_is_more_people_and_fewer_of_the_former() -> None:
    text = "steps:\n  - {id: sure, approve: {title: Sure?, from: ['user:bob', 'user:eve']}}\n"
    play = played(text)
    play.answer("sure", by="user:bob", decision="approve")
    verdict = backtest(play, text.replace("'user:eve']", "'user:eve'], quorum: 2"))
    both = ("user:bob", "user:eve")
    assert (verdict.kind, verdict.more, verdict.fewer) == (
        "people",
        (Asking("sure", both, "2"),),
        (Asking("sure", both),),
    )
