"""What runs below do and say is their thread's: nested steps and streamed messages, in every protocol, to any depth."""

from __future__ import annotations

import re
from typing import Any, Final

import httpx2
import pytest

from hai_flow.wire import DIALECTS
from hai_flow.wire.sse import CONTENT_TYPE
from tests.support.agui_client import AguiClient
from tests.support.hai_client import unique, user
from tests.support.server import YAML, ServerProcess

FLOWS: Final = {
    "stepped_2": """\
tools:
  fx: {python: tests.support.effects, effect: write}
steps:
  - {id: talk, call: fx.text, stream: text, with: {words: 40}}
  - id: each
    for_each: {items: [a, b], key: "${{ item }}", max_parallel: 1, steps: [{id: note, call: fx.echo, with: {value: 2}}]}
  - {say: done below}
""",
    "stepped_1": "steps:\n  - {id: inner, run: stepped_2}\n",
    "stepped": "steps:\n  - {id: sub, run: stepped_1}\n  - {say: done}\n",
}
STEPS: Final = [
    "+sub",
    "+sub/inner",
    "+sub/inner/talk",
    "-sub/inner/talk",
    "+sub/inner/each",
    "+sub/inner/each[a]/note",
    "-sub/inner/each[a]/note",
    "+sub/inner/each[b]/note",
    "-sub/inner/each[b]/note",
    "-sub/inner/each",
    "-sub/inner",
    "-sub",
]


@pytest.fixture(scope="module")
def flow(server: ServerProcess) -> str:
    for name, body in FLOWS.items():
        source = f"hai: flow/v1\nname: {name}\nversion: 1\n{body}"
        response = httpx2.post(f"{server.url}/v1/workflows", content=source, headers=YAML)
        assert response.status_code in (200, 201), response.text
    return "stepped"


def edges(events: list[dict[str, Any]]) -> list[str]:
    """The steps that begin (+) and end (-), in order."""
    signs = {"STEP_STARTED": "+", "STEP_FINISHED": "-"}
    found = [signs[each["type"]] + each["stepName"] for each in events if each.get("type") in signs]
    for each in events:
        if each.get("type") == "aui_activity_snapshot" and each["name"] == each["activity_id"]:
            found.append(("+" if each["status"] == "running" else "-") + each["name"])
    return found


def replayed(http: httpx2.Client, run_id: str, dialect: str) -> list[dict[str, Any]]:
    headers = {"Accept": CONTENT_TYPE}
    get = httpx2.get if dialect in ("aui", "agent-api") else http.get  # which are no dialects of the linter
    response = get(f"{http.base_url}/v1/runs/{run_id}/events", params={"dialect": dialect}, headers=headers)
    assert response.status_code == 200, response.text
    lines = [line.partition(": ")[2] for line in response.text.splitlines() if line.startswith("data: ")]
    return [httpx2.Response(200, text=line).json() for line in lines]


def test_the_steps_of_runs_below_are_nested_in_the_step_that_runs_them(
    server: ServerProcess, http: httpx2.Client, flow: str
) -> None:
    thread_id = unique("stepped")
    stream = AguiClient(server.url, thread_id, workflow=flow).post(user("go"))
    assert edges(stream.events) == STEPS
    assert "word 0 word 1 word 2 " in stream.text()
    assert stream.text().endswith("done belowdone")
    (root,) = [
        each
        for each in http.get("/v1/runs", params={"thread_id": thread_id}).json()["items"]
        if each["workflow"] == flow
    ]
    for dialect in DIALECTS.keys() - {"log"}:
        events = replayed(http, root["id"], dialect)
        shown = edges(events)
        assert shown == (STEPS if dialect != "agent-api" else []), dialect
        assert re.search("word 0 .*word 1 .*word 2 ", str(events)), dialect  # in as many pieces as it came in
