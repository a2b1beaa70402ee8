// What was asked of models, with tokens and cost; and what tools were called.

import { useState } from "react";
import type { ModelUsage } from "../../api/types.gen.ts";
import type { ModelCall, ToolCall } from "../../logic/record.ts";
import { Tree } from "../../parts/Tree.tsx";
import { clock } from "../../text/dates.ts";
import { useRunText } from "../../text/runs.ts";
import { parsed } from "./outputs.tsx";

const PIECE = 50;

/** What answers of models took in all. */
export function Used({ usage }: { usage: readonly ModelUsage[] }) {
  const t = useRunText();
  const sum = (of: (each: ModelUsage) => number): number => usage.reduce((before, each) => before + of(each), 0);
  const cost = usage.some((each) => each.cost === null) ? 0 : sum((each) => each.cost ?? 0);
  return (
    <>
      {t.run.models(sum((each) => each.calls), sum((each) => each.input + each.output))}
      {cost > 0 && `, ${t.run.cost(cost.toPrecision(3))}`}
    </>
  );
}

interface ModelsProps {
  /** The server's sums. The calls are those of the events that are read. */
  usage: readonly ModelUsage[];
  modelCalls: readonly ModelCall[];
  calls: readonly ToolCall[];
  loaded: boolean;
  onStep(path: string): void;
}

export function Models({ usage, modelCalls, calls, loaded, onStep }: ModelsProps) {
  const t = useRunText();
  const [models, setModels] = useState(PIECE);
  const [tools, setTools] = useState(PIECE);
  if (usage.length === 0 && calls.length === 0) return loaded ? <p className="quiet">{t.models.none}</p> : null;
  return (
    <div className="stack">
      {usage.length > 0 && (
        <section className="card">
          <h2>{t.step.models}</h2>
          {usage.map((each) => (
            <p key={`${each.provider} ${each.model}`} className="quiet">
              <b>{each.model}</b>
              {t.app.colon}
              <Used usage={[each]} />
            </p>
          ))}
          {modelCalls.length > 0 && (
            <div className="fall">
              <table>
                <thead>
                  <tr>
                    <th scope="col">{t.models.when}</th>
                    <th scope="col">{t.run.step}</th>
                    <th scope="col">{t.models.model}</th>
                    <th scope="col" className="number">{t.models.input}</th>
                    <th scope="col" className="number">{t.models.output}</th>
                    <th scope="col" className="number">{t.models.cost}</th>
                  </tr>
                </thead>
                <tbody>
                  {modelCalls.slice(-models).map((each) => (
                    <tr key={each.seq}>
                      <td>{clock(each.at)}</td>
                      <td>
                        <button className="plain slim" onClick={() => onStep(each.path)}>
                          {each.path.slice(0, 200)}
                        </button>
                      </td>
                      <td>
                        {each.served || each.model} {each.estimated && <span className="tag">{t.models.estimated}</span>}{" "}
                        {each.repair && <span className="tag warn">{t.models.repair}</span>}
                      </td>
                      <td className="number">
                        {each.input.toLocaleString()}
                        {each.cached > 0 && <div className="quiet small">{t.models.cached(each.cached)}</div>}
                      </td>
                      <td className="number">
                        {each.output.toLocaleString()}
                        {each.reasoning > 0 && <div className="quiet small">{t.models.reasoning(each.reasoning)}</div>}
                      </td>
                      <td className="number">{each.cost === null ? t.models.unknown : `$${each.cost.toPrecision(3)}`}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
          {modelCalls.length > models && <button onClick={() => setModels(models + 5 * PIECE)}>{t.app.more}</button>}
        </section>
      )}
      {calls.length > 0 && (
        <section className="card">
          <h2>{t.step.tools}</h2>
          <ul className="plain">
            {calls.slice(-tools).map((each) => (
              <li key={each.id}>
                <details>
                  <summary>
                    <span className="grow">
                      <b>{each.name.slice(0, 200)}</b> <span className="quiet small">{each.path}</span>
                    </span>
                    {each.error !== null ? (
                      <span className="tag bad">{t.runs.statuses.failed}</span>
                    ) : each.result === null ? (
                      <span className="tag accent">{t.runs.statuses.running}</span>
                    ) : null}
                  </summary>
                  <h3>{t.step.args}</h3>
                  <Tree value={parsed(each.args)} />
                  {each.error !== null && <p className="note bad">{each.error.slice(0, 2000)}</p>}
                  {each.result !== null && (
                    <>
                      <h3>{t.run.output}</h3>
                      <Tree value={parsed(each.result)} />
                    </>
                  )}
                  <button className="plain slim" onClick={() => onStep(each.path)}>
                    {t.step.about(each.path)}
                  </button>
                </details>
              </li>
            ))}
          </ul>
          {calls.length > tools && <button onClick={() => setTools(tools + 5 * PIECE)}>{t.app.more}</button>}
        </section>
      )}
    </div>
  );
}
