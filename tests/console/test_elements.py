"""<hai-approval> and <hai-inbox> in a page of somebody else, on another origin, under a strict policy."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hai_flow.primitives.invisible_characters import has_hidden
from tests.clients import rig
from tests.console.browser import Page
from tests.console.conftest import PATIENCE, pending_of
from tests.console.hosts import HostSite, host_site
from tests.console.test_values import DEPTH, FLOW, LEAVES, invented
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving
from tests.support.waiting import wait_for
from tests.test_invisible_characters import HOSTILE as HOSTILE_SIGNS

FLOWS = Path(__file__).parent / "flows"

GIVES = """
addEventListener('DOMContentLoaded', () => {
  for (const [id, token] of Object.entries(%s)) document.getElementById(id).token = token;
});
"""

HEARS = """
globalThis.heard = [];
addEventListener('DOMContentLoaded', () => {
  for (const each of document.querySelectorAll('hai-approval, hai-inbox'))
    for (const name of ['hai-decided', 'hai-expired', 'hai-error', 'hai-token-needed'])
      each.addEventListener(name, (event) => heard.push([each.id, name, event.detail]));
});
"""


class Desk:
    """A server that asks everybody who they are, the site of somebody else, and what a test does with both."""

    def __init__(self, site: HostSite, server: ServerProcess, people: People) -> None:
        self.site, self.url = site, server.url
        self.people = people
        self.http = httpx2.Client(base_url=server.url, timeout=PATIENCE)
        _, self.key = people.key("service:shop", roles=["issuer", "decider", "operator"], speaks_for=["user:*"])

    def token(self, who: str, roles: tuple[str, ...] = ("decider",), **more: Any) -> str:
        body = {"principal": who, "roles": roles, **more}
        made = self.http.post("/v1/tokens", json=body, headers={"Authorization": f"Bearer {self.key}"})
        return str(made.raise_for_status().json()["token"])

    def ask(self, workflow: str, thread: str | None = None, **given: Any) -> dict[str, Any]:
        """The question of a new run."""
        body = {"workflow": workflow, "input": given, **({} if thread is None else {"thread_id": thread})}
        self.http.headers.update(self.people.person("user:olga", roles=["operator", "decider"]))
        started = self.http.post("/v1/runs", json=body)
        return pending_of(self.http, started.raise_for_status().json()["id"])

    def state(self, pending: dict[str, Any]) -> dict[str, Any]:
        return dict(self.http.get(f"/v1/pendings/{pending['id']}").json())

    def votes(self, pending: dict[str, Any]) -> list[tuple[str, str | None]]:
        return [(each["by"], each.get("reason")) for each in self.state(pending)["needed"]["votes"]]

    def until(self, pending: dict[str, Any], status: str) -> None:
        """Wait until the question has this status."""
        wait_for(lambda: self.state(pending)["status"] == status, PATIENCE)

    def decide(self, pending: dict[str, Any], who: str, decision: str) -> None:
        headers = {"Authorization": f"Bearer {self.token(who)}"}
        self.http.post(
            f"/v1/pendings/{pending['id']}/decide", json={"decision": decision}, headers=headers
        ).raise_for_status()


@pytest.fixture(scope="module")
def desk(postgres_server: Server, built: Path, driver: rig.Driver) -> Iterator[Desk]:
    with (
        host_site() as site,
        postgres_server.database() as dsn,
        serving(dsn, environment={**KEYS, "HAI_FLOW_ALLOWED_ORIGINS": site.origin}) as server,
    ):
        site.flow = server.url
        people = People(dsn)
        headers = {**YAML, **people.person("user:pat", roles=["publisher"])}
        files = [(FLOWS / f"{each}.flow.yaml").read_text() for each in ("payout", "visit")]
        for source in (*files, FLOW, SHORT, FILED):
            published = httpx2.post(f"{server.url}/v1/workflows", content=source, headers=headers, timeout=PATIENCE)
            assert published.status_code == 201, published.text
        desk = Desk(site, server, people)
        yield desk
        desk.http.close()


Show = Callable[..., Page]


@pytest.fixture
def show(driver: rig.Driver, desk: Desk) -> Iterator[Show]:
    """Opens a page of the site. None may have complained of anything when the test is done; a violation of the policy
    is such a complaint."""
    pages: list[Page] = []

    def open_page(
        body: str, tokens: dict[str, str] | None = None, script: str = "", style: str = "", **options: Any
    ) -> Page:
        path = desk.site.write(body, HEARS + (GIVES % (tokens or {})) + script, style)
        pages.append(
            Page(driver, desk.site.origin, None, {"locale": "en-GB", "timezoneId": "Europe/Berlin", **options})
        )
        return pages[-1].goto(path)

    yield open_page
    complaints = {each.name: found for each in pages if (found := each.complaints())}
    for each in pages:
        each.close()
    assert not complaints


def heard(page: Page, name: str) -> list[dict[str, Any]]:
    events = page.evaluate(f"heard.filter((each) => each[1] === '{name}')")
    return [{"id": id, **detail} for id, _, detail in events]


def approval(pending: dict[str, Any], id: str = "a", **attributes: str) -> str:
    more = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    return f'<hai-approval id="{id}" pending="{pending["id"]}" {more}></hai-approval>'


def test_a_question_is_decided_on_a_foreign_page_under_a_strict_policy(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    page = show(approval(pending, sending="once"), {"a": desk.token("user:ann")})
    page.role("heading", "Pay 1200 to Müller GmbH?").there()
    page.role("button", "Approve").click()
    page.words("Your vote has been recorded").there()
    assert heard(page, "hai-decided") == [{"id": "a", "pending": pending["id"], "status": "open", "here": True}]
    assert page.axe() == []
    desk.decide(pending, "user:bob", "approve")
    page.until("heard.some((each) => each[1] === 'hai-decided' && each[2].status === 'approve')")
    assert heard(page, "hai-error") == heard(page, "hai-token-needed") == []


def test_the_keyboard_alone_decides_and_keys_elsewhere_decide_nothing(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    page = show(f'<input id="search" aria-label="Search">{approval(pending)}', {"a": desk.token("user:ann")})
    page.role("button", "Approve").there()
    assert page.evaluate("document.activeElement === document.body"), "the focus is the page's own"
    page.press("a")
    page.label("Search").play("press", "a")
    assert page.role("button", {"/Undo/": ""}).count() == 0
    page.label("Comment").play("press", "a")
    assert page.label("Comment").value() == "a"
    page.label("Comment").play("press", "Escape")
    page.label("Search").play("focus")
    tab_to(page, "Approve")
    page.press("a")
    page.role("button", {"/Undo/": ""}).there()
    assert focused(page).startswith("Undo"), "it has the focus that the button had"
    page.press("z")
    page.role("button", "Approve").there()
    page.label("Search").play("focus")
    tab_to(page, "Reject")
    page.press("Enter")
    page.until("heard.some((each) => each[1] === 'hai-decided')")
    assert desk.state(pending)["status"] == "reject"
    assert "decision" in focused(page) or focused(page), "the focus is not lost"


FOCUSED = """(() => {
  let at = document.activeElement;
  while (at.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  return at.innerText ?? at.tagName;
})()"""


def focused(page: Page) -> str:
    """The text of what has the focus, also within an element."""
    return str(page.evaluate(FOCUSED))


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the button has the focus."""
    for _ in range(40):
        page.press("Tab")
        if focused(page) == name:
            return
    raise AssertionError(f"no way leads to {name}")


def test_two_on_one_page_are_of_two_people_in_two_languages_and_two_themes(desk: Desk, show: Show) -> None:
    one, other = desk.ask("payout"), desk.ask("payout")
    body = approval(one, "a", sending="once") + approval(other, "b", sending="once", lang="zh", theme="dark")
    page = show(body, {"a": desk.token("user:ann"), "b": desk.token("user:bob")})
    page.locator("#a").role("button", "Approve").there()
    page.locator("#b").role("button", "批准").there()
    page.locator("#a").label("Comment").fill("from ann")
    assert page.axe() == []
    page.locator("#b").role("button", "批准").click()
    page.until("heard.some((each) => each[0] === 'b' && each[1] === 'hai-decided')")
    page.locator("#a").role("button", "Approve").click()
    page.until("heard.some((each) => each[0] === 'a' && each[1] === 'hai-decided')")
    votes = {each["id"]: desk.state(each)["needed"]["votes"] for each in (one, other)}
    assert [(each["by"], each["reason"]) for each in votes[one["id"]]] == [("user:ann", "from ann")]
    assert [(each["by"], each.get("reason")) for each in votes[other["id"]]] == [("user:bob", None)]
    assert {each["pending"] for each in heard(page, "hai-decided") if each["id"] == "a"} == {one["id"]}


def test_one_question_twice_on_a_page_is_two_votes_of_two_people(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    body = approval(pending, "a", sending="once") + approval(pending, "b", sending="once")
    page = show(body, {"a": desk.token("user:ann"), "b": desk.token("user:bob")})
    page.locator("#a").label("Comment").fill("Only here")
    assert page.locator("#b").label("Comment").value() == ""
    page.locator("#a").role("button", "Approve").click()
    page.until("heard.some((each) => each[0] === 'a' && each[1] === 'hai-decided')")
    page.locator("#b").role("button", "Approve").click()
    page.until("heard.filter((each) => each[2].status === 'approve').length === 2")
    assert {each["by"] for each in desk.state(pending)["needed"]["votes"]} == {"user:ann", "user:bob"}


@pytest.mark.parametrize(("scheme", "theme"), [("dark", None), ("light", "dark"), ("dark", "light")])
def test_it_is_dark_as_the_system_or_the_attribute_says(desk: Desk, show: Show, scheme: str, theme: str | None) -> None:
    pending = desk.ask("payout")
    body = approval(pending, **({} if theme is None else {"theme": theme}))
    page = show(body, {"a": desk.token("user:ann")}, colorScheme=scheme)
    page.role("button", "Approve").there()
    ground = page.evaluate(f"getComputedStyle({BOX}).backgroundColor")
    assert ground == ("rgb(16, 19, 26)" if (theme or scheme) == "dark" else "rgb(246, 247, 249)")
    assert page.axe() == []


BOX = "document.querySelector('#a').shadowRoot.querySelector('.hai')"

HOSTILE = """
html, body, main, head { display: block !important; visibility: visible; }
main * { display: none !important; visibility: hidden !important; font: 90px/3 fantasy !important;
  color: #fff !important;
  letter-spacing: 20px !important; text-transform: uppercase !important; direction: rtl !important; opacity: 1;
  pointer-events: none !important; user-select: none !important; white-space: nowrap !important; }
html { font-size: 60px; } button { position: fixed !important; left: -9999px !important; }
"""
POLLUTED = """
Object.prototype.polluted = "x";
Array.prototype.last = function () { return this[this.length - 1]; };
Array.prototype.toJSON = function () { return "broken"; };
Function.prototype.debounce = function () {};
HTMLElement.prototype.focus2 = "y";
"""


def test_styles_and_scripts_of_the_page_do_not_reach_into_it(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    page = show(approval(pending, sending="once"), {"a": desk.token("user:ann")}, script=POLLUTED, style=HOSTILE)
    page.role("button", "Approve").there()
    look = page.evaluate(
        f"(() => {{ const s = getComputedStyle({BOX}); const b = getComputedStyle({BOX}.querySelector('button.main'));"
        " return [s.fontSize, s.letterSpacing, s.textTransform, s.direction, s.pointerEvents, s.userSelect,"
        " b.position, b.fontSize]; })()"
    )
    assert look == ["16px", "normal", "none", "ltr", "auto", "auto", "static", "16px"]
    page.role("button", "Approve").click()
    page.until("heard.some((each) => each[1] === 'hai-decided')")
    page.evaluate("document.querySelector('#a').hidden = true")
    page.role("button", "Approve").gone()


def test_an_element_adds_no_style_or_name_and_is_themed_by_properties(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    names = "globalThis.before = Object.keys(globalThis);"
    style = "#a { --hai-accent: rgb(1, 2, 3); --hai-font-size: 20px; --hai-radius: 0px; --accent: red; width: 500px; }"
    page = show(approval(pending), {"a": desk.token("user:ann")}, script=names, style=style)
    page.role("button", "Approve").there()
    assert page.evaluate("Object.keys(globalThis).filter((each) => !before.includes(each) && each !== 'before')") == []
    assert page.evaluate(
        "[document.styleSheets.length, document.adoptedStyleSheets.length, document.head.children.length]"
    ) == [1, 0, 5]
    look = page.evaluate(
        f"(() => {{ const s = getComputedStyle({BOX}); const b = getComputedStyle({BOX}.querySelector('button.main'));"
        " return [s.fontSize, s.borderRadius, b.backgroundColor, document.querySelector('#a').offsetWidth]; })()"
    )
    assert look == ["20px", "0px", "rgb(1, 2, 3)", 500]
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]


@pytest.mark.parametrize(
    ("style", "is_mended"),
    [
        ("#a { --hai-text: transparent; --hai-on-accent: transparent; }", True),
        ("#a { --hai-text: #fafafa; --hai-surface: #fff; --hai-ground: #fff; --hai-raised: #fff; }", True),
        ("#a { --hai-font-size: 0.5px; }", True),
        ("main { opacity: 0.02; }", False),
        ("main { filter: opacity(0%); }", False),
        ("#a { filter: blur(20px); }", False),
        ("#a { transform: scale(0.05); }", False),
    ],
    ids=["transparent", "white on white", "tiny", "faded", "filtered", "blurred", "shrunk"],
)
def test_what_the_pages_look_hides_is_not_decided(desk: Desk, show: Show, style: str, is_mended: bool) -> None:
    pending = desk.ask("payout")
    page = show(approval(pending, sending="once"), {"a": desk.token("user:ann")}, style=style)
    button = f"[...{BOX}.querySelectorAll('button')].find((each) => each.textContent.includes('Approve'))"
    page.until(f"Boolean({BOX}.querySelector('.value')) && Boolean({button})")
    for _ in range(1 if is_mended else 2):
        page.evaluate(f"{button}.click()")
    page.evaluate("document.querySelector('#a').focus()")
    assert [each["code"] for each in heard(page, "hai-error")] == ["unreadable"] * (1 if is_mended else 2)
    assert desk.votes(pending) == []
    if is_mended:
        text = page.evaluate(f"getComputedStyle({BOX}.querySelector('.value')).color")
        assert text == "rgb(23, 27, 36)"
        page.evaluate(f"{button}.click()")
        page.until("heard.some((each) => each[1] === 'hai-decided')")
        assert [by for by, _ in desk.votes(pending)] == ["user:ann"]


def test_a_foreign_and_an_absent_question_have_one_answer(desk: Desk, show: Show) -> None:
    foreign = desk.ask("payout", thread="thread-of-others")
    token = desk.token("user:mallory", (), threads=["thread-of-mallory"])
    answers = set()
    for id in (foreign["id"], "call_absent", f"{foreign['id']}x"):
        page = show(f'<hai-approval id="a" pending="{id}"></hai-approval>', {"a": token})
        page.words("or you don't have access to it").there()
        (error,) = heard(page, "hai-error")
        answers.add(
            (page.evaluate(f"{BOX}.innerText"), error["code"], error["status"], error["message"].replace(id, "ID"))
        )
    assert len(answers) == 1, answers


def test_a_token_expiring_inside_a_draft_is_renewed_and_the_draft_stays(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    page = show(approval(pending, sending="once"), {"a": desk.token("user:ann", expires_in=4)})
    page.label("Comment").fill("Written before")
    page.until("heard.some((each) => each[1] === 'hai-token-needed')")
    assert heard(page, "hai-token-needed")[0] == {"id": "a", "code": "auth.expired"}
    page.words("The page has to sign you in again").there()  # nobody has given another within some seconds
    assert page.label("Comment").value() == "Written before"
    page.label("Comment").fill("Written before and after")
    page.evaluate(f"document.querySelector('#a').token = '{desk.token('user:ann')}'")
    page.words("The page has to sign you in again").gone()
    assert page.label("Comment").value() == "Written before and after"
    page.role("button", "Approve").click()
    page.until("heard.some((each) => each[1] === 'hai-decided')")
    assert desk.votes(pending) == [("user:ann", "Written before and after")]


RENEWS = """
addEventListener('DOMContentLoaded', () => {
  const a = document.getElementById('a');
  a.addEventListener('hai-token-needed', () => setTimeout(() => { a.token = globalThis.next; }, 100));
});
globalThis.next = '%s';
"""


def test_a_page_that_renews_the_token_at_once_is_all_that_it_takes(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    script = RENEWS % desk.token("user:ann")
    page = show(approval(pending, sending="once"), {"a": desk.token("user:ann", expires_in=1)}, script=script)
    page.role("button", "Approve").there()
    page.until("heard.some((each) => each[1] === 'hai-token-needed')")
    page.role("button", "Approve").click()
    page.until("heard.some((each) => each[1] === 'hai-decided')")
    assert heard(page, "hai-error") == []


COUNTED = """
globalThis.fetches = 0;
const before = fetch;
globalThis.fetch = (...all) => { fetches += 1; return before(...all); };
"""


def test_a_page_that_gives_no_token_is_asked_again_only_rarely(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    script = RENEWS % "hait_nothing" + COUNTED
    page = show(approval(pending), {"a": "hait_nothing_either"}, script=script)
    page.words("The page has to sign you in again").there()
    page.until("new Promise((done) => setTimeout(() => done(true), 500))")
    assert page.evaluate("fetches") < 8
    assert len(heard(page, "hai-token-needed")) < 4


def test_one_persons_decision_or_draft_never_goes_in_anothers_name(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    page = show(approval(pending), {"a": desk.token("user:ann")})
    page.label("Comment").fill("by ann")
    page.role("button", "Approve").click()
    page.role("button", {"/Undo/": ""}).there()
    page.evaluate(f"document.querySelector('#a').token = '{desk.token('user:bob')}'")
    page.role("button", "Approve").there()
    assert page.label("Comment").value() == ""
    page.evaluate("document.querySelector('#a').token = null")
    page.role("button", "Approve").gone()
    page.words("The page has to sign you in again").there()
    assert desk.votes(pending) == []


def test_an_element_says_offline_and_back_and_shows_decisions_meanwhile(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    page = show(approval(pending), {"a": desk.token("user:ann")})
    page.label("Comment").fill("Half of it")
    page.offline(True)
    page.words("Connection lost").there()
    assert page.label("Comment").value() == "Half of it"
    desk.decide(pending, "user:bob", "reject")
    page.offline(False)
    page.words("Someone else has already decided this").there()
    assert heard(page, "hai-decided") == [{"id": "a", "pending": pending["id"], "status": "reject", "here": False}]


COUNTS = """
const before = fetch; globalThis.streams = new Set();
globalThis.fetch = (address, init) => {
  if (String(address).includes('/events') && !init.signal.aborted) {
    streams.add(init.signal);
    init.signal.addEventListener('abort', () => streams.delete(init.signal));
  }
  return before(address, init);
};
"""


def test_a_removed_element_closes_its_streams_and_keeps_its_draft(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    page = show(approval(pending), {"a": desk.token("user:ann")}, script=COUNTS)
    page.label("Comment").fill("Not lost")
    page.until("streams.size === 1")
    page.evaluate(
        "globalThis.kept = document.querySelector('#a'); document.querySelector('main').append(kept)"
    )  # moved
    page.until("streams.size === 1")
    assert page.label("Comment").value() == "Not lost"
    page.evaluate("kept.remove()")
    page.until("streams.size === 0")
    page.evaluate("document.querySelector('main').append(kept)")
    page.until("streams.size === 1")
    assert page.label("Comment").value() == "Not lost"
    other = desk.ask("payout", supplier="Other Ltd")
    page.evaluate(f"kept.pending = '{other['id']}'")
    page.role("heading", "Pay 1200 to Other Ltd?").there()
    assert page.evaluate("kept.getAttribute('pending')") == other["id"]
    assert page.label("Comment").value() == ""


def test_a_decision_goes_out_when_the_element_or_the_page_is_left(desk: Desk, show: Show) -> None:
    one, other = desk.ask("payout"), desk.ask("payout")
    page = show(approval(one) + approval(other, "b"), {each: desk.token("user:ann") for each in "ab"})
    for id in "ab":
        page.locator(f"#{id}").role("button", "Reject").click()
        page.locator(f"#{id}").role("button", {"/Undo/": ""}).there()
    page.evaluate("document.querySelector('#a').remove()")
    desk.until(one, "reject")
    page.goto(desk.site.write("nothing"))
    desk.until(other, "reject")


@pytest.mark.parametrize("seed", range(2))
def test_every_leaf_of_depth_6_is_visible_in_a_box_of_280_pixels(desk: Desk, show: Show, seed: int) -> None:
    leaves: list[str] = []
    value = invented(random.Random(seed), DEPTH, leaves)
    pending = desk.ask("whole", value=value)
    style = "#a { width: 280px; }"
    page = show(approval(pending), {"a": desk.token("user:ann")}, style=style, viewport={"width": 1200, "height": 844})
    page.role("button", "Approve").there()
    script = LEAVES.replace("document.querySelector('.value')", f"{BOX}.querySelector('.value')")
    assert page.evaluate(script % json.dumps(leaves)) == []
    assert page.evaluate(f"{BOX}.scrollWidth <= 280")
    assert page.axe() == []


def test_the_token_stands_nowhere(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    token = desk.token("user:ann")
    script = """
      globalThis.seen = []; const before = fetch; globalThis.addresses = [];
      globalThis.fetch = (address, init) => { addresses.push(String(address)); return before(address, init); };
      addEventListener('message', (event) => seen.push(event.data));
    """
    page = show(approval(pending, token=token, server=desk.url), script=script)
    page.role("button", "Approve").there()
    assert page.evaluate("document.querySelector('#a').token") is None
    seen = "JSON.stringify([addresses, heard, seen, location.href, performance.getEntries()])"
    whole = page.evaluate(f"document.documentElement.outerHTML + {BOX}.innerHTML + {seen}")
    assert token not in whole
    assert token.partition(".")[2] not in whole
    page.evaluate(f"document.querySelector('#a').setAttribute('token', '{token}')")
    assert page.evaluate("document.querySelector('#a').hasAttribute('token')") is False


LATER = """(() => {
  globalThis.stolen = [];
  globalThis.fetch = (...all) => { stolen.push(all); return Promise.reject(new Error('stolen')); };
  const a = document.querySelector('#a');
  a.setAttribute('server', 'https://evil.example');
  for (const data of ['approve', {type: 'hai-decide', decision: 'approve'}, {token: 'x', pending: 'y'}])
    postMessage(data, '*');
  document.dispatchEvent(new CustomEvent('hai-decided', {detail: {status: 'approve'}}));
  a.dispatchEvent(new KeyboardEvent('keydown', {key: 'a', bubbles: true, composed: true}));
})()"""


def test_a_foreign_script_neither_redirects_the_token_nor_decides(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    page = show(approval(pending), {"a": desk.token("user:ann")})
    page.role("button", "Approve").there()
    page.evaluate(LATER)
    page.until("new Promise((done) => setTimeout(() => done(true), 300))")
    page.role("button", "Approve").there()
    assert page.evaluate("stolen") == []
    assert page.role("button", {"/Undo/": ""}).count() == 0
    assert desk.votes(pending) == []


@pytest.mark.parametrize("server", ["javascript:alert(1)", "https://ann:secret@flow.example", "data:text/plain,x"])
def test_what_is_no_address_of_a_server_is_refused_and_asked_for_nothing(desk: Desk, show: Show, server: str) -> None:
    page = show(f'<hai-approval id="a" pending="x" server="{server}"></hai-approval>', {"a": "hait_x"})
    page.until("heard.length === 1")
    assert heard(page, "hai-error")[0]["code"] == "server"


def test_hidden_signs_are_codes_and_edits_carry_the_digest_on_screen(desk: Desk, show: Show) -> None:
    for text in HOSTILE_SIGNS:
        pending = desk.ask("payout", supplier=text)
        for element in (approval(pending), '<hai-inbox id="a"></hai-inbox>'):
            page = show(element, {"a": desk.token("user:ann")})
            page.words("[U+").first().there()
            assert not has_hidden(page.evaluate(f"{BOX}.innerText"))
    pending = desk.ask("payout", supplier="Mü\u202eller\u200b")
    page = show(approval(pending), {"a": desk.token("user:ann")})
    page.words("U+202E").there()
    page.role("button", {"/Edit/": ""}).click()
    page.label("Amount").fill("900")
    page.role("button", "Approve").click()
    page.role("dialog").there()
    assert "900" in page.role("dialog").text()
    assert page.axe() == []
    page.role("dialog").role("button", {"/Approve/": ""}).click()
    page.until("heard.some((each) => each[1] === 'hai-decided')")
    assert desk.state(pending)["args"]["amount"] == 900


def test_a_form_in_an_element_shows_faults_at_fields_in_its_language(desk: Desk, show: Show) -> None:
    pending = desk.ask("visit")
    page = show(f'<div lang="zh-CN">{approval(pending, sending="once")}</div>', {"a": desk.token("user:ann")})
    page.label("Guests").fill("99")
    page.label("Day").fill("Monday")
    page.role("button", "提交").click()
    page.locator("#a .error").there()
    assert "12" in page.locator("#a .error").text()
    page.label("Guests").fill("9")
    page.role("button", "提交").click()
    page.until("heard.some((each) => each[1] === 'hai-decided' && each[2].status === 'answered')")
    assert page.axe() == []


def test_who_may_not_decide_is_told_why_and_who_could(desk: Desk, show: Show) -> None:
    pending = desk.ask("payout")
    page = show(approval(pending), {"a": desk.token("user:olga")})
    page.words("ann, bob").there()
    assert page.role("button", "Approve").count() == 0


def test_the_inbox_lists_the_readers_questions_and_decides_several(desk: Desk, show: Show) -> None:
    titles = {each: desk.ask("payout", f"thread-{each}", supplier=each) for each in ("Adler", "Berg", "Cramer")}
    token = desk.token("user:ann", threads=[f"thread-{each}" for each in titles])
    page = show('<hai-inbox id="a" sending="once"></hai-inbox>', {"a": token})
    page.role("button", {"/Pay 1200 to Adler/": ""}).there()
    assert page.locator("#a .items > li").count() == 3
    assert page.axe() == []
    tab_to(page, page.role("button", {"/Pay 1200 to Adler/": ""}).text())
    page.press("Enter")
    page.role("heading", "Pay 1200 to Adler?").there()
    page.press("a")
    page.role("dialog").role("button", {"/Approve/": ""}).click()
    page.until("heard.some((each) => each[1] === 'hai-decided')")
    page.press("Escape")
    for each in ("Berg", "Cramer"):
        page.label(f"Select: Pay 1200 to {each}?").play("check")
    page.role("button", "Reject 2").click()
    page.role("dialog").role("button", {"/Reject/": ""}).click()
    desk.until(titles["Berg"], "reject")
    desk.until(titles["Cramer"], "reject")
    page.until("heard.filter((each) => each[1] === 'hai-decided' && each[2].status === 'reject').length === 2")
    desk.decide(titles["Adler"], "user:bob", "approve")
    page.words("Nothing is waiting for you").there()


@pytest.mark.timeout(240)
def test_files_cut_off_by_the_end_of_a_token_go_to_their_own_questions(desk: Desk, show: Show, tmp_path: Path) -> None:
    """Each is sent once the page has given another token; one that was chosen instead stays."""
    for who in ("one", "two"):
        desk.ask("filed", f"file-{who}", who=who)
    first = desk.token("user:ann", expires_in=6)
    page = show('<hai-inbox id="a" sending="once"></hai-inbox>', {"a": first})
    for name in ("first", "second", "third"):
        (tmp_path / name).write_text(name)

    def choose(name: str) -> None:
        page.label("Scan").play("setInputFiles", str(tmp_path / name))

    def open_question(who: str) -> None:
        page.role("button", {f"/Scan of {who}/": ""}).click()
        page.role("heading", f"Scan of {who}?").there()

    def give_token(**more: Any) -> None:
        page.evaluate(f"document.querySelector('#a').token = '{desk.token('user:ann', **more)}'")
        page.words("The page has to sign you in again").gone()

    open_question("one")
    page.words("The page has to sign you in again").there()
    choose("first")
    page.locator("#a .note.bad").first().there()
    give_token(expires_in=6)
    page.words("first").there()
    page.words("Uploading").gone()
    page.press("Escape")
    open_question("two")
    page.words("first").gone()
    page.words("The page has to sign you in again").there()
    choose("second")
    choose("third")
    give_token()
    page.words("third").there()
    page.words("Uploading").gone()
    page.press("Escape")
    open_question("two")
    page.words("third").there()
    page.words("second").gone()


def test_a_file_is_drawn_and_downloaded_without_a_shareable_address(desk: Desk, show: Show) -> None:
    headers = {**desk.people.person("user:olga", roles=["operator", "decider"]), "Content-Type": "image/png"}
    file = desk.http.post("/v1/files?name=damage.png", content=PNG, headers=headers).raise_for_status().json()["id"]
    pending = desk.ask(
        "whole", value={"photo": {"type": "image", "source": {"type": "file", "value": file}, "name": "damage.png"}}
    )
    page = show(approval(pending), {"a": desk.token("user:ann")})
    page.until(f"{BOX}.querySelector('canvas')?.width === 1")
    assert page.locator("#a img, #a a[href]").count() == 0


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


def test_a_page_whose_origin_the_deployment_does_not_name_loads_nothing(driver: rig.Driver, desk: Desk) -> None:
    with host_site() as other:
        other.flow = desk.url
        page = Page(driver, other.origin, None, {}).goto(
            other.write('<hai-approval id="a" pending="x"></hai-approval>')
        )
        page.until("document.readyState === 'complete'")
        assert page.evaluate("customElements.get('hai-approval') === undefined")
        page.close()


FILED = """
hai: flow/v1
name: filed
version: 1
input: {type: object, properties: {who: {type: string}}}
steps:
  - ask:
      title: "Scan of ${{ input.who }}?"
      from: anyone
      form: {type: object, required: [scan], properties: {scan: {type: string, format: file, title: Scan}}}
"""
SHORT = """
hai: flow/v1
name: short
version: 1
steps: [{approve: {from: anyone, title: Soon over?, deadline: 4s}}]
"""


def test_a_question_expiring_on_screen_tells_reader_and_page(desk: Desk, show: Show) -> None:
    pending = desk.ask("short")
    page = show(approval(pending), {"a": desk.token("user:ann")})
    page.role("heading", "Soon over?").there()
    page.until("heard.some((each) => each[1] === 'hai-expired')")
    assert heard(page, "hai-expired") == [{"id": "a", "pending": pending["id"], "status": "expired", "here": False}]
    page.role("button", "Approve").gone()
    page.words("expired").there()


def test_the_servers_hash_admits_its_script_and_no_other(driver: rig.Driver, desk: Desk) -> None:
    named = desk.http.get("/console/elements.json").json()["integrity"]
    for integrity, known in ((named, True), (f"sha384-{'A' * 64}", False)):
        path = desk.site.write("<hai-inbox></hai-inbox>", integrity=integrity)
        page = Page(driver, desk.site.origin, None, {}).goto(path)
        page.until("document.readyState === 'complete'")
        assert page.evaluate("customElements.get('hai-inbox') !== undefined") is known
        page.close()
