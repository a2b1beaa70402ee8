"""The protocol's own Python models (`ag-ui-protocol`) read every frame."""

from __future__ import annotations

import json

import pydantic
from ag_ui import core as ag_ui
from hypothesis import given, settings

from hai_flow.engine.state.state import RunState
from hai_flow.wire.dialects.agui import AguiEncoder
from hai_flow.wire.dialects.agui_capabilities import capabilities
from tests.wire.stories import RUN, stories
from tests.wire.stories import encode_from as encode
from tests.wire.test_agui_properties import PROFILES


def as_json(model) -> object:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


@settings(deadline=None)
@given(stories(), PROFILES)
def test_the_models_read_every_frame_and_write_it_back(story, profile):
    events = pydantic.TypeAdapter(ag_ui.Event)
    frames = encode(AguiEncoder(profile, RunState(RUN)), story.events)
    frames += AguiEncoder(profile, story.state).preface("asker", ())
    for frame in frames:
        assert as_json(events.validate_json(frame.data)) == json.loads(frame.data)


def test_the_models_read_our_capabilities():
    ours = capabilities("w", "1", "d")
    assert as_json(ag_ui.AgentCapabilities.model_validate(ours)) == ours
