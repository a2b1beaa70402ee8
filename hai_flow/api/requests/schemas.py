"""The shapes of REST's answers. A function of REST says which one it returns, so that the type checker holds the answer
against it. `views.render`, OpenAPI (`shape_models`) and the records of the Python client (clients/models.py) take their
fields from here. Nothing checks an answer when it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NotRequired, TypeAlias, TypeVar

from pydantic import Field

from hai_flow.schedule import Clause
from hai_flow.wire.approvals import ApprovalStatus

Item = TypeVar("Item")

RunStatus = Literal[
    "queued", "running", "waiting", "paused", "stopping", "needs_attention", "finished", "failed", "stopped"
]

RunOutcome = Literal["done", "already", "refused", "would"]
Rating = Literal["up", "down", 1, 2, 3, 4, 5]
Time: TypeAlias = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""An instant as in RFC 3339, in UTC."""
Error: TypeAlias = dict[str, Any]
"""Why a step or a run failed, as the log has it."""


class PlainShape:
    """An object with these fields and no others. For the type checker a shape is a TypedDict; it is made as a plain
    class, of which all take a process that serves 1 ms of its start and TypedDicts 8. `Shape(name, fields)` makes one
    with fields that are named as words of Python."""

    def __new__(cls, name: str, fields: dict[str, str]) -> Any:
        return type(name, (cls,), {"__annotations__": fields})


if TYPE_CHECKING:
    from typing import TypedDict as Shape
else:
    Shape = PlainShape

# The beginnings of shapes with a field that is named as a word of Python.
_Delegation = Shape("_Delegation", {"id": "str", "from": "str"})
_StepWait = Shape("_StepWait", {"for": 'Literal["people", "time", "signal", "retry", "child"]'})
_GraphLine = Shape("_GraphLine", {"from": "str | None"})
_StepChange = Shape("_StepChange", {"from": "StepView | None"})
_PendingChange = Shape("_PendingChange", {"from": "Asked | None"})
_Difference = Shape("_Difference", {"from": "AMoment"})
_ChangedPart = Shape("_ChangedPart", {"key": "str", "from": "Any"})
_Diff = Shape("_Diff", {"from": "Version"})
_Migration = Shape("_Migration", {"from": "Version"})
_BacktestQuestion = Shape("_BacktestQuestion", {"step": "str", "from": "list[str]"})


class Version(Shape):
    """Which version of its workflow a run is of. `dev`: a copy that was loaded while it is edited."""

    version: int
    sha256: str
    dev: bool


class RunParent(Shape):
    run_id: str
    path: str


class SlotHolder(Shape):
    """A run that holds a slot. `status` is null while it is about to be stored."""

    run_id: str
    status: RunStatus | None


class QueuedFor(Shape):
    """A slot that a queued run waits for: the `key` of its workflow's `concurrency`, how many runs of that key may be
    active at once (`limit`), and the runs that are, the oldest first."""

    key: str
    limit: int
    holders: list[SlotHolder]


class Pause(Shape):
    """Who paused a run, when, and the reason that they gave (empty: none)."""

    by: str
    at: Time
    reason: str


class Holder(Shape):
    """The worker that holds a run. Not `alive`: it gives no sign of life, and another one takes the run over."""

    name: str
    alive: bool


class Run(Shape):
    """A run. `input` has its defaults filled in; `output` and `error` are null until the run has ended.

    `branch_of`: the run with the turn that this run branches off from; null: it follows the thread's newest turn.
    `parent`: the run whose step waits for this one.
    `unreadable`: why workers could not read it and none goes on with it (`needs_attention` lists it); else null.
    `queue`: only workers that serve it perform the run.
    `summary`: one line about it, as its workflow says; null: it says none. `workflow_title` likewise.
    `instigators`: the people behind it beside `started_by`, who may not decide where that one may not: who sent the
    event or let the schedule run that started it, who started the run before it, who asked for the run that it was
    forked from. `frozen`: whether a freeze holds steps of it.

    `queued_for` (of a queued run), `paused` (of a paused one) and, for who sees all runs, `held_by` (the worker that
    performs it) are told where one run is asked for, not in lists."""

    id: str
    thread_id: str
    workflow: str
    workflow_title: str | None
    summary: str | None
    version: Version
    status: RunStatus
    seq: int
    started_by: str
    instigators: list[str]
    created_at: Time
    ended_at: Time | None
    input: Any
    output: Any
    error: Error | None
    branch_of: str | None
    parent: RunParent | None
    unreadable: str | None
    queue: str
    frozen: bool
    queued_for: NotRequired[QueuedFor | None]
    paused: NotRequired[Pause | None]
    held_by: NotRequired[Holder | None]


class File(Shape):
    """A file of yours. `id`: the name by which values refer to it. `part`: the file as a content part of a message."""

    id: str
    sha256: str
    size: int
    name: str
    media_type: str
    part: dict[str, Any]


class ControlledRun(Run):
    """A run after a command. `in_flight`: the number of attempts that were asked to cancel."""

    in_flight: NotRequired[Annotated[int, Field(default=0)]]


class JumpedRun(Run):
    """A run for which time has passed. `passed_ms`: the time that passed. `left_ms`: the rest of the requested time, if
    the run began to work or asked others for something. For its `children` no time passed: they are runs of their own.
    """

    passed_ms: int
    left_ms: int
    children: list[str]


class Listed(Shape):
    """A list over all cells of a tenant. `missing`: the cells that are away; their items are not in the list."""

    missing: list[str]


class PageOf(Listed, Generic[Item]):
    """A page of such a list, whatever its items are: as `RunPage` and the others."""

    items: list[Item]
    next_cursor: str | None


class RunCounts(Listed):
    """How many runs have each status; `max` of them means that many or more. Under `needs_attention` are also those
    that workers can't read, whatever their own status is. `missing`: cells that are away, and are not counted."""

    counts: dict[str, int]
    max: int


class RunPage(Listed):
    items: list[Run]
    next_cursor: str | None


class CursorReset(Shape):
    """The cursor was not a place of this run; the run has `seq` events."""

    seq: int


class EventsPage(Shape):
    items: list[dict[str, Any]]
    next_cursor: str | None
    cursor_reset: NotRequired[CursorReset | None]


class OpenedPending(Shape):
    """A question to people. `effect`: the class of the call behind a gate; null where there is none, or it is not
    recorded. `workflow`, its title and `started_by` are of its run; the title is null where the workflow
    has none, and in the snapshot of a run. `nobody_decides`: why nobody can decide it just now, for callers who see all
    runs."""

    id: str
    run_id: str
    workflow: str
    workflow_title: NotRequired[str | None]
    started_by: str
    status: str
    opened_at: Time
    path: str
    kind: Literal["tool", "ask", "approve", "gate", "doubt"]
    title: str | None
    message: str | None
    tool: str | None
    effect: NotRequired[Literal["read", "reversible", "external", "irreversible", "write"] | None]
    args: Any
    evidence: Any
    schema: Any
    options: list[str]
    policy: Any
    deadline: Time | None
    digest: str
    nobody_decides: NotRequired[str | None]


class Canary(Shape):
    """A seeded question that has to be refused. `workflow`, `path`, `tool` and `started_by` are those that it shows;
    `pending_id` is null until it is asked. `caught`: it was refused; `missed`: people decided otherwise, without an
    effect; `spoilt`: its seeder has voted."""

    run_id: str
    pending_id: str | None
    workflow: str
    path: str
    tool: str | None
    started_by: str
    reason: Annotated[str, Field(description="why it has to be refused")]
    seeded_by: str
    at: Time
    status: Literal["open", "caught", "missed", "expired", "withdrawn", "spoilt"]


class Pending(OpenedPending):
    """A question to people and its outcome. `needed`: for approvals, the approvers, their votes, and the votes that are
    missing; `edits`: the arguments that approvers changed. `canary`: it was a seeded question, as
    `/v1/canaries` lists it; absent until it is over."""

    needed: dict[str, Any] | None
    edits: dict[str, Any] | None
    decided_by: str | None
    on_behalf_of: Annotated[str | None, Field(description="in whose name they decided, if not in their own")]
    decided_at: Time | None
    value: Any
    reason: str | None
    canary: NotRequired[dict[str, Any] | None]


class DecidedPending(Pending):
    """`already`: the same answer had been given before."""

    already: bool


class Approval(Shape):
    """What an agent that lives elsewhere has asked. `id`: also of the run that asks. `status`: `pending` until people
    have decided; `approved` until it is consumed, once; or `rejected`, `expired`, `failed`, `cancelled` (an operator
    has stopped it). `arguments`: as they were approved, where people edited them; `digest`: the SHA-256 of
    `{"action": ..., "arguments": ...}` as RFC 8785 writes it. `page`: where people decide. `expires_at`: until when
    they may; of an approved one, until when it may be consumed."""

    id: str
    status: ApprovalStatus
    action: str
    arguments: Any
    edited: bool
    digest: str
    workflow: str
    requested_by: str
    page: str
    pending_id: str | None
    expires_at: Time | None
    reason: str | None
    votes: Any
    consumed_at: Time | None
    error: Error | None


class ConsumedApproval(Approval):
    """`already`: it was consumed under this Idempotency-Key before."""

    already: bool


class ReceiptText(Shape):
    salt: str
    text: str


class Receipt(Shape):
    """`receipt`: a JWS in its compact form. `texts`: those texts of it that the caller may see, by their digests."""

    receipt: str
    texts: dict[str, ReceiptText]


class ProtectedResource(Shape):
    """The issuers whose tokens a resource takes (RFC 9728)."""

    resource: str
    authorization_servers: list[str]
    bearer_methods_supported: list[str]
    resource_name: str


class PublicKeys(Shape):
    """A JWK Set (RFC 7517)."""

    keys: list[dict[str, Any]]


class PendingArguments(Shape):
    """The function that an approved call calls. `parameters`: the JSON Schema of its arguments; null: there is no call,
    or this server knows no schema of it."""

    tool: str | None
    description: str | None
    parameters: dict[str, Any] | None


class CheckedAnswer(Shape):
    """The effect that an answer would have now. `decides`: it would close the question, with `status`; else the
    question would stay open for the votes that are `needed`. `title`, `args` and `digest` are as its edits would leave
    them, `lapsing` the votes that would not count any more; `already`: the same answer was given before."""

    id: str
    already: bool
    decides: bool
    status: str
    title: str | None
    args: Any
    digest: str
    lapsing: list[dict[str, Any]]
    needed: dict[str, Any] | None


class PendingHistory(Shape):
    """The history of a question, oldest first: events of its run's log."""

    items: list[dict[str, Any]]
    next_cursor: str | None


class PendingPage(Listed):
    items: list[OpenedPending]
    next_cursor: str | None


class WhyNot(Shape):
    """Why somebody may not decide: `excluded.requester` (they started the run), `excluded.instigator` (they are behind
    it), `agent` (an agent that `from` does not name), `excluded`, `voted`, `not_asked`, `not_picked` (others of those
    who are asked were), or `unreadable` (by this release)."""

    code: Literal[
        "excluded.requester",
        "excluded.instigator",
        "agent",
        "excluded",
        "voted",
        "not_asked",
        "not_picked",
        "unreadable",
    ]
    reason: str


class InboxItem(OpenedPending):
    """A question that asks you. `why_not` says why you may not decide it yourself, `on_behalf_of` names the people that
    you may decide it for. `claimed_by` is the person that works on it, as they have announced, until `claimed_until`.
    `needed`: for approvals, the others that may decide, the votes so far, and those that are missing."""

    may_decide: bool
    why_not: WhyNot | None
    on_behalf_of: list[str]
    needed: dict[str, Any] | None
    claimed_by: str | None
    claimed_until: Time | None


class InboxPage(Listed):
    """With filters a page may be short, or empty, though more follow: `next_cursor` shows it."""

    items: list[InboxItem]
    next_cursor: str | None


class BulkOutcome(Shape):
    """The outcome of one answer of several: `pending` where it was taken (`status` 200), else the `problem`."""

    id: str
    status: int
    pending: DecidedPending | None
    problem: dict[str, Any] | None


class BulkOutcomes(Shape):
    items: list[BulkOutcome]


class Decided(Shape):
    """The answer of `by` to a question: of you, or of your delegate `on_behalf_of` you. `rule`: the standing rule that
    gave it with your vote. `status` is the question's now."""

    id: str
    run_id: str
    workflow: str
    workflow_title: str | None
    kind: Literal["tool", "ask", "approve", "gate", "doubt"]
    title: str | None
    decision: str | None
    reason: str | None
    by: str
    on_behalf_of: str | None
    via: str
    rule: str | None
    at: Time
    status: str


class DecidedPage(Listed):
    items: list[Decided]
    next_cursor: str | None


class Delegation(_Delegation):
    """`to` may answer the questions that ask `from`, from `since` until `until`. `ends_with`: the proof of identity by
    which `from` made it, with which it ends before that, if the proof does; null: it is not known."""

    to: str
    since: Time
    until: Time
    note: str | None
    ends_with: Literal["key", "session", "token"] | None


class Delegations(Shape):
    items: list[Delegation]


class ChatAccount(Shape):
    """An account in a chat by which its person decides there, until `until` at most. `account` null: its code was not
    sent yet."""

    id: str
    channel: str
    account: str | None
    until: Time
    created_at: Time


class ChatAccounts(Shape):
    items: list[ChatAccount]


class ChatCode(ChatAccount):
    """`send`: the message to send to the app, with the `code`, which is good once, for ten minutes."""

    code: str
    send: str


class Absence(Shape):
    """`person` is away from `first_day` to the end of `last_day` in `zone`, that is from `since` until `until`;
    `delegate` decides for them, null: nobody. `decides_now`: who does so at this moment, null: nobody, and
    `why_nobody`."""

    id: str
    person: str
    delegate: str | None
    first_day: str
    last_day: str
    zone: str
    since: Time
    until: Time
    note: str | None
    entered_by: str
    decides_now: str | None
    why_nobody: str | None


class AbsencePage(Shape):
    items: list[Absence]
    next_cursor: str | None


class DelegationPage(Shape):
    items: list[Delegation]
    next_cursor: str | None


class Notification(Shape):
    """A notification for a `person`, or for all readers of a `channel`. `status` queued: its receivers are not looked
    up yet; due: it will be tried, the next time at `due_at`; dropped: it was not needed any more; dead: given up."""

    id: str
    run_id: str
    pending_id: str
    what: Literal["opened", "escalated", "reminded", "reseated", "stranded"]
    channel: str | None
    person: str | None
    status: Literal["queued", "due", "sent", "dropped", "dead"]
    tries: int
    error: str | None
    created_at: Time
    due_at: Time | None


class NotificationPage(Listed):
    items: list[Notification]
    next_cursor: str | None


class InboxCounts(Listed):
    """How many open questions of each workflow ask you. `complete`: all were counted; else only the first 10,000,
    or those of the cells that are not `missing`."""

    workflows: dict[str, int]
    complete: bool


class Message(Shape):
    id: str
    role: str
    kind: str
    content: Any
    open: bool
    at: Time


class Turn(Shape):
    n: int
    first_seq: int
    open: bool
    wire_run_id: str | None


class StepView(Shape):
    status: str
    attempt: int
    output: NotRequired[Any]
    error: NotRequired[Error | None]


class StepAttempt(Shape):
    """One attempt. `error`: why another one followed; `lost`: its worker was lost."""

    n: int
    started_at: Time
    ended_at: Time | None
    lost: bool
    error: Error | None


class StepWait(_StepWait):
    """A time in which a step waited. `due`: when it ends by itself; `pending_id`: the question, of one for people."""

    since: Time
    until: Time | None
    due: Time | None
    pending_id: str | None


class GraphStep(Shape):
    """One step as it is written. `path` is its path in the plan; `within`: the step around it, and `lane` the list of
    that step in which it stands (a branch, a case, a handler); `line` to `end_line`: its place in the source."""

    path: str
    id: str | None
    verb: str
    kind: Literal["effect", "model", "people", "message", "state", "time", "end", "block"]
    title: str
    detail: str
    condition: str | None
    gate: str | None
    notes: list[str]
    within: str | None
    lane: str | None
    line: int | None
    column: int | None
    end_line: int | None


class GraphBox(Shape):
    """`step`: the innermost step that it belongs to. `style`: the meaning of the box: a kind of step, or `lane`,
    `handler`, `gated` (a second outline), `page`."""

    shape: Literal["box"]
    style: str
    step: str | None
    x: float
    y: float
    width: float
    height: float
    radius: float


class GraphText(Shape):
    """`y` is the line on which the letters stand. `full`: all of a text that was cut."""

    shape: Literal["text"]
    style: str
    step: str | None
    x: float
    y: float
    text: str
    full: str | None
    anchor: Literal["start", "middle"]


class GraphStroke(Shape):
    shape: Literal["line"]
    style: Literal["flow", "dashed"]
    step: str | None
    points: list[list[float]]
    arrow: bool


class GraphLine(_GraphLine, GraphStroke):
    """From the step `from` to the step `to`; "" is where a run begins or ends. `dashed` lines lead to handlers."""

    to: str | None


class Graph(Shape):
    """A workflow's picture: its steps in document order, and the shapes in the order in which they are painted."""

    name: str
    version: int
    title: str
    width: float
    height: float
    steps: list[GraphStep]
    shapes: list[GraphBox | GraphText | GraphLine]


class RunStep(Shape):
    """One passage through a step, or (verb `iteration`) through the body of a loop. `plan_path`: the step of the plan;
    `children`: the runs that it started; `notes`: what was changed in its output, so that a run can hold it; `usage`:
    tokens (`input`, `output`), and their `cost` in US dollars; `passages`: how many the step of the plan has had, by
    their status, where only the newest was asked for."""

    path: str
    plan_path: str
    verb: str
    title: str | None
    status: Literal["running", "finished", "failed", "skipped", "stopped", "undone"]
    started_at: Time
    ended_at: Time | None
    first_seq: int
    last_seq: int
    args: Any
    error: Error | None
    attempts: list[StepAttempt]
    waits: list[StepWait]
    children: list[str]
    notes: list[str]
    usage: dict[str, float]
    passages: NotRequired[dict[str, int] | None]


class StepPage(Shape):
    items: list[RunStep]
    next_cursor: str | None


class Timer(Shape):
    path: str
    kind: str
    due: Time


class Origin(Shape):
    """Which run made another one start: its step `path` (`detach`), or, where that is null, its end."""

    run_id: str
    path: str | None


class ModelUsage(Shape):
    """What the answers of one model took in all: how many `calls`, their tokens (`cached` of the `input`, `reasoning`
    of the `output`), and their `cost` in US dollars; null: its price is not known."""

    provider: str
    model: str
    calls: int
    input: int
    output: int
    cached: int
    reasoning: int
    cost: float | None


class Snapshot(Shape):
    """The fold of a run's first `seq` events. `trigger`: how it was started; `origin`: the run that started it, if one
    did; `scheduled_at`: the instant that a schedule started it for, null where none did; `usage`: of each model that
    was asked, also by the runs below it."""

    run_id: str
    seq: int
    status: Literal["new"] | RunStatus
    trigger: str
    scheduled_at: Time | None
    origin: Origin | None
    turn: Turn | None
    state: Any
    steps: dict[str, StepView]
    pendings: list[Pending]
    messages: list[Message]
    timers: list[Timer]
    usage: list[ModelUsage]
    output: Any
    error: Error | None


class MarkObstacle(Shape):
    code: str
    detail: str


class Mark(Shape):
    """A moment behind the event `seq`: in front of the step `step`, or (null) where the run waited. `forkable`: a fork
    can begin there; `editable`: also one with another input, state or version. `why_not`: the obstacle, if it is not.
    """

    seq: int
    at: Time
    turn: int
    step: str | None
    forkable: bool
    editable: bool
    why_not: MarkObstacle | None


class Marks(Shape):
    items: list[Mark]


class BulkRun(Shape):
    """A run of a bulk. `outcome`: `done`; `already` (it was in that state, or the same request has done it before);
    `refused` with the `problem`; of a dry run `would`. `status`: the run's now."""

    id: str
    status: str
    outcome: RunOutcome
    problem: MarkObstacle | None


class BulkReport(Shape):
    """The outcome of each run. `found`: how many there are in all; `done`, `already` and `refused`: how many have that
    outcome."""

    action: str
    dry_run: bool
    found: int
    done: int
    already: int
    refused: int
    items: list[BulkRun]


class AMoment(Shape):
    seq: int
    at: Time | None
    status: Literal["new"] | RunStatus


class StepChange(_StepChange):
    """`from` and `to` as in a snapshot; null: it had not begun."""

    to: StepView | None


class Asked(Shape):
    path: str
    title: str | None
    status: str
    by: str | None
    votes: list[dict[str, Any]]


class PendingChange(_PendingChange):
    """A question as it stood at each of the moments; null: it had not been asked."""

    to: Asked | None


class Difference(_Difference):
    """The differences between two moments of a run: `state` is a JSON Patch (RFC 6902) of the variables."""

    to: AMoment
    state: list[dict[str, Any]]
    steps: dict[str, StepChange]
    pendings: dict[str, PendingChange]


class Left(Shape):
    """The run that a fork has stopped: its steps `in_flight` are asked to cancel, and the steps in `undoes`
    are undone."""

    run_id: str
    status: RunStatus
    in_flight: list[str]
    undoes: list[str]


class Rehearsal(Shape):
    """The effects that a fork would have. `begins`: the steps that begin at once; `asks`: the steps whose questions are
    open in it; `restarts`: those whose child runs are started anew; `stops`: the thread's active run."""

    of: str
    at: int
    thread_id: str
    workflow: str
    version: int
    requester: str
    begins: list[str]
    asks: list[str]
    restarts: list[str]
    stops: Left | None


class Signal(Shape):
    """An event from outside. `run_id`: the run that it is for; null: every run that waits for its type. `already`: it
    had been sent before, and nothing has happened now."""

    id: str
    type: str
    run_id: str | None
    sent_at: Time
    already: bool


class Thread(Shape):
    """A conversation. `run_id`, `workflow` and `status` are of its newest run; `created_at` is when its first run was
    made, `updated_at` when the newest one has last moved."""

    id: str
    run_id: str
    workflow: str
    status: RunStatus
    created_at: Time
    updated_at: Time


class ThreadPage(Listed):
    items: list[Thread]
    next_cursor: str | None


class ThreadWithRuns(Thread):
    """`runs`: the newest ones, newest first, child runs among them; all are at `GET /v1/runs?thread_id=`."""

    runs: list[Run]


class QueuedMessage(Shape):
    """A user's message that waits until its thread's run has ended, and then starts the run `run_id`. `message`: its
    text, null for callers that do not see the conversation; `refused`: why its run could not be started (RFC 9457)."""

    run_id: str
    by: str
    message: str | None
    queued_at: Time
    refused: dict[str, Any] | None


class QueuedMessages(Shape):
    """The messages of a thread that wait, the next one first."""

    items: list[QueuedMessage]


class Call(Shape):
    """A call of a tool: `arguments` are JSON text."""

    name: str
    arguments: str
    executor: str
    error: str | None


class ThreadMessage(Shape):
    """A message or a call in a thread, recorded by the event `seq` of a run. `content` is text or another JSON value;
    that of a call (role `tool`, kind `call`) is its result, null without one. `aborted`: its attempt broke off."""

    id: str
    run_id: str
    seq: int
    role: str
    kind: str
    content: Any
    at: Time
    call: Call | None
    aborted: bool


class ThreadMessagePage(Shape):
    items: list[ThreadMessage]
    next_cursor: str | None


class Feedback(Shape):
    """The opinion that `by` gave, over `via`, of a message or a decided pending of the run `run_id`.
    `rating`: up, down, or a number of stars."""

    id: str
    thread_id: str
    kind: Literal["message", "pending"]
    subject_id: str
    run_id: str
    by: str
    via: str
    rating: Rating | None
    comment: str | None
    labels: list[str]
    created_at: Time
    updated_at: Time


class FeedbackPage(Shape):
    items: list[Feedback]
    next_cursor: str | None


class WorkflowSummary(Version):
    """One version of a workflow. `retired_at`: since when nothing begins with it; null: it is in use."""

    name: str
    title: str | None
    created_at: Time
    retired_at: Time | None


class Edit(Shape):
    """A piece of a text, from (`line`, `column`) to before (`end_line`, `end_column`), and its replacement."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Finding(Shape):
    """A mistake in a workflow (or a doubt: `severity` warning). Lines and columns count from 1. `fix` mends it.
    `params`: the words that `message` puts in quotes."""

    file: str
    line: int
    column: int
    severity: Literal["error", "warning"]
    code: str
    message: str
    end_line: int
    end_column: int
    fix: list[Edit]
    params: list[str]


class Formatted(Shape):
    """A document in its one form. `changed`: whether the given text differs from it."""

    source: str
    changed: bool


class PublishedWorkflow(WorkflowSummary):
    warnings: list[Finding]


class Step(Shape):
    path: str
    verb: str


class Workflow(WorkflowSummary):
    """A version with its source, the schema of its input, its steps, and which other versions there are."""

    description: str
    input: Any
    steps: list[Step]
    source: str
    versions: list[WorkflowSummary]


class WorkflowPage(Shape):
    items: list[WorkflowSummary]
    next_cursor: str | None


class ChangedPart(_ChangedPart):
    """One key with another value. null: the key is missing."""

    to: Any


class Change(Shape):
    """The change of one step; `was`: the earlier path of a step that moved."""

    kind: Literal["added", "removed", "moved", "changed"]
    path: str
    verb: str
    was: NotRequired[str | None]
    parts: list[ChangedPart]


class Diff(_Diff):
    """`document`: keys outside of the steps. `steps`: in the order of the new version, then the removed ones."""

    to: Version
    document: list[ChangedPart]
    steps: list[Change]


class Obstacle(Shape):
    """Why a run can't move. `path`: the step, as the old version calls it, or "" for the run itself."""

    code: str
    path: str
    message: str


class MigratedRun(Shape):
    id: str
    status: RunStatus
    movable: bool
    moved: bool
    obstacles: list[Obstacle]


class Migration(_Migration):
    """Which runs moved, or would. `more`: there are runs that this request did not look at; send it again."""

    to: Version
    dry_run: bool
    runs: list[MigratedRun]
    more: bool


class BacktestQuestion(_BacktestQuestion):
    """People that would be asked besides, or no more. `runs`: in how many runs."""

    quorum: str
    runs: NotRequired[Annotated[int, Field(default=1)]]


class BacktestExample(Shape):
    """A run that would have gone otherwise: at `step` it did `recorded`, and would do `now`."""

    run_id: str
    kind: str
    step: str
    recorded: str
    now: str
    more: list[BacktestQuestion]
    fewer: list[BacktestQuestion]
    reason: str


class BacktestStuck(Shape):
    """A waiting run that could not migrate to the text."""

    run_id: str
    obstacles: list[Obstacle]


class BacktestUnread(Shape):
    run_id: str
    reason: str
    detail: str


class BacktestReport(Shape):
    """`verdicts` counts the runs that would be the same, take another path, ask more or fewer people, fail, or can't be
    told. `unreadable` counts those that could not be decided again, by reason; `waiting` runs could migrate, but for
    those that `stuck` counts. Not `complete`: there are runs that were not looked at."""

    workflow: str
    since: str
    complete: bool
    runs: int
    verdicts: dict[str, int]
    unreadable: dict[str, int]
    more: list[BacktestQuestion]
    fewer: list[BacktestQuestion]
    waiting: int
    stuck: dict[str, int]
    examples: list[BacktestExample]
    stuck_examples: list[BacktestStuck]
    unreadable_examples: list[BacktestUnread]


class Validation(Shape):
    valid: bool
    findings: list[Finding]


class ScheduleClause(Shape):
    """A part of a schedule's explanation, by its code; `params`: times, seconds, a timezone, or items of a
    cron field."""

    code: Clause
    params: list[str]


class Schedule(Shape):
    """A start by the clock. `explanation`: `cron` and `timezone` in English; `explained`: the same in parts, for
    other languages. `waiting`: how many instants wait for the run before them. `next`: when it fires (null while it is
    paused); `last`: when it did; `last_run_id`: the last run that it started, by the clock or by request."""

    id: str
    workflow: str
    version: Version
    cron: str | None
    timezone: str
    explanation: str
    explained: list[ScheduleClause]
    missed: Literal["skip", "once", "all"]
    overlap: Literal["queue", "queue_one", "skip", "cancel_running"]
    input: dict[str, Any]
    paused: bool
    waiting: int
    next: Time | None
    last: Time | None
    last_run_id: str | None


class Fire(Shape):
    """A time at which a schedule fired. `outcome` is null while its run is not started yet; `skipped`: its last run was
    active; `refused`: it could not be started."""

    at: Time
    outcome: Literal["started", "skipped", "refused"] | None
    run_id: str | None


class Fires(Shape):
    """`next`: the next times, soonest first (none while it is paused). `past`: the last ones, newest first; those whose
    runs started long ago are kept for a week."""

    next: list[Time]
    past: list[Fire]


class SchedulePage(Shape):
    items: list[Schedule]
    next_cursor: str | None


class TriggerProblem(Shape):
    """Why a workflow was not started."""

    code: str
    detail: str
    findings: list[Any]


class StartedRun(Shape):
    """The outcome of one workflow's event trigger. `already`: this event, or another one with its dedupe key, has
    started the run before."""

    workflow: str
    status: Literal["started", "already", "refused"]
    run_id: str | None
    problem: TriggerProblem | None


class ReceivedEvent(Shape):
    """An event from outside, and the runs that it started. `already`: it has been sent before."""

    id: str
    type: str
    sent_at: Time
    already: bool
    runs: list[StartedRun]


class ReceivedWebhook(Shape):
    """`run_id`: the run that the request has started, null where the trigger's `match` is false. `already`: this
    request, or another one with its dedupe key, had started it before."""

    run_id: str | None
    already: bool


class ReceivedCallback(Shape):
    """`already`: the very same callback had come before."""

    already: bool


class Key(Shape):
    """An API key. `used_at`: when it was used last, to a minute. `speaks_for`: as whom the tokens that it makes may
    decide."""

    id: str
    name: str
    principal: str
    roles: list[str]
    groups: list[str]
    speaks_for: list[str]
    created_by: str
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    used_at: Time | None


class NewKey(Key):
    """`key` is to be sent as `Authorization: Bearer`. It is shown this once."""

    key: str


class Limits(Shape):
    """The limits of a tenant: runs that begin in a minute, runs that have not ended, streams of one process that only
    follow, bytes of logs. 0: no limit. null (only in a tenant's `limits`): the value of the server's settings."""

    runs_per_minute: int | None
    open_runs: int | None
    followers: int | None
    log_bytes: int | None


class TenantCell(Shape):
    """A cell that a tenant lives in. `begins`: whether new threads begin there. `first`: it has the things that exist
    once for the tenant: workflows, schedules, delegations."""

    name: str
    begins: bool
    first: bool


class Tenant(Shape):
    """A tenant. `limits` were set for it, `in_force` are those that it has. `cells`: those that it lives in."""

    id: str
    name: str
    created_at: Time
    limits: Limits
    in_force: Limits
    cells: list[TenantCell]


class Tenants(Shape):
    items: list[Tenant]


class Worker(Shape):
    """A process that performs runs. `queues`: `*` means all. `state`: `ended`, after it handed everything back; `dead`,
    when it gave no sign of life in time. `holds`: the runs that it holds now (counted to 10,000); of a dead worker
    those that no other has taken over yet.

    As of its last sign of life (`beat_at`): it `held` so many runs, performed `attempts` of at most `places` at once,
    and `waiting` ones had no place. Null: a worker of an older release does not report it."""

    id: int
    name: str
    cell: str
    state: Literal["alive", "draining", "ended", "dead"]
    queues: list[str]
    release: str | None
    started_at: Time | None
    beat_at: Time | None
    draining_since: Time | None
    holds: int
    held: int | None
    attempts: int | None
    waiting: int | None
    places: int | None


class ServerStanding(Shape):
    """A server. It started `up` seconds ago, and has given its last sign of life `seen` seconds ago."""

    name: str
    release: str
    up: float
    seen: float


class WorkerStanding(Shape):
    """A worker that is alive, or holds runs though it is not. `lease`: seconds until it counts as dead; negative:
    since then."""

    id: int
    name: str
    release: str | None
    lease: float
    held: int


class WaitingCounts(Shape):
    """Things that wait. Ages are in seconds, 0 where nothing waits."""

    due: int
    due_age: float
    overdue: int
    pendings: int
    pendings_age: float
    outbox: int
    outbox_age: float
    unsealed_age: float
    workers: int


class HourOfRuns(Shape):
    """The runs that began in the hour from `since` on and have ended by now, by how they ended."""

    since: Time
    finished: int
    failed: int
    stopped: int


class SetupCheck(Shape):
    """One finding of `hai-flow doctor`. `remedy`: what to do, where there is something. `code` says what was found, and
    `params` what the sentences name, for sentences in other languages."""

    name: str
    verdict: Literal["good", "doubtful", "bad"]
    found: str
    remedy: str
    code: str
    params: list[str]


class FaultStanding(Shape):
    """What a person should look at. `code` and `params`: the same, for sentences in other languages."""

    code: str
    message: str
    params: list[str]


class CellOverview(Shape):
    """`runs`: how many have each status that is no end. `faults`: sentences on all that a person should look at, the
    worst first; `problems`: the same with their codes. `checks`: what `hai-flow doctor` finds, as the server that
    answers is set up."""

    name: str
    servers: list[ServerStanding]
    workers: list[WorkerStanding]
    waiting: WaitingCounts
    runs: dict[str, int]
    faults: list[str]
    problems: list[FaultStanding]
    checks: list[SetupCheck]
    hours: list[HourOfRuns]


class Overview(Shape):
    """Each number is exact up to `counted_max`, and never more."""

    cells: list[CellOverview]
    counted_max: int


class Workers(Shape):
    """The workers, those that live first."""

    items: list[Worker]


class Freeze(Shape):
    """Steps that nobody begins. `mode`: none (`frozen`), none that writes (`read_only`), none of agents (`no_agents`).
    `scope` says where, `name` of which; `tenant`: null means all. `thawed_at`: null while it is in force."""

    id: str
    mode: Literal["frozen", "read_only", "no_agents"]
    scope: Literal["all", "tenant", "workflow", "tool", "model", "principal"]
    name: str
    tenant: str | None
    reason: str
    created_by: str
    created_at: Time
    thawed_by: str | None
    thawed_at: Time | None


class Freezes(Shape):
    """Freezes, the last one first."""

    items: list[Freeze]


class RuleRecord(Shape):
    """A standing rule: calls of `tool` (in runs of `workflow`; null: of any) whose arguments meet `when` and
    `arguments` are approved, or refused (`never`), until `until`, at most `uses_max` times in all, or in `every` so
    long. `digest` is its version, which votes name. `run_id`: the run that asks people to approve it."""

    id: str
    kind: Literal["allow", "never"]
    status: Literal["proposed", "active", "used_up", "expired", "refused", "revoked"]
    tool: str
    workflow: str | None
    when: str | None
    arguments: dict[str, dict[str, Any]]
    until: Time
    uses: int
    uses_max: int | None
    every: str | None
    reason: str
    digest: str
    proposed_by: str
    approved_by: list[str]
    pending_id: str | None
    run_id: str | None
    created_at: Time
    approved_at: Time | None
    ended_at: Time | None
    ended_by: str | None
    ended_why: str | None


class RuleRecords(Shape):
    """Standing rules, the last one first."""

    items: list[RuleRecord]


class PersonOversight(Listed):
    """How somebody has voted at approvals and gates within the time `since`: `questions` have a vote of theirs, of
    which a standing rule has cast `by_rule` in their name; nothing else counts these. `quick`: of the `votes` that they
    have cast themselves, those less than `under` seconds after the question was asked or after their vote before.
    `opened`: the voter had been given the whole question before; `followed`: a file or an address of it, too.
    `canaries`: seeded questions with a vote of theirs that are decided; it refused those that they `caught`. Seconds
    are from the asking of the question to the vote. Not `complete`: there are more than were looked at."""

    since: str
    under: int
    complete: bool
    questions: int
    approved: int
    refused: int
    other: int
    edited: int
    by_rule: int
    votes: int
    quick: int
    opened: int
    followed: int
    canaries: int
    caught: int
    missed: int
    median_seconds: float | None
    p90_seconds: float | None


class OversightGroup(Shape):
    """The approvals and gates of a workflow, or about a tool (null: about none); `(other)`: of all groups that were too
    many to name. `edited`: people changed the arguments. `by_rule`: a standing rule decided. `quick`: of people's
    `votes`, those less than `under` seconds after the question was asked or after the voter's vote before. `opened`:
    the voter had been given the whole question before; `followed`: a file or an address of it, too. `canaries`: seeded
    questions, which no other figure counts; people refused those that were `caught`, not those that were `missed`.
    Seconds are from the asking of a question to its decision by people."""

    name: str | None
    questions: int
    open: int
    approved: int
    refused: int
    other: int
    expired: int
    withdrawn: int
    edited: int
    by_rule: int
    votes: int
    quick: int
    opened: int
    followed: int
    canaries: int
    caught: int
    missed: int
    median_seconds: float | None
    p90_seconds: float | None


class Oversight(Listed):
    """How the questions that were asked within the time `since` were decided. Not `complete`: there are more than were
    looked at."""

    since: str
    by: Literal["workflow", "tool"]
    under: int
    complete: bool
    items: list[OversightGroup]


class Canaries(Listed):
    """Canaries, the last one first."""

    items: list[Canary]


class Opening(Shape):
    """A part of a question, the person that the server gave it to, and the first time."""

    principal: str
    part: Literal["question", "attachment", "link"]
    at: Time


class Openings(Shape):
    """The parts of a question that people were given before it was decided."""

    items: list[Opening]


class RuleUsage(Shape):
    """One use of a rule."""

    run_id: str
    pending_id: str
    at: Time


class RuleWithUses(RuleRecord):
    """A rule with its last uses, the last one first."""

    last_uses: list[RuleUsage]


class Token(Shape):
    """`token` is to be sent by a page as `Authorization: Bearer`, until `expires_at`."""

    token: str
    principal: str
    expires_at: Time


class Ticket(Shape):
    """`ticket` opens one stream, until `expires_at`."""

    ticket: str
    expires_at: Time


class Session(Shape):
    """The caller, the `way` in which they have proven their identity, and their rights. `csrf`: requests of a browser's
    session send it in `HAI-CSRF`; null for other credentials."""

    principal: str
    roles: list[str]
    groups: list[str]
    rights: list[str]
    way: str
    expires_at: Time | None
    csrf: str | None


class KeyPage(Shape):
    items: list[Key]
    next_cursor: str | None


class Health(Shape):
    """`streams`: how many are open. `identity`: how callers prove their identity; `none`: they don't, everybody is
    `user:local`."""

    status: Literal["ok"]
    version: str
    streams: int
    identity: Literal["none", "keys", "file"]


class Readiness(Shape):
    """`worker`: whether this process performs runs now. `workers`: how many processes do, over this database;
    `waiting`: how many runs wait for one (counted to 1,000); `unserved`: the queues in which runs wait and that no
    worker serves (20 at most). They are null where the database did not answer in time. `hints`: `away` while commits
    of other processes are found by polls alone."""

    status: Literal["ready"]
    hints: Literal["good", "away"]
    worker: bool
    workers: int | None
    waiting: int | None
    unserved: list[str] | None


class AuditRecord(Shape):
    """An act of a person, or of a credential's owner. `n`: its place in the tenant's chain; null until it is sealed.
    `seq`: how many events the run had after it. `erased_at`: `by` is a pseudonym since then, and `details` are gone."""

    id: str
    n: int | None
    at: Time
    act: str
    by: str | None
    run_id: str | None
    seq: int | None
    subject: str | None
    digest: str | None
    details: dict[str, Any] | None
    erased_at: Time | None


class AuditPage(Listed):
    items: list[AuditRecord]
    next_cursor: str | None


class AuditLink(Shape):
    """A record at its place in the chain, with all bytes that its `hash` is made of; digests are in hex, times in
    microseconds since 1970."""

    tenant: str
    n: int
    id: str
    hash: str
    record: dict[str, Any] | None
    details: dict[str, Any] | None


class AuditChainPage(Shape):
    items: list[AuditLink]
    next_cursor: str | None


class AuditAnchor(Shape):
    """The end of a tenant's chain: how many records it has, and its hash there."""

    tenant: str
    n: int
    hash: str
