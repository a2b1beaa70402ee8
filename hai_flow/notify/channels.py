"""The file of channels (`HAI_FLOW_NOTIFY`): the channels for notifications, and the addresses of people.

    hai: notify/v1
    url: https://flow.example.com             # where links lead to
    channels:
      email: {kind: email, host: smtp.example.com, from: "Flow <flow@example.com>", user: flow, password: SMTP}
      slack: {kind: slack, url: SLACK}
      pager: {kind: webhook, url: "https://pager.example.com/hai", secret: PAGER}
      chat: {kind: slack, app: A01, team: T01, token: SLACK_TOKEN, signing_secret: SLACK_SIGNING, room: C01}
    people:
      user:ann: {email: ann@example.com, roles: [controller], accounts: {chat: U01}}
    complete: true                            # nobody decides but these people and those with keys

`password`, `secret` and a slack's `url` are names of secrets (`HAI_FLOW_SECRET_<NAME>`), and so are the credentials of
apps in chats, whose kinds and settings `chat.apps` knows. Channels and people at the top
belong to the tenant `default`; those of others stand below `tenants`, by name: a tenant's questions go to its own
channels and people only.

Pure: `recipients` gives the receivers of a question. Addresses come from this file alone, never from a workflow or a
request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from hai_flow.definition.yaml.document import parse
from hai_flow.engine.pendings.selectors import name_holdings
from hai_flow.errors import Finding
from hai_flow.notify.chat import apps
from hai_flow.values import Json

DEFAULT_TENANT: Final = "default"


class Email(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="email", tag_field="kind", kw_only=True):
    """A mail server. `password` names a secret."""

    host: str
    sender: str = msgspec.field(name="from")
    port: int = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = None
    password: str | None = None


class Slack(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="slack", tag_field="kind", kw_only=True):
    """An incoming webhook of Slack, or of a service that understands its messages. `url` names the secret that is its
    address. `person`: its only reader; without one, links that decide are not sent there."""

    url: str
    person: str | None = None


class WebhookChannel(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="webhook", tag_field="kind", kw_only=True
):
    """A receiver of signed requests (Standard Webhooks). `secret` names the one that signs."""

    url: str
    secret: str
    person: str | None = None


class App(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="app", tag_field="kind", kw_only=True):
    """An app in a chat, where people decide (docs/chat.md). `app`: its kind, `settings`: those that the kind has.
    `room`: where questions stand, without one they go to the deciders' accounts. `person`: the only
    reader of the room. `read_only`: its cards have no buttons."""

    app: str
    settings: Mapping[str, str] = {}
    room: str | None = None
    person: str | None = None
    read_only: bool = False


Channel: TypeAlias = Email | Slack | WebhookChannel | App
_OF_EVERY_APP: Final = ("room", "person", "read_only")


LINK_HOURS_MAX: Final = 72  # a link lends its person's roles to whoever has the mail


class Person(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's address, and the roles and groups by which questions find them, and which their links carry.
    `accounts`: their ids on the platforms of chats, by channel."""

    email: str | None = None
    accounts: Mapping[str, str] = {}
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class TenantChannels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The channels and people of one tenant. `complete`: nobody decides but these people and those with keys."""

    channels: Mapping[str, Channel] = {}
    people: Mapping[str, Person] = {}
    complete: bool = False


class NotifyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. `hosts`: receivers that may be reached though they are not public. `link_hours`: how long a link
    is good."""

    hai: Literal["notify/v1"]
    url: str | None = None
    channels: Mapping[str, Channel] = {}
    people: Mapping[str, Person] = {}
    complete: bool = False
    tenants: Mapping[str, TenantChannels] = {}
    hosts: tuple[str, ...] = ()
    link_hours: int = LINK_HOURS_MAX

    def place(self, tenant: str) -> TenantChannels:
        if tenant == DEFAULT_TENANT:
            return TenantChannels(self.channels, self.people, self.complete)
        return self.tenants.get(tenant, TenantChannels())


def read_channels(source: bytes, file: str) -> tuple[NotifyFile, list[Finding]]:
    document = parse(source, file)
    try:
        notify_file = msgspec.convert(_with_apps(document.value), NotifyFile)
    except msgspec.ValidationError as error:
        return NotifyFile("notify/v1"), [_finding(file, str(error))]
    faults = [*_faults("", notify_file.place(DEFAULT_TENANT))]
    for name, place in notify_file.tenants.items():
        faults += _faults(f"tenants.{name}: ", place)
    if notify_file.url is not None and not notify_file.url.startswith(("https://", "http://")):
        faults.append(f"url: expected an address, found {notify_file.url!r:.80}")
    if not 1 <= notify_file.link_hours <= LINK_HOURS_MAX:
        faults.append(f"link_hours: expected 1 to {LINK_HOURS_MAX}, found {notify_file.link_hours}")
    return notify_file, [_finding(file, fault) for fault in faults]


def _with_apps(value: Json) -> Json:
    """The file, with the settings of each app of a channel under `settings`."""
    if not isinstance(value, Mapping):
        return value
    tenants = value.get("tenants")
    content = {**value, "channels": _separate(value.get("channels", {}))}
    if isinstance(tenants, Mapping):
        content["tenants"] = {
            name: {**each, "channels": _separate(each["channels"])}
            if isinstance(each, Mapping) and "channels" in each
            else each
            for name, each in tenants.items()
        }
    return content


def _separate(channels: Json) -> Json:
    if not isinstance(channels, Mapping):
        return channels
    return {name: _as_app(each) if _is_app(each) else each for name, each in channels.items()}


def _is_app(channel: Json) -> bool:
    """Whether it is an app in a chat. A slack with a `url` is a webhook, one way."""
    return isinstance(channel, Mapping) and channel.get("kind") in apps.list_kinds() and "url" not in channel


def _as_app(channel: Mapping[str, Json]) -> Json:
    own = {name: each for name, each in channel.items() if name in _OF_EVERY_APP}
    others = {name: each for name, each in channel.items() if name not in (*_OF_EVERY_APP, "kind")}
    plain = {name: str(each) if type(each) is int else each for name, each in others.items()}
    return {**own, "kind": "app", "app": channel["kind"], "settings": plain}


def _finding(file: str, message: str) -> Finding:
    return Finding(file, 0, 0, "error", "notify.invalid", message)


def _faults(where: str, place: TenantChannels) -> list[str]:
    faults = [f"{where}people: expected ids like user:ann, found {id!r:.80}" for id in place.people if not _is_id(id)]
    for id, person in place.people.items():
        if person.email is not None and not _is_address(person.email):
            faults.append(f"{where}people.{id}.email: expected one address like ann@example.com")
        for name in person.accounts:
            if not isinstance(place.channels.get(name), App):
                faults.append(f"{where}people.{id}.accounts.{name}: there is no app in a chat of this name")
    faults += [f"{where}people: {fault}" for fault in _find_shared_accounts(place)]
    for name, channel in place.channels.items():
        if isinstance(channel, App):
            faults += [
                f"{where}channels.{name}.{fault}" for fault in apps.check_settings(channel.app, channel.settings)
            ]
        if isinstance(channel, Email) and not _is_line(channel.sender):
            faults.append(f"{where}channels.{name}.from: expected one line")
        if isinstance(channel, WebhookChannel) and not channel.url.startswith(("https://", "http://")):
            faults.append(f"{where}channels.{name}.url: expected an address")
        if not isinstance(channel, Email) and channel.person is not None and channel.person not in place.people:
            faults.append(f"{where}channels.{name}.person: {channel.person!r:.80} is not among the people")
    return faults


def _find_shared_accounts(place: TenantChannels) -> list[str]:
    owners: dict[tuple[str, str], str] = {}
    faults = []
    for id, person in place.people.items():
        for account in person.accounts.items():
            if (other := owners.setdefault(account, id)) != id:
                faults.append(f"the account {account[1]!r:.80} of {account[0]} is both {other}'s and {id}'s")
    return faults


def _is_id(id: str) -> bool:
    return id.startswith("user:") and id.removeprefix("user:").strip() != "" and not any(map(str.isspace, id))


def _is_line(text: str) -> bool:
    return bool(text) and text.isprintable()


def _is_address(text: str) -> bool:
    name, _, host = text.partition("@")
    return _is_line(text) and bool(name) and bool(host) and not set(text) & set(" ,;<>()[]\\\"'") and "@" not in host


class Recipient(msgspec.Struct, frozen=True):
    """A receiver of a notification over a channel. `person`: the only reader, if there is one; `whom`: the text behind
    the channel's name in the document, for the receiver; of a person in a chat their account."""

    channel: str
    person: str | None
    whom: str


def recipients(
    place: TenantChannels,
    notify: Sequence[str],
    asked: Collection[str],
    connected: Mapping[str, Connected] | None = None,
) -> list[Recipient]:
    """The receivers of a question, each once. `asked` are the selectors of the question; `connected` the people that
    have connected an account, by channel.

    A channel that is not in the file, or reaches nobody, has a receiver without a person: it can't be sent to, which is
    recorded."""
    receivers: dict[Recipient, None] = {}
    for text in notify:
        name, _, whom = text.partition(":")
        channel = place.channels.get(name)
        if isinstance(channel, Email):
            selectors = _select(whom, asked)
            readers = [
                Recipient(name, id, "")
                for id, each in place.people.items()
                if each.email is not None and _is_among(selectors, id, each)
            ]
            receivers.update(dict.fromkeys(readers or [Recipient(name, None, whom)]))
        elif isinstance(channel, App):
            accounts = _list_accounts(place, name, (connected or {}).get(name, ()))
            receivers.update(dict.fromkeys(_in_chat(name, channel, whom, asked, accounts)))
        else:
            receivers[Recipient(name, None if channel is None else channel.person, whom)] = None
    return list(receivers)


class ChatPerson(msgspec.Struct, frozen=True):
    """A person with an account on the platform of a channel. `held`: all roles and groups that they hold now, as
    selectors, where more is known than the account lends."""

    id: str
    account: str
    roles: Sequence[str]
    groups: Sequence[str]
    held: Sequence[str] = ()


Connected: TypeAlias = Sequence[ChatPerson]


def _list_accounts(place: TenantChannels, channel: str, connected: Connected) -> list[ChatPerson]:
    """The people with an account; an account in the file comes before one that was connected."""
    listed = {
        id: ChatPerson(id, person.accounts[channel], person.roles, person.groups)
        for id, person in place.people.items()
        if channel in person.accounts
    }
    return list({**{each.id: each for each in connected}, **listed}.values())


def _in_chat(
    name: str, channel: App, whom: str, asked: Collection[str], accounts: Sequence[ChatPerson]
) -> list[Recipient]:
    """The room, or the people with an account."""
    if not whom and channel.room is not None:
        return [Recipient(name, channel.person, channel.room)]
    selectors = _select(whom, asked)
    people = [Recipient(name, each.id, each.account) for each in accounts if _is_among(selectors, each.id, each)]
    return people or [Recipient(name, None, whom)]


def _select(whom: str, asked: Collection[str]) -> set[str]:
    """The selectors of the people that a channel is meant for: those behind its name, else those of the question."""
    return {whom, f"user:{whom}", f"role:{whom}", f"group:{whom}"} if whom else set(asked)


def _is_among(selectors: set[str], id: str, person: Person | ChatPerson) -> bool:
    return not selectors.isdisjoint((id, *name_holdings(person.roles, person.groups)))
