"""The file of retention (`HAI_FLOW_RETENTION`): how long ended runs are kept, by workflow and tenant. Pure.

    hai: retention/v1
    archive: s3://company/flow            # a directory, or a URL that fsspec knows; without it nothing is archived
    pack: 1d                              # a run's log is merged so long after its end
    remove: 90d                           # and it is removed so long after it
    workflows:
      chat: {remove: 30d}
      payout: {remove: never}
    tenants:
      acme: {remove: 1y, workflows: {chat: {remove: 7d}}}

Times count from the end of the last run of a thread. The entry nearest to a run counts: of its workflow in its tenant,
of its tenant, of its workflow, at the top. Without an entry nothing is removed, and logs are merged after a day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final, Literal

import msgspec

from hai_flow.definition.names.durations import NotADuration, milliseconds
from hai_flow.definition.yaml.document import parse
from hai_flow.errors import Finding

NEVER: Final = "never"


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Durations as they are written, or `never`; None: the next entry that is farther from the run counts."""

    pack: str | None = None
    remove: str | None = None


class TenantRule(Rule, frozen=True, forbid_unknown_fields=True):
    """The rules for a tenant's runs."""

    workflows: Mapping[str, Rule] = {}


class Retention(TenantRule, frozen=True, forbid_unknown_fields=True, kw_only=True):
    hai: Literal["retention/v1"]
    archive: str | None = None
    tenants: Mapping[str, TenantRule] = {}

    def pack_after(self, tenant: str, workflow: str) -> timedelta | None:
        """How long after its end the log of a run is merged; None: never."""
        return self._after("pack", tenant, workflow, "1d")

    def remove_after(self, tenant: str, workflow: str) -> timedelta | None:
        """How long after the end of its thread a run is removed; None: never."""
        return self._after("remove", tenant, workflow, NEVER)

    @property
    def shortest(self) -> timedelta | None:
        """The shortest of all times, None if there is none: nothing that ended later is of interest."""
        times = [each for rule in self.rules() for each in (rule.pack, rule.remove) if each is not None]
        return min((time for each in (*times, "1d") if (time := _time(each)) is not None), default=None)

    def rules(self) -> Iterator[Rule]:
        for place in (self, *self.tenants.values()):
            yield place
            yield from place.workflows.values()

    def _after(self, what: Literal["pack", "remove"], tenant: str, workflow: str, default: str) -> timedelta | None:
        near = self.tenants.get(tenant, TenantRule())
        rules = (near.workflows.get(workflow), near, self.workflows.get(workflow), self)
        values = (getattr(rule, what) for rule in rules if rule is not None)
        return _time(next((each for each in values if each is not None), default))


def _time(text: str) -> timedelta | None:
    """The time that is written; `never` is none. Raises NotADuration."""
    return None if text == NEVER else timedelta(milliseconds=milliseconds(text))


def read_retention(source: bytes, file: str) -> tuple[Retention, list[Finding]]:
    document = parse(source, file)
    try:
        retention = msgspec.convert(document.value, Retention)
    except msgspec.ValidationError as error:
        return Retention(hai="retention/v1"), [_finding(file, str(error))]
    faults: list[Finding] = []
    for rule in retention.rules():
        for name in ("pack", "remove"):
            text = getattr(rule, name)
            try:
                _time(NEVER if text is None else text)
            except NotADuration as error:
                faults.append(_finding(file, f"{name}: {error}, nor `never`"))
    return retention, faults


def _finding(file: str, message: str) -> Finding:
    return Finding(file, 0, 0, "error", "retention.invalid", message)
