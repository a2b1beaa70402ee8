"""HAI-Act-As: the header in which a request names its caller, and its refusal. Only development servers believe it."""

from __future__ import annotations

from typing import Final

from starlette.requests import HTTPConnection

from hai_flow.errors import Rejected

ACT_AS: Final = "HAI-Act-As"


def read_acting_header(connection: HTTPConnection) -> str | None:
    """The value of HAI-Act-As. Raises Rejected 400 if it stands twice."""
    headers = connection.headers.getlist(ACT_AS)
    if len(headers) > 1:
        raise Rejected(400, "header_twice", f"expected at most one {ACT_AS}.")
    return headers[0] if headers else None


def reject_acting() -> Rejected:
    """The refusal of HAI-Act-As on a server that does not believe it."""
    return Rejected(
        403,
        "act_as.forbidden",
        f"{ACT_AS}: only a development server (`hai-flow dev`) that listens on loopback alone takes it, and only "
        "without configured identity.",
    )
