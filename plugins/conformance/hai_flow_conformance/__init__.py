"""Conformance: any HAI or AG-UI endpoint, driven as real clients drive it, and a report of its behaviour.

Imports nothing else of HAI Flow: its expectations come from the protocols, not from our encoders.
"""

from __future__ import annotations

from hai_flow_conformance.catalogue import CATALOGUE
from hai_flow_conformance.drive import conform
from hai_flow_conformance.peer import Plan, Unreachable
from hai_flow_conformance.report import Check, Report, Result, Verdict
from hai_flow_conformance.rules import Dialect, judge

__all__ = ["CATALOGUE", "Check", "Dialect", "Plan", "Report", "Result", "Unreachable", "Verdict", "conform", "judge"]
