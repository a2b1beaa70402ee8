"""The log as it is: one frame per event, for REST (`/v1/runs/{id}/events`) and the console.
docs/design/protocols.md#cursors.

Texts that hold JSON (arguments, evidence) are shown as the values they hold; times as RFC 3339 in UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from hai_flow import values
from hai_flow.engine.events import TERMINAL, Event
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.state.state import RunState
from hai_flow.primitives import instants
from hai_flow.values import Json
from hai_flow.wire.dialects.dialect import CLOSING, EXPIRED, Dialect, Entry, Frame, Profile
from hai_flow.wire.pii_masking import mask_of
from hai_flow.wire.reader_redaction import (
    CONVERSATION,
    strip_conversation,
    strip_conversation_from_event,
    strip_evidence_from_event,
)
from hai_flow.wire.sent_json import dump
from hai_flow.wire.sse import NAMED_SSE

_JSON_TEXTS: Final = ("args", "evidence")
_TIMES: Final = ("at", "due", "deadline", "since")


def event_json(seq: int, event: Event) -> dict[str, Json]:
    """One event as REST shows it: `{seq, type, at, turn, path?, ...}`. Fields with their default value are left out."""
    stored: dict[str, Json] = msgspec.to_builtins(event)
    record: dict[str, Json] = {"seq": seq, "type": event.type, "at": event.at, "turn": event.turn}
    if "path" in stored:
        record["path"] = stored["path"]
    return _with_values(record, stored)


def _with_values(shown: dict[str, Json], stored: dict[str, Json]) -> dict[str, Json]:
    """Add the fields of a record, and of the records inside it, to `shown`, in the form of REST."""
    for name, value in stored.items():
        shown[name] = values.loads(value) if name in _JSON_TEXTS and value is not None else value
    if isinstance(opened := stored.get("opened"), dict):  # a question of a run below
        shown["opened"] = _with_values({}, opened)
    if "opened" in stored and "votes" in stored:
        shown["votes"] = [_with_times(vote) for vote in stored["votes"]]
    return _with_times(shown)


def _with_times(record: dict[str, Json]) -> dict[str, Json]:
    for name in _TIMES:
        if record.get(name) is not None:
            record[name] = instants.rfc3339(record[name])
    for name in ("error", "cause"):
        if isinstance(record.get(name), dict):
            record[name] = _with_times(record[name])
    return record


def seeing(profile: Profile, state: RunState) -> Callable[[Event], Event | None]:
    """A function that gives each event after `state` as the reader of `profile` sees it; None: the event is kept from
    them."""
    if not profile.redaction and profile.personal is None:
        return lambda event: event
    current, mask = state, mask_of(profile)

    def seen(event: Event) -> Event | None:
        nonlocal current
        current = evolve(current, event)
        if profile.redaction != CONVERSATION:
            visible = strip_evidence_from_event(event, current, profile.reader) if profile.redaction else event
            return visible if mask is None else mask.event(visible, current)
        assert profile.reader is not None, "who starts a run sees all of it"
        return strip_conversation_from_event(event, strip_conversation(current, profile.reader), profile.reader)

    return seen


class LogEncoder:
    """The events themselves, across turns. The stream ends after the terminal event."""

    def __init__(self, profile: Profile, state: RunState) -> None:
        self._seq = state.seq
        self._seen = seeing(profile, state)

    def preface(self, asker_run_id: str | None, transcript: Sequence[Entry]) -> list[Frame]:
        """Nothing: a follower of the log reads it from its own position."""
        return []

    def encode(self, event: Event) -> list[Frame]:
        self._seq += 1
        visible = self._seen(event)
        if visible is None:
            return []
        data = dump(event_json(self._seq, visible))
        return [Frame(visible.type, data, terminal=isinstance(visible, TERMINAL))]

    def farewell(self, reason: str, code: str = CLOSING) -> list[Frame]:
        """Nothing: a reader that misses the terminal event knows that there is more, and comes back. Only a reader
        whose credential has ended gets a frame, because they must sign in before that."""
        return [Frame(EXPIRED, dump({"code": code, "message": reason}))] if code == EXPIRED else []


LOG: Final = Dialect("log", "log-1", LogEncoder, framing=NAMED_SSE, by_seq=True)
