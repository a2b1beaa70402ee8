"""Standing rules over REST: proposed, approved by others, used as often as they say, revoked at once."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import httpx2
import pytest
from typer.testing import CliRunner

from hai_flow.cli import app
from hai_flow.runtime.people.receipts import make_key
from tests.support.agent_client import say
from tests.support.agui_client import AguiClient
from tests.support.aui_client import AuiClient
from tests.support.examples import sample
from tests.support.hai_client import HaiClient, unique, user
from tests.support.identities import KEYS, People
from tests.support.mcp_caller import Caller
from tests.support.models import Answer, FakeModels, spoken
from tests.support.postgres import Server, fetch
from tests.support.receivers import Mailbox, mail_server
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import until

ROLES: Final = {
    "user:ann": ["decider", "boss"],
    "user:bob": ["decider", "boss"],
    "user:cat": ["decider", "boss"],
    "user:oli": ["operator"],
    "user:pat": ["publisher", "author"],
    "user:both": ["decider", "boss", "operator"],
    "service:both": ["decider", "boss", "operator"],
    "user:aud": ["auditor"],
    "user:del": ["decider"],
    "agent:bot": ["decider", "boss"],
}
PAY: Final = """
hai: flow/v1
name: {name}
version: {version}
input: {{type: object, required: [amount], properties: {{amount: {{type: number}}, then: {{type: number}}}}}}
tools:
  built_in: {{python: hai_flow.steps.built_in, effect: {effect}}}
steps:
  - id: paid
    call: built_in.grant
    with: {{action: pay, arguments: {{amount: "${{{{ input.amount }}}}"}}}}
    approval: {{from: "role:boss", deadline: 1d{more}}}
  - id: again
    if: has(input.then)
    call: built_in.grant
    with: {{action: pay, arguments: {{amount: "${{{{ input.?then.orValue(0) }}}}"}}}}
    approval: {{from: "role:boss", deadline: 1d{more}}}
"""
CALL: Final = 'call: grant, with: {action: pay, arguments: {amount: 50}}, approval: {from: "role:boss"}'
BELOW: Final = f"""
hai: flow/v1
name: below
version: 1
tools: {{grant: {{python: "hai_flow.steps.built_in:grant", effect: write}}}}
steps:
  - {{id: paid, {CALL}}}
"""
PLACES: Final = f"""
hai: flow/v1
name: places
version: 1
models: {{smart: {{use: smart}}}}
tools: {{grant: {{python: "hai_flow.steps.built_in:grant", effect: write}}}}
steps:
  - id: each
    for_each: {{items: "${{{{ [1, 2, 3] }}}}", max_parallel: 3, steps: [{{id: one, {CALL}}}]}}
  - id: both
    parallel: {{left: [{{id: left, {CALL}}}], right: [{{id: right, {CALL}}}]}}
  - {{id: child, run: below}}
  - id: chat
    agent: {{model: smart, prompt: Pay, tools: [grant], approvals: {{grant: {{from: "role:boss"}}}}}}
  - {{id: sure, ask: {{from: anyone, title: Sure, form: {{type: object}}}}}}
"""
HOLLOW: Final = """
hai: flow/v1
name: rule_approval
version: {version}
input: {{type: object, properties: {{rule: {{type: object}}}}, additionalProperties: true}}
tools: {{built_in: {{python: hai_flow.steps.built_in, effect: write}}}}
steps:
  - id: approved
    call: built_in.establish
    with: {{rule: "${{{{ {rule} }}}}"}}
    approval: {{from: [role:decider, "agent:bot"], exclude: [], deadline: 1d}}
"""
GRANT: Final = "call: built_in.grant, with: {action: pay, arguments: {amount: 50}}"
ASKING: Final = f"""
hai: flow/v1
name: doors
version: 1
tools: {{built_in: {{python: hai_flow.steps.built_in, effect: write}}}}
steps:
  - {{id: paid, {GRANT}, approval: {{from: "role:boss", notify: [email]}}}}
"""
PARENT: Final = """
hai: flow/v1
name: parent
version: 1
steps: [{run: doors}]
"""
APPROVAL: Final = {"action": "pay", "arguments": {"amount": 50}, "policy": {"from": ["role:boss"]}}
NOTIFY: Final = """
hai: notify/v1
url: http://127.0.0.1
channels:
  email: {kind: email, host: 127.0.0.1, port: PORT, security: none, from: "Flow <flow@example.com>"}
people:
  user:cat: {email: cat@example.com, roles: [boss]}
"""
SMALL: Final = "args.arguments.amount <= 100.0"


class Desk(NamedTuple):
    """A server with identity on, and its callers."""

    server: ServerProcess
    people: People
    dsn: str
    tenant: str = "default"

    def call(self, who: str, method: str, path: str, **more: Any) -> httpx2.Response:
        headers = self.people.person(who, roles=ROLES[who], tenant=self.tenant) | more.pop("headers", {})
        return httpx2.request(method, f"{self.server.url}{path}", headers=headers, timeout=60, **more)

    def publish(self, name: str = "pay", version: int = 1, more: str = "", effect: str = "write") -> None:
        text = PAY.format(name=name, version=version, more=more, effect=effect)
        expect(self.call("user:pat", "POST", "/v1/workflows", content=text, headers=YAML), 200, 201)

    def start(self, amount: float = 50, who: str = "user:oli", workflow: str = "pay", **more: float) -> str:
        body = {"workflow": workflow, "input": {"amount": amount, **more}}
        answer = expect(self.call(who, "POST", "/v1/runs", json=body), 201)
        return str(answer.json()["id"])

    def gate(self, run: str, path: str = "paid") -> dict[str, Any]:
        """The gate of the run at the step, once it is decided, or no message about rules is under way any more."""

        async def read() -> dict[str, Any] | None:
            query = """
            SELECT id, EXISTS (SELECT FROM outbox WHERE run_id = $1 AND kind <> 'notify') AS waiting
            FROM pendings WHERE run_id = $1 AND path = $2
            """
            rows = await self.fetch(query, run, path)
            if not rows:
                return None
            pending = self.pending(rows[0]["id"])  # behind the messages: a rule may vote in between
            return None if pending["status"] == "open" and rows[0]["waiting"] else pending

        pending = asyncio.run(until(read))
        assert pending is not None
        return pending

    async def fetch(self, query: str, *values: Any) -> list[Any]:
        return await fetch(self.dsn, query, *values)

    def pending(self, id: str, who: str = "user:oli") -> dict[str, Any]:
        return expect(self.call(who, "GET", f"/v1/pendings/{id}"), 200).json()

    def decide(self, id: str, who: str, decision: str = "approve", **more: Any) -> httpx2.Response:
        return self.call(who, "POST", f"/v1/pendings/{id}/decide", json={"decision": decision, **more})

    def propose(self, who: str = "user:ann", pending: str | None = None, **more: Any) -> httpx2.Response:
        """Propose a rule; without a question, of a decision that is made for it."""
        if pending is None:
            pending = self.gate(self.start(5000))["id"]
            assert self.decide(pending, "user:cat").status_code == 200
        body = {"pending_id": pending, "when": SMALL, "until": later(days=1), "reason": "small amounts", **more}
        return self.call(who, "POST", "/v1/rules", json={k: v for k, v in body.items() if v is not None})

    def rule(self, id: str) -> dict[str, Any]:
        return self.call("user:oli", "GET", f"/v1/rules/{id}").json()

    def approved(self, voters: tuple[str, ...] = ("user:bob",), **more: Any) -> dict[str, Any]:
        """A rule that is in force."""
        answer = expect(self.propose(**more), 201)
        return self.approve(answer.json(), voters)

    def approve(self, rule: dict[str, Any], voters: tuple[str, ...] = ("user:bob",)) -> dict[str, Any]:
        pending = self.gate(rule["run_id"], "approved")
        for voter in voters:
            expect(self.decide(pending["id"], voter), 200)

        async def is_known() -> bool:
            """Whether the rule is decided, and the process that saw to it knows."""
            return not await self.fetch(
                "SELECT 1 FROM outbox WHERE run_id = $1 AND kind = 'rule_decided'", rule["run_id"]
            )

        asyncio.run(until(lambda: self.rule(rule["id"])["status"] != "proposed"))
        asyncio.run(until(is_known))
        return self.rule(rule["id"])

    def revoke(self, rule: dict[str, Any], who: str = "user:oli") -> httpx2.Response:
        return self.call(who, "POST", f"/v1/rules/{rule['id']}/revoke", json={"reason": "a drill"})


def later(**more: float) -> str:
    return (datetime.now(UTC) + timedelta(**more)).isoformat()


@pytest.fixture(autouse=True)
def _no_rule_is_left(desk: Desk) -> Iterator[None]:
    yield
    for rule in desk.call("user:oli", "GET", "/v1/rules").json()["items"]:
        desk.revoke(rule)


@pytest.fixture(scope="module")
def desk(postgres_server: Server) -> Iterator[Desk]:
    with postgres_server.database() as dsn, serving(dsn, environment=KEYS) as server:
        desk = Desk(server, People(dsn), dsn)
        desk.publish()
        yield desk


def test_a_rule_others_approved_votes_beside_people_and_counts_each_use(desk: Desk) -> None:
    rule = desk.approved(uses=5)
    assert (rule["status"], rule["approved_by"], rule["proposed_by"]) == ("active", ["user:bob"], "user:ann")
    run = desk.start(50)
    gate = desk.gate(run)
    (vote,) = gate["value"]["votes"]
    assert (gate["status"], vote["by"], vote["via"], vote["rule"]) == ("approve", "user:bob", "rule", rule["id"])
    asks = desk.gate(desk.start(101))
    assert (asks["status"], asks["needed"]["votes"]) == ("open", [])
    after = desk.rule(rule["id"])
    assert (after["uses"], [use["pending_id"] for use in after["last_uses"]]) == (1, [gate["id"]])
    decided = desk.call("user:bob", "GET", "/v1/inbox/decided").json()["items"]
    assert any(gate["id"] == each["id"] and each["rule"] == rule["id"] for each in decided)
    audit = desk.call("user:aud", "GET", f"/v1/audit?subject=pending:{gate['id']}").json()["items"]
    assert [each["details"]["rule"] for each in audit] == [rule["id"]]


class Doors:
    """Every way in which the workflow `doors`, or an agent's approval, comes to ask. Each returns the run's id."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.url = desk, desk.server.url
        self.operator = desk.people.person("user:oli", roles=ROLES["user:oli"])
        self.bot = desk.people.person("agent:ext", roles=["requester"])
        asyncio.run(desk.fetch("SELECT hai_allow_deposits(session_user::text, 'default', 'service:shop')"))
        self.models = [self.find_gate(ask())["id"] for ask in (self.ask_by_rest, self.ask_for_an_agent)]
        for model in self.models:  # decisions of which rules are proposed
            assert desk.decide(model, "user:cat").status_code == 200

    def ask_by_rest(self) -> str:
        return self.desk.call("user:oli", "POST", "/v1/runs", json={"workflow": "doors"}).json()["id"]

    def ask_as_a_child(self) -> str:
        return self.desk.call("user:oli", "POST", "/v1/runs", json={"workflow": "parent"}).json()["id"]

    def ask_by_deposit(self) -> str:
        ((id,),) = asyncio.run(self.desk.fetch("""SELECT hai_deposit('start', '{"workflow": "doors"}')::text"""))
        return str(id)

    def ask_by_a2a(self) -> str:
        message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"text": "go"}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        headers = {**self.operator, "A2A-Version": "1.0"}
        answer = httpx2.post(f"{self.url}/workflows/doors/a2a", json=body, headers=headers, timeout=60)
        return str(answer.json()["result"]["task"]["id"])

    def ask_by_mcp(self) -> str:
        return str(self._call(self.operator, "doors", {})["run_id"])

    def ask_by_hai(self) -> str:
        client = HaiClient(self.url, workflow="doors", headers=self.operator)
        assert client.post(user("go")).status == 200
        return self._find_run(client.thread_id)

    def ask_by_agui(self) -> str:
        client = AguiClient(self.url, workflow="doors", headers=self.operator)
        assert client.post(user("go")).status == 200
        return self._find_run(client.thread_id)

    def ask_by_aui(self) -> str:
        session = unique("session")
        params = {"session_id": session, "message": "go", "headers": self.operator}
        with contextlib.closing(AuiClient(self.url, "doors", **params)) as client:
            client.until("aui_run_finished")
        return self._find_run(session)

    def ask_by_the_agent_api(self) -> str:
        session = unique("session")
        body = {"input": [say("go")], "session_id": session}
        url = f"{self.url}/workflows/doors/process"
        httpx2.post(url, json=body, headers=self.operator, timeout=60).raise_for_status()
        return self._find_run(session)

    def ask_for_an_agent(self) -> str:
        answer = httpx2.post(f"{self.url}/v1/approvals", json=APPROVAL, headers=self.bot, timeout=60)
        return str(answer.raise_for_status().json()["id"])

    def ask_for_an_agent_by_mcp(self) -> str:
        return str(self._call(self.bot, "request_approval", {**APPROVAL, "seconds": 1})["id"])

    def _call(self, who: dict[str, str], tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        with httpx2.Client(base_url=self.url, timeout=60) as http:
            result = Caller(http, Authorization=who["Authorization"]).call(tool, arguments)
            return dict(result["structuredContent"])

    def _find_run(self, thread: str) -> str:
        query = "SELECT id::text FROM runs WHERE thread_id = $1 AND parent_id IS NULL"
        ((id,),) = asyncio.run(self.desk.fetch(query, thread))
        return str(id)

    def find_gate(self, run: str) -> dict[str, Any]:
        query = """SELECT run_id::text, path FROM pendings JOIN runs r ON r.id = run_id
          WHERE $1 IN (r.id, r.parent_id) AND pendings.kind = 'gate'"""
        ((of, path),) = asyncio.run(until(lambda: self.desk.fetch(query, run)))
        return self.desk.gate(of, path)

    def list_votes(self, gate: dict[str, Any]) -> list[tuple[str, str, str | None]]:
        """Who has voted by what and by which rule, as the question, its run's log and the audit say it alike."""
        path = f"/v1/runs/{gate['run_id']}/events?limit=200"
        events = self.desk.call("user:oli", "GET", path).json()["items"]
        votes = [(each["by"], each["via"], each["rule"]["id"]) for each in events if each["type"] == "vote_cast"]
        audit = self.desk.call("user:aud", "GET", f"/v1/audit?subject=pending:{gate['id']}").json()["items"]
        assert [each["details"]["rule"] for each in audit] == [rule for _, _, rule in votes]
        shown = (gate["value"] or {}).get("votes", ()) if gate["value"] else gate["needed"]["votes"]
        assert [(each["by"], each["via"], each["rule"]) for each in shown] == votes
        return votes


ASKS: Final = sorted(name for name in vars(Doors) if name.startswith("ask_"))
RULES: Final = {
    f"{kind}, {condition}": (kind, when)
    for kind in ("allow", "never")
    for condition, when in (
        ("it holds", SMALL),
        ("it does not", "args.arguments.amount > 100.0"),
        ("it can't be evaluated", "args.arguments.iban == 'x'"),
    )
}


@pytest.fixture(scope="module")
def doors(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Doors, Mailbox]]:
    folder = tmp_path_factory.mktemp("doors")
    make_key(folder / "keys.json")
    with mail_server() as box, postgres_server.database() as dsn:
        (folder / "notify.yaml").write_text(NOTIFY.replace("PORT", str(box.port)))
        files = {"HAI_FLOW_NOTIFY": "notify.yaml", "HAI_FLOW_RECEIPT_KEYS": "keys.json"}
        environment = {**KEYS, **{name: str(folder / file) for name, file in files.items()}}
        with serving(dsn, environment=environment) as server:
            desk = Desk(server, People(dsn), dsn)
            for source in (ASKING, PARENT):
                expect(desk.call("user:pat", "POST", "/v1/workflows", content=source, headers=YAML), 201)
            yield Doors(desk), box


@pytest.mark.parametrize("name", sample(["none", *RULES], 2))
def test_a_rule_decides_alike_what_comes_through_each_door(doors: tuple[Doors, Mailbox], name: str) -> None:
    door, box = doors
    desk = door.desk
    for each in desk.call("user:oli", "GET", "/v1/rules").json()["items"]:
        desk.revoke(each)  # of the row before
    rules = {}
    if name in RULES:
        kind, when = RULES[name]
        for model in door.models:  # a rule is for one workflow
            rule = desk.approved(pending=model, kind=kind, when=when)
            rules[rule["workflow"]] = rule["id"]
    with ThreadPoolExecutor(4) as threads:
        gates = dict(zip(ASKS, threads.map(lambda ask: door.find_gate(getattr(door, ask)()), ASKS), strict=True))
    status = {"allow, it holds": "approve", "never, it holds": "reject"}.get(name, "open")
    waiting = {each["id"] for each in desk.call("user:cat", "GET", "/v1/inbox?limit=200").json()["items"]}
    decided = desk.call("user:bob", "GET", "/v1/inbox/decided?limit=200").json()["items"]
    by_rule = {each["id"]: each["rule"] for each in decided}
    for ask, gate in gates.items():
        rule = rules.get(gate["workflow"])
        voter = f"rule:{rule}" if status == "reject" else "user:bob"
        assert (gate["status"], gate["id"] in waiting) == (status, status == "open"), ask
        assert door.list_votes(gate) == ([] if status == "open" else [(voter, "rule", rule)]), ask
        assert by_rule.get(gate["id"]) == (rule if status == "approve" else None), ask
    uses = {each: desk.rule(id)["uses"] for each, id in rules.items()}
    counts = Counter(gate["workflow"] for gate in gates.values())
    assert uses == {each: 0 if status == "open" else counts[each] for each in rules}
    gate = gates["ask_by_rest"]
    link = asyncio.run(until(lambda: find_link(desk, box, gate["id"]))) if status == "open" else None
    if link is None:
        receipt = asyncio.run(until(lambda: find_receipt(desk, gate["id"])))
        assert receipt is not None
        (vote,) = receipt["votes"]
        assert (vote["via"], vote["rule"]["id"]) == ("rule", rules["doors"])
    else:
        digest = re.search(r'name="digest" value="([0-9a-f]+)"', httpx2.get(link).text)
        assert digest is not None
        httpx2.post(link, data={"decision": "approve", "digest": digest[1]})
        assert desk.pending(gate["id"])["value"]["votes"][0]["via"] == "link"


async def find_link(desk: Desk, box: Mailbox, pending: str) -> str | None:
    """The address of the letter about the question."""
    rows = await desk.fetch("SELECT id FROM notifications WHERE pending_id = $1 AND status = 'sent'", pending)
    letters = [each for each in box.mails for row in rows if each["Message-ID"] == f"<{row['id']}@hai-flow>"]
    links = re.findall(r"/links/\S+", str(letters[0].get_payload())) if letters else []
    return desk.server.url + links[0] if links else None


async def find_receipt(desk: Desk, pending: str) -> dict[str, Any] | None:
    """What the receipt of the question says, once the audit has sealed its answer."""
    answer = await asyncio.to_thread(desk.call, "user:oli", "GET", f"/v1/pendings/{pending}/receipt")
    if answer.status_code == 409:
        return None
    payload = answer.raise_for_status().json()["receipt"].split(".")[1]
    content: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return content


@pytest.mark.parametrize("requester", ["user:both", "service:both"])
def test_a_rule_is_approved_by_neither_proposer_nor_requester(desk: Desk, requester: str) -> None:
    pending = desk.gate(desk.start(5000, who=requester))["id"]
    desk.decide(pending, "user:cat")
    rule = desk.propose(pending=pending).json()
    gate = desk.gate(rule["run_id"], "approved")
    assert desk.decide(gate["id"], "user:ann").status_code == 403
    assert desk.decide(gate["id"], requester).status_code == 403
    assert desk.decide(gate["id"], "user:bob").status_code == 200


def test_a_requester_proposes_no_rule_and_benefits_from_none_of_theirs(desk: Desk) -> None:
    pending = desk.gate(desk.start(5000, who="user:both"))["id"]
    desk.decide(pending, "user:cat")
    refusal = desk.propose(who="user:both", pending=pending)
    assert (refusal.status_code, refusal.json()["code"]) == (403, "rule_requester")
    rule = desk.approved(who="user:both")
    assert rule["status"] == "active"
    assert desk.gate(desk.start(50, who="user:both"))["status"] == "open"
    assert desk.gate(desk.start(50))["status"] == "approve"


def test_a_rule_casts_no_vote_where_a_role_of_its_approver_is_excluded(desk: Desk) -> None:
    desk.publish("walled_pay", more=", exclude: [requester, role:operator]")
    rule = desk.approved(voters=("user:both",), every_workflow=True)
    assert rule["status"] == "active"
    assert desk.gate(desk.start(50, workflow="walled_pay"))["status"] == "open"
    assert desk.gate(desk.start(50))["status"] == "approve"


LOSSES: Final = {
    "the key": "revoked_at = now()",
    "the role that is asked": "roles = '{decider}'",
    "what is not excluded": "roles = roles || '{auditor}'",
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_rule_casts_no_vote_for_whom_may_not_decide_any_more(desk: Desk, loss: str) -> None:
    desk.publish("audited_pay", more=", exclude: [requester, role:auditor]")
    leaver = unique("user:leaver")
    ROLES[leaver] = ["decider", "boss"]
    rule = desk.approved(voters=(leaver,), every_workflow=True)
    assert desk.gate(desk.start(50, workflow="audited_pay"))["status"] == "approve", "until then it votes"
    asyncio.run(desk.fetch(f"UPDATE keys SET {LOSSES[loss]} WHERE principal = $1", leaver))
    assert desk.gate(desk.start(50, workflow="audited_pay"))["status"] == "open"
    assert desk.rule(rule["id"])["uses"] == 1


def test_agents_operators_and_limited_credentials_propose_none(desk: Desk) -> None:
    pending = desk.gate(desk.start(5000))["id"]
    desk.decide(pending, "user:cat")
    assert desk.propose(who="agent:bot", pending=pending).json()["code"] == "rule_forbidden"
    assert desk.propose(who="user:oli", pending=pending).json()["code"] == "right_missing"


def test_a_rule_is_revoked_while_a_run_waits_and_the_next_gate_asks(desk: Desk) -> None:
    rule = desk.approved()
    run = desk.start(500, then=50)
    first = desk.gate(run)
    assert first["status"] == "open"
    assert desk.revoke(rule).json()["status"] == "revoked"
    assert desk.revoke(rule).json()["code"] == "rule_over"
    assert desk.decide(first["id"], "user:cat").status_code == 200
    assert desk.gate(run, "again")["status"] == "open"
    assert desk.rule(rule["id"])["uses"] == 0


def test_a_rule_that_one_process_revokes_votes_in_no_other(desk: Desk) -> None:
    with serving(desk.dsn, environment=KEYS) as server:
        other = desk._replace(server=server)
        rule = desk.approved()
        first = other.gate(other.start(50))["id"]
        asyncio.run(until(lambda: other.pending(first)["status"] == "approve"))
        with ThreadPoolExecutor(8) as threads:
            early = [threads.submit(each.start, 50) for each in (desk, other) * 4]
            revoked = threads.submit(desk.revoke, rule).result().json()
            late = [threads.submit(each.start, 50) for each in (desk, other) * 4]
        gates = [desk.gate(run.result()) for run in early]
        assert {desk.gate(run.result())["status"] for run in late} == {"open"}
        after = desk.rule(rule["id"])
        assert after["uses"] == 1 + [gate["status"] for gate in gates].count("approve")
        assert all(use["at"] <= revoked["ended_at"] for use in after["last_uses"])


def test_of_runs_at_once_exactly_one_has_the_last_use(desk: Desk) -> None:
    rule = desk.approved(uses=1)
    with ThreadPoolExecutor(8) as threads:
        runs = list(threads.map(lambda _: desk.start(50), range(8)))
    statuses = [desk.gate(run)["status"] for run in runs]
    assert sorted(statuses) == ["approve", *["open"] * 7]
    after = desk.rule(rule["id"])
    assert (after["status"], after["uses"], len(after["last_uses"])) == ("used_up", 1, 1)


def test_uses_are_counted_anew_in_each_period(desk: Desk) -> None:
    rule = desk.approved(uses=1, every="1h")
    assert [desk.gate(desk.start(50))["status"] for _ in range(2)] == ["approve", "open"]
    asyncio.run(
        desk.fetch("UPDATE rules SET period_began = period_began - interval '1 hour' WHERE id = $1", rule["id"])
    )
    assert [desk.gate(desk.start(50))["status"] for _ in range(2)] == ["approve", "open"]
    assert desk.rule(rule["id"])["uses"] == 2


def test_a_rule_is_over_at_its_very_instant(desk: Desk) -> None:
    rule = desk.approved()
    asyncio.run(desk.fetch("UPDATE rules SET until = clock_timestamp() WHERE id = $1", rule["id"]))
    assert desk.gate(desk.start(50))["status"] == "open"
    assert desk.rule(rule["id"])["status"] == "expired"


def test_what_a_killed_process_has_left_is_done_by_another_and_only_once(desk: Desk) -> None:
    run = desk.start(50)
    gate = desk.gate(run)
    assert gate["status"] == "open"
    rule = desk.approved()
    left = """
    INSERT INTO outbox (run_id, last_seq, n, tenant, kind, target, body)
    SELECT id, seq, g, tenant, 'consult_rules', id::text, convert_to($2, 'UTF8') FROM runs, generate_series(1, 3) g
    WHERE id = $1::text::uuid
    """
    asyncio.run(desk.fetch(left, run, f'{{"id": "{gate["id"]}"}}'))
    decided = asyncio.run(until(lambda: desk.pending(gate["id"])["status"] == "approve"))
    assert decided
    desk.gate(run)
    assert desk.rule(rule["id"])["uses"] == 1


def test_a_tool_that_is_declared_otherwise_is_asked_about_anew(desk: Desk) -> None:
    desk.publish("changing")
    pending = desk.gate(desk.start(5000, workflow="changing"))["id"]
    desk.decide(pending, "user:cat")
    desk.approved(pending=pending)
    assert desk.gate(desk.start(50, workflow="changing"))["status"] == "approve"
    desk.publish("changing", 2, effect="external")
    assert desk.gate(desk.start(50, workflow="changing"))["status"] == "open"


def test_a_never_refuses_and_an_allow_beside_it_does_nothing(desk: Desk) -> None:
    allow = desk.approved()
    never = desk.approved(kind="never", when="args.arguments.amount == 13.0")
    refused = desk.gate(desk.start(13))
    (vote,) = refused["value"]["votes"]
    assert (refused["status"], vote["by"], vote["rule"]) == ("reject", f"rule:{never['id']}", never["id"])
    assert desk.gate(desk.start(14))["status"] == "approve"
    assert (desk.rule(allow["id"])["uses"], desk.rule(never["id"])["uses"]) == (1, 1)


def test_a_rule_of_a_newer_release_is_listed_and_casts_no_vote(desk: Desk) -> None:
    strange = """UPDATE rules SET body = convert_to(replace(convert_from(body, 'UTF8'), '{"id"', '{"at":"noon","id"'),
      'UTF8') WHERE id = $1"""
    rule = desk.approved()
    asyncio.run(desk.fetch(strange, rule["id"]))
    assert desk.gate(desk.start(50))["status"] == "open"
    listed = {each["id"]: each for each in desk.call("user:oli", "GET", "/v1/rules").json()["items"]}
    assert (listed[rule["id"]]["status"], listed[rule["id"]]["approved_by"]) == ("active", [])
    assert listed[rule["id"]]["reason"].startswith("a newer release wrote this rule")
    desk.approved(when="args.arguments.amount < 90.0")
    assert desk.gate(desk.start(50))["status"] == "approve", "one that allows forbids nothing"
    never = desk.approved(kind="never", when="args.arguments.amount == 13.0")
    asyncio.run(desk.fetch(strange, never["id"]))
    assert desk.gate(desk.start(50))["status"] == "open", "one that forbids may forbid this"


def test_a_quorum_of_two_takes_a_rule_that_two_approved(desk: Desk) -> None:
    desk.publish("pair", more=", quorum: 2")
    pending = desk.gate(desk.start(5000, workflow="pair"))["id"]
    desk.decide(pending, "user:cat")
    desk.approved(("user:bob", "user:cat"), pending=pending)
    assert desk.gate(desk.start(50, workflow="pair"))["status"] == "approve"


def test_a_rule_that_is_refused_is_none(desk: Desk) -> None:
    rule = desk.propose().json()
    gate = desk.gate(rule["run_id"], "approved")
    desk.decide(gate["id"], "user:bob", "reject")
    asyncio.run(until(lambda: desk.rule(rule["id"])["status"] == "refused"))
    assert desk.gate(desk.start(50))["status"] == "open"


def test_the_same_idempotency_key_is_the_same_proposal(desk: Desk) -> None:
    pending = desk.gate(desk.start(5000))["id"]
    assert desk.decide(pending, "user:cat").status_code == 200
    headers = {"Idempotency-Key": unique("k")}
    body = {"pending_id": pending, "when": SMALL, "until": later(days=1), "reason": "small amounts"}
    with desk.people.hold_up("rules", 1), ThreadPoolExecutor() as threads:  # the other one waits for its run
        answers = list(
            threads.map(lambda _: desk.call("user:ann", "POST", "/v1/rules", json=body, headers=headers), range(2))
        )
    answers.append(desk.call("user:ann", "POST", "/v1/rules", json=body, headers=headers))
    assert [each.status_code for each in answers] == [201, 201, 201]
    (id,) = {each.json()["id"] for each in answers}
    audit = desk.call("user:aud", "GET", f"/v1/audit?subject=rule:{id}").json()["items"]
    assert [each["act"] for each in audit] == ["rule.proposed"]
    other = desk.call("user:ann", "POST", "/v1/rules", json=body | {"reason": "another"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "command_id_reused")


def test_no_rule_is_proposed_about_which_nobody_is_asked(desk: Desk) -> None:
    """A server dies while it stores the proposal; the same request to another one asks people."""
    pending = desk.gate(desk.start(5000))["id"]
    assert desk.decide(pending, "user:cat").status_code == 200
    body = {"pending_id": pending, "when": SMALL, "until": later(days=1), "reason": unique("dies")}
    headers = {**desk.people.person("user:ann", roles=ROLES["user:ann"]), "Idempotency-Key": unique("k")}
    stored = "SELECT EXISTS (SELECT FROM runs WHERE id = run_id) FROM rules WHERE position($1::bytea IN body) > 0"
    commits = """
    SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.relation = 'runs'::regclass AND NOT l.granted AND a.query LIKE '%claimant%'
    """

    async def kill(connection: asyncpg.Connection) -> None:
        async with connection.transaction():
            await connection.execute("LOCK TABLE runs IN EXCLUSIVE MODE")
            requests.append(
                threads.submit(httpx2.post, f"{dying.url}/v1/rules", json=body, headers=headers, timeout=60)
            )
            await until(lambda: desk.fetch(commits))
            dying.kill()

    requests: list[Future[httpx2.Response]] = []
    with serving(desk.dsn, environment=KEYS) as dying, ThreadPoolExecutor() as threads:
        desk.people.do(kill)
        assert isinstance(requests[0].exception(), httpx2.HTTPError), requests[0].result().text
    assert [row[0] for row in asyncio.run(desk.fetch(stored, body["reason"].encode()))] in ([], [True])
    again = httpx2.post(f"{desk.server.url}/v1/rules", json=body, headers=headers, timeout=60)
    assert (again.status_code, again.json()["status"]) == (201, "proposed"), again.text
    assert desk.gate(again.json()["run_id"], "approved")["status"] == "open"


def test_the_rules_of_another_tenant_are_not_there(desk: Desk) -> None:
    rule = desk.approved()
    people = desk.people.person("user:oli", roles=["operator"], tenant="acme")
    url = f"{desk.server.url}/v1/rules"
    assert httpx2.get(url, headers=people).json()["items"] == []
    assert httpx2.get(f"{url}/{rule['id']}", headers=people).status_code == 404
    assert httpx2.post(f"{url}/{rule['id']}/revoke", json={}, headers=people).status_code == 404
    assert desk.rule(rule["id"])["status"] == "active"


@pytest.mark.parametrize(
    "wrong",
    [
        {"when": "input.amount > 1"},
        {"when": "'x'"},
        {"when": "true) || (true"},
        {"when": "args.x.map(a, args.x.map(b, a)"},
        {"when": None},
        {"arguments": {"amount": {"max": "5"}}},
        {"arguments": {"amount": {"in": []}}},
        {"arguments": {"amount": {"equals": {"a": 1}}}},
        {"until": "2020-01-01T00:00:00Z"},
        {"until": "2999-01-01T00:00:00Z"},
        {"every": "1d"},
        {"uses": 1, "every": "1s"},
        {"kind": "never", "uses": 3},
        {"reason": ""},
        {"from": ["anyone"]},
    ],
)
def test_a_proposal_that_is_none_is_refused(desk: Desk, wrong: dict[str, Any]) -> None:
    pending = desk.gate(desk.start(5000))["id"]
    desk.decide(pending, "user:cat")
    expect(desk.propose(pending=pending, **wrong), 422)


def test_the_commands_propose_list_show_and_revoke_a_rule(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAI_FLOW_URL", desk.server.url)

    def run(who: str, *arguments: str) -> str:
        key = desk.people.person(who, roles=ROLES[who], tenant="default")["Authorization"].removeprefix("Bearer ")
        monkeypatch.setenv("HAI_FLOW_KEY", key)
        result = CliRunner().invoke(app, ["rules", *arguments], terminal_width=200)
        assert result.exit_code == 0, result.output
        return result.output

    pending = desk.gate(desk.start(5000))["id"]
    assert desk.decide(pending, "user:cat").status_code == 200
    proposed = run(
        "user:ann",
        "propose",
        pending,
        "--for",
        "1d",
        "--when",
        SMALL,
        "--reason",
        "small ones",
        "--uses",
        "3",
        "--json",
    )
    rule = desk.approve(json.loads(proposed))
    assert rule["id"] in run("user:oli", "list")
    assert SMALL in run("user:oli", "show", rule["id"])
    run("user:oli", "revoke", rule["id"], "--reason", "a drill")
    assert rule["id"] not in run("user:oli", "list")
    assert "revoked" in run("user:oli", "list", "--all")


def test_a_workflow_that_asks_less_puts_no_rule_in_force(desk: Desk) -> None:
    desk = desk._replace(tenant="hollow")
    desk.publish()
    pending = desk.gate(desk.start(5000, who="user:both"))["id"]
    assert desk.decide(pending, "user:cat").status_code == 200
    assert desk.approved(pending=pending)["status"] == "active"  # which publishes version 1
    source = HOLLOW.format(version=2, rule="input.rule")
    expect(desk.call("user:pat", "POST", "/v1/workflows", content=source, headers=YAML), 201)
    until_then = later(days=1)
    delegation = {"to": "user:del", "until": until_then}
    assert desk.call("user:both", "POST", "/v1/inbox/delegations", json=delegation).status_code == 201

    def approved_by(who: str, **more: Any) -> tuple[str, str]:
        rule = expect(desk.propose(pending=pending), 201).json()
        expect(desk.decide(desk.gate(rule["run_id"], "approved")["id"], who, **more), 200)
        asyncio.run(until(lambda: desk.rule(rule["id"])["status"] != "proposed"))
        after = desk.rule(rule["id"])
        return after["status"], after["ended_why"] or ""

    too_few = ("refused", "it takes 1 who neither propose it nor profit from it, and 0 have approved it")
    assert approved_by("user:ann") == too_few, "who proposes it"
    assert approved_by("user:both") == too_few, "who asked for the call"
    assert approved_by("user:del", on_behalf_of="user:both") == too_few, "for whoever asked for the call"
    assert approved_by("agent:bot") == too_few, "no person"
    assert approved_by("user:bob")[0] == "active"
    source = HOLLOW.format(version=3, rule="{'kind': 'allow', 'tool': 'built_in.grant'}")
    assert desk.call("user:pat", "POST", "/v1/workflows", content=source, headers=YAML).status_code == 201
    assert approved_by("user:bob") == ("refused", "what was approved is not the rule that was proposed")


async def test_each_item_branch_child_call_and_repeated_step_uses_a_rule_once(
    postgres_server: Server, tmp_path: Path
) -> None:
    grant = '{"action": "pay", "arguments": {"amount": 50}}'
    async with FakeModels(spoken(Answer("Well.", calls=(("grant", grant),))), spoken(Answer("Done."))) as fake:
        models = tmp_path / "models.yaml"
        models.write_text(
            f"hai: models/v1\nmodels:\n  smart: {{provider: vllm, base_url: '{fake.url}', model: small}}\n"
        )
        environment = {**KEYS, "HAI_FLOW_MODELS": str(models)}
        with postgres_server.database() as dsn, serving(dsn, environment=environment) as server:
            await asyncio.to_thread(_use_everywhere, Desk(server, People(dsn), dsn))


def _use_everywhere(desk: Desk) -> None:
    for source in (BELOW, PLACES):
        expect(desk.call("user:pat", "POST", "/v1/workflows", content=source, headers=YAML), 201)
    body = {"workflow": "below"}
    pending = desk.gate(desk.call("user:oli", "POST", "/v1/runs", json=body).json()["id"])["id"]
    assert desk.decide(pending, "user:cat").status_code == 200
    rule = desk.approved(pending=pending, every_workflow=True, uses=8)

    def wait_for(run: str, *paths: str) -> None:
        """Until these are the questions that wait in the run."""
        query = "SELECT path FROM pendings WHERE run_id = $1 AND status = 'open' ORDER BY path"

        async def is_waiting() -> bool:
            return [row["path"] for row in await desk.fetch(query, run)] == list(paths)

        asyncio.run(until(is_waiting))

    run = desk.call("user:oli", "POST", "/v1/runs", json={"workflow": "places"}).json()["id"]
    wait_for(run, "sure")
    after = desk.rule(rule["id"])
    assert (after["uses"], len(after["last_uses"])) == (7, 7)
    fork = desk.call("user:oli", "POST", f"/v1/runs/{run}/fork", json={"step": "child"}).json()["id"]
    wait_for(fork, "sure")
    after = desk.rule(rule["id"])
    assert (after["status"], after["uses"], len(after["last_uses"])) == ("used_up", 8, 8)
    wait_for(
        desk.call("user:oli", "POST", f"/v1/runs/{run}/fork", json={"step": "both"}).json()["id"],
        "both/left/left",
        "both/right/right",
    )
