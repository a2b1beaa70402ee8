"""How people decide, over REST and the command: for auditors, and each person's own for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from hai_flow.cli import app
from tests.api.test_audit import House, decided, opened
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import expect, serving


@pytest.fixture(scope="module")
def house(postgres_server: Server) -> Iterator[House]:
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment=KEYS) as process,
        House((process, People(dsn))) as made,
    ):
        decided(made)
        opened(made)
        yield made


def read(client: httpx2.Client, path: str = "", **query: Any) -> dict[str, Any]:
    return expect(client.get(f"/v1/oversight{path}", params=query), 200).json()


def test_an_auditor_reads_figures_that_name_nobody_and_that_is_recorded(house: House) -> None:
    auditor = house.as_("user:eve", "auditor")
    answer = read(auditor, since="1d", under=3600)
    (item,) = answer["items"]
    counts = {name: item[name] for name in ("questions", "open", "approved", "refused", "expired", "by_rule", "edited")}
    assert counts == {"questions": 2, "open": 1, "approved": 1, "refused": 0, "expired": 0, "by_rule": 0, "edited": 0}
    assert (item["name"], item["votes"], item["quick"], answer["complete"]) == ("ask", 1, 1, True)
    assert 0 < item["median_seconds"] <= item["p90_seconds"] < 600
    assert [each["name"] for each in read(auditor, by="tool")["items"]] == [None]
    assert "user:" not in str(answer)
    acts = auditor.get("/v1/audit", params={"act": "oversight.read"}).json()["items"]
    assert (acts[-1]["by"], acts[-1]["details"]["since"]) == ("user:eve", "1d")


def test_a_persons_figures_are_for_that_person_and_for_auditors(house: House) -> None:
    boss, other = house.as_("user:bob", "boss", "decider"), house.as_("user:cat", "boss", "decider")
    own = read(boss, "/me")
    assert (own["questions"], own["approved"], own["votes"]) == (1, 1, 1)
    assert read(other, "/me")["questions"] == 0
    auditor = house.as_("user:eve", "auditor")
    assert read(auditor, "/people/user:bob") == own
    (act, *_) = auditor.get("/v1/audit", params={"act": "oversight.read"}).json()["items"]
    assert act["details"]["person"] == "user:bob"
    assert other.get("/v1/oversight/people/user:bob").status_code == 403
    assert auditor.get("/v1/oversight/me").status_code == 403


@pytest.mark.parametrize("role", ["viewer", "operator", "decider", "admin", "publisher"])
def test_nobody_but_auditors_reads_the_figures_of_all(house: House, role: str) -> None:
    client = house.as_("user:ann", role)
    assert [client.get(f"/v1/oversight{path}").status_code for path in ("", "/people/user:ann")] == [403, 403]


@pytest.mark.parametrize("query", ["since=soon", "since=0d", "by=person", "under=0", "under=3601"])
def test_another_time_or_group_is_refused(house: House, query: str) -> None:
    assert house.as_("user:eve", "auditor").get(f"/v1/oversight?{query}").status_code == 422


def test_the_command_shows_shares_of_what_has_ended(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(who: str, role: str, *arguments: str) -> str:
        key = house.people.key(who, roles=[role], tenant=house.tenant)[1]
        monkeypatch.setenv("HAI_FLOW_URL", house.server.url)
        monkeypatch.setenv("HAI_FLOW_KEY", key)
        return CliRunner().invoke(app, ["oversight", *arguments], terminal_width=200).output

    heads, row = call("user:eve", "auditor").splitlines()[:2]
    assert heads.split()[:5] == ["questions", "open", "median", "p90", "under"]
    assert row.split()[:3] == ["ask", "2", "1"]
    assert "100 %" in row
    assert "you" in call("user:bob", "decider", "--mine", "--since", "1d")
    assert "user:bob" in call("user:eve", "auditor", "--person", "user:bob")
    assert "Nothing was asked within 1h." in call("user:zoe", "decider", "--mine", "--since", "1h")
    assert "give one of them" in call("user:eve", "auditor", "--mine", "--by", "tool")
