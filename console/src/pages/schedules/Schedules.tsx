// What starts by the clock: when next, what became of the last times, and a new one.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useId, useState } from "react";
import { call, get } from "../../api/client.ts";
import { useNow } from "../../api/now.ts";
import { asProblem } from "../../api/problems.ts";
import type { Fire, Fires, Run, Schedule, SchedulePage, WorkflowPage } from "../../api/types.gen.ts";
import { useMay } from "../../context.ts";
import { Ask } from "../../parts/Ask.tsx";
import { useDraft } from "../../parts/draft.ts";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { Value } from "../../parts/Value.tsx";
import { exactly, momentIn, moment, ownZone, relative } from "../../text/dates.ts";
import { useLanguage, useText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";
import { scheduleInChinese } from "../../text/schedule.zh.ts";

const PAGE = 200;
const AGAIN_MS = 15_000;

export function Schedules() {
  const t = useText();
  const p = usePageText().schedules;
  const writes = useMay("check_workflows");
  const found = useQuery({
    queryKey: ["schedules"],
    queryFn: ({ signal }) => get<SchedulePage>(`/v1/schedules?limit=${PAGE}`, signal),
    refetchInterval: AGAIN_MS,
  });
  const items = found.data?.items ?? [];
  return (
    <>
      <h1>{p.title}</h1>
      <p role="status" className="quiet">
        {found.data ? p.shown(items.length) : found.isPending && t.app.loading}
      </p>
      {found.error && <ProblemNote problem={asProblem(found.error)} again={() => void found.refetch()} />}
      {found.data && items.length === 0 && (
        <div className="card">
          <h2>{p.empty}</h2>
          <p className="quiet">{p.emptyHint}</p>
        </div>
      )}
      <ul className="tiles wide">
        {items.map((each) => (
          <One key={each.id} schedule={each} />
        ))}
      </ul>
      {writes && <Create />}
    </>
  );
}

function One({ schedule }: { schedule: Schedule }) {
  const p = usePageText().schedules;
  const t = useText();
  const now = useNow();
  const queries = useQueryClient();
  const operates = useMay("control_runs");
  const [asking, setAsking] = useState(false);
  const [ran, setRan] = useState<Run | null>(null);
  const { busy, problem, send } = useSending();
  const path = `/v1/schedules/${encodeURIComponent(schedule.id)}`;

  async function act(what: "pause" | "resume" | "run"): Promise<void> {
    await send(async () => {
      const answer = await call<Run>("POST", `${path}/${what}`, undefined, what === "run" ? { key: crypto.randomUUID() } : {});
      setRan(what === "run" ? answer : null);
    });
    setAsking(false);
    void queries.invalidateQueries({ queryKey: ["schedules"] });
    void queries.invalidateQueries({ queryKey: ["fires", schedule.id] });
  }

  return (
    <li className="card stack">
      <div className="row">
        <h2 className="grow">
          <Go href={`/console/workflows/${encodeURIComponent(schedule.workflow)}`}>{schedule.workflow}</Go>
        </h2>
        {schedule.paused && <span className="tag warn">{p.paused}</span>}
        {schedule.next && (
          <time className="tag accent" dateTime={schedule.next} title={exactly(schedule.next)}>
            {p.next}{t.app.colon}{relative(schedule.next, now)}
          </time>
        )}
      </div>
      <p>
        <Said schedule={schedule} /> {schedule.cron && <code className="quiet">{schedule.cron}</code>}
      </p>
      <p className="quiet small">
        {p.overlap[schedule.overlap]}
        {t.app.gap}
        {p.missed[schedule.missed]}
        {schedule.last_run_id && (
          <>
            {" "}
            <Go href={`/console/runs/${schedule.last_run_id}`}>{p.lastRun}</Go>
          </>
        )}
      </p>
      {Object.keys(schedule.input).length > 0 && <Value value={schedule.input} />}
      <Times schedule={schedule} />
      {problem && !asking && <ProblemNote problem={problem} />}
      <div role="status">
        {ran && (
          <p className="note good">
            {p.ran} <Go href={`/console/runs/${ran.id}`}>{t.decision.toRun}</Go>
          </p>
        )}
      </div>
      {operates && (
        <div className="row">
          {schedule.paused ? (
            <button disabled={busy} onClick={() => void act("resume")}>
              {p.resume}
            </button>
          ) : (
            <button disabled={busy} onClick={() => setAsking(true)}>
              {p.pause}
            </button>
          )}
          <button disabled={busy} onClick={() => void act("run")}>
            {p.run}
          </button>
        </div>
      )}
      {asking && (
        <Ask title={p.pauseTitle(schedule.workflow)} yes={p.pause} busy={busy} problem={busy ? problem : null} onYes={() => void act("pause")} onNo={() => setAsking(false)}>
          <p>{p.pauseNote}</p>
        </Ask>
      )}
    </li>
  );
}

/** When it fires, in words. A server of before says it in English alone. */
function Said({ schedule }: { schedule: Schedule }) {
  const said = useLanguage() === "zh" ? scheduleInChinese(schedule.explained ?? []) : null;
  return said === null ? <span lang="en">{schedule.explanation}</span> : <span>{said}</span>;
}

function Times({ schedule }: { schedule: Schedule }) {
  const p = usePageText().schedules;
  const t = useText();
  const [open, setOpen] = useState(false);
  const found = useQuery({
    queryKey: ["fires", schedule.id],
    queryFn: ({ signal }) => get<Fires>(`/v1/schedules/${encodeURIComponent(schedule.id)}/fires?limit=8`, signal),
    enabled: open,
    refetchInterval: AGAIN_MS,
  });
  const here = ownZone();
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{p.times}</summary>
      {found.error && <ProblemNote problem={asProblem(found.error)} />}
      {found.data && (
        <div className="halves">
          <div>
            <h3>{p.next}</h3>
            <ol className="times">
              {found.data.next.map((each) => (
                <li key={each}>
                  <time dateTime={each}>{moment(each)}</time>{" "}
                  {schedule.timezone !== here && (
                    <span className="quiet small">
                      {momentIn(each, schedule.timezone)} {p.zone(schedule.timezone)}
                    </span>
                  )}
                </li>
              ))}
            </ol>
            {found.data.next.length === 0 && <p className="quiet">{t.app.none}</p>}
          </div>
          <div>
            <h3>{p.past}</h3>
            {found.data.past.length === 0 && <p className="quiet">{p.never}</p>}
            <ol className="times">
              {found.data.past.map((each) => (
                <Fired key={each.at} fire={each} />
              ))}
            </ol>
          </div>
        </div>
      )}
    </details>
  );
}

function Fired({ fire }: { fire: Fire }) {
  const p = usePageText().schedules;
  const tone = fire.outcome === "started" ? "good" : fire.outcome === "refused" ? "bad" : "";
  const said = fire.outcome === null ? p.open : p.outcomes[fire.outcome];
  return (
    <li>
      <time dateTime={fire.at}>{moment(fire.at)}</time>{" "}
      {fire.run_id ? (
        <Go href={`/console/runs/${fire.run_id}`} className={`tag ${tone}`}>
          {said}
        </Go>
      ) : (
        <span className={`tag ${tone}`}>{said}</span>
      )}
    </li>
  );
}

function Create() {
  const p = usePageText().schedules;
  const id = useId();
  const navigate = useNavigate();
  const [draft, write, forget] = useDraft("schedule", () => ({ workflow: "", cron: "0 9 * * 1-5", zone: ownZone() }));
  const { workflow, cron, zone } = draft;
  const [begun] = useState(workflow !== "");
  const known = useQuery({
    queryKey: ["workflows", "names"],
    queryFn: ({ signal }) => get<WorkflowPage>("/v1/workflows?limit=200", signal),
  });
  const zones = Intl.supportedValuesOf("timeZone");
  return (
    <details className="card" open={begun}>
      <summary>{p.create}</summary>
      <form
        className="stack narrow"
        onSubmit={(event) => {
          event.preventDefault();
          if (!workflow) return;
          forget();
          void navigate({ to: "/workflows/$name/edit", params: { name: workflow }, search: { cron: cron.trim(), zone } });
        }}
      >
        <p className="quiet">{p.createHint}</p>
        <div className="field">
          <label htmlFor={`${id}w`}>{p.workflow}</label>
          <select id={`${id}w`} required value={workflow} onChange={(event) => write({ ...draft, workflow: event.currentTarget.value })}>
            <option value="" />
            {[...new Set([workflow, ...(known.data?.items ?? []).map((each) => each.name)])].filter(Boolean).map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </div>
        <div className="field">
          <label htmlFor={`${id}c`}>{p.cron}</label>
          <input id={`${id}c`} required value={cron} onInput={(event) => write({ ...draft, cron: event.currentTarget.value })} />
        </div>
        <div className="field">
          <label htmlFor={`${id}z`}>{p.timezone}</label>
          <select id={`${id}z`} value={zone} onChange={(event) => write({ ...draft, zone: event.currentTarget.value })}>
            {[...new Set([zone, "UTC", ...zones])].map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </div>
        <div>
          <button className="main">{p.write}</button>
        </div>
      </form>
    </details>
  );
}
