"""From the bytes of a test document to a suite, or to every finding at once (docs/testing.md).

Read with the same reader of YAML as workflows are, so positions and the mistakes of YAML itself are answered alike.
Whether the names in it exist in the workflow is not asked here: `binding` does, once the workflow is compiled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, get_args

from hai_flow.authoring import keys_of_tests
from hai_flow.authoring.keys_of_tests import CONTROLS, ENDS, LINE, NOTICES, STARTS, VERSION
from hai_flow.definition.names.durations import NotADuration, guess_duration
from hai_flow.definition.names.durations import milliseconds as duration_ms
from hai_flow.definition.names.wording import kind_of, shorten, suggestion
from hai_flow.definition.people.calendars import VERSION as CALENDARS
from hai_flow.definition.people.calendars import Calendars, convert_calendars
from hai_flow.definition.yaml.document import Document, Path, parse
from hai_flow.definition.yaml.keys import Shape
from hai_flow.engine.commands import Principal
from hai_flow.engine.events import EVENT_TYPES
from hai_flow.engine.state.state import Status, StepStatus
from hai_flow.errors import Finding
from hai_flow.primitives import instants
from hai_flow.testing.sequences import ANY_NUMBER, ANYTHING
from hai_flow.testing.suite import (
    ABSENT,
    Advance,
    Answer,
    Behaviour,
    Case,
    CaseTrigger,
    Decide,
    Entry,
    Expect,
    Mock,
    MockError,
    Operate,
    Signal,
    Suite,
    ToolCall,
)
from hai_flow.values import Json

NOW: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z
REFUSALS: Final = (403, 404, 409, 410, 422)
RUN_STATUSES: Final[tuple[str, ...]] = tuple(status for status in get_args(Status) if status != "new")
STEP_STATUSES: Final[tuple[str, ...]] = get_args(StepStatus)
EVENT_NAMES: Final = frozenset(str(kind.__struct_config__.tag) for kind in EVENT_TYPES)

_FINISHED: Final = frozenset({"done", "success", "succeeded", "completed", "complete", "ok", "passed"})
_KINDS: Final[dict[str, tuple[type, str]]] = {
    "text": (str, "text"), "enum": (str, "text"), "map": (dict, "a mapping"), "shape": (dict, "a mapping"),
    "list": (list, "a list"), "integer": (int, "a whole number"), "boolean": (bool, "true or false"),
    "any": (object, ""),
}  # fmt: skip
_PERSON = re.compile(r"(role|group):(.+)")


def read_suite(source: bytes, file: str = "<tests>") -> tuple[Suite | None, list[Finding]]:
    """The suite of a test document, and every finding in document order. No suite where there is a finding."""
    document = parse(source, file)
    reader = _SuiteBuilder(document)
    suite = reader.suite() if document.value is not None or not document.findings else None
    findings = sorted(reader.findings, key=lambda finding: (finding.line, finding.column))
    return (None if findings else suite), findings


class _SuiteBuilder:
    """Reads the mappings of one document and gathers findings: one mistake is one, and the rest is still read."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.findings = [_reword(finding) for finding in document.findings]
        self.people: dict[str, Principal] = {}

    def error(self, at: Path, code: str, message: str, *, key: bool = False) -> None:
        line, column = self.document.position(at, key=key)
        self.findings.append(Finding(self.document.file, line, column, "error", code, message))

    # --- mappings -------------------------------------------------------------------------------------------------

    def fields(self, value: Json, at: Path, shape: Shape, where: str = "") -> dict[str, Json]:
        """The sound fields of `value`. `where` names the mapping in messages, in place of the shape's title.

        An unknown key where a required one is missing is one mistake, and one finding."""
        where = where or shape.title
        if not isinstance(value, dict):
            self.error(at, "test.type", f"expected a mapping for {where}, found {kind_of(value)}")
            return {}
        sound: dict[str, Json] = {}
        kinds = {key.name: key.type.kind for key in shape.keys}
        missing = [key.name for key in shape.keys if key.required and key.name not in value]
        for key, item in value.items():
            if key not in kinds:
                hint = suggestion(key, kinds) or f"; the keys are {', '.join(kinds)}"
                lack = f", where `{missing.pop(0)}` is missing" if missing else ""
                self.error((*at, key), "test.unknown_key", f"unknown key `{key}` in {where}{lack}{hint}", key=True)
            elif self._is(item, kinds[key]):
                sound[key] = item
            else:
                message = f"`{key}`: expected {_KINDS[kinds[key]][1]}, found {kind_of(item)}"
                self.error((*at, key), "test.type", message)
        for key in missing:
            self.error(at, "test.missing_key", f"`{key}` is missing in {where}", key=bool(at))
        return sound

    @staticmethod
    def _is(value: Json, kind: str) -> bool:
        return isinstance(value, _KINDS[kind][0]) and (kind != "integer" or not isinstance(value, bool))

    def texts(self, value: Json, at: Path, what: str) -> list[str]:
        """The texts of a list; anything else is a finding."""
        sound: list[str] = []
        for number, item in enumerate(value):
            if isinstance(item, str):
                sound.append(item)
            else:
                self.error((*at, number), "test.type", f"expected {what} (text), found {kind_of(item)}")
        return sound

    def counts(self, value: Mapping[str, Json], at: Path) -> dict[str, int]:
        """A map of names to how often; anything but a number is a finding."""
        sound: dict[str, int] = {}
        for name, count in value.items():
            if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
                sound[name] = count
            else:
                self.error(
                    (*at, name), "test.count", f"expected how often (a whole number from 0), found {kind_of(count)}"
                )
        return sound

    def check_word(self, word: str, known: tuple[str, ...] | frozenset[str], at: Path, what: str) -> None:
        if word not in known:
            meant = "finished" if word in _FINISHED and "finished" in known else word
            hint = suggestion(meant, known) or f"; expected one of {', '.join(sorted(known))}"
            self.error(at, "test.word", f"there is no {what} `{shorten(word)}`{hint}")

    # --- the document ---------------------------------------------------------------------------------------------

    def suite(self) -> Suite | None:
        value = self.document.value
        version = value.get("hai") if isinstance(value, dict) else VERSION
        if isinstance(version, str) and version != VERSION:
            hint = "; this is a workflow, its tests are a file of their own" if version == "flow/v1" else ""
            self.error(("hai",), "test.version", f"expected `hai: {VERSION}`, found `{shorten(version)}`{hint}")
            if version == "flow/v1":
                return None
        fields = self.fields(value, (), keys_of_tests.DOCUMENT)
        self._read_people(fields.get("people", {}))
        mocks = self._mocks(fields.get("mock", {}), ("mock",))
        cases = self._cases(fields.get("cases"))
        return Suite(
            document=self.document,
            workflow=fields.get("workflow", ""),
            now=self._instant(fields["now"], ("now",)) if "now" in fields else NOW,
            people=self.people,
            mock=mocks,
            cases=tuple(cases),
            calendars=self._read_calendars(fields.get("calendars", {})),
        )

    def _read_calendars(self, value: Json) -> Calendars:
        """The calendars of working days, as the file of a deployment has them."""
        file, faults = convert_calendars({"hai": CALENDARS, "calendars": value})
        for fault in faults:
            self.error(("calendars",), "test.calendars", fault)
        return file.calendars

    def _instant(self, text: str, at: Path) -> int:
        try:
            instant = datetime.fromisoformat(text)
        except ValueError:
            instant = None
        if instant is None or instant.tzinfo is None:
            message = f"expected an instant with offset such as 2026-03-02T09:00:00Z, found {shorten(text)!r}"
            self.error(at, "test.now", message)
            return NOW
        return instants.milliseconds(instant)

    def _read_people(self, value: Mapping[str, Json]) -> None:
        for name, raw_selectors in value.items():
            at = ("people", name)
            if name.startswith(("user:", "role:", "group:")) or not name.strip():
                message = f"expected a person's name without `user:` such as `ann`, found `{shorten(name)}`"
                self.error(at, "test.person", message, key=True)
            selectors = [raw_selectors] if isinstance(raw_selectors, str) else raw_selectors
            roles: list[str] = []
            groups: list[str] = []
            if not isinstance(selectors, list):
                self.error(
                    at, "test.person", f"expected a list such as [role:controller], found {kind_of(raw_selectors)}"
                )
                selectors = []
            for number, selector in enumerate(selectors):
                match = _PERSON.fullmatch(selector) if isinstance(selector, str) else None
                if match is None:
                    place = at if isinstance(raw_selectors, str) else (*at, number)
                    actual = kind_of(selector)
                    self.error(place, "test.person", f"expected `role:NAME` or `group:NAME`, found {actual}")
                else:
                    (roles if match[1] == "role" else groups).append(match[2])
            self.people[name] = Principal(f"user:{name}", tuple(roles), tuple(groups))

    def _person(self, fields: Mapping[str, Json], key: str, at: Path) -> str | None:
        """The name of a person in `people`; None where the key is missing, or wrong."""
        name = fields.get(key)
        if name is None or name in self.people:
            return name
        bare = name.removeprefix("user:")
        if bare in self.people:
            hint = f"; write `{bare}`, without `user:`"
        else:
            hint = suggestion(name, self.people) or f"; write `{shorten(bare)}: []` there"
        self.error((*at, key), "test.person", f"there is nobody `{shorten(name)}` in `people`{hint}")
        return None

    # --- mocks ----------------------------------------------------------------------------------------------------

    def _mocks(self, value: Mapping[str, Json], at: Path) -> dict[str, Mock]:
        return {name: self._mock(name, raw, (*at, name)) for name, raw in value.items()}

    def _mock(self, name: str, value: Json, at: Path) -> Mock:
        if isinstance(value, list):
            behaviours = tuple(self._behaviour(item, (*at, number), name) for number, item in enumerate(value))
            if not behaviours:
                self.error(at, "test.mock", f"expected what `{name}` does call after call, found an empty list")
            return Mock(name, at, behaviours, successive=True)
        return Mock(name, at, (self._behaviour(value, at, name),), successive=False)

    def _behaviour(self, value: Json, at: Path, name: str) -> Behaviour:
        fields = self.fields(value, at, keys_of_tests.REPLY, f"the mock of `{name}`")
        ends = [key for key in ("output", "error", "text") if key in fields]
        if len(ends) > 1:
            message = f"expected one of `output`, `error`, `text`, found {' and '.join(f'`{key}`' for key in ends)}"
            self.error((*at, ends[1]), "test.mock", message, key=True)
        elif not ends and "tool_calls" not in fields and isinstance(value, dict) and not (set(value) - {*fields}):
            self.error(at, "test.mock", f"expected `output`, `error`, `text` or `tool_calls` in the mock of `{name}`")
        output = fields["output"] if "output" in fields else fields.get("text", ABSENT)
        error = self._mock_error(fields["error"], (*at, "error"), name) if "error" in fields else None
        return Behaviour(at, output, error, self._tool_calls(fields.get("tool_calls", ()), (*at, "tool_calls")))

    def _mock_error(self, value: Json, at: Path, name: str) -> MockError:
        fields = self.fields(value, at, keys_of_tests.ERROR, f"the error of `{name}`")
        default = MockError()
        wait = fields.get("retry_after")
        return MockError(
            fields.get("code", default.code),
            fields.get("message", default.message),
            fields.get("retriable"),
            fields.get("data"),
            None if wait is None else self._duration(wait, (*at, "retry_after")),
        )

    def _tool_calls(self, value: Json, at: Path) -> tuple[ToolCall, ...]:
        calls: list[ToolCall] = []
        for number, item in enumerate(value):
            place = (*at, number)
            if isinstance(item, str):
                calls.append(ToolCall(item, place, {}))
                continue
            fields = self.fields(item, place, keys_of_tests.TOOL_CALL)
            if "call" in fields:
                calls.append(ToolCall(fields["call"], place, fields.get("with", {})))
        return tuple(calls)

    def _duration(self, text: str, at: Path) -> int:
        try:
            return duration_ms(text)
        except NotADuration as error:
            meant = guess_duration(text)
            self.error(at, "test.duration", f"{error}; write {meant}" if meant else str(error))
            return 0

    # --- cases ----------------------------------------------------------------------------------------------------

    def _cases(self, value: Json) -> list[Case]:
        if value == []:
            self.error(("cases",), "test.no_cases", "expected at least one case, found an empty list")
        cases: list[Case] = []
        lines: dict[str, int] = {}
        for number, raw in enumerate(value or ()):
            at = ("cases", number)
            case = self._case(raw, at)
            if case.name in lines:
                message = f"the name `{shorten(case.name)}` is used twice (first at line {lines[case.name]})"
                self.error((*at, "name"), "test.duplicate_name", f"{message}; choose another")
            elif case.name:
                lines[case.name] = self.document.position((*at, "name"))[0]
            cases.append(case)
        return cases

    def _case(self, value: Json, at: Path) -> Case:
        fields = self.fields(value, at, keys_of_tests.CASE)
        script = [self._entry(item, (*at, "script", number)) for number, item in enumerate(fields.get("script", ()))]
        events = self.texts(fields.get("events", ()), (*at, "events"), "the type of an event")
        for number, event in enumerate(events):
            self.check_word(event, EVENT_NAMES, (*at, "events", number), "event")
        return Case(
            at=at,
            name=fields.get("name", ""),
            requester=self._person(fields, "requester", at),
            input=fields.get("input", {}),
            state=fields.get("state", {}),
            mock=self._mocks(fields.get("mock", {}), (*at, "mock")),
            script=tuple(entry for entry in script if entry is not None),
            expect=self._expect(fields["expect"], (*at, "expect")) if "expect" in fields else None,
            events=tuple(events),
            start=self._start(fields, at),
        )

    def _start(self, fields: Mapping[str, Json], at: Path) -> CaseTrigger | None:
        start = fields.get("start")
        if start is None:
            return None
        place = (*at, "start")
        kinds = ", ".join(f"`{kind}`" for kind in STARTS)
        if len(start) != 1 or next(iter(start)) not in STARTS:
            actual = " and ".join(f"`{key}`" for key in start) or "nothing"
            hint = suggestion(next(iter(start), ""), STARTS)
            self.error(place, "test.start", f"expected what starts the run, one of {kinds}; found {actual}{hint}")
            return None
        for other in ("input", "requester"):
            if other in fields:
                message = f"`{other}` is what a request has; a run that `start` begins has what its trigger says"
                self.error((*at, other), "test.start", message, key=True)
        ((kind, value),) = start.items()
        read = self.fields({} if value is None else value, (*place, kind), STARTS[kind])
        at_ms = self._instant(read["at"], (*place, kind, "at")) if "at" in read else None
        if kind == "run" and "status" in read:
            self.check_word(read["status"], ENDS, (*place, kind, "status"), "end of a run")
        return CaseTrigger((*place, kind), kind, read, at_ms, self._person(read, "by", (*place, kind)))

    def _entry(self, value: Json, at: Path) -> Entry | None:
        if isinstance(value, str):  # `- pause`
            value = {value: None}
        if not isinstance(value, dict):
            message = f"expected an entry of the script such as `advance: 2d`, found {kind_of(value)}"
            self.error(at, "test.type", message)
            return None
        if len(value) != 1:
            names = " and ".join(f"`{key}`" for key in value) or "none"
            message = f"expected exactly one verb in an entry of the script, found {names}; make it an entry each"
            self.error(at, "test.two_verbs", message)
            return None
        ((verb, parameters),) = value.items()
        place = (*at, verb)
        if verb not in LINE.words:
            hint = suggestion(verb, LINE.words) or f"; the verbs are {', '.join(LINE.words)}"
            self.error(place, "test.unknown_verb", f"there is no verb `{shorten(verb)}` in a script{hint}", key=True)
            return None
        if verb in CONTROLS:
            if parameters:
                self.error(place, "test.type", f"expected nothing behind `{verb}`, found {kind_of(parameters)}")
            return Operate(place, verb)
        return _ENTRIES[verb](self, parameters, place)

    def _advance(self, value: Json, at: Path) -> Advance:
        if isinstance(value, str):
            return Advance(at, self._duration(value, at))
        self.error(at, "test.duration", f"expected a duration such as 2d, found {kind_of(value)}")
        return Advance(at, 0)

    def _decide(self, value: Json, at: Path) -> Decide:
        fields = self.fields(value, at, keys_of_tests.DECIDE)
        return Decide(
            at,
            fields.get("pending", ""),
            self._person(fields, "by", at),
            fields.get("decision", ""),
            fields.get("reason"),
            fields.get("values", ABSENT),
            fields.get("edits", ABSENT),
            self._read_refusal(fields, at),
        )

    def _answer(self, value: Json, at: Path) -> Answer:
        fields = self.fields(value, at, keys_of_tests.ANSWER)
        is_known = isinstance(value, dict) and value.keys() <= set(keys_of_tests.ANSWER.words)
        if isinstance(value, dict) and is_known and ("value" in value) == ("error" in value):
            message = "expected one of `value` (what is answered) and `error` (what the frontend reports) in `answer`"
            self.error(at, "test.answer", message, key=True)
        return Answer(
            at,
            fields.get("pending", ""),
            self._person(fields, "by", at),
            fields.get("value", ABSENT),
            fields.get("error"),
            self._read_refusal(fields, at),
        )

    def _read_refusal(self, fields: Mapping[str, Json], at: Path) -> int | None:
        status = fields.get("refused")
        if status is not None and status not in REFUSALS:
            message = f"expected the status of a refusal ({', '.join(map(str, REFUSALS))}), found {status}"
            self.error((*at, "refused"), "test.refused", message)
        return status

    def _signal(self, value: Json, at: Path) -> Signal:
        fields = self.fields(value, at, keys_of_tests.SIGNAL)
        return Signal(at, fields.get("type", ""), fields.get("data"))

    def _expect(self, value: Json, at: Path) -> Expect:
        fields = self.fields(value, at, keys_of_tests.EXPECT)
        if not isinstance(fields.get("error"), dict | None):
            actual = kind_of(fields.pop("error"))
            self.error(
                (*at, "error"), "test.type", f"`error`: expected a mapping, or null for no error, found {actual}"
            )
        if "status" in fields:
            self.check_word(fields["status"], RUN_STATUSES, (*at, "status"), "status of a run")
        for key, what in (("pending", "the path of a step"), ("not_called", "the name of a tool")):
            if key in fields:
                fields[key] = self.texts(fields[key], (*at, key), what)
        for key in ("calls", "escalated"):
            if key in fields:
                fields[key] = self.counts(fields[key], (*at, key))
        self._read_lists(fields, at)
        for name, status in fields.get("steps", {}).items():
            place = (*at, "steps", name)
            if isinstance(status, str):
                self.check_word(status, STEP_STATUSES, place, "status of a step")
            else:
                self.error(place, "test.type", f"expected the status of a step (text), found {kind_of(status)}")
        return Expect(at, fields)

    def _read_lists(self, fields: Mapping[str, Json], at: Path) -> None:
        """Look at what is expected of calls, messages and notifications."""
        for name, calls in fields.get("called", {}).items():
            place = (*at, "called", name)
            if not isinstance(calls, list):
                hint = f"; write `[{{...}}]` for one, `[]` for none, `{ANY_NUMBER}` in it for any number"
                self.error(place, "test.type", f"expected the calls in a list, found {kind_of(calls)}{hint}")
                continue
            for number, call in enumerate(calls):
                if not isinstance(call, dict) and call not in (ANYTHING, ANY_NUMBER):
                    message = f"expected the arguments of a call (a mapping), or `*`, or `...`; found {kind_of(call)}"
                    self.error((*place, number), "test.type", message)
        self.texts(fields.get("said", ()), (*at, "said"), "a message")
        for number, notice in enumerate(fields.get("notified", ())):
            place = (*at, "notified", number)
            if isinstance(notice, str):
                continue
            read = self.fields(notice, place, keys_of_tests.NOTICE)
            if "because" in read:
                self.check_word(read["because"], NOTICES, (*place, "because"), "notification")


_ENTRIES: Final[dict[str, Callable[[_SuiteBuilder, Json, Path], Entry]]] = {
    "expect": _SuiteBuilder._expect,
    "decide": _SuiteBuilder._decide,
    "answer": _SuiteBuilder._answer,
    "signal": _SuiteBuilder._signal,
    "advance": _SuiteBuilder._advance,
}


def _reword(finding: Finding) -> Finding:
    """A finding about the YAML, in the words of this document."""
    if finding.code != "yaml.empty":
        return finding
    message = f"expected tests, found an empty file; begin with `hai: {VERSION}`"
    return Finding(finding.file, finding.line, finding.column, finding.severity, finding.code, message)
