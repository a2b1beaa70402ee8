"""How answers are read, and what the second one gets to hear. docs/language.md#people."""

from __future__ import annotations

from typing import Any

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.ids import pending_id, run_of_pending
from hai_flow.errors import Rejected
from tests.support.runs import DAY, HOUR, RUN, Play

APPROVE = "steps: [{id: gate, approve: {title: Go?, from: anyone, deadline: 1h}}]"
APPROVE_FORM = """
steps:
  - id: gate
    approve:
      title: Go?
      from: anyone
      form: {type: object, required: [n], properties: {n: {type: integer}, m: {type: integer, default: 2}}}
"""
ASK = """
steps:
  - id: q
    ask:
      title: How many?
      form: {type: object, required: [n], properties: {n: {type: integer}, m: {type: integer, default: 2}}}
"""
TWO = """
steps:
  - id: p
    parallel:
      x: [{id: one, approve: {title: One?, from: anyone}}]
      y: [{id: two, ask: {title: Two?, form: {type: object, properties: {n: {type: integer}}}}}]
"""


def picking(result: str | None = None) -> Play:
    declared = "" if result is None else f", result: {result}"
    frontend = "{description: Pick., parameters: {type: object, properties: {n: {type: integer}}}" + declared + "}"
    return Play(
        f"tools: {{pick: {{frontend: {frontend}}}}}\n"
        "steps: [{id: q, call: pick, with: {n: 1}}]\noutput: ${{ steps.q.output }}"
    )


def refusal_of(play: Play, path: str, **fields: Any) -> Rejected:
    before = play.state
    with pytest.raises(Rejected) as refusal:
        play.answer(path, **fields)
    assert play.state is before
    return refusal.value


APPROVALS: list[dict[str, Any]] = [
    {"content": "true"}, {"content": '"true"'}, {"content": '{"approved": true}'}, {"content": '{"approved": "true"}'},
    {"result": True}, {"result": "true"}, {"result": {"approved": True}}, {"decision": "approve"},
    {"content": '{"decision": "approve", "reason": "fine"}'}, {"result": {"approved": True, "reason": "fine"}},
    {"content": "confirmed"}, {"content": '"Confirmed"'}, {"content": "APPROVED"}, {"content": "yes\n"},
    {"result": "Yes"},
]  # fmt: skip
REJECTIONS: list[dict[str, Any]] = [
    {"content": "false"}, {"content": '"false"'}, {"content": '{"approved": false}'}, {"result": False},
    {"result": {"approved": "false"}}, {"decision": "reject", "reason": "no"}, {"content": '{"status": "cancelled"}'},
    {"content": "rejected"}, {"content": '"Denied"'}, {"content": "cancelled"}, {"content": "CANCELED"},
    {"content": "no"},
]  # fmt: skip
NEITHER: list[dict[str, Any]] = [
    {"content": "yes?"}, {"content": "ok"}, {"content": "not confirmed"}, {"content": '["yes"]'},
    {"content": "1"}, {"content": '{"approved": 1}'}, {"content": '{"approved": null}'},
    {"content": ""}, {"content": "null"}, {"content": "[true]"}, {"content": '{"decision": "maybe"}'},
    {"content": '{"decision": ["approve"]}'}, {"content": '{"approved": true, "as": "admin"}'},
    {"content": '{"approved": true, "reason": 7}'}, {"decision": "approve", "values": {"n": 1}}, {"values": {}},
    {"decision": "approve", "reason": "a\x00b"}, {"error": "no"}, {"result": 0}, {"result": 1.0}, {},
    {"content": '{"decision": "confirmed"}'}, {"content": '{"approved": "yes"}'},
    {"result": {"approved": True}, "edits": {"n": 1}}, {"result": True, "reason": "but only 1"},
    {"result": {"approved": True}, "values": {"n": 1}}, {"decision": "approve", "result": {"decision": "reject"}},
    {"content": "yes", "result": False}, {"content": "yes", "decision": "reject"}, {"decision": "approve", "result": 7},
]  # fmt: skip


@pytest.mark.parametrize("spelled", APPROVALS, ids=str)
def test_these_approve(spelled: dict[str, Any]) -> None:
    play = Play(APPROVE)
    play.answer("gate", **spelled)
    assert (play.status, play.state.steps["gate"].approval["decision"]) == ("finished", "approve")


@pytest.mark.parametrize("spelled", REJECTIONS, ids=str)
def test_these_reject(spelled: dict[str, Any]) -> None:
    play = Play(APPROVE)
    play.answer("gate", **spelled)
    assert (play.status, play.error.code) == ("failed", "approval.rejected")


@pytest.mark.parametrize("spelled", NEITHER, ids=repr)
def test_anything_else_is_refused_and_the_question_is_still_open(spelled: dict[str, Any]) -> None:
    play = Play(APPROVE)
    refusal = refusal_of(play, "gate", **spelled)
    assert (refusal.status, refusal.code) == (422, "answer.invalid")
    assert play.asking == {"gate"}


@pytest.mark.parametrize("word", ["confirmed", "no"])
def test_an_authors_option_is_no_spelling_of_another_answer(word: str) -> None:
    play = Play(
        f"steps: [{{id: gate, approve: {{title: Go?, from: anyone, options: [approve, {word}, reject]}}, "
        f"on_decision: {{{word}: [{{return: 1}}]}}}}]"
    )
    assert refusal_of(play, "gate", content=word).status == 422
    play.answer("gate", decision=word)
    assert play.state.steps["gate"].approval["decision"] == word


@pytest.mark.parametrize(
    ("source", "path", "content"),
    [
        (APPROVE_FORM, "gate", '{"decision": "approve", "values": {"n": 1}, "values": {"n": 2}}'),
        (APPROVE_FORM, "gate", '{"decision": "approve", "values": {"n": 1, "n": 2}}'),
        (APPROVE, "gate", '{"approved": false, "approved": true}'),
        (ASK, "q", '{"n": 1, "n": 2}'),
        (ASK, "q", '{"values": {"n": 1, "\\u006e": 2}}'),
    ],
)
def test_an_answer_in_which_a_key_stands_twice_is_refused(source: str, path: str, content: str) -> None:
    refusal = refusal_of(Play(source), path, content=content)
    assert (refusal.code, "stands twice in one object" in refusal.detail) == ("answer.invalid", True)


def test_the_envelope_tells_who_decided_what_and_when() -> None:
    play = Play(APPROVE_FORM)
    play.answer("gate", by="user:bob", decision="approve", reason="fine", values={"n": 1})
    opened = play.of(e.PendingOpened)[0]
    assert play.state.steps["gate"].output == {
        "decision": "approve", "reason": "fine", "values": {"n": 1, "m": 2}, "edits": None, "expired": False,
        "escalations": [],
        "votes": [{
            "by": "user:bob", "on_behalf_of": None, "roles": [], "decision": "approve", "reason": "fine",
            "values": {"n": 1, "m": 2}, "at": "2026-03-02T12:00:00.000Z", "via": "rest", "digest": opened.digest,
            "counts": True,
        }],
    }  # fmt: skip


@pytest.mark.parametrize("values", [{}, {"n": "1"}, [], "", 0, False], ids=repr)
def test_the_values_of_an_approval_must_fit_its_form(values: Any) -> None:
    play = Play(APPROVE_FORM)
    assert refusal_of(play, "gate", decision="approve", values=values).code == "answer.invalid"


REVISE = """
steps:
  - id: gate
    approve:
      title: Go?
      from: anyone
      options: [approve, revise, reject]
      reasons: {revise: required}
      form: {type: object, required: [n], properties: {n: {type: integer}, note: {type: string}}}
    on_decision:
      revise: [{return: "${{ steps.gate.approval.values }}"}]
"""


@pytest.mark.parametrize("decision", ["revise", "reject"])
def test_every_option_keeps_its_values_and_needs_not_all_of_the_form(decision: str) -> None:
    play = Play(REVISE)
    play.answer("gate", decision=decision, reason="shorter", values={"note": "page 2"})
    envelope = play.state.steps["gate"].approval
    assert envelope["values"] == envelope["votes"][0]["values"] == {"note": "page 2"}


def test_without_values_an_option_has_none() -> None:
    play = Play(REVISE)
    play.answer("gate", decision="revise", reason="shorter")
    assert play.state.steps["gate"].approval["values"] is None
    assert play.state.output is None


@pytest.mark.parametrize("decision", ["revise", "reject"])
def test_what_another_option_fills_in_must_fit_the_form(decision: str) -> None:
    play = Play(REVISE)
    assert refusal_of(play, "gate", decision=decision, reason="x", values={"n": "wrong"}).code == "answer.invalid"
    assert refusal_of(play, "gate", decision=decision, reason="x", values=7).code == "answer.invalid"


@pytest.mark.parametrize("reason", [None, "", "  "])
def test_an_option_that_needs_a_reason_is_refused_without_one(reason: str | None) -> None:
    play = Play(REVISE)
    assert "say why" in str(refusal_of(play, "gate", decision="revise", reason=reason))
    assert refusal_of(play, "gate", content='{"decision": "revise"}').status == 422
    play.answer("gate", decision="reject")  # which needs none


def test_a_rejection_by_no_needs_its_reason_too() -> None:
    play = Play("steps: [{id: gate, approve: {title: Go?, from: anyone, reasons: {reject: required}}}]")
    assert "say why" in str(refusal_of(play, "gate", content="false"))
    play.answer("gate", content='{"approved": false, "reason": "too dear"}')
    assert play.state.steps["gate"].output["reason"] == "too dear"


@pytest.mark.parametrize(
    "spelled", [{"values": {"n": 1}}, {"content": '{"n": 1}'}, {"content": '{"values": {"n": 1}}'}], ids=str
)
def test_a_form_is_filled_in_with_its_defaults(spelled: dict[str, Any]) -> None:
    play = Play(ASK)
    play.answer("q", **spelled)
    assert play.state.steps["q"].output == {"n": 1, "m": 2}


@pytest.mark.parametrize(
    "spelled", [{"values": {}}, {"values": {"n": 1.5}}, {"content": "1"}, {"content": "n: 1"}, {"decision": "approve"}],
    ids=str,
)  # fmt: skip
def test_a_form_that_does_not_fit_is_refused(spelled: dict[str, Any]) -> None:
    assert refusal_of(Play(ASK), "q", **spelled).status == 422


@pytest.mark.parametrize(
    ("declared", "spelled", "output"),
    [
        (None, {"content": "true"}, "true"),
        (None, {"content": '{"n": 1}'}, '{"n": 1}'),
        (None, {"result": {"n": 1}}, {"n": 1}),
        ("{type: boolean}", {"content": "true"}, True),
        ("{type: integer}", {"content": "4"}, 4),
        ("{type: string}", {"content": "confirmed"}, "confirmed"),
        ("{type: string}", {"content": "4"}, "4"),
        ("{type: string}", {"content": '"quoted"'}, "quoted"),
        ("{type: [boolean, string, object]}", {"content": "confirmed"}, "confirmed"),
        ("{type: [boolean, string, object]}", {"content": '{"approved": true}'}, {"approved": True}),
        ("{type: array, items: {type: string}}", {"content": '["a"]'}, ["a"]),
        ("{type: integer}", {"content": "1234567890123456789"}, "1234567890123456789"),
        ("{type: integer}", {"result": 1234567890123456789}, "1234567890123456789"),
        ("{type: [integer, string]}", {"content": "1234567890123456789"}, "1234567890123456789"),
        ("{type: object}", {"content": '\ufeff{"id": 1234567890123456789}'}, {"id": "1234567890123456789"}),
        ("{type: object}", {"content": '{"n": 1e400}'}, {"n": "1e400"}),
        (None, {"result": float("nan")}, "NaN"),
    ],
)
def test_a_frontend_result_is_read_by_its_schema(declared: str | None, spelled: dict[str, Any], output: Any) -> None:
    play = picking(declared)
    play.answer("q", **spelled)
    assert (play.status, play.output) == ("finished", output)
    assert play.of(e.ToolCallResolved)[0].error is None


@pytest.mark.parametrize(
    ("declared", "spelled"),
    [
        ("{type: boolean}", {"content": "confirmed"}),
        ("{type: integer}", {"content": "4.5"}),
        ("{type: integer}", {"result": "4"}),
        ("{type: integer}", {}),
        (None, {"decision": "approve"}),
        (None, {"content": "a\x00b"}),
        (None, {"error": "a\x00b"}),
        ("{type: integer}", {"result": float("nan")}),
    ],
)
def test_a_frontend_result_that_does_not_fit_is_refused(declared: str | None, spelled: dict[str, Any]) -> None:
    assert refusal_of(picking(declared), "q", **spelled).status == 422


def test_an_error_that_the_frontend_reports_fails_the_call() -> None:
    play = picking()
    play.answer("q", error="the user left")
    assert (play.error.code, play.of(e.ToolCallResolved)[0].error) == ("tool.declined", "tool.declined")


def test_arguments_unfit_for_a_frontend_tool_fail_the_step_unasked() -> None:
    play = Play(
        """
        input: {type: object, properties: {n: {}}}
        tools: {pick: {frontend: {description: P, parameters: {type: object, properties: {n: {type: integer}}}}}}
        steps: [{id: q, call: pick, with: {n: "${{ input.n }}"}}]
        """,
        input={"n": "x"},
    )
    assert (play.error.code, play.of(e.PendingOpened)) == ("tool.invalid_arguments", [])


SHOW = """
tools: {show: {frontend: {description: S, parameters: {type: object, properties: {n: {type: integer}}}, answer: none}}}
"""


def test_a_call_only_for_display_is_followed_at_once_by_the_next_step() -> None:
    play = Play(SHOW + "steps: [{id: q, call: show, with: {n: 1}}]\noutput: ${{ steps.q.output }}")
    assert (play.status, play.output, play.of(e.PendingOpened)) == ("finished", None, [])
    (call,) = play.state.tool_calls.values()
    assert (call.name, call.args, call.executor, call.open, call.result) == (
        "show",
        '{"n":1}',
        "frontend",
        False,
        "shown",
    )


def test_what_is_shown_in_every_round_is_a_call_of_its_own() -> None:
    play = Play(SHOW + "steps: [{repeat: {max: 3, steps: [{id: q, call: show, with: {n: '${{ index }}'}}]}}]")
    calls = sorted(play.state.tool_calls.values(), key=lambda call: call.n)
    assert [call.args for call in calls] == ['{"n":0}', '{"n":1}', '{"n":2}']


def test_a_call_is_shown_while_a_run_cleans_up() -> None:
    play = Play(SHOW + "steps: [{fail: Broken, id: x}]\nfinally: [{call: show, with: {n: 1}}]")
    assert (play.status, len(play.state.tool_calls)) == ("failed", 1)


def test_arguments_that_do_not_fit_a_tool_that_is_only_shown_fail_the_step() -> None:
    play = Play(
        "input: {type: object, properties: {n: {}}}"
        + SHOW
        + 'steps: [{id: q, call: show, with: {n: "${{ input.n }}"}}]',
        input={"n": "x"},
    )
    assert (play.error.code, len(play.state.tool_calls)) == ("tool.invalid_arguments", 0)


def test_the_same_answer_again_is_already_so_also_in_another_spelling() -> None:
    play = Play(APPROVE)
    play.answer("gate", by="user:bob", content="true")
    again = play.answer("gate", by="user:eve", decision="approve")
    assert again.already
    assert again.outcome["answers"] == [
        {"id": play.pending("gate"), "outcome": "approve", "status": "already", "by": "user:bob"}
    ]


@pytest.mark.parametrize("other", [{"content": "false"}, {"decision": "approve", "reason": "x"}, {"content": "what?"}])
def test_another_answer_later_is_refused_with_the_winner(other: dict[str, Any]) -> None:
    play = Play(APPROVE)
    play.answer("gate", by="user:bob", content="true")
    refusal = refusal_of(play, "gate", by="user:eve", **other)
    assert (refusal.status, refusal.code) == (409, "pending_decided")
    assert (refusal.winner["by"], refusal.winner["outcome"]) == ("user:bob", "approve")
    assert refusal.winner["at"] == "2026-03-02T12:00:00.000Z"


def test_an_answer_after_the_deadline_is_gone() -> None:
    play = Play(APPROVE)
    play.advance(HOUR)
    refusal = refusal_of(play, "gate", content="true")
    assert (refusal.status, refusal.code, refusal.winner["outcome"]) == (410, "pending_expired", "expired")


def test_an_answer_in_the_last_moment_still_counts() -> None:
    play = Play(APPROVE)
    assert play.advance(HOUR - 1) is None
    play.answer("gate", content="true")
    assert play.status == "finished"


def test_an_answer_to_nothing_is_unknown() -> None:
    play = Play(APPROVE)
    strange = c.PendingAnswer(id=pending_id(str(RUN), "gate", 1), content="true")
    with pytest.raises(Rejected) as refusal:
        play.do(c.Answer(answers=(strange,), by=c.Principal("user:eve")))
    assert (refusal.value.status, refusal.value.code) == (404, "pending_unknown")


def test_several_answers_of_one_command_are_decided_together() -> None:
    play = Play(TWO)
    decision = play.answer_all({"p/x/one": {"content": "true"}, "p/y/two": {"values": {"n": 1}}})
    assert play.status == "finished"
    assert [answer["status"] for answer in decision.outcome["answers"]] == ["accepted", "accepted"]


def test_one_bad_answer_among_several_refuses_all() -> None:
    play = Play(TWO)
    with pytest.raises(Rejected):
        play.answer_all({"p/x/one": {"content": "true"}, "p/y/two": {"values": {"n": "x"}}})
    assert play.asking == {"p/x/one", "p/y/two"}


def test_all_faults_of_several_answers_are_told_at_once() -> None:
    play = Play(TWO)
    with pytest.raises(Rejected) as refusal:
        play.answer_all({"p/x/one": {"content": "perhaps"}, "p/y/two": {"values": {"n": "x"}}})
    assert play.pending("p/x/one") in refusal.value.detail
    assert play.pending("p/y/two") in refusal.value.detail


def test_new_and_repeated_answers_of_one_command_are_told_apart() -> None:
    play = Play(TWO)
    play.answer("p/x/one", content="true")
    decision = play.answer_all({"p/x/one": {"content": "true"}, "p/y/two": {"values": {"n": 1}}})
    assert [answer["status"] for answer in decision.outcome["answers"]] == ["already", "accepted"]


def test_one_pending_answered_two_ways_in_one_command_is_refused() -> None:
    play = Play(APPROVE)
    id = play.pending("gate")
    both = (c.PendingAnswer(id=id, content="true"), c.PendingAnswer(id=id, content="false"))
    with pytest.raises(Rejected) as refusal:
        play.do(c.Answer(answers=both, by=c.Principal("user:ann")))
    assert refusal.value.status == 422
    play.do(c.Answer(answers=(both[0], both[0]), by=c.Principal("user:ann")))
    assert len(play.of(e.VoteCast)) == 1


def test_an_answer_that_lost_a_race_within_one_command_is_refused_so() -> None:
    play = Play(TWO.replace("parallel:", "join: any\n    parallel:"))
    decision = play.answer_all({"p/x/one": {"content": "true"}, "p/y/two": {"values": {"n": 1}}})
    assert [answer["status"] for answer in decision.outcome["answers"]] == ["accepted", "voided"]
    assert (play.status, play.state.steps["p"].output) == ("finished", {"winner": "x"})


def test_a_message_that_comes_with_an_answer_is_kept_and_warned_about() -> None:
    play = Play(APPROVE)
    message = e.UserMessage("m-9", "user", "and hurry")
    answer = c.PendingAnswer(id=play.pending("gate"), content="true")
    play.do(c.Answer(answers=(answer,), by=c.Principal("user:bob"), messages=(message,)))
    assert play.state.messages["m-9"].content == "and hurry"
    assert [event.code for event in play.of(e.WarningRaised)] == ["message_with_answer"]


def test_on_deadline_reject_runs_the_reject_list_and_raises_a_rejection() -> None:
    play = Play("steps: [{id: gate, approve: {title: Go?, from: anyone, deadline: 1h}, on_reject: [{say: late}]}]")
    play.advance(HOUR)
    assert (play.said, play.error.code) == (["late"], "approval.rejected")
    assert play.state.steps["gate"].output["expired"] is True


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ("approve: {title: Go?, from: anyone, on_deadline: fail}", "approval.expired"),
        ("ask: {title: Go?, form: {type: object}}", "ask.expired"),
        ("call: pick", "tool.expired"),
    ],
)
def test_an_expired_question_raises_its_own_code_after_seven_days(step: str, code: str) -> None:
    play = Play(f"steps: [{{id: q, {step}}}]")
    assert play.advance(7 * DAY - 1) is None
    play.advance(1)
    assert (play.status, play.error.code) == ("failed", code)


def test_a_pending_names_its_run_and_its_digest_binds_run_and_content() -> None:
    play, other = Play(APPROVE), Play(APPROVE, run_id=RUN.__class__(int=RUN.int + 1))
    assert run_of_pending(play.pending("gate")) == RUN
    assert play.pending("gate") != other.pending("gate")
    assert play.of(e.PendingOpened)[0].digest != other.of(e.PendingOpened)[0].digest
    assert Play(APPROVE).of(e.PendingOpened) == play.of(e.PendingOpened)


@pytest.mark.parametrize("id", ["", "call_x_y", "call__", "msg_1", "call_" + "1" * 26 + "_a", "a_b_c_d", "call_ä_1"])
def test_an_id_of_another_form_names_no_run(id: str) -> None:
    assert run_of_pending(id) is None
