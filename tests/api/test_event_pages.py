"""Pages of a run's log: by type, by step, backwards; and how many runs there are of each status."""

from __future__ import annotations

from typing import Any

import pytest
from hai_flow_client import Client

from tests.api.test_rest import Checked, http, start, wait_for_end
from tests.support.examples import by_night
from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess, expect

__all__ = ["http"]

SOURCE = """
hai: flow/v1
name: NAME
version: 1
input:
  type: object
  properties:
    items: {type: array, items: {type: integer}}
steps:
  - id: each
    for_each:
      items: "${{ input.items }}"
      steps:
        - {id: said, say: "Line ${{ item }}"}
  - {id: each_more, say: Done.}
"""


@pytest.fixture(scope="module")
def run(server: ServerProcess) -> dict[str, Any]:
    """A run with some hundred events, which has ended."""
    with Checked(server.url) as http:
        return _run(http)


def _run(http: Checked) -> dict[str, Any]:
    name = unique("paged").replace("-", "_")
    expect(http.post("/v1/workflows", content=SOURCE.replace("NAME", name), headers=YAML), 201)
    return wait_for_end(http, start(http, name, input={"items": list(range(120))})["id"])


def page(http: Checked, run: dict[str, Any], **query: Any) -> dict[str, Any]:
    return http.get(f"/v1/runs/{run['id']}/events", params=query).raise_for_status().json()


def pages(http: Checked, run: dict[str, Any], cursor: str, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        answer = page(http, run, **query)
        assert len(answer["items"]) <= query.get("limit", 100)
        found += answer["items"]
        if answer["next_cursor"] is None:
            return found
        query[cursor] = answer["next_cursor"]


def test_pages_backwards_are_the_pages_forwards_in_the_other_order(http: Checked, run: dict[str, Any]) -> None:
    whole = pages(http, run, "after", limit=1000)
    assert [each["seq"] for each in whole] == list(range(1, run["seq"] + 1))
    for limit in (1, by_night(7, 43), 100, 1000):
        if limit > 1 or run["seq"] < 50:
            assert pages(http, run, "before", order="desc", limit=limit) == whole[::-1]
            assert pages(http, run, "after", limit=limit) == whole
    newest = page(http, run, order="desc", limit=1)
    assert newest == {"items": whole[-1:], "next_cursor": str(run["seq"])}
    assert page(http, run, order="desc", before=2) == {"items": whole[:1], "next_cursor": None}


@pytest.mark.parametrize("query", [
    {"type": "message_chunk"},
    {"type": ["step_started", "run_finished"]},
    {"path": "each"},
    {"path": "each[7]"},
    {"path": "each[7]/said", "type": "step_finished"},
    {"path": "nowhere"},
    {"after": 50, "before": 90, "type": "step_finished"},
])  # fmt: skip
def test_a_page_has_only_what_is_wanted_in_either_order(
    http: Checked, client: Client, run: dict[str, Any], query: dict[str, Any]
) -> None:
    types, path = query.get("type"), query.get("path")
    wanted = [
        each
        for each in pages(http, run, "after", limit=1000)
        if (types is None or each["type"] in ([types] if isinstance(types, str) else types))
        and (path is None or f"{each.get('path')}/".startswith((f"{path}/", f"{path}[")))
        and query.get("after", 0) < each["seq"] < query.get("before", 10**9)
    ]
    assert bool(wanted) == (path != "nowhere")
    assert pages(http, run, "after", **query, limit=25) == wanted
    assert pages(http, run, "before", **query, limit=25, order="desc") == wanted[::-1]
    more: dict[str, Any] = {"types": [types] if isinstance(types, str) else types, "path": path}
    more |= {name: query[name] for name in ("after", "before") if name in query}
    assert list(client.runs.events_json(run["id"], **more)) == wanted
    assert [each.seq for each in client.runs.events(run["id"], **more, backwards=True, limit=3)] == [
        each["seq"] for each in wanted[::-1][:3]
    ]


def test_a_type_that_no_event_has_is_refused_with_the_nearest_one(http: Checked, run: dict[str, Any]) -> None:
    refused = expect(http.get(f"/v1/runs/{run['id']}/events", params={"type": "step_start"}), 422)
    assert "did you mean `step_started`?" in refused.json()["detail"]


def test_runs_are_found_and_counted_by_part_of_their_workflows_name(http: Checked) -> None:
    word = unique("part").replace("-", "_")
    source = f"hai: flow/v1\nname: pay_{word}\nversion: 1\ntitle: Pay an Invoice {word}\nsteps: [{{return: 1}}]\n"
    other = source.replace("pay_", "x").replace("Pay an Invoice", "Not")
    for each in (source, other):
        assert http.post("/v1/workflows", content=each, headers=YAML).status_code == 201
        name = each.split("name: ")[1].split("\n")[0]
        assert http.post("/v1/runs", json={"workflow": name}).status_code == 201

    def find_workflows(part: str, **more: Any) -> list[str]:
        items = http.get("/v1/runs", params={"workflow_like": part, **more}).json()["items"]
        counts = http.get("/v1/runs/counts", params={"workflow_like": part}).json()["counts"]
        where = {"action": "pause", "where": {"workflow_like": part}, "dry_run": True}
        assert more or len(items) == sum(counts.values()) == http.post("/v1/runs/bulk", json=where).json()["found"]
        return sorted(each["workflow"] for each in items)

    assert find_workflows(f"Y_{word}".upper()) == [f"pay_{word}"], "its name, in whatever case"
    assert find_workflows(f"an invoice {word}") == [f"pay_{word}"], "its title"
    assert find_workflows(word) == sorted([f"pay_{word}", f"x{word}"])
    assert find_workflows(word, status=["waiting", "needs_attention"]) == []
    assert find_workflows(word, workflow=f"x{word}") == [f"x{word}"]
    assert find_workflows(f"%{word}") == [], "no pattern"


def test_runs_are_counted_by_their_status(http: Checked, client: Client, run: dict[str, Any]) -> None:
    counted = http.get("/v1/runs/counts", params={"workflow": run["workflow"]}).json()
    assert counted["counts"] == dict.fromkeys(counted["counts"], 0) | {"finished": 1}
    assert client.runs.counts(workflow=run["workflow"]).counts["finished"] == 1
    assert client.runs.counts(thread_id="nobody's").counts["finished"] == 0
    assert client.runs.counts().counts["finished"] >= 1
