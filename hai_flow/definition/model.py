"""The shape of a document (LANGUAGE sections 1 to 3, 7, 8): which keys a mapping has, and of which type each is.

Every mapping of the language is a flat pydantic model here; what is nested is read by the compiler, mapping by mapping,
so that an error always knows its key. `Reader.fields` turns errors into findings with a place and gives back the fields
that were right: one mistake is one finding, and the rest of the document is still checked.

A key that flow/v1 has but this release cannot run yet is in NOT_YET: it is known, and answered as such.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from hai_flow.definition.document import FINDINGS_MAX, Document, Path, kind_of, suggestion
from hai_flow.definition.expressions import ROOTS
from hai_flow.errors import Finding

Json: TypeAlias = Any

_CEL_WORDS: Final = frozenset(
    ("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
     "namespace", "null", "package", "return", "true", "var", "void", "while")
)  # fmt: skip
_ID: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


def name_fault(name: str, *, capitals: bool = False, roots: bool = True) -> str | None:
    """Why `name` can't be an id (or, with `capitals`, a state or tool name); None if it can (LANGUAGE section 1)."""
    pattern = _NAME if capitals else _ID
    if not pattern.fullmatch(name):
        letters = "a letter" if capitals else "a lower-case letter"
        return f"expected {letters}, then letters, digits or _ (at most 63), found `{name}`"
    if name in _CEL_WORDS:
        return f"`{name}` is a word of CEL and can't be a name; choose another"
    if roots and name in ROOTS - {"item"}:
        return f"`{name}` already names something in expressions; choose another"
    return None


def _identifier(name: str) -> str:
    fault = name_fault(name)
    if fault:
        raise ValueError(fault)
    return name


Identifier: TypeAlias = Annotated[str, AfterValidator(_identifier)]


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", populate_by_name=False)


class DocumentShape(_Shape):
    hai: Literal["flow/v1"]
    name: Identifier
    version: int = Field(ge=1)
    title: str = ""
    description: str = ""
    input: dict[str, Any] = Field(default_factory=dict)
    state: dict[str, Any] = Field(default_factory=dict)
    tools: dict[str, Any] = Field(default_factory=dict)
    defaults: dict[str, Any] = Field(default_factory=dict)
    steps: list[Any] = Field(min_length=1)
    catch: list[Any] = Field(default_factory=list)
    output: Any = None


class DefaultsShape(_Shape):
    retry: dict[str, Any] = Field(default_factory=dict)
    timeout: str = ""
    deadline: str = ""


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

    reduce: Literal["append", "merge", "max"]


class PythonToolShape(_Shape):
    python: str
    effect: Literal["read", "write"] = "write"


class FrontendToolShape(_Shape):
    frontend: dict[str, Any]
    effect: Literal["read", "write"] = "write"


class FrontendShape(_Shape):
    description: str
    parameters: dict[str, Any]
    result: dict[str, Any] = Field(default_factory=dict)
    deadline: str = ""


class _StepShape(_Shape):
    id: Identifier = ""
    title: str = ""
    if_: str | bool = Field(default="", alias="if")


class _CatchingShape(_StepShape):
    catch: list[Any] = Field(default_factory=list, min_length=1)


class CallShape(_CatchingShape):
    call: str
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
    retry: dict[str, Any] = Field(default_factory=dict)
    timeout: str = ""
    expose: bool = False
    stream: Literal["text", "none"] = "none"


class SayShape(_CatchingShape):
    say: str | dict[str, Any]


class AskShape(_CatchingShape):
    ask: dict[str, Any]


class ApproveShape(_CatchingShape):
    approve: dict[str, Any]
    on_reject: list[Any] = Field(default_factory=list, min_length=1)


class SetShape(_CatchingShape):
    set: dict[str, Any] | list[Any]


class SwitchShape(_CatchingShape):
    switch: list[Any] = Field(min_length=1)
    timeout: str = ""


class ParallelShape(_CatchingShape):
    parallel: dict[str, Any] = Field(min_length=2, max_length=64)
    join: Literal["all", "any"] = "all"
    timeout: str = ""


class WaitShape(_CatchingShape):
    wait: dict[str, Any]


class ReturnShape(_StepShape):
    return_: Any = Field(alias="return")


class FailShape(_StepShape):
    fail: str | dict[str, Any]


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


class AskParametersShape(_Shape):
    title: str
    message: str = ""
    form: dict[str, Any]
    from_: Any = Field(default=None, alias="from")
    exclude: Any = None
    quorum: Any = None
    deadline: str = ""
    on_deadline: Any = None


class ApproveParametersShape(_Shape):
    title: str
    message: str = ""
    evidence: Any = None
    form: dict[str, Any] = Field(default_factory=dict)
    from_: Any = Field(alias="from")
    exclude: Any = None
    quorum: Any = None
    options: list[str] = Field(default_factory=list)
    deadline: str = ""
    on_deadline: Any = None


class CaseShape(_Shape):
    when: str | bool
    steps: list[Any] = Field(min_length=1)


class DefaultCaseShape(_Shape):
    default: Literal[True]
    steps: list[Any] = Field(min_length=1)


class WaitForShape(_Shape):
    for_: str = Field(default="", alias="for")
    until: str = ""


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
    "say": SayShape,
    "ask": AskShape,
    "approve": ApproveShape,
    "set": SetShape,
    "switch": SwitchShape,
    "parallel": ParallelShape,
    "wait": WaitShape,
    "return": ReturnShape,
    "fail": FailShape,
}
NOT_YET_VERBS: Final = frozenset(("for_each", "repeat", "try", "run", "llm", "agent", "http", "emit", "wait_for"))
VERBS: Final = frozenset(STEP_SHAPES) | NOT_YET_VERBS

_NOT_YET_STEP: Final = frozenset(("finally", "undo", "approval", "on_decision", "idempotency_key", "delivery"))
_NOT_YET_TOOL: Final = frozenset(("allow", "auth", "headers", "env", "timeout"))
_NOT_YET_PERSON: Final = frozenset(("notify", "remind", "pause_clock"))
NOT_YET: Final[dict[type[_Shape], frozenset[str]]] = {
    DocumentShape: frozenset(("models", "roles", "triggers", "limits", "concurrency", "finally")),
    DefaultsShape: frozenset(("model", "notify")),
    PythonToolShape: _NOT_YET_TOOL,
    FrontendToolShape: _NOT_YET_TOOL,
    AskParametersShape: _NOT_YET_PERSON | {"combine"},
    ApproveParametersShape: _NOT_YET_PERSON | {"combine", "reject_when"},
    **dict.fromkeys(STEP_SHAPES.values(), _NOT_YET_STEP),
}
STEP_KEYS: Final = (
    VERBS | _NOT_YET_STEP | {
        field.alias or name for shape in STEP_SHAPES.values() for name, field in shape.model_fields.items()
    }
)  # fmt: skip


def keys_of(shape: type[BaseModel]) -> list[str]:
    """The keys of a mapping of this shape, as they are written."""
    return [field.alias or name for name, field in shape.model_fields.items()]


class TooMany(Exception):
    """So much is wrong that reading on would only cost time."""


class Reader:
    """Reads mappings of a document by their shapes and gathers findings."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.findings: list[Finding] = list(document.findings)
        self._left = {"error": FINDINGS_MAX, "warning": FINDINGS_MAX}

    def error(self, path: Path, code: str, message: str, *, key: bool = False) -> None:
        """An error at the value at `path`, or at its key."""
        self._add("error", self.document.position(path, key=key), code, message)

    def warning(self, path: Path, code: str, message: str, *, key: bool = False) -> None:
        """A doubt at the value at `path`, or at its key."""
        self._add("warning", self.document.position(path, key=key), code, message)

    def error_inside(self, path: Path, offset: int, code: str, message: str) -> None:
        """An error at the character `offset` of the text at `path`."""
        self._add("error", self.document.locate(path, offset), code, message)

    def warning_inside(self, path: Path, offset: int, code: str, message: str) -> None:
        """A doubt at the character `offset` of the text at `path`."""
        self._add("warning", self.document.locate(path, offset), code, message)

    def _add(self, severity: Literal["error", "warning"], place: tuple[int, int], code: str, message: str) -> None:
        """Raises `TooMany` behind the last error worth telling; warnings beyond the limit are dropped."""
        self._left[severity] -= 1
        if self._left[severity] >= 0:
            self.findings.append(Finding(self.document.file, *place, severity, code, message))
        elif severity == "error":
            raise TooMany

    def not_yet(self, path: Path, word: str) -> None:
        """The finding for a key that the language has and this release has not."""
        message = f"`{word}` is part of flow/v1, but this release cannot run it yet; leave it out"
        self.error(path, "not_yet", message, key=True)

    def fields(self, shape: type[_Shape], value: Json, path: Path, where: str) -> dict[str, Json]:
        """The fields of `value` that are right, by their written keys; everything wrong has become a finding.

        `where` names the mapping in messages ("a `say` step", "`retry`").
        """
        if not isinstance(value, Mapping):
            self.error(path, "shape.type", f"expected a mapping for {where}, found {kind_of(value)}")
            return {}
        known = keys_of(shape)
        later = NOT_YET.get(shape, frozenset())
        for key in value:
            if key in later:
                self.not_yet((*path, key), key)
        given = {key: item for key, item in value.items() if key not in later}
        try:
            shape.model_validate(given)
        except ValidationError as error:
            wrong = {str(detail["loc"][0]) for detail in error.errors(include_url=False)}
            self._explain(error.errors(include_url=False), known, value, path, where)
            return {key: item for key, item in given.items() if key not in wrong}
        return given

    def _explain(
        self, details: list[ErrorDetails], known: list[str], value: Mapping[str, Json], path: Path, where: str
    ) -> None:
        told: set[str] = set()
        for detail in details:
            key = str(detail["loc"][0])
            if key in told:  # a union reports once for every member
                continue
            told.add(key)
            if detail["type"] == "extra_forbidden":
                self.error((*path, key), "shape.unknown_key", _unknown_key(key, known, where), key=True)
            elif detail["type"] == "missing":
                message = f"`{key}` is missing in {where}"
                self.error(path, "shape.missing_key", message, key=bool(path))
            else:
                inner = tuple(part for part in detail["loc"][1:] if isinstance(part, int))
                at = (*path, key, *inner)
                found = value[key][inner[0]] if inner and isinstance(value[key], list) else value[key]
                self.error(at, "shape.value", _wrong_value(key, detail, found))


def _unknown_key(key: str, known: list[str], where: str) -> str:
    if key in STEP_KEYS and where.endswith("step"):
        return f"`{key}` does not apply to {where}; its keys are {', '.join(known)}"
    hint = suggestion(key, known) or f"; the keys are {', '.join(known)}"
    return f"unknown key `{key}` in {where}{hint}"


_EXPECTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
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
            return f"`{key}`: expected {context['expected']}, found {kind_of(found)}"
        case "too_short" | "too_long":
            least = context.get("min_length", context.get("max_length"))
            word = "at least" if detail["type"] == "too_short" else "at most"
            return f"`{key}`: expected {word} {least}, found {context['actual_length']}"
        case "greater_than_equal" | "less_than_equal":
            bound = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
            return f"`{key}`: expected {bound}, found {found}"
        case kind if kind in _EXPECTED:
            return f"`{key}`: expected {_expected(key, detail)}, found {kind_of(found)}{_quote_hint(kind, found)}"
        case _:
            return f"`{key}`: {detail['msg']}"


def _expected(key: str, detail: ErrorDetails) -> str:
    union = {
        "say": "text or a mapping", "fail": "text or a mapping", "set": "a mapping or a list of operations",
        "thinking": "text or a mapping", "if": "an expression", "when": "an expression",
        "timeout": "a duration such as 90s", "deadline": "a duration such as 7d", "every": "a duration such as 1s",
        "max_delay": "a duration such as 5m",
    }  # fmt: skip
    return union[key] if len(detail["loc"]) < 3 and key in union else _EXPECTED[detail["type"]]


def _quote_hint(kind: str, found: Json) -> str:
    return "; quote it" if kind == "string_type" and isinstance(found, (int, float)) else ""
