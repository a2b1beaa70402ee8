"""Lines of the log say what they are about."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import structlog
from typer.testing import CliRunner

from hai_flow.cli import app
from hai_flow.cli.admin.recover import recover
from hai_flow.cli.client.rest import Server
from hai_flow.cli.errors import Problem, UsageError
from hai_flow.cli.serve import logs
from hai_flow.cli.serve.logs import configure_logs
from hai_flow.engine.state.tracing import place_of
from hai_flow.runtime.base.trace_parent import ASKER, TraceParent
from tests.runtime.conftest import TOOLS, Make, eye, is_now, make, start
from tests.support.waiting import until

__all__ = ["eye", "make"]
CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@contextmanager
def as_json() -> Iterator[None]:
    configure_logs("info", "json")
    try:
        yield
    finally:
        structlog.reset_defaults()


def lines(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]


async def test_what_an_attempt_logs_names_its_run_thread_tenant_step_and_trace(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = await make(performs=True)
    token = ASKER.set(TraceParent(place_of(CALLER)))
    with as_json():
        run_id = (await start(runtime, TOOLS + "steps:\n  - {id: s, call: fx.logs}\n", thread="t-1")).run_id
        ASKER.reset(token)
        await until(lambda: is_now(runtime, run_id, "finished"))
    (line,) = [line for line in lines(capfd) if line["event"] == "told"]
    assert line["run_id"] == str(run_id)
    assert (line["thread_id"], line["path"], line["attempt"]) == ("t-1", "s", 1)
    assert line["tenant"] == "00000000-0000-4000-8000-000000000001"
    assert (line["trace_id"], line["span_id"]) == (CALLER[3:35], CALLER[36:52])


async def test_what_a_request_logs_has_its_callers_trace(capfd: pytest.CaptureFixture[str]) -> None:
    with as_json():
        token = ASKER.set(TraceParent(place_of(CALLER)))
        structlog.get_logger("x").info("asked")
        ASKER.reset(token)
        structlog.get_logger("x").info("alone")
    asked, alone = lines(capfd)
    assert asked["trace_id"] == CALLER[3:35]
    assert "trace_id" not in alone


@pytest.mark.parametrize("style", ["json", "text"])
def test_no_line_quotes_the_row_that_the_database_refused(capfd: pytest.CaptureFixture[str], style: str) -> None:
    configure_logs("debug", style)
    fields = {"S": "ERROR", "C": "23505", "M": "duplicate", "D": "Key (key)=(DE89-7715) already exists."}
    try:
        for way in ("text", "cause", "context"):
            refused = asyncpg.PostgresError.new(fields)
            assert "DE89" in str(refused)
            if way == "text":
                structlog.get_logger("x").warning("failed", error=str(refused))
                continue
            try:
                try:
                    raise refused
                except asyncpg.PostgresError as error:
                    raise ValueError("outer") from (error if way == "cause" else None)
            except ValueError as outer:
                outer.__suppress_context__ = False
                structlog.get_logger("x").exception("failed")
                structlog.get_logger("x").error("failed", exc_info=outer)
    finally:
        structlog.reset_defaults()
    log = capfd.readouterr().err
    assert log.count("duplicate") >= 5
    assert "DE89" not in log


def test_text_is_written_where_that_is_set(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "text")
    structlog.get_logger("x").info("asked", by="ann")
    structlog.reset_defaults()
    told = capfd.readouterr().err
    assert "asked" in told
    assert not told.startswith("{")
    assert "\x1b" not in told  # no colours where no terminal is


def test_a_commands_own_warning_is_handed_over_and_others_keep_their_level(capfd: pytest.CaptureFixture[str]) -> None:
    heard: list[Any] = []
    configure_logs("error", "json", heard={"wanted": heard.append})
    try:
        log = structlog.get_logger("x")
        log.warning("wanted", why="so")
        log.warning("another")
        log.info("wanted")
        log.error("failed")
    finally:
        structlog.reset_defaults()
    assert heard == [{"event": "wanted", "why": "so"}]
    assert [line["event"] for line in lines(capfd)] == ["failed"]


@pytest.mark.parametrize(("setting", "style"), [("auto", "text"), ("text", "text"), ("json", "json")])
def test_dev_writes_lines_for_people_unless_the_setting_says_json(
    monkeypatch: pytest.MonkeyPatch, setting: str, style: str, tmp_path: Path
) -> None:
    styles: list[str] = []

    def stop(level: str, style: str) -> None:
        styles.append(style)
        raise UsageError("enough")

    monkeypatch.setattr("hai_flow.cli.serve.dev.configure_logs", stop)
    monkeypatch.setenv("HAI_FLOW_LOGS", setting)
    result = CliRunner().invoke(app, ["dev", "--data-dir", str(tmp_path), "--port", "0"])
    assert (result.exit_code, styles) == (2, [style])


def test_the_same_error_a_moment_later_is_counted_and_told_with_the_next(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(logs.time, "monotonic", lambda: now)
    with as_json():
        log = structlog.get_logger("x")
        for _ in range(50):
            log.warning("claim_failed", error="no connection")
            log.warning("sweep_failed", error="no connection")
            log.warning("told")
            log.error("store_failed", error="no connection")
        now += logs.REPEAT_SECONDS
        log.warning("claim_failed", error="no connection")
        log.warning("claim_failed", error="another one")
    found = lines(capfd)
    first, second, other = [line for line in found if line["event"] == "claim_failed"]
    assert "repeated" not in first
    assert second["repeated"] == 49
    assert (other["error"], "repeated" in other) == ("another one", False)
    counts = Counter(line["event"] for line in found)
    assert counts == {"claim_failed": 3, "sweep_failed": 1, "told": 50, "store_failed": 50}, "only errors of warnings"
    repeats = logs._Repeats(structlog.DropEvent)
    for number in range(2 * logs._KEPT_MAX):
        repeats(None, "warning", {"event": "e", "error": str(number)})
    assert len(repeats._kept) <= logs._KEPT_MAX


def test_warnings_of_several_threads_at_once_raise_nothing() -> None:
    repeats, told = logs._Repeats(structlog.DropEvent), list[str]()

    def warn(first: int) -> None:
        for number in range(first, first + 4 * logs._KEPT_MAX):
            repeats(None, "warning", {"event": "e", "error": str(number)})
            told.append(str(number))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(warn, range(0, 10**6, 250_000)))  # raises what a line of the log raised
    finally:
        sys.setswitchinterval(before)
    assert len(told) == 16 * logs._KEPT_MAX


def test_a_value_in_the_log_begins_no_line_and_controls_no_terminal() -> None:
    entry = logs._escape_values(None, "warning", {"event": "said", "text": "a\x1b[2J\nroot: all is well", "n": 5})
    assert (entry["event"], entry["n"]) == ("said", 5)
    assert not set(entry["text"]) & {"\x1b", "\n"}


async def test_the_beginning_of_the_ids_of_several_runs_means_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def items(*given: object) -> list[dict[str, str]]:
        return [{"id": f"0190{number}"} for number in range(7)]

    server = Server("http://127.0.0.1:9")
    monkeypatch.setattr(server, "items", items)
    assert await server.run_id("01903") == "01903"
    with pytest.raises(Problem, match=r"begins 7 runs: 01900, .*, …") as raised:
        await server.run_id("0190")
    assert raised.value.code == "run_ambiguous"


def test_a_database_that_was_restored_was_not_only_moved() -> None:
    with pytest.raises(UsageError, match="one of --confirm and --nothing-lost"):
        recover(confirm=True, nothing_lost=True)
