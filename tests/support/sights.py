"""All that somebody is shown of a run: over every protocol and REST, by one word for each way."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from tests.support.agui_client import AguiClient
from tests.support.aui_client import AuiClient
from tests.support.hai_client import unique
from tests.support.mcp_caller import FORMS, Caller

HEAD: Final = "00000000-0000-0000-0000-000000000000.social-1.0.0"
NEXT_WORD: Final = '"pendings"'


@dataclass
class Case:
    """A run that waits for its boss, and people with keys."""

    url: str
    headers: dict[str, dict[str, str]]
    thread_id: str
    run_id: str
    pending_id: str

    def get(self, who: str, path: str, **more: Any) -> httpx2.Response:
        return httpx2.get(self.url + path, headers={**self.headers[who], **more}, timeout=20)

    def post(self, who: str, path: str, body: Any) -> httpx2.Response:
        return httpx2.post(self.url + path, headers=self.headers[who], json=body, timeout=20)

    def agui(self, who: str) -> AguiClient:
        return AguiClient(self.url, self.thread_id, headers=self.headers[who])

    def over(self, who: str, way: str) -> str:
        """All that a person is shown of the thread, or of the run, over the protocol `way`."""
        streamed = {"Accept": "text/event-stream"}
        match way:
            case "hai" | "agui" | "social" | "aui" | "agent-api":
                return self.get(who, f"/v1/runs/{self.run_id}/events?dialect={way}", **streamed).text
            case "history":
                return self.get(who, f"/api/v1/agent/runs/{self.thread_id}/history").text
            case "stream" | "beginning":
                after = f"?after={HEAD}" if way == "beginning" else ""
                path = f"{self.url}/api/v1/agent/runs/{self.thread_id}/events{after}"
                with httpx2.stream("GET", path, headers=self.headers[who], timeout=20) as response:
                    return read_until(response, NEXT_WORD)
            case "socket":
                client = AuiClient(self.url, headers=self.headers[who], session_id=self.thread_id)
                client.until("aui_run_finished")
                return str(client.events)
            case "awp":
                body = {"threadId": self.thread_id, "runId": unique("reads"), "messages": [], "tools": []}
                return self.post(who, "/awp", body).text
            case "ag-ui":
                return self.agui(who).post().body.decode()
            case "connect":
                body = {"threadId": self.thread_id, "runId": unique("reads"), "messages": [], "tools": []}
                return self.post(who, "/cpk/agent/default/connect", body).text
            case "process":
                return self.post(who, "/process", {"input": [], "session_id": self.thread_id}).text
            case "snapshot":
                return self.get(who, f"/v1/runs/{self.run_id}/snapshot").text
            case "log":
                return self.get(who, f"/v1/runs/{self.run_id}/events?limit=1000").text
            case "mcp":
                return self._over_mcp(who)
            case "a2a" | "a2a of 0.3":
                return self._over_a2a(who, old=way != "a2a")
            case _:
                return self.get(who, f"/v1/runs/{self.run_id}").text

    def _over_mcp(self, who: str) -> str:
        with httpx2.Client(base_url=self.url, timeout=20) as http:
            caller = Caller(http, FORMS, **self.headers[who])
            read = []
            for tool in ("get_run", "wait_run", "list_pending"):
                more = {"seconds": 0} if tool == "wait_run" else {}
                caller.send("tools/call", {"name": tool, "arguments": {"run_id": self.run_id, **more}})
                read.append(caller.answered.text)
            for kind in (f"runs/{self.run_id}", f"runs/{self.run_id}/output", f"threads/{self.thread_id}"):
                caller.send("resources/read", {"uri": f"hai://{kind}"})
                read.append(caller.answered.text)
        return "\n".join(read)

    def _over_a2a(self, who: str, *, old: bool) -> str:
        headers, read = self.headers[who] | ({} if old else {"A2A-Version": "1.0"}), []
        id = {"id": self.run_id, "historyLength": 50}
        listed = ("ListTasks", {"contextId": self.thread_id, "includeArtifacts": True, "historyLength": 50})
        calls = [("tasks/get", id), ("tasks/resubscribe", id)] if old else [("GetTask", id), listed]
        for method, params in calls if old else [*calls, ("SubscribeToTask", id)]:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            with (
                contextlib.suppress(httpx2.TimeoutException),  # it follows the run
                httpx2.stream("POST", f"{self.url}/a2a", json=body, headers=headers, timeout=1) as response,
            ):
                read.extend(response.iter_text())
        return "".join(read)


def read_until(response: httpx2.Response, word: str) -> str:
    """The lines of a stream up to the first with the word."""
    lines = []
    for line in response.iter_lines():
        lines.append(line)
        if word in line:
            break
    return "\n".join(lines)


WAYS = (
    "hai", "agui", "social", "aui", "agent-api", "history", "stream", "beginning", "socket", "awp", "ag-ui", "connect",
    "process", "snapshot", "log", "run",
)  # fmt: skip
AGENTS: Final = ("mcp", "a2a", "a2a of 0.3")
"""The ways of agents, which show no evidence and not always what was said."""
