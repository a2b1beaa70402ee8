"""A request as the handlers of the SDK see it: its caller's access, and the abilities of its client."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from starlette.requests import Request

from hai_flow.api.mcp import ACCESS
from hai_flow.api.mcp.sessions import Session
from hai_flow.api.requests.access import Access
from hai_flow.wire.mcp import TASKS

Context: TypeAlias = ServerRequestContext[Any, Any]
SESSION: Final = "hai_flow.mcp.session"  # the scope's key of the session of a client of an older revision
MISSING_CAPABILITY: Final = -32021


def request_of(ctx: Context) -> Request:
    """The HTTP request that the message came with."""
    assert isinstance(ctx.request, Request), "every message comes by HTTP"
    return ctx.request


def build_access(ctx: Context) -> Access:
    """The access of the request's caller."""
    access: Access = request_of(ctx).scope[ACCESS]
    return access


def session_of(ctx: Context) -> Session | None:
    """The session of a client of an older revision."""
    session: Session | None = request_of(ctx).scope.get(SESSION)
    return session


class Client(NamedTuple):
    legacy: bool = False
    tasks: bool = False
    forms: bool = False
    urls: bool = False

    @classmethod
    def of(cls, ctx: Context) -> Client:
        """One of an older revision says so once, in its handshake, which the id of its session repeats."""
        if ctx.protocol_version < "2026-07-28":
            session = session_of(ctx)
            if session is None:
                return cls(legacy=True)
            return cls(True, False, session.forms, session.urls and ctx.protocol_version >= "2025-11-25")
        has = ctx.session.client_capabilities
        if has is None:
            return cls()
        asks, tasks = has.elicitation, TASKS in (has.extensions or {})
        forms = asks is not None and (asks.form is not None or asks.url is None)
        return cls(False, tasks, forms, asks is not None and asks.url is not None)


def reject_without_tasks(message: str) -> MCPError:
    """The refusal of a request that needs the tasks extension."""
    return MCPError(MISSING_CAPABILITY, message, {"requiredCapabilities": {"extensions": {TASKS: {}}}})
