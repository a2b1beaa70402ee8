"""A test document, as values (docs/testing.md). Built by `reader`, performed by `runner`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from hai_flow.definition.people.calendars import Calendars
from hai_flow.definition.yaml.document import Document, Path
from hai_flow.engine.commands import LOCAL_PRINCIPAL, Principal
from hai_flow.values import Json

Control: TypeAlias = Literal["pause", "resume", "stop", "restart"]


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()
"""Stands for a value that was not given, where null is a value."""


class ToolCall(msgspec.Struct, frozen=True):
    """A tool that a mocked model calls, as it is named in the agent's `tools` (`web.search`)."""

    name: str
    at: Path
    arguments: Mapping[str, Json]


class MockError(msgspec.Struct, frozen=True):
    """The error of a mocked effect. `retriable` None: as usual for the code."""

    code: str = "tool.failed"
    message: str = "The test lets it fail."
    retriable: bool | None = None
    data: Json = None
    retry_after: int | None = None  # milliseconds


class Behaviour(msgspec.Struct, frozen=True):
    """The outcome of one call of an effect: an output, an error, or, of a model, the tools that it calls first.

    With `tool_calls` alone the model has not answered yet: its next turn is the next behaviour of the list."""

    at: Path
    output: Json = ABSENT
    error: MockError | None = None
    tool_calls: tuple[ToolCall, ...] = ()


class Mock(msgspec.Struct, frozen=True):
    """The behaviours of an effect: call after call if `successive`, else the only one at every call."""

    name: str
    at: Path
    behaviours: tuple[Behaviour, ...]
    successive: bool


class Expect(msgspec.Struct, frozen=True):
    """The expectations at one point. Only the keys that were given are there."""

    at: Path
    values: Mapping[str, Json]


class Decide(msgspec.Struct, frozen=True):
    """A vote, or with `refused` one that must be refused with that HTTP status."""

    at: Path
    pending: str
    by: str | None
    decision: str
    reason: str | None = None
    values: Json = ABSENT
    edits: Json = ABSENT
    refused: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """The answer to a form or to a frontend's call: a `value`, or the `error` that the frontend reports."""

    at: Path
    pending: str
    by: str | None
    value: Json = ABSENT
    error: str | None = None
    refused: int | None = None


class Signal(msgspec.Struct, frozen=True):
    at: Path
    type: str
    data: Json = None


class Advance(msgspec.Struct, frozen=True):
    at: Path
    duration: int  # milliseconds


class Operate(msgspec.Struct, frozen=True):
    """A command of an operator, or (`restart`) a restart of the process."""

    at: Path
    control: Control


Entry: TypeAlias = Expect | Decide | Answer | Signal | Advance | Operate


class CaseTrigger(msgspec.Struct, frozen=True):
    """The trigger that starts the run of a case, in place of `input`. `fields` are as they were given; `at_ms` is the
    instant of a schedule (ms since 1970)."""

    at: Path
    kind: str
    fields: Mapping[str, Json]
    at_ms: int | None = None
    by: str | None = None


class Case(msgspec.Struct, frozen=True):
    """One test: a run of its own. Its `mock` goes before that of the file."""

    at: Path
    name: str
    requester: str | None
    input: Json
    state: Mapping[str, Json]
    mock: Mapping[str, Mock]
    script: tuple[Entry, ...]
    expect: Expect | None
    events: tuple[str, ...] = ()
    start: CaseTrigger | None = None


class Suite(msgspec.Struct, frozen=True):
    """One test document. `workflow` is a path as it was written, or a published `name@version`."""

    document: Document
    workflow: str
    now: int  # milliseconds since 1970
    people: Mapping[str, Principal]
    mock: Mapping[str, Mock]
    cases: tuple[Case, ...] = msgspec.field(default=())
    calendars: Calendars = msgspec.field(default_factory=dict)

    @property
    def file(self) -> str:
        return self.document.file

    def line(self, at: Path) -> int:
        """The line of the value at `at`, from 1."""
        return self.document.position(at)[0]

    def requester(self, case: Case) -> Principal:
        """The requester of the case's run: the one that it names, else the last of `people` without a role or group,
        else the last."""
        if case.requester is not None:
            return self.people[case.requester]
        ordinary = [person for person in self.people.values() if not (person.roles or person.groups)]
        return (ordinary or list(self.people.values()) or [LOCAL_PRINCIPAL])[-1]

    def person(self, case: Case, name: str | None) -> Principal:
        """The person of that name; without one, the requester."""
        return self.requester(case) if name is None else self.people[name]
