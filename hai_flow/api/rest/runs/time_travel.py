"""Time travel for operators: the moments at which a run can be forked, its differences between two moments, and forks
that go on from one (docs/decisions/0064)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from fastapi import Query, Response
from pydantic import BeforeValidator, Field

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, VERSION
from hai_flow.api.http.bodies import Body, demand_few, hash_content
from hai_flow.api.http.stream import Frames
from hai_flow.api.permissions.rights import Right
from hai_flow.api.permissions.visibility import Sight
from hai_flow.api.protocols.stream_pieces import farewell
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess
from hai_flow.api.requests.profiles import reader_of
from hai_flow.api.requests.views import build_run_view, render, render_difference
from hai_flow.api.rest.runs.moments import MOMENT_CHARS_MAX, MOMENTS, resolve_moment
from hai_flow.api.routes import Routes
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.pendings import bypass
from hai_flow.engine.runs.fork import list_undone
from hai_flow.engine.state.state import TERMINAL_STATUSES, RunState
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import run_beside_loop
from hai_flow.runtime.runs.moments import Mark, nearest
from hai_flow.runtime.streams.stream_items import is_slow_to_encode, item_of_event
from hai_flow.store.commit.entries import Branch
from hai_flow.store.runs import run_lists, threads
from hai_flow.store.runs.run_lists import RunRow, RunSummary
from hai_flow.wire import DIALECTS
from hai_flow.wire.dialects.dialect import Dialect, Profile
from hai_flow.wire.dialects.log import LOG

router = Routes(prefix="/v1/runs", tags=["runs"])

_NAMED: Final = Field(min_length=1, max_length=500, pattern=NO_CONTROL_CHARACTERS)


class ForkBody(Body):
    """`at`: the event behind which the fork goes on; or `step`: it goes on in front of where that step began last.
    These replace the run's own: `input` (all of it), `state` (variables), `version` (of the same workflow; `map`: steps
    that have another name there, old -> new)."""

    at: int | None = Field(default=None, ge=1, le=2**53)
    step: Annotated[str, _NAMED] | None = None
    input: dict[str, Any] | None = None
    state: dict[str, Any] | None = None
    version: str | None = Field(default=None, pattern=VERSION)
    map: Annotated[dict[str, Annotated[str, _NAMED]], BeforeValidator(demand_few)] = Field(default={})
    reason: str = Field(default="", max_length=2000)
    dry_run: bool = False


# --- looking ----------------------------------------------------------------------------------------------------------


@router.get("/{run_id}/marks", Right.SEE_OWN, refusals=(404,))
async def get_marks(run_id: str, access: CurrentAccess) -> schemas.Marks:
    """Where the run waited and where its steps began, in order; whether it can be forked there, and with edits."""
    row = await access.run(run_id)
    return {"items": [_mark_view(mark) for mark in await _marks(access, row.id)]}


async def _marks(access: Access, run_id: UUID) -> list[Mark]:
    now = await access.state(run_id)
    acted = {}
    if bypass.find_approval(now) is not None:
        acted = await access.runtime.branches.find_effects(access.tenant, now)
    return await access.runtime.moments.marks(access.tenant, run_id, list_undone(now), acted)


def _mark_view(mark: Mark) -> schemas.Mark:
    why_not = mark.obstacle or mark.edited_obstacle
    return render(
        schemas.Mark,
        mark,
        forkable=mark.obstacle is None,
        editable=mark.edited_obstacle is None,
        why_not=why_not and render(schemas.MarkObstacle, why_not),
    )


@router.get("/{run_id}/diff", Right.SEE_OWN, refusals=(404,))
async def get_difference(
    run_id: str,
    access: CurrentAccess,
    from_: Annotated[str, Query(alias="from", max_length=MOMENT_CHARS_MAX, description=MOMENTS)],
    to: Annotated[str | None, Query(max_length=MOMENT_CHARS_MAX, description=MOMENTS)] = None,
) -> schemas.Difference:
    """The differences of the run at `to` (default: now) from the run at `from`: the state as a JSON Patch, the steps
    and the pendings that differ."""
    row = await access.run(run_id, Sight.QUESTIONS)
    first = await resolve_moment(access, row, from_, "from")
    second = row.seq if to is None else await resolve_moment(access, row, to, "to")
    before, after = [await access.seen(await access.state_of(row, seq)) for seq in (first, second)]
    return render_difference(before, after)


# --- replaying --------------------------------------------------------------------------------------------------------


@router.get(
    "/{run_id}/replay",
    Right.SEE_OWN,
    refusals=(404,),
    answer={"description": "the events", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
)
async def replay_run(
    run_id: str,
    access: CurrentAccess,
    speed: Annotated[float, Query(gt=0, le=100_000, description="how much faster than it was")] = 1,
    gap: Annotated[float, Query(ge=0, le=60, description="the longest pause, in seconds")] = 2,
    from_: Annotated[str | None, Query(alias="from", max_length=MOMENT_CHARS_MAX, description=MOMENTS)] = None,
    to: Annotated[str | None, Query(max_length=MOMENT_CHARS_MAX, description=MOMENTS)] = None,
    dialect: Literal["hai", "agui", "social", "aui", "agent-api"] | None = None,
) -> Response:
    """Send the run's events once more, from the log: nothing is performed. They come at their original intervals,
    `speed` times as fast, and never more than `gap` after the one before; then the stream ends."""
    row = await access.run(run_id, Sight.QUESTIONS)
    first = 0 if from_ is None else await resolve_moment(access, row, from_, "from")
    last = row.seq if to is None else await resolve_moment(access, row, to, "to")
    chosen = LOG if dialect is None else DIALECTS[dialect]
    start = await access.state_of(row, first)
    profile = reader_of(access, row, chosen, start)

    async def begin() -> Frames:
        return _replay(access, chosen, profile, start, last, speed, gap)

    return await access.stream(begin, chosen, farewell(access, chosen))


async def _replay(
    access: Access, dialect: Dialect, profile: Profile, start: RunState, last: int, speed: float, gap: float
) -> Frames:
    run_id, seq, at = UUID(start.run_id), start.seq, start.at
    encoder = dialect.encoder(profile, start)
    async for first, events in access.runtime.moments.commits(run_id, reads=access.reads, after=seq, bounded=False):
        for number, event in enumerate(events, first):
            if number > last:
                return
            if at and event.at > at:
                await asyncio.sleep(min((event.at - at) / 1000 / speed, gap))
            at = event.at
            is_slow = is_slow_to_encode((event,), (profile,))
            if frames := await run_beside_loop(encoder.encode, event) if is_slow else encoder.encode(event):
                yield [item_of_event(dialect, frames, number, run_id)]


# --- going on from another moment -------------------------------------------------------------------------------------


@router.post(
    "/{run_id}/fork", Right.CONTROL_RUNS, status_code=201, refusals=(404, 409, 413),
    responses={
        200: {"model": schemas.Rehearsal, "description": "with `dry_run`: what it would do, and nothing has happened"},
        201: {"description": "it is forked"},
    },
)  # fmt: skip
async def fork_run(
    run_id: str, body: ForkBody, access: CurrentAccess, key: CommandKey, response: Response
) -> schemas.Run | schemas.Rehearsal:
    """Go on from an earlier moment of the run, with another input, state or version if you like, in a new run of the
    same thread.

    The thread's active run is stopped first, and undoes its work since that moment; you are the new run's requester. A
    fork that is impossible is refused before anything is stopped. The same Idempotency-Key again gives the same run.
    """
    fork = await _Forking.of(access, await access.run(run_id), body, key)
    if body.dry_run:
        response.status_code = 200
        return await fork.rehearsal()
    row = await fork.bear()
    response.headers["Location"] = f"/v1/runs/{row.id}"
    return await build_run_view(row)


class _Forking:
    """One request for a fork, rehearsed."""

    def __init__(
        self,
        access: Access,
        base: RunRow,
        body: ForkBody,
        key: str | None,
        *,
        there: RunState,
        fork: c.Fork,
        plan: Plan,
        branch: Branch,
        left: RunSummary | None,
        leaving: RunState | None,
        inherited: e.Inherited | None,
        known: bool,
    ) -> None:
        self.access, self.base, self.body, self.key = access, base, body, key
        self.there, self.command, self.plan, self.branch = there, fork, plan, branch
        self.left, self.leaving, self.inherited, self.known = left, leaving, inherited, known

    @classmethod
    async def of(cls, access: Access, base: RunRow, body: ForkBody, key: str | None) -> _Forking:
        """Raises Rejected where it can't be done."""
        if (body.at is None) == (body.step is None):
            raise Rejected(422, "request.invalid", "expected one of `at` and `step`: the moment to go back to.")
        run_id = access.runtime.starts.new_id()
        is_repeated = False
        if key is not None:
            run_id = access.runtime.starts.id_of("fork", str(access.tenant), str(base.id), access.principal.id, key)
            is_repeated = await run_lists.get_run(access.reads, access.tenant, run_id) is not None
        seq = await _seq_of(access, base, body)
        base_state, now = await access.state(base.id, seq), await access.state(base.id)
        to, edits = await _edits_of(access, base, base_state, body)
        answer = c.Answer(answers=(), by=access.principal.who, via=access.principal.via("rest"))
        branches = access.runtime.branches
        fork, plan = await branches.fork(run_id, access.tenant, base_state, now, answer, edits=edits, to=to)
        pins = {} if edits is None else edits.pins
        if unhidden := await access.list_unhidden(base, base_state, plan, pins, body.map):
            detail = f"{plan.name}@{plan.version} does not mark as personal what is kept from you ({unhidden[0]}); its "
            raise Rejected(403, "fork.forbidden", f"{detail}requester may go on with it.")
        last = await threads.last_run(access.reads, access.tenant, base.thread_id)
        leaving = None if last is None or last.status in TERMINAL_STATUSES or last.id == run_id else last
        line = await threads.line(access.reads, access.tenant, base.thread_id, base.id, 2)
        branch = Branch(base.id, line[-2] if len(line) > 1 else None, seq)
        forking = cls(
            access, base, body, key,
            there=base_state, fork=fork, plan=plan, branch=branch, left=leaving, known=is_repeated,
            leaving=None if leaving is None else await access.state(leaving.id),
            inherited=None if leaving is None else await branches.list_work_left(leaving, base_state),
        )  # fmt: skip
        if not is_repeated:
            await forking._rehearse()
        return forking

    async def _rehearse(self) -> None:
        try:
            await self.access.runtime.starts.rehearse(self.plan, self.command)
        except Rejected as rejected:
            raise await self._with_what_there_is(rejected) from None

    async def _with_what_there_is(self, rejected: Rejected) -> Rejected:
        """A refusal of the moment, with the nearest moments at which a fork is possible."""
        if not rejected.code.startswith("fork_"):
            return rejected
        seqs = nearest(await _marks(self.access, self.base.id), self.there.seq, edited=self.command.edits is not None)
        advice = f"The nearest moments: {' and '.join(map(str, seqs))}." if seqs else "It can be forked nowhere."
        return Rejected(rejected.status, rejected.code, f"{rejected.detail} {advice}", winner={"nearest": seqs})

    @property
    def _stop(self) -> c.Stop:
        return c.Stop(by=self.access.principal.id, reason=self.body.reason or "forked", inherited=self.inherited)

    async def rehearsal(self) -> schemas.Rehearsal:
        """The effects that the fork would have (`shapes.Rehearsal`). Raises Rejected where it would be refused."""
        if not self.known:
            await self.access.rehearse(self.left, self.plan, self.command)
        base_state, leaving = self.there, self.leaving
        inherited = self.inherited
        stops = None
        if leaving is not None:
            undoes = sorted(p for p, seq in leaving.undoables.items() if inherited is None or seq > inherited.seq)
            stops = render(schemas.Left, leaving, in_flight=sorted(leaving.attempts), undoes=undoes)
        return {
            "of": base_state.run_id,
            "at": base_state.seq,
            "thread_id": self.base.thread_id,
            "workflow": self.plan.name,
            "version": self.plan.version,
            "requester": self.access.principal.id,
            "begins": [path for path in base_state.ready if path],
            "asks": sorted(base_state.open_pendings),
            "restarts": sorted(base_state.children),
            "stops": stops,
        }

    async def bear(self) -> RunRow:
        """Stop the thread's active run, if there is one, and begin the fork."""
        access, body = self.access, await hash_content(dict(self.body))
        fork, command_id = self.command, self.key or f"fork:{self.command.run_id}"
        options: dict[str, Any] = {"command_id": command_id, "body_sha": body, "branch": self.branch}
        if self.left is not None and not self.known:
            stop_id = f"fork:{command_id}"
            outcome = await access.stop_and_start(self.left, self._stop, self.plan, fork, stop_id=stop_id, **options)
        else:
            await access.runtime.branches.hand_files(access.tenant, fork)
            outcome = await access.start(self.plan, fork, **options)
        return await access.changed_run(outcome)


async def _seq_of(access: Access, base: RunRow, body: ForkBody) -> int:
    if body.at is not None:
        if body.at > base.seq:
            raise Rejected(422, "request.invalid", f"at: the run has {base.seq} events so far, found {body.at}.")
        return body.at
    plan = await access.runtime.catalog.plan(access.tenant, base.workflow)
    path = plan.ids.get(str(body.step), str(body.step))
    began = [mark for mark in await _marks(access, base.id) if mark.step is not None]
    seqs = [mark.seq for mark in began if mark.step == path]
    if not seqs:
        steps = list(dict.fromkeys(str(mark.step) for mark in began))
        detail = f"step: the run has not begun {body.step!r}. Those that began: {', '.join(steps) or 'none'}."
        findings = [{"path": "/step", "message": step} for step in steps]
        raise Rejected(422, "step.not_begun", detail, findings=findings)
    return seqs[-1]


async def _edits_of(
    access: Access, base: RunRow, there: RunState, body: ForkBody
) -> tuple[Plan | None, c.Edits | None]:
    edits = c.Edits()
    if body.input is not None:
        edits = msgspec.structs.replace(edits, input=body.input)
    if body.state is not None:
        edits = msgspec.structs.replace(edits, state=body.state)
    to = None
    if body.version is not None:
        stored, to = await access.runtime.catalog.resolve(access.tenant, f"{base.workflow_name}@{body.version}")
        pins = await access.runtime.catalog.pins(access.tenant, to)
        edits = msgspec.structs.replace(edits, paths=body.map, dev=stored.dev, pins=pins)
    elif body.map:
        raise Rejected(422, "request.invalid", "map: expected `version`, to which steps are mapped.")
    is_other = to is not None and to.sha256.hex() != there.sha256
    return to, edits if is_other or body.input is not None or body.state is not None else None
