"""Microsoft Teams: Adaptive Cards of a bot, `Action.Execute`, over the Bot Framework's connector.

Facts: learn.microsoft.com, "Authenticate requests from the Bot Connector service" (RS256 by a key of the well-known
address that is endorsed for `msteams`; `iss` https://api.botframework.com, `aud` the app, `serviceurl` that of the
activity), "Universal Actions" (`adaptiveCard/action`, the answer is a message or a card), "Send and receive messages
with the connector". Cards are sent to the address in the settings, never to one that a call names.

Its signature does not cover the body: TLS, the service's address in the token, the tenant in the activity and the 256
random bits of a button do."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from urllib.parse import quote

from hai_flow import values
from hai_flow.notify.chat.base import TokenApp, read_token
from hai_flow.notify.chat.contract import (
    CLOCK_SECONDS,
    Card,
    ChatPlace,
    Desk,
    Dialog,
    DialogField,
    DialogLimits,
    NotSent,
    Outbound,
    PlatformCall,
    Press,
    PressOutcome,
    Reply,
    Setting,
    UnprovenCall,
)
from hai_flow.notify.chat.reading import dig, list_at, read_json, text_at

ISSUER: Final = "https://api.botframework.com"
_CHANNEL: Final = "msteams"
_SCOPE: Final = "https://api.botframework.com/.default"
_KEYS_SECONDS: Final = 24 * 3600.0  # for so long keys may be kept
_AGAIN_SECONDS: Final = 10.0  # not more often for a key that is not known
_AT: Final = re.compile(r"<at>[^<]*</at>")
_ADAPTIVE: Final = "application/vnd.microsoft.card.adaptive"
_STYLES: Final[Mapping[str, str]] = {"primary": "positive", "danger": "destructive", "plain": "default"}


class TeamsApp(TokenApp):
    """A bot in one tenant of Entra. Its people are named by their object id."""

    SETTINGS: ClassVar[Mapping[str, Setting]] = {
        "app_id": Setting("the bot's application id"),
        "app_secret": Setting("a client secret of it", secret=True),
        "tenant_id": Setting("the id of the tenant in Entra"),
        "service_url": Setting("the connector's address", default="https://smba.trafficmanager.net/teams"),
        "login": Setting("where it gets its tokens", default="https://login.microsoftonline.com"),
        "keys": Setting("the keys of the connector", default="https://login.botframework.com/v1/.well-known/keys"),
    }
    ADDRESS: ClassVar[str] = "service_url"
    ARGUMENTS_MAX: ClassVar[int] = 6000
    BUTTONS_MAX: ClassVar[int] = 6
    DIALOGS: ClassVar[DialogLimits | None] = DialogLimits(
        fields=20, label=2000, choices=100, choice=1000, choices_text=10_000, value=2900
    )

    def __init__(self, settings: Mapping[str, str], out: Outbound) -> None:
        super().__init__(settings, out)
        self._keys: dict[str, Mapping[str, Any]] = {}
        self._keys_at = self._asked_at = -_KEYS_SECONDS

    # --- outward: a message is named `<conversation>|<activity>`

    async def send(self, card: Card, place: ChatPlace, *, again: bool) -> str:
        conversation = await self._open_conversation(place.id) if place.is_account else place.id
        answer = await self._ask("POST", _activities(conversation), _activity(card))
        return f"{_conversation(conversation)}|{text_at(answer, 'id')}"

    async def update(self, card: Card, place: ChatPlace, message: str) -> str | None:
        conversation, _, activity = message.rpartition("|")
        conversation = conversation if place.is_account else place.id
        await self._ask("PUT", _activities(conversation, activity), {**_activity(card), "id": activity})
        return message

    async def _open_conversation(self, account: str) -> str:
        body = {
            "bot": {"id": f"28:{self._settings['app_id']}"},
            "members": [{"id": account}],
            "tenantId": self._settings["tenant_id"],
            "channelData": {"tenant": {"id": self._settings["tenant_id"]}},
            "isGroup": False,
        }
        return text_at(await self._ask("POST", "/v3/conversations", body), "id")

    async def _ask(self, method: str, path: str, body: Any) -> Any:
        headers = {"authorization": f"Bearer {await self._token.text()}"}
        answer = await self._out.ask(method, self._url(path), json=body, headers=headers)
        if 200 <= answer.status < 300:
            return answer.body
        if answer.status == 401:
            self._token.forget()
        code = text_at(answer.body, "error", "code")[:100] or f"status {answer.status}"
        raise NotSent(f"teams: {code}", final=answer.status in (400, 403, 404))

    async def _get_token(self) -> tuple[str, float]:
        url = f"{self._settings['login'].rstrip('/')}/{quote(self._settings['tenant_id'], safe='')}/oauth2/v2.0/token"
        form = {
            "grant_type": "client_credentials", "client_id": self._settings["app_id"],
            "client_secret": self._settings["app_secret"], "scope": _SCOPE,
        }  # fmt: skip
        answer = await self._out.ask("POST", url, form=form)
        return read_token("teams", answer, "access_token", "expires_in", "error")

    # --- inward

    async def receive(self, call: PlatformCall, desk: Desk) -> Reply:
        claims, endorsements = await self._prove(call)
        activity = read_json(call.body)
        channel = text_at(activity, "channelId")
        if channel != _CHANNEL or channel not in endorsements:
            raise UnprovenCall
        if not text_at(activity, "serviceUrl") or text_at(claims, "serviceurl") != text_at(activity, "serviceUrl"):
            raise UnprovenCall
        account = text_at(activity, "from", "aadObjectId")
        tenants = {text_at(activity, "conversation", "tenantId"), text_at(activity, "channelData", "tenant", "id")}
        fault = ""
        if tenants - {""} != {self._settings["tenant_id"]} or not account:
            fault = "Your account is not of the organisation that this app belongs to, so you can't decide here."
        if text_at(activity, "type") == "invoke" and text_at(activity, "name") == "adaptiveCard/action":
            return _as_invoked(await self._handle_press(activity, account, fault, desk))
        conversation = dig(activity, "conversation")
        if text_at(activity, "type") == "message" and text_at(conversation, "conversationType") == "personal":
            text = _AT.sub("", text_at(activity, "text"))
            await self._connect(desk, account, text, fault, text_at(conversation, "id"))
        return Reply(b"{}")

    async def _handle_press(self, activity: Any, account: str, fault: str, desk: Desk) -> PressOutcome:
        if fault:
            return await desk.refuse(account, fault)
        value = dig(activity, "value")
        data = dig(value, "action", "data")
        if text_at(value, "trigger") not in ("", "manual") or text_at(value, "action", "type") != "Action.Execute":
            return PressOutcome("")  # a client that refreshes a card by itself
        token = text_at(data, "token")
        conversation, of = text_at(activity, "conversation", "id"), text_at(activity, "replyToId")
        message = f"{_conversation(conversation)}|{of}"
        if dig(data, "dialog") is not True:
            outcome = await desk.press(Press(token, account, message, dialogs=self.DIALOGS))
            if outcome.is_copy:  # as where the answer to an earlier try was lost
                with contextlib.suppress(NotSent):  # it is another app's
                    await self._ask("DELETE", _activities(conversation, of), None)
            return outcome
        fields = {name: _read_input(text) for name, text in data.items() if name not in ("token", "dialog", "many")}
        many = text_at(data, "many").split()
        fields = {name: "".join(texts).split(",") if name in many else texts for name, texts in fields.items()}
        return await desk.press(Press(token, account, message, fields=fields))

    async def _write(self, place: str, text: str) -> None:
        await self._ask("POST", _activities(place), {"type": "message", "text": text, "textFormat": "plain"})

    async def _prove(self, call: PlatformCall) -> tuple[Mapping[str, Any], list[str]]:
        """The claims of the call's token, and the channels that its key is endorsed for. Raises UnprovenCall."""
        import jwt

        scheme, _, token = call.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or len(token) > 8192:
            raise UnprovenCall
        try:
            key = await self._key(text_at(jwt.get_unverified_header(token), "kid"))
            claims = jwt.decode(
                token,
                jwt.PyJWK(dict(key), "RS256"),
                algorithms=["RS256"],
                audience=self._settings["app_id"],
                issuer=ISSUER,
                leeway=CLOCK_SECONDS,
                options={"require": ["exp", "nbf", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            raise UnprovenCall from None
        return claims, list_at(key, "endorsements")

    async def _key(self, kid: str) -> Mapping[str, Any]:
        """The connector's key of this name, from the address in the settings. Raises UnprovenCall."""
        now = time.monotonic()
        stale = now - self._keys_at > _KEYS_SECONDS
        if (stale or kid not in self._keys) and now - self._asked_at > _AGAIN_SECONDS:
            self._asked_at = now
            try:
                answer = await self._out.ask("GET", self._settings["keys"])
            except NotSent:
                raise UnprovenCall from None
            if listed := list_at(answer.body, "keys"):
                self._keys = {text_at(each, "kid"): each for each in listed if text_at(each, "kty") == "RSA"}
                self._keys_at = now
        if kid not in self._keys or not kid:
            raise UnprovenCall
        return self._keys[kid]


def _conversation(id: str) -> str:
    """The conversation without the thread in it that a message belongs to (`;messageid=`): calls name it, or not."""
    return id.partition(";")[0]


def _activities(conversation: str, *activity: str) -> str:
    return "/".join(
        ("/v3/conversations", quote(conversation, safe=""), "activities", *(quote(each, safe="") for each in activity))
    )


def _as_invoked(outcome: PressOutcome) -> Reply:
    if outcome.dialog is not None:
        body: Any = {"statusCode": 200, "type": _ADAPTIVE, "value": _dialog(outcome.dialog)}
    else:
        text = " ".join((outcome.text, *outcome.faults.values()))
        body = {"statusCode": 200, "type": "application/vnd.microsoft.activity.message", "value": text}
    return Reply(values.dumps(body))


def _text(text: str, **more: Any) -> dict[str, Any]:
    """Plain text: a TextBlock would read markup in it."""
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **more}]}


def _card(body: list[Any], actions: list[Any]) -> dict[str, Any]:
    return {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
        "body": body, "actions": actions,
    }  # fmt: skip


def _activity(card: Card) -> dict[str, Any]:
    body = [_text(each) for each in card.lines()]
    body[1] = _text(card.title, weight="Bolder")
    if card.arguments is not None:
        body.insert(2, _text(card.arguments, fontType="Monospace"))
    actions: list[dict[str, Any]] = [
        {
            "type": "Action.Execute", "title": each.label, "verb": "press", "data": {"token": each.token},
            "style": _STYLES[each.style], "associatedInputs": "none",
        }
        for each in card.buttons
    ]  # fmt: skip
    if card.page is not None:
        actions.append({"type": "Action.OpenUrl", "title": "Open", "url": card.page})
    return {"type": "message", "attachments": [{"contentType": _ADAPTIVE, "content": _card(body, actions)}]}


def _dialog(dialog: Dialog) -> dict[str, Any]:
    data: dict[str, Any] = {"token": dialog.token, "dialog": True}
    if many := [each.name for each in dialog.fields if each.kind == "choices"]:
        data["many"] = " ".join(many)
    send = {"type": "Action.Execute", "title": "Send", "verb": "send", "data": data}
    return _card([_text(dialog.title, weight="Bolder"), *map(_input, dialog.fields)], [send])


def _input(field: DialogField) -> dict[str, Any]:
    shared: dict[str, Any] = {"id": field.name, "label": field.label, "isRequired": field.required}
    if field.required:
        shared["errorMessage"] = "It has to be filled in."
    if field.choices:
        choices = [{"title": label, "value": value} for value, label in field.choices]
        return {"type": "Input.ChoiceSet", "choices": choices, "isMultiSelect": field.kind == "choices", **shared}
    return {"type": "Input.Text", "isMultiline": field.kind == "lines", "value": field.value, **shared}


def _read_input(text: Any) -> list[str]:
    return [text] if isinstance(text, str) and text else []
