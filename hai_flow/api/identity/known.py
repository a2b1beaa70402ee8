"""With configured identity: every caller proves who they are, by a key in `Authorization: Bearer`.

A refusal says whether the credential is missing, past its time or wrong, and nothing that helps to forge one.
"""

from __future__ import annotations

import time
from typing import Final

from starlette.requests import HTTPConnection

from hai_flow.api.identity.keys import Keys
from hai_flow.api.identity.local import acting_forbidden, acting_header
from hai_flow.api.principals import Principal
from hai_flow.errors import Rejected
from hai_flow.runtime import Runtime

CREDENTIAL_CHARS_MAX: Final = 8192


class KnownIdentity:
    """Asks every caller for a credential."""

    def __init__(self, runtime: Runtime) -> None:
        self.keys = Keys(runtime)

    async def principal(self, connection: HTTPConnection) -> Principal:
        """Raises Rejected 400, 401 and 403."""
        if acting_header(connection) is not None:
            raise acting_forbidden()
        return await self.keys.principal(bearer(connection), now_ms())

    def forget(self, credential: str) -> None:
        """Look the key up anew the next time: it was changed here."""
        self.keys.forget(credential)


def bearer(connection: HTTPConnection) -> str:
    """The credential in `Authorization: Bearer`. Raises Rejected 400 and 401."""
    given = connection.headers.getlist("authorization")
    if not given:
        raise Rejected(401, "auth.missing", "expected a credential, as `Authorization: Bearer ...`.")
    if len(given) > 1:
        raise Rejected(400, "header_twice", "expected at most one Authorization.")
    scheme, _, credential = given[0].partition(" ")
    if scheme.lower() != "bearer" or not credential or len(credential) > CREDENTIAL_CHARS_MAX:
        raise Rejected(401, "auth.invalid", "expected `Authorization: Bearer ...` with one credential of this server.")
    return credential


def now_ms() -> int:
    """The time by which credentials end: the real one, also where a development server lets time pass."""
    return time.time_ns() // 1_000_000
