/** Everything that this package throws, as a tree: HaiError → HttpProblem, ProtocolError, ConnectionLost, PatchError. */

import type { HaiMessage } from "./events.js";

export class HaiError extends Error {
  override name = "HaiError";
}

/** A problem document (RFC 9457) as the server writes it; a server that writes none leaves all but `status` out. */
export interface Problem {
  status: number;
  title?: string;
  detail?: string;
  /** What went wrong, for programs: `thread_waiting`, `pending_decided`, ... */
  code?: string;
  /** Every mistake of the request: where, and what was expected. */
  findings?: { path: string; message: string; code?: string; params?: string[] }[];
  /** The page of the server's console that helps, like `/console/runs`. */
  see?: string;
  /** What stands in the way: the active run with its open questions, the decision that was first. */
  winner?: Record<string, unknown>;
}

/** The server refused the request before any event was sent. Nothing of it was stored. */
export class HttpProblem extends HaiError {
  override name = "HttpProblem";
  readonly status: number;
  readonly problem: Problem;
  /** The messages of this request that were taken back from `agent.messages`, because repeating them helps nobody. */
  takenBack: HaiMessage[] = [];

  constructor(problem: Problem) {
    super(`HTTP ${problem.status}: ${problem.detail ?? problem.title ?? "the server gave no reason"}`);
    this.status = problem.status;
    this.problem = problem;
  }

  get code(): string | undefined {
    return this.problem.code;
  }
}

/** The peer sent what the protocol does not allow. Trying again would not help. */
export class ProtocolError extends HaiError {
  override name = "ProtocolError";
}

/** The connection broke, and coming back failed as often as it may. The run goes on without us. */
export class ConnectionLost extends HaiError {
  override name = "ConnectionLost";
}

/** A JSON Patch does not apply. The document it was meant for is unchanged. */
export class PatchError extends HaiError {
  override name = "PatchError";
}
