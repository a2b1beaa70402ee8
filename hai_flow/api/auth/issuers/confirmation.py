"""Tokens that are bound to the client certificate of who sends them (RFC 8705): whoever steals one can't use it.

TLS ends at the proxy, which hands on the certificate in a header that the deployment names (RFC 9440 has `Client-Cert`)
and takes that header out of what clients send.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Final
from urllib.parse import unquote

from starlette.requests import HTTPConnection

from hai_flow.errors import Rejected
from hai_flow.settings import variable
from hai_flow.signing import encode
from hai_flow.values import Json

METHOD: Final = "x5t#S256"
_PEM: Final = re.compile(r"-----(?:BEGIN|END) CERTIFICATE-----|\s")


def read_thumbprint(connection: HTTPConnection, header: str | None) -> str | None:
    """The thumbprint of the client's certificate, as `cnf` has it; None where the proxy has handed on none, or
    something else. Raises Rejected 400 for a header that comes twice."""
    values = connection.headers.getlist(header) if header else []
    if not values:
        return None
    if len(values) > 1:
        raise Rejected(400, "header_twice", f"expected at most one {header}.")
    text = _PEM.sub("", unquote(values[0])).strip(":")  # in PEM with escapes, or in Base64 between colons
    try:
        certificate = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return encode(sha256(certificate).digest())


def demand_holder(claims: Mapping[str, Json], thumbprint: str | None, *, required: bool) -> None:
    """Raises Rejected 401 where the token is bound to another sender than this one, in a way that can't be checked
    here, or (`required`) to none."""
    if "cnf" not in claims and not required:
        return
    bound = claims.get("cnf")
    if thumbprint is not None and isinstance(bound, Mapping) and dict(bound) == {METHOD: thumbprint}:
        return
    detail = (
        f"expected a token that is bound to the certificate of this connection (`cnf` with `{METHOD}`, RFC 8705), "
        f"which the proxy hands on in the header that {variable('client_certificate')} names."
    )
    raise Rejected(401, "auth.invalid", detail)
