"""Writes a file of the corpus from what the tests of the engine play.

    python -m pytest -n0 -p tests.corpus.recorder tests/engine tests/sim   the runs of a new ABI, and today's answers
    python -m tests.corpus.recorder                                        today's answers alone
    python -m tests.corpus.recorder again                                  runs of an unreleased ABI that go otherwise

Of all runs the fewest are kept that have every kind of event with every combination of its fields, every command, and
every two kinds of events that follow each other, at least once."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any, Final

import msgspec
import pytest

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.decision import Decision
from hai_flow.engine.events import ABI, decode_events, encode_events
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.state.state import RunState
from tests.corpus import kept
from tests.corpus.answers import answers_of, as_json, decided_again
from tests.support import runs

RUNS_MAX: Final = 400
EVENTS_MAX: Final = 400  # of a run that is kept

_documents: dict[int, tuple[Plan, str]] = {}
_plays: dict[int, _Recorded] = {}


class _Recorded:
    """What was played in one `Play`: of each commit the command, the time in ms and the limits."""

    def __init__(self, play: runs.Play, document: str) -> None:
        self.play, self.document = play, document
        self.commands: list[tuple[c.Command, int, dict[str, int]]] = []

    def note(self, command: c.Command) -> None:
        """Whatever was committed since the last time, was by this command."""
        new = len(self.play.log) - len(self.commands)
        self.commands += [(command, self.play.now, msgspec.to_builtins(self.play.limits))] * new

    def features(self) -> set[str]:
        found = {f"command {type(command).__name__} {_given(command)}" for command, _, _ in self.commands}
        events = self.play.events
        found |= {f"event {event.type} {_given(event)}" for event in events}
        return found | {f"{one.type} before {other.type}" for one, other in pairwise(events)}


def _given(struct: msgspec.Struct) -> list[str]:
    """The names of the fields that have another value than their default."""
    fields = msgspec.structs.fields(struct)
    return [field.name for field in fields if getattr(struct, field.name) != field.default]


def pytest_configure(config: pytest.Config) -> None:
    """Listen to every compilation and every `Play`."""
    compile_, do, migrate = runs.compile_workflow, runs.Play.do, runs.Play.migrate

    def compiled(source: bytes, *given: Any, **more: Any) -> Plan:
        plan = compile_(source, *given, **more)
        _documents[id(plan)] = (plan, source.decode())
        return plan

    def done(self: runs.Play, command: c.Command) -> Decision:
        known = _documents.get(id(self.plan))
        if not self.log and known is not None and isinstance(command, c.Start | c.Fork):
            _plays[id(self)] = _Recorded(self, known[1])
        try:
            return do(self, command)
        finally:
            if id(self) in _plays:
                _plays[id(self)].note(command)

    def migrated(self: runs.Play, to: Plan, paths: dict[str, str] | None = None, by: str = "user:op") -> Decision:
        decision = migrate(self, to, paths, by)
        if id(self) in _plays and id(to) in _documents:
            _plays[id(self)].note(c.Migrate(to=to, by=by, paths=paths or {}))
        return decision

    runs.compile_workflow, runs.Play.do, runs.Play.migrate = compiled, done, migrated  # type: ignore[assignment]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Choose, and write."""
    chosen = _chosen([each for each in _plays.values() if _can_be_replayed(each)])
    path = kept.HERE / f"abi{ABI}.jsonl.gz"
    kept.write(path, [_kept(f"run {number}", each) for number, each in enumerate(chosen)])
    decided = [_commands(f"run {number}", each) for number, each in enumerate(chosen)]
    pairs = zip(kept.read(path, kept.Kept), decided, strict=True)
    kept.write(kept.TODAY, [answers_of(run, each) for run, each in pairs])


def _chosen(recorded: list[_Recorded]) -> list[_Recorded]:
    sizes = {id(each): sum(map(len, each.play.log)) for each in recorded}
    left = [(each, each.features()) for each in recorded if sizes[id(each)] <= EVENTS_MAX]
    missing = set().union(*(features for _, features in left))
    chosen: list[_Recorded] = []
    while missing and len(chosen) < RUNS_MAX:
        best, features = max(left, key=lambda each: len(each[1] & missing) / (10 + sizes[id(each[0])]))
        chosen.append(best)
        missing -= features
    return chosen


def _can_be_replayed(recorded: _Recorded) -> bool:
    """Whether the commands alone make the log: some tests put a hand in."""
    log = recorded.play.log
    if not recorded.commands or len(recorded.commands) != len(log):
        return False
    try:
        run, decided = _kept("", recorded), _commands("", recorded)
        return list(decided_again(run, decided)) == [as_json(batch) for batch in log]
    except (KeyError, msgspec.ValidationError):  # a test gave the run another plan, or an event, by hand
        return False


def _kept(name: str, recorded: _Recorded) -> kept.Kept:
    play, state = recorded.play, RunState(str(recorded.play.run_id))
    batches: list[tuple[list[dict[str, Any]], dict[str, Any]]] = []
    for batch in play.log:
        state = fold(state, decode_events(encode_events(batch)))
        batches.append((msgspec.json.decode(encode_events(batch)), kept.seen(state)))
    return kept.Kept(name, recorded.document, str(play.run_id), batches)


def _commands(name: str, recorded: _Recorded) -> kept.Decided:
    return kept.Decided(
        name, [(type(command).__name__, _fields(command), now, limits) for command, now, limits in recorded.commands]
    )


def _fields(command: c.Command) -> dict[str, Any]:
    if isinstance(command, c.Migrate):  # its document instead of its plan
        return {"to": _documents[id(command.to)][1], "by": command.by, "paths": command.paths}
    if isinstance(command, c.Fork) and command.edits is not None and command.edits.was is not None:
        was = _documents[id(command.edits.was)][1]
        fields = _fields(msgspec.structs.replace(command, edits=msgspec.structs.replace(command.edits, was=None)))
        return fields | {"edits": fields["edits"] | {"was": was}}
    fields: dict[str, Any] = msgspec.to_builtins(command)
    return fields


def _again(run: kept.Kept, decided: kept.Decided) -> kept.Kept:
    """The run as its commands decide it now; as it is, where that is the same, or one of them is refused now."""
    now = list(decided_again(run, decided))
    then = [as_json(decode_events(msgspec.json.encode(batch))) for batch, _ in run.batches]
    if now == then or any(isinstance(each, str) for each in now):
        return run
    state, batches = RunState(run.run_id), []
    for each in now:
        events = decode_events(msgspec.json.encode(each))
        state = fold(state, events)
        batches.append((msgspec.json.decode(encode_events(events)), kept.seen(state)))
    return kept.Kept(run.name, run.document, run.run_id, batches)


if __name__ == "__main__":
    known = {each.name: each for each in kept.read(kept.TODAY, kept.Decided)}
    newest = kept.files()[-1]
    if "again" in sys.argv:
        kept.write(newest, [_again(run, known[run.name]) for run in kept.read(newest, kept.Kept)])
    kept.write(kept.TODAY, [answers_of(run, known[run.name]) for run in kept.read(newest, kept.Kept)])
    sys.exit(0)
