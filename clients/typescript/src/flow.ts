/** A HAI Flow server beside its conversations: what asks you, your answers, and the credentials that streams need. */

import { InboxView, type InboxNews } from "./news.js";
import { recordOf, recordsOf } from "./reading.js";
import type { Absence, Approval, BulkOutcome, ConsumedApproval, Decided, Decision, Delegation, InboxCounts, InboxItem, Key, Limits, NewKey, Session, Tenant, Ticket, Token } from "./records.js";
import { allOf, instant, pageOf, paged, segment, type Page, type PageOptions } from "./paging.js";
import { Rest, type Abortable, type Query, type RestConfig } from "./rest.js";
import { Runs } from "./runs.js";

export interface InboxFilters {
  workflow?: string;
  kind?: "tool" | "ask" | "approve" | "gate" | "doubt";
  /** Looked for in titles, messages and names of tools. */
  text?: string;
  openedBefore?: Date | string;
  openedAfter?: Date | string;
  deadlineBefore?: Date | string;
}

/** An answer to a question: one of its `options` as `decision`, `values` for a form, `result` or `error` of a call. */
export interface Answer {
  decision?: string;
  reason?: string;
  /** What a form asks for. */
  values?: unknown;
  /** Other arguments for the call that is approved. */
  edits?: unknown;
  result?: unknown;
  error?: string;
  /** Who has delegated to you. */
  onBehalfOf?: string;
  /** Binds the answer to what was shown. An item that is answered as a record brings its own. */
  digest?: string;
}

/** A question: a record that was shown, or its id. With a record the answer counts only for what that shows. */
export type QuestionRef = string | { readonly id: string; readonly digest?: string };

export interface TokenRequest {
  principal: string;
  roles?: string[];
  groups?: string[];
  /** The only ones that it opens. Default: all that its principal may see. */
  threads?: string[];
  workflows?: string[];
  /** In seconds, up to a day (default 900). */
  expiresIn?: number;
}

export interface KeyRequest {
  principal: string;
  /** For people. */
  name?: string;
  roles?: string[];
  groups?: string[];
  /** In seconds. Default: it does not expire. */
  expiresIn?: number;
}

/** What asks you, what you have decided, and who decides instead of you. */
export class Inbox {
  readonly #rest: Rest;

  constructor(rest: Rest) {
    this.#rest = rest;
  }

  /** The open questions that ask you, the next deadline first. One that you may not decide says why (`whyNot`). */
  list(options: InboxFilters & Omit<PageOptions, "cursor"> = {}): AsyncGenerator<InboxItem> {
    return allOf((cursor) => this.page({ ...options, cursor }));
  }

  /** One page of them. */
  async page(options: InboxFilters & PageOptions = {}): Promise<Page<InboxItem>> {
    return pageOf<InboxItem>(await this.#rest.get("/v1/inbox", { ...filtered(options), ...paged(options) }, options));
  }

  /**
   * Your inbox as it is, and again whenever it is otherwise: its first `limit` questions. Lost connections are made anew,
   * and what has not changed since is not told again. It ends where `signal` is aborted, or the loop is left.
   */
  async *follow(
    options: Pick<InboxFilters, "workflow" | "kind" | "text"> & Pick<PageOptions, "limit" | "signal"> = {},
  ): AsyncGenerator<InboxNews> {
    const { workflow, kind, text, limit } = options;
    const view = new InboxView();
    for await (const event of this.#rest.events("/v1/inbox/events", { workflow, kind, text, limit }, () => view.id, options)) {
      const news = view.hear(event);
      if (news !== undefined) yield news;
    }
  }

  /** How many open questions of each workflow ask you. */
  async counts(options: Abortable = {}): Promise<InboxCounts> {
    return recordOf<InboxCounts>(await this.#rest.get("/v1/inbox/counts", {}, options));
  }

  /** Whether you may decide the open question, why not, and who else may. */
  async get(question: QuestionRef, options: Abortable = {}): Promise<InboxItem> {
    return recordOf<InboxItem>(await this.#rest.get(asked(question), {}, options));
  }

  /** Tells others that you are at it, for so long (`30m`, at most a day). It keeps nobody from deciding. */
  async claim(question: QuestionRef, duration = "30m", options: Abortable = {}): Promise<InboxItem> {
    return recordOf<InboxItem>(await this.#rest.post(`${asked(question)}/claim`, { for: duration }, options));
  }

  /** You are not at it any more. */
  async release(question: QuestionRef, options: Abortable = {}): Promise<InboxItem> {
    return recordOf<InboxItem>(await this.#rest.post(`${asked(question)}/release`, undefined, options));
  }

  /** Several answers; each is taken or refused for itself, and told in this order. */
  async decide(answers: readonly (Answer & { id: string })[], options: Abortable = {}): Promise<BulkOutcome[]> {
    const items = answers.map(({ id, ...answer }) => ({ id, ...written(answer) }));
    const { items: outcomes } = (await this.#rest.post("/v1/inbox/decide", { items }, options)) as { items: BulkOutcome[] };
    return outcomes.map((each) => ({ ...each, pending: each.pending && recordOf<Decision>(each.pending) }));
  }

  /** What you have decided, and your delegates in your name, the newest first. */
  decided(options: Omit<PageOptions, "cursor"> = {}): AsyncGenerator<Decided> {
    return allOf(async (cursor) => pageOf<Decided>(await this.#rest.get("/v1/inbox/decided", paged({ ...options, cursor }), options)));
  }

  /** Those from you and to you that have not ended. */
  async delegations(options: Abortable = {}): Promise<Delegation[]> {
    return recordsOf<Delegation>(await this.#rest.get("/v1/inbox/delegations", {}, options));
  }

  /** Lets `to` answer what asks you until then, with the roles and groups that you have now. */
  async delegate(
    to: string,
    until: Date | string,
    { since, note, signal }: { since?: Date | string; note?: string } & Abortable = {},
  ): Promise<Delegation> {
    const body = { to, until: instant(until), since: instant(since), note };
    return recordOf<Delegation>(await this.#rest.post("/v1/inbox/delegations", body, { signal }));
  }

  /** Ends a delegation from you, or to you, at once. */
  async endDelegation(delegation: string | { readonly id: string }, options: Abortable = {}): Promise<void> {
    const id = typeof delegation === "string" ? delegation : delegation.id;
    await this.#rest.delete(`/v1/inbox/delegations/${segment(id)}`, options);
  }

  /** Absences that are not over: yours, and those in which you decide for others; with `everybody`, for admins, all. */
  absences({ everybody, ...options }: { everybody?: boolean } & Omit<PageOptions, "cursor"> = {}): AsyncGenerator<Absence> {
    const only = everybody ? { everybody: "true" } : {};
    return allOf(async (cursor) =>
      pageOf<Absence>(await this.#rest.get("/v1/absences", { ...paged({ ...options, cursor }), ...only }, options)),
    );
  }

  /**
   * You are away (or `person` is, for admins) from the first day to the end of the last one, like `2026-12-21`, in
   * `zone`. `delegate` decides meanwhile; without one, nobody does.
   */
  async enterAbsence(
    firstDay: string,
    lastDay: string,
    { signal, ...more }: { delegate?: string; person?: string; zone?: string; note?: string } & Abortable = {},
  ): Promise<Absence> {
    const body = { first_day: firstDay, last_day: lastDay, ...more };
    return recordOf<Absence>(await this.#rest.post("/v1/absences", body, { signal }));
  }

  /** Ends an absence at once, or takes back one that has not begun. */
  async endAbsence(absence: string | { readonly id: string }, options: Abortable = {}): Promise<void> {
    const id = typeof absence === "string" ? absence : absence.id;
    await this.#rest.delete(`/v1/absences/${segment(id)}`, options);
  }
}

/** Questions, whoever they ask. */
export class Pendings {
  readonly #rest: Rest;

  constructor(rest: Rest) {
    this.#rest = rest;
  }

  /**
   * Answers a question. The first valid answer stands: the same one again is `already`, another one is refused (409) and
   * `problem.winner` says what stands.
   */
  async decide(question: QuestionRef, answer: Answer, options: Abortable = {}): Promise<Decision> {
    const { id, digest } = typeof question === "string" ? { id: question, digest: undefined } : question;
    const body = written({ ...(digest !== undefined && { digest }), ...answer });
    return recordOf<Decision>(await this.#rest.post(`/v1/pendings/${segment(id)}/decide`, body, options));
  }

  /**
   * The signed receipt of a decision, byte for byte (docs/receipts.md): keep it as it is. Fails with 409 while the question
   * is open, or the call that was approved has not ended.
   */
  async receipt(question: QuestionRef, options: Abortable = {}): Promise<string> {
    const id = typeof question === "string" ? question : question.id;
    return await this.#rest.text(`/v1/pendings/${segment(id)}/receipt`, options);
  }
}

/** What an agent asks for: an action, its exact arguments, and who decides (`policy`) or the workflow that asks. */
export interface ApprovalRequest {
  action: string;
  arguments: Record<string, unknown>;
  policy?: Record<string, unknown>;
  workflow?: string;
  /** How long people have, and then the agent: `30m`, `1d`. */
  expiresIn?: string;
  title?: string;
  message?: string;
  /** Where the outcome is told. The secret, of 16 signs or more, signs the call. */
  webhook?: { url: string; secret: string };
}

/** Approvals of agents that live elsewhere: asked, decided by people, consumed once. */
export class Approvals {
  readonly #rest: Rest;

  constructor(rest: Rest) {
    this.#rest = rest;
  }

  /** Asks people. With the same `key` again it is the same approval. */
  async request(request: ApprovalRequest, options: Abortable & { key?: string } = {}): Promise<Approval> {
    const { expiresIn: expires_in, ...rest } = request;
    return recordOf<Approval>(await this.#rest.post("/v1/approvals", { ...rest, expires_in }, options));
  }

  /** The approval as it is now. */
  async get(approval: string | Approval, options: Abortable = {}): Promise<Approval> {
    return recordOf<Approval>(await this.#rest.get(approvalPath(approval), {}, options));
  }

  /** The approval as soon as people have decided it, or it has expired. */
  async wait(approval: string | Approval, options: Abortable = {}): Promise<Approval> {
    for (;;) {
      const found = recordOf<Approval>(await this.#rest.get(approvalPath(approval), { wait: 20 }, options));
      if (found.status !== "pending") return found;
    }
  }

  /**
   * Consumes an approval, right before the action: once, for exactly the arguments that were approved, as edited. Without
   * `arguments` and `digest` the record's own digest is sent. `action` (with `arguments`) must be the approved one. Refused (409) where it was consumed before or is not
   * approved, and (422) where the arguments are others.
   */
  async consume(
    approval: string | Approval,
    { digest, action, arguments: args, signal, key }: Abortable & { digest?: string; action?: string; arguments?: Record<string, unknown>; key?: string } = {},
  ): Promise<ConsumedApproval> {
    const own = typeof approval === "string" || args !== undefined ? undefined : approval.digest;
    const body = { digest: digest ?? own, action, arguments: args };
    return recordOf<ConsumedApproval>(
      await this.#rest.post(`${approvalPath(approval)}/consume`, body, { signal, ...(key !== undefined && { key }) }),
    );
  }
}

function approvalPath(approval: string | Approval): string {
  return `/v1/approvals/${segment(typeof approval === "string" ? approval : approval.id)}`;
}

/** API keys, for admins. Never in a page: what makes keys can do all that the keys may. */
export class Keys {
  readonly #rest: Rest;

  constructor(rest: Rest) {
    this.#rest = rest;
  }

  /**
   * Makes a key, whose secret text is shown this once. It is asked for once: after a lost connection look at `list` for
   * a key that nobody has seen, and revoke it.
   */
  async create(request: KeyRequest, options: Abortable = {}): Promise<NewKey> {
    const { expiresIn: expires_in, ...rest } = request;
    return recordOf<NewKey>(await this.#rest.postOnce("/v1/keys", { ...rest, expires_in }, options));
  }

  /** All keys, the newest first; also those that were revoked or have expired. */
  list(options: Omit<PageOptions, "cursor"> = {}): AsyncGenerator<Key> {
    return allOf((cursor) => this.page({ ...options, cursor }));
  }

  /** One page of them. */
  async page(options: PageOptions = {}): Promise<Page<Key>> {
    return pageOf<Key>(await this.#rest.get("/v1/keys", paged(options), options));
  }

  /** Revokes a key: who sends it is refused, within a second by all processes. */
  async revoke(key: string | Key, options: Abortable = {}): Promise<Key> {
    const id = typeof key === "string" ? key : key.id;
    return recordOf<Key>(await this.#rest.post(`/v1/keys/${encodeURIComponent(id)}/revoke`, undefined, options));
  }
}

/** Tenants and what they may have, for admins; those of the tenant `default` see and set those of all. */
export class Tenants {
  readonly #rest: Rest;

  constructor(rest: Rest) {
    this.#rest = rest;
  }

  /** The tenants, by name. */
  async list(options: Abortable = {}): Promise<Tenant[]> {
    return recordsOf<Tenant>(await this.#rest.get("/v1/tenants", {}, options));
  }

  /** One tenant, by its name. */
  async get(tenant: string | Tenant, options: Abortable = {}): Promise<Tenant> {
    return recordOf<Tenant>(await this.#rest.get(named(tenant), {}, options));
  }

  /** Changes limits: a number; 0, no limit; null, what the settings give to all. Those that are not named stay. */
  async limit(tenant: string | Tenant, limits: Partial<Limits>, options: Abortable = {}): Promise<Tenant> {
    const { runsPerMinute: runs_per_minute, openRuns: open_runs, followers, logBytes: log_bytes } = limits;
    const changed = { runs_per_minute, open_runs, followers, log_bytes };
    return recordOf<Tenant>(await this.#rest.patch(named(tenant), changed, options));
  }

  /** Lets new threads begin in these cells, by their names. What the tenant has in others stays there. */
  async place(tenant: string | Tenant, cells: string[], options: Abortable = {}): Promise<Tenant> {
    return recordOf<Tenant>(await this.#rest.patch(named(tenant), { cells }, options));
  }
}

function named(tenant: string | Tenant): string {
  return `/v1/tenants/${encodeURIComponent(typeof tenant === "string" ? tenant : tenant.name)}`;
}

/** A HAI Flow server, for one caller. Its agents are `HttpAgent`s. */
export class FlowClient {
  readonly inbox: Inbox;
  readonly pendings: Pendings;
  readonly approvals: Approvals;
  readonly runs: Runs;
  readonly keys: Keys;
  readonly tenants: Tenants;
  readonly #rest: Rest;

  constructor(config: RestConfig) {
    this.#rest = new Rest(config);
    this.inbox = new Inbox(this.#rest);
    this.pendings = new Pendings(this.#rest);
    this.approvals = new Approvals(this.#rest);
    this.runs = new Runs(this.#rest);
    this.keys = new Keys(this.#rest);
    this.tenants = new Tenants(this.#rest);
  }

  /** Who you are here, what you may do, and until when. */
  async session(options: Abortable = {}): Promise<Session> {
    return recordOf<Session>(await this.#rest.get("/v1/session", {}, options));
  }

  /** For backends, whose key has the role `issuer`: a token for a page of theirs, with no more than the key holds. */
  async createToken(request: TokenRequest, options: Abortable = {}): Promise<Token> {
    const { expiresIn: expires_in, ...rest } = request;
    return recordOf<Token>(await this.#rest.post("/v1/tokens", { ...rest, expires_in }, options));
  }

  /** A ticket: `?ticket=` opens one EventSource or WebSocket as you, within half a minute. */
  async createTicket(options: Abortable = {}): Promise<Ticket> {
    return recordOf<Ticket>(await this.#rest.post("/v1/tickets", undefined, options));
  }
}

function filtered({ workflow, kind, text, openedBefore, openedAfter, deadlineBefore }: InboxFilters): Query {
  return {
    workflow,
    kind,
    text,
    opened_before: instant(openedBefore),
    opened_after: instant(openedAfter),
    deadline_before: instant(deadlineBefore),
  };
}

function written({ onBehalfOf: on_behalf_of, ...answer }: Answer): object {
  return { ...answer, ...(on_behalf_of !== undefined && { on_behalf_of }) };
}

function asked(question: QuestionRef): string {
  return `/v1/inbox/${segment(typeof question === "string" ? question : question.id)}`;
}
