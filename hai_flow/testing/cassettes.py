"""Recorded answers of services and models, which tests are played with in place of mocks (docs/testing.md#cassettes).

A cassette holds exchanges: a request as the log has it (secrets only by name), and how the attempt ended. An exchange
belongs to a case; the same request again, in the same case, is the next one that was recorded of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec.structs import asdict

from hai_flow import values
from hai_flow.definition.plan import AgentTurn, Http, Llm, Plan, Schema, Step
from hai_flow.engine import commands as c
from hai_flow.engine.events import ModelUse
from hai_flow.engine.state.state import RunState
from hai_flow.engine.steps.agents import talk
from hai_flow.errors import HaiFlowError
from hai_flow.values import Json

Kind: TypeAlias = Literal["http", "llm", "agent"]

VERSION: Final = "cassette/v1"
SUFFIX: Final = ".cassette.json"
SHOWN_CHARS_MAX: Final = 300


class CassetteError(HaiFlowError):
    """A file that is no cassette, or a request that a cassette does not know."""


class Failed(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How an attempt failed, as in `commands.StepFailed`."""

    code: str
    message: str
    retriable: bool | None = None
    data: Json = None
    retry_after: int | None = None


class RecordedExchange(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A request of the case `case`, and its `output` or its `error`. `used`: the answers of models that it took."""

    case: str
    kind: Kind
    request: Json
    output: Json = None
    error: Failed | None = None
    used: tuple[ModelUse, ...] = ()


class _CassetteFile(msgspec.Struct, forbid_unknown_fields=True):
    hai: Literal["cassette/v1"]
    exchanges: list[RecordedExchange]


class Performer(Protocol):
    """Performs an attempt for a recording, by a real request."""

    def perform(
        self, plan: Plan, state: RunState, step: Step, attempt: int, now: int
    ) -> c.StepSucceeded | c.StepFailed:
        """Perform the attempt. Returns its result, without secrets."""
        ...


@dataclass(slots=True)
class Cassette:
    """The cassette at `path`. With a `performer` it is recorded anew: the calls of a case are really performed."""

    path: Path
    performer: Performer | None = None
    exchanges: list[RecordedExchange] = field(default_factory=list)
    changed: bool = False

    def of(self, case: str) -> Tape:
        """The recording of a case, from its beginning; an empty one while the cassette is recorded anew."""
        exchanges = [] if self.performer is not None else [each for each in self.exchanges if each.case == case]
        return Tape(case, exchanges, self.performer, str(self.path))

    def keep(self, tape: Tape) -> None:
        """Replace the recording of a case by the one that `tape` has made."""
        self.exchanges = [*(each for each in self.exchanges if each.case != tape.case), *tape.exchanges]
        self.changed = True

    def save(self) -> None:
        """Write it, if anything was recorded. Raises OSError."""
        if not self.changed:
            return
        self.changed = False
        if self.exchanges or self.path.exists():
            text = msgspec.json.format(msgspec.json.encode(_CassetteFile(VERSION, self.exchanges)), indent=2)
            self.path.write_bytes(text + b"\n")


@dataclass(slots=True)
class Tape:
    case: str
    exchanges: list[RecordedExchange]
    performer: Performer | None
    file: str
    _taken: Counter[int] = field(default_factory=Counter)

    @property
    def knows_any(self) -> bool:
        """Whether there is anything to look for."""
        return self.performer is not None or bool(self.exchanges)

    def answer(self, plan: Plan, state: RunState, step: Step, attempt: int, now: int) -> c.StepSucceeded | c.StepFailed:
        """The recorded result of the attempt; while the cassette is recorded, that of a real one. Raises
        CassetteError."""
        kind, request = question_of(plan, state, step)
        if self.performer is None:
            return _replay_end(step.path, attempt, self._next(kind, request))
        ended = self.performer.perform(plan, state, step, attempt, now)
        self.exchanges.append(_exchange(self.case, kind, request, ended))
        return ended

    def _next(self, kind: Kind, request: Json) -> RecordedExchange:
        same = [each for each in self.exchanges if each.kind == kind and each.request == request]
        if not same:
            raise CassetteError(
                f"{self.file} has no answer to this request: {_short(request)}; mock it, or record the case anew "
                "(`hai-flow test --record`)"
            )
        key = id(same[0])
        number = self._taken[key]
        self._taken[key] += 1
        if number >= len(same):
            times = "once" if len(same) == 1 else f"{len(same)} times"
            raise CassetteError(
                f"{self.file} has this request {times}, and here it is made once more: {_short(request)}; record the "
                "case anew (`hai-flow test --record`)"
            )
        return same[number]


def is_recorded(step: Step) -> bool:
    """Whether a cassette holds effects of this kind."""
    return isinstance(step.verb, Http | Llm | AgentTurn)


def question_of(plan: Plan, state: RunState, step: Step) -> tuple[Kind, Json]:
    """The question of an attempt (its kind, and the arguments as JSON), by which its recorded answer is found."""
    verb = step.verb
    if isinstance(verb, AgentTurn):
        conversation = talk(plan, state, step.path)
        exchanges = [[dict(each.answer), [list(result) for result in each.results]] for each in conversation.exchanges]
        return "agent", _plain(
            {"asked": values.loads(conversation.asked), "told": exchanges, **_output_schema(verb.output)}
        )
    args = values.loads(state.steps[step.path].args or "{}")
    if isinstance(verb, Llm):
        return "llm", _plain({**args, **_output_schema(verb.output)})
    return "http", args


def cassette_of(test: Path) -> Path:
    """Where the cassette of a test file is: beside it."""
    name = test.name
    for suffix in (".test.yaml", ".test.yml"):
        name = name.removesuffix(suffix)
    return test.with_name(name + SUFFIX)


def read_cassette(path: Path) -> list[RecordedExchange]:
    """The exchanges of the file; none where there is no file. Raises CassetteError, OSError."""
    if not path.exists():
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=_CassetteFile).exchanges
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CassetteError(f"{path} is no cassette: {error}; delete it, or record it anew") from None


def _output_schema(output: Schema | None) -> dict[str, Json]:
    return {} if output is None else {"output": output.raw}


def _plain(value: Any) -> Json:
    return values.loads(values.dumps(value))


def _exchange(case: str, kind: Kind, request: Json, ended: c.StepSucceeded | c.StepFailed) -> RecordedExchange:
    if isinstance(ended, c.StepSucceeded):
        return RecordedExchange(case, kind, request, _plain(ended.output), used=ended.used)
    failed = Failed(ended.code, ended.message, ended.retriable, _plain(ended.data), ended.retry_after)
    return RecordedExchange(case, kind, request, error=failed, used=ended.used)


def _replay_end(path: str, attempt: int, known: RecordedExchange) -> c.StepSucceeded | c.StepFailed:
    error = known.error
    if error is None:
        return c.StepSucceeded(path=path, attempt=attempt, output=known.output, used=known.used)
    return c.StepFailed(path=path, attempt=attempt, used=known.used, **asdict(error))


def _short(request: Json) -> str:
    text = values.dumps(request).decode()
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"
