"""Personal values: nobody but the requester and those who decide finds them, over any protocol, list, search or log."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

import httpx2
import pytest

from tests.support.agui_client import AguiClient, resolved
from tests.support.examples import sample
from tests.support.hai_client import unique, user
from tests.support.identities import People
from tests.support.server import YAML, ServerProcess, expect
from tests.support.sights import AGENTS, WAYS, Case

IBAN, PHONE, EUR = "DE89-7715", "030-4471", 7319
SOURCE = """
hai: flow/v1
name: pay
version: 1
visibility: [role:support]
input:
  type: object
  required: [iban, eur, people]
  properties:
    iban: {type: string, pii: true}
    eur: {type: integer}
    people: {type: array, items: {type: object, properties: {name: {type: string, pii: true}, n: {type: integer}}}}
state: {last: {default: null}, sum: {type: integer, default: 0}}
concurrency: {key: "${{ input.iban }}", limit: 9}
steps:
  - {id: told, title: "To ${{ input.iban }}", say: "It goes to ${{ input.iban }}."}
  - {id: plain, say: "It is ${{ input.eur }} euro."}
  - {id: shown, say: {output: {type: card, data: {iban: "${{ input.iban }}"}}}}
  - {id: noted, emit: {custom: {name: paid, value: {iban: "${{ input.iban }}"}}}}
  - {id: set, set: {last: {iban: "${{ input.iban }}", eur: "${{ input.eur }}"}, sum: "${{ input.eur }}"}}
  - id: all
    for_each:
      items: "${{ input.people }}"
      steps:
        - {id: hello, say: "Hello ${{ item.name }}"}
  - id: form
    ask:
      title: "Whose is ${{ input.iban }}?"
      form: {type: object, properties: {phone: {type: string, pii: true}, size: {type: string}}}
  - id: gate
    approve:
      title: "Pay ${{ state.last.iban }}?"
      message: "Call ${{ steps.form.output.phone }}."
      from: [role:boss]
      exclude: [requester, user:bar]
      evidence: {iban: "${{ input.iban }}", eur: "${{ input.eur }}"}
  - id: wrong
    fail: {code: pay.no_account, message: "No account ${{ input.iban }}", data: {iban: "${{ input.iban }}"}}
output: {iban: "${{ input.iban }}", eur: "${{ input.eur }}"}
"""
SAID, NAME, EDITED, WHY = "MSG-5512", "Erika-5512", "EDIT-5512", "WHY-5512"
SAYING = """
hai: flow/v1
name: saying
version: 1
visibility: [role:support]
on_message: enqueue
input: {type: object, pii: true, properties: {iban: {type: string}}}
steps:
  - try: [{id: bad, fail: {code: x.y, message: "no ${{ input.iban }}", data: {of: "${{ input.iban }}"}}}]
    catch: [{steps: [{id: caught, say: "It was ${{ error.message }}"}]}]
  - id: sent
    call: shop.echo
    with: {value: "${{ input.iban }}"}
    approval: {title: "Send ${{ input.iban }}?", from: [role:boss], edit: true, exclude: [requester, user:bar]}
output: {was: "${{ steps.sent.output }}"}
tools: {shop: {python: tests.support.effects}}
"""
PEOPLE: dict[str, tuple[str, list[str]]] = {
    "requester": ("user:ann", ["requester"]),
    "decider": ("user:eve", ["decider", "boss"]),
    "barred": ("user:bar", ["decider", "boss"]),
    "viewer": ("user:vic", ["viewer"]),
    "operator": ("user:oli", ["operator"]),
    "support": ("user:sue", ["support", "requester"]),
    "publisher": ("user:pat", ["publisher"]),
}
FORBIDDEN = {("viewer", "/v1/inbox/decided"), ("support", "/v1/inbox/decided"), ("operator", "/v1/inbox/decided")}
CURIOUS = ("viewer", "operator", "support")
SECRETS = (IBAN, PHONE, NAME, SAID, EDITED, WHY, IBAN.split("-")[1])


@pytest.fixture(scope="module")
def headers(strict: ServerProcess, dsn: str) -> dict[str, dict[str, str]]:
    people = People(dsn)
    found = {name: people.person(id, roles=roles) for name, (id, roles) in PEOPLE.items()}
    for source in (SOURCE, SAYING):
        expect(httpx2.post(f"{strict.url}/v1/workflows", content=source, headers={**YAML, **found["publisher"]}), 201)
    return found


def until(case: Case, fact: Any) -> dict[str, Any]:
    end = time.monotonic() + 30
    while not fact(found := case.get("requester", f"/v1/runs/{case.run_id}/snapshot").json()):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def opened(strict: ServerProcess, headers: dict[str, dict[str, str]]) -> Case:
    """A run that asks its requester for a phone number."""
    ann = AguiClient(strict.url, workflow="pay", headers=headers["requester"])
    given = {"iban": IBAN, "eur": EUR, "people": [{"name": "Erika-5512", "n": 1}]}
    ann.post(user("Please pay."), forwardedProps={"input": given})
    (run,) = httpx2.get(f"{strict.url}/v1/runs?thread_id={ann.thread_id}", headers=headers["requester"]).json()["items"]
    case = Case(strict.url, headers, ann.thread_id, run["id"], "")
    (pending,) = until(case, lambda found: found["pendings"])["pendings"]
    case.pending_id = pending["id"]
    return case


def asking(strict: ServerProcess, headers: dict[str, dict[str, str]]) -> Case:
    """The same, which has the number, and asks its boss."""
    case = opened(strict, headers)
    answer = {"values": {"phone": PHONE, "size": "S"}}
    expect(case.post("requester", f"/v1/pendings/{case.pending_id}/decide", answer), 200)
    pendings = until(case, lambda found: len(found["pendings"]) == 2 and found["status"] == "waiting")["pendings"]
    case.pending_id = next(each["id"] for each in pendings if each["kind"] == "approve")
    return case


def failed(strict: ServerProcess, headers: dict[str, dict[str, str]]) -> Case:
    """The same, which was approved, and has failed with an error that quotes the number."""
    case = asking(strict, headers)
    (interrupt,) = case.agui("decider").post().interrupts()
    case.agui("decider").post(resume=[resolved(interrupt, {"approved": True})])
    until(case, lambda found: found["status"] == "failed")
    return case


@pytest.fixture(scope="module")
def first(strict: ServerProcess, headers: dict[str, dict[str, str]]) -> Case:
    return opened(strict, headers)


@pytest.fixture(scope="module")
def second(strict: ServerProcess, headers: dict[str, dict[str, str]]) -> Case:
    return asking(strict, headers)


@pytest.fixture(scope="module")
def third(strict: ServerProcess, headers: dict[str, dict[str, str]]) -> Case:
    return failed(strict, headers)


def hidden(text: str) -> None:
    found = [text[max(0, text.find(secret) - 300) :][:400] for secret in SECRETS if secret in text]
    assert not found, found


@pytest.mark.parametrize("who", CURIOUS)
@pytest.mark.parametrize("way", [*WAYS, *AGENTS])
def test_nobody_else_is_shown_a_personal_value_over_any_protocol(
    first: Case, second: Case, third: Case, who: str, way: str
) -> None:
    cases = (first, second) if way in ("stream", "beginning", "socket") else (first, second, third)
    for case in cases:
        shown = case.over(who, way)
        hidden(shown)
        assert case is not first or str(EUR) in shown or way in AGENTS
        assert way not in AGENTS or case.run_id in shown


@pytest.mark.parametrize("who", CURIOUS)
def test_every_prefix_of_the_log_and_every_snapshot_hides_them(third: Case, who: str) -> None:
    head = third.get("requester", f"/v1/runs/{third.run_id}").json()["seq"]
    for seq in range(head + 1):
        hidden(third.get(who, f"/v1/runs/{third.run_id}/snapshot?at={seq}").text)
        hidden(third.get(who, f"/v1/runs/{third.run_id}/events?after={seq}&limit=1").text)


@pytest.mark.parametrize("who", CURIOUS)
def test_lists_hide_them(second: Case, third: Case, who: str) -> None:
    paths = ["/v1/runs?limit=200", "/v1/threads", "/v1/pendings?limit=200", "/v1/inbox/decided"]
    for case in (second, third):
        thread = f"/v1/threads/{case.thread_id}"
        paths += [thread, f"{thread}/messages?limit=200", f"{thread}/feedback", f"/v1/runs/{case.run_id}"]
        run = f"/v1/runs/{case.run_id}"
        paths += [f"/v1/pendings/{case.pending_id}", f"/v1/pendings/{case.pending_id}/history", f"{run}/steps"]
        paths += [f"{run}/marks", f"{run}/diff?from=1", f"{run}/replay?speed=100000&gap=0"]
        paths += [
            f"{run}/replay?speed=100000&gap=0&dialect={way}" for way in ("hai", "agui", "social", "aui", "agent-api")
        ]
    assert IBAN in third.get("requester", f"/v1/runs/{third.run_id}/steps").text  # steps are kept for a reader's pages
    for path in paths:
        answer = second.get(who, path)
        assert answer.status_code == (403 if (who, path) in FORBIDDEN else 200), (path, answer.text)
        hidden(answer.text)
    listed = second.get(who, "/v1/runs?limit=200").json()["items"]
    (row,) = [each for each in listed if each["id"] == second.run_id]
    assert row["input"] == {"iban": "[personal]", "eur": EUR, "people": [{"name": "[personal]", "n": 1}]}


def test_who_is_asked_sees_their_own_question_and_no_other_personal_value(second: Case) -> None:
    question = second.get("decider", f"/v1/pendings/{second.pending_id}").json()
    assert (question["evidence"], question["title"]) == ({"iban": IBAN, "eur": EUR}, f"Pay {IBAN}?")
    assert PHONE in question["message"]
    (listed,) = [each for each in second.get("decider", "/v1/inbox").json()["items"] if each["id"] == question["id"]]
    assert (listed["evidence"], listed["may_decide"]) == (question["evidence"], True)
    found = second.get("decider", f"/v1/inbox?text={PHONE}").json()["items"]
    assert second.pending_id in [each["id"] for each in found]
    assert "Erika" not in second.get("decider", f"/v1/runs/{second.run_id}/events?limit=1000").text


def test_the_requester_sees_all_of_their_own(second: Case) -> None:
    shown = second.get("requester", f"/v1/runs/{second.run_id}").json()
    assert shown["input"]["iban"] == IBAN
    for way in ("ag-ui", "log", "snapshot", "history", *AGENTS):
        assert IBAN in second.over("requester", way)
    assert PHONE in second.over("requester", "snapshot")
    assert all(PHONE in second.over("decider", way) for way in AGENTS)


def test_a_viewer_who_is_asked_sees_that_question_and_nothing_else_of_it(
    strict: ServerProcess, dsn: str, second: Case, headers: dict[str, dict[str, str]]
) -> None:
    case = Case(strict.url, {**headers, "both": People(dsn).person("user:bo", roles=["viewer", "boss", "decider"])},
                second.thread_id, second.run_id, second.pending_id)  # fmt: skip
    snapshot = case.get("both", f"/v1/runs/{case.run_id}/snapshot").json()
    asked = {each["kind"]: each for each in snapshot["pendings"]}
    assert asked["approve"]["evidence"] == {"iban": IBAN, "eur": EUR}
    assert (asked["ask"]["title"], asked["ask"]["value"]) == ("[personal]", {"phone": "[personal]", "size": "S"})
    hidden(str({**snapshot, "pendings": []}))
    assert "Erika" not in case.over("both", "log")


def test_a_search_finds_nothing_that_it_would_not_show(second: Case) -> None:
    (item,) = [each for each in second.get("barred", "/v1/inbox").json()["items"] if each["id"] == second.pending_id]
    assert (item["may_decide"], item["title"], item["digest"]) == (False, "[personal]", "")
    hidden(str(item))
    for text in (IBAN, "DE89", "Pay", "Call", PHONE, ""):
        found = second.get("barred", f"/v1/inbox?text={text}").json()["items"]
        assert (second.pending_id in [each["id"] for each in found]) is (text == ""), text
    hidden(second.get("barred", f"/v1/inbox/{second.pending_id}").text)


def test_no_digest_of_a_personal_value_is_shown(second: Case) -> None:
    """A short list of amounts or names can be tried out against a digest."""
    snapshot = second.get("viewer", f"/v1/runs/{second.run_id}/snapshot").json()
    assert {each["digest"] for each in snapshot["pendings"]} == {""}
    log = second.get("viewer", f"/v1/runs/{second.run_id}/events?limit=1000").json()["items"]
    for event in log:
        assert not any(event.get(name) for name in ("digest", "answer_sha", "body_sha")), event


def test_an_error_says_that_it_was_and_not_about_whom(third: Case) -> None:
    shown = third.get("viewer", f"/v1/runs/{third.run_id}").json()["error"]
    assert (shown["code"], shown["message"], shown["data"]) == ("pay.no_account", "[personal]", "[personal]")
    assert IBAN in third.get("requester", f"/v1/runs/{third.run_id}").json()["error"]["message"]


def test_controlling_a_run_shows_no_more_of_it(strict: ServerProcess, headers: dict[str, dict[str, str]]) -> None:
    case = asking(strict, headers)
    for act in ("pause", "resume", "stop"):
        answer = expect(case.post("operator", f"/v1/runs/{case.run_id}/{act}", {}), 200)
        hidden(answer.text)


def test_streams_that_follow_hide_what_comes(strict: ServerProcess, headers: dict[str, dict[str, str]]) -> None:
    """A follower that was there before the value was given is not told of it when it comes."""
    case = opened(strict, headers)
    path = f"{strict.url}/v1/runs/{case.run_id}/events"
    accept = {**headers["viewer"], "Accept": "text/event-stream"}
    with httpx2.stream("GET", path, headers=accept, timeout=30) as stream:
        lines = stream.iter_lines()
        read = [next(lines)]
        answer = {"values": {"phone": PHONE, "size": "XXL-9"}}
        assert case.post("requester", f"/v1/pendings/{case.pending_id}/decide", answer).status_code == 200
        for line in lines:
            read.append(line)
            if "turn_ended" in line and "XXL-9" in "".join(read):
                break
    hidden("\n".join(read))


def test_a_masked_client_that_answers_with_the_masks_changes_nothing(second: Case) -> None:
    answer = {"decision": "approve", "digest": ""}
    refused = expect(second.post("barred", f"/v1/pendings/{second.pending_id}/decide", answer), 404)
    hidden(refused.text)
    body = {"threadId": second.thread_id, "runId": unique("r"), "messages": [], "tools": [], "resume": []}
    hidden(second.post("viewer", "/awp", body).text)


def test_who_forks_anothers_run_is_shown_no_more_of_it(
    strict: ServerProcess, headers: dict[str, dict[str, str]], third: Case
) -> None:
    marks = third.get("operator", f"/v1/runs/{third.run_id}/marks").json()["items"]
    place = next(each["seq"] for each in marks if each["forkable"])
    answer = expect(third.post("operator", f"/v1/runs/{third.run_id}/fork", {"at": place}), 201)
    hidden(answer.text)
    fork = Case(strict.url, headers, third.thread_id, answer.json()["id"], "")
    assert answer.json()["started_by"] == "user:oli"
    for way in ("log", "snapshot", "run", "hai", "agui", "social", "aui", "agent-api"):
        hidden(fork.over("operator", way))
    hidden(fork.get("operator", "/v1/runs?limit=200").text)
    hidden(fork.get("operator", f"/v1/threads/{fork.thread_id}/messages?limit=200").text)
    hidden(fork.get("operator", "/v1/pendings?limit=200").text)
    while not fork.get("operator", f"/v1/runs/{fork.run_id}/snapshot").json()["pendings"]:
        time.sleep(0.02)
    refused = fork.agui("operator").post(user("And?"))
    assert (refused.status, refused.problem["code"]) == (409, "thread_waiting")
    hidden(str(refused.problem))


def test_a_backtest_shows_no_personal_value_by_a_text_that_is_made_for_it(
    strict: ServerProcess, headers: dict[str, dict[str, str]]
) -> None:
    case = opened(strict, headers)
    probe = """
hai: flow/v1
name: pay
version: 1
input: {type: object, additionalProperties: true, properties: {iban: {type: string}}}
steps:
  - {id: told, ask: {title: Whose?, from: "user:${{ input.iban }}", form: {type: object, properties: {a: {}}}}}
"""
    for reader in ("viewer", "operator"):
        answer = httpx2.post(
            f"{strict.url}/v1/workflows/pay/backtest", content=probe, headers={**YAML, **headers[reader]}
        )
        assert answer.status_code == 200, answer.text
        assert not any(secret in answer.text for secret in SECRETS)
        assert answer.json()["unreadable"]["personal"] >= 1
        assert answer.json()["more"] == []
        assert case.run_id in {each["run_id"] for each in answer.json()["unreadable_examples"]}


@pytest.mark.costly
@pytest.mark.parametrize("who", sample([*CURIOUS, "barred"], 1))
def test_no_page_shows_what_a_person_wrote_in_a_thread_that_is_personal(
    strict: ServerProcess, headers: dict[str, dict[str, str]], who: str
) -> None:
    """Arguments, outputs, messages, titles, edits, reasons, errors, and what waits in the queue, by every GET."""
    ann = AguiClient(strict.url, workflow="saying", headers=headers["requester"])
    said = {**user(SAID), "name": NAME}, {"input": {"iban": IBAN}}
    ann.post(said[0], forwardedProps=said[1])
    (run,) = httpx2.get(f"{strict.url}/v1/runs?thread_id={ann.thread_id}", headers=headers["requester"]).json()["items"]
    case = Case(strict.url, headers, ann.thread_id, run["id"], "")
    (pending,) = until(case, lambda state: state["pendings"])["pendings"]
    case.pending_id = pending["id"]
    again = ann.body({**said[0], "id": unique("m")}, forwardedProps=said[1])
    with httpx2.stream("POST", f"{strict.url}/ag-ui", json=again, headers=headers["requester"], timeout=30):
        until_queued = f"/v1/threads/{case.thread_id}/queue"
        while not case.get("requester", until_queued).json()["items"]:
            time.sleep(0.02)
    assert SAID in case.get("requester", until_queued).text
    look_everywhere(case, who)
    answer = {"decision": "approve", "reason": WHY, "edits": {"value": EDITED}}
    assert case.post("decider", f"/v1/pendings/{case.pending_id}/decide", answer).status_code == 200
    until(case, lambda state: state["status"] == "finished")
    assert EDITED in case.over("requester", "snapshot")
    look_everywhere(case, who)


def look_everywhere(case: Case, who: str) -> None:
    parts = {"run_id": case.run_id, "thread_id": case.thread_id, "session_id": case.thread_id, "path": "sent"}
    parts |= {"pending_id": case.pending_id, "name": "saying", "workflow": "saying", "reference": "saying"}
    for path, operations in httpx2.get(f"{case.url}/openapi.json").json()["paths"].items():
        names = set(re.findall(r"{(\w+)", path))
        if "get" not in operations or not names <= set(parts):
            continue
        url = re.sub(r"{(\w+)[^}]*}", lambda name: parts[name[1]], path)
        for query in ("", "?limit=200", "?from=1"):
            read: list[str] = []
            with (
                contextlib.suppress(httpx2.TimeoutException),  # a stream that follows
                httpx2.stream("GET", case.url + url + query, headers=case.headers[who], timeout=1) as response,
            ):
                read.extend(response.iter_text())
            hidden("".join(read))
    for way in {*WAYS, *AGENTS} - {"stream", "beginning", "socket"}:
        hidden(case.over(who, way))
