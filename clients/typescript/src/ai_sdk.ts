/** AI SDK (`ai`, from 6 on): tools whose calls people decide, and conversations that wait for them (docs/approvals.md). */

import { ask, decision, type Asking, type Call } from "./ask.js";
import type { FlowClient } from "./flow.js";

export { ask, type Asking, type Call, type Verdict } from "./ask.js";

// The types of the AI SDK as far as they are needed here, so that this package needs no other.
interface Tool {
  inputSchema?: unknown;
  execute?: ((input: never, options: never) => unknown) | undefined;
}

interface Message {
  role: string;
  content: unknown;
}

/** The message that answers what a conversation has asked. */
export interface Answers {
  role: "tool";
  content: { type: "tool-approval-response"; approvalId: string; approved: boolean; reason?: string }[];
}

interface Part {
  type: string;
  approvalId: string;
  toolCallId: string;
  toolName: string;
  input: unknown;
}

type Guard = (call: { toolCallId: string; input: unknown }) => Promise<string | undefined>;

const guards = new WeakMap<object, Guard>();

/**
 * These tools, each of whose calls needs an approval by people. It consumes their yes right before it acts, and acts with
 * the arguments as they edited them, if its `inputSchema` takes those. Throws a TypeError for a tool without `execute`.
 */
export function guard<Tools extends Record<string, Tool>>(flow: FlowClient, tools: Tools, asking: Asking): Tools {
  return Object.fromEntries(Object.entries(tools).map(([name, tool]) => [name, guarded(flow, name, tool, asking)])) as Tools;
}

function guarded(flow: FlowClient, name: string, tool: Tool, asking: Asking): Tool {
  const act = tool.execute as ((input: unknown, options: unknown) => unknown) | undefined;
  if (act === undefined) throw new TypeError(`${name} has no execute: people can be asked about what this process performs`);
  const called = (id: string, input: unknown): Call => ({ action: name, arguments: input as Call["arguments"], key: `ai-sdk:${id}` });
  const result = {
    ...tool,
    needsApproval: true,
    execute: async (input: unknown, options: { toolCallId: string; abortSignal?: AbortSignal }) => {
      let args = input;
      const check = async (edited: unknown) => {
        const { value, wrong } = await judge(tool.inputSchema, edited);
        args = value;
        return wrong;
      };
      const verdict = await ask(flow, called(options.toolCallId, input), asking, { signal: options.abortSignal, check });
      if (!verdict.approved) return `The tool was not used. ${verdict.reason || "Nobody approved it."}`;
      return await lastOf(act.call(tool, args, options));
    },
  };
  guards.set(result, async ({ toolCallId, input }) => {
    const decided = await decision(flow, called(toolCallId, input), asking);
    return "approved" in decided ? decided.reason : undefined;
  });
  return result as Tool;
}

/**
 * Waits until people have decided about each call that the conversation asks about; then the message to append before the
 * model is asked again, or undefined where it asks nothing. A process that was killed while it waited does so again with
 * the messages that it saved before. Throws an Error for a call of a tool that was not made by `guard`.
 */
export async function decide(tools: Record<string, Tool>, messages: readonly Message[]): Promise<Answers | undefined> {
  const parts = messages.flatMap(({ content }) => (Array.isArray(content) ? (content as Part[]) : []));
  const answered = new Set(parts.filter(({ type }) => type === "tool-approval-response").map(({ approvalId }) => approvalId));
  const done = new Set(parts.filter(({ type }) => type === "tool-result").map(({ toolCallId }) => toolCallId));
  const calls = new Map(parts.filter(({ type }) => type === "tool-call").map((call) => [call.toolCallId, call]));
  const asked = parts.filter(
    ({ type, approvalId, toolCallId }) => type === "tool-approval-request" && !answered.has(approvalId) && !done.has(toolCallId),
  );
  const waits = asked.map(({ approvalId, toolCallId }) => {
    const call = calls.get(toolCallId);
    const wait = call && Object.hasOwn(tools, call.toolName) ? guards.get(tools[call.toolName] as object) : undefined;
    if (call === undefined || wait === undefined) {
      throw new Error(`people are not asked about ${call?.toolName ?? toolCallId}: give its model the tools of guard(flow, tools, {policy})`);
    }
    return { approvalId, answer: () => wait(call) };
  });
  if (waits.length === 0) return undefined;
  const content = waits.map(async ({ approvalId, answer }) => {
    const reason = await answer();
    return { type: "tool-approval-response" as const, approvalId, approved: reason === undefined, ...(reason !== undefined && { reason }) };
  });
  return { role: "tool", content: await Promise.all(content) };
}

/** What a schema of the AI SDK, or of Standard Schema, makes of the value, as the SDK does; or has against it. */
async function judge(given: unknown, value: unknown): Promise<{ value: unknown; wrong?: string }> {
  const schema = (typeof given === "function" && !("~standard" in given) ? given() : given) as {
    validate?: (value: unknown) => unknown;
    "~standard"?: { validate: (value: unknown) => unknown };
  } | null;
  if (schema?.["~standard"] !== undefined) {
    const result = (await schema["~standard"].validate(value)) as { value: unknown; issues?: readonly { message: string }[] };
    return result.issues ? { value, wrong: result.issues.map(({ message }) => message).join("; ") } : { value: result.value };
  }
  const result = (await schema?.validate?.(value)) as { success: boolean; value?: unknown; error?: Error } | undefined;
  if (result?.success === false) return { value, wrong: result.error?.message ?? "its schema refuses them" };
  return { value: result ? result.value : value };
}

/** What a tool gives; of one that gives in between, too, the last. */
async function lastOf(result: unknown): Promise<unknown> {
  if (typeof result !== "object" || result === null || !(Symbol.asyncIterator in result)) return await result;
  let last: unknown;
  for await (const each of result as AsyncIterable<unknown>) last = each;
  return last;
}
