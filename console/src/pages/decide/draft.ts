// What one has written about a question and not sent yet.

import type { Json } from "../../api/types.gen.ts";
import { dropText, keepText, kept } from "../../parts/draft.ts";

export interface Draft {
  reason: string;
  values?: Json | undefined;
  args?: Record<string, Json> | undefined;
  result?: Json | undefined;
  digest?: string;
}

const key = (id: string): string => `hai.draft.${id}`;

export const keptDraft = (id: string): Draft | null => kept<Draft>(key(id));

export const keepDraft = (id: string, draft: Draft): void => keepText(key(id), JSON.stringify(draft));

export const dropDraft = (id: string): void => dropText(key(id));
