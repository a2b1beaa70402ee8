"""Gates: what is approved is what runs, with edits; forms and how several answers become one; calls in doubt."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hai_flow.definition.expressions.expression_error import ExpressionError
from hai_flow.definition.plan import Approval
from hai_flow.engine import events as e
from hai_flow.engine.draft import Raised
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.pendings import gates, open, unknown_outcome
from hai_flow.engine.pendings.votes import expire_votes, ids_of_voter, voters
from tests.support.people import (
    DAY,
    HOUR,
    Asked,
    Hole,
    Lit,
    approving,
    asking,
    escalate,
    failure,
    gated,
    plan_with,
    policy,
    who,
)
from tests.support.values import require

ANN, BOB, EVE, JOE = (who(name, "boss") for name in ("ann", "bob", "eve", "joe"))
ARGS = {"amount": 900, "note": "taxi", "to": {"name": "ann", "tags": ["a", "b"]}, "urgent": True, "ref": None}


def gate(*, args: Any = None, **rules: Any) -> Asked:
    handlers = rules.pop("handlers", ())
    return Asked(gated(policy(**rules), handlers=handlers), args=ARGS if args is None else args)


# --- what is approved is what runs ------------------------------------------------------------------------------------


def test_an_approved_gate_lets_the_call_begin_with_the_text_that_was_shown() -> None:
    ask = gate()
    ask.vote(ANN)
    assert (ask.status, ask.state.ready, ask.envelope["decision"]) == ("running", (ask.path,), "approve")
    assert ask.do(gates.check_gate) == ask.pending.opened.args


def test_a_question_says_only_what_it_has_of_what_is_seldom() -> None:
    assert {"confirm", "veto", "pick", "deadline"}.isdisjoint(gate(deadline=DAY).needs)


@pytest.mark.parametrize(("issuer", "ids"), [(None, ()), ("key:backend", ("key:backend",))])
def test_a_vote_counts_under_all_ids_and_the_key_that_vouched_for_it(issuer: str | None, ids: tuple[str, ...]) -> None:
    voter = msgspec.structs.replace(ANN, aliases=("user:annie",), issuer=issuer)
    assert ids_of_voter(voter) == (ANN.id, "user:annie", *ids)
    ask = gate(quorum=2, from_=("anyone",))
    ask.vote(voter)
    assert voters(ask.pending.votes) == {ANN.id, "user:annie", *ids}


def test_a_rejected_gate_raises_and_the_call_never_begins() -> None:
    ask = gate()
    ask.vote(ANN, "reject", reason="too much")
    assert ask.error == "approval.rejected"
    assert ask.path not in ask.state.ready
    assert not gates.is_approved(ask.state, ask.do(lambda draft, step: step), ask.args)


def test_a_gate_decided_by_an_option_of_the_author_is_skipped() -> None:
    ask = gate(options=("approve", "revise", "reject"), handlers=("revise",))
    ask.vote(ANN, "revise", reason="shorter")
    assert (ask.status, ask.handler, ask.envelope["decision"]) == ("skipped", "~revise", "revise")


@pytest.mark.parametrize("change", ["args", "workflow"])
def test_a_call_that_is_not_what_was_approved_is_not_performed(change: str) -> None:
    ask = gate()
    ask.vote(ANN)
    if change == "args":
        step = msgspec.structs.replace(ask.state.steps[ask.path], args='{"amount":90000}')
        ask.state = msgspec.structs.replace(ask.state, steps=ask.state.steps.set(ask.path, step))
    else:
        ask.state = msgspec.structs.replace(ask.state, sha256="00" * 32)
    with pytest.raises(Raised) as raised:
        ask.do(gates.check_gate)
    assert raised.value.code == "approval.digest"


def test_a_gate_that_nobody_has_passed_lets_nothing_begin() -> None:
    with pytest.raises(Raised) as raised:
        gate().do(gates.check_gate)
    assert raised.value.code == "approval.digest"


def test_a_decision_without_a_vote_on_record_lets_nothing_begin() -> None:
    ask = gate()
    forged = e.PendingDecided(
        at=ask.now, id=ask.id, outcome="approve", value={"decision": "approve"}, ready=(ask.path,)
    )
    ask.state = fold(ask.state, [forged])
    with pytest.raises(Raised):
        ask.do(gates.check_gate)


def test_a_run_that_migrates_keeps_its_votes_under_a_new_digest() -> None:
    ask = gate(quorum=2)
    ask.vote(ANN)
    ask.state = msgspec.structs.replace(ask.state, sha256="22" * 32)
    before = ask.pending.opened.digest
    ask.do(lambda draft, step: open.restamp(draft, ask.pending))
    assert ask.pending.opened.digest != before
    ask.vote(BOB)
    assert ask.do(gates.check_gate) == ask.pending.opened.args


def test_when_decides_by_the_arguments_whether_anybody_is_asked() -> None:
    ask = gate()
    small = Approval(policy(), when=Hole("args", lambda args: args["amount"] >= 1000))
    large = Approval(policy(), when=Hole("args", lambda args: args["amount"] >= 500))
    text = ask.args
    assert not ask.do(lambda draft, step: gates.is_gate_needed(draft, step, small, text))
    assert ask.do(lambda draft, step: gates.is_gate_needed(draft, step, large, text))
    assert ask.do(lambda draft, step: gates.is_gate_needed(draft, step, Approval(policy()), text))


@pytest.mark.parametrize("wrong", ["true", 1, None])
def test_an_error_in_when_never_skips_the_gate(wrong: Any) -> None:
    ask = gate()
    with pytest.raises(Raised) as raised:
        ask.do(lambda draft, step: gates.is_gate_needed(draft, step, Approval(policy(), when=Lit(wrong)), "{}"))
    assert raised.value.code == "expression.error"


def test_title_from_and_form_of_a_gate_see_the_arguments() -> None:
    form = Hole("args", lambda args: {"type": "object", "properties": {"n": {"enum": args["to"]["tags"]}}})
    rules = policy(Hole("args", lambda args: [f"user:{args['to']['name']}"]), form=form)
    verb = gated(rules).steps["loop[]/gate"].verb
    shown = Approval(rules, title=Hole("args", lambda args: f"Pay {args['amount']}?"), message=Lit("Really?"))
    ask = Asked(plan_with(verb, approval=shown), args=ARGS)
    assert (ask.pending.opened.title, ask.pending.opened.message) == ("Pay 900?", "Really?")
    assert ask.refusal(who("ann"), values={"n": "c"}).status == 422
    ask.vote(who("ann"), values={"n": "b"})
    assert ask.envelope["values"] == {"n": "b"}


# --- edits ------------------------------------------------------------------------------------------------------------


def test_an_edit_replaces_whole_arguments_and_the_call_begins_with_them() -> None:
    ask = gate(edit=("amount", "note"))
    before, digest = ask.args, ask.pending.opened.digest
    ask.vote(ANN, edits={"amount": 500})
    assert ask.do(gates.check_gate) == before.replace("900", "500")
    assert ask.state.steps[ask.path].args == before.replace("900", "500")
    assert ask.envelope["edits"] == {"amount": 500}
    assert ask.envelope["votes"][0]["digest"] == ask.pending.opened.digest != digest


def test_after_an_edit_earlier_approvals_stay_on_record_but_do_not_count() -> None:
    ask = gate(edit=True, quorum=2)
    ask.vote(ANN)
    ask.vote(BOB, edits={"amount": 500})
    assert ask.is_open
    assert [vote["counts"] for vote in ask.needs["votes"]] == [False, True]
    assert ask.refusal(ANN, reason="that too").code == "vote_final"
    ask.vote(EVE)
    assert [vote["counts"] for vote in ask.envelope["votes"]] == [False, True, True]


def test_an_edit_voids_the_votes_that_counted_until_then() -> None:
    ask = gate(edit=("amount", "/to/name"), quorum=3)
    voided = []
    for voter, edits in ((ANN, None), (BOB, {"amount": 500}), (EVE, {"/to/name": "bob"}), (JOE, None)):
        before = ask.pending
        ask.vote(voter, edits=edits)
        voided.append([vote["by"] for vote in expire_votes(before, ask.pending)])
    assert voided == [[], [ANN.id], [BOB.id], []]


def test_a_second_approver_is_needed_where_the_editor_is_excluded() -> None:
    ask = gate(edit=True, exclude=["requester", "editor"])
    ask.vote(ANN, edits={"amount": 500})
    assert ask.is_open
    ask.vote(BOB)
    assert [vote["counts"] for vote in ask.envelope["votes"]] == [False, True]


def test_who_edits_nothing_is_no_editor() -> None:
    ask = gate(edit=True, exclude=["editor"])
    ask.vote(ANN, edits={"amount": 900})
    assert (ask.envelope["edits"], ask.of(e.PendingEdited)) == (None, [])


def test_edits_of_several_people_add_up() -> None:
    ask = gate(edit=("amount", "/to/name"), quorum=3)
    ask.vote(ANN, edits={"amount": 500})
    ask.vote(BOB, edits={"/to/name": "bob"})
    ask.vote(EVE)
    ask.vote(JOE)
    assert ask.envelope["edits"] == {"amount": 500, "/to/name": "bob"}
    assert '"amount":500' in ask.do(gates.check_gate)


def test_a_vote_on_the_arguments_before_the_edit_is_refused() -> None:
    ask = gate(edit=True, quorum=2)
    before = ask.pending.opened.digest
    ask.vote(ANN, edits={"amount": 500})
    assert ask.refusal(BOB, digest=before).code == "answer.digest"


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ({"note": "bus"}, "may not be edited"),
        ({"/to": {}}, "may not be edited"),
        ({"amount": "500"}, "expected number as before, found string"),
        ({"amount": True}, "expected number as before, found boolean"),
        ({"amount": None}, "expected number as before, found null"),
        ({"urgent": 1}, "expected boolean"),
        ({"ref": "x"}, "expected null"),
        ({"price": 1}, "there is no argument /price"),
        ({"/to/name": 1}, "expected string"),
        ({"/to/tags/5": "x"}, "there is no argument"),
        ({"/to/tags/01": "x"}, "there is no argument"),
        ({"/to/tags/\u00b2": "x"}, "there is no argument"),
        ({f"/to/tags/{'9' * 5_000}": "x"}, "there is no argument"),
        ({"amount": 1, "/amount": 2}, "expected each edit once"),
        ({"/to/name": "bob", "/to/tags/5": "x", "urgent": False, "/urgent": True}, "expected each edit once"),
        ([1], "expected the edits as an object"),
        ("amount", "expected the edits as an object"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_an_unfit_edit_is_refused_and_the_question_stays_open(edits: Any, why: str) -> None:
    tags = ("/to/tags/5", "/to/tags/01", "/to/tags/\u00b2", f"/to/tags/{'9' * 5_000}")
    allowed = ("amount", "urgent", "ref", "price", "/to/name", *tags)
    refusal = gate(edit=allowed).refusal(ANN, edits=edits)
    assert (refusal.status, refusal.code) == (422, "answer.invalid")
    assert why in refusal.detail


@pytest.mark.parametrize("inner", ["/to/name", "/to/tags/1"])
def test_an_edit_of_a_part_beside_an_edit_of_the_whole_is_refused(inner: str) -> None:
    whole = {"name": "bob", "tags": []}
    for edits in ({inner: "c", "/to": whole}, {"to": whole, inner: "c"}):
        refusal = gate(edit=True).refusal(ANN, edits=edits)
        assert (refusal.code, f"{inner} is a part of /to" in refusal.detail) == ("answer.invalid", True)
    ask = gate(edit=True)
    ask.vote(ANN, edits={inner: "c", "/to/tags/0": "b"})
    assert ask.envelope["edits"] == {inner: "c", "/to/tags/0": "b"}


def test_a_deeper_edit_is_a_pointer_and_the_name_of_an_argument_is_one_too() -> None:
    ask = gate(edit=("/to/tags/1", "/amount"))
    ask.vote(ANN, edits={"/to/tags/1": "c", "amount": 1.5})
    assert ask.envelope["edits"] == {"/to/tags/1": "c", "amount": 1.5}
    assert '"tags":["a","c"]' in ask.do(gates.check_gate)


def test_without_edit_nothing_can_be_edited_and_a_rejection_edits_nothing() -> None:
    assert gate().refusal(ANN, edits={"amount": 1}).status == 422
    assert gate(edit=True).refusal(ANN, "reject", edits={"amount": 1}).status == 422


def test_an_edit_may_come_as_the_content_of_a_tool_message() -> None:
    ask = gate(edit=True)
    ask.answer(ANN, content='{"decision": "approve", "edits": {"amount": 1}}')
    assert ask.envelope["edits"] == {"amount": 1}


def test_an_edit_renders_the_title_and_the_message_of_the_new_arguments() -> None:
    title, message = Hole("args", lambda args: f"Pay {args['amount']}?"), Hole("args", lambda args: args["note"])
    ask = Asked(gated(policy(edit=True, quorum=2), title=title, message=message), args=ARGS)
    before = ask.pending.opened
    ask.vote(ANN, edits={"amount": 500})
    assert (ask.pending.opened.title, ask.pending.opened.message) == ("Pay 500?", "taxi")
    assert ask.pending.opened.digest != before.digest
    ask.vote(BOB)
    assert ask.do(gates.check_gate) == ask.pending.opened.args, "what was approved is what runs"


def test_a_gate_is_named_by_its_call_where_its_title_cannot_show_an_edit() -> None:
    def title(args: Any) -> str:
        if "name" not in args["to"]:
            raise ExpressionError("expression.error", "no such key: name")
        return f"Pay {args['to']['name']}?"

    ask = Asked(gated(policy(edit=True, quorum=2), title=Hole("args", title), message=Lit("Look.")), args=ARGS)
    assert ask.pending.opened.title == "Pay ann?"
    ask.vote(ANN, edits={"to": {}})
    assert (ask.pending.opened.title, ask.pending.opened.message) == ("shop.refund?", "Look.")


def test_an_edit_can_be_escalated_and_stays_what_is_asked() -> None:
    ask = gate(edit=True, quorum=2, escalations=(escalate(DAY, from_=["role:boss", "role:cfo"]),))
    ask.vote(ANN, edits={"amount": 500})
    ask.advance(HOUR)
    ask.vote(who("carl", "cfo"))
    assert '"amount":500' in ask.do(gates.check_gate)


# --- forms and how several become one ---------------------------------------------------------------------------------

FORM = {
    "type": "object",
    "required": ["n"],
    "properties": {"n": {"type": "integer"}, "ok": {"type": "boolean"}, "who": {"type": "string", "default": "nobody"}},
}


def voted(combine: dict[str, str], *given: dict[str, Any]) -> Any:
    ask = Asked(approving(policy(form=FORM, combine=combine, quorum=len(given))))
    for voter, values in zip((ANN, BOB, EVE), given, strict=False):
        ask.vote(voter, values=values)
    return ask.envelope["values"]


@pytest.mark.parametrize(("rule", "combined"), [("min", 1), ("max", 3), ("first", 3), ("last", 2), ("list", [3, 1, 2])])
def test_numbers_of_several_approvals_become_one(rule: str, combined: Any) -> None:
    assert voted({"n": rule}, {"n": 3}, {"n": 1}, {"n": 2}) == {"n": combined, "who": "nobody"}


@pytest.mark.parametrize(("rule", "combined"), [("any", True), ("all", False)])
def test_booleans_of_several_approvals_become_one(rule: str, combined: bool) -> None:
    values = voted({"ok": rule}, {"n": 1, "ok": True}, {"n": 1, "ok": False})
    assert values["ok"] is combined


def test_unless_it_is_said_otherwise_everybody_must_give_the_same() -> None:
    ask = Asked(approving(policy(form=FORM, quorum=2)))
    ask.vote(ANN, values={"n": 1})
    refusal = ask.refusal(BOB, values={"n": 2})
    assert (refusal.status, refusal.code) == (422, "answer.invalid")
    assert "n must be the same in every approval; 1 stands" in refusal.detail
    ask.vote(BOB, values={"n": 1})
    assert ask.envelope["values"] == {"n": 1, "who": "nobody"}


def test_what_stands_also_binds_approvals_that_do_not_count_at_this_stage() -> None:
    stages = (escalate(HOUR, from_=["role:cfo"]), escalate(HOUR, from_=["role:boss", "role:cfo"]))
    ask = Asked(approving(policy(form=FORM, quorum=2, escalations=stages)))
    ask.vote(ANN, values={"n": 1})
    ask.advance(HOUR)
    assert ask.refusal(who("carl", "cfo"), values={"n": 2}).status == 422
    ask.vote(who("carl", "cfo"), values={"n": 1})
    ask.advance(HOUR)
    assert ask.envelope["decision"] == "approve"


def test_an_edit_begins_the_values_anew() -> None:
    ask = Asked(gated(policy(form=FORM, quorum=2, edit=True)), args=ARGS)
    ask.vote(ANN, values={"n": 1})
    ask.vote(BOB, values={"n": 2}, edits={"amount": 1})
    ask.vote(EVE, values={"n": 2})
    assert ask.envelope["values"]["n"] == 2


def test_a_rejection_shows_its_own_values_and_none_of_the_approvals() -> None:
    ask = Asked(approving(policy(form=FORM, quorum=2)))
    ask.vote(ANN, values={"n": 1, "m": 3})
    ask.vote(BOB, "reject", values={"n": 2})
    assert ask.envelope["values"] == {"n": 2}


def test_the_values_of_a_rejection_bind_no_approval() -> None:
    ask = Asked(approving(policy(form=FORM, quorum=1, reject_when=2)))
    ask.vote(ANN, "reject", values={"n": 1})
    ask.vote(BOB, values={"n": 2})
    assert ask.envelope["values"]["n"] == 2


@pytest.mark.parametrize("kind", [approving, asking, gated])
def test_a_form_whose_holes_make_it_no_schema_fails_the_step(kind: Any) -> None:
    broken = Hole("state", lambda state: {"type": "object", "properties": {"n": {"type": "whole"}}})
    assert failure(kind(policy(("anyone",), form=broken))).code == "expression.error"


def test_an_error_in_a_hole_of_the_policy_fails_the_step() -> None:
    def absent(state: Any) -> Any:
        raise ExpressionError("expression.absent", "state.boss is absent")

    assert failure(approving(policy(Hole("state", absent)))).code == "expression.absent"


# --- calls in doubt ---------------------------------------------------------------------------------------------------

OPERATOR = who("op", "operator")


def doubted() -> Asked:
    plan = gated(policy())
    step = msgspec.structs.replace(plan.steps["loop[]/gate"], approval=None, delivery="at_most_once")
    plan.steps["loop[]/gate"] = step  # type: ignore[index]
    ask = Asked(plan, args={"n": 1})
    ask.do(unknown_outcome.open_doubt)
    return ask


def test_a_call_in_doubt_is_settled_by_an_operator_and_nobody_else() -> None:
    ask = doubted()
    assert (ask.pending.opened.kind, dict(ask.state.attempts), ask.status) == ("doubt", {}, "waiting")
    assert ask.refusal(ANN, "again").status == 403
    assert ask.can(who("local"))
    assert ask.pending.opened.deadline is None
    assert not ask.state.timers


@pytest.mark.parametrize("result", [{"id": "B1"}, None, 0])
def test_it_happened_finishes_the_step_with_the_result(result: Any) -> None:
    ask = doubted()
    ask.vote(OPERATOR, "happened", result=result)
    assert (ask.status, ask.state.steps[ask.path].output) == ("finished", result)


def test_again_makes_another_attempt_ready() -> None:
    ask = doubted()
    ask.vote(OPERATOR, "again")
    assert (ask.status, ask.state.ready, ask.state.steps[ask.path].attempt) == ("running", (ask.path,), 1)


def test_fail_raises_that_the_call_is_in_doubt() -> None:
    ask = doubted()
    ask.vote(OPERATOR, "fail", reason="the bank says no")
    assert ask.error == "step.in_doubt"
    assert "the bank says no" in require(ask.state.steps[ask.path].error).message


@pytest.mark.parametrize(
    "given", [{"decision": "happened"}, {"decision": "approve"}, {}, {"content": "true"}, {"content": "{}"}], ids=str
)
def test_anything_else_leaves_the_doubt_open(given: dict[str, Any]) -> None:
    ask = doubted()
    assert ask.refusal(OPERATOR, given.pop("decision", None), **given).status == 422


def test_a_late_result_of_the_very_attempt_settles_the_doubt() -> None:
    ask = doubted()
    assert unknown_outcome.find_doubt(ask.state, ask.path, 2) is None
    found = require(unknown_outcome.find_doubt(ask.state, ask.path, 1))
    ask.do(lambda draft, step: unknown_outcome.resolve_doubt(draft, found))
    assert ask.refusal(OPERATOR, "again").status == 409


def test_a_rejection_of_what_was_edited_since_still_counts() -> None:
    ask = Asked(gated(policy(edit=True, quorum=3, reject_when=2)), args={"n": 1})
    ask.vote(who("ann", "boss"), "reject")
    ask.vote(who("bob", "boss"), edits={"n": 2})
    assert ask.is_open
    ask.vote(who("eve", "boss"), "reject")
    assert ask.pending.status == "reject"
