"""Documents of every shape: each compiles or has findings, and nothing ever escapes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.yaml.keys import Shape
from hai_flow.definition.yaml.language import SHAPES, STEP_KEYS, STEP_SHAPES, VERBS
from hai_flow.errors import DefinitionError
from tests.support.examples import examples

from .support import HEAD
from .test_wrong_files import BASE

EXAMPLES: Final = [file.read_text() for file in sorted((Path(__file__).parent / "examples").iterdir())]
EVERY_SHAPE: Final[list[Shape]] = [*SHAPES.values(), *STEP_SHAPES.values()]
WORDS: Final = sorted({key for shape in EVERY_SHAPE for key in shape.words} | {"properties", "items", "required"})
SCALARS: Final = [
    "", "a", "1", "0", "-1", "1.5", "5s", "true", "null", "[]", "{}", "'${{ input.amount }}'", "'${{'", "'${{ item }}'",
    "user:a", "role:boss", "anyone", "requester", "steps.a.output", "'${{ steps.a.output.x }}'", "mail.send", "pick",
    "web.search", "smart", "all", "none", "approve", "reject", "object", "input.amount > 1.0", "'* * * * *'", "UTC",
]  # fmt: skip


def mappings(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Mappings whose keys belong together: those of one shape, some left out; or any words."""
    of_a_shape = st.sampled_from(EVERY_SHAPE).flatmap(
        lambda shape: st.dictionaries(st.sampled_from(shape.words or ("a",)), inner, max_size=6)
    )
    pairs = st.one_of(of_a_shape, st.dictionaries(st.sampled_from(WORDS), inner, max_size=4))
    return pairs.map(lambda found: "{" + ", ".join(f"{key}: {value}" for key, value in found.items()) + "}")


YAMLISH: Final = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"), mappings(inner)
    ),
    max_leaves=16,
)
STEP: Final = st.builds(
    lambda verb, value, rest: "{" + ", ".join([f"{verb}: {value}", *(f"{key}: {item}" for key, item in rest)]) + "}",
    st.sampled_from(sorted(VERBS)),
    YAMLISH,
    st.lists(st.tuples(st.sampled_from(sorted(STEP_KEYS - VERBS.keys())), YAMLISH), max_size=3),
)


@settings(max_examples=examples(200), deadline=None)
@given(steps=st.lists(STEP, min_size=1, max_size=3))
@pytest.mark.slow
def test_steps_of_any_shape(steps: list[str]) -> None:
    compiles_or_has_findings((BASE + f"steps: [{', '.join(steps)}]\n").encode())


@settings(max_examples=examples(150), deadline=None)
@given(key=st.sampled_from(SHAPES["document"].words), value=YAMLISH, step=STEP)
@pytest.mark.slow
def test_declarations_of_any_shape(key: str, value: str, step: str) -> None:
    compiles_or_has_findings((HEAD + f"{key}: {value}\nsteps: [{step}]\n").encode())


@settings(max_examples=examples(200), deadline=None)
@given(
    text=st.sampled_from(EXAMPLES),
    at=st.integers(0, 3000),
    size=st.integers(0, 12),
    put=st.text(alphabet="ab:-{}[]\"'&*!|#?,\n $", max_size=4),
)
@pytest.mark.slow
def test_a_damaged_example(text: str, at: int, size: int, put: str) -> None:
    at %= len(text)
    compiles_or_has_findings((text[:at] + put + text[at + size :]).encode())


@settings(max_examples=examples(150), deadline=None)
@given(text=st.sampled_from(EXAMPLES), first=st.integers(0, 200), second=st.integers(0, 200), indent=st.integers(-4, 4))
def test_an_example_with_a_line_moved(text: str, first: int, second: int, indent: int) -> None:
    lines = text.split("\n")
    line = lines.pop(first % len(lines))
    moved = " " * indent + line if indent > 0 else line[min(-indent, len(line) - len(line.lstrip())) :]
    lines.insert(second % len(lines), moved)
    compiles_or_has_findings("\n".join(lines).encode())


def compiles_or_has_findings(source: bytes) -> None:
    found = check_workflow(source)
    if any(finding.severity == "error" for finding in found):
        with pytest.raises(DefinitionError):
            compile_workflow(source)
        assert all(finding.line >= 1 and finding.column >= 1 for finding in found)
        assert all(finding.message and "." in finding.code for finding in found)
    else:
        assert compile_workflow(source).warnings == tuple(found)
