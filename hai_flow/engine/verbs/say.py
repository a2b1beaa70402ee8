"""`say`: a message of the run itself, in pieces that a commit has room for."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.plan import Say, Step
from hai_flow.engine import events as e
from hai_flow.engine.completion.consequences import Consequence, FinishStep
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.ids import message_id

SAY_CHUNK_CHARS: Final = 4096


def begin(draft: Draft, step: Step) -> Consequence | None:
    verb = step.verb_as(Say)
    content = draft.render(verb.content, step)
    kind = "data" if verb.kind in ("fold", "output") else verb.kind
    if kind == "text" or (kind == "thinking" and not isinstance(content, dict)):
        if isinstance(content, str):
            text = content
            draft.take(len(text.encode()))
        else:
            text = draft.json_text(content)
    elif verb.kind == "output":
        text = draft.json_text(content)
    else:
        text = draft.json_text({"type": verb.kind, "data": content})
        kind = "data"
    draft.record_start(step)
    draft.pure_steps += 1
    id = message_id(draft.state.run_id, step.path, 1, draft.state.entries)
    draft.emit(
        e.MessageStarted,
        message_id=id,
        path=step.path,
        kind=kind,
        block_id=None if verb.block_id is None else draft.text(verb.block_id, step),
        layout=None if verb.layout is None else draft.render(verb.layout, step),
        style=None if verb.style is None else draft.render(verb.style, step),
    )
    size = len(text) or 1 if kind == "data" else SAY_CHUNK_CHARS  # structured output is one document, one chunk
    for n, start in enumerate(range(0, len(text), size)):
        draft.emit(e.MessageChunk, message_id=id, n=n, content=text[start : start + size])
    draft.emit(e.MessageEnded, message_id=id)
    return FinishStep(step)


VERBS: Final = {Say: begin}
