"""All attempts to make a process work for long on what is short: schemas, documents and expressions.

Each is of a kind and goes in at a place of a document, or is one. `docs/attacks_page.py` prints how many there are."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

HEAD: Final = "hai: flow/v1\nname: work\nversion: 1\n"


class Attempt(NamedTuple):
    """A document, and the codes of which one has to be among its findings; none: it is taken, and checked in time."""

    kind: str
    place: str
    name: str
    source: str
    codes: tuple[str, ...]


# --- schemas ----------------------------------------------------------------------------------------------------------


def _doubled(make: Callable[[dict[str, Any]], dict[str, Any]], times: int = 30) -> dict[str, Any]:
    """A schema in which each definition leads to the one before twice."""
    definitions: dict[str, Any] = {"a0": {"type": "integer"}}
    for number in range(1, times + 1):
        definitions[f"a{number}"] = make({"$ref": f"#/$defs/a{number - 1}"})
    return {"$defs": definitions, "$ref": f"#/$defs/a{times}"}


def _nested(keyword: str, times: int = 40) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(times):
        schema = {keyword: False, "allOf": [schema]}
    return schema


_ME: Final = {"$ref": "#/$defs/t"}
_LARGE: Final = ("schema.too_large",)
SCHEMAS: Final[dict[str, tuple[dict[str, Any], tuple[str, ...]]]] = {
    "allOf, doubled": (_doubled(lambda one: {"allOf": [one, one]}), _LARGE),
    "anyOf, doubled": (_doubled(lambda one: {"anyOf": [one, one]}), _LARGE),
    "oneOf, doubled": (_doubled(lambda one: {"oneOf": [one, one]}), _LARGE),
    "if, then and else": (_doubled(lambda one: {"if": one, "then": one, "else": one}), _LARGE),
    "not, doubled": (_doubled(lambda one: {"not": {"anyOf": [one, one]}}), _LARGE),
    "dependentSchemas, doubled": (_doubled(lambda one: {"dependentSchemas": {"a": one, "b": one}}), _LARGE),
    "properties, doubled": (_doubled(lambda one: {"properties": {"a": one, "b": one}}), _LARGE),
    "patterns for one property": (_doubled(lambda one: {"patternProperties": {"a": one, "^a": one}}), _LARGE),
    "prefixItems, doubled": (_doubled(lambda one: {"prefixItems": [one, one]}), _LARGE),
    "contains and items": (_doubled(lambda one: {"contains": one, "items": one}), _LARGE),
    "names and properties": (_doubled(lambda one: {"propertyNames": one, "additionalProperties": one}), _LARGE),
    "unevaluatedProperties, nested": (_nested("unevaluatedProperties", 9), _LARGE),
    "unevaluatedItems, nested": (_nested("unevaluatedItems", 9), _LARGE),
    "itself twice for each item": ({"$defs": {"t": {"allOf": [{"items": _ME}, {"items": _ME}]}}, **_ME}, _LARGE),
    "itself by a name and by all names": (
        {"$defs": {"t": {"properties": {"a": _ME}, "patternProperties": {".": _ME}}}, **_ME},
        _LARGE,
    ),
    "itself in alternatives": ({"$defs": {"t": {"items": {"anyOf": [_ME, _ME]}}}, **_ME}, _LARGE),
    "a circle without an end": ({"$defs": {"t": {"$ref": "#/$defs/u"}, "u": _ME}, **_ME}, ("schema.reference",)),
    "a pattern of ten thousand states": ({"pattern": "((a{1,100}){1,100})*b"}, _LARGE),
    "many patterns": ({"allOf": [{"pattern": f"[ab]{{0,900}}{n}"} for n in range(20)]}, _LARGE),
    "twelve thousand alternatives": (
        {"anyOf": [{"const": n} for n in range(12_000)]},
        (*_LARGE, "yaml.too_many_nodes"),
    ),
    "defaults below a doubled schema": (
        _doubled(lambda one: {"allOf": [one, one], "default": 1}),
        (*_LARGE, "schema.default"),
    ),
    "three thousand misspelt keywords": ({f"propertes{n}": {} for n in range(3_000)}, ("schema.unknown_keyword",)),
    "a tree that is extended, twice at each branch": (
        {"$dynamicAnchor": "n", "allOf": [{"items": {"$dynamicRef": "#n"}}, {"items": {"$dynamicRef": "#n"}}]},
        _LARGE,
    ),
    "unevaluatedProperties beside hundreds of alternatives": (
        {"anyOf": [{"properties": {f"p{n}": {}}} for n in range(300)], "unevaluatedProperties": False},
        (),
    ),
    "an enum of five thousand objects": ({"enum": [{"a": n, "b": [n]} for n in range(5_000)]}, ()),
    "a constant of twenty thousand parts": ({"const": {"a": list(range(20_000))}}, ()),
    "names by patterns of nested quantifiers": (
        {"patternProperties": {f"^(a+)+{n}$": {} for n in range(200)}, "additionalProperties": False},
        (),
    ),
    "denials of denials": (functools.reduce(lambda inner, _: {"not": inner}, range(40), {"type": "integer"}), ()),
    "names that nobody has": ({"properties": {}, "required": [f"n{n}" for n in range(5_000)]}, ("schema.required",)),
}


def _in(before: str, after: str = "") -> Callable[[dict[str, Any]], str]:
    return lambda schema: HEAD + before + json.dumps(schema) + after


SAY: Final = "\nsteps: [{say: hi}]\n"
PLACES: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "an input": lambda schema: (
        HEAD + "input: " + json.dumps({"type": "object", "properties": {"x": {}}, **schema}) + SAY
    ),
    "a state": _in("state: {x: ", "}" + SAY),
    "a form": _in("steps: [{id: a, ask: {title: Hm, from: requester, form: ", "}}]\n"),
    "a frontend tool": _in("tools: {t: {frontend: {description: d, parameters: ", "}}}" + SAY),
    "a callback": _in(
        'steps: [{id: a, http: {post: "https://x.example/", body: {u: "${{ callback.url }}"}, await_callback: '
        "{deadline: 1d, schema: ",
        "}}}]\n",
    ),
}


# --- documents --------------------------------------------------------------------------------------------------------


def _steps(count: int, step: str) -> str:
    return HEAD + "steps:\n" + "".join(f"  - {step.replace('NUMBER', str(number))}\n" for number in range(count))


def _deep(depth: int, opens: str, closes: str, inner: str) -> str:
    return HEAD + "steps: [" + opens * depth + inner + closes * depth + "]\n"


DOCUMENTS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "six thousand steps": (_steps(6_000, 'say: "hello ${{ run.id }}"'), ()),
    "a thousand expressions": (_steps(1_000, "if: NUMBER + 1 > NUMBER * 2\n    say: hi"), ()),
    "three thousand names that are none": (_steps(3_000, 'say: "${{ inptu.xNUMBER }}"'), ("expression.unknown_name",)),
    "three thousand keys that are none": (
        _steps(3_000, "sya: NUMBER"),
        ("shape.unknown_key", "step.verb", "step.no_verb"),
    ),
    "branches in branches": (
        _deep(70, "{try: [", "]}", "{say: hi}"),
        ("yaml.too_deep", "steps.too_deep", "step.too_deep"),
    ),
    "lists in lists": (HEAD + "steps: " + "[" * 5_000 + "]" * 5_000, ("yaml.too_deep",)),
    "maps in maps": (HEAD + "steps: " + "{a: " * 5_000 + "1" + "}" * 5_000, ("yaml.too_deep",)),
    "aliases of aliases": (
        HEAD + "x: &a0 [1, 1]\n" + "".join(f"y{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)) + SAY,
        ("yaml.too_many_nodes",),
    ),
    "a key of two hundred thousand characters": (HEAD + "k" * 200_000 + ": 1" + SAY, ()),
    "two hundred thousand brackets": (HEAD + "steps: " + "[" * 200_000, ("yaml.too_deep", "yaml.syntax")),
    "a text without its end": (HEAD + 'steps: [{say: "' + "a" * 200_000, ("yaml.syntax",)),
    "a hole without its end": (HEAD + "steps: [{say: '" + "${{ " * 40_000 + "'}]\n", ()),
    "quotes upon quotes": (HEAD + "steps: [{say: " + "'" * 200_001 + "}]\n", ()),
    "colons": (HEAD + "steps: " + "a: " * 60_000, ("yaml.syntax",)),
    "blanks": (HEAD + "steps:\n" + " " * 200_000 + "- say: hi\n", ()),
    "tabs": (HEAD + "steps:\n" + "\t" * 200_000 + "- say: hi\n", ("yaml.syntax",)),
    "comments": (HEAD + "#" * 200_000 + SAY, ()),
    "one step with many aliases": (HEAD + "x: &a {b: 1}\nsteps: [" + "*a, " * 20_000 + "]\n", ()),
    "roles": (HEAD + "roles:\n" + "".join(f"  r{n}: [user:u{n}]\n" for n in range(4_000)) + SAY, ()),
    "two thousand schedules": (HEAD + "triggers:\n" + "  - schedule: {cron: '* * * * *'}\n" * 2_000 + SAY, ()),
    "two thousand variables": (
        HEAD + "state:\n" + "".join(f"  v{n}: {{type: integer}}\n" for n in range(2_000)) + SAY,
        (),
    ),
    "a document of two megabytes": (HEAD + "#" * 500_000 + SAY, ("yaml.too_large",)),
    "numbers of ten thousand digits": (HEAD + "steps: [{wait: " + "9" * 10_000 + "}]\n", ()),
    "documents behind documents": (HEAD + SAY + "---\n" * 40_000, ()),
    "many texts with lists in them": (_steps(2_000, 'say: "${{ [1,2,3].map(x, x + NUMBER) }}"'), ()),
    "ten thousand small steps": (_steps(10_000, "say: hi"), ()),
    "four hundred conditions in a row": (_steps(1, "if: " + " && ".join(["true"] * 400) + "\n    say: hi"), ()),
    "anchors that name each other in maps": (
        HEAD + "x: &a0 {k: 1}\n" + "".join(f"y{n}: &a{n} {{a: *a{n - 1}, b: *a{n - 1}}}\n" for n in range(1, 40)) + SAY,
        ("yaml.too_many_nodes",),
    ),
    "personal values through two thousand steps": (
        HEAD
        + "input: {type: object, properties: {n: {type: string, pii: true}}}\nsteps:\n"
        + "".join(f'  - {{id: s{n}, say: "${{{{ input.n }}}}"}}\n' for n in range(2_000)),
        (),
    ),
}

# --- expressions ------------------------------------------------------------------------------------------------------

_HUNDRED: Final = "[" + ",".join(map(str, range(100))) + "]"
EXPRESSIONS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "lists a hundred by a hundred by a hundred": (
        f"size({_HUNDRED}.map(a, {_HUNDRED}.map(b, {_HUNDRED}.map(c, a + b + c)))) > 0",
        (),
    ),
    "four loops in each other": (
        "[1].map(a, [1].map(b, [1].map(c, [1].map(d, 1)))) == []",
        ("expression.comprehensions",),
    ),
    "doubled again and again": ("[1].map(a, [a, a]).map(a, [a, a]).map(a, [a, a]) == []", ()),
    "brackets": ("(" * 1_500 + "1" + ")" * 1_500 + " == 1", ("expression.too_deep", "expression.syntax")),
    "denials": ("!" * 4_000 + "true", ()),
    "minus signs": ("-" * 4_000 + "1 == 1", ()),
    "sums": ("+".join(["1"] * 2_000) + " > 0", ()),
    "alternatives": (" || ".join(["input == null"] * 280), ()),
    "questions": ("true ? " * 500 + "1" + " : 1" * 500 + " == 1", ()),
    "too long": ("'" + "a" * 5_000 + "' == ''", ("expression.too_long",)),
    "indexes": ("input" + "[0]" * 1_300 + " == 1", ()),
    "members": ("input" + ".a" * 2_000 + " == 1", ()),
    "a pattern that goes back": ("'" + "a" * 2_000 + "'.matches('^(a+)+$')", ()),
    "a pattern of many states": ("'a'.matches('((a{1,100}){1,100}){1,100}')", ()),
    "a pattern of brackets": ("'a'.matches('" + "(" * 1_000 + ")" * 1_000 + "')", ()),
    "many texts": (" + ".join(["'ab'"] * 600) + " == ''", ()),
    "a list of lists of lists": ("[" * 700 + "]" * 700 + " == []", ()),
    "a map of maps": ("{'a': " * 400 + "1" + "}" * 400 + " == {}", ()),
    "a text that is split": ("'" + "a," * 1_900 + "'.split(',').map(x, x + x).join('') == ''", ()),
    "replaced by more": ("'aaaaaaaaaa'.replace('a', 'aaaaaaaaaa').replace('a', 'aaaaaaaaaa') == ''", ()),
    "sorted by sorted lists": ("[3,2,1].sort_by(x, [3,2,1].sort_by(y, x * y)[0]) == []", ()),
    "calls of calls": ("string(" * 600 + "1" + ")" * 600 + " == ''", ()),
    "comments": ("1 == 1 " + "// x\n" * 700, ()),
    "commas": ("[" + "," * 4_000 + "] == []", ("expression.syntax",)),
    "quotes": ("'" * 3_999 + " == 1", ()),
    "quantifiers in quantifiers": ("'" + "a" * 1_000 + "!'.matches('^((a+)+)+$')", ()),
    "a list joined and split again": ("[" + ",".join(["'a'"] * 900) + "].join(',').split(',').size() > 0", ()),
    "every item filtered by every other": (
        f"{_HUNDRED}.filter(a, {_HUNDRED}.filter(b, a == b).size() > 0).size() > 0",
        (),
    ),
    "names": (" + ".join(f"x{n}" for n in range(600)) + " == 1", ("expression.too_deep",)),
}


def _attempts() -> list[Attempt]:
    found = [
        Attempt("schemas", place, name, make(schema), codes)
        for place, make in PLACES.items()
        for name, (schema, codes) in SCHEMAS.items()
    ]
    found += [Attempt("documents", "a document", name, source, codes) for name, (source, codes) in DOCUMENTS.items()]
    for name, (source, codes) in EXPRESSIONS.items():
        found.append(
            Attempt(
                "expressions", "a condition", name, f"{HEAD}steps: [{{if: {json.dumps(source)}, say: hi}}]\n", codes
            )
        )
        text = json.dumps("${{ " + source + " }}")
        found.append(Attempt("expressions", "a text", name, f"{HEAD}steps: [{{say: {text}}}]\n", codes))
    return found


ATTEMPTS: Final = _attempts()


def table() -> dict[str, dict[str, int]]:
    """How many attempts there are of each kind at each place."""
    places = [*PLACES, "a document", "a condition", "a text"]
    kinds = dict.fromkeys(attempt.kind for attempt in ATTEMPTS)
    return {
        kind: {place: sum((each.kind, each.place) == (kind, place) for each in ATTEMPTS) for place in places}
        for kind in kinds
    }
