"""The addresses of the console's pages: the one place that knows them, for commands, refusals and letters.

An address begins with `/console`. Put the server's own URL in front of it: `url + run(id)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

CONSOLE: Final = "/console"

# The page that shows the subject of a refusal, by the beginning of its code.
_HELPS: Final = (
    ("pending_", "inbox"), ("answer.", "inbox"), ("vote_", "inbox"), ("delegation", "settings"),
    ("run_", "runs"), ("migration_", "runs"), ("step", "runs"), ("skip.", "runs"),
    ("definition.", "workflows"), ("workflow_", "workflows"), ("input.", "workflows"),
    ("schedule_", "schedules"), ("key_", "settings"), ("tenant", "settings"),
)  # fmt: skip

# The page that shows the subject of a request, by the beginning of its route.
_OF_ROUTES: Final = (
    ("/v1/runs/{", "runs"), ("/v1/pendings/{", "inbox"), ("/v1/inbox/{", "inbox"), ("/v1/workflows/{", "workflows"),
)  # fmt: skip


def page(*path: str) -> str:
    """The address of a page: `page("runs")`. Each part is escaped, so it stays one part whatever characters it has."""
    return "/".join([CONSOLE, *(quote(each, safe="@+:") for each in path)])


def link(base: str | None, page: str) -> str | None:
    """The page at the server's own URL; None if that is not known."""
    return None if base is None else base.rstrip("/") + page


def run(run_id: str) -> str:
    return page("runs", run_id)


def pending(pending_id: str) -> str:
    """A question, beside those that wait for the reader."""
    return page("inbox", pending_id)


def workflow(name: str) -> str:
    return page("workflows", name)


def helping(code: str) -> str:
    """The page that shows the subject of a refusal; "" where there is none."""
    page_name = next((name for begins, name in _HELPS if code.startswith(begins)), None)
    return "" if page_name is None else page(page_name)


def page_for_refusal(code: str, route: str, named: Mapping[str, object]) -> str:
    """The page that helps with a refusal of `route`, whose parameters are `named` in their order: that of the thing
    itself; if the thing does not exist (`..._unknown`), that of its kind."""
    of = next((name for begins, name in _OF_ROUTES if route.startswith(begins)), None)
    if of is None or code.endswith("_unknown"):
        return helping(code)
    thing = str(next(iter(named.values())))
    return page(of, thing.partition("@")[0] if of == "workflows" else thing)  # a workflow's page has all its versions
