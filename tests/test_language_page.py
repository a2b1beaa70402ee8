"""docs/language.md: its tables are the code's, its examples are valid, its tests pass, and it leaves nothing out."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from docs.language_page import PATH, PICTURE, page, picture
from hai_flow.authoring.formatting import format_source
from hai_flow.definition.compiler import check_workflow
from hai_flow.definition.fields import KNOWN_CODES
from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.language import SHAPES, VERBS

TEXT = PATH.read_text()
EXAMPLES = [
    pytest.param(match[1], id=f"line_{TEXT.count(chr(10), 0, match.start()) + 1}")
    for match in re.finditer(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
]

# What the fragments on the page take for granted.
FRAME = """\
hai: flow/v1
name: frame
version: 1
input:
  type: object
  required: [order, amount]
  properties:
    order: {type: string}
    amount: {type: number}
    note: {type: string}
    names: {type: array, items: {type: string}, default: []}
state:
  log: {type: array, items: {type: string}, default: [], reduce: append}
  feedback: {type: string, default: ""}
models: {smart: {provider: openai, model: gpt-5.4}}
tools:
  shop: {python: acme.shop, effect: write}
  mail: {python: acme.mail, effect: write}
  web: {mcp: "https://mcp.example.com/web", effect: read}
steps:
  - say: Hello
"""


def build_document(example: str) -> bytes:
    """An example as a document: steps, or keys of the document, are put into the frame."""
    if example.startswith("hai:"):
        return example.encode()
    given: Any = parse(example.encode()).value
    document = parse(FRAME.encode()).value
    if isinstance(given, list):
        document["steps"] = given
    else:
        for key, value in given.items():
            both = isinstance(value, dict) and isinstance(document.get(key), dict)
            document[key] = {**document[key], **value} if both else value
    return yaml.dump(document, sort_keys=False, allow_unicode=True).encode()


def test_the_tables_are_those_of_the_code() -> None:
    assert page(TEXT) == TEXT


def test_the_picture_is_that_of_the_first_workflow() -> None:
    assert PICTURE.read_text() == picture(TEXT)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_without_findings(example: str) -> None:
    if not example.startswith("hai: test/v1"):
        assert [str(finding) for finding in check_workflow(build_document(example), "example")] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_written_as_fmt_writes_it(example: str) -> None:
    if example.startswith("hai: flow/v1"):
        assert format_source(example.encode()) == example


def test_no_verb_no_shape_and_no_code_is_left_out() -> None:
    for code in KNOWN_CODES:
        assert f"`{code}`" in TEXT, code
    marked = set(" ".join(re.findall(r"<!-- keys: ([a-z_ ]+) -->", TEXT)).split())
    small = {"api", "nothing", "thinking", "fold", "output", "custom", "raw", "collaboration", "task", "reject",
             "subscription", "llm", "approval", "on_deadline_of_ask"}  # fmt: skip
    assert set(SHAPES) - marked == small
    for verb in VERBS:
        assert f"| `{verb}` |" in TEXT
