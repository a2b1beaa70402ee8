"""The way out of steps and letters over HTTP: to addresses that the guard allows, or through the proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hai_flow.primitives.unpacking import unpack
from hai_flow.steps.http.egress import EgressGuard

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """`bytes_max`: of all that comes back for one step. `proxy`: the address of one that all requests take. `ca`: a
    file of further certificates that are believed. `takes_callbacks`: the deployment has an address for them."""

    bytes_max: int = 1024 * 1024
    proxy: str | None = None
    ca: str | None = None
    takes_callbacks: bool = False


def make_transport(guard: EgressGuard, config: HttpConfig) -> httpx2.AsyncHTTPTransport:
    """A transport that connects only to addresses that `guard` has allowed. Behind a proxy it can't judge addresses,
    and connects to the proxy alone."""
    import httpcore2
    import httpx2

    plain: Any = httpcore2.AnyIOBackend()

    class Judged(httpcore2.AsyncNetworkBackend):
        """Connects to the address that was judged, and to no other that the name may have."""

        async def connect_tcp(self, host: str, port: int, *args: Any, **more: Any) -> httpcore2.AsyncNetworkStream:
            return await plain.connect_tcp(await guard.address(host, port), port, *args, **more)

        async def sleep(self, seconds: float) -> None:
            await plain.sleep(seconds)

    context = httpx2.create_ssl_context()
    if config.ca is not None:
        context.load_verify_locations(config.ca)
    transport = httpx2.AsyncHTTPTransport(verify=context, proxy=config.proxy, trust_env=False)
    if config.proxy is None:
        transport._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=Judged(),
        )
    return transport


def unpack_body(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The body of a response, unpacked, in pieces of a bounded size. Raises NotUnpacked, and as `aiter_raw` does."""
    return unpack(response.aiter_raw(), response.headers.get("content-encoding", ""))
