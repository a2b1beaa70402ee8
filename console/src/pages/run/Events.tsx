// The log itself: as long as it is, only what is on the screen is in the document.

import { useVirtualizer } from "@tanstack/react-virtual";
import { useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import type { Json } from "../../api/types.gen.ts";
import { brief } from "../../logic/json.ts";
import type { LogEvent } from "../../logic/event.ts";
import { ProblemNote } from "../../parts/Problem.tsx";
import { Tree } from "../../parts/Tree.tsx";
import { clock, exactly } from "../../text/dates.ts";
import { useRunText } from "../../text/runs.ts";
import { useMatching } from "./useMatching.ts";
import { useOlder } from "./useOlder.ts";

const ROW = 36;

interface EventsProps {
  runId: string;
  /** Those that are kept, up to `place`. */
  events: readonly LogEvent[];
  /** The first one that is kept; those before are read when they are asked for. */
  first: number;
  place: number;
  head: number;
  live: boolean;
  /** The step whose events are wanted. */
  path: string | undefined;
  onMoment(seq: number): void;
  onPath(path: string | undefined): void;
}

export function Events({ runId, events: newest, first, place, head, live, path, onMoment, onPath }: EventsProps) {
  const t = useRunText();
  const [find, setFind] = useState("");
  const [type, setType] = useState("");
  const [tail, setTail] = useState(true);
  const [open, setOpen] = useState<LogEvent | null>(null);
  const older = useOlder(runId, first, live ? null : place);
  const events = older.events ?? newest;
  const wanted = useDeferredValue(find.trim().toLowerCase());
  const types = useMemo(() => [...new Set(events.map((each) => each.type))].sort(), [events]);
  const matches = useMemo(() => {
    if (wanted === "" && type === "" && path === undefined) return null;
    return (each: LogEvent): boolean => (type === "" || each.type === type) && (path === undefined || isOf(each, path)) && (wanted === "" || holds(each, wanted));
  }, [wanted, type, path]);
  const shown = useMatching(events, matches);
  const scroll = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: shown.length, getScrollElement: () => scroll.current, estimateSize: () => ROW, overscan: 15 });
  useEffect(() => {
    if (tail && shown.length > 0) rows.scrollToIndex(shown.length - 1, { align: "end" });
  }, [shown.length, tail]);
  // A stretch ends where the one before it began: there one reads on.
  useEffect(() => {
    if (shown.length > 0) rows.scrollToIndex(shown.length - 1, { align: "end" });
  }, [older.events]);
  return (
    <>
      <div className="filters">
        <input type="search" aria-label={t.run.find} placeholder={t.run.find} value={find} onInput={(event) => setFind(event.currentTarget.value)} />
        <select aria-label={t.events.type} value={type} onChange={(event) => setType(event.currentTarget.value)}>
          <option value="">{t.events.everyType}</option>
          {types.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
        {live && (
          <div className="check">
            <input id="tail" type="checkbox" checked={tail} onChange={(event) => setTail(event.currentTarget.checked)} />
            <label htmlFor="tail">{t.run.follow}</label>
          </div>
        )}
      </div>
      {path !== undefined && (
        <p>
          <span className="tag accent">
            {t.run.step}{t.app.colon}{path.slice(0, 200)}
          </span>{" "}
          <button className="plain slim" onClick={() => onPath(undefined)}>
            {t.events.everyStep}
          </button>
        </p>
      )}
      <p className="quiet small" role="status">
        {t.run.eventsShown(shown.length, head)}
      </p>
      {older.problem && <ProblemNote problem={older.problem} />}
      {first > 1 && (
        <p className="row small">
          <button disabled={older.busy || (events[0]?.seq ?? 1) <= 1} onClick={() => older.read(events[0]?.seq ?? first)}>
            {t.events.before}
          </button>
          {older.events !== null && (live || place >= first) && <button onClick={older.leave}>{t.events.newest}</button>}
        </p>
      )}
      <div className={open ? "split" : ""}>
        <div className="table">
          <div
            className="scroll"
            ref={scroll}
            tabIndex={0}
            role="region"
            aria-label={t.run.tabs.events}
            onWheel={() => setTail(false)}
            onTouchMove={() => setTail(false)}
          >
            <ul style={{ height: rows.getTotalSize(), margin: 0, padding: 0, listStyle: "none" }}>
              {rows.getVirtualItems().map((row) => {
                const event = shown[row.index];
                return (
                  event && (
                    <li
                      key={event.seq}
                      className="placed"
                      style={{ height: ROW, transform: `translateY(${row.start}px)` }}
                      aria-setsize={shown.length}
                      aria-posinset={row.index + 1}
                    >
                      <button className="line event" aria-pressed={open?.seq === event.seq} onClick={() => setOpen(event)}>
                        <span className="quiet">{event.seq}</span>
                        <span className="quiet wide">{clock(event.at)}</span>
                        <b>{event.type}</b>
                        <span>{event.path ?? ""}</span>
                        <span className="quiet wide">{brief(summary(event))}</span>
                      </button>
                    </li>
                  )
                );
              })}
            </ul>
          </div>
        </div>
        {open && (
          <div className="card stack" aria-live="polite">
            <h2>
              {open.seq} {open.type}
            </h2>
            <p className="quiet small">{exactly(open.at)}</p>
            {open.path !== undefined && open.path !== "" && (
              <p>
                <button className="plain slim" onClick={() => onPath(open.path)}>
                  {t.run.step}{t.app.colon}{open.path.slice(0, 200)}
                </button>
              </p>
            )}
            <Tree value={restOf(open)} />
            <button onClick={() => onMoment(open.seq)}>{t.run.moment(open.seq, head)}</button>
          </div>
        )}
      </div>
    </>
  );
}

function isOf(event: LogEvent, path: string): boolean {
  const own = event.path;
  return own !== undefined && (own === path || own.startsWith(`${path}/`) || own.startsWith(`${path}[`));
}

function restOf(event: LogEvent): Json {
  const { seq: _seq, type: _type, at: _at, turn: _turn, path: _path, ...rest } = event;
  return rest as Json;
}

/** What a row says of an event: its few short fields; a row has no room for a whole document. */
function summary(event: LogEvent): string {
  let found = "";
  for (const [name, value] of Object.entries(event)) {
    if (name === "seq" || name === "type" || name === "at" || name === "turn" || name === "path" || value === undefined) continue;
    found += `${found === "" ? "" : " · "}${name}: ${typeof value === "string" ? value.slice(0, 80) : typeof value === "object" && value !== null ? (Array.isArray(value) ? `[${value.length}]` : "{…}") : String(value)}`;
    if (found.length > 120) break;
  }
  return found;
}

function holds(event: LogEvent, wanted: string): boolean {
  return (
    event.type.includes(wanted) ||
    (event.path?.toLowerCase().includes(wanted) ?? false) ||
    JSON.stringify(restOf(event)).toLowerCase().includes(wanted)
  );
}
