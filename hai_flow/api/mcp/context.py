"""What a handler of the SDK needs of its request: the caller's access."""

from __future__ import annotations

from typing import Any, TypeAlias

from mcp.server.context import ServerRequestContext
from starlette.requests import Request

from hai_flow.api.mcp import ACCESS
from hai_flow.api.requests.access import Access

Context: TypeAlias = ServerRequestContext[Any, Any]


def request_of(ctx: Context) -> Request:
    """The HTTP request that the message came with."""
    assert isinstance(ctx.request, Request), "every message comes by HTTP"
    return ctx.request


def build_access(ctx: Context) -> Access:
    """The access of the request's caller."""
    access: Access = request_of(ctx).scope[ACCESS]
    return access
