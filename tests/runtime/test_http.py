"""`http` in a real run: its secrets stand in nothing that anybody reads, and its expressions see the run."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
import structlog

from hai_flow.cli.serve.logs import configure_logs
from hai_flow.runtime.runtime import Runtime
from tests.runtime.conftest import Connection, Make, is_now, start, state_of
from tests.support.service import Received, Reply, Service
from tests.support.waiting import until

CANARY = "canary-5f2c81"


async def runtime_of(make: Make, tmp_path: Path) -> Runtime:
    file = tmp_path / "secrets.yaml"
    file.write_text("hai: secrets/v1\nsecrets: {TOKEN: {hosts: [127.0.0.1]}}\n")
    return await make(performs=True, secrets={"TOKEN": CANARY}, secrets_file=file, http_hosts=("127.0.0.1",))


def step(service: Service, more: str = "") -> str:
    return f"{{id: a, http: {{get: '{service.url()}', headers: {{X-Key: 'k ${{{{ secrets.TOKEN }}}}'}}{more}}}}}"


@pytest.mark.parametrize("status", [200, 400, 500])
async def test_no_sink_holds_a_secret_even_if_the_service_repeats_it(
    status: int, make: Make, eye: Connection, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def echo(received: Received) -> Reply:
        said = {"you": received.headers["x-key"], received.headers["x-key"]: [CANARY]}
        return Reply(status, json.dumps(said).encode(), headers=(("X-Echo", CANARY),))

    configure_logs("debug")
    try:
        async with Service(echo) as service:
            runtime = await runtime_of(make, tmp_path)
            body = f"steps: [{step(service)}]\noutput: ${{{{ steps.a.output }}}}\n"
            run_id = (await start(runtime, body)).run_id
            await until(lambda: is_now(runtime, run_id, "finished", "failed"))
            state = await state_of(runtime, run_id)
        assert service.received[0].headers["x-key"] == f"k {CANARY}"
        assert CANARY not in repr(state)
        structlog.get_logger().error("told", quoted=f"it was {CANARY}", exc_info=ValueError(CANARY))
    finally:
        structlog.reset_defaults()
    tables = await eye.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert len(tables) > 5
    for (table,) in tables:
        rows = await eye.fetch(f'SELECT t::text FROM "{table}" t')
        assert CANARY not in repr(rows), table
        assert CANARY.encode().hex() not in repr(rows), table
    told = capfd.readouterr()
    assert "[secret]" in told.err
    assert CANARY not in told.err + told.out


async def test_expect_and_next_see_the_run(make: Make, tmp_path: Path) -> None:
    def answer(received: Received) -> Reply:
        last = received.target == "/?page=2"
        return Reply(body=json.dumps({"n": 2 if last else 1, "next": None if last else "/?page=2"}).encode())

    async with Service(answer) as service:
        runtime = await runtime_of(make, tmp_path)
        first = "input: {type: object, properties: {most: {type: integer, default: 2}}}\n"
        more = ", expect: 'response.json.n <= double(input.most)', next: '${{ response.json.next }}'"
        body = first + f"steps: [{step(service, more)}]\noutput: ${{{{ steps.a.output.json }}}}\n"
        run_id = (await start(runtime, body)).run_id
        await until(lambda: is_now(runtime, run_id, "finished", "failed"))
        state = await state_of(runtime, run_id)
        assert [page["n"] for page in state.output] == [1, 2]
        other = (await start(runtime, body, input={"most": 1})).run_id
        await until(lambda: is_now(runtime, other, "failed"))
        error = (await state_of(runtime, UUID(str(other)))).error
    assert error is not None
    assert (error.code, error.retriable) == ("http.expect", True)
