"""All that somebody is shown of a run: over every protocol and REST, by one word for each way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import httpx2

from tests.support.agui_client import AguiClient
from tests.support.aui_client import AuiClient
from tests.support.hai_client import unique

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
                    return _until(response, NEXT_WORD)
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
            case _:
                return self.get(who, f"/v1/runs/{self.run_id}").text


def _until(response: httpx2.Response, word: str) -> str:
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
