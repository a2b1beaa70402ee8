"""Every refusal as `application/problem+json` (RFC 9457), with `code`, `findings` and `winner`
(docs/design/protocols.md#errors-for-clients)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import asyncpg
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hai_flow import addresses, values
from hai_flow.api import mcp_resource
from hai_flow.api.base.id_patterns import EXPECTED
from hai_flow.api.permissions.principals import MissingRight, find_caller
from hai_flow.errors import DefinitionError, Rejected, StoreError, Unreadable, describe_findings, particulars
from hai_flow.primitives.json_pointers import pointer_of
from hai_flow.runtime.ops.readiness import MORE_FILES, TOO_MANY_FILES, is_out_of_files
from hai_flow.store.postgres.error_classes import UNSTORABLE, is_unstorable, passing

log = structlog.get_logger(__name__)

MEDIA_TYPE: Final = "application/problem+json"

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "description": "A refusal (RFC 9457). `code` is for programs, `detail` for people.",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "params": {
            "type": "array",
            "description": "what `detail` names in quotes, for sentences in other languages by `code`",
            "items": {"type": "string"},
        },
        "findings": {
            "type": "array",
            "description": "every mistake at once",
            "items": {
                "type": "object",
                "required": ["message"],
                "properties": {
                    "message": {"type": "string"},
                    "path": {"type": "string", "description": "where, as a JSON Pointer"},
                    "code": {"type": "string", "description": "of what kind: `value.minimum`, `request.missing`"},
                    "params": {
                        "type": "array",
                        "description": "what was expected, for sentences in other languages by `code`",
                        "items": {"type": "string"},
                    },
                },
            },
        },
        "winner": {"description": "what stands instead: the first answer, the run that is active"},
        "see": {"type": "string", "description": "the page of this server's console that helps, like /console/runs"},
    },
}

_MEANINGS: Final = {
    400: "not readable: the body is no JSON, the cursor none of ours, a header stands twice",
    401: "no credential, or one that does not prove who calls; WWW-Authenticate says which kind is wanted",
    403: "not for you: a right that your roles lack, a question that does not ask you, a page of another origin",
    404: "not found, or you don't have access to it",
    408: "the body did not arrive",
    409: "it is not the time for it; `winner` says what stands",
    410: "too late: its deadline has passed",
    413: "more than a request may hold",
    415: "not declared as what is expected: JSON, or YAML for a workflow",
    416: "the file has no such range",
    421: "a Host that is not ours",
    422: "read, but wrong; `findings` lists what",
    429: "too much at once; nothing was stored",
    500: "a fault of the server",
    503: "not now; where a command was sent, its outcome is unknown: repeat it with the same id",
}
_SEEN: Final = (403, 404, 409, 410, 422)  # about runs, questions, threads; others: the request or the server
ALWAYS: Final = (400, 401, 403, 421, 422, 429, 500, 503)
WITH_BODY: Final = (408, 413, 415)


def list_refusal_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """An operation's refusals for OpenAPI: those that every operation has, and `statuses`."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _MEANINGS[status], "content": content} for status in sorted({*ALWAYS, *statuses})}


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    findings: Sequence[Any] = (),
    winner: Any = None,
    see: str = "",
    headers: dict[str, str] | None = None,
) -> Response:
    """A problem response. `findings`, `winner` and `see` are left out where there are none."""
    body = _body(status, code, detail, findings, winner)
    if see:
        body["see"] = see
    return Response(_encode(body), status, headers, MEDIA_TYPE)


def _encode(body: Mapping[str, Any]) -> bytes:
    """The problem as JSON, also where it repeats a text of the request that JSON in UTF-8 can't carry."""
    try:
        return values.dumps(body)
    except UnicodeEncodeError:
        return values.dumps(values.with_texts(body, values.storable, names=True))


def build_problem(rejected: Rejected) -> dict[str, Any]:
    return _body(rejected.status, rejected.code, rejected.detail, rejected.findings, rejected.winner)


def _body(status: int, code: str, detail: str, findings: Sequence[Any], winner: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "type": f"urn:hai-flow:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
    }
    if params := particulars(detail):
        body["params"] = params
    if findings:
        body["findings"] = list(findings)
    if winner is not None:
        body["winner"] = winner
    return body


async def _answer_rejected(request: Request, error: Exception) -> Response:
    assert isinstance(error, Rejected)
    caller = find_caller(request)
    if caller is not None:
        await request.app.state.sign_ins.record_denial(request, caller, error)
    return problem(
        error.status,
        error.code,
        error.detail,
        findings=error.findings,
        winner=error.winner,
        see=_page(request, error),
        headers=_build_challenge_headers(request, error),
    )


def _build_challenge_headers(request: Request, error: Rejected) -> dict[str, str] | None:
    """The headers of the refusal. At `/mcp`, clients learn from them which issuers give tokens, and for which rights
    (RFC 9728, RFC 6750)."""
    headers = headers_of(error)
    if request.url.path != mcp_resource.PATH or not request.app.state.identity.issuer_names:
        return headers
    metadata = f'resource_metadata="{mcp_resource.derive_metadata_address(request)}"'
    if error.code.startswith("auth.") and headers is not None and "WWW-Authenticate" in headers:
        return {**headers, "WWW-Authenticate": f"{headers['WWW-Authenticate']}, {metadata}"}
    if isinstance(error, MissingRight):
        scopes = " ".join(error.rights)
        return {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scopes}", {metadata}'}
    return headers


def _page(request: Request, error: Rejected) -> str:
    """The console's page that helps with the problem; "" where there is none, or no console is served here."""
    if error.status not in _SEEN or not request.app.state.console.is_served:
        return ""
    route = getattr(request.scope.get("route"), "path", "")
    return addresses.page_for_refusal(error.code, route, request.path_params)


def headers_of(error: Rejected) -> dict[str, str] | None:
    """The headers that the refusal's status needs."""
    if error.status in (429, 503):
        return {"Retry-After": str(error.retry_after)}
    if error.code.startswith("auth."):
        wrong = "" if error.code == "auth.missing" else ', error="invalid_token"'
        return {"WWW-Authenticate": f'Bearer realm="hai-flow"{wrong}'}
    return None


async def _wrong_definition(request: Request, error: Exception) -> Response:
    assert isinstance(error, DefinitionError)
    findings = [finding.as_dict() for finding in error.findings]
    errors = sum(finding.severity == "error" for finding in error.findings)
    detail = f"the workflow has {errors} mistake{'s' * (errors != 1)}."
    return problem(422, "definition.invalid", detail, findings=findings)


async def _wrong_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    findings = [_finding(each) for each in error.errors()]
    detail = "; ".join(describe_findings(findings, "the body"))
    return problem(422, "request.invalid", detail, findings=findings)


REQUEST: Final = "request."

# The expected value in the words of JSON, by pydantic's name of the fault. Braces are filled in from its context.
_EXPECTED: Final = {
    "missing": "expected it, found none",
    "extra_forbidden": "unknown; no such field or parameter is expected here",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
    "list_type": "expected a list",
    "string_type": "expected text",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "string_too_short": "expected text of at least {min_length} characters",
    "string_too_long": "expected at most {max_length} characters",
    "greater_than_equal": "expected at least {ge}",
    "less_than_equal": "expected at most {le}",
    "enum": "expected {expected}",
    "literal_error": "expected {expected}",
}


def _finding(fault: Mapping[str, Any]) -> dict[str, Any]:
    """A fault of a request, for people by `message`, and by `code` and `params` in every language."""
    is_listed = fault["type"] in _EXPECTED
    expected = [str(each)[:200] for each in fault.get("ctx", {}).values() if isinstance(each, (str, int, float))]
    return {
        "path": _pointer(fault["loc"]),
        "message": _describe_expected(fault),
        "code": f"{REQUEST}{fault['type']}" if is_listed else f"{REQUEST}invalid",
        "params": expected if is_listed else [],
    }


def collect_codes_of_faults() -> set[str]:
    """Every code that a finding of a request may have."""
    return {f"{REQUEST}invalid", *(f"{REQUEST}{kind}" for kind in _EXPECTED)}


def _describe_expected(fault: Mapping[str, Any]) -> str:
    context = fault.get("ctx", {})
    if fault["type"] == "string_pattern_mismatch" and context.get("pattern") in EXPECTED:
        return EXPECTED[context["pattern"]]
    if fault["type"] == "string_too_short" and context.get("min_length") == 1:
        return "expected text, found none"
    if fault["type"] == "value_error":
        return str(context["error"])
    wording = _EXPECTED.get(fault["type"])
    return fault["msg"] if wording is None else wording.format_map(context)


def _pointer(place: Sequence[Any]) -> str:
    """The place of the mistake: a JSON Pointer into the body, or `/query/limit` and the like."""
    return pointer_of(*(place[1:] if place[0] == "body" else place))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, f"http_{error.status_code}")
    headers = dict(error.headers) if error.headers else None
    return problem(error.status_code, code, str(error.detail), headers=headers)


async def _store_failed(request: Request, error: Exception) -> Response:
    if is_out_of_files(error):
        log.error("too_many_open_files", path=request.url.path, error=str(error), remedy=MORE_FILES)
        return problem(503, "too_many_open_files", TOO_MANY_FILES, headers={"Retry-After": "1"})
    log.error("store_failed", path=request.url.path, exc_info=error)
    outcome = "the outcome is unknown: repeat the request with the same command id"
    again = "nothing was changed; try again" if request.method in ("GET", "HEAD") else outcome
    detail = f"the database could not do it now; {again}."
    return problem(503, "store_unavailable", detail, headers={"Retry-After": "1"})


def reject_unreadable(error: Unreadable) -> Rejected:
    """The refusal of a run, or workflow, that this release can't read."""
    detail = f"this server can't read the run: {error}. Ask a server of the release that wrote it, or upgrade this one."
    return Rejected(503, "run_unreadable", detail)


async def _unreadable(request: Request, error: Exception) -> Response:
    """Callers that nobody knows learn nothing of the run or its workflow: services that call back, and webhooks."""
    assert isinstance(error, Unreadable)
    log.error("run_unreadable", path=request.url.path, error=str(error))
    detail = reject_unreadable(error).detail
    if find_caller(request) is None:
        detail = "this server can't take that now; another one may. Send it again later."
    return problem(503, "run_unreadable", detail, headers={"Retry-After": "5"})


async def _answer_gone(request: Request, error: Exception) -> Response:
    """The client went away in the middle of its body, so this response is never read."""
    return problem(400, "body.incomplete", "the body ended before its end.")


async def _bug(request: Request, error: Exception) -> Response:
    """The database is out of reach, or the server has a bug: the log gets the whole error, the client no details."""
    if passing(error):
        return await _store_failed(request, error)
    if is_unstorable(error):
        log.error("value_unstorable", path=request.url.path, exc_info=error)
        return problem(422, "value_unstorable", UNSTORABLE)
    log.error("request_failed", path=request.url.path, exc_info=error)
    return problem(500, "internal", "this is a fault of the server; its log says more.")


class ErrorResponses:
    """Answers errors that no handler has answered. It stands inside of the guard, so that a page of an allowed origin
    may read this answer, too, and is measured as others are. An error after the head of a response breaks the
    connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as error:
            if has_begun:
                raise
            response = await _bug(Request(scope), error)
            await response(scope, receive, send)


def install(app: FastAPI) -> None:
    """Answer every kind of refusal and failure as a problem."""
    app.add_exception_handler(Rejected, _answer_rejected)
    app.add_exception_handler(DefinitionError, _wrong_definition)
    app.add_exception_handler(RequestValidationError, _wrong_request)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Unreadable, _unreadable)
    app.add_exception_handler(StoreError, _store_failed)
    app.add_exception_handler(OSError, _store_failed)
    app.add_exception_handler(asyncpg.PostgresError, _bug)
    app.add_exception_handler(asyncpg.InterfaceError, _bug)
    app.add_exception_handler(asyncpg.InternalClientError, _bug)
    app.add_exception_handler(ClientDisconnect, _answer_gone)
    app.add_exception_handler(Exception, _bug)  # errors in the layers around `ErrorResponses`
