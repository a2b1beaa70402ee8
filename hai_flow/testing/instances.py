"""The steps of a run that a name in a test means: a path, an id, or an id with the keys of loops behind it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from hai_flow.definition.paths import keys_of, plan_path

_NAME: Final = re.compile(r"(?P<id>[a-z][a-z0-9_]*)(?P<keys>(\[[^\[\]]*\])*)")


def stands_at(name: str, ids: Mapping[str, str]) -> str:
    """The path in the plan that a name means: `water[bad]` and `water` mean the step with the id `water`."""
    match = _NAME.fullmatch(name)
    return ids[match["id"]] if match is not None and match["id"] in ids else plan_path(name)


def means(name: str, path: str, ids: Mapping[str, str]) -> bool:
    """Whether the name means the step at `path` of a run. Keys behind an id are those of the loops around the step, the
    innermost last; an id without keys means the step in every round."""
    if name == path:
        return True
    match = _NAME.fullmatch(name)
    if match is None or ids.get(match["id"]) != plan_path(path):
        return False
    keys = keys_of(match["keys"])
    own = keys_of(path)
    return len(keys) <= len(own) and own[len(own) - len(keys) :] == keys


def paths_meant(names: Iterable[str], open_paths: Iterable[str], ids: Mapping[str, str]) -> list[str]:
    """For each name the path that it means among `open_paths`, each path once; a name that means none stays."""
    unmatched = list(open_paths)
    meant: list[str] = []
    for name in sorted(names, key=lambda name: (name not in unmatched, -len(keys_of(name)))):
        path = next((path for path in unmatched if means(name, path, ids)), None)
        if path is not None:
            unmatched.remove(path)
        meant.append(name if path is None else path)
    return sorted(meant)


def names_with_keys(id: str, path: str) -> list[str]:
    """The id with the keys of the loops around the step at `path`, from all of them to none."""
    keys = keys_of(path)
    return [id + "".join(f"[{key}]" for key in keys[start:]) for start in range(len(keys) + 1)]
