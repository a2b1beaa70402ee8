// The questions that ask the reader, live: one store for all that shows them.

import { useSyncExternalStore } from "react";
import { type Connection, follow } from "./client.ts";
import type { Problem } from "./problems.ts";
import type { InboxItem } from "./types.gen.ts";

export interface Inbox {
  /** Those with the next deadlines, at most 200. null until the first answer. */
  items: InboxItem[] | null;
  /** Whether more questions may ask the reader than are listed. */
  full: boolean;
  connection: Connection;
  problem: Problem | null;
  /** Counts what came from the server: a hint to look again at what is shown elsewhere. */
  news: number;
}

const SHOWN = 200;
let inbox: Inbox = { items: null, full: false, connection: "connecting", problem: null, news: 0 };
const listeners = new Set<() => void>();
let stop: (() => void) | null = null;

function set(more: Partial<Inbox>): void {
  inbox = { ...inbox, ...more };
  for (const each of listeners) each();
}

function begin(): void {
  stop = follow(`/v1/inbox/events?limit=${SHOWN}`, {
    onState: (connection, problem) => set({ connection, problem: problem ?? null }),
    onEvent: (name, data) => {
      const told = data as { items: InboxItem[]; gone?: string[] };
      const known = name === "changed" ? (inbox.items ?? []) : [];
      const gone = new Set([...(told.gone ?? []), ...told.items.map((each) => each.id)]);
      const items = [...known.filter((each) => !gone.has(each.id)), ...told.items].sort(byDeadline);
      set({ items, full: items.length >= SHOWN, news: inbox.news + 1 });
    },
  });
}

/** The next deadline first, those without one last; among equals the oldest. */
export function byDeadline(a: InboxItem, b: InboxItem): number {
  const left = a.deadline ?? "~";
  const right = b.deadline ?? "~";
  return left < right ? -1 : left > right ? 1 : a.opened_at < b.opened_at ? -1 : 1;
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  if (stop === null) begin();
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      stop?.();
      stop = null;
    }
  };
}

export function useInbox(): Inbox {
  return useSyncExternalStore(subscribe, () => inbox);
}

/** Forget everything: somebody else is reading now. */
export function restart(): void {
  stop?.();
  stop = null;
  set({ items: null, full: false, connection: "connecting", problem: null });
  if (listeners.size > 0) begin();
}
