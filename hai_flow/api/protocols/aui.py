"""AUI: `/api/aui/ws/{stream_type}` pushes a session's events and takes inputs; `POST /api/aui/input` takes them too.

A session is a thread, a stream type is the name of a workflow. The protocol's own types `interactive` and `interrupt`
mean the workflow of the session's last run, else the server's default. An input is a command of the run: it is
committed before it is acknowledged, and the process that holds the run goes on with it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final
from uuid import UUID, uuid4

import structlog
from fastapi import WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS
from hai_flow.api.http.bodies import Body, limits_of, load_json
from hai_flow.api.http.stream import log_broken_off
from hai_flow.api.permissions.credential_expiry import REVOKED, StreamLease
from hai_flow.api.permissions.principals import open_to_everybody, requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.permissions.visibility import Sight
from hai_flow.api.protocols.aui_session import AuiSession, Object, invalid, read_id, text_in
from hai_flow.api.protocols.openapi_streams import ANY_OBJECT
from hai_flow.api.protocols.stream_pieces import list_earlier_entries
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.profiles import read_by
from hai_flow.api.requests.run_visibility import thread_unknown
from hai_flow.api.routes import Routes
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from hai_flow.store.runs import threads
from hai_flow.store.runs.threads import Position
from hai_flow.values import Json
from hai_flow.wire.dialects import aui
from hai_flow.wire.dialects.aui import AUI, AuiEncoder
from hai_flow.wire.dialects.dialect import Frame

log = structlog.get_logger(__name__)
router = Routes(prefix="/api/aui", tags=["dialects"])

PARAMS_SECONDS: Final = 0.1  # how long a client's first frame is waited for
ANY_WORKFLOW: Final = frozenset({"interactive", "interrupt"})
CLOSE_NORMAL, CLOSE_ERROR, CLOSE_STREAM_TYPE, CLOSE_EXPIRED = 1000, 1011, 4000, 4401
CLOSE_GONE: Final = 1006  # never sent: stands for a connection that ended without a close


_PONG: Final = {"description": "it is", "content": ANY_OBJECT}
_TAKEN: Final = {"description": "it is committed", "content": ANY_OBJECT}


class InputBody(Body):
    """An action of the client: the answer to an interrupt, or (`payload.message`) the user's next message."""

    session_id: str = Field(min_length=1, max_length=200, pattern=NO_CONTROL_CHARACTERS)
    action: str | None = Field(default=None, max_length=200)
    label: str | None = Field(default=None, max_length=200)
    payload: dict[str, Any] | None = None
    interrupt_id: str | None = Field(default=None, max_length=200)


@router.get("/ping", name="ping_aui", dependencies=[open_to_everybody()], answer=_PONG)
@router.get("/ws/ping", name="ping_aui_stream", dependencies=[open_to_everybody()], answer=_PONG)
async def ping() -> Response:
    """The server is there."""
    return JSONResponse({"status": "ok"})


@router.post("/input", Right.SPEAK, Right.ANSWER, answer=_TAKEN, refusals=(404, 409, 410))
async def post_input(body: InputBody, access: CurrentAccess) -> Response:
    """An input without a socket: any client of the session may post one. The response comes when it is committed."""
    receipt = await AuiSession(await access.find_at_thread(body.session_id), body.session_id, None).take(dict(body))
    return JSONResponse({"accepted": True, **receipt})


@router.websocket("/ws/{stream_type}", dependencies=[requires(Right.SEE_OWN)])
async def stream(socket: WebSocket, stream_type: str, access: CurrentAccess) -> None:
    """A session's events as they are committed, and its inputs."""
    try:
        await _accept(socket)
        await _serve(_AuiConnection(socket, access), stream_type)
    except (WebSocketDisconnect, _AuiStalled):
        log.info("follower_gone", path=socket.url.path)


async def _accept(socket: WebSocket) -> None:
    """Raises WebSocketDisconnect if the client has left already. uvicorn raises an OSError then, which would be taken
    for a database that can't be reached."""
    try:
        await socket.accept()
    except OSError:
        raise WebSocketDisconnect(CLOSE_GONE) from None


async def _serve(connection: _AuiConnection, stream_type: str) -> None:
    place = connection.access.place
    try:
        await connection.access.take_place(follows=True)
    except Rejected as rejected:
        await connection.refuse(rejected, CLOSE_ERROR)
        return
    try:
        await connection.run(stream_type)
    finally:
        place.leave()


class _AuiStalled(Exception):
    """The client has taken nothing for too long."""


class _AuiConnection:
    """One socket: events down, inputs up."""

    def __init__(self, socket: WebSocket, access: Access) -> None:
        self._socket = socket
        self.access = access
        self._limits = limits_of(access.settings)
        self._term = StreamLease()
        self._sending = asyncio.Lock()
        self._taking = asyncio.Lock()  # an input that is taken is acknowledged before the stream ends
        self._first: str | bytes | None = None  # a frame that was read while parameters were waited for

    async def run(self, stream_type: str) -> None:
        """Serve the socket until its session's run has ended, its client goes, their credential ends, or the server
        closes."""
        self._term = self.access.terms.begin(self.access.principal)
        try:
            await self._serve(stream_type)
        finally:
            self._term.leave()

    async def _serve(self, stream_type: str) -> None:
        workflow = None if stream_type in ANY_WORKFLOW else stream_type
        try:
            if workflow is not None:
                await self.access.catalog.resolve(self.access.tenant, workflow)
            params: Object | None = await self._params()
            while params is not None:
                id = self._session_id(params)
                session = AuiSession(await self.access.find_at_thread(id), id, workflow)
                await self._tell("aui_stream_start", session_id=session.id)
                params = await self._serve_both_ways(session, params)
        except Rejected as rejected:
            wrong_type = rejected.code == "workflow_unknown"
            code = "INVALID_STREAM_TYPE" if wrong_type else rejected.code
            await self.refuse(rejected, CLOSE_STREAM_TYPE if wrong_type else CLOSE_ERROR, code)

    async def _serve_both_ways(self, session: AuiSession, params: Object) -> Object | None:
        """Serve both directions until one of them ends. Returns the parameters with which the client begins anew, if it
        does."""
        down = asyncio.ensure_future(self._down(session, params))
        up = asyncio.ensure_future(self._up(session))
        closing = asyncio.ensure_future(self.access.runtime.fanout.closing.wait())
        over = asyncio.ensure_future(self._term.over())
        try:
            await asyncio.wait({down, up, closing, over}, return_when=asyncio.FIRST_COMPLETED)
            if over.done():
                await self._break_off(*over.result(), close=CLOSE_EXPIRED)
            elif up.done():
                if (anew := up.result()) is not None:
                    return anew
                await self._close(CLOSE_NORMAL)
            elif down.done():
                down.result()
                async with self._taking:
                    await self._tell("aui_stream_end", session_id=session.id)
                await self._close(CLOSE_NORMAL)
            else:
                await self._break_off("server_closing", "The server is closing; reconnect to go on.")
        except (WebSocketDisconnect, _AuiStalled):
            raise
        except Exception as error:
            log_broken_off(error)
            await self._break_off("stream_failed", "The stream broke off; reconnect to go on.")
        finally:
            for task in (down, up, closing, over):
                task.cancel()
            await asyncio.gather(down, up, closing, over, return_exceptions=True)
        return None

    # --- down -----------------------------------------------------------------------------------------------------

    async def _down(self, session: AuiSession, params: Object) -> None:
        """Send the session as it is now, and take the message in its parameters, if any. Then send new events, until a
        run of the session ends."""
        place = None
        last = await session.last_run()
        if last is None and await session.is_hidden():
            await asyncio.Event().wait()  # like a session in which nothing ever happens
        state = None if last is None else await self._show(session, last.id)
        if last is not None and state is not None:
            place = Position(last.id, state.seq)
        if text_in(params, "message") is not None or text_in(params, "text") is not None:
            await self._take(session, {"payload": params})
        if state is not None and not state.ended and await self._follow(state):
            return
        while True:
            await self.access.runtime.threads.news(self.access.tenant, session.id, place)
            newest = await threads.last_run(self.access.reads, self.access.tenant, session.id)
            if newest is None:  # the thread was removed meanwhile
                raise thread_unknown(session.id)
            if await self.access.sight(newest) is Sight.NOTHING and place is None:
                await asyncio.Event().wait()  # somebody else has begun it
            if place is not None and newest.id == place.run_id:
                start = await self.access.state(newest.id, place.seq)
            elif newest.branch_of is not None:  # it goes on from an earlier turn, not from the last event sent
                start = await self._show(session, newest.id)
            else:
                start = RunState(str(newest.id))
            if await self._follow(start):
                return
            place = Position(newest.id, (await self.access.state(newest.id)).seq)

    async def _show(self, session: AuiSession, run_id: UUID) -> RunState:
        """Send the session as it is now, up to the newest event of its run `run_id`. Returns that run's state."""
        state = await self.access.state(run_id)
        earlier = await list_earlier_entries(self.access, session.id, run_id)
        reading = read_by(aui.profile(), self.access, run_id, state.requester)
        await self._send(AuiEncoder(reading, state).preface(None, earlier))
        return state

    async def _follow(self, start: RunState) -> bool:
        """Send the events after `start`. Returns whether the run has ended."""
        ended = False
        run_id = UUID(start.run_id)
        started_by = start.requester or (await self.access.run(run_id, Sight.NOTHING)).started_by
        rest = self.access.follow(start, AUI, read_by(aui.profile(), self.access, run_id, started_by))
        async with contextlib.aclosing(rest):
            async for pieces in rest:
                frames = [frame for piece in pieces for frame in piece.frames]
                ended = any(frame.terminal for frame in frames)
                await self._send(frames)
        return ended

    async def _send(self, frames: list[Frame]) -> None:
        for frame in frames:
            await self._write(frame.data)

    async def _tell(self, type: str, **fields: Json) -> None:
        await self._write(aui.event(type, self.access.runtime.committer.now_ms(), uuid4(), **fields))

    async def _write(self, data: bytes) -> None:
        """Raises `_AuiStalled` if the client takes nothing for too long: it comes back and gets snapshots.

        Raises WebSocketDisconnect if the socket is closed already, for example after a malformed frame: the socket
        reports that to the sender as a RuntimeError."""
        try:
            async with self._sending, asyncio.timeout(self.access.settings.follower_stall_seconds):
                await self._socket.send_text(data.decode())
        except TimeoutError:
            raise _AuiStalled from None
        except RuntimeError:
            raise WebSocketDisconnect(CLOSE_GONE) from None

    async def _break_off(self, code: str, message: str, *, close: int = CLOSE_ERROR) -> None:
        await self._tell("aui_error", error_code=code, message=message)
        await self._close(close)

    async def refuse(self, rejected: Rejected, close: int, code: str | None = None) -> None:
        await self._record(rejected)
        await self._tell("aui_error", error_code=code or rejected.code, message=rejected.detail)
        await self._close(close)

    async def _close(self, code: int) -> None:
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await self._socket.close(code)

    # --- up -------------------------------------------------------------------------------------------------------

    async def _params(self) -> Object:
        """The parameters of the client's first frame, if it comes soon and holds some; else those of the URL. Any other
        first frame is kept, and `_up` reads it."""
        parameters: Object = dict(self._socket.query_params)
        try:
            async with asyncio.timeout(PARAMS_SECONDS):
                self._first = await self._receive()
        except TimeoutError:
            return parameters
        try:
            anew = self._parse_params(await self._read(self._first))
        except Rejected:
            return parameters  # `_up` reads it again, and answers with the mistake
        if anew is None:
            return parameters
        self._first = None
        return {**parameters, **anew}

    def _parse_params(self, frame: Object) -> Object | None:
        """The parameters in a frame of that kind; None: the frame is of another kind. Raises Rejected 422."""
        if frame.get("type") != "params":
            return None
        data = frame.get("data")
        if data is not None and not isinstance(data, dict):
            raise invalid("/data", "expected an object")
        self._session_id(data or {})
        return data or {}

    def _session_id(self, params: Object) -> str:
        return read_id(params, "session_id", "/data", self._limits.id_chars_max) or uuid4().hex

    async def _up(self, session: AuiSession) -> Object | None:
        """Take inputs until the client closes or begins anew. Returns the parameters with which it begins anew; None:
        it closes."""
        while True:
            text = await self._receive() if self._first is None else self._first
            self._first = None
            try:
                frame = await self._read(text)
                if (anew := self._parse_params(frame)) is not None:
                    return anew
            except Rejected as rejected:
                await self._acknowledge(session, None, rejected)
                continue
            match frame.get("type"):
                case "close":
                    return None
                case "ping":
                    await self._tell("pong")
                case "input":
                    await self._take(session, frame)
                case other:
                    actual = repr(other)[:60]
                    unknown = invalid("/type", f"expected params, input, ping or close, found {actual}")
                    await self._acknowledge(session, text_in(frame, "action"), unknown)

    async def _receive(self) -> str | bytes:
        """The next frame: text, or the bytes of a binary one. Raises WebSocketDisconnect."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"])
        text = message.get("text")
        return message["bytes"] if text is None else text

    async def _take(self, session: AuiSession, given: Object) -> None:
        other, refused = text_in(given, "session_id"), None
        async with self._taking:
            receipt: Object = {}
            try:
                if other is not None and other != session.id:
                    raise invalid("/session_id", f"expected {session.id!r}, the session of this socket")
                principal = self.access.principal
                now = await self._socket.app.state.identity.known(principal)
                if now.who != principal.who or not await self.access.terms.is_good(principal):
                    self._term.end(REVOKED)
                    raise Rejected(401, *REVOKED)
                receipt = await session.take(given)
            except Rejected as rejected:
                refused = rejected
            await self._acknowledge(session, text_in(given, "action"), refused, **receipt)

    async def _acknowledge(self, session: AuiSession, action: str | None, refused: Rejected | None, **of: Json) -> None:
        """Tell the client whether an action was accepted; `of` names the interrupt or the message that it was."""
        if refused is not None:
            await self._record(refused)
        fields = of if refused is None else {"error_code": refused.code, "message": refused.detail}
        status = "accepted" if refused is None else "refused"
        await self._tell("aui_action_ack", session_id=session.id, action=action, status=status, **fields)

    async def _record(self, rejected: Rejected) -> None:
        """Record a refusal (403) in the audit. Here it is a message on the socket, so no handler of responses records
        it."""
        await self._socket.app.state.sign_ins.record_denial(self._socket, self.access.principal, rejected)

    async def _read(self, text: str | bytes) -> Object:
        """The frame as an object. Raises Rejected."""
        if isinstance(text, bytes):
            raise Rejected(415, "body.not_json", "expected a text frame with JSON, found a binary one.")
        frame = await load_json(text.encode("utf-8", "surrogatepass"), self._limits)
        if not isinstance(frame, dict):
            raise invalid("", "expected a frame that is a JSON object")
        return frame
