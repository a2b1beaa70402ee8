// Decisions that are made and not sent yet: for some seconds they can be taken back, whatever page is shown meanwhile.

import { useSyncExternalStore } from "react";
import { host } from "../host.ts";
import { onSignedOut } from "./client.ts";
import { type Problem, asProblem } from "./problems.ts";
import type { DecidedPending } from "./types.gen.ts";

export const SECONDS = 5;

/** How a decision is sent: after some seconds, once the reader was asked again, or at once. */
export type Way = "undo" | "ask" | "once";
export const WAYS: readonly Way[] = ["undo", "ask", "once"];
const KEPT = "hai.sending";

export function way(): Way {
  return WAYS.find((each) => each === host.sending()) ?? "undo";
}

export function setWay(chosen: Way): void {
  localStorage.setItem(KEPT, chosen);
}

export interface Leaving {
  id: string;
  title: string;
  /** What was decided, as its button says it. */
  label: string;
  state: "waiting" | "sending" | "refused";
  /** Whether it is sent when the connection is back, or the reader has signed in again. */
  held: boolean;
  /** When it is sent, in milliseconds. */
  due: number;
  problem: Problem | null;
}

type Send = (last: boolean) => Promise<DecidedPending>;

interface Entry {
  shown: Leaving;
  send: Send;
  done(decided: DecidedPending): void;
  timer: ReturnType<typeof setTimeout>;
}

/** Files that the end of a session has cut off, by reader, form and field: they are sent once the reader has signed in again. */
export const unsent = new Map<string, File>();

const entries = new Map<string, Entry>();
const listeners = new Set<() => void>();
let all: readonly Leaving[] = [];

function tell(): void {
  all = [...entries.values()].map((each) => each.shown);
  for (const each of listeners) each();
}

/** Sends the decision in some seconds, unless it is taken back. `last`: the page is being left, so nothing may wait. */
export function leave(decision: Pick<Leaving, "id" | "title" | "label">, send: Send, done: (decided: DecidedPending) => void): void {
  takeBack(decision.id);
  const timer = setTimeout(() => void go(decision.id), SECONDS * 1000);
  const shown: Leaving = { ...decision, state: "waiting", held: false, due: Date.now() + SECONDS * 1000, problem: null };
  entries.set(decision.id, { shown, send, done, timer });
  tell();
}

/** Takes it back, or forgets why it was refused. False: it is being sent already. */
export function takeBack(id: string): boolean {
  const entry = entries.get(id);
  if (entry === undefined || entry.shown.state === "sending") return false;
  clearTimeout(entry.timer);
  entries.delete(id);
  tell();
  return true;
}

/** Takes back all that is not being sent at this moment: somebody else acts from here on. */
export function takeBackAll(): void {
  unsent.clear();
  for (const entry of [...entries.values()]) {
    if (entry.shown.held) entry.shown = { ...entry.shown, state: "waiting" };
    takeBack(entry.shown.id);
  }
}

async function go(id: string, last = false): Promise<void> {
  const entry = entries.get(id);
  if (entry === undefined || (entry.shown.state !== "waiting" && !entry.shown.held)) return;
  clearTimeout(entry.timer);
  const reached = last || (await reaches());
  if (entries.get(id) !== entry || (entry.shown.state === "sending" && !entry.shown.held)) return; // taken back, or sent, meanwhile
  if (!reached) return hold(entry);
  entry.shown = { ...entry.shown, state: "sending", held: false };
  tell();
  try {
    const decided = await entry.send(last);
    entries.delete(id);
    entry.done(decided);
  } catch (error) {
    const problem = asProblem(error);
    // It may have arrived, so it can't be taken back; the same answer again changes nothing.
    if (problem.status === 0 && problem.code === "offline") return hold(entry);
    if (problem.status === 401 && host.console) return wait(entry);
    entry.shown = { ...entry.shown, state: "refused", problem };
  }
  tell();
}

/** Whether a request reaches the server: without any network, a browser still has one on its own machine. */
async function reaches(): Promise<boolean> {
  return navigator.onLine || host.fetch("/healthz", {}).then(() => true, () => false);
}

/** Keeps it until the connection is back. */
function hold(entry: Entry): void {
  const { id, state } = entry.shown;
  wait(entry, state === "sending" ? state : "waiting");
  entry.timer = setTimeout(() => void go(id), SECONDS * 1000);
}

/** Keeps it until `resume`. */
function wait(entry: Entry, state: "waiting" | "sending" = "waiting"): void {
  entry.shown = { ...entry.shown, state, held: true };
  tell();
}

// A session that has ended sends nothing more: the next one has another word against forged requests.
onSignedOut(() => {
  if (!host.console) return;
  for (const entry of entries.values()) {
    if (entry.shown.state !== "waiting") continue;
    clearTimeout(entry.timer);
    wait(entry);
  }
});

let reader: string | null = null;

/** It is known who reads: what the end of their session has kept is sent; what another one has decided is not. */
export function resume(who: string): void {
  if (reader !== null && reader !== who) takeBackAll();
  reader = who;
  sendHeld();
}

function sendHeld(): void {
  for (const { shown } of [...entries.values()]) if (shown.held) void go(shown.id);
}

window.addEventListener("online", sendHeld);

// Who leaves the page has decided: what waits is sent, as a letter that lies in the box.
host.onLeave(() => {
  for (const id of [...entries.keys()]) void go(id, true);
});

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useLeaving(): readonly Leaving[] {
  return useSyncExternalStore(subscribe, () => all);
}
