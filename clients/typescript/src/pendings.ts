/** Pendings: calls of frontend tools, and questions to a person, in whichever form the stream has them. */

import type { HaiMessage, PendingValue, ToolCall, ToolMessage } from "./events.js";

export interface Pending {
  /** The id of the call. An answer names it. */
  id: string;
  /** `tool`: run a tool and give its result. `approve`: yes or no. `ask`: fill in a form. */
  kind: "tool" | "approve" | "ask";
  /** The tool to run; for a question, the tool that the server calls if the answer is yes, if it is about a call. */
  tool?: string;
  /** The arguments of that tool. */
  arguments: unknown;
  title?: string;
  message?: string;
  /** The evidence for the decision, as the workflow shows it. */
  evidence?: unknown;
  /** JSON Schema of the values that are asked for. */
  form?: Record<string, unknown>;
  /** Decisions that may be given instead of `approve` and `reject`, besides these. */
  options?: string[];
  deadline?: string | number;
}

/** The tools by which a server asks people, if the client advertises them. */
const QUESTIONS: Readonly<Record<string, "approve" | "ask">> = { confirmAction: "approve", requestInput: "ask" };

/** Whether a call of this name is never for the server to perform. */
export function asksPerson(toolName: string): boolean {
  return Object.hasOwn(QUESTIONS, toolName);
}

/**
 * A call of `confirmAction` or `requestInput` may be the server's own question, or a tool of the workflow that happens to
 * have that name. The former bears the digest of the question, which is its arguments.
 */
export function pendingOfCall(call: ToolCall): Pending {
  const { id } = call;
  const { name } = call.function;
  const args = parsed(call.function.arguments);
  const kind = (asksPerson(name) && QUESTIONS[name]) || "tool";
  if (kind === "tool" || !isRecord(args)) return { id, kind, tool: name, arguments: args };
  return typeof args.digest === "string"
    ? { id, kind, ...about(args), ...wording(args) }
    : { id, kind, tool: name, arguments: args, ...wording(args) };
}

export function pendingOfValue(value: PendingValue): Pending {
  return {
    id: value.id,
    kind: value.kind === "ask" ? "ask" : "approve",
    ...about({ ...value }),
    ...wording(value),
  };
}

/** The calls that no message answers, in the order in which they were made. */
export function unansweredCalls(messages: readonly HaiMessage[]): ToolCall[] {
  const answered = answeredIds(messages);
  return messages
    .flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []))
    .filter((call) => !answered.has(call.id));
}

export function answeredIds(messages: readonly HaiMessage[]): Set<string> {
  const answers = messages.filter((message): message is HaiMessage & ToolMessage => message.role === "tool");
  return new Set(answers.map((message) => message.toolCallId));
}

function about(question: Record<string, unknown>): { tool?: string; arguments: unknown } {
  return { ...(isText(question.tool) && { tool: question.tool }), arguments: question.arguments ?? {} };
}

const WORDS = {
  title: isText,
  message: isText,
  evidence: (value: unknown) => value !== undefined,
  form: isRecord,
  options: Array.isArray,
  deadline: (value: unknown) => isText(value) || typeof value === "number",
} satisfies Record<string, (value: unknown) => boolean>;

function wording(source: unknown): Partial<Pending> {
  if (!isRecord(source)) return {};
  const known = Object.entries(WORDS).filter(([name, fits]) => fits(source[name]));
  return Object.fromEntries(known.map(([name]) => [name, source[name]]));
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text || "{}");
  } catch {
    return {};
  }
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
