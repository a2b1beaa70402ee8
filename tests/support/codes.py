"""Every code that the server's sentences carry, read from its sources: of refusals, and of findings in documents."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from jsonschema_rs import ValidationErrorKind

from hai_flow.definition.schemas.schemas import TOO_LONG_TO_MATCH, derive_code

SOURCES: Final = Path(__file__).resolve().parents[2] / "hai_flow"
_CODE: Final = re.compile(r"[a-z_]+\.[a-z_]+")
_IS_OF_VALUE: Final = re.compile(r"(value|request)\.")
_FINDS: Final = frozenset((
    "error", "warning", "refuse", "error_inside", "warning_inside", "refuse_inside", "warning_at", "find", "find_at",
    "report", "Fault", "Finding",
))  # fmt: skip


def codes_of_refusals() -> set[str]:
    """The codes that refusals are given, as far as they stand there."""
    places = {"Rejected": 1, "problem": 1, "_refuse": 1, "require_development": 1, "too_often": 0, "_reject_field": 0}
    calls = ((call, places[_name(call)]) for call in _calls(places.keys()))
    codes = {text for call, place in calls for argument in call.args[place : place + 1] for text in _texts(argument)}
    return {code for code in codes if code[0].isalpha() and " " not in code}


def codes_of_findings() -> set[str]:
    """The codes of mistakes and doubts in a document."""
    calls = _calls(_FINDS, "definition")
    texts = (text for call in calls for argument in call.args[:4] for text in _texts(argument))
    return {text for text in texts if _CODE.fullmatch(text)}


def codes_of_obstacles() -> set[str]:
    """The codes of reasons why a run can't move to another version."""
    obstacles = {
        text for call in _calls({"Obstacle"}, "engine") if len(call.args) == 3 for text in _texts(call.args[0])
    }
    hindrances = {f"step.{text}" for call in _calls({"Hindrance"}) for text in _texts(call.args[0])}
    return {*filter(_CODE.fullmatch, obstacles), *hindrances}


def codes_of_standing() -> set[str]:
    """The codes of what `doctor` and `status` find."""
    faults = {text for call in _calls({"Fault"}, "runtime/ops") for text in _texts(call.args[0])}
    checks = set[str]()
    for call in _calls({"Check"}, "runtime/ops"):
        case = next((each.value for each in call.keywords if each.arg == "case"), call.args[1])
        if isinstance(case, ast.Name):
            cases = {"polls", "no_direct"}  # of a pooler, chosen beforehand
        else:
            cases = set(_texts(case))
        checks |= {f"doctor.{name}.{each}" for name in _names_of_check(call.args[0]) for each in cases}
    return faults | checks


def _names_of_check(name: ast.expr) -> Iterator[str]:
    if isinstance(name, ast.JoinedStr):
        yield from (f"database.{each}" for each in ("fsync", "synchronous_commit", "full_page_writes"))
    else:
        yield from _texts(name)


def codes_of_values() -> set[str]:
    """The codes of faults of a value: one for each kind that the library of JSON Schema has, and those of findings that
    are written out."""
    kinds = {name for name, kind in vars(ValidationErrorKind).items() if isinstance(kind, type)}
    dicts = (node for node in _nodes({"code"}) if isinstance(node, ast.Dict))
    pairs = (pair for node in dicts for pair in zip(node.keys, node.values, strict=True))
    codes = {text for key, value in pairs if key is not None and "code" in _texts(key) for text in _texts(value)}
    return {*map(derive_code, kinds), TOO_LONG_TO_MATCH, *filter(_IS_OF_VALUE.match, codes)}


def _calls(names: AbstractSet[str], room: str = "") -> Iterator[ast.Call]:
    """The calls of functions of these names."""
    return (node for node in _nodes(names, room) if isinstance(node, ast.Call) and _name(node) in names)


def _nodes(words: AbstractSet[str], room: str = "") -> Iterator[ast.AST]:
    """The syntax nodes of all sources that have one of the words. The others, which are most, are not parsed."""
    place = SOURCES / room
    for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
        text = path.read_text()
        if any(word in text for word in words):
            yield from ast.walk(ast.parse(text))


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _texts(argument: ast.expr) -> Iterator[str]:
    """The texts that the argument may be: itself, or either side of a condition."""
    if isinstance(argument, ast.IfExp):
        yield from _texts(argument.body)
        yield from _texts(argument.orelse)
    elif isinstance(argument, ast.Constant) and isinstance(argument.value, str) and argument.value:
        yield argument.value


def sentences_of_reasons() -> set[str]:
    """The sentences without a code, with 7 in each hole: why nobody can decide a question, and why nothing was sent.
    Those that only quote another server are left out."""
    people = [node for path in ("absences.py", "undecidable.py") for node in _nodes({"def"}, f"runtime/people/{path}")]
    texts = [argument for call in _calls({"NotSent"}) for argument in call.args[:1]]
    texts += [call.args[1] for call in _calls({"Obstacle"}, "engine/pendings") if len(call.args) == 2]
    texts += [call.args[2] for call in people if isinstance(call, ast.Call) and _name(call) == "Seat" and call.args[2:]]
    faults = [node for node in people if isinstance(node, ast.FunctionDef) and node.name == "find_fault"]
    returns = [node.value for fault in faults for node in ast.walk(fault) if isinstance(node, ast.Return)]
    texts += [
        part for each in returns if each is not None for part in ast.walk(each) if isinstance(part, ast.JoinedStr)
    ]
    sentences = {_fill(text) for text in texts}
    return {each for each in sentences if not re.fullmatch(r"7?|\w+: (7|errcode 7)", each)}


def _fill(text: ast.expr) -> str:
    if isinstance(text, ast.Constant):
        return str(text.value)
    parts = text.values if isinstance(text, ast.JoinedStr) else []
    return "".join(next(_texts(part.value if isinstance(part, ast.FormattedValue) else part), "7") for part in parts)
