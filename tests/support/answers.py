"""REST's answers, held against the shapes that OpenAPI has for them."""

from __future__ import annotations

from functools import cache

import httpx2
from fastapi.routing import APIRoute
from pydantic import ValidationError

from docs.rights_page import application
from hai_flow.api.requests import schemas
from hai_flow.api.requests.shape_models import model_of


def find_faults(response: httpx2.Response) -> list[str]:
    """The fields of a JSON answer that its shape does not have, and those that it lacks or has with another type."""
    method, path = response.request.method, response.request.url.path
    for route in _list_routes():
        if method in (route.methods or ()) and route.path_regex.match(path):
            described = route.responses.get(response.status_code, {}).get("content", {}).get("application/json", {})
            name = described.get("schema", {}).get("$ref", "").rpartition("/")[2]
            return _compare(name, response) if name else []
    return []


@cache
def _list_routes() -> list[APIRoute]:
    return [each for each in application().routes if isinstance(each, APIRoute)]


def _compare(name: str, response: httpx2.Response) -> list[str]:
    try:
        model_of(getattr(schemas, name)).model_validate(response.json(), strict=True)
    except ValidationError as error:
        return [f"{name}.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    return []
