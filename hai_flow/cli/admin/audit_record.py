"""What somebody with access to the database does there with a command, as the audit records it."""

from __future__ import annotations

from typing import Any, Final

from hai_flow.store.postgres.connections import Connection
from hai_flow.values import Json

BY: Final = "service:cli"  # who acts: access to the database proves no principal


async def record(connection: Connection, of: Any, act: str, subject: str, **details: Json) -> None:
    """Record an act in the audit. Access to the database proves no principal, so the record names the way (`database`)
    and the account on this machine."""
    import getpass

    from hai_flow.store.audit import audit
    from hai_flow.store.audit.audit_chain import new_row

    body = {"way": "database", "account": getpass.getuser(), **details}
    await audit.write(connection, of, [new_row(act, BY, body, subject=subject)])
