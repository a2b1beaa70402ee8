"""Responses and Messages as other servers than their makers' write them."""

from __future__ import annotations

from typing import Any, Final

from tests.foreign.chats import ADDED, HI
from tests.foreign.transcripts import DONE, Failed, Said, Transcript, document, event, stream
from tests.foreign.typed import ADDING, BEGIN, TEXT, TOOL, completed, delta, ended, grow, item, start, stop

Json = Any

HI_YOU: Final = Said("Hi you")


def responses(name: str, *events: Json, meaning: Said | Failed) -> Transcript:
    return Transcript(f"responses gateway: {name}", stream(*events), meaning, protocol="responses")


def messages(name: str, *events: Json, meaning: Said | Failed, status: int = 200, **headers: str) -> Transcript:
    body = events[0] if isinstance(events[0], bytes) else stream(*events)
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Transcript(f"anthropic gateway: {name}", body, meaning, protocol="messages", status=status, headers=named)


def piece(args: str, **more: Json) -> str:
    return event("response.function_call_arguments.delta", delta=args, **{"item_id": "fc", "output_index": 0, **more})


def done(**more: Json) -> str:
    return event("response.output_item.done", output_index=0, item=item(**more))


def failed(code: str, message: str) -> str:
    return event("response.failed", response={"status": "failed", "error": {"code": code, "message": message}})


def thinking(*events: str) -> list[str]:
    return [*events, delta("Hi you"), completed()]


HM: Final = Said("Hi you", thinking="Hm.")

RESPONSES: Final = [
    *(
        responses(f"thinking as {name}", *thinking(*events), meaning=HM)
        for name, events in {
            "reasoning_text, said twice": [
                event("response.reasoning_text.delta", item_id="rs", output_index=0, delta="Hm."),
                event("response.reasoning_text.done", item_id="rs", output_index=0, text="Hm."),
            ],
            "reasoning_text only when it is done": [
                event("response.reasoning_text.done", item_id="rs", output_index=0, text="Hm.")
            ],
            "a summary only when it is done": [
                event("response.reasoning_summary_text.done", item_id="rs", output_index=0, text="Hm.")
            ],
            "a part of a summary when it is done": [
                event(
                    "response.reasoning_summary_part.done", item_id="rs", part={"type": "summary_text", "text": "Hm."}
                )
            ],
            "reasoning": [event("response.reasoning.delta", item_id="rs", delta="Hm.")],
            "reasoning, as an object": [event("response.reasoning.delta", item_id="rs", delta={"text": "Hm."})],
            "reasoning_summary": [event("response.reasoning_summary.delta", item_id="rs", delta={"text": "Hm."})],
            "an item whose summary is text": [
                event(
                    "response.output_item.done",
                    output_index=0,
                    item={"id": "rs", "type": "reasoning", "summary": "Hm."},
                )
            ],
            "an item whose content is text": [
                event(
                    "response.output_item.done",
                    output_index=0,
                    item={"id": "rs", "type": "reasoning", "summary": [], "content": "Hm."},
                )
            ],
        }.items()
    ),
    responses("a delta as an object", delta({"text": "Hi you"}), completed(), meaning=HI_YOU),  # type: ignore[arg-type]
    responses("an event twice, with one number",
        event("response.created", sequence_number=0), event("response.in_progress", sequence_number=1),
        delta("Hi ", sequence_number=4), delta("Hi ", sequence_number=4), delta("you", sequence_number=5),
        completed(TEXT), meaning=HI_YOU),
    responses("a piece of arguments twice, with one number",
        event("response.created", sequence_number=0), event("response.in_progress", sequence_number=1), ADDING,
        piece(HI[:5], sequence_number=4), piece(HI[:5], sequence_number=4), piece(HI[5:], sequence_number=5), done(),
        completed(item()), meaning=ADDED),
    responses("a stream that begins again behind a lost connection",
        event("response.created", sequence_number=0), ADDING.replace('"type"', '"sequence_number": 1, "type"'),
        piece(HI[:5], sequence_number=2), piece(HI[5:], sequence_number=3),
        ADDING.replace('"type"', '"sequence_number": 1, "type"'), piece(HI[:5], sequence_number=2),
        piece(HI[5:], sequence_number=3), done(), completed(item()), meaning=ADDED),
    responses("numbers that begin anew for each item",
        delta("ha", sequence_number=0), delta("ha", sequence_number=1), event("x", sequence_number=0),
        delta("ha", sequence_number=1), completed(), meaning=Said("hahaha")),
    responses("another id in every event",
        event("response.reasoning_summary_text.delta", item_id="r1", output_index=0, delta="Hm."),
        event("response.output_item.done", output_index=0,
            item={"id": "r2", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}),
        delta("Hi ", item_id="m1", output_index=1), delta("you", item_id="m2", output_index=1),
        event("response.output_text.done", item_id="m3", output_index=1, text="Hi you"),
        event("response.output_item.done", output_index=1, item={**TEXT, "id": "m4"}),
        event("response.output_item.added", output_index=2, item=item("", id="f1")),
        piece(HI[:5], item_id="f2", output_index=2), piece(HI[5:], item_id="f3", output_index=2),
        event("response.output_item.done", output_index=2, item=item(id="f4")),
        completed({"id": "r5", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {**TEXT, "id": "m5"}, item(id="f5")),
        meaning=Said("Hi you", calls=ADDED.calls, thinking="Hm.")),
    responses("one index for all items",
        delta("Hi ", item_id="a"), event("response.output_text.done", item_id="a", output_index=0, text="Hi "),
        delta("you", item_id="b"), event("response.output_text.done", item_id="b", output_index=0, text="you"),
        completed({**TEXT, "id": "a", "content": "Hi "}, {**TEXT, "id": "b", "content": "you"}), meaning=HI_YOU),
    responses("incomplete by its name alone",
        event("response.output_item.done", output_index=0, item=item()), event("response.incomplete", response={}),
        meaning=Failed("llm.truncated", "max_tokens")),
    responses("one number for all events",
        delta("Hi ", sequence_number=0), delta("you", sequence_number=0), completed(), meaning=HI_YOU),
    responses("the content of a message as text", completed({**TEXT, "content": "Hi you"}), meaning=HI_YOU),
    responses("parts called `text`",
        completed({**TEXT, "content": [{"type": "text", "text": "Hi you"}]}), meaning=HI_YOU),
    responses("parts that are text", completed({**TEXT, "content": ["Hi you"]}), meaning=HI_YOU),
    responses("nulls among its items", completed(None, TEXT), meaning=HI_YOU),
    responses("text when its part begins",
        event("response.content_part.added", item_id="m", output_index=0, content_index=0,
            part={"type": "output_text", "text": ""}),
        delta("Hi you"),
        event("response.content_part.done", item_id="m", output_index=0, content_index=0,
            part={"type": "output_text", "text": "Hi you"}),
        completed(), meaning=HI_YOU),
    responses("text only when its part is done",
        event("response.content_part.done", item_id="m", output_index=0, content_index=0,
            part={"type": "output_text", "text": "Hi you"}),
        completed(), meaning=HI_YOU),
    responses("the end twice", delta("Hi you"), completed(TEXT), completed(TEXT), DONE, meaning=HI_YOU),
    responses("an output that is null",
        delta("Hi you"), event("response.completed", response={"status": "completed", "output": None, "usage": None}),
        meaning=HI_YOU),
    responses("an end without a response", delta("Hi you"), event("response.completed"), DONE, meaning=HI_YOU),
    responses("an end that says it is incomplete",
        delta("Hi"), event("response.completed", response={"status": "incomplete", "output": []}),
        meaning=Failed("llm.truncated", "max_tokens")),
    responses("incomplete without details",
        ADDING, event("response.incomplete", response={"status": "incomplete", "incomplete_details": None}),
        meaning=Failed("llm.truncated", "max_tokens")),
    responses(
        "arguments as an object",
        event("response.output_item.done", output_index=0, item=item() | {"arguments": {"text": "hi"}}),
        completed(),
        meaning=ADDED,
    ),  # type: ignore[arg-type]
    responses("a name only when the call is done",
        event("response.output_item.added", output_index=0, item=item("", name=None)), piece(HI), done(),
        completed(item()), meaning=ADDED),
    responses("a call without `call_id`",
        event("response.output_item.added", output_index=0, item=item("", call_id=None)), piece(HI), done(call_id=None),
        completed(item(call_id=None)), meaning=ADDED),
    responses("a call without any id",
        event("response.output_item.added", output_index=0, item=item("", call_id=None, id=None)),
        piece(HI, item_id=None), done(call_id=None, id=None), completed(item(call_id=None, id=None)), meaning=ADDED),
    responses("pieces in front of their call", piece(HI), ADDING, done(), completed(item()), meaning=ADDED),
    responses("nulls as pieces", ADDING, piece(None), piece(HI), done(), completed(item()), meaning=ADDED),  # type: ignore[arg-type]
    responses("two calls whose pieces alternate, by index alone",
        event("response.output_item.added", output_index=0, item=item("", id=None, call_id="a")),
        event("response.output_item.added", output_index=1, item=item("", id=None, call_id="b")),
        piece(HI[:5], item_id=None), piece('{"text": ', item_id=None, output_index=1), piece(HI[5:], item_id=None),
        piece('"yo"}', item_id=None, output_index=1),
        completed(item(id=None, call_id="a"), item('{"text": "yo"}', id=None, call_id="b")),
        meaning=Said(calls=(("add", {"text": "hi"}), ("add", {"text": "yo"})))),
    responses("two calls with one empty item id",
        event("response.output_item.done", output_index=0, item=item(id="", call_id="a")),
        event("response.output_item.done", output_index=1, item=item('{"text": "yo"}', id="", call_id="b")),
        completed(), meaning=Said(calls=(("add", {"text": "hi"}), ("add", {"text": "yo"})))),
    responses("a call that is incomplete in a whole answer",
        ADDING, piece(HI[:5]), done(args=HI[:5], status="incomplete"), completed(item(HI[:5], status="incomplete")),
        meaning=Failed("llm.truncated", "", True)),
    responses("signs of life",
        event("keepalive", sequence_number=1), "event: ping\ndata: ping\n\n", event("ping"), delta("Hi you"),
        event("response.metadata", x=1), completed(), meaning=HI_YOU),
    responses("a search of the provider beside the text",
        event("response.output_item.done", output_index=0,
            item={"id": "ws", "type": "web_search_call", "status": "completed"}),
        delta("Hi you"), completed(), meaning=HI_YOU),
    responses("a call of the provider's own server",
        event("response.output_item.done", output_index=0,
            item={"id": "mcp", "type": "mcp_call", "name": "add", "arguments": HI, "output": "done"}),
        delta("Hi you"), completed(), meaning=HI_YOU),
    responses("refused in a whole message",
        completed({**TEXT, "content": [{"type": "refusal", "refusal": "No."}]}), meaning=Failed("llm.refused", "No.")),
    responses("too long",
        failed("context_length_exceeded", "Your input exceeds the context window"),
        meaning=Failed("llm.context_exceeded", "exceeds")),
    responses("out of money",
        failed("insufficient_quota", "You exceeded your current quota"), meaning=Failed("llm.rate_limited", "quota")),
    responses("too many, with a wait",
        failed("rate_limit_exceeded", "Rate limit is exceeded. Try again in 21 seconds."),
        meaning=Failed("llm.rate_limited", "exceeded", True, 21.0)),
    responses("an error within the event",
        event("error", error={"type": "server_error", "code": "server_error", "message": "Broken"}),
        meaning=Failed("llm.unavailable", "Broken", True)),
    responses("failed without an error",
        event("response.failed", response={"status": "failed", "error": None}),
        meaning=Failed("llm.unavailable", "", True)),
    responses("an error behind the pieces",
        delta("Hi"), 'data: {"error": {"message": "upstream reset", "code": 502}}\n\n',
        meaning=Failed("llm.unavailable", "upstream reset", True)),
]  # fmt: skip

HI_BLOCK: Final = (start(0, type="text", text=""), grow(0, type="text_delta", text="Hi you"), stop(0))
CALL_BLOCK: Final = (start(0, **TOOL, input={}), grow(0, type="input_json_delta", partial_json=HI), stop(0))
SAID: Final = Said("Hi you", usage=(5, 1))
CALLED: Final = Said(calls=ADDED.calls, usage=(5, 1))

MESSAGES: Final = [
    messages("no `message_stop`",
        BEGIN, *CALL_BLOCK, event("message_delta", delta={"stop_reason": "tool_use"}),
        meaning=Failed("llm.truncated", "ended before", True)),
    messages("no reason, though its mark", BEGIN, *HI_BLOCK, ended(None), meaning=SAID),
    messages("no reason, though its mark, behind a call", BEGIN, *CALL_BLOCK, ended(None), meaning=CALLED),
    messages("the context is full",
        BEGIN, *HI_BLOCK, ended("model_context_window_exceeded"), meaning=Failed("llm.truncated", "max_tokens")),
    messages("a sequence that stops", BEGIN, *HI_BLOCK, ended("stop_sequence"), meaning=SAID),
    messages("a call that ends with `end_turn`", BEGIN, *CALL_BLOCK, ended("end_turn"), meaning=CALLED),
    messages("tools of the provider, which are not ours to call",
        BEGIN, start(0, type="server_tool_use", id="srv", name="add", input={}),
        grow(0, type="input_json_delta", partial_json=HI), stop(0),
        start(1, type="web_search_tool_result", tool_use_id="srv", content=[]), stop(1),
        start(2, type="mcp_tool_use", id="m", name="add", server_name="s", input={"text": "no"}), stop(2),
        start(3, type="text", text=""), grow(3, type="text_delta", text="Hi you"), stop(3), ended("end_turn"),
        meaning=SAID),
    messages("text in the start of its block",
        BEGIN, start(0, type="text", text="Hi "), grow(0, type="text_delta", text="you"), stop(0), ended("end_turn"),
        meaning=SAID),
    messages("thinking in the start of its block",
        BEGIN, start(0, type="thinking", thinking="Hm."), stop(0), start(1, type="text", text="Hi you"), stop(1),
        ended("end_turn"), meaning=Said("Hi you", thinking="Hm.", usage=(5, 1))),
    messages("thinking that nobody can read",
        BEGIN, start(0, type="redacted_thinking", data="x"), stop(0), start(1, type="text", text="Hi you"), stop(1),
        ended("end_turn"), meaning=SAID),
    messages("thinking without a start",
        BEGIN, grow(0, type="thinking_delta", thinking="Hm."), start(1, type="text", text="Hi you"), stop(1),
        ended("end_turn"), meaning=Said("Hi you", thinking="Hm.", usage=(5, 1))),
    messages("text without a start", BEGIN, grow(0, type="text_delta", text="Hi you"), ended("end_turn"), meaning=SAID),
    messages("input as text", BEGIN, start(0, **TOOL, input=HI), stop(0), ended("tool_use"), meaning=CALLED),
    messages("input that is null, and pieces that are",
        BEGIN, start(0, **TOOL, input=None), grow(0, type="input_json_delta", partial_json=None),
        grow(0, type="input_json_delta", partial_json=HI), stop(0), ended("tool_use"), meaning=CALLED),
    messages("a call twice",
        BEGIN, *CALL_BLOCK, start(1, **TOOL, input={"text": "hi"}), stop(1), ended("tool_use"), meaning=CALLED),
    messages("blocks without indexes",
        BEGIN, *(each.replace('"index": 0, ', "") for each in CALL_BLOCK), ended("tool_use"), meaning=CALLED),
    messages("two ends, the second with the tokens",
        BEGIN, *HI_BLOCK, event("message_delta", delta={"stop_reason": "end_turn"}),
        event("message_delta", delta={}, usage={"input_tokens": 5, "output_tokens": 2}), event("message_stop"),
        meaning=Said("Hi you", usage=(5, 2))),
    messages("a start without usage",
        event("message_start", message={"id": "m"}), *HI_BLOCK, ended("end_turn"), meaning=HI_YOU),
    messages("a start that is null",
        event("message_start", message=None), *HI_BLOCK, ended("end_turn"), meaning=HI_YOU),
    messages("`[DONE]` behind it", BEGIN, *HI_BLOCK, ended("end_turn"), DONE, meaning=SAID),
    messages("events of others",
        BEGIN, event("ping"), event("vertex_event"), "event: ping\ndata: ping\n\n", 'data: {"type": "ping"}\n\n',
        *HI_BLOCK, ended("end_turn"), meaning=SAID),
    messages("citations",
        BEGIN, start(0, type="text", text="", citations=[]),
        grow(0, type="citations_delta", citation={"cited_text": "x"}), grow(0, type="text_delta", text="Hi you"),
        stop(0), ended("end_turn"), meaning=SAID),
    messages("too many, in the stream",
        BEGIN, event("error", error={"type": "rate_limit_error", "message": "This would exceed your rate limit"}),
        meaning=Failed("llm.rate_limited", "exceed", True)),
    messages("an error as a chat has it",
        BEGIN, 'data: {"error": {"message": "no such model", "code": "model_not_found"}}\n\n',
        meaning=Failed("llm.not_configured", "no such model")),
    messages("an error as text",
        document({"error": "invalid x-api-key"}), meaning=Failed("llm.not_configured", "x-api-key"), status=401),
    messages("too large for its door",
        document(
            {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
        meaning=Failed("llm.context_exceeded", "maximum size"), status=413),
    messages("a wait in its headers",
        document({"type": "error", "error": {"type": "rate_limit_error", "message": "Slow"}}),
        meaning=Failed("llm.rate_limited", "Slow", True, 7.0), status=429, retry_after="7"),
    messages("the content of a whole message as text",
        document({"type": "message", "content": "Hi you", "stop_reason": "end_turn"}), meaning=HI_YOU),
    messages("a chat in its place",
        document({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}),
        meaning=Failed("llm.truncated", "", True)),
]  # fmt: skip

ALL: Final = [*RESPONSES, *MESSAGES]
