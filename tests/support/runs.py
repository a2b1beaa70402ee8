"""One run without a database: documents become plans, a `Play` sends commands to the pure engine on a virtual clock.

In every test, each decision is checked by the rules that hold for any run (`check_decision`). A test asserts only the
facts that are special to it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.paths import is_in_cleanup, is_inside, keys_of, plan_path, with_keys_or_none
from hai_flow.definition.plan import AgentCalls, ForEach, Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide as engine_decide
from hai_flow.engine.decision import Decision
from hai_flow.engine.evolve.evolve import evolve, fold
from hai_flow.engine.pendings.eligibility import may_decide
from hai_flow.engine.runs.fork import find_first_effects, inheritance, list_undone
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS, Bounds
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.jobs import (
    TIMERS_WHILE_HALTED,
    Continue,
    Perform,
    has_ready,
    is_busy,
    is_working,
    next_ready,
    open_jobs,
    order_of,
    wake_at,
)
from hai_flow.engine.state.retry_policy import LOG_FULL, UNDO_RETRY
from hai_flow.engine.state.snapshot import decode_state, encode_state
from hai_flow.engine.state.state import RunState

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
NOON = 1_772_452_800_000  # 2026-03-02T12:00:00Z, a Monday
RUN = UUID("01900000-0000-7000-8000-000000000001")
FORK = UUID("01900000-0000-7000-8000-000000000002")
HEAD = "hai: flow/v1\nname: sample\nversion: 1\n"
TOOLS = """\
tools:
  t: {python: registered}
  pick: {frontend: {description: Pick one., parameters: {type: object, additionalProperties: true}}}
"""
OPEN = ("running", "waiting")
STEP_STATUSES = {"running", "waiting", "finished", "skipped", "failed", "stopped", "undone", "pending"}


def plan_of(text: str) -> Plan:
    """The plan of a document without its head. Tools t (python) and pick (frontend) are there if it has none."""
    body = textwrap.dedent(text)
    tools = "" if body.startswith("tools:") or "\ntools:" in body else TOOLS
    return compile_workflow((HEAD + tools + body).encode(), "sample")


class Play:
    """One run, its clock and its log. Every method that sends a command returns the decision or raises Rejected."""

    def __init__(
        self,
        text: str | Plan,
        *,
        input: Any = None,
        run_id: UUID = RUN,
        limits: Bounds = DEFAULT_BOUNDS,
        start: bool = True,
        message: str = "",
        decide: Callable[..., Decision] = engine_decide,
    ) -> None:
        self.plan = plan_of(text) if isinstance(text, str) else text
        self.run_id = run_id
        self.limits = limits
        self.now = NOON
        self.state = self._left = RunState(str(run_id))
        self.is_by_hand = decide is not engine_decide  # whether something beside its commands has made the state
        self.log: list[tuple[e.Event, ...]] = []
        self.commands: list[tuple[c.Command, int]] = []
        self._conditions: list[tuple[Plan, Bounds]] = []  # under which each was decided
        self.last: tuple[e.Event, ...] = ()
        self._decide = decide
        self._book = Book(self.plan)
        if start:
            self.start(input, message=message)

    # --- commands -------------------------------------------------------------------------------------------------

    def do(self, command: c.Command) -> Decision:
        """Decide, check, and take over the decision. `Continue` is up to the test (see `settle`)."""
        self.is_by_hand |= self.state is not self._left
        while True:
            before = self.state
            decision = self._decide(self.plan, before, command, self.now, self.limits)
            self._book.check_decision(before, command, decision, self.limits)
            if decision.events:
                self.commands.append((command, self.now))
                self._conditions.append((self.plan, self.limits))
                self.log.append(decision.events)
                self.state = self._left = decision.state
            self.last = decision.events
            if not decision.undecided:
                return decision

    def start(self, input: Any = None, *, message: str = "", **more: Any) -> Decision:
        given = {} if input is None else input
        return self.do(
            c.Start(run_id=self.run_id, thread_id="t-1", requester="user:ann", input=given, message=message, **more)
        )

    def succeed(self, path: str, output: Any = None, attempt: int | None = None) -> Decision:
        return self.do(c.StepSucceeded(path=path, attempt=attempt or self.attempt(path), output=output))

    def succeed_all(self, *paths: str) -> Play:
        """Let the attempts of these steps succeed, one after the other, without outputs. Returns the play itself."""
        for path in paths:
            self.succeed(path)
        return self

    def fail(
        self, path: str, code: str = "tool.failed", message: str = "It broke.", attempt: int | None = None, **more: Any
    ) -> Decision:
        return self.do(
            c.StepFailed(path=path, attempt=attempt or self.attempt(path), code=code, message=message, **more)
        )

    def lose(self, path: str, attempt: int | None = None) -> Decision:
        return self.do(c.StepLost(path=path, attempt=attempt or self.attempt(path)))

    def answer(self, path: str, by: str | c.Principal | None = None, **fields: Any) -> Decision:
        """Answer the pending that the step `path` has open (or had open last), as a person that may do so."""
        return self.answer_all({path: fields}, by=by)

    def answer_all(self, answers: dict[str, dict[str, Any]], by: str | c.Principal | None = None) -> Decision:
        given = tuple(c.PendingAnswer(id=self.pending(path), **fields) for path, fields in answers.items())
        principal = c.Principal(by) if isinstance(by, str) else by or self.decider(*(answer.id for answer in given))
        return self.do(c.Answer(answers=given, by=principal))

    def decider(self, *ids: str) -> c.Principal:
        """Bob, if he may decide all of these; an operator, if there is a doubt; else the run's requester."""
        bob, known = c.Principal("user:bob"), self.state.pendings
        if any(id in known and known[id].opened.kind == "doubt" for id in ids):
            return c.LOCAL_PRINCIPAL
        may = all(may_decide(self.plan, self.state, known[id], bob) for id in ids if id in known)
        return bob if may else c.Principal(self.state.requester)

    def advance(self, ms: int) -> Decision | None:
        """Let time pass, then fire the timers that are due, as a worker would that slept until then."""
        self.now += ms
        due = wake_at(self.state)
        return self.do(c.TimerFired()) if due is not None and due <= self.now else None

    def signal(self, id: str, name: str = "ping", data: Any = None) -> Decision:
        return self.do(c.Signal(id=id, name=name, data=data, sent_at=self.now))

    def pause(self, by: str = "user:op", reason: str = "") -> Decision:
        return self.do(c.Pause(by=by, reason=reason))

    def resume(self, by: str = "user:op") -> Decision:
        return self.do(c.Resume(by=by))

    def stop(self, by: str = "user:op", reason: str = "") -> Decision:
        return self.do(c.Stop(by=by, reason=reason))

    def terminate(self, by: str = "user:op", reason: str = "") -> Decision:
        return self.do(c.Terminate(by=by, reason=reason))

    def retry(self, by: str = "user:op") -> Decision:
        return self.do(c.Retry(by=by))

    def skip(self, path: str, output: Any = None, by: str = "user:op") -> Decision:
        return self.do(c.Skip(by=by, path=path, output=output))

    def fork(self, at: int, answers: dict[str, dict[str, Any]], by: str = "user:ann", run_id: UUID = FORK) -> Play:
        """Another run, which begins with the state of this one after its event `at`, and answers the questions that
        were open there."""
        there = self.state_at(at)
        given = tuple(c.PendingAnswer(id=there.open_pendings[path], **fields) for path, fields in answers.items())
        return self.forked(at, c.Answer(answers=given, by=c.Principal(by)), run_id)

    def forked(
        self,
        at: int,
        answer: c.Answer,
        run_id: UUID = FORK,
        *,
        edits: c.Edits | None = None,
        to: Plan | None = None,
        behind: tuple[str, ...] = (),
    ) -> Play:
        """The same, with an answer made before; with `edits`, under another plan, and by an agent of those `behind`."""
        play = Play(to or self.plan, run_id=run_id, limits=self.limits, start=False, decide=self._decide)
        play.now = self.now
        command = c.Fork(
            run_id=run_id,
            of=self.run_id,
            events=tuple(self.events[:at]),
            answer=answer,
            undone=list_undone(self.state),
            following=self.following(at),
            edits=edits,
            acted=self.acted_behind(at),
            behind=behind,
        )
        play.do(command)
        return play

    def acted_behind(self, seq: int) -> tuple[str, ...]:
        """The steps that have begun to change the world behind the event `seq`."""
        acted = find_first_effects(self.plan, enumerate(self.events, 1))
        return tuple(sorted(path for path, last in acted.items() if last > seq))

    def state_at(self, seq: int) -> RunState:
        """The run behind its event `seq`."""
        return fold(RunState(str(self.run_id)), self.events[:seq])

    def following(self, seq: int) -> e.Event | None:
        """The event that came behind the event `seq` in the same commit."""
        last = 0
        for batch in self.log:
            last += len(batch)
            if seq < last:
                return batch[len(batch) - (last - seq)] if seq > last - len(batch) else None
        return None

    def before(self, path: str) -> int:
        """The event behind which the step began last."""
        begun = [n for n, event in enumerate(self.events) if isinstance(event, e.StepStarted) and event.path == path]
        return begun[-1]

    def leave(self, there: RunState, heir: UUID = FORK) -> Decision:
        """Stop the run, for the fork `heir` goes on from `there`."""
        self._book.spared = True
        return self.do(c.Stop(by="user:ann", inherited=inheritance(there), heir=e.Heir(str(heir))))

    def take_back(self, heir: UUID = FORK) -> Decision:
        """The fork for which the run was stopped does not begin. From now on everything has to be cleaned up."""
        self._book.spared = False
        return self.do(c.TakeBack(heir=str(heir), seized=self.state.ended))

    def migrate(self, to: Plan, paths: dict[str, str] | None = None, by: str = "user:op") -> Decision:
        """Go on with another version: every later command is decided with its plan."""
        command = c.Migrate(to=to, by=by, paths=paths or {})
        decision = self._decide(self.plan, self.state, command, self.now, self.limits)
        if decision.events:
            self.commands.append((command, self.now))
            self._conditions.append((self.plan, self.limits))
            self.plan = to
            self._book.move_to(to)
            self._book.check_decision(self.state, command, decision, self.limits)
            self.log.append(decision.events)
            self.state = self._left = decision.state
        self.last = decision.events
        return decision

    def go_on(self) -> Decision:
        return self.do(c.Continue())

    def settle(self) -> int:
        """Send Continue as long as there is something to go on with. How often it was."""
        count = 0
        while Continue() in open_jobs(self.state):
            self.go_on()
            count += 1
        return count

    def happened(self, kind: type[e.Event], **fields: Any) -> e.Event:
        """Let an event happen that no command of this release brings about, and check the state after it."""
        turn = self.state.turn.n if self.state.turn else 0
        event = kind(at=self.now, turn=turn, **fields)
        self._book.check_event(self.state, event)
        self.state = evolve(self.state, event)
        self.log.append((event,))
        return event

    # --- the state ------------------------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        return self.state.status

    @property
    def open(self) -> dict[str, int]:
        """The open attempts: path -> number."""
        return dict(self.state.attempts)

    @property
    def asking(self) -> set[str]:
        """The paths of the steps that wait for people."""
        return set(self.state.open_pendings)

    @property
    def timers(self) -> list[tuple[str, str, int]]:
        """(path, kind, milliseconds from now) of each timer, the next one first."""
        return [(timer.path, timer.kind, timer.due - self.now) for timer in self.state.timers]

    @property
    def events(self) -> list[e.Event]:
        return [event for batch in self.log for event in batch]

    @property
    def said(self) -> list[str]:
        """The texts of the run's own messages in order."""
        own = (message for message in self.state.messages.values() if message.path is not None)
        return [message.content for message in sorted(own, key=lambda message: message.n)]

    @property
    def output(self) -> Any:
        return self.state.output

    @property
    def error(self) -> e.Error:
        assert self.state.error is not None, f"the run is {self.status}"
        return self.state.error

    def attempt(self, path: str) -> int:
        """The number of the step's open attempt; of its last one if none is open."""
        return self.state.attempts.get(path) or self.state.steps[path].attempt

    def pending(self, path: str) -> str:
        """The id of the pending that the step has open, or had open last."""
        open_id = self.state.open_pendings.get(path)
        if open_id is not None:
            return open_id
        opened = [event.id for event in self.events if isinstance(event, e.PendingOpened) and event.path == path]
        return opened[-1]

    def step(self, path: str) -> str:
        """The status of a step, "pending" before it began."""
        known = self.state.steps.get(path)
        return "pending" if known is None else known.status

    def types(self, events: Iterable[e.Event] | None = None) -> list[str]:
        """The types of the events, by default those of the last decision."""
        return [event.type for event in (self.last if events is None else events)]

    def of(self, kind: type[e.Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def is_replayable(self) -> bool:
        """Whether its commands alone have made its state, by the engine's own decisions."""
        return not self.is_by_hand and self.state is self._left and len(self.log) == len(self.commands)

    def replayed(self) -> None:
        """The log alone gives the state, at every commit; the recorded commands decide the same events again."""
        state, again = RunState(str(self.run_id)), RunState(str(self.run_id))
        for batch, (command, now), (plan, limits) in zip(self.log, self.commands, self._conditions, strict=True):
            state = fold(state, e.decode_events(e.encode_events(batch)))
            decision = engine_decide(plan, again, command, now, limits)
            assert decision.events == batch, f"{command} decided otherwise at its replay"
            again = decision.state
            assert again == state
        assert state == self.state


def _is_cut(error: e.Error) -> bool:
    """Whether the run ended because its log was full, in the midst of its cleanup."""
    return error.code == LOG_FULL and "cut off, too" in error.message


class Book:
    """The rules for every decision of one run. It remembers the ids and attempts that were given away."""

    def __init__(self, plan: Plan) -> None:
        self.move_to(plan)
        self.ids: set[str] = set()
        self.attempts: set[tuple[str, int]] = set()
        self.failures: dict[str, int] = {}
        self.order: dict[str, int] = {}  # finished steps that have an undo -> how many had finished before
        self.owed: set[str] = set()  # steps that have begun, and whose `finally` has not
        self.spared = False  # an operator cut the run off: nothing was cleaned up

    def move_to(self, plan: Plan) -> None:
        self.plan = plan
        self.before = {step.next: step for step in plan.steps.values() if step.next is not None}

    def check_decision(self, before: RunState, command: c.Command, decision: Decision, limits: Bounds) -> None:
        after, events = decision.state, decision.events
        if isinstance(command, c.NeedAttention) and before.status == "stopping":
            self.spared = True
        assert decision.already == (not events), "a decision without events is an 'already so', and nothing else is"
        state = before
        for number, event in enumerate(events):
            self.check_event(state, event)
            state = evolve(state, event)
            if isinstance(event, e.TERMINAL):
                last = number == len(events) - 1 or isinstance(events[number + 1], e.RunRetried | e.WorkTakenBack)
                assert last, f"{event.type} is not the last event"
        assert state == after == fold(before, e.decode_events(e.encode_events(events))), "the fold is not the state"
        assert decode_state(encode_state(after)) == after, "a snapshot reads back differently"
        own = len(events) - (len(command.events) if isinstance(command, c.Fork) else 0)
        assert own <= limits.events + 4 * len(after.steps) + 16, f"{own} events in one decision"
        assert after.seq == before.seq + len(events)
        assert list(decision.jobs) == open_jobs(after)
        assert decision.cut or _reported(events) or set(before.attempts) <= set(after.attempts), "cut off in silence"
        check_state(self.plan, after)

    def check_event(self, state: RunState, event: e.Event) -> None:
        """`event` may happen to a run in `state`."""
        assert event.at >= state.at, "time goes back"
        assert not state.ended or isinstance(event, e.RunRetried | e.WorkTakenBack), f"{event.type} after the end"
        match event:
            case e.TurnStarted():
                assert event.turn == (state.turn.n if state.turn else 0) + 1
                assert not state.turn_open, "a turn within a turn"
                return
            case e.TurnEnded():
                assert state.turn_open
                assert not state.open_messages, "a message is open at the end of its turn"
                assert not any(call.open for call in state.tool_calls.values())
            case e.StepStarted() | e.AttemptStarted():
                cleaning = state.status == "stopping" and is_in_cleanup(event.path)
                assert state.status == "running" or cleaning, f"{event.path} begins in a run that is {state.status}"
                assert event.path in state.ready, f"{event.path} begins, but was not ready"
                self._check_turn_has_come(state, event.path)
                if isinstance(event, e.StepStarted):
                    again = is_done(state, event.path) and not event.path.endswith("~undo")
                    assert not again, f"{event.path} begins again, which is done"
                    self.failures.pop(event.path, None)
                    self._check_undo_order(state, event.path)
                    if resolve_step(self.plan, event.path).finally_ is not None:
                        self.owed.add(event.path)
                if event.attempt:
                    self._new_attempt(event.path, event.attempt)
            case e.StepRetried(lost=False) if event.error.code != "step.in_doubt":  # which a person has decided
                self.failures[event.path] = self.failures.get(event.path, 0) + 1
                usual = UNDO_RETRY if event.path.endswith("/~undo") else self.plan.default_retry
                policy = resolve_step(self.plan, event.path).retry or usual
                assert policy is not None, f"{event.path} has no retry"
                assert self.failures[event.path] <= policy.max, f"{event.path} is tried too often"
            case e.TimerFired():
                due = [t.due for t in state.timers if (t.path, t.kind) == (event.path, event.kind)]
                assert due, "a timer fires that was not set"
                assert min(due) <= event.at, "a timer fires before its time"
                assert event.kind in TIMERS_WHILE_HALTED or state.status not in ("paused", "needs_attention")
            case e.StepUndone():
                assert event.path in state.undoables, f"{event.path} is undone, but nothing of it stands"
                assert event.path not in state.undone, f"{event.path} is undone twice"
            case e.StepFinished() | e.StepFailed() | e.StepStopped() | e.StepSkipped() | e.IterationEnded():
                inside = [path for path in _open_steps(state) if event.path and is_inside(path, event.path)]
                assert not inside, f"{event.type} of {event.path} before {inside}"
                assert event.path not in state.open_pendings
                if isinstance(event, e.StepFinished) and event.path:
                    known = state.steps.get(event.path)
                    assert known is None or known.status in OPEN, f"{event.path} finishes, which is {known.status}"
                if not isinstance(event, e.StepFailed):  # a handled failure can fail again, in its handler
                    known = state.steps.get(event.path)
                    going_on = known is None or known.status in OPEN or known.handler is not None
                    assert going_on or event.path in state.ready, f"{event.type} of {event.path}, which is over"
            case e.IterationStarted():
                self._check_room(state, event.path)
            case e.RunFailed() | e.RunFinished():
                if isinstance(event, e.RunFailed) and _is_cut(event.error.cause or event.error):
                    self.spared = True
                self._check_cleaned_up(state, undone=isinstance(event, e.RunFailed))
                self._check_undo_told(state, event)
            case e.RunStopped():
                if not event.terminated:
                    self._check_cleaned_up(state, undone=True)
            case e.PendingOpened() | e.ToolCallStarted() if getattr(event, "executor", "") != "frontend":
                self._new_id(event.id if isinstance(event, e.PendingOpened) else event.tool_call_id)
            case e.MessageStarted():
                self._new_id(event.message_id)
            case _:
                pass
        if isinstance(event, e.StepFinished) and event.undoable:
            self.order[event.path] = len(self.order)
        if getattr(event, "handler", None) == "~finally":
            self.owed.discard(getattr(event, "path", ""))
        assert event.turn == (state.turn.n if state.turn else 0)

    def _check_undo_order(self, state: RunState, path: str) -> None:
        """An undo takes back the step that finished last of all that its scope has left to undo. A step that fails when
        it runs once more after a Retry is the scope of the steps that it performed the first time."""
        if not path.endswith("/~undo"):
            return
        owner = scope = path.removesuffix("/~undo")
        while scope and not (scope in state.steps and state.steps[scope].handler == "~undo"):
            scope = resolve_step(self.plan, scope).parent
        left = [p for p in state.undoables if is_inside(p, scope) and not is_in_cleanup(p[len(scope) :])]
        newer = [p for p in left if self.order[p] > self.order[owner]]
        assert not newer, f"{owner} is undone before {newer}, which finished later"

    def _check_room(self, state: RunState, path: str) -> None:
        verb = resolve_step(self.plan, path[: path.rindex("[")]).verb
        if isinstance(verb, AgentCalls):
            return
        most = verb.max_parallel if isinstance(verb, ForEach) else 1
        loop = path[: path.rindex("[")]
        open_ones = [
            p
            for p, step in state.steps.items()
            if p.startswith(loop + "[") and "/" not in p[len(loop) :] and step.status in OPEN
        ]
        assert len(open_ones) < most, f"{path} begins beside {open_ones}"

    def _check_cleaned_up(self, state: RunState, *, undone: bool) -> None:
        if self.spared:
            return
        assert not self.owed, f"the finally of {self.owed} has not run"
        left = [path for path in state.undoables if not is_in_cleanup(path)]
        assert not undone or not left, f"{left} are not undone"

    def _check_undo_told(self, state: RunState, event: e.RunFailed | e.RunFinished) -> None:
        told = isinstance(event, e.RunFailed) and event.error.code == "undo.failed"
        assert told or not state.undo_failed, f"nobody is told that {state.undo_failed} could not be undone"

    def _check_turn_has_come(self, state: RunState, path: str) -> None:
        """The step before `path` is done, and the step around it is open: its block runs, or its handler does."""
        step = resolve_step(self.plan, path)
        before = self.before.get(plan_path(path))
        previous = None if before is None else with_keys_or_none(before.path, keys_of(path))
        assert previous is None or is_done(state, previous), f"{path} begins before {previous} is done"
        around = state.steps.get(step.parent)
        if step.body == "~undo":
            assert step.parent in state.undoables, f"{path} begins, but there is nothing to undo"
        elif step.body.startswith("~"):
            handling = around is not None and (around.handler == step.body or state.retried)
            assert handling, f"{path} begins, but is not asked to handle"
        elif step.parent:
            inside = around is not None and around.status == "running"
            assert inside, f"{path} begins outside of its block"

    def _new_attempt(self, path: str, attempt: int) -> None:
        assert (path, attempt) not in self.attempts, f"attempt {attempt} of {path} begins twice"
        assert attempt == 1 or (path, attempt - 1) in self.attempts
        self.attempts.add((path, attempt))

    def _new_id(self, id: str) -> None:
        assert id not in self.ids, f"{id} is used twice"
        self.ids.add(id)


def is_done(state: RunState, path: str) -> bool:
    """Whether the flow goes on behind the step: it finished, was skipped, or failed and was caught."""
    known = state.steps.get(path)
    if known is None:
        return False
    caught = known.status == "failed" and known.handled
    return caught or known.status in ("finished", "skipped")


def _reported(events: Sequence[e.Event]) -> bool:
    """Whether the performer itself closed an attempt: it knows, and need not be fenced off."""
    questions = (event for event in events if isinstance(event, e.PendingOpened))
    asked = (event.kind == "gate" or event.inquiry is not None for event in questions)
    kinds = e.StepFinished | e.StepFailed | e.StepRetried | e.StepStopped | e.SignalsAwaited
    ends = (isinstance(event, kinds) for event in events)
    return any(ends) or any(asked)


def check_state(plan: Plan, state: RunState) -> None:
    """The rules for a state between two decisions: its indexes are right, and no open step is forgotten."""
    steps, attempts, status = state.steps, state.attempts, state.status
    assert {step.status for step in steps.values()} <= STEP_STATUSES
    for path, number in attempts.items():
        assert (steps[path].status, steps[path].attempt) == ("running", number), path
        assert path not in state.ready
        assert all(timer.path != path for timer in state.timers)
    open_ids = {id for id, pending in state.pendings.items() if pending.status == "open"}
    assert open_ids == set(state.open_pendings.values()), "open pendings and their index differ"
    below = {path for path, step in steps.items() if step.verb == "run"}
    own = [id for id, call in state.tool_calls.items() if not any(is_inside(call.path, path) for path in below)]
    assert {run_of_pending(id) for id in (*state.pendings, *own)} <= {UUID(state.run_id)}
    for path, id in state.open_pendings.items():
        opened = state.pendings[id].opened
        assert opened.path == path
        assert steps[path].status == "waiting"
        due = [timer.due for timer in state.timers if timer.path == path and timer.kind != "remind"]
        assert len(due) == (0 if opened.deadline is None else 1), f"the deadline of {path}"
    _check_timers(state)
    for path in state.attempts:
        order_of(state, path)  # raises KeyError where an iteration around it has no state
    for path in state.timeouts:
        assert path == "" or steps[path].status == "running", f"a timeout of {path}, which is {steps[path].status}"
    assert len(set(state.ready)) == len(state.ready), "ready twice"
    for path in state.ready:
        assert path == "" or plan_path(path) in plan.steps
        assert path not in state.open_pendings
        if path and path in steps:
            assert steps[path].status != "waiting"
            assert steps[path].status != "running" or steps[path].args is not None, f"{path} is ready and running"
    _check_nothing_forgotten(state)
    _check_status(state)
    performing = [job.path for job in open_jobs(state) if isinstance(job, Perform)]
    assert sorted(performing) == sorted(set(attempts) - set(state.children))
    going_on = status in ("running", "stopping") and next_ready(state) is not None
    assert is_busy(state) == bool(performing or going_on)


def _check_timers(state: RunState) -> None:
    assert list(state.timers) == sorted(state.timers)
    for timer in state.timers:
        if timer.kind == "grace":
            assert timer.path == ""
            assert state.status == "stopping"
        elif timer.kind != "limit":
            wanted = "running" if timer.kind == "retry" else "waiting"
            assert state.steps[timer.path].status == wanted, timer
            asked = timer.path in state.open_pendings or timer.path in state.subscriptions
            assert timer.kind not in ("deadline", "halting_deadline", "remind") or asked


def _check_nothing_forgotten(state: RunState) -> None:
    """Every open step is moved by something: an attempt, a pending, a timer, its turn to begin; or a step inside is.

    In a stopping run a block may wait for the cleanup instead."""
    moved = _moved(state)
    if state.status == "stopping":
        assert moved, "a stop waits for nothing"
        return
    for path in _open_steps(state):
        undoing = (state.steps[path].handler or "") == "~undo"
        assert undoing or any(each == path or is_inside(each, path) for each in moved), f"nothing moves {path}"


def _moved(state: RunState) -> set[str]:
    timed = (timer.path for timer in state.timers if timer.path)
    return {*state.attempts, *state.open_pendings, *state.subscriptions, *state.children, *timed, *state.ready}


def _check_status(state: RunState) -> None:
    status, idle = state.status, not is_working(state)
    if state.ended:
        left = [state.ready, state.timers, state.open_pendings, state.open_messages, state.timeouts, state.attempts]
        assert not any(left), "something outlives the run"
        assert not state.turn_open
        assert not _open_steps(state)
        assert wake_at(state) is None
    if status in ("waiting", "queued"):
        assert idle
        assert not state.turn_open
    if status == "waiting":
        assert not has_ready(state)
        assert _moved(state), "waits for nothing"
    if status == "running" and not is_busy(state):
        assert state.turn_open, "running outside of a turn"
        assert wake_at(state) is not None or state.children, "running, and nothing moves it"
    if status in ("paused", "needs_attention") and idle:
        assert not state.turn_open
    if status == "stopping":
        assert not state.open_pendings
    assert (status in ("running", "stopping")) == (state.running_since is not None)


def _open_steps(state: RunState) -> list[str]:
    return [path for path, step in state.steps.items() if path and step.status in OPEN]
