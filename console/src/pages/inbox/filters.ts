// What of the inbox is shown: a function of the address, so that it can be kept and sent to others.

import type { InboxItem } from "../../api/types.gen.ts";
import { mentions } from "../../logic/titles.ts";

export const VIEWS = ["mine", "all", "overdue", "snoozed", "decided"] as const;
export type View = (typeof VIEWS)[number];

export interface InboxSearch {
  view?: View | undefined;
  workflow?: string | undefined;
  q?: string | undefined;
}

const SOON_MS = 86_400_000;

/** What an address says; anything else in it is no filter. */
export function inboxSearch(given: Record<string, unknown>): InboxSearch {
  const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);
  const view = VIEWS.find((each) => each === given["view"]);
  return { ...(view && { view }), workflow: text(given["workflow"]), q: text(given["q"]) };
}

export function shownIn(items: InboxItem[], search: InboxSearch, now: number): InboxItem[] {
  const wanted = search.q?.toLowerCase();
  return items.filter((each) => {
    if (search.workflow && each.workflow !== search.workflow) return false;
    if (search.view === "overdue" && !(each.deadline && new Date(each.deadline).getTime() - now < SOON_MS)) return false;
    return !wanted || [each.title, each.message, each.tool, each.args, each.evidence].some((part) => mentions(part, wanted));
  });
}
