"""Failures of models as errors of steps: from a server's answer, or from the way in which a stream ended.

Servers report a fault in many forms: with a status or with 200, as text, an object, a list, an event of a stream or a
page. The text, the kind of the fault and the wait reach the reader of the error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from hai_flow.errors import StepError
from hai_flow.models.calls.text_pieces import whole_text
from hai_flow.models.failures.reports import SAID_CHARS_MAX, Report, report_of, wait_of_headers
from hai_flow.models.failures.words import (
    AWAY,
    DAILY,
    FILTERED,
    LIMITED,
    MALFORMED,
    NO_KEY,
    NO_MODEL,
    OTHERWISE_LONG,
    SHORT_IDS,
    TOO_LONG,
    TURNS,
    UNPAID_CODES,
    UNPAID_WORDS,
)
from hai_flow.values import Json

_TAG: Final = re.compile("<[^<>]*>")


def fault_of_status(status: int, headers: Mapping[str, str], body: Json) -> StepError:
    """The error for an answer that is none. `headers` by their names in lower case."""
    if isinstance(body, str) and body.lstrip().startswith("<"):
        page = web_page(status, body)
        if status not in AWAY and status < 500 and status not in (402, 413, 429):
            return page
        return _judge(status, Report(), wait_of_headers(headers), page.message)
    report = report_of(body)
    message = f"The model's server answered {status}" + (f": {report.text}" if report.text else ".")
    wait = wait_of_headers(headers)
    if status == 400 and report.status in (429, 503):  # of a gateway that passes on a refusal under its own status
        status = report.status
    return _judge(status, report, report.wait if wait is None else wait, message)


def fault_of_body(body: Json) -> StepError:
    """The error for a fault that is reported in an answer, where no HTTP status gives its kind."""
    report = report_of(body)
    if not report.text and not report.kinds and body:
        return unreadable(json.dumps(body, ensure_ascii=False))
    message = f"The model's server broke off its answer: {report.text or report.kinds or 'it does not say why'}"
    return _judge(report.status, report, report.wait, message)


def _judge(status: int | None, report: Report, wait: float | None, told: str) -> StepError:
    words = f"{report.kinds} {report.text}"
    is_unpaid = UNPAID_CODES.search(report.kinds) or (wait is None and UNPAID_WORDS.search(report.text))
    if status == 402 or (is_unpaid and status not in (404, 413)):
        return _error("llm.rate_limited", told, retriable=False)
    is_long = TOO_LONG.search(words) is not None and OTHERWISE_LONG.search(words) is None
    if status == 413 or (is_long and status not in (401, 403, 404, 429)):
        return _error("llm.context_exceeded", told)
    if status == 429 or (status is None and LIMITED.search(words)):
        if re.search(r"request too large", report.text, re.I):
            return _error("llm.context_exceeded", told)
        is_daily = DAILY.search(words) is not None
        return _error("llm.rate_limited", told, retriable=not is_daily, after=None if is_daily else wait)
    if status is not None and (status in AWAY or status >= 500):
        return _error("llm.unavailable", told, after=wait)
    if status in (400, 422, None) and MALFORMED.search(words):  # of the model's answer, which may be another next time
        return _error("llm.unavailable", told, after=wait)
    if FILTERED.search(words):
        return _error("llm.refused", told)
    if status in (401, 403) or (status in (400, None) and NO_KEY.search(words)):
        return _error("llm.not_configured", f"{told} Is the key right, and may it use this model?")
    if status in (404, 405) or (status in (400, 422, None) and NO_MODEL.search(words)):
        return _error("llm.not_configured", f"{told} Is there a model of this name at this address?")
    if status is not None:
        return _error("llm.invalid_request", told)
    return _error("llm.unavailable", told, after=wait)


def wants_turns(error: StepError) -> bool:
    """Whether a server has refused a request because two neighbours in it have one role."""
    return error.code == "llm.invalid_request" and TURNS.search(error.message) is not None


def wants_short_ids(error: StepError) -> bool:
    """Whether a server has refused a request because of the ids of its calls: those of another model, or ours."""
    return error.code == "llm.invalid_request" and SHORT_IDS.search(error.message) is not None


def web_page(status: int | None, page: str) -> StepError:
    """The error for a page in HTML in place of an answer: a sign-in, a proxy's page, another server."""
    title = re.search(r"<title[^<>]*>([^<]*)</title", page, re.I)
    text = title[1] if title is not None else _TAG.sub(" ", page)
    excerpt = " ".join(whole_text(text).split())[:200]
    answered = "answered" if status is None else f"answered {status}"
    return _error(
        "llm.not_configured",
        f"The model's server {answered} with a web page"
        + (f" ({excerpt})" if excerpt else "")
        + ", where an answer was "
        "expected. Is `base_url` right, and does a proxy ask for a sign-in?",
    )


def page_within(page: str) -> StepError:
    """The error for an answer that breaks off with a page in HTML, as of a proxy whose server has gone."""
    text = " ".join(whole_text(_TAG.sub(" ", page)).split())[:200]
    return _error("llm.unavailable", f"The model's server broke off its answer with a web page ({text}).")


def redirect_error(status: int, target: str) -> StepError:
    """The error for a server that redirects, to nowhere if `target` is "": no key goes where nobody has declared it."""
    place = f"it redirects to {target[:200]}. Write that address as `base_url`."
    place = place if target else "it redirects, and gives no address. Is `base_url` right?"
    return _error("llm.not_configured", f"The model's server answered {status}: {place}")


def truncation_error() -> StepError:
    """The stream ended without a sign that the answer is complete."""
    return _error("llm.truncated", "The model's answer broke off: its stream ended before it said so.")


def unreadable(part: str = "") -> StepError:
    """The error for a stream with a part that is no piece of an answer."""
    excerpt = f": {whole_text(part)[:200]}" if part else "."
    return _error("llm.truncated", f"The model's answer broke off: its stream holds what can't be read{excerpt}")


def contradiction(what: str) -> StepError:
    """The error for an answer that says two things of one: none of it counts."""
    return _error("llm.truncated", f"The model's answer contradicts itself: {what}.")


def unknown_end(word: str) -> StepError:
    """The error for an answer that ended for a reason of which nothing is known."""
    return _error(
        "llm.truncated", f"The model's answer ended with {word[:100]!r}, which is no known sign of a whole one."
    )


def end_error(word: str) -> StepError:
    """The error for an answer that the server itself calls failed."""
    return _error("llm.unavailable", f"The model's server could not complete its answer: it ended with {word[:100]!r}.")


def empty(written_call: str = "") -> StepError:
    """The error for an answer that ended well and says nothing. `written_call`: the function that its thinking
    calls."""
    why = f" Its thinking holds {_tell_written(written_call)}" if written_call else ""
    return _error("llm.empty", f"The model's answer is empty: it ended without a word and without a call.{why}")


def text_call(name: str) -> StepError:
    """The error for an answer whose text is a call: as with a call that the server can't read, another attempt may
    succeed."""
    return _error("llm.unavailable", f"The model's answer is no answer: its text holds {_tell_written(name)}")


def _tell_written(name: str) -> str:
    return (
        f"a call of `{name}`, written as text, which is not made. Has the model's server a parser of tool calls that "
        "fits the model (vLLM and SGLang: `--tool-call-parser`; llama.cpp: `--jinja`; Ollama and LM Studio: a template "
        "with tools)?"
    )


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


def refusal_error(said: str) -> StepError:
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


_RETRIABLE: Final = frozenset({"llm.rate_limited", "llm.unavailable", "llm.timeout", "llm.truncated", "llm.empty"})


def _error(code: str, message: str, *, retriable: bool | None = None, after: float | None = None) -> StepError:
    again = code in _RETRIABLE if retriable is None else retriable
    return StepError(message, code=code, retriable=again, retry_after=after)
