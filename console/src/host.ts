// What is around the pages: here this server's own document. In a page of somebody else there is another
// (elements/host.ts), which the build puts in the place of this file.

import type { ComponentType } from "react";
import type { Problem } from "./api/problems.ts";
import type { Pending } from "./api/types.gen.ts";

export type Language = "en" | "zh";

export interface Host {
  /** Whether the console is around it, to which links lead. */
  readonly console: boolean;
  /** What makes a rule of a decision (standing.ts); null: nothing does there. */
  Standing: ComponentType<{ pending: Pending }> | null;
  /** The answer of the server to a request of one of its paths. */
  fetch(path: string, init: RequestInit): Promise<Response>;
  /** What a request waits for each time that it is sent: that it is known who calls, and is who began it. It throws a Problem. */
  begin(path: string): (() => Promise<void>) | undefined;
  /** The headers that prove who calls. Throws a Problem. */
  credentials(): Record<string, string>;
  /** The server has refused what proves who calls: whether there is something else by now, with which to ask again. */
  renew(refused: Headers): Promise<boolean>;
  /** What is written and not sent yet. */
  storage(): Pick<Storage, "getItem" | "setItem" | "removeItem">;
  /** How decisions are sent, as the reader has set it. */
  sending(): string | null;
  /** The language that was chosen; null: the browser's. */
  language(): Language | null;
  /** Says which language is shown. */
  speak(tag: string): void;
  /** Where keys are listened for. */
  keys(): Document | ShadowRoot;
  /** Calls the listener when the reader leaves. */
  onLeave(listener: () => void): void;
  /** What is known of a question now. `here`: by an answer that was given here. */
  see(pending: Pick<Pending, "id" | "status">, here: boolean): void;
  /** A problem is shown to the reader. */
  report(problem: Problem): void;
  /** Begins anew. */
  reload(): void;
}

const ACT_AS = "hai.act-as";

export const host: Host = {
  console: true,
  Standing: null,
  fetch: (path, init) => fetch(path, { ...init, credentials: "same-origin" }),
  begin: () => undefined,
  credentials() {
    const who = sessionStorage.getItem(ACT_AS);
    return who ? { "HAI-Act-As": who } : {};
  },
  renew: () => Promise.resolve(false),
  storage: () => sessionStorage,
  sending: () => localStorage.getItem("hai.sending"),
  language() {
    const kept = localStorage.getItem("hai.language");
    return kept === "en" || kept === "zh" ? kept : null;
  },
  speak(tag) {
    document.documentElement.lang = tag;
  },
  keys: () => document,
  onLeave: (listener) => window.addEventListener("pagehide", listener),
  see: () => undefined,
  report: () => undefined,
  reload: () => location.reload(),
};
