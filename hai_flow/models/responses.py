"""OpenAI's Responses: a request as its body, and a stream of its events as pieces.

Nothing is kept at the provider (`store: false`): the model's thinking comes encrypted, and goes back as it came.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hai_flow.models.call_ids import CallIds
from hai_flow.models.chat import unknown_part, usage_of, with_params, with_schema
from hai_flow.models.faults import fault_of_body
from hai_flow.models.structured import is_strict
from hai_flow.models.vocabulary import (
    CallArgs,
    CallStart,
    Finish,
    Media,
    Message,
    Piece,
    Request,
    Text,
    Thinking,
)
from hai_flow.values import Json

_THINKING: Final = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


# --- the request ------------------------------------------------------------------------------------------------------


def body_of(request: Request) -> dict[str, Json]:
    """The body of the request, with `stream`. Raises StepError `llm.invalid_request` as Chat Completions do."""
    endpoint, messages = request.endpoint, list(request.messages)
    body: dict[str, Json] = {
        "model": endpoint.model, "stream": True, "store": False, "include": ["reasoning.encrypted_content"],
    }  # fmt: skip
    if request.output is not None:
        if endpoint.quirks.output == "json_schema":
            strict = is_strict(request.output)
            form = {"type": "json_schema", "name": "answer", "schema": dict(request.output), "strict": strict}
            body["text"] = {"format": form}
        else:
            messages = with_schema(messages, request.output)
        if endpoint.quirks.output == "json_object":
            body["text"] = {"format": {"type": "json_object"}}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.schema),
                "strict": endpoint.quirks.strict_tools and is_strict(tool.schema),
            }
            for tool in request.tools
        ]
    body["input"] = [item for message in messages for item in _items(message)]
    given = dict(endpoint.params)
    extra = given.pop("extra", {})
    if "max_tokens" in given:
        given["max_output_tokens"] = given.pop("max_tokens")
    return with_params(body, {**given, **extra})


def _items(message: Message) -> Iterator[dict[str, Json]]:
    if message.role == "tool":
        yield {"type": "function_call_output", "call_id": message.call_id, "output": message.content}
        return
    if message.role == "assistant" and isinstance(message.opaque, list):
        yield from message.opaque
    if message.content or not message.calls:
        kind = "output_text" if message.role == "assistant" else "input_text"
        content = message.content
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        yield {"role": message.role, "content": [_part(part, kind) for part in parts]}
    for call in message.calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.args}


def _part(part: Json, text: str) -> dict[str, Json]:
    kind, source = part.get("type"), part.get("source", {})
    value, mime = source.get("value", ""), source.get("mimeType", "")
    is_data = source.get("type") == "data"
    if kind == "text":
        return {"type": text, "text": part.get("text", "")}
    if kind == "image":
        return {"type": "input_image", "image_url": f"data:{mime};base64,{value}" if is_data else value}
    if kind == "document" and is_data:
        name = source.get("filename", "document")
        return {"type": "input_file", "filename": name, "file_data": f"data:{mime};base64,{value}"}
    if kind == "document":
        return {"type": "input_file", "file_url": value}
    raise unknown_part(kind, mime)


# --- the answer -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ResponsesReader:
    """Reads the events of one answer."""

    _ids: CallIds = field(default_factory=CallIds)
    _calls: dict[str, str] = field(default_factory=dict)  # item -> id of the call
    _refusal: str = ""
    _end: Finish | None = None

    def read(self, event: Mapping[str, Json]) -> Iterator[Piece]:
        """The pieces of one event. Raises StepError for an event that reports a failure."""
        match event.get("type"):
            case "response.output_text.delta":
                yield Text(event["delta"])
            case kind if kind in _THINKING:
                yield Thinking(event["delta"])
            case "response.refusal.delta":
                self._refusal += event["delta"]
            case "response.output_item.added" if event["item"].get("type") == "function_call":
                item = event["item"]
                id = self._calls[item.get("id") or ""] = self._ids.own(item.get("call_id") or "")
                yield CallStart(id, item["name"])
            case "response.function_call_arguments.delta":
                yield CallArgs(self._calls[event["item_id"]], event["delta"])
            case "response.output_item.done" if event["item"].get("type") == "image_generation_call":
                item = event["item"]
                if item.get("result"):
                    data = base64.b64decode(item["result"], validate=True)
                    yield Media(f"image/{item.get('output_format') or 'png'}", data)
            case "response.completed" | "response.incomplete" | "response.failed" as kind:
                yield from self._ended(kind, event["response"])
            case "error":
                raise fault_of_body(event)

    def end(self) -> Iterator[Piece]:
        """The last pieces, when the stream is over. An answer without an event of its end broke off."""
        if self._end is not None:
            yield self._end

    def _ended(self, kind: str, response: Mapping[str, Json]) -> Iterator[Piece]:
        if usage := response.get("usage"):
            yield usage_of(usage)
        if kind == "response.failed":
            raise fault_of_body(response.get("error") or {})
        thought = [item for item in response.get("output") or () if item.get("type") == "reasoning"]
        if kind == "response.incomplete":
            reason = (response.get("incomplete_details") or {}).get("reason")
            self._end = Finish("refused", "") if reason == "content_filter" else Finish("length")
        elif self._refusal:
            self._end = Finish("refused", self._refusal)
        else:
            self._end = Finish("stop", opaque=thought or None)
