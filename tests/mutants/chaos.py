"""Does the chaos campaign find bugs? Each is put into the processes of a short one, which must see a promise broken.

    .venv/bin/python -m tests.mutants.chaos               all, one after the other; writes chaos.md beside this file
    .venv/bin/python -m tests.mutants.chaos --only lease  those whose name or file holds the word; the others stay
    .venv/bin/python -m tests.mutants.chaos --jobs 2      two at a time

Servers and workers run a copy of the project with the bug in it. The campaign itself, `verify` and its engine are those
of the checkout, so a bug can't hide itself. A campaign ends at the first violation; one that sees none is repeated with
another seed before its mutant counts as a survivor."""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hai_flow_chaos.plan import Campaign
from hai_flow_chaos.stage import cluster_in

from tests.mutants import running, sets
from tests.mutants.mutant import ROOT, Mutant, Room

TABLE: Final = Path(__file__).with_name("chaos.md")
COMMAND: Final = ".venv/bin/python -m tests.mutants.chaos"
SEEDS: Final = (11, 12)
SHORT: Final = Campaign(SEEDS[0], minutes=0.35, servers=2, workers=2, runs=45, settle=60)
CAMPAIGN_SECONDS: Final = 600
FOUND_MIN: Final = 38

# Bugs that the suite knows by these names (engine.py, store.py, runtime.py): such as break a promise while processes
# live and die, not such as need an input that no workflow of the campaign has.
KNOWN: Final = (
    # the commit
    "a decision does not compare the version",
    "a repeated command is carried out again",
    "winners are told each other's outcome",
    "the slot of a run that has ended stays taken",
    "any commit of a run frees its slot",
    "a run is born without the slot that it needs",
    "the chain of hashes forgets what came before",
    "the length of the log is that of its last row",
    "a log row says that it begins one event before it does",
    "a turn begins one event late",
    "the end of a turn is not written",
    "a decision that nobody can perform is not due",
    "a birth that nobody can perform is not due",
    "a claim that is taken raises no fence",
    # the committer
    "who asked is answered before the commit",
    "a refusal is given from a state that may be stale",
    "a batch is published before it is committed",
    "a commit of unknown outcome is taken for one that did not happen",
    "what others wrote in between is skipped",
    "a run that waits for time is never due",
    "chunks that have landed are written again",
    "the chunks of an entry that lost are forgotten",
    # the worker
    "every claim counts as fresh",
    "an attempt is begun twice",
    "a dead worker's attempts are begun as if nobody had",
    "timers of held runs do not fire",
    "chunks of a message begin to count anew",
    # delivery, slots
    "a message that was delivered twice is carried out twice",
    "the end of a run admits nobody",
    "a run that begins to wait is not subscribed",
    # followers
    "a feed accepts a gap",
    "a feed shows again what it has shown",
    "what was committed while the first follower read is not shown",
    "a stream that is resumed in the middle of a commit begins with the whole of it",
    "a place does not move",
    # the engine
    "a gate that was rejected lets the call begin",
    "what finished first is undone first",
    "a `finally` does not run behind a failure",
    "an effect that may happen only once is tried again",
    "a parent does not hear that its child has ended",
    "a signal is taken twice",
    "a signal that does not match is taken",
    "the result of an attempt that is closed is recorded",
    "a stop waits for ever for what does not react",
)

wire_log = Room("hai_flow/wire/dialects/log.py", "tests/wire/test_wire_log.py")
wire_log.bug("a follower's cursor is one event behind").edit("self._seq = state.seq\n", "self._seq = state.seq - 1\n")
stream_pieces = Room("hai_flow/api/protocols/stream_pieces.py", "tests/api/test_streams.py")
stream_pieces.bug("a follower that comes back is shown its last frame again").edit(
    "return StreamItem(place.seq, frames[place.frame + 1 :], all_frames.data[len(sent_before.data) :])",
    "return StreamItem(place.seq, frames[place.frame :], all_frames.data)",
)
database = Room("hai_flow/store/postgres/database.py", "tests/store/test_database.py")
database.bug("a commit is acknowledged before it is durable").edit(
    '"jit": "off",\n    "application_name": "hai-flow",',
    '"jit": "off",\n    "synchronous_commit": "off",\n    "application_name": "hai-flow",',
)
agui = Room("hai_flow/wire/dialects/agui.py", "tests/wire/test_agui_encoder.py")
agui.bug("a message that was streamed does not end").edit(
    'return [frame("TEXT_MESSAGE_END", at, messageId=message.id, metadata=self._cut(message)), *cut]', "return []"
)
OWN: Final = (*wire_log.mutants, *stream_pieces.mutants, *database.mutants, *agui.mutants)

SURVIVORS: Final[Mapping[str, str]] = {
    "every claim counts as fresh": "it bites where the answer to a claim of a dead worker's run is lost and the world "
    "alone knows of an effect of that run: both campaigns lost such answers, and neither met both",
    "a gate that was rejected lets the call begin": "it bites where a gate that has expired as rejected is begun "
    "again, as by an operator's retry: no run of the campaign does that; who rejects is heard with the bug as well",
}
"""Why a mutant that the short campaign does not find is not found."""
NOT_TRIED: Final = "not tried yet"
_PARSING: Final = threading.Lock()  # Python's parser counts its depth for all threads together, and then fails in one


@dataclass(frozen=True, slots=True)
class Row:
    """What became of a mutant: the promise that was seen broken first (empty: none was), after so many seconds, in the
    campaign of this seed."""

    name: str
    file: str
    found: str
    seconds: int
    seed: int


def mutants() -> list[Mutant]:
    """All of them."""
    by_name = {mutant.name: mutant for mutant in sets.all_mutants()}
    return [*(by_name[name] for name in KNOWN), *OWN]


# --- one campaign -----------------------------------------------------------------------------------------------------


def tried(shop: running.Workshop, place: Path, mutant: Mutant) -> Row:
    """The mutant in a copy that nobody else uses."""
    path = place / mutant.file
    pristine = (shop.pristine / mutant.file).read_text()
    with _PARSING:
        applied = mutant.applied(pristine)
    path.write_text(applied)
    try:
        for seed in SEEDS:
            began = time.monotonic()
            found = _campaign(shop, place, seed)
            row = Row(mutant.name, mutant.file, found, round(time.monotonic() - began), seed)
            if found:
                break
    finally:
        path.write_text(pristine)
    return row


def _campaign(shop: running.Workshop, place: Path, seed: int) -> str:
    """A short campaign in a process of its own, whose processes run the copy. The first promise that it saw broken."""
    with tempfile.TemporaryDirectory(prefix="hai-flow-chaos-mutant-") as report:
        given = [str(place), shop.environment["PYTHONPYCACHEPREFIX"], str(_cluster(shop)), report, str(seed)]
        words = [sys.executable, "-m", "tests.mutants.chaos", "--campaign", *given]
        try:
            done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, timeout=CAMPAIGN_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return ""  # a machine that is too busy to hold it has found nothing
    return "" if done.returncode else done.stdout.decode().strip()  # a campaign that failed itself has found nothing


def _cluster(shop: running.Workshop) -> Path:
    """The PostgreSQL that each campaign begins with a copy of."""
    return shop.directory / "postgres"


def _one_campaign(place: str, bytecode: str, cluster: str, report: str, seed: int) -> None:
    """In a process of its own: print the promise that was seen broken first, or nothing."""
    import structlog
    from hai_flow_chaos import campaign as campaigns

    from hai_flow.errors import StoreError

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    campaign = replace(SHORT, seed=seed)
    extra = {"PYTHONPATH": place, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        outcome = asyncio.run(
            campaigns.run(campaign, Path(report), first=True, patient=True, extra=extra, cluster=Path(cluster))
        )
    except (StoreError, RuntimeError) as error:
        print(f"it does not come up: {str(error)[:80]}")
        return
    if outcome.broken:
        print(outcome.broken[0].rule)
        print(f"      {outcome.broken[0].whom}: {outcome.broken[0].message[:400]}", file=sys.stderr, flush=True)


# --- all of them ------------------------------------------------------------------------------------------------------


def read_table() -> dict[str, Row]:
    """What the table says, by the mutant's name."""
    rows: dict[str, Row] = {}
    for line in TABLE.read_text().splitlines() if TABLE.exists() else ():
        if found := re.fullmatch(r"\| (.+) \| `(.+)` \| (.*) \| (\d+) \| (\d+) s \|", line):
            said = "" if found[3].startswith("**no**") else found[3]
            rows[found[1]] = Row(found[1], found[2], said, seconds=int(found[5]), seed=int(found[4]))
    return rows


def table(rows: Mapping[str, Row]) -> str:
    """The page: a line for each mutant, also for those that nobody has tried."""
    everything = mutants()
    tried_ones = [rows[each.name] for each in everything if each.name in rows]
    found, later = sum(bool(row.found) for row in tried_ones), ", ".join(map(str, SEEDS[1:]))
    lines = [
        "# Bugs that a short campaign finds",
        "",
        f"Written by `{COMMAND}`, which puts each bug into the processes of a short [campaign](../../docs/chaos.md):",
        f"`{SHORT.command} --first`, and with seed {later} where that finds nothing.",
        f"{len(everything)} bugs, {len(tried_ones)} tried, {found} found. `--missing` tries those that are left.",
        "",
        "| bug | in | the promise that was seen broken first | seed | after |",
        "|---|---|---|---|---|",
    ]
    for each in everything:
        row = rows.get(each.name)
        if row is None:
            lines.append(f"| {each.name} | `{each.file}` | {NOT_TRIED} | | |")
            continue
        said = row.found or f"**no**: {SURVIVORS.get(row.name, 'not explained yet')}"
        lines.append(f"| {row.name} | `{each.file}` | {said} | {row.seed} | {row.seconds} s |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--missing", action="store_true", help="only those that the table does not have as found")
    parser.add_argument("--campaign", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.campaign:
        *places, seed = given.campaign
        _one_campaign(*places, seed=int(seed))
        return 0
    rows, everything = read_table(), mutants()
    chosen = [
        each
        for each in everything
        if (not given.only or any(word in f"{each.name} {each.file}" for word in given.only))
        and not (given.missing and each.name in rows and rows[each.name].found)
    ]
    with running.workshop(database=False) as shop, ThreadPoolExecutor(given.jobs) as pool:
        free = [shop.place(number) for number in range(given.jobs)]
        asyncio.run(cluster_in(shop.directory))
        if found := _campaign(shop, free[0], SEEDS[0]):
            print(f"A campaign without any bug sees this broken: {found}", file=sys.stderr)
            return 2

        def work(mutant: Mutant) -> Row:
            place = free.pop()
            try:
                return tried(shop, place, mutant)
            finally:
                free.append(place)

        for done in as_completed([pool.submit(work, mutant) for mutant in chosen]):
            try:
                row = done.result()
            except Exception as error:  # the other mutants are tried all the same, and this one stays untried
                print(f"A campaign could not be held: {error!r}", file=sys.stderr, flush=True)
                continue
            print(f"{row.seconds:4} s  {row.name}: {row.found or 'NOT FOUND'}", flush=True)
            rows[row.name] = row
            TABLE.write_text(table(rows))
    found = sum(bool(rows[each.name].found) for each in everything if each.name in rows)
    print(f"{found} of {len(everything)} are found.")
    return 0 if found >= FOUND_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
