"""One connection tells a page of all that it shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.api.test_rest import Checked, code, http, start, wait_for_pendings
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import YAML, serving

__all__ = ["http"]

ASKING = """
hai: flow/v1
name: NAME
version: 1
steps:
  - {id: gate, approve: {title: Spend, from: ["user:ann"], deadline: 5m}}
"""


class Following:
    """What a client is told, event by event: (topic, id, data)."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.iter_lines()

    def next(self) -> tuple[str, str, dict[str, Any]]:
        fields: dict[str, str] = {}
        for line in self._lines:
            if not line and "data" in fields:
                return fields["event"], fields.get("id", ""), json.loads(fields["data"])
            name, _, value = line.partition(": ")
            fields[name] = value
        raise AssertionError("the stream has ended")

    def until(self, topic: str, key: str, id: str) -> tuple[str, dict[str, Any]]:
        """The event of the topic that names the item `id` under `key`: its own id, and the item."""
        while True:
            found, event_id, data = self.next()
            for item in data.get(key, []):
                if found == topic and id in (item, item.get("id") if isinstance(item, dict) else None):
                    return event_id, item


@contextmanager
def following(http: httpx2.Client, who: dict[str, str], **params: Any) -> Iterator[Following]:
    after = params.pop("after", None)
    headers = who if after is None else {**who, "Last-Event-ID": after}
    with http.stream("GET", "/v1/feed", params=params, headers=headers, timeout=30) as response:
        assert response.status_code == 200, response.read()
        yield Following(response)


ANN = {"HAI-Act-As": "user:ann"}


def test_a_feed_begins_with_all_topics_and_goes_on_with_what_changes(http: Checked) -> None:
    name = unique("fed").replace("-", "_")
    assert http.post("/v1/workflows", content=ASKING.replace("NAME", name), headers=YAML).status_code == 201
    with following(http, ANN, limit=200) as feed:  # other tests ask, too
        assert {feed.next()[0] for _ in range(4)} == {"runs", "inbox", "workflows", "schedules"}
        run = start(http, name)
        _, item = feed.until("runs", "changed", run["id"])
        assert not {"input", "output"} & item.keys()
        (pending,) = wait_for_pendings(http, run["id"])
        _, item = feed.until("inbox", "changed", pending["id"])
        assert item["title"] == "Spend"
        answered = http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"}, headers=ANN)
        assert answered.status_code == 200
        assert feed.until("inbox", "gone", pending["id"])[1] == pending["id"]


def test_who_comes_back_is_told_only_of_what_is_otherwise_than_they_knew(http: Checked) -> None:
    with following(http, ANN, topic=["workflows", "runs"]) as feed:
        told = dict([feed.next()[:2], feed.next()[:2]])
        last = told["workflows"]  # the topics come in one order, so its id says both
    run = start(http, "search_files")
    with following(http, ANN, topic=["workflows", "runs"], after=last) as feed:
        topic, _, data = feed.next()
        assert topic == "runs"
        assert run["id"] in [each["id"] for each in data["items"]]
    with following(http, ANN, topic=["runs"], after="rubbish.runs-;x") as feed:
        assert feed.next()[0] == "runs"


def test_topics_follow_rights(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn, environment=KEYS) as strict:
        people = People(dsn)
        decider, viewer = people.person("user:eve", roles=["decider"]), people.person("user:vic", roles=["viewer"])
        with httpx2.Client(base_url=strict.url, timeout=30) as client:
            refused = client.get("/v1/feed", params={"topic": "workflows"}, headers=decider)
            assert code(refused) == (403, "right_missing")
            assert client.get("/v1/feed", params={"topic": "all"}, headers=viewer).status_code == 422
            with following(client, decider) as feed:
                assert {feed.next()[0], feed.next()[0]} == {"runs", "inbox"}
            with following(client, viewer) as feed:
                assert {feed.next()[0] for _ in range(3)} == {"runs", "workflows", "schedules"}
            assert client.get("/v1/feed").status_code == 401


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_limit_that_no_list_has_is_refused(http: Checked, limit: int) -> None:
    assert http.get("/v1/feed", params={"limit": limit}).status_code == 422


def test_what_changes_without_a_run_is_told_as_well(http: Checked) -> None:
    name = unique("fed").replace("-", "_")
    with following(http, ANN, topic=["workflows", "inbox"], limit=200) as feed:
        feed.next(), feed.next()
        assert http.post("/v1/workflows", content=ASKING.replace("NAME", name), headers=YAML).status_code == 201
        for topic, _, data in iter(feed.next, None):
            if topic == "workflows" and name in [each["name"] for each in data["changed"]]:
                break
        run = start(http, name)
        (pending,) = wait_for_pendings(http, run["id"])
        feed.until("inbox", "changed", pending["id"])
        path = f"/v1/inbox/{pending['id']}"
        assert http.post(f"{path}/claim", json={"for": "2s"}, headers=ANN).status_code == 200
        assert feed.until("inbox", "changed", pending["id"])[1]["claimed_by"] == "user:ann"
        assert feed.until("inbox", "changed", pending["id"])[1]["claimed_by"] is None, "it has ended by itself"
        assert http.post(f"{path}/claim", headers=ANN).status_code == 200
        assert feed.until("inbox", "changed", pending["id"])[1]["claimed_by"] == "user:ann"
        assert http.post(f"{path}/release", headers=ANN).status_code == 200
        assert feed.until("inbox", "changed", pending["id"])[1]["claimed_by"] is None
