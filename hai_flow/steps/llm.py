"""`llm`: one question to a model, its answer streamed, counted and held against the schema that it was asked for.

A partial answer never gets into a prompt and is never an output: the attempt fails with the code of the cause, and the
run decides whether to ask again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import structlog

from hai_flow import values
from hai_flow.definition.plan import Llm, Schema, Step
from hai_flow.engine.events import ModelUse
from hai_flow.errors import StepError
from hai_flow.models.asking import ask
from hai_flow.models.catalogue import Catalogue
from hai_flow.models.conversation import conversation
from hai_flow.models.endpoints import Providers
from hai_flow.models.scripted import StandIn
from hai_flow.models.structured import read_answer, received, repair_prompt
from hai_flow.models.turn import Turn, cost_of
from hai_flow.models.vocabulary import Endpoint, Message, Piece, Request, Text, Thinking
from hai_flow.steps.files import with_files
from hai_flow.steps.runner import Attempt, Stream
from hai_flow.steps.secrets import Secrets, Use
from hai_flow.values import Json

log = structlog.get_logger(__name__)

_ABSENT: Final = frozenset({"llm.not_configured", "secret.missing"})
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


class LlmRunner:
    """Performs `llm` with the models of `catalogue`, which `providers` serve; their keys are among `secrets`.

    `stand_in` answers workflows of this disk if the model is not there, or its key; None: the step fails then.
    """

    def __init__(
        self, catalogue: Catalogue, providers: Providers, secrets: Secrets, stand_in: StandIn | None = None
    ) -> None:
        self._stand_in = stand_in
        self._catalogue = catalogue
        self._providers = providers
        self._secrets = secrets

    async def perform(self, attempt: Attempt, stream: Stream) -> Json:
        llm = attempt.step.verb
        assert isinstance(llm, Llm)
        endpoints = await self._reached(llm, attempt)
        question = _Question(self._providers, llm, stream)
        messages = await with_files(conversation(values.loads(attempt.args)), attempt.files)
        answer, endpoint = await question.ask(endpoints, messages)
        if llm.output is None:
            return _storable(answer.text)
        output, faults = read_answer(answer.text, llm.output)
        if faults:
            wrong = (*messages, Message("assistant", answer.text), Message("user", repair_prompt(faults)))
            answer, _ = await question.ask([endpoint], wrong, repair=True)
            output, faults = read_answer(answer.text, llm.output)
        if faults:
            raise _invalid(faults, answer.text)
        return output

    def fault(self, step: Step, *, from_disk: bool = False) -> str | None:
        return None

    def doubt(self, step: Step, *, from_disk: bool = False) -> str | None:
        if not isinstance(step.verb, Llm) or (self._stand_in is not None and from_disk):
            return None
        try:
            endpoints = self._catalogue.endpoints(step.verb.models, from_disk=from_disk)
        except StepError as error:
            return error.message
        secrets = [each.secret for each in endpoints if each.secret is not None]
        return next((doubt for name in secrets if (doubt := self._secrets.absent(name))), None)

    async def _reached(self, llm: Llm, attempt: Attempt) -> list[Endpoint]:
        """The models that are asked, one after the other, with their keys. Raises StepError."""
        try:
            known = self._catalogue.endpoints(llm.models, from_disk=attempt.from_disk)
            return await self._with_keys(known, attempt)
        except StepError as error:
            if self._stand_in is None or not attempt.from_disk or error.code not in _ABSENT:
                raise
            endpoint = self._stand_in.endpoint(llm.models[0])
            log.warning(
                "model_stands_in", model=llm.model, asked=f"{endpoint.provider}/{endpoint.model}", why=error.message
            )
            return [endpoint]

    async def _with_keys(self, known: list[Endpoint], attempt: Attempt) -> list[Endpoint]:
        """Those whose keys are there. Raises StepError for the first of them if there is none."""
        found: list[Endpoint] = []
        missing: StepError | None = None
        for each in known:
            try:
                found.append(await self._with_key(each, attempt))
            except StepError as error:
                missing = missing or error
        if not found and missing is not None:
            raise missing
        return found

    async def _with_key(self, endpoint: Endpoint, attempt: Attempt) -> Endpoint:
        if endpoint.secret is None:
            return endpoint
        host = urlsplit(endpoint.base_url).hostname or ""
        use = Use(host, attempt.workflow, attempt.from_disk, endpoint.ours)
        return replace(endpoint, key=await self._secrets.value(endpoint.secret, use))

    async def close(self) -> None:
        await self._providers.close()


class _Question:
    """The question of one attempt. It streams the pieces of the answers and counts their tokens."""

    def __init__(self, providers: Providers, llm: Llm, stream: Stream) -> None:
        self._providers = providers
        self._llm = llm
        self._stream = stream

    async def ask(
        self, endpoints: list[Endpoint], messages: tuple[Message, ...], *, repair: bool = False
    ) -> tuple[Turn, Endpoint]:
        """The complete answer, and whose it is. Raises StepError."""
        output = None if self._llm.output is None else _raw(self._llm.output)

        def spent(endpoint: Endpoint, turn: Turn) -> None:
            self._stream.used(_use(endpoint, turn, messages, repair=repair))

        return await ask(
            self._providers.of,
            endpoints,
            lambda endpoint: Request(endpoint, messages, output=output),
            self._hear,
            spent,
        )

    async def _hear(self, piece: Piece) -> None:
        if self._llm.stream == "none":
            return
        if isinstance(piece, Text):
            await self._stream(_storable(piece.text))
        elif isinstance(piece, Thinking):
            await self._stream(_storable(piece.text), "thinking")


def _use(endpoint: Endpoint, turn: Turn, messages: tuple[Message, ...], *, repair: bool) -> ModelUse:
    tokens, estimated = turn.spent(sum(message.chars for message in messages))
    return ModelUse(
        endpoint.name,
        endpoint.provider,
        endpoint.model,
        tokens.input,
        tokens.output,
        tokens.cached,
        tokens.reasoning,
        cost_of(tokens, endpoint.price),
        estimated,
        repair,
    )


def _raw(schema: Schema) -> Mapping[str, Json]:
    raw = schema.raw
    return raw if isinstance(raw, Mapping) else {}


def _invalid(faults: str, text: str) -> StepError:
    return StepError(
        f"The model's answer does not fit `output`, also after it was told why: {faults}.",
        code="llm.invalid_output",
        data={"received": _storable(received(text))},
    )


def _storable(text: str) -> str:
    """Characters that can't be stored are replaced, not refused (docs/design/promises.md#bounds)."""
    return _UNSTORABLE.sub("\ufffd", text)
