"""What a POST of AG-UI says, where older clients say it in words of their own (PROTOCOLS section 5.3, Legacy)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hai_flow.wire.agui import decode
from hai_flow.wire.dialect import Limits, Posted, ResumeEntry

LIMITS = Limits()
TOLD = {"id": "call_1", "kind": "approve", "title": "Delete it?"}


def posted(forwarded: Any, **fields: Any) -> Posted:
    body = {"threadId": "t", "runId": "r", "forwardedProps": forwarded, **fields}
    return decode(json.dumps(body).encode(), LIMITS)


def commanded(**command: Any) -> tuple[ResumeEntry, ...]:
    return posted({"command": command}).resume


@pytest.mark.parametrize("answer", [{"approved": True}, True, False, None, "", 0, ["a"]])
def test_a_command_that_names_the_question_answers_it_with_whatever_it_resumes(answer: Any) -> None:
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
