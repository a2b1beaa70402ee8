"""REST's answers, held against the OpenAPI document."""

from __future__ import annotations

from functools import cache
from typing import Any

import httpx2
import jsonschema_rs
from fastapi.routing import APIRoute

from docs.rights_page import application


class Checked(httpx2.Client):
    """A client that finds every answer's status and shape documented."""

    def __init__(self, url: str) -> None:
        super().__init__(base_url=url, timeout=30)

    def send(self, request: httpx2.Request, *, stream: bool = False, **more: Any) -> httpx2.Response:
        response = super().send(request, stream=stream, **more)
        if request.url.path.startswith("/v1/") and not stream:
            assert find_faults(response) == [], (request.method, request.url.path)
        return response


def find_faults(response: httpx2.Response) -> list[str]:
    """The differences of an answer, which was read, from what the document says: its status, and the fields that it
    lacks, has besides or has with another type."""
    method, path, status = response.request.method, response.request.url.path, str(response.status_code)
    template = next((each.path_format for each in _list_routes(method) if each.path_regex.match(path)), "")
    responses = _document()["paths"].get(template, {}).get(method.lower(), {}).get("responses", {})
    if status not in responses:
        return [f"{status} is not documented"]
    if status == "204":
        return ["204 has a body"] if response.content else []
    media_type = response.headers["content-type"].partition(";")[0]
    if media_type not in responses[status]["content"]:
        return [f"{media_type} is not documented"]
    if not media_type.endswith("json"):
        return []
    validator = _validator(template, method.lower(), status, media_type)
    return [
        f"/{'/'.join(map(str, each.instance_path))}: {each.message}" for each in validator.iter_errors(response.json())
    ]


@cache
def _list_routes(method: str) -> list[APIRoute]:
    return [each for each in application().routes if isinstance(each, APIRoute) and method in (each.methods or ())]


@cache
def _document() -> dict[str, Any]:
    return application().openapi()


@cache
def _validator(template: str, method: str, status: str, media_type: str) -> Any:
    schema = _document()["paths"][template][method]["responses"][status]["content"][media_type]["schema"]
    return jsonschema_rs.validator_for({**schema, "components": _document()["components"]})
