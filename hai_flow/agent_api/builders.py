"""Builders of responses, messages and contents (the Agent API document, section "构建方式")."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias
from uuid import uuid4

from hai_flow.agent_api.types import ContentType, MessageType, Role, RunStatus
from hai_flow.values import Json

Object: TypeAlias = dict[str, Json]

# The fields that hold a content's value, by its type.
_VALUES: Final[dict[ContentType, tuple[str, ...]]] = {
    "text": ("text",),
    "data": ("data",),
    "image": ("image_url",),
    "audio": ("data", "format"),
    "file": ("file_url", "file_id", "filename", "file_data"),
    "refusal": ("refusal",),
}


class ContentBuilder:
    """One content of a message. Its value is set as a whole, or grows by deltas (text, data)."""

    def __init__(self, message: MessageBuilder, content_type: ContentType, index: int) -> None:
        self._message = message
        self._type: ContentType = content_type
        self._index = index
        self._values: Object = dict.fromkeys(_VALUES[content_type])

    def add_text_delta(self, text: str) -> Object:
        """A further piece of the text. Raises ValueError for another type of content."""
        self._demand("text")
        self._values["text"] = (self._values["text"] or "") + text
        return self._shown("in_progress", {"text": text}, delta=True)

    def add_data_delta(self, data: Mapping[str, Json]) -> Object:
        """Further keys of the data. Raises ValueError for another type of content."""
        self._demand("data")
        self._values["data"] = {**(self._values["data"] or {}), **data}
        return self._shown("in_progress", {"data": dict(data)}, delta=True)

    def set(self, **values: Json) -> ContentBuilder:
        """Sets the value's fields: `text`, `data`, `image_url`, `format`, `file_url`, `file_id`, `filename`,
        `file_data` or `refusal`. Raises ValueError for a field that this type of content does not have."""
        unknown = values.keys() - self._values.keys()
        if unknown:
            fields = ", ".join(self._values)
            raise ValueError(f"a {self._type} content has {fields}, found {', '.join(sorted(unknown))}")
        self._values |= values
        return self

    def set_text(self, text: str) -> ContentBuilder:
        """Sets the whole text."""
        return self.set(text=text)

    def set_data(self, data: Mapping[str, Json]) -> ContentBuilder:
        """Sets the whole data."""
        return self.set(data=dict(data))

    def set_image_url(self, url: str) -> ContentBuilder:
        """Sets the image's URL; a `data:` URL holds the image itself."""
        return self.set(image_url=url)

    def complete(self) -> Object:
        """The content as a whole. It is part of its message now."""
        content = self._shown("completed", self._values, delta=False)
        self._message._add(self._index, content)
        return content

    def _shown(self, status: RunStatus, values: Mapping[str, Json], *, delta: bool) -> Object:
        return {
            "object": "content",
            "status": status,
            "error": None,
            "type": self._type,
            "index": self._index,
            "delta": delta,
            "msg_id": self._message.id,
            **copy.deepcopy(dict(values)),
        }

    def _demand(self, content_type: ContentType) -> None:
        if self._type != content_type:
            raise ValueError(f"expected a {content_type} content, found a {self._type} content")


class MessageBuilder:
    """One message of a response. It begins with `in_progress`."""

    def __init__(self, id: str, message_type: MessageType, role: Role, metadata: Object | None = None) -> None:
        self.id = id
        self._type: MessageType = message_type
        self._role: Role = role
        self._metadata = metadata or {}
        self._contents: dict[int, Object] = {}
        self._indexes = 0
        self.status: RunStatus = "completed"
        """The status at its end. In the output of its response a message has ended, even if its end was not sent."""

    def in_progress(self) -> Object:
        return self.shown("in_progress")

    def create_content_builder(self, content_type: ContentType = "text", index: int | None = None) -> ContentBuilder:
        """The content at `index`, counted from 0; without one, the next."""
        index = self._indexes if index is None else index
        self._indexes = max(self._indexes, index + 1)
        return ContentBuilder(self, content_type, index)

    def add_content(self, content: Object) -> MessageBuilder:
        """Adds a complete content, in the place that its `index` names. The result of `ContentBuilder.complete` is part
        of its message already; to add it again changes nothing."""
        self._indexes = max(self._indexes, content["index"] + 1)
        self._add(content["index"], content)
        return self

    def complete(self, status: RunStatus = "completed") -> Object:
        """The message with all contents that are complete. `incomplete`: it was cut off."""
        self.status = status
        return self.shown(status)

    def shown(self, status: RunStatus) -> Object:
        """The message as it is. One without contents has none (null)."""
        return {
            "object": "message",
            "status": status,
            "error": None,
            "id": self.id,
            "type": self._type,
            "role": self._role,
            "content": [self._contents[index] for index in sorted(self._contents)] or None,
            "code": None,
            "message": None,
            "usage": None,
            "metadata": self._metadata,
        }

    def _add(self, index: int, content: Object) -> None:
        self._contents[index] = content


class ResponseBuilder:
    """One response: a turn of an agent. `created_at` is in seconds since 1970; without one it is now, and without an
    id there is a new one."""

    def __init__(self, id: str | None = None, *, session_id: str | None = None, created_at: int | None = None) -> None:
        self.id = f"response_{uuid4()}" if id is None else id
        self._session_id = session_id
        self._created_at = _now() if created_at is None else created_at
        self._messages: list[MessageBuilder] = []

    def created(self) -> Object:
        """The first object of a stream."""
        return self.shown("created")

    def in_progress(self) -> Object:
        """The second object of a stream."""
        return self.shown("in_progress")

    def create_message_builder(
        self,
        id: str | None = None,
        message_type: MessageType = "message",
        role: Role = "assistant",
        metadata: Object | None = None,
    ) -> MessageBuilder:
        """The next message of the output, with a new id if it is given none."""
        message = MessageBuilder(f"msg_{uuid4()}" if id is None else id, message_type, role, metadata)
        self._messages.append(message)
        return message

    def completed(
        self, *, at: int | None = None, status: RunStatus = "completed", usage: Object | None = None
    ) -> Object:
        """The last object of a stream, with the whole output. `at` is in seconds since 1970; without it, now."""
        return self.shown(status, output=self._output(), completed_at=_now() if at is None else at, usage=usage)

    def failed(self, code: str, message: str, *, at: int | None = None) -> Object:
        """The last object of a stream that failed."""
        error = {"code": code, "message": message}
        return self.shown("failed", output=self._output(), completed_at=_now() if at is None else at, error=error)

    def _output(self) -> list[Object]:
        return [message.shown(message.status) for message in self._messages]

    def shown(
        self,
        status: RunStatus,
        *,
        output: list[Object] | None = None,
        completed_at: int | None = None,
        error: Object | None = None,
        usage: Object | None = None,
    ) -> Object:
        return {
            "object": "response",
            "status": status,
            "error": error,
            "id": self.id,
            "created_at": self._created_at,
            "completed_at": completed_at,
            "output": output,
            "usage": usage,
            "session_id": self._session_id,
        }

    def generate_streaming_response(
        self,
        text_tokens: Iterable[str],
        role: Role = "assistant",
        *,
        message_id: str | None = None,
        at: int | None = None,
    ) -> Iterator[Object]:
        """The whole stream of a response that is one text."""
        yield self.created()
        yield self.in_progress()
        message = self.create_message_builder(message_id, role=role)
        yield message.in_progress()
        text = message.create_content_builder("text")
        for token in text_tokens:
            yield text.add_text_delta(token)
        yield text.complete()
        yield message.complete()
        yield self.completed(at=at)


class Sequence:
    """Numbers the objects of one stream, from 0."""

    def __init__(self) -> None:
        self._next = 0

    def numbered(self, shown: Object) -> Object:
        """The object with its `sequence_number` in front."""
        return {"sequence_number": self.next(), **shown}

    def next(self) -> int:
        """The number of the next object."""
        self._next += 1
        return self._next - 1


def _now() -> int:
    return int(time.time())
