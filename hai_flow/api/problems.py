"""Every refusal as `application/problem+json` (RFC 9457), with our `code`, `findings` and `winner` (DESIGN section 11)."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from hai_flow import values
from hai_flow.errors import DefinitionError, Rejected, StoreError

log = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    findings: Sequence[Any] = (),
    winner: Any = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """A problem response. `findings` and `winner` are left out where there are none."""
    body: dict[str, Any] = {
        "type": f"urn:hai-flow:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
    }
    if findings:
        body["findings"] = list(findings)
    if winner is not None:
        body["winner"] = winner
    return Response(values.dumps(body), status, headers, MEDIA_TYPE)


async def _rejected(request: Request, error: Exception) -> Response:
    assert isinstance(error, Rejected)
    headers = {"Retry-After": "1"} if error.status in (429, 503) else None
    return problem(
        error.status, error.code, error.detail, findings=error.findings, winner=error.winner, headers=headers
    )


async def _wrong_definition(request: Request, error: Exception) -> Response:
    assert isinstance(error, DefinitionError)
    found = [finding.as_dict() for finding in error.findings]
    errors = sum(finding.severity == "error" for finding in error.findings)
    detail = f"the workflow has {errors} mistake{'s' * (errors != 1)}."
    return problem(422, "definition.invalid", detail, findings=found)


async def _wrong_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [
        {"path": "/" + "/".join(str(part) for part in each["loc"]), "message": each["msg"]} for each in error.errors()
    ]
    detail = "; ".join(f"{each['path']}: {each['message']}" for each in found)
    return problem(422, "request.invalid", detail, findings=found)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, f"http_{error.status_code}")
    headers = dict(error.headers) if error.headers else None
    return problem(error.status_code, code, str(error.detail), headers=headers)


async def _store_failed(request: Request, error: Exception) -> Response:
    log.error("store_failed", path=request.url.path, exc_info=error)
    detail = "the database could not do it now; the outcome is unknown: repeat the request with the same command id."
    return problem(503, "store_unavailable", detail, headers={"Retry-After": "1"})


async def _bug(request: Request, error: Exception) -> Response:
    """Ours. The reader of the log gets it all, the client nothing of it."""
    log.error("request_failed", path=request.url.path, exc_info=error)
    return problem(500, "internal", "this is a fault of the server; its log says more.")


def install(app: FastAPI) -> None:
    """Answer every kind of refusal and failure as a problem."""
    app.add_exception_handler(Rejected, _rejected)
    app.add_exception_handler(DefinitionError, _wrong_definition)
    app.add_exception_handler(RequestValidationError, _wrong_request)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(StoreError, _store_failed)
    app.add_exception_handler(OSError, _store_failed)
    app.add_exception_handler(Exception, _bug)
