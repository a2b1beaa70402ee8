"""Questions of MCP servers: which answers a call is begun anew with."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest

from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.steps.mcp import elicitation as mcp_asking
from hai_flow.steps.mcp.elicitation import RepeatedAnswers, Settled, Sitting, complete
from hai_flow.steps.mcp.receipts import CallReceipt


async def test_settled_answers_are_there_behind_a_poll_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_asking, "_POLL_SECONDS", 0.0)
    settled = (Settled("a question", "accept", {"ok": True}),)
    done = types.CallToolResult(content=[])
    replies = [types.InputRequiredResult(request_state="s1"), types.InputRequiredResult(request_state="s2"), done]
    seen: list[tuple[str | None, Any]] = []

    async def call(*, responses: Any, state: str | None, sitting: Sitting) -> Any:
        seen.append((state, tuple(sitting._left)))
        return replies[len(seen) - 1]

    assert await complete(call, RepeatedAnswers(settled=settled), CallReceipt()) is done
    assert seen == [(None, settled), ("s1", settled), ("s2", settled)]


@pytest.mark.parametrize(
    ("field", "fits", "does_not"),
    [
        ({"type": "int"}, 1, "a"),
        ({"type": "integer", "maximum": 2**63 - 1}, 1, "a"),
        ({"type": "string", "nullable": True}, None, 1),
        ({"type": "string", "required": True}, "a", 1),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ({"type": "string", "label": "Name", "ui:widget": "text", "placeholder": "Ann"}, "a", 1),
        ({"type": "string", "default": 5}, "a", 1),
        ({"type": "string", "minLength": "3", "pattern": "(?<bad"}, "a", 1),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"], "default": "a"}, "b", "c"),
        ({"$ref": "#/$defs/Nope"}, 1, ...),
    ],
    ids=str,
)
def test_a_form_with_what_is_no_json_schema_is_shown_to_people(field: Any, fits: Any, does_not: Any) -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"v": field}}
    sitting = Sitting((), CallReceipt())
    sitting.answer(types.ElicitRequestFormParams(message="Which?", requested_schema=schema))
    assert sitting.question is not None
    form = JsonSchema(sitting.question.form)
    assert form.findings({"v": fits}) == []
    assert does_not is ... or form.findings({"v": does_not}) != []
    assert form.raw["properties"]["v"].get("default") in (None, "a")
