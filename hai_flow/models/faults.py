"""Failures of models as errors of steps: from a server's answer, or from the way in which a stream ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from hai_flow.errors import StepError
from hai_flow.retry_after import retry_after
from hai_flow.values import Json

SAID_CHARS_MAX: Final = 500  # of a server's text, as errors repeat it

_TOO_LONG: Final = re.compile(
    r"context.?length|context.?window|maximum context|too many tokens|prompt is too long|input is too long|"
    r"exceeds? the (available )?context|reduce the length",
    re.I,
)
_FILTERED: Final = re.compile(r"content.?filter|content.?policy|content management|data_inspection|safety", re.I)
_UNPAID: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "arrearage"})
_BUSY: Final = frozenset({"rate_limit_exceeded", "rate_limit_error", "too_many_requests", "overloaded_error"})
_AWAY: Final = frozenset({408, 409, 425, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})


def fault_of_status(status: int, headers: Mapping[str, str], body: Json, now: datetime | None = None) -> StepError:
    """The error for an answer that is none. `headers` by their names in lower case."""
    said, code = _said(body)
    after = retry_after(headers, now)
    told = f"The model's server answered {status}" + (f": {said}" if said else ".")
    if status == 429:
        unpaid = code in _UNPAID
        return _error("llm.rate_limited", told, retriable=not unpaid, after=None if unpaid else after)
    if status in _AWAY or status >= 500:
        return _error("llm.unavailable", told, after=after)
    if status in (401, 403):
        if _FILTERED.search(f"{code} {said}"):
            return _error("llm.refused", told)
        return _error("llm.not_configured", f"{told} Is the key right, and may it use this model?")
    if status == 404:
        return _error("llm.not_configured", f"{told} Is there a model of this name at this address?")
    if status == 413 or _TOO_LONG.search(f"{code} {said}"):
        return _error("llm.context_exceeded", told)
    if _FILTERED.search(f"{code} {said}"):
        return _error("llm.refused", told)
    return _error("llm.invalid_request", told)


def fault_of_body(body: Json) -> StepError:
    """The error for a fault that comes within a stream, where no HTTP status gives its kind."""
    said, code = _said(body)
    told = f"The model's server broke off its answer: {said or code or 'it does not say why'}"
    if code in _UNPAID:
        return _error("llm.rate_limited", told, retriable=False)
    if code in _BUSY or code == "429":
        return _error("llm.rate_limited", told)
    if _TOO_LONG.search(f"{code} {said}"):
        return _error("llm.context_exceeded", told)
    if _FILTERED.search(f"{code} {said}"):
        return _error("llm.refused", told)
    return _error("llm.unavailable", told)


def broken_off() -> StepError:
    """The stream ended without a sign that the answer is complete."""
    return _error("llm.truncated", "The model's answer broke off: its stream ended before it said so.")


def unreadable() -> StepError:
    """The error for a stream with a part that is no piece of an answer."""
    return _error("llm.truncated", "The model's answer broke off: its stream holds what can't be read.")


def too_long() -> StepError:
    """The answer needs more tokens than it may have: asked again, it would need them again."""
    return _error(
        "llm.truncated",
        "The model's answer reached the most tokens that it may have; raise `max_tokens`, or ask for less.",
        retriable=False,
    )


def too_many_files(most: int, bytes_max: int) -> StepError:
    """The answer holds more, or larger, files than may be kept of one: asked again, it would hold them again."""
    return _error(
        "step.file_too_large",
        f"The model's answer holds more than {most} files, or more than {bytes_max // 1024**2} MiB of them.",
        retriable=False,
    )


def refused(said: str) -> StepError:
    """The model, or its provider's filter, would not answer."""
    return _error("llm.refused", "The model would not answer" + (f": {said[:SAID_CHARS_MAX]}" if said else "."))


def silent(seconds: float) -> StepError:
    """The error for an answer in which nothing came for `seconds`."""
    return _error("llm.timeout", f"Nothing came from the model for {seconds:g} s.")


def late(seconds: float) -> StepError:
    """The answer was not complete in time."""
    return _error("llm.timeout", f"The model's answer was not complete after {seconds:g} s.")


def unreachable(why: str) -> StepError:
    """The error for a provider to which no connection can be made."""
    return _error("llm.unavailable", f"The model's server can't be reached: {why[:SAID_CHARS_MAX]}")


def not_configured(message: str) -> StepError:
    """The deployment lacks the model, or the key for it."""
    return _error("llm.not_configured", message)


def _said(body: Json) -> tuple[str, str]:
    """A server's text of its error, of bounded length, and its code; "" where it gives none."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return (error if isinstance(error, str) else "")[:SAID_CHARS_MAX], ""
    said = error.get("message") or error.get("detail") or ""
    code = error.get("code") or error.get("type") or ""
    return (said if isinstance(said, str) else "")[:SAID_CHARS_MAX], str(code)


_RETRIABLE: Final = frozenset({"llm.rate_limited", "llm.unavailable", "llm.timeout", "llm.truncated"})


def _error(code: str, message: str, *, retriable: bool | None = None, after: float | None = None) -> StepError:
    again = code in _RETRIABLE if retriable is None else retriable
    return StepError(message, code=code, retriable=again, retry_after=after)
