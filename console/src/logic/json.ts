// Values of JSON: whether two are the same, what has changed between two, and places in them.

import type { Json } from "../api/types.gen.ts";
import { humanised } from "../text/names.ts";

export function isObject(value: unknown): value is Record<string, Json> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function same(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((each, i) => same(each, b[i]));
  if (!isObject(a) || !isObject(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]));
}

const UNREAD = "hai.unread";

/** What stands in a field for JSON while it is none: it is kept with the rest of the form, and never sent. */
export function unread(text: string): Json {
  return { [UNREAD]: text };
}

/** The text that was written; null: it was JSON. */
export function unreadText(value: Json | undefined): string | null {
  const text = isObject(value) ? value[UNREAD] : undefined;
  return typeof text === "string" ? text : null;
}

/** Whether something in it is no JSON yet. */
export function holdsUnread(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  return unreadText(value as Json) !== null || Object.values(value).some(holdsUnread);
}

export interface Changed {
  path: string;
  before: Json | undefined;
  after: Json | undefined;
}

/** What differs, by JSON Pointer; objects are compared key by key, everything else as a whole. */
export function changes(before: Json | undefined, after: Json | undefined, path = ""): Changed[] {
  if (same(before, after)) return [];
  if (!isObject(before) || !isObject(after)) return [{ path, before, after }];
  const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return keys.flatMap((key) => changes(before[key], after[key], `${path}/${escaped(key)}`));
}

/** The same, and lists are compared entry by entry. */
export function differences(before: Json | undefined, after: Json | undefined, path = ""): Changed[] {
  if (same(before, after)) return [];
  const keys =
    Array.isArray(before) && Array.isArray(after)
      ? Array.from({ length: Math.max(before.length, after.length) }, (_, i) => String(i))
      : isObject(before) && isObject(after)
        ? [...new Set([...Object.keys(before), ...Object.keys(after)])]
        : null;
  if (keys === null) return [{ path, before, after }];
  const [one, two] = [before, after] as [Record<string, Json>, Record<string, Json>];
  return keys.flatMap((key) => differences(one[key], two[key], `${path}/${escaped(key)}`));
}

/** The arguments that were replaced, whole: what the server takes as `edits`. */
export function edits(before: Record<string, Json>, after: Record<string, Json>): Record<string, Json> {
  return Object.fromEntries(Object.entries(after).filter(([key, value]) => !same(before[key], value)));
}

function escaped(key: string): string {
  return key.replaceAll("~", "~0").replaceAll("/", "~1");
}

/** A JSON Pointer as people read it: the names on the way as words, "Lines › 0 › Price". */
export function readable(path: string): string {
  const names = path.split("/").slice(1);
  return names.map((each) => humanised(each.replaceAll("~1", "/").replaceAll("~0", "~"))).join(" › ");
}

export function pointer(...keys: (string | number)[]): string {
  return keys.map((key) => `/${escaped(String(key))}`).join("");
}

/** One line of a value, cut at `most` characters. */
export function brief(value: Json | undefined, most = 120): string {
  const text = typeof value === "string" ? value : value === undefined ? "" : (unreadText(value) ?? JSON.stringify(value));
  return text.length > most ? `${text.slice(0, most)}…` : text;
}
