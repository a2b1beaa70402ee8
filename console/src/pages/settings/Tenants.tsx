// What tenants may have.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call, get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { Limits, Tenant, Tenants as Page } from "../../api/types.gen.ts";
import { useDraft } from "../../parts/draft.ts";
import { Field, SmallForm } from "../../parts/Field.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { useText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";

const LIMITS = ["runs_per_minute", "open_runs", "followers", "log_bytes"] as const satisfies (keyof Limits)[];

export function Tenants() {
  const t = useText();
  const p = usePageText().settings.tenants;
  const found = useQuery({ queryKey: ["tenants"], queryFn: ({ signal }) => get<Page>("/v1/tenants", signal) });
  return (
    <div className="stack">
      <p className="quiet">{p.hint}</p>
      {found.error && <ProblemNote problem={asProblem(found.error)} />}
      {found.isPending && <p role="status">{t.app.loading}</p>}
      {found.data?.items.map((each) => (
        <One key={each.id} tenant={each} />
      ))}
    </div>
  );
}

function One({ tenant }: { tenant: Tenant }) {
  const p = usePageText().settings.tenants;
  const queries = useQueryClient();
  const [written, setWritten, forget] = useDraft<Record<string, string>>(`tenant.${tenant.id}`, () => Object.fromEntries(LIMITS.map((each) => [each, tenant.limits[each]?.toString() ?? ""])));
  const [saved, setSaved] = useState(false);
  const { busy, problem, send } = useSending();
  const inForce = (each: keyof Limits): string => {
    const limit = tenant.in_force[each];
    return p.inForce(limit ? limit.toLocaleString() : p.unlimited);
  };

  async function save(): Promise<void> {
    setSaved(false);
    await send(async () => {
      const body = Object.fromEntries(LIMITS.map((each) => [each, written[each] === "" ? null : Number(written[each])]));
      await call("PATCH", `/v1/tenants/${encodeURIComponent(tenant.name)}`, body);
      forget();
      setSaved(true);
      await queries.invalidateQueries({ queryKey: ["tenants"] });
    });
  }

  return (
    <SmallForm send={p.save} problem={problem} busy={busy} onSend={() => void save()} beside={<span role="status">{saved && p.saved}</span>}>
      <h3>{tenant.name}</h3>
      <div className="halves">
        {LIMITS.map((each) => (
          <Field
            key={each}
            id={`${tenant.id}${each}`}
            label={p[each]}
            type="number"
            value={written[each] ?? ""}
            onChange={(value) => setWritten({ ...written, [each]: value })}
            hint={inForce(each)}
          />
        ))}
      </div>
    </SmallForm>
  );
}
