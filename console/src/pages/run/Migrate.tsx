// To let a run go on with another version of its workflow, from where it stands. Whether it can is said before.

import { useState } from "react";
import { call } from "../../api/client.ts";
import type { MigratedRun, Migration, Run } from "../../api/types.gen.ts";
import { nameOfVersion } from "../../logic/versions.ts";
import { Ask } from "../../parts/Ask.tsx";
import { useSending } from "../../parts/useSending.ts";
import { findingText } from "../../text/index.ts";
import { useRunText } from "../../text/runs.ts";
import { useWorkflow } from "./moment.ts";

export function Migrate({ run, close, done }: { run: Run; close(): void; done(): void }) {
  const t = useRunText();
  const workflow = useWorkflow(run.workflow, true);
  const others = (workflow.data?.versions ?? []).filter((each) => each.sha256 !== run.version.sha256);
  const [to, setTo] = useState("");
  const [examined, setExamined] = useState<MigratedRun | null>(null);
  const { busy, problem, send } = useSending();
  const wanted = to || (others[0] ? nameOfVersion(others[0]) : "");
  const migrate = async (dryRun: boolean): Promise<void> => {
    const refused = await send(async () => {
      const body = { from: nameOfVersion(run.version), to: wanted, runs: [run.id], dry_run: dryRun };
      const answer = await call<Migration>("POST", `/v1/workflows/${encodeURIComponent(run.workflow)}/migrate`, body);
      const found = answer.runs[0] ?? null;
      setExamined(found);
      if (!dryRun && found?.moved) {
        close();
        done();
      }
    });
    if (refused) setExamined(null);
  };
  const ready = examined?.movable === true;
  return (
    <Ask
      title={t.migrate.question}
      yes={ready ? t.migrate.title : t.fork.rehearse}
      busy={busy}
      notYet={wanted === ""}
      problem={problem}
      onYes={() => void migrate(!ready)}
      onNo={close}
    >
      <p>{t.migrate.explains}</p>
      {workflow.data && others.length === 0 && <p className="note">{t.migrate.none}</p>}
      {others.length > 0 && (
        <div className="field">
          <label htmlFor="migrate-to">{t.migrate.to(nameOfVersion(run.version))}</label>
          <select
            id="migrate-to"
            value={wanted}
            onChange={(event) => {
              setTo(event.currentTarget.value);
              setExamined(null);
            }}
          >
            {others.slice(0, 200).map((each) => (
              <option key={nameOfVersion(each)} value={nameOfVersion(each)}>
                {nameOfVersion(each)}
              </option>
            ))}
          </select>
        </div>
      )}
      {ready && (
        <p className="note good" role="status">
          {t.migrate.can}
        </p>
      )}
      {examined && !examined.movable && (
        <div className="note bad" role="alert">
          <p>{t.migrate.cannot}</p>
          <ul>
            {examined.obstacles.slice(0, 20).map((each) => (
              <li key={`${each.path} ${each.code}`}>
                <b>{each.path}</b> {findingText(each)}
              </li>
            ))}
          </ul>
        </div>
      )}
    </Ask>
  );
}
