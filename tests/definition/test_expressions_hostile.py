"""Expressions and templates made to break the evaluator: findings, errors with a code, or small values."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hai_flow.definition.expressions.expression_error import ExpressionError, ExpressionFault, Faults
from hai_flow.definition.expressions.expressions import compile_expression, compile_template
from hai_flow.primitives import beside_loop
from hai_flow.primitives.beside_loop import TooLongForLoop, run_with_allowance
from tests.support.examples import examples

from . import hostile
from .support import SCOPE, names

RUN_TIME: Final = frozenset(f"expression.{kind}" for kind in ("error", "absent", "budget", "too_large"))
FINDINGS: Final = frozenset(
    f"expression.{kind}"
    for kind in (
        "comprehensions", "holes", "hyphen", "no_object",
        "invalid", "optional", "shadow", "step", "syntax", "too_deep", "too_long", "type",
        "unknown_function", "unknown_name", "unknown_property", "unknown_step",
    )
)  # fmt: skip


@pytest.mark.parametrize("source", hostile.CORPUS, ids=range(len(hostile.CORPUS)))
def test_a_hostile_expression_is_a_finding_an_error_or_a_small_value(source: str) -> None:
    assert hostile.outcome(source) in RUN_TIME | FINDINGS | {"value"}


@pytest.mark.parametrize("source", [*hostile.REACHING, *hostile.MACROS[:12]])
def test_nothing_behind_the_language_can_be_reached(source: str) -> None:
    assert hostile.outcome(source) != "value"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (hostile.NESTING[0].replace("!" * 4000, "!(" * 1000) + ")" * 1000, "expression.too_deep"),
        ("'" + "a" * 5000 + "'", "expression.too_long"),
        ("[1,2].map(a, [1,2].map(b, [1,2].map(c, [1,2].map(d, 1))))", "expression.comprehensions"),
        ("input.tags.all(a, input.tags.all(b, true))", "expression.budget"),
        ("input.extra.all(a, input.extra.all(b, true))", "expression.budget"),
        ("input.note.replace('a', input.note)", "expression.budget"),
        ("input.tags.join(input.note)", "expression.budget"),
        ("input.note.split('').join(input.note)", "expression.budget"),
        ("input.note.matches(input.note)", "expression.budget"),
        ("input.tags.map(a, a + a).map(a, input.tags).map(a, [a, a, a])", "expression.budget"),
        ("input.note + input.note", "expression.too_large"),
        ("input.rows + input.rows", "expression.too_large"),
        ("9223372036854775807 + 1 > 0", "expression.error"),
        ("1 / 0 == 1", "expression.error"),
        ("double('NaN')", "expression.error"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s') > now", "expression.error"),
        ("[1].map(x, optional.of(x))", "expression.optional"),
        ("null.?x.orValue(1)", "expression.invalid"),
        ("input.extra.missing", "expression.absent"),
    ],
)
def test_each_bound_has_its_code(source: str, code: str) -> None:
    assert hostile.outcome(source) == code


def test_the_whole_corpus_runs_in_half_a_gigabyte() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.definition.hostile", str(512 * 1024 * 1024)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, f"survived {len(hostile.CORPUS)}\n"), done.stderr


# -- fuzzing -------------------------------------------------------------------------------------------------------

_LEAVES: Final = st.sampled_from(
    [
        "input", "input.amount", "input.count", "input.currency", "input.note", "input.tags", "input.rows",
        "input.extra", "input.?extra", "state.log", "state.last", "steps.a.output", "steps.a.output.n",
        "steps.b.output", "steps.b.?output", "steps.a.status", "run.id", "thread.message", "now", "error",
        "item", "x", "y", "steps",
        "0", "1", "-1", "2.5", "9223372036854775807", "1u", "true", "null", "''", "'a'", "b'a'", "r'\\d'", "[]", "{}",
        "[1, 'a']", "{'a': 1}", "duration('1h')", "optional.none()", "type(1)", "double('NaN')",
    ]
)  # fmt: skip
_BINARY: Final = st.sampled_from(["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "in"])
_MACROS: Final = st.sampled_from(["map", "filter", "all", "exists", "exists_one"])
_METHODS: Final = st.sampled_from(
    [
        "size()", "trim()", "reverse()", "split('')", "join(',')", "format([1])", "contains('a')", "matches('a+')",
        "orValue(1)", "hasValue()", "getHours()", "a", "?a", "n", "charAt(0)", "replace('a', 'bb')", "nope()",
    ]
)  # fmt: skip


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, _BINARY, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("{}.{}".format, inner, _METHODS),
        st.builds("{}.{}(x, {})".format, inner, _MACROS, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("{}({})".format, st.sampled_from(["size", "string", "int", "double", "has", "dyn", "!", "-"]), inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{{}: {}}}".format, inner, inner),
    )


EXPRESSIONS: Final = st.recursive(_LEAVES, _grown, max_leaves=12)


@settings(max_examples=examples(400), deadline=None)
@given(EXPRESSIONS)
def test_a_grammatical_expression_compiles_or_has_faults_inside_its_source(source: str) -> None:
    found: tuple[ExpressionFault, ...] = ()
    try:
        found = compile_expression(source, names(b="the step has an `if`")).doubts
    except Faults as faults:
        found = faults.faults
    else:
        with contextlib.suppress(ExpressionError):
            compile_expression(source, names()).evaluate(SCOPE)
    assert all(0 <= fault.offset <= len(source) and fault.message for fault in found)


@settings(max_examples=examples(200), deadline=None)
@given(st.text(max_size=60))
def test_any_unicode_compiles_or_has_faults(source: str) -> None:
    with contextlib.suppress(Faults, ExpressionError):
        compile_expression(source, names()).evaluate(SCOPE)


_TEXTS: Final = st.lists(
    st.one_of(
        EXPRESSIONS.map("${{{{ {} }}}}".format), st.sampled_from(["${{", "}}", "$${{", "{{", "$", "'", " #", "é"])
    ),
    max_size=4,
).map("".join)
_VALUES: Final = st.recursive(
    _TEXTS | st.none() | st.integers(-5, 5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=examples(200), deadline=None)
@given(_VALUES)
@example("${{ (input == input) }}")
def test_any_template_is_filled_or_its_faults_have_places(value: Any) -> None:
    found: list[Any] = []
    template = compile_template(value, names(), lambda path, fault: found.append((path, fault)))
    for path, fault in found:
        place = value
        for part in path[:-1] if fault.code == "expression.hole_in_key" else path:
            place = place[part]
        assert fault.code.startswith("expression.") or fault.code == "condition.certain"
        assert fault.message
    with contextlib.suppress(ExpressionError):
        template.render(SCOPE)


_LISTS: Final = {
    "list": [{"a": n * 7919 % 1_000, "c": [n, n]} for n in range(300)],
    "n": [n * 7919 % 1_000 for n in range(2_000)],
    "text": [f"t{n}" for n in range(90)],
}


@pytest.mark.parametrize(
    "source",
    [
        "L.list.map(x, L.list)",
        "L.n.map(x, L.n)",
        "L.list.map(x, L.list).size()",
        "L.n.filter(x, [L.n, L.n].size() > 3)",
        "L.n.map(x, L.n.sum())",
        "L.n.filter(x, L.n.sum() > x)",
        "L.n.map(x, L.n.map(y, y).sum())",
        "L.list.map(x, L.n.group_by(y, y).size())",
        "L.text.map(x, L.text.filter(y, y.matches('(a|t)*[0-9]+' + x))).size()",
    ],
)
def test_a_list_that_is_gone_through_in_a_loop_takes_no_long_work(source: str) -> None:
    """Some of them took seconds, with 15 kB of data."""
    program = compile_expression(source.replace("L.", "steps.a.output."), names())
    scope = {**SCOPE, "steps": {"a": {"status": "finished", "output": _LISTS}}}
    begun = time.thread_time()
    with pytest.raises(ExpressionError) as caught:
        program.evaluate(scope)
    assert caught.value.code in ("expression.budget", "expression.too_large")
    assert time.thread_time() - begun < 0.2


def test_a_value_of_very_many_parts_is_not_handed_to_the_library() -> None:
    """It takes all of them over in one call: 50 ms for 300,000, with the interpreter's lock."""
    program = compile_expression("size(steps.a.output) > 0", names())
    for value, fits in (
        ([1] * 99_000, True),
        ([1] * 100_001, False),
        ([{"a": 1}] * 40_000, False),
        ({f"k{n}": 1 for n in range(50_001)}, False),
    ):
        scope = {**SCOPE, "steps": {"a": {"status": "finished", "output": value}}}
        if fits:
            assert program.evaluate(scope) is True
        else:
            with pytest.raises(ExpressionError, match="100,000 parts"):
                program.evaluate(scope)


@pytest.mark.slow
def test_a_result_of_64_kib_leaves_an_expression_and_a_larger_one_does_not() -> None:
    source = "steps.a.output.map(x, [x, x, x, x])"
    program = compile_expression(source, names())
    for rows, fits in ((6_500, True), (8_000, False)):
        scope = {**SCOPE, "steps": {"a": {"status": "finished", "output": [1] * rows}}}
        if fits:
            assert program.evaluate(scope) == [[1] * 4] * rows
        else:
            with pytest.raises(ExpressionError, match="larger than 64 KiB"):
                program.evaluate(scope)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (r"'a'.matches('\\pL{1,100}q')", "5,000 states"),
        (r"'a'.matches('(?i)[\\pL\\pN]{1,20}')", "5,000 states"),
        (r"L.text.exists(x, x.matches('\\pL{1,10}q'))", "250 ms"),
        (r"L.n.exists(x, string(x).matches('(a{1,30}){1,30}q'))", "250 ms"),
        ("'a'.matches(L.class)", "5,000 states"),
        ("matches('a', L.class)", "5,000 states"),
        ("L.list.exists(x, string(x.a).matches(L.repeats))", "125,000 states"),
        ("L.n.filter(x, L.n.exists(y, x == -y - 1.0)).size()", "10,000 iterations"),
    ],
)
def test_a_pattern_is_measured_before_each_compilation(source: str, said: str) -> None:
    """Two hundred repetitions of a class of Unicode took 280 ms, each time."""
    program = compile_expression(source.replace("L.", "steps.a.output."), names())
    data = {**_LISTS, "class": r"\pL{1,100}q", "repeats": "(a{1,30}){1,30}q"}
    begun = time.thread_time()
    with pytest.raises(ExpressionError, match=said) as caught:
        program.evaluate({**SCOPE, "steps": {"a": {"status": "finished", "output": data}}})
    assert caught.value.code in ("expression.budget", "expression.error")
    assert time.thread_time() - begun < 0.5


@pytest.mark.parametrize("hole", ["size(L.list)", "L.list", "L.list.map(x, x.a)[0]"])
@pytest.mark.parametrize("value", [lambda hole: " ".join([hole] * 2_000), lambda hole: [hole] * 2_000])
@pytest.mark.slow
def test_a_value_of_many_holes_is_refused_by_its_time_or_size(hole: str, value: Any) -> None:
    written = value("${{ " + hole.replace("L.", "steps.a.output.") + " }}")
    template = compile_template(written, names(), lambda path, fault: None)
    scope = {**SCOPE, "steps": {"a": {"status": "finished", "output": {**_LISTS, "list": _LISTS["list"] * 10}}}}
    begun = time.thread_time()
    with pytest.raises(ExpressionError, match=r"250 ms|4 MiB"):
        template.render(scope)
    assert time.thread_time() - begun < 2


@pytest.mark.parametrize(
    "source", ["size(L.n.sort_by(x, x))", "L.n", "size(L.n)", "L.n.exists(x, L.n.exists(y, y == -1.0))"]
)
def test_a_long_expression_says_so_before_its_loop_allowance_is_used_up(source: str) -> None:
    program = compile_expression(source.replace("L.", "steps.a.output."), names())
    for count, long in ((8_000, True), (10, False)):
        scope = {**SCOPE, "steps": {"a": {"status": "finished", "output": {"n": list(range(count))}}}}
        begun = time.thread_time()
        if long:
            with pytest.raises(TooLongForLoop):
                run_with_allowance(program.evaluate, scope)
        else:
            run_with_allowance(program.evaluate, scope)
        assert time.thread_time() - begun < 0.05


@pytest.mark.parametrize("source", [str(["a"] * 40), "L.n.map(x, x + 1)", "L.n.sort_by(x, x)", "L.n"])
def test_an_allowance_used_up_anywhere_is_no_error_of_the_expression(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compile_expression(source.replace("L.", "steps.a.output."), names())
    scope = {**SCOPE, "steps": {"a": {"status": "finished", "output": {"n": list(range(40))}}}}
    results, refusals = [], 0
    for units in range(0, 1_000, 4):
        monkeypatch.setattr(beside_loop, "ALLOWED_UNITS", units)
        try:
            results.append(run_with_allowance(program.evaluate, scope))
        except TooLongForLoop:
            refusals += 1
    assert refusals
    assert all(each == results[0] for each in results)
