"""The way to a server of the Model Context Protocol over HTTP: guarded, bounded, and without surprises for the SDK.

The SDK's transport ends with the first request that fails on the network, and with it everything that is under way
between. So failures are turned into answers here: errors of JSON-RPC whose `data` says whether the request may have
arrived (`UNREACHED`: surely not).
"""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final

import httpx2

from hai_flow import values
from hai_flow.errors import StepError
from hai_flow.models.faults import retry_after
from hai_flow.steps.guard import Guard
from hai_flow.steps.http import HttpConfig, transport_of

FAULT: Final = f"hai-flow/fault/{token_hex(8)}"
"""The key in the `data` of an error that holds what is said here. No server can guess it, and say the same."""
UNAUTHORIZED: Final = "mcp.unauthorized"
CONNECT_SECONDS: Final = 10.0
_UNREACHED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_BUSY: Final = frozenset({429, 503})
_DENIED: Final = frozenset({401, 403})


def client_for(
    guard: Guard, config: HttpConfig, headers: Mapping[str, str], auth: httpx2.Auth | None
) -> httpx2.AsyncClient:
    """A client that connects to judged addresses only, and takes `config.bytes_max` of an answer."""
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
    transport = _Answering(guard, transport_of(guard, config), config, asks_for_tokens=auth is not None)
    return httpx2.AsyncClient(transport=transport, headers=dict(headers), auth=auth, timeout=timeout, trust_env=False)


class _Answering(httpx2.AsyncBaseTransport):
    def __init__(
        self, guard: Guard, inner: httpx2.AsyncBaseTransport, config: HttpConfig, *, asks_for_tokens: bool
    ) -> None:
        self._asks_for_tokens = asks_for_tokens
        self._guard = guard
        self._inner = inner
        self._config = config

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            if self._config.proxy is not None:  # which resolves the name once more
                await self._guard.address(request.url.host, request.url.port or 443)
            response = await self._inner.handle_async_request(request)
        except StepError as error:
            return _fault(error.message, code=error.code, reached=False)
        except _UNREACHED as error:
            return _fault(f"it can't be reached: {str(error) or type(error).__name__}", reached=False)
        except httpx2.TransportError as error:
            return _fault(f"the connection broke: {str(error) or type(error).__name__}", reached=True)
        return await self._whole(response)

    async def _whole(self, response: httpx2.Response) -> httpx2.Response:
        kind = response.headers.get("content-type", "").lower()
        if response.headers.get("content-encoding", "identity").lower() != "identity":  # which was not asked for
            await response.aclose()
            return _fault("its answer is compressed", code="tool.invalid_result", reached=True, final=True)
        if response.status_code < 300 and kind.startswith("text/event-stream"):
            return response
        try:
            content = bytearray()
            async for piece in response.aiter_raw():
                content += piece
                if len(content) > self._config.bytes_max:
                    message = f"it answers with more than {self._config.bytes_max} bytes (HAI_FLOW_HTTP_BYTES_MAX)"
                    return _fault(message, code="tool.invalid_result", reached=True, final=True)
        except httpx2.TransportError as error:
            return _fault(f"the connection broke: {str(error) or type(error).__name__}", reached=True)
        finally:
            await response.aclose()
        status = response.status_code
        if status in _DENIED and not self._asks_for_tokens:
            return _fault(f"it answers {status}: its `auth` is missing or wrong", code=UNAUTHORIZED, final=True)
        if self._is_for_the_sdk(status) or (kind.startswith("application/json") and _is_error(bytes(content))):
            return httpx2.Response(status, headers=response.headers, content=bytes(content))
        if status in _BUSY:
            return _fault(f"it is busy ({status})", reached=False, after=retry_after(dict(response.headers)))
        if status >= 500:
            return _fault(f"it answers {status}", reached=True)
        return _fault(f"it answers {status}", code="tool.failed", final=True)

    def _is_for_the_sdk(self, status: int) -> bool:
        """What says more to it than an error: an answer, a session that is over, a token that is wanted."""
        return status < 400 or status == 404 or status in _DENIED

    async def aclose(self) -> None:
        await self._inner.aclose()


def _is_error(content: bytes) -> bool:
    try:
        return isinstance(values.loads(content), dict)
    except values.NotJson:
        return False


def _fault(
    message: str,
    *,
    code: str = "mcp.unavailable",
    reached: bool = True,
    final: bool = False,
    after: float | None = None,
) -> httpx2.Response:
    """An answer that says why there is none. `final`: the server has answered, only not in a form that is taken."""
    fault: dict[str, Any] = {"code": code, "message": message, "reached": reached, "final": final, "after": after}
    error = {"code": -32000, "message": message, "data": {FAULT: fault}}
    return httpx2.Response(502, json={"jsonrpc": "2.0", "id": None, "error": error})
