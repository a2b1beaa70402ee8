// The answer that the server takes, made of what stands in the form.

import type { DecideBody, Json, Pending } from "../../api/types.gen.ts";
import { edits, isObject } from "../../logic/json.ts";
import type { Schema } from "../../logic/schema.ts";
import type { Draft } from "./draft.ts";

type Body = Partial<DecideBody>;

export function argsOf(pending: Pending): Record<string, Json> {
  return isObject(pending.args) ? pending.args : {};
}

/** The names of the arguments that an approver may replace. */
export function editable(pending: Pending, parameters: Schema | null): string[] {
  if (pending.kind !== "gate" || !isObject(pending.policy)) return [];
  const edit = pending.policy["edit"];
  const known = isObject(parameters?.["properties"]) ? Object.keys(parameters["properties"]) : [];
  if (edit === true) return [...new Set([...known, ...Object.keys(argsOf(pending))])];
  return Array.isArray(edit) ? edit.map(String) : [];
}

/** What the draft changes of the arguments; null: nothing. */
export function editsOf(pending: Pending, draft: Draft): Record<string, Json> | null {
  if (draft.args === undefined) return null;
  const found = edits(argsOf(pending), draft.args);
  return Object.keys(found).length > 0 ? found : null;
}

export function answerOf(pending: Pending, draft: Draft, option: string, onBehalfOf: string): Body {
  const body: Body = { digest: pending.digest };
  if (onBehalfOf) body.on_behalf_of = onBehalfOf;
  if (pending.kind === "tool") return { ...body, result: draft.result ?? null };
  if (pending.kind === "ask" && option === "") return { ...body, values: draft.values ?? {} };
  body.decision = option;
  if (draft.reason.trim()) body.reason = draft.reason;
  if (pending.kind === "doubt") return draft.result === undefined || option !== "happened" ? body : { ...body, result: draft.result };
  const changed = option === "approve" ? editsOf(pending, draft) : null;
  if (changed) body.edits = changed;
  if (pending.schema !== null && option === "approve") body.values = draft.values ?? {};
  return body;
}

export function reasonsOf(pending: Pending): string[] {
  const needed = pending.needed;
  return needed && Array.isArray(needed["reasons"]) ? needed["reasons"].map(String) : [];
}

export interface Escalation {
  at: string;
  to: string[];
}

/** Whom it goes to when its deadline passes; null: it ends then. */
export function escalationOf(pending: Pending): Escalation | null {
  if (pending.deadline === null || !isObject(pending.policy)) return null;
  const stages = pending.policy["escalations"];
  const next = Array.isArray(stages) ? stages[0] : undefined;
  return isObject(next) && Array.isArray(next["from"]) ? { at: pending.deadline, to: next["from"].map(String) } : null;
}
