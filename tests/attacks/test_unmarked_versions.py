"""Who does not see the personal values of a run does not see them by another version that marks less of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest

from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import YAML, expect, serving
from tests.support.waiting import wait_for

IBAN: Final = "DE887414IBAN"
_FLOW: Final = """
hai: flow/v1
name: pay
version: {version}
input: {{type: object, properties: {{iban: {{type: string{input}}}}}}}
state: {{seen: {{type: string{state}}}}}
steps:
  - {{id: hear, wait_for: {{event: heard, deadline: 1d}}}}
  - id: {ask}
    ask: {{title: Where?, from: requester, form: {{type: object, properties: {{place: {{type: string{form}}}}}}}}}
  - {{say: Thanks.}}
"""
MARK: Final = ", pii: true"
MARKED: Final = {"input": MARK, "state": MARK, "form": MARK, "ask": "where"}
LESS: Final[dict[str, dict[str, str]]] = {
    "no mark": {"input": "", "state": "", "form": ""},
    "no mark of the input": {"input": ""},
    "no mark of a variable": {"state": ""},
    "no mark of a form": {"form": ""},
    "no mark of a form of another name": {"form": "", "ask": "place"},
}
MORE: Final[dict[str, dict[str, str]]] = {"the same marks": {}, "the same marks of another name": {"ask": "place"}}


class Place:
    """A server with the versions of a workflow, of which `marked` has all marks."""

    def __init__(self, api: httpx2.Client, people: People) -> None:
        self.api = api
        self.operator, self.viewer = (
            people.person("user:op", roles=["operator"]),
            people.person("user:v", roles=["viewer"]),
        )
        self.requester = people.person("user:req", roles=["requester", "operator"])
        publisher = people.person("user:pat", roles=["publisher"])
        self.versions: dict[str, int] = {}
        for name, changes in (LESS | MORE | {"marked": {}}).items():
            self.versions[name] = len(self.versions) + 1
            text = _FLOW.format(version=self.versions[name], **{**MARKED, **changes})
            expect(api.post("/v1/workflows", content=text, headers={**YAML, **publisher}), 201)

    def start(self) -> str:
        body = {"workflow": "pay", "input": {"iban": IBAN}}
        run = str(expect(self.api.post("/v1/runs", json=body, headers=self.requester), 201).json()["id"])
        wait_for(lambda: self.read(run, self.operator)["status"] == "waiting")
        return run

    def read(self, run: str, who: dict[str, str]) -> dict[str, Any]:
        return dict(self.api.get(f"/v1/runs/{run}", headers=who).json())

    def migrate(self, run: str, to: str, who: dict[str, str], *, dry_run: bool = False) -> dict[str, Any]:
        body: dict[str, Any] = {
            "from": str(self.versions["marked"]),
            "to": str(self.versions[to]),
            "runs": [run],
            "dry_run": dry_run,
        }
        if "another name" in to:
            body["map"] = {"where": "place"}
        return dict(expect(self.api.post("/v1/workflows/pay/migrate", json=body, headers=who), 200).json()["runs"][0])

    def fork(self, run: str, to: str, who: dict[str, str]) -> httpx2.Response:
        body: dict[str, Any] = {"step": "hear", "version": str(self.versions[to])}
        if "another name" in to:
            body["map"] = {"where": "place"}
        return self.api.post(f"/v1/runs/{run}/fork", json=body, headers=who)

    def shows(self, run: str) -> bool:
        paths = ("", "/snapshot", "/events", "/steps", "/diff?from=1")
        answers = [
            self.api.get(f"/v1/runs/{run}{path}", headers=who) for path in paths for who in (self.operator, self.viewer)
        ]
        return any(IBAN in each.text for each in answers)


@pytest.fixture(scope="module")
def place(postgres_server: Server) -> Iterator[Place]:
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment=KEYS) as server,
        httpx2.Client(base_url=server.url, timeout=30) as api,
    ):
        yield Place(api, People(dsn))


@pytest.mark.parametrize("to", LESS)
def test_nobody_moves_a_run_to_a_version_that_shows_them_more(place: Place, to: str) -> None:
    run = place.start()
    for dry_run in (True, False):
        moved = place.migrate(run, to, place.operator, dry_run=dry_run)
        assert (moved["moved"], moved["obstacles"][0]["code"]) == (False, "personal.shown")
    refused = place.fork(run, to, place.operator)
    assert (refused.status_code, refused.json()["code"]) == (403, "fork.forbidden")
    assert not place.shows(run)
    assert place.migrate(run, to, place.requester)["moved"], "they see all of it already"


@pytest.mark.parametrize("to", MORE)
def test_a_run_is_moved_to_a_version_with_the_same_marks(place: Place, to: str) -> None:
    run = place.start()
    fork = expect(place.fork(run, to, place.operator), 201).json()["id"]
    assert not place.shows(fork)
    run = place.start()
    assert place.migrate(run, to, place.operator)["moved"]
    assert not place.shows(run)
