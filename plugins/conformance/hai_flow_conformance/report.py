"""The checks and their results: plain data, which a terminal or a program shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from hai_flow.values import Json
from hai_flow_conformance.rules import Dialect

Level: TypeAlias = Literal["must", "should", "info"]
_SHOWN_BYTES: Final = 2000


class Result(StrEnum):
    """NOT_APPLICABLE: the endpoint or its protocol does not have it. SKIPPED: it could not be tried."""

    PASS = "pass"
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation: a sentence and its source. `must`: without it a client breaks, or somebody can cheat; `should`:
    this project recommends it; `info`: reported only. `dialects`: those in which it is a must or a should."""

    id: str
    expected: str
    source: str
    level: Level = "must"
    dialects: frozenset[Dialect] = frozenset(Dialect)

    @property
    def group(self) -> str:
        return self.id.partition(".")[0]


@dataclass(slots=True)
class Verdict:
    """The result of a check. `shown`: the bytes that show it."""

    check: Check
    result: Result
    found: str = ""
    shown: bytes = b""

    @property
    def breaks(self) -> bool:
        return self.result is Result.FAIL and self.check.level == "must"

    def to_json(self) -> dict[str, Json]:
        check = self.check
        told: dict[str, Json] = {
            "id": check.id,
            "level": check.level,
            "expected": check.expected,
            "source": check.source,
            "result": str(self.result),
        }
        if self.found:
            told["found"] = self.found
        if self.shown:
            told["shown"] = self.shown[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
        return told


@dataclass(slots=True)
class Report:
    """The verdicts about one endpoint, in the order of the catalogue. `stopped`: why no more was tried."""

    url: str
    dialect: Dialect
    verdicts: list[Verdict] = field(default_factory=list)
    stopped: str = ""

    @property
    def conforms(self) -> bool:
        return not any(verdict.breaks for verdict in self.verdicts)

    def count(self, result: Result) -> int:
        return sum(verdict.result is result for verdict in self.verdicts)

    def to_json(self) -> dict[str, Json]:
        return {
            "url": self.url,
            "protocol": str(self.dialect),
            "conforms": self.conforms,
            **({"stopped": self.stopped} if self.stopped else {}),
            "counts": {str(result): self.count(result) for result in Result},
            "checks": [verdict.to_json() for verdict in self.verdicts],
        }
