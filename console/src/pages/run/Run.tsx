// One run: what was said, the path it took, how long its steps took, its state and its events. One slider moves all of
// them, and one step is chosen in all of them.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { memo, useCallback, useDeferredValue, useEffect, useId, useMemo, useRef, useState } from "react";
import { useNow } from "../../api/now.ts";
import { useZone } from "../../api/zone.ts";
import { asProblem } from "../../api/problems.ts";
import type { Graph as Drawn, Run as RunShape, RunStep, Snapshot } from "../../api/types.gen.ts";
import { useMay } from "../../context.ts";
import { type Passed, passedOf, spansOf, timeAt, upTo } from "../../logic/log.ts";
import type { Handover, ModelCall, ToolCall } from "../../logic/record.ts";
import { plainName } from "../../logic/seats.ts";
import { workflowOf } from "../../logic/titles.ts";
import { referenceOf } from "../../logic/versions.ts";
import { Go } from "../../parts/Go.tsx";
import { Graph } from "../../parts/Graph.tsx";
import { Lacking } from "../../parts/Missing.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { Status } from "../../parts/Status.tsx";
import { exactly, moment, span } from "../../text/dates.ts";
import { useRunText } from "../../text/runs.ts";
import { isTyping } from "../decide/Decision.tsx";
import { TONES } from "../runs/filters.ts";
import { Controls } from "./Controls.tsx";
import { Conversation } from "./Conversation.tsx";
import { runQuery } from "./early.ts";
import { Events } from "./Events.tsx";
import { Fork } from "./Fork.tsx";
import { Models, Used } from "./Models.tsx";
import { Now } from "./Now.tsx";
import { planPathOf, useGraph, useSnapshot, useSteps, useVersion, useWorkflow } from "./moment.ts";
import { type Asked, type RunSearch, TABS, type Tab } from "./search.ts";
import { Skip } from "./Skip.tsx";
import { State } from "./State.tsx";
import { Failure, StepCard } from "./StepCard.tsx";
import { type RunLog, useLog } from "./useLog.ts";
import { useSettled } from "../useSettled.ts";
import { Waterfall } from "./Waterfall.tsx";

const SLIDER_MS = 60;
const SLIDER_MS_MAX = 1_000;
const LIVE_MS_MAX = 3_000;

const route = getRouteApi("/runs/$id");

export function RunPage() {
  const { id } = route.useParams();
  return <Run key={id} id={id} />;
}

function Run({ id }: { id: string }) {
  const t = useRunText();
  const navigate = useNavigate();
  const search = route.useSearch();
  const mayRead = useMay("read_workflows");
  // What it shows comes from the server's snapshot and steps; the thousands of events behind these are read when they are shown.
  const [shows, setShows] = useState(search.tab === "events");
  const log = useLog(id, shows);
  const now = useNow();
  const head = useSettled(log.head, 500);
  const found = useQuery({ ...runQuery(id, head), placeholderData: keepPreviousData });
  // Before the log is there, the run itself says how far it has come.
  const newestSeq = Math.max(log.head, found.data?.seq ?? 0);
  const at = search.at === undefined || (newestSeq > 0 && search.at >= newestSeq) ? null : search.at;
  // A long run's snapshot takes a while: while it goes on, the page asks no more often than the server can tell.
  const [took, setTook] = useState(0);
  const seq = useSettled(at ?? newestSeq, Math.max(SLIDER_MS, at === null ? Math.min(LIVE_MS_MAX, 3 * took) : Math.min(SLIDER_MS_MAX, took)));
  const asks = newestSeq > 0 && (at !== null || seq > 0);
  const snapshot = useSnapshot(id, seq, asks);
  useEffect(() => setTook(snapshot.took), [snapshot.took]);
  const tab: Tab = search.tab ?? "conversation";
  const wantsSteps = tab === "waterfall" || search.step !== undefined;
  const steps = useSteps(id, seq, false, asks && wantsSteps);
  const passages = useSteps(id, seq, true, asks && tab === "graph");
  const shownSteps = tab === "graph" ? passages : steps;
  const draws = tab === "graph" || tab === "waterfall" ? isAnswered(shownSteps) : isAnswered(snapshot);
  useEffect(() => setShows((before) => before || draws || tab === "events"), [draws, tab]);
  const run = found.data;
  const wantsPlan = mayRead && run !== undefined && (tab === "graph" || search.step !== undefined || run.error !== null || run.ended_at === null);
  const version = useVersion(id, run, at === null ? null : seq, wantsPlan);
  const reference = run && version ? referenceOf(run.workflow, version) : "";
  const graph = useGraph(reference, wantsPlan && version !== undefined);
  const place = at ?? newestSeq;
  const then = at === null ? (run?.ended_at ? Date.parse(run.ended_at) : now) : (timeAt(log.events, place) ?? now);
  // The steps of an earlier moment stay in a view that does not ask for any: they must not keep it busy.
  const awaitsSteps = (wantsSteps || tab === "graph") && shownSteps.data !== undefined && (shownSteps.isPlaceholderData || !shownSteps.whole);
  const busy = snapshot.isPlaceholderData || awaitsSteps;
  const wanted = useMemo(
    (): View => ({
      tab,
      step: search.step,
      of: search.of,
      at,
      moment: at === null ? newestSeq : seq,
      then,
      log,
      snapshot: snapshot.data,
      steps: steps.data,
      passages: passages.data,
      stepsOf: !shownSteps.whole || shownSteps.isPlaceholderData ? undefined : seq,
      graph: graph.data,
    }),
    [tab, search.step, search.of, at, newestSeq, seq, then, log, snapshot.data, steps.data, passages.data, shownSteps.whole, shownSteps.isPlaceholderData, graph.data],
  );
  // A long run takes a while to show: the slider does not wait for it, and what is overtaken is left out.
  const view = useDeferredValue(wanted);
  const told = useTold(view);
  const newest = useRef(newestSeq);
  newest.current = newestSeq;
  const go = useCallback(
    (more: RunSearch): void => void navigate({ to: "/runs/$id", params: { id }, search: (before) => ({ ...before, ...more }), replace: true }),
    [navigate, id],
  );
  const goTo = useCallback((to: number): void => go({ at: to >= newest.current ? undefined : Math.max(0, to) }), [go]);
  const onStep = useCallback((step: string | undefined): void => go({ step, ask: undefined }), [go]);
  const onPath = useCallback((of: string | undefined): void => go({ of }), [go]);
  const onEvents = useCallback((of: string): void => go({ tab: "events", of }), [go]);
  const ask = useCallback((what: Asked | null): void => go({ ask: what ?? undefined }), [go]);
  const { refetch } = found;
  const done = useCallback((): void => void refetch(), [refetch]);

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
  const fault = shownSteps.error ?? graph.error;
  return (
    <div className="stack">
      <Head run={run} snapshot={snapshot.data} live={run.ended_at === null ? <Status connection={log.connection} /> : null} now={now} />
      {log.problem && log.connection === "lost" && <ProblemNote problem={log.problem} />}
      <Controls
        run={run}
        at={at}
        asking={search.ask ?? null}
        ask={ask}
        done={done}
        onCompare={() => void navigate({ to: "/runs/$id/compare", params: { id }, search: at === null ? {} : { from: at } })}
      />
      {at === null && run.ended_at === null && <Now run={run} head={head} now={now} snapshot={snapshot.data} graph={graph.data} onStep={onStep} />}
      {run.error !== null && <RunFailure error={run.error} onStep={onStep} />}
      <Travel at={at} head={newestSeq} then={then} onChange={goTo} />
      <Tabs tab={tab} tabs={TABS.filter((each) => each !== "graph" || mayRead)} onChange={(to) => go({ tab: to === "conversation" ? undefined : to })} />
      <div className={search.step === undefined ? "" : "beside"}>
        <section
          role="tabpanel"
          aria-label={t.run.tabs[view.tab]}
          aria-busy={busy || view !== wanted}
          data-seq={view.snapshot?.seq}
          data-steps={view.stepsOf}
        >
          {snapshot.error && <ProblemNote problem={asProblem(snapshot.error)} again={() => void snapshot.refetch()} />}
          {fault && (tab === "graph" || tab === "waterfall") && <ProblemNote problem={asProblem(fault)} />}
          {!log.loaded && !log.problem && (
            <p role="status" className="quiet">
              {t.run.loadingEvents(log.read, run.seq)}
            </p>
          )}
          <Panel run={run} view={view} told={told} onStep={onStep} onMoment={goTo} onPath={onPath} />
        </section>
        {search.step !== undefined && (
          <Chosen
            run={run}
            view={view}
            told={told}
            path={search.step}
            reference={reference}
            asking={search.ask ?? null}
            ask={ask}
            onPath={onStep}
            onMoment={goTo}
            onEvents={onEvents}
            done={done}
          />
        )}
      </div>
    </div>
  );
}

function isAnswered(query: { data: unknown; error: Error | null }): boolean {
  return query.data !== undefined || query.error !== null;
}

/** What is shown of the run: all of it belongs to one moment. */
interface View {
  tab: Tab;
  step: string | undefined;
  of: string | undefined;
  at: number | null;
  /** The seq behind which it stands. */
  moment: number;
  then: number;
  log: RunLog;
  snapshot: Snapshot | undefined;
  steps: RunStep[] | undefined;
  /** Of each step of the plan the newest passage. */
  passages: RunStep[] | undefined;
  /** Of which moment the steps are; undefined: they are not all here yet. */
  stepsOf: number | undefined;
  graph: Drawn | undefined;
}

/** What its views show beside what the server has said. Each for those that show it: of thousands it takes a while. */
interface Told {
  calls: readonly ToolCall[];
  handovers: readonly Handover[];
  modelCalls: readonly ModelCall[];
  spans: ReturnType<typeof spansOf>;
  passed: Map<string, Passed>;
}

function useTold({ tab, step, moment, then, log, steps, passages }: View): Told {
  const { recorded, events, loaded } = log;
  const wantsCalls = tab === "conversation" || tab === "models" || step !== undefined;
  const wantsSpans = tab === "waterfall" || step !== undefined;
  const calls = useMemo(() => (wantsCalls ? recorded.callsAt(moment) : []), [wantsCalls, recorded, events, loaded, moment]);
  const handovers = useMemo(() => (tab === "conversation" ? recorded.handoversAt(moment) : []), [tab, recorded, events, loaded, moment]);
  const modelCalls = useMemo(() => (wantsCalls ? recorded.modelCallsAt(moment) : []), [wantsCalls, recorded, events, loaded, moment]);
  const spans = useMemo(() => (wantsSpans ? spansOf(steps ?? [], then) : []), [wantsSpans, steps, then]);
  const passed = useMemo(() => (tab === "graph" ? passedOf(passages ?? []) : new Map<string, Passed>()), [tab, passages]);
  return useMemo(() => ({ calls, handovers, modelCalls, spans, passed }), [calls, handovers, modelCalls, spans, passed]);
}

interface PanelProps {
  run: RunShape;
  view: View;
  told: Told;
  onStep(path: string | undefined): void;
  onMoment(seq: number): void;
  onPath(path: string | undefined): void;
}

const Panel = memo(function Panel({ run, view, told, onStep, onMoment, onPath }: PanelProps) {
  const t = useRunText();
  const { tab, step, at, log, snapshot, graph } = view;
  const shown = useMemo(() => upTo(log.events, view.moment), [log.events, view.moment]);
  switch (tab) {
    case "conversation":
      if (!snapshot) return null;
      return (
        <Conversation
          snapshot={snapshot}
          calls={told.calls}
          handovers={told.handovers}
          past={at !== null}
          over={at === null && run.ended_at !== null}
          onStep={onStep}
        />
      );
    case "graph":
      if (!graph) return null;
      return (
        <Graph graph={graph} passed={view.passages && told.passed} selected={step && planPathOf(step)} onSelect={(path) => onStep(told.passed.get(path)?.newest.path ?? path)} />
      );
    case "waterfall":
      return (
        <>
          {view.stepsOf === undefined && (
            <p role="status" className="quiet">
              {t.run.loadingSteps(view.steps?.length ?? 0)}
            </p>
          )}
          {view.steps && <Waterfall spans={told.spans} selected={step} onStep={onStep} />}
        </>
      );
    case "state":
      return snapshot ? <State snapshot={snapshot} run={run} onStep={onStep} /> : null;
    case "models":
      return snapshot ? <Models usage={snapshot.usage} modelCalls={told.modelCalls} calls={told.calls} loaded={log.loaded} onStep={onStep} /> : null;
    case "events":
      return (
        <Events
          runId={run.id}
          events={shown}
          first={log.loaded ? (log.events[0]?.seq ?? 1) : 1}
          place={view.moment}
          head={log.head}
          live={at === null}
          path={view.of}
          onMoment={onMoment}
          onPath={onPath}
        />
      );
  }
});

interface HeadProps {
  run: RunShape;
  snapshot: Snapshot | undefined;
  live: React.ReactNode;
  now: number;
}

function Head({ run, snapshot, live, now }: HeadProps) {
  const t = useRunText();
  const began = Date.parse(run.created_at);
  const ended = run.ended_at === null ? now : Date.parse(run.ended_at);
  const origin = snapshot?.origin ?? null;
  return (
    <header>
      <div className="row">
        <h1 className="grow">{t.run.title(workflowOf(run))}</h1>
        <span className={`tag ${TONES[run.status]}`}>{t.runs.statuses[run.status]}</span>
        {live}
      </div>
      <dl className="inline small">
        <div>
          <dt>{t.run.startedBy}</dt>
          <dd>
            {plainName(run.started_by)}
            {t.app.clause}
            <time dateTime={run.created_at} title={exactly(run.created_at)}>
              {moment(run.created_at)}
            </time>
          </dd>
        </div>
        {run.paused && (
          <div>
            <dt>{t.run.pausedBy}</dt>
            <dd>
              {plainName(run.paused.by)},{" "}
              <time dateTime={run.paused.at} title={exactly(run.paused.at)}>
                {moment(run.paused.at)}
              </time>
              {run.paused.reason !== "" && t.app.colon + run.paused.reason.slice(0, 500)}
            </dd>
          </div>
        )}
        {run.queued_for && (
          <div>
            <dt>{t.run.queuedFor}</dt>
            <dd>{t.run.slot(run.queued_for.key.slice(0, 200), run.queued_for.limit)}</dd>
          </div>
        )}
        {run.queued_for?.holders.slice(0, 10).map((each) => <Link key={each.run_id} label={t.run.heldBy} id={each.run_id} />)}
        <div>
          <dt>{run.ended_at === null ? t.run.age : t.run.lasted}</dt>
          <dd>{span(Math.max(0, ended - began))}</dd>
        </div>
        <div>
          <dt>{t.run.version}</dt>
          <dd>
            {run.version.version}
            {run.version.dev && <span className="quiet">{t.app.aside(t.app.development)}</span>}
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
        {snapshot !== undefined && snapshot.usage.length > 0 && (
          <div>
            <dt>{t.step.models}</dt>
            <dd>
              <Used usage={snapshot.usage} />
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
  const t = useRunText();
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
  view: View;
  told: Told;
  path: string;
  reference: string;
  asking: Asked | null;
  ask(what: Asked | null): void;
  onPath(path: string | undefined): void;
  onMoment(seq: number): void;
  onEvents(path: string): void;
  done(): void;
}

const NONE: RunStep[] = [];

const Chosen = memo(function Chosen({ run, view, told, path, reference, asking, ask, onPath, onMoment, onEvents, done }: ChosenProps) {
  const { at, steps = NONE, snapshot, graph } = view;
  const t = useRunText();
  const may = useMay("control_runs");
  const mayRead = useMay("read_workflows");
  const zone = useZone(run.workflow, run.started_by);
  const workflow = useWorkflow(reference, mayRead && reference !== "");
  const step = steps.findLast((each) => each.path === path);
  const stands = at === null && (run.ended_at === null || run.status === "failed") && (step?.status === "running" || step?.status === "failed");
  const actions = may && step !== undefined && step.verb !== "iteration" && (
    <div className="row">
      {run.parent === null && <button onClick={() => ask("again")}>{t.fork.again}</button>}
      {stands && <button onClick={() => ask("skip")}>{t.skip.title}</button>}
      {asking === "again" && run.parent === null && <Fork run={run} at={null} step={path} close={() => ask(null)} />}
      {asking === "skip" && <Skip runId={run.id} path={path} close={() => ask(null)} done={done} />}
    </div>
  );
  return (
    <StepCard
      path={path}
      steps={steps}
      spans={told.spans}
      snapshot={snapshot}
      calls={told.calls}
      modelCalls={told.modelCalls}
      place={graph?.steps.find((each) => each.path === planPathOf(path)) ?? null}
      workflow={workflow.data}
      zone={zone}
      onPath={onPath}
      onMoment={onMoment}
      onEvents={onEvents}
      actions={actions}
    />
  );
});

function Travel({ at, head, then, onChange }: { at: number | null; head: number; then: number; onChange(at: number): void }) {
  const t = useRunText();
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
        {place === 0 ? t.run.beginning : `${t.run.moment(place, head)} · ${moment(then)}`}
        {at !== null && ` · ${t.run.past}`}
      </p>
    </div>
  );
}

function Tabs({ tab, tabs, onChange }: { tab: Tab; tabs: readonly Tab[]; onChange(tab: Tab): void }) {
  const t = useRunText();
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
