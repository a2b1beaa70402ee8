"""Feishu, as open.feishu.cn describes it: tenant tokens, messages with a `uuid`, encrypted and signed callbacks."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, ClassVar

import httpx2
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tests.support.chats.platform import Answer, Call, Platform, Shown, Wrong


def encrypt_cbc(key: bytes, iv: bytes, plain: bytes, block: int) -> bytes:
    count = block - len(plain) % block
    encryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    return encryptor.update(plain + bytes([count]) * count) + encryptor.finalize()


class FeishuPlatform(Platform):
    kind = "feishu"
    ann, bob, eve, req, room = "ou_ann", "ou_bob", "ou_eve", "ou_req", "oc_room"
    app, tenant = "cli_a1b2c3", "tenant1"
    secrets: ClassVar[Mapping[str, str]] = {
        "FEISHU_SECRET": "feishu-app-secret", "FEISHU_KEY": "feishu-encrypt-key", "FEISHU_TOKEN": "feishu-verification",
    }  # fmt: skip
    token = "t-g1044ghJRUIJJ5ELPE3DYDYDH"

    def __init__(self) -> None:
        super().__init__()
        self.uuids: dict[str, str] = {}
        self._n = 0

    def settings(self) -> dict[str, str]:
        return {
            "app_id": self.app, "app_secret": "FEISHU_SECRET", "tenant_key": self.tenant, "encrypt_key": "FEISHU_KEY",
            "verification_token": "FEISHU_TOKEN", "api": self.url,
        }  # fmt: skip

    def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Answer:
        sent = json.loads(body)
        if path.endswith("/tenant_access_token/internal"):
            if sent != {"app_id": self.app, "app_secret": self.secrets["FEISHU_SECRET"]}:
                return Answer(200, {"code": 10014, "msg": "app secret invalid"})
            return Answer(200, {"code": 0, "tenant_access_token": self.token, "expire": 7200})
        if headers.get("authorization") != f"Bearer {self.token}":
            return Answer(400, {"code": 99991663, "msg": "token invalid"})
        if len(sent["content"].encode()) > 30 * 1024:
            self.refused.append("a message of more than 30 kB")
            return Answer(400, {"code": 230025, "msg": "too large"})
        content = json.loads(sent["content"])
        if method == "PATCH":
            id = path.rpartition("/")[2]
            if id not in self.cards or not content["config"]["update_multi"]:
                return Answer(400, {"code": 230001, "msg": "no such card"})
            self.show(self._read_card(id, self.cards[id].place, content))
            return Answer(200, {"code": 0, "data": {}})
        wanted = {"open_id": "ou_", "chat_id": "oc_"}[query["receive_id_type"]]
        if not sent["receive_id"].startswith(wanted):
            return Answer(400, {"code": 230001, "msg": "invalid receive_id"})
        if sent["msg_type"] == "text":
            self.whispers.append((sent["receive_id"], content["text"]))
            return Answer(200, {"code": 0, "data": {"message_id": "om_text"}})
        if len(sent["uuid"]) > 50:
            return Answer(400, {"code": 230001, "msg": "uuid"})
        with self.lock:
            id = self.uuids.get(sent["uuid"])
            if id is None:
                self._n += 1
                id = self.uuids[sent["uuid"]] = f"om_{self._n:08}"
        if id not in self.cards:
            self.show(self._read_card(id, sent["receive_id"], content))
        return Answer(200, {"code": 0, "data": {"message_id": id}})

    def _read_card(self, id: str, place: str, content: Any) -> Shown:
        texts, buttons = [content["header"]["title"]["content"]], {}
        for element in content["elements"]:
            if element["tag"] == "div":
                assert element["text"]["tag"] == "plain_text"
                texts.append(element["text"]["content"])
            for action in element.get("actions", ()):
                if "value" in action:
                    buttons[action["text"]["content"]] = action["value"]["token"]
        return Shown(id, place, "\n".join(texts), buttons, content)

    # --- calls

    def press(
        self, card: Shown, label: str, account: str, *, token: str | None = None, wrong: Wrong | None = None
    ) -> Call:
        wrong = wrong or Wrong()
        event = {
            "operator": {"tenant_key": wrong.tenant or self.tenant, "open_id": account, "user_id": "user:ann"},
            "token": "c-295ee57216a5dc9de90fefd0aadb4b1d7d",
            "action": {"value": {"token": card.buttons[label] if token is None else token}, "tag": "button"},
            "host": "im_message",
            "context": {"open_message_id": wrong.message or card.id, "open_chat_id": card.place},
        }
        return self._event("card.action.trigger", event, wrong)

    def say(self, account: str, text: str, *, wrong: Wrong | None = None) -> Call:
        wrong = wrong or Wrong()
        event = {
            "sender": {
                "sender_id": {"open_id": account}, "sender_type": "user", "tenant_key": wrong.tenant or self.tenant,
            },
            "message": {"chat_type": "p2p", "message_type": "text", "content": json.dumps({"text": text})},
        }  # fmt: skip
        return self._event("im.message.receive_v1", event, wrong)

    def _event(self, kind: str, event: Any, wrong: Wrong) -> Call:
        header = {
            "event_id": "5e3702a84e847582be8db7fb73283c02", "event_type": kind,
            "create_time": str(time.time_ns() // 1000),
            "token": self.secrets["FEISHU_TOKEN"], "app_id": wrong.app or self.app,
            "tenant_key": wrong.tenant or self.tenant,
        }  # fmt: skip
        return self.signed({"schema": "2.0", "header": header, "event": event}, wrong)

    def signed(self, told: Any, wrong: Wrong) -> Call:
        key = (self.secrets["FEISHU_KEY"] if wrong.sign else "another key").encode()
        iv = os.urandom(16)
        sealed = iv + encrypt_cbc(sha256(key).digest(), iv, json.dumps(told).encode(), 16)
        body = json.dumps({"encrypt": base64.b64encode(sealed).decode()}).encode()
        at, nonce = str(int(time.time() + wrong.skew)), "1234567"
        headers = {
            "content-type": "application/json",
            "x-lark-request-timestamp": at,
            "x-lark-request-nonce": nonce,
            "x-lark-signature": sha256((at + nonce).encode() + key + body).hexdigest(),
        }
        if wrong.unsigned:
            del headers["x-lark-signature"]
        return Call("POST", headers, body + b" " if wrong.tamper else body)

    def read_answer(self, response: httpx2.Response) -> str:
        return str(response.json().get("toast", {}).get("content", "")) if response.status_code == 200 else ""
