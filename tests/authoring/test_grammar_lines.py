"""Each line of the page for language models is run: what it tells one to write is right, what it forbids is found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from hai_flow.authoring.grammar import grammar
from hai_flow.definition.compiler import check_workflow

SOURCE: Final = Path(__file__).resolve().parent / "grammar_lines.txt"
FRAME: Final = """\
hai: flow/v1
name: a
version: 1
input:
  type: object
  required: [amount, whole, rows]
  properties:
    amount: {type: number}
    whole: {type: integer}
    note: {type: string}
    rows:
      type: array
      items: {type: object, required: [name, amount], properties: {name: {type: string}, amount: {type: number}}}
state: {points: {type: integer, default: 0}, log: {type: array, items: {type: string}, default: [], reduce: append}}
models: {smart: {provider: openai, model: gpt-5.4}}
tools:
  shop: {python: acme.shop, effect: write}
  mail: {python: acme.mail, effect: write}
  pick: {frontend: {description: Pick one., parameters: {type: object}}}
steps:
"""
USED: Final = """\
  - set: {log: "${{ string(state.points) }}"}
  - call: mail.used
  - call: shop.used
  - call: pick
  - llm: {model: smart, prompt: Hello}
"""


class Sample(NamedTuple):
    """Steps for the line that begins with `line`, and a `word` of what is found in them: `*` is any, "" nothing."""

    line: str
    word: str
    steps: str


def read_samples() -> list[Sample]:
    """Each begins with `== LINE | WORD`."""
    samples = []
    for part in re.split(r"^== ", SOURCE.read_text(), flags=re.MULTILINE)[1:]:
        title, _, steps = part.partition("\n")
        line, _, word = title.rpartition("|")
        samples.append(Sample(line.strip(), word.strip(), steps))
    return samples


def rules() -> list[str]:
    """The lines of the page that say what is so, written by hand: names, and all points of its lists."""
    page = grammar()
    text = page[page.index("## Names in expressions") : page.index("## Two whole workflows")]
    return [line[2:] for line in text.split("\n") if line.startswith(("- ", "| `"))]


def messages_of(steps: str) -> list[str]:
    return [each.message for each in check_workflow((FRAME + steps + USED).encode())]


@pytest.mark.parametrize("line", rules(), ids=lambda line: line[:24])
def test_a_line_of_the_page_is_so(line: str) -> None:
    samples = [sample for sample in read_samples() if line.startswith(sample.line)]
    assert samples, "the page has a new line: write what it says into grammar_lines.txt"
    for sample in samples:
        messages = messages_of(sample.steps)
        if sample.word in ("", "*"):
            assert bool(messages) == (sample.word == "*"), (sample, messages)
        else:
            assert any(sample.word in each for each in messages), (sample, messages)


def test_every_sample_is_of_a_line() -> None:
    assert [each for each in read_samples() if not any(line.startswith(each.line) for line in rules())] == []


def test_the_statuses_of_the_page_are_those_of_a_step() -> None:
    listed = re.search(r"Status of a step: `([^`]+)`", grammar())
    assert listed is not None
    step = "  - {id: x, if: input.amount > 1.0, call: shop.find}\n"
    for status in listed[1].split():
        assert messages_of(f'{step}  - {{if: steps.x.status == "{status}", say: x}}\n') == []
