import assert from "node:assert/strict";
import { test } from "node:test";

import { ConnectionLost, HttpAgent, HttpProblem, textOf, type HaiMessage } from "../dist/index.js";
import { RECONNECT, delayOf } from "../dist/reconnect.js";
import { framed, pack } from "./msgpack_writer.ts";
import { breaksAfter, refuses, serve, sse, streams, type Answer } from "./server.ts";

const started = { type: "RUN_STARTED", threadId: "t", runId: "r" };
const finished = { type: "RUN_FINISHED", threadId: "t", runId: "r" };
const state = { type: "STATE_SNAPSHOT", snapshot: { n: 1 } };
const user: HaiMessage = { id: "u1", role: "user", content: "hello" };
const snapshot = { type: "MESSAGE_SNAPSHOT", messages: [user] };
const begin = { type: "BUSINESS_DATA_START", messageId: "m1", role: "assistant" };
const end = { type: "BUSINESS_DATA_END", messageId: "m1", role: "assistant" };
const content = (text: string): object => ({
  type: "BUSINESS_DATA_CONTENT",
  messageId: "m1",
  delta: JSON.stringify({ output: { type: "text", content: text } }),
});
const attached = [started, state, snapshot, begin, content("one two "), content("three"), end, finished];
const cutShort = [started, state, begin, content("one ")];

const agentFor = (url: string, more = {}): HttpAgent =>
  new HttpAgent({ url, threadId: "t", initialMessages: [user], reconnect: { delayMs: 1 }, ...more });

// Long enough for a machine that is busy with other tests.
const IDLE_MS = 1_000;

const ENDS: [string, Answer][] = [
  ["breaks", breaksAfter(...cutShort)],
  ["ends before its run does", streams(...cutShort)],
  ["says that the server is closing", streams(...cutShort, end, { type: "RUN_ERROR", message: "closing", code: "server_closing" })],
  ["ends inside an event", (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.end(cutShort.map(sse).join("") + 'data: {"type":"RUN_FIN');
  }],
  ["ends inside a frame", (response) => {
    response.writeHead(200, { "Content-Type": "application/vnd.hai.event+msgpack" });
    response.end(framed([...cutShort, finished].map(pack)).subarray(0, -3));
  }],
  ["falls silent", (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(cutShort.map(sse).join(""));
  }],
];

for (const [how, answer] of ENDS) {
  test(`a stream that ${how} is taken up again, with nothing new, and nothing is doubled`, async (context) => {
    const { url, requests } = await serve(context, answer, streams(...attached));
    const agent = agentFor(url, { idleTimeoutMs: how === "falls silent" ? IDLE_MS : 0 });
    const tools = [{ name: "confirmAction", description: "" }];
    const told: unknown[] = [];
    const result = await agent.runAgent(
      { tools, forwardedProps: { hai: { text: "document" } } },
      {
        onReconnecting: ({ attempt }) => void told.push(attempt),
        onRunErrorEvent: () => assert.fail("the run has not failed"),
        onRunFinishedEvent: () => void told.push("finished"),
      },
    );
    assert.deepEqual(told, [1, "finished"]);
    assert.equal(result.aborted, false);
    assert.equal(textOf(agent.messages.at(-1)!), "one two three");
    assert.deepEqual(agent.messages.map(({ id }) => id), ["u1", "m1"]);
    const [first, second] = requests.map(({ input }) => input);
    assert.deepEqual(second?.messages, []);
    assert.notEqual(second?.runId, first?.runId);
    assert.deepEqual([second?.threadId, second?.tools, second?.forwardedProps], ["t", tools, { hai: { text: "document" } }]);
  });
}

test("a request that may not have arrived is sent again to the byte, so that the server takes it once", async (context) => {
  const { url, requests } = await serve(
    context,
    (response) => void response.socket?.resetAndDestroy(),
    refuses(503, { code: "store_unavailable" }),
    refuses(429, { code: "streams_busy" }, { "Retry-After": "0" }),
    streams(started, finished),
  );
  await agentFor(url).runAgent();
  assert.equal(requests.length, 4);
  assert.equal(new Set(requests.map(({ body }) => body)).size, 1);
});

test("a server that does not answer at all is asked again", async (context) => {
  const { url, requests } = await serve(context, () => {}, streams(started, finished));
  await agentFor(url, { idleTimeoutMs: IDLE_MS }).runAgent();
  assert.equal(requests.length, 2);
  assert.equal(requests[0]?.body, requests[1]?.body);
});

test("a connection is closed as soon as its run has ended, whatever else the server would send", async (context) => {
  let closed: (() => void) | undefined;
  const closing = new Promise<void>((resolve) => (closed = resolve));
  const { url } = await serve(context, (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write([started, finished].map(sse).join(""));
    response.on("close", () => closed?.());
  });
  await agentFor(url).runAgent();
  await closing;
});

test("a fetch that knows no signal is left all the same", async (context) => {
  const { url } = await serve(context, (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(sse(started));
  });
  const agent = agentFor(url, { fetch: (to: string, { signal: _, ...request }: RequestInit) => fetch(to, request) });
  const { aborted } = await agent.runAgent({}, { onRunStartedEvent: () => void setImmediate(() => agent.abortRun()) });
  assert.equal(aborted, true);
});

test("who comes back too often in vain gives up and says that the run goes on", async (context) => {
  const { url, requests } = await serve(context, ...Array.from({ length: 4 }, () => streams(...cutShort)));
  await assert.rejects(agentFor(url, { reconnect: { delayMs: 1, attemptsMax: 3 } }).runAgent(), (error: Error) => {
    assert.ok(error instanceof ConnectionLost);
    assert.match(error.message, /the run goes on/);
    return true;
  });
  assert.equal(requests.length, 4);
});

test("a server that has no place to the end is named as the reason", async (context) => {
  const busy = refuses(429, { code: "streams_busy", detail: "too many" });
  const { url } = await serve(context, busy, busy);
  await assert.rejects(agentFor(url, { reconnect: { delayMs: 1, attemptsMax: 1 } }).runAgent(), HttpProblem);
});

test("without reconnection a broken stream is an error at once", async (context) => {
  const { url, requests } = await serve(context, streams(...cutShort));
  await assert.rejects(agentFor(url, { reconnect: false }).runAgent(), ConnectionLost);
  assert.equal(requests.length, 1);
});

test("a request that never reached a server is not said to run, and its message is sent again", async (context) => {
  const agent = agentFor("http://127.0.0.1:1/awp", { reconnect: false });
  agent.addMessage({ id: "m1", role: "user", content: "hello" });
  await assert.rejects(agent.runAgent(), (error: Error) => {
    assert.ok(error instanceof ConnectionLost);
    assert.doesNotMatch(error.message, /the run goes on/);
    assert.match(error.message, /runAgent\(\) sends the same messages again/);
    return true;
  });
  const { url, requests } = await serve(context, streams(...cutShort));
  agent.url = url;
  await assert.rejects(agent.runAgent(), /the run goes on/);
  assert.deepEqual(requests.map(({ input }) => input.messages.map(({ id }) => id)), [["u1", "m1"]]);
});

test("a refusal on the way back is final", async (context) => {
  const { url } = await serve(context, streams(...cutShort), refuses(404, { detail: "gone" }));
  const agent = agentFor(url);
  await assert.rejects(agent.runAgent(), { status: 404 });
  assert.equal(agent.messages[0], user);
});

test("an abort ends the following wherever it is, and the agent is idle again", async (context) => {
  const silent: Answer = (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(cutShort.map(sse).join(""));
  };
  const controller = new AbortController();
  const { url } = await serve(context, silent, () => controller.abort(), streams(...cutShort));
  const agent = agentFor(url, { reconnect: { delayMs: 60_000 } });
  const streaming = await agent.runAgent({}, { onBusinessDataContentEvent: () => agent.abortRun() });
  const connecting = await agent.runAgent({ abortController: controller });
  const waiting = await agent.runAgent({}, { onReconnecting: () => agent.abortRun() });
  for (const { aborted, error } of [streaming, connecting, waiting]) {
    assert.equal(aborted, true);
    assert.equal(error, undefined);
  }
  assert.equal(agent.isRunning, false);
});

test("comments keep a silent stream alive", async (context) => {
  const { url, requests } = await serve(context, async (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(sse(started));
    let alive = 0;
    const timer = setInterval(() => {
      response.write(": keep-alive\n\n");
      if (++alive < 5) return;
      clearInterval(timer);
      response.end(sse(finished));
    }, 300);
  });
  await agentFor(url, { idleTimeoutMs: IDLE_MS, reconnect: false }).runAgent();
  assert.equal(requests.length, 1);
});

test("each wait is up to twice as long as the one before, never the same for all, and has an end", () => {
  const longest = [1, 2, 3, 4, 20].map((attempt) => delayOf(RECONNECT, attempt, 0, () => 1));
  assert.deepEqual(longest, [250, 500, 1000, 2000, 10_000]);
  assert.equal(delayOf(RECONNECT, 3, 0, () => 0), 500);
  assert.equal(delayOf(RECONNECT, 1, 3000, () => 0), 3000);
});
