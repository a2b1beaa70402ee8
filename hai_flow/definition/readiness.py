"""Whether a server can perform every step of a plan, and has the channels and roles that it names. Dry validation never
asks; publishing does."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from hai_flow.definition.names.wording import shorten, suggestion
from hai_flow.definition.people.calendars import Calendar, find_calendar
from hai_flow.definition.plan import (
    A2ATool,
    AgentTurn,
    Call,
    Http,
    HttpTool,
    Llm,
    McpTool,
    Plan,
    PythonTool,
    Step,
    Tool,
    find_reading_step,
)
from hai_flow.definition.yaml.document import Path, parse
from hai_flow.definition.yaml.include_keys import first_of
from hai_flow.errors import DefinitionError, Finding
from hai_flow.values import Json

_KINDS: dict[type, str] = {
    PythonTool: "python", McpTool: "mcp", HttpTool: "http_tool", A2ATool: "a2a",
    Http: "http", Llm: "llm", AgentTurn: "llm",
}  # fmt: skip
_WORDS = {kind: kind.removesuffix("_tool") for kind in _KINDS.values()}


class RunnersMissing(DefinitionError):
    """A document without a mistake that needs runners which this server does not have: for these steps."""

    def __init__(self, findings: Sequence[Finding], what: Sequence[str]) -> None:
        super().__init__(findings)
        self.what = tuple(what)


def lacking(plan: Plan, known: frozenset[str]) -> list[str]:
    """The effects of the plan whose runners are not `known`, each once, in document order."""
    needed = (each for step in plan.steps.values() for each in _iter_needed_runners(plan, step))
    return list(dict.fromkeys(what for kind, what in needed if kind not in known))


def list_missing_runners(plan: Plan, known: frozenset[str], file: str = "<workflow>") -> list[Finding]:
    """A finding for each step that needs a runner the server does not have, in document order.

    `known` has the kinds of effects that it performs: `python`, `mcp`, `http_tool` and `a2a` (calls of such tools),
    `http`, `llm` (the verb, and the model of an agent). Frontend tools and child runs need no runner."""
    findings: dict[str, Finding] = {}
    for step in plan.steps.values():
        for kind, what in _iter_needed_runners(plan, step):
            owner = _find_document_step(plan, step).path
            if kind not in known and owner not in findings:
                message = (
                    f"step {owner}: this server has no runner for {what}; publish it on one that has, or write the "
                    f"step in another way (validating it works everywhere)"
                )
                findings[owner] = Finding(file, step.line, 1, "error", "step.no_runner", message)
    return list(findings.values())


def _find_document_step(plan: Plan, step: Step) -> Step:
    """The step as it stands in the document: the agent, for the steps that the compiler adds inside of an agent."""
    while step.of_agent:
        step = plan.steps[step.parent]
    return step


def find_runner_kind(step: Step) -> str | None:
    """The kind of runner that performs the step's effect: python, mcp, http, http_tool, a2a or llm; None: none."""
    verb = step.verb
    return _KINDS.get(type(verb.tool if isinstance(verb, Call) else verb))


def find_tool_kind(tool: Tool) -> str | None:
    """The kind of runner that performs calls of `tool`; None: a frontend does."""
    return _KINDS.get(type(tool))


def _iter_needed_runners(plan: Plan, step: Step) -> Iterator[tuple[str, str]]:
    kind, verb = find_runner_kind(step), step.verb
    if isinstance(verb, Call) and kind is not None:
        yield kind, f"the {_WORDS[kind]} tool `{verb.tool.name}`"
    elif kind is not None:
        yield kind, "the model of an `agent`" if isinstance(verb, AgentTurn) else f"`{step.verb_name}`"
    if (reading := find_reading_step(step)) is not None:
        yield from _iter_needed_runners(plan, reading)


_DATA: Final = frozenset(
    ("with", "set", "emit", "show", "return", "output", "state", "input", "tools", "data", "value", "say", "http")
)
"""Keys below which a `notify` or a `from` is a word of the author's own."""


def list_unknown_channels(source: bytes, known: Collection[str] | None, file: str = "<workflow>") -> list[Finding]:
    """A warning for each `notify` that names a channel which is not among the `known` of a deployment. None: it has no
    file of channels at all."""
    if b"notify" not in source:
        return []
    document = parse(first_of(source), file)
    findings = []
    for at, text in _iter_channels(document.value, ()):
        name = text.partition(":")[0]
        if "${{" in name or "://" in text or name in (known or ()):
            continue
        has = "HAI_FLOW_NOTIFY names no file here" if known is None else f"it has {', '.join(known) or 'none'}"
        hint = suggestion(name, list(known or ())) or f"; {has}, so nobody is notified over it"
        message = f"this server has no channel `{shorten(name)}`{hint}"
        findings.append(Finding(file, *document.position(at), "warning", "notify.unknown", message))
    return findings


def list_unknown_calendars(
    source: bytes, name: str, calendars: Mapping[str, Calendar], file: str = "<workflow>"
) -> list[Finding]:
    """A warning where the `calendar` of the workflow is neither among those of a deployment nor a timezone."""
    if find_calendar(calendars, name) is not None:
        return []
    hint = suggestion(name, [*calendars]) or f"; it has {', '.join(calendars) or 'none'} (HAI_FLOW_CALENDARS)"
    message = f"this server has no calendar `{shorten(name)}`{hint}, so questions that count working days fail"
    document = parse(first_of(source), file)
    return [Finding(file, *document.position(("calendar",)), "warning", "calendar.unknown", message)]


def list_unlikely_roles(
    source: bytes, roles: Collection[str], own: Sequence[str] = (), file: str = "<workflow>"
) -> list[Finding]:
    """A warning for each role that is written as one of the `roles` of a deployment, but for a letter. Any other
    may be given to somebody at any time. `own`: the roles of the workflow, with which it was compared already."""
    document = parse(first_of(source), file)
    findings = []
    for at, name in _iter_roles(document.value, ()):
        if name in roles or name in own or suggestion(name, own):
            continue
        near = [each for each in sorted(roles) if _is_misspelt(name, each)]
        if near:
            message = f"nobody here is known to have the role `{shorten(name)}`; did you mean `{near[0]}`?"
            findings.append(Finding(file, *document.position(at), "warning", "role.unknown", message))
    return findings


_DIGITS: Final = str.maketrans("", "", "0123456789")


def _is_misspelt(name: str, other: str) -> bool:
    """Whether one letter was left out, added or changed, or two neighbours were exchanged: `controler`, and not
    `reviewer` for `viewer`. What differs by a number is another name: `level1` and `level2`."""
    if min(len(name), len(other)) < _LETTERS_MIN or name.translate(_DIGITS) == other.translate(_DIGITS):
        return False
    begin = next((n for n, (one, two) in enumerate(zip(name, other, strict=False)) if one != two), None)
    if begin is None:
        return abs(len(name) - len(other)) == 1
    one, two = name[begin:], other[begin:]
    return (
        one[1:] == two
        or one == two[1:]
        or (one[1:] == two[1:] and len(name) >= _CHANGED_MIN)
        or (one[:2] == two[1::-1] and one[2:] == two[2:])
    )


_LETTERS_MIN: Final = 4
_CHANGED_MIN: Final = 8  # `seller` and `teller` are two words
_SELECTORS: Final = frozenset(("from", "exclude", "visibility", "veto", "quorum"))


def _iter_roles(value: Json, at: Path) -> Iterator[tuple[Path, str]]:
    """The roles that a document names, with their places."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key in _SELECTORS:
            words = each if isinstance(each, list | dict) else [each]
            for index, word in enumerate(words):
                if isinstance(word, str) and word.startswith("role:") and "${{" not in word:
                    inner = (index,) if isinstance(each, list) else (word,) if isinstance(each, dict) else ()
                    yield (*at, key, *inner), word.removeprefix("role:")
        elif key not in _DATA:
            yield from _iter_roles(each, (*at, key))


def _iter_channels(value: Json, at: Path) -> Iterator[tuple[Path, str]]:
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key == "notify" and isinstance(each, list):
            yield from (((*at, key, index), text) for index, text in enumerate(each) if isinstance(text, str))
        elif key not in _DATA:
            yield from _iter_channels(each, (*at, key))
