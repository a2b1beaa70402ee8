"""HTTP/1.1 to models' servers: a request at a time on a connection, which is kept for the next one. A request is sent
again only where a kept connection ends before a byte of an answer. A general client costs 40 times the instructions, a
quarter of an agent's turn. All functions raise OSError for a connection that fails, and for an answer that is not HTTP.
"""

from __future__ import annotations

import asyncio
import select
import socket
from asyncio.staggered import staggered_race
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import httptools

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS: Final = 10.0
KEPT_SECONDS: Final = 60.0  # an idle connection stays open for the next request
KEPT_MAX: Final = 64
HEAD_BYTES_MAX: Final = 100 * 1024  # also of what stands between chunks and behind the last one
_BUFFER_BYTES_MAX: Final = 256 * 1024  # of a body that nobody reads yet
_NEXT_ADDRESS_SECONDS: Final = 0.25  # until the next address of a host is tried beside the one before (RFC 8305)


class ServerOrigin(NamedTuple):
    """Where a server is. `secure`: by TLS."""

    host: str
    port: int
    secure: bool


class HttpAnswer(NamedTuple):
    """`headers` by their names in lower case; `chunks` is the body as it comes, which may be read once."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class HttpPool:
    """Connections by origin. `make_tls` makes the context of those that need one, once."""

    def __init__(self, make_tls: Callable[[], ssl.SSLContext]) -> None:
        self._make_tls = make_tls
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False
        self._idle: dict[ServerOrigin, list[_KeptConnection]] = {}

    async def ask(self, origin: ServerOrigin, request: bytes) -> tuple[_KeptConnection, HttpAnswer]:
        """The response to a request, which is a whole one as it is sent. Call `give_back` with its connection behind
        it in any case."""
        kept = self._find_idle(origin)
        connection = kept or await self._connect(origin)
        while True:
            try:
                return connection, await connection.ask(request)
            except BaseException as error:
                connection.abort()
                if connection is not kept or connection.has_begun_to_answer or not isinstance(error, OSError):
                    raise
            connection = await self._connect(origin)

    def give_back(self, connection: _KeptConnection) -> None:
        """Keep the connection for the next request, or close it where the response was not read to its end."""
        if self._is_closed or not connection.is_reusable or sum(map(len, self._idle.values())) >= KEPT_MAX:
            connection.abort()
            return
        connection.expiry = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._expire, connection)
        self._idle.setdefault(connection.origin, []).append(connection)

    def close(self) -> None:
        """Close the idle connections, and those in use when they are given back."""
        self._is_closed = True
        idle, self._idle = self._idle, {}
        for connection in (each for group in idle.values() for each in group):
            connection.abort()

    def _expire(self, connection: _KeptConnection) -> None:
        group = self._idle.get(connection.origin, [])
        if connection in group:
            group.remove(connection)
        connection.abort()

    def _find_idle(self, origin: ServerOrigin) -> _KeptConnection | None:
        group = self._idle.get(origin)
        while group:
            connection = group.pop()
            if connection.is_open:
                connection.stop_expiry()
                return connection
            connection.abort()
        self._idle.pop(origin, None)
        return None

    async def _connect(self, origin: ServerOrigin) -> _KeptConnection:
        loop, name = asyncio.get_running_loop(), origin.host if origin.secure else None
        if origin.secure and self._tls is None:
            self._tls = self._make_tls()
        async with asyncio.timeout(CONNECT_SECONDS):
            tcp = await _open_socket(origin)
            try:
                _, connection = await loop.create_connection(
                    partial(_KeptConnection, origin), sock=tcp, ssl=self._tls if name else None, server_hostname=name
                )
            except BaseException:
                tcp.close()
                raise
        return connection


_Address: TypeAlias = tuple[Any, Any, int, str, Any]


async def _open_socket(origin: ServerOrigin) -> socket.socket:
    """A socket to the first address of the host that answers: of its two families in turn, each tried beside the ones
    before, as one of them may be cut off."""
    loop = asyncio.get_running_loop()
    try:
        addresses: Sequence[_Address] = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"no host can be called {origin.host!r}: {error}") from None
    if len(addresses) == 1:
        return await _open_one(*addresses[0])
    first = [each for each in addresses if each[0] == addresses[0][0]]
    others = [each for each in addresses if each[0] != addresses[0][0]]
    ordered = [each for pair in zip(first, others, strict=False) for each in pair]
    ordered += [*first[len(others) :], *others[len(first) :]]
    opened, tcp = list[socket.socket](), None

    async def attempt(address: _Address) -> socket.socket:
        opened.append(await _open_one(*address))
        return opened[-1]

    try:
        tcp, _, errors = await staggered_race([partial(attempt, each) for each in ordered], _NEXT_ADDRESS_SECONDS)
    finally:  # also where this task is cancelled while the race ends
        for each in opened:
            if each is not tcp:
                each.close()
    if tcp is None:
        raise next((each for each in errors if isinstance(each, OSError)), OSError("it has no address"))
    return tcp


async def _open_one(family: int, kind: int, protocol: int, _: str, address: Any) -> socket.socket:
    tcp = socket.socket(family, kind, protocol)
    try:
        tcp.setblocking(False)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(tcp, address)
    except BaseException:
        tcp.close()
        raise
    return tcp


class _KeptConnection(asyncio.Protocol):
    """One connection, and the response on it. Methods with `on_` are the parser's."""

    def __init__(self, origin: ServerOrigin) -> None:
        self.origin = origin
        self.expiry: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None  # of the response that is read
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._chunks: deque[bytes] = deque()
        self._buffered = self._framing_bytes = self._status = 0
        self._headers: dict[str, str] = {}
        self._is_paused = self._is_complete = self._keeps = False

    @property
    def is_open(self) -> bool:
        """Whether an idle connection can take a request: its server has neither closed it nor sent anything."""
        transport = self._transport
        if self._error is not None or transport is None or transport.is_closing():
            return False
        return not _is_readable(transport.get_extra_info("socket").fileno())

    @property
    def has_begun_to_answer(self) -> bool:
        return self._framing_bytes > 0

    @property
    def is_reusable(self) -> bool:
        """Whether the response was read to its end, and the server keeps the connection."""
        assert self._transport is not None
        is_over = self._is_complete and self._error is None and not self._chunks
        return is_over and self._keeps and not self._transport.get_write_buffer_size()

    def abort(self) -> None:
        self.stop_expiry()
        if self._transport is not None:
            self._transport.abort()

    def stop_expiry(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None

    async def ask(self, request: bytes) -> HttpAnswer:
        assert self._transport is not None
        parser = httptools.HttpResponseParser(self)
        # Header lines may be folded or end in a mere line feed; chunks count more than a length beside them.
        parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
            lenient_chunked_length=True,
        )
        self._parser, self._status, self._headers, self._framing_bytes = parser, 0, {}, 0
        self._is_complete = self._keeps = False
        self._transport.write(request)
        while not self._status:
            await self._wait()
        return HttpAnswer(self._status, self._headers, self._read())

    async def _read(self) -> AsyncIterator[bytes]:
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._buffered -= len(chunk)
                if self._is_paused and not self._chunks:
                    self._is_paused = False
                    cast(asyncio.Transport, self._transport).resume_reading()
                yield chunk
            if self._is_complete:
                return
            await self._wait()

    async def _wait(self) -> None:
        """Return when something has come. Raises OSError where nothing can come any more."""
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._is_complete:  # nothing was asked
            self._fail(OSError("the server has sent what nobody asked for"))
            return
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(OSError(f"its answer is not HTTP: {error}"))
        if not self._is_complete and self._framing_bytes > HEAD_BYTES_MAX:
            self._fail(OSError(f"the head or the end of its answer is longer than {HEAD_BYTES_MAX // 1024} KiB"))
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        names = self._headers
        if (
            self._status
            and "content-length" not in names
            and "chunked" not in names.get("transfer-encoding", "").lower()
        ):
            self._is_complete = True  # the end of the connection is that of the body
        if self._error is None:
            is_known = isinstance(exc, OSError)
            self._error = cast(OSError, exc) if is_known else OSError("the server has closed the connection")
        self._wake()

    def _fail(self, error: OSError) -> None:
        self._error = self._error or error
        if self._transport is not None:
            self._transport.abort()

    def on_message_begin(self) -> None:
        if self._is_complete:  # a second answer
            self._fail(OSError("the server has answered twice"))
        else:
            self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._status:  # behind the body
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        before = self._headers.get(key)
        self._headers[key] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 100:
            self._fail(OSError(f"its answer is not HTTP: there is no status {status}"))
        elif status >= 200 and not self._is_complete:  # before it may come hints of what will follow
            self._status = status

    def on_body(self, body: bytes) -> None:
        if self._is_complete or not self._status:
            return
        self._framing_bytes = 0  # of what has come since the last byte of the body
        self._chunks.append(body)
        self._buffered += len(body)
        if self._buffered > _BUFFER_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            cast(asyncio.Transport, self._transport).pause_reading()

    def on_message_complete(self) -> None:
        if self._status:
            assert self._parser is not None
            self._keeps, self._is_complete = self._parser.should_keep_alive(), True


def _is_readable(descriptor: int) -> bool:
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
