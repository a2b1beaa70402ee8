"""Schemas that servers send: one that is too much work leaves out its own function, by name, and nothing else."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest

from hai_flow.definition.tools.openapi import ApiDocument, UnusableDocument
from hai_flow.errors import StepError
from hai_flow.steps.mcp.elicitation import _question
from hai_flow.steps.mcp.results import schema_of
from hai_flow.steps.mcp.schemas import compile_output_schema, read_tool
from tests.attacks.work import SCHEMAS

TOO_LARGE = {name: schema for name, (schema, codes) in SCHEMAS.items() if codes == ("schema.too_large",)}

# What nobody can use of a server's schema does not bind: a single pattern, and a reference to a dynamic anchor.
WITHOUT_A_PART = ("a pattern", "a tree that is extended")
OF_FUNCTIONS = [name for name in TOO_LARGE if not name.startswith(WITHOUT_A_PART)]


@pytest.mark.parametrize("name", OF_FUNCTIONS)
def test_a_function_with_an_oversized_schema_is_left_out_by_name(name: str) -> None:
    schema = {"type": "object", **TOO_LARGE[name]}
    read = read_tool({"name": "asks", "inputSchema": schema})
    assert isinstance(read, str), "it is not offered"
    assert "schema.too_large" in read
    with pytest.raises(StepError, match=r"schema\.too_large") as refused:
        schema_of(schema, "erp.asks")
    assert refused.value.code == "tool.unavailable"


@pytest.mark.parametrize("name", OF_FUNCTIONS)
def test_results_are_not_held_against_too_large_a_schema(name: str) -> None:
    read = read_tool({"name": "says", "inputSchema": {}, "outputSchema": {"type": "object", **TOO_LARGE[name]}})
    assert isinstance(read, types.Tool)
    assert compile_output_schema(read) is None


@pytest.mark.parametrize("name", OF_FUNCTIONS)
def test_a_form_of_a_server_that_is_too_large_is_refused(name: str) -> None:
    schema = {"type": "object", "properties": {}, **TOO_LARGE[name]}
    params = types.ElicitRequestFormParams(message="Hm?", requested_schema=schema)
    with pytest.raises(StepError, match="its form is"):
        _question({"a": types.ElicitRequest(params=params)}, None)


def test_an_operation_with_an_oversized_schema_is_left_out_alone() -> None:
    schemas: dict[str, Any] = {"a0": {"type": "integer"}}
    for number in range(1, 31):
        before = {"$ref": f"#/components/schemas/a{number - 1}"}
        schemas[f"a{number}"] = {"allOf": [before, before]}

    def taking(id: str, schema: dict[str, Any]) -> dict[str, Any]:
        return {"post": {"operationId": id, "requestBody": {"content": {"application/json": {"schema": schema}}}}}

    document = ApiDocument({
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "paths": {
            "/a": taking("hostile", {"$ref": "#/components/schemas/a30"}),
            "/b": taking("good", {"$ref": "#/components/schemas/a3"}),
        },
        "components": {"schemas": schemas},
    })  # fmt: skip
    assert document.find("good").parameters.findings({"body": 1}) == []
    with pytest.raises(UnusableDocument, match=r"schema\.too_large"):
        document.find("hostile")
