"""DBOS as a subject, and pydantic-ai on it: `python -m bench.peers.theirs.dbos_subject chain|agent DSN`.

As their documentations say: the agent has the capability `DBOSDurability` and runs in a workflow, its tools are steps,
the calls that wait for a person are an event of the workflow, and an answer is a message to it. A workflow goes on by
itself when the next process of the same executor launches.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from typing import Any

import uvloop
from dbos import DBOS, DBOSConfig, SetWorkflowID
from pydantic_ai import Agent, DeferredToolRequests, RunContext, Tool, ToolApproved, ToolDenied
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from bench.peers import talking
from bench.peers.talking import LOOK, STEPS, Line

MONTH_SECONDS = 30 * 86400


@DBOS.step()
async def plus_one(n: int) -> int:
    return n + 1


@DBOS.workflow()
async def chain(n: int) -> int:
    for _ in range(STEPS):
        n = await plus_one(n)
    return n


async def be_chain() -> None:
    async def one() -> None:
        handle = await DBOS.start_workflow_async(chain, 0)
        await handle.get_result()

    async def perform(runs: int, concurrency: int) -> float:
        return await talking.in_parallel(runs, concurrency, one)

    DBOS.launch()
    await Line({"chain": perform}, ["dbos"]).serve()


@DBOS.step()
async def free(ctx: RunContext[None], n: int) -> int:
    """A call without approval."""
    return await talking.call_tool("free", n, str(ctx.tool_call_id))


@DBOS.step()
async def edited(ctx: RunContext[None], n: int) -> int:
    """Is approved with another number."""
    return await talking.call_tool("edited", n, str(ctx.tool_call_id))


@DBOS.step()
async def denied(ctx: RunContext[None], n: int) -> int:
    """Is denied."""
    return await talking.call_tool("denied", n, str(ctx.tool_call_id))


async def be_agent() -> None:
    agent = Agent(
        OpenAIChatModel("m", provider=OpenAIProvider(base_url=talking.model_url(), api_key="none")),
        name="bench_agent",
        output_type=[str, DeferredToolRequests],
        tools=[Tool(free), Tool(edited, requires_approval=True), Tool(denied, requires_approval=True)],
        capabilities=[DBOSDurability()],
    )

    @DBOS.workflow()
    async def turn(prompt: str) -> str:
        result = await agent.run(prompt)
        while isinstance(result.output, DeferredToolRequests):
            requests = result.output
            waiting = {call.tool_call_id: call.tool_name for call in requests.approvals}
            approvals: dict[str, Any] = {}
            await show(waiting)
            for call in sorted(waiting, key=waiting.__getitem__):  # a message may come before it is waited for
                answer = await DBOS.recv_async(topic=call, timeout_seconds=MONTH_SECONDS)
                if answer["decision"] == "reject":
                    approvals[call] = ToolDenied("not three")
                else:
                    approvals[call] = ToolApproved(override_args={"n": answer["n"]})
                del waiting[call]
                await show(waiting)
                loop.call_soon_threadsafe(taken[call].set)
            answers = requests.build_results(approvals=approvals)
            result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)
        return result.output

    async def show(waiting: dict[str, str]) -> None:
        await DBOS.set_event_async("open", dict(waiting))
        if (run := str(DBOS.workflow_id)) in opened:
            opened[run] = dict(waiting)
        loop.call_soon_threadsafe(line.tell, LOOK)  # a recovered workflow has a loop of its own

    async def start(run: str) -> None:
        opened[run] = {}
        with SetWorkflowID(run):
            await follow(await DBOS.start_workflow_async(turn, "Do it."))

    async def resume(run: str) -> None:
        """DBOS has recovered the workflow when it was launched; this only follows it to its end."""
        await follow(await DBOS.retrieve_workflow_async(run))

    async def follow(handle: Any) -> None:
        async def end() -> None:
            ended[handle.workflow_id] = ["SUCCESS", await handle.get_result()]
            line.tell(LOOK)

        following.append(asyncio.create_task(end()))

    async def look(run: str) -> Any:
        if run in ended or run in opened:
            return {"open": {} if run in ended else opened[run], "ended": ended.get(run)}
        return {"open": await DBOS.get_event_async(run, "open", timeout_seconds=0) or {}, "ended": None}

    async def answer(run: str, call: str, decision: str, n: int | None = None) -> None:
        """Send an answer. Returns when the workflow has taken it: until then it shows the call among those that
        wait."""
        await DBOS.send_async(run, {"decision": decision, "n": n}, topic=call)
        await taken[call].wait()

    loop = asyncio.get_running_loop()
    opened: dict[str, dict[str, str]] = {}  # what waits for a person, of runs that began here: others are replayed
    ended: dict[str, Any] = {}
    taken: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
    following: list[Any] = []
    handlers = {"start": start, "resume": resume, "look": look, "answer": answer}
    line = Line(handlers, ["dbos", "pydantic-ai-slim"])
    DBOS.launch()
    await line.serve()


def main(kind: str, dsn: str) -> None:
    config: DBOSConfig = {"name": "bench", "system_database_url": dsn, "application_version": "1", "log_level": "ERROR"}
    DBOS(config=config)
    uvloop.run({"chain": be_chain, "agent": be_agent}[kind]())
    DBOS.destroy()


if __name__ == "__main__":
    main(*sys.argv[1:])
