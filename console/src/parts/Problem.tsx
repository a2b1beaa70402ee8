// A refusal, in the reader's language, with what else the server has found.

import { useEffect } from "react";
import type { Problem } from "../api/problems.ts";
import { host } from "../host.ts";
import { findingText, sentence, useText } from "../text/index.ts";

export function ProblemNote({ problem, again }: { problem: Problem; again?: (() => void) | undefined }) {
  const t = useText();
  useEffect(() => host.report(problem), [problem]);
  const unplaced = problem.findings.filter((each) => !each.path);
  return (
    <div className="note bad" role="alert">
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
