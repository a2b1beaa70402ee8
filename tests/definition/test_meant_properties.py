"""An input with a misspelt property is answered with the property that was meant."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from hai_flow.cli import app
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.values import Json

SCHEMA = JsonSchema(
    {
        "type": "object",
        "properties": {
            "policy": {"type": "string"},
            "kind": {"enum": ["taxi", "hotel", 1]},
            "claim": {"type": "object", "properties": {"amount": {"type": "number"}}, "additionalProperties": False},
        },
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ({"polici": "P1"}, "did you mean `policy`?"),
        ({"claim": {"amunt": 1}}, "did you mean `amount`?"),
        ({"zzz": 1, "polcy": "P1"}, "did you mean `policy`?"),
        ({"zzz": 1}, ""),
        ({"kind": "taxy"}, "did you mean `taxi`?"),
        ({"kind": "plane"}, ""),
        ({"kind": 7}, ""),
    ],
)
def test_a_misspelt_property_is_answered_with_the_one_that_was_meant(value: Json, meant: str) -> None:
    (fault,) = SCHEMA.findings(value)
    assert meant in fault["message"]
    assert ("did you mean" in fault["message"]) == bool(meant)


def test_run_answers_with_the_input_that_was_meant(tmp_path: object) -> None:
    refused = CliRunner().invoke(app, ["run", "workflows/refund.flow.yaml", "-i", "ordr=A1"])
    assert refused.exit_code != 0
    assert "did you mean `order`?" in " ".join(refused.output.split())
