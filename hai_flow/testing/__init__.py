"""Tests of workflows, written in YAML (LANGUAGE section 12): a document is read, held against its workflow, and played.

    Loader.load(path) -> Loaded          findings at line and column, or cases
    Loaded.run(case) -> Result           failures at line and column, or none

The real engine, in memory, on a virtual clock, with everything outside it mocked: no database, no network, no waiting.
"""

from hai_flow.testing.failures import Failure
from hai_flow.testing.loading import Loaded, Loader, find_suites, is_test_file
from hai_flow.testing.runner import Result

__all__ = ["Failure", "Loaded", "Loader", "Result", "find_suites", "is_test_file"]
