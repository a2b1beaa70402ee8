// What docs/approvals.md says around its example, with the types of the AI SDK as they are.
import { tool, type LanguageModel } from "ai";
import { FlowClient } from "hai-client";
import { ask, guard } from "hai-client/ai-sdk";
import { z } from "zod";
import { converse } from "./example.js";

declare const model: LanguageModel;

const flow = new FlowClient({ url: "https://flow.example.com", key: "hf_key" });
const transfer = tool({ inputSchema: z.object({ amount: z.number() }), execute: async ({ amount }) => `sent ${amount}` });
const tools = guard(flow, { transfer }, { policy: { from: ["role:finance"], edit: true }, expiresIn: "1d" });
export const answer: Promise<string> = converse(model, tools, [{ role: "user", content: "Pay" }], async () => {});
export const verdict = ask(flow, { action: "transfer", arguments: { amount: 82 }, key: "17" }, { policy: { from: ["role:finance"] } });
