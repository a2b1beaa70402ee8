"""Addresses that an A2A client wants to be called at when its task changes, and what is sent there. Pure.

A notification says the state of the task and nothing of what it is about: whoever gets it asks for the task with a
credential of their own (docs/protocols/a2a.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from hai_flow import values
from hai_flow.primitives import instants
from hai_flow.values import Json
from hai_flow.wire.a2a import older
from hai_flow.wire.a2a.tasks import RunView, invalid, state_of

URL_CHARS_MAX: Final = 2000
TOKEN_CHARS_MAX: Final = 1000
TOKEN_HEADER: Final = "X-A2A-Notification-Token"
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
_CREDENTIALS: Final = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*")
_SCHEME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,50}")


class PushConfig(msgspec.Struct, frozen=True):
    """Where a client wants to be called, and by what it recognises the call. `old`: it speaks A2A 0.3. `token` is sent
    as it is, and signs; `scheme` and `credentials` are the header `Authorization`. `approval`: it is no client of A2A
    but the webhook of an approval (`wire.approvals`), whose token only signs."""

    id: str
    url: str
    token: str = ""
    scheme: str = ""
    credentials: str = ""
    old: bool = False
    approval: bool = False


def read_push_config(value: Json, place: str, *, old: bool) -> PushConfig:
    """A configuration as a client gives it. Raises Fault with the place of what is wrong.

    Without an id it gets one of its address, so that the same one again replaces it."""
    if not isinstance(value, Mapping):
        raise invalid(f"{place}: expected an object.")
    url = value.get("url")
    if not isinstance(url, str) or not is_address(url):
        raise invalid(f"{place}/url: expected an address, https://..., of at most {URL_CHARS_MAX} characters.")
    id = value.get("id") or sha256(url.encode()).hexdigest()[:16]
    if not isinstance(id, str) or len(id) > 200 or not _VISIBLE.fullmatch(id) or "/" in id:
        raise invalid(f"{place}/id: expected at most 200 visible characters without a slash.")
    scheme, credentials = _read_authentication(value.get("authentication"), place)
    return PushConfig(id, url, _read_secret(value.get("token"), f"{place}/token"), scheme, credentials, old)


def is_address(url: str) -> bool:
    """Whether the text is an address of HTTP, without a name and password in it."""
    if len(url) > URL_CHARS_MAX or not _VISIBLE.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        return False
    return named and parts.scheme in ("https", "http")


def _read_authentication(value: Json, place: str) -> tuple[str, str]:
    """The scheme, of several the first, and the credentials."""
    if value is None:
        return "", ""
    if not isinstance(value, Mapping):
        raise invalid(f"{place}/authentication: expected an object.")
    schemes = value.get("schemes")
    scheme = value.get("scheme") or (schemes[0] if isinstance(schemes, list) and schemes else "")
    credentials = _read_secret(value.get("credentials"), f"{place}/authentication/credentials", _CREDENTIALS)
    if not isinstance(scheme, str) or (scheme and not _SCHEME.fullmatch(scheme)) or (credentials and not scheme):
        raise invalid(f"{place}/authentication/scheme: expected the name of a scheme, as Bearer.")
    return scheme, credentials


def _read_secret(value: Json, place: str, pattern: re.Pattern[str] = _VISIBLE) -> str:
    if value in (None, ""):
        return ""
    if not isinstance(value, str) or len(value) > TOKEN_CHARS_MAX or not pattern.fullmatch(value):
        raise invalid(f"{place}: expected at most {TOKEN_CHARS_MAX} visible ASCII characters.")
    return value


def find_push_config(params: Mapping[str, Json], *, old: bool) -> PushConfig | None:
    """The configuration that comes with a message. Raises Fault."""
    configuration = params.get("configuration")
    if not isinstance(configuration, Mapping):
        return None
    for name in ("taskPushNotificationConfig", "pushNotificationConfig"):
        if configuration.get(name) is not None:
            return read_push_config(configuration[name], f"/configuration/{name}", old=old)
    return None


def write_push_config(config: PushConfig, task_id: str, *, old: bool) -> dict[str, Any]:
    """The configuration as its client reads it."""
    document: dict[str, Any] = {"id": config.id, "url": config.url}
    if config.token:
        document["token"] = config.token
    if config.scheme:
        schemes: dict[str, Any] = {"schemes": [config.scheme]} if old else {"scheme": config.scheme}
        document["authentication"] = schemes | ({"credentials": config.credentials} if config.credentials else {})
    return {"taskId": task_id, "pushNotificationConfig": document} if old else {"taskId": task_id, **document}


def write_push(shown: RunView, *, old: bool) -> tuple[str, bytes]:
    """The state of the task, and the notification of it."""
    run, state = shown.state, state_of(shown)
    status = {"state": state, "timestamp": instants.rfc3339(run.at)}
    if old:
        return state, values.dumps(
            older.convert_to_old({"id": run.run_id, "contextId": run.thread_id, "status": status})
        )
    return state, values.dumps({"statusUpdate": {"taskId": run.run_id, "contextId": run.thread_id, "status": status}})


def headers_of(config: PushConfig) -> dict[str, str]:
    """By what the receiver recognises that the call is meant for it."""
    headers = {TOKEN_HEADER: config.token} if config.token and not config.approval else {}
    if config.scheme:
        headers["Authorization"] = f"{config.scheme} {config.credentials}".strip()
    return headers
