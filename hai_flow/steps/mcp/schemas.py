"""Functions of servers of the Model Context Protocol, as they describe them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import mcp_types as types

from hai_flow.definition.schemas.foreign_schemas import NOTHING, compile_schema
from hai_flow.definition.schemas.schemas import JsonSchema

NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""The names that a workflow can write behind `call:`."""


def read_tool(raw: Any) -> types.Tool | str:
    """A function of a server as it describes it; or why it can't be used, as a clause."""
    if not isinstance(raw, Mapping):
        return "it is described by what is no object"
    name = raw.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return "no workflow can write its name"
    fields: dict[str, Any] = {
        "name": name,
        "inputSchema": raw["inputSchema"] if isinstance(raw.get("inputSchema"), dict) else dict(NOTHING),
    }
    if isinstance(raw.get("outputSchema"), dict):
        fields["outputSchema"] = raw["outputSchema"]
    fields |= {key: raw[key] for key in ("title", "description") if isinstance(raw.get(key), str)}
    try:
        compile_schema(fields["inputSchema"])
    except Exception as error:  # the library raises several unrelated types here
        return f"its schema can't be read: {(str(error).splitlines() or [''])[0][:300]}"
    if "outputSchema" in fields:
        with suppress(Exception):  # compiled now, beside the loop that will ask for it
            compile_schema(fields["outputSchema"])
    more = {key: raw[key] for key in ("annotations", "execution", "_meta", "icons") if raw.get(key) is not None}
    for extra in (more, {"annotations": more.get("annotations")}, {}):  # hints that can't be read are no hints
        try:
            return types.Tool.model_validate({**fields, **extra}, by_name=False)
        except ValueError:
            continue
    return "its description can't be read"


def compile_output_schema(tool: types.Tool) -> JsonSchema | None:
    """The schema of the results of a function; None where it has none, or none that can be read."""
    if tool.output_schema is None:
        return None
    try:
        return compile_schema(tool.output_schema)
    except Exception:  # the library raises several unrelated types here
        return None
