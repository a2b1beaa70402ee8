"""A question to people as commands show it, with the command that answers it."""

from __future__ import annotations

import json
import shlex
from typing import Final

from hai_flow.cli.client.answers import fields_of, list_options
from hai_flow.cli.client.eligible import NO_ROLES, Roles, as_whom
from hai_flow.cli.console import join_lines, json_text
from hai_flow.cli.terminal import compact, indent, program, say
from hai_flow.primitives.invisible_characters import WARNING, escape_json, has_hidden
from hai_flow.primitives.markdown import to_text
from hai_flow.settings import Settings
from hai_flow.values import Json

_DECIDED: Final = ("approve", "gate", "doubt")  # kinds that are answered by one of their options


def show_question(pending: Json, started_by: str | None, roles: Roles = NO_ROLES) -> None:
    """The question, its evidence, the people that it asks, and how to answer it. `started_by`: the run's starter;
    `roles`: those of its workflow."""
    say(f"? {question_of(pending)}", "bold")
    if pending.get("message"):
        say(indent(to_text(pending["message"])))
    parts = [pending.get("args")] if pending["kind"] == "gate" else []
    parts = [each for each in (*parts, pending.get("evidence")) if each is not None]
    for each in parts:
        say(f"  {compact(each, 1000)}")
    if _has_hidden(pending, parts):
        say(f"  {WARNING}", "yellow")
    if fields := fields_of(pending.get("schema")):
        say(f"  values: {fields}", "dim")
    if people := format_asked(pending):
        say(f"  {people}", "dim")
    for vote in (pending.get("needed") or {}).get("votes") or ():
        say(f"  {vote['by']} has voted {vote['decision']}", "dim")
    # A server that takes keys does not believe HAI-Act-As.
    whom = as_whom(pending, started_by, roles) if Settings.from_environment().key is None else None
    say(f"  {program()} {answer_example(pending, act_as=whom)}")
    if hint := explain_sample(pending):
        say(f"  {hint}", "dim")
    if others := format_other_options(pending):
        say(f"  or: {others}", "dim")


def _has_hidden(pending: dict[str, Json], shown: Json) -> bool:
    texts = [each for name in ("title", "message") if isinstance(each := pending.get(name), str)]
    data = json.dumps(shown, ensure_ascii=False)
    return any(map(has_hidden, texts)) or escape_json(data) != data


def format_asked(pending: dict[str, Json]) -> str:
    """The selectors of the people that may answer, and the number that must."""
    policy: dict[str, Json] = pending.get("policy") or {}
    people = ", ".join(policy.get("from") or ())
    people += f" without {', '.join(policy['exclude'])}" if policy.get("exclude") else ""
    quorum = policy.get("quorum", 1)
    if isinstance(quorum, dict):
        seats = (f"{count} in all" if who == "any" else f"{count} of {who}" for who, count in quorum.items())
        needs = f"; needs {', '.join(seats)}"
    else:
        needs = "" if quorum == 1 else f"; needs {quorum} of them"
    return f"asks {people}{needs}" if people else ""


def question_of(pending: dict[str, Json]) -> str:
    if pending["kind"] == "tool":
        return f"The client is asked for {pending['tool']}({compact(pending.get('args'))})"
    return join_lines(str(pending.get("title") or pending.get("message") or pending["path"]))


def answer_example(pending: dict[str, Json], *, act_as: str | None = None) -> str:
    """The arguments after `decide` that answer `pending`, as an example that works: a first option, sample values.

    `act_as`: the value of `--as`, if not everybody may answer."""
    from hai_flow.cli.client.samples import sample_of

    words = ["decide", pending["id"]]
    schema = pending.get("schema")
    if pending["kind"] in _DECIDED:
        first = list_options(pending)[0]
        words.append(shlex.quote(first))
        if schema is not None:
            words += ["--values", _quote(sample_of(schema))]
        if first == "happened":  # whoever says so says with what result
            words += ["--result", "null"]
        if first in ((pending.get("policy") or {}).get("reasons") or ()):
            words += ["--reason", "TEXT"]
    else:
        words += ["--values" if pending["kind"] == "ask" else "--result", _quote(sample_of(schema))]
    return " ".join([*words, *(["--as", shlex.quote(act_as)] if act_as else [])])


def explain_sample(pending: dict[str, Json]) -> str:
    """A word on the values that `answer_example` shows, where the question would not take them; else ""."""
    from hai_flow.cli.client.samples import misfit, sample_of

    schema = pending.get("schema")
    fault = misfit(schema, sample_of(schema)) if schema is not None else ""
    return f"put in values of your own, this sample does not fit: {join_lines(fault)}" if fault else ""


def format_other_options(pending: dict[str, Json]) -> str:
    """The other possible answers; empty: there are none."""
    if pending["kind"] in _DECIDED:
        return ", ".join(list_options(pending)[1:])
    return "--error TEXT" if pending["kind"] == "tool" else ""


def _quote(value: Json) -> str:
    return shlex.quote(json_text(value))
