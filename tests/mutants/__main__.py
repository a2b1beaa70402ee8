"""Put a bug into the project, see that a test fails; one bug after the other.

    python3 -m tests.mutants                   all of them; what is known from the last run is not tried again
    python3 -m tests.mutants --only quorum     those whose name or file holds the word
    python3 -m tests.mutants --sample 300      so many, of each file the same share
    python3 -m tests.mutants --minutes 30      as many as end in the time; the next run continues
    python3 -m tests.mutants --list            their names
    python3 -m tests.mutants --survivors       those that no test notices, and why

Ends with 0 if exactly the listed mutants survive and at least 95 of 100 are killed; with 1 if not, or if a test fails
without a mutant, too; with 2 if a mutant does not fit the source."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import takewhile
from math import inf

from tests.mutants import running, sets
from tests.mutants.mutant import ROOT, DoesNotApply, Mutant
from tests.mutants.running import Cache, Result
from tests.mutants.sampling import estimate, shuffle
from tests.support.examples import SEED

CACHE = ROOT / ".hai-flow" / "mutants.json"
KILLED_MIN = 0.95


def main() -> int:
    """What the words on the command line ask for. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=cores, help=f"how many at once (default: the cores, {cores})")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="may be given several times")
    parser.add_argument("--sample", type=int, metavar="N", help="N of them, drawn by TEST_SEED; more N continue a draw")
    parser.add_argument("--minutes", type=float, default=inf, metavar="M", help="begin none after M minutes")
    parser.add_argument("--list", action="store_true", help="name them, and run nothing")
    parser.add_argument("--survivors", action="store_true", help="name those that survive, and why; run nothing")
    parser.add_argument("--fresh", action="store_true", help="run all, also what is known from the last time")
    parser.add_argument("--verbose", action="store_true", help="show also those that are killed")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *given: sys.exit(143))  # so that copies, processes and the database go too
    chosen = _chosen(sets.all_mutants(), arguments.only)
    if arguments.list:
        print("\n".join(mutant.name for mutant in chosen))
        return 0
    if arguments.survivors:
        names = {mutant.name for mutant in chosen}
        print("\n\n".join(f"{each.mutant}\n    {each.why}" for each in sets.survivors() if each.mutant in names))
        return 0
    drawn, cache = shuffle(chosen, SEED)[: arguments.sample], Cache(CACHE, fresh=arguments.fresh)
    return _run(drawn, len(chosen), cache, arguments.jobs, 60 * arguments.minutes, verbose=arguments.verbose)


def _chosen(mutants: Sequence[Mutant], words: Sequence[str]) -> list[Mutant]:
    return [each for each in mutants if not words or any(word in f"{each.name} {each.file}" for word in words)]


def _run(mutants: Sequence[Mutant], all_: int, cache: Cache, jobs: int, seconds: float, *, verbose: bool) -> int:
    began = time.monotonic()
    results = {mutant.name: known for mutant in mutants if (known := cache.get(mutant)) is not None}
    waiting = [mutant for mutant in mutants if mutant.name not in results]
    try:
        for mutant in mutants:
            mutant.applied((ROOT / mutant.file).read_text())
    except DoesNotApply as error:
        print(error, file=sys.stderr)
        return 2

    def tell(mutant: Mutant, result: Result) -> None:
        if result.outcome != "invalid":
            cache.keep(mutant, result)
        if verbose or result.outcome != "killed":
            print(f"{result.outcome:9}{result.seconds:6.1f} s  {mutant.name}: {result.by}".rstrip(": "), flush=True)

    if waiting:
        known = f"{len(results)} known from the last time"
        print(f"{len(waiting)} mutants to try, {known}; TEST_SEED={SEED} repeats their order", flush=True)
        with running.workshop() as shop:
            results |= running.run(shop, waiting, jobs, tell, began + seconds)
    # Those that were known before may be no sample: of them, only those count that the draw has come to.
    tried = list(takewhile(lambda mutant: mutant.name in results, mutants))
    return _summed_up(tried, all_, results, time.monotonic() - began)


def _summed_up(mutants: Sequence[Mutant], all_: int, results: Mapping[str, Result], seconds: float) -> int:
    by_file: defaultdict[str, list[Result]] = defaultdict(list)
    for mutant in mutants:
        by_file[mutant.file].append(results[mutant.name])
    print(f"\n{'':48}{'mutants':>9}{'killed':>9}{'by time':>9}{'survive':>9}")
    for file, found in sorted(by_file.items()):
        print(f"{file:48}{len(found):9}{_count(found, 'killed'):9}{_late(found):9}{_count(found, 'survived'):9}")
    wrong = _differences(mutants, results)
    for line in wrong:
        print(line)
    found = [results[mutant.name] for mutant in mutants]
    killed, survive = _count(found, "killed"), _count(found, "survived")
    share, least, most = estimate(killed, len(found), all_)
    cached = sum(result.cached for result in found)
    print(
        f"\n{len(found)} of {all_} mutants, {killed} killed ({share:.1%}; {_late(found)} by taking too long), "
        f"{survive} survive; {len(found) - cached} tried now, {cached} known from the last time; {seconds:.0f} s"
    )
    if len(found) < all_:
        print(f"of all {all_}, between {least:.1%} and {most:.1%} are killed (with a probability of 95 %)")
    return 1 if wrong or share < KILLED_MIN else 0


def _differences(mutants: Sequence[Mutant], results: Mapping[str, Result]) -> list[str]:
    """What is not as `survivors.toml` says."""
    listed = {each.mutant for each in sets.survivors()}
    lines: list[str] = []
    for mutant in mutants:
        result = results[mutant.name]
        if result.outcome == "survived" and mutant.name not in listed:
            tests = " ".join(mutant.tests)
            lines.append(f"survives, and is not listed: {mutant.name} ({mutant.file}; {tests} pass with it)")
        elif result.outcome == "killed" and mutant.name in listed:
            lines.append(f"is listed as a survivor, but is killed: {mutant.name} (by {result.by})")
        elif result.outcome == "invalid":
            lines.append(f"proves nothing: {mutant.name}: {result.by}")
    return lines


def _count(results: Sequence[Result], outcome: str) -> int:
    return sum(result.outcome == outcome for result in results)


def _late(results: Sequence[Result]) -> int:
    return sum(result.late for result in results)


if __name__ == "__main__":
    sys.exit(main())
