// How the deployment stands: what `hai-flow status` says, and how the runs of each hour ended.

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useState } from "react";
import { get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { CellOverview, Overview as Standing, SetupCheck } from "../../api/types.gen.ts";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { WithCode } from "../../parts/WithCode.tsx";
import { clock, span } from "../../text/dates.ts";
import { findingInChinese } from "../../text/doctor.zh.ts";
import { useLanguage } from "../../text/index.ts";
import { capitalised } from "../../text/names.ts";
import { useRunText } from "../../text/runs.ts";
import { usePageText } from "../../text/pages.ts";
import { type Sample, bars, path, sampled } from "./charts.ts";
import { standingOf } from "./standing.ts";

const AGAIN_MS = 5_000;
const SILENT_SECONDS = 30;

export function Overview() {
  const t = useRunText();
  const p = usePageText().overview;
  const found = useQuery({
    queryKey: ["overview"],
    queryFn: ({ signal }) => get<Standing>("/v1/overview", signal),
    refetchInterval: AGAIN_MS,
  });
  const [samples, setSamples] = useState<Sample[]>([]);
  useEffect(() => {
    if (found.data) setSamples((before) => sampled(before, found.data.cells, found.dataUpdatedAt));
  }, [found.data, found.dataUpdatedAt]);
  const several = (found.data?.cells.length ?? 0) > 1;
  return (
    <div className="stack">
      <h1>{p.title}</h1>
      {found.error && <ProblemNote problem={asProblem(found.error)} again={() => void found.refetch()} />}
      {found.isPending && <p role="status">{t.app.loading}</p>}
      {found.data?.cells.map((cell) => (
        <Cell key={cell.name} cell={cell} samples={several ? [] : samples} most={found.data.counted_max} named={several} />
      ))}
    </div>
  );
}

interface CellProps {
  cell: CellOverview;
  samples: Sample[];
  most: number;
  named: boolean;
}

function Cell({ cell, samples, most, named }: CellProps) {
  const t = useRunText();
  const p = usePageText().overview;
  const inChinese = useChinese();
  const count = (n: number): string => `${n.toLocaleString()}${n >= most ? "+" : ""}`;
  const age = (seconds: number): string => (seconds < 1 ? "" : p.oldest(span(seconds * 1000)));
  const { waiting, runs, hours } = cell;
  const ended = hours.reduce((sum, each) => sum + each.finished + each.failed + each.stopped, 0);
  const failed = hours.reduce((sum, each) => sum + each.failed, 0);
  const standing = standingOf(cell);
  const alive = cell.workers.filter((each) => each.lease > 0);
  return (
    <section className="stack">
      {named && <p className="big">{p.cell(cell.name)}</p>}
      <div role="status">
        {standing === "well" ? (
          <p className="note good">{p.well}</p>
        ) : standing === "unfit" ? (
          <p className="note warn">{p.unfit}</p>
        ) : (
          <ul className="note bad faults">
            {cell.problems.map((each) => (
              <li key={each.code}>
                {inChinese(each)?.[0] ?? `${each.message}.`} {each.code === "status.stranded" && <Go href="/console/inbox?view=all">{p.look}</Go>}
              </li>
            ))}
          </ul>
        )}
      </div>
      <div className="boxes">
        <Box title={p.queue} value={count(waiting.due)} under={age(waiting.due_age)} lines={samples.map((each) => each.due)}>
          {waiting.overdue > 0 && <span className="tag bad">{p.overdue(count(waiting.overdue))}</span>}
        </Box>
        <Box title={p.workers} value={count(alive.length)} under={p.holds(count(alive.reduce((sum, each) => sum + each.held, 0)))} lines={samples.map((each) => each.workers)} />
        <Box title={p.questions} value={count(waiting.pendings)} under={age(waiting.pendings_age)} lines={samples.map((each) => each.pendings)}>
          <Go href="/console/inbox?view=all">{p.look}</Go>
        </Box>
        <Box title={p.open} value={count(Object.values(runs).reduce((sum, each) => sum + each, 0))} under={openOf(runs, t.runs.statuses, count).join(t.app.clause)} lines={samples.map((each) => each.open)}>
          <Go href="/console/runs">{p.look}</Go>
        </Box>
        <Box title={p.ended} value={count(ended)} under={p.lastDay} columns={hours.map((each) => each.finished + each.failed + each.stopped)} />
        <Box title={p.failed} value={count(failed)} under={p.lastDay} columns={hours.map((each) => each.failed)} bad>
          {failed > 0 && <Go href="/console/runs?preset=failed">{p.look}</Go>}
        </Box>
        <Box title={p.messages} value={count(waiting.outbox)} under={age(waiting.outbox_age)} lines={samples.map((each) => each.outbox)} />
        <Box title={p.audit} value={waiting.unsealed_age < 1 ? p.sealed : span(waiting.unsealed_age * 1000)} under={waiting.unsealed_age < 1 ? "" : p.unsealed} />
      </div>
      <Checks checks={cell.checks} />
      <details>
        <summary>{p.hours}</summary>
        <div className="fall">
          <table>
            <thead>
              <tr>
                <th>{p.hour}</th>
                <th className="number">{t.runs.statuses["finished"]}</th>
                <th className="number">{t.runs.statuses["failed"]}</th>
                <th className="number">{t.runs.statuses["stopped"]}</th>
              </tr>
            </thead>
            <tbody>
              {hours.map((each) => (
                <tr key={each.since}>
                  <th>{clock(each.since)}</th>
                  <td className="number">{count(each.finished)}</td>
                  <td className="number">{count(each.failed)}</td>
                  <td className="number">{count(each.stopped)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
      <details>
        <summary>{p.processes(cell.servers.length, cell.workers.length)}</summary>
        <ul>
          {cell.servers.map((each) => (
            <li key={`s ${each.name}`}>
              {p.server} {each.name} ({each.release}): {each.seen > SILENT_SECONDS ? p.silent(span(each.seen * 1000)) : p.up(span(each.up * 1000))}
            </li>
          ))}
          {cell.workers.map((each) => (
            <li key={`w ${each.id}`}>
              {p.worker} {each.name} {each.release && `(${each.release})`}: {each.lease > 0 ? p.holds(count(each.held)) : p.dead(count(each.held))}
            </li>
          ))}
        </ul>
      </details>
    </section>
  );
}

/** What a finding is called in Chinese; null where the reader has another language, or the sentence is not known. */
function useChinese(): typeof findingInChinese {
  return useLanguage() === "zh" ? findingInChinese : () => null;
}

/** What `hai-flow doctor` finds: what is to be done stands there, all else is folded. */
function Checks({ checks }: { checks: SetupCheck[] }) {
  const t = useRunText();
  const inChinese = useChinese();
  const p = usePageText().overview;
  const open = checks.filter((each) => each.verdict !== "good").sort((one, other) => one.verdict.localeCompare(other.verdict));
  return (
    <section className="card stack" aria-label={p.checks}>
      <h2 className="name">{p.checks}</h2>
      {open.length === 0 ? <p>{p.checksGood(checks.length)}</p> : <ul className="plain">{open.map(shown)}</ul>}
      {open.length > 0 && open.length < checks.length && (
        <details>
          <summary>{p.checksFine(checks.length - open.length)}</summary>
          <ul className="plain small">{checks.filter((each) => each.verdict === "good").map(shown)}</ul>
        </details>
      )}
      <p className="quiet small">
        <WithCode text={p.doctor} />
      </p>
    </section>
  );

  function shown(check: SetupCheck) {
    const { name, verdict } = check;
    const [found, remedy = ""] = inChinese(check) ?? [`${check.found}.`, check.remedy && `${capitalised(check.remedy)}.`];
    return (
      <li key={name}>
        <span className={`tag ${verdict === "bad" ? "bad" : verdict === "doubtful" ? "warn" : "good"}`}>{p.verdicts[verdict]}</span> <b>{name}</b>
        {t.app.colon}
        {found}
        {remedy !== "" && <div className="small">{remedy}</div>}
      </li>
    );
  }
}

function openOf(runs: Record<string, number>, names: Record<string, string>, count: (n: number) => string): string[] {
  return Object.entries(runs)
    .filter(([, n]) => n > 0)
    .map(([status, n]) => `${count(n)} ${names[status] ?? status}`);
}

interface BoxProps {
  title: string;
  value: string;
  under: string;
  /** How it has been while the page is open, and how it was in each hour of the last day. */
  lines?: number[];
  columns?: number[];
  bad?: boolean;
  children?: ReactNode;
}

function Box({ title, value, under, lines, columns, bad = false, children }: BoxProps) {
  return (
    <div className="card box">
      <h2 className="name">{title}</h2>
      <p className="big">{value}</p>
      <p className="quiet small">{under}</p>
      {lines && lines.length > 1 && (
        <svg className="chart" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
          <path d={path(lines)} />
        </svg>
      )}
      {columns && (
        <svg className={`chart ${bad ? "bad" : ""}`} viewBox={`0 0 ${columns.length * 4} 24`} preserveAspectRatio="none" aria-hidden="true">
          {bars(columns).map((height, i) => (
            <rect key={i} x={i * 4} y={24 - height} width="3" height={height} />
          ))}
        </svg>
      )}
      {children}
    </div>
  );
}
