"""Requests to models, and the pieces of their answers: the contract between us and the providers of models.

A package offers models of its own kind by an entry point of the group `hai_flow.models`: its name is the `provider` of
`models:`, its value makes a `ModelProvider`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.models.tokens import tokens_of
from hai_flow.values import Json

Reason: TypeAlias = Literal["stop", "length", "refused", "failed", "unknown"]

ENTRY_POINTS = "hai_flow.models"


# --- requests ---------------------------------------------------------------------------------------------------------


class Price(msgspec.Struct, frozen=True):
    """The price of a million tokens, in US dollars. `cached`: of input that the provider had already; None: as any."""

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None


class Quirks(msgspec.Struct, frozen=True):
    """The differences of a provider from OpenAI.

    `reasoning`: the field of a message that holds its thinking, or `think_tags` where that stands in the text itself;
    `think_open` where the model's template writes the first tag, and only the closing one comes.
    `send_back`: whether the thinking of earlier answers goes back to the model: `never`, or behind `tool_turns`.
    `output`: how an answer becomes an object of a schema: by the schema (`json_schema`), as any JSON object whose
    schema stands in the prompt (`json_object`), or by the `prompt` alone. `strict_tools`: whether it takes `strict`.
    `tool_choice_required`: whether it takes that word. `max_tokens`: the name of that parameter. `usage`: whether it
    reports tokens when a stream asks for it (`last`), or does not know the question (`none`). `alternate`: whether
    neighbours of one role are joined, because the model's template wants the user and the assistant in turn."""

    reasoning: str = "reasoning_content"
    send_back: Literal["never", "tool_turns"] = "never"
    output: Literal["json_schema", "json_object", "prompt"] = "json_schema"
    strict_tools: bool = False
    tool_choice_required: bool = True
    max_tokens: str = "max_tokens"
    usage: Literal["last", "none"] = "last"
    alternate: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model as this deployment reaches it.

    `name` is that in the workflow. `key` is the `secret` of that name itself: it is shown nowhere. `ours`: the
    deployment's catalogue says it all. `total` and `idle` are in seconds:
    of a whole answer, and of silence within it. `context`: how many tokens it takes, if that is known."""

    name: str
    provider: str
    model: str
    base_url: str = ""
    key: str | None = field(default=None, repr=False)
    key_header: str | None = None
    api: Literal["chat", "responses"] = "chat"
    params: Mapping[str, Json] = field(default_factory=dict)
    quirks: Quirks = field(default_factory=Quirks)
    context: int | None = None
    total: float = 300.0
    idle: float = 60.0
    price: Price | None = None
    secret: str | None = None
    ours: bool = False


class Tool(msgspec.Struct, frozen=True):
    """A tool that the model may call. `schema` is that of its arguments, JSON Schema."""

    name: str
    description: str
    schema: Mapping[str, Json]

    @property
    def tokens(self) -> int:
        """About how many tokens a request has for it."""
        return tokens_of(f"{self.name} {self.description}") + tokens_of(values.dumps(self.schema).decode())


class Call(msgspec.Struct, frozen=True):
    """A call that a model wants made. `args` is JSON text as the model wrote it."""

    id: str
    name: str
    args: str


class Message(msgspec.Struct, frozen=True):
    """One message of the conversation.

    `content` is text, or parts: `{type: text, text}` and `{type: image | audio | document, source: {type: data | url,
    value, mimeType}}`. An assistant's may have `calls` and `thinking`, a tool's names the call that it answers.
    `opaque`: data that the provider gave with it and gets back unchanged (`Finish`)."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[Json]
    calls: tuple[Call, ...] = ()
    call_id: str | None = None
    thinking: str = ""
    opaque: Json = None

    @property
    def texts(self) -> tuple[str, ...]:
        """Its text, and the names and arguments of its calls."""
        called = (text for call in self.calls for text in (call.name, call.args))
        if isinstance(self.content, str):
            return (self.content, *called)
        return (*(part.get("text", "") for part in self.content), *called)

    @property
    def chars(self) -> int:
        """How long its text is, and that of its calls."""
        return sum(map(len, self.texts))

    @property
    def tokens(self) -> int:
        """About how many tokens it has."""
        return sum(map(tokens_of, self.texts))


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a model. `output`: the JSON Schema of the object that the answer has to be; None: text."""

    endpoint: Endpoint
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    output: Mapping[str, Json] | None = None


# --- answers ----------------------------------------------------------------------------------------------------------


class Text(msgspec.Struct, frozen=True):
    text: str


class Thinking(msgspec.Struct, frozen=True):
    """A piece of the model's thinking before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class Media:
    """A file that is part of the answer (a picture, sound), whole."""

    media_type: str
    data: bytes = field(repr=False)


class CallStart(msgspec.Struct, frozen=True):
    """The model begins to call a tool."""

    id: str
    name: str


class CallArgs(msgspec.Struct, frozen=True):
    """A piece of the JSON text of a call's arguments."""

    id: str
    text: str


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one answer so far; the last one counts. `cached` of the `input` the provider had already, `reasoning`
    are those of the `output` that the model thought with."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0


class Finish(msgspec.Struct, frozen=True):
    """The end of an answer. `stop`: the model ended it, maybe with calls. `length`: it was cut off. `refused`: there is
    no answer, and `text` is the reason. `failed`: the server could not complete it. `unknown`: the server gives a
    reason that nothing is known of; `text` is that reason. `opaque`: data that only this provider understands and wants
    to have back. `server_calls`: the ids of calls that the server has made itself."""

    reason: Reason
    text: str = ""
    opaque: Json = None
    server_calls: tuple[str, ...] = ()


class Retraction(msgspec.Struct, frozen=True):
    """All text so far was thinking, as it turns out: the model's template had opened it."""


class Alive(msgspec.Struct, frozen=True):
    """The server has sent something that says nothing: it still works on the answer."""


Piece: TypeAlias = Text | Thinking | Media | CallStart | CallArgs | Usage | Finish | Retraction | Alive


class ModelProvider(Protocol):
    """A provider of models."""

    def fault(self, endpoint: Endpoint) -> str | None:
        """The reason why this model could never be asked as it is declared, as a sentence; None: it could."""
        return None

    def stream(self, request: Request) -> AsyncIterator[Piece]:
        """The answer, piece by piece. One that ends without `Finish` was broken off.

        Raises StepError with a code `llm.*` (docs/language.md#codes). Nothing is to be tried again here: the run does.
        """
        ...

    async def close(self) -> None:
        """Give back connections; the next request takes new ones."""
        return
