"""The log of a process, on standard error: as text for a person at a terminal, or as JSON lines."""

from __future__ import annotations

import importlib
import io
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from types import ModuleType
from typing import Any, Final, TextIO, TypeAlias

from hai_flow.cli.console import clean, join_lines, shows_styles

Hear: TypeAlias = Callable[[Mapping[str, Any]], None]


def configure_logs(level: str, style: str = "auto", *, heard: Mapping[str, Hear] | None = None) -> None:
    """Structured logs on standard error: as text or as JSON lines; `auto`: as text on a terminal.

    `heard`: warnings that a command tells in words of its own, whatever the level, by the name of their event. They are
    not written to the log."""
    import logging

    structlog = _load_structlog()
    # asyncpg's pool logs a traceback for each connection that it cannot restore; the code that needed it logs it, too.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # likewise: `otlp_exporter` reports the failure
    as_text = style == "text" or (style == "auto" and sys.stderr.isatty())
    processors: list[Any] = (
        [
            _escape_values,
            structlog.dev.ConsoleRenderer(colors=shows_styles(sys.stderr), exception_formatter=_print_traceback),
        ]
        if as_text
        else [
            # Without local variables: they hold inputs, arguments and secrets.
            structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _with_place,
            structlog.processors.add_log_level,
            _Repeats(structlog.DropEvent),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _without_rows,
            *processors,
            _without_secrets,
        ],
        wrapper_class=_hearing(structlog.make_filtering_bound_logger(level), heard or {}),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


REPEAT_SECONDS: Final = 60.0
_KEPT_MAX: Final = 1000


class _Repeats:
    """Leaves out a warning about an error that stood in the log less than a minute ago, word by word. The next one has
    the number of those that were left out (`repeated`): the loops of a process that can't reach its database fail many
    times a second, and would hide everything else."""

    def __init__(self, drop: type[BaseException]) -> None:
        self._drop = drop
        self._lock = threading.Lock()  # threads beside the loop log, too
        self._kept: dict[str, tuple[float, int]] = {}

    def __call__(self, _logger: Any, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if method != "warning" or "error" not in entry:
            return entry
        key, now = repr(sorted(entry.items(), key=lambda each: each[0])), time.monotonic()
        with self._lock:
            since, repeated = self._kept.pop(key, (now - REPEAT_SECONDS, 0))
            if now - since < REPEAT_SECONDS:
                self._kept[key] = since, repeated + 1
                raise self._drop
            while len(self._kept) >= _KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = now, 0
        return {**entry, "repeated": repeated} if repeated else entry


def _load_structlog() -> ModuleType:
    """structlog without rich, which it would import, with pygments, to draw tracebacks in boxes: we show none."""
    hides = "structlog" not in sys.modules and "rich" not in sys.modules
    if hides:
        sys.modules["rich"] = None  # type: ignore[assignment]  # an import of it fails; structlog does without
    try:
        return importlib.import_module("structlog")
    finally:
        if hides:
            del sys.modules["rich"]


def _hearing(logger: Any, heard: Mapping[str, Hear]) -> Any:
    """A kind of `logger` that hands these warnings over instead of writing them, whatever its level."""

    def warning(self: Any, event: str, *args: Any, **values: Any) -> Any:
        if (hear := heard.get(event)) is None:
            return logger.warning(self, event, *args, **values)
        return hear({**self._context, "event": event, **values})

    return type("Hearing", (logger,), {"warning": warning})


def _with_place(_logger: Any, _method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the subject of a log line, as far as its task knows it: the attempt that is performed with its run, and the
    trace. It is looked up only when something is logged, so a step pays nothing for it."""
    from hai_flow.runtime.base.trace_parent import ASKER, PERFORMED

    performed, asker, place = PERFORMED.get(), ASKER.get(), None
    if performed is not None:
        run, place = performed.run, performed.place
        entry.setdefault("run_id", str(run.id))
        entry.setdefault("thread_id", run.state.thread_id)
        entry.setdefault("tenant", str(run.tenant))
        entry.setdefault("path", performed.path)
        entry.setdefault("attempt", performed.attempt)
    elif asker is not None:
        place = asker.place or asker.parent
    if place is not None:
        entry.setdefault("trace_id", place.trace_id)
        entry.setdefault("span_id", place.span_id)
    return entry


def _without_rows(_logger: Any, _method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A log entry without the details of the database's errors: they quote the values of the row that it refused."""
    raised = entry.get("exc_info")
    error = sys.exc_info()[1] if raised is True else raised[1] if isinstance(raised, tuple) else raised
    while isinstance(error, BaseException):
        if getattr(error, "detail", None) and hasattr(error, "sqlstate"):
            vars(error)["detail"] = None
        error = error.__cause__ or error.__context__
    return {name: value.partition("\nDETAIL:")[0] if isinstance(value, str) else value for name, value in entry.items()}


def _without_secrets(_logger: Any, _method: str, line: Any) -> Any:
    """A line of the log without secrets: an exception in it may quote a request."""
    from hai_flow.steps.secrets import hide_secrets

    return hide_secrets(line)


def _escape_values(_logger: Any, _method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Values of a log may come from a client: on a terminal they must not control it, nor begin a line of their own.

    Values that are not text are shown by their `repr`, which escapes control characters."""
    return {name: join_lines(value) if isinstance(value, str) else value for name, value in entry.items()}


def _print_traceback(file: TextIO, raised: Any) -> None:
    """A traceback whose message can't control the terminal: it may come from another system."""
    import structlog

    text = io.StringIO()
    structlog.dev.plain_traceback(text, raised)
    file.write(clean(text.getvalue()))
