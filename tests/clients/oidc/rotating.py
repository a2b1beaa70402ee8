"""The provider, whose refresh tokens are good once: who uses one gets another. Runs in the provider's environment."""

from __future__ import annotations

from typing import Any

from oidc_provider_mock import _app
from oidc_provider_mock.__main__ import run


class Rotating(_app.RefreshTokenGrant):
    INCLUDE_NEW_REFRESH_TOKEN = True
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")  # as it takes codes

    def revoke_old_credential(self, refresh_token: Any) -> None:
        super().revoke_old_credential(refresh_token)
        _app.storage.remove_refresh_token(refresh_token.token)


if __name__ == "__main__":
    _app.RefreshTokenGrant = Rotating
    run()
