"""Discord: messages of a bot, and interactions at the endpoint of its application.

Facts: discord.com/developers/docs, "Security and Authorization" of interactions (Ed25519 over time and body; a PING is
answered), "Receiving and Responding" (3 s; flag 64 is for the one who pressed), "Components" (five buttons in a row,
100 characters of `custom_id`), "Create Message" (embeds of 6,000 characters; `nonce` with `enforce_nonce` makes a
message once within minutes), "Allowed Mentions".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from hai_flow import values
from hai_flow.notify.chat.contract import (
    Card,
    ChatPlace,
    Desk,
    Dialog,
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
from hai_flow.notify.chat.reading import demand_time, dig, list_at, read_json, text_at

_PING, _COMMAND, _COMPONENT, _MODAL = 1, 2, 3, 5
LINES_MAX: Final = 1900
BLOCK_MAX: Final = 3900
_EPHEMERAL: Final = 64
_STYLES: Final[Mapping[str, int]] = {"primary": 3, "danger": 4, "plain": 2}
_FOREIGN: Final = "You are not in the server that this app belongs to, so you can't decide here."


class DiscordApp:
    """A bot in one server (guild). Its people are named by their user id."""

    SETTINGS: ClassVar[Mapping[str, Setting]] = {
        "application": Setting("the application's id"),
        "guild": Setting("the id of the server (guild)"),
        "public_key": Setting("the application's public key", secret=True),
        "token": Setting("the bot's token", secret=True),
        "api": Setting("the address of the API", default="https://discord.com/api/v10"),
    }
    ARGUMENTS_MAX: ClassVar[int] = 3500
    BUTTONS_MAX: ClassVar[int] = 4
    DIALOGS: ClassVar[DialogLimits | None] = DialogLimits(
        fields=5, label=45, choices=10, choice=100, choices_text=100, value=2900
    )

    def __init__(self, settings: Mapping[str, str], out: Outbound) -> None:
        self._settings = settings
        self._out = out

    # --- outward: a message is named `<channel>:<message>`

    async def send(self, card: Card, place: ChatPlace, *, again: bool) -> str:
        channel = place.id
        if place.is_account:
            channel = text_at(await self._ask("POST", "/users/@me/channels", {"recipient_id": place.id}), "id")
        if again and (earlier := await self._find(card.id, channel)) is not None:
            return earlier
        body = {**_message(card), "nonce": card.id[-25:], "enforce_nonce": True}
        answer = await self._ask("POST", f"/channels/{channel}/messages", body)
        return f"{channel}:{text_at(answer, 'id')}"

    async def update(self, card: Card, place: ChatPlace, message: str) -> str | None:
        channel, _, id = message.partition(":")
        await self._ask("PATCH", f"/channels/{channel}/messages/{id}", _message(card))
        return message

    async def _find(self, id: str, channel: str) -> str | None:
        """The message that an earlier try has sent: its footer has the card's id."""
        for message in list_at(await self._ask("GET", f"/channels/{channel}/messages?limit=100", None)):
            if text_at(message, "embeds", 0, "footer", "text") == id:
                return f"{channel}:{text_at(message, 'id')}"
        return None

    async def _ask(self, method: str, path: str, body: Any) -> Any:
        headers = {"authorization": f"Bot {self._settings['token']}"}
        answer = await self._out.ask(method, self._settings["api"].rstrip("/") + path, json=body, headers=headers)
        if 200 <= answer.status < 300:
            return answer.body
        what = f"code {dig(answer.body, 'code')}, status {answer.status}"
        raise NotSent(f"discord: {what}", final=answer.status in (400, 403, 404))

    # --- inward

    async def receive(self, call: PlatformCall, desk: Desk) -> Reply:
        at = call.headers.get("x-signature-timestamp", "")
        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self._settings["public_key"]))
            signature = bytes.fromhex(call.headers.get("x-signature-ed25519", ""))
            key.verify(signature, at.encode() + call.body)
        except (InvalidSignature, ValueError):
            raise UnprovenCall from None
        demand_time(at, call.now)
        interaction = read_json(call.body)
        if dig(interaction, "type") == _PING:
            return _reply({"type": 1})
        account = text_at(interaction, "member", "user", "id") or text_at(interaction, "user", "id")
        if text_at(interaction, "application_id") != self._settings["application"]:
            return _tell(await desk.refuse(account, "This came from another app."))
        if text_at(interaction, "guild_id") not in ("", self._settings["guild"]):  # "": between the app and one person
            return _tell(await desk.refuse(account, _FOREIGN))
        match dig(interaction, "type"):
            case 2:
                return _tell(await desk.connect(account, text_at(interaction, "data", "options", 0, "value")))
            case 3:
                message = f"{text_at(interaction, 'channel_id')}:{text_at(interaction, 'message', 'id')}"
                token = text_at(interaction, "data", "custom_id")
                outcome = await desk.press(Press(token, account, message, dialogs=self.DIALOGS))
                return _tell(outcome) if outcome.dialog is None else _open(outcome.dialog)
            case 5:
                token = text_at(interaction, "data", "custom_id")
                return _tell(await desk.press(Press(token, account, fields=_read_fields(interaction))))
        return _reply({"type": 1})


def _reply(body: Any) -> Reply:
    return Reply(values.dumps(body))


def _tell(outcome: PressOutcome) -> Reply:
    text = " ".join((outcome.text, *outcome.faults.values()))[:2000]
    return _reply(
        {"type": 4, "data": {"content": _plain(text), "flags": _EPHEMERAL, "allowed_mentions": {"parse": []}}}
    )


def _plain(text: str) -> str:
    """Without what Discord would read as markup."""
    return "".join(f"\\{sign}" if sign in "\\*_~`|>#[]()<@:-" else sign for sign in text)


def _message(card: Card) -> dict[str, Any]:
    """The texts are escaped; the arguments stand whole in a block of code of their own. A backtick, which would end it,
    can only be in a text of their JSON, and is written as its code there: the same value."""
    embeds: list[dict[str, Any]] = [{"description": _plain("\n".join(card.lines()))[:LINES_MAX]}]
    if card.arguments is not None:
        arguments = card.arguments.replace("`", "\\u0060")
        whole = (
            f"```\n{arguments}\n```" if len(arguments) <= BLOCK_MAX else "The arguments are too long for this place."
        )
        embeds.append({"description": whole})
    embeds[0]["footer"] = {"text": card.id}
    components: list[dict[str, Any]] = [
        {"type": 2, "label": each.label[:80], "style": _STYLES[each.style], "custom_id": each.token}
        for each in card.buttons
    ]
    if card.page is not None:
        components.append({"type": 2, "label": "Open", "style": 5, "url": card.page})
    rows = [{"type": 1, "components": components}] if components else []
    return {"embeds": embeds, "components": rows, "allowed_mentions": {"parse": []}}


def _open(dialog: Dialog) -> Reply:
    """A modal takes five texts. Choices are typed as their numbers, which its placeholder lists."""
    rows = []
    for each in dialog.fields:
        entry: dict[str, Any] = {
            "type": 4, "custom_id": each.name, "label": each.label or each.name, "required": each.required,
            "style": 2 if each.kind == "lines" else 1,
        }  # fmt: skip
        if each.choices:
            entry["placeholder"] = ", ".join(f"{value}: {label}" for value, label in each.choices)
        if each.value:
            entry["value"] = each.value
        rows.append({"type": 1, "components": [entry]})
    return _reply({"type": 9, "data": {"custom_id": dialog.token, "title": dialog.title[:45], "components": rows}})


def _read_fields(interaction: Any) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for row in list_at(interaction, "data", "components"):
        name, text = text_at(row, "components", 0, "custom_id"), text_at(row, "components", 0, "value")
        fields[name] = [text] if text else []
    return fields
