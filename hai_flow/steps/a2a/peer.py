"""What an agent of others says over A2A: its card, its tasks, its questions, its artifacts. Pure.

Everything is read leniently, as 1.0 writes it and as 0.3 does, and everything is data: it opens no gate, names no
secret and leads to no other server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from hai_flow import foreign, values
from hai_flow.errors import StepError
from hai_flow.steps.files import kind_of
from hai_flow.steps.http.stream import Events
from hai_flow.values import Json, storable

PARTS_MAX: Final = 100  # of all artifacts
TEXT_CHARS_MAX: Final = 2000  # of a status
PENDING: Final = "hai.pending"
ENDS: Final = ("completed", "failed", "rejected", "canceled")
_WORDS: Final = {
    "submitted": "submitted pending queued",
    "working": "working running inprogress processing",
    "completed": "completed complete succeeded success successful done finished",
    "failed": "failed failure error errored timedout timeout",
    "canceled": "canceled cancelled aborted terminated",
    "input-required": "inputrequired requiresinput awaitinginput waitingforinput",
    "rejected": "rejected refused declined",
    "auth-required": "authrequired",
}
"""The states, and the words of agents that do not keep to those of the protocol: no other would ever end."""
_SPELLINGS: Final = {word: state for state, words in _WORDS.items() for word in words.split()}
_NUMBERS: Final = (
    "", "submitted", "working", "completed", "failed", "canceled", "input-required", "rejected", "auth-required",
)  # fmt: skip
_USER: Final = 1  # the role by its number
_UNDERSCORE: Final = re.compile("(?<=[a-z])_([a-z])")
_OPEN_KEYS: Final = frozenset({"data", "metadata"})  # whose members have names of their own
_OWN_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1", "::"})
_EVENT_KINDS: Final = ("statusUpdate", "artifactUpdate")
ANSWER_FORM: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["answer"],
    "properties": {"answer": {"type": "string", "title": "Answer", "minLength": 1}},
}
"""The form of a question that comes without one."""


class Interface(NamedTuple):
    """Where the agent is asked. `old`: in the words of 0.3. `rest`: by paths, not by JSON-RPC."""

    url: str
    old: bool
    rest: bool


class Question(NamedTuple):
    """What a task asks. `pending`: the question's id and digest, where the agent is HAI Flow too. `digest`: tells
    questions of a task apart; `content` does so without the ids of their messages, which some agents make anew whenever
    they are asked."""

    text: str
    form: dict[str, Any]
    pending: Mapping[str, Json] | None
    digest: str
    content: str


def read_answer(text: str) -> Json:
    """The JSON in a body of another type, with the names of ProtoJSON; of a stream the last event that has a task or a
    message, else its first; None where there is none."""
    text = text.removeprefix("\ufeff")
    if not re.match(r"\s*(?:data|event|id|retry)?:", text):
        return _read_json(text)
    answers = [answer for event in Events().fed(f"{text}\n\n") for answer in _read_event_data(event.data)]
    last = [each for each in answers if isinstance(each, Mapping) and _read_task(each.get("result"))]
    return last[-1] if last else next(iter(answers), None)


def _read_event_data(data: str) -> list[Json]:
    """The JSON in the data of an event; where there is none, that of its lines: some servers end no event."""
    json_value = _read_json(data)
    return [json_value] if json_value else [each for line in data.split("\n") if (each := _read_json(line))]


def _read_json(text: str) -> Json:
    try:
        return use_protocol_names(foreign.read(text).value)
    except values.NotJson:
        return None


def use_protocol_names(value: Json) -> Json:
    """The value with the names of ProtoJSON, whose readers take those of the protocol's definition (`task_id`) too;
    a member that is there by both names stays."""
    if isinstance(value, list):
        return [use_protocol_names(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name if (name := _UNDERSCORE.sub(lambda letter: letter[1].upper(), key)) not in value else key: (
            each if key in _OPEN_KEYS else use_protocol_names(each)
        )
        for key, each in value.items()
    }


def choose_interface(card: Json, url: str) -> Interface:
    """The interface of a card that is understood here, at the server of `url`. Raises StepError."""
    interfaces = sorted(_list_interfaces(card, url), key=lambda each: (each.old, each.rest))
    ours = [each for each in interfaces if _origin(each.url) == _origin(url)]
    if ours:
        return ours[0]
    if interfaces:
        other = str(_origin(interfaces[0].url)[1])[:100]
        raise unusable(f"its card leads to another server ({other}); name that one in the workflow")
    raise unusable("its card offers neither JSON-RPC nor REST, in version 1.0 or 0.3")


def _list_interfaces(card: Json, url: str) -> Iterator[Interface]:
    if not isinstance(card, Mapping):
        return
    for each in _mappings(card.get("supportedInterfaces")):
        version = str(each.get("protocolVersion") or "1.0")
        binding = _letters_of(each.get("protocolBinding") or each.get("transport"))
        old = version.startswith("0.")
        if isinstance(each.get("url"), str) and (binding == "jsonrpc" or (binding == "httpjson" and not old)):
            yield Interface(_resolve(url, each["url"]), old, binding != "jsonrpc")
    others = [{"url": card.get("url"), "transport": card.get("preferredTransport") or "JSONRPC"}]
    for each in (*others, *_mappings(card.get("additionalInterfaces"))):
        if isinstance(each.get("url"), str) and _letters_of(each.get("transport")) == "jsonrpc":
            yield Interface(_resolve(url, each["url"]), True, False)


def _letters_of(word: Json) -> str:
    return re.sub("[^a-z]", "", str(word).lower())


def _resolve(base: str, url: str) -> str:
    """An address of a card. One of the agent's own machine, as servers write it that don't know their name, is a path
    at the server where the card is; so is one without TLS at the host of a card that came by TLS, of a server behind a
    proxy that ends it."""
    try:
        full, card = urlsplit(urljoin(base, url)), urlsplit(base)
        is_own = full.hostname in _OWN_MACHINE and card.hostname not in _OWN_MACHINE
        is_behind_tls = (full.scheme, card.scheme, full.hostname) == ("http", "https", card.hostname)
        if is_own or (is_behind_tls and full.port in (None, 80)):
            full = urlsplit(urljoin(base, full._replace(scheme="", netloc="").geturl() or "/"))
        return full.geturl()
    except ValueError:
        return url


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return "", None, None


def write_message(
    parts: Sequence[Mapping[str, Json]], message_id: str, context: str | None, task: str | None, *, old: bool
) -> dict[str, Any]:
    """The parameters of a send that waits for nothing."""
    message: dict[str, Any] = {"messageId": message_id, "role": "user" if old else "ROLE_USER"}
    message |= {"contextId": context} if context else {}
    message |= {"taskId": task} if task else {}
    if old:
        message |= {
            "kind": "message",
            "parts": [{"kind": "text" if "text" in each else "data", **each} for each in parts],
        }
        return {"message": message, "configuration": {"blocking": False}}
    return {"message": {**message, "parts": list(parts)}, "configuration": {"returnImmediately": True}}


def read_result(result: Json) -> Mapping[str, Json]:
    """The task of a send; a message is one that is completed, with the message as its artifact, and an event of a task
    is one that goes on. Raises StepError."""
    if (task := _read_task(result) or _read_event(result)) is not None:
        return task
    raise StepError(
        f"the agent answers with neither a task nor a message: {_short(result)}",
        code="tool.invalid_result",
        retriable=False,
    )


def _read_task(result: Json) -> Mapping[str, Json] | None:
    if not isinstance(result, Mapping):
        return None
    task, message = result.get("task", result), result.get("message", result)
    if isinstance(task, Mapping):
        id, status = task.get("id"), task.get("status")
        if type(id) in (str, int) and status and isinstance(status, Mapping | str):
            return {**task, "id": str(id), "status": status if isinstance(status, Mapping) else {"state": status}}
    if isinstance(message, Mapping) and isinstance(message.get("parts"), list):
        return {"status": {"state": "completed"}, "artifacts": [message]}
    return None


def _read_event(result: Json) -> Mapping[str, Json] | None:
    """The task of an event that stands in its place: it has to be asked for."""
    if not isinstance(result, Mapping):
        return None
    event = next((result[name] for name in _EVENT_KINDS if name in result), result)
    if not isinstance(event, Mapping) or not isinstance(event.get("taskId"), str):
        return None
    return {"id": event["taskId"], "contextId": event.get("contextId"), "status": {"state": "working"}}


def state_of(task: Mapping[str, Json]) -> str:
    """The state of a task, as 0.3 writes it: `working`, `input-required`."""
    status = task.get("status")
    state = status.get("state") if isinstance(status, Mapping) else status or ""
    if type(state) is int:
        return _NUMBERS[state] if 0 <= state < len(_NUMBERS) else ""
    word = _letters_of(state).removeprefix("taskstate")
    return _SPELLINGS.get(word, word)


def words_of(task: Mapping[str, Json]) -> str:
    """The text of a task's status."""
    texts = [part["text"] for part in _parts(_message_of(task)) if isinstance(part.get("text"), str)]
    return storable("\n".join(texts))[:TEXT_CHARS_MAX]


def question_of(task: Mapping[str, Json]) -> Question:
    """What a task asks that waits for input."""
    message, status = _message_of(task), task["status"]
    text = words_of(task) or "The agent needs something more to go on, and does not say what."
    has_id = isinstance(message, Mapping) and message.get("messageId")  # else only its time tells it from another
    digest = _digest_of(task, None if has_id else status.get("timestamp"))
    content = sha256(values.dumps([task.get("id"), _parts(message)])).hexdigest()[:32]
    for part in _parts(message):
        holder = part.get("data")
        pendings = _mappings(holder.get(PENDING)) if isinstance(holder, Mapping) else []
        pending = next((each for each in pendings if each.get("may_answer") and isinstance(each.get("id"), str)), None)
        if pending is not None:
            form, options = pending.get("form"), pending.get("options")
            if isinstance(form, Mapping) and isinstance(form.get("properties"), Mapping):
                return Question(text, dict(form), {"id": pending["id"]}, digest, content)
            texts = [each for each in options if isinstance(each, str)] if isinstance(options, list) else []
            if texts:
                about = {name: pending[name] for name in ("id", "digest") if pending.get(name)}
                return Question(text, _form_of_options(texts), about, digest, content)
    return Question(text, ANSWER_FORM, None, digest, content)


def is_asking(task: Mapping[str, Json], digest: Json) -> bool:
    """Whether a task that waits for input asks the question of this digest, also one that was noted by a release that
    counted the time of every question."""
    return digest in (question_of(task).digest, _digest_of(task, task["status"].get("timestamp")))


def _digest_of(task: Mapping[str, Json], at: Json) -> str:
    return sha256(values.dumps([task.get("id"), _message_of(task), at])).hexdigest()[:32]


def _form_of_options(options: Sequence[Json]) -> dict[str, Any]:
    decision = {"type": "string", "enum": list(options)}
    properties = {"decision": decision, "reason": {"type": "string"}}
    return {"type": "object", "required": ["decision"], "properties": properties}


def write_answer(pending: Mapping[str, Json] | None, fields: Mapping[str, Json]) -> list[dict[str, Any]]:
    """The parts of a message with the answer to a question."""
    if pending is None:
        return [{"text": str(fields.get("answer", ""))}]
    answer = fields if "digest" in pending or fields.keys() <= {"decision", "reason"} else {"values": dict(fields)}
    return [{"data": {PENDING: {**pending, **answer}}}]


def output_of(task: Mapping[str, Json]) -> dict[str, Any]:
    """What the artifacts of a task hold, or without any the message of its status, or else what the agent said last:
    all text, the last data, and all parts, with files as content parts. Raises StepError `tool.invalid_result` for too
    many."""
    texts: list[str] = []
    data: Json = None
    parts: list[dict[str, Any]] = []
    replies = [each for each in _mappings(task.get("history")) if not _is_ours(each.get("role"))]
    places = (task.get("artifacts"), _message_of(task), replies[-1:])
    artifacts = next(filter(None, ([each for each in _mappings(place) if _parts(each)] for place in places)), [])
    different = {values.dumps(each) if each.get("artifactId") else at: each for at, each in enumerate(artifacts)}
    for artifact in different.values():  # some agents repeat what they have appended
        name = artifact.get("name") or artifact.get("artifactId")
        for part in _parts(artifact):
            if isinstance(part.get("text"), str):
                texts.append(part["text"])
                value: dict[str, Any] = {"type": "text", "text": part["text"]}
            elif "data" in part:
                data = part["data"]
                value = {"type": "data", "data": data}
            else:
                value = _file_part(part)
            parts.append({**value, "artifact": str(name)[:200]} if name else value)
    if len(parts) > PARTS_MAX:
        message = f"the agent's artifacts have {len(parts)} parts, and {PARTS_MAX} are taken"
        raise StepError(message, code="tool.invalid_result", retriable=False)
    return {"text": "\n".join(filter(None, texts)), "data": data, "parts": parts}


def _is_ours(role: Json) -> bool:
    return role == _USER or _letters_of(role) in ("user", "roleuser")


def _file_part(part: Mapping[str, Json]) -> dict[str, Any]:
    file = part["file"] if isinstance(part.get("file"), Mapping) else part  # as 0.3 has it
    media = str(file.get("mediaType") or file.get("mimeType") or "application/octet-stream")
    raw, url = file.get("raw", file.get("bytes")), file.get("url", file.get("uri"))
    if isinstance(raw, str):
        source = {"type": "data", "value": raw, "mimeType": media}
        name = file.get("filename") or file.get("name")
        return {"type": kind_of(media), "source": source | ({"filename": name} if isinstance(name, str) else {})}
    if isinstance(url, str):
        return {"type": kind_of(media), "source": {"type": "url", "value": url, "mimeType": media}}
    return {"type": "text", "text": _short(part)}


def unusable(why: str) -> StepError:
    return StepError(f"the agent can't be called: {why}", code="tool.unavailable", retriable=False)


def _message_of(task: Mapping[str, Json]) -> Json:
    status = task.get("status")
    return status.get("message") if isinstance(status, Mapping) else None


def _parts(holder: Json) -> list[Mapping[str, Json]]:
    """The parts of a message or of an artifact, also those that are plain texts, or within another object (`root`)."""
    if not isinstance(holder, Mapping):
        return []
    parts = holder.get("parts", holder.get("content"))
    parts = [{"text": each} if isinstance(each, str) else each for each in parts] if isinstance(parts, list) else parts
    return [each["root"] if isinstance(each.get("root"), Mapping) else each for each in _mappings(parts)]


def _mappings(value: Json) -> list[Any]:
    """The objects of a list; one that stands alone is a list of one."""
    value = [value] if isinstance(value, Mapping) else value
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _short(value: Json) -> str:
    return values.dumps(value).decode()[:300]
