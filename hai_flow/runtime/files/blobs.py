"""Where the bytes of files are: in PostgreSQL, or in any store that fsspec knows (a disk, S3, GCS, Azure ...).

Both hold bytes at *places*, and know nothing of files. A place is written once, and seen only when a row refers to it
(`store/runs/files`); so neither has to be atomic."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final, Protocol
from uuid import UUID, uuid4

from hai_flow.settings import SettingsError, variable
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import files

PIECE_BYTES: Final = 256 * 1024
IN_POSTGRES: Final = "pg:"


class Contents(Protocol):
    """A store of bytes."""

    def new_place(self) -> str:
        """A new name for a place, at which there are no bytes."""
        ...

    async def write(self, tenant: UUID, place: str, pieces: AsyncIterator[bytes]) -> None:
        """Write the pieces at the new place. Where this raises, some of them may be there."""
        ...

    def read(self, place: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes at the place from `start` up to before `end`, in pieces of bounded size.

        Raises MissingContent where they are not there."""
        ...

    async def remove(self, place: str) -> None:
        """Remove the bytes at the place. Twice is harmless."""
        ...


class MissingContent(Exception):
    """A row says that bytes are at a place, and they are not."""


class PostgresContents:
    """In the table `blobs`, in pieces of `PIECE_BYTES`."""

    def __init__(self, database: Database, reads: Pool | None = None) -> None:
        self._database = database
        self._reads = database.api if reads is None else reads

    def new_place(self) -> str:
        return IN_POSTGRES + uuid4().hex

    async def write(self, tenant: UUID, place: str, pieces: AsyncIterator[bytes]) -> None:
        n = 0
        async for piece in split_pieces(pieces):
            await files.add_piece(self._database.api, tenant, place, n, piece)
            n += 1

    async def read(self, place: str, start: int, end: int) -> AsyncIterator[bytes]:
        while start < end:
            n, offset = divmod(start, PIECE_BYTES)
            piece = await files.get_piece(self._reads, place, n)
            if piece is None or offset >= len(piece):
                raise MissingContent(place)
            part = piece[offset : offset + end - start]
            start += len(part)
            yield part

    async def remove(self, place: str) -> None:
        await files.remove_pieces(self._database.api, place)


class RemoteContents:
    """Below the URL of a file system that fsspec knows. Its calls block, so they run in threads."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError where fsspec is not installed, or does not know the URL's protocol."""
        self._system, self._root = open_file_system(url, variable("files"))

    def new_place(self) -> str:
        name = uuid4().hex
        return f"{name[:2]}/{name}"

    async def write(self, tenant: UUID, place: str, pieces: AsyncIterator[bytes]) -> None:
        path = self._path(place)
        file = await asyncio.to_thread(self._open, path)
        try:
            async for piece in split_pieces(pieces):
                await asyncio.to_thread(file.write, piece)
        finally:
            await asyncio.to_thread(file.close)

    async def read(self, place: str, start: int, end: int) -> AsyncIterator[bytes]:
        path = self._path(place)
        while start < end:
            until = min(end, start + PIECE_BYTES)
            try:
                part = await asyncio.to_thread(self._system.cat_file, path, start, until)
            except FileNotFoundError:
                raise MissingContent(place) from None
            if len(part) != until - start:
                raise MissingContent(place)
            start = until
            yield part

    async def remove(self, place: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            await asyncio.to_thread(self._system.rm_file, self._path(place))

    def _path(self, place: str) -> str:
        return f"{self._root}/{place}"

    def _open(self, path: str) -> Any:
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        return self._system.open(path, "wb")


async def split_pieces(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, in pieces of exactly `PIECE_BYTES`, the last one maybe smaller."""
    held = bytearray()
    async for piece in pieces:
        held += piece
        while len(held) >= PIECE_BYTES:
            yield bytes(held[:PIECE_BYTES])
            del held[:PIECE_BYTES]
    if held:
        yield bytes(held)


def open_file_system(url: str, named: str) -> tuple[Any, str]:
    """The file system of `url`, and the path in it, without a slash at its end. Its calls block.

    Raises SettingsError where fsspec is not installed, or the URL can't be used; `named` is what the text calls it."""
    try:
        import fsspec

        system, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        why = f"{error}; install hai-flow[files], and what fsspec needs for this protocol"
        raise SettingsError([f"{named}: {why}."]) from None
    except Exception as error:  # whatever an implementation finds wrong with a URL: ValueError, KeyError, ...
        raise SettingsError([f"{named}: it can't be used: {error}."]) from None
    return system, root.rstrip("/")
