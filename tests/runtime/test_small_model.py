"""A real model, small enough for a laptop: whole runs with it. Optional (`make test-model`).

What a model of this size says is nobody's business; that it streams, is counted, obeys a schema and ends is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hai_flow.engine import events as e
from hai_flow.runtime.runtime import Runtime
from tests.runtime.conftest import Connection, Make, is_now, start, state_of
from tests.support import small_model
from tests.support.ledger import log_of
from tests.support.waiting import until

PYTHON = os.environ.get("TEST_MODEL_PYTHON", "")
FLOW = """\
models: {small: {use: small}}
tools: {free: {python: "tests.support.effects:echo", effect: read}}
limits: {tokens: 4000}
steps:
  - {id: hello, llm: {model: small, prompt: Say hello.}}
  - id: mood
    llm:
      model: small
      prompt: "Is this sentence happy or sad? I won the lottery."
      output: {type: object, additionalProperties: false, required: [mood], properties: {mood: {enum: [happy, sad]}}}
  - {id: chat, agent: {model: small, prompt: Name a colour., tools: [free], max_turns: 3}}
output: {mood: "${{ steps.mood.output.mood }}", said: "${{ steps.chat.output }}"}
"""


@pytest.fixture
def url() -> Iterator[str]:
    """The address of the model's server."""
    if not PYTHON:
        pytest.skip("no model is installed: `make test-model` installs one and runs this")
    command = [PYTHON, small_model.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        assert address.startswith("http://"), "the model did not start"
        try:
            yield address
        finally:
            process.stdin.close()
            process.kill()


async def model_runtime(make: Make, tmp_path: Path, url: str) -> Runtime:
    models = tmp_path / "models.yaml"
    params = "{temperature: 0, max_tokens: 60}"
    small = f"{{provider: llamacpp, base_url: '{url}/v1', model: small, params: {params}}}"
    models.write_text(f"hai: models/v1\nmodels:\n  small: {small}\n")
    return await make(performs=True, models=models)


@pytest.mark.timeout(600)
async def test_a_run_with_a_real_model_streams_is_counted_and_ends(
    url: str, make: Make, eye: Connection, tmp_path: Path
) -> None:
    runtime = await model_runtime(make, tmp_path, url)
    run_id = (await start(runtime, FLOW)).run_id
    await until(lambda: is_now(runtime, run_id, "finished", "failed"), 300)
    state = await state_of(runtime, run_id)
    log = await log_of(eye, run_id)
    used = [event.use for event in log if isinstance(event, e.ModelUsed)]
    assert used
    assert all(use.input > 0 and not use.estimated for use in used)
    hello = next(message for message in state.messages.values() if message.path == "hello")
    assert hello.content
    assert hello.chunks > 1, "it came in pieces"
    if state.status == "finished":
        assert state.output["mood"] in ("happy", "sad")
        assert isinstance(state.output["said"], str)
    else:  # it talks until it is cut off: then nothing of it counts
        assert state.error is not None
        assert state.error.code == "llm.truncated"
