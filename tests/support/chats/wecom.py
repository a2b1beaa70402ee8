"""WeCom, as developer.work.weixin.qq.com describes it: template cards, response codes that are good once, encrypted
callbacks."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping
from hashlib import sha1
from typing import Any, ClassVar

import httpx2

from tests.support.chats.feishu import encrypt_cbc
from tests.support.chats.platform import Answer, Call, Platform, Shown, Wrong

KEY = "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C"


class WeComPlatform(Platform):
    kind = "wecom"
    takes_rooms = False
    ann, bob, eve, req, room = "AnnLee", "BobWu", "EveLi", "ReqMa", ""
    corp, agent = "wx5823bf96d3bd56c7", "1000002"
    secrets: ClassVar[Mapping[str, str]] = {
        "WECOM_SECRET": "wecom-corp-secret", "WECOM_TOKEN": "QDG6eKwecomtoken", "WECOM_AES": KEY,
    }  # fmt: skip
    token = "accesstoken000001"

    def __init__(self) -> None:
        super().__init__()
        self.codes: dict[str, str] = {}  # the cards that they may update once
        self._n = 0

    def settings(self) -> dict[str, str]:
        return {
            "corp_id": self.corp, "agent_id": self.agent, "secret": "WECOM_SECRET", "callback_token": "WECOM_TOKEN",
            "aes_key": "WECOM_AES", "api": self.url,
        }  # fmt: skip

    def _code(self, card: str) -> str:
        with self.lock:
            self._n += 1
            code = f"responsecode{self._n:06}"
            self.codes[code] = card
        return code

    def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Answer:
        if path == "/cgi-bin/gettoken":
            if (query["corpid"], query["corpsecret"]) != (self.corp, self.secrets["WECOM_SECRET"]):
                return Answer(200, {"errcode": 40001, "errmsg": "invalid secret"})
            return Answer(200, {"errcode": 0, "access_token": self.token, "expires_in": 7200})
        if query.get("access_token") != self.token:
            return Answer(200, {"errcode": 40014, "errmsg": "invalid access_token"})
        sent = json.loads(body)
        if sent["agentid"] != int(self.agent):
            return Answer(200, {"errcode": 40056, "errmsg": "invalid agentid"})
        if sent.get("msgtype") == "text":
            self.whispers.append((sent["touser"], sent["text"]["content"]))
            return Answer(200, {"errcode": 0})
        template = sent["template_card"]
        if fault := _fault_of(template):
            self.refused.append(fault)
            return Answer(200, {"errcode": 42047, "errmsg": fault})
        if path == "/cgi-bin/message/update_template_card":
            card = self.codes.pop(sent["response_code"], None)
            if card is None:
                return Answer(200, {"errcode": 42045, "errmsg": "response code expired or used"})
            self.show(self._read_card(card, self.cards[card].place, template))
            return Answer(200, {"errcode": 0})
        id = template["task_id"]
        if id in self.cards:
            return Answer(200, {"errcode": 42042, "errmsg": "task_id duplicate"})
        self.show(self._read_card(id, sent["touser"], template))
        return Answer(200, {"errcode": 0, "msgid": "m", "response_code": self._code(id)})

    def _read_card(self, id: str, place: str, template: Any) -> Shown:
        buttons = {each["text"]: each["key"] for each in template.get("button_list", ())}
        text = "\n".join((template["main_title"]["title"], template["main_title"]["desc"], template["sub_title_text"]))
        return Shown(id, place, text, buttons, template)

    # --- calls

    def press(
        self, card: Shown, label: str, account: str, *, token: str | None = None, wrong: Wrong | None = None
    ) -> Call:
        wrong = wrong or Wrong()
        code = self._code(card.id)
        event = (
            f"<Event><![CDATA[template_card_event]]></Event><EventKey><![CDATA["
            f"{card.buttons[label] if token is None else token}]]></EventKey>"
            f"<TaskId><![CDATA[{wrong.message or card.id}]]></TaskId>"
            "<CardType><![CDATA[button_interaction]]></CardType>"
            f"<ResponseCode><![CDATA[{code}]]></ResponseCode>"
        )
        return self._message(account, "event", event, wrong)

    def say(self, account: str, text: str, *, wrong: Wrong | None = None) -> Call:
        return self._message(account, "text", f"<Content><![CDATA[{text}]]></Content>", wrong or Wrong())

    def _message(self, account: str, kind: str, inner: str, wrong: Wrong) -> Call:
        corp = wrong.tenant or self.corp
        xml = (
            f"<xml><ToUserName><![CDATA[{corp}]]></ToUserName><FromUserName><![CDATA[{account}]]></FromUserName>"
            f"<CreateTime>{int(time.time() + wrong.skew)}</CreateTime><MsgType><![CDATA[{kind}]]></MsgType>{inner}"
            f"<AgentID>{wrong.app or self.agent}</AgentID></xml>"
        )
        return self.signed(xml.encode(), wrong)

    def signed(self, xml: bytes, wrong: Wrong, *, receiver: str | None = None) -> Call:
        sealed = self.seal(xml, receiver or self.corp)
        body = f"<xml><ToUserName><![CDATA[{self.corp}]]></ToUserName><Encrypt><![CDATA[{sealed}]]></Encrypt></xml>"
        params = self.parameters(sealed, wrong)
        if wrong.tamper:
            body = body.replace(sealed, sealed[:-8] + "AAAAAAA=")
        return Call("POST", {"content-type": "text/xml"}, body.encode(), params)

    def seal(self, message: bytes, receiver: str) -> str:
        key = base64.b64decode(KEY + "=")
        plain = os.urandom(16) + len(message).to_bytes(4, "big") + message + receiver.encode()
        return base64.b64encode(encrypt_cbc(key, key[:16], plain, 32)).decode()

    def parameters(self, sealed: str, wrong: Wrong) -> dict[str, str]:
        at, nonce = str(int(time.time() + wrong.skew)), "1372623149"
        token = self.secrets["WECOM_TOKEN"] if wrong.sign else "another token"
        signature = sha1("".join(sorted((token, at, nonce, sealed))).encode()).hexdigest()
        params = {"msg_signature": signature, "timestamp": at, "nonce": nonce}
        if wrong.unsigned:
            del params["msg_signature"]
        return params

    def read_answer(self, response: httpx2.Response) -> str:
        return ""


def _fault_of(template: Any) -> str:
    """Why WeCom would refuse the card."""
    if not template.get("main_title", {}).get("title") or len(template["task_id"]) > 128:
        return "a card without a title, or with a long task id"
    if template["card_type"] == "text_notice" and not template.get("card_action", {}).get("url"):
        return "a notice that leads nowhere"
    if template["card_type"] == "button_interaction" and not 1 <= len(template["button_list"]) <= 6:
        return "a wrong number of buttons"
    if any(len(each["key"]) > 1024 for each in template.get("button_list", ())):
        return "a key that is too long"
    return ""
