"""Personal values in logs: every event is dealt with, masked events fold, and nothing of what is masked is sent."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest

from hai_flow.definition.personal.pii_flow import WHOLE, OfStep, Personal, derive_personal
from hai_flow.definition.personal.pii_marks import MASK, mask_value
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.wire import DIALECTS
from hai_flow.wire import pii_masking as masking
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.log import LOG
from hai_flow.wire.pii_masking import _EVENTS, SHOWN_WHOLE, Mask, list_personal_forms, mask_opened
from tests.corpus import kept
from tests.support.runs import Play

VALUES = frozenset(
    [
        "args",
        "comment",
        "content",
        "data",
        "edits",
        "evidence",
        "input",
        "items",
        "layout",
        "message",
        "output",
        "reason",
        "state",
        "style",
        "title",
        "value",
        "values",
    ]
)


@cache
def runs() -> list[kept.Kept]:
    return list(kept.read(kept.files()[-1], kept.Kept))


def events_of(run: kept.Kept) -> list[e.Event]:
    return [event for batch, _ in run.batches for event in e.decode_events(msgspec.json.encode(batch))]


def test_every_event_is_masked_or_shown_whole_on_purpose() -> None:
    assert set(_EVENTS) | SHOWN_WHOLE == set(e.EVENT_TYPES)
    assert not set(_EVENTS) & SHOWN_WHOLE


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)


def given(event: dict[str, Any]) -> set[str]:
    """The words that stand in values of an event."""
    found: set[str] = set()
    if event.get("type") == "warning_raised":  # our own words, of the run as a whole
        return found
    for name, value in event.items():
        if name in VALUES and name != "reason":
            found |= set(texts(value))
        elif isinstance(value, dict):  # an error, a question of a run below
            found |= given(value)
        elif name == "messages":
            pass  # of a run that is masked as a whole, too: below
    return {word for word in found if len(word) > 8 and not word.startswith("2026-")}


def structure(events: list[dict[str, Any]]) -> str:
    """All that says how a run went, and not with what."""
    kept_back = [
        {name: value for name, value in event.items() if name not in {*VALUES, "opened", "error"}} for event in events
    ]
    codes = [event["error"]["code"] for event in events if "error" in event and event["type"] != "tool_call_resolved"]
    asked = [event["opened"] for event in events if "opened" in event]
    names = [{name: each.get(name) for name in ("id", "path", "tool", "options", "policy", "schema")} for each in asked]
    return repr((kept_back, codes, names, [event.get("schema") for event in events]))


@pytest.mark.costly
def test_of_a_run_that_is_personal_as_a_whole_no_value_is_sent() -> None:
    for run in runs():
        nothing_personal_is_sent(run)


def nothing_personal_is_sent(run: kept.Kept) -> None:
    events = events_of(run)
    plain = [msgspec.to_builtins(event) for event in events]
    known = structure(plain)
    secret = {word for event in plain for word in given(event) if word not in known and MASK not in word}
    for dialect in (LOG, *DIALECTS.values()):
        profile = Profile(dialect=dialect.name, personal=WHOLE)
        encoder = dialect.encoder(profile, RunState(run.run_id))
        for event in events:
            for frame in encoder.encode(event):
                sent = frame.data.decode(errors="replace")
                assert not [word for word in secret if word in sent], (run.name, dialect.name, sent)


@pytest.mark.slow
def test_who_comes_later_sees_what_was_followed() -> None:
    """The masked fold of the log is the fold of the masked log."""
    for run in runs():
        masked_fold_is_fold_of_masked(run)


def masked_fold_is_fold_of_masked(run: kept.Kept) -> None:
    mask = Mask(WHOLE, None)
    state = shown = RunState(run.run_id)
    for event in events_of(run):
        state = evolve(state, event)
        masked_event = mask.event(event, state)
        shown = mask.state(state) if isinstance(event, e.Migrated) else evolve(shown, masked_event)
        later = mask.state(state)
        assert dict(shown.messages) == dict(later.messages), run.name
        assert shown.state == later.state, run.name
        assert {id: each.opened for id, each in shown.pendings.items()} == {
            id: each.opened for id, each in later.pendings.items()
        }, run.name
        assert (shown.output, shown.error, shown.status) == (later.output, later.error, later.status), run.name


@pytest.mark.costly
def test_without_anything_personal_every_frame_is_as_it_was() -> None:
    for run in runs():
        frames_are_as_they_were(run)


def frames_are_as_they_were(run: kept.Kept) -> None:
    events = events_of(run)
    for dialect in (LOG, *DIALECTS.values()):
        sha256 = next((event.sha256 for event in events if isinstance(event, e.RunStarted)), "")
        if any(isinstance(event, e.Migrated) for event in events):
            return  # masks as a whole behind it: nothing is known of that version here
        plain = Profile(dialect=dialect.name)
        encoders = [dialect.encoder(each, RunState(run.run_id)) for each in (
            plain, msgspec.structs.replace(plain, personal=Personal(sha256)))]  # fmt: skip
        for event in events:
            first, second = (encoder.encode(event) for encoder in encoders)
            assert first == second, run.name


def test_a_run_that_goes_on_with_another_version_is_masked_as_a_whole() -> None:
    started = e.RunStarted(at=1, workflow="w", version=1, sha256="aa", thread_id="t", requester="user:r",
                           input={"word": "plain"}, state={})  # fmt: skip
    state = evolve(RunState("r"), started)
    mask = Mask(Personal("aa"), None)
    assert mask.state(state).input == {"word": "plain"}
    moved = evolve(state, e.Migrated(at=2, by="user:op", version=2, sha256="bb", input={"word": "plain"}))
    assert mask.state(moved).input == {"word": MASK}


def test_a_mask_keeps_the_shape_and_null() -> None:
    value = {"a": {"b": [1, None, "x"], "c": "y"}, "d": None, "e": 5}
    assert mask_value(value, {"a": {"b": {"[]": True}}, "d": True, "e": True}) == {
        "a": {"b": [MASK, None, MASK], "c": "y"}, "d": None, "e": MASK,
    }  # fmt: skip
    assert mask_value("a text where an object should be", {"a": True}) == MASK


def test_a_vote_with_the_values_of_a_form_that_a_tool_marked_is_masked() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "pii": True}, "size": {"type": "string"}}}
    opened = e.PendingOpened(at=0, id="p", path="s", kind="ask", digest="d", schema=schema)
    vote = e.VoteCast(at=0, id="p", by="user:a", decision="accept", values={"name": "Ada", "size": "S"}, digest="d")
    pending = Mask(WHOLE, None).pending(PendingState(opened, votes=(vote,)), Personal())
    (shown,) = pending.votes
    assert (shown.values, shown.digest) == ({"name": MASK, "size": "S"}, None)


FORM = {"type": "object", "properties": {"name": {"type": "string", "pii": True}, "size": {"type": "string"}}}


def play_asking(steps: int = 1) -> Play:
    """A workflow without marks; its form is the tool's."""
    calls = "{id: pay, call: erp.pay, with: {order: A-1}}, {id: told, say: '${{ steps.pay.output.name }}'}"
    calls += ", {id: more, call: erp.pay}, {id: again, say: '${{ steps.more.output.name }}'}"
    rest = "".join(f", {{say: Step {n}}}" for n in range(steps - 1))
    return Play(f"tools: {{erp: {{mcp: 'https://erp.test/mcp'}}}}\nsteps: [{{say: Hello}}, {calls}{rest}]\n"
                "output: '${{ steps.pay.output }}'\n")  # fmt: skip


def ask(play: Play, path: str, name: str) -> None:
    play.do(c.StepAsks(path=path, attempt=1, message="Whose?", form=FORM, keys=("k",)))
    play.answer(path, values={"name": name, "size": "S"})
    play.succeed(path, {"name": name})


def test_values_of_a_tools_marked_form_are_masked_and_what_they_become() -> None:
    """A follower, also one who comes between two questions, and a later reader are told the same."""
    play = play_asking()
    personal = derive_personal(play.plan, lambda run: None)
    assert not personal.anything
    ask(play, "pay", "Ada")
    between, before = play.state, len(play.events)
    ask(play, "more", "Bobby")
    assert play.status == "finished"
    derived = personal.after_answers(list_personal_forms(between))
    for each, state, events in ((personal, RunState(play.state.run_id), play.events),
                                (derived, between, play.events[before:])):  # fmt: skip
        stream = ""
        for dialect in (LOG, *DIALECTS.values()):
            encoder = dialect.encoder(Profile(dialect=dialect.name, personal=each), state)
            frames = "".join(frame.data.decode() for event in events for frame in encoder.encode(event))
            stream += frames
            assert each is derived or "Hello" in frames or dialect.name == "agent-api", dialect.name
        snapshot = str(Mask(each, None).state(play.state))
        for name in ("Ada", "Bobby"):
            assert (name in snapshot, name in stream, "A-1" in snapshot) == (False, False, True)
    assert (derived.of("told").words, derived.of("again").words) == (True, False)


def test_of_large_workflows_a_stream_masks_all_that_it_would_wait_for() -> None:
    play = play_asking(200)
    personal = derive_personal(play.plan, lambda run: None)
    ask(play, "pay", "Ada")
    answered = list_personal_forms(play.state)
    exact = personal.after_answers(answered)
    assert ("A-1" in str(Mask(personal, None).state(play.state)), "A-1" in str(Mask(exact, None).state(play.state))) \
        == (False, True)  # fmt: skip
    assert personal.after_answers(answered, is_limited=True) is WHOLE


def test_a_stream_looks_at_each_question_of_a_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    play = play_asking()
    ask(play, "pay", "Ada")
    ask(play, "more", "Bobby")
    looks: list[RunState] = []
    monkeypatch.setattr(masking, "list_personal_forms", lambda whole: looks.append(whole) or frozenset())
    profile = Profile(dialect=LOG.name, personal=derive_personal(play.plan, lambda run: None))
    encoder = LOG.encoder(profile, RunState(play.state.run_id))
    frames = str([frame.data for event in play.events for frame in encoder.encode(event)])
    assert (looks, "Ada" in frames, "Bobby" in frames, "A-1" in frames) == ([], False, False, True)


def test_a_personal_partial_answer_is_masked_in_the_doubts_question() -> None:
    doubt = e.PendingOpened(at=0, id="p", path="s", kind="doubt", digest="d", evidence='{"text":"Ada"}')
    assert mask_opened(doubt, OfStep()).evidence == doubt.evidence
    assert "Ada" not in (mask_opened(doubt, OfStep(touches=True)).evidence or "")
