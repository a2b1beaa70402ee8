"""`llm`, and each answer of an `agent`: one question to a model, its answer streamed, counted and held against the
schema that it was asked for.

A partial answer never gets into a prompt and is never an output: the attempt fails with the code of the cause, and the
run decides whether to ask again."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import msgspec
import structlog

from hai_flow import values
from hai_flow.definition.plan import AgentTurn, Llm, Schema, Step
from hai_flow.definition.schemas.schemas import strip_marks
from hai_flow.engine.events import ModelUse
from hai_flow.engine.steps.agents import Talk
from hai_flow.errors import StepError
from hai_flow.models.calls.written import find_written_call
from hai_flow.models.conversation import conversation
from hai_flow.models.failover import ask
from hai_flow.models.faults import empty, text_call
from hai_flow.models.providers.catalogue import Catalogue
from hai_flow.models.providers.endpoints import Providers
from hai_flow.models.providers.scripted import StandIn
from hai_flow.models.structured import excerpt, read_answer_by_size, repair_prompt
from hai_flow.models.turn import Turn, cost_of
from hai_flow.models.vocabulary import CallArgs, CallStart, Endpoint, Message, Piece, Request, Text, Thinking
from hai_flow.primitives.beside_loop import run_unless_short
from hai_flow.steps.agent import (
    CALLS_MAX,
    IN_WORDS,
    ToolShelf,
    answer_record,
    build_exchange_messages,
    build_opening,
    build_summary_record,
    collect_shelf,
    compute_memory_size,
    is_nearly_full,
    mark_results,
    to_be_cut,
    to_summarise,
)
from hai_flow.steps.files import NO_FILES, RunFiles, with_files
from hai_flow.steps.runner import Attempt, Runner, Stream
from hai_flow.steps.secrets import Secrets, Use, are_any_hidden, hide_secrets
from hai_flow.values import Json, storable

log = structlog.get_logger(__name__)

_ABSENT: Final = frozenset({"llm.not_configured", "secret.missing"})


class LlmRunner(Runner):
    """Performs `llm` with the models of `catalogue`, which `providers` serve; their keys are among `secrets`.

    `stand_in` answers workflows of this disk if the model is not there, or its key; None: the step fails then."""

    def __init__(
        self, catalogue: Catalogue, providers: Providers, secrets: Secrets, stand_in: StandIn | None = None
    ) -> None:
        self._stand_in = stand_in
        self._catalogue = catalogue
        self._providers = providers
        self._secrets = secrets

    async def perform(self, attempt: Attempt, stream: Stream) -> Json:
        llm = attempt.step.verb
        if isinstance(llm, AgentTurn):
            return await self._turn(llm, attempt, stream)
        assert isinstance(llm, Llm)
        endpoints = await self._list_reachable_models(llm, attempt)
        question = _Question(self._providers, llm, (stream, attempt.files))
        messages = await with_files(conversation(values.loads(attempt.args)), attempt.files)
        answer, endpoint = await question.ask(endpoints, lambda _: messages)
        if llm.output is None:
            return storable(answer.text)
        return await question.made(answer, endpoint, messages, llm.output)

    async def _turn(self, verb: AgentTurn, attempt: Attempt, stream: Stream) -> Json:
        """One answer of an agent's model, as it is recorded."""
        shelf, endpoints = await collect_shelf(attempt, verb), await self._list_reachable_models(verb, attempt)
        question, talk = _Question(self._providers, verb, (stream, attempt.files), shelf), attempt.talk()
        results = [text for each in talk.exchanges for _, text in each.results]
        talk = await run_unless_short(results, mark_results, talk)
        remembered = compute_memory_size(endpoints)
        opening = await with_files(await build_opening(attempt, verb, talk, remembered), attempt.files)

        def told(asked: Endpoint) -> tuple[Message, ...]:
            return (*opening, *build_exchange_messages(talk, shelf, asked))

        cut = max(to_be_cut(talk, shelf, each, opening) for each in endpoints)
        if cut:
            return await self._summary(verb, endpoints, stream, (opening, talk, cut, shelf))
        try:
            answer, endpoint = await question.ask(endpoints, told, shows_calls=not talk.closing)
        except StepError as error:
            if not self._is_too_long(error, endpoints, (talk, shelf, opening)):
                raise
            if len(talk.exchanges) > 1:
                return await self._summary(verb, endpoints, stream, (opening, talk, len(talk.exchanges) // 2, shelf))
            before, opening = opening, await with_files(await build_opening(attempt, verb, talk, 0), attempt.files)
            if len(before) == len(opening):
                raise
            answer, endpoint = await question.ask(endpoints, told, shows_calls=not talk.closing)
        record = answer_record(answer, shelf, endpoint)
        if question.parts:
            record["parts"] = question.parts
        if talk.closing:  # whatever it calls: there are no calls any more
            record = {"text": record["text"], "calls": []}
        if verb.output is not None and not record["calls"]:
            record["output"] = await question.made(answer, endpoint, told(endpoint), verb.output)
        return record

    @staticmethod
    def _is_too_long(
        error: StepError, endpoints: list[Endpoint], of: tuple[Talk, ToolShelf, tuple[Message, ...]]
    ) -> bool:
        """Whether a model was asked more than it can read: it says so, or it refuses a question that comes near to what
        it can read, in words that nothing is known of."""
        if error.code == "llm.invalid_request":
            talk, shelf, opening = of
            return any(is_nearly_full(talk, shelf, each, opening) for each in endpoints)
        return error.code == "llm.context_exceeded"

    async def _summary(
        self,
        verb: AgentTurn,
        endpoints: list[Endpoint],
        stream: Stream,
        of: tuple[tuple[Message, ...], Talk, int, ToolShelf],
    ) -> Json:
        """A summary, by the model, that replaces the oldest exchanges from now on. It is not shown in the thread, and
        no tool is called: a model that calls one goes on with its work, and is asked once more. Raises StepError
        `llm.empty`, as without a summary nothing would be known of the exchanges."""
        opening, talk, cut, shelf = of
        quiet = msgspec.structs.replace(verb, output=None, stream="none")
        question = _Question(self._providers, quiet, (stream, NO_FILES), shelf)
        order = partial(to_summarise, talk, cut, shelf)
        answer, author = await question.ask(endpoints, lambda asked: (*opening, *order(asked)), keeps=False)
        if answer.calls:
            again = (*opening, *order(author), Message("user", IN_WORDS))
            answer, _ = await question.ask([author], lambda _: again, repair=True, keeps=False)
        if not answer.text.strip():
            raise empty()
        return build_summary_record(answer.text, talk, cut)

    def doubt(self, step: Step, *, from_disk: bool = False) -> str | None:
        if not isinstance(step.verb, Llm | AgentTurn) or (self._stand_in is not None and from_disk):
            return None
        try:
            endpoints = self._catalogue.endpoints(step.verb.models, from_disk=from_disk)
        except StepError as error:
            return error.message
        secrets = [each.secret for each in endpoints if each.secret is not None]
        return next((doubt for name in secrets if (doubt := self._secrets.absent(name))), None)

    async def _list_reachable_models(self, llm: Llm | AgentTurn, attempt: Attempt) -> list[Endpoint]:
        """The models that are asked, one after the other, with their keys. Raises StepError."""
        try:
            endpoints = self._catalogue.endpoints(llm.models, from_disk=attempt.from_disk)
            return await self._with_keys(endpoints, attempt)
        except StepError as error:
            if self._stand_in is None or not attempt.from_disk or error.code not in _ABSENT:
                raise
            endpoint = self._stand_in.endpoint(llm.models[0])
            log.warning(
                "model_stands_in", model=llm.model, asked=f"{endpoint.provider}/{endpoint.model}", why=error.message
            )
            return [endpoint]

    async def _with_keys(self, known: list[Endpoint], attempt: Attempt) -> list[Endpoint]:
        """The endpoints whose keys can be resolved. Raises the StepError of the first one if no key can be."""
        reachable: list[Endpoint] = []
        missing: StepError | None = None
        for each in known:
            try:
                reachable.append(await self._with_key(each, attempt))
            except StepError as error:
                missing = missing or error
        if not reachable and missing is not None:
            raise missing
        return reachable

    async def _with_key(self, endpoint: Endpoint, attempt: Attempt) -> Endpoint:
        if endpoint.secret is None:
            return endpoint
        host = urlsplit(endpoint.base_url).hostname or ""
        use = Use(host, attempt.workflow, attempt.from_disk, endpoint.ours, tenant=attempt.tenant)
        return dataclasses.replace(endpoint, key=await self._secrets.value(endpoint.secret, use))

    async def close(self) -> None:
        await self._providers.close()


class _Question:
    """The question of one attempt. It streams the pieces of the answers and counts their tokens."""

    def __init__(
        self, providers: Providers, llm: Llm | AgentTurn, to: tuple[Stream, RunFiles], shelf: ToolShelf | None = None
    ) -> None:
        self._providers = providers
        self._llm = llm
        self._stream, self._files = to
        self.parts: list[Json] = []  # the files in its answers
        self._shelf = shelf
        self._tools = () if shelf is None else shelf.tools

    async def ask(
        self,
        endpoints: list[Endpoint],
        messages: Callable[[Endpoint], tuple[Message, ...]],
        *,
        repair: bool = False,
        shows_calls: bool = False,
        keeps: bool = True,
    ) -> tuple[Turn, Endpoint]:
        """The complete answer, and the endpoint that gave it. `keeps`: files in it become parts of the attempt's
        output. An empty one is an answer only where an object is asked for: then the model is told. Raises
        StepError."""
        output = None if self._llm.output is None else _raw(self._llm.output)
        calls = _Calls(self._shelf, self._stream) if self._shelf is not None and shows_calls else None

        async def hear(piece: Piece) -> None:
            await self._hear(piece, calls)

        def spent(endpoint: Endpoint, turn: Turn) -> None:
            prompt = 0 if turn.usage else sum(each.tokens for each in (*messages(endpoint), *self._tools))
            self._stream.used(_use(endpoint, turn, prompt, repair=repair))

        answer, endpoint = await ask(
            self._providers.of,
            endpoints,
            lambda endpoint: Request(endpoint, _without_secrets(messages(endpoint)), self._tools, output),
            hear,
            spent,
            may_be_empty=output is not None,
        )
        for each in answer.media if keeps else ():
            self.parts.append(await self._files.put(each.data, each.media_type))
            self._stream.made(self.parts[-1])
        return answer, endpoint

    async def made(self, answer: Turn, endpoint: Endpoint, messages: tuple[Message, ...], schema: Schema) -> Json:
        """The answer to `messages` as an object of `schema`. Where it is none, the model gets the reason and answers
        once more. Raises StepError `llm.invalid_output`, and `llm.unavailable` for a call that is written as text."""
        output, faults = await read_answer_by_size(answer.text, schema)
        if faults:
            self._demand_no_call(answer.text)
            wrong = (*messages, Message("assistant", answer.text), Message("user", repair_prompt(faults)))
            answer, _ = await self.ask([endpoint], lambda _: wrong, repair=True, keeps=False)
            output, faults = await read_answer_by_size(answer.text, schema)
        if faults:
            self._demand_no_call(answer.text)
            raise _invalid(faults, answer.text)
        return output

    def _demand_no_call(self, text: str) -> None:
        """Raises StepError for a call that is written as text."""
        if name := find_written_call(text, [tool.name for tool in self._tools]):
            raise text_call(name)

    async def _hear(self, piece: Piece, calls: _Calls | None) -> None:
        if isinstance(piece, CallStart | CallArgs):
            if calls is not None and self._llm.stream != "none":
                await calls.hear(piece)
        elif self._llm.stream != "text":
            return
        elif isinstance(piece, Text):
            await self._stream(piece.text)
        elif isinstance(piece, Thinking):
            await self._stream(piece.text, "thinking")


class _Calls:
    """The calls of one answer while they are written. Calls of functions that were not offered are not shown."""

    def __init__(self, shelf: ToolShelf, stream: Stream) -> None:
        self._shelf = shelf
        self._stream = stream
        self._begun = 0
        self._counts: Counter[str] = Counter()
        self._shown: dict[str, tuple[str, int]] = {}

    async def hear(self, piece: CallStart | CallArgs) -> None:
        if isinstance(piece, CallArgs):
            if piece.id in self._shown:
                await self._stream.call(*self._shown[piece.id], piece.text)
            return
        self._begun += 1
        offered = self._shelf.functions.get(piece.name)
        if offered is None or self._begun > CALLS_MAX:
            return
        self._counts[offered.name] += 1
        self._shown[piece.id] = offered.name, self._counts[offered.name]
        await self._stream.call(*self._shown[piece.id], "")


def _without_secrets(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages without the value of any secret that this process has resolved: a value can get there by a tool's
    result, and no model needs it."""
    return tuple(map(_message_without_secrets, messages)) if are_any_hidden() else messages


def _message_without_secrets(message: Message) -> Message:
    content = message.content
    if isinstance(content, str):
        visible: str | list[Json] = hide_secrets(content)
    else:  # pictures and documents stay as they are: they are long
        visible = [{**part, "text": hide_secrets(part["text"])} if "text" in part else part for part in content]
    args = [hide_secrets(call.args) for call in message.calls]
    thinking = hide_secrets(message.thinking)
    if visible == content and thinking == message.thinking and args == [call.args for call in message.calls]:
        return message  # nearly every message: none is made anew for each question
    calls = tuple(msgspec.structs.replace(call, args=text) for call, text in zip(message.calls, args, strict=True))
    return msgspec.structs.replace(message, content=visible, calls=calls, thinking=thinking)


def _use(endpoint: Endpoint, turn: Turn, prompt: int, *, repair: bool) -> ModelUse:
    tokens, estimated = turn.spent(prompt)
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
    raw = strip_marks(schema.raw)
    return raw if isinstance(raw, Mapping) else {}


def _invalid(faults: str, text: str) -> StepError:
    return StepError(
        f"The model's answer does not fit `output`, also after it was told why: {faults}.",
        code="llm.invalid_output",
        data={"received": storable(excerpt(text))},
    )
