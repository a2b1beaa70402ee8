"""Literal arguments that a function never takes, and secrets that are computed or have a default, are findings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.expressions.expression_error import ExpressionError
from hai_flow.definition.expressions.expressions import compile_expression
from hai_flow.definition.names.durations import milliseconds, spell
from tests.support.runs import HEAD, plan_of

from .support import names, value_of


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("now + duration('2 days')", "write 2d"),
        ("now + duration('x')", "such as 90s, 1h30m or 2d"),
        ("timestamp('2026-03-29')", "write 2026-03-29T00:00:00Z"),
        ("timestamp('2026-03-29 08:00:00Z')", "write 2026-03-29T08:00:00Z"),
        ("timestamp('2026-03-29T08:00:00')", "write 2026-03-29T08:00:00Z"),
        ("timestamp('2026-02-30T00:00:00Z')", "expects an instant"),
        ("input.tags[0].matches('(')", "missing )"),
        ("matches(input.tags[0], '(?=b)')", "perl operator"),
        ("now.getHours('Europe/Berln')", "a time zone"),
        ("now.getHours('GMT+2')", "`Etc/GMT-2`, whose sign is turned around"),
        ("int('x') + 1", "a whole number"),
        ("[1].map(x, timestamp('today'))", "expects an instant"),
    ],
)
def test_a_literal_that_a_function_never_takes_is_a_finding(source: str, remedy: str) -> None:
    (doubt,) = [each for each in compile_expression(source, names()).doubts if each.code == "expression.literal"]
    assert remedy in doubt.message
    assert source[doubt.offset] in "'"
    with pytest.raises(ExpressionError):
        value_of(source)


@pytest.mark.parametrize(
    "source", ["now + duration('2d')", "timestamp('2026-03-29t08:00:00z')", "'a'.matches('[a-z]')"]
)
def test_a_literal_that_a_function_takes_is_none(source: str) -> None:
    assert not compile_expression(source, names()).doubts
    value_of(source)


@given(st.integers(1_000, 3_650 * 86_400_000))
def test_what_is_a_duration_elsewhere_is_one_in_expressions(ms: int) -> None:
    text = spell(ms)
    assert milliseconds(text) == ms
    assert value_of(f"duration('{text}') == duration('{ms}ms')")


def test_a_duration_that_is_computed_may_have_days_too() -> None:
    assert value_of("duration(input.tags[0] == '' ? '1d' : string(2) + 'd') == duration('48h')")
    assert value_of("duration('P1DT2H') == duration('26h')")
    assert value_of("duration('-1w') == duration('-168h')")


def http(auth: str) -> str:
    hole = json.dumps(f"${{{{ {auth} }}}}")
    steps = f"steps: [{{id: a, http: {{get: 'https://x.example.com/', auth: {hole}}}}}]"
    return f"input: {{type: object, required: [t], properties: {{t: {{type: string}}}}}}\n{steps}"


def findings(auth: str, *, stored: bool = False) -> list[Any]:
    return [each for each in check_workflow((HEAD + http(auth)).encode()) if each.code == "expression.secret"]


@pytest.mark.parametrize(
    "auth", ["secrets['HK']", 'secrets["HK"]', "secrets . HK", "input.t == '' ? secrets.HK : secrets['HK']"]
)
def test_a_secret_may_be_named_by_a_literal_in_brackets(auth: str) -> None:
    assert not findings(auth)
    verb: Any = plan_of(http(auth)).steps["a"].verb
    assert verb.arguments.render({"input": {"t": "x"}})["auth"] == "${{ secrets.HK }}"


@pytest.mark.parametrize(
    ("auth", "remedy"),
    [
        ("secrets[input.t]", "a `switch`"),
        ("secrets['H' + 'K']", "a `switch`"),
        ("secrets", "a `switch`"),
        ("secrets.?HK.orValue('')", "write `secrets.HK`"),
        ("secrets[?'HK'].orValue('')", "a `switch`"),
        ("secrets.?HK", "write `secrets.HK`"),
        ("'Bearer ' + secrets.?HK", "none is sent in its place"),
        ("string(secrets[?'HK'])", "none is sent in its place"),
        ("has(secrets.HK) ? secrets.HK : ''", "write `secrets.HK`"),
        ("secrets['H-K']", "letters, digits"),
        ("secrets.HK.token", "write `secrets.HK`"),
    ],
)
def test_a_computed_or_guarded_secret_is_a_finding_without_empty_advice(auth: str, remedy: str) -> None:
    found = findings(auth)
    assert found
    assert remedy in found[0].message
    assert "orValue" not in found[0].message
    assert found[0].severity == "error"
    if not auth.endswith(("secrets.?HK", "secrets[?'HK'])")):  # which never compiled
        compile_workflow((HEAD + http(auth)).encode(), stored=True)  # what was published before is read


def test_a_text_that_looks_like_a_secret_names_none() -> None:
    verb: Any = plan_of(http("'see secrets.FOO'")).steps["a"].verb
    assert verb.arguments.render({"input": {"t": "x"}})["auth"] == "see secrets.FOO"


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("{'a': 1}.b", "{"),
        ("{}.b", "{"),
        ("{'a': 1}['b']", "{"),
        ("{'a': input.count}.b", "{"),
        ("input.count > 3 ? {'a': 1}.b : 0", "{"),
        ("1 + {'a': 2}[string(input.count > 3 ? 'a'.charAt(5) : '')]", "'a'.c"),
        ("'abc'.charAt(5) + 'x'", "'abc'"),
        ("{'a': 1, 'a': 2}", "{"),
        ("'%d'.format(['x'])", "'%d'"),
        ("9223372036854775807 + 1", "9"),
        ("{'b': input.count}.b", None),
        ("has({'a': 1}.b) ? {'a': 1}.b : 0", None),
        ("has({'a': 1}.b) ? {'a': 1}.b : input.count", None),
        ("{'a': 1}.?b.orValue(2)", None),
        ("-1 + int('2') in [1u, 2] ? 'x' : 'é\\n'.upperAscii()", None),
        ("[1, 2].map(x, x / 1.5)[1]", None),
    ],
)
def test_a_part_that_reads_nothing_and_fails_is_a_finding(source: str, part: str | None) -> None:
    doubts = [each for each in compile_expression(source, names()).doubts if each.code == "expression.literal"]
    assert [source[each.offset :].startswith(part or "?") for each in doubts] == [True] * (part is not None), doubts
