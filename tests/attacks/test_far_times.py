"""Times at the ends of the calendar: a client's error, or an answer, on each route that takes one."""

from __future__ import annotations

from typing import Final

import httpx2
import pytest

from tests.support.server import ServerProcess

TIMES: Final = [
    "9999-12-31T23:00:00Z",
    "9999-12-31T23:00:00-23:00",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:00",
]


@pytest.mark.parametrize("time", TIMES)
def test_a_time_at_the_end_of_the_calendar_is_no_error_of_the_server(server: ServerProcess, time: str) -> None:
    later = "2999-01-01T00:00:00Z"
    with httpx2.Client(base_url=server.url, timeout=30) as client:
        answers = [
            client.post("/v1/inbox/delegations", json={"to": "user:eve", "since": time, "until": later}),
            client.post("/v1/inbox/delegations", json={"to": "user:eve", "since": time, "until": time}),
            client.post("/v1/inbox/delegations", json={"to": "user:eve", "until": time}),
            client.post(
                "/v1/inbox/delegations", json={"to": "user:eve", "since": "9999-12-01T00:00:00Z", "until": time}
            ),
            client.post("/v1/runs/bulk", json={"action": "pause", "dry_run": True, "where": {"created_after": time}}),
            client.post("/v1/runs/bulk", json={"action": "pause", "dry_run": True, "where": {"created_before": time}}),
            client.get("/v1/runs", params={"created_after": time}),
            client.get("/v1/inbox", params={"before": time}),
            client.get("/v1/audit", params={"since": time, "until": time}),
        ]
    found = [(each.request.url.path, each.status_code, each.text[:200]) for each in answers if each.status_code >= 500]
    assert found == []
