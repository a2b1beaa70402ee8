/** Records as a server sends them (`run_id`) to records as they are here (`runId`). Pure. */

import { ProtocolError } from "./errors.js";
import type { InboxItem } from "./records.js";

/** The record: its own fields by the names that they have here. Values that workflows and people wrote stay as they are. */
export function recordOf<T extends object>(value: unknown): T {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new ProtocolError(`expected a record, found ${JSON.stringify(value)?.slice(0, 200)}: is it a HAI Flow server?`);
  }
  const named = Object.entries(value).map(([name, field]) => [name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()), field]);
  return Object.fromEntries(named) as T;
}

/** The records of `{items: [...]}`. */
export function recordsOf<T extends object>(value: unknown): T[] {
  const { items } = recordOf<{ items?: unknown }>(value);
  if (!Array.isArray(items)) throw new ProtocolError("expected a list of `items`: is it a HAI Flow server?");
  return items.map((each) => recordOf<T>(each));
}

/** By the next deadline, as a server lists them. */
export function inOrder(items: Iterable<InboxItem>): InboxItem[] {
  const due = ({ deadline }: InboxItem): number => (deadline === null ? Infinity : Date.parse(deadline));
  return [...items].sort((one, other) => compared(due(one), due(other)) || compared(one.id, other.id));
}

function compared<T extends string | number>(one: T, other: T): number {
  return one < other ? -1 : one > other ? 1 : 0;
}
