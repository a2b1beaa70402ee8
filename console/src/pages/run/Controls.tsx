// What one may do with a run. Each says first what it will do.

import { useEffect, useRef } from "react";
import { call } from "../../api/client.ts";
import type { Run } from "../../api/types.gen.ts";
import { useMay } from "../../context.ts";
import { Ask } from "../../parts/Ask.tsx";
import { useDraft } from "../../parts/draft.ts";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { useRunText } from "../../text/runs.ts";
import { Fork } from "./Fork.tsx";
import { Migrate } from "./Migrate.tsx";
import { runPath } from "./early.ts";
import type { Asked } from "./search.ts";

const CONTROLS = ["pause", "resume", "stop", "terminate", "retry"] as const satisfies readonly Asked[];
export type Control = (typeof CONTROLS)[number];

export function controlsOf(status: Run["status"]): Control[] {
  switch (status) {
    case "queued":
    case "running":
    case "waiting":
      return ["pause", "stop", "terminate"];
    case "paused":
      return ["resume", "stop", "terminate"];
    case "stopping":
      return ["terminate"];
    case "needs_attention":
      return ["retry", "stop", "terminate"];
    case "failed":
      return ["retry"];
    default:
      return [];
  }
}

interface ControlsProps {
  run: Run;
  /** The moment that is looked at; null: now. */
  at: number | null;
  /** What is asked of the reader, as the address says it: a reload or a new sign-in does not close it. */
  asking: Asked | null;
  ask(what: Asked | null): void;
  onCompare(): void;
  done(): void;
}

export function Controls({ run, at, asking, ask, onCompare, done }: ControlsProps) {
  const t = useRunText();
  const may = useMay("control_runs");
  const { busy, problem, send } = useSending();
  const row = useRef<HTMLDivElement>(null);
  const sent = useRef<Control | null>(null); // the command whose button has the focus, or had it
  const [reason, setReason, forget] = useDraft(`control.${run.id}`, () => "");
  const command = async (control: Control): Promise<void> => {
    sent.current = control;
    const refused = await send(async () => {
      const body = control === "resume" || control === "retry" ? undefined : { reason };
      await call("POST", `${runPath(run.id)}/${control}`, body);
      setReason("");
      forget();
    });
    if (refused) sent.current = null;
    ask(null);
    done();
  };
  // The command that was sent is no longer offered: the focus that its button had goes to those that are.
  useEffect(() => {
    if (sent.current === null || controlsOf(run.status).includes(sent.current) || asking !== null) return;
    sent.current = null;
    if (document.activeElement === document.body) row.current?.querySelector("button")?.focus();
  }, [run.status, asking]);
  const close = (): void => ask(null);
  const control = may ? CONTROLS.find((each) => each === asking) : undefined;
  return (
    <div className="row" ref={row}>
      {may &&
        controlsOf(run.status).map((each) => (
          <button key={each} className={each === "terminate" ? "bad" : ""} onClick={() => ask(each)}>
            {t.run.controls[each]}
          </button>
        ))}
      {may && run.parent === null && <button onClick={() => ask("fork")}>{t.fork.title}</button>}
      {may && run.ended_at === null && <button onClick={() => ask("migrate")}>{t.migrate.title}</button>}
      <button onClick={onCompare}>{t.compare.title}</button>
      {problem && asking === null && <ProblemNote problem={problem} />}
      {may && asking === "fork" && run.parent === null && <Fork run={run} at={at} close={close} />}
      {may && asking === "migrate" && <Migrate run={run} close={close} done={done} />}
      {control !== undefined && (
        <Ask
          title={t.decision.confirm(t.run.controls[control])}
          yes={t.run.controls[control]}
          dangerous={control === "terminate" || control === "stop"}
          busy={busy}
          problem={busy ? problem : null}
          onYes={() => void command(control)}
          onNo={close}
        >
          <p>{t.run.explains[control]}</p>
          {control !== "resume" && control !== "retry" && (
            <div className="field">
              <label htmlFor="control-reason">{t.decision.reason}</label>
              <textarea id="control-reason" rows={2} maxLength={2000} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
            </div>
          )}
        </Ask>
      )}
    </div>
  );
}
