// What a receipt is said to be.

export const receiptEn = {
  title: "Receipt",
  proven: "This browser has verified the receipt: the signature and every text match.",
  unproven: (part: string) => `This receipt is not valid: ${part}. Don't rely on it, and tell an operator.`,
  parts: {
    file: "the file differs from the one that was issued",
    header: "its header is not that of a receipt",
    key: "it was signed with a key that this server does not publish",
    signature: "the signature is not that of the key over this content",
    texts: "a text is not the one that was signed",
    executed: "what was executed is not what was decided",
  },
  unable:
    "This browser can't check receipts: it has no Ed25519, or the page is not served over HTTPS. Download the receipt, and check it with hai-flow receipt verify.",
  asked: "Asked by",
  decided: "Decided",
  executed: "Executed",
  nothing: "nothing",
  key: "Key",
  withheld: "(not shown to you)",
  download: "Download the receipt",
};

export type ReceiptTexts = typeof receiptEn;
