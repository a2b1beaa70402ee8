"""Answers as gateways and younger servers write them: their own names for thinking, tokens, ends and faults."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.foreign.chats import ADDED, HI
from tests.foreign.transcripts import DONE, Failed, Said, Transcript, call, chunk, document, end, stream, text, usage

Json = Any

TEXT: Final = text("Hi ", "you")
HI_YOU: Final = Said("Hi you")


def chat(name: str, body: bytes, meaning: Said | Failed, status: int = 200, **headers: str) -> Transcript:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Transcript(f"gateway: {name}", body, meaning, status=status, headers=named)


def thought(**delta: Json) -> bytes:
    return stream(chunk(delta), *TEXT, end(), DONE)


THINKING: Final = [
    chat(f"thinking as {name}", thought(**delta), Said("Hi you", thinking="Hm."))
    for name, delta in {
        "`thinking`": {"thinking": "Hm."},
        "`thinking_content`": {"thinking_content": "Hm."},
        "`thought`": {"thought": "Hm."},
        "`reasoning_text`": {"reasoning_text": "Hm."},
        "an object with `content`": {"reasoning": {"content": "Hm."}},
        "an object with `text`": {"reasoning": {"text": "Hm."}},
        "blocks": {"thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]},
        "text and as blocks": {
            "reasoning_content": "Hm.",
            "thinking_blocks": [{"type": "thinking", "thinking": "Hm."}],
        },
        "`reasoning` and `reasoning_content`": {"reasoning": "Hm.", "reasoning_content": "Hm."},
        "a summary in its details": {"reasoning_details": [{"type": "reasoning.summary", "summary": "Hm."}]},
        "a field of its provider": {"provider_specific_fields": {"reasoning_content": "Hm."}},
        "`reasoning` beside a null": {"reasoning_content": None, "reasoning": "Hm."},
    }.items()
]

TOKENS: Final = [
    chat(f"tokens as {name}", stream(*TEXT, last, DONE), Said("Hi you", usage=(7, 2)))
    for name, last in {
        "`x_groq`": end(x_groq={"id": "req", "usage": usage(7, 2)}),
        "a member of the choice": {
            "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage(7, 2)}]
        },
        "timings": end(timings={"prompt_n": 7, "predicted_n": 2, "predicted_ms": 4.5}),
        "camel case": end(usage={"promptTokens": 7, "completionTokens": 2}),
        "`usageMetadata`": end(usageMetadata={"promptTokenCount": 7, "candidatesTokenCount": 2}),
        "`input_tokens`": end(usage={"input_tokens": 7, "output_tokens": 2}),
        "floats": end(usage={"prompt_tokens": 7.0, "completion_tokens": 2.0}),
        "`meta.tokens`": end(meta={"tokens": {"input_tokens": 7, "output_tokens": 2}}),
        "the counts of Ollama": end(prompt_eval_count=7, eval_count=2),
        "a list": end(usage=[usage(7, 2)]),
        "`metadata.usage`": {"metadata": {"usage": {"inputTokens": 7, "outputTokens": 2}}} | end(),
        "`usage.tokens`": end(usage={"billed_units": {"input_tokens": 5}, "tokens": usage(7, 2)}),
    }.items()
]

ENDS: Final = [
    chat(f"ends with {word!r}", stream(*TEXT, end(word), DONE), meaning)
    for word, meaning in {
        " stop ": HI_YOU,
        "COMPLETE": HI_YOU,
        "StopReason.END_TURN": HI_YOU,
        "end-turn": HI_YOU,
        "end_of_turn": HI_YOU,
        "<|im_end|>": HI_YOU,
        "upstream_error": Failed("llm.unavailable", "upstream_error", True),
        "flagged": Failed("llm.refused"),
        "stop_sequence_reached": Failed("llm.truncated", "stop_sequence_reached", True),
        "ERROR_LIMIT": Failed("llm.truncated", "max_tokens"),
        "USER_CANCEL": Failed("llm.unavailable", "USER_CANCEL", True),
        "TIMEOUT": Failed("llm.unavailable", "TIMEOUT", True),
        "incomplete": Failed("llm.truncated", "incomplete", True),
        "maxTokens": Failed("llm.truncated", "max_tokens"),
        "load": Failed("llm.truncated", "load", True),
        "content-filter": Failed("llm.refused"),
        "IMAGE_PROHIBITED_CONTENT": Failed("llm.refused"),
        "MODEL_ARMOR": Failed("llm.refused"),
        "server_overloaded": Failed("llm.unavailable", "server_overloaded", True),
    }.items()
] + [
    chat(f"its reason is {name}", stream(*TEXT, last), meaning)
    for name, last, meaning in (
        ("`finishReason`", {"choices": [{"index": 0, "delta": {}, "finishReason": "STOP"}]}, HI_YOU),
        ("`stop_reason`", {"choices": [{"index": 0, "delta": {}, "stop_reason": "end_turn"}]}, HI_YOU),
        ("in the delta", chunk({"finish_reason": "stop"}), HI_YOU),
        ("beside the choice", chunk({}, finish_reason="length"), Failed("llm.truncated", "max_tokens")),
        (
            "the text that stopped it",
            {"choices": [{"index": 0, "delta": {}, "finish_reason": None, "stop_reason": "###"}]},
            Failed("llm.truncated", "ended before", True),
        ),
    )
]

BROKEN: Final = Failed("llm.truncated", "ended before", True)
LONG: Final = Failed("llm.truncated", "max_tokens")
_MESSAGE: Final[Any] = {"choices": [{"message": {"content": "Hi you"}}]}
_CALLING: Final = {
    "choices": [{"message": {"tool_calls": [{"id": "c", "function": {"name": "add", "arguments": HI}}]}}]
}
EVENTS: Final = [
    chat("signs of life between the pieces",
        stream(":\n\n", ": OPENROUTER PROCESSING\n\n", "event: ping\ndata: \n\n", "event: ping\ndata: ping\n\n",
            'event: heartbeat\ndata: {"time": 1}\n\n', "data: null\n\n", "data: {}\n\n", 'data: {"type": "ping"}\n\n',
            *TEXT, end(), DONE),
        HI_YOU),
    chat(
        "`data:` written twice",
        stream(
            *(
                "data: data: " + each[6:]
                for each in stream(*TEXT, end()).decode().split("\n\n")[:-1]
                for each in [each + "\n\n"]
            ),
            DONE,
        ),
        HI_YOU,
    ),
    *(
        chat(f"its mark of the end is {mark!r}", stream(*TEXT, f"data: {mark}\n\n"), HI_YOU)
        for mark in ("[done]", '"[DONE]"', "[DONE] ", "DONE", "<|DONE|>", "[DONE][DONE]", '{"done": true}')
    ),
    *(
        chat(f"its mark of the end is the event {mark!r}", stream(*TEXT, f"{mark}\n\n"), HI_YOU)
        for mark in ("[DONE]", "event: done\ndata: {}", "event: end\ndata:", "event: Completed")
    ),
    chat("an end that says more is none",
        stream(*TEXT, 'event: end\ndata: {"why": "x"}\n\n'), Failed("llm.truncated", again=True)),
    *(
        chat(f"a fault in its status, {status!r}", document({"status": status, "title": "Busy"}), meaning)
        for status, meaning in (
            ("error", Failed("llm.unavailable", "Busy", True)),
            (429, Failed("llm.rate_limited", "Busy", True)),
        )
    ),
    chat("a name with blanks around it",
        stream(call(0, "c", " ping ", "{}"), end("tool_calls"), DONE), Said(calls=(("ping", {}),))),
    chat("choices are null, or hold null",
        stream(chunk() | {"choices": None}, {"choices": [None]}, *TEXT, end(), DONE), HI_YOU),
    chat("a delta that is null", stream({"choices": [{"index": 0, "delta": None}]}, *TEXT, end(), DONE), HI_YOU),
    chat("a delta that is text", stream({"choices": [{"index": 0, "delta": "Hi you"}]}, end(), DONE), HI_YOU),
    chat("content as an object", stream(chunk({"content": {"type": "text", "text": "Hi you"}}), end(), DONE), HI_YOU),
    chat("content in `text` of the choice",
        stream({"choices": [{"index": 0, "text": "Hi you", "finish_reason": "stop"}]}, DONE), HI_YOU),
    chat("the end in a chunk in front of the last piece", stream(*text("Hi "), end(), *text("you"), DONE), HI_YOU),
    chat("the answer below `data`",
        document({"code": 0, "data": {"choices": [{"message": {"content": "Hi you"}, "finish_reason": "stop"}]}}),
        HI_YOU),
    *(
        chat(f"an answer without a reason, {name}", body, HI_YOU)
        for name, body in (
            ("in one document", document({"choices": [{"message": {"content": "Hi you"}}]})),
            ("in the body of a function", document({"body": '{"choices": [{"message": {"content": "Hi you"}}]}'})),
        )
    ),
    *(
        chat(f"{len(lines)} lines without a reason: {name}", b"".join(document(each) + b"\n" for each in lines), BROKEN)
        for name, lines in (
            ("a text", [_MESSAGE]),
            ("two texts", [_MESSAGE, {"choices": [{"message": {"content": "Hi you, but"}}]}]),
            ("a call", [_CALLING]),
            ("two calls", [_CALLING, _CALLING]),
            ("a call, and tokens", [_CALLING, {"choices": [], "usage": usage(7, 2)}]),
        )
    ),
    chat("a call, and its reason in the next line",
        document(_CALLING) + b"\n" + document({"choices": [{"message": {}, "finish_reason": "stop"}]}), ADDED),
    chat("a call in one document without a reason", document(_CALLING), BROKEN),
    *(
        chat(f"a reason of {none!r} beside another one", document({"choices": [choice]}), LONG)
        for none in ("", "null", None)
        for choice in [_MESSAGE["choices"][0] | {"finish_reason": none, "stop_reason": "length"}]
    ),
    chat("each event encoded twice",
        stream(*(f"data: {json.dumps(json.dumps(each))}\n\n" for each in (*TEXT, end())), DONE), HI_YOU),
    chat("`choices` is one object",
        stream({"choices": {"index": 0, "delta": {"content": "Hi you"}, "finish_reason": "stop"}}, DONE), HI_YOU),
]  # fmt: skip

CALLS: Final = [
    *(
        chat(f"a name as {name!r}", stream(call(0, "c", name, HI), end("tool_calls"), DONE), ADDED)
        for name in ("functions.add:0", "add<|channel|>commentary", "default_api.add", "default_api:add", "add()")
    ),
    *(
        chat(
            f"arguments as {args!r}",
            stream(call(0, "c", "add", args[:11]), call(args=args[11:]), end("tool_calls"), DONE),
            ADDED,
        )
        for args in (f"{HI}<|im_end|>", f"{HI}\n</tool_call>", f"```json\n{HI}\n```")
    ),
    *(
        chat(f"a call as {delta}", stream(chunk(delta), end("tool_calls"), DONE), ADDED)
        for delta in (
            {"toolCalls": [{"id": "c", "function": {"name": "add", "arguments": HI}}]},
            {"tool_call": {"id": "c", "function": {"name": "add", "arguments": HI}}},
            {"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "add", "input": HI}}]},
        )
    ),
    chat("the calls as an object by index",
        stream(chunk({"tool_calls": {"0": {"id": "c", "function": {"name": "add", "arguments": HI}}}}),
            end("tool_calls"), DONE),
        ADDED),
    chat("no arguments, as a list of PHP",
        stream(call(0, "c", "ping", []), end("tool_calls"), DONE), Said(calls=(("ping", {}),))),
    chat("no arguments, as the text of a list",
        stream(call(0, "c", "ping", "[]"), end("tool_calls"), DONE), Said(calls=(("ping", {}),))),
    chat("an id that is a number",
        stream(chunk({"tool_calls": [{"index": 0, "id": 7, "function": {"name": "add", "arguments": HI}}]}),
            end("tool_calls"), DONE),
        ADDED),
    chat("an index that begins at 1",
        stream(call(1, "c", "add", HI[:4]), call(1, None, None, HI[4:]), end("tool_calls"), DONE), ADDED),
    chat("the end in front of the arguments",
        stream(call(0, "c", "add", HI[:4]), end("tool_calls"), call(0, None, None, HI[4:]), DONE), ADDED),
    chat("two calls in one chunk without ids and indexes",
        stream(chunk({"tool_calls": [{"function": {"name": "add", "arguments": HI}},
            {"function": {"name": "ping", "arguments": "{}"}}]}),
            end("tool_calls"), DONE),
        Said(calls=(("add", {"text": "hi"}), ("ping", {})))),
    chat("two calls in two chunks without ids, both at index 0",
        stream(call(0, None, "add", HI), call(0, None, "add", '{"text": "yo"}'), end("tool_calls"), DONE),
        Said(calls=(("add", {"text": "hi"}), ("add", {"text": "yo"})))),
    chat("calls with an end that is `stop`", stream(call(0, "c", "add", HI), end("stop"), DONE), ADDED),
    chat("calls with an end that is a length",
        stream(call(0, "c", "add", HI), end("length"), DONE), Failed("llm.truncated", "max_tokens")),
    chat("a call behind a filter", stream(call(0, "c", "add", HI), end("content_filter"), DONE), Failed("llm.refused")),
]  # fmt: skip

FAULTS: Final = [
    chat("a provider's own error within the error",
        document({"error": {"message": "Provider returned error", "code": 400,
            "metadata": {"raw": '{"error":{"message":"prompt is too long: 9 > 8"}}', "provider_name": "P"}}}),
        Failed("llm.context_exceeded", "prompt is too long: 9 > 8"), 400),
    chat("a list of errors",
        document(
            {"success": False, "errors": [{"code": 7009, "message": "Upstream service unavailable"}], "result": None}),
        Failed("llm.unavailable", "Upstream service unavailable", True)),
    chat("`error_msg`",
        document({"error_code": 17, "error_msg": "Open api daily request limit reached"}),
        Failed("llm.rate_limited", "daily request limit")),
    chat("`base_resp`",
        document({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}),
        Failed("llm.rate_limited", "insufficient balance")),
    chat("`base_resp` of an answer",
        stream({"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}),
        Failed("llm.rate_limited", "rate limit", True)),
    chat("a filter of the request",
        document({"code": "DataInspectionFailed", "message": "Input data may contain inappropriate content."}),
        Failed("llm.refused", "inappropriate"), 400),
    chat("`__type`",
        document({"__type": "ThrottlingException", "message": "Too many tokens, please wait before trying again."}),
        Failed("llm.rate_limited", "Too many tokens", True), 429),
    chat("`Message`",
        document({"Message": "User is not authorized"}), Failed("llm.not_configured", "not authorized"), 403),
    chat("`detail`", document({"detail": "Not authenticated"}), Failed("llm.not_configured", "Not authenticated"), 401),
    chat("a list of details",
        document({"detail": [{"loc": ["body", "messages"], "msg": "Field required", "type": "missing"}]}),
        Failed("llm.invalid_request", "Field required"), 422),
    chat("`fault`",
        document({"fault": {"faultstring": "Rate limit quota violation",
            "detail": {"errorcode": "policies.ratelimit.QuotaViolation"}}}),
        Failed("llm.rate_limited", "quota violation", True), 429),
    chat("`error.error`",
        document({"error": {"error": {"message": "no such deployment"}}}),
        Failed("llm.not_configured", "no such deployment"), 404),
    chat("`title`",
        document({"type": "about:blank", "title": "Service Unavailable", "status": 503}),
        Failed("llm.unavailable", "Service Unavailable", True), 503),
    chat("`error_description`",
        document({"error": "invalid_token", "error_description": "The token has expired"}),
        Failed("llm.not_configured", "The token has expired"), 401),
    chat("an error as text with JSON in it",
        document({"error": '{"message": "CUDA out of memory"}'}), Failed("llm.unavailable", "CUDA out of memory", True),
        500),
    chat("plain text with 200",
        b"upstream connect error or disconnect/reset before headers",
        Failed("llm.unavailable", "upstream connect error", True)),
    chat("an event of plain text",
        stream("event: error\ndata: upstream timed out\n\n"), Failed("llm.unavailable", "upstream timed out", True)),
    chat("an error in the choice",
        stream({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error",
            "error": {"code": 502, "message": "Network connection lost."}}]}),
        Failed("llm.unavailable", "Network connection lost", True)),
    chat("an error as the content's sibling",
        stream(*TEXT, {"choices": [{"index": 0, "delta": {"error": {"message": "boom"}}}]}),
        Failed("llm.unavailable", "boom", True)),
    chat("a provider's own words behind a gateway's",
        document({"error": {"message": "Provider returned error", "code": 502, "metadata": {"raw": "GPU is on fire"}}}),
        Failed("llm.unavailable", "GPU is on fire", True), 502),
    chat("a line of JSON between events",
        stream(*TEXT) + b'{"error": {"message": "worker died"}}\n\n', Failed("llm.unavailable", "worker died", True)),
    chat("a limit of tokens in other words",
        document({"error": {"message": "Input validation error: token limit reached"}}),
        Failed("llm.context_exceeded", "token limit"), 400),
    chat("a page of a proxy with 502",
        b"<html><head><title>502 Bad Gateway</title></head></html>", Failed("llm.unavailable", "502 Bad Gateway", True),
        502),
    chat("nobody waits any more", b"", Failed("llm.unavailable", "499", True), 499),
    chat("a budget that is used up",
        document({"error": {"message": "Budget has been exceeded!", "type": "budget_exceeded", "code": "400"}}),
        Failed("llm.rate_limited", "Budget"), 400),
    chat("nothing with 503", b"", Failed("llm.unavailable", "503", True), 503),
    chat("overloaded, 529",
        document({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        Failed("llm.unavailable", "Overloaded", True), 529),
    chat("a request that is too large for its minute",
        document({"error": {
            "message": "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 7000",
            "type": "tokens", "code": "rate_limit_exceeded"}}),
        Failed("llm.context_exceeded", "Request too large"), 413),
]  # fmt: skip

WAITS: Final = [
    chat(
        f"wait: {name}",
        document({"error": {"message": body}}),
        Failed("llm.rate_limited", "", True, wait),
        429,
        **headers,
    )
    for name, body, wait, headers in (
        ("seconds", "x", 3.0, {"retry_after": "3"}),
        ("milliseconds", "x", 2.5, {"retry_after_ms": "2500"}),
        ("with a unit", "x", 12.0, {"retry_after": "12s"}),
        ("of resets", "x", 90.0, {"x_ratelimit_reset_requests": "1m30s", "x_ratelimit_remaining_requests": "0"}),
        ("of tokens", "x", 0.5, {"x_ratelimit_reset_tokens": "500ms", "x_ratelimit_remaining_tokens": "0"}),
        ("in the sentence", "Please try again in 1m2.5s.", 62.5, {}),
        ("in milliseconds of the sentence", "Please try again in 820ms.", 0.82, {}),
        ("after N seconds", "Rate limit reached. Please retry after 20 seconds.", 20.0, {}),
        ("in words", "Requests have exceeded the limit. Please wait 5 minutes", 300.0, {}),
        ("by two headers", "x", 3.0, {"retry_after": "3, 3"}),
        ("until an instant of ISO 8601", "x", 0.0, {"retry_after": "2015-10-21T07:28:00Z"}),
        ("none that is a number", "x", None, {"retry_after": "soon"}),
        ("one that is over", "x", 0.0, {"retry_after": "-5"}),
    )
]

ALL: Final = [*THINKING, *TOKENS, *ENDS, *EVENTS, *CALLS, *FAULTS, *WAITS]
