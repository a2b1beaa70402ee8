"""A start and an answer read nothing that their process knows already."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.settings import Settings
from hai_flow.store.catalog import workflows
from hai_flow.store.runs import logs
from tests.runtime.conftest import ASKING, Make, make  # noqa: F401 - a fixture
from tests.support.server import YAML

FLOW = (
    "hai: flow/v1\nname: asked\nversion: 1\ntitle: Sure\n" + ASKING + ASKING.partition("\n")[2].replace("sure", "more")
)
READS = ((workflows, "find_summary"), (workflows, "title_of"), (logs, "load_run_at"))


async def test_a_start_and_an_answer_read_nothing_that_is_known(
    make: Make,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime, counts = await make(), Counter[str]()

    def count(module: Any, name: str) -> None:
        real = getattr(module, name)

        def counted(*given: Any, **more: Any) -> Any:
            counts[name] += 1
            return real(*given, **more)

        monkeypatch.setattr(module, name, counted)

    for module, name in READS:
        count(module, name)
    transport = httpx2.ASGITransport(app=create_app(Settings(publish=True), runtime))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
        assert (await http.post("/v1/workflows", content=FLOW, headers=YAML)).status_code == 201
        for _ in range(2):
            run = (await http.post("/v1/runs", json={"workflow": "asked"})).json()
        assert counts == {"find_summary": 1}
        for number in range(2):
            body = {"workflow": "asked", "thread_id": f"named-{number}"}
            assert (await http.post("/v1/runs", json=body)).status_code == 201
            said: dict[str, Any] = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "Go."}]}
            said["metadata"] = {"hai-flow/workflow": "asked"}
            sent = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": said}}
            assert "result" in (await http.post("/a2a", json=sent, headers={"A2A-Version": "1.0"})).json()
        assert counts == {"find_summary": 1}
        (pending,) = (await http.get("/v1/pendings", params={"run_id": run["id"]})).json()["items"]
        counts.clear()
        answered = (await http.post(f"/v1/pendings/{pending['id']}/decide", json={"values": {"ok": True}})).json()
    assert (answered["status"], answered["workflow_title"]) == ("answered", "Sure")
    assert counts == {"load_run_at": 1}  # whether the caller may see the question
