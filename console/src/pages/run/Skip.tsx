// To go on behind a step at which a run stands, with an output in place of its own.

import { call } from "../../api/client.ts";
import { Ask } from "../../parts/Ask.tsx";
import { useDraft } from "../../parts/draft.ts";
import { Field } from "../../parts/Field.tsx";
import { JsonField, writtenOf } from "../../parts/JsonField.tsx";
import { useSending } from "../../parts/useSending.ts";
import { useRunText } from "../../text/runs.ts";
import { runPath } from "./early.ts";

export function Skip({ runId, path, close, done }: { runId: string; path: string; close(): void; done(): void }) {
  const t = useRunText();
  const [draft, write, forget] = useDraft(`skip.${runId}.${path}`, () => ({ output: writtenOf(undefined), reason: "" }));
  const { output, reason } = draft;
  const { busy, problem, send } = useSending();
  const leave = (): void => {
    forget();
    close();
  };
  const skip = (): Promise<unknown> =>
    send(async () => {
      await call("POST", `${runPath(runId)}/skip`, { step: path, output: output.value ?? null, reason });
      leave();
      done();
    });
  return (
    <Ask title={t.skip.question(path)} yes={t.skip.title} dangerous busy={busy} notYet={!output.valid} problem={problem} onYes={() => void skip()} onNo={leave}>
      <p>{t.skip.explains}</p>
      <JsonField label={t.skip.output} hint={t.skip.outputHint} value={output} onChange={(now) => write({ ...draft, output: now })} />
      <Field id="skip-reason" label={t.decision.reason} maxLength={2000} value={reason} onChange={(now) => write({ ...draft, reason: now })} />
    </Ask>
  );
}
