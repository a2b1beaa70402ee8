"""Reading the calls of platforms, which may hold anything and be encrypted. Pure."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from typing import Any, Final

from hai_flow import values
from hai_flow.notify.chat.contract import CLOCK_SECONDS, UnprovenCall

CONNECT: Final = re.compile(r"\s*(?:<@\w+>\s*)?/?(?:hai[- ])?connect\s+(?P<code>[A-Za-z0-9_-]{43})\s*")


def dig(value: Any, *path: str | int) -> Any:
    """The member at the path; None where there is none."""
    for key in path:
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def text_at(value: Any, *path: str | int) -> str:
    """The text at the path; "" where there is none."""
    text = dig(value, *path)
    return text if isinstance(text, str) else ""


def list_at(value: Any, *path: str | int) -> list[Any]:
    """The list at the path; empty where there is none."""
    members = dig(value, *path)
    return members if isinstance(members, list) else []


def read_json(body: bytes | str) -> Any:
    """The JSON of a proven call. Raises UnprovenCall: no platform sends anything else."""
    try:
        return values.loads(body)
    except (values.NotJson, UnicodeDecodeError):
        raise UnprovenCall from None


def demand_time(text: str, now: float, unit: float = 1.0) -> None:
    """Raises UnprovenCall unless the text is a time near now; `unit`: seconds that it counts in."""
    if not re.fullmatch(r"[0-9]{1,16}", text) or abs(int(text) * unit - now) > CLOCK_SECONDS:
        raise UnprovenCall


def demand_equal(actual: str, expected: str) -> None:
    """Raises UnprovenCall where they differ; takes the same time wherever they do."""
    if not hmac.compare_digest(actual.encode(errors="replace"), expected.encode()):
        raise UnprovenCall


def code_in(text: str) -> str | None:
    """The code in a message that connects an account (`connect CODE`)."""
    match = CONNECT.fullmatch(text)
    return None if match is None else match["code"]


def decrypt_cbc(key: bytes, iv: bytes, data: bytes, block: int) -> bytes:
    """The plain text; `block`: the size of the blocks that it was filled up to. Raises UnprovenCall."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # only where a channel needs it

    if len(iv) != 16 or not data or len(data) % 16:
        raise UnprovenCall
    decryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
    plain = decryptor.update(data) + decryptor.finalize()
    count = plain[-1]
    if not 1 <= count <= block or plain[-count:] != bytes([count]) * count:
        raise UnprovenCall
    return plain[:-count]
