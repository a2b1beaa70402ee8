"""Chat Completions: a request as its body, and a stream of its chunks as pieces.

The chunks are read as servers write them, which is not always as OpenAI does: thinking comes under two names or inside
the text, tokens are reported in every chunk, and the whole message stands behind its pieces, or in place of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from hai_flow.errors import StepError
from hai_flow.models.answer import NULLS, Answer
from hai_flow.models.calls.text_pieces import ThinkTags
from hai_flow.models.conversation import arrange
from hai_flow.models.ends import Stand, reason_of, word_of
from hai_flow.models.faults import fault_of_body, refusal_error, too_many_files
from hai_flow.models.opaque_data import Seals, list_sealed_ids, seal_of, with_seals
from hai_flow.models.structured import is_strict, schema_prompt
from hai_flow.models.vocabulary import Endpoint, Finish, Media, Message, Piece, Request, Tool, Usage
from hai_flow.values import Json

_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_SAID: Final = {
    "wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "opus": "audio/ogg", "aac": "audio/aac",
    "pcm16": "audio/pcm",
}  # fmt: skip
_THOUGHTS: Final = ("thinking", "reasoning", "reasoning.summary", "reasoning.text")  # types of parts
_PARTS: Final = ("content", "thinking_blocks", "reasoning_details")  # of a message: lists in which thinking stands
_THINKING: Final = (
    "reasoning_content", "reasoning", "thinking", "thinking_content", "thought", "thoughts", "reasoning_text",
)  # fmt: skip
_TEXTS: Final = ("text", "value", "content")  # their names in a part of a message; the first counts
_ARGUMENTS: Final = ("arguments", "input", "parameters", "args")  # their names in a call; the first counts
_OF_TOOLS: Final = ("tool", "function")  # roles of results, of gateways that call tools of their own
_CALLS: Final = ("tool_calls", "toolCalls", "tool_call")  # their names in a message
_REASONS: Final = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason")
_REPORTS: Final = frozenset({"x_groq", "meta", "metadata", "usage", "usageMetadata"})  # in which tokens are told
_REASON_NAMES: Final = frozenset(_REASONS)
_INPUTS: Final = (
    "prompt_tokens", "input_tokens", "promptTokens", "inputTokens", "promptTokenCount", "prompt_eval_count", "prompt_n",
)  # fmt: skip
_OUTPUTS: Final = (
    "completion_tokens", "output_tokens", "completionTokens", "outputTokens", "candidatesTokenCount", "eval_count",
    "predicted_n",
)  # fmt: skip
_COUNT_DIGITS_MAX: Final = 15  # of a number of tokens
_AUDIO_CHARS_MAX: Final = 96 * 1024 * 1024  # base64 of one answer; more is an error


# --- the request ------------------------------------------------------------------------------------------------------


def body_of(request: Request) -> dict[str, Json]:
    """The body of the request, with `stream`. Raises StepError `llm.invalid_request` for content that the protocol
    can't carry."""
    endpoint = request.endpoint
    quirks, messages = endpoint.quirks, list(request.messages)
    body: dict[str, Json] = {"model": endpoint.model, "stream": True}
    if quirks.usage == "last":
        body["stream_options"] = {"include_usage": True}
    if request.output is not None:
        if quirks.output == "json_schema":
            answer = {"name": "answer", "schema": dict(request.output), "strict": is_strict(request.output)}
            body["response_format"] = {"type": "json_schema", "json_schema": answer}
        else:
            messages = with_schema(messages, request.output)
        if quirks.output == "json_object":
            body["response_format"] = {"type": "json_object"}
    if request.tools:
        body["tools"] = [_tool(tool, endpoint) for tool in request.tools]
    messages = arrange(messages, alternate=quirks.alternate)
    thinks = quirks.send_back == "tool_turns" and any(message.calls for message in messages)
    body["messages"] = [_message(message, quirks.reasoning if thinks else "") for message in messages]
    ids = list_sealed_ids(messages)
    for record in body["messages"] if ids else ():
        if "tool_call_id" in record:
            record["tool_call_id"] = ids.get(record["tool_call_id"], record["tool_call_id"])
    return with_params(body, _params(endpoint))


def with_params(body: dict[str, Json], params: Mapping[str, Json]) -> dict[str, Json]:
    """The body with the parameters that an author gives. Tools of the provider itself stand beside the agent's."""
    tools = [*body.get("tools", ()), *params["tools"]] if isinstance(params.get("tools"), list) else None
    return {**body, **params, **({} if tools is None else {"tools": tools})}


def with_schema(messages: Sequence[Message], schema: Mapping[str, Json]) -> list[Message]:
    """The messages. The required form of the answer stands at the end of the system's message."""
    instruction = schema_prompt(schema)
    if messages and messages[0].role == "system" and isinstance(messages[0].content, str):
        return [Message("system", f"{messages[0].content}\n\n{instruction}"), *messages[1:]]
    return [Message("system", instruction), *messages]


def _params(endpoint: Endpoint) -> dict[str, Json]:
    """Parameters by OpenAI's names. The entries of `extra` go into the body unchanged."""
    params = dict(endpoint.params)
    extra = params.pop("extra", {})
    if "max_tokens" in params:
        params[endpoint.quirks.max_tokens] = params.pop("max_tokens")
    return {**params, **extra}


def _tool(tool: Tool, endpoint: Endpoint) -> dict[str, Json]:
    function: dict[str, Json] = {
        "name": tool.name, "description": tool.description, "parameters": dict(tool.schema),
    }  # fmt: skip
    if endpoint.quirks.strict_tools and is_strict(tool.schema):
        function["strict"] = True
    return {"type": "function", "function": function}


def _message(message: Message, thinking: str) -> dict[str, Json]:
    """`thinking`: the field by which an assistant's thinking goes back, even if there was none; "": it does not."""
    content = message.content
    record: dict[str, Json] = {"role": message.role}
    record["content"] = content if isinstance(content, str) else [_part(part) for part in content]
    if message.role == "tool":
        record["tool_call_id"] = message.call_id
    if message.role == "assistant":
        if message.calls:
            record["content"] = content or None
            record["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.args}}
                for call in message.calls
            ]
        if thinking and thinking not in ("think_tags", "think_open"):
            record[thinking] = message.thinking
        return with_seals(record, message)
    return record


def _part(part: Json) -> dict[str, Json]:
    kind, source = part.get("type"), part.get("source", {})
    value, mime = source.get("value", ""), source.get("mimeType", "")
    is_data = source.get("type") == "data"
    if kind == "text":
        return {"type": "text", "text": part.get("text", "")}
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{value}" if is_data else value}}
    if kind == "audio" and is_data and mime in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": value, "format": _AUDIO[mime]}}
    if kind == "document" and is_data:
        name = source.get("filename", "document")
        return {"type": "file", "file": {"filename": name, "file_data": f"data:{mime};base64,{value}"}}
    raise unknown_part(kind, mime)


def unknown_part(kind: Json, mime: str) -> StepError:
    """The error for a part of a message that a protocol has no words for."""
    described = f"{kind!r}" + (f" of {mime}" if mime else "")
    return StepError(
        f"expected parts `text`, `image`, `audio` (WAV or MP3) or `document` (as data) in a message; {described} "
        "is nothing that this model's protocol can carry",
        code="llm.invalid_request",
        retriable=False,
    )


# --- the answer -------------------------------------------------------------------------------------------------------


class ChatReader:
    """Reads the chunks of one answer. `reasoning` as in `Quirks`, `audio`: the format in which the model speaks,
    `names`: of the functions that were offered."""

    def __init__(self, reasoning: str = "reasoning_content", audio: str = "", names: Collection[str] = ()) -> None:
        self.answer = Answer(names, tags_of(reasoning))
        self._fields = tuple(dict.fromkeys((reasoning, *_THINKING)))
        self._places = frozenset((*self._fields, *_PARTS, "provider_specific_fields")) - {"content"}
        self._audio = audio
        self._sound: list[str] = []  # base64, piece by piece
        self._sound_chars = 0
        self._slots: dict[str, int] = {}  # each id of a call -> its index
        self._last_slot = 0
        self._is_counted = False
        self._seals = Seals()
        self._choice: int | None = None  # the number of the answer: that of the first piece
        self._role: Json = None  # of the message to which the pieces belong
        self._unnamed: list[str] = []  # text without a role behind the result of a tool: of that, or of the model

    def is_answer(self, event: Mapping[str, Json]) -> bool:
        return isinstance(event.get("choices"), list)

    def read(self, event: Mapping[str, Json]) -> Iterator[Piece]:
        """The pieces of one chunk. Raises StepError for one that reports a fault."""
        for report in _iter_reports(event):
            self._is_counted = True
            yield from self.answer.usage(usage_of(report))
        if not self._is_counted and isinstance(timings := event.get("timings"), dict):
            yield from self.answer.usage(usage_of(timings))
        feedback = _object(event.get("prompt_feedback") or event.get("promptFeedback"))
        if blocked := feedback.get("block_reason") or feedback.get("blockReason"):
            raise refusal_error(f"its provider has blocked the prompt ({blocked})")
        for choice in _objects(event.get("choices")):
            index = _index_of(choice) or 0
            self._choice = index if self._choice is None else self._choice
            if index != self._choice:  # another answer, which nobody has asked for
                continue
            if choice.get("error"):
                raise fault_of_body(choice)
            reason = _reason_in(choice, event)
            is_last = self._is_end(reason)
            for delta in _objects(choice.get("delta")):
                if not isinstance(delta, dict):
                    yield from self._text(delta, is_last=is_last)
                elif delta.get("error"):
                    raise fault_of_body(delta)
                else:
                    yield from self._delta(delta, is_last=is_last)
            if message := choice.get("message"):
                yield from self._message(message)
            if "delta" not in choice and "message" not in choice:
                yield from self._text(choice.get("text"), is_last=is_last)
            if reason is not None:
                yield from self._release_unnamed()
            yield from self.answer.release()
            self.answer.reason(reason)

    def end(self) -> Iterator[Piece]:
        """The last pieces, when the stream is over. An answer that is not whole gets no `Finish`."""
        if self._sound and self.answer.stand in (Stand.ENDED, Stand.OVER):
            sound = b"".join(base64.b64decode(each, validate=True) for each in self._sound)
            yield Media(_SAID.get(self._audio, "application/octet-stream"), sound)
        for piece in self.answer.end():
            if isinstance(piece, Finish) and piece.reason == "stop":
                yield replace(piece, opaque=self._seals.opaque(self.answer.calls.sealed))
            else:
                yield piece

    def _is_end(self, reason: Json) -> bool:
        """Whether a chunk with this reason is the last one of a whole answer: some servers give a reason in every
        chunk, and a model that goes in circles comes to its length."""
        has_ended = self.answer.stand is Stand.ENDED
        return not has_ended and isinstance(reason, str) and reason_of(reason) == "stop"

    def _delta(self, delta: Mapping[str, Json], *, is_last: bool) -> Iterator[Piece]:
        if role := delta.get("role"):
            self._role, self._unnamed = role, []
        if self._role in _OF_TOOLS:
            if role:
                self.answer.calls.note_result(_word(delta.get("tool_call_id")))
                return
            if not _list_calls(delta) and not self._read_thinking(delta):
                self._unnamed.append(content_text(delta.get("content")))
                return
            self._role = None  # a tool neither calls nor thinks
            yield from self._release_unnamed()
        self._seals.take(delta)
        yield from self.answer.think(self._read_thinking(delta), is_last=is_last)
        yield from self._text(delta.get("content"), is_last=is_last)
        yield from self._beside(delta)
        for number, call in enumerate(_list_calls(delta)):
            id, name, args = _call_of(call)
            slot = self._slot_of(call, number, id, name)
            yield from self.answer.call(slot, id=id, name=name, args=args)
            self.answer.calls.seal(slot, seal_of(call))
        if isinstance(old := delta.get("function_call"), dict):
            _, name, args = _call_of({"function": old})
            yield from self.answer.old_call(name, args)

    def _release_unnamed(self) -> Iterator[Piece]:
        text, self._unnamed = "".join(self._unnamed), []
        yield from self.answer.text(text)

    def _text(self, content: Json, *, is_last: bool) -> Iterator[Piece]:
        yield from self.answer.text(content_text(content))
        if is_last:
            yield from self.answer.drop_repetition()

    def _slot_of(self, call: Mapping[str, Json], number: int, id: str, name: str) -> int:
        """The index of a call. Without one a piece belongs to the call of its id; without an id too, to the last."""
        index = _index_of(call)
        if index is None:
            index = self._slots.get(id, number) if id or name or number else self._last_slot
        if id:
            self._slots.setdefault(id, index)
        self._last_slot = index
        return index

    def _message(self, message: Mapping[str, Json]) -> Iterator[Piece]:
        """The answer as a whole, which some servers say in place of its pieces, and others behind them."""
        if message.get("role") in _OF_TOOLS:
            self.answer.calls.note_result(_word(message.get("tool_call_id")))
            return
        is_alone = self.answer.stand is Stand.SILENT
        self._seals.take(message, is_whole=True)
        yield from self.answer.whole_thought(self._read_thinking(message))
        yield from self.answer.whole_text(content_text(message.get("content")))
        if is_alone:
            yield from self._beside(message)
        calls = [_call_of(call) for call in _list_calls(message)]
        yield from self.answer.whole_calls(calls)
        for number, call in enumerate(_list_calls(message)):
            self.answer.calls.seal(("whole", number), seal_of(call))
        if isinstance(old := message.get("function_call"), dict) and not calls:
            yield from self.answer.whole_calls([_call_of({"function": old})])

    def _read_thinking(self, delta: Mapping[str, Json]) -> str:
        """The thinking in a message or a piece of one, by the first of its names that has any."""
        if self._places.isdisjoint(delta) and not isinstance(delta.get("content"), list):
            return ""  # as of nearly every piece
        for fields in (delta, _object(delta.get("provider_specific_fields"))):
            for name in self._fields:
                if thought := plain_text(fields.get(name)):
                    return thought
        return next(filter(None, map(_join_thoughts, (delta.get(name) for name in _PARTS))), "")

    def _beside(self, delta: Mapping[str, Json]) -> Iterator[Piece]:
        """Pictures, sound and words of refusal."""
        content = delta.get("content")
        for part in (*(content if isinstance(content, list) else ()), *(delta.get("images") or ())):
            yield from self._picture(part)
            if isinstance(part, dict) and part.get("type") == "refusal":
                self.answer.refuse(plain_text(part.get("refusal")))
        if isinstance(audio := delta.get("audio"), dict):
            yield from self._read_audio(audio)
        self.answer.refuse(plain_text(delta.get("refusal")))

    def _read_audio(self, audio: Mapping[str, Json]) -> Iterator[Piece]:
        """A piece of sound, and the piece of its transcript."""
        yield from self.answer.text(plain_text(audio.get("transcript")))
        if data := audio.get("data"):
            self._sound_chars += len(data)
            if self._sound_chars > _AUDIO_CHARS_MAX:
                raise too_many_files(1, _AUDIO_CHARS_MAX // 4 * 3)
            self._sound.append(data)

    def _picture(self, part: Json) -> Iterator[Piece]:
        """A picture as a part of the answer. Where the model gives only an address, the text gets a picture in
        Markdown: addresses from a model are never fetched."""
        if not isinstance(part, dict) or part.get("type") != "image_url":
            return
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        if not isinstance(url, str) or not url:
            return
        if not url.startswith("data:"):
            yield from self.answer.text(f"![]({url})", part="pictures")
            return
        head, _, data = url.removeprefix("data:").partition(",")
        media_type = head.partition(";")[0] or "application/octet-stream"
        yield from self.answer.media(Media(media_type, base64.b64decode(data, validate=True)))


def tags_of(reasoning: str) -> ThinkTags | None:
    """The reader of the tags around the thinking; None where it does not stand in the text."""
    return ThinkTags(opened=reasoning == "think_open") if reasoning in ("think_tags", "think_open") else None


def _call_of(call: Mapping[str, Json]) -> tuple[str, str, str]:
    """The id, the name and the arguments in a call or a piece of one; "" for what it has not."""
    function = call.get("function") or call.get("custom")
    parts = {**call, "name": function} if isinstance(function, str) else function or call
    args = next((parts[name] for name in _ARGUMENTS if parts.get(name) is not None), None)
    return _word(call.get("id")), _word(parts.get("name")), args_of(args)


def args_of(args: Json) -> str:
    """Arguments as JSON text: some servers say them as the object that they are."""
    return args if isinstance(args, str) else "" if args is None else json.dumps(args, ensure_ascii=False)


def _join_thoughts(parts: Json) -> str:
    """The thinking among the parts of a message."""
    thoughts = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    thoughts = [part for part in thoughts if part.get("type") in _THOUGHTS]
    return "".join(plain_text(part.get(part["type"]) or part.get("text") or part.get("summary")) for part in thoughts)


def _iter_reports(event: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    """The tokens of an answer, by the places in which a chunk reports them."""
    choices = [choice for choice in _objects(event.get("choices")) if isinstance(choice, dict) and "usage" in choice]
    named = [choice["usage"] for choice in choices]
    if not _REPORTS.isdisjoint(event):
        beside = [_object(event.get("x_groq")).get("usage"), _object(event.get("meta")).get("tokens")]
        beside += [_object(event.get("metadata")).get("usage"), _object(event.get("usage")).get("tokens")]
        named = [event.get("usage"), event.get("usageMetadata"), *beside, *named]
    yield from (each for report in named for each in _objects(report) if isinstance(each, dict))
    if "eval_count" in event:
        yield event


def _reason_in(choice: Mapping[str, Json], event: Mapping[str, Json]) -> Json:
    """The server's word for the end. Under another name or at another place only a known word counts: vLLM, for one,
    has the text that stopped the model in `stop_reason`."""
    reason = choice.get("finish_reason")
    if reason is not None and not (isinstance(reason, str) and word_of(reason) in NULLS):
        return reason
    places = (choice, _object(choice.get("delta")), event)
    words = (place.get(name) for place in places if not _REASON_NAMES.isdisjoint(place) for name in _REASONS)
    return next((word for word in words if isinstance(word, str) and reason_of(word) != "unknown"), None)


def _list_calls(message: Mapping[str, Json]) -> list[Any]:
    """The calls in a message or a piece of one: a list, its one member, or an object by their indexes."""
    calls = next((message[name] for name in _CALLS if message.get(name)), None)
    if isinstance(calls, dict) and calls and all(key.isdecimal() for key in calls):
        return [{"index": int(key), **call} for key, call in calls.items() if isinstance(call, dict)]
    return _objects(calls)


def _objects(value: Json) -> list[Any]:
    """The members of a list without its nulls; some servers leave the list out around its one member."""
    members = value if isinstance(value, list) else [value]
    return [each for each in members if each is not None]


def _index_of(part: Mapping[str, Json]) -> int | None:
    """The index of a choice or a call, also as text. Raises ValueError for one that is no number."""
    index = part.get("index")
    if index is None or index == "":
        return None
    if isinstance(index, bool) or not isinstance(index, int | float | str):
        raise ValueError(f"{index!r} is no index")
    return int(index)


def _word(value: Json) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def plain_text(value: Json) -> str:
    """Text, also where it comes as a list of parts or as an object around it; "" for what is no text."""
    if isinstance(value, list):
        return "".join(map(plain_text, value))
    if isinstance(value, dict):
        return (
            ""
            if value.get("type") in _THOUGHTS
            else plain_text(next((value[name] for name in _TEXTS if value.get(name)), None))
        )
    return value if isinstance(value, str) else ""


def content_text(value: Json) -> str:
    """The text of an answer's content. Some gateways parse what a model writes (`5`, `true`, `{"ok": true}`): a value
    that is neither a text nor made of parts is its JSON text."""
    if isinstance(value, list):
        is_value = any(isinstance(each, bool | int | float) for each in value)
        return args_of(value) if is_value else "".join(map(content_text, value))
    if isinstance(value, dict):
        inner = next((value[name] for name in _TEXTS if value.get(name) not in (None, "", [], {})), None)
        if "type" in value or not value or not value.keys().isdisjoint(_TEXTS):
            return "" if value.get("type") in _THOUGHTS else content_text(inner)
    return args_of(value)


def usage_of(given: Mapping[str, Json]) -> Usage:
    """Tokens as Chat Completions and Responses report them, and as llama.cpp (timings), Ollama and Gemini do."""
    inner = _object(given.get("prompt_tokens_details") or given.get("input_tokens_details"))
    outer = _object(given.get("completion_tokens_details") or given.get("output_tokens_details"))
    return Usage(
        input=_find_first_count(given, _INPUTS) + count_of(given.get("cache_n")),
        output=_find_first_count(given, _OUTPUTS),
        cached=count_of(inner.get("cached_tokens", given.get("prompt_cache_hit_tokens", given.get("cache_n")))),
        reasoning=count_of(outer.get("reasoning_tokens")),
    )


def _find_first_count(given: Mapping[str, Json], names: Sequence[str]) -> int:
    return next((count for name in names if (count := count_of(given.get(name)))), 0)


def _object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def count_of(value: Json) -> int:
    """A number of tokens, also as text; 0 for what is none."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _COUNT_DIGITS_MAX:
        return int(value)
    is_count = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 10**_COUNT_DIGITS_MAX
    return int(value) if is_count else 0
