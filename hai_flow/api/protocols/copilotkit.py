"""`/cpk`: the API that CopilotKit's frontends expect of their runtime, so that they need no Node server
(docs/design/protocols.md#copilotkit).

An agent is a workflow; `default` is the server's default workflow, or the one that the thread runs already. Each route
has its own path, or all of them are one: `POST /cpk` with `{method, params, body}`."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Header
from fastapi.responses import JSONResponse, Response

import hai_flow
from hai_flow import values
from hai_flow.api.http.bodies import limits_of, load_json
from hai_flow.api.http.problems import WITH_BODY
from hai_flow.api.permissions.rights import Right
from hai_flow.api.protocols import agui
from hai_flow.api.protocols.conversation import attach
from hai_flow.api.protocols.openapi_streams import ANY_OBJECT, REFUSALS, RUN_AGENT_INPUT, describe_stream
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess, JsonBody
from hai_flow.api.routes import Routes
from hai_flow.engine import commands as c
from hai_flow.engine.state.state import TERMINAL_STATUSES
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.store.catalog import workflows
from hai_flow.store.runs import threads
from hai_flow.wire.dialects.agui import AGUI, decode
from hai_flow.wire.dialects.agui_capabilities import capabilities

router = Routes(prefix="/cpk", tags=["dialects"])

DEFAULT: Final = "default"

_STREAM: Final = describe_stream(AGUI)
_OBJECT: Final = {"content": ANY_OBJECT}

Accept = Annotated[str, Header()]


@router.get("/info", Right.SEE_OWN, answer=_OBJECT, refusals=(404, *WITH_BODY))
async def get_copilotkit_info(access: CurrentAccess) -> JSONResponse:
    """CopilotKit: the agents there are."""
    return await _info(access)


@router.post("/agent/{agent}/run", Right.SEE_OWN, openapi_extra=RUN_AGENT_INPUT, answer=_STREAM, refusals=REFUSALS)
async def run_copilotkit_agent(agent: str, body: JsonBody, access: CurrentAccess, accept: Accept = "") -> Response:
    """CopilotKit: start a run, answer its open questions, or attach to it. The response streams one turn."""
    return await _run(agent, body, access, accept)


@router.post("/agent/{agent}/connect", Right.SEE_OWN, openapi_extra=RUN_AGENT_INPUT, answer=_STREAM, refusals=REFUSALS)
async def connect_copilotkit_agent(agent: str, body: JsonBody, access: CurrentAccess) -> Response:
    """CopilotKit: the thread as it is now, then live if a turn is open. Nothing is started or answered."""
    return await _connect(agent, body, access)


@router.post("/agent/{agent}/stop/{thread_id:path}", Right.SPEAK, answer=_OBJECT, refusals=(404,))
async def stop_copilotkit_agent(agent: str, thread_id: str, body: JsonBody, access: CurrentAccess) -> JSONResponse:
    """CopilotKit: stop the thread's run; with `{runId}` only if the newest turn is that one."""
    inner_body = await load_json(body, limits_of(access.settings)) if body.strip() else {}
    return await _stop(agent, thread_id, inner_body, access)


@router.post("", Right.SEE_OWN, answer=_STREAM, refusals=REFUSALS)
async def call_copilotkit(body: JsonBody, access: CurrentAccess, accept: Accept = "") -> Response:
    """CopilotKit, all in one: `{method: info | agent/run | agent/connect | agent/stop, params, body}`."""
    envelope = await load_json(body, limits_of(access.settings))
    if not isinstance(envelope, dict):
        raise _invalid("", "expected an object {method, params, body}")
    params = envelope.get("params") or {}
    inner = envelope.get("body")
    match envelope.get("method"):
        case "info":
            return await _info(access)
        case "agent/run":
            return await _run(_param(params, "agentId"), values.dumps(inner), access, accept)
        case "agent/connect":
            return await _connect(_param(params, "agentId"), values.dumps(inner), access)
        case "agent/stop":
            inner_body = {} if inner is None else inner
            return await _stop(_param(params, "agentId"), _param(params, "threadId"), inner_body, access)
        case _:
            raise _invalid("/method", "expected info, agent/run, agent/connect or agent/stop")


def _param(params: Any, name: str) -> str:
    value = params.get(name) if isinstance(params, dict) else None
    if not isinstance(value, str) or not value:
        raise _invalid(f"/params/{name}", "expected text")
    return value


def _invalid(path: str, message: str) -> Rejected:
    finding = {"path": path, "message": message}
    return Rejected(422, "body.invalid", f"{path or 'the body'}: {message}", findings=[finding])


# --- the work of the routes ---------------------------------------------------------------------------------------


async def _info(access: Access) -> JSONResponse:
    listed = await workflows.list_workflows(access.reads, access.tenant)
    agents = {each.name: _agent(each.name, each.title or each.name) for each in listed}
    if access.settings.default_workflow is not None:
        agents.setdefault(DEFAULT, _agent(DEFAULT, f"The workflow {access.settings.default_workflow}."))
    return JSONResponse(
        {"version": hai_flow.__version__, "mode": "sse", "agents": agents, "audioFileTranscriptionEnabled": False}
    )


def _agent(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "className": "HaiFlowWorkflow",
        "description": description,
        "capabilities": capabilities(name, hai_flow.__version__, description),
    }


async def _workflow(agent: str, access: Access) -> str | None:
    """The workflow that an agent is; None: the default one. Raises Rejected 404."""
    if agent == DEFAULT:
        workflow = await workflows.find_latest_workflow(access.reads, access.tenant, agent)
        return None if workflow is None else agent
    stored, _ = await access.catalog.resolve(access.tenant, agent)
    return stored.name if "@" not in agent else agent


async def _run(agent: str, body: bytes, access: Access, accept: str) -> Response:
    """CopilotKit's card shows the page's own answer, "cancelled" for instance, until a snapshot takes it away."""
    return await agui.answer(body, access, accept, await _workflow(agent, access), corrects=True)


async def _connect(agent: str, body: bytes, access: Access) -> Response:
    posted = await run_by_size(len(body), decode, body, limits_of(access.settings))
    return await attach(posted, access, AGUI, await _workflow(agent, access))


async def _stop(agent: str, thread_id: str, given: Any, access: Access) -> JSONResponse:
    if not isinstance(given, dict):
        raise _invalid("", "expected an object {runId}")
    access = await access.find_at_thread(thread_id)
    workflow = await _workflow(agent, access)
    last = await access.last_run(thread_id)
    stoppable = last is not None and last.status not in TERMINAL_STATUSES
    if last is None or not stoppable or workflow not in (None, last.workflow_name):
        return _answer_not_stopped(f"thread {thread_id} has no active run of {agent}.")
    if not access.principal.may(Right.CONTROL_RUNS):
        await access.demand_speaks(thread_id, last)
    wire_run_id = given.get("runId")
    if isinstance(wire_run_id, str) and not await _is_newest(access, thread_id, wire_run_id):
        return _answer_not_stopped(f"{wire_run_id} is not the newest turn of thread {thread_id}.")
    command = c.Stop(by=access.principal.id, reason="stopped by the user")
    try:
        await access.submit(last.id, command, command_id=None, body_sha=b"")
    except Rejected as rejected:
        if rejected.status != 409:  # it ended just now
            raise
        return _answer_not_stopped(rejected.detail)
    interrupt = {"type": "RUN_ERROR", "message": "Run stopped by user", "code": "STOPPED"}
    return JSONResponse({"stopped": True, "interrupt": interrupt})


def _answer_not_stopped(message: str) -> JSONResponse:
    return JSONResponse({"stopped": False, "message": message})


async def _is_newest(access: Access, thread_id: str, wire_run_id: str) -> bool:
    """Whether no turn came after the one of this runId. A client that attached to a turn has a runId of its own, which
    no turn has: it is taken to mean the newest turn."""
    turn = await threads.find_turn_of_wire_run(access.reads, access.tenant, thread_id, wire_run_id)
    last = await threads.last_run(access.reads, access.tenant, thread_id)
    if turn is None or last is None:
        return True
    state = await access.state(last.id)
    return turn.run_id == last.id and state.turn is not None and state.turn.n == turn.n
