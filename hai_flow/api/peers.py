"""Whose address is whose: what is counted as one client of the network."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

_SUBNET_BITS: Final = 64  # what one IPv6 subscriber gets at least: to change the rest costs nothing


def peer_of(scope: Mapping[str, Any]) -> str:
    """Who sends a request: its connection's address, or what a trusted proxy says it is."""
    client = scope.get("client")
    return "" if client is None else peer(client[0])


def peer(host: str) -> str:
    """The name under which the address `host` is counted. Whoever has one IPv6 subnet is one client."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _SUBNET_BITS), strict=False))
