"""AUI: a thread as one stream over a WebSocket, and the client's inputs (docs/protocols/aui.md).

Only this protocol demands the following:

* Every event has an `id` (a UUID) and a `timestamp` (ISO, UTC). The id is made of the event's place in the log, so that
  all followers see the same one.
* Arguments come whole, as an object. A question to people is an `aui_interrupt` with its options.
* The stream goes on across turns: a turn that waits is finished with `outcome: interrupt`, and the next turn follows on
  the same socket. Only the end of the run is terminal; the connection then sends `aui_stream_end`.
* An activity is a snapshot of a step, not a pair of start and end: a step that waits is still running when its turn is
  over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, TypeAlias
from uuid import NAMESPACE_URL, UUID, uuid5

from hai_flow import values
from hai_flow.engine import events as e
from hai_flow.engine.pendings.answers import answer_refusal
from hai_flow.engine.runs.children import SILENT_VERBS
from hai_flow.engine.state.state import MessageState, PendingState, ToolCallState
from hai_flow.primitives import instants
from hai_flow.values import Json
from hai_flow.wire.dialects.dialect import CLOSING, Dialect, Entry, Frame, Profile, ToolMessage, error_message
from hai_flow.wire.dialects.questions import as_shown
from hai_flow.wire.dialects.transcript import history
from hai_flow.wire.dialects.turns import TurnEncoder
from hai_flow.wire.sent_json import dump, parse_object, strip_none

Object: TypeAlias = dict[str, Json]

_IDS: Final = uuid5(NAMESPACE_URL, "urn:hai-flow:aui")


def event(type: str, at: int, id: UUID | str, **fields: Json) -> bytes:
    """One event as JSON. `at` is in milliseconds since 1970. Fields that are None are left out."""
    return dump(strip_none({"type": type, "id": str(id), "timestamp": instants.rfc3339(at), **fields}))


def profile() -> Profile:
    """The profile of this dialect: it has no options, so streams differ only by their readers."""
    return Profile(dialect=AUI.name, version="1")


# --- inward -------------------------------------------------------------------------------------------------------


def answer_message(pending: PendingState, action: str | None, payload: Object) -> ToolMessage:
    """The client's input as an answer to the question, in the form of a ToolMessage (docs/language.md#people).

    A tool gets `payload.result`, else the payload itself. If the payload is empty, the tool gets the value of the
    option `action`. A form gets the payload; an action that declines the question answers it alone. A decision is the
    action with the whole payload, of which the engine refuses what it does not know. Raises Rejected 422 if the payload
    holds something else beside a tool's result, or contradicts the action."""
    opened, digest = pending.opened, None
    match opened.kind:
        case "tool":
            if "result" in payload:
                digest = payload.get("digest")
                beside = sorted(payload.keys() - {"result", "digest"})
                if beside:
                    raise answer_refusal(opened, f"expected the result alone, found {', '.join(beside)} beside it.")
            chosen = _map_results(opened).get(action or "", action)
            answer = payload.get("result", payload or chosen)
        case "ask":
            answer = action if action in opened.options and not payload else payload
        case _:
            if action is not None and payload.get("decision", action) != action:
                raise answer_refusal(opened, f"the action is {action!r}, and the payload's decision another one.")
            answer = strip_none({"decision": action, **payload})
    content = values.to_text(answer)
    return ToolMessage(f"{opened.id}:answer", opened.id, content, digest=digest)


def list_actions(opened: e.PendingOpened) -> tuple[str, ...]:
    """The actions that answer the question, as its `aui_interrupt` lists them."""
    results = tuple(_map_results(opened)) if opened.kind == "tool" else ()
    return opened.options or results or _USUAL.get(opened.kind, ())


def list_fields(opened: e.PendingOpened) -> frozenset[str]:
    """The members of a payload that answer this question and no other: the fields of a form, the result of a tool."""
    properties = opened.schema.get("properties") if isinstance(opened.schema, dict) else None
    if opened.kind == "ask":
        return frozenset(properties if isinstance(properties, dict) else ())
    return frozenset({"result"} if opened.kind == "tool" else ())


_YES_NO: Final[dict[str, Json]] = {"yes": True, "no": False}


def _map_results(opened: e.PendingOpened) -> dict[str, Json]:
    """The possible results of a frontend tool, by the option that gives each; empty if they can't be listed. With them
    a page that has only buttons can answer."""
    schema = opened.schema if isinstance(opened.schema, dict) else {}
    words = schema.get("enum")
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        return {word: word for word in words}
    types = schema.get("type", [])
    return _YES_NO if "boolean" in (types if isinstance(types, list) else [types]) else {}


# --- outward ------------------------------------------------------------------------------------------------------


class AuiEncoder(TurnEncoder):
    """The log as AUI events."""

    def encode(self, event: e.Event) -> list[Frame]:
        frames = super().encode(event)
        if not frames and not self.state.turn_open:  # this stream goes across turns
            visible = self.filter_event(event)
            if isinstance(visible, e.RunStopped):
                frames = self.run_finished(visible.at, self.run_id(), "stopped", visible.reason)
            elif isinstance(visible, _STEP_ENDS):
                frames = self._step_ended(visible)
            elif isinstance(visible, e.ChildStepped) and visible.status != "running":
                frames = self._child_stepped(visible)
        return self._with_ids(frames, "")

    def preface(self, asker_run_id: str | None, transcript: Sequence[Entry]) -> list[Frame]:
        return self._with_ids(super().preface(asker_run_id, transcript), "preface")

    def farewell(self, reason: str, code: str = CLOSING) -> list[Frame]:
        return self._with_ids(super().farewell(reason, code), "farewell")

    def _with_ids(self, frames: Sequence[Frame], what: str) -> list[Frame]:
        """The frames with ids made of their place in the log."""
        state = self.state
        names = (f"{state.run_id}.{state.seq}.{what}{number}" for number in range(len(frames)))
        return [
            frame._replace(data=b'{"id":"%s",%b' % (str(uuid5(_IDS, name)).encode(), frame.data[1:]))
            for frame, name in zip(frames, names, strict=True)
        ]

    # --- a turn

    def run_started(self, at: int, run_id: str) -> list[Frame]:
        state = self.state
        return [
            _frame(
                "aui_run_started",
                at,
                run_id=run_id,
                agent_type=state.workflow or None,
                task_description=state.message or None,
            )
        ]

    def run_finished(self, at: int, run_id: str, status: str | None, reason: str) -> list[Frame]:
        ended = self.state.ended
        if status == "stopped" and not ended:
            return []  # the event that stops the run sends it
        outcome = "cancelled" if status == "stopped" else "success" if ended else status or "interrupt"
        turn = self.state.turn
        spent = at - turn.at if turn is not None and turn.at else None
        interrupts = (
            [self._details(each.opened) for each in self.state.open_questions] if outcome == "interrupt" else []
        )
        details = {"outcome": outcome, "interrupts": interrupts or None, "duration_ms": spent}
        return [_frame("aui_run_finished", at, terminal=ended, run_id=run_id, **details)]

    def run_failed(self, at: int, error: e.Error) -> list[Frame]:
        fields = {"error_message": error_message(error), "error_code": error.code}
        return [_frame("aui_run_error", at, terminal=True, run_id=self.run_id(), **fields)]

    def break_off(self, at: int, reason: str, code: str) -> list[Frame]:
        return [_frame("aui_error", at, terminal=True, error_code=code, message=reason)]

    def _turn_ended(self, event: e.TurnEnded) -> list[Frame]:
        """A turn that waits for people shows every open question before it ends, also those of earlier turns."""
        if event.reason in ("finished", "failed", "stopped"):
            open_steps, self._steps = self._steps, set()
            broken = [_activity(event.at, path, "failed") for path in sorted(open_steps, reverse=True)]
            return [*broken, *super()._turn_ended(event)]
        frames, turn = super()._turn_ended(event), self.state.turn
        if event.reason != "waiting" or turn is None:
            return frames
        opened = [each.opened for each in self.state.open_questions]
        older = [each for each in opened if each.turn < turn.n]
        again = [frame for each in older for frame in self.question(event.at, each)]
        return [*frames[:-1], *again, *frames[-1:]]

    def step_edge(self, at: int, path: str, *, started: bool) -> list[Frame]:
        """A step that goes on beyond its turn stays open: the turn's end does not close its activity."""
        step = self.state.steps.get(path)
        if started:
            return [_activity(at, path, "running")]
        if step is None or step.status in ("running", "waiting"):
            return []
        cut = step.status == "stopped" and self.state.status in ("stopping", "stopped")  # not if another branch won
        return [_activity(at, path, "failed" if cut or step.status == "failed" else "completed")]

    def _step_ended(self, event: e.StepFinished | e.StepFailed | e.StepStopped | e.StepSkipped) -> list[Frame]:
        """Shows the end of any step, even one that began in an earlier turn."""
        self._steps.discard(event.path)
        step = self.state.steps.get(event.path)
        if not event.path or step is None or step.verb in SILENT_VERBS:
            return []
        return self.step_edge(event.at, event.path, started=False)

    def step_below_ended(self, at: int, path: str, status: str) -> list[Frame]:
        """Shows the end of a step of a run below, even one that began in an earlier turn."""
        self._steps.discard(path)
        return [_activity(at, path, "completed" if status in ("finished", "skipped") else "failed")]

    # --- state and snapshots

    def state_snapshot(self, at: int) -> list[Frame]:
        return [_frame("aui_state_snapshot", at, state=self.state.shown)]

    def state_delta(self, at: int, ops: Sequence[Json]) -> list[Frame]:
        return [_frame("aui_state_delta", at, delta=[strip_none(dict(each)) | _value_of(each) for each in ops])]

    def messages_snapshot(self, at: int, transcript: Sequence[Entry]) -> list[Frame]:
        messages = history(_AuiWords(), self.profile, self.state, transcript)
        return [_frame("aui_messages_snapshot", at, messages=messages)]

    # --- messages

    def message_started(self, at: int, message: MessageState) -> list[Frame]:
        if message.kind == "thinking":
            return [self._thinking(at, message, "running")]
        if message.kind != "text":
            return []
        return [_frame("aui_text_message_start", at, message_id=message.id, role=message.role)]

    def message_content(self, at: int, message: MessageState, content: str) -> list[Frame]:
        if message.kind == "thinking":
            grown = [{"op": "add", "path": "/metadata/content", "value": message.content}]
            return [_frame("aui_activity_delta", at, activity_id=message.id, delta=grown)]
        if message.kind != "text":
            return [self._component_frame(at, message, values.loads(content))]
        return [_frame("aui_text_delta", at, message_id=message.id, delta=content, field_path="content")]

    def message_ended(self, at: int, message: MessageState) -> list[Frame]:
        if message.kind == "thinking":
            return [self._thinking(at, message, "failed" if message.aborted else "completed")]
        if message.kind != "text":
            return []
        content = message.content or ""
        extra = {"aborted": True} if message.aborted else None
        return [_frame("aui_text_message_end", at, message_id=message.id, final_content=content, extra=extra)]

    def _thinking(self, at: int, message: MessageState, status: str) -> Frame:
        return _frame(
            "aui_activity_snapshot",
            at,
            activity_id=message.id,
            name="thinking",
            status=status,
            progress=0 if status == "running" else 1,
            metadata={"content": message.content or ""},
        )

    def _component_frame(self, at: int, message: MessageState, output: Object) -> Frame:
        """A structured output: the component is its type, the props its data."""
        layout = {"layout": message.layout, "blockId": message.block_id, "style": message.style}
        data = output.get("data")
        props = {**(data if isinstance(data, dict) else strip_none({"data": data})), **strip_none(layout)}
        return _frame(
            "aui_render_snapshot",
            at,
            intention="output",
            ui={"component": str(output.get("type")), "props": props},
            fallback_text=dump(output).decode(),
        )

    # --- calls and questions

    def call_started(self, at: int, call: ToolCallState) -> list[Frame]:
        return [_frame("aui_tool_call_start", at, call=call.id, tool_call_id=call.id, tool_name=call.name)]

    def call_ended(self, at: int, call: ToolCallState) -> list[Frame]:
        args = parse_object(call.args)
        return [
            _frame("aui_tool_call_args", at, call=call.id, tool_call_id=call.id, args_delta=args),
            _frame("aui_tool_call_end", at, call=call.id, tool_call_id=call.id, status="completed"),
        ]

    def call_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        return [_frame("aui_tool_call_result", at, tool_call_id=call.id, result=content, error=error)]

    def frontend_result(self, at: int, call: ToolCallState, content: str, error: str | None) -> list[Frame]:
        """Sent like any other result: another client may have answered."""
        return self.call_result(at, call, content, error)

    def frontend_tool_asked(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        return self.question(at, opened)

    def question(self, at: int, opened: e.PendingOpened) -> list[Frame]:
        return [_frame("aui_interrupt", at, call=opened.id, **self._details(opened))]

    def _details(self, opened: e.PendingOpened) -> Object:
        """The question and the actions that answer it."""
        question = as_shown(self.profile, opened)
        payload = {
            "options": [{"action": action, "label": action} for action in list_actions(opened)],
            "session_id": self.state.thread_id,
            "tool": opened.tool,
            "arguments": None if opened.args is None else values.loads(opened.args),
            "evidence": None if question.evidence is None else values.loads(question.evidence),
            "form": opened.schema,
            "deadline": None if opened.deadline is None else instants.rfc3339(opened.deadline),
        }
        return {
            "interrupt_id": opened.id,
            "reason": "\n".join(filter(None, (opened.heading, opened.message))) or opened.tool or opened.kind,
            "required_action": _REQUIRED[opened.kind],
            "payload": strip_none(payload),
        }

    # --- the author's own

    def custom(self, at: int, name: str, value: Json) -> list[Frame]:
        ui = {"component": name, "props": value if isinstance(value, dict) else {"value": value}}
        return [_frame("aui_render_snapshot", at, intention="custom", ui=ui, fallback_text=name)]

    def collaboration(self, at: int, id: str, event: e.CollaborationStarted) -> list[Frame]:
        metadata = {"from": event.from_, "to": event.to, "task": event.task}
        return [
            _frame(
                "aui_activity_snapshot",
                at,
                activity_id=id,
                name="collaboration",
                status="running",
                progress=0,
                metadata=metadata,
            )
        ]

    SHOWN: ClassVar = {
        **TurnEncoder.SHOWN,
        e.TurnEnded: _turn_ended,
        **dict.fromkeys((e.StepFinished, e.StepFailed, e.StepStopped, e.StepSkipped), _step_ended),
    }


_STEP_ENDS: Final = (e.StepFinished, e.StepFailed, e.StepStopped, e.StepSkipped)


def _activity(at: int, path: str, status: str) -> Frame:
    progress = 0 if status == "running" else 1
    return _frame("aui_activity_snapshot", at, activity_id=path, name=path, status=status, progress=progress)


# The action that each kind of question requires, and the options of a question that lists none.
_REQUIRED: Final = {"tool": "answer", "ask": "fill_in", "approve": "decide", "gate": "decide", "doubt": "decide"}
_USUAL: Final = {"ask": ("submit",), "tool": ("answer",)}


def _value_of(operation: Object) -> Object:
    """The value of an operation, also if it is null: `strip_none` would take it for absent."""
    return {"value": operation["value"]} if "value" in operation else {}


class _AuiWords:
    """Messages in a snapshot: text as text, a structured output as its JSON."""

    def message(self, message: MessageState) -> Object | None:
        if message.kind == "thinking":
            return None
        fields = {
            "id": message.id,
            "role": message.role,
            "content": message.content or "",
            "name": message.name,
            "timestamp": instants.rfc3339(message.at),
            "extra": {"aborted": True} if message.aborted else message.extra,
        }
        return strip_none(fields)

    def holder(self, id: str, at: int) -> Object:
        return {"id": id, "role": "assistant", "content": "", "timestamp": instants.rfc3339(at)}


def _frame(type: str, at: int, *, call: str | None = None, terminal: bool = False, **fields: Json) -> Frame:
    data = dump(strip_none({"type": type, "timestamp": instants.rfc3339(at), **fields}))
    return Frame(type, data, call, terminal)


AUI: Final = Dialect("aui", "aui-1", AuiEncoder)
