"""The parameters of each verb, read and compiled (LANGUAGE sections 3, 5, 7, 8, 9); and the pieces they share.

What is here looks at one step alone: which steps there are, their paths and who sees whom is compiler.py's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from hai_flow.definition import model, plan
from hai_flow.definition.document import Path, kind_of, shorten, suggestion
from hai_flow.definition.durations import NotADuration, milliseconds
from hai_flow.definition.expressions import (
    DOUBTS,
    CompiledExpression,
    CompiledTemplate,
    Fault,
    Faults,
    Names,
    compile_expression,
    compile_template,
    split_holes,
)
from hai_flow.definition.model import Reader
from hai_flow.definition.schemas import JsonSchema, compile_schema

Json: TypeAlias = Any

DEADLINE_DEFAULT: Final = 7 * 24 * 3_600_000  # milliseconds

KNOWN_CODES: Final = frozenset((
    "input.invalid", "state.invalid", "expression.error", "expression.absent", "expression.budget",
    "expression.too_large", "step.timeout", "step.lost", "step.in_doubt", "tool.failed", "tool.unavailable",
    "tool.invalid_arguments", "tool.invalid_result", "tool.expired", "tool.declined", "http.status",
    "http.connection", "http.expect", "http.refused", "http.too_large", "llm.rate_limited", "llm.timeout",
    "llm.unavailable", "llm.truncated", "llm.invalid_output", "llm.refused", "agent.max_turns", "approval.rejected",
    "approval.expired", "approval.impossible", "ask.expired", "wait_for.expired", "for_each.duplicate_key",
    "repeat.exhausted", "run.failed", "run.stopped", "undo.failed", "limit.tokens", "limit.cost",
    "limit.tool_calls", "limit.duration", "limit.steps",
))  # fmt: skip
RESERVED_PREFIXES: Final = frozenset(code.partition(".")[0] for code in KNOWN_CODES)
_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,62}(\.[a-z0-9_]{1,63}){0,3}")
_SELECTOR: Final = re.compile(r"(user|role|group):.+|requester|anyone")


class Written(Protocol):
    """A step as it stands in the document: its sound fields, and where it is."""

    fields: dict[str, Json]
    at: Path


class Verbs:
    """Compiles parameters. The declarations it checks them against are filled in before the first verb."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.fail_codes: set[str] = set()  # what the document's own `fail` steps raise
        self.tools: dict[str, plan.Tool | None] = {}  # None: declared, but wrong
        self.state: dict[str, plan.StateVariable | None] = {}
        self.default_deadline = DEADLINE_DEFAULT

    # -- verbs -----------------------------------------------------------------------------------------------------

    def _call(self, draft: Written, value: str, at: Path, names: Names) -> plan.Call | None:
        arguments = draft.fields.get("with", {})
        template = self._template(arguments, (*draft.at, "with"), names)
        name, _, function = value.partition(".")
        if name not in self.tools:
            hint = suggestion(name, self.tools) or "; declare it under `tools` (what is not declared can't be called)"
            self.reader.error(at, "tool.unknown", f"there is no tool `{shorten(name)}`{hint}")
            return None
        tool = self.tools[name]
        if function and not re.fullmatch(r"[A-Za-z0-9_./-]+", function):
            self.reader.error(at, "tool.function", f"expected `call: tool.function`, found `{shorten(value)}`")
            return None
        if tool is None or not self._function_fits(tool, function, value, at):
            return None
        if isinstance(tool, plan.FrontendTool):
            self._check_arguments(tool, arguments, draft)
            for key in ("retry", "timeout"):
                if key in draft.fields:
                    message = f"`{key}` is for effects; people have a `deadline` (in `tools.{name}.frontend`)"
                    self.reader.error((*draft.at, key), "call.people", message, key=True)
        return plan.Call(tool, function, template, draft.fields.get("stream") == "text")

    def _function_fits(self, tool: plan.Tool, function: str, value: str, at: Path) -> bool:
        if isinstance(tool, plan.FrontendTool):
            if function:
                self.reader.error(
                    at, "tool.function", f"a frontend tool is called by its name alone: `call: {tool.name}`"
                )
            return not function
        if ":" in tool.target and function:
            message = f"the tool `{tool.name}` is the one function {tool.target}; write `call: {tool.name}`"
            self.reader.error(at, "tool.function", message)
            return False
        if tool.target and ":" not in tool.target and not function:
            message = (
                f"the tool `{tool.name}` is the module {tool.target}; name a function: `call: {tool.name}.function`"
            )
            self.reader.error(at, "tool.function", message)
            return False
        return True

    def _check_arguments(self, tool: plan.FrontendTool, arguments: Mapping[str, Json], draft: Written) -> None:
        """The keys of `with` against the declared parameters, and those values that have no holes."""
        if tool.parameters is None:
            return
        raw = tool.parameters.raw
        properties = raw.get("properties", {})
        at = (*draft.at, "with")
        for name in raw.get("required", ()):
            if name not in arguments and "default" not in properties.get(name, {}):
                place = at if "with" in draft.fields else (*draft.at, "call")
                self.reader.error(
                    place, "call.missing_argument", f"the tool `{tool.name}` needs the argument `{name}`", key=True
                )
        for name, value in arguments.items():
            if name in properties:
                self._check_argument(tool, properties[name], value, (*at, name))
            elif "additionalProperties" not in raw and "patternProperties" not in raw:
                hint = suggestion(name, properties) or f"; it takes {', '.join(properties) or 'none'}"
                message = f"the tool `{tool.name}` has no argument `{name}`{hint}"
                self.reader.error((*at, name), "call.unknown_argument", message, key=True)

    def _check_argument(self, tool: plan.FrontendTool, schema: Json, value: Json, at: Path) -> None:
        if any("${{" in text for _, text in texts(value, ())) or not isinstance(schema, Mapping):
            return
        definitions = (
            {key: part for key, part in tool.parameters.raw.items() if key in ("$defs", "definitions")}
            if tool.parameters
            else {}
        )
        for fault in JsonSchema({**schema, **definitions}).findings(value)[:1]:
            message = f"the argument does not fit the tool `{tool.name}`: {fault['message']}"
            self.reader.error(at, "call.argument", message)

    def _say(self, value: Json, at: Path, names: Names) -> plan.Say | None:
        if isinstance(value, str):
            return plan.Say("text", self._template(value, at, names, text=True))
        fields = self.reader.fields(model.MessageShape, value, at, "`say`")
        kinds = [kind for kind in ("text", "thinking", "fold", "output") if kind in fields]
        if len(kinds) != 1:
            if kinds or not (isinstance(value, Mapping) and value.keys() - set(model.keys_of(model.MessageShape))):
                found = " and ".join(f"`{kind}`" for kind in kinds) or "none"
                self.reader.error(
                    at, "say.kind", f"expected one of `text`, `thinking`, `fold`, `output` in `say`, found {found}"
                )
            return None
        kind: Any = kinds[0]
        self._check_message(kind, fields[kind], (*at, kind))
        parts = {
            key: self._template(fields[key], (*at, key), names)
            for key in ("block_id", "layout", "style")
            if key in fields
        }
        content = self._template(fields[kind], (*at, kind), names, text=isinstance(fields[kind], str))
        return plan.Say(kind, content, **parts)

    def _check_message(self, kind: str, content: Json, at: Path) -> None:
        if kind == "fold":
            self.reader.fields(model.FoldShape, content, at, "`fold`")
            position = content.get("position")
            if isinstance(position, str) and position not in ("", "start", "end") and "${{" not in position:
                self.reader.error((*at, "position"), "say.position", f"expected `start` or `end`, found `{position}`")
        elif kind == "output" and "type" not in content:
            self.reader.error(at, "shape.missing_key", "`type` is missing in `output`", key=True)
        elif kind == "thinking" and isinstance(content, Mapping) and "content" not in content:
            self.reader.error(at, "shape.missing_key", "`content` is missing in `thinking`", key=True)

    def _ask(self, value: Json, at: Path, names: Names) -> plan.Ask | None:
        fields = self.reader.fields(model.AskParametersShape, value, at, "`ask`")
        title = self._text(fields, "title", at, names)
        message = self._text(fields, "message", at, names)
        policy = self._policy(fields, at, names, ("fail",), default=["requester"])
        if title is None or policy is None or policy.form is None:
            return None
        return plan.Ask(title, message, policy)

    def _approve(self, value: Json, at: Path, names: Names) -> plan.Approve | None:
        fields = self.reader.fields(model.ApproveParametersShape, value, at, "`approve`")
        title = self._text(fields, "title", at, names)
        message = self._text(fields, "message", at, names)
        evidence = self._template(fields["evidence"], (*at, "evidence"), names) if "evidence" in fields else None
        policy = self._policy(fields, at, names, ("reject", "fail"), default=None)
        self._options(fields, at)
        if title is None or policy is None:
            return None
        return plan.Approve(title, message, evidence, policy)

    def _options(self, fields: Mapping[str, Json], at: Path) -> None:
        options = fields.get("options", ["approve", "reject"])
        if not {"approve", "reject"} <= set(options):
            message = "expected `approve` and `reject` among the options; both must be possible"
            self.reader.error((*at, "options"), "approve.options", message)
        elif len(options) > 2:
            self.reader.error(
                (*at, "options"),
                "not_yet",
                "further options are part of flow/v1, but this release cannot run them yet; leave them out",
            )

    def _on_deadline(self, fields: Mapping[str, Json], at: Path, allowed: Sequence[str]) -> str:
        value = fields.get("on_deadline", allowed[0])
        if value in allowed if isinstance(value, str) else False:
            return value
        if isinstance(value, (Mapping, list)) and value:
            self.reader.error(
                (*at, "on_deadline"), "not_yet",
                f"this form of `on_deadline` is part of flow/v1, but this release knows only {' and '.join(allowed)}",
            )  # fmt: skip
        else:
            message = f"expected {' or '.join(f'`{word}`' for word in allowed)}, found {kind_of(value)}"
            self.reader.error((*at, "on_deadline"), "deadline.outcome", message)
        return allowed[0]

    def _form(self, fields: Mapping[str, Json], at: Path) -> tuple[Json, JsonSchema | None]:
        if "form" not in fields:
            return None, None
        form = fields["form"]
        place = (*at, "form")
        if form.get("type", "object") != "object":
            self.reader.error(
                (*place, "type"), "form.type", f"expected a form with `type: object`, found `{form['type']}`"
            )
            return form, None
        return form, self._schema({"type": "object", **form}, place, holes=True)

    def _policy(
        self, fields: Mapping[str, Json], at: Path, names: Names, outcomes: Sequence[str], default: Json
    ) -> plan.Policy | None:
        outcome: Any = self._on_deadline(fields, at, outcomes)
        form, schema = self._form(fields, at) if fields.get("form") is not None else (None, None)
        deadline = self._duration(fields, "deadline", at) or self.default_deadline
        if "from" not in fields and default is None:
            return None
        from_ = self._selectors(fields.get("from", default), (*at, "from"), names)
        exclude = None
        if "exclude" in fields:
            exclude = self._selectors(fields["exclude"], (*at, "exclude"), names, extra=("editor",), empty=True)
        quorum = fields.get("quorum", 1)
        self._check_quorum(quorum, (*at, "quorum"))
        return plan.Policy(
            from_,
            deadline,
            plan.Expiry(outcome),
            exclude=exclude,
            quorum=quorum,
            form=self._template({"type": "object", **form}, (*at, "form"), names) if schema is not None else None,
        )

    def _selectors(
        self, value: Json, at: Path, names: Names, extra: Sequence[str] = (), empty: bool = False
    ) -> CompiledTemplate:
        """A selector or a list of them, as a template of a list (a whole hole may give the list itself)."""
        is_hole = isinstance(value, str) and _is_hole(value)
        items = value if isinstance(value, list) else [value]
        if isinstance(value, list) and not value and not empty:
            self.reader.error(at, "selector.none", "expected at least one selector, found an empty list")
        for index, item in enumerate(items):
            place = (*at, index) if isinstance(value, list) else at
            self._check_selector(item, place, extra)
        return self._template(
            value if is_hole or isinstance(value, list) else [value],
            at,
            names,
            wrapped=not isinstance(value, list) and not is_hole,
        )

    def _check_selector(self, item: Json, at: Path, extra: Sequence[str]) -> None:
        if isinstance(item, str) and ("${{" in item or _SELECTOR.fullmatch(item) or item in extra):
            return
        words = ("requester", "anyone", *extra)
        hint = suggestion(item, words) if isinstance(item, str) and len(item) > 4 else ""  # `ann` is no `anyone`
        if isinstance(item, str) and not hint and re.fullmatch(r"\w+", item):
            hint = f"; did you mean `user:{item}` or `role:{item}`?"
        message = f"expected user:ID, role:NAME, group:NAME, {', '.join(words)}, found {kind_of(item)}{hint}"
        self.reader.error(at, "selector.invalid", message)

    def _check_quorum(self, quorum: Json, at: Path) -> None:
        """The shape, and a doubt about every quorum that one decider does not meet: this release does not count yet."""
        counts = quorum.values() if isinstance(quorum, Mapping) else [1 if quorum == "all" else quorum]
        if not counts or any(type(count) is not int or count < 1 for count in counts):
            self.reader.error(
                at,
                "quorum.invalid",
                f"expected a number from 1, `all` or a mapping of such numbers, found {kind_of(quorum)}",
            )
        elif quorum != 1:
            self.reader.warning(
                at,
                "quorum.not_counted",
                "this quorum is stored, but this release does not count yet: one decider decides",
            )

    def _set(self, value: Json, at: Path, names: Names) -> plan.Set | None:
        if isinstance(value, list):
            for index, raw in enumerate(value):
                self._check_operation(raw, (*at, index))
            return plan.Set(ops=self._template(value, at, names))
        if not value:
            self.reader.error(at, "set.empty", "expected at least one state variable in `set`, found none")
            return None
        pairs: list[tuple[str, plan.Template]] = []
        for key, item in value.items():
            self._check_target(key, (*at, key), pointer_form=key.startswith("/"))
            pairs.append((key, self._template(item, (*at, key), names)))
        return plan.Set(assign=tuple(pairs))

    def _check_operation(self, raw: Json, at: Path) -> None:
        fields = self.reader.fields(model.OperationShape, raw, at, "an operation of `set`")
        op = fields.get("op")
        if op in ("add", "replace", "test") and "value" not in fields:
            self.reader.error(at, "shape.missing_key", f"`value` is missing: `{op}` needs one")
        if op in ("move", "copy") and "from" not in fields:
            self.reader.error(at, "shape.missing_key", f"`from` is missing: `{op}` needs one")
        for key in ("path", "from"):
            if key in fields and fields[key] == "" and op != "test":
                self.reader.error((*at, key), "set.root", "the whole state can't be replaced; name a variable: /name")
            elif key in fields and fields[key] != "":
                self._check_target(fields[key], (*at, key), pointer_form=True, key=False)

    def _check_target(self, target: str, at: Path, *, pointer_form: bool, key: bool = True) -> None:
        """That `target` (a state name or a JSON Pointer) begins at a declared variable, and may be set so."""
        name = target
        if pointer_form:
            if not target.startswith("/"):
                message = f"expected a JSON Pointer such as /name/0, found `{shorten(target)}`"
                self.reader.error(at, "set.pointer", message, key=key)
                return
            name = target.split("/")[1].replace("~1", "/").replace("~0", "~")
        if name not in self.state:
            hint = suggestion(name, self.state) or "; declare it under `state`"
            self.reader.error(at, "set.unknown", f"there is no state variable `{shorten(name)}`{hint}", key=key)
            return
        variable = self.state[name]
        if pointer_form and variable is not None and variable.reduce:
            message = f"`{name}` has `reduce: {variable.reduce}`: set it by its name, not by a pointer"
            self.reader.error(at, "set.reduce", message, key=key)

    def _wait(self, value: Json, at: Path, names: Names) -> plan.Wait | None:
        fields = self.reader.fields(model.WaitForShape, value, at, "`wait`")
        given = [key for key in ("for", "until") if key in value]
        if len(given) != 1:
            found = " and ".join(f"`{key}`" for key in given) or "none"
            self.reader.error(at, "wait.kind", f"expected one of `for`, `until` in `wait`, found {found}")
            return None
        if "until" in fields:
            self._check_instant(fields["until"], (*at, "until"))
            return plan.Wait(until=self._template(fields["until"], (*at, "until"), names, text=True))
        if "for" not in fields:
            return None
        if _is_hole(fields["for"]):
            return plan.Wait(for_=self._template(fields["for"], (*at, "for"), names, text=True))
        duration = self._duration(fields, "for", at)
        return plan.Wait(for_=duration) if duration is not None else None

    def _check_instant(self, text: str, at: Path) -> None:
        if "${{" in text:
            return
        if JsonSchema({"type": "string", "format": "date-time"}).findings(text):
            message = f"expected an instant with its offset such as 2026-03-02T09:00:00Z, or a hole, found {text!r}"
            self.reader.error(at, "wait.until", message)

    def _fail(self, value: Json, at: Path, names: Names) -> plan.Fail | None:
        if isinstance(value, str):
            return plan.Fail(self._template(value, at, names, text=True))
        fields = self.reader.fields(model.FailParametersShape, value, at, "`fail`")
        message = self._text(fields, "message", at, names)
        code = fields.get("code", "fail")
        self._check_own_code(code, (*at, "code"))
        data = self._template(fields["data"], (*at, "data"), names) if "data" in fields else None
        return plan.Fail(message, code, data) if message is not None else None

    def _check_own_code(self, code: str, at: Path) -> None:
        if not _CODE.fullmatch(code):
            self.reader.error(at, "fail.code", f"expected a code such as `stock.empty`, found `{shorten(code)}`")
        elif code.partition(".")[0] in RESERVED_PREFIXES:
            prefix = code.partition(".")[0]
            self.reader.error(
                at, "fail.reserved_code", f"codes that begin with `{prefix}` are the engine's own; choose another"
            )

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _retry(self, owner: Mapping[str, Json], at: Path) -> plan.Retry | None:
        if not isinstance(owner, Mapping) or not isinstance(owner.get("retry"), Mapping):
            return None
        at = (*at, "retry")
        fields = self.reader.fields(model.RetryShape, owner["retry"], at, "`retry`")
        errors = fields.get("errors")
        if errors is not None:
            self._check_patterns(errors, (*at, "errors"))
        every = self._duration(fields, "every", at, shortest=1)
        max_delay = self._duration(fields, "max_delay", at)
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

    def _check_patterns(self, patterns: Sequence[str], at: Path) -> None:
        for index, pattern in enumerate(patterns):
            place = (*at, index)
            prefix = pattern.partition(".")[0]
            if pattern == "*" or pattern in KNOWN_CODES or pattern in self.fail_codes:
                continue
            if pattern.endswith(".*") and _CODE.fullmatch(pattern[:-2]):
                if prefix in RESERVED_PREFIXES or any(code.startswith(pattern[:-1]) for code in self.fail_codes):
                    continue
            elif not _CODE.fullmatch(pattern):
                message = f"expected an error code, `prefix.*` or `*`, found `{shorten(pattern)}`"
                self.reader.error(place, "errors.pattern", message)
                continue
            self._doubt_pattern(pattern, prefix, place)

    def _doubt_pattern(self, pattern: str, prefix: str, at: Path) -> None:
        """A code that nobody is known to raise. Python tools may raise codes of their own: those need a near match."""
        known = KNOWN_CODES | self.fail_codes | {f"{word}.*" for word in RESERVED_PREFIXES}
        hint = suggestion(pattern, known)
        tools_may_raise = any(isinstance(tool, plan.PythonTool) or tool is None for tool in self.tools.values())
        if prefix in RESERVED_PREFIXES or hint or not tools_may_raise:
            self.reader.warning(at, "errors.unknown_code", f"nothing raises the error code `{pattern}`{hint}")

    def _duration(self, fields: Mapping[str, Json], key: str, at: Path, shortest: int = 1_000) -> int | None:
        """Milliseconds of the duration under `key`; None where there is none, or after a finding."""
        text = fields.get(key)
        if not isinstance(text, str):
            return None
        if _is_hole(text):
            self.reader.error(
                (*at, key),
                "not_yet",
                f"a hole in `{key}` is part of flow/v1, but this release needs a duration written out",
            )
            return None
        try:
            return milliseconds(text, shortest=shortest)
        except NotADuration as error:
            self.reader.error((*at, key), "duration.invalid", f"`{key}`: {error}")
            return None

    def _condition(self, value: Json, at: Path, names: Names) -> CompiledExpression | None:
        source = value if isinstance(value, str) else str(value).lower()
        try:
            compiled = compile_expression(source, names, condition=True)
            for doubt in compiled.doubts:
                self.reader.warning_inside(at, doubt.offset, doubt.code, doubt.message)
            return compiled
        except Faults as faults:
            for fault in faults.faults:
                self.reader.error_inside(at, fault.offset, fault.code, fault.message)
            return None

    def _text(self, fields: Mapping[str, Json], key: str, at: Path, names: Names) -> CompiledTemplate | None:
        return self._template(fields[key], (*at, key), names, text=True) if key in fields else None

    def _template(
        self, value: Json, at: Path, names: Names, *, text: bool = False, wrapped: bool = False
    ) -> CompiledTemplate:
        """`value` compiled; `text`: as text; `wrapped`: the document has only the one item of the list `value`."""

        def report(path: Path, fault: Fault) -> None:
            place = (*at, *(path[1:] if wrapped else path))
            if fault.code == "expression.hole_in_key":
                self.reader.error(place, fault.code, fault.message, key=True)
            elif fault.code in DOUBTS:
                self.reader.warning_inside(place, fault.offset, fault.code, fault.message)
            else:
                self.reader.error_inside(place, fault.offset, fault.code, fault.message)

        self._warn_braces(value, at)
        return compile_template(value, names, report, text=text)

    def _warn_braces(self, value: Json, at: Path) -> None:
        """`{{ x }}` is what other languages write for a hole."""
        for path, text in texts(value, at):
            found = re.search(r"(?<![${])\{\{[^{}]*\}\}", text)
            if found and "${{" not in text:
                message = "`{{ }}` is plain text here; a hole is written ${{ }}"
                self.reader.warning_inside(path, found.start(), "text.braces", message)

    def _schema(self, raw: Json, at: Path, *, holes: bool = False) -> JsonSchema | None:
        """`raw` compiled. Holes are findings, but where a form may have them they are `not_yet`."""
        clean = self._no_holes(raw, at, holes)

        def report(path: Path, code: str, message: str) -> None:
            self.reader.error((*at, *path), code, message, key=code == "schema.unknown_keyword")

        compiled = compile_schema(raw, report)
        return compiled if clean else None

    def _no_holes(self, raw: Json, at: Path, form: bool) -> bool:
        clean = True
        for path, text in texts(raw, at):
            if "${{" in text.replace("$${{", ""):
                clean = False
                if form:
                    message = (
                        "holes in a form are part of flow/v1, but this release cannot fill them yet; write the value"
                    )
                    self.reader.error(path, "not_yet", message)
                else:
                    self.reader.error(path, "schema.hole", "a schema is literal: holes `${{ }}` are not filled here")
        return clean


def _is_hole(text: str) -> bool:
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
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts(item, (*at, index))
