"""Numbers that go up, numbers that go up and down, and distributions, each by a few labels.

They are plain fields without a lock: everything is counted on the event loop, where a step must not pay for being
watched (docs/decisions/0066). Their memory is bounded: a family has at most `most` series (`SERIES_MAX`), and further
ones count under `OTHER`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

Labels: TypeAlias = tuple[str, ...]
Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

SERIES_MAX: Final = 500
NOTED_MAX: Final = 1000
OTHER: Final = "(other)"  # no workflow, tool or model is called so
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LONG_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 3600.0, 86400.0)
SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Sum:
    """A counter or a gauge with the labels `names`. A counter's name ends in `_total`."""

    __slots__ = ("kind", "meaning", "most", "name", "names", "series")

    def __init__(
        self, kind: Literal["counter", "gauge"], name: str, meaning: str, names: Labels = (), most: int = SERIES_MAX
    ) -> None:
        self.kind: Kind = kind
        self.name = name
        self.meaning = meaning
        self.names = names
        self.most = most
        self.series: dict[Labels, float] = {}
        if kind == "counter" and not names:
            self.series[()] = 0.0

    def add(self, amount: float, labels: Labels = ()) -> None:
        try:
            self.series[labels] += amount
        except KeyError:
            labels = _within(self.series, labels, self.most)
            self.series[labels] = self.series.get(labels, 0.0) + amount

    def put(self, value: float, labels: Labels = ()) -> None:
        """A gauge stands at `value` now. Values of series beyond the bound are added up."""
        series_labels = _within(self.series, labels, self.most)
        self.series[series_labels] = value if series_labels == labels else self.series.get(series_labels, 0.0) + value

    def clear(self) -> None:
        """Forget all series: they are about to be put anew."""
        self.series.clear()


class Distribution:
    """How many observations were at most so large: for each series the counts between the bounds, and the sum.

    An observation is only noted; notes are counted at each look, and when there are `NOTED_MAX` of them."""

    __slots__ = ("_noted", "bounds", "kind", "meaning", "most", "name", "names", "series", "sums")

    def __init__(
        self, name: str, meaning: str, names: Labels = (), bounds: Sequence[float] = SECONDS, most: int = SERIES_MAX
    ) -> None:
        self.kind: Kind = "histogram"
        self.name = name
        self.meaning = meaning
        self.names = names
        self.bounds = tuple(bounds)
        self.most = most
        self.series: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}
        self._noted: dict[Labels, list[float]] = {}
        if not names:
            self._begin(())

    def observe(self, value: float, labels: Labels = ()) -> None:
        try:
            noted = self._noted[labels]
        except KeyError:
            noted = self._begin(_within(self.series, labels, self.most))
        noted.append(value)
        if len(noted) >= NOTED_MAX:
            self.count()

    def count(self) -> None:
        for labels, noted in self._noted.items():
            if noted:
                counts, below = self.series[labels], 0
                noted.sort()
                for number, bound in enumerate(self.bounds):
                    upto = bisect_right(noted, bound, below)
                    counts[number] += upto - below
                    below = upto
                counts[-1] += len(noted) - below
                self.sums[labels] += sum(noted)
                noted.clear()

    def _begin(self, labels: Labels) -> list[float]:
        if labels not in self.series:
            self.sums[labels] = 0.0
            self.series[labels] = [0] * (len(self.bounds) + 1)
            self._noted[labels] = []
        return self._noted[labels]


Family: TypeAlias = Sum | Distribution


def _within(known: Mapping[Labels, object], labels: Labels, most: int) -> Labels:
    """The labels under which a series counts: its own, or those of all the others."""
    return labels if labels in known or len(known) < most else (OTHER,) * len(labels)
