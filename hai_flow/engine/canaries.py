"""Canaries: seeded questions that have to be refused. A canary is a run of a workflow made of a question that was asked
before: one step with its path and rules, whose tool (`hai_flow.steps.built_in.nothing`) performs nothing, with
arguments and texts given anew, since the real ones may be personal. The path is the step's own: a pair of brackets is a
`for_each` over one item, and ids of this workflow alone may be any part of a path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from hai_flow import values
from hai_flow.definition import paths
from hai_flow.definition.names import name_forms
from hai_flow.definition.people.calendars import count_working_days
from hai_flow.definition.plan import Approve, Plan, Template
from hai_flow.engine.events import PendingOpened
from hai_flow.engine.pendings.selectors import REQUESTER
from hai_flow.engine.pendings.votes import Rules, derive_rules
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.errors import Rejected
from hai_flow.values import Json

CANARY: Final = name_forms.SEEDED
"""The name of the workflow, which no author can publish and no request can start."""
ASKER: Final = "service:oversight"
"""The requester of every canary, and of no other run of that workflow."""
NOTHING: Final = "hai_flow.steps.built_in.nothing"
_TOOL: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)(?:\.([A-Za-z_][A-Za-z0-9_-]*))?")
_OPTIONS: Final = ("approve", "reject")


class NotImitable(ValueError):
    """No canary can look like this question. The message says why."""


class Disguise(msgspec.Struct, frozen=True):
    """What an open canary shows of its run: the workflow, with the version and the digest (hex) of the one that it
    imitates, and the requester."""

    workflow: str
    version: int
    sha256: str
    requester: str


def find_disguise(state: RunState) -> Disguise | None:
    """What the run shows in place of its workflow and requester while its question is open; None: it is no canary."""
    return read_disguise(state.input) if is_canary(state.workflow, state.requester) else None


def demand_unreserved(workflow: str) -> None:
    """Raises Rejected 409 for the workflow of canaries, where somebody else wants to start it."""
    if workflow == CANARY:
        raise Rejected(409, "workflow_reserved", f"{CANARY}: the server alone starts its runs (docs/oversight.md).")


def is_canary(workflow: str, requester: str) -> bool:
    """Whether the server has seeded the run of this workflow and requester: another's input disguises nothing."""
    return workflow == CANARY and requester == ASKER


def read_disguise(input: Json) -> Disguise | None:
    """The disguise in the input of a canary's run; None: it was taken out."""
    if not isinstance(input, dict):
        return None
    return Disguise(str(input["workflow"]), int(input["version"]), str(input["sha256"]), str(input["requester"]))


def disguise_state(state: RunState) -> RunState:
    """The run as those see it who are asked: of an open canary as if it were one of the imitated workflow."""
    disguise = None if state.ended else find_disguise(state)
    if disguise is None:
        return state
    name, version, who = disguise.workflow, disguise.version, disguise.requester
    return replace(state, workflow=name, version=version, requester=who, instigators=())


def write_input(plan: Plan, path: str, requester: str, content: Mapping[str, Json]) -> dict[str, Json]:
    """The input of a canary's run that imitates one of the plan, asking at `path`, which `requester` seems to have
    started."""
    keys: list[Json] = [paths.unescape(key) for key in paths.keys_of(path)]
    model = {"workflow": plan.name, "version": plan.version, "sha256": plan.sha256.hex()}
    return {**model, "requester": requester, "keys": keys, **content}


def name_workflow(state: RunState) -> str:
    """The workflow that those read who are asked a question of the run: of a canary the one that it imitates."""
    disguise = find_disguise(state)
    return state.workflow if disguise is None or state.ended else disguise.workflow


def write_workflow(
    plan: Plan, opened: PendingOpened, path: str, content: Mapping[str, Json], form: Json = None, seq: int = 0
) -> bytes:
    """The document of a canary that looks like the question `opened` of a run of the plan, asked at `path`, which may
    name other iterations. `content` is what it shows:
    `title` and `message` (without them as if the author had written none), `arguments` of a call or `evidence`.
    `form`, and `summary` of the content, take the place of one that is filled in from the run. `seq`: the number of the
    event that asked. With a `wait` in the content, the run waits so long before. Raises NotImitable."""
    *loops, id = _split_path(path)
    step = _write_step(id, opened, content, _write_policy(plan, opened, content, form))
    for number, loop in reversed(list(enumerate(loops))):
        each = {"items": [0], "as": f"item_{number}", "key": f"${{{{ input.keys[{number}] }}}}", "steps": [step]}
        step = {"id": loop, "for_each": each}
    tools = {} if opened.kind == "approve" else {"tools": _write_tool(plan, opened)}
    waits: list[Json] = [_WAIT] if "wait" in content else []
    events = _EVENTS + _EVENTS_OF_LOOP * len(loops) + _EVENTS_OF_WAIT * len(waits)
    document = {
        "hai": "flow/v1",
        "name": CANARY,
        **({"title": plan.title} if plan.title else {}),
        **_write_summary(plan, content),
        "queue": plan.queue,
        "input": {**_INPUT, "required": [*_INPUT["required"], *(name for name in CONTENT if name in content)]},
        **({"roles": {name: list(members) for name, members in plan.roles.items()}} if plan.roles else {}),
        **({"calendar": plan.calendar} if plan.calendar != "default" else {}),
        **({"chat": False} if not plan.chat else {}),
        **tools,
        "steps": [*waits, *[_SKIPPED] * min(seq - events, SKIPPED_MAX), step],
    }
    # A version of its own for each text: the same question twice is the same version.
    version = int.from_bytes(sha256(values.dumps(document)).digest()[:4], "big") % 999_999_999 + 1
    return values.dumps({**document, "version": version})


CONTENT: Final = ("title", "message", "summary", "arguments", "evidence")
"""What a canary shows, by the names that the input of its run has for it."""
SKIPPED_MAX: Final = 200
_EVENTS: Final = 4  # of a run, its turn, the step and the question
_EVENTS_OF_LOOP: Final = 2
_EVENTS_OF_WAIT: Final = 4  # 6 where its turn ends meanwhile
_WAIT: Final[Json] = {"wait": {"for": "${{ input.wait }}"}}
_SKIPPED: Final[Json] = {"wait": {"for": "1s"}, "if": "input.version < 0"}
"""A step that is one event, so that the question has the number of the real one."""
_TEXT: Final = {"type": "string"}
_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["workflow", "version", "sha256", "requester", "keys"],
    "additionalProperties": False,
    "properties": {
        "workflow": _TEXT,
        "version": {"type": "integer"},
        "sha256": _TEXT,
        "requester": _TEXT,
        "title": _TEXT,
        "message": _TEXT,
        "summary": _TEXT,
        "wait": _TEXT,
        "keys": {"type": "array", "items": _TEXT},
        "arguments": {"type": "object"},
        "evidence": {},
    },
}


def _split_path(path: str) -> list[str]:
    """The ids of the loops around the step, outermost first, and its own. Raises NotImitable."""
    if any(paths.escape(paths.unescape(key)) != key for key in paths.keys_of(path)):
        raise NotImitable("expected the key of an iteration between each pair of brackets, as paths of a run have it")
    if paths.UNDO in path or paths.FINALLY in path:
        raise NotImitable("it stands in a `finally` or an `undo`, which a run shows as its end")
    return [part.strip("/") for part in paths.plan_path(path).split("[]")]


def _write_summary(plan: Plan, content: Mapping[str, Json]) -> dict[str, Json]:
    is_filled_in = plan.summary is not None and bool(plan.summary.holes)
    if is_filled_in != ("summary" in content):
        raise NotImitable(
            "the `summary` of its workflow is filled in from the run, which may be personal; expected one in its place"
            if is_filled_in
            else "expected no `summary`: that of its workflow is the same each time, or it has none"
        )
    if plan.summary is None:
        return {}
    return {"summary": "${{ input.summary }}" if is_filled_in else plan.summary.written}


def _write_tool(plan: Plan, opened: PendingOpened) -> dict[str, Json]:
    name = _TOOL.fullmatch(opened.tool or "")
    if name is None:
        raise NotImitable(f"it asks about `{opened.tool}`; expected a call of a tool, or an `approve`")
    tool, function = name.groups()
    effect = {} if opened.effect in (None, "write") else {"effect": opened.effect}
    chat = {"chat": False} if tool in plan.tools_without_chat else {}
    return {tool: {"python": NOTHING if function else f"{NOTHING}:perform", **effect, **chat}}


def _write_step(
    id: str, opened: PendingOpened, content: Mapping[str, Json], policy: dict[str, Json]
) -> dict[str, Json]:
    others = [option for option in opened.options if option != "approve"]
    rest = {"on_decision": dict.fromkeys(others, _END), "catch": [{"errors": ["*"], "steps": _END}]}
    if opened.kind == "approve":
        if opened.evidence is None and content.get("evidence") is not None:
            raise NotImitable("expected no `evidence`: this step shows none")
        evidence = {} if opened.evidence is None else {"evidence": "${{ input.evidence }}"}
        return {"id": id, "approve": {**policy, **evidence}, **rest}
    arguments, model = content.get("arguments"), values.loads(opened.args or "{}")
    if not isinstance(arguments, dict) or not isinstance(model, dict) or sorted(arguments) != sorted(model):
        names = ", ".join(sorted(model)) if isinstance(model, dict) else ""
        raise NotImitable(f"expected the arguments that this step shows ({names or 'none'})")
    passed = {name: f"${{{{ input.arguments[{values.dumps(name).decode()}] }}}}" for name in sorted(arguments)}
    return {"id": id, "call": opened.tool, **({"with": passed} if passed else {}), "approval": policy, **rest}


_END: Final[list[Json]] = [{"return": None}]


def _write_policy(plan: Plan, opened: PendingOpened, content: Mapping[str, Json], form: Json) -> dict[str, Json]:
    rules = derive_rules(PendingState(opened))
    if set(rules.from_) <= {REQUESTER}:
        raise NotImitable("it asks its requester, and a canary has none")
    model = _find_form(plan, paths.plan_path(opened.path))
    if model is not None and model.holes and form is None:
        raise NotImitable("its form is filled in from the run, which may be personal; expected a `form` in its place")
    if form is not None and (model is None or not model.holes):
        raise NotImitable("expected no `form`: its own is the same each time, or it has none")
    if opened.kind == "approve" and "title" not in content:
        raise NotImitable("expected a `title`, as this step has")
    texts = {name: f"${{{{ input.{name} }}}}" for name in ("title", "message") if name in content}
    return {
        **texts,
        **_write_stage(rules),
        **({} if opened.schema is None else {"form": opened.schema if form is None else form}),
        "options": list(opened.options or _OPTIONS),
        "reasons": dict.fromkeys(rules.reasons, "required"),
        "on_deadline": [*({"escalate": _write_stage(stage)} for stage in rules.escalations), "fail"],
        **({"reject_when": rules.reject_when} if rules.reject_when != "any" else {}),
        **({"pause_clock": rules.pause_clock} if rules.pause_clock != "run" else {}),
        **({"confirm": True} if rules.confirm else {}),
        **({"veto": list(rules.veto)} if rules.veto else {}),
        **({"pick": rules.pick} if rules.pick else {}),
        **({"combine": dict(rules.combine)} if rules.combine else {}),
        **({"edit": _write_edit(rules.edit), "rules": rules.rules} if opened.kind == "gate" else {}),
    }


def _find_form(plan: Plan, path: str) -> Template | None:
    """The form of the step's question, as its author wrote it."""
    step = plan.steps.get(path)
    if step is None:
        return None
    gate = step.verb if isinstance(step.verb, Approve) else step.approval
    return None if gate is None else gate.policy.form


def _write_stage(rules: Rules) -> dict[str, Any]:
    return {
        "from": list(rules.from_),
        "exclude": list(rules.exclude),
        "quorum": rules.quorum,
        "notify": list(rules.notify),
        "remind": [_write_duration(each) for each in rules.remind],
        "deadline": _write_duration(rules.deadline or "7d"),
    }


def _write_edit(edit: bool | tuple[str, ...]) -> Json:
    return edit if isinstance(edit, bool) else list(edit)


def _write_duration(duration: int | str) -> str:
    """As an author writes it; a text is one that counts working days."""
    assert isinstance(duration, int) or duration == "7d" or count_working_days(duration), "no other text is kept"
    return f"{duration}ms" if isinstance(duration, int) else duration
