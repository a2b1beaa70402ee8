/** The answers of a HAI Flow server, as records. Times are texts as in RFC 3339. */

// Written by `make generate` from hai_flow/client/models.py: change that, or clients/generate.py.

import type { Problem } from "./errors.js";

/** Why somebody may not decide: a code, and a clause for people. */
export interface WhyNot {
  code: string;
  reason: string;
}

/**
 * A question that asks you. `whyNot` says why you may not decide it yourself, `onBehalfOf` for whom you may;
 * `claimedBy`: who says that they are at it, and until when.
 */
export interface InboxItem {
  id: string;
  runId: string;
  workflow: string;
  startedBy: string;
  status: string;
  openedAt: string;
  path: string;
  kind: string;
  digest: string;
  title: string | null;
  message: string | null;
  tool: string | null;
  args: unknown;
  evidence: unknown;
  schema: unknown;
  options: string[];
  policy: unknown;
  deadline: string | null;
  needed: Record<string, unknown> | null;
  mayDecide: boolean;
  whyNot: WhyNot | null;
  onBehalfOf: string[];
  claimedBy: string | null;
  claimedUntil: string | null;
}

/** How many open questions of each workflow ask you. `complete`: all were counted. */
export interface InboxCounts {
  workflows: Record<string, number>;
  complete: boolean;
}

/** What `by` has said to a question: you, or your delegate `onBehalfOf` you. `status` is the question's now. */
export interface Decided {
  id: string;
  runId: string;
  workflow: string;
  kind: string;
  title: string | null;
  decision: string | null;
  reason: string | null;
  by: string;
  onBehalfOf: string | null;
  via: string;
  at: string;
  status: string;
}

/** `to` may answer what asks `from`, from `since` until `until`. */
export interface Delegation {
  id: string;
  from: string;
  to: string;
  since: string;
  until: string;
  note: string | null;
}

/**
 * A pending after an answer. `already`: the same answer had been given before. `status` is still open where more
 * people must decide.
 */
export interface Decision {
  id: string;
  runId: string;
  status: string;
  openedAt: string;
  path: string;
  kind: string;
  digest: string;
  title: string | null;
  message: string | null;
  tool: string | null;
  args: unknown;
  evidence: unknown;
  schema: unknown;
  options: string[];
  policy: unknown;
  deadline: string | null;
  workflow: string | null;
  startedBy: string | null;
  needed: Record<string, unknown> | null;
  edits: Record<string, unknown> | null;
  decidedBy: string | null;
  onBehalfOf: string | null;
  decidedAt: string | null;
  value: unknown;
  reason: string | null;
  already: boolean;
}

/** The outcome of one answer of several: `pending` where it was taken (`status` 200), else the `problem`. */
export interface BulkOutcome {
  id: string;
  status: number;
  pending: Decision | null;
  problem: Problem | null;
}

/** `token` is what a page sends as `Authorization: Bearer`, until `expiresAt`. */
export interface Token {
  token: string;
  principal: string;
  expiresAt: string;
}

/** `ticket` opens one stream, until `expiresAt`. */
export interface Ticket {
  ticket: string;
  expiresAt: string;
}

/** Who calls, in which `way` they have proven it, and what they may do. `csrf` is for browsers. */
export interface Session {
  principal: string;
  roles: string[];
  groups: string[];
  rights: string[];
  way: string;
  expiresAt: string | null;
  csrf: string | null;
}
