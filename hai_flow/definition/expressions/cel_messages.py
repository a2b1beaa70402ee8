"""What is wrong with a source that CEL does not take, in our words: the library's messages, and the operators and names
of other languages, which it has no word for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final, TypeAlias

from hai_flow.definition.expressions.expression_error import ExpressionFault
from hai_flow.definition.names.wording import name_sign, shorten

# By operator of another language: the CEL for it, or a sentence.
_HABITS: Final = {
    "and": "&&", "or": "||", "not": "!", "===": "==", "!==": "!=", "?.": ".?", "<>": "!=",
    "if": "write a ? b : c",
    "not in": "write !(x in list)",
    "??": "a default is written a.?b.orValue(c)",
    "is": "== or !=",
    "=>": "write x.map(y, y.name), x.filter(y, y > 0)",
    'f"': 'texts are joined by +: "a " + input.b',
    "f'": 'texts are joined by +: "a " + input.b',
    "${{": "this is an expression already; drop the `${{ }}`",
    "|": "there are no filters; call a function, such as size(x), x.join(', ')",
}  # fmt: skip
_WRITTEN_SO: Final = ("and", "or", "not", "===", "!==", "?.", "<>")
TOKEN: Final = re.compile(
    r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|//[^\n]*|===|!==|<>|not\s+in\b|\?\?|\?\.|=>|\bf[\"']|\$\{\{|\|\||\||[A-Za-z_]\w*|."
)


def habits(source: str) -> list[ExpressionFault]:
    """The first habit of another language in a source that can't be read."""
    before = ""
    for token in TOKEN.finditer(source):
        word = " ".join(token.group().split()) or " "
        remedy = _HABITS.get(word) if before != "." else None
        if remedy is not None:
            quoted = f"`{remedy}`" if word in _WRITTEN_SO else remedy
            verb = "write " if " " not in remedy or word == "is" else ""
            return [ExpressionFault(token.start(), "expression.syntax", f"`{word}` is not CEL; {verb}{quoted}")]
        before = word if word.strip() else before
    return []


_MESSAGE = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_HINTS: Final = {
    "length": "use size(x)",
    "len": "use size(x)",
    "not": "write !(...)",
    "count": "use size(x)",
    "now": "`now` is a value: write now, without ()",
    **dict.fromkeys(
        ("today", "date", "current_date", "utcnow"), "`now` is the time; its day is now.format_time('%Y-%m-%d')"
    ),
    **dict.fromkeys(("slice", "substr", "left", "right"), "of text use x.substring(0, 3)"),
    **dict.fromkeys(("reduce", "fold"), "use x.sum(), or a state variable with `reduce`"),
    **dict.fromkeys(("min", "max"), "use math.least(...) and math.greatest(...)"),
    "round": "use math.round(x)",
    "abs": "use math.abs(x)",
    "ceil": "use math.ceil(x)",
    "floor": "use math.floor(x)",
    "first": "write x[0]",
    "last": "write x[size(x) - 1]",
    "keys": "x.map(k, k) is the list of the keys of a map",
    "if": "write condition ? one : other",
    "isNull": "write x == null",
    "toString": "use string(x)",
    "parseInt": "use int(x)",
    "range": "write the numbers, [0, 1, 2], or `repeat` with `max`, whose rounds have an `index`",
    "uuid": "`run.id` is the id of the run; make others in a tool",
    "env": "name what changes with the deployment in `input`; a secret is ${{ secrets.NAME }} where it is sent",
    **dict.fromkeys(("str", "String", "isoformat", "toISOString"), "use string(x)"),
    **dict.fromkeys(("float", "number", "Number", "parseFloat"), "use double(x)"),
    "getYear": "use getFullYear()",
    "getDay": "use getDayOfWeek(), or getDate() for the day of the month",
    "getDays": "a length of time has hours: x.getHours() / 24",
    "default": "write a.?b.orValue(c)",
    "coalesce": "write a.?b.orValue(c)",
    "format": 'write "%s".format([x])',
    "find": "write x.filter(y, ...)[?0].orValue(...)",
    **dict.fromkeys(("some", "any"), "write x.exists(y, ...)"),
    "every": "write x.all(y, ...)",
    **dict.fromkeys(("where", "select"), "write x.filter(y, ...), or x.map(y, ...)"),
    **dict.fromkeys(("forEach", "flatMap", "collect"), "write x.map(y, ...), or a `for_each` step"),
    **dict.fromkeys(("sort", "sorted", "sort_by", "sortBy", "orderBy"), "write rows.sort_by(r, r.name)"),
    **dict.fromkeys(("unique", "distinct"), "write x.group_by(y, y).map(g, g.key)"),
    **dict.fromkeys(("push", "append", "add", "concat"), "lists and texts are joined by +: x + [y]"),
    **dict.fromkeys(("avg", "mean", "average"), "write x.sum() / double(size(x))"),
    **dict.fromkeys(("containsKey", "has_key", "hasKey"), 'write "name" in x'),
    "values": "write x.map(k, x[k])",
    "group_by": "write rows.group_by(r, r.team)",
    "groupBy": "write rows.group_by(r, r.team)",
    "strftime": 'write format_time(t, "%Y-%m-%d", "Europe/Berlin")',
    "bind": "name the value in a `let` step",
    "lower": "use lowerAscii()",
    "upper": "use upperAscii()",
    "toLowerCase": "use lowerAscii()",
    "toUpperCase": "use upperAscii()",
    "includes": "use contains() for text, `x in list` for lists",
    "contains": 'write text.contains("x"), or x in list',
    "startswith": "use startsWith()",
    "endswith": "use endsWith()",
    "strip": "use trim()",
    **dict.fromkeys(("toJSON", "toJson", "to_json", "json"), "a list or a map in a text becomes JSON by itself"),
    "always": "what always runs stands under `finally`",
    "failure": "what runs after a failure stands under `catch`",
    "success": "a step runs only if those before it have succeeded; leave it out",
    "sum": "write x.sum()",
    "empty": "write size(x) == 0",
    "isEmpty": "write size(x) == 0",
}
_USAGES: Final = {
    "split": 'x.split(",")', "replace": 'x.replace("a", "b")', "substring": "x.substring(0, 3)", "size": "size(x)",
    "orValue": 'x.?y.orValue("")', "join": 'x.join(", ")', "startsWith": 'x.startsWith("a")',
    "endsWith": 'x.endsWith("a")', "matches": 'x.matches("^a")', "trim": "x.trim()", "lowerAscii": "x.lowerAscii()",
    "upperAscii": "x.upperAscii()", "charAt": "x.charAt(0)", "indexOf": 'x.indexOf("a")', "int": "int(x)",
    "double": "double(x)", "string": "string(x)", "timestamp": "timestamp(x)", "duration": 'duration("60s")',
    "format_time": 'x.format_time("%Y-%m-%d", "Europe/Berlin")',
}  # fmt: skip

_LOOP_HINTS: Final = {
    "count": "write x.filter(y, y > 0).size()", "sum": "write x.map(y, y.amount).sum()",
    **dict.fromkeys(("min", "max"), "write math.greatest(x.map(y, y.amount)), or math.least(...)"),
}  # fmt: skip

Insertions: TypeAlias = Sequence[tuple[int, str]]  # texts inserted into a source, each with its offset there


def faults_of(text: str, source: str, inserted: Insertions) -> list[ExpressionFault]:
    """The library's messages about `source`, into which `inserted` came, as faults of the source as it was written."""
    by_offset: dict[int, ExpressionFault] = {}
    for match in _MESSAGE.finditer(text):
        line, column, message = int(match[1]), int(match[2]), match[3]
        if line < 1 or "parsetree" in message or "*error*" in message:
            continue
        offset = _compute_source_offset(_offset(source, line, column), inserted)
        code, explanation = _convert_message(message.removesuffix(" [INVALID_ARGUMENT]"))
        hint = _suggest_brackets(source, offset) if code == "expression.syntax" else ""
        by_offset.setdefault(offset, ExpressionFault(offset, code, explanation + hint))
    if "recursion" in text:
        message = "the expression is nested too deeply (at most 32 levels, or operators in a row); use a tool"
        return [ExpressionFault(0, "expression.too_deep", message)]
    if not by_offset:
        return [
            ExpressionFault(
                0, "expression.syntax", f"expected an expression: {text.splitlines()[0] if text else 'not CEL'}"
            )
        ]
    faults = sorted(by_offset.values(), key=lambda fault: fault.offset)
    if len(faults) > 1 and source.startswith("math.", faults[0].offset):
        del faults[0]  # the function behind it is told
    # Behind the first place that can't be read, the parser guesses.
    return faults[:1] if faults[0].code == "expression.syntax" else faults


def find_foreign_loop(source: str, offset: int) -> ExpressionFault | None:
    """The call of which a name at `offset` is the first of several arguments, where other languages loop by it:
    `rows.any(x, x > 1)`. The name is none, because there is no such function."""
    call = re.search(r"\.(\w+)\(\s*$", source[:offset])
    if call is None or call[1] == "bind" or re.match(r"\w+\s*,", source[offset:]) is None:
        return None
    own, hint = _LOOP_HINTS.get(call[1]), _HINTS.get(call[1])
    message = f"`{call[1]}` names no item; {own}" if own else f"there is no function `{call[1]}`; {hint}"
    return ExpressionFault(call.start(1), "expression.unknown_function", message) if own or hint else None


_PATH_BEFORE: Final = re.compile(r"(?<![\w.])((?:input|state|steps|item|event)(?:\.\w+)*?)(?:\.(\w+)[ ]+)?\Z")
_PROPERTY_AFTER: Final = re.compile(r"\.?(\w+(?: +\w+)*) *(?=$|[])},?:=!<>&|+*/%-])")
_WORDS_BETWEEN: Final = re.compile(
    r"\b(?:and|or|not|is|in|eq|ne|lt|gt|le|ge|if|else|then|like|between|mod|true|false|null|equals?|contains|matches|than|starts|ends)\b",
    re.I,
)


def _suggest_brackets(source: str, offset: int) -> str:
    """The remedy where a property that is no name stopped the parser: `input.user name`, `input.2fa`."""
    after = _PROPERTY_AFTER.match(source, offset)
    before = _PATH_BEFORE.search(source[:offset])
    if before is None or after is None or _WORDS_BETWEEN.search(after[1]):
        return ""
    if before[2] is None and not after[0].startswith("."):
        return ""
    name = after[1] if before[2] is None else f"{before[2]} {after[1]}"
    return f'; a property with such a name is written {before[1]}["{name}"]'


def _offset(source: str, line: int, column: int) -> int:
    return sum(len(text) + 1 for text in source.split("\n")[: line - 1]) + column - 1


def _compute_source_offset(offset: int, inserted: Insertions) -> int:
    before = 0
    for place, text in inserted:
        if offset <= place + before:
            break
        before += len(text)
    return max(0, offset - before)


def _convert_message(message: str) -> tuple[str, str]:
    overload = re.match(r"found no matching overload for '(.+?)' applied to '(.*)'", message)
    if overload:
        return "expression.type", describe_overload(overload[1], overload[2])
    undeclared = re.match(r"undeclared reference to '(.+?)'", message)
    if undeclared and undeclared[1] in _USAGES:
        return "expression.unknown_function", f"`{undeclared[1]}` is written {_USAGES[undeclared[1]]}"
    if undeclared:
        hint = _HINTS.get(undeclared[1], "`hai-flow grammar` lists the functions")
        return "expression.unknown_function", f"there is no function `{undeclared[1]}`; {hint}"
    if message.startswith("Syntax error"):
        return "expression.syntax", f"can't read this expression: {_format_syntax(message)}"
    for pattern, sentence in _OTHER_MESSAGES:
        if (match := re.search(pattern, message)) is not None:
            return "expression.invalid", sentence.format(*(_TYPE_WORDS.get(each, each) for each in match.groups()))
    return "expression.invalid", message


_OTHER_MESSAGES: Final = (
    (
        r"type '(.+)' cannot be the range of a comprehension",
        "`filter`, `map` and their like go through a list or a map, found {0}",
    ),
    (r"type '(.+)' cannot be the operand of a select operation", "found {0}, which has no properties"),
    (r"^(\w+)\(\) variable name must be a simple identifier", "`{0}` names the item first: x.{0}(y, y > 0)"),
    (
        r"^has\(\) argument must be a field selection",
        'has() asks for a property: has(x.name); write size(x) > 0 for an item, "name" in x for another name',
    ),
    (r"^invalid int literal", "a whole number has at most 18 digits here; write it as text"),
)


_STRANGERS: Final = {
    "#": "a comment begins with `//`, text stands in quotes",
    "=": "comparison is ==",
    "&": "write && for and",
    "|": "write || for or; there are no filters, call a function: size(x)",
    '"': "close the quotes",
    "'": "close the quotes",
    "`": "text stands in quotes, and is joined by +",
}


_ALIKE: Final = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"), **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb", '"'), "\u2264": "<=", "\u2265": ">=", "\u2260": "!=",
    "\u00d7": "*", "\u00f7": "/", "\u2227": "&&", "\u2228": "||", "\u00ac": "!",
}  # fmt: skip


def _suggest_sign(sign: str) -> str:
    """The remedy for a sign that CEL does not know: for one that looks like a sign of ASCII that one."""
    meant = _ALIKE.get(sign) or unicodedata.normalize("NFKC", sign)
    if meant == " " or unicodedata.category(sign) == "Cf":
        return "write a space" if meant == " " else "remove it"
    if not sign.isascii() and meant.isascii():
        return f"write `{meant}`"
    if sign.isalpha():
        return 'names have letters from a to z; another property is written input["..."], and text stands in quotes'
    return _STRANGERS.get(sign, "text stands in quotes")


def _format_syntax(message: str) -> str:
    strange = re.match(r"Syntax error: token recognition error at: '(.)", message)
    if strange:
        return f"{name_sign(strange[1])} means nothing here; {_suggest_sign(strange[1])}"
    text = message.removeprefix("Syntax error: ").replace("'<EOF>'", "the end")
    text = re.sub(r" expecting (?:\{.*\}|<EOF>)", "", text)
    text = text.replace("mismatched input", "did not expect").replace("extraneous input", "did not expect")
    if "'='" in text or "'=" in text:
        text += "; comparison is =="
    if text.startswith("did not expect '`"):
        text += "; text stands in quotes, and is joined by +"
    if re.match(r"did not expect ':' expecting '\]'", text):
        text += "; there are no slices: of text use x.substring(0, 3)"
    return text


_TYPE_WORDS: Final = {
    "google.protobuf.Timestamp": "timestamp", "google.protobuf.Duration": "duration", "null_type": "null",
}  # fmt: skip


def _suggest_other_side(types: Sequence[str]) -> str:
    """The remedy where two sides of an operator have these types."""
    if "null" in types:
        return "; by its type it never is null: leave the comparison out, or let its type have null, too"
    if any(each.startswith("type(") for each in types):
        return "; a type has no quotes: type(x) == string"
    if "timestamp" in types:
        return (
            "; write timestamp(x) around the text" if "string" in types else "; write timestamp(...) or duration(...)"
        )
    if "duration" in types:
        return "; write duration(x) around the text" if "string" in types else '; a length is written duration("60s")'
    if "bool" in types and "string" in types:
        return "; write true or false, without quotes"
    if "string" in types and not {"int", "double"}.isdisjoint(types):
        number = "double" if "double" in types else "int"
        return f"; write the number without quotes, or {number}(x) around the text"
    return ""


OPERATORS: Final = frozenset(
    ("_+_", "_-_", "_*_", "_/_", "_%_", "_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_")
)  # between two values, as CEL names their functions


def describe_overload(function: str, types: str) -> str:
    """Why an operator or a function takes no operands of `types`, for example `(string, int)`, and the remedy."""
    method = re.fullmatch(r"\((.+?)\)\.(\w+)\((.*)\)", types) if not function else None  # as it is told at run time
    if method is not None:
        function, types = method[2], ", ".join(filter(None, (method[1], method[3])))
    operator = _INNER_NAMES.get(function) or re.sub(r"^_(.+)_$", r"\1", function)
    operands = types.removeprefix("(").removesuffix(")")
    for name, word in _TYPE_WORDS.items():
        operands = operands.replace(name, word)
    operator = operator.removeprefix("@")
    if operator in ("&&", "||", "!", "?:") and (refused := _find_no_truth(operator, operands)):
        hint = _COMPARISONS.get(refused, "")
        if (operator, operands) == ("||", "string, string"):
            hint = "; a default is written x.?y.orValue(z)"
        return f"a condition must be true or false, found {refused}{hint}"
    if operator == "==" or operator == "!=":
        hint = _suggest_other_side(operands.split(", "))
        return f"`{operator}` compares {operands.replace(', ', ' with ')}, which can never be equal{hint}"
    if operator == "+" and "timestamp" in operands and not operands.startswith("string"):
        hint = _suggest_other_side(operands.replace("timestamp", "duration").split(", "))
        return f"`+` can't be applied to ({operands}){hint}"
    if operator == "+" and operands in ("string, duration", "duration, string"):
        return f"`+` can't be applied to ({operands}); write timestamp(x) or duration(x) around the text"
    if operator == "+" and "string" in operands:
        return f"`+` can't join ({operands}); write string(x) around what is no text, or use a text with holes"
    if "int" in operands and "double" in operands:
        return f"`{operator}` can't mix {operands.replace(', ', ' and ')}; write double(x) or int(x)"
    if operator == "?:":
        operands = operands.partition(", ")[2]
        return f"both sides of `? :` must have one type, found ({operands}); wrap one in dyn(...)"
    hint = ""
    if operator == "%" and operands.startswith("string"):
        hint = "; texts are joined by +, or write a text with holes"
    elif operator in ("<", "<=", ">", ">=", "-", "*", "/", "%"):
        other = next((each for each in operands.split(", ") if each in ("int", "double")), None)
        if "string" in operands.split(", ") and other is not None:
            hint = f"; write {other}(x) around the text"
        elif "duration" in operands or "timestamp" in operands:
            hint = _suggest_other_side(operands.split(", "))
    elif operator == "in" and operands == "string, string":
        hint = "; whether a text has another in it is text.contains(part)"
    elif operator == "in" and (listed := re.fullmatch(r"string, list\((int|double)\)", operands)):
        hint = f"; write {listed[1]}(x) around the text, or texts into the list"
    elif operands.startswith("map(") and operator[:1].isalpha() and operator != "string":
        hint = "; name a field of it: an item of a `for_each` is {key, status, output, error}, so write x.output"
    elif operator == "in" and (listed := re.fullmatch(r"(?:int|double), list\(string\)", operands)):
        hint = "; write string(x) around the number, or numbers into the list"
    elif (operator == "format_time" or operator.startswith("get")) and operands.startswith("string"):
        hint = "; write timestamp(x) around the text"
    elif operator in _ARGUMENT_HINTS:
        hint = next((hint for pattern, hint in _ARGUMENT_HINTS[operator] if re.match(pattern, operands)), "")
    elif operator == "sum":
        hint = "; it adds the numbers of a list: rows.map(r, r.amount).sum()"
    return f"`{operator}` can't be applied to ({operands}){hint}"


_INNER_NAMES: Final = {
    "math.@max": "math.greatest", "math.@min": "math.least", "_[_]": "[ ]", "!_": "!", "-_": "-", "_?_:_": "?:",
    "bounded__": "matches",
    "substring__": "substring",
}  # fmt: skip
_COMPARISONS: Final = {
    "string": '; compare it, as in x != ""', "int": "; compare it, as in x != 0", "double": "; compare it, as in x > 0",
    "null": "; compare it, as in x != null",
}  # fmt: skip
_ARGUMENT_HINTS: Final = {
    "[ ]": ((r"list\(.*\), (?:double|string|bool)$", "; an item is named by a whole number: x[0]"),),
    "string": ((r"list|map", "; in a text, `${{ x }}`, a list or a map becomes JSON"),),
    "int": ((r"bool$", "; write x ? 1 : 0"),),
    "format": ((r"string, (?!list)", '; the values stand in a list: "%s".format([x])'),),
    "contains": ((r"list", "; whether a list has an item is y in x"),),
    **dict.fromkeys(
        ("math.round", "math.floor", "math.ceil", "math.trunc"), ((r"int$", "; a whole number needs no rounding"),)
    ),
}  # fmt: skip


def _find_no_truth(operator: str, operands: str) -> str:
    """The first type among the operands of a condition that is no truth; "" where there is none."""
    types = re.findall(r"(?:[^,( ]|\([^)]*\))+", operands)[: 1 if operator == "?:" else None]
    return next((each for each in types if each not in ("bool", "dyn", "null_type")), "")


# -- names ---------------------------------------------------------------------------------------------------------

_OTHER_CONSTANTS: Final = {"True": "true", "False": "false", "None": "null", "nil": "null", "undefined": "null"}
OTHER_NAMES: Final = {
    "env": "; name a secret where it is used, as ${{ secrets.NAME }}; other values are `input`",
    "vars": "; values of a run are `input`, `state`, and what `let` names",
    "each": "; the item of a loop is `item`, or what `as` says",
    "it": "; the item of a loop is `item`, or what `as` says",
    **dict.fromkeys(
        ("needs", "jobs", "tasks", "nodes", "outputs", "xcom", "results"), "; what a step gives is `steps.ID.output`"
    ),
    **dict.fromkeys(("body", "payload", "request", "data"), "; what an event or a request brings is `event.data`"),
    **dict.fromkeys(
        ("today", "yesterday", "tomorrow", "timestamp_now"),
        "; the time is `now`, its day now.format_time('%Y-%m-%d'), others now + duration(\"24h\")",
    ),
    "headers": "; those of a webhook are `event.headers`, those of an answer `response.headers`",
    "Math": "; functions of numbers are `math.round`, `math.floor`, `math.ceil`, `math.abs`, `math.greatest`",
    **dict.fromkeys(("Date", "datetime", "moment", "time"), "; the time is `now`, one in a text `timestamp(x)`"),
    "JSON": "; values keep their types in holes, and become JSON in a text",
    **dict.fromkeys(
        ("args", "params", "parameters", "inputs", "variables"), "; values of a run are `input` and `state`"
    ),
    "github": "; what started a run is its `input`",
    "trigger": "; what started a run is its `input`",
}


def suggest_name(name: str, *, alone: bool) -> str:
    """A word on a name that is nearly none of ours; `alone`: nothing of it is asked for."""
    if name in _OTHER_CONSTANTS:
        return f"; did you mean `{_OTHER_CONSTANTS[name]}`?"
    return OTHER_NAMES.get(name) or (f'; text stands in quotes: "{shorten(name)}"' if alone else "")
