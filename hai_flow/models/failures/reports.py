"""A server's report of a fault, in any form: its sentence, its kind, when to ask again. Pure.

Reports are text, objects or lists; one within another, also as JSON in the text of a gateway that passes it on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from hai_flow.models.calls.text_pieces import whole_text
from hai_flow.models.failures.words import STATUSES
from hai_flow.primitives.retry_after import RETRY_AFTER_MAX, retry_after
from hai_flow.values import Json

SAID_CHARS_MAX: Final = 500  # of a server's text, as errors repeat it


class Report(msgspec.Struct, frozen=True):
    """A report. `text` is of bounded length; `kinds` are its codes, types and names of quotas;
    `status` the HTTP status that it names itself; `wait`: after how many seconds it wants to be asked again."""

    text: str = ""
    kinds: str = ""
    status: int | None = None
    wait: float | None = None


_TEXTS: Final = (
    "message", "msg", "detail", "error_message", "errorMessage", "error_msg", "errmsg", "status_msg", "description",
    "error_description", "reason", "title", "Message", "faultstring", "error", "Error", "err", "exception", "Exception",
    "raw",
)  # fmt: skip
_FAULTS: Final = ("error", "errors", "err", "base_resp", "fault", "exception", "failure")
"""The members that hold a fault, in any case; the most exact first."""
_SUCCESSES: Final = (None, 0, 200, "", "0", "200", "ok", "success")
"""Codes that gateways write beside an answer."""
_KINDS: Final = (
    "code", "type", "status", "error_code", "err_code", "errcode", "__type", "status_code", "statusCode", "http_code",
)  # fmt: skip
_WAITS: Final = {
    "retry_after": 1.0, "retryafter": 1.0, "retry-after": 1.0, "retry_after_seconds": 1.0, "retryafterseconds": 1.0,
    "retry_after_ms": 0.001, "retryafterms": 0.001, "retry-after-ms": 0.001, "retrydelay": 1.0, "retry_delay": 1.0,
    "wait_seconds": 1.0, "estimated_time": 1.0,
}  # fmt: skip
_WITHIN: Final = (
    "detail", "metadata", "innererror", "details", "violations", "response", "raw", "headers", "Output", "message",
)  # fmt: skip
_NESTED_MAX: Final = 6
_EVENT: Final = re.compile(r"\A(?:(?:event|id|retry)?:[^\n]*\n\s*)*data:\s*")  # of an error that is said as a stream
_ASK_AGAIN: Final = re.compile(
    r"(?:try again|retry|retried|wait|available again|reset)\w{0,20}+\W++(?:in|after|for|at least)?\W*+"
    r"(?:about |approximately )?"
    r"(?P<time>(?:\d+(?:\.\d+)?\s*(?:ms|milliseconds?|d|days?|h|hours?|m|mins?|minutes?|s|secs?|seconds?)(?![a-z])\W{0,2})+)",
    re.I,
)
_AGAIN_IN_CHINESE: Final = re.compile(r"(?<!\d)(?P<number>\d++(?:\.\d++)?+)\s*+(?P<unit>毫秒|秒|分钟|小时)后")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zµ]*)", re.I)
_SECONDS: Final = {"毫秒": 0.001, "秒": 1.0, "分钟": 60.0, "小时": 3600.0}


def report_of(body: Json) -> Report:
    """The report that a body holds, in any form."""
    objects = list(_objects(body, 0))
    texts = [text for each in objects for text in _texts(each)] or [body if isinstance(body, str) else ""]
    text = ": ".join(dict.fromkeys(each.strip() for each in texts if each.strip()))
    kinds = [str(each[name]) for each in objects for name in _KINDS if isinstance(each.get(name), str | int)]
    kinds += [f"minimax:{each['status_code']}" for each in objects if "status_code" in each and "status_msg" in each]
    kinds += [str(each[name]) for each in objects for name in ("quotaId", "quotaMetric") if name in each]
    statuses = [int(kind) for kind in kinds if re.fullmatch("[45][0-9]{2}", kind)]
    statuses += [STATUSES[kind.lower()] for kind in kinds if kind.lower() in STATUSES]
    return Report(
        whole_text(text)[:SAID_CHARS_MAX], " ".join(kinds), statuses[0] if statuses else None, _wait_in(objects, text)
    )


def is_report(event: Mapping[str, Json], *, is_answer: bool) -> bool:
    """Whether an event, or the document that an answer is, reports a fault. `is_answer`: whether it has what an answer
    of the protocol has."""
    base = event.get("base_resp")  # MiniMax
    if event.get("error") or (isinstance(base, Mapping) and base.get("status_code")):
        return True
    if "error" in (event.get("type"), event.get("object")):
        return True
    if is_answer:
        text = next((event[name] for name in ("message", "msg", "detail") if isinstance(event.get(name), str)), "")
        return bool(text) and event.get("choices") == [] and event.get("code") not in _SUCCESSES
    fields = (
        "message",
        "msg",
        "code",
        "detail",
        "error_msg",
        "errorMessage",
        "__type",
        "Message",
        *_names_of_faults(event),
    )
    status = event.get("status")
    if status in ("error", "failed", "failure", "fail") or (isinstance(status, int) and status >= 400):
        fields = (*fields, "title", "reason", "description")
    return any(event.get(name) for name in fields) or event.get("success") is False


def _names_of_faults(report: Mapping[str, Json]) -> list[str]:
    """The members of an object that hold a fault."""
    names = [name for name in report if name.lower() in _FAULTS]
    events = [name for name, each in report.items() if _is_event_of_aws(name, each)]
    return [*sorted(names, key=lambda name: _FAULTS.index(name.lower())), *events]


def _is_event_of_aws(name: str, fault: Json) -> bool:
    """Whether a member holds a fault under the name of its kind (`throttlingException`)."""
    return name.endswith("Exception") and isinstance(fault, Mapping)


def _objects(body: Json, depth: int) -> Iterator[Mapping[str, Json]]:
    """The objects of a report, the innermost error first: its text is the most exact."""
    if depth > _NESTED_MAX:
        return
    if isinstance(body, str):
        text = _EVENT.sub("", body.strip())
        inner = _json_in(text) if text[:1] in ("{", "[") else None
        if inner is None and text != body.strip():  # other events stand behind
            inner = _json_in(text.partition("\n")[0])
        if isinstance(inner, dict | list):
            yield from _objects(inner, depth + 1)
        return
    if isinstance(body, list):
        for each in body[:20]:
            yield from _objects(each, depth + 1)
        return
    if not isinstance(body, Mapping):
        return
    first = _names_of_faults(body)
    last = [name for name in _WITHIN if name in body]
    for name in first:
        inner = body[name]
        yield from _objects({"type": name, **inner} if _is_event_of_aws(name, inner) else inner, depth + 1)
    yield body
    yield from (each for name in last for each in _objects(body[name], depth + 1))


def _texts(report: Mapping[str, Json]) -> Iterator[str]:
    """The sentence of one object of a report."""
    for name in _TEXTS:
        text = report.get(name)
        if isinstance(text, str) and text.strip():
            if _json_in(text.strip()) is None or not text.strip().startswith(("{", "[")):
                yield text
            return


def _json_in(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# --- when to ask again ------------------------------------------------------------------------------------------------


def _wait_in(objects: list[Mapping[str, Json]], text: str) -> float | None:
    """The wait that a body names: in a member, in Google's `RetryInfo`, or in its sentence."""
    for each in objects:
        for name, value in each.items():
            factor = _WAITS.get(name.lower())
            wait = None if factor is None else _seconds(value, factor)
            if wait is not None:
                return _bound_wait(wait)
    if (match := _ASK_AGAIN.search(text)) is not None:
        return _bound_wait(_duration(match["time"]))
    if (match := _AGAIN_IN_CHINESE.search(text)) is not None:
        return _bound_wait(float(match["number"]) * _SECONDS[match["unit"]])
    return None


def _seconds(value: Json, factor: float) -> float | None:
    """Seconds as a number, as text (`37.5s`, `12`), or as `{seconds, nanos}`."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value * factor
    if isinstance(value, Mapping):
        seconds, nanos = value.get("seconds", 0), value.get("nanos", 0)
        try:
            return float(seconds) + float(nanos) / 1e9
        except (TypeError, ValueError):
            return None
    if not isinstance(value, str):
        return None
    try:
        return float(value) * factor
    except ValueError:
        return _duration(value)


def _duration(text: str) -> float | None:
    """Seconds of a duration like `6m0s`, `37.5s`, `20ms` or `1 minute 30 seconds`."""
    total, has_part = 0.0, False
    for number, unit in _PART.findall(text):
        unit = unit.lower()
        if unit.startswith(("ms", "milli")):
            seconds = float(number) / 1000
        else:
            seconds = float(number) * {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}.get(unit[:1], math.nan)
        total, has_part = total + seconds, True
    return total if has_part and not math.isnan(total) else None


def _bound_wait(seconds: float | None) -> float | None:
    return None if seconds is None or not math.isfinite(seconds) else min(max(seconds, 0.0), RETRY_AFTER_MAX)


def wait_of_headers(headers: Mapping[str, str]) -> float | None:
    """The wait that headers name: `Retry-After`, or when a limit that is used up begins anew."""
    wait = retry_after(headers)
    if wait is not None:
        return wait
    resets: list[float] = []
    for name, value in headers.items():
        if "ratelimit" not in name or "reset" not in name:
            continue
        remaining = headers.get(name.replace("reset", "remaining"))
        reset = _until(value, datetime.now(UTC))
        if reset is not None and remaining in (None, "0"):
            resets.append(reset)
    return _bound_wait(max(resets)) if resets else None


def _until(text: str, now: datetime) -> float | None:
    """Seconds until a limit begins anew: a duration, an instant, or seconds (or milliseconds) since 1970."""
    try:
        number = float(text)
    except ValueError:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return _duration(text)
        return (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds()
    if number > 1e11:
        number /= 1000
    return number - now.timestamp() if number > 1e8 else number
