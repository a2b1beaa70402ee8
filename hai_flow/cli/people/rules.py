"""`hai-flow rules`: decisions that people give ahead, over REST: list, show, propose and revoke them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from hai_flow.cli.client.rest import ActingOptions
from hai_flow.cli.commands import app_of
from hai_flow.cli.options import parse_duration, parse_json
from hai_flow.cli.terminal import compact, moment, print_items, print_json, say
from hai_flow.values import Json

app = app_of(
    name="rules",
    lists="Standing rules, which approve or refuse calls without asking; without a command, the list of them.",
)


@app.command("list")
def list_rules(
    remote: ActingOptions,
    over: Annotated[bool, typer.Option("--all", help="Include rules that are no longer valid.")] = False,
) -> None:
    """The standing rules, and how often each was used."""

    items = remote.ask(lambda api: api.get("/v1/rules", over=over))["items"]
    print_items(items, remote.as_json, "There are no standing rules.", lambda each: {
        "rule": each["id"], "status": each["status"], "": each["kind"], "tool": each["tool"],
        "conditions": _conditions(each), "uses": _uses(each), "until": moment(each["until"]),
    })  # fmt: skip


@app.command()
def show(rule: Annotated[str, typer.Argument(metavar="RULE", help="The rule's id.")], remote: ActingOptions) -> None:
    """A rule: what it says, who approved it, and its last uses."""

    _tell(remote.ask(lambda api: api.get(f"/v1/rules/{rule}")), remote.as_json)


@app.command()
def propose(
    pending: Annotated[str, typer.Argument(metavar="QUESTION", help="The question whose decision becomes a rule.")],
    lasts: Annotated[str, typer.Option("--for", metavar="DURATION", help="The period of validity: 30d, 2w.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason, for its approvers.")],
    remote: ActingOptions,
    when: Annotated[
        str | None, typer.Option("--when", metavar="CEL", help="A condition over the arguments: args.amount <= 100.")
    ] = None,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help='Bounds by argument: {"amount": {"max": 100}}.')
    ] = None,
    never: Annotated[bool, typer.Option("--never", help="Refuse such calls instead of approving them.")] = False,
    every_workflow: Annotated[
        bool, typer.Option("--every-workflow", help="Apply also to other workflows with this tool.")
    ] = False,
    uses: Annotated[int | None, typer.Option("--uses", help="Maximum number of uses.")] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="DURATION", help="The period after which uses are counted anew.")
    ] = None,
    approvers: Annotated[
        list[str] | None, typer.Option("--from", metavar="SELECTOR", help="The approvers: role:finance.")
    ] = None,
    quorum: Annotated[int | None, typer.Option("--quorum", help="The number of approvers.")] = None,
) -> None:
    """Propose that calls like a decided one are always approved, or never. Others have to approve the rule."""
    until = datetime.now(UTC) + parse_duration(lasts, "--for")
    body: dict[str, Json] = {
        "pending_id": pending,
        "kind": "never" if never else "allow",
        "every_workflow": every_workflow,
        "when": when,
        "until": until.isoformat(),
        "uses": uses,
        "every": every,
        "reason": reason,
        "from": list(approvers) if approvers else None,
        "quorum": quorum,
    }
    if arguments is not None:
        body["arguments"] = parse_json(arguments, "--arguments")

    _tell(
        remote.ask(
            lambda api: api.post("/v1/rules", {name: value for name, value in body.items() if value is not None})
        ),
        remote.as_json,
    )


@app.command()
def revoke(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="The rule's id.")],
    remote: ActingOptions,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason, which is recorded.")] = "",
) -> None:
    """End a rule at once: people are asked again."""

    _tell(remote.ask(lambda api: api.post(f"/v1/rules/{rule}/revoke", {"reason": reason})), remote.as_json)


def _conditions(rule: Json) -> str:
    parts = [rule["when"]] if rule["when"] else []
    return "; ".join([*parts, *(f"{name} {compact(bound)}" for name, bound in rule["arguments"].items())])


def _uses(rule: Json) -> str:
    often = "" if rule["uses_max"] is None else f" of {rule['uses_max']}"
    return f"{rule['uses']}{often}{' each ' + rule['every'] if rule['every'] else ''}"


def _tell(rule: Json, as_json: bool) -> None:
    if as_json:
        print_json(rule)
        return
    where = f" in {rule['workflow']}" if rule["workflow"] else ""
    say(f"{rule['id']} is {rule['status']}: {rule['kind']} {rule['tool']}{where}", "green")
    lines = {
        "conditions": _conditions(rule),
        "until": moment(rule["until"]),
        "uses": _uses(rule),
        "reason": rule["reason"],
        "proposed by": rule["proposed_by"],
        "approved by": ", ".join(rule["approved_by"]),
        "run": rule["run_id"] if rule["status"] == "proposed" else "",
        "ended": " ".join(filter(None, (moment(rule["ended_at"]), rule["ended_by"], rule["ended_why"]))),
    }
    for name, text in lines.items():
        if text and (name != "ended" or rule["ended_at"]):
            say(f"  {name}: {text}")
    for use in rule.get("last_uses", ()):
        say(f"  {moment(use['at'])} run {use['run_id']} {use['pending_id']}")
