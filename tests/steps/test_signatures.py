"""What a Python tool says of itself: its annotations judge a call before anything of it runs, and then its result."""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import date
from typing import Annotated, Any, Literal

import pydantic
import pytest
from structlog.testing import capture_logs

from hai_flow import values
from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.plan import Plan, PythonTool
from hai_flow.errors import StepError
from hai_flow.primitives.beside_loop import LARGE_BYTES
from hai_flow.steps.python.runner import PythonRunner
from hai_flow.steps.python.threads import ToolThreads
from hai_flow.steps.python.toolbox import Toolbox
from hai_flow.steps.runner import Attempt, Registry
from hai_flow.steps.secrets import Secrets
from hai_flow.steps.tools import Context
from tests.steps.test_python import HEAD, ROOT, Heard
from tests.support.waiting import until

ran: list[Any] = []


# --- tools --------------------------------------------------------------------------------------------------------


class Item(pydantic.BaseModel):
    name: str
    count: Annotated[int, pydantic.Field(ge=1)] = 1


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


def _leave(value: list[str]) -> None:
    raise {"stop": StopIteration, "exit": SystemExit}[value[0]]


Leaving = Annotated[list[str], pydantic.AfterValidator(_leave)]


def takes_leave(value: Leaving) -> None:
    raise AssertionError(value)


def gives_leave(value: list[str]) -> Leaving:
    return value


class Receipt(pydantic.BaseModel):
    id: str
    on: date


def order(item: Item, size: Size, on: date, express: bool = False) -> Receipt:
    """Order an item.

    It comes when it comes."""
    ran.append((type(item), size, on, express))
    return Receipt(id=item.name, on=on)


async def pay(amount: Annotated[float, pydantic.Field(gt=0)], json: Literal["a", "b"] = "a", _id: int = 0) -> float:
    ran.append((amount, json, _id))
    return amount


async def promises(kind: str) -> dict[str, int]:
    results: dict[str, Any] = {"good": {"n": 1}, "wrong": {"n": "one"}, "none": None}
    return results[kind]


def as_a_dict() -> Receipt:
    return {"id": "r", "on": "2026-03-02"}  # type: ignore[return-value]


def not_a_receipt() -> Receipt:
    return {"id": "r"}  # type: ignore[return-value]


def takes_a_thread(thread: threading.Thread, count: int) -> bool:
    return thread == "any" and count == 1


def anything(**more: int) -> int:
    return sum(more.values())


def pieces(many: int) -> Iterator[str | Item]:
    for number in range(many):
        yield f"{number} "
    yield Item(name="last")


async def only_words() -> AsyncIterator[str]:
    yield "a"
    yield "b"


left: list[str] = []
go_on = threading.Event()


def slow_pieces(context: Context) -> Iterator[str]:
    try:
        yield "first"
        go_on.wait(10)
        assert context.cancelled
        yield "second"
        left.append("went on")
    finally:
        left.append("closed")


async def tells(context: Context) -> str:
    context.progress("half", done=1, total=2)
    context.log.info("told")
    return await context.secrets.get("SHOP")


def tells_in_a_thread(context: Context) -> str:
    context.progress(done=2, total=2)
    return context.secrets.read("SHOP")


async def reads_on_the_loop(context: Context) -> str:
    return context.secrets.read("SHOP")


# --- examples -----------------------------------------------------------------------------------------------------


def plan_of(call: str, more: str = "") -> Plan:
    tools = "tools:\n  t: {python: tests.steps.test_signatures}\n"
    source = f"{HEAD}{tools}steps:\n  - {{id: s, call: t.{call}{more}}}\n"
    return replace(compile_workflow(source.encode(), "f"), from_disk=True)


@pytest.fixture
async def runner() -> AsyncIterator[PythonRunner]:
    ran.clear()
    made = PythonRunner(Toolbox(project=ROOT), secrets=Secrets({"SHOP": "shop-secret"}))
    yield made
    await made.close()


async def perform(runner: PythonRunner, function: str, stream: bool = False, **arguments: Any) -> tuple[Any, Heard]:
    step, heard = plan_of(function, ", stream: text" if stream else "").steps["s"], Heard()
    attempt = Attempt("run", "s", 1, values.dumps(arguments).decode(), step, from_disk=True)
    return await runner.perform(attempt, heard), heard


@pytest.mark.parametrize("size", [1, LARGE_BYTES])
@pytest.mark.parametrize(("how", "error"), [("stop", RuntimeError), ("exit", StepError)])
@pytest.mark.parametrize("function", ["takes_leave", "gives_leave"])
async def test_whatever_a_validator_raises_ends_the_attempt_alone(
    runner: PythonRunner, function: str, how: str, error: type[Exception], size: int
) -> None:
    work = perform(runner, function, value=[how, "x" * size])
    if (function, how) == ("gives_leave", "stop"):  # it has had its effect
        assert (await work)[1].notes
        return
    with pytest.raises(error):
        await work


async def test_annotations_that_mean_more_than_json_get_instances(runner: PythonRunner) -> None:
    output, _ = await perform(runner, "order", item={"name": "pen"}, size="large", on="2026-03-02")
    assert ran == [(Item, Size.LARGE, date(2026, 3, 2), False)]
    assert output == {"id": "pen", "on": "2026-03-02"}


async def test_plain_values_reach_the_function_as_they_were_recorded(runner: PythonRunner) -> None:
    output, _ = await perform(runner, "pay", amount=180, json="b", _id=3.0)
    assert ran == [(180, "b", 3)]
    assert (type(ran[0][0]), type(ran[0][2])) == (int, int)
    assert values.dumps(output) == b"180"


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        ("pay", {"amount": "12"}, "/amount: "),
        ("pay", {"amount": -1}, "/amount: "),
        ("pay", {"amount": 1, "json": "c"}, "/json: "),
        ("pay", {}, "missing argument amount"),
        ("order", {"item": {"name": "pen", "count": 0}, "size": "small", "on": "2026-03-02"}, "/item/count: "),
        ("order", {"item": {"name": "pen"}, "size": "tiny", "on": "2026-03-02"}, "/size: "),
        ("order", {"item": {"name": "pen"}, "size": "small", "on": "tomorrow"}, "/on: "),
        ("anything", {"a": "one"}, "/a: "),
    ],
)
async def test_wrong_arguments_are_refused_before_anything_of_the_function_runs(
    runner: PythonRunner, function: str, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(StepError, match=said) as raised:
        await perform(runner, function, **arguments)
    assert (raised.value.code, raised.value.retriable, ran) == ("tool.invalid_arguments", False, [])


async def test_an_annotation_without_a_json_form_is_unchecked_the_others_are(runner: PythonRunner) -> None:
    assert (await perform(runner, "takes_a_thread", thread="any", count=1))[0] is True
    with pytest.raises(StepError, match="/count"):
        await perform(runner, "takes_a_thread", thread="any", count="one")


@pytest.mark.parametrize(("function", "arguments"), [("promises", {"kind": "wrong"}), ("promises", {"kind": "none"})])
async def test_a_result_that_is_not_what_the_function_says_is_refused(
    runner: PythonRunner, function: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(StepError, match="not what it says") as raised:
        await perform(runner, function, **arguments)
    assert (raised.value.code, raised.value.retriable) == ("tool.invalid_result", False)


async def test_a_result_may_be_what_a_model_is_made_of(runner: PythonRunner) -> None:
    assert (await perform(runner, "promises", kind="good"))[0] == {"n": 1}
    assert (await perform(runner, "as_a_dict"))[0] == {"id": "r", "on": "2026-03-02"}
    with pytest.raises(StepError, match="/on: Field required"):
        await perform(runner, "not_a_receipt")


async def test_a_generator_in_a_thread_streams_as_one_on_the_loop_does(runner: PythonRunner) -> None:
    output, heard = await perform(runner, "pieces", stream=True, many=2)
    assert (heard.chunks, output) == (["0 ", "1 "], {"name": "last", "count": 1})
    assert (await perform(runner, "only_words"))[0] == "ab"


async def test_a_generator_in_a_thread_ends_when_nothing_waits_for_it() -> None:
    left.clear()
    go_on.clear()
    runner = PythonRunner(Toolbox(project=ROOT), lambda: ToolThreads(calls_max=1))
    step, heard = plan_of("slow_pieces", ", stream: text").steps["s"], Heard()
    task = asyncio.create_task(runner.perform(Attempt("run", "s", 1, "{}", step, from_disk=True), heard))
    await until(lambda: heard.chunks)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await until(lambda: left)
    assert (left, heard.chunks) == (["closed"], ["first"])
    await runner.close()


async def test_a_context_tells_progress_reads_secrets_and_logs_where_it_is(runner: PythonRunner) -> None:
    with capture_logs() as logs:
        output, heard = await perform(runner, "tells")
    await until(lambda: heard.told)
    assert (output, heard.told) == ("shop-secret", [{"message": "half", "done": 1, "total": 2}])
    told = next(line for line in logs if line["event"] == "told")
    assert (told["run_id"], told["path"], told["attempt"]) == ("run", "s", 1)
    assert told["tool"] == "tests.steps.test_signatures:tells"
    output, heard = await perform(runner, "tells_in_a_thread")
    await until(lambda: heard.told)
    assert (output, heard.told) == ("shop-secret", [{"done": 2, "total": 2}])


async def test_what_would_block_the_loop_says_so(runner: PythonRunner) -> None:
    with pytest.raises(RuntimeError, match="block everything"):
        await perform(runner, "reads_on_the_loop")


def test_a_context_of_no_run_can_be_made_for_a_test_of_the_tool() -> None:
    context = Context("run", "path", 1, "key")
    context.progress("nowhere")
    assert not context.cancelled
    with pytest.raises(StepError, match="belongs to no run"):
        context.secrets.read("SHOP")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ('pay, with: {amount: "a lot"}', "/amount: "),
        ("pay, with: {amount: 1, json: c}", "/json: "),
        ("order, with: {item: {name: 3}, size: small, on: 2026-03-02}", "/item/name: "),
        ("pay, with: {json: a}", "missing argument amount"),
    ],
)
def test_unfit_literal_arguments_are_found_at_publication(call: str, said: str) -> None:
    registry = Registry({"python": PythonRunner(Toolbox(project=ROOT))})
    ((step, fault),) = registry.faults(plan_of(call))
    assert step.path == "s"
    assert said in fault


def test_arguments_with_holes_are_judged_when_they_are_known() -> None:
    registry = Registry({"python": PythonRunner(Toolbox(project=ROOT))})
    assert registry.faults(plan_of('pay, with: {amount: "${{ run.id }}", json: b}')) == []
    assert registry.faults(plan_of("order, with: {item: {name: '${{ run.id }}'}, size: small, on: 2026-03-02}")) == []


async def test_a_module_offers_its_functions_with_what_their_docstrings_say() -> None:
    runner = PythonRunner(Toolbox(project=ROOT))
    tool = PythonTool("t", "tests.steps.test_signatures", "read")
    found = {each.name: each for each in await runner.offered("t", tool, from_disk=True)}
    assert "t.perform" in found, "a function of the project, as every other of its module"
    order_ = found["t.order"]
    assert order_.description == "Order an item.\n\nIt comes when it comes."
    assert order_.effect == "read"
    properties = order_.parameters["properties"]
    assert properties["express"] == {"type": "boolean", "default": False}
    assert properties["on"] == {"type": "string", "format": "date"}
    assert order_.parameters["required"] == ["item", "size", "on"]
    assert order_.parameters["additionalProperties"] is False
    assert order_.result is not None
    assert order_.result["required"] == ["id", "on"]
    assert found["t.tells"].parameters["properties"] == {}, "its context is no argument"
    assert found["t.pay"].parameters["properties"]["_id"] == {"type": "integer", "default": 0}


async def test_a_tool_that_is_one_function_is_offered_by_its_name() -> None:
    toolbox = Toolbox(["hai_flow.examples"], project=ROOT)
    toolbox.load()
    runner = PythonRunner(toolbox)
    one = PythonTool("order", "tests.steps.test_signatures:order")
    assert [each.name for each in await runner.offered("order", one, from_disk=True)] == ["order"]
    registered = PythonTool("examples", "")
    names = {each.name for each in await runner.offered("examples", registered)}
    assert {"examples.refund", "examples.deploy"} <= names
    module = PythonTool("shop", "hai_flow.examples")
    assert {"shop.refund", "shop.deploy"} <= {each.name for each in await runner.offered("shop", module)}
    with pytest.raises(StepError, match="takes tools from"):
        await runner.offered("evil", PythonTool("evil", "subprocess"))
