"""Runs as tasks of A2A 1.0 (ProtoJSON). Pure (docs/protocols/a2a.md).

A run is a task, its thread a context, its messages and its output are artifacts. `A2AEncoder` gives the text of
messages as it comes. How a run stands, and whom it waits for, depends on who asks: `status_of` says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from hai_flow import values
from hai_flow.definition.plan import Plan
from hai_flow.engine import events as e
from hai_flow.engine.state.state import MessageState, RunState
from hai_flow.errors import Rejected, describe_findings
from hai_flow.primitives import instants
from hai_flow.primitives.invisible_characters import reveal
from hai_flow.values import Json
from hai_flow.wire.dialects.dialect import Dialect, Frame, error_message, list_misplaced_edits, list_misplaced_members
from hai_flow.wire.dialects.turns import TurnEncoder
from hai_flow.wire.mcp import Question, RunView, build_question_value, describe_run
from hai_flow.wire.sent_json import dump

VERSION: Final = "1.0"
OLD_VERSION: Final = "0.3"
VERSIONS: Final = (VERSION, OLD_VERSION)
MEDIA_TYPE: Final = "application/a2a+json"
WORKFLOW: Final = "hai-flow/workflow"
"""The member of `metadata` that names a workflow, or a version of one."""
ON_BEHALF_OF: Final = "hai-flow/onBehalfOf"
"""The member of `metadata`, and of `_meta` in MCP, that names the person for whom an agent acts."""
PENDING: Final = "hai.pending"
"""The member of a data part that names questions, and of an answer's that names its question."""
FIELD: Final = "x-a2a"
"""The keyword of a field of an input that is filled with a part of the message."""
OUTPUT: Final = "output"
TEXT_CHARS_MAX: Final = 100_000
_CONTENTS: Final = ("text", "data", "raw", "url", "file")

SUBMITTED: Final = "TASK_STATE_SUBMITTED"
WORKING: Final = "TASK_STATE_WORKING"
INPUT_REQUIRED: Final = "TASK_STATE_INPUT_REQUIRED"
AUTH_REQUIRED: Final = "TASK_STATE_AUTH_REQUIRED"
COMPLETED: Final = "TASK_STATE_COMPLETED"
FAILED: Final = "TASK_STATE_FAILED"
CANCELED: Final = "TASK_STATE_CANCELED"
ENDS: Final = (COMPLETED, FAILED, CANCELED)
STATUSES: Final[Mapping[str, tuple[str, ...]]] = {
    SUBMITTED: ("queued",),
    WORKING: ("running", "paused", "waiting", "needs_attention", "stopping"),
    INPUT_REQUIRED: ("waiting",),
    AUTH_REQUIRED: ("waiting",),
    COMPLETED: ("finished",),
    FAILED: ("failed",),
    CANCELED: ("stopped",),
}
"""The statuses of runs whose task may be in a state."""
_STATES: Final = {"queued": SUBMITTED, "finished": COMPLETED, "failed": FAILED, "stopped": CANCELED}


CODES: Final[Mapping[str, tuple[int, int]]] = {
    "PARSE_ERROR": (-32700, 400),
    "INVALID_REQUEST": (-32600, 400),
    "METHOD_NOT_FOUND": (-32601, 404),
    "INVALID_PARAMS": (-32602, 400),
    "PERMISSION_DENIED": (-32602, 403),
    "UNAVAILABLE": (-32603, 503),
    "TASK_NOT_FOUND": (-32001, 404),
    "TASK_NOT_CANCELABLE": (-32002, 409),
    "UNSUPPORTED_OPERATION": (-32004, 400),
    "CONTENT_TYPE_NOT_SUPPORTED": (-32005, 415),
    "VERSION_NOT_SUPPORTED": (-32009, 400),
}
"""Of each reason the code of JSON-RPC, and the HTTP status of the REST binding."""


class Fault(Exception):
    """A refusal in the words of A2A, for one of the reasons in `CODES`."""

    def __init__(self, reason: str, message: str, metadata: Mapping[str, Json] | None = None, http: int | None = None):
        super().__init__(message)
        self.code, status = CODES[reason]
        self.http = http or status
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})


def invalid(message: str, metadata: Mapping[str, Json] | None = None) -> Fault:
    return Fault("INVALID_PARAMS", message, metadata)


def unknown_task() -> Fault:
    """A task that is foreign, erased or was never there: one answer."""
    return Fault("TASK_NOT_FOUND", "There is no such task.")


def of_rejected(rejected: Rejected) -> Fault:
    """A refusal of the server as one of A2A: what is wrong stands at its place."""
    places = "; ".join(describe_findings(rejected.findings)[:20])
    message = f"{rejected.detail} {places}" if places and places not in rejected.detail else rejected.detail
    metadata: dict[str, Json] = {"code": rejected.code}
    if rejected.status in (404, 410):
        return unknown_task() if rejected.code.startswith("run_") else invalid(message, metadata)
    if rejected.status == 415:
        return Fault("CONTENT_TYPE_NOT_SUPPORTED", rejected.detail)
    if rejected.status == 403:
        return Fault("PERMISSION_DENIED", message, metadata)
    if rejected.advice:
        metadata["retryAfter"] = str(rejected.retry_after)
        return Fault("UNAVAILABLE", message + rejected.advice, metadata, rejected.status)
    return invalid(message, metadata)


def build_error_details(fault: Fault) -> list[dict[str, Json]]:
    """The details of an error: google.rpc.ErrorInfo, whose metadata are texts."""
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": fault.reason,
        "domain": "a2a-protocol.org",
        "metadata": {name: value if isinstance(value, str) else _text(value) for name, value in fault.metadata.items()},
    }
    return [info]


def _text(value: Json) -> str:
    return values.dumps(value).decode()


_AS_IT_IS: Final = ("data", "metadata", "values")  # what is in these is the client's own


def read_names(value: Json) -> Json:
    """Parameters with the names of their fields as JSON has them: readers of ProtoJSON take those of the protocol's
    definition, too (`task_id`)."""
    if isinstance(value, Mapping):
        return {_camel(name): each if name in _AS_IT_IS else read_names(each) for name, each in value.items()}
    return [read_names(each) for each in value] if isinstance(value, list) else value


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others) if first else name


# --- messages ---------------------------------------------------------------------------------------------------------


class Message(NamedTuple):
    """A message of a client. `texts` and `data` are its parts; files are refused. `workflow`: the one that it names;
    `person`: for whom the client acts. `edits`: places of edits in `metadata`, where no answer is read."""

    id: str
    context_id: str | None
    task_id: str | None
    texts: tuple[str, ...]
    data: tuple[Json, ...]
    workflow: str | None
    person: Json = None
    edits: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join(self.texts)

    @property
    def digest(self) -> str:
        """Of what tells messages of one id apart: text and context. Of arguments there is one set for each."""
        return sha256(values.dumps([self.text, self.context_id])).hexdigest()[:16]


def read_message(params: Json) -> Message:
    """The message in the parameters of a send. Raises Fault with the place of what is wrong."""
    message = params.get("message") if isinstance(params, Mapping) else None
    if not isinstance(message, Mapping):
        raise invalid("/message: expected an object.")
    id = message.get("messageId")
    if not isinstance(id, str) or not 0 < len(id) <= 200 or not id.isprintable():
        raise invalid("/message/messageId: expected 1 to 200 visible characters.")
    if message.get("role") not in ("ROLE_USER", "user"):
        raise invalid("/message/role: expected ROLE_USER.")
    parts = message.get("parts")
    if not isinstance(parts, Sequence) or isinstance(parts, str) or not parts:
        raise invalid("/message/parts: expected a list of parts, at least one.")
    texts: list[str] = []
    data: list[Json] = []
    for place, part in enumerate(parts):
        if not isinstance(part, Mapping):
            raise invalid(f"/message/parts/{place}: expected an object.")
        if sum(part.get(name) is not None for name in _CONTENTS) > 1:
            raise invalid(f"/message/parts/{place}: expected one content, found several; send each as its own part.")
        if isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif "data" in part:
            data.append(part["data"])
        elif part.keys() & {"raw", "url", "file"}:
            where = f"/message/parts/{place}: expected text or data; files are put to /v1/files."
            raise Fault("CONTENT_TYPE_NOT_SUPPORTED", where)
        else:
            raise invalid(f"/message/parts/{place}: expected text or data.")
        if message.get("taskId") and (misplaced := list_misplaced_members(part)):
            raise invalid(f"/message/parts/{place}/{misplaced[0]}: expected inside of data, where it would be read.")
    edits: list[str] = []
    for place, holder in (("/message", message), ("", params)) if message.get("taskId") else ():
        if misplaced := list_misplaced_members(holder):
            raise _misplaced(f"{place}/{misplaced[0]}")
        edits += [f"{place}/metadata/{name}" for name in list_misplaced_edits(holder.get("metadata"))]
    if sum(map(len, texts)) > TEXT_CHARS_MAX:
        raise invalid(f"/message/parts: at most {TEXT_CHARS_MAX} characters of text.")
    return Message(
        id, _id(message, "contextId"), _id(message, "taskId"), tuple(texts), tuple(data),
        _named(message) or _named(params), _member(message, ON_BEHALF_OF) or _member(params, ON_BEHALF_OF),
        tuple(edits),
    )  # fmt: skip


def _misplaced(place: str) -> Fault:
    return invalid(f"{place}: expected inside of a data part, where it would be read.")


def _id(message: Mapping[str, Json], name: str) -> str | None:
    id = message.get(name)
    if id is not None and (not isinstance(id, str) or len(id) > 200 or not id.isprintable()):
        raise invalid(f"/message/{name}: expected at most 200 visible characters.")
    return id or None


def _member(holder: Mapping[str, Json], name: str) -> Json:
    metadata = holder.get("metadata")
    if not isinstance(metadata, Mapping | None):
        raise invalid("metadata: expected an object.")
    return None if metadata is None else metadata.get(name)


def _named(holder: Mapping[str, Json]) -> str | None:
    workflow = _member(holder, WORKFLOW)
    if workflow is not None and not (isinstance(workflow, str) and 0 < len(workflow) <= 200):
        raise invalid(f"metadata/{WORKFLOW}: expected the name of a workflow, or a version of it.")
    return workflow


def input_of(message: Message) -> dict[str, Json]:
    """The input that a message gives a workflow: the members of its data parts. Raises Fault."""
    input: dict[str, Json] = {}
    for each in message.data:
        if not isinstance(each, Mapping):
            raise invalid("/message/parts: expected data that is an object, the input of the workflow.")
        repeated = next((name for name in each if name in input), None)
        if repeated is not None:
            raise invalid(f"/message/parts: {repeated[:100]!r} stands in two of the data parts; send it once.")
        input |= each
    return input


def fill_input(schema: Json, message: Message, input: Mapping[str, Json]) -> dict[str, Json]:
    """The input with what its fields want of the message itself: `x-a2a: text`, its text; `x-a2a: message_id`."""
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    parts = {"text": message.text, "message_id": message.id}
    filled = {
        name: parts.get(str(field.get(FIELD)), "")
        for name, field in (fields.items() if isinstance(fields, Mapping) else ())
        if isinstance(field, Mapping) and FIELD in field and name not in input
    }
    return {**input, **{name: text for name, text in filled.items() if text}}


def answer_of(message: Message, questions: Sequence[Question]) -> tuple[str, dict[str, Json]]:
    """The question that the message answers, and the answer as `POST /v1/pendings/{id}/decide` takes it. Raises Fault
    where it names none of several, or says nothing that could be an answer, or has edits where a decision would lose
    them."""
    id, fields = _read_answer(message, questions)
    kind = next((each.pending.opened.kind for each in questions if each.pending.opened.id == id), None)
    if message.edits and kind not in ("tool", "ask"):  # to these they are the application's own
        raise _misplaced(message.edits[0])
    return id, fields


def _read_answer(message: Message, questions: Sequence[Question]) -> tuple[str, dict[str, Json]]:
    if any(isinstance(each, Mapping) and PENDING in each for each in message.data):
        named, *beside = [
            value for each in message.data for value in (each.values() if isinstance(each, Mapping) else [each])
        ]
        if beside:
            raise invalid(
                f"data/{PENDING}: expected one question with its whole answer, found other data beside it, which would "
                "be ignored. Answer each question by a message of its own."
            )
        if not isinstance(named, Mapping) or not isinstance(named.get("id"), str):
            raise invalid(f"data/{PENDING}: expected an object with the `id` of a question, and its answer.")
        fields = {name: value for name, value in named.items() if name not in ("id", "form", "options", "kind")}
        if not fields:
            raise invalid(f"data/{PENDING}: expected `decision` or `values` beside the id.")
        return named["id"], fields
    mine = [each for each in questions if each.mine]
    if len(mine) != 1:
        raise invalid(f"This task has {len(mine)} questions for you: name one by data {{'{PENDING}': {{'id': ...}}}}.")
    opened = mine[0].pending.opened
    fields = input_of(message)
    text = message.text.strip()
    if fields:
        return opened.id, {"values": fields} if opened.schema is not None and "decision" not in fields else fields
    if text in opened.options:
        return opened.id, {"decision": text, "digest": opened.digest}
    properties = opened.schema.get("properties") if isinstance(opened.schema, Mapping) else None
    if isinstance(properties, Mapping) and len(properties) == 1 and text:
        (name,) = properties
        return opened.id, {"values": {name: text}}
    if opened.options:
        raise invalid(f"The question is still open: expected {' or '.join(opened.options)}, found {text[:100]!r}.")
    raise invalid("The question is still open: expected a data part with the values of its form.")


# --- tasks ------------------------------------------------------------------------------------------------------------


def state_of(shown: RunView) -> str:
    state = _STATES.get(shown.state.status)
    if state is not None:
        return state
    if shown.asks_caller:
        return INPUT_REQUIRED
    return AUTH_REQUIRED if shown.questions else WORKING


def status_of(shown: RunView) -> dict[str, Any]:
    """How the task stands: with the questions where it waits for people, and the reason where it has failed."""
    state = state_of(shown)
    status: dict[str, Any] = {"state": state, "timestamp": instants.rfc3339(shown.state.at)}
    if state in (INPUT_REQUIRED, AUTH_REQUIRED):
        views = [build_question_value(each) for each in shown.questions]
        parts = [{"text": f"{describe_run(shown)}\n{shown.url}"}, {"data": {PENDING: views}}]
        status["message"] = _message(shown, parts)
    elif state == FAILED and (error := shown.state.error) is not None:
        data = {"code": error.code, "path": error.path}
        status["message"] = _message(shown, [{"text": error_message(error)}, {"data": data}])
    elif state == WORKING and shown.state.status != "running":
        status["message"] = _message(shown, [{"text": describe_run(shown)}])
    return status


def _message(shown: RunView, parts: list[dict[str, Any]]) -> dict[str, Any]:
    state = shown.state
    return {
        "messageId": f"{state.run_id}-{state.seq}",
        "contextId": state.thread_id,
        "taskId": state.run_id,
        "role": "ROLE_AGENT",
        "parts": parts,
    }


def task_of(shown: RunView, *, history: int | None = None, artifacts: bool = True) -> dict[str, Any]:
    """The run as a task. `history`: at most so many messages of the user, the newest; None: all."""
    state = shown.state
    task: dict[str, Any] = {
        "id": state.run_id,
        "contextId": state.thread_id,
        "status": status_of(shown),
        "metadata": {WORKFLOW: f"{state.workflow}@{state.version}", "url": shown.url},
    }
    if artifacts and (parts := build_artifacts(state)):
        task["artifacts"] = parts
    messages = [_user_message(each, state) for each in _messages(state) if each.role == "user"]
    if history != 0 and messages:
        task["history"] = messages[-history:] if history else messages
    return task


def _messages(state: RunState) -> list[MessageState]:
    return sorted(state.messages.values(), key=lambda each: each.n)


def _user_message(message: MessageState, state: RunState) -> dict[str, Any]:
    text = message.content if isinstance(message.content, str) else _text(message.content)
    return {
        "messageId": message.id, "contextId": state.thread_id, "taskId": state.run_id, "role": "ROLE_USER",
        "parts": [{"text": text}],
    }  # fmt: skip


def build_artifacts(state: RunState) -> list[dict[str, Any]]:
    """The messages of the run, as far as they have come, and its output."""
    messages = [
        {"artifactId": each.id, "parts": [_part(each, each.content)]}
        for each in _messages(state)
        if _is_shown(each) and each.content
    ]
    return [*messages, output_of(state)] if state.status == "finished" else messages


def output_of(state: RunState) -> dict[str, Any]:
    output = state.output
    parts = file_parts_of(output)
    if parts is None:
        parts = [{"text": output} if isinstance(output, str) else {"data": output}]
    return {"artifactId": OUTPUT, "name": OUTPUT, "parts": parts}


def file_parts_of(output: Json) -> list[dict[str, Any]] | None:
    """The output of a workflow as parts of A2A, where it is a list of such parts with a file (`url` or `raw`) among
    them. None: it is something else."""
    if not isinstance(output, Sequence) or isinstance(output, str) or not output:
        return None
    for part in output:
        kinds = part.keys() & {"text", "data", "url", "raw"} if isinstance(part, Mapping) else set()
        if len(kinds) != 1 or part.keys() - kinds - {"filename", "mediaType"}:
            return None
        if not all(isinstance(value, str) for name, value in part.items() if name != "data"):
            return None
    return values.loads(values.dumps(output)) if any(part.keys() & {"url", "raw"} for part in output) else None


def _is_shown(message: MessageState) -> bool:
    return message.role == "assistant" and message.kind != "thinking"


def _part(message: MessageState, content: str) -> dict[str, Any]:
    if message.kind == "text":
        return {"text": content}
    try:
        return {"data": values.loads(content)}
    except ValueError:  # it has not come whole yet
        return {"text": content}


class A2AEncoder(TurnEncoder):
    """The log as updates of artifacts. A frame `status` without content says that the task's status is another one:
    what it is depends on who asks, and is looked up where the stream is made."""

    def encode(self, event: e.Event) -> list[Frame]:
        before = self.state
        frames = super().encode(event)
        state = self.state
        if state.status == before.status and state.open_questions == before.open_questions:
            return frames
        if state.ended and not before.ended and state.status == "finished":
            frames.append(self._artifact(output_of(state), append=False, last=True))
        return [*frames, Frame("status", b"", terminal=state.ended)]

    def message_content(self, at: int, message: MessageState, content: str) -> list[Frame]:
        if not _is_shown(message) or message.kind != "text":
            return []
        artifact = {"artifactId": message.id, "parts": [{"text": content}]}
        return [self._artifact(artifact, append=len(message.content) > len(content), last=False)]

    def message_ended(self, at: int, message: MessageState) -> list[Frame]:
        if not _is_shown(message) or not message.content:
            return []
        if message.kind == "text":
            artifact = {"artifactId": message.id, "parts": [{"text": ""}]}
            return [self._artifact(artifact, append=True, last=True)]
        artifact = {"artifactId": message.id, "parts": [_part(message, message.content)]}
        return [self._artifact(artifact, append=False, last=True)]

    def _artifact(self, artifact: dict[str, Any], *, append: bool, last: bool) -> Frame:
        update: dict[str, Any] = {
            "taskId": self.state.run_id, "contextId": self.state.thread_id, "artifact": artifact,
            **({"append": True} if append else {}), **({"lastChunk": True} if last else {}),
        }  # fmt: skip
        return Frame("artifactUpdate", dump({"artifactUpdate": update}))


A2A: Final = Dialect("a2a", "a2a-1", A2AEncoder)


# --- cards ------------------------------------------------------------------------------------------------------------


def build_skill(plan: Plan) -> dict[str, Any]:
    return {
        "id": plan.name,
        "name": reveal(plan.title or plan.name)[:200],
        "description": reveal(plan.description or plan.title or f"Runs the workflow {plan.name}.")[:2000],
        "tags": ["workflow"],
        "inputModes": ["application/json", "text/plain"],
        "outputModes": ["application/json", "text/plain"],
    }


GENERAL_SKILL: Final[dict[str, Any]] = {
    "id": "workflows",
    "name": "Workflows",
    "description": "Starts workflows, which may wait for people. The extended card lists them; it takes a credential.",
    "tags": ["workflow", "human-in-the-loop"],
}


def build_card(
    name: str, description: str, address: str, version: str, skills: Sequence[Mapping[str, Any]], *, secured: bool,
    for_old: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """The card of an agent at `address`, for clients of 1.0 and, with `for_old`, of 0.3. `secured`: it asks for a
    credential."""
    bindings = ("JSONRPC", "HTTP+JSON")
    card: dict[str, Any] = {
        "name": name,
        "description": description,
        "version": version,
        "supportedInterfaces": [
            {"url": address, "protocolBinding": binding, "protocolVersion": each}
            for each in VERSIONS
            for binding in bindings
            if (each, binding) != (OLD_VERSION, "HTTP+JSON")
        ],
        "capabilities": {"streaming": True, "pushNotifications": True, "extendedAgentCard": True},
        "defaultInputModes": ["application/json", "text/plain"],
        "defaultOutputModes": ["application/json", "text/plain"],
        "skills": list(skills),
    }
    if for_old:
        card |= {
            "protocolVersion": "0.3.0", "url": address, "preferredTransport": "JSONRPC",
            "supportsAuthenticatedExtendedCard": True,
        }  # fmt: skip
    if secured:
        card["securitySchemes"] = {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
        card["securityRequirements"] = [{"schemes": {"bearer": {"list": []}}}]
    return card
