"""agentscope-runtime's own client over POST /process: chat, tools, approvals."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx2
import pytest

from tests.clients import rig
from tests.clients.agent_api import Session, approval, output, user
from tests.clients.runs import decisions, performed, run_of
from tests.support.server import ServerProcess

pytestmark = pytest.mark.timeout(600)  # the first test waits for the packages


NewSession = Callable[[str], Session]


@pytest.fixture
def session(agentscope_driver: rig.Driver, server: ServerProcess) -> NewSession:
    return lambda workflow: Session(agentscope_driver, server.url, workflow)


@pytest.mark.parametrize("way", ["astream", "stream"])
def test_a_chat_streams_deltas_and_ends_with_the_whole_text(session: NewSession, way: str) -> None:
    response = session("chat").post(user("你好"), way=way)
    deltas = [event["text"] for event in response.events if event["class"] == "TextContent" and event["delta"]]
    assert len(deltas) > 2
    assert response.said == ["".join(deltas)]
    assert response.said[0].startswith("You said: 你好. ")
    assert response.last["status"] == "completed"
    assert response.last["session_id"]


def test_a_server_tool_is_a_plugin_call_with_its_output(session: NewSession) -> None:
    response = session("weather").post(user("北京"))
    call, result = response.data("plugin_call")[0], response.data("plugin_call_output")[0]
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "北京"})
    assert (result["call_id"], "晴天,25°C" in result["output"]) == (call["call_id"], True)
    assert response.said == ["让我查一下", "北京今天晴天,25°C。"]


def test_a_clients_tool_leaves_the_response_incomplete_until_its_output(
    session: NewSession, http: httpx2.Client
) -> None:
    talk = session("search_files")
    asked = talk.post(user("帮我搜索本地的报告文件"))
    assert asked.last["status"] == "incomplete"
    call = asked.data("function_call")[0]
    assert (call["name"], json.loads(call["arguments"])) == ("search_local_files", {"keyword": "报告"})
    answered = talk.post(output(call["call_id"], '["a.pdf"]'))
    assert (answered.last["status"], answered.said[-1]) == ("completed", "找到了 1 个文件:a.pdf")
    assert run_of(http, talk.session_id)["status"] == "finished"


@pytest.mark.parametrize(("approve", "said"), [(True, "Deleted 2 files."), (False, "Nothing was deleted.")])
def test_a_gate_is_an_approval_request_and_the_answer_decides_it(
    session: NewSession, http: httpx2.Client, approve: bool, said: str
) -> None:
    talk = session("purge")
    asked = talk.post(user("tidy up"))
    assert asked.last["status"] == "incomplete"
    request = asked.data("mcp_approval_request")[0]
    question = json.loads(request["arguments"])
    assert (question["tool"], question["arguments"]) == ("files.delete_files", {"folder": "inbox", "count": 2})
    assert (request["name"], request["server_label"]) == ("files.delete_files", "purge")
    assert performed(http, talk.session_id, "purge") == 0
    answered = talk.post(approval(request["id"], approve, "because"))
    assert (answered.last["status"], answered.said[-1]) == ("completed", said)
    assert decisions(http, talk.session_id) == ["approve" if approve else "reject"]
    assert performed(http, talk.session_id, "purge") == int(approve)


def test_an_approval_of_another_session_decides_nothing(session: NewSession, http: httpx2.Client) -> None:
    theirs, mine = session("purge"), session("purge")
    request = theirs.post(user("tidy up")).data("mcp_approval_request")[0]
    mine.post(user("tidy up"))
    mine.post(approval(request["id"], True))
    assert decisions(http, theirs.session_id) == ["open"]
    assert decisions(http, mine.session_id) == ["open"]
