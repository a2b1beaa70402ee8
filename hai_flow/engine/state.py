"""The state of one run, the one table of its statuses, and `evolve`, the only thing that changes either.

The rules of this room:

* `evolve(state, event)` folds one event. It looks nothing up, refuses nothing and computes nothing that the event does
  not say; whatever the plan had to be asked for is in the event. So any process of any release can fold a log.
* A status changes only by a row of TRANSITIONS, the phase of a step by one of STEP_TRANSITIONS. A transition that the
  tables do not have is a bug: it asserts.
* State is records of immutable maps: evolve shares what it does not change, and a speculative state that lost its
  commit is dropped for free (docs/design/store.md#snapshots). The indexes kept here (attempts, timers, timeouts, open
  pendings, ready) let decide work without ever looking at all steps.
* `seq` is the number of events folded; `snapshot at k` and `the fold of k events` are the same words.

`docs/run-states.md` is generated from the tables.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import immutables
import msgspec

from hai_flow import values
from hai_flow.definition import paths
from hai_flow.definition.paths import in_cleanup, is_inside, iteration_around, loop_of
from hai_flow.engine import events as e
from hai_flow.engine.patch import apply_patch

Json: TypeAlias = Any
Map = immutables.Map

Status: TypeAlias = Literal[
    "new", "queued", "running", "waiting", "paused", "stopping", "finished", "failed", "stopped", "needs_attention"
]
NEAR: Final = "limit.near"
"""The code of the warning that the run's log is about to be full."""
TERMINAL_STATUSES: Final = frozenset({"finished", "failed", "stopped"})

# event -> {status before: statuses after}. Where several may follow, the event says which (`run_resumed.status`).
# `turn_ended` counts only with the reason "waiting"; with any other, another event of the same commit says more.
TRANSITIONS: Final[dict[str, dict[Status, tuple[Status, ...]]]] = {
    "run_started": {"new": ("running",)},
    "run_queued": {"running": ("queued",)},
    "turn_started": {
        "queued": ("running",),
        "waiting": ("running",),
        "running": ("running",),
        "paused": ("paused",),
        "needs_attention": ("needs_attention",),
        "stopping": ("stopping",),
    },
    "turn_ended": {"running": ("waiting",)},
    "run_paused": {"running": ("paused",), "waiting": ("paused",), "queued": ("paused",)},
    "run_resumed": {"paused": ("running", "waiting", "queued")},
    "run_stopping": {
        "queued": ("stopping",),
        "running": ("stopping",),
        "waiting": ("stopping",),
        "paused": ("stopping",),
        "needs_attention": ("stopping",),
    },
    "run_stopped": {
        "queued": ("stopped",),
        "running": ("stopped",),
        "waiting": ("stopped",),
        "paused": ("stopped",),
        "stopping": ("stopped",),
        "needs_attention": ("stopped",),
    },
    "run_finished": {"running": ("finished",)},
    "run_failed": {"running": ("failed",), "stopping": ("failed",)},
    "run_needs_attention": {
        "running": ("needs_attention",),
        "paused": ("needs_attention",),
        "waiting": ("needs_attention",),
    },
    "run_retried": {"failed": ("running",), "needs_attention": ("running",)},
}


StepStatus: TypeAlias = Literal["pending", "running", "waiting", "finished", "skipped", "failed", "stopped", "undone"]
Phase: TypeAlias = Literal["new", "pending", "working", "waiting", "handling", "over"]
Outcome: TypeAlias = Literal["finished", "skipped", "failed", "handled", "stopped", "undone"]

# event -> {phase before: phases after}. `new`: the step has no record yet. Where several may follow, the event says
# which: "handling" if it names a handler. What has no row leaves the phase as it is.
STEP_TRANSITIONS: Final[dict[str, dict[Phase, tuple[Phase, ...]]]] = {
    "step_started": {
        "new": ("working",),
        "pending": ("working",),
        "handling": ("working",),
        "over": ("working",),
    },
    "iteration_started": {"new": ("working",)},
    "attempt_started": {"working": ("working",)},
    "pending_opened": {"working": ("waiting",)},
    "pending_decided": {"waiting": ("working",)},
    "timer_set": {"working": ("waiting",)},
    "signals_awaited": {"working": ("waiting",)},
    "step_finished": {
        "new": ("handling", "over"),
        "working": ("handling", "over"),
        "waiting": ("handling", "over"),
        "handling": ("handling", "over"),
    },
    "step_skipped": {
        "new": ("over",),
        "pending": ("over",),
        "working": ("handling",),
        "handling": ("over",),
        "over": ("over",),
    },
    "step_failed": {
        "new": ("handling", "over"),
        "pending": ("handling", "over"),
        "working": ("handling", "over"),
        "waiting": ("handling", "over"),
        "handling": ("handling", "over"),
        "over": ("handling", "over"),
    },
    "step_stopped": {
        "new": ("handling", "over"),
        "pending": ("handling", "over"),
        "working": ("handling", "over"),
        "waiting": ("handling", "over"),
        "handling": ("handling", "over"),
        "over": ("handling", "over"),
    },
    "step_undone": {"pending": ("pending",), "handling": ("handling",), "over": ("over",)},
    "iteration_ended": {"new": ("over",), "working": ("over",), "handling": ("over",), "over": ("over",)},
    "step_ending": {"new": ("working",)},
    "handler_started": {"working": ("handling",), "handling": ("handling",), "over": ("handling",)},
    "step_reopened": {"handling": ("handling", "working"), "over": ("handling", "working")},
    "run_retried": {"working": ("working",), "handling": ("handling", "working"), "over": ("handling", "working")},
}

# event -> the outcomes that it gives a step. `run_retried` and `step_reopened` give "finished" or "skipped" back to one
# that its own `finally` had failed, and "handled" to one whose `catch` goes on; all others that they open have none.
STEP_OUTCOMES: Final[dict[str, tuple[Outcome | None, ...]]] = {
    **dict.fromkeys(("step_started", "iteration_started", "attempt_started"), (None,)),
    **dict.fromkeys(("pending_opened", "pending_decided", "timer_set", "signals_awaited"), (None,)),
    "step_finished": ("finished",),
    "step_skipped": ("skipped",),
    "step_failed": ("failed", "handled"),
    "step_stopped": ("stopped",),
    "step_undone": ("undone",),
    "iteration_ended": ("finished", "failed", "stopped"),
}


class Ending(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """How a step will end once what is open inside it has ended (see `StepEnding`)."""

    outcome: str
    output: Json = None
    error: e.Error | None = None
    reason: str = ""


class Item(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """What stays of an iteration that has ended."""

    status: str
    output: Json = None
    error: e.Error | None = None


class LoopState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """The iterations of a loop.

    Of a `for_each`: its `items` with their `keys`; `begun` were begun, or are ready to, `ended` have ended; what became
    of each; `again` are those that a Retry begins once more before it goes on with the rest. Of a `repeat`: `begun` is
    the number of its first iteration (not 0 if it was begun anew), `last` the one that `steps.X` means.
    """

    items: list[Json] = []
    keys: tuple[str, ...] = ()
    begun: int = 0
    ended: int = 0
    results: Map[str, Item] = Map()
    again: tuple[str, ...] = ()
    last: int = -1


class Spent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """What answers of models took, as in `events.ModelUse`. `cost` is of those whose price is known; None: of none."""

    calls: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: float | None = None

    def plus(self, use: e.ModelUse) -> Spent:
        known = self.cost if use.cost is None else round((self.cost or 0.0) + use.cost, 10)
        return Spent(
            self.calls + 1,
            self.input + use.input,
            self.output + use.output,
            self.cached + use.cached,
            self.reasoning + use.reasoning,
            known,
        )

    @property
    def shown(self) -> dict[str, Json]:
        """As expressions and clients see it."""
        return {
            "calls": self.calls,
            "input_tokens": self.input,
            "output_tokens": self.output,
            "cached_tokens": self.cached,
            "reasoning_tokens": self.reasoning,
            "cost_usd": self.cost,
        }


class StepState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """One step instance: `phase` is where it stands in its life, `outcome` what it has come to, if it has.

    A phase changes only by a row of STEP_TRANSITIONS (docs/run-states.md). `begun` are the handlers of it that have
    begun since it did, the last one last: none of them begins by itself a second time, but for "~undo". `replaced` is
    the outcome that the present one has replaced: of a step that its own `finally` has failed, and of a document that
    went on behind its `catch`. `ending` says how it will end once nothing is open inside it.

    `attempt` counts tries of its effect, `failures` those that failed, `lost` those lost in a row; `past` are those
    before its gate asked anew, since when `attempt` is 0 until somebody approves; `asked` counts the pendings it ever
    opened, `rounds` how often it was done before this time (and undone, or done by a handler that runs
    once more after a Retry); `key` is its idempotency key where it is not the default.
    `timeout` is that of a block, kept so that a Retry can start its clock anew. Of a parallel step: `left` counts
    the branches that have not finished, `dropped` those of them that failed out of a race, `winners` those
    that finished, the first first. `received`: the signals that a `wait_for` has taken. `spent`: what its
    attempts took of models.
    """

    phase: Phase
    started_at: int
    verb: str = ""
    turn: int = 0
    attempt: int = 0
    failures: int = 0
    lost: int = 0
    past: int = 0
    asked: int = 0
    args: str | None = None
    output: Json = None
    error: e.Error | None = None
    approval: Json = None
    outcome: Outcome | None = None
    begun: tuple[str, ...] = ()
    replaced: Outcome | None = None
    ending: Ending | None = None
    timeout: int | None = None
    key: str | None = None
    rounds: int = 0
    received: tuple[e.SignalReceived, ...] = ()
    loop: LoopState | None = None
    index: int = 0
    case: int | None = None
    left: int = 0
    dropped: int = 0
    winners: tuple[str, ...] = ()
    spent: Spent | None = None

    @property
    def status(self) -> StepStatus:
        """What the step is called wherever it is shown: its outcome, or what it does until it has one."""
        if self.outcome is None:
            return _STATUSES.get(self.phase, "running")
        return "failed" if self.outcome == "handled" else self.outcome

    @property
    def is_open(self) -> bool:
        """Whether it has begun and come to nothing yet."""
        return self.outcome is None and self.phase != "pending"

    @property
    def is_done(self) -> bool:
        """Whether the flow goes on behind it, as soon as its last handler has ended."""
        return self.outcome in ("finished", "skipped") or self.handled

    @property
    def handler(self) -> str | None:
        """The handler that goes on in the step, or was the last to."""
        return self.begun[-1] if self.phase == "handling" else None

    @property
    def handled(self) -> bool:
        """Whether a `catch` has taken its error, so that the flow goes on behind it."""
        return self.outcome == "handled" or (self.replaced == "handled" and self.outcome in ("finished", "stopped"))

    @property
    def caught(self) -> bool:
        """Whether one of its `catch` has begun: none does a second time."""
        return any(map(paths.is_catch, self.begun))

    @property
    def cleaned(self) -> bool:
        """Whether its `finally` has begun."""
        return paths.FINALLY in self.begun

    @property
    def done(self) -> Outcome | None:
        """What it had come to before its own `finally` failed it."""
        return self.replaced if self.outcome in ("failed", "undone") else None

    @property
    def next_attempt(self) -> int:
        """The number of the effect's next attempt. None is ever given twice."""
        return max(self.attempt, self.past) + 1


_STATUSES: Final[dict[Phase, StepStatus]] = {"pending": "pending", "waiting": "waiting"}


class Timer(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False, forbid_unknown_fields=True):
    due: int
    path: str
    kind: e.TimerKind


class PendingState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A pending: what was opened, as edits and escalations left it, and what became of it.

    `status` is open, answered, declined, approve, reject (or another option), expired or voided. `since` is when its
    present stage began, `reminded` how often it was reminded of since then, `edits` what people changed of the
    arguments. `escalations` are as the envelope shows them: what each stage asked for, and when.
    """

    opened: e.PendingOpened
    status: str = "open"
    by: str | None = None
    at: int | None = None
    value: Json = None
    reason: str | None = None
    answer_sha: str | None = None
    since: int = 0
    reminded: int = 0
    votes: tuple[e.VoteCast, ...] = ()
    edits: Json = None
    escalations: tuple[e.PendingEscalated, ...] = ()


class RelayedState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A question of a run below this one: of the child `run_id` of the step `path`, or further down."""

    path: str
    run_id: str
    pending: PendingState


class MessageState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A message of the run in the order of its `n`. `chunks` counts what was appended to `content`."""

    n: int
    id: str
    role: str
    at: int
    turn: int
    kind: str = "text"
    path: str | None = None
    content: Json = ""
    open: bool = False
    aborted: bool = False
    chunks: int = 0
    block_id: str | None = None
    layout: Json = None
    style: Json = None
    name: str | None = None
    extra: Json = None


class ToolCallState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    n: int
    id: str
    name: str
    path: str
    executor: str
    message_id: str
    turn: int
    at: int
    parent_message_id: str | None = None
    args: str = ""
    open: bool = True
    result: str | None = None
    error: str | None = None


class TurnState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    n: int
    first_seq: int
    open: bool = True
    wire_run_id: str | None = None
    dialect: str | None = None
    profile: Json = None
    client_tools: tuple[str, ...] = ()
    body_sha: str | None = None
    at: int = 0


class TakenSignal(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A signal that the run has taken; `place` 0: nobody said it."""

    type: str
    own: bool = False
    place: int = 0


class RunState(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Everything that a decision or a snapshot needs to know of a run. Built by folding; never edited."""

    run_id: str
    status: Status = "new"
    seq: int = 0
    at: int = 0
    workflow: str = ""
    version: int = 0
    sha256: str = ""
    dev: bool = False
    thread_id: str = ""
    requester: str = ""
    parent: e.Parent | None = None
    origin: e.Origin | None = None
    pins: dict[str, e.Pin] = {}
    trigger: str = ""
    message: str = ""
    started_at: int = 0
    ended_at: int | None = None
    input: Json = None
    state: Json = None
    output: Json = None
    error: e.Error | None = None
    turn: TurnState | None = None
    steps: Map[str, StepState] = Map()
    attempts: Map[str, int] = Map()  # open attempts: path -> number
    timers: tuple[Timer, ...] = ()  # sorted by due
    timeouts: Map[str, int] = Map()  # path -> the working time (`worked_at`) at which the step is too late
    pendings: Map[str, PendingState] = Map()
    open_pendings: Map[str, str] = Map()  # path -> pending id
    messages: Map[str, MessageState] = Map()
    open_messages: Map[str, str] = Map()  # message id -> path
    predicted: Map[str, Json] = Map()  # path -> the state that frontends may take from the call that the step shows
    tool_calls: Map[str, ToolCallState] = Map()
    entries: int = 0  # messages and tool calls so far: the next one's n
    last_message: Map[str, str] = Map()  # step list -> last assistant message ended in this turn
    signals: Map[str, TakenSignal] = Map()  # signals that were taken, by id, but for those that `heard` covers
    heard: Map[str, e.Heard] = Map()  # by type: how far all signals were taken, but for a few
    subscriptions: Map[str, tuple[str, ...]] = Map()  # steps that wait for signals -> their types
    children: Map[str, str] = Map()  # steps that wait for a child run -> its id
    relayed: Map[str, RelayedState] = Map()  # what the children, and those below them, ask people: pending id ->
    idle: tuple[str, ...] = ()  # those of them whose child waits for something itself
    below: Map[str, int] = Map()  # steps of the runs below that are open -> the turn in which that was told
    shared: Map[str, Json] = Map()  # what the runs below show in the thread's state, by the names of their variables
    ready: tuple[str, ...] = ()
    inside: Map[str, tuple[str, ...]] = Map()  # iteration -> the steps that are kept of it
    undoables: Map[str, int] = Map()  # finished steps that an error undoes -> seq of their end
    undone: tuple[str, ...] = ()
    undo_failed: tuple[str, ...] = ()
    redo: tuple[str, ...] = ()  # undone steps that the flow comes by again since the last Retry
    redone: bool = False  # a Retry came behind an undo: what begins anew is rendered anew
    retried: int = 0
    begun_steps: int = 0  # for `limits`
    begun_calls: int = 0
    failure: e.Error | None = None  # what the end of the run ("" in ready) will say, if not its output
    key: str | None = None  # the concurrency key of which the run holds, or awaits, a slot
    slot: str | None = None  # what a queued run awaits
    worked: int = 0  # milliseconds in status running, up to `at` of the last change of status
    running_since: int | None = None
    paused_at: int | None = None
    stop_by: str = ""
    stop_reason: str = ""
    inherited: int = 0  # turns up to this one are gone on with in a fork: what was begun in them is its to clean up
    near: bool = False  # its log is nearly full, and it was said so
    forked: int = 0  # turns up to this one are those of the run that this one was forked from
    spent: Spent = Spent()
    turn_spent: Map[str, Spent] = Map()  # in this turn: provider/model -> what was spent on it

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL_STATUSES

    @property
    def questions(self) -> Mapping[str, PendingState]:
        """What people were asked: by the run itself, and by the runs below it. What a child asks that nobody waits for
        any more needs no answer."""
        if not self.relayed:
            return self.pendings
        below = {id: _heeded(each, self.children.get(each.path)) for id, each in self.relayed.items()}
        return {**self.pendings, **below}

    @property
    def open_questions(self) -> list[PendingState]:
        """Those of them that are open, in the order in which they were asked."""
        opened = [each for each in self.questions.values() if each.status == "open"]
        return sorted(opened, key=lambda each: (each.opened.at, each.opened.id))

    @property
    def shown(self) -> Mapping[str, Json]:
        """The state as frontends see it: the run's own, and what the runs below it show under names that it has not."""
        own = {} if self.state is None else self.state
        return {**{name: self.shared[name] for name in sorted(self.shared)}, **own} if self.shared else own

    @property
    def turn_open(self) -> bool:
        return self.turn is not None and self.turn.open

    def worked_at(self, now: int) -> int:
        """Milliseconds that the run has spent in status running, as of `now`: the clock of `timeout`."""
        return self.worked if self.running_since is None else self.worked + max(0, now - self.running_since)


def _heeded(relayed: RelayedState, child: str | None) -> PendingState:
    pending = relayed.pending
    if pending.status != "open" or relayed.run_id == child:
        return pending
    return msgspec.structs.replace(pending, status="voided", reason="nobody waits for the run that asked it")


def evolve(state: RunState, event: e.Event) -> RunState:
    """`state` after `event`. Total over every event that `decide` can produce."""
    assert event.at >= state.at, f"time went back from {state.at} to {event.at} in run {state.run_id}"
    return _FOLDS[type(event)](state, event)


def fold(state: RunState, events: Iterable[e.Event]) -> RunState:
    """`evolve` over several events."""
    for event in events:
        state = evolve(state, event)
    return state


# --- helpers of the folds -----------------------------------------------------------------------------------------

_set = msgspec.structs.replace


def _next(state: RunState, event: e.Event, /, **changes: Any) -> RunState:
    return _set(state, seq=state.seq + 1, at=event.at, **changes)


def _moved(state: RunState, event: e.Event, to: Status | None = None) -> dict[str, Any]:
    """The changes that a transition makes: the status, and the clock of working time."""
    allowed = TRANSITIONS[event.type].get(state.status, ())
    status = to or (allowed[0] if allowed else None)
    assert status in allowed, f"{event.type} in status {state.status} is not in the transition table"
    changes: dict[str, Any] = {"status": status}
    working = status in ("running", "stopping")  # what a stop has to undo has its timeouts too
    if working and state.running_since is None:
        changes["running_since"] = event.at
    elif not working and state.running_since is not None:
        changes["worked"] = state.worked_at(event.at)
        changes["running_since"] = None
    return changes


def _ended(state: RunState, event: e.Event, /, **changes: Any) -> RunState:
    return _next(
        state,
        event,
        **_moved(state, event),
        ended_at=event.at,
        ready=(),
        timers=(),
        timeouts=Map(),
        attempts=Map(),
        slot=None,
        subscriptions=Map(),
        children=Map(),
        below=Map(),
        **changes,
    )


def _step(state: RunState, path: str, **changes: Any) -> Map[str, StepState]:
    return state.steps.set(path, _set(state.steps[path], **changes))


def _recorded(state: RunState, path: str, step: StepState) -> dict[str, Any]:
    """The changes that record `step`; an iteration remembers which steps are kept of it."""
    changes: dict[str, Any] = {"steps": state.steps.set(path, step)}
    if paths.in_loop(path) and path not in state.steps:
        around = iteration_around(path)
        if around is not None:
            changes["inside"] = state.inside.set(around, (*state.inside.get(around, ()), path))
    return changes


def _forgotten(state: RunState, iteration: str) -> dict[str, Any]:
    """The changes that forget an iteration and everything in it; none if something in it could yet be undone, or if it
    is of a handler: that may run once more after a Retry, and its attempts are counted on."""
    if paths.in_handler(iteration) or (state.undoables and _undoable_inside(state, iteration)):
        return {}
    steps, inside = state.steps.mutate(), state.inside.mutate()
    left = [iteration]
    while left:
        path = left.pop()
        steps.pop(path, None)
        left.extend(inside.pop(path, ()))
    return {"steps": steps.finish(), "inside": inside.finish()}


def _undoable_inside(state: RunState, iteration: str) -> bool:
    return any(path in state.undoables or _undoable_inside(state, path) for path in state.inside.get(iteration, ()))


def _without(items: tuple[str, ...], item: str) -> tuple[str, ...]:
    if item not in items:
        return items
    return () if len(items) == 1 else tuple(each for each in items if each != item)


def _timers_without(state: RunState, path: str) -> tuple[Timer, ...]:
    timers = state.timers
    if not timers or all(timer.path != path for timer in timers):
        return timers
    return tuple(timer for timer in timers if timer.path != path)


def _closed_step(state: RunState, event: Any, /, **changes: Any) -> RunState:
    """What every end of a step shares: no attempt, no timer, no place in the frontier; its successors are ready."""
    path = event.path
    if path in state.subscriptions:
        state = _set(state, subscriptions=state.subscriptions.delete(path))
    if path in state.children:
        left = {"below": _below_without(state, path), **_cut_below(state, path)}
        state = _set(state, children=state.children.delete(path), **left)
    handler: str | None = getattr(event, "handler", None)
    if state.retried and handler is not None and handler != paths.UNDO:
        state = _set(state, steps=_begun_anew(state, paths.inside(path, handler)))
    before = state.steps.get(path)
    known = before or StepState("pending", event.at)
    phase: Phase = "over" if handler is None else "handling"
    closed = _set(known, phase=_phase(event, before, phase), begun=_begun(known, handler), ending=None, **changes)
    return _next(
        _set(state, **_recorded(state, path, closed)),
        event,
        attempts=_dropped(state.attempts, path),
        timers=_timers_without(state, path),
        timeouts=_dropped(state.timeouts, path),
        ready=(*_without(state.ready, path), *getattr(event, "ready", ())),
    )


def _begun_anew(state: RunState, place: str) -> Map[str, StepState]:
    """The steps of a handler that may have run before, in a run that was retried: they are to run once more."""
    steps = state.steps
    for path, step in state.steps.items():
        if is_inside(path, place):
            rounds = step.rounds + (step.status == "finished")
            again = _set(step, phase="pending", outcome=None, begun=(), rounds=rounds, args=None, approval=None)
            steps = steps.set(path, again)
    return steps


def _dropped(mapping: Map[str, int], path: str) -> Map[str, int]:
    return mapping.delete(path) if path in mapping else mapping


def _below_without(state: RunState, path: str) -> Map[str, int]:
    """The open steps of the runs below, but for those of the child of the step `path`."""
    if not state.below:
        return state.below
    return Map({each: turn for each, turn in state.below.items() if not is_inside(each, path)})


def _cut_below(state: RunState, path: str) -> dict[str, Any]:
    """The changes by which messages of the runs below the step `path` end that nobody tells the rest of any more."""
    left = [id for id, owner in state.open_messages.items() if is_inside(owner, path)]
    if not left:
        return {}
    messages, opened = state.messages, state.open_messages
    for id in left:
        messages, opened = messages.set(id, _set(messages[id], open=False, aborted=True)), opened.delete(id)
    return {"messages": messages, "open_messages": opened}


def _timeouts_with(state: RunState, event: e.StepStarted | e.AttemptStarted) -> Map[str, int]:
    if event.timeout is None:
        return state.timeouts
    return state.timeouts.set(event.path, state.worked_at(event.at) + event.timeout)


def _phase(event: e.Event, step: StepState | None, phase: Phase) -> Phase:
    """The phase that the event brings a step to, which has no record yet where it is None."""
    before = "new" if step is None else step.phase
    allowed = STEP_TRANSITIONS[event.type].get(before, ())
    assert phase in allowed, f"{event.type} brings a step from {before} to {phase}: not in the transition table"
    return phase


def _working(event: Any, state: RunState, path: str | None = None) -> dict[str, Any]:
    """The changes of a step (that of the event) which goes on with its work."""
    return {"phase": _phase(event, state.steps[path or event.path], "working"), "outcome": None}


def _waiting(event: Any, state: RunState) -> dict[str, Any]:
    """The same of one that waits for people, signals or time."""
    return {"phase": _phase(event, state.steps[event.path], "waiting"), "outcome": None}


def _begun(step: StepState, handler: str | None) -> tuple[str, ...]:
    """The handlers of the step that have begun, when `handler` does."""
    return step.begun if handler is None else (*_without(step.begun, handler), handler)


# --- folds: the run -----------------------------------------------------------------------------------------------


def _run_started(state: RunState, event: e.RunStarted) -> RunState:
    return _next(
        state,
        event,
        **_moved(state, event),
        workflow=event.workflow,
        version=event.version,
        sha256=event.sha256,
        dev=event.dev,
        thread_id=event.thread_id,
        requester=event.requester,
        parent=event.parent,
        origin=event.origin,
        pins=event.pins,
        timeouts=Map() if event.timeout is None else Map({"": event.timeout}),
        key=event.key,
        trigger=event.trigger,
        message=event.message,
        started_at=event.at,
        input=event.input,
        state=event.state,
        ready=event.ready,
    )


def _run_queued(state: RunState, event: e.RunQueued) -> RunState:
    return _next(state, event, **_moved(state, event), slot=event.slot)


def _run_paused(state: RunState, event: e.RunPaused) -> RunState:
    return _next(state, event, **_moved(state, event), paused_at=event.at)


def _run_resumed(state: RunState, event: e.RunResumed) -> RunState:
    """Deadlines that a pause halts are as far away as they were when it began."""
    paused = 0 if state.paused_at is None else event.at - state.paused_at
    timers, pendings = state.timers, state.pendings
    if any(timer.kind == "halting_deadline" for timer in timers):
        for halted in (timer for timer in timers if timer.kind == "halting_deadline"):
            id = state.open_pendings.get(halted.path)
            if id is not None:
                opened = _set(pendings[id].opened, deadline=halted.due + paused)
                pendings = pendings.set(id, _set(pendings[id], opened=opened))
        moved = (_set(t, due=t.due + paused) if t.kind == "halting_deadline" else t for t in timers)
        timers = tuple(sorted(moved))
    moved_on = _moved(state, event, event.status)  # type: ignore[arg-type]
    return _next(state, event, **moved_on, timers=timers, pendings=pendings, paused_at=None)


def _run_stopping(state: RunState, event: e.RunStopping) -> RunState:
    """Blocks end behind what they hold: no timeout cuts them short any more, and no limit of the run."""
    given = event.inherited or e.Inherited(0, 0)
    kept = {
        path: due
        for path, due in state.timeouts.items()
        if path in state.attempts or (in_cleanup(path) and not 0 < state.steps[path].turn <= given.turn)
    }
    return _next(
        state,
        event,
        **_moved(state, event),
        timeouts=Map(kept),
        timers=tuple(timer for timer in state.timers if timer.kind != "limit"),
        ready=_without(state.ready, ""),
        stop_by=event.by,
        stop_reason=event.reason,
        inherited=given.turn,
        undoables=Map({path: seq for path, seq in state.undoables.items() if seq > given.seq}),
    )


def _run_stopped(state: RunState, event: e.RunStopped) -> RunState:
    return _ended(state, event)


def _run_finished(state: RunState, event: e.RunFinished) -> RunState:
    return _ended(state, event, output=event.output)


def _run_failed(state: RunState, event: e.RunFailed) -> RunState:
    return _ended(state, event, error=event.error)


def _run_needs_attention(state: RunState, event: e.RunNeedsAttention) -> RunState:
    return _next(state, event, **_moved(state, event))


def _run_retried(state: RunState, event: e.RunRetried) -> RunState:
    return _next(
        _reopened(state, event),
        event,
        **_moved(state, event),
        ready=event.ready,
        ended_at=None,
        error=None,
        failure=None,
        undone=(),
        undo_failed=(),
        redo=event.redo,
        redone=state.redone or bool(event.redo),
        retried=state.retried + 1,
    )


def _step_reopened(state: RunState, event: e.StepReopened) -> RunState:
    ready = (*_without(state.ready, event.path), *event.ready)
    return _next(_reopened(state, event), event, ready=ready)


def _reopened(state: RunState, event: e.RunRetried | e.StepReopened) -> RunState:
    """`state` with the blocks open again that the event names."""
    steps, timeouts = state.steps, state.timeouts
    for path in event.reopened:
        step = steps[path]
        loop = None if step.loop is None else _reopened_loop(step, step.loop, path, (*event.ready, *event.reopened))
        changed = _set(
            step,
            phase=_phase(event, step, "working"),
            outcome=None,
            begun=(),
            replaced=None,
            error=None,
            ending=None,
            lost=0,
            dropped=0,
            left=event.branches.get(path, step.left),
            loop=loop,
        )
        steps = steps.set(path, changed)
        if step.timeout is not None:
            timeouts = timeouts.set(path, state.worked_at(event.at) + step.timeout)
    for path, handler in event.handling.items():
        steps = steps.set(path, _handling(event, steps[path], handler))
    return _set(state, steps=steps, timeouts=timeouts)


def _handling(event: e.Event, step: StepState, handler: str) -> StepState:
    """The step with a `catch` or its `finally` at work again."""
    phase = _phase(event, step, "handling")
    if handler == paths.FINALLY:
        outcome = "handled" if step.done is None and step.outcome == "failed" else step.done or step.outcome
        begun = _begun(step, handler)
        return _set(step, phase=phase, outcome=outcome, begun=begun, replaced=None, error=None)
    return _set(step, phase=phase, outcome="handled", begun=(handler,), ending=None)


def _reopened_loop(step: StepState, loop: LoopState, path: str, begun_again: tuple[str, ...]) -> LoopState:
    """The loop as it goes on: what has not finished begins again, some of it now (it is `begun_again`). Of a loop that
    was over, nothing else does: a failure in there is data."""
    if not loop.keys:
        return loop
    over = "finished" in (step.outcome, step.done)
    now = paths.keys_among(begun_again, path)
    results = loop.results.mutate()
    again: list[str] = []
    for key in loop.keys[: loop.begun]:
        if key in results and (over or results[key].status == "finished") and key not in now:
            continue
        results.pop(key, None)
        if key not in now:
            again.append(key)
    begun = loop.begun
    if over:  # a `break` has left it: what never began does not begin now
        results.update({key: Item("stopped") for key in loop.keys[begun:]})
        begun = len(loop.keys)
    while begun < len(loop.keys) and loop.keys[begun] in now:
        begun += 1
    kept = results.finish()
    return _set(loop, results=kept, begun=begun, ended=len(kept), again=tuple(again))


def _migrated(state: RunState, event: e.Migrated) -> RunState:
    """The same run under another plan: what is called otherwise, and nothing else."""
    if event.paths:
        state = _renamed(state, event.paths)
    return _next(
        state,
        event,
        version=event.version,
        sha256=event.sha256,
        dev=event.dev,
        pins={**state.pins, **event.pins},
        input=state.input if event.input is None else event.input,
        state=state.state if event.state is None else event.state,
    )


def _renamed(state: RunState, moved: dict[str, str]) -> RunState:
    """`state` with every path in it as the new plan has it."""

    def new(path: str) -> str:
        return paths.renamed(path, moved)

    def keys(mapping: Map[str, Any]) -> Map[str, Any]:
        return Map({new(path): value for path, value in mapping.items()})

    def all_of(found: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(new, found))

    def opened(pending: PendingState) -> PendingState:
        return _set(pending, opened=_set(pending.opened, path=new(pending.opened.path)))

    def entry(known: Any) -> Any:
        return known if known.path is None else _set(known, path=new(known.path))

    return _set(
        state,
        steps=keys(state.steps),
        attempts=keys(state.attempts),
        timers=tuple(sorted(_set(timer, path=new(timer.path)) for timer in state.timers)),
        timeouts=keys(state.timeouts),
        pendings=Map({id: opened(pending) for id, pending in state.pendings.items()}),
        open_pendings=keys(state.open_pendings),
        messages=Map({id: entry(message) for id, message in state.messages.items()}),
        open_messages=Map({id: new(path) for id, path in state.open_messages.items()}),
        tool_calls=Map({id: entry(call) for id, call in state.tool_calls.items()}),
        last_message=keys(state.last_message),
        subscriptions=keys(state.subscriptions),
        children=keys(state.children),
        relayed=Map({id: _set(each, path=new(each.path)) for id, each in state.relayed.items()}),
        idle=all_of(state.idle),
        below=keys(state.below),
        ready=all_of(state.ready),
        inside=Map({new(path): all_of(found) for path, found in state.inside.items()}),
        undoables=keys(state.undoables),
        undone=all_of(state.undone),
        undo_failed=all_of(state.undo_failed),
        redo=all_of(state.redo),
    )


def _forked(state: RunState, event: e.Forked) -> RunState:
    passed = event.at - state.at
    pendings = state.pendings
    for id in state.open_pendings.values():
        pendings = pendings.set(id, _set(_later(pendings[id], passed), votes=()))
    assert state.turn is not None
    return _next(
        state,
        event,
        requester=event.by,
        pendings=pendings,
        timers=tuple(_set(timer, due=timer.due + passed) for timer in state.timers),
        forked=state.turn.n,
    )


def _later(pending: PendingState, ms: int, *, halted: bool = False) -> PendingState:
    """The pending as if it had been opened so much later; a deadline that is `halted` stays."""
    deadline = pending.opened.deadline
    if deadline is not None and not halted:
        pending = _set(pending, opened=_set(pending.opened, deadline=deadline + ms))
    return _set(pending, since=pending.since + ms)


def _time_jumped(state: RunState, event: e.TimeJumped) -> RunState:
    halted = ("halting_deadline",) if state.status == "paused" else ()
    still = {timer.path for timer in state.timers if timer.kind in halted}
    moved = (timer if timer.kind in halted else _set(timer, due=timer.due - event.ms) for timer in state.timers)
    pendings = state.pendings
    for path, id in state.open_pendings.items():
        pendings = pendings.set(id, _later(pendings[id], -event.ms, halted=path in still))
    return _next(state, event, timers=tuple(sorted(moved)), pendings=pendings)


# --- folds: turns and the thread ----------------------------------------------------------------------------------


def _turn_started(state: RunState, event: e.TurnStarted) -> RunState:
    turn = TurnState(
        event.turn,
        state.seq + 1,
        True,
        event.wire_run_id,
        event.dialect,
        event.profile,
        event.client_tools,
        event.body_sha,
        event.at,
    )
    slot = None if state.status == "queued" else state.slot  # `slot` is what the run still waits for
    return _next(state, event, **_moved(state, event), turn=turn, last_message=Map(), slot=slot, turn_spent=Map())


def _turn_ended(state: RunState, event: e.TurnEnded) -> RunState:
    changes = _moved(state, event) if event.reason == "waiting" else {}
    assert state.turn is not None
    return _next(state, event, turn=_set(state.turn, open=False), predicted=Map(), **changes)


def _messages_changed(state: RunState, event: e.MessagesChanged) -> RunState:
    messages, n = state.messages, state.entries
    for message in event.messages:
        messages = messages.set(
            message.id,
            MessageState(
                n,
                message.id,
                message.role,
                message.timestamp or event.at,
                event.turn,
                content=message.content,
                name=message.name,
                extra=message.extra,
            ),
        )
        n += 1
    return _next(state, event, messages=messages, entries=n)


# --- folds: steps -------------------------------------------------------------------------------------------------


def _step_started(state: RunState, event: e.StepStarted) -> RunState:
    path = event.path
    before = state.steps.get(path)
    step = StepState(
        _phase(event, before, "working"),
        event.at,
        event.verb,
        event.turn,
        event.attempt,
        past=0 if event.attempt or before is None else max(before.attempt, before.past),
        asked=before.asked if before else 0,
        args=event.args,
        # a gate that was passed stays passed, as long as it is for the same arguments
        approval=before.approval if before and event.attempt and before.args == event.args else None,
        timeout=None if event.attempt else event.timeout,
        key=event.key,
        rounds=before.rounds if before else 0,
        loop=_loop(event, before) if event.verb in _LOOPS else None,
        case=event.case,
        left=event.branches,
    )
    return _next(
        state,
        event,
        **_recorded(state, path, step),
        begun_steps=state.begun_steps + 1,
        begun_calls=state.begun_calls + (event.verb == "call"),
        redo=state.redo and tuple(each for each in state.redo if each != path and not is_inside(each, path)),
        attempts=state.attempts.set(path, event.attempt) if event.attempt else state.attempts,
        timeouts=_timeouts_with(state, event),
        ready=(*_without(state.ready, path), *event.ready),
    )


_LOOPS: Final = frozenset({"for_each", "repeat"})


def _loop(event: e.StepStarted, before: StepState | None) -> LoopState:
    if event.verb == "for_each":
        return LoopState(event.items, event.keys, len(event.ready))
    last = -1 if before is None or before.loop is None else before.loop.last
    return LoopState(begun=last + 1, last=last)


def _attempt_started(state: RunState, event: e.AttemptStarted) -> RunState:
    return _next(
        state,
        event,
        steps=_step(state, event.path, attempt=event.attempt, **_working(event, state)),
        attempts=state.attempts.set(event.path, event.attempt),
        timers=_timers_without(state, event.path),
        timeouts=_timeouts_with(state, event),
        ready=_without(state.ready, event.path),
    )


def _step_finished(state: RunState, event: e.StepFinished) -> RunState:
    before = state.steps.get(event.path)
    changes: dict[str, Any] = {"outcome": "finished", "output": event.output, "lost": 0}
    if before is not None and before.outcome == "handled":  # a document behind its `catch`
        changes["replaced"] = "handled"
    if event.approval is not None:
        changes["approval"] = event.approval
    loop = None if before is None else before.loop
    if loop is not None and loop.keys:
        changes["output"] = gathered(loop)
    after = _closed_step(state, event, **changes)
    if event.undoable:
        after = _set(after, undoables=after.undoables.set(event.path, after.seq))
    return after if loop is None else _closed_loop(after, event.path, loop)


def gathered(loop: LoopState) -> list[Json]:
    """The output of a `for_each`: what became of each item, in their order."""
    none = Item("stopped")
    items = ((key, loop.results.get(key, none)) for key in loop.keys)
    return [
        {
            "key": paths.unescaped(key),
            "status": item.status,
            "output": item.output,
            "error": None if item.error is None else msgspec.to_builtins(item.error),
        }
        for key, item in items
    ]


def _closed_loop(state: RunState, path: str, loop: LoopState) -> RunState:
    """A `for_each` that has finished needs none of its iterations any more, nor its items; unless something in it may
    yet be undone, and be done again."""
    if not loop.keys or any(is_inside(each, path) for each in state.undoables):
        return state
    for key in loop.keys:
        iteration = paths.iteration(path, key)
        if iteration in state.steps:
            state = _set(state, **_forgotten(state, iteration))
    return _set(state, steps=_step(state, path, loop=_set(loop, items=[], results=Map())))


def _step_skipped(state: RunState, event: e.StepSkipped) -> RunState:
    if event.handler is None and event.approval is None:
        phase = _phase(event, state.steps.get(event.path), "over")
        recorded = _recorded(state, event.path, StepState(phase, event.at, outcome="skipped"))
        return _next(state, event, **recorded, ready=(*_without(state.ready, event.path), *event.ready))
    return _closed_step(state, event, outcome="skipped", approval=event.approval, output=event.approval)


def _step_failed(state: RunState, event: e.StepFailed) -> RunState:
    before = state.steps.get(event.path)
    taken = event.handler is not None and paths.is_catch(event.handler)
    changes: dict[str, Any] = {"outcome": "handled" if taken else "failed", "error": event.error, "replaced": None}
    if event.approval is not None:
        changes |= {"approval": event.approval, "output": event.approval}
    if before is not None:
        if before.cleaned and (before.outcome in ("finished", "skipped") or before.handled):
            changes["replaced"] = before.outcome
        else:
            changes["replaced"] = before.done
            if before.loop is not None and before.loop.keys:
                changes["output"] = gathered(before.loop)
    after = _closed_step(state, event, **changes)
    if paths.is_undo(event.path):
        after = _undo_ended(after, event.path, failed=True)
    return _set(after, failure=event.error) if "" in event.ready else after


def _undo_ended(state: RunState, path: str, *, failed: bool = False) -> RunState:
    owner = path if not failed else paths.undone_by(path)
    undoables = state.undoables.delete(owner) if owner in state.undoables else state.undoables
    if failed:
        return _set(state, undoables=undoables, undo_failed=(*state.undo_failed, owner))
    return _set(state, undoables=undoables, undone=(*state.undone, owner))


def _step_undone(state: RunState, event: e.StepUndone) -> RunState:
    step = state.steps[event.path]
    after = _next(
        state,
        event,
        steps=_step(
            state,
            event.path,
            phase=_phase(event, step, step.phase),
            outcome="undone",
            rounds=step.rounds + 1,
        ),
        ready=(*state.ready, *event.ready),
    )
    return _undo_ended(after, event.path)


def _step_ending(state: RunState, event: e.StepEnding) -> RunState:
    before = state.steps.get(event.path)
    ending = Ending(event.outcome, event.output, event.error, event.reason)
    if before is None:
        step = StepState(_phase(event, None, "working"), event.at, ending=ending)
    else:
        step = _set(before, ending=ending)
    recorded = _recorded(state, event.path, step)
    return _next(state, event, **recorded, timeouts=_dropped(state.timeouts, event.path))


def _handler_started(state: RunState, event: e.HandlerStarted) -> RunState:
    if state.retried and event.ready and event.handler != paths.UNDO:
        state = _set(state, steps=_begun_anew(state, paths.inside(event.path, event.handler)))
    before = state.steps[event.path]
    changes: dict[str, Any] = {"outcome": "handled"} if paths.is_catch(event.handler) else {}
    phase = _phase(event, before, "handling")
    steps = _step(state, event.path, phase=phase, begun=_begun(before, event.handler), ending=None, **changes)
    return _next(state, event, steps=steps, ready=(*state.ready, *event.ready))


def _iteration_started(state: RunState, event: e.IterationStarted) -> RunState:
    loop = loop_of(event.path)
    known = state.steps[loop].loop
    assert known is not None
    if not known.keys:  # a `repeat`: the iteration before is over, and `steps.X` means this one
        if 0 <= known.last != event.index:
            state = _set(state, **_forgotten(state, paths.iteration(loop, known.last)))
        state = _set(state, steps=_step(state, loop, loop=_set(known, last=event.index)))
    phase = _phase(event, state.steps.get(event.path), "working")
    step = StepState(phase, event.at, "iteration", event.turn, index=event.index)
    ready = (*_without(state.ready, event.path), *event.ready)
    return _next(state, event, **_recorded(state, event.path, step), ready=ready)


def _iteration_ended(state: RunState, event: e.IterationEnded) -> RunState:
    path = loop_of(event.path)
    loop = state.steps[path].loop
    assert loop is not None
    key = paths.key_of(event.path)
    changed = loop
    if loop.keys:
        started = paths.keys_among(event.ready, path)
        again = tuple(each for each in loop.again if each not in started) if loop.again else ()
        begun = loop.begun + len(event.ready) - (len(loop.again) - len(again))
        results = loop.results.set(key, Item(event.status, event.output, event.error))
        changed = _set(loop, begun=begun, ended=loop.ended + 1, again=again, results=results)
    before = state.steps.get(event.path)
    known = before or StepState("pending", event.at)
    phase = _phase(event, before, "over")
    ended = _set(known, phase=phase, outcome=event.status, error=event.error, ending=None)
    state = _set(state, **_recorded(state, event.path, ended))
    ready = (*_without(state.ready, event.path), *event.ready)
    after = _next(state, event, steps=_step(state, path, loop=changed), ready=ready)
    return _set(after, **_forgotten(after, event.path)) if loop.keys and event.status == "finished" else after


def _step_retried(state: RunState, event: e.StepRetried) -> RunState:
    step = state.steps[event.path]
    return _next(
        state,
        event,
        steps=_step(
            state,
            event.path,
            lost=step.lost + 1 if event.lost else 0,
            failures=step.failures + (not event.lost),
        ),
        attempts=_dropped(state.attempts, event.path),
        timeouts=_dropped(state.timeouts, event.path),
        ready=state.ready if event.due is not None else (*_without(state.ready, event.path), event.path),
    )


def _step_stopped(state: RunState, event: e.StepStopped) -> RunState:
    before = state.steps.get(event.path)
    taken = before is not None and before.outcome == "handled"
    changes: dict[str, Any] = {"replaced": "handled"} if taken else {}
    return _closed_step(state, event, outcome="stopped", **changes)


def _branch_ended(state: RunState, event: e.BranchEnded) -> RunState:
    step = state.steps[event.path]
    others = tuple(each for each in step.winners if each != event.branch)
    if event.failed:
        return _next(state, event, steps=_step(state, event.path, dropped=step.dropped + 1, winners=others))
    won = step.winners if event.branch in step.winners else (*others, event.branch)
    return _next(state, event, steps=_step(state, event.path, left=step.left - 1, winners=won))


# --- folds: what people see ---------------------------------------------------------------------------------------


def _message(state: RunState, event: e.MessageStarted | e.ChildSaid, **more: Any) -> MessageState:
    """The message that begins, or is told, with the event."""
    return MessageState(
        state.entries,
        event.message_id,
        event.role,
        event.at,
        event.turn,
        event.kind,
        event.path,
        block_id=event.block_id,
        layout=event.layout,
        style=event.style,
        **more,
    )


def _message_started(state: RunState, event: e.MessageStarted) -> RunState:
    message = _message(state, event, open=True)
    return _next(
        state,
        event,
        messages=state.messages.set(event.message_id, message),
        open_messages=state.open_messages.set(event.message_id, event.path),
        entries=state.entries + 1,
    )


def _message_chunk(state: RunState, event: e.MessageChunk) -> RunState:
    message = state.messages[event.message_id]
    assert event.n == message.chunks, f"chunk {event.n} of {message.id} after {message.chunks} chunks"
    grown = _set(message, content=message.content + event.content, chunks=event.n + 1)
    return _next(state, event, messages=state.messages.set(message.id, grown))


def _message_ended(state: RunState, event: e.MessageEnded) -> RunState:
    message = state.messages[event.message_id]
    closed = _set(message, open=False, aborted=event.aborted)
    return _next(
        state,
        event,
        messages=state.messages.set(message.id, closed),
        open_messages=state.open_messages.delete(message.id),
        last_message=state.last_message.set(paths.list_of(message.path or ""), message.id),
    )


def _tool_call_started(state: RunState, event: e.ToolCallStarted) -> RunState:
    call = ToolCallState(
        state.entries,
        event.tool_call_id,
        event.name,
        event.path,
        event.executor,
        event.message_id,
        event.turn,
        event.at,
        event.parent_message_id,
    )
    steps = state.steps
    if event.executor == "server":  # a frontend's call is counted by its pending
        steps = _step(state, event.path, asked=steps[event.path].asked + 1)
    return _next(
        state,
        event,
        steps=steps,
        tool_calls=state.tool_calls.set(call.id, call),
        entries=state.entries + 1,
    )


def _call(state: RunState, id: str, **changes: Any) -> Map[str, ToolCallState]:
    return state.tool_calls.set(id, _set(state.tool_calls[id], **changes))


def _tool_call_args_chunk(state: RunState, event: e.ToolCallArgsChunk) -> RunState:
    args = state.tool_calls[event.tool_call_id].args + event.content
    return _next(state, event, tool_calls=_call(state, event.tool_call_id, args=args))


def _tool_call_ended(state: RunState, event: e.ToolCallEnded) -> RunState:
    return _next(state, event, tool_calls=_call(state, event.tool_call_id, open=False))


def _tool_call_resolved(state: RunState, event: e.ToolCallResolved) -> RunState:
    calls = _call(state, event.tool_call_id, result=event.content, error=event.error)
    return _next(state, event, tool_calls=calls)


# --- folds: people ------------------------------------------------------------------------------------------------


def _pending_opened(state: RunState, event: e.PendingOpened) -> RunState:
    step = state.steps[event.path]
    changes: dict[str, Any] = {}
    if event.kind == "doubt":  # the attempt is over, though nobody knows how
        changes["attempts"] = _dropped(state.attempts, event.path)
        changes["timeouts"] = _dropped(state.timeouts, event.path)
    return _next(
        state,
        event,
        steps=_step(state, event.path, asked=step.asked + 1, **_waiting(event, state)),
        pendings=state.pendings.set(event.id, PendingState(event, since=event.at)),
        open_pendings=state.open_pendings.set(event.path, event.id),
        ready=_without(state.ready, event.path),
        **changes,
    )


def _pending(state: RunState, id: str, **changes: Any) -> Map[str, PendingState]:
    return state.pendings.set(id, _set(state.pendings[id], **changes))


def _vote_cast(state: RunState, event: e.VoteCast) -> RunState:
    votes = (*state.pendings[event.id].votes, event)
    return _next(state, event, pendings=_pending(state, event.id, votes=votes))


def _pending_edited(state: RunState, event: e.PendingEdited) -> RunState:
    opened = _set(state.pendings[event.id].opened, args=event.args, digest=event.digest)
    return _next(state, event, pendings=_pending(state, event.id, opened=opened, edits=event.edits))


def _pending_escalated(state: RunState, event: e.PendingEscalated) -> RunState:
    pending = state.pendings[event.id]
    escalated = _pending(
        state,
        event.id,
        opened=_set(pending.opened, policy=event.policy, deadline=event.deadline),
        since=event.began,
        reminded=0,
        escalations=(*pending.escalations, event),
    )
    return _next(state, event, pendings=escalated, timers=_timers_without(state, event.path))


def _pending_reminded(state: RunState, event: e.PendingReminded) -> RunState:
    return _next(state, event, pendings=_pending(state, event.id, reminded=event.n))


def _pending_restamped(state: RunState, event: e.PendingRestamped) -> RunState:
    """Votes on the question as it was are votes on it as it is."""
    pending = state.pendings[event.id]
    before, bound = pending.opened.digest, event.digest
    votes = tuple(_set(vote, digest=bound) if vote.digest == before else vote for vote in pending.votes)
    opened = _set(pending.opened, digest=bound)
    return _next(state, event, pendings=_pending(state, event.id, opened=opened, votes=votes))


def _pending_decided(state: RunState, event: e.PendingDecided) -> RunState:
    """What was asked goes on: of a gate with the arguments that were decided upon, and what was decided."""
    pending = _set(
        state.pendings[event.id],
        status=event.outcome,
        by=event.by,
        at=event.at,
        value=event.value,
        reason=event.reason,
        answer_sha=event.answer_sha,
    )
    changes = _working(event, state, pending.opened.path)
    if event.ready:
        changes |= {"approval": event.value, "args": pending.opened.args}
    step = _step(state, pending.opened.path, **changes)
    return _pending_closed(state, event, pending, steps=step, ready=(*state.ready, *event.ready))


def _pending_voided(state: RunState, event: e.PendingVoided) -> RunState:
    pending = _set(state.pendings[event.id], status="voided", at=event.at, reason=event.reason)
    return _pending_closed(state, event, pending)


def _pending_closed(state: RunState, event: e.Event, pending: PendingState, **changes: Any) -> RunState:
    path = pending.opened.path
    return _next(
        state,
        event,
        pendings=state.pendings.set(pending.opened.id, pending),
        open_pendings=state.open_pendings.delete(path),
        timers=_timers_without(state, path),
        **changes,
    )


# --- folds: state, time, the world --------------------------------------------------------------------------------


def _state_changed(state: RunState, event: e.StateChanged) -> RunState:
    return _next(state, event, state=apply_patch(state.state, event.ops))


def _timer_set(state: RunState, event: e.TimerSet) -> RunState:
    timers = list(state.timers)
    insort(timers, Timer(event.due, event.path, event.kind))
    changes: dict[str, Any] = {"timers": tuple(timers)}
    if event.kind == "wait":
        changes["steps"] = _step(state, event.path, **_waiting(event, state))
    return _next(state, event, **changes)


def _timer_fired(state: RunState, event: e.TimerFired) -> RunState:
    timers = tuple(t for t in state.timers if not (t.path == event.path and t.kind == event.kind))
    ready = (*state.ready, event.path) if event.kind == "retry" else state.ready
    return _next(state, event, timers=timers, ready=ready)


def _custom_emitted(state: RunState, event: e.CustomEmitted) -> RunState:
    if event.name != e.PREDICTED:
        return _next(state, event)
    return _next(state, event, predicted=state.predicted.set(event.path, event.value))


def _raw_emitted(state: RunState, event: e.RawEmitted) -> RunState:
    return _next(state, event)


def _collaboration_started(state: RunState, event: e.CollaborationStarted) -> RunState:
    """A child run watches its timeout itself."""
    if event.run_id is None:
        return _next(state, event)
    return _next(
        state,
        event,
        children=state.children.set(event.path, event.run_id),
        idle=_without(state.idle, event.path),
        timeouts=_dropped(state.timeouts, event.path),
    )


def _collaboration_ended(state: RunState, event: e.CollaborationEnded) -> RunState:
    if event.run_id is None:
        return _next(state, event)
    return _next(
        state,
        event,
        children=state.children.delete(event.path),
        idle=_without(state.idle, event.path),
        below=_below_without(state, event.path),
        **_cut_below(state, event.path),
    )


def _child_moved(state: RunState, event: e.ChildMoved) -> RunState:
    idle = _without(state.idle, event.path)
    if event.working:
        return _next(state, event, idle=idle)
    return _next(state, event, idle=(*idle, event.path), **_cut_below(state, event.path))


def _child_asked(state: RunState, event: e.ChildAsked) -> RunState:
    """Its place in the thread, and that of its votes, is here: the turns and times of that run are its own."""
    opened = event.opened
    known = state.relayed.get(opened.id)
    before = None if known is None else known.pending
    first = opened if before is None else before.opened
    seen = () if before is None else before.votes
    decided = event.status != "open"
    pending = PendingState(
        _set(opened, at=event.at if before is None else first.at, turn=event.turn if before is None else first.turn),
        status=event.status,
        by=event.by,
        at=event.at if decided else None,
        value=event.value,
        reason=event.reason,
        edits=event.edits,
        votes=(*seen, *(_set(vote, turn=event.turn) for vote in event.votes[len(seen) :])),
    )
    changes: dict[str, Any] = {}
    if opened.kind == "tool":
        changes = _relayed_call(state, pending)
    relayed = state.relayed.set(opened.id, RelayedState(event.path, event.run_id, pending))
    return _next(state, event, relayed=relayed, **changes)


def _relayed_call(state: RunState, pending: PendingState) -> dict[str, Any]:
    """The changes by which a frontend tool's call of a run below stands here."""
    opened = pending.opened
    call = state.tool_calls.get(opened.id)
    entries = state.entries
    if call is None:
        call = ToolCallState(
            entries,
            opened.id,
            opened.tool or "",
            opened.path,
            "frontend",
            opened.id,
            opened.turn,
            opened.at,
            args=opened.args or "{}",
            open=False,
        )
        entries += 1
    if pending.status == "answered":
        text = pending.value if isinstance(pending.value, str) else values.dumps(pending.value).decode()
        call = _set(call, result=text)
    elif pending.status == "declined":
        call = _set(call, result=pending.reason or "", error="tool.declined")
    return {"tool_calls": state.tool_calls.set(opened.id, call), "entries": entries}


def _child_said(state: RunState, event: e.ChildSaid) -> RunState:
    known = state.messages.get(event.message_id)
    if known is None:
        message = _message(state, event, content=event.content, aborted=event.aborted, chunks=1)
        return _next(state, event, messages=state.messages.set(message.id, message), entries=state.entries + 1)
    whole = _set(known, content=event.content, aborted=event.aborted, chunks=known.chunks + 1, open=False)
    opened = state.open_messages.delete(known.id) if known.open else state.open_messages
    return _next(state, event, messages=state.messages.set(known.id, whole), open_messages=opened)


def _child_stepped(state: RunState, event: e.ChildStepped) -> RunState:
    below = state.below
    if event.status == "running":
        return _next(state, event, below=below.set(event.path, event.turn))
    below = below.delete(event.path) if event.path in below else below
    return _next(state, event, below=below, **_cut_below(state, event.path))


def _child_shared(state: RunState, event: e.ChildShared) -> RunState:
    return _next(state, event, shared=state.shared.update(event.values))


def _signals_awaited(state: RunState, event: e.SignalsAwaited) -> RunState:
    return _next(
        state,
        event,
        steps=_step(state, event.path, **_waiting(event, state)),
        subscriptions=state.subscriptions.set(event.path, event.types),
    )


def _signal_received(state: RunState, event: e.SignalReceived) -> RunState:
    received = (*state.steps[event.path].received, event)
    return _next(
        state,
        event,
        steps=_step(state, event.path, received=received),
        subscriptions=state.subscriptions.set(event.path, event.awaits),
        **_taken(state, event),
    )


def _taken(state: RunState, event: e.SignalReceived) -> dict[str, Any]:
    """The changes by which the run remembers that it has taken a signal: by its id, or by how far it has heard."""
    signals = state.signals.set(event.id, TakenSignal(event.name, event.own, event.place))
    before = state.heard.get(event.name)
    if before is None and event.heard is None:
        return {"signals": signals}
    before, said = before or e.Heard(), event.heard or e.Heard()
    left = tuple(id for id in (*before.left, *said.left) if id != event.id)
    heard = e.Heard(max(before.to_all, said.to_all), max(before.own, said.own), left)
    covered = [id for id, taken in signals.items() if taken.type == event.name and is_heard(heard, taken)]
    kept = signals.mutate()
    for id in covered:
        del kept[id]
    return {"signals": kept.finish(), "heard": state.heard.set(event.name, heard)}


def is_heard(heard: e.Heard, signal: Any) -> bool:
    """Whether a signal of the type, one with a `place`, stands where the run has heard all."""
    return 0 < signal.place <= (heard.own if signal.own else heard.to_all)


def _model_used(state: RunState, event: e.ModelUsed) -> RunState:
    use, step = event.use, state.steps[event.path]
    label = f"{use.provider}/{use.served}"
    return _next(
        state,
        event,
        steps=_step(state, event.path, spent=(step.spent or Spent()).plus(use)),
        spent=state.spent.plus(use),
        turn_spent=state.turn_spent.set(label, state.turn_spent.get(label, Spent()).plus(use)),
    )


def _warning_raised(state: RunState, event: e.WarningRaised) -> RunState:
    return _next(state, event, near=state.near or event.code == NEAR)


_FOLDS: Final[dict[type[e.Event], Callable[[RunState, Any], RunState]]] = {
    kind: globals()["_" + name] for kind, name in e._TYPE_NAMES.items()
}
