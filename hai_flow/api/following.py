"""Streams of pieces, put together, for the dialects' endpoints and `/v1/runs/{id}/events`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.api.access import Access
from hai_flow.api.sight import ids_of
from hai_flow.api.stream import Pieces
from hai_flow.api.terms import Ending
from hai_flow.engine.state import RunState, TurnState
from hai_flow.runtime.fanout import Following, Piece
from hai_flow.settings import Settings
from hai_flow.store import threads
from hai_flow.wire.dialect import Dialect, Entry, Frame, Profile
from hai_flow.wire.hai import HAI
from hai_flow.wire.withheld import CONVERSATION


async def nothing() -> Pieces:
    """A stream without events."""
    return
    yield


async def one(piece: Piece) -> Pieces:
    """A stream of one piece."""
    yield [piece]


def preceded(first: Piece, rest: Pieces) -> Pieces:
    """`first`, then `rest`; only `first` if that is an end."""
    if isinstance(rest, Following) and not first.terminal:
        return rest.preceded(first)
    return _preceded(first, rest)


async def _preceded(first: Piece, rest: Pieces) -> Pieces:
    async with contextlib.aclosing(rest):
        yield [first]
        if first.terminal:
            return
        async for pieces in rest:
            yield pieces


def up_to(head: RunState, rest: Pieces) -> Pieces:
    """`rest`: all of it if a turn is open at `head`, else up to `head`. Later turns belong to other streams."""
    return rest if head.turn_open else _up_to(head.seq, rest)


async def _up_to(seq: int, rest: Pieces) -> Pieces:
    async with contextlib.aclosing(rest):
        async for pieces in rest:
            yield pieces
            if pieces[-1].seq >= seq:
                return


async def earlier_entries(access: Access, thread_id: str, run_id: UUID) -> list[Entry]:
    """The transcript of the runs that come before this one in the thread, as much of it as is shown at once."""
    if not access.sees_conversation(run_id):
        return []
    window, viewer = threads.WINDOW, access.viewer
    stored = await threads.transcript(
        access.reads, access.tenant, thread_id, before=run_id, window=window, viewer=viewer
    )
    return [entry for _, entry in await access.shown_entries(stored)]


def profile_of(turn: TurnState | None, dialect: Dialect) -> Profile:
    """The profile of the stream that a turn was opened for. A client that returns to it without a POST gets the same
    bytes."""
    if turn is None or turn.dialect != dialect.name or not isinstance(turn.profile, dict):
        return Profile(dialect=dialect.name)
    stored = turn.profile
    return Profile(
        dialect=dialect.name,
        version=stored["version"],
        may_answer=stored["may_answer"],
        client_tools=frozenset(turn.client_tools),
        options=tuple(sorted(stored["options"].items())),
    )


def read_by(profile: Profile, access: Access, run_id: UUID | str, started_by: str) -> Profile:
    """The caller's profile as a reader of a run that `started_by` has started. A reader other than the starter is named
    in it, because other questions ask them. It also names the parts that are kept from them: everything but these
    questions, unless they may read the run. The run was found before."""
    if started_by in ids_of(access.principal.who) and not access.mask(UUID(str(run_id))):
        return msgspec.structs.replace(profile, reader=None, redaction="", personal=None)
    id = UUID(str(run_id))
    mask = access.mask(id)
    kept = "" if access.sees_conversation(id) else CONVERSATION
    personal = None if mask is None else mask.personal
    return msgspec.structs.replace(profile, reader=access.reader(id), redaction=kept, personal=personal)


# The defaults of HAI streams. A profile leaves them out, so that equal streams have equal profiles.
_UNSPOKEN: Final = {"hai.snapshot": "MESSAGE_SNAPSHOT", "hai.results": "server"}


def with_wishes(profile: Profile, settings: Settings) -> Profile:
    """The profile with the server's wishes where the client has none."""
    wishes = {"hai.snapshot": settings.hai_snapshot, "hai.results": settings.hai_results}
    spoken = {name: wish for name, wish in wishes.items() if wish != _UNSPOKEN[name]}
    if not spoken or profile.dialect != HAI.name:
        return profile
    return msgspec.structs.replace(profile, options=tuple(sorted({**spoken, **dict(profile.options)}.items())))


def farewell(access: Access, dialect: Dialect, thread_id: str = "") -> Callable[[Ending], bytes]:
    """How a stream of the dialect ends before its end: a client takes one that just ends for complete."""
    now_ms = access.runtime.committer.now_ms  # nothing else of the request stays with its stream
    return lambda ending: dialect.unnumbered(last_words(now_ms(), dialect, ending, thread_id))


def last_words(now_ms: int, dialect: Dialect, ending: Ending, thread_id: str = "") -> list[Frame]:
    """The frames with which the stream ends then."""
    nobody = RunState("", thread_id=thread_id, at=now_ms)
    encoder = dialect.encoder(Profile(dialect=dialect.name), nobody)
    return encoder.farewell(ending.reason, ending.code)
