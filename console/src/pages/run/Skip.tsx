// To go on behind a step at which a run stands, with an output in place of its own.

import { useState } from "react";
import { call } from "../../api/client.ts";
import { type Problem, asProblem } from "../../api/problems.ts";
import { Ask } from "../../parts/Ask.tsx";
import { JsonField, writtenOf } from "../../parts/JsonField.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useText } from "../../text/index.ts";
import { runPath } from "./moment.ts";

export function Skip({ runId, path, close, done }: { runId: string; path: string; close(): void; done(): void }) {
  const t = useText();
  const [output, setOutput] = useState(writtenOf(undefined));
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const send = async (): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      await call("POST", `${runPath(runId)}/skip`, { step: path, output: output.value ?? null, reason });
      close();
      done();
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Ask title={t.skip.question(path)} yes={t.skip.title} dangerous busy={busy || !output.valid} onYes={() => void send()} onNo={close}>
      <p>{t.skip.explains}</p>
      <JsonField label={t.skip.output} hint={t.skip.outputHint} value={output} onChange={setOutput} />
      <div className="field">
        <label htmlFor="skip-reason">{t.decision.reason}</label>
        <input id="skip-reason" maxLength={2000} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </div>
      {problem && <ProblemNote problem={problem} />}
    </Ask>
  );
}
