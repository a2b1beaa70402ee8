"""The operations of A2A over the commands that every client uses: a run is a task (docs/protocols/a2a.md)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final
from uuid import UUID

import anyio
from fastapi import Response

from hai_flow import values
from hai_flow.api.mcp import runs as mcp_runs
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.profiles import read_by
from hai_flow.api.rest.runs.runs import StartBody, begin, list_runs
from hai_flow.engine.events import UserMessage
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.errors import Rejected, Unreadable
from hai_flow.primitives import instants
from hai_flow.primitives.beside_loop import run_by_size, run_if_large
from hai_flow.runtime.streams.stream_items import StreamItem
from hai_flow.store.runs import logs
from hai_flow.values import Json, storable
from hai_flow.wire.a2a import tasks as a2a
from hai_flow.wire.dialects.dialect import Frame, Profile
from hai_flow.wire.mcp import Question, RunView

BLOCKING_SECONDS: Final = 50.0
"""How long a send waits for its task to end or to ask somebody; it then returns the task as it is."""
PAGE_MAX: Final = 100
PAGE: Final = 20
_ANY_STATE: Final = (None, "", "TASK_STATE_UNSPECIFIED")


class CalledAgent:
    """The agent that a request is sent to: the whole server, or one workflow (`name`), for one caller."""

    def __init__(self, access: Access, name: str | None) -> None:
        self._access = access
        self._name = name

    async def send(self, params: Json) -> tuple[Access, RunView]:
        """Start the task of a message, or give the answer of one that names a task. Raises Fault and Rejected."""
        message = await run_if_large(params, a2a.read_message, params)
        if message.task_id is not None:
            return await self._answer(message, message.task_id)
        workflow = await self._workflow(message)
        input = a2a.input_of(message)
        words = None
        if message.text:
            words = UserMessage(id=message.id, role="user", content=message.text)
        with anyio.CancelScope(shield=True):
            access, outcome = await begin(
                StartBody(workflow=workflow, thread_id=message.context_id),
                self._access.acting_for(message.person),
                f"a2a:{self._access.principal.id}:{message.id}:{message.digest}",
                Response(),
                words,
                fill=lambda plan: a2a.fill_input(plan.input.raw, message, input),
            )
        return access, await mcp_runs.show_started(access, outcome)

    async def _workflow(self, message: a2a.Message) -> str:
        """The workflow that the message starts: the agent's own, the one that it names, or the only one."""
        named = message.workflow
        if self._name is not None:
            if named is not None and named.partition("@")[0] != self._name:
                raise a2a.invalid(f"metadata/{a2a.WORKFLOW}: this agent is the workflow {self._name}.")
            return named or self._name
        if named is not None:
            return named
        plans = [plan.name for _, plan in await self._access.list_startable()]
        if len(plans) == 1:
            return plans[0]
        some = ", ".join(plans[:20]) or "none"
        raise a2a.invalid(f"metadata/{a2a.WORKFLOW}: expected the name of a workflow; those for you are {some}.")

    async def _answer(self, message: a2a.Message, task_id: str) -> tuple[Access, RunView]:
        access, task = await self.look(task_id)
        if message.context_id not in (None, task.state.thread_id):
            raise a2a.invalid("/message/contextId: the task belongs to another context.")
        key = f"a2a:{access.principal.id} {message.id}"  # another's may have its id; no principal has a space
        questions = await _find_answered(access, task, key) or task.questions
        if not questions and task.is_over:
            raise a2a.Fault(
                "UNSUPPORTED_OPERATION", f"The task is over ({task.state.status}); start another one in its context."
            )
        if not questions:
            raise a2a.Fault("UNSUPPORTED_OPERATION", "The task waits for no input.")
        question, fields = a2a.answer_of(message, questions)
        if question not in {each.pending.opened.id for each in questions}:
            raise a2a.invalid(f"data/{a2a.PENDING}/id: this task has no such open question.")
        with anyio.CancelScope(shield=True):
            await mcp_runs.answer(access, question, fields, key, way="a2a")
        return await self.look(task_id)

    async def look(self, task_id: Any, place: str = "/id") -> tuple[Access, RunView]:
        """The task as the caller sees it. Raises Fault where there is none for them."""
        if not isinstance(task_id, str) or not task_id:
            raise a2a.invalid(f"{place}: expected the id of a task.")
        try:
            access, task = await mcp_runs.look(self._access, task_id)
        except Unreadable:
            raise a2a.unknown_task() from None
        if self._name is not None and task.state.workflow != self._name:
            raise a2a.unknown_task()
        return access, task

    async def cancel(self, params: Mapping[str, Json]) -> RunView:
        """Ask the run to stop, and wait a moment for it. Raises Fault where it is over."""
        access, task = await self.look(params.get("id"))
        if task.is_over:
            raise a2a.Fault("TASK_NOT_CANCELABLE", f"The task is over ({task.state.status}).")
        with anyio.CancelScope(shield=True):
            await mcp_runs.stop(access, task.state.run_id)
        _, task = await mcp_runs.settle(access, task.state.run_id, 5)
        return task

    async def list_tasks(self, params: Mapping[str, Json]) -> dict[str, Any]:
        """A page of the caller's tasks, the newest first. Raises Fault and Rejected."""
        size = _number(params.get("pageSize"), PAGE, "pageSize")
        states = _statuses(params.get("status"))
        since, history = _read_since(params.get("statusTimestampAfter")), read_history_length(params) or 0
        artifacts = _read_flag(params.get("includeArtifacts"), "includeArtifacts")
        context, token = params.get("contextId"), params.get("pageToken")
        if not isinstance(context, str | None) or not isinstance(token, str | None):
            raise a2a.invalid("/contextId and /pageToken: expected texts.")
        if context and storable(context) != context:
            raise a2a.invalid("/contextId: expected no NUL and no half of a character.")
        page = await list_runs(
            self._access, size, token or None, status=states, workflow=self._name, thread_id=context or None
        )
        tasks = []
        for run in page["items"]:
            with contextlib.suppress(a2a.Fault, Rejected):
                _, task = await self.look(run["id"])
                if params.get("status") in (*_ANY_STATE, a2a.state_of(task)) and task.state.at >= since:
                    tasks.append(await read_task(task, history=history, artifacts=artifacts))
        return {"tasks": tasks, "nextPageToken": page["next_cursor"] or "", "pageSize": size, "totalSize": len(tasks)}

    async def follow(
        self, access: Access, shown: RunView, *, after: int | None, to_the_end: bool
    ) -> AsyncGenerator[tuple[int, dict[str, Any], bool], None]:
        """The task and then each update of it, with its place in the log and whether it is the last one. `after`: the
        place behind which the client goes on, which then gets no whole task. Without `to_the_end` the stream ends as
        soon as the caller is asked."""
        state = shown.state
        run_id = UUID(state.run_id)
        begin = await access.state(run_id, state.seq if after is None else min(after, state.seq))
        profile = read_by(Profile(dialect=a2a.A2A.name), access, run_id, state.requester)
        if after is None:
            yield state.seq, {"task": await read_task(shown)}, False
            if shown.is_over or (shown.asks_caller and not to_the_end):
                yield state.seq, self._update(shown), True
                return
        status = a2a.status_of(shown) if after is None else None
        async with contextlib.aclosing(access.follow(begin, a2a.A2A, profile)) as pieces:
            async for batch in pieces:
                for seq, frame in ((piece.seq, frame) for piece in batch for frame in piece.frames):
                    if frame.data:
                        yield seq, await run_by_size(len(frame.data), values.loads, frame.data), False
                        continue
                    _, now = await mcp_runs.look(access, run_id)
                    last = now.is_over or (now.asks_caller and not to_the_end)
                    if not frame.terminal and not last and _same(status, a2a.status_of(now)):
                        continue
                    if now.is_over and not frame.terminal:
                        continue  # artifacts come in front of the end
                    status = a2a.status_of(now)
                    yield seq, self._update(now), last
                    if last:
                        return

    def _update(self, shown: RunView) -> dict[str, Any]:
        state = shown.state
        status = a2a.status_of(shown)
        return {"statusUpdate": {"taskId": state.run_id, "contextId": state.thread_id, "status": status}}


async def _find_answered(access: Access, task: RunView, key: str) -> list[Question]:
    """The question that this message has answered before, as if it were open, so that it is answered as it was. None,
    where the message is new."""
    questions = task.state.questions
    runs = {run for id in questions if (run := run_of_pending(id)) is not None}
    ids = await logs.find_answered(access.pool, runs, key)
    return [Question(questions[id], True, "") for id in ids if id in questions]


async def read_task(shown: RunView, *, history: int | None = None, artifacts: bool = True) -> dict[str, Any]:
    """`a2a.task_of`, beside the loop where the run is large."""
    return await run_if_large(shown.state, a2a.task_of, shown, history=history, artifacts=artifacts)


def _same(one: Mapping[str, Any] | None, other: Mapping[str, Any]) -> bool:
    parts = [each.get("message", {}).get("parts") for each in (one or {}, other)]
    return one is not None and one["state"] == other["state"] and parts[0] == parts[1]


def _number(value: Json, default: int, name: str, least: int = 1, most: int = PAGE_MAX) -> int:
    if value in (None, "", 0, "0") and least:
        return default
    try:
        number = default if value is None else int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if isinstance(value, bool) or (isinstance(value, float) and value != number) or not least <= number <= most:
        raise a2a.invalid(f"/{name}: expected a whole number, {least} to {most}.")
    return number


def _read_flag(value: Json, name: str) -> bool:
    if not isinstance(value, bool) and value not in (None, "", "false", "true"):
        raise a2a.invalid(f"/{name}: expected true or false.")
    return value in (True, "true")


def _read_since(value: Json) -> int:
    if value in (None, ""):
        return 0
    try:
        return instants.read_rfc3339(value if isinstance(value, str) else "")
    except ValueError:
        raise a2a.invalid("/statusTimestampAfter: expected an instant like 2026-03-02T09:00:00Z.") from None


def _statuses(state: Json) -> Any:
    if state in _ANY_STATE:
        return None
    if not isinstance(state, str) or state not in a2a.STATUSES:
        raise a2a.invalid(f"/status: expected one of {', '.join(a2a.STATUSES)}.")
    return list(a2a.STATUSES[state])


def piece_of(seq: int, data: bytes, *, last: bool) -> StreamItem:
    """An event of a stream, which a client may name to go on behind it."""
    frame = Frame("a2a", data, terminal=last)
    return StreamItem(seq, [frame], a2a.A2A.framing.render(data, "", str(seq)))


def read_history_length(params: Mapping[str, Json]) -> int | None:
    """How many messages a client wants with a task; None: all."""
    configuration, name = _configuration_of(params), "historyLength"
    length = configuration.get(name, params.get(name))
    place = f"configuration/{name}" if name in configuration else name
    return None if length is None else _number(length, 0, place, least=0, most=2**31 - 1)


def should_return_at_once(params: Mapping[str, Json]) -> bool:
    """Whether the client of a send waits for nothing. Raises Fault where it does not say so."""
    configuration = _configuration_of(params)
    for name in ("returnImmediately", "blocking"):
        if not isinstance(configuration.get(name), bool | None):
            raise a2a.invalid(f"/configuration/{name}: expected true or false.")
    return configuration.get("returnImmediately") is True or configuration.get("blocking") is False


def _configuration_of(params: Mapping[str, Json]) -> Mapping[str, Json]:
    configuration = params.get("configuration")
    if not isinstance(configuration, Mapping | None):
        raise a2a.invalid("/configuration: expected an object.")
    return configuration or {}
