"""Those who only follow leave room for those who do something, and one client leaves room for others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.api.base.peers import peer
from hai_flow.api.http.load_shedding import Admission, StreamPlace
from hai_flow.errors import Rejected
from tests.support.agent_client import AgentClient, output, say
from tests.support.agui_client import AguiClient
from tests.support.hai_client import HaiClient, answer, unique, user
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving
from tests.support.waiting import until

SSE = {"Accept": "text/event-stream"}
STREAMS, STREAMS_OF_A_PEER = 16, 8
FOLLOWERS, FOLLOWERS_OF_A_PEER = 12, 6


@pytest.fixture(scope="module")
def small(postgres_server: Server) -> Iterator[ServerProcess]:
    places = {"HAI_FLOW_STREAMS_MAX": str(STREAMS), "HAI_FLOW_STREAMS_PEER_MAX": str(STREAMS_OF_A_PEER)}
    with postgres_server.database() as dsn, serving(dsn, environment=places) as process:
        yield process


class Followers:
    """Streams that stay open, of clients behind a proxy on this machine. `None`: of one without a proxy."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._http = stack.enter_context(httpx2.Client(base_url=url, timeout=30))
        self._stack = stack

    def follow(self, address: str | None, path: str | None = None) -> httpx2.Response:
        headers = {} if address is None else {"X-Forwarded-For": address}
        path = path or f"/api/v1/agent/runs/{unique('thread')}/events"
        response = self._stack.enter_context(self._http.stream("GET", path, headers={**SSE, **headers}))
        if response.status_code != 200:
            response.read()
        return response

    def take_all(self) -> None:
        """All places of those who only follow, in all and of the address of these tests."""
        for address in (None, "192.0.2.1"):
            for _ in range(FOLLOWERS_OF_A_PEER):
                assert self.follow(address).status_code == 200
        for address in (None, "192.0.2.2"):
            assert self.follow(address).status_code == 429


@pytest.fixture
async def followers(small: ServerProcess) -> AsyncIterator[Followers]:
    with ExitStack() as stack:
        yield Followers(small.url, stack)
    async with httpx2.AsyncClient(base_url=small.url) as http:

        async def nobody_follows() -> bool:
            return (await http.get("/healthz")).json()["streams"] == 0

        await until(nobody_follows)


async def test_a_client_that_follows_all_that_it_may_leaves_others_their_places(followers: Followers) -> None:
    for _ in range(FOLLOWERS_OF_A_PEER):
        assert followers.follow("192.0.2.1").status_code == 200
    refused = followers.follow("192.0.2.1")
    assert (refused.status_code, refused.json()["code"]) == (429, "streams_busy")
    assert refused.headers["retry-after"] == "1"
    assert "your address" in refused.json()["detail"]
    assert followers.follow("192.0.2.2").status_code == 200


async def test_starts_and_answers_work_while_followers_fill_all_places(
    small: ServerProcess, followers: Followers
) -> None:
    followers.take_all()
    hai = HaiClient(small.url, workflow="cleanup")
    asked = hai.post(user())
    assert asked.types[-1] == "RUN_FINISHED"
    assert hai.post(answer(asked.call_id("confirmAction"))).types[-1] == "RUN_FINISHED"
    agui = AguiClient(small.url, workflow="cleanup").post(user())
    assert agui.types[-1] == "RUN_FINISHED"
    agent = AgentClient(small.url, workflow="cleanup")
    call = agent.post(say("clean up")).data("function_call")["call_id"]
    assert agent.post(output(call, "confirmed")).last["status"] == "completed"


def test_who_asks_for_a_whole_response_needs_no_place(postgres_server: Server) -> None:
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment={"HAI_FLOW_STREAMS_MAX": "1"}) as server,
        ExitStack() as stack,
    ):
        assert Followers(server.url, stack).follow(None).status_code == 200
        client = AgentClient(server.url, workflow="chat")
        assert client.post(say("hello")).status == 429
        whole = client.post(say("hello"), stream=False)
        assert (whole.status, whole.last["status"]) == (200, "completed")


async def test_a_post_that_says_nothing_new_is_a_follower(small: ServerProcess, followers: Followers) -> None:
    """It would take the places that are kept from followers, else."""
    followers.take_all()
    client = HaiClient(small.url, workflow="cleanup")
    begun = client.body(user())
    assert client.send(begun).status == 200
    for attaching in (client.body(), begun):
        refused = client.send(attaching)
        assert (refused.status, refused.problem["code"]) == (429, "streams_busy")


PEERS = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.tuples(st.sampled_from(["take", "only_follows", "leave"]), PEERS, st.booleans(), st.integers(0, 9))))
def test_places_are_counted_as_they_are_held(actions: list[tuple[str, str, bool, int]]) -> None:
    admission = Admission(streams_max=8, streams_peer_max=4)
    held: list[tuple[StreamPlace, str, bool]] = []

    def count(of: str | None, *, followers: bool = False) -> int:
        return sum(of in (None, each) and (follows or not followers) for _, each, follows in held)

    def is_room(of: str, more: int, *, follows: bool) -> bool:
        fits = count(None) + more <= 8 and count(of) + more <= 4
        return fits and not (follows and (count(None, followers=True) >= 6 or count(of, followers=True) >= 3))

    for action, of, follows, n in actions:
        if action == "take":
            place = admission.place(of)
            assert _taken(lambda place=place, follows=follows: place.take(follows=follows)) == is_room(
                of, 1, follows=follows
            )
            if admission.streams > len(held):
                held.append((place, of, follows))
        elif held:
            place, of, follows = held.pop(n % len(held))
            if action == "leave":
                place.leave()
                place.leave()
            else:
                held.append((place, of, follows))
                allowed = follows or is_room(of, 0, follows=True)
                assert _taken(place.only_follows) == allowed
                held[-1] = (place, of, follows or allowed)
        assert admission.streams == len(held)


def _taken(take: Any) -> bool:
    try:
        take()
    except Rejected:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a name", "a name"),
    ],
)
def test_an_ipv6_subnet_is_one_client(host: str, counted: str) -> None:
    assert peer(host) == counted
