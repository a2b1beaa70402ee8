"""The connections of this process to servers of the Model Context Protocol: one for each, with a task that owns it.

The SDK's contexts must be left by the task that entered them. So the owner enters, waits until the connection is not
wanted any more or is over, and leaves; the tasks of attempts only send requests. A connection that has failed is
forgotten, and the next request opens another one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, cast

import mcp_types as types
import msgspec
import structlog
from mcp.client.client import Client, ConnectMode
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS, SUPPORTED_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from hai_flow.errors import OutcomeLost, StepError
from hai_flow.primitives.prompt_injection import list_signs
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.steps.mcp.elicitation import Sitting, find_question_fault
from hai_flow.steps.mcp.http import SESSION_GONE, UNAUTHORIZED, make_client
from hai_flow.steps.mcp.messages import FAULT
from hai_flow.steps.mcp.receipts import cut
from hai_flow.steps.mcp.results import SAID_CHARS_MAX, Resource, find_task, result_of, says_error, text_of
from hai_flow.steps.mcp.schemas import NAME, read_tool
from hai_flow.steps.mcp.stdio import program
from hai_flow.steps.mcp.tolerant_reader import CALLER, RAW, only_asks, tap
from hai_flow.values import Json

log = structlog.get_logger(__name__)
for _name in ("client", "mcp.client", "mcp.shared"):  # the SDK's: they quote answers, which may be personal
    logging.getLogger(_name).setLevel(logging.CRITICAL)

Asked = Callable[[Any], Awaitable[types.ElicitResult | types.ErrorData]]
Open = Callable[[asyncio.Event, Callable[[], None], Asked, ConnectMode], AbstractAsyncContextManager[Client]]
"""Opens a session. The event is set when it is over; the functions are called when the server's functions change, and
when it asks within the session."""

START_SECONDS: Final = 20.0  # to connect, to agree on a protocol, and to list the functions
CANCEL_SECONDS: Final = 2.0  # for a call to end that is cancelled because of its question
READ_SECONDS: Final = 20.0  # to read the resource behind a link
IDLE_SECONDS: Final = 600.0
TOOLS_MAX: Final = 1000
BARREN_PAGES_MAX: Final = 10  # pages in a row that list no further function
TOOLS_BYTES_MAX: Final = 16 * 1024 * 1024  # of all that a server says of its functions
_CLOSE_SECONDS: Final = 10.0
_RELOOK_SECONDS: Final = 60.0
"""After which the functions of a server are listed again: not every server tells of changes."""
Answered: TypeAlias = types.CallToolResult | types.InputRequiredResult
_RESULT: Final[TypeAdapter[Answered]] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)


class Session(msgspec.Struct, frozen=True):
    """A session with a server, and its functions by name, as it has listed them in this very session."""

    client: Client
    tools: Mapping[str, types.Tool]
    left_out: Mapping[str, str]  # functions that can't be used, by their names: why


_CLOSED: Final = "Connection closed"  # in the SDK's words; servers have faults of their own under the same code
_UNKNOWN_VERSION: Final = re.compile("Unsupported protocol version from the server: (.*)")  # also in its words
_STREAM_ENDED: Final = ("SSE stream ended", "SSE stream failed")  # also in its words
_SESSION_GONE: Final = re.compile(
    r"(?:\w+ )?(?:bad request|invalid request|error|not found)?\W*"
    r"(?:(?:no valid|no such|unknown|invalid|missing|expired|unrecogni[sz]ed) (?:mcp[- ])?session(?:[- ]?id)?"
    r"|(?:mcp[- ])?session(?:[- ]?id)?(?: \S{8,64})? (?:was |is |has |does )?(?:been )?"
    r"(?:not (?:found|exist|valid|initiali[sz]ed)|unknown|invalid|expired|terminated|closed|missing|required)"
    r"|server not initiali[sz]ed|received request before initiali[sz]ation was complete)"
    r"[^a-z]*(?:provided|please (?:re-?)?(?:initiali[sz]e|connect)[a-z ]*)?[.!]*",
    re.IGNORECASE,
)
"""An error of JSON-RPC, with whatever status, that says no more than that the server does not know the session."""


_ASKS_IN_SESSION: Final = re.compile(
    r"(?:Error (?:executing|calling) tool \S+: )?"
    r"(?:Cannot send 'elicitation/create': this transport context has no back-channel\b.*"  # the SDK of Python
    r"|elicitation via server-initiated requests is unavailable\b.*"  # FastMCP
    r"|Server-to-client requests are not available on protocol revision \S+: 'elicitation/create'.*)",  # TypeScript
    re.DOTALL,
)
"""An error of a function that asks within a session, in a protocol that has none: the words of servers' libraries."""


class _SessionGone(Exception):
    """The server does not know the session any more: what was asked in it has not been done."""


class _AsksInSession(Exception):
    """The function asks within a session, which the protocol of this one has not: it has ended there."""


class Connection:
    """The connection to one server. `name` is the server's name in errors; `on_end` is called when it has ended;
    `version_min` is the lowest version of the protocol that it may speak; `is_screened`: a function whose description
    reads like instructions to a model is left out; `mode`: whether it opens sessions of protocols before 2026-07-28
    only."""

    def __init__(
        self,
        name: str,
        open: Open,
        on_end: Callable[[], None] = lambda: None,
        version_min: str = "",
        *,
        is_screened: bool = False,
        mode: ConnectMode = "auto",
    ) -> None:
        self.name = name
        self._version_min = version_min
        self._is_screened = is_screened
        self._open = open
        self._on_end = on_end
        self._owner: asyncio.Task[None] | None = None
        self._client: asyncio.Future[Client] | None = None
        self._unwanted = asyncio.Event()
        self._tools: _Listed | None = None
        self._is_empty_cursor_asked = True  # until the server fails at one
        self._told: frozenset[str] = frozenset()  # functions whose leaving out is in the log
        self._mode: ConnectMode = mode
        self._askers: set[str] = set()  # functions that ask within a session, which this one's protocol has not
        self._older: Connection | None = None  # for these
        self._under_way: Counter[int] = Counter()  # calls, by the id of their client
        self._retired: dict[int, tuple[asyncio.Event, asyncio.Task[None] | None]] = {}
        self._listed = 0.0
        self._listing = asyncio.Lock()
        self._calls = 0
        self._sittings: list[Sitting] = []
        self._used = 0.0

    async def session(self, function: str = "") -> Session:
        """The session with the server, and the functions that it offers there: listed anew where an earlier listing has
        not the `function` that is wanted. Raises StepError `mcp.unavailable`."""
        since = time.monotonic()
        try:
            return await self._list_tools(await self.client(), function, since)
        except _SessionGone:
            pass  # it is opened anew, once
        try:
            return await self._list_tools(await self.client(), function, since)
        except _SessionGone:
            raise self._unavailable("forgets each session at once") from None

    async def _list_tools(self, client: Client, function: str, since: float) -> Session:
        async with self._listing:
            age = time.monotonic() - self._listed
            is_missing = function and self._tools is not None and not self._tools.has(function)
            if self._tools is None or age > _RELOOK_SECONDS or (is_missing and self._listed < since):
                try:
                    async with asyncio.timeout(START_SECONDS):
                        self._tools = await self._list(client)
                except TimeoutError:
                    self.drop()
                    raise self._unavailable(f"said nothing for {START_SECONDS:g} s") from None
                except (MCPError, ValidationError) as error:
                    if _is_gone(error):
                        self._retire(client)
                        raise _SessionGone from None
                    self.drop()
                    raise self._unavailable(f"does not say what it offers: {_first_line(error)}", error) from None
                self._listed = time.monotonic()
            return Session(client, self._tools.tools, self._tools.left_out)

    async def call(
        self,
        session: Session,
        function: str,
        arguments: dict[str, Json],
        progress: ProgressFnT,
        *,
        repeatable: bool,
        responses: dict[str, Any] | None = None,
        state: str | None = None,
        sitting: Sitting,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """The server's answer to a call. `repeatable`: to perform it twice does no harm.

        Raises StepError: `mcp.unavailable` where nothing has happened (or it is `repeatable`), `tool.failed` where the
        server refuses it, `tool.invalid_result` for an answer that can't be read; OutcomeLost where it is unknown
        whether the call was performed. Raises AsksPerson where it asks within the session."""
        more = {"progress": progress, "repeatable": repeatable}
        has_asked = sitting.has_settled and _is_modern(session.client)  # by another connection, which has ended since
        if not has_asked and function not in self._askers:
            with contextlib.suppress(_AsksInSession):
                answer = {"responses": responses, "state": state, "sitting": sitting}
                return await self._call_once(session, function, arguments=arguments, **more, **answer)
            self._askers.add(function)
        return await self._call_in_older(session, function, arguments=arguments, **more, sitting=sitting.anew())

    async def _call_once(
        self, session: Session, function: str, **more: Any
    ) -> types.CallToolResult | types.InputRequiredResult:
        """The answer to a call, made again where its session is gone: then it was not performed."""
        send = partial(self._call, function=function, **more)
        try:
            return await send(session.client)
        except _SessionGone:
            self._retire(session.client)
        again = await self.session()
        if again.tools.get(function) != session.tools[function]:
            raise self._unavailable(f"has forgotten the session, and describes {function} otherwise now")
        try:
            return await send(again.client)
        except _SessionGone as error:
            self._retire(again.client)
            raise self._unavailable(f"forgets each session at once: {error}") from None

    async def _call_in_older(
        self, session: Session, function: str, **more: Any
    ) -> types.CallToolResult | types.InputRequiredResult:
        """The answer to a call of a function that asks within a session, by a connection of an older protocol."""
        if self._older is None:
            self._older = Connection(
                self.name, self._open, version_min=self._version_min, is_screened=self._is_screened, mode="legacy"
            )
        self._calls += 1
        try:
            if self._older._listed < self._listed:  # the server may have begun anew in between
                self._older.forget_tools()
            older = await self._older.session()
            if older.tools.get(function) != session.tools[function]:
                raise self._unavailable(f"describes {function} otherwise in the older protocol in which it asks")
            return await self._older.call(older, function, **more)
        finally:
            self._calls -= 1
            self._used = time.monotonic()
            self._leave_older()

    def _leave_older(self) -> None:
        """The connection of the older protocol ends with this one, behind its last call."""
        if self._older is not None and not self._calls and not self._lives:
            self._older.drop()

    async def _call(
        self,
        client: Client,
        *,
        function: str,
        arguments: dict[str, Json],
        progress: ProgressFnT,
        repeatable: bool,
        responses: dict[str, Any] | None,
        state: str | None,
        sitting: Sitting,
    ) -> types.CallToolResult | types.InputRequiredResult:
        if not self._is_open(client):
            raise _SessionGone
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(
                name=function, arguments=arguments, input_responses=responses, request_state=state
            )
        )
        self._calls += 1
        self._under_way[id(client)] += 1
        self._sittings.append(sitting)
        try:
            sending = client.session.send_request(request, _RESULT, progress_callback=progress)
            result = self._judge(await self._raise_if_asked(sending, sitting, repeatable), repeatable)
            if isinstance(result, types.CallToolResult) and result.is_error:
                _raise_if_asks_in_session(client, text_of(result.content))
            return result
        except MCPError as error:
            _raise_if_asks_in_session(client, error.error.message)
            if _is_gone(error):
                said = error.error.message[:SAID_CHARS_MAX]
                if sitting.receipt.is_begun and not repeatable:
                    raise self._loss_error(f"it began the call, then lost the session: {said}", repeatable) from None
                raise _SessionGone(said) from None
            if error.code == types.INVALID_PARAMS and state is not None:  # most often it is too old for the server
                message = f"{self.name} does not take the answer: {error.message[:1000]}"
                raise StepError(message, retriable=True) from None
            raise self._call_error(error, repeatable, client) from None
        except ValidationError:
            raise self._no_answer(sitting.result or {}) from None
        finally:
            self._sittings.remove(sitting)
            self._calls -= 1
            self._end_call(client)
            self._used = time.monotonic()

    async def _raise_if_asked(
        self, sending: Coroutine[Any, Any, Answered], sitting: Sitting, repeatable: bool
    ) -> Answered:
        """The server's answer to a call. Raises AsksPerson where the server asked a question within it: the call is
        cancelled, and then the question, so that the server does nothing behind it. OutcomeLost where the server gives
        a result all the same: it may have done what it asked about."""
        token = CALLER.set(sitting)  # the task has a copy of it
        call, question = asyncio.create_task(sending), asyncio.create_task(sitting.asked.wait())
        CALLER.reset(token)
        try:
            await asyncio.wait((call, question), return_when=asyncio.FIRST_COMPLETED)
            if sitting.question is None:
                return call.result()
            call.cancel()
            await asyncio.wait((call,), timeout=CANCEL_SECONDS)
            sitting.left.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    await sitting.ended.wait()
            result = sitting.result
            if result is None or says_error(result) or repeatable:
                raise sitting.question
            message = (
                f"{self.name} asked within the call, heard that it is cancelled, and gave a result all the same: "
                f"{_excerpt(result_of(result))}"
            )
            raise OutcomeLost(message)
        finally:
            sitting.left.set()
            call.cancel()
            question.cancel()
            await asyncio.gather(call, question, return_exceptions=True)

    def _judge(self, answered: Answered, repeatable: bool) -> Answered:
        """The answer to a call, read part by part. Raises OutcomeLost for one that is a question and a result, or only
        says that the server goes on."""
        raw = (answered.meta or {}).get(RAW) if isinstance(answered, types.CallToolResult) else None
        if raw is None:
            return answered
        if raw.get("inputRequests") and not repeatable:
            message = f"{self.name} asks a question and gives a result at once: {_excerpt(result_of(raw))}"
            raise OutcomeLost(message)
        if (task := find_task(raw)) is not None:
            raise OutcomeLost(f"{self.name} goes on with the call as its task {task}, though nobody asked for tasks")
        return result_of(raw)

    async def _answer_question(self, params: Any) -> types.ElicitResult | types.ErrorData:
        """The answer to a server that asks within the session. It does not say in which call."""
        if len(self._sittings) == 1:
            sitting = self._sittings[0]
            answer = sitting.answer(params)
            if sitting.question is not None:
                await sitting.left.wait()  # the call is cancelled before its question is
            return answer
        message = f"people can be asked within a session while one call is under way; there are {len(self._sittings)}"
        return types.ErrorData(code=types.INVALID_REQUEST, message=message)

    async def read(self, session: Session, uri: str) -> Sequence[Resource]:
        """The contents of a resource of the server; empty where it has none at this address, or does not answer in
        time."""
        request = types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri=uri))
        self._calls += 1
        self._under_way[id(session.client)] += 1
        try:
            async with asyncio.timeout(READ_SECONDS):
                return (await session.client.session.send_request(request, types.ReadResourceResult)).contents
        except (MCPError, ValidationError, TimeoutError) as error:
            log.info("mcp_link_not_read", server=self.name, error=type(error).__name__)  # not the server's words
            return ()
        finally:
            self._calls -= 1
            self._end_call(session.client)
            self._used = time.monotonic()

    def _retire(self, client: Client) -> None:
        """Let the next request open another connection; this one ends with the last call that is under way in it."""
        if not self._is_open(client):
            return
        if not self._under_way[id(client)]:
            self.drop()
            return
        self._retired[id(client)] = self._unwanted, self._owner
        self._client = self._tools = None

    def _end_call(self, client: Client) -> None:
        self._under_way[id(client)] -= 1
        if not self._under_way[id(client)]:
            del self._under_way[id(client)]
            if (retired := self._retired.pop(id(client), None)) is not None:
                retired[0].set()

    async def client(self) -> Client:
        """The session, opened if need be. Raises StepError `mcp.unavailable`."""
        if self._client is None or not self._lives:
            self._unwanted = asyncio.Event()
            self._client = asyncio.get_running_loop().create_future()
            self._tools, self._used = None, time.monotonic()
            self._owner = asyncio.create_task(self._own(self._client, self._unwanted), name=f"mcp {self.name}")
        return await asyncio.shield(self._client)

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is open: it was never used, or is over."""
        return self._owner is None or self._owner.done()

    @property
    def idle_since(self) -> float | None:
        """When it was used last, by the monotonic clock; None while a call is under way, or it is being opened."""
        opening = self._client is None or not self._client.done()
        return None if self._calls or opening or self._listing.locked() else self._used

    @property
    def _lives(self) -> bool:
        return self._owner is not None and not self._owner.done() and not self._unwanted.is_set()

    def _is_open(self, client: Client) -> bool:
        return self._lives and self._client is not None and self._client.done() and self._client.result() is client

    def drop(self) -> None:
        """Let the next request open another connection."""
        self._unwanted.set()
        self._tools = None

    async def close(self) -> None:
        """End the connection, and the server's program if it has one."""
        self.drop()
        if self._older is not None:
            await self._older.close()
        for unwanted, _ in self._retired.values():
            unwanted.set()
        owners = [each for each in (self._owner, *(owner for _, owner in self._retired.values())) if each is not None]
        if owners:
            await asyncio.wait(owners, timeout=_CLOSE_SECONDS)
            for owner in owners:
                owner.cancel()
            await asyncio.wait(owners, timeout=_CLOSE_SECONDS)

    async def _list(self, client: Client) -> _Listed:
        listed = _Listed({}, {}, self._is_screened)
        cursor: str | None = None
        cursors: set[str] = set()
        bytes_left, pages_without_new = TOOLS_BYTES_MAX, 0
        while True:
            params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
            is_doubted = cursor == ""  # some servers mean no cursor by an empty one
            try:
                async with asyncio.timeout(START_SECONDS / 4 if is_doubted else None):
                    page = await client.session.list_tools(params=params)
            except (MCPError, ValidationError, TimeoutError) as error:
                if not is_doubted:
                    raise
                self._is_empty_cursor_asked = False
                if getattr(error, "code", None) == types.CONNECTION_CLOSED:
                    self._retire(client)
                    raise _SessionGone from None
                break
            raw = (page.meta or {}).get(RAW, ())
            if is_doubted:
                raw = [each for each in raw if not listed.has(_escape_name(each))]
            bytes_left -= len(json.dumps(raw, default=str))
            if bytes_left < 0:
                raise self._unavailable(f"says more than {TOOLS_BYTES_MAX} bytes of its functions")
            # Compiling what a stranger wrote may take long, and others are served meanwhile.
            size = len(listed)
            await asyncio.to_thread(listed.add, raw, {tool.name for tool in page.tools})
            pages_without_new = 0 if len(listed) > size else pages_without_new + 1
            if len(listed.tools) > TOOLS_MAX:
                raise self._unavailable(f"offers more than {TOOLS_MAX} functions")
            cursor = page.next_cursor
            # Some servers give the same cursor again without an end, or begin anew under others.
            is_end = cursor is None or (cursor == "" and not self._is_empty_cursor_asked)
            if is_end or cursor in cursors or pages_without_new == BARREN_PAGES_MAX:
                break
            cursors.add(cursor)
        self._tell_left_out(listed.left_out)
        return listed

    def _tell_left_out(self, left_out: Mapping[str, str]) -> None:
        """Write into the log which functions are left out: each once, and not whenever they are listed."""
        for name in left_out.keys() - self._told:
            log.warning("mcp_function_left_out", server=self.name, name=name, reason=left_out[name])
        self._told = frozenset(left_out)

    async def _own(self, opened: asyncio.Future[Client], unwanted: asyncio.Event) -> None:
        over = asyncio.Event()
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(START_SECONDS):
                    opening = self._open(over, self.forget_tools, self._answer_question, self._mode)
                    client = await stack.enter_async_context(opening)
                self._demand_version(client.session.protocol_version or "")
                if not opened.done():
                    opened.set_result(client)
                await self._wait_unused(over, unwanted)
        except BaseException as error:
            if opened.done():
                log.info("mcp_connection_ended", server=self.name, error=_error_text(error))
            elif isinstance(error, asyncio.CancelledError):
                opened.cancel()
            else:
                opened.set_exception(self._opening_error(error))
                opened.exception()  # retrieved here: the caller may be gone
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            unwanted.set()
            if self._client is opened:  # else another one was opened meanwhile
                self._tools = self._client = None
                self._leave_older()
                self._on_end()

    async def _wait_unused(self, over: asyncio.Event, unwanted: asyncio.Event) -> None:
        """Wait until the connection is closed, by either side, or has been idle for `IDLE_SECONDS`."""
        ends = [asyncio.create_task(each.wait()) for each in (over, unwanted)]
        try:
            while not any(each.done() for each in ends):
                await asyncio.wait(ends, timeout=IDLE_SECONDS / 10, return_when=asyncio.FIRST_COMPLETED)
                if not self._calls and time.monotonic() - self._used > IDLE_SECONDS:
                    return
        finally:
            for each in ends:
                each.cancel()

    def forget_tools(self) -> None:
        """Ask the server for its functions anew, when they are wanted next."""
        self._tools = None

    def _demand_version(self, version: str) -> None:
        """Raises StepError for a version that the deployment does not take: versions are dates."""
        if version < self._version_min:
            message = (
                f"it speaks MCP {version or 'of no version'}, and this deployment takes none below {self._version_min}"
            )
            raise StepError(f"{message} (HAI_FLOW_MCP_VERSION_MIN)", code="mcp.unavailable", retriable=False)

    def _opening_error(self, error: BaseException) -> StepError:
        error = _find_innermost(error)
        if isinstance(error, StepError):
            cause = error
            return StepError(
                f"{self.name}: {cause.message}", code=cause.code, retriable=cause.retriable, data=cause.data
            )
        if isinstance(error, TimeoutError):
            return self._unavailable(f"said nothing for {START_SECONDS:g} s")
        if isinstance(error, MCPError) and _is_closed(error):
            return self._unavailable("ended before it answered; the log has what a program said last, mcp_server_ended")
        if isinstance(error, MCPError):
            return self._unavailable(f"refuses to begin: {_first_line(error)}", error)
        if isinstance(error, RuntimeError) and (unknown := _UNKNOWN_VERSION.search(str(error))) is not None:
            known = ", ".join(SUPPORTED_PROTOCOL_VERSIONS)
            message = f"{self.name} speaks MCP {unknown[1][:100]}, and the versions that are spoken here are {known}"
            return StepError(message, code="mcp.unavailable", retriable=False)
        return self._unavailable(f"could not be opened: {_error_text(error)}")

    def _call_error(self, error: MCPError, repeatable: bool, client: Client | None = None) -> StepError:
        data = error.error.data
        fault = data.get(FAULT) if isinstance(data, dict) else None
        if isinstance(fault, dict):
            return self._faulty(fault, repeatable)
        if _is_closed(error):
            if client is None or self._is_open(client):
                self.drop()
            return self._loss_error("the connection ended before it answered", repeatable)
        if error.code == types.CONNECTION_CLOSED and error.message.startswith(_STREAM_ENDED):
            return self._loss_error("its stream ended without an answer", repeatable)
        if error.code == types.INTERNAL_ERROR and error.message == "Server returned an error response":  # 401, 403
            message = f"{self.name} takes no token that `oauth` gets"
            return StepError(message, code=UNAUTHORIZED, retriable=False)
        code = "tool.invalid_arguments" if error.code == types.INVALID_PARAMS else "tool.failed"
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
        more = "" if data is None else f" ({cut(text)[:500]})"
        return StepError(f"{self.name} refuses the call: {error.message[:1000]}{more}", code=code, retriable=False)

    def _faulty(self, fault: Mapping[str, Any], repeatable: bool) -> StepError:
        text = str(fault["message"])
        if fault["final"]:
            data = None if fault["text"] is None else {"text": cut(fault["text"])}
            return StepError(f"{self.name}: {text}", code=fault["code"], retriable=False, data=data)
        if fault["reached"]:
            had_said = f"; it had said: {cut(fault['text'])}" if fault["text"] else ""
            return self._loss_error(f"{text}{had_said}", repeatable)
        code_there = fault["code"]
        retriable = code_there in ("mcp.unavailable", "http.connection")
        code = "mcp.unavailable" if retriable else code_there
        return StepError(f"{self.name}: {text}", code=code, retriable=retriable, retry_after=fault["after"])

    def _no_answer(self, raw: Mapping[str, Any]) -> StepError:
        """The error for an answer that is neither a result nor a question that can be asked."""
        if only_asks(raw):
            fault = find_question_fault(raw) or "a question in it is none of the protocol"
            message = f"{self.name} asks for input in a way that can't be read: {fault}"
        else:
            message = f"{self.name} answers with what is no result"
        data = {"text": cut(json.dumps(raw, ensure_ascii=False, default=str))}
        return StepError(message, code="tool.invalid_result", retriable=False, data=data)

    def _loss_error(self, why: str, repeatable: bool) -> StepError:
        if repeatable:
            return self._unavailable(f"did not answer: {why}")
        return OutcomeLost(f"{self.name} did not answer: {why}.")

    def _unavailable(self, why: str, cause: BaseException | None = None) -> StepError:
        if isinstance(cause, MCPError) and (_is_ours(cause) or cause.code == types.INTERNAL_ERROR):
            fault = self._call_error(cause, repeatable=True)
            if fault.code != "tool.invalid_result":
                return fault
            # Nothing was called yet: a proxy's page, say, which may be gone a little later.
            return StepError(f"{self.name} {why}", code="mcp.unavailable", retriable=True, data=fault.data)
        return StepError(f"{self.name} {why}", code="mcp.unavailable", retriable=True)


def connect_over_stdio(command: tuple[str, ...], env: Mapping[str, str], bytes_max: int) -> Open:
    """A server that is a program."""

    def open(
        over: asyncio.Event, changed: Callable[[], None], asked: Asked, mode: ConnectMode
    ) -> AbstractAsyncContextManager[Client]:
        return _client(program(command, env, bytes_max, over), changed, asked, mode)

    return open


def over_http(
    url: str, guard: EgressGuard, config: HttpConfig, headers: Mapping[str, str], auth: Callable[[], Any] | None
) -> Open:
    """A server at an address. `auth` makes the object that adds a token to its requests."""

    @asynccontextmanager
    async def open(over: asyncio.Event, changed: Callable[[], None], asked: Asked, mode: ConnectMode) -> Any:
        async with make_client(guard, config, headers, None if auth is None else auth()) as http:
            streams = streamable_http_client(url, http_client=http, max_sse_event_size=config.bytes_max)
            async with _client(streams, changed, asked, mode) as client:
                yield client

    return open


def _client(streams: Any, changed: Callable[[], None], asked: Asked, mode: ConnectMode) -> Client:
    async def answered(context: ClientRequestContext, params: Any) -> types.ElicitResult | types.ErrorData:
        return await asked(params)

    async def heard(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed()

    return Client(tap(streams), cache=None, mode=mode, message_handler=heard, elicitation_callback=answered)


@dataclass(slots=True)
class _Listed:
    """The functions of a server by their names, and those that can't be used: why."""

    tools: dict[str, types.Tool]
    left_out: dict[str, str]
    is_screened: bool

    def __len__(self) -> int:
        return len(self.tools) + len(self.left_out)

    def has(self, name: str) -> bool:
        return name in self.tools or name in self.left_out

    def add(self, page: Sequence[Any], taken: Collection[str]) -> None:
        """Add a page of descriptions. `taken`: the names that the SDK has not refused."""
        for raw in page:
            name = _escape_name(raw)
            tool = read_tool(raw)
            if isinstance(tool, str):
                self.left_out[name] = tool
            elif self.is_screened and (signs := list_signs(json.dumps(raw, ensure_ascii=False).replace("\\n", "\n"))):
                self.tools.pop(tool.name, None)
                self.left_out[name] = f"its description has {signs[0]}; a catalogue that trusts the server offers it"
            elif tool.name not in taken:
                self.left_out[name] = "its schema names headers that can't be sent"
            elif tool.name in self.left_out or self.tools.get(tool.name, tool) != tool:
                self.tools.pop(tool.name, None)
                self.left_out[name] = "the server has two functions of this name"
            else:
                self.tools[tool.name] = tool


def _escape_name(raw: Any) -> str:
    name = raw.get("name") if isinstance(raw, dict) else raw
    return name if isinstance(name, str) and NAME.fullmatch(name) else repr(name)[:200]


def _excerpt(result: types.CallToolResult) -> str:
    text = text_of(result.content) or json.dumps(result.structured_content, default=str)
    return text if len(text) <= SAID_CHARS_MAX else f"{text[:SAID_CHARS_MAX]}…"


def _is_gone(error: Exception) -> bool:
    """Whether the server says that it does not know the session."""
    if not isinstance(error, MCPError):
        return False
    data = error.error.data
    fault = data.get(FAULT) if isinstance(data, dict) else None
    if isinstance(fault, dict):
        return fault["code"] == SESSION_GONE
    return _SESSION_GONE.fullmatch(error.message.strip()) is not None


def _is_modern(client: Client) -> bool:
    return client.session.protocol_version in MODERN_PROTOCOL_VERSIONS


def _raise_if_asks_in_session(client: Client, text: str) -> None:
    if _is_modern(client) and _ASKS_IN_SESSION.fullmatch(text.strip()):
        raise _AsksInSession(text)


def _is_ours(error: MCPError) -> bool:
    return isinstance(error.error.data, dict) and FAULT in error.error.data


def _find_innermost(error: BaseException) -> BaseException:
    """The first exception inside of nested groups: the SDK's transports wrap every exception in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _is_closed(error: MCPError) -> bool:
    """Whether it is the SDK's error for a connection that has ended."""
    return error.code == types.CONNECTION_CLOSED and error.message == _CLOSED


def _error_text(error: BaseException) -> str:
    error = _find_innermost(error)
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:500]
