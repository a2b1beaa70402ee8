"""The three workflows that the language was first shown with, in one `dev`: its tools are MCP servers over HTTP and
stdio, services over HTTP, Python and models, all behind real sockets and in real processes.

Each story is told with `dev` killed while a person decides; each night undisturbed, too. What comes out is the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.cli.test_examples import EXPENSE, House
from tests.support import company
from tests.support.commands import ROOT
from tests.support.examples import NIGHTLY
from tests.support.forking import relayed
from tests.support.mcp_server import http_server, programs  # noqa: F401
from tests.support.models import Answer, FakeModels, spoken
from tests.support.waiting import wait_for

FLOWS = Path(__file__).parent / "published"
MODULES = {
    "acme/finance/fx.py": """
def to_eur(amount: float, currency: str) -> dict:
    return {"eur": amount * {"EUR": 1, "USD": 0.9}[currency]}
""",
    "acme/mail.py": """
from tests.support.mcp_server import note

def send(to: str, subject: str, body: str) -> dict:
    note(f"mail {to} {subject}")
    return {"sent": True}
""",
    "acme/k8s.py": """
from tests.support.mcp_server import note

def deploy(service: str, release: str, slot: str) -> dict:
    note(f"deploy {service} {release} {slot}")
    return {"previous_release": "v1.0.0"}

def rollback(service: str, to: str) -> dict:
    note(f"rollback {service} {to}")
    return {}

def promote(service: str, release: str) -> dict:
    note(f"promote {service} {release}")
    return {}
""",
}
SECRETS = "hai: secrets/v1\nsecrets:\n  ERP_TOKEN: {env: ERP, hosts: [127.0.0.1], tools: [erp]}\n"
TOKEN = "erp-token-7c1"
RATES = {"api": 0.001, "pay": 0.002, "sick": 0.2, "web": 0.0}
TOPIC = {"topic": "tea", "recipient": "ann@example.com"}


@pytest.fixture(params=[False, True] if NIGHTLY else [True], ids=lambda killed: "killed" if killed else "undisturbed")
def disturbed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where every service notes what it has done."""
    path = tmp_path / "ledger"
    monkeypatch.setenv("LEDGER", str(path))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return path


def noted(ledger: Path) -> list[str]:
    return sorted(ledger.read_text().splitlines()) if ledger.exists() else []


@asynccontextmanager
async def opened(home: Path, database_url: str, disturbed: bool = False, **settings: str) -> AsyncIterator[House]:
    """The company's house: its services, and `dev` over the three workflows."""
    async with (
        http_server(company.web()) as web,
        http_server(company.erp(), token=TOKEN) as erp,
        company.health(RATES) as health,
    ):
        notes = {"LEDGER": str(home / "ledger"), "PYTHONPATH": str(ROOT)}
        program = json.dumps(relayed("tests.support.company"))
        addresses = {
            "https://mcp.example.com/web": web.url,
            "https://erp.internal/mcp": erp.url,
            "https://health.internal": health,
            "command: [python, -m, acme.notes]": f"command: {program}, env: {json.dumps(notes)}",
            "wait: {for: 10m}": "wait: {for: 1s}",
            "every: 30s": "every: 100ms",
        }
        files = {**MODULES, "secrets.yaml": SECRETS}
        for flow in FLOWS.glob("*.flow.yaml"):
            text = flow.read_text()
            for theirs, ours in addresses.items():
                text = text.replace(theirs, ours)
            files[f"workflows/{flow.name}"] = text
        for name, text in files.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        file = str(home / "secrets.yaml")
        house = House(home, database_url, disturbed, HAI_FLOW_SECRETS_FILE=file, ERP=TOKEN, **settings)
        try:
            await asyncio.to_thread(house.start)
            yield house
        finally:
            await asyncio.to_thread(house.close)


async def tell(house: House, story: Callable[[House], None]) -> None:
    """The story is told by a thread of its own: the services answer meanwhile."""
    await asyncio.to_thread(story, house)


def book(house: House) -> None:
    run_id = house.begin("expense_approval", **EXPENSE)
    review = house.asked(run_id, "review")
    values = {"cost_center": "CC-1000"}
    assert house.by_header(review, "user:eve,role:dept_head", 403, decision="approve")["code"] == "pending_forbidden"
    house.by_header(review, "user:controller", decision="approve", values=values)
    house.disturb()
    lower = {**values, "approved_amount": 700}
    assert house.by_header(review, "user:ann,role:dept_head", decision="approve", values=lower)["status"] == "approve"
    ended = house.ended(run_id)
    assert (ended["status"], ended["output"]) == ("finished", {"status": "booked", "booking": "B-1"})
    assert TOKEN not in httpx2.get(f"{house.url}/v1/runs/{run_id}/events", params={"limit": 1000}).text


@pytest.mark.timeout(180)
async def test_two_of_three_approve_an_expense_and_the_books_get_it_once(
    disturbed: bool, database_url: str, tmp_path: Path, ledger: Path
) -> None:
    async with opened(tmp_path, database_url, disturbed) as house:
        await tell(house, book)
    assert noted(ledger) == ["book eve 700 CC-1000"]


def research(house: House) -> None:
    run_id = house.begin("research_and_email", **TOPIC)
    question = house.asked(run_id, "research[0]/call[ask_user-1]/ask_user")
    if NIGHTLY:
        house.disturb()
    house.by_header(question, "user:eve", result="Yes.")
    keeps = house.asked(run_id, "research[1]/call[notes.keep-1]/notes.keep")
    house.disturb()
    house.by_header(keeps, "user:eve", decision="approve")
    first = house.asked(run_id, "deliver[0]/send")
    assert house.by_header(first, "user:bob", 403, decision="approve")["code"] == "pending_forbidden"
    house.by_header(first, "user:eve", decision="revise", reason="warmer")
    second = house.asked(run_id, "deliver[1]/send")
    if NIGHTLY:
        house.disturb()
    house.by_header(second, "user:eve", decision="approve")
    ended = house.ended(run_id)
    assert (ended["status"], ended["output"]) == ("finished", {"sent": True, "sources": company.SOURCES})


@pytest.mark.timeout(240)
async def test_an_agent_researches_on_two_servers_and_the_approved_is_sent_once(
    disturbed: bool, database_url: str, tmp_path: Path, ledger: Path
) -> None:
    found = Answer(json.dumps({"summary": "Tea is good.", "sources": company.SOURCES}))
    letters = [Answer(json.dumps({"subject": subject, "body": "Tea is good."})) for subject in ("Tea", "Dear Ann")]
    search = (("web_search", '{"query": "tea"}'), ("ask_user", '{"question": "Green?"}'))
    fetches = tuple(("web_fetch", json.dumps({"url": url})) for url in company.SOURCES)
    calls = [Answer(calls=search), Answer(calls=(*fetches, ("notes_keep", '{"text": "tea is good"}')))]
    async with FakeModels(*map(spoken, (*calls, found, *letters))) as fake:
        key = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": fake.url}
        async with opened(tmp_path, database_url, disturbed, **key) as house:
            await tell(house, research)
    assert noted(ledger) == ["keep tea is good", "mail ann@example.com Dear Ann"]
    assert len(fake.asked) == 5, "no answer is asked for twice"
    offered = [tool["function"]["name"] for tool in fake.asked[0].body["tools"]]
    assert offered == ["web_search", "web_fetch", "notes_keep", "ask_user"]
    told = [message["content"] for message in fake.asked[2].body["messages"] if message["role"] == "tool"]
    read = [f"What is written at {url}" for url in company.SOURCES]
    assert [json.loads(told[0])["result"], told[1]] == [company.SOURCES, "Yes."]
    assert [json.loads(each)["result"] for each in told[2:]] == [*read, "kept"]
    assert "warmer" in fake.asked[4].body["messages"][0]["content"]


def deploy(house: House) -> None:
    services = [{"name": name, "owner": "bob", "risk": "low"} for name in RATES]
    for each in services[:2]:
        each |= {"owner": "ann", "risk": "high"}
    run_id = house.begin("deploy_services", release="v1.2.3", services=services)
    api, pay = (house.asked(run_id, f"rollout[{name}]/gate") for name in ("api", "pay"))
    others = ("rollout[sick]", "rollout[web]")
    wait_for(lambda: house.statuses(run_id, *others) == ["failed", "finished"])
    house.disturb()
    house.by_header(api, "user:ann", decision="approve")
    assert house.by_header(pay, "user:sam,role:sre", decision="reject")["status"] == "reject"
    assert house.by_header(api, "user:sam,role:sre", decision="approve")["status"] == "approve"
    assert house.ended(run_id)["status"] == "finished"
    rollout = house.snapshot(run_id)["steps"]["rollout"]["output"]
    assert [(each["key"], each["status"], (each["error"] or {}).get("code")) for each in rollout] == [
        ("api", "finished", None),
        ("pay", "failed", "approval.rejected"),
        ("sick", "failed", "http.expect"),
        ("web", "finished", None),
    ]
    said = "".join(event["content"] for event in house.events(run_id, "message_chunk"))
    assert said == "Released: api, web\nNot released: pay, sick\n"


@pytest.mark.timeout(240)
async def test_services_are_deployed_by_health_and_sick_ones_rolled_back(
    disturbed: bool, database_url: str, tmp_path: Path, ledger: Path
) -> None:
    async with opened(tmp_path, database_url, disturbed, HAI_FLOW_HTTP_HOSTS="127.0.0.1") as house:
        await tell(house, deploy)
    assert noted(ledger) == [
        *(f"deploy {name} v1.2.3 canary" for name in RATES),
        *(f"promote {name} v1.2.3" for name in ("api", "web")),
        *(f"rollback {name} v1.0.0" for name in ("pay", "sick")),
    ]


def research_by_script(house: House) -> None:
    run_id = house.begin("research_and_email", **{**TOPIC, "topic": "notes: keep them after a web search"})
    keeps = house.asked(run_id, "research[0]/call[notes.keep-1]/notes.keep")
    house.by_header(keeps, "user:eve", decision="approve")
    house.by_header(house.asked(run_id, "deliver[0]/send"), "user:eve", decision="approve")
    ended = house.ended(run_id)
    assert (ended["status"], ended["output"]["sent"]) == ("finished", True)


@pytest.mark.timeout(240)
async def test_a_script_answers_for_the_model_without_a_key_and_all_three_run(
    database_url: str, tmp_path: Path, ledger: Path
) -> None:
    async with opened(tmp_path, database_url, HAI_FLOW_HTTP_HOSTS="127.0.0.1") as house:
        for story in (book, research_by_script, deploy):
            await tell(house, story)
    assert {each.partition(" ")[0] for each in noted(ledger)} == {
        "book", "deploy", "keep", "mail", "promote", "rollback"
    }  # fmt: skip
    assert len(noted(ledger)) == 11
