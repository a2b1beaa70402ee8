"""The Python client under its old name, for one release: it is the package `hai_flow_client` now (clients/python)."""

import sys

from hai_flow_client import *  # noqa: F403
from hai_flow_client import __all__ as __all__
from hai_flow_client import events

sys.modules[f"{__name__}.events"] = events
