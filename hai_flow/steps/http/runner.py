"""`http`: one request, or one for each page of a list, with bounds on its response and on its target.

Nothing is tried again here: the step's `retry` does that, and every attempt has the same idempotency key. Secrets are
put in when the request is sent, and go to no other origin than the one that the author named."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

import structlog

from hai_flow import foreign, values
from hai_flow.definition.names.secret_names import fill_secrets, with_callback
from hai_flow.definition.plan import Call, Callback, Expression, Http, HttpTool, Step, Template
from hai_flow.errors import StepError
from hai_flow.primitives.retry_after import retry_after
from hai_flow.primitives.unpacking import NotUnpacked, unpack_response
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.stream import Telling
from hai_flow.steps.http.transport import RECEIVED, HttpConfig, make_transport
from hai_flow.steps.runner import Attempt, Runner, Stream
from hai_flow.steps.secrets import Secrets, Use, hide_in_attempt, hide_secrets
from hai_flow.values import Json, storable

if TYPE_CHECKING:
    import httpx2

log = structlog.get_logger(__name__)

CONNECT_SECONDS: Final = 10.0
REDIRECTS_MAX: Final = 5
SAID_CHARS_MAX: Final = 300
HIDDEN_CHARS_MAX: Final = 16 * 1024  # of a response that an error quotes
JSON: Final = "application/json"
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_STATUS: Final = re.compile(rb"HTTP/\d(?:\.\d)? +(\d{3})\b")
_AGAIN: Final = frozenset({408, 425, 429})
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class HttpRunner(Runner):
    def __init__(self, guard: EgressGuard, secrets: Secrets, config: HttpConfig) -> None:
        self._guard = guard
        self._secrets = secrets
        self._config = config
        self._client: httpx2.AsyncClient | None = None

    async def perform(self, attempt: Attempt, stream: Stream) -> Json:
        http = attempt.step.verb
        assert isinstance(http, Http)
        exchange = HttpExchange(self, attempt, http.expect, http.next, stream)
        request = values.loads(attempt.args)
        if http.callback is not None:
            request = {**await with_address(request, attempt), "url": request["url"]}
        response = await exchange.asked(request)
        if http.next is None:
            return response
        pages = [response["json"]]
        while (url := await exchange.next_page(response)) is not None:
            if len(pages) >= http.pages:
                message = f"expected at most {http.pages} pages, and there are more; raise `pages`"
                raise StepError(message, code="http.too_large", retriable=False)
            response = await exchange.asked({"method": "GET", "url": urljoin(response["url"], url)}, page=True)
            pages.append(response["json"])
        return {**response, "json": pages, "text": ""}

    def doubt(self, step: Step, *, from_disk: bool = False) -> str | None:
        http = step.verb
        if not isinstance(http, Http):
            return None
        return self.check_callback(http.callback) or self._secrets.doubt(http.arguments.written)

    def check_callback(self, callback: Callback | None) -> str | None:
        """Why nothing could call back, if something is to."""
        if callback is None or self._config.takes_callbacks:
            return None
        return "nothing can call back: HAI_FLOW_PUBLIC_URL does not say under which address this server is reached"

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @property
    def secrets(self) -> Secrets:
        return self._secrets

    @property
    def bytes_max(self) -> int:
        return self._config.bytes_max

    async def client(self, host: str, port: int) -> httpx2.AsyncClient:
        """The client that sends. Behind a proxy the host is judged here, because the proxy resolves it once more."""
        if self._config.proxy is not None:
            await self._guard.address(host, port)
        if self._client is None:
            self._client = _make_client(self._guard, self._config)
        return self._client

    async def with_secrets(self, value: Json, attempt: Attempt, host: str) -> Json:
        """`value` with the secrets that it names, for `host`. Raises StepError."""
        verb = attempt.step.verb
        tool = f"{verb.tool.name}.{verb.function}" if isinstance(verb, Call) else ""
        use = Use(host=host, workflow=attempt.workflow, from_disk=attempt.from_disk, tool=tool, tenant=attempt.tenant)
        return fill_secrets(value, (await self._secrets.found(value, use)).__getitem__)


async def with_address(value: Json, attempt: Attempt) -> Json:
    """`value` with an address at which the service may call back, where it names one. Raises StepError."""
    url = await attempt.callback()
    hide_in_attempt(url.rpartition("/")[2])
    return with_callback(value, url)


class HttpExchange:
    """The requests of one attempt. `expect`: the statuses that count as success (None: any 2xx); `following`: the next
    page."""

    def __init__(
        self,
        runner: HttpRunner,
        attempt: Attempt,
        expect: Expression | None = None,
        following: Template | None = None,
        stream: Stream | None = None,
        *,
        follows_writes: bool = False,
    ) -> None:
        self._runner = runner
        self._attempt = attempt
        self._expect = expect
        self._follows_writes = follows_writes
        self._following = following
        self._stream = stream
        self._big: foreign.BigIntegers = "text"
        verb = attempt.step.verb
        if isinstance(verb, Http):
            self._big = verb.big_integers
        elif isinstance(verb, Call) and isinstance(verb.tool, HttpTool):
            self._big = verb.tool.big_integers
        self._left = runner.bytes_max
        self._origin: tuple[str, str, int] | None = None
        self._headers: Json = {}

    async def asked(self, asked: Mapping[str, Json], *, page: bool = False) -> dict[str, Json]:
        """The response, which is as `expect` wants it. Raises StepError."""
        url = asked["url"]
        if not page:
            self._origin = _origin(url)
            self._headers = {"headers": asked.get("headers"), "auth": asked.get("auth")}
        for _ in range(REDIRECTS_MAX + 1):
            response = await self._send(asked, url)
            target = _find_target(response)
            is_look = asked["method"] in ("GET", "HEAD")
            may_repeat = target not in (None, url) and url == asked["url"]
            if target is None or not (is_look or (may_repeat and self._repeats(response, target))):
                return await self._judge(response)
            url = target
        message = f"the address leads on more than {REDIRECTS_MAX} times; name the one where it ends"
        raise StepError(message, code="http.connection", retriable=False)

    def _repeats(self, response: Mapping[str, Json], target: str) -> bool:
        """Whether a request that is no mere look is sent once more where it is redirected: with its method, within its
        origin."""
        if not self._follows_writes or response["status"] not in (307, 308):
            return False
        try:
            return _origin(target) == self._origin
        except StepError:  # it is no address of the web
            return False

    async def next_page(self, response: Mapping[str, Json]) -> str | None:
        assert self._following is not None
        url = await self._attempt.evaluate(self._following, response=response)
        if url is None or url == "":
            return None
        if not isinstance(url, str):
            raise unfit(f"expected the address of the next page from `next`, found {values.dumps(url).decode()[:100]}")
        return url

    async def _judge(self, response: dict[str, Json]) -> dict[str, Json]:
        status, expect = response["status"], self._expect
        if expect is None:
            if 200 <= status < 300:
                return response
            again = status in _AGAIN or status >= 500
            target = _find_target(response)
            leads = "" if target is None else f": it leads to {_strip_address(target)}; name that address"
            message = f"{self._place(response['url'])} answered {status}{leads}."
            after = retry_after(response["headers"])
            raise StepError(message, code="http.status", retriable=again, data=_short(response), retry_after=after)
        if await self._attempt.evaluate(expect, response=response):
            return response
        message = f"{self._place(response['url'])} answered {status}, and `{expect.source}` is false."
        after = retry_after(response["headers"])
        raise StepError(message, code="http.expect", data=_short(response), retry_after=after)

    async def _send(self, asked: Mapping[str, Json], url: str) -> dict[str, Json]:
        import httpx2

        origin = _origin(url)
        ours = origin == self._origin
        own_headers = self._headers if ours else {}
        filled_in = await self._runner.with_secrets(own_headers, self._attempt, origin[1])
        headers = headers_of(filled_in.get("headers"), filled_in.get("auth"))
        if filled_in.get("auth") != own_headers.get("auth"):
            _remember_basic(filled_in["auth"])
        if asked["method"] in _WRITES:
            headers.setdefault("idempotency-key", self._attempt.idempotency_key)
        if ours and self._attempt.traceparent is not None:
            headers.setdefault("traceparent", self._attempt.traceparent)
        client = await self._runner.client(origin[1], origin[2])
        response: httpx2.Response | None = None
        content = bytearray()
        RECEIVED.set(received := bytearray())
        self._attempt.receive(partial(_describe_head, received, url))
        try:
            query = asked.get("query") if ours else None
            body = _body(asked)
            headers = body.pop("headers", {}) | headers
            request = client.build_request(asked["method"], _with_query(url, query), headers=headers, **body)
            response = await client.send(request, stream=True)
            self._attempt.receive(partial(self._describe_partial, response, content, url))
            try:
                telling = self._telling(response)
                if telling is not None:
                    return await self._stream_body(response, telling, content, url)
                await self._read(unpack_response(response), content, url)
            except NotUnpacked as error:
                if self._expect is not None or response.status_code < 400:
                    raise
                content[:] = content or f"its body can't be read: {error}".encode()
            except StepError as error:
                if error.data is None:
                    error.data = self._describe_partial(response, content, url)
                raise
            finally:
                await response.aclose()
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise unfit(f"{url!r} is no address that can be asked: {error}") from None
        except (NotUnpacked, httpx2.RemoteProtocolError) as error:
            data = self._describe_partial(response, content, url) or _describe_head(received, url)
            if isinstance(error, httpx2.RemoteProtocolError) and _BROKE_OFF.search(str(error)):
                message = f"{self._place(url)} broke off its answer: {error}"
                raise StepError(message[:1000], code="http.connection", retriable=True, data=data) from None
            raise self._unreadable(url, str(error), data) from None
        except httpx2.TransportError as error:
            message = f"{self._place(url)} can't be reached: {str(error) or type(error).__name__}"
            data = self._describe_partial(response, content, url) or _describe_head(received, url)
            raise StepError(message, code="http.connection", retriable=True, data=data) from None
        return self._response(response, bytes(content), url)

    def _describe_partial(self, response: httpx2.Response | None, content: bytes | bytearray, url: str) -> Json:
        """What has come of a response that did not come whole, for the error's `data`: the request may have been
        performed. None where nothing has come."""
        if response is None:
            return None
        text, _ = foreign.decode(bytes(content[:HIDDEN_CHARS_MAX]), response.charset_encoding)
        return _short({"status": response.status_code, "url": url, "text": storable(text)})

    async def _read(self, chunks: AsyncIterator[bytes], content: bytearray, url: str) -> None:
        async for chunk in chunks:
            content += chunk
            self._count(chunk, url)

    def _count(self, chunk: bytes, url: str) -> None:
        self._left -= len(chunk)
        if self._left < 0:
            message = f"{self._place(url)} answers with more than {self._runner.bytes_max} bytes"
            raise StepError(f"{message} (HAI_FLOW_HTTP_BYTES_MAX).", code="http.too_large", retriable=False)

    def _telling(self, response: httpx2.Response) -> Telling | None:
        """Streams the text of the body to the run's followers while it arrives; None where the step does not stream, or
        the body is no text."""
        verb = self._attempt.step.verb
        streamed = verb.stream if isinstance(verb, Http) else None
        media = _parse_media(response)
        if streamed is None or self._stream is None or not 200 <= response.status_code < 300:
            return None
        if not media.startswith("text/"):
            return None
        piece = None if streamed.piece is None else partial(self._piece, streamed.piece)
        return Telling(media, response.charset_encoding or "utf-8", self._stream, piece)

    async def _piece(self, template: Template, event: Json) -> Json:
        return await self._attempt.evaluate(template, event=event)

    async def _stream_body(
        self, response: httpx2.Response, telling: Telling, content: bytearray, url: str
    ) -> dict[str, Json]:
        """The response whose text is streamed. `content` gets the beginning of its body, for an error."""
        verb = self._attempt.step.verb
        assert isinstance(verb, Http)
        assert verb.stream is not None
        seconds, chunks = verb.stream.idle / 1000, aiter(unpack_response(response))
        while True:
            try:
                async with asyncio.timeout(seconds):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                message = f"{self._place(url)} said nothing for {seconds:g} s in the middle of its answer"
                raise StepError(message, code="http.connection", retriable=True) from None
            if chunk is None:
                break
            self._count(chunk, url)
            content += chunk[: max(0, HIDDEN_CHARS_MAX - len(content))]
            await telling.take(chunk)
        await telling.take(b"", final=True)
        return self._build_response_value(response, telling.text, None, url, telling.notes)

    def _response(self, response: httpx2.Response, content: bytes, url: str) -> dict[str, Json]:
        """The response as expressions see it. A request whose answer is odd has been performed all the same: `json` is
        what can be read of the body, and null where that is no JSON; `notes` say what was changed."""
        kind = _parse_media(response)
        text, notes = foreign.decode(content, response.charset_encoding)
        value: Json = None
        if (kind == JSON or kind.endswith("+json")) and text.strip():
            try:
                value, odd = foreign.read(text, self._big)
                notes.extend(odd)
            except values.NotJson as error:
                notes.append(f"`json` is null: its type is {kind}, and {error}")
                if self._big == "refuse" and "big_integers" in str(error):
                    summary = _short(self._build_response_value(response, storable(text), None, url))
                    message = f"{self._place(url)} answered {response.status_code}: {error}"
                    raise StepError(message, code="http.invalid_response", retriable=False, data=summary) from None
        if notes:
            log.info("http_response_changed", place=self._place(url), notes=notes)
        return self._build_response_value(response, storable(text), value, url, notes)

    def _build_response_value(
        self, response: httpx2.Response, text: str, value: Json, url: str, notes: Sequence[str] = ()
    ) -> dict[str, Json]:
        headers = {name.lower(): storable(each) for name, each in response.headers.items()}
        fields = {"status": response.status_code, "headers": headers, "json": value, "text": text, "url": url}
        return {**fields, "notes": list(notes)} if notes else fields

    def _unreadable(self, url: str, why: str, data: Json) -> StepError:
        message = f"{self._place(url)} answers with what can't be read: {why}"
        return StepError(message[:1000], code="http.invalid_response", retriable=False, data=data)

    def _place(self, url: str) -> str:
        """The host and path of an address, without the parts that may be secret."""
        parts = urlsplit(url)
        return f"{parts.hostname}{parts.path}"


_BROKE_OFF: Final = re.compile(r"disconnected|closed connection|connection_?terminated|stream_?reset", re.IGNORECASE)
"""A server that went away in the middle, in the words of the library, which has one error for all of HTTP."""


def _parse_media(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _make_client(guard: EgressGuard, config: HttpConfig) -> httpx2.AsyncClient:
    import httpx2

    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
    transport = make_transport(guard, config)
    return httpx2.AsyncClient(transport=transport, trust_env=False, follow_redirects=False, timeout=timeout)


def _find_target(response: Mapping[str, Json]) -> str | None:
    """Where a response leads; None: nowhere."""
    place = response["headers"].get("location")
    if response["status"] not in _MOVED or not place:
        return None
    try:
        return urljoin(response["url"], place)
    except ValueError:
        return None


def _strip_address(url: str) -> str:
    """An address without the parts that may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:200]


def _origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port. Raises StepError if `url` is not an address of the web."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise unfit(f"{url!r} is no address that can be asked: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise unfit(f"expected an address like https://host/path, found {url!r}")
    if parts.username is not None or parts.password is not None:
        raise unfit("an address holds no user and password; use `auth`")
    return parts.scheme, host.lower(), port or (443 if parts.scheme == "https" else 80)


def headers_of(given: Json, auth: Json) -> dict[str, str]:
    """The headers of a request, with those that `auth` means. Raises StepError `http.invalid_request`."""
    headers: dict[str, str] = {"accept-encoding": "identity", "user-agent": "hai-flow"}
    for name, value in (given or {}).items():
        headers[str(name).lower()] = value if isinstance(value, str) else values.dumps(value).decode()
    match auth:
        case None:
            pass
        case str():
            headers["authorization"] = f"Bearer {auth}"
        case {"bearer": token}:
            headers["authorization"] = f"Bearer {token}"
        case {"basic": {"user": user, "password": password}}:
            import base64

            headers["authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        case {"header": {"name": name, "value": value}}:
            headers[str(name).lower()] = str(value)
        case _:
            raise unfit(
                "expected a token, `{bearer}`, `{basic: {user, password}}` or `{header: {name, value}}` as `auth`"
            )
    for name, value in headers.items():
        if any(character in "\r\n\0" for character in name + value):
            raise unfit(f"the header {name!r} holds a line break")
    return headers


def _remember_basic(auth: Json) -> None:
    """Hide the user and the password as one: HTTP Basic writes them so."""
    match auth:
        case {"basic": {"user": user, "password": password}}:
            hide_in_attempt(f"{user}:{password}")


def _with_query(url: str, query: Json) -> httpx2.URL:
    import httpx2

    parsed = httpx2.URL(url)
    return parsed.copy_merge_params(_plain(query)) if isinstance(query, Mapping) and query else parsed


def _plain(given: Mapping[str, Json]) -> dict[str, Any]:
    """Parameters as text; a list is one for each item, null is left out."""
    parameters: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, list):
            parameters[name] = [_word(each) for each in value]
        elif value is not None:
            parameters[name] = _word(value)
    return parameters


_OF_A_FILE: Final = frozenset({"filename", "content", "type"})


def _word(value: Json) -> str:
    if isinstance(value, float) and value.is_integer() and math.isfinite(value):
        return str(int(value))
    return value if isinstance(value, str) else values.dumps(value).decode()


def _body(asked: Mapping[str, Json]) -> dict[str, Any]:
    if "body" in asked:
        if asked.get("body_type", JSON) != JSON:
            headers = {"content-type": asked["body_type"]}
            return {"content": values.dumps(asked["body"]), "headers": headers}
        return {"json": asked["body"]}
    if "form" in asked:
        if not isinstance(asked["form"], Mapping):
            raise unfit("expected a mapping as `form`")
        return {"data": _plain(asked["form"])}
    if "multipart" in asked:
        return {"files": _files(asked["multipart"])}
    if "text" in asked:
        return {"content": _word(asked["text"]).encode()}
    return {}


def _files(given: Json) -> list[tuple[str, Any]]:
    """The parts of a form with files; a list of files is several of one name."""
    if not isinstance(given, Mapping) or not given:
        raise unfit("expected a mapping with a part at least as `multipart`")
    files: list[tuple[str, Any]] = []
    for name, value in given.items():
        for part in value if _is_files(value) else [value]:
            if isinstance(part, Mapping):
                kind = part.get("type") or "application/octet-stream"
                files.append((name, (part.get("filename") or name, _word(part.get("content", "")).encode(), kind)))
            else:
                files.append((name, (None, _word(part).encode())))
    return files


def _is_files(value: Json) -> bool:
    """Whether a value is a list of files, and not one that is sent as JSON."""
    return (
        isinstance(value, list)
        and value != []
        and all(isinstance(each, Mapping) and "content" in each and each.keys() <= _OF_A_FILE for each in value)
    )


def _short(response: Mapping[str, Json]) -> dict[str, Json]:
    """A response as errors repeat it."""
    text = hide_secrets(response["text"][:HIDDEN_CHARS_MAX])  # before the cut, which would leave a part of a secret
    excerpt = text if len(text) <= SAID_CHARS_MAX else f"{text[:SAID_CHARS_MAX]}…"
    status = {"status": response["status"]} if "status" in response else {}
    return {**status, "url": response["url"], "text": excerpt}


def _describe_head(received: bytearray, url: str) -> Json:
    """What has come of an answer whose head is not read: its status is in its first line, where it has one. None where
    nothing has come."""
    if not received:
        return None
    status = {"status": int(line[1])} if (line := _STATUS.match(received)) else {}
    return _short({**status, "url": url, "text": storable(foreign.decode(bytes(received), None)[0])})


def unfit(message: str) -> StepError:
    return StepError(message, code="http.invalid_request", retriable=False)
