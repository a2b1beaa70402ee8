/** Runs of a HAI Flow server: started, looked at, followed and controlled. */

import { ProtocolError } from "./errors.js";
import { allOf, instant, pageOf, paged, segment, type Page, type PageOptions } from "./paging.js";
import { recordOf, recordsOf } from "./reading.js";
import type {
  Left,
  Origin,
  Question,
  Rehearsal,
  Run,
  RunCounts,
  RunMessage,
  RunParent,
  Snapshot,
  StepState,
  Timer,
  Turn,
} from "./records.js";
import { Rest, type Abortable, type Query } from "./rest.js";

/** A run: a record of it, or its id. */
export type RunRef = string | { readonly id: string };

/** A moment of a run: a seq, a time, or `step:` and a path, which means the end of that step. */
export type Moment = number | string | Date;

export interface StartOptions extends Abortable {
  /** The input that the workflow asks for. */
  input?: Record<string, unknown>;
  /** The conversation that it belongs to. */
  threadId?: string;
}

export interface RunFilters {
  status?: string | readonly string[];
  workflow?: string;
  version?: number;
  threadId?: string;
  queue?: string;
  startedBy?: string;
  createdAfter?: Date | string;
  createdBefore?: Date | string;
  /** Those that failed with this code. */
  error?: string;
}

/** Where a fork begins (behind the event `at`, or in front of where `step` began last), and what it has otherwise. */
export interface ForkRequest {
  at?: number;
  step?: string;
  input?: Record<string, unknown>;
  state?: Record<string, unknown>;
  version?: string;
  /** Steps that are called otherwise in that version, old to new. */
  map?: Record<string, string>;
  reason?: string;
}

/** An event of a run's log, as the server tells it. `at` is a text as in RFC 3339; the rest is of its `type`. */
export interface LogEvent {
  seq: number;
  type: string;
  at: string;
  path?: string;
  [name: string]: unknown;
}

const OVER = ["run_finished", "run_failed", "run_stopped"];
const ENDED = ["finished", "failed", "stopped"];
const EVENTS_PAGE = 1000;

export class Runs {
  readonly #rest: Rest;

  constructor(rest: Rest) {
    this.#rest = rest;
  }

  /** Starts a run of `name`, `name@version` or `name@version+sha8`. Sent as often as it takes, it starts one. */
  async start(workflow: string, { input = {}, threadId: thread_id, signal }: StartOptions = {}): Promise<Run> {
    return runOf(await this.#rest.post("/v1/runs", { workflow, input, thread_id }, { signal }));
  }

  /** One run as it is now. */
  async get(run: RunRef, options: Abortable = {}): Promise<Run> {
    return runOf(await this.#rest.get(of(run), {}, options));
  }

  /** The runs, the newest first. */
  list(options: RunFilters & Omit<PageOptions, "cursor"> = {}): AsyncGenerator<Run> {
    return allOf((cursor) => this.page({ ...options, cursor }));
  }

  /** One page of them. */
  async page(options: RunFilters & PageOptions = {}): Promise<Page<Run>> {
    const page = pageOf<Run>(await this.#rest.get("/v1/runs", { ...filtered(options), ...paged(options) }, options));
    return { ...page, items: page.items.map(whole) };
  }

  /** How many runs have each status, counted up to `max` of each. */
  async counts(options: Omit<RunFilters, "status" | "queue" | "error"> & Abortable = {}): Promise<RunCounts> {
    return recordOf<RunCounts>(await this.#rest.get("/v1/runs/counts", filtered(options), options));
  }

  /** The run at a moment (default: now): its steps, variables, questions and messages. */
  async snapshot(run: RunRef, { at, signal }: { at?: Moment } & Abortable = {}): Promise<Snapshot> {
    const query = { at: typeof at === "number" ? at : instant(at) };
    return snapshotOf(await this.#rest.get(`${of(run)}/snapshot`, query, { signal }));
  }

  /** The events that there are, after a seq and before another one. `path`: of this step and those inside it. */
  async *events(
    run: RunRef,
    { after = 0, before, types, path, signal }: { after?: number; before?: number; types?: readonly string[]; path?: string } & Abortable = {},
  ): AsyncGenerator<LogEvent> {
    for (let from = String(after); ; ) {
      const query = { after: from, before, type: types, path, limit: EVENTS_PAGE };
      const answer = (await this.#rest.get(`${of(run)}/events`, query, { signal })) as { items: LogEvent[]; next_cursor: string | null };
      yield* answer.items;
      if (answer.next_cursor === null) return;
      from = answer.next_cursor;
    }
  }

  /**
   * The events after a seq, and those to come, until the run ends. A lost connection is made anew, at the next event: none
   * comes twice, none is left out. It ends, too, where `signal` is aborted, or the loop is left.
   */
  async *follow(run: RunRef, { after = 0, signal }: { after?: number } & Abortable = {}): AsyncGenerator<LogEvent> {
    let seen = after;
    const cameFrom = (): string | undefined => (seen > 0 ? String(seen) : undefined);
    for await (const { event, data } of this.#rest.events(`${of(run)}/events`, {}, cameFrom, { signal })) {
      const told = eventOf(data);
      if (event === "cursor_reset") throw new ProtocolError(`the run has ${told.seq} events, and was followed from ${seen}`);
      if (told.seq <= seen) continue;
      if (told.seq !== seen + 1) throw new ProtocolError(`expected event ${seen + 1} of the run, found ${told.seq}`);
      seen = told.seq;
      yield told;
      if (OVER.includes(told.type) && (await this.#isOver(run, seen, { signal }))) return;
    }
  }

  /** A run that ended may have been retried since. */
  async #isOver(run: RunRef, seen: number, options: Abortable): Promise<boolean> {
    const { status, seq } = await this.get(run, options);
    return ENDED.includes(status) && seq <= seen;
  }

  /** Lets no new step start. Attempts in flight finish, answers are stored, deadlines keep running. */
  async pause(run: RunRef, options: { reason?: string } & Abortable = {}): Promise<Run> {
    return this.#told(run, "pause", reasoned(options), options);
  }

  /** Goes on after a pause. */
  async resume(run: RunRef, options: Abortable = {}): Promise<Run> {
    return this.#told(run, "resume", undefined, options);
  }

  /** Stops cooperatively: `inFlight` attempts are asked to cancel and have a grace period. */
  async stop(run: RunRef, options: { reason?: string } & Abortable = {}): Promise<Run> {
    return this.#told(run, "stop", reasoned(options), options);
  }

  /** Ends the run at once. Late results are not recorded. */
  async terminate(run: RunRef, options: { reason?: string } & Abortable = {}): Promise<Run> {
    return this.#told(run, "terminate", reasoned(options), options);
  }

  /** Goes on from the failed step of a failed run, or with a run that needs attention. */
  async retry(run: RunRef, options: Abortable = {}): Promise<Run> {
    return this.#told(run, "retry", undefined, options);
  }

  /** Goes on behind a step at which the run stands: it does nothing more, and `output` stands in for its own. */
  async skip(run: RunRef, step: string, output: unknown = null, options: { reason?: string } & Abortable = {}): Promise<Run> {
    return this.#told(run, "skip", { step, output, ...reasoned(options) }, options);
  }

  /**
   * Goes on as the run was at a place, in a new run of its thread. The run that is active in the thread is stopped first. Refused
   * with 409 where the run can't be forked there; `problem.winner` names the `nearest` moments.
   */
  async fork(run: RunRef, request: ForkRequest, options: Abortable = {}): Promise<Run> {
    return this.#told(run, "fork", request, options);
  }

  /** Does a step again, and all behind it, in a new run: a fork in front of where it began last. */
  async rerun(run: RunRef, step: string, request: Omit<ForkRequest, "at" | "step"> = {}, options: Abortable = {}): Promise<Run> {
    return this.fork(run, { ...request, step }, options);
  }

  /** The consequences of `fork`: steps that begin, questions that are asked again, runs that are stopped. Nothing happens. */
  async rehearse(run: RunRef, request: ForkRequest, options: Abortable = {}): Promise<Rehearsal> {
    const told = recordOf<Rehearsal>(await this.#rest.post(`${of(run)}/fork`, { ...request, dry_run: true }, options));
    return { ...told, stops: told.stops && recordOf<Left>(told.stops) };
  }

  async #told(run: RunRef, verb: string, body: object | undefined, { signal }: Abortable): Promise<Run> {
    return runOf(await this.#rest.post(`${of(run)}/${verb}`, body, { signal }));
  }
}

function of(run: RunRef): string {
  return `/v1/runs/${segment(typeof run === "string" ? run : run.id)}`;
}

function reasoned({ reason = "" }: { reason?: string }): { reason: string } {
  return { reason };
}

function filtered(given: RunFilters): Query {
  const { status, workflow, version, threadId: thread_id, queue, startedBy: started_by, createdAfter, createdBefore, error } = given;
  const times = { created_after: instant(createdAfter), created_before: instant(createdBefore) };
  return { status, workflow, version, thread_id, queue, started_by, ...times, error };
}

function eventOf(data: string): LogEvent {
  try {
    const event = JSON.parse(data) as LogEvent;
    if (typeof event?.seq === "number") return event;
  } catch {
    // said below
  }
  throw new ProtocolError(`expected an event of a run as JSON, found ${data.slice(0, 200)}`);
}

function runOf(answer: unknown): Run {
  return whole(recordOf<Run>(answer));
}

function whole(run: Run): Run {
  return { ...run, ...(run.parent && { parent: recordOf<RunParent>(run.parent) }) };
}

function snapshotOf(answer: unknown): Snapshot {
  const told = recordOf<Snapshot>(answer);
  const steps = Object.entries(told.steps).map(([path, step]) => [path, recordOf<StepState>(step)]);
  return {
    ...told,
    ...(told.origin && { origin: recordOf<Origin>(told.origin) }),
    turn: told.turn && recordOf<Turn>(told.turn),
    steps: Object.fromEntries(steps) as Record<string, StepState>,
    pendings: recordsOf<Question>({ items: told.pendings }),
    messages: recordsOf<RunMessage>({ items: told.messages }),
    timers: recordsOf<Timer>({ items: told.timers }),
  };
}
