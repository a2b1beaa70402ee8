"""A person answers at the terminal: prompts by the kind of the question and the schema of its form.

Lines are read without a thread, so that a question can be taken back when somebody else answers it, and so that a
worker in this process goes on giving signs of life."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Final

from hai_flow.cli.console import clean
from hai_flow.cli.terminal import compact
from hai_flow.values import Json

DECLINE: Final = "/decline"


class NoMoreInput(Exception):
    """The person closed the input (Ctrl-D): open questions go on waiting."""


class Prompt:
    """Lines from the terminal. `say` writes without a line end."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._rest = b""

    async def line(self, question: str) -> str:
        """The line that the person types after `question`. Raises NoMoreInput. May be cancelled."""
        sys.stdout.write(clean(question))
        sys.stdout.flush()
        try:
            while b"\n" not in self._rest:
                piece = await self._read()
                if not piece:
                    raise NoMoreInput
                self._rest += piece
        except BaseException:  # the line of the question stays unanswered: later text begins a new one
            sys.stdout.write("\n")
            sys.stdout.flush()
            raise
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace").strip()

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._descriptor, lambda: readable.done() or readable.set_result(None))
        try:
            await readable
        finally:
            loop.remove_reader(self._descriptor)
        return os.read(self._descriptor, 65536)


async def answer(pending: dict[str, Json], prompt: Prompt) -> dict[str, Json]:
    """The person's answer to `pending`, as `POST /v1/pendings/{id}/decide` takes it."""
    if pending["kind"] in ("approve", "gate", "doubt"):
        return await _choice(pending, prompt)
    if pending["kind"] == "ask":
        return {"values": await _form(pending.get("schema"), prompt)}
    return await _parse_tool_result(pending, prompt)


async def _choice(pending: dict[str, Json], prompt: Prompt) -> dict[str, Json]:
    options = list_options(pending)
    decision = await _ask_until_valid(prompt, f"{'/'.join(options)}: ", lambda text: match_option(options, text))
    body: dict[str, Json] = {"decision": decision}
    if decision == "approve" and pending.get("schema") is not None:
        body["values"] = await _form(pending["schema"], prompt)
    if decision == "happened":
        body["result"] = tool_result(await prompt.line("its result, as JSON or text: "), {})
    reason = await prompt.line("reason (may be empty): ")
    return {**body, "reason": reason} if reason else body


def list_options(pending: dict[str, Json]) -> list[str]:
    return list(pending.get("options") or ("approve", "reject"))


async def _parse_tool_result(pending: dict[str, Json], prompt: Prompt) -> dict[str, Json]:
    text = await prompt.line(f"result of {pending.get('tool')}, as JSON or text ({DECLINE} WHY gives none): ")
    if text.split(" ", 1)[0] == DECLINE:
        return {"error": text[len(DECLINE) :].strip() or "declined"}
    return {"result": tool_result(text, pending.get("schema"))}


def tool_result(text: str, schema: Json) -> Json:
    """The text itself where the schema wants text, or where it is no JSON; else the JSON value that it writes down."""
    if schema is None or (isinstance(schema, dict) and schema.get("type") == "string"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def match_option(options: list[str], text: str) -> str:
    """The option that `text` is or begins. Raises ValueError."""
    if text in options:
        return text
    matches = [option for option in options if text and option.lower().startswith(text.lower())]
    if len(matches) != 1:
        raise ValueError(f"expected {' or '.join(options)}")
    return matches[0]


# --- forms --------------------------------------------------------------------------------------------------------


async def _form(schema: Json, prompt: Prompt) -> Json:
    """The values of a form, field by field; a schema that is no object of fields is asked for as JSON."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not properties:
        return await _ask_until_valid(prompt, "values, as JSON: ", _json)
    required = schema.get("required") or ()
    values: dict[str, Json] = {}
    for name, field in properties.items():
        entry = await _field(name, field if isinstance(field, dict) else {}, name in required, prompt)
        if entry is not None:
            values[name] = entry[0]
    return values


def fields_of(schema: Json) -> str:
    """The fields of a form in one line, for a person writing them as JSON. Empty if there are none."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    required = schema.get("required") or ()
    return ", ".join(
        _label(name, field if isinstance(field, dict) else {}, name in required) for name, field in properties.items()
    )


async def _field(name: str, schema: dict[str, Json], required: bool, prompt: Prompt) -> tuple[Json] | None:
    """The value of one field, in a tuple; None: the person left it out, so its default holds if it has one."""
    may_be_empty = "default" in schema or not required

    def read(text: str) -> tuple[Json] | None:
        if not text and may_be_empty:
            return None
        return (parse_field_value(text, schema),)

    return await _ask_until_valid(prompt, f"{_label(name, schema, required)}: ", read)


def _label(name: str, schema: dict[str, Json], required: bool) -> str:
    title = schema.get("title") or schema.get("description")
    kind = schema.get("type")
    hints = [str(kind)] if isinstance(kind, str) and kind != "string" else []
    if "enum" in schema:
        hints = ["/".join(str(each) for each in schema["enum"])]
    if "default" in schema:
        hints.append(f"default {compact(schema['default'], 60)}")
    elif not required:
        hints.append("may be empty")
    return name + (f" - {title}" if title else "") + (f" ({', '.join(hints)})" if hints else "")


def parse_field_value(text: str, schema: dict[str, Json]) -> Json:
    """`text` as a value of the field's type. Raises ValueError, which names the expected form."""
    if "enum" in schema:
        values_by_text = {each if isinstance(each, str) else json.dumps(each): each for each in schema["enum"]}
        return values_by_text[match_option(list(values_by_text), text)]
    kind = schema.get("type")
    if kind in _PARSERS:
        return _PARSERS[kind](text)
    return _json(text)


def _text(text: str) -> str:
    return text


def _parse_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None


def _number(text: str) -> float:
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise ValueError("expected a number") from None


def _switch(text: str) -> bool:
    try:
        return {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}[text.lower()]
    except KeyError:
        raise ValueError("expected yes or no") from None


def _json(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("expected JSON (text in double quotes)") from None


_PARSERS: Final[dict[Json, Callable[[str], Json]]] = {
    "string": _text,
    "integer": _parse_integer,
    "number": _number,
    "boolean": _switch,
}


async def _ask_until_valid(prompt: Prompt, question: str, read: Callable[[str], Json]) -> Json:
    while True:
        try:
            return read(await prompt.line(question))
        except ValueError as error:
            sys.stdout.write(f"  {clean(str(error))}\n")
