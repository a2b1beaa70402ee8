"""What every route needs: who asks, and what they may reach."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, cast
from uuid import UUID

from fastapi import Depends, Header, Request

from hai_flow.api.admission import Admission
from hai_flow.api.bodies import read_body
from hai_flow.api.stream import EventStream
from hai_flow.engine import act_as
from hai_flow.engine import commands as c
from hai_flow.engine.state import RunState
from hai_flow.errors import Rejected
from hai_flow.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.committer import Birth, Outcome
from hai_flow.runtime.fanout import Piece
from hai_flow.settings import Settings, is_loopback
from hai_flow.store import runs
from hai_flow.wire.dialect import Dialect, Profile

if TYPE_CHECKING:
    from hai_flow.store.database import Pool

HEAD: Final = 2**53  # beyond every seq: all events
ACT_AS: Final = "HAI-Act-As"

Pieces: TypeAlias = AsyncGenerator[Sequence[Piece]]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, of which tenant. `acting`: they only say so, which the development server believes."""

    principal: c.Principal
    tenant: UUID
    acting: bool = False


def get_caller(
    request: Request,
    given: Annotated[
        list[str] | None,
        Header(alias=ACT_AS, description=f"only at a development server on loopback: {act_as.EXPECTED}"),
    ] = None,
) -> Caller:
    """`user:local` of the one tenant until identity exists, or whom the header names where that may be said.

    Raises Rejected 403 where it may not, 422 where it names nobody.
    """
    if given is None:
        return Caller(c.LOCAL_PRINCIPAL, LOCAL_TENANT)
    client = request.client
    if not request.app.state.act_as or client is None or not is_loopback(client.host):
        raise Rejected(
            403,
            "act_as.refused",
            f"{ACT_AS} is believed only by a development server (`hai-flow dev`) that listens on loopback; "
            "leave the header out.",
        )
    try:
        return Caller(act_as.parse(", ".join(given)), LOCAL_TENANT, acting=True)
    except act_as.NotAPrincipal as error:
        raise Rejected(422, "act_as.invalid", f"{ACT_AS}: {error}.") from None


@dataclass(frozen=True, slots=True)
class Access:
    """What one request may reach, as its principal: the only way from a route to a run, a command or a stream."""

    caller: Caller
    runtime: Runtime
    settings: Settings
    admission: Admission

    @property
    def principal(self) -> c.Principal:
        return self.caller.principal

    @property
    def tenant(self) -> UUID:
        return self.caller.tenant

    def via(self, way: str) -> str:
        """The way in which a decision of this request came, as it is recorded."""
        return act_as.marked(way, acting=self.caller.acting)

    @property
    def pool(self) -> Pool:
        """The connections that requests read with."""
        return self.runtime.database.api

    async def run(self, run_id: str | UUID) -> runs.RunRow:
        """The one loader of runs for requests: tenant and id together. Raises Rejected 404."""
        row = None
        if isinstance(run_id, UUID) or is_run_id(run_id):
            row = await runs.get_run(self.pool, self.tenant, UUID(str(run_id)))
        if row is None:
            raise Rejected(404, "run_unknown", f"there is no run {str(run_id)[:60]!r}.")
        return row

    async def find_state(self, run_id: UUID, seq: int = HEAD) -> RunState | None:
        """The fold of the run's first `seq` events; None: no such run of the tenant."""
        return await self.runtime.fanout.state_at(self.tenant, run_id, seq)

    async def state(self, run_id: UUID, seq: int = HEAD) -> RunState:
        """The same of a run that was found before."""
        state = await self.find_state(run_id, seq)
        assert state is not None
        return state

    async def submit(
        self,
        run_id: UUID,
        command: c.Command,
        *,
        command_id: str | None,
        body_sha: bytes,
        birth: Birth | None = None,
    ) -> Outcome:
        """Decide and commit. Raises Rejected; 429 before anything is stored."""
        with self.admission.command():
            return await self.runtime.committer.submit(
                run_id, self.tenant, command, command_id=command_id, body_sha=body_sha, birth=birth
            )

    def follow(self, start: RunState, dialect: Dialect, profile: Profile) -> Pieces:
        """The pieces of the events after `start`, as they are committed, until a terminal one."""
        return cast(Pieces, self.runtime.fanout.follow(UUID(start.run_id), dialect, profile, start))

    async def stream(
        self, begin: Callable[[], Awaitable[Pieces]], farewell: Callable[[], bytes] = bytes
    ) -> EventStream:
        """The response that streams what `begin` gives. Its place is taken first: 429 before anything is stored."""
        self.admission.open_stream()
        try:
            pieces = await begin()
        except BaseException:
            self.admission.close_stream()
            raise
        return EventStream(
            pieces,
            keepalive_seconds=self.settings.keepalive_seconds,
            stall_seconds=self.settings.follower_stall_seconds,
            farewell=farewell,
            closed=self.admission.close_stream,
        )


def get_access(request: Request, caller: Annotated[Caller, Depends(get_caller)]) -> Access:
    state = request.app.state
    return Access(caller, state.runtime, state.settings, state.admission)


async def get_body(request: Request) -> bytes:
    """The body's bytes, for routes that read it themselves."""
    return await read_body(request, request.app.state.settings.request_bytes_max)


def get_command_key(
    key: Annotated[
        str | None,
        Header(alias="Idempotency-Key", description="the same key again: the first outcome again, nothing happens"),
    ] = None,
) -> str | None:
    """A client's Idempotency-Key as a command id. Raises Rejected 422."""
    if key is None:
        return None
    if not re.fullmatch(r"[\x21-\x7e]{1,200}", key):
        raise Rejected(422, "idempotency_key.invalid", "Idempotency-Key: expected 1 to 200 visible ASCII characters.")
    return f"http:{key}"


CurrentAccess: TypeAlias = Annotated[Access, Depends(get_access)]
RawBody: TypeAlias = Annotated[bytes, Depends(get_body)]
CommandKey: TypeAlias = Annotated[str | None, Depends(get_command_key)]


def is_run_id(text: str) -> bool:
    """Whether `text` is an id as we write it."""
    return re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text) is not None
