"""A file of this machine becomes one of the server's."""

from __future__ import annotations

import asyncio
import mimetypes
from pathlib import Path
from typing import Final

from hai_flow.cli.client.rest import Server
from hai_flow.cli.errors import UsageError
from hai_flow.values import Json

_BYTES: Final = "application/octet-stream"


async def upload(api: Server, file: Path, kind: str | None = None) -> dict[str, Json]:
    """The file as the server describes it, with its `id`. Raises UsageError where it can't be read."""
    try:
        body = await asyncio.to_thread(file.read_bytes)
    except OSError as error:
        raise UsageError(f"{file}: expected a file that can be read: {error.strerror}.") from None
    kind = kind or mimetypes.guess_type(file.name)[0] or _BYTES
    sent: dict[str, Json] = await api.post("/v1/files", content=body, media_type=kind, name=file.name)
    return sent
