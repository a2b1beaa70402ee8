"""One attempt that this process performs: its runner is called, its text is streamed, its outcome is a report."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.cells import cell_of, sign_address
from hai_flow.definition.expressions.evaluation import CompiledExpression
from hai_flow.definition.paths import call_key, is_in_cleanup, list_of
from hai_flow.definition.personal.pii_marks import MASK
from hai_flow.definition.plan import (
    DEFAULT_QUEUE,
    AgentTurn,
    Call,
    Expression,
    FrontendTool,
    Growing,
    McpTool,
    Plan,
    Step,
    Template,
)
from hai_flow.definition.plan import Run as RunVerb
from hai_flow.engine import commands as c
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.events import ModelUse
from hai_flow.engine.pendings.answers import ACCEPT, INQUIRY_OPTIONS
from hai_flow.engine.pendings.tool_questions import find_inquiry_to_answer
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS
from hai_flow.engine.state.ids import derive_display_call_id, derive_model_call_id, message_id
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.engine.state.tracing import TracePosition, derive_attempt_place, place_of
from hai_flow.engine.steps.agents import Talk, call_path
from hai_flow.engine.steps.still import find_gate_behind_loss, find_gate_to_check
from hai_flow.engine.steps.tool_calls import build_prediction, display_name, encode_grown_piece, encode_grown_start
from hai_flow.engine.steps.wait_for_event import derive_callback_type
from hai_flow.errors import AsksPerson, OutcomeLost, StepError
from hai_flow.models.calls.text_pieces import TextJoiner
from hai_flow.primitives.beside_loop import (
    LARGE_BYTES,
    SHORT_BYTES,
    WORK_FOR,
    is_large,
    measure,
    run_beside_loop,
    run_by_work,
)
from hai_flow.runtime.base.trace_parent import PERFORMED
from hai_flow.runtime.catalog.pii_catalog import describe_error, hides_values
from hai_flow.runtime.catalog.pins import PinBook
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.submission import Chunk, Progress, Streamed, Written
from hai_flow.runtime.files.files import Files
from hai_flow.runtime.tenancy.tenants import Tenants
from hai_flow.runtime.worker.gate_check import GateClosed, check_gate
from hai_flow.runtime.worker.thread_messages import ThreadMessages
from hai_flow.steps.pins import PinsOfApproval
from hai_flow.steps.python.trace import text_of, trace_of
from hai_flow.steps.runner import Answer, Attempt, Kind, Registry
from hai_flow.store.identity import tenants
from hai_flow.store.messaging import callbacks
from hai_flow.store.postgres.database import RECONNECT_SECONDS_MAX, RECONNECT_SECONDS_MIN, Database
from hai_flow.store.postgres.error_classes import FAILURES, passing
from hai_flow.store.postgres.tool_transactions import Transaction
from hai_flow.values import Json

Found = TypeVar("Found")
Report: TypeAlias = c.StepSucceeded | c.StepFailed | c.StepLost | c.StepAsks | c.GateChecked
log = structlog.get_logger(__name__)

CANCELLED: Final = "step.cancelled"
CHUNK_CHARS_MAX: Final = 16 * 1024
PROGRESS_SECONDS: Final = 1.0  # the least time between two of an attempt
CHUNK_SECONDS_MIN: Final = 0.002  # between two chunks of an attempt: about a commit
CROWD: Final = 20  # so many attempts that stream besides one: each commits its text as seldom as may be
LONG_LOG_EVENTS: Final = 25_000  # a run with a longer log commits its text as seldom, to save the rest of its bound


class Reporting(Protocol):
    """The door for the text and the progress of attempts, their conversations, and the database's clock
    (`Committer`)."""

    def stream(self, run: CachedRun, chunks: Iterable[Streamed]) -> None: ...

    def talk(self, run: CachedRun, plan: Plan, state: RunState, answer: str) -> Talk: ...

    def now_ms(self) -> int: ...


@dataclass(slots=True)
class AttemptContext:
    """The part that all attempts of a process share. Times in seconds, as in `WorkerConfig`.

    `closing`: the process stops, so attempts that are cancelled are to be declared lost and report nothing."""

    committer: Reporting
    database: Database
    registry: Registry
    files: Files
    pins: PinBook
    thread_messages: ThreadMessages
    chunk_seconds: float
    relay_seconds: float
    closing: bool = False
    public_url: str | None = None
    traced: bool = False  # this process records spans; else the run's trace context is passed on as it is
    tenants: Tenants | None = None  # None: it performs for the tenant `default` alone
    streams: int = 0  # attempts that have streamed some text and are not over
    holds: Callable[[CachedRun, str], bool] = lambda run, path: False  # whether a freeze holds the step at a path
    rest: Callable[[RunningAttempt, float], Awaitable[None]] = lambda attempt, seconds: asyncio.sleep(seconds)

    def cached_tenant_name(self, tenant: UUID) -> str | None:
        """The tenant's name, if this process need not ask for it."""
        return tenants.DEFAULT if self.tenants is None else self.tenants.cached_name(tenant)

    async def tenant_of(self, tenant: UUID) -> str:
        """The tenant's name. Raises StepError where the database refuses to say it."""
        assert self.tenants is not None, "the name of the default tenant is known"
        try:
            return await self.answer_of(partial(self.tenants.name, tenant))
        except FAILURES as error:
            raise StepError(f"the tenant can't be looked up: {error}", code="step.unavailable") from error

    async def answer_of(self, ask: Callable[[], Awaitable[Found]]) -> Found:
        """The result of `ask`, which is called again for as long as the database is away: that is no failure of the
        step, whose time-out goes on. So its effect may happen more than once. Raises its other errors."""
        pause = RECONNECT_SECONDS_MIN
        while True:
            try:
                return await ask()
            except FAILURES as error:
                if not passing(error):
                    raise
                log.warning("attempt_waits_for_database", error=str(error) or repr(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, RECONNECT_SECONDS_MAX)

    def chunk_pause(self, state: RunState) -> float:
        """The least time between two chunks of a run in this state. Where one attempt streams alone, each piece of its
        text is committed at once; with each other one the pause grows, so that many cost few commits
        (docs/decisions/0044)."""
        crowded = state.seq > LONG_LOG_EVENTS or self.streams > CROWD
        share = 1.0 if crowded else (self.streams - 1) / CROWD
        pause = max(CHUNK_SECONDS_MIN, self.chunk_seconds * share) if self.chunk_seconds else 0.0
        return pause if state.parent is None else max(pause, self.relay_seconds)


class RunningAttempt(msgspec.Struct, eq=False):
    """An attempt that this process deals with: `task` performs it, or is None while it is only being reported as over.

    `has_begun`: whether the task has its place and the effect may have happened; `rests`: it has given its place back
    for as long as `rest` takes; `renewed`: it has waited for its place for too long, and is given back for another one,
    as which it goes on. For its runner it is the stream."""

    _stage: AttemptContext
    run: CachedRun
    path: str
    attempt: int
    known_since: float = msgspec.field(default_factory=time.monotonic)
    step: Step | None = None  # once it is performed
    task: asyncio.Task[None] | None = None
    has_begun: bool = False
    rests: bool = False
    place: TracePosition | None = None  # in a trace
    renewed: asyncio.Future[None] | None = None
    uses: tuple[ModelUse, ...] = ()
    parts: tuple[Json, ...] = ()
    notes: tuple[str, ...] = ()
    is_large: bool | None = None  # its result, once it has succeeded
    _text: _StreamedText | None = None
    _progress: _Progress | None = None
    _transaction: Transaction | None = None
    _ended: bool = False
    _succeeded: bool = False
    _receipt: tuple[Context, Callable[[], Json]] | None = None

    async def rest(self, seconds: float) -> None:
        """Sleep, while others may have the attempt's place."""
        await self._stage.rest(self, seconds)

    @property
    def queue(self) -> str:
        plan = self.run.plan
        return DEFAULT_QUEUE if plan is None else plan.queue

    @property
    def waits(self) -> bool:
        """Whether it waits for its place, so that nothing of it has happened."""
        return self.task is not None and not self.has_begun

    def take_over(self, attempt: int) -> None:
        """Go on as this attempt, which was opened for the one that was given back."""
        self.attempt, self.known_since = attempt, time.monotonic()
        renewed, self.renewed = self.renewed, None
        if renewed is not None and not renewed.done():
            renewed.set_result(None)

    def receive(self, describe: Callable[[], Json]) -> None:
        """Take a function that gives what has come so far of the attempt's answer (`Attempt.receive`)."""
        self._receipt = copy_context(), describe

    def describe_receipt(self) -> Json:
        """What has come so far of the answer, without secrets; None where nothing has."""
        if self._receipt is None:
            return None
        context, describe = self._receipt
        return context.run(lambda: self._stage.registry.hidden(describe()))

    @property
    def transaction(self) -> Transaction | None:
        """The tool's transaction, if one is open."""
        current = self._transaction
        return current if current is not None and current.is_open else None

    def block(self) -> AbstractAsyncContextManager[Any]:
        """A block of the attempt's transaction, which begins with the first one (`Transactional`)."""
        if self._transaction is None:
            self._transaction = Transaction(self._stage.database)
            if self._ended:
                self._transaction.abandon()
        return self._transaction.block()

    async def perform(self) -> Report:
        """Call the runner; the report of the outcome. Raises CancelledError if there is nothing to report. Call `cease`
        behind it in any case.

        The tool's transaction is still open after a success, if it has begun one (`transaction`)."""
        run, path, registry = self.run, self.path, self._stage.registry
        try:
            assert run.plan is not None
            step, step_state = resolve_step(run.plan, path), run.state.steps[path]
            self.step = step
            plan = run.plan
            PERFORMED.set(self)
            WORK_FOR.set(run.tenant)
            if run.state.trace is not None:
                self._trace()
            tenant = self._stage.cached_tenant_name(run.tenant)
            attempt = Attempt(
                run.state.run_id,
                path,
                self.attempt,
                step_state.args or "{}",
                step,
                step_state.key,
                plan.from_disk,
                plan.name,
                self.evaluate,
                self._stage.files.run_files(run.tenant, run.id),
                transaction=self,
                callback=self.callback,
                traceparent=None if self.place is None else str(self.place),
                tenant=await self._stage.tenant_of(run.tenant) if tenant is None else tenant,
                failures=step_state.failures,
                lost=step_state.lost,
                is_stopped=self._is_stopped,
                receive=self.receive,
                rest=self.rest,
            )
            if isinstance(step.verb, Call) and isinstance(step.verb.tool, McpTool):
                attempt = msgspec.structs.replace(attempt, pins=self._stage.pins.of(run.tenant, plan.sha256))
            if step.approval is not None:
                gate = None if step_state.reading else find_gate_to_check(run.state, step)
                if step_state.reading or gate is not None:
                    checked = await self._check_gate(attempt, gate)
                    if step_state.reading or checked.why is not None or isinstance(step.verb, RunVerb):
                        return checked
                if (behind := find_gate_behind_loss(run.state, step)) is not None:
                    attempt = msgspec.structs.replace(attempt, begin=partial(self._demand_gate, attempt, behind))
                if gate is not None and gate.opened.anew is not None and gate.opened.source is not None:
                    attempt = _accept_as_approved(attempt, gate.opened.source)
            if step_state.asked and (inquiry := find_inquiry_to_answer(run.state, step, self.attempt)) is not None:
                attempt = msgspec.structs.replace(attempt, answer=_answer_to(inquiry))
            if isinstance(step.verb, AgentTurn):
                pins = self._stage.pins.of(run.tenant, plan.sha256)
                offered = partial(
                    registry.offered, from_disk=plan.from_disk, workflow=plan.name, tenant=attempt.tenant, pins=pins
                )
                recall = partial(self._stage.answer_of, partial(self._stage.thread_messages.before, run))
                conversation = partial(self._stage.committer.talk, run, plan, run.state, path)
                attempt = msgspec.structs.replace(attempt, talk=conversation, recall=recall, offered=offered)
            output = await registry.runner_of(step).perform(attempt, self)
            if self._transaction is not None and (transaction := self.transaction) is not None:
                await transaction.seal()
            ended_at = self._stage.committer.now_ms()
            if self._progress is not None:
                self._progress.tell()
            size = measure(output)
            self.is_large = size > LARGE_BYTES or (bool(self.parts or self.notes) and is_large(self.parts + self.notes))
            hidden = registry.hidden
            output = hidden(output) if size <= SHORT_BYTES else await run_beside_loop(hidden, output)
            self._succeeded = True
            return c.StepSucceeded(
                path=path,
                attempt=self.attempt,
                output=output,
                ended_at=ended_at,
                used=self.uses,
                parts=self.parts,
                notes=tuple(map(hidden, self.notes)),
            )
        except asyncio.CancelledError:
            assert self.task is not None
            if not self.task.cancelling():  # this task was not cancelled, but something that the tool waited for
                return self._report_failure(StepError("The tool was cancelled by something that it waited for."))
            if not self._is_stopped():
                raise
            return self._report_failure(StepError("The run is being stopped.", code=CANCELLED, retriable=False))
        except GateClosed as closed:
            return closed.check
        except AsksPerson as asks:
            hidden = registry.hidden
            return c.StepAsks(
                path=path,
                attempt=self.attempt,
                message=hidden(asks.message),
                form=hidden(asks.form),
                state=asks.state,
                keys=asks.keys,
                used=self.uses,
            )
        except OutcomeLost as error:
            reason = values.storable(registry.hidden(error.message))
            log.warning("outcome_lost", run_id=str(run.id), path=path, reason=self._quote(reason))
            return c.StepLost(path=path, attempt=self.attempt, reason=reason)
        except StepError as error:
            cause = error.__cause__
            if cause is not None:
                log.warning("tool_failed", run_id=str(run.id), path=path, **self._describe_error(cause))
            return self._report_failure(error, cause)
        except Exception as error:
            log.warning("tool_raised", run_id=str(run.id), path=path, **self._describe_error(error))
            return self._report_failure(StepError(text_of(error)), error)

    async def _check_gate(self, attempt: Attempt, gate: PendingState | None) -> c.GateChecked:
        run, stage = self.run, self._stage
        assert run.plan is not None
        return await check_gate(stage.registry, run.plan, run.state, attempt, stage.committer.now_ms(), gate)

    async def _demand_gate(self, attempt: Attempt, gate: PendingState) -> None:
        """Raises GateClosed where the effect may not begin."""
        check = await self._check_gate(attempt, gate)
        if check.why is not None:
            raise GateClosed(check)

    def _is_stopped(self) -> bool:
        stops = self.run.state.status == "stopping" and not is_in_cleanup(self.path)
        return stops and not self._stage.closing

    def _quote(self, text: str) -> str:
        return MASK if hides_values(self.run.plan, self.run.state, self.path) else text

    def _describe_error(self, error: BaseException) -> dict[str, Any]:
        """An exception for the log of the process."""
        return describe_error(self.run.plan, self.run.state, error, self.path)

    def _trace(self) -> None:
        """Let all spans of the attempt stand below its place in the run's trace, also those of libraries."""
        from opentelemetry import context, trace  # a run that is traced pays for it

        state = self.run.state
        place = derive_attempt_place(state, self.path, self.attempt) if self._stage.traced else place_of(state.trace)
        if place is None:
            return
        self.place = place
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if place.sampled else trace.TraceFlags.DEFAULT)
        above = trace.SpanContext(int(place.trace_id, 16), int(place.span_id, 16), is_remote=False, trace_flags=flags)
        context.attach(trace.set_span_in_context(trace.NonRecordingSpan(above)))  # it ends with the attempt's task

    def _report_failure(self, error: StepError, raised: BaseException | None = None) -> c.StepFailed:
        """The report of a failure, without secrets: an error that is raised may quote the request."""
        hidden = self._stage.registry.hidden
        failed = failure(self.path, self.attempt, error, raised, uses=self.uses, hidden=hidden)
        return msgspec.structs.replace(failed, ended_at=self._stage.committer.now_ms())

    async def evaluate(self, uses: Expression | Template, /, **names: Json) -> Json:
        """The value of an expression of the step now. The step's runner calls this, and the log records the
        consequences."""
        plan = self.run.plan
        assert plan is not None
        step = resolve_step(plan, self.path)
        return await evaluate_for_step(plan, self.run.state, step, self._stage.committer.now_ms(), uses, **names)

    async def callback(self) -> str:
        """An address at which the service of the step may call back, once. Raises StepError."""
        stage, run = self._stage, self.run
        if stage.public_url is None:
            message = (
                "nothing can call back: HAI_FLOW_PUBLIC_URL does not say under which address this server is reached"
            )
            raise StepError(message, code="http.invalid_request", retriable=False)
        type = derive_callback_type(self.path, run.state.steps[self.path])

        async def added() -> str:
            token = sign_address(secrets.token_urlsafe(32), cell_of(run.id))
            await callbacks.add_callback(stage.database.api, token, run.tenant, run.id, self.path, type)
            return token

        return f"{stage.public_url.rstrip('/')}/callbacks/{await stage.answer_of(added)}"

    # --- the stream ---------------------------------------------------------------------------------------------------

    def made(self, part: Json) -> None:
        """Note a file that is part of the attempt's answer."""
        self.parts = (*self.parts, part)

    def noted(self, notes: Sequence[str]) -> None:
        """Note what was changed in the attempt's output, so that a run can hold it."""
        self.notes = (*self.notes, *notes)

    def used(self, use: ModelUse) -> None:
        """Note an answer of a model: it is recorded with whatever becomes of the attempt."""
        self.uses = (*self.uses, use)

    async def __call__(self, text: str, kind: Kind = "text") -> None:
        if self._text is None:
            self._text = _StreamedText(self._stage, self)
        self._text.add(self._stage.registry.hidden(text), kind)

    async def call(self, name: str, number: int, text: str) -> None:
        """Stream a piece of a call that the attempt's model writes."""
        if self._text is None:
            self._text = _StreamedText(self._stage, self)
        self._text.call(name, number, self._stage.registry.hidden(text))

    def progress(self, value: Json) -> None:
        """Show the run's followers how far the attempt is: now, or a little later if another value was shown just
        before."""
        if self._progress is None:
            self._progress = _Progress(self._stage, self)
        self._progress.note(self._stage.registry.hidden(value))

    def cease(self) -> None:
        """End the attempt: stop the timers (text that the committer does not have yet is sent by `flush` alone), and
        abandon the transaction unless the attempt succeeded."""
        self._ended = True
        if self._transaction is not None and not self._succeeded:
            self._transaction.abandon()
        if self._text is not None:
            self._text.close()
        if self._progress is not None:
            self._progress.cease()

    def flush(self) -> None:
        """Hand the text that is not with the committer yet to it: nothing follows."""
        if self._text is not None:
            self._text.end()


class _StreamedText:
    """The text that an attempt streams, and the arguments of the calls that its model writes. New text is handed to the
    committer in chunks of bounded size.

    Text goes into the message `number` of the attempt, or, where it makes the argument of a call grow (`stream: {to}`),
    into that call."""

    def __init__(self, stage: AttemptContext, of: RunningAttempt) -> None:
        self._stage = stage
        self._of = of
        self._kind: Kind = "text"
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._flushed = -math.inf  # in the loop's time
        growing = _find_growing(of)
        self._message: _Message | _Call = self._new_message() if growing is None else _call_of_growing(of, growing)
        self._calls: dict[tuple[str, int], _Call | None] = {}  # None: no frontend shows the call
        self._waiting: dict[_Message | _Call, list[str]] = {}  # in the order in which they are reported
        stage.streams += 1

    @property
    def waits(self) -> bool:
        """Whether there is text that the committer does not have."""
        return bool(self._waiting)

    def add(self, text: str, kind: Kind) -> None:
        """A piece of text. One of another kind begins another message."""
        if isinstance(self._message, _Message) and kind != self._kind:
            self._end_joiner(self._message)
            if self._message in self._waiting or self._message.written:
                self._number += 1
            self._kind = kind
            self._message = self._new_message()
        self._add(self._message, text)

    def call(self, name: str, number: int, text: str) -> None:
        """A piece of a call's arguments."""
        if (name, number) not in self._calls:
            self._calls[name, number] = _call_by_model(self._of, name, number, self._stage.holds)
        call = self._calls[name, number]
        if call is not None:
            self._add(call, text, begins=True)

    def _new_message(self) -> _Message:
        state = self._of.run.state
        return _Message(message_id(state.run_id, self._of.path, self._of.attempt, self._number), self._kind)

    def _add(self, target: _Message | _Call, text: str, *, begins: bool = False) -> None:
        text = values.storable(target.joiner.take(text))
        if text or begins:
            self._wait(target, text)

    def _end_joiner(self, target: _Message | _Call) -> None:
        if rest := target.joiner.end():
            self._wait(target, rest)

    def _wait(self, target: _Message | _Call, text: str) -> None:
        self._waiting.setdefault(target, []).append(text)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            due = self._flushed + self._stage.chunk_pause(self._of.run.state)
            self._timer = loop.call_later(max(0.0, due - loop.time()), self.flush)

    def end(self) -> None:
        """Hand the last text on: half a character has no other half."""
        for target in (self._message, *self._calls.values()):
            if target is not None:
                self._end_joiner(target)
        if self.waits:
            self.flush()

    def close(self) -> None:
        self._stop_beating()
        self._stage.streams -= 1

    def _stop_beating(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def flush(self) -> None:
        self._stop_beating()
        self._flushed = asyncio.get_running_loop().time()
        waiting, self._waiting = self._waiting, {}
        chunks = [chunk for target, texts in waiting.items() for chunk in target.chunks(self._of, "".join(texts))]
        if chunks:
            self._stage.committer.stream(self._of.run, chunks)


@dataclass(slots=True, eq=False)
class _Message:
    """A message that grows. `written`: how many chunks of it the committer has."""

    id: str
    kind: Kind
    written: int = 0
    joiner: TextJoiner = field(default_factory=TextJoiner)

    def chunks(self, of: RunningAttempt, text: str) -> Iterator[Chunk]:
        """The text behind what was written, in pieces."""
        for piece in _pieces(text):
            yield Chunk(self.id, of.path, of.attempt, self.written, piece, kind=self.kind)
            self.written += 1


@dataclass(slots=True, eq=False)
class _Call:
    """The arguments of a call that grow. `written`: how many characters of them the committer has. `by_model`: the call
    begins with its first piece, and the text is JSON already; else the text is that of one argument."""

    id: str
    by_model: Written | None
    written: int = 0
    joiner: TextJoiner = field(default_factory=TextJoiner)

    def chunks(self, of: RunningAttempt, text: str) -> Iterator[Chunk]:
        """The text behind what was written, in pieces, each at its place; an empty one where the call begins."""
        for piece in _pieces(text) or [""]:
            visible = piece if self.by_model is not None else encode_grown_piece(piece)
            yield Chunk(self.id, of.path, of.attempt, self.written, visible, is_call=True, written=self.by_model)
            self.written += len(visible)


def _pieces(text: str) -> list[str]:
    return [text[start : start + CHUNK_CHARS_MAX] for start in range(0, len(text), CHUNK_CHARS_MAX)]


def _call_of_growing(of: RunningAttempt, growing: Growing) -> _Call:
    """The call that shows the text of the attempt."""
    id = derive_display_call_id(of.run.state.run_id, of.path, of.attempt)
    return _Call(id, None, len(encode_grown_start(growing)))


def _call_by_model(of: RunningAttempt, name: str, number: int, holds: Callable[[CachedRun, str], bool]) -> _Call | None:
    """The call of an agent that its model begins to write; None if no frontend shows it yet. A thread shows the calls
    of a child run when they begin, as its other steps; so it does those of the client behind a gate or a freeze,
    because a client performs what it sees."""
    plan, state = of.run.plan, of.run.state
    assert plan is not None
    if state.parent is not None:
        return None
    iteration, key = list_of(of.path), call_key(name, number)
    step = resolve_step(plan, call_path(plan, iteration, key))
    if not isinstance(step.verb, Call):
        return None  # another agent is given a task
    tool = step.verb.tool
    if isinstance(tool, FrontendTool):
        if step.approval is not None or holds(of.run, step.path):
            return None
        call = Written(step.path, tool.name, "frontend", build_prediction(tool))
    elif step.expose:
        call = Written(step.path, display_name(step), "server")
    else:
        return None
    return _Call(derive_model_call_id(state.run_id, list_of(step.path), of.attempt), call)


class _Progress:
    """How far an attempt is. Of several values that come shortly one after the other only the last is recorded."""

    def __init__(self, stage: AttemptContext, of: RunningAttempt) -> None:
        self._stage = stage
        self._of = of
        self._value: Json = None
        self._told_at = -math.inf  # in the loop's time
        self._timer: asyncio.TimerHandle | None = None

    def note(self, value: Json) -> None:
        self._value = value
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, self._told_at + PROGRESS_SECONDS - loop.time()), self.tell)

    def tell(self) -> None:
        """Hand the committer the value that waits, if one does."""
        if self._timer is None:
            return
        self.cease()
        self._told_at = asyncio.get_running_loop().time()
        self._stage.committer.stream(self._of.run, [Progress(self._of.path, self._of.attempt, self._value)])

    def cease(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _find_growing(of: RunningAttempt) -> Growing | None:
    """The call whose argument the attempt's text is, if it is one."""
    assert of.run.plan is not None
    verb = resolve_step(of.run.plan, of.path).verb
    return verb.into if isinstance(verb, Call) else None


def _accept_as_approved(attempt: Attempt, source: str) -> Attempt:
    """The attempt, which calls the server's function though it is described otherwise than at the publication: people
    have approved it as it is described now."""
    verb = attempt.step.verb
    if not isinstance(verb, Call) or not isinstance(verb.tool, McpTool):
        return attempt
    name = f"{verb.tool.name}.{verb.function}"
    return msgspec.structs.replace(attempt, pins=PinsOfApproval(attempt.pins, name, source))


def _answer_to(inquiry: PendingState) -> Answer:
    request = inquiry.opened.inquiry
    assert request is not None
    action = inquiry.status if inquiry.status in INQUIRY_OPTIONS else ACCEPT
    return Answer(cast("Any", action), inquiry.value, request.state, request.keys)


async def evaluate_for_step(
    plan: Plan, state: RunState, step: Step, now: int, uses: Expression | Template, /, **names: Json
) -> Json:
    """The value of an expression or a template of the step at the time `now`, with further names; evaluated beside the
    loop where that is long work. Raises StepError with the code of the expression's fault."""
    draft = Draft(plan, state, now, DEFAULT_BOUNDS)
    try:
        if isinstance(uses, CompiledExpression):
            return await run_by_work(draft.truth, uses, step, **names)
        return await run_by_work(draft.render, cast("Template", uses), step, **names)
    except Raised as raised:
        raise StepError(raised.message, code=raised.code, data=raised.data, retriable=False) from None


def _keep_value(value: Json) -> Json:
    return value


def failure(
    path: str,
    attempt: int,
    error: StepError,
    raised: BaseException | None = None,
    *,
    uses: tuple[ModelUse, ...] = (),
    hidden: Callable[[Json], Json] = _keep_value,
) -> c.StepFailed:
    """The report of a failed attempt. `raised`: an exception that the tool did not mean to raise, whose place in the
    code is reported. `uses`: the answers of models that it took all the same. `hidden` takes secrets out of the
    report."""
    return c.StepFailed(
        path=path,
        attempt=attempt,
        code=error.code,
        message=hidden(values.storable(error.message)),
        retriable=error.retriable,
        data=hidden(error.data),
        retry_after=None if error.retry_after is None else int(error.retry_after * 1000),
        trace=None if raised is None else hidden(trace_of(raised)),
        used=uses,
    )
