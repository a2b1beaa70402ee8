"""Short ways to write documents and to look at their findings."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.expressions.evaluation import Guards
from hai_flow.definition.expressions.expressions import compile_expression, compile_template
from hai_flow.definition.names.known_names import Names, Types
from hai_flow.definition.plan import Plan

HEAD = "hai: flow/v1\nname: sample\nversion: 1\n"

INPUT: dict[str, Any] = {
    "type": "object",
    "required": ["amount", "count", "currency"],
    "properties": {
        "amount": {"type": "number"},
        "count": {"type": "integer"},
        "currency": {"type": "string", "enum": ["EUR", "USD"]},
        "note": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        "rows": {"type": "array", "items": {"type": "object"}, "default": []},
        "extra": {"type": "object", "additionalProperties": True, "default": {}},
    },
    "additionalProperties": False,
}
STATE: dict[str, Any] = {
    "type": "object",
    "required": ["log"],
    "properties": {"log": {"type": "array"}, "last": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "additionalProperties": False,
}
SCOPE: dict[str, Any] = {
    "input": {"amount": 900, "count": 5, "currency": "EUR", "tags": ["p", "q"], "rows": [{"q": 2}], "extra": {"k": 1}},
    "state": {"log": [1, 2], "last": None},
    "run": {
        "id": "r-1",
        "workflow": "sample",
        "version": 1,
        "started_at": 0,
        "requester": "user:local",
        "trigger": "api",
    },
    "thread": {"id": "t-1", "message": "hello"},
    "now": 1_600_000_000_123,
    "error": {"code": "tool.failed", "message": "no"},
    "steps": {"a": {"status": "finished", "output": {"n": 3, "list": [1, {"z": 2}], "text": "x"}}},
}


@dataclass(frozen=True)
class Steps:
    """The steps `a` and `b` are visible; `absent` says why one may have nothing."""

    absent: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in ("a", "b")

    def explain(self, name: str) -> tuple[str, str]:
        return "expression.unknown_step", f"there is no step `{name}`"

    def explain_absence(self, name: str, member: str, guards: Guards) -> str | None:
        return self.absent.get(name)

    def explain_let(self, name: str) -> str:
        return ""


def names(**absent: str) -> Names:
    """Everything of SCOPE may be named; steps `a` and `b` are visible, `b` has not begun. `absent`: why a step may have
    nothing."""
    return Names(Types(INPUT, STATE), steps=Steps(absent))


def value_of(source: str, **scope: Any) -> Any:
    """What the bare expression gives in SCOPE."""
    return compile_expression(source, names()).evaluate({**SCOPE, **scope})


def rendered(value: Any, **scope: Any) -> Any:
    """What the template gives in SCOPE; any fault fails the test."""

    def report(path: Any, fault: Any) -> None:
        raise AssertionError(f"{path}: {fault}")

    return compile_template(value, names(), report).render({**SCOPE, **scope})


def workflow(text: str) -> bytes:
    """A document with this body (dedented); `steps` are added where it has none."""
    body = textwrap.dedent(text)
    tail = "" if "\nsteps:" in f"\n{body}" else "steps: [{say: hi}]\n"
    return (HEAD + body + tail).encode()


def compiled(text: str) -> Plan:
    return compile_workflow(workflow(text), "f")


def findings(source: bytes) -> list[str]:
    return [f"{f.line}:{f.column}: {f.severity} {f.code}: {f.message}" for f in check_workflow(source, "f")]
