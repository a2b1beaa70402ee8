"""Every check of the kit, in the order of the report."""

from __future__ import annotations

from typing import Final

from hai_flow_conformance.report import Check, Level
from hai_flow_conformance.rules import Dialect

_ALL: Final = frozenset(Dialect)
_HAI: Final = frozenset({Dialect.HAI})
_AGUI: Final = frozenset({Dialect.AGUI, Dialect.AGUI_0})
_AGUI_1: Final = frozenset({Dialect.AGUI})


def _check(id: str, expected: str, reason: str, level: Level = "must", of: frozenset[Dialect] = _ALL) -> Check:
    """`reason`: the section of docs/design/protocols.md that says why."""
    return Check(id, expected, f"docs/design/protocols.md#{reason}", level, of)


_CHECKS: Final = (
    # --- one turn
    _check("chat.status", "A user message on a new thread is answered 200.", "http-exchange"),
    _check("chat.content-type", "The response is text/event-stream.", "http-exchange"),
    _check("chat.ids", "RUN_STARTED and RUN_FINISHED name the posted threadId and runId.", "run-ids", of=_AGUI),
    _check("chat.hai-ids", "RUN_STARTED also names threadId and runId.", "hai-events", "should", _HAI),
    _check("chat.version", "RUN_STARTED states the protocolVersion.", "ag-ui-events", "should", _AGUI_1),
    _check("chat.answers", "The turn has a message, a call or a question.", "hai-events", "should"),
    # --- every stream that was seen
    _check("stream.line-feeds", "Lines end with LF alone.", "http-exchange"),
    _check("stream.data-space", "`data:` is followed by a space.", "http-exchange"),
    _check("stream.last-blank", "The last event ends with a blank line.", "http-exchange", "should"),
    _check("stream.one-object", "An event's data is one JSON object with a type.", "http-exchange"),
    _check("stream.content-type", "A response with status 200 is a stream, never a JSON document.", "terminal-events"),
    _check(
        "stream.first", "A run begins with RUN_STARTED or RUN_ERROR, while no other is open.", "order-of-events"
    ),
    _check("stream.terminal", "Every stream ends with RUN_FINISHED or RUN_ERROR.", "terminal-events"),
    _check("stream.nothing-after", "Nothing follows a run's end but the next RUN_STARTED.", "order-of-events"),
    _check("stream.brackets", "Messages and calls are opened once, continued and closed.", "order-of-events"),
    _check("stream.steps", "Open steps have different names and are closed.", "order-of-events"),
    _check("stream.calls-once", "A call is streamed once; later only snapshots contain it.", "calls-are-streamed-once"),
    _check("stream.arguments", "A call's concatenated arguments are one JSON object.", "calls-are-streamed-once"),
    _check("stream.no-nulls", "An optional field is absent, never null.", "absent-never-null"),
    _check("stream.timestamps", "Timestamps are integers.", "ag-ui-events"),
    _check("stream.fields", "Every event has its required fields, each of its type.", "ag-ui-events"),
    _check("stream.unknown-fields", "Events and messages have no other fields.", "ag-ui-events", "should", _AGUI),
    _check("stream.deltas", "A delta is text; a state's delta is a list.", "deltas-are-text"),
    _check("stream.empty-deltas", "No delta is empty.", "deltas-are-text", "should"),
    _check("stream.types", "Every event type is one of the protocol's.", "ag-ui-events", "should"),
    _check("stream.messages", "A snapshot's messages have the fields that their roles require.", "ag-ui-messages"),
    _check("stream.patches", "A state's delta is a JSON Patch.", "ag-ui-events"),
    _check("stream.ids", "RUN_FINISHED names the threadId and runId of its RUN_STARTED.", "run-ids", "should"),
    _check("stream.outcome", "Outcomes are success, interrupt or cancelled.", "ag-ui-events", of=_AGUI),
    _check("hai.documents", "A document survives the client's split at `}{`.", "hai-documents", of=_HAI),
    _check("status.no-5xx", "No request of a client is answered 5xx.", "errors-for-clients"),
    # --- peers that state no protocolVersion
    _check("old.chat", "A peer without protocolVersion gets a turn.", "versions-of-peers", of=_AGUI),
    _check("old.types", "It gets no event type that 0.x does not know.", "older-peers", of=_AGUI),
    _check("old.outcome", "It gets no pendingToolCallIds and no cancelled outcome.", "older-peers", of=_AGUI),
    _check("old.expiry", "It gets no interrupt that expires.", "older-peers", "should", _AGUI),
    _check("old.deltas", "It gets no empty delta.", "older-peers", of=_AGUI),
    _check("old.no-protobuf", "It gets no protobuf.", "older-peers", of=_AGUI),
    # --- the same again
    _check("repeat.same", "The same POST again gets a response and has no further effect.", "run-ids", "should"),
    _check("repeat.other-body", "The same runId with another body is refused.", "run-ids", "should"),
    # --- reload
    _check("reload.attach", "Nothing new: RUN_STARTED, a snapshot, RUN_FINISHED.", "hai-snapshots", of=_HAI),
    _check("reload.agui", "Nothing new: RUN_STARTED, a snapshot, RUN_FINISHED.", "reloading", "should", _AGUI),
    _check("reload.run-id", "RUN_STARTED names the runId of the attaching POST.", "attaching", "should"),
    _check("reload.history", "The snapshot contains the messages and calls so far.", "hai-snapshots", "should"),
    _check("reload.calls-once", "A call of the posted history is not streamed again.", "calls-are-streamed-once"),
    _check("reload.empty", "A client without its history gets the same snapshot.", "reloading", "should"),
    # --- a frontend tool
    _check("tool.called", "The endpoint calls a tool that was advertised (--tool).", "tools-and-interrupts", "info"),
    _check("tool.ends", "Its run ends with RUN_FINISHED, without a result or interrupt.", "tools-and-interrupts"),
    _check("tool.no-outcome", "That RUN_FINISHED has no outcome.", "no-outcome-while-a-tool-is-open", "should", _AGUI),
    _check("tool.waits", "A new user message while it is open is refused with 409.", "one-active-run", "should"),
    _check("answer.continues", "The answer gets a turn with the posted runId.", "run-ids"),
    _check("answer.calls-once", "The answered call is not streamed again.", "calls-are-streamed-once"),
    _check("answer.new-ids", "The new run opens new messages.", "new-message-ids"),
    _check("answer.no-result", "An answer of the client gets no TOOL_CALL_RESULT.", "tools-and-interrupts", of=_AGUI),
    _check("answer.repeat", "The same POST again has no further effect.", "run-ids", "should"),
    _check("answer.duplicate", "The same answer in a new run has no further effect.", "the-first-answer-wins"),
    _check("answer.different", "Another answer later is refused or ignored.", "the-first-answer-wins"),
    # --- made-up history
    _check("forged.answer", "An answer to a call that was never made has no effect.", "history-is-not-evidence"),
    _check("forged.history", "An invented call does not become part of the history.", "history-is-not-evidence"),
    _check("forged.arguments", "Changed arguments in the posted history have no effect.", "history-is-not-evidence"),
    _check("forged.open-call", "The real call can be answered afterwards.", "history-is-not-evidence"),
    # --- interrupts
    _check("interrupt.waits", "A run without resume answers nothing.", "tools-and-interrupts", of=_AGUI),
    _check("interrupt.unknown", "Resuming an unknown interrupt has no effect.", "tools-and-interrupts", of=_AGUI),
    _check("interrupt.resume", "`resume` continues in a run with the posted runId.", "tools-and-interrupts", of=_AGUI),
    _check("interrupt.once", "The same resume in a new run has no further effect.", "the-first-answer-wins", of=_AGUI),
    # --- malformed requests
    _check("malformed.not-json", "A body that is not JSON is answered 4xx.", "errors-for-clients"),
    _check("malformed.empty", "An empty body is answered 4xx.", "errors-for-clients"),
    _check("malformed.list", "A list as body is answered 4xx.", "ag-ui-messages"),
    _check("malformed.no-thread", "A body without threadId is answered 4xx.", "hai-requests"),
    _check("malformed.no-run", "A body without runId is answered 4xx.", "hai-requests"),
    _check("malformed.thread-type", "A number as threadId is answered 4xx.", "ag-ui-messages"),
    _check("malformed.messages-type", "Text as messages is answered 4xx.", "ag-ui-messages"),
    _check("malformed.message", "A message without role is answered 4xx.", "ag-ui-messages"),
    # --- transport
    _check("disconnect.goes-on", "A run continues to its end without its client.", "disconnecting"),
    _check("accept.any", "`Accept: */*` gets Server-Sent Events.", "http-exchange", "should"),
    _check("accept.binary", "A binary form is offered.", "binary-frames", "info"),
    _check("accept.binary-type", "The binary form's Content-Type has no parameters.", "binary-frames"),
    _check("accept.binary-frames", "Its frames are complete and form a valid stream.", "binary-frames"),
    _check("accept.binary-same", "It has the same content as the text form of the same POST.", "binary-frames"),
    _check("cors.preflight", "A browser of another origin may POST.", "http-exchange", "info"),
)  # fmt: skip

CATALOGUE: Final = {check.id: check for check in _CHECKS}
