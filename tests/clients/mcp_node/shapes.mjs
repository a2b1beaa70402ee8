// One run of confirm_delete in each shape of the official TypeScript client: `node shapes.mjs URL SHAPE [pause]`. With
// `pause` it says `waiting` where the run waits, and goes on at the URL that it then reads.
import { createInterface } from "node:readline";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const anything = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } };
const [begun, shape, pauses] = process.argv.slice(2);
let url = begun;
const input = pauses && createInterface({ input: process.stdin });
const pause = async () => {
  if (pauses && url === begun) {
    console.log("waiting");
    url = await new Promise((resolve) => input.once("line", resolve));
    input.close();
  }
};
let runId; // of a call whose stream was cut
let cut = () => {};
const TASKS = "io.modelcontextprotocol/tasks";
const elicits = shape.endsWith("elicitation");
const capabilities = elicits ? { elicitation: { form: {} } } : {};
if (shape === "tasks") {
  Object.assign(capabilities, { elicitation: { form: {} }, extensions: { [TASKS]: {} } });
}
const options = { capabilities, ...(shape.startsWith("legacy") ? {} : { versionNegotiation: { mode: "auto" } }) };
const client = new Client({ name: "test", version: "1" }, options);
if (elicits) {
  client.setRequestHandler("elicitation/create", async () => {
    await pause();
    if (pauses && shape === "legacy-elicitation") {
      const { questions } = await call("list_pending", {});
      runId = questions.find((each) => JSON.stringify(each).includes(`${shape}.txt`)).run_id;
      setTimeout(cut);
    }
    return { action: "accept", content: { confirm: true } };
  });
}
// The client knows no tasks yet: its fetch is extended. A task is handed on as structured content, and the requests of
// tasks have the header that they need.
const withTasks = async (_address, init) => {
  const message = typeof init?.body === "string" ? JSON.parse(init.body) : {};
  const headers = new Headers(init?.headers);
  if (message.method?.startsWith("tasks/")) {
    headers.set("Mcp-Name", message.params.taskId);
  }
  const response = await fetch(url, { ...init, headers });
  if (shape !== "tasks" || message.method !== "tools/call") {
    return response;
  }
  const rewritten = (data) => {
    const answer = JSON.parse(data);
    if (answer.result?.resultType !== "task") {
      return data;
    }
    const structuredContent = { run_id: answer.result.taskId, status: "", task: answer.result };
    return JSON.stringify({ ...answer, result: { resultType: "complete", content: [], structuredContent } });
  };
  const whole = await response.text(); // JSON, or events
  const text = whole.startsWith("{") ? rewritten(whole) : whole.replace(/^data: (.*)$/gm, (_, data) => `data: ${rewritten(data)}`);
  return new Response(text, { status: response.status, headers: response.headers });
};
await client.connect(new StreamableHTTPClientTransport(new URL(url), { fetch: withTasks }));
const call = async (name, args) => (await client.callTool({ name, arguments: args })).structuredContent;
const started = call("confirm_delete", { filename: `${shape}.txt` });
started.catch(() => {}); // its stream is cut with the server
let shown = await Promise.race([started, new Promise((resolve) => { cut = () => resolve({ status: "cut" }); })]);
const first = shown.status;
if (shown.task) {
  const { taskId } = shown.task;
  const ask = (method, params = {}) => client.request({ method, params: { taskId, ...params } }, anything);
  let task;
  while ((task = await ask("tasks/get")).status !== "completed") {
    if (task.status === "input_required") {
      await pause();
      const [id] = Object.keys(task.inputRequests);
      await ask("tasks/update", { inputResponses: { [id]: { action: "accept", content: { confirm: true } } } });
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const { output } = task.result.structuredContent;
  console.log(JSON.stringify({ first: "task", version: client.getNegotiatedProtocolVersion?.() ?? null, output }));
  process.exit(0);
}
if (first === "cut") {
  do {
    shown = await call("wait_run", { run_id: runId }); // until the answer is there
  } while (shown.status === "waiting");
}
if (first === "waiting") {
  await pause();
  await call("answer", { question_id: shown.questions[0].id, values: { confirm: true } });
  shown = await call("wait_run", { run_id: shown.run_id });
}
console.log(JSON.stringify({ first, version: client.getNegotiatedProtocolVersion?.() ?? null, output: shown.output }));
process.exit(0);
