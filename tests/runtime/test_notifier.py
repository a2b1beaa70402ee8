"""Notifications: out of the commit, to real receivers that fail, hang and repeat, at least once, under one id."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from hai_flow.engine import commands as c
from hai_flow.notify import delivery
from hai_flow.notify.channels import NotifyFile, WebhookChannel, read_channels
from hai_flow.runtime.people.ids import NO_IDS, Aliases
from hai_flow.runtime.people.notifier import Notifier, NotifierConfig
from hai_flow.runtime.people.roster import Rosters
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.store.identity import keys
from hai_flow.store.identity.erasure import forget
from hai_flow.store.people import notifications
from hai_flow.store.people.notifications import NotificationSummary
from hai_flow.wire.webhook_body import Call
from hai_flow.wire.webhook_signatures import is_genuine
from tests.runtime.conftest import Connection, Make, is_now, open_pending
from tests.store.test_reads import rows_read
from tests.support.mcp_lines import Script, catalogue
from tests.support.receivers import Hooks, Mailbox, hook_server, mail_server
from tests.support.values import require
from tests.support.waiting import until

FLOW = """hai: flow/v1
name: telling
version: 1
steps:
  - id: go
    approve:
      {title: "Spend it?", message: "All of it", from: role:boss, notify: NOTIFY, deadline: 1d, remind: [1h],
       on_deadline: [{escalate: {from: "role:chief", deadline: 1d}}, reject]}
"""
FILE = """
hai: notify/v1
url: https://flow.example.com
hosts: [127.0.0.1]
channels:
  email: {kind: email, host: 127.0.0.1, port: MAIL, security: none, from: "Flow <flow@example.com>"}
  pager: {kind: webhook, url: "HOOK", secret: PAGER}
  slack: {kind: slack, url: SLACK}
  inside: {kind: webhook, url: "http://169.254.169.254/", secret: PAGER}
people:
  user:ann: {email: ann@example.com, roles: [boss]}
  user:bob: {email: bob@example.com, roles: [boss]}
  user:req: {email: req@example.com, roles: [boss]}
  user:cy: {email: cy@example.com, roles: [chief]}
"""
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
QUICK = NotifierConfig(
    poll_seconds=0.02, again_seconds=0.02, again_seconds_max=0.1, tries_max=5, link_base="https://flow.example.com"
)


class World:
    """A runtime without channels, receivers, and notifiers over them."""

    def __init__(self, runtime: Runtime, mail: Mailbox, hooks: Hooks) -> None:
        self.runtime, self.mail, self.hooks = runtime, mail, hooks
        text = FILE.replace("MAIL", str(mail.port)).replace("HOOK", hooks.url)
        self.file, findings = read_channels(text.encode(), "notify.yaml")
        assert findings == []
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        """The database's clock, which is ahead of this machine's."""
        return self.runtime.committer.now() + self.ahead

    @contextlib.asynccontextmanager
    async def notifier(
        self, file: NotifyFile | None = None, ids: Mapping[str, Aliases] = NO_IDS, *, by_keys: bool = True
    ) -> AsyncIterator[Notifier]:
        secrets = {"PAGER": SECRET, "SLACK": self.hooks.url}
        runtime = self.runtime
        file = file or self.file
        rosters = Rosters(runtime.tenants, file, None, by_keys=by_keys, ids=ids)
        made = Notifier(runtime.database, runtime.inbox, rosters, file, secrets, HttpConfig(), self.now, QUICK)
        await made.start()
        yield made
        await made.stop()

    async def ask(self, notify: str, flow: str = FLOW, *, requester: str = "user:req") -> UUID:
        """A run that asks, and tells of that."""
        source = flow.replace("NOTIFY", notify).replace("telling", f"telling_{uuid4().hex[:8]}").encode()
        _, plan = await self.runtime.catalog.publish(LOCAL_TENANT, source)
        run_id = uuid4()
        command = c.Start(run_id=run_id, thread_id=str(run_id), requester=requester, input={})
        await self.runtime.starts.start(LOCAL_TENANT, plan, command)
        return run_id

    async def listed(self, run_id: UUID) -> list[NotificationSummary]:
        return await notifications.list_notifications(self.runtime.database.api, LOCAL_TENANT, limit=50, run_id=run_id)

    async def ended(self, run_id: UUID, count: int) -> list[NotificationSummary]:
        """Its notifications, when so many have ended."""

        async def those() -> list[NotificationSummary]:
            found = [each for each in await self.listed(run_id) if each.status in ("sent", "dead", "dropped")]
            return found if len(found) >= count else []

        return await until(those)


@pytest.fixture
async def world(make: Make) -> AsyncIterator[World]:
    runtime = await make()
    with mail_server() as mail:
        async with hook_server() as hooks:
            yield World(runtime, mail, hooks)


async def test_everybody_who_may_decide_gets_a_mail_with_a_link_of_their_own(world: World) -> None:
    run_id = await world.ask("[email]")
    async with world.notifier():
        ended = await world.ended(run_id, 3)
    assert sorted((each.person, each.status) for each in ended) == [
        ("user:ann", "sent"), ("user:bob", "sent"), ("user:req", "dropped"),
    ]  # fmt: skip
    assert sorted(str(mail["To"]) for mail in world.mail.mails) == ["ann@example.com", "bob@example.com"]
    texts = [str(mail.get_payload()) for mail in world.mail.mails]
    links = {line for text in texts for line in text.splitlines() if "/links/" in line}
    assert len(links) == 2
    assert all("> Spend it?" in text and "> All of it" in text for text in texts)
    stored = await world.runtime.database.api.fetch("SELECT digest, principal FROM links")
    assert sorted(row[1] for row in stored) == ["user:ann", "user:bob"]
    tokens = [link.rsplit("/", 1)[1] for link in links]
    assert all(len(token) >= 43 for token in tokens)
    assert not [row for row in stored if any(token.encode() in bytes(row[0]) for token in tokens)]


async def test_a_person_with_two_ids_is_told_once(world: World) -> None:
    run_id = await world.ask("[email]")
    async with world.notifier(ids={"default": Aliases({"user:bob": "user:ann"})}):
        ended = await world.ended(run_id, 2)
    assert [(each.person, each.status) for each in ended if each.person != "user:req"] == [("user:ann", "sent")]


@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("by_keys", [True, False])
async def test_nobody_who_was_erased_is_told_of_a_question_until_they_have_a_key(
    world: World, eye: Connection, by_keys: bool, has_key: bool
) -> None:
    """Though the file names them: without a key nothing else would keep them out, nor end what was sent to them."""
    pool = world.runtime.database.api
    if has_key:
        await keys.create_key(pool, LOCAL_TENANT, "user:ann", name="", roles=["boss"], created_by="test")
    for _ in range(2):  # it may be repeated
        await forget(eye, LOCAL_TENANT, "user:ann", by="user:root")
    async with world.notifier(by_keys=by_keys):
        for ann in ("dropped", "sent"):
            ended = await world.ended(await world.ask("[email]"), 3)
            told = {each.person: each.status for each in ended}
            assert told == {"user:ann": ann, "user:bob": "sent", "user:req": "dropped"}
            await keys.create_key(pool, LOCAL_TENANT, "user:ann", name="", roles=["boss"], created_by="test")
    assert await pool.fetchval("SELECT count(*) FROM erased_people") == 1


@pytest.mark.parametrize("channels", ["[email]", "[anns]", "[email:boss]"])
async def test_nobody_whose_keys_were_revoked_is_told_of_a_question(world: World, channels: str) -> None:
    """They decide nothing any more, so what people are asked is not for them, whatever the file says."""
    anns = WebhookChannel(url=world.hooks.url, secret="PAGER", person="user:ann")
    file = msgspec.structs.replace(world.file, channels={**world.file.channels, "anns": anns})
    pool = world.runtime.database.api
    for person, revoked in (("user:ann", True), ("user:bob", False)):
        key, _ = await keys.create_key(pool, LOCAL_TENANT, person, name="", roles=["boss"], created_by="test")
        if revoked:
            await keys.revoke_key(pool, LOCAL_TENANT, key.id)
    run_id = await world.ask(channels)
    async with world.notifier(file):
        ended = await world.ended(run_id, 1 if channels == "[anns]" else 3)
    (left,) = [each for each in ended if each.person == "user:ann"]
    assert (left.status, left.error) == ("dropped", "the keys of the person were revoked, or they were erased")
    assert [str(mail["To"]) for mail in world.mail.mails] == ([] if channels == "[anns]" else ["bob@example.com"])
    assert world.hooks.received == []


async def test_links_end_and_webhooks_are_signed_by_the_databases_clock(world: World) -> None:
    world.ahead = timedelta(days=30)
    run_id = await world.ask("[email, pager]")
    async with world.notifier():
        await world.ended(run_id, 4)
    ends = [row[0] for row in await world.runtime.database.api.fetch("SELECT expires_at FROM links")]
    assert len(ends) == 2
    assert all(abs(each - world.now() - timedelta(hours=72)) < timedelta(minutes=5) for each in ends)
    (hook,) = world.hooks.received
    assert abs(int(hook.headers["webhook-timestamp"]) - world.now().timestamp()) < 300
    assert all(parsedate_to_datetime(mail["Date"]).date() == world.now().date() for mail in world.mail.mails)


async def test_a_failing_hanging_receiver_gets_its_message_under_one_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SECONDS", 2.0)
    world.hooks.answers = ["hang", 500, "drop", 302]
    run_id = await world.ask("[pager]")
    async with world.notifier():
        await until(lambda: world.hooks.received)
        monkeypatch.setattr(delivery, "SECONDS", 30.0)  # those that do not hang may take their time
        (ended,) = await world.ended(run_id, 1)
    assert (ended.status, ended.tries) == ("sent", 5)
    assert len(world.hooks.received) == 5, "a redirect is not followed"
    assert len({each.headers["webhook-id"] for each in world.hooks.received}) == 1
    for each in world.hooks.received:
        now = int(each.headers["webhook-timestamp"]) * 1000
        assert is_genuine(Call(each.headers, each.body), "standard", "", SECRET, now)
        assert json.loads(each.body)["data"]["title"] == "Spend it?"
        assert json.loads(each.body)["data"]["link"] is None, "nobody knows who reads it"


async def test_personal_values_are_in_deciders_mails_and_in_no_shared_channel(world: World) -> None:
    flow = FLOW.replace("steps:", "state: {who: {type: string, default: Erika-5512, pii: true}}\nsteps:", 1)
    flow = flow.replace("Spend it?", "Pay ${{ state.who }}?").replace("All of it", "To ${{ state.who }}")
    run_id = await world.ask("[pager, slack, email]", flow)
    async with world.notifier():
        await world.ended(run_id, 5)
    texts = [str(mail.get_payload()) for mail in world.mail.mails]
    assert len(texts) == 2
    assert all("> Pay Erika-5512?" in text and "> To Erika-5512" in text for text in texts)
    bodies = [each.body.decode() for each in world.hooks.received]
    assert len(bodies) == 2
    assert all("[personal]" in body and "Erika" not in body for body in bodies)


async def test_what_a_servers_form_marks_is_in_no_shared_channel(world: World, make: Make, tmp_path: Path) -> None:
    """The workflow marks nothing; its gate quotes what the server makes of a person's answer."""
    amount = {"type": "integer", "pii": True}
    async with catalogue(tmp_path, Script(questions=("How much?",), amount=amount), "stdio") as file:
        world.runtime = await make(performs=True, mcp=file)
        call = "tools: {t: {mcp: {use: files}}}\nsteps:\n  - {id: a, call: t.add}\n"
        flow = FLOW.replace("steps:\n", call).replace("All of it", "To ${{ steps.a.output }}")
        run_id = await world.ask("[pager]", flow)
        await until(lambda: is_now(world.runtime, run_id, "waiting"))
        pending = await open_pending(world.runtime, run_id)
        answer = c.PendingAnswer(id=pending, values={"amount": 7715443})
        command = c.Answer(answers=(answer,), by=c.Principal("user:req"))
        await world.runtime.committer.submit(run_id, LOCAL_TENANT, command)
        async with world.notifier():
            await world.ended(run_id, 1)
        await world.runtime.stop()
    (body,) = [each.body.decode() for each in world.hooks.received]
    assert "Spend it?" in body or "[personal]" in body
    assert "7715443" not in body


async def test_what_no_try_could_send_is_given_up_and_visible(world: World) -> None:
    world.hooks.answers = [503] * 9
    run_id = await world.ask("[pager]")
    async with world.notifier():
        (ended,) = await world.ended(run_id, 1)
    assert (ended.status, ended.tries, ended.error) == ("dead", 5, "it answered 503")


@pytest.mark.parametrize("channel", ["pager", "slack"])
async def test_a_receiver_that_wants_to_be_left_alone_is(world: World, channel: str) -> None:
    world.hooks.answers = [429]
    run_id = await world.ask(f"[{channel}]")
    row = "SELECT 1 FROM notifications WHERE run_id = $1 AND tries = 1 AND due_at > now() + interval '50 minutes'"
    async with world.notifier():
        await until(lambda: world.runtime.database.api.fetchval(row, run_id))


async def test_a_receiver_that_is_gone_is_not_asked_again(world: World) -> None:
    world.hooks.answers = [410]
    run_id = await world.ask("[pager]")
    async with world.notifier():
        (ended,) = await world.ended(run_id, 1)
    assert (ended.status, ended.tries) == ("dead", 1)


@pytest.mark.parametrize("channel", ["inside", "pager"])
async def test_an_address_inside_is_not_reached_unless_the_file_allows_it(world: World, channel: str) -> None:
    run_id = await world.ask(f"[{channel}]")
    async with world.notifier(msgspec.structs.replace(world.file, hosts=())):
        (ended,) = await world.ended(run_id, 1)
    assert (ended.status, ended.tries) == ("dead", 1)
    assert "no public address" in (ended.error or "")
    assert world.hooks.received == []


async def test_a_mail_server_absent_or_refusing_for_now_is_tried_again(world: World) -> None:
    world.mail.refusals, world.mail.refused = 2, "bob@example.com"
    run_id = await world.ask("[email]")
    async with world.notifier():
        ended = {each.person: each for each in await world.ended(run_id, 3)}
    assert ended["user:ann"].status == "sent"
    assert ended["user:ann"].tries == 3
    assert (ended["user:bob"].status, ended["user:bob"].tries) == ("dead", 1)
    assert len(world.mail.mails) == 1


async def test_a_slack_channel_is_told_without_a_link_that_decides(world: World) -> None:
    run_id = await world.ask('["slack:#money"]')
    async with world.notifier():
        await world.ended(run_id, 1)
    (said,) = [json.loads(each.body) for each in world.hooks.received]
    assert said["channel"] == "#money"
    assert (said["unfurl_links"], said["unfurl_media"]) == (False, False)
    assert "/links/" not in said["text"]


async def test_an_escalation_tells_the_next_people_and_a_reminder_the_waiting(world: World) -> None:
    run_id = await world.ask("[email]")
    async with world.notifier():
        await world.ended(run_id, 3)
        for ms, count in ((2 * 3_600_000, 6), (24 * 3_600_000, 7)):
            await world.runtime.committer.submit(run_id, LOCAL_TENANT, c.Jump(ms=ms, by="user:op"))
            await world.ended(run_id, count)
    told = {(each.what, each.person) for each in await world.listed(run_id) if each.status == "sent"}
    assert ("reminded", "user:ann") in told
    assert ("escalated", "user:cy") in told
    assert ("escalated", "user:ann") not in told
    (mail,) = [each for each in world.mail.mails if each["To"] == "cy@example.com"]
    assert "This was escalated" in str(mail.get_payload())


async def pile_up(world: World, notify: str) -> UUID:
    """A question with three reminders, each of another commit."""
    run_id = await world.ask(notify, FLOW.replace("remind: [1h]", "remind: [1h, 2h, 3h]"))
    for count in (2, 3, 4):
        await world.runtime.committer.submit(run_id, LOCAL_TENANT, c.Jump(ms=3_600_000, by="user:op"))
        await until(lambda count=count: has_notices(world, run_id, count))
    return run_id


async def has_notices(world: World, run_id: UUID, count: int) -> bool:
    query = "SELECT count(*) FROM notifications WHERE run_id = $1 AND channel IS NULL"
    return bool(await world.runtime.database.api.fetchval(query, run_id) == count)


async def test_of_reminders_that_have_piled_up_the_last_one_is_sent(world: World) -> None:
    run_id = await pile_up(world, "[email, pager]")
    async with world.notifier():
        await until(lambda: _all_ended(world, run_id))
    sent = Counter((each.what, each.person) for each in await world.listed(run_id) if each.status == "sent")
    people = ("user:ann", "user:bob", None)
    assert sent == {(what, person): 1 for what in ("opened", "reminded") for person in people}


async def test_a_reminder_looks_at_the_notifications_of_its_question_alone(world: World) -> None:
    run_id = await pile_up(world, "[email, pager]")
    pool = world.runtime.database.api
    await pool.execute(
        "INSERT INTO notifications (id, tenant, run_id, pending_id, what, notify, status) "
        "SELECT id || n, tenant, run_id, 'other ' || n, what, notify, 'divided' "
        "FROM notifications, generate_series(1, 500) n WHERE run_id = $1",
        run_id,
    )
    await pool.execute("ANALYZE notifications")
    last = max(await notifications.due(pool, 9, timedelta()), key=lambda each: each.created_at)
    asked: list[tuple[str, tuple[Any, ...]]] = []
    async with pool.acquire() as connection:
        connection.add_query_logger(lambda query: asked.append((query.query, query.args)))
        assert not await notifications.is_followed(connection, last)
        await asyncio.sleep(0)  # the driver tells of a statement a moment later
        ((query, args),) = asked
        (answer,) = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args))
    assert rows_read(answer["Plan"]) <= 4


@pytest.mark.parametrize(("channels", "is_reminded"), [("[pager]", True), ("[pager, email]", False)])
async def test_an_escalation_stands_for_reminders_over_its_channels_alone(
    world: World, channels: str, is_reminded: bool
) -> None:
    """It asks the same people."""
    run_id = await world.ask("[email]", FLOW.replace('from: "role:chief"', f"notify: {channels}"))
    for ms, count in ((2 * 3_600_000, 2), (24 * 3_600_000, 3)):
        await world.runtime.committer.submit(run_id, LOCAL_TENANT, c.Jump(ms=ms, by="user:op"))
        await until(lambda count=count: has_notices(world, run_id, count))
    async with world.notifier():
        await until(lambda: _all_ended(world, run_id))
    sent = {(each.what, each.person) for each in await world.listed(run_id) if each.status == "sent"}
    assert ("escalated", None) in sent
    assert (("reminded", "user:ann") in sent) is is_reminded


async def test_a_question_that_is_decided_meanwhile_is_not_told(world: World) -> None:
    run_id = await world.ask("[email, pager]")
    (id,) = require(await world.runtime.fanout.state_at(LOCAL_TENANT, run_id, 2**53)).open_pendings.values()
    answer = c.PendingAnswer(id=id, decision="approve")
    await world.runtime.committer.submit(
        run_id, LOCAL_TENANT, c.Answer(answers=(answer,), by=c.Principal("user:ann", ("boss",)))
    )
    async with world.notifier():
        await until(lambda: _all_ended(world, run_id))
    assert (world.mail.mails, world.hooks.received) == ([], [])


async def _all_ended(world: World, run_id: UUID) -> bool:
    rows = await world.runtime.database.api.fetch("SELECT due_at FROM notifications WHERE run_id = $1", run_id)
    return bool(rows) and all(row[0] is None for row in rows)


async def test_a_row_of_the_outbox_that_is_delivered_again_tells_nobody_twice(world: World, eye: Connection) -> None:
    run_id = await world.ask("[pager]")
    await until(lambda: world.listed(run_id))
    row = require(await eye.fetchrow("SELECT id, pending_id FROM notifications"))
    sender, seq, n = row[0].split("/")
    body = json.dumps({"pending_id": row[1], "what": "opened", "notify": ["pager"]}).encode()
    async with world.notifier():
        await world.ended(run_id, 1)
        again = (
            "INSERT INTO outbox (run_id, last_seq, n, tenant, kind, target, body) VALUES ($1,$2,$3,$4,'notify',$5,$6)"
        )
        await eye.execute(again, UUID(sender), int(seq), int(n), LOCAL_TENANT, row[1], body)
        await until(lambda: eye.fetchval("SELECT count(*) = 0 FROM outbox"))
        await asyncio.sleep(0)
        assert await eye.fetchval("SELECT count(*) FROM notifications WHERE due_at IS NOT NULL") == 0
    assert len(world.hooks.received) == 1


async def test_two_notifiers_send_each_once(world: World) -> None:
    runs = [await world.ask("[pager]") for _ in range(5)]
    async with world.notifier(), world.notifier():
        for run_id in runs:
            await world.ended(run_id, 1)
    assert len(world.hooks.received) == 5
    assert len({each.headers["webhook-id"] for each in world.hooks.received}) == 5


async def test_a_commit_waits_for_no_receiver(world: World) -> None:
    world.hooks.answers = ["hang"] * 5
    async with world.notifier():
        runs = [await world.ask("[pager]") for _ in range(5)]
        await until(lambda: len(world.hooks.received) == 5)
        for run_id in runs:
            await world.runtime.committer.submit(run_id, LOCAL_TENANT, c.Stop(by="user:op"))


async def test_what_nobody_is_to_be_told_of_writes_no_row(make: Make, eye: Connection) -> None:
    runtime = await make()
    source = FLOW.replace(" notify: NOTIFY,", "").encode()
    _, plan = await runtime.catalog.publish(LOCAL_TENANT, source)
    command = c.Start(run_id=uuid4(), thread_id="t", requester="user:req", input={})
    await runtime.starts.start(LOCAL_TENANT, plan, command)
    assert await eye.fetchval("SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM notifications)") == 0
