// The filters with which a list was left, for the way back to it; of this tab, as drafts are.

import { useEffect, useSyncExternalStore } from "react";

export type List = "runs" | "inbox";
type Search = Record<string, unknown>;

const NONE: Search = {};
const known = new Map<List, Search>();
const listeners = new Set<() => void>();
const keyOf = (list: List): string => `hai.filters.${list}`;

function last(list: List): Search {
  const found = known.get(list) ?? stored(list);
  known.set(list, found);
  return found;
}

function stored(list: List): Search {
  try {
    const found: unknown = JSON.parse(sessionStorage.getItem(keyOf(list)) ?? "{}");
    return typeof found === "object" && found !== null ? (found as Search) : NONE;
  } catch {
    return NONE;
  }
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** What the list's address held when it was shown last. */
export function useLast(list: List): Search {
  return useSyncExternalStore(subscribe, () => last(list));
}

/** Says what the list's address holds. */
export function useKept(list: List, search: object): void {
  const text = JSON.stringify(search);
  useEffect(() => {
    known.set(list, JSON.parse(text) as Search);
    sessionStorage.setItem(keyOf(list), text);
    for (const each of listeners) each();
  }, [list, text]);
}
