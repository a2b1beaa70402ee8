// Which figures of oversight are shown, as the address says it.

export const SPANS = ["24h", "7d", "30d", "90d"] as const;

export interface OversightSearch {
  by?: "tool" | undefined;
  since?: string | undefined;
}

export function oversightSearch(given: Record<string, unknown>): OversightSearch {
  const since = SPANS.find((each) => each === given["since"] && each !== "30d");
  return { by: given["by"] === "tool" ? "tool" : undefined, since };
}
