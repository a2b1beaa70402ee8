"""The editor's schema: what compiles satisfies it, and what authors get wrong does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from hai_flow.authoring.json_schema import tests_schema as schema_of_tests
from hai_flow.authoring.json_schema import workflow_schema
from hai_flow.definition.compiler import check_workflow
from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.keys import Key, Type
from hai_flow.definition.yaml.language import SHAPES, VERBS
from tests.graph.stories import EVERYTHING

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "workflows", ROOT / "hai_flow" / "templates")
WORKFLOWS = sorted(path for folder in FOLDERS for path in folder.rglob("*.flow.yaml"))
TESTS = sorted(path for folder in FOLDERS for path in folder.rglob("*.test.yaml"))

SCHEMA = workflow_schema()
VALID = jsonschema_rs.validator_for(SCHEMA)
VALID_TESTS = jsonschema_rs.validator_for(schema_of_tests())


def faults(value: Any) -> list[str]:
    return [f"{list(error.instance_path)}: {error.message}" for error in VALID.iter_errors(value)]


def test_the_schemas_are_schemas() -> None:
    assert jsonschema_rs.meta.is_valid(workflow_schema())
    assert jsonschema_rs.meta.is_valid(schema_of_tests())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_workflow_that_comes_along_satisfies_it(path: Path) -> None:
    assert faults(parse(path.read_bytes()).value) == []


@pytest.mark.parametrize(("stage", "fits"), [("fail", True), ("reject", True), ("escalate", False)])
def test_a_stage_that_says_nothing_more_may_be_empty(stage: str, fits: bool) -> None:
    stages = f"on_deadline: [{{{stage}: }}]"
    text = f"hai: flow/v1\nname: a\nversion: 1\nsteps: [{{approve: {{title: a, from: anyone, {stages}}}}}]\n"
    assert (faults(parse(text.encode()).value) == []) is fits
    assert (check_workflow(text.encode()) == []) is fits


@pytest.mark.parametrize(("rest", "fits"), [("result: 1", True), ("steps: [{say: a}]", True), ("", False)])
def test_a_case_has_steps_or_a_result(rest: str, fits: bool) -> None:
    case = f"{{default: true{rest and f', {rest}'}}}"
    text = f"hai: flow/v1\nname: a\nversion: 1\nsteps: [{{switch: [{{when: 1 == 2, result: 0}}, {case}]}}]\n"
    assert (faults(parse(text.encode()).value) == []) is fits
    assert (not [each for each in check_workflow(text.encode()) if each.severity == "error"]) is fits


def test_a_document_with_every_verb_satisfies_it() -> None:
    assert faults(parse(EVERYTHING).value) == []


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_every_test_that_comes_along_satisfies_the_schema_of_tests(path: Path) -> None:
    assert [error.message for error in VALID_TESTS.iter_errors(parse(path.read_bytes()).value)] == []


def keys() -> list[Any]:
    return [
        pytest.param(shape.name, key, id=f"{shape.name}.{key.name}") for shape in SHAPES.values() for key in shape.keys
    ]


@pytest.mark.parametrize(("shape", "key"), keys())
def test_every_key_has_an_example_that_satisfies_its_type(shape: str, key: Key) -> None:
    definition = SCHEMA if shape == "document" else SCHEMA["$defs"][shape]
    schema = {**definition["properties"][key.name], "$defs": SCHEMA["$defs"]}
    assert key.example
    assert key.does
    assert jsonschema_rs.validator_for(schema).is_valid(parse(key.example.encode()).value)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example_that_is_a_step(verb: str) -> None:
    step = parse(f"{verb}: {VERBS[verb].example}\n".encode())
    assert step.findings == ()
    assert faults({"hai": "flow/v1", "name": "a", "version": 1, "steps": [step.value]}) == []


def test_every_shape_that_is_named_exists_and_is_used() -> None:
    used: set[str] = {"document", "step"}

    def visit(type_: Type) -> None:
        used.update([type_.shape] if type_.shape else [])
        for part in type_.parts:
            visit(part)

    for shape in SHAPES.values():
        for key in shape.keys:
            visit(key.type)
    for verb in VERBS.values():
        visit(verb.type)
    assert used - set(SHAPES) == set()
    assert set(SHAPES) - used == set()


WRONG = {
    "no version": "hai: flow/v1\nname: a\nsteps: [{say: x}]",
    "another language": "hai: flow/v2\nname: a\nversion: 1\nsteps: [{say: x}]",
    "a capital in the name": "hai: flow/v1\nname: Refund\nversion: 1\nsteps: [{say: x}]",
    "version as text": 'hai: flow/v1\nname: a\nversion: "1"\nsteps: [{say: x}]',
    "no steps": "hai: flow/v1\nname: a\nversion: 1\nsteps: []",
    "an unknown key": "hai: flow/v1\nname: a\nversion: 1\njobs: {}\nsteps: [{say: x}]",
    "two kinds of tool": "hai: flow/v1\nname: a\nversion: 1\ntools: {t: {python: m, mcp: n}}\nsteps: [{say: x}]",
    "a trigger of two kinds": "hai: flow/v1\nname: a\nversion: 1\ntriggers: [{api: {}, event: {}}]\nsteps: [say: x]",
}
WRONG_STEPS = {
    "no verb": "id: a",
    "two verbs": "{say: x, return: 1}",
    "a misspelt key": "{call: t.f, wiht: {}}",
    "a key of another verb": "{say: x, with: {}}",
    "retry on people": "{ask: {title: x, form: {}}, retry: {max: 1}}",
    "a number as duration": "{wait: {for: 10}}",
    "a duration of words": "{wait: {for: ten minutes}}",
    "both for and until": "{wait: {for: 1m, until: x}}",
    "no form": "{ask: {title: x}}",
    "nobody decides": "{approve: {title: x}}",
    "not a selector": "{approve: {title: x, from: ann}}",
    "an option with a capital": "{approve: {title: x, from: requester, options: [Yes]}}",
    "an unknown outcome": "{approve: {title: x, from: requester, on_deadline: ignore}}",
    "escalation without a deadline": "{approve: {title: x, from: anyone, on_deadline: [{escalate: {from: role:a}}]}}",
    "one branch": "{parallel: {a: [{say: x}]}}",
    "a join that does not exist": "{parallel: {a: [{say: x}], b: [{say: y}]}, join: first}",
    "while and until": "{repeat: {max: 1, while: a, until: b, steps: [{say: x}]}}",
    "no bound": "{repeat: {steps: [{say: x}]}}",
    "no items": "{for_each: {steps: [{say: x}]}}",
    "two methods": "{http: {get: x, post: y}}",
    "two bodies": "{http: {post: x, body: 1, text: y}}",
    "a quorum of words": "{approve: {title: x, from: [role:a], quorum: two}}",
    "a quorum of digits in quotes": "{approve: {title: x, from: [role:a], quorum: '2'}}",
    "messages in words": "{llm: {messages: hello}}",
    "prompt and messages": "{llm: {prompt: x, messages: []}}",
    "an agent without tools": "{agent: {prompt: x}}",
    "a retry without max": "{call: t.f, retry: {backoff: exponential}}",
    "a catch that is no list": "{call: t.f, catch: {errors: [x], steps: [{say: x}]}}",
    "an empty list inside": "{try: []}",
    "an operation that does not exist": "{set: [{op: append, path: /a}]}",
    "an unknown kind of message": "{say: {html: x}}",
    "undo without a verb": "{call: t.f, undo: {with: {}}}",
}


HOLES = {
    "quorum": "{approve: {title: x, from: [role:a], quorum: '${{ input.amount > 10 ? 2 : 1 }}'}}",
    "messages": "{llm: {messages: '${{ state.messages }}'}}",
}


@pytest.mark.parametrize("source", [pytest.param(text, id=name) for name, text in HOLES.items()])
def test_a_hole_stands_for_a_value_that_is_no_text(source: str) -> None:
    step = parse(source.encode()).value
    assert faults({"hai": "flow/v1", "name": "a", "version": 1, "steps": [step]}) == []


@pytest.mark.parametrize("source", [pytest.param(text, id=name) for name, text in WRONG.items()])
def test_a_wrong_document_is_underlined(source: str) -> None:
    assert faults(parse(source.encode()).value) != []


@pytest.mark.parametrize("source", [pytest.param(text, id=name) for name, text in WRONG_STEPS.items()])
def test_a_wrong_step_is_underlined(source: str) -> None:
    document = {"hai": "flow/v1", "name": "a", "version": 1, "tools": {"t": {"python": "m"}}}
    assert faults({**document, "steps": [{"say": "x"}]}) == []
    assert faults({**document, "steps": [parse(source.encode()).value]}) != []
