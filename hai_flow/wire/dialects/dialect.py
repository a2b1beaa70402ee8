"""The contract of a dialect: a translation between one UI protocol and a run's commands and events.

A dialect is two pure things. `decode` turns the bytes of a POST into a `Posted`. It looks nothing up: other code finds
the run that is meant and decides whether an answer counts. An `Encoder` folds the log into frames. It needs only its
profile, the state and the events, so it can begin anywhere, and all followers of one profile can share its bytes
(docs/design/protocols.md#one-log-many-encoders).

Deliberately absent are sockets, clocks, new ids, and every decision about people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.definition.fields import RESERVED_PREFIXES
from hai_flow.definition.personal.pii_flow import Personal
from hai_flow.engine import events as e
from hai_flow.engine.commands import Principal, Turn
from hai_flow.engine.events import Event, UserMessage
from hai_flow.engine.state.state import MessageState, RunState, ToolCallState
from hai_flow.values import Json
from hai_flow.wire.posted_json import Limits
from hai_flow.wire.sent_json import dump
from hai_flow.wire.sse import SSE, Cursor, Framing


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Everything by which the streams of two followers may differ. Hashable: it is a part of a ring's key.

    `version` is that of the peer's protocol. `redaction` names the parts of the run that are kept from the reader ("" =
    none; see `reader_redaction`), `personal` the personal values in the rest that are kept from them.
    `client_tools` are the frontend tools that the client advertised. `may_answer` says whether the follower can answer
    questions to people; one that cannot sees the question, but never as a call. `reader` is the follower, if another
    person started the run. `options` are the dialect's own, as sorted pairs."""

    dialect: str
    version: str = ""
    redaction: str = ""
    client_tools: frozenset[str] = frozenset()
    may_answer: bool = True
    reader: Principal | None = None
    personal: Personal | None = None
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str) -> str | None:
        """The value of the option `name`, or None where the client gave none."""
        return dict(self.options).get(name)


class ToolMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A client's answer to one call. `content` is its text, uninterpreted; `error` is set if the tool failed at the
    client. `digest` is the content that the answer was given to. `misplaced` names parts of an answer that stand beside
    its content, and `beside_decision` members that would be part of a decision, but not of a result or a form."""

    id: str
    tool_call_id: str
    content: str | None = None
    error: str | None = None
    digest: Json = None
    misplaced: tuple[str, ...] = ()
    beside_decision: tuple[str, ...] = ()


class ResumeEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A client's answer to one interrupt. `payload` is UNSET if the client gave none; null, false and "" are
    payloads. `misplaced` and `beside_decision` as in `ToolMessage`."""

    interrupt_id: str
    cancelled: bool = False
    payload: Json | msgspec.UnsetType = msgspec.UNSET
    misplaced: tuple[str, ...] = ()
    beside_decision: tuple[str, ...] = ()


_EDITS: Final = frozenset({"edits", "edit", "editedargs"})
_ANSWER_MEMBERS: Final = _EDITS | {"approved", "approve", "decision", "reason", "values", "digest"}


def list_misplaced_members(record: Mapping[str, Json], *taken: str) -> tuple[str, ...]:
    """The parts of an answer that stand in `record` itself, beside the member which holds the answer, in any spelling.
    `taken` are those that the protocol reads there, in this spelling alone. Other members are none of ours: clients add
    fields of their own."""
    return tuple(name for name in _list_members(record, _ANSWER_MEMBERS) if name not in taken)


def list_misplaced_edits(record: Json) -> tuple[str, ...]:
    """The edits in an object that belongs to the application, in any spelling: objects, also as JSON text, that are not
    empty. Its other members are its own, even if they have the name of a part of an answer."""
    if not isinstance(record, Mapping):
        return ()
    return tuple(name for name in _list_members(record, _EDITS) if _holds_edits(record[name]))


def _holds_edits(value: Json) -> bool:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        with suppress(values.NotJson):
            value = values.loads(value)
    return isinstance(value, Mapping) and bool(value)


def _list_members(record: Mapping[str, Json], names: frozenset[str]) -> tuple[str, ...]:
    return tuple(
        name
        for name, value in record.items()
        if value is not None and name.replace("_", "").replace("-", "").lower() in names
    )


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded POST. It is a claim, not evidence: the log decides which parts of it count
    (docs/design/protocols.md#history-is-not-evidence).

    `history` names every posted message as (id, role), in order. `body_sha` (hex) tells a repeated POST from another
    POST under the same runId. `parent_run_id` names the turn from which this one branches off. `state` is the client's
    copy of the shared state; only the parts that the client may write count."""

    thread_id: str
    wire_run_id: str
    body_sha: str
    profile: Profile
    user_messages: tuple[UserMessage, ...] = ()
    tool_messages: tuple[ToolMessage, ...] = ()
    resume: tuple[ResumeEntry, ...] = ()
    parent_run_id: str | None = None
    history: tuple[tuple[str, str], ...] = ()
    workflow: str | None = None
    input: Json = msgspec.field(default_factory=dict)
    state: dict[str, Json] = {}

    def turn(self) -> Turn:
        """The part of this POST that the turn it opens keeps."""
        profile = self.profile
        return Turn(
            wire_run_id=self.wire_run_id,
            dialect=profile.dialect,
            profile={
                "version": profile.version,
                "redaction": profile.redaction,
                "may_answer": profile.may_answer,
                "options": dict(profile.options),
            },
            client_tools=tuple(sorted(profile.client_tools)),
            body_sha=self.body_sha,
        )


CLOSING: Final = "server_closing"
EXPIRED: Final = "auth.expired"  # the reader's credential has ended: they must sign in again


class Frame(NamedTuple):
    """One event as a protocol sends it. `data` is encoded once and shared by all followers.

    `name` is the protocol's event type. `tool_call_id` is set on the frames that stream a call itself (its start,
    arguments and end, never its result): a client that has the call in its history must not get these frames again
    (docs/design/protocols.md#calls-are-streamed-once). `terminal` frames end the stream of a turn."""

    name: str
    data: bytes
    tool_call_id: str | None = None
    terminal: bool = False


Entry: TypeAlias = MessageState | ToolCallState
"""An entry of a thread's transcript."""


class Encoder(Protocol):
    """A fold of the log into frames, for one profile. The same state and events give the same bytes.

    An encoder can begin with the state at any seq: the state holds everything that a stream has open at that point."""

    def __init__(self, profile: Profile, state: RunState) -> None: ...

    def preface(self, asker_run_id: str | None, transcript: Sequence[Entry]) -> list[Frame]:
        """The first frames for a client that attaches now (docs/design/protocols.md#attaching); they carry no id.

        `transcript` holds the entries of the thread's earlier runs; those of this run are in the state. The RUN_STARTED
        bears `asker_run_id`, the client's own runId. If no turn is open, the preface is the whole stream and ends with
        a terminal frame."""
        ...

    def encode(self, event: Event) -> list[Frame]:
        """The frames of the next event; a cursor names each frame by its position in this list."""
        ...

    def farewell(self, reason: str, code: str = CLOSING) -> list[Frame]:
        """The frames that close everything open on the stream and end it, because the server must close it. `reason`
        is for people, `code` for programs."""
        ...


def readdress(frame: Frame, run_id: str) -> Frame:
    """`frame` with the runId of a follower that attached to another client's turn: its RUN_STARTED bore this runId too.

    Only terminal frames need this; no other frame names the run. A frame without a runId is returned unchanged."""
    event = values.loads(frame.data)
    return frame._replace(data=dump({**event, "runId": run_id})) if "runId" in event else frame


Decode: TypeAlias = Callable[[bytes, Limits], Posted]


class Dialect(msgspec.Struct, frozen=True):
    """A registered dialect. `encoding` is its name in cursors; it changes whenever the frames of any event change.

    `decode` is None for a projection that takes no POST, and for a protocol whose endpoint reads its own body.
    `framing` makes bytes of its frames; with `by_seq` an event's only frame is named by its seq, else by a cursor.
    `readdress` replaces the runId of a terminal frame. `corrects`: a client whose history differs from the thread's
    gets a correction before the stream that it asked for. `others` are the same dialect in other framings, for clients
    that ask for their content type."""

    name: str
    encoding: str
    encoder: Callable[[Profile, RunState], Encoder]
    decode: Decode | None = None
    framing: Framing = SSE
    by_seq: bool = False
    readdress: Callable[[Frame, str], Frame] = readdress
    corrects: bool = False
    others: tuple[Dialect, ...] = ()

    def choose_framing(self, accept: str) -> Dialect:
        """The dialect in the framing that the header `Accept` asks for; this one, if it asks for none of the others."""
        accepted_types = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
        return next((each for each in self.others if each.framing.content_type in accepted_types), self)

    def render_frames(self, frames: Sequence[Frame], seq: int, run_id: str) -> bytes:
        render = self.framing.render
        if self.by_seq:
            return b"".join(render(frame.data, frame.name, str(seq)) for frame in frames)
        return b"".join(
            render(frame.data, frame.name, str(Cursor(run_id, self.encoding, seq, number)))
            for number, frame in enumerate(frames)
        )

    def render_unnumbered(self, frames: Sequence[Frame]) -> bytes:
        """The bytes of frames that no event made (a preface, a farewell): they carry no id."""
        return b"".join(self.framing.render(frame.data, frame.name, None) for frame in frames)


def error_message(error: e.Error) -> str:
    """The author's words for an error that the author raised (`fail`, rejections); else only the place where it
    happened.

    Nothing else may reach a client (docs/design/protocols.md#errors-for-clients). An error with an attempt comes from
    an effect, even if its code looks like an author's: its message may quote another system."""
    prefix, dot, _ = error.code.partition(".")
    authored = not error.attempt and not (prefix in RESERVED_PREFIXES and dot)
    if authored or prefix == "approval":
        return error.message
    return f"Step {error.path} failed." if error.path else "The run failed."
