"""Slack, as docs.slack.dev describes it: Web API methods, Block Kit limits, signed interactions, modals, metadata."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlencode

import httpx2

from tests.support.chats.platform import Answer, Call, Platform, Shown, Wrong


class SlackPlatform(Platform):
    kind = "slack"
    takes_dialogs = True
    app, team = "A0APP", "T0TEAM"
    token, signing = "xoxb-real", "8f742231b10e8888abcd99yyyzzz85a5"
    secrets: ClassVar[Mapping[str, str]] = {"SLACK_TOKEN": token, "SLACK_SIGNING": signing}

    def __init__(self) -> None:
        super().__init__()
        self.triggers: dict[str, str] = {}
        self.views: dict[str, Any] = {}
        self._clock = 0

    def settings(self) -> dict[str, str]:
        return {
            "app": self.app, "team": self.team, "token": "SLACK_TOKEN", "signing_secret": "SLACK_SIGNING",
            "api": f"{self.url}/api",
        }  # fmt: skip

    # --- the Web API

    def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Answer:
        if headers.get("authorization") != f"Bearer {self.token}":
            return Answer(200, {"ok": False, "error": "invalid_auth"})
        if path.endswith(".history"):  # a method that reads takes no JSON
            return self._history({name: texts[0] for name, texts in parse_qs(body.decode()).items()})
        sent = json.loads(body)
        match path.removeprefix("/api/"):
            case "chat.postMessage":
                return self._post(sent)
            case "chat.update":
                return self._update(sent)
            case "chat.postEphemeral":
                self.whispers.append((sent["user"], sent["text"]))
                return Answer(200, {"ok": True, "message_ts": "1.0"})
            case "views.open":
                return self._open(sent)
            case "conversations.open":
                return Answer(200, {"ok": True, "channel": {"id": f"D{sent['users']}"}})
        return Answer(200, {"ok": False, "error": "unknown_method"})

    def _post(self, sent: Any) -> Answer:
        if "blocks" not in sent:
            self.whispers.append((sent["channel"].removeprefix("D"), sent["text"]))
            return Answer(200, {"ok": True, "channel": sent["channel"], "ts": "1.0"})
        if fault := _fault_of(sent["blocks"]):
            self.refused.append(fault)
            return Answer(200, {"ok": False, "error": "invalid_blocks"})
        channel = sent["channel"] if sent["channel"].startswith(("C", "D")) else f"D{sent['channel']}"
        with self.lock:
            self._clock += 1
            ts = f"1700000000.{self._clock:06}"
        self.show(self._read_card(channel, ts, sent))
        return Answer(200, {"ok": True, "channel": channel, "ts": ts})

    def _update(self, sent: Any) -> Answer:
        if fault := _fault_of(sent["blocks"]):
            self.refused.append(fault)
            return Answer(200, {"ok": False, "error": "invalid_blocks"})
        if f"{sent['channel']}:{sent['ts']}" not in self.cards:
            return Answer(200, {"ok": False, "error": "message_not_found"})
        self.show(self._read_card(sent["channel"], sent["ts"], sent))
        return Answer(200, {"ok": True, "channel": sent["channel"], "ts": sent["ts"]})

    def _history(self, sent: Any) -> Answer:
        if "channel" not in sent or sent.get("include_all_metadata") != "true":
            return Answer(200, {"ok": False, "error": "channel_not_found"})
        messages = [
            {"ts": each.id.partition(":")[2], "metadata": each.raw.get("metadata")}
            for each in self.cards.values()
            if each.id.startswith(sent["channel"] + ":")
        ]
        return Answer(200, {"ok": True, "messages": messages})

    def _open(self, sent: Any) -> Answer:
        account = self.triggers.pop(sent["trigger_id"], None)
        if account is None:
            return Answer(200, {"ok": False, "error": "expired_trigger_id"})
        view = sent["view"]
        if len(view["title"]["text"]) > 24 or len(view["private_metadata"]) > 3000 or not view["blocks"]:
            self.refused.append("a view that Slack refuses")
            return Answer(200, {"ok": False, "error": "invalid_arguments"})
        self.views[account] = view
        return Answer(200, {"ok": True, "view": {"id": "V1"}})

    def _read_card(self, channel: str, ts: str, sent: Any) -> Shown:
        texts, buttons = [], {}
        for block in sent["blocks"]:
            if block["type"] == "section":
                texts.append(block["text"]["text"])
            for element in block.get("elements", ()):
                if "value" in element:
                    buttons[element["text"]["text"]] = element["value"]
        return Shown(f"{channel}:{ts}", channel, "\n".join(texts), buttons, sent)

    # --- calls

    def press(
        self, card: Shown, label: str, account: str, *, token: str | None = None, wrong: Wrong | None = None
    ) -> Call:
        wrong = wrong or Wrong()
        channel, _, ts = (wrong.message or card.id).partition(":")
        trigger = f"trigger-{time.monotonic_ns()}"
        self.triggers[trigger] = account
        team = wrong.tenant or self.team
        return self._interaction(
            {
                "type": "block_actions",
                "user": {"id": account, "username": "user:ann", "name": "user:ann", "team_id": wrong.user_team or team},
                "api_app_id": wrong.app or self.app,
                "team": {"id": team, "domain": "acme"},
                "container": {"type": "message", "message_ts": ts, "channel_id": channel, "is_ephemeral": False},
                "trigger_id": trigger,
                "channel": {"id": channel, "name": "money"},
                "response_url": "http://169.254.169.254/steal",
                "actions": [
                    {
                        "type": "button", "action_id": "hai:0", "block_id": "b",
                        "value": card.buttons[label] if token is None else token, "action_ts": str(time.time()),
                    }
                ],
            },
            wrong,
        )  # fmt: skip

    def add_field(self, account: str, name: str, label: str) -> None:
        element = {"type": "plain_text_input"}
        self.views[account]["blocks"].append({"block_id": name, "label": {"text": label}, "element": element})

    def submit(self, account: str, values: Mapping[str, Any]) -> Call:
        view = self.views[account]
        state: dict[str, Any] = {}
        for block in view["blocks"]:
            element, name = block["element"], block["block_id"]
            value = values.get(block["label"]["text"])
            if element["type"] == "static_select":
                option = next((each for each in element["options"] if each["text"]["text"] == value), None)
                state[name] = {"field": {"type": "static_select", "selected_option": option}}
            else:
                text = element.get("initial_value") if value is None else value
                state[name] = {"field": {"type": "plain_text_input", "value": text}}
        told = {
            "type": "view_submission",
            "user": {"id": account, "team_id": self.team},
            "team": {"id": self.team},
            "api_app_id": self.app,
            "view": {
                "id": "V1", "callback_id": view["callback_id"], "private_metadata": view["private_metadata"],
                "state": {"values": state},
            },
        }  # fmt: skip
        return self._interaction(told, Wrong())

    def say(self, account: str, text: str, *, wrong: Wrong | None = None) -> Call:
        wrong = wrong or Wrong()
        event = {
            "type": "event_callback", "api_app_id": wrong.app or self.app, "team_id": wrong.tenant or self.team,
            "event": {"type": "message", "channel_type": "im", "channel": f"D{account}", "user": account, "text": text},
        }  # fmt: skip
        return self.signed(json.dumps(event).encode(), "application/json", wrong)

    def _interaction(self, payload: Any, wrong: Wrong) -> Call:
        body = urlencode({"payload": json.dumps(payload)}).encode()
        return self.signed(body, "application/x-www-form-urlencoded", wrong)

    def signed(self, body: bytes, kind: str, wrong: Wrong) -> Call:
        at = str(int(time.time() + wrong.skew))
        key = (self.signing if wrong.sign else "another secret").encode()
        mac = hmac.new(key, f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
        headers = {"content-type": kind, "x-slack-request-timestamp": at, "x-slack-signature": f"v0={mac}"}
        if wrong.unsigned:
            del headers["x-slack-signature"]
        return Call("POST", headers, body + b"&more=1" if wrong.tamper else body)

    def read_answer(self, response: httpx2.Response) -> str:
        if not response.content or response.status_code != 200:
            return ""
        body = response.json()
        if "errors" in body:
            return " ".join(body["errors"].values())
        if "view" in body:
            return str(body["view"]["blocks"][0]["text"]["text"])
        return str(body.get("text", ""))


def _fault_of(blocks: list[Any]) -> str:
    """Why Slack would refuse the blocks."""
    if len(blocks) > 50:
        return f"{len(blocks)} blocks"
    for block in blocks:
        if block["type"] == "section" and not 1 <= len(block["text"]["text"]) <= 3000:
            return "a section of a wrong length"
        for element in block.get("elements", ()):
            if len(element["text"]["text"]) > 75 or len(element.get("value", "")) > 2000:
                return "a button that is too long"
    return ""
