"""The receipt of a decision is checked by the reader's own browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2

from tests.console.conftest import NewPage

Asked = Callable[..., dict[str, Any]]

WITHOUT_ED25519 = """
const takes = crypto.subtle.importKey.bind(crypto.subtle);
crypto.subtle.importKey = (form, key, kind, ...more) =>
  kind === "Ed25519" ? Promise.reject(new DOMException("no", "NotSupportedError")) : takes(form, key, kind, ...more);
"""
OTHER_KEYS = """
const asks = window.fetch;
window.fetch = async (path, ...more) => {
  const answer = await asks(path, ...more);
  if (!String(path).endsWith("jwks.json")) return answer;
  const { keys } = await answer.json();
  return new Response(JSON.stringify({ keys: keys.map((each) => ({ ...each, kid: "another" })) }));
};
"""


def opened(page: NewPage, asked: Asked, http: httpx2.Client, order: str, script: str = "") -> Any:
    """The page of a decision that is over, with its receipt unfolded."""
    pending = asked("refund", order=order, amount=75)
    http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "reject", "reason": "no"})
    shown = page()
    if script:
        shown.play(["addInitScript", {"content": script}])
    shown.goto(f"/console/decide/{pending['id']}")
    shown.locator('summary:has-text("Receipt")').click()
    return shown


def test_a_receipt_that_holds_says_who_decided_what(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    shown = opened(page, asked, http, "R-1")
    shown.words("This browser has verified the receipt: the signature and every text match.").there()
    shown.role("link", "Download the receipt").there()
    assert shown.axe() == []


def test_a_receipt_that_does_not_hold_says_which_part(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    shown = opened(page, asked, http, "R-2", OTHER_KEYS)
    shown.role("alert").there()
    assert "a key that this server does not publish" in shown.locator("section[aria-label=Receipt]").text()


def test_a_browser_that_can_not_check_says_so(page: NewPage, asked: Asked, http: httpx2.Client) -> None:
    shown = opened(page, asked, http, "R-3", WITHOUT_ED25519)
    shown.role("link", "Download the receipt").there()
    assert "This browser can't check receipts" in shown.locator("section[aria-label=Receipt]").text()
