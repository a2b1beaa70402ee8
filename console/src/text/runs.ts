// The texts of the pages of runs beside those of all pages, in the reader's language. They are apart, because the page of
// one decision needs none of them.

import { type Texts, en } from "./en.ts";
import { type Language, useLanguage } from "./index.ts";
import { runsEn } from "./runs.en.ts";
import { runsZh } from "./runs.zh.ts";
import { zh } from "./zh.ts";

export type RunTexts = Texts & typeof runsEn;

const CATALOGUES: Record<Language, RunTexts> = { en: { ...en, ...runsEn }, zh: { ...zh, ...runsZh } };

export function useRunText(): RunTexts {
  return CATALOGUES[useLanguage()];
}
