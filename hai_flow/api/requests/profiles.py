"""The profile in which a caller reads a run: as a reader of the log, or of a dialect's stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.api.requests.access import Access
from hai_flow.engine import events as e
from hai_flow.engine.pendings.selectors import ids_of
from hai_flow.engine.state.state import RunState, TurnState
from hai_flow.settings import Settings
from hai_flow.store.runs.run_lists import RunRow
from hai_flow.wire.dialects.dialect import Dialect, Profile
from hai_flow.wire.dialects.hai import HAI
from hai_flow.wire.dialects.log import LOG, seeing
from hai_flow.wire.reader_redaction import CONVERSATION, EVIDENCE


def find_profile(turn: TurnState | None, dialect: Dialect) -> Profile:
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
    redaction = "" if access.can_see_conversation(id) else CONVERSATION
    personal = None if mask is None else mask.personal
    return msgspec.structs.replace(profile, reader=access.reader(id), redaction=redaction, personal=personal)


# The defaults of HAI streams. A profile leaves them out, so that equal streams have equal profiles.
_UNSPOKEN: Final = {"hai.snapshot": "MESSAGE_SNAPSHOT", "hai.results": "server"}


def with_wishes(profile: Profile, settings: Settings) -> Profile:
    """The profile with the server's wishes where the client has none."""
    wishes = {"hai.snapshot": settings.hai_snapshot, "hai.results": settings.hai_results}
    spoken = {name: wish for name, wish in wishes.items() if wish != _UNSPOKEN[name]}
    if not spoken or profile.dialect != HAI.name:
        return profile
    return msgspec.structs.replace(profile, options=tuple(sorted({**spoken, **dict(profile.options)}.items())))


def reader_of(access: Access, row: RunRow, dialect: Dialect, state: RunState) -> Profile:
    """The caller as a reader of the run from `state` on, in the log's own words or in those of a dialect."""
    if dialect is LOG:
        return log_profile(access, row)
    profile = read_by(find_profile(state.turn, dialect), access, row.id, row.started_by)
    return with_wishes(profile, access.settings)


def log_profile(access: Access, row: RunRow) -> Profile:
    """The caller as a reader of the log as it is."""
    profile = read_by(Profile(dialect=LOG.name), access, row.id, row.started_by)
    if access.principal.sees_all and profile.redaction != CONVERSATION:
        reader = None if profile.personal is None else profile.reader
        return msgspec.structs.replace(profile, reader=reader, redaction="")
    return profile if profile.redaction else msgspec.structs.replace(profile, redaction=EVIDENCE)


async def make_view_of_events(access: Access, row: RunRow, after: int) -> Callable[[e.Event], e.Event | None]:
    """How the caller sees each of the events after `after`; None: not at all."""
    profile = log_profile(access, row)
    is_restricted = profile.redaction or profile.personal is not None
    return seeing(profile, await access.state_of(row, after) if is_restricted else RunState(str(row.id)))
