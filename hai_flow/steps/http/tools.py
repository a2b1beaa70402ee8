"""Calls of operations of described services: arguments become a request, and its JSON is the output.

The document is part of the plan. Requests go where all others go: through the same guard, with the same bounds, with
secrets for the host of the service alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from hai_flow import values
from hai_flow.definition.names.secret_names import REFERENCE
from hai_flow.definition.plan import ANY_FUNCTION, Call, HttpTool, Operation, Placed, Step, Template, Tool
from hai_flow.definition.schemas.schemas import strip_marks
from hai_flow.errors import StepError, describe_findings
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.steps.http.runner import HttpExchange, HttpRunner, unfit, with_address
from hai_flow.steps.offered_tools import OfferedFunction
from hai_flow.steps.runner import Attempt, Runner, Stream, demand_call
from hai_flow.values import Json

_SEPARATORS: Final[Mapping[str, str]] = {"simple": ",", "form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}


class HttpToolRunner(Runner):
    """Performs `call` of operations of services. `http` sends the requests."""

    def __init__(self, http: HttpRunner) -> None:
        self._http = http

    async def perform(self, attempt: Attempt, stream: Stream) -> Json:
        call, tool = demand_call(attempt.step, HttpTool)
        arguments = values.loads(attempt.args)
        operation = await asyncio.to_thread(_operation, tool, call.function)  # it may be compiled
        if call.callback is not None:
            arguments = await with_address(arguments, attempt)
        arguments, faults = await fit_arguments(operation, arguments)
        if faults:
            reasons = "; ".join(describe_findings(faults[:5]))
            message = f"the arguments don't fit the operation {operation.id}: {reasons}"
            raise StepError(message[:2000], code="tool.invalid_arguments", retriable=False, data=list(faults))
        request = request_of(tool.base_url or "", operation, arguments)
        request["headers"] = {**request["headers"], **(await _render_headers(attempt, tool.headers))}
        request["auth"] = None if tool.auth is None else await attempt.evaluate(tool.auth)
        response = await HttpExchange(self._http, attempt).asked(request)
        if notes := response.get("notes"):
            stream.noted(notes)
        is_null = response["text"].strip() == "null" and "json" in response["headers"].get("content-type", "")
        return response["text"] or None if response["json"] is None and not is_null else response["json"]

    async def offered(self, name: str, tool: Tool, *, from_disk: bool = False) -> Sequence[OfferedFunction]:
        """The operations that may be called. Raises StepError."""
        assert isinstance(tool, HttpTool)
        return await asyncio.to_thread(self._offers, name, tool)

    def _offers(self, name: str, tool: HttpTool) -> Sequence[OfferedFunction]:
        offers = []
        for id in _service(tool).ids:
            if tool.allow is not None and id not in tool.allow:
                continue
            try:
                operation = _operation(tool, id)
            except StepError:  # it can't be called, so it is not offered
                continue
            effect = tool.effect or operation.effect
            about, parameters = operation.description, strip_marks(operation.parameters.raw)
            offers.append(
                OfferedFunction(f"{name}.{id}", about, parameters, operation.result, effect, binds_formats=False)
            )
        return offers

    def fault(self, step: Step, *, from_disk: bool = False) -> str | None:
        call = step.verb
        if not isinstance(call, Call) or not isinstance(call.tool, HttpTool):
            return None
        try:
            if call.function == ANY_FUNCTION:
                _service(call.tool)
            else:
                _operation(call.tool, call.function)
        except StepError as error:
            return error.message
        return None

    def doubt(self, step: Step, *, from_disk: bool = False) -> str | None:
        call = step.verb
        if not isinstance(call, Call) or not isinstance(call.tool, HttpTool):
            return None
        if (doubt := self._http.check_callback(call.callback)) is not None:
            return doubt
        if call.function == ANY_FUNCTION and (left_out := _list_left_out(call.tool)):
            more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
            return f"{left_out[0]}; it is offered to no model{more}"
        templates = [each.written for each in (call.tool.auth, call.tool.headers) if each is not None]
        return next((doubt for each in templates if (doubt := self._http.secrets.doubt(each))), None)


def request_of(base_url: str, operation: Operation, arguments: Mapping[str, Json]) -> dict[str, Any]:
    """The request of a call, without its authentication. Raises StepError `tool.invalid_arguments` for a value that
    would lead elsewhere."""
    path, headers = operation.path, {}
    query: list[tuple[str, str]] = []
    for placed in operation.placed:
        if placed.name not in arguments or (arguments[placed.name] is None and placed.place != "path"):
            continue
        value = arguments[placed.name]
        match placed.place:
            case "path":
                path = path.replace(f"{{{placed.name}}}", _segment(placed, value))
            case "query":
                query += _query(placed, value)
            case "header":
                headers[placed.name.lower()] = _header(placed, value)
    if "{" in path:
        raise unfit(f"the path {operation.path} of {operation.id} has a part that no parameter gives")
    url = base_url.rstrip("/") + "/" + path.lstrip("/")
    if query:
        url += "?" + "&".join(f"{quote(name, safe='[]')}={quote(value, safe='')}" for name, value in query)
    request: dict[str, Any] = {"method": operation.method, "url": url, "headers": headers}
    if operation.body_kind is not None and "body" in arguments:
        request[operation.body_kind] = _fill_fields(operation, arguments["body"])
        request["body_type"] = operation.body_type
    return request


def _fill_fields(operation: Operation, body: Json) -> Json:
    """The body, with the fields of a form that are files as such, and others with brackets."""
    if not operation.fields or not isinstance(body, dict):
        return body
    fields: dict[str, Json] = {}
    for name, value in body.items():
        match operation.fields.get(name):
            case "file":
                contents = value if isinstance(value, list) else [value]
                files = [{"content": each, "filename": name} for each in contents if each is not None]
                fields |= {name: files} if files else {}
            case "deepObject":
                fields |= dict(_list_places(name, value))
            case _:
                fields[name] = value
    return fields


def _list_places(name: str, value: Json) -> Iterator[tuple[str, str]]:
    """The plain values in a value, by their places in brackets."""
    if not isinstance(value, dict | list):
        yield name, _word(value)
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _list_places(f"{name}[{key}]", each)


def _segment(placed: Placed, value: Json) -> str:
    """A part of a path, in which no value can lead to another place."""
    text = _join_values(placed, value)
    if text in ("", ".", ".."):
        message = f"/{placed.name}: {text!r} can't be a part of a path"
        raise StepError(message, code="tool.invalid_arguments", retriable=False)
    return quote(text, safe=",")


def _header(placed: Placed, value: Json) -> str:
    """The value of a header. Secrets are put in where the document names them, so an argument must not name one."""
    text = _join_values(placed, value)
    if REFERENCE.search(text):
        message = f"/{placed.name}: an argument can't name a secret"
        raise StepError(message, code="tool.invalid_arguments", retriable=False)
    return text


def _query(placed: Placed, value: Json) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        if placed.style == "deepObject":
            return list(_list_places(placed.name, value))
        if placed.explode:
            return [(key, _word(each)) for key, each in value.items()]
    if isinstance(value, list) and placed.explode:
        return [(placed.name, _word(each)) for each in value]
    return [(placed.name, _join_values(placed, value))]


def _join_values(placed: Placed, value: Json) -> str:
    separator = _SEPARATORS.get(placed.style, ",")
    if isinstance(value, list):
        return separator.join(_word(each) for each in value)
    if isinstance(value, dict):
        between = "=" if placed.explode else separator
        return separator.join(f"{key}{between}{_word(each)}" for key, each in value.items())
    return _word(value)


def _word(value: Json) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else values.dumps(value).decode()


def _operation(tool: HttpTool, id: str) -> Operation:
    try:
        return _service(tool).find(id)
    except KeyError:
        message = f"the document of the tool {tool.name!r} has no operation {id!r}"
    except ValueError as error:
        message = f"the operation {id!r} of the tool {tool.name!r} can't be called: {error}"
    raise StepError(message, code="tool.unavailable", retriable=False)


def _list_left_out(tool: HttpTool) -> list[str]:
    """Why operations that an agent may have can't be called, a sentence for each."""
    left_out = []
    for id in [] if tool.service is None else tool.service.ids:
        if tool.allow is None or id in tool.allow:
            try:
                _operation(tool, id)
            except StepError as error:
                left_out.append(error.message)
    return left_out


def _service(tool: HttpTool) -> Any:
    if tool.service is None or tool.base_url is None:
        message = f"the tool {tool.name!r} names no document of OpenAPI, so it has no operations; add `openapi`"
        raise StepError(message, code="tool.unavailable", retriable=False)
    return tool.service


async def _render_headers(attempt: Attempt, headers: Template | None) -> dict[str, Json]:
    rendered = {} if headers is None else await attempt.evaluate(headers)
    return {str(name).lower(): value for name, value in rendered.items()}


async def fit_arguments(operation: Operation, arguments: Json) -> tuple[Json, list[dict[str, Any]]]:
    """The arguments as the operation wants them, and their faults; large ones are looked at beside the loop."""
    return await run_if_large(arguments, operation.parameters.fit, arguments)
