"""Runs that this server can't read, as operators see them."""

from __future__ import annotations

import httpx2

from tests.support.commands import run
from tests.support.postgres import Server, execute, run_apart
from tests.support.server import serving

REASON = "a newer release wrote it"


def test_an_unreadable_run_is_listed_as_needing_attention_with_a_reason(postgres_server: Server) -> None:
    with postgres_server.database() as dsn:
        with serving(dsn) as process, httpx2.Client(base_url=process.url, timeout=30) as http:
            id = http.post("/v1/runs", json={"workflow": "cleanup"}).json()["id"]
        run_apart(execute(dsn, "UPDATE runs SET abi = abi + 1, unreadable = $1", REASON))
        with serving(dsn) as process, httpx2.Client(base_url=process.url, timeout=30) as http:
            listed = http.get("/v1/runs", params={"status": "needs_attention"}).json()["items"]
            assert [(each["id"], each["unreadable"]) for each in listed] == [(id, REASON)]
            assert http.get(f"/v1/runs/{id}").json()["unreadable"] == REASON
            for refused in (http.get(f"/v1/runs/{id}/snapshot"), http.post(f"/v1/runs/{id}/pause", json={})):
                assert (refused.status_code, refused.json()["code"]) == (503, "run_unreadable")
                assert "newer release" in refused.json()["detail"]
            assert [each["run_id"] for each in http.get("/v1/pendings").json()["items"]] == [id]
            shown = run("show", id, HAI_FLOW_URL=process.url)
            assert shown.returncode == 0, shown.stderr
            assert f"unreadable\t{REASON}" in shown.stdout
            assert "needs_attention" in run("runs", HAI_FLOW_URL=process.url).stdout
