"""`fmt`: what it changes, what it leaves alone, and that no document means anything else afterwards."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hai_flow.authoring.formatting import format_source
from hai_flow.authoring.walking import expressions
from hai_flow.definition import plan
from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.expressions.evaluation import CompiledExpression
from hai_flow.definition.plan import CallWrites
from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.language import DOCUMENT_ORDER, STEP_ORDER
from hai_flow.errors import DefinitionError
from tests.graph.stories import EVERYTHING
from tests.support.examples import examples

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "workflows").rglob("*.flow.yaml"), *(ROOT / "hai_flow" / "templates").rglob("*.flow.yaml")])
HEAD = "hai: flow/v1\nname: a\nversion: 1\n"


def formatted(text: str) -> str:
    once = format_source(text.encode())
    assert format_source(once.encode()) == once
    return once


def test_keys_come_in_order_with_the_comments_above_them() -> None:
    text = """# who owns this: ann
name: a
# the language
hai: flow/v1
# what happens
steps:
  # greets
  - say: Hello   # politely
    # needed below
    id: hello
    # not on Sundays
    if: input.weekday
    # that was all

  # ends
  - return: 1
version: 1
"""
    assert (
        formatted(text)
        == """# who owns this: ann
# the language
hai: flow/v1
name: a
version: 1
# what happens
steps:
  # greets
  # needed below
  - id: hello
    # not on Sundays
    if: input.weekday
    # that was all
    say: Hello   # politely

  # ends
  - return: 1
"""
    )


def test_steps_inside_of_steps_are_put_in_order_too() -> None:
    text = (
        HEAD
        + """steps:
  - repeat:
      steps:
        - with: {b: 1, a: 2}
          call: t.f
          approval: {from: anyone}
          id: inner
      max: 2
    id: outer
"""
    )
    assert (
        formatted(text)
        == HEAD
        + """steps:
  - id: outer
    repeat:
      steps:
        - id: inner
          call: t.f
          with: {b: 1, a: 2}
          approval: {from: anyone}
      max: 2
"""
    )


def test_unknown_keys_go_to_the_end_and_keep_their_order() -> None:
    text = HEAD + "steps:\n  - zebra: 1\n    ape: 2\n    say: x\n    id: y\n"
    assert formatted(text).endswith("  - id: y\n    say: x\n    zebra: 1\n    ape: 2\n")


def test_keys_that_the_author_chose_keep_their_order() -> None:
    text = HEAD + "steps:\n  - set:\n      title: 1\n      id: 2\n      a: 3\n"
    assert formatted(text) == text


@pytest.mark.parametrize(
    ("written", "bare"),
    [
        ("if: ${{ input.a }}", "if: input.a"),
        ("if: '${{ input.a }}'   # why", "if: input.a   # why"),
        ('if: "${{ input.a ? true : false }}"', 'if: "input.a ? true : false"'),
        ("if: '${{ !input.a }}'", 'if: "!input.a"'),
        ("if: '${{ input.a == \"x: y\" }}'", "if: 'input.a == \"x: y\"'"),
        ('if: "${{ [1, 2] == input.a }}"', 'if: "[1, 2] == input.a"'),
        ("if: |\n      ${{ input.a ||\n      input.b }}", "if: |\n      input.a ||\n      input.b"),
    ],
)
def test_a_whole_hole_around_a_bare_expression_goes(written: str, bare: str) -> None:
    assert formatted(f"{HEAD}steps:\n  - {written}\n    say: x\n") == f"{HEAD}steps:\n  - {bare}\n    say: x\n"


def test_expressions_are_found_wherever_they_may_stand() -> None:
    text = (
        HEAD
        + """steps:
  - switch:
      - when: ${{ input.a }}
        steps:
          - repeat: {until: "${{ input.b }}", max: 2, steps: [{say: x}]}
  - wait_for: {any: [{event: e, match: "${{ event.data.a }}"}]}
  - call: t.f
    with: {when: "${{ input.c }}", if: "${{ input.d }}"}
    approval: {when: "${{ args.x > 1 }}", from: anyone}
"""
    )
    result = formatted(text)
    for bare in ("when: input.a\n", "{until: input.b,", "match: event.data.a}", "{when: args.x > 1,"):
        assert bare in result
    assert 'with: {when: "${{ input.c }}", if: "${{ input.d }}"}' in result


@pytest.mark.parametrize(
    ("written", "quoted"),
    [
        ("{a: ${{ input.a }}, b: 1}", '{a: "${{ input.a }}", b: 1}'),
        ("{a: [x ${{ input.a }} y, ${{ input.b }}]}", '{a: ["x ${{ input.a }} y", "${{ input.b }}"]}'),
        ('{a: ${{ {"k": [1, 2]}.k }}}', "{a: '${{ {\"k\": [1, 2]}.k }}'}"),
        ("{a: \"it's\", b: ${{ 'x, y' }}}  # {c: ${{ d }}}", '{a: "it\'s", b: "${{ \'x, y\' }}"}  # {c: ${{ d }}}'),
        ("{a: ${{ input.a ? 1 : 2 }}}", '{a: "${{ input.a ? 1 : 2 }}"}'),
        ("{\n      a: ${{ input.a }}\n    }", '{\n      a: "${{ input.a }}"\n    }'),
    ],
)
def test_a_hole_is_quoted_where_yaml_would_read_something_else(written: str, quoted: str) -> None:
    before = f"{HEAD}steps:\n  - say: |\n      {{a: ${{{{ kept }}}}}}\n  - set: "
    assert formatted(f"{before}{written}\n") == f"{before}{quoted}\n"


def test_a_hole_is_quoted_in_a_block_only_where_yaml_needs_it() -> None:
    steps = "steps:\n  - set:\n      a: {}\n      b: ${{{{ [1] }}}}\n"
    assert formatted(HEAD + steps.format("${{ input.a ? 1 : 2 }}")) == HEAD + steps.format('"${{ input.a ? 1 : 2 }}"')


def test_white_space_that_nobody_sees_goes_and_that_of_texts_stays() -> None:
    text = (
        HEAD.replace("\n", "  \n")
        + "\n\n\nsteps:\n  - say: |\n      two spaces  \n\n\n      and lines\n  - say: x\n\n\n\n"
    )
    assert formatted(text) == HEAD + "\nsteps:\n  - say: |\n      two spaces  \n\n\n      and lines\n  - say: x\n"


def test_lines_end_as_on_every_other_machine() -> None:
    assert formatted(HEAD.replace("\n", "\r\n") + "steps: [{say: x}]") == HEAD + "steps: [{say: x}]\n"


def test_an_alias_is_never_moved_before_its_anchor() -> None:
    text = (
        HEAD
        + "steps:\n  - call: t.f\n    with: &same {a: 1}\n    if: true\n    undo: {call: t.g, with: *same}\n    id: x\n"
    )
    assert parse(formatted(text).encode()).findings == ()
    turned = HEAD + "steps:\n  - undo: {call: t.g, with: &same {a: 1}}\n    call: t.f\n    with: *same\n"
    assert formatted(turned) == turned


def test_what_yaml_cannot_read_is_refused_with_its_place() -> None:
    with pytest.raises(DefinitionError) as caught:
        format_source(b"hai: flow/v1\nsteps:\n  - say: a: b\n", "x.yaml")
    assert (caught.value.findings[0].file, caught.value.findings[0].line) == ("x.yaml", 3)


# --- meaning ------------------------------------------------------------------------------------------------------


def meaning(value: Any) -> Any:
    """A plan as plain values. Expressions by their text; of templates what they read, their text is compared apart."""
    if isinstance(value, plan.Step):
        value = {name: getattr(value, name) for name in value.__struct_fields__ if name != "line"}
    names = plan.list_fields(value)
    if isinstance(value, CompiledExpression | CallWrites):
        return ("expression", value.source.strip())
    if hasattr(value, "evaluate"):
        raise AssertionError(f"{value} is new here")
    if hasattr(value, "render"):
        return ("template", value.roots, value.steps)
    if hasattr(value, "raw"):
        return ("schema", value.raw)
    if names is not None:
        skipped = ("sha256", "source", "warnings")
        return {name: meaning(getattr(value, name)) for name in names if name not in skipped}
    if isinstance(value, dict):
        return {key: meaning(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [meaning(part) for part in value]
    return value


def words(value: Any) -> Any:
    """A document's value, its bare expressions without holes."""
    found = {path for path, _ in expressions(value)}

    def without(part: Any, path: tuple[Any, ...]) -> Any:
        if isinstance(part, dict):
            return {key: without(each, (*path, key)) for key, each in part.items()}
        if isinstance(part, list):
            return [without(each, (*path, index)) for index, each in enumerate(part)]
        if path in found and part.strip().startswith("${{"):
            return part.strip()[3:-2].strip()
        return part.strip() if path in found else part

    return without(value, ())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_files_that_come_along_are_as_fmt_writes_them(path: Path) -> None:
    assert format_source(path.read_bytes()) == path.read_text()


@pytest.mark.parametrize("source", [path.read_bytes() for path in FILES], ids=[path.stem for path in FILES])
def test_the_plan_stays_the_same_when_keys_are_turned_around(source: bytes) -> None:
    turned = turn(source)
    assert meaning(compile_workflow(format_source(turned).encode())) == meaning(compile_workflow(turned))


def turn(source: bytes) -> bytes:
    """A document that means the same with the last keys first."""
    import yaml

    def reverse(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            ordered = list(value.items()) if path.endswith(("with", "set")) else list(reversed(value.items()))
            return {key: reverse(part, key) for key, part in ordered}
        return [reverse(part, "") for part in value] if isinstance(value, list) else value

    return yaml.dump(reverse(parse(source).value, "with"), sort_keys=False, allow_unicode=True, width=1000).encode()


_NAMES = st.sampled_from(["id", "if", "say", "call", "with", "retry", "zebra", "catch"])
_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=30)
_SCALARS = st.one_of(
    _TEXTS,
    st.sampled_from(["${{ input.a }}", "${{ a ? b : c }}", "${{ !x }}", "#", " x ", "- a"]),
    st.integers(0, 9),
    st.none(),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=3)),
    max_leaves=8,
)
_STEPS = st.lists(st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=5), min_size=1, max_size=4)


@pytest.mark.costly
@settings(max_examples=examples(150))
@given(_STEPS, st.permutations(["hai", "name", "version", "steps", "output"]), st.booleans(), st.data())
def test_any_document_keeps_its_meaning_and_fmt_of_fmt_is_fmt(
    steps: list[dict[str, Any]], order: list[str], flow: bool, data: st.DataObject
) -> None:
    import yaml

    document = {"hai": "flow/v1", "name": "a", "version": 1, "steps": steps, "output": None}
    lines = yaml.dump(
        {key: document[key] for key in order},
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None if flow else False,
    ).split("\n")
    for _ in range(data.draw(st.integers(0, 3))):
        lines.insert(data.draw(st.integers(0, len(lines))), data.draw(st.sampled_from(["", "# c", "    # deep", "  "])))
    source = "\n".join(lines).encode()
    before = parse(source)
    assume(not before.findings)
    once = format_source(source)
    assert words(parse(once.encode()).value) == words(before.value)
    assert format_source(once.encode()) == once
    assert once.count("# c") + once.count("# deep") >= source.decode().count("# c") + source.decode().count("# deep")


@given(st.one_of(st.text(), st.text("{}[]${} ,:\"'#|\n-ab")))
def test_any_text_is_formatted_or_refused(text: str) -> None:
    with suppress(DefinitionError):
        once = format_source(text.encode("utf-8", "surrogatepass"))
        assert format_source(once.encode()) == once


def test_the_orders_name_every_key_once() -> None:
    assert len(set(STEP_ORDER)) == len(STEP_ORDER)
    assert len(set(DOCUMENT_ORDER)) == len(DOCUMENT_ORDER)
    assert parse(format_source(EVERYTHING).encode()).findings == ()
