// Written by `make generate` from console/src/elements/types.ts: change that.
// What <hai-approval> and <hai-inbox> are to the page around. The server has this file at /console/elements.d.ts, and the
// package hai-client as hai-client/elements.

export interface HaiElement extends HTMLElement {
  /** The token of the reader. It is written and never read; null: the reader has gone. */
  get token(): null;
  set token(token: string | null | undefined);
  /** The address of the server, which is read once, when the element is first shown. "": where the script comes from. */
  server: string;
  theme: "light" | "dark" | "system";
  /** How a decision is sent: after five seconds in which it can be taken back, once the reader was asked again, or at once. */
  sending: "undo" | "ask" | "once";
}

/** `<hai-approval pending="..." token="...">`: one question. */
export interface HaiApprovalElement extends HaiElement {
  /** The id of the question. */
  get pending(): string;
  set pending(id: string | null | undefined);
}

/** `<hai-inbox token="...">`: the questions that wait for the reader. */
export type HaiInboxElement = HaiElement;

export interface HaiEvents {
  /**
   * An answer was recorded, or the question was decided elsewhere (`here: false`). `status` is `open` where others have
   * to decide, too; else the outcome: `approve`, `reject`, `answered`, or a word of the workflow.
   */
  "hai-decided": CustomEvent<{ pending: string; status: string; here: boolean }>;
  "hai-expired": CustomEvent<{ pending: string; status: "expired"; here: boolean }>;
  /** A problem that the reader is shown. `status` is that of HTTP; 0: there was no answer. */
  "hai-error": CustomEvent<{ code: string; status: number; message: string }>;
  /** The server does not know who reads: set `token`. It does not bubble: a token is for the element that one has made. */
  "hai-token-needed": CustomEvent<{ code: string }>;
}

declare global {
  interface HTMLElementTagNameMap {
    "hai-approval": HaiApprovalElement;
    "hai-inbox": HaiInboxElement;
  }
}
