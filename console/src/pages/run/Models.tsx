// What was asked of models, with tokens and cost; and what tools were called.

import { useMemo, useState } from "react";
import { type ModelCall, type ToolCall, usedOf } from "../../logic/record.ts";
import { Tree } from "../../parts/Tree.tsx";
import { clock } from "../../text/dates.ts";
import { useRunText } from "../../text/runs.ts";
import { parsed } from "./outputs.tsx";

const PIECE = 50;

interface ModelsProps {
  modelCalls: readonly ModelCall[];
  calls: readonly ToolCall[];
  loaded: boolean;
  onStep(path: string): void;
}

export function Models({ modelCalls, calls, loaded, onStep }: ModelsProps) {
  const t = useRunText();
  const [models, setModels] = useState(PIECE);
  const [tools, setTools] = useState(PIECE);
  const byModel = useMemo(() => {
    const found = new Map<string, ModelCall[]>();
    for (const each of modelCalls) {
      const those = found.get(each.model || each.served);
      if (those) those.push(each);
      else found.set(each.model || each.served, [each]);
    }
    return [...found].map(([model, those]) => ({ model, ...usedOf(those) }));
  }, [modelCalls]);
  if (!loaded) return null;
  if (modelCalls.length === 0 && calls.length === 0) return <p className="quiet">{t.models.none}</p>;
  return (
    <div className="stack">
      {modelCalls.length > 0 && (
        <section className="card">
          <h2>{t.step.models}</h2>
          {byModel.map((each) => (
            <p key={each.model} className="quiet">
              <b>{each.model}</b>: {t.run.models(each.calls, each.tokens)}
              {each.cost !== null && each.cost > 0 && `, ${t.run.cost(each.cost.toPrecision(3))}`}
            </p>
          ))}
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
