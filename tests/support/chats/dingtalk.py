"""DingTalk, as open.dingtalk.com describes it: cards of a template by `outTrackId`, callbacks signed by their time."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import httpx2

from tests.support.chats.platform import Answer, Call, Platform, Shown, Wrong


class DingTalkPlatform(Platform):
    kind = "dingtalk"
    ann, bob, eve, req, room = "manager1", "manager2", "clerk3", "staff4", "cidROOM=="
    app, corp, template, route = "dingapp123", "dingcorp1", "tpl.schema", "hai"
    secrets: ClassVar[Mapping[str, str]] = {
        "DING_SECRET": "dingtalk-client-secret",
        "DING_CALLBACK": "dingtalk-api-secret",
    }
    token = "access-token-of-dingtalk"

    def settings(self) -> dict[str, str]:
        return {
            "client_id": self.app, "client_secret": "DING_SECRET", "corp_id": self.corp, "template": self.template,
            "route_key": self.route, "callback_secret": "DING_CALLBACK", "api": self.url,
        }  # fmt: skip

    def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Answer:
        sent = json.loads(body)
        if path == "/v1.0/oauth2/accessToken":
            if sent != {"appKey": self.app, "appSecret": self.secrets["DING_SECRET"]}:
                return Answer(400, {"code": "invalidClientIdOrSecret", "message": "wrong"})
            return Answer(200, {"accessToken": self.token, "expireIn": 7200})
        if headers.get("x-acs-dingtalk-access-token") != self.token:
            return Answer(401, {"code": "InvalidAuthentication", "message": "token"})
        if path == "/v1.0/robot/oToMessages/batchSend":
            text = json.loads(sent["msgParam"])["content"]
            self.whispers += [(user, text) for user in sent["userIds"]]
            return Answer(200, {"processQueryKey": "x"})
        parameters = sent["cardData"]["cardParamMap"]
        if not all(isinstance(each, str) for each in parameters.values()):
            self.refused.append("a variable that is no text")
            return Answer(400, {"code": "param.error", "message": "cardParamMap"})
        id = sent["outTrackId"]
        if method == "PUT" and path == "/v1.0/card/instances":
            if id not in self.cards:
                return Answer(400, {"code": "param.error", "message": "card not exist"})
            self.show(self._read_card(id, self.cards[id].place, {**self.cards[id].raw, **parameters}))
            return Answer(200, {"success": True})
        if path != "/v1.0/card/instances/createAndDeliver":
            return Answer(404, {"code": "InvalidAction.NotFound", "message": path})
        if sent["cardTemplateId"] != self.template or sent["callbackRouteKey"] != self.route:
            return Answer(400, {"code": "param.error", "message": "template"})
        if id in self.cards:
            return Answer(400, {"code": "param.outTrackId.exist", "message": "outTrackId is there already"})
        space, _, place = sent["openSpaceId"].removeprefix("dtv1.card//").partition(".")
        model = {"IM_GROUP": "imGroupOpenDeliverModel", "IM_ROBOT": "imRobotOpenDeliverModel"}[space]
        assert sent[model]["robotCode"] == self.app
        self.show(self._read_card(id, place, parameters))
        return Answer(200, {"result": {"outTrackId": id, "deliverResults": [{"success": True}]}, "success": True})

    def _read_card(self, id: str, place: str, parameters: Any) -> Shown:
        buttons = {parameters[f"b{n}"]: parameters[f"t{n}"] for n in range(1, 5) if parameters[f"b{n}"]}
        names = ("heading", "title", "message", "arguments", "digest", "facts", "result")
        text = "\n".join(parameters[name] for name in names)
        return Shown(id, place, text, buttons, parameters)

    # --- calls

    def press(
        self, card: Shown, label: str, account: str, *, token: str | None = None, wrong: Wrong | None = None
    ) -> Call:
        wrong = wrong or Wrong()
        value = card.buttons[label] if token is None else token
        content = {"cardPrivateData": {"actionIds": ["1"], "params": {"token": value}}}
        told = {
            "type": "actionCallback", "outTrackId": wrong.message or card.id, "corpId": wrong.tenant or self.corp,
            "userId": account, "content": json.dumps(content),
        }  # fmt: skip
        return self.signed(told, wrong)

    def signed(self, told: Any, wrong: Wrong) -> Call:
        at = str(int((time.time() + wrong.skew) * 1000))
        key = self.secrets["DING_CALLBACK"] if wrong.sign else "another secret"
        mac = hmac.new(key.encode(), at.encode(), hashlib.sha256).digest()
        headers = {
            "content-type": "application/json",
            "x-ddpaas-signature-timestamp": at,
            "x-ddpaas-signature": base64.b64encode(mac).decode(),
        }
        if wrong.tamper:  # the signature covers the time alone
            headers["x-ddpaas-signature-timestamp"] = str(int(at) + 1)
        if wrong.unsigned:
            del headers["x-ddpaas-signature"]
        return Call("POST", headers, json.dumps(told).encode())

    def say(self, account: str, text: str, *, wrong: Wrong | None = None) -> Call:
        wrong = wrong or Wrong()
        at = str(int((time.time() + wrong.skew) * 1000))
        key = self.secrets["DING_SECRET"] if wrong.sign else "another secret"
        mac = hmac.new(key.encode(), f"{at}\n{key}".encode(), hashlib.sha256).digest()
        told = {
            "conversationType": "1", "msgtype": "text", "text": {"content": text}, "senderStaffId": account,
            "senderCorpId": wrong.tenant or self.corp, "robotCode": wrong.app or self.app, "senderNick": "user:ann",
        }  # fmt: skip
        headers = {"content-type": "application/json", "timestamp": at, "sign": base64.b64encode(mac).decode()}
        if wrong.unsigned:
            del headers["sign"]
        if wrong.tamper:
            headers["timestamp"] = str(int(at) + 1)
        return Call("POST", headers, json.dumps(told).encode())

    def read_answer(self, response: httpx2.Response) -> str:
        if response.status_code != 200:
            return ""
        return str(response.json().get("userPrivateData", {}).get("cardParamMap", {}).get("told", ""))
