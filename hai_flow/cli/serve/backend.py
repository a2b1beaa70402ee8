"""Where `run` and `dev --demo` have their runs performed: in this process or by a server."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from hai_flow.cli.client.eligible import Roles, principal, roles_of_workflow
from hai_flow.cli.client.rest import Server
from hai_flow.cli.errors import Problem, Unreachable
from hai_flow.cli.terminal import format_version, program
from hai_flow.errors import Finding
from hai_flow.primitives.versions import reference
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.definition.plan import Plan
    from hai_flow.engine.commands import Principal
    from hai_flow.runtime.runtime import Runtime

NAMES: Final = (
    "Expected a workflow file (one that exists, or a word with a slash or the ending .yaml or .yml), or the name of a "
    "workflow that the server has, as NAME or NAME@VERSION"
)
_GIVEN: Final = (
    "Give it as -i KEY=VALUE or --input-json JSON. A VALUE that can be JSON is taken as that: a text of digits has "
    "quotes, -i 'KEY=\"123\"'."
)
_NAME: Final = re.compile(r"[a-z][a-z0-9_@+-]*")  # what can stand in a path as it is


def missing_file(word: str) -> str:
    return f"There is no file {word!r}."


@dataclass(frozen=True, slots=True)
class RequestedWorkflow:
    """The workflow of which a run is wanted: the file `name` with this source or, without one, the workflow that a
    server has by this name. `children`: the files beside it of the workflows that it runs, in the order in which they
    are published, each as (name, source)."""

    name: str
    source: bytes | None = None
    children: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class TerminalCaller:
    """The person at the terminal, as the party that performs the runs knows them. `proven`: it has asked for their
    credentials, and so takes nobody for somebody else (`--as`)."""

    who: Principal
    proven: bool = False


class Backend(Protocol):
    """The party that performs the runs: it starts, follows and answers."""

    async def caller(self) -> TerminalCaller:
        """Who is at the terminal. Raises Problem or Unreachable."""
        ...

    async def begin(self, wanted: RequestedWorkflow, input: Json, thread_id: str | None) -> tuple[str, str]:
        """Start a run. Returns its workflow's reference and its id. Raises DefinitionError or Problem."""
        ...

    async def roles(self, reference: str) -> Roles:
        """The roles that a workflow gives itself, as far as they are known."""
        ...

    async def start(self, workflow: str, input: Json, thread_id: str | None) -> str:
        """Start a run of a workflow that is there. Returns its id."""
        ...

    def events(self, run_id: str, after: int = 0) -> AsyncGenerator[dict[str, Json], None]:
        """The run's events after a seq as REST shows them, until its terminal one."""
        ...

    async def answer(self, pending_id: str, body: dict[str, Json]) -> None:
        """Decide; `body` as `POST /v1/pendings/{id}/decide` takes it. Raises Rejected or Problem."""
        ...


def _label_file(found: Json, file: str) -> str:
    from hai_flow.definition.yaml.include_keys import label

    return label(file, found) if isinstance(found, str) and found != "<workflow>" else file


def _exactly(name: str, version: int, sha256: str) -> str:
    """This very document, also where another one was published under its number."""
    return reference(name, version, sha256, dev=True)


class Remote:
    """A server performs the runs, over REST."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def caller(self) -> TerminalCaller:
        from hai_flow.engine import commands as c

        if self._server.act_as is not None:  # it took the run from that person: it believes the name
            return TerminalCaller(principal(self._server.act_as))
        session = await self._server.get("/v1/session")
        who = c.Principal(session["principal"], tuple(session["roles"]), tuple(session["groups"]))
        return TerminalCaller(who, proven=session["way"] != "local")

    async def begin(self, wanted: RequestedWorkflow, input: Json, thread_id: str | None) -> tuple[str, str]:
        run = await self.start_run(wanted, input, thread_id)
        return format_version(run), run["id"]

    async def start_run(self, wanted: RequestedWorkflow, input: Json, thread_id: str | None) -> Json:
        """A new run, as REST shows it. Raises Problem.

        A file is started by its digest, and published only where the server does not have it: `dev` publishes the files
        of its own folder, and accepts more in them than over the network, tools of the project, for example. No version
        is read for that, as who may start runs need not have the right to read workflows."""
        if wanted.source is None:
            return await self._start_by_name(wanted.name, input, thread_id)
        from hai_flow.definition.compiler import compile_workflow

        plan = compile_workflow(wanted.source, wanted.name)
        await self._send_children(wanted.children)
        try:
            return await self._start(_exactly(plan.name, plan.version, plan.sha256.hex()), input, thread_id)
        except Problem as problem:
            if problem.code not in ("workflow_unknown", "version_forbidden"):
                raise
        stored = await self._send_source(wanted.source, wanted.name, plan.name)
        return await self._start(_exactly(stored["name"], stored["version"], stored["sha256"]), input, thread_id)

    async def input_schema(self, name: str) -> Json:
        """The schema of the input of a workflow that the server has; None where the caller may not read workflows, or
        it can't be had: what is wrong is told by the start. A right that the caller lacks is not tried, as refusals are
        recorded."""
        if not _NAME.fullmatch(name):
            return None
        try:
            session = await self._server.get("/v1/session")
            if "read_workflows" not in session["rights"]:
                return None
            return (await self._server.get(f"/v1/workflows/{name}"))["input"]
        except (Problem, Unreachable):
            return None

    async def _start_by_name(self, name: str, input: Json, thread_id: str | None) -> Json:
        try:
            return await self._start(name, input, thread_id)
        except Problem as problem:
            if problem.code == "input.invalid":
                raise Problem(problem.body, problem.page, _GIVEN) from None
            if problem.code not in ("workflow_unknown", "auth.missing"):
                raise
            raise Problem(problem.body, problem.page, f"{missing_file(name)} {NAMES}.") from None
        except Unreachable as error:
            raise Unreachable(f"{error} {missing_file(name)} {NAMES}.") from None

    async def _send_children(self, children: Sequence[tuple[str, bytes]]) -> None:
        """Publish the workflows beside the file that the server does not have as they are here. Where it takes none
        from the caller, the run uses those that the server has; if it lacks one, the start says which."""
        if not children:
            return
        session = await self._server.get("/v1/session")
        if not {"read_workflows", "publish"} <= {*session["rights"]}:
            return
        from hai_flow.definition.compiler import compile_workflow

        for name, source in children:
            plan = compile_workflow(source, name)
            try:
                await self._server.get(f"/v1/workflows/{_exactly(plan.name, plan.version, plan.sha256.hex())}")
            except Problem as problem:
                if problem.code != "workflow_unknown":
                    raise
                try:
                    await self._send_source(source, name, plan.name)
                except Problem as refusal:
                    if refusal.code not in ("right_missing", "publishing_off"):
                        raise

    async def _send_source(self, source: bytes, file: str, name: str) -> Json:
        """The workflow as the server has it now. What it finds wrong stands in `file`, whose name it was not told."""
        try:
            return await self._server.post("/v1/workflows", content=source, dev="true")
        except Problem as problem:
            findings: list[dict[str, Json]] = problem.body.get("findings") or []
            named = [{**each, "file": _label_file(each.get("file"), file)} for each in findings]
            advice = ""
            if problem.code in ("right_missing", "publishing_off"):
                advice = (
                    f"The server does not start {file} as it is here, and does not take it from you. What it has of "
                    f"this workflow is started by its name: {program()} run {name}"
                )
            raise Problem({**problem.body, "findings": named}, problem.page, advice) from None

    async def roles(self, reference: str) -> Roles:
        return await roles_of_workflow(self._server, reference)

    async def start(self, workflow: str, input: Json, thread_id: str | None) -> str:
        return (await self._start(workflow, input, thread_id))["id"]

    async def _start(self, workflow: str, input: Json, thread_id: str | None) -> Json:
        body = {"workflow": workflow, "input": input}
        return await self._server.post("/v1/runs", body if thread_id is None else {**body, "thread_id": thread_id})

    def events(self, run_id: str, after: int = 0) -> AsyncGenerator[dict[str, Json], None]:
        return self._server.events(run_id, after)

    async def answer(self, pending_id: str, body: dict[str, Json]) -> None:
        await self._server.post(f"/v1/pendings/{pending_id}/decide", body)


class Local:
    """This process's own runtime performs the runs. Raises NotASelector if `act_as` is not a selector of a person."""

    def __init__(self, runtime: Runtime, *, act_as: str | None = None) -> None:
        self._runtime = runtime
        self._who = principal(act_as)
        self._via = "cli" if act_as is None else "cli (act as)"

    async def caller(self) -> TerminalCaller:
        return TerminalCaller(self._who)

    async def publish(self, source: bytes, file: str, compiled: Plan | None = None) -> tuple[str, Sequence[Finding]]:
        """Store a dev copy. Returns the reference that starts it, and its warnings. `compiled`: its plan, where the
        caller has made it already. Raises DefinitionError."""
        from hai_flow.runtime.runtime import LOCAL_TENANT

        stored, plan = await self._runtime.catalog.publish(
            LOCAL_TENANT, source, file, dev=True, from_disk=True, compiled=compiled
        )
        return reference(stored.name, stored.version, stored.sha256.hex(), dev=stored.dev), plan.warnings

    async def begin(self, wanted: RequestedWorkflow, input: Json, thread_id: str | None) -> tuple[str, str]:
        assert wanted.source is not None, "a name is what a server knows"
        for name, source in wanted.children:
            await self.publish(source, name)
        reference, _ = await self.publish(wanted.source, wanted.name)
        return reference, await self.start(reference, input, thread_id)

    async def roles(self, reference: str) -> Roles:
        from hai_flow.runtime.runtime import LOCAL_TENANT

        return (await self._runtime.catalog.resolve(LOCAL_TENANT, reference))[1].roles

    async def check(self, source: bytes, file: str) -> None:
        """Raises DefinitionError if this published workflow could not be published again now."""
        from hai_flow.runtime.runtime import LOCAL_TENANT

        await self._runtime.catalog.check(LOCAL_TENANT, source, file, from_disk=True)

    async def sign_in_token(self) -> str:
        """A token that signs one browser in, once, within ten minutes: as `user:local`, with all built-in roles."""
        from hai_flow.api.auth.sessions import sign_link_token
        from hai_flow.engine import commands as c
        from hai_flow.runtime.runtime import LOCAL_TENANT

        return await sign_link_token(self._runtime.database.api, LOCAL_TENANT, c.LOCAL_PRINCIPAL.id)

    async def start(self, workflow: str, input: Json, thread_id: str | None) -> str:
        from hai_flow import values
        from hai_flow.engine import commands as c
        from hai_flow.runtime.runtime import LOCAL_TENANT

        runtime = self._runtime
        stored, plan = await runtime.catalog.resolve_startable(LOCAL_TENANT, workflow)
        run_id = runtime.starts.new_id()
        command = c.Start(
            run_id=run_id,
            thread_id=thread_id or str(run_id),
            requester=self._who.id,
            input=values.check(input),
            dev=stored.dev,
        )
        await runtime.files.use(LOCAL_TENANT, self._who.id, run_id, values.dumps(input))
        await runtime.starts.start(LOCAL_TENANT, plan, command, command_id=f"start:{run_id}")
        return str(run_id)

    async def events(self, run_id: str, after: int = 0) -> AsyncGenerator[dict[str, Json], None]:
        from hai_flow import values
        from hai_flow.runtime.runtime import LOCAL_TENANT
        from hai_flow.runtime.streams.fanout import Lagging
        from hai_flow.wire.dialects.dialect import Profile
        from hai_flow.wire.dialects.log import LOG

        fanout = self._runtime.fanout
        while True:
            start = await fanout.state_at(LOCAL_TENANT, UUID(run_id), after)
            assert start is not None, "the run was started by us"
            try:
                async for pieces in fanout.follow(UUID(run_id), LOG, Profile(dialect=LOG.name), start):
                    for piece in pieces:
                        after = max(after, piece.seq)
                        for frame in piece.frames:
                            yield values.loads(frame.data)
                return
            except Lagging:  # the terminal is slower than the run: on from where it stands
                continue

    async def answer(self, pending_id: str, body: dict[str, Json]) -> None:
        import msgspec

        from hai_flow import values
        from hai_flow.engine import commands as c
        from hai_flow.engine.state.ids import run_of_pending
        from hai_flow.runtime.base.audit_records import AuditActor
        from hai_flow.runtime.runtime import LOCAL_TENANT

        run_id = run_of_pending(pending_id)
        assert run_id is not None, "a pending's id names its run"
        fields = values.check(body)
        answer = c.PendingAnswer(
            id=pending_id,
            decision=fields.get("decision"),
            reason=fields.get("reason"),
            error=fields.get("error"),
            digest=fields.get("digest"),
            edits=fields.get("edits", msgspec.UNSET),
            values=fields.get("values", msgspec.UNSET),
            result=fields.get("result", msgspec.UNSET),
        )
        command = c.Answer(answers=(answer,), by=self._who, via=self._via)
        actor = AuditActor(who=self._who, way="local", via=self._via)
        await self._runtime.committer.submit(run_id, LOCAL_TENANT, command, asked=actor)
