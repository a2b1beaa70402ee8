"""How a server of the Model Context Protocol is declared: by a workflow, or in the catalogue of a deployment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from hai_flow.definition import plan
from hai_flow.definition.fields import Parts, texts
from hai_flow.definition.names.known_names import Names, Types
from hai_flow.definition.names.wording import kind_of, shorten
from hai_flow.definition.tools.auth import check_auth
from hai_flow.definition.yaml.document import Path, parse
from hai_flow.definition.yaml.key_table import DOCUMENT_SHAPES, MCP_CATALOGUE, MCP_ENTRY, MCP_OAUTH
from hai_flow.definition.yaml.keys import Shape
from hai_flow.definition.yaml.mapping_reader import Reader
from hai_flow.errors import Finding
from hai_flow.values import Json

_SETTINGS: Final = ("auth", "headers", "env", "oauth")
_WAYS: Final = ("use", "url", "command")
# A server is the same for every run, so that a process has it once.
_NAMES: Final = Names(Types({}, {}), frozenset()).with_roots("secrets")


class CatalogueServer(msgspec.Struct, frozen=True):
    """A server of the deployment. `trusted`: its own claims about its functions (whether they only read) count."""

    name: str
    server: plan.McpServer
    trusted: bool = False


def read_server(parts: Parts, name: str, fields: Mapping[str, Json], at: Path) -> plan.McpServer | None:
    """The server of the tool `name` with these `fields`. None after a finding.

    It is a mapping, or a text (an address or a command) that has `auth`, `headers` and `env` beside it."""
    declaration, where = fields["mcp"], (*at, "mcp")
    beside = {key: fields[key] for key in _SETTINGS if key in fields}
    if isinstance(declaration, Mapping):
        for key in beside:
            message = f"`{key}` belongs into `mcp`, where the server is declared; move it there"
            parts.reader.error((*at, key), "tool.mcp", message, key=True)
        return _server(parts, _read_ways(parts, declaration, where, f"`mcp` of the tool `{name}`"), where)
    if not isinstance(declaration, str) or not declaration.strip():
        message = (
            f"expected the address of a server or a mapping (`url`, `command` or `use`), found {kind_of(declaration)}"
        )
        parts.reader.error(where, "shape.value", message)
        return None
    if _has_hole(declaration):
        parts.reader.error(where, "tool.hole", "a server's address is literal: holes are not filled here")
        return None
    if _HOST.fullmatch(declaration):
        message = f"this is run as a command; the address of a server is written https://{declaration}"
        parts.reader.warning(where, "tool.mcp", message)
    if "://" in declaration:
        return _server(parts, {"url": declaration, **beside}, where, at)
    try:
        return _server(parts, {"command": shlex.split(declaration), **beside}, where, at)
    except ValueError as error:
        parts.reader.error(where, "tool.mcp", f"{shorten(declaration)!r} is no command: {str(error).lower()}")
        return None


def read_mcp_catalogue(source: bytes, file: str) -> tuple[dict[str, CatalogueServer], list[Finding]]:
    reader = Reader(parse(source, file))
    parts = Parts(reader, {}, frozenset())
    fields = reader.fields(MCP_CATALOGUE, reader.document.value, (), "the catalogue of MCP servers")
    servers: dict[str, CatalogueServer] = {}
    for name, raw in fields.get("servers", {}).items():
        at = ("servers", name)
        way = _read_ways(parts, raw, at, f"the server `{name}`", MCP_ENTRY)
        server = _server(parts, way, at)
        if server is not None:
            servers[name] = CatalogueServer(name, server, way.get("trusted", False))
    return servers, reader.findings


def _read_ways(
    parts: Parts, raw: Mapping[str, Json], at: Path, where: str, shape: Shape = DOCUMENT_SHAPES["mcp_server"]
) -> dict[str, Json]:
    """The fields of a declaration that says one way by which its server is reached; {} after a finding."""
    (ways,) = shape.exactly_one
    named = [way for way in ways if way in raw]
    if len(named) == 1:
        return parts.reader.fields(shape.of(named[0]), raw, at, where)
    listed = ", ".join(f"`{way}`" for way in ways)
    actual = " and ".join(f"`{way}`" for way in named) or "none"
    parts.reader.error(at, "tool.mcp", f"expected one of {listed} in {where}, found {actual}", key=True)
    return {}


_HOST: Final = re.compile(r"(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|ai|app)(?::\d+)?(?:/\S*)?|localhost:\d+(?:/\S*)?")


def _server(parts: Parts, fields: Mapping[str, Json], at: Path, beside: Path | None = None) -> plan.McpServer | None:
    """`beside`: where the settings stand, if not at `at`."""
    place = at if beside is None else beside
    literal = {way: fields[way] for way in _WAYS if way in fields}
    if not literal:
        return None
    for path, text in texts(literal, ()):
        if _has_hole(text):
            message = "how a server is reached is literal: holes are not filled here; `env` and `headers` have them"
            parts.reader.error((*at, *path), "tool.hole", message)
            return None
    if "url" in fields and not _is_address(fields["url"]):
        message = f"expected an address like https://host/mcp, found {shorten(fields['url'])!r}"
        parts.reader.error(at, "tool.mcp", message)
        return None
    if "auth" in fields:
        check_auth(parts.reader, fields["auth"], (*place, "auth"))
    if "oauth" in fields:
        parts.reader.fields(MCP_OAUTH, fields["oauth"], (*place, "oauth"), "`oauth`")
    settings = {key: parts.template(fields[key], (*place, key), _NAMES) for key in _SETTINGS if key in fields}
    return plan.McpServer(fields.get("use"), fields.get("url"), tuple(fields.get("command", ())), **settings)


def _has_hole(text: str) -> bool:
    return "${{" in text.replace("$${{", "")


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
