"""Slack: Block Kit messages by `chat.postMessage`, interactions and events at the request URL of an app.

Facts: docs.slack.dev, "Verifying requests from Slack" (`v0=` HMAC-SHA256 of `v0:<time>:<body>`, five minutes),
"Handling user interaction" (an answer within 3 s), "Block Kit" (3,000 characters in a section, 50 blocks, 2,000 in a
button's value), "Message metadata", "Web API" (methods that write take JSON, those that read a form), "Rate limits"
(429 with Retry-After)."""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs

from hai_flow import values
from hai_flow.notify.chat.base import PlatformApp
from hai_flow.notify.chat.contract import (
    Card,
    ChatPlace,
    Desk,
    Dialog,
    DialogField,
    DialogLimits,
    NotSent,
    PlatformCall,
    Press,
    Reply,
    Setting,
    UnprovenCall,
)
from hai_flow.notify.chat.reading import demand_equal, demand_time, dig, list_at, read_json, text_at

SECTION_MAX: Final = 2900
_ARGUMENTS_SECTIONS: Final = 10
_EVENT: Final = "hai_flow_card"  # the type of the metadata by which a message is found again
_CALLBACK: Final = "hai_flow_dialog"
_FINAL: Final = frozenset((
    "channel_not_found", "is_archived", "not_in_channel", "user_not_found", "message_not_found", "cant_update_message",
    "edit_window_closed", "restricted_action", "msg_too_long", "invalid_blocks",
))  # fmt: skip


class SlackApp(PlatformApp):
    """An app of one workspace."""

    SETTINGS: ClassVar[Mapping[str, Setting]] = {
        "app": Setting("the app's id, like A0123"),
        "team": Setting("the id of its workspace, like T0123"),
        "token": Setting("the bot's token (xoxb-...)", secret=True),
        "signing_secret": Setting("the app's signing secret", secret=True),
        "api": Setting("the address of the Web API", default="https://slack.com/api"),
    }
    ARGUMENTS_MAX: ClassVar[int] = SECTION_MAX * _ARGUMENTS_SECTIONS
    BUTTONS_MAX: ClassVar[int] = 20
    DIALOGS: ClassVar[DialogLimits | None] = DialogLimits(
        fields=20, label=2000, choices=100, choice=75, choices_text=100_000, value=2900
    )

    # --- outward

    async def send(self, card: Card, place: ChatPlace, *, again: bool) -> str:
        if again and (earlier := await self._find(card.id, place)) is not None:
            return earlier
        message = {"channel": place.id, **_message(card)}
        answer = await self._ask("chat.postMessage", message)
        return _name(text_at(answer, "channel") or place.id, text_at(answer, "ts"))

    async def update(self, card: Card, place: ChatPlace, message: str) -> str | None:
        channel, _, ts = message.partition(":")
        await self._ask("chat.update", {"channel": channel, "ts": ts, **_message(card)})
        return message

    async def _find(self, id: str, place: ChatPlace) -> str | None:
        """The message that an earlier try has sent. None, too, where the history is not open to the app."""
        channel = place.id
        try:
            if place.is_account:
                channel = text_at(await self._ask("conversations.open", {"users": place.id}), "channel", "id")
            query = {"channel": channel, "include_all_metadata": "true", "limit": "100"}
            history = await self._ask("conversations.history", query, is_form=True)
        except NotSent as error:
            if error.final:
                return None
            raise
        for message in list_at(history, "messages"):
            if dig(message, "metadata", "event_payload", "id") == id:
                return _name(channel, text_at(message, "ts"))
        return None

    async def _ask(self, method: str, body: Mapping[str, Any], *, is_form: bool = False) -> Any:
        """`is_form`: the method takes no JSON, as those that read."""
        headers = {"authorization": f"Bearer {self._settings['token']}"}
        content: dict[str, Any] = {"form": body} if is_form else {"json": body}
        answer = await self._out.ask("POST", self._url(f"/{method}"), headers=headers, **content)
        if dig(answer.body, "ok") is True:
            return answer.body
        error = text_at(answer.body, "error")[:100] or f"status {answer.status}"
        missing = method.startswith("conversations.") and error == "missing_scope"
        raise NotSent(f"{method}: {error}", final=error in _FINAL or missing)

    # --- inward

    async def receive(self, call: PlatformCall, desk: Desk) -> Reply:
        at, body = call.headers.get("x-slack-request-timestamp", ""), call.body
        mac = hmac.digest(self._settings["signing_secret"].encode(), f"v0:{at}:".encode() + body, "sha256")
        demand_equal(call.headers.get("x-slack-signature", ""), f"v0={mac.hex()}")
        demand_time(at, call.now)
        if call.headers.get("content-type", "").partition(";")[0] == "application/json":
            return await self._event(read_json(body), desk)
        try:
            form = parse_qs(body.decode(), strict_parsing=True, max_num_fields=50)
        except ValueError:
            raise UnprovenCall from None
        if "payload" in form:
            return await self._interaction(read_json(form["payload"][0]), desk)
        return await self._command({name: texts[0] for name, texts in form.items()}, desk)

    async def _event(self, event: Any, desk: Desk) -> Reply:
        if text_at(event, "type") == "url_verification":
            return _json({"challenge": text_at(event, "challenge")})
        sent = dig(event, "event")
        if text_at(sent, "type") != "message" or text_at(sent, "channel_type") != "im" or dig(sent, "bot_id"):
            return Reply()  # also the previews that bots make of links
        user, team = text_at(sent, "user"), text_at(event, "team_id")
        if dig(sent, "subtype") or not user:
            return Reply()
        fault = self._foreign(text_at(event, "api_app_id"), team, text_at(sent, "team") or team)
        await self._connect(desk, user, text_at(sent, "text"), fault, text_at(sent, "channel"))
        return Reply()

    async def _command(self, form: Mapping[str, str], desk: Desk) -> Reply:
        """`/hai connect CODE`."""
        user, team = form.get("user_id", ""), form.get("team_id", "")
        if fault := self._foreign(form.get("api_app_id", ""), team, team):
            outcome = await desk.refuse(user, fault)
        else:
            outcome = await desk.connect(user, form.get("text", ""))
        return _json({"response_type": "ephemeral", "text": _plain(outcome.text)})

    async def _interaction(self, interaction: Any, desk: Desk) -> Reply:
        user = text_at(interaction, "user", "id")
        team = text_at(interaction, "user", "team_id") or text_at(interaction, "team", "id")
        fault = self._foreign(text_at(interaction, "api_app_id"), text_at(interaction, "team", "id"), team)
        if text_at(interaction, "type") == "view_submission":
            return await self._submitted(interaction, user, fault, desk)
        if text_at(interaction, "type") != "block_actions":
            return Reply()
        channel = text_at(interaction, "container", "channel_id") or text_at(interaction, "channel", "id")
        token = text_at(interaction, "actions", 0, "value")
        if not token:
            return Reply()  # the link to the page
        message = _name(channel, text_at(interaction, "container", "message_ts"))
        outcome = await self._press(desk, Press(token, user, message, dialogs=self.DIALOGS), fault)
        with contextlib.suppress(NotSent):  # what was decided is decided, whether or not the person can be told
            if outcome.dialog is not None:
                view = _view(outcome.dialog)
                await self._ask("views.open", {"trigger_id": text_at(interaction, "trigger_id"), "view": view})
            elif outcome.text:
                body = {"channel": channel, "text": _plain(outcome.text), "user": user}
                await self._ask("chat.postEphemeral", body)
        return Reply()

    async def _submitted(self, interaction: Any, user: str, fault: str, desk: Desk) -> Reply:
        view = dig(interaction, "view")
        press = Press(text_at(view, "private_metadata"), user, fields=_read_state(dig(view, "state", "values")))
        outcome = await self._press(desk, press, fault)
        if outcome.done:
            return _json({"response_action": "clear"})
        if outcome.faults:
            return _json({"response_action": "errors", "errors": dict(outcome.faults)})
        view = {"type": "modal", "title": _text("Not decided"), "blocks": [_section(outcome.text)]}
        return _json({"response_action": "update", "view": view})

    def _foreign(self, app: str, team: str, of_user: str) -> str:
        """Why the call may not act; "": it may."""
        if app != self._settings["app"]:
            return "This came from another app."
        if team != self._settings["team"] or of_user != team:
            return "Your account is not of the workspace that this app belongs to, so you can't decide here."
        return ""

    async def _write(self, place: str, text: str) -> None:
        await self._ask("chat.postMessage", {"channel": place, "text": _plain(text)})


def _name(channel: str, ts: str) -> str:
    return f"{channel}:{ts}"


def _json(body: Any) -> Reply:
    return Reply(values.dumps(body))


def _text(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _text(text[:3000] or "-")}


def _plain(text: str) -> str:
    """For the members that Slack reads as markup: no mention, no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _message(card: Card) -> dict[str, Any]:
    """Everything is plain text, which Slack does not read as markup; the arguments stand in as many sections as they
    need."""
    blocks = [_section(each) for each in card.lines()]
    text = card.arguments or ""
    parts = [text[at : at + SECTION_MAX] for at in range(0, len(text), SECTION_MAX)]
    blocks[2:2] = [_section(each) for each in parts]
    buttons: list[dict[str, Any]] = [
        {
            "type": "button", "text": _text(each.label[:75]), "value": each.token, "action_id": f"hai:{number}",
            **({} if each.style == "plain" else {"style": each.style}),
        }
        for number, each in enumerate(card.buttons)
    ]  # fmt: skip
    if card.page is not None:
        buttons.append({"type": "button", "text": _text("Open"), "url": card.page, "action_id": "hai:page"})
    blocks += [{"type": "actions", "elements": buttons}] if buttons else []
    return {
        "text": _plain(f"{card.heading} {card.title}"),
        "blocks": blocks,
        "metadata": {"event_type": _EVENT, "event_payload": {"id": card.id}},
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _view(dialog: Dialog) -> dict[str, Any]:
    return {
        "type": "modal",
        "callback_id": _CALLBACK,
        "private_metadata": dialog.token,
        "title": _text(dialog.title[:24]),
        "submit": _text("Send"),
        "blocks": [_input(each) for each in dialog.fields],
    }


def _input(field: DialogField) -> dict[str, Any]:
    options = [{"text": _text(label or "-"), "value": value} for value, label in field.choices]
    element: dict[str, Any] = {"action_id": "field"}
    match field.kind:
        case "choice":
            element |= {"type": "static_select", "options": options}
        case "choices":
            element |= {"type": "multi_static_select", "options": options}
        case kind:
            element |= {"type": "plain_text_input", "multiline": kind == "lines"}
            if field.value:
                element["initial_value"] = field.value
    label = _text(field.label or field.name)
    return {"type": "input", "block_id": field.name, "label": label, "optional": not field.required, "element": element}


def _read_state(state: Any) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for name, elements in state.items() if isinstance(state, Mapping) else ():
        element = dig(elements, "field")
        texts = [text_at(each, "value") for each in list_at(element, "selected_options")]
        texts.append(text_at(element, "selected_option", "value") or text_at(element, "value"))
        fields[name] = [each for each in texts if each]
    return fields
