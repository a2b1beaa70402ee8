"""Who somebody says they are, while nobody can prove it: `user:ann, role:controller, group:finance, for=user:bob`.

Until identity exists this is how quorum and exclusion can be tried. Whether anybody may say so is decided elsewhere:
the development server and the command line take it, and mark what was done with it.
"""

from __future__ import annotations

import re
from typing import Final

from hai_flow.engine.commands import Principal

EXPECTED: Final = "user:ann, role:controller, group:finance, for=user:bob (one user; the others as often as needed)"
MARK: Final = "+act_as"

_NAME: Final = re.compile(r"[!-+\--~]{1,200}")  # visible ASCII without the comma


class NotAPrincipal(ValueError):
    """A text that does not say who acts. The message says what was expected and found."""


def parse(text: str) -> Principal:
    """The principal that `text` names, in any order. Raises `NotAPrincipal`."""
    users: list[str] = []
    others: list[str] = []
    roles: list[str] = []
    groups: list[str] = []
    for item in (part.strip() for part in text.split(",")):
        kind, _, name = item.removeprefix("for=").partition(":")
        places = {"user": others if item.startswith("for=") else users, "role": roles, "group": groups}
        if kind not in places or not _NAME.fullmatch(name) or (item.startswith("for=") and kind != "user"):
            raise NotAPrincipal(f"expected {EXPECTED}, found {item[:80]!r}")
        places[kind].append(name)
    if len(users) != 1 or len(others) > 1:
        found = f"{len(users)} users" if len(users) != 1 else f"{len(others)} people to act for"
        raise NotAPrincipal(f"expected {EXPECTED}, found {found} in {text[:80]!r}")
    if users == others:
        raise NotAPrincipal(f"nobody acts for themselves, found user:{users[0]} twice")
    return Principal(
        f"user:{users[0]}",
        tuple(dict.fromkeys(roles)),
        tuple(dict.fromkeys(groups)),
        f"user:{others[0]}" if others else None,
    )


def marked(via: str, *, acting: bool) -> str:
    """The way a decision came, as it is recorded: `rest`, or `rest+act_as` of somebody who only says who they are."""
    return via + MARK if acting else via
