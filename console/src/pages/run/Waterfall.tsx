// How long each step took, as the server says it. Bars are work; a long time in which nobody worked takes little room and
// says how long it was.

import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef } from "react";
import { type StepSpan, axisOf, lengthOf, workOf } from "../../logic/log.ts";
import { span as spanText } from "../../text/dates.ts";
import { useRunText } from "../../text/runs.ts";
import { TONES } from "../runs/filters.ts";

const WIDTH = 1000;
const ROW = 58;

interface WaterfallProps {
  spans: readonly StepSpan[];
  selected: string | undefined;
  onStep(path: string): void;
}

export function Waterfall({ spans, selected, onStep }: WaterfallProps) {
  const t = useRunText();
  const axis = useMemo(() => axisOf(spans), [spans]);
  const scroll = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: spans.length, getScrollElement: () => scroll.current, estimateSize: () => ROW, overscan: 10 });
  if (spans.length === 0) return <p className="quiet">{t.run.empty}</p>;
  return (
    <>
      {axis.folds.length > 0 && (
        <p className="quiet small">{axis.folds.slice(0, 10).map((fold) => t.run.folded(spanText(fold.ms))).join(" · ")}</p>
      )}
      <div className="table" role="table" aria-label={t.run.tabs.waterfall} aria-rowcount={spans.length + 1}>
        <div className="line fall head" role="row" aria-rowindex={1}>
          <span role="columnheader">{t.run.step}</span>
          <span role="columnheader">{t.runs.status}</span>
          <span role="columnheader">{t.runs.lasted}</span>
        </div>
        <div className="scroll short" ref={scroll} role="rowgroup" tabIndex={0} aria-label={t.run.steps}>
          <div style={{ height: rows.getTotalSize() }} role="presentation">
            {rows.getVirtualItems().map((row) => {
              const span = spans[row.index];
              return (
                span && (
                  <div
                    key={span.seq}
                    ref={rows.measureElement}
                    data-index={row.index}
                    className={`placed line fall ${span.path === selected ? "current" : ""}`}
                    style={{ minHeight: ROW, transform: `translateY(${row.start}px)` }}
                    role="row"
                    aria-rowindex={row.index + 2}
                    data-path={span.path}
                  >
                    <Row span={span} axis={axis} onStep={onStep} />
                  </div>
                )
              );
            })}
          </div>
        </div>
      </div>
    </>
  );
}

function Row({ span, axis, onStep }: { span: StepSpan; axis: ReturnType<typeof axisOf>; onStep(path: string): void }) {
  const t = useRunText();
  const waited = lengthOf(span.waits);
  const work = workOf(span);
  const depth = Math.min(6, span.path.split("/").length - 1 + (span.verb === "iteration" ? 1 : 0));
  return (
    <>
      <div role="rowheader" className={`depth-${depth}`}>
        <button className="plain slim" onClick={() => onStep(span.path)}>
          <bdi>{span.title || span.path}</bdi>
        </button>
        <div className="quiet small">
          {span.title && `${span.path} · `}
          {span.verb}
          {span.attempts > 1 && ` · ${t.run.attempts(span.attempts)}`}
        </div>
      </div>
      <div role="cell">
        <span className={`tag ${TONES[span.status] ?? ""}`}>{t.runs.statuses[span.status]}</span>
      </div>
      <div role="cell" className="bars">
        <svg viewBox={`0 0 ${WIDTH} 16`} preserveAspectRatio="none" aria-hidden="true">
          {axis.folds.slice(0, 50).map((fold, i) => (
            <line key={i} className="fold" x1={fold.x * WIDTH} x2={fold.x * WIDTH} y1={0} y2={16} />
          ))}
          {span.waits.slice(0, 50).map((each, i) => (
            <Bar key={i} className="wait" from={axis.x(each.from)} to={axis.x(each.to)} thin />
          ))}
          {work.slice(0, 50).map((each, i) => (
            <Bar key={i} className={span.status === "failed" ? "bad" : "work"} from={axis.x(each.from)} to={axis.x(each.to)} thin={span.holds} />
          ))}
        </svg>
        <span className="small">
          {span.holds ? spanText(span.to - span.from) : t.run.worked(spanText(lengthOf(work)))}
          {waited > 0 && `, ${t.run.waited(spanText(waited))}`}
        </span>
      </div>
    </>
  );
}

function Bar({ className, from, to, thin = false }: { className: string; from: number; to: number; thin?: boolean }) {
  const width = Math.max(2, (to - from) * WIDTH);
  return <rect className={className} x={Math.min(from * WIDTH, WIDTH - width)} y={thin ? 6 : 2} width={width} height={thin ? 4 : 12} />;
}
