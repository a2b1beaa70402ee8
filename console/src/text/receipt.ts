// The texts of a receipt, in the reader's language: few readers open one.

import { useLanguage } from "./index.ts";
import { type ReceiptTexts, receiptEn } from "./receipt.en.ts";
import { receiptZh } from "./receipt.zh.ts";

export function useReceiptText(): ReceiptTexts {
  return useLanguage() === "zh" ? receiptZh : receiptEn;
}
