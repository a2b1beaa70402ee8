"""What starts runs and what bounds them: `triggers`, `limits`, `concurrency` (docs/language.md#triggers)."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TypeAlias

from cronsim import CronSim, CronSimError

from hai_flow.definition import plan
from hai_flow.definition.document import Path, kind_of, shorten, suggestion
from hai_flow.definition.expressions import REQUEST, Names
from hai_flow.definition.names import WEBHOOK_PATH
from hai_flow.definition.pieces import Pieces, texts
from hai_flow.definition.reference import SHAPES
from hai_flow.definition.schemas import JsonSchema

Json: TypeAlias = Any

_KINDS: Final = tuple(plan.TRIGGER_KINDS.values())
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,100}")
_SECRET: Final = re.compile(r"\s*\$\{\{\s*secrets\.(?P<name>[A-Za-z_][A-Za-z0-9_]{0,62})\s*\}\}\s*")
_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)  # any: only the fields are read


class Triggers(Pieces):
    """Reads triggers, limits and concurrency."""

    own_name: Json = None
    paths: set[str | None]

    def read_triggers(self, value: Json, names: Names, input: JsonSchema) -> tuple[plan.Trigger, ...]:
        """The triggers; `api` alone where the document names none."""
        self.paths = set()
        triggers: list[plan.Trigger] = []
        for index, raw in enumerate(value):
            trigger = self._trigger(raw, ("triggers", index), names, input)
            triggers += [trigger] if trigger is not None else []
        return tuple(triggers) or (plan.ApiTrigger(),)

    def _trigger(self, raw: Json, at: Path, names: Names, input: JsonSchema) -> plan.Trigger | None:
        kind = self._kind(raw, at)
        if kind is None:
            return None
        body = raw[kind] if isinstance(raw, Mapping) else {}
        at = (*at, kind)
        match kind:
            case "api":
                self.reader.fields(SHAPES["nothing"], {} if body is None else body, at, "`api`")
                return plan.ApiTrigger()
            case "event":
                self.starts_alone = self.starts_alone or "event"
                return self._event(body, at, names)
            case "run":
                self.starts_alone = self.starts_alone or "run"
                return self._end(body, at, names)
            case "webhook":
                self.starts_alone = self.starts_alone or "webhook"
                return self._webhook(body, at, names)
            case _:
                self.starts_alone = self.starts_alone or "schedule"
                return self._schedule(body, at, input)

    def _kind(self, raw: Json, at: Path) -> str | None:
        """Which trigger this is; None after a finding."""
        keys = list(raw) if isinstance(raw, Mapping) else []
        if len(keys) == 1 and keys[0] in _KINDS:
            return keys[0]
        found = " and ".join(f"`{key}`" for key in keys) if keys else kind_of(raw)
        known = [key for key in keys if key in _KINDS]
        stranger = next((key for key in keys if key not in _KINDS), raw if isinstance(raw, str) else "")
        hint = suggestion(stranger, _KINDS) if stranger else ""
        if isinstance(raw, str) and raw in _KINDS:
            hint = f"; write `{raw}: {{}}`"
        elif known and stranger:
            hint = f"; indent its keys under `{known[0]}`"
        elif stranger in ("cron", "timezone"):
            hint = "; put it under `schedule`"
        message = f"expected one of {', '.join(f'`{kind}`' for kind in _KINDS)}, found {found}{hint}"
        place = (*at, stranger) if stranger in keys else at
        self.reader.error(place, "trigger.kind", message, key=place != at)
        return None

    def _end(self, body: Json, at: Path, names: Names) -> plan.Trigger | None:
        """The end of a run of another workflow, which its expressions see as `event`."""
        names = _of_event(names)
        fields = self.reader.fields(SHAPES["run_trigger"], body, at, "`run`")
        match = self.condition(fields["match"], (*at, "match"), names) if "match" in fields else None
        given = self.template(fields["input"], (*at, "input"), names) if "input" in fields else None
        if "workflow" not in fields:
            return None
        if fields["workflow"] == self.own_name:
            message = (
                "a workflow that its own end starts never comes to rest; use a `schedule`, or end with a step "
                f"`run: {self.own_name}` with `detach: true` behind an `if`"
            )
            self.reader.error((*at, "workflow"), "trigger.circle", message)
        return plan.RunTrigger(fields["workflow"], tuple(fields.get("on", ("finished",))), match, given)

    def _webhook(self, body: Json, at: Path, names: Names) -> plan.Trigger | None:
        """A request that proves to know a secret, which its expressions see as `event`."""
        names = _of_event(names).with_roots(schemas={"event": REQUEST})
        fields = self.reader.fields(SHAPES["webhook_trigger"], body, at, "`webhook`")
        match = self.condition(fields["match"], (*at, "match"), names) if "match" in fields else None
        dedupe = self.text(fields, "dedupe", at, names)
        given = self.template(fields["input"], (*at, "input"), names) if "input" in fields else None
        secret = self._secret(fields["secret"], (*at, "secret")) if "secret" in fields else None
        path, scheme, header = fields.get("path"), fields.get("scheme", "github"), fields.get("header", "")
        if path is not None and not WEBHOOK_PATH.fullmatch(path):
            example = "such as `shop/orders` (letters, digits, `.`, `_`, `-`)"
            message = f"expected a path {example}, found `{shorten(path)}`"
            self.reader.error((*at, "path"), "webhook.path", message)
        if path in self.paths:
            self.reader.error((*at, "path"), "webhook.path", f"there is a webhook `{path}` already; name it otherwise")
        self.paths.add(path)
        if header and (scheme == "standard" or not _HEADER.fullmatch(header)):
            message = f"expected the name of a header, found `{shorten(header)}`"
            if scheme == "standard":
                message = "the headers of `scheme: standard` have fixed names; leave `header` out"
            self.reader.error((*at, "header"), "webhook.header", message, key=scheme == "standard")
        if path is None or secret is None:
            return None
        return plan.WebhookTrigger(path, secret, scheme, header, match, dedupe, given)

    def _secret(self, text: str, at: Path) -> str | None:
        named = _SECRET.fullmatch(text)
        if named is None:  # it may be a secret: it is not repeated
            message = "a secret is named, never written: `secret: ${{ secrets.NAME }}`, kept as HAI_FLOW_SECRET_NAME"
            self.reader.error(at, "webhook.secret", message)
            return None
        return named["name"]

    def _event(self, body: Json, at: Path, names: Names) -> plan.Trigger | None:
        names = _of_event(names)
        fields = self.reader.fields(SHAPES["event_trigger"], body, at, "`event`")
        match = self.condition(fields["match"], (*at, "match"), names) if "match" in fields else None
        dedupe = self.text(fields, "dedupe", at, names)
        given = self.template(fields["input"], (*at, "input"), names) if "input" in fields else None
        return plan.EventTrigger(fields["type"], match, dedupe, given) if "type" in fields else None

    def _schedule(self, body: Json, at: Path, input: JsonSchema) -> plan.Trigger | None:
        fields = self.reader.fields(SHAPES["schedule_trigger"], body, at, "`schedule`")
        sound = True
        if "cron" in fields and (fault := _cron_fault(fields["cron"])):
            sound = False
            self.reader.error((*at, "cron"), "schedule.cron", fault)
        if "timezone" in fields and not _is_timezone(fields["timezone"]):
            sound = False
            name = fields["timezone"]
            message = f"expected an IANA timezone such as Europe/Berlin, found `{shorten(name)}`{_near_zone(name)}"
            self.reader.error((*at, "timezone"), "schedule.timezone", message)
        self._check_input(fields.get("input"), fields, at, input)
        if not sound or "cron" not in fields or "timezone" not in fields:
            return None
        missed, overlap = fields.get("missed", "skip"), fields.get("overlap", "skip")
        return plan.ScheduleTrigger(fields["cron"], fields["timezone"], missed, overlap, fields.get("input"))

    def _check_input(self, value: Json, fields: Mapping[str, Json], at: Path, input: JsonSchema) -> None:
        place = (*at, "input") if "input" in fields else at
        for path, text in texts(value, place):
            if "${{" in text.replace("$${{", ""):
                self.reader.error(path, "schedule.hole", "a schedule's input is literal: holes are not filled here")
                return
        given = {} if value is None else value
        faults = input.findings(input.with_defaults(given))
        if faults:
            pointer = faults[0]["path"]
            where = f" at {pointer}" if pointer else ""
            message = f"the schedule's input does not fit the workflow's `input`{where}: {faults[0]['message']}"
            self.reader.error(place, "schedule.input", message, key=True)

    # -- bounds ----------------------------------------------------------------------------------------------------

    def read_limits(self, value: Json) -> plan.Limits:
        """The limits of one run."""
        at = ("limits",)
        fields = self.reader.fields(SHAPES["limits"], value, at, "`limits`")
        duration = self.duration(fields, "duration", at, None)
        return plan.Limits(
            tokens=fields.get("tokens"),
            cost_usd=fields.get("cost_usd"),
            tool_calls=fields.get("tool_calls"),
            duration=duration if isinstance(duration, int) else None,
            steps=fields.get("steps"),
        )

    def read_concurrency(self, value: Json, names: Names) -> plan.Concurrency | None:
        """How many runs of one key there may be; None where the document does not say, or after a finding."""
        at = ("concurrency",)
        fields = self.reader.fields(SHAPES["concurrency"], value, at, "`concurrency`")
        here = Names(names.types, frozenset(("input", "run", "thread")), explain=names.explain)
        key = self.text(fields, "key", at, here)
        if key is None:
            return None
        return plan.Concurrency(key, fields.get("limit", 1), fields.get("on_conflict", "queue"))


def _of_event(names: Names) -> Names:
    """What a trigger's expressions see: there is no run yet."""
    return Names(names.types, frozenset(("event", "now")), explain=names.explain)


def _cron_fault(text: str) -> str | None:
    fields = text.split()
    if len(fields) != 5:
        hint = ""
        if len(fields) == 6:
            hint = "; leave the seconds out"
        elif text.startswith("@"):
            hint = "; write `0 0 * * *` for every midnight"
        return f"expected a cron expression of 5 fields such as `0 6 * * 1-5`, found {text!r}{hint}"
    try:
        CronSim(text, _EPOCH)
    except CronSimError as error:
        return f"expected a cron expression such as `0 6 * * 1-5`, found {text!r} ({error}); correct that field"
    return None


@cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _is_timezone(name: str) -> bool:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _near_zone(name: str) -> str:
    city = {zone.rpartition("/")[2].lower(): zone for zone in _zones()}
    meant = city.get(name.rpartition("/")[2].lower().replace(" ", "_"))
    return f"; did you mean `{meant}`?" if meant else suggestion(name, _zones())
