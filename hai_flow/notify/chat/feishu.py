"""Feishu (Lark): interactive cards by `im/v1/messages`, callbacks `card.action.trigger` and messages to the bot.

Facts: open.feishu.cn, "Encrypt Key" (AES-256-CBC under the SHA-256 of the key, the IV first; `X-Lark-Signature` is the
SHA-256 of time, nonce, key and body), "Card callback" (an answer with a toast within 3 s), "Send message" (`uuid` makes
a message once within an hour; 30 kB), "Update card" (`update_multi`, 14 days), "Verification Token"."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, ClassVar, Final

from hai_flow import values
from hai_flow.notify.chat.base import FOREIGN, TokenApp, read_token
from hai_flow.notify.chat.contract import (
    Card,
    ChatPlace,
    Desk,
    DialogLimits,
    NotSent,
    PlatformCall,
    Press,
    PressOutcome,
    Reply,
    Setting,
    UnprovenCall,
)
from hai_flow.notify.chat.reading import decrypt_cbc, demand_equal, demand_time, dig, read_json, text_at

_TOKEN_GONE: Final = frozenset((99991663, 99991661, 99991668, 99991671))
_FINAL: Final = frozenset((230001, 230002, 230013, 230099, 230031, 230025, 230011))
_TYPES: Final[Mapping[str, str]] = {"primary": "primary", "danger": "danger"}


class FeishuApp(TokenApp):
    """A custom app of one company. `open_id`s name its people, `chat_id`s rooms."""

    SETTINGS: ClassVar[Mapping[str, Setting]] = {
        "app_id": Setting("the app's id, like cli_a1b2"),
        "app_secret": Setting("the app's secret", secret=True),
        "tenant_key": Setting("the key of the company, as events have it"),
        "encrypt_key": Setting("the Encrypt Key of events and callbacks", secret=True),
        "verification_token": Setting("the Verification Token", secret=True),
        "api": Setting("the address of the API", default="https://open.feishu.cn"),
    }
    ARGUMENTS_MAX: ClassVar[int] = 6000
    BUTTONS_MAX: ClassVar[int] = 10
    DIALOGS: ClassVar[DialogLimits | None] = None

    # --- outward

    async def send(self, card: Card, place: ChatPlace, *, again: bool) -> str:
        kind = "open_id" if place.is_account else "chat_id"
        content = values.dumps(_content(card)).decode()
        body = {"receive_id": place.id, "msg_type": "interactive", "content": content, "uuid": card.id[:50]}
        answer = await self._ask("POST", f"/open-apis/im/v1/messages?receive_id_type={kind}", body)
        return text_at(answer, "data", "message_id")

    async def update(self, card: Card, place: ChatPlace, message: str) -> str | None:
        content = values.dumps(_content(card)).decode()
        await self._ask("PATCH", f"/open-apis/im/v1/messages/{message}", {"content": content})
        return message

    async def _write(self, place: str, text: str) -> None:
        content = values.dumps({"text": text}).decode()
        body = {"receive_id": place, "msg_type": "text", "content": content}
        await self._ask("POST", "/open-apis/im/v1/messages?receive_id_type=open_id", body)

    async def _ask(self, method: str, path: str, body: Any) -> Any:
        headers = {"authorization": f"Bearer {await self._token.text()}"}
        answer = await self._out.ask(method, self._url(path), json=body, headers=headers)
        code = dig(answer.body, "code")
        if answer.status == 200 and code == 0:
            return answer.body
        if code in _TOKEN_GONE:
            self._token.forget()
        what = f"code {code} {text_at(answer.body, 'msg')[:100]}" if code is not None else f"status {answer.status}"
        raise NotSent(f"feishu: {what}", final=code in _FINAL)

    async def _get_token(self) -> tuple[str, float]:
        body = {"app_id": self._settings["app_id"], "app_secret": self._settings["app_secret"]}
        url = self._url("/open-apis/auth/v3/tenant_access_token/internal")
        answer = await self._out.ask("POST", url, json=body)
        return read_token("feishu", answer, "tenant_access_token", "expire", "code")

    # --- inward

    async def receive(self, call: PlatformCall, desk: Desk) -> Reply:
        event = self._open(call)
        if text_at(event, "type") == "url_verification":
            demand_equal(text_at(event, "token"), self._settings["verification_token"])
            return Reply(values.dumps({"challenge": text_at(event, "challenge")}))
        demand_equal(text_at(event, "header", "token"), self._settings["verification_token"])
        match text_at(event, "header", "event_type"):
            case "card.action.trigger":
                outcome = await self._handle_press(event, desk)
                kind = "success" if outcome.done else "warning"
                return Reply(values.dumps({"toast": {"type": kind, "content": outcome.text}}))
            case "im.message.receive_v1":
                await self._handle_message(event, desk)
        return Reply(b"{}")

    def _open(self, call: PlatformCall) -> Any:
        """The call in plain. Raises UnprovenCall."""
        key, body = self._settings["encrypt_key"].encode(), call.body
        event = read_json(body)
        sealed = text_at(event, "encrypt")
        if not sealed:
            raise UnprovenCall  # the key is set, so everything is encrypted
        at, nonce = call.headers.get("x-lark-request-timestamp", ""), call.headers.get("x-lark-request-nonce", "")
        expected = sha256(f"{at}{nonce}".encode() + key + body).hexdigest()
        demand_equal(call.headers.get("x-lark-signature", ""), expected)
        demand_time(at, call.now)
        try:
            raw = base64.b64decode(sealed, validate=True)
        except ValueError:
            raise UnprovenCall from None
        return read_json(decrypt_cbc(sha256(key).digest(), raw[:16], raw[16:], 16))

    async def _handle_press(self, event: Any, desk: Desk) -> PressOutcome:
        action = dig(event, "event")
        token, message = text_at(action, "action", "value", "token"), text_at(action, "context", "open_message_id")
        press = Press(token, text_at(action, "operator", "open_id"), message)
        return await self._press(desk, press, self._foreign(event, text_at(action, "operator", "tenant_key")))

    async def _handle_message(self, event: Any, desk: Desk) -> None:
        sent = dig(event, "event")
        if text_at(sent, "sender", "sender_type") != "user" or text_at(sent, "message", "chat_type") != "p2p":
            return
        if text_at(sent, "message", "message_type") != "text":
            return
        account = text_at(sent, "sender", "sender_id", "open_id")
        fault = self._foreign(event, text_at(sent, "sender", "tenant_key"))
        text = "" if fault else text_at(read_json(text_at(sent, "message", "content")), "text")
        await self._connect(desk, account, text, fault)

    def _foreign(self, event: Any, of_person: str) -> str:
        """Why the call may not act; "": it may."""
        if text_at(event, "header", "app_id") != self._settings["app_id"]:
            return "This came from another app."
        tenants = {text_at(event, "header", "tenant_key"), of_person}
        if tenants != {self._settings["tenant_key"]}:
            return FOREIGN
        return ""


def _plain(text: str) -> dict[str, Any]:
    return {"tag": "div", "text": {"tag": "plain_text", "content": text}}


def _content(card: Card) -> dict[str, Any]:
    """Everything is plain text: nothing in it is markup or mentions anybody."""
    elements: list[dict[str, Any]] = [_plain(each) for each in card.lines()[1:]]
    if card.arguments is not None:
        elements.insert(1, _plain(card.arguments))
    actions: list[dict[str, Any]] = [
        {
            "tag": "button", "text": {"tag": "plain_text", "content": each.label},
            "type": _TYPES.get(each.style, "default"), "value": {"token": each.token},
        }
        for each in card.buttons
    ]  # fmt: skip
    if card.page is not None:
        actions.append(
            {"tag": "button", "text": {"tag": "plain_text", "content": "Open"}, "type": "default", "url": card.page}
        )
    if actions:
        elements.append({"tag": "action", "actions": actions})
    return {
        "config": {"update_multi": True, "enable_forward": False},
        "header": {"title": {"tag": "plain_text", "content": card.heading}},
        "elements": elements,
    }
