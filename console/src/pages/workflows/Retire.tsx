// Versions that are in use, and those with which nothing begins any more.

import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call } from "../../api/client.ts";
import type { Workflow, WorkflowSummary } from "../../api/types.gen.ts";
import { nameOfVersion, referenceOf } from "../../logic/versions.ts";
import { Ask } from "../../parts/Ask.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { moment } from "../../text/dates.ts";
import { usePageText } from "../../text/pages.ts";

/** Each version with the button that retires it, or takes it back into use. */
export function Retire({ workflow }: { workflow: Workflow }) {
  const p = usePageText().workflows;
  const queries = useQueryClient();
  const [asking, setAsking] = useState<WorkflowSummary | null>(null);
  const { busy, problem, send } = useSending();

  async function change(version: WorkflowSummary, act: "retire" | "unretire"): Promise<void> {
    const refused = await send(() => call("POST", `/v1/workflows/${encodeURIComponent(referenceOf(workflow.name, version))}/${act}`));
    if (refused === null) setAsking(null);
    await Promise.all(["workflow", "workflows"].map((key) => queries.invalidateQueries({ queryKey: [key] })));
  }

  return (
    <section className="card stack">
      <h2>{p.inUse}</h2>
      <p className="quiet">{p.retireHint}</p>
      {problem && !asking && <ProblemNote problem={problem} />}
      <ul className="changes">
        {workflow.versions.map((each) => (
          <li key={each.sha256} className="row">
            <span className="grow">
              {p.version(each.version)} {nameOfVersion(each) !== String(each.version) && <code className="quiet">{nameOfVersion(each)}</code>}{" "}
              {each.retired_at !== null && <span className="tag bad">{p.retired(moment(each.retired_at))}</span>}
            </span>
            {each.retired_at === null ? (
              <button disabled={busy} onClick={() => setAsking(each)}>{p.retire}</button>
            ) : (
              <button disabled={busy} onClick={() => void change(each, "unretire")}>{p.unretire}</button>
            )}
          </li>
        ))}
      </ul>
      {asking && (
        <Ask
          title={p.retireTitle(referenceOf(workflow.name, asking))}
          yes={p.retire}
          dangerous
          busy={busy}
          problem={problem}
          onYes={() => void change(asking, "retire")}
          onNo={() => setAsking(null)}
        />
      )}
    </section>
  );
}
