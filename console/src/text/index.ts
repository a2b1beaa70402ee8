// The catalogue in the reader's language. A text that Chinese lacks is an error of the compiler.

import { useSyncExternalStore } from "react";
import type { Problem } from "../api/problems.ts";
import type { Json } from "../api/types.gen.ts";
import { type Language, host } from "../host.ts";
import { type Texts, en } from "./en.ts";
import { capitalised } from "./names.ts";
import { zh } from "./zh.ts";

export type { Language };

const CATALOGUES: Record<Language, Texts> = { en, zh };
const KEPT = "hai.language";
const listeners = new Set<() => void>();

let language: Language = chosen();
let sentences: Record<string, string> = {};
let reason = (sentence: string): string => sentence;
// Counts what changes the texts: another language, and the server's sentences once they are here.
let revision = 0;
load();
host.speak(tag(language));

function chosen(): Language {
  return host.language() ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
}

function tag(which: Language): string {
  return which === "zh" ? "zh-CN" : "en";
}

/** The server's sentences are many, and few readers of a page need one of them. */
function load(): void {
  if (language !== "zh") return;
  void import("./server.zh.ts").then(({ serverZh, reasonInChinese }) =>
    changed(() => {
      sentences = serverZh;
      reason = reasonInChinese;
    }),
  );
}

function changed(change: () => void): void {
  change();
  revision += 1;
  for (const each of listeners) each();
}

export function setLanguage(which: Language): void {
  localStorage.setItem(KEPT, which);
  followLanguage();
}

/** Shows the texts in the language that is chosen now. */
export function followLanguage(): void {
  const now = chosen();
  host.speak(tag(now));
  if (now === language) return;
  changed(() => (language = now));
  load();
}

export function useLanguage(): Language {
  useSyncExternalStore(subscribe, () => revision);
  return language;
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useText(): Texts {
  return CATALOGUES[useLanguage()];
}

/** The locale of dates and numbers: the browser's own where it is of the chosen language. */
export function locale(): string {
  return navigator.language.toLowerCase().startsWith(language) ? navigator.language : tag(language);
}

/** A refusal in the reader's language: by its code where we have words for it, else what the server says. */
export function sentence(t: Texts, problem: Problem): string {
  const known = (t.problems as Record<string, string>)[problem.code];
  // What the server says names the particulars; a reader of its own language gets it as it is.
  if (language === "en") return problem.message && problem.status !== 0 ? unnamed(problem.message) : (known ?? problem.message);
  return known ?? translated(problem.code, problem.message, problem.params);
}

/** A sentence without the id of what the page shows anyway, which stands in front of it for readers of logs. */
function unnamed(message: string): string {
  const said = message.replace(/^(?:[a-z]+_\w{10,}|(?:[0-9a-f]{4,}-)+[0-9a-f]{4,}): /, "");
  return said === message ? message : capitalised(said);
}

/** What the server finds in a document, in the reader's language. */
export function findingText(finding: { message: string; code?: string; params?: string[] }): string {
  return language === "en" ? finding.message : translated(finding.code ?? "", finding.message, finding.params ?? []);
}

/** The same at the field of a form, whose reader has never seen a schema. */
export function fieldText(t: Texts, finding: { message: string; code?: string; params?: string[] }): string {
  const known: Record<string, ((params: readonly string[]) => string | null) | undefined> = t.values;
  return known[finding.code ?? ""]?.(finding.params ?? []) ?? findingText(finding);
}

/** A reason that the server tells as a sentence alone: why nobody can decide a question, why something could not be sent. */
export function reasonText(sentence: string): string {
  return language === "en" ? `${sentence.replace(/\buser:(?=\S)/g, "").replace(/\.$/, "")}.` : reason(sentence);
}

/** What a code of the server says, where its own sentence is not in the reader's language; null: there it is, or it is not known. */
export function codeText(code: Json | undefined): string | null {
  return language === "en" || typeof code !== "string" ? null : (sentences[code] ?? null);
}

function translated(code: string, message: string, params: readonly string[]): string {
  const known = sentences[code];
  if (known === undefined) return message;
  return params.length > 0 ? `${known.replace(/。$/, "")}：${params.map((each) => `“${each}”`).join("、")}` : known;
}
