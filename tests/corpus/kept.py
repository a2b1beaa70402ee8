"""What a file of the corpus holds, and what is compared."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from hai_flow import values
from hai_flow.api.requests.views import render_snapshot
from hai_flow.engine.commands import Principal
from hai_flow.engine.events import Event
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.state.state import RunState
from hai_flow.wire.dialects.agent_api import AGENT_API
from hai_flow.wire.dialects.agui import AGUI
from hai_flow.wire.dialects.agui import PROTOCOL as AGUI_NOW
from hai_flow.wire.dialects.aui import AUI
from hai_flow.wire.dialects.dialect import Dialect, Profile
from hai_flow.wire.dialects.hai import HAI
from hai_flow.wire.dialects.log import LOG
from hai_flow.wire.dialects.social import SOCIAL

T = TypeVar("T")

HERE: Final = Path(__file__).parent
TOOLS: Final = frozenset(("pick", "confirmAction", "hai.approve", "hai.ask"))
STRANGER: Final = Principal("user:stranger")

# Each dialect, to peers that differ in what an encoder looks at.
FOLLOWERS: Final[dict[str, tuple[Dialect, Profile]]] = {
    "log": (LOG, Profile(dialect="log")),
    "hai": (HAI, Profile(dialect="hai", client_tools=TOOLS)),
    "hai, plain": (HAI, Profile(dialect="hai", options=(("hai.results", "all"), ("hai.text", "plain")))),
    "hai, watching": (HAI, Profile(dialect="hai", may_answer=False)),
    "agui": (AGUI, Profile(dialect="agui", version=AGUI_NOW, client_tools=TOOLS)),
    "agui, before 1.0": (AGUI, Profile(dialect="agui", client_tools=TOOLS)),
    "agui, a stranger": (AGUI, Profile(dialect="agui", version=AGUI_NOW, may_answer=False, reader=STRANGER)),
    "social": (SOCIAL, Profile(dialect="social", client_tools=TOOLS)),
    "aui": (AUI, Profile(dialect="aui", client_tools=TOOLS)),
    "agent-api": (AGENT_API, Profile(dialect="agent-api", client_tools=TOOLS)),
}


TODAY: Final = HERE / "today.jsonl.gz"


class Kept(msgspec.Struct, frozen=True):
    """One run as a release has written it. `batches` are its commits: the events as JSON, and the state that they
    folded to, as REST showed it."""

    name: str
    document: str
    run_id: str
    batches: list[tuple[list[dict[str, Any]], dict[str, Any]]]


class Decided(msgspec.Struct, frozen=True):
    """What this release decides and sends in the run of that name. `commands`, one for each batch: type, fields, time
    in ms, limits. `decisions`: the fingerprint of the events that each gives, or the code of its refusal. `frames`: of
    each follower the fingerprints of what it is sent, event by event."""

    name: str
    commands: list[tuple[str, dict[str, Any], int, dict[str, int]]]
    decisions: list[str] = []
    frames: dict[str, list[str]] = {}


def files() -> list[Path]:
    """The files of the corpus, one for each ABI of the log."""
    return sorted(HERE.glob("abi*.jsonl.gz"), key=lambda path: int(path.name.split(".")[0].removeprefix("abi")))


def read(path: Path, kind: type[T]) -> Iterator[T]:
    """The lines of one file."""
    for line in gzip.decompress(path.read_bytes()).splitlines():
        yield msgspec.json.decode(line, type=kind)


def write(path: Path, lines: Sequence[Kept | Decided]) -> None:
    """A file that is the same whenever the same is written."""
    path.write_bytes(gzip.compress(b"".join(msgspec.json.encode(line) + b"\n" for line in lines), mtime=0))


def seen(state: RunState) -> dict[str, Any]:
    """The state as REST shows it, with the titles of the log: those for people are composed anew by each release."""
    shown: dict[str, Any] = values.loads(values.dumps(render_snapshot(state, lambda pending: True)))
    for each in shown["pendings"]:
        each["title"] = state.pendings[each["id"]].opened.title
    return shown


def differs(was: Any, now: Any, at: str = "") -> str | None:
    """Where `now` is not what it was, as a JSON Pointer; keys that have come since do not count."""
    if isinstance(was, dict) and isinstance(now, dict):
        places = (differs(each, now.get(name, "nothing"), f"{at}/{name}") for name, each in was.items())
        return next((place for place in places if place is not None), None)
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        places = (differs(one, other, f"{at}/{n}") for n, (one, other) in enumerate(zip(was, now, strict=True)))
        return next((place for place in places if place is not None), None)
    return None if was == now else at


def fingerprint(value: Any) -> str:
    """A short name for a JSON value or bytes."""
    data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()[:12]


def frames(run_id: str, events: Sequence[Event]) -> dict[str, list[str]]:
    """Of each follower, the fingerprint of what every event sends it, and of what one who comes last is told first."""
    sent: dict[str, list[str]] = {}
    for name, (dialect, profile) in FOLLOWERS.items():
        state = RunState(run_id)
        encoder = dialect.encoder(profile, state)
        each: list[str] = []
        for event in events:
            state = evolve(state, event)
            each.append(fingerprint(dialect.render_frames(encoder.encode(event), state.seq, run_id)))
        preface = dialect.encoder(profile, state).preface("r-late", ())
        sent[name] = [*each, fingerprint(dialect.render_unnumbered(preface))]
    return sent
