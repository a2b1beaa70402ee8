// One run of confirm_delete in each shape of the official TypeScript client: `node shapes.mjs URL SHAPE`.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, shape] = process.argv.slice(2);
const elicits = shape.endsWith("elicitation");
const capabilities = elicits ? { elicitation: { form: {} } } : {};
const options = { capabilities, ...(shape.startsWith("legacy") ? {} : { versionNegotiation: { mode: "auto" } }) };
const client = new Client({ name: "test", version: "1" }, options);
if (elicits) {
  client.setRequestHandler("elicitation/create", async () => ({ action: "accept", content: { confirm: true } }));
}
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const call = async (name, args) => (await client.callTool({ name, arguments: args })).structuredContent;
let shown = await call("confirm_delete", { filename: "a.txt" });
const first = shown.status;
if (first === "waiting") {
  await call("answer", { question_id: shown.questions[0].id, values: { confirm: true } });
  shown = await call("wait_run", { run_id: shown.run_id });
}
console.log(JSON.stringify({ first, version: client.getNegotiatedProtocolVersion?.() ?? null, output: shown.output }));
await client.close();
