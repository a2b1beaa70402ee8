"""A run goes on with another version of its workflow, or is told every reason why it can't."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from hai_flow.definition.paths import rename_path
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from tests.support.runs import DAY, HOUR, Play, plan_of

FLOW = """
input: {type: object, properties: {who: {type: string, default: ann}}}
state: {log: {type: array, items: {type: string}, default: []}}
steps:
  - {id: first, call: t.first}
  - {id: fine, approve: {title: "Is ${{ steps.first.output }} fine?", from: [role:lead, requester], deadline: 1d}}
  - {id: last, call: t.last, with: {was: "${{ steps.fine.output.decision }}"}}
output: ${{ steps.last.output }}
"""


def waiting(text: str = FLOW, **more: Any) -> Play:
    """A run that waits for its approval."""
    play = Play(text, **more)
    play.succeed("first", "it")
    assert play.status == "waiting"
    return play


def refusal(play: Play, new: str | Plan, paths: dict[str, str] | None = None) -> dict[str, str]:
    """The obstacles, code -> path."""
    before = play.state
    with pytest.raises(Rejected) as refused:
        play.migrate(plan_of(new) if isinstance(new, str) else new, paths)
    assert (refused.value.status, refused.value.code) == (409, "migration_refused")
    assert play.state is before
    return {finding["code"]: finding["path"] for finding in refused.value.findings}


LEAD = c.Principal("user:lea", roles=("lead",))

# --- what may move ----------------------------------------------------------------------------------------------------


def test_what_is_still_to_come_is_done_as_the_new_version_says() -> None:
    play = waiting()
    new = plan_of(FLOW.replace("call: t.last", "call: t.other"))
    play.migrate(new)
    assert play.types() == ["migrated", "pending_restamped"]
    assert (play.status, play.state.version, play.state.sha256) == ("waiting", 1, new.sha256.hex())
    play.answer("fine", by=LEAD, decision="approve")
    assert play.open == {"last": 1}
    assert play.plan.steps["last"].verb.function == "other"  # type: ignore[union-attr]
    play.succeed("last", 7)
    assert play.output == 7


def test_the_log_alone_gives_the_state_after_a_migration() -> None:
    play = waiting()
    renamed_first = FLOW.replace("id: first", "id: begin").replace("steps.first", "steps.begin")
    play.migrate(plan_of(renamed_first), {"first": "begin"})
    play.answer("fine", by=LEAD, decision="approve")
    state = RunState(str(play.run_id))
    for batch in play.log:
        state = fold(state, e.decode_events(e.encode_events(batch)))
    assert state == play.state


def test_the_same_version_again_is_already_so() -> None:
    play = waiting()
    assert play.migrate(play.plan).already


def test_steps_that_come_before_where_the_run_stands_are_not_made_up_for() -> None:
    play = waiting()
    play.migrate(plan_of(FLOW.replace("  - {id: fine", "  - {id: missed, call: t.missed}\n  - {id: fine")))
    play.answer("fine", by=LEAD, decision="approve")
    assert play.open == {"last": 1}
    assert play.step("missed") == "pending"


def test_defaults_of_the_new_version_are_filled_into_input_and_state() -> None:
    play = waiting()
    new = FLOW.replace("default: ann}", "default: ann}, n: {type: integer, default: 3}")
    play.migrate(plan_of(new.replace("default: []}}", "default: []}, sum: {type: integer, default: 0}}")))
    assert play.state.input == {"who": "ann", "n": 3}
    assert play.state.state == {"log": [], "sum": 0}


def test_a_paused_run_migrates_and_a_waiting_retry_keeps_its_arguments() -> None:
    text = "steps: [{id: a, call: t.a, with: {x: 1}, retry: {max: 3, every: 1h}}]"
    play = Play(text)
    play.fail("a")
    play.migrate(plan_of(text.replace("x: 1", "x: 2")))
    play.advance(HOUR)
    assert play.open == {"a": 2}
    assert play.state.steps["a"].args == '{"x":1}'


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_step_that_is_called_otherwise_goes_by_its_new_name_everywhere() -> None:
    text = """
    steps:
      - {id: one, call: t.one}
      - id: both
        parallel:
          left: [{id: nap, wait: {for: 1d}}, {id: then, say: "${{ steps.one.output }}"}]
          right: [{id: r, say: hello}]
    output: ${{ steps.one.output }}
    """
    play = Play(text)
    play.succeed("one", "it")
    assert play.status == "waiting"
    new = text.replace("id: one", "id: uno").replace("steps.one", "steps.uno").replace("id: both", "id: all")
    play.migrate(plan_of(new), {"one": "uno", "both": "all"})
    assert set(play.state.steps) == {"uno", "all", "all/left/nap", "all/right/r"}
    assert play.timers == [("all/left/nap", "wait", DAY)]
    play.advance(DAY)
    assert (play.status, play.output) == ("finished", "it")
    assert play.said == ["hello", "it"]


@pytest.mark.parametrize(
    ("path", "now"),
    [
        ("each", "all"),
        ("each[a]", "all[a]"),
        ("each[a]/x/inner[b]/y", "all[a]/x/inside[b]/y"),
        ("each[a]/old", "all[a]/new"),
        ("each[a]/older", "all[a]/older"),
        ("eachother", "eachother"),
        ("", ""),
        ("~catch/0/tell", "~catch/0/tell"),
    ],
)
def test_the_longest_renaming_of_a_path_holds_and_keys_stay(path: str, now: str) -> None:
    paths = {"each": "all", "each[]/old": "all[]/new", "each[]/x/inner": "all[]/x/inside"}
    assert rename_path(path, paths) == now


def test_what_is_known_by_its_path_out_there_can_not_be_renamed() -> None:
    new = FLOW.replace("id: fine", "id: ok").replace("steps.fine", "steps.ok")
    assert refusal(waiting(), new, {"fine": "ok"})["step.bound"] == "fine"
    text = "steps: [{id: a, call: t.a, retry: {max: 3, every: 1h}}]"
    play = Play(text)
    play.fail("a")
    assert refusal(play, text.replace("id: a", "id: b"), {"a": "b"}) == {"step.bound": "a"}


def test_a_name_that_neither_version_knows_is_an_obstacle() -> None:
    assert refusal(waiting(), FLOW + "# 2\n", {"frist": "fine"}) == {"map.unknown": "frist"}
    assert refusal(waiting(), FLOW + "# 2\n", {"first": "fein"}) == {"map.unknown": "first"}


def test_two_steps_can_not_become_one() -> None:
    text = "steps: [{id: a, call: t.a}, {id: b, call: t.a}, {id: w, wait: {for: 1d}}]"
    play = Play(text).succeed_all("a", "b")
    assert refusal(play, text + "# 2\n", {"a": "b"}) == {"map.twice": "b"}


# --- what may not move ------------------------------------------------------------------------------------------------


def test_a_run_with_an_attempt_in_flight_stays() -> None:
    play = Play(FLOW)
    assert refusal(play, FLOW + "# 2\n") == {"run.busy": "", "step.in_flight": "first"}
    play.pause()
    assert refusal(play, FLOW + "# 2\n") == {"step.in_flight": "first"}
    play.succeed("first", "it")
    play.migrate(plan_of(FLOW + "# 2\n"))
    assert play.status == "paused"


def test_a_run_that_has_ended_stays() -> None:
    assert refusal(Play("steps: [{say: x}]"), "steps: [{say: y}]") == {"run.ended": ""}


def test_every_step_that_the_run_knows_must_be_there() -> None:
    new = FLOW.replace("id: first", "id: begin").replace("steps.first", "steps.begin")
    with pytest.raises(Rejected, match="first is not in sample@1; it looks like begin: map first=begin"):
        waiting().migrate(plan_of(new))
    assert refusal(waiting(), new)["step.gone"] == "first"


def test_and_with_the_same_verb() -> None:
    assert refusal(waiting(), FLOW.replace("call: t.first", 'say: "it"')) == {"step.verb": "first"}


def test_and_in_the_same_block() -> None:
    new = FLOW.replace(
        "{id: first, call: t.first}", "{id: wrap, parallel: {a: [{id: first, call: t.first}], b: [{say: b}]}}"
    )
    assert refusal(waiting(), new, {"first": "wrap/a/first"}) == {"step.elsewhere": "first"}


def test_an_effect_that_has_begun_can_not_become_another_one() -> None:
    text = "steps: [{id: a, call: t.a, retry: {max: 3, every: 1h}}]"
    play = Play(text)
    play.fail("a")
    assert refusal(play, text.replace("t.a", "t.b")) == {"step.effect": "a"}


def test_what_the_run_holds_must_fit_the_new_schemas() -> None:
    assert refusal(waiting(), FLOW.replace("{type: string, default: ann}", "{type: integer, default: 1}")) == {
        "input.invalid": ""
    }
    gone = FLOW.replace("log: {type: array, items: {type: string}, default: []}", "sum: {type: integer, default: 0}")
    assert refusal(waiting(), gone) == {"state.invalid": ""}


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        ("fine?", "good?"),
        ("from: [role", "message: look, from: [role"),
        ("from: [role", "evidence: {a: 1}, from: [role"),
        ("from: [role", "form: {properties: {a: {type: string}}}, from: [role"),
    ],
)
def test_a_question_that_would_show_other_text_keeps_the_run(change: tuple[str, str]) -> None:
    assert refusal(waiting(), FLOW.replace(*change)) == {"pending.content": "fine"}


def test_a_question_worded_otherwise_with_equal_text_is_no_obstacle() -> None:
    play = waiting()
    play.migrate(plan_of(FLOW.replace('"Is ${{ steps.first.output }} fine?"', "Is it fine?")))
    assert play.asking == {"fine"}


def test_a_question_is_bound_to_the_new_version_and_its_votes_still_count() -> None:
    text = FLOW.replace("from: [role:lead, requester], ", "from: role:lead, quorum: 2, ")
    play = waiting(text)
    play.answer("fine", by=LEAD, decision="approve")
    opened = play.state.pendings[play.pending("fine")].opened
    play.migrate(plan_of(text + "# 2\n"))
    pending = play.state.pendings[opened.id]
    assert pending.opened.digest != opened.digest
    assert [vote.digest for vote in pending.votes] == [pending.opened.digest]
    with pytest.raises(Rejected, match="digest"):
        play.answer("fine", by=c.Principal("user:leo", roles=("lead",)), decision="approve", digest=opened.digest)
    play.answer("fine", by=c.Principal("user:leo", roles=("lead",)), decision="approve", digest=pending.opened.digest)
    assert play.open == {"last": 1}


def test_the_digest_is_that_which_the_new_version_would_have_given() -> None:
    play, other = waiting(), waiting(FLOW + "# 2\n")
    play.migrate(other.plan)
    id = play.pending("fine")
    assert play.state.pendings[id].opened.digest == other.state.pendings[id].opened.digest
    assert other.plan.sha256 == sha256(other.plan.source).digest()


# --- what takes a question back ---------------------------------------------------------------------------------------

ASKS = """
state: {off: {type: boolean, default: false}}
steps:
  - id: outer
    parallel:
      people:
        - try:
            - {id: fine, approve: {title: Fine?, from: role:lead, deadline: 1dWHEN}}
          catch: [{errors: [approval.withdrawn], steps: [{say: withdrawn}]}]
      world:
        - wait_for: {event: off}
        - set: {off: true}
output: ${{ steps.fine.status }}
"""
BY_CANCELLING = ASKS.replace("WHEN", ", withdraw_when: {event: cancelled}")
BY_CLOSING = ASKS.replace("WHEN", ", withdraw_when: {event: closed}")
BY_STATE = ASKS.replace("WHEN", ", withdraw_when: state.off")
BY_NOTHING = ASKS.replace("WHEN", "")


def is_asked(play: Play) -> bool:
    return any(path.endswith("fine") for path in play.asking)


@pytest.mark.parametrize("before", [BY_NOTHING, BY_CANCELLING, BY_STATE])
def test_an_event_the_new_version_names_withdraws_an_open_question(before: str) -> None:
    play = Play(before)
    decision = play.migrate(plan_of(BY_CLOSING))
    assert [message.body["types"] for message in decision.outbox if message.kind == "subscribe"] == [["closed"]]  # type: ignore[call-overload,index]
    assert is_asked(play)
    assert not play.signal("s1", "cancelled").outcome["taken"]
    assert is_asked(play)
    assert play.signal("s2", "closed").outcome["taken"]
    assert not is_asked(play)


@pytest.mark.parametrize("after", [BY_NOTHING, BY_STATE])
def test_an_event_the_new_version_does_not_name_withdraws_nothing(after: str) -> None:
    play = Play(BY_CANCELLING)
    play.migrate(plan_of(after))
    assert not play.signal("s1", "cancelled").outcome["taken"]
    assert is_asked(play)
    state = RunState(str(play.run_id))
    for batch in play.log:
        state = fold(state, e.decode_events(e.encode_events(batch)))
    assert state == play.state
    assert not any(path.endswith("fine") for path in state.subscriptions)


def test_a_migration_withdraws_a_question_whose_new_condition_holds() -> None:
    play = Play(BY_NOTHING)
    play.signal("s1", "off")
    play.settle()
    assert is_asked(play)
    play.migrate(plan_of(BY_STATE))
    play.settle()
    assert not is_asked(play)
    assert (play.status, play.output) == ("finished", "failed")


def test_a_question_is_withdrawn_by_its_new_condition_and_never_by_the_old() -> None:
    play = Play(BY_NOTHING)
    play.migrate(plan_of(BY_STATE))
    assert is_asked(play)
    play.signal("s1", "off")
    play.settle()
    assert (play.status, play.output) == ("finished", "failed")
    other = Play(BY_STATE)
    other.migrate(plan_of(BY_NOTHING))
    other.signal("s1", "off")
    other.settle()
    assert is_asked(other)


def test_a_paused_run_whose_question_a_migration_withdraws_stays_paused() -> None:
    play = Play(BY_NOTHING)
    play.signal("s1", "off")
    play.settle()
    play.do(c.Pause("user:op"))
    play.migrate(plan_of(BY_STATE))
    assert (play.status, is_asked(play)) == ("paused", False)
    play.do(c.Resume("user:op"))
    play.settle()
    assert (play.status, play.output) == ("finished", "failed")


VETO = """
steps:
  - {id: fine, approve: {title: Fine?, from: [role:lead, role:law], quorum: 2, reject_when: 2, deadline: 1dVETO}}
output: ${{ steps.fine.output.decision }}
"""
LAW = c.Principal("user:lew", roles=("law",))
LEADS = [c.Principal(f"user:{name}", roles=("lead",)) for name in ("lea", "leo", "lia")]


def test_a_veto_counts_as_it_did_when_the_question_was_opened() -> None:
    with_veto, without = VETO.replace("VETO", ", veto: role:law"), VETO.replace("VETO", "")
    play = Play(with_veto)
    play.answer("fine", by=LEADS[0], decision="approve")
    play.migrate(plan_of(without))
    play.answer("fine", by=LAW, decision="reject")
    assert play.status == "failed"
    other = Play(without)
    other.answer("fine", by=LAW, decision="reject")
    other.migrate(plan_of(with_veto))
    assert other.asking == {"fine"}  # what was one vote among many does not become a veto
    for lead in LEADS[:2]:
        other.answer("fine", by=lead, decision="approve")
    assert (other.status, other.output) == ("finished", "approve")


def test_a_veto_that_was_cast_stays_in_a_version_without_one() -> None:
    text = VETO.replace("VETO", ", veto: role:law").replace(
        "1d, veto: role:law}}",
        "1d, veto: role:law}, on_reject: [{wait: {for: 1h}}, {return: '${{ steps.fine.output.decision }}'}]}",
    )
    play = Play(text)
    play.answer("fine", by=LAW, decision="reject")
    play.settle()
    assert play.status == "waiting"
    play.migrate(plan_of(text.replace(", veto: role:law", "")))
    play.advance(HOUR)
    play.settle()
    assert (play.status, play.output) == ("finished", "reject")
