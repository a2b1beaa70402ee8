// How approvals are decided: of all for auditors, of oneself for deciders; and the seeded questions.

import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { Canaries, Oversight as Figures, OversightGroup, PersonOversight } from "../../api/types.gen.ts";
import { useMay } from "../../context.ts";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { moment } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";
import { SPANS } from "./search.ts";

const ONCE = { staleTime: 60_000, refetchOnWindowFocus: false } as const; // each look of an auditor is recorded

export function Oversight() {
  const p = usePageText().oversight;
  const { by = "workflow", since = "30d" } = getRouteApi("/oversight").useSearch();
  const navigate = useNavigate();
  const audits = useMay("read_audit");
  const decides = useMay("decide");
  const seeds = useMay("manage_keys");
  const go = (search: { by: string; since: string }) =>
    void navigate({
      to: "/oversight",
      search: { by: search.by === "tool" ? "tool" : undefined, since: search.since === "30d" ? undefined : search.since },
      replace: true,
    });
  return (
    <>
      <h1>{p.title}</h1>
      <p className="quiet">{p.hint}</p>
      <div className="filters even">
        <div>
          <label className="small quiet" htmlFor="oversight-since">
            {p.since}
          </label>
          <select id="oversight-since" value={since} onChange={(event) => go({ by, since: event.currentTarget.value })}>
            {SPANS.map((each) => (
              <option key={each} value={each}>
                {p.spans[each]}
              </option>
            ))}
          </select>
        </div>
        {audits && (
          <div>
            <label className="small quiet" htmlFor="oversight-by">
              {p.by}
            </label>
            <select id="oversight-by" value={by} onChange={(event) => go({ by: event.currentTarget.value, since })}>
              <option value="workflow">{p.workflow}</option>
              <option value="tool">{p.tool}</option>
            </select>
          </div>
        )}
      </div>
      {audits && <OfAll by={by} since={since} />}
      {decides && <Own since={since} />}
      {(audits || seeds) && <Seeded since={since} />}
    </>
  );
}

function OfAll({ by, since }: { by: string; since: string }) {
  const t = useText();
  const p = usePageText().oversight;
  const figures = useQuery({
    queryKey: ["oversight", by, since],
    queryFn: ({ signal }) => get<Figures>(`/v1/oversight?by=${by}&since=${since}`, signal),
    ...ONCE,
  });
  if (figures.error) return <ProblemNote problem={asProblem(figures.error)} again={() => void figures.refetch()} />;
  if (!figures.data) return <p role="status">{t.app.loading}</p>;
  const { items, complete } = figures.data;
  return (
    <section className="stack" aria-label={p.all}>
      <h2>{p.all}</h2>
      {!complete && <p className="note warn">{p.cut}</p>}
      {items.length === 0 ? <p role="status">{p.empty}</p> : <Table title={p.all} rows={items.map((each) => ({ ...each, label: each.name ?? p.noTool }))} />}
    </section>
  );
}

function Own({ since }: { since: string }) {
  const t = useText();
  const p = usePageText().oversight;
  const figures = useQuery({
    queryKey: ["oversight", "me", since],
    queryFn: ({ signal }) => get<PersonOversight>(`/v1/oversight/me?since=${since}`, signal),
    ...ONCE,
  });
  if (figures.error) return <ProblemNote problem={asProblem(figures.error)} again={() => void figures.refetch()} />;
  if (!figures.data) return <p role="status">{t.app.loading}</p>;
  const { data } = figures;
  return (
    <section className="stack" aria-label={p.own}>
      <h2>{p.own}</h2>
      <p className="quiet">{p.ownHint}</p>
      {data.questions + data.canaries === 0 ? (
        <p role="status">{p.ownEmpty}</p>
      ) : (
        <Table title={p.own} rows={[{ ...data, label: p.you, open: 0, expired: 0, withdrawn: 0 }]} />
      )}
    </section>
  );
}

type Row = Omit<OversightGroup, "name"> & { label: string };

function Table({ title, rows }: { title: string; rows: Row[] }) {
  const p = usePageText().oversight;
  return (
    <div className="sideways figures" tabIndex={0} role="region" aria-label={`${title} · ${p.figures}`}>
      <table>
        <thead>
          <tr>
            {p.heads.map((each) => (
              <th key={each} scope="col">
                {each}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((each) => {
            const ended = each.questions - each.open;
            return (
              <tr key={each.label}>
                <th scope="row" dir="auto">
                  {each.label.slice(0, 200)}
                </th>
                <td>{each.questions}</td>
                <td>{each.open}</td>
                <td>{lasting(each.median_seconds)}</td>
                <td>{lasting(each.p90_seconds)}</td>
                <td>{share(each.quick, each.votes)}</td>
                <td>{share(each.opened, each.votes)}</td>
                <td>{share(each.followed, each.votes)}</td>
                <td>{share(each.approved, ended)}</td>
                <td>{share(each.refused, ended)}</td>
                <td>{share(each.edited, ended)}</td>
                <td>{share(each.expired, ended)}</td>
                <td>{share(each.by_rule, ended)}</td>
                <td className="whole">{each.canaries > 0 && p.counted(each.canaries, each.caught, each.missed)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function share(part: number, all: number): string {
  return all === 0 || part === 0 ? "" : `${Math.round((100 * part) / all)} %`;
}

function lasting(seconds: number | null): string {
  if (seconds === null) return "";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : minutes < 2880 ? `${(minutes / 60).toFixed(1)} h` : `${Math.round(minutes / 1440)} d`;
}

function Seeded({ since }: { since: string }) {
  const t = useText();
  const p = usePageText().oversight;
  const seeded = useQuery({
    queryKey: ["canaries", since],
    queryFn: ({ signal }) => get<Canaries>(`/v1/canaries?since=${since}`, signal),
    ...ONCE,
  });
  if (seeded.error) return <ProblemNote problem={asProblem(seeded.error)} again={() => void seeded.refetch()} />;
  if (!seeded.data) return <p role="status">{t.app.loading}</p>;
  return (
    <section className="stack" aria-label={p.canaries}>
      <h2>{p.canaries}</h2>
      <p className="quiet">{p.canariesHint}</p>
      {seeded.data.items.length === 0 ? (
        <p role="status">{p.noCanary}</p>
      ) : (
        <ul className="records">
          {seeded.data.items.map((each) => (
            <li key={each.run_id} className="facts-line">
              <span className={`tag ${each.status === "caught" ? "good" : each.status === "missed" ? "bad" : ""}`}>{p.results[each.status]}</span>
              <time dateTime={each.at} className="quiet">
                {moment(each.at)}
              </time>
              {each.pending_id === null ? (
                <b>{`${each.workflow} · ${each.path}`.slice(0, 200)}</b>
              ) : (
                <Go href={`/console/inbox/${each.pending_id}`}>{`${each.workflow} · ${each.path}`.slice(0, 200)}</Go>
              )}
              <span dir="auto">{each.reason}</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
