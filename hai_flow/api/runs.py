"""`/v1/runs`: start, list, get, control and follow runs."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from hai_flow import values
from hai_flow.api.deps import CurrentPrincipal, CurrentRuntime, CurrentSettings, Principal, read_body
from hai_flow.api.stream import EventStream
from hai_flow.api.views import run_view, snapshot_view
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.errors import Rejected
from hai_flow.runtime import Runtime
from hai_flow.runtime.committer import Birth, derived_run_id, new_run_id
from hai_flow.runtime.fanout import Piece, rendered
from hai_flow.store import runs
from hai_flow.wire import DIALECTS
from hai_flow.wire.dialect import Profile
from hai_flow.wire.log import LOG, event_json
from hai_flow.wire.sse import parse_cursor

router = APIRouter(prefix="/v1/runs", tags=["runs"])

PAGE_MAX = 200


class Body(BaseModel):
    """A request body: JSON types are taken as they are, unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid")


class StartBody(Body):
    workflow: str = Field(min_length=1, max_length=200, description="`name`, `name@version` or `name@version+sha8`")
    input: dict[str, Any] = Field(default={})
    thread_id: str | None = Field(default=None, min_length=1, max_length=200)


class ReasonBody(Body):
    reason: str = Field(default="", max_length=2000)


# --- shared by the routers ----------------------------------------------------------------------------------------


def checked_json(value: Any, place: str) -> Any:
    """`value` if it may enter a run. Raises Rejected 422."""
    try:
        return values.check(value)
    except values.NotJson as error:
        raise Rejected(422, "request.invalid", f"{place}: {error}", findings=[{"path": place, "message": str(error)}]) from None


def parsed_id(text: str) -> UUID:
    """The run id in a path. Raises Rejected 404: what is no id is nobody's id."""
    if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text):
        raise Rejected(404, "run_unknown", f"there is no run {text[:60]!r}.")
    return UUID(text)


async def get_row(runtime: Runtime, principal: Principal, run_id: UUID) -> runs.RunRow:
    """The one loader of runs for requests: tenant and id together, or 404."""
    row = await runs.get_run(runtime.database.api, principal.tenant, run_id)
    if row is None:
        raise Rejected(404, "run_unknown", f"there is no run {run_id}.")
    return row


def command_key(key: str | None) -> str | None:
    """A client's Idempotency-Key as a command id. Raises Rejected 422."""
    if key is None:
        return None
    if not re.fullmatch(r"[\x21-\x7e]{1,200}", key):
        raise Rejected(422, "idempotency_key.invalid", "Idempotency-Key: expected 1 to 200 visible ASCII characters.")
    return f"http:{key}"


def encode_page_cursor(*parts: str) -> str:
    return base64.urlsafe_b64encode("\n".join(parts).encode()).decode().rstrip("=")


def decode_page_cursor(text: str | None) -> tuple[datetime, str] | None:
    """The (time, id) of the last item of the page before. Raises Rejected 400."""
    if text is None:
        return None
    try:
        moment, _, id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition("\n")
        parsed = datetime.fromisoformat(moment)
        if parsed.tzinfo is None or not id:
            raise ValueError
    except ValueError:
        raise Rejected(400, "cursor.invalid", "cursor: expected one that a page of this list returned.") from None
    return parsed, id


# --- starting and reading -----------------------------------------------------------------------------------------


@router.post("", status_code=201)
async def start_run(
    body: StartBody,
    runtime: CurrentRuntime,
    principal: CurrentPrincipal,
    response: Response,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> dict[str, Any]:
    """Start a run. The same Idempotency-Key again gives the same run; with another body it is 409."""
    checked_json(body.input, "/input")
    if body.thread_id is not None:
        checked_json(body.thread_id, "/thread_id")
    stored, plan = await runtime.catalog.resolve(principal.tenant, body.workflow)
    key = command_key(idempotency_key)
    body_sha = sha256(values.dumps([body.workflow, body.input, body.thread_id])).digest()
    run_id = new_run_id(runtime.committer.now_ms())
    if key is not None:
        run_id = derived_run_id(str(principal.tenant), principal.id, key)
    thread_id = body.thread_id or str(run_id)
    start = c.Start(
        run_id=run_id, thread_id=thread_id, requester=principal.id, input=body.input, dev=stored.dev
    )
    outcome = await runtime.committer.submit(
        run_id,
        principal.tenant,
        start,
        command_id=key or f"start:{run_id}",
        body_sha=body_sha,
        birth=Birth(plan, slot=f"thread:{thread_id}"),
    )
    if outcome.already:
        response.status_code = 200
    response.headers["Location"] = f"/v1/runs/{run_id}"
    return run_view(await get_row(runtime, principal, run_id))


@router.get("")
async def list_runs(
    runtime: CurrentRuntime,
    principal: CurrentPrincipal,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
    cursor: str | None = None,
    status: Annotated[list[str] | None, Query()] = None,
    workflow: str | None = None,
    thread_id: str | None = None,
) -> dict[str, Any]:
    """The runs, newest first."""
    place = decode_page_cursor(cursor)
    before = None if place is None else (place[0], parsed_id(place[1]))
    found = await runs.list_runs(
        runtime.database.api,
        principal.tenant,
        limit=limit + 1,
        statuses=status,
        workflow=_stored_text(workflow),
        thread_id=_stored_text(thread_id),
        before=before,
    )
    last = found[limit - 1] if len(found) > limit else None
    return {
        "items": [run_view(run) for run in found[:limit]],
        "next_cursor": None if last is None else encode_page_cursor(last.created_at.isoformat(), str(last.id)),
    }


def _stored_text(text: str | None) -> str | None:
    """A filter that PostgreSQL can compare: nothing stored contains a NUL."""
    return text if text is None else text.replace("\x00", "\ufffd")


@router.get("/{run_id}")
async def get_run(run_id: str, runtime: CurrentRuntime, principal: CurrentPrincipal) -> dict[str, Any]:
    """One run, with its input and, when it has ended, its output or error."""
    return run_view(await get_row(runtime, principal, parsed_id(run_id)))


@router.get("/{run_id}/snapshot")
async def get_snapshot(
    run_id: str,
    runtime: CurrentRuntime,
    principal: CurrentPrincipal,
    at: Annotated[int | None, Query(ge=0, le=2**53)] = None,
) -> JSONResponse:
    """The fold of the run's first `at` events (default: all of them)."""
    row = await get_row(runtime, principal, parsed_id(run_id))
    if at is not None and at > row.seq:
        raise Rejected(422, "request.invalid", f"at: the run has {row.seq} events so far, found {at}.")
    state = await runtime.fanout.state_at(principal.tenant, row.id, row.seq if at is None else at)
    assert state is not None
    return JSONResponse(snapshot_view(state))


# --- control ------------------------------------------------------------------------------------------------------


async def _control(
    runtime: Runtime, principal: Principal, run_id: str, command: c.Command, key: str | None
) -> dict[str, Any]:
    row = await get_row(runtime, principal, parsed_id(run_id))
    body_sha = sha256(type(command).__name__.encode()).digest()
    outcome = await runtime.committer.submit(
        row.id, principal.tenant, command, command_id=command_key(key), body_sha=body_sha
    )
    extra = {"in_flight": outcome.value["in_flight"]} if "in_flight" in (outcome.value or {}) else {}
    return {**run_view(await get_row(runtime, principal, row.id)), **extra}


IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key")]


@router.post("/{run_id}/pause")
async def pause_run(
    run_id: str,
    runtime: CurrentRuntime,
    principal: CurrentPrincipal,
    body: ReasonBody | None = None,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Let no new step start. Attempts in flight finish, answers are stored, deadlines keep running."""
    reason = checked_json(body.reason if body else "", "/reason")
    return await _control(runtime, principal, run_id, c.Pause(by=principal.id, reason=reason), key)


@router.post("/{run_id}/resume")
async def resume_run(
    run_id: str, runtime: CurrentRuntime, principal: CurrentPrincipal, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Go on after a pause."""
    return await _control(runtime, principal, run_id, c.Resume(by=principal.id), key)


@router.post("/{run_id}/stop")
async def stop_run(
    run_id: str,
    runtime: CurrentRuntime,
    principal: CurrentPrincipal,
    body: ReasonBody | None = None,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Stop cooperatively: `in_flight` attempts are told to cancel and have a grace period."""
    reason = checked_json(body.reason if body else "", "/reason")
    return await _control(runtime, principal, run_id, c.Stop(by=principal.id, reason=reason), key)


@router.post("/{run_id}/terminate")
async def terminate_run(
    run_id: str,
    runtime: CurrentRuntime,
    principal: CurrentPrincipal,
    body: ReasonBody | None = None,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """End the run at once. Nothing of it runs any more, late results are not recorded."""
    reason = checked_json(body.reason if body else "", "/reason")
    return await _control(runtime, principal, run_id, c.Terminate(by=principal.id, reason=reason), key)


@router.post("/{run_id}/retry")
async def retry_run(
    run_id: str, runtime: CurrentRuntime, principal: CurrentPrincipal, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Go on from the failed step of a failed run, or with a run that needs attention."""
    return await _control(runtime, principal, run_id, c.Retry(by=principal.id), key)


# --- following ----------------------------------------------------------------------------------------------------


@router.get("/{run_id}/events", response_model=None)
async def get_events(
    run_id: str,
    request: Request,
    runtime: CurrentRuntime,
    principal: CurrentPrincipal,
    settings: CurrentSettings,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    dialect: Literal["hai"] | None = None,
    accept: Annotated[str, Header()] = "",
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """The run's events after a seq: as `text/event-stream` (Accept) until the run ends, else as a page.

    `Last-Event-ID` beats `after`. With `dialect`, frames of that protocol and its cursors, of the newest turn.
    """
    row = await get_row(runtime, principal, parsed_id(run_id))
    if dialect is not None:
        return await _dialect_events(runtime, settings, principal, row, dialect, last_event_id or after)
    seq = _seq(last_event_id if last_event_id is not None else after, row.seq)
    if "text/event-stream" not in accept:
        return await _events_page(runtime, row, seq, limit)
    start = await runtime.fanout.state_at(principal.tenant, row.id, seq)
    assert start is not None
    if start.ended and start.seq == row.seq:
        pieces = _nothing()
    else:
        pieces = runtime.fanout.follow(row.id, LOG, Profile(dialect=LOG.name), start)
    return EventStream(
        pieces, keepalive_seconds=settings.keepalive_seconds, stall_seconds=settings.follower_stall_seconds
    )


async def _nothing() -> AsyncIterator[Sequence[Piece]]:
    return
    yield  # makes this a generator


def _seq(text: str | None, head: int) -> int:
    if text is None or text == "":
        return 0
    if not re.fullmatch(r"0|[1-9][0-9]{0,14}", text):
        raise Rejected(400, "cursor.invalid", f"expected the seq of an event, found {text[:60]!r}.")
    if int(text) > head:
        raise Rejected(400, "cursor.invalid", f"the run has {head} events so far, found a cursor at {text}.")
    return int(text)


async def _events_page(runtime: Runtime, row: runs.RunRow, after: int, limit: int) -> Response:
    items: list[dict[str, Any]] = []
    for stored in await runs.read_log(runtime.database.api, row.id, after, limit):
        for seq, event in enumerate(e.decode_events(stored.events), stored.first_seq):
            if seq > after and len(items) < limit:
                items.append(event_json(seq, event))
    more = bool(items) and items[-1]["seq"] < row.seq
    return JSONResponse({"items": items, "next_cursor": str(items[-1]["seq"]) if more else None})


async def _dialect_events(
    runtime: Runtime, settings: Any, principal: Principal, row: runs.RunRow, name: str, cursor: str | None
) -> Response:
    """The run's newest turn as a dialect shows it, or what comes after a cursor."""
    dialect = DIALECTS[name]
    profile = Profile(dialect=name)
    if cursor is None:
        now = await runtime.fanout.state_at(principal.tenant, row.id, row.seq)
        assert now is not None
        start = await runtime.fanout.state_at(principal.tenant, row.id, now.turn.first_seq - 1 if now.turn else 0)
        skip = 0
    else:
        try:
            place = parse_cursor(cursor)
        except ValueError as error:
            raise Rejected(400, "cursor.invalid", f"{error}.") from None
        if place.run_id != str(row.id) or place.encoding != dialect.encoding or not 0 < place.seq <= row.seq:
            raise Rejected(400, "cursor.invalid", "expected a cursor of this run's own stream.")
        start = await runtime.fanout.state_at(principal.tenant, row.id, place.seq - 1)
        skip = place.frame + 1
    assert start is not None
    pieces = _skipping(runtime.fanout.follow(row.id, dialect, profile, start), row.id, dialect.encoding, skip)
    return EventStream(
        pieces, keepalive_seconds=settings.keepalive_seconds, stall_seconds=settings.follower_stall_seconds
    )


async def _skipping(
    pieces: AsyncIterator[Sequence[Piece]], run_id: UUID, encoding: str, frames: int
) -> AsyncIterator[Sequence[Piece]]:
    """Without the first `frames` frames, which the follower has: its cursor stands inside their event."""
    async for news in pieces:
        if frames:
            news = [_without(news[0], run_id, encoding, frames), *news[1:]]
            frames = 0
        yield news
        if news[-1].terminal:
            return


def _without(piece: Piece, run_id: UUID, encoding: str, frames: int) -> Piece:
    data = rendered(piece.frames, piece.seq, run_id, encoding)
    shown = rendered(piece.frames[:frames], piece.seq, run_id, encoding)
    return Piece(piece.seq, piece.frames, data[len(shown) :])

