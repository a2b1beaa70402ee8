"""A stand-in for the world: the effects of a run answered from a test's `mock` (docs/testing.md).

An effect that is not mocked, and a list of behaviours that has come to its end, fail the case: a test must never reach
out, nor invent an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from hai_flow import values
from hai_flow.definition.document import Path
from hai_flow.definition.plan import EFFECTS, Agent, Call, Http, Llm, Plan, Run, Step
from hai_flow.engine import commands as c
from hai_flow.engine.children import TIMED_OUT
from hai_flow.engine.draft import DEFAULT_BOUNDS, Draft, Raised
from hai_flow.engine.events import Error, ModelUse
from hai_flow.engine.state import RunState
from hai_flow.testing.failures import CaseFailed
from hai_flow.testing.names import call_name, may_call, names_of
from hai_flow.testing.suite import ABSENT, Behaviour, Mock, MockError, ToolCall
from hai_flow.values import Json

_RESPONSE: Final = ("status", "headers", "json", "text", "url")
MOCK: Final = "mock"  # who provides the models of a test
_STATUS_RETRIABLE: Final = frozenset((408, 425, 429))


class Mocks:
    """The mocks of one case, with a memory of the calls."""

    def __init__(self, plan: Plan, *mocks: Mapping[str, Mock]) -> None:
        """`mocks`: the case's own, then the file's. The case's mock of a name replaces the file's."""
        self._plan = plan
        self._mocks = mocks
        self._used: Counter[Path] = Counter()  # behaviours taken, by the place of the mock
        self._calls: list[tuple[str, ...]] = []  # the names of each call

    def count(self, name: str) -> int:
        """How often an effect of that name was called, every attempt counted."""
        return sum(name in names for names in self._calls)

    def perform(self, state: RunState, path: str, attempt: int, now: int) -> c.Command:
        """How the attempt ends. Raises `CaseFailed` where the test does not say."""
        step = Draft(self._plan, state, now, DEFAULT_BOUNDS).step(path)
        assert isinstance(step.verb, EFFECTS), f"{path} is performed, but is no effect"
        names = names_of(self._plan, path)
        self._calls.append(names)
        if isinstance(step.verb, Run) and step.verb.detach and self._mock(names) is None:
            output = {"run_id": state.children[path]}  # all that its step learns of it
            return c.ChildEnded(path=path, attempt=attempt, status="finished", output=output)
        behaviour = self._answer(step, names)
        if behaviour.error is None and isinstance(step.verb, Http):
            behaviour = self._response(state, step, step.verb, behaviour, now)
        if isinstance(step.verb, Run):
            return _child_ended(path, attempt, behaviour)
        if behaviour.error is not None:
            return _failed(path, attempt, behaviour.error)
        output = behaviour.output
        if isinstance(step.verb, (Llm, Agent)) and step.verb.output is not None:
            faults = "; ".join(f"{f['path'] or '/'}: {f['message']}" for f in step.verb.output.findings(output))
            if faults:
                raise CaseFailed(
                    f"the mock of `{path}` does not fit the step's `output`: {faults}; to test such an answer, write "
                    f"`error: {{code: llm.invalid_output}}`"
                )
        used = (ModelUse(step.verb.model, MOCK, MOCK),) if isinstance(step.verb, (Llm, Agent)) else ()
        return c.StepSucceeded(path=path, attempt=attempt, output=output, used=used)

    # --- which behaviour ------------------------------------------------------------------------------------------

    def _answer(self, step: Step, names: tuple[str, ...]) -> Behaviour:
        """The behaviour that ends the attempt; a model's tools are called on the way."""
        turns = 0
        while True:
            behaviour = self._next(step, names)
            if behaviour.tool_calls:
                if not isinstance(step.verb, Agent):
                    raise CaseFailed(f"the mock of `{step.path}` has `tool_calls`, but only an `agent` calls tools")
                for call in behaviour.tool_calls:
                    self._call_tool(step, step.verb, call)
            if behaviour.output is not ABSENT or behaviour.error is not None:
                return behaviour
            turns += 1
            assert isinstance(step.verb, Agent), "a behaviour without an end has tool calls"
            if turns >= step.verb.max_turns:
                error = MockError("agent.max_turns", f"The agent has not answered within {turns} turns.")
                return Behaviour(behaviour.at, error=error)

    def _call_tool(self, step: Step, agent: Agent, call: ToolCall) -> None:
        """A model calls a tool; its output goes to the model, which is mocked as well."""
        if not may_call(agent, call.name):
            allowed = ", ".join(agent.tools)
            raise CaseFailed(f"the model of `{step.path}` calls `{call.name}`, but its `tools` are {allowed}")
        names = (call.name, call.name.partition(".")[0])
        self._calls.append(names)
        self._next(step, names, by=f"the model of `{step.path}`")

    def _mock(self, names: tuple[str, ...]) -> Mock | None:
        return next((mocks[name] for mocks in self._mocks for name in names if name in mocks), None)

    def _next(self, step: Step, names: tuple[str, ...], by: str = "") -> Behaviour:
        mock = self._mock(names)
        who = by or f"step `{step.path}` (line {step.line} of the workflow)"
        if mock is None:
            name = names[0] if by else _mock_name(step)
            raise CaseFailed(
                f"{who} {'calls' if by else 'performs'} `{name}`, which is not mocked; write under `mock`: "
                f"`{name}: {{output: ...}}`"
            )
        number = self._used[mock.at]
        self._used[mock.at] += 1
        if not mock.successive:
            return mock.behaviours[0]
        if number >= len(mock.behaviours):
            count = len(mock.behaviours)
            known = "1 call does" if count == 1 else f"{count} calls do"
            raise CaseFailed(
                f"the mock `{mock.name}` has run out: it says what {known}, and {who} makes call {number + 1}; add to "
                f"its list, or make it a mapping that holds for every call"
            )
        return mock.behaviours[number]

    # --- http -----------------------------------------------------------------------------------------------------

    def _response(self, state: RunState, step: Step, http: Http, behaviour: Behaviour, now: int) -> Behaviour:
        """The response with the fields that the mock leaves out, or the error that it is: `expect` is asked as it would
        be."""
        given = behaviour.output
        if not isinstance(given, dict) or not given.keys() <= set(_RESPONSE):
            keys = ", ".join(_RESPONSE)
            raise CaseFailed(f"the mock of `{step.path}` answers a request: `output` takes the keys {keys}")
        known = state.steps[step.path].args
        asked = {} if known is None else values.loads(known)
        body = given.get("json")
        text = "" if body is None else values.dumps(body).decode()
        response = {"status": 200, "headers": {}, "json": None, "text": text, "url": asked.get("url", ""), **given}
        error = self._unexpected(state, step, http, response, now)
        return Behaviour(behaviour.at, response if error is None else ABSENT, error)

    def _unexpected(self, state: RunState, step: Step, http: Http, response: Json, now: int) -> MockError | None:
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


def _failed(path: str, attempt: int, error: MockError) -> c.Command:
    if error.code == "step.lost":  # nobody reports that: the engine is told that the worker is gone
        return c.StepLost(path=path, attempt=attempt)
    return c.StepFailed(
        path=path,
        attempt=attempt,
        code=error.code,
        message=error.message,
        retriable=error.retriable,
        data=error.data,
        retry_after=error.retry_after,
    )
