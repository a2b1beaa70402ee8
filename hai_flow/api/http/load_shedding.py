"""How much this process takes on at a time; anything beyond is refused before it is stored. Streams and uploads take
places, limited in all and for each address. Streams that only follow get three quarters of them, so that acts are not
refused because others watch. A body takes room: its bytes count as they arrive, until the request is answered."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from hai_flow.errors import Rejected
from hai_flow.settings import Settings

COMMANDS_MAX: Final = 2000
UPLOADS_MAX: Final = 32
KEPT_FOR_POSTS: Final = 4  # one place in so many


class Admission:
    """Counts open streams and commands that wait for their commit."""

    def __init__(
        self,
        streams_max: int = 3000,
        streams_peer_max: int = 1500,
        commands_max: int = COMMANDS_MAX,
        bodies_bytes_max: int = 64 * 1024 * 1024,
    ) -> None:
        self.streams = 0
        self.commands = 0
        self._uploads: Counter[str] = Counter()
        self._commands_max = commands_max
        self._followers = 0
        self._streams_of: Counter[str] = Counter()
        self._followers_of: Counter[str] = Counter()
        self._all = _Share(streams_max)
        self._of_a_peer = _Share(streams_peer_max)
        self._followers_of_tenant: Counter[UUID] = Counter()
        self._bodies_bytes_max = bodies_bytes_max
        self._bodies: Counter[str] = Counter()
        self.bodies_bytes = 0

    @classmethod
    def of(cls, settings: Settings) -> Admission:
        return cls(settings.streams_max, settings.streams_peer_max, bodies_bytes_max=settings.bodies_bytes_max)

    def place(self, peer: str, tenant: UUID | None = None) -> StreamPlace:
        """The place of a stream that is about to begin. `peer` is the address of its client, `tenant` the caller's."""
        return StreamPlace(self, peer, tenant)

    def follow_in(self, tenant: UUID | None, most: int) -> None:
        """Count a stream that only follows as its tenant's. Raises Rejected 429 if that has `most`; 0: no limit."""
        if tenant is None:
            return
        if most and self._followers_of_tenant[tenant] >= most:
            raise Rejected(
                429, "tenant_followers", f"your tenant has {most} streams that only follow, the most it may."
            )
        self._followers_of_tenant[tenant] += 1

    def leave_in(self, tenant: UUID | None) -> None:
        """The tenant's stream is over."""
        if tenant is not None:
            self._followers_of_tenant[tenant] -= 1
            if not self._followers_of_tenant[tenant]:
                del self._followers_of_tenant[tenant]

    def open_stream(self, peer: str, *, follows: bool) -> None:
        """Take one of the places for streams. Raises Rejected 429 if there is none."""
        if follows:
            self._accept_follower(peer)
        elif self.streams >= self._all.most:
            raise _busy(f"this server has {self.streams} streams open, the most it may have.")
        elif self._streams_of[peer] >= self._of_a_peer.most:
            raise _busy(f"your address has {self._streams_of[peer]} streams open, the most that one may have.")
        self.streams += 1
        self._streams_of[peer] += 1
        self._count_followers(peer, int(follows))

    def accept_follower(self, peer: str) -> None:
        """Count an open stream among those that only follow. Raises Rejected 429 if there is no place for one more."""
        self._accept_follower(peer, counted=1)
        self._count_followers(peer, 1)

    def close_stream(self, peer: str, *, follows: bool) -> None:
        """Give the place of a stream back."""
        self.streams -= 1
        self._streams_of[peer] -= 1
        self._count_followers(peer, -int(follows))
        if not self._streams_of[peer]:
            del self._streams_of[peer], self._followers_of[peer]

    def room(self, peer: str) -> BodyRoom:
        """The room for a request's body, of which nothing is taken yet. `peer` is the address of its client."""
        return BodyRoom(self, peer)

    def hold_bytes(self, peer: str, more: int) -> None:
        """Take room for more bytes of bodies. Raises Rejected 429 if there is none. While none are held, any fit."""
        bodies, ours, most = self.bodies_bytes, self._bodies[peer], self._bodies_bytes_max
        if bodies and (bodies + more > most or (ours and ours + more > most // 2)):
            detail = f"the requests that are being read hold {bodies} bytes, and there is room for {most}."
            raise Rejected(429, "bodies_busy", detail)
        self.bodies_bytes += more
        self._bodies[peer] += more

    def release_bytes(self, peer: str, held: int) -> None:
        """Give the room of these bytes back."""
        self.bodies_bytes -= held
        self._bodies[peer] -= held
        if not self._bodies[peer]:
            del self._bodies[peer]

    @contextlib.contextmanager
    def command(self) -> Iterator[None]:
        """Around a command's way through the committer. Raises Rejected 429 if too many are on it."""
        if self.commands >= self._commands_max:
            raise Rejected(429, "commands_busy", f"{self.commands} commands wait for their commit, the most that may.")
        self.commands += 1
        try:
            yield
        finally:
            self.commands -= 1

    @contextlib.contextmanager
    def upload(self, peer: str) -> Iterator[None]:
        """Around an upload. `peer` is the address of its client. Raises Rejected 429 if too many are under way."""
        if self._uploads.total() >= UPLOADS_MAX or self._uploads[peer] >= UPLOADS_MAX // 2:
            raise Rejected(
                429, "uploads_busy", f"{self._uploads.total()} uploads are under way; try again in a moment."
            )
        self._uploads[peer] += 1
        try:
            yield
        finally:
            self._uploads[peer] -= 1
            if not self._uploads[peer]:
                del self._uploads[peer]

    def _accept_follower(self, peer: str, *, counted: int = 0) -> None:
        streams = self.streams - counted
        if streams >= self._all.most or self._followers >= self._all.followers:
            raise _busy(f"this server has {streams} streams open; no place is left for those who only follow.")
        streams = self._streams_of[peer] - counted
        if streams >= self._of_a_peer.most or self._followers_of[peer] >= self._of_a_peer.followers:
            raise _busy(f"your address has {streams} streams open; no place is left for those that only follow.")

    def _count_followers(self, peer: str, more: int) -> None:
        self._followers += more
        self._followers_of[peer] += more


class StreamPlace:
    """One request's place among the streams: none until it is taken, none once it is left. `followers_max`: how many
    streams of the caller's tenant may only follow; 0: no limit."""

    __slots__ = ("_admission", "_follows", "_peer", "_taken", "_tenant", "followers_max")

    def __init__(self, admission: Admission, peer: str, tenant: UUID | None = None) -> None:
        self._admission = admission
        self._peer = peer
        self._tenant = tenant
        self._taken = self._follows = False
        self.followers_max = 0

    def take(self, *, follows: bool) -> None:
        """`follows`: the request only watches, and changes nothing. Raises Rejected 429."""
        assert not self._taken, "a request has one stream"
        if follows:
            self._admission.follow_in(self._tenant, self.followers_max)
        try:
            self._admission.open_stream(self._peer, follows=follows)
        except Rejected:
            if follows:
                self._admission.leave_in(self._tenant)
            raise
        self._taken, self._follows = True, follows

    def only_follows(self) -> None:
        """The request turned out to change nothing: its stream, if it has one, counts as a follower's. Raises Rejected
        429."""
        if self._taken and not self._follows:
            self._admission.follow_in(self._tenant, self.followers_max)
            try:
                self._admission.accept_follower(self._peer)
            except Rejected:
                self._admission.leave_in(self._tenant)
                raise
            self._follows = True

    def leave(self) -> None:
        """Give it back. May be called again."""
        if self._taken:
            self._taken = False
            self._admission.close_stream(self._peer, follows=self._follows)
            if self._follows:
                self._admission.leave_in(self._tenant)


class BodyRoom:
    """The room that one request's body takes."""

    __slots__ = ("_admission", "_held", "_peer")

    def __init__(self, admission: Admission, peer: str) -> None:
        self._admission = admission
        self._peer = peer
        self._held = 0

    def hold(self, more: int) -> None:
        """Room for more bytes. Raises Rejected 429."""
        self._admission.hold_bytes(self._peer, more)
        self._held += more

    def release(self) -> None:
        """Give it all back. May be called again."""
        if self._held:
            held, self._held = self._held, 0
            self._admission.release_bytes(self._peer, held)


class _Share:
    """How many places there are, and how many of them streams that only follow may take."""

    __slots__ = ("followers", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.followers = most - most // KEPT_FOR_POSTS


def _busy(detail: str) -> Rejected:
    return Rejected(429, "streams_busy", detail)
