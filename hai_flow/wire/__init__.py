"""UI protocols, each a translation of one log. Pure: no I/O, no await, no clock, no log, no settings."""

from __future__ import annotations

from typing import Final

from hai_flow.wire.dialects.agent_api import AGENT_API
from hai_flow.wire.dialects.agui import AGUI
from hai_flow.wire.dialects.aui import AUI
from hai_flow.wire.dialects.dialect import Dialect
from hai_flow.wire.dialects.hai import HAI
from hai_flow.wire.dialects.log import LOG
from hai_flow.wire.dialects.social import SOCIAL

DIALECTS: Final[dict[str, Dialect]] = {dialect.name: dialect for dialect in (HAI, AGUI, SOCIAL, AUI, AGENT_API, LOG)}
