"""Families of metrics as text for Prometheus (format 0.0.4). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from hai_flow.telemetry.instruments import Distribution, Family, Labels

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def written(families: Iterable[Family]) -> bytes:
    """The text of all families."""
    return "".join(f"{line}\n" for family in families for line in _lines(family)).encode()


def _lines(family: Family) -> Iterator[str]:
    meaning = family.meaning.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {family.name} {meaning}"
    yield f"# TYPE {family.name} {family.kind}"
    if isinstance(family, Distribution):
        for labels, counts in family.series.items():
            yield from _of_distribution(family, labels, counts)
    else:
        for labels, value in family.series.items():
            yield f"{family.name}{_shown(family.names, labels)} {_number(value)}"


def _of_distribution(family: Distribution, labels: Labels, counts: list[int]) -> Iterator[str]:
    names = (*family.names, "le")
    bounds = (*map(_number, family.bounds), "+Inf")
    total = 0
    for bound, total in zip(bounds, accumulate(counts), strict=True):
        yield f"{family.name}_bucket{_shown(names, (*labels, bound))} {total}"
    shown = _shown(family.names, labels)
    yield f"{family.name}_sum{shown} {_number(family.sums[labels])}"
    yield f"{family.name}_count{shown} {total}"


def _shown(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
