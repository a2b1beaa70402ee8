import assert from "node:assert/strict";
import { test } from "node:test";

import { ConnectionLost, FlowClient, HaiError, HttpProblem, ProtocolError, type InboxNews } from "../dist/index.js";
import { refuses, serve, type Answer } from "./server.ts";

const record = (id: string, more: object = {}): object => ({
  id,
  run_id: "r",
  title: null,
  deadline: null,
  evidence: { may_stay: { as_it: "is" } },
  claimed_by: null,
  may_decide: true,
  ...more,
});

const says = (content: unknown): Answer => (response) => {
  response.writeHead(200, { "Content-Type": "application/json" });
  response.end(JSON.stringify(content));
};

const news = (event: string, id: string, content: object): string => `id: ${id}\nevent: ${event}\ndata: ${JSON.stringify(content)}\n\n`;

/** A stream of such news, which then breaks or stays open. */
const tells = (stays: boolean, ...all: string[]): Answer => (response) => {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.write(all.join(""), () => stays || response.socket?.resetAndDestroy());
};

const at = (url: string): string => url.replace("/awp", "/");

const flowAt = (url: string, more = {}): FlowClient => new FlowClient({ url: at(url), key: "k", reconnect: { delayMs: 1 }, ...more });

async function collect<T>(items: AsyncIterable<T>, count = Infinity): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
    if (found.length === count) break;
  }
  return found;
}

test("an inbox comes page by page, with the filters on each, and its own names are those of the language", async (context) => {
  const { url, requests } = await serve(
    context,
    says({ items: [record("a", { why_not: { code: "voted", reason: "you have voted" } })], next_cursor: "c/1" }),
    says({ items: [record("b")], next_cursor: null }),
  );
  const before = new Date("2026-03-02T09:00:00Z");
  const items = await collect(flowAt(url).inbox.list({ workflow: "refund", deadlineBefore: before }));
  assert.deepEqual(items.map(({ id, runId }) => [id, runId]), [["a", "r"], ["b", "r"]]);
  assert.equal(items[0]?.whyNot?.code, "voted");
  assert.deepEqual(items[0]?.evidence, { may_stay: { as_it: "is" } });
  const query = "workflow=refund&deadline_before=2026-03-02T09%3A00%3A00.000Z";
  assert.deepEqual(requests.map(({ path }) => path), [`/v1/inbox?${query}`, `/v1/inbox?${query}&cursor=c%2F1`]);
  assert.deepEqual(requests.map(({ headers }) => headers.authorization), ["Bearer k", "Bearer k"]);
});

test("an answer with a record is bound to what it shows, and one with an id is not", async (context) => {
  const { url, requests } = await serve(context, says(record("a", { already: true })), says(record("a", { already: false })));
  const flow = flowAt(url);
  const given = await flow.pendings.decide({ id: "a", digest: "d1" }, { decision: "approve", onBehalfOf: "user:bo" });
  await flow.pendings.decide("a", { values: { cost_center: "CC-1" } });
  assert.equal(given.already, true);
  assert.deepEqual(requests.map(({ path, body }) => [path, JSON.parse(body)]), [
    ["/v1/pendings/a/decide", { digest: "d1", decision: "approve", on_behalf_of: "user:bo" }],
    ["/v1/pendings/a/decide", { values: { cost_center: "CC-1" } }],
  ]);
  assert.notEqual(requests[0]?.headers["idempotency-key"], requests[1]?.headers["idempotency-key"]);
});

test("several answers have an outcome each", async (context) => {
  const problem = { status: 403, code: "pending_forbidden", detail: "not yours" };
  const { url, requests } = await serve(context, says({
    items: [
      { id: "a", status: 200, pending: record("a", { decided_by: "user:me" }), problem: null },
      { id: "b", status: 403, pending: null, problem },
    ],
  }));
  const [first, second] = await flowAt(url).inbox.decide([{ id: "a", decision: "approve" }, { id: "b", decision: "reject", reason: "no" }]);
  assert.equal(first?.pending?.decidedBy, "user:me");
  assert.deepEqual(second, { id: "b", status: 403, pending: null, problem });
  assert.deepEqual(JSON.parse(requests[0]?.body ?? ""), {
    items: [{ id: "a", decision: "approve" }, { id: "b", decision: "reject", reason: "no" }],
  });
});

test("keys and tenants are asked for as the server knows them, and a key is asked for once", async (context) => {
  const answers = Array.from({ length: 7 }, () => says({ items: [], next_cursor: null, ...record("a") }));
  const { url, requests } = await serve(context, ...answers, (response) => void response.writeHead(503).end());
  const flow = flowAt(url);
  await flow.keys.create({ principal: "user:bo", roles: ["viewer"], expiresIn: 60 });
  for await (const key of flow.keys.list()) assert.fail(key.id);
  await flow.keys.revoke("k/1");
  await flow.tenants.list();
  await flow.tenants.get("acme");
  await flow.tenants.limit("acme", { openRuns: 7, followers: null });
  await flow.tenants.place("acme", ["home", "north"]);
  await assert.rejects(flow.keys.create({ principal: "user:bo" }));
  assert.deepEqual(requests.map(({ method, path, body }) => [`${method} ${path}`, body && JSON.parse(body)]), [
    ["POST /v1/keys", { principal: "user:bo", roles: ["viewer"], expires_in: 60 }],
    ["GET /v1/keys", ""],
    ["POST /v1/keys/k%2F1/revoke", ""],
    ["GET /v1/tenants", ""],
    ["GET /v1/tenants/acme", ""],
    ["PATCH /v1/tenants/acme", { open_runs: 7, followers: null }],
    ["PATCH /v1/tenants/acme", { cells: ["home", "north"] }],
    ["POST /v1/keys", { principal: "user:bo" }],
  ]);
});

test("claims, delegations, tokens and tickets are asked for as the server knows them", async (context) => {
  const answers = Array.from({ length: 6 }, () => says({ items: [], next_cursor: null, ...record("a") }));
  const { url, requests } = await serve(context, ...answers, (response) => void response.writeHead(204).end(), ...answers.slice(0, 2), (response) => void response.writeHead(204).end());
  const flow = flowAt(url);
  await flow.inbox.claim("a", "2h");
  await flow.inbox.release({ id: "a" });
  await flow.inbox.delegate("user:bo", new Date(0), { note: "away" });
  await flow.inbox.delegations();
  await flow.createToken({ principal: "user:ann", threads: ["t"], expiresIn: 60 });
  await flow.createTicket();
  await flow.inbox.endDelegation("d/1");
  await flow.inbox.enterAbsence("2026-12-21", "2027-01-03", { delegate: "user:bo" });
  for await (const _ of flow.inbox.absences({ everybody: true }));
  await flow.inbox.endAbsence({ id: "b/1" });
  assert.deepEqual(requests.map(({ method, path, body }) => [`${method} ${path}`, body && JSON.parse(body)]), [
    ["POST /v1/inbox/a/claim", { for: "2h" }],
    ["POST /v1/inbox/a/release", ""],
    ["POST /v1/inbox/delegations", { to: "user:bo", until: "1970-01-01T00:00:00.000Z", note: "away" }],
    ["GET /v1/inbox/delegations", ""],
    ["POST /v1/tokens", { principal: "user:ann", threads: ["t"], expires_in: 60 }],
    ["POST /v1/tickets", ""],
    ["DELETE /v1/inbox/delegations/d%2F1", ""],
    ["POST /v1/absences", { first_day: "2026-12-21", last_day: "2027-01-03", delegate: "user:bo" }],
    ["GET /v1/absences?everybody=true", ""],
    ["DELETE /v1/absences/b%2F1", ""],
  ]);
});

test("a command that may not have arrived is sent again under its key, and a refusal is not", async (context) => {
  const breaks: Answer = (response) => void response.socket?.resetAndDestroy();
  const { url, requests } = await serve(
    context,
    breaks,
    refuses(503, { code: "busy" }, { "Retry-After": "0" }),
    says(record("a")),
    refuses(409, { code: "pending_decided", winner: { outcome: "approve" } }),
  );
  const flow = flowAt(url);
  await flow.pendings.decide("a", { decision: "approve" });
  assert.deepEqual(new Set(requests.map(({ headers }) => headers["idempotency-key"])).size, 1);
  await assert.rejects(flow.pendings.decide("a", { decision: "reject" }), (error) =>
    error instanceof HttpProblem && error.code === "pending_decided" && error.problem.winner?.["outcome"] === "approve");
  assert.equal(requests.length, 4);
});

test("a receipt is what the server has given, byte for byte", async (context) => {
  const receipt = '{"receipt":"a.b.c","texts":{"1":{"salt":"s","text":"1.0"}}}\n';
  const { url, requests } = await serve(context, (response) => void response.end(receipt), refuses(409, { code: "receipt_early" }));
  assert.equal(await flowAt(url).pendings.receipt({ id: "a/b", digest: "d" }), receipt);
  assert.equal(requests[0]?.path, "/v1/pendings/a%2Fb/receipt");
  await assert.rejects(flowAt(url).pendings.receipt("a"), (error) => error instanceof HttpProblem && error.code === "receipt_early");
});

test("an inbox is followed over broken connections, and what has not changed is not told again", async (context) => {
  const whole = { items: [record("b", { deadline: "2026-03-02T10:00:00.000Z" }), record("a", { deadline: "2026-03-02T09:00:00.500Z" })] };
  const { url, requests } = await serve(
    context,
    tells(false, news("inbox", "1", whole), news("changed", "2", { items: [record("c")], gone: ["b"] })),
    tells(false, ": nothing has happened\n\n", news("inbox", "2", { items: [...whole.items.slice(1), record("c")] })),
    tells(true, news("later", "x", {}), news("inbox", "3", { items: [record("c", { claimed_by: "user:bo" })] })),
  );
  const told = await collect(flowAt(url).inbox.follow({ workflow: "refund", limit: 10 }), 3);
  const ids = ({ items, changed, gone }: InboxNews): unknown => [items.map(({ id }) => id), changed.map(({ id }) => id), gone];
  assert.deepEqual(told.map(ids), [[["a", "b"], ["a", "b"], []], [["a", "c"], ["c"], ["b"]], [["c"], ["c"], ["a"]]]);
  assert.deepEqual(requests.map(({ headers }) => headers["last-event-id"]), [undefined, "2", "2"]);
  assert.equal(requests[0]?.path, "/v1/inbox/events?workflow=refund&limit=10");
});

test("an inbox is followed on with the next token when the stream's own has ended", async (context) => {
  const { url, requests } = await serve(
    context,
    tells(true, news("inbox", "1", { items: [] }), 'event: auth.expired\ndata: {"code":"auth.expired"}\n\n'),
    tells(true, news("inbox", "2", { items: [record("a")] })),
  );
  let given = 0;
  const told = await collect(flowAt(url, { key: () => `token-${(given += 1)}` }).inbox.follow(), 2);
  assert.deepEqual(told.map(({ items }) => items.length), [0, 1]);
  assert.deepEqual(requests.map(({ headers }) => headers.authorization), ["Bearer token-1", "Bearer token-2"]);
});

test("who may not follow is told why, at once", async (context) => {
  const { url } = await serve(context, refuses(401, { code: "auth.expired" }));
  await assert.rejects(collect(flowAt(url).inbox.follow()), (error) => error instanceof HttpProblem && error.code === "auth.expired");
});

test("an abort ends the following, also while nothing comes", async (context) => {
  const leaving = new AbortController();
  const { url } = await serve(context, tells(true, news("inbox", "1", { items: [] })));
  const told: InboxNews[] = [];
  for await (const each of flowAt(url).inbox.follow({ signal: leaving.signal })) {
    told.push(each);
    setImmediate(() => leaving.abort());
  }
  assert.equal(told.length, 1);
});

test("a server that is none is named, and one that is not there, too", async (context) => {
  const { url } = await serve(context, (response) => void response.writeHead(200, { "Content-Type": "text/html" }).end("<h1>hello"));
  await assert.rejects(flowAt(url).inbox.counts(), ProtocolError);
  await assert.rejects(flowAt("http://127.0.0.1:1/awp", { reconnect: false }).inbox.counts(), (error) =>
    error instanceof ConnectionLost && error.message.includes("127.0.0.1:1"));
  await assert.rejects(flowAt(url).inbox.get(".."), HaiError);
});
