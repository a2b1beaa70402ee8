"""The examples end to end: a development server over a real database, tools of one's own, people by header and `--as`.

Each story is told with the server killed between any two things that happen; each night undisturbed, too. What comes
out is the same."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.support.commands import ROOT, Process, run, started
from tests.support.examples import NIGHTLY
from tests.support.waiting import wait_for

pytestmark = pytest.mark.costly

# Every service keeps one entry for each idempotency key, however often it is asked.
TOOLS = """
import pathlib, time
from hai_flow.errors import StepError
from hai_flow.steps.tools import Context

HOME = pathlib.Path(__file__).parent

def note(context, *words):
    name = context.idempotency_key.replace("/", "_") + "." + words[0]
    (HOME / "ledger" / name).write_text(" ".join(map(str, words)))

def to_eur(amount: float, currency: str) -> dict:
    return {"eur": amount * {"EUR": 1, "USD": 0.9}[currency]}

def send(to: str, subject: str, body: str, context: Context) -> dict:
    note(context, "mail", to, body)
    return {"sent": True}

def book_expense(employee: str, amount: float, cost_center: str, context: Context) -> dict:
    note(context, "book", employee, amount, cost_center)
    return {"booking_id": "B-1"}

def deploy_canary(service: str, release: str, context: Context) -> dict:
    note(context, "deploy", service, release)
    (HOME / "deploying").touch()
    while not (HOME / "go").exists():
        time.sleep(0.02)
    return {"previous_release": "v1.0.0"}

def rollback(service: str, to: str, context: Context) -> dict:
    note(context, "rollback", service, to)
    return {}

def health(service: str, most: float) -> dict:
    if service == "sick":
        raise StepError("too many errors", data={"error_rate": 0.2})
    return {"error_rate": 0.001}

def deploy(release: str, context: Context) -> dict:
    note(context, "ship", release)
    return {"url": "https://example.com"}

def promote(service: str, release: str, context: Context) -> dict:
    note(context, "promote", service, release)
    return {}
"""

# Our own tools, and waits that a test can wait for. Deadlines stay: only the story about one shortens it.
CHANGES: Final = {
    "python: hai_flow.examples": "python: acme",
    "wait: {for: 10m}": "wait: {for: 2s}",
    "every: 30s": "every: 1s",
}

EVE: Final = {"HAI-Act-As": "user:eve"}
EXPENSE: Final = {"employee": "eve", "amount": 900, "currency": "EUR", "reason": "train"}


class House:
    """`dev` in a folder of its own. `disturb` kills it and starts it again, if this house is one that is disturbed."""

    def __init__(self, home: Path, database_url: str, disturbed: bool, **settings: str) -> None:
        self.home = home
        self.disturbed = disturbed
        self._settings = {
            "HAI_FLOW_DATABASE_URL": database_url,
            "HAI_FLOW_LEASE_SECONDS": "1.5",
            "HAI_FLOW_HEARTBEAT_SECONDS": "0.5",
            "HAI_FLOW_POLL_SECONDS": "0.2",
            **settings,
        }
        self._stack = ExitStack()
        self._lives = 0
        self._dev: Process | None = None
        self.url = ""

    def start(self) -> None:
        self._lives += 1
        arguments = ("dev", "--port", "0", "--workflows", str(self.home / "workflows"), "--no-open")
        self._dev = self._stack.enter_context(
            started(self.home / f"log{self._lives}", *arguments, folder=self.home, **self._settings)
        )
        self.url = self._dev.wait_for(r"Serving (http://\S+)")[1]

    def kill(self) -> None:
        assert self._dev is not None
        self._dev.end(signal.SIGKILL)

    def disturb(self) -> None:
        if self.disturbed:
            self.kill()
            self.start()

    def close(self) -> None:
        self._stack.close()

    # --- what people do

    def begin(self, workflow: str, **values: Any) -> str:
        response = httpx2.post(f"{self.url}/v1/runs", json={"workflow": workflow, "input": values}, headers=EVE)
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    def by_header(self, pending: str, who: str, code: int = 200, **answer: Any) -> Any:
        response = httpx2.post(f"{self.url}/v1/pendings/{pending}/decide", json=answer, headers={"HAI-Act-As": who})
        assert response.status_code == code, response.text
        return response.json()

    def by_command(self, pending: str, decision: str, who: str, *more: str, code: int = 0) -> Any:
        answered = run("decide", pending, decision, "--as", who, *more, "--json", HAI_FLOW_URL=self.url)
        assert answered.returncode == code, answered.stderr
        return json.loads(answered.stdout)

    # --- what can be seen

    def knows(self, workflow: str) -> bool:
        return httpx2.get(f"{self.url}/v1/workflows/{workflow}").status_code == 200

    def snapshot(self, run_id: str) -> Any:
        return httpx2.get(f"{self.url}/v1/runs/{run_id}/snapshot").json()

    def asked(self, run_id: str, path: str) -> str:
        """The id of what is open at `path`, as soon as it is."""

        def look() -> str | None:
            pendings = self.snapshot(run_id)["pendings"]
            return next((each["id"] for each in pendings if (each["path"], each["status"]) == (path, "open")), None)

        try:
            return str(wait_for(look))
        except AssertionError:
            now = self.snapshot(run_id)
            open_ = [
                (each["path"], each["kind"], each["title"]) for each in now["pendings"] if each["status"] == "open"
            ]
            steps = {path: step["status"] for path, step in now["steps"].items()}
            raise AssertionError(f"nothing open at {path}: {now['status']}, open {open_}, steps {steps}") from None

    def ended(self, run_id: str) -> Any:
        def look() -> Any:
            found = httpx2.get(f"{self.url}/v1/runs/{run_id}").json()
            return found if found["ended_at"] else None

        return wait_for(look)

    def statuses(self, run_id: str, *paths: str) -> list[str]:
        steps = self.snapshot(run_id)["steps"]
        return [steps[path]["status"] for path in paths]

    def events(self, run_id: str, kind: str) -> list[Any]:
        found = httpx2.get(f"{self.url}/v1/runs/{run_id}/events", params={"limit": 1000}).json()["items"]
        return [event for event in found if event["type"] == kind]

    def ledger(self) -> list[str]:
        return sorted(path.read_text() for path in (self.home / "ledger").iterdir())


@pytest.fixture(params=[False, True] if NIGHTLY else [True], ids=lambda killed: "killed" if killed else "undisturbed")
def house(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[House]:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "ledger").mkdir()
    (tmp_path / "acme.py").write_text(TOOLS)
    for path in [*(ROOT / "workflows/examples").glob("*.flow.yaml"), ROOT / "hai_flow/templates/revise.flow.yaml"]:
        text = path.read_text()
        for theirs, ours in CHANGES.items():
            text = text.replace(theirs, ours)
        (tmp_path / "workflows" / path.name).write_text(text)
    house = House(tmp_path, database_url, request.param)
    house.start()
    yield house
    house.close()


@pytest.mark.timeout(180)
def test_two_of_three_book_an_expense(house: House) -> None:
    run_id = house.begin("expense_approval", **EXPENSE)
    review = house.asked(run_id, "review")
    excluded = house.by_command(review, "approve", "user:eve,role:dept_head", code=1)
    assert (excluded["status"], excluded["code"]) == (403, "pending_forbidden")
    first = house.by_command(review, "approve", "user:controller", "--values", '{"cost_center": "CC-1000"}')
    assert (first["status"], first["needed"]["missing"]["people"]) == ("open", 1)
    house.disturb()
    assert house.by_header(review, "user:controller", 403, decision="reject")["code"] == "vote_final"
    values = {"cost_center": "CC-1000", "approved_amount": 700}
    second = house.by_header(review, "user:ann,role:dept_head", decision="approve", values=values)
    assert second["status"] == "approve"
    house.disturb()
    ended = house.ended(run_id)
    assert (ended["status"], ended["output"]) == ("finished", {"status": "booked", "booking": "B-1"})
    assert house.by_header(review, "user:cfo_deputy", 409, decision="reject")["winner"]["outcome"] == "approve"
    assert house.ledger() == ["book eve 700 CC-1000"]


@pytest.mark.timeout(180)
def test_an_expense_that_nobody_decides_goes_to_the_cfo(house: House) -> None:
    path = house.home / "workflows" / "expense_approval.flow.yaml"
    shortened = path.read_text().replace("deadline: 2d", "deadline: 1s")
    path.write_text(shortened.replace("name: expense_approval", "name: short_expense"))
    wait_for(lambda: house.knows("short_expense"))
    run_id = house.begin("short_expense", **EXPENSE)
    review = house.asked(run_id, "review")
    house.disturb()  # whoever kills in time lets the deadline pass while nobody is there
    wait_for(lambda: house.events(run_id, "pending_escalated"))
    late = house.by_header(review, "user:controller", 403, decision="approve", values={"cost_center": "CC-1"})
    assert late["code"] == "pending_forbidden"
    values = '{"cost_center": "CC-1000"}'
    decided = house.by_command(review, "approve", "user:zoe,role:cfo", "--values", values)
    assert decided["status"] == "approve"
    house.disturb()
    assert house.ended(run_id)["output"] == {"status": "booked", "booking": "B-1"}
    assert len(house.events(run_id, "pending_escalated")) == 1
    assert house.ledger() == ["book eve 900 CC-1000"]


@pytest.mark.timeout(180)
def test_two_rejections_end_an_expense_and_its_mail_goes_once(house: House) -> None:
    run_id = house.begin("expense_approval", **EXPENSE)
    review = house.asked(run_id, "review")
    assert house.by_header(review, "user:controller", decision="reject", reason="no")["status"] == "open"
    house.disturb()
    rejected = house.by_command(review, "reject", "user:cfo_deputy", "--reason", "not now")
    assert rejected["status"] == "reject"
    house.disturb()
    ended = house.ended(run_id)
    assert (ended["status"], ended["output"]) == ("finished", {"status": "rejected", "reason": "not now"})
    assert house.statuses(run_id, "review", "review/~reject/tell_no") == ["failed", "finished"]
    assert house.ledger() == ["mail eve not now"]


@pytest.mark.timeout(240)
def test_services_are_deployed_singly_and_a_failure_is_rolled_back_alone(house: House) -> None:
    services = [
        {"name": "api", "owner": "ann", "risk": "high"},
        {"name": "pay", "owner": "bob", "risk": "high"},
        {"name": "sick", "owner": "bob"},
        {"name": "web", "owner": "bob"},
    ]
    if not house.disturbed:
        (house.home / "go").touch()
    run_id = house.begin("deploy_services", release="v1.2.3", services=services)
    wait_for(lambda: len(house.ledger()) == 4)
    if house.disturbed:  # in the middle of four deployments: each is done again, under the same idempotency key
        house.kill()
        (house.home / "go").touch()
        house.start()
    second = httpx2.post(
        f"{house.url}/v1/runs",
        json={"workflow": "deploy_services", "input": {"release": "v1.2.3", "services": services}},
        headers=EVE,
    )
    assert (second.status_code, second.json()["code"]) == (409, "concurrency_busy")
    wait_for(lambda: "rollout[web]/soak" in house.snapshot(run_id)["steps"])
    house.disturb()  # in the middle of the waits
    pay, api = house.asked(run_id, "rollout[pay]/gate"), house.asked(run_id, "rollout[api]/gate")
    wait_for(lambda: house.statuses(run_id, "rollout[sick]") == ["failed"])
    assert house.by_header(api, "user:ann", decision="approve")["status"] == "open"
    assert house.by_header(api, "user:eve,role:sre", 403, decision="approve")["code"] == "pending_forbidden"
    assert house.by_command(pay, "reject", "user:sam,role:sre", "--reason", "not today")["status"] == "reject"
    house.disturb()
    assert house.by_command(api, "approve", "user:sam,role:sre")["status"] == "approve"
    assert house.ended(run_id)["status"] == "finished"
    paths = [f"rollout[{name}]/deploy" for name in ("api", "pay", "sick", "web")]
    assert house.statuses(run_id, *paths) == ["finished", "undone", "undone", "finished"]
    rollout = house.snapshot(run_id)["steps"]["rollout"]["output"]
    assert [(each["key"], each["status"], (each["error"] or {}).get("code")) for each in rollout] == [
        ("api", "finished", None),
        ("pay", "failed", "approval.rejected"),
        ("sick", "failed", "tool.failed"),
        ("web", "finished", None),
    ]
    said = "".join(event["content"] for event in house.events(run_id, "message_chunk"))
    assert said == "Released: api, web\nNot released: pay, sick\n"
    assert house.ledger() == [
        *(f"deploy {name} v1.2.3" for name in ("api", "pay", "sick", "web")),
        *(f"promote {name} v1.2.3" for name in ("api", "web")),
        *(f"rollback {name} v1.0.0" for name in ("pay", "sick")),
    ]


@pytest.mark.timeout(180)
def test_a_reviewer_sends_it_back_until_it_is_good(house: House) -> None:
    run_id = house.begin("revise", release="v1")
    first = house.asked(run_id, "rounds[0]/ship")
    house.disturb()
    revised = house.by_command(first, "revise", "user:ann", "--reason", "shorter")
    assert revised["status"] == "revise"
    house.disturb()
    second = house.asked(run_id, "rounds[1]/ship")
    assert second != first
    assert house.by_header(second, "user:bob", decision="approve")["status"] == "approve"
    house.disturb()
    assert house.ended(run_id)["output"] == {"shipped": True, "notes": ["shorter"]}
    assert house.events(run_id, "step_skipped")[0]["path"] == "rounds[0]/ship"
