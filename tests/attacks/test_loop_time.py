"""Whatever authors, servers and requesters write, at whatever door: nothing of it is worked on for longer than 50 ms of
processor time in one go on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hai_flow.api.app import create_app
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.definition.tools.openapi import ApiDocument, UnusableDocument
from hai_flow.errors import Rejected, StepError
from hai_flow.models.structured import read_answer_by_size
from hai_flow.runtime.messaging.callbacks import demand_fit
from hai_flow.settings import Settings
from hai_flow.steps.http.tools import fit_arguments
from hai_flow.steps.mcp.results import check_output_by_size
from tests.attacks.work import DOCUMENTS, EXPRESSIONS, HEAD, PLACES, SAY, SCHEMAS
from tests.definition.test_schema_work import DIGITS, EXPLAINED, VALUES
from tests.runtime.conftest import Make
from tests.support.examples import examples, sample
from tests.support.hai_client import unique
from tests.support.server import YAML, expect
from tests.support.stalls import STALL_SECONDS, Stalls, stalls_measured
from tests.support.waiting import until

JSON: Final = {"Content-Type": "application/json"}
BYTES_MAX: Final = 950_000  # of a value: a body has at most 1 MiB

_ID: Final = re.compile(rb'"id":"([^"]*)"')  # of a run, which stands before its input; all of it is not read,
_ENDED: Final = re.compile(rb'"status":"(finished|failed)"')  # since the test's own work is on the same loop

# --- what is thrown ---------------------------------------------------------------------------------------------------

_LEAVES: Final[dict[str, Any]] = {
    "an integer": 1,
    "a number": 1.5,
    "a large number": 1e300,
    "a whole number": 7.0,
    "a text": "ab01",
    "digits": str(10**20),
    "almost a file": "\nfile_" + "a" * 63,
    "nothing": None,
    "an object": {"a": 1},
    "a pair": [1, 2.5],
    "fifteen numbers": [each + 0.5 for each in range(15)],
    "fifty names": {f"p{each}": each for each in range(50)},
    "lists in lists": [[[]]],
}
_SHAPES: Final[dict[str, Callable[[Any, int], Any]]] = {
    "a list": lambda leaf, count: [leaf] * count,
    "an object": lambda leaf, count: {f"k{number}": leaf for number in range(count)},
    "rows": lambda leaf, count: [{f"c{number}": leaf for number in range(10)} for _ in range(count // 10 + 1)],
    "lists": lambda leaf, count: [[leaf] * 8 for _ in range(count // 8 + 1)],
    "a text": lambda leaf, count: "ab" * (count // 2),
    "different ones": lambda leaf, count: [[number, leaf] for number in range(count)],
}


def values_() -> st.SearchStrategy[Any]:
    """Values as large as a body may be, or much smaller."""

    def make(shape: str, leaf: str, share: int) -> Any:
        one = len(json.dumps(_SHAPES[shape](_LEAVES[leaf], 1_000))) / 1_000
        return _SHAPES[shape](_LEAVES[leaf], max(1, int(BYTES_MAX / one) // share))

    return st.builds(make, st.sampled_from([*_SHAPES]), st.sampled_from([*_LEAVES]), st.sampled_from([1, 1, 4, 30]))


_KEYWORDS: Final[list[dict[str, Any]]] = [
    {"type": "integer"},
    {"minimum": 0.5},
    {"exclusiveMaximum": 10**30},
    {"multipleOf": 0.01},
    {"multipleOf": 1e-300},
    {"const": 1.5},
    {"const": {"a": [1.5] * 10}},
    {"enum": [number + 0.5 for number in range(300)]},
    {"enum": list(range(1_000))},
    {"enum": [{"a": number} for number in range(300)]},
    {"enum": [f"s{number}" for number in range(1_000)]},
    {"uniqueItems": True},
    {"required": [f"c{number}" for number in range(300)]},
    {"dependentRequired": {f"p{one}": [f"p{two}" for two in range(50)] for one in range(50)}},
    {"pattern": "^[01]*1[01]{10}$"},
    {"pattern": r"(?=a)(ab)+\d"},
    {"format": "idn-email"},
    {"minLength": 2},
    {"anyOf": [{"properties": {f"p{number}": {}}} for number in range(50)], "unevaluatedProperties": False},
    {"anyOf": [{"prefixItems": [{}] * 5}] * 20, "unevaluatedItems": False},
    {"contains": {"const": 2.5}, "minContains": 0},
    {"properties": {f"c{number}": {"default": {"x": 1}} for number in range(10)}},
    {"patternProperties": {"^(k|c)[0-9]+$": {"type": "string"}}},
    {"propertyNames": {"maxLength": 1}},
]
_WHOLES: Final = [
    *[schema for schema, _ in SCHEMAS.values()],
    *[schema for group in (VALUES, EXPLAINED, DIGITS) for schema, _ in group.values()],
]


def schemas_() -> st.SearchStrategy[dict[str, Any]]:
    """Schemas whose keyword meets each part of a value, many times; and those that are known to be hostile."""

    def make(keywords: list[dict[str, Any]], times: int, depth: int, join: str) -> dict[str, Any]:
        inner: dict[str, Any] = {join: [dict(each) for each in keywords for _ in range(times)]}
        for _ in range(depth):
            inner = {"items": inner, "additionalProperties": inner}
        return inner

    joins = st.sampled_from(["allOf", "anyOf", "oneOf"])
    made = st.builds(
        make, st.lists(st.sampled_from(_KEYWORDS), min_size=1, max_size=3), st.sampled_from([1, 5, 100]),
        st.integers(0, 2), joins,
    )  # fmt: skip
    return made | st.sampled_from(_WHOLES)


# --- the doors --------------------------------------------------------------------------------------------------------


class Door:
    """A server in this process, and what is thrown at it. What it takes to make that is not measured."""

    def __init__(self, client: httpx2.AsyncClient, data: st.DataObject, stalls: Stalls) -> None:
        self.client = client
        self.longest, self.what = 0.0, ""
        self._data, self._stalls = data, stalls

    async def draw(self, strategy: st.SearchStrategy[Any], make: Callable[[Any], Any] = lambda drawn: drawn) -> Any:
        """Something that the strategy gives, made into what is sent."""
        await self.measure()
        made = make(self._data.draw(strategy))
        await asyncio.sleep(0)
        self._stalls.forget()
        return made

    async def measure(self) -> None:
        """Note the longest piece of work up to here."""
        await asyncio.sleep(0)
        if self._stalls.longest > self.longest:
            self.longest, self.what = self._stalls.longest, self._stalls.what
        self._stalls.forget()

    async def publish(self, text: str) -> str | None:
        """The name of the workflow, None where the document is refused."""
        name = unique("w").replace("-", "_")
        text = text.replace("name: work", f"name: {name}")
        answer = expect(await self.client.post("/v1/workflows", content=text.encode(), headers=YAML), 201, 413, 422)
        return name if answer.status_code == 201 else None

    async def start(self, name: str, input: str = "{}") -> str | None:
        content = f'{{"workflow": "{name}", "input": {input}}}'.encode()
        answer = expect(await self.client.post("/v1/runs", content=content, headers=JSON), 201, 413, 422)
        return _ID.findall(answer.content)[0].decode() if answer.status_code == 201 else None


async def a_document(door: Door) -> None:
    in_places = st.builds(lambda place, schema: PLACES[place](schema), st.sampled_from([*PLACES]), schemas_())
    text = await door.draw(st.sampled_from([source for source, _ in DOCUMENTS.values()]) | in_places)
    await door.client.post("/v1/workflows/validate", content=text, headers=YAML)
    await door.publish(text)


async def a_start(door: Door) -> None:
    schema = await door.draw(schemas_(), _below_x)
    name = await door.publish(HEAD + f"input: {schema}" + SAY)
    if name is not None:
        await door.start(name, await door.draw(values_(), _at_x))


async def a_form(door: Door) -> None:
    form = await door.draw(schemas_(), _below_x)
    name = await door.publish(HEAD + f"steps: [{{id: a, ask: {{title: Hm, from: anyone, form: {form}}}}}]\n")
    if name is None or (run := await door.start(name)) is None:
        return

    async def list_pendings() -> list[Any]:
        return list((await door.client.get("/v1/pendings", params={"run_id": run})).json()["items"])

    await until(list_pendings)
    (pending,) = await list_pendings()
    content = await door.draw(values_(), lambda value: f'{{"values": {_at_x(value)}}}'.encode())
    await door.client.post(f"/v1/pendings/{pending['id']}/decide", content=content, headers=JSON)


async def a_text_of_a_model(door: Door) -> None:
    if (schema := await _compiled(door)) is not None:
        await _beside_others(read_answer_by_size, await door.draw(values_(), json.dumps), schema)


async def a_result_of_a_server(door: Door) -> None:
    if (schema := await _compiled(door)) is not None:
        await _beside_others(check_output_by_size, await door.draw(values_()), schema, "says", 2**20)


async def a_callback(door: Door) -> None:
    if (schema := await _compiled(door)) is not None:
        await _beside_others(demand_fit, await door.draw(values_()), schema)


async def arguments_of_an_operation(door: Door) -> None:
    content = {"content": {"application/json": {"schema": await door.draw(schemas_())}}}
    document = ApiDocument({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"},
        "paths": {"/a": {"post": {"operationId": "a", "requestBody": content}}},
    })  # fmt: skip
    try:
        operation = await asyncio.to_thread(document.find, "a")
    except UnusableDocument:
        return
    await _beside_others(fit_arguments, operation, {"body": await door.draw(values_())})


async def an_expression(door: Door) -> None:
    """A condition, over a value as large as an input may be."""
    loops = ["input.x.map(a, a)", "input.x.filter(a, a == a)", "input.x.sort_by(a, string(a))", "input.x == input.x"]
    loops += ["input.x.group_by(a, string(a))", "string(input.x).matches('^(a+)+$')", "input.x.exists(a, a == 'x')"]
    source = await door.draw(st.sampled_from([*[source for source, _ in EXPRESSIONS.values()], *loops]))
    step = json.dumps({"say": "${{ " + source + " }}"})
    name = await door.publish(HEAD + f"input: {{type: object, properties: {{x: {{}}}}}}\nsteps: [{step}]\n")
    if name is not None and (run := await door.start(name, await door.draw(values_(), _at_x))) is not None:
        await until(lambda: _has_ended(door, run))


LOOPS: Final = (
    "size(X.map(a, a)) >= 0", "size(X.filter(a, true)) >= 0", "size(X.sort_by(a, string(a))) >= 0", "X == X",
    "size(X.group_by(a, string(a))) >= 0", "X.exists(a, string(a).matches('(ab){1,200}q'))", "X.sum() > 1.0",
    "X.exists(a, string(a).matches('(?i)[\\\\pL]{1,200}q'))", "X.map(a, [a, a]).map(a, [a, a]).size() >= 0",
    "X.exists(a, format_time(now, string(a), 'Europe/Berlin') == '')", "X.map(a, string(a)).join(',') == ''",
    "X.map(a, X.map(b, a)).size() >= 0", "X.exists(a, 'ab'.matches(string(a) + '{1,400}'))", "string(X[0]) == ''",
)  # fmt: skip
"""Conditions over `X`, which take long where that has thousands of items, or of any size."""


def small_values_() -> st.SearchStrategy[Any]:
    """Lists that are no large values: they are read and decided on the loop."""
    leaves = st.sampled_from([1, 1.5, "ab", {"a": 1}, [1, 2], {"name": "ab", "sum": 7, "ok": True}, "\\pL{1,99}", []])
    return st.builds(
        lambda leaf, bytes: [leaf] * (bytes // len(json.dumps([leaf]))), leaves, st.sampled_from([20_000, 60_000])
    )


async def an_expression_over_a_small_value(door: Door) -> None:
    """Many conditions of one run, over a value that is read on the loop."""
    conditions = await door.draw(st.lists(st.sampled_from(LOOPS), min_size=1, max_size=4, unique=True))
    texts = [json.dumps(each.replace("X", "input.x")) for each in conditions]
    steps = "".join(f"  - {{if: {text}, say: hi}}\n" for text in texts * 5)
    name = await door.publish(HEAD + "input: {type: object, properties: {x: {}}}\nsteps:\n" + steps)
    if name is not None and (run := await door.start(name, await door.draw(small_values_(), _at_x))) is not None:
        await until(lambda: _has_ended(door, run))


async def an_event(door: Door) -> None:
    """An event that starts runs of workflows whose triggers look at all of it."""
    type, (match, key) = unique("e"), await door.draw(st.tuples(st.sampled_from(LOOPS), st.sampled_from(LOOPS)))
    rule = {
        "type": type,
        "match": match.replace("X", "event.data"),
        "dedupe": f"${{{{ {key.replace('X', 'event.data')} }}}}",
    }
    name = await door.publish(f"{HEAD}triggers: [{{event: {json.dumps(rule)}}}]{SAY}")
    if name is not None:
        made = small_values_() | values_().filter(lambda value: isinstance(value, list))
        content = await door.draw(made, lambda data: json.dumps({"type": type, "data": data}).encode())
        answer = await door.client.post("/v1/events", content=content, headers=JSON)
        assert answer.status_code < 500, answer.text


async def many_runs(door: Door) -> None:
    """Starts that come at once, and are decided in one batch."""
    condition = json.dumps((await door.draw(st.sampled_from(LOOPS))).replace("X", "input.x"))
    head = HEAD + "input: {type: object, properties: {x: {}}}\n"
    name = await door.publish(f"{head}steps: [{{if: {condition}, say: hi}}]\n")
    if name is not None:
        input = await door.draw(st.just([1] * 1_000), _at_x)
        await asyncio.gather(*(door.start(name, input) for _ in range(8)))


async def a_template(door: Door) -> None:
    """A text and a list of very many holes."""
    hole, kind = await door.draw(st.tuples(st.sampled_from(["input.x", "size(input.x)", "input.x[0]"]), st.booleans()))
    holes = ["${{ " + hole + " }}"] * 3_000
    step = {"let": {"v": holes}} if kind else {"say": " ".join(holes)}
    name = await door.publish(f"{HEAD}input: {{type: object, properties: {{x: {{}}}}}}\nsteps: [{json.dumps(step)}]\n")
    if name is not None and (run := await door.start(name, await door.draw(small_values_(), _at_x))) is not None:
        await until(lambda: _has_ended(door, run))


async def a_pattern(door: Door) -> None:
    pattern = await door.draw(st.text(alphabet="ab()[]{}|*+?^$\\1,09.", min_size=1, max_size=40))
    schema = {"type": "object", "properties": {"x": {"items": {"pattern": pattern}, "pattern": pattern}}}
    name = await door.publish(HEAD + "input: " + json.dumps(schema) + SAY)
    if name is not None:
        await door.start(name, await door.draw(values_(), _at_x))


DOORS: Final[list[Callable[[Door], Awaitable[None]]]] = [
    a_document, a_start, a_form, a_text_of_a_model, a_result_of_a_server, a_callback, arguments_of_an_operation,
    an_expression, an_expression_over_a_small_value, an_event, many_runs, a_template, a_pattern,
]  # fmt: skip


async def _has_ended(door: Door, run: str) -> bool:
    return _ENDED.search((await door.client.get(f"/v1/runs/{run}")).content) is not None


def _below_x(inner: dict[str, Any]) -> str:
    """The schema of an object with it as `x`, as text. References count from the top of the whole."""
    above = {key: inner[key] for key in ("$defs", "$dynamicAnchor") if key in inner}
    return json.dumps({"type": "object", "properties": {"x": inner}} | above)


def _at_x(value: Any) -> str:
    return json.dumps({"x": value})


async def _compiled(door: Door) -> JsonSchema | None:
    """A schema as it is compiled with its plan, or where the list of a server is read: beside the loop."""
    try:
        return await door.draw(schemas_(), JsonSchema)
    except ValueError:
        return None


async def _beside_others(function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
    with contextlib.suppress(StepError, Rejected):
        await asyncio.create_task(function(*args))


@pytest.fixture
def stalls() -> Iterator[Stalls]:
    """Without the collector of cycles, whose time depends on all that a process has ever made."""
    gc.collect()
    gc.disable()
    try:
        with stalls_measured() as stalls:
            yield stalls
    finally:
        gc.enable()


@pytest.fixture
async def client(make: Make) -> AsyncIterator[httpx2.AsyncClient]:
    runtime = await make(performs=True)
    transport = httpx2.ASGITransport(app=create_app(Settings(publish=True), runtime), client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60) as client:
        for text in (HEAD + SAY, HEAD + "steps: []\n"):  # the first of each kind imports what it needs
            await client.post("/v1/workflows/validate", content=text.encode(), headers=YAML)
        yield client


@pytest.mark.timeout(900)
@pytest.mark.parametrize("door", sample(DOORS, 4), ids=lambda door: door.__name__)
@given(data=st.data())
@settings(
    max_examples=examples(5), deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
async def test_nothing_that_others_wrote_is_worked_on_for_long_in_one_go(
    client: httpx2.AsyncClient, stalls: Stalls, door: Callable[[Door], Awaitable[None]], data: st.DataObject
) -> None:
    opened = Door(client, data, stalls)
    stalls.forget()
    await door(opened)
    await opened.measure()
    assert opened.longest < STALL_SECONDS, opened.what
