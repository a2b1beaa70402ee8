"""What a web page, a stranger or a proxy's trick can make of this server: one test for each weakness that similar
projects had, by its id."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from docs import rights_page
from hai_flow.api.permissions import sign_in_limits
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, expect, serving

WITH_LIMITS = {**KEYS, "HAI_FLOW_REFUSALS_PEER_MAX": "5", "HAI_FLOW_DECISIONS_MAX": "4"}
WRONG = {"Authorization": f"Bearer hai_{'0' * 12}_{'A' * 43}"}
GATE = """
hai: flow/v1
name: gate
version: 1
steps:
  - {id: sure, approve: {title: Sure?, from: [role:boss]}}
"""
ROUTES = [route for route in rights_page.routes_of(rights_page.application()) if route.path not in rights_page.OPEN]
GUARDED = [route for route in ROUTES if route.rights != () and "an-alias" not in route.path]


@pytest.fixture(scope="module")
def guarded(postgres_server: Server) -> Iterator[tuple[ServerProcess, People]]:
    with postgres_server.database() as dsn, serving(dsn, environment=WITH_LIMITS) as process:
        yield process, People(dsn)


class Caller(httpx2.Client):
    """A client that comes from an address of its own, as a proxy on this machine tells."""

    def __init__(self, url: str, headers: dict[str, str] | None = None, address: str | None = None) -> None:
        chance = uuid4().bytes
        address = address or f"198.18.{chance[0]}.{chance[1]}"
        super().__init__(base_url=url, headers={"X-Forwarded-For": address, **(headers or {})}, timeout=30)


@pytest.fixture
def caller(guarded: tuple[ServerProcess, People]) -> Iterator[Callable[..., Caller]]:
    with contextlib.ExitStack() as stack:
        yield lambda **how: stack.enter_context(Caller(guarded[0].url, **how))


def path_of(path: str) -> str:
    """The route's path with something in each place."""
    return "/".join(str(uuid4()) if part.startswith("{") else part for part in path.split("/"))


# --- who gets in --------------------------------------------------------------------------------------------------


def test_cve_2020_13927_nothing_is_open_by_default_once_identity_is_on(caller: Callable[..., Caller]) -> None:
    stranger = caller()
    found = {
        f"{route.method} {route.path}": stranger.request(route.method, path_of(route.path)).status_code
        for route in GUARDED
        if route.method != "WS"
    }
    assert len(found) > 30
    assert {status for status in found.values() if status != 401} == set(), found


SUFFIXES = ["/configs", "/healthz", "/..;/healthz", "/%2e%2e/healthz", ";/healthz", "?/healthz", "/.", "//"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_cve_2026_53576_no_suffix_of_a_path_opens_it(caller: Callable[..., Caller], suffix: str) -> None:
    stranger = caller()
    for path in ("/v1/runs", "/v1/audit", "/v1/workflows", f"/v1/runs/{uuid4()}"):
        assert stranger.get(path + suffix).status_code in (400, 401, 404, 405, 422), path + suffix
        assert "items" not in stranger.get(path + suffix).text


def test_cve_2026_7723_a_websocket_asks_for_a_credential_like_any_route(guarded: tuple[ServerProcess, People]) -> None:
    sockets = [route.path for route in GUARDED if route.method == "WS"]
    assert sockets
    for path in sockets:
        url = guarded[0].url.replace("http", "ws", 1) + path_of(path).replace(path_of(path).rsplit("/", 1)[1], "text")
        with pytest.raises(InvalidStatus) as refused, connect(url):
            pass
        assert refused.value.response.status_code in (401, 403)


def test_cve_2026_45707_a_request_without_credential_falls_back_to_none(
    guarded: tuple[ServerProcess, People], caller: Callable[..., Caller]
) -> None:
    key = guarded[1].person("user:ann", roles=["operator"])
    assert caller(headers=key).get("/v1/runs").status_code == 200
    without = [{}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Bearer x y"}]
    without += [
        {"X-Api-Key": "x"},
        {"HAI-Act-As": "user:ann"},
        {"Cookie": "session=1"},
        {"Authorization": "Basic YTpi"},
    ]
    assert {caller(headers=each).get("/v1/runs").status_code for each in without} <= {401, 403}


def test_cve_2026_22683_a_role_is_checked_at_the_act_not_at_its_button(
    guarded: tuple[ServerProcess, People], caller: Callable[..., Caller]
) -> None:
    viewer = caller(headers=guarded[1].person("user:vic", roles=["viewer"]))
    acts = ["pause", "resume", "stop", "terminate", "retry"]
    assert {viewer.post(f"/v1/runs/{uuid4()}/{act}").status_code for act in acts} == {403}
    assert viewer.post("/v1/workflows", content=GATE, headers=YAML).status_code == 403


def test_cve_2026_41084_an_id_in_the_body_does_not_replace_the_paths(
    guarded: tuple[ServerProcess, People], caller: Callable[..., Caller]
) -> None:
    operator = caller(headers=guarded[1].person("user:ann", roles=["operator"]))
    for extra in ({"id": "x"}, {"run_id": str(uuid4())}, {"pending_id": "x"}, {"tenant": str(uuid4())}):
        expect(operator.post(f"/v1/pendings/{uuid4()}/decide", json={"decision": "approve", **extra}), 422)
        expect(operator.post(f"/v1/runs/{uuid4()}/pause", json={"reason": "x", **extra}), 422)


# --- pages of others ----------------------------------------------------------------------------------------------

REBINDING = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "localhost:80@evil.example"]


@pytest.mark.parametrize("id", ["CVE-2025-66414", "CVE-2025-66416", "CVE-2026-34742"])
@pytest.mark.parametrize("host", REBINDING)
def test_a_name_that_was_rebound_to_this_machine_reaches_nothing(
    guarded: tuple[ServerProcess, People], caller: Callable[..., Caller], id: str, host: str
) -> None:
    headers = {**guarded[1].person("user:ann", roles=["operator"]), "Host": host}
    page = {"Origin": f"http://{host}"} if id != "CVE-2025-66416" else {}
    for method, path in (("GET", "/v1/runs"), ("POST", "/v1/runs"), ("GET", "/healthz"), ("OPTIONS", "/awp")):
        refused = caller(headers={**headers, **page}).request(method, path)
        assert refused.status_code in (400, 421), (method, path, refused.status_code)


@pytest.mark.parametrize("host", ["localhost/v1/../x", "localhost?x=", "localhost#", "local host", "a" * 300, "[::1"])
def test_cve_2026_48710_a_host_that_is_no_name_decides_nothing(caller: Callable[..., Caller], host: str) -> None:
    stranger = caller(headers={"Host": host})
    assert stranger.get("/v1/runs").status_code in (400, 401, 421)
    assert stranger.get("/v1/audit").status_code in (400, 401, 421)


def test_copilotkit_5711_and_cve_2024_8487_no_foreign_origin_gets_cors(caller: Callable[..., Caller]) -> None:
    for origin in ("https://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1:1"):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        for response in (caller(headers=asked).options("/v1/runs"), caller(headers=asked).get("/healthz")):
            assert response.status_code == 403
            assert not [name for name in response.headers if name.startswith("access-control")]


def test_every_response_tells_browsers_to_frame_run_and_guess_nothing(
    guarded: tuple[ServerProcess, People], caller: Callable[..., Caller]
) -> None:
    auditor = caller(headers=guarded[1].person("user:eve", roles=["auditor", "viewer"]))
    pages = {"/": "text/html", "/docs": "text/html"}
    for path in ("/", "/docs", "/docs/start.js", "/healthz", "/v1/audit", "/v1/runs", "/nothing", "/v1/runs/x"):
        headers = auditor.get(path, headers={"Accept": pages.get(path, "*/*")}).headers
        policy = headers.get_list("content-security-policy")
        assert len(policy) == 1, path
        assert "default-src 'none'" in policy[0]
        assert "frame-ancestors 'none'" in policy[0]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store" or path.startswith("/docs/assets")
        assert "strict-transport-security" not in headers
    over_tls = caller(headers={"X-Forwarded-Proto": "https"}).get("/healthz")
    assert over_tls.headers["strict-transport-security"].startswith("max-age=")


# --- too often ----------------------------------------------------------------------------------------------------


def test_a_guesser_of_credentials_has_to_wait_and_nobody_else(
    guarded: tuple[ServerProcess, People], caller: Callable[..., Caller]
) -> None:
    thief = caller(headers=WRONG)
    answers = [thief.get("/v1/runs") for _ in range(8)]
    assert [each.status_code for each in answers] == [401] * 5 + [429] * 3
    assert answers[-1].json()["code"] == "auth.too_often"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 12
    assert caller(headers=WRONG).get("/v1/runs").status_code == 401
    address = thief.headers["x-forwarded-for"]
    neighbour = caller(headers=guarded[1].person("user:ann", roles=["viewer"]), address=address)
    assert neighbour.get("/v1/runs").status_code == 200


def test_refused_credentials_are_recorded_but_not_each_one(
    guarded: tuple[ServerProcess, People], caller: Callable[..., Caller]
) -> None:
    thief = caller(headers=WRONG)
    for _ in range(30):
        thief.get("/v1/runs")
    auditor = caller(headers=guarded[1].person("user:eve", roles=["auditor"]))
    found = auditor.get("/v1/audit", params={"act": sign_in_limits.REFUSED, "limit": 200}).json()["items"]
    address = thief.headers["x-forwarded-for"]
    (ours,) = [each for each in found if each["details"]["address"] == address]
    assert (ours["by"], ours["details"]["code"], ours["details"]["times"]) == ("unknown", "auth.invalid", 1)
    assert WRONG["Authorization"].split()[1] not in str(found)


def test_who_answers_without_end_is_told_to_wait_before_anything_is_stored(
    guarded: tuple[ServerProcess, People], caller: Callable[..., Caller]
) -> None:
    tenant = f"t{uuid4().hex[:8]}"

    def person(id: str, *roles: str) -> Caller:
        return caller(headers=guarded[1].person(id, roles=roles, tenant=tenant))

    assert person("user:pat", "publisher").post("/v1/workflows", content=GATE, headers=YAML).status_code == 201
    operator = person("user:ann", "operator")
    for _ in range(6):
        assert operator.post("/v1/runs", json={"workflow": "gate"}).status_code == 201

    def waiting() -> list[dict[str, Any]]:
        return operator.get("/v1/pendings").json()["items"]

    boss, found = person("user:bob", "boss", "decider"), waiting()
    assert len(found) == 6
    answers = [boss.post(f"/v1/pendings/{each['id']}/decide", json={"decision": "approve"}) for each in found]
    assert [each.status_code for each in answers] == [200] * 4 + [429] * 2
    assert answers[-1].json()["code"] == "decisions.too_often"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 15
    assert {each["id"] for each in waiting()} == {found[4]["id"], found[5]["id"]}
    other = person("user:bea", "boss", "decider")
    assert other.post(f"/v1/pendings/{found[4]['id']}/decide", json={"decision": "approve"}).status_code == 200


# --- no oracle ----------------------------------------------------------------------------------------------------


def test_what_is_another_tenants_can_not_be_told_from_what_does_not_exist(
    guarded: tuple[ServerProcess, People], caller: Callable[..., Caller]
) -> None:
    def person(id: str, tenant: str, *roles: str) -> Caller:
        return caller(headers=guarded[1].person(id, roles=roles, tenant=tenant))

    mine, theirs = f"t{uuid4().hex[:8]}", f"t{uuid4().hex[:8]}"
    assert person("user:pat", theirs, "publisher").post("/v1/workflows", content=GATE, headers=YAML).status_code == 201
    owner = person("user:ann", theirs, "operator")
    run = owner.post("/v1/runs", json={"workflow": "gate"}).json()
    (pending,) = owner.get("/v1/pendings").json()["items"]
    stranger = person("user:eve", mine, "operator", "decider", "auditor", "publisher")
    absent_pending = pending["id"][:-1] + ("a" if pending["id"][-1] != "a" else "b")
    pairs = [
        ("GET", "/v1/runs/{}", run["id"], str(uuid4())),
        ("GET", "/v1/runs/{}/events", run["id"], str(uuid4())),
        ("GET", "/v1/runs/{}/snapshot", run["id"], str(uuid4())),
        ("POST", "/v1/runs/{}/pause", run["id"], str(uuid4())),
        ("POST", "/v1/runs/{}/stop", run["id"], str(uuid4())),
        ("GET", "/v1/threads/{}", run["thread_id"], str(uuid4())),
        ("GET", "/v1/pendings/{}", pending["id"], absent_pending),
        ("POST", "/v1/pendings/{}/decide", pending["id"], absent_pending),
        ("GET", "/v1/workflows/{}", "gate", "gone"),
    ]
    for method, path, foreign, absent in pairs:
        body = {"decision": "approve"} if path.endswith("decide") else None
        answers = [stranger.request(method, path.format(id), json=body) for id in (foreign, absent)]
        shown = [
            (each.status_code, each.text.replace(id, "ID"), sorted(set(each.headers) - {"date", "content-length"}))
            for each, id in zip(answers, (foreign, absent), strict=True)
        ]
        assert shown[0] == shown[1], (method, path)
        assert shown[0][0] == 404, (method, path, shown)
    assert owner.get(f"/v1/runs/{run['id']}").json()["status"] == "waiting"
