"""Links of mails: opening one decides nothing, whatever opens it; its form decides once, as one person."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from hai_flow.api.http import visitor_pages
from hai_flow.api.rest import sign_in
from hai_flow.api.rest.people import links
from hai_flow.primitives.invisible_characters import WARNING
from tests.api.test_rest import Checked, wait_for_pendings
from tests.support.examples import by_night
from tests.support.identities import KEYS, People
from tests.support.postgres import Server, execute, run_apart
from tests.support.receivers import Mailbox, mail_server
from tests.support.server import YAML, expect, serving
from tests.support.waiting import until, wait_for

MAILED = """
hai: flow/v1
name: mailed
version: 1
steps:
  - id: go
    approve: {title: "<b>Spend</b> it?", message: "see https://evil.example", from: role:boss, notify: [email],
              options: [approve, revise, reject], reasons: {revise: required}}
    on_decision: {revise: [{return: again}]}
"""
FORM = """
hai: flow/v1
name: asked
version: 1
steps:
  - id: which
    ask:
      title: Which?
      from: [role:boss]
      notify: [email]
      form:
        type: object
        required: [size, n, ok]
        properties:
          size: {type: string, enum: [S, "M & <M>"], title: "Size <i>?", description: of the shirt}
          n: {type: integer, minimum: 1, title: How many}
          ok: {type: boolean}
          colours: {type: array, items: {type: string, enum: [red, blue]}}
          note: {type: string, maxLength: 500, default: "as <always>"}
          extra: {type: object, properties: {a: {type: integer}}}
output: "${{ steps.which.output }}"
"""
GATED = """
hai: flow/v1
name: gated
version: 1
steps:
  - id: go
    approve:
      title: Go?
      from: [role:boss]
      notify: [email]
      form: {type: object, required: [limit], properties: {limit: {type: number, maximum: 100}}}
"""
FILE = """
hai: notify/v1
url: http://127.0.0.1
channels:
  email: {kind: email, host: 127.0.0.1, port: PORT, security: none, from: "Flow <flow@example.com>"}
people:
  user:ann: {email: ann@example.com, roles: [boss]}
"""


class Mailed:
    """A server that sends mails, and what came."""

    def __init__(self, http: Checked, box: Mailbox, dsn: str) -> None:
        self.http, self.box, self.dsn = http, box, dsn
        for source in (MAILED, FORM, GATED):
            assert http.post("/v1/workflows", content=source, headers=YAML).status_code == 201

    def ask(self, workflow: str = "mailed") -> tuple[dict[str, Any], str]:
        """A question of a new run, and the path of the link to it."""
        body = {"workflow": workflow}
        run = self.http.post("/v1/runs", json=body, headers={"HAI-Act-As": "user:req"}).json()
        (pending,) = wait_for_pendings(self.http, run["id"])
        return {**pending, "run": run["id"]}, wait_for(lambda: self._link(run["id"]))

    def _link(self, run_id: str) -> str | None:
        rows = self.http.get("/v1/notifications", params={"run_id": run_id, "status": "sent"}).json()["items"]
        if not rows:
            return None
        (mail,) = [each for each in self.box.mails if each["Message-ID"] == f"<{rows[0]['id']}@hai-flow>"]
        (link,) = re.findall(r"/links/\S+", str(mail.get_payload()))
        return link

    def events(self, run_id: str) -> list[str]:
        page = self.http.get(f"/v1/runs/{run_id}/events", params={"limit": 200}).json()
        return [each["type"] for each in page["items"]]

    def press(self, link: str, decision: str, **fields: str) -> httpx2.Response:
        page = self.http.get(link)
        digest = re.search(r'name="digest" value="([0-9a-f]+)"', page.text)
        given = {"decision": decision, "digest": digest[1] if digest else "", **fields}
        return self.http.post(link, data=given)


@pytest.fixture(scope="module")
def mailed(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mailed]:
    with ExitStack() as stack:
        box = stack.enter_context(mail_server())
        file: Path = tmp_path_factory.mktemp("notify") / "notify.yaml"
        file.write_text(FILE.replace("PORT", str(box.port)))
        dsn = stack.enter_context(postgres_server.database())
        server = stack.enter_context(serving(dsn, environment={"HAI_FLOW_NOTIFY": str(file)}))
        yield Mailed(stack.enter_context(Checked(server.url)), box, dsn)


def test_scanners_may_open_a_link_a_thousand_times_and_nothing_happens(mailed: Mailed) -> None:
    pending, link = mailed.ask()
    before = mailed.events(pending["run"])
    for n in range(by_night(1000, 50)):
        method = ("GET", "HEAD", "OPTIONS")[n % 3]
        answer = mailed.http.request(method, link, headers={"user-agent": "scanner"})
        assert answer.status_code == (200 if method != "OPTIONS" else 405)
    assert mailed.events(pending["run"]) == before
    assert "has been recorded" in mailed.press(link, "approve").text
    assert "pending_decided" in mailed.events(pending["run"])


def test_the_page_shows_hostile_words_as_text_and_loads_nothing(mailed: Mailed) -> None:
    _, link = mailed.ask()
    page = mailed.http.get(link)
    assert "<b>Spend</b>" not in page.text
    assert html.escape("<b>Spend</b> it?") in page.text
    assert "<script" not in page.text
    assert "<a " not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'; form-action 'self'")
    assert page.headers["referrer-policy"] == "same-origin"
    assert page.headers["cache-control"] == "no-store"


def test_a_link_decides_once_as_the_person_whom_it_was_for(mailed: Mailed) -> None:
    pending, link = mailed.ask()
    assert mailed.press(link, "reject", reason="no").status_code == 200
    for decision in ("reject", "approve"):
        assert mailed.press(link, decision).status_code == 404
    shown = mailed.http.get(f"/v1/pendings/{pending['id']}").json()
    assert (shown["status"], shown["decided_by"], shown["reason"]) == ("reject", "user:ann", "no")
    (vote,) = shown["needed"]["votes"]
    assert vote["via"] == "link"


def test_what_the_rules_refuse_leaves_the_link_good(mailed: Mailed) -> None:
    pending, link = mailed.ask()
    unsaid = mailed.press(link, "revise")
    assert (unsaid.status_code, "Enter a reason." in unsaid.text, "call_" in unsaid.text) == (422, True, False)
    assert mailed.press(link, "nonsense").status_code == 422
    assert mailed.press(link, "approve", digest="0" * 64).status_code == 422
    assert mailed.http.get(f"/v1/pendings/{pending['id']}").json()["status"] == "open"
    assert mailed.press(link, "revise", reason="more").status_code == 200


def test_a_link_to_what_was_decided_elsewhere_decides_nothing(mailed: Mailed) -> None:
    pending, link = mailed.ask()
    given = {"decision": "approve"}
    headers = {"HAI-Act-As": "user:bob,role:boss"}
    assert mailed.http.post(f"/v1/pendings/{pending['id']}/decide", json=given, headers=headers).status_code == 200
    assert "already been closed" in mailed.http.get(link).text
    assert mailed.press(link, "reject").status_code == 409


LATIN: Final = re.compile(r"[A-Za-z][A-Za-z'-]+(?: [A-Za-z'-]+)+")


def test_a_chinese_browser_gets_each_page_of_a_link_in_chinese(mailed: Mailed) -> None:
    headers = {"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.5"}
    _, link = mailed.ask("gated")
    question = mailed.http.get(link, headers=headers).text
    digest = re.search(r'name="digest" value="([0-9a-f]+)"', question)[1]  # type: ignore[index]
    given = {"digest": digest, "value.limit": "many"}
    answers = [
        mailed.http.post(link, data=given | {"decision": "approve"}, headers=headers),
        mailed.http.post(link, data={**given, "decision": "approve", "value.limit": "5000"}, headers=headers),
        mailed.http.post(link, data={"digest": "0" * 64, "decision": "reject", "reason": "no"}, headers=headers),
        mailed.http.post(link, data={"digest": digest, "decision": "reject", "reason": "no"}, headers=headers),
        mailed.http.get(link, headers=headers),
    ]
    assert [each.status_code for each in answers] == [422, 422, 422, 200, 404]
    for page in [question, *(each.text for each in answers)]:
        assert '<html lang="zh-CN">' in page
        words = html.unescape(
            re.sub(r"<style>.*?</style>|<pre>.*?</pre>|<h1>.*?</h1>|<title>.*?</title>|<[^>]+>", "\n", page)
        )
        assert LATIN.findall(words) in ([], ["HAI Flow"]), words
        assert not re.search(r"[\u4e00-\u9fff][,:;?!()]|[,:;?!()][\u4e00-\u9fff]", words), words


def test_every_sentence_of_the_servers_pages_is_said_in_chinese() -> None:
    folder = Path(sign_in.__file__).parent
    trees = [ast.parse(path.read_text()) for path in folder.rglob("*.py") if "visitor_pages" in path.read_text()]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    literals = {
        str(call.args[1].value)
        for call in calls
        if getattr(call.func, "id", "") in ("say", "_page") and isinstance(call.args[1], ast.Constant)
    }
    assert {"Send", "Not signed in"} < literals
    sentences = {*literals, *sign_in._NEXT.values(), sign_in._LINK_NEXT, sign_in._AGAIN}
    sentences |= {links._GONE, links._CLOSED, links._DECIDED, links._ELSEWHERE, WARNING}
    for each in sentences:
        assert re.search(r"[\u4e00-\u9fff]", visitor_pages.say(visitor_pages.CHINESE, each, "", "")), each


@pytest.mark.parametrize("token", ["", "x", "a" * 43, "../healthz", "%00", "a" * 5000])
def test_a_token_that_was_given_to_nobody_is_nothing(mailed: Mailed, token: str) -> None:
    for method in ("GET", "POST"):
        answer = mailed.http.request(method, f"/links/{token}")
        assert answer.status_code in (404, 405, 307) or "/healthz" in str(answer.url)


def test_another_site_s_page_can_not_press_the_button(mailed: Mailed) -> None:
    pending, link = mailed.ask()
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert mailed.http.post(link, data={"decision": "approve"}, headers=headers).status_code == 403
    assert mailed.http.post(link, json={"decision": "approve"}).status_code == 415
    assert mailed.http.get(f"/v1/pendings/{pending['id']}").json()["status"] == "open"


def test_a_link_whose_time_is_over_is_as_one_that_never_was(mailed: Mailed) -> None:
    pending, link = mailed.ask()
    run_apart(execute(mailed.dsn, "UPDATE links SET expires_at = now() - interval '1 second'"))
    absent, over = mailed.http.get("/links/" + "a" * 43), mailed.http.get(link)
    assert (over.status_code, over.text) == (absent.status_code, absent.text)
    assert (absent.status_code, "expired or was already used" in absent.text) == (404, True)
    assert mailed.press(link, "approve").status_code == 404
    assert mailed.http.get(f"/v1/pendings/{pending['id']}").json()["status"] == "open"


@pytest.mark.parametrize(
    ("lost", "left"),
    [("user:ann: {email: ann@example.com, roles: [boss]}", "user:ben: {}"), ("roles: [boss]", "roles: [clerk]")],
)
def test_a_link_ends_with_its_person_and_lends_no_role_that_was_removed(
    mailed: Mailed, tmp_path: Path, lost: str, left: str
) -> None:
    pending, link = mailed.ask()
    file = tmp_path / "notify.yaml"
    file.write_text(FILE.replace("PORT", "1").replace(lost, left))
    with serving(mailed.dsn, environment={"HAI_FLOW_NOTIFY": str(file)}) as server:
        there = Mailed.__new__(Mailed)
        there.http = Checked(server.url)
        with there.http:
            assert there.press(link, "approve").status_code == 404
    assert mailed.http.get(f"/v1/pendings/{pending['id']}").json()["status"] == "open"


def test_no_link_lasts_longer_than_three_days(mailed: Mailed) -> None:
    mailed.ask()
    query = "SELECT max(expires_at) - now() FROM links"
    assert People(mailed.dsn).do(lambda connection: connection.fetchval(query)) <= timedelta(hours=72)


FILLED = {
    "value.size": "M & <M>", "value.n": "2", "value.ok": "false", "value.colours": ["red", "blue"],
    "value.note": "one\r\ntwo", "value.extra": '{"a": 1}',
}  # fmt: skip


def send(mailed: Mailed, link: str, fields: dict[str, Any]) -> httpx2.Response:
    """The form as a browser sends it."""
    digest = re.search(r'name="digest" value="([0-9a-f]+)"', mailed.http.get(link).text)
    assert digest is not None
    return mailed.http.post(link, data={"digest": digest[1], **fields})


def test_a_form_is_filled_in_on_the_page_without_a_script(mailed: Mailed) -> None:
    pending, link = mailed.ask("asked")
    page = mailed.http.get(link).text
    for number, name in enumerate(("size", "n", "ok", "note", "extra")):
        assert f'name="value.{name}"' in page, number
    assert set(re.findall(r'label for="(f\d)"', page)) == set(re.findall(r'id="(f\d)"', page))
    assert 'aria-describedby="f0-hint"' in page
    assert "Size &lt;i&gt;? (required)" in page
    assert html.escape("as <always>") in page
    assert "<i>" not in page
    assert "<script" not in page
    answered = send(mailed, link, FILLED)
    assert (answered.status_code, "has been recorded" in answered.text) == (200, True)
    shown = mailed.http.get(f"/v1/pendings/{pending['id']}").json()
    assert (shown["status"], shown["decided_by"]) == ("answered", "user:ann")
    assert shown["value"] == {
        "size": "M & <M>", "n": 2, "ok": False, "colours": ["red", "blue"], "note": "one\ntwo", "extra": {"a": 1},
    }  # fmt: skip
    assert send_gone(mailed, link) == 404


def send_gone(mailed: Mailed, link: str) -> int:
    return mailed.http.post(link, data=FILLED).status_code


def test_a_refused_form_keeps_its_input_and_shows_faults_at_their_fields(mailed: Mailed) -> None:
    pending, link = mailed.ask("asked")
    typed = {**FILLED, "value.n": "two <b>", "value.ok": "", "value.extra": "{", "value.note": "  kept\nas is"}
    page = expect(send(mailed, link, typed), 422).text
    assert 'role="alert"' in page
    for number, wrong in ((0, False), (1, True), (2, True), (4, False), (5, True)):
        assert (f'id="f{number}-error"' in page) is wrong, (number, page)
        assert (f'id="f{number}" name' in page) is True
    assert "This field is required." in page.partition('id="f2-error"')[2].partition("</strong>")[0]
    assert html.escape("two <b>") in page
    assert "two <b>" not in page
    assert "\n  kept\nas is</textarea>" in page
    assert page.count(" checked") == 2
    assert re.search(r'value="M &amp; &lt;M&gt;" selected', page)
    assert mailed.http.get(f"/v1/pendings/{pending['id']}").json()["status"] == "open"
    assert send(mailed, link, FILLED).status_code == 200


@pytest.mark.parametrize(
    "more",
    [{"edits": '{"limit": 1}'}, {"value.sum": "1"}, {"values": '{"limit": 1}'}, {"decision": ["approve", "reject"]},
     {"value.limit": ["5", "50"]}],
    ids=str,
)  # fmt: skip
def test_a_form_with_a_field_of_its_own_or_two_of_one_decides_nothing(mailed: Mailed, more: dict[str, Any]) -> None:
    pending, link = mailed.ask("gated")
    assert send(mailed, link, {"decision": "approve", "value.limit": "5", **more}).status_code == 422
    assert mailed.http.get(f"/v1/pendings/{pending['id']}").json()["status"] == "open"


def test_an_approval_s_form_goes_with_its_buttons(mailed: Mailed) -> None:
    pending, link = mailed.ask("gated")
    assert send(mailed, link, {"decision": "approve"}).status_code == 422
    refused = expect(send(mailed, link, {"decision": "approve", "value.limit": "500", "reason": "why <not>"}), 422)
    assert 'value="500"' in refused.text
    assert html.escape("why <not>") in refused.text
    long = send(mailed, link, {"decision": "approve", "value.limit": "5", "reason": "x" * 10_001})
    assert (long.status_code, 'value="5"' in long.text) == (422, True)
    assert send(mailed, link, {"decision": "reject", "reason": "no"}).status_code == 200
    assert mailed.http.get(f"/v1/pendings/{pending['id']}").json()["status"] == "reject"


def test_a_form_that_comes_too_late_is_told_so(mailed: Mailed) -> None:
    pending, link = mailed.ask("asked")
    digest = re.search(r'name="digest" value="([0-9a-f]+)"', mailed.http.get(link).text)
    given = {"values": {"size": "S", "n": 1, "ok": True}}
    decided = mailed.http.post(
        f"/v1/pendings/{pending['id']}/decide", json=given, headers={"HAI-Act-As": "user:b,role:boss"}
    )
    assert decided.status_code == 200, decided.text
    assert digest is not None
    assert mailed.http.post(link, data={"digest": digest[1], **FILLED}).status_code == 409


def test_fields_without_number_and_bytes_that_are_no_form_are_refused(mailed: Mailed) -> None:
    _, link = mailed.ask("asked")
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert mailed.http.post(link, content="&".join(f"a{n}=1" for n in range(600)), headers=form).status_code == 400
    assert mailed.http.post(link, content=b"a=%ff%fe&value.n=" + b"9" * 70_000, headers=form).status_code == 413
    assert send(mailed, link, FILLED).status_code == 200


def test_a_link_decides_nothing_for_a_person_whose_keys_were_revoked(postgres_server: Server, tmp_path: Path) -> None:
    with ExitStack() as stack:
        box, dsn = stack.enter_context(mail_server()), stack.enter_context(postgres_server.database())
        notify = tmp_path / "notify.yaml"
        notify.write_text(FILE.replace("PORT", str(box.port)))
        server = stack.enter_context(serving(dsn, environment={**KEYS, "HAI_FLOW_NOTIFY": str(notify)}))
        people = People(dsn)

        def call(who: str, method: str, path: str, **more: Any) -> httpx2.Response:
            headers = people.person(f"user:{who}", roles=["publisher", "operator"]) | more.pop("headers", {})
            return httpx2.request(method, server.url + path, headers=headers, **more)

        assert call("pat", "POST", "/v1/workflows", content=MAILED, headers=YAML).status_code == 201
        run = call("pat", "POST", "/v1/runs", json={"workflow": "mailed"}).json()["id"]
        key, _ = people.key("user:ann", roles=["boss", "decider"])

        async def link() -> str | None:
            return next(
                (each for mail in box.mails for each in re.findall(r"/links/\S+", str(mail.get_payload()))), None
            )

        path = run_apart(until(link))
        assert path is not None
        assert httpx2.get(server.url + path).status_code == 200
        people.do(lambda connection: connection.execute("UPDATE keys SET expires_at = now() WHERE id = $1", key.id))
        assert httpx2.get(server.url + path).status_code == 200, "a key that ends by itself lets nobody go"
        people.revoke(key)
        page = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
        form = {"decision": "approve"}
        assert httpx2.get(server.url + path).status_code == 404
        assert httpx2.post(server.url + path, data=form, headers=page).status_code == 404
        assert call("pat", "GET", f"/v1/runs/{run}").json()["status"] == "waiting"
        people.key("user:ann")
        assert httpx2.post(server.url + path, data=form, headers=page).status_code == 200, "a good key is enough"
