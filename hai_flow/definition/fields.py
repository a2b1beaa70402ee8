"""The parts that occur everywhere in a document: texts, expressions, durations, retries, schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from hai_flow.definition import plan
from hai_flow.definition.checks.nullability import DOUBTS, REFUSALS
from hai_flow.definition.expressions.evaluation import CompiledExpression, CompiledTemplate
from hai_flow.definition.expressions.expression_error import ExpressionFault, Faults
from hai_flow.definition.expressions.expressions import (
    compile_expression,
    compile_source,
    compile_template,
    list_choices,
    list_values,
)
from hai_flow.definition.names.durations import NotADuration, guess_duration, milliseconds, spell
from hai_flow.definition.names.holes import WrittenHole, split_holes
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.wording import kind_of, shorten, suggestion
from hai_flow.definition.people.calendars import WORKING_DAYS_MAX, count_working_days
from hai_flow.definition.schemas.schemas import JsonSchema, compile_schema
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.key_table import DOCUMENT_SHAPES
from hai_flow.definition.yaml.mapping_reader import Reader
from hai_flow.values import Json

DEADLINE_DEFAULT: Final = 7 * 24 * 3_600_000  # milliseconds

KNOWN_CODES: Final = frozenset((
    "input.invalid", "state.invalid", "expression.error", "expression.absent", "expression.budget",
    "expression.too_large", "step.timeout", "step.lost", "step.in_doubt", "step.file_unknown", "step.file_too_large",
    "step.file_unavailable", "tool.failed", "tool.unavailable",
    "tool.invalid_arguments", "tool.invalid_result", "tool.expired", "tool.declined", "http.status",
    "http.connection", "http.expect", "http.refused", "http.too_large", "http.invalid_request",
    "http.invalid_response", "http.callback_expired", "mcp.unavailable", "mcp.tool_changed",
    "mcp.not_configured", "mcp.unauthorized",
    "secret.missing", "secret.refused", "llm.rate_limited", "llm.timeout",
    "llm.unavailable", "llm.truncated", "llm.empty", "llm.invalid_output", "llm.refused", "llm.context_exceeded",
    "llm.invalid_request", "llm.not_configured", "agent.max_turns", "approval.rejected", "approval.responded",
    "approval.expired", "approval.impossible", "approval.withdrawn", "approval.calendar", "approval.stale",
    "ask.expired", "ask.withdrawn", "wait_for.expired", "for_each.duplicate_key",
    "repeat.exhausted", "run.failed", "run.stopped", "undo.failed", "limit.tokens", "limit.cost",
    "limit.tool_calls", "limit.duration", "limit.steps", "limit.waits", "limit.log",
))  # fmt: skip
RESERVED_PREFIXES: Final = frozenset(code.partition(".")[0] for code in KNOWN_CODES)
DATA: Final = ("input.", "state.", "steps.", "event.", "run.", "thread.", "error.", "response.")
_EXPRESSION: Final = re.compile(
    r"[!(\s]{0,9}(?:(?:size|has|int|double|string|timestamp|duration)\()?(?:input|state|steps)\.\??[a-z_].{1,300}"
)
_FOREIGN: Final = re.compile(
    r"(?<![$\w{])(?:\$\{|\{\{|\$\(|\{)\s{0,9}(?P<path>[A-Za-z_][\w.\[\]]{0,200}?)\s{0,9}(?:\}\}|[})])(?!\})"
)
_BLOCK: Final = re.compile(r"\{%-?\s{0,9}(?:if|elif|else|endif|for|endfor|set)\b[^%]{0,200}%\}")  # of Jinja and Liquid
_CALLBACK: Final = "callback:"  # of events that a service sends which was asked
_EVENT_CHARS_MAX: Final = 200
_FOREIGN_MAX: Final = 20  # of one text; each is looked up
_MEANT: Final = {"until": ("true", "false"), "while": ("true", "false"), "when": ("true",)}
"""Literals that are meant: a loop that `break` leaves, a last case or a question that is always there."""
CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,62}(\.[a-z0-9_]{1,63}){0,3}")


@dataclass(frozen=True, slots=True)
class Constant:
    """plan.Template: a value that the compiler itself wrote."""

    written: Json
    roots: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()
    holes: tuple[plan.Hole, ...] = ()

    def render(self, scope: Mapping[str, Json]) -> Json:
        return self.written


@dataclass(frozen=True, slots=True)
class Record:
    """plan.Template: a mapping of which each value is a template of its own."""

    parts: tuple[tuple[str, plan.Template], ...]

    @property
    def written(self) -> Json:
        return {key: part.written for key, part in self.parts}

    @property
    def roots(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.roots for _, part in self.parts))

    @property
    def steps(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.steps for _, part in self.parts))

    @property
    def holes(self) -> tuple[plan.Hole, ...]:
        return tuple(hole._replace(place=(key, *hole.place)) for key, part in self.parts for hole in part.holes)

    def render(self, scope: Mapping[str, Json]) -> Json:
        """The mapping with every hole filled. Raises `ExpressionError`."""
        return {key: part.render(scope) for key, part in self.parts}


@dataclass(eq=False)
class Parts:
    """Compiles the parts that occur everywhere, and reports to `reader`.

    `declared_tools` (None: declared, but wrong) and `fail_codes` (those of the document's own `fail` steps) say which
    errors there may be.
    """

    reader: Reader
    declared_tools: Mapping[str, plan.Tool | None]
    fail_codes: Set[str]

    def retry(self, owner: Mapping[str, Json], at: Path, names: Names) -> plan.Retry | None:
        """The `retry` of a step or of `defaults`; None where there is none, or after a finding."""
        if not isinstance(owner.get("retry"), dict):
            return None
        at = (*at, "retry")
        fields = self.reader.fields(DOCUMENT_SHAPES["retry"], owner["retry"], at, "`retry`")
        errors = fields.get("errors")
        if errors is not None:
            self.patterns(errors, (*at, "errors"))
        every = self.duration(fields, "every", at, names, shortest=1)
        max_delay = self.duration(fields, "max_delay", at, names)
        if isinstance(every, int) and isinstance(max_delay, int) and max_delay < every:
            message = f"`max_delay`, {spell(max_delay)}, is shorter than `every`, {spell(every)}, which it cuts down"
            self.reader.warning((*at, "max_delay"), "retry.max_delay", f"{message}; raise it, or lower `every`")
        elif isinstance(every, int) and "max_delay" not in fields and every > plan.MAX_DELAY_MS:
            message = (
                f"`max_delay`, which is {spell(plan.MAX_DELAY_MS)} where none is written, cuts this down; write "
                f"`max_delay: {spell(every)}` too, or lower `every`"
            )
            self.reader.warning((*at, "every"), "retry.max_delay", message)
        if "max" not in fields:
            return None
        return plan.Retry(
            max=fields["max"],
            errors=tuple(errors) if errors is not None else None,
            backoff=fields.get("backoff", "fixed"),
            every=every if every is not None else plan.Retry(0).every,
            max_delay=max_delay if max_delay is not None else plan.Retry(0).max_delay,
            jitter=fields.get("jitter", True),
        )

    def patterns(self, patterns: Sequence[str], at: Path) -> None:
        for index, pattern in enumerate(patterns):
            place = (*at, index)
            prefix = pattern.partition(".")[0]
            if pattern == "*" or pattern in KNOWN_CODES or pattern in self.fail_codes:
                continue
            if pattern.endswith(".*") and CODE.fullmatch(pattern[:-2]):
                if prefix in RESERVED_PREFIXES or any(code.startswith(pattern[:-1]) for code in self.fail_codes):
                    continue
            elif not CODE.fullmatch(pattern):
                message = f"expected an error code, `prefix.*` or `*`, found `{shorten(pattern)}`"
                self.reader.error(place, "errors.pattern", message)
                continue
            self._check_code_pattern(pattern, prefix, place)

    def _check_code_pattern(self, pattern: str, prefix: str, at: Path) -> None:
        """A code that no step is known to raise. Python tools may raise codes of their own: those need a near match."""
        codes = KNOWN_CODES | self.fail_codes | {f"{word}.*" for word in RESERVED_PREFIXES}
        hint = suggestion(pattern, codes)
        tools_may_raise = any(
            isinstance(tool, plan.PythonTool) or tool is None for tool in self.declared_tools.values()
        )
        if tools_may_raise and prefix in self.declared_tools:  # the custom: a function's own codes begin with the tool
            return
        if prefix in RESERVED_PREFIXES or hint or not tools_may_raise:
            self.reader.warning(at, "errors.unknown_code", f"nothing raises the error code `{pattern}`{hint}")

    def duration(
        self,
        fields: Mapping[str, Json],
        key: str | int,
        at: Path,
        names: Names | None,
        shortest: int = 1_000,
        *,
        working: bool = False,
    ) -> plan.Duration | None:
        """The duration under `key`; None where there is none, or after a finding. Without `names` it is literal.
        `working`: it may count working days."""
        text = fields.get(key)  # type: ignore[call-overload]
        if not isinstance(text, str):
            return None
        return self.compile_duration(text, (*at, key), names, shortest, working=working)

    def compile_duration(
        self, text: str, at: Path, names: Names | None, shortest: int = 1_000, *, working: bool = False
    ) -> plan.Duration | None:
        """`text` as a duration: milliseconds, or a template where it is one whole hole or counts working days."""
        key = next((part for part in reversed(at) if isinstance(part, str)), "")
        if is_hole(text) and names is not None:
            text = text.strip()
            template = self.template(text, at, names, text=True)
            if (kind := find_other_kind(text, template, names)) is not None:
                number = shorten(text.strip()[3:-2].strip())
                hint = f"; give it a unit: ${{{{ string(int({number})) + 's' }}}}" if kind == "a number" else ""
                self.reader.error(
                    at, "duration.invalid", f"`{key}`: expected a duration such as 10m, found {kind}{hint}"
                )
            elif (doubt := names.doubt_value(text)) is not None:
                self.reader.warning(at, "duration.nullable", f"`{key}`: {doubt}")
            elif (fault := _find_duration_fault(text, names, shortest, working=working)) is not None:
                self.reader.refuse(at, "duration.invalid", f"`{key}`: {fault}")
            return template
        if (days := count_working_days(text)) is not None:
            if working and 1 <= days <= WORKING_DAYS_MAX:
                return Constant(text.strip())
            expected = f"1 to {WORKING_DAYS_MAX} working days" if working else "a duration such as 2d"
            hint = "" if working else "; working days count in `deadline` and `remind` of questions to people"
            self.reader.error(at, "duration.invalid", f"`{key}`: expected {expected}, found `{shorten(text)}`{hint}")
            return None
        try:
            return milliseconds(text, shortest=shortest)
        except NotADuration as error:
            meant = guess_duration(text)
            hint = f"; did you mean `{meant}`?" if meant else _duration_hint(text)
            if "${{" in text:
                hint = "; here it is written out, without holes" if names is None else _suggest_one_hole(text)
            with suppress(NotADuration):  # it may have been published while units had no order
                unordered = milliseconds(text, shortest=shortest, ordered=False)
                self.reader.refuse(at, "duration.invalid", f"`{key}`: {error}{hint}")
                return unordered
            self.reader.error(at, "duration.invalid", f"`{key}`: {error}{hint}")
            return None

    def condition(self, value: Json, at: Path, names: Names) -> CompiledExpression | None:
        """A bare expression that must be true or false; None after a finding."""
        source = value if isinstance(value, str) else str(value).lower()
        try:
            compiled = compile_expression(source, names, condition=True)
            for doubt in compiled.doubts:
                if doubt.code != "condition.certain" or source not in _MEANT.get(str(at[-1]), ()):
                    self._doubt(at, doubt)
            return compiled
        except Faults as faults:
            for fault in faults.faults:
                self.reader.error_inside(at, fault.offset, fault.code, fault.message)
            return None

    def _doubt(self, at: Path, doubt: ExpressionFault) -> None:
        report = self.reader.refuse_inside if doubt.code in REFUSALS else self.reader.warning_inside
        report(at, doubt.offset, doubt.code, doubt.message)

    def text(self, fields: Mapping[str, Json], key: str, at: Path, names: Names) -> CompiledTemplate | None:
        """The text under `key` with its holes; None where there is none."""
        return self.template(fields[key], (*at, key), names, text=True) if key in fields else None

    def literal(self, value: Json) -> plan.Template:
        return Constant(value)

    def template(
        self, value: Json, at: Path, names: Names, *, text: bool = False, wrapped: bool = False
    ) -> CompiledTemplate:
        """`value` compiled; `text`: as text; `wrapped`: the document has only the one item of the list `value`."""

        def report(path: Path, fault: ExpressionFault) -> None:
            place = (*at, *(path[1:] if wrapped else path))
            if fault.code == "expression.hole_in_key":
                self.reader.error(place, fault.code, fault.message, key=True)
            elif fault.code in DOUBTS | REFUSALS:
                self._doubt(place, fault)
            else:
                self.reader.error_inside(place, fault.offset, fault.code, fault.message)

        self._check_plain(value, at, names)
        return compile_template(value, names, report, text=text)

    def _check_plain(self, value: Json, at: Path, names: Names) -> None:
        """Other languages write a hole as `{{ x }}`, `${x}`, `$(x)` or `{x}`, or the path alone.

        A text may hold all of these. They are doubted where they name something of this place, `{{ }}` always.
        """
        for path, text in ((at, value),) if isinstance(value, str) else texts(value, at):
            if text.startswith(DATA) and (named := names.find_path_named(text)):
                self.reader.warning_inside(path, 0, "text.path", _report_plain_text(text, named))
            elif _EXPRESSION.fullmatch(text) and _is_expression(text, names):
                self.reader.warning_inside(path, 0, "text.path", _report_plain_text(text, text.strip()))
            elif text.count("{") != 2 * text.count("${{") or "$(" in text:  # more than holes of ours
                self._check_braces(text, path, names)
                block = _BLOCK.search(text)
                if block is not None:
                    message = (
                        f"`{shorten(block.group())}` is plain text here; write "
                        "${{ condition ? one : other }} for an `if`, ${{ rows.map(r, r.name).join(', ') }} for a `for`"
                    )
                    self.reader.warning_inside(path, block.start(), "text.braces", message)

    def _check_braces(self, text: str, path: Path, names: Names) -> None:
        for match in islice(_FOREIGN.finditer(text), _FOREIGN_MAX):
            certain = match.group().startswith(("${", "{{"))  # others are also of shells and formats
            if not certain and "." not in match["path"]:
                continue
            if text.rfind("${{", 0, match.start()) > text.rfind("}}", 0, match.start()):
                continue  # inside of a hole
            named = names.find_path_named(match["path"], guess=certain)
            if named:
                self.reader.warning_inside(path, match.start(), "text.braces", _report_plain_text(match.group(), named))
                return
        if "{{" not in text or "${{" in text:
            return
        match = re.search(r"(?<![${])\{\{[^{}]*\}\}", text)
        if match:
            message = "`{{ }}` is plain text here; a hole is written ${{ }}"
            self.reader.warning_inside(path, match.start(), "text.braces", message)

    def check_event_type(self, name: str, at: Path) -> None:
        """Report a type of events that a server takes from nobody."""
        if name.startswith(_CALLBACK):
            message = f"nobody can send an event whose type begins with `{_CALLBACK}`: steps get theirs; name another"
            self.reader.refuse(at, "event.never", message)
        elif len(name) > _EVENT_CHARS_MAX or not name.isprintable():
            message = f"nobody can send this event: a type has up to {_EVENT_CHARS_MAX} characters that can be seen"
            self.reader.refuse(at, "event.never", message)

    def schema(self, raw: Json, at: Path, *, closed: bool = False) -> JsonSchema | None:
        """`raw` compiled, `closed` to properties that it does not have; None after findings. Holes are findings."""
        clean = True
        for path, text in texts(raw, at):
            if "${{" in text.replace("$${{", ""):
                clean = False
                self.reader.error(path, "schema.hole", "a schema is literal: holes `${{ }}` are not filled here")
        compiled = self.compile_schema(raw, at, closed=closed)
        return compiled if clean else None

    def compile_schema(self, raw: Json, at: Path, *, closed: bool = False) -> JsonSchema | None:
        """`raw` compiled; None after findings."""

        def report(path: Path, code: str, message: str) -> None:
            self.reader.error((*at, *path), code, message, key=code == "schema.unknown_keyword")

        return compile_schema(raw, report, closed=closed)


def _is_expression(text: str, names: Names) -> bool:
    """Whether a text is an expression over the data of its place, as a whole."""
    try:
        _, scanned, _ = compile_source(text, names)
    except Faults:
        return False
    return bool(scanned.scan.chains)


def _report_plain_text(written: str, named: str) -> str:
    """The doubt about a text that would be the path `named` elsewhere."""
    return f"`{shorten(written)}` is plain text here; a hole is written ${{{{ {named} }}}}"


def _find_duration_fault(text: str, names: Names, shortest: int, *, working: bool) -> str | None:
    """Why what a hole gives is no duration: a literal in it, or every value that its type lists."""

    def explain(value: Json) -> str | None:
        if not isinstance(value, str):
            return f"expected a duration such as 10m, found {kind_of(value)}"
        if working and count_working_days(value) is not None:
            return None
        try:
            milliseconds(value, shortest=shortest, ordered=False)
        except NotADuration as error:
            meant = guess_duration(value)
            return f"{error}{f'; did you mean `{meant}`?' if meant else _duration_hint(value)}"
        return None

    faults = [explain(value) for value in list_values(text, names)]
    choices = [explain(value) for value in list_choices(text, names)]
    return next((fault for fault in faults if fault), choices[0] if choices and all(choices) else None)


def _suggest_one_hole(text: str) -> str:
    """The one hole for a text of a hole and a unit; holes give whole durations."""
    with suppress(Faults):
        match split_holes(text.strip()):
            case [WrittenHole() as hole, str() as unit] if unit.strip() in ("ms", "s", "m", "h", "d", "w"):
                source = hole.source.strip()
                source = source if source.startswith("string(") else f"string({source})"
                return f'; a hole gives the whole of it: ${{{{ {source} + "{unit.strip()}" }}}}'
    return "; a hole gives the whole of it, with its unit"


def _duration_hint(text: str) -> str:
    """A word on what has no length that always is the same."""
    if re.fullmatch(r"P?\s*[0-9.]+\s*(mo|M|y|Y|months?|years?)", text.strip()):
        return "; months and years are written as days, such as 30d or 365d"
    days = re.fullmatch(r"([0-9]{1,3})[ -]?(?:business|work|bank|week)[ -]?days?", text.strip().lower())
    if days is not None:
        word = "working day" if days[1] == "1" else "working days"
        return f"; write `{days[1]} {word}`, in `deadline` and `remind` of questions to people"
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*", text):
        return "; it is a length, not a date"
    return ""


def strip_hole(value: Json) -> Json:
    """`value` without the line break that `|` and `>` put behind a text, where it is exactly one hole."""
    return value.strip() if isinstance(value, str) and is_hole(value) else value


def is_hole(text: str) -> bool:
    """Whether `text` is exactly one hole."""
    if not text.strip().startswith("${{"):
        return False
    try:
        pieces = split_holes(text.strip())
    except Faults:
        return True  # open: the template's own finding says so
    return len(pieces) == 1 and not isinstance(pieces[0], str)


def texts(value: Json, at: Path) -> Iterator[tuple[Path, str]]:
    """Every text inside `value`, with its path."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts(item, (*at, index))


def find_other_kind(text: str, template: CompiledTemplate, names: Names) -> str | None:
    """The type of a hole that never gives text, in words; None: it may give text."""
    look = names.find_type(text)
    schema = None if look is None or look.optional else look.schema
    kind = template.type_before_text if look is None else schema.get("type") if isinstance(schema, Mapping) else None
    return _NO_TEXT.get(kind) if isinstance(kind, str) else None


_NO_TEXT: Final = {
    "number": "a number", "integer": "a number", "boolean": "true or false", "array": "a list", "object": "a mapping",
    "null": "null",
}  # fmt: skip


def is_literal(value: Json) -> bool:
    """Whether a value of a document is already final: no text in it has holes."""
    return not any("${{" in text for _, text in texts(value, ()))
