"""Addresses that are no host of the public internet, in whatever release of Python."""

from __future__ import annotations

import ipaddress

import pytest

from hai_flow.steps.http.egress import is_public


@pytest.mark.parametrize(
    "address",
    [
        "168.63.129.16",
        "192.0.0.8",
        "192.88.99.1",
        "3fff::1",
        "5f00::1",
        "2001:db8::1",
        "::ffff:168.63.129.16",
        "2001:470::5efe:a9fe:a9fe",
        "2001:470::200:5efe:a9fe:a9fe",
    ],
)
def test_a_special_address_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "168.63.129.17", "2606:4700::1"])
def test_a_public_address_is(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
