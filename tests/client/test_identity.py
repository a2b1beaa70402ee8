"""Both clients where callers prove who they are: credentials, one's own inbox as it comes and goes, and a credential
that ends while something is followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from hai_flow_client import AsyncClient, Client, Forbidden, InboxNews, Pending

from tests.client.conftest import EAGER, Opened
from tests.client.proxy import cutting
from tests.support.hai_client import unique
from tests.support.identities import People
from tests.support.server import ServerProcess

ASKING = """
hai: flow/v1
name: NAME
version: 1
steps:
  - {id: gate, approve: {title: Spend, from: [role:boss], deadline: 1h, on_deadline: reject}}
"""
SECONDS = 3  # that a token is good for: long enough for a busy machine to use it, short enough to wait for its end

As = Callable[..., Client]


@pytest.fixture
def as_(opened: Opened, strict: ServerProcess, dsn: str) -> Iterator[As]:
    """A client of somebody with roles, by a key of theirs."""
    with ExitStack() as clients:

        def client(principal: str, *roles: str, url: str = strict.url) -> Client:
            key = People(dsn).key(principal, roles=roles)[1]
            return clients.enter_context(opened(url, key=key, patience=EAGER))

        yield client


@pytest.fixture
def blocking(strict: ServerProcess, dsn: str) -> Iterator[As]:
    """The same, and always the client for threads: for what a test does while the client that it tests waits."""
    with ExitStack() as clients:

        def client(principal: str, *roles: str, speaks_for: Sequence[str] = ()) -> Client:
            key = People(dsn).key(principal, roles=roles, speaks_for=speaks_for)[1]
            return clients.enter_context(Client(strict.url, key=key))

        yield client


@pytest.fixture
def asking(as_: As) -> str:
    """The name of a workflow that asks the boss."""
    name = unique("asks").replace("-", "_")
    as_("user:pat", "publisher").workflows.publish(ASKING.replace("NAME", name))
    return name


def asked(client: Client, name: str) -> Pending:
    """The question of a run that the client starts."""
    run = client.runs.wait(client.runs.start(name))
    (pending,) = [each for each in client.pendings.list() if each.run_id == run.id]
    return pending


# --- credentials --------------------------------------------------------------------------------------------------


def test_an_admin_makes_lists_and_revokes_keys(as_: As, opened: Opened, strict: ServerProcess) -> None:
    admin = as_("user:ada", "admin")
    made = admin.keys.create(
        "service:ci", name="of the build", roles=["viewer"], expires_in=60, speaks_for=["user:shop-*"]
    )
    assert (made.principal, made.roles, made.created_by) == ("service:ci", ["viewer"], "user:ada")
    assert made.speaks_for == ["user:shop-*"]
    assert made.expires_at is not None
    with opened(strict.url, key=made.key, patience=EAGER) as ci:
        session = ci.session.get()
        assert (session.principal, session.roles, session.way) == ("service:ci", ["viewer"], "key")
        assert made.id in [each.id for each in admin.keys.list()]
        assert admin.keys.revoke(made).revoked_at is not None
        with pytest.raises(Forbidden) as refused:
            ci.session.get()
    assert (refused.value.status, refused.value.code) == (401, "auth.invalid")


def test_a_backend_makes_a_token_for_its_page_and_that_a_ticket(as_: As, opened: Opened, strict: ServerProcess) -> None:
    shop = as_("service:shop", "issuer")
    token = shop.tokens.create("user:ann", threads=["t1"], expires_in=60)
    with opened(strict.url, key=token.token, patience=EAGER) as page:
        session = page.session.get()
        assert (session.principal, session.way, session.expires_at) == ("user:ann", "token", token.expires_at)
        assert page.tickets.create().ticket


# --- the inbox ----------------------------------------------------------------------------------------------------


def told(news: InboxNews) -> tuple[list[str], list[str], list[str]]:
    return [each.id for each in news.items], [each.id for each in news.changed], news.gone


def test_an_inbox_is_told_as_it_is_and_again_when_it_changes(as_: As, asking: str) -> None:
    boss, other, ann = as_("user:bo", "decider", "boss"), as_("user:bea", "decider", "boss"), as_("user:ann")
    with boss.inbox.follow(workflow=asking) as following:
        assert told(next(following)) == ([], [], [])
        first = asked(ann, asking)
        assert told(next(following)) == ([first.id], [first.id], [])
        other.inbox.claim(first)
        (changed,) = next(following).changed
        assert changed.claimed_by == "user:bea"
        second = asked(ann, asking)
        assert told(next(following)) == ([first.id, second.id], [second.id], [])
        boss.inbox.decide([{"id": first.id, "decision": "approve"}, {"id": second.id, "decision": "approve"}])
        gone: list[str] = []
        while len(gone) < 2:
            gone += next(following).gone
        assert sorted(gone) == sorted([first.id, second.id])


def test_who_comes_back_to_an_inbox_is_told_nothing_twice(as_: As, asking: str, strict: ServerProcess) -> None:
    ann = as_("user:ann")
    first = asked(ann, asking)
    with cutting(strict.url) as proxy:
        boss = as_("user:bo", "decider", "boss", url=proxy.url)
        with boss.inbox.follow(workflow=asking) as following:
            assert told(next(following)) == ([first.id], [first.id], [])
            proxy.cut()
            second = asked(ann, asking)
            assert told(next(following)) == ([first.id, second.id], [second.id], [])


# --- a credential that ends ---------------------------------------------------------------------------------------


class Tokens:
    """A backend's tokens for its page, each good for some seconds. The page asks for one before each request."""

    def __init__(self, blocking: As, principal: str, *roles: str) -> None:
        self._shop = blocking("service:shop", "issuer", *roles, speaks_for=[principal])
        self._principal, self._roles = principal, roles
        self.given = 0

    def __call__(self) -> str:
        self.given += 1
        return self._shop.tokens.create(self._principal, roles=self._roles, expires_in=SECONDS).token

    async def awaited(self) -> str:
        return self()


def approving(tokens: Tokens, boss: Client, pending: Pending) -> Callable[[], str]:
    """The tokens, with whose second one the question is answered: while nobody follows."""

    def give() -> str:
        if tokens.given == 1:
            boss.pendings.decide(pending.id, "approve")
        return tokens()

    return give


def test_following_goes_on_past_a_tokens_end_with_each_event_once(
    as_: As, opened: Opened, asking: str, strict: ServerProcess, blocking: As
) -> None:
    pending = asked(as_("user:ann"), asking)
    tokens = Tokens(blocking, "user:ann")
    boss = blocking("user:bo", "decider", "boss")
    with opened(strict.url, key=approving(tokens, boss, pending), patience=EAGER) as page:
        events = list(page.runs.follow(pending.run_id))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[-1].type == "run_finished"
    assert tokens.given >= 2


def test_an_inbox_is_followed_beyond_the_end_of_a_token_and_told_once(
    as_: As, opened: Opened, asking: str, strict: ServerProcess, blocking: As
) -> None:
    pending = asked(as_("user:ann"), asking)
    tokens = Tokens(blocking, "user:bo", "decider", "boss")
    boss = blocking("user:bea", "decider", "boss")
    with (
        opened(strict.url, key=approving(tokens, boss, pending), patience=EAGER) as page,
        page.inbox.follow(workflow=asking) as following,
    ):
        assert told(next(following)) == ([pending.id], [pending.id], [])
        assert told(next(following)) == ([], [], [pending.id])


def test_without_another_credential_the_end_of_a_token_is_told(
    opened: Opened, asking: str, strict: ServerProcess, blocking: As
) -> None:
    token = Tokens(blocking, "user:bo", "decider")()
    with opened(strict.url, key=token, patience=EAGER) as page, page.inbox.follow(workflow=asking) as following:
        next(following)
        with pytest.raises(Forbidden) as refused:
            next(following)
    assert refused.value.code == "auth.expired"


async def test_a_function_that_gives_credentials_may_be_awaited(strict: ServerProcess, blocking: As) -> None:
    tokens = Tokens(blocking, "user:ann")
    async with AsyncClient(strict.url, key=tokens.awaited) as page:
        assert (await page.session.get()).principal == "user:ann"


def test_what_is_no_credential_is_refused_before_it_is_sent(opened: Opened, strict: ServerProcess) -> None:
    with (
        opened(strict.url, key=lambda: "two words", patience=EAGER) as page,
        pytest.raises(ValueError, match="visible ASCII"),
    ):
        page.session.get()


def test_a_deployments_admin_limits_any_tenant_and_others_their_own(as_: As, dsn: str) -> None:
    name = unique("t")
    People(dsn).tenant(name)
    flow = as_("user:root", "admin")
    assert {"default", name} <= {each.name for each in flow.tenants.list()}
    limited = flow.tenants.limit(name, {"open_runs": 7, "followers": 0})
    assert (limited.limits.open_runs, limited.limits.followers, limited.limits.log_bytes) == (7, 0, None)
    assert flow.tenants.get(limited) == flow.tenants.get(name) == limited
    assert flow.tenants.limit(limited, {"open_runs": None}).limits.open_runs is None
    placed = flow.tenants.place(name, ["home"])
    assert [(cell.name, cell.begins, cell.first) for cell in placed.cells] == [("home", True, True)]
    with pytest.raises(Forbidden):
        as_("user:ann", "operator").tenants.get(name)
