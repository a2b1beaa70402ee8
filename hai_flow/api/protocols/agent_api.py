"""`/process`: the Agent API, as a stream or as one response."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, Final
from uuid import uuid4

from fastapi import Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from hai_flow.agent_api import Sequence
from hai_flow.api.http.bodies import limits_of
from hai_flow.api.http.stream import Frames, wait_disconnect
from hai_flow.api.permissions.rights import Right
from hai_flow.api.protocols.conversation import Conversation
from hai_flow.api.protocols.openapi_streams import ID, OBJECTS, REFUSALS, describe_body
from hai_flow.api.protocols.stream_pieces import encode_last_frames
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess, JsonBody
from hai_flow.api.routes import Routes
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.runtime.streams.stream_items import StreamItem
from hai_flow.wire import agent_request, sse
from hai_flow.wire.dialects.agent_api import AGENT_API, frame_with_number
from hai_flow.wire.dialects.dialect import Frame

router = Routes(tags=["dialects"])

_BODY: Final = describe_body(
    "AgentRequest",
    ["input"],
    {
        "input": OBJECTS,
        "stream": {"type": "boolean", "default": True},
        "id": ID,
        "session_id": ID,
        "tools": OBJECTS,
        "workflow": {"type": "string", "description": "ours: the workflow to start"},
        "workflow_input": {"type": "object", "description": "ours: its input"},
    },
)
_OBJECT: Final[dict[str, Any]] = {
    "type": "object",
    "title": "AgentObject",
    "properties": {
        "object": {"enum": ["response", "message", "content", "custom", "raw"]},
        "status": {"type": ["string", "null"]},
        "id": {"type": ["string", "null"]},
        "sequence_number": {"type": ["integer", "null"], "minimum": 0},
    },
}
_ANSWER: Final = {
    "description": "with `stream: true` (the default) Server-Sent Events, with `false` the last object alone",
    "content": {
        sse.CONTENT_TYPE: {
            "schema": {
                "type": "string",
                "description": "Frames `data: {...}` and an empty line, each with one AgentObject: the response as "
                "it is created and in progress, messages with their contents, and at the end the whole response. "
                "Lines that begin with a colon keep the connection open.",
                "contentMediaType": sse.CONTENT_TYPE,
                "contentSchema": {**_OBJECT, "required": ["object", "status", "sequence_number"]},
            },
            "example": 'data: {"object": "response", "status": "created", "id": "response_r1", '
            '"sequence_number": 0}\n\n',
        },
        "application/json": {"schema": {**_OBJECT, "required": ["object", "status", "id"]}},
    },
}


@router.post("/process", Right.SEE_OWN, openapi_extra=_BODY, answer=_ANSWER, refusals=REFUSALS)
async def post_process(body: JsonBody, access: CurrentAccess, request: Request) -> Response:
    """Agent API: start a run, answer its open questions, or attach to it."""
    return await _process(body, access, request, None)


@router.post("/workflows/{name}/process", Right.SEE_OWN, openapi_extra=_BODY, answer=_ANSWER, refusals=REFUSALS)
async def post_workflow_process(name: str, body: JsonBody, access: CurrentAccess, request: Request) -> Response:
    """Agent API, for one workflow."""
    return await _process(body, access, request, name)


async def _process(body: bytes, access: Access, request: Request, workflow: str | None) -> Response:
    agent_input = await run_by_size(len(body), agent_request.read, body, limits_of(access.settings), uuid4().hex)
    access = await access.find_at_thread(agent_input.posted.thread_id)
    conversation = Conversation(access, AGENT_API, agent_input.posted, workflow)
    if not agent_input.stream:
        return await _answer_at_once(request, conversation)
    sequence = Sequence()

    async def begin() -> Frames:
        return _number_pieces(sequence, await conversation.pieces())

    now_ms = access.runtime.committer.now_ms
    return await access.stream(
        begin,
        AGENT_API,
        lambda ending: _render_frames(sequence, encode_last_frames(now_ms(), AGENT_API, ending)),
        follows=False,
    )


async def _number_pieces(sequence: Sequence, pieces: Frames) -> Frames:
    async with contextlib.aclosing(pieces):
        async for batch in pieces:
            yield [StreamItem(piece.seq, piece.frames, _render_frames(sequence, piece.frames)) for piece in batch]


def _render_frames(sequence: Sequence, frames: Iterable[Frame]) -> bytes:
    return b"".join(sse.event_bytes(frame_with_number(frame, sequence.next())) for frame in frames)


async def _answer_at_once(request: Request, conversation: Conversation) -> Response:
    """The last object of the stream alone. It streams nothing, so it takes no stream's place while it waits. If the
    client goes away meanwhile, the wait ends; the run goes on."""
    coming = asyncio.ensure_future(_last_frame(conversation))
    leaving = asyncio.ensure_future(wait_disconnect(request.receive))
    term = conversation.access.terms.begin(conversation.access.principal)
    over = asyncio.ensure_future(term.over())
    try:
        await asyncio.wait({coming, leaving, over}, return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            raise ClientDisconnect if leaving.done() else Rejected(401, *over.result())
        last = coming.result()
    finally:
        for task in (coming, leaving, over):
            task.cancel()
        await asyncio.gather(coming, leaving, over, return_exceptions=True)
        term.leave()
    if last is None or not last.terminal:
        raise Rejected(503, "closing", "the server is shutting down; ask again.")
    return Response(frame_with_number(last, 0), media_type="application/json")


async def _last_frame(conversation: Conversation) -> Frame | None:
    last: Frame | None = None
    pieces = await conversation.pieces()
    async with contextlib.aclosing(pieces):
        async for batch in pieces:
            last = next((piece.frames[-1] for piece in reversed(batch) if piece.frames), last)
    return last
