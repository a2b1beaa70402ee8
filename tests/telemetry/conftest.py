"""Runtimes that are watched."""

from tests.runtime.conftest import eye, make

__all__ = ["eye", "make"]
