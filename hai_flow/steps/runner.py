"""The contract of a runner, and which runner performs which verb."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from hai_flow.definition.plan import Call, Expression, HttpTool, Plan, Schema, Step, Template, Tool, find_reading_step
from hai_flow.definition.readiness import find_runner_kind, find_tool_kind
from hai_flow.engine.events import ModelUse
from hai_flow.engine.steps.agents import ModelMessage, Talk
from hai_flow.errors import StepError
from hai_flow.steps.files import NO_FILES, RunFiles
from hai_flow.steps.offered_tools import OfferedFunction, Offers
from hai_flow.steps.pins import Identifies, Looked, Looks, NoPins, Pins, ToolIdentity
from hai_flow.steps.secrets import DEFAULT
from hai_flow.values import Json

Kind: TypeAlias = Literal["text", "thinking"]
ToolOfKind = TypeVar("ToolOfKind", bound=Tool)


class Stream(Protocol):
    """Takes the text that an attempt streams.

    `await stream(text)` appends to the attempt's message; a text of another `kind` begins another message. A piece may
    end within a character, as half a surrogate pair, or as bytes that are escaped (`surrogateescape`): the next piece
    brings the rest."""

    async def __call__(self, text: str, kind: Kind = "text") -> None: ...

    async def call(self, name: str, number: int, text: str) -> None:
        """Append to the arguments of a call that the model writes at this moment: the `number`-th call (from 1) of the
        function `name` in its answer. The first piece, which may be empty, begins it."""
        ...

    def made(self, part: Json) -> None:
        """Add a file to the attempt's output, as a content part. It is kept if the attempt succeeds."""
        ...

    def noted(self, notes: Sequence[str]) -> None:
        """Say what of the attempt's output was changed, so that a run can hold it. It is recorded if the attempt
        succeeds."""
        ...

    def used(self, use: ModelUse) -> None:
        """Note the usage of an answer of a model: it is recorded also where the attempt fails."""
        ...

    def progress(self, value: Json) -> None:
        """Tell the run's followers how far the attempt is: `{message?, done?, total?}`. On the event loop."""
        ...


class Unheard(Stream):
    """The stream of an attempt that nobody follows: it drops everything."""

    async def __call__(self, text: str, kind: Kind = "text") -> None: ...

    async def call(self, name: str, number: int, text: str) -> None: ...

    def made(self, part: Json) -> None: ...

    def noted(self, notes: Sequence[str]) -> None: ...

    def used(self, use: ModelUse) -> None: ...

    def progress(self, value: Json) -> None: ...


class Evaluate(Protocol):
    """Raises StepError with the code of the expression's fault."""

    async def __call__(self, uses: Expression | Template, /, **names: Json) -> Json: ...


Offer: TypeAlias = Callable[[str, Tool], Awaitable[Sequence[OfferedFunction]]]
"""The functions of a declared tool, by its name. Raises StepError."""


Recall: TypeAlias = Callable[[], Awaitable[Sequence[ModelMessage]]]
"""The messages of the thread before the run."""


async def _recall_nothing() -> Sequence[ModelMessage]:
    return ()


def _refuse_talk() -> Talk:
    raise StepError("this attempt is no answer of an agent", code="expression.error", retriable=False)


async def _refuse_offers(name: str, tool: Tool) -> Sequence[OfferedFunction]:
    raise StepError(f"no functions of the tool {name!r} are offered here", code="tool.unavailable")


def _refuse_evaluation(uses: Expression | Template, /, **names: Json) -> Json:
    raise StepError("this attempt knows nothing of its run", code="expression.error", retriable=False)


class Transactional(Protocol):
    """The transaction of an attempt on the run's own database, which commits together with its result."""

    def block(self) -> AbstractAsyncContextManager[Any]:
        """Inside, the connection. Raises StepError where there is none to be had."""
        ...


async def _refuse_callback() -> str:
    raise StepError("this attempt knows nothing of its run", code="http.invalid_request", retriable=False)


_NO_PINS: Final = NoPins()


def _go_on() -> bool:
    return False


async def _begin() -> None:
    pass


class Answer(msgspec.Struct, frozen=True):
    """The answer of a person to the question with which the attempt before this one ended (`AsksPerson`).

    `action`: accept (with the `values` of the form), decline or cancel. `state` and `keys` are the tool's own."""

    action: Literal["accept", "decline", "cancel"]
    values: Json
    state: str | None
    keys: tuple[str, ...]


def _ignore_receipt(describe: Callable[[], Json]) -> None:
    pass


class Attempt(msgspec.Struct, frozen=True):
    """One try of one effect: everything that a runner needs. `args` is the JSON text that was recorded (and hashed).

    `evaluate` gives the value of an expression or a template of the step, with further names. `workflow` is the
    workflow's name, `tenant` that of the tenant that has the run. `files` are those of the run. `key` is the
    idempotency key where it is not the default. `from_disk`: the workflow was read from a file of this machine, so it
    may name more modules than one that came over the network (`steps/python/toolbox`). Of an answer of an agent: `talk`
    gives its conversation so far, `recall` the messages of its thread before the run, `offered` the functions of its
    tools. `answer`: a person's answer to the tool's question. `pins`: the digests that the workflow has of functions of
    servers. `traceparent`: the attempt's place in a trace, as W3C writes it. `failures` and `lost`: how many attempts
    before it have failed, and how many were lost right before it. `is_stopped`: whether the run is being stopped.
    `receive` takes a function that gives what has come so far of the answer: the `data` of the error if the step's time
    ends before the answer does. `begin` is awaited before an effect that a lost attempt turns out not to have begun: it
    raises where that may not begin any more. `rest` sleeps for so many seconds, in which other attempts have the place
    of this one."""

    run_id: str
    path: str
    number: int
    args: str
    step: Step
    key: str | None = None
    from_disk: bool = False
    workflow: str = ""
    evaluate: Evaluate = _refuse_evaluation
    files: RunFiles = NO_FILES
    talk: Callable[[], Talk] = _refuse_talk
    recall: Recall = _recall_nothing
    offered: Offer = _refuse_offers
    transaction: Transactional | None = None
    answer: Answer | None = None
    pins: Pins = _NO_PINS
    callback: Callable[[], Awaitable[str]] = _refuse_callback
    traceparent: str | None = None
    tenant: str = DEFAULT
    failures: int = 0
    lost: int = 0
    is_stopped: Callable[[], bool] = _go_on
    receive: Callable[[Callable[[], Json]], None] = _ignore_receipt
    begin: Callable[[], Awaitable[None]] = _begin
    rest: Callable[[float], Awaitable[None]] = asyncio.sleep

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of the step (docs/design/engine.md#effects)."""
        return self.key or f"{self.run_id}/{self.path}"


class Runner(Protocol):
    """Performs one kind of effect."""

    async def perform(self, attempt: Attempt, stream: Stream) -> Json:
        """The output, as plain JSON. Text on the way goes to `stream`, if the step streams.

        Raises StepError, or AsksPerson. A cancellation is the order to stop: clean up within the grace period and let
        it pass on."""
        ...

    def fault(self, step: Step, *, from_disk: bool = False) -> str | None:
        """Why this runner could never perform the step (asked when a workflow is published), or None."""
        return None

    def doubt(self, step: Step, *, from_disk: bool = False) -> str | None:
        """Why it could not perform the step as things are now, though they may change, or None."""
        return None

    async def close(self) -> None:
        """Close the resources that are kept between attempts; the next attempt opens them anew."""
        return


def demand_call(step: Step, kind: type[ToolOfKind]) -> tuple[Call, ToolOfKind]:
    """The call of a step and its tool, which is of the kind that a runner performs."""
    assert isinstance(step.verb, Call)
    assert isinstance(step.verb.tool, kind)
    return step.verb, step.verb.tool


class Registry:
    """The runners of this process by kind: python, http, llm (`find_runner_kind`)."""

    def __init__(self, runners: dict[str, Runner], hide: Callable[[Json], Json] = lambda value: value) -> None:
        """`hide` takes secrets out of an output before it is recorded."""
        self._runners = runners
        # `isinstance` with a protocol looks all of its names up: asked once here, not at each question of a model
        self._that_look = {kind: runner for kind, runner in runners.items() if isinstance(runner, Looks)}
        self._that_offer = {kind: runner for kind, runner in runners.items() if isinstance(runner, Offers)}
        self._that_identify = {kind: runner for kind, runner in runners.items() if isinstance(runner, Identifies)}
        self.hidden = hide

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of effects that this process performs."""
        return frozenset(self._runners)

    @property
    def left_behind(self) -> int:
        """How many calls of tools were given up and still run."""
        return sum(getattr(runner, "left_behind", 0) for runner in self._runners.values())

    def runner_of(self, step: Step) -> Runner:
        """Raises StepError if this process does not perform effects of this kind."""
        kind = find_runner_kind(step)
        runner = self._runners.get(kind or "")
        if runner is None:
            raise StepError(f"this server performs no {kind or step.verb_name!r} steps", code="tool.unavailable")
        return runner

    def source_of(self, plan: Plan, step: Step) -> str | None:
        """The digest of the code, or of the description, of the tool that the step calls, as this process knows it
        (`engine/draft.Sources`)."""
        runner = self._that_identify.get(find_runner_kind(step) or "")
        return None if runner is None else runner.source_of(step, from_disk=plan.from_disk)

    def find_schema(self, plan: Plan, step: Step, source: str | None) -> Schema | None:
        """The schema of the arguments of the tool that the step calls (`engine/draft.ToolSchemas`)."""
        if isinstance(step.verb, Call) and isinstance(step.verb.tool, HttpTool):
            service = step.verb.tool.service
            return None if service is None else service.find(step.verb.function).parameters
        runner = self._that_identify.get(find_runner_kind(step) or "")
        return None if runner is None else runner.find_schema(step, source, from_disk=plan.from_disk)

    async def identify(self, attempt: Attempt) -> ToolIdentity:
        """What the attempt would perform now. Raises StepError."""
        runner = self._that_identify.get(find_runner_kind(attempt.step) or "")
        return ToolIdentity(None) if runner is None else await runner.identify(attempt)

    async def offered(
        self,
        name: str,
        tool: Tool,
        *,
        from_disk: bool = False,
        workflow: str = "",
        tenant: str = DEFAULT,
        pins: Pins = _NO_PINS,
    ) -> Sequence[OfferedFunction]:
        """The functions that the declared tool `name` offers to models, by its runner. Raises StepError."""
        kind = find_tool_kind(tool) or ""
        if (looking := self._that_look.get(kind)) is not None:
            return await looking.offered_to(name, tool, pins, workflow=workflow, tenant=tenant, from_disk=from_disk)
        runner = self._that_offer.get(kind)
        if runner is None:
            raise StepError(f"this server offers no functions of the tool {name!r} to models", code="tool.unavailable")
        return await runner.offered(name, tool, from_disk=from_disk)

    async def close(self) -> None:
        """The process performs nothing any more."""
        for runner in self._runners.values():
            await runner.close()

    def faults(self, plan: Plan) -> list[tuple[Step, str]]:
        """Every effect of the plan that this server has a runner for and yet could not perform, with the reason."""
        return self._sentences(plan, lambda runner, step: runner.fault(step, from_disk=plan.from_disk))

    def doubts(self, plan: Plan) -> list[tuple[Step, str]]:
        """Every effect of the plan that this server could not perform as things are now, with the reason."""
        return self._sentences(plan, lambda runner, step: runner.doubt(step, from_disk=plan.from_disk))

    async def look_at_servers(self, plan: Plan, tenant: str = DEFAULT) -> Looked:
        """Ask the servers that the plan uses for their functions now. `tenant` is the name of the plan's tenant."""
        answers = [await runner.look(plan, tenant) for runner in self._that_look.values()]
        pins = {name: digest for each in answers for name, digest in each.pins.items()}
        return Looked(pins, [doubt for each in answers for doubt in each.doubts])

    def _sentences(self, plan: Plan, ask: Callable[[Runner, Step], str | None]) -> list[tuple[Step, str]]:
        steps = (each for step in plan.steps.values() for each in (step, find_reading_step(step)) if each is not None)
        pairs = ((step, self._runners.get(find_runner_kind(step) or "")) for step in steps)
        return [(step, sentence) for step, runner in pairs if runner is not None and (sentence := ask(runner, step))]
