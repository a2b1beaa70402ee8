"""The content of a workflow's picture, without its boxes and arrows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from hai_flow.definition.expressions.value_text import json_text
from hai_flow.definition.names.wording import shorten
from hai_flow.definition.verbs.verb import Kind
from hai_flow.definition.yaml.document import Document, parse
from hai_flow.definition.yaml.include_keys import first_of
from hai_flow.definition.yaml.language import SHAPES, VERBS
from hai_flow.values import Json

KINDS: Final[dict[str, Kind]] = {verb.name: verb.kind for verb in VERBS.values()}
LINE_CHARS: Final = 64
_HOLE: Final = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_METHODS: Final = SHAPES["http"].exactly_one[0]


@dataclass(frozen=True, slots=True)
class Node:
    """One step. `notes` are short lines below the detail; `lanes` the lists of a block; `handlers` those of a
    decision, an error or the end. `condition` is its `if`, as written; `written` all of it, as the document has it."""

    path: str
    id: str
    verb: str
    kind: Kind
    title: str
    detail: str = ""
    condition: str = ""
    gate: str = ""
    notes: tuple[str, ...] = ()
    lanes: tuple[Lane, ...] = ()
    handlers: tuple[Lane, ...] = ()
    written: Mapping[str, Json] = field(default_factory=dict, compare=False, repr=False)

    @property
    def goes_on(self) -> bool:
        """Whether the next step of the list may be reached from here."""
        return KINDS[self.verb] != "end" or bool(self.condition)


class Lane(msgspec.Struct, frozen=True):
    """A list of steps inside a step. `body` is its part of the path (a branch, `0`, `[]`, `~reject`, ...)."""

    body: str
    label: str
    nodes: tuple[Node, ...]


class Chart(msgspec.Struct, frozen=True):
    name: str
    version: int
    title: str
    start: str  # the triggers, in words
    output: str
    nodes: tuple[Node, ...]
    handlers: tuple[Lane, ...]

    def all_nodes(self) -> Iterator[Node]:
        """Every step, in document order."""
        yield from _flat(self.nodes)
        for lane in self.handlers:
            yield from _flat(lane.nodes)


def _flat(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for lane in (*node.lanes, *node.handlers):
            yield from _flat(lane.nodes)


def chart_of(source: bytes) -> Chart:
    return chart_in(parse(first_of(source)))


def chart_in(parsed: Document) -> Chart:
    """The chart of a valid document that was read."""
    document = parsed.value
    assert isinstance(document, Mapping), "only a valid document is drawn"
    return Chart(
        name=document["name"],
        version=document["version"],
        title=document.get("title") or document["name"],
        start=_starts(document.get("triggers") or [{"api": {}}]),
        output=_value(document["output"]) if "output" in document else "",
        nodes=_nodes(document["steps"], ""),
        handlers=_endings(document, ""),
    )


def _starts(triggers: Sequence[Mapping[str, Json]]) -> str:
    words = []
    for trigger in triggers:
        ((kind, settings),) = trigger.items()
        match kind:
            case "event":
                words.append(f"event {settings['type']}")
            case "run":
                words.append(f"{' or '.join(settings.get('on', ['finished']))} {settings['workflow']}")
            case "webhook":
                words.append(f"webhook {settings['path']}")
            case "schedule":
                words.append(f"schedule {settings['cron']} {settings['timezone']}")
            case _:
                words.append(kind)
    return " · ".join(words)


def _nodes(steps: Sequence[Mapping[str, Json]], prefix: str) -> tuple[Node, ...]:
    counts: dict[str, int] = {}
    nodes = []
    for raw in steps:
        verb = next(key for key in raw if key in VERBS)
        counts[verb] = counts.get(verb, 0) + 1
        nodes.append(_node(raw, verb, f"{prefix}{raw.get('id') or f'{verb}#{counts[verb]}'}"))
    return tuple(nodes)


def _node(raw: Mapping[str, Json], verb: str, path: str) -> Node:
    value = raw[verb]
    gate = raw.get("approval")
    return Node(
        path=path,
        id=raw.get("id", ""),
        verb=verb,
        kind=KINDS[verb],
        title=_line(raw.get("title") or raw.get("id") or ""),
        detail=_detail(verb, value),
        condition=_line(str(raw["if"]).lower() if isinstance(raw["if"], bool) else raw["if"]) if "if" in raw else "",
        gate=_people(gate) if gate is not None else "",
        notes=tuple(_notes(raw, verb, value)),
        lanes=tuple(_lanes(verb, value, path)),
        handlers=(*_decision_lanes(raw, path), *_endings(raw, path + "/")),
        written=raw,
    )


def _line(text: Json) -> str:
    """`text` as one line, its holes shown as `{expression}`."""
    return _HOLE.sub(r"{\1}", " ".join(str(text).split()))


def _value(value: Json) -> str:
    """A value as one short line: `status: rejected, reason: {input.reason}`."""
    match value:
        case str():
            return shorten(_line(value), LINE_CHARS)
        case dict() if value:
            return shorten(", ".join(f"{key}: {_value(part)}" for key, part in value.items()), LINE_CHARS)
        case list() if value:
            return shorten(", ".join(_value(part) for part in value), LINE_CHARS)
        case _:
            return json_text(value)


def _detail(verb: str, value: Json) -> str:
    match verb:
        case "call" | "run":
            return _line(value)
        case "http":
            method = next(key for key in value if key in _METHODS)
            return f"{method.upper()} {_line(value[method])}"
        case "llm" | "agent":
            return _line(value.get("model", "the default model"))
        case "ask" | "approve":
            return _line(value["title"])
        case "say":
            return _describe_say(value)
        case "emit":
            ((kind, content),) = value.items()
            return f"{kind} {_line(content.get('name', content.get('to', '')))}".strip()
        case "let":
            return _value(value)
        case "set":
            return _value(value if isinstance(value, Mapping) else [f"{each['op']} {each['path']}" for each in value])
        case "wait":
            return f"for {value['for']}" if "for" in value else f"until {_line(value['until'])}"
        case "wait_for":
            return _describe_wait(value)
        case "for_each":
            return f"{value.get('as', 'item')} in {_bare(value['items'])}"
        case "repeat":
            return _describe_repeat(value)
        case "return":
            return _value(value) if value is not None else ""
        case "fail":
            return _line(value if isinstance(value, str) else value["message"])
        case _:
            return ""


def _describe_say(value: Json) -> str:
    if isinstance(value, str):
        return _line(value)
    kind = next(key for key in ("text", "thinking", "fold", "output") if key in value)
    content = value[kind]
    if isinstance(content, Mapping):
        content = content.get("content") or content.get("title") or content.get("type") or ""
    return _line(content if kind == "text" else f"{kind}: {content}")


def _describe_wait(value: Mapping[str, Json]) -> str:
    if "event" in value:
        match = f" where {_bare(value['match'])}" if "match" in value else ""
        return f"{value['event']}{match}"
    mode = "any" if "any" in value else "all"
    return f"{mode} of {', '.join(each['event'] for each in value[mode])}"


def _describe_repeat(value: Mapping[str, Json]) -> str:
    for word in ("while", "until"):
        if word in value:
            return f"{word} {_bare(value[word])}, at most {value['max']} times"
    return f"{value['max']} times"


def _bare(value: Json) -> str:
    """An expression without the hole around it."""
    text = " ".join(value.split()) if isinstance(value, str) else _value(value)
    match = _HOLE.fullmatch(text)
    return match[1] if match and text.count("${{") == 1 else _line(text)


def _people(policy: Mapping[str, Json]) -> str:
    """The deciders, their number, the deadline."""
    words = [_selectors(policy.get("from", "requester"))]
    quorum = policy.get("quorum", 1)
    if isinstance(quorum, Mapping):
        words.append(
            ", ".join(f"{count} of {who}" if who != "any" else f"{count} in all" for who, count in quorum.items())
        )
    elif quorum != 1:
        words.append(f"{quorum} of them")
    if "options" in policy:
        words.append(" / ".join(policy["options"]))
    if "deadline" in policy:
        words.append(f"within {_line(policy['deadline'])}")
    return " · ".join(words)


def _selectors(value: Json) -> str:
    selectors = value if isinstance(value, list) else [value]
    return ", ".join(_bare(each) for each in selectors)


def _notes(raw: Mapping[str, Json], verb: str, value: Json) -> Iterator[str]:
    if verb in ("ask", "approve"):
        yield _people(value)
    if "when" in raw.get("approval", {}):
        yield f"asks when {_bare(raw['approval']['when'])}"
    for policy in (value if verb in ("ask", "approve", "wait_for") else {}, raw.get("approval", {})):
        yield from _late(policy)
    if verb == "agent":
        yield f"tools {', '.join(value['tools'])}"
    if verb == "for_each":
        yield from _spread(value)
    if type(raw.get("join")) is int:
        yield f"the first {raw['join']} branches to finish win"
    if raw.get("join") == "any":
        yield "the first branch to finish wins"
    effort = [f"{key} {text}" for key, text in _effort(raw)]
    if effort:
        yield " · ".join(effort)


def _spread(value: Mapping[str, Json]) -> Iterator[str]:
    """How the items of a `for_each` go side by side."""
    words = []
    if value.get("max_parallel", 1) != 1:
        words.append(f"{_line(value['max_parallel'])} at once")
    if value.get("on_failure") == "isolate":
        words.append("a failure stops its item only")
    if value.get("rollback", "item") != "item":
        words.append(f"rollback {value['rollback']}")
    if words:
        yield " · ".join(words)


def _late(policy: Mapping[str, Json]) -> Iterator[str]:
    """The stages when no answer comes."""
    if "on_deadline" not in policy:
        return
    raw_stages = policy["on_deadline"]
    stages = []
    for stage in raw_stages if isinstance(raw_stages, list) else [raw_stages]:
        kind, settings = (stage, {}) if isinstance(stage, str) else next(iter(stage.items()))
        if kind == "escalate":
            whom = f" to {_selectors(settings['from'])}" if "from" in settings else ""
            stages.append(f"escalate{whom} for {_line(settings['deadline'])}")
        else:
            stages.append(kind)
    yield f"late: {', then '.join(stages)}"


def _effort(raw: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    if "timeout" in raw:
        yield "timeout", _line(raw["timeout"])
    if "retry" in raw:
        yield "retry", f"{raw['retry'].get('max')}×"
    if raw.get("detach") is True:
        yield "detached", "nobody waits"
    if raw.get("delivery") == "at_most_once":
        yield "at most", "once"
    if "undo" in raw:
        undo = raw["undo"]
        verb = next(key for key in ("call", "http", "run") if key in undo)
        yield "undo", _detail(verb, undo[verb])


def _lanes(verb: str, value: Json, path: str) -> Iterator[Lane]:
    match verb:
        case "try":
            yield Lane("", "", _nodes(value, f"{path}/"))
        case "parallel":
            for branch, raw in value.items():
                steps = raw["steps"] if isinstance(raw, Mapping) else raw
                yield Lane(branch, branch, _nodes(steps, f"{path}/{branch}/"))
        case "switch":
            for number, case in enumerate(value):
                label = f"when {_bare(case['when'])}" if "when" in case else "otherwise"
                yield Lane(str(number), label, _nodes(case.get("steps", ()), f"{path}/{number}/"))
        case "for_each" | "repeat":
            yield Lane("[]", "", _nodes(value["steps"], f"{path}[]/"))
        case _:
            pass


def _decision_lanes(raw: Mapping[str, Json], path: str) -> Iterator[Lane]:
    handlers = dict(raw.get("on_decision", {}))
    if "on_reject" in raw:
        handlers["reject"] = raw["on_reject"]
    for option, steps in handlers.items():
        yield Lane(f"~{option}", f"on {option}", _nodes(steps, f"{path}/~{option}/"))


def _endings(raw: Mapping[str, Json], prefix: str) -> tuple[Lane, ...]:
    lanes = []
    for number, clause in enumerate(raw.get("catch", ())):
        label = f"catch {', '.join(clause.get('errors', ['any error']))}"
        lanes.append(Lane(f"~catch/{number}", label, _nodes(clause["steps"], f"{prefix}~catch/{number}/")))
    if "finally" in raw:
        lanes.append(Lane("~finally", "finally", _nodes(raw["finally"], f"{prefix}~finally/")))
    return tuple(lanes)
