// A refusal, in the reader's language, with what else the server has found.

import { useEffect, useRef } from "react";
import type { Problem } from "../api/problems.ts";
import { host } from "../host.ts";
import { findingText, sentence, useText } from "../text/index.ts";

interface ProblemNoteProps {
  problem: Problem;
  again?: (() => void) | undefined;
  /** A form beside it shows at each field that is missing that it is. */
  atFields?: boolean;
  /** It answers a press: it comes into view, however long the page is. */
  comes?: boolean;
}

export function ProblemNote({ problem, again, atFields = false, comes = false }: ProblemNoteProps) {
  const t = useText();
  const note = useRef<HTMLDivElement>(null);
  useEffect(() => host.report(problem), [problem]);
  useEffect(() => {
    if (comes) note.current?.scrollIntoView({ block: "nearest" });
  }, [problem, comes]);
  const unplaced = problem.findings.filter((each) => !each.path && !(atFields && each.code === "value.required"));
  return (
    <div className="note bad" role="alert" ref={note}>
      <p>{sentence(t, problem)}</p>
      {unplaced.length > 0 && (
        <ul>
          {unplaced.slice(0, 20).map((each) => (
            <li key={each.message}>{findingText(each)}</li>
          ))}
        </ul>
      )}
      {again && <button onClick={again}>{t.app.again}</button>}
    </div>
  );
}
