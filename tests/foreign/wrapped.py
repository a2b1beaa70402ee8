"""Answers and faults of gateways in their own wrappings, and calls whose pieces are addressed oddly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from tests.foreign.chats import ADDED, HI
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

Json = Any

CALLED: Final = end("tool_calls")
NO_MODEL: Final = Failed("llm.not_configured", "The model x does not exist")
UNPAID: Final = Failed("llm.rate_limited")
_SENTENCE: Final = "The model x does not exist"
_WHOLE: Final = {"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]}


def wrapped(name: str, body: bytes, meaning: Said | Failed, status: int = 200, **more: Json) -> Transcript:
    return Transcript(f"wrapped: {name}", body, meaning, status=status, **more)


ANSWERS: Final = [
    wrapped(
        "in `data`, beside a code of success", document({"code": 0, "message": "ok", "data": _WHOLE}), Said("Hello")
    ),
    wrapped("each event in `result`", stream(*({"result": each} for each in (*text("Hi"), end())), DONE), Said("Hi")),
    wrapped("behind a byte order mark", b"\xef\xbb\xbf" + document(_WHOLE), Said("Hello")),
    wrapped(
        "nothing but signs that nobody sees",
        stream(*text("\u200b", "\ufeff \n"), end(), DONE),
        Failed("llm.empty", "", True),
    ),
    wrapped(
        "a last chunk without a choice says that all is well",
        stream(*text("Hi"), end(), chunk(code=200, message="success"), DONE),
        Said("Hi"),
    ),
]

ANSWERS.append(
    wrapped(
        "an event in two lines that end with CR LF",
        b'data: {"choices": [{"index": 0,\r\ndata: "delta": {"content": "Hi"}, "finish_reason": "stop"}]}\r\n\r\n',
        Said("Hi"),
    )
)

ANSWERS.append(
    wrapped(
        "text only in `output_text` of the completed response",
        stream(event("response.completed", response={"status": "completed", "output_text": "Hello"})),
        Said("Hello"),
        protocol="responses",
    )
)

CALLS: Final = [
    wrapped("arguments encoded three times behind themselves",
        stream(call(0, "c", "add", HI), call(0, args=json.dumps(json.dumps(HI))), CALLED, DONE), ADDED),
    wrapped("the index counts the pieces of a call",
        stream(call(0, "c", "add", '{"te'), call(1, "c", None, 'xt": "hi"}'), CALLED, DONE), ADDED),
    wrapped("a call again at another index, without its name",
        stream(call(0, "c", "add", HI), call(1, "c", None, HI), CALLED, DONE), ADDED),
    wrapped("another call under an id that is known, without a name",
        stream(call(0, "c", "add", HI), call(1, "c", None, '{"text": "ho"}'), CALLED, DONE),
        Failed("llm.truncated", "contradicts itself", True)),
    wrapped("the name in the namespace of a template",
        stream(call(0, "functions.add:0", "functions.add", HI), CALLED, DONE), ADDED),
    wrapped("a namespace in which there is no such function",
        stream(call(0, "c", "functions.none", HI), CALLED, DONE), Said(calls=(("functions.none", {"text": "hi"}),))),
    wrapped("arguments of a call that name neither it nor its item",
        stream(event("response.output_item.added",
            item={"type": "function_call", "id": "f", "call_id": "c", "name": "add", "arguments": ""}),
            event("response.function_call_arguments.delta", delta=HI),
            event("response.function_call_arguments.done", arguments=HI),
            event("response.completed", response={"status": "completed", "output": []})),
        ADDED, protocol="responses"),
]  # fmt: skip

FAULTS: Final = [
    wrapped(f"a fault as {name}, {form}", write(body), meaning)
    for name, body, meaning in (
        ("`err`", {"err": {"message": _SENTENCE}}, NO_MODEL),
        ("`Error`", {"Error": {"Code": "NotFound", "Message": _SENTENCE}}, NO_MODEL),
        ("`exception`", {"exception": _SENTENCE}, NO_MODEL),
        ("no choice and a message", {"choices": [], "message": _SENTENCE, "code": 404}, NO_MODEL),
        (
            "a member that nobody knows",
            {"status": "error", "outcome": {"words": _SENTENCE}},
            Failed("llm.truncated", _SENTENCE, True),
        ),
    )
    for form, write in (("a document", document), ("an event", lambda body: stream(body, DONE)))
]
FAULTS.append(wrapped("a sentence as the first event", f"data: Error: {_SENTENCE}\n\n".encode(), NO_MODEL))

MONEY: Final = [
    wrapped(
        "out of money, as a page",
        b"<html><title>Payment required</title></html>",
        Failed("llm.rate_limited", "Payment required"),
        402,
    ),
    wrapped(
        "a free tier that is used up",
        document({"code": "AllocationQuota.FreeTierOnly", "message": "The free tier of the model has been exhausted."}),
        UNPAID,
        403,
    ),
    wrapped(
        "a balance that is insufficient",
        document({"code": 30001, "message": "Sorry, your account balance is insufficient"}),
        UNPAID,
        403,
    ),
]

LENGTH: Final = [
    wrapped(f"too long: {words}", document({"error": {"message": words}}), Failed("llm.context_exceeded"), 400)
    for words in (
        "tokens in request more than max tokens allowed",
        "the prompt exceeds max_seq_len",
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
        "This model supports at most 8192 tokens, whereas you provided 9000",
        "messages token length must be in (0, 65536]",
        "the message is longer than the context of the model",
        "提示词过长",
        "L'entrée dépasse la longueur de contexte maximale",
        "コンテキスト長を超えています",
        "トークン数が上限を超えています",
        "對話內容太長，請縮短",
        "請求內容超過模型的上下文長度上限",
        "입력이 너무 깁니다",
        "Слишком длинный запрос",
        "Die Eingabe ist zu lang für dieses Modell",
        "El mensaje es demasiado largo",
        "La demande dépasse la longueur maximale du contexte",
        "Conversation is over the maximum number of tokens",
        "This request would use 12000 tokens, which is more than the 8000 available",
        "messages resulted in 9000 tokens; the limit is 8192",
        "context shift is disabled",
        "string_above_max_length: Invalid 'messages[1].content': string too long",
        "the length of messages[0] content is too long",
        "The provided prompt is 9000 tokens long, but the maximum supported sequence length is just 8192!",
        "Prompt has 9000 tokens, but the max is 8191",
        "Single text cannot exceed 8194 tokens. 9000 tokens given.",
        "max_tokens must be at least 1, got -300",
        "The sum of input tokens and max_tokens cannot exceed 4096 tokens",
        "'max_tokens' is too large: 2048. This model's maximum context length is 4096 tokens and your request has 3000 "
        "input tokens (2048 > 4096 - 3000).",
    )
]
LENGTH.extend(
    wrapped(f"not too long: {words}", document({"error": {"message": words}}), Failed("llm.invalid_request"), 400)
    for words in (
        "string_above_max_length: Invalid 'tools[0].function.name': string too long, the maximum length is 64",
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for this model",
        "请求数超过限制",
        "max_tokens is too large: 200000. This model supports at most 16384 completion tokens, whereas you gave it.",
        "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the "
        "`context_window` for this model",
        "string_above_max_length: Invalid 'messages[2].tool_calls[0].id': string too long. Expected 40 characters",
        "string_above_max_length: Invalid 'input[2].call_id': string too long. Expected a maximum length of 64",
        "max_tokens cannot exceed 8192 tokens",
        "The description of a tool cannot exceed 1024 tokens",
        "Invalid schema for response_format 'answer': total string length of property names exceeds limit 15000",
    )
)
LENGTH.append(
    wrapped(
        "too long, as a proxy's page",
        b"<html>413 Request Entity Too Large</html>",
        Failed("llm.context_exceeded", "Entity"),
        413,
    )
)

_IN_PROTOCOLS: Final[dict[Protocol, Callable[[str], bytes]]] = {
    "chat": lambda words: stream(*text(*words), end(), DONE),
    "responses": lambda words: stream(
        *(event("response.output_text.delta", item_id="m", delta=each) for each in words),
        event("response.output_text.done", item_id="m", text=words),
        event("response.completed", response={"status": "completed"}),
    ),
}
THOUGHTS: Final = [
    Transcript(f"{name}, {protocol}", write(words), Said(said, thinking="plan"), protocol, reasoning="think_tags")
    for name, words, said in (
        ("tags of one model within another's", "<think>plan</think>\nFour <thinking>.", "Four <thinking>."),
        ("tags of Claude's prompts", "\n\n<thinking>plan</thinking>\n\nFour.", "Four."),
        ("tags of Gemma", "<thought>plan</thought>Four.", "Four."),
        ("tags of Seed", "<seed:think>plan</seed:think>\nFour.", "Four."),
        ("tags of Magistral", "[THINK]plan[/THINK]Four.", "Four."),
        ("tags of Kimi, of which only the last comes", "plan◁/think▷Four.", "Four."),
    )
    for protocol, write in _IN_PROTOCOLS.items()
]

ALL: Final = [*THOUGHTS, *ANSWERS, *CALLS, *FAULTS, *MONEY, *LENGTH]
