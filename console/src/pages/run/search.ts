// Which view of a run, and which moment of it, as the address says it.

export const TABS = ["conversation", "waterfall", "state", "events"] as const;
export type Tab = (typeof TABS)[number];

export interface RunSearch {
  tab?: Tab | undefined;
  /** The seq of an event; none: the run as it is now. */
  at?: number | undefined;
}

export function runSearch(given: Record<string, unknown>): RunSearch {
  const tab = TABS.find((each) => each === given["tab"]);
  const at = Number(given["at"]);
  const isMoment = given["at"] !== undefined && Number.isSafeInteger(at) && at >= 0;
  return { ...(tab && { tab }), ...(isMoment && { at }) };
}
