// How long each step took. Bars are work; a long time in which nobody worked takes little room and says how long it was.

import { useMemo, useState } from "react";
import { type LogEvent, type StepSpan, axisOf, lengthOf, spansOf, workOf } from "../../logic/log.ts";
import { span as spanText } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";

const ROWS = 200;
const WIDTH = 1000;
const TONES: Record<string, string> = { finished: "good", failed: "bad", stopped: "warn", skipped: "" };

export function Waterfall({ events, now }: { events: readonly LogEvent[]; now: number }) {
  const t = useText();
  const [rows, setRows] = useState(ROWS);
  const spans = useMemo(() => spansOf(events, now), [events, now]);
  const axis = useMemo(() => axisOf(spans), [spans]);
  if (spans.length === 0) return <p className="quiet">{t.run.empty}</p>;
  return (
    <div className="fall" tabIndex={0} role="region" aria-label={t.run.tabs.waterfall}>
      {axis.folds.length > 0 && (
        <p className="quiet small">{axis.folds.slice(0, 10).map((fold) => t.run.folded(spanText(fold.ms))).join(" · ")}</p>
      )}
      <table>
        <thead>
          <tr>
            <th scope="col">{t.run.step}</th>
            <th scope="col">{t.runs.status}</th>
            <th scope="col">{t.runs.lasted}</th>
          </tr>
        </thead>
        <tbody>
          {spans.slice(0, rows).map((each) => (
            <Row key={each.path} span={each} axis={axis} />
          ))}
        </tbody>
      </table>
      {spans.length > rows && <button onClick={() => setRows(rows + ROWS)}>{t.app.more}</button>}
    </div>
  );
}

function Row({ span, axis }: { span: StepSpan; axis: ReturnType<typeof axisOf> }) {
  const t = useText();
  const waited = lengthOf(span.waits);
  const worked = lengthOf(workOf(span));
  return (
    <tr>
      <th scope="row">
        {span.title || span.path}
        <div className="quiet small">
          {span.title && `${span.path} · `}
          {span.verb}
          {span.attempts > 1 && ` · ${t.run.attempts(span.attempts)}`}
        </div>
      </th>
      <td>
        <span className={`tag ${TONES[span.end ?? ""] ?? "accent"}`}>{t.runs.statuses[span.end ?? "running"]}</span>
      </td>
      <td className="bars">
        <svg viewBox={`0 0 ${WIDTH} 16`} preserveAspectRatio="none" aria-hidden="true">
          {axis.folds.map((fold, i) => (
            <line key={i} className="fold" x1={fold.x * WIDTH} x2={fold.x * WIDTH} y1={0} y2={16} />
          ))}
          {span.waits.map((each, i) => (
            <Bar key={i} className="wait" from={axis.x(each.from)} to={axis.x(each.to)} thin />
          ))}
          {workOf(span).map((each, i) => (
            <Bar key={i} className={span.end === "failed" ? "bad" : "work"} from={axis.x(each.from)} to={axis.x(each.to)} thin={span.holds} />
          ))}
        </svg>
        <span className="small">
          {span.holds ? spanText(span.to - span.from) : t.run.worked(spanText(worked))}
          {waited > 0 && `, ${t.run.waited(spanText(waited))}`}
        </span>
      </td>
    </tr>
  );
}

function Bar({ className, from, to, thin = false }: { className: string; from: number; to: number; thin?: boolean }) {
  const width = Math.max(2, (to - from) * WIDTH);
  return <rect className={className} x={Math.min(from * WIDTH, WIDTH - width)} y={thin ? 6 : 2} width={width} height={thin ? 4 : 12} />;
}
