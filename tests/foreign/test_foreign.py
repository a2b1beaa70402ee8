"""Every answer of the corpus is read as it is meant, however its bytes are cut, and performs nothing if it is cut off.

`make chaos` cuts them at random 10,000 times (TEST_CUTS, by TEST_SEED); here it is 200 times."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from typing import Any, cast

import pytest

from hai_flow.definition.plan import Schema
from hai_flow.models.calls.ids import CallIds
from hai_flow.models.structured import read_answer
from tests.foreign import chats, clouds, gateways, newer, typed, typed_gateways, wrapped
from tests.foreign.reading import differences, read
from tests.foreign.transcripts import (
    DONE,
    Failed,
    Protocol,
    Said,
    Transcript,
    call,
    chunk,
    document,
    end,
    event,
    stream,
    text,
)
from tests.support.examples import SEED

CORPUS = [*chats.ALL, *clouds.ALL, *gateways.ALL, *newer.ALL, *typed.ALL, *typed_gateways.ALL, *wrapped.ALL]
CUTS = int(os.environ.get("TEST_CUTS", "200"))


@pytest.mark.parametrize("transcript", CORPUS, ids=str)
def test_an_answer_is_read_as_it_is_meant(transcript: Transcript) -> None:
    assert differences(read(transcript, [transcript.body]), transcript.meaning) == []


def test_the_corpus_is_large_and_names_each_transcript_once() -> None:
    assert len(CORPUS) >= 300
    assert len({each.name for each in CORPUS}) == len(CORPUS)


@pytest.mark.costly
@pytest.mark.parametrize("transcript", CORPUS, ids=str)
def test_an_answer_that_is_cut_anywhere_into_pieces_is_the_same_answer(transcript: Transcript) -> None:
    body = transcript.body
    whole = read(transcript, [body]).said
    assert read(transcript, [body[at : at + 1] for at in range(len(body))]).said == whole
    for at in range(1, len(body), 1 if CUTS > 200 else 7):
        assert read(transcript, [body[:at], body[at:]]).said == whole, at


def test_answers_that_are_cut_at_random_are_the_same_answers() -> None:
    chance = random.Random(SEED)
    for number in range(CUTS):
        transcript = CORPUS[number % len(CORPUS)]
        body = transcript.body
        places = sorted(chance.sample(range(len(body)), min(len(body), chance.randint(1, 12))))
        pieces = [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]
        assert read(transcript, pieces).said == read(transcript, [body]).said, (transcript.name, places)


@pytest.mark.costly
@pytest.mark.timeout(600)  # up to 12 s of a processor, on a machine that does much else
@pytest.mark.parametrize("transcript", [each for each in CORPUS if each.status == 200], ids=str)
def test_an_answer_cut_off_at_any_byte_performs_nothing_or_all_of_it(transcript: Transcript) -> None:
    """All of it only where the server had said its end, and only the mark behind it was cut off."""
    meant = list(transcript.meaning.calls) if isinstance(transcript.meaning, Said) else []
    end = end_of(transcript)
    for at in range(len(transcript.body)):
        calls = read(transcript, [transcript.body[:at]]).calls
        assert calls == [] or (calls == meant and at >= end), (at, calls)


def end_of(transcript: Transcript) -> int:
    """The place at which the server has begun to say that the answer ends."""
    body = transcript.body
    marks = (
        b'"finish_reason": "',
        b"[DONE",
        b"response.completed",
        b"message_delta",
        b'"stop_reason": "',
        b'"status": "comp',
    )
    places = [at for mark in marks if (at := body.find(mark)) >= 0]
    return min(places, default=len(body))


def test_an_answer_of_endless_calls_is_none() -> None:
    events = [call(number, "c", "add", f'{{"a": {number}}}') for number in range(300)]
    transcript = Transcript("endless", stream(*events, end("tool_calls"), DONE), Failed("llm.truncated", "256", True))
    assert differences(read(transcript, [transcript.body]), transcript.meaning) == []


def test_calls_are_performed_as_they_were_shown() -> None:
    for transcript in CORPUS:
        outcome = read(transcript, [transcript.body])
        if outcome.turn is not None and outcome.fault is None:
            assert [(call.name, call.args) for call in outcome.turn.calls] == [
                (name, args or "{}") for name, args in outcome.shown
            ]


def test_bytes_that_are_no_answer_are_an_error_of_ours_and_nothing_else() -> None:
    chance = random.Random(SEED)
    odd = (b"null", b"[]", b"{}", b"\n\n", b"data: ", b'"x"', b"1e999", b"true", b"\\ud800", b"\x00", b"<", b"\xff")
    for number in range(max(CUTS, 1000)):
        transcript = CORPUS[number % len(CORPUS)]
        body = bytearray(transcript.body or b"-")
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(body))
            body[at : at + chance.choice((0, 1, 9))] = chance.choice(odd)
        assert read(replace(transcript, body=bytes(body)), [bytes(body)]).said


# --- shapes that no protocol has ------------------------------------------------------------------------------------

WHOLE = '{"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}'
ODD = [
    Transcript(
        "a proxy's page behind the first words",
        stream(*text("Hel")) + b"<html>\n<body>502 Bad Gateway</body>\n</html>\n",
        Failed("llm.unavailable", "broke off its answer with a web page", True),
    ),
    Transcript(
        "a page as an event",
        b"data: <html><h1>504 Gateway Time-out</h1></html>\n\n",
        Failed("llm.unavailable", "504 Gateway Time-out", True),
    ),
    Transcript(
        "an answer of Chat Completions to Responses",
        WHOLE.encode(),
        Failed("llm.truncated", "finish_reason", True),
        "responses",
    ),
    Transcript(
        "an answer of Chat Completions to Messages",
        WHOLE.encode(),
        Failed("llm.truncated", "finish_reason", True),
        "messages",
    ),
    Transcript("a document of no protocol", b'{"output_text": "hi"}', Failed("llm.truncated", "output_text", True)),
    Transcript(
        "two values of one name in arguments as an object",
        b'data: {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a", "function": '
        b'{"name": "delete", "arguments": {"id": 1, "id": 2}}}]}, "finish_reason": "tool_calls"}]}\n\n' + DONE.encode(),
        Failed("llm.truncated", "can't be read", True),
    ),
    Transcript(
        "a name twice in a chunk, once as null",
        b'data: {"choices": [{"index": 0, "delta": {"content": "hi", "tool_calls": null}, "finish_reason": "stop", '
        b'"finish_reason": null}]}\n\n' + DONE.encode(),
        Said("hi"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("transcript", ODD, ids=str)
def test_what_no_protocol_has_reaches_the_person_and_performs_nothing(transcript: Transcript) -> None:
    body = transcript.body
    for pieces in ([body], [body[at : at + 1] for at in range(len(body))]):
        assert differences(read(transcript, pieces), transcript.meaning) == []


PARSED = [5, 0, -1.5, True, False, [1, 2], {"ok": True}, "5"]
"""Answers of a model that a gateway has parsed."""


def _transcripts_of(value: Any) -> list[Transcript]:
    """The value as the content of an answer, in every place where a protocol has content."""
    part, ended = {"type": "output_text", "text": value}, event("response.completed", response={"status": "completed"})
    completed = {"status": "completed", "output": [{"type": "message", "content": [part]}]}
    block, stop = {"type": "text", "text": value}, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    bodies: dict[Protocol, list[bytes]] = {
        "chat": [
            stream(chunk({"content": value}), end(), DONE),
            stream(
                chunk({"content": value}), {"choices": [{"message": {"content": value}, "finish_reason": "stop"}]}, DONE
            ),
            stream({"choices": [{"text": value, "finish_reason": "stop"}]}, DONE),
            document({"choices": [{"message": {"content": value}, "finish_reason": "stop"}]}),
            document(
                {"choices": [{"message": {"content": [{"type": "text", "text": value}]}, "finish_reason": "stop"}]}
            ),
        ],
        "responses": [
            stream(event("response.output_text.delta", item_id="m", delta=value), ended),
            stream(
                event("response.output_text.delta", item_id="m", delta=value),
                event("response.output_text.done", item_id="m", text=value),
                ended,
            ),
            stream(event("response.completed", response=completed)),
            document(completed),
        ],
        "messages": [
            document({"type": "message", "content": [block], "stop_reason": "end_turn"}),
            stream(event("content_block_start", index=0, content_block=block), stop, event("message_stop")),
            stream(
                event("content_block_delta", index=0, delta={"type": "text_delta", "text": value}),
                stop,
                event("message_stop"),
            ),
        ],
    }
    said = Said(value if isinstance(value, str) else json.dumps(value))
    return [
        Transcript(f"{name} {number}", body, said, name) for name in bodies for number, body in enumerate(bodies[name])
    ]  # type: ignore[arg-type]


@pytest.mark.parametrize("value", PARSED, ids=json.dumps)
def test_an_answer_that_a_gateway_has_parsed_is_its_json_text(value: Any) -> None:
    wrong = {each.name: differences(read(each, [each.body]), each.meaning) for each in _transcripts_of(value)}
    assert not any(wrong.values()), wrong


class Anything:
    """A schema that takes every value."""

    def fit(self, value: object) -> tuple[object, list[dict[str, str]]]:
        return value, []


@pytest.mark.parametrize(
    ("args", "is_fault"),
    [
        ('{"id": "draft-7", "id": "draft-8"}', True),
        ('{"a": [{"only": true, "only": 1}]}', True),
        ('{"id": 1234567890123456789, "id": 1234567890123456788}', True),
        ('{"id": "draft-7", "id": "draft-7"}', False),
        ('{"id": null, "id": "draft-7"}', False),
        *((f'{{"id": "draft-7", "id": {blank}}}', False) for blank in ('""', "null", "[]", "{}")),
    ],
)
def test_a_call_that_names_two_values_of_one_argument_is_not_made(args: str, is_fault: bool) -> None:
    transcript = Transcript("two", stream(call(0, "a", "delete", args), end("tool_calls"), DONE), Said())
    turn = read(transcript, [transcript.body]).turn
    assert turn is not None
    (fault,) = turn.call_faults({"delete": cast(Schema, Anything())}).values() or ("",)
    assert ("stands in one object twice, with two values" in fault) is is_fault
    value, faults = read_answer(args, cast(Schema, Anything()))
    assert bool(faults) is is_fault
    assert is_fault or value == {"id": "draft-7"}, "a blank one replaces no value"


def test_an_id_that_is_longer_than_an_id_is_none() -> None:
    ids = CallIds()
    assert [ids.own("x" * 256), ids.own("x" * 257)] == ["x" * 256, "call_2"]
