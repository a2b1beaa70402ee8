"""`hai-flow inbox` and `delegate`, over a real server."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import httpx2

from tests.support import commands
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People
from tests.support.receivers import mail_server
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
        assert "Nothing is waiting for you." in run(server, "inbox", "--as", other)
        assert "not assigned to you: user:req started this run" in run(
            server, "inbox", "--as", "user:req,role:cli_boss"
        )
        made = run(server, "delegate", other, "--for", "2d", "--as", me)
        assert "user:bob may decide for user:ann" in made
        assert "add --for user:ann" in run(server, "inbox", "--as", other)
        id = found[0]["id"]
        run(server, "decide", id, "approve", "--for", "user:ann", "--as", other)
        assert "(by user:bob for user:ann)" in run(server, "inbox", "--decided", "--as", me)
        assert "expected" in run(server, "delegate", other, "--for", "soon", "--as", me, code=2)


def test_delegations_are_listed_and_ended_by_both_sides_and_an_admin(database_url: str) -> None:
    with serving(database_url, environment=KEYS) as server:
        people = People(database_url)
        ann, ben, cat = (people.key(f"user:{name}", roles=["decider"])[1] for name in ("ann", "ben", "cat"))
        root = people.key("user:root", roles=["admin"])[1]

        def act(key: str, *arguments: str, code: int = 0) -> str:
            ended = commands.run(*arguments, "--server", server.url, HAI_FLOW_KEY=key)
            assert ended.returncode == code, ended.stderr
            return ended.stdout + ended.stderr

        for ending in (ann, ben, root):
            act(ann, "delegate", "user:ben", "--for", "2d", "--note", "at the sea")
            (made,) = json.loads(act(ben, "delegations", "list", "--json"))["items"]
            for key, more in ((ann, ()), (root, ("--all",))):
                shown = act(key, "delegations", "list", *more)
                assert all(each in shown for each in (made["id"], "user:ann", "user:ben", "at the sea"))
            assert "you decide for nobody" in act(cat, "delegations", "list")
            act(cat, "delegations", "list", "--all", code=1)
            assert "no delegation" in act(cat, "delegations", "end", made["id"], code=1)
            assert "has ended" in act(ending, "delegations", "end", made["id"])
            assert "No delegations" in act(root, "delegations", "list", "--all")
            assert "no delegation" in act(root, "delegations", "end", made["id"], code=1)
        day = datetime.now(UTC).date().isoformat()
        days = ("absences", "add", day, day, "--delegate", "user:ben", "--note", "at the sea")
        assert "user:ben decides for them" in act(ann, *days)
        assert "end that absence first" in act(root, *days, "--of", "user:ann", code=1)
        (absence,) = json.loads(act(ben, "absences", "list", "--json"))["items"]
        assert "at the sea" in act(root, "absences", "list", "--all")
        assert "Nobody is away" in act(cat, "absences", "list")
        assert "no absence" in act(cat, "absences", "end", absence["id"], code=1)
        assert "has ended" in act(ben, "absences", "end", absence["id"])


def test_show_says_whom_nobody_could_tell(database_url: str, tmp_path: Path) -> None:
    source = ASKING.replace("from: role:cli_boss", "from: role:cli_boss, notify: [email]")
    file = tmp_path / "notify.yaml"
    with mail_server() as box:
        box.refused = "ann@example.com"
        file.write_text(
            "hai: notify/v1\nchannels:\n"
            f"  email: {{kind: email, host: 127.0.0.1, port: {box.port}, security: none, from: flow@example.com}}\n"
            "people: {user:ann: {email: ann@example.com, roles: [cli_boss]}}\n"
        )
        with serving(database_url, environment={"HAI_FLOW_NOTIFY": str(file)}) as server:
            assert httpx2.post(f"{server.url}/v1/workflows", content=source, headers=YAML).status_code == 201
            body = {"workflow": "asks_cli", "thread_id": unique("cli")}
            started = httpx2.post(f"{server.url}/v1/runs", json=body, headers={"HAI-Act-As": "user:req"}).json()
            while "not told over" not in (shown := run(server, "show", started["id"])):
                pass
    assert "not told over email to user:ann, after 1 tries: the mail server refused the recipient (550)" in shown
