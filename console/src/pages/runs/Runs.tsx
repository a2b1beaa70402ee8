// The runs that one sees, newest first, as many as one scrolls to; live.

import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useId, useMemo, useRef, useState } from "react";
import { get } from "../../api/client.ts";
import { useFeed } from "../../api/feed.ts";
import { useNow } from "../../api/now.ts";
import { asProblem } from "../../api/problems.ts";
import type { Run, RunCounts, RunPage } from "../../api/types.gen.ts";
import { useMay } from "../../context.ts";
import { plainName } from "../../logic/seats.ts";
import { lineOf, workflowOf } from "../../logic/titles.ts";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { Status } from "../../parts/Status.tsx";
import { exactly, since, span } from "../../text/dates.ts";
import { useRunText } from "../../text/runs.ts";
import { useKept } from "../last.ts";
import { Bulk } from "./Bulk.tsx";
import { PRESETS, type Preset, type RunsSearch, TONES, countOf, isPlain, runsQuery, whereQuery } from "./filters.ts";

const PAGE = 100;
const ROW = 48;
const ROW_NARROW = 72; // three lines, where the columns of who and when have no room

export function Runs() {
  const t = useRunText();
  const search = getRouteApi("/runs").useSearch();
  useKept("runs", search);
  const navigate = useNavigate();
  const queries = useQueryClient();
  const may = useMay("control_runs");
  const set = (more: Partial<RunsSearch>): void => void navigate({ to: "/runs", search: { ...search, ...more }, replace: true });
  const found = useInfiniteQuery({
    queryKey: ["runs", search],
    queryFn: ({ pageParam, signal }) => get<RunPage>(`/v1/runs?${runsQuery(search, PAGE, pageParam)}`, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
    placeholderData: (before) => before,
  });
  const narrowed = whereQuery(search, ["status", "error"]).toString();
  const counts = useQuery({
    queryKey: ["runs", "counts", narrowed],
    queryFn: ({ signal }) => get<RunCounts>(`/v1/runs/counts?${narrowed}`, signal),
    placeholderData: (before) => before,
  });
  const [changed, setChanged] = useState<ReadonlyMap<string, Partial<Run>>>(new Map());
  const connection = useFeed<Run>("runs", `limit=${PAGE}`, (news) => {
    setChanged((before) => new Map([...before, ...news.map((each): [string, Partial<Run>] => [each.id, each])].slice(-5 * PAGE)));
    void queries.invalidateQueries({ queryKey: ["runs", "counts"] });
    // Who has scrolled far is reading: their rows change, and no others come.
    if ((found.data?.pages.length ?? 0) <= 1) void found.refetch();
  });
  useEffect(() => setChanged(new Map()), [found.dataUpdatedAt]);
  const runs = useMemo(
    () => found.data?.pages.flatMap((page) => page.items.map((run) => ({ ...run, ...changed.get(run.id) }))) ?? [],
    [found.data, changed],
  );
  const again = (): void => {
    void found.refetch();
    void counts.refetch();
  };
  return (
    <>
      <div className="row">
        <h1 className="grow">{t.runs.title}</h1>
        <Status connection={connection} />
      </div>
      <div className="presets" role="group" aria-label={t.runs.preset}>
        {(Object.keys(PRESETS) as Preset[]).map((each) => (
          <button key={each} aria-pressed={(search.preset ?? "all") === each} onClick={() => set({ preset: each === "all" ? undefined : each })}>
            {t.runs.presets[each]}
            {counts.data && <span className="tag">{t.runs.count(countOf(each, counts.data), counts.data.max)}</span>}
          </button>
        ))}
      </div>
      <Filters search={search} set={set} />
      <div className="facts-bar">
        <p role="status" className="quiet">
          {found.data ? t.runs.shown(...numberOf(search, counts.data, runs.length, found.hasNextPage)) : found.isPending && t.app.loading}
        </p>
        {may && <Bulk key={JSON.stringify(search)} search={search} done={again} />}
      </div>
      {found.error && <ProblemNote problem={asProblem(found.error)} again={() => void found.refetch()} />}
      {found.data && runs.length === 0 ? (
        <div className="card">
          <h2>{t.runs.empty}</h2>
          <p className="quiet">{t.runs.emptyHint}</p>
        </div>
      ) : (
        found.data && <Table runs={runs} atEnd={() => found.hasNextPage && !found.isFetchingNextPage && void found.fetchNextPage()} />
      )}
    </>
  );
}

/** How many runs there are, and whether there are more: as the server has counted them, else as many as are here. */
function numberOf(search: RunsSearch, counts: RunCounts | undefined, here: number, more: boolean): [number, boolean] {
  if (!more || counts === undefined || search.error !== undefined) return [here, more];
  const counted = countOf(search.preset ?? "all", counts);
  return [Math.max(counted, here), counted >= counts.max];
}

function Filters({ search, set }: { search: RunsSearch; set(more: Partial<RunsSearch>): void }) {
  const t = useRunText();
  const [more, setMore] = useState([search.version, search.by, search.error, search.from, search.until].some((each) => each !== undefined));
  return (
    <>
      <div className="filters">
        <Late label={t.runs.workflow} value={search.workflow ?? search.name ?? ""} onChange={(name) => set({ workflow: undefined, name })} />
        <Late label={t.runs.thread} value={search.thread ?? ""} onChange={(thread) => set({ thread })} />
        <button className="narrow" aria-expanded={more} onClick={() => setMore(!more)}>
          {t.runs.more}
        </button>
        {!isPlain(search) && (
          <button
            className="narrow"
            onClick={() => set({ workflow: undefined, name: undefined, thread: undefined, version: undefined, by: undefined, error: undefined, from: undefined, until: undefined })}
          >
            {t.runs.reset}
          </button>
        )}
      </div>
      {more && (
        <div className="filters">
          <Late label={t.runs.by} value={search.by ?? ""} onChange={(by) => set({ by })} />
          <Late
            label={t.runs.version}
            value={search.version === undefined ? "" : String(search.version)}
            onChange={(text) => {
              const version = Number(text);
              set({ version: text !== undefined && Number.isSafeInteger(version) && version >= 1 && version <= 999_999_999 ? version : undefined });
            }}
          />
          <Late label={t.runs.error} value={search.error ?? ""} onChange={(error) => set({ error: error !== undefined && /^[a-zA-Z0-9_.-]{1,200}$/.test(error) ? error : undefined })} />
          <When label={t.runs.from} value={search.from} onChange={(from) => set({ from })} />
          <When label={t.runs.until} value={search.until} onChange={(until) => set({ until })} />
        </div>
      )}
    </>
  );
}

/** A text that counts once one has stopped typing. */
function Late({ label, value, onChange }: { label: string; value: string; onChange(value: string | undefined): void }) {
  const [text, setText] = useState(value);
  const newest = useRef(onChange);
  newest.current = onChange;
  const told = useRef(value);
  useEffect(() => {
    if (value !== told.current) setText(value); // the address was changed by something else
    told.current = value;
  }, [value]);
  useEffect(() => {
    if (text.trim() === told.current) return;
    const timer = setTimeout(() => {
      told.current = text.trim();
      newest.current(text.trim() || undefined);
    }, 300);
    return () => clearTimeout(timer);
  }, [text]);
  return <input type="search" aria-label={label} placeholder={label} value={text} onInput={(event) => setText(event.currentTarget.value)} />;
}

function When({ label, value, onChange }: { label: string; value: string | undefined; onChange(value: string | undefined): void }) {
  const id = useId();
  return (
    <div className="when">
      <label htmlFor={id} className="small quiet">
        {label}
      </label>
      <input
        id={id}
        type="datetime-local"
        value={value === undefined ? "" : local(value)}
        onChange={(event) => {
          const at = event.currentTarget.value;
          onChange(at === "" ? undefined : new Date(at).toISOString());
        }}
      />
    </div>
  );
}

/** A time as the reader's own clock shows it, as the element takes it. */
function local(at: string): string {
  const time = new Date(at);
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function Table({ runs, atEnd }: { runs: Run[]; atEnd(): void }) {
  const t = useRunText();
  const scroll = useRef<HTMLDivElement>(null);
  const height = matchMedia("(max-width: 46rem)").matches ? ROW_NARROW : ROW;
  const rows = useVirtualizer({ count: runs.length, getScrollElement: () => scroll.current, estimateSize: () => height, overscan: 12 });
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
                  style={{ height, transform: `translateY(${row.start}px)` }}
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
  const t = useRunText();
  const now = useNow();
  const began = new Date(run.created_at).getTime();
  const ended = run.ended_at === null ? now : new Date(run.ended_at).getTime();
  const code = run.error?.["code"];
  return (
    <Go href={`/console/runs/${run.id}`} className="line run">
      <span>
        <span className={`tag ${TONES[run.status]}`}>{t.runs.statuses[run.status]}</span>
      </span>
      <span>
        <b dir="auto" title={run.workflow}>
          {workflowOf(run)}
        </b>{" "}
        {run.parent !== null && <span className="quiet small">↳ {run.parent.path}</span>}
        <span className="small"> {run.summary ?? lineOf({ args: run.input })}</span>
        <span className="by quiet small"> {t.run.startedBy} {plainName(run.started_by)}</span>
        {typeof code === "string" && <span className="quiet small"> {code.slice(0, 100)}</span>}
      </span>
      <span className="wide">{plainName(run.started_by)}</span>
      <time className="wide" dateTime={run.created_at} title={exactly(run.created_at)}>
        {since(run.created_at, now)}
      </time>
      <span>{span(Math.max(0, ended - began))}</span>
    </Go>
  );
}
