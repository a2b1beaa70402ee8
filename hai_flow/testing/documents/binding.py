"""A suite held against its workflow: whatever it names must be there, whatever it gives must fit (one finding each).

A name that the workflow does not have would otherwise pass in silence (`not_called`), or wait for nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from hai_flow.definition.names.wording import shorten, suggestion
from hai_flow.definition.paths import plan_path
from hai_flow.definition.plan import TRIGGER_KINDS, Agent, Call, FrontendTool, Http, Plan, Schema, Step
from hai_flow.definition.yaml.document import Path
from hai_flow.errors import Finding
from hai_flow.primitives.json_pointers import read_index, unescape
from hai_flow.testing.documents.step_names import (
    asks_people,
    calls_of,
    effects_of,
    events_of,
    find_policy,
    is_request,
    may_call,
)
from hai_flow.testing.documents.triggering import triggers_meant
from hai_flow.testing.instances import stands_at
from hai_flow.testing.suite import Answer, Case, CaseTrigger, Decide, Expect, Mock, Signal, Suite
from hai_flow.values import Json

_DOUBT: Final = ("happened", "again", "fail")  # the possible answers on a call whose outcome was lost


def check_suite(suite: Suite, plan: Plan) -> list[Finding]:
    """Everything in `suite` that does not fit the workflow `plan`, in document order."""
    checker = _Checker(suite, plan)
    checker.check()
    return sorted(checker.findings, key=lambda finding: (finding.line, finding.column))


class _Checker:
    def __init__(self, suite: Suite, plan: Plan) -> None:
        self.suite = suite
        self.plan = plan
        self.findings: list[Finding] = []
        self.calls = calls_of(plan)
        self.events = events_of(plan)
        effects = list(effects_of(plan))
        self.effects = {step.path for step in effects} | {step.id for step in effects if step.id in plan.ids}
        self.asking = {step.path for step in plan.steps.values() if asks_people(step)}
        self.asks_services = any(isinstance(step.verb, Http) for step in effects)
        self.agents = [step.verb for step in effects if isinstance(step.verb, Agent)]

    def check(self) -> None:
        self._mocks(self.suite.mock.values())
        for case in self.suite.cases:
            self._case(case)

    def _case(self, case: Case) -> None:
        self._mocks(case.mock.values())
        if case.start is None:
            self._value(self.plan.input, self.plan.input.with_defaults(case.input), (*case.at, "input"), "the input")
        else:
            self._start(case.start)
        for name, value in case.state.items():
            at = (*case.at, "state", name)
            variable = self.plan.state.get(name)
            if variable is None:
                self._unknown(name, self.plan.state, at, "state", "the workflow declares no state", key=True)
            else:
                self._value(variable.schema, value, at, f"the state `{name}`")
        for entry in case.script:
            if isinstance(entry, Expect):
                self._expect(entry)
            elif isinstance(entry, (Decide, Answer)):
                self._pending(entry.pending, (*entry.at, "pending"))
                if isinstance(entry, Decide) and entry.refused is None:
                    self._decision(entry)
            elif isinstance(entry, Signal):
                self._signal(entry)
        if case.expect is not None:
            self._expect(case.expect)

    def _signal(self, signal: Signal) -> None:
        """An event that nearly has the name of one that is waited for; any other may be sent on purpose."""
        hint = suggestion(signal.type, self.events, likeness=0.8)
        if signal.type not in self.events and hint:
            message = f"the workflow waits for no event `{shorten(signal.type, 60)}`{hint}"
            self._find((*signal.at, "type"), "test.unknown_event", message)

    def _start(self, start: CaseTrigger) -> None:
        """A start that no trigger, or more than one, of the workflow answers to."""
        meant = triggers_meant(self.plan, start)
        if len(meant) == 1:
            return
        key = {"webhook": "path", "event": "type", "schedule": "cron", "run": "workflow"}[start.kind]
        others = [getattr(each, key) for each in triggers_meant(self.plan, replace(start, fields={}))]
        if meant:
            message = f"the workflow has {len(meant)} triggers `{start.kind}` that this may mean; say which by `{key}`"
        elif others:
            sentence = f"no `{start.kind}` trigger has the {key}"
            self._unknown(str(start.fields[key]), others, (*start.at, key), "start", sentence)
            return
        else:
            kinds = sorted({TRIGGER_KINDS[type(trigger)] for trigger in self.plan.triggers})
            message = f"the workflow has no such trigger `{start.kind}`; its triggers are {', '.join(kinds)}"
        self._find(start.at, "test.start", message, key=True)

    # --- values ---------------------------------------------------------------------------------------------------

    def _value(self, schema: Schema, value: Json, at: Path, what: str) -> None:
        for fault in schema.findings(value):
            place = (*at, *_place(value, fault["path"]))
            self._find(place, "test.value", f"{what} does not fit the workflow: {fault['message']}")

    # --- names ----------------------------------------------------------------------------------------------------

    def _mocks(self, mocks: Iterable[Mock]) -> None:
        for mock in mocks:
            if not self._is_effect(mock.name) and (tool := self._frontend_tool(mock.name)) is not None:
                message = f"`{mock.name}` is only shown to a client (`answer: none`): nothing of it is mocked"
                if tool.answered:
                    message = (
                        f"`{mock.name}` asks a client, which is not mocked; answer it in the script: `answer: {{...}}`"
                    )
                self._find(mock.at, "test.mock", message, key=True)
            elif not self._is_effect(mock.name):
                self._unknown_effect(mock.name, mock.at, "mock")

    def _frontend_tool(self, name: str) -> FrontendTool | None:
        """The tool of a client that `name` means, or the step of that name calls."""
        step = self.plan.steps.get(stands_at(name, self.plan.ids))
        tool = step.verb.tool if step is not None and isinstance(step.verb, Call) else self.plan.tools.get(name)
        return tool if isinstance(tool, FrontendTool) else None

    def _is_effect(self, name: str) -> bool:
        if name in self.calls or plan_path(name) in self.effects or stands_at(name, self.plan.ids) in self.effects:
            return True
        if is_request(name):
            return self.asks_services
        return any(f"{name.partition('.')[0]}.*" in agent.tools and may_call(agent, name) for agent in self.agents)

    def _expect(self, expect: Expect) -> None:
        expected, at = expect.values, expect.at
        for number, path in enumerate(expected.get("pending", ())):
            self._pending(path, (*at, "pending", number))
        for path in expected.get("escalated", {}):
            self._check_escalation(path, (*at, "escalated", path))
        names = [((*at, "calls", name), name) for name in expected.get("calls", {})]
        names += [((*at, "called", name), name) for name in expected.get("called", {})]
        names += [((*at, "not_called", number), name) for number, name in enumerate(expected.get("not_called", ()))]
        for place, name in names:
            if not self._is_effect(name):
                self._unknown_effect(name, place, "call")
        for number, notice in enumerate(expected.get("notified", ())):
            if isinstance(notice, dict) and "pending" in notice:
                self._pending(notice["pending"], (*at, "notified", number, "pending"))
        for name in expected.get("steps", {}):
            if stands_at(name, self.plan.ids) not in self.plan.steps:
                names_known = {**self.plan.ids, **self.plan.steps}
                self._unknown(name, names_known, (*at, "steps", name), "step", "the workflow has no step", key=True)
        for name in expected.get("state") or {}:
            if name not in self.plan.state:
                place = (*at, "state", name)
                self._unknown(name, self.plan.state, place, "state", "the workflow declares no state", key=True)

    def _pending(self, path: str, at: Path) -> None:
        step = self._asking_step(path, at)
        if step is not None and not asks_people(step):
            self._unknown(path, self.asking, at, "pending", "people are not asked at")

    def _decision(self, entry: Decide) -> None:
        """A decision that the step does not offer is refused by every run."""
        step = self.plan.steps.get(stands_at(entry.pending, self.plan.ids))
        policy = None if step is None else find_policy(step)
        if step is None or policy is None:
            return
        options = {*policy.options, *(_DOUBT if step.delivery != "at_least_once" else ())}
        if entry.decision and entry.decision not in options:
            self._unknown(entry.decision, options, (*entry.at, "decision"), "decision", f"`{step.path}` has no option")

    def _check_escalation(self, path: str, at: Path) -> None:
        step = self._asking_step(path, at)
        if step is None:
            return
        policy = find_policy(step)
        if policy is None or not policy.escalations:
            self._find(at, "test.escalated", f"`{path}` has no `escalate` in its `on_deadline`", key=True)

    def _asking_step(self, path: str, at: Path) -> Step | None:
        """The step at a path of a run. A name that is none is a finding; so is an id of a step that stands deeper."""
        if not path:
            return None  # it is missing, or no text: the reader has reported it
        step = self.plan.steps.get(stands_at(path, self.plan.ids))
        if step is None:
            near = self._suggest_near(path)
            if near is None:
                self._unknown(path, self.asking, at, "pending", "the workflow has no step", key=True)
            else:
                message = (
                    f"the workflow has no step at `{shorten(path, 60)}`; write `{near.id}`, the id of the step that "
                )
                self._find(at, "test.path", f"{message}stands at `{near.path}`", key=True)
        elif "[]" in path:
            message = f"expected the path of one iteration, with its key in the brackets, found `{path}`"
            self._find(at, "test.path", message, key=True)
            return None
        return step

    def _suggest_near(self, path: str) -> Step | None:
        """The step with the id that a wrong path ends with."""
        id = path.rpartition("/")[2].partition("[")[0]
        return self.plan.steps[self.plan.ids[id]] if id in self.plan.ids else None

    # --- findings -------------------------------------------------------------------------------------------------

    def _unknown_effect(self, name: str, at: Path, what: str) -> None:
        """Of a tool with functions, one of these is meant, and not the tool."""
        effects = self.effects | self.calls
        functions = {each for each in effects if each.startswith(f"{name.partition('.')[0]}.")}
        self._unknown(name, functions or effects, at, what, "no step of the workflow performs", key=True)

    def _unknown(
        self,
        name: str,
        known: Collection[str] | Mapping[str, Any],
        at: Path,
        what: str,
        sentence: str,
        *,
        key: bool = False,
    ) -> None:
        hint = suggestion(name, list(known)) or (f"; there is {', '.join(sorted(known))}" if known else "")
        self._find(at, f"test.unknown_{what}", f"{sentence} `{shorten(name, 60)}`{hint}", key=key)

    def _find(self, at: Path, code: str, message: str, *, key: bool = False) -> None:
        line, column = self.suite.document.position(at, key=key)
        self.findings.append(Finding(self.suite.file, line, column, "error", code, message))


def _place(value: Json, pointer: str) -> tuple[str | int, ...]:
    """The path that a JSON Pointer means in `value`: list positions become numbers."""
    place: list[str | int] = []
    for part in pointer.split("/")[1:]:
        index = read_index(part) if isinstance(value, list) else None
        key: str | int = unescape(part) if index is None else index
        place.append(key)
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            value = None
    return tuple(place)
