"""Hints by a stream of Redis, which carries committed events as well, so that a process with followers need not read
the log. Redis is not trusted: each entry is sealed (AES-GCM) with a key that only processes over the same database know
(`store.hints.seal_of`), and numbered by its sender; a repeated one is passed over, and a gap makes everything be looked
at. Nor is it relied on: polls find the news while it is away, and only tasks of its own wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import ssl
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
import structlog

from hai_flow.errors import StoreError
from hai_flow.runtime.commit.hints import HintLetter
from hai_flow.settings import SettingsError, variable
from hai_flow.store.messaging.hints import HintSecret
from hai_flow.store.postgres.database import EVERYTHING

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = structlog.get_logger(__name__)

ENTRIES_MAX: Final = 2048  # with letters of 64 KiB at most: 128 MiB, if all were full
KEPT_SECONDS: Final = 3600  # a stream to which no process writes any more is gone after that
CONNECT_SECONDS: Final = 2.0
SEND_SECONDS: Final = 2.0
WAIT_SECONDS: Final = 2.0  # for news; then it is looked whether the stream is still the same
ANSWER_SECONDS: Final = 3.0  # beyond that, for the answer
PAUSE_SECONDS_MIN: Final = 0.1
PAUSE_SECONDS_MAX: Final = 2.0
READ_ENTRIES: Final = 64
SENDERS_MAX: Final = 4096
_FORMAT: Final = b"1"
_BEGINNING: Final = (0, 0)
_letters = msgspec.msgpack.Decoder(HintLetter)
_encode: Final = msgspec.msgpack.Encoder().encode


class RedisAddress(NamedTuple):
    """Where a stream is: the address of the server, as redis-py reads it, and the beginning of the stream's name."""

    url: str
    prefix: str

    @classmethod
    def parse(cls, url: str) -> RedisAddress:
        """The place that the setting names: `?prefix=` is ours, the rest redis-py's."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        prefix = options.pop("prefix", "hai-flow")
        return cls(urlunsplit(parts._replace(query=urlencode(options))), prefix)


def connect(url: str) -> Redis:
    """A client of one connection, none of whose commands is tried again by itself. Raises SettingsError where redis-py
    is not installed or can't read the address."""
    try:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        raise SettingsError([f"{variable('hints')}: install its package: pip install hai-flow[redis]."]) from None
    try:
        return Redis.from_url(
            url,
            single_connection_client=True,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=WAIT_SECONDS + ANSWER_SECONDS,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
            client_name="hai-flow",
            protocol=2,
        )
    except (ValueError, TypeError):  # it may repeat the address, which may hold a password
        raise SettingsError([f"{variable('hints')}: redis-py can't read the address."]) from None


class Sealed(NamedTuple):
    """A letter as it lies in Redis. `sender`: random, of one process for as long as it runs; `number`: counts its
    letters from 1."""

    sender: bytes
    number: int
    data: bytes


class LetterSealer:
    """Seals and opens letters. A sender's key is made for it alone and its numbers never come twice, so neither does a
    nonce."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.sender = secrets.token_bytes(16)
        self._number = 0
        self._own = self._build_cipher(self.sender)
        self._known: OrderedDict[bytes, Any] = OrderedDict()

    def seal(self, letter: HintLetter) -> Sealed:
        self._number += 1
        data = self._own.encrypt(_nonce(self._number), _encode(letter), _FORMAT)
        return Sealed(self.sender, self._number, data)

    def open(self, sealed: Sealed) -> HintLetter | None:
        """The letter; None if it was not sealed with the key."""
        from cryptography.exceptions import InvalidTag

        cipher = self._known.get(sealed.sender) or self._build_cipher(sealed.sender)
        try:
            letter = _letters.decode(cipher.decrypt(_nonce(sealed.number), sealed.data, _FORMAT))
        except (InvalidTag, OverflowError, msgspec.DecodeError):
            return None
        self._known[sealed.sender] = cipher
        if len(self._known) > SENDERS_MAX:
            self._known.popitem(last=False)
        return letter

    def _build_cipher(self, sender: bytes) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(hmac.digest(self._key, sender, "sha256"))


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


class RedisHints:
    """The stream of one database. Made before its processes' services start; `close` ends it."""

    carries_events = True

    def __init__(self, url: str, seal: HintSecret) -> None:
        self._place = RedisAddress.parse(url)
        self.stream = f"{self._place.prefix}:{seal.place}:hints"
        self._sealer = LetterSealer(seal.key)
        self._sending: Redis | None = None
        self._one_by_one = asyncio.Lock()
        self._hear: Callable[[HintLetter], None] = lambda letter: None
        self._heard: OrderedDict[bytes, int] = OrderedDict()  # the last number of each sender
        self._listening: asyncio.Task[None] | None = None
        self._listens = False
        self._faults: dict[str, str] = {}
        self.refused = 0
        """How many entries were refused since the start: not sealed by a process over this database, or a
        repetition."""
        connect(self._place.url)  # settings that can't be read are refused now

    @property
    def fault(self) -> str | None:
        """Why hints do not come or go just now; None: they do."""
        return next(iter(self._faults.values()), None if self._listens else "Redis has not answered yet")

    @property
    def listens(self) -> bool:
        """Whether it would hear a letter that is sent now."""
        return self._listens

    async def close(self) -> None:
        """End listening, and hang up."""
        if self._listening is not None:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listening
            self._listening = None
        client, self._sending = self._sending, None
        await _hang_up(client)

    # --- out ----------------------------------------------------------------------------------------------------------

    async def send(self, letter: HintLetter) -> None:
        """Append the letter to the stream. Raises redis-py's errors, and `TimeoutError`: it may be there or not. Its
        number is used in any case."""
        async with self._one_by_one:
            self._sending = client = self._sending or connect(self._place.url)
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await self._append(client, self._sealer.seal(letter))
            except BaseException as error:
                self._sending = None
                await _hang_up(client)
                if isinstance(error, Exception):
                    self._fails("sending", error)
                raise
            self._works("sending")

    async def _append(self, client: Redis, sealed: Sealed) -> None:
        trip = client.pipeline(transaction=False)
        fields: dict[Any, Any] = {"s": sealed.sender, "n": sealed.number, "d": sealed.data}
        trip.xadd(self.stream, fields, maxlen=ENTRIES_MAX, approximate=False)
        trip.expire(self.stream, KEPT_SECONDS)
        await trip.execute()

    # --- in -----------------------------------------------------------------------------------------------------------

    async def listen(self, hear: Callable[[HintLetter], None]) -> None:
        """Call `hear` for each letter of any process from now on; it hears EVERYTHING whenever some may be missing."""
        self._hear = hear
        self._listening = asyncio.create_task(self._run(), name="hear hints")

    async def _run(self) -> None:
        pause = PAUSE_SECONDS_MIN
        while True:
            try:
                await self._listen_once()
            except Exception as error:  # whatever it is: without hints everything waits for the polls
                pause = PAUSE_SECONDS_MIN if "listening" not in self._faults else min(2 * pause, PAUSE_SECONDS_MAX)
                self._fails("listening", error)
            await asyncio.sleep(pause)

    async def _listen_once(self) -> None:
        client = connect(self._place.url)
        try:
            async with asyncio.timeout(CONNECT_SECONDS + ANSWER_SECONDS):
                place = await self._end(client)
            self._reset_numbering()
            self._listens = True
            self._works("listening")
            while True:
                place = await self._next(client, place)
        finally:
            self._listens = False
            await _hang_up(client)

    async def _next(self, client: Redis, place: tuple[int, int]) -> tuple[int, int]:
        """Take the entries behind `place`. Returns the place of the last one."""
        streams: dict[Any, Any] = {self.stream: f"{place[0]}-{place[1]}"}
        async with asyncio.timeout(WAIT_SECONDS + ANSWER_SECONDS):
            answer: Any = await client.xread(streams, count=READ_ENTRIES, block=round(WAIT_SECONDS * 1000))
            if not answer:
                end = await self._end(client)
                if end < place:  # emptied, or of a server whose clock is behind: nothing would come after `place`
                    self._reset_numbering()
                    return end
                return place
        for entry, fields in answer[0][1]:
            place = _read_place(entry)
            self._take(fields)
        return place

    async def _end(self, client: Redis) -> tuple[int, int]:
        newest: Any = await client.xrevrange(self.stream, count=1)
        return _read_place(newest[0][0]) if newest else _BEGINNING

    def _take(self, fields: dict[bytes, bytes]) -> None:
        sealed = _read_sealed(fields)
        letter = None if sealed is None else self._sealer.open(sealed)
        if sealed is None or letter is None:
            self._refuse()
            return
        last = self._heard.pop(sealed.sender, None)
        if last is not None and sealed.number <= last:
            self._heard[sealed.sender] = last
            self._refuse()
            return
        self._heard[sealed.sender] = sealed.number
        if len(self._heard) > SENDERS_MAX:
            self._heard.popitem(last=False)
        if sealed.number > (last or 0) + 1:  # also of a sender whose first letters were gone before they were read
            self._tell_everything()
        self._tell(letter)

    def _refuse(self) -> None:
        if not self.refused:
            log.warning("hint_refused", stream=self.stream, reason="no process over this database has written it")
        self.refused += 1

    def _reset_numbering(self) -> None:
        """Letters may have been missed: begin the numbering of senders anew, and have everything looked at."""
        self._heard.clear()
        self._tell_everything()

    def _tell_everything(self) -> None:
        self._tell(HintLetter([], [EVERYTHING]))

    def _tell(self, letter: HintLetter) -> None:
        try:
            self._hear(letter)
        except Exception as error:  # a fault of the listener is not one of the connection
            log.error("hint_failed", exc_info=error)

    # --- how it goes ----------------------------------------------------------------------------------------------

    def _fails(self, what: str, error: Exception) -> None:
        first = not self._faults
        self._faults[what] = f"Redis: {reason_of(error)}"
        if first:
            log.warning("hints_away", reason=self._faults[what], until="hints_back")

    def _works(self, what: str) -> None:
        if self._faults.pop(what, None) is not None and not self._faults:
            log.info("hints_back")


def _read_sealed(fields: dict[bytes, bytes]) -> Sealed | None:
    try:
        return Sealed(fields[b"s"], int(fields[b"n"]), fields[b"d"])
    except (KeyError, ValueError):
        return None


def _read_place(entry: bytes) -> tuple[int, int]:
    milliseconds, _, number = entry.decode().partition("-")
    return int(milliseconds), int(number)


async def _hang_up(client: Redis | None) -> None:
    """Close the connection without asking the other side."""
    if client is not None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1.0):
                await client.aclose()


async def probe(url: str) -> float:
    """The seconds in which Redis answers. Raises `StoreError` with the reason if it does not."""
    client = connect(RedisAddress.parse(url).url)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_SECONDS + ANSWER_SECONDS):
            await _ping(client)
            began = loop.time()
            await _ping(client)
            return loop.time() - began
    except Exception as error:
        raise StoreError(f"Redis does not answer: {reason_of(error)}") from error
    finally:
        await _hang_up(client)


def reason_of(error: BaseException) -> str:
    """Why Redis can't be reached, with advice where TLS fails."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted ({cause.verify_message}): give its authority as ?ssl_ca_certs=FILE in "
                f"{variable('hints')}, and name Redis there as its certificate does"
            )
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


async def _ping(client: Redis) -> None:
    answered: Any = client.ping()
    await answered
