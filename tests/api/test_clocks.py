"""A process whose clock differs from the database's by ten minutes: credentials end by the database's clock, as they do
in every other process."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.api.auth.sessions import sign_link_token
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.people import delegations
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.issuers import AUDIENCE, Issuer, identity_file
from tests.support.server import ServerProcess, serving
from tests.support.skewed import SkewedServer
from tests.support.waiting import wait_for

ISSUER = Issuer()
STREAM = {"Accept": "text/event-stream"}


class World:
    """The server, and the time by the clock of its database, which is `ahead` of this machine's by so many seconds."""

    def __init__(self, server: ServerProcess, dsn: str, ahead: float) -> None:
        self.people, self.url, self.ahead = People(dsn), server.url, ahead

    def in_(self, seconds: float) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead + seconds)

    def call(self, who: dict[str, str], method: str = "GET", path: str = "/v1/session", **more: Any) -> httpx2.Response:
        return httpx2.request(method, self.url + path, headers=who, timeout=30, **more)

    def verdict(self, who: dict[str, str]) -> str:
        """Whether the credential is good, or why not."""
        answer = self.call(who)
        return "good" if answer.status_code == 200 else str(answer.json()["code"])


@pytest.mark.parametrize("ahead", [600.0, -600.0])
def test_credentials_end_by_the_clock_of_the_database(skewed: SkewedServer, tmp_path: Path, ahead: float) -> None:
    (tmp_path / "keys.json").write_text(json.dumps(ISSUER.jwks))
    corp = {"issuer": ISSUER.url, "audience": AUDIENCE, "jwks_file": "keys.json", "claims": {"id": "sub"}}
    environment = {**KEYS, "HAI_FLOW_IDENTITY": str(identity_file(tmp_path, {"corp": corp}))}
    skewed.skew(ahead)
    with serving(skewed.dsn, environment=environment) as server:
        world = World(server, skewed.dsn, ahead)
        for seconds, expected in ((120, "good"), (-120, "auth.expired")):
            _, text = world.people.key(f"user:{unique('temp')}", expires_at=world.in_(seconds))
            assert world.verdict(carried(text)) == expected, f"a key that ends in {seconds} s"
            end = int(world.in_(seconds).timestamp())
            token = carried(ISSUER.token(exp=end, iat=end - 3600, nbf=end - 3600))
            assert world.verdict(token) == expected, f"an issuer's token that ends in {seconds} s"
        begins = int(world.in_(120).timestamp())
        assert world.verdict(carried(ISSUER.token(exp=begins + 3600, nbf=begins))) == "auth.invalid", "it has not begun"

        admin = world.people.person("user:adm", roles=["admin"])
        made = world.call(admin, "POST", "/v1/keys", json={"principal": "user:new", "expires_in": 120}).json()
        assert abs(datetime.fromisoformat(made["expires_at"]) - world.in_(120)) < timedelta(seconds=60)
        _, backend = world.people.key("service:shop", roles=["issuer"])
        body = {"principal": "user:page", "expires_in": 120}
        page = world.call(carried(backend), "POST", "/v1/tokens", json=body).json()
        assert world.verdict(carried(page["token"])) == "good"
        ticket = world.call(carried(page["token"]), "POST", "/v1/tickets").json()["ticket"]
        path = f"{server.url}/v1/feed?ticket={ticket}"
        with httpx2.stream("GET", path, headers=STREAM, timeout=30) as response:
            assert response.status_code == 200, "a ticket is good for half a minute"

        link = world.people.do(lambda connection: sign_link_token(connection, LOCAL_TENANT, "user:bob"))
        begun = httpx2.post(f"{server.url}/sign-in/link/{link}")
        assert begun.status_code == 303, "a link is good for ten minutes"
        session = begun.headers["set-cookie"].partition(";")[0]
        assert world.verdict({"Cookie": session}) == "good"

        boss = world.people.person("user:boss", roles=["decider"], expires_at=world.in_(3600))
        lent = {"to": "user:friend", "until": world.in_(7200).isoformat()}
        until = datetime.fromisoformat(world.call(boss, "POST", "/v1/inbox/delegations", json=lent).json()["until"])
        assert abs(until - world.in_(3600)) < timedelta(seconds=60), "it ends with the key"

        skewed.skew(ahead + 240)  # time goes on, at the database alone
        wait_for(lambda: world.verdict(carried(page["token"])) != "good")  # it is over by the database's clock
        assert world.verdict(carried(page["token"])) == world.verdict(carried(made["key"])) == "auth.expired"
        assert world.verdict({"Cookie": session}) == "good"
        assert server.log.count("clock_off") == 1


def test_delegations_are_kept_for_a_while_behind_their_end(dsn: str) -> None:
    people = People(dsn)
    query = """
    INSERT INTO delegations (id, tenant, from_id, to_id, roles, groups, since, until)
    SELECT gen_random_uuid(), $1, 'user:a', 'user:b', '{}', '{}', now() - interval '99 d', now() - d * interval '1 d'
    FROM unnest($2::int[]) AS d
    """
    people.do(lambda connection: connection.execute(query, LOCAL_TENANT, [1, 29, 31]))
    people.do(delegations.remove_old)
    assert people.do(lambda connection: connection.fetchval("SELECT count(*) FROM delegations")) == 2


def test_an_application_is_made_before_its_runtime_has_begun() -> None:
    settings = Settings(database_url="postgresql://", identity="keys")
    assert create_app(settings, Runtime("postgresql://", settings, performs=False)).state.identity is not None
