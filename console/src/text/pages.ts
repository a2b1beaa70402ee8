// The catalogue of the later pages, in the reader's language.

import { useLanguage } from "./index.ts";
import { type PageTexts, pagesEn } from "./pages.en.ts";
import { pagesZh } from "./pages.zh.ts";

export function usePageText(): PageTexts {
  return useLanguage() === "zh" ? pagesZh : pagesEn;
}
