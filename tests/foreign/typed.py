"""Protocols whose events have types: OpenAI's Responses (and the servers that speak it), Anthropic's Messages."""

from __future__ import annotations

from typing import Any, Final

from tests.foreign.chats import ADDED, HI
from tests.foreign.transcripts import DONE, Failed, Said, Transcript, document, event, stream

Json = Any


def responses(name: str, body: bytes, meaning: Said | Failed) -> Transcript:
    return Transcript(f"responses: {name}", body, meaning, protocol="responses")


def messages(name: str, body: bytes, meaning: Said | Failed, status: int = 200) -> Transcript:
    return Transcript(f"anthropic: {name}", body, meaning, protocol="messages", status=status)


def item(args: str = HI, **more: Json) -> Json:
    return {"id": "fc", "type": "function_call", "call_id": "c", "name": "add", "arguments": args, **more}


def completed(*output: Json, **more: Json) -> str:
    return event("response.completed", response={"id": "r", "status": "completed", "output": list(output), **more})


ADDING: Final = event("response.output_item.added", output_index=0, item=item(""))
TEXT: Final = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hi you"}],
}


def delta(text: str, **more: Json) -> str:
    fields = {"item_id": "m", "output_index": 0, "content_index": 0, **more}
    return event("response.output_text.delta", delta=text, **fields)


def _bare_delta(text: str, id: str | None = None) -> str:
    return event("response.output_text.delta", delta=text, **({} if id is None else {"item_id": id}))


def done(text: str) -> str:
    return event("response.output_text.done", text=text, item_id="m", output_index=0, content_index=0)


RESPONSES: Final = [
    responses("text in pieces, said again as a whole",
        stream(delta("Hi "), delta("you"),
            event("response.output_text.done", text="Hi you", item_id="m", output_index=0, content_index=0),
            event("response.output_item.done", output_index=0, item=TEXT),
            completed(TEXT, usage={"input_tokens": 4, "output_tokens": 2})),
        Said("Hi you", usage=(4, 2))),
    *(
        responses(
            f"the last piece is the whole text once more, and {name}",
            stream(delta("Tea is "), delta("ready."), delta("Tea is ready."), *last, completed(*output)),
            Said(said),
        )
        for name, last, output, said in (
            ("its text is done", [done("Tea is ready.")], [], "Tea is ready."),
            (
                "its item is done",
                [],
                [{**TEXT, "content": [{"type": "output_text", "text": "Tea is ready."}]}],
                "Tea is ready.",
            ),
            ("its text is the double", [done("Tea is ready." * 2)], [], "Tea is ready." * 2),
            (
                "another follows",
                [delta(" Come."), done("Tea is ready.Tea is ready. Come.")],
                [],
                "Tea is ready.Tea is ready. Come.",
            ),
            ("nothing says the whole", [], [], "Tea is ready." * 2),
        )
    ),
    *(
        responses(f"ids are made anew at the end, {name}", stream(*events, completed(*(output or [TEXT]))), meaning)
        for name, events, output, meaning in (
            ("behind none", [_bare_delta("Hi "), _bare_delta("you")], [], Said("Hi you")),
            ("behind others", [_bare_delta("Hi ", "a"), _bare_delta("you", "b")], [], Said("Hi you")),
            ("behind a part of the text", [_bare_delta("Hi ", "a")], [], Said("Hi you")),
            (
                "with thinking in front",
                [delta("Hi you", item_id="a")],
                [{"id": "rs", "type": "reasoning", "summary": []}, TEXT],
                Said("Hi you"),
            ),
            (
                "also of a call",
                [
                    event("response.output_item.added", item=item("", id="a", call_id="")),
                    event("response.function_call_arguments.delta", item_id="a", delta=HI),
                ],
                [item(id="fc", call_id="c")],
                ADDED,
            ),
        )
    ),
    responses("text only in the completed response", stream(completed(TEXT)), Said("Hi you")),
    responses("text only when its item is done",
        stream(event("response.output_item.done", output_index=0, item=TEXT), completed(TEXT)), Said("Hi you")),
    responses("another text in the completed response",
        stream(delta("Hi them"), completed(TEXT)), Failed("llm.truncated", "contradicts", True)),
    responses("arguments only when they are done",
        stream(ADDING, event("response.function_call_arguments.done", item_id="fc", output_index=0, arguments=HI),
            event("response.output_item.done", output_index=0, item=item()), completed(item())),
        ADDED),
    responses("arguments only when the item is done",
        stream(ADDING, event("response.output_item.done", output_index=0, item=item()), completed(item())), ADDED),
    responses("arguments only in the completed response", stream(ADDING, completed(item())), ADDED),
    responses("a call only in the completed response", stream(completed(item())), ADDED),
    responses("a delta that names the call and not its item",
        stream(ADDING, event("response.function_call_arguments.delta", item_id="c", output_index=0, delta=HI),
            completed(item())),
        ADDED),
    responses("a delta that names nothing but its place",
        stream(ADDING, event("response.function_call_arguments.delta", output_index=0, delta=HI), completed(item())),
        ADDED),
    responses("an item with another id when it is done",
        stream(ADDING, event("response.function_call_arguments.delta", item_id="fc", output_index=0, delta=HI),
            event("response.output_item.done", output_index=0, item=item(id="fc_other")),
            completed(item(id="fc_third"))),
        ADDED),
    responses("other arguments at the end",
        stream(ADDING, event("response.function_call_arguments.delta", item_id="fc", output_index=0, delta=HI),
            completed(item('{"text": "bye"}'))),
        Failed("llm.truncated", "contradicts", True)),
    responses("an end that is incomplete",
        stream(ADDING,
            event("response.incomplete",
                response={"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}})),
        Failed("llm.truncated", "max_tokens")),
    responses("filtered",
        stream(delta("H"),
            event("response.incomplete",
                response={"status": "incomplete", "incomplete_details": {"reason": "content_filter"}})),
        Failed("llm.refused")),
    responses("failed",
        stream(delta("H"),
            event("response.failed",
                response={"status": "failed", "error": {"code": "server_error", "message": "An error occurred"}})),
        Failed("llm.unavailable", "occurred", True)),
    responses("cancelled",
        stream(delta("H"), event("response.cancelled", response={"status": "cancelled"})),
        Failed("llm.unavailable", "cancelled", True)),
    responses("an error as an event",
        stream(event("error", code="rate_limit_exceeded", message="Slow down, try again in 2s")),
        Failed("llm.rate_limited", "Slow down", True, 2.0)),
    responses("the response as a document",
        document({"id": "r", "object": "response", "status": "completed", "error": None, "output": [TEXT, item()]}),
        Said("Hi you", calls=(("add", {"text": "hi"}),))),
    responses("types only in the names of events",
        stream('event: response.output_text.delta\ndata: {"item_id": "m", "delta": "Hi you"}\n\n',
            'event: response.completed\ndata: {"response": {"status": "completed", "output": []}}\n\n', DONE),
        Said("Hi you")),
    responses("cut off behind a call that is done",
        stream(ADDING, event("response.output_item.done", output_index=0, item=item())),
        Failed("llm.truncated", "ended before", True)),
    responses("a refusal",
        stream(event("response.refusal.delta", item_id="m", output_index=0, delta="No."),
            event("response.refusal.done", item_id="m", output_index=0, refusal="No."), completed()),
        Failed("llm.refused", "No.")),
]  # fmt: skip


def start(index: int, **block: Json) -> str:
    return event("content_block_start", index=index, content_block=block)


def grow(index: int, **delta: Json) -> str:
    return event("content_block_delta", index=index, delta=delta)


def stop(index: int) -> str:
    return event("content_block_stop", index=index)


def ended(reason: str | None, **more: Json) -> str:
    return event("message_delta", delta={"stop_reason": reason}, **more) + event("message_stop")


BEGIN: Final = event("message_start", message={"id": "msg", "usage": {"input_tokens": 5, "output_tokens": 1}})
TOOL: Final = {"type": "tool_use", "id": "toolu_1", "name": "add"}

MESSAGES: Final = [
    messages("text",
        stream(BEGIN, event("ping"), start(0, type="text", text=""), grow(0, type="text_delta", text="Hi"), stop(0),
            ended("end_turn", usage={"output_tokens": 2})),
        Said("Hi", usage=(5, 2))),
    messages("thinking and a call",
        stream(BEGIN, start(0, type="thinking", thinking=""), grow(0, type="thinking_delta", thinking="Hm."),
            grow(0, type="signature_delta", signature="s"), stop(0), start(1, **TOOL, input={}),
            grow(1, type="input_json_delta", partial_json='{"text"'),
            grow(1, type="input_json_delta", partial_json=': "hi"}'), stop(1), ended("tool_use")),
        Said(calls=(("add", {"text": "hi"}),), thinking="Hm.", usage=(5, 1))),
    *(
        messages(
            f"text that is said twice: {name}",
            stream(
                BEGIN,
                start(0, type="text", text=""),
                *(grow(0, type="text_delta", text=piece) for piece in pieces),
                stop(0),
                ended("end_turn"),
            ),
            Said(said, usage=(5, 1)),
        )
        for name, pieces, said in (
            ("in pieces, and then as a whole", ["Tea is ", "ready.", "Tea is ready."], "Tea is ready."),
            ("in two pieces", ["Tea is ready.", "Tea is ready."], "Tea is ready." * 2),
            ("with words behind it", ["Tea is ", "ready.", "Tea is ready.", "!"], f"{'Tea is ready.' * 2}!"),
        )
    ),
    messages("the whole message behind its pieces",
        stream(BEGIN, start(0, type="text", text=""), grow(0, type="text_delta", text="Tea is "),
            grow(0, type="text_delta", text="ready."), stop(0), start(1, **TOOL, input={}),
            grow(1, type="input_json_delta", partial_json=HI), stop(1),
            event("message", content=[{"type": "text", "text": "Tea is ready."}, {**TOOL, "input": {"text": "hi"}}],
                stop_reason="tool_use")),
        Said("Tea is ready.", calls=ADDED.calls, usage=(5, 1))),
    messages("the input whole at the beginning of its block",
        stream(BEGIN, start(0, **TOOL, input={"text": "hi"}), stop(0), ended("tool_use")),
        Said(calls=ADDED.calls, usage=(5, 1))),
    messages("the input at the beginning, and in pieces",
        stream(BEGIN, start(0, **TOOL, input={"text": "hi"}), grow(0, type="input_json_delta", partial_json=HI),
            stop(0), ended("tool_use")),
        Said(calls=ADDED.calls, usage=(5, 1))),
    messages("a call without input",
        stream(BEGIN, start(0, type="tool_use", id="t", name="ping", input={}), stop(0), ended("tool_use")),
        Said(calls=(("ping", {}),), usage=(5, 1))),
    messages("as many tokens as it may",
        stream(BEGIN, start(0, type="text", text="H"), ended("max_tokens")), Failed("llm.truncated", "max_tokens")),
    messages("a refusal", stream(BEGIN, start(0, type="text", text="H"), ended("refusal")), Failed("llm.refused")),
    messages("a pause, which is no end",
        stream(BEGIN, start(0, type="text", text="H"), ended("pause_turn")),
        Failed("llm.truncated", "pause_turn", True)),
    messages("overloaded, within the stream",
        stream(BEGIN, event("error", error={"type": "overloaded_error", "message": "Overloaded"})),
        Failed("llm.rate_limited", "Overloaded", True)),
    messages("the credit is used up",
        document({"type": "error",
            "error": {"type": "invalid_request_error",
                "message": "Your credit balance is too low to access the Anthropic API."}}),
        Failed("llm.rate_limited", "credit balance"), 400),
    messages("too long",
        document({"type": "error",
            "error": {"type": "invalid_request_error",
                "message": "prompt is too long: 208310 tokens > 200000 maximum"}}),
        Failed("llm.context_exceeded", "208310"), 400),
    messages("a message as a document",
        document({"type": "message", "role": "assistant",
            "content": [{"type": "text", "text": "Hi"}, {**TOOL, "input": {"text": "hi"}}], "stop_reason": "tool_use",
            "usage": {"input_tokens": 3, "output_tokens": 4}}),
        Said("Hi", calls=(("add", {"text": "hi"}),), usage=(3, 4))),
    messages("cut off before its end",
        stream(BEGIN, start(0, **TOOL, input={"text": "hi"}), stop(0)), Failed("llm.truncated", "ended before", True)),
]  # fmt: skip

ALL: Final = [*RESPONSES, *MESSAGES]
