"""UUIDs as the driver makes them of those that it reads: their hash, their text and their bytes cost no call of Python.
A process that looks runs up by their ids all the time keeps the ids in this form, wherever they came from."""

from __future__ import annotations

from uuid import UUID

from asyncpg.pgproto.pgproto import UUID as DriverUUID


def to_driver_uuid(id: UUID) -> UUID:
    """The same UUID, of the driver's type."""
    return id if type(id) is DriverUUID else DriverUUID(id.bytes)
