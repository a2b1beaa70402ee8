"""Families of metrics as text for Prometheus (format 0.0.4). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from hai_flow.telemetry.instruments import Distribution, Family, Labels

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def render_families(families: Iterable[Family]) -> bytes:
    return "".join(f"{line}\n" for family in families for line in _lines([("", family)])).encode()


def render_cells(cells: Mapping[str, Iterable[Family]]) -> bytes:
    """The text of the families of several cells, by name: each series has the label `cell`."""
    together: dict[str, list[tuple[str, Family]]] = {}
    for cell, families in cells.items():
        for family in families:
            together.setdefault(family.name, []).append((cell, family))
    return "".join(f"{line}\n" for same in together.values() for line in _lines(same)).encode()


def _lines(same: Sequence[tuple[str, Family]]) -> Iterator[str]:
    """One family; of several cells, where these have names."""
    family = same[0][1]
    meaning = family.meaning.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {family.name} {meaning}"
    yield f"# TYPE {family.name} {family.kind}"
    for cell, each in same:
        cell_labels = {"cell": cell} if cell and "cell" not in each.names else {}
        names, more = (*each.names, *cell_labels), tuple(cell_labels.values())
        if isinstance(each, Distribution):
            for labels, counts in each.series.items():
                yield from _distribution_lines(each, names, (*labels, *more), counts, each.sums[labels])
        else:
            for labels, value in each.series.items():
                yield f"{each.name}{_label_text(names, (*labels, *more))} {_number(value)}"


def _distribution_lines(
    family: Distribution, names: Labels, labels: Labels, counts: list[int], whole: float
) -> Iterator[str]:
    bounds = (*map(_number, family.bounds), "+Inf")
    total = 0
    for bound, total in zip(bounds, accumulate(counts), strict=True):
        yield f"{family.name}_bucket{_label_text((*names, 'le'), (*labels, bound))} {total}"
    label_text = _label_text(names, labels)
    yield f"{family.name}_sum{label_text} {_number(whole)}"
    yield f"{family.name}_count{label_text} {total}"


def _label_text(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
