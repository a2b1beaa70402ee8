"""`withdraw_when`: a question is taken back by an event, or by what the state has become."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.engine import commands as c
from tests.support.runs import Play
from tests.testing.support import messages, played

HEAD = (
    "hai: flow/v1\nname: a\nversion: 1\ninput: {type: object, required: [order], properties: {order: {type: string}}}\n"
)
TESTS = """\
hai: test/v1
workflow: expense.flow.yaml
people: {ann: [role:boss], eve: []}
"""
INPUT = "requester: eve, input: {order: A1}"

BY_EVENT = (
    HEAD
    + """\
tools: {shop: {python: acme.shop}}
steps:
  - try:
      - id: pay
        call: shop.pay
        with: {order: "${{ input.order }}"}
        approval:
          from: role:boss
          withdraw_when: {event: order.cancelled, match: event.data.order == args.order}
    catch:
      - errors: [approval.withdrawn]
        steps: [{return: "${{ error.code }}"}]
output: ${{ steps.pay.output }}
"""
)
ASK = (
    HEAD
    + """\
steps:
  - try:
      - id: size
        ask:
          title: Which?
          from: role:boss
          form: {type: object, properties: {size: {type: string}}}
          withdraw_when: {event: order.cancelled}
    catch: [{errors: [ask.withdrawn], steps: [{return: none}]}]
output: ${{ steps.size.output.?size.orValue("") }}
"""
)
BY_STATE = (
    HEAD
    + """\
state: {stopped: {type: boolean, default: false}}
steps:
  - parallel:
      people:
        - try:
            - id: go
              approve: {title: Go?, from: role:boss, withdraw_when: state.stopped}
          catch:
            - errors: [approval.withdrawn]
              steps: [{say: "withdrawn"}]
      world:
        - wait_for: {event: stop, deadline: 1h, on_deadline: {default: null}}
        - set: {stopped: true}
        - say: stopped
output: ${{ steps.go.status }}
"""
)


def play(tmp_path: Path, source: str, script: str, output: str, more: str = "") -> None:
    assert [each for each in check_workflow(source.encode()) if each.severity == "error"] == []
    case = f"cases: [{{name: a, {INPUT}, script: [{script}], expect: {{status: finished, output: {output}{more}}}}}]\n"
    mock = "mock: {shop.pay: {output: paid}}\n" if "shop.pay" in source else ""
    (result,) = played(tmp_path, TESTS + mock + case, source)
    assert messages(result) == []


CANCELLED = "signal: {type: order.cancelled, data: {order: %s}}"
APPROVED = "decide: {pending: pay, by: ann, decision: approve}"


def test_an_event_withdraws_a_gates_question_and_the_call_is_not_made(tmp_path: Path) -> None:
    play(tmp_path, BY_EVENT, f"{{{CANCELLED % 'A1'}}}", "approval.withdrawn", ", not_called: [shop.pay]")


def test_an_unmatched_event_leaves_the_question_and_none_counts_after_it(tmp_path: Path) -> None:
    play(tmp_path, BY_EVENT, f"{{{CANCELLED % 'B2'}}}, restart, {{{APPROVED}}}", "paid")


def test_an_event_that_came_before_the_question_takes_it_back_at_once(tmp_path: Path) -> None:
    source = BY_EVENT.replace("steps:\n  - try:", "steps:\n  - wait_for: {event: begin}\n  - try:", 1)
    script = f"{{{CANCELLED % 'A1'}}}, {{signal: {{type: begin}}}}"
    play(tmp_path, source, script, "approval.withdrawn", ", not_called: [shop.pay]")


def test_a_form_is_taken_back_and_so_fails(tmp_path: Path) -> None:
    play(tmp_path, ASK, f"{{{CANCELLED % 'A1'}}}", "none")


def test_a_form_that_is_answered_is_taken_back_by_nothing(tmp_path: Path) -> None:
    source = ASK.replace("output:", "  - wait: {for: 1m}\noutput:")
    answer = "{answer: {pending: size, by: ann, value: {size: M}}}"
    play(tmp_path, source, f"{answer}, {{{CANCELLED % 'A1'}}}, {{advance: 2m}}", "M")


def test_an_event_during_an_approved_call_is_not_its_result() -> None:
    play = Play(compile_workflow(BY_EVENT.encode(), "a"), input={"order": "A1"})
    (path,) = play.asking
    play.answer(path, by=c.Principal("user:bob", ("boss",)), decision="approve")
    assert play.signal("s1", "order.cancelled", {"order": "A1"}).outcome == {"id": "s1", "taken": False, "awaits": []}
    play.go_on()
    assert not play.signal("s2", "order.cancelled", {"order": "A1"}).outcome["taken"]
    play.succeed(path, "paid")
    assert play.output == "paid"


def test_a_question_that_an_event_may_withdraw_keeps_its_own_deadline(tmp_path: Path) -> None:
    source = BY_EVENT.replace("from: role:boss\n", "from: role:boss\n          deadline: 1h\n").replace(
        "approval.withdrawn]", "approval.withdrawn, approval.rejected]"
    )
    play(tmp_path, source, "{advance: 2h}", "approval.rejected", ", not_called: [shop.pay]")


def test_what_the_state_becomes_takes_a_question_back(tmp_path: Path) -> None:
    play(tmp_path, BY_STATE, "{signal: {type: stop}}", "failed", ", said: [stopped, withdrawn]")


def test_a_question_that_nobody_wants_is_not_asked(tmp_path: Path) -> None:
    source = BY_STATE.replace("default: false", "default: true")
    play(tmp_path, source, "{signal: {type: stop}}", "failed", ", said: [withdrawn, stopped]")


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("input.order == 'A1'", "withdraw.never"),
        ("now > timestamp('2026-01-01T00:00:00Z')", "withdraw.never"),
        ("order.cancelled", "expression.unknown_name"),
        ("[a]", "withdraw.kind"),
        ("{event: '${{ input.order }}'}", "wait_for.hole"),
        ("{evnt: a}", "shape.unknown_key"),
    ],
)
def test_what_can_never_take_a_question_back_is_a_finding(word: str, code: str) -> None:
    source = BY_STATE.replace("state.stopped}", f"{word}}}")
    assert code in {finding.code for finding in check_workflow(source.encode())}
