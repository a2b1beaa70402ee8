"""`hai-flow oversight`: figures of how people decide, over REST."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from urllib.parse import quote

import typer

from hai_flow.cli.client.rest import ActingOptions, Server
from hai_flow.cli.errors import UsageError
from hai_flow.cli.terminal import note, out, say
from hai_flow.values import Json

_SHARES = ("approved", "refused", "other", "edited", "expired", "withdrawn", "by_rule")


def oversight(
    remote: ActingOptions,
    since: Annotated[
        str, typer.Option("--since", metavar="DURATION", help="Only questions asked within this time: 12h, 30d.")
    ] = "30d",
    by: Annotated[
        str | None, typer.Option("--by", metavar="workflow|tool", help="The grouping. Default: workflow.")
    ] = None,
    under: Annotated[
        int, typer.Option("--under", metavar="SECONDS", min=1, max=3600, help="A faster vote counts as quick.")
    ] = 10,
    mine: Annotated[bool, typer.Option("--mine", help="Your own figures.")] = False,
    person: Annotated[
        str | None, typer.Option("--person", metavar="WHO", help="The figures of this person (user:ann), for auditors.")
    ] = None,
) -> None:
    """How people decide approvals: how long they take, and what is approved, refused, edited or expired.

    Figures of workflows and tools are for auditors, those of --mine for every decider."""
    if sum((mine, person is not None, by is not None)) > 1:
        raise UsageError("--mine, --person and --by each ask for other figures: give one of them.")

    async def work(api: Server) -> Json:
        if mine or person is not None:
            path = "/v1/oversight/me" if person is None else f"/v1/oversight/people/{quote(person)}"
            return await api.get(path, since=since, under=under)
        return await api.get("/v1/oversight", since=since, by=by or "workflow", under=under)

    answer = remote.ask_and_print(work)
    if remote.as_json:
        return
    if not answer["complete"]:
        note("These are the newest questions; there are more than were looked at.")
    if "items" not in answer:
        answer["items"] = [{"name": person or "you", "open": 0, "expired": 0, "withdrawn": 0, **answer}]
    if not any(each["questions"] or each["canaries"] for each in answer["items"]):
        say(f"Nothing was asked within {since}.")
        return
    heads = (
        "",
        "questions",
        "open",
        "median",
        "p90",
        f"under {under} s",
        "opened",
        "canaries",
        *(each.replace("_", " ") for each in _SHARES),
    )
    out().table([_row(each) for each in answer["items"]], heads=heads)


def _row(item: Json) -> tuple[str, ...]:
    ended = item["questions"] - item["open"]
    return (
        item["name"] or "(no tool)",
        str(item["questions"]),
        str(item["open"]),
        _time(item["median_seconds"]),
        _time(item["p90_seconds"]),
        _share(item["quick"], item["votes"]),
        _share(item["opened"], item["votes"]),
        _canaries(item),
        *(_share(item[each], ended) for each in _SHARES),
    )


def _canaries(item: Json) -> str:
    if not item["canaries"]:
        return ""
    return f"{item['canaries']} ({item['caught']} caught, {item['missed']} missed)"


def _share(part: int, total: int) -> str:
    return "" if not total or not part else f"{100 * part / total:.0f} %"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))
