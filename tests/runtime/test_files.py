"""Files of a run: read and made by its tools, given back to those who see it, cleared away behind nobody's back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from hai_flow import values
from hai_flow.errors import StepError
from hai_flow.runtime import LOCAL_TENANT, Runtime
from hai_flow.steps.files import put_in, taken_out
from tests.runtime.conftest import Connection, Make, is_now, start, state_of
from tests.support import effects
from tests.support.waiting import until

FLOW = """
input: {type: object, properties: {scan: {type: string}}}
tools: {leaks: {python: tests.support.leaks, effect: read}}
steps:
  - {id: up, call: leaks.drawn, with: {like: "${{ input.scan }}"}}
  - {id: back, call: leaks.drawn_in_a_thread, with: {like: "${{ steps.up.output.source.value }}"}}
output: {part: "${{ steps.up.output }}", id: "${{ steps.back.output }}"}
"""


async def runtime_of(make: Make) -> Runtime:
    return await make(performs=True, tools=(*effects.MODULES, "tests.support.leaks"))


async def upload(runtime: Runtime, body: bytes, name: str = "a.txt") -> str:
    async def pieces() -> AsyncIterator[bytes]:
        yield body

    file = await runtime.files.take(LOCAL_TENANT, "user:ann", pieces(), name=name, media_type="text/plain")
    return values.file_id(file.sha256)


async def ended(runtime: Runtime, run_id: UUID) -> Any:
    await until(lambda: is_now(runtime, run_id, "finished", "failed"))
    return await state_of(runtime, run_id)


async def held(runtime: Runtime, id: str, principal: str) -> tuple[str, str, bytes] | None:
    found = await runtime.files.find(LOCAL_TENANT, principal, values.sha256_of_file(id))
    if found is None:
        return None
    return found.name, found.media_type, b"".join([piece async for piece in runtime.files.read(found)])


async def test_tools_read_the_files_of_their_run_and_make_others_that_those_who_see_it_read(make: Make) -> None:
    runtime, run_id = await runtime_of(make), uuid4()
    id = await upload(runtime, b"abc")
    await runtime.files.use(LOCAL_TENANT, "user:ann", run_id, id.encode())
    state = await ended(runtime, (await start(runtime, FLOW, run_id=run_id, input={"scan": id})).run_id)
    assert state.status == "finished", state.error
    part = state.output["part"]
    assert part["type"] == "document"
    assert part["source"]["mimeType"] == "application/octet-stream", "what no header takes is no media type"
    made = await held(runtime, part["source"]["value"], "user:bob")
    assert made == ("a.txt\ufffd2", "application/octet-stream", b"ABC")
    assert await held(runtime, state.output["id"], "user:bob") == ("back.txt", "text/plain", b"CBA")


async def test_a_tool_reads_no_file_that_no_run_refers_to(make: Make) -> None:
    runtime = await runtime_of(make)
    id = await upload(runtime, b"anns own")
    state = await ended(runtime, (await start(runtime, FLOW, input={"scan": id})).run_id)
    assert (state.error.code, state.error.path) == ("step.file_unknown", "up")


async def test_bytes_among_the_parts_of_an_output_become_files_of_the_run(make: Make) -> None:
    runtime = await runtime_of(make)
    run_id = (await start(runtime, "steps: [{say: hi}]\n")).run_id
    files = runtime.files.of_run(LOCAL_TENANT, run_id)
    data = {"type": "data", "value": "aGk=", "mimeType": "image/png", "filename": "x.png"}
    text = {"type": "text", "text": "See"}
    text_again, image = await put_in(*taken_out([text, {"type": "image", "source": data}], 2), files)
    assert text_again == text
    assert (image["type"], image["metadata"]) == ("image", {"filename": "x.png"})
    assert await held(runtime, image["source"]["value"], "user:bob") == ("x.png", "image/png", b"hi")
    assert await put_in(*taken_out({"n": 1}, 0), files) == {"n": 1}
    for value, bytes_max, why in (
        ("a b", 9, "not in Base64"),
        (5, 9, "not in Base64"),
        ("aGk=", 1, "more than 1 bytes"),
    ):
        with pytest.raises(StepError, match=why):
            taken_out([{"type": "image", "source": {**data, "value": value}}], bytes_max)


async def test_what_a_file_held_goes_with_it_when_it_is_cleared_away(make: Make, eye: Connection) -> None:
    runtime = await runtime_of(make)
    id = await upload(runtime, b"unused")
    await eye.execute("UPDATE files SET touched_at = now() - interval '8 days'")
    await runtime.files.tidy(timedelta(0))
    assert await held(runtime, id, "user:ann") is None
    for table in ("blobs", "files", "uploads", "file_leftovers"):
        assert await eye.fetchval(f"SELECT count(*) FROM {table}") == 0, table
