"""`/a2a`: workflows as agents of A2A 1.0 and 0.3, by JSON-RPC and by REST (docs/protocols/a2a.md).

`/a2a` is one agent with a skill for each workflow that the caller may start; `/workflows/{name}/a2a` is the agent of
one workflow. A task is a run, and any process answers any request; all that is stored for A2A are the addresses that
clients leave to be called at."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final
from uuid import UUID

from fastapi import Request
from fastapi.responses import JSONResponse, Response

import hai_flow
from hai_flow import values
from hai_flow.api.a2a.operations import (
    BLOCKING_SECONDS,
    CalledAgent,
    piece_of,
    read_history_length,
    read_task,
    should_return_at_once,
)
from hai_flow.api.a2a.push_configs import (
    CREATE,
    DELETE,
    GET,
    LIST,
    METHODS,
    demand_reachable,
    perform_on_push_configs,
    store_push_config,
)
from hai_flow.api.http.bodies import demand_media_type, limits_of, load_json, read_body
from hai_flow.api.http.problems import WITH_BODY
from hai_flow.api.http.stream import Frames
from hai_flow.api.mcp import runs as mcp_runs
from hai_flow.api.mcp_resource import base_of
from hai_flow.api.permissions.principals import open_to_everybody
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.routes import Routes
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import run_by_size, run_if_large
from hai_flow.wire.a2a import older
from hai_flow.wire.a2a import tasks as a2a
from hai_flow.wire.a2a.pushes import find_push_config
from hai_flow.wire.dialects.dialect import EXPIRED
from hai_flow.wire.mcp import RunView

PATH: Final = "/a2a"
CARD: Final = "/.well-known/agent-card.json"
_JSON: Final = ("application/json", a2a.MEDIA_TYPE)
_ANSWER: Final = {"description": "an answer of A2A, as JSON or as a stream"}
_CARD: Final = {"description": "an agent card"}

router = Routes(tags=["a2a"])


# --- cards ------------------------------------------------------------------------------------------------------------


@router.get(CARD, dependencies=[open_to_everybody()], answer=_CARD, refusals=(404,))
async def get_agent_card(request: Request) -> Response:
    """The card of the server, for clients that have no credential yet: it names no workflow."""
    settings = request.app.state.settings
    address = base_of(settings.public_url, request) + PATH
    return JSONResponse(build_card_of_server(address, [a2a.GENERAL_SKILL], secured=settings.identity is not None))


@router.get("/workflows/{name}" + CARD, Right.SPEAK, Right.START_RUNS, answer=_CARD, refusals=(404,))
async def get_workflow_card(name: str, request: Request, access: CurrentAccess) -> Response:
    """The card of a workflow that the caller may start."""
    return JSONResponse(await build_extended_card(request, access, name))


# --- JSON-RPC ---------------------------------------------------------------------------------------------------------


@router.post(PATH, Right.SEE_OWN, answer=_ANSWER, refusals=(404, *WITH_BODY))
async def post_a2a(request: Request, access: CurrentAccess) -> Response:
    """A request of an A2A client in JSON-RPC."""
    return await _answer_rpc(request, access, None)


@router.post("/workflows/{name}" + PATH, Right.SEE_OWN, answer=_ANSWER, refusals=(404, *WITH_BODY))
async def post_workflow_a2a(name: str, request: Request, access: CurrentAccess) -> Response:
    """A request of an A2A client in JSON-RPC, to one workflow."""
    return await _answer_rpc(request, access, name)


async def _answer_rpc(request: Request, access: Access, name: str | None) -> Response:
    body = await read_body(request, access.settings.request_bytes_max)
    try:
        demand_media_type(request, body, _JSON)
        message = await load_json(body, limits_of(access.settings))
    except Rejected as rejected:
        if rejected.status == 413:
            raise
        reason = "CONTENT_TYPE_NOT_SUPPORTED" if rejected.status == 415 else "PARSE_ERROR"
        return _build_rpc_error(None, a2a.Fault(reason, rejected.detail))
    id = message.get("id") if isinstance(message, dict) else None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        return _build_rpc_error(None, a2a.Fault("INVALID_REQUEST", "Expected a request of JSON-RPC 2.0."))
    if not isinstance(id, str | int) or isinstance(id, bool):
        return _build_rpc_error(None, a2a.Fault("INVALID_REQUEST", "/id: expected a text or a number."))
    method = message["method"]
    params = message.get("params")
    params = {} if params is None else params
    old = method in older.METHODS
    exchange = _A2aExchange(request, access, name, id, old=old)
    try:
        _demand_version(request, old=old)
        if not isinstance(params, dict):
            raise a2a.invalid("/params: expected an object.")
        params = await run_by_size(len(body), a2a.read_names, params)
        return await exchange.perform(older.METHODS.get(method, method), params)
    except a2a.Fault as fault:
        return _build_rpc_error(id, fault)
    except Rejected as rejected:
        return _build_rpc_error(id, a2a.of_rejected(rejected))


def _demand_version(request: Request, *, old: bool) -> None:
    """Raises Fault for a version that is not spoken here. Clients of 0.3 send none."""
    headers, parameters = request.headers.getlist("a2a-version"), request.query_params.getlist("A2A-Version")
    version = ", ".join(headers) or ", ".join(parameters)
    major = ".".join(version.split(".")[:2])
    if version and (major not in a2a.VERSIONS or "," in version):  # several name none
        message = f"A2A-Version: expected {' or '.join(a2a.VERSIONS)}, found {version[:20]!r}."
        raise a2a.Fault("VERSION_NOT_SUPPORTED", message)
    if old and major == a2a.VERSION:
        raise a2a.Fault("METHOD_NOT_FOUND", "This method is of A2A 0.3.")


def _build_rpc_error(id: Any, fault: a2a.Fault) -> Response:
    error = {"code": fault.code, "message": fault.message, "data": a2a.build_error_details(fault)}
    status = fault.http if fault.http in (403, 429, 503) else 200
    return JSONResponse({"jsonrpc": "2.0", "id": id, "error": error}, status, _headers_of(fault))


def _headers_of(fault: a2a.Fault) -> dict[str, str]:
    seconds = fault.metadata.get("retryAfter")
    return {"Retry-After": seconds} if isinstance(seconds, str) else {}


# --- REST -------------------------------------------------------------------------------------------------------------

_TASK: Final = re.compile(r"tasks/([^/:]{1,200})(?::(cancel|subscribe))?")
_PUSH: Final = re.compile(r"tasks/([^/:]{1,200})/pushNotificationConfigs(?:/([^/]{1,200}))?")


async def _answer_operation(operation: str, request: Request, access: CurrentAccess) -> Response:
    return await _answer_rest(operation, request, access, None)


async def _answer_workflow_operation(name: str, operation: str, request: Request, access: CurrentAccess) -> Response:
    return await _answer_rest(operation, request, access, name)


for _method, _does, _such_as in (
    ("POST", "An operation of A2A's REST binding that changes something", ": `message:send`, `tasks/{id}:cancel`."),
    ("GET", "An operation of A2A's REST binding that reads", ": `tasks`, `tasks/{id}`, `tasks/{id}:subscribe`."),
    ("DELETE", "The operation of A2A's REST binding that deletes", ": `tasks/{id}/pushNotificationConfigs/{id}`."),
):
    for _prefix, _of, _endpoint, _rest in (
        ("", "", _answer_operation, _such_as),
        ("/workflows/{name}", "workflow_", _answer_workflow_operation, ", of one workflow."),
    ):
        router.declare(
            _method,
            _prefix + PATH + "/{operation:path}",
            Right.SEE_OWN,
            name=f"{_method.lower()}_{_of}a2a_operation",
            description=_does + _rest,
            answer=_ANSWER,
            refusals=(404, *WITH_BODY),
        )(_endpoint)


async def _answer_rest(operation: str, request: Request, access: Access, name: str | None) -> Response:
    if operation == "" and request.method == "POST":
        return await _answer_rpc(request, access, name)  # an address of JSON-RPC with a slash at its end
    try:
        _demand_version(request, old=False)
        params: dict[str, Any] = dict(request.query_params)
        if request.method == "POST":
            body = await read_body(request, access.settings.request_bytes_max)
            if body:
                demand_media_type(request, body, _JSON)
                posted = await load_json(body, limits_of(access.settings))
                if not isinstance(posted, dict):
                    raise a2a.invalid("The body: expected an object.")
                params |= posted
        method, more = _operation(request.method, operation)
        params = await run_if_large(params, a2a.read_names, params)
        return await _A2aExchange(request, access, name, None).perform(method, {**params, **more})
    except a2a.Fault as fault:
        return _build_rest_error(fault, _media_type_of(request))
    except Rejected as rejected:
        if rejected.status == 413:
            raise
        fault = a2a.of_rejected(rejected)
        return _build_rest_error(fault, _media_type_of(request))


def _operation(verb: str, operation: str) -> tuple[str, dict[str, Any]]:
    """The method of an address, and what the address says of its parameters. Raises Fault where there is none."""
    simple = {
        ("POST", "message:send"): "SendMessage",
        ("POST", "message:stream"): "SendStreamingMessage",
        ("GET", "tasks"): "ListTasks",
        ("GET", "extendedAgentCard"): "GetExtendedAgentCard",
    }
    if (method := simple.get((verb, operation))) is not None:
        return method, {}
    push = _PUSH.fullmatch(operation)
    pushing = {("POST", False): CREATE, ("GET", False): LIST, ("GET", True): GET, ("DELETE", True): DELETE}
    if push is not None and (verb, push[2] is not None) in pushing:
        of = {"taskId": push[1]}
        return pushing[verb, push[2] is not None], of if push[2] is None else {**of, "id": push[2]}
    task = _TASK.fullmatch(operation)
    methods = {("GET", None): "GetTask", ("POST", "cancel"): "CancelTask"}
    if task is not None and task[2] == "subscribe":
        return "SubscribeToTask", {"id": task[1]}
    if task is None or (verb, task[2]) not in methods:
        raise a2a.Fault("METHOD_NOT_FOUND", f"There is no operation {operation[:100]!r}.")
    return methods[verb, task[2]], {"id": task[1]}


_STATUS: Final = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "FAILED_PRECONDITION",
                  415: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}  # fmt: skip


def _media_type_of(request: Request) -> str:
    """Of an answer of REST: A2A's own for clients that name it, else that of JSON."""
    return a2a.MEDIA_TYPE if a2a.MEDIA_TYPE in request.headers.get("accept", "") else "application/json"


def _build_rest_error(fault: a2a.Fault, media_type: str) -> Response:
    error = {
        "code": fault.http,
        "status": _STATUS.get(fault.http, "INTERNAL"),
        "message": fault.message,
        "details": a2a.build_error_details(fault),
    }
    return JSONResponse({"error": error}, fault.http, _headers_of(fault), media_type)


# --- both -------------------------------------------------------------------------------------------------------------


class _A2aExchange:
    """A request and its answer, in one binding and version. `id`: of a request in JSON-RPC; None: it came by REST."""

    def __init__(self, request: Request, access: Access, name: str | None, id: Any, *, old: bool = False) -> None:
        self._request = request
        self._access = access
        self._name = name
        self._id = id
        self._old = old
        self._agent = CalledAgent(access, name)

    async def perform(self, method: str, params: Mapping[str, Any]) -> Response:
        """Perform the operation. Raises Fault and Rejected."""
        agent = self._agent
        if method in ("SendMessage", "SendStreamingMessage"):
            # What is wrong with it is found before anything begins.
            at_once, history = should_return_at_once(params), read_history_length(params)
            config = find_push_config(params, old=self._old)
            if config is not None:
                await demand_reachable(self._access.settings, config)
            access, task = await agent.send(params)
            if config is not None:
                await store_push_config(access, UUID(task.state.run_id), config)
            if method == "SendStreamingMessage":
                return await self._stream(access, task, after=None, to_the_end=False)
            if not at_once:
                _, task = await mcp_runs.settle(access, task.state.run_id, BLOCKING_SECONDS, known=task)
            return await self._result({"task": await read_task(task, history=history)})
        if method in ("GetTask", "CancelTask"):
            history = read_history_length(params)
            task = await agent.cancel(params) if method == "CancelTask" else (await agent.look(params.get("id")))[1]
            return await self._result(await read_task(task, history=history))
        if method == "ListTasks":
            return await self._result(await agent.list_tasks(params))
        if method == "SubscribeToTask":
            access, task = await agent.look(params.get("id"))
            if task.is_over:
                raise a2a.Fault("UNSUPPORTED_OPERATION", f"The task is over ({task.state.status}): nothing more comes.")
            return await self._stream(access, task, after=self._place(), to_the_end=True)
        if method == "GetExtendedAgentCard":
            return await self._result(await build_extended_card(self._request, self._access, self._name))
        if method in METHODS:
            return self._send(self._frame(await perform_on_push_configs(agent, method, params, old=self._old)))
        raise a2a.Fault("METHOD_NOT_FOUND", f"There is no method {method[:100]!r}.")

    def _place(self) -> int | None:
        """The place behind which a client goes on that has lost its stream."""
        place = self._request.headers.get("last-event-id", "")
        return int(place) if re.fullmatch(r"[0-9]{1,15}", place) else None

    async def _result(self, result: Mapping[str, Any]) -> Response:
        return self._send(await run_if_large(result, self._write, result, last=True))

    def _send(self, body: bytes) -> Response:
        return Response(body, media_type=_media_type_of(self._request) if self._id is None else _JSON[0])

    def _write(self, result: Mapping[str, Any], *, last: bool) -> bytes:
        return self._frame(older.convert_to_old(result, ends_stream=last) if self._old else result)

    def _frame(self, words: values.Json) -> bytes:
        return values.dumps(words if self._id is None else {"jsonrpc": "2.0", "id": self._id, "result": words})

    async def _stream(self, access: Access, shown: RunView, *, after: int | None, to_the_end: bool) -> Response:
        async def begin() -> Frames:
            return self._pieces(self._agent.follow(access, shown, after=after, to_the_end=to_the_end))

        return await access.stream(begin, a2a.A2A, self._farewell)

    async def _pieces(self, updates: AsyncGenerator[tuple[int, dict[str, Any], bool], None]) -> Frames:
        async with contextlib.aclosing(updates):
            async for seq, update, last in updates:
                yield [piece_of(seq, await run_if_large(update, self._write, update, last=last), last=last)]

    def _farewell(self, ending: Any) -> bytes:
        """Nothing: the client subscribes anew. Only one whose credential has ended is told so, in JSON-RPC."""
        if ending.code != EXPIRED or self._id is None:
            return b""
        error = {"code": -32603, "message": ending.reason, "data": [{"reason": ending.code}]}
        return a2a.A2A.framing.render(values.dumps({"jsonrpc": "2.0", "id": self._id, "error": error}), "", None)


async def build_extended_card(request: Request, access: Access, name: str | None) -> dict[str, Any]:
    for_old = not request.headers.get("a2a-version", "").startswith(a2a.VERSION)
    secured = access.settings.identity is not None
    if name is None:
        skills = [a2a.build_skill(plan) for _, plan in await access.list_startable()]
        return build_card_of_server(access.base + PATH, skills, secured=secured, for_old=for_old)
    startable = await access.find_startable(name)
    if startable is None:
        raise Rejected(404, "workflow_unknown", f"there is no workflow {name[:100]!r} that you may start.")
    plan = startable[1]
    skill = a2a.build_skill(plan)
    return a2a.build_card(
        skill["name"], skill["description"], f"{access.base}/workflows/{name}{PATH}", str(plan.version), [skill],
        secured=secured, for_old=for_old,
    )  # fmt: skip


def build_card_of_server(
    address: str, skills: list[dict[str, Any]], *, secured: bool, for_old: bool = True
) -> dict[str, Any]:
    text = "Workflows that wait for people, and survive everything but their database."
    return a2a.build_card("HAI Flow", text, address, hai_flow.__version__, skills, secured=secured, for_old=for_old)
