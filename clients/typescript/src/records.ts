/** The answers of a HAI Flow server, as records. Times are texts as in RFC 3339. */

// Written by `make generate` from hai_flow/api/requests/schemas.py: change that, or clients/generate.py.

import type { Problem } from "./errors.js";

/**
 * Why somebody may not decide: `excluded.requester` (they started the run), `excluded.instigator` (they are behind
 * it), `agent` (an agent that `from` does not name), `excluded`, `voted`, `not_asked`, `not_picked` (others of those
 * who are asked were), or `unreadable` (by this release).
 */
export interface WhyNot {
  code: string;
  reason: string;
}

/**
 * A question that asks you. `whyNot` says why you may not decide it yourself, `onBehalfOf` names the people that you
 * may decide it for. `claimedBy` is the person that works on it, as they have announced, until `claimedUntil`.
 * `needed`: for approvals, the others that may decide, the votes so far, and those that are missing. `kind`: tool,
 * ask, approve, gate or doubt. `effect`: read, reversible, external, irreversible or write.
 */
export interface InboxItem {
  id: string;
  runId: string;
  workflow: string;
  workflowTitle: string | null;
  startedBy: string;
  status: string;
  openedAt: string;
  path: string;
  kind: string;
  title: string | null;
  message: string | null;
  tool: string | null;
  effect: string | null;
  args: unknown;
  evidence: unknown;
  schema: unknown;
  options: string[];
  policy: unknown;
  deadline: string | null;
  digest: string;
  nobodyDecides: string | null;
  mayDecide: boolean;
  whyNot: WhyNot | null;
  onBehalfOf: string[];
  needed: Record<string, unknown> | null;
  claimedBy: string | null;
  claimedUntil: string | null;
}

/**
 * How many open questions of each workflow ask you. `complete`: all were counted; else only the first 10,000, or
 * those of the cells that are not `missing`.
 */
export interface InboxCounts {
  missing?: string[];
  workflows: Record<string, number>;
  complete: boolean;
}

/**
 * The answer of `by` to a question: of you, or of your delegate `onBehalfOf` you. `rule`: the standing rule that gave
 * it with your vote. `status` is the question's now. `kind`: tool, ask, approve, gate or doubt.
 */
export interface Decided {
  id: string;
  runId: string;
  workflow: string;
  workflowTitle: string | null;
  kind: string;
  title: string | null;
  decision: string | null;
  reason: string | null;
  by: string;
  onBehalfOf: string | null;
  via: string;
  rule: string | null;
  at: string;
  status: string;
}

/**
 * `to` may answer the questions that ask `from`, from `since` until `until`. `endsWith`: the proof of identity by
 * which `from` made it, with which it ends before that, if the proof does; None: it is not known. `endsWith`: key,
 * session or token.
 */
export interface Delegation {
  id: string;
  from: string;
  to: string;
  since: string;
  until: string;
  note: string | null;
  endsWith: string | null;
}

/**
 * `person` is away from `firstDay` to the end of `lastDay` in `zone`, that is from `since` until `until`; `delegate`
 * decides for them, None: nobody. `decidesNow`: who does so at this moment, None: nobody, and `whyNobody`.
 */
export interface Absence {
  id: string;
  person: string;
  delegate: string | null;
  firstDay: string;
  lastDay: string;
  zone: string;
  since: string;
  until: string;
  note: string | null;
  enteredBy: string;
  decidesNow: string | null;
  whyNobody: string | null;
}

/**
 * A pending after an answer. `already`: the same answer had been given before. `status` is still open where more
 * people must decide.
 */
export interface Decision {
  id: string;
  runId: string;
  workflow: string | null;
  workflowTitle: string | null;
  startedBy: string | null;
  status: string;
  openedAt: string;
  path: string;
  kind: string;
  title: string | null;
  message: string | null;
  tool: string | null;
  effect: string | null;
  args: unknown;
  evidence: unknown;
  schema: unknown;
  options: string[];
  policy: unknown;
  deadline: string | null;
  digest: string;
  nobodyDecides: string | null;
  needed: Record<string, unknown> | null;
  edits: Record<string, unknown> | null;
  decidedBy: string | null;
  onBehalfOf: string | null;
  decidedAt: string | null;
  value: unknown;
  reason: string | null;
  canary: Record<string, unknown> | null;
  already: boolean;
}

/**
 * What an agent that lives elsewhere has asked. `id`: also of the run that asks. `status`: `pending` until people
 * have decided; `approved` until it is consumed, once; or `rejected`, `expired`, `failed`, `cancelled` (an operator
 * has stopped it). `arguments`: as they were approved, where people edited them; `digest`: the SHA-256 of `{"action":
 * ..., "arguments": ...}` as RFC 8785 writes it. `page`: where people decide. `expiresAt`: until when they may; of an
 * approved one, until when it may be consumed.
 */
export interface Approval {
  id: string;
  status: string;
  action: string;
  arguments: unknown;
  edited: boolean;
  digest: string;
  workflow: string;
  requestedBy: string;
  page: string;
  pendingId: string | null;
  expiresAt: string | null;
  reason: string | null;
  votes: unknown;
  consumedAt: string | null;
  error: RunError | null;
}

/** `already`: it was consumed under this Idempotency-Key before. */
export interface ConsumedApproval {
  id: string;
  status: string;
  action: string;
  arguments: unknown;
  edited: boolean;
  digest: string;
  workflow: string;
  requestedBy: string;
  page: string;
  pendingId: string | null;
  expiresAt: string | null;
  reason: string | null;
  votes: unknown;
  consumedAt: string | null;
  error: RunError | null;
  already: boolean;
}

/** The outcome of one answer of several: `pending` where it was taken (`status` 200), else the `problem`. */
export interface BulkOutcome {
  id: string;
  status: number;
  pending: Decision | null;
  problem: Problem | null;
}

/** An API key. `usedAt`: when it was used last, to a minute. `speaksFor`: as whom the tokens that it makes may decide. */
export interface Key {
  id: string;
  name: string;
  principal: string;
  roles: string[];
  groups: string[];
  speaksFor: string[];
  createdBy: string;
  createdAt: string;
  expiresAt: string | null;
  revokedAt: string | null;
  usedAt: string | null;
}

/** `key` is the secret text that `Client(key=...)` takes. It is shown this once. */
export interface NewKey {
  id: string;
  name: string;
  principal: string;
  roles: string[];
  groups: string[];
  speaksFor: string[];
  createdBy: string;
  createdAt: string;
  expiresAt: string | null;
  revokedAt: string | null;
  usedAt: string | null;
  key: string;
}

/**
 * The limits of a tenant: runs that begin in a minute, runs that have not ended, streams of one process that only
 * follow, bytes of logs. 0: no limit. None (only in a tenant's `limits`): the value of the server's settings.
 */
export interface Limits {
  runsPerMinute: number | null;
  openRuns: number | null;
  followers: number | null;
  logBytes: number | null;
}

/**
 * A cell that a tenant lives in. `begins`: whether new threads begin there. `first`: it has the things that exist
 * once for the tenant: workflows, schedules, delegations.
 */
export interface TenantCell {
  name: string;
  begins: boolean;
  first: boolean;
}

/** A tenant. `limits` were set for it, `inForce` are those that it has. `cells`: those that it lives in. */
export interface Tenant {
  id: string;
  name: string;
  createdAt: string;
  limits: Limits;
  inForce: Limits;
  cells?: TenantCell[];
}

/** `token` is to be sent by a page as `Authorization: Bearer`, until `expiresAt`. */
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

/**
 * The caller, the `way` in which they have proven their identity, and their rights. `csrf`: requests of a browser's
 * session send it in `HAI-CSRF`; None for other credentials.
 */
export interface Session {
  principal: string;
  roles: string[];
  groups: string[];
  rights: string[];
  way: string;
  expiresAt: string | null;
  csrf: string | null;
}

/** Which version of its workflow a run is of. `dev`: a copy that was loaded while it is edited. */
export interface Version {
  version: number;
  sha256: string;
  dev: boolean;
}

export interface RunParent {
  runId: string;
  path: string;
}

/**
 * A run that holds a slot. `status` is None while it is about to be stored. `status`: queued, running, waiting,
 * paused, stopping, needs_attention, finished, failed or stopped.
 */
export interface SlotHolder {
  runId: string;
  status: string | null;
}

/**
 * A slot that a queued run waits for: the `key` of its workflow's `concurrency`, how many runs of that key may be
 * active at once (`limit`), and the runs that are, the oldest first.
 */
export interface QueuedFor {
  key: string;
  limit: number;
  holders: SlotHolder[];
}

/** Who paused a run, when, and the reason that they gave (empty: none). */
export interface Pause {
  by: string;
  at: string;
  reason: string;
}

/** The worker that holds a run. Not `alive`: it gives no sign of life, and another one takes the run over. */
export interface Holder {
  name: string;
  alive: boolean;
}

/** A failure, as authors see it (`error`, docs/language.md#codes). Codes are stable, messages are for people. */
export interface RunError {
  code: string;
  message: string;
  path?: string;
  attempt?: number;
  at?: string | null;
  retriable?: boolean;
  data?: unknown;
  cause?: RunError | null;
}

/**
 * A run. `seq` is how many events it has; `output` and `error` are None until it has ended. `inFlight`: how many
 * attempts were asked to cancel (answer to `stop`). `branchOf`: the run at one of whose turns it left its thread.
 * `parent`: the run whose step waits for this one. `unreadable`: why no worker goes on with it, where those that
 * tried could not read it. `queue`: only workers that serve it perform the run. `get` alone tells what slot a queued
 * run waits for (`queuedFor`), and who `paused` a paused one. `status`: queued, running, waiting, paused, stopping,
 * needs_attention, finished, failed or stopped.
 */
export interface Run {
  id: string;
  threadId: string;
  workflow: string;
  workflowTitle?: string | null;
  summary?: string | null;
  version: Version;
  status: string;
  seq: number;
  startedBy: string;
  instigators: string[];
  createdAt: string;
  endedAt: string | null;
  input: unknown;
  output: unknown;
  error: RunError | null;
  branchOf?: string | null;
  parent?: RunParent | null;
  unreadable?: string | null;
  queue?: string;
  frozen?: boolean;
  queuedFor?: QueuedFor | null;
  paused?: Pause | null;
  heldBy?: Holder | null;
  inFlight?: number;
}

/**
 * How many runs have each status; `max` of them means that many or more. Under `needs_attention` are also those that
 * workers can't read, whatever their own status is. `missing`: cells that are away, and are not counted.
 */
export interface RunCounts {
  missing?: string[];
  counts: Record<string, number>;
  max: number;
}

/**
 * Which run made this one start, though it is no child of it: its step `path` (`detach`), or, without one, its end (a
 * `run` trigger). `depth`: how many of these ends stand in a row before it.
 */
export interface Origin {
  runId: string;
  path?: string | null;
  depth?: number;
}

export interface Turn {
  n: number;
  firstSeq: number;
  open: boolean;
  wireRunId: string | null;
}

export interface StepState {
  status: string;
  attempt: number;
  output?: unknown;
  error?: RunError | null;
}

/**
 * A question to people. `status`: open, or its outcome. `schema` is that of the form, or of a tool's result;
 * `options` are the decisions there are. An answer that is given with this record is bound to its `digest`: to the
 * content that it shows. `get` tells more than `list`: `needed` (the deciders, their votes, the missing ones),
 * `edits`, and the decision. `workflow` and `startedBy` are the run's. `kind`: tool, ask, approve, gate or doubt.
 * `effect`: read, reversible, external, irreversible or write.
 */
export interface Question {
  id: string;
  runId: string;
  workflow?: string | null;
  workflowTitle?: string | null;
  startedBy?: string | null;
  status: string;
  openedAt: string;
  path: string;
  kind: string;
  title: string | null;
  message: string | null;
  tool: string | null;
  effect?: string | null;
  args: unknown;
  evidence: unknown;
  schema: unknown;
  options: string[];
  policy: unknown;
  deadline: string | null;
  digest: string;
  nobodyDecides?: string | null;
  needed?: Record<string, unknown> | null;
  edits?: Record<string, unknown> | null;
  decidedBy?: string | null;
  onBehalfOf?: string | null;
  decidedAt?: string | null;
  value?: unknown;
  reason?: string | null;
  canary?: Record<string, unknown> | null;
}

export interface RunMessage {
  id: string;
  role: string;
  kind: string;
  content: unknown;
  open: boolean;
  at: string;
}

export interface Timer {
  path: string;
  kind: string;
  due: string;
}

/**
 * What the answers of one model took in all: how many `calls`, their tokens (`cached` of the `input`, `reasoning` of
 * the `output`), and their `cost` in US dollars; None: its price is not known.
 */
export interface ModelUsage {
  provider: string;
  model: string;
  calls: number;
  input: number;
  output: number;
  cached: number;
  reasoning: number;
  cost: number | null;
}

/**
 * A run after its first `seq` events. `state` are its variables, `steps` by path. `trigger`: how it was started (""
 * where an older server does not say); `origin`: the run that started it, if one did; `usage`: what each model took,
 * also for the runs below it.
 */
export interface Snapshot {
  runId: string;
  seq: number;
  status: string;
  trigger?: string;
  scheduledAt: string | null;
  origin?: Origin | null;
  turn: Turn | null;
  state: unknown;
  steps: Record<string, StepState>;
  pendings: Question[];
  messages: RunMessage[];
  timers: Timer[];
  usage?: ModelUsage[];
  output: unknown;
  error: RunError | null;
}

/**
 * The run that a fork has stopped: its steps `inFlight` are asked to cancel, and the steps in `undoes` are undone.
 * `status`: queued, running, waiting, paused, stopping, needs_attention, finished, failed or stopped.
 */
export interface Left {
  runId: string;
  status: string;
  inFlight: string[];
  undoes: string[];
}

/**
 * The effects that a fork would have. `begins`: the steps that begin at once; `asks`: the steps whose questions are
 * open in it; `restarts`: those whose child runs are started anew; `stops`: the thread's active run.
 */
export interface Rehearsal {
  of: string;
  at: number;
  threadId: string;
  workflow: string;
  version: number;
  requester: string;
  begins: string[];
  asks: string[];
  restarts: string[];
  stops: Left | null;
}
