"""Chat, both ways: a card shows what is asked, whoever may decide decides there, and everywhere the card says so."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import asyncpg
import httpx2
import pytest

from tests.support.chats import Platform, Shown, SlackPlatform
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People
from tests.support.postgres import Server, run_apart
from tests.support.server import YAML, ServerProcess, serving

T = TypeVar("T")
PLATFORMS: Final[tuple[type[Platform], ...]] = (SlackPlatform,)
BOSS: Final = ["requester", "decider", "boss"]

FLOWS: Final = """
hai: flow/v1
name: paying
version: 1
input: {type: object, properties: {mark: {type: string, default: x}, n: {type: integer, default: 7}}}
tools:
  fx: {python: tests.support.effects, effect: write}
steps:
  - id: pay
    call: fx.note
    with: {n: "${{ input.n }}"}
    approval: {title: "Pay ${{ input.mark }}?", from: [role:boss], edit: [n], notify: [chat], deadline: 1d}
---
hai: flow/v1
name: twice
version: 1
input: {type: object, properties: {mark: {type: string, default: x}}}
steps:
  - {id: go, approve: {title: "Go ${{ input.mark }}?", from: [role:boss], quorum: 2, notify: [chat], deadline: 1d}}
---
hai: flow/v1
name: reasoned
version: 1
input: {type: object, properties: {mark: {type: string, default: x}}}
steps:
  - id: go
    approve:
      title: "Go ${{ input.mark }}?"
      from: [role:boss]
      notify: [chat]
      reasons: {reject: required}
      form: {type: object, required: [limit], properties: {limit: {type: number, maximum: 100, title: Limit}}}
---
hai: flow/v1
name: secretive
version: 1
chat: false
input: {type: object, properties: {mark: {type: string, default: x}}}
steps:
  - {id: go, approve: {title: "Go ${{ input.mark }}?", from: [role:boss], notify: [chat], deadline: 1d}}
---
hai: flow/v1
name: toolish
version: 1
input: {type: object, properties: {mark: {type: string, default: x}}}
tools:
  fx: {python: tests.support.effects, effect: write, chat: false}
steps:
  - id: pay
    call: fx.note
    with: {n: 1}
    approval: {title: "Pay ${{ input.mark }}?", from: [role:boss], notify: [chat], deadline: 1d}
---
hai: flow/v1
name: personal
version: 1
input: {type: object, properties: {mark: {type: string, default: x}}}
steps:
  - id: go
    approve:
      title: "Go ${{ input.mark }}?"
      from: [role:boss]
      notify: ["chat:ann", "chat:eve"]
      deadline: 1d
---
hai: flow/v1
name: long
version: 1
input: {type: object, properties: {mark: {type: string, default: x}, text: {type: string}}}
tools:
  fx: {python: tests.support.effects, effect: write}
steps:
  - id: pay
    call: fx.echo
    with: {value: "${{ input.text }}"}
    approval: {title: "Pay ${{ input.mark }}?", from: [role:boss], notify: [chat], deadline: 1d}
""".split("---\n")


def wait_for(fact: Callable[[], T], seconds: float = 30) -> T:
    end = time.monotonic() + seconds
    while not (found := fact()):
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.02)
    return found


class Chat:
    """A server with an app of one platform, and its people."""

    def __init__(self, platform: Platform, server: ServerProcess, dsn: str, http: httpx2.Client) -> None:
        self.platform, self.server, self.dsn, self.http = platform, server, dsn, http
        self.people = People(dsn)
        publisher = self.people.person("user:pat", roles=["publisher"])
        for source in FLOWS:
            answer = http.post("/v1/workflows", content=source, headers={**YAML, **publisher})
            assert answer.status_code == 201, answer.text
        self.operator = self.people.person("user:op", roles=["operator"])
        self.requester = self.people.person("user:req", roles=["operator"])
        self.cy = self.people.person("user:cy", roles=BOSS)
        self.auditor = self.people.person("user:audit", roles=["auditor"])

    def ask(self, workflow: str = "paying", **input: Any) -> Asked:
        mark = unique("m")
        body = {"workflow": workflow, "input": {"mark": mark, **input}}
        answer = self.http.post("/v1/runs", json=body, headers=self.requester)
        assert answer.status_code == 201, answer.text
        return Asked(self, answer.json()["id"], mark)

    def audit(self, act: str) -> list[dict[str, Any]]:
        page = self.http.get("/v1/audit", params={"act": act, "limit": 100}, headers=self.auditor)
        assert page.status_code == 200, page.text
        return list(page.json()["items"])

    def fetch(self, query: str, *arguments: Any) -> list[Any]:
        async def ask() -> list[Any]:
            connection = await asyncpg.connect(self.dsn)
            try:
                return list(await connection.fetch(query, *arguments))
            finally:
                await connection.close()

        return run_apart(ask())


class Asked:
    """A question that waits."""

    def __init__(self, chat: Chat, run: str, mark: str) -> None:
        self.chat, self.run, self.mark = chat, run, mark

    @property
    def pending(self) -> dict[str, Any]:
        items = self.chat.http.get("/v1/pendings", params={"run_id": self.run}, headers=self.chat.operator).json()[
            "items"
        ]
        (found,) = items
        return dict(found)

    def card(self, *, label: str = "Approve") -> Shown:
        """Its one card, as soon as it is there."""
        return wait_for(
            lambda: next((each for each in self.chat.platform.of(self.mark) if label in each.buttons), None)
        )

    def press(self, label: str, account: str, card: Shown | None = None, **more: Any) -> str:
        """Press, and return what the person is told."""
        platform = self.chat.platform
        response = platform.post(self.chat.http, platform.press(card or self.card(), label, account, **more))
        assert response.status_code == 200, response.text
        return platform.last_told(response, account)

    def events(self) -> list[dict[str, Any]]:
        page = self.chat.http.get(f"/v1/runs/{self.run}/events", params={"limit": 200}, headers=self.chat.operator)
        return list(page.json()["items"])

    def votes(self) -> list[tuple[str, str, str]]:
        return [
            (each["by"], each["decision"], each.get("via", "rest"))
            for each in self.events()
            if each["type"] == "vote_cast"
        ]

    def result(self) -> str:
        """What the card says when the question is over."""
        found = wait_for(lambda: [each for each in self.chat.platform.of(self.mark) if not each.buttons])
        return found[0].text


@contextmanager
def chatting(
    platform: Platform, postgres: Server, folder: Path, *, accounts: bool = True, more: str = ""
) -> Iterator[Chat]:
    with ExitStack() as stack:
        stack.enter_context(platform.serving())
        people = {
            "user:ann": platform.ann,
            "user:bob": platform.bob,
            "user:req": platform.req,
            "user:eve": platform.eve,
        }
        roles = {"user:eve": ["clerk"]}
        room = {"room": platform.room} if platform.takes_rooms else {}
        notify = {
            "hai": "notify/v1",
            "url": "https://flow.example.com",
            "hosts": ["127.0.0.1"],
            "channels": {"chat": {"kind": platform.kind, **platform.settings(), **room}},
            "people": {
                id: {"roles": roles.get(id, ["boss"]), "accounts": {"chat": account}}
                for id, account in people.items()
                if accounts
            },
        }
        file = folder / "notify.json"
        file.write_text(json.dumps(notify))
        dsn = stack.enter_context(postgres.database())
        secrets = {f"HAI_FLOW_SECRET_{name}": text for name, text in platform.secrets.items()}
        environment = {
            **KEYS,
            **secrets,
            "HAI_FLOW_NOTIFY": str(file),
            "HAI_FLOW_PUBLIC_URL": "https://flow.example.com",
        }
        server = stack.enter_context(serving(dsn, environment=environment))
        http = stack.enter_context(httpx2.Client(base_url=server.url, timeout=30))
        yield Chat(platform, server, dsn, http)
        assert not platform.refused
        assert not server.faults
        for secret in platform.secrets.values():
            assert secret not in server.log


@pytest.fixture(scope="module", params=PLATFORMS, ids=lambda each: each.kind)
def chat(
    request: pytest.FixtureRequest, postgres_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Chat]:
    with chatting(request.param(), postgres_server, tmp_path_factory.mktemp("chat")) as made:
        yield made


def test_a_card_says_what_is_asked_of_whom_and_until_when_and_a_press_decides_once(chat: Chat) -> None:
    asked = chat.ask()
    card = asked.card()
    assert f"Pay {asked.mark}?" in card.text
    assert "role:boss" in card.text
    assert re.search(r"Until: \d{4}-\d\d-\d\d \d\d:\d\d UTC", card.text)
    assert all(len(token) >= 43 for token in card.buttons.values())
    assert "Recorded, as user:ann" in asked.press("Approve", chat.platform.ann)
    assert asked.votes() == [("user:ann", "approve", "chat")]
    assert "Approved by user:ann" in asked.result()
    stored = chat.fetch("SELECT digest FROM chat_buttons")
    assert not [row for row in stored for token in card.buttons.values() if token.encode() in bytes(row[0])]


def test_the_arguments_stand_on_the_card_whole_or_their_digest_does(chat: Chat) -> None:
    asked = chat.ask(n=82000)
    card = asked.card()
    assert '"n": 82000' in card.text or asked.pending["digest"] in card.text
    hidden = chat.ask("long", text="Pay \u202eevil\u202c and \u0430pple")
    text = hidden.card().text
    assert "\u202e" not in text
    assert ("u202e" in text and "u0430pple" in text) or hidden.pending["digest"] in text
    large = chat.ask("long", text="y" * 60_000)
    card = large.card()
    assert large.pending["digest"] in card.text
    assert "yyy" not in card.text, "never a part of them"


def test_a_second_press_of_the_same_button_is_no_vote_and_no_event(chat: Chat) -> None:
    asked = chat.ask("twice")
    card = asked.card()
    asked.press("Approve", chat.platform.ann, card)
    before = asked.events()
    assert "pressed before" in asked.press("Approve", chat.platform.ann, card)
    assert "pressed before" in asked.press("Approve", chat.platform.bob, card)
    assert asked.events() == before
    assert [each["subject"] for each in chat.audit("chat.refused")].count(f"pending:{asked.pending['id']}") == 2


def test_a_quorum_is_reached_by_the_buttons_of_each_state_of_the_card(chat: Chat) -> None:
    asked = chat.ask("twice")
    first = asked.card()
    token = first.buttons["Approve"]
    asked.press("Approve", chat.platform.ann, first)
    account = chat.platform.bob
    second = wait_for(
        lambda: next((c for c in chat.platform.of(asked.mark) if c.buttons.get("Approve", token) != token), None)
    )
    asked.press("Approve", account, second)
    assert [each[0] for each in asked.votes()] == ["user:ann", "user:bob"]
    assert "Approved by user:ann, user:bob" in asked.result()


@pytest.mark.parametrize(
    ("who", "told"), [("eve", "it asks role:boss|not for you"), ("req", "started this run")], ids=["role", "requester"]
)
def test_the_rules_of_the_question_hold_for_who_presses(chat: Chat, who: str, told: str) -> None:
    asked = chat.ask()
    before = asked.card() and asked.events()
    assert re.search(told, asked.press("Approve", getattr(chat.platform, who)))
    assert asked.events() == before
    assert any(each["by"] == f"user:{who}" for each in chat.audit("chat.refused"))
    assert "Recorded" in asked.press("Approve", chat.platform.ann), "the button is not used up by a refusal"


def test_nobody_decides_whose_account_is_not_connected_whatever_they_are_called(chat: Chat) -> None:
    asked = chat.ask()
    assert "hai-flow chat connect" in asked.press("Approve", "U0NOBODY")
    assert asked.votes() == []
    assert asked.pending["status"] == "open"


def test_who_decides_elsewhere_is_named_on_the_card(chat: Chat) -> None:
    asked = chat.ask()
    card = asked.card()
    answer = chat.http.post(f"/v1/pendings/{asked.pending['id']}/decide", json={"decision": "reject"}, headers=chat.cy)
    assert answer.status_code == 200, answer.text
    assert "Rejected by user:cy" in asked.result()
    assert "decided already" in asked.press("Approve", chat.platform.ann, card) or "not good" in asked.press(
        "Approve", chat.platform.ann, card
    )


def test_chat_false_keeps_questions_out_of_chats(chat: Chat) -> None:
    for workflow in ("secretive", "toolish"):
        asked = chat.ask(workflow)
        params = {"run_id": asked.run, "status": "dropped"}
        (row,) = wait_for(
            lambda params=params: chat.http.get("/v1/notifications", params=params, headers=chat.operator).json()[
                "items"
            ]
        )
        assert row["error"] == "the workflow keeps it out of chats"
        assert chat.platform.of(asked.mark) == []


def test_a_card_for_somebody_who_may_not_decide_has_no_buttons(chat: Chat) -> None:
    asked = chat.ask("personal")
    cards = wait_for(lambda: (found := chat.platform.of(asked.mark)) and len(found) == 2 and found)
    assert sorted(bool(each.buttons) for each in cards) == [False, True]


def test_what_needs_more_than_a_press_opens_a_dialog_or_names_the_page(chat: Chat) -> None:
    asked = chat.ask("reasoned")
    if not chat.platform.takes_dialogs:
        card = wait_for(lambda: chat.platform.of(asked.mark))[0]
        assert card.buttons == {}
        assert "flow.example.com" in json.dumps(card.raw)
        return
    assert asked.press("Approve", chat.platform.ann) == ""
    platform = chat.platform
    wrong = platform.post(chat.http, platform.submit(platform.ann, {"Limit": "1000"}))
    assert "100" in platform.told(wrong)
    assert asked.votes() == []
    right = platform.post(chat.http, platform.submit(platform.ann, {"Limit": "50"}))
    assert right.status_code == 200
    assert [each[:2] for each in asked.votes()] == [("user:ann", "approve")]


def test_a_dialog_edits_arguments(chat: Chat) -> None:
    if not chat.platform.takes_dialogs:
        pytest.skip("the platform has no dialogs")
    asked, platform = chat.ask(), chat.platform
    asked.press("Edit…", platform.bob)
    answer = platform.post(chat.http, platform.submit(platform.bob, {"n": "8"}))
    assert answer.status_code == 200, answer.text
    (edited,) = [each for each in asked.events() if each["type"] == "pending_edited"]
    assert edited["edits"] == {"n": 8}


def test_a_decision_in_chat_and_in_the_console_at_one_instant_is_one_vote_and_one_winner(chat: Chat) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for _ in range(5):
        asked = chat.ask()
        card, pending = asked.card(), asked.pending
        call = chat.platform.press(card, "Approve", chat.platform.ann)
        with ThreadPoolExecutor(2) as pool:
            pressed = pool.submit(chat.platform.post, chat.http, call)
            decided = pool.submit(
                chat.http.post, f"/v1/pendings/{pending['id']}/decide", json={"decision": "reject"}, headers=chat.cy
            )
            pressed.result(), decided.result()
        (vote,) = asked.votes()
        end = "Approved by user:ann" if vote[0] == "user:ann" else "Rejected by user:cy"
        assert end in asked.result()
