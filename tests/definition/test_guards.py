"""The checker against runs: an output that may be absent where it is read has a warning, whatever guards are there.

Random programs of steps with conditions, switches, groups, races, loops, failures and returns are checked, and played
for every input by a small interpreter. A read that meets an absent output in any play must have been warned of, and one
that the page calls proven must not."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from hai_flow.definition.compiler import check_workflow
from tests.support.examples import SEED, by_night

PROGRAMS: Final = by_night(20_000, 150)
PORTION: Final = 500  # in one test, so that the processes of pytest share them
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


class Failed(Exception):
    """A step has failed, and nothing has caught it yet."""


class Left(Exception):
    """The round of the loop around is over."""


@dataclass
class Play:
    """One run of a program: the status of each call, the winners of races, and the reads that met nothing."""

    input: dict[str, Any]
    chance: random.Random
    status: dict[str, str] = field(default_factory=dict)
    winners: dict[str, str] = field(default_factory=dict)
    item: int = 0
    missed: set[str] = field(default_factory=set)

    def holds(self, condition: Any) -> bool:
        match condition:
            case ("input", name):
                return self.input[name]
            case ("k", word):
                return self.input["k"] == word
            case ("item", number):
                return self.item == number
            case ("status", id, word):
                return self.status.get(id, "pending") == word
            case ("winner", id, branch):
                return self.winners[id] == branch
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
                if step["verb"] == "call":
                    self.status[step["id"]] = "skipped"
                continue
            match step["verb"]:
                case "call":
                    self._call(step)
                case "return":
                    raise Ended
                case "fail":
                    raise Failed
                case "continue":
                    raise Left
                case "try":
                    self._try(step)
                case "switch":
                    for when, inside in step["cases"]:
                        if when is None or self.holds(when):
                            self.run(inside)
                            break
                case "race":
                    self._race(step)
                case "loop":
                    for self.item in (1, 2):
                        for id in calls(step["steps"]):
                            self.status.pop(id, None)
                        with contextlib.suppress(Left):
                            self.run(step["steps"])
                case "read":
                    wanted = step["when"] is None or self.holds(step["when"])
                    if wanted and self.status.get(step["of"]) != "finished":
                        self.missed.add(step["id"])

    def _call(self, step: dict[str, Any]) -> None:
        if self.chance.random() < (0.5 if step["caught"] else 0.1):
            self.status[step["id"]] = "failed"
            if step["caught"] == "return":
                raise Ended
            if not step["caught"]:
                raise Failed
        else:
            self.status[step["id"]] = "finished"

    def _try(self, step: dict[str, Any]) -> None:
        try:
            self.run(step["steps"])
        except Failed:
            if step["caught"] == "return":
                raise Ended from None
            if not step["caught"]:
                raise

    def _race(self, step: dict[str, Any]) -> None:
        names = self.chance.sample(("p", "q"), 2)
        for name in names:
            steps = step["branches"][name]
            cut = self.chance.randrange(len(steps) + 1) if name == names[0] else len(steps)
            try:
                self.run(steps[:cut])
            except Failed:
                if name == names[1]:
                    raise  # nobody is left
        self.winners[step["id"]] = names[1]


def calls(steps: list[Any]) -> Iterator[str]:
    """The ids of all calls inside."""
    for step in steps:
        if step["verb"] == "call":
            yield step["id"]
        for inside in lists(step):
            yield from calls(inside)


def lists(step: dict[str, Any]) -> Iterator[list[Any]]:
    yield step.get("steps", [])
    yield from (inside for _, inside in step.get("cases", ()))
    yield from step.get("branches", {}).values()


def written(condition: Any) -> str:
    match condition:
        case ("input", name):
            return f"input.{name}"
        case ("k", word):
            return f'input.k == "{word}"'
        case ("item", number):
            return f"item == {number}"
        case ("status", id, word):
            return f'steps.{id}.status == "{word}"'
        case ("winner", id, branch):
            return f'steps.{id}.output.winner == "{branch}"'
        case ("not", ("status", id, word)):
            return f'steps.{id}.status != "{word}"'
        case ("not", inner):
            return f"!({written(inner)})"
        case (word, left, right):
            return f"({written(left)}) {'&&' if word == 'and' else '||'} ({written(right)})"
    raise AssertionError(condition)


def as_document(steps: list[Any]) -> list[dict[str, Any]]:
    return [_step(step) for step in steps]


_CAUGHT: Final[dict[str, Any]] = {
    "": {},
    "on": {"catch": [{"steps": [{"say": "It failed."}]}]},
    "return": {"catch": [{"steps": [{"return": {}}]}]},
    "ignored": {"continue_on_error": True},
}


def _step(step: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {} if step.get("if") is None else {"if": written(step["if"])}
    shown |= _CAUGHT[step.get("caught", "")]
    match step["verb"]:
        case "call":
            return {**shown, "id": step["id"], "call": "shop.make", "with": {}}
        case "return":
            return {**shown, "return": {}}
        case "fail":
            return {**shown, "fail": "It failed."}
        case "continue":
            return {**shown, "continue": True}
        case "try":
            return {**shown, "try": as_document(step["steps"])}
        case "loop":
            return {**shown, "for_each": {"items": [1, 2], "steps": as_document(step["steps"])}}
        case "race":
            branches = {name: as_document(inside) for name, inside in step["branches"].items()}
            return {**shown, "id": step["id"], "join": "any", "parallel": branches}
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
    """Writes random programs. `ids` are the ids of calls that a place sees, `races` those of races."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.names = (f"s{number}" for number in itertools.count())
        self.races: list[str] = []
        self.is_loop = False

    def condition(self, ids: list[str], depth: int = 2) -> Any:
        word = self.random.choice(("input", "k", "k", "status", "status", "race", "item", "not", "and", "or"))
        if word in ("and", "or") and depth:
            return word, self.condition(ids, depth - 1), self.condition(ids, depth - 1)
        if word == "not":
            return "not", self.condition(ids, 0)
        if word == "status" and ids:
            status = self.random.choice(("finished", "finished", "failed", "skipped"))
            return "status", self.random.choice(ids), status
        if word == "race" and self.races:
            return "winner", self.random.choice(self.races), self.random.choice(("p", "q"))
        if word == "item" and self.is_loop:
            return "item", self.random.choice((1, 2))
        return self.random.choice((("input", "a"), ("input", "b"), ("k", "x"), ("k", "y")))

    def maybe(self, ids: list[str], chance: float = 0.6) -> Any:
        return self.condition(ids) if self.random.random() < chance else None

    def write(self, ids: list[str], depth: int) -> tuple[list[Any], list[str]]:
        """Steps, and the ids that a place behind them sees."""
        races, self.races = self.races, [*self.races]
        steps: list[Any] = []
        for _ in range(self.random.randint(2, 5)):
            word = self.random.choice(
                ("call", "call", "read", "read", "read", "end", "switch", "switch", "try", "race", "loop")
            )
            if word in ("switch", "try", "race", "loop") and not depth:
                word = "call"
            ids = self._step(word, steps, ids, depth)
        self.races = races
        return steps, ids

    def _step(self, word: str, steps: list[Any], ids: list[str], depth: int) -> list[str]:
        match word:
            case "read" if ids:
                of, when = self.random.choice(ids), self.maybe(ids)
                steps.append({"verb": "read", "id": next(self.names), "of": of, "when": when, "if": self.maybe(ids)})
            case "end":
                verb = self.random.choice(("return", "return", "fail", "continue" if self.is_loop else "return"))
                steps.append({"verb": verb, "if": self.condition(ids)})
                if depth < 2 and self.random.random() < 0.3:  # the last of its list
                    steps[-1]["if"] = None
            case "try":
                condition, caught = self.maybe(ids), self.random.choice(("", "on", "return"))
                inside, ids = self.write(ids, depth - 1)
                steps.append({"verb": "try", "steps": inside, "if": condition, "caught": caught})
            case "race":
                id, branches, before = next(self.names), {}, ids
                for name in ("p", "q"):
                    branches[name], below = self.write(before, depth - 1)
                    ids = [*ids, *(id for id in below if id not in ids)]
                steps.append({"verb": "race", "id": id, "branches": branches})
                self.races.append(id)
            case "loop" if not self.is_loop:
                self.is_loop = True
                inside, _ = self.write(ids, depth - 1)
                self.is_loop = False
                steps.append({"verb": "loop", "steps": inside, "if": self.maybe(ids)})
            case "switch":
                ids = self._switch(steps, ids, depth)
            case _:
                id, condition = next(self.names), self.maybe(ids)
                steps.append({"verb": "call", "id": id, "if": condition, "caught": self._caught()})
                ids = [*ids, id]
        return ids

    def _caught(self) -> str:
        return self.random.choice(("", "", "", "", "on", "return", "ignored"))

    def _switch(self, steps: list[Any], ids: list[str], depth: int) -> list[str]:
        steps.append({"verb": "switch", "cases": [], "if": self.maybe(ids, 0.3)})
        seen = ids
        for number in range(self.random.randint(1, 3)):
            last = number > 0 and self.random.random() < 0.5
            when = None if last else self.condition(seen)
            inside, below = self.write(seen, depth - 1)
            steps[-1]["cases"].append((when, inside))
            ids = [*ids, *(id for id in below if id not in ids)]
            if last:
                break
        return ids


def source_and_warned(steps: list[Any]) -> tuple[str, set[str]]:
    """The document, and the ids of its reads that have a warning."""
    source = HEAD + f'"steps": {json.dumps(as_document(steps), indent=0)}'
    findings = check_workflow(source.encode())
    assert [each for each in findings if each.severity == "error"] == [], source
    lines = source.splitlines()
    return source, {
        json.loads(lines[each.line - 2].partition(": ")[2].rstrip(","))
        for each in findings
        if each.code == "expression.unguarded" and lines[each.line - 1].startswith('"say"')
    }


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


IMPOSSIBLE: Final = ("or", ("input", "never"), ("input", "never"))  # a condition that nothing proves


def certain_reads(
    steps: list[Any], certain: set[Any], needed: tuple[Any, ...], proofs: dict[str, Any]
) -> Iterator[str]:
    """The reads that the page calls proven: by the same conditions as the call's, by its status, by the winner of its
    race, or by a `return` before where one of them has not held. `needed`: the conditions around; `proofs`: those of
    each call, and whether it may fail."""
    for step in steps:
        condition = step.get("if")
        own = [] if condition is None else [condition]
        around = (*needed, *own, *([IMPOSSIBLE] if step.get("caught") in ("on", "ignored") else []))
        here = certain | {each for one in own for each in parts(one)}
        match step["verb"]:
            case "call":
                proofs[step["id"]] = around
            case "return" | "fail" | "continue":
                certain = certain | ({IMPOSSIBLE} if condition is None else set(parts(condition, False)))
            case "try":
                yield from certain_reads(step["steps"], here, around, proofs)
            case "loop":
                yield from certain_reads(step["steps"], here, around, proofs)
            case "race":
                for name, inside in step["branches"].items():
                    yield from certain_reads(inside, here, (*around, ("winner", step["id"], name)), proofs)
            case "switch":
                denied: tuple[Any, ...] = ()
                for when, inside in step["cases"]:
                    taken = () if when is None else (when,)
                    below = here | {part for each in (*denied, *taken) for part in parts(each)}
                    yield from certain_reads(inside, below, (*around, *denied, *taken), proofs)
                    denied = (*denied, *(("not", each) for each in taken))
            case "read":
                asked = [] if step["when"] is None else [step["when"]]
                facts = here | {each for one in asked for each in parts(one)}
                conditions = proofs[step["of"]]
                if ("status", step["of"], "finished") in facts or all(
                    each is not IMPOSSIBLE and is_proven(each, True, facts) for each in conditions
                ):
                    yield step["id"]


@pytest.mark.costly
@pytest.mark.parametrize("first", range(0, PROGRAMS, PORTION))
def test_a_read_is_warned_of_if_it_can_fail_and_not_if_it_is_proven(first: int) -> None:
    for number in range(first, min(first + PORTION, PROGRAMS)):
        steps, _ = Writer(f"{SEED}/{number}").write([], 2)
        missed: set[str] = set()
        chance = random.Random(number)
        for each in INPUTS * 3:
            play = Play(each, chance)
            with contextlib.suppress(Ended, Failed):
                play.run(steps)
            missed |= play.missed
        source, warned = source_and_warned(steps)
        assert missed <= warned, f"TEST_SEED={SEED}, program {number}: no warning of {missed - warned}\n{source}"
        wrong = warned & set(certain_reads(steps, set(), (), {}))
        assert not wrong, f"TEST_SEED={SEED}, program {number}: a warning of {wrong}\n{source}"


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
    "another case that goes on": (
        "steps: [{switch: [{when: input.a, steps: [{id: x, call: shop.make}]}, {when: input.b, steps: [return: {}]}, "
        '{default: true, steps: [say: hi]}]}, {say: "${{ steps.x.output.v }}"}]'
    ),
    "no default": (
        "steps: [{switch: [{when: input.a, steps: [{id: x, call: shop.make}]}, {when: input.b, steps: [return: {}]}]}, "
        '{say: "${{ steps.x.output.v }}"}]'
    ),
    "another branch that waits": (
        "steps: [{parallel: {p: [{id: x, call: shop.make}], q: [wait: {for: 1d}], r: [return: {}]}, join: any}, "
        '{say: "${{ steps.x.output.v }}"}]'
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
