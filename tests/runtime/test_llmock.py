"""Models behind a server that somebody else wrote, which breaks on demand and judges its client: llmock."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from hai_flow.engine.state.state import RunState
from hai_flow.runtime.runtime import Runtime
from tests.clients import rig
from tests.runtime.conftest import Make, is_now, start, state_of
from tests.support.waiting import until

PROJECT: Final = Path(__file__).resolve().parents[1] / "clients" / "llmock"
USE: Final = "models: {smart: {use: smart}}\n"
RETRY: Final = "retry: {max: 3, every: 20ms, jitter: false}"
ASK: Final = (
    USE + f"steps: [{{id: a, llm: {{model: smart, prompt: Tea?}}, {RETRY}}}]\noutput: ${{{{ steps.a.output }}}}\n"
)


class Mock:
    """The server: `breaks` says how its next answers go wrong, `faults` what it found wrong with who asked."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def breaks(self, *behaviors: dict[str, Any]) -> None:
        await self._ask("POST", "scenario", json={"behaviors": list(behaviors)})

    async def faults(self) -> list[str]:
        found = (await self._ask("GET", "verdict")).json()["findings"]
        return [each["code"] for each in found if each["severity"] == "error"]

    async def forget(self) -> None:
        await self._ask("POST", "reset")

    async def _ask(self, method: str, path: str, **body: Any) -> httpx2.Response:
        async with httpx2.AsyncClient() as http:
            return (await http.request(method, f"{self.url}/_llmock/{path}", **body)).raise_for_status()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    program = rig.python_packages(PROJECT) / "bin" / "llmock"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program, "serve", "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
async def mock(server: str) -> Mock:
    found = Mock(server)
    async with asyncio.timeout(60):
        while True:
            try:
                await found.forget()
                return found
            except httpx2.TransportError:
                await asyncio.sleep(0.05)


async def made_with(make: Make, mock: Mock, folder: Path) -> Runtime:
    file = folder / "models.yaml"
    place = f"provider: openai, base_url: '{mock.url}/v1', model: gpt-4o, api_key: '${{{{ secrets.K }}}}'"
    model = f"{{{place}, timeout: {{idle: 2s}}}}"
    file.write_text(f"hai: models/v1\nmodels: {{smart: {model}}}\n")
    return await make(performs=True, models=file, secrets={"K": "sk-1"}, http_hosts=("127.0.0.1",))


async def outcome(runtime: Runtime, document: str) -> RunState:
    run_id = (await start(runtime, document)).run_id
    await until(lambda: is_now(runtime, run_id, "finished", "failed"), 60)
    return await state_of(runtime, run_id)


@pytest.mark.costly
async def test_a_client_that_is_told_to_wait_waits(make: Make, mock: Mock, tmp_path: Path) -> None:
    runtime = await made_with(make, mock, tmp_path)
    await mock.breaks({"type": "fail", "status": 429, "retry_after": 1, "times": 2})
    state = await outcome(runtime, ASK)
    assert (state.status, state.steps["a"].attempt) == ("finished", 3)
    assert await mock.faults() == []


@pytest.mark.parametrize("kind", ["truncate", "disconnect", "malformed", "stall"])
async def test_a_stream_that_breaks_is_asked_for_again_and_nothing_of_it_is_kept(
    make: Make, mock: Mock, tmp_path: Path, kind: str
) -> None:
    runtime = await made_with(make, mock, tmp_path)
    await mock.breaks(
        {"type": "reply", "text": "A whole answer of several words.", "times": 2},
        {"type": "stream_fault", "kind": kind, "after_chunks": 2},
    )
    state = await outcome(runtime, ASK)
    assert (state.output, state.steps["a"].attempt) == ("A whole answer of several words.", 2)
    assert await mock.faults() == []


async def test_what_asking_again_does_not_mend_is_asked_once(make: Make, mock: Mock, tmp_path: Path) -> None:
    runtime = await made_with(make, mock, tmp_path)
    await mock.breaks({"type": "fail", "status": 401})
    state = await outcome(runtime, ASK)
    assert state.error is not None
    assert (state.error.code, state.steps["a"].attempt) == ("llm.not_configured", 1)
    assert await mock.faults() == []
