"""HTTP: the REST interface and five frontend protocols over the same runtime. It writes no SQL and decides nothing
about a run. Begin with `app` (what is mounted where), then `requests/access` (what a caller may do)."""

from __future__ import annotations

import sys

from pydantic import BaseModel, ConfigDict


def _load_fastapi() -> None:
    """Import FastAPI as a starting server needs it. The validators of its models of an OpenAPI document, a third of the
    time, are built when a document is asked for. It imports all of Pydantic 1 to ask of each type whether it is a model
    of that: none is, as long as nobody else has imported it."""
    usual, BaseModel.model_config = BaseModel.model_config, ConfigDict(defer_build=True)
    try:
        import fastapi.utils
    finally:
        BaseModel.model_config = usual
    is_old = fastapi.utils.annotation_is_pydantic_v1
    fastapi.utils.annotation_is_pydantic_v1 = lambda annotation: "pydantic.v1" in sys.modules and is_old(annotation)


_load_fastapi()
