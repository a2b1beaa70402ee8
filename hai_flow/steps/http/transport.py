"""The way out of steps and letters over HTTP: to addresses that the guard allows, or through the proxy."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hai_flow.steps.http.egress import EgressGuard

if TYPE_CHECKING:
    import httpx2


RECEIVED_BYTES_MAX: Final = 16 * 1024
RECEIVED: Final[ContextVar[bytearray | None]] = ContextVar("RECEIVED", default=None)
"""Gets the beginning of what comes for the requests of its task, as it comes: of an answer whose head can't be read
there is nothing else."""


class HttpConfig(msgspec.Struct, frozen=True):
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

    class Noting(httpcore2.AsyncNetworkStream):
        def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
            self._inner = inner
            self.write, self.aclose, self.get_extra_info = inner.write, inner.aclose, inner.get_extra_info

        async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            piece = await self._inner.read(max_bytes, timeout)
            if (received := RECEIVED.get()) is not None:
                received += piece[: max(0, RECEIVED_BYTES_MAX - len(received))]
            return piece

        async def start_tls(self, *args: Any, **more: Any) -> httpcore2.AsyncNetworkStream:
            if (received := RECEIVED.get()) is not None:
                received.clear()  # what a proxy has said of the tunnel is no answer
            return Noting(await self._inner.start_tls(*args, **more))

    class Judged(httpcore2.AsyncNetworkBackend):
        """Connects to the address that was judged, and to no other that the name may have."""

        async def connect_tcp(self, host: str, port: int, *args: Any, **more: Any) -> httpcore2.AsyncNetworkStream:
            address = host if config.proxy is not None else await guard.address(host, port)
            return Noting(await plain.connect_tcp(address, port, *args, **more))

        async def sleep(self, seconds: float) -> None:
            await plain.sleep(seconds)

    context = httpx2.create_ssl_context()
    if config.ca is not None:
        context.load_verify_locations(config.ca)
    transport = httpx2.AsyncHTTPTransport(verify=context, proxy=config.proxy, trust_env=False)
    transport._pool._network_backend = Judged()  # type: ignore[union-attr]
    return transport
