"""A browser signs in at a real OpenID Connect provider, whose refresh tokens are good once, and follows it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from hai_flow.api.auth.sessions import COOKIE
from hai_flow.primitives.secret_digests import hash_secret
from tests.clients.providers import CLIENT, Provider, providing
from tests.support.identities import KEYS, People
from tests.support.issuers import identity_file
from tests.support.server import ServerProcess, serving
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(600)  # the first test waits for the packages


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with providing(rotates=True) as provider:
        yield provider


@pytest.fixture(scope="module")
def servers(
    provider: Provider, dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Two processes of one deployment."""
    described = provider.described
    client = {
        "id": CLIENT,
        "secret": "OIDC_SECRET",
        "authorize": described["authorization_endpoint"],
        "token": described["token_endpoint"],
        "userinfo": described["userinfo_endpoint"],
    }
    issuer = {
        "issuer": provider.url,
        "audience": CLIENT,
        "jwks": described["jwks_uri"],
        "claims": {"roles": "roles", "groups": "groups"},
        "client": client,
    }
    file = identity_file(tmp_path_factory.mktemp("identity"), {"corp": issuer})
    environment = {
        **KEYS,
        "HAI_FLOW_IDENTITY": str(file),
        "HAI_FLOW_PUBLIC_URL": "https://flow.example.com",
        "OIDC_SECRET": "its secret",
    }
    with serving(dsn, environment=environment) as one, serving(dsn, environment=environment) as other:
        yield one, other


def signed_in(server: ServerProcess, provider: Provider, sub: str) -> str:
    begun = httpx2.get(f"{server.url}/sign-in")
    cookie = begun.headers["set-cookie"].partition(";")[0]
    brought = provider.consent(begun.headers["location"], sub)
    back = httpx2.get(f"{server.url}/sign-in/callback", params=brought, headers={"Cookie": cookie})
    assert back.status_code == 303, back.text
    (given,) = [each for each in back.headers.get_list("set-cookie") if each.startswith(f"{COOKIE}=")]
    return given.partition(";")[0].partition("=")[2].strip('"')


def told(server: ServerProcess, session: str) -> tuple[list[str], list[str]] | int:
    """The roles and groups of the session now, or the status of a refusal."""
    answer = httpx2.get(f"{server.url}/v1/session", headers={"Cookie": f"{COOKIE}={session}"}, timeout=30)
    return (answer.json()["roles"], answer.json()["groups"]) if answer.status_code == 200 else answer.status_code


async def test_a_session_follows_what_the_provider_says_of_its_person(
    servers: tuple[ServerProcess, ServerProcess], dsn: str, provider: Provider
) -> None:
    """At each renewal both processes are asked by many at once. The provider takes each refresh token once, so if two
    renewed, or one with a token that was used, the session would be over."""
    provider.describe("ann", roles=["operator"], groups=["finance"])
    session = signed_in(servers[0], provider, "ann")
    assert told(servers[1], session) == (["operator"], ["finance"])

    def due() -> None:
        query = "UPDATE sessions SET renew_at = now() - interval '1 second' WHERE sha256 = $1"
        assert People(dsn).do(lambda connection: connection.execute(query, hash_secret(session))) == "UPDATE 1"

    with ThreadPoolExecutor(12) as many:
        for roles, groups in ((["viewer"], ["finance"]), (["viewer", "decider"], ["audit"]), ([], [])):
            provider.describe("ann", roles=roles, groups=groups)
            due()

            def press(expected: tuple[list[str], list[str]] = (roles, groups)) -> bool:
                answers = list(many.map(lambda n: told(servers[n % 2], session), range(12)))
                assert not [each for each in answers if isinstance(each, int)], "nobody is signed out"
                return all(each == expected for each in answers)

            await until(press, 30.0)
    provider.lock_out("ann")
    due()
    await until(lambda: told(servers[0], session) == told(servers[1], session) == 401, 30.0)
