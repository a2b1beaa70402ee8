// The first day: the demo is started, its question found and decided, and what it did is looked at, one step at a time.

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useState } from "react";
import { call, get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { InboxItem, Run, RunPage, WorkflowPage } from "../../api/types.gen.ts";
import { useMay } from "../../context.ts";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { useText } from "../../text/index.ts";
import { useTourText } from "../../text/tour.ts";
import { DEMO, isFirstDay, keepTour, keptTour, runOfTour, stageOf } from "./tour.ts";

const AGAIN_MS = 1_000;
const ENDED = ["finished", "failed", "stopped"];

export interface FirstDay {
  /** Nothing was started yet but the demo, and the reader has not dismissed the tour. */
  on: boolean;
  /** Whether it is not known yet. */
  asking: boolean;
  run: string | null;
  follow(run: string): void;
  dismiss(): void;
}

/** Whether the demo is there to be started. It is looked for in the list: of a workflow that is not there the browser would tell an error. */
export function useDemo(wanted: boolean): { data: boolean | undefined; isLoading: boolean } {
  const reads = useMay("read_workflows");
  return useQuery({
    queryKey: ["demo"],
    queryFn: ({ signal }) => get<WorkflowPage>("/v1/workflows?limit=200", signal).then(({ items }) => items.some((each) => each.name === DEMO)),
    enabled: wanted && reads,
    retry: false,
  });
}

/** Whether the reader is led, and along which run. */
export function useFirstDay(): FirstDay {
  const starts = useMay("start_runs");
  const sees = useMay("see_own");
  const [kept, setKept] = useState(keptTour);
  const able = starts && sees && !kept.over;
  const newest = useQuery({
    queryKey: ["first-day"],
    queryFn: ({ signal }) => get<RunPage>("/v1/runs?limit=2", signal),
    enabled: able && kept.run === null,
  });
  const known = newest.data?.items ?? null;
  const first = able && (kept.run !== null || (known !== null && isFirstDay(kept, known)));
  const demo = useDemo(first);
  const on = first && demo.data === true;
  const run = on ? runOfTour(kept, known ?? []) : null;
  const keep = (next: string | null): void => {
    keepTour(next);
    setKept(keptTour());
  };
  useEffect(() => {
    if (run !== null && kept.run === null) keep(run);
  }, [run, kept.run]);
  const asking = able && (demo.isLoading || (kept.run === null && newest.isLoading));
  return { on, asking, run, follow: keep, dismiss: () => keep(null) };
}

interface TourProps {
  day: FirstDay;
  items: readonly InboxItem[] | null;
  chosen: string | null;
}

export function Tour({ day, items, chosen }: TourProps) {
  const t = useText();
  const tour = useTourText();
  const { busy, problem, send } = useSending();
  const question = (items ?? []).find((each) => each.run_id === day.run);
  const followed = useQuery({
    queryKey: ["first-day", day.run],
    queryFn: ({ signal }) => get<Run>(`/v1/runs/${encodeURIComponent(day.run ?? "")}`, signal),
    enabled: day.run !== null && question === undefined,
    refetchInterval: (query) => (ENDED.includes(query.state.data?.status ?? "") ? false : AGAIN_MS),
    retry: false,
  });
  const stage = stageOf(day.run, question, chosen, ENDED.includes(followed.data?.status ?? ""));
  // A run that was deleted, or that somebody else may see: there is nothing to be led along.
  const lost = followed.error !== null && asProblem(followed.error).status === 404;
  useEffect(() => {
    if (lost) day.dismiss();
  }, [lost]);

  const start = (): Promise<unknown> => send(async () => day.follow((await call<Run>("POST", "/v1/runs", { workflow: DEMO })).id));

  const at = ["start", "coming", "open", "decide", "see"].indexOf(stage);
  return (
    <section className="card stack tour" aria-labelledby="tour-title">
      <div className="row">
        <h2 id="tour-title" className="grow">
          {tour.title}
        </h2>
        <button className="plain" onClick={day.dismiss}>
          {tour.dismiss}
        </button>
      </div>
      <ol>
        <Step title={tour.start} done={at > 0} now={stage === "start"}>
          <p>{tour.startHint}</p>
          <button className={`main ${busy ? "busy" : ""}`} disabled={busy} onClick={() => void start()}>
            {t.inbox.demo}
          </button>
          {problem && <ProblemNote problem={problem} />}
        </Step>
        <Step title={tour.open} done={at > 2} now={stage === "coming" || stage === "open"}>
          {question === undefined ? (
            <p>{t.inbox.waiting}</p>
          ) : (
            <>
              <p>{tour.openHint}</p>
              <Go href={`/console/inbox/${encodeURIComponent(question.id)}`} className="button main">
                {tour.openIt}
              </Go>
            </>
          )}
        </Step>
        <Step title={tour.decide} done={at > 3} now={stage === "decide"}>
          <p>{tour.decideHint}</p>
        </Step>
        <Step title={tour.see} done={false} now={stage === "see"}>
          <p>{tour.seeHint}</p>
          <span className="row" onClick={day.dismiss}>
            <Go href={`/console/runs/${encodeURIComponent(day.run ?? "")}`} className="button main">
              {tour.seeIt}
            </Go>
          </span>
        </Step>
      </ol>
    </section>
  );
}

function Step({ title, done, now, children }: { title: string; done: boolean; now: boolean; children: ReactNode }) {
  const tour = useTourText();
  return (
    <li className={done ? "done" : now ? "now" : "later"} aria-current={now ? "step" : undefined}>
      <b>{title}</b> {done && <span className="tag good">{tour.done}</span>}
      <div role="status">{now && children}</div>
    </li>
  );
}
