"""Checks AG-UI frames by AG-UI's own models (`ag-ui-protocol`), and for faults that these let pass and clients don't.

`lint` returns one sentence per fault. It shares no code with the encoders; brackets and line ends are `wire_lint`'s.
The models keep unknown properties, fill in defaults and convert types. So a frame must also be equal to the text that
its model writes of it, and have no property that the model does not know: a 1.0 client removes unknown ones with a
warning, and fails on a null."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

from ag_ui.core import Event
from pydantic import BaseModel, TypeAdapter, ValidationError

Json: TypeAlias = Any

_EVENT: TypeAdapter[Any] = TypeAdapter(Event)
# docs/design/protocols.md#deltas-are-text
_EMPTY_IS_FATAL = ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", "TOOL_CALL_ARGS")


def lint(stream: bytes, version: str | None = None) -> list[str]:
    """The faults of a complete stream of SSE bytes, for a peer that sent `protocolVersion: version`."""
    faults: list[str] = []
    linter = _Linter(faults, modern=version is not None)
    for number, data in enumerate(documents(stream)):
        linter.event(f"event {number}", data)
    return faults


def documents(stream: bytes) -> list[bytes]:
    """The data of each event of SSE bytes."""
    lines = (line for block in stream.split(b"\n\n") for line in block.split(b"\n"))
    return [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]


class _Linter:
    def __init__(self, faults: list[str], *, modern: bool) -> None:
        self._faults = faults
        self._modern = modern
        self._run: tuple[str, str] | None = None
        self._spans: set[tuple[str, str]] = set()

    def event(self, where: str, data: bytes) -> None:
        try:
            event = _EVENT.validate_json(data)
        except ValidationError as error:
            for each in error.errors(include_url=False, include_input=False):
                self._fault(where, f"{'/'.join(map(str, each['loc']))}: {each['msg']}")
            return
        document = json.loads(data)
        where = f"{where} {document['type']}"
        for path in _unknown(event):
            self._fault(where, f"{path} is no property of AG-UI's")
        if (again := json.loads(event.model_dump_json(by_alias=True))) != document:
            self._fault(where, f"the model writes {again}, the frame says {document}")
        self._profile(where, document)
        self._lifecycle(where, document)

    def _fault(self, where: str, text: str) -> None:
        self._faults.append(f"{where}: {text}")

    def _profile(self, where: str, event: dict[str, Json]) -> None:
        """Note parts of the event that this peer fails on. A peer without a version is older than 1.0."""
        type, outcome = event["type"], event.get("outcome") or {}
        if type in _EMPTY_IS_FATAL and not event["delta"]:
            self._fault(where, "the delta is empty")
        if type == "RUN_STARTED" and self._modern and "protocolVersion" not in event:
            self._fault(where, "a producer must say which protocolVersion it speaks")
        if type == "RUN_STARTED" and "input" in event:
            self._fault(where, "the input is echoed; it is fatal to 0.x where it lacks tools or context")
        if type == "RUN_FINISHED" and outcome.get("type") == "success":
            self._fault(where, "an explicit success keeps a client from posting its answers")
        if self._modern:
            return
        if type.startswith("SUBAGENT_"):
            self._fault(where, "0.x knows no SUBAGENT events")
        if type == "RUN_FINISHED" and ("usage" in event or outcome.get("type") == "cancelled"):
            self._fault(where, "0.x knows neither usage nor a cancelled outcome")

    def _lifecycle(self, where: str, event: dict[str, Json]) -> None:
        """A stream's end names its beginning, and reasoning is closed by then (wire_lint knows the other brackets)."""
        type = event["type"]
        if type == "RUN_STARTED":
            self._run = (event["threadId"], event["runId"])
        elif type == "RUN_FINISHED" and self._run != (event["threadId"], event["runId"]):
            self._fault(where, f"it ends {event['runId']}, but {self._run} had begun")
        for kind in ("REASONING_MESSAGE", "REASONING"):
            if type == f"{kind}_START":
                self._spans.add((kind, event["messageId"]))
            elif type == f"{kind}_END" and (kind, event["messageId"]) not in self._spans:
                self._fault(where, f"{event['messageId']} was not started")
            elif type == f"{kind}_END":
                self._spans.remove((kind, event["messageId"]))
        if type == "RUN_FINISHED":
            for kind, id in sorted(self._spans):
                self._fault(where, f"{kind} {id} is still open")


def _unknown(value: Json, path: str = "") -> Iterator[str]:
    """The properties that no model knows, at any depth. Values that AG-UI declares as free JSON are not searched."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, f"{path}/{index}")
    elif isinstance(value, BaseModel):
        for name in value.model_extra or ():
            yield f"{path}/{name}"
        for name in type(value).model_fields:
            yield from _unknown(getattr(value, name), f"{path}/{name}")
