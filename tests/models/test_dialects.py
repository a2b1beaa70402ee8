"""Servers differ in how they stream; what is understood does not. Over real sockets, through the SDK."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.errors import StepError
from hai_flow.models import connections
from hai_flow.models.failover import ask, limit_time
from hai_flow.models.providers.endpoints import OpenAIProvider, Providers
from hai_flow.models.turn import Turn
from hai_flow.models.vocabulary import (
    Call,
    CallArgs,
    CallStart,
    Endpoint,
    Finish,
    Media,
    Message,
    Piece,
    Quirks,
    Request,
    Text,
    Thinking,
    Tool,
    Usage,
)
from tests.support.models import (
    CUT,
    DIALECTS,
    DONE,
    END,
    STALL,
    USAGE,
    Act,
    Answer,
    FakeModels,
    Later,
    Raw,
    Said,
    Status,
    chunk,
    responded,
    spoken,
)
from tests.support.waiting import until

ANSWER = Answer(
    "I ask both.",
    "Two places know it: a shop, a bank.",
    (("search", '{"q": "tea"}'), ("fetch", '{"url": "x", "n": 2}')),
)
SEARCH = Tool("search", "Searches", {"type": "object", "properties": {"q": {"type": "string"}}})
FETCH = Tool("fetch", "Fetches", {"type": "object", "properties": {"url": {"type": "string"}, "n": {}}})
SCHEMAS = {tool.name: JsonSchema(tool.schema) for tool in (SEARCH, FETCH)}


def endpoint(fake: FakeModels, **more: Any) -> Endpoint:
    return Endpoint("smart", "openai", "m", fake.url, "sk-1", **more)


class Asking:
    """One question to one or more endpoints, and all that was heard."""

    def __init__(self, *, keep: bool = False) -> None:
        self.keep = keep
        self.heard: list[Piece] = []
        self.spent: list[tuple[str, Turn]] = []
        self.providers = Providers()

    async def of(self, *endpoints: Endpoint, **request: Any) -> tuple[Turn, Endpoint]:
        async def listen(piece: Piece) -> None:
            self.heard.append(piece)

        def spent(endpoint: Endpoint, turn: Turn) -> None:
            self.spent.append((endpoint.name, turn))

        messages = request.pop("messages", (Message("user", "Tea?"),))
        try:
            return await ask(
                self.providers.of, endpoints, lambda each: Request(each, messages, **request), listen, spent
            )
        finally:
            if not self.keep:
                await self.providers.close()


async def failure(*acts: Act, **more: Any) -> tuple[StepError, Asking]:
    asking = Asking()
    async with FakeModels(acts) as fake:
        with pytest.raises(StepError) as raised:
            await asking.of(endpoint(fake, **more), tools=(SEARCH,))
    return raised.value, asking


def transcript(turn: Turn) -> Any:
    calls = [(call.name, json.loads(call.args)) for call in turn.calls]
    return turn.thinking, turn.text, calls, turn.usage, turn.finish and turn.finish.reason


# --- one transcript ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_dialect_gives_the_same_transcript(dialect: str) -> None:
    quirks = Quirks(reasoning=dialect if dialect in ("reasoning", "think_tags") else "reasoning_content")
    async with FakeModels(DIALECTS[dialect](ANSWER)) as fake:
        turn, _ = await Asking().of(endpoint(fake, quirks=quirks), tools=(SEARCH, FETCH))
    calls = [("search", {"q": "tea"}), ("fetch", {"url": "x", "n": 2})]
    assert transcript(turn) == (ANSWER.thinking, ANSWER.text, calls, Usage(12, 7), "stop")
    assert len({call.id for call in turn.calls} - {""}) == 2
    assert turn.call_faults(SCHEMAS) == {}


async def test_the_responses_protocol_gives_it_with_provider_only_options() -> None:
    async with FakeModels(responded(ANSWER)) as fake:
        turn, _ = await Asking().of(endpoint(fake, api="responses"), tools=(SEARCH, FETCH))
    calls = [("search", {"q": "tea"}), ("fetch", {"url": "x", "n": 2})]
    assert transcript(turn) == (ANSWER.thinking, ANSWER.text, calls, Usage(12, 7), "stop")
    assert turn.finish == Finish("stop", opaque=[{"type": "reasoning", "id": "rs_1", "encrypted_content": "xyz"}])


@pytest.mark.parametrize("id", ["call", ""])
async def test_calls_of_one_id_are_as_many_calls(id: str) -> None:
    asking = Asking()
    async with FakeModels(responded(ANSWER, id)) as fake:
        turn, _ = await asking.of(endpoint(fake, api="responses"), tools=(SEARCH, FETCH))
    assert [(call.name, json.loads(call.args)) for call in turn.calls] == transcript(turn)[2] != []
    assert len({call.id for call in turn.calls} - {""}) == 2
    assert calls_heard(asking.heard) == {call.id: call.args for call in turn.calls}


def test_a_provider_that_repeats_an_id_has_made_another_call() -> None:
    turn = Turn()
    said = [CallStart("a", "search"), CallArgs("a", '{"q": '), CallArgs("a", "1}")]
    said += [CallStart("call_2", "fetch"), CallStart("a", "search"), CallArgs("a", "{}")]
    heard = [turn.add(piece) for piece in said]
    assert [call.args for call in turn.calls] == ['{"q": 1}', "{}", "{}"]
    assert [call.id for call in turn.calls] == ["a", "call_2", "call_3"]
    assert calls_heard(heard) == {"a": '{"q": 1}', "call_2": "", "call_3": "{}"}
    with pytest.raises(StepError, match="can't be read"):
        turn.add(CallArgs("b", "{}"))


def calls_heard(pieces: list[Piece]) -> dict[str, str]:
    """The arguments of each call, put together from the pieces that are heard."""
    found: dict[str, str] = {}
    for piece in pieces:
        if isinstance(piece, CallStart):
            assert piece.id not in found
            found[piece.id] = ""
        elif isinstance(piece, CallArgs):
            found[piece.id] += piece.text
    return found


async def test_pieces_are_heard_as_they_come_and_in_their_order() -> None:
    asking = Asking()
    async with FakeModels(DIALECTS["reasoning_content"](ANSWER)) as fake:
        await asking.of(endpoint(fake), tools=(SEARCH, FETCH))
    kinds = [
        type(piece) for n, piece in enumerate(asking.heard) if n == 0 or type(piece) is not type(asking.heard[n - 1])
    ]
    assert kinds == [Thinking, Text, CallStart, CallArgs, CallStart, CallArgs, Usage, Finish]


async def test_the_sdk_repeats_no_request_and_the_key_is_in_its_header() -> None:
    fault, _ = await failure(Status(500, {"error": {"message": "no"}}))
    assert fault.code == "llm.unavailable"
    async with FakeModels([Status(503, {})]) as fake:
        for header in (None, "api-key"):
            with pytest.raises(StepError):
                await Asking().of(endpoint(fake, key_header=header))
    assert [asked.path for asked in fake.asked] == ["/v1/chat/completions"] * 2
    assert fake.asked[0].headers["authorization"] == "Bearer sk-1"
    assert fake.asked[1].headers["api-key"] == "sk-1"


# --- what is asked ----------------------------------------------------------------------------------------------------


async def body_of(request: dict[str, Any], **more: Any) -> Any:
    async with FakeModels(spoken(Answer("ok")) if more.get("api") != "responses" else responded(Answer("ok"))) as fake:
        await Asking().of(endpoint(fake, **more), **request)
    return fake.asked[0].body


SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
STRICT = {**SCHEMA, "additionalProperties": False}


async def test_an_object_is_asked_for_as_the_model_understands_it() -> None:
    by_schema = await body_of({"output": STRICT})
    assert by_schema["response_format"]["json_schema"] == {"name": "answer", "schema": STRICT, "strict": True}
    assert (await body_of({"output": SCHEMA}))["response_format"]["json_schema"]["strict"] is False
    as_object = await body_of({"output": SCHEMA}, quirks=Quirks(output="json_object"))
    assert as_object["response_format"] == {"type": "json_object"}
    assert '"required":["a"]' in as_object["messages"][0]["content"]
    prompted = await body_of({"output": SCHEMA}, quirks=Quirks(output="prompt"))
    assert "response_format" not in prompted
    assert [message["role"] for message in prompted["messages"]] == ["system", "user"]
    responses = await body_of({"output": STRICT}, api="responses")
    assert responses["text"]["format"]["schema"] == STRICT


async def test_parameters_go_by_the_names_that_the_provider_has() -> None:
    params = {"temperature": 0.1, "max_tokens": 5, "extra": {"enable_thinking": True}}
    body = await body_of({}, params=params, quirks=Quirks(max_tokens="max_completion_tokens", usage="none"))
    assert (body["temperature"], body["max_completion_tokens"], body["enable_thinking"]) == (0.1, 5, True)
    assert "max_tokens" not in body
    assert "stream_options" not in body
    responses = await body_of({}, params=params, api="responses")
    assert (responses["max_output_tokens"], responses["store"]) == (5, False)


PICTURE = {"type": "image", "source": {"type": "data", "value": "QUJD", "mimeType": "image/png"}}


async def test_pictures_sound_and_documents_go_as_each_protocol_says_them() -> None:
    sound = {"type": "audio", "source": {"type": "data", "value": "QUJD", "mimeType": "audio/wav"}}
    paper = {"type": "document", "source": {"type": "data", "value": "QUJD", "mimeType": "application/pdf"}}
    parts = [{"type": "text", "text": "See"}, PICTURE, sound, paper]
    body = await body_of({"messages": (Message("user", parts),)})
    kinds = [part["type"] for part in body["messages"][0]["content"]]
    assert kinds == ["text", "image_url", "input_audio", "file"]
    assert body["messages"][0]["content"][1]["image_url"] == {"url": "data:image/png;base64,QUJD"}
    body = await body_of({"messages": (Message("user", [parts[0], PICTURE, paper]),)}, api="responses")
    assert [part["type"] for part in body["input"][0]["content"]] == ["input_text", "input_image", "input_file"]


async def test_a_part_that_the_protocol_cannot_carry_is_refused_before_the_call() -> None:
    film = {"type": "video", "source": {"type": "url", "value": "https://x/y", "mimeType": "video/mp4"}}
    async with FakeModels([END]) as fake:
        with pytest.raises(StepError, match="video/mp4") as raised:
            await Asking().of(endpoint(fake), messages=(Message("user", [film]),))
    assert (raised.value.code, fake.asked) == ("llm.invalid_request", [])


@pytest.mark.parametrize("send_back", ["never", "tool_turns"])
async def test_thinking_goes_back_exactly_where_the_provider_wants_it(send_back: Any) -> None:
    messages = (
        Message("user", "Tea?"),
        Message("assistant", "", (Call("c1", "search", "{}"),), thinking="hm"),
        Message("tool", "none", call_id="c1"),
        Message("assistant", "No tea."),
        Message("user", "Sure?"),
    )
    body = await body_of({"messages": messages}, quirks=Quirks(send_back=send_back))
    thought = [message.get("reasoning_content") for message in body["messages"] if message["role"] == "assistant"]
    assert thought == (["hm", ""] if send_back == "tool_turns" else [None, None])
    assert body["messages"][1]["tool_calls"][0]["function"] == {"name": "search", "arguments": "{}"}
    plain = await body_of({"messages": messages[3:]}, quirks=Quirks(send_back=send_back))
    assert "reasoning_content" not in plain["messages"][0]


async def test_what_a_provider_gave_for_itself_goes_back_to_it_as_it_was() -> None:
    opaque = [{"type": "reasoning", "id": "rs_1", "encrypted_content": "xyz"}]
    messages = (
        Message("assistant", "", (Call("c1", "search", "{}"),), opaque=opaque),
        Message("tool", "1", call_id="c1"),
    )
    body = await body_of({"messages": messages}, api="responses")
    assert [item["type"] for item in body["input"]] == ["reasoning", "function_call", "function_call_output"]


# --- files in answers -------------------------------------------------------------------------------------------------

PIXEL = base64.b64encode(b"a picture").decode()


def painted(*results: str) -> list[Act]:
    """An answer by the Responses protocol that holds pictures, one of them half drawn before."""
    item = {"type": "image_generation_call", "id": "ig_1", "status": "completed"}
    half = {"type": "response.image_generation_call.partial_image", "partial_image_b64": "AAAA"}
    done = [{"type": "response.output_item.done", "item": {**item, "result": each}} for each in results]
    response = {"id": "r1", "status": "completed", "output": [], "usage": {"input_tokens": 1, "output_tokens": 1}}
    return [*map(Said, [half, *done, {"type": "response.completed", "response": response}]), END]


async def test_pictures_of_the_responses_protocol_are_files_in_the_answer() -> None:
    async with FakeModels(painted(PIXEL)) as fake:
        extra = {"extra": {"tools": [{"type": "image_generation"}]}}
        turn, _ = await Asking().of(endpoint(fake, api="responses", params=extra), tools=(SEARCH,))
    assert turn.media == [Media("image/png", b"a picture")]
    assert [tool.get("name", tool["type"]) for tool in fake.asked[0].body["tools"]] == ["search", "image_generation"]


@pytest.mark.parametrize("where", ["images", "content"])
async def test_pictures_of_a_chat_are_files_and_mere_addresses_are_named(where: str) -> None:
    urls = [f"data:image/webp;base64,{PIXEL}", "https://example.com/a.png"]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    acts = [chunk({"content": "See: "}), chunk({where: parts}), chunk({}, reason="stop"), DONE, END]
    async with FakeModels(acts) as fake:
        turn, _ = await Asking().of(endpoint(fake))
    assert (turn.text, turn.media) == ("See: ![](https://example.com/a.png)", [Media("image/webp", b"a picture")])


async def test_sound_comes_in_pieces_with_what_it_says() -> None:
    said = [(b"one", "Good "), (b"two!", "day.")]
    acts = [chunk({"audio": {"id": "a", "data": base64.b64encode(data).decode(), "transcript": text}})
            for data, text in said]  # fmt: skip
    async with FakeModels([*acts, chunk({}, reason="stop"), DONE, END]) as fake:
        turn, _ = await Asking().of(endpoint(fake, params={"audio": {"voice": "alloy", "format": "wav"}}))
    assert (turn.text, turn.media) == ("Good day.", [Media("audio/wav", b"onetwo!")])


async def test_an_answer_with_too_many_files_or_with_one_that_is_none_fails() -> None:
    for acts, code in ((painted(*[PIXEL] * 17), "step.file_too_large"), (painted("%%%"), "llm.truncated")):
        fault, _ = await failure(*acts, api="responses")
        assert fault.code == code


# --- what goes wrong --------------------------------------------------------------------------------------------------

CALLED = spoken(Answer("", "", (("search", '{"q": "tea"}'),)))[:-4]  # the call is whole, its end is not said


@pytest.mark.parametrize(
    ("acts", "code", "again"),
    [
        ([*CALLED, END], "llm.truncated", True),
        ([*CALLED[:-1], DONE, END], "llm.truncated", True),
        ([*CALLED, CUT], "llm.truncated", True),
        ([*CALLED, Raw(b'data: {"choices": [{"de\n\n'), END], "llm.truncated", True),
        ([*CALLED, Raw(b"data: \xff\xfe{}\n\n"), END], "llm.truncated", True),
        ([*CALLED, chunk({}, reason="length"), END], "llm.truncated", False),
        ([*CALLED, chunk({}, reason="content_filter"), END], "llm.refused", False),
        ([*CALLED, chunk({"refusal": "I must not."}), chunk({}, reason="stop"), END], "llm.refused", False),
        ([*CALLED, Said({"error": {"message": "busy", "code": "rate_limit_exceeded"}}), END], "llm.rate_limited", True),
        ([*CALLED, Said({"error": {"message": "oh", "type": "server_error"}}), END], "llm.unavailable", True),
    ],
)
async def test_an_answer_that_is_not_complete_is_none(acts: list[Act], code: str, again: bool) -> None:
    fault, asking = await failure(*acts)
    assert (fault.code, fault.retriable) == (code, again)
    assert len(asking.spent) == 1, "what has begun costs"
    _, turn = asking.spent[0]
    assert turn.text == "", "what was said in part can't get into a prompt"
    assert turn.spent(400)[1], "its tokens are estimated: nobody has counted them"


@pytest.mark.parametrize(("counted", "spent"), [((0, 0), (400, 3)), ((7, 0), (7, 3)), ((0, 5), (400, 5))])
def test_tokens_that_a_gateway_reports_as_0_are_estimated(counted: tuple[int, int], spent: tuple[int, int]) -> None:
    turn = Turn()
    for piece in (Text("Hello you"), Usage(*counted), Finish("stop")):
        turn.add(piece)
    usage, is_estimated = turn.spent(400)
    assert (usage.input, usage.output, is_estimated) == (*spent, True)


@pytest.mark.parametrize(
    ("status", "body", "headers", "code", "again", "after"),
    [
        (429, {"error": {"message": "slow down"}}, {"retry-after": "7"}, "llm.rate_limited", True, 7.0),
        (429, {"error": {"message": "x"}}, {"retry-after-ms": "250"}, "llm.rate_limited", True, 0.25),
        (429, {"error": {"code": "insufficient_quota"}}, {"retry-after": "7"}, "llm.rate_limited", False, None),
        (503, {"message": "away"}, {"retry-after": "3"}, "llm.unavailable", True, 3.0),
        (500, None, {}, "llm.unavailable", True, None),
        (529, {"error": {"type": "overloaded_error"}}, {}, "llm.unavailable", True, None),
        (401, {"error": {"message": "bad key"}}, {}, "llm.not_configured", False, None),
        (404, {"error": {"message": "no model"}}, {}, "llm.not_configured", False, None),
        (400, {"error": {"code": "context_length_exceeded"}}, {}, "llm.context_exceeded", False, None),
        (400, {"error": {"message": "the prompt is too long: 9 tokens"}}, {}, "llm.context_exceeded", False, None),
        (413, {}, {}, "llm.context_exceeded", False, None),
        (400, {"error": {"code": "content_filter", "message": "no"}}, {}, "llm.refused", False, None),
        (400, {"error": {"message": "bad field"}}, {}, "llm.invalid_request", False, None),
        (429, {}, {"retry-after": "nan"}, "llm.rate_limited", True, None),
        (429, {}, {"retry-after": "5, 9"}, "llm.rate_limited", True, 9.0),
        (429, {}, {"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, "llm.rate_limited", True, 0.0),
    ],
)
async def test_what_a_server_answers_instead_has_a_code_and_a_time(
    status: int, body: Any, headers: dict[str, str], code: str, again: bool, after: float | None
) -> None:
    fault, asking = await failure(Status(status, body, headers))
    assert (fault.code, fault.retriable, fault.retry_after) == (code, again, after)
    assert asking.spent == []


async def test_what_a_server_has_counted_before_it_broke_off_is_spent() -> None:
    _, asking = await failure(Said({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 0}}))
    ((_, turn),) = asking.spent
    assert turn.usage == Usage(7, 0)


async def test_a_model_that_falls_silent_is_hung_up_on() -> None:
    async with FakeModels([chunk({"content": "I"}), STALL]) as fake:
        asking = Asking(keep=True)
        with pytest.raises(StepError, match=r"for 0\.05 s") as raised:
            await asking.of(endpoint(fake, idle=0.05))
        await until(lambda: not fake.connections)
        await asking.providers.close()
    assert (raised.value.code, raised.value.retriable) == ("llm.timeout", True)


PING = [Later(0.01), Raw(b": ping\n\n")] * 20


@pytest.mark.parametrize("rest", [[STALL], [*PING, STALL], [chunk(usage=USAGE), *PING, STALL]])
async def test_an_answer_with_a_reason_is_whole_though_its_stream_stays_open(
    rest: list[Act], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "END_SECONDS", 0.1)
    async with FakeModels([chunk({"content": "Hi"}), chunk({}, reason="stop"), *rest]) as fake:
        turn, _ = await Asking().of(endpoint(fake, idle=30.0))
    assert turn.text == "Hi"


async def test_a_reason_with_each_piece_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "END_SECONDS", 0.01)
    slow = [act for word in ("Hi ", "you") for act in (chunk({"content": word}, reason="stop"), Later(0.1))]
    late = [
        chunk({"content": "Hi "}),
        chunk({}, reason="stop"),
        chunk({"content": "y"}),
        Later(0.1),
        chunk({"content": "ou"}),
    ]
    for acts in (slow, late):
        async with FakeModels([*acts, END]) as fake:
            turn, _ = await Asking().of(endpoint(fake))
        assert turn.text == "Hi you"


OWN = spoken(Answer("", "", (("look_up", '{"q": "tea"}'),)))[:-2]  # the gateway's own tool, which was not offered
FOUND = chunk({"role": "tool", "tool_call_id": "call_0", "content": "a shop"})


@pytest.mark.parametrize(
    "acts",
    [
        [chunk({"reasoning_content": "Hm"}, reason="stop")],
        [chunk({"reasoning_content": "H"}), chunk({"reasoning_content": "m"}, reason="stop")],
        OWN,
        [*OWN, Later(0.1), FOUND],
    ],
    ids=["thinking", "thinking in pieces", "a call of its own", "a call of its own and its result"],
)
@pytest.mark.parametrize("end", [[DONE, END], [STALL]], ids=["marked", "open"])
async def test_an_answer_that_goes_on_behind_a_reason_is_waited_for(
    acts: list[Act], end: list[Act], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "END_SECONDS", 0.05)
    late = [Later(0.2), chunk({"role": "assistant", "content": "A shop."}), chunk({}, reason="stop")]
    async with FakeModels([*acts, *late, *end]) as fake:
        turn, _ = await Asking().of(endpoint(fake, idle=30.0), tools=(SEARCH,))
    assert (turn.text, turn.calls) == ("A shop.", ())


async def test_thinking_that_was_cut_off_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "END_SECONDS", 0.05)
    acts = [chunk({"reasoning_content": "H"}), chunk({"reasoning_content": "m"}), chunk({}, reason="length"), STALL]
    fault, _ = await failure(*acts, idle=1.0)
    assert fault.code == "llm.truncated"


async def test_a_line_break_behind_a_call_of_no_function_leaves_the_call() -> None:
    async with FakeModels([*OWN, chunk({"content": "\n"}), DONE, END]) as fake:
        turn, _ = await Asking().of(endpoint(fake), tools=(SEARCH,))
    assert [call.name for call in turn.calls] == ["look_up"]


async def test_a_call_that_its_server_has_made_is_not_made_again() -> None:
    calls = (("search", '{"q": "tea"}'), ("fetch", '{"url": "x", "n": 2}'))
    for places, left in (((0, 1), []), ((0,), ["fetch"]), ((1,), ["search"]), ((), ["search", "fetch"])):
        made = [chunk({"role": "tool", "tool_call_id": f"call_{n}", "content": "done"}) for n in places]
        acts = [*spoken(Answer("", "", calls))[:-2], *made, chunk({"role": "assistant", "content": "So."})]
        async with FakeModels([*acts, chunk({}, reason="stop"), DONE, END]) as fake:
            turn, _ = await Asking().of(endpoint(fake), tools=(SEARCH, FETCH))
        assert (turn.text, [call.name for call in turn.calls]) == ("So.", left)


async def test_an_answer_has_to_be_complete_in_time() -> None:
    fault, _ = await failure(chunk({"content": "I"}), STALL, total=0.05, idle=30.0)
    assert (fault.code, fault.message) == ("llm.timeout", "The model's answer was not complete after 0.05 s.")


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with FakeModels([END]) as fake:
        gone = endpoint(fake)
    with pytest.raises(StepError) as raised:
        await Asking().of(gone)
    assert (raised.value.code, raised.value.retriable) == ("llm.unavailable", True)


@pytest.mark.parametrize("args", ["", "{", "[1]", '"x"', '{"q": 1}'])
async def test_calls_with_wrong_arguments_are_faults_and_not_calls(args: str) -> None:
    async with FakeModels(spoken(Answer("", "", (("search", args), ("nobody", "{}"))))) as fake:
        turn, _ = await Asking().of(endpoint(fake), tools=(SEARCH,))
    found = turn.call_faults(SCHEMAS)
    assert "call_1" in found, "there is no such tool"
    assert ("call_0" in found) == bool(args), "no arguments are an empty object"


# --- connections -----------------------------------------------------------------------------------------------------


async def test_comments_that_keep_a_stream_open_are_signs_of_life() -> None:
    waits = [Raw(b": keep-alive\n\n"), Later(0.06)] * 5
    async with FakeModels([*waits, *spoken(Answer("After a queue."))]) as fake:
        turn, _ = await Asking().of(endpoint(fake, idle=0.2))
        assert turn.text == "After a queue."
        with pytest.raises(StepError, match=r"not complete after 0\.1 s"):
            await Asking().of(endpoint(fake, idle=0.2, total=0.1))


async def test_answers_come_over_one_warm_connection() -> None:
    asking = Asking(keep=True)
    async with FakeModels(spoken(Answer("Here."))) as fake:
        for _ in range(3):
            await asking.of(endpoint(fake))
        assert len(fake.connections) == 1
        await asking.providers.close()
    assert fake.opened == 1


async def test_a_redirect_is_followed_within_the_origin_and_told_beyond_it() -> None:
    async with FakeModels([Status(307, {}, {"location": "/v2/chat"})], spoken(Answer("Here."))) as fake:
        turn, _ = await Asking().of(endpoint(fake))
        assert (turn.text, [asked.path for asked in fake.asked]) == ("Here.", ["/v1/chat/completions", "/v2/chat"])
    fault, _ = await failure(Status(307, {}, {"location": "https://elsewhere.example/v1"}))
    assert (fault.code, "https://elsewhere.example/v1" in fault.message) == ("llm.not_configured", True)


async def test_a_query_of_the_address_stays_behind_the_path() -> None:
    async with FakeModels(spoken(Answer("Here."))) as fake:
        await Asking().of(Endpoint("smart", "azure", "m", f"{fake.url}/a%2Fb?api-version=preview", "k"))
    assert fake.asked[0].path == "/v1/a%2Fb/chat/completions?api-version=preview"


@pytest.mark.parametrize(
    "said",
    [
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "After the system message(s), user or tool message(s) must alternate with assistant message(s).",
    ],
)
async def test_a_server_that_wants_turns_is_asked_again_with_neighbours_joined(said: str) -> None:
    refused = Status(400, {"error": {"message": said}})
    messages = (Message("user", "Hello"), Message("user", "are you there?"))
    async with FakeModels([refused], spoken(Answer("Yes."))) as fake:
        turn, _ = await Asking().of(endpoint(fake), messages=messages)
    told = [[each["content"] for each in asked.body["messages"]] for asked in fake.asked]
    assert (turn.text, told) == ("Yes.", [["Hello", "are you there?"], ["Hello\n\nare you there?"]])
    async with FakeModels([refused]) as fake:
        with pytest.raises(StepError, match="must alternate"):
            await Asking().of(endpoint(fake), messages=messages)
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    "said",
    [
        "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with a length of 9 to 40.",
        "Invalid 'input[2].call_id': string too long. Expected a string with a length of 9 to 64.",
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$', with a length of 9",
        "Value 'functions.add:0' at 'messages.2.member.content.1.member.toolUse.toolUseId' failed to satisfy "
        "constraint: Member must have a length of 9",
    ],
)
async def test_a_server_that_wants_short_ids_is_asked_again_with_them(said: str) -> None:
    refused = Status(400, {"object": "error", "message": said, "type": "invalid_function_call", "code": "3280"})
    calls = (Call("call_1", "search", "{}"), Call("D681PevKs", "search", "{}"))
    messages = (
        Message("user", "Hello"),
        Message("assistant", "", calls),
        *(Message("tool", "found", call_id=call.id) for call in calls),
    )
    async with FakeModels([refused], spoken(Answer("Yes."))) as fake:
        turn, _ = await Asking().of(endpoint(fake), messages=messages)
    asked, *results = fake.asked[1].body["messages"][1:]
    own, other = (each["id"] for each in asked["tool_calls"])
    assert turn.text == "Yes."
    assert (len(own), own.isalnum(), other) == (9, True, "D681PevKs")
    assert [each["tool_call_id"] for each in results] == [own, other]
    async with FakeModels([refused]) as fake:
        with pytest.raises(StepError, match="length of 9"):
            await Asking().of(endpoint(fake), messages=messages)
    assert len(fake.asked) == 2


async def test_a_server_that_has_begun_to_answer_is_not_asked_again() -> None:
    asked: list[Request] = []

    class Interrupted(OpenAIProvider):
        async def _pieces(self, request: Request) -> AsyncGenerator[Piece, None]:
            asked.append(request)
            yield CallStart("c1", "pay")
            raise StepError("roles must alternate", code="llm.invalid_request")

    request = Request(Endpoint("m", "openai", "m"), (Message("user", "Pay"),))
    with pytest.raises(StepError, match="must alternate"):
        assert [each async for each in Interrupted().stream(request)] == []
    assert len(asked) == 1


async def test_without_money_another_model_is_asked() -> None:
    unpaid = Status(402, {"error": {"message": "Insufficient Balance"}})
    async with FakeModels([unpaid]) as first, FakeModels(spoken(Answer("Here."))) as second:
        turn, by = await Asking().of(endpoint(first), Endpoint("two", "openai", "m", second.url, "k"))
    assert (turn.text, by.name) == ("Here.", "two")


async def test_an_empty_answer_where_words_are_needed_asks_another_model() -> None:
    async def listen(piece: Piece) -> None:
        pass

    def spent(endpoint: Endpoint, turn: Turn) -> None:
        pass

    async def asked(*fakes: FakeModels, **more: Any) -> Turn:
        providers = Providers()
        try:
            question = Message("user", "Tea?")
            endpoints = [endpoint(each) for each in fakes]
            return (await ask(providers.of, endpoints, lambda each: Request(each, (question,)), listen, spent, **more))[
                0
            ]
        finally:
            await providers.close()

    empty, thinking = spoken(Answer("")), DIALECTS["reasoning_content"](Answer("", "Four, so I say four."))
    async with FakeModels(empty) as first, FakeModels(thinking) as other, FakeModels(spoken(Answer("Here."))) as second:
        assert (await asked(first)).text == ""
        assert (await asked(first, second, may_be_empty=False)).text == "Here."
        for fakes in ((first,), (other, second)):
            with pytest.raises(StepError) as raised:
                await asked(*fakes, may_be_empty=False)
            assert (raised.value.code, raised.value.retriable) == ("llm.empty", True)


async def test_thinking_goes_back_between_the_texts_and_calls_that_came_of_it() -> None:
    thought = [{"type": "reasoning", "id": f"rs_{n}", "encrypted_content": "x"} for n in (1, 2)]
    said = {"type": "message", "content": [{"type": "output_text", "text": "I search."}]}
    call = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "search", "arguments": '{"q": "tea"}'}
    response = {"status": "completed", "output": [thought[0], said, thought[1], call]}
    acts: list[Act] = [Said({"type": "response.completed", "response": response}), END]
    async with FakeModels(acts) as fake:
        turn, _ = await Asking().of(endpoint(fake, api="responses"), tools=(SEARCH,))
    assert turn.finish is not None
    back = Message("assistant", turn.text, turn.calls, opaque=turn.finish.opaque)
    body = await body_of({"messages": (back, Message("tool", "1", call_id="c1"))}, api="responses")
    assert [item.get("id", item.get("type", "text")) for item in body["input"]] == [
        "rs_1", "text", "rs_2", "function_call", "function_call_output",
    ]  # fmt: skip


# --- others -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "acts", [[Status(500, {})], [Status(429, {})], [STALL], [CUT], [DONE, END], [Status(401, {})]], ids=str
)
async def test_another_model_is_asked_where_the_first_does_not_begin(acts: list[Act]) -> None:
    asking = Asking()
    async with FakeModels(acts) as first, FakeModels(spoken(Answer("Here."))) as second:
        one = Endpoint("one", "openai", "m", first.url, "k", idle=0.2)
        turn, by = await asking.of(one, Endpoint("two", "openai", "m", second.url, "k"))
    assert (turn.text, by.name, [name for name, _ in asking.spent]) == ("Here.", "two", ["two"])


@pytest.mark.parametrize("acts", [[chunk({"content": "I"}), CUT], [Status(400, {})], [chunk({}, reason="length"), END]])
async def test_no_fallback_follows_a_first_piece_or_a_fault_it_would_share(acts: list[Act]) -> None:
    async with FakeModels(acts) as first, FakeModels(spoken(Answer("Here."))) as second:
        with pytest.raises(StepError):
            await Asking().of(endpoint(first), endpoint(second))
    assert second.asked == []


async def test_a_code_of_thousands_of_digits_hides_no_words_of_a_fault() -> None:
    report = json.dumps({"error": {"code": "9" * 5000, "message": "busy"}})
    async with FakeModels([Raw(f"data: {report}\n\n".encode()), END]) as fake:
        with pytest.raises(StepError, match="busy"):
            await Asking().of(endpoint(fake))


async def test_marks_of_the_end_with_something_else_behind_them_are_told_at_once() -> None:
    text = 'DONE"|"' * 12 + "x"
    started = time.process_time()
    async with FakeModels([Raw(f"data: {text}\n\n".encode()), END]) as fake:
        with pytest.raises(StepError):
            await Asking().of(endpoint(fake))
    assert time.process_time() - started < 1


async def test_a_stream_of_another_shape_is_an_answer_that_broke_off() -> None:
    async def shapeless() -> AsyncIterator[Piece]:
        yield Text("It ")
        raise AttributeError("'int' object has no attribute 'get'")

    with pytest.raises(StepError) as error:
        async for _ in limit_time(shapeless(), Endpoint("m", "openai", "m")):
            pass
    assert error.value.code == "llm.truncated"


async def test_a_reader_that_takes_its_time_is_no_model_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = 0
    loop = asyncio.get_running_loop()
    call_at = loop.call_at

    def counted(*arguments: Any, **options: Any) -> asyncio.TimerHandle:
        nonlocal timers
        timers += 1
        return call_at(*arguments, **options)

    async def quick() -> AsyncIterator[Piece]:
        for number in range(100):
            yield Text(str(number))

    monkeypatch.setattr(loop, "call_at", counted)
    heard = []
    async for piece in limit_time(quick(), Endpoint("m", "openai", "m", idle=0.02)):
        heard.append(piece)
        if len(heard) == 50:
            released = loop.create_future()
            loop.call_later(0.1, released.set_result, None)
            await released
    assert len(heard) == 100
    assert timers < 10, "one timer serves all pieces"


async def test_the_wait_for_a_later_piece_has_its_own_time() -> None:
    async def stalls() -> AsyncIterator[Piece]:
        yield Text("It ")
        await asyncio.Event().wait()

    async def hear(idle: float, total: float) -> str:
        with pytest.raises(StepError) as error:
            async for _ in limit_time(stalls(), Endpoint("m", "openai", "m", idle=idle, total=total)):
                pass
        return error.value.message

    assert "0.03" in await hear(0.03, 60)
    assert await hear(60, 0.03) == "The model's answer was not complete after 0.03 s."


async def test_an_attempt_that_is_cancelled_while_a_piece_is_late_is_cancelled() -> None:
    """Both at once: the wait is cut off, and whoever stops the attempt is heard."""
    begun = asyncio.Event()

    async def stalls() -> AsyncIterator[Piece]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            attempt.cancel()
        yield Text("")

    async def hear() -> None:
        async for _ in limit_time(stalls(), Endpoint("m", "openai", "m", idle=0.02)):
            pass

    attempt = asyncio.ensure_future(hear())
    await begun.wait()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert attempt.cancelled()
