"""The output that all commands share: consoles, lines for people, JSON for programs, and values as words."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hai_flow.cli.console import Cell, TextConsole, clean, json_text
from hai_flow.definition.names.durations import spell
from hai_flow.primitives.versions import reference
from hai_flow.values import Json


def out() -> TextConsole:
    """Standard output. Made when it is used: tests and pipes replace the stream."""
    return TextConsole(sys.stdout)


def err() -> TextConsole:
    """Standard error: progress and complaints go here, so that the output of a command stays usable in a pipe."""
    return TextConsole(sys.stderr)


def say(text: str, style: str | None = None) -> None:
    """One line for the person at the terminal. It is visible at once, also in a pipe."""
    out().print(clean(text), style=style)
    sys.stdout.flush()


def note(text: str) -> None:
    """One line of progress, beside the output."""
    err().print(clean(text), style="dim")


def print_json(value: Json) -> None:
    """`value` for programs: one JSON document, not coloured and not wrapped."""
    sys.stdout.write(json_text(value, indent=2) + "\n")


def print_result(value: Json, as_json: bool, text: str, style: str | None = None) -> None:
    """What a command has done: JSON for programs, else one line."""
    if as_json:
        print_json(value)
    else:
        say(text, style)


def print_items(items: Sequence[Json], as_json: bool, none: str, row: Callable[[Json], Mapping[str, Cell]]) -> None:
    """A list: JSON for programs, else a table; `none` is the line in place of an empty one. `row` gives the cells of an
    item, by the heads of their columns."""
    if as_json:
        print_json({"items": items})
    elif not items:
        say(none)
    else:
        rows = [row(each) for each in items]
        out().table([[*cells.values()] for cells in rows], heads=[*rows[0]])


def write_line(event: Json) -> None:
    """One event as a line of JSON, at once."""
    sys.stdout.write(json_text(event) + "\n")
    sys.stdout.flush()


def compact(value: Json, length: int = 160) -> str:
    """`value` as one line of JSON, cut to `length` characters."""
    text = json_text(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def moment(text: str | None) -> str:
    """A time of REST as commands show it: to the second, UTC."""
    return "" if text is None else text[:19].replace("T", " ") + "Z"


def format_version(run: Json) -> str:
    """The version that a run of REST stands under, with its workflow's name."""
    version = run["version"]
    return reference(run["workflow"], version["version"], version["sha256"], dev=version["dev"])


def failure_text(error: Json) -> str:
    return f"{error['code']}: {error['message']}"


def roughly(ms: int) -> str:
    """A duration as people say it: one of hours has no seconds."""
    unit = 60_000 if ms >= 3_600_000 else 1_000 if ms >= 10_000 else 1
    return spell((ms + unit // 2) // unit * unit)


def plural(count: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def program() -> str:
    """The command by which this person starts `hai-flow`: its name, or the checkout's `cli.py`."""
    if shutil.which("hai-flow"):
        return "hai-flow"
    bootstrap = Path(__file__).resolve().parents[2] / "cli.py"
    if bootstrap.is_file():
        relative = os.path.relpath(bootstrap)
        return f"python3 {shlex.quote(min(relative, str(bootstrap), key=len))}"
    return f"{shlex.quote(sys.executable)} -m hai_flow.cli"


def indent(text: str) -> str:
    """`text` as lines under a question."""
    return "\n".join(f"  {line}".rstrip() for line in text.rstrip().splitlines())
