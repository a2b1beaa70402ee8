// The text of a workflow, with what the server finds in it and the picture that it makes, as one types.

import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { Suspense, lazy, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { callWithText, get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { Finding, Formatted, Graph as Drawn, PublishedWorkflow, Workflow } from "../../api/types.gen.ts";
import { useMay } from "../../context.ts";
import { TEMPLATE, nameOf, versionOf, withSchedule, withVersion } from "../../logic/drafts.ts";
import type { Schema } from "../../logic/schema.ts";
import { Ask } from "../../parts/Ask.tsx";
import { dropText, keepText, keptText } from "../../parts/draft.ts";
import type { Spot } from "../../parts/Editor.tsx";
import { Go } from "../../parts/Go.tsx";
import { Graph } from "../../parts/Graph.tsx";
import { Lacking } from "../../parts/Missing.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { findingText, useText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";
import type { EditSearch } from "./search.ts";
import { type Checked, useChecked } from "./useChecked.ts";

const Editor = lazy(() => import("../../parts/Editor.tsx"));
const SHOWN = 50;

export function NewPage() {
  return <Edit name={null} search={getRouteApi("/workflows/new").useSearch()} />;
}

export function EditPage() {
  const route = getRouteApi("/workflows/$name/edit");
  const { name } = route.useParams();
  return <Edit key={name} name={name} search={route.useSearch()} />;
}

/** `name` null: a workflow that is not there yet. */
function Edit({ name, search }: { name: string | null; search: EditSearch }) {
  const t = useText();
  const found = useQuery({
    queryKey: ["workflow", name],
    queryFn: ({ signal }) => get<Workflow>(`/v1/workflows/${encodeURIComponent(name ?? "")}`, signal),
    enabled: name !== null,
    retry: false,
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (name === null) return <Text key="new" name={null} source={TEMPLATE} search={search} />;
  if (found.error) return <Lacking problem={asProblem(found.error)} again={() => void found.refetch()} />;
  if (!found.data) return <p role="status">{t.app.loading}</p>;
  return <Text key={found.data.sha256} name={name} source={found.data.source} search={search} />;
}

function begun(source: string, search: EditSearch): string {
  if (!search.cron) return source;
  const next = withVersion(source, (versionOf(source) ?? 0) + 1);
  return withSchedule(next, search.cron, search.zone ?? "UTC");
}

function Text({ name, source, search }: { name: string | null; source: string; search: EditSearch }) {
  const t = useText();
  const p = usePageText().editor;
  const place = `hai.text.${name ?? ""}`;
  const [kept] = useState(() => (search.cron ? null : keptText(place)));
  const [text, setText] = useState(kept ?? begun(source, search));
  const [given, setGiven] = useState<{ text: string } | null>(null);
  const [spot, setSpot] = useState<Spot | null>(null);
  const [said, setSaid] = useState("");
  const { busy, problem, send } = useSending();
  const checked = useChecked(text);
  const findings = useMemo(
    () => checked.findings.map((each) => ({ ...each, message: findingText(each) })),
    [checked.findings, t],
  );
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  const schema = useQuery({
    queryKey: ["language"],
    queryFn: ({ signal }) => get<Schema>("/v1/language/schema", signal),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const newest = useRef(text);
  const write = useCallback(
    (now: string) => {
      newest.current = now;
      setText(now);
      setSaid("");
      if (now === source) dropText(place);
      else keepText(place, now);
    },
    [place, source],
  );
  // Not what is typed: by the time that it came back, more would have been typed.
  const replace = (now: string): void => {
    write(now);
    setGiven({ text: now });
  };
  const format = (): Promise<unknown> =>
    send(async () => {
      const { source: tidy } = await callWithText<Formatted>("/v1/workflows/format", text);
      if (newest.current !== text) return; // what was typed meanwhile is not lost
      replace(tidy);
      setSaid(p.formatted);
    });
  return (
    <>
      <h1 tabIndex={-1} ref={heading}>
        {name === null ? p.newTitle : p.title(name)}
      </h1>
      {kept !== null && kept !== source && (
        <p className="note row">
          <span className="grow">{p.kept}</span>
          <button onClick={() => replace(source)}>{p.discard}</button>
        </p>
      )}
      <div className="desk">
        <section className="card stack" aria-label={p.source}>
          <div className="row">
            <Verdict checked={checked} said={said} />
            <span className="grow" />
            <button disabled={busy} onClick={() => void format()}>{p.format}</button>
            <Publish text={text} checked={checked} write={replace} published={() => dropText(place)} />
          </div>
          {problem && <ProblemNote problem={problem} />}
          <Suspense fallback={<p role="status">{t.app.loading}</p>}>
            <Editor
              text={text}
              given={given}
              onChange={write}
              findings={findings}
              schema={schema.data ?? null}
              label={p.source}
              describedBy="editor-keys"
              spot={spot}
              fixLabel={p.fix}
            />
          </Suspense>
          <p id="editor-keys" className="quiet small">
            {p.keys}
          </p>
          <Findings findings={findings} go={(each) => setSpot({ line: each.line, column: each.column })} />
        </section>
        <section className="card" aria-label={p.picture}>
          <Picture graph={checked.graph} old={checked.graphIsOld} go={setSpot} />
        </section>
      </div>
    </>
  );
}

function Verdict({ checked, said }: { checked: Checked; said: string }) {
  const p = usePageText().editor;
  const errors = checked.findings.filter((each) => each.severity === "error").length;
  const doubts = checked.findings.length - errors;
  const words = checked.problem ? p.offline : checked.checking ? p.checking : checked.findings.length === 0 ? p.right : p.found(errors, doubts);
  const tone = checked.problem || errors > 0 ? "bad" : checked.checking ? "" : doubts > 0 ? "warn" : "good";
  return (
    <span role="status">
      <span className={`tag wraps ${tone}`}>{words}</span> {said}
    </span>
  );
}

function Findings({ findings, go }: { findings: readonly Finding[]; go(finding: Finding): void }) {
  const p = usePageText().editor;
  if (findings.length === 0) return null;
  return (
    <ul className="findings">
      {findings.slice(0, SHOWN).map((each, i) => (
        <li key={i}>
          <button className={`plain ${each.severity}`} onClick={() => go(each)}>
            <code>{p.at(each.line, each.column)}</code> {each.message.slice(0, 1000)}
          </button>
        </li>
      ))}
    </ul>
  );
}

function Picture({ graph, old, go }: { graph: Drawn | null; old: boolean; go(spot: Spot): void }) {
  const p = usePageText().editor;
  const [selected, setSelected] = useState<string | undefined>();
  if (graph === null) return <p className="quiet">{p.noPicture}</p>;
  return (
    <div className={old ? "faded" : ""}>
      {old && <p className="quiet small">{p.old}</p>}
      <Graph
        graph={graph}
        selected={selected}
        onSelect={(path) => {
          setSelected(path);
          const step = graph.steps.find((each) => each.path === path);
          if (step && step.line !== null) go({ line: step.line, column: step.column ?? 1 });
        }}
      />
    </div>
  );
}

interface PublishProps {
  text: string;
  checked: Checked;
  write(text: string): void;
  published(): void;
}

function Publish({ text, checked, write, published }: PublishProps) {
  const p = usePageText().editor;
  const may = useMay("publish");
  const navigate = useNavigate();
  const [asking, setAsking] = useState(false);
  const { busy, problem, send, say } = useSending();
  const name = nameOf(text) ?? "?";
  const version = versionOf(text) ?? 1;
  if (!may) return null;
  const publish = (): Promise<unknown> =>
    send(async () => {
      const done = await callWithText<PublishedWorkflow>("/v1/workflows", text);
      published();
      setAsking(false);
      void navigate({ to: "/workflows/$name", params: { name: done.name }, search: {} });
    });
  const exists = problem?.code === "workflow_exists";
  return (
    <>
      <button className="main" disabled={!checked.valid} onClick={() => setAsking(true)}>
        {p.publish}
      </button>
      {asking && (
        <Ask
          title={p.publishTitle(name, version)}
          yes={p.publish}
          busy={busy}
          problem={exists ? null : problem}
          onYes={() => void publish()}
          onNo={() => setAsking(false)}
        >
          <p>{p.publishNote}</p>
          {exists && <p className="note bad" role="alert">{p.exists}</p>}
          {exists && (
            <p>
              <button
                onClick={() => {
                  write(withVersion(text, version + 1));
                  say(null);
                }}
              >
                {p.next}: {version + 1}
              </button>{" "}
              <Go href={`/console/workflows/${encodeURIComponent(name)}`}>{p.seeIt}</Go>
            </p>
          )}
        </Ask>
      )}
    </>
  );
}
