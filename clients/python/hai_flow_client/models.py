"""The server's answers, as records. Fields that a newer server adds are left out, not refused.

Values that are one of a few words are `str`: a newer server may know more of them than this client.
"""

# Written by `make generate` from api/requests/schemas.py: change that, or clients/generate.py.

from __future__ import annotations

from datetime import datetime
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from hai_flow_client.events import Error
from hai_flow_client.values import Json
from hai_flow_client.versions import reference, version_text

Item = TypeVar("Item")

Moment: TypeAlias = int | str | datetime
"""A moment of a run: a seq, a time, or `step:` and a path, which means the end of that step."""

ENDED: Final = frozenset({"finished", "failed", "stopped"})
STANDING: Final = ENDED | {"waiting", "paused", "needs_attention"}
"""Nothing happens in a run of these statuses until a person, an event or a timer moves it on."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """Which version of its workflow a run is of. `dev`: a copy that was loaded while it is edited."""

    version: int
    sha256: str
    dev: bool

    def __str__(self) -> str:
        return version_text(self.version, self.sha256, dev=self.dev)


class RunParent(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    path: str


class SlotHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A run that holds a slot. `status` is None while it is about to be stored.

    `status`: queued, running, waiting, paused, stopping, needs_attention, finished, failed or stopped.
    """

    run_id: str
    status: str | None


class QueuedFor(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that a queued run waits for: the `key` of its workflow's `concurrency`, how many runs of that key may be
    active at once (`limit`), and the runs that are, the oldest first."""

    key: str
    limit: int
    holders: list[SlotHolder]


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Who paused a run, when, and the reason that they gave (empty: none)."""

    by: str
    at: datetime
    reason: str


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The worker that holds a run. Not `alive`: it gives no sign of life, and another one takes the run over."""

    name: str
    alive: bool


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs have each status; `max` of them means that many or more. Under `needs_attention` are also those
    that workers can't read, whatever their own status is. `missing`: cells that are away, and are not counted."""

    missing: list[str] = []
    counts: dict[str, int]
    max: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run. `seq` is how many events it has; `output` and `error` are None until it has ended. `in_flight`: how many
    attempts were asked to cancel (answer to `stop`). `branch_of`: the run at one of whose turns it left its thread.
    `parent`: the run whose step waits for this one. `unreadable`: why no worker goes on with it, where those that tried
    could not read it. `queue`: only workers that serve it perform the run. `get` alone tells what slot a queued run
    waits for (`queued_for`), and who `paused` a paused one.

    `status`: queued, running, waiting, paused, stopping, needs_attention, finished, failed or stopped.
    """

    id: str
    thread_id: str
    workflow: str
    workflow_title: str | None = None
    summary: str | None = None
    version: Version
    status: str
    seq: int
    started_by: str
    instigators: list[str]
    created_at: datetime
    ended_at: datetime | None
    input: Json
    output: Json
    error: Error | None
    branch_of: str | None = None
    parent: RunParent | None = None
    unreadable: str | None = None
    queue: str = "default"
    frozen: bool = False
    queued_for: QueuedFor | None = None
    paused: Pause | None = None
    held_by: Holder | None = None
    in_flight: int = 0

    @property
    def ended(self) -> bool:
        return self.status in ENDED


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A question to people. `status`: open, or its outcome.

    `schema` is that of the form, or of a tool's result; `options` are the decisions there are. An answer that is given
    with this record is bound to its `digest`: to the content that it shows. `get` tells more than `list`: `needed` (the
    deciders, their votes, the missing ones), `edits`, and the decision. `workflow` and `started_by` are the run's.

    `kind`: tool, ask, approve, gate or doubt. `effect`: read, reversible, external, irreversible or write.
    """

    id: str
    run_id: str
    workflow: str | None = None
    workflow_title: str | None = None
    started_by: str | None = None
    status: str
    opened_at: datetime
    path: str
    kind: str
    title: str | None
    message: str | None
    tool: str | None
    effect: str | None = None
    args: Json
    evidence: Json
    schema: Json
    options: list[str]
    policy: Json
    deadline: datetime | None
    digest: str
    nobody_decides: str | None = None
    needed: dict[str, Json] | None = None
    edits: dict[str, Json] | None = None
    decided_by: str | None = None
    on_behalf_of: str | None = None
    decided_at: datetime | None = None
    value: Json = None
    reason: str | None = None
    canary: dict[str, Json] | None = None


class WhyNot(msgspec.Struct, frozen=True, kw_only=True):
    """Why somebody may not decide: `excluded.requester` (they started the run), `excluded.instigator` (they are behind
    it), `agent` (an agent that `from` does not name), `excluded`, `voted`, `not_asked`, `not_picked` (others of those
    who are asked were), or `unreadable` (by this release)."""

    code: str
    reason: str


class InboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """A question that asks you. `why_not` says why you may not decide it yourself, `on_behalf_of` names the people
    that you may decide it for. `claimed_by` is the person that works on it, as they have announced, until
    `claimed_until`. `needed`: for approvals, the others that may decide, the votes so far, and those that are missing.

    `kind`: tool, ask, approve, gate or doubt. `effect`: read, reversible, external, irreversible or write.
    """

    id: str
    run_id: str
    workflow: str
    workflow_title: str | None
    started_by: str
    status: str
    opened_at: datetime
    path: str
    kind: str
    title: str | None
    message: str | None
    tool: str | None
    effect: str | None = None
    args: Json
    evidence: Json
    schema: Json
    options: list[str]
    policy: Json
    deadline: datetime | None
    digest: str
    nobody_decides: str | None = None
    may_decide: bool
    why_not: WhyNot | None
    on_behalf_of: list[str]
    needed: dict[str, Json] | None
    claimed_by: str | None
    claimed_until: datetime | None


class InboxCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many open questions of each workflow ask you. `complete`: all were counted; else only the first 10,000, or
    those of the cells that are not `missing`."""

    missing: list[str] = []
    workflows: dict[str, int]
    complete: bool


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `by` to a question: of you, or of your delegate `on_behalf_of` you. `rule`: the standing rule that
    gave it with your vote. `status` is the question's now.

    `kind`: tool, ask, approve, gate or doubt.
    """

    id: str
    run_id: str
    workflow: str
    workflow_title: str | None
    kind: str
    title: str | None
    decision: str | None
    reason: str | None
    by: str
    on_behalf_of: str | None
    via: str
    rule: str | None = None
    at: datetime
    status: str


class Delegation(msgspec.Struct, frozen=True, kw_only=True):
    """`to` may answer the questions that ask `from`, from `since` until `until`. `ends_with`: the proof of identity by
    which `from` made it, with which it ends before that, if the proof does; None: it is not known.

    `ends_with`: key, session or token.
    """

    id: str
    from_: str = msgspec.field(name="from")
    to: str
    since: datetime
    until: datetime
    note: str | None
    ends_with: str | None = None


class Delegations(msgspec.Struct, frozen=True, kw_only=True):
    items: list[Delegation]


class Absence(msgspec.Struct, frozen=True, kw_only=True):
    """`person` is away from `first_day` to the end of `last_day` in `zone`, that is from `since` until `until`;
    `delegate` decides for them, None: nobody. `decides_now`: who does so at this moment, None: nobody, and
    `why_nobody`."""

    id: str
    person: str
    delegate: str | None
    first_day: str
    last_day: str
    zone: str
    since: datetime
    until: datetime
    note: str | None
    entered_by: str
    decides_now: str | None
    why_nobody: str | None


class Decision(Pending, frozen=True, kw_only=True):
    """A pending after an answer. `already`: the same answer had been given before. `status` is still open where more
    people must decide."""

    already: bool


class PendingArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The function that an approved call calls. `parameters`: the JSON Schema of its arguments; None: there is no
    call, or this server knows no schema of it."""

    tool: str | None
    description: str | None
    parameters: dict[str, Json] | None


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent that lives elsewhere has asked. `id`: also of the run that asks. `status`: `pending` until people
    have decided; `approved` until it is consumed, once; or `rejected`, `expired`, `failed`, `cancelled` (an operator
    has stopped it). `arguments`: as they were approved, where people edited them; `digest`: the SHA-256 of `{"action":
    ..., "arguments": ...}` as RFC 8785 writes it. `page`: where people decide. `expires_at`: until when they may; of an
    approved one, until when it may be consumed."""

    id: str
    status: str
    action: str
    arguments: Json
    edited: bool
    digest: str
    workflow: str
    requested_by: str
    page: str
    pending_id: str | None
    expires_at: datetime | None
    reason: str | None
    votes: Json
    consumed_at: datetime | None
    error: Error | None


class ConsumedApproval(Approval, frozen=True, kw_only=True):
    """`already`: it was consumed under this Idempotency-Key before."""

    already: bool


class CheckedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The effect that an answer would have now. `decides`: it would close the question, with `status`; else the
    question would stay open for the votes that are `needed`. `title`, `args` and `digest` are as its edits would leave
    them, `lapsing` the votes that would not count any more; `already`: the same answer was given before."""

    id: str
    already: bool
    decides: bool
    status: str
    title: str | None
    args: Json
    digest: str
    lapsing: list[dict[str, Json]]
    needed: dict[str, Json] | None


class BulkOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one answer of several: `pending` where it was taken (`status` 200), else the `problem`."""

    id: str
    status: int
    pending: Decision | None
    problem: dict[str, Json] | None


class BulkOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    items: list[BulkOutcome]


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a text, from (`line`, `column`) to before (`end_line`, `end_column`), and its replacement."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A mistake in a workflow (or a doubt: `severity` warning). Lines and columns count from 1. `fix` mends it.
    `params`: the words that `message` puts in quotes.

    `severity`: error or warning.
    """

    file: str
    line: int
    column: int
    severity: str
    code: str
    message: str
    end_line: int = 0
    end_column: int = 0
    fix: list[Edit] = []
    params: list[str] = []


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    valid: bool
    findings: list[Finding]


class Formatted(msgspec.Struct, frozen=True, kw_only=True):
    """A document in its one form. `changed`: whether the given text differs from it."""

    source: str
    changed: bool


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file of yours. `id`: the name by which input, answers and messages refer to it. `part`: the file as a part of a
    message."""

    id: str
    sha256: str
    size: int
    name: str
    media_type: str
    part: dict[str, Json]


class WorkflowVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a workflow. `retired_at`: since when nothing begins with it; None: it is in use."""

    version: int
    sha256: str
    dev: bool
    name: str
    title: str | None
    created_at: datetime
    retired_at: datetime | None

    @property
    def reference(self) -> str:
        """How it is named: `refund@2`, or `refund@2+3f2a9c11` for a dev copy."""
        return reference(self.name, self.version, self.sha256, dev=self.dev)


class Published(WorkflowVersion, frozen=True, kw_only=True):
    warnings: list[Finding]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    verb: str


class Workflow(WorkflowVersion, frozen=True, kw_only=True):
    """A version with its source, the schema of its input, its steps, and which other versions there are."""

    description: str
    input: Json
    steps: list[Step]
    source: str
    versions: list[WorkflowVersion]


class ChangedPart(msgspec.Struct, frozen=True, kw_only=True):
    """One key with another value. None: the key is missing."""

    key: str
    from_: Json = msgspec.field(name="from")
    to: Json


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one step; `was`: the earlier path of a step that moved.

    `kind`: added, removed, moved or changed.
    """

    kind: str
    path: str
    verb: str
    was: str | None = None
    parts: list[ChangedPart]


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """`document`: keys outside of the steps. `steps`: in the order of the new version, then the removed ones."""

    from_: Version = msgspec.field(name="from")
    to: Version
    document: list[ChangedPart]
    steps: list[Change]


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run can't move. `path`: the step, as the old version calls it, or "" for the run itself."""

    code: str
    path: str
    message: str


class MigratedRun(msgspec.Struct, frozen=True, kw_only=True):
    """`status`: queued, running, waiting, paused, stopping, needs_attention, finished, failed or stopped."""

    id: str
    status: str
    movable: bool
    moved: bool
    obstacles: list[Obstacle]


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs moved, or would. `more`: there are runs that this request did not look at; send it again."""

    from_: Version = msgspec.field(name="from")
    to: Version
    dry_run: bool
    runs: list[MigratedRun]
    more: bool


class Message(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    role: str
    kind: str
    content: Json
    open: bool
    at: datetime


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    n: int
    first_seq: int
    open: bool
    wire_run_id: str | None


class StepState(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    attempt: int
    output: Json = None
    error: Error | None = None


class StepAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt. `error`: why another one followed; `lost`: its worker was lost."""

    n: int
    started_at: datetime
    ended_at: datetime | None
    lost: bool
    error: Error | None


class StepWait(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a step waited. `due`: when it ends by itself; `pending_id`: the question, of one for people.

    `for`: people, time, signal, retry or child.
    """

    for_: str = msgspec.field(name="for")
    since: datetime
    until: datetime | None
    due: datetime | None
    pending_id: str | None


class RunStep(msgspec.Struct, frozen=True, kw_only=True):
    """One passage through a step, or (verb `iteration`) through the body of a loop. `plan_path`: the step of the plan;
    `children`: the runs that it started; `notes`: what was changed in its output, so that a run can hold it; `usage`:
    tokens (`input`, `output`), and their `cost` in US dollars; `passages`: how many the step of the plan has had, by
    their status, where only the newest was asked for.

    `status`: running, finished, failed, skipped, stopped or undone.
    """

    path: str
    plan_path: str
    verb: str
    title: str | None
    status: str
    started_at: datetime
    ended_at: datetime | None
    first_seq: int
    last_seq: int
    args: Json
    error: Error | None
    attempts: list[StepAttempt]
    waits: list[StepWait]
    children: list[str]
    notes: list[str]
    usage: dict[str, float]
    passages: dict[str, int] | None = None


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    kind: str
    due: datetime


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Which run made another one start: its step `path` (`detach`), or, where that is None, its end."""

    run_id: str
    path: str | None = None


class MarkObstacle(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    detail: str


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A moment behind the event `seq`: in front of the step `step`, or (None) where the run waited. `forkable`: a
    fork can begin there; `editable`: also one with another input, state or version. `why_not`: the obstacle, if
    it is not."""

    seq: int
    at: datetime
    turn: int
    step: str | None
    forkable: bool
    editable: bool
    why_not: MarkObstacle | None


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    items: list[Mark]


class BulkRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a bulk. `outcome`: `done`; `already` (it was in that state, or the same request has done it before);
    `refused` with the `problem`; of a dry run `would`. `status`: the run's now."""

    id: str
    status: str
    outcome: str
    problem: MarkObstacle | None


class BulkReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of each run. `found`: how many there are in all; `done`, `already` and `refused`: how many have that
    outcome."""

    action: str
    dry_run: bool
    found: int
    done: int
    already: int
    refused: int
    items: list[BulkRun]


class AMoment(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    at: datetime | None
    status: str


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """`from` and `to` as in a snapshot; None: it had not begun."""

    from_: StepState | None = msgspec.field(name="from")
    to: StepState | None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    title: str | None
    status: str
    by: str | None
    votes: list[dict[str, Json]]


class PendingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A question as it stood at each of the moments; None: it had not been asked."""

    from_: Asked | None = msgspec.field(name="from")
    to: Asked | None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between two moments of a run: `state` is a JSON Patch (RFC 6902) of the variables."""

    from_: AMoment = msgspec.field(name="from")
    to: AMoment
    state: list[dict[str, Json]]
    steps: dict[str, StepChange]
    pendings: dict[str, PendingChange]


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a fork has stopped: its steps `in_flight` are asked to cancel, and the steps in `undoes` are
    undone.

    `status`: queued, running, waiting, paused, stopping, needs_attention, finished, failed or stopped.
    """

    run_id: str
    status: str
    in_flight: list[str]
    undoes: list[str]


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """The effects that a fork would have. `begins`: the steps that begin at once; `asks`: the steps whose questions
    are open in it; `restarts`: those whose child runs are started anew; `stops`: the thread's active run."""

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


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What the answers of one model took in all: how many `calls`, their tokens (`cached` of the `input`, `reasoning`
    of the `output`), and their `cost` in US dollars; None: its price is not known."""

    provider: str
    model: str
    calls: int
    input: int
    output: int
    cached: int
    reasoning: int
    cost: float | None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A run after its first `seq` events. `state` are its variables, `steps` by path. `trigger`: how it was started (""
    where an older server does not say); `origin`: the run that started it, if one did; `usage`: what each model took,
    also for the runs below it."""

    run_id: str
    seq: int
    status: str
    trigger: str = ""
    scheduled_at: datetime | None
    origin: Origin | None = None
    turn: Turn | None
    state: Json
    steps: dict[str, StepState]
    pendings: list[Pending]
    messages: list[Message]
    timers: list[Timer]
    usage: list[ModelUsage] = []
    output: Json
    error: Error | None


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation. `run_id`, `workflow` and `status` are of its newest run; `created_at` is when its first run was
    made, `updated_at` when the newest one has last moved.

    `status`: queued, running, waiting, paused, stopping, needs_attention, finished, failed or stopped.
    """

    id: str
    run_id: str
    workflow: str
    status: str
    created_at: datetime
    updated_at: datetime


class ThreadWithRuns(Thread, frozen=True, kw_only=True):
    """`runs`: the newest ones, newest first. `runs.list(thread_id=...)` gives all."""

    runs: list[Run]


class QueuedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A user's message that waits until its thread's run has ended, and then starts the run `run_id`. `message`:
    its text, None for callers that do not see the conversation; `refused`: why its run could not be started (RFC
    9457)."""

    run_id: str
    by: str
    message: str | None
    queued_at: datetime
    refused: dict[str, Json] | None


class QueuedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a thread that wait, the next one first."""

    items: list[QueuedMessage]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool: `arguments` are JSON text."""

    name: str
    arguments: str
    executor: str
    error: str | None


class ThreadMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message or a call in a thread, recorded by the event `seq` of a run. `content` is text or another JSON value;
    that of a call (role `tool`, kind `call`) is its result, None without one. `aborted`: its attempt broke off."""

    id: str
    run_id: str
    seq: int
    role: str
    kind: str
    content: Json
    at: datetime
    call: Call | None
    aborted: bool


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """The opinion that `by` gave, over `via`, of a message or a decided pending of the run `run_id`. `rating`: up,
    down, or a number of stars."""

    id: str
    thread_id: str
    kind: str
    subject_id: str
    run_id: str
    by: str
    via: str
    rating: str | int | None
    comment: str | None
    labels: list[str]
    created_at: datetime
    updated_at: datetime


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An act of a person, or of a credential's owner. `n`: its place in the tenant's chain; None until it is
    sealed. `seq`: how many events the run had after it. `erased_at`: `by` is a pseudonym since then, and
    `details` are gone."""

    id: str
    n: int | None
    at: datetime
    act: str
    by: str | None
    run_id: str | None
    seq: int | None
    subject: str | None
    digest: str | None
    details: dict[str, Json] | None
    erased_at: datetime | None


class AuditLink(msgspec.Struct, frozen=True, kw_only=True):
    """A record at its place in the chain, with all that its `hash` is made of. Digests are in hex, times in
    microseconds since 1970. As a line of JSON each, `hai-flow audit verify --file` checks them."""

    tenant: str
    n: int
    id: str
    hash: str
    record: dict[str, Json] | None
    details: dict[str, Json] | None


class AuditAnchor(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a tenant's chain: how many records it has, and its hash there."""

    tenant: str
    n: int
    hash: str


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A process that performs runs. `queues`: `*` means all. `state`: `ended`, after it handed everything back;
    `dead`, when it gave no sign of life in time. `holds`: the runs that it holds now (counted to 10,000); of a dead
    worker those that no other has taken over yet.

    As of its last sign of life (`beat_at`): it `held` so many runs, performed `attempts` of at most `places` at once,
    and `waiting` ones had no place. Null: a worker of an older release does not report it.

    `state`: alive, draining, ended or dead.
    """

    id: int
    name: str
    cell: str
    state: str
    queues: list[str]
    release: str | None
    started_at: datetime | None
    beat_at: datetime | None
    draining_since: datetime | None
    holds: int
    held: int | None
    attempts: int | None
    waiting: int | None
    places: int | None


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """The workers, those that live first."""

    items: list[Worker]


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An API key. `used_at`: when it was used last, to a minute. `speaks_for`: as whom the tokens that it makes may
    decide."""

    id: str
    name: str
    principal: str
    roles: list[str]
    groups: list[str]
    speaks_for: list[str]
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


class NewKey(Key, frozen=True, kw_only=True):
    """`key` is the secret text that `Client(key=...)` takes. It is shown this once."""

    key: str


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a tenant: runs that begin in a minute, runs that have not ended, streams of one process that only
    follow, bytes of logs. 0: no limit. None (only in a tenant's `limits`): the value of the server's settings."""

    runs_per_minute: int | None
    open_runs: int | None
    followers: int | None
    log_bytes: int | None


class TenantCell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that a tenant lives in. `begins`: whether new threads begin there. `first`: it has the things that exist
    once for the tenant: workflows, schedules, delegations."""

    name: str
    begins: bool
    first: bool


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant. `limits` were set for it, `in_force` are those that it has. `cells`: those that it lives in."""

    id: str
    name: str
    created_at: datetime
    limits: Limits
    in_force: Limits
    cells: list[TenantCell] = []


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """`token` is to be sent by a page as `Authorization: Bearer`, until `expires_at`."""

    token: str
    principal: str
    expires_at: datetime


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """`ticket` opens one stream, until `expires_at`."""

    ticket: str
    expires_at: datetime


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, the `way` in which they have proven their identity, and their rights. `csrf`: requests of a
    browser's session send it in `HAI-CSRF`; None for other credentials."""

    principal: str
    roles: list[str]
    groups: list[str]
    rights: list[str]
    way: str
    expires_at: datetime | None
    csrf: str | None


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """An event from outside. `run_id`: the run that it is for; None: every run that waits for its type. `already`: it
    had been sent before, and nothing has happened now."""

    id: str
    type: str
    run_id: str | None
    sent_at: datetime
    already: bool


class TriggerProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a workflow was not started."""

    code: str
    detail: str
    findings: list[Json]


class TriggeredRun(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one workflow's event trigger. `already`: this event, or another one with its dedupe key, has
    started the run before.

    `status`: started, already or refused.
    """

    workflow: str
    status: str
    run_id: str | None
    problem: TriggerProblem | None


class SentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event from outside, and the runs that it started. `already`: it has been sent before."""

    id: str
    type: str
    sent_at: datetime
    already: bool
    runs: list[TriggeredRun]


class ScheduleClause(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a schedule's explanation, by its code; `params`: times, seconds, a timezone, or items of a cron
    field."""

    code: str
    params: list[str]


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A start by the clock. `explanation`: `cron` and `timezone` in English; `explained`: the same in parts, for other
    languages. `waiting`: how many instants wait for the run before them. `next`: when it fires (None while it is
    paused); `last`: when it did; `last_run_id`: the last run that it started, by the clock or by request.

    `missed`: skip, once or all. `overlap`: queue, queue_one, skip or cancel_running.
    """

    id: str
    workflow: str
    version: Version
    cron: str | None
    timezone: str
    explanation: str
    explained: list[ScheduleClause] = []
    missed: str
    overlap: str
    input: dict[str, Json]
    paused: bool
    waiting: int
    next: datetime | None
    last: datetime | None
    last_run_id: str | None


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """A time at which a schedule fired. `outcome` is None while its run is not started yet; `skipped`: its last run
    was active; `refused`: it could not be started."""

    at: datetime
    outcome: str | None
    run_id: str | None


class Fires(msgspec.Struct, frozen=True, kw_only=True):
    """`next`: the next times, soonest first (none while it is paused). `past`: the last ones, newest first; those
    whose runs started long ago are kept for a week."""

    next: list[datetime]
    past: list[Fire]


class CursorReset(msgspec.Struct, frozen=True, kw_only=True):
    """The cursor was not a place of this run; the run has `seq` events."""

    seq: int


class Page(msgspec.Struct, Generic[Item], frozen=True):
    """One page of a list. `missing`: cells of the tenant that are away; their items are not in it."""

    items: list[Item]
    next_cursor: str | None = None  # also of a list that has no pages
    missing: list[str] = []
    cursor_reset: CursorReset | None = None
