// The one page for what is not there and for what is not the reader's to see, so that neither tells of the other.

import { useEffect, useRef } from "react";
import type { Problem } from "../api/problems.ts";
import { host } from "../host.ts";
import { useText } from "../text/index.ts";
import { ProblemNote } from "./Problem.tsx";

export function Missing() {
  const t = useText();
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  return (
    <>
      <h1 tabIndex={-1} ref={heading}>
        {t.app.unknownTitle}
      </h1>
      <p>{t.app.unknown}</p>
    </>
  );
}

/** Why a page has nothing to show. */
export function Lacking({ problem, again }: { problem: Problem; again(): void }) {
  useEffect(() => {
    if (problem.status === 404) host.report(problem);
  }, [problem.status]);
  return problem.status === 404 ? <Missing /> : <ProblemNote problem={problem} again={again} />;
}
