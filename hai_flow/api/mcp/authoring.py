"""Tools with which agents write workflows: they find what `hai-flow validate` and `hai-flow test` find in one file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hai_flow import values
from hai_flow.api.mcp.tool import Call, ServedTool, make_text_result
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests.access import Access
from hai_flow.api.rest.workflows import check_beside_loop, validate_workflow
from hai_flow.authoring import skill
from hai_flow.authoring.scaffold import TEMPLATES, template
from hai_flow.errors import Rejected
from hai_flow.testing.sandbox import NotPlayed, play_sandboxed
from hai_flow.wire.mcp import TEXT_BYTES_MAX

EXPLAIN: Final = "explain_finding"
SEARCH: Final = "search_patterns"
VALIDATE: Final = "validate_workflow"
TEST: Final = "test_workflow"
_SOURCE: Final[dict[str, Any]] = {"type": "string", "description": "the workflow's YAML"}
_TESTS: Final = {"type": "string", "description": "the YAML of its tests; the file that they name is not read"}
_FINDINGS: Final[dict[str, Any]] = {"type": "array", "items": {"type": "object"}}
_CUT: Final[dict[str, Any]] = {"type": "boolean", "description": "the lists are too large, and left out"}


async def _validate(access: Access, given: Mapping[str, Any], call: Call) -> dict[str, Any]:
    answer = await validate_workflow(given["source"].encode(), access)
    lines = [
        f"{each['line']}:{each['column']}: {each['severity']}: {each['message']} ({each['code']})"
        for each in answer["findings"]
    ]
    return _result([*lines, "The workflow is valid." if answer["valid"] else "The workflow is not valid."], answer)


async def _test(access: Access, given: Mapping[str, Any], call: Call) -> dict[str, Any]:
    try:
        played = await check_beside_loop(access, play_sandboxed, given["source"].encode(), given["tests"].encode())
    except NotPlayed as error:
        raise Rejected(422, "request.invalid", str(error)) from None
    return _result(played.pop("lines"), played)


async def _explain(access: Access, given: Mapping[str, Any], call: Call) -> dict[str, Any]:
    explained = skill.explain_finding(given["code"])
    if explained is None:
        raise Rejected(422, "request.invalid", "/code: the language has no part of this name; read the finding's text.")
    return make_text_result("\n".join(explained["grammar"]), explained)


async def _search(access: Access, given: Mapping[str, Any], call: Call) -> dict[str, Any]:
    names = skill.search_patterns(given["query"])
    texts = [(name, template(name)) for name in names]
    patterns = [
        {"name": name, "description": TEMPLATES[name], "workflow": each.workflow, "tests": each.tests}
        for name, each in texts
    ]
    text = "\n\n".join(f"# {each['name']}: {each['description']}\n{each['workflow']}" for each in patterns)
    some = f"No pattern has these words; there are {', '.join(TEMPLATES)}."
    return make_text_result(text or some, {"patterns": patterns})


def _result(lines: list[str], content: Mapping[str, Any]) -> dict[str, Any]:
    """The lines as text, at most 32 KB of them from the end, and the content, without its lists where it is too large:
    the last line says how all of it ended."""
    text = "\n".join(lines).encode(errors="replace")[-TEXT_BYTES_MAX:].decode(errors="ignore")
    if len(values.dumps(content)) > 2 * TEXT_BYTES_MAX:
        content = {name: value for name, value in content.items() if not isinstance(value, list)} | {"truncated": True}
    return make_text_result(text, content)


AUTHORING: Final[tuple[ServedTool, ...]] = (
    ServedTool(
        VALIDATE, "Check a workflow",
        "Every finding of a workflow document, with its place. Stores nothing.",
        {"source": _SOURCE}, _validate, (Right.CHECK_WORKFLOWS,), ("source",), reads=True,
        output={
            "type": "object", "required": ["valid"],
            "properties": {"valid": {"type": "boolean"}, "findings": _FINDINGS, "truncated": _CUT},
        },
    ),
    ServedTool(
        TEST, "Test a workflow",
        "Plays the tests of a workflow in memory: the real engine, with mocks for what it calls. Performs no effect "
        "and stores nothing.",
        {"source": _SOURCE, "tests": _TESTS},
        _test, (Right.CHECK_WORKFLOWS,), ("source", "tests"), reads=True,
        output={
            "type": "object", "required": ["passed", "failed"],
            "properties": {
                "passed": {"type": "integer"}, "failed": {"type": "integer"},
                "cases": {"type": "array", "items": {"type": "object"}, "description": "with the failures of each"},
                "findings": {**_FINDINGS, "description": "of the texts; with any, nothing is played"},
                "truncated": _CUT,
            },
        },
    ),
    ServedTool(
        EXPLAIN, "Explain a finding",
        "What the grammar says about the part of the language that a finding is about, and the patterns that have it.",
        {"code": {"type": "string", "description": "the code of a finding, like `set.unknown`"}},
        _explain, (Right.CHECK_WORKFLOWS,), ("code",), reads=True,
        output={
            "type": "object", "required": ["code", "grammar"],
            "properties": {
                "code": {"type": "string"}, "subject": {"type": "string"},
                "grammar": {"type": "array", "items": {"type": "string"}},
                "patterns": {"type": "array", "items": {"type": "string"}, "description": "of search_patterns"},
            },
        },
    ),
    ServedTool(
        SEARCH, "Search patterns", "Tested workflows to begin with, by words of what is wanted, with their tests.",
        {"query": {"type": "string", "description": "like `approval deadline` or `wait for an event`"}},
        _search, (Right.CHECK_WORKFLOWS,), ("query",), reads=True,
        output={
            "type": "object", "required": ["patterns"],
            "properties": {"patterns": {"type": "array", "items": {"type": "object"}}},
        },
    ),
)  # fmt: skip
