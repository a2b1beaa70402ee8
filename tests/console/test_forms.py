"""Forms: each kind of value has a field that fits it, on the narrowest screen, with what is wrong said at the field."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2

from tests.console.browser import Locator, Page
from tests.console.conftest import NewPage, pending_of
from tests.support.server import YAML

SLOW = {"latency": 400, "downloadThroughput": 50_000, "uploadThroughput": 50_000}
NARROW = {"viewport": {"width": 320, "height": 700}, "isMobile": True, "hasTouch": True}

FORM: dict[str, Any] = {
    "type": "object",
    "required": ["day", "paid", "agree", "payment", "lines"],
    "$defs": {
        "address": {
            "title": "Address",
            "type": "object",
            "required": ["street"],
            "properties": {"street": {"type": "string", "maxLength": 60}, "next": {"$ref": "#/$defs/address"}},
        },
        "iban": {"type": "string", "maxLength": 34, "title": "IBAN", "minLength": 15},
    },
    "properties": {
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "clock": {"type": "string", "format": "time"},
        "ticket": {"type": "string", "readOnly": True, "default": "T-77"},
        "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
        "big": {"type": "integer"},
        "scans": {"type": "array", "items": {"type": "string", "format": "file"}},
        "mail": {"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}], "title": "E-mail"},
        "paid": {"type": "boolean"},
        "agree": {"const": True, "title": "I agree"},
        "kind": {"const": "refund"},
        "size": {"oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
        "count": {"type": ["integer", "null"], "minimum": 1},
        "colours": {"type": "array", "items": {"enum": ["red", "green"]}},
        "payment": {
            "oneOf": [
                {
                    "title": "By card",
                    "type": "object",
                    "required": ["kind", "number"],
                    "properties": {"kind": {"const": "card"}, "number": {"type": "string", "maxLength": 20}},
                },
                {
                    "title": "By transfer",
                    "type": "object",
                    "required": ["kind", "iban"],
                    "properties": {"kind": {"const": "transfer"}, "iban": {"$ref": "#/$defs/iban"}},
                },
            ]
        },
        "home": {"$ref": "#/$defs/address"},
        "both": {
            "allOf": [{"properties": {"left": {"type": "number"}}}, {"properties": {"right": {"type": "number"}}}]
        },
        "lines": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "parts": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"tags": {"type": "array", "items": {"type": "string", "maxLength": 9}}},
                        },
                    }
                },
            },
        },
        "pair": {
            "type": "array",
            "prefixItems": [{"type": "number", "title": "Low"}, {"type": "number", "title": "High"}],
        },
        "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 20}},
        "a_name_that_is_long_and_has_" + "no_end_" * 12: {"type": "string", "maxLength": 20},
    },
}

FITTING: dict[str, Any] = {
    "day": "2027-03-04",
    "ticket": "T-77",
    "zip": "12345",
    "big": 7,
    "scans": [f"file_{sha256(b'two').hexdigest()}"],
    "paid": False,
    "agree": True,
    "size": "l",
    "count": 2,
    "colours": ["green"],
    "payment": {"kind": "transfer", "iban": "DE02120300000000202051"},
    "home": {"street": "Elm St"},
    "both": {"left": 1, "right": 2.5},
    "lines": [{"parts": [{"tags": ["new"]}]}],
    "pair": [1, 9],
    "labels": {"colour": "red"},
}


def ask_with_form(http: httpx2.Client, form: dict[str, Any]) -> dict[str, Any]:
    document = {
        "hai": "flow/v1",
        "name": "all_kinds",
        "version": 1,
        "steps": [{"id": "asked", "ask": {"title": "Fill it in", "from": "anyone", "form": form}}],
    }
    published = http.post("/v1/workflows", content=json.dumps(document).encode(), headers=YAML)
    assert published.status_code in (200, 201), published.text
    run = http.post("/v1/runs", json={"workflow": "all_kinds"}).raise_for_status().json()
    return pending_of(http, run["id"])


def field(shown: Page, label: str) -> Locator:
    return shown.label(label, exact=True)


def fits(shown: Page) -> None:
    """The page does not scroll sideways, and no field is too narrow to write in."""
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    narrow = shown.evaluate(
        "[...document.querySelectorAll('form *, .card input:not([type=checkbox]), .card select, .card textarea')]"
        ".filter((each) => /INPUT|SELECT|TEXTAREA/.test(each.tagName))"
        ".map((each) => [each.id, Math.round(each.getBoundingClientRect().width)]).filter(([, width]) => width < 120)"
    )
    assert narrow == []


def test_each_kind_of_value_has_a_fitting_field_on_the_narrowest_phone(
    page: NewPage, http: httpx2.Client, tmp_path: Path
) -> None:
    pending = ask_with_form(http, FORM)
    shown = page(**NARROW).goto(f"/console/decide/{pending['id']}")
    shown.role("button", "Send").there()
    fits(shown)
    assert shown.axe() == []
    types = {"Day (required)": "date", "At": "datetime-local", "Clock": "time", "E-mail": "email"}
    assert {name: field(shown, name).play("getAttribute", "type") for name in types} == types
    shown.role("button", "Send").click()
    shown.until("document.querySelectorAll('[aria-invalid=true]').length >= 3")
    wrong = shown.locator(".card").first().text()
    assert wrong.count("This field is required.") >= 3
    assert "schema" not in wrong.casefold()
    assert "required property" not in wrong, "the fields say it, by their titles"
    assert "call_" not in wrong
    assert "The answer does not fit what was asked for." in wrong
    assert field(shown, "Ticket").text() == "T-77"
    field(shown, "Clock").fill("10:30")
    field(shown, "Zip").fill("123")
    field(shown, "Big").fill("12345678901234567890")
    scans = shown.role("group", {"/^Scans/": ""})
    for n, name in enumerate(("one", "two"), 1):
        (tmp_path / name).write_text(name)
        scans.role("button", "Add").click()
        shown.protocol("Network.emulateNetworkConditions", offline=False, **SLOW)
        field(shown, f"Scans {n}").play("setInputFiles", str(tmp_path / name))
        field(shown, "E-mail").fill(f"{name}@example")  # while it is under way
        scans.role("link", name).there()
        assert field(shown, "E-mail").value() == f"{name}@example"
    (tmp_path / "three").write_text("three")
    scans.role("button", "Add").click()
    field(shown, "Scans 3").play("setInputFiles", str(tmp_path / "three"))
    scans.role("button", "Remove entry 1").click()  # the third moves while it is under way
    shown.protocol(
        "Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1
    )
    scans.role("link", "three").there()
    scans.role("link", "two").there()
    assert scans.role("link", "one").count() == 0
    scans.role("button", "Remove entry 2").click()
    shown.role("button", "Send").click()
    shown.words("This doesn't have the required format").there()
    shown.words("Enter a whole number.").there()
    assert field(shown, "Big").value() == "12345678901234567890"
    field(shown, "E-mail").fill("")
    field(shown, "Zip").fill("12345")
    field(shown, "Big").fill("7")
    field(shown, "Day (required)").fill("2027-03-04")
    field(shown, "Paid (required)").play("selectOption", {"label": "no"})
    field(shown, "I agree (required)").play("check")
    field(shown, "Size").play("selectOption", {"label": "Large"})
    field(shown, "Count").fill("2")
    field(shown, "green").play("check")
    payment = shown.role("group", {"/^Payment/": ""})
    payment.role("combobox", "Kind").play("selectOption", {"label": "By card"})
    field(shown, "Number (required)").there()
    payment.role("combobox", "Kind").play("selectOption", {"label": "By transfer"})
    shown.role("button", "Send").click()
    shown.until(
        "[...document.querySelectorAll('[aria-invalid=true]')]"
        ".some((each) => each.labels?.[0]?.textContent.startsWith('IBAN'))"
    )
    field(shown, "IBAN (required)").fill("DE02120300000000202051")
    shown.role("group", {"/^Home/": ""}).role("textbox", "Street (required)").first().fill("Elm St")
    field(shown, "Left").fill("1")
    field(shown, "Right").fill("2,5")
    lines = shown.role("group", {"/^Lines/": ""})
    lines.role("button", "Add").click()
    parts = lines.role("group", {"/^Parts/": ""})
    parts.role("button", "Add").first().click()
    tags = parts.role("group", {"/^Tags/": ""})
    tags.role("button", "Add").first().click()
    fits(shown)
    field(shown, "Tags 1").fill("new")
    field(shown, "Low").fill("1")
    field(shown, "High").fill("9")
    field(shown, "New name").fill("colour")
    shown.role("group", {"/^Labels/": ""}).role("button", "Add").click()
    field(shown, "colour").fill("red")
    fits(shown)
    assert shown.axe() == []
    shown.play(["reload"])
    shown.words("Draft restored.").there()
    assert field(shown, "Tags 1").value() == "new"
    shown.role("button", "Send").click()
    shown.words("Done. Your decision has been recorded.").there()
    value = http.get(f"/v1/pendings/{pending['id']}").json()["value"]
    assert value.pop("clock").startswith("10:30:00+0")
    assert value == FITTING
