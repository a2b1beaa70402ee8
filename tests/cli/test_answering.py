"""What is said about questions: who may answer, what to type, and what was decided."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

import httpx2
import pytest

from hai_flow.cli.client.eligible import as_whom, may_answer, principal
from hai_flow.cli.client.questions import answer_example, explain_sample, format_other_options
from hai_flow.cli.decisions import approval
from hai_flow.cli.terminal import program
from tests.cli.test_standing import typed as _invoke
from tests.support.server import YAML, serving

LOCAL, ANN, CONTROLLER = "user:local", "user:ann", "user:ann,role:controller"


def asking(*selectors: str, **policy: Any) -> dict[str, Any]:
    return {
        "id": "call_x",
        "kind": "approve",
        "options": ["approve", "reject"],
        "policy": {"from": selectors, **policy},
    }


@pytest.mark.parametrize(
    ("pending", "whom"),
    [
        (asking("requester"), None),
        (asking("anyone", asks_requester=False), None),
        (asking("role:controller", asks_requester=False), CONTROLLER),
        (asking("group:finance", asks_requester=False), "user:ann,group:finance"),
        (asking("anyone", exclude=["requester"], asks_requester=False), ANN),
        (asking("user:bob", asks_requester=False), "user:bob"),
        (asking("user:local", "user:bob", exclude=["requester"], asks_requester=False), "user:bob"),
        (asking("role:lead", people={"user:zoe": ["role:lead"]}, asks_requester=False), "user:zoe"),
        (
            {"id": "call_x", "kind": "doubt", "policy": {"from": ["role:operator", LOCAL], "asks_requester": False}},
            None,
        ),
        ({"id": "call_x", "kind": "tool", "policy": None}, None),
    ],
)
def test_who_may_not_answer_is_told_as_whom_to(pending: dict[str, Any], whom: str | None) -> None:
    assert as_whom(pending, LOCAL) == whom
    assert may_answer(pending, principal(None), LOCAL) == (whom is None)
    if whom is not None:
        assert may_answer(pending, principal(whom), LOCAL)


def test_the_next_vote_is_somebody_else_s_and_of_a_role_that_is_missing() -> None:
    pending = asking("role:qa", "role:security", quorum={"role:qa": 1, "role:security": 1}, asks_requester=False)
    pending["needed"] = {"votes": [{"by": ANN}], "missing": {"seats": {"role:security": 1}}}
    assert as_whom(pending, LOCAL) == "user:bob,role:security"


def test_a_run_of_somebody_else_is_answered_as_that_one() -> None:
    assert as_whom(asking("requester"), "user:bob") == "user:bob"
    assert not may_answer(asking("requester"), principal(None), "user:bob")


def test_the_command_answers_with_a_sample_of_what_is_asked() -> None:
    form = {"type": "object", "required": ["note"], "properties": {"note": {"type": "string"}}}
    asked = {"id": "call_x", "kind": "ask", "schema": form}
    assert answer_example(asked) == """decide call_x --values '{"note": "text"}'"""
    tool = {"id": "call_x", "kind": "tool", "schema": {"type": ["boolean", "string"]}}
    assert (answer_example(tool), format_other_options(tool)) == ("decide call_x --result true", "--error TEXT")
    doubt = {"id": "call_x", "kind": "doubt", "options": ["happened", "again", "fail"]}
    assert (answer_example(doubt), format_other_options(doubt)) == (
        "decide call_x happened --result null",
        "again, fail",
    )
    approve = {**asking("role:x", reasons=["ship it"]), "options": ["ship it", "revise", "reject"]}
    assert answer_example(approve, act_as=ANN) == "decide call_x 'ship it' --reason TEXT --as user:ann"
    assert format_other_options(approve) == "revise, reject"


def test_a_sample_of_a_file_is_a_path_that_decide_uploads() -> None:
    form = {"type": "object", "required": ["photo"], "properties": {"photo": {"type": "string", "format": "file"}}}
    pending = {"id": "call_x", "kind": "ask", "schema": form}
    assert answer_example(pending) == """decide call_x --values '{"photo": "@FILE"}'"""
    assert explain_sample(pending) == ""


def test_a_sample_that_the_question_would_not_take_is_said_to_be_none() -> None:
    def asked(pattern: str) -> dict[str, Any]:
        properties = {"code": {"type": "string", "pattern": pattern}}
        return {
            "id": "call_x",
            "kind": "ask",
            "schema": {"type": "object", "required": ["code"], "properties": properties},
        }

    assert answer_example(asked("^CC-[0-9]{4}$")) == """decide call_x --values '{"code": "CC-0000"}'"""
    assert explain_sample(asked("^CC-[0-9]{4}$")) == ""
    assert "this sample does not fit: /code: " in explain_sample(asked("^(?!x)[0-9]$"))
    assert explain_sample(asked("(")) == ""
    assert explain_sample({"id": "call_x", "kind": "doubt", "options": ["happened", "again"]}) == ""


def vote(by: str, **rest: Any) -> dict[str, Any]:
    return {"by": by, "on_behalf_of": None, "roles": [], "decision": "approve", "reason": None, "counts": True, **rest}


def decided(*votes: dict[str, Any], **rest: Any) -> str:
    return approval({"decision": "approve", "votes": votes, "expired": False, "values": None, "edits": None, **rest})


def test_what_people_decided_is_told_in_words() -> None:
    assert decided(vote(ANN)) == "approve by user:ann"
    assert decided(vote(ANN, roles=["qa"], reason="tested")) == "approve by user:ann (qa): tested"
    assert decided(vote(ANN, on_behalf_of="user:bob"), values={"n": 1}) == (
        'approve by user:ann for user:bob: values {"n": 1}'
    )
    assert decided(vote(ANN), vote("user:bob", decision="reject", reason="no", counts=False)) == (
        "approve: user:ann approve; user:bob, which does not count any more reject, no"
    )
    assert decided(expired=True, decision="reject", escalations=[{}, {}]) == (
        "reject: nobody decided in time; escalated 2 times"
    )


FLOW = """\
hai: flow/v1
name: ship
version: 1
tools:
  pick:
    frontend:
      description: Picks a port
      parameters: {type: object, properties: {}}
      result: {type: object, required: [port], properties: {port: {type: integer, minimum: 3}}}
steps:
  - id: gate
    approve:
      title: Ship?
      from: [role:qa, role:lead]
      exclude: requester
      quorum: {role:qa: 1, role:lead: 1}
      form: {type: object, required: [note], properties: {note: {type: string}}}
      combine: {note: list}
      reasons: {approve: required}
  - id: where
    ask: {title: Where to?, form: {type: object, required: [town], properties: {town: {enum: [Rome, Oslo]}}}}
  - id: chosen
    call: pick
"""


def test_what_pendings_prints_works_until_nothing_waits(database_url: str) -> None:
    with serving(database_url) as server, httpx2.Client(base_url=server.url) as http:
        assert http.post("/v1/workflows", content=FLOW, headers=YAML).status_code == 201
        run = http.post("/v1/runs", json={"workflow": "ship", "input": {}}).json()["id"]
        typed = partial(_invoke, server.url)
        rounds = 0
        while "Nothing waits" not in (shown := typed("pendings")):
            assert f"ship, run {run}, " in shown
            (line,) = (line.strip() for line in shown.splitlines() if line.startswith(f"  {program()} decide"))
            typed(*shlex.split(line.removeprefix(program())))
            rounds += 1
            assert rounds <= 4
        assert http.get(f"/v1/runs/{run}").json()["status"] == "finished"
        steps = typed("show", run)
        assert "approve gate Ship?\tfinished\tapprove: user:ann (" in steps
        assert "text" in steps
        assert not [line for line in steps.splitlines() if line != line.rstrip()]
        lines = typed("events", run).splitlines()
        assert lines[0].startswith("1  20")
        assert "ship@1 starts with {}" in lines[0]
        assert any("✓ gate → approve: user:ann (" in line for line in lines)
