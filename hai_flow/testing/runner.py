"""A case performed: its run started, its script played entry by entry, its expectations compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from hai_flow.definition.plan import Plan
from hai_flow.definition.yaml.document import Path
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.primitives import instants
from hai_flow.testing.cassettes import Cassette, Tape
from hai_flow.testing.coverage import Coverage
from hai_flow.testing.documents.triggering import REQUESTER, Triggered, trigger_run
from hai_flow.testing.failures import CaseFailed, Failure, differences, find_hollow
from hai_flow.testing.instances import means, paths_meant
from hai_flow.testing.mocks import Mocks
from hai_flow.testing.sequences import ANY_NUMBER, is_sequence
from hai_flow.testing.suite import ABSENT, Advance, Answer, Case, Decide, Entry, Expect, Operate, Signal, Suite
from hai_flow.testing.virtual_run import VirtualRun
from hai_flow.values import Json


class Result(msgspec.Struct, frozen=True):
    """The result of a case. `run` is a line about where its run stood at the end, `notes` are the parts of a case that
    passed without having checked anything."""

    suite: Suite
    case: Case
    failures: tuple[Failure, ...]
    run: str
    seconds: float
    notes: tuple[Failure, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def line(self) -> int:
        """Where the case begins."""
        return self.suite.line(self.case.at)

    def as_dict(self) -> dict[str, Json]:
        """The result as `hai-flow test --json` prints it."""
        return {
            "file": self.suite.file,
            "line": self.line,
            "name": self.case.name,
            "outcome": "passed" if self.passed else "failed",
            "seconds": round(self.seconds, 6),
            "failures": [_failure_dict(self.suite.file, failure) for failure in self.failures],
            "notes": [_failure_dict(self.suite.file, note) for note in self.notes],
        }


def _failure_dict(file: str, failure: Failure) -> dict[str, Json]:
    record: dict[str, Json] = {"file": file, "line": failure.line, "column": failure.column, "message": failure.message}
    compared = {"expected": failure.expected, "found": failure.actual}
    return {**record, **{key: value for key, value in compared.items() if value is not ABSENT}}


def run_case(
    suite: Suite, case: Case, plan: Plan, cassette: Cassette | None = None, coverage: Coverage | None = None
) -> Result:
    """Perform one case of `suite` against `plan`. Differences are in the result; nothing is raised. `cassette` answers
    the calls that are not mocked; one that is being recorded keeps the calls of a case that passed. `coverage` takes in
    what the run did."""
    began = time.perf_counter()
    tape = None if cassette is None else cassette.of(case.name)
    playing = _Playing(suite, case, _with_state(plan, case.state), tape)
    failures = tuple(playing.play())
    if coverage is not None:
        paths_by_question = {id: pending.opened.path for id, pending in playing.run.state.pendings.items()}
        coverage.add(playing.run.log, paths_by_question)
    if cassette is not None and tape is not None and cassette.performer is not None and not failures:
        cassette.keep(tape)
    notes = () if failures else tuple(playing.list_notes())
    return Result(suite, case, failures, playing.summary(), time.perf_counter() - began, notes)


def _with_state(plan: Plan, state: Mapping[str, Json]) -> Plan:
    """The plan with a case's `state` in place of the variables' defaults."""
    if not state:
        return plan
    variables = {
        name: msgspec.structs.replace(variable, default=state[name]) if name in state else variable
        for name, variable in plan.state.items()
    }
    return replace(plan, state=variables)


class _Playing:
    def __init__(self, suite: Suite, case: Case, plan: Plan, tape: Tape | None) -> None:
        self.suite = suite
        self.case = case
        self.triggered: Triggered | None = None
        self.hollow: list[Path] = []  # the places of expectations to which anything would have been as expected
        self.run = VirtualRun(plan, Mocks(plan, case.mock, suite.mock, tape=tape), suite.now, suite.calendars)

    # --- the script -----------------------------------------------------------------------------------------------

    def play(self) -> list[Failure]:
        """Play the case. Returns the failures of the first entry of its script that has any."""
        case = self.case
        at: Path = case.at
        try:
            self._start()
            for entry in case.script:
                at = entry.at
                failures = self._perform(entry)
                if failures:
                    return failures
            if case.expect is not None:
                at = case.expect.at
                failures = list(self._compare(case.expect))
                if failures:
                    return failures
            at = (*case.at, "events")
            self._compare_events()
            at = case.at
            self._check_unexpected_failure()
        except Rejected as rejected:
            return [self._failure(at, f"refused with {rejected.status}: {_refusal(rejected)}")]
        except CaseFailed as failed:
            return [self._failure(at, str(failed))]
        return []

    def _start(self) -> None:
        case, run = self.case, self.run
        if case.start is None:
            run.start(self.suite.requester(case).id, case.input)
        else:
            by = self.suite.people.get(case.start.by) if case.start.by is not None else None
            if case.start.at_ms is not None:
                run.now = max(run.now, case.start.at_ms)
            self.triggered = trigger_run(run.plan, case.start, run.now)
            if not self.triggered.started:
                return
            run.start(
                REQUESTER,
                self.triggered.input,
                trigger=case.start.kind,
                scheduled_at=self.triggered.scheduled_at,
                instigators=() if by is None else (by.id,),
            )
        run.settle()

    def _perform(self, entry: Entry) -> list[Failure]:
        if isinstance(entry, Expect):
            return list(self._compare(entry))
        _PERFORMANCES[type(entry)](self, entry)
        self.run.settle()
        return []

    def _decide(self, entry: Decide) -> None:
        id = self._pending(entry.pending, late=entry.refused is not None)
        answer = c.PendingAnswer(
            id=id,
            decision=entry.decision,
            reason=entry.reason,
            edits=_unset_if_absent(entry.edits),
            **{"result" if self.run.pending_kind(id) == "doubt" else "values": _unset_if_absent(entry.values)},
        )
        self._answer_with(answer, entry.by, entry.refused)

    def _answer(self, entry: Answer) -> None:
        id = self._pending(entry.pending, late=entry.refused is not None)
        if entry.error is not None:
            answer = c.PendingAnswer(id=id, error=entry.error)
        elif self.run.pending_kind(id) == "ask":
            answer = c.PendingAnswer(id=id, values=entry.value)
        else:
            answer = c.PendingAnswer(id=id, result=entry.value)
        self._answer_with(answer, entry.by, entry.refused)

    def _answer_with(self, answer: c.PendingAnswer, by: str | None, refused: int | None) -> None:
        """Send the answer. Raises `CaseFailed` where it is not refused as the test says."""
        person = self.suite.person(self.case, by)
        try:
            self.run.answer(answer, person)
        except Rejected as rejected:
            if rejected.status == refused:
                return
            if refused is None:
                raise
            raise CaseFailed(
                f"expected it to be refused with {refused}, but it was with {rejected.status}: {_refusal(rejected)}"
            ) from None
        if refused is not None:
            raise CaseFailed(f"expected it to be refused with {refused}, but what {person.id} sent was accepted")

    def _pending(self, path: str, *, late: bool) -> str:
        """The id of the pending at `path`; if the answer may be `late`, also of one that is closed."""
        meant = self.run.asking(path)
        if len(meant) > 1:
            places = ", ".join(f"`{each}`" for each in meant)
            raise CaseFailed(f"`{path}` is asked at {places}; say which, with the key of the loop: `{path}[KEY]`")
        path = meant[0] if meant else path
        id = self.run.pending_id(path)
        if id is None or (not late and path not in self.run.state.open_pendings):
            raise CaseFailed(f"nobody is asked at `{path}` now: {self.summary()}")
        return id

    def _signal(self, entry: Signal) -> None:
        self.run.signal(entry.type, entry.data)

    def _advance(self, entry: Advance) -> None:
        self.run.advance(entry.duration)

    def _operate(self, entry: Operate) -> None:
        getattr(self.run, entry.control)()

    # --- expectations ---------------------------------------------------------------------------------------------

    def _compare(self, expect: Expect) -> Iterator[Failure]:
        for key, expected in expect.values.items():
            at = (*expect.at, key)
            if key == "pending":
                named = paths_meant(expected, self.run.pending, self.run.plan.ids)
                yield from self._different(at, "pending", named, self.run.pending)
            elif key == "called":
                for name, calls in expected.items():
                    yield from self._unlike((*at, name), f"called.{name}", calls, self.run.mocks.calls_made(name))
            elif key == "said":
                yield from self._unlike(at, "said", expected, self.run.said)
            elif key == "notified":
                yield from self._unlike(at, "notified", *self._notices(expected))
            elif key in ("started", "dedupe"):
                yield from self._different(at, key, expected, self._start_fact(key))
            elif key == "not_called":
                for number, name in enumerate(expected):
                    count = self.run.mocks.count(name)
                    if count:
                        yield self._failure((*at, number), f"{name} must not be called", 0, count)
            elif key in _COUNTED:
                actual = {name: _COUNTED[key](self.run, name) for name in expected}
                yield from self._different(at, key, expected, actual)
            else:
                yield from self._different(at, key, expected, _FOUND[key](self.run))

    def _unlike(self, at: Path, what: str, expected: list[Json], found: list[Json]) -> Iterator[Failure]:
        if not is_sequence(expected, found):
            yield self._failure(at, what, expected, found)

    def _notices(self, expected: list[Json]) -> tuple[list[Json], list[Json]]:
        """The notifications as the test writes them: by channel, the question by the name that it has there."""
        ids = self.run.plan.ids
        expected_notices: list[Json] = [
            {"channel": each} if isinstance(each, str) and each != ANY_NUMBER else each for each in expected
        ]
        names = [each["pending"] for each in expected_notices if isinstance(each, dict) and "pending" in each]
        actual: list[Json] = []
        for notice in self.run.notices:
            name = next((name for name in names if means(name, str(notice["pending"]), ids)), notice["pending"])
            actual.append({**notice, "pending": name})
        return expected_notices, actual

    def _start_fact(self, key: str) -> Json:
        if key == "started":
            return self.run.state.status != "new"
        return None if self.triggered is None else self.triggered.dedupe

    def _different(self, at: Path, what: str, expected: Json, found: Json) -> Iterator[Failure]:
        self.hollow += [(*at, *place) for place in find_hollow(expected, found)]
        for difference in differences(expected, found):
            label = ".".join(map(str, (what, *difference.at)))
            yield self._failure((*at, *difference.at), label, difference.expected, difference.actual)

    def _compare_events(self) -> None:
        """Raises `CaseFailed` where the events, in order, do not contain those of the case."""
        happened = iter(self.run.event_types)
        for number, expected in enumerate(self.case.events):
            if expected not in happened:  # reads on to the wanted one, or to the end
                before = f" behind `{self.case.events[number - 1]}`" if number else ""
                raise CaseFailed(
                    f"expected the event `{expected}`{before}; what happened is {', '.join(self.run.event_types)}"
                )

    def _check_unexpected_failure(self) -> None:
        """Raises `CaseFailed` where a run has failed and the case expects nothing at all, as one that only tries it."""
        entries = [*self.case.script, *([self.case.expect] if self.case.expect is not None else [])]
        is_held = any(bool(entry.values) for entry in entries if isinstance(entry, Expect))
        is_refusal = any(entry.refused is not None for entry in entries if isinstance(entry, Decide | Answer))
        if self.run.state.status == "failed" and not (is_held or is_refusal or self.case.events):
            raise CaseFailed(
                f"{self.summary()}; the case expects nothing: write `expect: {{status: failed}}` if that is meant"
            )

    def list_notes(self) -> Iterator[Failure]:
        """Mocks of the case of which a part was not called, and expectations that compare nothing."""
        for mock, used in self.run.mocks.list_unused(self.case.mock.values()):
            count = len(mock.behaviours)
            message = f"the mock `{mock.name}` answers {count} call{'s' if count > 1 else ''}, and {used} came"
            yield self._failure(mock.at, f"{message}; remove the rest of its list, or let the case go on")
        for at in self.hollow:
            yield self._failure(at, "`{}` fits every map, so nothing is compared here; name members that it must have")

    def _failure(self, at: Path, message: str, expected: Json = ABSENT, found: Json = ABSENT) -> Failure:
        line, column = self.suite.document.position(at, key=True)
        return Failure(line, column, message, expected, found)

    def summary(self) -> str:
        """The state of the run, in one line."""
        state = self.run.state
        text = f"the run is {state.status}" if state.status != "new" else "there is no run"
        if state.error is not None:
            text += f": {state.error.code} at {state.error.path or 'the end'}, {state.error.message}"
        elif self.run.pending:
            text += f" at {', '.join(self.run.pending)}"
        return f"{text} ({instants.rfc3339(self.run.now)})"


_PERFORMANCES: Final[dict[type, Callable[[_Playing, Any], None]]] = {
    Decide: _Playing._decide,
    Answer: _Playing._answer,
    Signal: _Playing._signal,
    Advance: _Playing._advance,
    Operate: _Playing._operate,
}
_COUNTED: Final[dict[str, Callable[[VirtualRun, str], Json]]] = {
    "calls": lambda run, name: run.mocks.count(name),
    "escalated": VirtualRun.escalation_count,
    "steps": VirtualRun.step,
}
_FOUND: Final[dict[str, Callable[[VirtualRun], Json]]] = {
    "status": lambda run: run.state.status,
    "output": lambda run: run.state.output,
    "state": lambda run: run.state.state,
    "error": lambda run: run.error,
}


def _unset_if_absent(value: Json) -> Json:
    return msgspec.UNSET if value is ABSENT else value


def _refusal(rejected: Rejected) -> str:
    faults = [f"{fault.get('path') or 'the value'}: {fault.get('message', '')}" for fault in rejected.findings]
    return " ".join([rejected.detail, *faults])
