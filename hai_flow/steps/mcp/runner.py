"""Servers of the Model Context Protocol as tools: which of them a workflow may reach, and a call of their functions.

The deployment has a catalogue (`HAI_FLOW_MCP`), a file like

    hai: mcp/v1
    servers:
      files: {command: [python, -m, acme.files], env: {TOKEN: "${{ secrets.FILES }}"}, trusted: true}
      erp: {url: https://erp.internal/mcp, auth: "${{ secrets.ERP }}"}

Workflows name its servers (`mcp: {use: files}`). A workflow may also declare an address. Only one that was read from a
disk of this machine may declare a command: otherwise the right to publish would be the right to start programs here.

Everything that a server sends (descriptions, results, errors) is data. It opens no gate and names no secret."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from hai_flow import values
from hai_flow.definition.names.secret_names import fill_secrets, resolve_template
from hai_flow.definition.names.wording import suggestion
from hai_flow.definition.plan import ANY_FUNCTION, Call, McpServer, McpTool, Plan, Schema, Step, Tool
from hai_flow.definition.tools.effect_classes import Effect, effect_of_hints
from hai_flow.definition.tools.mcp_servers import CatalogueServer
from hai_flow.errors import AsksPerson, StepError
from hai_flow.primitives.beside_loop import run_by_size, run_if_large
from hai_flow.primitives.titles import TITLE_CHARS_MAX
from hai_flow.steps.files import extract_files, has_no_files, put_in
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.runner import headers_of
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.steps.mcp.receipts import CallReceipt
from hai_flow.steps.offered_tools import OfferedFunction
from hai_flow.steps.pins import LISTED, UNKNOWN, Looked, NoPins, Pins, ToolIdentity
from hai_flow.steps.runner import Attempt, Runner, Stream, demand_call
from hai_flow.steps.secrets import DEFAULT, Secrets, Use
from hai_flow.values import Json, storable

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.shared.dispatcher import ProgressFnT

    from hai_flow.steps.mcp.connections import Connection, Open, Session

NOT_ALLOWED: Final = "tool.not_allowed"
NOT_CONFIGURED: Final = "mcp.not_configured"
LEFT_OUT_MAX: Final = 20  # functions of one server that a publication names
LOOK_SECONDS: Final = 5.0  # for a server to be asked when a workflow is published
UNAVAILABLE: Final = "tool.unavailable"
IDENTIFIED_MAX: Final = 1000
CONNECTIONS_MAX: Final = 100  # that are open; whoever may publish names the addresses
PROGRESS_CHARS_MAX: Final = 500
_PROGRESS_MAX: Final = 1000  # of one call; a server may send any number


class Reached(msgspec.Struct, frozen=True):
    """A server that a tool means. `ours`: it is one of the deployment's catalogue; `trusted` as there."""

    name: str
    tool: str
    server: McpServer
    ours: bool = False
    trusted: bool = False


class McpRunner(Runner):
    """Performs `call` of tools over MCP. `servers`: the catalogue of the deployment. `hosts`: those that may be reached
    though they are not public. `config`: of requests; its `bytes_max` also bounds a result."""

    def __init__(
        self,
        servers: Mapping[str, CatalogueServer],
        secrets: Secrets,
        hosts: Sequence[str],
        config: HttpConfig,
        version_min: str = "",
    ) -> None:
        self._servers = dict(servers)
        self._secrets = secrets
        self._hosts = tuple(hosts)
        self._config = config
        self._version_min = version_min
        self._connections: dict[object, Connection] = {}
        self._identified: dict[str, Schema] = {}  # of what people were shown: the schema by the digest
        self._loaded = False

    async def perform(self, attempt: Attempt, stream: Stream) -> Json:
        call, tool = demand_call(attempt.step, McpTool)
        function = call.function
        reached = self._server_of(tool, from_disk=attempt.from_disk)
        of = attempt.tenant, attempt.workflow
        connection = await self._connection(reached, of, from_disk=attempt.from_disk)
        session = await connection.session(function)
        offered = _demand_allowed(session.tools, tool, function, session.left_out)
        await demand_known(tool, {function: offered}, attempt.pins)
        from hai_flow.steps.mcp.elicitation import answer_to, complete
        from hai_flow.steps.mcp.results import (
            changes_in,
            check_output_by_size,
            check_storable,
            content_of,
            schema_of,
            text_of,
        )
        from hai_flow.steps.mcp.schemas import compile_output_schema

        who = f"{tool.name}.{function}"
        input_schema = schema_of(offered.input_schema, who)
        arguments, faults = await run_by_size(len(attempt.args), input_schema.fit, values.loads(attempt.args))
        for fault in faults[:1]:
            message = f"the arguments do not fit {who}: {fault['path'] or '/'}: {fault['message']}"
            raise StepError(message, code="tool.invalid_arguments", retriable=False)
        effect = classify(tool, offered, trusted=reached.trusted)
        receipt = CallReceipt()
        attempt.receive(receipt.describe)
        progress = _progress(stream, receipt, streams=call.stream)
        answer = None if attempt.answer is None else answer_to(attempt.answer)
        again = partial(connection.call, session, function, arguments, progress, repeatable=effect == "read")
        result = await complete(again, answer, receipt)
        if isinstance(result, AsksPerson):
            raise result
        fetched = {} if has_no_files(attempt.files) else await self._fetch_links(connection, session, result)
        schema = compile_output_schema(offered)
        output, notes = await run_if_large(
            [result.structured_content, text_of(result.content)],
            lambda: check_storable(content_of(result, who, fetched, schema), who, tool.big_integers),
        )
        if notes := (*changes_in(result), *notes):
            stream.noted(notes)
        judge = partial(check_output_by_size, is_structured=result.structured_content is not None)
        if has_no_files(attempt.files):
            return await judge(output, schema, who, self._config.bytes_max)
        output, contents = extract_files(output, self._config.bytes_max)
        # Before anything of it is stored:
        await judge(output, schema, who, self._config.bytes_max)
        return await put_in(output, contents, attempt.files)

    def source_of(self, step: Step, *, from_disk: bool = False) -> str | None:
        return UNKNOWN

    def find_schema(self, step: Step, source: str | None, *, from_disk: bool = False) -> Schema | None:
        return self._identified.get(source or "")

    async def identify(self, attempt: Attempt) -> ToolIdentity:
        call, tool = demand_call(attempt.step, McpTool)
        reached = self._server_of(tool, from_disk=attempt.from_disk)
        connection = await self._connection(reached, (attempt.tenant, attempt.workflow), from_disk=attempt.from_disk)
        connection.forget_tools()  # a listing may be minutes old
        session = await connection.session()
        offered = _demand_allowed(session.tools, tool, call.function, session.left_out)
        from hai_flow.steps.mcp.results import DESCRIPTION_CHARS_MAX, schema_of

        description = storable(offered.description or offered.title or "")[:DESCRIPTION_CHARS_MAX]
        title = offered.title or (None if offered.annotations is None else offered.annotations.title) or ""
        digest = digest_of(offered)
        if len(self._identified) >= IDENTIFIED_MAX:
            self._identified.clear()
        self._identified[digest] = schema_of(offered.input_schema, call.function)
        return ToolIdentity(digest, description, storable(title)[:TITLE_CHARS_MAX] or None)

    async def _fetch_links(
        self, connection: Connection, session: Session, result: types.CallToolResult
    ) -> dict[int, list[dict[str, Json]]]:
        """The parts that replace the links of a result, by the number of the linking part. A link that the server can't
        read is left out."""
        from hai_flow.steps.mcp.results import LINKS_MAX, find_links, read_resource_parts

        parts_by_number: dict[int, list[dict[str, Json]]] = {}
        bytes_left = self._config.bytes_max
        for number, link in find_links(result)[:LINKS_MAX]:
            parts, size = read_resource_parts(link, await connection.read(session, link.uri))
            if parts and size <= bytes_left:
                parts_by_number[number] = parts
                bytes_left -= size
        return parts_by_number

    async def offered(self, name: str, tool: Tool, *, from_disk: bool = False) -> Sequence[OfferedFunction]:
        """The functions that the server has now and the declaration allows, as a model is offered them."""
        return await self.offered_to(name, tool, NoPins(), workflow="", tenant=DEFAULT, from_disk=from_disk)

    async def offered_to(
        self, name: str, tool: Tool, pins: Pins, *, workflow: str, tenant: str = DEFAULT, from_disk: bool
    ) -> Sequence[OfferedFunction]:
        assert isinstance(tool, McpTool)
        reached = self._server_of(tool, from_disk=from_disk)
        functions, _ = await self._functions(tool, reached, (tenant, workflow), from_disk=from_disk)
        allowed = await demand_known(tool, functions, pins, skips=True)
        return [_offer(name, tool, each, trusted=reached.trusted) for each in allowed.values()]

    async def _functions(
        self, tool: McpTool, reached: Reached, of: tuple[str, str], *, from_disk: bool, anew: bool = False
    ) -> tuple[dict[str, types.Tool], dict[str, str]]:
        """The functions that the server has and the declaration allows, by their names; and those that are left out
        because they can't be used: why. `anew`: as it lists them now; a listing may be minutes old."""
        connection = await self._connection(reached, of, from_disk=from_disk)
        if anew:
            connection.forget_tools()
        session = await connection.session()
        allowed = session.tools if tool.allow is None else [each for each in tool.allow if each in session.tools]
        left_out = [each for each in session.left_out if tool.allow is None or each in tool.allow]
        return {each: session.tools[each] for each in allowed}, {each: session.left_out[each] for each in left_out}

    async def look(self, plan: Plan, tenant: str = DEFAULT) -> Looked:
        """Ask one server after the other: most workflows have one."""
        pins: dict[str, str] = {}
        doubts: list[tuple[str, str]] = []
        for tool, steps in _used(plan):
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    reached = self._server_of(tool, from_disk=plan.from_disk)
                    of = tenant, plan.name
                    functions, left_out = await self._functions(tool, reached, of, from_disk=plan.from_disk, anew=True)
            except TimeoutError:
                doubts.append((steps[0].path, f"the server of `{tool.name}` said nothing for {LOOK_SECONDS:g} s"))
                continue
            except StepError as error:
                doubts.append((steps[0].path, error.message))
                continue
            pins |= {f"{tool.name}.{name}": digest_of(each) for name, each in functions.items()} | {tool.name: LISTED}
            doubts += _missing(tool, steps, functions, left_out)
            doubts += [
                (steps[0].path, _explain_left_out(tool, name, why))
                for name, why in list(left_out.items())[:LEFT_OUT_MAX]
            ]
        return Looked(pins, doubts)

    def fault(self, step: Step, *, from_disk: bool = False) -> str | None:
        tool = step.verb.tool if isinstance(step.verb, Call) else None
        if not isinstance(tool, McpTool):
            return None
        try:
            self._server_of(tool, from_disk=from_disk)
        except StepError as error:
            return error.message
        return None

    def doubt(self, step: Step, *, from_disk: bool = False) -> str | None:
        tool = step.verb.tool if isinstance(step.verb, Call) else None
        if not isinstance(tool, McpTool):
            return None
        server = self._server_of(tool, from_disk=from_disk).server
        templates = (server.auth, server.headers, server.env, server.oauth)
        doubts = (self._secrets.doubt(each.written) for each in templates if each is not None)
        return next((each for each in doubts if each is not None), None)

    async def close(self) -> None:
        connections, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(each.close() for each in connections))

    def _server_of(self, tool: McpTool, *, from_disk: bool) -> Reached:
        """The server that the tool means, if the workflow may reach it. Raises StepError."""
        server = tool.server
        if server.use is not None:
            entry = self._servers.get(server.use)
            if entry is None:
                names = ", ".join(sorted(self._servers)) or "none"
                hint = suggestion(server.use, self._servers) or f"; its catalogue (HAI_FLOW_MCP) has {names}"
                message = f"this deployment has no MCP server `{server.use}`{hint}"
                raise StepError(message, code=NOT_CONFIGURED, retriable=False)
            return Reached(f"the MCP server `{server.use}`", tool.name, entry.server, ours=True, trusted=entry.trusted)
        if server.command and not from_disk:
            message = (
                f"the tool `{tool.name}` starts a program, which a published workflow must not bring along; declare it "
                "in the deployment's catalogue (HAI_FLOW_MCP) and name it: `mcp: {use: NAME}`"
            )
            raise StepError(message, code=NOT_ALLOWED, retriable=False)
        return Reached(f"the MCP server of `{tool.name}`", tool.name, server)

    async def _connection(self, reached: Reached, of: tuple[str, str], *, from_disk: bool) -> Connection:
        """The connection to a server, for the workflow `of` a tenant. Workflows share one where they may use the same
        secrets there, and those of several tenants only one to a server of the deployment's own."""
        tenant, workflow = of
        server = reached.server
        settings = {
            name: resolve_template(template)
            for name in ("auth", "headers", "env", "oauth")
            if (template := getattr(server, name)) is not None
        }
        host = urlsplit(server.url).hostname or "" if server.url is not None else ""
        use = Use(
            host=host, workflow=workflow, from_disk=from_disk, ours=reached.ours, tool=reached.tool, tenant=tenant
        )
        secret_values = await self._secrets.found(settings, use)
        filled_settings = fill_secrets(settings, secret_values.__getitem__)
        key = (server.url, server.command, values.dumps(filled_settings), reached.ours or tenant, from_disk)
        connection = self._connections.get(key)
        if connection is None:
            if not self._loaded:  # the SDK takes seconds to import: not in the loop, nor for a server that is nowhere
                if server.url is not None:
                    await self._demand_address(server.url, reached, is_trusted=reached.ours or from_disk)
                await asyncio.to_thread(importlib.import_module, "hai_flow.steps.mcp.connections")
                self._loaded = True
            from hai_flow.steps.mcp.connections import Connection

            opens = self._opens(server, filled_settings, host, is_trusted=reached.ours or from_disk)
            connection = self._connections.get(key)  # another task may have made it meanwhile
            if connection is None:
                self._forget_unused()
                ends = partial(self._forget, key)
                connection = Connection(reached.name, opens, ends, self._version_min, is_screened=not reached.trusted)
                self._connections[key] = connection
        return connection

    async def _demand_address(self, url: str, reached: Reached, *, is_trusted: bool) -> None:
        """Raises StepError as the connection would: the name of the server has no address, or none that is allowed."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        try:
            await self._guard(host, is_trusted=is_trusted).address(host, parts.port or 443)
        except StepError as error:
            code = "mcp.unavailable" if error.retriable else error.code
            raise StepError(f"{reached.name}: {error.message}", code=code, retriable=error.retriable) from None

    def _guard(self, host: str, *, is_trusted: bool) -> EgressGuard:
        return EgressGuard((*self._hosts, host) if is_trusted else self._hosts)

    def _forget(self, key: object) -> None:
        """The connection has ended: what it knew, and the secrets that it was opened with, go as well."""
        self._connections.pop(key, None)

    def _forget_unused(self) -> None:
        """Make room for another connection: those go that were never used, and of too many the longest idle are
        closed."""
        for key in [key for key, each in self._connections.items() if each.has_ended]:
            del self._connections[key]
        idle = sorted(
            ((since, each) for each in self._connections.values() if (since := each.idle_since) is not None),
            key=lambda found: found[0],
        )
        for _, each in idle[: max(0, len(self._connections) - CONNECTIONS_MAX + 1)]:
            each.drop()

    def _opens(self, server: McpServer, given: Mapping[str, Any], host: str, *, is_trusted: bool) -> Open:
        from hai_flow.steps.mcp.connections import connect_over_stdio, over_http

        if server.url is None:
            env = {str(name): _word(each) for name, each in given.get("env", {}).items()}
            return connect_over_stdio(server.command, env, 2 * self._config.bytes_max)
        guard = self._guard(host, is_trusted=is_trusted)
        headers = headers_of(given.get("headers"), given.get("auth"))
        auth = _oauth(server.url, given["oauth"]) if "oauth" in given else None
        return over_http(server.url, guard, self._config, headers, auth)


def _used(plan: Plan) -> list[tuple[McpTool, list[Step]]]:
    by_tool: dict[str, tuple[McpTool, list[Step]]] = {}
    for step in plan.steps.values():
        if isinstance(step.verb, Call) and isinstance(step.verb.tool, McpTool):
            by_tool.setdefault(step.verb.tool.name, (step.verb.tool, []))[1].append(step)
    return list(by_tool.values())


def _missing(
    tool: McpTool, steps: Sequence[Step], found: Mapping[str, types.Tool], left_out: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for step in steps:
        assert isinstance(step.verb, Call)
        if step.verb.function not in (*found, *left_out) and step.verb.function != ANY_FUNCTION:
            try:
                _demand_allowed(found, tool, step.verb.function)
            except StepError as error:
                yield step.path, error.message


def digest_of(tool: types.Tool) -> str:
    """The digest of a function's description by its server: of all parts by which people or models judge it."""
    description = tool.model_dump(by_alias=True, mode="json", exclude={"icons", "meta"}, exclude_none=True)
    return sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


async def demand_known(
    tool: McpTool, found: Mapping[str, types.Tool], pins: Pins, *, skips: bool = False
) -> dict[str, types.Tool]:
    """The functions whose descriptions have the digests that the workflow knows. `skips`: a function without a digest
    is left out, instead of refused.

    If the server could not be asked at publication, the descriptions at the first contact count. Raises StepError
    `mcp.tool_changed`."""
    digests = {name: digest_of(each) for name, each in found.items()}
    digests_known = await pins.known()
    new = {name for name in digests if f"{tool.name}.{name}" not in digests_known}
    if new and digests_known.get(tool.name) == LISTED:
        if not skips:
            raise _change_error(tool, min(new), "was not there when the workflow was published")
    elif new:
        digests_known = await pins.add({f"{tool.name}.{name}": digests[name] for name in new})
        new = set()
    for name in digests.keys() - new:
        if digests_known[f"{tool.name}.{name}"] != digests[name]:
            raise _change_error(tool, name, "is described otherwise than when the workflow was published")
    return {name: each for name, each in found.items() if name not in new}


def _change_error(tool: McpTool, function: str, why: str) -> StepError:
    message = f"{tool.name}.{function} {why}. Look at it; a new version of the workflow takes it as it is now."
    return StepError(message, code="mcp.tool_changed", retriable=False)


def _explain_left_out(tool: McpTool, function: str, why: str) -> str:
    return f"the server of `{tool.name}` offers `{function}`, which can't be used: {why}"


def _demand_allowed(
    tools: Mapping[str, types.Tool], tool: McpTool, function: str, left_out: Mapping[str, str] = MappingProxyType({})
) -> types.Tool:
    listed = tools.get(function)
    if listed is None and function in left_out:
        raise StepError(_explain_left_out(tool, function, left_out[function]), code=UNAVAILABLE, retriable=False)
    if listed is None or (tool.allow is not None and function not in tool.allow):
        names = [each for each in tools if tool.allow is None or each in tool.allow]
        hint = suggestion(function, names) or f"; it has {', '.join(names[:20]) or 'none'}"
        message = f"the server of `{tool.name}` has no function `{function}`{hint}"
        raise StepError(message, code=UNAVAILABLE, retriable=False)
    return listed


def classify(tool: McpTool, offered: types.Tool, *, trusted: bool) -> Effect:
    """The class of a call. The server's own claim counts only if the deployment trusts it."""
    if tool.effect is not None:
        return tool.effect
    hints = offered.annotations
    if not trusted or hints is None:
        return "write"
    return effect_of_hints(hints.read_only_hint, hints.destructive_hint)


def _offer(name: str, tool: McpTool, offered: types.Tool, *, trusted: bool) -> OfferedFunction:
    from hai_flow.definition.schemas.foreign_schemas import read_schema
    from hai_flow.steps.mcp.results import DESCRIPTION_CHARS_MAX
    from hai_flow.steps.mcp.schemas import compile_output_schema

    result = compile_output_schema(offered)
    return OfferedFunction(
        f"{name}.{offered.name}",
        storable(offered.description or offered.title or "")[:DESCRIPTION_CHARS_MAX],
        read_schema(offered.input_schema),
        None if result is None else result.raw,
        classify(tool, offered, trusted=trusted),
        binds_formats=False,
    )


def _progress(stream: Stream, receipt: CallReceipt, *, streams: bool) -> ProgressFnT:
    """The callback for a server's progress notifications: it shows them as progress, and as text where the step
    streams."""
    heard = 0

    async def heard_of(progress: float, total: float | None, message: str | None) -> None:
        nonlocal heard
        heard += 1
        if heard > _PROGRESS_MAX:
            return
        text = storable(message or "")[:PROGRESS_CHARS_MAX]
        values = {"done": progress, "total": total, "message": text or None}
        values = {name: value for name, value in values.items() if value is not None}
        receipt.note_progress(values)
        stream.progress(values)
        if streams and text:
            await stream(f"{text}\n")

    return heard_of


def _oauth(url: str, settings: Mapping[str, Any]) -> Callable[[], Any]:
    """Tokens by client credentials. They are kept as long as the connection."""

    def make() -> Any:
        from hai_flow.steps.mcp.tokens import ClientCredentials

        return ClientCredentials(url, settings)

    return make


def _word(value: Json) -> str:
    return value if isinstance(value, str) else values.dumps(value).decode()
