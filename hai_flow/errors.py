"""Every error that HAI Flow raises on purpose. Each is a sentence for one reader.

    HaiFlowError
    +-- DefinitionError   the author's: a workflow (or an input) is wrong; carries every finding at once
    +-- Rejected          the caller's: a command was refused, nothing happened; carries its HTTP status
    +-- StepError         the world's: an effect failed; carries a code and whether trying again may help
        +-- OutcomeLost   nobody knows whether it failed
    +-- AsksPerson        an effect's: a person has to answer before it can go on
    +-- StoreError        ours: the database could not do its work
        +-- Unreadable    a run that this release can't read: another release wrote it

Refused is not failed: a refusal is an HTTP problem and never enters the log; a failure is an event in it.
Any other exception that escapes is a bug of ours: assert it, do not handle it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal


class HaiFlowError(Exception):
    """The root of the tree above."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A piece of a text, from (`line`, `column`) to before (`end_line`, `end_column`), and the text to replace it."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake (or doubt) in one place of a document.

    `line` and `column` count from 1; 0 means that the finding concerns the whole document. `message` names the expected
    form, the one found, and the remedy. The place ends before `end_line`, `end_column` (0: not known). `fix` mends the
    mistake; it is there if the author's intention is certain."""

    file: str
    line: int
    column: int
    severity: Literal["error", "warning"]
    code: str
    message: str
    end_line: int = 0
    end_column: int = 0
    fix: tuple[Edit, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        prefix = "warning: " if self.severity == "warning" else ""
        return f"{place}: {prefix}{self.message}"

    def as_dict(self) -> dict[str, Any]:
        """The finding as REST and `validate --json` print it."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "end_line": self.end_line or self.line,
            "end_column": self.end_column or self.column,
            "fix": [asdict(edit) for edit in self.fix],
            "params": particulars(self.message),
        }


_QUOTED: Final = re.compile(r"`([^`]+)`|(?<!\w)'([^']+)'(?!\w)|\"([^\"]+)\"")
_PARAMS_MAX: Final = 6
_PARAM_CHARACTERS_MAX: Final = 120


def particulars(message: str) -> list[str]:
    """The words that a sentence puts in quotes, each once: keys, values, people. They are the same in every language,
    so a client can show them beside the translation of the code."""
    words = (next(filter(None, groups)) for groups in _QUOTED.findall(message))
    return [each[:_PARAM_CHARACTERS_MAX] for each in dict.fromkeys(words)][:_PARAMS_MAX]


class DefinitionError(HaiFlowError):
    """A document that cannot be used. `findings` holds every error and warning found, in document order."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


class Rejected(HaiFlowError):
    """A command that was refused: nothing was stored, nothing happened.

    `status` is the HTTP status that says the same (404, 409, 410, 413, 422, 429). `code` is stable, for programs;
    `detail` is for people. `winner` is the state that stands instead, if there is one (409). `findings` lists each
    fault of a value that did not fit its schema as `{"path": JSON Pointer, "message": text}`. `retry_after`: the
    seconds after which to try again (429)."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        winner: Any = None,
        findings: Sequence[dict[str, Any]] = (),
        retry_after: int = 1,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.winner = winner
        self.retry_after = retry_after
        self.findings = tuple(findings)

    @property
    def advice(self) -> str:
        """When to try again, as a sentence behind others; "" where another time changes nothing."""
        return f" Try again in {self.retry_after} seconds." if self.status in (429, 503) else ""


def describe_findings(findings: Iterable[Mapping[str, Any]], root: str = "/") -> list[str]:
    """Each finding as a sentence, behind its place; `root` is that of the value itself."""
    return [f"{each.get('path') or root}: {each['message']}" for each in findings if "message" in each]


def reject_unknown_run(run_id: object) -> Rejected:
    """The refusal of a run that does not exist, is kept from the caller, or was removed since they found it."""
    return Rejected(404, "run_unknown", f"there is no run {str(run_id)[:60]!r}.")


class StepError(HaiFlowError):
    """An effect that failed out in the world. Tools raise it to choose their own code and whether to try again.

    `code` is one of docs/language.md#codes or the author's own; `retriable` None means "as the code says". `data` is
    any JSON value; `retry_after` is in seconds and is obeyed up to the step's `max_delay`."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "tool.failed",
        retriable: bool | None = None,
        data: Any = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.retriable = retriable
        self.data = data
        self.retry_after = retry_after


class OutcomeLost(StepError):
    """An effect that may have happened or not: its answer was lost on the way.

    The step is in doubt then as after the loss of the process that performed it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="step.in_doubt", retriable=False)


class AsksPerson(HaiFlowError):
    """An effect that can't go on without an answer of a person: its attempt ends here.

    The next attempt, of any process, performs the same call and has the answer, with `state` and `keys` as they are.
    `form` is the JSON Schema of an object."""

    def __init__(self, message: str, form: dict[str, Any], *, state: str | None, keys: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.form = form
        self.state = state
        self.keys = tuple(keys)


class StoreError(HaiFlowError):
    """The database could not do its work: unreachable, wrong version of the schema, corrupt."""


class Unreadable(StoreError):
    """A stored run, or its workflow, has a form that this release does not know.

    Another release may go on with it: most often a newer one, which works beside this one while it is rolled out."""
