"""Teams, as learn.microsoft.com describes the Bot Framework's connector: tokens both ways, endorsed keys, Adaptive
Cards and `adaptiveCard/action`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.chats.platform import Answer, Call, Platform, Shown, Wrong

ISSUER = "https://api.botframework.com"


@cache
def _key(name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class TeamsPlatform(Platform):
    kind = "teams"
    takes_dialogs = True
    ann, bob, eve, req, room = "aad-ann", "aad-bob", "aad-eve", "aad-req", "19:room@thread.tacv2"
    app, tenant = "11111111-2222-3333-4444-555555555555", "tenant-guid"
    secrets: ClassVar[Mapping[str, str]] = {"TEAMS_SECRET": "teams-client-secret"}
    token = "eyJ-outgoing"

    def __init__(self) -> None:
        super().__init__()
        self.dialogs: dict[str, Any] = {}
        self.endorsements = ["msteams"]
        self._n = 0
        self._presser = ""

    def settings(self) -> dict[str, str]:
        return {
            "app_id": self.app, "app_secret": "TEAMS_SECRET", "tenant_id": self.tenant,
            "service_url": f"{self.url}/teams", "login": f"{self.url}/login", "keys": f"{self.url}/keys",
        }  # fmt: skip

    def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Answer:
        if path == "/keys":
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(_key("good").public_key()))
            return Answer(200, {"keys": [{**public, "kid": "good", "use": "sig", "endorsements": self.endorsements}]})
        if path == f"/login/{self.tenant}/oauth2/v2.0/token":
            form = {name: texts[0] for name, texts in parse_qs(body.decode()).items()}
            if (form["client_id"], form["client_secret"]) != (self.app, self.secrets["TEAMS_SECRET"]):
                return Answer(401, {"error": "invalid_client"})
            return Answer(200, {"access_token": self.token, "expires_in": 3599, "token_type": "Bearer"})
        if headers.get("authorization") != f"Bearer {self.token}":
            return Answer(401, {"error": {"code": "Unauthorized"}})
        parts = [unquote(each) for each in path.removeprefix("/teams/v3/conversations").split("/")[1:]]
        if method == "DELETE":
            gone = self.cards.pop(f"{parts[0].partition(';')[0]}|{parts[2]}", None)
            return Answer(404 if gone is None else 200, {})
        sent = json.loads(body)
        if not parts:
            assert sent["tenantId"] == self.tenant
            return Answer(201, {"id": f"a:{sent['members'][0]['id']}"})
        if "attachments" not in sent:
            self.whispers.append((parts[0].removeprefix("a:"), sent["text"]))
            return Answer(201, {"id": "1"})
        if len(body) > 28 * 1024:
            self.refused.append("a card of more than 28 kB")
            return Answer(413, {"error": {"code": "MessageSizeTooBig"}})
        content = sent["attachments"][0]["content"]
        assert content["type"] == "AdaptiveCard"
        parts[0] = parts[0].partition(";")[0]  # the thread in a channel that it is posted to
        if method == "PUT":
            id = f"{parts[0]}|{parts[2]}"
            if id not in self.cards:
                return Answer(404, {"error": {"code": "ActivityNotFoundInConversation"}})
            self.show(self._read_card(id, content))
            return Answer(200, {"id": parts[2]})
        with self.lock:
            self._n += 1
            activity = f"1700000{self._n:06}"
        self.show(self._read_card(f"{parts[0]}|{activity}", content))
        return Answer(201, {"id": activity})

    def _read_card(self, id: str, content: Any) -> Shown:
        assert all(each["type"] == "RichTextBlock" for each in content["body"])
        text = "\n".join(each["inlines"][0]["text"] for each in content["body"])
        buttons = {each["title"]: each["data"]["token"] for each in content["actions"] if "data" in each}
        return Shown(id, id.partition("|")[0].removeprefix("a:"), text, buttons, content)

    # --- calls

    def press(
        self, card: Shown, label: str, account: str, *, token: str | None = None, wrong: Wrong | None = None
    ) -> Call:
        self._presser = account
        data = {"token": card.buttons[label] if token is None else token}
        return self._invoke(account, (wrong or Wrong()).message or card.id, data, wrong or Wrong())

    def add_field(self, account: str, name: str, label: str) -> None:
        self.dialogs[account][1]["body"].append({"id": name, "label": label})

    def submit(self, account: str, values: Mapping[str, Any]) -> Call:
        id, dialog = self.dialogs[account]
        data = dict(dialog["actions"][0]["data"])
        for each in dialog["body"][1:]:
            value = values.get(each["label"], each.get("value", ""))
            chosen = [choice["value"] for choice in each.get("choices", ()) if choice["title"] == value]
            data[each["id"]] = chosen[0] if chosen else value
        return self._invoke(account, id, data, Wrong())

    def _invoke(self, account: str, id: str, data: Any, wrong: Wrong) -> Call:
        conversation, _, activity = id.rpartition("|")
        thread = f"{conversation};messageid={activity}" if conversation == self.room else conversation
        value = {"action": {"type": "Action.Execute", "verb": "press", "data": data}, "trigger": "manual"}
        self._pressed = id
        return self.signed(
            {
                **self._activity(account, wrong), "type": "invoke", "name": "adaptiveCard/action", "value": value,
                "replyToId": activity,
                "conversation": {
                    "id": thread, "tenantId": wrong.tenant or self.tenant, "conversationType": "channel",
                },
            },
            wrong,
        )  # fmt: skip

    def say(self, account: str, text: str, *, wrong: Wrong | None = None) -> Call:
        wrong = wrong or Wrong()
        conversation = {"id": f"a:{account}", "tenantId": wrong.tenant or self.tenant, "conversationType": "personal"}
        return self.signed(
            {**self._activity(account, wrong), "type": "message", "text": text, "conversation": conversation}, wrong
        )

    def _activity(self, account: str, wrong: Wrong) -> dict[str, Any]:
        return {
            "id": "f:1", "channelId": "msteams", "serviceUrl": "https://smba.trafficmanager.net/emea/",
            "from": {"id": "29:1x", "name": "user:ann", "aadObjectId": account},
            "recipient": {"id": f"28:{self.app}"}, "channelData": {"tenant": {"id": wrong.tenant or self.tenant}},
        }  # fmt: skip

    def signed(self, activity: Any, wrong: Wrong, **claims: Any) -> Call:
        now = time.time() + wrong.skew
        body = {
            "iss": ISSUER, "aud": wrong.app or self.app, "serviceurl": activity["serviceUrl"],
            "nbf": int(now) - 10, "exp": int(now) + 60, **claims,
        }  # fmt: skip
        token = jwt.encode(body, _key("good" if wrong.sign else "bad"), "RS256", headers={"kid": "good"})
        if wrong.tamper:
            token = token[:-8] + "AAAAAAAA"
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        if wrong.unsigned:
            del headers["authorization"]
        return Call("POST", headers, json.dumps(activity).encode())

    def read_answer(self, response: httpx2.Response) -> str:
        if response.status_code != 200 or not response.content:
            return ""
        body = response.json()
        if body.get("type") == "application/vnd.microsoft.card.adaptive":
            self.dialogs[self._presser] = (self._pressed, body["value"])
            return ""
        return str(body.get("value", ""))
