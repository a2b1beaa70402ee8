// The texts of standing rules, in the reader's language: few decisions become one.

import { useLanguage } from "./index.ts";
import { type RuleTexts, rulesEn } from "./rules.en.ts";
import { rulesZh } from "./rules.zh.ts";

export function useRuleText(): RuleTexts {
  return useLanguage() === "zh" ? rulesZh : rulesEn;
}
