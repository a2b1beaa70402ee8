// What is around an element in a page of somebody else. In the build it stands in the place of ../host.ts. All that the
// modules of the pages know is of one element: each evaluates them for itself (scripts/build.mjs).

import type { Host } from "../host.ts";
import { Problem } from "../api/problems.ts";
import type { Language } from "../text/index.ts";
import type { HaiEvents } from "./types.ts";

/** What the element itself does for the pages in it. */
export interface Element {
  readonly root: ShadowRoot;
  /** Where the pages are shown. */
  readonly place: HTMLElement;
  fetch(path: string, init: RequestInit): Promise<Response>;
  language(): Language | null;
  sending(): string | null;
  /** Tells the page around. */
  tell(event: keyof HaiEvents, detail: Record<string, unknown>): void;
  reload(): void;
}

declare const given: Element; // by the function that the build wraps around these modules
export const element: Element = given;

const PATIENCE_MS = 3_000; // less than until a reader is told that no answer comes
const storage = new Map<string, string>();
const leaving = new Set<() => void>();

let token: string | null = null;
let refused: Problem | null = null; // why the token that there is is good no more
let renewal: { outcome: Promise<boolean>; end(renewed: boolean): void } | null = null;
let answers = false; // whether the token was given because another was refused
let proof: Promise<void> = Promise.resolve();
let readers = 0; // counts who has read here
const over = new Set<string>(); // the questions of whose end the page around knows

function bearer(): string | null {
  return token === null ? null : `Bearer ${token}`;
}

function need(problem: Problem): void {
  element.tell("hai-token-needed", { code: problem.code });
}

/** The token with which the server is asked from now on. `prove` finds out whose it is: until then nothing else is sent. */
export function setToken(now: string | null, prove: () => Promise<void>): void {
  if (now !== null && now === token && renewal !== null) return renewal.end(false); // that one is what was refused
  answers = renewal !== null;
  token = now;
  refused = null;
  ask(prove);
  renewal?.end(true);
}

/** Nobody reads any more. */
export function dropToken(): void {
  token = null;
  answers = false;
  refused = new Problem(401, "auth.missing", "");
  renewal?.end(false);
}

/** Finds out anew who reads. */
export function ask(prove: () => Promise<void>): void {
  refused = null;
  proof = prove().then(() => {
    answers = false;
  });
  proof.catch(() => undefined); // who waits for it is told
}

/** Forgets what is written and was never sent, and lets nothing go that is under way: somebody else reads now. */
export function forget(): void {
  readers += 1;
  storage.clear();
  over.clear();
}

/** What the reader has decided goes, for nobody can take it back any more. */
export function leave(): void {
  for (const each of leaving) each();
}

export const host: Host = {
  console: false,
  Standing: null,
  fetch: (path, init) => element.fetch(path, init),
  begin(path) {
    if (path === "/v1/session") return undefined;
    const who = readers;
    return async () => {
      for (let asked; asked !== proof; ) await (asked = proof);
      if (who !== readers) throw new Problem(401, "auth.expired", "");
    };
  },
  credentials() {
    if (refused !== null) {
      need(refused);
      throw refused;
    }
    const text = bearer();
    return text === null ? {} : { Authorization: text };
  },
  renew(headers) {
    if (headers.get("Authorization") !== bearer()) return Promise.resolve(true); // there has been another since
    if (renewal === null && answers) {
      refused = new Problem(401, "auth.invalid", ""); // what the page gives is no good: it is asked no more for this
      return Promise.resolve(false);
    }
    if (renewal === null) {
      let end: (renewed: boolean) => void = () => undefined;
      const outcome = new Promise<boolean>((resolve) => {
        const timer = setTimeout(() => end(false), PATIENCE_MS);
        end = (renewed) => {
          clearTimeout(timer);
          renewal = null;
          if (!renewed && token !== null) refused = new Problem(401, "auth.expired", "");
          resolve(renewed);
        };
      });
      renewal = { outcome, end };
      need(new Problem(401, token === null ? "auth.missing" : "auth.expired", ""));
    }
    return renewal?.outcome ?? Promise.resolve(true); // the page may have given it at once
  },
  storage: () => ({
    getItem: (name) => storage.get(name) ?? null,
    setItem: (name, text) => void storage.set(name, text),
    removeItem: (name) => void storage.delete(name),
  }),
  sending: () => element.sending(),
  language: () => element.language(),
  speak(tag) {
    element.place.lang = tag;
  },
  keys: () => element.root,
  onLeave: (listener) => void leaving.add(listener),
  see({ id, status }, here) {
    if (over.has(id) || (status === "open" && !here)) return;
    if (status !== "open") over.add(id);
    element.tell(status === "expired" ? "hai-expired" : "hai-decided", { pending: id, status, here });
  },
  report: ({ code, status, message }) => element.tell("hai-error", { code, status, message }),
  reload: () => element.reload(),
};
