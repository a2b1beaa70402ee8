"""Issuers of tokens for MCP servers, as they spell themselves and their tokens: nobody who runs HAI Flow can mend
another's documents."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import pytest

from hai_flow.steps.secrets import Secrets
from tests.foreign.test_mcp import Odd
from tests.steps.test_mcp import call, failure, runner_of
from tests.support.service import Received, Reply, Service

Json = Any


class Guarded(Odd):
    """A server of MCP, with its own issuer. `issuer`: what that calls itself, `named`: what the server calls it, below
    the address of both; `token`: what it gives, None for another reply (`reply`);
    `is_moved`: its documents stand at another path."""

    def __init__(
        self,
        issuer: str = "",
        named: str = "",
        token: Json = None,
        reply: Reply | None = None,
        *,
        is_moved: bool = False,
    ) -> None:
        super().__init__()
        self.url = ""
        self._issuer, self._named, self._in_place = issuer, named, reply
        self._is_moved = is_moved
        self._token = {"access_token": "t1", "token_type": "Bearer"} if token is None else token

    def __call__(self, received: Received) -> Reply:
        if self._is_moved and ".well-known" in received.target and not received.target.endswith("/"):
            return Reply(307, headers=(("Location", f"{received.target}/"),))
        if received.target.startswith("/.well-known/oauth-protected-resource"):
            return _say({"resource": f"{self.url}/mcp", "authorization_servers": [self.url + self._named]})
        if received.target.startswith("/.well-known/"):
            places = {"token_endpoint": f"{self.url}/token", "authorization_endpoint": f"{self.url}/authorize"}
            return _say({"issuer": self.url + self._issuer, "response_types_supported": ["code"], **places})
        if received.target == "/token":
            return self._in_place or _say(self._token)
        if received.headers.get("authorization") != "Bearer t1":
            return Reply(401, b"no token")
        return super().__call__(received)


def _say(value: Json, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode())


CATALOGUE: Final = (
    "{{far: {{url: '{0}/mcp', oauth: {{issuer: '{0}{1}', client_id: flow, client_secret: '${{{{ secrets.ERP }}}}'}}}}}}"
)
TOKEN: Final = {"access_token": "t1", "token_type": "Bearer"}
TAKEN: Final[dict[str, tuple[str, Guarded]]] = {
    "as the protocol has it": ("", Guarded()),
    "documents at another path": ("", Guarded(is_moved=True)),
    "a slash where the server names it": ("", Guarded(named="/")),
    "a slash where it names itself": ("", Guarded(issuer="/")),
    "a slash in both": ("", Guarded(issuer="/", named="/")),
    "a slash in the catalogue": ("/", Guarded()),
    "a slash behind a path": ("/tenant", Guarded(issuer="/tenant", named="/tenant/")),
    "a token without a type": ("", Guarded(token={"access_token": "t1"})),
    "a token whose type is null": ("", Guarded(token={**TOKEN, "token_type": None})),
    "scopes as a list": ("", Guarded(token={**TOKEN, "scope": ["a", "b"]})),
    "its time with a fraction": ("", Guarded(token={**TOKEN, "expires_in": 3599.5})),
    "its time without end": ("", Guarded(token={**TOKEN, "expires_in": math.inf})),
    "its time as text": ("", Guarded(token={**TOKEN, "expires_in": "3600"})),
}
REFUSED: Final[dict[str, tuple[Guarded, str]]] = {
    "another issuer": (Guarded(issuer="/other"), "mismatch"),
    "an error with 200": (Guarded(token={"error": "invalid_scope", "error_description": "no scope b"}), "no scope b"),
    "an error": (Guarded(reply=_say({"error": "invalid_client"}, 401)), "invalid_client"),
    "a page": (Guarded(reply=Reply(200, b"<html>Please sign in</html>", "text/html")), "Please sign in"),
    "an empty token": (Guarded(token={**TOKEN, "access_token": ""}), "access_token"),
}  # fmt: skip


@pytest.mark.parametrize("form", TAKEN)
async def test_a_token_of_an_issuer_that_spells_otherwise_is_taken(form: str) -> None:
    declared, guarded = TAKEN[form]
    async with Service(guarded) as service:
        guarded.url = service.url("")
        catalogue = CATALOGUE.format(guarded.url, declared)
        async with runner_of(catalogue, Secrets({"ERP": "abcdef"}), hosts=("127.0.0.1",)) as runner:
            assert await call(runner, "ok", "mcp: {use: far}") == "ok"


@pytest.mark.parametrize("form", REFUSED)
async def test_an_issuer_that_gives_no_token_is_told_in_its_words(form: str) -> None:
    guarded, words = REFUSED[form]
    async with Service(guarded) as service:
        guarded.url = service.url("")
        catalogue = CATALOGUE.format(guarded.url, "")
        async with runner_of(catalogue, Secrets({"ERP": "abcdef"}), hosts=("127.0.0.1",)) as runner:
            fault = await failure(runner, "ok", "mcp: {use: far}")
    assert (fault.code, words in fault.message, guarded.calls) == ("mcp.unavailable", True, []), fault.message


async def test_a_token_under_another_name_is_not_in_the_error() -> None:
    guarded = Guarded(token={"code": 0, "tenant_access_token": "t-1234567890", "data": {"accessToken": "u-1234567890"}})
    async with Service(guarded) as service:
        guarded.url = service.url("")
        async with runner_of(
            CATALOGUE.format(guarded.url, ""), Secrets({"ERP": "abcdef"}), hosts=("127.0.0.1",)
        ) as runner:
            fault = await failure(runner, "ok", "mcp: {use: far}")
    assert "tenant_access_token" in fault.message
    assert "1234567890" not in f"{fault.message} {fault.data}"
