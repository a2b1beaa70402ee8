"""A session of AUI: a thread, in which an input answers a question or is the user's next message."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final, TypeAlias
from uuid import uuid4

from hai_flow.api.http.bodies import limits_of
from hai_flow.api.permissions.visibility import Sight
from hai_flow.api.protocols.conversation import Conversation
from hai_flow.api.requests.access import Access
from hai_flow.engine.events import PendingOpened, UserMessage
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import Rejected
from hai_flow.store.runs import threads
from hai_flow.store.runs.run_lists import RunSummary
from hai_flow.values import Json
from hai_flow.wire.dialects import aui
from hai_flow.wire.dialects.aui import AUI
from hai_flow.wire.dialects.dialect import Posted, list_misplaced_members

Object: TypeAlias = dict[str, Json]

# Fields of a payload that name the question and the action. The others are the answer.
_ADDRESS: Final = frozenset({"interrupt_id", "session_id", "action"})
_MEMBERS: Final = _ADDRESS | {"type", "id", "timestamp", "label", "payload"}
_TEXTS: Final = frozenset({"message", "text"})
_INSIDE: Final = "expected inside of payload, found beside it, where it would be ignored"
_ANSWER_OR_MESSAGE: Final = "send the answer with its interrupt_id, or the message alone"


class AuiSession:
    """A thread as AUI sees it. `workflow` is the stream's; None if the stream names none."""

    def __init__(self, access: Access, session_id: str, workflow: str | None) -> None:
        self.access = access
        self.id = session_id
        self._workflow = workflow

    async def take(self, given: Object) -> Object:
        """Submit an input. Returns `{interrupt_id}` if it is an answer, `{message_id}` if it is a message. Raises
        Rejected."""
        payload = given.get("payload")
        if payload is None:
            payload = {}
        if not isinstance(payload, dict):
            raise invalid("/payload", "expected an object")
        for name in list_misplaced_members(given):
            raise invalid(f"/{name}", _INSIDE)
        action = text_in(given, "action") or text_in(given, "label") or text_in(payload, "action")
        interrupt = text_in(given, "interrupt_id") or text_in(payload, "interrupt_id")
        if interrupt is None and (message := text_in(payload, "message") or text_in(payload, "text")):
            questions = await self._list_open_questions()
            if not _is_filled_in(questions, payload):
                self._demand_no_answer(questions, action, payload)
                return await self._say(message, payload)
        self._demand_agreement(given, payload)
        interrupt = interrupt or await self._find_only_interrupt()
        payload = {name: value for name, value in payload.items() if name not in _ADDRESS}
        return await self._answer(interrupt, action, given, payload)

    def _demand_no_answer(self, questions: list[PendingOpened], action: str | None, payload: Object) -> None:
        """Raises Rejected 422 if an answer stands beside a message, which would be taken alone."""
        fields = {name for each in questions for name in aui.list_fields(each) if name in payload}
        for name in (*list_misplaced_members(payload), *sorted(fields)):
            raise invalid(f"/payload/{name}", f"a message is beside it; {_ANSWER_OR_MESSAGE}")
        if action is not None and any(action in aui.list_actions(each) for each in questions):
            raise invalid("/action", f"{action!r} answers an open question; {_ANSWER_OR_MESSAGE}")

    def _demand_agreement(self, given: Object, payload: Object) -> None:
        """Raises Rejected 422 if the payload, and what stands beside it, address or decide differently."""
        for name, outer in {**{name: given.get(name) for name in _ADDRESS}, "session_id": self.id}.items():
            if outer and (payload.get(name) or outer) != outer:
                raise invalid(
                    f"/payload/{name}", f"is {name} beside the payload too, and they differ; send one of them"
                )

    async def _say(self, message: str, payload: Object) -> Object:
        chars_max = limits_of(self.access.settings).id_chars_max
        id = read_id(payload, "message_id", "/payload", chars_max) or f"msg_{uuid4().hex}"
        user_message, input = UserMessage(id, "user", message), payload.get("input")
        await self._post(
            id, user_messages=(user_message,), history=((id, "user"),), input={} if input is None else input
        )
        return {"message_id": id}

    async def _answer(self, id: str, action: str | None, given: Object, payload: Object) -> Object:
        run_id = run_of_pending(id)
        state = None if run_id is None else await self.access.find_state(run_id)
        pending = None if state is None else state.pendings.get(id)
        if (
            state is None
            or pending is None
            or state.thread_id != self.id
            or id not in (await self.access.seen(state)).questions
        ):
            raise Rejected(404, "pending_unknown", f"there is no interrupt {id[:100]!r} in this session.")
        label = text_in(given, "label")
        if label != action and label in pending.opened.options:
            raise invalid("/label", f"expected that of the action {action!r}, found another option")
        for name in _list_near_edits(given, pending):
            raise invalid(f"/{name}", _INSIDE)
        answer = aui.answer_message(pending, action, payload)
        await self._post(uuid4().hex, tool_messages=(answer,), history=((answer.id, "tool"),))
        return {"interrupt_id": id}

    async def _find_only_interrupt(self) -> str:
        opened = [each.id for each in await self._list_open_questions()]
        if len(opened) != 1:
            actual = "none is" if not opened else f"{len(opened)} are"
            expected = "expected the interrupt that is answered, or in payload.message (text) what the user says"
            raise invalid("/interrupt_id", f"{expected}; {actual} open")
        return opened[0]

    async def _list_open_questions(self) -> list[PendingOpened]:
        last = await self.last_run()
        state = None if last is None else await self.access.state(last.id)
        return [] if state is None else [each.opened for each in (await self.access.seen(state)).open_questions]

    async def _post(self, name: str, **what: Any) -> None:
        posted = Posted(
            thread_id=self.id,
            wire_run_id=name,
            body_sha=sha256(name.encode()).hexdigest(),
            profile=aui.profile(),
            **what,
        )
        pieces = await Conversation(self.access, AUI, posted, self._workflow).pieces()
        await pieces.aclose()  # the followers of the session see the result

    async def is_hidden(self) -> bool:
        """Whether the session has runs, and the caller sees nothing of the newest one."""
        last = await threads.last_run(self.access.reads, self.access.tenant, self.id)
        return last is not None and await self.access.sight(last) is Sight.NOTHING

    async def last_run(self) -> RunSummary | None:
        """The session's newest run; None: it has none, or the caller sees nothing of it."""
        return await self.access.last_run(self.id)


def _is_filled_in(questions: list[PendingOpened], payload: Object) -> bool:
    """Whether the text in the payload is a field of the only open question, a form."""
    return len(questions) == 1 and any(text_in(payload, name) for name in _TEXTS & aui.list_fields(questions[0]))


def _list_near_edits(given: Object, pending: PendingState) -> list[str]:
    """The members beside the payload of a gate's answer that may have been meant as edits: those with such a name and,
    where the workflow allows edits, objects."""
    if pending.opened.kind != "gate":
        return []
    edits = bool(derive_rules(pending).edit)
    return [
        name
        for name, value in given.items()
        if name not in _MEMBERS
        and value is not None
        and (name.lower().startswith("edit") or (edits and isinstance(value, dict) and value))
    ]


def text_in(record: Object, name: str) -> str | None:
    """The text `name`, if there is one that is not empty."""
    value = record.get(name)
    return value if isinstance(value, str) and value else None


def read_id(record: Object, name: str, at: str, chars_max: int) -> str | None:
    """The id that the client chose as `name`, if it did. Raises Rejected 422 for a text that can't be one."""
    id = record.get(name)
    if id is None or id == "":
        return None
    if not isinstance(id, str) or len(id) > chars_max or not id.isprintable():
        raise invalid(f"{at}/{name}", f"expected text of at most {chars_max} printable characters")
    return id


def invalid(path: str, message: str) -> Rejected:
    """The refusal of what a client has sent at `path`."""
    detail = f"{path}: {message}." if path else f"{message}."
    return Rejected(422, "body.invalid", detail, findings=[{"path": path, "message": message}])
