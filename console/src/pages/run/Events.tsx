// The log itself: as long as it is, only what is on the screen is in the document.

import { useVirtualizer } from "@tanstack/react-virtual";
import { useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import type { Json } from "../../api/types.gen.ts";
import { brief } from "../../logic/json.ts";
import type { LogEvent } from "../../logic/log.ts";
import { Value } from "../../parts/Value.tsx";
import { clock, exactly } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";

const ROW = 36;

interface EventsProps {
  events: readonly LogEvent[];
  head: number;
  live: boolean;
  onMoment(seq: number): void;
}

export function Events({ events, head, live, onMoment }: EventsProps) {
  const t = useText();
  const [find, setFind] = useState("");
  const [tail, setTail] = useState(true);
  const [open, setOpen] = useState<LogEvent | null>(null);
  const wanted = useDeferredValue(find.trim().toLowerCase());
  const shown = useMemo(() => (wanted === "" ? events : events.filter((each) => holds(each, wanted))), [events, wanted]);
  const scroll = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: shown.length, getScrollElement: () => scroll.current, estimateSize: () => ROW, overscan: 15 });
  useEffect(() => {
    if (tail && shown.length > 0) rows.scrollToIndex(shown.length - 1, { align: "end" });
  }, [shown.length, tail]);
  return (
    <>
      <div className="filters">
        <input type="search" aria-label={t.run.find} placeholder={t.run.find} value={find} onInput={(event) => setFind(event.currentTarget.value)} />
        {live && (
          <div className="check">
            <input id="tail" type="checkbox" checked={tail} onChange={(event) => setTail(event.currentTarget.checked)} />
            <label htmlFor="tail">{t.run.follow}</label>
          </div>
        )}
      </div>
      <p className="quiet small" role="status">
        {t.run.eventsShown(shown.length, head)}
      </p>
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
                        <span className="quiet wide">{brief(restOf(event))}</span>
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
            <Value value={restOf(open)} />
            <button onClick={() => onMoment(open.seq)}>{t.run.moment(open.seq, head)}</button>
          </div>
        )}
      </div>
    </>
  );
}

function restOf(event: LogEvent): Json {
  const { seq: _seq, type: _type, at: _at, turn: _turn, path: _path, ...rest } = event;
  return rest as Json;
}

function holds(event: LogEvent, wanted: string): boolean {
  return (
    event.type.includes(wanted) ||
    (event.path?.toLowerCase().includes(wanted) ?? false) ||
    JSON.stringify(restOf(event)).toLowerCase().includes(wanted)
  );
}
