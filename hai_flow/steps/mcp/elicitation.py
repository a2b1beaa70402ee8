"""A server of the Model Context Protocol that asks a person in the middle of a call.

With protocol 2026-07-28 the call ends with the question and a state that only the server understands. It is made again
with the answer and that state: by any process, whenever a person has answered. A server of an older protocol asks
within a session (`Sitting`): its call is begun anew, and the answer given when it asks again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, Literal, Protocol, cast

import mcp_types as types
import msgspec

from hai_flow.definition.schemas.foreign_schemas import read_form
from hai_flow.errors import AsksPerson, StepError
from hai_flow.steps.asked_forms import FORM_BYTES_MAX, find_form_fault
from hai_flow.steps.mcp.receipts import CallReceipt
from hai_flow.steps.runner import Answer
from hai_flow.values import Json, NotJson, storable

MESSAGE_CHARS_MAX: Final = 4_000
STATE_CHARS_MAX: Final = 64 * 1024
QUESTIONS_MAX: Final = 8
IN_SESSION: Final = "hai-flow/session"
"""The key of a question that was asked within a session."""
KEY_CHARS_MAX: Final = 200
_POLL_SECONDS: Final = 0.5  # at first; a server that only wants to be called again later says no time
_POLL_SECONDS_MAX: Final = 10.0


class Settled(msgspec.Struct, frozen=True):
    """A question that was asked within a session, by its digest, and a person's answer."""

    question: str
    action: Literal["accept", "decline", "cancel"]
    content: Json = None


class _Sitting(msgspec.Struct, frozen=True):
    """The state of a question that was asked within a session: the answers that were given before it, and its
    digest."""

    settled: tuple[Settled, ...]
    question: str


class RepeatedAnswers(msgspec.Struct, frozen=True):
    """The answers that a repeated call brings along. `settled`: those for a server that asks within a session."""

    responses: dict[str, types.ElicitResult] | None = None
    state: str | None = None
    settled: tuple[Settled, ...] = ()


class Call(Protocol):
    async def __call__(
        self, *, responses: dict[str, Any] | None, state: str | None, sitting: Sitting
    ) -> types.CallToolResult | types.InputRequiredResult: ...


class Sitting:
    """The questions of a server within the session of a call, as protocols before 2026-07-28 have them.

    The session is gone when a person answers. So the server hears that the call is cancelled, and then the question
    (`question`, once `asked` is set); the next attempt begins the call anew, in which the settled questions are
    answered at once. Each answer is used once: for the same question a second time, the server gets the next answer, or
    a person is asked again."""

    def __init__(self, settled: tuple[Settled, ...], receipt: CallReceipt) -> None:
        self.receipt = receipt
        self._settled = settled
        self._left = list(settled)
        self.question: AsksPerson | None = None
        self.asked = asyncio.Event()
        self.left = asyncio.Event()  # the call does not wait for the question any more
        self.ended = asyncio.Event()  # the server has answered the call
        self.result: Mapping[str, Any] | None = None

    @property
    def has_settled(self) -> bool:
        """Whether the function has asked within a session before."""
        return bool(self._settled)

    def anew(self) -> Sitting:
        """The same for the call made in another session."""
        return Sitting(self._settled, self.receipt)

    def hear(self, result: Mapping[str, Any] | None) -> None:
        """The server has answered the call; None: by an error."""
        self.result = result
        if result is not None:
            self.receipt.note_result(result)
        self.ended.set()

    def answer(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        question = params.model_dump(by_alias=True, mode="json", exclude={"meta", "task"}, exclude_none=True)
        digest = sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
        settled = next((each for each in self._left if each.question == digest), None)
        if settled is not None:
            self._left.remove(settled)
            return types.ElicitResult(action=settled.action, content=settled.content)
        try:
            state = msgspec.json.encode(_Sitting(self._settled, digest)).decode()
            if len(state) > STATE_CHARS_MAX:
                raise _refusal("it asks too much within one call")
            self.question = _question({IN_SESSION: types.ElicitRequest(params=params)}, state)
        except StepError as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=error.message)
        self.asked.set()
        return types.ElicitResult(action="cancel")


async def complete(
    call: Call, progress: RepeatedAnswers | None, receipt: CallReceipt
) -> types.CallToolResult | AsksPerson:
    """The result of a call, or the question that stands before it. `receipt` gets what comes of it. Raises
    StepError."""
    progress, seconds = progress or RepeatedAnswers(), _POLL_SECONDS
    while True:
        responses, sitting = cast("dict[str, Any] | None", progress.responses), Sitting(progress.settled, receipt)
        result = await call(responses=responses, state=progress.state, sitting=sitting)
        if isinstance(result, types.CallToolResult):
            return result
        if result.input_requests:
            # A form is compiled, which may take long: others are served meanwhile.
            return await asyncio.to_thread(_question, result.input_requests, _state(result))
        progress = RepeatedAnswers(state=_state(result), settled=progress.settled)
        await asyncio.sleep(seconds)
        seconds = min(2 * seconds, _POLL_SECONDS_MAX)


def find_question_fault(raw: Mapping[str, Any]) -> str | None:
    """Why a question can't be asked as its server has written it, as a clause; None: it may be in order."""
    requests, state = raw.get("inputRequests"), raw.get("requestState")
    if state is not None and not isinstance(state, str):
        return "its `requestState` is no text"
    if not requests and not state:
        return "it says neither what it asks (`inputRequests`) nor how to be called again (`requestState`)"
    if requests and not isinstance(requests, Mapping):
        return "its `inputRequests` is no object with a question for each name"
    return None


def answer_to(answer: Answer) -> RepeatedAnswers:
    """A person's answer, as the server reads it: one for each of its questions."""
    if answer.keys == (IN_SESSION,) and answer.state is not None:
        before = msgspec.json.decode(answer.state, type=_Sitting)
        content = answer.values if answer.action == "accept" else None
        return RepeatedAnswers(settled=(*before.settled, Settled(before.question, answer.action, content)))
    single = len(answer.keys) == 1
    responses = {
        key: types.ElicitResult(action=answer.action, content=_content(answer, key, single)) for key in answer.keys
    }
    return RepeatedAnswers(responses, answer.state)


def _content(answer: Answer, key: str, single: bool) -> Any:
    if answer.action != "accept":
        return None
    return answer.values if single else answer.values.get(key, {})


def _question(requests: Mapping[str, types.InputRequest], state: str | None) -> AsksPerson:
    """The questions of a server as one, with one form."""
    if len(requests) > QUESTIONS_MAX:
        raise _refusal(f"it asks {len(requests)} questions at once, and {QUESTIONS_MAX} are taken")
    if any(len(key) > KEY_CHARS_MAX for key in requests):
        raise _refusal(f"a question has a name of more than {KEY_CHARS_MAX} characters")
    questions = {key: _read_question(each, FORM_BYTES_MAX // len(requests)) for key, each in requests.items()}
    text = "\n\n".join(message for message, _ in questions.values())
    if len(text) > MESSAGE_CHARS_MAX:
        text = f"{text[: MESSAGE_CHARS_MAX - 1]}…"
    forms = {key: form for key, (_, form) in questions.items()}
    if len(forms) == 1:
        (form,) = forms.values()
    else:
        form = {"type": "object", "properties": forms, "required": list(forms)}
    return AsksPerson(text, form, state=state, keys=tuple(questions))


def _read_question(request: types.InputRequest, form_bytes_max: int) -> tuple[str, dict[str, Json]]:
    if not isinstance(request, types.ElicitRequest):
        raise _refusal(f"it wants {request.method}, which is not offered")
    params = request.params
    message = storable(params.message)
    if isinstance(params, types.ElicitRequestURLParams):
        return f"{message}\n{storable(params.url)}", {"type": "object", "properties": {}}
    try:
        form = read_form(params.requested_schema)
    except NotJson as error:
        raise _refusal(f"its form is no plain JSON: {error}") from None
    if (fault := find_form_fault(form, form_bytes_max)) is not None:
        raise _refusal(fault)
    return message, form


def _state(result: types.InputRequiredResult) -> str | None:
    state = result.request_state
    if state is not None and (len(state) > STATE_CHARS_MAX or state != storable(state)):
        raise _refusal("the state that it wants to get back is too large, or no text")
    return state


def _refusal(why: str) -> StepError:
    return StepError(f"The server asks a person in a way that is not taken: {why}.", retriable=False)
