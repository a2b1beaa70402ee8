"""Starting, following and answering runs for MCP clients: a thin layer over the commands that every client uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from fastapi import Response
from pydantic import ValidationError

from hai_flow import addresses, values
from hai_flow.api.http.bodies import Body
from hai_flow.api.permissions.rights import Right
from hai_flow.api.permissions.visibility import Sight
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.rest.people.decide_pendings import DecideBody, decide, find_pending
from hai_flow.api.rest.runs.runs import StartBody, begin
from hai_flow.engine import commands as c
from hai_flow.engine.pendings.answers import answer_refusal
from hai_flow.engine.pendings.eligibility import obstacle, world_of
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.errors import Rejected, describe_findings
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.runtime.commit.submission import Outcome
from hai_flow.store.catalog.workflows import WorkflowSummary
from hai_flow.store.postgres.error_classes import FAILURES, passing
from hai_flow.wire.dialects.dialect import list_misplaced_members
from hai_flow.wire.mcp import Question, RunView, result_of

BodyKind = TypeVar("BodyKind", bound=Body)
Progress = Callable[[RunView], Awaitable[None]]


async def start(
    access: Access, workflow: WorkflowSummary | str, input: Mapping[str, Any], key: str | None
) -> tuple[Access, RunView]:
    """Start a run of the workflow (as it was read, or the version of this name), once for each `key`. It is stored
    whole, whether or not the call is cut. Raises Rejected."""
    stored = None if isinstance(workflow, str) else workflow
    body = StartBody(workflow=workflow if isinstance(workflow, str) else workflow.name, input=dict(input))
    key = None if key is None else f"mcp:{access.principal.id}:{key}"
    access, outcome = await begin(body, access, key, Response(), stored=stored)
    return access, await show_started(access, outcome)


async def look(access: Access, run_id: str | UUID) -> tuple[Access, RunView]:
    """The run as the caller sees it now, and the access to its cell. Raises Rejected 404."""
    access = await access.find_at_run(run_id)
    return access, await show(access, run_id)


async def show(access: Access, run_id: str | UUID) -> RunView:
    """The run as the caller sees it now. Raises Rejected 404."""
    return await _view(access, await access.read(run_id, Sight.QUESTIONS))


async def show_started(access: Access, outcome: Outcome) -> RunView:
    """The run that the caller has begun, as `show`."""
    return await _view(access, await access.read_started(outcome, Sight.QUESTIONS))


async def _view(access: Access, state: RunState) -> RunView:
    state = await access.current(state)
    visible = await access.seen(state)
    questions = [await _question(access, each, state) for each in visible.open_questions]
    url = access.base + addresses.run(state.run_id)
    return RunView(visible, [each for each in questions if each], url, access.runtime.committer.now_ms())


async def read_result(shown: RunView) -> dict[str, Any]:
    """`result_of`, beside the loop where the output is large."""
    return await run_if_large(shown.state.output, result_of, shown)


async def _question(access: Access, pending: PendingState, run: RunState) -> Question | None:
    """The open question of the run or of one below it, and whether the caller may answer it; None: it is not open any
    more."""
    id = pending.opened.id
    try:
        at, current = access, run.pendings.get(id) if run_of_pending(id) == UUID(run.run_id) else None
        if current is None:
            at = await access.find_at_pending(id)
            run, current = await find_pending(at, id)
    except Rejected:  # of a run below that the caller does not see: the question is others'
        return Question(pending, False, access.base + addresses.pending(id))
    if current.status != "open":
        return None
    plan = await at.catalog.plan(at.tenant, bytes.fromhex(run.sha256))
    may = at.principal.may(Right.ANSWER) or at.principal.may(Right.DECIDE)
    mine = may and obstacle(current, at.principal.who, world_of(plan, run)) is None
    return Question(pending, mine, access.base + addresses.pending(id))


async def settle(
    access: Access, run_id: str | UUID, seconds: float, progress: Progress | None = None,
    is_enough: Callable[[RunView], bool] = lambda run: run.is_at_rest, known: RunView | None = None,
) -> tuple[Access, RunView]:  # fmt: skip
    """The run as soon as nothing more happens of its own accord (or `is_enough`), at most so many seconds later. Where
    the server has no place for one more follower, the run as it is now; where the database goes away, as it was at
    first. `known`: the run as it was read just now."""
    access, run = await look(access, run_id) if known is None else (access, known)
    if is_enough(run) or seconds <= 0:
        return access, run

    async def look_again() -> tuple[Access, RunView]:
        news = await look(access, run_id)
        if progress is not None:
            await progress(news[1])
        return news

    try:
        news = await access.wait_until(run.state, seconds, look_again, lambda news: is_enough(news[1]))
        return news or await look(access, run_id)
    except FAILURES as error:
        if not passing(error):
            raise
        return access, run  # who started it here is told its id: without that they would start another one


async def settle_or(
    access: Access, run_id: str, seconds: float, is_enough: Callable[[RunView], bool],
    events: Sequence[asyncio.Event], progress: Progress,
) -> RunView:  # fmt: skip
    """As `settle`, but at the latest when one of the events is set."""
    settling = asyncio.create_task(settle(access, run_id, seconds, progress, is_enough))
    others = [asyncio.create_task(each.wait()) for each in events]
    try:
        await asyncio.wait((settling, *others), return_when=asyncio.FIRST_COMPLETED)
        return (await settling)[1] if settling.done() else (await look(access, run_id))[1]
    finally:
        for task in (settling, *others):
            task.cancel()
        await asyncio.gather(settling, *others, return_exceptions=True)


async def answer_one(
    access: Access, id: str, response: Mapping[str, Any], question: PendingState | None = None
) -> str | None:
    """Give the answer that the response to an elicitation holds to the question (as it was read just now). One to a
    question that is answered, foreign or unknown is passed over: its first answer stands. Returns what is wrong with
    it; the question then stays open."""
    try:
        if question is None:
            _, question = await find_pending(await access.find_at_pending(id), id)
        fields = answer_of(question, response)
        if fields is not None:
            await answer(access, id, fields)
    except Rejected as rejected:
        if rejected.status == 422:
            return "; ".join(describe_findings(rejected.findings, "the answer")) or rejected.detail
        return None if rejected.status in (404, 409, 410) else rejected.detail + rejected.advice
    return None


async def answer(
    access: Access, pending_id: str, fields: Mapping[str, Any], key: str | None = None, way: str = "mcp"
) -> schemas.DecidedPending:
    """Answer a question as every client does. Raises Rejected."""
    body = read_body(DecideBody, fields)
    access = await access.find_at_pending(pending_id)
    access.require(Right.ANSWER, Right.DECIDE)
    return await decide(access, pending_id, body, key, way)


async def stop(access: Access, run_id: str | UUID, reason: str = "") -> None:
    """Ask the run to stop: one's own, or as somebody who controls runs. A run that is over stays as it is. Raises
    Rejected 404 and 403."""
    access = await access.find_at_run(run_id)
    row = await access.run(run_id)
    if not access.can_speak_in(row):
        access.require(Right.CONTROL_RUNS)
    if row.ended_at is not None:
        return
    command = c.Stop(by=access.principal.id, reason=reason[:2000] or "cancelled by the client that started it")
    digest = sha256(values.dumps(["Stop", command.reason])).digest()
    try:
        await access.submit(row.id, command, command_id=None, body_sha=digest)
    except Rejected as rejected:
        if rejected.status != 409:  # it has ended meanwhile
            raise


def reject_arguments(findings: Sequence[dict[str, Any]]) -> Rejected:
    """The refusal of arguments that a tool does not take, with every fault."""
    return Rejected(422, "request.invalid", f"{'; '.join(describe_findings(findings))}.", findings=findings)


def read_body(kind: type[BodyKind], fields: Mapping[str, Any]) -> BodyKind:
    """The arguments of a tool as a body of REST. Raises Rejected with every fault."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        findings = [
            {"path": "/" + "/".join(map(str, each["loc"])), "message": each["msg"], "code": "request.invalid"}
            for each in error.errors()
        ]
        raise reject_arguments(findings) from None


def answer_of(pending: PendingState, response: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer that a response to an elicitation gives to a question; None: it gives none. Opening the page of a
    decision (`accept` of a url) is no vote. Raises Rejected 422 if parts of the answer stand beside its content."""
    action, content = response.get("action"), response.get("content")
    if pending.opened.kind != "ask":
        return None
    if action == "decline" and pending.opened.inquiry is not None:
        return {"decision": "decline"}
    if misplaced := list_misplaced_members(response):
        raise answer_refusal(pending.opened, f"expected {', '.join(misplaced)} inside of the answer's content.")
    if action == "accept" and isinstance(content, Mapping):
        return {"values": msgspec.to_builtins(dict(content))}
    return None
