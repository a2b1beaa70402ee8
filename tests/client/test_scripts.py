"""What the client decides, without a socket: where it goes on, what it sends again, when it gives up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hai_flow_client import operations as o
from hai_flow_client import scripts, values
from hai_flow_client.effects import Answer, Backoff, Effect, Give, Lost, NewKey, Now, Read, Request
from hai_flow_client.errors import Conflict, HaiFlowError, Invalid, NotFound, Problem, Unavailable, refusal
from hai_flow_client.link import Link, Patience
from hai_flow_client.sse import Frame, Parser

RUN = "00000000-0000-4000-8000-000000000001"


# --- a world ------------------------------------------------------------------------------------------------------


class World:
    """Answers a script's effects: requests by `answers`, reads by the chunks of the stream that was opened last.

    An answer is an `Answer`, a `Lost`, or the chunks of a stream, whose end may be a `Lost`."""

    def __init__(self, answers: Iterable[Any] | Callable[[Request], Any], patience: Patience | None = None) -> None:
        given = iter(() if callable(answers) else answers)
        self.answer: Callable[[Request], Any] = answers if callable(answers) else lambda request: next(given, None)
        self._patience = patience or Patience(repeats=3, reconnects=3, jitter=lambda: 0.0)
        self._stream: Iterator[bytes | Lost] = iter(())
        self.requests: list[Request] = []
        self.pauses: list[float] = []
        self.now = 0.0
        self.items: list[Any] = []

    def do(self, effect: Effect) -> Any:
        match effect:
            case Request():
                return self._send(effect)
            case Read():
                return next(self._stream, b"")
            case Backoff():
                self.pauses.append(self._patience.pause(effect))
                self.now += self.pauses[-1]
            case Now():
                return self.now
            case NewKey():
                return "a new key"
        return None

    def _send(self, request: Request) -> Answer | Lost:
        self.requests.append(request)
        answer = self.answer(request)
        assert answer is not None, f"nobody answers {request}"
        if isinstance(answer, (Answer, Lost)):
            return answer
        self._stream = iter(answer)
        return Answer("http://there", 200, {"content-type": "text/event-stream"})

    def run(self, script: Any) -> Any:
        """What the script returns. `items`: what it gave on the way."""
        reply = None
        try:
            while True:
                effect = script.send(reply)
                if isinstance(effect, Give):
                    self.items.append(effect.item)
                reply = None if isinstance(effect, Give) else self.do(effect)
        except StopIteration as end:
            return end.value


def ok(body: Any) -> Answer:
    return Answer("http://there", 200, {"content-type": "application/json"}, values.dumps(body))


def problem(status: int, code: str = "any", headers: dict[str, str] | None = None, **more: Any) -> Answer:
    body = {"type": "t", "title": "t", "status": status, "code": code, "detail": "because.", **more}
    return Answer(
        "http://there", status, {"content-type": "application/problem+json", **(headers or {})}, values.dumps(body)
    )


def run(status: str = "finished", seq: int = 5) -> dict[str, Any]:
    return {
        "id": RUN, "thread_id": "t", "workflow": "w", "version": {"version": 1, "sha256": "00", "dev": False},
        "status": status, "seq": seq, "started_by": "user:local", "instigators": [],
        "created_at": "2026-03-02T09:00:00.000Z", "ended_at": None, "input": {}, "output": 42, "error": None,
    }  # fmt: skip


def frame(seq: int, type: str = "warning_raised") -> bytes:
    data = {"seq": seq, "type": type, "at": "2026-03-02T09:00:00.000Z", "turn": 1, "text": "grüße\n"}
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (seq, type.encode(), values.dumps(data))


STREAM = [frame(1, "run_started"), frame(2), b": keep-alive\n\n", frame(3), frame(4), frame(5, "run_finished")]
LOST = Lost("http://there", "it broke")


def log_after(request: Request, stream: list[bytes] = STREAM) -> bytes:
    """What the server sends to a follower."""
    after = int(dict(request.query)["after"])
    return b"".join(each for each in stream if not each.startswith(b"id") or int(each[4:5]) > after)


# --- following ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lost", "ended"])
def test_a_stream_that_is_cut_anywhere_goes_on_with_the_next_event(how: str) -> None:
    whole = b"".join(STREAM)
    for cut in range(len(whole) + 1):
        streams = 0

        def answer(request: Request, cut: int = cut) -> Any:
            nonlocal streams
            if not request.streams:
                return ok(run("running" if streams == 1 and cut < len(whole) else "finished"))
            streams += 1
            if streams > 1:
                return [log_after(request)]
            return [whole[:cut], *([LOST] if how == "lost" else [])]

        world = World(answer)
        world.run(scripts.follow(f"/v1/runs/{RUN}", 0))
        assert [event["seq"] for event in world.items] == [1, 2, 3, 4, 5], cut


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_it_does_not_matter_how_a_stream_is_cut_into_pieces(size: int) -> None:
    whole = b"".join(STREAM)
    world = World([[whole[at : at + size] for at in range(0, len(whole), size)], ok(run())])
    world.run(scripts.follow(f"/v1/runs/{RUN}", 0))
    assert [event["seq"] for event in world.items] == [1, 2, 3, 4, 5]


def test_a_follower_that_comes_back_says_where_it_was() -> None:
    world = World([[frame(1), LOST], [frame(2), LOST], [frame(3, "run_failed")], ok(run("failed", 3))])
    world.run(scripts.follow("/v1/runs/x", 0))
    assert [dict(each.query).get("after") for each in world.requests] == ["0", "1", "2", None]


def test_an_event_that_comes_twice_is_given_once() -> None:
    world = World([[frame(1), frame(2), LOST], [*STREAM], ok(run())])
    world.run(scripts.follow("/v1/runs/x", 0))
    assert [event["seq"] for event in world.items] == [1, 2, 3, 4, 5]


def test_a_stream_with_a_gap_is_left_and_opened_again() -> None:
    world = World([[frame(1), frame(3)], [*STREAM[1:]], ok(run())])
    world.run(scripts.follow("/v1/runs/x", 0))
    assert [event["seq"] for event in world.items] == [1, 2, 3, 4, 5]


def test_following_gives_up_after_consecutive_failures_with_longer_pauses() -> None:
    world = World(itertools.repeat(LOST), Patience(reconnects=4, pause_first=1.0, pause_max=5.0, jitter=lambda: 0.0))
    with pytest.raises(Unavailable, match="it broke"):
        world.run(scripts.follow("/v1/runs/x", 0))
    assert world.pauses == [1.0, 2.0, 4.0, 5.0]


def test_a_sign_of_life_makes_a_follower_patient_again() -> None:
    alive = [[b": keep-alive\n\n", LOST], LOST, LOST]
    world = World([*alive, *alive, *alive, STREAM, ok(run())])
    world.run(scripts.follow("/v1/runs/x", 0))
    assert len(world.items) == 5


def test_a_run_that_was_retried_after_its_end_is_followed_on() -> None:
    again = [frame(3, "run_retried"), frame(4, "run_finished")]
    world = World([[frame(1), frame(2, "run_failed")], ok(run("finished", 4)), again, ok(run("finished", 4))])
    world.run(scripts.follow("/v1/runs/x", 0))
    assert [event["seq"] for event in world.items] == [1, 2, 3, 4]
    assert world.pauses == []


@pytest.mark.parametrize("answer", [LOST, problem(503), problem(404)])
def test_a_server_that_is_gone_after_the_end_does_not_spoil_it(answer: Answer | Lost) -> None:
    world = World([[*STREAM], answer])
    world.run(scripts.follow("/v1/runs/x", 0))
    assert len(world.items) == 5


def test_following_a_run_that_has_ended_from_its_end_gives_nothing() -> None:
    world = World([[], ok(run("finished", 5))])
    world.run(scripts.follow("/v1/runs/x", 5))
    assert (world.items, world.pauses) == ([], [])


def test_a_place_that_the_run_does_not_have_is_a_conflict() -> None:
    world = World([[b'event: cursor_reset\ndata: {"seq": 3}\n\n', frame(4)]])
    with pytest.raises(Conflict) as caught:
        world.run(scripts.follow("/v1/runs/x", 9))
    assert (caught.value.code, caught.value.winner) == ("cursor_reset", {"seq": 3})
    page = World([ok({"items": [], "next_cursor": None, "cursor_reset": {"seq": 3}})])
    with pytest.raises(Conflict):
        page.run(o.list_events(RUN, after=9))


@pytest.mark.parametrize("body", [b"data: {\n\n", b"data: 3\n\n", b"data: {}\n\n", b'data: {"seq": "x"}\n\n'])
def test_a_stream_of_something_else_is_refused(body: bytes) -> None:
    with pytest.raises(HaiFlowError) as caught:
        World([[body]]).run(scripts.follow("/v1/runs/x", 0))
    assert caught.value.code == "answer_unreadable"


def test_a_page_where_a_stream_was_asked_for_is_refused() -> None:
    with pytest.raises(HaiFlowError, match="stream"):
        World([ok({})]).run(scripts.follow("/v1/runs/x", 0))


def test_a_follower_of_no_run_is_told_so_at_once() -> None:
    world = World([problem(404)])
    with pytest.raises(NotFound):
        world.run(scripts.follow("/v1/runs/x", 0))
    assert world.pauses == []


# --- frames -------------------------------------------------------------------------------------------------------


def test_frames_are_read_as_the_standard_says() -> None:
    stream = (
        b": hi\n\ndata\n\nevent: a\r\ndata:1\r\ndata: 2\r\nid: 9\r\n\r\nevent: lost\n\ndata: x:y\n\ndata: cut off\n"
    )
    assert list(Parser().feed(stream)) == [Frame("", b""), Frame("a", b"1\n2", "9"), Frame("", b"x:y", "9")]


# --- one request --------------------------------------------------------------------------------------------------


def test_a_command_is_sent_again_under_the_same_key() -> None:
    world = World([LOST, problem(503), problem(429, headers={"retry-after": "7"}), ok(run())])
    assert world.run(o.start_run("w", {"n": 1})).id == RUN
    assert len({(each.body, each.headers["Idempotency-Key"]) for each in world.requests}) == 1
    assert world.pauses == [0.25, 0.5, 7.0]


def test_a_key_of_ones_own_is_sent() -> None:
    world = World([ok(run())])
    world.run(o.start_run("w", key="mine"))
    assert world.requests[0].headers["Idempotency-Key"] == "mine"


def test_a_request_is_given_up_after_so_many_failures() -> None:
    world = World(itertools.repeat(problem(503, "closing")))
    with pytest.raises(Unavailable) as caught:
        world.run(o.get_run(RUN))
    assert (len(world.requests), caught.value.code, caught.value.status) == (4, "closing", 503)


def test_a_server_that_says_much_later_is_not_waited_for() -> None:
    world = World([problem(503, headers={"retry-after": "3600"})])
    with pytest.raises(Unavailable) as caught:
        world.run(o.get_run(RUN))
    assert (caught.value.retry_after, world.pauses) == (3600.0, [])


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500])
def test_a_refusal_is_not_sent_again(status: int) -> None:
    world = World([problem(status)])
    with pytest.raises(HaiFlowError):
        world.run(o.get_run(RUN))
    assert len(world.requests) == 1


def test_what_can_not_be_repeated_is_sent_once() -> None:
    world = World([LOST])
    with pytest.raises(Unavailable) as caught:
        world.run(o.send_request("POST", "/v1/new", json={}))
    assert (caught.value.status, caught.value.code) == (None, "unreachable")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, Invalid), (413, Invalid), (415, Invalid), (422, Invalid), (404, NotFound), (409, Conflict), (410, Conflict)]
    + [(status, Unavailable) for status in (408, 429, 502, 503, 504)],
)
def test_a_refusal_is_an_error_of_its_kind(status: int, kind: type[HaiFlowError]) -> None:
    said = problem(status, "a.code", findings=[{"path": "/n", "message": "too small"}], winner={"id": 1})
    error = refusal(said.url, said.status, said.headers, said.body)
    assert type(error) is kind
    assert (error.status, error.code, error.detail, error.winner) == (status, "a.code", "because.", {"id": 1})
    assert str(error) == "because.\n  /n: too small"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"code": 3}'])
@pytest.mark.parametrize("media_type", ["text/html", "application/problem+json"])
def test_a_refusal_by_somebody_else_names_its_address(body: bytes, media_type: str) -> None:
    error = refusal("http://there", 404, {"content-type": media_type}, body)
    assert type(error) is NotFound
    assert "http://there answered 404, but not as HAI Flow does" in error.detail


def test_an_answer_that_is_something_else_is_refused() -> None:
    for wrong in ({}, [], {**run(), "seq": "x"}):
        with pytest.raises(HaiFlowError, match="HAI_FLOW_URL"):
            World([ok(wrong)]).run(o.get_run(RUN))


@pytest.mark.parametrize("id", ["", ".", ".."])
def test_an_id_that_would_lead_elsewhere_is_not_sent(id: str) -> None:
    with pytest.raises(ValueError, match="expected an id"):
        o.get_run(id)


def test_an_id_is_one_segment_whatever_it_is() -> None:
    world = World([ok(run())])
    world.run(o.get_run("a/b?c#d é"))
    assert world.requests[0].path == "/v1/runs/a%2Fb%3Fc%23d%20%C3%A9"


@pytest.mark.parametrize("value", [float("nan"), 2**60, "\ud800", {1: 2}, {1, 2}])
def test_what_json_can_not_say_is_not_sent(value: Any) -> None:
    with pytest.raises(values.NotJson):
        World([]).run(o.start_run("w", {"n": value}))


# --- lists --------------------------------------------------------------------------------------------------------


def page(items: list[Any], cursor: str | None) -> Answer:
    return ok({"items": items, "next_cursor": cursor})


def test_a_list_goes_on_over_its_pages() -> None:
    world = World([page([run(seq=1), run(seq=2)], "c"), page([], "d"), page([run(seq=3)], None)])
    world.run(o.list_runs(status=["running", "waiting"]))
    assert [each.seq for each in world.items] == [1, 2, 3]
    assert [dict(each.query).get("cursor") for each in world.requests] == [None, "c", "d"]
    assert world.requests[0].query[:2] == (("status", "running"), ("status", "waiting"))


def test_a_list_asks_for_no_more_than_is_wanted() -> None:
    world = World([page([run()] * 200, "c"), page([run()] * 50, "d")])
    world.run(o.list_runs(limit=250))
    assert len(world.items) == 250
    assert [dict(each.query)["limit"] for each in world.requests] == ["200", "50"]
    none = World([])
    none.run(o.list_runs(limit=0))
    assert none.items == []


# --- waiting ------------------------------------------------------------------------------------------------------


def test_waiting_looks_follows_and_looks_again() -> None:
    stream = [frame(6), frame(7, "turn_ended")]
    world = World([ok(run("running", 5)), stream, ok(run("waiting", 7))])
    assert world.run(o.wait_for_run(RUN)).status == "waiting"
    assert dict(world.requests[1].query) == {"after": "5"}


def test_a_run_that_stands_is_not_followed_unless_it_stood_so_before() -> None:
    assert World([ok(run("waiting", 7))]).run(o.wait_for_run(RUN)).seq == 7
    world = World([ok(run("waiting", 7)), [frame(8), frame(9, "turn_ended")], ok(run("waiting", 9))])
    assert world.run(o.wait_for_run(RUN, after=7)).seq == 9
    assert World([ok(run("finished", 7))]).run(o.wait_for_run(RUN, after=7)).seq == 7


def test_a_result_is_waited_for_over_questions() -> None:
    stream = [frame(6, "turn_ended"), frame(7, "turn_started"), frame(8, "run_finished")]
    world = World([ok(run("running", 5)), stream, ok(run("waiting", 6)), stream[1:], ok(run("finished", 8))])
    assert world.run(o.get_result(RUN)) == 42


def test_waiting_ends_in_time() -> None:
    world = World([])

    def quiet(request: Request) -> Any:
        if request.streams:
            assert request.seconds is not None
            world.now += request.seconds  # nothing comes until the reader is tired of it
            return [LOST]
        return ok(run("running", 5))

    world.answer = quiet
    with pytest.raises(TimeoutError, match="still running after 3 seconds"):
        world.run(o.wait_for_run(RUN, timeout=3))
    assert 3 <= world.now < 4


def test_waiting_for_a_busy_run_ends_in_time() -> None:
    numbers = itertools.count(6)
    world = World([])

    def chattering(request: Request) -> Any:
        if not request.streams:
            return ok(run("running", next(numbers)))

        def chunks() -> Iterator[bytes]:
            for seq in itertools.count(int(dict(request.query)["after"]) + 1):
                world.now += 0.1
                yield frame(seq)

        return chunks()

    world.answer = chattering
    with pytest.raises(TimeoutError):
        world.run(o.wait_for_run(RUN, timeout=10))
    assert 10 <= world.now < 11
    assert len(world.requests) < 100


# --- patience -----------------------------------------------------------------------------------------------------


def test_pauses_double_and_are_shortened_by_chance_up_to_a_half() -> None:
    error = Unavailable(Problem(code="unreachable", detail="no"))
    for jitter, expected in ((0.0, [1.0, 2.0, 4.0, 4.0]), (1.0, [0.5, 1.0, 2.0, 2.0])):
        patience = Patience(repeats=4, pause_first=1.0, pause_max=4.0, jitter=lambda jitter=jitter: jitter)
        assert [patience.pause(Backoff(n, error)) for n in range(1, 5)] == expected
        with pytest.raises(Unavailable):
            patience.pause(Backoff(5, error))


# --- where the server is ------------------------------------------------------------------------------------------


def link(url: str | None = None, **more: Any) -> Link:
    return Link.to(url, **{"act_as": None, "headers": None, "patience": None, **more})


def test_the_server_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAI_FLOW_URL", "https://flow.example/")
    assert link().url == "https://flow.example"
    assert (
        link("http://127.0.0.1:9/base/").prepared(Request("GET", "/v1/runs"))["url"]
        == "http://127.0.0.1:9/base/v1/runs"
    )
    assert (link().trusts_environment, link("http://127.0.0.1:9").trusts_environment) == (True, False)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "/v1", "http://h:99999", "http://[::1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected (http|a port|a host)"):
        link(url)


def test_every_request_says_for_whom_it_is() -> None:
    prepared = link("http://x", act_as="user:ann", headers={"Authorization": "Bearer b"}).prepared(
        Request("POST", "/v1/runs", headers={"Idempotency-Key": "k"})
    )
    assert prepared["headers"] == {"Authorization": "Bearer b", "HAI-Act-As": "user:ann", "Idempotency-Key": "k"}
