"""What is short to write and long to work on: refused as said, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docs.attacks_page import CLASSES_BEGIN, CLASSES_END, PAGE, section_of_work
from hai_flow.api.app import create_app
from hai_flow.primitives.beside_loop import TURN_SECONDS, WORK_FOR, run_beside_loop
from hai_flow.runtime.catalog import compiling
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.settings import Settings
from tests.attacks.classes import CLASSES, counted
from tests.attacks.work import ATTEMPTS, EXPRESSIONS, HEAD, SCHEMAS, Attempt
from tests.runtime.conftest import Make
from tests.support.examples import examples
from tests.support.server import YAML
from tests.support.stalls import STALL_SECONDS, stalls_measured

SLOW_SECONDS: Final = 5.0  # for a sign of life on a machine that does much else; a stopped process gives none


def named(attempt: Attempt) -> str:
    return f"{attempt.place}: {attempt.name}"


@contextmanager
def healthy(url: str) -> Iterator[None]:
    """A server that gives signs of life all the time."""
    slowest, ended = [0.0], threading.Event()

    def ask() -> None:
        with httpx2.Client(base_url=url, timeout=60) as client:
            while not ended.is_set():
                begun = time.monotonic()
                client.get("/healthz").raise_for_status()
                slowest[0] = max(slowest[0], time.monotonic() - begun)
                ended.wait(0.05)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert slowest[0] < SLOW_SECONDS


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["schemas", "documents", "expressions"])
def test_expensive_requests_are_refused_by_code_while_others_are_answered(http: httpx2.Client, kind: str) -> None:
    wrong: dict[str, Any] = {}
    with healthy(str(http.base_url)):
        for attempt in ATTEMPTS:
            if attempt.kind != kind:
                continue
            checked = http.post("/v1/workflows/validate", content=attempt.source, headers=YAML, timeout=60)
            if checked.status_code != 200:
                wrong[named(attempt)] = checked.text[:200]
                continue
            codes = {each["code"] for each in checked.json()["findings"] if each["severity"] == "error"}
            if attempt.codes and codes.isdisjoint(attempt.codes):
                wrong[named(attempt)] = codes
            if codes:
                refused = http.post("/v1/workflows", content=attempt.source, headers=YAML, timeout=60)
                if refused.status_code != 422:
                    wrong[f"{named(attempt)}, published"] = refused.status_code
    assert wrong == {}


@pytest.mark.costly
async def test_nothing_that_authors_wrote_is_worked_on_for_long_on_the_loop(make: Make) -> None:
    runtime = await make()
    transport = httpx2.ASGITransport(app=create_app(Settings(), runtime), client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60) as client:
        await client.post("/v1/workflows/validate", content=HEAD + "steps: [{say: hi}]\n", headers=YAML)
        held: dict[str, str] = {}
        with stalls_measured() as stalls:
            for attempt in ATTEMPTS[:: 1 if len(ATTEMPTS) < 60 else 3]:
                stalls.forget()
                await client.post("/v1/workflows/validate", content=attempt.source, headers=YAML)
                if stalls.longest > STALL_SECONDS:
                    held[named(attempt)] = f"{stalls.longest:.3f} {stalls.what[:200]}"
    assert held == {}


@pytest.mark.costly
async def test_a_plan_that_a_process_has_not_seen_is_made_beside_its_loop(make: Make) -> None:
    source = next(each.source for each in ATTEMPTS if each.name == "six thousand steps").encode()
    first = await make()
    with stalls_measured() as stalls:
        stored, _ = await first.catalog.publish(LOCAL_TENANT, source)
        assert stalls.longest < 0.5, stalls.what  # what is left looks at each step once
    second = await make()
    with stalls_measured() as stalls:
        plans = await asyncio.gather(*(second.catalog.plan(LOCAL_TENANT, stored.sha256) for _ in range(3)))
        assert stalls.longest < STALL_SECONDS, stalls.what
    assert plans[0] is plans[1] is plans[2]


async def test_threads_beside_the_loop_take_short_turns_while_any_of_them_works() -> None:
    usual = sys.getswitchinterval()
    begun, go_on = threading.Event(), threading.Event()

    def work() -> float:
        begun.set()
        assert go_on.wait(60)
        return sys.getswitchinterval()

    checks = asyncio.create_task(compiling.Checks().make("ann", work))
    assert await asyncio.to_thread(begun.wait, 60)
    assert await compiling.make(sys.getswitchinterval) == pytest.approx(TURN_SECONDS)
    go_on.set()
    assert await checks == pytest.approx(TURN_SECONDS)
    with pytest.raises(ZeroDivisionError):
        await compiling.make(divmod, 1, 0)
    assert sys.getswitchinterval() == pytest.approx(usual)


async def test_tenants_come_to_a_thread_beside_the_loop_in_turns() -> None:
    """The second of two tenants waits for one piece of the first one's, and not for all that it has."""
    order: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def stand() -> bool:
        begun.set()
        return go_on.wait(60)

    async def work_for(tenant: str, *pieces: str) -> None:
        WORK_FOR.set(tenant)
        await asyncio.gather(*(run_beside_loop(order.append, piece) for piece in pieces))

    standing = asyncio.create_task(run_beside_loop(stand))
    assert await asyncio.to_thread(begun.wait, 60)
    waiting = [asyncio.create_task(work_for("a", "a0", "a1", "a2", "a3"))]
    waiting += [asyncio.create_task(work_for("b", "b0", "b1")), asyncio.create_task(work_for("c", "c0"))]
    dropped = asyncio.create_task(work_for("d", "d0"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    dropped.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(standing, *waiting)
    assert order == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]


@pytest.mark.costly
async def test_a_caller_has_a_bounded_number_of_documents_checked(make: Make) -> None:
    runtime = await make()
    transport = httpx2.ASGITransport(app=create_app(Settings(), runtime), client=("127.0.0.1", 1))
    source = next(each.source for each in ATTEMPTS if each.name == "a thousand expressions")
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60) as client:
        asked = [client.post("/v1/workflows/validate", content=source, headers=YAML) for _ in range(20)]
        answers = await asyncio.gather(*asked)
        statuses = sorted(each.status_code for each in answers)
        assert statuses == [200] * 8 + [429] * 12
        refused = next(each for each in answers if each.status_code == 429)
        assert refused.json()["code"] == "checks_busy"
        assert refused.headers["Retry-After"] == "1"
        again = await client.post("/v1/workflows/validate", content=source, headers=YAML)
        assert again.status_code == 200


_VALUES: Final = st.recursive(
    st.integers(-5, 5) | st.text(max_size=20) | st.none(),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.sampled_from("abcx"), inner, max_size=4),
    max_leaves=200,
)


@given(
    st.sampled_from([schema for schema, _ in SCHEMAS.values()]),
    st.sampled_from(["allOf", "anyOf", "not", "items", "properties", "if"]),
    _VALUES,
)
@settings(max_examples=examples(60))
@pytest.mark.costly
def test_no_value_is_held_for_long_against_what_was_taken(schema: dict[str, Any], keyword: str, value: Any) -> None:
    from hai_flow.definition.schemas.schemas import JsonSchema

    inner: Any = {"a": schema} if keyword == "properties" else [schema] if keyword in ("allOf", "anyOf") else schema
    raw = {keyword: inner, **({"$defs": schema["$defs"]} if "$defs" in schema else {})}
    begun = time.thread_time()
    with suppress(ValueError):
        JsonSchema(raw).findings(value)
    assert time.thread_time() - begun < 0.2  # with the first compilation


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_that_is_taken_is_evaluated_in_time(name: str) -> None:
    from hai_flow.definition.expressions.expression_error import ExpressionError, Faults
    from hai_flow.definition.expressions.expressions import compile_expression
    from tests.definition.support import names

    source, _ = EXPRESSIONS[name]
    try:
        expression = compile_expression(source, names())
    except Faults:
        return
    times = []
    for _ in range(3):
        begun = time.thread_time()
        with suppress(ExpressionError):
            expression.evaluate({"input": {}})
        times.append(time.thread_time() - begun)
    assert min(times) < 0.1


def test_the_page_counts_what_is_tried() -> None:
    assert len(ATTEMPTS) >= 150
    assert section_of_work() in PAGE.read_text()


@pytest.mark.costly
def test_the_page_counts_the_attempts_of_each_class() -> None:
    """A page that is older than a new attempt says too little, which is no reason for anybody to stop."""
    written = PAGE.read_text().split(CLASSES_BEGIN)[1].split(CLASSES_END)[0]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in written.splitlines()[2:]]
    assert [(name, rule) for name, _, rule in rows] == [(name, each.rule) for name, each in CLASSES.items()]
    now = counted()
    assert [(name, count) for name, count, _ in rows if int(count) > now[name]] == []
    assert sum(int(count) for _, count, _ in rows) >= 1_000
