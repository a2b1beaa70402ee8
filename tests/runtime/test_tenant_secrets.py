"""A secret is bound to workflows of its tenants: one of the same name in another tenant gets nothing of it."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from hai_flow.engine import commands as c
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.identity import tenants
from tests.runtime.conftest import Make
from tests.support.service import Received, Reply, Service
from tests.support.values import require
from tests.support.waiting import until

FILE = """
hai: secrets/v1
secrets:
  OURS: {hosts: [127.0.0.1], workflows: [refund]}
  ACME: {hosts: [127.0.0.1], tenants: [acme], workflows: [refund]}
  BOTH: {hosts: [127.0.0.1], tenants: [default, acme]}
  ALL: {hosts: [127.0.0.1], tenants: ["*"], workflows: [refund]}
"""
SECRETS = {name: f"value-of-{name.lower()}" for name in ("OURS", "ACME", "BOTH", "ALL")}
MAY = {
    ("default", "OURS"), ("default", "BOTH"), ("default", "ALL"),
    ("acme", "ACME"), ("acme", "BOTH"), ("acme", "ALL"),
    ("mallory", "ALL"),
}  # fmt: skip


async def tenant_of(runtime: Runtime, name: str) -> UUID:
    await tenants.create_tenant(runtime.database.api, name)
    return require(await tenants.find_tenant(runtime.database.api, name)).id


async def outcome(runtime: Runtime, tenant: UUID, source: str) -> str:
    """How a run of the workflow ends: finished, or the code of its error."""
    _, plan = await runtime.catalog.publish(tenant, source.encode())
    run_id = runtime.starts.new_id()
    start = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:ann", input={})
    await runtime.starts.start(tenant, plan, start)

    async def ended() -> str | None:
        state = require(await runtime.fanout.state_at(tenant, run_id, 2**53))
        if state.status == "finished":
            return "finished"
        return None if state.error is None else state.error.code

    return require(await until(ended))


@pytest.mark.parametrize("secret", SECRETS)
async def test_a_secret_goes_with_workflows_of_its_tenants_alone(make: Make, tmp_path: Path, secret: str) -> None:
    file = tmp_path / "secrets.yaml"
    file.write_text(FILE)
    sent: list[str] = []

    def hear(received: Received) -> Reply:
        sent.append(received.headers["x-key"])
        return Reply(200, b"{}")

    async with Service(hear) as service:
        runtime = await make(performs=True, secrets=SECRETS, secrets_file=file, http_hosts=("127.0.0.1",))
        assert await tenant_of(runtime, "default") == LOCAL_TENANT
        for name in ("default", "acme", "mallory"):
            tenant, before = await tenant_of(runtime, name), len(sent)
            key = f"${{{{ secrets.{secret} }}}}"
            step = f"{{id: a, http: {{get: '{service.url()}', headers: {{X-Key: '{key}'}}}}}}"
            source = f"hai: flow/v1\nname: refund\nversion: 1\nsteps: [{step}]\n"
            may = (name, secret) in MAY
            assert await outcome(runtime, tenant, source) == ("finished" if may else "secret.refused"), name
            assert sent[before:] == ([SECRETS[secret]] if may else []), name
