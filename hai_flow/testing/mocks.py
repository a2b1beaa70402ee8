"""A stand-in for the world: the effects of a run answered from a test's `mock` (docs/testing.md).

An effect that is not mocked, and a list of behaviours that has come to its end, fail the case: a test must never reach
out, nor invent an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import asdict, replace

from hai_flow import values
from hai_flow.definition.paths import plan_path
from hai_flow.definition.plan import (
    EFFECTS,
    Agent,
    AgentTurn,
    Call,
    FrontendTool,
    Http,
    Llm,
    Plan,
    Run,
    Schema,
    Step,
    find_reading_step,
)
from hai_flow.definition.yaml.document import Path
from hai_flow.engine import commands as c
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.events import Error, ModelUse
from hai_flow.engine.runs.children import TIMED_OUT
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.engine.steps.still import find_gate_to_check, find_why, judge
from hai_flow.testing.cassettes import CassetteError, Tape, is_recorded
from hai_flow.testing.documents.step_names import agent_of, call_name, is_request, may_call, means_request, names_of
from hai_flow.testing.failures import CaseFailed
from hai_flow.testing.suite import ABSENT, Behaviour, Mock, MockError, ToolCall
from hai_flow.values import Json

_RESPONSE: Final = ("status", "headers", "json", "text", "url")
MOCK: Final = "mock"  # the provider of the models of a test
_STATUS_RETRIABLE: Final = frozenset((408, 425, 429))


class Mocks:
    """The mocks of one case, with a memory of the calls."""

    def __init__(self, plan: Plan, *mocks: Mapping[str, Mock], tape: Tape | None = None) -> None:
        """`mocks`: the case's own, then the file's. The case's mock of a name replaces the file's. `tape` answers the
        calls that no mock answers."""
        self._plan = plan
        self._tape = tape
        self._mocks = mocks
        self._used: Counter[Path] = Counter()  # behaviours taken, by the place of the mock
        self._calls: list[tuple[str, ...]] = []  # the names of each call
        self._arguments: list[Json] = []  # and what it was called with
        self._rest: dict[str, Behaviour] = {}  # by agent: its answer behind the calls that it has made

    def count(self, name: str) -> int:
        """How often an effect of that name was called, every attempt counted."""
        if is_request(name):
            return sum(any(means_request(name, each) for each in names) for names in self._calls)
        return sum(name in names for names in self._calls)

    def list_unused(self, mocks: Iterable[Mock]) -> Iterator[tuple[Mock, int]]:
        """Those of `mocks` that are lists of which calls have not taken everything, with the number of calls."""
        for mock in mocks:
            if mock.successive and self._used[mock.at] < len(mock.behaviours):
                yield mock, self._used[mock.at]

    def calls_made(self, name: str) -> list[Json]:
        """The arguments of each call of an effect of that name, in order."""
        means = means_request if is_request(name) else str.__eq__
        return [
            arguments
            for names, arguments in zip(self._calls, self._arguments, strict=True)
            if any(means(name, each) for each in names)
        ]

    def _record_call(self, state: RunState, path: str, names: tuple[str, ...]) -> None:
        self._calls.append(names)
        self._arguments.append(values.loads(state.steps[path].args or "{}"))

    def perform(self, state: RunState, path: str, attempt: int, now: int) -> c.Command:
        """The result of the attempt, by its mock or the recording. Raises `CaseFailed` where the test has neither."""
        step = Draft(self._plan, state, now, DEFAULT_BOUNDS).step(path)
        assert isinstance(step.verb, EFFECTS), f"{path} is performed, but is no effect"
        names = names_of(self._plan, path)
        gate = None if state.steps[path].reading else find_gate_to_check(state, step)
        if state.steps[path].reading or gate is not None:
            checked = self._check_gate(state, step, attempt, now, gate)
            if (
                state.steps[path].reading
                or checked.why is not None
                or (isinstance(step.verb, Run) and path not in state.children)
            ):
                return checked
        if isinstance(step.verb, AgentTurn):
            if self._is_taped(step, names):
                return self._replay(state, step, names, attempt, now)
            return self._answer_turn(state, step, step.verb, names, attempt)
        if isinstance(step.verb, Http):
            names = (*names, _request_name(state, path))
        if self._is_taped(step, names):
            return self._replay(state, step, names, attempt, now)
        self._record_call(state, path, names)
        if isinstance(step.verb, Run) and step.verb.detach and self._mock(names) is None:
            output = {"run_id": state.children[path]}  # all that its step learns of it
            return c.ChildEnded(path=path, attempt=attempt, status="finished", output=output)
        behaviour = self._answer(step, names)
        if behaviour.error is None and isinstance(step.verb, Http):
            behaviour = self._response(state, step, step.verb, behaviour, now)
        if isinstance(step.verb, Run):
            return _child_ended(path, attempt, behaviour)
        if behaviour.error is not None:
            return _failure_command(path, attempt, behaviour.error)
        output = behaviour.output
        if isinstance(step.verb, Llm) and step.verb.output is not None:
            _demand_fit(path, step.verb.output, output)
        used = (ModelUse(step.verb.model, MOCK, MOCK),) if isinstance(step.verb, Llm) else ()
        return c.StepSucceeded(path=path, attempt=attempt, output=output, used=used)

    def _check_gate(
        self, state: RunState, step: Step, attempt: int, now: int, gate: PendingState | None
    ) -> c.GateChecked:
        """What the attempt finds out about its gate: the tool of `still` is mocked as any other call."""
        draft, args = Draft(self._plan, state, now, DEFAULT_BOUNDS), state.steps[step.path].args or "{}"
        reading, roots, fault = find_reading_step(step), dict[str, Json](), ""
        if reading is not None:
            assert isinstance(reading.verb, Call)
            try:
                arguments = draft.render(reading.verb.arguments, step, args=values.loads(args))
            except Raised as raised:
                fault = raised.message
            else:
                names = tuple(dict.fromkeys((call_name(reading.verb), reading.verb.tool.name)))
                self._calls.append(names)
                self._arguments.append(arguments)
                behaviour = self._answer(reading, names)
                if behaviour.error is None:
                    roots["response"] = behaviour.output
                else:
                    fault = f"the tool `{reading.verb.tool.name}` failed: {behaviour.error.message}"
        verdict = judge(draft, step, args, roots)
        if fault:
            verdict = replace(verdict, holds=False, fault=fault)
        why = None if gate is None else find_why(gate, step, None, verdict)
        return c.GateChecked(path=step.path, attempt=attempt, values=verdict.values, fault=verdict.fault, why=why)

    # --- recorded answers -----------------------------------------------------------------------------------------

    def _is_taped(self, step: Step, names: tuple[str, ...]) -> bool:
        tape = self._tape
        return tape is not None and tape.knows_any and is_recorded(step) and self._mock(names) is None

    def _replay(self, state: RunState, step: Step, names: tuple[str, ...], attempt: int, now: int) -> c.Command:
        """The recorded result of the attempt. An agent counts as one call, however often its model answers."""
        loop = state.steps[agent_of(step.path)].loop if isinstance(step.verb, AgentTurn) else None
        if loop is None or loop.last == loop.begun:
            self._record_call(state, step.path if loop is None else agent_of(step.path), names)
        assert self._tape is not None
        try:
            return self._tape.answer(self._plan, state, step, attempt, now)
        except CassetteError as error:
            raise CaseFailed(f"step `{names[0]}` (line {step.line} of the workflow): {error}") from None

    # --- agents ---------------------------------------------------------------------------------------------------

    def _answer_turn(
        self, state: RunState, step: Step, turn: AgentTurn, names: tuple[str, ...], attempt: int
    ) -> c.Command:
        """The next answer of an agent's model. A behaviour with calls and an end is two answers: first the calls."""
        path = agent_of(step.path)
        loop = state.steps[path].loop
        assert loop is not None
        if loop.last == loop.begun:
            self._record_call(state, path, names)
        behaviour = self._rest.pop(path, None) or self._next(self._plan.steps[plan_path(path)], names)
        if behaviour.tool_calls and (behaviour.output is not ABSENT or behaviour.error is not None):
            self._rest[path] = replace(behaviour, tool_calls=())
            behaviour = replace(behaviour, output=ABSENT, error=None)
        if behaviour.error is not None:
            return _failure_command(step.path, attempt, behaviour.error)
        answer: dict[str, Json] = {
            "text": "",
            "calls": [self._call(path, turn, each) for each in enumerate(behaviour.tool_calls, 1)],
        }
        if not behaviour.tool_calls:
            answer["text"] = behaviour.output if isinstance(behaviour.output, str) else _text(behaviour.output)
            if turn.output is not None:
                _demand_fit(path, turn.output, behaviour.output)
                answer["output"] = behaviour.output
        used = (ModelUse(turn.model, MOCK, MOCK),)
        return c.StepSucceeded(path=step.path, attempt=attempt, output=answer, used=used)

    def _call(self, path: str, turn: AgentTurn, numbered: tuple[int, ToolCall]) -> dict[str, Json]:
        """A call as a model's answer has it."""
        number, call = numbered
        agent = self._plan.steps[plan_path(path)].verb
        assert isinstance(agent, Agent)
        if not may_call(agent, call.name):
            allowed = ", ".join(agent.tools)
            raise CaseFailed(f"the model of `{path}` calls `{call.name}`, but its `tools` are {allowed}")
        tool = self._plan.tools[call.name.partition(".")[0]]
        effect = tool.effect or ("read" if isinstance(tool, FrontendTool) else "write")
        call_record = {"id": f"call-{number}", "name": call.name, "args": _text(call.arguments), "effect": effect}
        faults = tool.parameters.findings(call.arguments) if isinstance(tool, FrontendTool) and tool.parameters else ()
        if faults:
            call_record["fault"] = "; ".join(f"{fault['path'] or '/'}: {fault['message']}" for fault in faults)
        return call_record

    # --- which behaviour ------------------------------------------------------------------------------------------

    def _answer(self, step: Step, names: tuple[str, ...]) -> Behaviour:
        behaviour = self._next(step, names)
        if behaviour.tool_calls:
            raise CaseFailed(f"the mock of `{step.path}` has `tool_calls`, but only an `agent` calls tools")
        return behaviour

    def _mock(self, names: tuple[str, ...]) -> Mock | None:
        exact = next((mocks[name] for mocks in self._mocks for name in names if name in mocks), None)
        if exact is not None or not names[-1:] or not is_request(names[-1]):
            return exact
        requests = (mock for mocks in self._mocks for mock in mocks.values() if is_request(mock.name))
        return next((mock for mock in requests if means_request(mock.name, names[-1])), None)

    def _next(self, step: Step, names: tuple[str, ...]) -> Behaviour:
        mock = self._mock(names)
        who = f"step `{step.path}` (line {step.line} of the workflow)"
        if mock is None:
            name = _mock_name(step)
            raise CaseFailed(
                f"{who} performs `{name}`, which is not mocked; write under `mock`: `{name}: {{output: ...}}`"
                + ("; or record it: `hai-flow test --record`" if is_recorded(step) else "")
            )
        number = self._used[mock.at]
        self._used[mock.at] += 1
        if not mock.successive:
            return mock.behaviours[0]
        if number >= len(mock.behaviours):
            count = len(mock.behaviours)
            supply = "1 call does" if count == 1 else f"{count} calls do"
            raise CaseFailed(
                f"the mock `{mock.name}` has run out: it says what {supply}, and {who} makes call {number + 1}; add to "
                f"its list, or make it a mapping that holds for every call"
            )
        return mock.behaviours[number]

    # --- http -----------------------------------------------------------------------------------------------------

    def _response(self, state: RunState, step: Step, http: Http, behaviour: Behaviour, now: int) -> Behaviour:
        """The response with the fields that the mock leaves out, or the error that it is: `expect` is asked as it would
        be."""
        output = behaviour.output
        if not isinstance(output, dict) or not output.keys() <= set(_RESPONSE):
            keys = ", ".join(_RESPONSE)
            raise CaseFailed(f"the mock of `{step.path}` answers a request: `output` takes the keys {keys}")
        args_text = state.steps[step.path].args
        request = {} if args_text is None else values.loads(args_text)
        body = output.get("json")
        text = "" if body is None else values.dumps(body).decode()
        response = {"status": 200, "headers": {}, "json": None, "text": text, "url": request.get("url", ""), **output}
        error = self._check_expectation(state, step, http, response, now)
        return Behaviour(behaviour.at, response if error is None else ABSENT, error)

    def _check_expectation(self, state: RunState, step: Step, http: Http, response: Json, now: int) -> MockError | None:
        status = response["status"]
        if http.expect is None:
            if isinstance(status, int) and 200 <= status < 300:
                return None
            again = status in _STATUS_RETRIABLE or (isinstance(status, int) and status >= 500)
            return MockError("http.status", f"The service answered {status}.", again, response)
        try:
            as_expected = Draft(self._plan, state, now, DEFAULT_BOUNDS).truth(http.expect, step, response=response)
        except Raised as raised:
            return MockError(raised.code, raised.message)
        return None if as_expected else MockError("http.expect", f"`{http.expect.source}` is false.", None, response)


def _request_name(state: RunState, path: str) -> str:
    """The request that a test may mean by its method and address."""
    request = values.loads(state.steps[path].args or "{}")
    return f"{request.get('method', 'GET')} {request.get('url', '')}"


def _text(value: Json) -> str:
    return values.dumps(value).decode()


def _demand_fit(path: str, schema: Schema, output: Json) -> None:
    faults = "; ".join(f"{fault['path'] or '/'}: {fault['message']}" for fault in schema.findings(output))
    if faults:
        raise CaseFailed(
            f"the mock of `{path}` does not fit the step's `output`: {faults}; to test such an answer, write "
            f"`error: {{code: llm.invalid_output}}`"
        )


def _mock_name(step: Step) -> str:
    """The name by which an author would most likely mock the effect: the call, else the path."""
    return call_name(step.verb) if isinstance(step.verb, Call) else step.path


def _child_ended(path: str, attempt: int, behaviour: Behaviour) -> c.ChildEnded:
    """The end of a mocked child run. Its error is the cause of the step's, which is `run.failed`; it was stopped
    if its error is `run.stopped`, or, by the step's timeout, `step.timeout`."""
    error = behaviour.error
    if error is None:
        return c.ChildEnded(path=path, attempt=attempt, status="finished", output=behaviour.output)
    if error.code == "step.timeout":
        return c.ChildEnded(path=path, attempt=attempt, status="stopped", reason=TIMED_OUT)
    if error.code == "run.stopped":
        return c.ChildEnded(path=path, attempt=attempt, status="stopped", reason=error.message)
    cause = Error(error.code, error.message, data=error.data)
    return c.ChildEnded(path=path, attempt=attempt, status="failed", error=cause)


def _failure_command(path: str, attempt: int, error: MockError) -> c.Command:
    if error.code == "step.lost":  # no report of the step brings that: the engine hears that the worker is gone
        return c.StepLost(path=path, attempt=attempt)
    return c.StepFailed(path=path, attempt=attempt, **asdict(error))
