"""`/v1/files`: files go in as they are, and come out as downloads (docs/client.md#files).

An upload is the bytes themselves, with their media type as Content-Type: nothing has to be parsed, and nothing but a
piece is in memory. A download is never shown by a browser as a page of this server, whatever the uploader called it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec
import structlog
from fastapi import Header, Query, Request, Response
from pydantic import AfterValidator
from starlette.types import Receive, Scope, Send

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS
from hai_flow.api.base.peers import find_peer
from hai_flow.api.http.bodies import arriving, parse_content_length
from hai_flow.api.http.problems import WITH_BODY
from hai_flow.api.http.stream import CONNECTION, ResponseConnection
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.cross_cell import ask_all_cells
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.views import render
from hai_flow.api.rest.people.openings import note_attachment
from hai_flow.api.routes import Routes
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected, Unreadable
from hai_flow.primitives.file_ids import file_id, files_in, sha256_of_file
from hai_flow.primitives.invisible_characters import refuse_turns, straight
from hai_flow.runtime.files.blobs import MissingContent
from hai_flow.runtime.files.files import BYTES, MEDIA_TYPE, build_part, too_large, unknown
from hai_flow.store.postgres.error_classes import FAILURES
from hai_flow.store.runs.files import File, list_runs_with_file

log = structlog.get_logger(__name__)

router = Routes(prefix="/v1/files", tags=["files"])

UPLOAD_SECONDS: Final = 600.0
RUNS_LOOKED_AT: Final = 20  # for a question that refers to a file: the newest ones that do
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_DIGEST: Final = re.compile(r"\s*sha-256\s*=\s*:([A-Za-z0-9+/=]{1,100}):\s*")
_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}
}
# Whatever it holds: no script of it runs here, nothing of it is loaded, and no frame shows it.
_SANDBOX: Final = "default-src 'none'; sandbox"


def render_file(file: File) -> schemas.File:
    """A file as its uploader sees it."""
    return render(schemas.File, file, id=file_id(file.sha256), part=build_part(file))


@router.post("", Right.SPEAK, Right.ANSWER, status_code=201, openapi_extra=_BODY, refusals=(*WITH_BODY,))
async def upload_file(
    request: Request,
    access: CurrentAccess,
    response: Response,
    name: Annotated[
        str,
        Query(max_length=200, pattern=NO_CONTROL_CHARACTERS, description="what its owner calls it"),
        AfterValidator(refuse_turns),
    ] = "",
    content_digest: Annotated[str | None, Header(description="`sha-256=:...:` (RFC 9530): what must arrive")] = None,
) -> schemas.File:
    """Upload the body as a file of yours. It is stored whole or not at all: 413 where it is too large, 422 where the
    bytes are not those of Content-Digest. The same bytes again are the same file."""
    access = access.somewhere
    files = access.files
    media_type, digest = _read_media_type(request), _digest_of(content_digest)
    if parse_content_length(request) > files.bytes_max:
        raise too_large(files.bytes_max)
    with access.admission.upload(find_peer(request.scope)):
        pieces = arriving(request, UPLOAD_SECONDS)
        file = await files.take(
            access.tenant, access.principal.id, pieces, name=name, media_type=media_type, wanted=digest
        )
        await _repeat(access, file)
    response.headers["Location"] = f"/v1/files/{file_id(file.sha256)}"
    return render_file(file)


@router.get(
    "/{file}",
    Right.SEE_OWN,
    refusals=(404, 416),
    responses={
        200: {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}, "description": "what it holds"},
        206: {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}, "description": "the range of it"},
    },
)
async def download_file(file: str, request: Request, access: CurrentAccess) -> Response:
    """The content of a file, by its id or its sha256, as a download; a range of it where `Range` asks for one.

    404 unless you have uploaded it, or may see a run that refers to it."""
    digest = sha256_of_file(file if file.startswith("file_") else f"file_{file}")
    answer = await ask_all_cells(access, lambda cell: _find(cell, digest))
    access, stored = next(((cell, file) for cell, file in answer.by_cell if file is not None), (access, None))
    if stored is None and answer.missing:
        raise Rejected(503, "cell_away", f"no file {file[:80]!r} where it could be looked; away: {answer.missing}.")
    if stored is None:
        raise unknown(file)
    if access.principal.may(Right.DECIDE) and not access.principal.is_anybody:
        async for state in iterate_runs(access, stored.sha256):
            await note_attachment(access, state, stored.sha256)
    span = _parse_span(request, stored)
    pieces = access.files.read(stored, *(span or (0, stored.size)))
    try:
        first = await anext(pieces, b"")
    except MissingContent as error:
        log.error("file_content_missing", file=file, error=str(error))
        raise Rejected(503, "file_unavailable", "what the file holds is not where it should be; see the log.") from None
    return _Download(stored, span, first, pieces, access.settings.follower_stall_seconds)


async def _repeat(access: Access, file: File) -> None:
    """Let the tenant's other cells have the file, too: the run that will refer to it may be in any of them. A cell that
    is away goes without, and its runs refuse the file until it is uploaded again."""
    for cell in access.within_reach:
        if cell.cell != access.cell:
            try:
                await cell.runtime.files.take(
                    cell.tenant,
                    cell.principal.id,
                    access.runtime.files.read(file),
                    name=file.name,
                    media_type=file.media_type,
                    wanted=file.sha256,
                )
            except FAILURES as error:
                log.warning("file_not_repeated", cell=access.cells.name(cell.cell), error=str(error) or repr(error))


async def _find(access: Access, digest: bytes | None) -> File | None:
    stored = await access.files.find(access.tenant, access.uploader, digest, access.viewer)
    if stored is None and digest is not None and access.viewer is not None:
        stored = await _find_in_questions(access, digest)
    return stored


async def _find_in_questions(access: Access, digest: bytes) -> File | None:
    """The file, if a question refers to it that the caller is asked or has voted on."""
    stored = await access.files.find(access.tenant, access.principal.id, digest)
    if stored is not None:
        async for state in iterate_runs(access, digest):
            questions = (await access.seen(state)).questions.values()
            if any(digest in files_in(msgspec.json.encode(each.opened)) for each in questions):
                return stored
    return None


async def iterate_runs(access: Access, digest: bytes) -> AsyncIterator[RunState]:
    """The newest runs that refer to the file and that the caller sees, without those of a newer release: one of these
    keeps nobody from a file that another run shows them."""
    for run_id in await list_runs_with_file(access.reads, access.tenant, digest, RUNS_LOOKED_AT):
        try:
            state = await access.find_state(run_id)
        except Unreadable:
            continue
        if state is not None:
            yield state


class _Download(Response):
    """A file, or a span of it, piece by piece. A client that takes nothing for `stall_seconds` is cut off."""

    def __init__(
        self, file: File, span: tuple[int, int] | None, first: bytes, pieces: AsyncIterator[bytes], stall_seconds: float
    ) -> None:
        start, end = span or (0, file.size)
        headers = {
            "Content-Length": str(end - start),
            "Content-Disposition": _format_disposition(file),
            "Content-Security-Policy": _SANDBOX,
            "Accept-Ranges": "bytes",
            "ETag": _compute_etag(file),
        }
        if span is not None:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
        super().__init__(None, 200 if span is None else 206, headers)
        self.headers["Content-Type"] = file.media_type  # exactly: no charset is known
        self._first = first
        self._pieces = pieces
        self._stall_seconds = stall_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._send(
                send, {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            piece = self._first
            while piece:
                await self._send(send, {"type": "http.response.body", "body": piece, "more_body": True})
                piece = await anext(self._pieces, b"")
            await self._send(send, {"type": "http.response.body", "body": b""})
        except Exception as error:  # the client must not take the part that it has for the whole
            log.warning("download_broken_off", path=scope.get("path"), error=str(error) or type(error).__name__)
            connection: ResponseConnection | None = scope.get("extensions", {}).get(CONNECTION)
            if connection is None:
                raise
            connection.abort()

    async def _send(self, send: Send, message: dict[str, object]) -> None:
        async with asyncio.timeout(self._stall_seconds):
            await send(message)


def _read_media_type(request: Request) -> str:
    """Raises Rejected 415."""
    header = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if header and not MEDIA_TYPE.fullmatch(header):
        raise Rejected(
            415, "body.media_type", f"expected a media type like image/png as Content-Type, found {header[:60]!r}."
        )
    return header or BYTES


def _digest_of(digest: str | None) -> bytes | None:
    """Raises Rejected 422."""
    if digest is None:
        return None
    match = _DIGEST.fullmatch(digest)
    try:
        sha256 = base64.b64decode(match[1], validate=True) if match else b""
    except binascii.Error:
        sha256 = b""
    if len(sha256) != 32:
        raise Rejected(422, "request.invalid", "Content-Digest: expected `sha-256=:<base64 of 32 bytes>:`.")
    return sha256


def _parse_span(request: Request, file: File) -> tuple[int, int] | None:
    """The one range that is asked for, `[from, to)`; None: all of it. Raises Rejected 416."""
    match = _RANGE.fullmatch(request.headers.get("range", ""))
    if (
        match is None
        or match[0] == "bytes=-"
        or request.headers.get("if-range", _compute_etag(file)) != _compute_etag(file)
    ):
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, file.size - int(last)), file.size
    else:
        start, end = int(first), min(file.size, int(last) + 1) if last else file.size
        if last and int(last) < int(first):
            return None
    if start >= end:
        raise Rejected(416, "range.unsatisfiable", f"the file has {file.size} bytes.")
    return start, end


def _compute_etag(file: File) -> str:
    return f'"{file.sha256.hex()}"'


def _format_disposition(file: File) -> str:
    name = straight(file.name)  # a step or an earlier release may have given it another
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}" if name else "attachment"
