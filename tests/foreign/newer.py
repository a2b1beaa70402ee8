"""Answers as servers of 2026 write them: parsers of tool calls that flush twice, templates that leak, gateways that
translate one protocol into another and lose a part of it."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.foreign.chats import ADDED, HI, TWO
from tests.foreign.transcripts import DONE, Failed, Said, Transcript, call, chunk, document, end, event, stream, text
from tests.foreign.typed import completed, delta, done, item

Json = Any

CALLED: Final = end("tool_calls")
HI_YOU: Final = Said("Hi you")
CONTRADICTED: Final = Failed("llm.truncated", "contradicts itself", True)
PINGED: Final = Said(calls=(("ping", {}),))
DELETED: Final = Said(calls=(("delete", {"id": 7}),))


def chat(name: str, *events: Json, meaning: Said | Failed, **more: Json) -> Transcript:
    return Transcript(f"newer: {name}", stream(*events), meaning, **more)


def responses(name: str, *events: Json, meaning: Said | Failed) -> Transcript:
    return Transcript(f"newer responses: {name}", stream(*events), meaning, protocol="responses")


def calls(*pieces: Json, reason: Json = None, **delta: Json) -> Json:
    """A chunk with these pieces of calls."""
    return chunk({"tool_calls": list(pieces), **delta}, reason)


def build_call(name: str, args: Json, index: int | None = 0, id: str | None = "c1", **more: Json) -> Json:
    piece = {"type": "function", "function": {"name": name, "arguments": args}, **more}
    return {**({} if index is None else {"index": index}), **({} if id is None else {"id": id}), **piece}


ONE_TEXT, TWO_TEXT = '{"text": "one"}', '{"text": "two"}'
LONG: Final = '{"text": "hi"}'

FLUSHED: Final = [
    chat("xlam: the end flushes a whole object behind an opened brace",
        call(id="c1", name="add", args="{"), call(args=HI), CALLED, DONE, meaning=ADDED),
    chat("xlam: the end flushes a whole object behind half of it",
        call(id="c1", name="add", args='{"text": '), call(args=HI), CALLED, DONE, meaning=ADDED),
    chat("the whole object again in the chunk of the reason, with id and name",
        call(id="c1", name="add", args='{"text": '), call(args='"hi"}'),
        calls(build_call("add", HI), reason="tool_calls"), DONE, meaning=ADDED),
    chat("glm: id and name again in the chunk of the reason, with the rest of the arguments",
        call(id="c1", name="add", args='{"text": '), calls(build_call("add", '"hi"}'), reason="tool_calls"), DONE,
        meaning=ADDED),
    chat("glm: id and name again in the chunk of the reason, with empty arguments",
        call(id="c1", name="add", args=HI), calls(build_call("add", ""), reason="tool_calls"), DONE, meaning=ADDED),
    chat("the end flushes an empty object behind the arguments",
        call(id="c1", name="add", args=HI), calls({"index": 0, "function": {"arguments": "{}"}}, reason="tool_calls"),
        DONE, meaning=ADDED),
    chat("the end flushes a brace too many",
        call(id="c1", name="add", args=HI), calls({"index": 0, "function": {"arguments": "}"}}, reason="tool_calls"),
        DONE, meaning=Said()),
    chat("the last call is flushed under the next index, with its id",
        call(0, "c1", "add", HI), call(1, "c1", "add", HI), CALLED, DONE, meaning=ADDED),
    chat("all calls are flushed again in one chunk with the reason",
        call(0, "c1", "add", ONE_TEXT), call(1, "c2", "add", TWO_TEXT),
        calls(build_call("add", ONE_TEXT, 0, "c1"), build_call("add", TWO_TEXT, 1, "c2"), reason="tool_calls"), DONE,
        meaning=TWO),
    chat("all calls are flushed again under new indexes, with their ids",
        call(0, "c1", "add", ONE_TEXT), call(1, "c2", "add", TWO_TEXT),
        calls(build_call("add", ONE_TEXT, 2, "c1"), build_call("add", TWO_TEXT, 3, "c2"), reason="tool_calls"), DONE,
        meaning=TWO),
    chat("the final call is written with other white space",
        call(id="c1", name="add", args='{"text":"hi"}'),
        calls(build_call("add", '{ "text" : "hi" }'), reason="tool_calls"), DONE, meaning=ADDED),
    chat("the final call has the members in another order",
        call(id="c1", name="add", args='{"a": 1, "b": 2}'),
        calls(build_call("add", '{"b": 2, "a": 1}'), reason="tool_calls"), DONE,
        meaning=Said(calls=(("add", {"a": 1, "b": 2}),))),
    chat("the final call is another one",
        call(id="c1", name="delete", args='{"id": 7}'), calls(build_call("delete", '{"id": 8}'), reason="tool_calls"),
        DONE, meaning=Said(calls=(("delete", {"id": 7}), ("delete", {"id": 8})))),
    chat("the arguments grow in each chunk",
        call(id="c1", name="add", args='{"text'), call(args='{"text": "h'), call(args=HI), CALLED, DONE, meaning=ADDED),
    chat("the arguments grow in each chunk, with id and name",
        call(id="c1", name="add", args=""), call(id="c1", name="add", args='{"te'), call(id="c1", name="add", args=HI),
        CALLED, DONE, meaning=ADDED),
    chat("an argument that ends as the object does, in a piece of its own",
        call(id="c1", name="add", args='{"text": "a}"'), call(args="}"), CALLED, DONE,
        meaning=Said(calls=(("add", {"text": "a}"}),))),
    chat("stream-interval: name and all arguments in one chunk with the reason",
        calls(build_call("add", HI), reason="tool_calls"), DONE, meaning=ADDED),
    chat("two calls in one chunk with the reason",
        calls(build_call("add", ONE_TEXT, 0, "c1"), build_call("add", TWO_TEXT, 1, "c2"), reason="tool_calls"), DONE,
        meaning=TWO),
    chat("a call without arguments in front of one with some",
        call(0, "c1", "ping", ""), call(1, "c2", "add", HI), CALLED, DONE,
        meaning=Said(calls=(("ping", {}), ("add", {"text": "hi"})))),
    chat("the arguments of a call arrive behind the beginning of the next one",
        call(0, "c1", "add", '{"text": "o'), call(1, "c2", "add", '{"text": "t'), call(0, args='ne"}'),
        call(1, args='wo"}'), CALLED, DONE, meaning=TWO),
]  # fmt: skip

SLOTS: Final = [
    chat("gemini: parallel calls, each in its chunk, at index 0 with ids",
        *(call(0, f"c{n}", "add", args) for n, args in enumerate((ONE_TEXT, TWO_TEXT))), CALLED, DONE, meaning=TWO),
    chat("gemini: parallel calls at index 0 without ids",
        *(call(0, None, "add", args) for args in (ONE_TEXT, TWO_TEXT)), CALLED, DONE, meaning=TWO),
    chat("gemini: parallel calls at index 0 with empty ids",
        *(call(0, "", "add", args) for args in (ONE_TEXT, TWO_TEXT)), CALLED, DONE, meaning=TWO),
    chat("gemini: parallel calls at index 0, the names as ids",
        *(call(0, "add", "add", args) for args in (ONE_TEXT, TWO_TEXT)), CALLED, DONE, meaning=TWO),
    chat("parallel calls in one chunk, all at index 0",
        calls(build_call("add", ONE_TEXT, 0, "c1"), build_call("add", TWO_TEXT, 0, "c2")), CALLED, DONE, meaning=TWO),
    chat("parallel calls in one chunk, all at index 0 and without ids",
        calls(build_call("add", ONE_TEXT, 0, None), build_call("add", TWO_TEXT, 0, None)), CALLED, DONE, meaning=TWO),
    chat("parallel calls in one chunk without index and id",
        calls(build_call("add", ONE_TEXT, None, None), build_call("add", TWO_TEXT, None, None)), CALLED, DONE,
        meaning=TWO),
    chat("parallel calls in chunks without index and id",
        calls(build_call("add", ONE_TEXT, None, None)), calls(build_call("add", TWO_TEXT, None, None)), CALLED, DONE,
        meaning=TWO),
    chat("parallel calls in chunks without an index, with one id",
        calls(build_call("add", ONE_TEXT, None, "x")), calls(build_call("add", TWO_TEXT, None, "x")), CALLED, DONE,
        meaning=TWO),
    chat("the same call twice, at index 0 and without ids",
        *(call(0, None, "add", HI) for _ in range(2)), CALLED, DONE, meaning=ADDED),
    chat("indexes begin at 1",
        call(1, "c1", "add", ONE_TEXT), call(2, "c2", "add", TWO_TEXT), CALLED, DONE, meaning=TWO),
    chat("indexes are negative", call(-1, "c1", "add", HI), CALLED, DONE, meaning=ADDED),
    chat("indexes are text", calls({**build_call("add", HI), "index": "0"}), CALLED, DONE, meaning=ADDED),
    chat("an index is null", calls({**build_call("add", HI), "index": None}), CALLED, DONE, meaning=ADDED),
    chat("an index is null in later pieces",
        call(0, "c1", "add", '{"text": '), calls({"index": None, "id": None, "function": {"arguments": '"hi"}'}}),
        CALLED, DONE, meaning=ADDED),
    chat("an id is a number", calls({**build_call("add", HI), "id": 42}), CALLED, DONE, meaning=ADDED),
    chat("an id is null in all pieces", calls({**build_call("add", HI), "id": None}), CALLED, DONE, meaning=ADDED),
    chat("the id arrives behind the arguments", call(name="add", args=HI), call(id="c1"), CALLED, DONE, meaning=ADDED),
    chat("the name arrives behind the arguments",
        call(id="c1", args=HI), call(name="add"), CALLED, DONE, meaning=ADDED),
    chat("the name is null in later pieces",
        call(id="c1", name="add", args='{"text": '),
        calls({"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": '"hi"}'}}), CALLED, DONE,
        meaning=ADDED),
    chat("the name is empty in later pieces",
        call(id="c1", name="add", args='{"text": '),
        calls({"index": 0, "id": "", "type": "", "function": {"name": "", "arguments": '"hi"}'}}), CALLED, DONE,
        meaning=ADDED),
    chat("the pieces are counted by the index, with one id",
        call(0, "c1", "add", ""), call(1, "c1", None, '{"text": '), call(2, "c1", None, '"hi"}'), CALLED, DONE,
        meaning=ADDED),
    chat("an empty call in front of the real one",
        calls({"index": 0, "id": "", "type": "function", "function": {"name": "", "arguments": ""}}),
        call(0, "c1", "add", HI), CALLED, DONE, meaning=ADDED),
    chat("an empty call behind the real one",
        call(0, "c1", "add", HI), calls({"index": 1, "function": {"name": "", "arguments": ""}}), CALLED, DONE,
        meaning=ADDED),
    chat("`tool_calls` is an empty list in each chunk",
        *(chunk({"content": each, "tool_calls": []}) for each in ("Hi ", "you")), end(), DONE, meaning=HI_YOU),
    chat("`tool_calls` holds null", calls(None), call(0, "c1", "add", HI), CALLED, DONE, meaning=ADDED),
    chat("a call's `function` is null in a later piece",
        call(0, "c1", "add", HI), calls({"index": 0, "function": None}), CALLED, DONE, meaning=ADDED),
    chat("the reason is `stop` beside a call", call(0, "c1", "add", HI), end("stop"), DONE, meaning=ADDED),
    chat("the reason is `function_call` beside `tool_calls`",
        call(0, "c1", "add", HI), end("function_call"), DONE, meaning=ADDED),
    chat("the reason is `length` behind a whole call",
        call(0, "c1", "add", HI), end("length"), DONE, meaning=Failed("llm.truncated", "max_tokens")),
    chat("the reason is `tool_calls`, and then `stop`",
        call(0, "c1", "add", HI), CALLED, end("stop"), DONE, meaning=ADDED),
    chat("the call comes behind the reason", end("tool_calls"), call(0, "c1", "add", HI), DONE, meaning=ADDED),
    chat("the call comes behind the mark of the end",
        *text("Hi ", "you"), end(), DONE, call(0, "c1", "add", HI), meaning=HI_YOU),
    chat("a call announced and never written", *text("Hi"), CALLED, DONE, meaning=Said("Hi")),
    chat("a line break within an argument, and no reason",
        call(0, "c1", "add", '{"text": "a\nb"}'), DONE, meaning=Said(calls=(("add", {"text": "a\nb"}),))),
    chat("a call announced and nothing else", CALLED, DONE, meaning=CONTRADICTED),
]  # fmt: skip


def named(name: str, said: str, meaning: Said | Failed = ADDED, **more: Json) -> Transcript:
    return chat(f"the name as {name}", call(0, "c1", said, HI), CALLED, DONE, meaning=meaning, **more)


def refused(name: str, message: str, code: str = "", status: int = 400) -> Transcript:
    report = {"error": {"message": message, "type": "invalid_request_error", "code": code}}
    return Transcript(f"newer: {name}", document(report), Failed("llm.unavailable", message, True), status=status)


UNPARSED: Final = [
    refused(
        "groq: a call that it can't read", "Failed to call a function. Please adjust your prompt.", "tool_use_failed"
    ),
    refused(
        "groq: arguments that don't fit",
        "tool call validation failed: parameters for tool add did not match schema: errors: [`/a`: expected array]",
        "tool_use_failed",
    ),
    refused(
        "groq: an object that is none", "Failed to generate JSON. Please adjust your prompt.", "json_validate_failed"
    ),
    refused("groq: output that it can't read", "Parsing failed. Please adjust your prompt.", "output_parse_failed"),
    refused("groq: behind a gateway", "litellm.BadRequestError: GroqException - Failed to call a function.", "400"),
    refused("vllm: a header of gpt-oss", "Unexpected tokens remaining in message header: ['to=functions.x']"),
    chat(
        "groq: a call that it can't read, in the stream",
        {"error": {"message": "Failed to call a function.", "code": "tool_use_failed", "status_code": 400}},
        meaning=Failed("llm.unavailable", "Failed to call a function", True),
    ),
]


NAMES: Final = [
    named("gpt-oss with its channel behind", "add<|channel|>commentary"),
    named("gpt-oss with a constraint behind", "add<|constrain|>json"),
    named("gpt-oss in its namespace, with a channel behind", "functions.add<|channel|>analysis"),
    named("gpt-oss with a recipient in front", "to=functions.add"),
    named("gpt-oss with a role in front", "assistant to=functions.add"),
    named("gpt-oss with a space and the constraint", "add <|constrain|>json"),
    named("gpt-oss with the word of the constraint alone", "add json", Said(calls=(("add json", {"text": "hi"}),))),
    named("kimi in its namespace, with a number", "functions.add:0"),
    named("kimi with a number alone", "add:12"),
    named("kimi with its token in front", "<|tool_call_begin|>functions.add:0"),
    named("gemini's `default_api`", "default_api:add"),
    named("gemini's `default_api` with a dot", "default_api.add"),
    named("qwen with a line break", "add\n"),
    named("qwen with a tag behind", "add</function>"),
    named("a text in quotes", '"add"'),
    named("backquotes", "`add`"),
    named("python, called", "add()"),
    named("slashes in front", "/add"),
    named("`functions/add`", "functions/add"),
    named("`functions:add`", "functions:add"),
    named("`tool.add`", "tool.add"),
    named(
        "`multi_tool_use.parallel`",
        "multi_tool_use.parallel",
        Said(calls=(("multi_tool_use.parallel", {"text": "hi"}),)),
    ),
    named("capitals", "Add", Said(calls=(("Add", {"text": "hi"}),))),
    named("invisible signs", "add\u200b"),
    named("a byte order mark", "\ufeffadd"),
    named(
        "an offered name with a colon and a number",
        "add:1",
        Said(calls=(("add:1", {"text": "hi"}),)),
        names=("add", "add:1"),
    ),
    named(
        "a name that is offered in a namespace",
        "functions.add",
        Said(calls=(("functions.add", {"text": "hi"}),)),
        names=("add", "functions.add"),
    ),
]


def argued(name: str, args: Json, value: Json, **more: Json) -> Transcript:
    return chat(
        f"the arguments as {name}",
        call(0, "c1", "add", args),
        CALLED,
        DONE,
        meaning=Said(calls=(("add", value),)),
        **more,
    )


ARGUMENTS: Final = [
    argued("an object", {"text": "hi"}, {"text": "hi"}),
    argued("JSON within JSON", json.dumps(HI), {"text": "hi"}),
    argued("JSON within JSON within JSON", json.dumps(json.dumps(HI)), {"text": "hi"}),
    argued("a fence", f"```json\n{HI}\n```", {"text": "hi"}),
    argued("a fence in capitals", f"```JSON\n{HI}\n```", {"text": "hi"}),
    argued("JSON behind a token", f"<|message|>{HI}", {"text": "hi"}),
    argued("JSON in front of a token", f"{HI}<|call|>", {"text": "hi"}),
    argued("JSON in front of a tag", f"{HI}</tool_call>", {"text": "hi"}),
    argued("JSON in front of two tags", f"{HI}\n</function>\n</tool_call>", {"text": "hi"}),
    argued("null", "null", {}),
    argued("a list without members", [], {}),
    argued("a text `[]`", "[]", {}),
    argued("white space", "  \n", {}),
    argued("an empty object twice", "{}{}", {}),
    argued("an object behind a byte order mark", "\ufeff" + HI, {"text": "hi"}),
    argued("a placeholder and an object", "{}" + HI, {"text": "hi"}),
    argued("an object in front of a placeholder", HI + "{}", {"text": "hi"}),
    argued("an object in front of `null`", HI + "null", {"text": "hi"}),
    argued("a list with the object in it, which the model is told", f"[{HI}]", [{"text": "hi"}]),
]


TEA: Final = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi you"}]}
ARGS: Final = "response.function_call_arguments"


def args_delta(text: str, **more: Json) -> str:
    return event(f"{ARGS}.delta", delta=text, **{"item_id": "fc", "output_index": 0, **more})


def args_done(text: Json, **more: Json) -> str:
    return event(f"{ARGS}.done", arguments=text, **{"item_id": "fc", "output_index": 0, **more})


def added(**more: Json) -> str:
    return event("response.output_item.added", output_index=0, item=item("", **more))


def item_done(index: int = 0, **more: Json) -> str:
    return event("response.output_item.done", output_index=index, item=item(**more))


EVENTS: Final = [
    responses("codex: the completed response has no output",
        delta("Hi "), delta("you"), done("Hi you"), completed(), meaning=HI_YOU),
    responses("codex: text only in the item that is done",
        event("response.output_item.done", output_index=0, item=TEA), completed(), meaning=HI_YOU),
    responses("codex: a call only in the item that is done", item_done(), completed(), meaning=ADDED),
    responses("agentgateway: the done events are empty",
        delta("Hi you"),
        event("response.content_part.done", item_id="m", output_index=0, content_index=0,
            part={"type": "output_text", "text": ""}),
        event("response.output_item.done", output_index=0, item={**TEA, "content": []}), completed(), meaning=HI_YOU),
    responses("the completed response has a message without content",
        delta("Hi you"), completed({**TEA, "content": []}), meaning=HI_YOU),
    responses("a message without content and nothing else",
        completed({**TEA, "content": []}), meaning=Failed("llm.empty", "", True)),
    responses("a message whose content is null, and a call",
        completed({**TEA, "content": None}, item()), meaning=ADDED),
    responses("the completed response has a message whose text is empty",
        delta("Hi you"), completed({**TEA, "content": [{"type": "output_text", "text": ""}]}), meaning=HI_YOU),
    responses("the completed response has a null output",
        delta("Hi you"), event("response.completed", response={"status": "completed", "output": None}), meaning=HI_YOU),
    responses("the completed response is missing", delta("Hi you"), event("response.completed"), meaning=HI_YOU),
    responses("the completed response is the event itself",
        delta("Hi you"), event("response.completed", id="r", status="completed", output=[TEA]), meaning=HI_YOU),
    responses("its items are there in the completed response alone", completed(TEA), meaning=HI_YOU),
    responses("a call is there in the completed response alone", completed(item()), meaning=ADDED),
    responses("arguments only when they are done", added(), args_done(HI), completed(), meaning=ADDED),
    responses("arguments as an object when they are done",
        added(), args_done({"text": "hi"}), completed(), meaning=ADDED),
    responses("arguments only in the item that is done, with empty done events",
        added(), args_done(""), item_done(), completed(), meaning=ADDED),
    responses("empty arguments in the completed response behind whole ones",
        added(), args_delta(HI), args_done(HI), completed(item("")), meaning=ADDED),
    responses("`{}` in the completed response behind whole ones",
        added(), args_delta(HI), args_done(HI), completed(item("{}")), meaning=ADDED),
    responses("`{}` in the first item, whole ones behind it",
        event("response.output_item.added", output_index=0, item=item("{}")), args_delta(HI), args_done(HI),
        item_done(), completed(), meaning=ADDED),
    responses("whole arguments in the first item already, and again in pieces",
        event("response.output_item.added", output_index=0, item=item(HI)), args_delta('{"text": '),
        args_delta('"hi"}'), args_done(HI), completed(), meaning=ADDED),
    responses("other arguments when they are done",
        added(), args_delta(HI), args_done('{"text": "ho"}'), completed(), meaning=CONTRADICTED),
    responses("the delta names the call",
        added(), args_delta(HI, item_id="c"), item_done(), completed(), meaning=ADDED),
    responses("the delta names the call as `call_id`",
        added(), event(f"{ARGS}.delta", delta=HI, call_id="c"), completed(), meaning=ADDED),
    responses("the delta names nothing", added(), event(f"{ARGS}.delta", delta=HI), completed(), meaning=ADDED),
    responses("the delta comes in front of its item", args_delta(HI), added(), item_done(), completed(), meaning=ADDED),
    responses("the item is said twice", added(), added(), args_delta(HI), item_done(), completed(), meaning=ADDED),
    responses("the item that is done is said twice",
        added(), args_delta(HI), item_done(), item_done(), completed(), meaning=ADDED),
    responses("the call has another id in the completed response",
        added(), args_delta(HI), item_done(), completed(item(id="fc_2", call_id="c_2")), meaning=ADDED),
    responses("no `call_id` anywhere",
        added(call_id=""), args_delta(HI), item_done(call_id=""), completed(), meaning=ADDED),
    responses("a null `call_id`",
        added(call_id=None), args_delta(HI), item_done(call_id=None), completed(), meaning=ADDED),
    responses("two calls at one output index",
        event("response.output_item.added", output_index=0, item=item("", id="f1", call_id="c1")),
        args_delta(ONE_TEXT, item_id="f1"),
        event("response.output_item.added", output_index=0, item=item("", id="f2", call_id="c2")),
        args_delta(TWO_TEXT, item_id="f2"), completed(), meaning=TWO),
    responses("two calls whose pieces are mixed",
        event("response.output_item.added", output_index=0, item=item("", id="f1", call_id="c1")),
        event("response.output_item.added", output_index=1, item=item("", id="f2", call_id="c2")),
        args_delta('{"text": ', item_id="f1"), args_delta('{"text": ', item_id="f2", output_index=1),
        args_delta('"one"}', item_id="f1"), args_delta('"two"}', item_id="f2", output_index=1), completed(),
        meaning=TWO),
    responses("the type of the item is `tool_call`",
        delta("Hi you"), event("response.output_item.done", output_index=1, item={**item(), "type": "tool_call"}),
        completed(), meaning=HI_YOU),
    responses("a call of the provider's own",
        delta("Hi you"),
        event("response.output_item.done", output_index=1, item={"type": "web_search_call", "id": "w"}),
        event("response.web_search_call.completed", item_id="w", output_index=1), completed(), meaning=HI_YOU),
    responses("its text is null in a delta",
        delta("Hi "), event("response.output_text.delta", item_id="m", delta=None), delta("you"), completed(),
        meaning=HI_YOU),
    responses("the text is an object",
        event("response.output_text.delta", item_id="m", delta={"text": "Hi you"}), completed(), meaning=HI_YOU),
    responses("the event has no name and its data a type",
        {"type": "response.output_text.delta", "delta": "Hi you"}, completed(), meaning=HI_YOU),
    responses("a mark of the end behind the completed response", delta("Hi you"), completed(), DONE, meaning=HI_YOU),
    responses("a mark of the end in place of the completed response", delta("Hi you"), DONE, meaning=HI_YOU),
    responses("no end at all", delta("Hi you"), meaning=Failed("llm.truncated", "ended before", True)),
    responses("`response.done` of the realtime protocol",
        delta("Hi you"), event("response.done", response={"status": "completed", "output": []}), meaning=HI_YOU),
    responses("completed, with the status `in_progress`",
        delta("Hi you"), event("response.completed", response={"status": "in_progress", "output": []}),
        meaning=Failed("llm.truncated", "in_progress", True)),
    responses("completed, with the status `incomplete`",
        delta("Hi"),
        event("response.completed",
            response={"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}),
        meaning=Failed("llm.truncated", "max_tokens")),
    responses("incomplete without a reason",
        delta("Hi"), event("response.incomplete", response={"output": []}),
        meaning=Failed("llm.truncated", "max_tokens")),
    responses("incomplete because of a filter",
        delta("Hi"),
        event("response.incomplete",
            response={"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}),
        meaning=Failed("llm.refused")),
    responses("failed without an error",
        event("response.failed", response={"status": "failed"}),
        meaning=Failed("llm.unavailable", "does not say why", True)),
    responses("failed, with a null error",
        event("response.failed", response={"status": "failed", "error": None}),
        meaning=Failed("llm.unavailable", "does not say why", True)),
    responses("failed, with its error beside the response",
        event("response.failed", error={"code": "server_error", "message": "GPU lost"}),
        meaning=Failed("llm.unavailable", "GPU lost", True)),
    responses("an error whose words stand beside its type",
        event("error", code="rate_limit_exceeded", message="Slow down"),
        meaning=Failed("llm.rate_limited", "Slow down", True)),
    responses("an error whose words stand in `error`",
        event("error", error={"type": "server_error", "message": "GPU lost"}),
        meaning=Failed("llm.unavailable", "GPU lost", True)),
    responses("`response.error`",
        event("response.error", error={"message": "GPU lost"}), meaning=Failed("llm.unavailable", "GPU lost", True)),
    responses("chunks of a chat in place of events",
        *text("Hi ", "you"), end(), DONE, meaning=Failed("llm.truncated", "", True)),
]  # fmt: skip


def spoken(name: str, *events: Json, meaning: Said | Failed = HI_YOU, **more: Json) -> Transcript:
    return chat(f"{name}", *events, meaning=meaning, **more)


TALK: Final = [
    spoken("a chunk whose choice is null", {"choices": [None]}, *text("Hi ", "you"), end(), DONE),
    spoken("a chunk whose choices are null", {"choices": None}, *text("Hi ", "you"), end(), DONE),
    spoken("a chunk without choices", {"id": "x", "object": "chat.completion.chunk"}, *text("Hi ", "you"), end(), DONE),
    spoken("azure: a first chunk about its filter",
        {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}, *text("Hi ", "you"), end(), DONE),
    spoken("azure: its last chunk about its filter has no delta",
        *text("Hi ", "you"), end(),
        {"choices": [{"index": 0, "finish_reason": None, "content_filter_results": {},
            "content_filter_offsets": {"check_offset": 1}}]},
        DONE),
    spoken("a delta that is null",
        *text("Hi ", "you"), {"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]}, DONE),
    spoken("the role in each chunk",
        *(chunk({"role": "assistant", "content": each}) for each in ("Hi ", "you")), end(), DONE),
    spoken("the role is null", *(chunk({"role": None, "content": each}) for each in ("Hi ", "you")), end(), DONE),
    spoken("refusal is null in each chunk",
        *(chunk({"content": each, "refusal": None}) for each in ("Hi ", "you")), end(), DONE),
    spoken("an empty refusal in each chunk",
        *(chunk({"content": each, "refusal": ""}) for each in ("Hi ", "you")), end(), DONE),
    spoken("the reason is an empty text in each chunk",
        *(chunk({"content": each}, "") for each in ("Hi ", "you")), end(), DONE),
    spoken("the reason is `null` as text in each chunk",
        *(chunk({"content": each}, "null") for each in ("Hi ", "you")), end(), DONE),
    spoken("the reason is `stop` in each chunk", *(chunk({"content": each}, "stop") for each in ("Hi ", "you")), DONE),
    spoken("the reason is `length` behind `stop`",
        *text("Hi"), end("stop"), end("length"), DONE, meaning=Failed("llm.truncated", "max_tokens")),
    spoken("the reason is `repetition`",
        *text("Hi"), end("repetition"), DONE, meaning=Failed("llm.truncated", "repetition", True)),
    spoken("the reason is `max_tokens_reached`",
        *text("Hi"), end("max_tokens_reached"), DONE, meaning=Failed("llm.truncated", "max_tokens")),
    spoken("the reason is `tool_calls_limit`",
        *text("Hi"), end("tool_calls_limit"), DONE, meaning=Failed("llm.truncated", "tool_calls_limit", True)),
    spoken("the reason is `pause_turn`",
        *text("Hi"), end("pause_turn"), DONE, meaning=Failed("llm.truncated", "pause_turn", True)),
    spoken("the reason is `FINISH_REASON_UNSPECIFIED`",
        *text("Hi"), end("FINISH_REASON_UNSPECIFIED"), DONE, meaning=Failed("llm.truncated", "", True)),
    spoken("the reason is `model_context_window_exceeded`",
        *text("Hi"), end("model_context_window_exceeded"), DONE, meaning=Failed("llm.truncated", "max_tokens")),
    spoken("the reason is `eos_token_id`", *text("Hi ", "you"), end("eos_token_id"), DONE),
    spoken("the reason is `stop_token_ids`", *text("Hi ", "you"), end("stop_token_ids"), DONE),
    spoken("the reason is a number", *text("Hi ", "you"), end(1), DONE, meaning=Failed("llm.truncated", "1", True)),
    spoken("the reason is false, then `stop`",
        *(chunk({"content": each}, False) for each in ("Hi ", "you")), end(), DONE),
    spoken("the mark of the end has a blank line in front", *text("Hi ", "you"), end(), "data:\n\n", DONE),
    spoken("the mark of the end is twice there", *text("Hi ", "you"), end(), DONE, DONE),
    spoken("the mark of the end has no line end", *text("Hi ", "you"), end(), "data: [DONE]"),
    spoken("the mark of the end without a blank", *text("Hi ", "you"), end(), "data:[DONE]\n\n"),
    spoken("the mark of the end in an event of that name", *text("Hi ", "you"), end(), "event: done\ndata: [DONE]\n\n"),
    spoken("an error behind the reason",
        *text("Hi"), end(), {"error": {"message": "GPU lost", "code": 500}}, DONE,
        meaning=Failed("llm.unavailable", "GPU lost", True)),
    spoken("an error behind a call",
        call(0, "c1", "add", HI), {"error": {"message": "GPU lost", "code": 500}}, DONE,
        meaning=Failed("llm.unavailable", "GPU lost", True)),
    spoken("an error in the place of the choice",
        {"error": "overloaded", "choices": []}, DONE, meaning=Failed("llm.unavailable", "overloaded", True)),
    spoken("openrouter: an error in the choice",
        {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error",
            "error": {"code": 502, "message": "upstream"}}]},
        DONE, meaning=Failed("llm.unavailable", "upstream", True)),
    spoken("an empty error in each chunk",
        *({**each, "error": None} for each in text("Hi ", "you")), {**end(), "error": {}}, DONE),
    spoken("an `error` that is false", *({**each, "error": False} for each in text("Hi ", "you")), end(), DONE),
    spoken("a code 0 and words of success",
        *({**each, "code": 0, "msg": "success"} for each in text("Hi ", "you")), end(), DONE),
    spoken("thinking that is null in each chunk",
        *(chunk({"content": each, "reasoning_content": None, "reasoning": None}) for each in ("Hi ", "you")), end(),
        DONE),
    spoken("thinking and text in one chunk",
        chunk({"reasoning": "Hm.", "content": "Hi "}), *text("you"), end(), DONE,
        meaning=Said("Hi you", thinking="Hm.")),
    spoken("thinking again as a whole in the last chunk",
        chunk({"reasoning": "Hm, let me see."}), *text("Hi ", "you"), chunk({"reasoning": "Hm, let me see."}, "stop"),
        DONE, meaning=Said("Hi you", thinking="Hm, let me see.")),
    spoken("thinking under another name from the middle on",
        chunk({"reasoning": "Hm, "}), chunk({"reasoning_content": "yes."}), *text("Hi ", "you"), end(), DONE,
        meaning=Said("Hi you", thinking="Hm, yes.")),
    spoken("the usage is null in each chunk", *({**each, "usage": None} for each in text("Hi ", "you")), end(), DONE),
    spoken("negative tokens",
        *text("Hi ", "you"), end(usage={"prompt_tokens": -1, "completion_tokens": -1}), DONE,
        meaning=Said("Hi you", usage=(0, 0))),
    spoken(
        "tokens in each chunk, growing",
        *(
            chunk({"content": each}, usage={"prompt_tokens": 7, "completion_tokens": n})
            for n, each in enumerate(("Hi ", "you"), 1)
        ),
        end(),
        DONE,
        meaning=Said("Hi you", usage=(7, 2)),
    ),
    spoken("tokens behind the mark of the end",
        *text("Hi ", "you"), end(), DONE, chunk(usage={"prompt_tokens": 7, "completion_tokens": 2})),
    spoken("two choices, though one was asked for",
        {"choices": [{"index": 0, "delta": {"content": "Hi you"}}, {"index": 1, "delta": {"content": "Ho"}}]},
        {"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]}, end(), DONE),
    spoken("two choices with calls",
        {"choices": [{"index": 0, "delta": {"tool_calls": [build_call("add", HI)]}},
            {"index": 1, "delta": {"tool_calls": [build_call("delete", "{}")]}}]},
        CALLED, DONE, meaning=ADDED),
    spoken("content as a list of texts",
        chunk({"content": [{"type": "text", "text": "Hi "}]}), chunk({"content": [{"type": "text", "text": "you"}]}),
        end(), DONE),
    spoken("content as a list of plain texts", chunk({"content": ["Hi ", "you"]}), end(), DONE),
    spoken("magistral: thinking within the content",
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}),
        chunk({"content": "Hi you"}), end(), DONE, meaning=Said("Hi you", thinking="Hm.")),
    spoken("a comment with a colon in the middle", ": a: b\n\n", *text("Hi ", "you"), ":keepalive 1:2\n", end(), DONE),
    spoken("`retry:` and `id:` in each event",
        *(f"id: {n}\nretry: 3000\ndata: {json.dumps(each)}\n\n" for n, each in enumerate([*text("Hi ", "you"), end()])),
        DONE),
    spoken("`event: message` in each event",
        *(f"event: message\ndata: {json.dumps(each)}\n\n" for each in [*text("Hi ", "you"), end()]), DONE),
    spoken("an event of another name with an error",
        *text("Hi"), 'event: error\ndata: "GPU lost"\n\n', meaning=Failed("llm.unavailable", "GPU lost", True)),
    spoken("tabs behind the colon", *(f"data:\t{json.dumps(each)}\n\n" for each in [*text("Hi ", "you"), end()]), DONE),
    spoken(
        "the data over several lines",
        *(
            "".join(f"data: {line}\n" for line in json.dumps(each, indent=1).split("\n")) + "\n"
            for each in [*text("Hi ", "you"), end()]
        ),
        DONE,
    ),
    Transcript(
        "newer: JSON over several lines as one document",
        json.dumps(
            {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi you"}, "finish_reason": "stop"}]},
            indent=2,
        ).encode(),
        HI_YOU,
    ),
    Transcript("newer: a document with a null content and a call",
        document({"choices": [{"index": 0, "message": {"content": None, "tool_calls": [build_call("add", HI)]},
            "finish_reason": "tool_calls"}]}),
        ADDED),
    Transcript("newer: a document whose calls are null",
        document({"choices": [{"index": 0, "message": {"content": "Hi you", "tool_calls": None, "function_call": None},
            "finish_reason": "stop"}]}),
        HI_YOU),
    Transcript("newer: a document with an empty list of choices",
        document({"id": "x", "choices": []}), Failed("llm.truncated", "", True)),
    Transcript("newer: a document of the protocol for completions",
        document({"choices": [{"index": 0, "text": "Hi you", "finish_reason": "stop"}]}), HI_YOU),
    Transcript("newer: nothing at all", b"", Failed("llm.truncated", "", True)),
    Transcript("newer: comments alone", b": keep-alive\n\n" * 3, Failed("llm.truncated", "", True)),
    Transcript("newer: one blank line", b"\n", Failed("llm.truncated", "", True)),
    Transcript("newer: null as a document", b"null", Failed("llm.unavailable", "null", True)),
    Transcript("newer: a document with an empty list as its message",
        document({"choices": [{"index": 0, "message": {"content": []}, "finish_reason": "stop"}]}),
        Failed("llm.empty", "", True)),
]  # fmt: skip


def refused(name: str, status: int, said: Json, meaning: Failed, **headers: str) -> Transcript:
    body = said if isinstance(said, bytes) else document(said)
    return Transcript(f"newer fault: {name}", body, meaning, status=status, headers=headers)


FAULTS: Final = [
    refused("ollama: the model needs tools that it has not",
        400,
        {"error": {"message": "registry.ollama.ai/library/gemma3:4b does not support tools",
            "type": "invalid_request_error"}},
        Failed("llm.invalid_request", "does not support tools")),
    refused("vllm: no tool parser",
        400,
        {"object": "error",
            "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            "code": 400},
        Failed("llm.invalid_request", "--tool-call-parser")),
    refused("vllm: the model is asleep",
        503, {"detail": "model is sleeping"}, Failed("llm.unavailable", "sleeping", True)),
    refused("llama.cpp: it loads its model",
        503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}},
        Failed("llm.unavailable", "Loading model", True)),
    refused("llama.cpp: the prompt is too long",
        400,
        {"error": {"code": 400,
            "message": "request (5013 tokens) exceeds the available context size (4096 tokens), try increasing it",
            "type": "exceed_context_size_error", "n_prompt_tokens": 5013, "n_ctx": 4096}},
        Failed("llm.context_exceeded", "5013")),
    refused("lm studio: no model is loaded",
        404,
        {"error": {
            "message": "No models loaded. Please load a model in the developer page or use the 'lms load' command.",
            "type": "invalid_request_error"}},
        Failed("llm.not_configured", "lms load")),
    refused("lm studio: the model was unloaded",
        400, {"error": "Model unloaded."}, Failed("llm.invalid_request", "Model unloaded")),
    refused("openrouter: no provider takes these parameters",
        404, {"error": {"message": "No endpoints found that support tool use.", "code": 404}},
        Failed("llm.not_configured", "No endpoints")),
    refused("openrouter: moderation",
        403,
        {"error": {"code": 403, "message": "requires moderation",
            "metadata": {"reasons": ["violence"], "flagged_input": "x"}}},
        Failed("llm.refused", "moderation")),
    refused("openrouter: free models a day",
        429,
        {"error": {"message": "Rate limit exceeded: free-models-per-day", "code": 429,
            "metadata": {"headers": {"X-RateLimit-Reset": "1741305600000"}}}},
        Failed("llm.rate_limited", "free-models-per-day")),
    refused("bedrock: throttled",
        429, {"message": "Too many tokens, please wait before trying again."},
        Failed("llm.rate_limited", "Too many tokens", True)),
    refused("bedrock: throttled, as 400",
        400, {"__type": "ThrottlingException", "message": "Too many requests"},
        Failed("llm.rate_limited", "Too many requests", True)),
    refused(
        "azure: too many, in a sentence with a wait",
        429,
        {
            "error": {
                "code": "429",
                "message": "Requests to the "
                "ChatCompletions_Create Operation have exceeded token rate limit. Please retry after 6 seconds.",
            }
        },
        Failed("llm.rate_limited", "retry after", True, 6.0),
    ),
    refused("cloudflare: its own page",
        524, b"<html><title>524: A timeout occurred</title></html>", Failed("llm.unavailable", "524", True)),
    refused("nginx: the body is too large",
        413, b"<html><title>413 Request Entity Too Large</title></html>", Failed("llm.context_exceeded", "413")),
    refused("fastapi: a list of details",
        422, {"detail": [{"loc": ["body", "tools"], "msg": "field required", "type": "value_error"}]},
        Failed("llm.invalid_request", "field required")),
    refused("an empty body", 500, b"", Failed("llm.unavailable", "500", True)),
    refused("an empty body of 400", 400, b"", Failed("llm.invalid_request", "400")),
    refused("the wait in a header in ms",
        429, {"error": "busy"}, Failed("llm.rate_limited", "busy", True, 1.5), **{"retry-after-ms": "1500"}),
    refused("a wait of days",
        429, {"error": "busy"}, Failed("llm.rate_limited", "busy", True, 86400.0), **{"retry-after": "9999999"}),
    refused("a negative wait",
        429, {"error": "busy"}, Failed("llm.rate_limited", "busy", True, 0.0), **{"retry-after": "-5"}),
    refused("a wait that is no number",
        429, {"error": "busy"}, Failed("llm.rate_limited", "busy", True), **{"retry-after": "soon"}),
    refused("deepseek: out of money, as 402",
        402, {"error": {"message": "Insufficient Balance"}}, Failed("llm.rate_limited", "Insufficient Balance")),
    refused("kimi: the account is suspended",
        429,
        {"error": {"type": "exceeded_current_quota_error",
            "message": "Your account is suspended, please check your plan"}},
        Failed("llm.rate_limited", "suspended")),
    refused("glm: too many at once",
        429, {"error": {"code": "1302", "message": "您的账户已达到速率限制"}},
        Failed("llm.rate_limited", "速率限制", True)),
    refused("qwen: a filter",
        400, {"error": {"code": "data_inspection_failed", "message": "Input data may contain inappropriate content."}},
        Failed("llm.refused", "inappropriate")),
    refused("litellm: a fault within a fault",
        400,
        {"error": {
            "message": "litellm.ContextWindowExceededError: BadRequestError: maximum context length is 8192 tokens",
            "code": "400"}},
        Failed("llm.context_exceeded", "8192")),
    refused("litellm: the budget is used up",
        400,
        {"error": {"message": "Budget has been exceeded! Current cost: 10.1, Max budget: 10.0",
            "type": "budget_exceeded", "code": "400"}},
        Failed("llm.rate_limited", "Budget")),
    refused("an expired key",
        401, {"error": {"message": "token expired or incorrect", "type": "401"}},
        Failed("llm.not_configured", "token expired")),
    refused("a fault that is a number", 500, b"500", Failed("llm.unavailable", "500", True)),
    refused("a fault that is a list of texts", 400, ["bad", "worse"], Failed("llm.invalid_request", "400")),
    refused("418", 418, {"message": "short and stout"}, Failed("llm.invalid_request", "stout")),
    refused("529 of Anthropic's",
        529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        Failed("llm.unavailable", "Overloaded", True)),
]  # fmt: skip


ALL: Final = [*FLUSHED, *SLOTS, *NAMES, *ARGUMENTS, *EVENTS, *TALK, *FAULTS, *UNPARSED]
