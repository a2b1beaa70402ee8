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
  const text = (value: unknown): string | undefined => (typeof value === "number" ? String(value) : typeof value === "string" && value !== "" ? value : undefined);
  const view = VIEWS.find((each) => each === given["view"]);
  return { ...(view && { view }), workflow: text(given["workflow"]), q: text(given["q"]) };
}

/** What of the items is shown. `found`: those that the server has found by what is searched for; of others, and until it
 * has answered, titles, messages, tools and what the reader was sent of the arguments count. */
export function shownIn(items: InboxItem[], search: InboxSearch, now: number, found?: ReadonlySet<string>): InboxItem[] {
  const wanted = search.q?.trim().toLowerCase();
  return items.filter((each) => {
    if (search.workflow && each.workflow !== search.workflow) return false;
    if (search.view === "overdue" && !(each.deadline && new Date(each.deadline).getTime() - now < SOON_MS)) return false;
    if (!wanted || found?.has(each.id)) return true;
    const parts = each.may_decide || each.on_behalf_of.length > 0 ? [] : [each.args, each.evidence]; // those are the server's to search
    return [each.title, each.message, each.tool, ...parts].some((part) => mentions(part, wanted));
  });
}
