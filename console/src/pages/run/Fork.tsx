// A new run that goes on from where this one stood, with other values if one likes. It is rehearsed first: what would be
// stopped, undone, begun and asked is said before anything happens.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { call, get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { Mark, Marks, Rehearsal, Run, Snapshot } from "../../api/types.gen.ts";
import { nameOfVersion } from "../../logic/versions.ts";
import { plainName } from "../../logic/seats.ts";
import { Ask } from "../../parts/Ask.tsx";
import { useDraft } from "../../parts/draft.ts";
import { Field } from "../../parts/Field.tsx";
import { JsonField, type Written, writtenOf } from "../../parts/JsonField.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { moment } from "../../text/dates.ts";
import { findingText } from "../../text/index.ts";
import { useRunText } from "../../text/runs.ts";
import { runPath } from "./early.ts";
import { useWorkflow } from "./moment.ts";

/** Moments in the list, around the one that is chosen. */
const SHOWN = 500;

interface ForkProps {
  run: Run;
  /** From where it goes on, if one looks at a moment of the past; null: the newest one. */
  at: number | null;
  /** In front of this step. */
  step?: string | undefined;
  close(): void;
}

interface Edits {
  /** The mark that is chosen; null: the nearest one. */
  at: number | null;
  input: Written | null;
  state: Written | null;
  version: string;
  reason: string;
}

export function Fork({ run, at, step, close }: ForkProps) {
  const t = useRunText();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const marks = useQuery({ queryKey: ["marks", run.id, run.seq], queryFn: ({ signal }) => get<Marks>(`${runPath(run.id)}/marks`, signal) });
  const workflow = useWorkflow(run.workflow, true);
  const [edits, setEdits, forget] = useDraft<Edits>(`fork.${run.id}.${step ?? ""}`, () => ({ at: null, input: null, state: null, version: "", reason: "" }));
  const [rehearsed, setRehearsed] = useState<Rehearsal | null>(null);
  const { busy, problem, send, say } = useSending();
  const items = marks.data?.items ?? [];
  const chosen = edits.at ?? nearest(items, at, step)?.seq ?? null;
  const place = items.findIndex((each) => each.seq === chosen);
  const mark = items[place] ?? null;
  const from = Math.max(0, Math.min(place - SHOWN / 2, items.length - SHOWN));
  const tooLong = items.at(-1)?.why_not?.code === "fork_too_long";
  const change = (more: Partial<Edits>): void => {
    setEdits({ ...edits, ...more });
    setRehearsed(null);
    say(null);
  };
  const leave = (): void => {
    forget();
    close();
  };
  const isValid = (edits.input?.valid ?? true) && (edits.state?.valid ?? true);
  const fork = async (dryRun: boolean): Promise<void> => {
    const body = {
      at: chosen,
      ...(edits.input && { input: edits.input.value }),
      ...(edits.state && { state: edits.state.value }),
      ...(edits.version && { version: edits.version }),
      reason: edits.reason,
      dry_run: dryRun,
    };
    const refused = await send(async () => {
      if (dryRun) setRehearsed(await call<Rehearsal>("POST", `${runPath(run.id)}/fork`, body));
      else {
        const born = await call<Run>("POST", `${runPath(run.id)}/fork`, body);
        void queries.invalidateQueries({ queryKey: ["run", run.id] });
        forget();
        await navigate({ to: "/runs/$id", params: { id: born.id }, search: {} });
      }
    });
    if (refused) setRehearsed(null);
  };
  // Of an input that does not fit, places are told within the input.
  const root = problem?.code === "input.invalid" ? "/input" : "";
  const findings = (field: string): string[] =>
    (problem?.findings ?? [])
      .map((each) => ({ path: `${root}${each.path ?? ""}`, message: findingText(each) }))
      .filter((each) => each.path === field || each.path.startsWith(`${field}/`))
      .map((each) => `${each.path.slice(field.length)} ${each.message}`.trim());
  const placed = [...findings("/input"), ...findings("/state")].length > 0;
  const addState = (): Promise<unknown> =>
    send(async () => {
      const there = await get<Snapshot>(`${runPath(run.id)}/snapshot?at=${chosen ?? run.seq}`);
      change({ state: writtenOf(there.state ?? {}) });
    });
  return (
    <Ask
      title={step === undefined ? t.fork.question : t.fork.from(step)}
      yes={rehearsed ? t.fork.title : t.fork.rehearse}
      dangerous={rehearsed?.stops != null}
      busy={busy}
      notYet={chosen === null || !isValid}
      problem={placed ? null : problem}
      onYes={() => void fork(rehearsed === null)}
      onNo={leave}
    >
      <p>{t.fork.explains}</p>
      {marks.error && <ProblemNote problem={asProblem(marks.error)} again={() => void marks.refetch()} />}
      {marks.data && items.every((each) => !each.forkable) && <p className="note warn">{t.fork.nowhere}</p>}
      {tooLong && <p className="note warn">{t.fork.tooLong(items.findLast((each) => each.forkable)?.seq ?? 0, run.seq)}</p>}
      <div className="field">
        <label htmlFor="fork-at">{t.fork.at}</label>
        <select
          id="fork-at"
          value={chosen ?? ""}
          onChange={(event) => change({ at: Number(event.currentTarget.value), state: null })}
        >
          {chosen === null && <option value="">{marks.isPending ? t.app.loading : t.app.none}</option>}
          {items.slice(from, from + SHOWN).map((each) => (
            <option key={each.seq} value={each.seq} disabled={!each.forkable}>
              {each.seq} · {each.step === null ? t.fork.waited(each.turn) : t.fork.before(each.step)} · {moment(each.at)}
            </option>
          ))}
        </select>
        {items.length > SHOWN && <div className="quiet small">{t.fork.some(SHOWN, items.length)}</div>}
        {mark && !mark.editable && mark.why_not && <div className="quiet small">{findingText({ ...mark.why_not, message: mark.why_not.detail })}</div>}
      </div>
      {edits.input ? (
        <JsonField label={t.run.input} value={edits.input} findings={findings("/input")} onChange={(input) => change({ input })} />
      ) : (
        <button className="plain" disabled={mark?.editable === false} onClick={() => change({ input: writtenOf(run.input) })}>
          {t.fork.otherInput}
        </button>
      )}
      {edits.state ? (
        <JsonField label={t.run.shared} value={edits.state} findings={findings("/state")} onChange={(state) => change({ state })} />
      ) : (
        <button className="plain" disabled={mark?.editable === false} onClick={() => void addState()}>
          {t.fork.otherState}
        </button>
      )}
      {(workflow.data?.versions.length ?? 0) > 1 && (
        <div className="field">
          <label htmlFor="fork-version">{t.run.version}</label>
          <select id="fork-version" value={edits.version} onChange={(event) => change({ version: event.currentTarget.value })}>
            <option value="">{t.fork.sameVersion(run.version.version)}</option>
            {workflow.data?.versions.slice(0, 200).map((each) => {
              const named = nameOfVersion(each);
              return (
                <option key={named} value={named}>
                  {named}
                </option>
              );
            })}
          </select>
        </div>
      )}
      <Field id="fork-reason" label={t.decision.reason} maxLength={2000} value={edits.reason} onChange={(reason) => change({ reason })} />
      {rehearsed && <Rehearsed rehearsal={rehearsed} />}
    </Ask>
  );
}

/** Where it can be forked, next to what one looks at: in front of the step, else not behind the moment. */
export function nearest(marks: readonly Mark[], at: number | null, step: string | undefined): Mark | undefined {
  const forkable = marks.filter((each) => each.forkable);
  if (step !== undefined) {
    const before = forkable.findLast((each) => each.step === step && (at === null || each.seq <= at));
    return before ?? forkable.findLast((each) => each.step === step);
  }
  return at === null ? forkable.at(-1) : (forkable.findLast((each) => each.seq <= at) ?? forkable[0]);
}

function Rehearsed({ rehearsal }: { rehearsal: Rehearsal }) {
  const t = useRunText();
  const { stops } = rehearsal;
  const rows: [string, string[]][] = [
    [t.fork.begins, rehearsal.begins],
    [t.fork.asks(rehearsal.asks.length), []],
    [t.fork.restarts, rehearsal.restarts],
    [t.fork.inFlight, stops?.in_flight ?? []],
    [t.fork.undoes, stops?.undoes ?? []],
  ];
  return (
    <section className="note" aria-live="polite">
      <h3>{t.fork.would}</h3>
      <ul>
        <li>{stops ? t.fork.stops(stops.run_id, t.runs.statuses[stops.status]) : t.fork.stopsNothing}</li>
        {rows
          .filter(([label, paths]) => paths.length > 0 || (label === t.fork.asks(rehearsal.asks.length) && rehearsal.asks.length > 0))
          .map(([label, paths]) => (
            <li key={label}>
              {label} <b>{paths.slice(0, 20).join(", ")}</b>
              {paths.length > 20 && "…"}
            </li>
          ))}
        <li>{t.fork.yours(plainName(rehearsal.requester))}</li>
      </ul>
    </section>
  );
}
