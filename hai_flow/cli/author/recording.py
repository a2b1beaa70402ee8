"""`test --record`: services and models are called as a worker would call them, one attempt after the other.

The catalogue of models, secrets, hosts and proxies come from the settings of the environment. Everything else of a
worker is missing: there is no database, so a run has no files, and its thread has no earlier messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from hai_flow.cli.options import load_settings
from hai_flow.definition.plan import AgentTurn, Plan, Step
from hai_flow.engine import commands as c
from hai_flow.engine.events import ModelUse
from hai_flow.engine.state.state import RunState
from hai_flow.engine.steps.agents import talk
from hai_flow.errors import StepError
from hai_flow.runtime.settings import build_registry
from hai_flow.runtime.worker.attempt import evaluate_for_step, failure
from hai_flow.settings import variables
from hai_flow.steps.python.toolbox import Toolbox
from hai_flow.steps.runner import Attempt, Registry, Unheard


class ReplayRecorder:
    """`hai_flow.testing.cassettes.Performer` with the runners of this deployment."""

    def __init__(self, registry: Registry, runner: asyncio.Runner) -> None:
        self._registry = registry
        self._runner = runner

    @classmethod
    @contextlib.contextmanager
    def open(cls) -> Iterator[ReplayRecorder]:
        """A recorder, with a loop of its own until the end. Raises SettingsError."""
        settings = load_settings()
        toolbox = Toolbox.of(settings.tools, Path.cwd(), project=True)
        toolbox.load()
        # Without a key nothing stands in for a model: its answer would be kept as if a model had given it.
        registry = build_registry(settings, toolbox, stands_in=bool(variables(("OPENAI_API_KEY",))))
        with asyncio.Runner() as runner:
            try:
                yield cls(registry, runner)
            finally:
                runner.run(registry.close())

    def perform(
        self, plan: Plan, state: RunState, step: Step, attempt: int, now: int
    ) -> c.StepSucceeded | c.StepFailed:
        return self._runner.run(self._perform(plan, state, step, attempt, now))

    async def _perform(
        self, plan: Plan, state: RunState, step: Step, number: int, now: int
    ) -> c.StepSucceeded | c.StepFailed:
        step_state, heard, hidden = state.steps[step.path], _Heard(), self._registry.hidden
        attempt = Attempt(
            state.run_id,
            step.path,
            number,
            step_state.args or "{}",
            step,
            step_state.key,
            True,
            plan.name,
            partial(evaluate_for_step, plan, state, step, now),
        )
        if isinstance(step.verb, AgentTurn):
            conversation = partial(talk, plan, state, step.path)
            offered = partial(self._registry.offered, from_disk=True)
            attempt = msgspec.structs.replace(attempt, talk=conversation, offered=offered)
        try:
            output = await self._registry.runner_of(step).perform(attempt, heard)
        except StepError as error:
            return failure(step.path, number, error, uses=tuple(heard.uses), hidden=hidden)
        return c.StepSucceeded(path=step.path, attempt=number, output=hidden(output), used=tuple(heard.uses))


class _Heard(Unheard):
    """Takes the stream of an attempt. It drops the pieces, which no test looks at, and keeps the usage of models."""

    def __init__(self) -> None:
        self.uses: list[ModelUse] = []

    def used(self, use: ModelUse) -> None:
        self.uses.append(use)
