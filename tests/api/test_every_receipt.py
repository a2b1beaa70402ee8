"""A receipt of each way in which a question is decided, held against the ledger of what has happened in the world."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode as b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

import httpx2
import pytest

from clients.receipts.verify_receipt import verify
from hai_flow.api.auth.sessions import COOKIE, derive_csrf, sign_link_token
from hai_flow.runtime.people.receipts import make_key
from hai_flow.runtime.runtime import LOCAL_TENANT
from tests.api.test_receipts import holds_in_typescript
from tests.attacks.doors import DOORS, EVERYWHERE, Answer
from tests.attacks.test_delegations import session_in
from tests.support import effects
from tests.support.chats import SlackPlatform
from tests.support.chats.world import Asked, Chat, settings_of
from tests.support.examples import sample
from tests.support.hai_client import unique
from tests.support.mcp_caller import NOTHING, Caller
from tests.support.postgres import Server, execute, run_apart
from tests.support.receivers import Mailbox, mail_server
from tests.support.server import YAML, expect, serving
from tests.support.waiting import wait_for

BOSS: Final = ("requester", "decider", "boss")
PAYS: Final = """
hai: flow/v1
name: {name}
version: {version}
input: {{type: object, properties: {{mark: {{type: string, default: x}}, n: {{type: integer, default: 7}}}}}}
tools:
  fx: {{python: tests.support.effects, effect: write}}
  show:
    effect: write
    frontend: {{description: Show., parameters: {{type: object, required: [n], properties: {{n: {{}}}}}}}}
steps:
  - id: {step}
    {verb}
    {approval}: {{title: "Pay ${{{{ input.mark }}}}?", from: [role:boss], deadline: {deadline}{more}}}
{rest}"""
CALL: Final = 'call: fx.note\n    with: {n: "${{ input.n }}"}'
REFUSED: Final = "    on_reject: [{return: null}]\n"
LATER: Final = "  - {id: later, ask: {title: Later?, from: anyone, form: {type: object}}}\n"
FAILS: Final = "  - {id: fails, call: fx.breaks}\n"

Vote: TypeAlias = tuple[str, str | None, str]
"""By whom, for whom, and the way."""


class Proven(NamedTuple):
    """What the receipt of the question `id` has to say. `effects`: how often the ledger has its call."""

    id: str
    run: str
    votes: list[Vote]
    effects: int = 1
    outcome: str = "approve"
    executed: int | None = None
    """How many attempts it has, where that is another number."""


class Desk(Chat):
    """A server with identity, receipts, mails and a chat, and what its people do with a question."""

    box: Mailbox

    def __init__(self, *made: Any) -> None:
        super().__init__(*made)
        self.api, self.url = self.http, self.server.url
        self.req, self.ann, self.bob = (
            self.people.person(f"user:{each}", roles=BOSS) for each in ("req", "ann", "bob")
        )
        self.friend = self.people.person("user:friend", roles=["requester", "decider"])
        self.chief = self.people.person("user:chief", roles=["decider", "chief"])
        self.admin = self.people.person("user:root", roles=["admin"])
        self.publisher = self.people.person("user:pat", roles=["publisher"])

    def publish(self, name: str = "", *, version: int = 1, **parts: Any) -> str:
        name = name or unique("pays")
        text = {
            "step": "pay",
            "verb": CALL,
            "approval": "approval",
            "deadline": "1d",
            "more": "",
            "rest": REFUSED,
            **parts,
        }
        source = PAYS.format(name=name, version=version, **text)
        expect(self.api.post("/v1/workflows", content=source, headers={**YAML, **self.publisher}), 201)
        return name

    def start(self, name: str, **input: Any) -> dict[str, Any]:
        """The question of a new run, with the thread of the run."""
        body = {"workflow": name, "thread_id": unique("t"), "input": input}
        run = expect(self.api.post("/v1/runs", json=body, headers=self.req), 201)
        return {**self.find_question(run.json()["id"]), "thread": body["thread_id"], "workflow": name}

    def publish_and_ask(self, **parts: Any) -> dict[str, Any]:
        """The question of a run of a workflow of these parts."""
        return self.start(self.publish(**parts))

    def find_question(self, run: str, count: int = 1) -> dict[str, Any]:
        found = wait_for(
            lambda: self.api.get("/v1/pendings", params={"run_id": run}, headers=self.operator).json()["items"]
        )
        assert len(found) == count
        return dict(found[0])

    def wait_for(self, run: str, *statuses: str) -> None:
        path = f"/v1/runs/{run}"
        wait_for(lambda: self.api.get(path, headers=self.operator).json()["status"] in statuses)

    def decide(self, item: dict[str, Any], who: dict[str, str], decision: str = "approve", **more: Any) -> None:
        path = f"/v1/pendings/{item['id']}/decide"
        expect(self.api.post(path, json={"decision": decision, **more}, headers=who), 200)

    def act(self, route: str, who: dict[str, str], **body: Any) -> dict[str, Any]:
        answer = self.api.post(route, json=body, headers=who)
        assert answer.is_success, answer.text
        return dict(answer.json())

    def receipt(self, id: str) -> httpx2.Response:
        """The answer with the receipt, once nothing follows any more."""
        path = f"/v1/pendings/{id}/receipt"
        return wait_for(
            lambda: (found := self.api.get(path, headers=self.operator)).json().get("code") != "receipt_early" and found
        )

    def count_effects(self, run: str, path: str = "pay") -> int:
        query = "SELECT count(*) AS n FROM effects WHERE run_id = $1::uuid AND path = $2"
        return int(self.fetch(query, run, path)[0]["n"])


@pytest.fixture(scope="module")
def desk(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder, platform = tmp_path_factory.mktemp("desk"), SlackPlatform()
    make_key(folder / "keys.json")
    with ExitStack() as stack:
        stack.enter_context(platform.serving())
        box = stack.enter_context(mail_server())
        environment = {**settings_of(platform, folder), "HAI_FLOW_RECEIPT_KEYS": str(folder / "keys.json")}
        file = folder / "notify.json"
        notify = json.loads(file.read_text())
        mail = {"kind": "email", "host": "127.0.0.1", "port": box.port, "security": "none", "from": "F <f@example.com>"}
        notify["channels"]["email"] = mail
        notify["people"]["user:ann"]["email"] = "ann@example.com"
        file.write_text(json.dumps(notify))
        dsn = stack.enter_context(postgres_server.database())
        run_apart(execute(dsn, effects.LEDGER))
        server = stack.enter_context(serving(dsn, environment=environment))
        http = stack.enter_context(httpx2.Client(base_url=server.url, timeout=30))
        desk = Desk(platform, server, dsn, http)
        desk.box = box
        yield desk


Case: TypeAlias = Callable[[Desk], Proven]
CASES: Final[dict[str, Case]] = {}


def case(build: Case) -> Case:
    CASES[build.__name__.strip("_").replace("_", " ")] = build
    return build


# --- ways -------------------------------------------------------------------------------------------------------------

WAYS: Final = {"HAI": "hai", "AG-UI": "agui", "CopilotKit": "agui", "AUI": "aui", "AUI's socket": "aui",
               "Agent API": "agent-api"}  # fmt: skip


def through(door: str) -> Case:
    def build(desk: Desk) -> Proven:
        item = desk.publish_and_ask()
        answer = Answer(desk.ann, item["thread"], item["id"], item["workflow"])
        assert DOORS[door](desk, answer)[0] == 200  # type: ignore[arg-type]
        return Proven(item["id"], item["run_id"], [("user:ann", None, WAYS.get(door, "rest"))])

    return build


CASES.update({f"over {door}": through(door) for door in EVERYWHERE})


@case
def console(desk: Desk) -> Proven:
    item = desk.publish_and_ask()
    token = desk.people.do(lambda connection: sign_link_token(connection, LOCAL_TENANT, "user:ann", BOSS, []))
    session = session_in(desk.api.post(f"/sign-in/link/{token}"))
    own = {"Origin": desk.url, "Sec-Fetch-Site": "same-origin"}
    with httpx2.Client(base_url=desk.url) as browser:
        page = {"Cookie": f"{COOKIE}={session}", "HAI-CSRF": derive_csrf(session), **own}
        path = f"/v1/pendings/{item['id']}/decide"
        assert browser.post(path, json={"decision": "approve"}, headers=page).status_code == 200
    desk.api.cookies.clear()
    return Proven(item["id"], item["run_id"], [("user:ann", None, "rest")])


@case
def mailed_link(desk: Desk) -> Proven:
    item = desk.publish_and_ask(more=", notify: [email]")
    params = {"run_id": item["run_id"], "status": "sent"}
    (sent,) = wait_for(lambda: desk.api.get("/v1/notifications", params=params, headers=desk.operator).json()["items"])
    (mail,) = [each for each in desk.box.mails if each["Message-ID"] == f"<{sent['id']}@hai-flow>"]
    (link,) = re.findall(r"/links/\S+", str(mail.get_payload()))
    page = desk.api.get(link)
    digest = re.search(r'name="digest" value="([0-9a-f]+)"', page.text)
    assert digest is not None
    assert desk.api.post(link, data={"decision": "approve", "digest": digest[1]}).status_code == 200
    return Proven(item["id"], item["run_id"], [("user:ann", None, "link")])


@case
def chat_button(desk: Desk) -> Proven:
    mark = unique("m")
    item = desk.start(desk.publish(more=", notify: [chat]"), mark=mark)
    assert "Recorded" in Asked(desk, item["run_id"], mark).press("Approve", desk.platform.ann)
    return Proven(item["id"], item["run_id"], [("user:ann", None, "chat")])


@case
def over_mcp(desk: Desk) -> Proven:
    item = desk.publish_and_ask()
    Caller(desk.api, NOTHING, **desk.ann).call("answer", {"question_id": item["id"], "decision": "approve"})
    return Proven(item["id"], item["run_id"], [("user:ann", None, "mcp")])


@case
def over_a2a(desk: Desk) -> Proven:
    item = desk.publish_and_ask()
    part = {"data": {"hai.pending": {"id": item["id"], "decision": "approve"}}}
    message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [part], "taskId": item["run_id"]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    path = f"/workflows/{item['workflow']}/a2a"
    answered = desk.api.post(path, json=body, headers={"A2A-Version": "1.0", **desk.ann}).json()
    assert "result" in answered, answered
    return Proven(item["id"], item["run_id"], [("user:ann", None, "a2a")])


@case
def bulk(desk: Desk) -> Proven:
    item = desk.publish_and_ask()
    desk.act("/v1/inbox/decide", desk.ann, items=[{"id": item["id"], "decision": "approve"}])
    return Proven(item["id"], item["run_id"], [("user:ann", None, "rest")])


@case
def foreign_approval_consumed(desk: Desk) -> Proven:
    """The call is the foreign agent's: the ledger is what it has consumed."""
    body = {"action": "transfer", "arguments": {"to": "DE-1"}, "policy": {"from": ["role:boss"]}}
    asked = desk.act("/v1/approvals", desk.req, **body)
    item = desk.find_question(asked["id"])
    desk.decide(item, desk.ann)
    wait_for(lambda: desk.api.get(f"/v1/approvals/{asked['id']}", headers=desk.req).json()["status"] == "approved")
    desk.act(f"/v1/approvals/{asked['id']}/consume", desk.req, digest=asked["digest"])
    return Proven(item["id"], asked["id"], [("user:ann", None, "rest")], effects=0, executed=1)


# --- who --------------------------------------------------------------------------------------------------------------


@case
def standing_rule(desk: Desk) -> Proven:
    name = desk.publish()
    item = desk.start(name, n=1)
    desk.decide(item, desk.ann)
    until = (datetime.now(UTC) + timedelta(days=9)).isoformat()
    rule = {"pending_id": item["id"], "when": "args.n < 50", "until": until, "reason": "small ones"}
    proposed = desk.act("/v1/rules", desk.ann, **rule)
    desk.decide(desk.find_question(proposed["run_id"]), desk.bob)
    wait_for(lambda: desk.api.get(f"/v1/rules/{proposed['id']}", headers=desk.operator).json()["status"] == "active")
    body = {"workflow": name, "input": {"n": 2}}
    run = desk.act("/v1/runs", desk.req, **body)["id"]
    desk.wait_for(run, "finished")
    (row,) = desk.fetch("SELECT id FROM pendings WHERE run_id = $1::uuid", run)
    return Proven(row["id"], run, [("user:bob", None, "rule")])


@case
def delegate(desk: Desk) -> Proven:
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    desk.act("/v1/inbox/delegations", desk.bob, to="user:friend", until=until)
    item = desk.publish_and_ask()
    desk.decide(item, desk.friend, on_behalf_of="user:bob")
    return Proven(item["id"], item["run_id"], [("user:friend", "user:bob", "rest")])


@case
def delegate_of_an_absence(desk: Desk) -> Proven:
    away = f"user:{unique('away')}"
    who, day = desk.people.person(away, roles=BOSS), datetime.now(UTC).date()
    desk.act("/v1/absences", who, first_day=f"{day}", last_day=f"{day + timedelta(days=1)}", delegate="user:friend")
    item = desk.publish_and_ask()
    desk.decide(item, desk.friend, on_behalf_of=away)
    return Proven(item["id"], item["run_id"], [("user:friend", away, "rest")])


@case
def picked(desk: Desk) -> Proven:
    item = desk.publish_and_ask(more=", pick: 1")
    path = f"/v1/pendings/{item['id']}"
    policy = wait_for(lambda: desk.api.get(path, headers=desk.operator).json()["policy"].get("picked"))
    who = desk.people.person(policy[0], roles=BOSS)
    desk.decide(item, who)
    return Proven(item["id"], item["run_id"], [(policy[0], None, "rest")])


@case
def escalated(desk: Desk) -> Proven:
    stages = ", on_deadline: [{escalate: {from: [role:chief], deadline: 9d}}, reject]"
    item = desk.publish_and_ask(deadline="1s", more=stages)
    path = f"/v1/pendings/{item['id']}"
    wait_for(lambda: desk.api.get(path, headers=desk.chief).is_success)
    desk.decide(item, desk.chief)
    return Proven(item["id"], item["run_id"], [("user:chief", None, "rest")])


@case
def quorum_of_two(desk: Desk) -> Proven:
    item = desk.publish_and_ask(more=", quorum: 2")
    desk.decide(item, desk.ann)
    desk.decide(item, desk.bob)
    return Proven(item["id"], item["run_id"], [("user:ann", None, "rest"), ("user:bob", None, "rest")])


# --- ends -------------------------------------------------------------------------------------------------------------


@case
def denied(desk: Desk) -> Proven:
    item = desk.publish_and_ask()
    desk.decide(item, desk.ann, "reject")
    return Proven(item["id"], item["run_id"], [("user:ann", None, "rest")], 0, "reject")


@case
def edited(desk: Desk) -> Proven:
    item = desk.publish_and_ask(more=", edit: [n]")
    desk.decide(item, desk.ann, edits={"n": 3})
    return Proven(item["id"], item["run_id"], [("user:ann", None, "rest")])


@case
def expired(desk: Desk) -> Proven:
    item = desk.publish_and_ask(deadline="1s", more=", on_deadline: [reject]")
    return Proven(item["id"], item["run_id"], [], 0, "expired")


@case
def cancelled(desk: Desk) -> Proven:
    item = desk.publish_and_ask(more=", quorum: 2")
    desk.decide(item, desk.ann)
    desk.act(f"/v1/runs/{item['run_id']}/stop", desk.operator)
    return Proven(item["id"], item["run_id"], [("user:ann", None, "rest")], 0, "voided")


@case
def stopped_behind_the_call(desk: Desk) -> Proven:
    item = desk.publish_and_ask(rest=REFUSED + LATER)
    desk.decide(item, desk.ann)
    desk.find_question(item["run_id"])
    desk.act(f"/v1/runs/{item['run_id']}/stop", desk.operator)
    desk.wait_for(item["run_id"], "stopped")
    return Proven(item["id"], item["run_id"], [("user:ann", None, "rest")])


@case
def undone(desk: Desk) -> Proven:
    item = desk.publish_and_ask(rest="    undo: {call: fx.note, with: {n: 0}}\n" + REFUSED + FAILS)
    desk.decide(item, desk.ann)
    desk.wait_for(item["run_id"], "failed")
    return Proven(item["id"], item["run_id"], [("user:ann", None, "rest")])


@case
def retried(desk: Desk) -> Proven:
    """The call fails, and an operator has it made again."""
    item = desk.publish_and_ask(verb="call: fx.breaks")
    desk.decide(item, desk.ann)
    desk.wait_for(item["run_id"], "failed")
    desk.act(f"/v1/runs/{item['run_id']}/retry", desk.operator)
    desk.wait_for(item["run_id"], "failed", "waiting")
    return Proven(item["id"], item["run_id"], [("user:ann", None, "rest")], 0, executed=1)


@case
def migrated(desk: Desk) -> Proven:
    item = desk.publish_and_ask(more=", quorum: 2")
    desk.decide(item, desk.ann)
    desk.publish(item["workflow"], version=2, more=", quorum: 2", rest=REFUSED + "  - {say: Paid.}\n")
    body = {"from": "1", "to": "2", "runs": [item["run_id"]]}
    moved = desk.act(f"/v1/workflows/{item['workflow']}/migrate", desk.operator, **body)
    assert moved["runs"][0]["moved"], str(moved["runs"][0]["obstacles"])
    desk.decide(item, desk.bob)
    content = json.loads(b64decode(desk.receipt(item["id"]).json()["receipt"].split(".")[1] + "=="))
    (move,) = content["moves"]
    assert (move["workflow"]["version"], content["question"]["workflow"]["version"]) == (2, 1)
    assert [each["digest"] == move["digest"] for each in content["votes"]] == [False, True]
    return Proven(item["id"], item["run_id"], [("user:ann", None, "rest"), ("user:bob", None, "rest")])


@case
def fork_from_before_the_decision(desk: Desk) -> Proven:
    item = desk.publish_and_ask(more=", quorum: 2")
    desk.decide(item, desk.ann)
    seq = desk.api.get(f"/v1/runs/{item['run_id']}", headers=desk.operator).json()["seq"]
    fork = desk.act(f"/v1/runs/{item['run_id']}/fork", desk.operator, at=seq)["id"]
    asked = desk.find_question(fork)
    desk.decide(asked, desk.bob)
    desk.decide(asked, desk.ann)
    return Proven(asked["id"], fork, [("user:bob", None, "rest"), ("user:ann", None, "rest")])


# --- kinds ------------------------------------------------------------------------------------------------------------


@case
def approve(desk: Desk) -> Proven:
    item = desk.publish_and_ask(verb="", approval="approve", more=", evidence: {why: so}")
    desk.decide(item, desk.ann)
    return Proven(item["id"], item["run_id"], [("user:ann", None, "rest")], 0)


@case
def ask(desk: Desk) -> Proven:
    item = desk.publish_and_ask(verb="", approval="ask", more=", form: {type: object, properties: {size: {}}}", rest="")
    path = f"/v1/pendings/{item['id']}/decide"
    assert desk.api.post(path, json={"values": {"size": "S"}}, headers=desk.ann).status_code == 200
    return Proven(item["id"], item["run_id"], [], 0, "answered")


@case
def child(desk: Desk) -> Proven:
    name = desk.publish()
    source = f"hai: flow/v1\nname: {unique('above')}\nversion: 1\nsteps: [{{id: sub, run: {name}}}]\n"
    above = desk.api.post("/v1/workflows", content=source, headers={**YAML, **desk.publisher}).json()["name"]
    run = desk.act("/v1/runs", desk.req, workflow=above)["id"]
    query = "SELECT p.id, p.run_id FROM pendings p JOIN runs r ON r.id = p.run_id WHERE r.parent_id = $1::uuid"
    (row,) = wait_for(lambda: desk.fetch(query, run))
    desk.decide({"id": row["id"]}, desk.ann)
    return Proven(row["id"], str(row["run_id"]), [("user:ann", None, "rest")])


@case
def frontend_tool(desk: Desk) -> Proven:
    item = desk.publish_and_ask(verb='call: show\n    with: {n: "${{ input.n }}"}')
    desk.decide(item, desk.ann)
    (call,) = wait_for(lambda: [each for each in [desk.find_question(item["run_id"])] if each["kind"] == "tool"])
    assert desk.api.post(f"/v1/pendings/{call['id']}/decide", json={"result": "done"}, headers=desk.req).is_success
    return Proven(item["id"], item["run_id"], [("user:ann", None, "rest")], 0, executed=1)


@case
def canary(desk: Desk) -> Proven:
    item = desk.publish_and_ask()
    desk.decide(item, desk.ann)
    body = {"workflow": item["workflow"], "path": "pay", "reason": "a drill", "arguments": {"n": 9}, "title": "Pay?"}
    seeded = desk.act("/v1/canaries", desk.admin, **body)
    asked = desk.find_question(seeded["run_id"])
    desk.decide(asked, desk.ann)
    return Proven(asked["id"], seeded["run_id"], [("user:ann", None, "rest")], 0, executed=1)


@pytest.mark.parametrize("name", sample(CASES, 5))
def test_the_receipt_of_each_way_agrees_with_the_ledger(desk: Desk, name: str, tmp_path: Any) -> None:
    proven = CASES[name](desk)
    answer = expect(desk.receipt(proven.id), 200)
    jwks = desk.api.get("/.well-known/jwks.json").text
    content = verify(answer.text, jwks)
    assert holds_in_typescript([answer.text], jwks, tmp_path) == [True]
    told = {key: each["text"] for key, each in json.loads(answer.text)["texts"].items()}

    def read(digest: dict[str, str] | None) -> str | None:
        return None if digest is None else told[digest["sha256"]]

    votes = [(read(each["by"]), read(each["on_behalf_of"]), each["via"]) for each in content["votes"]]
    assert (votes, content["decision"]["outcome"]) == (proven.votes, proven.outcome)
    assert all("role:" in str(list(map(read, each["matched"]))) for each in content["votes"])
    assert [each["via"] for each in content["votes"] if "rule" in each] == [way for *_, way in votes if way == "rule"]
    executed = [each for each in content["executed"] if each["error"] != "step.lost"]  # a slow machine lost its lease
    count = desk.count_effects(proven.run)
    assert (len(executed), count) == (count if proven.executed is None else proven.executed, proven.effects)
    assert all(each["arguments"] == content["decision"]["arguments"] for each in executed)
    assert all(each["outcome"] in ("finished", "failed") and each["ended_at"] for each in executed)
    signed = json.dumps(content)
    assert "user:" not in signed, "people stand in it as digests"


def test_a_fork_has_no_receipt_of_what_another_run_has_decided(desk: Desk) -> None:
    item = desk.publish_and_ask(rest=REFUSED + LATER)
    desk.decide(item, desk.ann)
    desk.find_question(item["run_id"])
    fork = desk.act(f"/v1/runs/{item['run_id']}/fork", desk.operator, step="later")["id"]
    events = desk.api.get(f"/v1/runs/{fork}/events", headers=desk.operator).json()["items"]
    (copied,) = [each["id"] for each in events if each["type"] == "pending_opened" and each["path"] == "pay"]
    answer = desk.receipt(copied)
    assert (answer.status_code, answer.json()["code"]) == (404, "receipt_elsewhere")
    assert len(verify(desk.receipt(item["id"]).text, desk.api.get("/.well-known/jwks.json").text)["executed"]) == 1
