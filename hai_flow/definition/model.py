"""The shape of a document (docs/language.md): which keys a mapping has, and of which type each is.

Every mapping of the language is a flat pydantic model here; what is nested is read by the compiler, mapping by mapping,
so that an error always knows its key. `Reader.fields` turns errors into findings with a place and gives back the fields
that were right: one mistake is one finding, and the rest of the document is still checked.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from hai_flow.definition.document import FINDINGS_MAX, Document, Path, kind_of, suggestion
from hai_flow.definition.names import PATH_CHARS_MAX, NameKind, name_fault
from hai_flow.errors import Finding

Json: TypeAlias = Any


def _named(kind: NameKind) -> AfterValidator:
    def validate(name: str) -> str:
        fault = name_fault(name, kind)
        if fault:
            raise ValueError(fault)
        return name

    return AfterValidator(validate)


Identifier: TypeAlias = Annotated[str, _named("identifier")]
WorkflowName: TypeAlias = Annotated[str, _named("workflow")]


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", populate_by_name=False)


class DocumentShape(_Shape):
    hai: Literal["flow/v1"]
    name: WorkflowName
    version: int = Field(ge=1)
    title: str = ""
    description: str = ""
    use: list[str] = Field(default_factory=list, min_length=1, max_length=16)
    input: dict[str, Any] = Field(default_factory=dict)
    state: dict[str, Any] = Field(default_factory=dict)
    models: dict[str, Any] = Field(default_factory=dict)
    tools: dict[str, Any] = Field(default_factory=dict)
    roles: dict[str, Any] = Field(default_factory=dict)
    triggers: list[Any] = Field(default_factory=list, min_length=1)
    defaults: dict[str, Any] = Field(default_factory=dict)
    limits: dict[str, Any] = Field(default_factory=dict)
    concurrency: dict[str, Any] = Field(default_factory=dict)
    steps: list[Any] = Field(min_length=1)
    catch: list[Any] = Field(default_factory=list, min_length=1)
    finally_: list[Any] = Field(default_factory=list, alias="finally", min_length=1)
    output: Any = None


class SharedShape(_Shape):
    """A file that workflows use."""

    hai: Literal["shared/v1"]
    description: str = ""
    models: dict[str, Any] = Field(default_factory=dict)
    tools: dict[str, Any] = Field(default_factory=dict)
    roles: dict[str, Any] = Field(default_factory=dict)


class DefaultsShape(_Shape):
    retry: dict[str, Any] = Field(default_factory=dict)
    timeout: str = ""
    deadline: str = ""
    model: str = ""
    notify: list[str] = Field(default_factory=list)


class LimitsShape(_Shape):
    tokens: int = Field(default=1, ge=1)
    cost_usd: float = Field(default=1, gt=0)
    tool_calls: int = Field(default=1, ge=1)
    duration: str = ""
    steps: int = Field(default=1, ge=1)


class ConcurrencyShape(_Shape):
    key: str
    limit: int = Field(default=1, ge=1)
    on_conflict: Literal["queue", "reject", "cancel_running"] = "queue"


class EventTriggerShape(_Shape):
    type: str = Field(min_length=1)
    match: str | bool = ""
    dedupe: str = ""
    input: Any = None


class RunTriggerShape(_Shape):
    workflow: WorkflowName
    on: list[Literal["finished", "failed", "stopped"]] = Field(default_factory=list, min_length=1)
    match: str | bool = ""
    input: Any = None


class WebhookTriggerShape(_Shape):
    path: str = Field(min_length=1, max_length=PATH_CHARS_MAX)
    secret: str
    scheme: Literal["github", "stripe", "standard", "token"] = "github"
    header: str = ""
    match: str | bool = ""
    dedupe: str = ""
    input: Any = None


class ScheduleTriggerShape(_Shape):
    cron: str
    timezone: str
    missed: Literal["skip", "once", "all"] = "skip"
    overlap: Literal["queue", "skip", "cancel_running"] = "skip"
    input: Any = None


class RetryShape(_Shape):
    max: int = Field(ge=0, le=100)
    errors: list[str] = Field(default_factory=list, min_length=1)
    backoff: Literal["fixed", "exponential"] = "fixed"
    every: str = ""
    max_delay: str = ""
    jitter: bool = True


class CatchShape(_Shape):
    errors: list[str] = Field(default_factory=list, min_length=1)
    steps: list[Any] = Field(min_length=1)


class StateExtras(_Shape):
    """What a state variable has beyond its schema."""

    reduce: Literal["append", "merge", "max"] | None = None
    client: bool = False
    keep: Literal["run", "thread"] = "run"


class ModelShape(_Shape):
    provider: str = Field(min_length=1)
    model: str = Field(min_length=1)
    base_url: str = ""
    api_key: str = ""
    temperature: float = Field(default=0, ge=0)
    max_tokens: int = Field(default=1, ge=1)


class _ToolShape(_Shape):
    effect: Literal["read", "write"] = "write"
    timeout: str = ""


class PythonToolShape(_ToolShape):
    python: str


class McpToolShape(_ToolShape):
    mcp: str = Field(min_length=1)
    allow: list[str] = Field(default_factory=list, min_length=1)
    auth: Any = None
    headers: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, Any] = Field(default_factory=dict)


class HttpToolShape(_ToolShape):
    http: Any
    allow: list[str] = Field(default_factory=list, min_length=1)
    auth: Any = None
    headers: dict[str, Any] = Field(default_factory=dict)


class FrontendToolShape(_Shape):
    frontend: dict[str, Any]
    effect: Literal["read", "write"] = "write"


class FrontendShape(_Shape):
    description: str
    parameters: dict[str, Any]
    result: dict[str, Any] = Field(default_factory=dict)
    answer: Literal["required", "none"] = "required"
    predict: dict[str, str] = Field(default_factory=dict, min_length=1)
    deadline: str = ""


# -- steps: the common keys by kind of step, then one shape for each verb ------------------------------------------


class _StepShape(_Shape):
    id: Identifier = ""
    title: str = ""
    if_: str | bool = Field(default="", alias="if")


class _CatchingShape(_StepShape):
    catch: list[Any] = Field(default_factory=list, min_length=1)
    finally_: list[Any] = Field(default_factory=list, alias="finally", min_length=1)


class _DecidedShape(_Shape):
    """Steps that people decide about: approvals and gates."""

    on_decision: dict[str, Any] = Field(default_factory=dict, min_length=1)
    on_reject: list[Any] = Field(default_factory=list, min_length=1)


class _EffectShape(_CatchingShape):
    retry: dict[str, Any] = Field(default_factory=dict)
    timeout: str = ""
    expose: bool = False
    undo: dict[str, Any] = Field(default_factory=dict)


class _GatedShape(_EffectShape, _DecidedShape):
    approval: dict[str, Any] = Field(default_factory=dict)


class _BlockShape(_CatchingShape):
    timeout: str = ""


class CallShape(_GatedShape):
    call: str
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
    stream: Literal["text", "none"] | dict[str, Any] = "none"
    idempotency_key: str = ""
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"


class HttpShape(_GatedShape):
    http: dict[str, Any]
    idempotency_key: str = ""
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"


class RunShape(_GatedShape):
    run: str
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
    detach: bool = False


class LlmShape(_EffectShape):
    llm: dict[str, Any]


class AgentShape(_EffectShape):
    agent: dict[str, Any]


class SayShape(_CatchingShape):
    say: str | dict[str, Any]


class EmitShape(_CatchingShape):
    emit: dict[str, Any]


class AskShape(_CatchingShape):
    ask: dict[str, Any]


class ApproveShape(_CatchingShape, _DecidedShape):
    approve: dict[str, Any]


class SetShape(_CatchingShape):
    set: dict[str, Any] | list[Any]


class SwitchShape(_BlockShape):
    switch: list[Any] = Field(min_length=1)


class ParallelShape(_BlockShape):
    parallel: dict[str, Any] = Field(min_length=2, max_length=64)
    join: Any = "all"


class TryShape(_BlockShape):
    try_: list[Any] = Field(alias="try", min_length=1)


class ForEachShape(_BlockShape):
    for_each: dict[str, Any]


class RepeatShape(_BlockShape):
    repeat: dict[str, Any]


class WaitShape(_CatchingShape):
    wait: dict[str, Any]


class WaitForShape(_CatchingShape):
    wait_for: dict[str, Any]


class ReturnShape(_StepShape):
    return_: Any = Field(alias="return")


class BreakShape(_StepShape):
    break_: Literal[True] = Field(alias="break")


class ContinueShape(_StepShape):
    continue_: Literal[True] = Field(alias="continue")


class FailShape(_StepShape):
    fail: str | dict[str, Any]


class UndoShape(_Shape):
    """`undo`: exactly one of the first three."""

    call: str = ""
    http: dict[str, Any] = Field(default_factory=dict)
    run: str = ""
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
    retry: dict[str, Any] = Field(default_factory=dict)
    timeout: str = ""
    idempotency_key: str = ""


class StreamShape(_Shape):
    """`stream` of `call` as a mapping."""

    to: str
    argument: str


# -- parameters of verbs -------------------------------------------------------------------------------------------


class HttpParametersShape(_Shape):
    """`http`: exactly one of the methods, at most one of `body`, `form`, `text`."""

    get: str = ""
    post: str = ""
    put: str = ""
    patch: str = ""
    delete: str = ""
    head: str = ""
    query: Any = None
    headers: Any = None
    auth: Any = None
    body: Any = None
    form: Any = None
    text: Any = None
    expect: str | bool = ""


class LlmParametersShape(_Shape):
    model: str = ""
    system: str = ""
    prompt: str = ""
    messages: Any = None
    output: dict[str, Any] = Field(default_factory=dict)
    stream: Literal["text", "none"] = "text"


class AgentParametersShape(_Shape):
    model: str = ""
    system: str = ""
    prompt: str = ""
    messages: Any = None
    tools: list[str]
    output: dict[str, Any] = Field(default_factory=dict)
    max_turns: int = Field(default=25, ge=1, le=1000)
    approvals: dict[str, Any] = Field(default_factory=dict)
    stream: Literal["text", "steps", "none"] = "text"


class MessageShape(_Shape):
    """`say` as a mapping: exactly one of the first four."""

    text: str = ""
    thinking: str | dict[str, Any] = ""
    fold: dict[str, Any] = Field(default_factory=dict)
    output: dict[str, Any] = Field(default_factory=dict)
    block_id: str = ""
    layout: dict[str, Any] = Field(default_factory=dict)
    style: Any = None


class FoldShape(_Shape):
    title: str
    fold: Any = None
    position: str = ""


class EmitParametersShape(_Shape):
    """`emit`: exactly one."""

    custom: dict[str, Any] = Field(default_factory=dict)
    raw: dict[str, Any] = Field(default_factory=dict)
    collaboration: dict[str, Any] = Field(default_factory=dict)


class CustomShape(_Shape):
    name: str = Field(min_length=1)
    value: Any = None


class RawShape(_Shape):
    event: Any
    source: str = ""


class CollaborationShape(_Shape):
    from_: str = Field(alias="from")
    to: str
    task: dict[str, Any]


class TaskShape(_Shape):
    id: str
    name: str


class _PersonShape(_Shape):
    """What approvals, gates and forms have in common."""

    from_: Any = Field(default=None, alias="from")
    notify: list[str] = Field(default_factory=list)
    remind: list[str] = Field(default_factory=list)
    deadline: str = ""
    on_deadline: Any = None
    pause_clock: Literal["run", "stop"] = "run"


class AskParametersShape(_PersonShape):
    title: str
    message: str = ""
    form: dict[str, Any]


class _ApprovalShape(_PersonShape):
    message: str = ""
    from_: Any = Field(alias="from")
    exclude: Any = None
    quorum: Any = None
    reject_when: Any = None
    options: list[str] = Field(default_factory=list)
    form: dict[str, Any] = Field(default_factory=dict)
    combine: dict[str, Any] = Field(default_factory=dict)
    reasons: dict[str, Any] = Field(default_factory=dict)


class ApproveParametersShape(_ApprovalShape):
    title: str
    evidence: Any = None


class ApprovalShape(_ApprovalShape):
    """The gate in front of an effect."""

    title: str = ""
    when: str | bool = ""
    edit: bool | list[str] = False


class EscalateShape(_Shape):
    deadline: str
    from_: Any = Field(default=None, alias="from")
    exclude: Any = None
    quorum: Any = None
    notify: list[str] = Field(default_factory=list)
    remind: list[str] = Field(default_factory=list)


class RejectShape(_Shape):
    reason: str = ""


class EmptyShape(_Shape):
    pass


class CaseShape(_Shape):
    when: str | bool
    steps: list[Any] = Field(min_length=1)


class DefaultCaseShape(_Shape):
    default: Literal[True]
    steps: list[Any] = Field(min_length=1)


class ForEachParametersShape(_Shape):
    items: Any
    as_: Identifier = Field(default="item", alias="as")
    key: str = ""
    max_parallel: int = Field(default=1, ge=1, le=256)
    steps: list[Any] = Field(min_length=1)
    output: Any = None
    on_failure: Literal["stop", "isolate"] = "stop"
    rollback: Literal["item", "all", "none"] = "item"


class RepeatParametersShape(_Shape):
    max: int = Field(ge=1, le=10_000)
    while_: str | bool = Field(default="", alias="while")
    until: str | bool = ""
    steps: list[Any] = Field(min_length=1)


class WaitParametersShape(_Shape):
    for_: str = Field(default="", alias="for")
    until: str = ""


class SubscriptionShape(_Shape):
    event: str = Field(min_length=1)
    match: str | bool = ""


class WaitForParametersShape(_Shape):
    event: str = Field(default="", min_length=1)
    match: str | bool = ""
    any: list[Any] = Field(default_factory=list, min_length=1)
    all: list[Any] = Field(default_factory=list, min_length=1)
    deadline: str = ""
    on_deadline: Any = None
    pause_clock: Literal["run", "stop"] = "run"


class FailParametersShape(_Shape):
    message: str
    code: str = "fail"
    data: Any = None


class OperationShape(_Shape):
    """One RFC 6902 operation of a `set` in list form."""

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    path: str
    from_: str = Field(default="", alias="from")
    value: Any = None


STEP_SHAPES: Final[dict[str, type[_StepShape]]] = {
    "call": CallShape,
    "http": HttpShape,
    "llm": LlmShape,
    "agent": AgentShape,
    "run": RunShape,
    "say": SayShape,
    "emit": EmitShape,
    "ask": AskShape,
    "approve": ApproveShape,
    "set": SetShape,
    "switch": SwitchShape,
    "parallel": ParallelShape,
    "try": TryShape,
    "for_each": ForEachShape,
    "repeat": RepeatShape,
    "wait": WaitShape,
    "wait_for": WaitForShape,
    "break": BreakShape,
    "continue": ContinueShape,
    "return": ReturnShape,
    "fail": FailShape,
}
VERBS: Final = frozenset(STEP_SHAPES)
EFFECTS: Final = frozenset(("call", "http", "llm", "agent", "run"))


@cache
def keys_of(shape: type[BaseModel]) -> tuple[str, ...]:
    """The keys of a mapping of this shape, as they are written."""
    return tuple(field.alias or name for name, field in shape.model_fields.items())


STEP_KEYS: Final = VERBS.union(*map(keys_of, STEP_SHAPES.values()))


# What a line that YAML could not read may have been the cause of.
_CONSEQUENCES: Final = frozenset(("shape.missing_key", "step.no_verb", "step.type"))


class TooMany(Exception):
    """So much is wrong that reading on would only cost time."""


class Reader:
    """Reads mappings of a document by their shapes and gathers findings.

    `stored`: the document was published, maybe before a rule was made. What such a rule refuses (`refuse`) is then a
    doubt: what people run goes on.
    """

    def __init__(self, document: Document, *, stored: bool = False) -> None:
        self.document = document
        self.stored = stored
        self.findings: list[Finding] = list(document.findings)
        self._left = {"error": FINDINGS_MAX, "warning": FINDINGS_MAX}
        self._wrong = {(finding.line, finding.column): finding.code for finding in document.findings}

    def error(self, path: Path, code: str, message: str, *, key: bool = False) -> None:
        """An error at the value at `path`, or at its key."""
        self._add("error", self.document.position(path, key=key), code, message)

    def warning(self, path: Path, code: str, message: str, *, key: bool = False) -> None:
        """A doubt at the value at `path`, or at its key."""
        self._add("warning", self.document.position(path, key=key), code, message)

    def refuse(self, path: Path, code: str, message: str, *, key: bool = False) -> None:
        """An error by a rule that stored documents may have been published without."""
        self._add("warning" if self.stored else "error", self.document.position(path, key=key), code, message)

    def refuse_inside(self, path: Path, offset: int, code: str, message: str) -> None:
        """As `refuse`, at the character `offset` of the text at `path`."""
        self._add("warning" if self.stored else "error", self.document.locate(path, offset), code, message)

    def error_inside(self, path: Path, offset: int, code: str, message: str) -> None:
        """An error at the character `offset` of the text at `path`."""
        self._add("error", self.document.locate(path, offset), code, message)

    def warning_inside(self, path: Path, offset: int, code: str, message: str) -> None:
        """A doubt at the character `offset` of the text at `path`."""
        self._add("warning", self.document.locate(path, offset), code, message)

    def _add(self, severity: Literal["error", "warning"], place: tuple[int, int], code: str, message: str) -> None:
        """Raises `TooMany` behind the last error worth telling; warnings beyond the limit are dropped.

        Where something is wrong already, nothing else is said: it would be a consequence.
        """
        if self._wrong.setdefault(place, code) != code:
            return
        if self.document.broken and (place[0] in self.document.broken or code in _CONSEQUENCES):
            return
        if severity == "warning":
            del self._wrong[place]
        self._left[severity] -= 1
        if self._left[severity] >= 0:
            self.findings.append(Finding(self.document.file, *place, severity, code, message))
        elif severity == "error":
            raise TooMany

    def fields(self, shape: type[_Shape], value: Json, path: Path, where: str) -> dict[str, Json]:
        """The fields of `value` that are right, by their written keys; everything wrong has become a finding.

        `where` names the mapping in messages ("a `say` step", "`retry`").
        """
        if not isinstance(value, dict):
            self.error(path, "shape.type", f"expected a mapping for {where}, found {kind_of(value)}")
            return {}
        try:
            shape.__pydantic_validator__.validate_python(value)
        except ValidationError as error:
            details = error.errors(include_url=False)
            wrong = {str(detail["loc"][0]) for detail in details}
            self._explain(details, shape, value, path, where)
            return {key: item for key, item in value.items() if key not in wrong}
        return dict(value)

    def _explain(
        self, details: list[ErrorDetails], shape: type[_Shape], value: Mapping[str, Json], path: Path, where: str
    ) -> None:
        known = keys_of(shape)
        told: set[str] = {"when", "steps"} if "else" in value and "when" in known else set()
        missing = [str(detail["loc"][0]) for detail in details if detail["type"] == "missing"]
        for detail in details:  # a key that is misspelt is not missing as well
            if detail["type"] == "extra_forbidden" and (meant := _meant(str(detail["loc"][0]), known)) in missing:
                told.add(meant)
        for detail in details:
            key = str(detail["loc"][0])
            if key in told:  # a union reports once for every member
                continue
            told.add(key)
            if detail["type"] == "extra_forbidden":
                self.error((*path, key), "shape.unknown_key", _unknown_key(key, known, where), key=True)
            elif detail["type"] == "missing":
                message = f"`{key}` is missing in {where}; add {_example(shape, key)}"
                self.error(path, "shape.missing_key", message, key=bool(path))
            else:
                inner = tuple(part for part in detail["loc"][1:] if isinstance(part, int))
                at = (*path, key, *inner)
                found = value[key][inner[0]] if inner and isinstance(value[key], list) else value[key]
                self.error(at, "shape.value", _wrong_value(key, detail, found))


def _unknown_key(key: str, known: Sequence[str], where: str) -> str:
    if key in STEP_KEYS and where.endswith("step"):
        remedy = _MISPLACED.get(key) or f"its keys are {', '.join(known)}"
        return f"`{key}` does not apply to {where}; {remedy}"
    if key == "else" and "switch" in where:
        return "unknown key `else` in a case of `switch`; the last case is `- default: true` with its `steps`"
    if key == "env" and "tool" in where:
        return "a Python tool has no `env`: it reads os.environ itself; only an `mcp` command takes one"
    meant = _meant(key, known)
    if meant:
        return f"unknown key `{key}` in {where}; did you mean `{meant}`?"
    hint = _ADVICE.get(key) or f"the keys are {', '.join(known)}"
    return f"unknown key `{key}` in {where}; {hint}"


# What stands in another place than where it was written.
_MISPLACED: Final = {
    "timeout": "people have a `deadline`, inside of `ask` or `approve`; waits have one inside of `wait_for`",
    "retry": "only effects (call, http, llm, agent, run) are tried again; put it on the steps inside",
    "approval": "it stands on call, http and run; for any other decision write an `approve` step before",
    "with": "it holds the arguments of `call` and `run`; the keys of this verb stand under it",
    "on_reject": "it stands beside `approve` or `approval`",
    "input": "a child run takes its input as `with`",
}

# What other languages call it.
_SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "inputs": ("input", "with"), "input": ("with",), "signal": ("event",),
    "outputs": ("output",), "variables": ("state",), "vars": ("state",),
    "on": ("triggers",), "args": ("with",), "arguments": ("with",), "params": ("with",), "parameters": ("with",),
    "payload": ("with", "body"),
    "name": ("id",), "label": ("title",), "when": ("if",), "condition": ("if",), "if": ("when",), "unless": ("if",),
    "on_error": ("catch",), "on_failure": ("catch",), "except": ("catch",), "always": ("finally",),
    "compensate": ("undo",), "rollback": ("undo",), "attempts": ("max",), "max_attempts": ("max",),
    "times": ("max",), "max_iterations": ("max",), "delay": ("every",), "interval": ("every",), "in": ("items",),
    "over": ("items",), "list": ("items",), "do": ("steps",), "body": ("steps",), "then": ("steps",),
    "concurrency": ("max_parallel",), "parallelism": ("max_parallel",), "approvers": ("from",), "to": ("from",),
    "assignee": ("from",), "users": ("from",), "timeout": ("deadline",), "on_timeout": ("on_deadline",),
    "schema": ("form", "output"), "fields": ("form",), "json": ("body",), "url": ("get",), "params_query": ("query",),
    "system_prompt": ("system",), "type": ("event",), "expression": ("cron",), "tz": ("timezone",),
    "choices": ("options",), "deadline": ("timeout",),
    "endpoint": ("get",), "allowed_tools": ("tools",), "key": ("idempotency_key",), "code": ("errors",),
}  # fmt: skip
_ADVICE: Final = {
    "tests": "tests stand in a file of their own, NAME.test.yaml",
    "secrets": "name a secret where it is used, as ${{ secrets.NAME }}",
    "env": "name a secret where it is used, as ${{ secrets.NAME }}; other values are `input`",
    "depends_on": "steps run in the order in which they are written; use `parallel` for branches",
    "needs": "steps run in the order in which they are written; use `parallel` for branches",
    "next": "steps run in the order in which they are written; use `if` or `switch`",
    "goto": "there is no goto; use `if`, `repeat` or `return`",
}


def _meant(key: str, known: Sequence[str]) -> str:
    """The known key that was meant by an unknown one; "" where nobody can tell."""
    synonym = next((word for word in _SYNONYMS.get(key, ()) if word in known), None)
    if synonym is not None:
        return synonym
    near = [] if key in _ADVICE else difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    return near[0] if near else ""


# How a key is written, for whoever left it out or wrote something of another kind.
_EXAMPLES: Final = {
    "version": "`version: 1`", "steps": "`steps:` and below it a list such as `- say: hello`",
    "max": "`max: 3`", "from": "`from: role:manager`", "form": "`form: {properties: {name: {type: string}}}`",
    "items": "`items: ${{ input.list }}`", "key": "`key: ${{ input.id }}`", "timezone": "`timezone: Europe/Berlin`",
    "cron": "`cron: 0 6 * * 1-5`", "deadline": "`deadline: 1d`",
    "retry": "`retry: {max: 3}`", "wait": "`wait: {for: 10m}`", "approval": "`approval: {from: role:manager}`",
    "with": "`with: {name: value}`", "set": "`set: {name: value}`", "switch": "`- when: ...` and `steps:` below it",
    "parallel": "`parallel: {one: [...], other: [...]}`", "try": "a list such as `- say: hello`",
    "catch": "`- steps: [...]`", "finally": "a list such as `- say: hello`", "undo": "`undo: {call: tool.function}`",
    "for_each": "`for_each: {items: ..., steps: [...]}`", "repeat": "`repeat: {max: 3, steps: [...]}`",
    "approve": "`approve: {title: ..., from: ...}`", "ask": "`ask: {title: ..., form: ...}`",
    "http": "`http: {get: https://...}`", "llm": "`llm: {prompt: ...}`", "wait_for": "`wait_for: {event: TYPE}`",
    "tools": "`tools: {shop: {python: acme.shop}}`", "state": "`state: {count: {type: integer, default: 0}}`",
    "models": "`models: {smart: {provider: openai, model: ...}}`", "roles": "`roles: {sre: [user:ann]}`",
    "triggers": "`triggers: [{api: {}}]`", "agent": "`agent: {prompt: ..., tools: [tool.*]}`",
    "errors": "`errors: [tool.failed]`", "options": "`options: [approve, revise, reject]`",
    "on_decision": "`on_decision: {revise: [...]}`", "notify": "`notify: [email]`", "remind": "`remind: [1d]`",
    "defaults": "`defaults: {timeout: 1m}`", "limits": "`limits: {tokens: 100000}`",
    "emit": "`emit: {custom: {name: ...}}`",
    "concurrency": "`concurrency: {key: ...}`", "frontend": "`frontend: {description: ..., parameters: {...}}`",
    "input": "`input: {type: object, properties: {...}}`", "on_reject": "a list such as `- say: hello`",
}  # fmt: skip


def _example(shape: type[_Shape], key: str) -> str:
    """What to write where `key` is missing in `shape`."""
    if key == "hai":  # each kind of document has its own
        (kind,) = get_args(shape.model_fields[key].annotation)
        return f"`hai: {kind}`"
    return _EXAMPLES.get(key, f"`{key}`")


_EXPECTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
}


def _wrong_value(key: str, detail: ErrorDetails, found: Json) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "value_error":
            return str(context.get("error", detail["msg"]))
        case "literal_error":
            choices = re.findall(r"'([^']*)'", str(context["expected"]))
            hint = suggestion(found, choices) if isinstance(found, str) else ""
            return f"`{key}`: expected {context['expected']}, found {kind_of(found)}{hint}"
        case "too_short" | "too_long":
            least = context.get("min_length", context.get("max_length"))
            word = "at least" if detail["type"] == "too_short" else "at most"
            return f"`{key}`: expected {word} {least}, found {context['actual_length']}"
        case "greater_than":
            return f"`{key}`: expected more than {context['gt']:g}, found {found}"
        case "greater_than_equal" | "less_than_equal":
            bound = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
            return f"`{key}`: expected {bound}, found {found}"
        case kind if kind in _EXPECTED:
            return f"`{key}`: expected {_expected(key, detail)}, found {kind_of(found)}{_quote_hint(kind, key, found)}"
        case _:
            return f"`{key}`: {detail['msg']}"


def _expected(key: str, detail: ErrorDetails) -> str:
    union = {
        "say": "text or a mapping", "fail": "text or a mapping", "set": "a mapping or a list of operations",
        "thinking": "text or a mapping", "if": "an expression", "when": "an expression",
        "timeout": "a duration such as 90s", "deadline": "a duration such as 7d", "every": "a duration such as 1s",
        "max_delay": "a duration such as 5m", "duration": "a duration such as 1h", "for": "a duration such as 10m",
    }  # fmt: skip
    return union[key] if len(detail["loc"]) < 3 and key in union else _EXPECTED[detail["type"]]


_DURATIONS: Final = ("timeout", "deadline", "every", "max_delay", "duration", "for", "remind")


def _quote_hint(kind: str, key: str, found: Json) -> str:
    if kind in ("dict_type", "list_type") and key in _EXAMPLES:
        return f"; write {_EXAMPLES[key]}"
    if kind == "int_type" and isinstance(found, str) and found.isdigit():
        return f"; write it without quotes: {found}"
    if kind == "int_from_float" or (kind == "int_type" and isinstance(found, float)):
        return f"; write {round(found)}"
    if kind != "string_type" or isinstance(found, bool) or not isinstance(found, (int, float)):
        return ""
    return f"; give it a unit: `{found}s`" if key in _DURATIONS else "; quote it"
