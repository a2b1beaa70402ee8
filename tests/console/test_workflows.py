"""Workflows in the console: read, written with the server's findings, compared, started, and run in a conversation."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.console.browser import PHONE
from tests.console.conftest import NewPage, Picture
from tests.support.hai_client import unique
from tests.support.server import YAML

TEXT = """hai: flow/v1
name: NAME
version: 1
steps:
  - id: first
    return: one
"""


@pytest.fixture
def published(http: httpx2.Client) -> str:
    """The name of a workflow of its own, in two versions."""
    name = unique("written").replace("-", "_")
    for version, output in ((1, "one"), (2, "two")):
        text = TEXT.replace("NAME", name).replace("version: 1", f"version: {version}").replace("one", output)
        http.post("/v1/workflows", content=text.encode(), headers=YAML).raise_for_status()
    return name


def test_a_workflow_is_found_and_its_picture_tells_of_each_step(page: NewPage) -> None:
    shown = page().goto("/console/workflows?q=release")
    shown.role("link", name={"/elease/": ""}).first().click()
    shown.role("tab", "Picture").there()
    shown.locator("svg [data-path]").first().there()
    assert shown.axe() == []
    shown.locator("svg [data-path]").first().play("press", "Enter")
    shown.locator("aside dl").there()


def test_versions_are_compared_by_what_they_mean_and_a_move_is_rehearsed(page: NewPage, published: str) -> None:
    shown = page().goto(f"/console/workflows/{published}?pane=versions&from=1&to=2")
    shown.words("changed").there()
    assert "one" in shown.locator("del").first().text()
    assert "two" in shown.locator("ins").first().text()
    shown.role("button", "Rehearse").click()
    shown.words("No run of that version is in progress.").there()
    assert shown.axe() == []


BEFORE = """hai: flow/v1
name: NAME
version: 1
input: {type: object, properties: {amount: {type: integer}}}
tools:
  shop: {python: hai_flow.examples, effect: write}
steps:
  - {id: few, if: "${{ input.amount == 5 }}", return: few}
  - {id: ask, if: "${{ input.amount > 100 }}", approve: {title: "Pay?", from: "user:ann"}}
"""
CUT_SHORT = """(() => {
  const ask = window.fetch;
  window.fetch = async (...request) => {
    const answer = await ask(...request);
    if (!String(request[0].url ?? request[0]).includes("/backtest")) return answer;
    const report = { ...(await answer.json()), complete: false, unreadable: { personal: 2 } };
    return new Response(JSON.stringify(report), { status: answer.status, headers: answer.headers });
  };
})()"""
"""The server has judged only a part of the runs."""
AFTER = """  - {id: more, if: "${{ input.amount == 8 }}", say: more}
  - {id: bad, if: "${{ input.amount == 7 }}", fail: {code: too.little, message: no}}
  - {id: pay, if: "${{ input.amount == 9 }}", call: shop.refund, with: {order: A-1, amount: 9}}
"""


@pytest.mark.parametrize("options", [{}, {**PHONE, "locale": "zh-CN", "colorScheme": "dark"}], ids=["en", "zh, phone"])
def test_recorded_runs_are_decided_again_under_another_version(
    page: NewPage, http: httpx2.Client, options: dict[str, Any], picture: Picture
) -> None:
    name = unique("tried").replace("-", "_")
    before = BEFORE.replace("NAME", name)
    after = before.replace("version: 1", "version: 2").replace("> 100", "> 10").replace("Pay?", "Really pay?") + AFTER
    http.post("/v1/workflows", content=before, headers=YAML).raise_for_status()
    runs = {}
    for amount in (5, 7, 8, 9, 50, 200):
        started = http.post("/v1/runs", json={"workflow": name, "input": {"amount": amount}}).raise_for_status().json()
        runs[amount] = started["id"]
        mark = "event: pending_opened" if amount == 200 else "event: run_finished"
        with http.stream("GET", f"/v1/runs/{started['id']}/events", headers={"Accept": "text/event-stream"}) as events:
            assert mark in events.iter_lines()
    http.post("/v1/workflows", content=after, headers=YAML).raise_for_status()
    shown = page(**options).goto(f"/console/workflows/{name}?pane=versions&from=1&to=2")
    section = shown.role("region", {"/^(Backtest on recorded runs|用已有运行回测)$/": ""})
    section.locator("button").first().click()
    section.locator("li .tag").first().there()
    english = not options
    text = section.text()
    for kind, zh in (
        ("unchanged", "无变化"),
        ("takes another path", "路径不同"),
        ("asks other people", "询问的人不同"),
        ("would fail", "会失败"),
        ("can't be determined", "无法判断"),
        ("Would also ask: ask ann", "还会询问：ask ann"),
        ("0 of 1 waiting run could move", "1 个等待中的运行里，有 0 个可以迁移"),
    ):
        assert (kind if english else zh) in text
    failing = section.locator(f"li:has(> .tag:text-is('{'would fail' if english else '会失败'}'))")
    failing.locator("summary").click()
    assert "too.little" in failing.locator("details").text()
    assert failing.locator("a").play("getAttribute", "href") == f"/console/runs/{runs[7]}"
    section.role("heading", {"/^(Backtest on recorded runs|用已有运行回测)$/": ""}).play("scrollIntoViewIfNeeded")
    picture(shown, "backtest" if english else "backtest-phone")
    assert shown.axe() == []
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert section.locator(".note").count() == 0
    shown.evaluate(CUT_SHORT)
    section.locator("button").first().click()
    section.locator(".note").there()
    text = section.text()
    for words, zh in (
        ("Choose a shorter time, or use hai-flow backtest.", "请缩短时间，或使用 hai-flow backtest。"),
        ("would fail", "会失败"),
        ("personal values that you may not see: 2 runs", "其中有您无权查看的个人数据：2"),
    ):
        assert (words if english else zh) in text


def test_a_refused_start_keeps_its_input_and_names_the_missing_part(page: NewPage) -> None:
    shown = page().goto("/console/workflows/frontend?pane=start")
    shown.role("button", "Start a run").click()
    shown.locator(".error, [role=alert]").first().there()
    shown.label("What is painted").fill("fence")
    shown.role("button", "Start a run").click()
    shown.words("The run has started.").there()


def test_a_text_is_checked_as_one_types_and_its_draft_is_kept(page: NewPage, published: str) -> None:
    shown = page().goto(f"/console/workflows/{published}/edit")
    shown.words("No errors.").there()
    shown.locator("section svg [data-path=first]").there()
    text = shown.locator(".cm-content")
    text.play("press", "Control+End")
    text.play("pressSequentially", "  - retrun: 1\n")
    shown.words("1 error").there()
    assert "retrun" in shown.locator(".findings button").first().text()
    shown.words("The picture shows the last text without errors.").there()
    assert shown.axe() == []
    shown.play(["reload"])
    shown.words("Draft restored.").there()
    shown.role("button", "Discard the draft").click()
    shown.words("No errors.").there()


def test_a_replacement_of_a_selection_breaks_no_policy_and_loses_no_letter(page: NewPage, published: str) -> None:
    shown = page().goto(f"/console/workflows/{published}/edit")
    shown.words("No errors.").there()
    text = shown.locator(".cm-content")

    def holds(lines: str) -> None:
        shown.until(
            "[...document.querySelector('.editor').shadowRoot.querySelectorAll('.cm-line')]"
            f".map((each) => each.textContent).join('\\n') === {json.dumps(lines)}"
        )

    whole = f"hai: flow/v1\nname: {published}\nversion: 7\ntitle: Typed in one go, faster than a busy page draws it\n"
    text.play("press", "Control+a")
    text.play("pressSequentially", whole)
    holds(whole)
    text.play("press", "Control+Home")
    text.play("press", "Shift+End")
    shown.protocol("Input.insertText", text="hai: flow/v1 # told")  # as a keyboard on a screen does
    holds(whole.replace("v1", "v1 # told"))
    text.play("press", "Control+a")
    shown.protocol("Input.imeSetComposition", text="你", selectionStart=1, selectionEnd=1)
    shown.protocol("Input.insertText", text="你好")
    holds("你好")
    text.play("press", "Control+z")
    text.fill("# filled in")
    holds("# filled in")


def test_a_document_in_json_gets_the_next_version_number_as_well(
    page: NewPage, published: str, http: httpx2.Client
) -> None:
    shown = page().goto(f"/console/workflows/{published}/edit")
    shown.words("No errors.").there()
    steps = [{"id": "first", "return": "three"}]
    text = shown.locator(".cm-content")
    text.play("press", "Control+a")  # an editor that gets the focus just now would forget the selection of the driver
    text.fill(json.dumps({"hai": "flow/v1", "name": published, "version": 1, "steps": steps}))
    shown.until("!document.querySelector('main button.main[disabled]')")
    shown.role("button", "Publish").click()
    shown.role("heading", f"Publish {published} as version 1?").there()
    shown.role("dialog").role("button", "Publish").click()
    shown.role("button", "Next version number: 2").click()
    shown.until("!document.querySelector('dialog .main[disabled]')")
    shown.role("dialog").role("button", "Publish").click()
    shown.role("button", "Next version number: 3").click()
    shown.until("!document.querySelector('dialog .main[disabled]')")
    shown.role("dialog").role("button", "Publish").click()
    shown.role("tab", "Picture").there()
    told = http.get(f"/v1/workflows/{published}").json()
    assert (told["version"], json.loads(told["source"])["steps"]) == (3, steps)


def test_what_is_no_json_yet_is_not_sent_and_not_lost(page: NewPage, http: httpx2.Client) -> None:
    shown = page().goto("/console/workflows/state?pane=start")
    field = shown.label("given")
    field.fill('{"whole": 1}')
    field.fill('{"half": ')
    shown.words("This is not JSON.").there()
    before = runs_of(http, "state")
    shown.role("button", "Start a run").click()
    shown.words("One of the fields doesn't contain valid JSON yet.").there()
    assert shown.axe() == []
    shown.play(["reload"])
    shown.words("This is not JSON.").there()
    assert field.value() == '{"half": '
    field.fill('{"half": 2}')
    shown.role("button", "Start a run").click()
    shown.words("The run has started.").there()
    (run,) = [each for each in runs_of(http, "state") if each not in before]
    assert run["input"] == {"given": {"half": 2}}


def runs_of(http: httpx2.Client, workflow: str) -> list[dict[str, Any]]:
    return http.get("/v1/runs", params={"workflow": workflow, "limit": 200}).json()["items"]


def test_keys_of_the_language_are_offered_where_they_may_stand(page: NewPage, published: str) -> None:
    shown = page().goto(f"/console/workflows/{published}/edit")
    shown.words("No errors.").there()
    text = shown.locator(".cm-content")
    text.play("press", "Control+End")
    text.play("pressSequentially", "  - appr")
    shown.locator(".cm-tooltip-autocomplete li").first().there()
    assert "approve" in shown.locator(".cm-tooltip-autocomplete").text()


def test_an_existing_version_is_not_overwritten_and_the_next_is_published(
    page: NewPage, published: str, http: httpx2.Client
) -> None:
    shown = page().goto(f"/console/workflows/{published}/edit")
    shown.words("No errors.").there()
    text = shown.locator(".cm-content")
    text.play("press", "Control+End")
    text.play("pressSequentially", "# more\n")
    shown.words("No errors.").there()
    shown.role("button", "Publish").click()
    shown.role("dialog").role("button", "Publish").click()
    shown.words("This version is already published with different content.").there()
    shown.role("button", name={"/Next version number/": ""}).click()
    shown.until("!document.querySelector('dialog .note.bad')")
    shown.until("!document.querySelector('dialog .main[disabled]')")
    shown.role("dialog").role("button", "Publish").click()
    shown.role("tab", "Picture").there()
    assert http.get(f"/v1/workflows/{published}").json()["version"] == 3


def test_a_run_speaks_with_the_page_which_answers_its_tool(page: NewPage) -> None:
    shown = page().goto("/console/workflows/frontend?pane=chat")
    shown.label("What is painted").fill("fence")
    shown.role("button", "Begin").click()
    shown.words("Frontend tool call: pick").there()
    assert shown.axe() == []
    shown.label("colour").play("selectOption", {"label": "blue"})
    shown.role("button", "Answer").click()
    shown.words("The fence becomes blue.").there()
    shown.words("The run has ended.").there()


def test_an_agents_call_is_approved_in_the_conversation(page: NewPage) -> None:
    shown = page().goto("/console/workflows/agent_talks?pane=chat")
    shown.locator("form input").first().fill("Pay it back.")
    shown.role("button", "Begin").click()
    shown.role("button", "Approve").there()
    shown.role("heading", "Mail: A-1, 9?").there()
    assert shown.locator("[role=alert]").count() == 0
    assert shown.axe() == []
    shown.role("button", "Approve").click()
    shown.words("It is paid back.").there()
    shown.words("The run has ended.").there()


def test_a_publisher_retires_a_version_and_takes_it_back_into_use(
    page: NewPage, http: httpx2.Client, published: str
) -> None:
    shown = page().goto(f"/console/workflows/{published}?pane=versions")
    old = shown.locator("li:has-text('version 1')")
    old.role("button", "Retire").click()
    shown.role("dialog").role("button", "Retire").click()
    old.locator(".tag.bad").there()
    assert shown.axe() == []
    versions = http.get(f"/v1/workflows/{published}").json()["versions"]
    assert [each["retired_at"] is None for each in versions] == [True, False]
    body = {"workflow": f"{published}@1", "thread_id": f"retired {published}"}
    assert http.post("/v1/runs", json=body).json()["code"] == "workflow_retired"
    old.role("button", "Restore").click()
    old.role("button", "Retire").there()
    assert http.post("/v1/runs", json=body).status_code == 201
