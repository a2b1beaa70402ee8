"""Anthropic's Messages: a request as its body, and a stream of its events as pieces. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hai_flow import values
from hai_flow.models.call_ids import CallIds
from hai_flow.models.chat import unknown_part
from hai_flow.models.faults import fault_of_body
from hai_flow.models.structured import schema_prompt
from hai_flow.models.vocabulary import (
    CallArgs,
    CallStart,
    Finish,
    Message,
    Piece,
    Reason,
    Request,
    Text,
    Thinking,
    Usage,
)
from hai_flow.values import Json

MAX_TOKENS: Final = 4096

_REASONS: Final[dict[str, Reason]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


# --- the request ------------------------------------------------------------------------------------------------------


def body_of(request: Request) -> dict[str, Json]:
    """The body of the request, with `stream`. Raises StepError `llm.invalid_request` for content that the protocol
    can't carry."""
    system = [_text(message) for message in request.messages if message.role == "system"]
    if request.output is not None:
        system.append(schema_prompt(request.output))
    body: dict[str, Json] = {"model": request.endpoint.model, "stream": True, "max_tokens": MAX_TOKENS}
    if system:
        body["system"] = "\n\n".join(system)
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema)}
            for tool in request.tools
        ]
    body["messages"] = _turns([message for message in request.messages if message.role != "system"])
    given = dict(request.endpoint.params)
    extra = given.pop("extra", {})
    return {**body, **given, **extra}


def _text(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(part.get("text", "") for part in message.content)


def _turns(messages: Sequence[Message]) -> list[Json]:
    """The messages by turns: the results of all calls of an answer are one message of the user's."""
    turns: list[dict[str, Json]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = list(_blocks(message))
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> Iterator[dict[str, Json]]:
    content = message.content
    if message.role == "tool":
        told = content if isinstance(content, str) else [_part(part) for part in content]
        yield {"type": "tool_result", "tool_use_id": message.call_id, "content": told}
        return
    if isinstance(message.opaque, list):  # thinking with its signature: it has to come before the calls
        yield from message.opaque
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    yield from (_part(part) for part in parts if part.get("type") != "text" or part.get("text"))
    for call in message.calls:
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.args)}


def _input(args: str) -> Json:
    """The arguments of a call as an object, whatever the model once wrote."""
    try:
        found = values.loads(args)
    except values.NotJson:
        found = None
    return found if isinstance(found, dict) else {}


def _part(part: Json) -> dict[str, Json]:
    kind, source = part.get("type"), part.get("source", {})
    mime = source.get("mimeType", "")
    if kind == "text":
        return {"type": "text", "text": part.get("text", "")}
    if kind == "image" or (kind == "document" and mime in ("application/pdf", "")):
        if source.get("type") == "data":
            return {"type": kind, "source": {"type": "base64", "media_type": mime, "data": source["value"]}}
        return {"type": kind, "source": {"type": "url", "url": source.get("value", "")}}
    raise unknown_part(kind, mime)


# --- the answer -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MessagesReader:
    """Reads the events of one answer."""

    _ids: CallIds = field(default_factory=CallIds)
    _calls: dict[int, str] = field(default_factory=dict)  # by the index of their block
    _thoughts: dict[int, dict[str, Json]] = field(default_factory=dict)
    _usage: Usage = field(default_factory=Usage)
    _reason: str | None = None
    _over: bool = False

    def read(self, event: Mapping[str, Json]) -> Iterator[Piece]:
        """The pieces of one event. Raises StepError for the event of an error."""
        match event.get("type"):
            case "message_start":
                yield self._counted(event.get("message", {}).get("usage") or {})
            case "content_block_start":
                yield from self._begun(event.get("index", 0), event.get("content_block") or {})
            case "content_block_delta":
                yield from self._grown(event.get("index", 0), event.get("delta") or {})
            case "message_delta":
                self._reason = (event.get("delta") or {}).get("stop_reason") or self._reason
                if usage := event.get("usage"):
                    yield self._counted(usage)
            case "message_stop":
                self._over = True
            case "error":
                raise fault_of_body(event)

    def end(self) -> Iterator[Piece]:
        """The last piece, behind the stream. An answer that was not ended broke off: it gets no `Finish`."""
        if not self._over or self._reason is None:
            return
        reason = _REASONS.get(self._reason, "stop")
        yield Finish(reason, opaque=[self._thoughts[index] for index in sorted(self._thoughts)] or None)

    def _begun(self, index: int, block: Mapping[str, Json]) -> Iterator[Piece]:
        match block.get("type"):
            case "tool_use":
                id = self._calls[index] = self._ids.own(block.get("id") or "")
                yield CallStart(id, block["name"])
                if block.get("input"):
                    yield CallArgs(id, values.dumps(block["input"]).decode())
            case "text" if block.get("text"):
                yield Text(block["text"])
            case "thinking":
                self._thoughts[index] = {"type": "thinking", "thinking": block.get("thinking", ""), "signature": ""}
                if block.get("thinking"):
                    yield Thinking(block["thinking"])
            case "redacted_thinking":
                self._thoughts[index] = dict(block)

    def _grown(self, index: int, delta: Mapping[str, Json]) -> Iterator[Piece]:
        match delta.get("type"):
            case "text_delta":
                yield Text(delta["text"])
            case "thinking_delta":
                self._thoughts[index]["thinking"] += delta["thinking"]
                yield Thinking(delta["thinking"])
            case "signature_delta":
                self._thoughts[index]["signature"] += delta["signature"]
            case "input_json_delta" if delta.get("partial_json"):
                yield CallArgs(self._calls[index], delta["partial_json"])

    def _counted(self, given: Mapping[str, Json]) -> Usage:
        """Tokens so far. Anthropic counts cached tokens apart from `input_tokens`, so they are added."""
        known = self._usage
        if given.get("input_tokens") is not None:
            cached = given.get("cache_read_input_tokens") or 0
            fresh = given["input_tokens"] + (given.get("cache_creation_input_tokens") or 0)
            known = Usage(fresh + cached, known.output, cached)
        self._usage = Usage(known.input, given.get("output_tokens") or known.output, known.cached)
        return self._usage
