"""Commands over REST that control one run: `pause`, `resume`, `stop`, `terminate`, `retry`, `skip`, `jump`."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Final

import typer

from hai_flow.cli.client.rest import ActingOptions, Server
from hai_flow.cli.options import ReasonOption, RunArgument, StepArgument, parse_duration, parse_json
from hai_flow.cli.terminal import note, program, roughly, say
from hai_flow.values import Json


def pause(run: RunArgument, remote: ActingOptions, reason: ReasonOption = "") -> None:
    """Pause a run: no new step starts; answers and timers are kept until `resume`."""
    _control(run, "pause", {"reason": reason}, remote)


def resume(run: RunArgument, remote: ActingOptions) -> None:
    """Resume a paused run."""
    _control(run, "resume", None, remote)


def stop(run: RunArgument, remote: ActingOptions, reason: ReasonOption = "") -> None:
    """Stop a run: its running steps are cancelled and have some time to clean up."""
    _control(run, "stop", {"reason": reason}, remote)


def terminate(run: RunArgument, remote: ActingOptions, reason: ReasonOption = "") -> None:
    """End a run at once; results that come later are not recorded."""
    _control(run, "terminate", {"reason": reason}, remote)


def retry(run: RunArgument, remote: ActingOptions) -> None:
    """Resume a failed run from the step that failed."""
    _control(run, "retry", None, remote)


def skip(
    run: RunArgument,
    step: StepArgument,
    remote: ActingOptions,
    output: Annotated[
        str | None, typer.Option("--output", metavar="JSON", help="The output of the skipped step. Default: null.")
    ] = None,
    reason: ReasonOption = "",
) -> None:
    """Continue a run after a step that waits or has failed; the step counts as skipped, not as approved."""
    body = {"step": step, "output": None if output is None else parse_json(output, "--output"), "reason": reason}
    answered = _ask_server(run, "skip", body, remote)
    if not remote.as_json:
        say(f"{answered['id']} goes on behind {step}; it is {answered['status']}.", "green")


def _control(run: str, verb: str, body: Json, remote: ActingOptions) -> None:
    answered = _ask_server(run, verb, body, remote)
    if not remote.as_json:
        in_flight = f", {answered['in_flight']} attempts in flight" if answered.get("in_flight") else ""
        say(f"{answered['id']} is {answered['status']}{in_flight}.", "green")
        if answered["status"] == "paused":
            say(f"Next: {program()} resume {answered['id']}")


def _ask_server(run: str, verb: str, body: Json, remote: ActingOptions) -> Json:
    """The server's answer to this control of a run, printed if JSON is asked for."""

    async def work(api: Server) -> Json:
        return await api.post(f"/v1/runs/{await api.run_id(run)}/{verb}", body)

    return remote.ask_and_print(work)


POLL_SECONDS: Final = 0.25


def jump(
    run: RunArgument,
    duration: Annotated[str, typer.Argument(metavar="DURATION", help="The time that passes: 2d, 1h30m, PT5M.")],
    remote: ActingOptions,
) -> None:
    """Let time pass at once for the waits of a run: deadlines, escalations, timers. For runs of a `dev` server."""
    ms = parse_duration(duration, "DURATION", shortest=1) // timedelta(milliseconds=1)
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
