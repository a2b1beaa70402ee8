// The runs that one sees, newest first, as many as one scrolls to.

import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import { get } from "../../api/client.ts";
import { useNow } from "../../api/now.ts";
import { asProblem } from "../../api/problems.ts";
import type { Run, RunPage } from "../../api/types.gen.ts";
import { plainName } from "../../logic/seats.ts";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { moment, relative, span } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { PRESETS, type Preset, type RunsSearch, TONES, runsQuery } from "./filters.ts";

const PAGE = 100;
const ROW = 48;
const AGAIN_MS = 5_000;

export function Runs() {
  const t = useText();
  const search = getRouteApi("/runs").useSearch();
  const navigate = useNavigate();
  const set = (more: Partial<RunsSearch>): void => void navigate({ to: "/runs", search: { ...search, ...more }, replace: true });
  const found = useInfiniteQuery({
    queryKey: ["runs", search],
    queryFn: ({ pageParam, signal }) => get<RunPage>(`/v1/runs?${runsQuery(search, PAGE, pageParam)}`, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
    // Only the first page moves by itself: who has scrolled far is reading.
    refetchInterval: (query) => ((query.state.data?.pages.length ?? 0) > 1 ? false : AGAIN_MS),
    placeholderData: (before) => before,
  });
  const runs = found.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <>
      <h1>{t.runs.title}</h1>
      <div className="filters">
        <select
          aria-label={t.runs.preset}
          value={search.preset ?? "all"}
          onChange={(event) => set({ preset: event.currentTarget.value === "all" ? undefined : (event.currentTarget.value as Preset) })}
        >
          {(Object.keys(PRESETS) as Preset[]).map((each) => (
            <option key={each} value={each}>
              {t.runs.presets[each]}
            </option>
          ))}
        </select>
        <Late label={t.runs.workflow} value={search.workflow ?? ""} onChange={(workflow) => set({ workflow })} />
        <Late label={t.runs.thread} value={search.thread ?? ""} onChange={(thread) => set({ thread })} />
      </div>
      <p role="status" className="quiet">
        {found.isPending ? t.app.loading : t.runs.shown(runs.length, found.hasNextPage)}
      </p>
      {found.error && <ProblemNote problem={asProblem(found.error)} again={() => void found.refetch()} />}
      {found.data && runs.length === 0 ? (
        <div className="card">
          <h2>{t.runs.empty}</h2>
          <p className="quiet">{t.runs.emptyHint}</p>
        </div>
      ) : (
        <Table runs={runs} atEnd={() => found.hasNextPage && !found.isFetchingNextPage && void found.fetchNextPage()} />
      )}
    </>
  );
}

/** A text that counts once one has stopped typing. */
function Late({ label, value, onChange }: { label: string; value: string; onChange(value: string | undefined): void }) {
  const [written, setWritten] = useState(value);
  useEffect(() => {
    if (written === value) return;
    const timer = setTimeout(() => onChange(written.trim() || undefined), 300);
    return () => clearTimeout(timer);
  }, [written]);
  return (
    <input type="search" aria-label={label} placeholder={label} value={written} onInput={(event) => setWritten(event.currentTarget.value)} />
  );
}

function Table({ runs, atEnd }: { runs: Run[]; atEnd(): void }) {
  const t = useText();
  const scroll = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: runs.length, getScrollElement: () => scroll.current, estimateSize: () => ROW, overscan: 12 });
  const shown = rows.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (runs.length > 0 && last >= runs.length - 10) atEnd();
  }, [last, runs.length]);
  return (
    <div className="table">
      <div className="line run head" aria-hidden="true">
        <span>{t.runs.status}</span>
        <span>{t.runs.workflow}</span>
        <span className="wide">{t.runs.by}</span>
        <span className="wide">{t.runs.started}</span>
        <span>{t.runs.lasted}</span>
      </div>
      <div className="scroll" ref={scroll} tabIndex={0} role="region" aria-label={t.runs.title}>
        <ul style={{ height: rows.getTotalSize(), margin: 0, padding: 0, listStyle: "none" }}>
          {shown.map((row) => {
            const run = runs[row.index];
            return (
              run && (
                <li
                  key={run.id}
                  className="placed"
                  style={{ height: ROW, transform: `translateY(${row.start}px)` }}
                  aria-setsize={runs.length}
                  aria-posinset={row.index + 1}
                >
                  <Row run={run} />
                </li>
              )
            );
          })}
        </ul>
      </div>
    </div>
  );
}

function Row({ run }: { run: Run }) {
  const t = useText();
  const now = useNow();
  const began = new Date(run.created_at).getTime();
  const ended = run.ended_at === null ? now : new Date(run.ended_at).getTime();
  return (
    <Go href={`/console/runs/${run.id}`} className="line run">
      <span>
        <span className={`tag ${TONES[run.status]}`}>{t.runs.statuses[run.status]}</span>
      </span>
      <b>{run.workflow}</b>
      <span className="wide">{plainName(run.started_by)}</span>
      <time className="wide" dateTime={run.created_at} title={moment(run.created_at)}>
        {relative(run.created_at, now)}
      </time>
      <span>{span(Math.max(0, ended - began))}</span>
    </Go>
  );
}
