"""Runs told by hand: event sequences as the engine may produce them, and the client's side of reading frames."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import evolve, fold
from hai_flow.engine.state.state import RunState
from hai_flow.wire.dialects.agui import AguiEncoder
from hai_flow.wire.dialects.dialect import Frame, Profile
from hai_flow.wire.dialects.hai import HaiEncoder

RUN = "0199f0aa-0000-7000-8000-000000000001"
NEW = RunState(RUN)


class Story:
    """Builds a log event by event. Each method checks, through `evolve`, that the fold accepts what it says."""

    def __init__(self) -> None:
        self.state = NEW
        self.events: list[e.Event] = []
        self.at = 1_700_000_000_000
        self.turn = 0
        self.names = 0

    def tell(self, event_type: type[e.Event], /, **fields: Any) -> None:
        self.at += 7
        event = event_type(at=self.at, turn=self.turn, **fields)
        self.events.append(event)
        self.state = evolve(self.state, event)

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def start(self, state: Any = None, wire_run_id: str | None = "r1") -> Story:
        self.tell(
            e.RunStarted,
            workflow="w",
            version=1,
            sha256="00",
            thread_id="t1",
            requester="user:local",
            input={},
            state=state or {},
        )
        return self.open_turn(wire_run_id)

    def open_turn(self, wire_run_id: str | None = None) -> Story:
        self.turn += 1
        self.tell(e.TurnStarted, wire_run_id=wire_run_id, dialect="hai" if wire_run_id else None)
        return self

    def end_turn(self, reason: str = "waiting") -> Story:
        self.tell(e.TurnEnded, reason=reason)
        return self

    def post(self, id: str, content: Any = "hello") -> Story:
        self.tell(e.MessagesChanged, messages=(e.UserMessage(id, "user", content, timestamp=5),))
        return self

    def step(self, path: str, verb: str = "call") -> Story:
        self.tell(e.StepStarted, path=path, verb=verb, attempt=1 if verb == "call" else 0)
        return self

    def done(self, path: str, output: Any = None) -> Story:
        self.tell(e.StepFinished, path=path, output=output)
        return self

    def open_message(self, path: str, **fields: Any) -> str:
        id = self.name("m")
        self.tell(e.MessageStarted, message_id=id, path=path, **fields)
        return id

    def chunk(self, id: str, content: str) -> Story:
        self.tell(e.MessageChunk, message_id=id, n=self.state.messages[id].chunks, content=content)
        return self

    def say(self, path: str, *chunks: str, aborted: bool = False, **fields: Any) -> Story:
        self.step(path, "say")
        id = self.open_message(path, **fields)
        for content in chunks:
            self.chunk(id, content)
        self.tell(e.MessageEnded, message_id=id, aborted=aborted)
        return self.done(path)

    def open_call(self, path: str, executor: str, parent: str | None = None, name: str = "pick") -> str:
        id = self.name("call_")
        self.tell(
            e.ToolCallStarted,
            tool_call_id=id,
            name=name,
            path=path,
            executor=executor,
            message_id=parent or id,
            parent_message_id=parent,
        )
        return id

    def args(self, id: str, content: str) -> Story:
        self.tell(e.ToolCallArgsChunk, tool_call_id=id, content=content)
        return self

    def end_call(self, id: str) -> Story:
        self.tell(e.ToolCallEnded, tool_call_id=id)
        return self

    def frontend_call(self, path: str, parent: str | None = None) -> str:
        self.tell(e.StepStarted, path=path, verb="call")
        id = self.open_call(path, "frontend", parent)
        self.args(id, '{"of":[1,').args(id, "null]}").end_call(id)
        self.tell(e.PendingOpened, id=id, path=path, kind="tool", digest="d", tool="pick", args='{"of":[1,null]}')
        return id

    def question(self, path: str, kind: str = "approve", **fields: Any) -> str:
        self.tell(e.StepStarted, path=path, verb=kind)
        id = self.name("call_")
        self.tell(e.PendingOpened, id=id, path=path, kind=kind, digest="d", title="Sure?", **fields)
        return id

    def decide(self, id: str, outcome: str = "answered", value: Any = None) -> Story:
        path = self.state.pendings[id].opened.path
        self.tell(e.PendingDecided, id=id, outcome=outcome, value=value)
        return self.done(path, value)

    def set(self, *ops: dict[str, Any]) -> Story:
        self.tell(e.StateChanged, path="", ops=ops)
        return self

    def finish(self) -> Story:
        self.end_turn("finished")
        self.tell(e.RunFinished, output={"ok": None})
        return self

    def fail(self, code: str = "tool.failed", message: str = "secret", path: str = "a", attempt: int = 1) -> Story:
        self.end_turn("failed")
        self.tell(e.RunFailed, error=e.Error(code, message, path, attempt))
        return self

    def state_at(self, seq: int) -> RunState:
        return fold(NEW, self.events[:seq])


def profile(*tools: str, may_answer: bool = True, **options: str) -> Profile:
    return Profile(
        dialect="hai",
        version="1",
        client_tools=frozenset(tools),
        may_answer=may_answer,
        options=tuple((f"hai.{name}", value) for name, value in sorted(options.items())),
    )


def encode(story: Story, profile: Profile, after: int = 0) -> list[Frame]:
    """The frames of everything after the first `after` events."""
    return encode_from(HaiEncoder(profile, story.state_at(after)), story.events[after:])


def encode_from(encoder: HaiEncoder | AguiEncoder, events: Iterable[e.Event]) -> list[Frame]:
    return [frame for event in events for frame in encoder.encode(event)]


def read(frames: Sequence[Frame]) -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in frames]


def types(frames: Sequence[Frame]) -> list[str]:
    assert all(json.loads(frame.data)["type"] == frame.name for frame in frames)
    return [frame.name for frame in frames]


def parse_json_string(text: str) -> list[Any]:
    """The HAI document's own client, section 4.1: `[${jsonString.replace(/}{/g, '},{')}]`."""
    return json.loads("[" + text.replace("}{", "},{") + "]")


def deltas(events: Sequence[dict[str, Any]], message_id: str) -> str:
    """What the client's buffer for one message holds in the end."""
    return "".join(
        event["delta"]
        for event in events
        if event["type"] == "BUSINESS_DATA_CONTENT" and event["messageId"] == message_id
    )


TEXTS = st.text(
    st.one_of(
        st.sampled_from('{}"\\\n\r\u2028\u0085中😀'),
        st.characters(exclude_categories=["Cs"], exclude_characters="\x00"),
    ),
    max_size=12,
)

_ACTIONS = (
    "step", "block", "done", "fail_step", "say", "think", "data", "open", "chunk", "end", "call", "server", "resolve",
    "args", "end_call", "approve", "ask", "set", "wait", "pause", "post", "void",
)  # fmt: skip


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Any run that keeps the log's rules: what is started is ended before its turn; steps may stay open."""
    story = Story().start(draw(st.sampled_from([{}, {"n": None, "x": [1]}])), draw(st.sampled_from([None, "r1"])))
    if draw(st.booleans()):
        story.post("u1")
    for action in draw(st.lists(st.sampled_from(_ACTIONS), max_size=25)):
        _act(draw, story, action)
    _close(story)
    match draw(st.sampled_from(["finish", "fail", "stop", "wait", "leave"])):
        case "finish":
            story.finish()
        case "fail":
            story.fail()
        case "stop":
            story.tell(e.RunStopping, by="user:local", reason="enough")
            story.end_turn("stopped")
            story.tell(e.RunStopped, by="user:local")
        case "wait":
            story.end_turn()
            story.tell(e.TimerFired, path="x", kind="wait")
        case _:
            pass
    return story


def _open_steps(story: Story) -> list[str]:
    return sorted(path for path, step in story.state.steps.items() if step.status == "running")


def _close(story: Story) -> None:
    """Ends every message and call, as the log does before a turn ends."""
    for id in sorted(story.state.open_messages):
        story.tell(e.MessageEnded, message_id=id, aborted=True)
    for call in sorted(story.state.tool_calls.values(), key=lambda call: call.n):
        if call.open:
            story.end_call(call.id)


def _act(draw: st.DrawFn, story: Story, action: str) -> None:
    state = story.state
    steps = _open_steps(story)
    messages = sorted(state.open_messages)
    calls = sorted(call.id for call in state.tool_calls.values() if call.open)
    match action:
        case "step":
            story.step(story.name("s"))
        case "block":
            story.step(story.name("b"), draw(st.sampled_from(["switch", "parallel"])))
        case "done" if steps:
            story.done(draw(st.sampled_from(steps)), {"o": None})
        case "fail_step" if steps:
            path = draw(st.sampled_from(steps))
            story.tell(e.StepFailed, path=path, error=e.Error("tool.failed", "no", path, 1), handler="~catch/0")
        case "say":
            story.say(story.name("s"), *draw(st.lists(TEXTS, max_size=3)), block_id=draw(st.sampled_from([None, "b1"])))
        case "think":
            story.say(story.name("s"), draw(TEXTS), kind="thinking")
        case "data":
            story.say(story.name("s"), json.dumps({"type": "button", "data": {"name": draw(TEXTS)}}), kind="data")
        case "open" if steps:
            story.open_message(steps[0], kind=draw(st.sampled_from(["text", "thinking"])))
        case "chunk" if messages:
            story.chunk(draw(st.sampled_from(messages)), draw(TEXTS))
        case "end" if messages:
            story.tell(e.MessageEnded, message_id=draw(st.sampled_from(messages)))
        case "call":
            ended = sorted(state.last_message.values())
            story.frontend_call(story.name("f"), draw(st.sampled_from([None, *ended])))
        case "server" if steps:
            story.open_call(steps[0], "server")
        case "args" if calls:
            story.args(draw(st.sampled_from(calls)), draw(TEXTS))
        case "end_call" if calls:
            story.end_call(draw(st.sampled_from(calls)))
        case "resolve":
            for call in sorted(state.tool_calls.values(), key=lambda call: call.n):
                if call.executor == "server" and not call.open and call.result is None:
                    story.tell(e.ToolCallResolved, tool_call_id=call.id, content="done")
        case "approve":
            story.question(story.name("q"), options=("approve", "reject"), evidence='{"a":null}', deadline=9)
        case "ask":
            story.question(story.name("q"), "ask", schema={"type": "object"})
        case "void" if state.open_pendings:
            story.tell(e.PendingVoided, id=sorted(state.open_pendings.values())[0])
        case "set":
            story.set({"op": "add", "path": "/x", "value": [None]})
        case "wait":
            _close(story)
            story.end_turn()
            story.open_turn(draw(st.sampled_from([None, story.name("r")])))
            for id in sorted(state.open_pendings.values()):
                if draw(st.booleans()):
                    kind = state.pendings[id].opened.kind
                    story.decide(id, "approve" if kind == "approve" else "answered", draw(TEXTS))
        case "pause":
            _close(story)
            story.tell(e.RunPaused, by="user:local")
            story.end_turn("paused")
            story.tell(e.RunResumed, by="user:local", status="running")
            story.open_turn()
        case "post":
            story.post(story.name("u"), [{"type": "text", "text": draw(TEXTS)}])
        case _:
            pass
