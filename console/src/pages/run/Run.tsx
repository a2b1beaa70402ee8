// One run: what was said, how long its steps took, its state and its events; one slider moves all of them.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useEffect, useId, useMemo, useRef, useState } from "react";
import { useMay } from "../../context.ts";
import { call, get } from "../../api/client.ts";
import { useNow } from "../../api/now.ts";
import { type Problem, asProblem } from "../../api/problems.ts";
import type { Run as RunShape, Snapshot } from "../../api/types.gen.ts";
import { upTo, usedOf } from "../../logic/log.ts";
import { plainName } from "../../logic/seats.ts";
import { Ask } from "../../parts/Ask.tsx";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { Status } from "../../parts/Status.tsx";
import { Value } from "../../parts/Value.tsx";
import { exactly, moment, span } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { isTyping } from "../decide/Decision.tsx";
import { TONES } from "../runs/filters.ts";
import { Conversation } from "./Conversation.tsx";
import { Events } from "./Events.tsx";
import { TABS, type Tab } from "./search.ts";
import { useLog } from "./useLog.ts";
import { Waterfall } from "./Waterfall.tsx";

const SETTLE_MS = 60;

export function Run({ id }: { id: string }) {
  const t = useText();
  const navigate = useNavigate();
  const search = getRouteApi("/runs/$id").useSearch();
  const log = useLog(id);
  const now = useNow();
  const at = search.at === undefined ? null : Math.min(search.at, log.loaded ? log.head : search.at);
  const seq = useSettled(at ?? log.head);
  const found = useQuery({ queryKey: ["run", id, log.head], queryFn: ({ signal }) => get<RunShape>(`/v1/runs/${encodeURIComponent(id)}`, signal), placeholderData: keepPreviousData });
  const snapshot = useQuery({
    queryKey: ["snapshot", id, seq],
    queryFn: ({ signal }) => get<Snapshot>(`/v1/runs/${encodeURIComponent(id)}/snapshot?at=${seq}`, signal),
    enabled: log.loaded,
    staleTime: Infinity, // what has happened does not change
    placeholderData: keepPreviousData,
  });
  const shown = useMemo(() => upTo(log.events, at ?? log.head), [log.events, log.head, at]);
  const used = useMemo(() => usedOf(shown), [shown]);
  const tab: Tab = search.tab ?? "conversation";
  const go = (more: { at?: number | undefined; tab?: Tab | undefined }): void =>
    void navigate({ to: "/runs/$id", params: { id }, search: { ...search, ...more }, replace: true });

  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
      const step = { "[": -1, "]": 1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const to = Math.min(log.head, Math.max(0, (at ?? log.head) + step));
      go({ at: to === log.head ? undefined : to });
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  });

  const run = found.data;
  if (!run) {
    if (!found.error) return <p role="status">{t.app.loading}</p>;
    const problem = asProblem(found.error);
    if (problem.status !== 404) return <ProblemNote problem={problem} again={() => void found.refetch()} />;
    return (
      <>
        <h1>{t.app.unknownTitle}</h1>
        <p>{t.app.unknown}</p>
      </>
    );
  }
  const then = at === null ? now : (shown.at(-1)?.at ?? now);
  const state = snapshot.data;
  const began = new Date(run.created_at).getTime();
  const ended = run.ended_at === null ? now : new Date(run.ended_at).getTime();
  return (
    <div className="stack">
      <header>
        <div className="row">
          <h1 className="grow">{t.run.title(run.workflow)}</h1>
          <span className={`tag ${TONES[run.status]}`}>{t.runs.statuses[run.status]}</span>
          {run.ended_at === null && <Status connection={log.connection} />}
        </div>
        <dl className="facts small">
          <dt>{t.run.startedBy}</dt>
          <dd>
            {plainName(run.started_by)}, <time dateTime={run.created_at} title={exactly(run.created_at)}>{moment(run.created_at)}</time>
          </dd>
          <dt>{t.run.lasted}</dt>
          <dd>{span(Math.max(0, ended - began))}</dd>
          <dt>{t.run.version}</dt>
          <dd>
            {run.version.version}
            {run.version.dev && <span className="quiet"> ({t.app.development})</span>}
          </dd>
          <dt>{t.run.thread}</dt>
          <dd>
            <Go href={`/console/runs?thread=${encodeURIComponent(run.thread_id)}`}>{run.thread_id.slice(0, 80)}</Go>
          </dd>
        </dl>
        {used.calls > 0 && (
          <p className="quiet small">
            {t.run.models(used.calls, used.tokens)}
            {used.cost !== null && `, ${t.run.cost(used.cost.toPrecision(3))}`}
          </p>
        )}
      </header>
      {log.problem && log.connection === "lost" && <ProblemNote problem={log.problem} />}
      <Controls run={run} done={() => void found.refetch()} />
      {run.error !== null && (
        <div className="note bad">
          <p>
            <b>{t.run.error}</b> {typeof run.error["path"] === "string" && run.error["path"] !== "" && t.run.at(run.error["path"])}
          </p>
          <Value value={run.error} />
        </div>
      )}
      <Travel at={at} head={log.head} then={then} onChange={(to) => go({ at: to })} />
      <Tabs tab={tab} onChange={(to) => go({ tab: to === "conversation" ? undefined : to })} />
      <section role="tabpanel" aria-label={t.run.tabs[tab]} aria-busy={snapshot.isPlaceholderData} data-seq={state?.seq}>
        {snapshot.error && <ProblemNote problem={asProblem(snapshot.error)} again={() => void snapshot.refetch()} />}
        {!log.loaded && !log.problem && (
          <p role="status" className="quiet">
            {t.run.loadingEvents(log.events.length, run.seq)}
          </p>
        )}
        {tab === "conversation" && state && <Conversation snapshot={state} events={shown} past={at !== null} />}
        {tab === "waterfall" && <Waterfall events={shown} now={then} />}
        {tab === "state" && state && <State snapshot={state} run={run} />}
        {tab === "events" && <Events events={shown} head={log.head} live={at === null} onMoment={(to) => go({ at: to })} />}
      </section>
    </div>
  );
}

/** The value, once it has stopped changing for a moment: a slider passes hundreds of places. */
function useSettled(value: number): number {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

function Travel({ at, head, then, onChange }: { at: number | null; head: number; then: number; onChange(at: number | undefined): void }) {
  const t = useText();
  const id = useId();
  const place = at ?? head;
  const move = (to: number): void => onChange(to >= head ? undefined : Math.max(0, to));
  return (
    <div className={`travel ${at === null ? "" : "past"}`}>
      <div className="row">
        <label htmlFor={id} className="hidden">
          {t.run.slider}
        </label>
        <button aria-label={t.run.earlier} disabled={place <= 0} onClick={() => move(place - 1)}>
          ‹
        </button>
        <input
          id={id}
          className="grow"
          type="range"
          min={0}
          max={Math.max(1, head)}
          value={place}
          aria-valuetext={t.run.moment(place, head)}
          onInput={(event) => move(Number(event.currentTarget.value))}
        />
        <button aria-label={t.run.later} disabled={at === null} onClick={() => move(place + 1)}>
          ›
        </button>
        {at !== null && (
          <button className="main" onClick={() => onChange(undefined)}>
            {t.run.now}
          </button>
        )}
      </div>
      <p className="small quiet" role="status">
        {place === 0 ? t.run.beginning : `${t.run.moment(place, head)} · ${moment(then)}`} {at !== null && t.run.past}
      </p>
    </div>
  );
}

function Tabs({ tab, onChange }: { tab: Tab; onChange(tab: Tab): void }) {
  const t = useText();
  const list = useRef<HTMLDivElement>(null);
  return (
    <div
      className="tabs"
      role="tablist"
      aria-label={t.run.views}
      ref={list}
      onKeyDown={(event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (step === undefined) return;
        const to = (TABS.indexOf(tab) + step + TABS.length) % TABS.length;
        onChange(TABS[to] ?? tab);
        list.current?.querySelectorAll("button")[to]?.focus();
      }}
    >
      {TABS.map((each) => (
        <button key={each} role="tab" aria-selected={each === tab} tabIndex={each === tab ? 0 : -1} onClick={() => onChange(each)}>
          {t.run.tabs[each]}
        </button>
      ))}
    </div>
  );
}

function State({ snapshot, run }: { snapshot: Snapshot; run: RunShape }) {
  const t = useText();
  const steps = Object.entries(snapshot.steps);
  return (
    <div className="stack">
      <section className="card">
        <h2>{t.run.shared}</h2>
        <Value value={snapshot.state} />
      </section>
      <section className="card">
        <h2>{t.run.input}</h2>
        <Value value={run.input} />
      </section>
      {snapshot.output !== null && (
        <section className="card">
          <h2>{t.run.output}</h2>
          <Value value={snapshot.output} />
        </section>
      )}
      <section className="card">
        <h2>{t.run.steps}</h2>
        {steps.length === 0 && <p className="quiet">{t.run.empty}</p>}
        <ul className="items">
          {steps.slice(0, 500).map(([path, step]) => (
            <li key={path}>
              <div className="grow">
                <b>{path}</b> <span className="tag">{step.status}</span>{" "}
                {step.attempt > 1 && <span className="quiet small">{t.run.attempts(step.attempt)}</span>}
                {step.output !== undefined && step.output !== null && <Value value={step.output} />}
                {step.error && <Value value={step.error} />}
              </div>
            </li>
          ))}
        </ul>
      </section>
    </div>
  );
}

type Control = "pause" | "resume" | "stop" | "terminate" | "retry";

function controlsOf(status: RunShape["status"]): Control[] {
  switch (status) {
    case "queued":
    case "running":
    case "waiting":
      return ["pause", "stop", "terminate"];
    case "paused":
      return ["resume", "stop", "terminate"];
    case "stopping":
      return ["terminate"];
    case "needs_attention":
      return ["retry", "stop", "terminate"];
    case "failed":
      return ["retry"];
    default:
      return [];
  }
}

function Controls({ run, done }: { run: RunShape; done(): void }) {
  const t = useText();
  const may = useMay("control_runs");
  const [asking, setAsking] = useState<Control | null>(null);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [reason, setReason] = useState("");
  const controls = may ? controlsOf(run.status) : [];
  if (controls.length === 0) return null;
  const send = async (control: Control): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      const body = control === "resume" || control === "retry" ? undefined : { reason };
      await call("POST", `/v1/runs/${run.id}/${control}`, body);
      setReason("");
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setAsking(null);
      setBusy(false);
      done();
    }
  };
  return (
    <div className="row">
      {controls.map((each) => (
        <button key={each} className={each === "terminate" ? "bad" : ""} onClick={() => setAsking(each)}>
          {t.run.controls[each]}
        </button>
      ))}
      {problem && <ProblemNote problem={problem} />}
      {asking && (
        <Ask
          title={t.decision.confirm(t.run.controls[asking])}
          yes={t.run.controls[asking]}
          dangerous={asking === "terminate" || asking === "stop"}
          busy={busy}
          onYes={() => void send(asking)}
          onNo={() => setAsking(null)}
        >
          <p>{t.run.explains[asking]}</p>
          {asking !== "resume" && asking !== "retry" && (
            <div className="field">
              <label htmlFor="control-reason">{t.decision.reason}</label>
              <textarea id="control-reason" rows={2} maxLength={2000} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
            </div>
          )}
        </Ask>
      )}
    </div>
  );
}
