"""The whole language: every mapping and every verb, in their order."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.names.wording import article
from hai_flow.definition.verbs import blocks, calls, ends, http, messages, models, people, runs, state, waits
from hai_flow.definition.verbs.verb import VerbRules
from hai_flow.definition.yaml.key_table import COMMON_KEYS, DOCUMENT_SHAPES
from hai_flow.definition.yaml.keys import Key, Shape, Type

_MODULES: Final = (calls, http, models, runs, people, messages, state, waits, blocks, ends)
VERBS: Final[dict[str, VerbRules]] = {verb.name: verb for module in _MODULES for verb in module.VERBS}
SHAPES: Final[dict[str, Shape]] = {
    **DOCUMENT_SHAPES,
    **{shape.name: shape for verb in VERBS.values() for shape in verb.shapes},
}


def _step(verb: VerbRules) -> Shape:
    own = Key(verb.name, verb.type, verb.does, required=True, example=verb.example, read=verb.read)
    keys = {key.name: key for key in SHAPES["step"].keys}
    common = (keys[word] for word in COMMON_KEYS)
    return Shape(verb.name, f"{article(verb.name)} step", (*common, own, *(keys[word] for word in verb.keys)))


def _inside(type_: Type) -> frozenset[str]:
    own = SHAPES[type_.shape].words if type_.kind == "shape" else ()
    return frozenset(own).union(*(_inside(part) for part in type_.parts if type_.kind == "either"))


STEP_SHAPES: Final = {name: _step(verb) for name, verb in VERBS.items()}
STEP_KEYS: Final = frozenset(word for shape in STEP_SHAPES.values() for word in shape.words)
VERB_KEYS: Final = {name: _inside(verb.type) for name, verb in VERBS.items()}  # those that stand under the verb
STEP_ORDER: Final = (
    *COMMON_KEYS,
    *VERBS,
    *(key.name for key in SHAPES["step"].keys if key.name not in COMMON_KEYS),
)
DOCUMENT_ORDER: Final = SHAPES["document"].words
