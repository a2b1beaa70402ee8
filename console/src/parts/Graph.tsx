// A workflow's picture, drawn of what the server says is in it; with what a run has done, in colours. One step of it has
// the keyboard at a time: arrows go on to the next one, Enter selects it.

import { type KeyboardEvent, memo, useEffect, useId, useMemo, useRef, useState } from "react";
import type { Graph as Drawn, GraphStep } from "../api/types.gen.ts";
import type { Passed } from "../logic/log.ts";
import { useRunText } from "../text/runs.ts";

type Shape = Drawn["shapes"][number];

interface GraphProps {
  graph: Drawn;
  /** What a run has done, by plan path; none: the workflow alone. */
  passed?: ReadonlyMap<string, Passed> | undefined;
  /** The plan path of the step that is chosen. */
  selected?: string | undefined;
  onSelect?: ((path: string) => void) | undefined;
}

const ZOOMS = [0.35, 0.5, 0.7, 1, 1.4, 2];

export function Graph({ graph, passed, selected, onSelect }: GraphProps) {
  const t = useRunText();
  const id = useId();
  const drawing = useRef<SVGSVGElement>(null);
  const [zoom, setZoom] = useState<number | null>(null);
  const groups = useMemo(() => grouped(graph), [graph]);
  const order = useMemo(() => graph.steps.map((step) => step.path), [graph]);
  const [at, setAt] = useState(selected ?? order[0] ?? "");
  const focused = order.includes(at) ? at : order[0];
  useEffect(() => {
    if (selected === undefined) return;
    setAt(selected);
    element(drawing.current, selected)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [selected, graph]);
  const go = (event: KeyboardEvent): void => {
    const place = order.indexOf(focused ?? "");
    const to = { ArrowDown: place + 1, ArrowRight: place + 1, ArrowUp: place - 1, ArrowLeft: place - 1, Home: 0, End: order.length - 1 }[event.key];
    const path = to === undefined ? undefined : order[Math.min(order.length - 1, Math.max(0, to))];
    if (path === undefined) return;
    event.preventDefault();
    setAt(path);
    element(drawing.current, path)?.focus();
  };
  const done = passed ? order.filter((path) => passed.has(path)).length : 0;
  return (
    <div className="picture">
      <div className="row end">
        <p id={id} className="small quiet grow">
          {passed ? t.graph.taken(done, order.length) : t.graph.steps(order.length)} <span className="hidden">{t.graph.keys}</span>
        </p>
        <div className="group" role="group" aria-label={t.graph.zoom}>
          <button className="slim" aria-label={t.graph.smaller} disabled={zoom === ZOOMS[0]} onClick={() => setZoom(next(zoom, -1))}>
            −
          </button>
          <button className="slim" aria-pressed={zoom === null} onClick={() => setZoom(null)}>
            {t.graph.fit}
          </button>
          <button className="slim" aria-label={t.graph.larger} disabled={zoom === ZOOMS.at(-1)} onClick={() => setZoom(next(zoom, 1))}>
            +
          </button>
        </div>
      </div>
      <div className="canvas">
        <svg
          ref={drawing}
          role="group"
          aria-label={t.graph.of(graph.title)}
          aria-describedby={id}
          viewBox={`0 0 ${graph.width} ${graph.height}`}
          width={zoom === null ? undefined : graph.width * zoom}
          className={zoom === null ? "fit" : ""}
          style={zoom === null ? { maxWidth: graph.width } : undefined}
          onKeyDown={go}
        >
          <defs>
            <marker id={`${id}tip`} viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto">
              <path className="tip" d="M0 1 L9 5 L0 9 z" />
            </marker>
          </defs>
          {groups.map(({ step, shapes, key }) =>
            step === null ? (
              <g key={key} aria-hidden="true">
                {shapes.map((shape, i) => (
                  <Painted key={i} shape={shape} tip={`${id}tip`} taken={isTaken(shape, passed)} />
                ))}
              </g>
            ) : (
              <StepGroup
                key={key}
                step={step}
                shapes={shapes}
                tip={`${id}tip`}
                passed={passed}
                chosen={step.path === selected}
                focusable={step.path === focused}
                onSelect={onSelect}
              />
            ),
          )}
        </svg>
      </div>
    </div>
  );
}

function next(zoom: number | null, by: number): number {
  const place = ZOOMS.indexOf(zoom ?? 1) + by;
  return ZOOMS[Math.min(ZOOMS.length - 1, Math.max(0, place))] ?? 1;
}

function element(svg: SVGSVGElement | null, path: string): SVGGElement | null {
  return svg?.querySelector<SVGGElement>(`[data-path="${CSS.escape(path)}"]`) ?? null;
}

interface Group {
  key: string;
  step: GraphStep | null;
  shapes: Shape[];
}

/** The shapes of each step together, steps in the order in which they are painted; what belongs to none comes first. */
function grouped(graph: Drawn): Group[] {
  const steps = new Map(graph.steps.map((step) => [step.path, step]));
  const ground: Group = { key: "", step: null, shapes: [] };
  const found = new Map<string, Group>();
  for (const shape of graph.shapes) {
    const step = shape.step === null ? undefined : steps.get(shape.step);
    if (step === undefined) {
      ground.shapes.push(shape);
      continue;
    }
    const group = found.get(step.path) ?? { key: step.path, step, shapes: [] };
    group.shapes.push(shape);
    found.set(step.path, group);
  }
  return [ground, ...found.values()];
}

function isTaken(shape: Shape, passed: ReadonlyMap<string, Passed> | undefined): boolean {
  if (passed === undefined || shape.shape !== "line" || shape.from === null || shape.to === null) return false;
  if (shape.to === "") return passed.get(shape.from)?.tone === "finished";
  return passed.has(shape.to) && (shape.from === "" || passed.has(shape.from));
}

interface StepGroupProps {
  step: GraphStep;
  shapes: Shape[];
  tip: string;
  passed: ReadonlyMap<string, Passed> | undefined;
  chosen: boolean;
  focusable: boolean;
  onSelect: ((path: string) => void) | undefined;
}

function StepGroup({ step, shapes, tip, passed, chosen, focusable, onSelect }: StepGroupProps) {
  const t = useRunText();
  const here = passed?.get(step.path);
  const box = shapes.find((shape) => shape.shape === "box");
  const said = here ? `${t.runs.statuses[here.tone]}${here.count > 1 ? `, ${t.graph.passages(here.count)}` : ""}` : passed ? t.graph.notReached : "";
  const choose = (): void => onSelect?.(step.path);
  return (
    <g
      role="button"
      data-path={step.path}
      data-tone={here?.tone ?? (passed ? "ahead" : undefined)}
      data-kind={step.kind}
      aria-pressed={chosen}
      tabIndex={focusable ? 0 : -1}
      onClick={choose}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        choose();
      }}
    >
      {shapes.map((shape, i) => (
        <Painted key={i} shape={shape} tip={tip} taken={isTaken(shape, passed)} />
      ))}
      {said !== "" && box && (
        <text className="said" x={box.x} y={box.y}>
          {said}
        </text>
      )}
      {here && here.count > 1 && box && (
        <g className="count" aria-hidden="true">
          <rect x={box.x + box.width - 46} y={box.y - 10} width={48} height={20} rx={10} />
          <text x={box.x + box.width - 22} y={box.y + 4.5} textAnchor="middle">
            ×{here.count > 9999 ? "9999+" : here.count}
          </text>
        </g>
      )}
    </g>
  );
}

const Painted = memo(function Painted({ shape, tip, taken }: { shape: Shape; tip: string; taken: boolean }) {
  const t = useRunText();
  if (shape.shape === "box") {
    return <rect className={shape.style} x={shape.x} y={shape.y} width={shape.width} height={shape.height} rx={shape.radius} />;
  }
  if (shape.shape === "text") {
    return (
      <text className={shape.style} x={shape.x} y={shape.y} textAnchor={shape.anchor}>
        {t.graph.word(shape.style, shape.text, shape.step !== null)}
        {shape.full !== null && <title>{t.graph.word(shape.style, shape.full, shape.step !== null).slice(0, 2000)}</title>}
      </text>
    );
  }
  const d = shape.points.map(([x, y], i) => `${i === 0 ? "M" : "L"}${x} ${y}`).join(" ");
  return <path className={`${shape.style} ${taken ? "taken" : ""}`} d={d} markerEnd={shape.arrow ? `url(#${tip})` : undefined} />;
});
