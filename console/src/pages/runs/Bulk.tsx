// One command for every run that fits. First the server counts them; then it is sent, if they are still as many; then each
// run's answer is told.

import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef, useState } from "react";
import { call } from "../../api/client.ts";
import { problemIn } from "../../api/problems.ts";
import type { BulkReport, BulkRun } from "../../api/types.gen.ts";
import { isObject } from "../../logic/json.ts";
import { Ask } from "../../parts/Ask.tsx";
import { useDraft } from "../../parts/draft.ts";
import { Field } from "../../parts/Field.tsx";
import { Go } from "../../parts/Go.tsx";
import { useSending } from "../../parts/useSending.ts";
import { sentence } from "../../text/index.ts";
import { useRunText } from "../../text/runs.ts";
import { type RunsSearch, TONES, whereOf } from "./filters.ts";

const ACTIONS = ["pause", "resume", "stop", "retry"] as const;
type Action = (typeof ACTIONS)[number];
const ROW = 44;

export function Bulk({ search, done }: { search: RunsSearch; done(): void }) {
  const t = useRunText();
  const [open, setOpen] = useState(false);
  const [report, setReport] = useState<BulkReport | null>(null);
  return (
    <>
      <button onClick={() => setOpen(true)}>{t.bulk.title}…</button>
      {open && (
        <Asked
          search={search}
          close={() => setOpen(false)}
          sent={(found) => {
            setOpen(false);
            setReport(found);
            done();
          }}
        />
      )}
      {report && <Report report={report} close={() => setReport(null)} />}
    </>
  );
}

function Asked({ search, close, sent }: { search: RunsSearch; close(): void; sent(report: BulkReport): void }) {
  const t = useRunText();
  const [draft, write, forget] = useDraft<{ action: Action; reason: string }>("bulk", () => ({ action: "pause", reason: "" }));
  const { action, reason } = draft;
  const [counted, setCounted] = useState<BulkReport | null>(null);
  const { busy, problem, send } = useSending();
  const [key] = useState(() => crypto.randomUUID());
  const go = async (): Promise<void> => {
    const body = { action, where: whereOf(search), reason, ...(counted ? { expect: counted.found } : { dry_run: true }) };
    const refused = await send(async () => {
      const found = await call<BulkReport>("POST", "/v1/runs/bulk", body, { key: counted ? key : undefined });
      if (counted) {
        forget();
        sent(found);
      } else setCounted(found);
    });
    if (refused?.code === "bulk.unexpected") setCounted(null);
  };
  const found = problem?.code === "bulk.unexpected" && isObject(problem.winner) ? problem.winner["found"] : undefined;
  return (
    <Ask
      title={counted ? t.bulk.question(t.bulk.actions[action], counted.found) : t.bulk.choose}
      yes={counted ? t.bulk.question(t.bulk.actions[action], counted.found).replace(/[??]$/, "") : t.bulk.count}
      dangerous={counted !== null && action === "stop"}
      busy={busy}
      notYet={counted?.found === 0}
      problem={typeof found === "number" ? null : problem}
      onYes={() => void go()}
      onNo={() => {
        forget();
        close();
      }}
    >
      <div className="field">
        <label htmlFor="bulk-action">{t.decision.args}</label>
        <select
          id="bulk-action"
          value={action}
          onChange={(event) => {
            write({ ...draft, action: event.currentTarget.value as Action });
            setCounted(null);
          }}
        >
          {ACTIONS.map((each) => (
            <option key={each} value={each}>
              {t.bulk.actions[each]}
            </option>
          ))}
        </select>
        <div className="quiet small">{t.run.explains[action]}</div>
      </div>
      {(action === "pause" || action === "stop") && (
        <Field id="bulk-reason" label={t.decision.reason} maxLength={2000} value={reason} onChange={(now) => write({ ...draft, reason: now })} />
      )}
      {typeof found === "number" && <p className="note warn">{t.bulk.changed(found)}</p>}
      {!counted && <p className="quiet">{t.bulk.look}</p>}
      {counted?.found === 0 && <p className="note">{t.bulk.none}</p>}
      {counted !== null && counted.found > 0 && (
        <div className="note" role="status">
          <p>{t.bulk.would(counted.found)}</p>
          <p className="small">
            {[...statusesOf(counted.items)].map(([status, n]) => (
              <span key={status} className={`tag ${(TONES as Record<string, string>)[status] ?? ""}`}>
                {(t.runs.statuses as Record<string, string>)[status] ?? status}: {n}
              </span>
            ))}
          </p>
          <p className="small">
            {t.bulk.only(counted.found)} {t.bulk.each}
          </p>
        </div>
      )}
    </Ask>
  );
}

function statusesOf(items: readonly BulkRun[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const each of items) found.set(each.status, (found.get(each.status) ?? 0) + 1);
  return found;
}

const ORDER = { refused: 0, would: 1, already: 2, done: 3 };

function Report({ report, close }: { report: BulkReport; close(): void }) {
  const t = useRunText();
  const items = useMemo(() => [...report.items].sort((a, b) => ORDER[a.outcome] - ORDER[b.outcome]), [report]);
  const scroll = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: items.length, getScrollElement: () => scroll.current, estimateSize: () => ROW, overscan: 10 });
  return (
    <section className="card report">
      <div className="row">
        <p className="grow" role="status">
          <b>{t.bulk.done(report.done, report.already, report.refused)}</b>
        </p>
        <button className="plain slim" aria-label={t.app.close} onClick={close}>
          ✕
        </button>
      </div>
      <div className="scroll few" ref={scroll} tabIndex={0} role="region" aria-label={t.bulk.results}>
        <ul style={{ height: rows.getTotalSize(), margin: 0, padding: 0, listStyle: "none" }}>
          {rows.getVirtualItems().map((row) => {
            const item = items[row.index];
            return (
              item && (
                <li key={item.id} className="placed line result" style={{ height: ROW, transform: `translateY(${row.start}px)` }} aria-setsize={items.length} aria-posinset={row.index + 1}>
                  <span className={`tag ${item.outcome === "refused" ? "bad" : "good"}`}>{t.bulk.outcomes[item.outcome]}</span>
                  <Go href={`/console/runs/${item.id}`}>{item.id}</Go>
                  <span>{item.problem ? sentence(t, problemIn(item.problem)) : ((t.runs.statuses as Record<string, string>)[item.status] ?? item.status)}</span>
                </li>
              )
            );
          })}
        </ul>
      </div>
    </section>
  );
}
