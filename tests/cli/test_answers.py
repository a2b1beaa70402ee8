"""How a person's line becomes an answer, and how a run is told."""

from __future__ import annotations

import asyncio
import io
import os
from typing import Any

import pytest

from hai_flow.cli.client import answers
from hai_flow.cli.client.answers import fields_of
from hai_flow.cli.client.samples import as_options, generate_input
from hai_flow.cli.console import TextConsole
from hai_flow.cli.errors import UsageError
from hai_flow.cli.run.run import check_input, inputs
from hai_flow.cli.runs.follow import Narrator
from hai_flow.definition.plan import Schema
from hai_flow.definition.schemas.schemas import JsonSchema

FORM = {
    "type": "object",
    "required": ["amount"],
    "properties": {
        "amount": {"type": "integer"},
        "currency": {"enum": ["EUR", "USD"], "default": "EUR"},
        "urgent": {"type": "boolean"},
    },
}


async def answered(pending: dict[str, Any], *lines: str) -> dict[str, Any]:
    """The answer of a person who types `lines`."""
    reader, writer = os.pipe()
    try:
        os.write(writer, "".join(f"{line}\n" for line in lines).encode())
        async with asyncio.timeout(10):
            return await answers.answer(pending, answers.Prompt(reader))
    finally:
        os.close(reader)
        os.close(writer)


async def test_an_option_may_be_shortened_and_a_wrong_one_is_asked_again() -> None:
    pending = {"kind": "approve", "options": ["approve", "reject"]}
    assert await answered(pending, "maybe", "", "a", "") == {"decision": "approve"}
    assert await answered(pending, "rej", "too early") == {"decision": "reject", "reason": "too early"}


async def test_an_approval_with_a_form_asks_for_its_fields_only_when_approved() -> None:
    pending = {"kind": "approve", "options": ["approve", "reject"], "schema": FORM}
    given = await answered(pending, "approve", "many", "", "12", "U", "y", "fine")
    assert given == {
        "decision": "approve",
        "values": {"amount": 12, "currency": "USD", "urgent": True},
        "reason": "fine",
    }
    assert await answered(pending, "reject", "") == {"decision": "reject"}


async def test_an_empty_line_leaves_a_field_to_its_default() -> None:
    assert await answered({"kind": "ask", "schema": FORM}, "7", "", "") == {"values": {"amount": 7}}


async def test_a_result_is_json_where_it_can_be_and_may_be_declined() -> None:
    call = {"kind": "tool", "tool": "pick", "schema": {"type": ["boolean", "string"]}}
    assert await answered(call, "true") == {"result": True}
    assert await answered(call, "confirmed") == {"result": "confirmed"}
    assert await answered(call, "/decline not here") == {"error": "not here"}
    assert await answered({**call, "schema": {"type": "string"}}, "12") == {"result": "12"}


async def test_a_closed_input_leaves_the_question_open() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with pytest.raises(answers.NoMoreInput):
        await answers.Prompt(reader).line("? ")
    os.close(reader)


def test_inputs_are_read_by_the_workflows_schema() -> None:
    schema = {"properties": {"count": {"type": "integer"}, "code": {"type": "string"}}}
    assert inputs(schema, ["count=3", "code=3", "x=a=b"], '{"y": 1}') == {"y": 1, "count": 3, "code": "3", "x": "a=b"}
    for wrong in (["count"], ["=3"]):
        with pytest.raises(UsageError):
            inputs(schema, wrong, None)
    with pytest.raises(UsageError):
        inputs(schema, [], "[1]")


def told(*events: dict[str, Any]) -> str:
    """What a terminal shows of the events."""
    stream = io.StringIO()
    narrator = Narrator(TextConsole(stream))
    for event in events:
        narrator.show(event)
    return stream.getvalue()


def test_people_who_do_not_answer_are_told_in_sentences() -> None:
    assert told(
        {"type": "pending_reminded", "path": "review", "n": 1, "notify": ["email"]},
        {
            "type": "pending_escalated",
            "path": "review",
            "policy": {"from": ["role:cfo"]},
            "deadline": "2026-11-23T10:00:00.000Z",
        },
    ) == (
        "! review still waits; a reminder is due over email\n"
        "! review: nobody decided in time; it now asks role:cfo, until 2026-11-23 10:00:00Z\n"
    )
    named_nobody = {"type": "pending_escalated", "path": "review", "policy": {"fault": "`from` names nobody"}}
    assert told(named_nobody) == "! review: nobody decided in time; it now asks nobody\n"


def test_what_failed_in_a_loop_and_was_undone_is_told() -> None:
    error = {"code": "tool.failed", "message": "no", "path": "rollout[a]/deploy"}
    assert told(
        {"type": "iteration_started", "path": "rollout[a]"},
        {"type": "iteration_ended", "path": "rollout[a]", "status": "failed", "error": error},
        {"type": "iteration_ended", "path": "rollout[b]", "status": "finished"},
        {"type": "step_undone", "path": "rollout[c]/deploy"},
    ) == ("✗ rollout[a]: failed, tool.failed: no (at rollout[a]/deploy)\n↶ rollout[c]/deploy is undone\n")


def test_a_message_of_several_lines_stays_under_its_question() -> None:
    asked = {"type": "pending_opened", "kind": "approve", "id": "call_1", "title": "Go?", "message": "one\n\ntwo\n"}
    assert told(asked) == "? Go?\n  one\n\n  two\n  approve call_1\n"


def test_the_fields_of_a_form_are_told_to_whoever_writes_them_as_json() -> None:
    schema = {
        "type": "object",
        "required": ["cost_center"],
        "properties": {"cost_center": {"type": "string"}, "amount": {"type": "number", "default": 9}},
    }
    assert fields_of(schema) == "cost_center, amount (number, default 9)"
    assert fields_of({"type": "string"}) == fields_of(None) == ""


# --- examples of input --------------------------------------------------------------------------------------------


def schema_of(**properties: Any) -> Schema:
    return JsonSchema({"type": "object", "required": list(properties), "properties": properties})


def test_a_suggested_input_is_one_that_the_workflow_takes() -> None:
    schema = schema_of(
        name={"type": "string"},
        count={"type": "number", "exclusiveMinimum": 0},
        size={"enum": ["S", "M"]},
        many={"type": "array", "minItems": 2, "items": {"type": "boolean"}},
        at={"type": "string", "format": "email"},
    )
    sample = generate_input(schema)
    assert sample == {"name": "text", "count": 1, "size": "S", "many": [True, True], "at": "ann@example.com"}
    assert as_options({"name": "my text", "many": [True]}) == " -i 'name=my text' -i 'many=[true]'"


def test_where_no_input_can_be_guessed_none_is_suggested() -> None:
    assert generate_input(schema_of(release={"type": "string", "pattern": "^(?=v)v[0-9]$"})) is None
    assert generate_input(schema_of(loop={"$ref": "#"})) is None


def test_a_suggested_text_has_the_pattern_and_the_length_that_it_must_have() -> None:
    schema = schema_of(
        release={"type": "string", "pattern": "^v[0-9]$"},
        code={"type": "string", "pattern": "^[A-Z]{2}-\\d+$", "minLength": 8},
        long={"type": "string", "minLength": 10},
        short={"type": "string", "maxLength": 2},
    )
    assert generate_input(schema) == {"release": "v0", "code": "AA-11111", "long": "texttextte", "short": "te"}


def test_an_input_that_does_not_fit_is_refused_before_anything_starts() -> None:
    check_input(schema_of(name={"type": "string", "default": "x"}), {})
    with pytest.raises(UsageError, match=r'"name" is a required property.*-i KEY=VALUE.*for example -i name=text\.'):
        check_input(schema_of(name={"type": "string"}), {})


def test_a_message_of_a_child_is_shown_once_however_it_was_streamed() -> None:
    stream = io.StringIO()
    narrator = Narrator(TextConsole(stream))
    for content in ("one ", "two "):
        narrator.show({"type": "message_chunk", "message_id": "a", "content": content})
    narrator.show({"type": "child_said", "message_id": "a", "path": "sub/say", "content": "one two three"})
    narrator.show({"type": "child_said", "message_id": "b", "path": "sub/say", "content": "whole"})
    assert stream.getvalue() == "one two three\nwhole\n"


def test_interleaved_messages_get_own_lines_and_unknown_events_are_named() -> None:
    stream = io.StringIO()
    narrator = Narrator(TextConsole(stream))
    for message, content in (("a", "one "), ("a", "two"), ("b", "three"), ("a", " four\x1b[2J")):
        narrator.show({"type": "message_chunk", "message_id": message, "content": content})
    narrator.show({"type": "message_ended", "message_id": "a"})
    narrator.show({"type": "something_new", "seq": 9, "what": "x"})
    assert stream.getvalue() == 'one two\nthree\n four[U+001B][2J\n· something new {"what": "x"}\n'
