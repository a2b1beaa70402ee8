"""RunAgentInput: the body that HAI and AG-UI clients post (docs/design/protocols.md#ag-ui-messages).

Only `threadId` and `runId` are required; any other field may be left out, and null means the same. The server ignores
`context` and the content of system, assistant and other messages. It does not check them either: a client's history is
not evidence, so a fault in it does no harm. Everything that is kept must be plain JSON within the limits."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.engine.events import UserMessage
from hai_flow.primitives.json_pointers import pointer_of
from hai_flow.values import Json
from hai_flow.wire import posted_json
from hai_flow.wire.dialects.dialect import ResumeEntry, ToolMessage, list_misplaced_edits, list_misplaced_members
from hai_flow.wire.posted_json import Limits

MEDIA: Final = ("image", "audio", "video", "document")
"""The types of content parts that have a source."""


class AgentInput(msgspec.Struct, frozen=True, kw_only=True):
    """A RunAgentInput, checked. `forwarded` is `forwardedProps`; `history` names each message as (id, role).

    `state` is the client's copy of the shared state; {} if it sent no object. Only AG-UI has `resume`,
    `protocol_version` and `parent_run_id`."""

    thread_id: str
    run_id: str
    body_sha: str
    user_messages: tuple[UserMessage, ...]
    tool_messages: tuple[ToolMessage, ...]
    history: tuple[tuple[str, str], ...]
    client_tools: frozenset[str]
    forwarded: dict[str, Json]
    state: dict[str, Json] = {}
    resume: tuple[ResumeEntry, ...] = ()
    protocol_version: str | None = None
    parent_run_id: str | None = None


def read(body: bytes, limits: Limits, *, resumes: bool = False) -> AgentInput:
    """The RunAgentInput in `body`. `resumes` reads the fields that AG-UI adds too, and accepts names in `snake_case`.

    Raises `Rejected`: 413 beyond a limit, 400 not JSON, 422 with every finding."""
    return _Reader(limits, resumes).read(body)


def wishes(posted: AgentInput) -> tuple[str | None, Json]:
    """The workflow and the input that `forwardedProps` names. Raises `Rejected` 422."""
    workflow, input = posted.forwarded.get("workflow"), posted.forwarded.get("input")
    if workflow is not None and not isinstance(workflow, str):
        raise posted_json.invalid([{"path": "/forwardedProps/workflow", "message": "expected the name of a workflow"}])
    return workflow, {} if input is None else input


# --- bytes to JSON ------------------------------------------------------------------------------------------------

# A string that never ends is matched up to the end of the body: a new try at each of its quotes would take quadratic
# time.
# --- JSON to a RunAgentInput --------------------------------------------------------------------------------------

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class _Reader:
    """One pass over a body, collecting every finding."""

    def __init__(self, limits: Limits, resumes: bool) -> None:
        self._limits = limits
        self._resumes = resumes
        self._findings: list[dict[str, str]] = []
        self._beside: tuple[str, ...] = ()  # parts of an answer that stand beside all messages
        self._edits: tuple[str, ...] = ()  # edits among the application's own properties

    def read(self, body: bytes) -> AgentInput:
        document = posted_json.load(body, self._limits)
        if not isinstance(document, dict):
            raise posted_json.invalid([{"path": "", "message": "expected a JSON object, a RunAgentInput"}])
        if self._resumes:
            document = self._camel(document, _OF_THE_INPUT)
        self._beside = list_misplaced_members(document)
        self._edits = list_misplaced_edits(document.get("forwardedProps"))
        messages = self._records(document, "messages", self._limits.messages_max)
        tools = self._records(document, "tools", self._limits.tools_max)
        posted = AgentInput(
            thread_id=self._id(document, "threadId"),
            run_id=self._id(document, "runId"),
            body_sha=sha256(body).hexdigest(),
            history=tuple((self._id(message, "id", *at), self._text(message, "role", *at)) for at, message in messages),
            user_messages=self._user_messages(messages),
            tool_messages=tuple(
                self._tool_message(at, message) for at, message in messages if message.get("role") == "tool"
            ),
            client_tools=frozenset(self._id(tool, "name", *at) for at, tool in tools),
            forwarded=self._record(document, "forwardedProps"),
            state=state if isinstance(state := document.get("state"), dict) else {},
            **(self._resuming(document) if self._resumes else {}),
        )
        if self._findings:
            raise posted_json.invalid(self._findings)
        return posted

    def _camel(self, record: dict[str, Json], names: _Names, at: _Place = ()) -> dict[str, Json]:
        """`record` with its names as the protocol spells them. Clients in Python may post the names of their models in
        `snake_case`, and AG-UI's official servers read those too. If a record has both spellings, their values must be
        equal: readers disagree on which one counts."""
        renamed = dict(record)
        for name, inside in names.items():
            snake = _snake(name)
            if snake != name and (value := renamed.pop(snake, None)) is not None:
                if renamed.get(name) is None:
                    renamed[name] = value
                elif renamed[name] != value:
                    self._find(f"is {name} too, and they differ; send one of them", *at, snake)
            if inside is None:
                continue
            value = renamed.get(name)
            if isinstance(value, dict):
                renamed[name] = self._camel(value, inside, (*at, name))
            elif isinstance(value, list):
                renamed[name] = [
                    self._camel(item, inside, (*at, name, number)) if isinstance(item, dict) else item
                    for number, item in enumerate(value)
                ]
        return renamed

    def _resuming(self, document: dict[str, Json]) -> dict[str, Any]:
        entries = self._records(document, "resume", self._limits.messages_max)
        return {
            "resume": tuple(self._resume_entry(at, entry) for at, entry in entries),
            "protocol_version": self._optional_text(document, "protocolVersion"),
            "parent_run_id": self._id(document, "parentRunId") if document.get("parentRunId") is not None else None,
        }

    def _resume_entry(self, at: _Place, entry: dict[str, Json]) -> ResumeEntry:
        status = entry.get("status")
        if status not in ("resolved", "cancelled"):
            self._find("expected resolved or cancelled", *at, "status")
        payload = entry.get("payload", msgspec.UNSET)
        misplaced = (*list_misplaced_members(entry), *self._beside)
        return ResumeEntry(self._id(entry, "interruptId", *at), status == "cancelled", payload, misplaced, self._edits)

    def _user_messages(self, messages: list[tuple[_Place, dict[str, Json]]]) -> tuple[UserMessage, ...]:
        ids: set[str] = set()
        users: list[UserMessage] = []
        for at, message in messages:
            if message.get("role") != "user":
                continue
            user = UserMessage(
                str(message.get("id")),
                "user",
                self._user_content(at, message),
                self._optional_text(message, "name", *at),
                self._timestamp(at, message),
                message.get("extra"),
            )
            if user.id in ids:
                self._find("another user message has this id already", *at, "id")
            ids.add(user.id)
            users.append(user)
        return tuple(users)

    def _user_content(self, at: _Place, message: dict[str, Json]) -> Json:
        """Text, or content parts unchanged; only the old `binary` parts are rewritten in the present form."""
        content = message.get("content")
        if content is None:
            return ""
        if isinstance(content, str):
            return content
        if isinstance(content, list) and all(
            isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
        ):
            return [_convert_part(part) for part in content]
        self._find("expected text or a list of content parts, each an object with a type", *at, "content")
        return ""

    def _timestamp(self, at: _Place, message: dict[str, Json]) -> int | None:
        timestamp = message.get("timestamp")
        if timestamp is None:
            return None
        if isinstance(timestamp, float) and timestamp.is_integer():
            timestamp = int(timestamp)
        if type(timestamp) is int and 0 <= timestamp <= values.INTEGER_MAX:
            return timestamp
        self._find("expected milliseconds since 1970 as an integer", *at, "timestamp")
        return None

    def _tool_message(self, at: _Place, message: dict[str, Json]) -> ToolMessage:
        call = self._id(message, "toolCallId", *at)
        error = self._optional_text(message, "error", *at)
        content = message.get("content")
        if isinstance(content, list):
            content = self._join_text(content)
        elif content is not None and not isinstance(content, str):  # the frontend has acted: its result is not refused
            content = values.dumps(content).decode()
        if content is None and error is None:
            self._find("expected the answer to a call as text, found none", *at, "content")
        misplaced = (*list_misplaced_members(message, "digest"), *self._beside)
        return ToolMessage(str(message.get("id")), call, content, error, message.get("digest"), misplaced, self._edits)

    def _join_text(self, parts: list[Json]) -> str:
        """The text of content parts. A list with anything else stays JSON text, so that nothing is lost."""
        texts = [
            part["text"]
            for part in parts
            if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        ]
        return "".join(texts) if len(texts) == len(parts) else values.dumps(parts).decode()

    # --- fields of any record

    def _records(self, document: dict[str, Json], name: str, most: int) -> list[tuple[_Place, dict[str, Json]]]:
        items = document.get(name)
        if items is None:
            return []
        if not isinstance(items, list):
            self._find("expected a list", name)
            return []
        if len(items) > most:
            raise posted_json.too_large(f"at most {most} {name}", str(len(items)))
        records: list[tuple[_Place, dict[str, Json]]] = []
        for index, item in enumerate(items):
            if isinstance(item, dict):
                records.append(((name, index), item))
            else:
                self._find("expected an object", name, index)
        return records

    def _record(self, document: dict[str, Json], name: str) -> dict[str, Json]:
        record = document.get(name)
        if record is None:
            return {}
        if isinstance(record, dict):
            return record
        self._find("expected an object", name)
        return {}

    def _id(self, record: dict[str, Json], name: str, *at: str | int) -> str:
        text = self._text(record, name, *at)
        if len(text) > self._limits.id_chars_max:
            self._find(f"expected at most {self._limits.id_chars_max} characters, found {len(text)}", *at, name)
        elif _CONTROL.search(text):
            self._find("expected no control characters", *at, name)
        return text

    def _text(self, record: dict[str, Json], name: str, *at: str | int) -> str:
        value = record.get(name)
        if isinstance(value, str) and value:
            return value
        self._find("expected text, found " + ("none" if value in (None, "") else "another type"), *at, name)
        return ""

    def _optional_text(self, record: dict[str, Json], name: str, *at: str | int) -> str | None:
        value = record.get(name)
        if value is None or isinstance(value, str):
            return value
        self._find("expected text", *at, name)
        return None

    def _find(self, message: str, *at: str | int) -> None:
        self._findings.append({"path": pointer_of(*at), "message": message})


def _convert_part(part: dict[str, Json]) -> dict[str, Json]:
    """A part `binary` {mimeType, data | url | id, filename?} as image, audio, video or document with a source, as newer
    clients write it (docs/design/protocols.md#ag-ui-messages). A part that lacks one of these stays unchanged."""
    mime = part.get("mimeType")
    if part["type"] != "binary" or not isinstance(mime, str):
        return part
    kind = mime.partition("/")[0]
    for name, type in (("data", "data"), ("url", "url"), ("id", "file")):
        if isinstance(part.get(name), str) and part[name]:
            source = {"type": type, "value": part[name], "mimeType": mime}
            upgraded: dict[str, Json] = {"type": kind if kind in MEDIA else "document", "source": source}
            if isinstance(part.get("filename"), str):
                upgraded["metadata"] = {"filename": part["filename"]}
            return upgraded
    return part


_Place: TypeAlias = tuple[str | int, ...]


class _Names(dict[str, "_Names | None"]):
    """The names of a record's fields that consist of several words, and the names inside the records that these fields
    hold."""


_PART: Final = _Names(mimeType=None, source=_Names(mimeType=None))
_OF_THE_INPUT: Final = _Names(
    threadId=None,
    runId=None,
    parentRunId=None,
    protocolVersion=None,
    forwardedProps=None,
    messages=_Names(toolCallId=None, content=_PART),
    resume=_Names(interruptId=None),
)


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
