"""Calls of agents of others over A2A: a message begins a task, which is followed until it ends or asks. Nothing of a
task is kept in a process: its context has an id made of the step's idempotency key, so any process finds the task in it
and begins no second one. Where an agent does not list its tasks and an attempt was lost, people are asked. What a task
asks becomes a question of the run."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import structlog

from hai_flow import values
from hai_flow.definition.plan import A2ATool, Call, Step, Template, Tool
from hai_flow.definition.tools.a2a_agents import ARGUMENTS
from hai_flow.errors import AsksPerson, OutcomeLost, StepError, describe_findings
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.steps.a2a import peer
from hai_flow.steps.a2a.peer import Interface
from hai_flow.steps.asked_forms import find_form_fault
from hai_flow.steps.files import extract_files, has_no_files, put_in
from hai_flow.steps.http.runner import HIDDEN_CHARS_MAX, SAID_CHARS_MAX, HttpExchange, HttpRunner
from hai_flow.steps.offered_tools import OfferedFunction
from hai_flow.steps.runner import Answer, Attempt, Evaluate, Runner, Stream, demand_call
from hai_flow.steps.secrets import hide_secrets
from hai_flow.values import Json, storable

log = structlog.get_logger(__name__)
Value = TypeVar("Value")
Task = Mapping[str, Json]

CARDS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""The places of a card, below the address of its agent: since version 0.3, and before."""
POLL_SECONDS: Final = 0.5  # at first
POLL_SECONDS_MAX: Final = 30.0
TAKEN_SECONDS: Final = 20.0  # in which an agent has to take an answer, before it counts as asking the same again
UNKNOWN_SECONDS: Final = 3.0  # in which a task is looked for that an agent does not know
CANCEL_SECONDS: Final = 5.0
LEAVE_SECONDS: Final = 4.5  # less than a message of the outbox is given out for
TASKS_LOOKED_AT: Final = 20
_CONTEXT: Final = "hai-"  # with which the ids of contexts begin that are made here
_CONTEXT_REFUSED: Final = re.compile(r"context(?!\W*(?:deadline|cancel|length|window|size|limit))", re.IGNORECASE)
"""Words about the context of a message, and not about a time-out in Go or the length of what a model reads: then the
agent may have begun."""
_REFUSALS: Final = frozenset({-32700, *range(-32602, -32599), *range(-32005, -32000), *range(-32009, -32006)})
"""The codes by which an agent refuses what it was asked. By any other one, such as -32603 of the official SDKs for an
exception in the agent's own code, it may have begun."""
_NO_TASK: Final = -32001
_WITH_ERRORS: Final = frozenset({400, 404, 409, 415, 422, 500})
"""The statuses of HTTP beside which an error of JSON-RPC says more."""
_OF_A_PAGE: Final = frozenset({"tasks", "nextPageToken", "pageSize", "totalSize"})  # the members of a list of tasks
_OLD: Final = {"SendMessage": "message/send", "GetTask": "tasks/get", "CancelTask": "tasks/cancel"}


class Refused(Exception):
    """The agent refuses what it was asked: a code of JSON-RPC, and its words."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = storable(message)[:500]

    @property
    def is_doubt(self) -> bool:
        """Whether the agent may have done what it was asked."""
        return self.code not in _REFUSALS


class A2ARunner(Runner):
    """Performs `call` of agents of others. `http` sends the requests, within its bounds and to where it may."""

    def __init__(self, http: HttpRunner) -> None:
        self._http = http

    async def perform(self, attempt: Attempt, stream: Stream) -> Json:
        call, tool = demand_call(attempt.step, A2ATool)
        arguments = values.loads(attempt.args)
        faults = await run_if_large(arguments, ARGUMENTS.findings, arguments)
        if faults:
            reasons = "; ".join(describe_findings(faults[:5]))
            message = f"the arguments do not fit the agent {tool.name}: {reasons}"
            raise StepError(message[:2000], code="tool.invalid_arguments", retriable=False)
        agent = await Agent.find(self._http, attempt, tool)
        errand = Errand(agent, attempt, stream, streams=call.stream)
        try:
            task = await errand.follow(await errand.begin(arguments))
        except asyncio.CancelledError:
            if attempt.is_stopped():
                await errand.cancel()
            raise
        except Refused as refused:
            verb = "answers with an error" if refused.is_doubt else "refuses"
            message = f"the agent {tool.name} {verb}: {refused.message} ({refused.code})"
            if errand.has_begun:
                raise OutcomeLost(f"Nobody knows how the task ends: {message}.") from None
            raise StepError(message, retriable=False) from None
        output = peer.output_of(task)
        if not has_no_files(attempt.files):
            parts, contents = extract_files(output["parts"], self._http.bytes_max)
            output["parts"] = await put_in(parts, contents, attempt.files)
        return output

    async def leave(self, attempt: Attempt, inquiry: str | None) -> None:
        """Cancel the task of a step that has ended without it. `inquiry`: the state of its last question. Raises
        StepError, and TimeoutError where the agent takes too long."""
        _, tool = demand_call(attempt.step, A2ATool)
        async with asyncio.timeout(LEAVE_SECONDS):
            agent = await Agent.find(self._http, attempt, tool)
            await Errand(agent, attempt, None, streams=False).leave(inquiry)

    async def offered(self, name: str, tool: Tool, *, from_disk: bool = False) -> Sequence[OfferedFunction]:
        """The agent as one function, in the author's words: its card may say something else tomorrow."""
        assert isinstance(tool, A2ATool)
        return [
            OfferedFunction(
                name, tool.description or f"Gives a task to the agent {name}.", ARGUMENTS.raw, None, tool.effect
            )
        ]

    def doubt(self, step: Step, *, from_disk: bool = False) -> str | None:
        call = step.verb
        if not isinstance(call, Call) or not isinstance(call.tool, A2ATool):
            return None
        templates = [each.written for each in (call.tool.auth, call.tool.headers) if each is not None]
        return next((doubt for each in templates if (doubt := self._http.secrets.doubt(each))), None)


class Agent:
    """The agent, as its card says where and how it is asked."""

    def __init__(self, http: HttpRunner, attempt: Attempt, tool: A2ATool, interface: Interface) -> None:
        self._http = http
        self._attempt = attempt
        self._tool = tool
        self.interface = interface

    @classmethod
    async def find(cls, http: HttpRunner, attempt: Attempt, tool: A2ATool) -> Agent:
        """Read its card. Raises StepError `tool.unavailable`, and as a request does."""
        agent = cls(http, attempt, tool, Interface(tool.url, False, False))
        urls = [tool.url] if tool.url.endswith(".json") else [tool.url + each for each in CARDS]
        reasons: list[str] = []
        for url in urls:
            try:
                response = await agent._exchange("GET", url)
            except StepError as error:
                if _status_of(error) not in (404, 405, 410):
                    raise
                reasons.append(f"{url} answers {_status_of(error)}")
                continue
            card = _read(response)
            if isinstance(card, Mapping):
                agent.interface = peer.choose_interface(card, tool.url)
                return agent
            reasons.append(f"{url} is no card")
        raise peer.unusable(f"{'; '.join(reasons)}. Give the address of its card, which ends in .json, as its `url`")

    async def send(
        self, parts: Sequence[Mapping[str, Json]], id: str, *, context: str | None = None, task: str | None = None
    ) -> Json:
        """The result of a message. Raises as `ask`."""
        params = peer.write_message(parts, id, context, task, old=self.interface.old)
        return await self.ask("SendMessage", params, id)

    async def ask(self, method: str, params: Mapping[str, Any], key: str | None = None) -> Json:
        """The result of a method. `key`: a repetition of the request has the same. Raises Refused, and StepError as a
        request does."""
        if self.interface.rest:
            return await self._ask_by_path(method, params, key)
        name = _OLD.get(method) if self.interface.old else method
        if name is None:
            raise Refused(-32601, f"0.3 has no {method}")
        body = {"jsonrpc": "2.0", "id": 1, "method": name, "params": params}
        try:
            response = await self._exchange("POST", self.interface.url, body, key)
        except StepError as error:
            if (status := _status_of(error)) == 501:
                raise Refused(-32601, f"{error.message} {error.data['text']}") from None
            if status in _WITH_ERRORS:
                try:
                    _raise_refusal(peer.read_answer(error.data["text"]))
                except Refused as refused:
                    if status != 500 or method == "SendMessage" or not refused.is_doubt:
                        raise
            raise  # what only looks at a task, or ends it, is asked again once the agent is well
        answer = _read(response)
        if not isinstance(answer, Mapping) or not answer.keys() & {"result", "error"}:
            message = f"the agent {self._tool.name} answers with what is no JSON-RPC"
            text = hide_secrets(response["text"][:HIDDEN_CHARS_MAX])[:SAID_CHARS_MAX]
            data = {"status": response["status"], "text": text}
            raise StepError(message, code="tool.invalid_result", retriable=False, data=data)
        error, result = answer.get("error"), answer.get("result")
        if error and result:
            message = f"the agent {self._tool.name} answers with a result and an error at once: {error}"
            raise StepError(storable(message)[:2000], code="tool.invalid_result", retriable=False)
        _raise_refusal(answer)
        return result

    async def _ask_by_path(self, method: str, params: Mapping[str, Any], key: str | None) -> Json:
        id = quote(str(params.get("id", "")), safe="")
        verb, path, body = {
            "SendMessage": ("POST", "/message:send", params),
            "GetTask": ("GET", f"/tasks/{id}", None),
            "CancelTask": ("POST", f"/tasks/{id}:cancel", {}),
            "ListTasks": ("GET", f"/tasks?{urlencode(params)}", None),
        }[method]
        try:
            url = self.interface.url.rstrip("/") + path
            return _read(await self._exchange(verb, url, body, key))
        except StepError as error:
            status = _status_of(error)
            if status is None or status in (401, 403, 408, 425, 429) or (status >= 500 and status != 501):
                raise
            code = {303: -32603, 404: _NO_TASK if id else -32601, 405: -32601, 501: -32601}.get(status, -32602)
            raise Refused(code, f"{error.message} {error.data['text']}") from None

    async def _exchange(self, method: str, url: str, body: Json = None, key: str | None = None) -> dict[str, Any]:
        evaluate, own_headers = self._attempt.evaluate, {"A2A-Version": "0.3" if self.interface.old else "1.0"}
        if method == "POST":  # each is one of several of the attempt
            own_headers["Idempotency-Key"] = key or secrets.token_hex(16)
        headers = await _render(evaluate, self._tool.headers) or {}
        request: dict[str, Json] = {
            "method": method, "url": url, "auth": await _render(evaluate, self._tool.auth),
            "headers": {**own_headers, **headers},
        }  # fmt: skip
        if body is not None:
            request["body"] = body
        return await HttpExchange(self._http, self._attempt, follows_writes=True).asked(request)


class Errand:
    """The task of one step at an agent, as it is found, begun, answered and followed by one attempt."""

    def __init__(self, agent: Agent, attempt: Attempt, stream: Stream | None, *, streams: bool) -> None:
        self._agent = agent
        self._attempt = attempt
        self._stream = stream
        self._streams = streams
        self._task_id: str | None = None
        self._answered: peer.Question | None = None  # the question that this attempt has answered
        self._renames = False  # the agent gives a question another id whenever it is asked
        self._words = ""
        self._error = ""  # with which the agent has answered the message, though it has a task

    @cached_property
    def _context(self) -> str:
        return f"{_CONTEXT}{sha256(self._attempt.idempotency_key.encode()).hexdigest()[:32]}"

    @property
    def has_begun(self) -> bool:
        """Whether the agent has told of a task."""
        return self._task_id is not None

    async def begin(self, arguments: Mapping[str, Json]) -> Task:
        """The task that an attempt before this one has begun, with its question answered; or a new one. Raises Refused,
        StepError and OutcomeLost."""
        answer, task = self._attempt.answer, None
        if answer is not None:
            state = values.loads(answer.state or "{}")
            self._task_id = state["task"]
            task = await self._answer(await self._look(), answer, state)
        if self._attempt.number > 1 and (task is None or _has_failed(task)):
            task = await self._find("it does not list its tasks" if self._attempt.lost else None)
        if task is not None:
            return task
        await self._attempt.begin()
        return await self._send([{name: arguments[name]} for name in ("text", "data") if name in arguments])

    async def _find(self, lost: str | None) -> Task | None:
        """The task in the step's context that goes on or is completed; or the failed one that no attempt has reported.
        `lost`: why there may be one that is not known. Raises OutcomeLost where there may, and the agent lists none."""
        try:
            listed = await self._patiently(self._list)
        except (Refused, StepError) as error:
            if isinstance(error, StepError) and _status_of(error) is None:
                raise
            if lost is not None:
                raise self._make_outcome_lost(lost) from None
            if isinstance(error, StepError):
                raise
            log.info("a2a_tasks_not_listed", reason=error.message)
            return None
        tasks = [each for each in listed if each.get("contextId") == self._context]
        if not self._attempt.lost and self._attempt.answer is None:  # those were left by a cut
            tasks = [each for each in tasks if peer.state_of(each) != "canceled"]
        if listed and not tasks and lost is not None:
            raise self._make_outcome_lost("it lists tasks of other contexts only")
        alive = [each for each in tasks if not _has_failed(each)]
        task = alive[0] if alive else tasks[0] if len(tasks) > self._attempt.failures else None
        if task is None:
            return None
        self._note({"id": str(task.get("id"))})
        return await self._look()

    async def _list(self) -> list[Task]:
        """The tasks that the agent lists when it is asked for those of the step's context. Raises as `Agent.ask`."""
        answer = await self._agent.ask("ListTasks", {"contextId": self._context, "pageSize": TASKS_LOOKED_AT})
        tasks = answer.get("tasks") if isinstance(answer, Mapping) else answer
        if isinstance(tasks, list):
            return [each for each in tasks if isinstance(each, Mapping)]
        if tasks or not isinstance(answer, Mapping) or not answer.keys() <= _OF_A_PAGE:
            raise Refused(-32603, "it answers with no list of tasks")
        return []

    async def _send(self, parts: Sequence[Mapping[str, Json]]) -> Task:
        id = f"{self._context}-{self._attempt.failures}"
        try:
            try:
                result = await self._agent.send(parts, id, context=self._context)
            except Refused as refused:
                if not _CONTEXT_REFUSED.search(refused.message):
                    raise
                if self._attempt.lost:
                    raise self._make_outcome_lost("it takes no contexts of its clients") from None
                result = await self._agent.send(parts, id)
            task, own = self._note(peer.read_result(result)), self._context
        except (StepError, Refused) as error:
            if isinstance(error, OutcomeLost) or not _may_have_begun(error):
                raise
            other_task = await self._find(error.message)
            if other_task is None:
                raise
            self._error = error.message
            return other_task
        if (context := str(task.get("contextId"))) != own and context.startswith(_CONTEXT):
            raise self._make_outcome_lost("it answers with the task of another call")
        return task

    def _make_outcome_lost(self, why: str) -> OutcomeLost:
        return OutcomeLost(f"Nobody knows whether the agent has begun: {why.rstrip('.')}.")

    async def _answer(self, task: Task, answer: Answer, state: Mapping[str, Json]) -> Task:
        """The task, once it has the answer to the question that it still asks. Raises StepError `tool.declined`."""
        if not self._asks(task, state):
            return task
        if answer.action != "accept":
            await self.cancel()
            raise StepError(
                f"A person did not answer the agent ({answer.action}).", code="tool.declined", retriable=False
            )
        if self._attempt.lost:  # that attempt may have brought the answer
            task = await self._await_taking(task, state)
            if not self._asks(task, state):
                return task
        parts = peer.write_answer(state.get("pending"), answer.values if isinstance(answer.values, Mapping) else {})
        id, context = f"{self._context}-{state['question'][:8]}", task.get("contextId")
        while True:
            self._answered = peer.question_of(task)
            try:
                own = context if isinstance(context, str) else None
                await self._agent.send(parts, id, context=own, task=self._task_id)
                return await self._look()
            except (StepError, Refused) as error:
                if isinstance(error, Refused) and not error.is_doubt:
                    task = await self._look()
                    if not self._asks(task, state):
                        return task
                    self._answered = None
                    raise await self._ask(task, f"The answer was not taken: {error.message}\n\n") from None
                if not is_passing(error) and not _may_have_begun(error):
                    raise
                await asyncio.sleep(POLL_SECONDS)
                task = await self._look()
                if _may_have_begun(error):
                    task = await self._await_taking(task, state)
                if not self._asks(task, state):  # it has got the answer all the same
                    return task
                if not is_passing(error) or (self._renames and _may_have_begun(error)):
                    message = f"Nobody knows whether the agent has taken the answer: {error.message}."
                    raise OutcomeLost(message) from None

    async def _await_taking(self, task: Task, state: Mapping[str, Json]) -> Task:
        """The task, as soon as it does not ask this any more, or after the time in which an agent takes an answer: one
        that is brought twice could count as that to the next question."""
        clock = asyncio.get_running_loop().time
        end = clock() + TAKEN_SECONDS
        while self._asks(task, state) and clock() < end:
            await asyncio.sleep(POLL_SECONDS)
            task = await self._look()
        return task

    async def follow(self, task: Task) -> Task:
        """The task, once it is completed. Raises AsksPerson where it asks, and StepError where it ended otherwise."""
        pause, answered_at = POLL_SECONDS, asyncio.get_running_loop().time()
        while True:
            state = peer.state_of(task)
            if state == "completed":
                return task
            if state in peer.ENDS:
                words = peer.words_of(task) or self._error or "it says nothing more"
                code = "tool.declined" if state == "rejected" else "tool.failed"
                message = f"the task of the agent was {state}: {words}"
                raise StepError(message, code=code, retriable=False if state != "failed" else None)
            if state == "input-required":
                late = asyncio.get_running_loop().time() > answered_at + TAKEN_SECONDS
                if late or not self._is_answered(peer.question_of(task)):
                    raise await self._ask(task)
            await self._tell(task)
            await self._attempt.rest(pause)
            pause = min(1.5 * pause, POLL_SECONDS_MAX)
            task = await self._look()

    async def _look(self) -> Task:
        """The task as it is now. Raises OutcomeLost where it can't be had: the task goes on. Raises Refused, for a task
        that is not there after a while: of several processes of an agent only one may know it at first."""
        end = asyncio.get_running_loop().time() + UNKNOWN_SECONDS
        while True:
            try:
                return await self._get(str(self._task_id))
            except Refused as refused:
                if refused.code != _NO_TASK or asyncio.get_running_loop().time() > end:
                    raise
            except StepError as error:
                raise OutcomeLost(f"Nobody knows how the task ends: {error.message.rstrip('.')}.") from None
            await self._attempt.rest(POLL_SECONDS)

    def _asks(self, task: Task, state: Mapping[str, Json]) -> bool:
        """Whether the task asks the question of a state. By its content alone it may be the next one, where an attempt
        that was lost, or a request that broke off, may have brought the answer to this one."""
        if peer.state_of(task) != "input-required":
            return False
        if peer.is_asking(task, state["question"]):
            return True
        may_be_next = self._attempt.lost or (self._answered is not None and not self._renames)
        is_same = not may_be_next and peer.question_of(task).content == state.get("content")
        self._renames = self._renames or is_same
        return is_same

    def _is_answered(self, question: peer.Question) -> bool:
        """Whether this attempt has answered the question, which the agent may not have taken yet."""
        answered = self._answered
        return answered is not None and (
            question.digest == answered.digest or (self._renames and question.content == answered.content)
        )

    async def _ask(self, task: Task, before: str = "") -> AsksPerson:
        """The question for people. Raises StepError for a form that nobody could fill in."""
        question = peer.question_of(task)
        if question.form is not peer.ANSWER_FORM:
            fault = await asyncio.to_thread(find_form_fault, question.form)
            if fault is not None:
                message = storable(f"The agent asks a person in a way that is not taken: {fault}.")
                raise StepError(message[:2000], code="tool.invalid_result", retriable=False)
        state = {"task": self._task_id, "question": question.digest, "pending": question.pending}
        state["content"] = question.content
        return AsksPerson(before + question.text, question.form, state=values.dumps(state).decode())

    async def _tell(self, task: Task) -> None:
        words = peer.words_of(task)
        if words and words != self._words and self._stream is not None:
            self._words = words
            self._stream.progress({"message": words[:500]})
            if self._streams:
                await self._stream(f"{words}\n")

    async def _get(self, id: str) -> Task:
        result = await self._patiently(lambda: self._agent.ask("GetTask", {"id": id}))
        task = peer.read_result(result)
        if task.get("id") != id:
            message = f"the agent was asked for the task {id[:100]!r} and answers with another one"
            raise StepError(storable(message), code="tool.invalid_result", retriable=False)
        return self._note(task)

    def _note(self, task: Task) -> Task:
        id = task.get("id")
        self._task_id = id if isinstance(id, str) else self._task_id
        return task

    async def cancel(self) -> None:
        """Ask the agent to end the task. It may be gone, or over."""
        if self._task_id is not None:
            with contextlib.suppress(StepError, Refused, TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    await self._agent.ask("CancelTask", {"id": self._task_id})

    async def leave(self, inquiry: str | None) -> None:
        """Cancel what is alive of the step's tasks: the one that has asked last, and those in its context. Raises
        StepError."""
        ids = set() if inquiry is None else {read_task_id(inquiry)}
        with contextlib.suppress(Refused):
            ids |= {str(each.get("id")) for each in await self._list() if each.get("contextId") == self._context}
        for id in sorted(ids):
            try:
                task = peer.read_result(await self._agent.ask("GetTask", {"id": id}))
                if peer.state_of(task) not in peer.ENDS:
                    await self._agent.ask("CancelTask", {"id": id}, f"{self._context}-cancel")
            except Refused as refused:  # it is over, or gone
                log.info("a2a_task_not_cancelled", reason=refused.message)

    async def _patiently(self, ask: Callable[[], Awaitable[Value]]) -> Value:
        """The result, of as many requests as it takes while the agent is not there: the step has a time-out."""
        pause = POLL_SECONDS
        while True:
            try:
                return await ask()
            except StepError as error:
                if not is_passing(error):
                    raise
                after = error.retry_after
            await self._attempt.rest(max(pause, min(after or 0.0, 300.0)))
            pause = min(2 * pause, POLL_SECONDS_MAX)


def read_task_id(inquiry: str) -> str:
    """The task that has asked, by what was noted with its question."""
    return str(values.loads(inquiry)["task"])


async def _render(evaluate: Evaluate, template: Template | None) -> Json:
    return None if template is None else await evaluate(template)


def _read(response: Mapping[str, Json]) -> Json:
    """The JSON of a response, whatever type the agent gives it."""
    value = response["json"]
    return peer.read_answer(response["text"]) if value is None else peer.use_protocol_names(value)


def _raise_refusal(answer: Json) -> None:
    """Raises Refused for an answer that has an error."""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if error or (error is not None and answer.get("result") is None):
        parts = error if isinstance(error, Mapping) else {"message": error}
        code, words = parts.get("code"), parts.get("message") or parts.get("data")
        raise Refused(code if isinstance(code, int) else -32603, str(words))


def _has_failed(task: Task) -> bool:
    return peer.state_of(task) in peer.ENDS[1:]


def _status_of(error: StepError) -> int | None:
    data = error.data
    return data.get("status") if error.code == "http.status" and isinstance(data, Mapping) else None


def is_passing(error: StepError | Refused) -> bool:
    """Whether the agent may be there again in a while."""
    if isinstance(error, Refused):
        return False
    return error.code == "http.connection" or (error.retriable is True and _status_of(error) is not None)


def _may_have_begun(error: StepError | Refused) -> bool:
    """Whether the agent may have got the message all the same."""
    import httpx2

    if isinstance(error, Refused):
        return error.is_doubt
    if error.code == "http.connection":
        return not isinstance(error.__context__, (httpx2.ConnectError, httpx2.ConnectTimeout))
    status = _status_of(error)
    if status is not None:
        return status >= 500 or status == 303  # what it was asked is done, and told elsewhere
    return error.code in ("http.invalid_response", "http.too_large", "tool.invalid_result")
