"""Python functions as effects: whatever a tool does, the runner gives an output or a StepError, and nothing else."""

from __future__ import annotations

import asyncio
import functools
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from hai_flow import values
from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.plan import Plan, PythonTool
from hai_flow.engine.events import ModelUse
from hai_flow.errors import StepError
from hai_flow.steps.python.runner import PythonRunner
from hai_flow.steps.python.threads import ToolThreads
from hai_flow.steps.python.toolbox import Toolbox
from hai_flow.steps.runner import Attempt, Registry
from hai_flow.steps.tools import Context, tool
from tests.support.waiting import until

HEAD = "hai: flow/v1\nname: sample\nversion: 1\n"
ROOT = Path(__file__).resolve().parents[2]
OURS = "python: tests.steps.test_python"
HERE = Toolbox(project=ROOT)


def plan_of(call: str, declared: str = OURS) -> Plan:
    source = f"{HEAD}tools:\n  t: {{{declared}}}\nsteps:\n  - {{id: s, call: {call}}}\n"
    return replace(compile_workflow(source.encode(), "f"), from_disk=True)


@pytest.fixture
async def runner() -> AsyncIterator[PythonRunner]:
    made = PythonRunner(HERE)
    yield made
    await made.close()


async def perform(runner: PythonRunner, function: str, stream: bool = False, **arguments: Any) -> tuple[Any, list[str]]:
    """The output and the chunks of one attempt of `t.<function>`."""
    step = plan_of(f"t.{function}" + (", stream: text" if stream else "")).steps["s"]
    heard = Heard()
    attempt = Attempt("run", "s", 2, values.dumps(arguments).decode(), step, from_disk=True)
    return await runner.perform(attempt, heard), heard.chunks


class Heard:
    """What an attempt streams."""

    def __init__(self) -> None:
        self.chunks: list[str] = []
        self.told: list[Any] = []

    async def __call__(self, text: str, kind: str = "text") -> None:
        self.chunks.append(text)

    def progress(self, value: Any) -> None:
        self.told.append(value)

    async def call(self, name: str, number: int, text: str) -> None:
        raise AssertionError(f"a Python tool writes no call: {name}")

    def noted(self, notes: Any) -> None:
        self.notes = (*getattr(self, "notes", ()), *notes)

    def made(self, part: Any) -> None:
        raise AssertionError(f"a Python tool asks no model: {part}")

    def used(self, use: ModelUse) -> None:
        raise AssertionError(f"a Python tool asks no model: {use}")


# --- tools --------------------------------------------------------------------------------------------------------


async def add(left: int, right: int = 1) -> int:
    return left + right


def where(context: Context) -> dict[str, Any]:
    in_thread = threading.current_thread() is not threading.main_thread()
    return {"thread": in_thread, "key": context.idempotency_key, "attempt": context.attempt}


async def words(mind: bool = False) -> AsyncIterator[object]:
    yield "a "
    yield "b\x00\ud800 "
    if mind:
        yield {"chosen": True}
    yield "c"


closed: list[str] = []


async def endless() -> AsyncIterator[str]:
    try:
        while True:
            yield "."
            await asyncio.sleep(0)
    finally:
        closed.append("endless")


def odd(kind: str) -> Any:
    results: dict[str, Any] = {"nan": float("nan"), "object": object(), "big": 2**60, "nul": "a\x00b"}
    return results[kind]


def tuples() -> Any:
    return {"pair": (1, 2)}


def stops() -> None:
    next(iter(()))


ODD_ENDS: dict[str, BaseException] = {
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "close": GeneratorExit(),
    "base": BaseException("b"),
    "group": BaseExceptionGroup("g", [KeyboardInterrupt()]),
}


def leaves(how: str) -> None:
    raise ODD_ENDS[how]


async def leaves_loop(how: str) -> None:
    raise ODD_ENDS[how]


async def raises() -> None:
    raise StepError("no money", code="shop.broke", retriable=False, data={"left": 0})


async def waits() -> None:
    await asyncio.Event().wait()


def positional(value: int, /) -> int:
    return value


wrapped = functools.partial(add, left=4)

# --- examples -----------------------------------------------------------------------------------------------------


async def test_an_async_function_gets_its_arguments_by_name(runner: PythonRunner) -> None:
    assert await perform(runner, "add", left=2, right=3) == (5, [])
    assert await perform(runner, "add", left=2) == (3, [])
    assert await perform(runner, "wrapped") == (5, [])


async def test_a_sync_function_runs_in_a_thread_and_may_ask_for_its_context(runner: PythonRunner) -> None:
    output, _ = await perform(runner, "where")
    assert output == {"thread": True, "key": "run/s", "attempt": 2}


async def test_a_generator_streams_its_strings_and_returns_its_last_other_value(runner: PythonRunner) -> None:
    text = ["a ", "b\0\ud800 ", "c"]  # a run's message has U+FFFD in their place, as the output has
    assert await perform(runner, "words", stream=True) == ("a b\ufffd\ufffd c", text)
    assert await perform(runner, "words", stream=True, mind=True) == ({"chosen": True}, text)
    assert await perform(runner, "words", stream=False) == ("a b\ufffd\ufffd c", [])


async def test_a_generator_is_closed_when_its_attempt_is_cancelled(runner: PythonRunner) -> None:
    closed.clear()
    attempt = asyncio.create_task(perform(runner, "endless", stream=True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    attempt.cancel()
    await asyncio.wait([attempt], timeout=20)
    assert attempt.cancelled()
    assert closed == ["endless"]


async def test_being_cancelled_reaches_the_tool(runner: PythonRunner) -> None:
    attempt = asyncio.create_task(perform(runner, "waits"))
    await asyncio.sleep(0)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt


async def test_a_result_that_is_not_plain_json_is_refused(runner: PythonRunner) -> None:
    with pytest.raises(StepError) as failed:
        await perform(runner, "odd", kind="object")
    assert (failed.value.code, failed.value.retriable) == ("tool.invalid_result", False)


async def test_tuples_become_lists(runner: PythonRunner) -> None:
    assert await perform(runner, "tuples") == ({"pair": [1, 2]}, [])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "missing argument left"),
        ({"left": 1, "up": 2}, "unknown argument up; it takes left, right"),
        ({"letf": 1}, "missing argument left, unknown argument letf; it takes left, right"),
    ],
)
async def test_wrong_arguments_are_named(runner: PythonRunner, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(StepError, match=said) as failed:
        await perform(runner, "add", **arguments)
    assert failed.value.code == "tool.invalid_arguments"


async def test_a_step_error_keeps_its_code(runner: PythonRunner) -> None:
    with pytest.raises(StepError) as failed:
        await perform(runner, "raises")
    assert (failed.value.code, failed.value.data) == ("shop.broke", {"left": 0})


async def test_stop_iteration_in_a_thread_fails_and_does_not_hang(runner: PythonRunner) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(perform(runner, "stops"), 20)


@pytest.mark.parametrize("how", ODD_ENDS)
@pytest.mark.parametrize("function", ["leaves", "leaves_loop"])
async def test_a_tool_that_exits_does_not_take_the_process_along(runner: PythonRunner, function: str, how: str) -> None:
    with pytest.raises((StepError, RuntimeError), match=type(ODD_ENDS[how]).__name__):
        await asyncio.wait_for(perform(runner, function, how=how), 20)


async def test_a_closed_runner_has_no_threads_and_works_again(runner: PythonRunner) -> None:
    await perform(runner, "where")
    await runner.close()
    assert (await perform(runner, "where"))[0]["thread"]


# --- functions that hang ------------------------------------------------------------------------------------------

released = threading.Event()
hanging: list[str] = []


def hangs() -> str:
    hanging.append(threading.current_thread().name)
    released.wait(60)
    return "late"


def breaks_late() -> None:
    hanging.append(threading.current_thread().name)
    released.wait(60)
    raise SystemExit(3)


@pytest.fixture
async def tight() -> AsyncIterator[PythonRunner]:
    """A runner with few threads; whatever hangs in them is released at the end."""
    released.clear()
    hanging.clear()
    made = PythonRunner(HERE, lambda: ToolThreads(calls_max=2, left_behind_max=3))
    yield made
    released.set()
    await made.close()


async def given_up(runner: PythonRunner, function: str, times: int) -> None:
    """So many calls that hang, given up."""
    for _ in range(times):
        begun = len(hanging)
        attempt = asyncio.create_task(perform(runner, function))
        await until(lambda begun=begun: len(hanging) > begun)
        attempt.cancel()
        await asyncio.wait([attempt])
        assert attempt.cancelled()


async def test_functions_that_hang_keep_no_other_tool_from_its_threads(tight: PythonRunner) -> None:
    hung = [asyncio.create_task(perform(tight, "hangs")) for _ in range(10)]
    await until(lambda: len(hanging) == 2)
    assert (await asyncio.wait_for(perform(tight, "where"), 20))[0]["thread"]
    assert len(hanging) == 2, "so many calls of one tool run at once, and no more"
    released.set()
    assert [each for each, _ in await asyncio.gather(*hung)] == ["late"] * 10


@pytest.mark.parametrize("function", ["hangs", "breaks_late"])
async def test_a_tool_of_which_too_many_were_left_behind_fails_until_one_returns(
    tight: PythonRunner, function: str
) -> None:
    await given_up(tight, function, 3)
    with pytest.raises(
        StepError, match=f"3 calls of the tool tests.steps.test_python:{function} were given up"
    ) as failed:
        await perform(tight, function)
    assert (failed.value.code, failed.value.retriable) == ("tool.unavailable", True)
    assert (await perform(tight, "where"))[0]["thread"]
    released.set()
    threads = tight._threads
    assert threads is not None
    await until(lambda: not threads._tools)
    if function == "hangs":
        assert await perform(tight, function) == ("late", [])


async def test_calls_waiting_for_their_tools_threads_fail_when_those_are_left(tight: PythonRunner) -> None:
    await given_up(tight, "hangs", 2)
    hung = asyncio.create_task(perform(tight, "hangs"))
    second = asyncio.create_task(perform(tight, "hangs"))
    await until(lambda: len(hanging) == 4)
    waiting = asyncio.create_task(perform(tight, "hangs"))
    hung.cancel()
    with pytest.raises(StepError, match="3 calls of the tool"):
        await asyncio.wait_for(waiting, 20)
    second.cancel()
    await asyncio.wait([hung, second])


async def test_who_is_cancelled_while_waiting_for_a_thread_leaves_none_behind(tight: PythonRunner) -> None:
    hung = [asyncio.create_task(perform(tight, "hangs")) for _ in range(2)]
    await until(lambda: len(hanging) == 2)
    waiting = [asyncio.create_task(perform(tight, "hangs")) for _ in range(10)]
    await asyncio.sleep(0)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    released.set()
    assert [each for each, _ in await asyncio.gather(*hung)] == ["late"] * 2
    assert len(hanging) == 2


async def test_the_log_and_the_threads_name_say_which_tool_hangs_and_for_whom(tight: PythonRunner) -> None:
    with capture_logs() as logs:
        await given_up(tight, "hangs", 1)
        released.set()
        await until(lambda: any(line["event"] == "tool_returned_late" for line in logs))
    assert hanging == ["tool: tests.steps.test_python:hangs for run/s"]
    (left,) = [line for line in logs if line["event"] == "tool_left_behind"]
    assert (left["tool"], left["caller"]) == ("tests.steps.test_python:hangs", "run/s")


async def test_threads_are_used_again_and_end_with_their_runner(tight: PythonRunner) -> None:
    before = set(threading.enumerate())

    def ours() -> set[threading.Thread]:
        return set(threading.enumerate()) - before

    for _ in range(10):
        await perform(tight, "where")
    assert len(ours()) == 1
    await given_up(tight, "hangs", 1)
    await tight.close()
    await until(lambda: len(ours()) == 1)
    released.set()
    await until(lambda: not ours())


async def test_quick_calls_of_one_answer_act_in_their_written_order() -> None:
    threads = ToolThreads()
    effects: list[int] = []

    def act(number: int) -> None:
        Path(__file__).stat()  # lets other threads run, as the effects of most tools do
        effects.append(number)

    for first in range(0, 400, 4):
        calls = (partial(act, number) for number in range(first, first + 4))
        async with asyncio.timeout(20):
            await asyncio.gather(*(threads.run(f"t{n % 2}", "run", call, "run/a[0]") for n, call in enumerate(calls)))
    threads.close()
    swapped = sum(earlier > later for earlier, later in pairwise(effects))
    assert sorted(effects) == list(range(400))
    assert swapped <= 4, "but where the machine takes a thread away for longer than the head start of a call"
    assert not threads._batches


async def test_slow_calls_of_one_answer_run_at_once() -> None:
    threads = ToolThreads()
    together = threading.Barrier(20)
    calls = (threads.run("t", "run", partial(together.wait, 60), "run/a[0]") for _ in range(20))
    assert sorted(await asyncio.gather(*calls)) == list(range(20))
    threads.close()


async def test_the_calls_behind_one_that_was_given_up_still_get_their_turn(tight: PythonRunner) -> None:
    threads = ToolThreads()
    hung = asyncio.create_task(threads.run("t", "run", hangs, "run/a[0]"))
    await until(lambda: len(hanging) == 1)
    hung.cancel()
    assert await asyncio.wait_for(threads.run("t", "run", lambda: "done", "run/a[0]"), 20) == "done"
    await asyncio.wait([hung])
    assert not threads._batches
    threads.close()


def test_a_function_that_never_returns_keeps_no_process_alive() -> None:
    script = (
        "import asyncio; from tests.steps.test_python import *; asyncio.run(given_up(PythonRunner(HERE), 'hangs', 1))"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=50, check=True)


# --- what can't be performed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "call", "said"),
    [
        ("python: no_such_package.tools", "t.x", "not a module that this deployment takes tools from"),
        (OURS, "t.no_such_function", "expected a function 'no_such_function'"),
        (OURS, "t.positional", "by name"),
        ("python: tests.steps.broken", "t.x", "ZeroDivisionError"),
        ("python: registered", "t.x", "registered|can't import"),
        (OURS, "t.add", "missing argument left"),
        (OURS, "t.add, with: {left: 1, rihgt: 2}", "unknown argument rihgt; it takes left, right"),
    ],
)
def test_what_this_server_cannot_perform_is_a_fault_of_the_step(declared: str, call: str, said: str) -> None:
    registry = Registry({"python": PythonRunner(HERE)})
    ((step, fault),) = registry.faults(plan_of(call, declared))
    assert step.path == "s"
    assert re.search(said, fault), fault


def test_a_supported_plan_has_no_fault_and_a_verb_without_runner_says_so() -> None:
    plan = plan_of("t.add, with: {left: 1}")
    assert Registry({"python": PythonRunner(HERE)}).faults(plan) == []
    assert Registry({}).faults(plan) == []
    with pytest.raises(StepError, match="performs no 'python' steps"):
        Registry({}).runner_of(plan.steps["s"])


def test_a_registered_tool_is_found_by_name_and_replaced_on_reload() -> None:
    def make(result: int) -> Callable[[], int]:
        def answer_of_the_test() -> int:
            return result

        return answer_of_the_test

    tool("sample.answer")(make(1))
    here = Toolbox([__name__])
    assert here.find("", "answer", "sample").function() == 1
    tool("sample.answer")(make(2))
    assert here.find("", "answer", "sample").function() == 2
    with pytest.raises(ValueError, match="registered already"):
        tool("sample.answer")(add)


async def test_a_registry_without_runners_says_that_the_tool_is_unavailable() -> None:
    with pytest.raises(StepError, match="'shop'") as raised:
        await Registry({}).offered("shop", PythonTool("shop", "acme.shop"))
    assert raised.value.code == "tool.unavailable"
