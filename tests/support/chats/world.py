"""A server with an app of one platform, its people, and questions that wait there."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

import httpx2

from tests.support.chats import (
    DingTalkPlatform,
    DiscordPlatform,
    FeishuPlatform,
    Platform,
    Shown,
    SlackPlatform,
    TeamsPlatform,
    WeComPlatform,
)
from tests.support.chats.platform import SECONDS_MAX
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People
from tests.support.mcp_lines import ROOT, Script, command
from tests.support.postgres import Server, fetch, run_apart
from tests.support.server import PATH, YAML, ServerProcess, expect, serving
from tests.support.waiting import wait_for

T = TypeVar("T")
PLATFORMS: Final[tuple[type[Platform], ...]] = (
    SlackPlatform, FeishuPlatform, DingTalkPlatform, WeComPlatform, TeamsPlatform, DiscordPlatform,
)  # fmt: skip
BOSS: Final = ["requester", "decider", "boss"]

_FLOWS: Final = """
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
name: wide
version: 1
input: {type: object, properties: {mark: {type: string, default: x}}}
steps:
  - id: go
    approve:
      title: "Go ${{ input.mark }}?"
      from: [role:boss]
      notify: [chat]
      form:
        type: object
        required: [a, b, c, d, e, f]
        properties:
          {a: {type: string}, b: {type: string}, c: {type: string}, d: {type: string}, e: {}, f: {}}
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
name: bobs
version: 1
input: {type: object, properties: {mark: {type: string, default: x}}}
steps:
  - {id: go, approve: {title: "Go ${{ input.mark }}?", from: [role:boss], notify: ["chat:bob"], deadline: 1d}}
---
hai: flow/v1
name: addressed
version: 1
input: {type: object, properties: {mark: {type: string, default: x}}}
steps:
  - {id: go, approve: {title: "Go ${{ input.mark }}?", from: [user:corp-ann], notify: ["chat:ann"], deadline: 1d}}
---
hai: flow/v1
name: rooms
version: 1
input: {type: object, properties: {mark: {type: string, default: x}}}
steps:
  - id: go
    approve:
      title: "Go ${{ input.mark }}?"
      from: [role:boss]
      evidence: {why: "because it is so"}
      notify: [chat, own, quiet]
      deadline: 1d
---
hai: flow/v1
name: iban
version: 1
input:
  type: object
  properties: {mark: {type: string, default: x}, iban: {type: string, default: DE-4711, pii: true}}
tools:
  fx: {python: tests.support.effects, effect: write}
steps:
  - id: pay
    call: fx.echo
    with: {value: "${{ input.iban }}"}
    approval: {title: "Pay ${{ input.mark }}?", from: [role:boss], notify: [chat, own], deadline: 1d}
---
hai: flow/v1
name: served
version: 1
input: {type: object, properties: {mark: {type: string, default: x}}}
tools: {files: {mcp: {use: files}}}
steps:
  - {id: told, call: files.add}
  - id: pay
    approve:
      {title: "Pay ${{ input.mark }}?", message: "To ${{ steps.told.output }}", from: [role:boss], notify: [chat, own],
       deadline: 1d}
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
"""
FLOWS: Final = _FLOWS.split("---\n")


class Chat:
    """A server with an app of one platform, and its people."""

    def __init__(self, platform: Platform, server: ServerProcess, dsn: str, http: httpx2.Client) -> None:
        self.platform, self.server, self.dsn, self.http = platform, server, dsn, http
        self.people = People(dsn)
        self.people.tenant("globex")
        publisher = self.people.person("user:pat", roles=["publisher"])
        for source in FLOWS:
            expect(http.post("/v1/workflows", content=source, headers={**YAML, **publisher}), 201)
        self.operator = self.people.person("user:op", roles=["operator"])
        self.requester = self.people.person("user:req", roles=["operator"])
        self.cy = self.people.person("user:cy", roles=BOSS)
        self.auditor = self.people.person("user:audit", roles=["auditor"])

    def ask(self, workflow: str = "paying", **input: Any) -> Asked:
        mark = unique("m")
        body = {"workflow": workflow, "input": {"mark": mark, **input}}
        answer = expect(self.http.post("/v1/runs", json=body, headers=self.requester), 201)
        return Asked(self, answer.json()["id"], mark)

    def audit(self, act: str) -> list[dict[str, Any]]:
        page = expect(self.http.get("/v1/audit", params={"act": act, "limit": 100}, headers=self.auditor), 200)
        return list(page.json()["items"])

    def fetch(self, query: str, *arguments: Any) -> list[Any]:
        return run_apart(fetch(self.dsn, query, *arguments))


class Asked:
    """A question that waits."""

    def __init__(self, chat: Chat, run: str, mark: str) -> None:
        self.chat, self.run, self.mark = chat, run, mark

    @property
    def id(self) -> UUID:
        return UUID(self.run)

    @property
    def pending(self) -> dict[str, Any]:
        page = self.chat.http.get("/v1/pendings", params={"run_id": self.run}, headers=self.chat.operator)
        (found,) = page.json()["items"]
        return dict(found)

    def card(self, account: str = "", *, label: str = "Approve") -> Shown:
        """Its card, as soon as it is there: that in the room, or that of the account."""
        platform = self.chat.platform
        mine = platform.ann if account in ("", platform.eve, platform.req) else account
        return wait_for(
            lambda: [
                each
                for each in platform.of(self.mark)
                if label in each.buttons and (platform.takes_rooms or each.place == mine)
            ]
        )[0]

    def press(self, label: str, account: str, card: Shown | None = None, **more: Any) -> str:
        """Press, and return what the person is told."""
        platform = self.chat.platform
        response = platform.post(
            self.chat.http, platform.press(card or self.card(account, label=label), label, account, **more)
        )
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

    def reasons(self) -> list[str | None]:
        """Why notifications of it were dropped."""
        params = {"run_id": self.run, "status": "dropped"}
        page = self.chat.http.get("/v1/notifications", params=params, headers=self.chat.operator)
        return [each["error"] for each in page.json()["items"]]

    def result(self) -> str:
        """What the card says when the question is over, as all of its cards do."""
        cards = wait_for(self._closed)
        assert len({_outcome_of(each) for each in cards}) == 1
        return cards[0].text

    def _closed(self) -> list[Shown]:
        """All of its cards, once each says the outcome and none has buttons: they are changed one after the other."""
        cards = self.chat.platform.of(self.mark)
        return cards if all(_outcome_of(each) and not each.buttons for each in cards) else []


def _outcome_of(card: Shown) -> str | None:
    outcome = re.search(r"(Approved|Rejected)[^.]*", card.text)
    return None if outcome is None else outcome[0]


def install(folder: Path) -> list[str]:
    """The package of the plug-in as an installer leaves it: where its modules are, and what it says of itself."""
    package = Path(__file__).parents[3] / "plugins" / "discord"
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    about = folder / f"hai_flow_discord-{project['version']}.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n{name} = {value}\n"
        for group, names in project["entry-points"].items()
        for name, value in names.items()
    ]
    (about / "entry_points.txt").write_text("".join(lines))
    return [str(package), str(folder)]


def settings_of(platform: Platform, folder: Path) -> dict[str, str]:
    """The environment of a server with the platform's app in the channel `chat`, of two tenants."""
    people = {
        "user:ann": platform.ann, "user:bob": platform.bob, "user:req": platform.req, "user:eve": platform.eve,
    }  # fmt: skip
    roles = {"user:eve": ["clerk", "operator"]}
    room = {"room": platform.room} if platform.takes_rooms else {}
    channels: dict[str, Any] = {"chat": {"kind": platform.kind, **platform.settings(), **room}}
    if platform.takes_rooms:  # further rooms of the same app
        app = {"kind": platform.kind, **platform.settings()}
        channels["own"] = {**app, "room": f"{platform.room}own", "person": "user:ann"}
        channels["quiet"] = {**app, "room": f"{platform.room}quiet", "read_only": True}
    gus = {"roles": ["boss"], "accounts": {"chat": platform.ann}}
    notify = {
        "hai": "notify/v1",
        "url": "https://flow.example.com",
        "hosts": ["127.0.0.1"],
        "channels": channels,
        "tenants": {"globex": {"channels": {"chat": channels["chat"]}, "people": {"user:gus": gus}}},
        "people": {
            id: {"roles": roles.get(id, ["boss"]), "accounts": {"chat": account}} for id, account in people.items()
        },
    }
    file = folder / "notify.json"
    file.write_text(json.dumps(notify))
    script = Script(questions=("To whom?",), amount={"type": "string", "pii": True})
    program = {"command": command(folder, script), "env": {"PYTHONPATH": str(ROOT)}}
    identity = folder / "identity.yaml"
    identity.write_text("hai: identity/v1\npeople: {default: {user:ann: [user:corp-ann]}}\n")
    servers = folder / "mcp.yaml"
    servers.write_text(f"hai: mcp/v1\nservers: {{files: {json.dumps(program)}}}\n")
    return {
        **KEYS,
        **{f"HAI_FLOW_SECRET_{name}": text for name, text in platform.secrets.items()},
        PATH: os.pathsep.join(install(folder)),
        "HAI_FLOW_NOTIFY": str(file),
        "HAI_FLOW_IDENTITY": str(identity),
        "HAI_FLOW_MCP": str(servers),
        "HAI_FLOW_PUBLIC_URL": "https://flow.example.com",
    }


@contextmanager
def chatting(platform: Platform, postgres: Server, folder: Path) -> Iterator[Chat]:
    """A server with the app. None of its secrets is in its log, and the platform had nothing to refuse."""
    with ExitStack() as stack:
        stack.enter_context(platform.serving())
        dsn = stack.enter_context(postgres.database())
        server = stack.enter_context(serving(dsn, environment=settings_of(platform, folder)))
        http = stack.enter_context(httpx2.Client(base_url=server.url, timeout=30))
        yield Chat(platform, server, dsn, http)
        assert not platform.refused
        assert not platform.took or min(platform.took) < SECONDS_MAX
        for secret in platform.secrets.values():
            assert secret not in server.log
