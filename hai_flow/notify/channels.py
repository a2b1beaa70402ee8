"""The file of channels (`HAI_FLOW_NOTIFY`): the channels for notifications, and the addresses of people.

    hai: notify/v1
    url: https://flow.example.com             # where links lead to
    channels:
      email: {kind: email, host: smtp.example.com, from: "Flow <flow@example.com>", user: flow, password: SMTP}
      slack: {kind: slack, url: SLACK}
      pager: {kind: webhook, url: "https://pager.example.com/hai", secret: PAGER}
    people:
      user:ann: {email: ann@example.com, roles: [controller]}

`password`, `secret` and a slack's `url` are names of secrets (`HAI_FLOW_SECRET_<NAME>`). Channels and people at the top
belong to the tenant `default`; those of others stand below `tenants`, by name: a tenant's questions go to its own
channels and people only.

Pure: `recipients` gives the receivers of a question. Addresses come from this file alone, never from a workflow or a
request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from hai_flow.definition.yaml.document import parse
from hai_flow.errors import Finding

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


Channel: TypeAlias = Email | Slack | WebhookChannel


LINK_HOURS_MAX: Final = 72  # a link lends its person's roles to whoever has the mail


class Person(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's address, and the roles and groups by which questions find them, and which their links carry."""

    email: str | None = None
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class TenantChannels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The channels and people of one tenant."""

    channels: Mapping[str, Channel] = {}
    people: Mapping[str, Person] = {}


class NotifyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. `hosts`: receivers that may be reached though they are not public. `link_hours`: how long a link
    is good."""

    hai: Literal["notify/v1"]
    url: str | None = None
    channels: Mapping[str, Channel] = {}
    people: Mapping[str, Person] = {}
    tenants: Mapping[str, TenantChannels] = {}
    hosts: tuple[str, ...] = ()
    link_hours: int = LINK_HOURS_MAX

    def place(self, tenant: str) -> TenantChannels:
        """The channels and people of the tenant of this name."""
        if tenant == DEFAULT_TENANT:
            return TenantChannels(self.channels, self.people)
        return self.tenants.get(tenant, TenantChannels())


def read_channels(source: bytes, file: str) -> tuple[NotifyFile, list[Finding]]:
    """The file, and its mistakes."""
    document = parse(source, file)
    try:
        notify_file = msgspec.convert(document.value, NotifyFile)
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


def _finding(file: str, message: str) -> Finding:
    return Finding(file, 0, 0, "error", "notify.invalid", message)


def _faults(where: str, place: TenantChannels) -> list[str]:
    faults = [f"{where}people: expected ids like user:ann, found {id!r:.80}" for id in place.people if not _is_id(id)]
    for id, person in place.people.items():
        if person.email is not None and not _is_address(person.email):
            faults.append(f"{where}people.{id}.email: expected one address like ann@example.com")
    for name, channel in place.channels.items():
        if isinstance(channel, Email) and not _is_line(channel.sender):
            faults.append(f"{where}channels.{name}.from: expected one line")
        if isinstance(channel, WebhookChannel) and not channel.url.startswith(("https://", "http://")):
            faults.append(f"{where}channels.{name}.url: expected an address")
        if not isinstance(channel, Email) and channel.person is not None and channel.person not in place.people:
            faults.append(f"{where}channels.{name}.person: {channel.person!r:.80} is not among the people")
    return faults


def _is_id(id: str) -> bool:
    return id.startswith("user:") and id.removeprefix("user:").strip() != "" and not any(map(str.isspace, id))


def _is_line(text: str) -> bool:
    return bool(text) and text.isprintable()


def _is_address(text: str) -> bool:
    name, _, host = text.partition("@")
    return _is_line(text) and bool(name) and bool(host) and not set(text) & set(" ,;<>()[]\\\"'") and "@" not in host


@dataclass(frozen=True, slots=True)
class Recipient:
    """A receiver of a notification over a channel. `person`: the only reader, if there is one; `whom`: the text behind
    the channel's name in the document, for the receiver."""

    channel: str
    person: str | None
    whom: str


def recipients(place: TenantChannels, notify: Sequence[str], asked: Collection[str]) -> list[Recipient]:
    """The receivers of a question, each once. `asked` are the selectors of the question.

    A channel that is not in the file, or reaches nobody, has a receiver without a person: it can't be sent to, which is
    recorded.
    """
    receivers: dict[Recipient, None] = {}
    for text in notify:
        name, _, whom = text.partition(":")
        channel = place.channels.get(name)
        if isinstance(channel, Email):
            selectors = {whom, f"user:{whom}", f"role:{whom}", f"group:{whom}"} if whom else set(asked)
            readers = [Recipient(name, id, "") for id in _readers(place, selectors)]
            receivers.update(dict.fromkeys(readers or [Recipient(name, None, whom)]))
        else:
            receivers[Recipient(name, None if channel is None else channel.person, whom)] = None
    return list(receivers)


def _readers(place: TenantChannels, wanted: Collection[str]) -> list[str]:
    return [
        id
        for id, person in place.people.items()
        if person.email is not None
        and (
            id in wanted
            or any(f"role:{role}" in wanted for role in person.roles)
            or any(f"group:{group}" in wanted for group in person.groups)
        )
    ]
