// One run: what was said, the path it took, how long its steps took, its state and its events. One slider moves all of
// them, and one step is chosen in all of them.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useEffect, useId, useMemo, useRef, useState } from "react";
import { get } from "../../api/client.ts";
import { useNow } from "../../api/now.ts";
import { asProblem } from "../../api/problems.ts";
import type { Run as RunShape, Snapshot } from "../../api/types.gen.ts";
import { useMay } from "../../context.ts";
import { type Passed, passedOf, spansOf, upTo } from "../../logic/log.ts";
import { usedOf } from "../../logic/record.ts";
import { plainName } from "../../logic/seats.ts";
import { Go } from "../../parts/Go.tsx";
import { Graph } from "../../parts/Graph.tsx";
import { Lacking } from "../../parts/Missing.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { Status } from "../../parts/Status.tsx";
import { exactly, moment, span } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { isTyping } from "../decide/Decision.tsx";
import { TONES } from "../runs/filters.ts";
import { Controls } from "./Controls.tsx";
import { Conversation } from "./Conversation.tsx";
import { Events } from "./Events.tsx";
import { Fork } from "./Fork.tsx";
import { Models } from "./Models.tsx";
import { planPathOf, referenceOf, runPath, useGraph, useSnapshot, useSteps, useVersion, useWorkflow } from "./moment.ts";
import { type RunSearch, TABS, type Tab } from "./search.ts";
import { Skip } from "./Skip.tsx";
import { State } from "./State.tsx";
import { Failure, StepCard } from "./StepCard.tsx";
import { useLog } from "./useLog.ts";
import { useSettled } from "./useSettled.ts";
import { Waterfall } from "./Waterfall.tsx";

const SLIDER_MS = 60;
const LIVE_MS_MAX = 3_000;

export function Run({ id }: { id: string }) {
  const t = useText();
  const navigate = useNavigate();
  const search = getRouteApi("/runs/$id").useSearch();
  const mayRead = useMay("read_workflows");
  const log = useLog(id);
  const now = useNow();
  const at = search.at === undefined || (log.ready && search.at >= log.head) ? null : search.at;
  const [took, setTook] = useState(0);
  // A long run's snapshot takes a while: while it goes on, the page asks no more often than the server can tell.
  const seq = useSettled(at ?? log.head, at === null ? Math.min(LIVE_MS_MAX, Math.max(SLIDER_MS, 3 * took)) : SLIDER_MS);
  const head = useSettled(log.head, 500);
  const found = useQuery({
    queryKey: ["run", id, head],
    queryFn: ({ signal }) => get<RunShape>(runPath(id), signal),
    placeholderData: keepPreviousData,
  });
  const snapshot = useSnapshot(id, seq, log.ready);
  useEffect(() => setTook(snapshot.took), [snapshot.took]);
  const tab: Tab = search.tab ?? "conversation";
  const steps = useSteps(id, seq, log.ready && (tab === "graph" || tab === "waterfall" || search.step !== undefined));
  const run = found.data;
  const wantsPlan = mayRead && run !== undefined && (tab === "graph" || search.step !== undefined || run.error !== null);
  const version = useVersion(id, run, at === null ? null : seq, wantsPlan);
  const reference = run && version ? referenceOf(run.workflow, version) : "";
  const graph = useGraph(reference, wantsPlan && version !== undefined);
  const place = at ?? log.head;
  const shown = useMemo(() => upTo(log.events, place), [log.events, place]);
  const calls = useMemo(() => log.recorded.callsAt(place), [log.recorded, log.events, log.loaded, place]);
  const handovers = useMemo(() => log.recorded.handoversAt(place), [log.recorded, log.events, log.loaded, place]);
  const modelCalls = useMemo(() => log.recorded.modelCallsAt(place), [log.recorded, log.events, log.loaded, place]);
  const used = useMemo(() => usedOf(modelCalls), [modelCalls]);
  const then = at === null ? now : (shown.at(-1)?.at ?? now);
  // Each for the views that show it: of thousands of steps they take a while.
  const wantsSpans = tab === "waterfall" || search.step !== undefined;
  const spans = useMemo(() => (wantsSpans ? spansOf(steps.data ?? [], then) : []), [wantsSpans, steps.data, then]);
  const passed = useMemo(() => (tab === "graph" ? passedOf(steps.data ?? []) : new Map<string, Passed>()), [tab, steps.data]);
  const go = (more: RunSearch): void => void navigate({ to: "/runs/$id", params: { id }, search: { ...search, ...more }, replace: true });
  const goTo = (to: number): void => go({ at: to >= log.head ? undefined : Math.max(0, to) });
  const onStep = (step: string | undefined): void => go({ step });

  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
      const by = { "[": -1, "]": 1 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      goTo(place + by);
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  });

  if (!run) {
    if (!found.error) return <p role="status">{t.app.loading}</p>;
    return <Lacking problem={asProblem(found.error)} again={() => void found.refetch()} />;
  }
  const state = snapshot.data;
  const fault = steps.error ?? graph.error;
  return (
    <div className="stack">
      <Head run={run} used={used} snapshot={state} live={run.ended_at === null ? <Status connection={log.connection} /> : null} now={now} />
      {log.problem && log.connection === "lost" && <ProblemNote problem={log.problem} />}
      <Controls
        run={run}
        at={at}
        done={() => void found.refetch()}
        onCompare={() => void navigate({ to: "/runs/$id/compare", params: { id }, search: at === null ? {} : { from: at } })}
      />
      {run.error !== null && <RunFailure error={run.error} onStep={onStep} />}
      <Travel at={at} head={log.head} then={then} onChange={goTo} />
      <Tabs tab={tab} tabs={TABS.filter((each) => each !== "graph" || mayRead)} onChange={(to) => go({ tab: to === "conversation" ? undefined : to })} />
      <div className={search.step === undefined ? "" : "beside"}>
        <section
          role="tabpanel"
          aria-label={t.run.tabs[tab]}
          aria-busy={snapshot.isPlaceholderData || steps.isPlaceholderData}
          data-seq={state?.seq}
          data-steps={steps.data === undefined || steps.isPlaceholderData ? undefined : seq}
        >
          {snapshot.error && <ProblemNote problem={asProblem(snapshot.error)} again={() => void snapshot.refetch()} />}
          {fault && (tab === "graph" || tab === "waterfall") && <ProblemNote problem={asProblem(fault)} />}
          {!log.loaded && !log.problem && (
            <p role="status" className="quiet">
              {t.run.loadingEvents(log.read, run.seq)}
            </p>
          )}
          {tab === "conversation" && state && <Conversation snapshot={state} calls={calls} handovers={handovers} past={at !== null} onStep={onStep} />}
          {tab === "graph" && graph.data && (
            <Graph graph={graph.data} passed={passed} selected={search.step && planPathOf(search.step)} onSelect={(path) => onStep(passed.get(path)?.newest.path ?? path)} />
          )}
          {tab === "waterfall" && steps.data && <Waterfall spans={spans} selected={search.step} onStep={onStep} />}
          {tab === "state" && state && <State snapshot={state} run={run} onStep={onStep} />}
          {tab === "models" && <Models modelCalls={modelCalls} calls={calls} loaded={log.loaded} onStep={onStep} />}
          {tab === "events" && (
            <Events runId={id} events={shown} first={log.loaded ? (log.events[0]?.seq ?? 1) : 1} place={place} head={log.head} live={at === null} path={search.of} onMoment={goTo} onPath={(of) => go({ of })} />
          )}
        </section>
        {search.step !== undefined && (
          <Chosen
            run={run}
            at={at}
            path={search.step}
            reference={reference}
            known={{ steps: steps.data ?? [], spans, snapshot: state, calls, modelCalls }}
            place={graph.data?.steps.find((each) => each.path === planPathOf(search.step ?? "")) ?? null}
            onPath={onStep}
            onMoment={goTo}
            onEvents={(of) => go({ tab: "events", of })}
            done={() => void found.refetch()}
          />
        )}
      </div>
    </div>
  );
}

interface HeadProps {
  run: RunShape;
  used: ReturnType<typeof usedOf>;
  snapshot: Snapshot | undefined;
  live: React.ReactNode;
  now: number;
}

function Head({ run, used, snapshot, live, now }: HeadProps) {
  const t = useText();
  const began = Date.parse(run.created_at);
  const ended = run.ended_at === null ? now : Date.parse(run.ended_at);
  const origin = snapshot?.origin ?? null;
  return (
    <header>
      <div className="row">
        <h1 className="grow">{t.run.title(run.workflow)}</h1>
        <span className={`tag ${TONES[run.status]}`}>{t.runs.statuses[run.status]}</span>
        {live}
      </div>
      <dl className="inline small">
        <div>
          <dt>{t.run.startedBy}</dt>
          <dd>
            {plainName(run.started_by)},{" "}
            <time dateTime={run.created_at} title={exactly(run.created_at)}>
              {moment(run.created_at)}
            </time>
          </dd>
        </div>
        <div>
          <dt>{t.run.lasted}</dt>
          <dd>{span(Math.max(0, ended - began))}</dd>
        </div>
        <div>
          <dt>{t.run.version}</dt>
          <dd>
            {run.version.version}
            {run.version.dev && <span className="quiet"> ({t.app.development})</span>}
          </dd>
        </div>
        <div>
          <dt>{t.run.thread}</dt>
          <dd>
            <Go href={`/console/runs?thread=${encodeURIComponent(run.thread_id)}`}>{run.thread_id.slice(0, 80)}</Go>
          </dd>
        </div>
        {run.parent !== null && <Link label={t.run.parent} id={run.parent.run_id} step={run.parent.path} />}
        {run.branch_of !== null && <Link label={t.run.branchOf} id={run.branch_of} />}
        {origin !== null && origin.run_id !== run.branch_of && <Link label={t.run.origin} id={origin.run_id} step={origin.path} />}
        {used.calls > 0 && (
          <div>
            <dt>{t.step.models}</dt>
            <dd>
              {t.run.models(used.calls, used.tokens)}
              {used.cost !== null && used.cost > 0 && `, ${t.run.cost(used.cost.toPrecision(3))}`}
            </dd>
          </div>
        )}
      </dl>
      {run.unreadable !== null && <p className="note bad">{run.unreadable.slice(0, 1000)}</p>}
    </header>
  );
}

function Link({ label, id, step = null }: { label: string; id: string; step?: string | null }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>
        <Go href={`/console/runs/${encodeURIComponent(id)}${step ? `?step=${encodeURIComponent(step)}` : ""}`}>
          {id.slice(0, 8)}… {step && step.slice(0, 80)}
        </Go>
      </dd>
    </div>
  );
}

function RunFailure({ error, onStep }: { error: NonNullable<RunShape["error"]>; onStep(path: string): void }) {
  const t = useText();
  const path = error["path"];
  return (
    <Failure
      error={error}
      title={
        <p>
          <b>{t.run.error}</b>{" "}
          {typeof path === "string" && path !== "" && (
            <button className="plain slim" onClick={() => onStep(path)}>
              {t.run.at(path.slice(0, 200))}
            </button>
          )}
        </p>
      }
    />
  );
}

interface ChosenProps {
  run: RunShape;
  at: number | null;
  path: string;
  reference: string;
  known: Pick<React.ComponentProps<typeof StepCard>, "steps" | "spans" | "snapshot" | "calls" | "modelCalls">;
  place: React.ComponentProps<typeof StepCard>["place"];
  onPath(path: string | undefined): void;
  onMoment(seq: number): void;
  onEvents(path: string): void;
  done(): void;
}

function Chosen({ run, at, path, reference, known, place, onPath, onMoment, onEvents, done }: ChosenProps) {
  const t = useText();
  const may = useMay("control_runs");
  const mayRead = useMay("read_workflows");
  const workflow = useWorkflow(reference, mayRead && reference !== "");
  const [asking, setAsking] = useState<"again" | "skip" | null>(null);
  const step = known.steps.findLast((each) => each.path === path);
  const stands = at === null && (run.ended_at === null || run.status === "failed") && (step?.status === "running" || step?.status === "failed");
  const actions = may && step !== undefined && step.verb !== "iteration" && (
    <div className="row">
      {run.parent === null && <button onClick={() => setAsking("again")}>{t.fork.again}</button>}
      {stands && <button onClick={() => setAsking("skip")}>{t.skip.title}</button>}
      {asking === "again" && <Fork run={run} at={null} step={path} close={() => setAsking(null)} />}
      {asking === "skip" && <Skip runId={run.id} path={path} close={() => setAsking(null)} done={done} />}
    </div>
  );
  return <StepCard {...known} path={path} place={place} workflow={workflow.data} onPath={onPath} onMoment={onMoment} onEvents={onEvents} actions={actions} />;
}

function Travel({ at, head, then, onChange }: { at: number | null; head: number; then: number; onChange(at: number): void }) {
  const t = useText();
  const id = useId();
  const place = at ?? head;
  return (
    <div className={`travel ${at === null ? "" : "past"}`}>
      <div className="row">
        <label htmlFor={id} className="hidden">
          {t.run.slider}
        </label>
        <button aria-label={t.run.earlier} disabled={place <= 0} onClick={() => onChange(place - 1)}>
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
          onInput={(event) => onChange(Number(event.currentTarget.value))}
        />
        <button aria-label={t.run.later} disabled={at === null} onClick={() => onChange(place + 1)}>
          ›
        </button>
        {at !== null && (
          <button className="main" onClick={() => onChange(head)}>
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

function Tabs({ tab, tabs, onChange }: { tab: Tab; tabs: readonly Tab[]; onChange(tab: Tab): void }) {
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
        const to = (tabs.indexOf(tab) + step + tabs.length) % tabs.length;
        onChange(tabs[to] ?? tab);
        list.current?.querySelectorAll("button")[to]?.focus();
      }}
    >
      {tabs.map((each) => (
        <button key={each} role="tab" aria-selected={each === tab} tabIndex={each === tab ? 0 : -1} onClick={() => onChange(each)}>
          {t.run.tabs[each]}
        </button>
      ))}
    </div>
  );
}
