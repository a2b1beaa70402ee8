"""The client's effects on the world, as data. `scripts.py` yields them, `blocking.py` and `awaiting.py` perform them.

A *script* is a generator: it yields effects, is sent the outcome of each, and returns its result. A *feed* also gives
items on the way. So every decision (which request, whether to repeat it, where to go on) is written once, and needs no
socket.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from hai_flow_client.errors import Unavailable, unreadable

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. Answered by an `Answer` or `Lost`.

    `repeatable`: sending it twice has the same effect as sending it once. `streams`: the body of a success is taken by
    `Read`s, and a silence of `seconds` (None: the client's own patience) breaks it off.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    streams: bool = False
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """More of the stream that the last request opened. Answered by bytes, none of them at its end, or `Lost`."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """A pause after so many failures in a row. It has no outcome; if the client's patience is over, `error` is raised
    instead."""

    failures: int
    error: Unavailable
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Now:
    """The time in seconds, on a clock that never goes back."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A text that was never used before."""


@dataclass(frozen=True, slots=True)
class Give(Generic[T_co]):
    """An item of the feed."""

    item: T_co


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request, and its address. `headers` have small letters; a stream's `body` is not here."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def read(self, shape: Any = Any) -> Any:
        """The body's JSON as a `shape`. Raises HaiFlowError where it is something else."""
        try:
            return msgspec.json.decode(self.body, type=shape)
        except msgspec.MsgspecError as error:
            raise unreadable(str(error), self.status) from None


@dataclass(frozen=True, slots=True)
class Lost:
    """There was no connection, or it broke off; whether the request arrived is not known."""

    url: str
    reason: str


Effect: TypeAlias = Request | Read | Backoff | Now | NewKey
Script: TypeAlias = Generator[Effect, Any, T]
Feed: TypeAlias = Generator[Effect | Give[T], Any, None]
