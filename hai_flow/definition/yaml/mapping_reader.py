"""Mappings of a document, read by the table of keys: the sound keys, and a finding for every other one.

The compiler reads nested mappings one by one, so that an error always knows its key. One mistake is one
finding, and the rest of the document is still checked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Final, Literal

import msgspec
from pydantic_core import ErrorDetails, SchemaValidator, ValidationError
from pydantic_core import core_schema as core

from hai_flow.definition.names.durations import guess_duration
from hai_flow.definition.names.name_forms import NameKind, check_name
from hai_flow.definition.names.wording import as_yaml, describe_odd_sign, kind_of, shorten, suggestion
from hai_flow.definition.yaml.document import FINDINGS_MAX, Document, Path
from hai_flow.definition.yaml.keys import Shape, Type
from hai_flow.errors import Finding
from hai_flow.values import Json


@cache
def _validator(shape: Shape) -> SchemaValidator:
    schemas = {key.name: (_build_schema_of_type(key.read or key.type), key.required) for key in shape.keys}
    fields = {name: core.typed_dict_field(schema, required=required) for name, (schema, required) in schemas.items()}
    return SchemaValidator(core.typed_dict_schema(fields, extra_behavior="forbid", config={"strict": True}))


def _build_schema_of_type(type_: Type) -> core.CoreSchema:
    """The values that the reader takes for this type. Their inside is read when its turn comes."""
    match type_.kind:
        case "text" | "literal" | "duration" | "hole" | "name":
            return core.str_schema(min_length=_as_integer(type_.minimum), max_length=_as_integer(type_.maximum))
        case "id" | "variable" | "workflow":
            return core.no_info_after_validator_function(_build_name_check(_NAMES[type_.kind]), core.str_schema())
        case "cel":
            return core.union_schema([core.str_schema(), core.bool_schema()])
        case "boolean":
            return core.bool_schema()
        case "integer":
            return core.int_schema(ge=_as_integer(type_.minimum), le=_as_integer(type_.maximum))
        case "number":
            least = type_.minimum
            return core.float_schema(gt=least) if type_.above else core.float_schema(ge=least, le=type_.maximum)
        case "enum":
            return core.literal_schema(list(type_.values))
        case "steps":
            return core.list_schema(min_length=1)
        case "list":
            bounds = {"min_length": _as_integer(type_.minimum), "max_length": _as_integer(type_.maximum)}
            return core.list_schema(_item(type_.parts[0]), **bounds)
        case "map":
            values = core.str_schema() if type_.parts[0].kind == "name" else None
            bounds = {"min_length": _as_integer(type_.minimum), "max_length": _as_integer(type_.maximum)}
            return core.dict_schema(values_schema=values, **bounds)
        case "shape" | "schema":
            return core.dict_schema()
        case "either":
            return core.union_schema([_build_schema_of_type(part) for part in type_.parts])
        case _:
            return core.any_schema()


def _item(type_: Type) -> core.CoreSchema | None:
    match type_.kind:
        case "text" | "literal" | "duration" | "id":
            return core.str_schema()
        case "enum":
            return _build_schema_of_type(type_)
        case _:
            return None


def _as_integer(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


_NAMES: Final[dict[str, NameKind]] = {"id": "identifier", "variable": "variable", "workflow": "workflow"}


def _build_name_check(kind: NameKind) -> Callable[[str], str]:
    def validate(name: str) -> str:
        fault = check_name(name, kind)
        if fault:
            raise ValueError(fault)
        return name

    return validate


# Findings that may be caused by a line that YAML could not read.
_CONSEQUENCES: Final = frozenset(("shape.missing_key", "step.no_verb", "step.type"))
_OF_A_SPOILT_LINE: Final = _CONSEQUENCES | {"shape.value", "shape.unknown_key"}  # whose keys YAML reads as words


NO_KEYS: Final[Mapping[str, Collection[str]]] = {}


class TooMany(Exception):
    """So much is wrong that reading on would only cost time."""


class Reader:
    """Reads mappings of a document by their shapes and gathers findings.

    `stored`: the document was published, maybe before a rule was made. A refusal by that rule (`refuse`) is then a
    doubt, so that the workflow still runs."""

    def __init__(self, document: Document, *, stored: bool = False) -> None:
        self.document = document
        self.stored = stored
        self.findings: list[Finding] = list(document.findings)
        self.around: dict[Path, Shape] = {}  # the shapes of the steps, by their places
        self._left = {"error": FINDINGS_MAX, "warning": FINDINGS_MAX}
        self._wrong = {(finding.line, finding.column): finding.code for finding in document.findings}
        self._spoilt = {finding.line for finding in document.findings if finding.code == "yaml.unseen"}

    def error(self, path: Path, code: str, message: str, *, key: bool = False) -> None:
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

    def warning_at(self, index: int, code: str, message: str) -> None:
        """A doubt at a character of the file."""
        self._add("warning", self.document.lines.place(index), code, message)

    def is_wrong(self, path: Path) -> bool:
        """Whether there is a finding at the value at `path`: what would follow from it is none of its own."""
        return self.document.position(path) in self._wrong

    def _add(self, severity: Literal["error", "warning"], place: tuple[int, int], code: str, message: str) -> None:
        """Raises `TooMany` behind the last error that is worth showing; warnings beyond the limit are dropped.

        Where there is a finding already, another one would be its consequence, and is left out."""
        if self._wrong.setdefault(place, code) != code:
            return
        if self.document.broken and (place[0] in self.document.broken or code in _CONSEQUENCES):
            return
        if place[0] in self._spoilt and code in _OF_A_SPOILT_LINE:
            return
        if severity == "warning":
            del self._wrong[place]
        self._left[severity] -= 1
        if self._left[severity] >= 0:
            self.findings.append(Finding(self.document.file, *place, severity, code, message))
        elif severity == "error":
            raise TooMany

    def _beside(self, path: Path) -> Mapping[str, Collection[str]]:
        step = self.around.get(path[:-1])
        if step is None or path[-1] not in (step.name, "approval"):
            return NO_KEYS
        return {str(path[-1]): step.words}

    def fields(
        self,
        shape: Shape,
        value: Json,
        path: Path,
        where: str,
        *,
        elsewhere: frozenset[str] = frozenset(),
        inside: Mapping[str, Collection[str]] = NO_KEYS,
    ) -> dict[str, Json]:
        """The keys of `value` that are right, with their values; everything wrong has become a finding.

        `where` names the mapping in messages ("a `say` step", "`retry`"); `elsewhere` are keys of others of its kind;
        `inside` says by key which keys its own mapping has."""
        if not isinstance(value, dict):
            codes = {finding.code for finding in self.document.findings}
            if not path and "yaml.syntax" in codes:  # which made it so
                return {}
            hint = f"; write {_WHOLE[shape.name]}" if shape.name in _WHOLE else ""
            self.error(path, "shape.type", f"expected a mapping for {where}, found {kind_of(value)}{hint}")
            return {}
        try:
            _validator(shape).validate_python(value)
        except ValidationError as error:
            details = error.errors(include_url=False)
            wrong = {str(detail["loc"][0]) for detail in details}
            place = _Place(where, shape.words, elsewhere, inside, self._beside(path))
            self._explain(details, shape, value, path, place)
            return {key: item for key, item in value.items() if key not in wrong}
        return dict(value)

    def _explain(
        self, details: list[ErrorDetails], shape: Shape, value: Mapping[str, Json], path: Path, place: _Place
    ) -> None:
        words = shape.words
        is_last = ("else" in value or "otherwise" in value) and "when" in words
        reported: set[str] = {"when", "steps"} if is_last else set()
        missing = [str(detail["loc"][0]) for detail in details if detail["type"] == "missing"]
        for detail in details:  # a key that is misspelt is not missing as well
            if detail["type"] == "extra_forbidden" and (meant := _guess_key(str(detail["loc"][0]), words)) in missing:
                reported.add(meant)
        for detail in details:
            key = str(detail["loc"][0])
            if key in reported:  # a union reports once for every member
                continue
            reported.add(key)
            if key == "url" and isinstance(method := value.get("method"), str) and method.lower() in words:
                message = (
                    f"unknown key `url` in {place.where}; write `{method.lower()}:` in place of `url` and `method`"
                )
                self.error((*path, key), "shape.unknown_key", message, key=True)
                reported.add("method")
            elif detail["type"] == "extra_forbidden":
                self.error((*path, key), "shape.unknown_key", _explain_unknown_key(key, place), key=True)
            elif detail["type"] == "missing":
                message = f"`{key}` is missing in {place.where}; add {_suggest_example(shape, key)}"
                self.error(path, "shape.missing_key", message, key=bool(path))
            else:
                inner = tuple(part for part in detail["loc"][1:] if isinstance(part, int))
                at = (*path, key, *inner)
                value_there = value[key][inner[0]] if inner and isinstance(value[key], list) else value[key]
                self.error(at, "shape.value", _explain_wrong_value(key, detail, value_there, shape))


class _Place(msgspec.Struct, frozen=True):
    """What is known around a key that does not fit; see `fields`. `beside`: the keys that may stand beside that
    of the mapping it is in, by that."""

    where: str
    known: Sequence[str]
    elsewhere: frozenset[str]
    inside: Mapping[str, Collection[str]]
    beside: Mapping[str, Collection[str]]


def _explain_unknown_key(key: str, place: _Place) -> str:
    where, keys = place.where, place.known
    if (odd := describe_odd_sign(key)) is not None:
        return f"unknown key `{shorten(key)}` in {where}: {odd}"
    if key in place.elsewhere:
        remedy = _MISPLACED.get(key) or f"its keys are {', '.join(keys)}"
        return f"`{key}` does not apply to {where}; {remedy}"
    if key in ("else", "otherwise") and "switch" in where:
        return f"unknown key `{key}` in a case of `switch`; the last case is `- default: true` with its `steps`"
    if key.startswith("x-"):
        hint = "there are no keys of one's own: put an anchor (`&`) where it is used first"
        return f"unknown key `{key}` in {where}; {hint}"
    if key == "env" and "tool" in where:
        return "a Python tool has no `env`: it reads os.environ itself; only an `mcp` command takes one"
    if (words := _OF_OTHERS.get((where, key))) is not None:
        return f"unknown key `{key}` in {where}; {words}"
    if key == "name" and {"id", "title"} <= {*keys}:
        return f"unknown key `name` in {where}; people see the `title` of a step, others read it by its `id`"
    meant = _suggest_synonym(key, keys) or ("" if (level := _suggest_level(key, place)) else _suggest_near(key, keys))
    if meant:
        return f"unknown key `{key}` in {where}; did you mean `{meant}`?"
    hint = level or _ADVICE.get(key) or f"the keys are {', '.join(keys)}"
    if not level and key not in _ADVICE and "with" in keys:
        hint = f"if it is an argument, it stands under `with`; {hint}"
    return f"unknown key `{key}` in {where}; {hint}"


def _suggest_level(key: str, place: _Place) -> str:
    """Where this key stands, if it is a right one that is indented too little or too much; "" for others."""
    for relation, keys in (("inside of", place.inside), ("beside", place.beside)):
        for neighbour, words in keys.items():
            if key in words:
                return f"it stands {relation} `{neighbour}`"
    return ""


# Keys that are often written in the wrong place: a hint at the right one.
_MISPLACED: Final = {
    "timeout": "people have a `deadline`, inside of `ask` or `approve`; waits have one inside of `wait_for`",
    "retry": "only effects (call, http, llm, agent, run) are tried again; put it on the steps inside",
    "approval": "it stands on call, http and run; for any other decision write an `approve` step before",
    "with": "it holds the arguments of `call` and `run`; the keys of this verb stand under it",
    "on_reject": "it stands beside `approve` or `approval`",
    "input": "a child run takes its input as `with`",
    "detach": "it stands on `run`, whose workflow then goes on by itself",
    "stream": "it stands on `call` and `http`, and inside of `llm` and `agent`",
    "undo": "it stands at the steps inside that have an effect",
    "join": "it says how many branches of a `parallel` have to finish; put these into one",
    "continue_on_error": "it stands on call, http, llm, agent and run; here write `catch: [{steps: [...]}]`",
}
_DECIDED_TOGETHER: Final = "the first answer counts; where people decide together write an `approve` step"
_OF_A_CALL: Final = "it belongs to the `approval` of a call, which people see before anything is sent"
# Keys of a neighbour: (where, key) -> the remedy.
_OF_OTHERS: Final = {
    **{
        ("`ask`", key): _DECIDED_TOGETHER
        for key in ("quorum", "veto", "reject_when", "combine", "exclude", "reasons", "evidence")
    },
    **{("`approve`", key): _OF_A_CALL for key in ("still", "edit", "rules")},
    ("`approve`", "when"): "the step has an `if`, beside `approve`",
    ("`approval`", "evidence"): "people see the arguments of the call; more stands in its `message`",
}

NO_ELSE: Final = (
    "`if` has no `else`; in place of both write `switch: [{when: ..., steps: [...]}, {default: true, steps: [...]}]`"
)
# The names that other languages have for a key.
_SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "inputs": ("input", "with"), "input": ("with",), "signal": ("event",),
    "outputs": ("output",), "variables": ("state",), "vars": ("state",),
    "on": ("triggers",), "args": ("with",), "arguments": ("with",), "params": ("with",), "parameters": ("with",),
    "payload": ("with", "body"),
    "name": ("id", "title"),
    "label": ("title",), "when": ("if",), "condition": ("if",), "if": ("when",), "unless": ("if",),
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
    "jobs": ("steps",), "tasks": ("steps",), "stages": ("steps",), "nodes": ("steps",), "id": ("name",),
    "case": ("when",), "every": ("cron",), "minutes": ("for",), "seconds": ("for",), "hours": ("for",),
    "duration": ("for",), "ignore_errors": ("continue_on_error",), "allow_failure": ("continue_on_error",),
    "question": ("title",), "approver": ("from",), "role": ("from",), "candidateGroups": ("from",),
    "candidateUsers": ("from",), "groups": ("from",), "dueDate": ("deadline",), "due_date": ("deadline",),
    "due": ("deadline",), "expires": ("deadline",), "onExit": ("finally",), "on_exit": ("finally",),
    "afterExecution": ("finally",), "after_execution": ("finally",), "errors": ("catch",), "error": ("message",),
    "retryStrategy": ("retry",), "retry_strategy": ("retry",), "retry_policy": ("retry",), "retries": ("retry",),
    "retry_delay": ("retry",), "execution_timeout": ("timeout",), "activeDeadlineSeconds": ("timeout",),
    "timeoutSeconds": ("timeout",), "required_events": ("quorum",), "resume_form": ("form",),
}  # fmt: skip
_ADVICE: Final = {
    "tests": "tests stand in a file of their own, NAME.test.yaml",
    "secrets": "name a secret where it is used, as ${{ secrets.NAME }}",
    "env": "name a secret where it is used, as ${{ secrets.NAME }}; other values are `input`",
    **dict.fromkeys(
        ("depends_on", "dependsOn", "depends", "dependencies", "needs", "runAfter", "run_after", "after"),
        "steps run in the order in which they are written; use `parallel` for branches",
    ),
    **dict.fromkeys(
        ("withItems", "with_items", "withParam", "strategy", "matrix", "expand"),
        "for several items write `for_each: {items: [...], steps: [...]}` around the step",
    ),
    **dict.fromkeys(
        ("trigger_rule", "always_run"),
        "what runs after a failure stands under `catch`, what always runs under `finally`",
    ),
    **dict.fromkeys(
        ("suspend", "manual", "environment"),
        "people decide before a step that has `approval: {from: role:manager}`; `wait_for` waits for an event",
    ),
    **dict.fromkeys(
        ("heartbeat", "heartbeat_seconds", "HeartbeatSeconds"), "a step has a `timeout` for each attempt, no heartbeat"
    ),
    **dict.fromkeys(
        ("ResultPath", "result_path", "OutputPath", "ResultSelector"),
        "what a step gives is `steps.ID.output`, if the step has an `id`",
    ),
    **dict.fromkeys(("StartAt", "States"), "write `steps:` and below it a list; they run in its order"),
    "next": "steps run in the order in which they are written; use `if` or `switch`",
    "goto": "there is no goto; use `if`, `repeat` or `return`",
    "else": NO_ELSE,
    "escalate": "it stands under `on_deadline`: write `on_deadline: {escalate: {from: role:manager, deadline: 1d}}`",
    **dict.fromkeys(
        ("output", "outputs", "result", "save_as", "save", "register", "store", "assign"),
        "what a step gives is `steps.ID.output`, if the step has an `id`",
    ),
    "options": "choices are the `enum` of a property of a `form`",
    "on_approve": "what comes after an approval is the next step",
    "on_approved": "what comes after an approval is the next step",
    "on_success": "what comes after a success is the next step",
    "schedule": "write `triggers: [{schedule: {cron: 0 6 * * 1-5, timezone: Europe/Berlin}}]`",
    "cron": "write `triggers: [{schedule: {cron: 0 6 * * 1-5, timezone: Europe/Berlin}}]`",
    "webhook": "write `triggers: [{webhook: {path: ..., secret: ...}}]`",
    "method": "the method is the key of the address: `post: https://...`",
    **dict.fromkeys(
        ("spec", "metadata", "kind", "apiVersion", "workflow", "pipeline"),
        "`hai`, `name`, `version` and `steps` stand at the top of the file",
    ),
}


def _guess_key(key: str, known: Sequence[str]) -> str:
    """The known key that was meant by an unknown one; "" where that is not certain."""
    return _suggest_synonym(key, known) or _suggest_near(key, known)


def _suggest_synonym(key: str, known: Sequence[str]) -> str:
    own = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").lower()  # camelCase, or hyphens
    if own != key and own in known:
        return own
    return next((word for word in _SYNONYMS.get(key, ()) if word in known), "")


def _suggest_near(key: str, known: Sequence[str]) -> str:
    """The known word that was misspelt; a slip of the pen seldom changes its first letter."""
    near = [] if key in _ADVICE else difflib.get_close_matches(key, known, n=3, cutoff=0.6)
    return next((word for word in near if word[0] == key[0].lower() or _is_slip(key, word)), "")


def _is_slip(key: str, word: str) -> bool:
    return difflib.SequenceMatcher(None, key, word).ratio() >= _SLIP


_SLIP: Final = 0.75

# How a mapping is written that something else stands for, by its shape.
_WHOLE: Final = {
    "document": "`hai: flow/v1`, `name: ...`, `version: 1`, and `steps:` with a list below",
    "model": "`{use: NAME}`, or `{provider: openai, model: NAME}`",
    "schedule_trigger": "`schedule: {cron: 0 6 * * 1-5, timezone: Europe/Berlin}`",
    "event_trigger": "`event: {type: order.paid}`",
    "run_trigger": "`run: {workflow: NAME}`",
    "webhook_trigger": "`webhook: {path: NAME, secret: ${{ secrets.NAME }}}`",
    "subscription": "`- event: TYPE`",
    "case": "`- when: ...` and `steps:` below it",
    "catch": "`- steps: [...]`",
}  # fmt: skip
# How a key is written, for a finding on one that is missing or of another kind.
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


def _suggest_example(shape: Shape, key: str) -> str:
    if key == "hai":  # each kind of document has its own
        (kind,) = next(each.type.values for each in shape.keys if each.name == key)
        return f"`hai: {kind}`"
    if key == "tools" and shape.name != "document":
        return "`tools: [tool.*]`"
    example = next((each.example for each in shape.keys if each.name == key), "")
    return _EXAMPLES.get(key) or f"`{key}: {example or '...'}`"


_EXPECTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
}


def _explain_wrong_value(key: str, detail: ErrorDetails, found: Json, shape: Shape) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "value_error":
            return str(context.get("error", detail["msg"]))
        case "literal_error":
            choices = re.findall(r"'([^']*)'", str(context["expected"]))
            hint = suggestion(found, choices) if isinstance(found, str) else ""
            if context["expected"] == "True":  # `default: true` in a `switch`
                more = ", and `steps:` beside it" if key == "default" else ""
                return f"`{key}`: expected true, found {kind_of(found)}; write `{key}: true`{more}"
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
            first = str(next(iter(found), "")) if isinstance(found, Mapping) else ""
            odd = describe_odd_sign(found if isinstance(found, str) else first)
            hint = f"; {odd}" if odd and kind in ("list_type", "dict_type") else _quote_hint(kind, key, found, shape)
            return f"`{key}`: expected {_describe_expected(key, detail)}, found {kind_of(found)}{hint}"
        case _:
            return f"`{key}`: {detail['msg']}"


def _describe_expected(key: str, detail: ErrorDetails) -> str:
    union = {
        "say": "text or a mapping", "fail": "text or a mapping", "set": "a mapping or a list of operations",
        "thinking": "text or a mapping", "if": "an expression", "when": "an expression",
        "timeout": "a duration such as 90s", "deadline": "a duration such as 7d", "every": "a duration such as 1s",
        "max_delay": "a duration such as 5m", "duration": "a duration such as 1h", "for": "a duration such as 10m",
    }  # fmt: skip
    return union[key] if len(detail["loc"]) < 3 and key in union else _EXPECTED[detail["type"]]


_BOOLEANS: Final = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_DURATIONS: Final = ("timeout", "deadline", "every", "max_delay", "duration", "for", "remind")


def _quote_hint(kind: str, key: str, found: Json, shape: Shape) -> str:
    if kind == "dict_type" and key == "wait" and isinstance(found, (str, int, float)):
        meant = guess_duration(f"{found}s" if not isinstance(found, str) else found)
        return f"; write `wait: {{for: {meant or '10m'}}}`"
    if kind == "string_type" and key == "key" and shape.name == "for_each":
        return "; each item needs its own: write `key: ${{ item }}`, or a part of it"
    if kind == "list_type" and isinstance(found, str) and key in ("notify", "remind"):
        return f"; write `{key}: [{as_yaml(found)}]`"
    if kind == "list_type" and isinstance(found, Mapping) and len(found) == 1:
        (word,) = found
        if key == "try" and word == "steps":
            return "; its list stands below `try` itself, without `steps`"
        if key == "triggers":
            return f"; it is a list: write `- {word}:` in place of `{word}:`"
    if kind in ("dict_type", "list_type") and key in _EXAMPLES:
        return f"; write {_suggest_example(shape, key)}"
    if kind == "bool_type" and key == "edit" and isinstance(found, str):
        return f"; write `edit: [{as_yaml(found)}]`"
    if kind == "bool_type" and isinstance(found, str) and (word := _BOOLEANS.get(found.lower())):
        return f"; write {word}"
    if kind == "string_type" and key in ("call", "run") and isinstance(found, Mapping):
        return f"; write `{key}: NAME`, and `with:` beside it"
    if kind == "int_type" and isinstance(found, str) and found.isdigit():
        return f"; write it without quotes: {found}"
    if kind == "int_type" and key == "version" and isinstance(found, str):
        return "; write 1, and a higher number for each change"
    if kind == "int_from_float" or (kind == "int_type" and isinstance(found, float)):
        return f"; write {round(found)}"
    if kind == "list_type" and isinstance(found, str):
        return f"; write `{key}: [{as_yaml(found)}]`"
    if kind == "string_type" and isinstance(found, bool) and key not in _DURATIONS:
        return "; quote it"
    if kind != "string_type" or isinstance(found, bool) or not isinstance(found, (int, float)):
        return ""
    unit = "h" if key in ("deadline", "remind") else "s"  # that of people
    return f"; give it a unit: `{found:g}{unit}`" if key in _DURATIONS else "; quote it"
