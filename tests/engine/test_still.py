"""`still`: what people approved has to be so yet when the effect begins, or they are asked anew and nothing is done."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from hai_flow import values
from hai_flow.definition.plan import Plan, Step
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.draft import DecisionContext, Draft
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.runs.migrate import examine
from hai_flow.engine.runs.replay import decide_again
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.state import RunState
from hai_flow.engine.steps.still import ASKED_ANEW_MAX, find_gate_behind_loss, find_gate_to_check, judge
from hai_flow.wire.receipt import ReceiptRecorder
from tests.support.runs import MINUTE, Play, plan_of

TOOLS = """\
input: {type: object, properties: {count: {type: integer, default: 3}}}
state: {stock: {type: integer, default: 10}}
tools:
  shop: {python: acme.shop}
  look: {python: acme.shop, effect: read}
  fx: {mcp: {url: "https://example.com/mcp"}}
"""
BY_STATE = TOOLS + (
    "steps:\n"
    '  - {id: pay, call: shop.pay, with: {n: "${{ input.count }}"}, expose: true, retry: {max: 2}, '
    "approval: {from: anyone, edit: [n], message: Pay., still: state.stock >= args.n}}\n"
)
BY_TOOL = TOOLS + (
    "steps:\n"
    '  - {id: pay, call: shop.pay, with: {n: "${{ input.count }}"}, delivery: at_most_once, approval: {from: anyone, '
    'still: {call: look.order, expect: response.status == "open"}}}\n'
)
BY_AGENT = TOOLS.replace("  fx:", '  helper: {a2a: {url: "https://example.com"}}\n  fx:') + (
    'steps:\n  - {id: pay, call: helper, with: {text: pay}, approval: {from: anyone, still: "state.stock > 0"}}\n'
)
CHILD = TOOLS + (
    'steps:\n  - {id: pay, run: child, with: {n: 1}, approval: {from: anyone, still: "state.stock > 0"}}\n'
)


def check(run: Play, **found: Any) -> None:
    """What whoever performs the open attempt has found out."""
    run.do(c.GateChecked(path="pay", attempt=run.open["pay"], **found))


def evidence(run: Play) -> Any:
    text = run.state.pendings[run.pending("pay")].opened.evidence
    return None if text is None else values.loads(text)


def decided_again(run: Play) -> None:
    """Each commit is decided again by the commands that are read off it."""
    state = RunState(str(run.run_id))
    for batch, (command, now) in zip(run.log, run.commands, strict=True):
        again = decide_again(run.plan, state, batch)
        assert again.left is None, f"{again.left} of {command} is given by no command"
        state = decide(run.plan, state, command, now).state


def test_people_see_values_of_the_condition_and_later_the_difference() -> None:
    run = Play(BY_STATE)
    assert evidence(run) == {"still": "state.stock >= args.n", "values": {"state.stock": 10, "args.n": 3}}
    first = run.pending("pay")
    run.answer("pay", decision="approve")
    check(run, values={"state.stock": 2, "args.n": 3}, why="still")
    opened = run.state.pendings[run.pending("pay")].opened
    assert (run.status, run.open, run.pending("pay") != first) == ("waiting", {}, True)
    assert evidence(run)["changed"] == {"state.stock": {"then": 10, "now": 2}}
    assert opened.anew == e.AskedAnew(first, 1, "still", 1)
    assert opened.message is not None
    assert opened.message.startswith("Asked anew: ")
    assert opened.message.endswith("\n\nPay.")
    assert run.state.pendings[first].status == "approve"  # it was given, and is spent
    decided_again(run)


def test_after_the_next_yes_the_call_has_a_new_number_and_is_shown_anew() -> None:
    run = Play(BY_STATE)
    run.answer("pay", decision="approve")
    check(run, values={"state.stock": 2}, why="still")
    run.answer("pay", decision="approve", edits={"n": 2})
    assert (run.open, run.state.steps["pay"].args) == ({"pay": 2}, '{"n":2}')
    run.succeed("pay", "done")
    assert run.status == "finished"
    shown = run.of(e.ToolCallStarted)
    results = run.of(e.ToolCallResolved)
    assert [each.tool_call_id for each in shown] == [each.tool_call_id for each in results]
    assert [each.error for each in results] == ["approval.stale", None]
    decided_again(run)


def test_an_edit_keeps_the_sentence_on_why_people_are_asked_anew() -> None:
    run = Play(BY_STATE.replace("from: anyone", "from: anyone, quorum: 2"))
    run.answer("pay", by="user:bob", decision="approve")
    run.answer("pay", by="user:eve", decision="approve")
    check(run, values={"state.stock": 2}, why="still")
    run.answer("pay", by="user:bob", decision="approve", edits={"n": 2})
    assert (run.state.pendings[run.pending("pay")].opened.message or "").startswith("Asked anew: ")


def test_repeated_questions_fail_the_step_and_an_operators_retry_asks_once() -> None:
    run = Play(BY_STATE)
    for _ in range(ASKED_ANEW_MAX):
        run.answer("pay", decision="approve")
        check(run, why="still")
        assert run.status == "waiting"
    run.answer("pay", decision="approve")
    check(run, why="unknown", fault="it divides by zero")
    assert (run.status, run.state.error and run.state.error.code) == ("failed", "approval.stale")
    run.do(c.Retry(by="user:ops"))
    run.settle()
    assert (run.status, run.open) == ("waiting", {})
    assert run.state.pendings[run.pending("pay")].opened.anew is None


def test_a_condition_that_costs_too_much_is_one_of_which_nobody_can_tell() -> None:
    numbers = f"numbers: {{type: array, default: {[1] * 1500}}}"
    costly = "'state.numbers.all(a, state.numbers.all(b, state.numbers.all(c, a + b + c > 0)))'"
    run = Play(
        BY_STATE.replace("stock: {type: integer, default: 10}", numbers).replace("state.stock >= args.n", costly)
    )
    assert "the expression could grow beyond" in evidence(run)["unknown"]
    run.answer("pay", decision="approve")
    draft = Draft(run.plan, run.state, run.now, DEFAULT_BOUNDS)
    verdict = judge(draft, run.plan.steps["pay"], run.state.steps["pay"].args or "", {})
    assert (verdict.holds, "use a tool" in verdict.fault) == (False, True)
    check(run, values=verdict.values, fault=verdict.fault, why="unknown")
    assert (run.open, run.status) == ({}, "waiting")


@pytest.mark.parametrize("why", ["source", "description", "unknown"])
def test_an_unevaluable_condition_performs_nothing_and_states_its_reason(why: Any) -> None:
    run = Play(BY_STATE)
    run.answer("pay", decision="approve")
    check(run, why=why, source="s2", fault="the tool gave no answer" if why == "unknown" else "")
    opened = run.state.pendings[run.pending("pay")].opened
    assert (run.open, opened.source, opened.anew and opened.anew.why) == ({}, "s2", why)
    assert evidence(run)["changed"]["source"] == {"then": None, "now": "s2"}
    decided_again(run)


def test_a_tool_is_read_before_people_are_asked_and_performs_nothing() -> None:
    run = Play(BY_TOOL)
    assert (run.open, run.asking, run.state.steps["pay"].reading) == ({"pay": 1}, set(), True)
    check(run, values={"response.status": "open"})
    assert evidence(run) == {"still": 'response.status == "open"', "values": {"response.status": "open"}}
    assert not run.state.steps["pay"].reading
    run.answer("pay", decision="approve")
    assert run.open == {"pay": 2}
    decided_again(run)


def test_a_lost_reading_attempt_is_read_again_even_where_calls_happen_once() -> None:
    run = Play(BY_TOOL)
    run.lose("pay")
    assert (run.open, run.state.steps["pay"].reading, run.asking) == ({"pay": 2}, True, set())
    run.fail("pay", "step.timeout")
    assert (run.open, evidence(run)["unknown"]) == ({}, "It broke.")
    decided_again(run)


def test_a_lost_attempt_behind_a_gate_is_in_doubt_and_a_new_one_is_tried() -> None:
    run = Play(BY_TOOL)
    check(run, values={"response.status": "open"})
    run.answer("pay", decision="approve")
    run.lose("pay")
    assert run.state.pendings[run.pending("pay")].opened.kind == "doubt"
    run.answer("pay", by="user:local", decision="again")
    step = run.plan.steps["pay"]
    assert run.open == {"pay": 3}
    assert find_gate_to_check(run.state, step) is not None
    check(run, why="still", values={"response.status": "closed"})
    assert (run.open, run.state.pendings[run.pending("pay")].opened.kind) == ({}, "gate")


def test_a_lost_attempts_remote_task_is_searched_before_another_gate() -> None:
    run = Play(BY_AGENT)
    step = run.plan.steps["pay"]
    run.answer("pay", decision="approve")
    assert (find_gate_to_check(run.state, step) is None, find_gate_behind_loss(run.state, step)) == (False, None)
    run.lose("pay")
    assert (run.open, find_gate_to_check(run.state, step)) == ({"pay": 2}, None)
    assert find_gate_behind_loss(run.state, step) is not None
    check(run, values={"state.stock": 0}, why="still")
    assert (run.open, run.state.pendings[run.pending("pay")].opened.kind) == ({}, "gate")
    decided_again(run)


def test_a_retry_looks_anew_and_a_gate_that_asked_nobody_is_not_looked_at() -> None:
    run = Play(BY_STATE)
    run.answer("pay", decision="approve")
    run.fail("pay", retriable=True)
    run.advance(MINUTE)
    assert run.open == {"pay": 2}
    assert find_gate_to_check(run.state, run.plan.steps["pay"]) is not None
    nobody = Play(BY_STATE.replace("from: anyone,", "from: anyone, when: args.n > 100,"))
    assert nobody.open == {"pay": 1}
    assert find_gate_to_check(nobody.state, nobody.plan.steps["pay"]) is None


def test_a_child_run_begins_when_its_gate_was_looked_at_and_not_before() -> None:
    run = Play(CHILD)
    run.answer("pay", decision="approve")
    assert (run.open, dict(run.state.children)) == ({"pay": 1}, {})
    check(run, values={"state.stock": 10})
    assert list(run.state.children) == ["pay"]
    decided_again(run)
    other = Play(CHILD)
    other.answer("pay", decision="approve")
    check(other, why="still")
    assert (other.open, dict(other.state.children), other.status) == ({}, {}, "waiting")
    decided_again(other)


def test_a_tools_code_is_pinned_at_the_question_and_read_first_if_unknown() -> None:
    def sources(plan: Plan, step: Step) -> str | None:
        return "s1"

    run = Play(
        BY_STATE.replace(", still: state.stock >= args.n", ""),
        decide=partial(decide, context=DecisionContext(sources=sources)),
    )
    assert (run.state.pendings[run.pending("pay")].opened.source, evidence(run)) == ("s1", None)
    elsewhere = Play(BY_STATE, decide=partial(decide, context=DecisionContext(sources=lambda plan, step: "")))
    assert (elsewhere.open, elsewhere.state.steps["pay"].reading) == ({"pay": 1}, True)
    for each in (run, elsewhere):
        state = RunState(str(each.run_id))
        assert [decide_again(each.plan, state, batch).left for batch in each.log[:1]] == [None]


GATE = '{id: pay, call: shop.pay, with: {n: 1}, approval: {from: anyone, still: "state.stock > 0"}}'
PLACES = {
    "each[a]/pay": f"{{id: each, for_each: {{items: [a], steps: [{GATE}]}}}}",
    "each[a]/below[b]/pay": "{id: each, for_each: {items: [a], steps: "
    f"[{{id: below, for_each: {{items: [b], as: other, steps: [{GATE}]}}}}]}}}}",
    "again[0]/pay": f"{{id: again, repeat: {{max: 1, steps: [{GATE}]}}}}",
    "both/one/pay": f"{{id: both, parallel: {{one: [{GATE}], two: [say: hi]}}}}",
    "route/0/pay": f"{{id: route, switch: [{{when: 'true', steps: [{GATE}]}}]}}",
    "wrap/~catch/0/pay": f"{{id: wrap, try: [fail: {{message: a}}], catch: [{{errors: '*', steps: [{GATE}]}}]}}",
    "clerk[0]/call[shop.pay-1]/shop.pay": "{id: clerk, agent: {model: smart, prompt: Go., tools: [shop.pay], "
    'approvals: {shop.pay: {from: requester, still: "state.stock > 0"}}}}',
}


@pytest.mark.parametrize("path", PLACES)
def test_a_gate_inside_of_another_step_asks_anew_and_lets_nothing_begin(path: str) -> None:
    run = Play(f"{TOOLS}models: {{smart: {{use: smart}}}}\nsteps:\n  - {PLACES[path]}\n")
    if "clerk" in path:
        call = {"id": "c-1", "name": "shop.pay", "args": "{}", "effect": "write"}
        run.succeed("clerk[0]/model", {"text": "", "calls": [call]})
    for number in (1, 2):
        run.answer(path, decision="approve")
        assert list(run.open) == [path]
        assert find_gate_to_check(run.state, resolve_step(run.plan, path)) is not None
        run.do(c.GateChecked(path=path, attempt=run.open[path], values={"state.stock": 0}, why="still"))
        anew = run.state.pendings[run.pending(path)].opened.anew
        assert (run.open, anew and (anew.why, anew.number)) == ({}, ("still", number))
    decided_again(run)


def test_a_run_that_is_being_stopped_asks_nobody_anew() -> None:
    run = Play(BY_STATE)
    run.answer("pay", decision="approve")
    run.do(c.Stop(by="user:ops"))
    check(run, why="still")
    run.settle()
    assert (run.status, run.asking) == ("stopped", set())


def test_a_version_with_another_condition_takes_over_no_question() -> None:
    run = Play(BY_STATE)
    new = plan_of(BY_STATE.replace("state.stock >= args.n", "state.stock > args.n"))
    assert [each.code for each in examine(run.plan, new, run.state, {}, run.now).obstacles] == ["pending.content"]


def receipt_of(run: Play, id: str) -> Any:
    """The content of the receipt of a question on which nothing follows any more."""
    recorder, state = ReceiptRecorder(id, lambda text: "salt"), RunState(str(run.run_id))
    for event in run.events:
        state = evolve(state, event)
        recorder.see(event, event, state)
    assert recorder.settled
    return values.loads(recorder.payload(state, {}, None))


def test_the_receipt_says_that_the_yes_was_used_and_executed_nothing() -> None:
    run = Play(BY_STATE)
    first = run.pending("pay")
    run.answer("pay", decision="approve")
    check(run, why="still")
    second = run.pending("pay")
    run.answer("pay", decision="approve")
    run.succeed("pay")
    receipts = {id: receipt_of(run, id) for id in (first, second)}
    assert (receipts[first]["decision"]["outcome"], receipts[first]["executed"]) == ("approve", [])
    assert (receipts[first]["superseded"]["by"], receipts[first]["superseded"]["why"]) == (second, "still")
    assert (len(receipts[second]["executed"]), receipts[second]["superseded"]) == (1, None)


TWICE = TOOLS + (
    "steps:\n"
    "  - {id: pay, call: shop.pay, with: {n: 3}, delivery: at_most_once, approval: {from: anyone}}\n"
    "  - {id: last, ask: {title: Last?, from: anyone, form: {type: object}}}\n"
)


@pytest.mark.parametrize(
    ("decision", "outcomes"),
    [
        (None, ["asked", "finished"]),
        ("happened", ["finished"]),
        ("again", ["failed", "finished"]),
        ("fail", ["failed"]),
    ],
)
def test_the_receipt_of_a_call_has_what_came_of_a_question_about_it(decision: str | None, outcomes: list[str]) -> None:
    run = Play(TWICE)
    gate = run.pending("pay")
    run.answer("pay", decision="approve")
    run.settle()
    if decision is None:
        run.do(c.StepAsks(path="pay", attempt=1, message="Which?", form={"type": "object"}))
        run.answer("pay", values={})
    else:
        run.lose("pay")
        run.answer("pay", "user:local", decision=decision, **({"result": 1} if decision == "happened" else {}))
    if run.open:
        run.succeed("pay")
    executed = receipt_of(run, gate)["executed"]
    assert [each["outcome"] for each in executed] == outcomes
    assert all(each["ended_at"] for each in executed)


def test_a_fork_proves_nothing_that_another_run_has_decided() -> None:
    run = Play(TWICE)
    run.answer("pay", decision="approve")
    run.settle()
    run.succeed("pay")
    fork = run.fork(run.state.seq, {"last": {"values": {}}})
    recorder, state = ReceiptRecorder(fork.pending("pay"), lambda text: "salt"), RunState(str(fork.run_id))
    for event in fork.events:
        state = evolve(state, event)
        recorder.see(event, event, state)
    assert (recorder.exists, recorder.decided) == (False, False)


def test_a_fork_in_front_of_a_gate_takes_no_yes_along_and_looks_anew() -> None:
    run = Play(BY_STATE)
    before = run.state.seq
    run.answer("pay", decision="approve")
    run.succeed("pay")
    for answers in ({}, {"pay": {"decision": "approve"}}):
        fork = run.fork(before, answers)
        if not answers:
            assert (fork.open, list(fork.asking)) == ({}, ["pay"])
            fork.answer("pay", decision="approve")
        assert (list(fork.open), find_gate_to_check(fork.state, fork.plan.steps["pay"]) is None) == (["pay"], False)
        check(fork, values={"state.stock": 0, "args.n": 3}, why="still")
        assert (fork.open, evidence(fork)["changed"]) == ({}, {"state.stock": {"then": 10, "now": 0}})
