// What of a workflow is shown, as the address says it.

export const VIEWS = ["picture", "source", "versions", "start", "chat"] as const;
export type View = (typeof VIEWS)[number];

export interface WorkflowSearch {
  pane?: View | undefined;
  /** The version that is looked at; none: the latest. */
  version?: string | undefined;
  step?: string | undefined;
  from?: string | undefined;
  to?: string | undefined;
}

export interface EditSearch {
  cron?: string | undefined;
  zone?: string | undefined;
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : typeof value === "number" ? String(value) : undefined;
}

export function workflowSearch(given: Record<string, unknown>): WorkflowSearch {
  const view = VIEWS.find((each) => each === given["pane"]);
  return {
    ...(view && { pane: view }),
    version: text(given["version"]),
    step: text(given["step"]),
    from: text(given["from"]),
    to: text(given["to"]),
  };
}

export function editSearch(given: Record<string, unknown>): EditSearch {
  return { cron: text(given["cron"]), zone: text(given["zone"]) };
}

export function listSearch(given: Record<string, unknown>): { q?: string | undefined } {
  return { q: text(given["q"]) };
}
