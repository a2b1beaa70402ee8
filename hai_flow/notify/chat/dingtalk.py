"""DingTalk: interactive cards of a template, with callbacks over HTTP, and messages to the robot.

Facts: open.dingtalk.com, "Create and deliver a card" (`outTrackId` makes it once; values of `cardParamMap` are texts),
"Update a card", "Card callback" (`actionCallback`, an answer within 2 s and no update meanwhile; the header
`x-ddpaas-signature` is the HMAC-SHA256 of `x-ddpaas-signature-timestamp` under the callback's secret), "Receive
messages of a robot" (the header `sign` is the HMAC-SHA256 of `timestamp`, a line end and the app's secret).

Neither signature covers the body. What it would protect is protected by other means: the 256 random bits of a button,
TLS, and the tenant and template that each call has to name.

The card's template has these variables: heading title message arguments facts result digest page, and b1 to b4 with
t1 to t4: the labels and ids of its buttons; the buttons send `{"token": ...}` back."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
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
    Reply,
    Setting,
    UnprovenCall,
)
from hai_flow.notify.chat.reading import demand_equal, demand_time, dig, list_at, read_json, text_at

_BUTTONS: Final = 4


class DingTalkApp(TokenApp):
    """An app of one company. `userId`s name its people, `openConversationId`s rooms."""

    SETTINGS: ClassVar[Mapping[str, Setting]] = {
        "client_id": Setting("the app's client id (AppKey), which is its robot's code, too"),
        "client_secret": Setting("the app's client secret", secret=True),
        "corp_id": Setting("the id of the company"),
        "template": Setting("the id of the card's template"),
        "route_key": Setting("the callbackRouteKey that /chat/CHANNEL was registered with"),
        "callback_secret": Setting("the apiSecret that it was registered with", secret=True),
        "api": Setting("the address of the API", default="https://api.dingtalk.com"),
    }
    ARGUMENTS_MAX: ClassVar[int] = 2000
    BUTTONS_MAX: ClassVar[int] = _BUTTONS
    DIALOGS: ClassVar[DialogLimits | None] = None

    # --- outward

    async def send(self, card: Card, place: ChatPlace, *, again: bool) -> str:
        robot = self._settings["client_id"]
        body: dict[str, Any] = {
            "cardTemplateId": self._settings["template"],
            "outTrackId": card.id,
            "callbackType": "HTTP",
            "callbackRouteKey": self._settings["route_key"],
            "userIdType": 1,
            "cardData": {"cardParamMap": _parameters(card)},
        }
        if place.is_account:
            body["openSpaceId"] = f"dtv1.card//IM_ROBOT.{place.id}"
            body["imRobotOpenDeliverModel"] = {"spaceType": "IM_ROBOT", "robotCode": robot}
            body["imRobotOpenSpaceModel"] = {"supportForward": False}
        else:
            body["openSpaceId"] = f"dtv1.card//IM_GROUP.{place.id}"
            body["imGroupOpenDeliverModel"] = {"robotCode": robot}
            body["imGroupOpenSpaceModel"] = {"supportForward": False}
        try:
            answer = await self._ask("POST", "/v1.0/card/instances/createAndDeliver", body)
        except NotSent as error:
            if again and "outTrackId" in str(error):  # it is there already
                await self.update(card, place, card.id)
                return card.id
            raise
        for each in list_at(answer, "result", "deliverResults"):
            if dig(each, "success") is False:
                raise NotSent(f"dingtalk: {text_at(each, 'errorMsg')[:100]}")
        return card.id

    async def update(self, card: Card, place: ChatPlace, message: str) -> str | None:
        body = {
            "outTrackId": message,
            "cardData": {"cardParamMap": _parameters(card)},
            "cardUpdateOptions": {"updateCardDataByKey": True},
        }
        await self._ask("PUT", "/v1.0/card/instances", body)
        return message

    async def _write(self, place: str, text: str) -> None:
        body = {
            "robotCode": self._settings["client_id"],
            "userIds": [place],
            "msgKey": "sampleText",
            "msgParam": values.dumps({"content": text}).decode(),
        }
        await self._ask("POST", "/v1.0/robot/oToMessages/batchSend", body)

    async def _ask(self, method: str, path: str, body: Any) -> Any:
        headers = {"x-acs-dingtalk-access-token": await self._token.text()}
        answer = await self._out.ask(method, self._url(path), json=body, headers=headers)
        if answer.status == 200:
            return answer.body
        code = text_at(answer.body, "code")
        if answer.status == 401 or "InvalidAuthentication" in code:
            self._token.forget()
        what = f"{code} {text_at(answer.body, 'message')}".strip()[:150] or f"status {answer.status}"
        raise NotSent(f"dingtalk: {what}", after=10.0 if "Throttling" in code else None)

    async def _get_token(self) -> tuple[str, float]:
        body = {"appKey": self._settings["client_id"], "appSecret": self._settings["client_secret"]}
        answer = await self._out.ask("POST", self._url("/v1.0/oauth2/accessToken"), json=body)
        return read_token("dingtalk", answer, "accessToken", "expireIn", "code")

    # --- inward

    async def receive(self, call: PlatformCall, desk: Desk) -> Reply:
        at = call.headers.get("x-ddpaas-signature-timestamp")
        if at is not None:
            mac = hmac.digest(self._settings["callback_secret"].encode(), at.encode(), "sha256")
            demand_equal(call.headers.get("x-ddpaas-signature", ""), base64.b64encode(mac).decode())
            demand_time(at, call.now, 0.001)
            return await self._handle_press(read_json(call.body), desk)
        at, secret = call.headers.get("timestamp", ""), self._settings["client_secret"]
        mac = hmac.digest(secret.encode(), f"{at}\n{secret}".encode(), "sha256")
        demand_equal(call.headers.get("sign", ""), base64.b64encode(mac).decode())
        demand_time(at, call.now, 0.001)
        await self._handle_message(read_json(call.body), desk)
        return Reply(b"{}")

    async def _handle_press(self, event: Any, desk: Desk) -> Reply:
        if text_at(event, "type") != "actionCallback":
            return Reply(b"{}")
        content = text_at(event, "content") or text_at(event, "value")
        token = text_at(read_json(content), "cardPrivateData", "params", "token") if content else ""
        press = Press(token, text_at(event, "userId"), text_at(event, "outTrackId"))
        outcome = await self._press(desk, press, self._foreign(text_at(event, "corpId")))
        # Told to the one who pressed; what all see is updated by itself, and not while DingTalk waits for this.
        return Reply(values.dumps({
            "cardUpdateOptions": {"updatePrivateDataByKey": True},
            "userPrivateData": {"cardParamMap": {"told": outcome.text}},
        }))  # fmt: skip

    async def _handle_message(self, event: Any, desk: Desk) -> None:
        account = text_at(event, "senderStaffId")
        if text_at(event, "conversationType") != "1" or text_at(event, "msgtype") != "text" or not account:
            return
        if text_at(event, "robotCode") != self._settings["client_id"]:
            raise UnprovenCall
        fault = self._foreign(text_at(event, "senderCorpId"))
        await self._connect(desk, account, text_at(event, "text", "content"), fault)

    def _foreign(self, corp: str) -> str:
        """Why the call may not act; "": it may."""
        return "" if corp == self._settings["corp_id"] else FOREIGN


def _parameters(card: Card) -> dict[str, str]:
    """The variables of the template: every one is a text, and there, so that nothing of an earlier card is left."""
    parameters = {
        "heading": card.heading,
        "title": card.title,
        "message": "\n".join(each for each in (card.message, card.warning) if each),
        "arguments": card.arguments or "",
        "digest": card.digest or "",
        "facts": "\n".join(f"{name}: {text}" for name, text in card.facts),
        "result": card.result or "",
        "page": card.page or "",
        "told": "",
    }
    for number in range(_BUTTONS):
        button = card.buttons[number] if number < len(card.buttons) else None
        parameters[f"b{number + 1}"] = "" if button is None else button.label
        parameters[f"t{number + 1}"] = "" if button is None else button.token
    return parameters
