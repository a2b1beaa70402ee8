"""`conformance`: checks whether a HAI or AG-UI endpoint, ours or another's, does everything that real clients need."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hai_flow.cli.console import clean
from hai_flow.cli.errors import FAILED, OK, UsageError
from hai_flow.cli.options import JsonOption, parse_json
from hai_flow.cli.terminal import err, print_json, say
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow_conformance import Report, Verdict


UNREACHED: Final = 2
EPILOG: Final = "Exit codes: 0 no must failed; 1 a must failed; 2 nothing answers at URL, or wrong usage."
_SHOWN_CHARS: Final = 300
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_STYLES: Final = {"pass": "green", "fail": "bold red", "not applicable": "dim", "skipped": "dim"}
_WORDS: Final = {"pass": "pass", "fail": "FAIL", "not applicable": "n/a", "skipped": "skip"}


class ProtocolChoice(StrEnum):
    """The protocol that the endpoint speaks."""

    HAI = "hai"
    AGUI = "agui"
    AGUI_0 = "agui-0"
    AUTO = "auto"


def conformance(
    url: Annotated[str, typer.Argument(metavar="URL", help="What a client posts to, as .../awp or .../ag-ui.")],
    protocol: Annotated[
        ProtocolChoice, typer.Option("--protocol", help="agui-0: as a client that states no version.")
    ] = ProtocolChoice.AUTO,
    message: Annotated[str, typer.Option("--message", metavar="TEXT", help="What the user says.")] = "hello",
    workflow: Annotated[
        str | None, typer.Option("--workflow", metavar="NAME", help="Sent as forwardedProps.workflow.")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option("--tool", metavar="NAME=JSON", help="Advertise this tool, and answer so; may be repeated."),
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="JSON", help="The payload that resumes an interrupt.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME:VALUE", help="As Authorization; may be repeated.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="For each exchange.")] = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Use an endpoint as real clients do, and report its faults. It starts runs there and answers their calls."""
    from hai_flow_conformance import Dialect, Plan, Unreachable, conform

    plan = Plan(
        url=url,
        dialect=None if protocol is ProtocolChoice.AUTO else Dialect(protocol.value),
        message=message,
        workflow=workflow,
        tools=dict(_tool(text) for text in tool or ()),
        resume=() if resume is None else (parse_json(resume, "--resume"),),
        headers=dict(_header(text) for text in header or ()),
        timeout=timeout,
    )
    try:
        report = conform(plan)
    except Unreachable as error:
        err().print(f"hai-flow: {clean(str(error))}. Expected the URL of an endpoint that is up.", style="red")
        raise typer.Exit(UNREACHED) from None
    if as_json:
        print_json(report.to_json())
    else:
        _print(report)
    raise typer.Exit(OK if report.conforms else FAILED)


def _tool(text: str) -> tuple[str, Json]:
    name, separator, answer = text.partition("=")
    if not separator or not name:
        raise UsageError(f"--tool: expected NAME=JSON, found {text!r}; for example confirmAction=true.")
    return name, parse_json(answer, "--tool")


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator or not name.strip():
        raise UsageError(f"--header: expected NAME:VALUE, found {text!r}; for example 'Authorization: Bearer abc'.")
    if not _HEADER_NAME.fullmatch(name.strip()) or not value.isascii() or not value.isprintable():
        raise UsageError(f"--header: expected a name and a value of plain ASCII, found {text!r}.")
    return name.strip(), value.strip()


# --- the report ---------------------------------------------------------------------------------------------------


def _print(report: Report) -> None:
    say(report.url if report.stopped else f"{_NAMES[str(report.dialect)]} at {report.url}")
    told = [each for each in report.verdicts if str(each.result) == "fail"] if report.stopped else report.verdicts
    for group, verdicts in groupby(told, key=lambda verdict: verdict.check.group):
        listed = list(verdicts)
        if all(str(each.result) == "not applicable" and each.found.startswith("not of ") for each in listed):
            continue
        say(f"\n{group}", "bold")
        for verdict in listed:
            if not verdict.found.startswith("not of "):
                _print_verdict(verdict)
    if report.stopped:
        say(f"\n{clean(report.stopped)} Nothing else was tried.", "bold")
    _print_summary(report)


_NAMES: Final = {"hai": "HAI", "agui": "AG-UI 1.0", "agui-0": "AG-UI 0.x"}


def _print_verdict(verdict: Verdict) -> None:
    check, result = verdict.check, str(verdict.result)
    why = f" ({verdict.found})" if verdict.found and result in ("not applicable", "skipped") else ""
    style = "yellow" if result == "fail" and check.level != "must" else _STYLES[result]
    word = "info" if result == "fail" and check.level == "info" else _WORDS[result]
    say(f"  {word:<5} {check.id:<24} {check.expected}{why}", style)
    if result == "fail":
        say(f"          level     {check.level}, {check.source}")
        say(f"          expected  {check.expected}")
        say(f"          found     {verdict.found or 'something else'}")
        if verdict.shown:
            shown = verdict.shown.decode("utf-8", "backslashreplace")
            text = json.dumps(shown, ensure_ascii=False)[1:-1].replace('\\"', '"')
            say(f"          shown     {text[:_SHOWN_CHARS]}{'…' if len(text) > _SHOWN_CHARS else ''}")


def _print_summary(report: Report) -> None:
    counts = report.to_json()["counts"]
    musts = sum(verdict.breaks for verdict in report.verdicts)
    say(
        f"\n{len(report.verdicts)} checks: {counts['pass']} pass, {counts['fail']} fail ({musts} must), "
        f"{counts['skipped']} skipped, {counts['not applicable']} not applicable.",
        "green" if report.conforms else "bold red",
    )
