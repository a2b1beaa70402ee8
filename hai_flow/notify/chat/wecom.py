"""WeCom: template cards (`button_interaction`) of an app to people, encrypted callbacks, and messages to the app.

Facts: developer.work.weixin.qq.com, "Callback configuration" and "Encryption" (`msg_signature` is the SHA-1 of token,
time, nonce and ciphertext in order; AES-256-CBC under the EncodingAESKey, its first 16 bytes the IV, filled up to 32
bytes: 16 random bytes, a length, the message, the receiver's id), "Template card" (six buttons; a task id is good
once), "Update a template card" (`response_code`: 72 hours, once; a press brings a new one).

A card is small: it has the digest of the arguments and a link, never a part of them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from hashlib import sha1
from typing import Any, ClassVar, Final
from xml.etree import ElementTree

from hai_flow.notify.chat.base import FOREIGN, TokenApp, read_token
from hai_flow.notify.chat.contract import (
    Card,
    ChatPlace,
    Desk,
    DialogLimits,
    NotSent,
    PlatformCall,
    Press,
    Reply,
    Setting,
    UnprovenCall,
)
from hai_flow.notify.chat.reading import decrypt_cbc, demand_equal, demand_time, dig, text_at

_XML_BYTES_MAX: Final = 32 * 1024  # a message has at most 2,048 bytes of text
_TOKEN_GONE: Final = frozenset((40014, 42001, 40001))
_BUSY: Final = frozenset((-1, 45009, 45033))
_CODES_MAX: Final = 3
_FINAL: Final = frozenset((42045, 81013, 60111, 40031, 41048, 40058))
_DUPLICATE: Final = 42042  # the task id was used


class WeComApp(TokenApp):
    """An app of one company. Its people are named by their userid; it has no rooms."""

    SETTINGS: ClassVar[Mapping[str, Setting]] = {
        "corp_id": Setting("the id of the company"),
        "agent_id": Setting("the app's AgentId"),
        "secret": Setting("the app's secret", secret=True),
        "callback_token": Setting("the Token of its callbacks", secret=True),
        "aes_key": Setting("the EncodingAESKey of its callbacks", secret=True),
        "api": Setting("the address of the API", default="https://qyapi.weixin.qq.com"),
    }
    ARGUMENTS_MAX: ClassVar[int] = 100
    BUTTONS_MAX: ClassVar[int] = 6
    DIALOGS: ClassVar[DialogLimits | None] = None

    # --- outward: a message is named `<task id> <response code> <newer code> ...`

    async def send(self, card: Card, place: ChatPlace, *, again: bool) -> str:
        if not place.is_account:
            raise NotSent("WeCom shows cards to people, not in rooms: leave `room` away", final=True)
        body = {
            "touser": place.id,
            "msgtype": "template_card",
            "agentid": _number(self._settings["agent_id"]),
            "template_card": _template(card),
            "enable_duplicate_check": 1,
            "duplicate_check_interval": 14400,
        }
        try:
            answer = await self._ask("/cgi-bin/message/send", body)
        except NotSent as error:
            if again and str(_DUPLICATE) in str(error):  # it is there; its response code comes with a press
                return card.id
            raise
        if place.id in text_at(answer, "invaliduser").split("|"):
            raise NotSent(f"WeCom knows no user {place.id[:60]}", final=True)
        return f"{card.id} {text_at(answer, 'response_code')}"

    async def update(self, card: Card, place: ChatPlace, message: str) -> str | None:
        """A code is good for one change, and only sending and each press bring one: the last is kept for the end."""
        task, *codes = message.split()
        if len(codes) < (1 if card.result else 2):
            return None
        while codes:
            body = {
                "userids": [place.id],
                "agentid": _number(self._settings["agent_id"]),
                "response_code": codes.pop(),
                "template_card": _template(card),
            }
            try:
                await self._ask("/cgi-bin/message/update_template_card", body)
            except NotSent as error:
                if not codes or not error.final:
                    raise
            else:
                break
        return " ".join((task, *codes[-_CODES_MAX:]))

    async def _write(self, place: str, text: str) -> None:
        agent = _number(self._settings["agent_id"])
        body = {"touser": place, "msgtype": "text", "agentid": agent, "text": {"content": text[:2000]}}
        await self._ask("/cgi-bin/message/send", body)

    async def _ask(self, path: str, body: Any) -> Any:
        token = await self._token.text()
        answer = await self._out.ask("POST", f"{self._url(path)}?access_token={token}", json=body)
        code = dig(answer.body, "errcode")
        if code == 0:
            return answer.body
        if code in _TOKEN_GONE:
            self._token.forget()
        raise NotSent(f"wecom: errcode {code}", final=code in _FINAL, after=30.0 if code in _BUSY else None)

    async def _get_token(self) -> tuple[str, float]:
        query = f"?corpid={self._settings['corp_id']}&corpsecret={self._settings['secret']}"
        answer = await self._out.ask("GET", self._url("/cgi-bin/gettoken") + query)
        return read_token("wecom", answer, "access_token", "expires_in", "errcode")

    # --- inward

    async def receive(self, call: PlatformCall, desk: Desk) -> Reply:
        if call.method == "GET":  # WeCom asks whether the address is ours
            echo = self._open(call, call.query.get("echostr", ""))
            if echo.lstrip().startswith(b"<"):  # a message: whoever has caught one would read it here
                raise UnprovenCall
            return Reply(echo, "text/plain")
        envelope = _read_xml(call.body)
        event = _read_xml(self._open(call, envelope.get("Encrypt", "")))
        account = event.get("FromUserName", "")
        if event.get("ToUserName") != self._settings["corp_id"] or event.get("AgentID") != self._settings["agent_id"]:
            await desk.refuse(account, FOREIGN)
            return Reply(media_type="text/plain")
        demand_time(event.get("CreateTime", ""), call.now)
        if event.get("Event") == "template_card_event":
            task = event.get("TaskId", "")
            code = event.get("ResponseCode") or None
            outcome = await desk.press(Press(event.get("EventKey", ""), account, task, adds=code))
            await self._tell(account, outcome.text)
        elif event.get("MsgType") == "text":
            await self._connect(desk, account, event.get("Content", ""), "")
        return Reply(media_type="text/plain")

    def _open(self, call: PlatformCall, sealed: str) -> bytes:
        """The message in plain. Raises UnprovenCall."""
        at, nonce = call.query.get("timestamp", ""), call.query.get("nonce", "")
        parts = sorted((self._settings["callback_token"], at, nonce, sealed))
        expected = sha1("".join(parts).encode(), usedforsecurity=False).hexdigest()
        demand_equal(call.query.get("msg_signature", ""), expected)
        demand_time(at, call.now)
        try:
            key = base64.b64decode(self._settings["aes_key"] + "=", validate=True)
            data = base64.b64decode(sealed, validate=True)
        except ValueError:
            raise UnprovenCall from None
        if len(key) != 32:
            raise UnprovenCall
        plain = decrypt_cbc(key, key[:16], data, 32)
        length = int.from_bytes(plain[16:20], "big")
        if plain[20 + length :] != self._settings["corp_id"].encode():
            raise UnprovenCall
        return plain[20 : 20 + length]


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() else text


def _read_xml(body: bytes) -> dict[str, str]:
    """The members of the one element that WeCom sends. The first of a name counts: those of WeCom stand before the text
    that a person wrote. The body is not proven yet. Raises UnprovenCall."""
    if len(body) > _XML_BYTES_MAX:
        raise UnprovenCall
    try:
        text = body.decode()
        if "<!DOCTYPE" in text:  # it could define entities
            raise UnprovenCall
        return {each.tag: each.text or "" for each in reversed(ElementTree.fromstring(text))}
    except (UnicodeDecodeError, ElementTree.ParseError):
        raise UnprovenCall from None


def _template(card: Card) -> dict[str, Any]:
    facts = [*((("SHA-256", card.digest),) if card.digest else ()), *card.facts]
    if card.arguments is not None:
        facts.insert(0, ("Arguments", card.arguments))
    lines = [card.result or "", *(f"{name}: {text}" for name, text in facts), card.message or "", card.warning or ""]
    template: dict[str, Any] = {
        "card_type": "button_interaction" if card.buttons else "text_notice",
        "source": {"desc": "HAI Flow"},
        "main_title": {"title": card.heading, "desc": card.title},
        "sub_title_text": "\n".join(each for each in lines if each),
        "task_id": card.id,
        "card_action": {"type": 1, "url": card.page or "https://work.weixin.qq.com"},  # a card has to lead somewhere
    }
    if card.buttons:
        styles = {"primary": 1, "danger": 2}
        template["button_list"] = [
            {"text": each.label, "style": styles.get(each.style, 3), "key": each.token} for each in card.buttons
        ]
    return template
