"""Chat Completions: a request as its body, and a stream of its chunks as pieces.

The chunks are read as servers write them, which is not always as OpenAI does: thinking comes under two names or inside
the text, tokens are reported in every chunk, calls all have the index 0, come whole, or end with `stop`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hai_flow import values
from hai_flow.errors import StepError
from hai_flow.models.call_ids import CallIds
from hai_flow.models.faults import too_many_files
from hai_flow.models.structured import is_strict, schema_prompt
from hai_flow.models.vocabulary import (
    CallArgs,
    CallStart,
    Endpoint,
    Finish,
    Media,
    Message,
    Piece,
    Reason,
    Request,
    Text,
    Thinking,
    Tool,
    Usage,
)
from hai_flow.values import Json

_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_REASONS: Final[dict[str, Reason]] = {"length": "length", "max_tokens": "length", "content_filter": "refused"}
_SAID: Final = {
    "wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "opus": "audio/ogg", "aac": "audio/aac",
    "pcm16": "audio/pcm",
}  # fmt: skip
_AUDIO_CHARS_MAX: Final = 96 * 1024 * 1024  # base64 of one answer; more is an error
_OPEN, _CLOSE = "<think>", "</think>"


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
            body["response_format"] = {"type": "json_schema", "json_schema": _named(request.output)}
        else:
            messages = with_schema(messages, request.output)
        if quirks.output == "json_object":
            body["response_format"] = {"type": "json_object"}
    if request.tools:
        body["tools"] = [_tool(tool, endpoint) for tool in request.tools]
    thinks = quirks.send_back == "tool_turns" and any(message.calls for message in messages)
    body["messages"] = [_message(message, quirks.reasoning if thinks else "") for message in messages]
    return with_params(body, _params(endpoint))


def with_params(body: dict[str, Json], params: Mapping[str, Json]) -> dict[str, Json]:
    """The body with the parameters that an author gives. Tools of the provider itself stand beside the agent's."""
    tools = [*body.get("tools", ()), *params["tools"]] if isinstance(params.get("tools"), list) else None
    return {**body, **params, **({} if tools is None else {"tools": tools})}


def with_schema(messages: Sequence[Message], schema: Mapping[str, Json]) -> list[Message]:
    """The messages. The required form of the answer stands at the end of the system's message."""
    wanted = schema_prompt(schema)
    if messages and messages[0].role == "system" and isinstance(messages[0].content, str):
        return [Message("system", f"{messages[0].content}\n\n{wanted}"), *messages[1:]]
    return [Message("system", wanted), *messages]


def _params(endpoint: Endpoint) -> dict[str, Json]:
    """Parameters by OpenAI's names. The entries of `extra` go into the body unchanged."""
    given = dict(endpoint.params)
    extra = given.pop("extra", {})
    if "max_tokens" in given:
        given[endpoint.quirks.max_tokens] = given.pop("max_tokens")
    return {**given, **extra}


def _named(schema: Mapping[str, Json]) -> dict[str, Json]:
    return {"name": "answer", "schema": dict(schema), "strict": is_strict(schema)}


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
    shown: dict[str, Json] = {"role": message.role}
    shown["content"] = content if isinstance(content, str) else [_part(part) for part in content]
    if message.role == "tool":
        shown["tool_call_id"] = message.call_id
    if message.role == "assistant":
        if message.calls:
            shown["content"] = content or None
            shown["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.args}}
                for call in message.calls
            ]
        if thinking and thinking != "think_tags":
            shown[thinking] = message.thinking
    return shown


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


@dataclass(slots=True)
class _OpenCall:
    id: str
    given: str  # the server's id
    name: str
    args: str = ""


@dataclass(slots=True)
class ChatReader:
    """Reads the chunks of one answer. `reasoning` as in `Quirks`, `audio`: the format in which the model speaks."""

    reasoning: str = "reasoning_content"
    audio: str = ""
    _open: dict[int, _OpenCall] = field(default_factory=dict)  # by index
    _ids: CallIds = field(default_factory=CallIds)
    _reason: str | None = None
    _refusal: str = ""
    _tags: ThinkTags | None = None
    _sound: list[str] = field(default_factory=list)  # base64, piece by piece
    _sound_chars: int = 0

    def __post_init__(self) -> None:
        if self.reasoning == "think_tags":
            self._tags = ThinkTags()

    def read(self, chunk: Mapping[str, Json]) -> Iterator[Piece]:
        """The pieces of one chunk."""
        if usage := chunk.get("usage"):
            yield usage_of(usage)
        for choice in chunk.get("choices") or ():
            if choice.get("index") not in (None, 0):
                continue
            yield from self._delta(choice.get("delta") or choice.get("message") or {})
            self._reason = choice.get("finish_reason") or self._reason

    def end(self) -> Iterator[Piece]:
        """The last pieces, after the stream. An answer without a finish reason broke off: it gets no `Finish`."""
        if self._tags is not None:
            yield from self._tags.end()
        if self._reason is None:
            return
        if self._sound:
            sound = b"".join(base64.b64decode(each, validate=True) for each in self._sound)
            yield Media(_SAID.get(self.audio, "application/octet-stream"), sound)
        if self._refusal:
            yield Finish("refused", self._refusal)
        else:
            yield Finish(_REASONS.get(self._reason, "stop"))

    def _delta(self, delta: Mapping[str, Json]) -> Iterator[Piece]:
        for name in dict.fromkeys((self.reasoning, "reasoning_content", "reasoning")):
            if thought := _text_of(delta.get(name)):
                yield Thinking(thought)
                break
        if text := _text_of(delta.get("content")):
            yield from [Text(text)] if self._tags is None else self._tags.read(text)
        content = delta.get("content")
        for part in (*(content if isinstance(content, list) else ()), *(delta.get("images") or ())):
            yield from _picture(part)
        if isinstance(audio := delta.get("audio"), dict):
            yield from self._spoken(audio)
        self._refusal += _text_of(delta.get("refusal"))
        for call in delta.get("tool_calls") or ():
            yield from self._call(call)

    def _spoken(self, audio: Mapping[str, Json]) -> Iterator[Piece]:
        """A piece of sound, and the piece of its transcript."""
        if text := _text_of(audio.get("transcript")):
            yield Text(text)
        if data := audio.get("data"):
            self._sound_chars += len(data)
            if self._sound_chars > _AUDIO_CHARS_MAX:
                raise too_many_files(1, _AUDIO_CHARS_MAX // 4 * 3)
            self._sound.append(data)

    def _call(self, delta: Mapping[str, Json]) -> Iterator[Piece]:
        index, id = delta.get("index") or 0, delta.get("id") or ""
        function = delta.get("function") or {}
        name, args = function.get("name") or "", function.get("arguments")
        text = args if isinstance(args, str) else "" if args is None else values.dumps(args).decode()
        known = self._open.get(index)
        if known is None or self._is_another(known, id, name, text):
            known = self._open[index] = _OpenCall(self._ids.own(id), id, name)
            yield CallStart(known.id, name)
        if text:
            known.args += text
            yield CallArgs(known.id, text)

    @staticmethod
    def _is_another(known: _OpenCall, id: str, name: str, text: str) -> bool:
        """Whether a piece at the index of a known call begins another one: it has another id, or names a function
        though the known call is complete. With the same id it has to bring arguments, too: some servers repeat the id
        and the name in every piece."""
        if id != known.given and id:
            return True
        if not name or not known.args.rstrip().endswith("}") or (id and not text.lstrip().startswith("{")):
            return False
        return is_json(known.args)


class ThinkTags:
    """Divides text in which thinking stands between `<think>` and `</think>`, however it is cut into pieces."""

    def __init__(self) -> None:
        self._thinks = False
        self._kept = ""
        self._begins = False  # right behind the thinking: blank lines there are no part of the answer

    def read(self, text: str) -> Iterator[Piece]:
        text, self._kept = self._kept + text, ""
        while text:
            if self._begins:
                text = text.lstrip("\n")
                self._begins = not text
            tag = _CLOSE if self._thinks else _OPEN
            before, found, text = text.partition(tag)
            if not found:
                held = _held(before, tag)
                before, self._kept = before[: len(before) - held], before[len(before) - held :]
            yield from self._piece(before)
            if found:
                self._begins, self._thinks = self._thinks, not self._thinks

    def end(self) -> Iterator[Piece]:
        kept, self._kept = self._kept, ""
        yield from self._piece(kept)

    def _piece(self, text: str) -> Iterator[Piece]:
        if text:
            yield Thinking(text) if self._thinks else Text(text)


def _held(text: str, tag: str) -> int:
    """How many of the last characters may be the beginning of `tag`."""
    return next((size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size])), 0)


def _picture(part: Json) -> Iterator[Piece]:
    """A picture as a part of the answer. Where the model gives only an address, the text gets a picture in Markdown:
    addresses from a model are never fetched."""
    if not isinstance(part, dict) or part.get("type") != "image_url":
        return
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str) or not url:
        return
    if not url.startswith("data:"):
        yield Text(f"![]({url})")
        return
    head, _, data = url.removeprefix("data:").partition(",")
    yield Media(head.partition(";")[0] or "application/octet-stream", base64.b64decode(data, validate=True))


def _text_of(value: Json) -> str:
    """Text, also where it comes as a list of parts."""
    if isinstance(value, list):
        return "".join(part.get("text") or "" for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def is_json(text: str) -> bool:
    """Whether the text is JSON as it stands."""
    try:
        values.loads(text)
    except values.NotJson:
        return False
    return True


def usage_of(given: Mapping[str, Json]) -> Usage:
    """Tokens as Chat Completions and Responses report them."""
    inner = given.get("prompt_tokens_details") or given.get("input_tokens_details") or {}
    outer = given.get("completion_tokens_details") or given.get("output_tokens_details") or {}
    return Usage(
        input=_count(given.get("prompt_tokens", given.get("input_tokens"))),
        output=_count(given.get("completion_tokens", given.get("output_tokens"))),
        cached=_count(inner.get("cached_tokens", given.get("prompt_cache_hit_tokens"))),
        reasoning=_count(outer.get("reasoning_tokens")),
    )


def _count(value: Json) -> int:
    return value if isinstance(value, int) and value > 0 else 0
