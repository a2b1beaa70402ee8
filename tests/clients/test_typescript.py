"""The TypeScript client against the real server: what its users do, over real sockets."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients import rig, typescript
from tests.clients.typescript import node, npm
from tests.support.hai_client import unique
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving

BINARY = "application/vnd.hai.event+msgpack"
GREETING = "HAI Flow keeps this conversation in PostgreSQL, so it can wait for you as long as you like."

Scenario = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return typescript.built(tmp_path_factory.mktemp("hai-client"))


@pytest.fixture
def play(package: Path, server: ServerProcess) -> Scenario:
    """Plays a scenario of test/live.mjs against the server."""

    def played(scenario: str, **fields: Any) -> dict[str, Any]:
        request = {"scenario": scenario, "url": server.url, **fields}
        return json.loads(node(package, "test/live.mjs", json.dumps(request)))

    return played


# --- the package --------------------------------------------------------------------------------------------------


def test_its_types_are_strict_and_its_own_tests_pass(package: Path) -> None:
    node(package, "node_modules/typescript/bin/tsc", "-p", "tsconfig.json")
    tests = sorted(str(path.relative_to(package)) for path in (package / "test").glob("*.test.ts"))
    node(package, "--test", "--test-timeout=20000", *tests)


def test_what_would_be_published_is_what_is_built_and_what_explains_it(package: Path) -> None:
    (packed,) = json.loads(node(package, npm(), "pack", "--dry-run", "--json", "--ignore-scripts"))
    files = {file["path"] for file in packed["files"]}
    assert {"package.json", "README.md", "LICENSE", "dist/index.js", "dist/index.d.ts"} <= files
    assert {path.split("/")[0] for path in files} == {"package.json", "README.md", "LICENSE", "dist", "example", "src"}


def test_what_would_be_published_is_imported_and_required_from_its_tarball(
    package: Path, server: ServerProcess, tmp_path: Path
) -> None:
    """Nothing else is installed there: what runs needs no other package."""
    installed = tmp_path / "node_modules" / "hai-client"
    (packed,) = json.loads(
        node(package, npm(), "pack", "--json", "--ignore-scripts", "--pack-destination", str(tmp_path))
    )
    with tarfile.open(tmp_path / packed["filename"]) as archive:
        archive.extractall(tmp_path, filter="data")
    installed.parent.mkdir()
    (tmp_path / "package").rename(installed)
    ask = f"""
      const agent = new HttpAgent({{ url: "{server.url}/workflows/weather/awp" }});
      agent.addMessage({{ id: "{unique("m")}", role: "user", content: "Berlin?" }});
      agent.runAgent().then(({{ result }}) => console.log(JSON.stringify(result)));
    """
    (tmp_path / "imports.mjs").write_text('import { HttpAgent } from "hai-client";' + ask)
    (tmp_path / "requires.cjs").write_text('const { HttpAgent } = require("hai-client");' + ask)
    for program in ("imports.mjs", "requires.cjs"):
        assert "weather" in json.loads(node(tmp_path, program))


# --- runs ---------------------------------------------------------------------------------------------------------


def test_a_run_is_started_followed_decided_controlled_and_forked(play: Scenario) -> None:
    told = play("runs", workflow="refund", input={"order": unique("A"), "amount": 60})
    assert (told["status"], told["types"][-1]) == ("finished", "run_finished")
    assert {"run_paused", "run_resumed", "pending_decided"} <= set(told["types"])
    assert told["log"] == ["pending_opened", "run_finished"]
    assert told["before"] == [1, 0]
    assert told["asked"] == ["waiting", True]
    assert told["rehearsed"][0]
    assert told["rehearsed"][2] in told["rehearsed"][1]
    assert (told["ended"], told["refused"]) == ("stopped", [409, "run_ended"])
    assert set(told["ids"]) <= set(told["found"])


# --- conversations ------------------------------------------------------------------------------------------------


def test_files_go_up_into_a_message_and_come_down_again(play: Scenario) -> None:
    told = play("files")
    file = told["file"]
    assert (file["size"], file["name"], file["mediaType"]) == (60_000, "Grüße.png", "image/png")
    assert (told["same"], told["type"]) == (True, "image/png")
    assert told["missing"] == ["HttpProblem", 404, "file_unknown"]
    assert told["shown"]["source"] == {"type": "file", "value": file["id"], "mimeType": "image/png"}


@pytest.mark.parametrize(("transport", "content_type"), [("sse", "text/event-stream"), ("binary", BINARY)])
def test_a_chat_comes_in_pieces_over_either_transport(play: Scenario, transport: str, content_type: str) -> None:
    told = play("chat", transport=transport)
    assert [answer.partition(";")[0] for answer in told["answers"]] == [content_type] * 2
    assert told["types"][0] == "RUN_STARTED"
    assert told["types"][-1] == "RUN_FINISHED"
    assert told["documents"] == told["types"].count("BUSINESS_DATA_CONTENT") > 4
    assert told["text"] == f"You said: 你好 }}{{. {GREETING}"
    assert told["result"] == {"answer": told["text"]}
    assert told["second"] == f"You said: again. {GREETING}"
    assert told["pendings"] == []


def test_a_frontend_tool_is_run_by_the_page_and_answered(play: Scenario) -> None:
    told = play("frontendTool")
    (pending,) = told["pendings"]
    assert (pending["kind"], pending["tool"], pending["arguments"]) == (
        "tool",
        "search_local_files",
        {"keyword": "报告"},
    )
    assert told["text"] == "找到了 2 个文件:2024年度报告.pdf 和 Q3报告.docx"
    assert told["left"] == []
    assert told["roles"] == ["user", "assistant", "tool", "assistant"]


def test_a_server_tool_is_seen_and_waits_for_nobody(play: Scenario) -> None:
    told = play("serverTool")
    assert told["heard"] == [["get_weather", {"city": "北京"}], "晴天,25°C"]
    assert told["text"] == "让我查一下北京今天晴天,25°C。"
    assert told["pendings"] == []


@pytest.mark.parametrize("advertised", [True, False], ids=["as calls", "as pendings"])
def test_two_approvals_are_given_one_after_the_other(play: Scenario, advertised: bool) -> None:
    told = play("approve", advertised=advertised)
    titles = {"Quality: ship v1.4.0?", "Security: ship v1.4.0?"}
    assert {(each["kind"], each["title"]) for each in told["asked"]} == {("approve", title) for title in titles}
    assert told["between"] == [told["asked"][1]["id"]]
    assert told["left"] == []
    assert [item["status"] for item in told["waiting"]["workflowItems"]] == ["running", "running", "pending"]
    assert [item["status"] for item in told["state"]["workflowItems"]] == ["done", "done", "done"]
    assert "v1.4.0 is live at" in told["text"]


def test_a_rejection_ends_what_the_other_question_waited_for(play: Scenario) -> None:
    told = play("reject")
    assert "Not released" in told["text"]
    assert told["left"] == []


# --- coming back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["sse", "binary"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_connection_that_is_cut_costs_no_word(play: Scenario, transport: str, times: int) -> None:
    told = play("cut", transport=transport, times=times)
    assert told["told"] >= 1
    assert told["text"] == f"You said: cut me. {GREETING}"
    assert told["roles"] == ["user", "assistant"]
    assert told["aborted"] is False
    assert "error" not in told


@pytest.mark.timeout(240)  # two servers have to start
def test_a_restart_of_the_server_costs_no_word(package: Path, postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn) as first:
        text = "stay with me" + " and with me" * 100  # it streams for seconds: the server ends in the middle of it
        request = json.dumps({"scenario": "restart", "url": first.url, "text": text, "pid": first.process.pid})
        command = [rig.node(), "test/live.mjs", request]
        with subprocess.Popen(command, cwd=package, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            assert client.stdout.readline() == "ended\n"  # by the client: this process may be late on a busy machine
            with serving(dsn) as second:
                out, _ = client.communicate(f"{second.url}\n", timeout=60)
    told = json.loads(out)
    assert client.returncode == 0
    assert told["reasons"]
    assert told["text"] == f"You said: {text}. {GREETING}"
    assert "error" not in told


def test_who_stopped_following_comes_back_to_the_same_run(play: Scenario) -> None:
    told = play("comeBack")
    assert told["aborted"] == [True, False]
    assert told["text"] == f"You said: wait for me. {GREETING}"
    assert told["roles"] == ["user", "assistant"]


def test_a_reloaded_page_is_shown_what_waits_and_approves_it(play: Scenario) -> None:
    told = play("reload")
    assert [each["id"] for each in told["pendings"]] == [told["call"]["id"]]
    assert told["pendings"][0]["arguments"] == {"action": "删除临时文件", "count": 15}
    assert told["shown"] == ["user", "assistant"]
    assert told["text"] == "已删除 15 个临时文件。"
    assert told["before"].endswith("已删除 15 个临时文件。")
    assert told["left"] == []


def test_what_is_refused_is_taken_back_and_the_thread_goes_on(play: Scenario) -> None:
    told = play("refused")
    assert told["problems"] == [[409, "thread_waiting", ["user"]], [409, "pending_decided", ["tool"]]]
    assert "已删除 15 个临时文件。" in told["text"]
    assert told["left"] == []
