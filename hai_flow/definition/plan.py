"""The plan: a workflow compiled to a frozen tree of steps with stable paths.

A plan knows nothing of any run. It is immutable by its sha256, so whoever caches it never has to forget it.
Paths follow LANGUAGE section 4: `checks/legal/ask` (branch), `route/1/reply` (case, from 0), handlers
`review/~reject/tell` and `review/~catch/0/tell` (clause, from 0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

Json: TypeAlias = Any


class Expression(Protocol):
    """A bare CEL expression (`if when match`). Built by definition/expressions."""

    @property
    def source(self) -> str: ...
    @property
    def roots(self) -> frozenset[str]: ...  # names it uses: "input", "state", "run", "thread", "now", "error"
    @property
    def steps(self) -> frozenset[str]: ...  # ids X it uses as steps.X

    def evaluate(self, scope: Mapping[str, Json]) -> Json:
        """The JSON value. Raises ExpressionError(code, message) with an `expression.*` code."""
        ...


class Template(Protocol):
    """A YAML value with holes at any depth. A literal is a template without names."""

    @property
    def roots(self) -> frozenset[str]: ...
    @property
    def steps(self) -> frozenset[str]: ...

    def render(self, scope: Mapping[str, Json]) -> Json:
        """The JSON value with every hole filled. Raises ExpressionError. Never scans a result again."""
        ...


class Schema(Protocol):
    """A JSON Schema 2020-12, compiled, with remote and file references denied."""

    @property
    def raw(self) -> Json: ...

    def findings(self, value: Json) -> list[dict[str, str]]:
        """Every fault as `{"path": JSON Pointer, "message": text}`; empty = valid."""
        ...

    def with_defaults(self, value: Json) -> Json:
        """A copy of `value` in which absent properties have their schema's `default`."""
        ...


@dataclass(frozen=True, slots=True)
class Retry:
    """`max` = retries after the first attempt. Delays are in milliseconds. `errors` None = "as the error says"."""

    max: int
    errors: tuple[str, ...] | None = None
    backoff: Literal["fixed", "exponential"] = "fixed"
    every: int = 1_000
    max_delay: int = 300_000
    jitter: bool = True


@dataclass(frozen=True, slots=True)
class CatchClause:
    """`errors` holds patterns (a code, `prefix.*`, `*`); empty = everything except `approval.*` and `limit.*`."""

    errors: tuple[str, ...]
    first: str  # path of the clause's first step


@dataclass(frozen=True, slots=True)
class PythonTool:
    name: str  # as declared under `tools`
    target: str  # "pkg.mod", "pkg.mod:fn", or "" for one registered by decorator under its own name
    effect: Literal["read", "write"] = "write"


@dataclass(frozen=True, slots=True)
class FrontendTool:
    name: str
    description: str
    parameters: Schema | None
    result: Schema | None
    deadline: int | None  # milliseconds


Tool: TypeAlias = PythonTool | FrontendTool


@dataclass(frozen=True, slots=True)
class Call:
    """`call: tool.fn` + `with`. `function` is "" where the declaration names it (`pkg.mod:fn`) or has none."""

    tool: Tool
    function: str
    arguments: Template  # renders to an object
    stream: bool = False  # `stream: text`: yielded strings become message chunks


@dataclass(frozen=True, slots=True)
class Say:
    """One message. Kinds "text" and "thinking" render to text (thinking also to an object), "fold" and "output" to one.

    For `fold` the content renders to `{title, fold, position}`, for `output` to `{type, data|content}`.
    """

    kind: Literal["text", "thinking", "fold", "output"]
    content: Template
    block_id: Template | None = None
    layout: Template | None = None
    style: Template | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may decide and how the votes add up. Parsed and stored; LANGUAGE section 7 has the meaning."""

    from_: Template  # renders to a list of selectors
    exclude: Template | None = None
    quorum: Any = 1


@dataclass(frozen=True, slots=True)
class Ask:
    title: Template
    message: Template | None
    form: Mapping[str, Json]  # JSON Schema, literal (holes in the form come with the rest of the language)
    form_schema: Schema
    policy: Policy
    deadline: int | None  # milliseconds
    on_deadline: Literal["fail"] = "fail"


@dataclass(frozen=True, slots=True)
class Approve:
    title: Template
    message: Template | None
    evidence: Template | None
    form: Mapping[str, Json] | None
    form_schema: Schema | None
    policy: Policy
    deadline: int | None
    options: tuple[str, ...] = ("approve", "reject")
    on_deadline: Literal["reject", "fail"] = "reject"


@dataclass(frozen=True, slots=True)
class Set:
    """`assign`: state name or JSON Pointer -> template; or `ops`: an RFC 6902 list (rendered as a whole)."""

    assign: tuple[tuple[str, Template], ...] = ()
    ops: Template | None = None


@dataclass(frozen=True, slots=True)
class Switch:
    """Cases in order; `when` None = the default. `first` is the path of the case's first step."""

    cases: tuple[tuple[Expression | None, str], ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    """Branch name -> path of its first step, in written order."""

    branches: tuple[tuple[str, str], ...]
    join: Literal["all", "any"] = "all"


@dataclass(frozen=True, slots=True)
class Wait:
    """Exactly one: a duration (milliseconds or a template giving a duration text) or an instant (RFC 3339 text)."""

    for_: int | Template | None = None
    until: Template | None = None


@dataclass(frozen=True, slots=True)
class Return:
    value: Template


@dataclass(frozen=True, slots=True)
class Fail:
    message: Template
    code: str = "fail"
    data: Template | None = None


Verb: TypeAlias = Call | Say | Ask | Approve | Set | Switch | Parallel | Wait | Return | Fail


@dataclass(frozen=True, slots=True)
class Step:
    """One node of the tree.

    `next` is the path of the following step of the same list (None = the list ends here); `parent` the path of the
    step whose list this is ("" = the document), `body` names which of the parent's lists: a branch name, a case
    number, "~reject", "~catch/0", or "" at the top. `timeout` is in milliseconds of working time.
    """

    path: str
    id: str
    verb: Verb
    next: str | None
    parent: str
    body: str
    title: Template | None = None
    condition: Expression | None = None
    retry: Retry | None = None
    timeout: int | None = None
    expose: bool = False
    catch: tuple[CatchClause, ...] = ()
    on_reject: str | None = None  # path of the handler's first step
    line: int = 0

    @property
    def verb_name(self) -> str:
        """The verb's word in the language: "call", "say", ..."""
        return type(self.verb).__name__.lower()


@dataclass(frozen=True, slots=True)
class StateVariable:
    """One name of the top-level `state`. `default` is its value at the start of a run (None where not given)."""

    name: str
    schema: Schema
    default: Json = None
    reduce: Literal["append", "merge", "max"] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled workflow. `sha256` is that of the document's bytes; `source` is those bytes."""

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
    steps: Mapping[str, Step]  # by path
    ids: Mapping[str, str]  # author's id -> path
    first: str
    output: Template | None
    catch: tuple[CatchClause, ...] = ()  # around everything
    default_retry: Retry | None = None
    warnings: tuple[Any, ...] = field(default=(), compare=False)
