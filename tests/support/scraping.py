"""Reads our metrics as Prometheus would: with its own parser."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from hai_flow.telemetry.exposition import render_families
from hai_flow.telemetry.instruments import Family


class Scrape:
    """The samples of one answer of `/metrics`."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """The sample with exactly these labels. None: there is none."""
        return self.samples.get((f"hai_flow_{name}", tuple(sorted(labels.items()))))

    def names(self) -> set[str]:
        """The names of all samples."""
        return {name for name, _ in self.samples}

    def labels_of(self, name: str) -> set[str]:
        """The labels that samples of this full name have."""
        return {label for found, labels in self.samples if found == name for label, _ in labels}


def scraped(families: Iterable[Family]) -> Scrape:
    return Scrape(render_families(families).decode())
