"""The routes of one subject, as every module of the API declares them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, TypedDict, TypeVar, Unpack, get_args

from fastapi import APIRouter, Depends
from fastapi.params import Depends as Dependency
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from hai_flow.api.http.bodies import CheckedRoute
from hai_flow.api.http.problems import WITH_BODY, list_refusal_responses
from hai_flow.api.permissions.principals import requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests.dependencies import refuse_unknown_parameters
from hai_flow.api.requests.shape_models import is_shape, model_of

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def _derive_operation_id(route: APIRoute) -> str:
    return route.name


OF_EVERY_ROUTE: Final[dict[str, Any]] = {
    "dependencies": [Depends(refuse_unknown_parameters)],
    "generate_unique_id_function": _derive_operation_id,
}


class RouteOptions(TypedDict, total=False):
    """What an operation may say beside its path and its rights."""

    answer: Any  # OpenAPI's description of the response; its shape is what the function returns
    refusals: Sequence[int]  # statuses beside `ALWAYS`; `WITH_BODY` is added where the function takes a `body`
    responses: dict[int | str, dict[str, Any]]  # further answers for OpenAPI
    dependencies: Sequence[Dependency]  # for what `rights` can't say
    status_code: int
    response_class: type[Response]
    openapi_extra: dict[str, Any]
    name: str
    description: str
    include_in_schema: bool


_shapes: Final[set[type]] = set()
_SCHEMA: Final = "#/components/schemas/{model}"


def refer_to_shape(response: dict[str, Any], shape: type | None = None) -> dict[str, Any]:
    """OpenAPI's description of a response with a reference to its `model`, or else to the shape, if there is one.
    FastAPI would build a validator of the model for each route."""
    shape = response.get("model", shape)
    if shape is None:
        return response
    _shapes.add(shape)
    reference = {"schema": {"$ref": _SCHEMA.format(model=shape.__name__)}}
    described = {key: value for key, value in response.items() if key != "model"}
    return described | {"content": {**response.get("content", {}), JSONResponse.media_type: reference}}


def answers_of(again: str, made: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of an operation that makes something (201, `made`), or finds that it is there (200, `again`)."""
    return {200: {"description": again}, 201: {"description": made}}


def _find_shape(endpoint: Callable[..., Any]) -> type | None:
    """The shape that the function returns as its annotation says, the first one of several; None: it returns none."""
    returns = endpoint.__annotations__.get("return")
    if isinstance(returns, str):
        returns = eval(returns, endpoint.__globals__)
    first = next(iter(get_args(returns)), returns)
    return first if is_shape(first) else None


def build_shape_schemas() -> dict[str, Any]:
    """The JSON Schemas of the answers to which the responses of all routes refer, by name."""
    shapes = sorted(_shapes, key=lambda shape: shape.__name__)
    _, document = models_json_schema([(model_of(each), "serialization") for each in shapes], ref_template=_SCHEMA)
    schemas: dict[str, Any] = document["$defs"]
    for schema in schemas.values():
        for field in schema.get("properties", {}).values():
            if field.get("default", ...) is None:  # FastAPI leaves null out of its own schemas
                del field["default"]
    return schemas


class Routes(APIRouter):
    """Routes that are complete where they are declared, so that an application takes them as they are. FastAPI works
    out everything about the routes of an included router once more, in the first request: for all of ours 0.2 s, in
    which nobody else is served.

    An operation names the rights of which its callers need at least one. Its function says which shape it returns: the
    type checker holds the function to it, and OpenAPI refers to it. The answer is sent as it is returned."""

    def __init__(
        self, *, dependencies: Sequence[Dependency] = (), route_class: type[APIRoute] = CheckedRoute, **settings: Any
    ) -> None:
        every = OF_EVERY_ROUTE | {"dependencies": [*OF_EVERY_ROUTE["dependencies"], *dependencies]}
        super().__init__(route_class=route_class, **every, **settings)

    def get(self, path: str, *rights: Right, **operation: Unpack[RouteOptions]) -> Callable[[Endpoint], Endpoint]:  # type: ignore[override]
        return self.declare("GET", path, *rights, **operation)

    def post(self, path: str, *rights: Right, **operation: Unpack[RouteOptions]) -> Callable[[Endpoint], Endpoint]:  # type: ignore[override]
        return self.declare("POST", path, *rights, **operation)

    def put(self, path: str, *rights: Right, **operation: Unpack[RouteOptions]) -> Callable[[Endpoint], Endpoint]:  # type: ignore[override]
        return self.declare("PUT", path, *rights, **operation)

    def patch(self, path: str, *rights: Right, **operation: Unpack[RouteOptions]) -> Callable[[Endpoint], Endpoint]:  # type: ignore[override]
        return self.declare("PATCH", path, *rights, **operation)

    def delete(self, path: str, *rights: Right, **operation: Unpack[RouteOptions]) -> Callable[[Endpoint], Endpoint]:  # type: ignore[override]
        return self.declare("DELETE", path, *rights, **operation)

    def declare(
        self, method: str, path: str, *rights: Right, **operation: Unpack[RouteOptions]
    ) -> Callable[[Endpoint], Endpoint]:
        """A decorator for the function that answers requests of this method to this path."""
        settings: dict[str, Any] = {**operation}
        answer, refusals = settings.pop("answer", None), settings.pop("refusals", ())
        answers = settings.pop("responses", {})
        settings["dependencies"] = [*([requires(*rights)] if rights else ()), *settings.get("dependencies", ())]

        def register(endpoint: Endpoint) -> Endpoint:
            of_body = WITH_BODY if "body" in inspect.signature(endpoint).parameters else ()
            shape = _find_shape(endpoint)
            own = {} if answer is None and shape is None else {settings.get("status_code", 200): answer or {}}
            responses = list_refusal_responses(*refusals, *of_body) | {
                status: refer_to_shape(each, shape if status in range(200, 300) else None)
                for status, each in {**own, **answers}.items()
            }
            self.add_api_route(path, endpoint, methods=[method], response_model=None, responses=responses, **settings)
            return endpoint

        return register
