// Which view of a run, which moment and which step of it, as the address says it.

export const TABS = ["conversation", "graph", "waterfall", "state", "models", "events"] as const;
export type Tab = (typeof TABS)[number];

/** The question of the page that is open: what is to be done with the run, or with the step that is chosen. */
export const ASKED = ["pause", "resume", "stop", "terminate", "retry", "fork", "migrate", "again", "skip"] as const;
export type Asked = (typeof ASKED)[number];

export interface RunSearch {
  tab?: Tab | undefined;
  /** The seq of an event; none: the run as it is now. */
  at?: number | undefined;
  /** The path of the step that is chosen. */
  step?: string | undefined;
  /** Whose events are wanted: those of this step. */
  of?: string | undefined;
  ask?: Asked | undefined;
}

export function runSearch(given: Record<string, unknown>): RunSearch {
  const tab = TABS.find((each) => each === given["tab"]);
  const { at, step, of } = { at: seqOf(given["at"]), step: pathOf(given["step"]), of: pathOf(given["of"]) };
  const ask = ASKED.find((each) => each === given["ask"]);
  return { ...(tab && { tab }), ...(at !== undefined && { at }), ...(step && { step }), ...(of && { of }), ...(ask && { ask }) };
}

export interface CompareSearch {
  /** The other run; none: another moment of this one. */
  with?: string | undefined;
  /** Moments; none: the run as it is now. */
  from?: number | undefined;
  to?: number | undefined;
}

export function compareSearch(given: Record<string, unknown>): CompareSearch {
  const { from, to } = { from: seqOf(given["from"]), to: seqOf(given["to"]) };
  const other = typeof given["with"] === "string" && given["with"] !== "" ? given["with"].slice(0, 100) : undefined;
  return { ...(other && { with: other }), ...(from !== undefined && { from }), ...(to !== undefined && { to }) };
}

function seqOf(given: unknown): number | undefined {
  const seq = Number(given);
  return given !== undefined && given !== "" && Number.isSafeInteger(seq) && seq >= 0 ? seq : undefined;
}

function pathOf(given: unknown): string | undefined {
  return typeof given === "string" && given !== "" ? given.slice(0, 600) : undefined;
}
