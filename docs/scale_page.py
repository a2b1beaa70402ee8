"""Computes the table of docs/scale.md from measurements (`make docs` writes it there).

Sizes are those of `bench/latest-waiting.json`, the cost of polls that of `bench/latest-scale.json`. All grow in
proportion to the runs, and no faster: the statements that look for work read the runs that are due, not all that wait.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs/scale.md"
BEGIN: Final = "<!-- computed by docs/scale_page.py -->\n"
END: Final = "<!-- end -->\n"
RUNS: Final = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
CELL_RUNS_MAX: Final = 10_000_000
"""The most waiting runs of a cell that we recommend: its indexes fit into the memory of one server, and its backup
comes back within an hour or two."""
_GIB: Final = 1024**3


def table() -> str:
    """The table, as Markdown."""
    waiting = json.loads((ROOT / "bench/latest-waiting.json").read_text())
    polls = json.loads((ROOT / "bench/latest-scale.json").read_text())["idle_core_share_1m"]
    rows = [
        "| waiting runs | tables | indexes | log written to start them | looking for work, all polls | cells |",
        "|---|---|---|---|---|---|",
    ]
    for runs in RUNS:
        cells = -(-runs // CELL_RUNS_MAX)
        cost = [_size(waiting[name] * runs) for name in ("table_bytes", "index_bytes", "wal_bytes")]
        rows.append(f"| {runs:,} | {' | '.join(cost)} | {polls * max(1.0, runs / 1e6):.2g} cores | {cells} |")
    return "\n".join(rows) + "\n"


def _size(bytes: int) -> str:
    return f"{bytes / _GIB:,.0f} GiB" if bytes >= 10 * _GIB else f"{bytes / _GIB:.2g} GiB"


def page() -> str:
    """docs/scale.md with the table as it is now."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
