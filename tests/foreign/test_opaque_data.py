"""Signatures of thoughts and encrypted thinking of servers of Chat Completions: they go back to their model as they
came, with their own call. Gemini and Claude refuse the next request without them."""

from __future__ import annotations

from typing import Any, Final

import pytest

from hai_flow.models.chat import body_of
from hai_flow.models.conversation import with_short_ids
from hai_flow.models.opaque_data import Seals
from hai_flow.models.vocabulary import Endpoint, Message, Request
from tests.foreign.reading import read
from tests.foreign.transcripts import DONE, Said, Transcript, call, chunk, document, end, stream
from tests.support.values import require

Json = Any

GOOGLE: Final = {"extra_content": {"google": {"thought_signature": "AbC+/=="}}}
LITELLM: Final = {"provider_specific_fields": {"thought_signature": "AbC"}}
SIGNED: Final = f"call_1__thought__{'AbC+/=' * 100}"
TEXT: Final = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
SECRET: Final = {"type": "reasoning.encrypted", "data": "xyz", "id": "c1", "index": 1}
THOUGHT: Final = {"type": "thinking"}
HIDDEN: Final = {"type": "redacted_thinking", "data": "xyz"}
CALLED: Final = (end("tool_calls"), DONE)


def build_call(index: int, **more: Json) -> Json:
    return call(index, f"c{index + 1}", "add", '{"text": "hi"}', **more)


def details(name: str, *items: Json) -> list[Json]:
    return [chunk({name: [item]}) for item in items]


SEALED: Final[dict[str, tuple[bytes, Json, list[Json]]]] = {  # a stream, the message's members, those of its calls
    "gemini": (stream(build_call(0, **GOOGLE), *CALLED), {}, [GOOGLE]),
    "gemini: the first of two calls": (stream(build_call(0, **GOOGLE), build_call(1), *CALLED), {}, [GOOGLE, {}]),
    "gemini: the second of two calls at one index": (
        stream(call(0, "c1", "add", '{"text": "hi"}'), call(0, "c2", "add", '{"text": "you"}', **GOOGLE), *CALLED),
        {},
        [{}, GOOGLE],
    ),
    "gemini: behind the arguments": (stream(build_call(0), call(0, **GOOGLE), *CALLED), {}, [GOOGLE]),
    "gemini: a repeated call": (
        stream(build_call(0), call(1, "c1", "add", '{"text": "hi"}'), build_call(2, **GOOGLE), *CALLED),
        {},
        [{}, GOOGLE],
    ),
    "gemini: in one document": (
        document(
            {
                "choices": [
                    {
                        "message": {
                            "tool_calls": [{"id": "c1", "function": {"name": "ping", "arguments": "{}"}, **GOOGLE}]
                        },
                        "finish_reason": "tool_calls",
                    }
                ]
            }
        ),
        {},
        [GOOGLE],
    ),
    "litellm": (stream(build_call(0, **LITELLM), *CALLED), {}, [LITELLM]),
    "litellm: in an id that is too long": (
        stream(call(0, SIGNED, "add", "{}"), call(1, "c2", "add", '{"text": "hi"}'), *CALLED),
        {},
        [{"id": SIGNED}, {}],
    ),
    "litellm: empty": (stream(build_call(0, provider_specific_fields={}, extra_content=None), *CALLED), None, []),
    "openrouter": (
        stream(
            *details(
                "reasoning_details",
                {**TEXT, "text": "Hm, "},
                {**TEXT, "text": "yes."},
                {**TEXT, "signature": "s"},
                SECRET,
            ),
            build_call(0),
            *CALLED,
        ),
        {"reasoning_details": [{**TEXT, "text": "Hm, yes.", "signature": "s"}, SECRET]},
        [{}],
    ),
    "openrouter: again behind its pieces": (
        stream(
            *details("reasoning_details", SECRET),
            build_call(0),
            {"choices": [{"index": 0, "message": {"reasoning_details": [SECRET]}, "finish_reason": "tool_calls"}]},
            DONE,
        ),
        {"reasoning_details": [SECRET]},
        [{}],
    ),
    "litellm: blocks of thinking": (
        stream(
            *details(
                "thinking_blocks",
                {**THOUGHT, "thinking": "Hm, ", "signature": None},
                {**THOUGHT, "thinking": "yes."},
                {**THOUGHT, "thinking": "", "signature": "s"},
                {**THOUGHT, "thinking": "And", "signature": "t"},
                HIDDEN,
            ),
            build_call(0),
            *CALLED,
        ),
        {
            "thinking_blocks": [
                {**THOUGHT, "thinking": "Hm, yes.", "signature": "s"},
                {**THOUGHT, "thinking": "And", "signature": "t"},
                HIDDEN,
            ]
        },
        [{}],
    ),
    "minimax: without any seal": (
        stream(*details("reasoning_details", {**TEXT, "text": "Hm."}), build_call(0), *CALLED),
        None,
        [],
    ),
    "odd": (
        stream(chunk({"reasoning_details": ["x", None], "thinking_blocks": {"a": 1}}), build_call(0), *CALLED),
        None,
        [],
    ),
}


@pytest.mark.parametrize("name", SEALED)
def test_what_a_server_gives_for_itself_goes_back_with_its_own_call(name: str) -> None:
    body, message, calls = SEALED[name]
    turn = require(read(Transcript(name, body, Said()), [body]).turn)
    assert turn.finish is not None
    assert turn.finish.opaque == (None if message is None else {"message": message, "calls": calls})
    reply = Message("assistant", turn.text, turn.calls, opaque=turn.finish.opaque)
    (sent,) = body_of(Request(Endpoint("m", "gateway", "m"), (reply,)))["messages"]
    plain = body_of(Request(Endpoint("m", "gateway", "m"), (Message("assistant", turn.text, turn.calls),)))["messages"][
        0
    ]
    seals = calls or [{} for _ in turn.calls]
    called = [{**one, **seal} for one, seal in zip(plain["tool_calls"], seals, strict=True)]
    assert sent == {**plain, **(message or {}), "tool_calls": called}


def test_a_result_names_its_call_by_the_id_that_the_server_gave() -> None:
    body, *_ = SEALED["litellm: in an id that is too long"]
    turn = require(read(Transcript("", body, Said()), [body]).turn)
    assert turn.finish is not None
    reply = Message("assistant", "", turn.calls, opaque=turn.finish.opaque)
    results = [Message("tool", "ok", call_id=each.id) for each in turn.calls]
    _, *told = body_of(Request(Endpoint("m", "gateway", "m"), (reply, *results)))["messages"]
    assert [each["tool_call_id"] for each in told] == [SIGNED, "c2"]
    _, *told = body_of(Request(Endpoint("m", "gateway", "m"), tuple(map(with_short_ids, (reply, *results)))))[
        "messages"
    ]
    assert [len(each["tool_call_id"]) for each in told] == [9, 9], (
        "a gateway may send it on to a server that refuses it"
    )
    reply = Message("assistant", "", turn.calls)  # to another model
    (said,) = body_of(Request(Endpoint("m", "gateway", "m"), (reply,)))["messages"]
    assert [len(each["id"]) < 20 for each in said["tool_calls"]] == [True, True]


def test_data_of_another_protocol_is_not_sent() -> None:
    reply = Message("assistant", "hi", opaque=[{"type": "reasoning", "encrypted_content": "xyz"}])
    (sent,) = body_of(Request(Endpoint("m", "gateway", "m"), (reply,)))["messages"]
    assert sent == {"role": "assistant", "content": "hi"}


def test_a_summary_that_is_a_list_and_then_a_text_is_read() -> None:
    seals = Seals()
    for summary in ([{"text": "a"}], "b", "c"):
        seals.take({"thinking_blocks": [{**THOUGHT, "summary": summary, "signature": ""}]})
    seals.take({"thinking_blocks": [{**THOUGHT, "signature": "s"}]})
    assert seals.opaque([]) == {
        "message": {"thinking_blocks": [{**THOUGHT, "summary": "bc", "signature": "s"}]},
        "calls": [],
    }
