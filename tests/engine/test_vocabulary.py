"""The vocabulary of the log and the shape of the state, held against the ABIs under which they are stored.

After a change of either: raise its ABI (`engine/events.py`, `engine/state/snapshot.py`) if the release before can't
read what is written now, then write both down anew: `python -m tests.engine.test_vocabulary`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from hai_flow.engine import events as e
from hai_flow.engine.pendings import votes
from hai_flow.engine.state import snapshot
from hai_flow.engine.state import state as s
from hai_flow.errors import Unreadable

WRITTEN: Final = Path(__file__).with_name("vocabulary.json")


def records_of(module: Any, *, but: tuple[type, ...] = ()) -> dict[str, list[str]]:
    """The field names of each record of the module, as they are stored."""
    found = {name: kind for name, kind in vars(module).items() if isinstance(kind, type) and kind not in but}
    return {
        name: sorted(kind.__struct_encode_fields__)
        for name, kind in sorted(found.items())
        if issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
    }


def vocabulary() -> dict[str, Any]:
    return {
        "events": {"abi": e.ABI, "records": {**records_of(e), "Rules": sorted(votes.Rules.__struct_encode_fields__)}},
        "state": {"abi": snapshot.ABI, "records": records_of(s)},
    }


@pytest.mark.parametrize("part", ["events", "state"])
def test_what_is_stored_changes_only_with_its_abi(part: str) -> None:
    now, written = vocabulary()[part], json.loads(WRITTEN.read_text())[part]
    changed = sorted(
        name
        for name in {*now["records"], *written["records"]}
        if now["records"].get(name) != written["records"].get(name)
    )
    assert changed == [], f"{__doc__}\nThe records that changed: {', '.join(changed)}"
    assert now["abi"] == written["abi"], __doc__


@pytest.mark.parametrize("name", records_of(e))
def test_no_record_of_the_log_drops_a_field_that_it_does_not_know(name: str) -> None:
    assert getattr(e, name).__struct_config__.forbid_unknown_fields


@pytest.mark.parametrize("name", records_of(s))
def test_no_record_of_a_snapshot_drops_a_field_that_it_does_not_know(name: str) -> None:
    assert getattr(s, name).__struct_config__.forbid_unknown_fields


@pytest.mark.parametrize(
    "stored",
    [
        b'[{"type":"run_strange","at":1}]',
        b'[{"type":"run_paused","at":1,"by":"user:a","novelty":true}]',
        b'[{"type":"run_stopping","at":1,"by":"user:a","inherited":{"turn":1,"seq":2,"novelty":true}}]',
        b"[1]",
        b"no JSON",
    ],
)
def test_events_that_are_not_known_are_unreadable(stored: bytes) -> None:
    with pytest.raises(Unreadable, match="does not know"):
        e.decode_events(stored)


def test_a_state_that_is_not_known_is_unreadable() -> None:
    stored = snapshot.encode_state(s.RunState("r"))
    with pytest.raises(Unreadable, match="novelty"):
        snapshot.decode_state(stored[:-1] + b',"novelty":1}')


def test_a_pending_of_a_newer_release_is_listed_without_what_is_new() -> None:
    opened = e.PendingOpened(at=1, id="p", path="a", kind="ask", digest="d", title="Sure?")
    stored = msgspec.json.encode(opened)
    assert e.decode_pending(stored[:-1] + b',"novelty":1}') == opened == e.decode_pending(stored)


if __name__ == "__main__":
    WRITTEN.write_text(json.dumps(vocabulary(), indent=1, sort_keys=True) + "\n")
