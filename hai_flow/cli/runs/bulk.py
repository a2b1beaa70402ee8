"""`bulk`: one control for all runs that a filter finds, a few at a time, with the outcome of each."""

from __future__ import annotations

import uuid
from typing import Annotated, Final

import typer

from hai_flow.cli.client.rest import ActingOptions, Server
from hai_flow.cli.errors import UsageError
from hai_flow.cli.options import OfWorkflowOption, ReasonOption, StatusesOption
from hai_flow.cli.terminal import note, print_json, say
from hai_flow.values import Json

ACTIONS: Final = ("pause", "resume", "stop", "retry")
AT_ONCE: Final = 50  # runs of one request; progress is shown after each


def bulk(
    action: Annotated[str, typer.Argument(metavar="ACTION", help=f"One of {', '.join(ACTIONS)}.")],
    remote: ActingOptions,
    status: StatusesOption = None,
    workflow: OfWorkflowOption = None,
    version: Annotated[int | None, typer.Option("--version", min=1, help="Only runs of this version.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Only runs of this queue.")] = None,
    started_by: Annotated[
        str | None, typer.Option("--started-by", metavar="WHO", help="Only runs that this principal started.")
    ] = None,
    created_after: Annotated[
        str | None, typer.Option("--created-after", metavar="TIME", help="Only runs created at or after this time.")
    ] = None,
    created_before: Annotated[
        str | None, typer.Option("--created-before", metavar="TIME", help="Only runs created before this time.")
    ] = None,
    error: Annotated[str | None, typer.Option("--error", metavar="CODE", help="Only failures with this code.")] = None,
    expect: Annotated[
        int | None, typer.Option("--expect", min=0, metavar="N", help="The expected number. Default: only list them.")
    ] = None,
    reason: ReasonOption = "",
) -> None:
    """Pause, resume, stop or retry the runs that match all options; without --expect only list them. Nothing is done if
    their number differs from --expect. Exits with 1 if a run was refused."""
    if action not in ACTIONS:
        raise UsageError(f"expected one of {', '.join(ACTIONS)}, found {action!r}.")
    options: dict[str, Json] = {
        "status": status, "workflow": workflow, "version": version, "queue": queue, "started_by": started_by,
        "created_after": created_after, "created_before": created_before, "error": error,
    }  # fmt: skip
    where = {name: value for name, value in options.items() if value is not None}
    if not where:
        raise UsageError("expected a filter: --status, --workflow, --started-by, --created-before, --error, ...")
    body: dict[str, Json] = {"action": action, "reason": reason}

    async def work(api: Server) -> list[Json]:
        first = {**body, "where": where, "dry_run": True} | ({} if expect is None else {"expect": expect})
        matching = (await api.post("/v1/runs/bulk", first))["items"]
        if expect is None:
            return matching
        ids, results, key = [each["id"] for each in matching], list[Json](), str(uuid.uuid4())
        for start in range(0, len(ids), AT_ONCE):
            some = {**body, "runs": ids[start : start + AT_ONCE]}
            results += (await api.post("/v1/runs/bulk", some, key=key))["items"]
            if not remote.as_json and len(ids) > AT_ONCE:
                note(f"{len(results)} of {len(ids)}")
        return results

    items = remote.ask(work)
    refused = [each for each in items if each["outcome"] == "refused"]
    if remote.as_json:
        print_json({"action": action, "items": items})
    else:
        for each in items:
            if expect is None or each["problem"] is not None:
                why = "" if each["problem"] is None else f"  {each['problem']['code']}: {each['problem']['detail']}"
                say(f"{each['id']}  {each['status']}{why}")
        if expect is None:
            say(f"{len(items)} runs; to {action} them, say --expect {len(items)}.")
        else:
            summary = f"{action}: {len(items) - len(refused)} of {len(items)} runs, {len(refused)} refused."
            say(summary, "red" if refused else "green")
    if refused:
        raise typer.Exit(1)
