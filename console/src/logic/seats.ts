// Who has voted on a question, and which seats are open: the server's `needed` as places at a table.

import type { Json, Pending } from "../api/types.gen.ts";

export interface Vote {
  by: string;
  on_behalf_of: string | null;
  roles: string[];
  decision: string;
  reason: string | null;
  at: string;
  counts: boolean;
  /** The standing rule that cast it. */
  rule?: string;
}

export interface Needed {
  from: string[];
  exclude: string[];
  reasons: string[];
  /** The author wants the reader to be asked once more. */
  confirm?: boolean;
  people: string[] | null;
  votes: Vote[];
  missing: { people: number; seats: Record<string, number>; names: string[] };
}

export interface Seat {
  state: "for" | "against" | "other" | "lapsed" | "open";
  /** Who sits there; or, of an open seat, whom it is for ("" = anybody of those who are asked). */
  who: string;
  vote?: Vote;
}

export interface Table {
  seats: Seat[];
  filled: number;
  of: number;
}

export function neededOf(value: Json | Record<string, Json> | null): Needed | null {
  return value === null || typeof value !== "object" || Array.isArray(value) ? null : (value as unknown as Needed);
}

/** The seats, those that are taken first. */
export function tableOf(needed: Needed): Table {
  const taken = needed.votes.map((vote): Seat => ({ state: stateOf(vote), who: vote.by, vote }));
  const open: Seat[] = needed.missing.names.map((who) => ({ state: "open", who }));
  for (const [who, n] of Object.entries(needed.missing.seats)) {
    for (let left = n; left > 0; left -= 1) open.push({ state: "open", who });
  }
  // `people` counts all that are missing; those who are named or have a role of their own are among them.
  for (let left = needed.missing.people - open.length; left > 0; left -= 1) open.push({ state: "open", who: "" });
  const filled = taken.filter((seat) => seat.state === "for").length;
  return { seats: [...taken, ...open], filled, of: filled + open.length };
}

function stateOf(vote: Vote): Seat["state"] {
  if (!vote.counts) return "lapsed";
  if (vote.decision === "approve") return "for";
  return vote.decision === "reject" ? "against" : "other";
}

/** The standing rule whose vote stands in the outcome of the question; null: people decided it. */
export function ruleOf(pending: Pick<Pending, "status" | "needed">): string | null {
  const votes = pending.status === "open" ? [] : (neededOf(pending.needed)?.votes ?? []);
  return votes.findLast((each) => each.counts && each.decision === pending.status)?.rule ?? null;
}

/** How many votes of others count no more once the arguments change. */
export function lapsing(needed: Needed): number {
  return needed.votes.filter((vote) => vote.counts).length;
}

/** A person or a group as people say it: "user:ann" is ann, "role:controller" is controller. */
export function plainName(id: string): string {
  return id.replace(/^(user|role|group):/, "");
}
