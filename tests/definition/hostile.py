"""Expressions made to break the evaluator. As a program: all of them, under a memory limit of argument 1 bytes."""

from __future__ import annotations

import resource
import sys
from typing import Any, Final

from hai_flow.definition.expressions.cel_values import RESULT_MAX
from hai_flow.definition.expressions.expression_error import ExpressionError, Faults
from hai_flow.definition.expressions.expressions import compile_expression

from .support import SCOPE, names

BIG: Final[dict[str, Any]] = {
    **SCOPE,
    "input": {
        **SCOPE["input"],
        "tags": ["x" * 50] * 900,
        "note": "a" * 100_000,
        "rows": [{"q": "y" * 200}] * 500,
        "extra": {f"k{n}": "v" * 50 for n in range(2000)},
    },
}

NESTING: Final = [
    "!" * 4000 + "true",
    "-" * 4000 + "1",
    "(" * 2000 + "1" + ")" * 2000,
    "[" * 2000 + "]" * 2000,
    "{'a':" * 600 + "1" + "}" * 600,
    "f(" * 1000 + ")" * 1000,
    "size(" * 40 + "'x'" + ")" * 40,
    "true ? " * 300 + "1" + " : 1" * 300,
    "1" + " ? 1 : 1" * 400,
    "'x'" + ".trim()" * 500,
    "input.extra" + ".a" * 1900,
    "input.extra" + ".?a" * 1000,
    "input.rows" + "[0]" * 1300,
    "dyn(" * 31 + "1" + ")" * 31,
]
CHAINS: Final = [
    "+".join(["1"] * 2000),
    "+".join(["input.note"] * 300),
    "&&".join(["true"] * 600),
    "||".join(["input.count == 1"] * 200),
    " == ".join(["1"] * 500),
    "+".join(f"input.extra.k{n}" for n in range(250)),
    "'" + "a" * 5000 + "'",
    "'" + "é" * 2040 + "'",
    "[" + ",".join(["1"] * 2000) + "]",
    "{" + ",".join(f"'{n}': 1" for n in range(400)) + "}",
    "'a' + " * 600 + "'a'",
]
GROWTH: Final = [
    "input.tags.map(a, a + a + a + a).map(a, a + a + a + a).map(a, a + a + a + a)",
    "input.tags.map(a, input.tags.map(b, input.tags.map(c, a + b + c)))",
    "input.tags.all(a, input.tags.all(b, input.tags.all(c, true)))",
    "input.extra.all(a, input.extra.all(b, input.extra.all(c, a != b)))",
    "input.extra.map(k, input.extra.map(l, k + l))",
    "input.rows.map(r, {'a': r, 'b': r, 'c': r}).map(r, {'a': r, 'b': r, 'c': r}).map(r, {'a': r, 'b': r})",
    "input.tags.map(a, input.tags).map(a, [a, a]).map(a, [a, a, a])",
    "[1,2].map(a, [1,2].map(b, [1,2].map(c, [1,2].map(d, 1))))",
    "input.tags.join('x').replace('', input.tags.join('y')).replace('', input.tags.join('y'))",
    "input.tags.join(input.note)",
    "input.note.replace('a', input.note)",
    "input.note.replace('', input.note).replace('', input.note)",
    "input.note.split('').map(a, input.note.split(''))",
    "input.note.split('').join(input.note)",
    "'%s%s'.format([input.note, input.note]).split('')",
    "'%.1000f'.format([1.0])" + " + '%.1000f'.format([1.0])" * 20,
    "'%.999999999f'.format([1.0])",
    "'%s'.format([input.tags.map(t, input.tags)])",
    "input.note + input.note + input.note",
    "input.note",
    "input.note.reverse().upperAscii()",
    "input.tags + input.tags + input.tags",
    "[input.rows, input.rows, input.rows]",
    "input.tags.filter(a, input.tags.exists_one(b, input.tags.exists_one(c, a == c)))",
    "input.note.split('').map(c, {c: c})",
]
REGEXES: Final = [
    "input.note.matches('^(a+)+$')",
    "input.note.matches('(a*)*b')",
    "input.note.matches('a{1000}{1000}')",
    "input.note.matches('((((a{100}){100}){100}){100})')",
    "input.note.matches('(?=a)')",
    "input.note.matches('" + "(" * 1500 + "')",
    "input.note.matches('[')",
    "input.note.matches(input.note)",
    "'a'.matches('\\\\1')",
]
NUMBERS: Final = [
    "9223372036854775807 + 1",
    "-9223372036854775808 - 1",
    "-(-9223372036854775808)",
    "9223372036854775808",
    "99999999999999999999999999999",
    "9223372036854775807 * 2",
    "-9223372036854775808 / -1",
    "-9223372036854775808 % -1",
    "1 / 0",
    "1 % 0",
    "1.0 / 0.0",
    "0.0 / 0.0",
    "-1.0 / 0.0",
    "1e999",
    "double('NaN')",
    "double('Infinity')",
    "[double('NaN')]",
    "int(double('NaN'))",
    "int(1e19)",
    "int('x')",
    "uint(-1)",
    "18446744073709551615u + 1u",
    "math.abs(-9223372036854775808)",
    "math.bitShiftLeft(1, 4000)",
    "math.bitShiftLeft(1, -1)",
    "math.round(1.0 / 0.0)",
    "0x" + "f" * 100,
    "1" * 4000,
    "0." + "1" * 4000,
]
TIMES: Final = [
    "timestamp('9999-12-31T23:59:59Z') + duration('1s')",
    "timestamp('0001-01-01T00:00:00Z') - duration('1s')",
    "timestamp('10000-01-01T00:00:00Z')",
    "timestamp(9223372036854775807)",
    "timestamp(-9223372036854775808)",
    "timestamp('2020-13-45T00:00:00Z')",
    "duration('9223372036854775807s')",
    "duration('-9223372036854775808s')",
    "duration('1e10h')",
    "duration('')",
    "duration('320000000000s') + duration('320000000000s')",
    "now.getHours('Nowhere/Land')",
    "now.getHours('../../etc/passwd')",
    "now.getHours('" + "x" * 3000 + "')",
    "now - timestamp('0001-01-01T00:00:00Z')",
    "timestamp('0001-01-01T00:00:00Z')",
    "timestamp('9999-12-31T23:59:59.999999999Z')",
]
ABSENCE: Final = [
    "null.?x",
    "null.x",
    "null.?x.orValue(1)",
    "optional.none()",
    "optional.of(optional.of(1))",
    "[optional.of(1)]",
    "[optional.none()]",
    "{'a': optional.none()}",
    "[[optional.of([optional.of(1)])]]",
    "{?'a': optional.none()}",
    "[?optional.none()]",
    "optional.none().value()",
    "input.?extra",
    "input.?extra.?k1.hasValue() ? input.?extra : input.?extra",
    "optional.of(1).optMap(v, v).optMap(v, v).optMap(v, v)",
    "[1].map(x, optional.of(x))",
    "optional.none().all(x, true)",
    "optional.of([1]).map(x, x)",
    "dyn(optional.none()).exists(x, true)",
    "input.?extra.filter(x, true)",
    "steps.b.?output.exists_one(x, true)",
    "{'a': optional.none()}.all(k, true)",
    "(true ? optional.none() : optional.of([1])).map(x, x)",
    "[1].map(x, optional.none()).map(y, y.all(z, true))",
    "optional.of(1).optMap(v, optional.none()).orValue([1]).map(x, x)",
    "optional.of(1).optFlatMap(v, optional.of(optional.none())).orValue([1]).map(x, x)",
    "[optional.none()].sum()",
    "sum([input.?count])",
    "[1].sort_by(x, optional.none())",
    "[input.?count].group_by(x, 'a')",
    "[[1], [2]].first().map(x, x)",
    "optional.unwrap([optional.of(1)]).map(x, x)",
    "steps.b.output.x",
    "steps.b.error.message",
    "input.tags[99999999999999999999]",
    "input.tags[-1]",
    "input.tags[9223372036854775807]",
    "input.extra['']",
]
CONFUSION: Final = [
    "input.tags + 1",
    "input.extra < input.extra",
    "input.extra.k1 * 2",
    "steps.a.output.text - 1",
    "steps.a.output + steps.a.output",
    "-steps.a.output.text",
    "!steps.a.output.n",
    "steps.a.output.n ? 1 : 2",
    "size(5)",
    "type(type(1))",
    "type",
    "int",
    "string([1])",
    "bytes('x') + 'x'",
    "b'\\xff\\xfe'",
    "string(b'\\xff')",
    "{1: 2}",
    "{true: 1}",
    "{null: 1}",
    "{'a': 1, 'a': 2}",
    "{dyn('a'): 1, dyn('a'): 2}",
    "[1, 'a', null, {}]",
    "'abc'.charAt(99)",
    "'abc'.charAt(-1)",
    "'abc'.substring(2, 1)",
    "'abc'.substring(-5)",
    "'abc'.lastIndexOf('a', 99)",
    "'%d'.format(['x'])",
    "'%s %s'.format(['x'])",
    "'%'.format([])",
    "'%q'.format([1])",
    "'%s'.format([[[[[[1]]]]]])",
    "'abc'.replace('a', 'b', -1)",
    "'abc'.split('', 999999999999)",
    "'abc'.split('', -9)",
    "[1, 2].join()",
    "[1, dyn('x')].join(',')",
]
MACROS: Final = [
    "has(1)",
    "has(input)",
    "has(has(input.note))",
    "has(input.tags[0])",
    "[1].map(1, 2)",
    "[1].map(x.y, 2)",
    "[1].map(x)",
    "[1].map(x, y)",
    "[1].all(x)",
    "[1].filter(@result, true)",
    "[1].map(__result__, __result__)",
    "[1].map(@it, 1)",
    "[1].map(x, [1].map(x, x))",
    "[1].map(input, 1)",
    "5.map(x, x)",
    "'abc'.map(x, x)",
    "null.map(x, x)",
    "dyn(5).map(x, x)",
    "dyn('abc').all(x, true)",
    "[1].exists_one(x, x)",
    "cel.bind(x, 1, x)",
    "cel.block([1], 1)",
    "[1].transformList(i, v, v)",
    "[1, 2].all(i, v, true)",
]
REACHING: Final = [
    "__class__",
    "input.__class__",
    "input.__class__.__mro__",
    "''.__class__.__mro__[1].__subclasses__()",
    "input.extra.__getitem__('k1')",
    "input.tags.append('x')",
    "getattr(input, 'x')",
    "__import__('os').system('id')",
    "open('/etc/passwd')",
    "eval('1')",
    "secrets.TOKEN",
    "steps",
    "steps.a",
    "steps['a']['out' + 'put']",
    "google.protobuf.Struct{}",
    "google.protobuf.Any{type_url: 'x'}",
    "cel.expr.ParsedExpr{}",
    ".input.count",
    "net.parse('x')",
    "env.PATH",
]
WRITING: Final = [
    "", "   ", "\n", "\x00", "\x00 + 1", "'\x00'", "'\\u0000'", "'\\ud800'", "'\ud800'", "'\\U00110000'", "'\\x'",
    "'\\q'",
    "'", "\"", "'''", "r'\\'", "b'", "'a\nb'", "'é' + 'ü' + '🦀'", "'🦀'.size() + '🦀' . charAt(0).size()", "ínput.x",
    "input．count", "input.count\u2028+ 1", "\ufeffinput.count", "input.count // comment", "// only a comment",
    "/* x */ 1",
    "in", "as", "let", "var x = 1", "package", "import", "loop", "void", "while", "function", "return 1", "true.false",
    "input.in", "input.`in`", "input.`", "a b", "1 2", "x = 1", "x => 1", "1 ?? 2", "a and b", "not a", "`", "@",
    "#", "$",
    "${{ 1 }}", "${{ ${{ 1 }} }}", "}}", "{{", "${{", "1;2", "1,2", ",", ".", "..", "?:", "[", "]", "{", "}", "(", ")",
    "\\", "\t1", "1\r\n+\r\nfoo",
]  # fmt: skip
CORPUS: Final = [
    *NESTING, *CHAINS, *GROWTH, *REGEXES, *NUMBERS, *TIMES, *ABSENCE, *CONFUSION, *MACROS, *REACHING, *WRITING,
]  # fmt: skip


def outcome(source: str) -> str:
    """The code of the finding or of the error, or "value" for a result within its bound."""
    try:
        value = compile_expression(source, names()).evaluate(BIG)
    except Faults as faults:
        _check_places(faults, source)
        return faults.faults[0].code
    except ExpressionError as error:
        return error.code
    assert len(repr(value)) <= 2 * RESULT_MAX
    return "value"


def _check_places(faults: Faults, source: str) -> None:
    assert all(0 <= fault.offset <= len(source) and fault.message for fault in faults.faults), faults.faults


if __name__ == "__main__":
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for hostile in CORPUS:
        outcome(hostile)
    sys.stdout.write(f"survived {len(CORPUS)}\n")
