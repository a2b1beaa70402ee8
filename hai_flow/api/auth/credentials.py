"""The identity of a request's caller.

Without configured identity there is one person, `user:local`, and the server listens on loopback only (`local`). With
`HAI_FLOW_IDENTITY` every request has a credential, or it is refused (`known`); there is no identity to fall back to.
"""

from __future__ import annotations

from pathlib import Path

from hai_flow.api.auth.authenticate import KnownIdentity
from hai_flow.api.auth.config import read_identity
from hai_flow.api.auth.loopback import LocalIdentity
from hai_flow.api.auth.sessions import Limits
from hai_flow.api.permissions.principals import Identity
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import KEYS, Settings


def identity_of(settings: Settings, runtime: Runtime, *, development: bool) -> Identity:
    """The identity that the settings describe. `development`: HAI-Act-As is believed where no identity is configured.
    Raises DefinitionError for mistakes in the identity file."""
    if settings.identity is None:
        return LocalIdentity(runtime, development=development)
    if settings.identity == KEYS:
        return KnownIdentity(runtime, Limits.of(settings))
    issuers, people = read_identity(Path(settings.identity))
    runtime.issuer_roles = {
        role for issuer in issuers for roles in (issuer.roles or {}).values() for role in roles
    }  # of which publishing speaks
    return KnownIdentity(runtime, Limits.of(settings), issuers, people)
