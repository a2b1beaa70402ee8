"""Files of a run: read and made by its tools, given back to those who see it, cleared away behind nobody's back."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from hai_flow.engine import commands as c
from hai_flow.errors import Rejected, StepError
from hai_flow.primitives import file_ids
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.steps.files import extract_files, put_in
from hai_flow.store.messaging import message_queue, signals
from tests.runtime.conftest import ASKING, HEAD, Connection, Make, ended, is_now, start, state_of
from tests.support import effects
from tests.support.values import require
from tests.support.waiting import until

UNKNOWN = "file_" + "0" * 64
NO_ANSWER = c.Answer(answers=(), by=c.LOCAL_PRINCIPAL)
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
    return file_ids.file_id(file.sha256)


async def held(runtime: Runtime, id: str, principal: str) -> tuple[str, str, bytes] | None:
    found = await runtime.files.find(LOCAL_TENANT, principal, file_ids.sha256_of_file(id))
    if found is None:
        return None
    return found.name, found.media_type, b"".join([piece async for piece in runtime.files.read(found)])


async def test_tools_read_files_of_their_run_and_make_others_for_its_readers(make: Make) -> None:
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


READS = """
input: {type: object, properties: {scan: {type: string}}}
tools: {leaks: {python: tests.support.leaks, effect: read}}
%ssteps:
  - {id: back, call: leaks.drawn_in_a_thread, with: {like: "${{ input.scan }}"}}
output: ${{ steps.back.output }}
"""
SCANNING = "input: {type: object, properties: {scan: {type: string}}}\nsteps:\n  - {id: k, %s}\n"


async def published(runtime: Runtime, name: str, body: str) -> None:
    await runtime.catalog.publish(LOCAL_TENANT, (HEAD.format(name=name) + body).encode())


async def used(runtime: Runtime) -> str:
    """A file of Ann's that a run of her thread refers to."""
    run_id, id = uuid4(), await upload(runtime, uuid4().bytes)
    await runtime.files.use(LOCAL_TENANT, "user:ann", run_id, id.encode())
    state = await ended(runtime, (await start(runtime, FLOW, run_id=run_id, input={"scan": id})).run_id)
    assert state.status == "finished"
    return id


async def reader_of(runtime: Runtime, id: str) -> UUID | None:
    query = "SELECT id FROM runs WHERE workflow_name = 'reads' AND convert_from(input, 'utf8') LIKE $1"
    return await runtime.database.api.fetchval(query, f"%{id}%")


async def run_of(runtime: Runtime, workflow: str) -> Any:
    """The newest run of the workflow, as it ended."""

    async def found() -> list[Any]:
        query = "SELECT id FROM runs WHERE workflow_name = $1 ORDER BY created_at DESC"
        return await runtime.database.api.fetch(query, workflow)

    (row, *_) = await until(found)
    return await ended(runtime, row["id"])


async def test_a_run_reads_no_file_that_only_runs_of_other_threads_refer_to(make: Make) -> None:
    runtime = await runtime_of(make)
    id = await used(runtime)
    state = await ended(runtime, (await start(runtime, FLOW, input={"scan": id})).run_id)
    assert (state.error.code, state.error.path) == ("step.file_unknown", "up")


async def test_a_later_run_of_the_thread_reads_what_was_said_before(make: Make) -> None:
    runtime, run_id, id = await runtime_of(make), uuid4(), ""
    id = await upload(runtime, b"abc")
    await runtime.files.use(LOCAL_TENANT, "user:ann", run_id, id.encode())
    await ended(runtime, (await start(runtime, FLOW, run_id=run_id, thread="t", input={"scan": id})).run_id)
    assert (await ended(runtime, (await start(runtime, FLOW, thread="t", input={"scan": id})).run_id)).error is None


@pytest.mark.parametrize("more", ["", ", detach: true"])
async def test_a_run_gives_its_files_to_those_that_it_runs_and_no_others(make: Make, more: str) -> None:
    runtime = await runtime_of(make)
    await published(runtime, "reads", READS % "")
    body = SCANNING % ('run: reads, with: {scan: "${{ input.scan }}"}' + more)
    run_id, id = uuid4(), await upload(runtime, b"abc")
    await runtime.files.use(LOCAL_TENANT, "user:ann", run_id, id.encode())
    await ended(runtime, (await start(runtime, body, run_id=run_id, input={"scan": id})).run_id)
    assert (await run_of(runtime, "reads")).error is None
    others = await used(runtime)
    await ended(runtime, (await start(runtime, body, input={"scan": others})).run_id)
    assert require((await run_of(runtime, "reads")).error).code == "step.file_unknown"


async def test_a_run_gives_its_files_to_those_that_its_end_starts_and_no_others(make: Make) -> None:
    runtime = await runtime_of(make)
    await published(runtime, "scans", SCANNING % "say: hi")
    trigger = "triggers:\n  - run: {workflow: scans, input: {scan: '${{ event.data.input.scan }}'}}\n"
    await published(runtime, "reads", READS % trigger)
    for own in (True, False):
        run_id, id = runtime.starts.new_id(), await used(runtime)
        if own:
            await runtime.files.use(LOCAL_TENANT, "user:ann", run_id, id.encode())
        _, plan = await runtime.catalog.resolve_startable(LOCAL_TENANT, "scans")
        begin = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:ann", input={"scan": id})
        await runtime.starts.start(LOCAL_TENANT, plan, begin)

        follower = require(await until(partial(reader_of, runtime, id)))
        state = await ended(runtime, follower)
        assert (state.error is None) is own, state.error


async def test_an_event_gives_its_files_to_those_that_take_it(make: Make, eye: Connection) -> None:
    runtime = await runtime_of(make)
    await published(runtime, "reads", READS % "triggers:\n  - event: {type: scanned}\n")
    waits = (READS % "").replace("steps:\n", "steps:\n  - {id: w, wait_for: {event: scanned, deadline: 1h}}\n")
    waiting = (await start(runtime, waits.replace("input.scan", "steps.w.output.data.scan"))).run_id
    await until(lambda: is_now(runtime, waiting, "waiting"))
    id = await upload(runtime, b"abc")
    for principal, allowed in (("user:bob", False), ("user:ann", True)):
        with contextlib.nullcontext() if allowed else pytest.raises(Rejected, match="there is no file"):
            await runtime.files.demand(LOCAL_TENANT, principal, f'"{id}"'.encode())
    later = await upload(runtime, b"for a step to come")
    await runtime.triggers.receive_event(LOCAL_TENANT, "e0", "noted", {"see": f"files:\n{later}"})
    received = await runtime.triggers.receive_event(LOCAL_TENANT, "e1", "scanned", {"scan": id})
    assert received.started[0].run_id is not None
    for run_id in (received.started[0].run_id, waiting):
        assert (await ended(runtime, run_id)).error is None
    await eye.execute("UPDATE files SET touched_at = now() - interval '8 days'")
    await signals.delete_old_signals(runtime.database.api)
    await runtime.files.tidy(timedelta(0))
    for each in (id, later):
        assert await held(runtime, each, "user:ann") is not None


async def test_bytes_among_the_parts_of_an_output_become_files_of_the_run(make: Make) -> None:
    runtime = await runtime_of(make)
    run_id = (await start(runtime, "steps: [{say: hi}]\n")).run_id
    files = runtime.files.run_files(LOCAL_TENANT, run_id)
    data = {"type": "data", "value": "aGk=", "mimeType": "image/png", "filename": "x.png"}
    text = {"type": "text", "text": "See"}
    text_again, image = await put_in(*extract_files([text, {"type": "image", "source": data}], 2), files)
    assert text_again == text
    assert (image["type"], image["metadata"]) == ("image", {"filename": "x.png"})
    assert await held(runtime, image["source"]["value"], "user:bob") == ("x.png", "image/png", b"hi")
    assert await put_in(*extract_files({"n": 1}, 0), files) == {"n": 1}
    for value in ("a b", 5):  # what only looks like bytes stays: it was performed
        odd = [{"type": "image", "source": {**data, "value": value}}]
        assert extract_files(odd, 9) == (odd, {})
    with pytest.raises(StepError, match="more than 1 bytes"):
        extract_files([{"type": "image", "source": data}], 1)


async def test_what_a_file_held_goes_with_it_when_it_is_cleared_away(make: Make, eye: Connection) -> None:
    runtime = await runtime_of(make)
    id = await upload(runtime, b"unused")
    await eye.execute("UPDATE files SET touched_at = now() - interval '8 days'")
    await runtime.files.tidy(timedelta(0))
    assert await held(runtime, id, "user:ann") is None
    for table in ("blobs", "files", "uploads", "file_leftovers"):
        assert await eye.fetchval(f"SELECT count(*) FROM {table}") == 0, table


async def test_the_file_of_a_message_that_waits_for_its_turn_is_kept(make: Make, eye: Connection) -> None:
    runtime = await runtime_of(make)
    id = await upload(runtime, b"for later")
    first = (await start(runtime, "on_message: enqueue\n" + ASKING)).run_id
    state, run_id = await state_of(runtime, first), uuid4()
    begin = c.Start(run_id=run_id, thread_id=state.thread_id, requester="user:ann", input={"file": id}, message="m")
    await runtime.files.use_all(LOCAL_TENANT, "user:ann", run_id, begin, None)
    by, workflow = AuditActor(who=c.Principal("user:ann"), way="local"), bytes.fromhex(state.sha256)
    await runtime.messages.add(LOCAL_TENANT, workflow, begin, by, command_id=f"wire:{run_id}", body_sha=b"b" * 32)
    await eye.execute("UPDATE files SET touched_at = now() - interval '8 days'")  # the run before waits for a person
    await runtime.files.tidy(timedelta(0))
    assert await held(runtime, id, "user:ann") is not None
    await message_queue.refuse(eye, LOCAL_TENANT, run_id, Rejected(410, "message_withdrawn", "not any more"))
    await eye.execute("UPDATE sweeps SET due_at = now()")
    await runtime.files.tidy(timedelta(0))
    assert await held(runtime, id, "user:ann") is None, "nobody waits with it any more"


@pytest.mark.parametrize(
    "command",
    [
        c.Answer(answers=(), by=c.LOCAL_PRINCIPAL, state={"x": UNKNOWN}),
        c.Skip(by="user:ann", path="a", output=[UNKNOWN]),
        c.Fork(run_id=uuid4(), of=uuid4(), events=(), answer=NO_ANSWER, edits=c.Edits(input={"x": UNKNOWN})),
        c.Fork(run_id=uuid4(), of=uuid4(), events=(), answer=NO_ANSWER, edits=c.Edits(state={"x": UNKNOWN})),
        c.Start(run_id=uuid4(), thread_id="t", requester="user:ann", input={"x": f"see {UNKNOWN}!"}),
    ],
    ids=["state", "skip", "fork-input", "fork-state", "start"],
)
async def test_whatever_the_command_a_file_that_is_not_there_is_refused(make: Make, command: c.Command) -> None:
    runtime = await runtime_of(make)
    with pytest.raises(Rejected) as refused:
        await runtime.files.use_all(LOCAL_TENANT, "user:ann", uuid4(), command, None)
    assert (refused.value.status, refused.value.code) == (404, "file_unknown")
