"""Standing rules in the console: proposed of a decision, approved by others, told where they decided, revoked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2

from tests.console.browser import PHONE, Page
from tests.console.conftest import NewPage, Picture, pending_of
from tests.support.hai_client import unique

Asked = Callable[..., dict[str, Any]]


def decide(http: httpx2.Client, pending: dict[str, Any], *people: str, decision: str = "approve") -> None:
    for who in people:
        path = f"/v1/pendings/{pending['id']}/decide"
        http.post(path, json={"decision": decision}, headers={"HAI-Act-As": who}).raise_for_status()


def act_as(page: Page, who: str) -> None:
    page.play(["addInitScript", {"content": f"sessionStorage.setItem('hai.act-as', {json.dumps(who)})"}])


def test_a_decision_becomes_a_rule_that_lists_its_uses_and_is_revoked(
    page: NewPage, asked: Asked, http: httpx2.Client, picture: Picture
) -> None:
    supplier = unique("supplier")
    pending = asked("payout", "user:cat", supplier=supplier, amount=40)
    decide(http, pending, "user:ann", "user:bob")
    shown = page(**PHONE)
    act_as(shown, "user:ann")
    shown.goto(f"/console/decide/{pending['id']}")
    shown.role("button", "Always allow like this…").click()
    dialog = shown.role("dialog")
    dialog.words(supplier).there()
    propose = dialog.role("button", "Propose the rule")
    assert dialog.label("Maximum Amount").value() == "40"
    dialog.label("Maximum Amount").fill("much")
    dialog.words("Enter a number.").there()
    dialog.label("Maximum Amount").fill("50")
    dialog.label("Maximum number of uses (empty: no limit)").fill("3")
    dialog.label("Why").fill("small payments")
    picture(shown, "standing-rule")
    assert shown.axe() == []
    assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE["viewport"]["width"]
    dialog.label("Until the end of").fill("2090-01-01")
    propose.click()
    dialog.role("alert").there()  # later than the server allows; what is written stays
    assert dialog.label("Why").value() == "small payments"
    dialog.label("Until the end of").fill(shown.evaluate("new Date(Date.now() + 864e5).toISOString().slice(0, 10)"))
    shown.press("Tab")
    propose.play("press", "Enter")
    shown.words("Who can decide: bob, local. Excluded: ann, cat.").there()
    shown.words("The rule has been proposed").there()

    (rule,) = [each for each in http.get("/v1/rules").json()["items"] if each["pending_id"] == pending["id"]]
    assert (rule["arguments"], rule["uses_max"]) == ({"amount": {"max": 50}, "supplier": {"equals": supplier}}, 3)
    decide(http, pending_of(http, rule["run_id"]), "user:bob", "user:local")
    shown.goto("/console/settings#rules")
    item = shown.locator(f"li:has-text('{rule['id'][:8]}')")
    item.words("in force").there()

    run_id = finish_run_by_rule(http, rule, supplier)
    snapshot = http.get(f"/v1/runs/{run_id}/snapshot").json()
    shown.goto(f"/console/runs/{run_id}?view=talk")
    said = f"Allowed by rule {rule['id'][:8]}"
    shown.words(said).there()
    shown.goto(f"/console/inbox/{snapshot['pendings'][0]['id']}")
    shown.words(said).click()  # leads to the rule
    item.words("1 of 3; 2 left").there()
    item.locator("summary").click()
    item.locator("details a[href*='/console/inbox/']").there()
    assert shown.axe() == []
    assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE["viewport"]["width"]
    item.role("button", "Revoke").click()
    shown.role("dialog").role("button", "Revoke").click()
    item.gone()
    shown.label("Show rules no longer in force").click()
    item.words("revoked").there()
    assert http.get(f"/v1/rules/{rule['id']}").json()["status"] == "revoked"

    shown.evaluate("localStorage.setItem('hai.language', 'zh')")
    act_as(shown, "user:bob")
    shown.goto("/console/inbox?view=decided")
    shown.words(f"已由规则 {rule['id'][:8]} 放行").there()
    shown.goto("/console/settings#rules")
    shown.role("heading", "常设规则").there()


def finish_run_by_rule(http: httpx2.Client, rule: dict[str, Any], supplier: str) -> str:
    """A finished run whose gate the rule has approved: it is in force once its own run has ended."""
    events = {"Accept": "text/event-stream"}
    with http.stream("GET", f"/v1/runs/{rule['run_id']}/events", headers=events) as stream:
        assert any(line == "event: run_finished" for line in stream.iter_lines())
    body = {"workflow": "payout", "input": {"supplier": supplier, "amount": 45}}
    run_id = http.post("/v1/runs", json=body, headers={"HAI-Act-As": "user:cat"}).raise_for_status().json()["id"]
    with http.stream("GET", f"/v1/runs/{run_id}/events", headers=events) as stream:
        assert any(line == "event: run_finished" for line in stream.iter_lines())
    return str(run_id)


def test_no_rule_is_offered_to_the_requester_or_where_the_gate_forbids_it(
    page: NewPage, asked: Asked, http: httpx2.Client
) -> None:
    text = (
        "hai: flow/v1\nname: kept\nversion: 1\ntools:\n  shop: {python: hai_flow.examples, effect: write}\nsteps:\n"
        "  - id: pay\n    call: shop.refund\n    with: {order: A-1, amount: 5}\n"
        "    approval: {from: [user:ann], rules: false}\n"
    )
    http.post("/v1/workflows", content=text, headers={"Content-Type": "application/yaml"}).raise_for_status()
    own = asked("payout", "user:ann")
    decide(http, own, "user:local", "user:bob")
    kept = asked("kept", "user:cat")
    decide(http, kept, "user:ann")
    refused = asked("kept", "user:cat")
    decide(http, refused, "user:ann", decision="reject")
    shown = page(colorScheme="dark")
    act_as(shown, "user:ann")
    for pending in (own, kept):
        shown.goto(f"/console/inbox/{pending['id']}")
        shown.locator("main article .note h2").there()
        shown.until("performance.getEntriesByType('resource').some((each) => each.name.includes('Standing'))")
        assert shown.role("button", "like this…").count() == 0
    shown.goto(f"/console/inbox/{refused['id']}")
    shown.role("button", "Never allow like this…").click()
    shown.role("dialog").there()
    assert shown.axe() == []
    shown.press("Escape")
    shown.role("dialog").gone()
    assert shown.evaluate("document.activeElement?.textContent") == "Never allow like this…"
