/** What all lists of a server have in common, and how things are named in paths. */

import { HaiError } from "./errors.js";
import { recordsOf } from "./reading.js";
import type { Abortable, Query } from "./rest.js";

export interface PageOptions extends Abortable {
  /** The most items of a page, up to 200 (default 50). */
  limit?: number;
  /** `nextCursor` of the page before. */
  cursor?: string | undefined;
}

/** With filters a page may be short, or empty, though there is more: `nextCursor` says so. */
export interface Page<T> {
  items: T[];
  nextCursor: string | null;
  /** Cells of the tenant that are away: what they have is not in it. */
  missing?: string[];
}

export async function* allOf<T>(page: (cursor: string | undefined) => Promise<Page<T>>): AsyncGenerator<T> {
  for (let cursor: string | undefined; ; ) {
    const { items, nextCursor } = await page(cursor);
    yield* items;
    if (nextCursor === null) return;
    cursor = nextCursor;
  }
}

export function pageOf<T extends object>(answer: unknown): Page<T> {
  const { next_cursor, missing = [] } = answer as { next_cursor: string | null; missing?: string[] };
  return { items: recordsOf<T>(answer), nextCursor: next_cursor, ...(missing.length > 0 && { missing }) };
}

export function paged({ limit, cursor }: PageOptions): Query {
  return { limit, cursor };
}

export function instant(time: Date | string | undefined): string | undefined {
  return time instanceof Date ? time.toISOString() : time;
}

/** One part of a path. `.` and `..` would lead elsewhere. */
export function segment(id: string): string {
  if (/^\.*$/.test(id)) throw new HaiError(`expected an id, found ${JSON.stringify(id)}`);
  return encodeURIComponent(id);
}
