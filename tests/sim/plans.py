"""Small random workflows of every verb and key of this release, as documents."""

from __future__ import annotations

from random import Random
from typing import Any

import yaml

from hai_flow.definition.plan import Plan
from tests.support.runs import plan_of

DEPTH_MAX = 2
HEAD: dict[str, Any] = {
    "state": {"zero": {"type": "integer", "default": 0}, "log": {"type": "array", "default": [], "reduce": "append"}},
    "tools": {
        "t": {"python": "registered"},
        "pick": {
            "frontend": {
                "description": "Pick.",
                "parameters": {"type": "object"},
                "result": {"type": "integer"},
                "deadline": "1h",
            }
        },
    },
}
CALLS_IN_FRONT = 3  # of the kinds of steps, how much likelier an effect is


AGENTS: dict[str, Any] = {
    "models": {"m": {"use": "m"}},
    "tools": {
        **HEAD["tools"],
        "look": {"python": "registered", "effect": "read"},
        "other": {"agent": {"description": "Another.", "model": "m", "tools": ["look", "t.f"], "max_turns": 3}},
        "heir": {"agent": {"description": "Takes over.", "model": "m", "tools": ["look"], "hand_over": True}},
    },
}


class _Author:
    def __init__(self, random: Random, agents: bool = False) -> None:
        self.random = random
        self.agents = agents
        self.count = 0
        self.simple = self.chance(0.5)  # no loops and nothing to clean up: so that people, time and races stay common
        self.looping = 0  # loops around here that can be left
        self.cleaning = 0  # lists that clean up around here: they ask nobody, wait for nothing and never return

    def document(self) -> dict[str, Any]:
        document = {**HEAD, **(AGENTS if self.agents else {}), "steps": self.steps(DEPTH_MAX)}
        if self.chance(0.2):
            document["catch"] = self.clauses(1)
        if self.chance(0.5):
            document["output"] = "${{ state.log }}" if self.chance(0.8) else "${{ 1 / state.zero }}"
        if not self.simple and self.chance(0.15):
            document["finally"] = self.clean_up()
        if self.chance(0.1):
            document["limits"] = {"steps": self.random.randint(3, 12)}
        if self.chance(0.2):
            document["defaults"] = {"retry": self.retry()}
        return document

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def steps(self, depth: int) -> list[dict[str, Any]]:
        longest = 4 if depth == DEPTH_MAX else 3
        return [self.step(depth) for _ in range(self.random.randint(longest - 2, longest))]

    def step(self, depth: int) -> dict[str, Any]:
        self.count += 1
        flat = [self.call] * CALLS_IN_FRONT + [self.say, self.set]
        if not self.cleaning:
            flat += [self.pick, self.ask, self.approve, self.wait]
            flat += [self.agent] * len(flat) if self.agents else []
        if self.chance(0.12):
            flat = [self.fail, self.broken] if self.cleaning else [self.fail, self.end, self.broken]
        if self.looping and self.chance(0.1):
            flat, depth = [self.leave], 0
        blocks = [self.switch, self.parallel, self.parallel]
        if not self.simple:
            blocks += [self.try_, self.try_, self.for_each, self.for_each, self.repeat]
        verb = self.random.choice(flat if depth == 0 else [*flat, *blocks])
        step = {"id": f"s{self.count}", **verb(depth)}
        if self.chance(0.1):
            step["if"] = self.random.choice(["size(state.log) > 0", "1 / state.zero > 0"])
        ends = not step.keys().isdisjoint(("return", "fail", "break", "continue"))
        if depth and self.chance(0.4) and not ends:
            step["catch"] = self.clauses(depth - 1)
        if (
            not self.simple
            and self.chance(0.15)
            and self.cleaning < 3
            and not {"return", "fail", "break", "continue"} & step.keys()
        ):
            step["finally"] = self.clean_up()
        return step

    def clean_up(self) -> list[dict[str, Any]]:
        self.cleaning += 1
        looping, self.looping = self.looping, 0
        steps = self.steps(self.random.choice([0, 0, 0, 1]))[:2]
        self.looping = looping
        self.cleaning -= 1
        return steps

    def clauses(self, depth: int) -> list[dict[str, Any]]:
        clause: dict[str, Any] = {"steps": self.steps(depth)[:2]}
        if self.chance(0.5):
            clause["errors"] = [self.random.choice(["*", "tool.*", "approval.rejected", "expression.error"])]
        return [clause]

    def retry(self) -> dict[str, Any]:
        return {
            "max": self.random.randint(1, 2),
            "every": "2s",
            "backoff": self.random.choice(["fixed", "exponential"]),
        }

    def call(self, depth: int) -> dict[str, Any]:
        step: dict[str, Any] = {"call": "t.f", "with": {"n": "${{ size(state.log) }}"}}
        if self.chance(0.15):
            step["delivery"] = "at_most_once"
        elif self.chance(0.4):
            step["retry"] = self.retry()
        if self.chance(0.15) and not self.cleaning:
            step["approval"] = {"from": "anyone", "deadline": "30m", "when": "size(state.log) < 3"}
        if self.chance(0.3):
            step["timeout"] = "90s"
        if self.chance(0.3):
            step["expose"] = True
        if not self.simple and self.chance(0.5):
            step["undo"] = {"call": "t.back", "with": {"n": 1}}
            if self.chance(0.6):
                step["undo"]["retry"] = self.retry()
        return step

    def agent(self, depth: int) -> dict[str, Any]:
        tools = self.random.choice([["t.f", "look", "pick"], ["look", "other"], ["t.f", "heir", "pick"]])
        agent: dict[str, Any] = {"model": "m", "prompt": "${{ size(state.log) }}", "tools": tools}
        if self.chance(0.7):
            agent["max_turns"] = self.random.randint(1, 4)
        if self.chance(0.3):
            agent["stop_when"] = self.random.choice(["answer.number > 1", "answer.calls.exists(c, c.denied)"])
        if "t.f" in tools and self.chance(0.5):
            gate = {"from": "anyone", "deadline": "30m", "when": "size(state.log) < 3"}
            agent["approvals"] = {"t.f": gate if self.chance(0.5) else "none"}
        step: dict[str, Any] = {"agent": agent, **({"timeout": "9m"} if self.chance(0.2) else {})}
        if self.chance(0.5):
            step["retry"] = self.retry()
        return step

    def pick(self, depth: int) -> dict[str, Any]:
        return {"call": "pick"}

    def say(self, depth: int) -> dict[str, Any]:
        return {"say": "${{ size(state.log) }} so far"}

    def broken(self, depth: int) -> dict[str, Any]:
        return {"say": "${{ 1 / state.zero }}"}

    def ask(self, depth: int) -> dict[str, Any]:
        form = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
        return {"ask": {"title": "How many?", "form": form, "deadline": "1h"}}

    def approve(self, depth: int) -> dict[str, Any]:
        on_deadline = self.random.choice(["reject", "fail"])
        step: dict[str, Any] = {
            "approve": {"title": "Go?", "from": "anyone", "deadline": "30m", "on_deadline": on_deadline}
        }
        if depth and self.chance(0.5):
            step["on_reject"] = self.steps(depth - 1)[:2]
        return step

    def set(self, depth: int) -> dict[str, Any]:
        return {"set": {"log": self.count}}

    def wait(self, depth: int) -> dict[str, Any]:
        return {"wait": {"for": self.random.choice(["5s", "10m"])}}

    def fail(self, depth: int) -> dict[str, Any]:
        return {"fail": {"message": "No.", "code": "custom"}}

    def end(self, depth: int) -> dict[str, Any]:
        return {"return": {"early": True}}

    def leave(self, depth: int) -> dict[str, Any]:
        return {self.random.choice(["break", "continue"]): True}

    def body(self, depth: int) -> list[dict[str, Any]]:
        """The steps of a loop, which they may leave."""
        self.looping += 1
        steps = self.steps(depth)[:2]
        self.looping -= 1
        return steps

    def switch(self, depth: int) -> dict[str, Any]:
        cases: list[dict[str, Any]] = [{"when": "size(state.log) > 1", "steps": self.steps(depth - 1)}]
        if self.chance(0.7):
            cases.append({"default": True, "steps": self.steps(depth - 1)})
        return {"switch": cases, **self.block()}

    def parallel(self, depth: int) -> dict[str, Any]:
        branches = {name: self.steps(depth - 1) for name in "abc"[: self.random.randint(2, 3)]}
        drawn = self.random.random()
        join = {"join": "any" if drawn < 0.28 else 2} if drawn < 0.4 else {}
        return {"parallel": branches, **join, **self.block()}

    def try_(self, depth: int) -> dict[str, Any]:
        return {"try": self.steps(depth - 1), **self.block()}

    def for_each(self, depth: int) -> dict[str, Any]:
        loop: dict[str, Any] = {"as": f"item{self.count}", "items": list(range(self.random.randint(0, 4)))}
        loop["steps"] = self.body(depth - 1)
        if self.chance(0.5):
            loop["steps"].insert(0, {"id": f"read_{loop['as']}", "say": f"${{{{ {loop['as']} }}}}"})
        if self.chance(0.6):
            loop["max_parallel"] = self.random.randint(1, 3)
        if self.chance(0.5):
            loop["on_failure"] = "isolate"
        if self.chance(0.5):
            loop["rollback"] = self.random.choice(["all", "none"])
        if self.chance(0.3):
            loop["output"] = "${{ index }}" if self.chance(0.8) else "${{ 1 / state.zero }}"
        return {"for_each": loop, **self.block()}

    def repeat(self, depth: int) -> dict[str, Any]:
        loop: dict[str, Any] = {"max": self.random.randint(1, 3), "steps": self.body(depth - 1)}
        if self.chance(0.6):
            condition = self.random.choice(["size(state.log) > 2", "index > 0", "1 / state.zero > 0"])
            loop[self.random.choice(["while", "until"])] = condition
        return {"repeat": loop, **self.block()}

    def block(self) -> dict[str, Any]:
        return {"timeout": "3m"} if self.chance(0.2) else {}


def random_document(random: Random, *, agents: bool = False) -> str:
    return yaml.safe_dump(_Author(random, agents).document(), sort_keys=False, allow_unicode=True)


def random_plan(random: Random, *, agents: bool = False) -> Plan:
    return plan_of(random_document(random, agents=agents))
