"""The events that HAI and AG-UI write alike."""

from __future__ import annotations

from hai_flow.values import Json
from hai_flow.wire.dialects.dialect import Frame
from hai_flow.wire.dialects.turns import TurnEncoder
from hai_flow.wire.sent_json import dump, strip_none


def frame(type: str, at: int, *, call: str | None = None, terminal: bool = False, **fields: Json) -> Frame:
    """One event. Fields that are None are left out; `call` is the toolCallId of a frame that streams a call."""
    return Frame(type, dump(strip_none({"type": type, **fields, "timestamp": at})), call, terminal)


def custom_frame(name: str, value: Json, at: int) -> Frame:
    """CUSTOM's value is written even if it is null."""
    return Frame("CUSTOM", dump({"type": "CUSTOM", "name": name, "value": value, "timestamp": at}))


def call_start(id: str, name: str, at: int, parent: str | None = None) -> Frame:
    return frame("TOOL_CALL_START", at, call=id, toolCallId=id, toolCallName=name, parentMessageId=parent)


def call_args(id: str, delta: str, at: int) -> Frame:
    return frame("TOOL_CALL_ARGS", at, call=id, toolCallId=id, delta=delta)


def call_end(id: str, at: int) -> Frame:
    return frame("TOOL_CALL_END", at, call=id, toolCallId=id)


def call_frames(id: str, name: str, args: str, at: int) -> list[Frame]:
    return [call_start(id, name, at), call_args(id, args, at), call_end(id, at)]


class FrameEncoder(TurnEncoder):
    """The methods of an encoder that are the same in both."""

    def step_edge(self, at: int, path: str, *, started: bool) -> list[Frame]:
        return [frame("STEP_STARTED" if started else "STEP_FINISHED", at, stepName=path)]

    def state_snapshot(self, at: int) -> list[Frame]:
        return [frame("STATE_SNAPSHOT", at, snapshot=self.state.shown)]

    def custom(self, at: int, name: str, value: Json) -> list[Frame]:
        return [custom_frame(name, value, at)]

    def raw(self, at: int, event: Json, source: str | None) -> list[Frame]:
        """Another system's event is written even if it is null."""
        fields = {"type": "RAW", "event": event, **strip_none({"source": source}), "timestamp": at}
        return [Frame("RAW", dump(fields))]
