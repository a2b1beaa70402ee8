// What changed from one version to another, and whether runs in flight could go on with it.

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { Change, ChangedPart, Diff, MigratedRun, Migration, Workflow } from "../../api/types.gen.ts";
import { useMay } from "../../context.ts";
import { brief } from "../../logic/json.ts";
import { nameOfVersion } from "../../logic/versions.ts";
import { Ask } from "../../parts/Ask.tsx";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { findingText } from "../../text/index.ts";
import { useRunText } from "../../text/runs.ts";
import { usePageText } from "../../text/pages.ts";
import { Backtest } from "./Backtest.tsx";
import { Retire } from "./Retire.tsx";
import { type WorkflowSearch } from "./search.ts";

const LONG = 600;

interface VersionsProps {
  workflow: Workflow;
  search: WorkflowSearch;
  set(more: Partial<WorkflowSearch>): void;
}

export function Versions({ workflow, search, set }: VersionsProps) {
  const p = usePageText().workflows;
  const operates = useMay("control_runs");
  const names = workflow.versions.map(nameOfVersion);
  const to = search.to ?? names[0] ?? "";
  const from = search.from ?? names.find((each) => each !== to) ?? "";
  const publishes = useMay("publish");
  const watches = useMay("see_runs");
  if (names.length < 2)
    return (
      <div className="stack">
        <p className="quiet">{p.oneVersion}</p>
        {publishes && <Retire workflow={workflow} />}
      </div>
    );
  return (
    <div className="stack">
      {publishes && <Retire workflow={workflow} />}
      <div className="row">
        <Choice id="from" label={p.from} names={names} value={from} onChange={(each) => set({ from: each })} />
        <Choice id="to" label={p.to} names={names} value={to} onChange={(each) => set({ to: each })} />
      </div>
      <Changes key={`${from} ${to}`} name={workflow.name} from={from} to={to} />
      {watches && <Backtest key={`backtest ${to}`} name={workflow.name} to={to} />}
      {operates && <Move key={`move ${from} ${to}`} name={workflow.name} from={from} to={to} />}
    </div>
  );
}

function Choice(props: { id: string; label: string; names: string[]; value: string; onChange(name: string): void }) {
  return (
    <div className="field grow">
      <label htmlFor={props.id}>{props.label}</label>
      <select id={props.id} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        {props.names.map((each) => (
          <option key={each}>{each}</option>
        ))}
      </select>
    </div>
  );
}

function Changes({ name, from, to }: { name: string; from: string; to: string }) {
  const t = useRunText();
  const p = usePageText().workflows;
  const found = useQuery({
    queryKey: ["diff", name, from, to],
    queryFn: ({ signal }) => get<Diff>(`/v1/workflows/${encodeURIComponent(name)}/diff?${new URLSearchParams({ from, to })}`, signal),
    enabled: from !== to,
  });
  if (from === to) return <p>{p.same}</p>;
  if (found.error) return <ProblemNote problem={asProblem(found.error)} again={() => void found.refetch()} />;
  if (!found.data) return <p role="status">{t.app.loading}</p>;
  const { document, steps } = found.data;
  if (document.length + steps.length === 0) return <p>{p.same}</p>;
  return (
    <section className="card stack" aria-label={p.compare}>
      {document.length > 0 && (
        <div>
          <h2>{p.document}</h2>
          <Parts parts={document} />
        </div>
      )}
      {steps.length > 0 && (
        <div>
          <h2>{p.everyStep}</h2>
          <ul className="changes">
            {steps.map((each) => (
              <Step key={`${each.kind} ${each.path}`} change={each} />
            ))}
          </ul>
        </div>
      )}
    </section>
  );
}

const TONES = { added: "good", removed: "bad", moved: "accent", changed: "warn" } as const;

function Step({ change }: { change: Change }) {
  const p = usePageText().workflows;
  return (
    <li>
      <span className={`tag ${TONES[change.kind]}`}>{p.kinds[change.kind]}</span> <code>{change.path}</code>{" "}
      <span className="quiet small">
        {change.verb} {change.was && p.was(change.was)}
      </span>
      <Parts parts={change.parts} />
    </li>
  );
}

function Parts({ parts }: { parts: ChangedPart[] }) {
  const t = useRunText();
  return (
    <dl className="facts">
      {parts.map((each) => (
        <div key={each.key}>
          <dt>{each.key}</dt>
          <dd>
            {each.from !== null && (
              <del>
                <span className="hidden">{t.decision.before}{t.app.colon}</span>
                {brief(each.from, LONG)}
              </del>
            )}{" "}
            {each.to !== null && (
              <ins>
                <span className="hidden">{t.decision.after}{t.app.colon}</span>
                {brief(each.to, LONG)}
              </ins>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Move({ name, from, to }: { name: string; from: string; to: string }) {
  const p = usePageText().workflows;
  const [told, setTold] = useState<Migration | null>(null);
  const [asking, setAsking] = useState(false);
  const { busy, problem, send } = useSending();
  const movable = told?.runs.filter((each) => each.movable && !each.moved) ?? [];

  async function migrate(body: Record<string, unknown>): Promise<void> {
    await send(async () =>
      setTold(await call<Migration>("POST", `/v1/workflows/${encodeURIComponent(name)}/migrate`, { from, to, ...body })),
    );
    setAsking(false);
  }

  return (
    <section className="card stack">
      <h2>{p.migrate}</h2>
      <p className="quiet">{p.migrateHint}</p>
      <div className="row">
        <button disabled={busy || from === to} className={busy ? "busy" : ""} onClick={() => void migrate({ dry_run: true })}>
          {p.rehearse}
        </button>
        {told?.dry_run && movable.length > 0 && (
          <button className="main" disabled={busy} onClick={() => setAsking(true)}>
            {p.move(movable.length)}
          </button>
        )}
      </div>
      {problem && !asking && <ProblemNote problem={problem} />}
      <div role="status">
        {told?.runs.length === 0 && <p>{p.noRuns}</p>}
        {told?.more && <p className="note warn">{p.moreRuns}</p>}
      </div>
      {told && told.runs.length > 0 && (
        <ul className="changes">
          {told.runs.slice(0, 200).map((each) => (
            <Moved key={each.id} run={each} />
          ))}
        </ul>
      )}
      {asking && (
        <Ask
          title={p.moveTitle(movable.length, to)}
          yes={p.move(movable.length)}
          busy={busy}
          problem={busy ? problem : null}
          onYes={() => void migrate({ runs: movable.map((each) => each.id) })}
          onNo={() => setAsking(false)}
        />
      )}
    </section>
  );
}

function Moved({ run }: { run: MigratedRun }) {
  const t = useRunText();
  const p = usePageText().workflows;
  return (
    <li>
      <span className={`tag ${run.moved ? "good" : run.movable ? "accent" : "bad"}`}>{run.moved ? p.moved : run.movable ? p.movable : p.stays}</span>{" "}
      <Go href={`/console/runs/${run.id}`}>{run.id}</Go> <span className="quiet small">{t.runs.statuses[run.status]}</span>
      {run.obstacles.length > 0 && (
        <ul className="small">
          {run.obstacles.map((each) => (
            <li key={`${each.code} ${each.path}`}>
              {each.path && <code>{each.path}</code>} {findingText(each)}
            </li>
          ))}
        </ul>
      )}
    </li>
  );
}
