"""Makes the recording of a terminal in README, by performing the commands that it shows.

    .venv/bin/python -m docs.terminal        writes docs/terminal.svg

Starts `dev --demo` in a folder of its own, answers its question, looks at the run, and draws each line at the moment at
which it came; long pauses are shortened, and long lines and ids are cut. A reader whose system asks for reduced motion
sees the last picture.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = Path(__file__).with_name("terminal.svg")
COLUMNS: Final = 100
ROW, GLYPH, MARGIN = 18, 7.8, 16  # pixels
PAUSE_MAX: Final = 1.6  # seconds between two lines
READING: Final = 1.2  # seconds before a command is typed
STAYS: Final = 6  # seconds that the end is shown before it begins again
SECONDS_MAX: Final = 120
PROMPT: Final = "$ "
_KEPT: Final = ("Making", "PostgreSQL", "Serving", "The demo")  # the lines of `dev` that are shown, beside examples
_DEMO: Final = re.compile(r"The demo, \w+, waits for you: run (\S+), pending (\S+)\.")

Frame = tuple[float, str]  # seconds from the beginning; a line


def record() -> list[Frame]:
    """Perform the commands, and return the lines with their times."""
    with tempfile.TemporaryDirectory(prefix="hai-flow-terminal-") as folder:
        began, frames = time.monotonic(), [(0.0, f"{PROMPT}python3 cli.py dev --demo")]
        arguments = [sys.executable, "-P", "-m", "hai_flow.cli", "dev", "--demo", "--port", "0", "--no-open"]
        settings = {name: value for name, value in os.environ.items() if not name.startswith("HAI_FLOW_")}
        settings |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": str(COLUMNS)}
        output = subprocess.PIPE
        with subprocess.Popen(
            arguments, cwd=folder, env=settings, stdout=output, stderr=subprocess.STDOUT, text=True
        ) as dev:
            try:
                frames += _until_it_asks(dev, began)
                text = "\n".join(line for _, line in frames)
                asked, served = _DEMO.search(text), re.search(r"Serving (http://\S+)", text)
                assert asked is not None, f"the demo did not begin:\n{text}"
                assert served is not None, f"nobody says where it is served:\n{text}"
                run, pending = asked.groups()
                settings["HAI_FLOW_URL"] = served[1]
                for command in (["pendings"], ["decide", pending, "approve"], ["show", run]):
                    frames += _command(command, frames[-1][0] + READING, folder, settings)
            finally:
                dev.send_signal(signal.SIGINT)
                dev.wait(SECONDS_MAX)
    return frames


def _until_it_asks(dev: subprocess.Popen[str], began: float) -> list[Frame]:
    assert dev.stdout is not None
    frames: list[Frame] = []
    for line in dev.stdout:
        if line.startswith(_KEPT):
            frames.append((time.monotonic() - began, line.rstrip("\n")))
        if _DEMO.search(line):
            break
    return frames


def _command(command: Sequence[str], at: float, folder: str, settings: dict[str, str]) -> list[Frame]:
    typed = time.monotonic()
    arguments = [sys.executable, "-P", "-m", "hai_flow.cli", *command]
    done = subprocess.run(
        arguments, cwd=folder, env=settings, capture_output=True, text=True, timeout=SECONDS_MAX, check=True
    )
    came = at + time.monotonic() - typed
    return [(at, f"{PROMPT}python3 cli.py {' '.join(command)}"), *((came, line) for line in done.stdout.splitlines())]


def shown(text: str) -> str:
    """A line as the picture has it: ids and addresses are shortened, tabs are columns, and the rest is cut."""
    text = re.sub(r"\S*python\S* \S*(cli\.py|-m hai_flow\.cli)|\S*/hai-flow(?= )", "python3 cli.py", text)
    text = re.sub(r"(call_[a-z2-7]{6})[a-z2-7]*_[a-z2-7]+", r"\1…", text)
    text = re.sub(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", r"\1…", text)
    text = re.sub(r"127\.0\.0\.1:[0-9]+", "127.0.0.1:8000", text)
    text = re.sub(r" \([^()]*/docs\)", "", text).expandtabs(12)
    return text if len(text) <= COLUMNS else text[: COLUMNS - 1] + "…"


def drawn(frames: Sequence[Frame]) -> str:
    """The frames as an animated SVG."""
    lines, now, last = [], 0.0, 0.0
    for at, text in frames:
        now += min(at - last, PAUSE_MAX)
        last = at
        lines.append((now, shown(text)))
    whole = now + STAYS
    width, height = int(COLUMNS * GLYPH) + 2 * MARGIN, len(lines) * ROW + 2 * MARGIN
    rules, rows = [], []
    for number, (at, text) in enumerate(lines):
        begins = 100 * at / whole
        rules.append(f"@keyframes l{number}{{0%,{begins:.2f}%{{opacity:0}}{begins + 0.01:.2f}%,100%{{opacity:1}}}}")
        rules.append(f".l{number}{{animation:l{number} {whole:.1f}s infinite}}")
        style = "typed" if text.startswith(PROMPT) else "asked" if text.startswith("?") else "said"
        y = MARGIN + number * ROW + 13
        rows.append(f'<text class="{style} l{number}" x="{MARGIN}" y="{y}" xml:space="preserve">{escape(text)}</text>')
    still = "@media (prefers-reduced-motion:reduce){text{animation:none!important}}"
    style = (
        "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d6deeb}"
        ".typed{fill:#ffffff;font-weight:600}.asked{fill:#ffcb6b;font-weight:600}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' role="img" aria-label="A terminal: the demo is started, its question is answered, its run is shown">',
            f"<style>{style}{''.join(rules)}{still}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#11131a"/>',
            *rows,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(drawn(record()))
