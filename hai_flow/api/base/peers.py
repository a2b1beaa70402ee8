"""Addresses of clients: which of them are counted as one client."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Mapping
from typing import Any, Final

_SUBNET_BITS: Final = 64  # an IPv6 subscriber gets at least this subnet, and may use any address in it


def find_peer(scope: Mapping[str, Any]) -> str:
    """The address that a request counts for: its connection's, or the client's as a trusted proxy names it."""
    client = scope.get("client")
    return "" if client is None else peer(client[0])


@functools.lru_cache(10_000)
def peer(host: str) -> str:
    """The name under which the address `host` is counted. All addresses of an IPv6 subnet are one client."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _SUBNET_BITS), strict=False))
