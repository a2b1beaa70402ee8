// A run is started with what the workflow's input schema asks for.

import { useState } from "react";
import { call } from "../../api/client.ts";
import type { Json, Run, Workflow } from "../../api/types.gen.ts";
import { beginning } from "../../logic/schema.ts";
import { referenceOf } from "../../logic/versions.ts";
import { useDraft } from "../../parts/draft.ts";
import { Form } from "../../parts/Form.tsx";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { usePageText } from "../../text/pages.ts";
import { hasInput, inputFindings } from "./input.ts";

export function Start({ workflow }: { workflow: Workflow }) {
  const p = usePageText().workflows;
  const reference = referenceOf(workflow.name, workflow);
  const [input, setInput, forget] = useDraft<Json | undefined>(`start.${reference}`, () => beginning(workflow.input));
  const { busy, problem, send } = useSending();
  const [started, setStarted] = useState<Run | null>(null);
  const asks = hasInput(workflow.input);

  async function start(): Promise<void> {
    setStarted(null);
    await send(async () => {
      setStarted(await call<Run>("POST", "/v1/runs", { workflow: reference, input: input ?? {} }, { key: crypto.randomUUID() }));
      forget();
    });
  }

  return (
    <form
      className="card stack narrow"
      onSubmit={(event) => {
        event.preventDefault();
        void start();
      }}
    >
      <h2>{p.input}</h2>
      {asks ? <Form of={`start ${reference}`} schema={workflow.input} value={input} onChange={setInput} findings={inputFindings(problem)} /> : <p className="quiet">{p.noInput}</p>}
      {problem && <ProblemNote problem={problem} />}
      <div role="status">
        {started && (
          <p className="note good">
            {p.started} <Go href={`/console/runs/${started.id}`}>{p.see}</Go>
          </p>
        )}
      </div>
      <div className="actions">
        <button className={`main ${busy ? "busy" : ""}`} disabled={busy}>
          {p.start}
        </button>
      </div>
    </form>
  );
}
