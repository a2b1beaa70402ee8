"""`sum`, `sort_by`, `group_by` and `format_time`: values, types, mistakes and bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.definition.compiler import check_workflow
from hai_flow.definition.expressions.expression_error import ExpressionError, Faults
from hai_flow.definition.expressions.expressions import compile_expression
from tests.support.examples import examples
from tests.support.runs import HEAD

from .support import names, value_of

ROWS: dict[str, Any] = {
    "type": "array",
    "items": {"type": "object", "properties": {"q": {"type": "integer"}}, "required": ["q"]},
}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("[1, 2, 3].sum()", 6),
        ("sum([1.5, 2.0])", 3.5),
        ("[0.1, 0.2, 0.3].sum() == 0.6", True),
        ("[].sum()", 0),
        ("[1, 2].sum() > 2", True),
        ("[1, 2].sum() / 2", 1.5),
        ("state.log.sum()", 3),
        ("input.rows.map(r, r.q).sum()", 2),
        ("[3, 1, 2].sort_by(n, n)", [1, 2, 3]),
        ("[3, 1, 2].sort_by(n, -n)", [3, 2, 1]),
        ("[3, 1, 2].sort_by(n, n)[1] - 1", 1),
        ("state.log.sort_by(n, n).map(n, n * 2)", [2, 4]),
        ("steps.a.output.n % 2 + 1", 2),
        ("state.log.filter(n, -n % 2 == -1).size() + size(state.log)", 3),
        ("input.rows.map(r, r.q * size(input.rows) - 1)", [1]),
        ("steps.a.output.n / size(state.log) - size(state.log)", -0.5),
        ("['b', 'a'].sort_by( n , n ).join(',')", "a,b"),
        ("[1, 2, 3].map(x, x * 2).join(', ')", "2, 4, 6"),
        ("[1.5, 2.0].join(' ') + [true, false].join()", "1.5 2truefalse"),
        ("[dyn(1), dyn('a'), dyn(true)] . join('-')", "1-a-true"),
        ("state.log.map(x, x).join('+')", "1+2"),
        ("'abc'.substring(0, 3)", "abc"),
        ("'ünï€'.substring(1, size('ünï€'))", "nï€"),
        ("'abc' . substring ( 3 , 3 ) + 'abc'.substring(1, 2)", "b"),
        ("['ab', 'cd'].map(x, x.substring(0, 2).substring(1, 2)).join(',')", "b,d"),
        ("state.log.join('+').split('+').join('-')", "1-2"),
        ("[3, 1].sort_by(n, n).join(',') == [1, 3].join(',')", True),
        ("['bb', 'a', 'cc'].sort_by(n, size(n))", ["a", "bb", "cc"]),
        ("['x'].sort_by(n, n == 'x')", ["x"]),
        ("[].sort_by(n, n)", []),
        ("[[2, 1], [0]].sort_by(l, l.sort_by(n, n)[0])", [[0], [2, 1]]),
        ("[2, 1].sort_by(n, n).map(n, n * 2)", [2, 4]),
        ("[3, 1, 2].filter(n, n > 1).sort_by(n, n)", [2, 3]),
        ("{'b': 1, 'a': 2}.sort_by(k, k)", ["a", "b"]),
        ("input.tags.sort_by(t, t).sort_by(t, -size(t)).size()", 2),
        ("input.rows.sort_by(r, -r.q)[0].q", 2),
        ("[1, 2, 3].group_by(n, n % 2)", [{"key": 1, "items": [1, 3]}, {"key": 0, "items": [2]}]),
        ("['a', 'b'].group_by(n, 'x').map(g, g.key + string(size(g.items)))", ["x2"]),
        ("[1, 2, 3].group_by(n, n > 1).map(g, g.items.sum())", [1, 5]),
        ("['.sort_by(x, y)'].sort_by(n, n)", [".sort_by(x, y)"]),
        ("now.format_time('%Y-%m-%dT%H:%M:%S%z')", "2020-09-13T12:26:40+0000"),
        ("format_time(now, '%d.%m.%Y %H:%M', 'Europe/Berlin')", "13.09.2020 14:26"),
        ("now.format_time('%A %a %B %b %j %G-W%V-%u %%', 'UTC')", "Sunday Sun September Sep 257 2020-W37-7 %"),
        ("timestamp('0007-01-02T03:04:05Z').format_time('%Y')", "0007"),
        ("timestamp('2026-03-29T01:30:00Z').format_time('%H:%M %z', 'Europe/Berlin')", "03:30 +0200"),
    ],
)
def test_an_expression_gives_json(source: str, expected: Any) -> None:
    assert value_of(source) == expected


@pytest.mark.parametrize(
    ("source", "code", "offset", "fragment"),
    [
        ("'abc'.sum()", "expression.type", None, "`sum` can't be applied"),
        ("[1].sort_by(n)", "expression.syntax", 4, "rows.sort_by(r, r.name)"),
        ("[1].sort()", "expression.unknown_function", None, "rows.sort_by(r, r.name)"),
        ("[1].sort_by(n, input.wrong)", "expression.unknown_property", 21, "wrong"),
        ("[1].sort_by(n, m)", "expression.unknown_name", 15, "m"),
        ("item.sort_by(r, r.nope)", "expression.unknown_property", 18, "nope"),
        ("item.sort_by(r, r.q).map(x, x.nope)", "expression.unknown_property", 30, "nope"),
        ("[1].sort_by(n, n).filter(x, x + true)", "expression.type", None, "can't"),
        ("[{'a': 1}].join(',')", "expression.type", None, "`join` can't be applied"),
        ("[[1]].join(',')", "expression.type", None, "`join` can't be applied"),
        ("now.format_time('%Q')", "expression.format_time", 16, "%Q"),
        ("now.format_time('%')", "expression.format_time", 16, "there are %Y"),
        ("now.format_time('%Y', 'Mars/Base')", "expression.format_time", 22, "Europe/Berlin"),
        ("now.format_time('%Y', 'localtime')", "expression.format_time", 22, "on every machine"),
        ("now.format_time('%Y', '../etc')", "expression.format_time", 22, "Europe/Berlin"),
        ("[1].sort_by(a,a).sort_by(b,b).group_by(c,c).map(d,d)", "expression.comprehensions", None, "at most 3"),
    ],
)
def test_a_mistake_is_told_at_its_place(source: str, code: str, offset: int | None, fragment: str) -> None:
    with pytest.raises(Faults) as faults:
        compile_expression(source, names().with_roots(schemas={"item": ROWS}))
    fault = faults.value.faults[0]
    assert (fault.code, fragment in fault.message) == (code, True), fault
    assert offset in (None, fault.offset)


@pytest.mark.parametrize(
    ("source", "fragment"),
    [
        ("input.tags.map(t, dyn(t)).sum()", "sum adds numbers, found text"),
        ("[dyn(1), dyn(true)].sum()", "found a boolean"),
        ("[dyn(1), dyn('a')].sort_by(x, x)", "a number and text"),
        ("[dyn([1]), dyn([2])].sort_by(x, x)", "found a list"),
        ("[null].sort_by(x, x)", "found null"),
        ("[1].group_by(x, [x])", "found a list"),
        ("now.format_time(string(1) + '%')", "there are %Y"),
        ("[dyn(1), null].join(',')", "found null"),
        ("[dyn([1])].join(',')", "found a list"),
        ("now.format_time('%Y', 'local' + 'time')", "on every machine"),
        ("now.format_time('%Y', input.tags[0])", "expected an IANA timezone"),
    ],
)
def test_a_wrong_value_is_an_error_that_says_what_was_found(source: str, fragment: str) -> None:
    with pytest.raises(ExpressionError) as error:
        value_of(source)
    assert error.value.code == "expression.error"
    assert fragment in error.value.message


@pytest.mark.parametrize("source", ["state.log.sort_by(x, x)", "state.log.group_by(x, x)"])
def test_both_are_bounded_as_loops_are(source: str) -> None:
    with pytest.raises(ExpressionError) as error:
        value_of(source, state={"log": list(range(20_000))})
    assert error.value.code == "expression.budget"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**53), 2**53)), max_size=30))
@settings(max_examples=examples(50))
def test_sort_by_is_stable_and_group_by_loses_nothing(rows: list[tuple[int, int]]) -> None:
    given = {"log": [list(row) for row in rows]}
    ordered = value_of("state.log.sort_by(r, r[0])", state=given)
    assert ordered == [list(row) for row in sorted(rows, key=lambda row: row[0])]
    groups = value_of("state.log.group_by(r, r[0])", state=given)
    assert [group["key"] for group in groups] == list(dict.fromkeys(row[0] for row in rows))
    assert [item for group in groups for item in group["items"]] == [
        list(row) for key in dict.fromkeys(row[0] for row in rows) for row in rows if row[0] == key
    ]


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("YYYY-MM-DD", "%Y-%m-%d"),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "%Y-%m-%dT%H:%M:%S%z"),
        ("YYYY-MM-DD[T]HH:mm:ssZ", "%Y-%m-%dT%H:%M:%S%z"),
        ("dd.MM.yyyy", "%d.%m.%Y"),
        ("d MMMM yyyy", "%d %B %Y"),
        ("dddd, D MMM YYYY", "%A, %d %b %Y"),
        ("EEE dd/MM/yy hh:mm a", "%a %d/%m/%Y %H:%M"),
        ("HH:mm:ss.SSS", "%H:%M:%S"),
        ("Y-m-d", "%Y-%m-%d"),
        ("d.m.Y H:i", "%d.%m.%Y %H:%M"),
        ("Mon, 02 Jan 2006 15:04:05", "%a, %d %b %Y %H:%M:%S"),
    ],
)
def test_another_languages_pattern_gets_the_directives_that_were_meant(pattern: str, meant: str) -> None:
    document = f"{HEAD}steps:\n  - say: ${{{{ now.format_time(\"{pattern}\", 'UTC') }}}}\n"
    (finding,) = check_workflow(document.encode())
    assert (finding.severity, finding.code) == ("error", "expression.literal")
    assert f"write `{meant}`" in finding.message


@pytest.mark.parametrize("pattern", ["%Y", "%d.MM", "today", "", "Week", "a", "-", "on time"])
def test_a_text_that_is_no_pattern_of_another_language_is_taken(pattern: str) -> None:
    document = f"{HEAD}steps:\n  - say: x${{{{ now.format_time(\"{pattern}\", 'UTC') }}}}\n"
    assert not check_workflow(document.encode())
