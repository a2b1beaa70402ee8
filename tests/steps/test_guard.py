"""Where steps may connect to: the corpus of addresses that only look like others, and names that change their mind."""

from __future__ import annotations

import ipaddress

import pytest

from hai_flow.errors import StepError
from hai_flow.steps.http.egress import EgressGuard, is_public

PRIVATE = [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.169.254", "100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::", "2001:0:808:808:0:0:80ff:fffe", "fe80::1",
    "fe80::1%eth0", "2606:4700::1111%eth0", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "ff0e::1", "2001:db8::1",
    "100::1",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"]

# What the resolver of every system takes for 127.0.0.1, 169.254.169.254 or 10.0.0.1.
WRITTEN_OTHERWISE = [
    "2130706433", "0x7f000001", "0x7f.1", "127.1", "127.0.1", "0177.0.0.1", "017700000001", "0x7F.0x0.0x0.0x1",
    "2852039166", "0xa9fea9fe", "169.254.43518", "0251.0xfe.0xa9fe", "167772161", "012.0.0.1",
    "localhost", "LOCALHOST", "localhost.", "127.0.0.1.", "[::1]", "[::ffff:7f00:1]",
]  # fmt: skip


@pytest.mark.parametrize("text", PRIVATE)
def test_what_is_not_for_everybody_is_not_public(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_what_is_for_everybody_is(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


def guard_of(answers: dict[str, list[str]], *allowed: str) -> EgressGuard:
    async def resolve(host: str, port: int) -> list[str]:
        return answers[host]

    return EgressGuard(allowed, resolve)


async def code_of(guard: EgressGuard, host: str) -> str:
    with pytest.raises(StepError) as raised:
        await guard.address(host, 80)
    assert raised.value.retriable is (raised.value.code == "http.connection")
    return raised.value.code


@pytest.mark.parametrize("host", WRITTEN_OTHERWISE)
async def test_no_way_to_write_an_address_gets_past_the_systems_own_resolver(host: str) -> None:
    code = await code_of(EgressGuard(), host)
    assert code in ("http.refused", "http.connection"), "a system that can't read it does not connect either"


@pytest.mark.parametrize("text", PRIVATE)
async def test_a_name_of_such_an_address_is_refused(text: str) -> None:
    assert await code_of(guard_of({"good.example": [text]}), "good.example") == "http.refused"


async def test_one_bad_address_among_several_is_enough() -> None:
    assert await code_of(guard_of({"a.example": ["8.8.8.8", "10.0.0.1"]}), "a.example") == "http.refused"
    assert await code_of(guard_of({"a.example": []}), "a.example") == "http.connection"


async def test_the_deployment_allows_names_addresses_and_networks() -> None:
    answers = {
        "erp.internal": ["10.1.2.3"],
        "a.lab": ["10.9.9.9"],
        "lab": ["10.9.9.9"],
        "x": ["10.2.0.1"],
        "y": ["::1"],
    }
    guard = guard_of(answers, "ERP.internal", "*.lab", "10.2.0.0/16")
    assert await guard.address("erp.INTERNAL.", 80) == "10.1.2.3"
    assert await guard.address("a.lab", 80) == "10.9.9.9"
    assert await guard.address("x", 80) == "10.2.0.1"
    assert await code_of(guard, "lab") == "http.refused"
    assert await code_of(guard, "y") == "http.refused"
