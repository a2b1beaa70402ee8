"""The connections of this process to servers of the Model Context Protocol: one for each, with a task that owns it.

The SDK's contexts must be left by the task that entered them. So the owner enters, waits until the connection is not
wanted any more or is over, and leaves; the tasks of attempts only send requests. A connection that has failed is
forgotten, and the next request opens another one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import mcp_types as types
import structlog
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from hai_flow.errors import OutcomeLost, StepError
from hai_flow.steps.guard import Guard
from hai_flow.steps.http_transport import HttpConfig
from hai_flow.steps.mcp_asking import Sitting
from hai_flow.steps.mcp_http import UNAUTHORIZED, client_for
from hai_flow.steps.mcp_messages import FAULT
from hai_flow.steps.mcp_results import Resource
from hai_flow.steps.mcp_stdio import program
from hai_flow.values import Json

log = structlog.get_logger(__name__)

Asked = Callable[[Any], types.ElicitResult | types.ErrorData]
Open = Callable[[asyncio.Event, Callable[[], None], Asked], AbstractAsyncContextManager[Client]]
"""Opens a session. The event is set when it is over; the functions are called when the server's functions change, and
when it asks within the session."""

START_SECONDS: Final = 20.0  # to connect, to agree on a protocol, and to list the functions
CANCEL_SECONDS: Final = 5.0  # for a call to end whose question was cancelled
READ_SECONDS: Final = 20.0  # to read the resource behind a link
IDLE_SECONDS: Final = 600.0
TOOLS_MAX: Final = 1000
TOOLS_BYTES_MAX: Final = 16 * 1024 * 1024  # of all that a server says of its functions
_CLOSE_SECONDS: Final = 10.0
_RELOOK_SECONDS: Final = 60.0
_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")  # the names that a workflow can write behind `call:`
"""After which the functions of a server are listed again: not every server tells of changes."""
Answered: TypeAlias = types.CallToolResult | types.InputRequiredResult
_RESULT: Final[TypeAdapter[Answered]] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)


@dataclass(frozen=True, slots=True)
class Session:
    """A session with a server, and its functions by name, as it has listed them in this very session."""

    client: Client
    tools: Mapping[str, types.Tool]


class Connection:
    """The connection to one server. `name` is the server's name in errors; `on_end` is called when it has ended."""

    def __init__(self, name: str, open: Open, on_end: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self._open = open
        self._on_end = on_end
        self._owner: asyncio.Task[None] | None = None
        self._client: asyncio.Future[Client] | None = None
        self._unwanted = asyncio.Event()
        self._tools: dict[str, types.Tool] | None = None
        self._listed = 0.0
        self._listing = asyncio.Lock()
        self._calls = 0
        self._sittings: list[Sitting] = []
        self._used = 0.0

    async def session(self) -> Session:
        """The session with the server, and the functions that it offers there. Raises StepError `mcp.unavailable`."""
        client = await self.client()
        async with self._listing:
            if self._tools is None or time.monotonic() - self._listed > _RELOOK_SECONDS:
                try:
                    async with asyncio.timeout(START_SECONDS):
                        self._tools = await self._list(client)
                except TimeoutError:
                    self.drop()
                    raise self._unavailable(f"said nothing for {START_SECONDS:g} s") from None
                except (MCPError, ValidationError) as error:
                    self.drop()
                    raise self._unavailable(f"does not say what it offers: {_first_line(error)}", error) from None
                self._listed = time.monotonic()
            return Session(client, self._tools)

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
        whether the call was performed. Raises AsksPerson where it asks within the session.
        """
        if not self._is_open(session.client):
            raise self._unavailable("has just ended the connection")
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(
                name=function, arguments=arguments, input_responses=responses, request_state=state
            )
        )
        self._calls += 1
        self._sittings.append(sitting)
        try:
            sending = session.client.session.send_request(request, _RESULT, progress_callback=progress)
            return await _unless_asked(sending, sitting)
        except MCPError as error:
            if error.code == types.INVALID_PARAMS and state is not None:  # most often it is too old for the server
                message = f"{self.name} does not take the answer: {error.message[:1000]}"
                raise StepError(message, retriable=True) from None
            raise self._failed(error, repeatable) from None
        except ValidationError as error:
            message = f"{self.name} answers with what is no result: {_first_line(error)}"
            raise StepError(message, code="tool.invalid_result", retriable=False) from None
        finally:
            self._sittings.remove(sitting)
            self._calls -= 1
            self._used = time.monotonic()

    def _asked(self, params: Any) -> types.ElicitResult | types.ErrorData:
        """The answer to a server that asks within the session. It does not say in which call."""
        if len(self._sittings) == 1:
            return self._sittings[0].answer(params)
        message = f"people can be asked within a session while one call is under way; there are {len(self._sittings)}"
        return types.ErrorData(code=types.INVALID_REQUEST, message=message)

    async def read(self, session: Session, uri: str) -> Sequence[Resource]:
        """The contents of a resource of the server; empty where it has none at this address, or does not answer in
        time."""
        request = types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri=uri))
        self._calls += 1
        try:
            async with asyncio.timeout(READ_SECONDS):
                return (await session.client.session.send_request(request, types.ReadResourceResult)).contents
        except (MCPError, ValidationError, TimeoutError) as error:
            log.info("mcp_link_not_read", server=self.name, error=_said(error))
            return ()
        finally:
            self._calls -= 1
            self._used = time.monotonic()

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
        owner = self._owner
        if owner is not None:
            await asyncio.wait([owner], timeout=_CLOSE_SECONDS)
            owner.cancel()
            await asyncio.wait([owner], timeout=_CLOSE_SECONDS)

    async def _list(self, client: Client) -> dict[str, types.Tool]:
        found: dict[str, types.Tool] = {}
        cursor: str | None = None
        left = TOOLS_BYTES_MAX
        while True:
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            page = await client.session.list_tools(params=params)
            for tool in page.tools:
                if not _NAME.fullmatch(tool.name):
                    log.warning("mcp_function_left_out", name=repr(tool.name)[:200])
                    continue
                if tool.name in found:
                    raise self._unavailable(f"has two functions called {tool.name!r}")
                found[tool.name] = tool
            left -= len(page.model_dump_json())
            if left < 0:
                raise self._unavailable(f"says more than {TOOLS_BYTES_MAX} bytes of its functions")
            cursor = page.next_cursor
            if not cursor:
                return found
            if len(found) > TOOLS_MAX:
                raise self._unavailable(f"offers more than {TOOLS_MAX} functions")

    async def _own(self, opened: asyncio.Future[Client], unwanted: asyncio.Event) -> None:
        over = asyncio.Event()
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(START_SECONDS):
                    client = await stack.enter_async_context(self._open(over, self._changed, self._asked))
                if not opened.done():
                    opened.set_result(client)
                await self._wanted(over, unwanted)
        except BaseException as error:
            if opened.done():
                log.info("mcp_connection_ended", server=self.name, error=_said(error))
            elif isinstance(error, asyncio.CancelledError):
                opened.cancel()
            else:
                opened.set_exception(self._not_opened(error))
                opened.exception()  # retrieved here: the caller may be gone
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            unwanted.set()
            if self._client is opened:  # else another one was opened meanwhile
                self._tools = self._client = None
                self._on_end()

    async def _wanted(self, over: asyncio.Event, unwanted: asyncio.Event) -> None:
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

    def _changed(self) -> None:
        self._tools = None

    def _not_opened(self, error: BaseException) -> StepError:
        error = _innermost(error)
        if isinstance(error, StepError):
            known = error
            return StepError(
                f"{self.name}: {known.message}", code=known.code, retriable=known.retriable, data=known.data
            )
        if isinstance(error, TimeoutError):
            return self._unavailable(f"said nothing for {START_SECONDS:g} s")
        if isinstance(error, MCPError):
            return self._unavailable(f"refuses to begin: {_first_line(error)}", error)
        return self._unavailable(f"could not be opened: {_said(error)}")

    def _failed(self, error: MCPError, repeatable: bool) -> StepError:
        data = error.error.data
        fault = data.get(FAULT) if isinstance(data, dict) else None
        if isinstance(fault, dict):
            return self._faulty(fault, repeatable)
        if error.code == types.CONNECTION_CLOSED:
            self.drop()
            return self._lost("the connection ended before it answered", repeatable)
        if error.code == types.INVALID_REQUEST and error.message == "Session terminated":
            self.drop()
            return self._unavailable("has forgotten the session")
        if error.code == types.INTERNAL_ERROR and error.message == "Server returned an error response":  # 401, 403
            message = f"{self.name} takes no token that `oauth` gets"
            return StepError(message, code=UNAUTHORIZED, retriable=False)
        code = "tool.invalid_arguments" if error.code == types.INVALID_PARAMS else "tool.failed"
        return StepError(f"{self.name} refuses the call: {error.message[:1000]}", code=code, retriable=False)

    def _faulty(self, fault: Mapping[str, Any], repeatable: bool) -> StepError:
        said = str(fault["message"])
        if fault["final"]:
            return StepError(f"{self.name}: {said}", code=fault["code"], retriable=False)
        if fault["reached"]:
            return self._lost(said, repeatable)
        known = fault["code"]
        retriable = known in ("mcp.unavailable", "http.connection")
        code = "mcp.unavailable" if retriable else known
        return StepError(f"{self.name}: {said}", code=code, retriable=retriable, retry_after=fault["after"])

    def _lost(self, why: str, repeatable: bool) -> StepError:
        if repeatable:
            return self._unavailable(f"did not answer: {why}")
        return OutcomeLost(f"{self.name} did not answer: {why}.")

    def _unavailable(self, why: str, cause: BaseException | None = None) -> StepError:
        if isinstance(cause, MCPError) and (_is_ours(cause) or cause.code == types.INTERNAL_ERROR):
            return self._failed(cause, repeatable=True)
        return StepError(f"{self.name} {why}", code="mcp.unavailable", retriable=True)


def over_stdio(command: tuple[str, ...], env: Mapping[str, str], bytes_max: int) -> Open:
    """A server that is a program."""

    def open(over: asyncio.Event, changed: Callable[[], None], asked: Asked) -> AbstractAsyncContextManager[Client]:
        return _client(program(command, env, bytes_max, over), changed, asked)

    return open


def over_http(
    url: str, guard: Guard, config: HttpConfig, headers: Mapping[str, str], auth: Callable[[], Any] | None
) -> Open:
    """A server at an address. `auth` makes the object that adds a token to its requests."""

    @asynccontextmanager
    async def open(over: asyncio.Event, changed: Callable[[], None], asked: Asked) -> Any:
        async with client_for(guard, config, headers, None if auth is None else auth()) as http:
            streams = streamable_http_client(url, http_client=http, max_sse_event_size=config.bytes_max)
            async with _client(streams, changed, asked) as client:
                yield client

    return open


def _client(streams: Any, changed: Callable[[], None], asked: Asked) -> Client:
    async def answered(context: ClientRequestContext, params: Any) -> types.ElicitResult | types.ErrorData:
        return asked(params)

    async def heard(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed()

    return Client(streams, cache=None, message_handler=heard, elicitation_callback=answered)


async def _unless_asked(sending: Coroutine[Any, Any, Answered], sitting: Sitting) -> Answered:
    """The server's answer to a call. Raises AsksPerson where the server asked a question within it: the question has
    been answered by `cancel`, and the call gets `CANCEL_SECONDS` to end."""
    call, asked = asyncio.create_task(sending), asyncio.create_task(sitting.asked.wait())
    try:
        await asyncio.wait((call, asked), return_when=asyncio.FIRST_COMPLETED)
        if asked.done() and not call.done():
            await asyncio.wait((call,), timeout=CANCEL_SECONDS)
        if sitting.question is not None:
            raise sitting.question
        return call.result()
    finally:
        call.cancel()
        asked.cancel()
        await asyncio.gather(call, asked, return_exceptions=True)


def _is_ours(error: MCPError) -> bool:
    return isinstance(error.error.data, dict) and FAULT in error.error.data


def _innermost(error: BaseException) -> BaseException:
    """The first exception inside of nested groups: the SDK's transports wrap every exception in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _said(error: BaseException) -> str:
    error = _innermost(error)
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:500]
