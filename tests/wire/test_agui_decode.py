"""What a POST of AG-UI says, where older clients say it in words of their own (docs/design/protocols.md#copilotkit)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from hai_flow.errors import Rejected
from hai_flow.wire.dialects.agui import decode
from hai_flow.wire.dialects.dialect import Posted, ResumeEntry
from hai_flow.wire.posted_json import Limits

LIMITS = Limits()
TOLD = {"id": "call_1", "kind": "approve", "title": "Delete it?"}


def posted(forwarded: Any, **fields: Any) -> Posted:
    body = {"threadId": "t", "runId": "r", "forwardedProps": forwarded, **fields}
    return decode(json.dumps(body).encode(), LIMITS)


def commanded(**command: Any) -> tuple[ResumeEntry, ...]:
    return posted({"command": command}).resume


@pytest.mark.parametrize("answer", [{"approved": True}, True, False, None, "", 0, ["a"]])
def test_a_command_naming_the_question_answers_it_whatever_it_resumes(answer: Any) -> None:
    assert commanded(resume=answer, interruptEvent=TOLD) == (ResumeEntry("call_1", payload=answer),)


def test_a_command_is_understood_of_peers_of_any_version() -> None:
    command = {"command": {"resume": True, "interruptEvent": TOLD}}
    assert (
        posted(command, protocolVersion="1.0").resume
        == posted(command).resume
        == commanded(resume=True, interruptEvent=TOLD)
    )


def test_resume_itself_comes_before_a_command() -> None:
    entry = {"interruptId": "call_2", "status": "cancelled"}
    command = {"command": {"resume": True, "interruptEvent": TOLD}}
    assert posted(command, resume=[entry]).resume == (ResumeEntry("call_2", cancelled=True),)


def test_a_command_without_the_question_answers_none() -> None:
    """Whoever resumes without it means the one question that is open, and decoding looks nothing up."""
    assert commanded(resume=True) == ()
    assert commanded(resume=True, interruptEvent="Delete it?") == ()
    assert commanded(resume=True, interruptEvent={"title": "Delete it?"}) == ()


def test_a_command_without_an_answer_answers_none() -> None:
    assert commanded(interruptEvent=TOLD) == ()


@pytest.mark.parametrize("id", [1, None, "", "x" * (LIMITS.id_chars_max + 1)])
def test_a_question_whose_id_is_none_of_ours_is_answered_by_nobody(id: Any) -> None:
    assert commanded(resume=True, interruptEvent={"id": id}) == ()


@pytest.mark.parametrize("command", ["restart", ["resume"], 1, None, {}])
def test_an_applications_own_command_is_no_fault(command: Any) -> None:
    assert posted({"command": command}).resume == ()


def decoded(body: dict[str, Any]) -> Posted:
    return decode(json.dumps(body).encode(), LIMITS)


CAMEL: dict[str, Any] = {
    "threadId": "t",
    "runId": "r",
    "parentRunId": "p",
    "protocolVersion": "1.0",
    "forwardedProps": {"workflow": "w", "input": {"file_name": "a"}},
    "messages": [
        {"id": "u", "role": "user", "content": [{"type": "binary", "mimeType": "image/png", "url": "http://a"}]},
        {"id": "v", "role": "user", "content": [{"type": "image", "source": {"type": "url", "mimeType": "image/png"}}]},
        {"id": "a", "role": "tool", "toolCallId": "call_1", "content": "done"},
    ],
    "resume": [{"interruptId": "call_2", "status": "resolved", "payload": {"editedArgs": {"file_name": 1}}}],
}
SNAKE: dict[str, Any] = {
    "thread_id": "t",
    "run_id": "r",
    "parent_run_id": "p",
    "protocol_version": "1.0",
    "forwarded_props": {"workflow": "w", "input": {"file_name": "a"}},
    "messages": [
        {"id": "u", "role": "user", "content": [{"type": "binary", "mime_type": "image/png", "url": "http://a"}]},
        {
            "id": "v",
            "role": "user",
            "content": [{"type": "image", "source": {"type": "url", "mime_type": "image/png"}}],
        },
        {"id": "a", "role": "tool", "tool_call_id": "call_1", "content": "done"},
    ],
    "resume": [{"interrupt_id": "call_2", "status": "resolved", "payload": {"editedArgs": {"file_name": 1}}}],
}


def test_names_may_be_spelled_as_the_python_models_spell_them() -> None:
    assert replace(decoded(SNAKE), body_sha="") == replace(decoded(CAMEL), body_sha="")
    assert replace(decoded({**CAMEL, **SNAKE}), body_sha="") == replace(decoded(CAMEL), body_sha="")


def test_both_spellings_of_a_name_must_say_the_same() -> None:
    messages = [{"id": "a", "role": "tool", "toolCallId": "call_1", "tool_call_id": "call_2", "content": "done"}]
    with pytest.raises(Rejected) as refusal:
        decoded({**CAMEL, "thread_id": "other", "messages": messages})
    assert refusal.value.status == 422
    assert [each["path"] for each in refusal.value.findings] == ["/thread_id", "/messages/0/tool_call_id"]


def test_a_name_that_is_null_is_absent_in_either_spelling() -> None:
    assert decoded({**CAMEL, "parent_run_id": None}).parent_run_id == "p"
    assert decoded({**CAMEL, "parentRunId": None, "parent_run_id": "p"}).parent_run_id == "p"
