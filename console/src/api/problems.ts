// A refusal of the server, or the lack of an answer, as one kind of error.

import type { Json } from "./types.gen.ts";

export interface FieldFinding {
  path?: string;
  message: string;
  code?: string;
  params?: string[];
}

export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly findings: FieldFinding[];
  readonly winner: Json | undefined;
  /** What the sentence names: the same in every language. */
  readonly params: string[];

  constructor(status: number, code: string, detail: string, findings: FieldFinding[] = [], winner?: Json, params: string[] = []) {
    super(detail);
    this.status = status;
    this.code = code;
    this.findings = findings;
    this.winner = winner;
    this.params = params;
  }
}

/** The refusal that an answer tells of, of one of many. */
export function problemIn(body: { code?: unknown; detail?: unknown; status?: unknown; params?: unknown }): Problem {
  const params = Array.isArray(body.params) ? body.params.map(String) : [];
  return new Problem(Number(body.status ?? 409), String(body.code ?? ""), String(body.detail ?? ""), [], undefined, params);
}

/** What can be read of a response that is no success. */
export async function problemOf(response: Response): Promise<Problem> {
  try {
    const body = (await response.json()) as Record<string, unknown>;
    const findings = Array.isArray(body["findings"]) ? (body["findings"] as FieldFinding[]) : [];
    return new Problem(
      response.status,
      String(body["code"] ?? `http_${response.status}`),
      String(body["detail"] ?? response.statusText),
      findings,
      body["winner"] as Json | undefined,
      Array.isArray(body["params"]) ? body["params"].map(String) : [],
    );
  } catch {
    return new Problem(response.status, `http_${response.status}`, response.statusText);
  }
}

export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem(0, "offline", error instanceof Error ? error.message : String(error));
}
