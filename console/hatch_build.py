"""Puts the console's pages into a wheel, built from their sources."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))

from building import build


class ConsoleHook(BuildHookInterface):
    """Builds the pages for `hai_flow/_console`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the pages, unless the installation is editable: then they are served from the checkout."""
        if version != "editable":
            build_data["force_include"][str(build())] = "hai_flow/_console"
