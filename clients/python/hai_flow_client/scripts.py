"""Operations of more than one request, and how a request is sent until it is answered. Pure: see `effects.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from hai_flow_client.effects import Answer, Backoff, Effect, Feed, Give, Lost, NewKey, Now, Read, Request, Script
from hai_flow_client.errors import Conflict, HaiFlowError, Problem, Unavailable, refusal, unreachable, unreadable
from hai_flow_client.events import TERMINAL
from hai_flow_client.models import ENDED, Page, Run
from hai_flow_client.sse import Parser
from hai_flow_client.values import Json

T = TypeVar("T")
U = TypeVar("U")

PAGE: Final = 200  # the most items that a list gives at once
EVENTS_PAGE: Final = 1000
EVENT_STREAM: Final = "text/event-stream"
_SETTLING: Final = (*TERMINAL, "turn_ended", "run_paused", "run_needs_attention", "run_resumed")


# --- one request --------------------------------------------------------------------------------------------------


def exchange(request: Request) -> Script[Answer]:
    """Send it until it is answered with success. Only repeatable requests are sent again. Raises HaiFlowError."""
    failures = 0
    while True:
        answer: Answer | Lost = yield request
        if isinstance(answer, Answer) and answer.ok:
            return answer
        error = error_of(answer)
        if not request.repeatable or not isinstance(error, Unavailable):
            raise error
        failures += 1
        yield Backoff(failures, error)


def keyed(request: Request, key: str | None) -> Script[Answer]:
    """Send a command under a key, the caller's or a new one: however often it arrives, it happens once."""
    key = (yield NewKey()) if key is None else key
    return (yield from exchange(replace(request, headers={**request.headers, "Idempotency-Key": key})))


def error_of(answer: Answer | Lost) -> HaiFlowError:
    """The error of an answer that is no success, or of a lost one."""
    if isinstance(answer, Lost):
        return unreachable(answer.url, answer.reason)
    return refusal(answer.url, answer.status, answer.headers, answer.body)


# --- lists --------------------------------------------------------------------------------------------------------


def pages(
    path: str,
    shape: type[T],
    *,
    limit: int | None = None,
    query: Mapping[str, Json] | None = None,
    size_max: int = PAGE,
    cursor: str | None = None,
    cursor_name: str = "cursor",
) -> Feed[T]:
    """The items of a list, page by page, `limit` of them (None: all)."""
    remaining = limit
    while remaining is None or remaining > 0:
        size = size_max if remaining is None else min(size_max, remaining)
        query_now = parameters({**(query or {}), "limit": size, cursor_name: cursor})
        page: Page[T] = (yield from exchange(Request("GET", path, query_now))).read(Page[shape])
        if page.cursor_reset is not None:
            raise cursor_reset(page.cursor_reset.seq)
        for item in page.items[:size]:
            yield Give(item)
        cursor = page.next_cursor
        remaining = None if remaining is None else remaining - len(page.items)
        if cursor is None:
            return


def items(path: str, shape: type[T]) -> Feed[T]:
    """The items of a list that has no pages."""
    for item in (yield from exchange(Request("GET", path))).read(Page[shape]).items:
        yield Give(item)


def parameters(given: Mapping[str, Json]) -> tuple[tuple[str, str], ...]:
    """The parameters that are not None, as a query: a list becomes the same name several times."""
    pairs: list[tuple[str, str]] = []
    for name, value in given.items():
        values = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
        pairs += [(name, str(each).lower() if isinstance(each, bool) else str(each)) for each in values]
    return tuple(pairs)


def mapped(feed: Feed[T], change: Callable[[T], U]) -> Feed[U]:
    """The feed with `change` applied to each item."""
    reply: Any = None
    while True:
        try:
            effect = feed.send(reply)
        except StopIteration:
            return
        reply = yield Give(change(effect.item)) if isinstance(effect, Give) else effect


# --- following ----------------------------------------------------------------------------------------------------


def follow(run_path: str, after: int) -> Feed[dict[str, Json]]:
    """A run's events after a seq as they happen, each once, until its terminal one. A lost stream is opened again.

    When a stream is over, the run is looked at: if it was retried since, it is not over, and the feed goes on. Raises
    HaiFlowError.
    """
    place = _Position(run_path, after)
    while True:
        error = yield from _stream(place)
        if error is None:
            over = yield from _is_over(place)
            if over:
                return
            if place.ended:
                continue  # it was retried
            error = unreachable(place.url, "the stream ended before the run did")
        if not isinstance(error, Unavailable):
            raise error
        place.failures += 1
        yield Backoff(place.failures, error, streams=True)


class _Position:
    """The place of a follower in the run's events."""

    def __init__(self, run_path: str, after: int) -> None:
        self.run_path = run_path
        self.url = run_path
        self.after = after
        self.ended = False  # the last event was a terminal one
        self.failures = 0  # in a row: since the last sign of life

    def request(self) -> Request:
        query, headers = parameters({"after": self.after}), {"Accept": EVENT_STREAM}
        return Request("GET", f"{self.run_path}/events", query, headers=headers, streams=True)

    def take(self, event: dict[str, Json]) -> bool:
        """Whether it is new. Raises `Unavailable` where one was left out: the stream is not to be trusted."""
        seq = event["seq"]
        if seq <= self.after:
            return False
        if seq != self.after + 1:
            raise unreachable(self.url, f"expected event {self.after + 1} of the stream, found {seq}")
        self.after, self.ended = seq, event["type"] in TERMINAL
        return True


def _stream(place: _Position) -> Generator[Effect | Give[dict[str, Json]], Any, HaiFlowError | None]:
    """The events of one connection, until a terminal event or its end (None), or until it broke off: returns why."""
    answer: Answer | Lost = yield place.request()
    place.url = answer.url
    if (refused := not_opened(answer)) is not None:
        return refused
    parser = Parser()
    while True:
        chunk: bytes | Lost = yield Read()
        if isinstance(chunk, Lost):
            return error_of(chunk)
        if not chunk:
            return None
        place.failures = 0
        for frame in parser.feed(chunk):
            try:
                event = msgspec.json.decode(frame.data, type=dict[str, Json])
                if frame.name == EXPIRED:
                    return None  # the next request is refused, and says why
                if frame.name == "cursor_reset":
                    return cursor_reset(event["seq"])
                new = place.take(event)
            except (msgspec.MsgspecError, KeyError, TypeError) as error:
                return unreadable(str(error))
            except Unavailable as error:
                return error
            if new:
                yield Give(event)
                if place.ended:
                    return None


def not_opened(answer: Answer | Lost) -> HaiFlowError | None:
    """Why a request for a stream of events has opened none; None: it has."""
    if not isinstance(answer, Answer) or not answer.ok:
        return error_of(answer)
    if not answer.headers.get("content-type", "").startswith(EVENT_STREAM):
        return unreadable("it is no stream of events", answer.status)
    return None


EXPIRED: Final = "auth.expired"
"""The name of the event with which a server ends the stream of who has to prove anew who they are."""


def _is_over(place: _Position) -> Script[bool]:
    """Whether nothing comes after the follower's place. If the server can't answer that, its stream counts as
    complete."""
    answer: Answer | Lost = yield Request("GET", place.run_path)
    if not isinstance(answer, Answer) or not answer.ok:
        return place.ended
    run: Run = answer.read(Run)
    return run.status in ENDED and run.seq <= place.after


def cursor_reset(seq: int) -> Conflict:
    """The run has fewer events than the follower says it has seen."""
    detail = f"the run has only {seq} events: `after` is of another run, or the server's database is an older one."
    return Conflict(
        Problem(type="urn:hai-flow:problem:cursor_reset", code="cursor_reset", detail=detail, winner={"seq": seq})
    )


# --- waiting ------------------------------------------------------------------------------------------------------


def until(run_path: str, statuses: Collection[str], after: int, timeout: float | None) -> Script[Run]:
    """The run when its status is one of `statuses` and it has more than `after` events, or has ended.

    Raises TimeoutError after `timeout` seconds, or up to a tenth later: a stream that is being read is not woken.
    """
    deadline = None if timeout is None else (yield Now()) + timeout
    while True:
        run: Run = (yield from exchange(Request("GET", run_path))).read(Run)
        if run.ended or (run.status in statuses and run.seq > after):
            return run
        if deadline is not None and (yield Now()) >= deadline:
            raise TimeoutError(f"the run {run.id} is still {run.status} after {timeout:g} seconds.")
        yield from _settling(run_path, run.seq, deadline)


def _settling(run_path: str, after: int, deadline: float | None) -> Script[None]:
    """Wait until an event after which the run may stand still, or until about the deadline."""
    feed = follow(run_path, after)
    reply: Any = None
    patience = 0.0
    while True:
        try:
            effect = feed.send(reply)
        except StopIteration:
            return
        if isinstance(effect, Give):
            if effect.item["type"] in _SETTLING:
                return
            reply = None
            continue
        if deadline is not None:
            seconds_left = deadline - (yield Now())
            if seconds_left <= 0 or (isinstance(effect, Read) and seconds_left < 0.9 * patience):
                return  # the caller looks at the clock, and comes back with less patience
            if isinstance(effect, Request):
                patience = seconds_left
                effect = replace(effect, seconds=seconds_left)
        reply = yield effect
