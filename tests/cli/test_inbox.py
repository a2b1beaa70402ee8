"""`hai-flow inbox` and `delegate`, over a real server."""

from __future__ import annotations

import json

import httpx2

from tests.support import commands
from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess, serving

ASKING = """
hai: flow/v1
name: asks_cli
version: 1
steps:
  - {id: go, approve: {title: Spend it?, from: role:cli_boss}}
"""


def run(server: ServerProcess, *arguments: str, code: int = 0) -> str:
    ended = commands.run(*arguments, "--server", server.url)
    assert ended.returncode == code, ended.stderr
    return ended.stdout + ended.stderr


def test_what_asks_me_is_listed_decided_by_my_delegate_and_remembered(database_url: str) -> None:
    me, other = "user:ann,role:cli_boss", "user:bob"
    with serving(database_url) as server:
        assert httpx2.post(f"{server.url}/v1/workflows", content=ASKING, headers=YAML).status_code == 201
        body = {"workflow": "asks_cli", "thread_id": unique("cli")}
        httpx2.post(f"{server.url}/v1/runs", json=body, headers={"HAI-Act-As": "user:req"})
        while not (found := json.loads(run(server, "inbox", "--as", me, "--json"))["items"]):
            pass
        shown = run(server, "inbox", "--as", me, "--workflow", "asks_cli")
        assert "Spend it?" in shown
        assert "Nothing waits for you." in run(server, "inbox", "--as", other)
        assert "not yours to decide: user:req started this run" in run(
            server, "inbox", "--as", "user:req,role:cli_boss"
        )
        made = run(server, "delegate", other, "--for", "2d", "--as", me)
        assert "user:bob may decide for user:ann" in made
        assert "add --for user:ann" in run(server, "inbox", "--as", other)
        id = found[0]["id"]
        run(server, "decide", id, "approve", "--for", "user:ann", "--as", other)
        assert "(by user:bob for user:ann)" in run(server, "inbox", "--decided", "--as", me)
        assert "expected" in run(server, "delegate", other, "--for", "soon", "--as", me, code=2)
