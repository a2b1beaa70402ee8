// Everything about one step at the moment that is looked at: what it was given, what came of it, whom it waited for, what
// it called, which runs it started, and where it is written.

import type { Json, RunStep, Snapshot, Workflow } from "../../api/types.gen.ts";
import { isObject } from "../../logic/json.ts";
import { type StepSpan, lengthOf, workOf } from "../../logic/log.ts";
import type { ModelCall, ToolCall } from "../../logic/record.ts";
import { useReturn } from "../../parts/focus.ts";
import { Go } from "../../parts/Go.tsx";
import { Source } from "../../parts/Source.tsx";
import { Tree } from "../../parts/Tree.tsx";
import { Text } from "../../parts/Value.tsx";
import { exactly, inZones, span as spanText } from "../../text/dates.ts";
import { codeText } from "../../text/index.ts";
import { useRunText } from "../../text/runs.ts";
import { TONES } from "../runs/filters.ts";
import { planPathOf } from "./moment.ts";

interface StepCardProps {
  path: string;
  steps: readonly RunStep[];
  spans: readonly StepSpan[];
  snapshot: Snapshot | undefined;
  calls: readonly ToolCall[];
  modelCalls: readonly ModelCall[];
  workflow: Workflow | undefined;
  /** Where it is written; null: not known. */
  place: { line: number | null; end_line: number | null } | null;
  onPath(path: string | undefined): void;
  onMoment(seq: number): void;
  onEvents(path: string): void;
  /** The zone of the clock that started the run. */
  zone: string | null;
  actions?: React.ReactNode;
}

const PASSAGES = 200;

export function StepCard(props: StepCardProps) {
  const { path, steps, spans, snapshot, calls, modelCalls, workflow, place, zone, onPath, onMoment, onEvents } = props;
  const t = useRunText();
  useReturn();
  const plan = planPathOf(path);
  const passages = steps.filter((step) => step.plan_path === plan && step.verb !== "iteration");
  const step = passages.findLast((each) => each.path === path) ?? steps.findLast((each) => each.path === path);
  const span = step && spans.find((each) => each.seq === step.first_seq);
  const view = snapshot?.steps[path];
  const inside = (other: string): boolean => other === path || other.startsWith(`${path}/`) || other.startsWith(`${path}[`);
  const tools = calls.filter((each) => inside(each.path)).slice(-50);
  const models = modelCalls.filter((each) => inside(each.path)).slice(-50);
  const error = step?.error ?? view?.error ?? null;
  return (
    <aside className="card stack step" aria-label={t.step.about(path)}>
      <header className="row">
        <h2 className="grow">
          {step?.title || path}
          <div className="quiet small">
            {step?.title && <code>{path}</code>} {step?.verb}
          </div>
        </h2>
        {step && <span className={`tag ${TONES[step.status] ?? ""}`}>{t.runs.statuses[step.status]}</span>}
        <button className="plain slim" aria-label={t.app.close} onClick={() => onPath(undefined)}>
          ✕
        </button>
      </header>
      {passages.length > 1 && (
        <div className="field">
          <label htmlFor="passage">{t.graph.passages(passages.length)}</label>
          <select id="passage" value={path} onChange={(event) => onPath(event.currentTarget.value)}>
            {!step && <option value={path}>{path}</option>}
            {passages.slice(-PASSAGES).map((each) => (
              <option key={each.first_seq} value={each.path}>
                {each.path} · {t.runs.statuses[each.status]}
              </option>
            ))}
          </select>
        </div>
      )}
      {!step && <p className="quiet">{passages.length > 0 ? t.step.choose : t.graph.notReached}</p>}
      {step && span && (
        <dl className="facts small">
          <dt>{t.runs.started}</dt>
          <dd>
            <button className="plain slim" onClick={() => onMoment(step.first_seq)} title={t.step.goThere}>
              {exactly(step.started_at)}
            </button>
          </dd>
          {step.ended_at !== null && (
            <>
              <dt>{t.step.ended}</dt>
              <dd>
                <button className="plain slim" onClick={() => onMoment(step.last_seq)} title={t.step.goThere}>
                  {exactly(step.ended_at)}
                </button>
              </dd>
            </>
          )}
          <dt>{t.runs.lasted}</dt>
          <dd>
            {t.run.worked(spanText(lengthOf(workOf(span))))}
            {span.waits.length > 0 && `, ${t.run.waited(spanText(lengthOf(span.waits)))}`}
          </dd>
          {step.waits.slice(-10).map((wait, i) => (
            <Waited key={i} wait={wait} zone={zone} />
          ))}
        </dl>
      )}
      {props.actions}
      {error !== null && <Failure error={error} />}
      {workflow && place?.line != null && (
        <section>
          <h3>
            {t.step.source} <span className="quiet small">{t.step.lines(place.line, place.end_line ?? place.line)}</span>
          </h3>
          <Source source={workflow.source} line={place.line} endLine={place.end_line ?? place.line} label={t.step.source} />
        </section>
      )}
      {step?.args != null && (
        <section>
          <h3>{t.step.args}</h3>
          <Tree value={step.args} />
        </section>
      )}
      {view && view.output !== undefined && view.output !== null && (
        <section>
          <h3>{t.run.output}</h3>
          <Tree value={view.output} />
        </section>
      )}
      {step && step.notes.length > 0 && (
        <section>
          <h3>{t.run.changed}</h3>
          <ul className="small">
            {step.notes.map((each, i) => (
              <li key={i}>
                <Text text={each} />
              </li>
            ))}
          </ul>
        </section>
      )}
      {step && step.children.length > 0 && (
        <section>
          <h3>{t.step.children}</h3>
          <ul className="plain">
            {step.children.slice(0, 50).map((id) => (
              <li key={id}>
                <Go href={`/console/runs/${encodeURIComponent(id)}`}>{id}</Go>
              </li>
            ))}
          </ul>
        </section>
      )}
      {step && step.attempts.length > 1 && (
        <section>
          <h3>{t.run.attempts(step.attempts.length)}</h3>
          <ul className="plain small">
            {step.attempts.slice(-20).map((each, i) => (
              <li key={i}>
                {each.n}. {exactly(each.started_at)} {each.lost && <span className="tag warn">{t.step.lost}</span>}
                {each.error && <div className="quiet">{messageOf(each.error)}</div>}
              </li>
            ))}
          </ul>
        </section>
      )}
      {models.length > 0 && (
        <section>
          <h3>{t.step.models}</h3>
          <ul className="plain small">
            {models.map((each) => (
              <li key={each.seq}>
                <button className="plain slim" onClick={() => onMoment(each.seq)}>
                  {each.model || each.served}
                </button>{" "}
                {t.models.tokens(each.input, each.output)}
                {each.cost !== null && ` · ${t.run.cost(each.cost.toPrecision(3))}`}
              </li>
            ))}
          </ul>
        </section>
      )}
      {tools.length > 0 && (
        <section>
          <h3>{t.step.tools}</h3>
          <ul className="plain small">
            {tools.map((each) => (
              <li key={each.id}>
                <button className="plain slim" onClick={() => onMoment(each.seq)}>
                  {each.name.slice(0, 200)}
                </button>{" "}
                {each.error !== null && <span className="tag bad">{t.runs.statuses.failed}</span>}
              </li>
            ))}
          </ul>
        </section>
      )}
      <button onClick={() => onEvents(path)}>{t.step.events}</button>
    </aside>
  );
}

function Waited({ wait, zone }: { wait: RunStep["waits"][number]; zone: string | null }) {
  const t = useRunText();
  return (
    <>
      <dt>{wait.until === null ? t.step.waits[wait.for] : t.step.waited[wait.for]}</dt>
      <dd>
        {wait.until === null && wait.due !== null && <>{t.step.until(inZones(t, exactly(wait.due), wait.due, zone))} </>}
        {wait.until !== null && spanText(Math.max(0, Date.parse(wait.until) - Date.parse(wait.since)))}
        {wait.pending_id !== null && <Go href={`/console/inbox/${encodeURIComponent(wait.pending_id)}`}> {t.run.question}</Go>}
      </dd>
    </>
  );
}

/** What an error says: in the reader's language by its code, and then in its own words. */
export function messageOf(error: Json): string {
  if (!isObject(error)) return JSON.stringify(error).slice(0, 500);
  const message = typeof error["message"] === "string" ? error["message"] : String(error["code"]);
  return [codeText(error["code"]), message].filter(Boolean).join("：").slice(0, 500);
}

/** A failure, and what it came of. */
export function Failure({ error, title }: { error: Record<string, Json>; title?: React.ReactNode }) {
  const t = useRunText();
  const { code, message, cause, trace, ...rest } = error;
  const details = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== null && value !== ""));
  return (
    <div className="note bad">
      {title}
      <p>
        <b>{typeof code === "string" ? code.slice(0, 200) : t.run.error}</b> {codeText(code)}
      </p>
      {typeof message === "string" && (
        <p>
          <Text text={message} />
        </p>
      )}
      {isObject(cause) && (
        <details>
          <summary>{t.step.cause}</summary>
          <Failure error={cause} />
        </details>
      )}
      {(typeof trace === "string" || Object.keys(details).length > 0) && (
        <details>
          <summary>{t.decision.machinery}</summary>
          <Tree value={details} />
          {typeof trace === "string" && <pre className="trace">{trace.slice(0, 20_000)}</pre>}
        </details>
      )}
    </div>
  );
}
