"""Hints by a Redis that speaks TLS: heard where its certificate is trusted, refused with the reason where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_flow.errors import StoreError
from hai_flow.runtime.runtime import Runtime
from hai_flow.runtime.streams.redis_hints import RedisHints, probe
from tests.runtime.conftest import ECHO, Make, is_now, start
from tests.support.certificates import make_identity
from tests.support.redis_server import RedisServer, needs_redis_with_tls
from tests.support.waiting import until

pytestmark = needs_redis_with_tls


def _trusting(redis: RedisServer, authority: Path) -> str:
    return f"{redis.url}?prefix=tls&ssl_ca_certs={authority}"


async def _hears(runtime: Runtime) -> None:
    carrier = runtime.carrier
    assert isinstance(carrier, RedisHints)
    await until(lambda: carrier.listens)


async def test_a_worker_hears_over_tls_what_there_is_to_perform(make: Make, tmp_path: Path) -> None:
    identity = make_identity(tmp_path / "ours")
    with RedisServer(identity=identity, password="secret") as redis:
        hints = _trusting(redis, identity.authority)
        server, worker = await make(hints=hints), await make(hints=hints, performs=True, poll_seconds=60.0)
        await _hears(server)
        await _hears(worker)
        run_id = (await start(server, ECHO, input={"value": "v"})).run_id
        await until(lambda: is_now(server, run_id, "finished"))
        assert await probe(hints) >= 0


@pytest.mark.parametrize("trusted", ["another authority", "the system's"])
async def test_an_untrusted_certificate_is_refused_with_the_remedy(make: Make, tmp_path: Path, trusted: str) -> None:
    ours, others = make_identity(tmp_path / "ours"), make_identity(tmp_path / "others")
    with RedisServer(identity=ours, password="secret") as redis:
        hints = _trusting(redis, others.authority) if trusted == "another authority" else redis.url
        with pytest.raises(StoreError, match=r"certificate is not trusted.*ssl_ca_certs=FILE") as refused:
            await probe(hints)
        runtime = await make(hints=hints)
        await until(lambda: "not trusted" in str(runtime.carrier.fault))
        fault = str(runtime.carrier.fault)
        assert "HAI_FLOW_HINTS" in fault
        assert "secret" not in fault + str(refused.value)
        assert runtime.faults() == [], "a process without hints is slower, and ready"


async def test_a_certificate_for_another_address_is_refused(tmp_path: Path) -> None:
    """Of the right authority, but not this server's: who answers there is not who was meant."""
    identity = make_identity(tmp_path / "elsewhere", addresses=("127.0.0.2",))
    with (
        RedisServer(identity=identity) as redis,
        pytest.raises(StoreError, match=r"certificate is not trusted.*as its certificate does"),
    ):
        await probe(_trusting(redis, identity.authority))
