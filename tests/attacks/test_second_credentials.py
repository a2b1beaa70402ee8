"""Doors that a requester tries with a second credential: of their agent, or of their own other id, by a link or a card
that was sent before they were behind the run, or by a standing rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx2
import pytest

from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.identity.erasure import forget
from tests.support.chats import Platform
from tests.support.chats.world import PLATFORMS, Asked, Chat, chatting
from tests.support.identities import KEYS, People, carried
from tests.support.postgres import Server
from tests.support.receivers import Mailbox, mail_server
from tests.support.server import YAML, expect, serving
from tests.support.waiting import wait_for

AGENT: Final = "agent:buyer"
BOSS: Final = ["requester", "decider", "boss", "operator"]
ACTING: Final = ["issuer", "requester", "decider", "operator"]
_HEARS: Final = """
hai: flow/v1
name: {name}
version: 1
input: {{type: object, properties: {{mark: {{type: string, default: x}}}}}}
steps:
  - id: both
    parallel:
      asks: [{{id: go, approve: {{title: "Go ${{{{ input.mark }}}}?", from: {asked}, notify: {notify}{more}}}}}]
      hears: [{{id: hear, wait_for: {{event: heard, deadline: 1d}}}}]
"""
_PAY: Final = """
hai: flow/v1
name: pay
version: 1
tools: {built_in: {python: hai_flow.steps.built_in, effect: write}}
steps:
  - id: paid
    call: built_in.grant
    with: {action: pay, arguments: {amount: 50}}
    approval: {from: "role:boss", deadline: 1d}
"""
FLOWS: Final = (
    _HEARS.format(name="named", asked=f"[role:boss, '{AGENT}']", notify="[]", more=""),
    _HEARS.format(name="of_anyone", asked="[anyone]", notify="[]", more=", exclude: [requester]"),
    _HEARS.format(name="mailed", asked="[role:boss]", notify="[email]", more=", quorum: 2"),
    _PAY,
)
_NOTIFY: Final = """
hai: notify/v1
url: http://127.0.0.1
channels:
  email: {kind: email, host: 127.0.0.1, port: PORT, security: none, from: "Flow <flow@example.com>"}
people:
  user:ann: {email: ann@example.com, roles: [boss]}
  user:gone: {email: gone@example.com, roles: [boss]}
  user:let-go: {email: let-go@example.com, roles: [boss]}
"""
Headers: TypeAlias = dict[str, str]


class Place:
    """A server with mails, Ann, who has two ids, and her agent, which has two keys."""

    def __init__(self, api: httpx2.Client, people: People, box: Mailbox) -> None:
        self.api, self.people, self.box = api, people, box
        person = people.person
        self.operator, self.req = person("user:op", roles=["operator"]), person("user:req", roles=["operator"])
        self.boss, self.cat = person("user:boss", roles=BOSS), person("user:cat", roles=BOSS)
        self.stranger = person("user:stranger", roles=["decider"])
        _, first = people.key(AGENT, roles=ACTING, speaks_for=["user:a.smith"])
        _, second = people.key(AGENT, roles=ACTING)
        _, service = people.key("service:shop", roles=ACTING, speaks_for=[AGENT])
        self.voices = {
            "ann": person("user:ann", roles=BOSS),
            "her other id": person("user:a.smith", roles=BOSS),
            "her agent": carried(first),
            "its token": self.token(first, "user:page"),
            "its second key": carried(second),
            "a token of its second key": self.token(second, "user:page"),
            "a token of a service for it": self.token(service, AGENT),
        }
        publisher = person("user:pat", roles=["publisher"])
        for text in FLOWS:
            expect(api.post("/v1/workflows", content=text, headers={**YAML, **publisher}), 201)

    def token(self, key: str, id: str) -> Headers:
        body = {"principal": id, "roles": ["requester", "decider", "operator"], "expires_in": 3600}
        return carried(expect(self.api.post("/v1/tokens", json=body, headers=carried(key)), 201).json()["token"])

    def start(self, workflow: str, who: Headers) -> str:
        return str(expect(self.api.post("/v1/runs", json={"workflow": workflow}, headers=who), 201).json()["id"])

    def question(self, run: str) -> dict[str, Any]:
        query = {"run_id": run}
        found = wait_for(lambda: self.api.get("/v1/pendings", params=query, headers=self.operator).json()["items"])
        return dict(found[0])

    def decide(self, run: str, who: Headers, **more: Any) -> tuple[int, str]:
        body = {"decision": "approve", **more}
        answer = self.api.post(f"/v1/pendings/{self.question(run)['id']}/decide", json=body, headers=who)
        return answer.status_code, answer.json().get("code", "")

    def signal(self, run: str, who: Headers) -> None:
        """Send the run a signal, and wait until it has taken that: from then on its sender is behind the run."""
        expect(self.api.post(f"/v1/runs/{run}/signals", json={"type": "heard"}, headers=who), 201)
        wait_for(lambda: self.events(run, "signal_received"))

    def events(self, run: str, type: str) -> list[dict[str, Any]]:
        params = {"limit": 200}
        events = self.api.get(f"/v1/runs/{run}/events", params=params, headers=self.operator).json()["items"]
        return [each for each in events if each["type"] == type]

    def votes(self, run: str) -> list[str]:
        return [each["by"] for each in self.events(run, "vote_cast")]

    def link(self, run: str, address: str) -> str:
        """The link in the mail about the run's question, as soon as it is there."""

        def find() -> str | None:
            params = {"run_id": run, "status": "sent"}
            rows = self.api.get("/v1/notifications", params=params, headers=self.operator).json()["items"]
            ids = {f"<{each['id']}@hai-flow>" for each in rows}
            mails = [each for each in self.box.mails if each["Message-ID"] in ids and address in str(each["To"])]
            return next(iter(re.findall(r"/links/\S+", str(mails[0].get_payload()))), None) if mails else None

        return wait_for(find)

    def press(self, link: str, digest: str) -> int:
        return self.api.post(link, data={"decision": "approve", "digest": digest}).status_code


@pytest.fixture(scope="module")
def place(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("doors")
    (folder / "identity.yaml").write_text("hai: identity/v1\npeople: {default: {user:ann: [user:a.smith]}}\n")
    with ExitStack() as stack:
        box = stack.enter_context(mail_server())
        (folder / "notify.yaml").write_text(_NOTIFY.replace("PORT", str(box.port)))
        files = {"HAI_FLOW_IDENTITY": str(folder / "identity.yaml"), "HAI_FLOW_NOTIFY": str(folder / "notify.yaml")}
        dsn = stack.enter_context(postgres_server.database())
        server = stack.enter_context(serving(dsn, environment={**KEYS, **files}))
        api = stack.enter_context(httpx2.Client(base_url=server.url, timeout=30))
        yield Place(api, People(dsn), box)


# --- an agent with a second credential --------------------------------------------------------------------------------

SECOND: Final = ("its second key", "a token of its second key", "a token of a service for it")
FIRST: Final = ("ann", "her other id", "her agent", "its token")


@pytest.mark.parametrize("voice", SECOND)
@pytest.mark.parametrize("workflow", ["named", "of_anyone"])
def test_an_agent_decides_nothing_of_its_people_by_another_credential(place: Place, workflow: str, voice: str) -> None:
    who, run = place.voices[voice], place.start(workflow, place.voices["ann"])
    assert place.decide(run, who)[0] in (403, 404)
    skipped = place.api.post(f"/v1/runs/{run}/skip", json={"step": "go"}, headers=who)
    assert skipped.status_code in (403, 404), skipped.text
    assert place.votes(run) == []
    if workflow == "named" and "service" not in voice and "token" not in voice:
        assert place.decide(place.start(workflow, place.req), who) == (200, "")


@pytest.mark.parametrize("voice", ["her agent", "its second key"])
def test_nobody_decides_as_the_delegate_of_an_agent(place: Place, voice: str) -> None:
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    body = {"to": "user:stranger", "until": until}
    place.api.post("/v1/inbox/delegations", json=body, headers=place.voices[voice])
    for requester in (place.voices["ann"], place.req):
        run = place.start("named", requester)
        assert place.decide(run, place.stranger)[0] in (403, 404)
        assert place.decide(run, place.stranger, on_behalf_of=AGENT)[0] in (403, 404, 422)
        assert place.votes(run) == []


# --- links of mails ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", FIRST)
def test_a_link_decides_nothing_once_its_person_is_behind_the_run(place: Place, cause: str) -> None:
    run = place.start("mailed", place.req)
    link, digest = place.link(run, "ann@"), place.question(run)["digest"]
    place.signal(run, place.voices[cause])
    assert place.press(link, digest) == 403
    assert place.decide(run, place.voices["ann"]) == (403, "pending_forbidden")
    assert place.votes(run) == []
    assert place.decide(run, place.boss) == (200, "")


def test_a_link_and_a_key_pressed_at_once_are_one_vote(place: Place) -> None:
    run = place.start("mailed", place.req)
    link, digest = place.link(run, "ann@"), place.question(run)["digest"]
    acts: list[Callable[[], object]] = [lambda: place.press(link, digest)] * 4
    acts += [lambda who=who: place.decide(run, place.voices[who]) for who in ("ann", "her other id")] * 2
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda act: act(), acts))
    assert place.votes(run) == ["user:ann"]
    assert place.question(run)["status"] == "open"


@pytest.mark.parametrize("gone", ["user:gone", "user:let-go"])
def test_a_link_of_somebody_erased_or_revoked_decides_nothing(place: Place, gone: str) -> None:
    key, _ = place.people.key(gone, roles=BOSS)
    run = place.start("mailed", place.req)
    link, digest = place.link(run, f"{gone.removeprefix('user:')}@"), place.question(run)["digest"]
    if gone == "user:gone":
        place.people.do(lambda connection: forget(connection, LOCAL_TENANT, gone, by="user:root"))
    else:
        place.people.revoke(key)
    assert place.press(link, digest) == 404
    assert place.votes(run) == []


# --- standing rules ---------------------------------------------------------------------------------------------------


def propose(place: Place, who: Headers, requester: Headers) -> httpx2.Response:
    """Propose a rule of a decision about a run of the requester."""
    run = place.start("pay", requester)
    pending = place.question(run)["id"]
    assert place.decide(run, place.cat) == (200, "")
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    when = "args.arguments.amount <= 100.0"
    body = {"pending_id": pending, "when": when, "until": until, "reason": "small"}
    return place.api.post("/v1/rules", json=body, headers=who)


@pytest.mark.parametrize("proposer", FIRST)
@pytest.mark.parametrize("requester", FIRST)
def test_nobody_proposes_a_rule_of_what_they_are_behind(place: Place, requester: str, proposer: str) -> None:
    answer = propose(place, place.voices[proposer], place.voices[requester])
    assert answer.status_code in (403, 404), answer.text


@pytest.mark.parametrize("approver", [*FIRST, *SECOND])
def test_a_proposer_approves_no_rule_by_any_voice(place: Place, approver: str) -> None:
    rule = expect(propose(place, place.voices["ann"], place.req), 201).json()
    assert place.decide(rule["run_id"], place.voices[approver])[0] in (403, 404)
    assert place.votes(rule["run_id"]) == []
    path = f"/v1/rules/{rule['id']}/revoke"
    assert place.api.post(path, json={}, headers=place.stranger).status_code in (403, 404)
    expect(place.api.post(path, json={}, headers=place.voices["her other id"]), 200)


@pytest.mark.parametrize("part", ["proposed", "approved"])
def test_a_rule_approves_nothing_that_its_people_are_behind(place: Place, part: str) -> None:
    ann = place.voices["ann"]
    proposer, approver = (ann, place.boss) if part == "proposed" else (place.boss, ann)
    rule = expect(propose(place, proposer, place.req), 201).json()
    path = f"/v1/rules/{rule['id']}"
    assert place.decide(rule["run_id"], approver) == (200, "")
    wait_for(lambda: place.api.get(path, headers=place.operator).json()["status"] == "active")
    try:
        used = place.start("pay", place.req)
        wait_for(lambda: place.votes(used))
        runs = [place.start("pay", place.voices[voice]) for voice in FIRST]
        later = place.start("pay", place.req)
        wait_for(lambda: place.votes(later))
        assert [place.votes(run) for run in runs] == [[]] * len(FIRST)
    finally:
        place.api.post(f"{path}/revoke", json={}, headers=place.operator)


# --- chats ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PLATFORMS, ids=lambda each: each.kind)
def test_a_button_decides_nothing_once_its_person_is_behind_the_run(
    kind: type[Platform], postgres_server: Server, tmp_path: Path
) -> None:
    with chatting(kind(), postgres_server, tmp_path) as chat:
        platform, person = chat.platform, chat.people.person
        text = _HEARS.format(name="hearing", asked="[role:boss]", notify="[chat]", more=", quorum: 2")
        publisher = person("user:pat", roles=["publisher"])
        expect(chat.http.post("/v1/workflows", content=text, headers={**YAML, **publisher}), 201)
        _, agent = chat.people.key(AGENT, roles=ACTING, speaks_for=["user:corp-ann"])
        ann, other = person("user:ann", roles=BOSS), person("user:corp-ann", roles=BOSS)
        for who in (ann, other, carried(agent)):
            asked = _ask(chat)
            card = asked.card()
            expect(chat.http.post(f"/v1/runs/{asked.run}/signals", json={"type": "heard"}, headers=who), 201)
            asked.press("Approve", platform.ann, card)
            assert asked.votes() == []
        asked = _ask(chat)
        card = asked.card()
        call = platform.press(card, "Approve", platform.ann)
        path, body = f"/v1/pendings/{asked.pending['id']}/decide", {"decision": "approve"}
        acts: list[Callable[[], object]] = [lambda: platform.post(chat.http, call)] * 3
        acts += [lambda who=who: chat.http.post(path, json=body, headers=who) for who in (ann, other)]
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(lambda act: act(), acts))
        assert [each[:2] for each in asked.votes()] == [("user:ann", "approve")]
        for account, id in ((platform.bob, "user:bob"), (platform.ann, "user:ann")):
            asked = _ask(chat)
            card = asked.card(account)
            if id == "user:bob":
                chat.people.revoke(chat.people.key(id, roles=BOSS)[0])
            else:
                chat.people.do(lambda connection: forget(connection, LOCAL_TENANT, "user:ann", by="user:root"))
                chat.people.do(lambda connection: forget(connection, LOCAL_TENANT, "user:corp-ann", by="user:root"))
            asked.press("Approve", account, card)
            assert asked.votes() == []


def _ask(chat: Chat) -> Asked:
    return chat.ask("hearing")
