"""Adapters for agents of other frameworks: approve, deny, edit, expire, and killed while waiting."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hai_flow_client import Client

from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import serving

HOOK: Final = (sys.executable, "-m", "hai_flow_client.adapters.claude_code", "--from", "role:boss", "--edit")
CALL: Final = {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "make deploy"}}


class House:
    """A server, an agent's environment, and somebody who decides."""

    def __init__(self, url: str, people: People) -> None:
        self.url = url
        self.key = people.key("agent:bot", roles=["requester"])[1]
        self.boss = Client(url, key=people.key("user:ann", roles=["decider", "boss"])[1])

    def hook(self, call: dict[str, Any], *options: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "HAI_FLOW_URL": self.url, "HAI_FLOW_KEY": self.key}
        pipe = subprocess.PIPE
        process = subprocess.Popen([*HOOK, *options], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
        assert process.stdin is not None
        process.stdin.write(json.dumps(call))
        process.stdin.close()
        process.stdin = None
        return process

    def decide(self, action: str, decision: str, **more: Any) -> None:
        """Decide the question about this action, as soon as it is there."""
        for id in self.questions(action):
            self.boss.pendings.decide(self.boss.inbox.get(id), decision, **more)

    def questions(self, action: str) -> list[str]:
        """The ids of the questions about this action, as soon as there is one."""
        until = time.monotonic() + 60
        while True:
            items = [item for item in self.boss.inbox.list() if isinstance(item.args, dict)]
            if ids := [item.id for item in items if item.args["action"] == action]:
                return ids
            assert time.monotonic() < until, "nobody was asked"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def house(postgres_server: Server) -> Iterator[House]:
    with postgres_server.database() as dsn, serving(dsn, environment=KEYS) as server:
        house = House(server.url, People(dsn))
        yield house
        house.boss.close()


def answered(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    decision: dict[str, Any] = json.loads(out)["hookSpecificOutput"]
    return decision


def test_hook_allows_an_approved_call_with_its_edited_arguments(house: House) -> None:
    process = house.hook({**CALL, "tool_name": "Approved"})
    house.decide("Approved", "approve", edits={"arguments": {"command": "make test"}})
    decision = answered(process)
    assert (decision["permissionDecision"], decision["updatedInput"]) == ("allow", {"command": "make test"})


def test_hook_denies_what_people_reject_and_says_why(house: House) -> None:
    process = house.hook({**CALL, "tool_name": "Rejected"})
    house.decide("Rejected", "reject", reason="not on Fridays")
    decision = answered(process)
    assert (decision["permissionDecision"], decision["permissionDecisionReason"]) == (
        "deny",
        "rejected: not on Fridays",
    )


def test_hook_denies_what_nobody_decides_in_time(house: House) -> None:
    decision = answered(house.hook({**CALL, "tool_name": "Late"}, "--expires-in", "1s"))
    assert (decision["permissionDecision"], decision["permissionDecisionReason"]) == ("deny", "expired: deadline")


def test_hook_killed_while_waiting_resumes_its_approval_and_uses_it_once(house: House) -> None:
    call = {**CALL, "tool_name": "Killed", "tool_use_id": "toolu_1"}
    first = house.hook(call)
    house.decide("Killed", "approve")
    first.kill()
    first.communicate()
    decisions = [answered(house.hook(call))["permissionDecision"] for _ in range(2)]
    assert decisions.count("allow") <= 1
    assert decisions[1] == "deny"


def test_hook_blocks_where_nobody_can_be_asked(house: House) -> None:
    process = house.hook({"tool_name": "Bash"})
    _, error = process.communicate(timeout=60)
    assert (process.returncode, "nobody could be asked" in error) == (2, True)
