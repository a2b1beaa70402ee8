"""`/mcp` as a resource server (RFC 9728): its address, by which tokens name it as their audience, and its metadata."""

from __future__ import annotations

from typing import Final

from starlette.requests import HTTPConnection

PATH: Final = "/mcp"
METADATA_PATH: Final = f"/.well-known/oauth-protected-resource{PATH}"


def base_of(public_url: str | None, connection: HTTPConnection) -> str:
    """The server's own address, without a slash at its end."""
    return (public_url or str(connection.base_url)).rstrip("/")


def find_audience(connection: HTTPConnection) -> tuple[str, ...] | None:
    """The only audience whose tokens open the request's route; None: that of its issuer. A token for other clients does
    not open `/mcp`, nor one for `/mcp` the rest: what an agent holds is good for its tools alone."""
    if connection.url.path != PATH:
        return None
    return (base_of(connection.app.state.settings.public_url, connection) + PATH,)


def derive_metadata_address(connection: HTTPConnection) -> str:
    return base_of(connection.app.state.settings.public_url, connection) + METADATA_PATH
