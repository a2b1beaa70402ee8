import assert from "node:assert/strict";
import { test } from "node:test";

import { FlowClient, HaiError, HttpProblem, ProtocolError, type LogEvent } from "../dist/index.js";
import { breaksAfter, refuses, serve, type Answer } from "./server.ts";

const run = (more: object = {}): object => ({
  id: "r",
  thread_id: "t",
  workflow: "refund",
  version: { version: 1, sha256: "ab", dev: false },
  status: "waiting",
  seq: 4,
  input: { as_it: "is" },
  parent: { run_id: "above", path: "/calls" },
  error: null,
  ...more,
});

const says = (content: unknown): Answer => (response) => {
  response.writeHead(200, { "Content-Type": "application/json" });
  response.end(JSON.stringify(content));
};

const flowAt = (url: string, more = {}): FlowClient =>
  new FlowClient({ url: url.replace("/awp", "/"), key: "k", reconnect: { delayMs: 1 }, ...more });

const event = (seq: number, type = "step_started"): object => ({ seq, type, at: "2026-03-02T09:00:00Z", turn: 1 });

/** Tells the events as a server does, and ends or breaks off. */
const tells = (...events: object[]): Answer => (response) => {
  const frames = events.map((each) => `id: ${(each as LogEvent).seq}\nevent: ${(each as LogEvent).type}\ndata: ${JSON.stringify(each)}\n\n`);
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.end(frames.join(""));
};

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

test("a run is started once however often it is sent, and its own names are those of the language", async (context) => {
  const { url, requests } = await serve(context, breaksAfter(), says(run()));
  const started = await flowAt(url).runs.start("refund", { input: { order: "A-1" }, threadId: "t" });
  assert.deepEqual([started.threadId, started.parent, started.input], ["t", { runId: "above", path: "/calls" }, { as_it: "is" }]);
  assert.deepEqual(requests.map(({ path, body }) => [path, JSON.parse(body)]), Array.from({ length: 2 }, () => [
    "/v1/runs", { workflow: "refund", input: { order: "A-1" }, thread_id: "t" }]));
  assert.equal(requests[0]?.headers["idempotency-key"], requests[1]?.headers["idempotency-key"]);
});

test("runs come page by page, with the filters on each", async (context) => {
  const { url, requests } = await serve(
    context,
    says({ items: [run()], next_cursor: "c" }),
    says({ items: [run({ id: "s", parent: null })], next_cursor: null }),
  );
  const found = await collect(flowAt(url).runs.list({ status: ["failed", "waiting"], startedBy: "user:me" }));
  assert.deepEqual(found.map(({ id, parent }) => [id, parent?.runId]), [["r", "above"], ["s", undefined]]);
  const query = "status=failed&status=waiting&started_by=user%3Ame";
  assert.deepEqual(requests.map(({ path }) => path), [`/v1/runs?${query}`, `/v1/runs?${query}&cursor=c`]);
});

test("what is done with a run is asked for as the server knows it", async (context) => {
  const { url, requests } = await serve(context, ...Array.from({ length: 9 }, () => says(run())));
  const { runs } = flowAt(url);
  await runs.pause("r", { reason: "look" });
  await runs.resume("r");
  await runs.stop({ id: "r" });
  await runs.terminate("r", { reason: "enough" });
  await runs.retry("r");
  await runs.skip("r", "/pay", { paid: true });
  await runs.fork("r", { at: 3, input: { order: "B" } });
  await runs.rerun("r", "/pay", { version: "2" });
  await runs.get("a/b");
  assert.deepEqual(requests.map(({ method, path, body }) => [method, path, body === "" ? null : JSON.parse(body)]), [
    ["POST", "/v1/runs/r/pause", { reason: "look" }],
    ["POST", "/v1/runs/r/resume", null],
    ["POST", "/v1/runs/r/stop", { reason: "" }],
    ["POST", "/v1/runs/r/terminate", { reason: "enough" }],
    ["POST", "/v1/runs/r/retry", null],
    ["POST", "/v1/runs/r/skip", { step: "/pay", output: { paid: true }, reason: "" }],
    ["POST", "/v1/runs/r/fork", { at: 3, input: { order: "B" } }],
    ["POST", "/v1/runs/r/fork", { version: "2", step: "/pay" }],
    ["GET", "/v1/runs/a%2Fb", null],
  ]);
  await assert.rejects(runs.get(".."), HaiError);
});

test("a fork is rehearsed, and a moment is shown with its steps and questions", async (context) => {
  const { url, requests } = await serve(
    context,
    says({ of: "r", thread_id: "t", begins: ["/pay"], stops: { run_id: "s", in_flight: ["/x"], undoes: [] } }),
    says({
      run_id: "r", seq: 3, turn: { n: 1, first_seq: 1 }, state: { as_it: 1 }, steps: { "/my_step": { status: "waiting", attempt: 1 } },
      pendings: [{ id: "p", run_id: "r", opened_at: "x" }], messages: [], timers: [], origin: null,
    }),
  );
  const { runs } = flowAt(url);
  const told = await runs.rehearse("r", { step: "/pay" });
  assert.deepEqual([told.threadId, told.stops?.inFlight], ["t", ["/x"]]);
  const then = await runs.snapshot("r", { at: new Date("2026-03-02T09:00:00Z") });
  assert.deepEqual([then.turn?.firstSeq, then.state, then.steps["/my_step"]?.status, then.pendings[0]?.runId], [1, { as_it: 1 }, "waiting", "r"]);
  assert.deepEqual(JSON.parse(requests[0]?.body ?? ""), { step: "/pay", dry_run: true });
  assert.equal(requests[1]?.path, "/v1/runs/r/snapshot?at=2026-03-02T09%3A00%3A00.000Z");
});

test("a log is read to its end page by page", async (context) => {
  const { url, requests } = await serve(context, says({ items: [event(3)], next_cursor: "3" }), says({ items: [event(4)], next_cursor: null }));
  const found = await collect(flowAt(url).runs.events("r", { after: 2, types: ["a", "b"] }));
  assert.deepEqual(found.map(({ seq }) => seq), [3, 4]);
  assert.deepEqual(requests.map(({ path }) => path), [
    "/v1/runs/r/events?after=2&type=a&type=b&limit=1000", "/v1/runs/r/events?after=3&type=a&type=b&limit=1000"]);
});

test("a run is followed over lost connections to its end, none twice and none left out, also where it is retried", async (context) => {
  const { url, requests } = await serve(
    context,
    tells(event(1), event(2)),
    tells(event(2), event(3, "run_failed")),
    says(run({ status: "running", seq: 4 })), // it was retried meanwhile
    tells(event(4), event(5, "run_finished")),
    says(run({ status: "finished", seq: 5 })),
  );
  const found = await collect(flowAt(url).runs.follow("r"));
  assert.deepEqual(found.map(({ seq }) => seq), [1, 2, 3, 4, 5]);
  const streams = requests.filter(({ path }) => path.endsWith("/events"));
  assert.deepEqual(streams.map(({ headers }) => headers["last-event-id"]), [undefined, "2", "3"]);
});

test("a gap in a log is an error, and who may not follow is told why", async (context) => {
  const { url } = await serve(context, tells(event(1), event(3)), refuses(404, { code: "run_unknown" }));
  await assert.rejects(collect(flowAt(url).runs.follow("r")), ProtocolError);
  await assert.rejects(collect(flowAt(url).runs.follow("r")), (error) => error instanceof HttpProblem && error.code === "run_unknown");
});
