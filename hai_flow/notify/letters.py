"""The text of a notification: plain, so that no words of a workflow or a model can pass for ours.

Their words stand behind `> ` in lines of their own, without control characters and without anything that a mail client
makes a link of. So a title can't forge a header, a line of this letter, or the address at which one decides. Pure."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime
from typing import Final

import msgspec

from hai_flow.primitives.invisible_characters import WARNING, has_hidden, reveal
from hai_flow.primitives.markdown import to_text
from hai_flow.values import Json

SUBJECT_MAX: Final = 120
TITLE_MAX: Final = 300
MESSAGE_MAX: Final = 4000
_WHAT: Final = {
    "opened": "Somebody is asked to decide",
    "escalated": "This was escalated",
    "reminded": "A reminder: this is still waiting",
    "reseated": "Somebody is or was away, and this is waiting for you now",
    "stranded": "Nobody can decide this: mend it, by a key, a role or the end of an absence",
}
_HOST: Final = re.compile(r"(?<=[\w-])\.(?=[^\W\d_]{2})")
_SCHEME: Final = re.compile(r"(?<=[A-Za-z])(?=:)|(?<=:)(?=//)")


class NoticeContent(msgspec.Struct, frozen=True):
    """The content of a notification. `what`: opened, escalated, reminded, reseated or stranded. `link`: a page where
    its only reader decides. `page`: the question in the console, for people that sign in there."""

    what: str
    pending_id: str
    run_id: str
    workflow: str
    kind: str
    title: str
    message: str | None
    deadline: datetime | None
    link: str | None = None
    page: str | None = None


class Letter(msgspec.Struct, frozen=True):
    subject: str
    text: str


def letter(told: NoticeContent) -> Letter:
    title = " ".join(_plain(told.title).split())
    subject = f"[HAI Flow] {_cut(title, SUBJECT_MAX)}"
    return Letter(subject, "\n".join(_lines(told)) + "\n")


def introduce(what: str, workflow: str) -> str:
    """The first line of a notification: why it comes."""
    return f"{_WHAT.get(what, _WHAT['opened'])}, in the workflow {workflow}."


def chat(told: NoticeContent) -> str:
    """As a message to Slack: its three signs of markup are escaped, so it can mention no person and has no links."""
    lines = _lines(told)
    return "\n".join(line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for line in lines)


def payload(told: NoticeContent, at: datetime) -> Json:
    """As the body of a webhook: JSON, in which nothing needs to be quoted."""
    return {
        "type": f"pending.{told.what}",
        "timestamp": at.isoformat().replace("+00:00", "Z"),
        "data": {
            "pending_id": told.pending_id,
            "run_id": told.run_id,
            "workflow": told.workflow,
            "kind": told.kind,
            "title": told.title,
            "message": told.message,
            "deadline": None if told.deadline is None else told.deadline.isoformat().replace("+00:00", "Z"),
            "link": told.link,
            "page": told.page,
        },
    }


def _lines(told: NoticeContent) -> list[str]:
    lines = [introduce(told.what, told.workflow), ""]
    lines += quote(told.title, TITLE_MAX).splitlines()
    if told.message:
        lines += [">", *quote(to_text(told.message, MESSAGE_MAX), MESSAGE_MAX).splitlines()]
    if has_hidden(told.title) or has_hidden(told.message or ""):
        lines += ["", WARNING]
    lines.append("")
    if told.deadline is not None:
        lines.append(f"Deadline: {told.deadline:%Y-%m-%d %H:%M} UTC")
    if told.link is not None:
        lines += ["Decide on this page (for you alone, once; nothing is decided by opening it):", told.link]
    else:
        where = "in your inbox" if told.page is None else f"at {told.page}"
        lines.append(f"Decide it {where}, or with: hai-flow decide {told.pending_id}")
    return lines


def quote(text: str, most: int) -> str:
    """Somebody's words, each line behind `> `. Nothing in them is a link."""
    lines = _cut(text, most).splitlines() or [""]
    return "\n".join(f"> {_plain(line)}".rstrip() for line in lines)


def _plain(line: str) -> str:
    visible = "".join(each if _is_shown(each) else "\N{REPLACEMENT CHARACTER}" for each in reveal(line))
    return _HOST.sub("[.]", _SCHEME.sub(" ", visible)).replace("@", " at ")


def _is_shown(sign: str) -> bool:
    return sign != "\r" and unicodedata.category(sign) != "Cn"  # of the rest `reveal` has left what writing needs


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
