// An agent of the AI SDK, as agent.py is one of other frameworks: agent.mjs DIRECTORY URL KEY PLAN. Its conversation is
// the example of docs/approvals.md, which the test puts beside it as example.ts.
import { appendFile, readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { FlowClient } from "hai-client";
import { guard } from "hai-client/ai-sdk";
import { z } from "zod";
import { converse } from "./example.ts";

const [directory, url, key, plan] = process.argv.slice(2);
const { calls, policy, workflow, expires_in: expiresIn, careless, unguarded } = JSON.parse(plan);
const file = (name) => join(directory, name);

async function perform(action, args) {
  await appendFile(file("performed"), `${JSON.stringify([action, args])}\n`);
  return `did ${JSON.stringify(args)}`;
}

const tools = {
  transfer: tool({
    description: "Send money",
    inputSchema: z.object({ amount: z.number().int(), to: z.string().trim() }),
    execute: (args) => perform("transfer", args),
  }),
  wipe: tool({
    description: "Delete everything below a path",
    inputSchema: z.object({ path: z.string() }),
    async *execute(args) {
      yield "at it";
      yield await perform("wipe", args);
    },
  }),
};

const model = new MockLanguageModelV3({
  doGenerate: async ({ prompt }) => {
    const results = prompt.flatMap(({ role, content }) => (role === "tool" ? content : [])).filter(({ type }) => type === "tool-result");
    const content = results.length
      ? [{ type: "text", text: JSON.stringify(results.map(({ output }) => output)) }]
      : calls.map(([toolName, input], number) => ({
          type: "tool-call",
          toolCallId: `${basename(directory)}-${number}`,
          toolName,
          input: JSON.stringify(input),
        }));
    const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
    return { content, finishReason: { unified: results.length ? "stop" : "tool-calls" }, usage, warnings: [] };
  },
});

try {
  const flow = new FlowClient({ url, key });
  const asking = { ...(policy && { policy }), ...(workflow && { workflow }), ...(expiresIn && { expiresIn }) };
  const guarded = unguarded ? Object.fromEntries(Object.entries(tools).map(([name, each]) => [name, { ...each, needsApproval: true }])) : guard(flow, tools, asking);
  const saved = await readFile(file("state"), "utf8").catch(() => undefined);
  const messages = saved ? JSON.parse(saved) : [{ role: "user", content: "pay" }];
  const save = async (each) => await writeFile(file("state"), JSON.stringify(each));
  const own = careless ? Object.fromEntries(Object.entries(guarded).map(([name, each]) => [name, { ...each, needsApproval: false }])) : guarded;
  console.log(JSON.stringify({ output: await converse(model, own, messages, save) }));
} catch (error) {
  console.log(JSON.stringify({ thrown: `${error.name}: ${error.message}` }));
}
