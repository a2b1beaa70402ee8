"""The people of a test, with the roles that the workflow gives: its own `roles` decide who has one of these."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from hai_flow.definition.plan import Plan
from hai_flow.engine.commands import Principal
from hai_flow.errors import Finding
from hai_flow.testing.suite import Suite


def with_roles_of(suite: Suite, plan: Plan) -> tuple[Suite, list[Finding]]:
    """The suite, whose people have what the workflow's `roles` ask for: `role:nurse` makes a member of the group that
    has the role. A role that the workflow gives to persons alone can't be had by others: a finding."""
    people: dict[str, Principal] = {}
    findings: list[Finding] = []
    for name, person in suite.people.items():
        groups = list(person.groups)
        for role in person.roles:
            members = plan.roles.get(role)
            if members is None or person.id in members or any(f"group:{group}" in members for group in groups):
                continue
            group = next((member for member in members if member.startswith("group:")), None)
            if group is None:
                line, column = suite.document.position(("people", name))
                listed = ", ".join(f"`{member.removeprefix('user:')}`" for member in members)
                message = f"the workflow's `roles` give `role:{role}` to {listed} alone; call the person so"
                findings.append(Finding(suite.file, line, column, "error", "test.person", message))
            else:
                groups.append(group.removeprefix("group:"))
        people[name] = msgspec.structs.replace(person, groups=tuple(groups))
    return replace(suite, people=people), findings
