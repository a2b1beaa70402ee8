"""Roles and rights: who has no built-in role is a requester, an admin reads and decides nothing by that alone."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest
from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIWebSocketRoute
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from docs import rights_page
from hai_flow.api.app import build_common_routes
from hai_flow.api.permissions import limited_credentials
from hai_flow.api.permissions.principals import NOBODY, Principal, reject_missing_right
from hai_flow.api.permissions.rights import ROLES, Right, rights_of
from hai_flow.engine import commands as c
from tests.support.examples import sample
from tests.support.identities import People
from tests.support.server import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
ROUTES = [route for route in rights_page.routes() if route.path not in rights_page.OPEN]
REQUESTS = [route for route in ROUTES if route.method != "WS" and "an-alias" not in route.path]


@pytest.mark.slow
def test_an_operation_declares_the_development_header_once() -> None:
    application = rights_page.application()
    application.openapi()
    document = application.openapi()  # also where it was asked for before
    open_paths = {
        (route.method, route.path.replace(":path}", "}")) for route in rights_page.routes() if not route.rights
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            names = [parameter["name"] for parameter in operation.get("parameters", ())]
            asks = (method.upper(), path) not in open_paths
            assert names.count("HAI-Act-As") == asks, (method, path)


def test_an_applications_routes_are_complete_before_the_first_request() -> None:
    assert {type(route) for route in build_common_routes()} >= {APIWebSocketRoute}
    assert all(isinstance(route, APIRoute | APIWebSocketRoute) for route in build_common_routes())


def test_no_dependency_of_a_route_takes_a_thread_for_what_does_not_wait() -> None:
    def within(dependant: Dependant) -> Iterator[Dependant]:
        yield dependant
        for each in dependant.dependencies:
            yield from within(each)

    routes = [route for route in build_common_routes() if isinstance(route, APIRoute | APIWebSocketRoute)]
    calls = {each.call for route in routes for each in within(route.dependant)}
    names = {
        name
        for name, call in {f"{call.__module__}.{call.__qualname__}": call for call in calls if call}.items()
        if not inspect.iscoroutinefunction(call)
    }
    assert names == set()


def test_who_has_no_built_in_role_is_a_requester() -> None:
    assert rights_of([]) == rights_of(["controller"]) == ROLES["requester"]
    assert rights_of(["controller", "viewer"]) == ROLES["viewer"]
    assert rights_of(["requester", "auditor"]) == ROLES["requester"] | ROLES["auditor"]


@pytest.mark.parametrize("role", ["admin", "auditor", "author", "publisher"])
def test_a_role_that_is_not_about_runs_shows_and_decides_none(role: str) -> None:
    about_runs = {Right.SEE_OWN, Right.SEE_RUNS, Right.ANSWER, Right.DECIDE, Right.CONTROL_RUNS, Right.START_RUNS}
    assert ROLES[role].isdisjoint(about_runs)


def test_every_right_is_of_some_role() -> None:
    assert frozenset().union(*ROLES.values()) == set(Right)


def test_without_identity_everybody_may_do_everything_and_nobody_nothing() -> None:
    local = Principal(c.LOCAL_PRINCIPAL, uuid4())
    assert all(local.may(right) for right in Right)
    assert not any(NOBODY.may(right) for right in Right)
    viewer = Principal(c.Principal("user:ann", ("viewer",)), uuid4(), way="key")
    assert viewer.may(Right.SEE_RUNS)
    assert not viewer.may(Right.DECIDE)


def test_every_route_names_its_rights_or_says_that_everybody_may_call() -> None:
    assert [f"{route.method} {route.path}" for route in ROUTES if route.rights is None] == []


def test_every_route_says_what_a_limited_credential_may_do() -> None:
    silent = [f"{route.method} {route.path}" for route in REQUESTS if route.limited is None]
    assert silent == []
    there = {f"{route.method} {route.path}" for route in ROUTES}
    assert limited_credentials.ROUTES.keys() - there == set(), "it says something of routes that there are not"


def test_a_route_that_says_nothing_is_refused_to_a_limited_credential() -> None:
    assert not limited_credentials.opens("GET", "/v1/brand-new")


def test_a_route_that_names_none_is_found() -> None:
    app, forgotten = rights_page.application(), APIRouter()

    @forgotten.get("/forgotten")
    async def forget() -> None: ...

    app.include_router(forgotten)
    assert [route.path for route in rights_page.routes_of(app) if route.rights is None] == ["/forgotten"]


def test_few_routes_are_open_to_everybody() -> None:
    assert {route.path for route in ROUTES if route.rights == ()} == {
        "/",
        "/docs",
        "/docs/start.js",
        "/.well-known/agent-card.json",  # of the server alone: it names no workflow
        "/.well-known/jwks.json",
        "/healthz",
        "/readyz",
        "/api/aui/ping",
        "/api/aui/ws/ping",
        "/sign-in",
        "/sign-in/callback",
        "/sign-in/callback/{issuer_name}",
        "/sign-in/key",  # this one asks for a key in its body
        "/sign-in/link/{link}",  # this one asks for a proof of its own, as do the next ones
        "/v1/hooks/{path:path}",  # these two ask for proofs of their own
        "/callbacks/{token}",
        "/links/{token}",
        "/chat/{address:path}",  # and this one for that of a platform
        "/.well-known/oauth-protected-resource/mcp",  # the issuers, for clients that have no token yet
    }


def test_every_route_that_a_page_names_exists() -> None:
    """A page may name the beginning of a path, or a file of the console."""
    known = [
        (each.method, each.path, re.compile(re.sub(r"{[^}]*}", "[^ ]+", each.path))) for each in rights_page.routes()
    ]
    absent: list[str] = []
    for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/protocols").glob("*.md")]:
        for method, path in re.findall(r"\b(GET|POST|PUT|PATCH|DELETE) (/[^\s`?\",'\\]+)", page.read_text()):
            path = path.removesuffix("...").rstrip("/.,;:)")
            if not path.startswith("/console/") and not any(
                method == each and (full.startswith(path) or pattern.fullmatch(path)) for each, full, pattern in known
            ):
                absent.append(f"{page.name}: {method} {path}")
    assert absent == []


def test_the_page_of_routes_and_roles_is_current() -> None:
    assert (ROOT / "docs" / "rights.md").read_text() == rights_page.page() + "\n"


def answered(client: httpx2.Client, route: rights_page.Route, headers: dict[str, str]) -> tuple[int, str]:
    """The status and code that a request of no sense gets."""
    path = route.path.replace(":path}", "}").format_map(Anything())
    with client.stream(route.method, path, headers=headers) as response:
        if not response.headers.get("content-type", "").startswith("application/problem+json"):
            return response.status_code, ""
        response.read()
        return response.status_code, response.json()["code"]


class Anything(dict[str, str]):
    """A path's parameters."""

    def __missing__(self, name: str) -> str:
        return "x"


def test_who_has_no_credential_comes_to_nothing_but_what_is_open(strict: ServerProcess) -> None:
    with httpx2.Client(base_url=strict.url, timeout=30) as client:
        for route in REQUESTS:
            status, code = answered(client, route, {})
            assert ((status, code) == (401, "auth.missing")) is (route.rights != ()), (route, status, code)
            assert status < 500, route


@pytest.mark.parametrize("role", ROLES)
def test_a_role_opens_the_routes_that_the_page_says(strict: ServerProcess, dsn: str, role: str) -> None:
    headers = People(dsn).person(f"user:{role}", roles=[role])
    with httpx2.Client(base_url=strict.url, timeout=30) as client:
        for route in sample(REQUESTS, 20, role):
            status, code = answered(client, route, headers)
            assert status != 401 or route.rights == (), route
            assert ((status, code) == (403, "right_missing")) is not route.opens_to(role), (route, status, code)


def test_a_websocket_is_behind_the_same_door(strict: ServerProcess, dsn: str) -> None:
    address = strict.url.replace("http", "ws", 1) + "/api/aui/ws/interactive"
    for headers, status in (({}, 401), (People(dsn).person("user:ann", roles=["admin"]), 403)):
        with pytest.raises(InvalidStatus) as refusal, connect(address, additional_headers=headers, proxy=None):
            pass
        assert refusal.value.response.status_code == status
    with connect(address, additional_headers=People(dsn).person("user:ann"), proxy=None):
        pass


def test_a_viewer_reads_over_a_dialect_and_says_nothing(strict: ServerProcess, dsn: str) -> None:
    said = {"id": "m1", "role": "user", "content": "go"}
    body = {"threadId": "t-viewer", "runId": "r1", "messages": [said], "tools": []}
    for role, status in (("viewer", 403), ("decider", 403), ("requester", 200)):
        headers = People(dsn).person(f"user:{role}", roles=[role])
        answer = httpx2.post(f"{strict.url}/workflows/chat/awp", json=body, headers=headers, timeout=30)
        assert answer.status_code == status, role


def test_a_body_is_not_read_for_who_has_no_credential(strict: ServerProcess) -> None:
    for path in ("/v1/runs", "/awp", "/v1/signals", "/process"):
        headers = {"Content-Type": "application/json"}
        answer = httpx2.post(strict.url + path, content=b"no JSON", headers=headers, timeout=30)
        assert (answer.status_code, answer.json()["code"]) == (401, "auth.missing"), path


def test_a_refusal_names_the_roles_that_would_do() -> None:
    assert reject_missing_right((Right.SEE_INBOX,)).detail.endswith(
        "which your roles do not have; the role decider does."
    )
    assert reject_missing_right((Right.PUBLISH, Right.CHECK_WORKFLOWS)).detail.endswith(
        "; the roles author, publisher do."
    )
