"""A real OpenID Connect provider, as a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from tests.clients import rig
from tests.support.waiting import until

PROJECT = Path(__file__).resolve().parent / "oidc"
CLIENT = "hai-flow"
BACK = "http://localhost:9/signed-in"


class Provider:
    """An OpenID Connect provider."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.described = httpx2.get(f"{url}/.well-known/openid-configuration").json()

    def sign_in(self, sub: str) -> str:
        """The ID token that a person gets by the authorization code flow."""
        asked = {"client_id": CLIENT, "redirect_uri": BACK, "response_type": "code", "scope": "openid", "state": "s1"}
        answer = self.consent(f"{self.described['authorization_endpoint']}?{httpx2.QueryParams(asked)}", sub)
        assert answer["state"] == "s1"
        given = {"grant_type": "authorization_code", "code": answer["code"], "redirect_uri": BACK}
        tokens = httpx2.post(self.described["token_endpoint"], data=given, auth=(CLIENT, "its secret"))
        assert tokens.status_code == 200, tokens.text
        return tokens.json()["id_token"]

    def consent(self, location: str, sub: str) -> dict[str, str]:
        """What the browser of a person brings back that was sent to this place, and says who it is."""
        answer = httpx2.post(location, data={"sub": sub})
        assert answer.status_code == 302, answer.text
        return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}

    def describe(self, sub: str, **claims: Any) -> None:
        """Say from now on of a person."""
        httpx2.put(f"{self.url}/users/{sub}", json=claims).raise_for_status()

    def lock_out(self, sub: str) -> None:
        """Nothing that the person was given is good any more."""
        httpx2.post(f"{self.url}/users/{sub}/revoke-tokens").raise_for_status()


@contextmanager
def providing(*, rotates: bool = False) -> Iterator[Provider]:
    """A provider. `rotates`: each of its refresh tokens is good once."""
    programs = rig.python_packages(PROJECT) / "bin"
    command = [programs / "python", PROJECT / "rotating.py"] if rotates else [programs / "oidc-provider-mock"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*command, "--port", str(port)],
        env={**os.environ, "AUTHLIB_INSECURE_TRANSPORT": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://localhost:{port}"

    def answers() -> bool:
        assert process.poll() is None, "the provider has ended"
        with contextlib.suppress(httpx2.TransportError):
            return httpx2.get(f"{url}/.well-known/openid-configuration").status_code == 200
        return False

    try:
        asyncio.run(until(answers, 20.0))
        yield Provider(url)
    finally:
        process.terminate()
        process.wait(20)
