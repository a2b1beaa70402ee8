"""A workflow, a role, a tool and a concurrency key with hyphens, wherever a name stands: paths, references, headers."""

from __future__ import annotations

from typing import Any

from tests.api.test_rest import Checked, code, http, start, wait_for_end, wait_for_pendings
from tests.support.hai_client import HaiClient, unique, user
from tests.support.server import YAML, ServerProcess

__all__ = ["http"]

BODY = """
roles: {finance-team: [user:ann-lee]}
concurrency: {key: "team-a", on_conflict: reject}
input: {type: object, properties: {n: {type: integer, default: 0}}}
steps:
  - id: gate
    approve: {title: Go?, from: [role:finance-team, role:on-call], quorum: {role:finance-team: 1}}
output: {by: "${{ run.workflow }}", decision: "${{ steps.gate.output.decision }}"}
"""
PARENT = "steps:\n  - {id: child, run: CHILD@1}\noutput: ${{ steps.child.output }}\n"


def publish(http: Checked, name: str, body: str) -> None:
    answer = http.post(
        "/v1/workflows", content=f"hai: flow/v1\nname: {name}\nversion: 1\n{body}".encode(), headers=YAML
    )
    assert answer.status_code == 201, answer.text


def decide(http: Checked, id: str, who: str) -> Any:
    answer = http.post(f"/v1/pendings/{id}/decide", json={"decision": "approve"}, headers={"HAI-Act-As": who})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_workflow_with_hyphens_is_started_found_drawn_and_answered(http: Checked) -> None:
    name = unique("expense-approval")
    publish(http, name, BODY)
    run = start(http, f"{name}@1")
    refused = http.post("/v1/runs", json={"workflow": name})
    assert code(refused) == (409, "concurrency_busy")
    assert "'team-a'" in refused.json()["detail"]
    assert [each["id"] for each in http.get("/v1/runs", params={"workflow": name}).json()["items"]] == [run["id"]]
    assert http.get(f"/v1/workflows/{name}").json()["name"] == name
    assert name in http.get(f"/v1/workflows/{name}@1/graph").text
    (pending,) = wait_for_pendings(http, run["id"])
    decide(http, pending["id"], "user:bob,role:on-call")
    decide(http, pending["id"], "user:ann-lee")
    assert wait_for_end(http, run["id"])["output"] == {"by": name, "decision": "approve"}


def test_a_workflow_with_hyphens_is_posted_to_and_is_a_child(http: Checked, server: ServerProcess) -> None:
    name, parent = unique("say-hello"), unique("the-parent")
    publish(http, name, "steps: [{say: Hello}]\noutput: ${{ run.workflow }}\n")
    publish(http, parent, PARENT.replace("CHILD", name))
    assert HaiClient(server.url, workflow=name).post(user("hi")).text() == "Hello"
    assert HaiClient(server.url, workflow=f"{name}@1").post(user("hi")).text() == "Hello"
    assert wait_for_end(http, start(http, parent)["id"])["output"] == name
