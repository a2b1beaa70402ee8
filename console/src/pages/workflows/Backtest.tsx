// What would have become of the recorded runs under another version: decided again by the server, with nothing performed.

import { type ReactNode, useId, useState } from "react";
import { callWithText, get } from "../../api/client.ts";
import type { BacktestExample, BacktestQuestion, BacktestReport, Workflow } from "../../api/types.gen.ts";
import { plainName } from "../../logic/seats.ts";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { codeText, findingText, useText } from "../../text/index.ts";
import type { PageTexts } from "../../text/pages.en.ts";
import { usePageText } from "../../text/pages.ts";

const AGES = ["1d", "7d", "30d", "90d"] as const;
const KINDS = ["same", "path", "people", "fails", "unknown"] as const;
const TONES = { same: "good", path: "warn", people: "warn", fails: "bad", unknown: "" } as const;

type Kind = (typeof KINDS)[number];

export function Backtest({ name, to }: { name: string; to: string }) {
  const p = usePageText().workflows.backtest;
  const id = useId();
  const [since, setSince] = useState<(typeof AGES)[number]>("30d");
  const [report, setReport] = useState<BacktestReport | null>(null);
  const { busy, problem, send } = useSending();
  const ask = (): Promise<unknown> =>
    send(async (signal) => {
      const { source } = await get<Workflow>(`/v1/workflows/${encodeURIComponent(`${name}@${to}`)}`, signal);
      setReport(await callWithText<BacktestReport>(`/v1/workflows/${encodeURIComponent(name)}/backtest?since=${since}`, source, { signal }));
    });
  return (
    <section className="card stack" aria-label={p.title}>
      <h2>{p.title}</h2>
      <p className="quiet">{p.hint(to)}</p>
      <div className="row">
        <label htmlFor={id}>{p.since}</label>
        <select id={id} value={since} onChange={(event) => setSince(event.currentTarget.value as typeof since)}>
          {AGES.map((each) => (
            <option key={each} value={each}>
              {p.ages[each]}
            </option>
          ))}
        </select>
        <button disabled={busy} className={busy ? "busy" : ""} onClick={() => void ask()}>
          {p.ask}
        </button>
      </div>
      {problem && <ProblemNote problem={problem} />}
      <div role="status">
        {report && <p>{report.runs === 0 ? p.none : p.looked(report.runs)}</p>}
        {report && !report.complete && <p className="note warn">{p.incomplete}</p>}
      </div>
      {report && report.runs > 0 && <Report report={report} />}
    </section>
  );
}

function Report({ report }: { report: BacktestReport }) {
  const p = usePageText().workflows.backtest;
  const unreadable = Object.values(report.unreadable).reduce((sum, each) => sum + each, 0);
  const stuck = Object.values(report.stuck).reduce((sum, each) => sum + each, 0);
  return (
    <>
      <ul className="changes">
        {KINDS.filter((kind) => (report.verdicts[kind] ?? 0) > 0).map((kind) => (
          <Verdict key={kind} kind={kind} count={report.verdicts[kind] ?? 0} examples={report.examples.filter((each) => each.kind === kind)}>
            {kind === "people" && <Questions more={report.more} fewer={report.fewer} />}
          </Verdict>
        ))}
        {unreadable > 0 && (
          <li>
            <span className="tag">{p.unreadable}</span> {p.runs(unreadable)}
            <Counts counts={report.unreadable} text={(code) => p.reasons[code] ?? code} />
            <Runs ids={report.unreadable_examples.map((each) => [each.run_id, p.reasons[each.reason] ?? each.detail])} />
          </li>
        )}
      </ul>
      {report.waiting > 0 && (
        <div>
          <h3>{p.waiting}</h3>
          <p>{p.movable(report.waiting - stuck, report.waiting)}</p>
          {stuck > 0 && (
            <>
              <Counts counts={report.stuck} text={(code) => codeText(code) ?? code} />
              <Runs ids={report.stuck_examples.map((each) => [each.run_id, each.obstacles.map((one) => [one.path, findingText(one)].filter(Boolean).join(" · ")).join("; ")])} />
            </>
          )}
        </div>
      )}
    </>
  );
}

function Verdict({ kind, count, examples, children }: { kind: Kind; count: number; examples: BacktestExample[]; children: ReactNode }) {
  const p = usePageText().workflows.backtest;
  return (
    <li>
      <span className={`tag ${TONES[kind]}`}>{p.kinds[kind]}</span> {p.runs(count)}
      {children}
      {kind !== "same" && <Runs ids={examples.map((each) => [each.run_id, whyOf(each, p)])} />}
    </li>
  );
}

/** What differs in one run, in its words. */
function whyOf(each: BacktestExample, p: PageTexts["workflows"]["backtest"]): string {
  const reason = each.reason && (codeText(each.reason) ?? each.reason);
  const differs = each.recorded || each.now ? p.differs(each.recorded || p.nothing, each.now || p.nothing) : "";
  return [each.step, reason, differs].filter(Boolean).join(" · ");
}

/** Who is asked besides, and who no more. */
function Questions({ more, fewer }: { more: BacktestQuestion[]; fewer: BacktestQuestion[] }) {
  const t = useText();
  const p = usePageText().workflows.backtest;
  const line = (each: BacktestQuestion, words: string) => (
    <li key={`${words} ${each.step} ${each.from.join()} ${each.quorum}`}>
      {p.of(words)}<code>{each.step}</code> {each.from.map(plainName).join(t.app.comma)} ({p.quorum(each.quorum)}){each.runs !== undefined && `, ${p.runs(each.runs)}`}
    </li>
  );
  return (
    <ul className="small">
      {more.map((each) => line(each, p.more))}
      {fewer.map((each) => line(each, p.fewer))}
    </ul>
  );
}

function Counts({ counts, text }: { counts: Record<string, number>; text(code: string): string }) {
  const p = usePageText().workflows.backtest;
  return (
    <ul className="small">
      {Object.entries(counts).map(([code, n]) => (
        <li key={code}>
          {p.of(text(code))}
          {p.runs(n)}
        </li>
      ))}
    </ul>
  );
}

/** Links to some of the runs, each with why it is among these. */
function Runs({ ids }: { ids: [string, string][] }) {
  const p = usePageText().workflows.backtest;
  if (ids.length === 0) return null;
  return (
    <details>
      <summary>{p.examples(ids.length)}</summary>
      <ul className="small">
        {ids.map(([id, why]) => (
          <li key={id}>
            <Go href={`/console/runs/${id}`}>{id}</Go> <span className="quiet">{why}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}
