"""Discord, as discord.com/developers/docs describes it: Ed25519 over time and body, embeds, components, modals."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.chats.platform import Answer, Call, Platform, Shown, Wrong

_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
_OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


class DiscordPlatform(Platform):
    kind = "discord"
    takes_dialogs = True
    fields_max = 5
    ann, bob, eve, req, room = "1001", "1002", "1003", "1004", "9001"
    app, guild = "1234", "5678"
    secrets: ClassVar[Mapping[str, str]] = {
        "DISCORD_KEY": _KEY.public_key().public_bytes_raw().hex(), "DISCORD_TOKEN": "discord-bot-token",
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.modals: dict[str, Any] = {}
        self._presser = ""
        self._n = 0

    def settings(self) -> dict[str, str]:
        return {
            "application": self.app, "guild": self.guild, "public_key": "DISCORD_KEY", "token": "DISCORD_TOKEN",
            "api": f"{self.url}/api/v10",
        }  # fmt: skip

    def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Answer:
        if headers.get("authorization") != f"Bot {self.secrets['DISCORD_TOKEN']}":
            return Answer(401, {"code": 0, "message": "401: Unauthorized"})
        path = path.removeprefix("/api/v10")
        if path == "/users/@me/channels":
            return Answer(200, {"id": f"d{json.loads(body)['recipient_id']}"})
        channel = path.split("/")[2]
        if method == "GET":
            cards = [each for each in self.cards.values() if each.place == channel]
            return Answer(200, [{"id": each.id.partition(":")[2], "embeds": each.raw["embeds"]} for each in cards])
        sent = json.loads(body)
        if fault := _fault_of(sent):
            self.refused.append(fault)
            return Answer(400, {"code": 50035, "message": fault})
        if method == "PATCH":
            id = f"{channel}:{path.split('/')[4]}"
            if id not in self.cards:
                return Answer(404, {"code": 10008, "message": "Unknown Message"})
        else:
            with self.lock:
                self._n += 1
                id = f"{channel}:{self._n}"
        self.show(self._read_card(id, channel, sent))
        return Answer(200, {"id": id.partition(":")[2]})

    def _read_card(self, id: str, channel: str, sent: Any) -> Shown:
        plain = re.sub(r"\\(\W)", r"\1", sent["embeds"][0]["description"])
        text = "\n".join((plain, *(each["description"] for each in sent["embeds"][1:])))
        buttons = {
            each["label"]: each["custom_id"]
            for row in sent["components"]
            for each in row["components"]
            if "custom_id" in each
        }
        return Shown(id, channel, text, buttons, sent)

    # --- calls

    def press(
        self, card: Shown, label: str, account: str, *, token: str | None = None, wrong: Wrong | None = None
    ) -> Call:
        wrong = wrong or Wrong()
        channel, _, id = (wrong.message or card.id).partition(":")
        self._presser = account
        value = card.buttons[label] if token is None else token
        return self._interaction(
            account,
            {
                "type": 3,
                "channel_id": channel,
                "message": {"id": id},
                "data": {"component_type": 2, "custom_id": value},
            },
            wrong,
        )

    def add_field(self, account: str, name: str, label: str) -> None:
        self.modals[account]["components"].append({"components": [{"custom_id": name, "label": label}]})

    def submit(self, account: str, values: Mapping[str, Any]) -> Call:
        modal = self.modals[account]
        rows = []
        for row in modal["components"]:
            (entry,) = row["components"]
            value = values.get(entry["label"], entry.get("value", ""))
            rows.append({"type": 1, "components": [{"type": 4, "custom_id": entry["custom_id"], "value": value}]})
        data = {"custom_id": modal["custom_id"], "components": rows}
        return self._interaction(account, {"type": 5, "data": data}, Wrong())

    def say(self, account: str, text: str, *, wrong: Wrong | None = None) -> Call:
        data = {"name": "hai", "options": [{"name": "code", "value": text}]}
        return self._interaction(account, {"type": 2, "data": data}, wrong or Wrong())

    def _interaction(self, account: str, told: Any, wrong: Wrong) -> Call:
        user = {"id": account, "username": "user:ann", "global_name": "user:ann"}
        more = {
            "application_id": wrong.app or self.app, "guild_id": wrong.tenant or self.guild, "member": {"user": user},
        }  # fmt: skip
        return self.signed({**told, **more}, wrong)

    def signed(self, told: Any, wrong: Wrong) -> Call:
        body, at = json.dumps(told).encode(), str(int(time.time() + wrong.skew))
        signature = (_KEY if wrong.sign else _OTHER).sign(at.encode() + body).hex()
        headers = {
            "content-type": "application/json", "x-signature-timestamp": at, "x-signature-ed25519": signature,
        }  # fmt: skip
        if wrong.unsigned:
            del headers["x-signature-ed25519"]
        return Call("POST", headers, body + b" " if wrong.tamper else body)

    def read_answer(self, response: httpx2.Response) -> str:
        if response.status_code != 200:
            return ""
        answer = response.json()
        if answer["type"] == 9:
            self.refused += _faults_of_modal(answer["data"])
            self.modals[self._presser] = answer["data"]
            return ""
        return re.sub(r"\\(\W)", r"\1", answer.get("data", {}).get("content", ""))


def _faults_of_modal(modal: Any) -> list[str]:
    """Why Discord would refuse the modal."""
    entries = [each["components"][0] for each in modal["components"]]
    longest = {"label": 45, "placeholder": 100, "value": 4000}
    faults = [
        f"{name} of {entry['custom_id']}"
        for entry in entries
        for name, most in longest.items()
        if len(entry.get(name, "")) > most
    ]
    return faults + ([f"{len(entries)} components"] if len(entries) > 5 else [])


def _fault_of(sent: Any) -> str:
    """Why Discord would refuse the message."""
    if sent["allowed_mentions"] != {"parse": []}:
        return "a message that may mention people"
    if any(len(each["description"]) > 4096 for each in sent["embeds"]):
        return "an embed that is too long"
    if sum(len(each["description"]) for each in sent["embeds"]) > 6000:
        return "embeds that are too long"
    for row in sent["components"]:
        if len(row["components"]) > 5 or any(len(each.get("custom_id", "")) > 100 for each in row["components"]):
            return "wrong components"
    return ""
