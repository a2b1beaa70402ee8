"""One answer as a server sends it, and its meaning."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

Json: TypeAlias = Any
Protocol: TypeAlias = Literal["chat", "responses", "messages"]

DONE: Final = "data: [DONE]\n\n"


@dataclass(frozen=True)
class Said:
    """A whole answer. `calls` are names and arguments; `usage` is input and output."""

    text: str = ""
    calls: tuple[tuple[str, Json], ...] = ()
    thinking: str = ""
    usage: tuple[int, int] | None = None


@dataclass(frozen=True)
class Failed:
    """No answer: the error's code, a part of its text, whether it is tried again, the wait in seconds."""

    code: str
    text: str = ""
    again: bool = False
    wait: float | None = None


@dataclass(frozen=True)
class Transcript:
    """`body` is as the server sends it; `names` are the functions that were offered."""

    name: str
    body: bytes
    meaning: Said | Failed
    protocol: Protocol = "chat"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    reasoning: str = "reasoning_content"
    names: tuple[str, ...] = ("add", "ping", "delete", "search")

    def __str__(self) -> str:
        return self.name


def stream(*events: Json, end: str = "\n") -> bytes:
    """Events of a stream; a text stands as it is."""
    parts = [each if isinstance(each, str) else f"data: {json.dumps(each)}\n\n" for each in events]
    return "".join(parts).replace("\n", end).encode("utf-8", "surrogatepass")


def document(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def chunk(delta: Json = None, reason: Json = None, **more: Json) -> Json:
    """A chunk of a chat; without a delta one that has no choice."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}


def text(*pieces: str) -> list[Json]:
    return [chunk({"content": piece}) for piece in pieces]


def call(
    index: int | None = 0, id: str | None = None, name: str | None = None, args: Json = None, **more: Json
) -> Json:
    """A chunk with one piece of a call; what is None is not there."""
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    piece = {key: value for key, value in (("index", index), ("id", id)) if value is not None}
    return chunk({"tool_calls": [{**piece, "type": "function", "function": function, **more}]})


def end(reason: Json = "stop", **more: Json) -> Json:
    return chunk({}, reason, **more)


def usage(given: int, made: int, **more: Json) -> Json:
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made, **more}


def event(kind: str, **fields: Json) -> str:
    """A named event of a protocol whose events have types."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"
