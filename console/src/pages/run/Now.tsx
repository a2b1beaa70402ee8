// What a run is doing at this moment, and why it does not go on: of each open step its attempt, its worker, and what it
// waits for. It comes from the open steps alone, so it is there before the log is.

import type { ReactNode } from "react";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { get } from "../../api/client.ts";
import type { Graph, Run, RunStep, Snapshot, StepPage } from "../../api/types.gen.ts";
import { Go } from "../../parts/Go.tsx";
import { exactly, relative, span } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";
import { humanised } from "../../text/names.ts";
import { doingNow } from "./doing.ts";
import { runPath } from "./early.ts";
import { messageOf } from "./StepCard.tsx";

const SHOWN = 8;

interface NowProps {
  run: Run;
  /** The newest event that is known: another one may have changed what is open. */
  head: number;
  now: number;
  snapshot: Snapshot | undefined;
  graph: Graph | undefined;
  onStep(path: string): void;
}

export function Now({ run, head, now, snapshot, graph, onStep }: NowProps) {
  const t = useText();
  const p = usePageText();
  const found = useQuery({
    queryKey: ["open-steps", run.id, head],
    queryFn: ({ signal }) => get<StepPage>(`${runPath(run.id)}/steps?open=true&limit=200`, signal),
    placeholderData: keepPreviousData,
    gcTime: 20_000,
  });
  if (run.ended_at !== null) return null;
  const steps = doingNow(found.data?.items ?? []);
  return (
    <section className="card now" aria-labelledby="now-title">
      <h2 id="now-title">{p.now.title}</h2>
      {found.isPending && <p role="status">{t.app.loading}</p>}
      <Standing run={run} nothing={found.data !== undefined && steps.length === 0} />
      <ul className="findings">
        {steps.slice(0, SHOWN).map((step) => (
          <li key={step.path}>
            <Doing step={step} run={run} now={now} snapshot={snapshot} graph={graph} onStep={onStep} />
          </li>
        ))}
      </ul>
      {steps.length > SHOWN && <p className="quiet small">{p.now.more(steps.length - SHOWN)}</p>}
    </section>
  );
}

/** What holds the whole run up. */
function Standing({ run, nothing }: { run: Run; nothing: boolean }) {
  const p = usePageText();
  const holder = run.held_by ?? null;
  if (run.unreadable !== null) return <p>{p.now.unreadable}</p>;
  if (run.status === "paused") return <p>{p.now.paused}</p>;
  if (run.status === "needs_attention") return <p>{p.now.attention}</p>;
  if (run.status === "queued") return <p>{p.now.queued}</p>;
  if (holder !== null && !holder.alive) return <p className="note bad">{p.now.dead(holder.name)}</p>;
  if (nothing && run.status === "running") return <p>{holder === null ? p.now.nobody(run.queue) : p.now.between}</p>;
  return null;
}

interface DoingProps {
  step: RunStep;
  run: Run;
  now: number;
  snapshot: Snapshot | undefined;
  graph: Graph | undefined;
  onStep(path: string): void;
}

function Doing({ step, run, now, snapshot, graph, onStep }: DoingProps) {
  const t = useText();
  const p = usePageText();
  const attempt = step.attempts.findLast((each) => each.ended_at === null);
  const last = step.attempts.at(-1);
  const waits = step.waits.filter((each) => each.until === null);
  const written = graph?.steps.find((each) => each.path === step.plan_path);
  const target = written?.["detail"];
  const limit = written?.notes.find((each) => each.startsWith("timeout "))?.slice("timeout ".length);
  const ends = snapshot?.timers.find((each) => each.path === step.path && each.kind === "timeout");
  const told = (at: string): string => span(Math.max(0, now - Date.parse(at)));
  return (
    <>
      <button className="plain slim" onClick={() => onStep(step.path)}>
        {p.now.step(step.title ?? humanised(step.path.split("/").at(-1) ?? step.path))}
      </button>
      <dl className="inline small">
        {attempt && waits.length === 0 && (
          <>
            {target && <Fact name={p.now.calls}>{target}</Fact>}
            <Fact name={p.now.works} at={attempt.started_at}>{p.now.since(told(attempt.started_at))}</Fact>
            {limit && <Fact name={p.now.limit}>{limit}</Fact>}
            <Fact name={p.now.attempt}>{String(attempt.n)}</Fact>
            {run.held_by && <Fact name={p.now.worker}>{run.held_by.name}</Fact>}
            {!run.held_by && run.status === "running" && run.held_by !== undefined && <Fact name={p.now.worker}>{p.now.nobody(run.queue)}</Fact>}
          </>
        )}
        {ends && <Fact name={p.now.timesOut} at={ends.due}>{relative(ends.due, now)}</Fact>}
        {waits.map((each, i) => (
          <Fact key={i} name={p.now.waits[each.for]} at={each.since}>
            {p.now.since(told(each.since))}
            {each.due !== null && ` · ${p.now.until(relative(each.due, now))}`}
            {each.pending_id !== null && (
              <>
                {" · "}
                <Go href={`/console/inbox/${encodeURIComponent(each.pending_id)}`}>{p.now.question}</Go>
              </>
            )}
          </Fact>
        ))}
        {step.children.map((each) => (
          <Fact key={each} name={p.now.child}>
            <Go href={`/console/runs/${encodeURIComponent(each)}`}>{t.decision.toRun}</Go>
          </Fact>
        ))}
        {last?.error && <Fact name={p.now.lastError}>{messageOf(last.error)}</Fact>}
      </dl>
    </>
  );
}

function Fact({ name, at, children }: { name: string; at?: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd title={at === undefined ? undefined : exactly(at)}>{children}</dd>
    </div>
  );
}
