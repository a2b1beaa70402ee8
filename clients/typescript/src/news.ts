/** An inbox as it comes and goes, put together from what a server tells. Pure: it knows no socket. */

import { ProtocolError } from "./errors.js";
import { inOrder, recordsOf } from "./reading.js";
import type { InboxItem } from "./records.js";
import type { SseEvent } from "./sse.js";

/** An inbox as it is now: `items`, the next deadline first. */
export interface InboxNews {
  items: InboxItem[];
  /** Those of them that are new, or otherwise than before. */
  changed: InboxItem[];
  /** The ids of those that were there before. */
  gone: string[];
}

export class InboxView {
  /** The id of the last event: with it a server knows what has been told. */
  id: string | undefined;
  #items: ReadonlyMap<string, InboxItem> | undefined;

  /** What is new with an event, if anything is. An event says all (`inbox`), or what is otherwise (`changed`). */
  hear({ event, data, id }: SseEvent): InboxNews | undefined {
    if (event !== "inbox" && event !== "changed") return undefined;
    const before = this.#items ?? new Map<string, InboxItem>();
    const told = json(data);
    const items = new Map(event === "changed" ? before : []);
    for (const each of (told as { gone?: string[] }).gone ?? []) items.delete(each);
    for (const each of recordsOf<InboxItem>(told)) items.set(each.id, each);
    const changed = [...items.values()].filter((each) => JSON.stringify(each) !== JSON.stringify(before.get(each.id)));
    const gone = [...before.keys()].filter((each) => !items.has(each));
    const first = this.#items === undefined;
    [this.#items, this.id] = [items, id];
    if (!first && changed.length === 0 && gone.length === 0) return undefined;
    return { items: inOrder(items.values()), changed: inOrder(changed), gone };
  }
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ProtocolError(`expected news of an inbox as JSON, found ${text.slice(0, 200)}`);
  }
}
