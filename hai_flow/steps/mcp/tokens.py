"""Tokens for servers over HTTP, by client credentials of OAuth.

The deployment declares the issuer. The SDK compares its spelling letter by letter, and many servers write it with a
final slash in one document and without it in the other, so the answers of an issuer are made plain here first."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

_TOKEN: Final = re.compile(rb'("[^"]*token"\s*:\s*)"(?:[^"\\]|\\.)+"', re.IGNORECASE)
_SECONDS_MAX: Final = 1e9  # also for a time that is too large for a number


class ClientCredentials(ClientCredentialsOAuthProvider):
    """Adds tokens to the requests of one connection, and keeps them as long. `settings`: `oauth` of the catalogue."""

    def __init__(self, url: str, settings: Mapping[str, Any]) -> None:
        super().__init__(
            server_url=url,
            storage=_Tokens(),
            client_id=settings["client_id"],
            client_secret=settings["client_secret"],
            scope=settings.get("scope"),
            issuer=settings["issuer"],
        )
        self._declared = settings["issuer"]

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = super().async_auth_flow(request)
        try:
            sending = await anext(flow)
            while True:
                response = yield sending
                sending = await flow.asend(response if sending is request else await self._tidy(response))
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _tidy(self, response: httpx2.Response) -> httpx2.Response:
        """An answer of an issuer, or about one, as the SDK takes it. One without the token is an error, which does not
        tell what may be one under another name."""
        if response.next_request is not None:
            return response  # a redirect, which the SDK follows
        status, content = response.status_code, await response.aread()
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        answer = self._make_plain(answer) if isinstance(answer, dict) else {}
        if response.request.method == "POST" and response.is_success and not answer.get("access_token"):
            status, content = 400, _TOKEN.sub(rb'\1"..."', content)
        elif answer:
            content = json.dumps(answer).encode()
        return httpx2.Response(status, content=content, request=response.request)

    def _make_plain(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        plain = dict(answer)
        if isinstance(servers := answer.get("authorization_servers"), list):
            plain["authorization_servers"] = [self._spell(each) for each in servers]
        if "issuer" in answer:
            plain["issuer"] = self._spell(answer["issuer"])
        if "access_token" in answer:
            scope, seconds = answer.get("scope"), answer.get("expires_in")
            plain["token_type"] = answer.get("token_type") or "Bearer"
            plain["scope"] = " ".join(map(str, scope)) if isinstance(scope, list) else scope
            plain["expires_in"] = int(min(seconds, _SECONDS_MAX)) if isinstance(seconds, float) else seconds
        return plain

    def _spell(self, issuer: Any) -> Any:
        """The declared issuer, where another spelling of it differs by a final slash alone."""
        is_same = isinstance(issuer, str) and issuer.rstrip("/") == self._declared.rstrip("/")
        return self._declared if is_same else issuer


class _Tokens:
    """A storage of tokens, as the SDK wants one, in memory."""

    def __init__(self) -> None:
        self._tokens: Any = None
        self._client: Any = None

    async def get_tokens(self) -> Any:
        return self._tokens

    async def set_tokens(self, tokens: Any) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> Any:
        return self._client

    async def set_client_info(self, client_info: Any) -> None:
        self._client = client_info
