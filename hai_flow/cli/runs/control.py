"""Commands over REST that control one run: `pause`, `resume`, `stop`, `terminate`, `retry`, `skip`."""

from __future__ import annotations

from typing import Annotated

import typer

from hai_flow.cli.client.rest import Server, ask
from hai_flow.cli.options import (
    ActAsOption,
    JsonOption,
    ReasonOption,
    RunArgument,
    ServerOption,
    StepArgument,
    parse_json,
)
from hai_flow.cli.terminal import print_json, program, say
from hai_flow.values import Json


def pause(
    run: RunArgument,
    reason: ReasonOption = "",
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pause a run: no new step starts; answers and timers are kept until `resume`."""
    _control(run, "pause", {"reason": reason}, act_as, server, as_json)


def resume(
    run: RunArgument, act_as: ActAsOption = None, server: ServerOption = None, as_json: JsonOption = False
) -> None:
    """Resume a paused run."""
    _control(run, "resume", None, act_as, server, as_json)


def stop(
    run: RunArgument,
    reason: ReasonOption = "",
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop a run: its running steps are cancelled and have some time to clean up."""
    _control(run, "stop", {"reason": reason}, act_as, server, as_json)


def terminate(
    run: RunArgument,
    reason: ReasonOption = "",
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a run at once; results that come later are not recorded."""
    _control(run, "terminate", {"reason": reason}, act_as, server, as_json)


def retry(
    run: RunArgument, act_as: ActAsOption = None, server: ServerOption = None, as_json: JsonOption = False
) -> None:
    """Resume a failed run from the step that failed."""
    _control(run, "retry", None, act_as, server, as_json)


def skip(
    run: RunArgument,
    step: StepArgument,
    output: Annotated[str | None, typer.Option("--output", metavar="JSON", help="In place of its own.")] = None,
    reason: ReasonOption = "",
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on behind a step that waits or has failed; the step does nothing more, and counts as skipped, not as
    approved."""
    body = {"step": step, "output": None if output is None else parse_json(output, "--output"), "reason": reason}
    answered = _ask_server(run, "skip", body, act_as, server, as_json)
    if not as_json:
        say(f"{answered['id']} goes on behind {step}; it is {answered['status']}.", "green")


def _control(run: str, verb: str, body: Json, act_as: str | None, server: str | None, as_json: bool) -> None:
    answered = _ask_server(run, verb, body, act_as, server, as_json)
    if not as_json:
        in_flight = f", {answered['in_flight']} attempts in flight" if answered.get("in_flight") else ""
        say(f"{answered['id']} is {answered['status']}{in_flight}.", "green")
        if answered["status"] == "paused":
            say(f"Next: {program()} resume {answered['id']}")


def _ask_server(run: str, verb: str, body: Json, act_as: str | None, server: str | None, as_json: bool) -> Json:
    """The server's answer to this control of a run, printed if JSON is asked for."""

    async def work(api: Server) -> Json:
        return await api.post(f"/v1/runs/{await api.run_id(run)}/{verb}", body)

    answered = ask(server, as_json, work, act_as=act_as)
    if as_json:
        print_json(answered)
    return answered
