"""The stand-in for missing models in `dev` and `run`: a model if the environment has a key, else a script.

The script understands nothing. It says that it is a script, repeats the question, calls each tool that the question
names once, and makes the least object that fits a schema, so that a workflow can be tried without a key."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hai_flow import values
from hai_flow.definition.plan import Model
from hai_flow.models.providers.presets import PRESETS
from hai_flow.models.vocabulary import (
    CallArgs,
    CallStart,
    Endpoint,
    Finish,
    Message,
    ModelProvider,
    Piece,
    Request,
    Text,
    Tool,
    Usage,
)
from hai_flow.values import Json

SCRIPTED: Final = "scripted"
MODEL: Final = "gpt-5.4"
REPEATED_CHARS_MAX: Final = 200
_DEPTH_MAX: Final = 16
_WORDS: Final = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "email": "somebody@example.com",
    "uri": "https://example.com/",
}
_PARTS: Final = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class StandIn:
    """`key` and `base_url` are those of the environment (`OPENAI_API_KEY`, `OPENAI_BASE_URL`). `model` is asked there
    if the workflow names none (`OPENAI_MODEL`). Without a key the script answers."""

    key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    model: str = MODEL

    def endpoint(self, asked: Model) -> Endpoint:
        """The endpoint that is asked in place of `asked`."""
        if self.key is None:
            return Endpoint(asked.name, SCRIPTED, "scripted-model")
        preset = PRESETS["openai"]
        served = asked.model if asked.provider == "openai" else self.model
        url = (self.base_url or preset.base_url).rstrip("/")
        return Endpoint(asked.name, "openai", served, url, self.key, params=asked.params, quirks=preset.quirks)


class ScriptedProvider(ModelProvider):
    """The script."""

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        """See `ModelProvider`."""
        tools = _tools_to_call(request)
        answer = "(Scripted model: the question names tools.)"
        if not tools:
            answer = _text(request) if request.output is None else values.dumps(least(request.output)).decode()
        first, *rest = answer.split(" ")
        yield Text(first)
        for word in rest:
            yield Text(f" {word}")
        for number, tool in enumerate(tools):
            yield CallStart(f"call_{number}", tool.name)
            yield CallArgs(f"call_{number}", values.dumps(least(tool.schema)).decode())
        yield Usage(input=sum(message.chars for message in request.messages) // 4, output=len(answer) // 4)
        yield Finish("stop")


def _tools_to_call(request: Request) -> list[Tool]:
    """The tools of which the question has every word, as long as it has not called one since."""
    position = _find_question_index(request)
    if any(message.calls for message in request.messages[position:]):
        return []
    words = set(_PARTS.split(_text_of(request.messages[position]).lower()))
    return [tool for tool in request.tools if words.issuperset(_PARTS.split(tool.name.lower()))]


def _find_question_index(request: Request) -> int:
    """The place of the question: the newest message of the user."""
    return max((n for n, each in enumerate(request.messages) if each.role == "user"), default=len(request.messages) - 1)


def _text(request: Request) -> str:
    position = _find_question_index(request)
    results_shown = [_short(_text_of(each)) for each in request.messages[position:] if each.role == "tool"]
    results = f" Its tools said: {'; '.join(results_shown)}" if results_shown else ""
    question = _short(_text_of(request.messages[position]))
    return f"(Scripted model: no key of a real one is set. It was asked: {question}{results}{_hint(request)})"


def _hint(request: Request) -> str:
    """How to see a tool called, for who tries an agent without a key."""
    names = [" ".join(filter(None, _PARTS.split(tool.name))) for tool in request.tools]
    if not names or any(message.calls for message in request.messages[_find_question_index(request) :]):
        return ""
    return f" To see one of its tools called, name it in the question: {', '.join(names)}."


def _text_of(message: Message) -> str:
    content = message.content
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def _short(text: str) -> str:
    return text if len(text) <= REPEATED_CHARS_MAX else f"{text[:REPEATED_CHARS_MAX]}…"


def least(schema: Json, depth: int = 0) -> Json:
    """A small value that most schemas of this kind accept; null where the schema is too deep or too complex."""
    if not isinstance(schema, Mapping) or depth > _DEPTH_MAX:
        return None
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
    for several in ("enum", "examples"):
        if schema.get(several):
            return schema[several][0]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return least(schema[choice][0], depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    match kind:
        case "object":
            properties = schema.get("properties", {})
            return {name: least(properties.get(name, {}), depth + 1) for name in schema.get("required", properties)}
        case "array":
            return [least(schema.get("items", {}), depth + 1) for _ in range(schema.get("minItems", 0))]
        case "integer" | "number":
            lowest = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
            return min(lowest, schema["maximum"]) if "maximum" in schema else lowest
        case "boolean":
            return False
        case "string":
            word = _WORDS.get(schema.get("format", ""), "scripted")
            return word.ljust(schema.get("minLength", 0), "-")[: schema.get("maxLength", len(word) + 1000)]
    return None
