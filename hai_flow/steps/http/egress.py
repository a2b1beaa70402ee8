"""Where a step may connect to: public addresses, and further ones that the deployment allows.

The author of a workflow, or the user that starts a run, chooses where requests go. But this process can reach hosts
that they can't: its own machine, its neighbours, the metadata service of its cloud. So a name is resolved once, its
addresses are judged, and the connection goes to exactly that address, even if the name has changed since."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from hai_flow.errors import StepError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host, as text. Raises OSError."""

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL: Final = ipaddress.ip_network("64:ff9b:1::/48")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")
# What Python's table has not, or not in every release: special ranges, and what a cloud serves its machines under.
_SPECIAL: Final = tuple(
    ipaddress.ip_network(each)
    for each in (
        "168.63.129.16/32", "192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24",
        "100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20", "5f00::/16",
    )
)  # fmt: skip


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, by this machine's resolver, which also takes forms of numbers like `0x7f.1`. Does not
    block the loop."""
    loop = asyncio.get_running_loop()
    answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in answers))


class EgressGuard:
    """`allowed`: hosts that may be reached though they are not public: names (`*.internal`: all below), addresses or
    networks. `resolve` gives the addresses of a name."""

    def __init__(self, allowed: Iterable[str] = (), resolve: Resolve = resolve) -> None:
        self._resolve = resolve
        self._names: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for each in allowed:
            try:
                self._networks.append(ipaddress.ip_network(each.strip("[]"), strict=False))
            except ValueError:
                self._names.add(_bare(each))

    async def address(self, host: str, port: int) -> str:
        """The address to connect to. Raises StepError: `http.refused`, or `http.connection` for a name that has none.

        Where a name has several addresses, all have to be good: which of them is taken is a matter of chance."""
        bare = _bare(host)
        try:
            addresses = await self._resolve(bare, port)
        except (OSError, UnicodeError) as error:
            raise StepError(f"{host!r} has no address: {error}", code="http.connection", retriable=True) from None
        if not addresses:
            raise StepError(f"{host!r} has no address.", code="http.connection", retriable=True)
        if not self._knows(bare):
            for each in addresses:
                self._judge(host, each)
        return addresses[0]

    async def find_obstacle(self, url: str, *, by_proxy: bool) -> str | None:
        """Why a caller's address is not called: without TLS only named hosts are. One whose name leads nowhere now is
        tried when it is called. `by_proxy`: a proxy judges the addresses."""
        parts, address = urlsplit(url), ""
        host = parts.hostname or ""
        if not by_proxy:
            try:
                address = await self.address(host, parts.port or 443)
            except StepError as error:
                if not error.retriable:
                    return error.message
        is_named = self._knows(_bare(host)) or (address != "" and self._is_listed(ipaddress.ip_address(address)))
        if parts.scheme != "https" and not is_named:
            return "expected https://...; without TLS only hosts in HAI_FLOW_HTTP_HOSTS are called"
        return None

    def _is_listed(self, address: Address) -> bool:
        return any(address in network for network in self._networks if network.version == address.version)

    def _knows(self, host: str) -> bool:
        if host in self._names:
            return True
        parts = host.split(".")
        return any(f"*.{'.'.join(parts[number:])}" in self._names for number in range(1, len(parts)))

    def _judge(self, host: str, text: str) -> None:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            raise _refusal(host, f"{text!r} is no address") from None
        if not self._is_listed(address) and not is_public(address):
            raise _refusal(host, "that is no public address")


def is_public(address: Address) -> bool:
    """Whether this address belongs to one host on the public internet.

    Private, local, reserved and multicast addresses do not, nor do IPv6 addresses that contain one of these in IPv4."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None or address in _NAT64_LOCAL:
            return False
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address.teredo is not None:
            inner = address.teredo[1]
        if inner is None and (address in _NAT64 or address in _COMPATIBLE or _is_isatap(address)):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    if any(address in network for network in _SPECIAL):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _is_isatap(address: ipaddress.IPv6Address) -> bool:
    """Whether its last four bytes are the IPv4 address of a tunnel's end (RFC 5214)."""
    return int(address) >> 32 & 0xFDFFFFFF == 0x5EFE


def _bare(host: str) -> str:
    return host.strip().strip("[]").rstrip(".").lower()


def _refusal(host: str, why: str) -> StepError:
    message = (
        f"this server connects steps to public addresses only, and {host!r}: {why}; HAI_FLOW_HTTP_HOSTS allows more"
    )
    return StepError(message, code="http.refused", retriable=False)
