// Conversations with a real server, for a test that asserts what they tell:
// node live.mjs '{"scenario": ..., "url": ..., ...}' prints one JSON document.
import { connect, createServer } from "node:net";
import { createInterface } from "node:readline";

import { FlowClient, HttpAgent, HttpProblem, textOf } from "../dist/index.js";

const CONFIRM = [{ name: "confirmAction", description: "asks a person", parameters: { type: "object" } }];

const user = (content) => ({ id: `msg_${crypto.randomUUID()}`, role: "user", content });
const said = (messages) => messages.filter(({ role }) => role === "assistant").map(textOf).join("");
const roles = (agent) => agent.messages.map(({ role }) => role);

function agentFor(url, workflow, more = {}) {
  return new HttpAgent({ url: `${url}/workflows/${workflow}/awp`, reconnect: { delayMs: 20 }, ...more });
}

/** A door to the server that can be shut on everybody who is in it, and moved to another server. */
async function door(url) {
  let to = new URL(url);
  const passing = new Set();
  const server = createServer((inside) => {
    const outside = connect(Number(to.port), to.hostname);
    for (const [one, other] of [[inside, outside], [outside, inside]]) {
      passing.add(one);
      one.on("error", () => {});
      one.on("close", () => {
        passing.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    move: (another) => void (to = new URL(another)),
    shut: () => passing.forEach((socket) => socket.destroy()),
    close: () => server.close(),
  };
}

const scenarios = {
  /** Refused without a credential, taken with one, which is asked for when it is needed. */
  async signedIn({ url, key, threadId }) {
    const stranger = agentFor(url, "chat", { threadId });
    stranger.addMessage(user("hello"));
    const refused = await stranger.runAgent().catch((error) => error);
    let asked = 0;
    const agent = agentFor(url, "chat", { threadId, key: () => ((asked += 1), key) });
    agent.addMessage(user("hello"));
    const { error = null } = await agent.runAgent();
    return { refused: [refused.status, refused.code], error, asked };
  },

  /** Follows with tokens that end, each given by a backend. */
  async expires({ url, shop, seconds }) {
    const backend = new FlowClient({ url, key: shop });
    let given = 0;
    const key = async () => {
      given += 1;
      return (await backend.createToken({ principal: "user:ann", expiresIn: seconds })).token;
    };
    const agent = agentFor(url, "two_words", { key });
    agent.addMessage(user("go"));
    const { error = null } = await agent.runAgent();
    return { error, given, texts: agent.messages.map(textOf), roles: roles(agent) };
  },

  /** A run, from its start to a fork of it: followed, looked at, decided, and controlled. */
  async runs({ url, workflow, input }) {
    const { runs, pendings } = new FlowClient({ url });
    const { id } = await runs.start(workflow, { input });
    const types = [];
    let asked;
    for await (const event of runs.follow(id)) {
      types.push(event.type);
      if (event.type !== "pending_opened") continue;
      asked = await runs.snapshot(id);
      await runs.pause(id, { reason: "look" });
      await runs.resume(id);
      await pendings.decide(asked.pendings[0].id, { decision: "approve" });
    }
    const log = await Array.fromAsync(runs.events(id, { types: ["pending_opened", "run_finished"] }));
    const before = await runs.snapshot(id, { at: 1 });
    const [step] = asked.pendings.map(({ path }) => path);
    const rehearsed = await runs.rehearse(id, { at: asked.seq });
    const again = await runs.fork(id, { at: asked.seq, reason: "once more" });
    const ended = await runs.terminate(again);
    const refused = await runs.pause(ended).catch((error) => error);
    const found = await Array.fromAsync(runs.list({ workflow, status: ["finished", "stopped"] }));
    return {
      status: (await runs.get(id)).status,
      types,
      log: log.map(({ type }) => type),
      before: [before.seq, before.pendings.length],
      asked: [asked.status, asked.pendings[0].runId === id],
      rehearsed: [rehearsed.of === id, rehearsed.asks, step],
      ended: ended.status,
      refused: [refused.status, refused.code],
      found: found.map((each) => each.id).sort(),
      ids: [id, again.id].sort(),
    };
  },

  /** A decider's inbox: followed, claimed, counted, decided, remembered; and the way of one who may not. */
  async inbox({ url, shop, boss, other, workflow }) {
    const backend = new FlowClient({ url, key: shop });
    const { token } = await backend.createToken({ principal: "user:ann", workflows: [workflow] });
    const start = () => {
      const agent = agentFor(url, workflow, { key: token });
      agent.addMessage(user("please"));
      return agent.runAgent();
    };
    const flow = new FlowClient({ url, key: boss, reconnect: { delayMs: 20 } });
    const told = [];
    for await (const { items, changed, gone } of flow.inbox.follow({ workflow })) {
      told.push([items.length, changed.length, gone.length]);
      if (items.length === 0 && gone.length > 0) break;
      if (told.length === 1) await start();
      else if (items[0]?.claimedBy === null) await new FlowClient({ url, key: other }).inbox.claim(items[0], "1h");
      else if (gone.length === 0) await flow.pendings.decide(items[0], { decision: "approve", reason: "fine" });
    }
    await Promise.all([start(), start()]);
    const items = await Array.fromAsync(flow.inbox.list({ workflow, limit: 1 }));
    const { workflows, complete } = await flow.inbox.counts();
    const outcomes = await flow.inbox.decide([
      { id: items[0].id, decision: "reject", reason: "no" },
      { id: items[0].id.replace(/.$/, "x"), decision: "approve" },
    ]);
    const conflict = await flow.pendings.decide(items[0].id, { decision: "approve" }).catch((error) => error);
    const decided = await Array.fromAsync(flow.inbox.decided());
    const until = new Date(Date.now() + 3_600_000);
    const delegation = await flow.inbox.delegate("user:zoe", until, { note: "away" });
    const delegations = await flow.inbox.delegations();
    await flow.inbox.endDelegation(delegation);
    const { principal, rights } = await flow.session();
    return {
      told,
      items: items.map(({ title, startedBy, mayDecide, claimedBy }) => ({ title, startedBy, mayDecide, claimedBy })),
      counted: workflows[workflow],
      complete,
      outcomes: outcomes.map(({ status, pending, problem }) => [status, pending?.decidedBy ?? null, problem?.code ?? null]),
      conflict: [conflict.status, conflict.problem.winner.outcome],
      decided: decided.map(({ decision, reason, by }) => [decision, reason, by]),
      delegation: [delegation.from, delegation.to, delegation.until === until.toISOString(), delegations.length],
      left: (await flow.inbox.delegations()).length,
      session: [principal, rights.includes("decide")],
      ticket: (await flow.createTicket()).ticket.length > 20,
      foreign: await new FlowClient({ url, key: token }).inbox.counts().catch(({ status, code }) => [status, code]),
    };
  },

  async chat({ url, transport }) {
    const types = [];
    const answers = [];
    let documents = 0;
    const agent = agentFor(url, "chat", {
      transport,
      fetch: async (...request) => {
        const response = await fetch(...request);
        answers.push(response.headers.get("content-type"));
        return response;
      },
    });
    agent.subscribe({
      onEvent: ({ event }) => void types.push(event.type),
      onBusinessDataContentEvent: ({ outputs }) => void (documents += outputs.length),
    });
    agent.addMessage(user("你好 }{"));
    const { newMessages, pendings, result } = await agent.runAgent();
    agent.addMessage(user("again"));
    const second = await agent.runAgent();
    return { types, answers, documents, text: said(newMessages), second: said(second.newMessages), pendings, result };
  },

  async files({ url }) {
    const agent = agentFor(url, "chat");
    const bytes = crypto.getRandomValues(new Uint8Array(60_000));
    const file = await agent.uploadFile(new Blob([bytes], { type: "image/png" }), { name: "Grüße.png" });
    agent.addMessage(user([{ type: "text", text: "look" }, file.part]));
    await agent.runAgent();
    const found = await agent.downloadFile(file.id);
    const same = Buffer.from(await found.arrayBuffer()).equals(Buffer.from(bytes));
    const missing = await agent.downloadFile(`file_${"0".repeat(64)}`).catch((error) => [error.name, error.status, error.code]);
    const after = agentFor(url, "chat", { threadId: agent.threadId });
    await after.connectAgent();
    return { file, same, type: found.type, missing, shown: after.messages[0].content[1] };
  },

  async frontendTool({ url }) {
    const agent = agentFor(url, "search_files");
    const tools = [{ name: "search_local_files", description: "searches", parameters: { type: "object" } }];
    agent.addMessage(user("帮我搜索本地的报告文件"));
    const { pendings } = await agent.runAgent({ tools });
    agent.addToolResult(pendings[0].id, ["2024年度报告.pdf", "Q3报告.docx"]);
    const { newMessages } = await agent.runAgent({ tools });
    return { pendings, text: said(newMessages), left: agent.pendings, roles: roles(agent) };
  },

  async serverTool({ url }) {
    const agent = agentFor(url, "weather");
    const heard = [];
    agent.subscribe({
      onToolCallEndEvent: ({ toolCallName, toolCallArgs }) => void heard.push([toolCallName, toolCallArgs]),
      onToolCallResultEvent: ({ event }) => void heard.push(event.content),
    });
    agent.addMessage(user("北京天气怎么样?"));
    const { pendings } = await agent.runAgent();
    return { heard, text: said(agent.messages), pendings };
  },

  async approve({ url, advertised }) {
    const agent = agentFor(url, "release");
    const tools = advertised ? CONFIRM : [];
    agent.addMessage(user("ship it"));
    const asked = (await agent.runAgent({ tools })).pendings;
    const waiting = agent.state;
    agent.approve(asked[0].id, { reason: "fine" });
    const between = (await agent.runAgent({ tools })).pendings;
    agent.approve(between[0].id);
    await agent.runAgent({ tools });
    return { asked, between: between.map(({ id }) => id), left: agent.pendings, waiting, state: agent.state, text: said(agent.messages) };
  },

  async reject({ url }) {
    const agent = agentFor(url, "release");
    agent.addMessage(user("ship it"));
    const [first] = (await agent.runAgent()).pendings;
    agent.reject(first.id, { reason: "not today" });
    await agent.runAgent();
    await agent.connectAgent();
    return { text: said(agent.messages), left: agent.pendings };
  },

  async cut({ url, transport, times }) {
    const between = await door(url);
    const agent = agentFor(between.url, "chat", { transport });
    const told = [];
    let contents = 0;
    agent.subscribe({
      onBusinessDataContentEvent: () => {
        if (++contents % 4 === 0 && told.length < times) between.shut();
      },
      onReconnecting: ({ attempt }) => void told.push(attempt),
    });
    agent.addMessage(user("cut me"));
    const { error, aborted } = await agent.runAgent();
    between.close();
    return { told: told.length, error, aborted, text: said(agent.messages), roles: roles(agent) };
  },

  /** Ends the server as soon as the run streams, and says so; is told where the next server is. */
  async restart({ url, text, pid }) {
    const between = await door(url);
    const agent = agentFor(between.url, "chat", { reconnect: { attemptsMax: 200, delayMs: 50, delayMsMax: 300 } });
    createInterface(process.stdin).once("line", between.move);
    const reasons = [];
    agent.subscribe({ onReconnecting: ({ reason }) => void reasons.push(reason.message) });
    agent.addMessage(user(text));
    let contents = 0;
    const { error } = await agent.runAgent({}, {
      onBusinessDataContentEvent: () => {
        if (++contents !== 3) return;
        process.kill(pid, "SIGTERM");
        console.log("ended");
      },
    });
    between.close();
    process.stdin.destroy();
    return { reasons, error, text: textOf(agent.messages.at(-1)), roles: roles(agent) };
  },

  async comeBack({ url }) {
    const agent = agentFor(url, "chat");
    agent.addMessage(user("wait for me"));
    const left = await agent.runAgent({}, { onBusinessDataContentEvent: () => agent.abortRun() });
    const { aborted } = await agent.connectAgent();
    return { aborted: [left.aborted, aborted], text: said(agent.messages), roles: roles(agent) };
  },

  async reload({ url }) {
    const before = agentFor(url, "cleanup");
    before.addMessage(user("删除所有临时文件"));
    const [call] = (await before.runAgent({ tools: CONFIRM })).pendings;
    const after = agentFor(url, "cleanup", { threadId: before.threadId });
    const { pendings } = await after.connectAgent({ tools: CONFIRM });
    const shown = roles(after);
    after.approve(pendings[0].id);
    const { newMessages } = await after.runAgent({ tools: CONFIRM });
    const told = await before.connectAgent({ tools: CONFIRM });
    return { call, pendings, shown, text: said(newMessages), before: said(before.messages).slice(-20), left: told.pendings };
  },

  async refused({ url }) {
    const agent = agentFor(url, "cleanup");
    agent.addMessage(user("clean up"));
    const [call] = (await agent.runAgent()).pendings;
    const problems = [];
    const attempt = () => agent.runAgent().catch((error) => {
      if (!(error instanceof HttpProblem)) throw error;
      problems.push([error.status, error.code, error.takenBack.map(({ role }) => role)]);
    });
    agent.addMessage(user("hurry up"));
    await attempt();
    agent.approve(call.id);
    await attempt();
    agent.addToolResult(call.id, "denied");
    await attempt();
    return { problems, text: said(agent.messages), left: agent.pendings };
  },
};

const { scenario, ...asked } = JSON.parse(process.argv[2]);
console.log(JSON.stringify(await scenarios[scenario](asked)));
