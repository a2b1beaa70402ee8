/** Agents of other frameworks that ask people before they act (docs/approvals.md). */

import { HttpProblem } from "./errors.js";
import type { ApprovalRequest, FlowClient } from "./flow.js";
import type { Approval } from "./records.js";

/** Who decides about calls, and how long they have. */
export type Asking = Pick<ApprovalRequest, "policy" | "workflow" | "expiresIn" | "message">;

/**
 * An action that an agent wants to take. With a `key` a process that was killed while it waited finds the same approval
 * again; one that was killed behind the consumption is told no, since it may have acted.
 */
export interface Call {
  action: string;
  arguments: Record<string, unknown>;
  key?: string;
}

/**
 * What became of an approval. `approved`: it was consumed just now, so act, once, with `arguments`, which people may have
 * edited (`edited`). Otherwise `reason` says why not.
 */
export interface Verdict {
  approved: boolean;
  arguments: Record<string, unknown>;
  reason: string;
  edited: boolean;
}

/**
 * Asks people about one action, waits for them, and consumes their yes. `check` says what is wrong with arguments that
 * they have edited, before anything is consumed.
 */
export async function ask(
  flow: FlowClient,
  call: Call,
  asking: Asking,
  { signal, check }: { signal?: AbortSignal | undefined; check?: (edited: Record<string, unknown>) => Promise<string | undefined> } = {},
): Promise<Verdict> {
  const decided = await decision(flow, call, asking, signal);
  if ("approved" in decided) return decided;
  const args = decided.edited ? argumentsOf(decided) : call.arguments;
  const wrong = decided.edited ? await check?.(args) : undefined;
  if (wrong !== undefined) return no(call, `people changed the arguments to what the tool does not take: ${wrong}`);
  try {
    const { reason } = await flow.approvals.consume(decided, { action: call.action, arguments: args, ...(signal && { signal }) });
    return { approved: true, arguments: args, reason: reason ?? "", edited: decided.edited };
  } catch (error) {
    return refusal(error, call, 409, 422);
  }
}

/** The approval of this call, asked for now or before, as soon as people have approved it; or their no. Consumes nothing. */
export async function decision(flow: FlowClient, call: Call, asking: Asking, signal?: AbortSignal): Promise<Approval | Verdict> {
  const options = { ...(call.key !== undefined && { key: call.key }), ...(signal && { signal }) };
  try {
    const request = { action: call.action, arguments: call.arguments, ...asking };
    const decided = await flow.approvals.wait(await flow.approvals.request(request, options), options);
    if (decided.status === "approved") return decided;
    return no(call, decided.reason ? `${decided.status}: ${decided.reason}` : decided.status);
  } catch (error) {
    return refusal(error, call, 409);
  }
}

function refusal(error: unknown, call: Call, ...statuses: number[]): Verdict {
  if (error instanceof HttpProblem && statuses.includes(error.status)) return no(call, error.message);
  throw error;
}

function no(call: Call, reason: string): Verdict {
  return { approved: false, arguments: call.arguments, reason, edited: false };
}

function argumentsOf(approval: Approval): Record<string, unknown> {
  return (approval.arguments ?? {}) as Record<string, unknown>;
}
