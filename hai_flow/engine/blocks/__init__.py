"""The block verbs, one module each: how they begin, take an end inside them, resume and migrate.

A module names its verb and its rules as `BLOCKS`; the modules of this package are found by themselves. So a new block
is one file here. The rules that all blocks share are in `completion`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from hai_flow.definition.plan import Step
from hai_flow.engine.blocks.block import Block, BlockPlaces

__all__ = ["BLOCKS", "Block", "BlockPlaces", "block_of"]

BLOCKS: Final[dict[type, Block]] = {}
for _module in iter_modules(__path__):
    BLOCKS.update(getattr(import_module(f"{__name__}.{_module.name}"), "BLOCKS", {}))


def block_of(step: Step) -> Block:
    return BLOCKS[type(step.verb)]
