"""The house that is broken into: a server that believes keys and two issuers, its people, and what waits for them.

A workflow asks two bosses before it pays. What waits stays as it is as long as no attack succeeds, so all attacks have
the same ones before them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx2

from tests.support import effects
from tests.support.agui_client import AguiClient, resolved
from tests.support.hai_client import unique, user
from tests.support.identities import KEYS, People, carried
from tests.support.issuers import AUDIENCE, Issuer, identity_file
from tests.support.postgres import Server
from tests.support.receivers import Mailbox, mail_server
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import wait_for

T = TypeVar("T")

ISSUER: Final = Issuer()
OTHER: Final = Issuer("https://other.example.com")
_PAYS: Final = """
hai: flow/v1
name: {name}
version: 1
tools:
  fx: {{python: tests.support.effects, effect: write}}
steps:
  - id: where
    {first}
  - id: open
    approve: {{title: Pay?, from: [role:boss], quorum: 2, deadline: {deadline}, evidence: {{amount: 7}}{more}}}
  - {{id: pay, call: fx.note, with: {{n: 1}}}}
"""
VAULT: Final = _PAYS.format(name="vault", first="say: Hello.", deadline="1d", more="")
BRIEF: Final = _PAYS.format(name="brief", first="say: Hello.", deadline="1s", more="")
MAILED: Final = _PAYS.format(name="mailed", first="say: Hello.", deadline="1d", more=", notify: [email]")
ASKED: Final = _PAYS.format(
    name="asked", first="ask: {title: Where?, form: {type: object, properties: {place: {type: string}}}}",
    deadline="1d", more="",
)  # fmt: skip
OUTER: Final = """
hai: flow/v1
name: outer
version: 1
steps:
  - {id: sub, run: vault}
"""
NOTIFY: Final = """
hai: notify/v1
url: http://127.0.0.1
channels:
  email: {kind: email, host: 127.0.0.1, port: PORT, security: none, from: "Flow <flow@example.com>"}
people:
  user:bob: {email: bob@example.com, roles: [boss]}
"""
_LINK: Final = re.compile(r"/links/\S+")
BOSS: Final = ("requester", "decider", "boss")


@dataclass(frozen=True)
class Target:
    """A question, and where it is asked: in a thread of `workflow`. `digest` is what people were shown of it."""

    run_id: str
    thread: str
    id: str
    digest: str
    workflow: str


class House:
    """The server, its people by their headers, and the targets."""

    def __init__(self, server: ServerProcess, dsn: str, box: Mailbox, api: httpx2.Client) -> None:
        self.url, self.box, self.api = server.url, box, api
        self.people = People(dsn)
        person = self.people.person
        self.req = person("user:req")
        self.ann, self.bob, self.eve = (person(f"user:{name}", roles=BOSS) for name in ("ann", "bob", "eve"))
        self.ann_by_token = carried(ISSUER.token(roles=list(BOSS)))
        self.friend = person("user:friend", roles=["requester", "decider"])
        self.stranger = person("user:mallory")
        self.chief = person("user:chief", roles=["requester", "decider", "chief"])
        self.viewer = person("user:val", roles=["viewer"])
        self.foreign_boss = person("user:bob", roles=[*BOSS, "operator"], tenant="globex")
        self.operator = person("user:op", roles=["operator"])
        for tenant in ("default", "globex"):
            publisher = person("user:pat", roles=["publisher"], tenant=tenant)
            for source in (VAULT, BRIEF, MAILED, ASKED, OUTER):
                expect(self.api.post("/v1/workflows", content=source, headers={**YAML, **publisher}), 200, 201)

    def facts(self) -> dict[str, int]:
        """How much has happened, once nothing is under way: events in logs, runs, votes, and effects."""
        assert self.waiting, "it is there before anything is counted, whichever test comes first"
        query = """
        SELECT (SELECT count(*) FROM outbox WHERE due_at <= now()) + (
            SELECT count(*) FROM runs WHERE status NOT IN ('waiting', 'finished', 'failed', 'stopped')) AS under_way,
          (SELECT coalesce(sum(seq), 0) FROM runs) AS events,
          (SELECT count(*) FROM runs) AS runs, (SELECT count(*) FROM votes) AS votes,
          (SELECT count(*) FROM effects) AS effects
        """

        def at_rest() -> dict[str, int] | None:
            row = self.people.do(lambda c: c.fetchrow(query))
            counts = {name: int(n) for name, n in row.items()}  # type: ignore[union-attr]
            return None if counts["under_way"] else counts

        return wait_for(at_rest)  # type: ignore[return-value]

    # --- what waits

    @cached_property
    def waiting(self) -> Target:
        """Nobody has voted."""
        return self.start("vault", self.req)

    @cached_property
    def beside(self) -> Target:
        """Another run of the same people."""
        return self.start("vault", self.req)

    @cached_property
    def strangers(self) -> Target:
        """A stranger has started it."""
        return self.start("vault", self.stranger)

    @cached_property
    def voted(self) -> Target:
        """Bob has voted; it wants a second one."""
        target = self.start("vault", self.req)
        self.vote(target, self.bob)
        return target

    @cached_property
    def decided(self) -> Target:
        target = self.start("vault", self.req)
        self.vote(target, self.bob)
        self.vote(target, self.eve)
        self.until(target.run_id, "finished")
        return target

    @cached_property
    def late(self) -> Target:
        """Its deadline is over."""
        target = self.start("brief", self.req)
        self.until(target.run_id, "finished", "failed")
        return target

    @cached_property
    def stopped(self) -> Target:
        target = self.start("vault", self.req)
        assert self.api.post(f"/v1/runs/{target.run_id}/stop", headers=self.operator).status_code == 200
        self.until(target.run_id, "stopped")
        return target

    @cached_property
    def anns(self) -> Target:
        """Ann has started it herself; and Friend is her delegate, as she is Bob's."""
        target = self.start("vault", self.ann)
        until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        for who, to in ((self.ann, "user:friend"), (self.bob, "user:ann")):
            expect(self.api.post("/v1/inbox/delegations", json={"to": to, "until": until}, headers=who), 201)
        return target

    @cached_property
    def below(self) -> Target:
        """A question of a run that a run of Ann's has started."""
        return self.start("outer", self.ann)

    @cached_property
    def forked(self) -> Target:
        """A question of a run that Ann has let begin anew from an earlier turn of her own."""
        client = AguiClient(self.url, unique("forked"), workflow="asked", headers=self.ann)
        client.post(user(), run_id="t1")
        (where,) = self._open(client.thread_id)
        for turn in ("t2", "t3"):
            answered = client.post(run_id=turn, parentRunId="t1", resume=[resolved(where, {"place": turn})])
            assert answered.status == 200, answered.body
        (asked,) = self._open(client.thread_id)
        assert asked["run_id"] != where["run_id"], "it was forked"
        return self._target(asked, client.thread_id, "asked")

    @cached_property
    def foreign(self) -> Target:
        """It waits in another tenant."""
        return self.start("vault", self.people.person("user:req", tenant="globex"), self.foreign_boss)

    @cached_property
    def mailed(self) -> tuple[Target, str]:
        """It waits; and the path of the link that Bob was sent."""
        target = self.start("mailed", self.req)
        mails = self.box.mails
        found = wait_for(lambda: [link for mail in mails for link in _LINK.findall(str(mail.get_payload()))])
        return target, found[0]

    # --- how it came to be

    def start(self, workflow: str, who: dict[str, str], boss: dict[str, str] | None = None) -> Target:
        """A run that `who` starts, and what it asks."""
        body = {"workflow": workflow, "thread_id": unique(workflow)}
        thread = expect(self.api.post("/v1/runs", json=body, headers=who), 201).json()["thread_id"]
        found = wait_for(lambda: self._open(thread, boss))
        return self._target(found[0], thread, workflow)

    def vote(self, target: Target, who: dict[str, str]) -> None:
        path = f"/v1/pendings/{target.id}/decide"
        expect(self.api.post(path, json={"decision": "approve"}, headers=who), 200)

    def _open(self, thread: str, boss: dict[str, str] | None = None) -> list[dict[str, Any]]:
        query = (
            "SELECT p.id FROM pendings p JOIN runs r ON r.id = p.run_id WHERE r.thread_id = $1 AND p.status = 'open'"
        )
        ids = [row[0] for row in self.people.do(lambda c: c.fetch(query, thread))]
        asked = [self.api.get(f"/v1/pendings/{id}", headers=boss or self.operator) for id in ids]
        return [each.json() for each in asked if each.status_code == 200]

    def _target(self, asked: dict[str, Any], thread: str, workflow: str) -> Target:
        return Target(asked["run_id"], thread, asked["id"], asked["digest"], workflow)

    def until(self, run_id: str, *statuses: str) -> None:
        path = f"/v1/runs/{run_id}"
        wait_for(lambda: self.api.get(path, headers=self.operator).json()["status"] in statuses)


@contextmanager
def broken_into(postgres_server: Server, folder: Path) -> Iterator[House]:
    """The house, while its server runs."""
    (folder / "keys.json").write_text(json.dumps(ISSUER.jwks))
    (folder / "other.json").write_text(json.dumps(OTHER.jwks))
    corp, other = (
        {
            "issuer": issuer.url,
            "audience": AUDIENCE,
            "jwks_file": file,
            "claims": {"id": "sub", "roles": "roles"},
            "prefix": prefix,
        }
        for issuer, file, prefix in ((ISSUER, "keys.json", "corp-"), (OTHER, "other.json", "other-"))
    )
    identity = identity_file(folder, {"corp": corp, "other": other}, {"user:ann": ["user:corp-ann"]})
    with ExitStack() as stack:
        box = stack.enter_context(mail_server())
        notify = folder / "notify.yaml"
        notify.write_text(NOTIFY.replace("PORT", str(box.port)))
        dsn = stack.enter_context(postgres_server.database())
        People(dsn).do(lambda c: c.execute(effects.LEDGER))
        more = {
            "HAI_FLOW_IDENTITY": str(identity),
            "HAI_FLOW_NOTIFY": str(notify),
            "HAI_FLOW_REFUSALS_PEER_MAX": "100000",
            "HAI_FLOW_TURN_LINGER_SECONDS": "0.2",
        }
        server = stack.enter_context(serving(dsn, environment={**KEYS, **more}))
        house = House(server, dsn, box, stack.enter_context(httpx2.Client(base_url=server.url, timeout=30)))
        yield house
