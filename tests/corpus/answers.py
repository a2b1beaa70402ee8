"""What this release makes of a run of the corpus: the events that the same commands decide, the frames of its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.definition.compiler import compile_workflow
from hai_flow.engine import commands as c
from hai_flow.engine.decide import decide
from hai_flow.engine.events import Event, decode_events
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from tests.corpus import kept

Json: TypeAlias = Any


def answers_of(run: kept.Kept, decided: kept.Decided) -> kept.Decided:
    """What the same commands decide now, and the frames of the run's log."""
    decisions = [kept.fingerprint(events) for events in decided_again(run, decided)]
    return kept.Decided(run.name, decided.commands, decisions, kept.frames(run.run_id, events_of(run)))


def events_of(run: kept.Kept) -> list[Any]:
    """All events of a run, as this release reads them."""
    return [event for batch, _ in run.batches for event in decode_events(msgspec.json.encode(batch))]


def decided_again(run: kept.Kept, decided: kept.Decided) -> Iterator[Json]:
    """What the engine decides now, command by command: the events as JSON, or the code of a refusal."""
    plan, state = compile_workflow(run.document.encode(), run.name, stored=True), RunState(run.run_id)
    for name, fields, now, limits in decided.commands:
        command = _command(name, fields)
        if isinstance(command, c.Migrate):
            plan = command.to
        try:
            decision = decide(plan, state, command, now, msgspec.convert(limits, Bounds))
        except Rejected as rejected:
            yield rejected.code
            continue
        yield as_json(decision.events)
        state = decision.state


def as_json(value: Any) -> Json:
    """Events with all their fields: as the log has them, a field that is its default may be there or not."""
    if isinstance(value, msgspec.Struct):
        fields = {field: as_json(getattr(value, field)) for field in value.__struct_fields__}
        return fields | ({"type": value.type} if isinstance(value, Event) else {})
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, list | tuple) else value


def _command(name: str, fields: dict[str, Any]) -> c.Command:
    if name == "Migrate":
        return c.Migrate(**(fields | {"to": compile_workflow(fields["to"].encode(), name, stored=True)}))
    if name == "Fork":
        return _fork(fields)
    return msgspec.convert(fields, getattr(c, name))


def _fork(fields: dict[str, Any]) -> c.Fork:
    events = decode_events(msgspec.json.encode(fields["events"]))
    following = fields.get("following") and decode_events(msgspec.json.encode([fields["following"]]))[0]
    edits = fields.get("edits")
    if edits is not None and edits.get("was") is not None:
        edits = edits | {"was": compile_workflow(edits["was"].encode(), "Fork", stored=True)}
    return c.Fork(
        run_id=UUID(fields["run_id"]),
        of=UUID(fields["of"]),
        events=tuple(events),
        answer=msgspec.convert(fields["answer"], c.Answer),
        undone=tuple(fields["undone"]),
        key=fields["key"],
        following=following,
        edits=None if edits is None else c.Edits(**edits),
    )
