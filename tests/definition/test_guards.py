"""The checker against runs: an output that may be absent where it is read has a warning, whatever guards are there.

Random programs of steps with conditions, switches, groups and returns are checked, and played for every input by a
small interpreter. A read that meets an absent output in any play must have been warned of.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.definition.compiler import check_workflow

PROGRAMS: Final = int(os.environ.get("TEST_PROGRAMS", "150"))  # 20,000 each night (`make chaos`)
INPUTS: Final = [
    {"a": a, "b": b, "k": k} for a, b, k in itertools.product((True, False), (True, False), ("x", "y", "z"))
]
HEAD: Final = """\
hai: flow/v1
name: guards
version: 1
input:
  type: object
  required: [a, b, k]
  properties: {a: {type: boolean}, b: {type: boolean}, k: {type: string, enum: [x, y, z]}}
tools: {shop: {python: acme.shop}}
"""


class Ended(Exception):
    """The run has returned."""


@dataclass
class Play:
    """One run of a program: which steps have finished, and the reads that met nothing."""

    input: dict[str, Any]
    finished: set[str] = field(default_factory=set)
    missed: set[str] = field(default_factory=set)

    def holds(self, condition: Any) -> bool:
        match condition:
            case ("input", name):
                return self.input[name]
            case ("k", word):
                return self.input["k"] == word
            case ("finished", id):
                return id in self.finished
            case ("not", inner):
                return not self.holds(inner)
            case ("and", left, right):
                return self.holds(left) and self.holds(right)
            case ("or", left, right):
                return self.holds(left) or self.holds(right)
        raise AssertionError(condition)

    def run(self, steps: list[Any]) -> None:
        for step in steps:
            if step.get("if") is not None and not self.holds(step["if"]):
                continue
            match step["verb"]:
                case "call":
                    self.finished.add(step["id"])
                case "return":
                    raise Ended
                case "try":
                    self.run(step["steps"])
                case "switch":
                    for when, inside in step["cases"]:
                        if when is None or self.holds(when):
                            self.run(inside)
                            break
                case "read":
                    wanted = step["when"] is None or self.holds(step["when"])
                    if wanted and step["of"] not in self.finished:
                        self.missed.add(step["id"])


def written(condition: Any) -> str:
    match condition:
        case ("input", name):
            return f"input.{name}"
        case ("k", word):
            return f'input.k == "{word}"'
        case ("finished", id):
            return f'steps.{id}.status == "finished"'
        case ("not", ("finished", id)):
            return f'steps.{id}.status != "finished"'
        case ("not", inner):
            return f"!({written(inner)})"
        case (word, left, right):
            return f"({written(left)}) {'&&' if word == 'and' else '||'} ({written(right)})"
    raise AssertionError(condition)


def as_document(steps: list[Any]) -> list[dict[str, Any]]:
    return [_step(step) for step in steps]


def _step(step: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {} if step.get("if") is None else {"if": written(step["if"])}
    match step["verb"]:
        case "call":
            return {**shown, "id": step["id"], "call": "shop.make", "with": {}}
        case "return":
            return {**shown, "return": {}}
        case "try":
            return {**shown, "try": as_document(step["steps"])}
        case "switch":
            cases = [
                {**({"default": True} if when is None else {"when": written(when)}), "steps": as_document(inside)}
                for when, inside in step["cases"]
            ]
            return {**shown, "switch": cases}
        case _:
            read = f"steps.{step['of']}.output.v"
            hole = read if step["when"] is None else f'{written(step["when"])} ? {read} : dyn("")'
            return {**shown, "id": step["id"], "say": f"${{{{ {hole} }}}}"}


class Writer:
    """Writes random programs. `known` are the ids of calls that a place sees."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = (f"s{number}" for number in itertools.count())

    def condition(self, known: list[str], depth: int = 2) -> Any:
        word = self.random.choice(("input", "k", "k", "finished", "finished", "not", "and", "or"))
        if word in ("and", "or") and depth:
            return word, self.condition(known, depth - 1), self.condition(known, depth - 1)
        if word == "not":
            return "not", self.condition(known, 0)
        if word == "finished" and known:
            return "finished", self.random.choice(known)
        return self.random.choice((("input", "a"), ("input", "b"), ("k", "x"), ("k", "y")))

    def maybe(self, known: list[str]) -> Any:
        return self.condition(known) if self.random.random() < 0.6 else None

    def list(self, known: list[str], depth: int) -> tuple[list[Any], list[str]]:
        """Steps, and the ids that a place behind them sees."""
        steps: list[Any] = []
        for _ in range(self.random.randint(2, 5)):
            word = self.random.choice(("call", "call", "read", "read", "read", "return", "switch", "switch", "try"))
            if word in ("switch", "try") and not depth:
                word = "call"
            if word == "read" and known:
                of, when = self.random.choice(known), self.maybe(known)
                steps.append({"verb": "read", "id": next(self.names), "of": of, "when": when, "if": self.maybe(known)})
            elif word == "return":
                steps.append({"verb": "return", "if": self.condition(known)})
            elif word == "try":
                condition = self.maybe(known)
                inside, known = self.list(known, depth - 1)
                steps.append({"verb": "try", "steps": inside, "if": condition})
            elif word == "switch":
                steps.append({"verb": "switch", "cases": [], "if": self.maybe(known)})
                seen = known
                for number in range(self.random.randint(1, 3)):
                    last = number > 0 and self.random.random() < 0.5
                    when = None if last else self.condition(seen)
                    inside, below = self.list(seen, depth - 1)
                    steps[-1]["cases"].append((when, inside))
                    known = [*known, *(id for id in below if id not in known)]
                    if last:
                        break
            else:
                id, condition = next(self.names), self.maybe(known)
                steps.append({"verb": "call", "id": id, "if": condition})
                known = [*known, id]
        return steps, known


def reads(steps: list[Any]) -> Iterator[str]:
    for step in steps:
        if step["verb"] == "read":
            yield step["id"]
        for inside in (step.get("steps", ()), *(inside for _, inside in step.get("cases", ()))):
            yield from reads(list(inside))


def source_and_warned(steps: list[Any]) -> tuple[str, set[str]]:
    """The document, and the ids of its reads that have a warning."""
    source = HEAD + yaml.safe_dump({"steps": as_document(steps)}, sort_keys=False, width=1000)
    findings = check_workflow(source.encode())
    assert [each for each in findings if each.severity == "error"] == [], source
    lines = source.splitlines()
    return source, {
        lines[each.line - 2].rpartition("id: ")[2]
        for each in findings
        if each.code == "expression.unguarded" and "say:" in lines[each.line - 1]
    }


@settings(max_examples=PROGRAMS, deadline=None)
@given(st.integers(0, 2**32))
def test_a_read_that_can_meet_nothing_is_warned_of(seed: int) -> None:
    steps, _ = Writer(seed).list([], 2)
    missed: set[str] = set()
    for each in INPUTS:
        play = Play(each)
        with contextlib.suppress(Ended):
            play.run(steps)
        missed |= play.missed
    source, warned = source_and_warned(steps)
    assert missed <= warned, f"{missed - warned}\n{source}"


def parts(condition: Any, outcome: bool = True) -> Iterator[Any]:
    """What is certain where the condition had this outcome, in one spelling."""
    match condition:
        case ("not", inner):
            yield from parts(inner, not outcome)
        case (("and" | "or") as word, left, right) if outcome == (word == "and"):
            yield from parts(left, outcome)
            yield from parts(right, outcome)
        case _:
            yield condition if outcome else ("not", condition)


def is_proven(condition: Any, outcome: bool, certain: set[Any]) -> bool:
    match condition:
        case ("not", inner):
            return is_proven(inner, not outcome, certain)
        case (("and" | "or") as word, left, right) if outcome == (word == "and"):
            return is_proven(left, outcome, certain) and is_proven(right, outcome, certain)
    return (condition if outcome else ("not", condition)) in certain


def certain_reads(steps: list[Any], certain: set[Any], needed: tuple[Any, ...], calls: dict[str, Any]) -> Iterator[str]:
    """The reads that the page calls proven: by the same conditions as the call's, by its status, or by a `return`
    before where one of them has not held. `needed`: the conditions around; `calls`: those of each call."""
    for step in steps:
        condition = step.get("if")
        own = [] if condition is None else [condition]
        here = certain | {each for one in own for each in parts(one)}
        match step["verb"]:
            case "call":
                calls[step["id"]] = (*needed, *own)
            case "return":
                certain = certain | set(parts(condition, False))
            case "try":
                yield from certain_reads(step["steps"], here, (*needed, *own), calls)
            case "switch":
                denied: tuple[Any, ...] = ()
                for when, inside in step["cases"]:
                    taken = () if when is None else (when,)
                    below = here | {part for each in (*denied, *taken) for part in parts(each)}
                    yield from certain_reads(inside, below, (*needed, *own, *denied, *taken), calls)
                    denied = (*denied, *(("not", each) for each in taken))
            case "read":
                asked = [] if step["when"] is None else [step["when"]]
                known = here | {each for one in asked for each in parts(one)}
                conditions = calls[step["of"]]
                if ("finished", step["of"]) in known or all(is_proven(each, True, known) for each in conditions):
                    yield step["id"]


@settings(max_examples=PROGRAMS, deadline=None)
@given(st.integers(0, 2**32))
def test_a_read_that_the_page_calls_proven_is_not_warned_of(seed: int) -> None:
    steps, _ = Writer(seed).list([], 2)
    source, warned = source_and_warned(steps)
    wrong = warned & set(certain_reads(steps, set(), (), {}))
    assert not wrong, f"{wrong}\n{source}"


BELIEVED: Final = {
    "the same condition": (
        'steps: [{if: input.a, id: x, call: shop.make}, {if: input.a, say: "${{ steps.x.output.v }}"}]'
    ),
    "one of two conditions": (
        'steps: [{if: input.a, id: x, call: shop.make}, {if: input.b && input.a, say: "${{ steps.x.output.v }}"}]'
    ),
    "another value": (
        "steps: [{switch: [{when: 'input.k == \"x\"', steps: [{id: x, call: shop.make}]}, "
        "{default: true, steps: [{id: y, call: shop.make}]}]}, "
        '{if: \'input.k == "y"\', say: "${{ steps.y.output.v }}"}]'
    ),
    "a return behind": (
        "steps: [{if: input.a, id: x, call: shop.make}, {if: '!input.a', return: {}}, "
        '{say: "${{ steps.x.output.v }}"}]'
    ),
    "a case that returns": (
        "steps: [{if: input.a, id: x, call: shop.make}, {switch: [{when: '!input.a', steps: [return: {}]}]}, "
        '{say: "${{ steps.x.output.v }}"}]'
    ),
    "another step of the case": (
        "steps: [{switch: [{when: input.a, steps: [{id: x, call: shop.make}, {id: y, call: shop.make}]}]}, "
        '{if: \'steps.y.status == "finished"\', say: "${{ steps.x.output.v }}"}]'
    ),
    "a case before": (
        "steps: [{if: input.a, id: x, call: shop.make}, {switch: [{when: '!input.a', steps: [say: hi]}, "
        '{default: true, steps: [{say: "${{ steps.x.output.v }}"}]}]}]'
    ),
    "the winner": (
        "steps: [{id: race, parallel: {p: [{id: x, call: shop.make}], q: [wait: {for: 1d}]}, join: any}, "
        '{if: \'steps.race.output.winner == "p"\', say: "${{ steps.x.output.v }}"}]'
    ),
    "a group of the same condition": (
        'steps: [{if: input.a, try: [{id: x, call: shop.make}]}, {if: input.a, say: "${{ steps.x.output.v }}"}]'
    ),
}


@pytest.mark.parametrize("program", BELIEVED)
def test_a_guard_that_proves_the_step_is_believed(program: str) -> None:
    assert check_workflow((HEAD + BELIEVED[program]).encode()) == []


DOUBTED: Final = {
    "a condition of the state": (
        "state: {s: {type: boolean, default: false}}\n"
        "steps: [{if: state.s && input.a, id: x, call: shop.make}, {set: {s: true}}, "
        '{if: state.s && input.a, say: "${{ steps.x.output.v }}"}]'
    ),
    "half of a condition": (
        'steps: [{if: input.a && input.b, id: x, call: shop.make}, {if: input.a, say: "${{ steps.x.output.v }}"}]'
    ),
    "the other winner": (
        "steps: [{id: race, parallel: {p: [{id: x, call: shop.make}], q: [wait: {for: 1d}]}, join: any}, "
        '{if: \'steps.race.output.winner == "q"\', say: "${{ steps.x.output.v }}"}]'
    ),
    "a later case": (
        "steps: [{switch: [{when: input.b, steps: [say: hi]}, {when: input.a, steps: [{id: x, call: shop.make}]}]}, "
        '{if: input.a, say: "${{ steps.x.output.v }}"}]'
    ),
    "a caught failure": (
        "steps: [{if: input.a, id: x, call: shop.make, catch: [{steps: [say: hi]}]}, "
        '{if: input.a, say: "${{ steps.x.output.v }}"}]'
    ),
    "a return that is caught": (
        "steps: [{if: input.a, id: x, call: shop.make}, "
        '{if: "!input.a", try: [{return: {}}], catch: [{steps: [say: hi]}]}, {say: "${{ steps.x.output.v }}"}]'
    ),
}


@pytest.mark.parametrize("program", DOUBTED)
def test_a_guard_that_proves_nothing_is_doubted(program: str) -> None:
    findings = check_workflow((HEAD + DOUBTED[program]).encode())
    assert "expression.unguarded" in [each.code for each in findings]
