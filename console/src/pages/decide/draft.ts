// What one has written about a question and not sent yet. It outlives a reload and a sign-in; it is this tab's alone.

import type { Json } from "../../api/types.gen.ts";

export interface Draft {
  reason: string;
  values?: Json | undefined;
  args?: Record<string, Json> | undefined;
  result?: Json | undefined;
  digest?: string;
}

const key = (id: string): string => `hai.draft.${id}`;

export function keptDraft(id: string): Draft | null {
  try {
    const text = sessionStorage.getItem(key(id));
    return text === null ? null : (JSON.parse(text) as Draft);
  } catch {
    return null;
  }
}

export function keepDraft(id: string, draft: Draft): void {
  try {
    sessionStorage.setItem(key(id), JSON.stringify(draft));
  } catch {
    // The browser keeps nothing (it is full, or told so): the form itself still has it.
  }
}

export function dropDraft(id: string): void {
  sessionStorage.removeItem(key(id));
}
