"""`emit`: an event for whatever follows the run: custom, raw, or of a collaboration."""

from __future__ import annotations

from typing import Final

from hai_flow import values
from hai_flow.definition.expressions.value_text import as_text
from hai_flow.definition.plan import Emit, Step
from hai_flow.engine import events as e
from hai_flow.engine.completion.consequences import Consequence, FinishStep
from hai_flow.engine.draft import Draft


def begin(draft: Draft, step: Step) -> Consequence | None:
    verb = step.verb_as(Emit)
    content = draft.render(verb.content, step)
    draft.take(len(values.dumps(content)))
    draft.record_start(step)
    draft.pure_steps += 1
    if verb.kind == "custom":
        draft.emit(e.CustomEmitted, path=step.path, name=as_text(content["name"]), value=content.get("value"))
    elif verb.kind == "raw":
        source = content.get("source")
        draft.emit(
            e.RawEmitted, path=step.path, event=content["event"], source=None if source is None else as_text(source)
        )
    else:
        task = {key: as_text(value) for key, value in content["task"].items()}
        between = {"from_": as_text(content["from"]), "to": as_text(content["to"]), "task": task}
        draft.emit(e.CollaborationStarted, path=step.path, **between)
        draft.emit(e.CollaborationEnded, path=step.path, **between)
    return FinishStep(step)


VERBS: Final = {Emit: begin}
