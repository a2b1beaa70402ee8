// The catalogue in the reader's language. A text that Chinese lacks is an error of the compiler.

import { useSyncExternalStore } from "react";
import type { Problem } from "../api/problems.ts";
import { en } from "./en.ts";
import { zh } from "./zh.ts";

export type Texts = typeof en;
export type Language = "en" | "zh";

const CATALOGUES: Record<Language, Texts> = { en, zh };
const KEPT = "hai.language";
const listeners = new Set<() => void>();

let language: Language = chosen();
document.documentElement.lang = tag(language);

function chosen(): Language {
  const kept = localStorage.getItem(KEPT);
  if (kept === "en" || kept === "zh") return kept;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

function tag(which: Language): string {
  return which === "zh" ? "zh-CN" : "en";
}

export function setLanguage(which: Language): void {
  localStorage.setItem(KEPT, which);
  language = which;
  document.documentElement.lang = tag(which);
  for (const each of listeners) each();
}

export function useLanguage(): Language {
  return useSyncExternalStore(subscribe, () => language);
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
  if (known === undefined) return problem.message;
  // What the server says names the particulars; a reader of its own language gets it as it is.
  return t === en && problem.message && problem.status !== 0 ? problem.message : known;
}
