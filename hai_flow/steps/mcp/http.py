"""The way to a server of the Model Context Protocol over HTTP: guarded, bounded, and without surprises for the SDK.

The SDK's transport ends with the first request that fails on the network, and with it everything that is under way
between. So failures are turned into answers here: errors of JSON-RPC whose `data` says whether the request may have
arrived (`UNREACHED`: surely not).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import dropwhile
from typing import Any, Final

import httpx2
import mcp_types as types

from hai_flow import values
from hai_flow.errors import StepError
from hai_flow.foreign import Utf8, to_utf8
from hai_flow.primitives.retry_after import retry_after
from hai_flow.primitives.unpacking import BreaksOff, NotUnpacked, unpack_response
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.transport import RECEIVED, HttpConfig, make_transport
from hai_flow.steps.mcp import messages as mcp_messages
from hai_flow.steps.mcp.messages import Read, read_all, to_read, unread, unreadable
from hai_flow.steps.mcp.receipts import HIDDEN_CHARS_MAX, CallReceipt
from hai_flow.steps.mcp.results import says_error
from hai_flow.steps.mcp.resuming import ResumePace
from hai_flow.steps.mcp.tolerant_reader import CALLER
from hai_flow.steps.secrets import hide_secrets

UNAUTHORIZED: Final = "mcp.unauthorized"
SESSION_GONE: Final = "mcp.session_gone"
"""The code of a fault that no step sees: the call is made in another session."""
SESSION_ID: Final = "mcp-session-id"
_NO_SESSION: Final = re.compile(
    rb"\b(?:no|not a|without|invalid|unknown|expired|missing|bad|unrecogni[sz]ed)\b[^.{}]{0,40}\bsession"
    rb"|session[^.{}]{0,60}\b(?:not found|not exist|no longer|unknown|invalid|expired|terminated|closed|missing"
    rb"|required)\b"
    rb"|not initiali[sz]ed|before initiali[sz]ation",
    re.IGNORECASE,
)
_TAGS: Final = re.compile(r"<[^<>]*>")
_WORDS_CHARS_MAX: Final = 300
CONNECT_SECONDS: Final = 10.0
NOTIFY_SECONDS: Final = 20.0  # for a server to take a notification, an answer of ours, or to give a token
LEAVE_SECONDS: Final = 5.0  # for a server to hear that a session is over
_UNREACHED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_BUSY: Final = frozenset({429, 503})
_GONE: Final = frozenset({404, 410})  # by the protocol, what a server answers in a session that it does not know
_REFUSED: Final = frozenset({400, 409, 422})  # what servers answer otherwise
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_NOWHERE: Final = frozenset({404, 405})  # what a server answers where it has no page, or one to be read alone
_NOWHERE_TOLD: Final = "no MCP server takes calls at this address; it often ends in /mcp"
_INITIALIZE: Final = re.compile(rb'"method": ?"initialize"')
_PING: Final = b'{"jsonrpc": "2.0", "id": "hai-flow-ping", "method": "ping"}'
_PING_BYTES_MAX: Final = 4096
_ID: Final = re.compile(r'"id" ?: ?(?:"[^"]*"|[^",}]*)')
_DENIED: Final = frozenset({401, 403})
_SILENCE_SECONDS: Final = 2.0  # without a message, behind an answer with the id of another request
_STREAM_FACTOR: Final = 16  # the largest answer to one call, with its notifications, as a multiple of one message


def make_client(
    guard: EgressGuard, config: HttpConfig, headers: Mapping[str, str], auth: httpx2.Auth | None
) -> httpx2.AsyncClient:
    """A client that connects to judged addresses only, and takes `config.bytes_max` of an answer."""
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
    transport = _Answering(guard, make_transport(guard, config), config, asks_for_tokens=auth is not None)
    return httpx2.AsyncClient(transport=transport, headers=dict(headers), auth=auth, timeout=timeout, trust_env=False)


class _Answering(httpx2.AsyncBaseTransport):
    def __init__(
        self, guard: EgressGuard, inner: httpx2.AsyncBaseTransport, config: HttpConfig, *, asks_for_tokens: bool
    ) -> None:
        self._asks_for_tokens = asks_for_tokens
        self._guard = guard
        self._inner = inner
        self._config = config
        self._pace = ResumePace()  # of the server's own messages

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        call = await _call_of(request)
        seconds = _find_limit(request, call)
        if call is None and seconds is None and not await self._find_pace().wait():
            return _fault("its stream ends again and again without a message", reached=True)
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(request, call)
        except TimeoutError:
            return _fault(f"it said nothing for {seconds:g} s", reached=True)

    async def _exchange(self, request: httpx2.Request, call: types.RequestId | None) -> httpx2.Response:
        RECEIVED.set(received := bytearray())
        try:
            if self._config.proxy is not None:  # which resolves the name once more
                await self._guard.address(request.url.host, request.url.port or 443)
            response = await self._inner.handle_async_request(request)
        except StepError as error:
            return _fault(error.message, code=error.code, reached=False)
        except _UNREACHED as error:
            return _fault(f"it can't be reached: {str(error) or type(error).__name__}", reached=False)
        except httpx2.TransportError as error:
            return _fault(_broken(error), reached=True, text=_text_of(received) or None)
        return await self._read_response(response, call, request)

    def _find_pace(self) -> ResumePace:
        """The pace of the stream that the request of this task opens."""
        caller = CALLER.get()
        return self._pace if caller is None else caller.receipt.pace

    async def _read_response(
        self, response: httpx2.Response, call: types.RequestId | None, request: httpx2.Request
    ) -> httpx2.Response:
        session = request if call is not None and SESSION_ID in request.headers else None
        caller = None if call is None else CALLER.get()
        receipt = None if caller is None else caller.receipt
        kind = response.headers.get("content-type", "").lower()
        if response.status_code < 300 and kind.startswith("text/event-stream"):
            pace = self._find_pace()
            stream = _Events(unpack_response(response), response.aclose, self._config.bytes_max, call, receipt, pace)
            if receipt is not None:
                receipt.begin(stream.read_partial)
            return httpx2.Response(response.status_code, headers=_strip_length(response), stream=stream)
        content = bytearray()
        if receipt is not None:
            receipt.begin(lambda: bytes(content[:HIDDEN_CHARS_MAX]))
        try:
            async for piece in unpack_response(response):
                content += piece
                if len(content) > self._config.bytes_max:
                    message = f"it answers with more than {self._config.bytes_max} bytes (HAI_FLOW_HTTP_BYTES_MAX)"
                    return _fault(message, code="tool.invalid_result", reached=True, final=True)
        except httpx2.TransportError as error:
            return _fault(_broken(error), reached=True, text=_text_of(content))
        except NotUnpacked as error:
            if response.status_code < 400:
                message = f"{mcp_messages.UNREADABLE}: {error}"
                is_whole = not isinstance(error, BreaksOff)
                text = _text_of(content)
                return _fault(message, code="tool.invalid_result", reached=True, final=is_whole, text=text)
            content[:] = content or str(error).encode()
        finally:
            await response.aclose()
        content = to_utf8(bytes(content), response.charset_encoding)
        status = response.status_code
        answers = f"it answers {status}{_words_in(content)}"
        if call is not None and status >= 400 and (result := _result_in(content, call)) is not None:
            if caller is None or says_error(result.result):
                body = to_read(result.model_copy(update={"id": call})).text.encode()
                return httpx2.Response(200, headers={"content-type": "application/json"}, content=body)
            return _fault(f"it answers {status}, and with a result at once", reached=True, text=_text_of(content))
        if session is not None and (
            status in _GONE or (status in _REFUSED and await self._is_gone(session, status, content))
        ):
            return _fault(f"it has forgotten the session: {answers}", code=SESSION_GONE, reached=False)
        if status in _MOVED and not _leads_on(response, request):
            return _fault(f"{answers}, and no address to go to", reached=status == 303)
        if status == 303:
            return _fault(f"{answers}: what it was asked may be done, and is told elsewhere", reached=True)
        if status in _DENIED and not self._asks_for_tokens:
            wanted_auth = hide_secrets(response.headers.get("www-authenticate", ""))[:_WORDS_CHARS_MAX]
            challenge = f"; it wants {wanted_auth}" if wanted_auth else ""
            return _fault(f"{answers}: its `auth` is missing or wrong{challenge}", code=UNAUTHORIZED, final=True)
        if call is not None and status < 300:
            return self._answer_to(call, response, content)
        if kind.startswith("application/json"):
            body = content if call is None else _answer_in(content, call, is_error=status >= 400)
            if body is not None:
                return httpx2.Response(status, headers=_strip_length(response), content=body)
        if status in _NOWHERE and call is not None and session is None and _INITIALIZE.search(request.content):
            if await self._speaks_former(request):
                return _fault(_FORMER_TOLD, final=True)
            return _fault(f"{answers}: {_NOWHERE_TOLD}", reached=False)
        if self._is_for_the_sdk(status):
            return httpx2.Response(status, headers=_strip_length(response), content=content)
        if status in _BUSY:
            return _fault(f"it is busy, {answers}", reached=False, after=retry_after(dict(response.headers)))
        if status >= 500:
            return _fault(answers, reached=True)
        return _fault(answers, code="tool.failed", final=True)

    def _answer_to(self, call: types.RequestId, response: httpx2.Response, content: bytes) -> httpx2.Response:
        """The response to a call that was answered: its message, whatever type the server gives the body."""
        headers = _strip_length(response)
        if _EVENTS.match(content):
            headers["content-type"] = "text/event-stream"
            stream = _Events(_say(content), response.aclose, self._config.bytes_max, call)
            return httpx2.Response(response.status_code, headers=headers, stream=stream)
        headers["content-type"] = "application/json"
        body = _answer_in(content, call, is_error=False)
        return httpx2.Response(200, headers=headers, content=body or b"")

    def _is_for_the_sdk(self, status: int) -> bool:
        """Whether the SDK treats a response of this status in its own way: an answer, a session that is over (404), a
        token that is missing."""
        return status < 400 or status == 404 or status in _DENIED

    async def _is_gone(self, refused: httpx2.Request, status: int, content: bytes) -> bool:
        """Whether a server that refuses a call does not know its session: it says so, or answers a `ping` in the same
        session as it does the call. A server that answers in any other way knows the session."""
        if _NO_SESSION.search(content) is not None:
            return True
        headers = refused.headers.copy()
        headers.pop("content-length", None)
        ping = httpx2.Request("POST", refused.url, headers=headers, content=_PING)
        try:
            async with asyncio.timeout(NOTIFY_SECONDS):
                response = await self._inner.handle_async_request(ping)
                try:
                    answer = bytearray()
                    async for piece in unpack_response(response):
                        answer += piece
                        if len(answer) > len(content) + _PING_BYTES_MAX:
                            return False
                finally:
                    await response.aclose()
        except (TimeoutError, httpx2.TransportError, NotUnpacked, StepError):
            return False
        words = _words_in(to_utf8(bytes(answer), response.charset_encoding))
        return response.status_code == status and _ID.sub("", words) == _ID.sub("", _words_in(content))

    async def _speaks_former(self, refused: httpx2.Request) -> bool:
        """Whether an address that takes no calls is that of a stream of the former protocol."""
        headers = {**refused.headers, "accept": "text/event-stream"}
        headers = {name: each for name, each in headers.items() if name not in ("content-length", "content-type")}
        look = httpx2.Request("GET", refused.url, headers=headers)
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                response = await self._inner.handle_async_request(look)
                try:
                    beginning = b""
                    async for piece in response.aiter_raw():
                        beginning += piece
                        if len(beginning) >= _PING_BYTES_MAX or b"\n" in beginning:
                            break
                finally:
                    await response.aclose()
        except (TimeoutError, httpx2.TransportError, StepError):
            return False
        return response.status_code == 200 and any(_FORMER.match(each) for each in beginning.splitlines())

    async def aclose(self) -> None:
        await self._inner.aclose()


def _leads_on(response: httpx2.Response, request: httpx2.Request) -> bool:
    """Whether a redirect leads to another address, or to its own with a first cookie, which may be wanted there."""
    try:
        target = request.url.join(response.headers.get("location", ""))
        is_other = target != request.url or ("cookie" not in request.headers and _gives_cookie(response, request))
        return target.scheme in ("http", "https") and is_other
    except (httpx2.InvalidURL, ValueError):
        return False


def _gives_cookie(response: httpx2.Response, request: httpx2.Request) -> bool:
    """Whether a response has a cookie that goes to the address of its request."""
    cookies, again = httpx2.Cookies(), httpx2.Request("GET", request.url)
    cookies.extract_cookies(httpx2.Response(response.status_code, headers=response.headers, request=request))
    cookies.set_cookie_header(again)
    return "cookie" in again.headers


def _find_limit(request: httpx2.Request, call: types.RequestId | None) -> float | None:
    """In how many seconds a request has to be answered. None: there is no limit here, because calls have those of their
    steps, and a stream of a server's own messages lasts. No step waits for the other requests, and the SDK without an
    end: a notification holds up all messages behind it, and the end of a session the end of its connection."""
    is_listening = request.method == "GET" and "text/event-stream" in request.headers.get("accept", "")
    if call is not None or is_listening:
        return None
    return LEAVE_SECONDS if request.method == "DELETE" else NOTIFY_SECONDS


async def _call_of(request: httpx2.Request) -> types.RequestId | None:
    """The id of the call that a request makes; None: it makes none, so that no message has to answer it."""
    if request.method != "POST" or not request.headers.get("content-type", "").startswith("application/json"):
        return None
    body = values.loads(await request.aread())  # of one that follows a redirect, nothing is read yet
    return body.get("id") if isinstance(body, dict) and "method" in body else None


def _answer_in(content: bytes, call: types.RequestId, *, is_error: bool) -> bytes | None:
    """The answer to a call, as the SDK can read it; None where a response that is an error has none in it."""
    messages = [each.message for each in read_all(content)]
    answers = [each for each in messages if isinstance(each, types.JSONRPCResponse | types.JSONRPCError)]
    # An answer of HTTP belongs to its request; in a batch it has to say so.
    own = answers if len(messages) == 1 else [each for each in answers if str(each.id) == str(call)]
    if own and all(each == own[0] for each in own):
        return to_read(own[0].model_copy(update={"id": call})).text.encode()
    if is_error:
        return None
    text = _text_of(content)
    if answers:
        return to_read(mcp_messages.fault("none of its answers is the one to the call", call, text=text)).text.encode()
    return to_read(unread(call, text)).text.encode()


def _result_in(content: bytes, call: types.RequestId) -> types.JSONRPCResponse | None:
    """The result of a call that comes with the status of an error: the call was performed, whatever the status says."""
    content = _data(content.splitlines(keepends=True)) if _EVENTS.match(content) else content
    results = [each.message for each in read_all(content) if isinstance(each.message, types.JSONRPCResponse)]
    own = [each for each in results if str(each.id) == str(call)]
    return own[0] if len(own) == 1 else None


def _text_of(content: bytes | bytearray) -> str:
    return values.storable(content.decode(errors="replace"))


def _words_in(content: bytes | bytearray) -> str:
    """What a server says beside its status, in brackets; "" for nothing."""
    words = " ".join(_TAGS.sub(" ", hide_secrets(_text_of(content[:HIDDEN_CHARS_MAX]))).split())
    return f" ({words[:_WORDS_CHARS_MAX]})" if words else ""


def _broken(error: Exception) -> str:
    return f"the connection broke: {str(error) or type(error).__name__}"


async def _say(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _strip_length(response: httpx2.Response) -> httpx2.Headers:
    """The headers without those that told of the body as it was sent."""
    headers = response.headers.copy()
    for name in ("content-length", "content-encoding"):
        headers.pop(name, None)
    return headers


def _fault(message: str, **more: Any) -> httpx2.Response:
    """An answer that says why there is none (`mcp_messages.fault`)."""
    text = to_read(mcp_messages.fault(message, **more)).text
    return httpx2.Response(502, headers={"content-type": "application/json"}, content=text.encode())


class _Events(httpx2.AsyncByteStream):
    """A stream of events, of which each holds a message that can be read, or none. `call`: the call that it answers,
    which bounds it as a whole, and makes its end without an answer a fault."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        close: Callable[[], Awaitable[None]],
        bytes_max: int,
        call: types.RequestId | None,
        receipt: CallReceipt | None = None,
        pace: ResumePace | None = None,
    ) -> None:
        self._receipt = receipt
        self._pace = pace
        self._has_said = False  # an event had data
        self._pieces = pieces
        self._close = close
        self._bytes_max = bytes_max
        self._call = call
        self._left = None if call is None else _STREAM_FACTOR * bytes_max
        self._partial = bytearray()  # the line that has not ended
        self._event: list[bytes] = []  # the lines of the event that has not ended
        self._others = bytearray()  # the beginning of the events before it that are no progress
        self._is_resumable = False  # an event has an id, by which the SDK asks for what is missing
        self._answers_to_others: list[str] = []  # by their ids; the stream's last word where there is no other
        self._silent_at: float | None = None  # when those count, unless another message comes
        self._is_silent = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for event in self._read():
                yield event
        finally:
            if self._pace is not None:
                self._pace.note_end(has_said=self._has_said)

    async def _read(self) -> AsyncIterator[bytes]:
        why = "its stream ended without an answer"
        try:
            async for event in self._events():
                yield event
        except BreaksOff as error:
            why = str(error)
        except NotUnpacked as error:
            yield _event(to_read(unreadable(None, f"{mcp_messages.UNREADABLE}: {error}")).text)
            return
        except httpx2.TransportError as error:
            if self._call is None or self._is_resumable:
                raise
            why = _broken(error)
        rest = [*self._event, *([bytes(self._partial)] if self._partial else [])]
        if _is_whole(rest):  # some servers leave out the last blank line
            yield self._readable(rest)
        if self._answers_to_others and (self._is_silent or not self._is_resumable):
            yield _event(self._choose_answer())
        if self._call is not None and not self._is_resumable:  # behind an answer nobody reads it
            text = _text_of(b"".join(rest) or self._others) or None
            yield _event(to_read(mcp_messages.fault(why, self._call, reached=True, text=text)).text)

    async def _events(self) -> AsyncIterator[bytes]:
        size = 0
        async for line in self._lines():
            size += len(line)
            if line is _TOO_LONG or size > self._bytes_max:
                yield _event(to_read(unreadable(None, self._too_large())).text)
                return
            self._event.append(line)
            if not line.strip(b"\r\n"):
                self._keep_event()
                if self._call is not None and any(_FORMER.match(each) for each in self._event):
                    yield _event(to_read(mcp_messages.fault(_FORMER_TOLD, self._call, final=True)).text)
                    return
                yield self._readable(self._event)
                if self._answers_to_others and _data(self._event):
                    self._silent_at = asyncio.get_running_loop().time() + _SILENCE_SECONDS
                self._event, size = [], 0

    async def aclose(self) -> None:
        await self._close()

    def _keep_event(self) -> None:
        event = b"".join(self._event)
        if len(self._others) < HIDDEN_CHARS_MAX and event.strip() and b"notifications/progress" not in event:
            self._others += event[:HIDDEN_CHARS_MAX]

    def read_partial(self) -> bytes:
        """What has come of the answer: the event that has not ended, behind those before it that are no progress."""
        return b"".join((self._others, *self._event, self._partial))

    def _too_large(self) -> str:
        return f"it answers with more than {self._bytes_max} bytes at once (HAI_FLOW_HTTP_BYTES_MAX), or without an end"

    def _readable(self, event: list[bytes]) -> bytes:
        """An event with messages that can be read, or without data."""
        self._is_resumable = self._is_resumable or any(line.startswith(b"id") and _value(line) for line in event)
        self._has_said = self._has_said or bool(_data(event))
        if self._is_resumable and not _data(event):  # it has a place from which its stream may be resumed
            self._note_begun()
        return _readable(event, self._is_for_call)

    def _note_begun(self) -> None:
        if self._receipt is not None:
            self._receipt.is_begun = True

    def _is_for_call(self, message: Read) -> bool:
        """Whether it is no answer to another request. Some servers answer with ids of their own, so one that is is kept
        for the case that no other comes before the end of the stream, or before a silence."""
        answer = message.message
        if self._call is None or not isinstance(answer, types.JSONRPCResponse | types.JSONRPCError):
            self._note_begun()
            return True
        if answer.id is None or str(answer.id) == str(self._call):
            return True
        self._answers_to_others.append(message.text)
        return False

    def _choose_answer(self) -> str:
        first, *more = self._answers_to_others
        if all(each == first for each in more):
            return first
        text = "\n".join(self._answers_to_others)
        return to_read(mcp_messages.fault("none of its answers is the one to the call", self._call, text=text)).text

    async def _read_pieces(self) -> AsyncIterator[bytes]:
        """The pieces until the end, or until the silence in which answers to others count: some servers keep their
        streams open. An event that has begun is waited for."""
        pieces = aiter(self._pieces)
        while True:
            is_between = self._partial[:1] in (b"", b":") and all(line.startswith(b":") for line in self._event)
            silence = asyncio.timeout_at(self._silent_at if is_between else None)
            try:
                async with silence:
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                self._is_silent = silence.expired()
                if not self._is_silent:
                    raise
                return
            yield piece

    async def _lines(self) -> AsyncIterator[bytes]:
        """The lines with their ends (`\\n`, `\\r\\n` or `\\r`), as the format has them; `_TOO_LONG` for too much."""
        partial, cut, is_first = self._partial, False, True
        charset = Utf8()
        async for each in self._read_pieces():
            piece = charset.feed(each)
            if self._left is not None:
                self._left -= len(piece)
            if len(partial) + len(piece) > 2 * self._bytes_max or (self._left is not None and self._left < 0):
                yield _TOO_LONG
                return
            piece = piece[1:] if cut and piece.startswith(b"\n") else piece  # the other half of the last line's end
            cut = piece.endswith(b"\r")
            partial += piece
            if b"\n" not in piece and b"\r" not in piece:
                continue
            lines = bytes(partial).splitlines(keepends=True)
            partial[:] = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
            for line in lines:
                yield line.removeprefix(_MARK) if is_first else line
                is_first = False


_TOO_LONG: Final = b"too long"
_FORMER: Final = re.compile(rb"event: ?endpoint\b")
_FORMER_TOLD: Final = (
    "it speaks the former protocol of two addresses (HTTP+SSE), which is not spoken here; name its address for "
    "streamable HTTP, which often ends in /mcp"
)
_MARK: Final = b"\xef\xbb\xbf"  # a byte order mark
_EVENTS: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:(?:data|event|id|retry):|:)")


def _readable(event: list[bytes], is_wanted: Callable[[Read], bool]) -> bytes:
    """An event with the message that it holds, as it can be read; of a batch, an event for each that is wanted."""
    text = _data(event)
    if not text:
        return b"".join(event)
    messages = [message.text for message in read_all(text) if is_wanted(message)]
    rest = b"".join(line for line in event if line.startswith((b"id", b"retry")))
    return b"".join((rest if number == 0 else b"") + _event(each) for number, each in enumerate(messages)) or (
        rest + b"data:\n\n"
    )


def _data(event: list[bytes]) -> bytes:
    """The data of an event. Lines of JSON without `data:` count, too: of servers that give a document the type of a
    stream."""
    data = [_value(line) for line in event if line.startswith(b"data")]
    if not data:
        data = [line.strip(b"\r\n") for line in dropwhile(lambda line: not line.startswith((b"{", b"[")), event)]
    return b"\n".join(data) if any(data) else b""


def _is_whole(event: list[bytes]) -> bool:
    """Whether the data of an event that has no end is a JSON value."""
    try:
        json.loads(_data(event))
    except (ValueError, RecursionError):
        return False
    return True


def _value(line: bytes) -> bytes:
    """The value of a line of server-sent events: the text behind its colon."""
    return line.strip(b"\r\n").partition(b":")[2].removeprefix(b" ")


def _event(text: str) -> bytes:
    return b"".join(b"data: " + line.encode() + b"\n" for line in text.split("\n")) + b"\n"
