"""The state of one run, as records of immutable maps.

`evolve` makes the next state of an event and shares all that it does not change; a speculative state that lost its
commit is dropped for free (docs/design/store.md#snapshots). The indexes kept here (attempts, timers, timeouts, open
pendings, ready) let decide work without ever looking at all steps. `seq` is the number of events folded; `snapshot at
k` and `the fold of k events` are the same words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import immutables
import msgspec

from hai_flow.definition import paths
from hai_flow.engine import events as e
from hai_flow.engine.state.instigators import list_ids
from hai_flow.values import Json

Map = immutables.Map

Status: TypeAlias = Literal[
    "new", "queued", "running", "waiting", "paused", "stopping", "finished", "failed", "stopped", "needs_attention"
]
NEAR: Final = "limit.near"
"""The code of the warning that the run's log is about to be full."""
TERMINAL_STATUSES: Final = frozenset({"finished", "failed", "stopped"})


StepStatus: TypeAlias = Literal["pending", "running", "waiting", "finished", "skipped", "failed", "stopped", "undone"]
Phase: TypeAlias = Literal["new", "pending", "working", "waiting", "handling", "over"]
Outcome: TypeAlias = Literal["finished", "skipped", "failed", "handled", "stopped", "undone"]


class Ending(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """How a step will end once every open step inside it has ended (see `StepEnding`)."""

    outcome: str
    output: Json = None
    error: e.Error | None = None
    reason: str = ""


class Item(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """The record of an iteration that has ended."""

    status: str
    output: Json = None
    error: e.Error | None = None


class LoopState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """The iterations of a loop.

    Of a `for_each`: its `items` with their `keys`; `begun` were begun, or are ready to, `ended` have ended; the outcome
    of each; `again` are those that a Retry begins once more before it goes on with the rest. Of a `repeat`: `begun` is
    the number of its first iteration (not 0 if it was begun anew), `last` the one that `steps.X` means. An agent is as
    a `repeat`; `entries` are the messages and calls that its run had when it began; `closing`: `stop_when` was true,
    and its model only has to give the object that `output` describes. `since`: the first iteration that counts for
    `max_turns`, where a Retry has gone on behind the last one of an agent that had failed."""

    items: list[Json] = []
    keys: tuple[str, ...] = ()
    begun: int = 0
    ended: int = 0
    results: Map[str, Item] = Map()
    again: tuple[str, ...] = ()
    last: int = -1
    entries: int = 0
    closing: bool = False
    since: int = 0


class Spent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """The cost of answers of models, as in `events.ModelUse`. `cost` is of those whose price is known; None: of
    none."""

    calls: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: float | None = None

    def plus(self, use: e.ModelUse) -> Spent:
        cost = self.cost if use.cost is None else round((self.cost or 0.0) + use.cost, 10)
        return Spent(
            self.calls + use.calls,
            self.input + use.input,
            self.output + use.output,
            self.cached + use.cached,
            self.reasoning + use.reasoning,
            cost,
        )

    @property
    def shown(self) -> dict[str, Json]:
        """These numbers, as expressions and clients see them."""
        return {
            "calls": self.calls,
            "input_tokens": self.input,
            "output_tokens": self.output,
            "cached_tokens": self.cached,
            "reasoning_tokens": self.reasoning,
            "cost_usd": self.cost,
        }


class StepState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """One step instance: `phase` is where it stands in its life, `outcome` its result, if it has one.

    A phase changes only by a row of STEP_TRANSITIONS (docs/run-states.md). `begun` are the handlers of it that have
    begun since it did, the last one last: none of them begins by itself a second time, but for "~undo". `replaced` is
    the outcome that the present one has replaced: of a step that its own `finally` has failed, and of a document that
    went on behind its `catch`. `ending` says how it will end once nothing is open inside it.

    `attempt` counts tries of its effect, `failures` those that failed, `lost` those lost in a row; `past` are those
    before its gate asked anew, since when `attempt` is 0 until somebody approves; `asked` counts the pendings it ever
    opened, `rounds` how often it was done before this time (and undone, or done by a handler that runs once more after
    a Retry); `key` is its idempotency key where it is not the default. `timeout` is that of a block, kept so that a
    Retry can start its clock anew. Of a parallel step: `left` counts the branches that have not finished, `dropped`
    those of them that failed out of a race, `winners` those that finished, the first first. `received`: the signals
    that a `wait_for` has taken. `parts`: the files in answers of its model, as content parts. `spent`: the cost of the
    models of its attempts. `given`: a person has skipped it, and gave its `output`. `reading`: its attempt performs
    nothing, and people are asked behind it."""

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
    parts: tuple[Json, ...] = ()
    given: bool = False
    reading: bool = False

    @property
    def status(self) -> StepStatus:
        """The status that is shown of the step: its outcome, or its activity until it has one."""
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
    def is_failed(self) -> bool:
        """Whether an error goes on behind its `finally`: also that of a step which did its work before a Retry, failed
        when it began once more, and had that work undone."""
        return self.outcome == "failed" or (self.outcome == "undone" and self.error is not None)

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
        """Its outcome before its own `finally` failed it."""
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
    """A pending: the question, as edits and escalations left it, and its outcome.

    `status` is open, answered, declined, approve, reject (or another option), expired or voided. `since` is when its
    present stage began, `reminded` how often it was reminded of since then, `edits` the changes of people to the
    arguments. `escalations` are as the envelope shows them: the demands of each stage, and when."""

    opened: e.PendingOpened
    status: str = "open"
    by: str | None = None
    on_behalf_of: str | None = None
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
    """A message of the run in the order of its `n`. `chunks` counts the pieces of `content`."""

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
    """A signal that the run has taken; `place` 0: unknown."""

    type: str
    own: bool = False
    place: int = 0


class Expense(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """What a child run has taken so far: attempt `attempt` of the step `path` started it."""

    path: str
    attempt: int
    used: tuple[e.ModelUse, ...] = ()
    tool_calls: int = 0


class LastChild(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """The last child run of a step that has not finished. A Retry goes on with it, if the arguments are the same.

    `workflow` is its name, `args` a digest of the arguments, `rounds` that of the step when it started. `spent` (by
    model) and `calls`: what it has reported so far, of all that it took since it was born."""

    run_id: str
    workflow: str
    args: str
    rounds: int = 0
    spent: dict[str, Spent] = {}
    calls: int = 0


class RunState(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Everything that a decision or a snapshot needs to know of a run. Built by folding; never edited."""

    run_id: str
    status: Status = "new"
    # those that each step changes come first: to replace a field takes the longer, the farther behind it stands
    seq: int = 0
    at: int = 0
    steps: Map[str, StepState] = Map()
    attempts: Map[str, int] = Map()  # open attempts: path -> number
    ready: tuple[str, ...] = ()
    timeouts: Map[str, int] = Map()  # path -> the working time (`compute_working_time`) at which the step is too late
    inside: Map[str, tuple[str, ...]] = Map()  # iteration -> the steps that are kept of it
    begun_steps: int = 0  # for `limits`
    begun_calls: int = 0
    redo: tuple[str, ...] = ()  # undone steps that the flow comes by again since the last Retry
    timers: tuple[Timer, ...] = ()  # sorted by due
    subscriptions: Map[str, tuple[str, ...]] = Map()  # steps that wait for signals -> their types
    # and the others
    workflow: str = ""
    version: int = 0
    sha256: str = ""
    dev: bool = False
    thread_id: str = ""
    requester: str = ""
    instigators: tuple[str, ...] = ()  # the people behind the run when it began
    senders: tuple[str, ...] = ()  # those that sent the signals that it or a run below has taken
    parent: e.Parent | None = None
    origin: e.Origin | None = None
    pins: dict[str, e.Pin] = {}
    trigger: str = ""
    scheduled_at: int | None = None  # the instant that a schedule started it for, in milliseconds
    trace: str | None = None
    message: str = ""
    started_at: int = 0
    ended_at: int | None = None
    input: Json = None
    state: Json = None
    output: Json = None
    error: e.Error | None = None
    turn: TurnState | None = None
    pendings: Map[str, PendingState] = Map()
    open_pendings: Map[str, str] = Map()  # path -> pending id
    messages: Map[str, MessageState] = Map()
    open_messages: Map[str, str] = Map()  # message id -> path
    predicted: Map[str, Json] = Map()  # path -> the state that frontends may take from the call that the step shows
    tool_calls: Map[str, ToolCallState] = Map()
    open_calls: Map[str, str] = Map()  # calls that a model is writing: id -> path of its answer
    entries: int = 0  # messages and tool calls so far: the next one's n
    last_message: Map[str, str] = Map()  # step list -> last assistant message ended in this turn
    signals: Map[str, TakenSignal] = Map()  # signals that were taken, by id, but for those that `heard` covers
    heard: Map[str, e.Heard] = Map()  # by type: how far all signals were taken, but for a few
    children: Map[str, str] = Map()  # steps that wait for a child run -> its id
    last_children: Map[str, LastChild] = Map()  # steps that have not finished -> the child that they started last
    allowance: e.Allowance | None = None  # reserved by the run above for this one
    granted: Map[str, e.Allowance] = Map()  # child runs of whose end nothing was heard yet -> reserved for them
    expenses: Map[str, Expense] = Map()  # child runs of whose end nothing was heard yet -> what they have taken so far
    relayed: Map[str, RelayedState] = Map()  # questions of the children, and of those below them: pending id ->
    idle: tuple[str, ...] = ()  # those of them whose child waits for something itself
    below: Map[str, int] = Map()  # steps of the runs below that are open -> the turn in which they were reported
    shared: Map[str, Json] = Map()  # the variables of the runs below in the thread's state, by name
    held: Map[str, str] = Map()  # those of them that a freeze holds -> its id
    undoables: Map[str, int] = Map()  # finished steps that an error undoes -> seq of their end
    undone: tuple[str, ...] = ()
    undo_failed: tuple[str, ...] = ()
    redone: bool = False  # a Retry came behind an undo: steps that begin anew are rendered anew
    retried: int = 0
    retried_by: str = ""
    failure: e.Error | None = None  # the error with which the run will end ("" in ready), if not with its output
    key: str | None = None  # the concurrency key of which the run holds, or awaits, a slot
    slot: str | None = None  # a queued run awaits it
    worked: int = 0  # milliseconds in status running, up to `at` of the last change of status
    running_since: int | None = None
    paused_at: int | None = None
    stop_by: str = ""
    stop_reason: str = ""
    inherited: int = 0  # turns up to this one go on in a fork: the fork cleans up the steps that began in them
    inherited_steps: tuple[str, ...] = ()  # steps of the turn behind that which had begun when the fork went on
    heir: e.Heir | None = None  # the run for which it is stopped
    left_at: int = 0  # the event up to which its work was left to that run
    left: Map[str, int] = Map()  # those of its `undoables` that are the heir's
    owed: tuple[str, ...] = ()  # steps that have stopped, and whose `finally` was left to an heir that did not begin
    near: bool = False  # its log is nearly full, and an event says so
    forked: int = 0  # turns up to this one are those of the run that this one was forked from
    spent: Spent = Spent()
    spent_on: Map[str, Spent] = Map()  # provider/model -> spent on it
    turn_spent: Map[str, Spent] = Map()  # the same, in this turn

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL_STATUSES

    @property
    def all_instigators(self) -> tuple[str, ...]:
        """The people behind the run beside its requester (`engine/state/instigators`)."""
        if not self.instigators and not self.senders:
            return ()
        people = dict.fromkeys(list_ids((*self.instigators, *self.senders)))
        return tuple(id for id in people if id != self.requester)

    @property
    def questions(self) -> Mapping[str, PendingState]:
        """The questions to people, of the run itself and of the runs below it. Those of a child that is not awaited any
        more need no answer."""
        if not self.relayed:
            return self.pendings
        below = {id: _with_child_votes(each, self.children.get(each.path)) for id, each in self.relayed.items()}
        return {**self.pendings, **below}

    @property
    def open_questions(self) -> list[PendingState]:
        """The open questions of the run and of the runs below, in the order in which they were asked."""
        opened = [each for each in self.questions.values() if each.status == "open"]
        return sorted(opened, key=lambda each: (each.opened.at, each.opened.id))

    @property
    def shown(self) -> Mapping[str, Json]:
        """The state as frontends see it: the run's own, and that of the runs below it under names that it has not."""
        own = {} if self.state is None else self.state
        return {**{name: self.shared[name] for name in sorted(self.shared)}, **own} if self.shared else own

    @property
    def turn_open(self) -> bool:
        return self.turn is not None and self.turn.open

    def compute_working_time(self, now: int) -> int:
        """Milliseconds that the run has spent in status running, as of `now`: the clock of `timeout`."""
        return self.worked if self.running_since is None else self.worked + max(0, now - self.running_since)


def _with_child_votes(relayed: RelayedState, child: str | None) -> PendingState:
    pending = relayed.pending
    if pending.status != "open" or relayed.run_id == child:
        return pending
    return msgspec.structs.replace(pending, status="voided", reason="nobody waits for the run that asked it")


def is_heard(heard: e.Heard, signal: Any) -> bool:
    """Whether a signal of the type, one with a `place`, stands where the run has heard all."""
    return 0 < signal.place <= (heard.own if signal.own else heard.to_all)
