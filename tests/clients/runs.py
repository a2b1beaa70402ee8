"""What the server itself says of a thread: its runs, and a run's log. The judge of what a client only claims."""

from __future__ import annotations

from typing import Any

import httpx2


def runs_of(http: httpx2.Client, thread_id: str) -> list[dict[str, Any]]:
    """The runs of a thread, newest first."""
    return http.get("/v1/runs", params={"thread_id": thread_id}).json()["items"]


def run_of(http: httpx2.Client, thread_id: str) -> dict[str, Any]:
    runs = runs_of(http, thread_id)
    assert len(runs) == 1, runs
    return runs[0]


def snapshot(http: httpx2.Client, thread_id: str) -> dict[str, Any]:
    """All that the thread's only run is."""
    return http.get(f"/v1/runs/{run_of(http, thread_id)['id']}/snapshot").json()


def log_of(http: httpx2.Client, thread_id: str) -> list[dict[str, Any]]:
    """The events of the thread's only run."""
    page = http.get(f"/v1/runs/{run_of(http, thread_id)['id']}/events", params={"limit": 500}).json()
    assert page["next_cursor"] is None, "the log is longer than one page"
    return page["items"]


def decisions(http: httpx2.Client, thread_id: str) -> list[str]:
    """What was decided on each pending, in order."""
    return [each["status"] for each in snapshot(http, thread_id)["pendings"]]


def performed(http: httpx2.Client, thread_id: str, step: str) -> int:
    """How many attempts of a step were begun; one that waits for an approval has begun none."""
    return snapshot(http, thread_id)["steps"][step]["attempt"]
