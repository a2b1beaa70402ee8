"""A campaign's report as one page that needs nothing else: no script, no font, no address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from hai_flow_chaos.history import Mark

if TYPE_CHECKING:
    from hai_flow_chaos.campaign import Outcome

WIDTH: Final = 1100
NAMES_WIDTH: Final = 110
ROW: Final = 22
SHOWN_MAX: Final = 500
CSP: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src 'none'; base-uri 'none'; form-action 'none'"
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1150px; padding: 0 1em; color: #1c2733 }
@media (prefers-color-scheme: dark) { body { background: #14191f; color: #dbe3ea } th, td { border-color: #3a4652 } }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
.holds { color: #137a3f } .broken { color: #c0262d }
table { border-collapse: collapse } th, td { text-align: left; border-bottom: 1px solid #cfd8e0;
  padding: .25em .8em .25em 0; vertical-align: top; overflow-wrap: anywhere }
code { font: .9em ui-monospace, monospace } svg { width: 100%; height: auto }
svg text { font: 11px system-ui, sans-serif; fill: currentColor }
.life { fill: #7aa7d6; opacity: .55 } .process { fill: #d9822b } .line { fill: #8e5bb5 } .postgres { fill: #c0262d }
.violation { stroke: #c0262d; stroke-width: 2 } .runs { fill: none; stroke: #137a3f; stroke-width: 1.5 }
.axis { stroke: currentColor; opacity: .25 }
"""
_PROCESS: Final = frozenset(
    {
        "kill_worker",
        "kill_server",
        "stall",
        "step_clock",
        "kill_service",
        "stall_service",
        "kill_program",
        "stall_program",
    }
)
_LINE: Final = frozenset({"cut", "silence", "cut_clients", "silence_clients", "deafen", "lose_answers"})


def page(outcome: Outcome) -> str:
    """The report as HTML."""
    verdict = "Everything held" if outcome.holds else f"{len(outcome.broken)} violations"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(CSP)}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{verdict}: chaos {outcome.campaign.seed}</title><style>{_STYLE}</style></head><body>",
        f'<h1 class="{"holds" if outcome.holds else "broken"}">{verdict}</h1>',
        f"<p>Again: <code>{escape(outcome.campaign.command)}</code></p>",
        f"<p>{escape(_rest(outcome))}</p>",
        *_violations(outcome),
        "<h2>Timeline</h2>",
        _timeline(outcome),
        "<h2>Numbers</h2>",
        _table(("what", "how many"), _numbers(outcome)),
        "<h2>Faults</h2>",
        _table(("at", "until", "what", "whom", "note"), (_fault_row(mark) for mark in _faults(outcome))),
        "</body></html>",
    ]
    return "\n".join(parts)


def _rest(outcome: Outcome) -> str:
    left_out = "".join(f" Left out: {kind}, because {why}." for kind, why in outcome.lacking.items())
    if outcome.quiet_after is None:
        return f"It did not come to rest within {outcome.campaign.settle:g} s after the last fault.{left_out}"
    return f"All was quiet {outcome.quiet_after:.1f} s after the last fault.{left_out}"


def _violations(outcome: Outcome) -> list[str]:
    if outcome.holds:
        return []
    rows = [
        (each.rule, each.whom, each.message, "" if each.at is None else f"{each.at:.1f} s")
        for each in outcome.broken[:SHOWN_MAX]
    ]
    return ["<h2>Violations</h2>", _table(("promise", "whom", "what was seen", "at"), rows)]


def _numbers(outcome: Outcome) -> list[tuple[str, str]]:
    numbers = outcome.history.numbers()
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in numbers.items() if isinstance(value, int)]
    rows += [(f"runs {status}", f"{count:,}") for status, count in sorted(outcome.statuses.items())]
    return [*rows, ("events that verify has looked at", f"{outcome.verified.events:,}")]


def _faults(outcome: Outcome) -> list[Mark]:
    return sorted(mark for mark in outcome.history.marks if mark.what != "life")


def _fault_row(mark: Mark) -> tuple[str, ...]:
    return f"{mark.at:.1f} s", f"{mark.until:.1f} s", mark.what.replace("_", " "), mark.whom, mark.note


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>{body}</table>"


# --- the picture ------------------------------------------------------------------------------------------------------


def _timeline(outcome: Outcome) -> str:
    """A picture over time (SVG): a row for each process with its lives and faults, and the number of started runs."""
    marks = outcome.history.marks
    end = max(
        [outcome.faults_until, *(mark.until for mark in marks), *(each.at or 0.0 for each in outcome.broken), 1.0]
    )
    rows = sorted({mark.whom for mark in marks}, key=lambda name: (name not in ("all", "postgres"), name))
    scale = (WIDTH - NAMES_WIDTH) / end

    def x(at: float) -> float:
        return round(NAMES_WIDTH + at * scale, 1)

    height = ROW * (len(rows) + 3)
    drawn = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Faults and lives over time">']
    for number, name in enumerate(rows):
        drawn.append(f'<text x="0" y="{ROW * number + 15}">{escape(name)}</text>')
    for mark in sorted(marks, key=lambda mark: mark.what != "life"):
        drawn.append(_bar(mark, x(mark.at), x(mark.until), ROW * rows.index(mark.whom)))
    bottom = ROW * (len(rows) + 2)
    drawn.append(f'<text x="0" y="{bottom}">runs started</text>')
    drawn.append(f'<polyline class="runs" points="{_line(outcome, x, bottom)}"/>')
    for each in outcome.broken:
        if each.at is not None:
            title = f"<title>{escape(each.rule)}: {escape(each.whom)}</title>"
            drawn.append(
                f'<line class="violation" x1="{x(each.at)}" x2="{x(each.at)}" y1="0" y2="{bottom}">{title}</line>'
            )
    for seconds in range(0, int(end) + 1, max(1, int(end / 10))):
        drawn.append(f'<text x="{x(seconds)}" y="{height - 4}">{seconds} s</text>')
        drawn.append(f'<line class="axis" x1="{x(seconds)}" x2="{x(seconds)}" y1="0" y2="{bottom}"/>')
    return "".join([*drawn, "</svg>"])


def _bar(mark: Mark, left: float, right: float, top: int) -> str:
    what = mark.what
    kind = "life" if what == "life" else "process" if what in _PROCESS else "line" if what in _LINE else "postgres"
    title = f"{mark.at:.1f} to {mark.until:.1f} s: {what.replace('_', ' ')} {mark.note}"
    inset = 5 if kind == "life" else 2
    box = f'x="{left}" y="{top + inset}" width="{max(2.0, right - left):.1f}" height="{ROW - 2 * inset}"'
    return f'<rect class="{kind}" {box}><title>{escape(title)}</title></rect>'


def _line(outcome: Outcome, x: object, bottom: int) -> str:
    told = outcome.history.started
    if not told or not callable(x):
        return ""
    step = max(1, len(told) // 200)
    return " ".join(
        f"{x(each.at)},{bottom - 2 * ROW * (number + 1) / len(told) + ROW / 2:.1f}"
        for number, each in enumerate(told)
        if number % step == 0
    )
