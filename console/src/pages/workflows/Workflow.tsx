// One workflow: its picture, its text, its versions; and how it is started.

import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { Graph as Drawn, GraphStep, Workflow as Shown } from "../../api/types.gen.ts";
import { useMay } from "../../context.ts";
import { nameOfVersion, referenceOf } from "../../logic/versions.ts";
import { Go } from "../../parts/Go.tsx";
import { Graph } from "../../parts/Graph.tsx";
import { Lacking } from "../../parts/Missing.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { Tabs } from "../../parts/Tabs.tsx";
import { Text } from "../../parts/Value.tsx";
import { moment } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";
import { useRunText } from "../../text/runs.ts";
import { Chat } from "./Chat.tsx";
import { Start } from "./Start.tsx";
import { Versions } from "./Versions.tsx";
import { type View, VIEWS, type WorkflowSearch } from "./search.ts";

const route = getRouteApi("/workflows/$name");

export function WorkflowPage() {
  const { name } = route.useParams();
  return <Workflow key={name} name={name} />;
}

function Workflow({ name }: { name: string }) {
  const t = useText();
  const p = usePageText().workflows;
  const search = route.useSearch();
  const navigate = useNavigate();
  const set = (more: Partial<WorkflowSearch>): void =>
    void navigate({ to: "/workflows/$name", params: { name }, search: { ...search, ...more }, replace: true });
  const reference = search.version ? `${name}@${search.version}` : name;
  const found = useQuery({
    queryKey: ["workflow", reference],
    queryFn: ({ signal }) => get<Shown>(`/v1/workflows/${encodeURIComponent(reference)}`, signal),
    retry: false,
  });
  const seesRuns = useMay("see_own");
  const starts = useMay("speak");
  const writes = useMay("check_workflows");
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), [name, found.data === undefined]);
  if (found.error) return <Lacking problem={asProblem(found.error)} again={() => void found.refetch()} />;
  if (!found.data) return <p role="status">{t.app.loading}</p>;
  const workflow = found.data;
  const views = VIEWS.filter((each) => (each === "start" || each === "chat" ? starts : true));
  const view = views.find((each) => each === search.pane) ?? "picture";
  return (
    <>
      <div className="row">
        <h1 className="grow" tabIndex={-1} ref={heading} dir="auto">
          {(workflow.title ?? workflow.name).slice(0, 200)}
        </h1>
        {seesRuns && <Go href={`/console/runs?workflow=${encodeURIComponent(name)}`}>{p.runs}</Go>}
        {writes && (
          <Go href={`/console/workflows/${encodeURIComponent(name)}/edit`} className="button">
            {p.edit}
          </Go>
        )}
      </div>
      <p className="quiet small">
        <code>{workflow.name}</code> · {p.version(workflow.version)} {workflow.dev && <span className="tag warn">{p.draft}</span>} ·{" "}
        {p.published} {moment(workflow.created_at)}
      </p>
      {workflow.description && <Text text={workflow.description} />}
      {workflow.versions.length > 1 && (
        <div className="field short">
          <label htmlFor="version">{p.other}</label>
          <select
            id="version"
            value={nameOfVersion(workflow)}
            onChange={(event) => set({ version: event.currentTarget.value, step: undefined })}
          >
            {workflow.versions.map((each) => (
              <option key={each.sha256} value={nameOfVersion(each)}>
                {nameOfVersion(each)} ({moment(each.created_at)})
              </option>
            ))}
          </select>
        </div>
      )}
      <Tabs<View> tabs={views.map((each) => ({ id: each, label: p.tabs[each] }))} label={p.views} shown={view} onShow={(each) => set({ pane: each })}>
        {view === "picture" && <Picture reference={referenceOf(name, workflow)} step={search.step} onStep={(step) => set({ step })} />}
        {view === "source" && (
          <pre className="source-text" tabIndex={0} role="region" aria-label={p.tabs.source}>
            {workflow.source}
          </pre>
        )}
        {view === "versions" && <Versions workflow={workflow} search={search} set={set} />}
        {view === "start" && <Start workflow={workflow} />}
        {view === "chat" && <Chat workflow={workflow} />}
      </Tabs>
    </>
  );
}

function Picture({ reference, step, onStep }: { reference: string; step: string | undefined; onStep(path: string): void }) {
  const t = useText();
  const found = useQuery({
    queryKey: ["graph", reference],
    queryFn: ({ signal }) => get<Drawn>(`/v1/workflows/${encodeURIComponent(reference)}/graph?format=json`, signal),
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (found.error) return <ProblemNote problem={asProblem(found.error)} again={() => void found.refetch()} />;
  if (!found.data) return <p role="status">{t.app.loading}</p>;
  const chosen = found.data.steps.find((each) => each.path === step);
  return (
    <div className="beside">
      <Graph graph={found.data} selected={step} onSelect={onStep} />
      <StepFacts step={chosen} />
    </div>
  );
}

function StepFacts({ step }: { step: GraphStep | undefined }) {
  const p = usePageText().workflows;
  const t = useRunText();
  return (
    <aside className="card" aria-label={p.step} aria-live="polite">
      {step === undefined ? (
        <p className="quiet">{p.chooseStep}</p>
      ) : (
        <>
          <h2 dir="auto">{step.title || step.path}</h2>
          <dl className="facts">
            <dt>{p.step}</dt>
            <dd>
              <code>{step.path}</code> {step.line !== null && <span className="quiet">({p.line(step.line)})</span>}
            </dd>
            <dt>{p.verb}</dt>
            <dd>{step.verb}</dd>
            {step.condition && (
              <>
                <dt>{p.condition}</dt>
                <dd>
                  <code>{step.condition}</code>
                </dd>
              </>
            )}
          </dl>
          {step.detail && <Text text={step.detail} />}
          {step.notes.map((each) => (
            <p key={each} className="small quiet">
              {t.graph.word("note", each, true)}
            </p>
          ))}
        </>
      )}
    </aside>
  );
}
