"""More of the simulation than the suite has time for. Every example has a seed of its own."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.sim.world import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=int, default=1000, help="how many seeds")
    parser.add_argument("--agents", action="store_true", help="with agents in the workflows")
    arguments = parser.parse_args()
    reached: Counter[str] = Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        reached += simulate(seed, agents=arguments.agents)
    for what, count in sorted(reached.items()):
        print(f"{count:8} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
