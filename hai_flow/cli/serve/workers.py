"""`worker --status`: the processes that perform runs, as a server lists them."""

from __future__ import annotations

from typing import Final

from hai_flow.cli.client.rest import ask
from hai_flow.cli.console import Cell, Styled
from hai_flow.cli.terminal import moment, out, print_json, program, say
from hai_flow.values import Json

_STYLES: Final = {"alive": "green", "draining": "yellow", "dead": "red"}


def show_workers(server: str | None, *, as_json: bool) -> None:
    """Print the workers, living ones first."""
    items: list[dict[str, Json]] = ask(server, as_json, lambda api: api.get("/v1/workers"))["items"]
    if as_json:
        print_json({"items": items})
        return
    if not items:
        say(f"No worker gives signs of life, and none has lately. Start one: {program()} worker", "yellow")
        return
    several = len({each["cell"] for each in items}) > 1
    heads = ["worker", "state", "queues", "holds", "attempts", "release", "since", "last sign of life"]
    out().table([_row(each, several) for each in items], heads=heads)


def _row(worker: dict[str, Json], several: bool) -> list[Cell]:
    name = f"{worker['id']} {worker['name']}" + (f" ({worker['cell']})" if several else "")
    load = "?" if worker["attempts"] is None else f"{worker['attempts']}/{worker['places']}"
    if worker["waiting"]:
        load += f" +{worker['waiting']} waiting"
    times = (moment(worker[key]) for key in ("started_at", "beat_at"))
    state = Styled(worker["state"], _STYLES.get(worker["state"], "dim"))
    return [name, state, " ".join(worker["queues"]), str(worker["holds"]), load, worker["release"] or "?", *times]
