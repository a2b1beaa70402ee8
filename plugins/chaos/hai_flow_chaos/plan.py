"""Which faults come when. The same campaign gives the same plan, whatever the machine does with it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "kill_worker",  # kill -9; it is begun again
    "kill_server",
    "crash_postgres",  # kill -9 of all of its processes at once
    "cut",  # connections between a process and PostgreSQL end, by a reset or in order
    "silence",  # connections stay up, and lose the bytes that are sent
    "lose_answers",  # PostgreSQL performs statements, and connections end when it answers
    "cut_clients",  # the same between clients and a server
    "silence_clients",
    "stall",  # SIGSTOP for longer than the lease, then SIGCONT
    "deafen",  # no notification arrives in any process
    "step_clock",  # the wall clock of a process, or of PostgreSQL, is wrong
    "fill_disk",  # no room left for PostgreSQL
    "slow_disk",  # each commit takes longer
    "crowd",  # PostgreSQL has no connection left
    "kill_service",  # kill -9 of the process of the model and of the server of MCP
    "stall_service",  # SIGSTOP, then SIGCONT
    "kill_program",  # the same of a program that speaks MCP, which a worker has started
    "stall_program",
    "freeze",  # an operator freezes the whole tenant, and thaws it again
    "forget",  # some of the snapshots are gone, which are there to save time alone
]

# How many of a kind come in a minute, and how many at least where there is any time at all.
RATES: Final[dict[Kind, tuple[float, int]]] = {
    "kill_worker": (5.5, 2),
    "kill_server": (3.5, 1),
    "crash_postgres": (0.34, 2),
    "cut": (9.0, 3),
    "silence": (1.5, 1),
    "lose_answers": (4.0, 3),
    "cut_clients": (4.0, 2),
    "silence_clients": (1.0, 1),
    "stall": (2.0, 2),
    "step_clock": (1.0, 1),
    "fill_disk": (0.2, 1),
    "slow_disk": (0.4, 1),
    "crowd": (0.25, 1),
    "forget": (3.0, 2),
    "kill_service": (3.0, 2),
    "stall_service": (1.0, 1),
    "kill_program": (3.0, 2),
    "stall_program": (1.0, 1),
}
DEAF_SECONDS: Final = 60.0
DEAF_SHARE: Final = 0.4  # of a short campaign
TAKEN_OVER_SECONDS: Final = 2.0
TAKEN_OVER_SHARE: Final = 0.6  # of the connections: the others go on
PROCESS_CLOCK_SECONDS: Final = 3600.0
OBEYED_SECONDS: Final = 2.0
"""After so long no process begins anything under a freeze."""
FREEZES_A_MINUTE: Final = 1.0
FREEZE_SECONDS: Final = (2.0, 4.0)  # behind these
FIRST_SHARE, LAST_SHARE = 0.04, 0.97


@dataclass(frozen=True, slots=True)
class Campaign:
    """The parameters of a campaign. `minutes`: for how long there are faults. `lease`: the processes' lease, in
    seconds. `settle`: within how many seconds after the last fault every run has to end."""

    seed: int
    minutes: float = 1.0
    servers: int = 3
    workers: int = 4
    runs: int = 200
    lease: float = 5.0
    settle: float = 60.0

    @property
    def seconds(self) -> float:
        return self.minutes * 60

    @property
    def command(self) -> str:
        """The command that repeats the campaign."""
        return (
            f"hai-flow chaos --seed {self.seed} --minutes {self.minutes:g} --servers {self.servers} "
            f"--workers {self.workers} --runs {self.runs} --settle {self.settle:g}"
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of `kind`, which begins at `at` seconds, hits a seat, "postgres", "others" (services of others) or "all",
    and lasts for `seconds` (0: it is over at once). `amount`: the share of the connections, or the seconds by which a
    clock is wrong."""

    at: float
    kind: Kind
    whom: str
    seconds: float = 0.0
    amount: float = 0.0

    @property
    def ends(self) -> float:
        return self.at + self.seconds

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        amount = f" ({self.amount:+.2f})" if self.amount else ""
        return f"{self.at:7.1f} s  {self.kind:16} {self.whom}{lasting}{amount}"


def names(campaign: Campaign) -> tuple[list[str], list[str]]:
    """The seats of the servers and of the workers."""
    return (
        [f"server {number}" for number in range(1, campaign.servers + 1)],
        [f"worker {number}" for number in range(1, campaign.workers + 1)],
    )


def planned(campaign: Campaign) -> list[Fault]:
    """The faults of a campaign in their order. Each ends before the campaign's time is over."""
    chance = random.Random(campaign.seed)
    faults = [fault for kind in RATES for fault in _of_kind(campaign, kind, chance)]
    faults.append(_deafening(campaign, chance))
    faults += _freezing(campaign)
    faults += [fault for before in list(faults) for fault in _while_taken_over(campaign, before)]
    return sorted(faults, key=lambda fault: (fault.at, fault.kind, fault.whom))


def _of_kind(campaign: Campaign, kind: Kind, chance: random.Random) -> Iterator[Fault]:
    rate, least = RATES[kind]
    count = max(least, round(rate * campaign.minutes))
    first, last = FIRST_SHARE * campaign.seconds, LAST_SHARE * campaign.seconds
    for number in range(count):  # spread, and each by chance within its share of the time
        at = first + (last - first) * (number + chance.random()) / count
        yield _drawn(campaign, kind, round(at, 2), chance)


def _drawn(campaign: Campaign, kind: Kind, at: float, chance: random.Random) -> Fault:
    servers, workers = names(campaign)
    anybody = [*servers, *workers]
    first, last = FIRST_SHARE * campaign.seconds, LAST_SHARE * campaign.seconds
    left = max(0.5, last - at)

    def lasting(low: float, high: float) -> float:
        return round(min(left, chance.uniform(low, high)), 2)

    match kind:
        case "kill_worker":
            return Fault(at, kind, chance.choice(workers))
        case "kill_server":
            return Fault(at, kind, chance.choice(servers))
        case "cut" | "silence":
            return Fault(at, kind, chance.choice(anybody), amount=round(chance.uniform(0.2, 1.0), 2))
        case "lose_answers":
            whom = chance.choice([*workers, *anybody])  # workers twice as often: their statements do more
            return Fault(at, kind, whom, lasting(0.5, 2.0), amount=round(chance.uniform(0.5, 1.0), 2))
        case "cut_clients" | "silence_clients":
            return Fault(at, kind, chance.choice(servers), amount=round(chance.uniform(0.2, 1.0), 2))
        case "stall":
            at = min(
                at, max(first, round(last - 1.2 * campaign.lease, 2))
            )  # else its lease is not over when it goes on
            seconds = min(last - at, chance.uniform(1.2 * campaign.lease, 2.0 * campaign.lease))
            return Fault(at, kind, chance.choice(anybody), max(0.5, round(seconds, 2)))
        case "step_clock":
            whom = chance.choice(["postgres", *anybody])
            most = 2 * campaign.lease if whom == "postgres" else PROCESS_CLOCK_SECONDS
            return Fault(at, kind, whom, lasting(3.0, 15.0), round(chance.uniform(-most, most), 2))
        case "crash_postgres":
            return Fault(at, kind, "postgres", lasting(0.2, 3.0))
        case "fill_disk":
            return Fault(at, kind, "postgres", lasting(1.0, 4.0))
        case "slow_disk":
            return Fault(at, kind, "postgres", lasting(3.0, 10.0))
        case "kill_service" | "kill_program":
            return Fault(at, kind, "others")
        case "stall_service" | "stall_program":
            return Fault(at, kind, "others", lasting(1.0, 12.0))
        case "forget":
            return Fault(at, kind, "postgres", amount=round(chance.uniform(0.2, 1.0), 2))
        case "crowd":
            return Fault(at, kind, "postgres", lasting(1.0, 5.0))
        case _:
            raise ValueError(f"expected a kind of fault that is drawn by its rate, found {kind}")


def _while_taken_over(campaign: Campaign, before: Fault) -> Iterator[Fault]:
    """Faults seldom come alone: when the lease of a worker that was killed or stalled is over, the others lose the
    answers to their first claims of its runs."""
    _, workers = names(campaign)
    at = round(before.at + campaign.lease - TAKEN_OVER_SECONDS / 2, 2)
    if before.kind not in ("kill_worker", "stall") or before.whom not in workers:
        return
    if at + TAKEN_OVER_SECONDS > LAST_SHARE * campaign.seconds:
        return
    for other in workers:
        if other != before.whom:
            yield Fault(at, "lose_answers", other, TAKEN_OVER_SECONDS, amount=TAKEN_OVER_SHARE)


def _deafening(campaign: Campaign, chance: random.Random) -> Fault:
    """Once, for a minute where there is time for it."""
    seconds = min(DEAF_SECONDS, DEAF_SHARE * campaign.seconds)
    at = chance.uniform(FIRST_SHARE * campaign.seconds, LAST_SHARE * campaign.seconds - seconds)
    return Fault(round(at, 2), "deafen", "all", round(seconds, 2))


def _freezing(campaign: Campaign) -> Iterator[Fault]:
    """Once a minute, and never twice at a time. Drawn apart, so that a seed has the other faults that it always had."""
    chance = random.Random(f"freezes of {campaign.seed}")
    first, last = FIRST_SHARE * campaign.seconds, LAST_SHARE * campaign.seconds
    count = max(1, round(FREEZES_A_MINUTE * campaign.minutes))
    share = (last - first) / count
    for number in range(count):
        seconds = min(OBEYED_SECONDS + chance.uniform(*FREEZE_SECONDS), share / 2)
        at = first + share * number + chance.uniform(0, share - seconds)
        yield Fault(round(at, 2), "freeze", "all", round(seconds, 2))
