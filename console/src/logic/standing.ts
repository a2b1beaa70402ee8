// A decision as a standing rule for calls like it: whether it may become one, and the conditions that it gets.

import type { Json, Pending, ProposalBody, Session } from "../api/types.gen.ts";
import { isObject } from "./json.ts";
import { ruleOf } from "./seats.ts";
import { numberText } from "./numbers.ts";

/** What a rule says of one argument: it has this value; it is at most `most`; or anything. */
export interface Bound {
  kind: "equal" | "most" | "any";
  most: string;
}

export const PERIODS = ["", "1d", "7d", "30d"] as const;

const OF_RULES = "built_in.establish"; // no rule approves a rule
const MACHINES = ["token", "link", "ticket", "chat"];

/** The kind of rule that the reader may propose of this decision; null: none. The server judges anew what is sent. */
export function kindOf(pending: Pending, reader: Session): "allow" | "never" | null {
  const kind = ({ approve: "allow", reject: "never" } as const)[pending.status];
  if (kind === undefined || pending.kind !== "gate" || pending.schema !== null || pending.tool === OF_RULES) return null;
  if (kind === "allow" && isObject(pending.policy) && pending.policy["rules"] === false) return null;
  if (ruleOf(pending) !== null || !reader.rights.includes("decide") || MACHINES.includes(reader.way)) return null;
  return reader.principal.startsWith("user:") && reader.principal !== pending.started_by ? kind : null;
}

/** Bounds that only this very call meets, and lesser amounts. */
export function firstBounds(args: Record<string, Json>): Record<string, Bound> {
  return Object.fromEntries(
    Object.entries(args).map(([name, value]): [string, Bound] => {
      const isNumber = typeof value === "number";
      return [name, { kind: isNumber ? "most" : "equal", most: isNumber ? numberText(args, name, value) : "" }];
    }),
  );
}

/** The conditions as the server takes them: plain values as bounds, others as an expression, in which numbers keep their digits. */
export function conditionsOf(args: Record<string, Json>, bounds: Record<string, Bound>): Pick<ProposalBody, "arguments" | "when"> {
  const table: Record<string, Record<string, Json>> = {};
  const parts: string[] = [];
  for (const [name, bound] of Object.entries(bounds)) {
    const value = args[name] ?? null;
    if (bound.kind === "most") table[name] = { max: Number(bound.most) };
    if (bound.kind !== "equal") continue;
    const text = literal(value, args, name);
    if (typeof value === "object" || text !== JSON.stringify(value)) parts.push(`args[${JSON.stringify(name)}] == ${text}`);
    else table[name] = { equals: value };
  }
  return { arguments: table, ...(parts.length > 0 && { when: parts.join(" && ") }) };
}

/** Whether each limit is a number. */
export function areWhole(bounds: Record<string, Bound>): boolean {
  return Object.values(bounds).every(({ kind, most }) => kind !== "most" || (most.trim() !== "" && Number.isFinite(Number(most))));
}

function literal(value: Json, holder: object, at: string | number): string {
  if (typeof value === "number") return numberText(holder, at, value);
  if (Array.isArray(value)) return `[${value.map((each, i) => literal(each, value, i)).join(", ")}]`;
  if (!isObject(value)) return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each, value, name)}`).join(", ")}}`;
}
