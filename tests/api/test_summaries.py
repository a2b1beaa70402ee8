"""Lists show a run by the `summary` of its workflow, as far as the run has come."""

from __future__ import annotations

from tests.api.test_rest import Checked, http, start, wait_for_end
from tests.api.test_travel import published, waiting

__all__ = ["http"]

ORDER = """
hai: flow/v1
name: {name}
version: 1
summary: "Order ${{{{ input.order }}}}:  ${{{{ state.status }}}}"
input: {{type: object, required: [order], properties: {{order: {{type: string}}}}}}
state: {{status: {{type: string, default: new}}}}
steps:
  - wait_for: {{event: go}}
  - set: {{status: sent}}
"""


async def test_a_list_shows_the_line_of_a_run_as_far_as_it_has_come(http: Checked) -> None:
    name = published(http, ORDER)
    run = await waiting(http, start(http, name, input={"order": "A" * 300})["id"])
    assert run["summary"] == f"Order {'A' * 193}…"
    run = await waiting(http, start(http, name, input={"order": "A1"})["id"])
    assert run["summary"] == "Order A1: new"
    assert http.post(f"/v1/runs/{run['id']}/signals", json={"type": "go"}).is_success
    assert wait_for_end(http, run["id"])["summary"] == "Order A1: sent"
    listed = http.get("/v1/runs", params={"workflow": name}).json()["items"]
    assert [each["summary"] for each in listed] == ["Order A1: sent", f"Order {'A' * 193}…"]


async def test_a_run_of_a_workflow_without_one_has_none(http: Checked) -> None:
    name = published(http, "\n".join(line for line in ORDER.splitlines() if not line.startswith("summary")))
    assert (await waiting(http, start(http, name, input={"order": "A1"})["id"]))["summary"] is None
