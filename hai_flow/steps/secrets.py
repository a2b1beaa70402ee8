"""Secrets of the deployment: their sources, the hosts they may be sent to, and how they are kept out of sight.

A file (`HAI_FLOW_SECRETS_FILE`) gives the source and the uses of each secret:

    hai: secrets/v1
    secrets:
      SHOP: {env: SHOP_TOKEN, hosts: [api.shop.example], workflows: [refund]}
      ACME: {hosts: [api.acme.example], tenants: [acme], workflows: [refund]}
      BANK: {file: /run/secrets/bank, hosts: ["*.bank.example"]}
      VAULT: {command: [vault, read, -field=token, kv/erp], every: 5m, hosts: [erp.internal]}
      MAIL: {tools: [acme.mail]}

A name that neither the file nor the environment has a value for is asked of the command of `HAI_FLOW_SECRETS_COMMAND`,
if there is one: it gets the name as its last argument, without a shell, and writes the value.

A secret is for workflows of the tenant `default`, unless the file names others: names of workflows are each tenant's
own, so without this rule an author in another tenant could publish a workflow of the name that a secret is bound to.

A workflow that came over the network may send a secret only to hosts that the file names for it. One that was read from
a disk of this machine may send any to any host: a user that can write there can read the environment as well."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from hai_flow import values
from hai_flow.definition.names.secret_names import REFERENCE, find_secrets
from hai_flow.errors import StepError
from hai_flow.steps.hiding import SHOWN_MIN, Hider, list_forms, without
from hai_flow.values import Json

COMMAND_SECONDS: Final = 10.0
COMMAND_KEPT_SECONDS: Final = 300.0
SAID_BYTES_MAX: Final = 64 * 1024  # of a command
VALUES_MAX: Final = 4000
DEFAULT: Final = "default"  # the tenant whose deployment it is
ANY: Final = "*"


class Source(msgspec.Struct, frozen=True):
    """One secret. At most one of `env`, `file` and `command`; none: `HAI_FLOW_SECRET_<NAME>`, else the deployment's
    command. `hosts` None: the file does not say where it may go. `tenants`: whose workflows may have it, `*` those of
    all. `workflows`, `tools` None: any. `every`: for how many seconds the output of a command is kept."""

    env: str | None = None
    file: Path | None = None
    command: tuple[str, ...] = ()
    every: float = 300.0
    hosts: tuple[str, ...] | None = None
    workflows: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    tenants: tuple[str, ...] = (DEFAULT,)


class Use(msgspec.Struct, frozen=True):
    """The user of a secret, and its target: the `workflow` is one of the `tenant`, both by name. `ours`: the deployment
    itself uses it, for a model of its catalogue.
    `tool`: the function that asks for it, by its full name (`acme.shop.refund`); "": a step that calls none."""

    host: str
    workflow: str = ""
    from_disk: bool = False
    ours: bool = False
    tool: str = ""
    tenant: str = DEFAULT


_UNBOUND: Final = Source()  # of a secret that the file does not name

_seen: Final = Hider(VALUES_MAX)  # values that this process has resolved
_of_attempt: Final[ContextVar[frozenset[str]]] = ContextVar("forms_of_attempt", default=frozenset())


def are_any_hidden() -> bool:
    """Whether `hide_secrets` has anything to hide here."""
    return bool(_seen or _of_attempt.get())


def hide_secrets(value: Json) -> Json:
    """`value` without any secret that was resolved in this process, and without those of the attempt itself."""
    return values.with_texts(value, _hide_text, names=True) if are_any_hidden() else value


def _hide_text(text: str) -> str:
    return _seen.hide(without(text, _of_attempt.get()))


def remember(value: str) -> None:
    """Hide this value from now on in all that is recorded, also in the forms in which services repeat it."""
    _seen.add(value)


def hide_in_attempt(value: str) -> None:
    """Hide this value in what the attempt at hand reports, streams and logs, and nowhere else: one that each attempt
    has anew must not push secrets of the deployment out of memory. An attempt is a task of its own."""
    if len(value) >= SHOWN_MIN:
        _of_attempt.set(_of_attempt.get() | list_forms(value))


@dataclass(slots=True)
class _Kept:
    value: str
    until: float


@dataclass(slots=True)
class Secrets:
    """`given`: the secrets of the environment by name (`HAI_FLOW_SECRET_<NAME>`); `environment` is all of it.
    `command` is asked for those that nothing else has."""

    given: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _asking: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def found(self, value: Json, use: Use) -> dict[str, str]:
        """The secrets that `value` names, by name. Raises StepError."""
        return {name: await self.value(name, use) for name in sorted(_names_in(value))}

    async def value(self, name: str, use: Use) -> str:
        """Raises StepError: `secret.missing`, or `secret.refused` where it is not for this."""
        source = self.sources.get(name)
        self._judge(name, source, use)
        value = await self._resolve(name, source or Source())
        remember(value)
        return value

    def doubt(self, value: Json) -> str | None:
        """Which of the secrets that `value`, of a document, names is not there."""
        return next((doubt for name in sorted(find_secrets(value)) if (doubt := self.absent(name))), None)

    def absent(self, name: str) -> str | None:
        """Why the secret is not there, as far as this is known without reading its source."""
        if name in self.sources or name in self.given or self.command:
            return None
        return f"the secret `{name}` is not there; set HAI_FLOW_SECRET_{name}, or name it in HAI_FLOW_SECRETS_FILE"

    def _judge(self, name: str, source: Source | None, use: Use) -> None:
        if source is not None and source.hosts is not None and not any(_is_in(use.host, each) for each in source.hosts):
            raise _refusal(
                name, f"it goes to {', '.join(source.hosts) or 'no host'} only, and this would be {use.host}"
            )
        if use.ours:
            return
        tenants = (source or _UNBOUND).tenants
        if use.tenant not in tenants and ANY not in tenants:
            of = f"workflows of {'the tenant' if len(tenants) == 1 else 'the tenants'} {', '.join(tenants) or 'nobody'}"
            raise _refusal(name, f"it is for {of} only, and {use.workflow} is one of {use.tenant or 'no tenant'}")
        if source is not None and source.workflows is not None and use.workflow not in source.workflows:
            raise _refusal(name, f"it is for {', '.join(source.workflows)} only, and this is {use.workflow}")
        if source is not None and source.tools is not None and not any(_is_of(use.tool, each) for each in source.tools):
            caller = f"the tool {use.tool}" if use.tool else "a step that calls no tool"
            raise _refusal(name, f"it is for the tools {', '.join(source.tools)} only, and this is {caller}")
        if not use.from_disk and (source is None or source.hosts is None):
            raise _refusal(
                name, "nothing says to which hosts a published workflow may send it; say so in HAI_FLOW_SECRETS_FILE"
            )

    async def _resolve(self, name: str, source: Source) -> str:
        if source.command:
            return await self._run_cached(name, source.command, source.every)
        if source.file is not None:
            try:
                return (await asyncio.to_thread(source.file.read_text)).strip()
            except (OSError, UnicodeDecodeError) as error:
                raise _missing(name, f"{source.file} can't be read: {type(error).__name__}") from None
        where = source.env or f"HAI_FLOW_SECRET_{name}"
        value = self.environment.get(source.env) if source.env else self.given.get(name)
        if not value and self.command and not source.env:
            return await self._run_cached(name, (*self.command, name), COMMAND_KEPT_SECONDS)
        if not value:
            raise _missing(name, f"{where} is not set")
        return value

    async def _run_cached(self, name: str, command: tuple[str, ...], seconds: float) -> str:
        """The value that the command writes, from memory where it was asked within the last `seconds`. Callers at the
        same time wait for one run of the command."""
        async with self._asking.setdefault(name, asyncio.Lock()):
            cached = self._kept.get(name)
            if cached is None or cached.until < time.monotonic():
                value = await _run_command(name, command)
                cached = self._kept[name] = _Kept(value, time.monotonic() + seconds)
            return cached.value


def _names_in(value: Json) -> set[str]:
    if isinstance(value, str):
        return set(REFERENCE.findall(value)) if "${{" in value else set()
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return {name for part in parts for name in _names_in(part)}


def _is_in(host: str, pattern: str) -> bool:
    host, pattern = host.lower().rstrip("."), pattern.lower()
    return host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]))


def _is_of(tool: str, pattern: str) -> bool:
    """Whether the function `tool` (`acme.shop.refund`) is `pattern`, or below it (`acme.shop`, `acme.*`)."""
    prefix = pattern.removesuffix(".*")
    return tool == prefix or tool.startswith(f"{prefix}.")


async def _run_command(name: str, command: tuple[str, ...]) -> str:
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
        assert process.stdout is not None
        async with asyncio.timeout(COMMAND_SECONDS):
            output = await _up_to(process.stdout, SAID_BYTES_MAX)
            if len(output) > SAID_BYTES_MAX:
                raise _missing(name, f"{command[0]} said more than {SAID_BYTES_MAX} bytes")
            await process.wait()
    except TimeoutError:
        raise _missing(name, f"{command[0]} said nothing for {COMMAND_SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    value = output.decode(errors="replace").strip()
    if process.returncode != 0 or not value:
        raise _missing(name, f"{command[0]} ended with {process.returncode} and said {len(value)} characters")
    return value


async def _up_to(stream: asyncio.StreamReader, bytes_max: int) -> bytes:
    """The whole stream, or, if that is longer, a beginning of more than `bytes_max` bytes."""
    content = b""
    while len(content) <= bytes_max and (piece := await stream.read(bytes_max)):
        content += piece
    return content


def _missing(name: str, why: str) -> StepError:
    return StepError(f"the secret `{name}` is not there: {why}.", code="secret.missing", retriable=True)


def _refusal(name: str, why: str) -> StepError:
    return StepError(f"the secret `{name}` is not for this: {why}.", code="secret.refused", retriable=False)
