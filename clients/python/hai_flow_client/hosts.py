"""Hosts and ports as they are written: whether one is written soundly, and whether only this machine can reach it."""

# Written by `make generate` from hai_flow/primitives/hosts.py: change that, or clients/generate.py.

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_and_port(text: str) -> tuple[str, int] | None:
    """The host and the port that `text` names; None: it names none."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        return None
    host = host.strip("[]") or "127.0.0.1"
    return None if not re.fullmatch(r"[A-Za-z0-9.:_-]+", host) else (host, int(port))


def place_fault(url: str) -> str | None:
    """The fault of the hosts and ports of `url`; None: there is none.

    The text repeats no part of them, because a password with a bare `/` looks like a port."""
    try:
        hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")  # PostgreSQL's may have several
    except ValueError:  # a bracket without the other
        return "expected a host as a name or an address, one of IPv6 in brackets like [::1]"
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    if all(not port or (port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535) for port in ports):
        return None
    return "expected a port from 1 to 65535 behind the host"
