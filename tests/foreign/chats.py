"""Chats of servers that people run by themselves: vLLM, SGLang, Ollama, llama.cpp, LM Studio, LocalAI."""

from __future__ import annotations

import json
from typing import Final

from tests.foreign.transcripts import DONE, Failed, Said, Transcript, call, chunk, document, end, stream, text, usage

HI: Final = '{"text": "hi"}'
ADDED: Final = Said(calls=(("add", {"text": "hi"}),))
TWO: Final = Said(calls=(("add", {"text": "one"}), ("add", {"text": "two"})))

VLLM: Final = [
    Transcript("vllm: plain, usage in a chunk of its own",
        stream(chunk({"role": "assistant", "content": ""}), *text("Hel", "lo."), end(), chunk(usage=usage(5, 2)), DONE),
        Said("Hello.", usage=(5, 2))),
    Transcript("vllm: thinking under `reasoning`",
        stream(chunk({"role": "assistant"}), chunk({"reasoning": "Two "}), chunk({"reasoning": "ways."}), *text("One."),
            end(), DONE),
        Said("One.", thinking="Two ways.")),
    Transcript("vllm: thinking under both names at once is one thought",
        stream(chunk({"reasoning": "Hm.", "reasoning_content": "Hm."}), *text("Yes."), end(), DONE),
        Said("Yes.", thinking="Hm.")),
    Transcript("vllm: name first, arguments in parts",
        stream(call(id="chatcmpl-tool-1", name="add"), call(args='{"te'), call(args='xt": "'), call(args='hi"}'),
            end("tool_calls"), DONE),
        ADDED),
    Transcript("vllm: the tool's name only behind its id",
        stream(call(id="c"), call(name="add"), call(args=HI), end("tool_calls"), DONE), ADDED),
    Transcript("vllm: a named tool choice ends with stop",
        stream(call(id="c", name="add", args=HI), end("stop"), DONE), ADDED),
    Transcript("vllm: behind a gateway that counts its one choice from 1",
        stream(*({**each, "choices": [{**each["choices"][0], "index": 1}]} for each in (*text("Hel", "lo."), end())),
            DONE),
        Said("Hello.")),
    Transcript("vllm: stopped by a stop sequence",
        stream(*text("So far"), end("stop", stop_reason="###"), DONE), Said("So far")),
    Transcript("vllm: aborted", stream(*text("So f"), end("abort"), DONE), Failed("llm.unavailable", "abort", True)),
    Transcript("vllm: too long for the model",
        document({"object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
            "type": "BadRequestError", "param": None, "code": 400}),
        Failed("llm.context_exceeded", "4096"), status=400),
    Transcript("vllm: longer than max_model_len",
        document({"error": {
            "message": "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
            "type": "BadRequestError", "code": 400}}),
        Failed("llm.context_exceeded", "8192"), status=400),
    Transcript("vllm: input tokens exceed",
        document(
            {"error": {"message": "Input token count of 5000 exceeds the limit of this model (4000).", "code": 400}}),
        Failed("llm.context_exceeded"), status=400),
    Transcript("vllm: no such model",
        document({"object": "error", "message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404}),
        Failed("llm.not_configured", "does not exist"), status=404),
    Transcript("vllm: an error with status 200",
        document({"object": "error", "message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404}),
        Failed("llm.not_configured", "does not exist")),
    Transcript("vllm: an error within the stream",
        stream(*text("So"),
            {"error": {"object": "error", "message": "CUDA error", "type": "InternalServerError", "code": 500}}, DONE),
        Failed("llm.unavailable", "CUDA", True)),
    Transcript("vllm: a template that wants turns",
        document(
            {"error": {"message": "Conversation roles must alternate user/assistant/user/assistant/...", "code": 400}}),
        Failed("llm.invalid_request", "alternate"), status=400),
]  # fmt: skip

SGLANG: Final = [
    Transcript("sglang: whole without a reason", stream(*text("A whole ", "answer."), DONE), Said("A whole answer.")),
    Transcript("sglang: calls without a reason", stream(call(id="c", name="add", args=HI), DONE), ADDED),
    Transcript("sglang: a call without arguments and without a reason may have lost them",
        stream(call(id="c", name="add", args=""), DONE), Failed("llm.truncated", "not whole", True)),
    Transcript("sglang: every piece of a call with another id",
        stream(call(id="c1", name="add", args=""), call(id="c2", args='{"text"'), call(id="c3", args=': "hi"}'),
            end("tool_calls"), DONE),
        ADDED),
    Transcript("sglang: null arguments first",
        stream(call(id="c", name="add", args=None), call(args=HI), end("tool_calls"), DONE), ADDED),
    Transcript("sglang: an empty stream", stream(DONE), Failed("llm.truncated", "", True)),
    Transcript("sglang: input too long",
        document({"object": "error",
            "message": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            "type": "BadRequestError", "code": 400}),
        Failed("llm.context_exceeded"), status=400),
    Transcript("sglang: matched_stop beside the reason",
        stream(*text("Ok"), chunk({"content": None}, "stop", usage=None), DONE), Said("Ok")),
]  # fmt: skip

OLLAMA: Final = [
    Transcript("ollama: a whole call ends with stop",
        stream(chunk({"role": "assistant", "content": "",
            "tool_calls": [
                {"id": "call_1", "index": 0, "type": "function", "function": {"name": "add", "arguments": HI}}]}),
            end("stop"), DONE),
        ADDED),
    Transcript("ollama: all calls with index 0",
        stream(call(0, "a", "add", '{"text": "one"}'), call(0, "b", "add", '{"text": "two"}'), end("tool_calls"), DONE),
        TWO),
    Transcript("ollama: arguments as an object",
        stream(call(0, "a", "add", {"text": "hi"}), end("tool_calls"), DONE), ADDED),
    Transcript("ollama: no [DONE]", stream(*text("Hi"), end("stop", usage=usage(3, 1))), Said("Hi", usage=(3, 1))),
    Transcript("ollama: no such model",
        document({"error": "model 'x' not found, try pulling it first"}), Failed("llm.not_configured", "pulling"),
        status=404),
    Transcript("ollama: an error as text in the stream",
        stream(*text("So"), {"error": "an error was encountered"}), Failed("llm.unavailable", "encountered", True)),
    Transcript("ollama: thinking in tags within the text",
        stream(*text("<th", "ink>Hm.</thi", "nk>\n\nFour."), end(), DONE), Said("Four.", thinking="Hm."),
        reasoning="think_tags"),
    Transcript(
        "ollama: a JSON document a line",
        b'{"choices":[{"index":0,"delta":{"content":"Hi "}}]}\n'
        b'{"choices":[{"index":0,"delta":{"content":"you"},"finish_reason":"stop"}]}\n',
        Said("Hi you"),
    ),
    Transcript("ollama: calls without ids and without an index in one list",
        stream(chunk({"tool_calls": [{"function": {"name": "add", "arguments": {"text": "one"}}},
            {"function": {"name": "add", "arguments": {"text": "two"}}}]}),
            end("stop"), DONE),
        TWO),
]  # fmt: skip

LLAMACPP: Final = [
    Transcript("llama.cpp: the template opens the thinking",
        stream(*text("The plan.\n</thi", "nk>\n\nFour."), end(), DONE), Said("Four.", thinking="The plan.\n"),
        reasoning="think_tags"),
    Transcript("llama.cpp: the template opens the thinking, as is known",
        stream(*text("The plan.</think>", "Four."), end(), DONE), Said("Four.", thinking="The plan."),
        reasoning="think_open"),
    Transcript("llama.cpp: the tag comes though the template opens it",
        stream(*text("<think>The plan.</think>Four."), end(), DONE), Said("Four.", thinking="The plan."),
        reasoning="think_open"),
    Transcript("llama.cpp: a field `error` of the stream",
        stream(*text("So"), 'error: {"code":500,"message":"slot unavailable","type":"server_error"}\n\n'),
        Failed("llm.unavailable", "slot", True)),
    Transcript("llama.cpp: the context is full",
        document({"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it",
            "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 4096}}),
        Failed("llm.context_exceeded"), status=400),
    Transcript("llama.cpp: the model is still loaded",
        document({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}),
        Failed("llm.unavailable", "Loading", True), status=503),
    Transcript(
        "llama.cpp: an emoji cut between two events, as bytes",
        b'data: {"choices":[{"index":0,"delta":{"content":"ok \xf0\x9f"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"\x98\x80!"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
        Said("ok \U0001f600!"),
    ),
    Transcript("llama.cpp: length", stream(*text("So f"), end("length"), DONE), Failed("llm.truncated", "max_tokens")),
    Transcript("llama.cpp: timings and usage in the last chunk",
        stream(*text("Hi"), end("stop", usage=usage(4, 1), timings={"predicted_ms": 3}), DONE),
        Said("Hi", usage=(4, 1))),
]  # fmt: skip

LMSTUDIO: Final = [
    Transcript("lm studio: an error as an event",
        b'event: error\ndata: {"error":{"message":"Model unloaded."}}\n\n',
        Failed("llm.unavailable", "unloaded", True)),
    Transcript("lm studio: an error as a sentence in an event",
        b"event: error\ndata: The model has crashed\n\n", Failed("llm.unavailable", "crashed", True)),
    Transcript("lm studio: the model's own word for the end", stream(*text("Hi"), end("eosFound"), DONE), Said("Hi")),
    Transcript("lm studio: as many tokens as it may",
        stream(*text("Hi"), end("maxPredictedTokensReached"), DONE), Failed("llm.truncated", "max_tokens")),
    Transcript("lm studio: stopped by its user",
        stream(*text("Hi"), end("userStopped"), DONE), Failed("llm.unavailable", "userStopped", True)),
    Transcript("lm studio: name and id in every piece",
        stream(call(0, "c", "add", '{"text"'), call(0, "c", "add", ': "hi"'), call(0, "c", "add", "}"),
            end("tool_calls"), DONE),
        ADDED),
    Transcript(
        "lm studio: context overflow",
        document(
            {
                "error": "Trying to keep the first 5000 tokens, but the model is loaded with context "
                "length of only 4096 tokens"
            }
        ),
        Failed("llm.context_exceeded", "4096"),
        status=400,
    ),
]  # fmt: skip

LOCALAI: Final = [
    Transcript("localai: the same call again at another index",
        stream(call(0, "c", "add", HI), call(1, "c", "add", HI), end("tool_calls"), DONE), ADDED),
    Transcript("localai: one id for two calls",
        stream(call(0, "c", "add", '{"text": "one"}'), call(1, "c", "add", '{"text": "two"}'), end("tool_calls"), DONE),
        TWO),
    Transcript("localai: one slot, no ids, the first call without arguments",
        stream(call(0, None, "ping", ""), call(0, None, "add", HI), end("tool_calls"), DONE),
        Said(calls=(("ping", {}), ("add", {"text": "hi"})))),
    Transcript("localai: the call of the oldest form",
        stream(chunk({"function_call": {"name": "add", "arguments": '{"text"'}}),
            chunk({"function_call": {"arguments": ': "hi"}'}}), end("function_call"), DONE),
        ADDED),
    Transcript("localai: both forms of one call",
        stream(chunk({"function_call": {"name": "add", "arguments": HI},
            "tool_calls": [{"index": 0, "id": "c", "function": {"name": "add", "arguments": HI}}]}),
            end("tool_calls"), DONE),
        ADDED),
    Transcript("localai: two forms that contradict",
        stream(chunk({"function_call": {"name": "add", "arguments": '{"text": "bye"}'},
            "tool_calls": [{"index": 0, "id": "c", "function": {"name": "add", "arguments": HI}}]}),
            end("tool_calls"), DONE),
        Failed("llm.truncated", "contradicts", True)),
    Transcript("localai: lines that end with CR LF", stream(*text("Hi"), end(), DONE, end="\r\n"), Said("Hi")),
    Transcript("localai: no blank lines between events",
        stream(*text("Hi ", "you"), end(), DONE).replace(b"\n\n", b"\n"), Said("Hi you")),
    Transcript("localai: a byte order mark", b"\xef\xbb\xbf" + stream(*text("Hi"), end(), DONE), Said("Hi")),
]  # fmt: skip

LOOSE: Final = [
    Transcript("loose: the last piece is the whole text once more",
        stream(*text("Tea is ", "ready."), chunk({"content": "Tea is ready."}, "stop"), DONE), Said("Tea is ready.")),
    Transcript("loose: the last piece is the one before it once more",
        stream(*text("Tea is ready."), chunk({"content": "Tea is ready."}, "end_turn"), DONE), Said("Tea is ready.")),
    Transcript("loose: the last piece is all text and all thinking once more",
        stream(chunk({"reasoning_content": "They want "}), chunk({"reasoning_content": "hot tea."}),
            *text("Tea is ", "ready."),
            chunk({"reasoning_content": "They want hot tea.", "content": "Tea is ready."}, "stop"), DONE),
        Said("Tea is ready.", thinking="They want hot tea.")),
    Transcript("loose: the last piece is the whole text and the call once more",
        stream(*text("I add ", "it now."), call(0, "c", "add", HI),
            chunk({"content": "I add it now.",
                "tool_calls": [{"index": 0, "id": "c", "function": {"name": "add", "arguments": HI}}]},
                "tool_calls"),
            DONE),
        Said("I add it now.", calls=ADDED.calls)),
    Transcript("loose: a completion's last piece is the whole text once more",
        stream({"choices": [{"index": 0, "text": "Tea is "}]}, {"choices": [{"index": 0, "text": "ready."}]},
            {"choices": [{"index": 0, "text": "Tea is ready.", "finish_reason": "stop"}]}, DONE),
        Said("Tea is ready.")),
    *(
        Transcript(f"loose: a text that says the same twice, {name}", stream(*events, DONE), Said(said))
        for name, events, said in (
            ("with its end behind it", [*text("Tea is ready.", "Tea is ready."), end()], "Tea is ready." * 2),
            (
                "with words behind it",
                [*text("Tea is ready." * 2), chunk({"content": "."}, "stop")],
                f"{'Tea is ready.' * 2}.",
            ),
            ("and is short", [*text("Tea, "), chunk({"content": "Tea, "}, "stop")], "Tea, Tea, "),
            (
                "and more behind it",
                [*text(*["Tea is ready."] * 2), chunk({"content": "Tea is ready."}, "stop")],
                "Tea is ready." * 3,
            ),
            ("with a reason in each chunk", [chunk({"content": "Tea is ready."}, "stop")] * 2, "Tea is ready." * 2),
        )
    ),
    Transcript("loose: a text in circles until it is too long",
        stream(*text("Tea is ready."), chunk({"content": "Tea is ready."}, "length"), DONE), Failed("llm.truncated")),
    Transcript("loose: each piece of the arguments repeats all before it",
        stream(call(id="c", name="add", args="{"), call(args='{"te'), call(args='{"text": "'), call(args=HI), end(),
            DONE),
        ADDED),
    Transcript("loose: pieces that repeat, with the whole once more at the end",
        stream(call(id="c", name="add", args='{"te'), call(args=HI), call(args=HI), end("tool_calls"), DONE), ADDED),
    Transcript("loose: an object inside begins as the outer one does",
        stream(call(id="c", name="add", args='{"a": '), call(args='{"a": 1}'), call(args="}"), end("tool_calls"), DONE),
        Said(calls=(("add", {"a": {"a": 1}}),))),
    *(
        Transcript(
            f"loose: the arguments are called `{name}`",
            stream(
                chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "delete", name: {"text": "hi"}}}]}),
                end("tool_calls"),
                DONE,
            ),
            Said(calls=(("delete", {"text": "hi"}),)),
        )
        for name in ("input", "parameters", "args")
    ),
    Transcript("loose: a call without `function` around it, alone in place of a list",
        stream(chunk({"tool_calls": {"id": 7, "name": "add", "arguments": HI}}), end("tool_calls"), DONE), ADDED),
    Transcript(
        "loose: the index as text, then as a number, then none",
        stream(
            call("1", id="c", name="add", args='{"te'),  # type: ignore[arg-type]
            call(1, args='xt": '),
            call(None, args='"hi'),
            call(None, id="c", args='"}'),
            end("tool_calls"),
            DONE,
        ),
        ADDED,
    ),
    Transcript("loose: a null among the calls, a list as the delta, one object as the choices",
        stream(chunk({"tool_calls": [None]}),
            {"choices": {"index": "0", "delta": [{"content": {"text": {"value": "Hi"}}}], "finish_reason": "stop"}},
            DONE),
        Said("Hi")),
    Transcript("loose: words of refusal as a part of the content",
        stream(chunk({"content": [{"type": "refusal", "refusal": "Not that."}]}), end(), DONE),
        Failed("llm.refused", "Not that.")),
    *(
        Transcript(f"loose: {reason!r} ends in order", stream(*text("Hi"), end(reason), DONE), Said("Hi"))
        for reason in ("FinishReason.STOP", "FINISH_REASON_STOP", "endTurn", "Eos Token", {"type": "stop"}, ["stop"])
    ),
    *(
        Transcript(
            f"loose: {reason!r} is no whole answer",
            stream(call(id="c", name="add", args=HI), end(reason), DONE),
            Failed("llm.truncated", again=again),
        )
        for reason, again in (({"type": "length"}, False), ("maxTokens", False), (True, True), (["stop", 5], True))
    ),
    Transcript("loose: tokens in parts, as text, and as no numbers",
        stream(chunk(usage={"prompt_tokens": "5"}), *text("Hi"),
            'data: {"choices": [], "usage": {"completion_tokens": 1e400}}\n\n',
            chunk(usage={"completion_tokens": 3, "prompt_tokens": None}), end(), DONE),
        Said("Hi", usage=(5, 3))),
    Transcript("loose: an integer of 5,000 digits beside the answer",
        stream(f'data: {{"created": {"9" * 5000}, "choices": []}}\n\n', *text("Hi"), end(), DONE), Said("Hi")),
    Transcript("loose: U+2028 in a document a line",
        "\n".join(json.dumps(each, ensure_ascii=False) for each in (*text("a\u2028b"), end())).encode(),
        Said("a\u2028b")),
    Transcript(
        "loose: a byte order mark before each event, the mark in quotes, an empty text as a sign of life",
        b"".join(
            b"\xef\xbb\xbf" + each
            for each in (stream(*text("Hi")), stream('data: ""\n\n', end(), 'data: "[done]"\n\n'))
        ),
        Said("Hi"),
    ),
]  # fmt: skip

ALL: Final = [*VLLM, *SGLANG, *OLLAMA, *LLAMACPP, *LMSTUDIO, *LOCALAI, *LOOSE]
