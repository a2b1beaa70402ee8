"""Everything that may be asked of a run. Imperative; the same door for people, workers, timers and schedules.

A command may be refused (`Rejected`), answered "already so", or decided. `by` is the caller: a principal's id
(`user:local` where a server knows no callers). Ids of new things reach the engine as arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from uuid import UUID

import msgspec

from hai_flow.definition.plan import Plan
from hai_flow.engine.events import (
    Allowance,
    Awaited,
    ChildAsked,
    ChildSaid,
    ChildShared,
    ChildStepped,
    Error,
    Event,
    Heir,
    Inherited,
    ModelUse,
    Origin,
    Parent,
    Pin,
    RuleUse,
    UserMessage,
)
from hai_flow.engine.state.state import PendingState
from hai_flow.values import Json


class Principal(msgspec.Struct, frozen=True):
    """The caller: an id (`user:ann`), with the roles (`controller`) and groups (`finance`) that it has now.

    `on_behalf_of` names the principal whose vote this one casts as a delegate, `lent_roles` and `lent_groups` are those
    of that principal; None: the caller's own count for both. `aliases` are further ids of the same person, and
    `lent_aliases` those of the other one: whatever is compared with an id is compared with all of them. `through` are
    the people by whom the vote came to the delegate, besides the one it is cast for: who is away between the two, and
    who entered the absences; and the people of an agent. Behind them stand, as selectors, their roles and
    groups, and those of all keys of the principal itself. None of them may be excluded. `issuer` acts behind the
    credential, and has one vote with all in `through`: an agent, by a key of its own or a token; a person, by a token
    of their key for another person; or (`key:ID`) an API key that alone vouches for the id, without being made for
    that: then no role, group or name asks the principal."""

    id: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    on_behalf_of: str | None = None
    lent_roles: tuple[str, ...] | None = None
    lent_groups: tuple[str, ...] | None = None
    aliases: tuple[str, ...] = ()
    lent_aliases: tuple[str, ...] = ()
    issuer: str | None = None
    through: tuple[str, ...] = ()


LOCAL_PRINCIPAL = Principal("user:local")


class Turn(msgspec.Struct, frozen=True):
    """The turn that a dialect's POST would open, as it describes it."""

    wire_run_id: str | None = None
    dialect: str | None = None
    profile: Json = None
    client_tools: tuple[str, ...] = ()
    body_sha: str | None = None


class Command(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The root of all commands."""


class Start(Command, frozen=True):
    """`input` is as the caller gave it (defaults are filled in by the engine). `instigators`, `pins`, `parent`,
    `timeout` and `origin` as in the event `run_started`; the pins are found by the caller of the engine. `state` is the
    state as a client posted it, `kept` that of the thread's last run: both count as far as the workflow lets them
    (`shared`).

    `key` is the concurrency key that the run needs (`concurrency_slots.key_of`), None if its workflow has none or if a
    run above it holds the key already. `queued`: no slot of it is free, or others wait before it, so the run waits for
    its admission; `cancels`: and by its coming the oldest are stopped. `allowance` is what the run above has reserved.
    `trace` as in the event; two starts that differ in it alone are the same."""

    run_id: UUID
    thread_id: str
    requester: str
    input: Json
    instigators: tuple[str, ...] = ()
    state: dict[str, Json] = {}
    kept: dict[str, Json] = {}
    message: str = ""
    messages: tuple[UserMessage, ...] = ()
    trigger: str = "api"
    scheduled_at: int | None = None  # of a schedule's run: the instant, in milliseconds
    dev: bool = False
    turn: Turn = Turn()
    pins: dict[str, Pin] = {}
    parent: Parent | None = None
    origin: Origin | None = None
    timeout: int | None = None
    key: str | None = None
    queued: bool = False
    cancels: bool = False
    allowance: Allowance | None = None
    trace: str | None = None


class Admit(Command, frozen=True):
    """A queued run has got a slot of its concurrency key."""


class StepSucceeded(Command, frozen=True):
    """`output` is plain JSON (checked where it entered). `ended_at`: when the attempt ended (ms since 1970), if its
    outcome took a while to get here. `used`: the answers of models that it took. `parts`: the files in its
    model's answer, as content parts. `notes` as in `events.StepFinished`."""

    path: str
    attempt: int
    output: Json
    ended_at: int | None = None
    used: tuple[ModelUse, ...] = ()
    parts: tuple[Json, ...] = ()
    notes: tuple[str, ...] = ()


class StepFailed(Command, frozen=True):
    """`retriable` None: as the code says. `retry_after` is in milliseconds. `ended_at` as in `StepSucceeded`. `trace`:
    where in its code the tool failed, for operators; kept beside the error, which workflows and frontends may show."""

    path: str
    attempt: int
    code: str
    message: str
    retriable: bool | None = None
    data: Json = None
    retry_after: int | None = None
    ended_at: int | None = None
    trace: str | None = None
    used: tuple[ModelUse, ...] = ()


class StepAsks(Command, frozen=True):
    """The attempt ends with a question of its tool to a person: `message` and `form` (a JSON Schema of an object) are
    the tool's words. The next attempt has the answer, with `state` and `keys` as they are."""

    path: str
    attempt: int
    message: str
    form: Json
    state: str | None = None
    keys: tuple[str, ...] = ()
    used: tuple[ModelUse, ...] = ()


class GateChecked(Command, frozen=True):
    """What the attempt has found out about the gate in front of its effect, which has not begun: the `values` that
    `still` reads, the digest of the code or the description of its tool (`source`), the `description` itself and the
    `title` that the tool's server gives, and why the condition can't be told (`fault`). `why` is as in
    `events.AskedAnew`; None: nothing has changed, or people were not asked yet. The attempt ends with it, unless a
    child run is to begin."""

    path: str
    attempt: int
    values: dict[str, Json] = {}
    source: str | None = None
    description: str | None = None
    title: str | None = None
    fault: str = ""
    why: Literal["still", "unknown", "source", "description"] | None = None


class StepLost(Command, frozen=True):
    """The process that performed the attempt is gone, or its answer was lost; how far it came is unknown.

    `reason` is a sentence on that; None: the process is gone. `held`: nothing of the attempt has happened, because a
    freeze holds it, or (`reason`) because the run is paused, or it waited for so long that too little of its time is
    left."""

    path: str
    attempt: int
    reason: str | None = None
    held: bool = False


class PendingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One person's answer to one pending.

    A frontend's ToolMessage fills `content` (its text, uninterpreted) or `error`; REST fills `result`, or `decision`
    with `reason`, `values` and `edits`, or `values` alone. Which of them fits depends on the pending's kind. `digest`,
    if given, must be the pending's. `superseded`: it stands in the client's history beside a newer answer to the same
    question, and if it doesn't fit the question it is an attempt that was refused."""

    id: str
    content: str | None = None
    result: Json | msgspec.UnsetType = msgspec.UNSET
    error: str | None = None
    decision: str | None = None
    reason: str | None = None
    values: Json | msgspec.UnsetType = msgspec.UNSET
    edits: Json | msgspec.UnsetType = msgspec.UNSET
    digest: str | None = None
    superseded: bool = False


class Answer(Command, frozen=True):
    """All answers of one POST: all accepted, or the command is refused and lists the obstacles to each. `state` is
    the state as the client posted it; the part that it may write is taken over."""

    answers: tuple[PendingAnswer, ...]
    by: Principal
    via: str = "rest"
    messages: tuple[UserMessage, ...] = ()
    turn: Turn = Turn()
    state: dict[str, Json] = {}


class ApplyRule(Command, frozen=True):
    """A standing rule votes on the gate `id`, whose content has this `digest`: with the votes of `voters`, who have
    approved it; or alone, where it says `never`. `people`: all ids of those who proposed and approved it."""

    id: str
    digest: str
    rule: RuleUse
    voters: tuple[Principal, ...] = ()
    people: tuple[str, ...] = ()
    reason: str = ""


class PickPeople(Command, frozen=True):
    """Let `people` decide the question `id`, of those whom it asks; nobody: all of them, and `note` says why.
    `stages_left` and `before`: how many stages were to come, and who was picked, when they were chosen."""

    id: str
    stages_left: int
    before: tuple[str, ...] | None
    people: tuple[str, ...]
    note: str = ""


class Edits(msgspec.Struct, frozen=True, kw_only=True):
    """The changes with which a fork begins: another `input`, other variables in `state`. `was`: the plan of the other
    run, where the fork goes on with another version of the workflow; `paths` and `dev` as in `Migrate`, `pins` are
    those of its children."""

    input: Json | msgspec.UnsetType = msgspec.UNSET
    state: Json | msgspec.UnsetType = msgspec.UNSET
    was: Plan | None = None
    paths: Mapping[str, str] = {}
    dev: bool = False
    pins: Mapping[str, Pin] = {}


class Fork(Command, frozen=True):
    """A run begins as another one was behind one of its events: `events` are those of the run `of` up to there.
    `following` is the event of the same commit that came next in that run; None: there the commit ended.

    `answer` decides some of its questions, under the ids that they have in that run; the fork's requester gives it.
    `undone` are the steps that the other run has undone since. `edits` are changes to the input and the state.
    `rejected`: the questions of that run, and of those that are forks of each other with it, that were answered with no
    since, by their paths. `acted`: the steps behind that moment that have begun to change the world, in that run or, on
    an approval which the two share, in a relative. `below`: the steps that wait for a run in which what it is given
    decides whether people are asked, or whom; None: any of them may. `key` is the concurrency key that the run needs,
    as in `Start`. `behind`: the people for whom the fork's requester acts, who are instigators of it, too."""

    run_id: UUID
    of: UUID
    events: tuple[Event, ...]
    answer: Answer
    undone: tuple[str, ...] = ()
    key: str | None = None
    following: Event | None = None
    edits: Edits | None = None
    rejected: tuple[tuple[str, PendingState], ...] = ()
    acted: tuple[str, ...] = ()
    below: tuple[str, ...] | None = None
    behind: tuple[str, ...] = ()


class Passed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A signal that the run was offered and did not take. `place` and `own` as in `Signal`."""

    id: str
    place: int
    own: bool


class Offered(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How far a run has been offered the stored signals of a type: all that is for everybody up to the place `to_all`,
    all that is for the run alone up to the place `own`. Each of them it had taken then, or it is among `passed`, or
    among those that the run knows as left."""

    to_all: int = 0
    own: int = 0
    passed: tuple[Passed, ...] = ()


class Signal(Command, frozen=True):
    """An event from outside is offered to the run. `name` is its type, `sent_at` when it was stored (ms since 1970).

    `by` is the person that sent it, if one did, and those for whom it was sent, with spaces between. `place` numbers
    the stored signals of a type in the order in which they became visible, those for everybody and those for one run
    (`own`) each for themselves; 0: unknown. `offered` is how far others had been offered before it."""

    id: str
    name: str
    data: Json = None
    sent_at: int = 0
    place: int = 0
    own: bool = False
    by: str | None = None
    offered: Offered | None = None


class ChildMoved(Command, frozen=True):
    """The child run of attempt `attempt` of the step `path` has begun to wait for something, or works again. `used` and
    `tool_calls` as in the event. `senders`: the people who sent the events that it, or a run below it, has taken."""

    path: str
    attempt: int
    working: bool
    used: tuple[ModelUse, ...] = ()
    tool_calls: int = 0
    senders: tuple[str, ...] = ()


class ShownCall(msgspec.Struct, frozen=True):
    """A call of a frontend's tool that a child only shows, or lets grow, as it is: `args` is the JSON text of its
    arguments, as far as it has come. `predicted`: the state that frontends may take from them."""

    id: str
    name: str
    path: str
    args: str = ""
    open: bool = True
    result: str = ""
    error: str | None = None
    predicted: Json = None


class ChildTold(Command, frozen=True):
    """Questions and words of the child run of attempt `attempt` of the step `path`, or of one below, with their own
    paths.

    `working` as in `ChildMoved`, None: as before. `turn`: the turn that the POST which led to it would open in the
    outermost run; `state` is the state that came with it. `streamed` are the messages that have grown over several
    commits, before the others, `growing` those that have grown and do so yet, `calls` the calls of frontends' tools
    that the child shows. No decision reads streamed text, so the texts are missing: delivery puts them in, as far as
    they have come. `used`, `tool_calls` and `senders` as in `ChildMoved`."""

    path: str
    attempt: int
    told: tuple[ChildAsked | ChildSaid | ChildStepped | ChildShared, ...] = ()
    streamed: tuple[ChildSaid, ...] = ()
    growing: tuple[ChildSaid, ...] = ()
    calls: tuple[ShownCall, ...] = ()
    working: bool | None = None
    turn: Turn | None = None
    state: dict[str, Json] = {}
    used: tuple[ModelUse, ...] = ()
    tool_calls: int = 0
    senders: tuple[str, ...] = ()


class ChildEnded(Command, frozen=True):
    """The child run of attempt `attempt` of the step `path` has ended as `status` says (finished, failed, stopped).
    `told` are the steps that ended with it, with its own paths, and the state that it has shown at last. `used`: the
    tokens and the money that it took, by model; `tool_calls`: how many it has made; both since it was born. `senders`:
    the people who sent events that it, or a run below it, has taken. `run_id`: the child, None where a release before
    has sent this."""

    path: str
    attempt: int
    status: str
    output: Json = None
    error: Error | None = None
    reason: str = ""
    told: tuple[ChildStepped | ChildShared, ...] = ()
    used: tuple[ModelUse, ...] = ()
    tool_calls: int = 0
    senders: tuple[str, ...] = ()
    run_id: str | None = None


class TimerFired(Command, frozen=True):
    """Some timer of the run is due. Which ones, the state knows. `receipts`: what has come so far of the answers that a
    `timeout` cuts off, by the paths of their steps."""

    receipts: Mapping[str, Json] = {}


class Continue(Command, frozen=True):
    """The decision before reached its bound with more to do."""


class NeedAttention(Command, frozen=True):
    """The database refused to store a commit of the run: an operator must look at it."""

    reason: str


class Pause(Command, frozen=True):
    by: str
    reason: str = ""


class Resume(Command, frozen=True):
    by: str


class Stop(Command, frozen=True):
    """`inherited` and `heir` as in the event `run_stopping`."""

    by: str
    reason: str = ""
    inherited: Inherited | None = None
    heir: Heir | None = None


class TakeBack(Command, frozen=True):
    """The run `heir`, for which this one was stopped, will not begin. `seized`: this run has ended, and has its slots
    back from the heir."""

    heir: str
    seized: bool = False


class Terminate(Command, frozen=True):
    by: str
    reason: str = ""


class Retry(Command, frozen=True):
    """`who` is the caller with their roles, None: `by`, who has none. `again`: the command is made again out of a log,
    in which it was allowed. `acted`: the steps that have begun to change the world in runs that are forks of each other
    with this one, on an approval that they have in common with it."""

    by: str
    who: Principal | None = None
    again: bool = False
    acted: tuple[str, ...] = ()


class RetryChild(Command, frozen=True):
    """The run above was retried, and waits for this child of it again, as `awaited` says: the child goes on where it
    ended."""

    by: str
    awaited: Awaited


class Skip(Command, frozen=True):
    """The flow goes on behind the step at `path` (or of that id), which does nothing (more): `output` takes the place
    of its output. `who`, `again` and `acted` as in `Retry`. `asks_below`: the runs that the step would wait for may ask
    people. `below` as in `Fork`."""

    by: str
    path: str
    output: Json = None
    reason: str = ""
    who: Principal | None = None
    again: bool = False
    asks_below: bool = True
    acted: tuple[str, ...] = ()
    below: tuple[str, ...] | None = None


class Jump(Command, frozen=True):
    """Let `ms` milliseconds (more than 0) pass at once for all clocks of the run, to try out the consequences."""

    by: str
    ms: int


class Migrate(Command, frozen=True):
    """Go on with another version, `to`, of the same workflow. `paths`: ids or paths of steps, old -> new, where they
    are called otherwise there. `pins`: the workflows of its children, of which those are kept that the run has. `who`
    as in `Retry`."""

    to: Plan
    by: str
    paths: Mapping[str, str] = {}
    dev: bool = False
    pins: Mapping[str, Pin] = {}
    who: Principal | None = None


def caller(command: Retry | Skip | Migrate) -> Principal:
    """The person that asks for the command, with the roles and groups that are known of them."""
    return Principal(command.by) if command.who is None else command.who
