"""The events of a run as the server sends them: `{seq, type, at, turn, path?, ...}`, one record for each type.

The vocabulary of the log. Times are aware datetimes; texts that hold JSON there (`args`, `evidence`) are the values
that they hold. An event that this release does not know, or that a newer server sends in another form, becomes an
`UnknownEvent`: pass over it and read on. Words of a closed list are `str` here, because a newer server may know more
of them. Durations are in milliseconds.

Rules that every reader may rely on: `seq` counts from 1 without a gap; `at` never decreases; whatever is started
(message, tool call) is ended before its turn ends; a terminal event (`run_finished`, `run_failed`, `run_stopped`) is
last unless `run_retried` follows it. `ready` lists the paths that may begin because of the event ("" is the end).
"""

# Written by `make generate` from engine/events.py: change that, or clients/generate.py.

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from hai_flow_client.values import Json


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Error(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failure, as authors see it (`error`, docs/language.md#codes). Codes are stable, messages are for people."""

    code: str
    message: str
    path: str = ""
    attempt: int = 0
    at: datetime | None = None
    retriable: bool = False
    data: Json = None
    cause: Error | None = None


class Pin(msgspec.Struct, frozen=True):
    """A workflow as it was when the run started. `sha256` is in hex; `dev`: a copy, loaded while it is edited."""

    version: int
    sha256: str
    dev: bool = False


class Parent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose child a run is: attempt `attempt` of the step `path` waits for it. `depth` 1: a child of a run that has no
    parent itself. `root`: the run at the top, where the depth is more than 1; releases before have not noted it."""

    run_id: str
    path: str
    attempt: int
    depth: int
    root: str | None = None


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which run made this one start, though it is no child of it: its step `path` (`detach`), or, without one, its end
    (a `run` trigger). `depth`: how many of these ends stand in a row before it."""

    run_id: str
    path: str | None = None
    depth: int = 0


class Allowance(msgspec.Struct, frozen=True, omit_defaults=True):
    """The share of its parent's tokens, money and calls of tools that a child run may use, with the runs below it.
    None: there is no limit."""

    tokens: int | None = None
    cost_usd: float | None = None
    tool_calls: int | None = None


class UserMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that a client posted and the thread keeps. `content` is text or a list of content parts."""

    id: str
    role: str
    content: Json
    name: str | None = None
    timestamp: int | None = None
    extra: Json = None


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=_snake):
    """The fields that every event has. `turn` is 0 before the first turn opens."""

    seq: int
    at: datetime
    turn: int = 0

    @property
    def type(self) -> str:
        return str(self.__struct_config__.tag)


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that this release of the client does not know: `fields` has all of its other fields."""

    seq: int
    type: str
    at: datetime
    turn: int = 0
    fields: dict[str, Json] = {}


# --- the run ------------------------------------------------------------------------------------------------------


class RunStarted(Event, frozen=True):
    """`input` has its defaults filled in; `state` holds the variables' defaults.

    `pins` says which workflow each `run: name` and `run: name@version` means, in this run and in its children. Of a
    child: its `parent`, and `timeout`, the working time that the parent's step allows (ms). `origin`: which run made it
    start; of a child that of the run above it. `scheduled_at`: the instant that a schedule started it for (ms); None
    where none did, and before ABI 12. `instigators`: the people behind it beside its `requester`
    (`engine/state/instigators`). `allowance`: reserved by the run above for this one. `trace`: the trace context of the
    caller that started it (`engine/state/tracing`).
    """

    workflow: str
    version: int
    sha256: str
    thread_id: str
    requester: str
    input: Json
    state: Json
    message: str = ""
    trigger: str = "api"
    dev: bool = False
    ready: tuple[str, ...] = ()
    pins: dict[str, Pin] = {}
    parent: Parent | None = None
    timeout: int | None = None
    key: str | None = None
    origin: Origin | None = None
    allowance: Allowance | None = None
    trace: str | None = None
    instigators: tuple[str, ...] = ()
    scheduled_at: int | None = None


class RunQueued(Event, frozen=True):
    """The run waits for a slot of its concurrency key, `slot` (`<workflow>:<key>`)."""

    slot: str


class RunPaused(Event, frozen=True):
    by: str
    reason: str = ""


class RunResumed(Event, frozen=True):
    """`status` is that of the run again: running (a turn is still open), waiting or queued."""

    by: str
    status: str


class Inherited(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a fork goes on with a run that is stopped for it: turn `turn`, which is event `seq`; and of the turn
    behind that, the `steps` that had begun ("" is the document)."""

    turn: int
    seq: int
    steps: tuple[str, ...] = ()


class Heir(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run that takes the place of one that is stopped for it. It gets the slot of the thread; `key`: that of the
    concurrency key as well."""

    run_id: str
    key: bool = False


class RunStopping(Event, frozen=True):
    """A cooperative stop began; `in_flight` attempts were asked to cancel. Steps that had finished, or begun, when a
    fork `inherited` it is the fork's to undo and to clean up. `heir`: the run that it is stopped for."""

    by: str
    reason: str = ""
    in_flight: int = 0
    inherited: Inherited | None = None
    heir: Heir | None = None


class StepsHeld(Event, frozen=True):
    """Freezes hold ready steps: `held` has the id of the freeze of each, in place of those before; empty: none is held
    any more. `reason` is that of the first."""

    held: dict[str, str] = {}
    reason: str = ""


class WorkTakenBack(Event, frozen=True):
    """The run `heir`, for which this one was stopped, does not begin: what was left to it is this run's again, to undo
    and to clean up. `cleanups`: the steps whose `finally` was left to the heir and is due now."""

    heir: str
    cleanups: tuple[str, ...] = ()


class RunStopped(Event, frozen=True):
    """The end: `terminated` when it was cut at once instead of asked to stop."""

    by: str
    reason: str = ""
    terminated: bool = False


class RunFinished(Event, frozen=True):
    output: Json = None


class RunFailed(Event, frozen=True):
    error: Error


class RunNeedsAttention(Event, frozen=True):
    """Too many attempts of `path` were lost in a row; an operator retries, stops or terminates."""

    path: str
    reason: str


class Awaited(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the run above waits for a child that it has retried: attempt `attempt` of its step. `timeout`: how long the
    child may work from here on, in milliseconds; `allowance`: how much it may take in all."""

    attempt: int
    timeout: int | None = None
    allowance: Allowance | None = None


class RunRetried(Event, frozen=True):
    """The run goes on from where it failed: `reopened` steps are running again, `ready` ones begin anew.

    `redo` are the undone steps that the flow will come by again; `branches` says of each reopened parallel step how
    many of its branches have something left to do; `handling` are the steps that go on in a `catch`, with its name.
    `awaited`: the run above was retried, and waits for this one again.
    """

    by: str
    reopened: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    branches: dict[str, int] = {}
    handling: dict[str, str] = {}
    redo: tuple[str, ...] = ()
    awaited: Awaited | None = None


class Migrated(Event, frozen=True):
    """The run goes on with another version of its workflow, from where it stands.

    `paths`: steps of the plan that are called otherwise now, old -> new; steps inside them go with them. `input` and
    `state` are there where the version's defaults add to them; `pins` are those of further children. Open questions
    follow: `pending_restamped`.
    """

    by: str
    version: int
    sha256: str
    dev: bool = False
    paths: dict[str, str] = {}
    pins: dict[str, Pin] = {}
    input: Json = None
    state: Json = None


class Forked(Event, frozen=True):
    """The `copied` events before this one are those of the run `of`, up to where nothing of it was in flight. From here
    on this is a run of its own, and `by` is its requester; the requester before is one of its instigators. `input` is
    there where it has another one. `key`: the concurrency key that it counts under, "" if under none; None: that of the
    other run, as before ABI 12.

    No vote counts any more that was cast on an open question, for that was a question of the other run. Whatever runs
    on a clock has as long to go as it had there: the time since then does not count.
    """

    of: str
    copied: int
    by: str
    input: Json = None
    key: str | None = None


# --- turns and the thread -----------------------------------------------------------------------------------------


class TurnStarted(Event, frozen=True):
    """`wire_run_id` is the client's own id when its POST opened the turn; `body_sha` is that of the POST's body."""

    wire_run_id: str | None = None
    dialect: str | None = None
    profile: Json = None
    client_tools: tuple[str, ...] = ()
    body_sha: str | None = None


class TurnEnded(Event, frozen=True):
    """Nothing but people (or a distant timer) can move the run, or it was paused, or it is about to end.

    `reason`: waiting, paused, finished, failed, stopped, needs_attention or queued.
    """

    reason: str


class MessagesChanged(Event, frozen=True):
    """Messages that a client added to the thread."""

    messages: tuple[UserMessage, ...]


# --- steps --------------------------------------------------------------------------------------------------------


class StepStarted(Event, frozen=True):
    """`args` are the rendered arguments, as they are hashed, shown and executed.

    An effect's first attempt (number `attempt`) opens with this event, unless a gate comes first; later ones open with
    `attempt_started`. `key` is the idempotency key where it is not `run.id/path`. `timeout` is in milliseconds of
    working time. `branches` counts those of a parallel step, `case` is the one a switch took. A `for_each` has its
    `items` and their `keys`, evaluated once. `reading`: the attempt performs nothing, it finds out what people are
    shown before they are asked.
    """

    path: str
    verb: str
    title: str | None = None
    args: Json = None
    attempt: int = 0
    timeout: int | None = None
    key: str | None = None
    case: int | None = None
    branches: int = 0
    items: list[Json] = []
    keys: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    reading: bool = False


class AttemptStarted(Event, frozen=True):
    path: str
    attempt: int
    timeout: int | None = None


class StepFinished(Event, frozen=True):
    """`handler` "~finally": its list goes on, and the flow behind the step comes after that. `undoable`: an error that
    comes later undoes the step. The output of a `for_each` is not here: the fold gathers it from the iterations.
    `notes`: the parts of a tool's result that a run can't hold as they came, and what became of each."""

    path: str
    output: Json = None
    approval: Json = None
    undoable: bool = False
    handler: str | None = None
    ready: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class StepSkipped(Event, frozen=True):
    """Its `if` was false; or people chose an option of the author's own (`approval`), whose `handler` goes on; or a
    person (`by`) with the right to control runs had it skipped, and gave the `output` in its place: `handler`
    "~finally" then, if it had begun and has one."""

    path: str
    approval: Json = None
    handler: str | None = None
    ready: tuple[str, ...] = ()
    by: str | None = None
    output: Json = None
    reason: str = ""


class StepFailed(Event, frozen=True):
    """`handler` names the list that goes on inside the step: "~undo" (finished steps are undone, newest first),
    "~catch/0", "~reject", "~finally". Without one the failure is raised further, or was caught and the flow goes on
    behind.

    Path "" is the document. A step fails once more for every handler that follows, and for an error that a handler
    raises in place of the first.
    """

    path: str
    error: Error
    approval: Json = None
    handler: str | None = None
    ready: tuple[str, ...] = ()


class StepEnding(Event, frozen=True):
    """The step is about to end as `outcome` says, once every open step inside it has ended: `finally` lists that have
    to run, effects that were asked to cancel. Nothing else inside it begins. Path "" is the document.

    `outcome` "next" ends an iteration, whose rest is skipped, "left" the loop around it as well; "abandoned" is stopped
    without undo: a branch that lost its race, or a step that was open when the run returned.

    `outcome`: finished, failed, stopped, abandoned, next or left.
    """

    path: str
    outcome: str
    output: Json = None
    error: Error | None = None
    reason: str = ""


class HandlerStarted(Event, frozen=True):
    """A further list of a step that has failed, finished or stopped goes on: "~catch/0" or "~finally" behind "~undo",
    "~finally" behind "~catch/0"."""

    path: str
    handler: str
    ready: tuple[str, ...] = ()


class StepReopened(Event, frozen=True):
    """After a Retry the flow has come by a block that had finished, or an iteration, with steps in it that were undone;
    or by a block that had failed, or was cut off, behind all that is in it. Fields as in `run_retried`."""

    path: str
    reopened: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    branches: dict[str, int] = {}
    handling: dict[str, str] = {}


class StepUndone(Event, frozen=True):
    """The step's `undo` has finished. `ready`: the next one to undo."""

    path: str
    ready: tuple[str, ...] = ()


class IterationStarted(Event, frozen=True):
    """The iteration `path` (`rollout[api]`) of a loop; `index` counts from 0."""

    path: str
    index: int
    ready: tuple[str, ...] = ()


class IterationEnded(Event, frozen=True):
    """`status` finished, failed or stopped. `output` and `error` are shown of it by a `for_each`; of an agent `output`
    is true where `stop_when` was and one more answer has to say its object. `ready`: the next iteration."""

    path: str
    status: str
    output: Json = None
    error: Error | None = None
    ready: tuple[str, ...] = ()


class StepRetried(Event, frozen=True):
    """An attempt failed (or was lost, `lost`) and another one will begin at `due`, or at once when `due` is None.
    `held`: it had not begun, because a freeze held it, the run was paused or too little of its time was left: so it
    counts neither as failed nor as lost."""

    path: str
    attempt: int
    error: Error
    due: datetime | None = None
    lost: bool = False
    held: bool = False


class StepStopped(Event, frozen=True):
    """The step was cut off: its branch lost, the run was stopped, or a `return` ended the run around it. `handler`
    "~finally": its list runs yet."""

    path: str
    reason: str = ""
    handler: str | None = None
    ready: tuple[str, ...] = ()


class BranchEnded(Event, frozen=True):
    """A branch of a parallel step has nothing left to do: it finished, or (`join: any`) it dropped out by failing."""

    path: str
    branch: str
    failed: bool = False


# --- what people see ----------------------------------------------------------------------------------------------


class MessageStarted(Event, frozen=True):
    """`kind` data is a structured HAI output; its one chunk is the JSON text of `{type, data|content}`.

    `instead_of`: the message of an attempt before, which broke off.

    `kind`: text, thinking or data.
    """

    message_id: str
    path: str
    role: str = "assistant"
    kind: str = "text"
    block_id: str | None = None
    layout: Json = None
    style: Json = None
    instead_of: str | None = None


class MessageChunk(Event, frozen=True):
    """`n` counts the message's chunks from 0; `content` is the text to append."""

    message_id: str
    n: int
    content: str


class MessageEnded(Event, frozen=True):
    message_id: str
    aborted: bool = False


class ToolCallStarted(Event, frozen=True):
    """`executor` frontend: the client answers; server: an exposed server tool, its result follows. `writer`: the answer
    of a model that writes the call at this moment; the step `path` has not begun, and perhaps never will."""

    tool_call_id: str
    name: str
    path: str
    executor: str
    message_id: str
    parent_message_id: str | None = None
    writer: str | None = None


class ToolCallArgsChunk(Event, frozen=True):
    """`content` is a part of the JSON text of the arguments."""

    tool_call_id: str
    content: str


class ToolCallEnded(Event, frozen=True):
    tool_call_id: str


class ToolCallResolved(Event, frozen=True):
    """`content` is the result as text (JSON where it is not a string)."""

    tool_call_id: str
    content: str
    error: str | None = None


# --- people -------------------------------------------------------------------------------------------------------


class Inquiry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of an attempt whose tool asks a person: the next attempt makes the same call with the answer.

    `attempt` is the one that ended. The tool gave `state` and the `keys` of its questions, and gets them back.
    """

    attempt: int
    state: str | None = None
    keys: tuple[str, ...] = ()


class AskedAnew(msgspec.Struct, frozen=True, omit_defaults=True):
    """The approval of the question `after` is spent: attempt `attempt` of its step has done nothing, for what people
    approved is not so any more (`why`: still, source, description), or nobody can tell (unknown). `number` counts the
    questions that followed one another like that, from 1."""

    after: str
    attempt: int
    why: str
    number: int = 1


class PendingOpened(Event, frozen=True):
    """An open question. `id` is also the toolCallId. `digest` (hex) binds workflow, run and content
    (docs/language.md#people).

    kind tool: `tool` and `args` (the call), `schema` = the result's; ask: `schema` = the form (`inquiry`: a tool asks
    in the middle of its call, and `options` may be answered instead); approve: `options`, `evidence`, `schema` = the
    form if there is one; gate: as approve, with `tool` and `args` in place of evidence; doubt: `tool` and `args` of a
    call whose outcome was lost, which an operator settles, and as `evidence` what had come of the answer. `effect`: the
    class of the call behind a gate (definition/tools/effect_classes). `source` (hex): the digest of the code, or of the
    description, of a gate's tool; `anew`: the gate is asked once more, and `evidence` has the difference. `policy` is a
    `Rules` as JSON: the deciders, how votes add up, and each escalation, with holes filled. `deadline` is that of this
    stage.
    """

    id: str
    path: str
    kind: str
    digest: str
    title: str | None = None
    message: str | None = None
    tool: str | None = None
    args: Json = None
    evidence: Json = None
    schema: Json = None
    options: tuple[str, ...] = ()
    policy: Json = None
    deadline: datetime | None = None
    inquiry: Inquiry | None = None
    effect: str | None = None
    source: str | None = None
    anew: AskedAnew | None = None


class RuleUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The standing rule that voted: its id, the digest (hex) of what it says, and whether it says no (`never`)."""

    id: str
    digest: str
    never: bool = False


class VoteCast(Event, frozen=True):
    """One person's vote, final. `by` cast it, for `on_behalf_of` if that is there. `aliases` are further ids that `by`
    had then, `lent_aliases` those of the other one; `issuer`: acted behind the credential, as in `commands.Principal`,
    and has one vote with all in `through`, the people by which the vote came to `by`.

    `matched` are the selectors of the policy (of all its stages) that this person matched then, `barred` those of its
    exclusions. `edited`: the vote came with an edit of the arguments. `answer_sha` recognises the same vote again.
    `rule`: a standing rule cast it; `by` is who had approved the rule, or `rule:ID` where it says `never`.
    """

    id: str
    by: str
    decision: str
    reason: str | None = None
    values: Json = None
    via: str = "rest"
    digest: str | None = None
    on_behalf_of: str | None = None
    matched: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    edited: bool = False
    answer_sha: str | None = None
    aliases: tuple[str, ...] = ()
    lent_aliases: tuple[str, ...] = ()
    issuer: str | None = None
    through: tuple[str, ...] = ()
    rule: RuleUse | None = None


class PendingEdited(Event, frozen=True):
    """A person changed the arguments of a gated call: `args` is the new text, `edits` are all changes so far, by
    argument or JSON Pointer. Approvals of another `digest` no longer count. `title` and `message` are as the author's
    templates say them of the new arguments; None: as before."""

    id: str
    by: str
    edits: Json
    args: Json
    digest: str
    title: str | None = None
    message: str | None = None


class PendingEscalated(Event, frozen=True):
    """No decision in time (or none was possible, `reason`): the next stage of `on_deadline` begins, with a clock of its
    own. `policy` holds from now on; id, evidence, digest and votes stay. `since` is when the stage began, where that
    was before `at`: no process looked when the deadline passed."""

    id: str
    path: str
    policy: Json
    deadline: datetime
    reason: str = ""
    since: datetime | None = None


class PeoplePicked(Event, frozen=True):
    """Of those whom the question asks, `people` decide it, until others are picked or the next stage begins. Nobody:
    all whom it asks may decide, and `note` says why. `before`: who was picked until now; None: the stage began."""

    id: str
    path: str
    people: tuple[str, ...]
    note: str = ""
    before: tuple[str, ...] | None = None


class PendingRestamped(Event, frozen=True):
    """The run moved to another version of its workflow, in which the question is the same: a new digest, old votes."""

    id: str
    digest: str


class PendingReminded(Event, frozen=True):
    """The deciders are reminded, the `n`-th time since the stage began (from 1), over `notify`."""

    id: str
    path: str
    n: int
    notify: tuple[str, ...] = ()


class PendingDecided(Event, frozen=True):
    """`outcome` answered (tool, ask), declined (the frontend reported an error), approve, reject or another of its
    options, or expired (the deadline decided).

    `answer_sha` (hex) is that of the normalised answer, so that the same answer again is recognised; `value` is the
    tool's result, the form's values, or the approval envelope. `ready`: the gated step, whose effect may begin. `by`
    gave the answer, for `on_behalf_of` if that is there; `aliases`, `lent_aliases`, `issuer` and `through` as of a
    vote.
    """

    id: str
    outcome: str
    by: str | None = None
    on_behalf_of: str | None = None
    value: Json = None
    reason: str | None = None
    answer_sha: str | None = None
    via: str = "rest"
    ready: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    lent_aliases: tuple[str, ...] = ()
    issuer: str | None = None
    through: tuple[str, ...] = ()


class PendingVoided(Event, frozen=True):
    """No answer is needed any more; later answers are refused."""

    id: str
    reason: str = ""


# --- state, time, the world ---------------------------------------------------------------------------------------


class StateChanged(Event, frozen=True):
    """`ops` is an RFC 6902 patch that applies to the state before this event."""

    path: str
    ops: tuple[dict[str, Json], ...]


class TimerSet(Event, frozen=True):
    """`kind` wait (the verb), retry (back-off), deadline (people and signals; it runs while paused), halting_deadline
    (`pause_clock: stop`), remind (people), grace (of a stop), limit (`limits.duration`)."""

    path: str
    kind: str
    due: datetime


class TimerFired(Event, frozen=True):
    """`kind`: wait, retry, deadline, halting_deadline, remind, grace or limit."""

    path: str
    kind: str


class TimeJumped(Event, frozen=True):
    """A person tries the workflow out and let `ms` pass at once: whatever runs on a clock, and is not halted by a
    pause, is due so much earlier. Nothing else has aged: `at`, `now` and the time that was worked are the real
    ones."""

    by: str
    ms: int


class SignalsAwaited(Event, frozen=True):
    """The step `path` waits for signals of these types: a `wait_for`; or a request that was answered with `output`,
    whose attempt is over, and which waits for a callback; or a question, which they take back (none: no event does any
    more)."""

    path: str
    types: tuple[str, ...]
    output: Json = None


class SignalReceived(Event, frozen=True):
    """The step `path` (a `wait_for`) has taken a signal. `sent_at` is when it was stored, ms since 1970.

    `subscription` is the place of the one it fits in the step's list, from 0; `awaits` are the types still waited for.
    `place` is the signal's own among the stored ones of its type (0: unknown), `own` says that it was for this run
    alone; `heard` how far the run has heard that type from now on, with those newly left. `by` is the person that sent
    it, if one did, and those for whom it was sent, with spaces between.
    """

    id: str
    name: str
    data: Json = None
    path: str = ""
    sent_at: int = 0
    subscription: int = 0
    awaits: tuple[str, ...] = ()
    place: int = 0
    own: bool = False
    heard: Json = None
    by: str | None = None


class CustomEmitted(Event, frozen=True):
    path: str
    name: str
    value: Json = None


class RawEmitted(Event, frozen=True):
    path: str
    event: Json
    source: str | None = None


class CollaborationStarted(Event, frozen=True):
    """One agent (`from_`) hands a task to another (`to`); for a child run (`run_id`): its parent and itself.
    `allowance`: reserved for the child until it has ended."""

    path: str
    from_: str = msgspec.field(name="from")
    to: str
    task: Json = None
    run_id: str | None = None
    allowance: Allowance | None = None


class CollaborationEnded(Event, frozen=True):
    """`tool_calls`: so many the child has made, with those below it. `senders`: the people who sent events that it, or
    a run below it, has taken, and who were not among the senders of this run yet; `~` begins the id of a person in
    whose name another sent one."""

    path: str
    from_: str = msgspec.field(name="from")
    to: str
    task: Json = None
    run_id: str | None = None
    tool_calls: int = 0
    senders: tuple[str, ...] = ()


class ChildMoved(Event, frozen=True):
    """The child run of the step `path` has begun to wait (for people, signals, time), or it works again. `used` and
    `tool_calls`: what it has taken so far of its allowance, with those below it; nothing: as it was. `senders` as in
    `collaboration_ended`."""

    path: str
    working: bool
    used: tuple[ModelUse, ...] = ()
    tool_calls: int = 0
    senders: tuple[str, ...] = ()


class ChildAsked(Event, frozen=True):
    """A question of the child run `run_id` of the step `path`, or of one below it, as it is now: so that the log of the
    outermost run has all that its thread is asked. `opened.path` begins with `path`; an answer goes to the run that the
    question's id names. `known`: it was here before."""

    path: str
    run_id: str
    opened: dict[str, Json]
    status: str = "open"
    by: str | None = None
    value: Json = None
    reason: str | None = None
    edits: Json = None
    votes: tuple[dict[str, Json], ...] = ()
    known: bool = False


class ChildSaid(Event, frozen=True):
    """A whole message of a child run of the step with which `path` begins, or of one below it. If it was streamed, its
    text up to some point may be in the log before, as `message_started` and `message_chunk` of the same id."""

    path: str
    message_id: str
    content: str
    kind: str = "text"
    role: str = "assistant"
    aborted: bool = False
    block_id: str | None = None
    layout: Json = None
    style: Json = None


class ChildStepped(Event, frozen=True):
    """A step of a child run of the step with which `path` begins, or of one below it, begins (`status` running), or is
    over. Steps without a visible effect are left out.

    `status`: running, finished, failed, stopped or skipped.
    """

    path: str
    status: str


class ChildShared(Event, frozen=True):
    """The state that a child run of the step `path`, or one below it, shows in its thread has these `values` now."""

    path: str
    values: dict[str, Json]


class ModelUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer of a model, or its part: tokens, and their cost in US dollars (None: unknown).

    `model` is its name in the workflow, `served` its name at the `provider`. `cached` tokens are part of the `input`,
    `reasoning` ones of the `output`. `estimated`: they were not counted. `repair`: the model was asked once more,
    because its answer did not fit. `calls`: of so many answers, where they are those of a child run.
    """

    model: str
    provider: str = ""
    served: str = ""
    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: float | None = None
    estimated: bool = False
    repair: bool = False
    calls: int = 1


class ModelUsed(Event, frozen=True):
    """Attempt `attempt` of the step `path` has asked a model, whatever became of it."""

    path: str
    attempt: int
    use: ModelUse


class PartsMade(Event, frozen=True):
    """The answer of a model holds files: content parts, which refer to them. `agent`: whose answer it is."""

    path: str
    attempt: int
    parts: tuple[Json, ...]
    agent: str | None = None


class WarningRaised(Event, frozen=True):
    code: str
    message: str
    path: str | None = None


AnyEvent: TypeAlias = (
    RunStarted | RunQueued | RunPaused | RunResumed | RunStopping | RunStopped | RunFinished | RunFailed
    | RunNeedsAttention | RunRetried | StepsHeld | WorkTakenBack | Migrated | Forked | TurnStarted | TurnEnded
    | MessagesChanged | StepStarted | AttemptStarted | StepFinished | StepSkipped | StepFailed | StepRetried
    | StepStopped | StepEnding | StepReopened | StepUndone | HandlerStarted | BranchEnded | IterationStarted
    | IterationEnded | MessageStarted | MessageChunk | MessageEnded | ToolCallStarted | ToolCallArgsChunk
    | ToolCallEnded | ToolCallResolved | PendingOpened | VoteCast | PendingEdited | PendingEscalated
    | PendingReminded | PeoplePicked | PendingRestamped | PendingDecided | PendingVoided | StateChanged | TimerSet
    | TimerFired | TimeJumped | SignalsAwaited | SignalReceived | ChildMoved | CustomEmitted | RawEmitted
    | CollaborationStarted | CollaborationEnded | ChildAsked | ChildSaid | ChildStepped | ChildShared | ModelUsed
    | PartsMade | WarningRaised | UnknownEvent
)  # fmt: skip

EVENT_TYPES: Final[dict[str, type[Event]]] = {
    _snake(kind.__name__): kind for kind in Event.__subclasses__() if kind.__module__ == __name__
}
TERMINAL: Final = ("run_finished", "run_failed", "run_stopped")


def read_event(shown: dict[str, Json]) -> AnyEvent:
    """The event that REST shows as `shown`. Raises `msgspec.ValidationError` if it is no event at all."""
    name = shown.get("type")
    kind = EVENT_TYPES.get(name) if isinstance(name, str) else None
    if kind is not None:
        try:
            return msgspec.convert(shown, kind)  # type: ignore[return-value]
        except msgspec.ValidationError:
            pass  # a newer server means something else by it
    common = ("seq", "type", "at", "turn")
    fields = {name: value for name, value in shown.items() if name not in common}
    return msgspec.convert({**{name: shown[name] for name in common if name in shown}, "fields": fields}, UnknownEvent)
