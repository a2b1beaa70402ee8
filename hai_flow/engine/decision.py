"""A decision as it is committed: its events, the state that they make, and its messages to other runs."""

from __future__ import annotations

import msgspec

from hai_flow.engine import events as e
from hai_flow.engine.state.jobs import Job, open_jobs
from hai_flow.engine.state.state import RunState
from hai_flow.values import Json


class Message(msgspec.Struct, frozen=True, gc=False):
    """A wish of a commit to another run: `kind` names it, `target` the run, `body` is plain JSON."""

    kind: str
    target: str
    body: Json = None


class Decision(msgspec.Struct, frozen=True, gc=False):
    """A decision to be committed: `events` in order, and the `state` that they make.

    `cut` tells that an attempt was closed by someone other than its performer, which must be fenced off. `outcome` is
    the answer to the command (JSON), which the same command id gets again. `already`: nothing new, events are empty.
    `undecided`: so much was due before the command that it is for a decision of its own. Commit this, and ask again."""

    events: tuple[e.Event, ...]
    state: RunState
    outcome: Json = None
    cut: bool = False
    already: bool = False
    outbox: tuple[Message, ...] = ()
    undecided: bool = False

    @property
    def jobs(self) -> list[Job]:
        """The jobs of the run's holder once this is committed."""
        return open_jobs(self.state)
