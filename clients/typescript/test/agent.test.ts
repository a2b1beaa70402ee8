import assert from "node:assert/strict";
import { test } from "node:test";

import { HaiError, HttpAgent, HttpProblem, ProtocolError, textOf } from "../dist/index.js";
import type { AgentSubscriber, HaiMessage, HttpAgentConfig, Pending } from "../dist/index.js";
import { framed, pack } from "./msgpack_writer.ts";
import { refuses, serve, streams } from "./server.ts";

const started = { type: "RUN_STARTED", threadId: "t", runId: "r", messageId: "msg_t", role: "assistant", timestamp: 1 };
const finished = { type: "RUN_FINISHED", threadId: "t", runId: "r", messageId: "msg_t", role: "assistant", timestamp: 9 };
const user: HaiMessage = { id: "u1", role: "user", content: "hello", timestamp: 5, extra: { from: "a test" } };

const say = (id: string, ...contents: string[]): object[] => [
  { type: "BUSINESS_DATA_START", messageId: id, role: "assistant" },
  ...contents.map((content) => ({
    type: "BUSINESS_DATA_CONTENT",
    messageId: id,
    delta: JSON.stringify({ output: { type: "text", content }, layout: {} }),
  })),
  { type: "BUSINESS_DATA_END", messageId: id, role: "assistant" },
];

const call = (id: string, name: string, ...args: string[]): object[] => [
  { type: "TOOL_CALL_START", toolCallId: id, toolCallName: name },
  ...args.map((delta) => ({ type: "TOOL_CALL_ARGS", toolCallId: id, delta })),
  { type: "TOOL_CALL_END", toolCallId: id },
];

function agentFor(url: string, more: Partial<HttpAgentConfig> = {}): HttpAgent {
  return new HttpAgent({ url, threadId: "t", initialMessages: [user], reconnect: false, ...more });
}

/** A subscriber that writes down the name of every callback but onEvent, with what `show` makes of its parameters. */
function recorder(show: (name: string, params: any) => unknown = (name) => name): { heard: unknown[]; subscriber: AgentSubscriber } {
  const heard: unknown[] = [];
  const subscriber = new Proxy({} as AgentSubscriber, {
    get: (_, name) => (name === "onEvent" ? undefined : (params: unknown) => void heard.push(show(String(name), params))),
  });
  return { heard, subscriber };
}

test("a key goes with each request, and one that is asked for is a new one each time", async (context) => {
  const answer = streams(started, finished);
  const { url, requests } = await serve(context, answer, answer, answer, answer);
  let asked = 0;
  const agent = agentFor(url, { key: async () => `token-${(asked += 1)}` });
  await agent.runAgent();
  await agent.connectAgent();
  agent.key = "hai_1";
  await agent.connectAgent();
  agent.headers = { authorization: "Bearer own" };
  await agent.connectAgent();
  assert.deepEqual(
    requests.map(({ headers }) => headers.authorization),
    ["Bearer token-1", "Bearer token-2", "Bearer hai_1", "Bearer own"],
  );
});

test("a run is followed on with the next token when the stream's own has ended, and nothing is doubled", async (context) => {
  const expired = { type: "RUN_ERROR", message: "sign in again", code: "auth.expired" };
  const snapshot = { type: "MESSAGE_SNAPSHOT", messages: [user] };
  const { url, requests } = await serve(
    context,
    streams(started, ...say("m1", "one").slice(0, 2), expired),
    streams(started, snapshot, ...say("m1", "one", " two"), finished),
  );
  let asked = 0;
  const agent = agentFor(url, { key: () => `token-${(asked += 1)}`, reconnect: { delayMs: 1 } });
  const { error } = await agent.runAgent();
  assert.equal(error, undefined);
  assert.deepEqual(agent.messages.map(textOf), ["hello", "one two"]);
  assert.deepEqual(requests.map(({ headers }) => headers.authorization), ["Bearer token-1", "Bearer token-2"]);
  assert.deepEqual(requests[1]?.input.messages, []);
});

test("a key that can't be another one ends with its stream, and says why", async (context) => {
  const { url } = await serve(context, streams(started, { type: "RUN_ERROR", message: "sign in again", code: "auth.expired" }));
  const { error } = await agentFor(url, { key: "token", reconnect: { delayMs: 1 } }).runAgent();
  assert.equal(error?.code, "auth.expired");
});

test("in Node a key may come from the environment", async (context) => {
  const { url, requests } = await serve(context, streams(started, finished));
  process.env["HAI_FLOW_KEY"] = "hai_2";
  context.after(() => delete process.env["HAI_FLOW_KEY"]);
  await agentFor(url).runAgent();
  assert.equal(requests[0]?.headers.authorization, "Bearer hai_2");
});

test("a request is what HAI describes: RunAgentInput with the messages as they are", async (context) => {
  const { url, requests } = await serve(context, streams(started, finished));
  const agent = agentFor(url, { headers: { Authorization: "Bearer x" }, initialState: { a: 1 } });
  const tools = [{ name: "confirmAction", description: "asks" }];
  await agent.runAgent({ runId: "r1", tools, forwardedProps: { workflow: "chat" } });
  assert.deepEqual(requests[0]?.input, {
    threadId: "t",
    runId: "r1",
    messages: [user],
    tools,
    context: [],
    forwardedProps: { workflow: "chat" },
    state: { a: 1 },
  });
  assert.equal(requests[0]?.headers.authorization, "Bearer x");
  assert.equal(requests[0]?.headers.accept, "text/event-stream");
  assert.equal(requests[0]?.headers["content-type"], "application/json");
});

test("every event of HAI has its callback, and changes what it changes", async (context) => {
  const { url } = await serve(
    context,
    streams(
      started,
      { type: "STATE_SNAPSHOT", snapshot: { items: [] } },
      { type: "STEP_STARTED", stepName: "plan" },
      ...say("m1", "a", "b"),
      { type: "AGENT_COLLABORATIVE_MESSAGE_START", from: "USER", to: "planner", messageId: "m1" },
      { type: "AGENT_COLLABORATIVE_MESSAGE_CONTENT", messageId: "m1", delta: '{"task":{"id":"1","name":"plan"}}' },
      { type: "AGENT_COLLABORATIVE_MESSAGE_END", messageId: "m1" },
      ...call("c1", "get_weather", "{}"),
      { type: "TOOL_CALL_RESULT", messageId: "c1:result", toolCallId: "c1", content: "sunny", role: "tool" },
      { type: "STATE_DELTA", delta: [{ op: "add", path: "/items/-", value: 1, from: "" }] },
      { type: "MESSAGE_SNAPSHOT", messages: [user] },
      { type: "MESSAGES_SNAPSHOT", messages: [user] },
      { type: "RAW", event: {} },
      { type: "CUSTOM", name: "note", value: null },
      { type: "STEP_FINISHED", stepName: "plan" },
      finished,
    ),
  );
  const agent = agentFor(url);
  const { heard, subscriber } = recorder();
  const events: string[] = [];
  agent.subscribe(subscriber);
  agent.subscribe({ onEvent: ({ event }) => void events.push(event.type) });
  await agent.runAgent();
  assert.deepEqual(heard, [
    "onRunInitialized",
    "onRunStartedEvent",
    "onStateSnapshotEvent",
    "onStateChanged",
    "onStepStartedEvent",
    "onBusinessDataStartEvent",
    "onMessagesChanged",
    "onBusinessDataContentEvent",
    "onMessagesChanged",
    "onBusinessDataContentEvent",
    "onMessagesChanged",
    "onBusinessDataEndEvent",
    "onNewMessage",
    "onAgentCollaborativeMessageStartEvent",
    "onAgentCollaborativeMessageContentEvent",
    "onAgentCollaborativeMessageEndEvent",
    "onToolCallStartEvent",
    "onMessagesChanged",
    "onToolCallArgsEvent",
    "onMessagesChanged",
    "onToolCallEndEvent",
    "onNewToolCall",
    "onToolCallResultEvent",
    "onMessagesChanged",
    "onNewMessage",
    "onStateDeltaEvent",
    "onStateChanged",
    "onMessageSnapshotEvent",
    "onMessagesChanged",
    "onMessageSnapshotEvent",
    "onMessagesChanged",
    "onRawEvent",
    "onCustomEvent",
    "onStepFinishedEvent",
    "onRunFinishedEvent",
    "onRunFinalized",
  ]);
  assert.equal(events.length, 21);
  assert.deepEqual(agent.state, { items: [1] });
});

test("a message comes with its buffer and with the documents that each delta completes", async (context) => {
  const { url } = await serve(context, streams(started, ...say("m1", "x}{y", "z"), ...say("m1", "again"), finished));
  const { heard, subscriber } = recorder((name, params) =>
    name.startsWith("onBusinessData")
      ? [params.event.type, params.textMessageBuffer?.length, params.outputs?.map((each: any) => each.output.content)]
      : undefined,
  );
  const agent = agentFor(url);
  await agent.runAgent({}, subscriber);
  const sizes = ["x}{y", "z", "again"].map((content) => JSON.stringify({ output: { type: "text", content }, layout: {} }).length);
  const [one = 0, two = 0, three = 0] = sizes;
  assert.deepEqual(heard.filter(Boolean), [
    ["BUSINESS_DATA_START", undefined, undefined],
    ["BUSINESS_DATA_CONTENT", 0, ["x}{y"]],
    ["BUSINESS_DATA_CONTENT", one, ["z"]],
    ["BUSINESS_DATA_END", one + two, ["x}{y", "z"]],
    ["BUSINESS_DATA_START", undefined, undefined],
    ["BUSINESS_DATA_CONTENT", one + two, ["again"]],
    ["BUSINESS_DATA_END", one + two + three, ["x}{y", "z", "again"]],
  ]);
  assert.equal(textOf(agent.messages.at(-1)!), "x}{yzagain");
});

test("HAI's builders show deltas as objects, and they are read as well", async (context) => {
  const { url } = await serve(
    context,
    streams(
      started,
      { type: "BUSINESS_DATA_CONTENT", messageId: "m1", delta: { output: { type: "text", content: "a" } } },
      { type: "AGENT_COLLABORATIVE_MESSAGE_START", from: "a", to: "b", messageId: "m1" },
      { type: "AGENT_COLLABORATIVE_MESSAGE_CONTENT", messageId: "m1", delta: { task: { id: "1", name: "plan" } } },
      { type: "AGENT_COLLABORATIVE_MESSAGE_END", messageId: "m1" },
      finished,
    ),
  );
  const agent = agentFor(url);
  const handed: unknown[] = [];
  await agent.runAgent({}, { onAgentCollaborativeMessageEndEvent: ({ collaboration }) => void handed.push(collaboration) });
  assert.deepEqual(handed, [{ from: "a", to: "b", task: { id: "1", name: "plan" } }]);
  assert.equal(textOf(agent.messages[1]!), "a");
});

test("a call's arguments come as far as they can be read, and then whole", async (context) => {
  const { url } = await serve(context, streams(started, ...call("c1", "search", '{"keyword":"报', '告","most":3}'), finished));
  const { heard, subscriber } = recorder((name, params) => {
    if (name === "onToolCallArgsEvent") return [params.toolCallBuffer, params.toolCallName, params.partialToolCallArgs];
    if (name === "onToolCallEndEvent") return [params.toolCallName, params.toolCallArgs];
    if (name === "onNewToolCall") return params.toolCall.function.arguments;
    return name === "onRunFinishedEvent" ? params.pendingToolCallIds : undefined;
  });
  await agentFor(url).runAgent({}, subscriber);
  assert.deepEqual(heard.filter(Boolean), [
    ["", "search", { keyword: "报" }],
    ['{"keyword":"报', "search", { keyword: "报告", most: 3 }],
    ["search", { keyword: "报告", most: 3 }],
    '{"keyword":"报告","most":3}',
    ["c1"],
  ]);
});

test("a call hangs on its parent, and its result stands after it", async (context) => {
  const { url } = await serve(
    context,
    streams(
      started,
      ...say("m1", "let me see"),
      { type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "a", parentMessageId: "m1" },
      { type: "TOOL_CALL_END", toolCallId: "c1" },
      ...call("c2", "b"),
      ...say("m2", "done"),
      { type: "TOOL_CALL_RESULT", messageId: "c1:result", toolCallId: "c1", content: "1", role: "tool", error: "no" },
      finished,
    ),
  );
  const agent = agentFor(url);
  const { newMessages, pendings } = await agent.runAgent();
  assert.deepEqual(newMessages.map(({ id }) => id), ["m1", "c1:result", "c2", "m2"]);
  assert.deepEqual(pendings.map(({ id }) => id), ["c2"]);
  assert.deepEqual(newMessages[1], { id: "c1:result", role: "tool", toolCallId: "c1", content: "1", error: "no" });
});

test("a delta that does not apply leaves the state, with a warning", async (context) => {
  const { url } = await serve(
    context,
    streams(started, { type: "STATE_DELTA", delta: [{ op: "add", path: "/workflowItems/0/status", value: "running", from: "" }] }, finished),
  );
  const warnings: string[] = [];
  const agent = agentFor(url, { initialState: { kept: true }, warn: (message) => void warnings.push(message) });
  await agent.runAgent();
  assert.deepEqual(agent.state, { kept: true });
  assert.match(warnings.join(), /workflowItems/);
});

test("an event of an unknown type is heard by onEvent and harms nobody", async (context) => {
  const { url } = await serve(context, streams(started, { type: "SOMETHING_NEW", x: 1 }, finished));
  const types: string[] = [];
  await agentFor(url).runAgent({}, { onEvent: ({ event }) => void types.push(event.type) });
  assert.deepEqual(types, ["RUN_STARTED", "SOMETHING_NEW", "RUN_FINISHED"]);
});

test("a known event without what it must have is an error that says so", async (context) => {
  const { url } = await serve(context, streams(started, { type: "TOOL_CALL_START", toolCallId: "c1" }, finished));
  await assert.rejects(agentFor(url).runAgent(), (error: Error) => {
    assert.ok(error instanceof ProtocolError);
    assert.match(error.message, /TOOL_CALL_START: expected toolCallName/);
    return true;
  });
});

test("a subscriber may change the thread, and keep an event from being applied", async (context) => {
  const { url } = await serve(context, streams(started, { type: "STATE_SNAPSHOT", snapshot: { from: "server" } }, ...say("m1", "a"), finished));
  const agent = agentFor(url);
  agent.subscribe({
    onStateSnapshotEvent: () => ({ state: { from: "subscriber" }, stopPropagation: true }),
    onEvent: ({ event }) => (event.type.startsWith("BUSINESS") ? { stopPropagation: true } : undefined),
  });
  await agent.runAgent({}, { onStateSnapshotEvent: () => assert.fail("it was stopped before") });
  assert.deepEqual(agent.state, { from: "subscriber" });
  assert.deepEqual(agent.messages.map(({ id }) => id), ["u1"]);
});

test("what onRunInitialized adds is sent", async (context) => {
  const { url, requests } = await serve(context, streams(started, finished));
  const more: HaiMessage = { id: "u2", role: "user", content: "and this" };
  await agentFor(url).runAgent({}, { onRunInitialized: ({ messages }) => ({ messages: [...messages, more] }) });
  assert.deepEqual(requests[0]?.input.messages.map(({ id }) => id), ["u1", "u2"]);
});

test("a subscriber that fails harms neither the others nor the run", async (context) => {
  const { url } = await serve(context, streams(started, finished));
  const complaints = context.mock.method(console, "error", () => {});
  const agent = agentFor(url);
  let told = 0;
  agent.subscribe({
    onRunStartedEvent: () => {
      throw new Error("my own fault");
    },
  });
  agent.subscribe({ onRunStartedEvent: () => void told++ });
  await agent.runAgent();
  assert.equal(told, 1);
  assert.equal(complaints.mock.callCount(), 1);
});

test("who has unsubscribed hears nothing", async (context) => {
  const { url } = await serve(context, streams(started, finished));
  const agent = agentFor(url);
  agent.subscribe({ onEvent: () => assert.fail("it has unsubscribed") }).unsubscribe();
  await agent.runAgent();
});

test("a view that a subscriber holds never changes under it", async (context) => {
  const { url } = await serve(context, streams(started, ...say("m1", "a", "b"), ...call("c1", "x", "{", "}"), finished));
  const views: { messages: readonly unknown[]; written: string }[] = [];
  await agentFor(url).runAgent({}, { onMessagesChanged: ({ messages }) => void views.push({ messages, written: JSON.stringify(messages) }) });
  assert.ok(views.length > 5);
  for (const { messages, written } of views) assert.equal(JSON.stringify(messages), written);
});

// --- pending questions ----------------------------------------------------------------------------------------------

const asked = { id: "call_q", kind: "approve" as const, title: "Ship it?", message: "All tests passed.", options: ["approve", "reject", "later"] };

test("calls and questions without a call wait alike, until they are answered", async (context) => {
  const { url, requests } = await serve(
    context,
    streams(
      started,
      ...call("c1", "search_local_files", '{"keyword":"报告"}'),
      ...call("c2", "confirmAction", '{"title":"Delete?","form":{"type":"object"},"deadline":5}'),
      { type: "CUSTOM", name: "hai.pending", value: asked },
      finished,
    ),
    streams(started, finished),
  );
  const agent = agentFor(url);
  const { pendings } = await agent.runAgent();
  assert.deepEqual(pendings, [
    { id: "c1", kind: "tool", tool: "search_local_files", arguments: { keyword: "报告" } },
    {
      id: "c2",
      kind: "approve",
      tool: "confirmAction",
      arguments: { title: "Delete?", form: { type: "object" }, deadline: 5 },
      title: "Delete?",
      form: { type: "object" },
      deadline: 5,
    },
    { ...asked, arguments: {} },
  ] satisfies Pending[]);
  agent.addToolResult("c1", ["a.pdf"]);
  agent.approve("c2");
  agent.decide("call_q", "later", { reason: "not today" });
  assert.deepEqual(agent.pendings, []);
  await agent.runAgent();
  const answers = requests[1]?.input.messages.filter((message) => message.role === "tool");
  assert.deepEqual(
    answers?.map(({ toolCallId, content }) => [toolCallId, content]),
    [
      ["c1", '["a.pdf"]'],
      ["c2", '{"approved":true}'],
      ["call_q", '{"decision":"later","reason":"not today"}'],
    ],
  );
});

test("a gate's call waits for a yes to another tool's call", async (context) => {
  const question = { title: "Delete 15 files?", tool: "files.delete", arguments: { count: 15 }, digest: "ab12" };
  const { url } = await serve(context, streams(started, ...call("c1", "confirmAction", JSON.stringify(question)), finished));
  const { pendings } = await agentFor(url).runAgent();
  const expected: Pending = { id: "c1", kind: "approve", title: "Delete 15 files?", tool: "files.delete", arguments: { count: 15 } };
  assert.deepEqual(pendings, [expected]);
});

test("a result that repeats our own answer is not told twice", async (context) => {
  const { url } = await serve(
    context,
    streams(started, ...call("c1", "x", "{}"), finished),
    streams(started, { type: "TOOL_CALL_RESULT", messageId: "c1:result", toolCallId: "c1", content: "1", role: "tool" }, finished),
  );
  const agent = agentFor(url);
  await agent.runAgent();
  const answer = agent.addToolResult("c1", "1");
  await agent.runAgent();
  assert.deepEqual(agent.messages.filter(({ role }) => role === "tool"), [answer]);
});

test("while the run goes on, a call that the server performs is not one that waits", async (context) => {
  const { url } = await serve(
    context,
    streams(started, ...call("c1", "get_weather", "{}"), ...call("c2", "local", "{}"), { type: "RAW", event: "now" }, finished),
  );
  const agent = agentFor(url);
  const waiting: string[][] = [];
  await agent.runAgent(
    { tools: [{ name: "local", description: "" }] },
    { onRawEvent: () => void waiting.push(agent.pendings.map(({ id }) => id)) },
  );
  assert.deepEqual(waiting, [["c2"]]);
});

for (const [name, ...end] of [
  ["fails", { type: "RUN_ERROR", message: "no", code: "tool.failed" }],
  ["has given its output", { type: "CUSTOM", name: "hai.output", value: { output: { n: 1 } } }, finished],
  ["is stopped", { type: "CUSTOM", name: "hai.status", value: { status: "stopped", reason: "enough" } }, finished],
] as [string, ...object[]][]) {
  test(`nothing waits once a run ${name}`, async (context) => {
    const { url } = await serve(
      context,
      streams(started, ...call("c1", "x", "{}"), { type: "CUSTOM", name: "hai.pending", value: asked }, ...end),
    );
    const { pendings, error, status, result } = await agentFor(url).runAgent();
    assert.deepEqual(pendings, []);
    const expected = { fails: "tool.failed", "has given its output": { n: 1 }, "is stopped": "enough" }[name];
    assert.deepEqual(error?.code ?? status?.reason ?? result, expected);
  });
}

test("a snapshot says anew what waits, and keeps what was not sent yet", async (context) => {
  const open: HaiMessage = {
    id: "m1",
    role: "assistant",
    toolCalls: [{ id: "c1", type: "function", function: { name: "x", arguments: "{}" } }],
  };
  const { url, requests } = await serve(
    context,
    streams(started, { type: "CUSTOM", name: "hai.pending", value: asked }, finished),
    streams(started, { type: "STATE_SNAPSHOT", snapshot: {} }, { type: "MESSAGE_SNAPSHOT", messages: [user, open] }, finished),
  );
  const agent = agentFor(url);
  await agent.runAgent();
  agent.addMessage({ id: "u2", role: "user", content: "not sent yet" });
  const { pendings } = await agent.connectAgent();
  assert.deepEqual(requests[1]?.input.messages, []);
  assert.deepEqual(pendings.map(({ id }) => id), ["c1"]);
  assert.deepEqual(agent.messages.map(({ id }) => id), ["u1", "m1", "u2"]);
});

// --- refusals -------------------------------------------------------------------------------------------------------

test("a refused answer is taken back, and its question waits again", async (context) => {
  const problem = { title: "Conflict", detail: "it was decided.", code: "pending_decided", winner: { id: "c1" } };
  const { url } = await serve(context, streams(started, ...call("c1", "x", "{}"), finished), refuses(409, problem));
  const agent = agentFor(url);
  await agent.runAgent();
  const answer = agent.addToolResult("c1", "yes");
  const failures: Error[] = [];
  await assert.rejects(agent.runAgent({}, { onRunFailed: ({ error }) => void failures.push(error) }), (error: Error) => {
    assert.ok(error instanceof HttpProblem);
    assert.equal(error.message, "HTTP 409: it was decided.");
    assert.deepEqual([error.status, error.code, error.problem.winner], [409, "pending_decided", { id: "c1" }]);
    assert.deepEqual(error.takenBack, [answer]);
    return true;
  });
  assert.equal(failures.length, 1);
  assert.deepEqual(agent.pendings.map(({ id }) => id), ["c1"]);
  assert.equal(agent.isRunning, false);
});

test("what was refused because of who asked is kept", async (context) => {
  const { url } = await serve(context, refuses(401, { detail: "who are you?" }), streams(started, finished));
  const agent = agentFor(url);
  await assert.rejects(agent.runAgent(), { status: 401 });
  agent.headers.Authorization = "Bearer new";
  await agent.runAgent();
  assert.deepEqual(agent.messages.map(({ id }) => id), ["u1"]);
});

test("an answer that is no stream is an error that names what came", async (context) => {
  const { url } = await serve(context, (response) => void response.writeHead(200, { "Content-Type": "application/json" }).end("{}"));
  await assert.rejects(agentFor(url).runAgent(), /found application\/json/);
});

test("two runs at once are refused here, before anything is sent", async (context) => {
  const { url, requests } = await serve(context, streams(started, finished));
  const agent = agentFor(url);
  const first = agent.runAgent();
  await assert.rejects(agent.runAgent(), HaiError);
  await first;
  assert.equal(requests.length, 1);
});

test("with history new, only what the server can't know is sent", async (context) => {
  const { url, requests } = await serve(context, streams(started, ...say("m1", "a"), finished), streams(started, finished));
  const agent = agentFor(url, { history: "new" });
  await agent.runAgent();
  agent.addMessage({ id: "u2", role: "user", content: "next" });
  await agent.runAgent();
  assert.deepEqual(requests.map(({ input }) => input.messages.map(({ id }) => id)), [["u1"], ["u2"]]);
});

// --- the binary transport -------------------------------------------------------------------------------------------

test("the binary transport is asked for, and read if the server has it", async (context) => {
  const { url, requests } = await serve(context, (response) => {
    response.writeHead(200, { "Content-Type": "application/vnd.hai.event+msgpack" });
    response.write(framed([new Uint8Array(0)]));
    response.end(framed([started, ...say("m1", "你好"), finished].map(pack)));
  });
  const agent = agentFor(url, { transport: "binary" });
  await agent.runAgent();
  assert.equal(requests[0]?.headers.accept, "application/vnd.hai.event+msgpack, text/event-stream;q=0.5");
  assert.equal(textOf(agent.messages.at(-1)!), "你好");
});

test("a server without the binary transport answers as it can", async (context) => {
  const { url } = await serve(context, streams(started, ...say("m1", "你好"), finished));
  const agent = agentFor(url, { transport: "binary" });
  await agent.runAgent();
  assert.equal(textOf(agent.messages.at(-1)!), "你好");
});
