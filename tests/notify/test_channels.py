"""The file of channels: who is told over which of them, and its mistakes."""

from __future__ import annotations

import pytest

from hai_flow.notify.channels import NotifyFile, Recipient, read_channels, recipients

FILE = b"""
hai: notify/v1
url: https://flow.example.com
channels:
  email: {kind: email, host: localhost, from: "Flow <flow@example.com>"}
  slack: {kind: slack, url: SLACK}
  ann: {kind: webhook, url: "https://ann.example/hai", secret: ANN, person: user:ann}
people:
  user:ann: {email: ann@example.com, roles: [boss]}
  user:bob: {email: bob@example.com, roles: [boss, clerk], groups: [money]}
  user:mute: {roles: [boss]}
tenants:
  acme: {channels: {slack: {kind: slack, url: ACME}}, people: {user:ann: {email: ann@acme.example}}}
"""


def read(text: bytes = FILE) -> NotifyFile:
    found, findings = read_channels(text, "notify.yaml")
    assert findings == []
    return found


@pytest.mark.parametrize(
    ("notify", "asked", "people"),
    [
        (["email"], ["role:boss"], ["user:ann", "user:bob"]),
        (["email"], ["user:bob", "role:boss"], ["user:ann", "user:bob"]),
        (["email"], ["group:money"], ["user:bob"]),
        (["email"], ["anyone"], [None]),
        (["email"], ["user:mute"], [None]),
        (["email:ann"], ["role:clerk"], ["user:ann"]),
        (["email:user:ann", "email:clerk"], [], ["user:ann", "user:bob"]),
        (["email:eve@evil.example"], ["role:boss"], [None]),
    ],
)
def test_a_mail_goes_to_those_who_are_asked_or_named_and_have_an_address(
    notify: list[str], asked: list[str], people: list[str | None]
) -> None:
    found = recipients(read().place("default"), notify, asked)
    assert [each.person for each in found] == people


def test_other_channels_have_one_receiver_and_so_has_one_that_is_not_there() -> None:
    found = recipients(read().place("default"), ["slack:#money", "ann", "slack:#money", "pager"], ["role:boss"])
    expected = [Recipient("slack", None, "#money"), Recipient("ann", "user:ann", ""), Recipient("pager", None, "")]
    assert found == expected


def test_another_tenant_has_own_channels_and_people_an_unknown_one_none() -> None:
    found = recipients(read().place("acme"), ["email", "slack"], ["user:ann"])
    assert found == [Recipient("email", None, ""), Recipient("slack", None, "")]
    assert recipients(read().place("other"), ["slack"], ["user:ann"]) == [Recipient("slack", None, "")]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"notify/v1", b"notify/v2", "notify/v2"),
        (b"kind: slack, url: SLACK", b"kind: pigeon", "pigeon"),
        (b"user:mute:", b"mute:", "expected ids like user:ann"),
        (b"bob@example.com", b'"bob@example.com, eve@evil.example"', "expected one address"),
        (b"bob@example.com", b'"bob@example.com\\nBcc: eve@evil.example"', "expected one address"),
        (b"Flow <flow@example.com>", b"Flow\\nBcc: x", "expected one line"),
        (b"person: user:ann", b"person: user:eve", "not among the people"),
        (b"url: https://flow", b"url: ftp://flow", "expected an address"),
        (b"https://ann.example/hai", b"file:///etc/passwd", "expected an address"),
        (b"hai: notify/v1", b"hai: notify/v1\nlink_hours: 0", "expected 1 to 72"),
        (b"hai: notify/v1", b"hai: notify/v1\nlink_hours: 73", "expected 1 to 72"),
        (b"hai: notify/v1", b"hai: notify/v1\nother: 0", "other"),
    ],
)
def test_a_mistake_is_named(old: bytes, new: bytes, said: str) -> None:
    assert FILE.count(old) >= 1
    _, findings = read_channels(FILE.replace(old, new, 1), "notify.yaml")
    assert [each.severity for each in findings] == ["error"]
    assert said in findings[0].message
