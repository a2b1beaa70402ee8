"""The plan: a workflow compiled to a frozen tree of steps with stable paths.

A plan knows nothing of any run. It is immutable by its sha256, so a cache never has to forget it.
`paths` has the grammar of paths. A loop's body `rollout[]` is a step itself, of the verb Iteration; so is
`deploy/~undo`, the `undo` of `deploy`. No author writes these two, and they have no id that an expression could name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from hai_flow.definition.paths import UNDO, function_of_key, with_keys
from hai_flow.definition.tools.effect_classes import Effect, effect_of_method
from hai_flow.foreign import BigIntegers
from hai_flow.values import Json


class Hole(NamedTuple):
    """A hole of a template: where it stands in the value, and the `paths` into the data that it reads. `is_whole`:
    it renders to the value at its one path, unchanged."""

    place: tuple[str | int, ...]
    paths: tuple[tuple[str | int, ...], ...]
    is_whole: bool = False


class Expression(Protocol):
    """A bare CEL expression (`if when match`). Built by definition/expressions/expressions."""

    @property
    def source(self) -> str: ...
    @property
    def roots(self) -> frozenset[str]: ...  # names it uses: "input", "state", "run", "thread", "now", "error"
    @property
    def steps(self) -> frozenset[str]: ...  # ids X it uses as steps.X
    @property
    def paths(self) -> tuple[tuple[str | int, ...], ...]: ...  # that it reads

    def evaluate(self, scope: Mapping[str, Json]) -> Json:
        """The JSON value. Raises ExpressionError(code, message) with an `expression.*` code."""
        ...


class Template(Protocol):
    """A YAML value with holes at any depth. A literal is a template without names. `written` is the value itself."""

    @property
    def written(self) -> Json: ...
    @property
    def roots(self) -> frozenset[str]: ...
    @property
    def steps(self) -> frozenset[str]: ...
    @property
    def holes(self) -> tuple[Hole, ...]: ...

    def render(self, scope: Mapping[str, Json]) -> Json:
        """The JSON value with every hole filled. Raises ExpressionError. Never scans a result again."""
        ...


class Schema(Protocol):
    """A JSON Schema 2020-12, compiled, with remote and file references denied."""

    @property
    def raw(self) -> Json: ...

    def findings(self, value: Json) -> list[dict[str, Any]]:
        """Every fault as `{"path": JSON Pointer, "message": text, "code", "params"}`; empty = valid."""
        ...

    def fit(self, value: Json) -> tuple[Json, list[dict[str, Any]]]:
        """`value` with integers where the schema wants them and it has their digits as text, and its findings."""
        ...

    def with_defaults(self, value: Json) -> Json:
        """A copy of `value` in which absent properties have their schema's `default`."""
        ...


def list_fields(part: Any) -> tuple[str, ...] | None:
    """The names of the fields of a part of a plan; None where it is no record."""
    if isinstance(part, msgspec.Struct):
        return part.__struct_fields__
    return tuple(each.name for each in dataclasses.fields(part)) if dataclasses.is_dataclass(part) else None


class Verb(msgspec.Struct, frozen=True):
    """A node of the plan: the work of one step. The compiler makes it of a verb (verbs/), the engine does it."""


Duration: TypeAlias = int | Template
"""Milliseconds, or a template that gives a duration as text (rendered where it is needed, then recorded)."""


MAX_DELAY_MS: Final = 300_000  # of `retry`, where nothing else is written


class Retry(msgspec.Struct, frozen=True):
    """`max` = retries after the first attempt. `errors` None = "as the error says"."""

    max: int
    errors: tuple[str, ...] | None = None
    backoff: Literal["fixed", "exponential"] = "fixed"
    every: Duration = 1_000
    max_delay: Duration = MAX_DELAY_MS
    jitter: bool = True


class CatchClause(msgspec.Struct, frozen=True):
    """`errors` holds patterns (a code, `prefix.*`, `*`); empty = everything except `approval.*` and `limit.*`."""

    errors: tuple[str, ...]
    first: str  # path of the clause's first step


class PythonTool(msgspec.Struct, frozen=True):
    name: str  # as declared under `tools`
    target: str  # "pkg.mod", "pkg.mod:fn", or "" for one registered by decorator under its own name
    effect: Effect = "write"
    declared_effect: bool = False  # whether the document says `effect`
    timeout: Duration | None = None
    big_integers: BigIntegers = "text"
    title: str | None = None


class McpServer(msgspec.Struct, frozen=True):
    """How a server of the Model Context Protocol is reached: exactly one of `use`, `url` and `command` is there.

    `use` names one of the deployment's. The templates name nothing but secrets: a server is the same for every run."""

    use: str | None = None
    url: str | None = None
    command: tuple[str, ...] = ()
    auth: Template | None = None
    headers: Template | None = None
    env: Template | None = None
    oauth: Template | None = None


class McpTool(msgspec.Struct, frozen=True):
    """The functions of a server of the Model Context Protocol. `allow` None: everything it offers."""

    name: str
    server: McpServer
    allow: tuple[str, ...] | None = None
    effect: Effect | None = None  # None: as the hints of a trusted server say, else write
    timeout: Duration | None = None
    big_integers: BigIntegers = "text"


class A2ATool(msgspec.Struct, frozen=True):
    """An agent of others that speaks A2A, called by the tool's name alone. Its card is found below `url`.
    `description`: the author's own, for models."""

    name: str
    url: str
    description: str = ""
    effect: Effect = "write"
    auth: Template | None = None
    headers: Template | None = None
    timeout: Duration | None = None


BodyKind: TypeAlias = Literal["body", "form", "multipart", "text"]
BodyField: TypeAlias = Literal["file", "deepObject"]


class Placed(msgspec.Struct, frozen=True):
    """Where in a request an argument goes, and how a list or a mapping is written there (as OpenAPI has it)."""

    name: str
    place: Literal["path", "query", "header"]
    style: Literal["simple", "form", "spaceDelimited", "pipeDelimited", "deepObject"]
    explode: bool


class DescribedCallback(msgspec.Struct, frozen=True):
    """The one callback that an operation has. `place`: the argument that holds its address, like `body.url`; "" where
    the document does not say it. `schema`: of its body; None: anything."""

    place: str
    schema: Schema | None


class Operation(msgspec.Struct, frozen=True):
    """An operation of a described service. `parameters` is the schema of its arguments, of which `body` is the body,
    sent as `body_kind` says; `result` is the schema of its answer, None where it is not known. `fields`: those of a
    form that are files, or written with brackets."""

    id: str
    method: str
    path: str
    description: str
    parameters: Schema
    placed: tuple[Placed, ...] = ()
    body_kind: BodyKind | None = None
    body_type: str | None = None
    result: Mapping[str, Json] | None = None
    callback: DescribedCallback | None = None
    summary: str = ""
    fields: Mapping[str, BodyField] = msgspec.field(default_factory=dict)

    @property
    def effect(self) -> Effect:
        return effect_of_method(self.method)


class Service(Protocol):
    """The operations that a service's document describes (definition/tools/openapi)."""

    @property
    def ids(self) -> Sequence[str]: ...
    @property
    def server(self) -> str | None: ...

    def find(self, id: str) -> Operation:
        """Raises KeyError if there is none of that id, ValueError with the reason if it can't be called."""
        ...


@dataclass(frozen=True, slots=True)
class HttpTool:
    """A described HTTP service. `settings` is the `http` value as written; `service` is its OpenAPI document, parsed,
    which is part of the workflow; None: it names none, or it can't be read. `base_url` is the address of the
    service."""

    name: str
    settings: Json
    effect: Effect | None = None  # None: as the method of the operation says
    allow: tuple[str, ...] | None = None
    service: Service | None = field(default=None, compare=False)
    base_url: str | None = None
    auth: Template | None = None
    headers: Template | None = None
    timeout: Duration | None = None
    big_integers: BigIntegers = "text"


class FrontendTool(msgspec.Struct, frozen=True):
    """A tool of the client. Not `answered`: its call is shown, and the run does not wait for an answer.

    `predict`: (state variable, argument) pairs: while a call streams, a client may take the argument for the variable.
    `effect` None: it concerns the client's user alone, and nothing holds it or asks before it."""

    name: str
    description: str
    parameters: Schema | None
    result: Schema | None
    deadline: Duration
    answered: bool = True
    predict: tuple[tuple[str, str], ...] = ()
    effect: Effect | None = None

    @property
    def writes(self) -> bool:
        """Whether the document says that it changes something beyond the client."""
        return self.effect not in (None, "read")


class AgentTool(msgspec.Struct, frozen=True):
    """An agent that another one may give a task to. `settings` are its keys, as written."""

    name: str
    description: str
    settings: Mapping[str, Json]
    effect: Literal["read"] = "read"  # its own calls ask, where they write
    timeout: Duration | None = None  # it has none: that of the agent around holds for all


Tool: TypeAlias = PythonTool | McpTool | HttpTool | A2ATool | FrontendTool | AgentTool


class Model(msgspec.Struct, frozen=True):
    """One of `models`: `use` names one of the deployment's, else `provider` and `model` are there.

    `key` is the name of a secret. `params` go to the model as they are, `quirks` are those that differ from the
    provider's (docs/language.md#models). `total` and `idle` are in milliseconds: of a whole answer, and of silence
    within it. `price` is by kind of token, in US dollars for a million. `fallback`: other names of `models`."""

    name: str
    provider: str = ""
    model: str = ""
    use: str | None = None
    api: Literal["chat", "responses"] | None = None
    base_url: str | None = None
    key: str | None = None
    params: Mapping[str, Json] = msgspec.field(default_factory=dict)
    quirks: Mapping[str, Json] = msgspec.field(default_factory=dict)
    context: int | None = None
    total: int | None = None
    idle: int | None = None
    price: Mapping[str, float] | None = None
    fallback: tuple[str, ...] = ()


# --- people -------------------------------------------------------------------------------------------------------

Quorum: TypeAlias = int | Literal["all"] | Mapping[str, int]
"""The people that are needed: a number of distinct ones, everyone in `from`, or seats by selector (and `any`: people in
all)."""


RESPOND: Final = "respond"
"""The option that is neither yes nor no: the call of an agent is not performed, and its model is told what the person
says."""


class Escalate(msgspec.Struct, frozen=True):
    """One stage of `on_deadline`. A field that is None changes nothing; the clock starts anew."""

    deadline: Duration
    from_: Template | None = None
    exclude: Template | None = None
    quorum: Quorum | Template | None = None
    notify: tuple[Template, ...] | None = None
    remind: tuple[Duration, ...] | None = None


class Expiry(msgspec.Struct, frozen=True):
    """The outcome of the last deadline. `reject` may have a reason (text), `default` has the value."""

    outcome: Literal["reject", "fail", "approve", "default"]
    reason: Template | None = None
    value: Template | None = None


class Policy(msgspec.Struct, frozen=True):
    """The people who may decide, how their votes add up, and how long it takes (docs/language.md#people).

    `from_` and `exclude` render to lists of selectors, once, at opening; `exclude` None = the requester, unless `from`
    has `requester` or `anyone` and `names_requester`: the author's own words have one of them, and not data alone.
    `form` renders to a JSON Schema (holes in it are filled at opening); None = no form.
    `edit` True = every argument may be edited. `escalations` come one after the other, then
    `expiry`. `reasons`: the options whose answer must say why. `veto` renders to the selectors of those whose rejection
    alone decides; `confirm`: a page asks once more before it sends an answer. `withdraw_when`: the event, or the
    condition over the state, that takes the question back. `rules`: whether a standing rule may approve; None: unless
    the effect is irreversible. `pick`: so many of those who are asked decide; None: all of them."""

    from_: Template
    deadline: Duration
    expiry: Expiry
    exclude: Template | None = None
    names_requester: bool = False
    quorum: Quorum | Template = 1
    reject_when: Literal["any", "unreachable"] | int = "any"
    options: tuple[str, ...] = ("approve", "reject")
    edit: bool | tuple[str, ...] = False
    form: Template | None = None
    combine: Mapping[str, str] = msgspec.field(default_factory=dict)
    reasons: frozenset[str] = frozenset()
    veto: Template | None = None
    confirm: bool = False
    withdraw_when: Expression | Subscription | None = None
    rules: bool | None = None
    pick: int | None = None
    notify: tuple[Template, ...] = ()
    remind: tuple[Duration, ...] = ()
    escalations: tuple[Escalate, ...] = ()
    pause_clock: Literal["run", "stop"] = "run"


class Ask(Verb, frozen=True):
    """A form for one person: the first answer decides. `policy.form` is there."""

    title: Template
    message: Template | None
    policy: Policy


class Approve(Verb, frozen=True):
    title: Template
    message: Template | None
    evidence: Template | None
    policy: Policy


class Still(msgspec.Struct, frozen=True):
    """The condition under which an approval still counts when its effect begins. `call`: a tool that changes nothing,
    whose result the condition reads as `response`."""

    condition: Expression
    call: Call | None = None


class Approval(msgspec.Struct, frozen=True):
    """A gate in front of an effect, bound to its rendered arguments (`args` in these expressions)."""

    policy: Policy
    when: Expression | None = None
    title: Template | None = None
    message: Template | None = None
    still: Still | None = None


# --- verbs --------------------------------------------------------------------------------------------------------


class _Nothing(msgspec.Struct, frozen=True):
    """A template without arguments."""

    written: Json = None
    roots: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()
    holes: tuple[Hole, ...] = ()

    def render(self, scope: Mapping[str, Json]) -> Json:
        return {}


NOTHING: Template = _Nothing()


THE_CALL = "~call"
"""The root by which the step of an agent's call reads the arguments that the model has written. Authors can't write
it."""


class CallArguments(msgspec.Struct, frozen=True):
    """The template of the arguments of an agent's call, or of the one that is `named`: as its model wrote them."""

    named: str = ""
    written: Json = None
    roots: frozenset[str] = frozenset({THE_CALL})
    steps: frozenset[str] = frozenset()
    holes: tuple[Hole, ...] = (Hole((), ((THE_CALL, "args"),), is_whole=True),)

    def render(self, scope: Mapping[str, Json]) -> Json:
        args = scope[THE_CALL]["args"]
        return args[self.named] if self.named else args


class _CallEffect(CallArguments, frozen=True):
    """The template of the class of effect of an agent's call, as the answer of its model has recorded it."""

    holes: tuple[Hole, ...] = (Hole((), ((THE_CALL, "effect"),), is_whole=True),)

    def render(self, scope: Mapping[str, Json]) -> Json:
        return scope[THE_CALL]["effect"]


CALL_EFFECT: Template = _CallEffect()


class CallWrites:
    """The expression that asks whether an agent's call is of a class that asks people (`tools/effect_classes`)."""

    source = "the tool writes"
    roots = frozenset({THE_CALL})
    steps: frozenset[str] = frozenset()
    paths = ((THE_CALL, "writes"),)

    def evaluate(self, scope: Mapping[str, Json]) -> Json:
        return scope[THE_CALL]["writes"]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallWrites)

    def __hash__(self) -> int:
        return hash(CallWrites)


class Growing(msgspec.Struct, frozen=True):
    """A call of a frontend's tool that is only shown, while its one `argument` grows."""

    tool: FrontendTool
    argument: str


class Callback(msgspec.Struct, frozen=True):
    """The callback that a request waits for after its answer: one more request, by the service, to an address that was
    sent along. `schema` is that of the callback's body; None: any body is taken."""

    deadline: Duration
    schema: Schema | None = None


class Call(Verb, frozen=True):
    """`call: tool.fn` + `with`. `function` is "" where the declaration names it (`pkg.mod:fn`) or has none.

    `into`: the texts that the tool yields are no message but the argument of that call."""

    tool: Tool
    function: str
    arguments: Template  # renders to an object
    stream: bool = False  # `stream: text`: yielded strings become message chunks
    into: Growing | None = None
    callback: Callback | None = None  # of an operation; `arguments` may name its address


class StreamedBody(msgspec.Struct, frozen=True):
    """A body that becomes text of a message while it comes. `piece` renders to the text of an event of a stream; None:
    its data. `idle`: for how many milliseconds nothing may come."""

    piece: Template | None = None
    idle: int = 60_000


class Http(Verb, frozen=True):
    """`arguments` renders to `{method, url, query?, headers?, auth?, body? | form? | text? | multipart?}`; headers and
    auth may name secrets, and all but the address the callback's address (`secret_names`). `next` renders to the
    address of the next page."""

    arguments: Template
    expect: Expression | None = None  # None: any 2xx
    next: Template | None = None
    pages: int = 1
    callback: Callback | None = None
    stream: StreamedBody | None = None
    big_integers: BigIntegers = "text"


class Llm(Verb, frozen=True):
    """`arguments` renders to `{model, system?, prompt? | messages?}`. `models`: the one that is named, then those that
    are asked where it does not answer."""

    model: str
    arguments: Template
    output: Schema | None = None
    stream: Literal["text", "none"] = "text"
    models: tuple[Model, ...] = ()


Memory: TypeAlias = Literal["thread", "run", "none"]
"""The earlier messages that an agent's model gets: those of the thread, those of the run, or none."""


class Agent(Verb, frozen=True):
    """A model that uses tools until it is done: a loop with an iteration for each answer of the model.

    `arguments` are as those of `Llm`, `tools` are `tool`, `tool.fn` or `tool.*`. `iteration` is the path of the body
    (`research[]`): an `AgentTurn`, then its `AgentCalls`. `stop_when` is asked behind the calls of an answer;
    with `output` one more answer follows where it is true, which makes no calls."""

    model: str
    arguments: Template
    tools: tuple[str, ...]
    iteration: str
    output: Schema | None = None
    max_turns: int = 25
    stream: Literal["text", "steps", "none"] = "text"
    stop_when: Expression | None = None
    memory: Memory = "thread"
    hands_over: tuple[str, ...] = ()  # those of its tools that are agents which answer in its place

    def at(self, keys: tuple[str, ...]) -> Agent:
        return msgspec.structs.replace(self, iteration=with_keys(self.iteration, keys))


class AgentTurn(Verb, frozen=True):
    """One answer of an agent's model. `models` as of `Llm`. `tools`: the entries of the agent's `tools` with the tools
    that they name. `output` is the schema of the agent's output; `stream` says which part of the answer is shown: its
    text and calls, its calls alone (`steps`), or neither."""

    model: str
    models: tuple[Model, ...]
    tools: tuple[tuple[str, Tool], ...]
    output: Schema | None = None
    stream: Literal["text", "steps", "none"] = "text"
    memory: Memory = "thread"

    @property
    def arguments(self) -> Template:
        """Empty: the question belongs to the agent, and the conversation is put together from the log."""
        return NOTHING


class AgentCalls(Verb, frozen=True):
    """The calls of one answer, all at once: a loop with an iteration for each (`research[]/call[]`)."""

    iteration: str

    def at(self, keys: tuple[str, ...]) -> AgentCalls:
        return msgspec.structs.replace(self, iteration=with_keys(self.iteration, keys))


class Run(Verb, frozen=True):
    """A child run. `version` None = the latest when the parent's run starts, pinned then. `detach`: it is started, and
    this run goes on."""

    workflow: str
    version: int | None
    arguments: Template  # the child's input
    detach: bool = False


class Say(Verb, frozen=True):
    """One message. Kinds "text" and "thinking" render to text (thinking also to an object), "fold" and "output" to one.

    For `fold` the content renders to `{title, fold, position}`, for `output` to `{type, data|content}`."""

    kind: Literal["text", "thinking", "fold", "output"]
    content: Template
    block_id: Template | None = None
    layout: Template | None = None
    style: Template | None = None


class Emit(Verb, frozen=True):
    """`content` renders to `{name, value?}` (custom), `{event, source?}` (raw), `{from, to, task}` (collaboration)."""

    kind: Literal["custom", "raw", "collaboration"]
    content: Template


class Set(Verb, frozen=True):
    """`assign`: state name or JSON Pointer -> template; or `ops`: an RFC 6902 list (rendered as a whole)."""

    assign: tuple[tuple[str, Template], ...] = ()
    ops: Template | None = None


class Let(Verb, frozen=True):
    """`values` renders to a map of names, which steps behind it read by these names."""

    values: Template


class Switch(Verb, frozen=True):
    """Cases in order; `when` None = the default. `first` is the path of the case's first step, "" where it has none.
    `results` are the values of the cases; empty where no case has one."""

    cases: tuple[tuple[Expression | None, str], ...]
    results: tuple[Template | None, ...] = ()

    def at(self, keys: tuple[str, ...]) -> Switch:
        """The verb inside of the iterations with these keys: its paths have the keys in their brackets. Every block has
        this method."""
        return msgspec.structs.replace(self, cases=tuple((when, with_keys(first, keys)) for when, first in self.cases))


class Parallel(Verb, frozen=True):
    """Branch name -> path of its first step, in written order. `join`: how many have to finish; `any` is the first."""

    branches: tuple[tuple[str, str], ...]
    join: Literal["all", "any"] | int = "all"
    results: Mapping[str, Template] = msgspec.field(default_factory=dict)  # the values of branches

    @property
    def wanted(self) -> int | None:
        """The number of branches that have to finish for the block to end; None: all of them."""
        return {"all": None, "any": 1}[self.join] if isinstance(self.join, str) else self.join

    def at(self, keys: tuple[str, ...]) -> Parallel:
        return msgspec.structs.replace(
            self, branches=tuple((name, with_keys(first, keys)) for name, first in self.branches)
        )


class Try(Verb, frozen=True):
    first: str

    def at(self, keys: tuple[str, ...]) -> Try:
        return msgspec.structs.replace(self, first=with_keys(self.first, keys))


class ForEach(Verb, frozen=True):
    """`iteration` is the path of the body's step (`rollout[]`). `key` None: the item, if it is a string or an integer,
    else its position."""

    items: Template
    iteration: str
    as_: str = "item"
    key: Template | None = None
    max_parallel: int = 1
    on_failure: Literal["stop", "isolate"] = "stop"
    rollback: Literal["item", "all", "none"] = "item"

    def at(self, keys: tuple[str, ...]) -> ForEach:
        return msgspec.structs.replace(self, iteration=with_keys(self.iteration, keys))


class Repeat(Verb, frozen=True):
    """At most one of `while_` (asked before an iteration) and `until` (asked behind it)."""

    max: int
    iteration: str
    while_: Expression | None = None
    until: Expression | None = None

    def at(self, keys: tuple[str, ...]) -> Repeat:
        return msgspec.structs.replace(self, iteration=with_keys(self.iteration, keys))


class Iteration(Verb, frozen=True):
    """The body of a loop. `output` is that of a `for_each`, evaluated at the end of each iteration in its scope."""

    first: str
    output: Template | None = None

    def at(self, keys: tuple[str, ...]) -> Iteration:
        return msgspec.structs.replace(self, first=with_keys(self.first, keys))


class AnyCall(Iteration, frozen=True):
    """The body of `AgentCalls`. `uses` has, by name of a function or by `tool.*`, the step that performs calls of that
    function. At the key of a call it is the `Iteration` with that step."""

    uses: tuple[tuple[str, str], ...] = ()

    def at(self, keys: tuple[str, ...]) -> Iteration:
        name, uses = function_of_key(keys[-1]), dict(self.uses)
        path = uses.get(name) or uses[f"{name.partition('.')[0]}.*"]
        return Iteration(with_keys(path, keys))


class Wait(Verb, frozen=True):
    """Exactly one: a duration or an instant (RFC 3339 text)."""

    for_: Duration | None = None
    until: Template | None = None


class Subscription(msgspec.Struct, frozen=True):
    """Signals of one type. `match` sees `event`; None takes every one."""

    event: str
    match: Expression | None = None


class WaitFor(Verb, frozen=True):
    """`mode` one: the only subscription; any: the first of them to be met; all: each of them, in any order.

    `expiry` is `fail` or `default`."""

    mode: Literal["one", "any", "all"]
    subscriptions: tuple[Subscription, ...]
    deadline: Duration
    expiry: Expiry
    pause_clock: Literal["run", "stop"] = "run"


class Return(Verb, frozen=True):
    value: Template


class Break(Verb, frozen=True):
    """Ends the loop around. `iteration` is the path of the loop's body (`rollout[]`)."""

    iteration: str


class Continue(Verb, frozen=True):
    """Ends the iteration around, whose body is at the path `iteration`."""

    iteration: str


class Fail(Verb, frozen=True):
    message: Template
    code: str = "fail"
    data: Template | None = None


def callback_of(verb: Verb) -> Callback | None:
    """The callback that an effect waits for after the answer to its request; None: it waits for none."""
    return verb.callback if isinstance(verb, Http | Call) else None


EFFECTS: tuple[type, ...] = (Call, Http, Llm, AgentTurn, Run)
BLOCKS: tuple[type, ...] = (Switch, Parallel, Try, ForEach, Repeat, Agent, AgentCalls, Iteration)
ANY_FUNCTION = "*"
"""The function of a `Call` that an agent makes by `tool.*`: which one it is says the key of the call."""


@cache
def _word_of(verb: type[Verb]) -> str:
    """`for_each` of ForEach."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", verb.__name__).lower()


VerbOfKind = TypeVar("VerbOfKind", bound=Verb)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the tree.

    `next` is the path of the following step of the same list (None = the list ends here); `parent` the path of the
    step whose list this is ("" = the document), `body` names which of the parent's lists: a branch name, a case
    number, "~reject" (or another option), "~catch/0", "~finally", "~undo", "[]" (an iteration of a loop), or "" (the
    one list of a try, of an iteration, of the document). `handlers` are the lists of `on_decision` by option."""

    path: str
    id: str
    verb: Verb
    next: str | None = None
    parent: str = ""
    body: str = ""
    title: Template | None = None
    condition: Expression | None = None
    retry: Retry | None = None
    timeout: Duration | None = None  # of working time: each attempt of an effect, or all of a block
    idempotency_key: Template | None = None  # None: run.id/path
    # `asked`: tried again as its `retry` says, but where its outcome is lost a person decides; no document writes it
    delivery: Literal["at_least_once", "at_most_once", "asked", "resumed"] = "at_least_once"
    approval: Approval | None = None
    handlers: Mapping[str, str] = {}  # option -> path of the handler's first step
    undo: str | None = None  # path of the step that undoes this one
    catch: tuple[CatchClause, ...] = ()
    finally_: str | None = None  # path of its first step
    expose: bool = False
    line: int = 0
    of_agent: bool = False  # an answer of an agent's model, its calls, or one of them
    is_bare: bool = False  # derived: a call that has nothing but its arguments, of a tool that a server performs

    def __post_init__(self) -> None:
        verb = self.verb
        is_bare = (
            isinstance(verb, Call)
            and not isinstance(verb.tool, FrontendTool)
            and (verb.into, verb.callback, self.approval, self.idempotency_key) == (None, None, None, None)
            and self.body != UNDO
            and not self.expose
        )
        msgspec.structs.force_setattr(self, "is_bare", is_bare)

    def verb_as(self, kind: type[VerbOfKind]) -> VerbOfKind:
        """The verb, which is of this kind."""
        assert isinstance(self.verb, kind)
        return self.verb

    @property
    def verb_name(self) -> str:
        """The verb's word in the language: "call", "say", ... ("iteration" for the body of a loop)."""
        return _word_of(type(self.verb))

    @property
    def is_iteration(self) -> bool:
        """Whether it is the body of a loop: an instance stands for each of the loop's iterations."""
        return isinstance(self.verb, Iteration)

    @property
    def is_written(self) -> bool:
        """Whether an author wrote this step: not the body of a loop, not an `undo`, nothing inside of an agent, not the
        one that takes the failure of a step with `continue_on_error`."""
        return not (isinstance(self.verb, Iteration) or self.body == UNDO or self.of_agent or self.is_filler)

    @property
    def is_filler(self) -> bool:
        """Whether it only stands where the language has no step: a `let` without names, which no author can write."""
        return isinstance(self.verb, Let) and self.verb.values.written == {}


def find_reading_step(step: Step) -> Step | None:
    """The call that says whether the step's approval still counts, as a step in its place; None: no tool does."""
    still = None if step.approval is None else step.approval.still
    if still is None or still.call is None:
        return None
    return msgspec.structs.replace(step, verb=still.call, approval=None, delivery="at_least_once", expose=False)


# --- the document -------------------------------------------------------------------------------------------------


class StateVariable(msgspec.Struct, frozen=True):
    """One name of the top-level `state`. `default` is its value at the start of a run (None where not given).

    `client`: clients that post for the thread may write it. `kept`: a run begins with the value that the run before it
    in its thread had. `shown`: of a child run, it is in the state of its thread."""

    name: str
    schema: Schema
    default: Json = None
    reduce: Literal["append", "merge", "max", "min", "add"] | None = None
    client: bool = False
    kept: bool = False
    shown: bool = False


class Limits(msgspec.Struct, frozen=True):
    """The limits of one run. None = no limit. `duration` is in milliseconds of wall-clock time since the start."""

    tokens: int | None = None
    cost_usd: float | None = None
    tool_calls: int | None = None
    duration: int | None = None
    steps: int | None = None


class Concurrency(msgspec.Struct, frozen=True):
    """At most `limit` runs of one rendered `key` at once, of this workflow name."""

    key: Template
    limit: int = 1
    on_conflict: Literal["queue", "reject", "cancel_running"] = "queue"


class ApiTrigger(msgspec.Struct, frozen=True):
    """Runs may be started by request. `needs_tasks`: over MCP by clients with tasks alone."""

    needs_tasks: bool = False


class EventTrigger(msgspec.Struct, frozen=True):
    """A run for each event of the type. `input` None = the event's data; the templates see `event`."""

    type: str
    match: Expression | None = None
    dedupe: Template | None = None
    input: Template | None = None


class ScheduleTrigger(msgspec.Struct, frozen=True):
    """A run at each instant of a cron expression (5 fields) in an IANA timezone. `input` is what the document says;
    where that has holes, `template` renders it from `event.at`, the instant."""

    cron: str
    timezone: str
    missed: Literal["skip", "once", "all"] = "skip"
    overlap: Literal["queue", "queue_one", "skip", "cancel_running"] = "skip"
    input: Json = None  # None = {}
    template: Template | None = None


class RunTrigger(msgspec.Struct, frozen=True):
    """A run for each end of a run of `workflow` with one of these statuses. `input` None = {}; `event` is the end."""

    workflow: str
    on: tuple[str, ...] = ("finished",)
    match: Expression | None = None
    input: Template | None = None


class WebhookTrigger(msgspec.Struct, frozen=True):
    """A run for each request to a path that proves to know a secret. `secret` is its name, `header` where the proof is
    ("" = where the scheme has it). `input` None = the body; the templates see `event`, with `headers`."""

    path: str
    secret: str
    scheme: Literal["github", "stripe", "standard", "token"] = "github"
    header: str = ""
    match: Expression | None = None
    dedupe: Template | None = None
    input: Template | None = None


Trigger: TypeAlias = ApiTrigger | EventTrigger | ScheduleTrigger | RunTrigger | WebhookTrigger
TRIGGER_KINDS: Mapping[type, str] = {
    ApiTrigger: "api", EventTrigger: "event", ScheduleTrigger: "schedule", RunTrigger: "run", WebhookTrigger: "webhook",
}  # fmt: skip


DEFAULT_QUEUE: Final = "default"


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled workflow. `sha256` is that of the document's bytes; `source` is those bytes. `from_disk`: `dev` or
    `run` read it from a file of the machine that performs it, which may name more than one that came over the
    network."""

    name: str
    version: int
    sha256: bytes
    source: bytes
    title: str
    description: str
    input: Schema
    state: Mapping[str, StateVariable]
    state_schema: Schema  # object of all variables; `set` is validated against it as a whole
    tools: Mapping[str, Tool]
    steps: Mapping[str, Step]  # by path, in document order
    ids: Mapping[str, str]  # author's id -> path
    first: str
    output: Template | None
    catch: tuple[CatchClause, ...] = ()  # around everything
    finally_: str | None = None
    models: Mapping[str, Model] = field(default_factory=dict)
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # role -> user:/group: selectors
    visibility: tuple[str, ...] = ()  # selectors of its runs' readers, members for own roles; () = no one else
    triggers: tuple[Trigger, ...] = (ApiTrigger(),)
    limits: Limits = Limits()  # noqa: RUF009 - it is frozen
    concurrency: Concurrency | None = None
    queue: str = DEFAULT_QUEUE  # in which its runs wait for a worker
    on_message: Literal["reject", "enqueue", "interrupt"] = "reject"  # that comes while a run of it is active
    default_retry: Retry | None = None
    default_notify: tuple[Template, ...] = ()
    lets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # name -> the `let` steps that give it
    summary: Template | None = None  # the line that lists of runs show
    calendar: str = "default"  # of its working days: a name of the deployment's, or a timezone
    chat: bool = True  # whether its questions may stand in chats
    tools_without_chat: tuple[str, ...] = ()  # those of whose calls no question stands there
    warnings: tuple[Any, ...] = field(default=(), compare=False)
    from_disk: bool = field(default=False, compare=False)
    resolved: dict[str, Step] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The latest steps that `resolve_step` has made of those in loops, by their paths in runs."""
