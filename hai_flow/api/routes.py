"""The routes of one subject, as every module of the API declares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, Depends
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute

from hai_flow.api.requests.dependencies import refuse_unknown_parameters


def _derive_operation_id(route: APIRoute) -> str:
    return route.name


OF_EVERY_ROUTE: Final[dict[str, Any]] = {
    "dependencies": [Depends(refuse_unknown_parameters)],
    "generate_unique_id_function": _derive_operation_id,
}


class Routes(APIRouter):
    """Routes that are complete where they are declared, so that an application takes them as they are. FastAPI works
    out everything about the routes of an included router once more, in the first request: for all of ours 0.2 s, in
    which nobody else is served."""

    def __init__(self, *, dependencies: Sequence[Dependency] = (), **settings: Any) -> None:
        every = OF_EVERY_ROUTE | {"dependencies": [*OF_EVERY_ROUTE["dependencies"], *dependencies]}
        super().__init__(**every, **settings)
