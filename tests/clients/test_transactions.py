"""`start_in` and `send_in` with connections of psycopg, which is no dependency of ours (docs/transactions.md)."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Final

from tests.clients import rig
from tests.clients.test_frameworks import PROJECT
from tests.runtime.test_deposits import Shop, shop
from tests.support.postgres import fetch_value
from tests.support.server import ROOT

__all__ = ["shop"]

PROGRAM: Final = """
import asyncio, sys
import psycopg
from hai_flow_client import send_in, start_in
with psycopg.connect(sys.argv[1]) as connection:
    print(start_in(connection, "shipping", {"order": 1}, tenant="acme"))
    send_in(connection, "order.paid", {"order": 1}, tenant="acme")
    connection.commit()
    start_in(connection, "shipping", {"order": 2}, tenant="acme")
    connection.rollback()
async def main():
    async with await psycopg.AsyncConnection.connect(sys.argv[1]) as connection:
        print(await start_in(connection, "shipping", {"order": 3}, tenant="acme"))
        await connection.commit()
        await send_in(connection, "order.paid", {"order": 3}, tenant="acme")
        await connection.rollback()
asyncio.run(main())
"""


async def test_connections_of_psycopg_deposit_with_their_transaction_alone(shop: Shop) -> None:
    python = rig.python_packages(PROJECT) / "bin" / "python"
    environment = {"PYTHONPATH": str(ROOT / "clients" / "python"), "PATH": "/usr/bin:/bin"}
    command = [str(python), "-c", PROGRAM, shop.own]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    stored = "SELECT array_agg(DISTINCT id::text) FROM deposits WHERE kind = 'start'"
    assert sorted(await fetch_value(shop.dsn, stored)) == sorted(done.stdout.split())
    kinds = "SELECT array_agg(kind ORDER BY kind) FROM deposits"
    assert await fetch_value(shop.dsn, kinds) == ["send", "start", "start"]
