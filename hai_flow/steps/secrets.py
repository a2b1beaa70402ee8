"""Secrets of the deployment: their sources, the hosts they may be sent to, and how they are kept out of sight.

A file (`HAI_FLOW_SECRETS_FILE`) gives the source and the uses of each secret:

    hai: secrets/v1
    secrets:
      SHOP: {env: SHOP_TOKEN, hosts: [api.shop.example], workflows: [refund]}
      BANK: {file: /run/secrets/bank, hosts: ["*.bank.example"]}
      VAULT: {command: [vault, read, -field=token, kv/erp], every: 5m, hosts: [erp.internal]}

A workflow that came over the network may send a secret only to hosts that the file names for it. One that was read from
a disk of this machine may send any to any host: a user that can write there can read the environment as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hai_flow.definition.secret_names import REFERENCE, written_names
from hai_flow.errors import StepError
from hai_flow.values import Json

COMMAND_SECONDS: Final = 10.0
SHOWN_MIN: Final = 6  # a shorter value would blacken half of the texts that contain it
HIDDEN: Final = "[secret]"
VALUES_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Source:
    """One secret. At most one of `env`, `file` and `command`; none: `HAI_FLOW_SECRET_<NAME>`. `hosts` None: the file
    does not say where it may go. `every`: for how many seconds the output of a command is kept."""

    env: str | None = None
    file: Path | None = None
    command: tuple[str, ...] = ()
    every: float = 300.0
    hosts: tuple[str, ...] | None = None
    workflows: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """The user of a secret, and its target. `ours`: the deployment itself uses it, for a model of its catalogue."""

    host: str
    workflow: str = ""
    from_disk: bool = False
    ours: bool = False


_seen: Final[dict[str, None]] = {}  # values that this process has resolved, the newest last


def hidden(value: Json) -> Json:
    """`value` without any secret that was resolved in this process."""
    if not _seen:
        return value
    if isinstance(value, str):
        for secret in _seen:
            if secret in value:
                value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, dict):
        return {hidden(key): hidden(each) for key, each in value.items()}
    return [hidden(each) for each in value] if isinstance(value, list) else value


def remember(value: str) -> None:
    """Hide this from now on."""
    if len(value) < SHOWN_MIN:
        return
    _seen.pop(value, None)
    _seen[value] = None
    while len(_seen) > VALUES_MAX:
        del _seen[next(iter(_seen))]


@dataclass(slots=True)
class _Kept:
    value: str
    until: float


@dataclass(slots=True)
class Secrets:
    """`given`: the secrets of the environment by name (`HAI_FLOW_SECRET_<NAME>`); `environment` is all of it."""

    given: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    _kept: dict[str, _Kept] = field(default_factory=dict)

    async def found(self, value: Json, use: Use) -> dict[str, str]:
        """The secrets that `value` names, by name. Raises StepError."""
        return {name: await self.value(name, use) for name in sorted(_named_in(value))}

    async def value(self, name: str, use: Use) -> str:
        """Raises StepError: `secret.missing`, or `secret.refused` where it is not for this."""
        source = self.sources.get(name)
        self._judge(name, source, use)
        value = await self._resolved(name, source or Source())
        remember(value)
        return value

    def doubt(self, value: Json) -> str | None:
        """Which of the secrets that `value`, of a document, names is not there."""
        return next((doubt for name in sorted(written_names(value)) if (doubt := self.absent(name))), None)

    def absent(self, name: str) -> str | None:
        """Why the secret is not there, as far as this is known without reading its source."""
        if name in self.sources or name in self.given:
            return None
        return f"the secret `{name}` is not there; set HAI_FLOW_SECRET_{name}, or name it in HAI_FLOW_SECRETS_FILE"

    def _judge(self, name: str, source: Source | None, use: Use) -> None:
        if source is not None and source.hosts is not None and not any(_is_in(use.host, each) for each in source.hosts):
            raise _refused(
                name, f"it goes to {', '.join(source.hosts) or 'no host'} only, and this would be {use.host}"
            )
        if use.ours:
            return
        if source is not None and source.workflows is not None and use.workflow not in source.workflows:
            raise _refused(name, f"it is for {', '.join(source.workflows)} only, and this is {use.workflow}")
        if not use.from_disk and (source is None or source.hosts is None):
            raise _refused(
                name, "nothing says to which hosts a published workflow may send it; say so in HAI_FLOW_SECRETS_FILE"
            )

    async def _resolved(self, name: str, source: Source) -> str:
        if source.command:
            kept = self._kept.get(name)
            if kept is None or kept.until < time.monotonic():
                value = await _said_by(name, source.command)
                kept = self._kept[name] = _Kept(value, time.monotonic() + source.every)
            return kept.value
        if source.file is not None:
            try:
                return (await asyncio.to_thread(source.file.read_text)).strip()
            except (OSError, UnicodeDecodeError) as error:
                raise _missing(name, f"{source.file} can't be read: {type(error).__name__}") from None
        where = source.env or f"HAI_FLOW_SECRET_{name}"
        value = self.environment.get(source.env) if source.env else self.given.get(name)
        if not value:
            raise _missing(name, f"{where} is not set")
        return value


def _named_in(value: Json) -> set[str]:
    if isinstance(value, str):
        return set(REFERENCE.findall(value)) if "${{" in value else set()
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return {name for part in parts for name in _named_in(part)}


def _is_in(host: str, pattern: str) -> bool:
    host, pattern = host.lower().rstrip("."), pattern.lower()
    return host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]))


async def _said_by(name: str, command: tuple[str, ...]) -> str:
    """The standard output of a command. Its standard error may hold anything, also secrets, so it is never shown."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise _missing(name, f"{command[0]} can't be started: {error.strerror}") from None
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        raise _missing(name, f"{command[0]} said nothing for {COMMAND_SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    value = said.decode(errors="replace").strip()
    if process.returncode != 0 or not value:
        raise _missing(name, f"{command[0]} ended with {process.returncode} and said {len(value)} characters")
    return value


def _missing(name: str, why: str) -> StepError:
    return StepError(f"the secret `{name}` is not there: {why}.", code="secret.missing", retriable=True)


def _refused(name: str, why: str) -> StepError:
    return StepError(f"the secret `{name}` is not for this: {why}.", code="secret.refused", retriable=False)
