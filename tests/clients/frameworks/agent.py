"""An agent of another framework that asks people before it acts. Its process may be killed: what it has begun lies in
a directory, and the next process goes on from there.

    agent.py FRAMEWORK DIRECTORY URL KEY '{"calls": [["transfer", {"amount": 82000}]], "policy": {...}, ...}'

It prints `{"output": ...}`, or `{"thrown": ...}`. What it has performed is in the file `performed`, a line each.
"""

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "clients" / "python"))

from hai_flow_client import Client

DIRECTORY = Path(sys.argv[2])
PLAN = json.loads(sys.argv[5])
CALLS = [(f"{DIRECTORY.name}-{number}", name, arguments) for number, (name, arguments) in enumerate(PLAN["calls"])]
POLICY = PLAN["policy"]
OPTIONS = {name: PLAN[name] for name in ("workflow", "expires_in") if name in PLAN}


def perform(action: str, arguments: object) -> str:
    with (DIRECTORY / "performed").open("a") as file:
        file.write(json.dumps([action, arguments]) + "\n")
    return f"did {json.dumps(arguments)}"


def transfer(amount: int, to: str = "DE") -> str:
    """Send money."""
    return perform("transfer", {"amount": amount, "to": to})


def wipe(path: str) -> str:
    """Delete everything below a path."""
    return perform("wipe", {"path": path})


def openai_agents(flow: Client) -> str:
    from agents import Agent, ModelResponse, Runner, RunState, Usage, function_tool, set_tracing_disabled
    from agents.models.interface import Model
    from hai_flow_client.adapters.openai_agents import decide, guard
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)

    class Scripted(Model):
        async def get_response(self, system_instructions, input, *args, **options):  # type: ignore[no-untyped-def]
            results = [each["output"] for each in input if each.get("type") == "function_call_output"]
            if results:
                text = ResponseOutputText(text=json.dumps(results), type="output_text", annotations=[])
                said = ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
                return ModelResponse(output=[said], usage=Usage(), response_id=None)
            calls = [
                ResponseFunctionToolCall(type="function_call", call_id=id, name=name, arguments=json.dumps(arguments))
                for id, name, arguments in CALLS
            ]
            return ModelResponse(output=calls, usage=Usage(), response_id=None)

        def stream_response(self, *args, **options):  # type: ignore[no-untyped-def]
            raise NotImplementedError

    tools = [function_tool(each) for each in (transfer, wipe)]
    guarded = tools if PLAN.get("unguarded") else [guard(each, flow, POLICY, **OPTIONS) for each in tools]
    if PLAN.get("unguarded"):
        for each in tools:
            each.needs_approval = True
    agent = Agent(name="bot", model=Scripted(), tools=guarded)
    saved = DIRECTORY / "state"

    async def run() -> str:
        if saved.exists():
            state = await RunState.from_string(agent, saved.read_text())
        else:
            state = (await Runner.run(agent, "pay")).to_state()
            saved.write_text(state.to_string())
        if PLAN.get("careless"):  # whoever approves in the state without asking anybody
            for item in state.get_interruptions():
                state.approve(item)
        else:
            await decide(state)
        result = await Runner.run(agent, state)
        assert not result.interruptions
        return str(result.final_output)

    return asyncio.run(run())


def langchain(flow: Client, mode: str = "batched") -> str:
    from hai_flow_client.adapters.langgraph import decide
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.types import Command

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools, **options):  # type: ignore[no-untyped-def]
            return self

        def _generate(self, messages, stop=None, run_manager=None, **options):  # type: ignore[no-untyped-def]
            results = [each.content for each in messages if isinstance(each, ToolMessage)]
            calls = [{"id": id, "name": name, "args": arguments} for id, name, arguments in CALLS]
            said = AIMessage(json.dumps(results)) if results else AIMessage("", tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=said)])

    with SqliteSaver.from_conn_string(str(DIRECTORY / "checkpoints")) as checkpointer:
        asking = HumanInTheLoopMiddleware(interrupt_on={"transfer": True, "wipe": True}, interrupt_mode=mode)
        agent = create_agent(Scripted(), tools=[transfer, wipe], middleware=[asking], checkpointer=checkpointer)
        config = {"configurable": {"thread_id": "1"}}
        if not agent.get_state(config).interrupts:
            agent.invoke({"messages": [{"role": "user", "content": "pay"}]}, config)
        answers = decide(flow, agent.get_state(config).interrupts, POLICY, **OPTIONS)
        result = agent.invoke(Command(resume=answers), config)
        assert not result.get("__interrupt__")
        return str(result["messages"][-1].content)


def langchain_per_call(flow: Client) -> str:
    return langchain(flow, "per_call")


def langgraph(flow: Client) -> str:
    from typing import TypedDict

    from hai_flow_client.adapters.langgraph import decide
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Command, interrupt

    class State(TypedDict, total=False):
        results: list[str]

    def act(state: State) -> State:
        answers = [
            interrupt(PLAN.get("value") or {"action": name, "arguments": arguments}) for _, name, arguments in CALLS
        ]
        results = [
            perform(name, answer["arguments"]) if answer["approved"] else answer["reason"]
            for (_, name, _), answer in zip(CALLS, answers, strict=True)
        ]
        return {"results": results}

    graph = StateGraph(State)
    graph.add_node("act", act)
    graph.add_edge(START, "act")
    graph.add_edge("act", END)
    with SqliteSaver.from_conn_string(str(DIRECTORY / "checkpoints")) as checkpointer:
        compiled = graph.compile(checkpointer=checkpointer)
        config = {"configurable": {"thread_id": "1"}}
        if not compiled.get_state(config).interrupts:
            compiled.invoke({"results": []}, config)
        while interrupts := compiled.get_state(config).interrupts:
            result = compiled.invoke(Command(resume=decide(flow, interrupts, POLICY, **OPTIONS)), config)
        return json.dumps(result["results"])


def pydantic_ai(flow: Client) -> str:
    from hai_flow_client.adapters.pydantic_ai import decide
    from pydantic_ai import Agent, DeferredToolRequests, Tool
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def scripted(messages, info):  # type: ignore[no-untyped-def]
        results = [part.content for part in messages[-1].parts if part.part_kind == "tool-return"]
        if results:
            return ModelResponse(parts=[TextPart(json.dumps(results))])
        return ModelResponse(parts=[ToolCallPart(name, arguments, tool_call_id=id) for id, name, arguments in CALLS])

    tools = [Tool(each, requires_approval=True) for each in (transfer, wipe)]
    agent = Agent(FunctionModel(scripted), output_type=[str, DeferredToolRequests], tools=tools)
    saved = DIRECTORY / "state"
    if not saved.exists():
        saved.write_bytes(agent.run_sync("pay").all_messages_json())
    history = ModelMessagesTypeAdapter.validate_json(saved.read_bytes())
    calls = [part for part in history[-1].parts if isinstance(part, ToolCallPart)]
    answers = decide(flow, DeferredToolRequests(approvals=calls), POLICY, **OPTIONS)
    return str(agent.run_sync(message_history=history, deferred_tool_results=answers).output)


FRAMEWORKS = {each.__name__: each for each in (openai_agents, langchain, langchain_per_call, langgraph, pydantic_ai)}

if __name__ == "__main__":
    with Client(sys.argv[3], key=sys.argv[4]) as client:
        try:
            print(json.dumps({"output": FRAMEWORKS[sys.argv[1]](client)}))
        except Exception as error:
            print(json.dumps({"thrown": f"{type(error).__name__}: {error}"}))
