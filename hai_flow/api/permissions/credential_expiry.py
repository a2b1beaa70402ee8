"""Ends streams when their reader's credential does, which may be before its time: a key is revoked, a browser signs
out, a person is forgotten or loses a role. The credentials of all open streams are checked together by one statement,
every `SECONDS`, and at once when this process has ended one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from hai_flow.api.permissions.principals import Principal
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.identity import credential_checks
from hai_flow.store.identity.credential_checks import Proof
from hai_flow.wire.dialects import dialect

log = structlog.get_logger(__name__)

SECONDS: Final = 4.0  # a stream ends at most ten after its credential, also where a look takes its time


class StreamEnd(NamedTuple):
    """Why a stream ends before its end: for programs, and for people."""

    code: str
    reason: str


EXPIRED: Final = StreamEnd(dialect.EXPIRED, "Your sign-in has ended; sign in again, and reconnect to go on.")
REVOKED: Final = StreamEnd(
    dialect.EXPIRED, "Your sign-in was ended, or what you may has changed; sign in again if need be, and reconnect."
)


class StreamLease:
    """For how long one stream may go on. `ends_at` is a time of the loop; when it changes, `notify` is called."""

    __slots__ = ("_leave", "ending", "ends_at", "notify")

    def __init__(self, seconds_left: float | None = None, leave: Callable[[StreamLease], None] | None = None) -> None:
        """`seconds_left` None: for ever. `leave` is called when the stream is over."""
        self.ends_at = math.inf if seconds_left is None else asyncio.get_running_loop().time() + seconds_left
        self.ending = EXPIRED
        self.notify: Callable[[], object] = _ignore
        self._leave = leave

    @property
    def seconds_left(self) -> float:
        return self.ends_at - asyncio.get_running_loop().time()

    @property
    def is_over(self) -> bool:
        return self.seconds_left <= 0

    def end(self, ending: StreamEnd) -> None:
        self.ends_at, self.ending = -math.inf, ending
        self.notify()

    def leave(self) -> None:
        """The stream is over. May be called again."""
        leave, self._leave, self.notify = self._leave, None, _ignore
        if leave is not None:
            leave(self)

    async def over(self) -> StreamEnd:
        """Wait until it ends; returns why."""
        changed = asyncio.Event()
        self.notify = changed.set
        try:
            while not self.is_over:
                changed.clear()
                try:
                    async with asyncio.timeout(None if self.ends_at == math.inf else self.seconds_left):
                        await changed.wait()
                except TimeoutError:
                    pass
        finally:
            self.notify = _ignore
        return self.ending


class CredentialWatcher:
    """The terms of this process's open streams."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._open: dict[Proof, _Streams] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._again = False

    def begin(self, principal: Principal) -> StreamLease:
        """The term of a stream that is opened for the principal."""
        if principal.is_anybody:
            return StreamLease()
        proof, committer = build_proof(principal), self._runtime.committer
        term = StreamLease(principal.seconds_left(committer.now_ms()), lambda term: self._leave(proof, term))
        streams = self._open.get(proof)
        if streams is None:
            streams = self._open[proof] = _Streams(committer.now() - credential_checks.SKEW, set(), principal.keep)
        streams.terms.add(term)
        if self._timer is None and self._looking is None:
            self._timer = asyncio.get_running_loop().call_later(SECONDS, self.look)
        return term

    def look(self) -> None:
        """Look now: one of them may have ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._again = self._looking is not None
        if self._looking is None and self._open:
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="look at credentials")

    async def is_good(self, principal: Principal) -> bool:
        """Whether the principal's proof of identity is still good."""
        proofs = [(build_proof(principal), self._runtime.committer.now())]
        return principal.is_anybody or not await credential_checks.find_ended(self._runtime.database.api, proofs)

    async def _look(self) -> None:
        try:
            for streams in self._open.values():
                if streams.keep is not None:
                    streams.keep()
            proofs = [(proof, streams.since) for proof, streams in self._open.items()]
            for proof in await credential_checks.find_ended(self._runtime.database.api, proofs):
                open_streams = self._open.get(proof)
                for term in () if open_streams is None else tuple(open_streams.terms):
                    term.end(REVOKED)
        except Exception as error:  # the next look finds it
            log.warning("credentials_not_looked_at", error=str(error) or type(error).__name__)
        finally:
            self._looking = None
            if self._again:
                self.look()
            elif self._open:
                self._timer = asyncio.get_running_loop().call_later(SECONDS, self.look)

    def _leave(self, proof: Proof, term: StreamLease) -> None:
        streams = self._open.get(proof)
        if streams is not None:
            streams.terms.discard(term)
            if not streams.terms:
                del self._open[proof]
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Streams(NamedTuple):
    """The terms of the streams that rest on one credential, and since when there are any; `keep` is called at each
    check."""

    since: datetime
    terms: set[StreamLease]
    keep: Callable[[], None] | None


def build_proof(principal: Principal) -> Proof:
    """The key, session and version that the principal's request rests on, as the store checks them."""
    return Proof(principal.tenant, principal.id, principal.key, principal.session, principal.session_version)


def _ignore() -> None:
    """Stands for `notify` while no stream waits for it."""
