// Drives the real, unmodified @ag-ui/client. One JSON document per line: requests on stdin, replies on stdout.
//
//   {"id": 1, "op": "agent", "agent": "a", "version": "1.0.0", "url": ..., "threadId": ..., "headers"?: {...}}
//   {"id": 2, "op": "run", "agent": "a", "add": [messages], "parameters": {runId?, tools?, resume?, ...},
//    "abortAt"?: "TEXT_MESSAGE_CONTENT", "history"?: [messages], "parentRunId"?: "run-1", "state"?: any}
//
//   {"id": 3, "op": "bridge", "version": "1.0.0", "config": {url, threadId}, "add": [messages], "parameters": {...}}: what
//   CopilotKit's older frontends are told instead, by the client's own bridge for them. By `require`, as bundlers have
//   it: as a module of Node, it can't call what it imports to mend JSON that is cut off.
//
// A run's reply is what the client made of the stream, and what went over the wire. No scenario is known here.

import { AsyncLocalStorage } from "node:async_hooks";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(import.meta.url);
const agents = new Map();
const current = new AsyncLocalStorage(); // the run on whose behalf code runs
const unhandled = [];

process.on("unhandledRejection", (reason) => unhandled.push(String(reason?.stack ?? reason)));

// What a client says to its developer. Stdout is ours: nothing else may be written there.
for (const level of ["log", "info", "debug", "warn", "error"]) {
  console[level] = (...words) => {
    if (level === "warn") current.getStore()?.warnings.push(words.map(String).join(" "));
    process.stderr.write(`${level}: ${words.map(String).join(" ")}\n`);
  };
}

// The client's own fetch, with a copy of the bytes kept.
const realFetch = globalThis.fetch;
globalThis.fetch = async (url, init) => {
  const run = current.getStore();
  const exchange = { request: init?.body ?? null, status: null, contentType: null, body: Buffer.alloc(0) };
  run?.exchanges.push(exchange);
  const response = await realFetch(url, init);
  exchange.status = response.status;
  exchange.contentType = response.headers.get("content-type");
  if (!response.body) return response;
  const [theirs, ours] = response.body.tee();
  const copied = copy(ours, exchange);
  run?.copies.push(copied);
  return new Response(theirs, { status: response.status, statusText: response.statusText, headers: response.headers });
};

async function copy(stream, exchange) {
  try {
    for await (const chunk of stream) exchange.body = Buffer.concat([exchange.body, chunk]);
  } catch {
    exchange.cut = true; // aborted, or the connection broke: the client is told as well
  }
}

const operations = {
  async agent({ agent, version, ...config }) {
    const { HttpAgent } = await import(`ag-ui-${version}`);
    agents.set(agent, new HttpAgent(config));
    return {};
  },

  async bridge({ version, config, add = [], parameters = {} }) {
    const { HttpAgent } = require(`ag-ui-${version}`);
    const agent = new HttpAgent(config);
    for (const message of add) agent.addMessage(message);
    const events = [];
    await new Promise((complete, error) =>
      agent.legacy_to_be_removed_runAgentBridged(parameters).subscribe({ next: (event) => events.push(event), error, complete }),
    );
    return { events };
  },

  async run({ agent: name, add = [], parameters = {}, abortAt = null, history = null, parentRunId = null, state }) {
    const agent = agents.get(name);
    if (state !== undefined) agent.setState(state);
    if (history) agent.setMessages(history);
    // No version has a parameter for it: a frontend that branches has its own HttpAgent, which says it so.
    const { requestInit } = Object.getPrototypeOf(agent);
    agent.requestInit = (input) => requestInit.call(agent, parentRunId ? { ...input, parentRunId } : input);
    const run = { exchanges: [], copies: [], warnings: [], events: [], failed: null };
    let result = null;
    let thrown = null;
    await current.run(run, async () => {
      for (const message of add) agent.addMessage(message);
      try {
        result = await agent.runAgent(parameters, {
          onEvent: ({ event }) => {
            run.events.push(event);
            if (event.type === abortAt) agent.abortRun();
          },
          onRunFailed: ({ error }) => void (run.failed = error.message),
        });
      } catch (error) {
        thrown = { name: error.name, message: error.message, status: error.status ?? null, payload: error.payload ?? null };
      }
    });
    await Promise.all(run.copies);
    return {
      thrown,
      failed: run.failed,
      warnings: run.warnings,
      events: run.events,
      newMessages: result?.newMessages ?? [],
      messages: agent.messages,
      state: agent.state ?? null,
      pendingInterrupts: agent.pendingInterrupts ?? [],
      exchanges: run.exchanges.map(({ body, ...rest }) => ({ ...rest, body: body.toString("base64") })),
    };
  },
};

async function answer(line) {
  const { id, op, ...rest } = JSON.parse(line);
  let reply;
  try {
    reply = { id, ...(await operations[op](rest)) };
  } catch (error) {
    reply = { id, fault: String(error?.stack ?? error) };
  }
  process.stdout.write(JSON.stringify({ ...reply, unhandled: unhandled.splice(0) }) + "\n");
}

createInterface({ input: process.stdin }).on("line", answer).on("close", () => process.exit(0));
