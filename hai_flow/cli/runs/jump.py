"""`jump`: time passes at once for a run of a development server, so that its deadlines can be tried out."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from hai_flow.cli.client.rest import ActingOptions, Server
from hai_flow.cli.errors import UsageError
from hai_flow.cli.options import RunArgument
from hai_flow.cli.terminal import note, program, roughly, say
from hai_flow.definition.names.durations import NotADuration, milliseconds
from hai_flow.values import Json

POLL_SECONDS: Final = 0.25


def jump(
    run: RunArgument,
    duration: Annotated[str, typer.Argument(metavar="DURATION", help="How much time passes: 2d, 1h30m, PT5M.")],
    remote: ActingOptions,
) -> None:
    """Let time pass at once for the waits of a run: deadlines, escalations, timers. For runs of a `dev` server."""
    try:
        ms = milliseconds(duration, shortest=1)
    except NotADuration as error:
        raise UsageError(f"DURATION: {error}.") from None
    result = remote.ask_and_print(lambda api: _let_pass(api, run, ms))
    if remote.as_json:
        return
    say(f"{roughly(result['passed_ms'])} have passed for run {result['id']}: {result['status']}")
    for child in result["children"]:
        note(f"Its child run {child} has a clock of its own: {program()} jump {child} {duration}")


async def _let_pass(api: Server, run: str, ms: int) -> Json:
    """Let `ms` pass for the run, and real time whenever it works. Returns the run as it is then; `passed_ms` is the
    sum."""
    id, rest = await api.run_id(run), ms
    while True:
        state = await api.post(f"/v1/runs/{id}/jump", {"for": f"{rest}ms"})
        rest = state["left_ms"]
        if not rest or state["ended_at"] is not None:
            return {**state, "passed_ms": ms - rest}
        note(f"{roughly(ms - rest)} have passed; the run goes on. When it waits again, the other {roughly(rest)} pass.")
        await _wait_until_it_waits(api, id)


async def _wait_until_it_waits(api: Server, id: str) -> None:
    running = True
    while running:
        await asyncio.sleep(POLL_SECONDS)  # also where it waits already: it may take a stored event now
        running = (await api.get(f"/v1/runs/{id}"))["status"] == "running"
