"""Every check of the kit, in the order of the report."""

from __future__ import annotations

from typing import Final

from hai_flow.conformance.report import Check, Level
from hai_flow.conformance.rules import Dialect

_ALL: Final = frozenset(Dialect)
_HAI: Final = frozenset({Dialect.HAI})
_AGUI: Final = frozenset({Dialect.AGUI, Dialect.AGUI_0})
_AGUI_1: Final = frozenset({Dialect.AGUI})


def _check(id: str, expected: str, source: str, level: Level = "must", of: frozenset[Dialect] = _ALL) -> Check:
    return Check(id, expected, source, level, of)


_CHECKS: Final = (
    # --- one turn
    _check("chat.status", "A user message on a new thread is answered 200.", "PROTOCOLS 1.4"),
    _check("chat.content-type", "The response is text/event-stream.", "PROTOCOLS 1.4"),
    _check("chat.ids", "RUN_STARTED and RUN_FINISHED name the posted threadId and runId.", "PROTOCOLS 1.3", of=_AGUI),
    _check("chat.hai-ids", "RUN_STARTED names threadId and runId too.", "PROTOCOLS 2.1 H1", "should", _HAI),
    _check("chat.version", "RUN_STARTED states the protocolVersion.", "PROTOCOLS 1.1", "should", _AGUI_1),
    _check("chat.answers", "The turn says, calls or asks something.", "PROTOCOLS 2.1 H2, 1.1", "should"),
    # --- every stream that was seen
    _check("stream.line-feeds", "Lines end with LF alone.", "PROTOCOLS 1.4"),
    _check("stream.data-space", "`data:` is followed by a space.", "PROTOCOLS 1.4"),
    _check("stream.last-blank", "The last event ends with a blank line.", "PROTOCOLS 1.4", "should"),
    _check("stream.one-object", "An event's data is one JSON object with a type.", "PROTOCOLS 1.4"),
    _check("stream.content-type", "What is answered 200 is a stream, never a JSON document.", "PROTOCOLS 0.9"),
    _check("stream.first", "A run begins with RUN_STARTED or RUN_ERROR, and only when none is open.", "PROTOCOLS 1.5"),
    _check("stream.terminal", "Every stream ends with RUN_FINISHED or RUN_ERROR.", "PROTOCOLS 0.9"),
    _check("stream.nothing-after", "Nothing follows a run's end but the next RUN_STARTED.", "PROTOCOLS 1.5"),
    _check("stream.brackets", "Messages and calls are opened once, continued and closed.", "PROTOCOLS 1.5"),
    _check("stream.steps", "Open steps have different names and are closed.", "PROTOCOLS 1.5"),
    _check("stream.calls-once", "A call is streamed once; then only snapshots tell of it.", "PROTOCOLS 0.5"),
    _check("stream.arguments", "A call's arguments, put together, are one JSON object.", "PROTOCOLS 0.5"),
    _check("stream.no-nulls", "An optional field is absent, never null.", "PROTOCOLS 0.3"),
    _check("stream.timestamps", "Timestamps are integers.", "PROTOCOLS 1.5"),
    _check("stream.fields", "Every event has its required fields, and all are of their types.", "PROTOCOLS 1.1, 2.1"),
    _check("stream.unknown-fields", "Events and messages have no other fields.", "PROTOCOLS 1.5", "should", _AGUI),
    _check("stream.deltas", "A delta is text; a state's delta is a list.", "PROTOCOLS 0.10, 1.1"),
    _check("stream.empty-deltas", "No delta is empty.", "PROTOCOLS 8.4", "should"),
    _check("stream.types", "Every event type is one of the protocol's.", "PROTOCOLS 0.2", "should"),
    _check("stream.messages", "A snapshot's messages have what their roles demand.", "PROTOCOLS 1.2"),
    _check("stream.patches", "A state's delta is a JSON Patch.", "PROTOCOLS 1.1"),
    _check("stream.ids", "RUN_FINISHED names the threadId and runId of its RUN_STARTED.", "PROTOCOLS 1.3", "should"),
    _check("stream.outcome", "Outcomes are success, interrupt or cancelled.", "PROTOCOLS 1.1", of=_AGUI),
    _check("hai.documents", "A document survives the client's split at `}{`.", "PROTOCOLS 2.3", of=_HAI),
    _check("status.no-5xx", "Nothing that a client sends is answered 5xx.", "PROTOCOLS 1.3"),
    # --- peers that state no protocolVersion
    _check("old.chat", "A peer without protocolVersion is served.", "PROTOCOLS 0.1", of=_AGUI),
    _check("old.types", "It gets no event type that 0.x does not know.", "PROTOCOLS 0.2", of=_AGUI),
    _check("old.outcome", "It gets no pendingToolCallIds and no cancelled outcome.", "PROTOCOLS 1.6", of=_AGUI),
    _check("old.expiry", "It gets no interrupt that expires.", "PROTOCOLS 1.5", "should", _AGUI),
    _check("old.deltas", "It gets no empty delta.", "PROTOCOLS 1.6", of=_AGUI),
    _check("old.no-protobuf", "It gets no protobuf.", "PROTOCOLS 1.4", of=_AGUI),
    # --- the same again
    _check("repeat.same", "The same POST again is served, and nothing is done again.", "PROTOCOLS 7, rule 6", "should"),
    _check("repeat.other-body", "The same runId with another body is refused.", "PROTOCOLS 7, rule 6", "should"),
    # --- reload
    _check("reload.attach", "Nothing new: RUN_STARTED, a snapshot, RUN_FINISHED.", "PROTOCOLS 2.1 H16", of=_HAI),
    _check("reload.agui", "Nothing new: RUN_STARTED, a snapshot, RUN_FINISHED.", "PROTOCOLS 5.4", "should", _AGUI),
    _check("reload.run-id", "RUN_STARTED names the runId of who attaches.", "PROTOCOLS 7", "should"),
    _check("reload.history", "The snapshot tells what was said and called.", "PROTOCOLS 2.1 H16", "should"),
    _check("reload.calls-once", "A call of the posted history is not streamed again.", "PROTOCOLS 0.5"),
    _check("reload.empty", "A client without its history gets the same snapshot.", "PROTOCOLS 5.4", "should"),
    # --- a frontend tool
    _check("tool.called", "The endpoint calls a tool that was advertised (--tool).", "PROTOCOLS 1.3", "info"),
    _check("tool.ends", "Its run ends with RUN_FINISHED, without a result and no interrupt.", "PROTOCOLS 1.3"),
    _check("tool.no-outcome", "That RUN_FINISHED has no outcome.", "PROTOCOLS 0.4", "should", _AGUI),
    _check("tool.waits", "A new user message while it is open is refused with 409.", "PROTOCOLS 7, rule 9", "should"),
    _check("answer.continues", "The answer is served, by a run with the posted runId.", "PROTOCOLS 1.3"),
    _check("answer.calls-once", "The answered call is not streamed again.", "PROTOCOLS 0.5"),
    _check("answer.new-ids", "The new run opens new messages.", "PROTOCOLS 0.6"),
    _check("answer.no-result", "No TOOL_CALL_RESULT for what the client answered.", "PROTOCOLS 1.3", of=_AGUI),
    _check("answer.repeat", "The same POST again does nothing again.", "PROTOCOLS 7, rule 6", "should"),
    _check("answer.duplicate", "The same answer in a new run does nothing again.", "PROTOCOLS 7, rule 2"),
    _check("answer.different", "Another answer later is refused or ignored.", "PROTOCOLS 7, rule 2"),
    # --- made-up history
    _check("forged.answer", "The answer to a call that nobody made does nothing.", "PROTOCOLS 7, rule 1"),
    _check("forged.history", "A made-up call does not get into the history.", "PROTOCOLS 7, rule 1"),
    _check("forged.arguments", "Changed arguments in the posted history change nothing.", "PROTOCOLS 7, rule 5"),
    _check("forged.open-call", "The real call can be answered afterwards.", "PROTOCOLS 7, rule 1"),
    # --- interrupts
    _check("interrupt.waits", "A run without resume answers nothing.", "PROTOCOLS 1.3", of=_AGUI),
    _check("interrupt.unknown", "Resuming an unknown interrupt does nothing.", "PROTOCOLS 1.3", of=_AGUI),
    _check("interrupt.resume", "`resume` goes on: a run with the posted runId.", "PROTOCOLS 1.3", of=_AGUI),
    _check("interrupt.once", "The same resume in a new run does nothing again.", "PROTOCOLS 7, rule 2", of=_AGUI),
    # --- what cannot be meant
    _check("malformed.not-json", "A body that is not JSON is answered 4xx.", "PROTOCOLS 1.3"),
    _check("malformed.empty", "An empty body is answered 4xx.", "PROTOCOLS 1.3"),
    _check("malformed.list", "A list as body is answered 4xx.", "PROTOCOLS 1.2"),
    _check("malformed.no-thread", "A body without threadId is answered 4xx.", "PROTOCOLS 1.2, 2.1 H14"),
    _check("malformed.no-run", "A body without runId is answered 4xx.", "PROTOCOLS 1.2, 2.1 H14"),
    _check("malformed.thread-type", "A number as threadId is answered 4xx.", "PROTOCOLS 1.2"),
    _check("malformed.messages-type", "Text as messages is answered 4xx.", "PROTOCOLS 1.2"),
    _check("malformed.message", "A message without role is answered 4xx.", "PROTOCOLS 1.2"),
    # --- transport
    _check("disconnect.goes-on", "A run whose client went away goes on to its end.", "PROTOCOLS 1.3; 7, rule 10"),
    _check("accept.any", "`Accept: */*` gets Server-Sent Events.", "PROTOCOLS 1.4", "should"),
    _check("accept.binary", "A binary form is offered.", "PROTOCOLS 1.4, 2.1 H12", "info"),
    _check("accept.binary-type", "The binary form's Content-Type has no parameters.", "PROTOCOLS 1.4"),
    _check("accept.binary-frames", "Its frames are whole, and a valid stream.", "PROTOCOLS 1.4, 2.1 H12"),
    _check("accept.binary-same", "It says what the same POST says as text.", "PROTOCOLS 1.4, 2.1 H12"),
    _check("cors.preflight", "A browser of another origin may POST.", "PROTOCOLS 1.4", "info"),
)  # fmt: skip

CATALOGUE: Final = {check.id: check for check in _CHECKS}
