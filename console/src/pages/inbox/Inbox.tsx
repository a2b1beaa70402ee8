// What waits for people: a live list, and beside it the question that is chosen.

import { getRouteApi, useNavigate, useRouterState } from "@tanstack/react-router";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useMemo, useState } from "react";
import { useMay } from "../../context.ts";
import { call, get } from "../../api/client.ts";
import { byDeadline, useInbox } from "../../api/inbox.ts";
import { nowAtServer, useNow } from "../../api/now.ts";
import type { Decided, DecidedPage, InboxItem, InboxPage, PendingPage, Run } from "../../api/types.gen.ts";
import { workflowOf } from "../../logic/titles.ts";
import { useDraft } from "../../parts/draft.ts";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { Status } from "../../parts/Status.tsx";
import { useSending } from "../../parts/useSending.ts";
import { humanised } from "../../text/names.ts";
import { exactly, since } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { Decision, isTyping } from "../decide/Decision.tsx";
import { useKept } from "../last.ts";
import { useSettled } from "../useSettled.ts";
import { Bulk, Row, isPlain } from "./Items.tsx";
import { DEMO } from "./tour.ts";
import { Tour, useDemo, useFirstDay } from "./Tour.tsx";
import { type Snoozed, canWait, isSnoozed, readSnoozed, snooze, tomorrow } from "./snoozed.ts";
import { VIEWS, type View, shownIn } from "./filters.ts";

const SEARCH_MS = 250;
const SEARCH_PAGES = 5; // of a thousand questions each

export function Inbox({ id }: { id: string | null }) {
  const t = useText();
  const navigate = useNavigate();
  const inbox = useInbox();
  const day = useFirstDay();
  const search = getRouteApi("/inbox").useSearch();
  useKept("inbox", search);
  const now = useNow();
  const all = useAll(search.view === "all", inbox.news);
  const searched = useSearched(search.q ?? "", inbox.full ? search.workflow : undefined, inbox.news);
  const [snoozed, setSnoozed] = useState(readSnoozed);
  const put = useSnoozed(search.view === "snoozed" ? snoozed : {}, inbox.items, now);
  const items = search.view === "all" ? (all?.items ?? null) : search.view === "snoozed" ? put : (searched?.items ?? inbox.items);
  const shown = useMemo(() => {
    if (items === null) return null;
    const off = search.view === "snoozed";
    const kept = items.filter((each) => search.view === "all" || isSnoozed(snoozed, each, now) === off);
    return shownIn(kept, search, now, searched?.ids);
  }, [items, search, now, snoozed, searched]);
  const decided = useDecided(search.view === "decided", inbox.news);
  const listed = search.view === "decided" ? decided : shown;
  const late = (at: string, until: number | null): void => setSnoozed(snooze(at, until, nowAtServer()));
  const [kept, keep] = useDraft<string[]>("picked", () => []);
  const picked = useMemo(() => new Set(kept), [kept]);
  const [closed, setClosed] = useState(false);
  const [told, setTold] = useState(false); // what became of those that were chosen
  const base = `/console/inbox`;
  const suffix = location.search;

  const goTo = (to: string | null): void =>
    void (to === null
      ? navigate({ to: "/inbox", search: (before) => before })
      : navigate({ to: "/inbox/$id", params: { id: to }, search: (before) => before }));

  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target) || listed === null) return;
      if (document.querySelector("dialog[open]")) return;
      const at = listed.findIndex((each) => each.id === id);
      const step = { j: 1, k: -1 }[event.key];
      const to = step === undefined ? undefined : listed[at < 0 ? 0 : Math.min(listed.length - 1, Math.max(0, at + step))];
      if (to) {
        event.preventDefault();
        goTo(to.id);
      } else if (event.key === "Escape" && id !== null) {
        setClosed(true);
        goTo(null);
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  });

  // Where there is room for both the first question is open, unless one has closed it. It stays: what comes later takes nobody's place.
  const first = shown?.[0]?.id;
  useEffect(() => {
    if (id !== null) setClosed(false);
  }, [id]);
  useEffect(() => {
    if (closed || id !== null || first === undefined || day.on || day.asking || search.view === "decided") return;
    if (!matchMedia("(min-width: 60.01rem)").matches) return;
    void navigate({ to: "/inbox/$id", params: { id: first }, search: (before) => before, replace: true, state: { byItself: true } as object });
  }, [closed, id, first, day.on, day.asking, search.view]);
  const byItself = useRouterState({ select: ({ location }) => "byItself" in location.state });

  const workflows = useMemo(() => [...new Set((items ?? []).map((each) => each.workflow))].sort(), [items]);
  const set = (more: Partial<typeof search>): void => void navigate({ to: ".", search: (before) => ({ ...before, ...more }), replace: true });
  const chosen = (shown ?? []).filter((each) => picked.has(each.id) && isPlain(each));
  const listsSome = search.view === "all" ? all?.full : !searched && search.view !== "decided" && search.view !== "snoozed" && inbox.full;
  const later = (item: Pick<InboxItem, "id" | "deadline">): ReactNode =>
    isSnoozed(snoozed, item, now) ? (
      <button className="plain" onClick={() => late(item.id, null)}>
        {t.inbox.bringBack}
      </button>
    ) : canWait(item, now) ? (
      <button
        className="plain"
        onClick={() => {
          late(item.id, tomorrow(nowAtServer()));
          const after = shown?.find((each) => each.id !== item.id);
          goTo(after?.id ?? null);
        }}
      >
        {t.inbox.tomorrow}
      </button>
    ) : null;
  const next = shown?.find((each) => each.id !== id && each.may_decide);

  return (
    <>
      {day.on && <Tour day={day} items={inbox.items} chosen={id} />}
      <div className={`split ${id === null ? "none" : "one"}`}>
        <section className="list" aria-labelledby="inbox-title">
          <div className="row">
            <h1 id="inbox-title" className="grow">
              {t.inbox.title}
            </h1>
            <Status connection={inbox.connection} />
          </div>
          {inbox.problem && inbox.connection === "lost" && inbox.problem.status > 0 && <ProblemNote problem={inbox.problem} />}
          <p role="status" className="quiet">
            {search.view === "decided" ? "" : shown !== null && t.inbox.count(shown.filter((each) => each.may_decide || each.on_behalf_of.length > 0).length, inbox.full && !searched && (search.view ?? "mine") === "mine")}
          </p>
          <div className="filters">
            <select aria-label={t.inbox.view} value={search.view ?? "mine"} onChange={(event) => set({ view: event.currentTarget.value as View })}>
              {VIEWS.map((each) => (
                <option key={each} value={each}>
                  {t.inbox.views[each]}
                </option>
              ))}
            </select>
            {workflows.length > 1 && (
              <select
                aria-label={t.inbox.workflow}
                value={search.workflow ?? ""}
                onChange={(event) => set({ workflow: event.currentTarget.value || undefined })}
              >
                <option value="">{t.inbox.every}</option>
                {workflows.map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </select>
            )}
            <input
              type="search"
              aria-label={t.inbox.search}
              placeholder={t.inbox.search}
              defaultValue={search.q ?? ""}
              onInput={(event) => set({ q: event.currentTarget.value || undefined })}
            />
          </div>
          {listed === null && inbox.connection !== "lost" && <p role="status">{t.app.loading}</p>}
          {search.view === "decided" && decided?.length === 0 && <p>{t.inbox.noneDecided}</p>}
          {search.view !== "decided" && shown?.length === 0 && <Empty filtered={Boolean(search.q) || (items ?? []).length > 0} offers={!day.on} />}
          {search.view === "decided" && (
            <ul className="items">
              {(decided ?? []).map((each) => (
                <li key={`${each.id} ${each.at}`} className={each.id === id ? "current" : ""}>
                  <div className="grow">
                    <Go href={`${base}/${encodeURIComponent(each.id)}${suffix}`}>
                      <span className="row-top">
                        <b dir="auto">{each.title ?? t.inbox.untitled}</b>
                        <time className="quiet small" dateTime={each.at} title={exactly(each.at)}>
                          {since(each.at, now)}
                        </time>
                      </span>
                      <span className="row-under quiet small">
                        <span>
                          {t.inbox.youSaid(
                            each.rule === null
                              ? (t.decision.decidedTitle[each.decision ?? each.status] ?? humanised(each.decision ?? each.status))
                              : t.decision.byRule(each.rule, each.decision === "approve"),
                            workflowOf(each),
                          )}
                          {each.status === "open" && ` · ${t.decision.voted}`}
                        </span>
                      </span>
                    </Go>
                  </div>
                </li>
              ))}
            </ul>
          )}
          <ul className="items">
            {(search.view === "decided" ? [] : (shown ?? [])).slice(0, 500).map((each) => (
              <Row
                key={each.id}
                item={each}
                current={each.id === id}
                href={`${base}/${encodeURIComponent(each.id)}${suffix}`}
                picked={picked.has(each.id)}
                now={now}
                pick={(on) => keep(on ? [...kept, each.id] : kept.filter((other) => other !== each.id))}
              />
            ))}
          </ul>
          {listsSome && <p className="quiet small">{t.inbox.first((shown ?? []).length)}</p>}
          {(chosen.length > 0 || told) && (
            <Bulk
              items={chosen}
              sent={() => setTold(true)}
              clear={() => {
                keep([]);
                setTold(false);
              }}
            />
          )}
        </section>
        <div className="card">
          {id === null ? (
            <p className="quiet">{t.inbox.choose}</p>
          ) : (
            <>
              <p className="only-narrow">
                <Go href={`${base}${suffix}`}>← {t.inbox.title}</Go>
              </p>
              <Decision
                id={id}
                focus={!byItself}
                later={later}
                after={
                  next ? (
                    <button className="main" onClick={() => goTo(next.id)}>
                      {t.decision.next}
                    </button>
                  ) : (
                    <Go href={`${base}${suffix}`}>{t.decision.toInbox}</Go>
                  )
                }
              />
            </>
          )}
        </div>
      </div>
    </>
  );
}

/** What the reader has decided, the newest first. */
function useDecided(on: boolean, news: number): Decided[] | null {
  const found = useQuery({
    queryKey: ["decided", news],
    queryFn: ({ signal }) => get<DecidedPage>("/v1/inbox/decided?limit=100", signal),
    enabled: on,
    placeholderData: (before) => before,
  });
  return found.data?.items ?? null;
}

interface Searched {
  items: InboxItem[];
  ids: ReadonlySet<string>;
}

/** The questions that the server finds: it looks through all of them, and leaves out personal values. null: not yet. */
function useSearched(typed: string, workflow: string | undefined, news: number): Searched | null {
  const text = useSettled(typed.trim(), SEARCH_MS).slice(0, 200);
  const found = useQuery({
    queryKey: ["inbox", "search", text, workflow, news],
    queryFn: ({ signal }) => searchInbox({ ...(text && { text }), ...(workflow && { workflow }) }, signal),
    enabled: text !== "" || workflow !== undefined,
    placeholderData: (before, query) => (query?.queryKey[2] === text && query.queryKey[3] === workflow ? before : undefined),
  });
  return useMemo(() => {
    if (!found.data || text !== typed.trim().slice(0, 200)) return null;
    const items = [...found.data].sort(byDeadline);
    return { items, ids: new Set(items.map((each) => each.id)) };
  }, [found.data, text, typed]);
}

async function searchInbox(filters: Record<string, string>, signal: AbortSignal): Promise<InboxItem[]> {
  const items: InboxItem[] = [];
  let cursor: string | null = null;
  for (let pages = 0; pages < SEARCH_PAGES; pages += 1) {
    const query = new URLSearchParams({ ...filters, limit: "200", ...(cursor !== null && { cursor }) });
    const page: InboxPage = await get<InboxPage>(`/v1/inbox?${query}`, signal);
    items.push(...page.items);
    cursor = page.next_cursor;
    if (cursor === null || items.length >= 200) break;
  }
  return items;
}

/** All open questions that the reader sees, those that ask others too. */
function useAll(on: boolean, news: number): { items: InboxItem[]; full: boolean } | null {
  const mine = useInbox().items;
  const found = useQuery({
    queryKey: ["pendings", news],
    queryFn: ({ signal }) => get<PendingPage>("/v1/pendings?limit=200", signal),
    enabled: on,
    refetchInterval: 15_000,
    placeholderData: (before) => before,
  });
  return useMemo(() => {
    if (!found.data) return null;
    const known = new Map((mine ?? []).map((each) => [each.id, each]));
    const blank = { may_decide: false, why_not: null, on_behalf_of: [], needed: null, claimed_by: null, claimed_until: null };
    const items = found.data.items.map((each): InboxItem => ({ ...each, ...blank, ...known.get(each.id) }) as InboxItem).sort(byDeadline);
    return { items, full: found.data.next_cursor !== null };
  }, [found.data, mine]);
}

/** The questions that are put off: also those that the inbox does not list, for others are due before them. */
function useSnoozed(snoozed: Snoozed, items: InboxItem[] | null, now: number): InboxItem[] | null {
  const lacking = items === null ? [] : Object.keys(snoozed).filter((id) => (snoozed[id] ?? 0) > now && !items.some((each) => each.id === id));
  const found = useQuery({
    queryKey: ["inbox", "snoozed", ...lacking],
    queryFn: ({ signal }) => Promise.allSettled(lacking.map((id) => get<InboxItem>(`/v1/inbox/${encodeURIComponent(id)}`, signal))),
    enabled: lacking.length > 0,
    placeholderData: (before) => before,
  });
  return useMemo(() => {
    const others = (found.data ?? []).flatMap((each) => (each.status === "fulfilled" && lacking.includes(each.value.id) ? [each.value] : []));
    return items && [...items, ...others].sort(byDeadline);
  }, [items, found.data, lacking.join(" ")]);
}

/** `offers`: the demo may be started from here; else the tour above does it. */
function Empty({ filtered, offers }: { filtered: boolean; offers: boolean }) {
  const t = useText();
  const may = useMay("start_runs");
  const demo = useDemo(may && !filtered && offers);
  const [started, setStarted] = useState(false);
  const { busy, problem, send } = useSending();
  if (filtered) return <p>{t.inbox.emptyFiltered}</p>;
  const start = (): Promise<unknown> =>
    send(async () => {
      await call<Run>("POST", "/v1/runs", { workflow: DEMO });
      setStarted(true);
    });
  return (
    <div className="card stack">
      <h2>{t.inbox.empty}</h2>
      <p className="quiet">{t.inbox.emptyHint}</p>
      {offers && demo.data === true && !started && (
        <p>
          <button className="main" disabled={busy} onClick={() => void start()}>
            {t.inbox.demo}
          </button>{" "}
          {t.inbox.demoHint}
        </p>
      )}
      {started && <p role="status">{t.inbox.waiting}</p>}
      {problem && <ProblemNote problem={problem} />}
    </div>
  );
}
