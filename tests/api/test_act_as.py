"""Acting as somebody over REST: quorums and exclusions can be tried, and the votes say how they came."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from starlette.datastructures import Headers

from hai_flow.api.app import is_development
from hai_flow.api.auth.credentials import LocalIdentity
from hai_flow.errors import Rejected
from hai_flow.settings import Settings
from tests.api.test_rest import Checked, code, http, start, wait_for_end, wait_for_pendings
from tests.support.agui_client import AguiClient, resolved
from tests.support.aui_client import AuiClient
from tests.support.hai_client import unique, user
from tests.support.server import YAML, ServerProcess
from tests.support.sights import read_until

__all__ = ["http"]

TWO_EYES = """
hai: flow/v1
name: two_eyes
version: 1
steps:
  - id: gate
    approve: {title: Go?, from: [role:boss], quorum: 2}
output: ${{ steps.gate.output }}
"""


def decide(http: Checked, id: str, who: str, **body: Any) -> httpx2.Response:
    given = {"decision": "approve", **body}
    return http.post(f"/v1/pendings/{id}/decide", json=given, headers={"HAI-Act-As": who})


def test_two_different_people_with_the_role_approve(http: Checked) -> None:
    assert http.post("/v1/workflows", content=TWO_EYES, headers=YAML).status_code == 201
    run = start(http, "two_eyes")
    (pending,) = wait_for_pendings(http, run["id"])
    id = pending["id"]
    assert code(http.post(f"/v1/pendings/{id}/decide", json={"decision": "approve"})) == (403, "pending_forbidden")
    assert code(decide(http, id, "user:ann")) == (403, "pending_forbidden")
    assert code(decide(http, id, "user:local,role:boss")) == (403, "pending_forbidden")  # they started it
    voted = decide(http, id, "user:ann,role:boss").json()
    assert (voted["status"], voted["needed"]["missing"]["people"]) == ("open", 1)
    assert code(decide(http, id, "user:ann,role:boss", reason="again")) == (403, "vote_final")
    assert code(decide(http, id, "user:bob,role:boss", digest="0" * 64)) == (422, "answer.digest")
    assert decide(http, id, "user:bob,role:boss", digest=pending["digest"]).json()["status"] == "approve"
    votes = wait_for_end(http, run["id"])["output"]["votes"]
    assert [(vote["by"], vote["roles"], vote["via"]) for vote in votes] == [
        ("user:ann", ["boss"], "rest (act as)"),
        ("user:bob", ["boss"], "rest (act as)"),
    ]


def test_who_starts_a_run_as_somebody_is_its_requester(http: Checked) -> None:
    assert http.post("/v1/workflows", content=TWO_EYES, headers=YAML).status_code in (200, 201)
    run = http.post("/v1/runs", json={"workflow": "two_eyes"}, headers={"HAI-Act-As": "user:eve,role:boss"}).json()
    assert run["started_by"] == "user:eve"
    (pending,) = wait_for_pendings(http, run["id"])
    assert code(decide(http, pending["id"], "user:eve,role:boss")) == (403, "pending_forbidden")


@pytest.mark.parametrize("who", ["ann", "role:boss", "user:ann,user:bob", ""])
def test_somebody_who_is_nobody_is_refused(http: Checked, who: str) -> None:
    assert code(http.get("/v1/pendings", headers={"HAI-Act-As": who})) == (422, "act_as.invalid")


REMOTE = {"identity": "keys", "allow_remote": True, "allowed_hosts": ("flow.example.com",)}


@pytest.mark.parametrize("settings", [{"act_as": False}, REMOTE, {"host": "0.0.0.0", **REMOTE}], ids=str)
async def test_a_reachable_or_production_server_believes_nobody(settings: dict[str, Any]) -> None:
    believing = settings.get("act_as", True)
    given = {name: value for name, value in settings.items() if name != "act_as"}
    development = is_development(Settings(**given), act_as=believing)
    runtime: Any = None  # which it only asks for tenants
    identity = LocalIdentity(runtime, development=development)
    acting: Any = SimpleNamespace(headers=Headers({"HAI-Act-As": "user:ann,role:boss"}))
    with pytest.raises(Rejected) as refusal:
        await identity.principal(acting)
    assert (refusal.value.status, refusal.value.code) == (403, "act_as.forbidden")
    silent: Any = SimpleNamespace(headers=Headers())
    assert (await identity.principal(silent)).id == "user:local"


ASKS_BOSS = """
hai: flow/v1
name: asks_boss
version: 1
steps:
  - id: gate
    approve: {title: Go?, from: [role:boss], evidence: {amount: 7}}
output: ${{ steps.gate.output.decision }}
"""


def test_approvers_are_asked_over_agui_in_runs_that_others_started(server: ServerProcess, http: Checked) -> None:
    assert http.post("/v1/workflows", content=ASKS_BOSS, headers=YAML).status_code in (200, 201)
    ann = AguiClient(server.url, workflow="asks_boss", headers={"HAI-Act-As": "user:ann"})
    assert ann.post(user("go")).interrupts() == []
    bob, boss = (
        AguiClient(server.url, ann.thread_id, headers={"HAI-Act-As": who}) for who in ("user:bob", "user:eve,role:boss")
    )
    seen = bob.post()
    assert seen.interrupts() == []
    assert seen.one("CUSTOM")["value"].keys().isdisjoint({"evidence", "digest"})
    (interrupt,) = boss.post().interrupts()
    assert interrupt["metadata"]["hai"]["evidence"] == {"amount": 7}
    assert boss.post(resume=[resolved(interrupt, {"approved": True})]).one("RUN_FINISHED")
    assert ann.post().interrupts() == []


ASKED_ANYHOW = {"user:ann": False, "user:bob": False, "user:eve,role:boss": True}
"""Who reads: the one who started the run, somebody else, one who may approve; and whether they see the evidence."""
SECRET = "amount-7319"


def shown_to(server: ServerProcess, who: str, thread_id: str, run_id: str, how: str) -> str:
    """All that is shown to `who` of a run that waits."""
    headers = {"HAI-Act-As": who}
    match how:
        case "hai" | "agui" | "social" | "aui" | "agent-api":
            path, streamed = f"/v1/runs/{run_id}/events?dialect={how}", {**headers, "Accept": "text/event-stream"}
            return httpx2.get(server.url + path, headers=streamed, timeout=20).text
        case "history":
            return httpx2.get(f"{server.url}/api/v1/agent/runs/{thread_id}/history", headers=headers).text
        case "stream":
            path = f"/api/v1/agent/runs/{thread_id}/events"
            with httpx2.stream("GET", server.url + path, headers=headers, timeout=20) as response:
                return read_until(response, '"pendings"')
        case "cursor":
            path = f"/api/v1/agent/runs/{thread_id}/events?after=00000000-0000-0000-0000-000000000000.social-1.0.0"
            with httpx2.stream("GET", server.url + path, headers=headers, timeout=20) as response:
                return read_until(response, '"pendings"')
        case "socket":
            client = AuiClient(server.url, headers=headers, session_id=thread_id)
            client.until("aui_run_finished")
            return str(client.events)
        case "post":
            body = {"threadId": thread_id, "runId": unique("reads"), "messages": [], "tools": []}
            return httpx2.post(f"{server.url}/awp", json=body, headers=headers, timeout=20).text
        case _:
            body = {"input": [], "session_id": thread_id}
            return httpx2.post(f"{server.url}/process", json=body, headers=headers, timeout=20).text


WAYS = ("hai", "agui", "social", "aui", "agent-api", "history", "stream", "cursor", "socket", "post", "process")


@pytest.mark.parametrize("how", WAYS)
def test_approvers_see_the_evidence_and_others_only_that_a_question_exists(
    server: ServerProcess, http: Checked, how: str
) -> None:
    source = ASKS_BOSS.replace("{amount: 7}", f"{{amount: {SECRET}}}").replace("asks_boss", "shows_boss")
    assert http.post("/v1/workflows", content=source, headers=YAML).status_code in (200, 201)
    ann = AguiClient(server.url, workflow="shows_boss", headers={"HAI-Act-As": "user:ann"})
    ann.post(user("go"))
    (run,) = http.get("/v1/runs", params={"thread_id": ann.thread_id}).json()["items"]
    for who, sees in ASKED_ANYHOW.items():
        shown = shown_to(server, who, ann.thread_id, run["id"], how)
        assert "Go?" in shown, (who, how)
        if how != "history":  # which has no evidence at all
            assert (SECRET in shown) is sees, (who, how)


def test_a_repeat_of_anothers_first_post_shows_only_visible_parts(server: ServerProcess, http: Checked) -> None:
    source = ASKS_BOSS.replace("role:boss", "requester").replace("{amount: 7}", f"{{amount: {SECRET}}}")
    source = source.replace("asks_boss", "asks_requester")
    assert http.post("/v1/workflows", content=source, headers=YAML).status_code in (200, 201)
    said = {"id": unique("m"), "role": "user", "content": "go"}
    body = {"threadId": unique("t"), "runId": unique("r"), "messages": [said], "tools": []}
    for who, sees in (("user:ann", True), ("user:bob", False), ("user:ann", True)):
        path = f"{server.url}/workflows/asks_requester/ag-ui"
        given = {**body, "protocolVersion": "1.0"}
        shown = httpx2.post(path, json=given, headers={"HAI-Act-As": who}, timeout=20)
        assert (shown.status_code, SECRET in shown.text, "Go?" in shown.text) == (200, sees, True), who
