"""Reads a transcript as it would be read from a connection, in any pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from hai_flow import values
from hai_flow.errors import StepError
from hai_flow.models.chat import ChatReader
from hai_flow.models.event_stream import EventReader, StreamReader
from hai_flow.models.faults import empty, fault_of_status
from hai_flow.models.responses import ResponsesReader
from hai_flow.models.turn import Turn
from hai_flow.models.vocabulary import CallArgs, CallStart
from tests.foreign.transcripts import Failed, Said, Transcript


@dataclass(frozen=True)
class Outcome:
    """The meaning of what was read: of a whole answer, or of a fault. `shown` are the calls as they were streamed."""

    turn: Turn | None
    fault: StepError | None
    shown: tuple[tuple[str, str], ...] = ()

    @property
    def said(self) -> Any:
        """All that counts of it, for comparison."""
        if self.fault is not None:
            return self.fault.code, self.fault.message, self.fault.retriable, self.fault.retry_after
        assert self.turn is not None
        calls = [(call.name, call.args) for call in self.turn.calls]
        return self.turn.text, self.turn.thinking, calls, self.turn.usage, self.turn.finish

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """The calls that would be performed: of one whose arguments are no JSON the model is told."""
        if self.fault is not None or self.turn is None:
            return []
        performed = []
        for call in self.turn.calls:
            with suppress(ValueError):
                performed.append((call.name, json.loads(call.args, strict=False)))
        return performed


@cache
def messages_reader() -> Any:
    """The reader of the package for Anthropic's models, which is not installed here."""
    path = Path(__file__).parents[2] / "plugins/anthropic/hai_flow_anthropic/messages.py"
    spec = spec_from_file_location("foreign_messages", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MessagesReader


def reader_of(transcript: Transcript) -> EventReader:
    match transcript.protocol:
        case "responses":
            return ResponsesReader(transcript.names, transcript.reasoning)
        case "messages":
            return messages_reader()(transcript.names)
    return ChatReader(transcript.reasoning, names=transcript.names)


def read(transcript: Transcript, pieces: Iterable[bytes]) -> Outcome:
    """The outcome of an answer that comes in these pieces and ends in order."""
    if transcript.status != 200:
        body = b"".join(pieces)
        try:
            said: Any = values.loads(body)
        except values.NotJson:
            said = body.decode(errors="replace")
        return Outcome(None, fault_of_status(transcript.status, transcript.headers, said))
    reader, turn = StreamReader(reader_of(transcript)), Turn()
    shown: dict[str, list[str]] = {}
    try:
        for piece in (*(each for part in pieces for each in reader.feed(part)), *reader.end()):
            heard = turn.add(piece)
            if isinstance(heard, CallStart):
                shown[heard.id] = [heard.name, ""]
            elif isinstance(heard, CallArgs):
                shown[heard.id][1] += heard.text
    except StepError as error:
        return Outcome(None, error)
    fault = turn.fault() or (empty() if turn.is_empty else None)
    return Outcome(turn, fault, tuple((name, args) for name, args in shown.values()))


def differences(outcome: Outcome, meaning: Said | Failed) -> list[str]:
    """What is otherwise than it should be."""
    if isinstance(meaning, Failed):
        fault = outcome.fault
        if fault is None:
            return [f"it was read as an answer: {outcome.said}"]
        found = (fault.code, fault.retriable, fault.retry_after)
        wrong = [f"{found} is not {(meaning.code, meaning.again, meaning.wait)}: {fault.message}"]
        wrong = [] if found == (meaning.code, meaning.again, meaning.wait) else wrong
        return wrong + ([] if meaning.text in fault.message else [f"{meaning.text!r} is not in {fault.message!r}"])
    if outcome.fault is not None:
        return [f"it failed: {outcome.fault.code} {outcome.fault.message}"]
    assert outcome.turn is not None
    usage = outcome.turn.usage
    found = (outcome.turn.text, tuple(outcome.calls), outcome.turn.thinking, usage and (usage.input, usage.output))
    wanted = (meaning.text, meaning.calls, meaning.thinking, meaning.usage)
    return [] if found == wanted else [f"{found} is not {wanted}"]
