"""The last beat of each database, noted outside of it in one small file (`HAI_FLOW_WITNESS`).

The place is a directory, or a URL that fsspec knows. Whichever process writes last is right: a beat that is
a few seconds older proves nearly as much."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow.errors import StoreError
from hai_flow.runtime.files.blobs import open_file_system
from hai_flow.settings import variable
from hai_flow.store.ops.database_history import Beat

SECONDS_MAX: Final = 10.0  # for one file, there and back


class Witness:
    """The place's reader and writer. `shared`: other machines write there too, so only the process that made a beat
    writes it."""

    def __init__(self, place: str) -> None:
        """Raises SettingsError where the place is a URL that can't be used."""
        self.shared = "://" in place
        self._place = place.rstrip("/")
        self._system: Any = None
        if self.shared:
            self._system, self._place = open_file_system(place, variable("witness"))

    async def read(self, database: UUID) -> Beat | None:
        """The last beat that was noted of the database. Raises StoreError where the witness can't be read."""
        try:
            async with asyncio.timeout(SECONDS_MAX):
                text = await asyncio.to_thread(self._read, f"{database}.json")
            return None if text is None else msgspec.json.decode(text, type=Beat)
        except (OSError, TimeoutError, msgspec.MsgspecError) as error:
            raise StoreError(
                f"{variable('witness')}: what stands at {self._place} of this database can't be read: "
                f"{str(error) or 'no answer'}. Mend it, or remove it if you know that the database was not restored."
            ) from error

    async def write(self, beat: Beat) -> None:
        """Note the beat. Raises OSError or TimeoutError."""
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.to_thread(self._write, f"{beat.database}.json", msgspec.json.encode(beat))

    def _read(self, name: str) -> bytes | None:
        path = f"{self._place}/{name}"
        try:
            return Path(path).read_bytes() if self._system is None else self._system.cat_file(path)
        except FileNotFoundError:
            return None

    def _write(self, name: str, text: bytes) -> None:
        path = Path(self._place) / name
        if self._system is not None:
            self._system.makedirs(self._place, exist_ok=True)
            self._system.pipe_file(str(path), text)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f".{name}.{os.getpid()}")
        half.write_bytes(text)
        half.replace(path)
