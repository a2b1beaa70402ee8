"""What people approve is seen, whole, on every screen: each part of it, however deep, and the buttons beside it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hai_flow.primitives.invisible_characters import reveal
from tests.console.browser import Page
from tests.console.conftest import NewPage, pending_of
from tests.support.server import YAML

Asked = Callable[..., dict[str, Any]]

WIDTHS = (320, 390, 768, 1200)
DEPTH = 6

FLOW = """
hai: flow/v1
name: whole
version: 1
input: {type: object, properties: {value: {}}}
steps:
  - approve: {from: anyone, title: Is it right?, evidence: "${{ input.value }}", options: [approve, reject]}
"""

LEAVES = """(() => {
  const wanted = %s, found = {};
  const walker = document.createTreeWalker(document.querySelector('.value'), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect(), scroller = node.parentElement.closest('.sideways');
    const beside = scroller ? scroller.getBoundingClientRect() : box;
    const room = node.parentElement.closest('dd, td')?.getBoundingClientRect().width;
    const seen = box.width > 0 && box.height > 0 && beside.left >= 0 && beside.right <= innerWidth + 1;
    found[node.data] = seen && (scroller !== null || room >= 192 - 1);
  }
  return wanted.filter((each) => !found[each]);
})()"""


def invented(rng: random.Random, depth: int, leaves: list[str]) -> Any:
    """A value of exactly this depth along one way, with texts that occur once."""
    if depth == 0:
        leaves.append(f"{rng.choice(['IBAN', 'x', 'very-long-word-without-any-space-in-it'])}{len(leaves):04d}")
        return leaves[-1]
    entries = [invented(rng, rng.randrange(depth), leaves) for _ in range(rng.randrange(3))]
    entries.insert(rng.randrange(len(entries) + 1), invented(rng, depth - 1, leaves))
    if rng.random() < 0.3:
        return entries
    names = ("name", "a_rather_long_name_of_a_field", "iban", "n" * 60)
    return {f"{rng.choice(names)}{i}": each for i, each in enumerate(entries)}


def ask(http: httpx2.Client, value: Any) -> dict[str, Any]:
    assert http.post("/v1/workflows", content=FLOW.encode(), headers=YAML).status_code in (200, 201)
    started = http.post("/v1/runs", json={"workflow": "whole", "input": {"value": value}}).raise_for_status()
    return pending_of(http, started.json()["id"])


def bounds(shown: Page) -> dict[str, Any]:
    return dict(
        shown.evaluate(
            "(() => { const buttons = [...document.querySelectorAll('.actions button')];"
            " const box = buttons.map((each) => each.getBoundingClientRect());"
            " return {wide: document.documentElement.scrollWidth, window: innerWidth, height: innerHeight,"
            " tops: box.map((each) => each.top), bottoms: box.map((each) => each.bottom)}; })()"
        )
    )


@pytest.mark.parametrize("seed", range(4))
def test_every_leaf_of_random_arguments_is_visible_at_every_width(
    page: NewPage, http: httpx2.Client, seed: int
) -> None:
    leaves: list[str] = []
    value = invented(random.Random(seed), DEPTH, leaves)
    pending = ask(http, value)
    shown = page()
    for path in (f"/console/decide/{pending['id']}", f"/console/inbox/{pending['id']}"):
        shown.goto(path)
        shown.role("button", "Approve").there()
        for width in WIDTHS:
            shown.play(["setViewportSize", {"width": width, "height": 844}])
            shown.until("new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true))))")
            found = bounds(shown)
            assert found["wide"] <= found["window"], (path, width)
            assert min(found["tops"]) >= 0, (path, width, found)
            assert max(found["bottoms"]) <= found["height"], (path, width, found)
            assert shown.evaluate(LEAVES % json.dumps(leaves)) == [], (path, width)


def nested(value: Any, depth: int) -> Any:
    return value if depth == 0 else {"d": nested(value, depth - 1)}


WORD = "w" * 900
HOSTILE_VALUES: dict[str, Any] = {
    "words without an end": {WORD: WORD + "1", "a": {"b": {"c": [WORD + "2", {WORD: "3" + WORD}]}}},
    "from right to left": {"שם": "סכום 100", "مبلغ": {"لـ": ["١٢٣ دينار", {"x": "مرحبا " * 40 + "5"}]}},
    "many keys": {f"key_{n}": f"value {n}" for n in range(200)},
    "lists in lists of objects": [{"of": [{"of": [{"of": [{"iban": "DE1", "to": ["x1"]}, {"iban": "DE2"}]}]}]}],
    "long numbers": {
        "n": 9007199254740991,
        "m": [-9007199254740991, {"k": 0.1234567890123456, "whole": "123456789012345678901234567890"}],
    },
    "Markdown in keys": {"## **Approved** by [ann](https://example.com)": "k1", "| a | b |": {"- [x] done": "k2"},
                         "<b onclick=alert(1)>": "k3", "```": ["k4", {"> quote": "k5"}]},
    "signs": {
        "a\u202eb": "t1\u202e", "\u200b": "t2", "": "t3", "  ": "t4", "e" + "\u0301" * 60: "t5" + "\u0301" * 60,
        "\U0001f469\u200d\U0001f467": "t6",
    },
    "lines": {"a\nb\tc": "l1\n\n\tl2", "x": ["l3\r\nl4"]},
    "names of the language itself": {
        "__proto__": "p1", "constructor": {"toString": "p2", "hasOwnProperty": {"length": "p3"}},
        "2": "p4", "1": ["p5"],
        "toString": [{"valueOf": "p6", "__proto__": "p7"}, {"valueOf": "p8", "__proto__": "p9"}],
    },
    "tables that hide": {
        "rows": [
            {"a" * 40: f"r{n}", "note": WORD[:400] + str(n), "\u202eb": f"c{n}\u202e", "| md |": f"**m{n}**"}
            for n in range(12)
        ],
        "in": {"in": {"in": {"in": {"in": [{"iban": f"DE{n:020d}", "to": f"t{n} " * 30} for n in range(3)]}}}},
    },
    "files that are elsewhere": {
        "scan": {"type": "image", "source": {"type": "url", "value": "https://a.example/x.png"}, "amount": "f1"},
        "other": {"type": "document", "value": "javascript:alert(1)", "name": "f2" + "x" * 300, "more": {"iban": "f3"}},
    },
    "signs that are blank": {
        "a\u3164b": "s1\u2800", "c": "\u00ad\u00ads2", "\U000e0041": ["s3", {"\u115f": "s4\ufe0f", "\u2028": "s5"}],
    },
    "all at once": [[{}, [], None, "", [[{"deep": [None, {"x": []}]}]]], {"": {"": {"": "a1"}}}, True, False],
    "deeper than any screen": {"a": nested("the bottom", 60), "b": [[[[[[[["the floor"]]]]]]]]},
}  # fmt: skip
SEEN = """(() => {
  const bad = [];
  const walker = document.createTreeWalker(document.querySelector('.value'), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.data.trim() === '' || node.parentElement.closest('.hidden')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()], scroller = node.parentElement.closest('.sideways');
    const outside = (box) => box.width > 0 && (box.left < -1 || box.right > innerWidth + 1);
    if (!boxes.some((box) => box.width > 0 && box.height > 0)) bad.push(['nowhere', node.data.slice(0, 60)]);
    else if (!scroller && boxes.some(outside)) bad.push(['outside', node.data.slice(0, 60)]);
    const room = node.parentElement.closest('dd, td')?.getBoundingClientRect().width;
    if (room !== undefined && !scroller && room < 191) bad.push(['narrow', Math.round(room), node.data.slice(0, 60)]);
  }
  return bad;
})()"""


def leaves_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in leaves_of(each)]
    if isinstance(value, list):
        return [leaf for each in value for leaf in leaves_of(each)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def as_shown(text: str) -> str:
    return " ".join(reveal(text.replace("\r\n", "\n")).split())


@pytest.mark.parametrize("name", HOSTILE_VALUES)
def test_values_that_would_break_a_page_are_seen_whole_at_every_width(
    page: NewPage, http: httpx2.Client, name: str
) -> None:
    value = HOSTILE_VALUES[name]
    pending = ask(http, value)
    shown = page()
    for path in (f"/console/decide/{pending['id']}", f"/console/inbox/{pending['id']}"):
        shown.goto(path)
        shown.role("button", "Approve").there()
        while shown.locator(".value button.more").count():
            shown.locator(".value button.more").first().click()  # each says how much it hides
        read = as_shown(shown.locator(".value").text())
        assert [leaf for leaf in map(as_shown, leaves_of(value)) if leaf not in read] == [], path
        for width in WIDTHS:
            shown.play(["setViewportSize", {"width": width, "height": 844}])
            shown.until("new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true))))")
            found = bounds(shown)
            assert found["wide"] <= found["window"], (path, width)
            assert min(found["tops"]) >= 0, (path, width, found)
            assert max(found["bottoms"]) <= found["height"], (path, width, found)
            assert shown.evaluate(SEEN) == [], (path, width)


def test_a_list_of_like_objects_is_a_table_that_says_what_it_hides(page: NewPage, http: httpx2.Client) -> None:
    lines = [
        {"article": f"A-{n}", "amount": n + 0.1, "cost_centre": "Berlin", "account": f"DE{n:020d}"} for n in range(60)
    ]
    pending = ask(http, {"lines": lines})
    shown = page(viewport={"width": 390, "height": 844}).goto(f"/console/decide/{pending['id']}")
    shown.words("Scroll the table sideways").there()
    assert shown.locator("tbody tr").count() == 10
    shown.role("button", {"/Show 50 more/": ""}).there()
    hidden = sum(n * 10 + 1 for n in range(10, 60))
    assert f"Amount {hidden / 10:.1f}" in shown.role("button", {"/Show 50 more/": ""}).text()
    assert shown.evaluate("document.body.scrollHeight") < 3 * 844
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert shown.axe() == []
    shown.role("button", {"/Show 50 more/": ""}).click()
    shown.until("document.querySelectorAll('tbody tr').length === 60")
    assert shown.role("button", {"/Show/": ""}).count() == 0


def test_numbers_are_shown_as_written_and_blank_text_is_visible(page: NewPage, http: httpx2.Client) -> None:
    started = {"workflow": "whole", "input": {"value": {"price": "@", "count": 9007199254740991, "blank": "  "}}}
    ask(http, 1)
    body = json.dumps(started).replace('"@"', "99.0")
    answer = http.post("/v1/runs", content=body, headers={"Content-Type": "application/json"}).raise_for_status()
    pending = pending_of(http, answer.json()["id"])
    shown = page().goto(f"/console/decide/{pending['id']}")
    shown.role("button", "Approve").there()
    read = shown.locator(".value").text()
    assert "9007199254740991" in read
    assert "“  ”" in read
    assert f"Price\n{'99.0' if '99.0' in json.dumps(pending['evidence']) else '99'}" in read.replace("\n\n", "\n")


def test_approve_and_reject_are_far_apart_on_a_phone(page: NewPage, http: httpx2.Client) -> None:
    pending = ask(http, {"a": 1})
    shown = page(viewport={"width": 390, "height": 844}, isMobile=True, hasTouch=True).goto(
        f"/console/decide/{pending['id']}"
    )
    shown.role("button", "Approve").there()
    [approve, reject] = [shown.role("button", name).play("boundingBox") for name in ("Approve", "Reject")]
    gap = max(approve["x"], reject["x"]) - min(approve["x"] + approve["width"], reject["x"] + reject["width"])
    assert gap >= 48


def test_a_form_uploads_the_file_that_one_chooses(
    page: NewPage, asked: Asked, http: httpx2.Client, tmp_path: Path
) -> None:
    pending = asked("scan")
    (tmp_path / "car.png").write_bytes(b"a car")
    shown = page().goto(f"/console/inbox/{pending['id']}")
    shown.label("Photo").play("setInputFiles", str(tmp_path / "car.png"))
    shown.role("link", "car.png").there()
    assert shown.axe() == []
    shown.role("button", "Send").click()
    shown.words("Done. Your decision has been recorded.").there()
    answered = http.get(f"/v1/pendings/{pending['id']}").json()
    assert answered["value"] == {"photo": f"file_{sha256(b'a car').hexdigest()}"}
