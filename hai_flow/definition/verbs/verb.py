"""The parts of a verb: its lines in the pages, its keys, its compilation. The modules beside this one have the
verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from hai_flow.definition import plan
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.raw_steps import Lists, StepDraft
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.keys import Shape, Type
from hai_flow.values import Json

Kind: TypeAlias = Literal["effect", "model", "people", "message", "state", "time", "block", "end"]


class VerbRules(msgspec.Struct, frozen=True):
    """One verb. The first seven are for the pages: `keys` are the step keys that go with it (beside `id title
    if`), `fails` the codes that it raises.

    `compile`: its node of the plan; None after a finding. `kind`: how a picture shows it. `shapes`: the mappings that
    belong to it. `gives`: the JSON Schema of its output, `{}` where nothing is known; `judges`: the same
    with what is known of its expressions, which judges others and binds none. `read`: the type that the reader takes,
    where the compiler has a better sentence for some values that are not of `type`. `lists`: reads the steps inside of
    a block. `timeout`: of an attempt, in milliseconds, unless the document has one. `cleans`: whether it may stand in
    `undo` and `finally`, which have to end. `aka`: its names in other languages."""

    name: str
    type: Type
    does: str
    example: str
    compile: Callable[[StepContext, StepDraft, Names], plan.Verb | None]
    kind: Kind
    keys: tuple[str, ...] = ()
    output: str = ""
    fails: str = ""
    shapes: tuple[Shape, ...] = ()
    gives: Json | Callable[[StepContext, StepDraft], Json] = None
    judges: Callable[[StepContext, StepDraft], Json] | None = None
    read: Type | None = None
    lists: Callable[[Lists, StepDraft], None] | None = None
    timeout: int | None = None
    cleans: bool = True
    aka: tuple[str, ...] = ()
