"""Files: taken in, given out and cleared away; those of a run for its steps.

A file is known by the sha256 of its bytes, and may be read by the principal that uploaded it and by people that may see
a run that refers to it. Values (input, answers, messages, outputs) hold its id; the bytes never enter a log."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected, StepError
from hai_flow.primitives import file_ids
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.runtime.files.blobs import IN_POSTGRES, Contents, MissingContent, PostgresContents
from hai_flow.steps.files import Content, kind_of
from hai_flow.steps.secrets import hide_secrets
from hai_flow.store.postgres import orphan_cleanup
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import FAILURES
from hai_flow.store.runs import files
from hai_flow.store.runs.files import File
from hai_flow.store.runs.viewers import Viewer
from hai_flow.values import Json

log = structlog.get_logger(__name__)

BYTES: Final = "application/octet-stream"
MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,80}/[a-z0-9][a-z0-9!#$&^_.+-]{0,80}")
NAME_CHARS_MAX: Final = 200
_CONTROL: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
ARRIVES_WITHIN: Final = timedelta(hours=1)  # bytes without a file's row by then were left behind by a process that died
BY_A_RUN: Final = "run:"  # the uploader of files that steps made


class Files:
    """The files of this deployment. `elsewhere`: where the bytes of new ones go, None: into PostgreSQL.

    `bytes_max`: of one file. `kept_for`: how long a file stays that no run refers to."""

    def __init__(
        self,
        database: Database,
        elsewhere: Contents | None = None,
        *,
        bytes_max: int = 64 * 1024 * 1024,
        kept_for: timedelta = timedelta(days=7),
    ) -> None:
        self._database = database
        self._reads: Pool = database.api
        self._here = PostgresContents(database)
        self._elsewhere = elsewhere
        self.bytes_max = bytes_max
        self._kept_for = kept_for

    def reading(self, reads: Pool) -> Files:
        """The same files for a request, which reads with `reads`."""
        files_read = copy.copy(self)
        files_read._reads, files_read._here = reads, PostgresContents(self._database, reads)
        return files_read

    # --- in

    async def take(
        self,
        tenant: UUID,
        principal: str,
        pieces: AsyncIterator[bytes],
        *,
        name: str,
        media_type: str,
        wanted: bytes | None = None,
        run_id: UUID | None = None,
    ) -> File:
        """Store the pieces as a file of the principal's, or as one that the run `run_id` made.

        Raises Rejected 413 for more than `bytes_max`, 422 where `wanted` is not their sha256; and whatever `pieces`
        raises. Nothing is stored then."""
        contents = self._elsewhere or self._here
        place = contents.new_place()
        await files.record_leftover(self._database.api, tenant, place, ARRIVES_WITHIN)
        counted = _CountedPieces(pieces, self.bytes_max)
        stored_place: str | None = None
        try:
            await contents.write(tenant, place, counted.pieces())
            if wanted is not None and wanted != counted.digest.digest():
                raise Rejected(
                    422, "file.digest", f"the bytes that arrived have the sha256 {counted.digest.hexdigest()}."
                )
            file = File(counted.digest.digest(), place, counted.size, name, media_type)
            stored_place = await files.keep_file(self._database.api, tenant, file, principal, run_id=run_id)
            if stored_place is None:
                raise Rejected(408, "file.slow", f"expected the file within {ARRIVES_WITHIN}.")
            return replace(file, place=stored_place)
        finally:
            if stored_place != place:
                await asyncio.shield(self._clear(place))

    async def use(self, tenant: UUID, principal: str, run_id: UUID, value: bytes, viewer: Viewer | None = None) -> None:
        """The JSON text `value`, which the principal sends, is about to enter the run. `viewer`: the principal, where
        they may not read all runs.

        Raises Rejected 404 where it refers to a file that is not there, or that the principal may not read."""
        await self._use(tenant, principal, run_id, file_ids.files_in(value), viewer)

    async def _use(
        self, tenant: UUID, principal: str, run_id: UUID, sha256s: set[bytes], viewer: Viewer | None
    ) -> None:
        if sha256s:
            readable = await files.record_files(self._database.api, tenant, sha256s, principal, run_id, viewer)
            _demand_all(sha256s, readable)

    async def use_all(
        self, tenant: UUID, principal: str, run_id: UUID, command: c.Command, viewer: Viewer | None
    ) -> None:
        """The files of all values that come in with the principal's command to the run: as `use`."""
        if not isinstance(command, _WITHOUT_VALUES):
            await self._use(tenant, principal, run_id, await _find_files(command), viewer)

    async def demand_all(self, tenant: UUID, principal: str, command: c.Command, viewer: Viewer | None) -> None:
        """Raises Rejected as `use_all` would; nothing is noted."""
        if not isinstance(command, _WITHOUT_VALUES):
            await self._demand(tenant, principal, await _find_files(command), viewer)

    async def demand(self, tenant: UUID, principal: str, value: bytes, viewer: Viewer | None = None) -> None:
        """The JSON text `value`, which the principal sends, is about to be kept for runs that are not known yet: each
        refers to its files when it takes it. Raises Rejected as `use`."""
        await self._demand(tenant, principal, file_ids.files_in(value), viewer)

    async def _demand(self, tenant: UUID, principal: str, sha256s: set[bytes], viewer: Viewer | None) -> None:
        if sha256s:
            _demand_all(
                sha256s, await files.filter_readable_files(self._database.api, tenant, sha256s, principal, viewer)
            )

    async def demand_of_run(self, tenant: UUID, run_id: UUID, value: bytes) -> None:
        """Call this before the JSON text `value` enters the run. It comes from a principal that may read the run's
        files and no others. Raises Rejected as `use`."""
        sha256s = file_ids.files_in(value)
        if sha256s:
            _demand_all(sha256s, await files.list_files_of_run(self._database.api, tenant, sha256s, run_id))

    # --- out

    async def find(
        self, tenant: UUID, principal: str, digest: bytes | None, viewer: Viewer | None = None
    ) -> File | None:
        """The file whose bytes have this sha256, if it is there and the principal may read it. `viewer`: the principal,
        unless it may read all runs."""
        if digest is None:
            return None
        return await files.find_file(self._reads, tenant, digest, principal, viewer)

    async def find_of_run(self, tenant: UUID, run_id: UUID, digest: bytes | None) -> File | None:
        """The same, if the run refers to it, or another run of its thread does."""
        return None if digest is None else await files.find_file_of_run(self._database.api, tenant, digest, run_id)

    def read(self, file: File, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes of the file from `start` up to before `end`, in pieces. Raises MissingContent."""
        contents: Contents = self._here
        if not file.place.startswith(IN_POSTGRES):
            if self._elsewhere is None:
                raise MissingContent(f"{file.place}: this process is told of no store of files")
            contents = self._elsewhere
        return contents.read(file.place, start, file.size if end is None else end)

    def run_files(self, tenant: UUID, run_id: UUID) -> FilesOfRun:
        """The files that a run's steps may read, and where those go that they make."""
        return FilesOfRun(self, tenant, run_id)

    # --- clearing away

    async def tidy(self, every: timedelta) -> None:
        """Remove some of the files that nothing refers to, unless another process just did."""
        pool = self._database.api
        await orphan_cleanup.sweep(pool, "files", every, partial(files.delete_unused_files, pool, self._kept_for))
        for place in await files.list_due_leftovers(pool):
            await self._clear(place)

    async def _clear(self, place: str) -> None:
        """Remove the bytes at the place, and then the row that names the place. `tidy` tries again where that fails."""
        try:
            contents = self._here if place.startswith(IN_POSTGRES) else self._elsewhere
            if contents is None:
                return
            await contents.remove(place)
            await files.delete_leftover(self._database.api, place)
        except Exception as error:
            log.warning("file_not_cleared", place=place, error=str(error) or type(error).__name__)


class FilesOfRun:
    """`steps/files.RunFiles` over the files of a deployment."""

    def __init__(self, files: Files, tenant: UUID, run_id: UUID) -> None:
        self._files = files
        self._tenant = tenant
        self._run_id = run_id

    @property
    def _principal(self) -> str:
        return f"{BY_A_RUN}{self._run_id}"

    async def read(self, id: str, bytes_max: int) -> Content:
        try:
            file = await self._files.find_of_run(self._tenant, self._run_id, file_ids.sha256_of_file(id))
            if file is None:
                raise StepError(
                    f"there is no file {id[:80]!r} that this run may read", code="step.file_unknown", retriable=False
                )
            if file.size > bytes_max:
                raise StepError(
                    f"the file {file.name[:80]!r} has {file.size} bytes; at most {bytes_max} are taken here",
                    code="step.file_too_large",
                    retriable=False,
                )
            body = b"".join([piece async for piece in self._files.read(file)])
        except (*FAILURES, MissingContent) as error:
            raise _unavailable(error) from error
        return Content(body, file.media_type, file.name)

    async def put(self, body: bytes, media_type: str = "application/octet-stream", name: str = "") -> dict[str, Json]:
        async def read_whole() -> AsyncIterator[bytes]:
            yield body

        kind = media_type.partition(";")[0].strip().lower()  # a tool's, or a server's: it becomes a header
        kind = kind if MEDIA_TYPE.fullmatch(kind) else BYTES
        name = _CONTROL.sub("\ufffd", hide_secrets(name))[:NAME_CHARS_MAX]
        try:
            file = await self._files.take(
                self._tenant, self._principal, read_whole(), name=name, media_type=kind, run_id=self._run_id
            )
        except Rejected as rejected:
            raise StepError(rejected.detail, code="step.file_too_large", retriable=False) from None
        except FAILURES as error:
            raise _unavailable(error) from error
        return build_part(file)


def build_part(file: File) -> dict[str, Json]:
    """The content part that refers to the file, as messages of AG-UI and HAI have it."""
    part: dict[str, Json] = {
        "type": kind_of(file.media_type),
        "source": {"type": "file", "value": file_ids.file_id(file.sha256), "mimeType": file.media_type},
    }
    return part | {"metadata": {"filename": file.name}} if file.name else part


_WITHOUT_VALUES: Final = (c.Pause, c.Resume, c.Stop, c.Terminate, c.Retry, c.Jump, c.Migrate)


def _list_values(command: c.Command) -> Any:
    """The values of the command. Of a fork those that are new; the others it takes over with the other run's events."""
    if not isinstance(command, c.Fork):
        return command
    edits = command.edits or c.Edits()
    return [command.answer, *(each for each in (edits.input, edits.state) if each is not msgspec.UNSET)]


async def _find_files(command: c.Command) -> set[bytes]:
    content = _list_values(command)
    return await run_if_large(content, lambda: file_ids.files_in(values.dumps(content)))


def _demand_all(wanted: set[bytes], found: set[bytes]) -> None:
    if missing := wanted - found:
        raise unknown(file_ids.file_id(min(missing)))


def unknown(id: str) -> Rejected:
    """The refusal of a file that is not there, or not the principal's: the error does not reveal which."""
    return Rejected(404, "file_unknown", f"there is no file {id[:80]!r}.")


def _unavailable(error: BaseException) -> StepError:
    reason = str(error) or type(error).__name__
    return StepError(f"the store of files does not answer: {reason}", code="step.file_unavailable", retriable=True)


class _CountedPieces:
    """Pieces on their way, with their size and digest so far."""

    def __init__(self, pieces: AsyncIterator[bytes], bytes_max: int) -> None:
        self._pieces = pieces
        self._bytes_max = bytes_max
        self.size = 0
        self.digest: Any = sha256()

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._pieces:
            self.size += len(piece)
            if self.size > self._bytes_max:
                raise too_large(self._bytes_max)
            self.digest.update(piece)
            yield piece


def too_large(bytes_max: int) -> Rejected:
    """The refusal of a file with more than `bytes_max` bytes."""
    return Rejected(413, "file.too_large", f"a file has at most {bytes_max} bytes.")
