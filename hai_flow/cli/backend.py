"""Where `run` and `dev --demo` have their runs performed: in this process or by a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from hai_flow.cli.client import Server
from hai_flow.cli.errors import Problem
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.runtime import Runtime


class Backend(Protocol):
    """The party that performs the runs: it publishes, starts, follows and answers."""

    async def publish(self, source: bytes, file: str) -> str:
        """Store a dev copy. Returns the reference that starts it. Raises DefinitionError or Problem."""
        ...

    async def start(self, workflow: str, input: Json, thread_id: str | None) -> str:
        """Start a run. Returns its id."""
        ...

    def events(self, run_id: str, after: int = 0) -> AsyncGenerator[dict[str, Json], None]:
        """The run's events after a seq as REST shows them, until its terminal one."""
        ...

    async def answer(self, pending_id: str, body: dict[str, Json]) -> None:
        """Decide; `body` as `POST /v1/pendings/{id}/decide` takes it. Raises Rejected or Problem."""
        ...


def _named(found: Json, file: str) -> str:
    from hai_flow.definition.uses import label

    return label(file, found) if isinstance(found, str) and found != "<workflow>" else file


class Remote:
    """A server performs the runs, over REST."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def publish(self, source: bytes, file: str) -> str:
        stored = await self._stored(source, file) or await self._sent(source, file)
        return f"{stored['name']}@{stored['version']}" + (f"+{stored['sha256'][:8]}" if stored["dev"] else "")

    async def _sent(self, source: bytes, file: str) -> Json:
        """The workflow as the server has it now. What it finds wrong stands in `file`, whose name it was not told."""
        try:
            return await self._server.post("/v1/workflows", content=source, dev="true")
        except Problem as problem:
            found: list[dict[str, Json]] = problem.body.get("findings") or []
            named = [{**each, "file": _named(each.get("file"), file)} for each in found]
            raise Problem({**problem.body, "findings": named}, problem.page) from None

    async def _stored(self, source: bytes, file: str) -> Json:
        """The server's workflow with exactly these bytes, or None.

        `dev` publishes the files of its own folder, and accepts more in them than over the network: tools of the
        project, for example. So a workflow that it has is used as it is: over the network it might be refused.
        """
        from hai_flow.definition.compiler import compile_workflow

        plan = compile_workflow(source, file)
        try:
            return await self._server.get(f"/v1/workflows/{plan.name}@{plan.version}+{plan.sha256.hex()[:8]}")
        except Problem as problem:
            if problem.body.get("status") != 404:
                raise
            return None

    async def start(self, workflow: str, input: Json, thread_id: str | None) -> str:
        body = {"workflow": workflow, "input": input}
        run = await self._server.post("/v1/runs", body if thread_id is None else {**body, "thread_id": thread_id})
        return run["id"]

    def events(self, run_id: str, after: int = 0) -> AsyncGenerator[dict[str, Json], None]:
        return self._server.events(run_id, after)

    async def answer(self, pending_id: str, body: dict[str, Json]) -> None:
        await self._server.post(f"/v1/pendings/{pending_id}/decide", body)


class Local:
    """This process's own runtime performs the runs. Raises NotASelector if `act_as` is not a selector of a person."""

    def __init__(self, runtime: Runtime, *, act_as: str | None = None) -> None:
        from hai_flow.engine import commands as c
        from hai_flow.engine.selectors import acting_as

        self._runtime = runtime
        self._who = c.LOCAL_PRINCIPAL if act_as is None else acting_as(act_as)
        self._via = "cli" if act_as is None else "cli (act as)"

    async def publish(self, source: bytes, file: str) -> str:
        from hai_flow.runtime import LOCAL_TENANT
        from hai_flow.runtime.catalog import version_text

        stored, _ = await self._runtime.catalog.publish(LOCAL_TENANT, source, file, dev=True, from_disk=True)
        return version_text(stored.name, stored.version, stored.sha256.hex(), dev=stored.dev)

    async def check(self, source: bytes, file: str) -> None:
        """Raises DefinitionError if this published workflow could not be published again now."""
        from hai_flow.runtime import LOCAL_TENANT

        await self._runtime.catalog.check(LOCAL_TENANT, source, file, from_disk=True)

    async def sign_in_token(self) -> str:
        """A token that signs one browser in, once, within ten minutes: as `user:local`, with all built-in roles."""
        from hai_flow.api.identity.sessions import link_token
        from hai_flow.engine import commands as c
        from hai_flow.runtime import LOCAL_TENANT

        return await link_token(self._runtime.database.api, LOCAL_TENANT, c.LOCAL_PRINCIPAL.id)

    async def start(self, workflow: str, input: Json, thread_id: str | None) -> str:
        from hai_flow import values
        from hai_flow.engine import commands as c
        from hai_flow.runtime import LOCAL_TENANT

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
        from hai_flow.runtime import LOCAL_TENANT
        from hai_flow.runtime.fanout import Lagging
        from hai_flow.wire.dialect import Profile
        from hai_flow.wire.log import LOG

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
        from hai_flow.engine.ids import run_of_pending
        from hai_flow.runtime import LOCAL_TENANT
        from hai_flow.runtime.auditing import Asked

        run_id = run_of_pending(pending_id)
        assert run_id is not None, "a pending's id names its run"
        given = values.check(body)
        answer = c.PendingAnswer(
            id=pending_id,
            decision=given.get("decision"),
            reason=given.get("reason"),
            error=given.get("error"),
            digest=given.get("digest"),
            edits=given.get("edits", msgspec.UNSET),
            values=given.get("values", msgspec.UNSET),
            result=given.get("result", msgspec.UNSET),
        )
        command = c.Answer(answers=(answer,), by=self._who, via=self._via)
        asked = Asked(who=self._who, way="local", via=self._via)
        await self._runtime.committer.submit(run_id, LOCAL_TENANT, command, asked=asked)
