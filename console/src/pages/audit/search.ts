// Which records of the audit are shown, as the address says it.

export interface AuditSearch {
  principal?: string | undefined;
  act?: string | undefined;
  run_id?: string | undefined;
  subject?: string | undefined;
  since?: string | undefined;
  until?: string | undefined;
}

export const FILTERS = ["principal", "act", "run_id", "subject", "since", "until"] as const;

export function auditSearch(given: Record<string, unknown>): AuditSearch {
  const found: AuditSearch = {};
  for (const each of FILTERS) {
    const value = given[each];
    if (typeof value === "string" && value !== "") found[each] = value.slice(0, 400);
  }
  return found;
}

/** The query of the API: moments that the reader's clock shows are said with their zone. */
export function auditQuery(search: AuditSearch, limit: number, cursor: string | null): string {
  const query = new URLSearchParams({ limit: String(limit) });
  for (const each of FILTERS) {
    const value = search[each];
    if (!value) continue;
    if (each !== "since" && each !== "until") query.set(each, value);
    else if (!Number.isNaN(Date.parse(value))) query.set(each, new Date(value).toISOString());
  }
  if (cursor) query.set("cursor", cursor);
  return query.toString();
}
