"""What a process logs of a command quotes nothing personal."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.state import Map, PendingState, RunState
from hai_flow.errors import Rejected, StoreError
from hai_flow.runtime.commit.batch_recovery import BatchRecovery
from hai_flow.runtime.commit.batches import CommitEntry
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.submission import Submission
from hai_flow.runtime.runtime import LOCAL_TENANT
from tests.runtime.conftest import Make
from tests.support.runs import RUN, plan_of
from tests.support.waiting import until

IBAN = "DE89-7715"
PLAIN = plan_of("steps:\n  - say: hello\n")
PERSONAL = plan_of(
    "input: {type: object, properties: {iban: {type: string, pii: true}}}\nsteps:\n  - say: 'To ${{ input.iban }}'\n"
)


ASKED = e.PendingOpened(at=0, id="p", path="a", kind="ask", digest="d", inquiry=e.Inquiry(1),
                        schema={"type": "object", "properties": {"iban": {"type": "string", "pii": True}}})  # fmt: skip
PLAINLY_ASKED = RunState(str(RUN), pendings=Map({"p": PendingState(ASKED)}))


def run_of(plan: Plan | None, state: RunState | None = None) -> CachedRun:
    return CachedRun(RUN, UUID(int=0), state or RunState(str(RUN)), plan)


QUOTED = pytest.mark.parametrize(
    ("plan", "state", "quotes"),
    [(PLAIN, None, True), (PERSONAL, None, False), (None, None, False), (PLAIN, PLAINLY_ASKED, False)],
    ids=["plain", "personal", "unknown", "asked by a tool"],
)


@QUOTED
def test_a_refusal_that_nobody_waits_for_is_logged_without_what_it_quotes(
    plan: Plan | None, state: RunState | None, quotes: bool
) -> None:
    submission = Submission(c.Pause(by="user:ann"), 0.0)
    refused = Rejected(422, "answer.invalid", f"iban: expected another account, found {IBAN!r}.")
    with capture_logs() as logs:
        CommitEntry(run_of(plan, state), RunState(str(RUN)), answers=[(submission, refused)]).settle()
    (entry,) = logs
    assert (entry["event"], entry["code"]) == ("refused", "answer.invalid")
    assert (IBAN in str(entry)) is quotes


@QUOTED
async def test_a_command_that_fails_is_logged_without_what_the_fault_quotes(
    plan: Plan | None, state: RunState | None, quotes: bool
) -> None:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    failures = BatchRecovery(Mock())  # of what the others need, nothing is asked here
    with capture_logs() as logs:
        failures.undecidable(run_of(plan, state), Submission(c.Pause(by="user:ann"), 0.0, answer=answer), fault())
    (entry,) = logs
    assert (entry["event"], entry["command"]) == ("command_failed", "Pause")
    assert (IBAN in str(entry)) is quotes
    assert quotes or (entry["error"], entry["at"]) != ("", [])
    assert isinstance(answer.exception(), StoreError)
    assert IBAN not in str(answer.exception()), "the request's own log has its text"


def fault() -> Exception:
    try:
        raise ValueError(f"invalid byte sequence in {IBAN!r}")
    except ValueError as error:
        return error


async def test_a_trigger_behind_a_run_logs_nothing_that_its_expression_quotes(make: Make) -> None:
    runtime = await make(performs=True)
    fails = 'event.data.output[event.data.output.iban] == "x"'
    sources = {
        "behind": f"triggers:\n  - run: {{workflow: paying, match: '{fails}'}}\nsteps: [{{say: hi}}]\n",
        "paying": "input: {type: object, properties: {iban: {type: string, pii: true}}}\nsteps: [{say: hi}]\n"
        "output: {iban: '${{ input.iban }}'}\n",
    }
    for name, source in sources.items():
        await runtime.catalog.publish(LOCAL_TENANT, f"hai: flow/v1\nname: {name}\nversion: 1\n{source}".encode())
    _, plan = await runtime.catalog.resolve_startable(LOCAL_TENANT, "paying")
    begin = c.Start(run_id=RUN, thread_id=str(RUN), requester="user:ann", input={"iban": IBAN})
    with capture_logs() as logs:
        await runtime.starts.start(LOCAL_TENANT, plan, begin)
        await until(lambda: any(each["event"] == "run_trigger_refused" for each in logs))
    assert IBAN not in str(logs)
