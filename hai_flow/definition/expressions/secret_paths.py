"""Secrets in expressions: each is named as it is, so that it can be looked for before anything is performed."""

from __future__ import annotations

import re
from typing import Final

from hai_flow.definition.expressions.ast_paths import Chain
from hai_flow.definition.expressions.expression_error import ExpressionFault

SECRET_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


HOW_SECRETS_ARE_NAMED: Final = "a secret is named as it is, `secrets.NAME`"
NO_DEFAULT: Final = "whether it is set is looked at before the step, and none is sent in its place"


def check_secret(chain: Chain) -> ExpressionFault | None:
    """Secrets are named one by one, as `secrets.NAME`: what is named otherwise could not be looked for before a run,
    and a default would be sent in the place of a secret."""
    name = chain.path[1] if len(chain.path) > 1 else chain.field
    if len(chain.path) == 2 and chain.field is None and isinstance(name, str) and SECRET_NAME.fullmatch(name):
        return None
    if isinstance(name, str) and SECRET_NAME.fullmatch(name):
        remedy = f"write `secrets.{name}`; {NO_DEFAULT}"
    elif name is None:
        remedy = "one that is computed can't be looked for; write a `switch` with a step for each secret"
    else:
        remedy = "letters, digits and `_`, at most 63, no digit first"
    return ExpressionFault(chain.start, "expression.secret", f"{HOW_SECRETS_ARE_NAMED}: {remedy}")
