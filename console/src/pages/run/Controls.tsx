// What one may do with a run. Each says first what it will do.

import { useState } from "react";
import { call } from "../../api/client.ts";
import { type Problem, asProblem } from "../../api/problems.ts";
import type { Run } from "../../api/types.gen.ts";
import { useMay } from "../../context.ts";
import { Ask } from "../../parts/Ask.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useText } from "../../text/index.ts";
import { Fork } from "./Fork.tsx";
import { Migrate } from "./Migrate.tsx";
import { runPath } from "./moment.ts";

export type Control = "pause" | "resume" | "stop" | "terminate" | "retry";

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
  onCompare(): void;
  done(): void;
}

export function Controls({ run, at, onCompare, done }: ControlsProps) {
  const t = useText();
  const may = useMay("control_runs");
  const [asking, setAsking] = useState<Control | "fork" | "migrate" | null>(null);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [reason, setReason] = useState("");
  const send = async (control: Control): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      const body = control === "resume" || control === "retry" ? undefined : { reason };
      await call("POST", `${runPath(run.id)}/${control}`, body);
      setReason("");
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setAsking(null);
      setBusy(false);
      done();
    }
  };
  const close = (): void => setAsking(null);
  return (
    <div className="row">
      {may &&
        controlsOf(run.status).map((each) => (
          <button key={each} className={each === "terminate" ? "bad" : ""} onClick={() => setAsking(each)}>
            {t.run.controls[each]}
          </button>
        ))}
      {may && run.parent === null && <button onClick={() => setAsking("fork")}>{t.fork.title}</button>}
      {may && run.ended_at === null && <button onClick={() => setAsking("migrate")}>{t.migrate.title}</button>}
      <button onClick={onCompare}>{t.compare.title}</button>
      {problem && <ProblemNote problem={problem} />}
      {asking === "fork" && <Fork run={run} at={at} close={close} />}
      {asking === "migrate" && <Migrate run={run} close={close} done={done} />}
      {asking !== null && asking !== "fork" && asking !== "migrate" && (
        <Ask
          title={t.decision.confirm(t.run.controls[asking])}
          yes={t.run.controls[asking]}
          dangerous={asking === "terminate" || asking === "stop"}
          busy={busy}
          onYes={() => void send(asking)}
          onNo={close}
        >
          <p>{t.run.explains[asking]}</p>
          {asking !== "resume" && asking !== "retry" && (
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
