"""Calls that a server writes in any of its ways, mixed at random: each is made once, with its arguments, or none is."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.foreign.reading import read
from tests.foreign.transcripts import DONE, Said, Transcript, chunk, end, event, stream, text

ARGS: list[Any] = [
    {"text": "hi"},
    {"text": 'a \U0001f600 "quoted" {brace} \\ back'},
    {"id": 7, "deep": {"list": [1, {"a": []}]}},
    {"text": ""},
]
NAMES = ("add", "delete", "search")


def parts(chance: random.Random, whole: str) -> list[str]:
    places = sorted(chance.sample(range(1, len(whole)), min(chance.randint(0, 4), len(whole) - 1)))
    return [whole[start:stop] for start, stop in zip([0, *places], [*places, len(whole)], strict=True)]


def written(chance: random.Random, slot: int, id: str, name: str, args: str) -> list[Any]:
    """The pieces of one call in one of the ways that servers have."""
    pieces = parts(chance, args)
    if chance.random() < 0.3:
        pieces.insert(0, chance.choice(["", "{}", "null", '""', " "]))
    if chance.random() < 0.3:
        pieces.append(chance.choice(["", " ", "\n", args, json.dumps(args), "{}"]))
    if chance.random() < 0.1:
        pieces = [json.dumps(args)]
    names, ids = chance.choice(["first", "late", "split", "each"]), chance.choice(["first", "late", "each", "other"])
    if (names, ids) == ("each", "other"):  # another id with a name is another call
        ids = "each"
    found = []
    for number, piece in enumerate(pieces):
        function: dict[str, Any] = {"arguments": piece}
        if names == "each" or (number == 0 and names in ("first", "late")):
            function["name"] = name
        if names == "split" and number == 0:
            function["name"] = name[:2]
        call: dict[str, Any] = {"index": slot, "function": function}
        if ids == "each" or (number == 0 and ids in ("first", "other")):
            call["id"] = id
        if ids == "other" and number:
            call["id"] = f"{id}-{number}"
        found.append(call)
    if names == "late":
        del found[0]["function"]["name"]
        found.insert(1, {"index": slot, "function": {"name": name}})
    if names == "split":
        found.insert(0, {"index": slot, "function": {"name": name[:2], "arguments": ""}})
        found[1]["function"]["name"] = name[2:]
    if ids == "late":
        found.append({"index": slot, "id": id, "function": {}})
    return found


def chat(chance: random.Random, calls: list[tuple[str, str, str]]) -> bytes:
    streams = [written(chance, slot, *call) for slot, call in enumerate(calls)]
    if chance.random() < 0.3:  # said again, under another index
        number = chance.randrange(len(calls))
        id, name, args = calls[number]
        again = {"index": 90, "id": id, "function": {"name": name, "arguments": json.dumps(json.loads(args))}}
        streams.append([again])
    chunks = [chunk({"tool_calls": [piece]}) for pieces in streams for piece in pieces]
    ends: list[Any] = [end(chance.choice(["tool_calls", "stop", "tool_use", "eos"]))]
    if chance.random() < 0.3:
        said = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": args}} for id, name, args in calls
        ]
        ends = [
            {"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"content": "", "tool_calls": said}}]}
        ]
    return stream(*text("I do."), *chunks, *ends, *([DONE] if chance.random() < 0.8 else []))


def responses(chance: random.Random, calls: list[tuple[str, str, str]]) -> bytes:
    events, output = [], []
    for index, (id, name, args) in enumerate(calls):
        item = {"id": f"fc_{index}", "type": "function_call", "call_id": id, "name": name, "arguments": args}
        output.append(item)
        if chance.random() < 0.8:
            events.append(event("response.output_item.added", output_index=index, item={**item, "arguments": ""}))
            where = {"item_id": chance.choice([f"fc_{index}", id]), "output_index": index}
            if chance.random() < 0.5:
                for piece in parts(chance, args):
                    events.append(event("response.function_call_arguments.delta", delta=piece, **where))
            if chance.random() < 0.5:
                events.append(event("response.function_call_arguments.done", arguments=args, **where))
            if chance.random() < 0.5:
                events.append(event("response.output_item.done", output_index=index, item=item))
    completed = event("response.completed", response={"status": "completed", "output": output})
    return stream(event("response.output_text.delta", delta="I do."), *events, completed)


@pytest.mark.costly
@pytest.mark.parametrize("protocol", ["chat", "responses"])
@pytest.mark.parametrize("seed", range(8))
def test_calls_are_made_once_in_whatever_way_they_are_written(protocol: Any, seed: int) -> None:
    chance = random.Random(seed)
    write = chat if protocol == "chat" else responses
    for _ in range(100):
        calls = [
            (f"call_{n}", chance.choice(NAMES), json.dumps(chance.choice(ARGS))) for n in range(chance.randint(1, 3))
        ]
        body = write(chance, calls)
        meant = tuple((name, json.loads(args)) for _, name, args in calls)
        transcript = Transcript("perturbed", body, Said("I do.", calls=meant), protocol=protocol, names=NAMES)
        outcome = read(transcript, [body])
        assert outcome.fault is None, (outcome.fault, body.decode())
        assert sorted(map(str, outcome.calls)) == sorted(map(str, meant)), body.decode()
        for at in chance.sample(range(len(body)), 5):
            cut = read(transcript, [body[:at]])
            assert cut.calls == [] or sorted(map(str, cut.calls)) == sorted(map(str, meant)), body[:at].decode()
