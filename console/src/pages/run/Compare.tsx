// Two moments of a run, or two runs, side by side: what is otherwise in their state, steps, questions, input and output.

import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useId, useMemo, useState } from "react";
import { get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { Json, Run, Snapshot } from "../../api/types.gen.ts";
import { type Changed, brief, differences, readable } from "../../logic/json.ts";
import { workflowOf } from "../../logic/titles.ts";
import { Go } from "../../parts/Go.tsx";
import { Missing } from "../../parts/Missing.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { Tree } from "../../parts/Tree.tsx";
import { useRunText } from "../../text/runs.ts";
import { TONES } from "../runs/filters.ts";
import { runPath } from "./early.ts";
import { useSnapshot } from "./moment.ts";
import { useSettled } from "../useSettled.ts";

const SHOWN = 200;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

function useRun(id: string) {
  return useQuery({ queryKey: ["run", id], queryFn: ({ signal }) => get<Run>(runPath(id), signal), enabled: UUID.test(id) });
}

const route = getRouteApi("/runs/$id/compare");

export function ComparePage() {
  const { id } = route.useParams();
  return <Compare key={id} id={id} />;
}

function Compare({ id }: { id: string }) {
  const t = useRunText();
  const navigate = useNavigate();
  const search = route.useSearch();
  const other = search.with ?? id;
  const [left, right] = [useRun(id), useRun(other)];
  const two = other !== id;
  const ends = { from: left.data?.seq ?? 0, to: right.data?.seq ?? 0 };
  const from = Math.min(search.from ?? (two ? ends.from : 0), ends.from);
  const to = Math.min(search.to ?? ends.to, ends.to);
  const [seenFrom, seenTo] = [useSettled(from, 60), useSettled(to, 60)];
  const before = useSnapshot(id, seenFrom, left.data !== undefined);
  const after = useSnapshot(other, seenTo, right.data !== undefined);
  const set = (more: { with?: string | undefined; from?: number | undefined; to?: number | undefined }): void =>
    void navigate({ to: "/runs/$id/compare", params: { id }, search: { ...search, ...more }, replace: true });
  const problem = [left.error, right.error, before.error, after.error].find(Boolean);
  if (!UUID.test(id) || (left.error && asProblem(left.error).status === 404)) return <Missing />;
  return (
    <div className="stack">
      <h1>{two ? t.compare.runs : t.compare.moments}</h1>
      <div className="sides">
        <Side title={t.compare.left} run={left.data} id={id} at={from} onAt={(at) => set({ from: at })} />
        <Side title={t.compare.right} run={right.data} id={other} at={to} onAt={(at) => set({ to: at })}>
          <Other value={search.with ?? ""} onChange={(value) => set({ with: value, to: undefined })} />
        </Side>
      </div>
      {problem && <ProblemNote problem={asProblem(problem)} />}
      {before.data && after.data && left.data && right.data && (
        <Differences before={before.data} after={after.data} runs={two ? [left.data, right.data] : null} busy={before.isPlaceholderData || after.isPlaceholderData} />
      )}
    </div>
  );
}

interface SideProps {
  title: string;
  run: Run | undefined;
  id: string;
  at: number;
  onAt(at: number): void;
  children?: React.ReactNode;
}

function Side({ title, run, id, at, onAt, children }: SideProps) {
  const t = useRunText();
  const slider = useId();
  return (
    <section className="card stack">
      <h2>
        {title}{t.app.colon}<Go href={`/console/runs/${encodeURIComponent(id)}?at=${at}`}>{run ? workflowOf(run) : id.slice(0, 40)}</Go>{" "}
        {run && <span className={`tag ${TONES[run.status]}`}>{t.runs.statuses[run.status]}</span>}
      </h2>
      {run && (
        <div>
          <label htmlFor={slider} className="small quiet">
            {at === 0 ? t.run.beginning : t.run.moment(at, run.seq)}
          </label>
          <input id={slider} type="range" min={0} max={Math.max(1, run.seq)} value={at} aria-valuetext={t.run.moment(at, run.seq)} onInput={(event) => onAt(Number(event.currentTarget.value))} />
        </div>
      )}
      {children}
    </section>
  );
}

function Other({ value, onChange }: { value: string; onChange(value: string | undefined): void }) {
  const t = useRunText();
  const id = useId();
  const [text, setText] = useState(value);
  const wrong = text.trim() !== "" && !UUID.test(text.trim());
  useEffect(() => setText(value), [value]);
  return (
    <div className="field">
      <label htmlFor={id}>{t.compare.other}</label>
      <input
        id={id}
        value={text}
        placeholder={t.compare.otherHint}
        spellCheck={false}
        aria-invalid={wrong}
        onInput={(event) => {
          const now = event.currentTarget.value;
          setText(now);
          if (now.trim() === "" || UUID.test(now.trim())) onChange(now.trim() || undefined);
        }}
      />
      {wrong && <div className="error">{t.compare.noId}</div>}
    </div>
  );
}

interface Row {
  path: string;
  before: string;
  after: string;
  tones: [string, string];
}

function Differences({ before, after, runs, busy }: { before: Snapshot; after: Snapshot; runs: [Run, Run] | null; busy: boolean }) {
  const t = useRunText();
  const state = useMemo(() => differences(before.state, after.state), [before, after]);
  const input = runs === null ? [] : differences(runs[0].input, runs[1].input);
  const output = useMemo(() => differences(before.output, after.output), [before, after]);
  const steps = useMemo(() => stepRows(before, after), [before, after]);
  const outputs = useMemo(() => differences(outputsOf(before), outputsOf(after)), [before, after]);
  const questions = useMemo(() => questionRows(before, after), [before, after]);
  const nothing = [state, input, output, steps, outputs, questions].every((each) => each.length === 0);
  const name = (status: string): string => ({ ...t.runs.statuses, ...t.decision.decidedTitle })[status] ?? (status || t.compare.absent);
  return (
    <div className="stack" aria-busy={busy} data-compared={`${before.seq} ${after.seq}`}>
      {nothing && <p className="note good">{t.compare.same}</p>}
      <Values title={t.run.input} found={input} />
      <Values title={t.run.shared} found={state} />
      <Statuses title={t.run.steps} rows={steps} name={name} />
      <Statuses title={t.compare.questions} rows={questions} name={name} />
      <Values title={t.compare.outputs} found={outputs} />
      <Values title={t.run.output} found={output} />
    </div>
  );
}

function stepRows(before: Snapshot, after: Snapshot): Row[] {
  const paths = [...new Set([...Object.keys(before.steps), ...Object.keys(after.steps)])].sort();
  return paths.flatMap((path) => {
    const [one, two] = [before.steps[path]?.status ?? "", after.steps[path]?.status ?? ""];
    return one === two ? [] : [{ path, before: one, after: two, tones: [tone(one), tone(two)] as [string, string] }];
  });
}

/** Questions by their step: two runs ask the same one under two ids. */
function questionRows(before: Snapshot, after: Snapshot): Row[] {
  const of = (snapshot: Snapshot): Map<string, string> => new Map(snapshot.pendings.map((each) => [each.path, each.status]));
  const [one, two] = [of(before), of(after)];
  return [...new Set([...one.keys(), ...two.keys()])].sort().flatMap((path) => {
    const [was, is] = [one.get(path) ?? "", two.get(path) ?? ""];
    return was === is ? [] : [{ path, before: was, after: is, tones: ["", ""] as [string, string] }];
  });
}

function outputsOf(snapshot: Snapshot): Record<string, Json> {
  return Object.fromEntries(Object.entries(snapshot.steps).flatMap(([path, step]) => (step.output == null ? [] : [[path, step.output]])));
}

function tone(status: string): string {
  return (TONES as Record<string, string>)[status] ?? "";
}

function Statuses({ title, rows, name }: { title: string; rows: Row[]; name(status: string): string }) {
  const t = useRunText();
  if (rows.length === 0) return null;
  return (
    <section className="card">
      <h2>
        {title} <span className="quiet">{rows.length}</span>
      </h2>
      <div className="fall" tabIndex={0} role="region" aria-label={title}>
        <table>
          <Head />
          <tbody>
            {rows.slice(0, SHOWN).map((row) => (
              <tr key={row.path}>
                <th scope="row">{row.path}</th>
                <td>
                  <span className={`tag ${row.tones[0]}`}>{name(row.before)}</span>
                </td>
                <td>
                  <span className={`tag ${row.tones[1]}`}>{name(row.after)}</span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > SHOWN && <p className="quiet">{t.decision.moreEntries(rows.length - SHOWN)}</p>}
    </section>
  );
}

function Values({ title, found }: { title: string; found: Changed[] }) {
  const t = useRunText();
  if (found.length === 0) return null;
  return (
    <section className="card">
      <h2>
        {title} <span className="quiet">{found.length}</span>
      </h2>
      <div className="fall" tabIndex={0} role="region" aria-label={title}>
        <table>
          <Head />
          <tbody>
            {found.slice(0, SHOWN).map((each) => (
              <tr key={each.path}>
                <th scope="row">{readable(each.path).slice(0, 300) || t.compare.whole}</th>
                <td>{each.before === undefined ? <span className="quiet">{t.compare.absent}</span> : <Shown value={each.before} as="del" />}</td>
                <td>{each.after === undefined ? <span className="quiet">{t.compare.absent}</span> : <Shown value={each.after} as="ins" />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {found.length > SHOWN && <p className="quiet">{t.decision.moreEntries(found.length - SHOWN)}</p>}
    </section>
  );
}

function Shown({ value, as: Mark }: { value: Json; as: "del" | "ins" }) {
  if (typeof value === "object" && value !== null) return <Tree value={value} open={1} />;
  return <Mark dir="auto">{brief(value, 500) || JSON.stringify(value)}</Mark>;
}

function Head() {
  const t = useRunText();
  return (
    <thead>
      <tr>
        <th scope="col">{t.compare.what}</th>
        <th scope="col">{t.compare.left}</th>
        <th scope="col">{t.compare.right}</th>
      </tr>
    </thead>
  );
}
