"""Sessions of browsers: signed in by a link or an identity provider, and used by pages of this server alone."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hai_flow.api.auth.sessions import COOKIE, derive_csrf, sign_link_token
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.identity.keys import create_key, revoke_key
from hai_flow.store.people import delegations
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.issuers import AUDIENCE, Issuer, KeyServer, identity_file, serving_keys
from tests.support.server import ServerProcess, expect, serving
from tests.support.waiting import until, wait_for

ISSUER = Issuer()
PUBLIC = "https://flow.example.com"


@pytest.fixture(scope="module")
def provider() -> Iterator[KeyServer]:
    with serving_keys(ISSUER) as keys:
        yield keys


@pytest.fixture(scope="module")
def strict(dsn: str, provider: KeyServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    place = provider.url.removesuffix("/keys")
    client = {"id": AUDIENCE, "authorize": f"{place}/authorize", "token": f"{place}/token"}
    issuer = {
        "issuer": ISSUER.url,
        "audience": AUDIENCE,
        "jwks": provider.url,
        "claims": {"roles": "roles", "accounts": {"chat": "chat.id"}},
        "client": client,
    }
    file = identity_file(tmp_path_factory.mktemp("identity"), {"corp": issuer})
    more = {"HAI_FLOW_IDENTITY": str(file), "HAI_FLOW_PUBLIC_URL": PUBLIC, "HAI_FLOW_REFUSALS_PEER_MAX": "10000"}
    with serving(dsn, environment={**KEYS, **more}) as process:
        yield process


def said(response: httpx2.Response) -> tuple[int, str]:
    return (response.status_code, response.json()["code"] if response.status_code >= 400 else "")


def link(dsn: str) -> str:
    return "/sign-in/link/" + People(dsn).do(lambda connection: sign_link_token(connection, LOCAL_TENANT, "user:local"))  # type: ignore[arg-type]


def cookie_of(response: httpx2.Response, name: str = COOKIE) -> str:
    (header,) = [each for each in response.headers.get_list("set-cookie") if each.startswith(f"{name}=")]
    assert {"HttpOnly", "Secure", "Path=/", "SameSite=lax"} <= {part.strip() for part in header.split(";")}
    assert "domain" not in header.lower()
    return header.partition(";")[0].partition("=")[2].strip('"')


def signed_in(strict: ServerProcess, dsn: str) -> str:
    begun = httpx2.post(strict.url + link(dsn))
    assert (begun.status_code, begun.headers["location"]) == (303, "/console/")
    return cookie_of(begun)


def browser(strict: ServerProcess, session: str, **headers: str) -> dict[str, str]:
    """The headers of a request that a page of ours makes."""
    return {
        "Cookie": f"{COOKIE}={session}",
        "Origin": strict.url,
        "Sec-Fetch-Site": "same-origin",
        "HAI-CSRF": derive_csrf(session),
        **headers,
    }


def start(strict: ServerProcess, headers: dict[str, str]) -> httpx2.Response:
    return httpx2.post(f"{strict.url}/v1/runs", json={"workflow": "chat"}, headers=headers)


def test_a_link_signs_in_once_and_opening_it_signs_nobody_in(strict: ServerProcess, dsn: str) -> None:
    path = link(dsn)
    for _ in range(3):  # a program that looks at links
        shown = expect(httpx2.get(strict.url + path), 200)
        assert "set-cookie" not in shown.headers
        assert "form-action 'self'" in shown.headers["content-security-policy"]
    # A browser tells no origin of a form whose page tells no referrer.
    form = {"Origin": "null", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}
    for wrong in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Mode": "cors"}):
        assert said(httpx2.post(strict.url + path, headers={**form, **wrong})) == (403, "origin_refused")
    taken = expect(httpx2.post(strict.url + path, headers=form), 303)
    assert "access-control-allow-origin" not in taken.headers
    assert said(httpx2.post(strict.url + path)) == (401, "auth.invalid")
    assert said(httpx2.post(f"{strict.url}/sign-in/link/x")) == (401, "auth.invalid")
    ticket = httpx2.post(f"{strict.url}/v1/tickets", headers=People(dsn).person("user:ann")).json()["ticket"]
    assert said(httpx2.post(f"{strict.url}/sign-in/link/{ticket}")) == (401, "auth.invalid")
    other = httpx2.post(strict.url + link(dsn), headers={"Origin": "https://evil.example"})
    assert said(other) == (403, "origin_refused")


def test_a_sign_in_is_in_the_audit(strict: ServerProcess, dsn: str) -> None:
    signed_in(strict, dsn)
    auditor = People(dsn).person("user:eve", roles=["auditor"])
    items = httpx2.get(f"{strict.url}/v1/audit", params={"act": "session.begun"}, headers=auditor).json()["items"]
    assert items[0]["act"] == "session.begun"
    assert "user:local" in json.dumps(items[0])


def test_a_page_of_ours_uses_the_session(strict: ServerProcess, dsn: str) -> None:
    session = signed_in(strict, dsn)
    told = httpx2.get(f"{strict.url}/v1/session", headers={"Cookie": f"{COOKIE}={session}"}).json()
    assert (told["principal"], told["way"], told["csrf"]) == ("user:local", "session", derive_csrf(session))
    assert start(strict, browser(strict, session)).json()["started_by"] == "user:local"


CROSS = {
    "no origin": ({"Origin": ""}, (403, "csrf.origin")),
    "another origin": ({"Origin": "https://evil.example"}, (403, "origin_refused")),
    "a page that may be framed": ({"Origin": "null"}, (403, "origin_refused")),
    "another port of ours": ({"Origin": "http://localhost:1"}, (403, "origin_refused")),
    "the same site": ({"Sec-Fetch-Site": "same-site"}, (403, "csrf.origin")),
    "another site": ({"Sec-Fetch-Site": "cross-site"}, (403, "csrf.origin")),
    "no word": ({"HAI-CSRF": ""}, (403, "csrf.missing")),
    "another word": ({"HAI-CSRF": "A" * 43}, (403, "csrf.missing")),
}


@pytest.mark.parametrize("kind", CROSS)
def test_a_page_of_another_site_does_not(strict: ServerProcess, dsn: str, kind: str) -> None:
    changed, refusal = CROSS[kind]
    headers = {name: value for name, value in browser(strict, signed_in(strict, dsn), **changed).items() if value}
    assert said(start(strict, headers)) == refusal


def test_a_socket_is_opened_by_a_page_of_ours_alone(strict: ServerProcess, dsn: str) -> None:
    session = signed_in(strict, dsn)
    address, cookie = strict.url.replace("http", "ws", 1) + "/api/aui/ws/interactive", f"{COOKIE}={session}"
    with pytest.raises(InvalidStatus) as refusal, connect(address, additional_headers={"Cookie": cookie}, proxy=None):
        pass
    assert refusal.value.response.status_code == 403
    with connect(address, additional_headers={"Cookie": cookie, "Origin": strict.url}, proxy=None):
        pass


async def test_signing_out_ends_the_session(strict: ServerProcess, dsn: str) -> None:
    session, other = signed_in(strict, dsn), signed_in(strict, dsn)
    assert said(httpx2.delete(f"{strict.url}/v1/session", headers={"Cookie": f"{COOKIE}={session}"}))[0] == 403
    expect(httpx2.delete(f"{strict.url}/v1/session", headers=browser(strict, session)), 204)
    assert said(start(strict, browser(strict, session))) == (401, "auth.expired")
    assert start(strict, browser(strict, other)).status_code == 201
    People(dsn).do(lambda connection: connection.execute("UPDATE sessions SET expires_at = now()"))
    await until(lambda: start(strict, browser(strict, other)).status_code == 401)


@pytest.mark.parametrize("cookie", ["x", "", "A" * 43, "A" * 44, "A" * 5000])
def test_a_cookie_that_is_no_session_is_refused(strict: ServerProcess, cookie: str) -> None:
    headers = browser(strict, "x", Cookie=f"{COOKIE}={cookie}")
    assert httpx2.get(f"{strict.url}/v1/runs", headers=headers).status_code == 401


def test_two_sessions_are_none_and_a_bearer_goes_before(strict: ServerProcess, dsn: str) -> None:
    one, two = signed_in(strict, dsn), signed_in(strict, dsn)
    both = {"Cookie": f"{COOKIE}={one}; {COOKIE}={two}"}
    assert said(httpx2.get(f"{strict.url}/v1/runs", headers=both)) == (400, "credential_twice")
    ann = People(dsn).person("user:ann")
    told = httpx2.get(f"{strict.url}/v1/session", headers={**ann, "Cookie": f"{COOKIE}={one}"}).json()
    assert (told["principal"], told["csrf"]) == ("user:ann", None)
    assert said(httpx2.get(f"{strict.url}/v1/runs", headers=carried(one))) == (401, "auth.invalid")


# --- by an identity provider --------------------------------------------------------------------------------------


def begun(strict: ServerProcess, return_to: str = "/docs") -> tuple[dict[str, str], str]:
    """What the provider is asked, and the cookie of the browser that asks."""
    answer = expect(httpx2.get(f"{strict.url}/sign-in", params={"return_to": return_to}), 302)
    query = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    return query, cookie_of(answer, "__Host-hai_sign_in")


def back(strict: ServerProcess, cookie: str, **query: str) -> httpx2.Response:
    headers = {"Cookie": f"__Host-hai_sign_in={cookie}"}
    return httpx2.get(f"{strict.url}/sign-in/callback", params=query, headers=headers)


def answering(provider: KeyServer, asked: dict[str, str], **claims: Any) -> None:
    """Let the provider give its token to who proves to have asked for it."""

    def exchange(form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        proof = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        sound = proof == asked["code_challenge"] and form["redirect_uri"] == f"{PUBLIC}/sign-in/callback"
        if not sound or form.get("code") != "c0de":
            return 400, {"error": "invalid_grant"}
        says: dict[str, Any] = {"nonce": asked["nonce"], "roles": ["operator"], **claims}
        return 200, {"id_token": ISSUER.token(**says)}

    provider.exchange = exchange


def test_a_provider_signs_a_browser_in(strict: ServerProcess, provider: KeyServer) -> None:
    asked, cookie = begun(strict)
    assert (asked["code_challenge_method"], asked["response_type"], asked["client_id"]) == ("S256", "code", AUDIENCE)
    answering(provider, asked)
    done = back(strict, cookie, code="c0de", state=asked["state"])
    assert (done.status_code, done.headers["location"]) == (303, "/docs")
    session = cookie_of(done)
    told = httpx2.get(f"{strict.url}/v1/session", headers={"Cookie": f"{COOKIE}={session}"}).json()
    assert (told["principal"], told["roles"]) == ("user:ann", ["operator"])


def test_an_account_that_the_provider_names_is_the_persons_for_a_session(
    strict: ServerProcess, provider: KeyServer, dsn: str
) -> None:
    key = People(dsn).person("user:ann", roles=["requester", "decider"])
    for number in (1, 2):  # a second sign-in takes the account over
        asked, cookie = begun(strict)
        answering(provider, asked, roles=["decider", "boss"], chat={"id": "U0ANN"})
        session = cookie_of(back(strict, cookie, code="c0de", state=asked["state"]))
        headers = {"Cookie": f"{COOKIE}={session}"}
        (account,) = httpx2.get(f"{strict.url}/v1/inbox/accounts", headers=headers).json()["items"]
        assert (account["channel"], account["account"]) == ("chat", "U0ANN"), number
    assert httpx2.delete(f"{strict.url}/v1/session", headers=browser(strict, session)).status_code == 204
    assert httpx2.get(f"{strict.url}/v1/inbox/accounts", headers=key).json() == {"items": []}


def test_a_sign_in_that_was_tampered_with_is_not_finished(strict: ServerProcess, provider: KeyServer) -> None:
    asked, cookie = begun(strict)
    other, foreign = begun(strict)
    answering(provider, asked)
    for refused in (
        back(strict, cookie, code="c0de", state=other["state"]),  # another's state
        back(strict, foreign, code="c0de", state=asked["state"]),  # in another's browser
        back(strict, foreign, code="c0de", state=other["state"]),  # another's code
        back(strict, "", code="c0de", state=asked["state"]),
        back(strict, "x", code="c0de", state=asked["state"]),
        back(strict, cookie, code="c0de"),
        back(strict, cookie, code="wrong", state=asked["state"]),
        back(strict, cookie, state=asked["state"]),
    ):
        assert said(refused) == (401, "auth.invalid")
        assert COOKIE not in str(refused.headers)
    for claims, code in (
        ({"nonce": "x"}, "auth.invalid"),
        ({"nonce": None}, "auth.invalid"),
        ({"aud": "somebody-else"}, "auth.audience"),
        ({"iss": "https://evil.example"}, "auth.invalid"),
        ({"exp": 1}, "auth.expired"),
    ):
        answering(provider, asked, **claims)
        assert said(back(strict, cookie, code="c0de", state=asked["state"])) == (401, code), claims
    provider.exchange = lambda form: (200, {"id_token": 7})
    assert said(back(strict, cookie, code="c0de", state=asked["state"])) == (401, "auth.invalid")
    provider.exchange = lambda form: (200, {"id_token": "x" * 100_000})
    assert said(back(strict, cookie, code="c0de", state=asked["state"])) == (503, "auth.unavailable")


@pytest.mark.parametrize(
    "return_to", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\r\nX: y", ""]
)
def test_a_sign_in_leads_to_no_other_place(strict: ServerProcess, provider: KeyServer, return_to: str) -> None:
    asked, cookie = begun(strict, return_to)
    answering(provider, asked)
    assert back(strict, cookie, code="c0de", state=asked["state"]).headers["location"] == "/"


def test_the_database_has_no_session(strict: ServerProcess, dsn: str) -> None:
    session = signed_in(strict, dsn)
    rows = People(dsn).do(lambda connection: connection.fetch("SELECT s::text FROM sessions s"))
    assert session not in json.dumps([str(row) for row in rows])


def test_sign_ins_that_are_refused_and_sign_outs_are_in_the_audit(
    strict: ServerProcess, dsn: str, provider: KeyServer
) -> None:
    asked, cookie = begun(strict)
    answering(provider, asked, aud="somebody-else")
    elsewhere = {"Cookie": f"__Host-hai_sign_in={cookie}", "X-Forwarded-For": "192.0.2.77"}
    query = {"code": "c0de", "state": asked["state"]}
    assert httpx2.get(f"{strict.url}/sign-in/callback", params=query, headers=elsewhere).status_code == 401
    session = signed_in(strict, dsn)
    assert httpx2.delete(f"{strict.url}/v1/session", headers=browser(strict, session)).status_code == 204
    auditor = People(dsn).person("user:eve", roles=["auditor"])

    def recorded(act: str) -> list[dict[str, Any]]:
        return httpx2.get(f"{strict.url}/v1/audit", params={"act": act}, headers=auditor).json()["items"]

    assert "/sign-in/callback" in {each["details"]["via"] for each in recorded("sign_in.refused")}
    assert recorded("session.ended")[0]["by"] == "user:local"


# --- several providers ------------------------------------------------------------------------------------------------

EVIL = Issuer("https://evil.example.com")


@pytest.fixture(scope="module")
def evil() -> Iterator[KeyServer]:
    with serving_keys(EVIL) as keys:
        yield keys


@pytest.fixture(scope="module")
def choosing(
    dsn: str, provider: KeyServer, evil: KeyServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server with two providers at which browsers sign in."""
    issuers = {}
    for name, issuer, keys in (("corp", ISSUER, provider), ("other", EVIL, evil)):
        place = keys.url.removesuffix("/keys")
        client = {"id": AUDIENCE, "authorize": f"{place}/authorize", "token": f"{place}/token"}
        told = {"issuer": issuer.url, "audience": AUDIENCE, "jwks": keys.url, "prefix": f"{name}-", "client": client}
        issuers[name] = told
    file = identity_file(tmp_path_factory.mktemp("several"), issuers)
    more = {"HAI_FLOW_IDENTITY": str(file), "HAI_FLOW_PUBLIC_URL": PUBLIC, "HAI_FLOW_REFUSALS_PEER_MAX": "10000"}
    with serving(dsn, environment={**KEYS, **more}) as process:
        yield process


def asked_at(server: ServerProcess, issuer: str) -> tuple[dict[str, str], str]:
    answer = httpx2.get(f"{server.url}/sign-in", params={"issuer": issuer, "return_to": "/docs"})
    query = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    return query, cookie_of(answer, "__Host-hai_sign_in")


def returned(server: ServerProcess, path: str, cookie: str, **query: str) -> httpx2.Response:
    headers = {"Cookie": f"__Host-hai_sign_in={cookie}"}
    return httpx2.get(f"{server.url}/sign-in/callback{path}", params=query, headers=headers)


def giving(keys: KeyServer, issuer: Issuer, asked: dict[str, str]) -> list[dict[str, str]]:
    """Let the provider give its token for any code; the forms that it was sent."""
    forms: list[dict[str, str]] = []

    def exchange(form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        forms.append(form)
        return 200, {"id_token": issuer.token(nonce=asked["nonce"])}

    keys.exchange = exchange
    return forms


def test_of_several_providers_one_is_chosen_on_a_page(choosing: ServerProcess, evil: KeyServer) -> None:
    page = expect(httpx2.get(f"{choosing.url}/sign-in", params={"return_to": '/"><script>'}), 200)
    assert [name for name in ("corp", "other") if f'value="{name}"' in page.text] == ["corp", "other"]
    assert "<script>" not in page.text
    names = httpx2.get(f"{choosing.url}/sign-in", headers={"Accept": "application/json"})
    assert names.json() == {"issuers": ["corp", "other"]}
    assert said(httpx2.get(f"{choosing.url}/sign-in", params={"issuer": "x"})) == (404, "sign_in_none")
    asked, cookie = asked_at(choosing, "other")
    assert asked["redirect_uri"] == f"{PUBLIC}/sign-in/callback/other"
    giving(evil, EVIL, asked)
    done = returned(choosing, "/other", cookie, code="c", state=asked["state"], iss=EVIL.url)
    assert (done.status_code, done.headers["location"]) == (303, "/docs")
    told = httpx2.get(f"{choosing.url}/v1/session", headers={"Cookie": f"{COOKIE}={cookie_of(done)}"}).json()
    assert told["principal"] == "user:other-ann"


@pytest.mark.parametrize("path", ["", "/other"])
def test_a_code_of_one_provider_is_not_taken_to_another(
    choosing: ServerProcess, provider: KeyServer, evil: KeyServer, path: str
) -> None:
    """The mix-up attack: a browser that was sent to one comes back with what the other gave."""
    began, came = ("other", ISSUER) if path == "" else ("corp", EVIL)
    asked, cookie = asked_at(choosing, began)
    forms = [giving(keys, issuer, asked) for keys, issuer in ((provider, ISSUER), (evil, EVIL))]
    for iss in ({}, {"iss": came.url}, {"iss": ISSUER.url}, {"iss": EVIL.url}, {"iss": ""}):
        refused = returned(choosing, path, cookie, code="c", state=asked["state"], **iss)
        assert said(refused) == (401, "auth.invalid"), iss
    own = "" if began == "corp" else "/other"
    assert said(returned(choosing, own, cookie, code="c", state=asked["state"], iss=came.url)) == (401, "auth.invalid")
    assert forms == [[], []], "nobody was sent a code"


def delegations_of(dsn: str, person: str) -> list[delegations.Delegation]:
    return People(dsn).do(lambda connection: delegations.list_of_person(connection, LOCAL_TENANT, [person]))


def test_a_key_begins_a_session_that_ends_with_it(strict: ServerProcess, dsn: str) -> None:
    own = {"Origin": strict.url, "Sec-Fetch-Site": "same-origin"}
    key, text = People(dsn).do(
        lambda connection: create_key(
            connection, LOCAL_TENANT, "user:kay", name="", roles=["decider"], created_by="service:cli"
        )
    )
    place = f"{strict.url}/sign-in/key"
    for wrong in ({}, {**own, "Origin": "https://evil.example"}, {**own, "Sec-Fetch-Site": "cross-site"}):
        assert httpx2.post(place, json={"key": text}, headers=wrong).status_code == 403
    assert said(httpx2.post(place, json={"key": f"{text}x"}, headers=own)) == (401, "auth.invalid")
    assert said(httpx2.post(place, json={}, headers=own)) == (400, "request.invalid")
    begun = expect(httpx2.post(place, json={"key": f" {text}\n"}, headers=own), 204)
    session = cookie_of(begun)
    found = httpx2.get(f"{strict.url}/v1/session", headers=browser(strict, session)).json()
    assert (found["principal"], found["roles"], found["way"]) == ("user:kay", ["decider"], "session")
    People(dsn).do(  # another key, which stays good
        lambda connection: create_key(connection, LOCAL_TENANT, "user:kay", name="", created_by="service:cli")
    )
    body = {"to": "user:lea", "until": (datetime.now(UTC) + timedelta(days=1)).isoformat()}
    assert (
        httpx2.post(f"{strict.url}/v1/inbox/delegations", json=body, headers=browser(strict, session)).status_code
        == 201
    )
    assert len(delegations_of(dsn, "user:kay")) == 1
    People(dsn).do(lambda connection: revoke_key(connection, LOCAL_TENANT, key.id))
    asyncio.run(
        until(lambda: httpx2.get(f"{strict.url}/v1/session", headers=browser(strict, session)).status_code == 401)
    )
    assert delegations_of(dsn, "user:kay") == [], "a delegation ends with the key that it rests on"


@pytest.mark.parametrize("program", ["agent:shopper", "service:ci"])
def test_the_key_of_a_program_begins_no_session(strict: ServerProcess, dsn: str, program: str) -> None:
    own = {"Origin": strict.url, "Sec-Fetch-Site": "same-origin"}
    _, text = People(dsn).do(
        lambda connection: create_key(
            connection, LOCAL_TENANT, program, name="", roles=["decider"], created_by="service:cli"
        )
    )
    refused = httpx2.post(f"{strict.url}/sign-in/key", json={"key": text}, headers=own)
    assert said(refused) == (403, "sign_in.program")
    assert "set-cookie" not in refused.headers


def test_a_link_of_a_person_gives_the_roles_that_were_said_and_no_others(strict: ServerProcess, dsn: str) -> None:
    token = People(dsn).do(
        lambda connection: sign_link_token(connection, LOCAL_TENANT, "user:ann", ["decider"], ["finance"])
    )
    session = cookie_of(httpx2.post(f"{strict.url}/sign-in/link/{token}"))
    found = httpx2.get(f"{strict.url}/v1/session", headers=browser(strict, session)).json()
    assert (found["principal"], found["roles"], found["groups"]) == ("user:ann", ["decider"], ["finance"])
    assert "manage_keys" not in found["rights"]


@pytest.mark.parametrize("is_used", [True, False])
@pytest.mark.parametrize("roles", [["decider"], None])
def test_a_link_and_its_session_end_with_the_last_key_of_their_person(
    strict: ServerProcess, dsn: str, roles: list[str] | None, is_used: bool
) -> None:
    people, person = People(dsn), f"user:{unique('leaver')}"
    first, last = (people.key(person, roles=["decider"])[0] for _ in range(2))

    def make_link() -> str:
        return "/sign-in/link/" + people.do(lambda c: sign_link_token(c, LOCAL_TENANT, person, roles))  # type: ignore[arg-type]

    def look(text: str) -> int:
        return httpx2.get(f"{strict.url}/v1/session", headers={"Cookie": f"{COOKIE}={text}"}).status_code

    link = make_link()
    people.revoke(first)
    text = cookie_of(httpx2.post(strict.url + link)) if is_used else ""
    assert not is_used or look(text) == 200, "another key is good"
    people.revoke(last)
    if is_used:
        wait_for(lambda: look(text) == 401)
    else:
        assert httpx2.post(strict.url + link).status_code == 401
    assert look(cookie_of(httpx2.post(strict.url + make_link()))) == 200, "an operator has let them in again"
