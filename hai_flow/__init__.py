"""HAI Flow: declarative workflows that wait for people, in PostgreSQL.

The names listed here are public; everything else may change without notice.
"""

from hai_flow.errors import DefinitionError, Finding, HaiFlowError, Rejected, StepError, StoreError
from hai_flow.steps.tools import Context, tool

__version__ = "0.1.0"

__all__ = [
    "Context",
    "DefinitionError",
    "Finding",
    "HaiFlowError",
    "Rejected",
    "StepError",
    "StoreError",
    "__version__",
    "tool",
]
