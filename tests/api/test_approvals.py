"""Approvals for agents that live elsewhere: asked, decided, consumed once, and every attack on that refused."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import httpx2
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from hai_flow.wire.mcp import IDEMPOTENCY_KEY
from tests.support.identities import KEYS, People
from tests.support.mcp_caller import Caller
from tests.support.postgres import Server
from tests.support.server import ROOT, YAML, ServerProcess, expect, serving
from tests.support.waiting import wait_for

ROLES: Final = {
    "agent:bot": ["requester"],
    "agent:other": ["requester"],
    "user:ann": ["decider", "boss"],
    "user:bob": ["decider", "boss"],
    "user:cfo": ["decider", "cfo"],
    "user:fay": ["decider", "finance"],
    "user:fin": ["decider", "finance"],
    "user:oli": ["operator"],
    "user:pat": ["publisher"],
}
PAGE: Final = (ROOT / "docs" / "approvals.md").read_text()
BOSS: Final = {"from": ["role:boss"]}
TRANSFER: Final = {"to": "DE-4711", "amount": 82000}


class House(NamedTuple):
    """A server with identity on, and its callers."""

    server: ServerProcess
    people: People

    def call(self, who: str, method: str, path: str, tenant: str = "default", **more: Any) -> httpx2.Response:
        headers = self.people.person(who, roles=ROLES[who], tenant=tenant) | more.pop("headers", {})
        return httpx2.request(method, f"{self.server.url}{path}", headers=headers, timeout=60, **more)

    def ask(self, **changes: Any) -> dict[str, Any]:
        """The approval that `agent:bot` asks for."""
        body = {"action": "transfer", "arguments": TRANSFER, "policy": BOSS, "expires_in": "1h"} | changes
        answer = self.call("agent:bot", "POST", "/v1/approvals", json={k: v for k, v in body.items() if v is not None})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def decide(
        self, approval: dict[str, Any], who: str = "user:ann", decision: str | None = "approve", **more: Any
    ) -> None:
        path = f"/v1/pendings/{approval['pending_id']}/decide"
        expect(self.call(who, "POST", path, json={"decision": decision, **more}), 200)

    def look(self, id: str, wait: int = 0, who: str = "agent:bot") -> dict[str, Any]:
        return expect(self.call(who, "GET", f"/v1/approvals/{id}?wait={wait}"), 200).json()

    def consume(self, id: str, who: str = "agent:bot", key: str | None = None, **body: Any) -> httpx2.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.call(who, "POST", f"/v1/approvals/{id}/consume", json=body, headers=headers)

    def approved(self, **changes: Any) -> dict[str, Any]:
        """An approval that a person has approved."""
        approval = self.ask(**changes)
        self.decide(approval)
        decided = self.look(approval["id"], 30)
        assert decided["status"] == "approved"
        return decided


@pytest.fixture(scope="module")
def house(postgres_server: Server) -> Iterator[House]:
    with postgres_server.database() as dsn, serving(dsn, environment=KEYS) as server:
        yield House(server, People(dsn))


def digest(action: str, arguments: dict[str, Any]) -> str:
    """As a stranger computes it; these values have no number whose form differs."""
    text = json.dumps({"action": action, "arguments": arguments}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def refusal(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_approval_is_asked_decided_and_consumed_once(house: House) -> None:
    asked = house.ask()
    assert (asked["status"], asked["action"], asked["arguments"]) == ("pending", "transfer", TRANSFER)
    assert asked["digest"] == digest("transfer", TRANSFER)
    assert asked["page"] == f"{house.server.url}/console/inbox/{asked['pending_id']}"
    assert refusal(house.consume(asked["id"], digest=asked["digest"])) == (409, "approval_open")
    inbox = house.call("user:ann", "GET", "/v1/inbox").json()["items"]
    (item,) = [each for each in inbox if each["id"] == asked["pending_id"]]
    assert item["args"] == {"action": "transfer", "arguments": TRANSFER}
    house.decide(asked, reason="fine")
    decided = house.look(asked["id"], 30)
    assert (decided["status"], decided["reason"], decided["votes"][0]["by"]) == ("approved", "fine", "user:ann")
    yes = expect(house.consume(asked["id"], digest=decided["digest"]), 200)
    assert (yes.json()["status"], yes.json()["already"], yes.json()["arguments"]) == ("consumed", False, TRANSFER)
    for _ in range(3):
        assert refusal(house.consume(asked["id"], digest=decided["digest"])) == (409, "approval_over")
    run = wait_for(lambda: (r := house.call("agent:bot", "GET", f"/v1/runs/{asked['id']}").json())["ended_at"] and r)
    assert (run["status"], run["output"]) == ("finished", {"outcome": "consumed"})


def test_curl_commands_of_the_page_ask_wait_and_consume_as_they_stand(house: House) -> None:
    request, look, consume = re.findall(r"^curl (?:.*\\\n)*.*", PAGE, re.MULTILINE)
    key = house.people.key("agent:bot", roles=ROLES["agent:bot"])[1]
    environment = os.environ | {"HAI_FLOW_URL": house.server.url, "HAI_FLOW_KEY": key, "NO_PROXY": "*"}

    def run(command: str, id: str = "") -> dict[str, Any]:
        shell = ["sh", "-c", command.replace("0194...", id)]
        return json.loads(subprocess.run(shell, env=environment, capture_output=True, check=True).stdout)

    asked = run(request)
    assert run(request)["id"] == asked["id"]
    for person in ("user:fay", "user:fin"):
        house.decide(asked, person)
    assert run(look, asked["id"])["status"] == "approved"
    assert run(consume, asked["id"])["status"] == "consumed"
    assert run(consume, asked["id"])["code"] == "approval_over"


def test_same_key_asks_once_and_consumes_once_however_often_it_is_sent(house: House) -> None:
    body = {"action": "transfer", "arguments": TRANSFER, "policy": BOSS}
    key = {"Idempotency-Key": "transfer-1"}
    first, again = (house.call("agent:bot", "POST", "/v1/approvals", json=body, headers=key) for _ in range(2))
    assert (first.status_code, again.status_code, first.json()["id"]) == (201, 200, again.json()["id"])
    other = house.call("agent:bot", "POST", "/v1/approvals", json={**body, "action": "x"}, headers=key)
    assert refusal(other) == (409, "command_id_reused")
    id = first.json()["id"]
    house.decide(first.json())
    approved = house.look(id, 30)
    answers = [house.consume(id, key="transfer-1", digest=approved["digest"]) for _ in range(2)]
    assert [(each.status_code, each.json()["already"]) for each in answers] == [(200, False), (200, True)]
    assert refusal(house.consume(id, key="transfer-2", digest=approved["digest"])) == (409, "approval_over")
    assert refusal(house.consume(id, digest=approved["digest"])) == (409, "approval_over")
    assert refusal(house.consume(id, key="transfer-1", arguments={"amount": 1})) == (422, "approval_digest")


def test_of_many_that_consume_at_once_one_gets_the_yes(house: House) -> None:
    approved = house.approved()
    start = threading.Barrier(8)

    def consume(_: int) -> int:
        start.wait()
        return house.consume(approved["id"], digest=approved["digest"]).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(consume, range(8))) == [200, *[409] * 7]


def test_another_digest_is_refused_with_both_and_consumes_nothing(house: House) -> None:
    approved = house.approved()
    more = {**TRANSFER, "amount": 820000}
    refused = house.consume(approved["id"], digest=digest("transfer", more))
    assert refusal(refused) == (422, "approval_digest")
    assert digest("transfer", more) in refused.json()["detail"]
    assert approved["digest"] in refused.json()["detail"]
    assert refused.json()["winner"]["arguments"]["amount"] == 82000
    bodies: list[dict[str, Any]] = [
        {"arguments": more},
        {"arguments": TRANSFER, "action": "delete"},
        {"digest": digest("delete", TRANSFER)},
        {},
        {"digest": approved["digest"], "arguments": more},
    ]
    for body in bodies:
        assert refusal(house.consume(approved["id"], **body)) == (422, "approval_digest"), body
    assert refusal(house.consume(approved["id"], digest="82000")) == (422, "request.invalid")
    assert house.consume(approved["id"], arguments=dict(reversed(TRANSFER.items()))).status_code == 200


def test_a_digest_beside_another_action_or_arguments_consumes_nothing(house: House) -> None:
    approval = house.approved()
    others: tuple[dict[str, Any], ...] = ({"action": "wipe"}, {"arguments": {}}, {"action": "wipe", "arguments": {}})
    for beside in others:
        refused = house.consume(approval["id"], digest=approval["digest"], **beside)
        assert (refused.status_code, refused.json()["code"]) == (422, "approval_digest"), beside
    assert house.consume(approval["id"], digest=approval["digest"], action="transfer").status_code == 200


def test_consume_takes_the_edited_arguments_and_refuses_the_first_digest(house: House) -> None:
    asked = house.ask(policy={**BOSS, "edit": True})
    edited = {**TRANSFER, "amount": 41000}
    house.decide(asked, edits={"arguments": edited})
    approved = house.look(asked["id"], 30)
    assert (approved["arguments"], approved["edited"]) == (edited, True)
    assert refusal(house.consume(asked["id"], digest=asked["digest"])) == (422, "approval_digest")
    yes = house.consume(asked["id"], digest=digest("transfer", edited))
    assert (yes.status_code, yes.json()["arguments"]) == (200, edited)


def test_edits_need_a_policy_and_the_action_is_never_edited(house: House) -> None:
    path = f"/v1/pendings/{house.ask()['pending_id']}/decide"
    body = {"decision": "approve", "edits": {"arguments": {"to": "me", "amount": 1}}}
    assert house.call("user:ann", "POST", path, json=body).status_code == 422
    path = f"/v1/pendings/{house.ask(policy={**BOSS, 'edit': True})['pending_id']}/decide"
    for edits in ({"action": "delete"}, {"/action": "delete"}):
        assert house.call("user:ann", "POST", path, json={"decision": "approve", "edits": edits}).status_code == 422


def test_rejected_approval_says_why_and_is_good_for_nothing(house: House) -> None:
    asked = house.ask()
    house.decide(asked, decision="reject", reason="not to them")
    rejected = house.look(asked["id"], 30)
    assert (rejected["status"], rejected["reason"]) == ("rejected", "not to them")
    assert refusal(house.consume(asked["id"], digest=asked["digest"])) == (409, "approval_over")


@pytest.mark.parametrize("expires_in", ["-1d", "0s", "tomorrow", "11 years", "0 working days", "１d"])
def test_a_wait_that_no_deadline_can_have_is_refused_and_asks_nobody(house: House, expires_in: str) -> None:
    body = {"action": "pay", "arguments": {}, "expires_in": expires_in}
    refused = house.call("agent:bot", "POST", "/v1/approvals", json=body)
    assert refusal(refused) == (422, "request.invalid")
    assert refused.json()["findings"][0]["path"] == "/expires_in"


def test_question_that_nobody_answers_in_time_expires(house: House) -> None:
    asked = house.ask(expires_in="1s")
    assert house.look(asked["id"], 30)["status"] == "expired"
    assert refusal(house.consume(asked["id"], digest=asked["digest"])) == (409, "approval_over")


def test_approval_that_is_not_consumed_in_time_expires(house: House) -> None:
    asked = house.ask(expires_in="2s")
    house.decide(asked)
    approved = house.look(asked["id"], 30)
    assert approved["status"] == "approved"
    wait_for(lambda: house.look(asked["id"])["status"] == "expired")
    assert refusal(house.consume(asked["id"], digest=approved["digest"])) == (409, "approval_over")


def test_another_caller_can_not_consume(house: House) -> None:
    approved = house.approved()
    for who, tenant, expected in (
        ("agent:other", "default", (404, "approval_unknown")),
        ("agent:bot", "globex", (404, "approval_unknown")),
        ("user:oli", "default", (403, "approval_foreign")),
    ):
        path = f"/v1/approvals/{approved['id']}/consume"
        answer = house.call(who, "POST", path, tenant, json={"digest": approved["digest"]})
        assert refusal(answer) == expected
    assert house.consume(approved["id"], digest=approved["digest"]).status_code == 200


def test_quorum_and_escalation_come_by_themselves(house: House) -> None:
    two = house.ask(policy={**BOSS, "quorum": 2})
    house.decide(two)
    assert house.look(two["id"])["status"] == "pending"
    house.decide(two, "user:bob")
    assert house.look(two["id"], 30)["status"] == "approved"
    policy = {**BOSS, "escalate": {"from": ["role:cfo"], "within": "1h"}}
    late = house.ask(policy=policy, expires_in="1s")

    def is_the_cfos() -> bool:
        items = house.call("user:cfo", "GET", "/v1/inbox").json()["items"]
        return late["pending_id"] in [each["id"] for each in items]

    wait_for(is_the_cfos)
    house.decide(late, "user:cfo")
    assert house.look(late["id"], 30)["status"] in ("approved", "expired")


def test_the_agent_never_decides_its_own_question(house: House) -> None:
    asked = house.ask(policy={"from": ["anyone"]})
    body = {"decision": "approve"}
    expect(house.call("agent:bot", "POST", f"/v1/pendings/{asked['pending_id']}/decide", json=body), 403)
    refused = house.call("agent:bot", "POST", "/v1/approvals", json={"action": "a", "arguments": {}, "policy": {}})
    assert refusal(refused) == (422, "input.invalid")


def test_question_that_nobody_can_decide_fails_at_once_and_says_so(house: House) -> None:
    failed = house.ask(policy={"from": ["user:ann"], "quorum": 2})
    assert (failed["status"], failed["error"]["code"]) == ("failed", "approval.impossible")


def test_stopped_or_forked_approval_is_none(house: House) -> None:
    approved = house.approved()
    stopped = house.approved()
    assert house.call("user:oli", "POST", f"/v1/runs/{stopped['id']}/stop", json={}).status_code == 200
    wait_for(lambda: house.look(stopped["id"])["status"] == "cancelled")
    assert refusal(house.consume(stopped["id"], digest=stopped["digest"])) == (409, "approval_over")
    fork = expect(house.call("user:oli", "POST", f"/v1/runs/{approved['id']}/fork", json={"step": "consumed"}), 201)
    path = f"/v1/approvals/{fork.json()['id']}"
    assert refusal(house.call("user:oli", "GET", path)) == (404, "approval_unknown")
    body = {"digest": approved["digest"]}
    assert refusal(house.call("user:oli", "POST", f"{path}/consume", json=body)) == (404, "approval_unknown")


def test_events_of_an_approval_stream_as_those_of_every_run(house: House) -> None:
    asked = house.ask()
    headers = house.people.person("agent:bot", roles=ROLES["agent:bot"]) | {"Accept": "text/event-stream"}
    with httpx2.stream("GET", f"{house.server.url}/v1/runs/{asked['id']}/events", headers=headers, timeout=60) as body:
        house.decide(asked, decision="reject")
        text = b"".join(body.iter_bytes()).decode()
    assert '"pending_decided"' in text
    assert '"run_finished"' in text


def test_workflow_of_ones_own_takes_the_place_of_the_built_in_one(house: House) -> None:
    [source] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    expect(house.call("user:pat", "POST", "/v1/workflows", content=source, headers=YAML), 201)
    asked = house.ask(workflow="transfers", policy=None, expires_in=None)
    assert asked["workflow"] == "transfers"
    house.decide(asked, "user:fay", edits={"arguments": {"amount": 80000}})
    house.decide(asked, "user:fin")
    assert house.consume(house.look(asked["id"], 30)["id"], arguments={"amount": 80000}).status_code == 200
    plain = source.replace("name: transfers", "name: no_tool").replace("consume", "other")
    assert house.call("user:pat", "POST", "/v1/workflows", content=plain, headers=YAML).status_code == 201
    body = {"action": "a", "arguments": {}, "workflow": "no_tool"}
    assert refusal(house.call("agent:bot", "POST", "/v1/approvals", json=body)) == (422, "approval_workflow")
    run = house.call("agent:bot", "POST", "/v1/runs", json={"workflow": "no_tool", "input": body | {"x": 1}})
    if run.status_code == 201:
        assert refusal(house.call("agent:bot", "GET", f"/v1/approvals/{run.json()['id']}"))[0] == 404


ASKS_AGAIN: Final = """
hai: flow/v1
name: asks_again
version: 1
input: {type: object, required: [action, arguments], properties: {action: {type: string}, arguments: {type: object}}}
tools:
  consume:
    frontend:
      description: Go
      parameters: {type: object, properties: {action: {type: string}, arguments: {type: object}}}
      result: {type: object}
steps:
  - {id: a, approve: {title: Pay?, from: role:boss}}
  - {id: b, approve: {title: Pay?, from: role:boss}}
  - call: consume
    with: {action: "${{ input.action }}", arguments: "${{ input.arguments }}"}
    catch: [{errors: [tool.declined], steps: [{id: c, approve: {title: Pay?, from: role:boss}}]}]
  - {call: consume, with: {action: "${{ input.action }}", arguments: "${{ input.arguments }}"}}
  - {call: consume, with: {action: "${{ input.action }}", arguments: "${{ input.arguments }}"}}
"""


def test_approval_of_several_questions_shows_the_newest_and_ends_once(house: House) -> None:
    assert house.call("user:pat", "POST", "/v1/workflows", content=ASKS_AGAIN, headers=YAML).status_code == 201
    for _ in range(4):  # in each run the ids of its questions are in another order
        asked = house.ask(workflow="asks_again", policy=None, expires_in=None)
        id, seen = asked["id"], {asked["pending_id"]}
        house.decide(asked)
        second = wait_for(lambda id=id, seen=seen: now if (now := house.look(id))["pending_id"] not in seen else None)
        house.decide(second)
        assert house.look(id, 30)["status"] == "approved"
        [call] = house.call("agent:bot", "GET", f"/v1/pendings?run_id={id}").json()["items"]
        house.decide({"pending_id": call["id"]}, "agent:bot", None, error="not now")
        seen.add(second["pending_id"])
        third = wait_for(lambda id=id, seen=seen: now if (now := house.look(id))["pending_id"] not in seen else None)
        assert third["status"] == "pending"
        house.decide(third)
        assert house.look(id, 30)["status"] == "approved"
        assert house.consume(id, arguments=TRANSFER).status_code == 200
        assert refusal(house.consume(id, arguments=TRANSFER)) == (409, "approval_over")


def test_mcp_client_asks_and_consumes_by_tools(house: House) -> None:
    headers = house.people.person("agent:bot", roles=ROLES["agent:bot"])
    with httpx2.Client(base_url=house.server.url, timeout=60) as http:
        caller = Caller(http, Authorization=headers["Authorization"])

        def call(name: str, **arguments: Any) -> dict[str, Any]:
            return caller.result("tools/call", {"name": name, "arguments": arguments})

        asked = call("request_approval", action="transfer", arguments=TRANSFER, policy=BOSS, seconds=0)[
            "structuredContent"
        ]
        assert asked["status"] == "pending"
        early = call("consume_approval", approval_id=asked["id"], arguments=TRANSFER, seconds=0)
        assert early["isError"]
        assert "approval_open" in early["content"][0]["text"]
        house.decide(house.look(asked["id"]))
        wrong = call("consume_approval", approval_id=asked["id"], arguments={**TRANSFER, "amount": 1})
        assert "approval_digest" in wrong["content"][0]["text"]
        yes, again = (call("consume_approval", approval_id=asked["id"], arguments=TRANSFER) for _ in range(2))
        assert yes["structuredContent"]["status"] == "consumed"
        assert "approval_over" in again["content"][0]["text"]
        refused = call("request_approval", action="transfer", arguments={})
        assert "input.invalid" in refused["content"][0]["text"]
        assert "approval_unknown" in call("consume_approval", approval_id="none")["content"][0]["text"]


@pytest.mark.costly
def test_a_client_of_the_mcp_sdk_is_told_a_no_an_edit_and_an_end(house: House) -> None:
    headers = house.people.person("agent:bot", roles=ROLES["agent:bot"])
    edited = {**TRANSFER, "amount": 41000}

    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[Callable[..., Awaitable[tuple[bool, Any]]]]:
        async with (
            create_mcp_http_client(headers=headers) as http,
            streamable_http_client(f"{house.server.url}/mcp", http_client=http) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()

            async def call(name: str, key: str | None = None, **arguments: Any) -> tuple[bool, Any]:
                meta: Any = None if key is None else {IDEMPOTENCY_KEY: key}
                result: Any = await session.call_tool(name, arguments, meta=meta)
                return bool(result.is_error), result.structured_content or result.content[0].text

            yield call

    def list_open() -> set[str]:
        page = house.call("user:oli", "GET", "/v1/pendings", params={"limit": 100}).json()
        return {each["run_id"] for each in page["items"]}

    async def play() -> None:
        request = {"action": "transfer", "arguments": TRANSFER, "policy": {**BOSS, "edit": True}}
        async with connect() as call:
            _, asked = await call("request_approval", **request, seconds=0)
            house.decide(house.look(asked["id"]), decision="reject", reason="too much")
            assert (await call("consume_approval", approval_id=asked["id"], arguments=TRANSFER))[0]
            assert house.look(asked["id"])["status"] == "rejected"

            _, asked = await call("request_approval", **request, seconds=0)
            house.decide(house.look(asked["id"]), edits={"arguments": edited})
            refused, why = await call("consume_approval", approval_id=asked["id"], arguments=TRANSFER)
            assert (refused, "approval_digest" in why) == (True, True)
            refused, yes = await call("consume_approval", approval_id=asked["id"], arguments=edited)
            assert (refused, yes["status"], yes["arguments"], yes["edited"]) == (False, "consumed", edited, True)

            _, asked = await call("request_approval", **request, expires_in="1s", seconds=30)
            assert asked["status"] == "expired"
            assert (await call("consume_approval", approval_id=asked["id"], arguments=TRANSFER))[0]

        key = "the-call-of-a-client-that-is-killed"
        before = list_open()

        async def wait_for_people() -> None:
            async with connect() as call:
                await call("request_approval", key, **request, seconds=50)

        killed = asyncio.ensure_future(wait_for_people())
        new = await asyncio.to_thread(wait_for, lambda: list_open() - before)
        killed.cancel()
        await asyncio.gather(killed, return_exceptions=True)
        (waiting,) = new
        async with connect() as call:
            _, again = await call("request_approval", key, **request, seconds=0)
            assert again["id"] == waiting
            await asyncio.to_thread(house.decide, house.look(waiting))
            answers = [await call("consume_approval", approval_id=waiting, arguments=TRANSFER) for _ in range(2)]
        assert [refused for refused, _ in answers] == [False, True]

    asyncio.run(play())


@pytest.mark.parametrize("moment", ["asked", "approved", "consumed"])
def test_killed_server_loses_and_doubles_no_yes(postgres_server: Server, moment: str) -> None:
    with postgres_server.database() as dsn:
        with serving(dsn, environment=KEYS) as server:
            house = House(server, People(dsn))
            asked = house.ask()
            if moment != "asked":
                house.decide(asked)
                house.look(asked["id"], 30)
            if moment == "consumed":
                assert house.consume(asked["id"], key="k", digest=asked["digest"]).status_code == 200
            server.kill()
        with serving(dsn, environment=KEYS) as server:
            house = House(server, People(dsn))
            if moment == "asked":
                house.decide(asked)
            if moment != "consumed":
                assert house.look(asked["id"], 30)["status"] == "approved"
            answers = [house.consume(asked["id"], key="k", digest=asked["digest"]) for _ in range(2)]
            assert [each.json()["already"] for each in answers] == [moment == "consumed", True]
            assert refusal(house.consume(asked["id"], digest=asked["digest"])) == (409, "approval_over")
