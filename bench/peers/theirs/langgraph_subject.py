"""LangGraph as a subject: `python -m bench.peers.theirs.langgraph_subject ROLE DSN`.

As its documentation says: the PostgreSQL saver over a pool of connections; the agent is `create_agent` with the
middleware that asks people, in its default mode (one interrupt for all calls of an answer of the model, decided
together) as `agent`, with one interrupt for each as `agent-per-call`. `chain-async` has the durability that is
LangGraph's default, the others have `sync`, as the other subjects do: no step begins before the one before it is
stored. Nothing goes on by itself: the program must know the threads, and invoke them again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, TypedDict
from uuid import uuid4

import uvloop
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.tools import ToolRuntime, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from bench.peers import talking
from bench.peers.talking import LOOK, STEPS, Line

PACKAGES = ("langgraph", "langgraph-checkpoint-postgres", "langchain")
CONNECTIONS = 20


@asynccontextmanager
async def saver(dsn: str) -> AsyncIterator[AsyncPostgresSaver]:
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS, kwargs=settings) as pool:
        made = AsyncPostgresSaver(pool)
        await made.setup()
        yield made


class Number(TypedDict):
    n: int


async def plus_one(state: Number) -> Number:
    return {"n": state["n"] + 1}


async def be_chain(dsn: str, durability: Any) -> None:
    async with saver(dsn) as checkpointer:
        builder = StateGraph(Number)
        names = [START, *(f"s{number}" for number in range(STEPS)), END]
        for name in names[1:-1]:
            builder.add_node(name, plus_one)
        for name, following in pairwise(names):
            builder.add_edge(name, following)
        graph = builder.compile(checkpointer=checkpointer)

        async def one() -> None:
            thread: Any = {"configurable": {"thread_id": uuid4().hex}}
            result = await graph.ainvoke({"n": 0}, thread, durability=durability)
            assert result == {"n": STEPS}

        async def perform(runs: int, concurrency: int) -> float:
            return await talking.in_parallel(runs, concurrency, one)

        await Line({"chain": perform}, PACKAGES).serve()


@tool
async def free(n: int, runtime: ToolRuntime) -> int:
    """A call without approval."""
    return await talking.call_tool("free", n, str(runtime.tool_call_id))


@tool
async def edited(n: int, runtime: ToolRuntime) -> int:
    """Is approved with another number."""
    return await talking.call_tool("edited", n, str(runtime.tool_call_id))


@tool
async def denied(n: int, runtime: ToolRuntime) -> int:
    """Is denied."""
    return await talking.call_tool("denied", n, str(runtime.tool_call_id))


async def be_agent(dsn: str, *, per_call: bool) -> None:
    mode: Any = "per_call" if per_call else "batched"
    asking = HumanInTheLoopMiddleware(interrupt_on={"edited": True, "denied": True}, interrupt_mode=mode)
    async with saver(dsn) as checkpointer:
        graph: Any = create_agent(
            ChatOpenAI(model="m", base_url=talking.model_url(), api_key="none"),  # type: ignore[arg-type]
            tools=[free, edited, denied],
            middleware=[asking],
            checkpointer=checkpointer,
        )
        seen: dict[str, Any] = {}
        decided: dict[str, Any] = {}  # of a batch, until it is whole
        invoking: list[Any] = []

        def invoke(run: str, given: Any) -> None:
            seen[run] = {"open": {}, "ended": None}

            async def invoked() -> None:
                thread = {"configurable": {"thread_id": run}}
                result = await graph.ainvoke(given, thread, durability="sync", version="v2")
                waiting = waiting_calls(result.interrupts, per_call)
                ended = None if waiting else ["finished", result.value["messages"][-1].content]
                seen[run] = {"open": waiting, "ended": ended}
                line.tell(LOOK)

            invoking.append(asyncio.create_task(invoked()))

        async def start(run: str) -> None:
            invoke(run, {"messages": [{"role": "user", "content": "Do it."}]})

        async def resume(run: str) -> None:
            invoke(run, None)

        async def look(run: str) -> Any:
            return seen[run]

        async def answer(run: str, call: str, decision: str, n: int | None = None) -> None:
            edit = {"type": "edit", "edited_action": {"name": "edited", "args": {"n": n}}}
            decided[call] = {"type": "reject", "message": "not three"} if decision == "reject" else edit
            if per_call:
                invoke(run, Command(resume={call: decided.pop(call)}))
                return
            waiting = {each: name for each, name in seen[run]["open"].items() if each != call}
            if waiting:
                seen[run] = {"open": waiting, "ended": None}
                line.tell(LOOK)
            else:
                invoke(run, Command(resume={"decisions": [decided.pop(each) for each in sorted(decided)]}))

        line = Line({"start": start, "resume": resume, "look": look, "answer": answer}, PACKAGES)
        await line.serve()


def waiting_calls(interrupts: Any, per_call: bool) -> dict[str, str]:
    """The calls that wait for a person, and their tools. Those of a batch have no ids, but their order."""
    if per_call:
        return {each.id: each.value["name"] for each in interrupts}
    actions = [action for each in interrupts for action in each.value["action_requests"]]
    return {f"{place}": action["name"] for place, action in enumerate(actions)}


if __name__ == "__main__":
    role, database = sys.argv[1:]
    if role.startswith("agent"):
        uvloop.run(be_agent(database, per_call=role == "agent-per-call"))
    else:
        uvloop.run(be_chain(database, "async" if role == "chain-async" else "sync"))
