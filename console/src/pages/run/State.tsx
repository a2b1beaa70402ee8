// The state of a run at a moment, as trees, and its steps with what came of them.

import { Fragment, useState } from "react";
import type { Run, Snapshot } from "../../api/types.gen.ts";
import { useZone } from "../../api/zone.ts";
import { Tree } from "../../parts/Tree.tsx";
import { exactly, inZones } from "../../text/dates.ts";
import { useRunText } from "../../text/runs.ts";
import { TONES } from "../runs/filters.ts";
import { Failure } from "./StepCard.tsx";

const PIECE = 200;

export function State({ snapshot, run, onStep }: { snapshot: Snapshot; run: Run; onStep(path: string): void }) {
  const t = useRunText();
  const [shown, setShown] = useState(PIECE);
  const zone = useZone(run.workflow, run.started_by);
  const steps = Object.entries(snapshot.steps);
  return (
    <div className="stack">
      <section className="card">
        <h2>{t.run.shared}</h2>
        <Tree value={snapshot.state} />
      </section>
      <section className="card">
        <h2>{t.run.input}</h2>
        <Tree value={run.input} />
      </section>
      {snapshot.output !== null && (
        <section className="card">
          <h2>{t.run.output}</h2>
          <Tree value={snapshot.output} />
        </section>
      )}
      {snapshot.timers.length > 0 && (
        <section className="card">
          <h2>{t.run.timers}</h2>
          <dl className="facts small">
            {snapshot.timers.slice(0, 50).map((timer) => (
              <Fragment key={`${timer.path} ${timer.kind}`}>
                <dt>
                  {timer.path} <span className="tag">{timer.kind}</span>
                </dt>
                <dd>{inZones(t, exactly(timer.due), timer.due, zone)}</dd>
              </Fragment>
            ))}
          </dl>
        </section>
      )}
      <section className="card">
        <h2>{t.run.steps}</h2>
        {steps.length === 0 && <p className="quiet">{t.run.empty}</p>}
        <ul className="items">
          {steps.slice(0, shown).map(([path, step]) => (
            <li key={path}>
              <div className="grow">
                <button className="plain slim" onClick={() => onStep(path)}>
                  <b>{path}</b>
                </button>{" "}
                <span className={`tag ${(TONES as Record<string, string>)[step.status] ?? ""}`} data-status={step.status}>
                  {(t.runs.statuses as Record<string, string>)[step.status] ?? step.status}
                </span>{" "}
                {step.attempt > 1 && <span className="quiet small">{t.run.attempts(step.attempt)}</span>}
                {step.output !== undefined && step.output !== null && <Tree value={step.output} open={0} />}
                {step.error && <Failure error={step.error} />}
              </div>
            </li>
          ))}
        </ul>
        {steps.length > shown && <button onClick={() => setShown(shown + 5 * PIECE)}>{t.decision.moreEntries(steps.length - shown)}</button>}
      </section>
    </div>
  );
}
