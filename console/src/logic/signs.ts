// Signs that people can't see, that turn the order of others, or that look like others: shown as their codes, by the
// server's list and its rules (hai_flow/signs.py). What is stored and sent is never changed.

import { ALIKE, JOINED, ODD } from "./signs.gen.ts";

const odd = new RegExp(`[${ODD}]`, "gu");
const hasOdd = new RegExp(`[${ODD}${ALIKE}]`, "u");
const joined = new RegExp(`^[${JOINED}]`, "u"); // never `[…]$`: for signs of two units Chromium 156 finds no match
const alike = new RegExp(`[${ALIKE}]`, "gu");
const word = /\p{L}+/gu;
const KEYCAPS = /^[#*0-9\u00a9\u00ae\u203c\u2049\u2122\u2139]/;

/** `text` as people can judge it: such signs as their codes. */
export function reveal(text: string): string {
  if (!hasOdd.test(text)) return text;
  const read = text.replace(word, (each) => (/[A-Za-z]/.test(each) ? each.replace(alike, code) : each));
  return read.replace(odd, (sign, at: number) => (isNeeded(sign, [...read.slice(Math.max(0, at - 2), at)].at(-1) ?? "", read.slice(at + sign.length, at + sign.length + 2)) ? sign : code(sign)));
}

/** Whether a value holds such signs, in its texts or in its names. */
export function hasHidden(value: unknown): boolean {
  if (typeof value === "string") return reveal(value) !== value;
  if (Array.isArray(value)) return value.some(hasHidden);
  if (typeof value !== "object" || value === null) return false;
  return Object.entries(value).some(([name, each]) => hasHidden(name) || hasHidden(each));
}

/** Joiners and variation selectors, where an emoji or a script needs them: between the sign `before` and the text `behind`. */
function isNeeded(sign: string, before: string, behind: string): boolean {
  const selected = before === "\ufe0f";
  if (sign === "\u200c" || sign === "\u200d") return joined.test(before) && joined.test(behind);
  if (sign === "\ufe0f") return !selected && (joined.test(before) || KEYCAPS.test(before));
  return sign === "\ufe0e" && !selected && joined.test(before);
}

function code(sign: string): string {
  return `[U+${(sign.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}]`;
}

const REFUSED = /[\p{Cc}\p{Cs}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;
const NAME_MOST = 200;

/** The name of a file as the server takes it: what a phone or a chat writes into it to turn the text is left out. */
export function straight(name: string): string {
  return [...name.replace(REFUSED, "")].slice(0, NAME_MOST).join("");
}
