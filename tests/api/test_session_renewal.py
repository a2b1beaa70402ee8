"""A browser's session follows its person: who signed them in is asked anew, and what it says counts from then on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from hai_flow.api.auth.sessions import COOKIE, LINK, derive_csrf, seal, sign_link_token, unseal
from hai_flow.api.permissions.rights import ROLES
from hai_flow.primitives.secret_digests import hash_secret
from hai_flow.runtime.runtime import LOCAL_TENANT
from tests.support.identities import KEYS, People
from tests.support.issuers import AUDIENCE, Issuer, KeyServer, identity_file, serving_keys
from tests.support.server import ServerProcess, serving
from tests.support.values import require
from tests.support.waiting import until

ISSUER = Issuer()
SAYS: dict[str, Any] = {"roles": ["operator"], "org": "default"}


class Provider:
    """An identity provider whose refresh tokens are good once. `says` are the claims of who has signed in; `answer`
    stands in place of its own answer to a renewal."""

    def __init__(self, keys: KeyServer) -> None:
        self.keys = keys
        self.place = keys.url.removesuffix("/keys")
        self.reset()
        keys.exchange = self.exchange

    def reset(self) -> None:
        self.says = dict(SAYS)
        self.good: set[str] = set()
        self.used: list[str] = []
        self.reused: list[str] = []
        self.refreshes = True
        self.answer: Callable[[dict[str, str]], tuple[int, dict[str, Any]]] | None = None
        self.nonce = ""

    def exchange(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if form["grant_type"] == "authorization_code":
            return 200, self.tokens(nonce=self.nonce)
        token = form["refresh_token"]
        if token not in self.good:
            self.reused.append(token)
            return 400, {"error": "invalid_grant"}
        self.good.remove(token)
        self.used.append(token)
        return self.tokens_of_renewal(form)

    def tokens_of_renewal(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        return (200, self.tokens()) if self.answer is None else self.answer(form)

    def tokens(self, **claims: Any) -> dict[str, Any]:
        told: dict[str, Any] = {"id_token": ISSUER.token(**{**self.says, **claims}), "access_token": "a"}
        if self.refreshes:
            told["refresh_token"] = f"refresh-{len(self.used)}-{len(self.good)}-{threading.get_ident()}"
            self.good.add(told["refresh_token"])
        return told


@pytest.fixture(scope="module")
def serving_provider() -> Iterator[Provider]:
    with serving_keys(ISSUER) as keys:
        yield Provider(keys)


@pytest.fixture
def provider(serving_provider: Provider) -> Iterator[Provider]:
    serving_provider.reset()
    yield serving_provider
    serving_provider.reset()


@pytest.fixture(scope="module")
def environment(serving_provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = serving_provider.place
    client = {"id": AUDIENCE, "authorize": f"{place}/authorize", "token": f"{place}/token"}
    issuer = {
        "issuer": ISSUER.url,
        "audience": AUDIENCE,
        "jwks": serving_provider.keys.url,
        "claims": {"roles": "roles", "groups": "groups", "tenant": "org"},
        "client": client,
    }
    file = identity_file(tmp_path_factory.mktemp("identity"), {"corp": issuer})
    more = {"HAI_FLOW_PUBLIC_URL": "https://flow.example.com", "HAI_FLOW_REFUSALS_PEER_MAX": "10000"}
    return {**KEYS, "HAI_FLOW_IDENTITY": str(file), **more}


@pytest.fixture(scope="module")
def strict(dsn: str, environment: dict[str, str]) -> Iterator[ServerProcess]:
    with serving(dsn, environment=environment) as process:
        yield process


@pytest.fixture(scope="module")
def lively(dsn: str, environment: dict[str, str]) -> Iterator[ServerProcess]:
    """A server that asks the provider often."""
    with serving(dsn, environment={**environment, "HAI_FLOW_SESSION_RENEW_SECONDS": "0.5"}) as process:
        yield process


def signed_in(server: ServerProcess, provider: Provider, before: str | None = None) -> str:
    """The session of a browser that Ann has signed in with."""
    begun = httpx2.get(f"{server.url}/sign-in")
    query = dict(parse_qsl(urlsplit(begun.headers["location"]).query))
    provider.nonce = query["nonce"]
    cookie = begun.headers["set-cookie"].partition(";")[0]
    had = {"Cookie": cookie if before is None else f"{cookie}; {COOKIE}={before}"}
    back = httpx2.get(f"{server.url}/sign-in/callback", params={"code": "c", "state": query["state"]}, headers=had)
    assert back.status_code == 303, back.text
    (given,) = [each for each in back.headers.get_list("set-cookie") if each.startswith(f"{COOKIE}=")]
    return given.partition(";")[0].partition("=")[2].strip('"')


def asked(server: ServerProcess, session: str) -> httpx2.Response:
    return httpx2.get(f"{server.url}/v1/session", headers={"Cookie": f"{COOKIE}={session}"}, timeout=30)


def roles(server: ServerProcess, session: str) -> list[str] | int:
    answer = asked(server, session)
    return answer.json()["roles"] if answer.status_code == 200 else answer.status_code


def change(dsn: str, session: str, assignments: str) -> None:
    """Change the session's row behind the server's back: time passes so in these tests."""
    query = f"UPDATE sessions SET {assignments} WHERE sha256 = $1"
    assert People(dsn).do(lambda connection: connection.execute(query, hash_secret(session))) == "UPDATE 1"


def row(dsn: str, session: str) -> dict[str, Any] | None:
    query = "SELECT * FROM sessions WHERE sha256 = $1"
    found = People(dsn).do(lambda connection: connection.fetchrow(query, hash_secret(session)))
    return None if found is None else dict(found)


DUE = "renew_at = now() - interval '1 second'"


def audited(server: ServerProcess, dsn: str, act: str) -> list[dict[str, Any]]:
    auditor = People(dsn).person("user:eve", roles=["auditor"])
    return httpx2.get(f"{server.url}/v1/audit", params={"act": act}, headers=auditor).json()["items"]


async def test_what_the_provider_says_now_counts(strict: ServerProcess, dsn: str, provider: Provider) -> None:
    session = signed_in(strict, provider)
    assert roles(strict, session) == ["operator"]
    provider.says["roles"] = ["viewer"]
    assert roles(strict, session) == ["operator"], "it is not due"
    change(dsn, session, DUE)
    await until(lambda: roles(strict, session) == ["viewer"])
    start = httpx2.post(
        f"{strict.url}/v1/runs/00000000-0000-0000-0000-000000000000/pause",
        headers={"Cookie": f"{COOKIE}={session}", "Origin": strict.url, "HAI-CSRF": derive_csrf(session)},
    )
    assert start.status_code == 403
    assert audited(strict, dsn, "session.changed")[0]["details"]["was"] == ["operator"]
    provider.says["org"] = "nobody's"
    change(dsn, session, DUE)
    await until(lambda: roles(strict, session) == 401)
    assert row(dsn, session) is None


async def test_another_tenant_is_another_tenant(strict: ServerProcess, dsn: str, provider: Provider) -> None:
    People(dsn).tenant("acme")
    session = signed_in(strict, provider)
    provider.says["org"] = "acme"
    change(dsn, session, DUE)
    tenant = People(dsn).tenant("acme")

    def moved() -> bool:
        found = row(dsn, session)
        assert asked(strict, session).status_code == 200
        return found is not None and found["tenant"] == tenant

    await until(moved)


FEED = {"topic": "runs"}


def watched(server: ServerProcess, session: str, meanwhile: Callable[[], object]) -> str:
    """All that a stream says until the server ends it. Nobody sends a request: the open stream has the session
    renewed."""
    headers = {"Cookie": f"{COOKIE}={session}", "Accept": "text/event-stream"}
    with httpx2.stream("GET", f"{server.url}/v1/feed", headers=headers, params=FEED, timeout=60) as stream:
        assert stream.status_code == 200
        meanwhile()
        return "".join(stream.iter_text())


def test_a_refusal_ends_the_session_and_its_streams(lively: ServerProcess, dsn: str, provider: Provider) -> None:
    session = signed_in(lively, provider)

    def leave() -> None:
        provider.good = Nothing()

    assert "auth.expired" in watched(lively, session, leave)
    assert asked(lively, session).status_code == 401
    assert row(dsn, session) is None
    assert "refuses" in audited(lively, dsn, "session.ended")[0]["details"]["reason"]


class Nothing(set[str]):
    """The tokens of somebody who has left: none is good, and none will be."""

    def add(self, element: str) -> None:
        pass


def test_a_stream_does_not_outlive_the_roles_it_was_opened_with(lively: ServerProcess, provider: Provider) -> None:
    session = signed_in(lively, provider)
    assert "auth.expired" in watched(lively, session, lambda: provider.says.update(roles=[]))
    assert roles(lively, session) == []


async def test_of_many_requests_at_once_one_renews(
    strict: ServerProcess, dsn: str, provider: Provider, environment: dict[str, str]
) -> None:
    """In two processes; the provider refuses who comes with a token that was used."""
    with serving(dsn, environment=environment) as other, ThreadPoolExecutor(16) as many:
        session = signed_in(strict, provider)
        for times in range(1, 4):
            change(dsn, session, DUE)
            await until(partial(_renewed, provider, times, partial(_press, many, (strict, other), session)))
        assert (len(provider.used), provider.reused) == (3, [])
        assert len(set(provider.used)) == 3, "each time with the token that came last"
        assert roles(strict, session) == roles(other, session) == ["operator"]


def _renewed(provider: Provider, times: int, press: Callable[[], None]) -> bool:
    press()
    return len(provider.used) >= times


def _press(many: ThreadPoolExecutor, servers: tuple[ServerProcess, ...], session: str) -> None:
    answers = list(many.map(lambda n: roles(servers[n % len(servers)], session), range(16)))
    assert answers == [["operator"]] * 16


async def test_a_provider_that_is_silent_holds_no_request_up(
    strict: ServerProcess, dsn: str, provider: Provider
) -> None:
    session, released = signed_in(strict, provider), threading.Event()

    def silent(form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        released.wait(60)
        return 200, provider.tokens()

    provider.answer = silent
    try:
        change(dsn, session, DUE)
        await until(lambda: roles(strict, session) == ["operator"] and provider.used != [])
        assert roles(strict, session) == ["operator"]
    finally:
        released.set()


FAILING: dict[str, tuple[int, dict[str, Any]]] = {
    "an error": (500, {}),
    "too much": (200, {"id_token": 7, "x": "y" * 100_000}),
    "it does not know us": (401, {"error": "invalid_client"}),
    "too often": (429, {}),
    "a token for somebody else": (200, {"id_token": ISSUER.token(aud="somebody-else")}),
    "a token of before": (200, {"id_token": ISSUER.token(exp=1)}),
}


@pytest.mark.parametrize("kind", FAILING)
async def test_a_provider_that_fails_ends_the_session_after_a_while_only(
    strict: ServerProcess, dsn: str, provider: Provider, kind: str
) -> None:
    session = signed_in(strict, provider)
    provider.answer = lambda form: (provider.good.add(form["refresh_token"]), FAILING[kind])[1]
    change(dsn, session, DUE)
    await until(lambda: roles(strict, session) == ["operator"] and provider.used != [])
    change(dsn, session, "good_until = now()")
    await until(lambda: roles(strict, session) == 503)
    assert asked(strict, session).json()["code"] == "auth.unavailable"
    provider.answer = None
    change(dsn, session, DUE)
    await until(lambda: roles(strict, session) == ["operator"])


async def test_a_token_that_came_with_an_answer_of_no_use_is_kept(
    strict: ServerProcess, dsn: str, provider: Provider
) -> None:
    """The one before it was used up by that answer."""
    session = signed_in(strict, provider)
    before = row(dsn, session)["sealed"]  # type: ignore[index]
    provider.keys.hangs = True  # a key that is not known yet can't be had
    kid = "later"
    ISSUER.add(kid, "RS256", ISSUER.keys["rsa"][1])
    try:
        provider.answer = lambda form: (200, {**provider.tokens(), "id_token": ISSUER.token(kid, **provider.says)})
        change(dsn, session, DUE)
        await until(lambda: roles(strict, session) == ["operator"] and provider.used != [])
        await until(lambda: row(dsn, session)["renew_at"] > datetime.now(UTC))  # type: ignore[index]
    finally:
        provider.keys.hangs = False
        provider.keys.released.set()
        provider.keys.released = threading.Event()
        del ISSUER.keys[kid]
    provider.answer = None
    await until(lambda: row(dsn, session)["sealed"] != before)  # type: ignore[index]  # due before, it would be used twice
    change(dsn, session, DUE)
    await until(lambda: roles(strict, session) == ["operator"] and len(provider.used) == 2)
    assert provider.reused == []


async def test_a_renewal_of_somebody_else_ends_the_session(strict: ServerProcess, dsn: str, provider: Provider) -> None:
    session = signed_in(strict, provider)
    provider.answer = lambda form: (200, provider.tokens(sub="bob"))
    change(dsn, session, DUE)
    await until(lambda: roles(strict, session) == 401)
    assert row(dsn, session) is None


async def test_a_session_that_signs_out_while_it_is_renewed_stays_ended(
    strict: ServerProcess, dsn: str, provider: Provider
) -> None:
    session, released = signed_in(strict, provider), threading.Event()
    provider.answer = lambda form: (released.wait(60), (200, provider.tokens()))[1]
    try:
        change(dsn, session, DUE)
        await until(lambda: roles(strict, session) == ["operator"] and provider.used != [])
        headers = {"Cookie": f"{COOKIE}={session}", "Origin": strict.url, "HAI-CSRF": derive_csrf(session)}
        assert httpx2.delete(f"{strict.url}/v1/session", headers=headers, timeout=30).status_code == 204
    finally:
        released.set()
    await until(lambda: len(provider.good) == 1)
    assert roles(strict, session) == 401
    assert row(dsn, session) is None


def test_without_a_refresh_token_it_ends_with_what_proved_who_it_is(
    strict: ServerProcess, dsn: str, provider: Provider
) -> None:
    provider.refreshes = False
    end = int(datetime.now(UTC).timestamp()) + 600
    provider.says["exp"] = end
    found = require(row(dsn, signed_in(strict, provider)))
    assert (found["ends_at"].timestamp(), found["renew_at"], found["sealed"]) == (end, None, None)


async def test_a_provider_silent_about_the_person_is_as_one_unreachable(
    strict: ServerProcess, dsn: str, provider: Provider
) -> None:
    end = int(datetime.now(UTC).timestamp()) + 600
    provider.says["exp"] = end
    session = signed_in(strict, provider)
    provider.answer = lambda form: (200, {"access_token": "a", "refresh_token": "r"})
    change(dsn, session, DUE)

    def forgone() -> bool:
        found = row(dsn, session)
        assert roles(strict, session) == ["operator"]
        return found is not None and found["sealed"] is None

    await until(forgone)
    found = require(row(dsn, session))
    assert (found["ends_at"].timestamp(), found["renew_at"]) == (end, None)


async def test_a_session_that_nobody_uses_ends_and_one_that_is_used_does_not(
    strict: ServerProcess, dsn: str, provider: Provider
) -> None:
    session = signed_in(strict, provider)
    change(dsn, session, "expires_at = now() + interval '1 minute'")
    assert roles(strict, session) == ["operator"]
    found = require(row(dsn, session))
    assert found["expires_at"] > datetime.now(UTC).replace(microsecond=0)
    assert (found["expires_at"] - datetime.now(UTC)).total_seconds() > 3600
    assert found["expires_at"] <= found["ends_at"]
    change(dsn, session, "expires_at = now()")
    await until(lambda: roles(strict, session) == 401)


def test_who_signs_in_anew_leaves_no_session_behind(strict: ServerProcess, dsn: str, provider: Provider) -> None:
    before = signed_in(strict, provider)
    after = signed_in(strict, provider, before)
    assert row(dsn, before) is None
    assert before != after
    assert roles(strict, after) == ["operator"]


async def test_who_has_the_database_can_t_ask_the_provider(strict: ServerProcess, dsn: str, provider: Provider) -> None:
    session = signed_in(strict, provider)
    (token,) = provider.good
    whole = People(dsn).do(
        lambda connection: connection.fetch("SELECT s::text, encode(sealed, 'escape') FROM sessions s")
    )
    assert token not in json.dumps([list(each) for each in whole])
    found = require(row(dsn, session))
    # Who can write there gives what is sealed for Ann to a session whose cookie they have.
    evil = signed_in(strict, provider)
    query = "UPDATE sessions SET sealed = $2, renew_at = now() - interval '1 second' WHERE sha256 = $1"
    People(dsn).do(lambda connection: connection.execute(query, hash_secret(evil), found["sealed"]))
    await until(lambda: roles(strict, evil) == 401)
    assert provider.used == []


def test_what_is_sealed_is_for_one_text_and_one_row() -> None:
    sealed = seal("a" * 43, hash_secret("a" * 43), b"secret")
    assert unseal("a" * 43, hash_secret("a" * 43), sealed) == b"secret"
    assert unseal("b" * 43, hash_secret("a" * 43), sealed) is None
    assert unseal("a" * 43, hash_secret("b" * 43), sealed) is None
    for changed in (sealed[:-1], b"", b"x" * 12, bytes([sealed[0] ^ 1]) + sealed[1:]):
        assert unseal("a" * 43, hash_secret("a" * 43), changed) is None
    assert seal("a" * 43, hash_secret("a" * 43), b"secret") != sealed


def test_who_signed_in_by_a_link_has_the_built_in_roles_that_there_are_now(strict: ServerProcess, dsn: str) -> None:
    token = People(dsn).do(lambda connection: sign_link_token(connection, LOCAL_TENANT, "user:local"))  # type: ignore[arg-type]
    answer = httpx2.post(f"{strict.url}/sign-in/link/{token}")
    session = answer.headers["set-cookie"].partition(";")[0].partition("=")[2]
    kept = json.dumps({"who": {"id": "user:local", "roles": ["viewer"]}, "credential": LINK})
    found = require(row(dsn, session))
    assert found["renew_at"] is None
    whole = {**json.loads(found["principal"]), **json.loads(kept)}
    change(dsn, session, f"principal = '{json.dumps(whole)}'")  # as a release with fewer roles would have written it
    assert roles(strict, session) == list(ROLES)
